//! The effect of a soaker: each cell with one, over the same cell without.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cells::{self, CellKey, ProcessRole};
use super::parts::SEED;
use crate::record::sample::Record;
use crate::statistics::{Estimate, ratio_of_medians};

/// Ratios of medians, with a soaker over without: 1 is no effect.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Soaking {
    pub key: CellKey,
    /// Runs with a soaker, and without.
    pub n: (usize, usize),
    pub rate: Option<Estimate>,
    /// CPU time per byte.
    pub source: Option<Estimate>,
    pub sink: Option<Estimate>,
}

/// Every cell with valid runs of both kinds.
pub fn of(records: &[Record]) -> Vec<Soaking> {
    let mut groups: BTreeMap<CellKey, [Vec<&Record>; 2]> = BTreeMap::new();
    for record in records.iter().filter(|record| record.void_reason.is_none()) {
        if let Some(key) = cells::key(record) {
            let kinds = groups.entry(key).or_default();
            kinds[usize::from(cells::is_soaked(record))].push(record);
        }
    }
    groups.into_iter().filter_map(|(key, [bare, soaked])| soaking(key, &bare, &soaked)).collect()
}

fn soaking(key: CellKey, bare: &[&Record], soaked: &[&Record]) -> Option<Soaking> {
    if bare.is_empty() || soaked.is_empty() {
        return None;
    }
    let ratio = |of: &dyn Fn(&Record) -> Option<f64>| {
        let values = |records: &[&Record]| {
            // Sorted, so that resampling does not depend on the order of the runs.
            let mut values: Vec<f64> = records.iter().filter_map(|record| of(record)).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        ratio_of_medians(&values(soaked), &values(bare), SEED)
    };
    let cost = |end: ProcessRole| {
        ratio(&|record| Some(end.of(record)?.cpu_s() / record.moved.bytes as f64))
    };
    Some(Soaking {
        n: (soaked.len(), bare.len()),
        rate: ratio(&|record| Some(cells::rate(record))),
        source: cost(ProcessRole::Source),
        sink: cost(ProcessRole::Sink),
        key,
    })
}
