//! The results, as a page for `runs/`.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use super::cells::{Cell, Plant};
use super::{Followed, Found};
use crate::bench::machine;
use crate::page::table;

type Row<'a> = (&'a Cell, Found);

/// A line about a finished cell.
pub(super) fn progress(cell: &Cell, found: &Found, seconds: f64) -> String {
    let right = if found.class() == cell.class { "right" } else { "WRONG" };
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

/// Cells with a wrong verdict, and advice whose prediction was wrong.
pub(super) fn faults(rows: &[Row<'_>]) -> Vec<String> {
    let mut faults = Vec::new();
    for (cell, found) in rows {
        if found.class() != cell.class {
            faults.push(format!("{}: {} is not {}", cell.name, found.class(), cell.class));
        }
        match &found.followed {
            Some(followed) if followed.off().abs() > OFF_MAX => {
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

pub(super) fn page(rows: &[Row<'_>]) -> String {
    let mut text = String::from("# What held a copy back: planted, and found\n\n");
    for note in machine::notes(Path::new("/dev/shm")) {
        let _ = writeln!(text, "- {note}");
    }
    let right = rows.iter().filter(|(cell, found)| cell.class == found.class()).count();
    let _ = write!(
        text,
        "\n`cargo xtask bench diagnosis`: {} copies with `datapump copy null:… far:null:` over the \
         emulated WAN, each with one thing wrong, and the class that `datapump explain --json` \
         names for it afterwards. {right} of {} are right.\n\n## Confusion\n\n{}",
        rows.len(),
        rows.len(),
        confusion(rows)
    );
    let cells: Vec<Vec<String>> = rows.iter().map(|(cell, found)| cells(cell, found)).collect();
    let _ = write!(text, "\n## Cells\n\n{}", table(&COLUMNS, &cells));
    let _ = write!(
        text,
        "\n## The advice, followed\n\nThe same copy once again with all that `explain` advises, \
         for as long. Predicted and reached are rates behind the ramp, payload of TCP.\n\n{}",
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
            if followed.off().abs() <= OFF_MAX { "yes" } else { "NO" }.to_string(),
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
        Plant::Rivals(word) => format!("; beside {word}"),
    };
    vec![
        cell.name.to_string(),
        format!("`{}`; `{}`{plant}", cell.path, cell.copy),
        cell.class.replace('_', " "),
        format!("{:.1}", rate("bytes_per_s")),
        format!("{:.1}", figures["duration_s"].as_f64().unwrap_or(0.0)),
        shares(found),
        found.verdict["confidence"].as_str().unwrap_or("-").to_string(),
        if found.class() == cell.class { "yes" } else { "NO" }.to_string(),
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
