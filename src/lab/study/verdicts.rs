//! Whether a study shows what it is to show, criterion by criterion.

use serde::Serialize;

use super::Study;
use super::compositions::{Composition, name};
use super::parts::PartStudy;
use crate::lab::model::Part;
use crate::lab::sample::Scenario;
use crate::lab::statistics::median;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    pub what: String,
    pub outcome: Outcome,
    /// The numbers that it rests on.
    pub because: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Passed,
    Failed,
    /// A gate took the runs that would tell.
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
        verdicts.extend(found.into_iter().map(|one| isolated(one)));
    }
    let ends = [(Scenario::DiskDisk, 1), (Scenario::DiskNetDisk, 2)];
    for (scenario, count) in ends {
        let found: Vec<&Composition> =
            study.compositions.iter().filter(|one| one.scenario == scenario).collect();
        if found.len() < count {
            let (outcome, because) = absent(study, scenario);
            let what = format!("{} from its parts", scenario.name());
            verdicts.push(Verdict { what, outcome, because });
        }
        verdicts.extend(found.into_iter().map(composed));
    }
    verdicts.extend(study.referees.iter().map(|referee| Verdict {
        what: format!("{}: accounts of CPU time agree within 10 %", referee.scenario.name()),
        outcome: Outcome::of(referee.agrees()),
        because: format!(
                "own / idle accounting {:.3}{}",
                referee.own_to_idle,
                referee
                    .own_to_soaker
                    .map_or(String::new(), |ratio| format!(", own / soaker {ratio:.3}"))
            ),
    }));
    verdicts
}

/// What one request of the pump costs at every size, in nanoseconds.
pub fn per_request(pump: &PartStudy) -> Vec<(u32, f64)> {
    let of = |size: &crate::lab::model::fit::SizeFit| {
        (size.request_bytes, size.observed_ns * f64::from(size.request_bytes))
    };
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
                "{:.3} us median, {:.1} % off at most; the report's pump: 20 us",
                middle / 1e3,
                off * 100.0
            ),
        },
    ]
}

fn isolated(part: &PartStudy) -> Verdict {
    let errors: Vec<f64> = part.curve.sizes().map(|size| size.symmetric_error()).collect();
    judged(
        format!("{} alone ({})", name(part.part), part.conditions),
        &errors,
        part.curve.sizes().count(),
        &[],
    )
}

fn composed(one: &Composition) -> Verdict {
    let voids: Vec<String> = one
        .sizes
        .iter()
        .filter(|size| size.observed_ns.is_none())
        .flat_map(|size| size.voids.iter().map(|(reason, _)| reason.clone()))
        .collect();
    judged(
        format!(
            "{} at the {} from its parts ({})",
            one.scenario.name(),
            one.end.name(),
            one.conditions
        ),
        &one.errors(),
        one.sizes.len(),
        &voids,
    )
}

/// Within 15 % at every size and 10 % in the median.
fn judged(what: String, errors: &[f64], sizes: usize, voids: &[String]) -> Verdict {
    let worst = errors.iter().copied().fold(0.0, f64::max);
    // A median over an error without an end is one.
    let mut sorted = errors.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.get(sorted.len() / 2).copied().unwrap_or(f64::INFINITY);
    let middle = if worst.is_finite() { median(errors).unwrap_or(middle) } else { middle };
    let numbers = format!(
        "{:.1} % at most, {:.1} % median, {} of {sizes} sizes",
        worst * 100.0,
        middle * 100.0,
        errors.len()
    );
    let (outcome, because) = match voids.first() {
        _ if worst > AT_EVERY_SIZE || (middle > IN_THE_MEDIAN && !errors.is_empty()) => {
            (Outcome::Failed, numbers)
        }
        Some(gate) => (Outcome::Void, format!("{numbers}; void: {gate}")),
        None if errors.is_empty() => (Outcome::NotMeasured, "no runs".into()),
        None => (Outcome::Passed, numbers),
    };
    Verdict { what, outcome, because }
}

fn absent(study: &Study, scenario: Scenario) -> (Outcome, String) {
    match study.voids.iter().find(|void| void.scenario == scenario) {
        Some(void) => (Outcome::Void, format!("void: {}", void.reason)),
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

const AT_EVERY_SIZE: f64 = 0.15;
const IN_THE_MEDIAN: f64 = 0.10;
const CONSTANT: f64 = 0.10;
/// Less for each byte than this is nothing: a memory copy costs ten times as much.
const FREE_NS: f64 = 0.01;
