//! `cargo xtask bench shared`: a copy on a path that other flows use too, for a part of its time.
//! What does it get beside them, what do they keep, and how soon is the whole path used again?

use std::fmt::Write;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ::wan::{Profile, Rivals, RunningRivals, Wan};
use serde_json::Value;

use super::{build, machine};
use crate::page::table;
use xtask::packages;
use xtask::step::{output, root, target_folder};

mod scavenger;

/// A path, our congestion control, and how many flows of CUBIC come and go.
#[derive(Clone, Copy, Debug)]
struct Cell {
    queue: &'static str,
    congestion: &'static str,
    others: u32,
}

/// Rates in bits a second, of a copy and of the other flows together.
#[derive(Clone, Copy, Debug)]
struct Rates {
    before: f64,
    beside: f64,
    /// From the third second after the others have ended.
    after: f64,
    others: f64,
}

struct Row {
    cell: Cell,
    paced: Rates,
    unpaced: Rates,
    /// What the others keep beside as many plain flows of CUBIC as we have streams.
    beside_plain: f64,
}

/// `bench shared [--scavenger] [--program FILE] [--criteria]`.
pub(crate) fn shared(words: &[&str]) -> Result<(), String> {
    let (is_scavenger, words) = match words {
        ["--scavenger", rest @ ..] => (true, rest),
        words => (false, words),
    };
    let (cells, criteria, name) = match is_scavenger {
        true => (scavenger::CELLS, scavenger::CRITERIA, "scavenger"),
        false => (CELLS, CRITERIA, "shared"),
    };
    let program = match words {
        ["--criteria"] => {
            println!("{criteria}");
            return Ok(());
        }
        [] => {
            build()?;
            target_folder().join("release/datapump")
        }
        ["--program", file] => {
            fs::canonicalize(PathBuf::from(file)).map_err(|why| format!("{file}: {why}"))?
        }
        _ => return Err("bench shared: write --scavenger, --criteria or --program FILE".into()),
    };
    packages::ensure(packages::FOR_WAN)?;
    println!("{} cells, about {} minutes", cells.len(), cells.len() * 2);
    let (page, faults) = match is_scavenger {
        true => scavenger::measured(&program)?,
        false => measured(&program)?,
    };
    let date = output(Command::new("date").arg("+%F"))?;
    let path = root().join(format!("runs/{}-{name}.md", date.trim()));
    fs::write(&path, page).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("\nwritten to {}", path.display());
    match faults.as_slice() {
        [] => Ok(()),
        faults => Err(format!("{} criteria missed:\n{}", faults.len(), faults.join("\n"))),
    }
}

/// Measures all cells; the page, and the criteria that were missed.
fn measured(program: &Path) -> Result<(String, Vec<String>), String> {
    let mut rows = Vec::new();
    for cell in CELLS {
        let row = Row {
            cell: *cell,
            paced: copy(program, cell, "auto")?,
            unpaced: copy(program, cell, "off")?,
            beside_plain: plain(cell)?,
        };
        println!("| {} |", cells(&row).join(" | "));
        rows.push(row);
    }
    Ok((page(&rows), rows.iter().flat_map(faults).collect()))
}

/// An endless copy, in the middle of which the others come and go.
fn copy(program: &Path, cell: &Cell, pace: &str) -> Result<Rates, String> {
    let told = |why: std::io::Error| format!("bench shared: {why}");
    let wan = Wan::up(&path(cell)?, Some(program))?;
    let mut copy = Command::new(program);
    copy.args(["copy", "--json", "--no-record", "--congestion", cell.congestion]);
    copy.args(["--streams", &OURS.to_string(), "--pace", pace, "--ssh", &wan.ssh_command()]);
    // What has moved is told by finished requests, and beside others a copy may be slow.
    copy.args(["--request-size", "64K", "null:1T", "far:null:"]);
    let mut copy = wan.near(copy).map_err(told)?;
    copy.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = copy.spawn().map_err(told)?;
    let course = watch(&mut child, &wan, cell);
    // Its exit code is that of an interrupted copy.
    child.kill().map_err(told)?;
    child.wait().map_err(told)?;
    let (seen, others) = course?;
    let rate = |from: Duration, until: Duration| {
        let at = |time: Duration| seen.iter().rfind(|(then, _)| *then <= time).copied();
        match (at(from), at(until)) {
            (Some((t0, b0)), Some((t1, b1))) if t1 > t0 => {
                (b1 - b0) as f64 * 8.0 / (t1 - t0).as_secs_f64()
            }
            _ => 0.0,
        }
    };
    Ok(Rates {
        before: rate(RAMP, COME),
        beside: rate(COME + SETTLED, GO),
        after: rate(GO + FREED, END),
        others,
    })
}

/// The bytes that the copy reports over time, and the rate of the others.
fn watch(child: &mut Child, wan: &Wan, cell: &Cell) -> Result<(Vec<(Duration, u64)>, f64), String> {
    let mut seen = Vec::new();
    let mut running: Option<RunningRivals> = None;
    let mut others = None;
    let mut began = None;
    let lines = BufReader::new(child.stdout.take().ok_or("no standard output")?).lines();
    for line in lines {
        let line = line.map_err(|why| format!("bench shared: {why}"))?;
        let Ok(event) = serde_json::from_str::<Value>(&line) else { continue };
        if event["event"] == "end" {
            return Err(format!("the copy ended: {line}"));
        }
        let Some(bytes) = event["bytes_done"].as_u64().filter(|bytes| *bytes > 0) else { continue };
        let at = began.get_or_insert_with(Instant::now).elapsed();
        seen.push((at, bytes));
        if at >= COME && running.is_none() && others.is_none() {
            running = Some(wan.rivals(&rivals(cell.others)?)?);
        }
        if at >= GO
            && let Some(running) = running.take()
        {
            others = Some(running.stop().bits_per_s(SETTLED, GO - COME));
        }
        if at >= END {
            break;
        }
    }
    Ok((seen, others.ok_or("the copy ended too early")?))
}

/// What the others keep beside plain flows.
fn plain(cell: &Cell) -> Result<f64, String> {
    let wan = Wan::up(&path(cell)?, None)?;
    let ours = wan.rivals(&rivals(OURS)?)?;
    thread::sleep(RAMP);
    let others = wan.rivals(&rivals(cell.others)?)?;
    thread::sleep(GO - COME);
    let others = others.stop().bits_per_s(SETTLED, GO - COME);
    drop(ours);
    Ok(others)
}

fn path(cell: &Cell) -> Result<Profile, String> {
    Profile::from_words(&["--rate", "100Mbit", "--rtt", "30ms", "--queue", cell.queue])
}

fn rivals(count: u32) -> Result<Rivals, String> {
    Rivals::from_word(&format!("{count}xcubic"))
}

impl Row {
    fn fair(&self) -> f64 {
        let (ours, others) = (f64::from(OURS), f64::from(self.cell.others));
        self.paced.before * ours / (ours + others)
    }
}

/// The criteria that a row misses.
fn faults(row: &Row) -> Vec<String> {
    let Row { cell, paced, unpaced, .. } = row;
    let name = format!("{} {} beside {}", cell.queue, cell.congestion, cell.others);
    let mut bounds = vec![
        ("alone: of what an unpaced copy has", paced.before / unpaced.before, ALONE_MIN),
        ("beside them: of the fair share", paced.beside / row.fair(), FAIR_MIN),
        ("after them: of what it had before", paced.after / paced.before, AFTER_MIN),
    ];
    let harm = paced.others / row.beside_plain;
    if cell.congestion == "cubic" {
        bounds.push(("the others: of what plain flows leave them", harm, HARM_MIN));
    }
    let missed = bounds.into_iter().filter(|(_, found, least)| found.is_nan() || found < least);
    missed.map(|(what, found, least)| format!("{name}: {what}: {found:.2} of {least}")).collect()
}

fn cells(row: &Row) -> Vec<String> {
    let mbit = |bits: f64| format!("{:.1}", bits / 1e6);
    let Row { cell, paced, unpaced, .. } = row;
    vec![
        cell.queue.to_string(),
        cell.congestion.to_string(),
        cell.others.to_string(),
        mbit(paced.before),
        mbit(paced.beside),
        mbit(row.fair()),
        mbit(paced.after),
        mbit(unpaced.before),
        mbit(unpaced.beside),
        mbit(unpaced.after),
        mbit(paced.others),
        mbit(unpaced.others),
        mbit(row.beside_plain),
        if faults(row).is_empty() { "yes" } else { "NO" }.to_string(),
    ]
}

fn page(rows: &[Row]) -> String {
    let mut text = String::from("# A copy beside other flows, and after them\n\n");
    for note in machine::notes(Path::new("/dev/shm")) {
        let _ = writeln!(text, "- {note}");
    }
    let columns = [
        "queue",
        "our control",
        "others",
        "alone",
        "beside",
        "fair",
        "after",
        "unpaced: alone",
        "beside",
        "after",
        "others",
        "unpaced",
        "beside plain flows",
        "met",
    ];
    let rows_of = rows.iter().map(cells).collect::<Vec<_>>();
    let faults: Vec<String> = rows.iter().flat_map(faults).collect();
    let _ = write!(
        text,
        "\n`cargo xtask bench shared`: {CRITERIA}\n\n{}\nMissed: {}.\n",
        table(&columns, &rows_of),
        if faults.is_empty() { "nothing".to_string() } else { faults.join("; ") },
    );
    text
}

const CRITERIA: &str = "\
a copy of null to null over 100 Mbit/s and 30 ms, four streams, `--pace auto` and `--pace \
off`. After 12 s other flows of CUBIC come, and go after 15 s more. Rates in Mbit/s: alone \
is from the 4th second on, beside from the 3rd second of the others on, after from the 3rd \
to the 8th second after their end. Fair is our rate alone by streams. The last columns are \
what the others get together: beside the two copies, and beside four plain flows of CUBIC \
in our place.\
\n\nWith `--pace auto`: alone at least 0.95 of the copy without a pace, beside at least 0.8 of \
the fair share, after at least 0.9 of alone; where our streams are CUBIC, the others keep \
at least 0.8 of what they keep beside plain flows. BBR's harm to CUBIC is told without a \
bound.";

const CELLS: &[Cell] = &[
    Cell { queue: "1bdp", congestion: "cubic", others: 1 },
    Cell { queue: "1bdp", congestion: "cubic", others: 4 },
    Cell { queue: "1bdp", congestion: "cubic", others: 8 },
    Cell { queue: "64K", congestion: "cubic", others: 1 },
    Cell { queue: "64K", congestion: "cubic", others: 4 },
    Cell { queue: "64K", congestion: "cubic", others: 8 },
    Cell { queue: "1bdp", congestion: "bbr", others: 4 },
    Cell { queue: "64K", congestion: "bbr", others: 4 },
];
const OURS: u32 = 4;
const RAMP: Duration = Duration::from_secs(4);
const COME: Duration = Duration::from_secs(12);
const SETTLED: Duration = Duration::from_secs(3);
const GO: Duration = Duration::from_secs(27);
const FREED: Duration = Duration::from_secs(2);
const END: Duration = Duration::from_secs(35);
const ALONE_MIN: f64 = 0.95;
const FAIR_MIN: f64 = 0.8;
const AFTER_MIN: f64 = 0.9;
const HARM_MIN: f64 = 0.8;
