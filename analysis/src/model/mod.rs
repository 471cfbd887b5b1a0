//! What a byte costs: `CPU = B·Cb + N·Cr + S·Cs`, fitted to samples, and what follows from it. Pure
//! arithmetic over numbers and records: no experiment, no store, no clock.

pub mod curve;
pub mod end_to_end;
pub mod fit;
pub mod observations;
pub mod shape;
pub mod travelling;

use serde::{Deserialize, Serialize};

use self::end_to_end::EndToEnd;
use crate::statistics::Estimate;

/// One part of a pump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    Pump,
    DiskSource,
    DiskSink,
    /// What receiving costs.
    NetSource,
    /// What sending costs.
    NetSink,
}

/// The model of Mayr and Gray over a range of request sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Regime {
    pub request_bytes_min: u32,
    pub request_bytes_max: u32,
    /// Per byte, in nanoseconds.
    pub cb_ns: Estimate,
    /// Per request (or per counted call), in nanoseconds.
    pub cr_ns: Estimate,
    /// Per start: a request submitted while its lane had no file request in flight. `None` where it
    /// could not be separated from `cr_ns`, which then includes it.
    #[serde(default)]
    pub cs_ns: Option<Estimate>,
}

/// What one part costs under given conditions. The pump's own cost is subtracted, except for the
/// pump itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Component {
    pub part: Part,
    /// The conditions of the measurement, in words: `ext4 direct`, `tmpfs`, `tcp loopback bbr any`.
    pub conditions: String,
    pub regimes: Vec<Regime>,
    /// The rate that it reached alone, by request size, in bytes a second.
    pub bandwidth: Vec<(u32, Estimate)>,
    /// Calls per full request, by request size: more than 1 where calls are partial.
    pub calls_per_request: Vec<(u32, f64)>,
}

/// What one host's parts cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostModel {
    pub host: String,
    pub cpus: u32,
    /// The experiment that it was fitted to, and when.
    pub experiment: String,
    pub fitted_unix_s: f64,
    pub components: Vec<Component>,
    /// What whole copies cost, for predictions.
    #[serde(default)]
    pub whole: Option<EndToEnd>,
}

impl HostModel {
    /// This model, completed by what only an older one of the same host has. The newer time counts.
    pub fn merged(self, older: HostModel) -> HostModel {
        let knows_parts = !self.components.is_empty();
        HostModel {
            cpus: if self.cpus > 0 { self.cpus } else { older.cpus },
            experiment: if knows_parts { self.experiment } else { older.experiment },
            components: if knows_parts { self.components } else { older.components },
            fitted_unix_s: self.fitted_unix_s.max(older.fitted_unix_s),
            whole: self.whole.or(older.whole),
            host: self.host,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_new_model_does_not_know_stays() {
        let part = Component {
            part: Part::Pump,
            conditions: String::new(),
            regimes: Vec::new(),
            bandwidth: Vec::new(),
            calls_per_request: Vec::new(),
        };
        let parts = |at: f64| HostModel {
            host: "h".into(),
            cpus: 2,
            experiment: format!("measure-{at}"),
            fitted_unix_s: at,
            components: vec![part.clone()],
            whole: None,
        };
        let whole = |at: f64| HostModel {
            whole: Some(EndToEnd { cpus: 4, fitted_unix_s: at, routes: Vec::new() }),
            components: Vec::new(),
            cpus: 4,
            ..parts(at)
        };
        // Older, newer, merged: experiment, time of the whole copies, CPUs, time of the fit.
        let cases = [
            (parts(1.0), whole(2.0), ("measure-1", Some(2.0), 4, 2.0)),
            (whole(1.0), parts(2.0), ("measure-2", Some(1.0), 2, 2.0)),
            (parts(3.0), parts(2.0), ("measure-2", None, 2, 3.0)),
            (HostModel::default(), whole(2.0), ("", Some(2.0), 4, 2.0)),
            (whole(1.0), HostModel::default(), ("measure-1", Some(1.0), 4, 1.0)),
        ];
        for (older, newer, (experiment, whole, cpus, at)) in cases {
            let got = newer.clone().merged(older.clone());
            let found = got.whole.as_ref().map(|whole| whole.fitted_unix_s);
            let seen = (got.experiment.as_str(), found, got.cpus, got.fitted_unix_s);
            assert_eq!(seen, (experiment, whole, cpus, at), "{older:?} {newer:?}");
            assert_eq!(got.host, newer.host);
        }
    }
}
