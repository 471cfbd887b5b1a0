//! `cargo xtask power-cut`: the sink is in a guest whose power fails at a random time. It writes a
//! page to `runs/`.
//!
//! The sink is a real kernel with a real file system on a disk with a volatile cache (`disk`). The
//! guest is killed, the disk keeps what was flushed and a random part of the rest, and its content
//! is compared with the source.

mod disk;
mod guest;
mod image;
mod near;
mod page;
mod round;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use image::FileSystem;
use round::{Clean, Fixture, Load, Shown};

use crate::bench::machine;
use xtask::packages;
use xtask::step::{cargo, output, root, run, target_folder};

pub(crate) use guest::connect;

/// The options of the command.
pub(crate) struct Options {
    pub rounds: u64,
    pub seed: u64,
    /// The first round, to repeat a single one.
    pub first: u64,
    pub only: Option<FileSystem>,
    pub disk: PathBuf,
}

/// Rounds of one file system, in order; an error says what was broken.
pub(crate) type Results = BTreeMap<FileSystem, Vec<(u64, Result<Shown, String>)>>;

/// `power-cut [--rounds N] [--file-system ext4|xfs|btrfs] [--seed S] [--first N] [--disk DIR]`.
pub(crate) fn power_cut(words: &[&str]) -> Result<(), String> {
    let options = options(words)?;
    if !rustix::process::geteuid().is_root() {
        return Err("power-cut: the guest's disk is mounted, which takes root".into());
    }
    packages::ensure(packages::FOR_POWER_CUTS)?;
    let program = match std::env::var_os("DATAPUMP_BIN") {
        Some(program) => PathBuf::from(program),
        None => {
            run("build", &mut cargo("build --release --bin datapump"))?;
            target_folder().join("release/datapump")
        }
    };
    let place = tempfile::Builder::new().prefix("datapump-power-").tempdir_in(&options.disk);
    let place = place.map_err(|why| format!("{}: {why}", options.disk.display()))?;
    let fixture = Fixture::lay(place.path(), &program)?;
    let begun = Instant::now();
    // The commit may be another when all rounds are done.
    let notes = machine::notes(&options.disk);
    let (mut cleans, mut results) = (Vec::new(), Results::new());
    for kind in FileSystem::ALL {
        let rounds = match options.only {
            Some(only) if only != kind => continue,
            None if kind != FileSystem::Ext4 => options.rounds.div_ceil(10),
            _ => options.rounds,
        };
        let broken = fixture.canary(kind)?;
        println!("{} without syncs: {broken} names missing or broken, as it must be", kind.name());
        let mut clean = BTreeMap::new();
        for load in Load::ALL {
            let whole = fixture.clean(kind, load)?;
            println!("{} {load:?}, not cut: {whole:?}", kind.name());
            clean.insert(load, whole);
            cleans.push((kind, load, whole, broken));
        }
        for number in options.first..options.first + rounds {
            let shown = fixture.play(kind, options.seed, number, &clean);
            tell(kind, number, &shown);
            results.entry(kind).or_default().push((number, shown));
            // An interrupted session leaves its results.
            write(&part(), &page::page(&options, &notes, &cleans, &results, begun.elapsed()))?;
        }
    }
    let page = page::page(&options, &notes, &cleans, &results, begun.elapsed());
    if options.only.is_none() && options.rounds >= ROUNDS_OF_A_PAGE {
        let date = output(Command::new("date").arg("+%F"))?;
        write(&root().join(format!("runs/{}-power-cut.md", date.trim())), &page)?;
    }
    println!("\n{page}");
    let all = || results.values().flatten();
    match all().filter(|(_, shown)| shown.is_err()).count() {
        0 => Ok(()),
        failed => Err(format!("power-cut: {failed} of {} rounds failed", all().count())),
    }
}

fn tell(kind: FileSystem, number: u64, shown: &Result<Shown, String>) {
    match shown {
        Ok(shown) => println!("{} round {number}: {shown}", kind.name()),
        Err(why) => println!("{} round {number} FAILED: {why}", kind.name()),
    }
}

fn part() -> PathBuf {
    target_folder().join("power-cut-part.md")
}

fn write(path: &Path, page: &str) -> Result<(), String> {
    fs::write(path, page).map_err(|why| format!("{}: {why}", path.display()))
}

/// The results of each load without cuts, and how many names are broken without syncs.
pub(crate) type Cleans = Vec<(FileSystem, Load, Clean, usize)>;

fn options(words: &[&str]) -> Result<Options, String> {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    let disk = Path::new("/dev/shm").to_path_buf();
    let mut options = Options { rounds: ROUNDS_OF_A_PAGE, seed, first: 0, only: None, disk };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("power-cut: {word} needs a value"))?;
        let wrong = || format!("power-cut: {word} {value}: write a number");
        match *word {
            "--rounds" => options.rounds = value.parse().map_err(|_| wrong())?,
            "--seed" => options.seed = value.parse().map_err(|_| wrong())?,
            "--first" => options.first = value.parse().map_err(|_| wrong())?,
            "--disk" => options.disk = PathBuf::from(value),
            "--file-system" => {
                let kind = FileSystem::ALL.into_iter().find(|kind| kind.name() == *value);
                let kind = kind.ok_or("power-cut: --file-system takes ext4, xfs or btrfs")?;
                options.only = Some(kind);
            }
            _ => return Err(format!("power-cut: {word} {value} is not understood")),
        }
    }
    Ok(options)
}

const ROUNDS_OF_A_PAGE: u64 = 50;
