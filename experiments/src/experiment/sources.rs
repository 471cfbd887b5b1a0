//! A compressed copy from memory or from a disk, and the CPU time of its host.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use ::wan::{Profile, Wan};

use super::Experiment;
use super::levels::{STEADY, r_squared};
use super::shown::{Shown, Table};
use super::testbed::Testbed;
use super::timed::{self, Programs};
use crate::quota::Quota;
use analysis::statistics::Spread;
use xtask::step::{output, target_folder};

pub(super) const SOURCES: Experiment = Experiment {
    name: "compression-memory-and-disk",
    title: "compressed rates by the CPU of the source, from memory and from a disk",
    about: "Three source hosts: without compression 400 Mbit/s from memory and 165 from a disk, \
            compressed 140 on 1131 MHz. Here the sender has a quarter, a half and a whole of a \
            CPU; records go over the loopback, from memory and from a file, read past the cache \
            on a disk that a control group holds to 40 MB/s; three turns.",
    run: sources,
};

/// Mbit/s of each turn, by quota, source (memory, disk) and coding.
type Seen = [[[Vec<f64>; 2]; 2]; 3];

fn sources(testbed: &Testbed) -> Result<Shown, String> {
    let told = |why: std::io::Error| format!("a file on a disk: {why}");
    let folder =
        tempfile::Builder::new().prefix("datapump-experiment-").tempdir_in(target_folder());
    let folder = folder.map_err(told)?;
    let file = folder.path().join("records");
    let mut fill = Command::new(&testbed.program);
    output(fill.args(["copy", "--no-record", FILE_BYTES]).arg(&file))?;
    let quota = Quota::with_disk()?;
    quota.allow_disk(&file, DISK_BYTES_PER_S)?;
    let disk_mbit = read_mbit(&quota, &file)?;

    let near = quota.runs(&testbed.program)?;
    let programs = Programs { near: &near, far: &testbed.program };
    let wan = Wan::up(&Profile::from_words(&["--rate", "none"])?, Some(&testbed.program))?;
    let from_disk = format!("--direct on {}", file.display());
    let sources = ["records:64T", &from_disk];
    let mut seen: Seen = Default::default();
    for _ in 0..TURNS {
        for (percent, of_quota) in PERCENT.into_iter().zip(&mut seen) {
            quota.allow(Some(percent))?;
            for (source, of_source) in sources.into_iter().zip(of_quota) {
                for (way, rates) in WAYS.into_iter().zip(of_source) {
                    let copy = format!("--compress {way} {source} near:null:");
                    let rate = timed::copy(&wan, programs, &copy, STEADY)?.bytes_per_s;
                    rates.push(rate * 8.0 / 1e6);
                }
            }
        }
    }
    let mut shown = Shown::default();
    shown.on_disk(&target_folder());
    judge(&mut shown, &seen, disk_mbit);
    shown.data("", csv(&seen));
    Ok(shown)
}

fn judge(shown: &mut Shown, seen: &Seen, disk_mbit: f64) {
    let mut table = Table::new(
        &format!(
            "Mbit/s of payload, medians (least to most); a plain reader has {disk_mbit:.0} Mbit/s \
             of this disk:"
        ),
        "% of a CPU | memory, off | memory, zlib 1 | disk, off | disk, zlib 1",
    );
    let mut by_quota = Vec::new();
    let mut worst: f64 = 0.0;
    for (percent, [memory, disk]) in PERCENT.into_iter().zip(seen) {
        let spreads: Vec<Spread> = memory
            .iter()
            .chain(disk)
            .filter_map(|rates| Spread::of(rates.iter().copied()))
            .collect();
        let mut row = vec![format!("{percent:.0}")];
        row.extend(spreads.iter().map(|spread| spread.text(0)));
        table.row(row);
        let rates: Vec<f64> = spreads.iter().map(|spread| spread.median).collect();
        by_quota.push((percent, rates[1]));
        // Where the CPU alone would be faster, the disk is the limit.
        let capped = (0..2).filter(|way| rates[*way] >= CLEARLY * disk_mbit);
        let off = capped.map(|way| (rates[2 + way] / disk_mbit - 1.0).abs());
        worst = off.fold(worst, f64::max);
    }
    shown.table(table);
    let fit = r_squared(&by_quota);
    shown.check(
        "from memory the compressed rate is linear in the quota, r² of medians at least 0.98",
        format!("{fit:.4}"),
        fit >= 0.98,
    );
    shown.check(
        "a disk that is slower than the CPU caps the rate within 5 %",
        format!("{:.1} % off at most", worst * 100.0),
        worst > 0.0 && worst <= 0.05,
    );
}

/// A line for each copy.
fn csv(seen: &Seen) -> String {
    let mut lines = String::from("percent,source,way,turn,mbit_s\n");
    for (percent, of_quota) in PERCENT.into_iter().zip(seen) {
        for (source, of_source) in ["memory", "disk"].into_iter().zip(of_quota) {
            for (way, rates) in WAYS.into_iter().zip(of_source) {
                for (turn, rate) in rates.iter().enumerate() {
                    lines.push_str(&format!("{percent},{source},{way},{turn},{rate:.1}\n"));
                }
            }
        }
    }
    lines
}

/// The rate of another reader of the file, without the page cache.
fn read_mbit(quota: &Quota, file: &Path) -> Result<f64, String> {
    let mut read = Command::new(quota.runs(Path::new("dd"))?);
    read.arg(format!("if={}", file.display())).args(["of=/dev/null", "bs=1M", "iflag=direct"]);
    let bytes = file.metadata().map_err(|why| format!("{}: {why}", file.display()))?.len();
    let begun = Instant::now();
    output(read.stderr(Stdio::null()))?;
    Ok(bytes as f64 * 8.0 / begun.elapsed().as_secs_f64() / 1e6)
}

const WAYS: [&str; 2] = ["off", "zlib:1"];
const PERCENT: [f64; 3] = [25.0, 50.0, 100.0];
const TURNS: u32 = 3;
/// Longer than a copy is measured, at the rate of this disk.
const FILE_BYTES: &str = "records:512M";
const DISK_BYTES_PER_S: u64 = 40_000_000;
/// A rate this much higher counts as clearly faster.
const CLEARLY: f64 = 1.2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_is_judged_where_there_is_one() {
        let check = |of_disk: [f64; 3], passed: usize| {
            let memory = [[300.0, 100.0], [600.0, 200.0], [900.0, 400.0]];
            let seen = std::array::from_fn(|quota| {
                let [off, packed] = memory[quota];
                let disk = [of_disk[quota].min(off), packed.min(of_disk[quota])];
                [[off, packed], disk].map(|of_source| of_source.map(|rate| vec![rate; 3]))
            });
            let mut shown = Shown::default();
            judge(&mut shown, &seen, 320.0);
            assert_eq!(2 - shown.failed(), passed, "{of_disk:?}");
        };
        check([320.0, 315.0, 325.0], 2);
        check([320.0, 300.0, 320.0], 1);
        // A copy faster than the disk is an error too.
        check([320.0, 320.0, 350.0], 1);
    }
}
