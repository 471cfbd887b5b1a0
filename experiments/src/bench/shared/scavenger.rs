//! `cargo xtask bench shared --scavenger`: a copy that is to take only what others leave.

use std::fmt::Write;
use std::path::Path;
use std::thread;

use ::wan::Wan;

use super::{COME, Cell, GO, RAMP, Rates, SETTLED, copy, path, rivals};
use crate::bench::machine;
use crate::page::table;

struct Row {
    cell: Cell,
    scavenger: Rates,
    unpaced: Rates,
    /// What the others have where there is no copy.
    others_alone: f64,
}

pub(super) const CELLS: &[Cell] = &[
    Cell { queue: "1bdp", congestion: "cubic", others: 1 },
    Cell { queue: "64K", congestion: "cubic", others: 1 },
    Cell { queue: "1bdp", congestion: "bbr", others: 1 },
    Cell { queue: "64K", congestion: "bbr", others: 1 },
    Cell { queue: "4bdp", congestion: "cubic", others: 4 },
];
const ALONE_MIN: f64 = 0.95;
const BESIDE_MAX: f64 = 0.10;
const AFTER_MIN: f64 = 0.9;

pub(super) const CRITERIA: &str = "\
a copy of null to null over 100 Mbit/s and 30 ms, four streams, `--pace scavenger` and `--pace \
off`. After 12 s other flows of CUBIC come, and go after 15 s more. Rates in Mbit/s, over the \
times of `bench shared`. The last columns are what the others get together: beside the two \
copies, and alone.\
\n\nWith `--pace scavenger`: alone at least 0.95 of the copy without a pace, beside the others at \
most 0.10 of that, after them at least 0.9 of what it had before. What the others keep is told \
without a bound.";

/// Measures all cells; the page, and the criteria that were missed.
pub(super) fn measured(program: &Path) -> Result<(String, Vec<String>), String> {
    let mut rows = Vec::new();
    for cell in CELLS {
        let row = Row {
            cell: *cell,
            scavenger: copy(program, cell, "scavenger")?,
            unpaced: copy(program, cell, "off")?,
            others_alone: others_alone(cell)?,
        };
        println!("| {} |", cells(&row).join(" | "));
        rows.push(row);
    }
    Ok((page(&rows), rows.iter().flat_map(faults).collect()))
}

fn others_alone(cell: &Cell) -> Result<f64, String> {
    let wan = Wan::up(&path(cell)?, None)?;
    thread::sleep(RAMP);
    let others = wan.rivals(&rivals(cell.others)?)?;
    thread::sleep(GO - COME);
    Ok(others.stop().bits_per_s(SETTLED, GO - COME))
}

fn faults(row: &Row) -> Vec<String> {
    let Row { cell, scavenger, unpaced, .. } = row;
    let name = format!("{} {} beside {}", cell.queue, cell.congestion, cell.others);
    let shares = [
        ("alone", scavenger.before / unpaced.before, ALONE_MIN..=f64::MAX),
        ("beside them", scavenger.beside / unpaced.before, 0.0..=BESIDE_MAX),
        ("after them", scavenger.after / scavenger.before, AFTER_MIN..=f64::MAX),
    ];
    let missed = shares.into_iter().filter(|(_, share, bounds)| !bounds.contains(share));
    missed.map(|(what, share, _)| format!("{name}: {what}: {share:.2}")).collect()
}

fn cells(row: &Row) -> Vec<String> {
    let mbit = |bits: f64| format!("{:.1}", bits / 1e6);
    let Row { cell, scavenger, unpaced, .. } = row;
    let mut cells =
        vec![cell.queue.to_string(), cell.congestion.to_string(), cell.others.to_string()];
    let rates = [
        scavenger.before,
        scavenger.beside,
        scavenger.after,
        unpaced.before,
        unpaced.beside,
        scavenger.others,
        unpaced.others,
        row.others_alone,
    ];
    cells.extend(rates.map(mbit));
    cells.push(if faults(row).is_empty() { "yes" } else { "NO" }.to_string());
    cells
}

fn page(rows: &[Row]) -> String {
    let mut text = String::from("# A copy that takes only what other flows leave\n\n");
    for note in machine::notes(Path::new("/dev/shm")) {
        let _ = writeln!(text, "- {note}");
    }
    let columns = [
        "queue",
        "our control",
        "others",
        "alone",
        "beside",
        "after",
        "unpaced: alone",
        "beside",
        "others",
        "beside unpaced",
        "alone",
        "met",
    ];
    let missed: Vec<String> = rows.iter().flat_map(faults).collect();
    let _ = write!(
        text,
        "\n`cargo xtask bench shared --scavenger`: {CRITERIA}\n\n{}\nMissed: {}.\n",
        table(&columns, &rows.iter().map(cells).collect::<Vec<_>>()),
        if missed.is_empty() { "nothing".to_string() } else { missed.join("; ") },
    );
    text
}
