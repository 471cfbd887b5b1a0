//! The results of the runs on all paths, as a page.

use std::fmt::Write;

use super::Path;
use super::kept::{Kept, Run, Stage};
use super::runs::Tool;
use crate::bench::machine;
use crate::page::table;
use analysis::statistics::Spread;

/// Copies without tuning: with default options, and the same without a pace.
pub(super) const UNTUNED: [&&str; 2] = [&"", &"--pace off"];

/// One finished run.
pub(super) fn line(run: &Run) -> String {
    let stage = match run.stage {
        Stage::Look => "look",
        Stage::Turn => "turn",
    };
    let verdict = run.seen.verdict.as_deref().unwrap_or("");
    let rate = format!("{:8.1} Mbit/s", run.seen.mbit);
    format!("{stage} {rate}, {:6} dropped  {} {verdict}", run.dropped, run.tool.text())
}

pub(super) fn page(all: &[(&Path, Kept)]) -> String {
    let mut text = String::from(HEAD);
    for (path, _) in all {
        let Path { name, wan, ramp_s, look_s, turn_s, .. } = path;
        let _ = writeln!(
            text,
            "- {name}: `xtask wan up {}`, a ramp of {ramp_s} s, looks of {look_s} s, turns of \
             {turn_s} s",
            wan.join(" ")
        );
    }
    text.push('\n');
    text.push_str(&table(&TURN_COLUMNS, &turns(all)));
    text.push_str(&short_of(all));
    text.push_str(LOOKS);
    text.push_str(&table(&LOOK_COLUMNS, &looks(all)));
    text.push('\n');
    for note in machine::notes(std::path::Path::new("/dev/shm")) {
        let _ = writeln!(text, "- {note}");
    }
    text
}

fn turns(all: &[(&Path, Kept)]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (path, kept) in all {
        let tools = kept.turned();
        let best = tools
            .iter()
            .filter(|tool| matches!(tool, Tool::Iperf { .. }))
            .filter_map(|tool| kept.spread(tool))
            .map(|spread| spread.median)
            .fold(f64::NAN, f64::max);
        rows.extend(tools.iter().map(|tool| turn(path, kept, tool, best)));
    }
    rows
}

fn looks(all: &[(&Path, Kept)]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (path, kept) in all {
        for run in kept.runs.iter().filter(|run| run.stage == Stage::Look) {
            rows.push(vec![
                path.name.to_string(),
                run.tool.text(),
                format!("{:.1}", run.seen.mbit),
                run.dropped.to_string(),
            ]);
        }
    }
    rows
}

fn turn(path: &Path, kept: &Kept, tool: &Tool, best: f64) -> Vec<String> {
    let spread = |of: fn(&Run) -> Option<f64>| Spread::of(kept.turns_of(tool).filter_map(of));
    let shown = |of: Option<Spread>, digits| of.map_or("-".into(), |of| of.text(digits));
    let rate = kept.spread(tool);
    let ratio = rate.map_or(f64::NAN, |rate| rate.median / best);
    let mut verdicts: Vec<&str> =
        kept.turns_of(tool).filter_map(|run| run.seen.verdict.as_deref()).collect();
    verdicts.sort_unstable();
    verdicts.dedup();
    vec![
        path.name.to_string(),
        tool.text(),
        shown(rate, 1),
        format!("{ratio:.3}"),
        shown(spread(|run| run.seen.whole_mbit), 1),
        shown(spread(|run| Some(run.dropped as f64)), 0),
        verdicts.join(", "),
        kept.turns_of(tool).count().to_string(),
    ]
}

/// The paths on which the best copy is below the promised rate.
fn short_of(all: &[(&Path, Kept)]) -> String {
    let mut text = String::from("\n");
    for (path, kept) in all {
        let tools = kept.turned();
        let best = |wanted: fn(&Tool) -> bool| {
            let medians =
                tools.iter().filter(|tool| wanted(tool)).filter_map(|tool| kept.spread(tool));
            medians.map(|spread| spread.median).fold(f64::NAN, f64::max)
        };
        let ratio = best(|tool| matches!(tool, Tool::Copy { .. }))
            / best(|tool| matches!(tool, Tool::Iperf { .. }));
        let verdict = match ratio {
            ratio if ratio.is_nan() => "has not been measured".to_string(),
            ratio if ratio >= PROMISED => format!("{ratio:.3}, as promised"),
            ratio => format!("{ratio:.3}, **short of {PROMISED}**"),
        };
        let _ = writeln!(text, "- {}: the best copy beside the best iperf3: {verdict}", path.name);
    }
    text
}

const PROMISED: f64 = 0.97;
const HEAD: &str = "\
# Copies beside the best iperf3, on six kinds of path

`cargo xtask bench profiles`, release programs over an emulated WAN. A short look at iperf3 with \
reno, cubic and bbr and 1 to 16 streams, and at copies with options chosen by hand, \
says which take turns: the best two of iperf3, the best copy, the copy as it is when nothing is \
chosen, and that without a pace. Medians of the turns, with their ranges.

Like is compared with like: iperf3's rate is what its receiver counted for some seconds behind a \
ramp that is left out (`-O`); that of a copy is payload that its senders' TCP had acknowledged in \
the same seconds, from its first sample on. *Whole* is all bytes of a copy over all \
its time without the login, ramp and handshakes included. Copies are from `null:` to `null:`, \
sealed with TLS 1.3 and checked with BLAKE3, but on the veth path, where nothing is sealed and the \
digest is what the options say.

";
const TURN_COLUMNS: [&str; 8] = [
    "path",
    "what",
    "Mbit/s behind the ramp",
    "of the best iperf3",
    "whole",
    "packets dropped",
    "verdict",
    "turns",
];
const LOOKS: &str = "
## What was looked at to choose

Once each, shorter.

";
const LOOK_COLUMNS: [&str; 4] = ["path", "what", "Mbit/s", "packets dropped"];
