//! A summary of the runs of the other kind (with or without a soaker), and the soaker's effect.

use super::curves::interval;
use super::sheet::{Sheet, ns, percent, signed_percent, size, us};
use crate::statistics::{Estimate, median};
use crate::study::compositions::name;
use crate::study::soaking::Soaking;
use crate::study::verdicts::{self, worst_and_median};
use crate::study::{CpuFrom, Study};

pub fn heading(cpu_from: CpuFrom) -> &'static str {
    match cpu_from {
        CpuFrom::Bare => "The same without the soaker, by clocks alone",
        CpuFrom::Soaked => "The same beside the soaker",
    }
}

pub fn words(cpu_from: CpuFrom) -> &'static str {
    match cpu_from {
        CpuFrom::Bare => "runs without a soaker",
        CpuFrom::Soaked => "runs beside a soaker, where there are any",
    }
}

/// The cost of each part, the errors of predictions, and the verdicts on both.
pub(crate) fn sheets(study: &Study) -> Vec<Sheet> {
    vec![costs(study), verdicts(study)]
}

fn costs(study: &Study) -> Sheet {
    let mut sheet = Sheet::new(
        heading(study.cpu_from),
        &["what", "sizes", "error at most", "median", "Cb ns/B", "Cr µs", "Cs µs"],
    );
    for part in study.chosen() {
        for fit in &part.curve.fits {
            let what = match part.conditions.as_str() {
                "" => name(part.part).to_string(),
                words => format!("{} ({words})", name(part.part)),
            };
            let ends = [fit.sizes.first(), fit.sizes.last()];
            let [from, to] = ends.map(|end| size(end.map_or(0, |seen| seen.request_bytes)));
            sheet.row(vec![
                what,
                format!("{from} to {to}"),
                percent(fit.max_error()),
                percent(fit.median_error()),
                interval(fit.cb_ns, ns),
                interval(fit.cr_ns, us),
                fit.cs_ns.map_or("-".into(), |cs| interval(cs, us)),
            ]);
        }
    }
    for one in &study.compositions {
        let errors = one.errors();
        if errors.is_empty() {
            continue;
        }
        let (worst, middle) = worst_and_median(&errors);
        let ends = [one.sizes.first(), one.sizes.last()];
        let [from, to] = ends.map(|end| size(end.map_or(0, |seen| seen.request_bytes)));
        sheet.row(vec![
            format!("{} at the {} ({})", one.scenario.told(), one.end.name(), one.conditions),
            format!("{from} to {to}"),
            percent(worst),
            percent(middle),
            "-".into(),
            "-".into(),
            "-".into(),
        ]);
    }
    sheet.note(format!("CPU time from {}", words(study.cpu_from)));
    sheet
}

fn verdicts(study: &Study) -> Sheet {
    let mut sheet = Sheet::new(
        format!("Verdicts, with CPU time from {}", words(study.cpu_from)),
        &["criterion", "outcome", "because"],
    );
    let referees = study.referees.len();
    let all = verdicts::of(study);
    // The referee's verdicts are the same for both.
    for verdict in all.iter().take(all.len() - referees) {
        let cells = [verdict.what.as_str(), verdict.outcome.name(), &verdict.because];
        sheet.row(cells.map(String::from).to_vec());
    }
    sheet
}

/// Throughput and CPU time of each cell with a soaker, over those of the same cell without.
pub fn soaking(all: &[Soaking]) -> Sheet {
    let mut sheet = Sheet::new(
        "What a soaker changes",
        &["scenario", "request size", "depth", "n", "throughput", "CPU at source", "CPU at sink"],
    );
    let change = |ratio: Option<Estimate>| {
        let less_1 = |ratio: Estimate| Estimate {
            value: ratio.value - 1.0,
            low: ratio.low - 1.0,
            high: ratio.high - 1.0,
        };
        ratio.map_or("-".into(), |ratio| interval(less_1(ratio), signed_percent))
    };
    for one in all {
        sheet.row(vec![
            one.key.scenario.told().into(),
            size(one.key.request_bytes),
            format!("{}/{}", one.key.depths.source, one.key.depths.sink),
            format!("{}/{}", one.n.0, one.n.1),
            change(one.rate),
            change(one.source),
            change(one.sink),
        ]);
    }
    let middle = |of: fn(&Soaking) -> Option<Estimate>| {
        median(&all.iter().filter_map(|one| Some(of(one)?.value - 1.0)).collect::<Vec<_>>())
    };
    let said: Vec<String> = [
        ("throughput", middle(|one| one.rate)),
        ("CPU time at the source", middle(|one| one.source)),
        ("CPU time at the sink", middle(|one| one.sink)),
    ]
    .into_iter()
    .filter_map(|(what, middle)| Some(format!("{what} {}", signed_percent(middle?))))
    .collect();
    sheet.note(format!("median over all cells: {}", said.join(", ")));
    sheet.note(
        "ratios of medians less 1, beside a soaker over without, with their intervals; n: runs of \
         each; no interval from one run each",
    );
    sheet
}
