//! What this host has recorded before a page: runs, campaigns and measurements.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use datapump::results::{Experiment, Store};

use crate::support::recorded;
use crate::{model, regular, reports};

/// Run 12 is a copy to another host, whose streams were sampled. There are two campaigns with the
/// names that pages have, one of yesterday that is regular, and measurements of a host.
pub(super) fn fill(results: &Path, measured: &str) {
    let mut store = Store::open(results).unwrap();
    for _ in 0..12 {
        store.insert(&reports::record("pauses", vec!["/data/big.tar".into()])).unwrap();
    }
    for (name, data) in [
        ("sweep-20261122T080000Z", "2026-11-22-compression-campaign-100Mbit-20ms"),
        ("sweep-20261222T080000Z", "2026-11-22-compression-campaign-50Mbit-50ms"),
    ] {
        let command = "sweep".into();
        let experiment = Experiment { name: name.into(), command, ..Experiment::default() };
        store.begin_experiment(&experiment).unwrap();
        for record in recorded::cells(data, name) {
            store.insert(&record).unwrap();
        }
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    regular::campaign_of(&mut store, now - 86_400.0, 1e8, &["dtn2"]);
    model::plant(&mut store, measured, |_| true);
}
