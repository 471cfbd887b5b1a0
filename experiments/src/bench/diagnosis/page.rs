//! The results, as a page for `runs/`.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use ::wan::UNLIMITED;

use super::cells::{Cell, FULL, Plant};
use super::{Followed, Found, course};
use crate::bench::machine;
use crate::page::table;

type Row<'a> = (&'a Cell, Found);

/// A line about a finished cell.
pub(super) fn progress(cell: &Cell, found: &Found, seconds: f64) -> String {
    let right = match (found.is_void(), found.is_right(cell)) {
        (true, _) => "void",
        (_, true) => "right",
        (_, false) => "WRONG",
    };
    let mut line = format!("{:<16} {right}  {} ({seconds:.0} s)", cell.name, shares(found));
    if let Some(followed) = &found.followed {
        let _ = write!(line, "; followed: {}", outcome(followed));
    }
    line
}

/// The confusion matrix: planted classes by verdicts.
pub(super) fn confusion(rows: &[Row<'_>]) -> String {
    let mut classes: Vec<&str> = rows.iter().map(|(cell, _)| cell.class).collect();
    classes.extend(rows.iter().map(|(_, found)| found.class()));
    let mut known: Vec<&str> = Vec::new();
    for class in classes {
        if !known.contains(&class) {
            known.push(class);
        }
    }
    let names: Vec<String> = known.iter().map(|class| class.replace('_', " ")).collect();
    let mut columns = vec!["planted ↓, found →"];
    columns.extend(names.iter().map(String::as_str));
    let row = |(planted, name): (&&str, &String)| {
        let count = |class: &&str| {
            let both = |(cell, found): &&Row<'_>| cell.class == *planted && found.class() == *class;
            match rows.iter().filter(both).count() {
                0 => "·".to_string(),
                count => count.to_string(),
            }
        };
        let mut cells = vec![name.clone()];
        cells.extend(known.iter().map(count));
        cells
    };
    table(&columns, &known.iter().zip(&names).map(row).collect::<Vec<_>>())
}

/// Cells with a wrong verdict, and advice that was wrong or takes from others.
pub(super) fn faults(rows: &[Row<'_>]) -> Vec<String> {
    let mut faults = Vec::new();
    for (cell, found) in rows {
        if found.is_void() {
            let late = found.late_share * 100.0;
            faults.push(format!("{}: void, {late:.0} % of the packets were late", cell.name));
            continue;
        }
        if !found.is_right(cell) {
            faults.push(format!("{}: {} is not {}", cell.name, found.class(), cell.class));
        }
        if has_false_full(cell, found) {
            faults.push(format!("{}: nothing to gain, below 0.8 of the path", cell.name));
        }
        if asks_for_more_beside(cell, found) {
            faults.push(format!("{}: more streams beside others", cell.name));
        }
        match &found.followed {
            Some(followed) if !is_reached(found, followed) => {
                faults.push(format!("{}: advice followed: {}", cell.name, outcome(followed)));
            }
            None if super::FOLLOWED.contains(&cell.name) => {
                faults.push(format!("{}: advice with no prediction", cell.name));
            }
            _ => {}
        }
    }
    faults
}

/// A rate that is not known to be carried is promised as a limit, and can be missed.
fn is_reached(found: &Found, followed: &Followed) -> bool {
    let advice = found.verdict["advice"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_limit = advice.iter().any(|advice| advice["at_most"] == true);
    followed.off() <= OFF_MAX && (is_limit || followed.off() >= -OFF_MAX)
}

/// "Nothing to gain" where one copy alone could have a quarter more.
fn has_false_full(cell: &Cell, found: &Found) -> bool {
    let Ok(scenario) = course::scenario(cell) else { return false };
    let way = match cell.plant {
        Plant::Pull => scenario.profile.back,
        _ => scenario.profile.forward,
    };
    // What changes has no one rate, and beside others there is less.
    let is_known = scenario.schedule.is_empty() && cell.beside.is_empty();
    let path = way.rate_bits_per_s;
    let seen = found.verdict["figures"]["bytes_per_s"].as_f64().unwrap_or(0.0) * 8.0;
    found.class() == FULL && is_known && path < UNLIMITED && seen < FULL_MIN * path as f64
}

fn asks_for_more_beside(cell: &Cell, found: &Found) -> bool {
    let advice = found.verdict["advice"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_more = |advice: &Value| advice["change"]["change"] == "streams";
    !cell.beside.is_empty() && advice.iter().any(is_more)
}

/// What the criteria ask for, with what was found.
fn criteria(rows: &[Row<'_>]) -> String {
    let known: Vec<&Row<'_>> = rows.iter().filter(|(_, found)| !found.is_void()).collect();
    let right = |rows: &[&Row<'_>]| {
        let right = rows.iter().filter(|(cell, found)| found.is_right(cell)).count();
        (right as u64, rows.len() as u64)
    };
    let is_sure = |row: &&&Row<'_>| row.1.verdict["confidence"] == "high";
    let sure: Vec<&Row<'_>> = known.iter().filter(is_sure).copied().collect();
    let (all_right, all) = right(&known);
    let (sure_right, sure) = right(&sure);
    let least = analysis::statistics::least_share(sure_right, sure);
    let full = known.iter().filter(|(cell, found)| has_false_full(cell, found)).count();
    let more = known.iter().filter(|(cell, found)| asks_for_more_beside(cell, found)).count();
    let met = |is_met: bool| if is_met { "yes" } else { "NO" }.to_string();
    let share = all_right as f64 / all.max(1) as f64;
    let rows = [
        [
            "cells that are not void",
            "at least 80",
            &format!("{all} of {}", rows.len()),
            &met(all >= 80),
        ],
        [
            "right",
            "at least 0.9",
            &format!("{share:.2} ({all_right} of {all})"),
            &met(share >= 0.9),
        ],
        ["nothing to gain below 0.8 of the path", "none", &full.to_string(), &met(full == 0)],
        ["more streams beside others", "none", &more.to_string(), &met(more == 0)],
        [
            "of high confidence, right: the 95 % interval's lower end (Wilson)",
            "above 0.9",
            &format!("{least:.3} ({sure_right} of {sure})"),
            &met(least > 0.9),
        ],
    ];
    table(&["criterion", "wanted", "seen", "met"], &rows.map(|row| row.map(String::from).to_vec()))
}

pub(super) fn page(rows: &[Row<'_>]) -> String {
    let mut text = String::from("# What held a copy back: planted, and found\n\n");
    for note in machine::notes(Path::new("/dev/shm")) {
        let _ = writeln!(text, "- {note}");
    }
    let _ = write!(
        text,
        "\n`cargo xtask bench diagnosis`: {} copies with `datapump copy null:… far:null:` over the \
         emulated WAN, each with one thing wrong, and the class that `datapump explain --json` \
         names for it afterwards. A cell in which more than 3 % of the packets left the link more \
         than 1 ms late is made again, up to twice, and is void after that.\n\n## Criteria\n\n{}\n\
         ## Confusion\n\n{}",
        rows.len(),
        criteria(rows),
        confusion(rows)
    );
    let cells: Vec<Vec<String>> = rows.iter().map(|(cell, found)| cells(cell, found)).collect();
    let _ = write!(text, "\n## Cells\n\n{}", table(&COLUMNS, &cells));
    let _ = write!(
        text,
        "\n## The advice, followed\n\nThe same copy once again with all that `explain` advises, \
         for as long. Predicted and reached are rates behind the ramp, payload of TCP. What is \
         predicted as \"at most\" need not be reached.\n\n{}",
        table(&FOLLOWED_COLUMNS, &followed(rows))
    );
    let faults = faults(rows);
    if !faults.is_empty() {
        let _ = write!(text, "\n## What fell short\n\n- {}\n", faults.join("\n- "));
    }
    text
}

fn followed(rows: &[Row<'_>]) -> Vec<Vec<String>> {
    let row = |(cell, found): &Row<'_>| {
        let followed = found.followed.as_ref()?;
        Some(vec![
            cell.name.to_string(),
            format!("`{}`", followed.options.join(" ")),
            format!("{:.1}", megabits(followed.predicted_bytes_per_s)),
            format!("{:.1}", megabits(followed.reached_bytes_per_s)),
            format!("{:+.1}", followed.off() * 100.0),
            if is_reached(found, followed) { "yes" } else { "NO" }.to_string(),
        ])
    };
    rows.iter().filter_map(row).collect()
}

fn cells(cell: &Cell, found: &Found) -> Vec<String> {
    let figures = &found.verdict["figures"];
    let rate = |name: &str| figures[name].as_f64().map_or(0.0, megabits);
    let plant = match cell.plant {
        Plant::Nothing => String::new(),
        Plant::Source(bits) => format!("; standard input at {} Mbit/s", bits / 1_000_000),
        Plant::Reader(bits) => format!("; standard output at {} Mbit/s", bits / 1_000_000),
        Plant::Setting(text) | Plant::Variable(text) => format!("; `{text}`"),
        Plant::Quota(hundredths) => format!("; {hundredths} % of a CPU"),
        Plant::Cuts(every, time) => format!("; every {every} ms a cut of {time} ms"),
        Plant::FarQuota(hundredths) => format!("; {hundredths} % of a CPU at the far host"),
        Plant::SourceDisk(bytes) => format!("; from a disk of {} MB/s", bytes / 1_000_000),
        Plant::SinkDisk(bytes) => format!("; to a disk of {} MB/s", bytes / 1_000_000),
        Plant::SinkSync(bytes) => {
            format!("; through the cache to a disk of {} MB/s", bytes / 1_000_000)
        }
        Plant::Files(bytes) => format!("; a tree of files of {bytes} bytes, in memory"),
        Plant::Pull => "; from the far host".to_string(),
    };
    let beside = match cell.beside {
        "" => String::new(),
        word => format!("; beside {word}"),
    };
    vec![
        cell.name.to_string(),
        format!("`{}`; `{}`{plant}{beside}", cell.path, cell.copy),
        cell.class.replace('_', " "),
        format!("{:.1}", rate("bytes_per_s")),
        format!("{:.1}", figures["duration_s"].as_f64().unwrap_or(0.0)),
        shares(found),
        found.verdict["confidence"].as_str().unwrap_or("-").to_string(),
        match (found.is_void(), found.is_right(cell)) {
            (true, _) => "void",
            (_, true) => "yes",
            (_, false) => "NO",
        }
        .to_string(),
    ]
}

/// `receive window 0.94, undetermined 0.06`.
fn shares(found: &Found) -> String {
    let all = found.verdict["shares"].as_array().map(Vec::as_slice).unwrap_or_default();
    let part = |share: &Value| {
        let class = share["class"].as_str().unwrap_or("-").replace('_', " ");
        format!("{class} {:.2}", share["share"].as_f64().unwrap_or(0.0))
    };
    let parts: Vec<String> = all.iter().take(3).map(part).collect();
    parts.join(", ")
}

fn outcome(followed: &Followed) -> String {
    format!(
        "{:.1} Mbit/s for {:.1} ({:+.0} %)",
        megabits(followed.reached_bytes_per_s),
        megabits(followed.predicted_bytes_per_s),
        followed.off() * 100.0
    )
}

fn megabits(bytes_per_s: f64) -> f64 {
    bytes_per_s * 8.0 / 1e6
}

const OFF_MAX: f64 = 0.15;
/// Of the path, what a copy has that has nothing to gain.
const FULL_MIN: f64 = 0.8;
const COLUMNS: [&str; 8] = [
    "cell",
    "planted",
    "right",
    "Mbit/s",
    "s",
    "found, shares of the bytes",
    "confidence",
    "as planted",
];
const FOLLOWED_COLUMNS: [&str; 6] =
    ["cell", "options", "predicted Mbit/s", "reached", "off %", "within 15 %"];
