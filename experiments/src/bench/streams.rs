//! `cargo xtask bench streams`: what `--streams auto` makes of a path, beside the best number.
//!
//! In each cell short copies find the best of the fixed numbers. Then the same bytes go with that
//! number, with `auto` that knows nothing of the path, and with `auto` that has moved them once.

mod page;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use ::wan::{Profile, Wan};
use serde::{Deserialize, Serialize};

use super::build;
use crate::said;
use xtask::packages;
use xtask::step::{output, root, target_folder};

/// A path of 200 Mbit/s.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Cell {
    /// The receive window; `auto` is the kernel's.
    window: String,
    /// The share of segments that is lost by chance, in percent.
    loss_percent: f64,
    rtt_ms: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    cell: Cell,
    /// Rates of the short copies, in bytes a second.
    fixed: Vec<(u16, f64)>,
    best: u16,
    with_best: Run,
    alone: Run,
    with_history: Run,
    /// Of the packets of the path, the share that left more than 1 ms late.
    late_share: f64,
}

/// A copy of all bytes of a cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Run {
    /// Without the login.
    seconds: f64,
    /// What arrives from the 20th second on, until nine tenths have arrived: bytes a second.
    settled_bytes_per_s: f64,
    /// The first number of streams, and each that it was changed to.
    streams: Vec<u16>,
}

/// The rate and the time, as shares of what the best fixed number has.
struct Ratios {
    settled: f64,
    whole: f64,
    whole_with_history: f64,
}

impl Row {
    fn ratios(&self) -> Ratios {
        let Row { with_best, alone, with_history, .. } = self;
        Ratios {
            settled: alone.settled_bytes_per_s / with_best.settled_bytes_per_s,
            whole: with_best.seconds / alone.seconds,
            whole_with_history: with_best.seconds / with_history.seconds,
        }
    }

    fn is_void(&self) -> bool {
        self.late_share > LATE_MAX
    }
}

impl Cell {
    fn all() -> Vec<Cell> {
        let mut cells = Vec::new();
        for window in ["auto", "16K", "256K"] {
            for loss_percent in [0.0, 0.01, 0.1] {
                for rtt_ms in [2, 20, 102] {
                    cells.push(Cell { window: window.to_string(), loss_percent, rtt_ms });
                }
            }
        }
        cells
    }

    fn name(&self) -> String {
        format!("{}-{}-{}", self.window, self.loss_percent, self.rtt_ms)
    }

    fn profile(&self) -> Result<Profile, String> {
        let words = format!(
            "--rate 200Mbit --rtt {}ms --loss {}% --queue 1bdp",
            self.rtt_ms, self.loss_percent
        );
        Profile::from_words(&words.split_whitespace().collect::<Vec<_>>())
    }
}

struct Options {
    only: Option<String>,
    /// Cells at the same time: a path of 200 Mbit/s takes a small part of a CPU.
    jobs: usize,
    /// Built if omitted.
    program: Option<PathBuf>,
}

/// `bench streams [--only NAME] [--jobs N] [--program FILE]`, or `--criteria`.
pub(crate) fn streams(words: &[&str]) -> Result<(), String> {
    if words == ["--criteria"] {
        println!("{}", page::CRITERIA);
        return Ok(());
    }
    let options = options(words)?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => {
            build()?;
            target_folder().join("release/datapump")
        }
    };
    packages::ensure(packages::FOR_WAN)?;
    let kept_path = target_folder().join("bench-streams.jsonl");
    let wanted = |cell: &Cell| options.only.as_ref().is_none_or(|only| cell.name().contains(only));
    let cells: Vec<Cell> = Cell::all().into_iter().filter(wanted).collect();
    let kept = kept(&kept_path);
    let missing: Vec<&Cell> =
        cells.iter().filter(|cell| !kept.iter().any(|row| row.cell == **cell)).collect();
    println!("{} cells, {} to measure, about 5 minutes each", cells.len(), missing.len());
    measure_all(&missing, &options, &program, &kept_path)?;
    let mut rows = self::kept(&kept_path);
    rows.retain(|row| cells.contains(&row.cell));
    rows.sort_by_key(|row| cells.iter().position(|cell| *cell == row.cell));
    let (text, faults) = page::page(&rows, &program);
    let date = output(Command::new("date").arg("+%F"))?;
    let path = match options.only {
        None => root().join(format!("runs/{}-streams.md", date.trim())),
        Some(_) => target_folder().join("bench-streams-part.md"),
    };
    fs::write(&path, text).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("\nwritten to {}", path.display());
    match faults.as_slice() {
        [] => Ok(()),
        faults => Err(format!("{} criteria missed:\n{}", faults.len(), faults.join("\n"))),
    }
}

fn options(words: &[&str]) -> Result<Options, String> {
    let mut options = Options { only: None, jobs: 1, program: None };
    for pair in words.chunks(2) {
        match pair {
            ["--only", name] => options.only = Some((*name).to_string()),
            ["--jobs", jobs] => {
                options.jobs = jobs.parse().map_err(|why| format!("--jobs {jobs}: {why}"))?;
            }
            ["--program", file] => {
                let found = fs::canonicalize(file).map_err(|why| format!("{file}: {why}"))?;
                options.program = Some(found);
            }
            _ => return Err("bench streams: write --only, --jobs, --program or --criteria".into()),
        }
    }
    Ok(options)
}

/// The finished cells, one line of JSON each; a line that was cut off is ignored.
fn kept(path: &Path) -> Vec<Row> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Measures cells, some at a time, and keeps each; a cell that fails is told, and is not kept.
fn measure_all(
    missing: &[&Cell],
    options: &Options,
    program: &Path,
    kept: &Path,
) -> Result<(), String> {
    let file = File::options().append(true).create(true).open(kept);
    let file = Mutex::new(file.map_err(|why| format!("{}: {why}", kept.display()))?);
    let next = Mutex::new(missing.iter());
    let work = || {
        loop {
            let Some(cell) = next.lock().expect("no thread panics").next() else { return };
            match measure(cell, program) {
                Err(why) => println!("{}: {why}", cell.name()),
                Ok(row) => {
                    println!("| {} |", page::cells(&row).join(" | "));
                    let line = serde_json::to_string(&row).expect("a row is plain data");
                    let written = writeln!(file.lock().expect("no thread panics"), "{line}");
                    written.unwrap_or_else(|why| println!("{}: {why}", kept.display()));
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(work);
        }
    });
    Ok(())
}

fn measure(cell: &Cell, program: &Path) -> Result<Row, String> {
    let wan = Wan::up(&cell.profile()?, Some(program))?;
    let folder = tempfile::Builder::new().prefix("datapump-streams-").tempdir();
    let folder = folder.map_err(|why| format!("bench streams: {why}"))?;
    let stand = Stand { cell, wan: &wan, program, store: folder.path().join("results.db") };
    let mut fixed = Vec::new();
    for streams in FIXED {
        fixed.push((*streams, stand.look(*streams)?));
    }
    let most = fixed.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let best = fixed.iter().find(|(_, rate)| *rate >= AS_FAST * most).expect("the fastest is one");
    let (best, bytes) = (best.0, (most * COPY_S) as u64);
    let with_best = stand.copy(&["--streams", &best.to_string(), "--no-record"], bytes)?;
    let alone = stand.copy(&["--streams", "auto"], bytes)?;
    let with_history = stand.copy(&["--streams", "auto"], bytes)?;
    let late_share = wan.counters().late_share();
    Ok(Row { cell: cell.clone(), fixed, best, with_best, alone, with_history, late_share })
}

struct Stand<'a> {
    cell: &'a Cell,
    wan: &'a Wan,
    program: &'a Path,
    store: PathBuf,
}

impl Stand<'_> {
    fn begin(&self, words: &[&str], bytes: &str) -> Result<Child, String> {
        let told = |why: std::io::Error| format!("bench streams: {why}");
        let mut copy = Command::new(self.program);
        copy.args(["copy", "--json", "--quiet", "--config", "none", "--congestion", "cubic"]);
        copy.args(["--ssh", &self.wan.ssh_command(), "--window", &self.cell.window]);
        copy.env_remove("DATAPUMP_NO_RECORD").arg("--results").arg(&self.store);
        copy.args(words).args([format!("null:{bytes}"), "far:null:".to_string()]);
        let mut copy = self.wan.near(copy).map_err(told)?;
        let out = File::create(self.out()).map_err(told)?;
        copy.stdin(Stdio::null()).stdout(out).stderr(Stdio::null());
        copy.spawn().map_err(told)
    }

    /// What the copy prints: a pipe that nobody reads until the end may fill up.
    fn out(&self) -> PathBuf {
        self.store.with_file_name("out.json")
    }

    /// What has arrived at the far host so far.
    fn arrived(&self) -> u64 {
        self.wan.counters().forward.packets.bytes_out
    }

    /// The rate of a fixed number of streams, by a copy that is stopped.
    fn look(&self, streams: u16) -> Result<f64, String> {
        let told = |why: std::io::Error| format!("bench streams: {why}");
        let mut copy = self.begin(&["--no-record", "--streams", &streams.to_string()], "1T")?;
        thread::sleep(LOOK_AFTER);
        let (since, before) = (Instant::now(), self.arrived());
        thread::sleep(LOOK_FOR);
        let rate = (self.arrived() - before) as f64 / since.elapsed().as_secs_f64();
        copy.kill().map_err(told)?;
        copy.wait().map_err(told)?;
        thread::sleep(DRAIN);
        Ok(rate)
    }

    fn copy(&self, words: &[&str], bytes: u64) -> Result<Run, String> {
        let told = |why: std::io::Error| format!("bench streams: {why}");
        let begun_bytes = self.arrived();
        let mut copy = self.begin(words, &bytes.to_string())?;
        let mut arrived = Vec::new();
        let began = Instant::now();
        while copy.try_wait().map_err(told)?.is_none() {
            arrived.push((began.elapsed().as_secs_f64(), self.arrived() - begun_bytes));
            if began.elapsed() > COPY_MAX {
                copy.kill().map_err(told)?;
                copy.wait().map_err(told)?;
                return Err(format!("{words:?}: no end after {} s", COPY_MAX.as_secs()));
            }
            thread::sleep(EVERY);
        }
        let text = fs::read_to_string(self.out()).map_err(told)?;
        let record = said::record(&text)?;
        let login_s = record.remote.as_ref().map_or(0.0, |remote| remote.login_s);
        let mut streams = vec![record.options.streams];
        streams.extend(record.stream_steps.iter().map(|step| step.to));
        streams.dedup();
        Ok(Run {
            seconds: record.moved.elapsed_s - login_s,
            settled_bytes_per_s: settled(&arrived, login_s),
            streams,
        })
    }
}

/// The rate from the 20th second behind the login on, until nine tenths have arrived: the last
/// requests of slow streams are not the number's matter.
fn settled(arrived: &[(f64, u64)], login_s: f64) -> f64 {
    let all = arrived.last().map_or(0, |(_, bytes)| *bytes);
    let till = arrived.iter().find(|(_, bytes)| *bytes * 10 >= all * 9);
    let from = arrived.iter().find(|(at, _)| *at >= login_s + SETTLED_S);
    match (from, till) {
        (Some((t0, b0)), Some((t1, b1))) if t1 > t0 => (b1 - b0) as f64 / (t1 - t0),
        _ => 0.0,
    }
}

const FIXED: &[u16] = &[1, 2, 4, 8, 16, 32, 64];
/// Of the fixed numbers the least that is this near to the fastest counts as the best: more
/// streams than are needed are no merit.
const AS_FAST: f64 = 0.98;
const LOOK_AFTER: Duration = Duration::from_secs(4);
const LOOK_FOR: Duration = Duration::from_secs(5);
/// What was under way when a copy was stopped, and its far side, are gone by then.
const DRAIN: Duration = Duration::from_secs(1);
/// As many bytes as the fastest moves in this time.
const COPY_S: f64 = 60.0;
const COPY_MAX: Duration = Duration::from_secs(600);
const EVERY: Duration = Duration::from_millis(100);
const SETTLED_S: f64 = 20.0;
/// More packets late than this are a machine that had no time for the path.
const LATE_MAX: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_settled_rate_is_that_of_the_middle() {
        // A slow first 25 s, 10 bytes a second until 900 of 1000, and a slow end.
        let mut arrived = vec![(0.0, 0), (25.0, 100), (65.0, 500), (105.0, 900), (305.0, 1000)];
        assert_eq!(settled(&arrived, 2.0), 10.0);
        arrived.truncate(1);
        assert_eq!(settled(&arrived, 2.0), 0.0);
    }
}
