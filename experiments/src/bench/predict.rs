//! `cargo xtask bench predict`: copies that no model was fitted to, each predicted by a dry run and
//! then made.

mod routes;
mod wan;

use crate::said;
use analysis::predict::score::{Pair, Score};
use analysis::report::predicted;
use analysis::report::sheet::Form;
use analysis::statistics;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::cpu::Accounts;
use super::fixture::random_file;
use super::shuffle::Shuffle;
use super::{build, far, machine};
use crate::page::table;
use xtask::step::{output, root, target_folder};

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Direction {
    Here,
    Push,
    Pull,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fixture {
    Memory,
    Disk,
}

use self::Direction::{Here, Pull, Push};
use self::Fixture::{Disk, Memory};

/// One held-out copy.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Held {
    direction: Direction,
    source: Fixture,
    sink: Fixture,
    files: u64,
    file_bytes: u64,
}

struct Options {
    disk: PathBuf,
    seed: u64,
    /// Without the copies of 10 GB.
    short: bool,
    /// Over an emulated WAN, predicted from earlier copies over it.
    wan: bool,
    /// Copies of one to three seconds, each predicted from others over its route.
    routes: bool,
    /// Before each copy, allocates and frees as much memory as it moves, so that memory ballooning
    /// of the hypervisor does not add to the cost of the copy.
    memory_in_hand: bool,
    /// Built if omitted.
    program: Option<PathBuf>,
}

impl Options {
    fn program(&self) -> PathBuf {
        self.program.clone().unwrap_or_else(|| target_folder().join("release/datapump"))
    }
}

/// The prediction of a copy, and the result.
struct Row {
    held: Held,
    time: Pair,
    cpu_source: Pair,
    cpu_sink: Pair,
    binding: String,
    foreign: f64,
}

pub(crate) fn predict(words: &[&str]) -> Result<(), String> {
    let options = options(words)?;
    if options.wan {
        return wan::predict(&options);
    }
    if options.routes {
        return routes::predict(&options);
    }
    if options.program.is_none() {
        build()?;
    }
    let mut notes = Vec::new();
    let all = held(&options, &mut notes)?;
    let field = Field::lay(&options, &all).map_err(|why| format!("the data: {why}"))?;
    if !options.short {
        println!(
            "waiting for {} s: ext4 passes over files that were just removed",
            CLEAN.as_secs()
        );
        std::thread::sleep(CLEAN);
    }
    let accounts = Accounts::open();
    let mut rows = Vec::new();
    for (number, place) in Shuffle::from_seed(options.seed).order(all.len()).into_iter().enumerate()
    {
        let row = field.run(all[place], number, &accounts, options.memory_in_hand)?;
        println!("{:2} of {}: {}", number + 1, all.len(), cells(&row).join(" | "));
        rows.push(row);
    }
    let page = page(&options, &rows, &notes);
    let date = output(Command::new("date").arg("+%F"))?;
    let path = match options.short {
        false => unused(&root().join("runs"), &format!("{}-prediction", date.trim())),
        true => target_folder().join("bench-prediction-part.md"),
    };
    fs::write(&path, &page).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("\n{page}\nwritten to {}", path.display());
    Ok(())
}

/// The page's name, with a number if there is already one of this day.
fn unused(folder: &Path, name: &str) -> PathBuf {
    let numbered = (2..).map(|number| folder.join(format!("{name}-{number}.md")));
    let mut paths = std::iter::once(folder.join(format!("{name}.md"))).chain(numbered);
    paths.find(|path| !path.exists()).expect("numbers do not end")
}

fn options(words: &[&str]) -> Result<Options, String> {
    let mut options = Options {
        disk: target_folder(),
        seed: 4,
        short: false,
        wan: false,
        routes: false,
        memory_in_hand: false,
        program: None,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("bench predict: {word} needs a value"));
        match *word {
            "--short" => options.short = true,
            "--wan" => options.wan = true,
            "--routes" => options.routes = true,
            "--memory-in-hand" => options.memory_in_hand = true,
            "--program" => options.program = Some(PathBuf::from(*value()?)),
            "--disk" => options.disk = PathBuf::from(*value()?),
            "--seed" => {
                options.seed = value()?.parse().map_err(|_| "bench predict: --seed 4")?;
            }
            _ => return Err(format!("bench predict: unknown option {word}")),
        }
    }
    Ok(options)
}

/// The forty copies. Sizes are decimal: the model was fitted to none of them.
fn held(options: &Options, notes: &mut Vec<String>) -> Result<Vec<Held>, String> {
    let one = |(direction, source, sink), file_bytes| Held {
        direction,
        source,
        sink,
        files: 1,
        file_bytes,
    };
    let mut all = Vec::new();
    for route in [
        (Here, Memory, Memory),
        (Here, Memory, Disk),
        (Here, Disk, Disk),
        (Push, Memory, Memory),
        (Push, Disk, Disk),
        (Pull, Disk, Memory),
    ] {
        all.extend([MB, 10 * MB, 100 * MB, 1000 * MB].map(|bytes| one(route, bytes)));
    }
    let many = |(direction, source, sink), file_bytes| Held {
        direction,
        source,
        sink,
        files: MANY,
        file_bytes,
    };
    for route in
        [(Here, Memory, Memory), (Here, Disk, Disk), (Push, Memory, Memory), (Push, Disk, Disk)]
    {
        all.extend([1000, 10_000, 100_000].map(|bytes| many(route, bytes)));
    }
    all.push(many((Here, Memory, Disk), 10_000));
    all.push(many((Pull, Memory, Disk), 10_000));
    let free = |path: &Path| {
        rustix::fs::statvfs(path)
            .map(|status| status.f_bavail * status.f_frsize)
            .map_err(|why| format!("{}: {why}", path.display()))
    };
    fs::create_dir_all(&options.disk).map_err(|why| why.to_string())?;
    let largest = match free(&options.disk)? {
        _ if options.short => MB * 300,
        enough if enough > 25_000 * MB => 10_000 * MB,
        short => {
            notes.push(format!("the disk has {} MB free: 2 GB stand for 10 GB", short / MB));
            2000 * MB
        }
    };
    all.push(one((Here, Disk, Disk), largest));
    all.push(one((Push, Disk, Disk), largest));
    Ok(all)
}

/// Sources in both media, and empty folders for the copies.
struct Field {
    memory: TempDir,
    disk: TempDir,
    program: PathBuf,
}

impl Field {
    fn lay(options: &Options, all: &[Held]) -> io::Result<Field> {
        let shm = Path::new("/dev/shm");
        let memory = if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() };
        let folder =
            |parent: &Path| tempfile::Builder::new().prefix("datapump-held-").tempdir_in(parent);
        let field = Field {
            memory: folder(&memory)?,
            disk: folder(&options.disk)?,
            program: options.program(),
        };
        for held in all {
            let path = field.source(held);
            if path.exists() {
                continue;
            }
            match held.files {
                1 => drop(random_file(&path, held.file_bytes, held.file_bytes)?),
                files => {
                    for number in 0..files {
                        let folder = path.join(format!("{:03}", number / 100));
                        if number % 100 == 0 {
                            fs::create_dir_all(&folder)?;
                        }
                        random_file(&folder.join(number.to_string()), number, held.file_bytes)?;
                    }
                }
            }
        }
        Ok(field)
    }

    fn folder(&self, fixture: Fixture) -> &Path {
        match fixture {
            Memory => self.memory.path(),
            Disk => self.disk.path(),
        }
    }

    fn source(&self, held: &Held) -> PathBuf {
        self.folder(held.source).join(format!("source-{}-{}", held.files, held.file_bytes))
    }

    /// An empty target, all writes synced, a dry run, then the copy.
    fn run(
        &self,
        held: Held,
        number: usize,
        accounts: &Accounts,
        memory_in_hand: bool,
    ) -> Result<Row, String> {
        let target = self.folder(held.sink).join(format!("target-{number}"));
        self.settle(&target).map_err(|why| format!("{}: {why}", target.display()))?;
        let dry = self.copy(&held, &target, &["--dry-run"])?;
        if memory_in_hand {
            take_in_hand(held.files * held.file_bytes + BESIDE_BYTES)?;
        }
        let before = accounts.now();
        let wet = self.copy(&held, &target, &[])?;
        let used = before.until(&accounts.now());
        // Just after files were removed, ext4 creates new ones far more slowly.
        let _ = if held.sink == Disk { empty(&target) } else { remove(&target) };
        row(held, &dry, &wet, used.foreign)
            .ok_or_else(|| "there is no model here: run datapump measure all first".to_string())
    }

    fn settle(&self, target: &Path) -> io::Result<()> {
        remove(target)?;
        rustix::fs::syncfs(File::open(self.disk.path())?)?;
        Ok(())
    }

    fn copy(&self, held: &Held, target: &Path, more: &[&str]) -> Result<Value, String> {
        let program = &self.program;
        let mut command = Command::new(program);
        command.args(["copy", "-r", "-q", "--json"]).args(more);
        command.env("DATAPUMP_NO_RECORD", "1");
        let (mut from, mut to) =
            (self.source(held).display().to_string(), target.display().to_string());
        match held.direction {
            Here => {}
            Push => to = format!("far:{to}"),
            Pull => from = format!("far:{from}"),
        }
        if held.direction != Here {
            command.args(["--ssh", &far::ssh_command()]);
            command.arg("--remote-datapump").arg(program);
        }
        let text = output(command.arg(from).arg(to))?;
        let end = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
        end.ok_or_else(|| format!("no last word of a copy: {text}"))
    }
}

/// Allocates this much of the free memory, touches every page, and frees it.
fn take_in_hand(bytes: u64) -> Result<(), String> {
    let told =
        fs::read_to_string("/proc/meminfo").map_err(|why| format!("/proc/meminfo: {why}"))?;
    let free = told.lines().find_map(|line| line.strip_prefix("MemFree:"));
    let free_kib = free.and_then(|free| free.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let free = free_kib.ok_or("/proc/meminfo does not say what is free")? << 10;
    let mut pages = vec![0_u8; bytes.min(free.saturating_sub(BESIDE_BYTES)) as usize];
    pages.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
    std::hint::black_box(&pages);
    Ok(())
}

fn row(held: Held, dry: &Value, wet: &Value, foreign: f64) -> Option<Row> {
    let expected = said::record_of(dry).ok()?.predicted?;
    let record = said::record_of(wet).ok()?;
    let pair = |expected, observed| Pair { expected, observed };
    let elapsed = [expected.elapsed_low_s, expected.elapsed_s, expected.elapsed_high_s];
    let source = [expected.cpu_source_low_s, expected.cpu_source_s, expected.cpu_source_high_s];
    let sink = [expected.cpu_sink_low_s, expected.cpu_sink_s, expected.cpu_sink_high_s];
    Some(Row {
        held,
        time: pair(elapsed, record.moved.elapsed_s),
        cpu_source: pair(source, record.source.cpu_s()),
        cpu_sink: pair(sink, record.sink.map_or(0.0, |sink| sink.cpu_s())),
        binding: expected.binding,
        foreign,
    })
}

/// CPU time of both sides; of the one process where there is only one.
fn cpu(row: &Row) -> Pair {
    let sum = |i: usize| row.cpu_source.expected[i] + row.cpu_sink.expected[i];
    Pair {
        expected: [sum(0), sum(1), sum(2)],
        observed: row.cpu_source.observed + row.cpu_sink.observed,
    }
}

fn cells(row: &Row) -> Vec<String> {
    let Held { direction, source, sink, files, file_bytes } = row.held;
    let told = |pair: Pair| {
        let [low, middle, high] = pair.expected;
        let out = if pair.is_covered() { "" } else { " out" };
        [
            format!("{:.3}", pair.observed),
            format!("{middle:.3} ({low:.3}–{high:.3})"),
            format!("{:+.0} %{out}", pair.error() * 100.0),
        ]
    };
    let mut cells = vec![
        format!("{direction:?} {source:?}→{sink:?}"),
        format!("{files} × {}", size(file_bytes)),
    ];
    cells.extend(told(row.time));
    cells.extend(told(cpu(row)));
    cells.extend([row.binding.clone(), format!("{:.0} %", row.foreign * 100.0)]);
    cells
}

fn size(bytes: u64) -> String {
    match bytes {
        MB.. => format!("{} MB", bytes / MB),
        _ => format!("{} kB", bytes / 1000),
    }
}

fn page(options: &Options, rows: &[Row], notes: &[String]) -> String {
    let times: Vec<Pair> = rows.iter().map(|row| row.time).collect();
    let cpus: Vec<Pair> = rows.iter().map(cpu).collect();
    let foreign: Vec<f64> = rows.iter().map(|row| row.foreign).collect();
    let mut text = format!(
        "# Predictions and copies\n\n{} copies, none of which a model was made from, in a random \
         order (seed {}). Each was predicted by `datapump copy --dry-run` and then made, with \
         default options: 4 streams, TLS, BLAKE3, fsync. Push and pull go over loopback through \
         sshd; memory is tmpfs. The command: `cargo xtask bench predict{}`.\n\n",
        rows.len(),
        options.seed,
        if options.memory_in_hand { " --memory-in-hand" } else { "" }
    );
    if options.memory_in_hand {
        text.push_str(
            "Before each copy as much memory as it moves was taken, touched and given back, so \
             that it costs nothing to have it from the machine's host again.\n\n",
        );
    }
    text.push_str(&reached(&[("time", &times), ("CPU", &cpus)]));
    text.push_str(&format!("\n{}", predicted::scores(&times).write(Form::Markdown)));
    text.push_str(&format!(
        "\nCPU of others while a copy ran, median: {:.0} % of the machine.\n\n",
        statistics::median(&foreign).unwrap_or(f64::NAN) * 100.0
    ));
    text.push_str(&table(&COLUMNS, &rows.iter().map(cells).collect::<Vec<_>>()));
    text.push('\n');
    for note in notes.iter().cloned().chain(machine::notes(&options.disk)) {
        text.push_str(&format!("- {note}\n"));
    }
    text
}

/// Criteria for predictions, and the results for each of these quantities.
fn reached(quantities: &[(&str, &[Pair])]) -> String {
    let mut columns = vec!["", "wanted"];
    let mut errors = vec!["median error".to_string(), "at most 10 %".to_string()];
    let mut within = vec!["within the 90 % interval".to_string(), "at least 80 %".to_string()];
    for (name, pairs) in quantities {
        columns.push(name);
        let score = Score::of(pairs);
        let told = |of: fn(&Score) -> f64| score.as_ref().map_or(f64::NAN, of) * 100.0;
        errors.push(format!("{:.1} %", told(|score| score.error)));
        within.push(format!("{:.0} %", told(|score| score.covered)));
    }
    table(&columns, &[errors, within])
}

/// Truncates all files of a copy to zero, without removing them.
fn empty(path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        return File::options().write(true).open(path)?.set_len(0);
    }
    fs::read_dir(path)?.try_for_each(|entry| empty(&entry?.path()))
}

/// Removes a copy: a file or a folder.
fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(_) => Ok(()),
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    }
}

/// For this long ext4 does not reuse the inode of a removed file, and is slow because of it.
const CLEAN: std::time::Duration = std::time::Duration::from_secs(310);
/// Memory of a copy besides its bytes; and what is left for all other processes.
const BESIDE_BYTES: u64 = 256 << 20;
const PAGE_BYTES: usize = 4096;
const MB: u64 = 1_000_000;
const MANY: u64 = 10_000;
const COLUMNS: [&str; 10] = [
    "copy",
    "files",
    "seconds",
    "expected",
    "error",
    "CPU s",
    "expected",
    "error",
    "held back by",
    "others",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_forty_copies() {
        let options = Options { short: true, ..options(&[]).unwrap() };
        assert_eq!(held(&options, &mut Vec::new()).unwrap().len(), 40);
    }
}
