//! `cargo xtask bench windows`: is the requested window the one that is advertised? The program
//! reports what the sender's TCP saw, and tcpdump what is in the packets.

use crate::said;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ::wan::{Profile, Wan};

use super::{build, machine};
use crate::page::table;
use xtask::packages;
use xtask::step::{output, root, target_folder};

#[path = "../../../tests/integration/support/capture.rs"]
mod capture;

use self::capture::Advertised;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Push,
    Pull,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Direction::Push => "push",
            Direction::Pull => "pull",
        }
    }
}

/// One copy, seen by both.
struct Row {
    window_kib: u64,
    direction: Direction,
    seen_bytes: u64,
    wire: Advertised,
}

impl Row {
    /// The largest relative error of both against the requested window.
    fn error(&self) -> f64 {
        let asked = (self.window_kib << 10) as f64;
        let off = |bytes: u64| (bytes as f64 / asked - 1.0).abs();
        off(self.seen_bytes).max(off(self.wire.most_bytes))
    }
}

/// `bench windows [--program FILE]`.
pub(crate) fn windows(words: &[&str]) -> Result<(), String> {
    let program = match words {
        [] => {
            build()?;
            target_folder().join("release/datapump")
        }
        ["--program", file] => PathBuf::from(file),
        _ => return Err("bench windows: write nothing, or --program FILE to try that one".into()),
    };
    packages::ensure(packages::FOR_WAN)?;
    let mut rows = Vec::new();
    for window_kib in WINDOWS_KIB {
        for direction in [Direction::Push, Direction::Pull] {
            let row = measure(&program, window_kib, direction)?;
            println!("| {} |", cells(&row).join(" | "));
            rows.push(row);
        }
    }
    let date = output(Command::new("date").arg("+%F"))?;
    let path = root().join(format!("runs/{}-windows.md", date.trim()));
    fs::write(&path, page(&rows)).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("\nwritten to {}", path.display());
    match rows.iter().filter(|row| row.error() > ERROR_MAX).count() {
        0 => Ok(()),
        wrong => Err(format!("{wrong} of {} windows are not what was asked for", rows.len())),
    }
}

fn measure(program: &Path, window_kib: u64, direction: Direction) -> Result<Row, String> {
    let told = |why: std::io::Error| format!("bench windows: {why}");
    let folder = tempfile::Builder::new().prefix("datapump-windows-").tempdir().map_err(told)?;
    let pcap = folder.path().join("pcap");
    let name = pcap.to_string_lossy().into_owned();
    let words: Vec<&str> = PATH.split_whitespace().chain(["--pcap", &name]).collect();
    let wan = Wan::up(&Profile::from_words(&words)?, Some(program))?;
    // Enough windows to let it open, and no more: small ones are slow.
    let bytes = (window_kib << 10) * 24 + (64 << 10);
    let (ends, sink) = match direction {
        Direction::Push => ([format!("null:{bytes}"), "far:null:".into()], FAR),
        Direction::Pull => ([format!("far:null:{bytes}"), "null:".into()], NEAR),
    };
    let mut copy = Command::new(program);
    copy.args(["copy", "--json", "--no-record", "--streams", "1", "--ssh", &wan.ssh_command()]);
    copy.args(["--window", &format!("{window_kib}K")]).args(ends);
    let said = output(&mut wan.near(copy).map_err(told)?)?;
    // The file is complete when the WAN is gone.
    drop(wan);
    let seen_bytes = said::record(&said)?.source.window_seen_bytes;
    let packets = capture::words_of(&pcap, &["tcp"])?;
    Ok(Row {
        window_kib,
        direction,
        seen_bytes: Some(seen_bytes)
            .filter(|bytes| *bytes > 0)
            .ok_or("the program saw no window")?,
        wire: capture::advertised(&packets, sink).ok_or("tcpdump finds no data stream")?,
    })
}

fn cells(row: &Row) -> Vec<String> {
    vec![
        row.window_kib.to_string(),
        row.direction.name().to_string(),
        (row.window_kib << 10).to_string(),
        row.seen_bytes.to_string(),
        row.wire.most_bytes.to_string(),
        row.wire.first_bytes.to_string(),
        row.wire.scale.to_string(),
        format!("{:.2}", row.error() * 100.0),
        if row.error() <= ERROR_MAX { "yes" } else { "NO" }.to_string(),
    ]
}

fn page(rows: &[Row]) -> String {
    let mut text = String::from("# Windows that are what they say\n\n");
    for note in machine::notes(Path::new("/dev/shm")) {
        let _ = writeln!(text, "- {note}");
    }
    let _ = write!(
        text,
        "\n`cargo xtask bench windows`: one sealed stream over `xtask wan up {PATH}`, 24 windows \
         long. Asked: `--window`. Seen: the largest window that the sending host's TCP_INFO \
         showed. On the wire: the largest window field of the receiving host in a capture of the \
         same run, shifted by the scale of its first packet, as tcpdump reads it. First: the \
         window in its SYN or SYN/ACK. Within 5 % is as asked.\n\n"
    );
    text + &table(&COLUMNS, &rows.iter().map(cells).collect::<Vec<_>>())
}

/// In the order of the first bbcp report.
const WINDOWS_KIB: [u64; 8] = [8, 1024, 16, 512, 32, 256, 128, 64];
const PATH: &str = "--rate 200Mbit --rtt 10ms --queue 1bdp";
const NEAR: &str = "10.77.0.1";
const FAR: &str = "10.77.0.2";
const ERROR_MAX: f64 = 0.05;
const COLUMNS: [&str; 9] =
    ["KiB", "way", "asked", "seen", "on the wire", "first", "scale", "off %", "as asked"];
