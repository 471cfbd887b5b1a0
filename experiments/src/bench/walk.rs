//! `cargo xtask bench walk`: the planner's walk of a tree of small files beside Debian's `fpart`
//! and `fdfind`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::cpu::{Accounts, Used};
use super::{build, machine, need};
use crate::page::table;
use xtask::packages;
use xtask::step::{output, root, target_folder};

struct Options {
    files: u64,
    rounds: usize,
    folder: PathBuf,
    program: Option<PathBuf>,
}

type Make = fn(&Path, &Path, &Path) -> Command;

/// Each is given the program, the tree, and a folder for what it writes.
const TOOLS: [(&str, Make); 4] = [
    ("datapump: the plan of a spread", |program, tree, room| {
        let mut command = Command::new(program);
        command.args(["spread", "--dry-run", "--on", "local:4"]);
        command.arg(tree.join("")).arg(room.join("destination"));
        command
    }),
    ("fpart, lists of 2,000 files", |_, tree, room| {
        let mut command = Command::new(need("fpart", "fpart"));
        command.args(["-L", "-f", "2000", "-o"]).arg(room.join("part")).arg(tree);
        command
    }),
    ("fdfind, one thread", |_, tree, _| fdfind(tree, &["--threads", "1"])),
    ("fdfind, its default", |_, tree, _| fdfind(tree, &[])),
];

fn fdfind(tree: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(need("fdfind", "fd-find"));
    command.arg("--unrestricted").args(options).arg(".").arg(tree);
    command
}

/// `bench walk [--files N] [--rounds N] [--folder DIR] [--program FILE]`.
pub(crate) fn walk(words: &[&str]) -> Result<(), String> {
    let options = options(words)?;
    packages::ensure(packages::FOR_WALKS)?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => {
            build()?;
            target_folder().join("release/datapump")
        }
    };
    let place = tempfile::Builder::new().prefix("datapump-walk-").tempdir_in(&options.folder);
    let place = place.map_err(|why| format!("{}: {why}", options.folder.display()))?;
    let tree = place.path().join("tree");
    let entries = make(&tree, options.files)?;
    let accounts = Accounts::open();
    let mut all: Vec<Vec<Used>> = vec![Vec::new(); TOOLS.len()];
    for round in 0..options.rounds {
        for turn in 0..TOOLS.len() {
            // Nobody is always first.
            let number = (round + turn) % TOOLS.len();
            let room = place.path().join("room");
            fs::create_dir(&room).map_err(|why| why.to_string())?;
            let mut command = (TOOLS[number].1)(&program, &tree, &room);
            command.stdout(Stdio::null()).stderr(Stdio::null()).current_dir(&room);
            let begun = accounts.now();
            let status = command.status().map_err(|why| format!("{command:?}: {why}"))?;
            let used = begun.until(&accounts.now());
            if !status.success() {
                return Err(format!("{command:?}: {status}"));
            }
            fs::remove_dir_all(&room).map_err(|why| why.to_string())?;
            println!(
                "{}: {:.2} s, {:.2} s of CPU",
                TOOLS[number].0,
                used.wall_s,
                used.cpu_ns / 1e9
            );
            all[number].push(used);
        }
    }
    let page = page(&options, entries, &accounts, &all);
    let date = output(Command::new("date").arg("+%F"))?;
    let path = match options.files >= FILES && options.rounds >= ROUNDS {
        true => root().join(format!("runs/{}-walk.md", date.trim())),
        false => target_folder().join("walk-part.md"),
    };
    fs::write(&path, &page).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("\n{page}\nwritten to {}", path.display());
    Ok(())
}

/// Files of one byte, a thousand in a folder. Returns how many entries there are, with folders.
fn make(tree: &Path, files: u64) -> Result<u64, String> {
    let told = |why: std::io::Error| format!("{}: {why}", tree.display());
    for number in 0..files {
        let folder = tree.join(format!("folder-{:04}", number / FILES_A_FOLDER));
        if number % FILES_A_FOLDER == 0 {
            fs::create_dir_all(&folder).map_err(told)?;
        }
        let path = folder.join(format!("file-of-a-run-{number:07}.dat"));
        File::create(path).and_then(|file| file.set_len(1)).map_err(told)?;
    }
    Ok(files + files.div_ceil(FILES_A_FOLDER))
}

fn page(options: &Options, entries: u64, accounts: &Accounts, all: &[Vec<Used>]) -> String {
    let mut page = String::from("# The planner's walk beside fpart and fd\n\n");
    for note in machine::notes(&options.folder) {
        page.push_str(&format!("- {note}\n"));
    }
    page.push_str(&format!("- CPU: {}\n", accounts.description()));
    for (tool, package) in [("fpart", "fpart"), ("fdfind", "fd-find")] {
        let asked = output(Command::new("dpkg-query").args(["-W", package]));
        page.push_str(&format!("- {tool}: {}\n", asked.unwrap_or_default().trim()));
    }
    page.push_str(&format!(
        "\n`cargo xtask bench walk --files {} --rounds {}`: {entries} entries on a file system of \
         memory.\n\n{METHOD}\n\n",
        options.files, options.rounds
    ));
    let per_second = |of: fn(&Used) -> f64| move |used: &Used| entries as f64 / of(used);
    let cpu = per_second(|used| used.cpu_ns / 1e9);
    let wall = per_second(|used| used.wall_s);
    let rows: Vec<Vec<String>> = TOOLS
        .iter()
        .zip(all)
        .map(|((name, _), runs)| {
            vec![
                name.to_string(),
                spread(runs.iter().map(|used| used.cpu_ns / 1000.0 / entries as f64), 2),
                spread(runs.iter().map(&cpu), 0),
                spread(runs.iter().map(&wall), 0),
                spread(runs.iter().map(|used| used.foreign * 100.0), 0),
            ]
        })
        .collect();
    page.push_str(&table(&COLUMNS, &rows));
    let [cpu, wall] = [median(all[0].iter().map(&cpu)), median(all[0].iter().map(&wall))];
    let said = |figure: f64| if figure >= WANTED { "met" } else { "not met" };
    page.push_str(&format!(
        "\nThe criterion is {} by CPU ({cpu:.0} entries in a second of it) and {} by the clock \
         ({wall:.0} entries a second).\n",
        said(cpu),
        said(wall)
    ));
    page
}

/// The median, with the least and the most.
fn spread(figures: impl Iterator<Item = f64>, digits: usize) -> String {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let (least, most) = (figures[0], figures[figures.len() - 1]);
    let middle = median(figures.into_iter());
    format!("{middle:.digits$} ({least:.digits$} to {most:.digits$})")
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn options(words: &[&str]) -> Result<Options, String> {
    let memory = PathBuf::from("/dev/shm");
    let mut options = Options { files: FILES, rounds: ROUNDS, folder: memory, program: None };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("bench walk: {word} needs a value"))?;
        let wrong = |_| format!("bench walk: {word} {value}: write a number");
        match *word {
            "--files" => options.files = value.parse().map_err(wrong)?,
            "--rounds" => options.rounds = value.parse().map_err(wrong)?,
            "--folder" => options.folder = PathBuf::from(value),
            "--program" => options.program = Some(PathBuf::from(value)),
            _ => return Err(format!("bench walk: unknown option {word}")),
        }
    }
    match (options.files, options.rounds) {
        (1.., 1..) => Ok(options),
        _ => Err("bench walk: nothing would be measured".into()),
    }
}

const FILES: u64 = 300_000;
const FILES_A_FOLDER: u64 = 1000;
const ROUNDS: usize = 5;
/// Entries a second.
const WANTED: f64 = 200_000.0;

const COLUMNS: [&str; 5] = [
    "tool",
    "CPU, microseconds an entry",
    "entries in a second of CPU",
    "entries a second, by the clock",
    "CPUs that others used, %",
];

const METHOD: &str = "\
Each tool once a round, in a turning order; medians, with the least and the most. datapump looks at
every entry (kind, size, time), sorts the names of a folder, filters, and cuts shards; fpart looks
at every entry and writes lists of files; fd prints names, and need look at none.

Criterion, written before the first run: 200,000 entries a second or more, in the median. Where
others use the machine the clock says little: the figure to trust is CPU time an entry, and the
criterion is then 200,000 entries in a second of CPU.";
