//! How the rate of a route goes over weeks of campaigns: one sample a campaign, and the points
//! where it changed. Two windows are compared, the newest samples and those before them, by ranks
//! (Kifer, Ben-David and Gehrke, "Detecting Change in Data Streams", VLDB 2004; the test is that of
//! Mann and Whitney, 1947, with its exact distribution; the size of a change is that of Hodges and
//! Lehmann, 1963). Pure.

pub mod change;
pub mod retention;

use std::collections::BTreeMap;

pub use self::change::{Change, changes};
use crate::campaign::study;
use crate::record::sample::Record;

/// A route over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Route {
    pub host: String,
    /// From the oldest.
    pub samples: Vec<Sample>,
    pub changes: Vec<Change>,
}

/// What one campaign found on a route.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    pub at_unix_s: f64,
    /// The median of the passes.
    pub bytes_per_s: f64,
    pub passes: usize,
    pub campaign: String,
}

/// A campaign and its cells.
#[derive(Clone, Copy, Debug)]
pub struct Campaign<'a> {
    pub name: &'a str,
    pub started_unix_s: f64,
    pub records: &'a [Record],
}

/// Each host with what campaigns found there: the rate of a copy with default options, of which
/// every campaign has some. The campaigns are in the order of their time.
pub fn routes(campaigns: &[Campaign<'_>]) -> Vec<Route> {
    let mut by_host: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
    for campaign in campaigns {
        let rows = study::rows(campaign.records);
        for best in study::best(&rows) {
            let Some(row) = best.usual() else { continue };
            by_host.entry(best.host.to_string()).or_default().push(Sample {
                at_unix_s: campaign.started_unix_s,
                bytes_per_s: row.rate.median,
                passes: row.rate.n,
                campaign: campaign.name.to_string(),
            });
        }
    }
    by_host.into_iter().map(|(host, samples)| Route::of(host, samples)).collect()
}

impl Route {
    pub fn of(host: String, mut samples: Vec<Sample>) -> Route {
        samples.retain(|sample| sample.bytes_per_s.is_finite() && sample.bytes_per_s > 0.0);
        let rates: Vec<f64> = samples.iter().map(|sample| sample.bytes_per_s).collect();
        Route { host, changes: changes(&rates), samples }
    }

    /// The change that the newest sample told, if it told one: it is told once.
    pub fn told_now(&self) -> Option<&Change> {
        self.changes.last().filter(|change| change.told_at + 1 == self.samples.len())
    }
}

#[cfg(test)]
mod tests;
