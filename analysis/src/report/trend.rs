//! A route over time in a sentence, and a change of it as an alarm, with its evidence.

use serde::Serialize;

use super::explain::bits;
use super::{live, utc};
use crate::trend::{Change, Route};
use std::time::Duration;

/// `dtn2: 66.4 Mbit/s in the newest of 56 campaigns; it fell to 0.70 of 95.2 Mbit/s from …`.
pub fn sentence(route: &Route) -> String {
    let Some(newest) = route.samples.last() else {
        return format!("{}: nothing is known.", route.host);
    };
    let count = live::count(route.samples.len() as u64, "campaign");
    let now = bits(newest.bytes_per_s);
    match route.changes.last() {
        None => format!("{}: {now} in the newest of {count}, no change.", route.host),
        Some(change) => {
            format!("{}: {now} in the newest of {count}; {}.", route.host, told(route, change))
        }
    }
}

/// `it fell to 0.70 of 95.2 Mbit/s from 2026-11-30T00:00 on`.
fn told(route: &Route, change: &Change) -> String {
    let verb = if change.ratio < 1.0 { "fell" } else { "rose" };
    format!(
        "it {verb} to {:.2} of {} from {} on",
        change.ratio,
        bits(change.before),
        moment(route.samples[change.at].at_unix_s)
    )
}

/// A change that was told now, for a command or a webhook.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alarm {
    pub event: &'static str,
    pub text: String,
    pub host: String,
    pub changed_from: String,
    pub before_bytes_per_s: f64,
    pub after_bytes_per_s: f64,
    pub ratio: f64,
    pub p: f64,
    /// The samples that it was compared with, and their spread as a share.
    pub samples_before: usize,
    pub noise: f64,
    /// The newest samples, from the oldest.
    pub samples: Vec<AlarmSample>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AlarmSample {
    pub at: String,
    pub campaign: String,
    pub bytes_per_s: f64,
    pub copies: usize,
}

/// The alarm of a route whose newest sample has told a change.
pub fn alarm(route: &Route) -> Option<Alarm> {
    let change = route.told_now()?;
    let from = change.at.saturating_sub(BEFORE);
    let sample = |sample: &crate::trend::Sample| AlarmSample {
        at: moment(sample.at_unix_s),
        campaign: sample.campaign.clone(),
        bytes_per_s: sample.bytes_per_s,
        copies: sample.passes,
    };
    Some(Alarm {
        event: "route_changed",
        text: format!("the rate to {} changed: {}", route.host, told(route, change)),
        host: route.host.clone(),
        changed_from: moment(route.samples[change.at].at_unix_s),
        before_bytes_per_s: change.before,
        after_bytes_per_s: change.after,
        ratio: change.ratio,
        p: change.p,
        samples_before: change.reference,
        noise: change.noise,
        samples: route.samples[from..].iter().map(sample).collect(),
    })
}

/// `2026-11-30T00:00Z`.
fn moment(unix_s: f64) -> String {
    let text = utc::utc(Duration::try_from_secs_f64(unix_s).unwrap_or_default());
    text.chars().take(16).chain(['Z']).collect()
}

/// Samples before the change that stand in an alarm.
const BEFORE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trend::Sample;

    #[test]
    fn an_alarm_has_its_evidence_and_comes_once() {
        let sample = |at: u32| Sample {
            at_unix_s: 1.79e9 + f64::from(at) * 21_600.0,
            bytes_per_s: if at < 16 { 10e6 } else { 5e6 } + f64::from(at) * 1e3,
            passes: 3,
            campaign: format!("sweep-{at}"),
        };
        let route = |count: u32| Route::of("dtn2".into(), (0..count).map(sample).collect());
        for count in [0, 15, 19, 21, 30] {
            assert_eq!(alarm(&route(count)), None, "{count}");
        }
        let alarm = alarm(&route(20)).unwrap();
        insta::assert_snapshot!("alarm", serde_json::to_string_pretty(&alarm).unwrap());
        let said = [sentence(&route(16)), sentence(&route(30)), sentence(&route(0))];
        insta::assert_snapshot!("trend-sentences", said.join("\n"));
    }
}
