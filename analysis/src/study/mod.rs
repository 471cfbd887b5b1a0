//! Analysis of the runs of an experiment: every cell of the grid, each part's curve, and how well
//! the parts predict compositions. A pure function of stored records: the same records give the
//! same study, in any order. It uses neither the store nor the part of the program that makes runs.
//!
//! CPU time is from runs with the soaker, as in the report of Mayr and Gray (2000), or from runs
//! without one, by clocks alone: a soaker changes what it measures, as no CPU is idle then. Both
//! kinds are studied and reported.

pub mod cells;
pub(crate) mod compositions;
pub mod compression;
pub mod device;
pub mod experiment;
pub mod halves;
pub mod law;
pub mod parts;
pub mod referee;
pub mod soaking;
pub mod verdicts;

use std::collections::BTreeMap;

use serde::Serialize;

use self::cells::Cell;
pub use self::cells::CpuFrom;
use self::compositions::Composition;
use self::law::RateGrid;
use self::parts::PartStudy;
use self::referee::AccountingCheck;
use self::soaking::Soaking;
use crate::model::end_to_end::records::is_whole;
use crate::model::{Component, HostModel, Part};
use crate::record::sample::{Record, Scenario};

/// The same runs studied with the CPU time of each kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Studies {
    /// The kind that the full tables show.
    pub full: Study,
    /// `None` where all runs are of one kind.
    pub other: Option<Study>,
    pub soaking: Vec<Soaking>,
}

impl Studies {
    pub fn of(records: &[Record], cache_bytes: Option<u64>, full: CpuFrom) -> Studies {
        let soaking = soaking::of(records);
        let other = match full {
            CpuFrom::Soaked => CpuFrom::Bare,
            CpuFrom::Bare => CpuFrom::Soaked,
        };
        let study = |cpu_from| Study::with(records, cache_bytes, cpu_from);
        Studies { full: study(full), other: (!soaking.is_empty()).then(|| study(other)), soaking }
    }

    /// The models of the hosts that the parts ran on, from runs without a soaker, as copies have
    /// none. `host_of` names the host of an environment.
    pub fn hosts(&self, host_of: impl Fn(i64) -> String) -> Vec<HostModel> {
        match &self.other {
            Some(other) if other.cpu_from == CpuFrom::Bare => other.hosts(host_of),
            _ => self.full.hosts(host_of),
        }
    }
}

/// The data of the tables.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Study {
    pub cpu_from: CpuFrom,
    pub experiments: Vec<String>,
    pub started_unix_s: f64,
    pub ended_unix_s: f64,
    pub versions: Vec<String>,
    /// Runs that are part of an experiment; others are not studied.
    pub runs: usize,
    pub voids: Vec<Void>,
    pub gates: Vec<GateTally>,
    pub cells: Vec<Cell>,
    pub parts: Vec<PartStudy>,
    pub compositions: Vec<Composition>,
    /// What the law of rates predicts beyond the depths and lanes that were run.
    pub rate_grids: Vec<RateGrid>,
    pub referees: Vec<AccountingCheck>,
    /// Problems of the analysis, and why.
    pub remarks: Vec<String>,
}

/// A void run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Void {
    pub id: i64,
    pub scenario: Scenario,
    pub request_bytes: u32,
    /// The name of the first gate that it failed, and its value.
    pub gate: String,
    pub value: Option<f64>,
    /// The same as a sentence.
    pub reason: String,
}

/// A gate over all runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GateTally {
    pub name: String,
    pub passed: usize,
    pub failed: usize,
    /// The largest value, and its limit.
    pub worst: f64,
    pub limit: f64,
}

impl Study {
    pub fn of(records: &[Record]) -> Study {
        Study::with(records, None, CpuFrom::default())
    }

    /// `cache_bytes` is the size of a core's own (second level) cache, if known: bytes cost more
    /// when the requests in flight do not fit in it.
    pub fn with(records: &[Record], cache_bytes: Option<u64>, cpu_from: CpuFrom) -> Study {
        let mut placed: Vec<&Record> =
            records.iter().filter(|record| record.place.is_some() && !is_whole(record)).collect();
        placed.sort_by(|a, b| order(a).partial_cmp(&order(b)).unwrap_or(std::cmp::Ordering::Equal));
        let counting: Vec<&Record> =
            placed.iter().copied().filter(|record| record.void_reason.is_none()).collect();
        let mut study = Study {
            cpu_from,
            experiments: names(
                placed.iter().filter_map(|record| Some(&record.place.as_ref()?.experiment)),
            ),
            versions: names(placed.iter().map(|record| &record.version)),
            started_unix_s: placed.first().map_or(0.0, |record| record.started_unix_s),
            ended_unix_s: placed
                .last()
                .map_or(0.0, |record| record.started_unix_s + record.moved.elapsed_s),
            runs: placed.len(),
            voids: placed.iter().filter_map(|record| void(record)).collect(),
            gates: gates(&placed),
            cells: cells::of(&placed, cpu_from),
            referees: referee::of(&counting),
            ..Study::default()
        };
        study.parts = parts::of(&counting, cpu_from, cache_bytes, &mut study.remarks);
        study.compositions =
            compositions::of(&study.cells, &counting, &study.parts, &mut study.remarks);
        study.rate_grids =
            law::predict(&mut study.compositions, &counting, &study.parts, &study.referees);
        study
    }

    /// The curve that represents a part: among equal conditions, the smallest depth whose rate is
    /// near the best.
    pub fn chosen(&self) -> Vec<&PartStudy> {
        let mut chosen: BTreeMap<(Part, &str), &PartStudy> = BTreeMap::new();
        for part in &self.parts {
            let key = (part.part, part.conditions.as_str());
            let better = chosen.get(&key).is_none_or(|other| part.stands_before(other));
            if better {
                chosen.insert(key, part);
            }
        }
        chosen.into_values().collect()
    }

    /// The models of the hosts that the parts ran on: `host_of` names the host of an environment.
    pub fn hosts(&self, host_of: impl Fn(i64) -> String) -> Vec<HostModel> {
        let mut hosts: BTreeMap<String, HostModel> = BTreeMap::new();
        for part in self.chosen() {
            let host = host_of(part.environment);
            let model = hosts.entry(host.clone()).or_insert_with(|| HostModel {
                host,
                cpus: part.cpus,
                experiment: self.experiments.join(" "),
                fitted_unix_s: self.ended_unix_s,
                ..HostModel::default()
            });
            model.cpus = model.cpus.max(part.cpus);
            model.components.push(part.component());
        }
        hosts.into_values().collect()
    }
}

impl HostModel {
    /// The model of all parts as if of one host; the caller sets its name.
    pub fn of(records: &[Record]) -> HostModel {
        Study::with(records, None, CpuFrom::Bare).hosts(|_| String::new()).pop().unwrap_or_default()
    }

    pub fn component(&self, part: Part, conditions: &str) -> Option<&Component> {
        self.components.iter().find(|one| one.part == part && one.conditions == conditions)
    }
}

/// By time, and by index where clocks stood still.
fn order(record: &Record) -> (f64, u32, i64) {
    let index = record.place.as_ref().map_or(0, |place| place.order_index);
    (record.started_unix_s, index, record.id)
}

fn names<'a>(all: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut names: Vec<String> = all.cloned().collect();
    names.sort();
    names.dedup();
    names
}

fn void(record: &Record) -> Option<Void> {
    Some(Void {
        id: record.id,
        scenario: record.place.as_ref()?.scenario,
        request_bytes: record.options.request_bytes,
        gate: cells::failed_gate(record)?,
        value: record.gates.iter().find(|gate| !gate.passed).map(|gate| gate.value),
        reason: record.void_reason.clone()?,
    })
}

fn gates(records: &[&Record]) -> Vec<GateTally> {
    let mut tallies: BTreeMap<&str, GateTally> = BTreeMap::new();
    for gate in records.iter().flat_map(|record| &record.gates) {
        let tally = tallies.entry(&gate.name).or_insert_with(|| GateTally {
            name: gate.name.clone(),
            passed: 0,
            failed: 0,
            worst: gate.value,
            limit: gate.limit,
        });
        match gate.passed {
            true => tally.passed += 1,
            false => tally.failed += 1,
        }
        if !tally.worst.is_finite() || gate.value > tally.worst {
            (tally.worst, tally.limit) = (gate.value, gate.limit);
        }
    }
    tallies.into_values().collect()
}

#[cfg(test)]
pub mod tests;
