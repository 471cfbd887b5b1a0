//! The page of `bench streams`, and what it judges by.

use std::fmt::Write;
use std::path::Path;

use analysis::statistics::median;

use super::Row;
use crate::bench::machine;
use crate::page::table;

/// The page, and the criteria that were missed.
pub(super) fn page(rows: &[Row], program: &Path) -> (String, Vec<String>) {
    let faults = faults(rows);
    let mut text = String::from("# The number of streams that a copy chooses, beside the best\n\n");
    for note in machine::notes(Path::new("/dev/shm")) {
        let _ = writeln!(text, "- {note}");
    }
    let _ = writeln!(text, "- {}", version(program));
    let columns = [
        "window, loss in %, round trip in ms",
        "fixed: Mbit/s",
        "best",
        "its s",
        "auto: s",
        "streams",
        "with history: s",
        "streams",
        "settled, of the best",
        "whole",
        "whole with history",
        "late in %",
    ];
    let cells_of: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let _ = write!(
        text,
        "\n`cargo xtask bench streams`: {CRITERIA}\n\n{}\nMissed: {}.\n",
        table(&columns, &cells_of),
        if faults.is_empty() { "nothing".to_string() } else { faults.join("; ") },
    );
    (text, faults)
}

fn version(program: &Path) -> String {
    let said = xtask::step::output(std::process::Command::new(program).arg("--version"));
    said.map_or_else(|why| why, |said| said.trim().to_string())
}

pub(super) fn cells(row: &Row) -> Vec<String> {
    let ratios = row.ratios();
    let mbit = |bytes: f64| format!("{:.1}", bytes * 8.0 / 1e6);
    let fixed = row.fixed.iter().map(|(streams, rate)| format!("{streams}: {}", mbit(*rate)));
    let streams = |streams: &[u16]| {
        let words: Vec<String> = streams.iter().map(u16::to_string).collect();
        words.join(" ")
    };
    vec![
        format!("{}{}", row.cell.name(), if row.is_void() { ", void" } else { "" }),
        fixed.collect::<Vec<_>>().join(", "),
        row.best.to_string(),
        format!("{:.1}", row.with_best.seconds),
        format!("{:.1}", row.alone.seconds),
        streams(&row.alone.streams),
        format!("{:.1}", row.with_history.seconds),
        streams(&row.with_history.streams),
        format!("{:.3}", ratios.settled),
        format!("{:.3}", ratios.whole),
        format!("{:.3}", ratios.whole_with_history),
        format!("{:.2}", row.late_share * 100.0),
    ]
}

fn faults(rows: &[Row]) -> Vec<String> {
    let valid: Vec<&Row> = rows.iter().filter(|row| !row.is_void()).collect();
    let settled: Vec<f64> = valid.iter().map(|row| row.ratios().settled).collect();
    let mut faults = Vec::new();
    if valid.len() < CELLS_MIN {
        faults.push(format!("{} cells are valid, of {CELLS_MIN}", valid.len()));
    }
    let middle = median(&settled).unwrap_or(0.0);
    if middle < SETTLED_MEDIAN {
        faults.push(format!("settled: median {middle:.3} of {SETTLED_MEDIAN}"));
    }
    for row in valid {
        let ratios = row.ratios();
        let bounds = [
            ("settled", ratios.settled, SETTLED_WORST),
            ("whole", ratios.whole, WHOLE_WORST),
            ("whole with history", ratios.whole_with_history, HISTORY_WORST),
        ];
        let missed = bounds.into_iter().filter(|(_, found, least)| found.is_nan() || found < least);
        faults.extend(missed.map(|(what, found, least)| {
            format!("{}: {what} {found:.3} of {least}", row.cell.name())
        }));
    }
    faults
}

pub(super) const CRITERIA: &str = "\
a copy of null to null with CUBIC over 200 Mbit/s with a queue of one bandwidth-delay product, \
each round trip with each window and each share of segments lost by chance. Copies of 9 s with \
1, 2, 4, 8, 16, 32 and 64 streams are looked at from their 4th second on; the best is the least \
number within 2 % of the fastest. Then the bytes that the fastest moves in 60 s are copied three \
times: with the best number, with `--streams auto` and an empty store, and with `auto` again. \
Settled is what arrives from the 20th second on, until nine tenths have arrived; whole is the \
time without the login.\
\n\nOf what the best number has: settled, the median of the cells is at least 0.98, the worst \
0.95; whole, the worst is 0.80 with an empty store and 0.95 with history. A cell in which more \
than 2 % of the packets left the path more than 1 ms late is void; at least 24 of the 27 are \
valid.";

const CELLS_MIN: usize = 24;
const SETTLED_MEDIAN: f64 = 0.98;
const SETTLED_WORST: f64 = 0.95;
const WHOLE_WORST: f64 = 0.80;
const HISTORY_WORST: f64 = 0.95;
