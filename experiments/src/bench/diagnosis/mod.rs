//! `cargo xtask bench diagnosis`: copies over the emulated WAN, each with one planted bottleneck.
//! Does `explain` find it? And does its advice reach the predicted rate?

mod cells;
mod conditions;
mod course;
mod page;
mod seeded;

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
    /// Cells that follow from these words, in place of the frozen ones.
    seed: Option<String>,
    kept: Kept,
}

/// What becomes of the results of an earlier run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kept {
    Replaced,
    /// Not measured again; the rest is.
    Resumed,
    /// Nothing is measured: the page has what there is.
    Alone,
    /// Nothing is measured: what is recorded is judged once more, by this program.
    Judged,
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

/// `bench diagnosis [--seed WORDS] [--only NAME] [--resume | --kept | --judged] [--program FILE]`.
pub(crate) fn diagnosis(words: &[&str]) -> Result<(), String> {
    let options = options(words)?;
    packages::ensure(packages::FOR_WAN)?;
    let folder = target_folder().join("diagnosis");
    fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let mut chosen = options.seed.as_ref().map_or_else(all, |seed| seeded::all(seed));
    let names: Vec<&str> = chosen.iter().map(|cell| cell.name).collect();
    chosen.retain(|cell| options.only.as_ref().is_none_or(|part| cell.name.contains(part)));
    if chosen.is_empty() {
        return Err(format!("bench diagnosis: --only names one of {}", names.join(", ")));
    }
    let seconds: u64 = chosen.iter().map(seconds).sum();
    println!("{} cells, about {} min {} s\n", chosen.len(), seconds / 60, seconds % 60);
    let mut rows = Vec::new();
    for cell in &chosen {
        let began = Instant::now();
        let Some(found) = find(&options, cell, &folder)? else { continue };
        println!("{}", page::progress(cell, &found, began.elapsed().as_secs_f64()));
        rows.push((cell, found));
    }
    let page = page::page(&rows);
    let date = output(Command::new("date").arg("+%F"))?;
    // A part must not replace the whole page of the day.
    let seeded = if options.seed.is_some() { "-seeded" } else { "" };
    let path = match options.only.is_some() || options.kept == Kept::Judged {
        false => root().join(format!("runs/{}-diagnosis{seeded}.md", date.trim())),
        true => target_folder().join("bench-diagnosis-part.md"),
    };
    fs::write(&path, &page).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("\n{}\nwritten to {}", page::confusion(&rows), path.display());
    match page::faults(&rows).as_slice() {
        [] => Ok(()),
        faults => Err(format!("{} faults:\n{}", faults.len(), faults.join("\n"))),
    }
}

/// The results of a cell; none where nothing is measured and nothing is there.
fn find(options: &Options, cell: &Cell, folder: &Path) -> Result<Option<Found>, String> {
    let file = folder.join(format!("{}.json", cell.name));
    let before = match options.kept {
        Kept::Replaced => None,
        _ => fs::read_to_string(&file).ok().and_then(|text| serde_json::from_str(&text).ok()),
    };
    let found: Found = match (options.kept, before) {
        (Kept::Judged, Some(before)) => {
            let verdict = course::explained(&options.program, &store(cell, folder, ""))?;
            return Ok(Some(Found { verdict, ..before }));
        }
        (Kept::Alone | Kept::Judged, before) => return Ok(before),
        (_, Some(before)) => return Ok(Some(before)),
        (_, None) => measure(&options.program, cell, folder)?,
    };
    let text = serde_json::to_string(&found).map_err(|why| why.to_string())?;
    fs::write(&file, text).map_err(|why| format!("{}: {why}", file.display()))?;
    Ok(Some(found))
}

fn store(cell: &Cell, folder: &Path, suffix: &str) -> PathBuf {
    folder.join(format!("{}{suffix}.db", cell.name))
}

fn options(words: &[&str]) -> Result<Options, String> {
    let (mut only, mut seed, mut kept, mut program) = (None, None, Kept::Replaced, None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("bench: {word} needs a value"));
        match *word {
            "--only" => only = Some((*value()?).to_string()),
            "--seed" => seed = Some((*value()?).to_string()),
            "--resume" => kept = Kept::Resumed,
            "--kept" => kept = Kept::Alone,
            "--judged" => kept = Kept::Judged,
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
    Ok(Options { program, only, seed, kept })
}

fn seconds(cell: &Cell) -> u64 {
    let times = if FOLLOWED.contains(&cell.name) { 2 } else { 1 };
    times * (cell.seconds + 1)
}

fn measure(program: &Path, cell: &Cell, folder: &Path) -> Result<Found, String> {
    let words: Vec<String> = cell.copy.split_whitespace().map(String::from).collect();
    let first = store(cell, folder, "");
    let mut shown = course::run(program, cell, &words, cell.mib, &first)?;
    for _ in 1..ATTEMPTS_MAX {
        if shown.late_share > LATE_MAX {
            shown = course::run(program, cell, &words, cell.mib, &first)?;
        }
    }
    let course::Shown { verdict, late_share } = shown;
    let mut found = Found { verdict, late_share, followed: None };
    let predicted = found.verdict["predicted_bytes_per_s"].as_f64();
    if let Some(predicted) = predicted.filter(|_| FOLLOWED.contains(&cell.name)) {
        let options = obeying(&found.verdict, words);
        // As long as the first one, at the expected rate.
        let mib = (predicted * cell.seconds as f64).max(1e6) as u64 >> 20;
        let again =
            course::run(program, cell, &options, mib, &store(cell, folder, "-followed"))?.verdict;
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
    for advice in verdict["advice"].as_array().into_iter().flatten() {
        let change = &advice["change"];
        let number = |name: &str| change[name].as_f64().unwrap_or(0.0);
        match change["change"].as_str() {
            Some("prefetch") => set(&mut options, "--lockstep", None),
            Some("window") => {
                let kib = (number("bytes") / 1024.0).ceil();
                set(&mut options, "--window", Some(format!("{kib}K")));
            }
            Some("pace" | "raise_pace") => {
                set(&mut options, "--pace", Some(format!("{:.0}B", number("bytes_per_s"))));
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
        let expect = "--seal off --window 257K --pace 1000B --streams 4";
        assert_eq!(obeying(&verdict, options).join(" "), expect);
    }
}
