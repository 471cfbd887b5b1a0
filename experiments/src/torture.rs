//! `cargo xtask torture`: many rounds of interrupted copies, and a page about them in `runs/`.

#[path = "../../tests/integration/support/torture.rs"]
mod rounds;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rounds::{Direction, Fault, Fixture, Load, Plan, Shown};

use crate::bench::{far, machine};
use crate::page::table;
use xtask::packages;
use xtask::step::{cargo, output, root, run, target_folder};

struct Options {
    rounds: u64,
    seed: u64,
    first: u64,
    only: Option<Load>,
    /// `None`: rounds alternate between loopback and WAN.
    wan: Option<bool>,
    /// The round trip of the WAN instead of a random one; it then always has losses.
    rtt_ms: Option<u64>,
    disk: PathBuf,
    minutes: u64,
}

impl Options {
    fn plan(&self, round: u64) -> Plan {
        let is_wan = self.wan.unwrap_or(round % 2 == 1);
        let mut plan = Plan::of(self.seed, round, self.only, is_wan);
        if let Some(rtt_ms) = self.rtt_ms.filter(|_| is_wan) {
            plan.path.rtt_ms = rtt_ms;
            plan.path.loss_permille = plan.path.loss_permille.max(1);
        }
        plan
    }

    /// The words that repeat the plan of a round.
    fn words(&self, plan: &Plan) -> String {
        let mut words = format!("--seed {} --path ", self.seed);
        match (plan.path.wan, self.rtt_ms) {
            (true, Some(rtt_ms)) => words.push_str(&format!("{rtt_ms}ms")),
            (is_wan, _) => words.push_str(if is_wan { "wan" } else { "loopback" }),
        }
        if let Some(load) = self.only {
            words.push_str(&format!(" --only {load:?}").to_lowercase());
        }
        words
    }
}

/// `torture [--rounds N] [--seed S] [--only LOAD] [--path loopback|wan|RTTms] [--first N]
/// [--minutes N] [--disk DIR]`.
pub(crate) fn torture(words: &[&str]) -> Result<(), String> {
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
    let profile = wan::Profile::from_words(&["--rate", "100Mbit", "--rtt", "30ms"])?;
    let wan = match options.wan {
        Some(false) => None,
        _ => Some(wan::Wan::up(&profile, Some(&program))?),
    };
    let fixture = Fixture {
        program,
        ssh: far::ssh_command(),
        folder: place.path().to_path_buf(),
        logs: target_folder().join(format!("torture-logs-{}", options.seed)),
        large_bytes: 96 << 20,
        tree_files: 1000,
        islands: 300,
        checks_folders: true,
        wan,
    };
    fixture.lay();
    let begun = Instant::now();
    let (results, failed) = play(&fixture, &options, begun);
    let page = page(&options, &results, &failed, begun.elapsed());
    let date = output(std::process::Command::new("date").arg("+%F"))?;
    let path = match results.len() + failed.len() >= ROUNDS_OF_A_PAGE {
        true => root().join(format!("runs/{}-torture.md", date.trim())),
        false => target_folder().join(format!("torture-part-{}.md", options.seed)),
    };
    fs::write(&path, &page).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("\n{page}\nwritten to {}", path.display());
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("torture: {} rounds failed", failed.len())),
    }
}

fn play(fixture: &Fixture, options: &Options, begun: Instant) -> (Vec<(Plan, Shown)>, Vec<String>) {
    let (mut results, mut failed) = (Vec::new(), Vec::new());
    for round in options.first..options.first + options.rounds {
        if begun.elapsed() > Duration::from_secs(60 * options.minutes) {
            println!("{} minutes are over", options.minutes);
            break;
        }
        let plan = options.plan(round);
        match fixture.play(&format!("{}-{round}", options.seed), &plan) {
            Ok(shown) => {
                println!("{round}: {:?} {:?}: {shown:?}", plan.load, plan.direction);
                results.push((plan, shown));
            }
            Err(why) => {
                let words = options.words(&plan);
                let again = format!("cargo xtask torture --rounds 1 --first {round} {words}");
                println!("{round}: FAILED: {why}\n  again: {again}");
                failed.push(format!("{why}; again: `{again}`"));
            }
        }
    }
    (results, failed)
}

fn page(options: &Options, results: &[(Plan, Shown)], failed: &[String], time: Duration) -> String {
    let mut page = String::from("# Torture: interrupted at random moments\n\n");
    for note in machine::notes(&options.disk) {
        page.push_str(&format!("- {note}\n"));
    }
    page.push_str(&format!(
        "\n{} rounds from seed {} in {:.0} s, through real sshds. Each interrupts its copy up to \
         five times. Loads: one file of 96 MiB, a tree of 1,000 files, a file of 300 islands, a \
         list of 500 names. What is checked is listed in \
         [GUARANTEES](../docs/GUARANTEES.md#1-killed-cut-and-stalled).\n\n",
        results.len() + failed.len(),
        options.seed,
        time.as_secs_f64(),
    ));
    page.push_str(&table(&COLUMNS, &rows(results)));
    faults(&mut page, results, failed);
    page
}

/// One row for each load, direction and path.
fn rows(results: &[(Plan, Shown)]) -> Vec<Vec<String>> {
    let mut classes: BTreeMap<(Load, Direction, bool), Vec<&Shown>> = BTreeMap::new();
    for (plan, shown) in results {
        classes.entry((plan.load, plan.direction, plan.path.wan)).or_default().push(shown);
    }
    let row = |((load, direction, is_wan), shown): ((Load, Direction, bool), Vec<&Shown>)| {
        let mut resent: Vec<u64> = shown.iter().map(|shown| shown.resent_bytes >> 10).collect();
        resent.sort_unstable();
        let sum = |of: fn(&Shown) -> u64| shown.iter().map(|shown| of(shown)).sum::<u64>();
        let share =
            |shown: &&Shown| shown.resent_bytes as f64 / shown.bound_bytes.max(1) as f64 * 100.0;
        vec![
            format!("{load:?} {direction:?}"),
            if is_wan { "WAN" } else { "loopback" }.to_string(),
            shown.len().to_string(),
            sum(|shown| shown.struck.len() as u64).to_string(),
            sum(|shown| shown.runs).to_string(),
            sum(|shown| shown.compared).to_string(),
            format!("{} KiB", resent[resent.len() / 2]),
            format!("{} KiB", resent[resent.len() - 1]),
            format!("{:.0} %", shown.iter().map(share).fold(0.0, f64::max)),
        ]
    };
    classes.into_iter().map(row).collect()
}

/// The injected faults, and the failures by class.
fn faults(page: &mut String, results: &[(Plan, Shown)], failed: &[String]) {
    let mut faults: BTreeMap<Fault, u64> = BTreeMap::new();
    for fault in results.iter().flat_map(|(_, shown)| &shown.struck) {
        *faults.entry(*fault).or_default() += 1;
    }
    let faults: Vec<String> = faults.iter().map(|(it, count)| format!("{it:?} {count}")).collect();
    let refused: u64 = results.iter().map(|(_, shown)| shown.refused_logins).sum();
    let beyond = results.iter().map(|(_, shown)| shown.beyond_plan_bytes).max().unwrap_or_default();
    page.push_str(&format!(
        "\nStruck in rounds that held: {}. Logins that were struck and ended with exit code 7: \
         {refused}. The most memory beyond a side's plan: {} KiB.\n\n{} rounds failed.\n",
        faults.join(", "),
        beyond >> 10,
        failed.len()
    ));
    let mut failed_classes: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for why in failed {
        // `NAME: class: what`, or `NAME: class after what`.
        let class = why.split(": ").nth(1).unwrap_or_default();
        let class = class.split(" after ").next().unwrap_or_default();
        failed_classes.entry(class).or_default().push(why);
    }
    for (class, whys) in failed_classes {
        page.push_str(&format!("\n## {class}: {}\n\n", whys.len()));
        whys.iter().for_each(|why| page.push_str(&format!("- {why}\n")));
    }
}

fn options(words: &[&str]) -> Result<Options, String> {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    let disk = Path::new("/dev/shm").to_path_buf();
    let mut options = Options {
        rounds: 300,
        seed,
        first: 0,
        only: None,
        wan: None,
        rtt_ms: None,
        disk,
        minutes: 24 * 60,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("torture: {word} needs a value"))?;
        let number = || value.parse().map_err(|_| format!("torture: {word} {value}: a number"));
        match (*word, *value) {
            ("--rounds", _) => options.rounds = number()?,
            ("--seed", _) => options.seed = number()?,
            ("--first", _) => options.first = number()?,
            ("--minutes", _) => options.minutes = number()?,
            ("--only", "large") => options.only = Some(Load::Large),
            ("--only", "tree") => options.only = Some(Load::Tree),
            ("--only", "sparse") => options.only = Some(Load::Sparse),
            ("--only", "list") => options.only = Some(Load::List),
            ("--path", "loopback") => options.wan = Some(false),
            ("--path", "wan") => options.wan = Some(true),
            ("--path", path) => {
                let rtt = path.strip_suffix("ms").and_then(|number| number.parse().ok());
                options.rtt_ms =
                    Some(rtt.ok_or("torture: --path: loopback, wan or a time as 30ms")?);
                options.wan = Some(true);
            }
            ("--disk", _) => options.disk = PathBuf::from(value),
            _ => return Err(format!("torture: {word} {value} is not understood")),
        }
    }
    Ok(options)
}

const ROUNDS_OF_A_PAGE: usize = 100;
const COLUMNS: [&str; 9] = [
    "what",
    "path",
    "rounds",
    "interruptions",
    "runs",
    "names compared",
    "sent again, median",
    "most",
    "most of its bound",
];
