//! `cargo xtask spread-faults`: spreads over a real Slurm whose nodes, storage and daemons fail,
//! and a page about them in `runs/`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cluster::rounds::{Fault, Fixture, NODES, Round, Shown, play};

use crate::bench::machine;
use crate::page::table;
use xtask::packages;
use xtask::step::{cargo, output, root, run, target_folder};

struct Options {
    rounds: u64,
    seed: u64,
    first: u64,
    only: Option<Fault>,
}

const LARGE_BYTES: u64 = 24 << 20;

/// Fewer are a part of a page.
const ROUNDS_OF_A_PAGE: usize = 20;

type Played = (Round, Result<Shown, String>);
type Results = Vec<Played>;

/// `spread-faults [--rounds N] [--seed S] [--first N] [--only FAULT]`.
pub(crate) fn spread_faults(words: &[&str]) -> Result<(), String> {
    let options = options(words)?;
    packages::ensure(packages::FOR_TESTS)?;
    let program = match std::env::var_os("DATAPUMP_BIN") {
        Some(program) => PathBuf::from(program),
        None => {
            run("build", &mut cargo("build --bin datapump"))?;
            target_folder().join("debug/datapump")
        }
    };
    let started = Instant::now();
    let mut results = Results::new();
    for number in options.first..options.first + options.rounds {
        let round = Round::of(options.seed, number);
        if options.only.is_some_and(|only| only != round.fault) {
            continue;
        }
        let shown = play(&fixture(&program, number), &round);
        match &shown {
            Ok(shown) => println!(
                "{number}: {:?} at {} % on c{}: {:.1} s, {:.1} s after it, {} KiB moved twice",
                round.fault,
                round.after_percent,
                round.node,
                shown.time.as_secs_f64(),
                shown.after_fault.as_secs_f64(),
                shown.twice_bytes >> 10
            ),
            Err(why) => println!("{number}: FAILED {why}"),
        }
        results.push((round, shown));
    }
    let failed = results.iter().filter(|(_, shown)| shown.is_err()).count();
    let page = page(&options, &results, started.elapsed());
    let date = output(std::process::Command::new("date").arg("+%F"))?;
    let path = match results.len() >= ROUNDS_OF_A_PAGE {
        true => root().join(format!("runs/{}-spread-faults.md", date.trim())),
        false => target_folder().join(format!("spread-faults-part-{}.md", options.seed)),
    };
    fs::write(&path, page).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("{}", path.display());
    match failed {
        0 => Ok(()),
        failed => Err(format!("{failed} rounds failed")),
    }
}

/// Every other round copies the large files in ranges.
fn fixture(program: &Path, number: u64) -> Fixture {
    Fixture {
        program: program.to_path_buf(),
        files: 400,
        large_bytes: LARGE_BYTES,
        write_takes: Duration::from_millis(5),
        split_above: (number % 2 == 1).then_some(8 << 20),
        nodes: NODES,
    }
}

fn page(options: &Options, results: &Results, time: Duration) -> String {
    let mut page = String::from("# Spreads over Slurm whose parts fail\n\n");
    for note in machine::notes(&std::env::temp_dir()) {
        page.push_str(&format!("- {note}\n"));
    }
    page.push_str(&format!(
        "\n`cargo xtask spread-faults --rounds {} --seed {} --first {}`, {:.0} s.\n\n{METHOD}\n\n",
        options.rounds,
        options.seed,
        options.first,
        time.as_secs_f64()
    ));
    let mut by_fault: BTreeMap<Fault, Vec<&Played>> = BTreeMap::new();
    for result in results {
        by_fault.entry(result.0.fault).or_default().push(result);
    }
    let rows: Vec<Vec<String>> = by_fault.iter().map(|(fault, all)| row(*fault, all)).collect();
    page.push_str(&table(&COLUMNS, &rows));
    let failures: Vec<String> = results
        .iter()
        .filter_map(|(round, shown)| Some((round, shown.as_ref().err()?)))
        .map(|(round, why)| {
            let first = why.lines().next().unwrap_or_default();
            format!("- round {} ({:?}): {first}\n", round.number, round.fault)
        })
        .collect();
    page.push_str(&match failures.is_empty() {
        true => "\nNo round failed.\n".to_string(),
        false => format!("\n{}", failures.concat()),
    });
    page
}

fn row(fault: Fault, all: &[&Played]) -> Vec<String> {
    let shown: Vec<&Shown> = all.iter().filter_map(|(_, shown)| shown.as_ref().ok()).collect();
    let times = median_and_most(shown.iter().map(|shown| shown.after_fault.as_secs_f64()));
    let twice = median_and_most(shown.iter().map(|shown| shown.twice_bytes as f64 / MIB));
    let told =
        |figure: Option<f64>, unit| figure.map_or("-".to_string(), |f| format!("{f:.1} {unit}"));
    vec![
        format!("{fault:?}"),
        all.len().to_string(),
        (all.len() - shown.len()).to_string(),
        told(times.0, "s"),
        told(times.1, "s"),
        told(twice.0, "MiB"),
        told(twice.1, "MiB"),
    ]
}

fn median_and_most(figures: impl Iterator<Item = f64>) -> (Option<f64>, Option<f64>) {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    (figures.get(figures.len() / 2).copied(), figures.last().copied())
}

fn options(words: &[&str]) -> Result<Options, String> {
    let mut options = Options { rounds: 60, seed: 1, first: 0, only: None };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{word} {value}: write a number"));
        match *word {
            "--rounds" => options.rounds = number()?,
            "--seed" => options.seed = number()?,
            "--first" => options.first = number()?,
            "--only" => {
                let named = |fault: &&Fault| format!("{fault:?}").eq_ignore_ascii_case(value);
                let fault = Fault::ALL.iter().find(named);
                options.only =
                    Some(*fault.ok_or_else(|| format!("--only {value}: no such fault"))?);
            }
            _ => return Err(format!("spread-faults: unknown option {word}")),
        }
    }
    Ok(options)
}

const MIB: f64 = (1 << 20) as f64;

const COLUMNS: [&str; 7] = [
    "what fails",
    "rounds",
    "failed",
    "from the fault to the end, median",
    "longest",
    "moved twice, median",
    "most",
];

const METHOD: &str = "\
A round is a new cluster of three nodes (Slurm with munge, each node in namespaces of its own),
and a spread of 400 files of up to 20 kB and two of 24 MiB from a folder to another, both and the
job folder on storage that each node sees through a FUSE file system. In three of four rounds it
keeps written bytes until a file is closed or synced; it remembers names, and that there are none,
for a second; a write takes 5 ms. What fails, on which node and when (after 5 to 64 % of the
files) follows from the seed. In every other round the large files are copied in ranges of 8 MiB
or less. While storage is cut off requests wait; a request for a link was
carried out and its answer lost. After the end of the spread all that dead nodes still held is
written.

Criterion, of every round, written before the first: the spread (or its `resume`) ends with code
0; source and destination are equal in names, modes, links and bytes, and nothing else is there;
no byte was written to a file that has its final name; no secret of the coordinator's environment
is in what Slurm or the job folder keeps. Of the rounds in which a node is killed for good: at
most 30 s longer from the fault to the end than the longest round without a lost node. And of bytes
that nodes write to the destination beyond what has to be written: nothing in rounds in which no
worker is lost (the controller's, the coordinator's); else at most 28 MiB, a large file and the
small files of a shard, which one worker had open. (The last sentence was added before the first
round of 60, when nothing of it had been counted.)";
