//! The referee: compares the activity of whole machines with the CPU time of the sides.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cells::{self, CellKey};
use crate::record::sample::{Machine, Record, Scenario, Side};
use crate::statistics::{median, symmetric_error};

/// How well the accounts of one scenario's runs agree. Ratios are medians over runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AccountingCheck {
    pub scenario: Scenario,
    pub n: usize,
    /// The sides' CPU time, including kernel threads, over the busy time of the machines without
    /// the background: by idle accounting, and by the soaker if there was one.
    pub own_to_idle: f64,
    pub own_to_soaker: Option<f64>,
    /// Interrupts on no thread's clock, as a share of the sides' CPU time: a soaker absorbs them,
    /// and without a soaker idle accounting includes them. From runs without a soaker, if there are
    /// any.
    pub unclocked: Option<f64>,
    /// The sides' CPU time plus those interrupts, over the busy time by the soaker.
    pub idle_to_soaker: Option<f64>,
    /// Interrupts that the soaker absorbed, as a share of the busy time by the soaker.
    pub absorbed: Option<f64>,
    /// Whether the background is known for every run. If not, the machines' figures include it, and
    /// no conclusion is possible.
    pub background_known: bool,
    /// Time on no side's account: kernel threads by name, in seconds a run.
    pub residue: Vec<(String, f64)>,
}

impl AccountingCheck {
    /// Whether the accounts are within 10 % of each other: clocks and idle accounting in the same
    /// runs; the soaker with those, or with idle accounting of runs without a soaker. (With it no
    /// CPU is idle, so no interrupt has to wake one.) Halves only have runs with a soaker, so the
    /// interrupts that it absorbed are unknown, and it is not compared.
    pub(crate) fn agrees(&self) -> bool {
        let near = |ratio: &f64| symmetric_error(*ratio, 1.0) <= AGREEMENT;
        let soaker = match self.scenario.is_half() && self.idle_to_soaker.is_none() {
            true => [None, None],
            false => [self.own_to_soaker, self.idle_to_soaker],
        };
        let mut known = soaker.iter().flatten().peekable();
        near(&self.own_to_idle) && (known.peek().is_none() || known.any(near))
    }
}

pub fn of(records: &[&Record]) -> Vec<AccountingCheck> {
    let mut scenarios: BTreeMap<Scenario, Vec<&Record>> = BTreeMap::new();
    for record in records.iter().filter(|record| !record.machines.is_empty()) {
        if let Some(place) = &record.place {
            scenarios.entry(place.scenario).or_default().push(record);
        }
    }
    scenarios.into_iter().filter_map(|(scenario, records)| referee(scenario, &records)).collect()
}

fn referee(scenario: Scenario, records: &[&Record]) -> Option<AccountingCheck> {
    // If some runs had a soaker, the CPU time is from these.
    let soaked = |record: &&&Record| record.machines.iter().all(|m| m.busy_iter_s.is_some());
    let (with, without): (Vec<&Record>, Vec<&Record>) = records.iter().partition(soaked);
    let records = if with.is_empty() { &without } else { &with };
    let of = |busy: &dyn Fn(&Record, &Machine) -> Option<f64>| {
        let ratios: Vec<f64> = records
            .iter()
            .filter_map(|record| {
                Some(own_s(record) / busy_s(record, &|machine| busy(record, machine))?)
            })
            .collect();
        median(&ratios)
    };
    let own_to_idle = of(&|_, machine| Some(beyond_background(machine)))?;
    let own_to_soaker = of(&everywhere);
    let unclocked = unclocked(&without);
    let beside = |record: &Record| unclocked.get(&cells::key(record)?).copied();
    let with_interrupts: Vec<f64> = with
        .iter()
        .filter_map(|record| {
            let busy = busy_s(record, &|machine| everywhere(record, machine))?;
            Some(own_s(record) * (1.0 + beside(record)?) / busy)
        })
        .collect();
    Some(AccountingCheck {
        scenario,
        n: records.len(),
        own_to_idle,
        own_to_soaker,
        unclocked: median(&records.iter().filter_map(|run| beside(run)).collect::<Vec<_>>()),
        idle_to_soaker: median(&with_interrupts),
        absorbed: absorbed(records),
        background_known: records
            .iter()
            .flat_map(|record| &record.machines)
            .all(|machine| machine.background_s.is_some()),
        residue: residue(records),
    })
}

fn own_s(record: &Record) -> f64 {
    record.source.cpu_s() + record.sink.as_ref().map_or(0.0, Side::cpu_s)
}

/// The busy time of the machines for the run, without the background.
fn busy_s(record: &Record, busy: &dyn Fn(&Machine) -> Option<f64>) -> Option<f64> {
    let sum = record.machines.iter().map(busy).sum::<Option<f64>>()?;
    (sum > 0.0).then_some(sum)
}

fn beyond_background(machine: &Machine) -> f64 {
    machine.busy_idle_s - machine.background_s.unwrap_or(0.0)
}

/// The soaker was calibrated with the background, so its busy time excludes it. It only covers its
/// own CPUs.
fn everywhere(record: &Record, machine: &Machine) -> Option<f64> {
    let everywhere = record.conditions.soaked_cpus.len() >= machine.cpus as usize;
    machine.busy_iter_s.filter(|_| everywhere)
}

/// By how much the machines' busy time by idle accounting exceeds the time of all clocks, as a
/// share of the latter; by cell, from runs without a soaker.
fn unclocked(records: &[&Record]) -> BTreeMap<CellKey, f64> {
    let mut cells: BTreeMap<CellKey, Vec<f64>> = BTreeMap::new();
    for record in records {
        let busy = busy_s(record, &|machine| Some(beyond_background(machine)));
        if let (Some(key), Some(busy)) = (cells::key(record), busy)
            && own_s(record) > 0.0
        {
            cells.entry(key).or_default().push(busy / own_s(record) - 1.0);
        }
    }
    cells.into_iter().filter_map(|(key, shares)| Some((key, median(&shares)?))).collect()
}

fn absorbed(records: &[&Record]) -> Option<f64> {
    let of = |machine: &Machine| {
        let busy = machine.busy_iter_s? + machine.background_s.unwrap_or(0.0);
        (busy > 0.0).then_some(())?;
        Some((busy - machine.busy_clock_s?) / busy)
    };
    median(&records.iter().flat_map(|record| &record.machines).filter_map(of).collect::<Vec<_>>())
}

/// Kernel threads on no side's account, the largest three.
fn residue(records: &[&Record]) -> Vec<(String, f64)> {
    let mut seconds: BTreeMap<&str, f64> = BTreeMap::new();
    for record in records {
        let sides = || [Some(&record.source), record.sink.as_ref()].into_iter().flatten();
        for thread in record.machines.iter().flat_map(|machine| &machine.kernel_threads) {
            if !sides().any(|side| side.kernel_threads_s.contains_key(&thread.name)) {
                *seconds.entry(&thread.name).or_default() += thread.cpu_s;
            }
        }
    }
    let runs = records.len().max(1) as f64;
    let mut all: Vec<(String, f64)> =
        seconds.into_iter().map(|(name, sum)| (name.to_string(), sum / runs)).collect();
    all.retain(|(_, seconds)| *seconds >= RESIDUE_S_MIN);
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all.truncate(3);
    all
}

const AGREEMENT: f64 = 0.10;
/// Less than a tick per run is not listed.
const RESIDUE_S_MIN: f64 = 0.004;
