//! `cargo xtask torture`: many rounds of killed copies, and a page about them in `runs/`.

#[path = "../../tests/support/torture.rs"]
mod rounds;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rounds::{Ground, Load, Plan, Shown, Victim, Way};

use crate::bench::{far, machine};
use crate::packages;
use crate::step::{cargo, output, root, run, target_folder};

struct Options {
    rounds: u64,
    seed: u64,
    only: Option<Load>,
    disk: PathBuf,
}

/// `torture [--rounds N] [--seed S] [--only large|tree] [--disk DIR]`.
pub fn torture(words: &[&str]) -> Result<(), String> {
    let options = options(words)?;
    packages::ensure(packages::FOR_TESTS)?;
    let program = match std::env::var_os("DATAPUMP_BIN") {
        Some(program) => PathBuf::from(program),
        None => {
            run("build", &mut cargo("build --release --bin datapump"))?;
            target_folder().join("release/datapump")
        }
    };
    let place = tempfile::Builder::new().prefix("datapump-torture-").tempdir_in(&options.disk);
    let place = place.map_err(|why| format!("{}: {why}", options.disk.display()))?;
    let ground = Ground {
        program,
        ssh: far::ssh_command(),
        folder: place.path().to_path_buf(),
        large_bytes: 512 << 20,
        tree_files: 2000,
        knobs: String::new(),
    };
    ground.lay();
    let begun = Instant::now();
    let (results, failed) = play(&ground, &options)?;
    let page = page(&options, &results, &failed, begun.elapsed());
    let date = output(std::process::Command::new("date").arg("+%F"))?;
    let path = match options.rounds >= ROUNDS_OF_A_PAGE {
        true => root().join(format!("runs/{}-torture.md", date.trim())),
        false => target_folder().join("torture-part.md"),
    };
    fs::write(&path, &page).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("\n{page}\nwritten to {}", path.display());
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("torture: {} of {} rounds failed", failed.len(), options.rounds)),
    }
}

type Results = BTreeMap<(String, Victim), Vec<Shown>>;

fn play(ground: &Ground, options: &Options) -> Result<(Results, Vec<String>), String> {
    let mut clean: BTreeMap<String, (Duration, u64)> = BTreeMap::new();
    let (mut results, mut failed) = (Results::new(), Vec::new());
    for load in [Load::Large, Load::Tree] {
        for way in [Way::Local, Way::Push, Way::Pull] {
            // The first of all is the slowest: nothing is in memory yet.
            let (first, again) = (ground.clean(load, way)?, ground.clean(load, way)?);
            clean.insert(format!("{load:?} {way:?}"), first.min(again));
        }
    }
    for number in 0..options.rounds {
        let plan = Plan::of(options.seed, number, options.only);
        let name = format!("{:?} {:?}", plan.load, plan.way);
        let (time, bytes) = clean[&name];
        match ground.play(number, &plan, time) {
            Ok(shown) => {
                let rate = bytes as f64 / time.as_secs_f64();
                let bound = RESENT_BYTES + rate as u64;
                if shown.resent_bytes > bound {
                    failed.push(format!("round {number}: {plan:?}: {shown:?} beyond {bound}"));
                }
                results.entry((name, plan.victim)).or_default().push(shown);
            }
            Err(why) => failed.push(format!("round {number}: {plan:?}: {why}")),
        }
        if let Some(last) = failed.last().filter(|why| why.contains(&format!("d {number}:"))) {
            println!("{last}");
        }
        if number % 10 == 9 {
            println!("{} rounds, {} failed", number + 1, failed.len());
        }
    }
    Ok((results, failed))
}

fn page(options: &Options, results: &Results, failed: &[String], time: Duration) -> String {
    let mut page = String::from("# Torture: killed at random moments\n\n");
    for note in machine::notes(&options.disk) {
        page.push_str(&format!("- {note}\n"));
    }
    page.push_str(&format!(
        "\n{} rounds from seed {} in {:.0} s, through a real sshd: `cargo xtask torture --rounds \
         {} --seed {}`. Large is one file of 512 MiB, Tree 2,000 files of up to 17 MiB. Each round \
         kills (SIGKILL) the near datapump, the far one or ssh once or twice. After each kill of \
         the near side the destination holds only whole files under final names; the same command \
         is then run again. A killed far side or ssh must heal within the run. At the end both \
         trees are equal and nothing temporary is left.\n\n",
        options.rounds,
        options.seed,
        time.as_secs_f64(),
        options.rounds,
        options.seed
    ));
    page.push_str(
        "Resent: bytes that the destination's file system held at the last kill and that were \
         sent again, so an upper bound of what had been acknowledged and was sent again. Bound: \
         64 MiB, what 4 streams hold (4 x 8 requests of 1 MiB), and what one second of the rate \
         gives. A round without a kill was over before its moment came.\n\n\
         | what | killed | rounds | kills | runs again | resent, median | resent, most |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for ((name, victim), shown) in results {
        let mut resent: Vec<u64> = shown.iter().map(|shown| shown.resent_bytes >> 10).collect();
        resent.sort_unstable();
        let kills: u32 = shown.iter().map(|shown| shown.kills).sum();
        let reruns: u32 = shown.iter().map(|shown| shown.reruns).sum();
        page.push_str(&format!(
            "| {name} | {victim:?} | {} | {kills} | {reruns} | {} KiB | {} KiB |\n",
            shown.len(),
            resent[resent.len() / 2],
            resent[resent.len() - 1]
        ));
    }
    page.push_str(&format!("\n{} rounds failed.\n", failed.len()));
    failed.iter().for_each(|why| page.push_str(&format!("- {why}\n")));
    page
}

fn options(words: &[&str]) -> Result<Options, String> {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    let shm = Path::new("/dev/shm").to_path_buf();
    let mut options = Options { rounds: 200, seed, only: None, disk: shm };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("torture: {word} needs a value"))?;
        let wrong = || format!("torture: {word} {value}: write a number");
        match *word {
            "--rounds" => options.rounds = value.parse().map_err(|_| wrong())?,
            "--seed" => options.seed = value.parse().map_err(|_| wrong())?,
            "--only" if *value == "large" => options.only = Some(Load::Large),
            "--only" if *value == "tree" => options.only = Some(Load::Tree),
            "--disk" => options.disk = PathBuf::from(value),
            _ => return Err(format!("torture: {word} {value} is not understood")),
        }
    }
    Ok(options)
}

/// 64 MiB between two lines of the journal, and what four streams hold.
const RESENT_BYTES: u64 = (64 << 20) + ((4 * 8) << 20);
const ROUNDS_OF_A_PAGE: u64 = 100;
