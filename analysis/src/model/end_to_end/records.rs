//! Copies of a calibration as records in the store, and back.

use std::collections::BTreeMap;

use super::{EndToEnd, EndToEndSample, TrialCopy};
use crate::record::options::Options;
use crate::record::sample::{Conditions, Moved, PlaceInExperiment, Record, Scenario, Side};
use base::settings::Settings;

/// A copy of a calibration as a record. `environment` is this host's in the store.
pub fn record(made: &TrialCopy, experiment: &str, seed: u64, environment: i64) -> Record {
    let TrialCopy { trial, sample, .. } = made;
    let bytes = sample.shape().bytes();
    let side = |cpu_s: f64| Side { environment, cpu_user_s: cpu_s, ..Side::default() };
    let whole = serde_json::to_value(sample).unwrap_or_default();
    Record {
        command: "measure".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        started_unix_s: made.started_unix_s,
        sources: vec![made.source.display().to_string()],
        target: made.target.display().to_string(),
        place: Some(PlaceInExperiment {
            experiment: experiment.to_string(),
            scenario: if trial.far { Scenario::DiskNetDisk } else { Scenario::DiskDisk },
            seed,
            order_index: made.number as u32,
            repeat: 0,
            block: 0,
        }),
        // The default options of a copy.
        options: Options { streams: sample.streams, ..Options::of(&Settings::default()) },
        conditions: Conditions {
            cache: if trial.cold { "cold" } else { "warm" }.into(),
            carrier: sample.carrier.clone(),
            source_file_system: Some(sample.source.clone()),
            sink_file_system: Some(sample.sink.clone()),
            ..Conditions::default()
        },
        moved: Moved {
            bytes,
            files: sample.files,
            elapsed_s: sample.elapsed_s,
            goodput_bytes_per_s: bytes as f64 / sample.elapsed_s.max(1e-9),
            ..Moved::default()
        },
        source: side(sample.cpu_source_s),
        sink: trial.far.then(|| side(sample.cpu_sink_s)),
        more: BTreeMap::from([(WHOLE.to_string(), whole)]),
        ..Record::default()
    }
}

/// The samples in these records: the input of a model of whole copies.
pub fn samples(records: &[Record]) -> Vec<EndToEndSample> {
    let of = |record: &Record| serde_json::from_value(record.more.get(WHOLE)?.clone()).ok();
    records.iter().filter(|record| record.void_reason.is_none()).filter_map(of).collect()
}

/// What whole copies cost, from the calibration in these records; `None` where there is none.
pub fn fitted(records: &[Record], cpus: u32) -> Option<EndToEnd> {
    let ends = records.iter().filter(|record| is_whole(record));
    let ended = ends.map(|record| record.started_unix_s + record.moved.elapsed_s);
    let samples = samples(records);
    let whole = EndToEnd::fit(&samples, cpus, ended.fold(0.0, f64::max));
    (!whole.routes.is_empty() && whole.is_sound()).then_some(whole)
}

/// True of a record that is a copy of a calibration: no part was measured in it.
pub fn is_whole(record: &Record) -> bool {
    record.more.contains_key(WHOLE)
}

/// The key under which a record has its sample.
const WHOLE: &str = "whole";
