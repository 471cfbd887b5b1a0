//! `cargo xtask bench predict --wan`: copies over an emulated WAN, predicted from earlier ones over
//! the same path.

use crate::said;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use ::wan::{Profile, Wan};
use serde_json::Value;
use tempfile::TempDir;

use super::{MB, Options, reached, remove};
use crate::bench::fixture::random_file;
use crate::bench::shuffle::Shuffle;
use crate::bench::{build, machine};
use crate::page::table;
use analysis::predict::score::Pair;
use analysis::report::predicted;
use analysis::report::sheet::Form;
use xtask::packages;
use xtask::step::{output, root};

/// One copy of one file.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Copy {
    mb: u64,
    streams: u16,
}

/// A path and direction, with the copies to learn from and those that are held out.
struct Direction {
    name: &'static str,
    wan: &'static [&'static str],
    learned: &'static [Copy],
    held: &'static [Copy],
}

struct Row {
    direction: &'static str,
    copy: Copy,
    time: Pair,
    login_s: f64,
}

pub(super) fn predict(options: &Options) -> Result<(), String> {
    if options.program.is_none() {
        build()?;
    }
    packages::ensure(packages::FOR_WAN)?;
    println!("{} ways, about {:.0} minutes", WAYS.len(), minutes());
    let mut rows = Vec::new();
    for direction in WAYS {
        println!("\n== {}", direction.name);
        rows.extend(over(direction, &options.program(), options.seed)?);
    }
    let page = page(&rows, options.seed);
    let date = output(Command::new("date").arg("+%F"))?;
    let path = root().join(format!("runs/{}-prediction-wan.md", date.trim()));
    fs::write(&path, &page).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("\n{page}\nwritten to {}", path.display());
    Ok(())
}

/// Copies, plus a few seconds for each login and handshake.
fn minutes() -> f64 {
    let of = |direction: &Direction| {
        let mbit = Profile::from_words(direction.wan)
            .map_or(1e8, |profile| profile.forward.rate_bits_per_s as f64)
            / 1e6;
        let mb: u64 = direction.learned.iter().chain(direction.held).map(|copy| copy.mb).sum();
        let logins = direction.learned.len() + 2 * direction.held.len();
        mb as f64 * 8.0 / mbit / 0.9 + logins as f64 * 3.0
    };
    WAYS.iter().map(of).sum::<f64>() / 60.0
}

/// The two ends of a path: sources, a store, and the destination of copies.
struct Fixture<'a> {
    folder: TempDir,
    wan: &'a Wan,
    program: &'a Path,
}

fn over(direction: &Direction, program: &Path, seed: u64) -> Result<Vec<Row>, String> {
    let wan = Wan::up(&Profile::from_words(direction.wan)?, Some(program))?;
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() };
    let folder = tempfile::Builder::new().prefix("datapump-held-").tempdir_in(parent);
    let folder = folder.map_err(|why| why.to_string())?;
    let fixture = Fixture { folder, wan: &wan, program };
    let mut shuffle = Shuffle::from_seed(seed);
    for place in shuffle.order(direction.learned.len()) {
        let copy = direction.learned[place];
        let made = fixture.copy(copy, &[])?;
        println!("learned from {} MB, {} streams: {:.2} s", copy.mb, copy.streams, elapsed(&made)?);
    }
    let mut rows = Vec::new();
    for place in shuffle.order(direction.held.len()) {
        let copy = direction.held[place];
        let dry = fixture.copy(copy, &["--dry-run"])?;
        // It is not recorded, so later predictions do not know it.
        let wet = fixture.copy(copy, &["--no-record"])?;
        let row = row(direction.name, copy, &dry, &wet)?;
        println!("| {} |", cells(&row).join(" | "));
        rows.push(row);
    }
    Ok(rows)
}

impl Fixture<'_> {
    /// Makes a copy, or a dry run; returns its last event.
    fn copy(&self, copy: Copy, more: &[&str]) -> Result<Value, String> {
        let source = self.folder.path().join(format!("source-{}", copy.mb));
        let target = self.folder.path().join("target");
        let told = |why: std::io::Error| format!("bench predict: {why}");
        if !source.exists() {
            random_file(&source, copy.mb, copy.mb * MB).map_err(told)?;
        }
        let mut command = Command::new(self.program);
        command.args(["copy", "--quiet", "--json", "--ssh", &self.wan.ssh_command()]);
        command.arg("--remote-datapump").arg(self.program).args(more);
        command.args(["--streams", &copy.streams.to_string()]);
        command.arg("--results").arg(self.folder.path().join("results.db"));
        command.env_remove("DATAPUMP_NO_RECORD").arg(&source);
        command.arg(format!("far:{}", target.display()));
        let said = output(&mut self.wan.near(command).map_err(told)?)?;
        remove(&target).map_err(told)?;
        let end = said.lines().last().and_then(|line| serde_json::from_str(line).ok());
        end.ok_or_else(|| format!("no last word of a copy: {said}"))
    }
}

fn elapsed(made: &Value) -> Result<f64, String> {
    Ok(said::record_of(made)?.moved.elapsed_s)
}

fn row(direction: &'static str, copy: Copy, dry: &Value, wet: &Value) -> Result<Row, String> {
    let expected = said::record_of(dry)?.predicted;
    let expected =
        expected.ok_or_else(|| format!("a dry run does not say what is expected: {dry}"))?;
    Ok(Row {
        direction,
        copy,
        time: Pair {
            expected: [expected.elapsed_low_s, expected.elapsed_s, expected.elapsed_high_s],
            observed: elapsed(wet)?,
        },
        login_s: said::record_of(wet)?.remote.map_or(0.0, |remote| remote.login_s),
    })
}

fn cells(row: &Row) -> Vec<String> {
    let [low, middle, high] = row.time.expected;
    let out = if row.time.is_covered() { "" } else { " out" };
    vec![
        row.direction.to_string(),
        row.copy.mb.to_string(),
        row.copy.streams.to_string(),
        format!("{:.2}", row.time.observed),
        format!("{:.2}", row.login_s),
        format!("{middle:.2} ({low:.2}–{high:.2})"),
        format!("{:+.1} %{out}", row.time.error() * 100.0),
    ]
}

fn page(rows: &[Row], seed: u64) -> String {
    let times: Vec<Pair> = rows.iter().map(|row| row.time).collect();
    let mut text = format!(
        "# Predictions and copies over an emulated WAN\n\n`cargo xtask bench predict --wan`: \
         over each of {} ways some copies were made and recorded, in a random order (seed {seed}). \
         Then {} others, of other sizes, were each predicted by `datapump copy --dry-run` from \
         that store alone, and made without being recorded. Files in memory at both ends, \
         default options but for the streams. Time includes the login, which the dry run \
         measures.\n\n",
        WAYS.len(),
        rows.len(),
    );
    let copies: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let direction = |direction: &Direction| {
        let learned =
            direction.learned.iter().map(|copy| format!("{} x {}", copy.mb, copy.streams));
        let learned: Vec<String> = learned.collect();
        vec![direction.name.to_string(), direction.wan.join(" "), learned.join(", ")]
    };
    let directions: Vec<Vec<String>> = WAYS.iter().map(direction).collect();
    let tables = [
        reached(&[("time", &times)]),
        predicted::scores(&times).write(Form::Markdown),
        table(&COLUMNS, &copies),
        table(&["way", "link", "learned from: MB x streams"], &directions),
    ];
    text.push_str(&tables.join("\n"));
    text.push('\n');
    for note in machine::notes(Path::new("/dev/shm")) {
        let _ = writeln!(text, "- {note}");
    }
    text
}

const fn copy(mb: u64, streams: u16) -> Copy {
    Copy { mb, streams }
}

const COLUMNS: [&str; 7] =
    ["way", "MB", "streams", "seconds", "of that login", "expected", "error"];
const LEARNED: &[Copy] =
    &[copy(3, 4), copy(12, 4), copy(12, 1), copy(40, 4), copy(40, 8), copy(120, 4), copy(40, 1)];
const WAYS: &[Direction] = &[
    Direction {
        name: "deep queue",
        wan: &["--rate", "100Mbit", "--rtt", "102ms", "--queue", "1bdp"],
        learned: LEARNED,
        held: &[copy(5, 4), copy(20, 2), copy(55, 1), copy(100, 8), copy(200, 4)],
    },
    Direction {
        name: "short queue",
        wan: &["--rate", "100Mbit", "--rtt", "102ms", "--queue", "64K"],
        learned: LEARNED,
        held: &[copy(6, 1), copy(17, 4), copy(60, 2), copy(90, 4), copy(160, 8)],
    },
    Direction {
        name: "loss",
        wan: &["--rate", "200Mbit", "--rtt", "50ms", "--queue", "1bdp", "--loss", "0.1%"],
        learned: LEARNED,
        held: &[copy(7, 4), copy(25, 8), copy(50, 1), copy(130, 2), copy(200, 4)],
    },
    Direction {
        name: "near",
        wan: &["--rate", "50Mbit", "--rtt", "20ms", "--queue", "1bdp"],
        learned: LEARNED,
        held: &[copy(5, 1), copy(15, 8), copy(30, 4), copy(70, 2), copy(110, 4)],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_are_held_out_and_none_of_them_is_learned_from() {
        assert_eq!(WAYS.iter().map(|direction| direction.held.len()).sum::<usize>(), 20);
        for direction in WAYS {
            assert!(Profile::from_words(direction.wan).is_ok(), "{}", direction.name);
            let known = |copy: &Copy| direction.learned.iter().any(|learned| learned.mb == copy.mb);
            assert!(!direction.held.iter().any(known), "{}", direction.name);
        }
    }
}
