//! One copy over one path, and the verdict of `explain`.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use ::wan::{Scenario, Wan};
use serde_json::Value;
use tempfile::TempDir;

use super::cells::{Cell, Plant};
use crate::quota::Quota;
use crate::random::Random;
use xtask::step::output;

/// What a copy has shown.
pub(super) struct Shown {
    /// As it is stored.
    pub verdict: Value,
    /// Of the packets, the share that left the link more than 1 ms late.
    pub late_share: f64,
}

/// Makes the copy of a cell with these options.
pub(super) fn run(
    program: &Path,
    cell: &Cell,
    options: &[String],
    mib: u64,
    store: &Path,
) -> Result<Shown, String> {
    fs::remove_file(store).ok();
    let scenario = scenario(cell)?;
    let wan = Wan::up(&scenario.profile, Some(program))?;
    let rivals = wan.begin(&scenario)?;
    if !rivals.is_empty() {
        thread::sleep(RIVALS_BEFORE);
    }
    let limits = Limits::set(program, cell.plant, mib, store)?;
    let copy = Copy { limits: &limits, cell, options, mib, store };
    let told = |why: io::Error| format!("{}: {why}", cell.name);
    let mut command = wan.near(copy.command(&wan)).map_err(told)?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    match cell.plant {
        Plant::Source(_) => command.stdin(Stdio::piped()),
        Plant::Reader(_) => command.stdout(Stdio::piped()),
        _ => &mut command,
    };
    let child = command.spawn().map_err(told)?;
    attend(child, &wan, cell, mib)?;
    let late_share = wan.counters().late_share();
    drop(rivals);
    drop(wan);
    Ok(Shown { verdict: explained(program, store)?, late_share })
}

/// The path of a cell, what changes there, and who else sends.
pub(super) fn scenario(cell: &Cell) -> Result<Scenario, String> {
    let mut words: Vec<&str> = Vec::new();
    if let Plant::Setting(setting) = cell.plant {
        words.extend(["--sysctl", setting]);
    }
    if !cell.beside.is_empty() {
        words.extend(["--rivals", cell.beside]);
    }
    // Changes are the last words.
    words.extend(cell.path.split_whitespace());
    Scenario::from_words(&words)
}

/// The programs of both hosts, within what they may use, and the files of a disk or in memory.
struct Limits {
    near: PathBuf,
    far: PathBuf,
    file: PathBuf,
    trees: Option<TempDir>,
    _quota: Option<Quota>,
}

impl Limits {
    fn set(program: &Path, plant: Plant, mib: u64, store: &Path) -> Result<Limits, String> {
        let mut limits = Limits {
            near: program.to_path_buf(),
            far: program.to_path_buf(),
            file: store.with_extension("file"),
            trees: None,
            _quota: None,
        };
        let quota = match plant {
            Plant::Quota(percent) | Plant::FarQuota(percent) => {
                let quota = Quota::new()?;
                quota.allow(Some(percent as f64))?;
                quota
            }
            Plant::Files(bytes) => {
                limits.trees = Some(trees(mib, bytes).map_err(|why| format!("/dev/shm: {why}"))?);
                return Ok(limits);
            }
            Plant::SourceDisk(bytes_per_s)
            | Plant::SinkDisk(bytes_per_s)
            | Plant::SinkSync(bytes_per_s) => {
                let mut fill = Command::new(program);
                fill.args(["copy", "-q", "--no-record", "--overwrite", "always"]);
                output(fill.arg(format!("zero:{mib}M")).arg(&limits.file))?;
                let quota = Quota::with_disk()?;
                quota.allow_disk(&limits.file, bytes_per_s)?;
                quota
            }
            _ => return Ok(limits),
        };
        let within = quota.runs(program)?;
        match plant {
            Plant::FarQuota(_) | Plant::SinkDisk(_) | Plant::SinkSync(_) => limits.far = within,
            _ => limits.near = within,
        }
        limits._quota = Some(quota);
        Ok(limits)
    }
}

/// A folder in memory with the folder `from`, so many MiB in files of so many bytes that
/// cannot be compressed.
fn trees(mib: u64, file_bytes: u64) -> io::Result<TempDir> {
    let trees = tempfile::tempdir_in("/dev/shm")?;
    let mut random = Random::of(mib, file_bytes);
    let mut bytes = vec![0; file_bytes as usize];
    for number in 0..(mib << 20) / file_bytes {
        let folder = trees.path().join(format!("from/{:03}", number / FOLDER_FILES));
        if number % FOLDER_FILES == 0 {
            fs::create_dir_all(&folder)?;
        }
        random.fill(&mut bytes);
        fs::write(folder.join(format!("{number}")), &bytes)?;
    }
    Ok(trees)
}

impl Drop for Limits {
    fn drop(&mut self) {
        fs::remove_file(&self.file).ok();
    }
}

struct Copy<'a> {
    limits: &'a Limits,
    cell: &'a Cell,
    options: &'a [String],
    mib: u64,
    store: &'a Path,
}

impl Copy<'_> {
    fn command(&self, wan: &Wan) -> Command {
        let mut command = Command::new(&self.limits.near);
        let bytes = format!("null:{}M", self.mib);
        let file = self.limits.file.display();
        let tree = |name: &str| {
            let folder = self.limits.trees.as_ref().map(|trees| trees.path().join(name));
            folder.unwrap_or_default().display().to_string()
        };
        let ends = match self.cell.plant {
            Plant::Source(_) => ["-".to_string(), "far:null:".to_string()],
            Plant::Reader(_) => [format!("far:{bytes}"), "-".to_string()],
            Plant::Pull => [format!("far:{bytes}"), "null:".to_string()],
            Plant::SourceDisk(_) => [file.to_string(), "far:null:".to_string()],
            Plant::SinkDisk(_) | Plant::SinkSync(_) => [bytes, format!("far:{file}")],
            Plant::Files(_) => [tree("from"), format!("far:{}", tree("to"))],
            _ => [bytes, "far:null:".to_string()],
        };
        command.args(["copy", "-q", "--ssh", &wan.ssh_command()]).args(self.options).args(ends);
        command.arg("--remote-datapump").arg(&self.limits.far);
        match self.cell.plant {
            Plant::Variable(variable) => {
                let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
                command.env(name, value);
            }
            Plant::SourceDisk(_) | Plant::SinkDisk(_) => {
                command.args(["--direct", "on", "--overwrite", "always"]);
            }
            Plant::Files(_) => {
                command.arg("-r");
            }
            Plant::SinkSync(_) => {
                command.args(["--direct", "off", "--overwrite", "always"]);
            }
            _ => {}
        }
        command.env_remove("DATAPUMP_NO_RECORD").env("DATAPUMP_RESULTS", self.store);
        command
    }
}

/// Applies the plant during the copy, until that ends.
fn attend(mut child: Child, wan: &Wan, cell: &Cell, mib: u64) -> Result<(), String> {
    let (input, reader, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (done, is_done) = channel::<()>();
    let (status, said) = thread::scope(|scope| {
        match cell.plant {
            Plant::Source(bits_per_s) => {
                scope.spawn(move || feed(input, bits_per_s, mib << 20));
            }
            Plant::Reader(bits_per_s) => {
                scope.spawn(move || take(reader, bits_per_s));
            }
            Plant::Cuts(every_ms, for_ms) => {
                let [every, time] = [every_ms, for_ms].map(Duration::from_millis);
                scope.spawn(move || {
                    while is_done.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                        wan.cut(Some(time)).ok();
                    }
                });
            }
            _ => {}
        }
        let mut said = String::new();
        errors.map(|mut errors| errors.read_to_string(&mut said));
        let status = child.wait();
        drop::<Sender<()>>(done);
        (status, said)
    });
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{}: the copy failed ({status}):\n{said}", cell.name)),
        Err(why) => Err(format!("{}: {why}", cell.name)),
    }
}

/// Rivals are past their start when the copy begins.
const RIVALS_BEFORE: Duration = Duration::from_secs(3);

/// Writes this many bytes, at most at this rate.
fn feed(to: Option<impl Write>, bits_per_s: u64, bytes: u64) {
    let Some(mut to) = to else { return };
    let began = Instant::now();
    let mut moved = 0;
    while moved < bytes && to.write_all(&[0; CHUNK_BYTES]).is_ok() {
        moved += CHUNK_BYTES as u64;
        wait_for(began, bits_per_s, moved);
    }
}

fn take(from: Option<impl Read>, bits_per_s: u64) {
    let Some(mut from) = from else { return };
    let began = Instant::now();
    let mut moved = 0;
    let mut chunk = [0; CHUNK_BYTES];
    while let Ok(bytes @ 1..) = from.read(&mut chunk) {
        moved += bytes as u64;
        wait_for(began, bits_per_s, moved);
    }
}

/// Sleeps until this many bytes may have been sent.
fn wait_for(began: Instant, bits_per_s: u64, moved: u64) {
    let due = Duration::from_secs_f64(moved as f64 * 8.0 / bits_per_s as f64);
    thread::sleep(due.saturating_sub(began.elapsed()));
}

pub(super) fn explained(program: &Path, store: &Path) -> Result<Value, String> {
    let mut explain = Command::new(program);
    explain.args(["explain", "--json", "--results"]).arg(store);
    let said = output(&mut explain)?;
    let events = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut verdicts = events.filter(|event| event["event"] == "verdict");
    verdicts.next().ok_or_else(|| format!("explain says no verdict:\n{said}"))
}

const CHUNK_BYTES: usize = 16 << 10;
const FOLDER_FILES: u64 = 1000;
