//! Whether a study meets its criteria, one by one.

use serde::Serialize;

use super::Study;
use super::cells::{Cell, ProcessRole};
use super::compositions::{Composed, Composition, name};
use super::parts::PartStudy;
use super::referee::AccountingCheck;
use crate::model::Part;
use crate::model::fit::SizeFit;
use crate::record::sample::Scenario;
use crate::statistics::median;
use base::units::Bytes;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    pub what: String,
    pub outcome: Outcome,
    /// The figures that it rests on.
    pub because: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Passed,
    Failed,
    /// The runs that would decide failed a gate.
    Void,
    NotMeasured,
}

impl Outcome {
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Failed => "FAILED",
            Outcome::Void => "void",
            Outcome::NotMeasured => "not measured",
        }
    }

    fn of(passed: bool) -> Outcome {
        if passed { Outcome::Passed } else { Outcome::Failed }
    }
}

pub fn of(study: &Study) -> Vec<Verdict> {
    let chosen = study.chosen();
    let alone = [Part::DiskSource, Part::DiskSink, Part::NetSink, Part::NetSource];
    let mut verdicts = pump(study, &chosen);
    for part in alone {
        let found: Vec<&&PartStudy> = chosen.iter().filter(|one| one.part == part).collect();
        if found.is_empty() {
            let (outcome, because) = absent(study, scenario_of(part));
            let what = format!("{} alone", name(part));
            verdicts.push(Verdict { what, outcome, because });
        }
        verdicts.extend(found.into_iter().map(|one| {
            long_enough(study, scenario_of(part), &one.conditions, isolated(study, one))
        }));
    }
    let ends = [(Scenario::DiskDisk, 1), (Scenario::DiskNetDisk, 2)];
    for (scenario, count) in ends {
        let found: Vec<&Composition> =
            study.compositions.iter().filter(|one| one.scenario == scenario).collect();
        if found.len() < count {
            let (outcome, because) = absent(study, scenario);
            let what = format!("{} from its parts", scenario.told());
            verdicts.push(Verdict { what, outcome, because });
        }
        // Both ends have the same rate.
        let rates: Vec<Verdict> = found
            .iter()
            .filter(|one| one.end == ProcessRole::Source)
            .filter_map(|one| Some(long_enough(study, scenario, &one.conditions, rate(one)?)))
            .collect();
        verdicts.extend(
            found
                .into_iter()
                .map(|one| long_enough(study, scenario, &one.conditions, composed(one))),
        );
        verdicts.extend(rates);
    }
    verdicts.extend(study.referees.iter().map(|referee| Verdict {
        what: format!("{}: accounts of CPU time agree within 10 %", referee.scenario.told()),
        outcome: Outcome::of(referee.agrees()),
        because: accounts(referee),
    }));
    verdicts
}

fn accounts(referee: &AccountingCheck) -> String {
    let mut words = vec![format!("own / idle accounting {:.3}", referee.own_to_idle)];
    if let Some(ratio) = referee.own_to_soaker {
        words.push(format!("own / soaker {ratio:.3}"));
    }
    if let (Some(ratio), Some(unclocked)) = (referee.idle_to_soaker, referee.unclocked) {
        words.push(format!(
            "including interrupts ({:+.1} %, from runs without a soaker) {ratio:.3}",
            100.0 * unclocked
        ));
    }
    words.join(", ")
}

/// The cost of one request of the pump at every size, in nanoseconds.
pub(crate) fn per_request(pump: &PartStudy) -> Vec<(u32, f64)> {
    let of =
        |size: &SizeFit| (size.request_bytes, size.observed_ns * f64::from(size.request_bytes));
    pump.curve.sizes().map(of).collect()
}

fn pump(study: &Study, chosen: &[&PartStudy]) -> Vec<Verdict> {
    let what = "null to null: a byte costs nothing".to_string();
    let Some(pump) = chosen.iter().find(|one| one.part == Part::Pump) else {
        let (outcome, because) = absent(study, Scenario::Cpu);
        return vec![Verdict { what, outcome, because }];
    };
    let cb = pump.curve.fit(0).cb_ns;
    let costs: Vec<f64> = per_request(pump).into_iter().map(|(_, cost)| cost).collect();
    let middle = median(&costs).unwrap_or(0.0);
    let off = costs.iter().map(|cost| (cost / middle - 1.0).abs()).fold(0.0, f64::max);
    vec![
        Verdict {
            what,
            outcome: Outcome::of(cb.holds(0.0) || cb.value < FREE_NS),
            because: format!("Cb = {:.5} [{:.5}, {:.5}] ns/B", cb.value, cb.low, cb.high),
        },
        Verdict {
            what: "null to null: a request costs the same at all sizes, within 10 %".into(),
            outcome: Outcome::of(off <= CONSTANT),
            because: format!(
                "{:.3} µs median, {:.1} % off at most; Mayr and Gray: 20 µs",
                middle / 1e3,
                off * 100.0
            ),
        },
    ]
}

fn isolated(study: &Study, part: &PartStudy) -> Verdict {
    let scenario = scenario_of(part.part);
    let gates = |seen: &SizeFit| {
        let cells = study.cells.iter().filter(|cell| {
            let key = &cell.key;
            (key.scenario, key.request_bytes) == (scenario, seen.request_bytes)
                && (key.conditions == part.conditions && key.depths.in_flight() == seen.depth)
        });
        cells.flat_map(|cell| cell.voids.keys().cloned()).collect()
    };
    let of = |seen: &SizeFit| Judged {
        at: match part.curve.has_depths() {
            false => size(seen.request_bytes),
            true => format!("{} depth {}", size(seen.request_bytes), seen.depth),
        },
        n: seen.n,
        error: Some(seen.symmetric_error()),
        gates: gates(seen),
    };
    judged(
        format!("{} alone ({})", name(part.part), part.conditions),
        &part.curve.sizes().map(of).collect::<Vec<_>>(),
    )
}

fn composed(one: &Composition) -> Verdict {
    let what = format!(
        "{} at the {} from its parts ({})",
        one.scenario.told(),
        one.end.name(),
        one.conditions
    );
    let (shared, apart): (Vec<&Composed>, Vec<&Composed>) =
        one.sizes.iter().partition(|seen| seen.shares_device());
    if shared.len() > apart.len() {
        let (worst, middle) = worst_and_median(&one.errors());
        let because = format!(
            "void: {ONE_DEVICE} at {} of {} sizes (preliminary: {:.1} % at most, {:.1} % median)",
            shared.len(),
            one.sizes.len(),
            worst * 100.0,
            middle * 100.0
        );
        return Verdict { what, outcome: Outcome::Void, because };
    }
    let of = |seen: &&Composed| Judged {
        at: size(seen.request_bytes),
        n: seen.runs(),
        error: seen.symmetric_error(),
        gates: seen.voids.iter().map(|(gate, _)| gate.clone()).collect(),
    };
    let mut verdict = judged(what, &apart.iter().map(of).collect::<Vec<_>>());
    let flat: Vec<f64> = apart
        .iter()
        .filter(|seen| seen.runs() >= RUNS_MIN)
        .filter_map(|seen| seen.flat_out_error())
        .collect();
    if one.has_halves() && !flat.is_empty() {
        let (worst, middle) = worst_and_median(&flat);
        verdict.because = format!(
            "{}; with the network at full rate: {:.1} % at most, {:.1} % median",
            verdict.because,
            worst * 100.0,
            middle * 100.0
        );
    }
    if !shared.is_empty() {
        let at: Vec<String> = shared.iter().map(|seen| size(seen.request_bytes)).collect();
        verdict.because = format!("{}; void: {ONE_DEVICE} at {}", verdict.because, at.join(", "));
    }
    verdict
}

/// How well the rate is predicted; `None` where a part was not measured alone.
fn rate(one: &Composition) -> Option<Verdict> {
    let of = |seen: &Composed| Judged {
        at: size(seen.request_bytes),
        n: seen.n,
        error: seen.rate_error(),
        gates: seen.voids.iter().map(|(gate, _)| gate.clone()).collect(),
    };
    let is_predicted = one.sizes.iter().any(|seen| seen.predicted_rate.is_some());
    let told = one.scenario.told();
    let depths = one.depths.in_flight();
    let what = format!("rate of {told} from its parts ({}, depth {depths})", one.conditions);
    is_predicted.then(|| judged(what, &one.sizes.iter().map(of).collect::<Vec<_>>()))
}

/// Runs that mainly start and end give no failure.
fn long_enough(
    study: &Study,
    scenario: Scenario,
    conditions: &str,
    mut verdict: Verdict,
) -> Verdict {
    let of =
        |cell: &&Cell| (cell.key.scenario, cell.key.conditions.as_str()) == (scenario, conditions);
    let elapsed_s: Vec<f64> =
        study.cells.iter().filter(of).filter_map(|cell| cell.elapsed_s).collect();
    let middle = median(&elapsed_s).unwrap_or(f64::INFINITY);
    if verdict.outcome == Outcome::Failed && middle < RUN_S_MIN {
        verdict.outcome = Outcome::NotMeasured;
        verdict.because = format!(
            "runs of {middle:.2} s are too short to judge (at least {RUN_S_MIN} s): take a larger \
             file, or more --bytes; preliminary: {}",
            verdict.because
        );
    }
    verdict
}

/// One request size, as input of a verdict.
struct Judged {
    at: String,
    /// Valid runs.
    n: usize,
    error: Option<f64>,
    /// Gates that the other runs failed.
    gates: Vec<String>,
}

/// Within 15 % at every size and 10 % in the median. A size with fewer than three valid runs is not
/// judged, and with fewer than half of the sizes nothing is.
fn judged(what: String, all: &[Judged]) -> Verdict {
    let (told, untold): (Vec<&Judged>, Vec<&Judged>) =
        all.iter().partition(|one| one.n >= RUNS_MIN && one.error.is_some());
    let errors: Vec<f64> = told.iter().filter_map(|one| one.error).collect();
    let (worst, middle) = worst_and_median(&errors);
    let mut because = match errors.is_empty() {
        true => "no runs".to_string(),
        false => format!(
            "{:.1} % at most, {:.1} % median, {} of {} {}",
            worst * 100.0,
            middle * 100.0,
            errors.len(),
            all.len(),
            if all.iter().any(|one| one.at.contains("depth")) { "cells" } else { "sizes" }
        ),
    };
    let mut gates: Vec<&str> =
        untold.iter().flat_map(|one| &one.gates).map(String::as_str).collect();
    gates.sort_unstable();
    gates.dedup();
    if !untold.is_empty() {
        let at: Vec<&str> = untold.iter().map(|one| one.at.as_str()).collect();
        because = format!("{because}; fewer than {RUNS_MIN} valid runs at {}", at.join(", "));
    }
    if !gates.is_empty() {
        because = format!("{because}; void: {}", gates.join(", "));
    }
    let enough = !errors.is_empty() && 2 * errors.len() >= all.len();
    let outcome = match enough {
        true => Outcome::of(worst <= AT_EVERY_SIZE && middle <= IN_THE_MEDIAN),
        false if gates.is_empty() => Outcome::NotMeasured,
        false => Outcome::Void,
    };
    Verdict { what, outcome, because }
}

/// The middle is also defined where an error is infinite.
pub(crate) fn worst_and_median(errors: &[f64]) -> (f64, f64) {
    let worst = errors.iter().copied().fold(0.0, f64::max);
    let mut sorted = errors.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.get(sorted.len() / 2).copied().unwrap_or(f64::INFINITY);
    let middle = if worst.is_finite() { median(errors).unwrap_or(middle) } else { middle };
    (worst, middle)
}

fn size(bytes: u32) -> String {
    Bytes(u64::from(bytes)).typed()
}

fn absent(study: &Study, scenario: Scenario) -> (Outcome, String) {
    match study.voids.iter().find(|void| void.scenario == scenario) {
        Some(void) => (Outcome::Void, format!("void: {}", void.gate)),
        None => match study.remarks.iter().find(|remark| remark.starts_with(scenario.name())) {
            Some(remark) => (Outcome::NotMeasured, remark.clone()),
            None => (Outcome::NotMeasured, "no runs".into()),
        },
    }
}

fn scenario_of(part: Part) -> Scenario {
    match part {
        Part::Pump => Scenario::Cpu,
        Part::DiskSource => Scenario::DiskSource,
        Part::DiskSink => Scenario::DiskSink,
        Part::NetSource | Part::NetSink => Scenario::Net,
    }
}

/// The name of the gate of `Interrupts`.
pub(crate) const ONE_DEVICE: &str = "one-device";
/// With fewer, a median is a single run or the middle of two.
const RUNS_MIN: usize = 3;
/// Runs are planned to take more than a second. In shorter ones the start is a large part.
const RUN_S_MIN: f64 = 0.5;
pub(crate) const AT_EVERY_SIZE: f64 = 0.15;
const IN_THE_MEDIAN: f64 = 0.10;
const CONSTANT: f64 = 0.10;
/// A cost per byte below this is none: a memory copy costs ten times as much.
const FREE_NS: f64 = 0.01;
