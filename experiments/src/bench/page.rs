//! The page of a bench, as Markdown, for `runs/`.

use super::cpu::Accounts;
use super::race::{Outcome, Results, Sample};
use super::rows::Scenario;
use super::{Options, Quick, machine, ratios};
use crate::page;
use analysis::statistics::Spread;

/// With fewer bytes a rate is not reported.
const RATE_BYTES_MIN: u64 = 1 << 20;
/// Runs during which everything else used less than this share of the CPUs are clean.
const CLEAN_FOREIGN_MAX: f64 = 0.12;
const COLUMNS: [&str; 11] = [
    "what",
    "runs ok (clean)",
    "seconds",
    "MB/s",
    "CPU ns/B",
    "foreign %",
    "congestion",
    "sealing",
    "digest",
    "fsync",
    "MB/s, own clock",
];

pub(super) fn peers(results: &Results<'_>, options: &Options, accounts: &Accounts) -> String {
    let mut page = String::from("# datapump beside its peers\n\n");
    page.push_str(&preface(results, options, accounts));
    page.push_str(
        "\n## What was to be reached\n\nRatios are taken round by round, then their median.\n\n",
    );
    page.push_str(&ratios::table(results));
    for scenario in Scenario::ALL {
        let outcomes: Vec<&Outcome<'_>> =
            results.outcomes.iter().filter(|outcome| outcome.row.scenario == *scenario).collect();
        if !outcomes.is_empty() {
            page.push_str(&format!("\n## {}\n\n", scenario.heading()));
            page.push_str(&table(&outcomes));
            page.push_str(&memory(&outcomes));
            page.push_str(&commands(&outcomes));
        }
    }
    page
}

fn preface(results: &Results<'_>, options: &Options, accounts: &Accounts) -> String {
    let mut text = String::new();
    if options.quick == Quick::Yes {
        text.push_str("**A quick look: one round with small data. Not evidence.**\n\n");
    }
    for note in machine::notes(&options.disk).into_iter().chain(machine::peers(options)) {
        text.push_str(&format!("- {note}\n"));
    }
    text.push_str(&format!(
        "\n{} rounds, interleaved, in an order from seed {}; large file {} MiB, {} small files, {} \
         empty files. MB/s is decimal, payload over the time of the whole command with its start; \
         the last column is the rate by the tool's own clock where it has one. CPU is that of both \
         sides: {}, and the kernel's ksoftirqd threads. A run is clean when everything else used \
         less than {:.0} % of the CPUs meanwhile; medians and ranges are over clean runs, or over \
         all (marked †) where fewer than two are clean. Tools that cannot be told a congestion \
         control, and all rows that name the system's, run under the system's. Every arrival was \
         compared with `cmp` or `diff`.\n",
        options.rounds,
        results.seed,
        options.bytes >> 20,
        options.small_files,
        options.empty_files,
        accounts.description(),
        CLEAN_FOREIGN_MAX * 100.0,
    ));
    if !results.left_out.is_empty() {
        text.push_str(&format!("\nNot installed here: {}.\n", results.left_out.join("; ")));
    }
    text
}

fn table(outcomes: &[&Outcome<'_>]) -> String {
    let rows: Vec<Vec<String>> = outcomes.iter().flat_map(|outcome| rows(outcome)).collect();
    page::table(&COLUMNS, &rows)
}

/// The measurements, and below them why a run failed, if one did.
fn rows(outcome: &Outcome<'_>) -> Vec<Vec<String>> {
    let row = outcome.row;
    let good: Vec<&Sample> = outcome.samples.iter().flatten().collect();
    let clean: Vec<&Sample> =
        good.iter().filter(|sample| sample.used.foreign < CLEAN_FOREIGN_MAX).copied().collect();
    let (shown, mark) = if clean.len() >= 2 { (&clean, "") } else { (&good, " †") };
    let spread = |value: fn(&Sample, f64) -> f64, digits: usize| {
        let values = shown.iter().map(|sample| value(sample, row.bytes as f64));
        Spread::of(values).map_or("–".to_string(), |spread| spread.text(digits))
    };
    let own = Spread::of(shown.iter().filter_map(|sample| sample.own_rate).map(|rate| rate / 1e6));
    let own = own.filter(|_| row.bytes >= RATE_BYTES_MIN);
    let cells = vec![
        format!("{}{mark}", row.name),
        format!("{} of {} ({})", good.len(), outcome.samples.len(), clean.len()),
        spread(|sample, _| sample.used.wall_s, 3),
        match row.bytes >= RATE_BYTES_MIN {
            true => spread(|sample, bytes| bytes / sample.used.wall_s / 1e6, 0),
            false => "–".to_string(),
        },
        match row.bytes >= RATE_BYTES_MIN {
            true => spread(|sample, bytes| sample.used.cpu_ns / bytes, 2),
            false => spread(|sample, _| sample.used.cpu_ns / 1e6, 0) + " ms in all",
        },
        spread(|sample, _| sample.used.foreign * 100.0, 0),
        row.terms.congestion.clone(),
        row.terms.sealing.to_string(),
        row.terms.digest.to_string(),
        row.terms.fsync.to_string(),
        own.map_or("–".to_string(), |spread| spread.text(0)),
    ];
    let mut rows = vec![cells];
    if let Some(why) = outcome.samples.iter().find_map(|sample| sample.as_ref().err()) {
        let folder = xtask::step::root().display().to_string();
        let why: String = why
            .replace(&folder, "…")
            .chars()
            .take(160)
            .filter(|c| *c != '\n' && *c != '|')
            .collect();
        rows.push(vec![format!("↳ failed: {why}")]);
    }
    rows
}

/// Peaks in MiB, if measured.
fn memory(outcomes: &[&Outcome<'_>]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        let seen = outcome.samples.iter().flatten().filter_map(|sample| sample.memory);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        for memory in seen {
            text.push_str(&format!(
                "- {}: high-water mark near {:.0} MiB, far {:.0} MiB; reported {:.0} MiB; \
                 planned {:.0} MiB\n",
                outcome.row.name,
                mib(memory.near_peak),
                mib(memory.far_peak),
                mib(memory.reported_max),
                mib(memory.planned_max),
            ));
        }
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

fn commands(outcomes: &[&Outcome<'_>]) -> String {
    let mut text = String::from("\n```\n");
    for outcome in outcomes {
        let row = outcome.row;
        if let Some(serve) = &row.serve {
            text.push_str(&format!("{:<32} serve: {}\n", row.name, serve.script));
        }
        text.push_str(&format!("{:<32} {}\n", row.name, row.script));
    }
    text.push_str("```\n");
    text
}
