//! `cargo xtask spread-faults`: spreads over a real Slurm whose nodes, storage and daemons fail,
//! and a page about them in `runs/`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cluster::rounds::{Fault, Fixture, Round, Shown, play};

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
    let fixture = Fixture {
        program,
        files: 400,
        large_bytes: 24 << 20,
        write_takes: Duration::from_millis(5),
        options: Vec::new(),
    };
    let started = Instant::now();
    let mut results = Results::new();
    for number in options.first..options.first + options.rounds {
        let round = Round::of(options.seed, number);
        if options.only.is_some_and(|only| only != round.fault) {
            continue;
        }
        let shown = play(&fixture, &round);
        match &shown {
            Ok(shown) => println!(
                "{number}: {:?} at {} % on c{}: {:.1} s, {:.1} s after it",
                round.fault,
                round.after_percent,
                round.node,
                shown.time.as_secs_f64(),
                shown.after_fault.as_secs_f64()
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
    let mut times: Vec<f64> = all
        .iter()
        .filter_map(|(_, shown)| Some(shown.as_ref().ok()?.after_fault.as_secs_f64()))
        .collect();
    times.sort_by(f64::total_cmp);
    let at = |place: usize| times.get(place).map_or("-".to_string(), |time| format!("{time:.1} s"));
    vec![
        format!("{fault:?}"),
        all.len().to_string(),
        (all.len() - times.len()).to_string(),
        at(times.len() / 2),
        at(times.len().saturating_sub(1)),
    ]
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

const COLUMNS: [&str; 5] =
    ["what fails", "rounds", "failed", "from the fault to the end, median", "longest"];

const METHOD: &str = "\
A round is a new cluster of three nodes (Slurm with munge, each node in namespaces of its own),
and a spread of 400 files of up to 20 kB and two of 24 MiB from a folder to another, both and the
job folder on storage that each node sees through a FUSE file system. In three of four rounds it
keeps written bytes until a file is closed or synced; it remembers names, and that there are none,
for a second; a write takes 5 ms. What fails, on which node and when (after 5 to 64 % of the
files) follows from the seed. While storage is cut off requests wait; a request for a link was
carried out and its answer lost. After the end of the spread all that dead nodes still held is
written.

Criterion, of every round, written before the first: the spread (or its `resume`) ends with code
0; source and destination are equal in names, modes, links and bytes, and nothing else is there;
no byte was written to a file that has its final name; no secret of the coordinator's environment
is in what Slurm or the job folder keeps. Of the rounds in which a node is killed for good: at
most 30 s longer from the fault to the end than the longest round without a lost node.";
