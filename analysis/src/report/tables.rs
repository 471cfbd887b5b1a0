//! The tables of the 1-1 data pump report, with our numbers, and the data behind its figures.

use std::collections::BTreeMap;

use super::curves;
use super::live::stamp;
use super::rates;
use super::sheet::{Form, Sheet, mega, ns, percent, signed_percent, size, us};
use super::soaker_summary;
use crate::model::Part;
use crate::record::sample::{Environment, Scenario};
use crate::statistics::Spread;
use crate::study::cells::{Cell, Depths, ProcessRole, Reads};
use crate::study::compositions::{Composition, name};
use crate::study::device::Interrupts;
use crate::study::parts::{Counts, PartStudy, Starts, advice};
use crate::study::verdicts::{self, ONE_DEVICE, per_request};
use crate::study::{Studies, Study, Void};
use base::units::Bytes;

/// All tables, for the terminal or as a page in Markdown.
pub fn page(studies: &Studies, environments: &[Environment], form: Form) -> String {
    let study = &studies.full;
    let mut text = String::new();
    if form == Form::Markdown {
        text.push_str("# What a byte costs\n\n");
        text.push_str(METHOD);
        text.push('\n');
    }
    let mut all = vec![("What was run", vec![runs(study), gates(study), voids(study)])];
    if form == Form::Markdown {
        all.push(("Environment", environments.iter().map(environment).collect()));
    }
    all.push(("Verdicts", vec![verdicts_sheet(study), remarks(study)]));
    all.push(("Tables", tables(study)));
    if let Some(other) = &studies.other {
        all.push((soaker_summary::heading(other.cpu_from), soaker_summary::sheets(other)));
    }
    all.push(("What a soaker changes", vec![soaker_summary::soaking(&studies.soaking)]));
    all.push(("Figures", figures(study)));
    for (heading, sheets) in all {
        let sheets: Vec<Sheet> = sheets.into_iter().filter(|sheet| !is_empty(sheet)).collect();
        if sheets.is_empty() {
            continue;
        }
        if form == Form::Markdown {
            text.push_str(&format!("## {heading}\n\n"));
        }
        for sheet in sheets {
            text.push_str(&sheet.write(form));
            if form == Form::Text {
                text.push('\n');
            }
        }
    }
    text
}

/// Tables 1 to 9, after that of the pump alone.
pub fn tables(study: &Study) -> Vec<Sheet> {
    let chosen = study.chosen();
    let mut sheets: Vec<Sheet> =
        chosen.iter().filter(|part| part.part == Part::Pump).map(|part| pump(part)).collect();
    let parts = [
        (1, Part::DiskSource, "a disk source"),
        (2, Part::DiskSink, "a disk sink"),
        (3, Part::NetSink, "a network sender"),
        (4, Part::NetSource, "a network receiver"),
    ];
    for (number, part, words) in parts {
        for one in chosen.iter().filter(|one| one.part == part) {
            let title = format!("Table {number}. CPU cost of {words} ({})", place(one));
            sheets.push(curves::curve(&title, &one.curve));
        }
    }
    use ProcessRole::{Sink, Source};
    let ends = [
        ("5", Scenario::DiskDisk, Source, "a transfer from disk to disk"),
        ("6", Scenario::DiskNetDisk, Source, "the sender from disk over network to disk"),
        ("6a", Scenario::DiskNet, Source, "the sender from disk over network to null"),
        ("6b", Scenario::NetDisk, Source, "the sender from null over network to disk"),
        ("7", Scenario::DiskNetDisk, Sink, "the receiver from disk over network to disk"),
        ("7a", Scenario::DiskNet, Sink, "the receiver from disk over network to null"),
        ("7b", Scenario::NetDisk, Sink, "the receiver from null over network to disk"),
    ];
    for (number, scenario, end, words) in ends {
        let of = |one: &&Composition| (one.scenario, one.end) == (scenario, end);
        for one in study.compositions.iter().filter(of) {
            sheets.push(composition(number, words, one));
        }
    }
    sheets.push(summary(study, &chosen));
    sheets.extend(study.rate_grids.iter().map(rates::grid));
    sheets
}

fn place(part: &PartStudy) -> String {
    if part.curve.has_depths() {
        return format!("{}, all depths", part.conditions);
    }
    match part.conditions.as_str() {
        "" => depth(part.depths),
        words => format!("{words}, {}", depth(part.depths)),
    }
}

fn depth(depths: Depths) -> String {
    format!("depth {}/{}", depths.source, depths.sink)
}

/// Null to null: the cost of the pump itself.
fn pump(part: &PartStudy) -> Sheet {
    let mut sheet = Sheet::new(
        format!("The pump alone, null to null ({})", depth(part.depths)),
        &["request size", "n", "µs/request", "Mayr and Gray", "observed ns/B", "predicted ns/B"],
    );
    let costs = per_request(part).into_iter();
    for (seen, (_, cost)) in part.curve.sizes().zip(costs) {
        sheet.row(vec![
            size(seen.request_bytes),
            seen.n.to_string(),
            us(cost),
            "20".into(),
            ns(seen.observed_ns),
            ns(seen.predicted_ns),
        ]);
    }
    part.curve.fits.iter().flat_map(curves::costs).for_each(|line| sheet.note(line));
    sheet
}

fn composition(number: &str, words: &str, one: &Composition) -> Sheet {
    let title = format!(
        "Table {number}. CPU cost of {words}, predicted from parts ({}, {})",
        one.conditions,
        depth(one.depths)
    );
    let halves = one.has_halves();
    let network: &[&str] = if halves { &["network", "full rate"] } else { &[] };
    let others: &[&str] = &["starts/request", "observed MB/s"];
    let columns = [curves::SIZE_COLUMNS, network, others, rates::COLUMNS].concat();
    let mut sheet = Sheet::new(title, &columns);
    let mut voids: BTreeMap<&str, (usize, Vec<String>)> = BTreeMap::new();
    for seen in &one.sizes {
        let or = |value: Option<String>| value.unwrap_or_else(|| "void".into());
        let mut row = vec![
            size(seen.request_bytes),
            seen.n.to_string(),
            or(seen.observed_ns.map(ns)),
            ns(seen.predicted_ns),
            or(seen.symmetric_error().map(percent)),
            or(seen.signed_error().map(signed_percent)),
        ];
        if halves {
            row.extend([seen.network.name().into(), or(seen.flat_out_error().map(percent))]);
        }
        row.extend([
            seen.starts_per_request.map_or("-".into(), |starts| format!("{starts:.2}")),
            or(seen.observed_rate.map(mega)),
        ]);
        row.extend(rates::cells(seen));
        sheet.row(row);
        for (gate, count) in &seen.voids {
            let (sum, sizes) = voids.entry(gate).or_default();
            *sum += count;
            sizes.push(size(seen.request_bytes));
        }
    }
    for (gate, (count, sizes)) in voids {
        sheet.note(format!("{count} runs void (gate: {gate}), at {}", sizes.join(", ")));
    }
    predicted_from(one).into_iter().for_each(|note| sheet.note(note));
    rates::note(one).into_iter().for_each(|note| sheet.note(note));
    one_device(one).into_iter().for_each(|note| sheet.note(note));
    let of_files = [Part::DiskSource, Part::DiskSink];
    let has_files = one.parts.iter().any(|part| of_files.contains(part));
    if has_files && one.sizes.iter().any(|seen| seen.starts_per_request.is_none()) {
        sheet.note("starts were not counted: every request is taken for one");
    }
    sheet
}

/// The parts that a prediction is the sum of.
fn predicted_from(one: &Composition) -> Vec<String> {
    let parts: Vec<&str> = one.parts.iter().map(|part| name(*part)).collect();
    let parts = format!("pump + {}", parts.join(" + "));
    if one.scenario.is_half() {
        return vec![format!(
            "predicted: {parts}, with the network at full rate (null ends); the error is the cost \
             of waiting for a disk"
        )];
    }
    if !one.has_halves() {
        return vec![format!("predicted: {parts}, none of them fitted to these runs")];
    }
    let whose = one.end.name();
    vec![
        format!(
            "network: which half of the path was slower, from disk to null (fed) or from null to \
             disk (drained); predicted: the {whose} as measured in that half, plus the cost of its \
             disk if it was null there; none of it fitted to these runs"
        ),
        format!("full rate: the error of {parts}, with the network at full rate (null ends)"),
    ]
}

/// What the interrupts show where both ends wake up one device.
fn one_device(one: &Composition) -> Option<String> {
    let shared: Vec<String> = one
        .sizes
        .iter()
        .filter(|seen| seen.shares_device())
        .filter_map(|seen| {
            let Interrupts { together, alone } = seen.interrupts?;
            Some(format!("{} {together:.2} instead of {alone:.2}", size(seen.request_bytes)))
        })
        .collect();
    (!shared.is_empty()).then(|| {
        format!(
            "void (gate: {ONE_DEVICE}): both ends share one device and some wake-ups (interrupts \
             for each request: {}), so errors cannot be assigned to one end: measure with the \
             other end on another host (--on)",
            shared.join(", ")
        )
    })
}

/// Table 8: every part with its intervals.
fn summary(study: &Study, chosen: &[&PartStudy]) -> Sheet {
    let mut sheet = Sheet::new(
        "Table 8. What each part costs",
        &["part", "sizes", "Cb ns/B", "Cr µs", "Cs µs", "per", "RS*", "advised", "Mayr and Gray"],
    );
    for part in chosen {
        let advised = advice(&study.parts, part.part, &part.conditions);
        for regime in part.curve.regimes() {
            sheet.row(vec![
                match part.conditions.as_str() {
                    "" => name(part.part).to_string(),
                    words => format!("{} ({words})", name(part.part)),
                },
                format!("{} to {}", size(regime.request_bytes_min), size(regime.request_bytes_max)),
                curves::interval(regime.cb_ns, ns),
                curves::interval(regime.cr_ns, us),
                regime.cs_ns.map_or("-".into(), |cs| curves::interval(cs, us)),
                match part.counts {
                    Counts::Requests => "request".into(),
                    Counts::Calls => "counted call".into(),
                },
                curves::balance_text(regime.cb_ns, regime.cr_ns),
                match (part.part, advised) {
                    (Part::Pump, _) | (_, None) => "-".into(),
                    (_, Some(offer)) => {
                        format!("{} x {}", size(offer.request_bytes), offer.depth)
                    }
                },
                of_the_report(part.part).into(),
            ]);
        }
        let at_bound = part.curve.fits.iter().flat_map(|fit| fit.at_bound.names());
        for cost in at_bound {
            sheet.note(format!("{}: {cost} is at its bound 0", name(part.part)));
        }
        if let Some(note) = of_starts(part) {
            sheet.note(note);
        }
    }
    sheet.note("the pump's own cost is subtracted once from every other part");
    sheet.note(
        "Cs: additional cost of a request submitted with no other file request of its lane in \
         flight",
    );
    sheet.note("RS* = Cr/Cb: where a request costs as much as its bytes");
    sheet.note("advised: the smallest request size and depth within 3 % of the best rate and cost");
    sheet
}

/// Why there is no cost of a start.
fn of_starts(part: &PartStudy) -> Option<String> {
    let name = name(part.part);
    match part.starts {
        Starts::None | Starts::Told => None,
        Starts::Segments => Some(format!("{name}: Cs is what a segment costs that TCP sends")),
        Starts::NotCounted => Some(format!(
            "{name}: starts were not counted in these runs; their cost is included in Cr"
        )),
        Starts::TakeTurns => Some(format!(
            "{name}: more requests in flight are hardly faster, so they are serialized and each \
             finds the device idle; the cost of that is included in Cr"
        )),
        Starts::Alike => Some(format!(
            "{name}: the share of requests that are starts is the same in all cells; their cost \
             cannot be separated and is included in Cr: measure another depth"
        )),
    }
}

/// Cb and Cr in Table 8 of the report of Mayr and Gray (2000).
fn of_the_report(part: Part) -> &'static str {
    match part {
        Part::Pump => "0 ns, 20 µs",
        Part::DiskSource => "0.5 ns, 66 µs",
        Part::DiskSink => "1.6 ns, 53 µs",
        Part::NetSource => "40 ns, 0 µs",
        Part::NetSink => "20 ns, 20 µs",
    }
}

/// The data behind Figures 2 to 6.
pub fn figures(study: &Study) -> Vec<Sheet> {
    let figures = [
        ("Figure 2", Scenario::DiskSource),
        ("Figure 3", Scenario::DiskSink),
        ("Figure 4", Scenario::Net),
        ("Figure 5", Scenario::DiskDisk),
        ("Figure 6", Scenario::DiskNetDisk),
        ("Figure 6a", Scenario::DiskNet),
        ("Figure 6b", Scenario::NetDisk),
    ];
    let mut sheets = Vec::new();
    for (figure, scenario) in figures {
        let mut groups: BTreeMap<&str, Vec<&Cell>> = BTreeMap::new();
        for cell in study.cells.iter().filter(|cell| cell.key.scenario == scenario) {
            groups.entry(&cell.key.conditions).or_default().push(cell);
        }
        for (conditions, cells) in groups {
            let title = format!("{figure}. {} ({conditions})", scenario.told());
            sheets.push(bandwidth(&title, &cells));
            let ends = if scenario.has_net() {
                &[ProcessRole::Source, ProcessRole::Sink][..]
            } else {
                &[ProcessRole::Source]
            };
            for end in ends {
                let whose = match (scenario.has_net(), end) {
                    (false, _) => "CPU time",
                    (true, ProcessRole::Source) => "CPU time of the sender",
                    (true, ProcessRole::Sink) => "CPU time of the receiver",
                };
                sheets.push(cpu(&format!("{title}: {whose}"), &cells, *end));
            }
            // With files at the ends, calls on files would be counted too.
            if scenario == Scenario::Net {
                sheets.push(returns(&format!("{title}: what a read of payload returns"), &cells));
            }
        }
    }
    sheets
}

fn bandwidth(title: &str, cells: &[&Cell]) -> Sheet {
    let mut sheet = Sheet::new(
        format!("{title}: bandwidth"),
        &[
            "request size",
            "depth",
            "n",
            "MB/s",
            "quartiles",
            "std error",
            "outliers",
            "soaked",
            "void",
        ],
    );
    for cell in cells {
        let rate = cell.rate.as_ref();
        let of = |form: &dyn Fn(&Spread) -> String| rate.map_or("-".into(), form);
        let voids: usize = cell.voids.values().sum();
        sheet.row(vec![
            size(cell.key.request_bytes),
            format!("{}/{}", cell.key.depths.source, cell.key.depths.sink),
            of(&|rate| rate.n.to_string()),
            of(&|rate| mega(rate.median)),
            of(&|rate| format!("{} to {}", mega(rate.lower_quartile), mega(rate.upper_quartile))),
            of(&|rate| percent(rate.standard_error / rate.mean)),
            of(&|rate| match rate.far_outliers {
                0 => rate.outliers.to_string(),
                far => format!("{} ({far} far)", rate.outliers),
            }),
            match (rate, &cell.rate_soaked) {
                (Some(bare), Some(soaked)) => signed_percent(soaked.median / bare.median - 1.0),
                _ => "-".into(),
            },
            voids.to_string(),
        ]);
    }
    sheet.note("soaked: what a soaker changed; void runs are counted, not averaged");
    sheet
}

fn cpu(title: &str, cells: &[&Cell], end: ProcessRole) -> Sheet {
    let mut sheet = Sheet::new(
        title,
        &[
            "request size",
            "depth",
            "n",
            "ns/B",
            "quartiles",
            "µs/request",
            "user",
            "system",
            "kernel threads",
        ],
    );
    for cell in cells {
        let Some(side) = cell.side(end) else { continue };
        let cost = &side.cost_ns;
        let per_request = |ns: f64| us(ns * f64::from(cell.key.request_bytes));
        sheet.row(vec![
            size(cell.key.request_bytes),
            format!("{}/{}", cell.key.depths.source, cell.key.depths.sink),
            cost.n.to_string(),
            ns(cost.median),
            format!("{} to {}", ns(cost.lower_quartile), ns(cost.upper_quartile)),
            per_request(cost.median),
            per_request(side.user_ns),
            per_request(side.system_ns),
            per_request(side.kernel_threads_ns),
        ]);
    }
    sheet.note(
        "ns/B is the slope of the cost line: CPU seconds for each 10^9 bytes; user, system and \
         kernel threads in µs/request",
    );
    sheet
}

fn returns(title: &str, cells: &[&Cell]) -> Sheet {
    let mut sheet = Sheet::new(
        title,
        &["request size", "depth", "mean return", "of the request", "partial", "reads/request"],
    );
    for cell in cells {
        let Some(side) = cell.side(ProcessRole::Sink) else { continue };
        let Reads { mean_return, partial_share, per_request } = side.reads;
        let mean_bytes = mean_return * f64::from(cell.key.request_bytes);
        sheet.row(vec![
            size(cell.key.request_bytes),
            format!("{}/{}", cell.key.depths.source, cell.key.depths.sink),
            Bytes(mean_bytes as u64).to_string(),
            percent(mean_return),
            percent(partial_share),
            format!("{per_request:.2}"),
        ]);
    }
    sheet.note("bytes / (calls - requests): every frame has a header that is read by itself");
    sheet
}

fn runs(study: &Study) -> Sheet {
    let mut sheet = Sheet::new("Runs", &["scenario", "cells", "counted", "void"]);
    for scenario in Scenario::ALL {
        let cells: Vec<&Cell> =
            study.cells.iter().filter(|cell| cell.key.scenario == scenario).collect();
        if cells.is_empty() {
            continue;
        }
        let voids: usize = cells.iter().map(|cell| cell.voids.values().sum::<usize>()).sum();
        let counted: usize = cells
            .iter()
            .map(|cell| {
                let soaked = cell.rate_soaked.as_ref().map_or(0, |rate| rate.n);
                cell.rate.as_ref().map_or(0, |rate| rate.n) + soaked
            })
            .sum();
        sheet.row(vec![
            scenario.told().into(),
            cells.len().to_string(),
            counted.to_string(),
            voids.to_string(),
        ]);
    }
    sheet.note(match study.experiments.len() {
        0 => "there are no runs of an experiment".to_string(),
        _ => format!(
            "experiment {}, datapump {}, from {} to {}",
            study.experiments.join(", "),
            study.versions.join(", "),
            when(study.started_unix_s),
            when(study.ended_unix_s)
        ),
    });
    sheet
}

fn when(unix_s: f64) -> String {
    // An invalid stored time is shown as 1970.
    stamp(std::time::Duration::try_from_secs_f64(unix_s).unwrap_or_default())
}

fn gates(study: &Study) -> Sheet {
    let mut sheet = Sheet::new("Gates", &["gate", "passed", "failed", "largest", "limit"]);
    for gate in &study.gates {
        sheet.row(vec![
            gate.name.clone(),
            gate.passed.to_string(),
            gate.failed.to_string(),
            format!("{:.4}", gate.worst),
            format!("{:.4}", gate.limit),
        ]);
    }
    sheet
}

fn voids(study: &Study) -> Sheet {
    let mut gates: BTreeMap<&str, Vec<&Void>> = BTreeMap::new();
    for void in &study.voids {
        gates.entry(&void.gate).or_default().push(void);
    }
    let mut sheet = Sheet::new("Void runs", &["gate", "runs", "worst", "of"]);
    for (gate, voids) in gates {
        let mut scenarios: BTreeMap<Scenario, usize> = BTreeMap::new();
        voids.iter().for_each(|void| *scenarios.entry(void.scenario).or_default() += 1);
        let scenarios: Vec<String> = scenarios
            .into_iter()
            .map(|(scenario, count)| format!("{} {count}", scenario.told()))
            .collect();
        let value = |void: &&&Void| void.value.unwrap_or(f64::NEG_INFINITY);
        let Some(worst) = voids.iter().max_by(|a, b| value(a).total_cmp(&value(b))) else {
            continue;
        };
        sheet.row(vec![
            gate.into(),
            voids.len().to_string(),
            worst.value.map_or("-".into(), |value| format!("{value:.4}")),
            scenarios.join(", "),
        ]);
        sheet.note(format!("{gate}: {}", worst.reason));
    }
    sheet
}

fn environment(environment: &Environment) -> Sheet {
    let mut sheet = Sheet::new(format!("Host {}", environment.host), &["fact", "value"]);
    for (name, value) in &environment.facts {
        sheet.row(vec![name.clone(), value.clone()]);
    }
    sheet
}

fn verdicts_sheet(study: &Study) -> Sheet {
    let mut sheet = Sheet::new(
        format!("Verdicts, with CPU time from {}", soaker_summary::words(study.cpu_from)),
        &["criterion", "outcome", "because"],
    );
    for verdict in verdicts::of(study) {
        sheet.row(vec![verdict.what, verdict.outcome.name().into(), verdict.because]);
    }
    sheet.note("parts and compositions: within 15 % at every request size, 10 % in the median");
    for referee in &study.referees {
        let name = referee.scenario.told();
        if let Some(absorbed) = referee.absorbed.filter(|share| share.abs() >= 0.01) {
            let absorbed = signed_percent(absorbed);
            sheet.note(format!("{name}: interrupts within the soaker: {absorbed} of busy"));
        }
        if referee.background_known && !referee.agrees() {
            let residue = referee.residue.iter().map(|(name, s)| format!("{name} {s:.3} s"));
            let named = match referee.residue.is_empty() {
                true => "no kernel thread accounts for it: interrupts or other processes".into(),
                false => residue.collect::<Vec<_>>().join(", "),
            };
            sheet.note(format!("{name}: CPU accounting differs; not charged to any side: {named}"));
        }
    }
    sheet
}

fn remarks(study: &Study) -> Sheet {
    let mut sheet = Sheet::new("Remarks", &[]);
    study.remarks.iter().for_each(|remark| sheet.note(remark));
    sheet
}

/// True for a sheet without rows, unless it has only notes. Notes on empty columns do not count.
fn is_empty(sheet: &Sheet) -> bool {
    sheet.rows.is_empty() && (!sheet.columns.is_empty() || sheet.notes.is_empty())
}

const METHOD: &str = "\
Each part ran alone between null ends, over the pump that `copy` uses; bandwidth is from runs
without a soaker, CPU time from runs with one, where there are both, and below the tables from
runs without. Costs are fitted to runs as `CPU = B Cb + N Cr + S Cs`: bytes, requests, and starts,
the requests that were submitted with no other file request of their lane in flight; weighted by
relative error, Huber's weights, no cost below 0, intervals from 2000 resamples of the runs of each
cell. The pump's own cost is subtracted once from every other part. Compositions are predicted from
parts, with counts of their own, and never fitted. The error is that of Mayr and Gray (2000),
max/min - 1. A run that failed a gate is void: it is counted here, and not averaged. Formulas:
[docs/COST-MODEL.md](../docs/COST-MODEL.md). This page is a pure function of the stored records.
";

#[cfg(test)]
mod tests;
