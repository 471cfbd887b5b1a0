//! `cargo xtask bench cube`: a source disk, a link and a sink disk, each held to one of three
//! rates. Does a copy with the options that it has by itself move what the slowest of them lets
//! through, and does its verdict name that one?

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ::wan::{Profile, Wan};
use analysis::record::sample::Record;
use serde_json::Value;

use super::{build, machine};
use crate::page::table;
use crate::quota::Quota;
use crate::said;
use xtask::packages;
use xtask::step::{output, root, target_folder};

/// What each part is held to, in bytes a second: payload of TCP for the link.
#[derive(Clone, Copy, Debug)]
struct Cell {
    source: u64,
    link: u64,
    sink: u64,
}

struct Row {
    cell: Cell,
    /// Of the slowest part, without and with the login.
    share: f64,
    share_with_login: f64,
    verdict: String,
    confidence: String,
}

impl Cell {
    fn all() -> impl Iterator<Item = Cell> {
        RATES.iter().flat_map(|source| {
            RATES.iter().flat_map(move |link| {
                RATES.iter().map(|sink| Cell { source: *source, link: *link, sink: *sink })
            })
        })
    }

    fn parts(self) -> [(u64, &'static str); 3] {
        [(self.source, "slow_source"), (self.link, "path_full"), (self.sink, "slow_receiver")]
    }

    fn slowest(self) -> u64 {
        self.source.min(self.link).min(self.sink)
    }

    fn is_equal(self) -> bool {
        self.source == self.link && self.link == self.sink
    }
}

impl Row {
    /// Where several parts are as slow, each is right.
    fn is_right(&self) -> bool {
        let slowest = self.cell.slowest();
        self.cell.parts().iter().any(|(rate, class)| *rate == slowest && *class == self.verdict)
    }
}

/// `bench cube [--program FILE]`, or `--criteria`.
pub(crate) fn cube(words: &[&str]) -> Result<(), String> {
    let program = match words {
        ["--criteria"] => {
            println!("{CRITERIA}");
            return Ok(());
        }
        [] => {
            build()?;
            target_folder().join("release/datapump")
        }
        ["--program", file] => fs::canonicalize(file).map_err(|why| format!("{file}: {why}"))?,
        _ => return Err("bench cube: write --program FILE, --criteria or nothing".into()),
    };
    if !super::is_root() {
        return Err("bench cube needs root: it makes disks, a network and control groups".into());
    }
    packages::ensure(packages::FOR_WAN)?;
    let stand = Stand::build(program)?;
    stand.check_parts()?;
    let mut rows = Vec::new();
    for cell in Cell::all() {
        let row = stand.copy(cell)?;
        println!("| {} |", cells(&row).join(" | "));
        rows.push(row);
    }
    let faults = faults(&rows);
    let date = output(Command::new("date").arg("+%F"))?;
    let path = root().join(format!("runs/{}-cube.md", date.trim()));
    fs::write(&path, page(&rows, &faults)).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("\nwritten to {}", path.display());
    match faults.as_slice() {
        [] => Ok(()),
        faults => Err(format!("{} criteria missed:\n{}", faults.len(), faults.join("\n"))),
    }
}

/// A disk of its own: a file system in a file in memory, so that the machine's disk limits nothing.
struct Disk {
    device: String,
    folder: PathBuf,
}

impl Disk {
    fn make(folder: &Path, name: &str) -> Result<Disk, String> {
        let told = |why: std::io::Error| format!("{}: {why}", folder.display());
        let (image, mounted) = (folder.join(format!("{name}.img")), folder.join(name));
        let file = fs::File::create(&image).map_err(told)?;
        file.set_len(DISK_BYTES).map_err(told)?;
        fs::create_dir(&mounted).map_err(told)?;
        output(Command::new("mkfs.ext4").args(["-q", "-F", "-O", "^has_journal"]).arg(&image))?;
        let device = output(Command::new("losetup").args(["--find", "--show"]).arg(&image))?;
        let disk = Disk { device: device.trim().to_string(), folder: mounted };
        output(Command::new("mount").arg(&disk.device).arg(&disk.folder))?;
        Ok(disk)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        output(Command::new("umount").arg(&self.folder)).ok();
        output(Command::new("losetup").args(["--detach", &self.device])).ok();
    }
}

struct Stand {
    program: PathBuf,
    source: Disk,
    sink: Disk,
    near: Quota,
    far: Quota,
    /// The program in the control group of its side.
    near_program: PathBuf,
    far_program: PathBuf,
    /// Dropped last: the disks are in it.
    _folder: tempfile::TempDir,
}

impl Stand {
    fn build(program: PathBuf) -> Result<Stand, String> {
        let folder = tempfile::Builder::new().prefix("datapump-cube-").tempdir_in("/dev/shm");
        let folder = folder.map_err(|why| format!("/dev/shm: {why}"))?;
        let source = Disk::make(folder.path(), "source")?;
        let sink = Disk::make(folder.path(), "sink")?;
        let (near, far) = (Quota::with_disk()?, Quota::with_disk()?);
        let (near_program, far_program) = (near.runs(&program)?, far.runs(&program)?);
        let stand =
            Stand { program, source, sink, near, far, near_program, far_program, _folder: folder };
        let mut fill = Command::new(&stand.program);
        fill.args(["copy", "-q", "--no-record", "--config", "none"]);
        output(fill.arg(format!("random:{COPY_BYTES}")).arg(stand.file()))?;
        Ok(stand)
    }

    fn file(&self) -> PathBuf {
        self.source.folder.join("file")
    }

    /// Each part is held to each rate: else nothing could be shown.
    fn check_parts(&self) -> Result<(), String> {
        for rate in RATES {
            let wan = self.hold(Cell { source: *rate, link: *rate, sink: *rate })?;
            let bytes = format!("random:{}", rate * PROBE_S);
            let sink = self.sink.folder.join("probe");
            let far_sink = format!("far:{}", sink.display());
            let source = self.file().display().to_string();
            let probes = [
                ("the source disk", self.run(&wan, &source, "null:")?),
                ("the link", self.run(&wan, &bytes, "far:null:")?),
                ("the sink disk and the link", self.run(&wan, &bytes, &far_sink)?),
            ];
            for (part, (record, _)) in probes {
                let found = without_login(&record);
                println!("{part} at {} MB/s: {:.1} MB/s", rate / 1_000_000, found / 1e6);
                let share = found / *rate as f64;
                if !(HELD_MIN..=HELD_MAX).contains(&share) {
                    return Err(format!("bench cube: {part} is not held to {rate} bytes a second"));
                }
            }
            fs::remove_file(&sink).map_err(|why| format!("{}: {why}", sink.display()))?;
        }
        Ok(())
    }

    fn hold(&self, cell: Cell) -> Result<Wan, String> {
        self.near.allow_disk(&self.source.folder, cell.source)?;
        self.far.allow_disk(&self.sink.folder, cell.sink)?;
        let bits = (cell.link * 8) as f64 * FRAME_BYTES / PAYLOAD_BYTES;
        let rate = format!("{}bit", bits as u64);
        Wan::up(&Profile::from_words(&["--veth", "--rate", &rate])?, Some(&self.program))
    }

    fn run(&self, wan: &Wan, source: &str, sink: &str) -> Result<(Record, Vec<Value>), String> {
        let mut copy = Command::new(&self.near_program);
        copy.args(["copy", "--json", "-q", "--config", "none", "--direct", "on"]);
        copy.args(["--overwrite", "always", "--ssh", &wan.ssh_command()]);
        copy.arg("--remote-datapump").arg(&self.far_program).args([source, sink]);
        let store = self._folder.path().join("results.db");
        copy.env_remove("DATAPUMP_NO_RECORD").env("DATAPUMP_RESULTS", store);
        let mut copy = wan.near(copy).map_err(|why| format!("bench cube: {why}"))?;
        let said = output(&mut copy)?;
        let events = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok((said::record(&said)?, events))
    }

    fn copy(&self, cell: Cell) -> Result<Row, String> {
        let wan = self.hold(cell)?;
        let target = self.sink.folder.join("file");
        let file = self.file().display().to_string();
        let (record, events) = self.run(&wan, &file, &format!("far:{}", target.display()))?;
        fs::remove_file(&target).map_err(|why| format!("{}: {why}", target.display()))?;
        let verdict = events.iter().find(|event| event["event"] == "verdict");
        let word = |name: &str| {
            verdict.and_then(|event| event[name].as_str()).unwrap_or("none").to_string()
        };
        let slowest = cell.slowest() as f64;
        Ok(Row {
            cell,
            share: without_login(&record) / slowest,
            share_with_login: record.moved.bytes as f64 / record.moved.elapsed_s / slowest,
            verdict: word("primary"),
            confidence: word("confidence"),
        })
    }
}

/// Bytes a second over all of a copy's time but the login.
fn without_login(record: &Record) -> f64 {
    let login_s = record.remote.as_ref().map_or(0.0, |remote| remote.login_s);
    record.moved.bytes as f64 / (record.moved.elapsed_s - login_s)
}

fn cells(row: &Row) -> Vec<String> {
    let mb = |rate: u64| (rate / 1_000_000).to_string();
    let Row { cell, .. } = row;
    vec![
        mb(cell.source),
        mb(cell.link),
        mb(cell.sink),
        format!("{:.3}", row.share),
        format!("{:.3}", row.share_with_login),
        row.verdict.clone(),
        row.confidence.clone(),
        if row.is_right() { "yes" } else { "NO" }.to_string(),
    ]
}

fn faults(rows: &[Row]) -> Vec<String> {
    let mut faults = Vec::new();
    for row in rows {
        let Cell { source, link, sink } = row.cell;
        let name = format!("{} {} {}", source / 1_000_000, link / 1_000_000, sink / 1_000_000);
        if row.share < SHARE_MIN {
            let kind = if row.cell.is_equal() { ", equal parts" } else { "" };
            faults.push(format!("{name}{kind}: {:.3} of {SHARE_MIN}", row.share));
        }
        if !row.is_right() {
            faults.push(format!("{name}: the verdict is {}", row.verdict));
        }
    }
    faults
}

fn page(rows: &[Row], faults: &[String]) -> String {
    let mut text = String::from("# A copy through three parts that are held to a rate each\n\n");
    for note in machine::notes(Path::new("/dev/shm")) {
        let _ = writeln!(text, "- {note}");
    }
    let columns = [
        "source disk, MB/s",
        "link",
        "sink disk",
        "of the slowest",
        "with the login",
        "verdict",
        "confidence",
        "right",
    ];
    let rows_of: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let _ = write!(
        text,
        "\n`cargo xtask bench cube`: {CRITERIA}\n\n{}\nMissed: {}.\n",
        table(&columns, &rows_of),
        if faults.is_empty() { "nothing".to_string() } else { faults.join("; ") },
    );
    text
}

const CRITERIA: &str = "\
a file of 2 GiB of random bytes is copied from a disk over a link to another disk, with no \
options but `--direct on`. Each part is held to 60, 120 or 240 MB/s: the disks (file systems of \
their own in memory) by control groups, which hold direct requests only; the link by a token \
bucket, whose rate has the headers of Ethernet, IP and TCP on top. First each part is tried alone: \
where it is not within 5 % of its rate, nothing is measured.\
\n\nIn each of the 27 cells the bytes over the whole time, start and sync included and the ssh \
login not, are at least 0.95 of the slowest part, and the verdict of the copy names the slowest \
part; of parts that are as slow, any.";

const RATES: &[u64] = &[60_000_000, 120_000_000, 240_000_000];
const COPY_BYTES: u64 = 2 << 30;
const DISK_BYTES: u64 = 3 << 30;
/// How long a part is tried alone.
const PROBE_S: u64 = 8;
const HELD_MIN: f64 = 0.95;
const HELD_MAX: f64 = 1.05;
const SHARE_MIN: f64 = 0.95;
/// Of a full segment with timestamps, and of its Ethernet frame.
const PAYLOAD_BYTES: f64 = 1448.0;
const FRAME_BYTES: f64 = 1514.0;
