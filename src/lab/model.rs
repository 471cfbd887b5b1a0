//! What a byte costs: `CPU = B·Cb + N·Cr + S·Cs`, fitted to samples, and what follows from it.

pub mod curve;
pub mod fit;

use serde::{Deserialize, Serialize};

use super::whole::Whole;

/// A value with its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

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

/// The seed model over a range of request sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Regime {
    pub request_bytes_min: u32,
    pub request_bytes_max: u32,
    /// Per byte, in nanoseconds.
    pub cb_ns: Estimate,
    /// Per request (or per counted call), in nanoseconds.
    pub cr_ns: Estimate,
    /// Per start, a request that finds nothing of its lane's files in the air; `None` where it
    /// could not be told from `cr_ns`, which holds it then.
    #[serde(default)]
    pub cs_ns: Option<Estimate>,
}

/// What one part costs under one set of conditions: the pump's own cost is taken off, but from the
/// pump itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Component {
    pub part: Part,
    /// What it was measured under, as words: `ext4 direct`, `tmpfs`, `tcp loopback bbr any`.
    pub conditions: String,
    pub regimes: Vec<Regime>,
    /// The rate that it reached alone, by request size, in bytes a second.
    pub bandwidth: Vec<(u32, Estimate)>,
    /// Calls for each full request, by request size: more than 1 where returns are partial.
    pub calls_per_request: Vec<(u32, f64)>,
}

/// What one host's parts cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostModel {
    pub host: String,
    pub cpus: u32,
    /// The experiment that it was made from, and when.
    pub experiment: String,
    pub fitted_unix_s: f64,
    pub components: Vec<Component>,
    /// What whole copies cost, for predictions.
    #[serde(default)]
    pub whole: Option<Whole>,
}
