//! `cargo xtask bench profiles`: `datapump copy` compared with the best of iperf3 on the same path,
//! on the six paths for which the project makes promises.
//!
//! On each path there is a short run for every way to run iperf3, and for the listed options of the
//! copy. Then the best two of iperf3, the best copy, and the copy without any option take turns.
//! Measurements are kept, so an interrupted bench can continue.

mod kept;
mod page;
mod runs;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use ::wan::{Profile, Wan};

use self::kept::{Kept, Run, Stage};
use self::runs::Tool;
use super::build;
use crate::wan::selftest::serve;
use xtask::packages;
use xtask::step::{output, root, target_folder};

/// One path, and the runs on it.
#[derive(Debug)]
struct Path {
    name: &'static str,
    /// Words of `cargo xtask wan up`.
    wan: &'static [&'static str],
    /// The capacity of the path as payload of TCP.
    mbit: f64,
    /// Time after which slow start and its losses are over; the rate is measured after it.
    ramp_s: u32,
    /// Duration of a short run, and of a turn.
    look_s: u32,
    turn_s: u32,
    /// Stream counts for iperf3.
    streams: &'static [u16],
    /// Options of every copy on the path.
    copy: &'static str,
    /// Options of a copy that were tuned by hand.
    by_hand: &'static [&'static str],
}

/// A path in use, and the program that runs over it.
#[derive(Clone, Copy, Debug)]
struct Stand<'a> {
    path: &'a Path,
    wan: &'a Wan,
    program: &'a std::path::Path,
}

struct Options {
    only: Option<String>,
    rounds: usize,
    fresh: bool,
    /// Built if omitted.
    program: Option<PathBuf>,
}

pub(crate) fn profiles(words: &[&str]) -> Result<(), String> {
    let options = options(words)?;
    let program = match &options.program {
        Some(program) => absolute(program)?,
        None => {
            build()?;
            target_folder().join("release/datapump")
        }
    };
    packages::ensure(packages::FOR_WAN)?;
    let wanted = |path: &&Path| options.only.as_deref().is_none_or(|name| path.name == name);
    let paths: Vec<&Path> = PATHS.iter().filter(wanted).collect();
    if paths.is_empty() {
        let names: Vec<&str> = PATHS.iter().map(|path| path.name).collect();
        return Err(format!("bench profiles --only takes one of {}", names.join(", ")));
    }
    let folder = target_folder().join("bench-profiles");
    let kept = |path: &Path| Kept::open(&folder.join(format!("{}.jsonl", path.name)));
    if options.fresh {
        for path in &paths {
            kept(path)?.forget()?;
        }
    }
    let mut left_s = 0.0;
    for path in &paths {
        left_s += time_left_s(path, &kept(path)?, options.rounds);
    }
    println!("{} paths, about {:.0} minutes", paths.len(), left_s / 60.0);
    for path in paths {
        println!("\n== {}", path.name);
        measure(path, &mut kept(path)?, &program, options.rounds)?;
    }
    let all: Result<Vec<(&Path, Kept)>, String> =
        PATHS.iter().map(|path| Ok((path, kept(path)?))).collect();
    let page = page::page(&all?);
    let date = output(Command::new("date").arg("+%F"))?;
    let path = root().join(format!("runs/{}-profiles.md", date.trim()));
    fs::write(&path, &page).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("\n{page}\nwritten to {}", path.display());
    Ok(())
}

/// The far side starts in another folder.
fn absolute(program: &std::path::Path) -> Result<PathBuf, String> {
    fs::canonicalize(program).map_err(|why| format!("--program {}: {why}", program.display()))
}

fn options(words: &[&str]) -> Result<Options, String> {
    let mut options = Options { only: None, rounds: 3, fresh: false, program: None };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("bench profiles: {word} needs a value"));
        match *word {
            "--only" => options.only = Some((*value()?).to_string()),
            "--program" => options.program = Some(PathBuf::from(*value()?)),
            "--fresh" => options.fresh = true,
            "--rounds" => {
                options.rounds = value()?.parse().map_err(|_| "bench profiles: --rounds 3")?;
            }
            _ => return Err(format!("bench profiles: unknown option {word}")),
        }
    }
    Ok(options)
}

/// The approximate time of the remaining measurements.
fn time_left_s(path: &Path, kept: &Kept, rounds: usize) -> f64 {
    let looks = looks(path).len() - kept.count(Stage::Look);
    let turns = (rounds * TURNS).saturating_sub(kept.count(Stage::Turn));
    let time = |stage| f64::from(path.ramp_s + path.seconds(stage)) + AROUND_S;
    looks as f64 * time(Stage::Look) + turns as f64 * time(Stage::Turn)
}

/// Every tool with a short run.
fn looks(path: &Path) -> Vec<Tool> {
    let mut all = Vec::new();
    for congestion in ["reno", "cubic", "bbr"] {
        let with = |streams: &u16| Tool::Iperf { congestion: congestion.into(), streams: *streams };
        all.extend(path.streams.iter().map(with));
    }
    all.extend(path.by_hand.iter().map(Tool::copy));
    all
}

/// The tools that take turns: the best two of iperf3, the best copy, and copies without tuning.
fn turns(path: &Path, kept: &Kept) -> Vec<Tool> {
    let best = kept.best_looks(path.mbit);
    let (iperf, copies): (Vec<Tool>, Vec<Tool>) =
        best.into_iter().partition(|tool| matches!(tool, Tool::Iperf { .. }));
    let tuned = iperf.into_iter().take(2).chain(copies.into_iter().take(1));
    tuned.chain(page::UNTUNED.map(Tool::copy)).collect()
}

fn measure(
    path: &Path,
    kept: &mut Kept,
    program: &std::path::Path,
    rounds: usize,
) -> Result<(), String> {
    let wan = Wan::up(&Profile::from_words(path.wan)?, Some(program))?;
    let stand = Stand { path, wan: &wan, program };
    let mut server = serve(&wan)?;
    let mut measured = Ok(());
    for tool in looks(path) {
        measured = measured.and_then(|()| turn(&stand, kept, (Stage::Look, 0, tool)));
    }
    let turns = if measured.is_ok() { turns(path, kept) } else { Vec::new() };
    for round in 0..rounds {
        for place in 0..turns.len() {
            // Each is the first one once.
            let tool = turns[(place + round) % turns.len()].clone();
            measured = measured.and_then(|()| turn(&stand, kept, (Stage::Turn, round, tool)));
        }
    }
    server.kill().ok();
    server.wait().ok();
    measured
}

/// Runs one of them, unless it is already measured.
fn turn(
    stand: &Stand<'_>,
    kept: &mut Kept,
    (stage, round, tool): (Stage, usize, Tool),
) -> Result<(), String> {
    if kept.has(stage, round, &tool) {
        return Ok(());
    }
    let before = stand.wan.counters();
    let seen = runs::run(stand, &tool, stand.path.seconds(stage).into())?;
    let dropped =
        stand.wan.counters().forward.packets.queue_drops - before.forward.packets.queue_drops;
    let run = Run { stage, round, tool, seen, dropped };
    println!("{}", page::line(&run));
    kept.add(run)
}

impl Path {
    fn seconds(&self, stage: Stage) -> u32 {
        match stage {
            Stage::Look => self.look_s,
            Stage::Turn => self.turn_s,
        }
    }
}

const STREAMS: &[u16] = &[1, 2, 4, 8, 16];
/// The number of tools that take turns on a path.
const TURNS: usize = 3 + page::UNTUNED.len();
/// Login, handshakes, and the end of a run.
const AROUND_S: f64 = 3.0;

const PATHS: &[Path] = &[
    Path {
        name: "100mbit-102ms-64k",
        wan: &["--rate", "100Mbit", "--rtt", "102ms", "--queue", "64K"],
        mbit: 96.5,
        ramp_s: 4,
        look_s: 6,
        turn_s: 20,
        streams: STREAMS,
        copy: "",
        by_hand: &[
            "--congestion bbr --streams 1",
            "--congestion bbr --streams 4",
            "--congestion cubic --streams 1 --pace 96Mbit",
            "--congestion cubic --streams 4 --pace 96Mbit",
        ],
    },
    Path {
        name: "100mbit-102ms-1bdp",
        wan: &["--rate", "100Mbit", "--rtt", "102ms", "--queue", "1bdp"],
        mbit: 96.5,
        ramp_s: 4,
        look_s: 6,
        turn_s: 20,
        streams: STREAMS,
        copy: "",
        by_hand: &[
            "--congestion bbr --streams 1",
            "--congestion bbr --streams 4",
            "--congestion cubic --streams 4",
            "--congestion cubic --streams 4 --pace 96Mbit",
        ],
    },
    Path {
        name: "10mbit-180ms",
        wan: &["--rate", "10Mbit", "--rtt", "180ms", "--queue", "1bdp"],
        mbit: 9.65,
        ramp_s: 6,
        look_s: 6,
        turn_s: 20,
        streams: STREAMS,
        copy: "",
        by_hand: &[
            "--congestion bbr --streams 1",
            "--congestion cubic --streams 1",
            "--congestion cubic --streams 4",
        ],
    },
    Path {
        name: "200mbit-50ms-loss",
        wan: &["--rate", "200Mbit", "--rtt", "50ms", "--queue", "1bdp", "--loss", "0.1%"],
        mbit: 193.0,
        ramp_s: 3,
        look_s: 6,
        turn_s: 20,
        streams: STREAMS,
        copy: "",
        by_hand: &[
            "--congestion bbr --streams 1",
            "--congestion bbr --streams 4",
            "--congestion bbr --streams 8",
        ],
    },
    Path {
        name: "1gbit-5ms",
        wan: &["--rate", "1Gbit", "--rtt", "5ms", "--queue", "1bdp"],
        mbit: 965.0,
        ramp_s: 2,
        look_s: 3,
        turn_s: 10,
        streams: STREAMS,
        copy: "",
        by_hand: &[
            "--congestion cubic --streams 1",
            "--congestion cubic --streams 2",
            "--congestion bbr --streams 2",
        ],
    },
    Path {
        name: "1gbit-150ms",
        wan: &[
            "--rate",
            "1Gbit",
            "--rtt",
            "150ms",
            "--queue",
            "1bdp",
            "--sysctl",
            "net.ipv4.tcp_rmem=4096 131072 134217728",
            "--sysctl",
            "net.ipv4.tcp_wmem=4096 131072 134217728",
        ],
        mbit: 965.0,
        ramp_s: 8,
        look_s: 4,
        turn_s: 16,
        streams: &[1, 4, 16],
        copy: "",
        by_hand: &[
            "--congestion bbr --streams 1",
            "--congestion bbr --streams 2",
            "--congestion cubic --streams 4",
        ],
    },
    Path {
        name: "10gbit-veth",
        wan: &["--veth", "--rate", "10Gbit"],
        mbit: 9560.0,
        ramp_s: 1,
        look_s: 2,
        turn_s: 8,
        streams: STREAMS,
        copy: "--seal off",
        by_hand: &[
            "--digest none --streams 1",
            "--digest none --streams 2",
            "--digest crc64 --streams 2",
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_what_a_wan_takes() {
        for path in PATHS {
            let profile = Profile::from_words(path.wan);
            assert!(profile.is_ok(), "{}: {profile:?}", path.name);
        }
    }

    #[test]
    fn every_way_is_looked_at_once() {
        for path in PATHS {
            let looks = looks(path);
            assert_eq!(looks.len(), path.streams.len() * 3 + path.by_hand.len(), "{}", path.name);
            let twice = looks.iter().enumerate().any(|(i, tool)| looks[..i].contains(tool));
            assert!(!twice, "{}", path.name);
        }
    }
}
