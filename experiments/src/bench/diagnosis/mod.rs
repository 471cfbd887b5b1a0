//! `cargo xtask bench diagnosis`: copies over the emulated WAN, each with one planted bottleneck.
//! Does `explain` find it? And does its advice reach the predicted rate?

mod cells;
mod conditions;
mod course;
mod page;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::build;
use crate::wan::selftest::LATE_MAX;
use cells::{Cell, FOLLOWED, all};
use xtask::packages;
use xtask::step::{output, root, target_folder};

struct Options {
    program: PathBuf,
    /// Only cells with this in their names.
    only: Option<String>,
    /// Results of an earlier run are not measured again.
    resume: bool,
    /// Nothing is measured: the page has what an earlier run came to.
    kept: bool,
}

/// The results of a cell. They are kept beside the store, so that a bench can continue.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Found {
    verdict: Value,
    /// Of the packets, the share that left the link more than 1 ms late, at the last attempt.
    late_share: f64,
    /// Of the second copy, with the advice of the first.
    followed: Option<Followed>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Followed {
    options: Vec<String>,
    predicted_bytes_per_s: f64,
    reached_bytes_per_s: f64,
}

impl Found {
    /// `mixed` where no class has half.
    fn class(&self) -> &str {
        self.verdict["primary"].as_str().unwrap_or("mixed")
    }

    /// The machine was too busy to emulate the path, at each attempt.
    fn is_void(&self) -> bool {
        self.late_share > LATE_MAX
    }

    fn is_right(&self, cell: &Cell) -> bool {
        self.class() == cell.class
    }
}

impl Followed {
    fn off(&self) -> f64 {
        self.reached_bytes_per_s / self.predicted_bytes_per_s - 1.0
    }
}

/// `bench diagnosis [--only NAME] [--resume | --kept] [--program FILE]`.
pub(crate) fn diagnosis(words: &[&str]) -> Result<(), String> {
    let options = options(words)?;
    packages::ensure(packages::FOR_WAN)?;
    let folder = target_folder().join("diagnosis");
    fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let mut chosen = all();
    chosen.retain(|cell| options.only.as_ref().is_none_or(|part| cell.name.contains(part)));
    if chosen.is_empty() {
        let names: Vec<&str> = all().iter().map(|cell| cell.name).collect();
        return Err(format!("bench diagnosis: --only names one of {}", names.join(", ")));
    }
    let seconds: u64 = chosen.iter().map(|cell| seconds(cell)).sum();
    println!("{} cells, about {} min {} s\n", chosen.len(), seconds / 60, seconds % 60);
    let mut rows = Vec::new();
    for cell in chosen {
        let kept = folder.join(format!("{}.json", cell.name));
        let before = (options.resume || options.kept).then(|| kept_before(&kept)).flatten();
        if options.kept && before.is_none() {
            continue;
        }
        let began = Instant::now();
        let found = match before {
            Some(found) => found,
            None => measure(&options.program, cell, &folder)?,
        };
        let text = serde_json::to_string(&found).map_err(|why| why.to_string())?;
        fs::write(&kept, text).map_err(|why| format!("{}: {why}", kept.display()))?;
        println!("{}", page::progress(cell, &found, began.elapsed().as_secs_f64()));
        rows.push((cell, found));
    }
    let page = page::page(&rows);
    let date = output(Command::new("date").arg("+%F"))?;
    // A part must not replace the whole page of the day.
    let path = match &options.only {
        None => root().join(format!("runs/{}-diagnosis.md", date.trim())),
        Some(_) => target_folder().join("bench-diagnosis-part.md"),
    };
    fs::write(&path, &page).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("\n{}\nwritten to {}", page::confusion(&rows), path.display());
    match page::faults(&rows).as_slice() {
        [] => Ok(()),
        faults => Err(format!("{} faults:\n{}", faults.len(), faults.join("\n"))),
    }
}

fn options(words: &[&str]) -> Result<Options, String> {
    let (mut only, mut resume, mut kept, mut program) = (None, false, false, None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("bench: {word} needs a value"));
        match *word {
            "--only" => only = Some((*value()?).to_string()),
            "--resume" => resume = true,
            "--kept" => kept = true,
            "--program" => program = Some(PathBuf::from(value()?)),
            _ => return Err(format!("bench diagnosis: unknown option {word}")),
        }
    }
    let program = match program {
        Some(program) => {
            fs::canonicalize(&program).map_err(|why| format!("{}: {why}", program.display()))?
        }
        None => {
            build()?;
            target_folder().join("release/datapump")
        }
    };
    Ok(Options { program, only, resume, kept })
}

fn seconds(cell: &Cell) -> u64 {
    let times = if FOLLOWED.contains(&cell.name) { 2 } else { 1 };
    times * (cell.seconds + 1)
}

fn kept_before(path: &Path) -> Option<Found> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

fn measure(program: &Path, cell: &Cell, folder: &Path) -> Result<Found, String> {
    let words: Vec<String> = cell.copy.split_whitespace().map(String::from).collect();
    let store = |suffix: &str| folder.join(format!("{}{suffix}.db", cell.name));
    let mut shown = course::run(program, cell, &words, cell.mib, &store(""))?;
    for _ in 1..ATTEMPTS_MAX {
        if shown.late_share > LATE_MAX {
            shown = course::run(program, cell, &words, cell.mib, &store(""))?;
        }
    }
    let course::Shown { verdict, late_share } = shown;
    let mut found = Found { verdict, late_share, followed: None };
    let predicted = found.verdict["predicted_bytes_per_s"].as_f64();
    if let Some(predicted) = predicted.filter(|_| FOLLOWED.contains(&cell.name)) {
        let options = obeying(&found.verdict, words);
        // As long as the first one, at the expected rate.
        let mib = (predicted * cell.seconds as f64).max(1e6) as u64 >> 20;
        let again = course::run(program, cell, &options, mib, &store("-followed"))?.verdict;
        found.followed = Some(Followed {
            options,
            predicted_bytes_per_s: predicted,
            reached_bytes_per_s: again["figures"]["bytes_per_s"].as_f64().unwrap_or(0.0),
        });
    }
    Ok(found)
}

/// The options of a copy with all advice of a verdict.
fn obeying(verdict: &Value, mut options: Vec<String>) -> Vec<String> {
    let streams = verdict["streams"].as_array().map_or(1, Vec::len).max(1) as f64;
    for advice in verdict["advice"].as_array().into_iter().flatten() {
        let change = &advice["change"];
        let number = |name: &str| change[name].as_f64().unwrap_or(0.0);
        match change["change"].as_str() {
            Some("prefetch") => set(&mut options, "--lockstep", None),
            Some("window") => {
                let kib = (number("bytes") / 1024.0).ceil();
                set(&mut options, "--window", Some(format!("{kib}K")));
            }
            Some("pace") => {
                set(&mut options, "--pace", Some(format!("{:.0}B", number("bytes_per_s"))));
            }
            Some("raise_pace") => {
                let all = number("bytes_per_s") * streams;
                set(&mut options, "--pace", Some(format!("{all:.0}B")));
            }
            Some("streams") => {
                set(&mut options, "--streams", Some(format!("{}", number("count"))));
            }
            _ => {}
        }
    }
    options
}

fn set(options: &mut Vec<String>, name: &str, value: Option<String>) {
    if let Some(at) = options.iter().position(|option| option == name) {
        options.drain(at..(at + 2).min(options.len()));
    }
    options.extend(value.into_iter().flat_map(|value| [name.to_string(), value]));
}

/// A busy machine is asked again.
const ATTEMPTS_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_complete() {
        let cells = all();
        for (at, cell) in cells.iter().enumerate() {
            assert_eq!(course::scenario(cell).err(), None, "{}", cell.name);
            assert!(cells[..at].iter().all(|other| other.name != cell.name), "{}", cell.name);
        }
        for name in FOLLOWED {
            assert!(cells.iter().any(|cell| cell.name == *name), "{name}");
        }
    }

    #[test]
    fn advice_becomes_options() {
        let verdict = serde_json::json!({
            "streams": [{}, {}],
            "advice": [
                {"change": {"change": "window", "bytes": 262_145.0}},
                {"change": {"change": "prefetch", "bytes": 1.0}},
                {"change": {"change": "raise_pace", "bytes_per_s": 1000.0}},
                {"change": {"change": "streams", "count": 4}},
                {"change": {"change": "look"}},
            ]
        });
        let words = "--streams 2 --window 64K --lockstep 8M:1s --seal off";
        let options = words.split(' ').map(String::from).collect();
        let expect = "--seal off --window 257K --pace 2000B --streams 4";
        assert_eq!(obeying(&verdict, options).join(" "), expect);
    }
}
