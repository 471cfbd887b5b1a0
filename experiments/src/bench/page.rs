//! The page of a bench, as Markdown, for `runs/`.

use super::cpu::{Accounts, CLEAN_FOREIGN_MAX};
use super::results::{LoginTime, Outcome, Results, Run};
use super::rows::{Login, Scenario};
use super::{Options, Quick, machine, ratios};
use crate::page;
use analysis::statistics::Spread;

const COLUMNS: [&str; 13] = [
    "what",
    "runs ok (clean)",
    "seconds",
    "MB/s",
    "CPU ns/B",
    "seconds without login",
    "CPU ns/B without login",
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
    page.push_str("\n## What was to be reached\n\n");
    page.push_str(&ratios::preface());
    page.push_str(&ratios::table(results, options));
    for scenario in Scenario::ALL {
        let outcomes: Vec<&Outcome<'_>> =
            results.outcomes.iter().filter(|outcome| outcome.row.scenario == *scenario).collect();
        if !outcomes.is_empty() {
            page.push_str(&format!("\n## {}\n\n", scenario.heading()));
            page.push_str(&table(results, &outcomes));
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
    let left_out = results.left_out.iter();
    let left_out: Vec<String> =
        left_out.map(|left| format!("{} (no {})", left.row.name, left.absent.join(", "))).collect();
    if !left_out.is_empty() {
        text.push_str(&format!("\nRows left out: {}.\n", left_out.join("; ")));
    }
    text
}

fn table(results: &Results<'_>, outcomes: &[&Outcome<'_>]) -> String {
    let rows: Vec<Vec<String>> =
        outcomes.iter().flat_map(|outcome| rows(results, outcome)).collect();
    page::table(&COLUMNS, &rows)
}

/// The measurements, and below them why a run failed, if one did.
fn rows(results: &Results<'_>, outcome: &Outcome<'_>) -> Vec<Vec<String>> {
    let row = outcome.row;
    let good: Vec<Run<'_>> = results.runs(outcome).into_iter().flatten().collect();
    let clean: Vec<Run<'_>> = good.iter().filter(|run| run.is_clean()).copied().collect();
    let (shown, mark) = if clean.len() >= 2 { (&clean, "") } else { (&good, " †") };
    let spread = |value: &dyn Fn(&Run<'_>) -> Option<f64>, digits: usize| {
        let spread = Spread::of(shown.iter().filter_map(value));
        spread.map_or("–".to_string(), |spread| spread.text(digits))
    };
    let cpu = |login: LoginTime| match row.is_large() {
        true => spread(&|run| run.cpu_ns_per_byte(login), 2),
        false => spread(&|run| Some(run.cpu_ns(login)? / 1e6), 0) + " ms in all",
    };
    let without_login = |cell: &dyn Fn() -> String| match row.login {
        Login::Subtracted => cell(),
        Login::Counted | Login::Alone => "–".to_string(),
    };
    let large = |cell: String| if row.is_large() { cell } else { "–".to_string() };
    let cells = vec![
        format!("{}{mark}", row.name),
        format!("{} of {} ({})", good.len(), outcome.samples.len(), clean.len()),
        spread(&|run| run.seconds(LoginTime::Included), 3),
        large(spread(&|run| Some(row.bytes as f64 / run.seconds(LoginTime::Included)? / 1e6), 0)),
        cpu(LoginTime::Included),
        without_login(&|| spread(&|run| run.seconds(LoginTime::Subtracted), 3)),
        without_login(&|| cpu(LoginTime::Subtracted)),
        spread(&|run| Some(run.sample.used.foreign * 100.0), 0),
        row.terms.congestion.clone(),
        row.terms.sealing.to_string(),
        row.terms.digest.to_string(),
        row.terms.fsync.to_string(),
        large(spread(&|run| Some(run.sample.own_rate? / 1e6), 0)),
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
