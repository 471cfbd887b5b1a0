//! `cargo xtask experiment`: reproduces the findings of the reports in docs/REFERENCES.md over an
//! emulated WAN, with the program as it is shipped. Each name is one experiment: it sets up its
//! path, runs real copies, prints its table, compares results with criteria, and writes a page.

mod campaign;
mod codec_peers;
mod cost;
mod grid;
mod hpss;
mod idle;
mod lengths;
mod levels;
#[path = "../../../tests/integration/support/packets.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod packets;
mod post;
mod series;
mod shown;
mod sources;
mod steady;
mod stops;
mod testbed;
mod timed;
mod tools;
mod truth;

use std::path::PathBuf;

use crate::bench;
use shown::Shown;
use testbed::Testbed;
use xtask::packages;
use xtask::step::{cargo, run, target_folder};

pub(crate) struct Experiment {
    pub name: &'static str,
    pub title: &'static str,
    /// The method and results of the report, and what is done here.
    pub about: &'static str,
    pub run: fn(&Testbed) -> Result<Shown, String>,
}

/// `experiment NAME...|list|all [OPTIONS] [--program FILE]`.
pub(crate) fn experiment(words: &[&str]) -> Result<(), String> {
    let (words, program) = match words {
        [words @ .., "--program", file] => (words, Some(PathBuf::from(file))),
        words => (words, None),
    };
    let first = words.iter().position(|word| word.starts_with("--")).unwrap_or(words.len());
    let (names, options) = words.split_at(first);
    if !options.is_empty() && names != [grid::GRID.name] {
        return Err(format!("experiment: {} is for {} alone", options[0], grid::GRID.name));
    }
    let options: Vec<String> = options.iter().map(|word| (*word).to_string()).collect();
    match names {
        ["list"] => {
            println!("{WINDOWS:<28} {WINDOWS_TITLE}");
            ALL.iter().for_each(|one| println!("{:<28} {}", one.name, one.title));
            Ok(())
        }
        // Experiments that take hours run only by name.
        ["all"] => {
            let long = [grid::GRID.name, campaign::WHOLE.name];
            let all = ALL.iter().filter(|one| !long.contains(&one.name));
            each(&all.collect::<Vec<_>>(), program, options)
        }
        [WINDOWS] => match &program {
            Some(file) => bench::windows(&["--program", &file.to_string_lossy()]),
            None => bench::windows(&[]),
        },
        [_, ..] => {
            let known = names.iter().map(|name| {
                let known = ALL.iter().find(|one| one.name == *name);
                known.ok_or(format!(
                    "experiment {name} is unknown: `cargo xtask experiment list` names all"
                ))
            });
            each(&known.collect::<Result<Vec<&Experiment>, String>>()?, program, options)
        }
        [] => Err("experiment: name one or several, or `list`, or `all`".into()),
    }
}

fn each(
    chosen: &[&Experiment],
    program: Option<PathBuf>,
    options: Vec<String>,
) -> Result<(), String> {
    packages::ensure(packages::FOR_WAN)?;
    let program = match program {
        Some(file) => file,
        None => {
            run("build", &mut cargo("build --release --bin datapump"))?;
            target_folder().join("release/datapump")
        }
    };
    let program = program.canonicalize().map_err(|why| format!("{}: {why}", program.display()))?;
    let testbed = Testbed { options, ..Testbed::of(program) };
    let mut failed = Vec::new();
    for one in chosen {
        println!("\n== {}: {}", one.name, one.title);
        match (one.run)(&testbed) {
            Ok(shown) => {
                shown.publish(one)?;
                if shown.failed() > 0 {
                    failed.push(format!("{}: {} not as wanted", one.name, shown.failed()));
                }
            }
            // One failure does not stop the others.
            Err(why) => failed.push(format!("{}: {why}", one.name)),
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(failed.join("\n")),
    }
}

const WINDOWS: &str = "windows";
const WINDOWS_TITLE: &str = "windows are what they say (that is `bench windows`)";

const ALL: &[Experiment] = &[
    cost::BOTH_ENDS,
    cost::SLOW_TARGET,
    steady::RAMP,
    cost::MEMORY,
    steady::FAST_PATH,
    steady::STAGING,
    hpss::TOLD_WHOLE,
    steady::CEILING,
    truth::EPISODES,
    truth::ZOOM,
    hpss::SLOWER_SENDER,
    idle::RESTART,
    stops::NEVER,
    levels::LEVELS,
    levels::COST,
    levels::LINKS,
    sources::SOURCES,
    levels::CROSSING,
    levels::BARE,
    levels::QUOTAS,
    post::POST,
    codec_peers::PEERS,
    grid::GRID,
    campaign::SLAC,
    campaign::WHOLE,
    campaign::LINEAR,
    lengths::SIZES,
    lengths::DURATIONS,
    lengths::PROBES,
];
