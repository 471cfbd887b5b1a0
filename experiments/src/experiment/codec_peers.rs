//! Copies of a file that is partly compressible, by datapump and others, compressed and not.

use std::path::Path;
use std::process::Command;

use ::wan::{Profile, Wan};

use super::Experiment;
use super::shown::{Shown, Table};
use super::testbed::Testbed;
use super::tools::Tool;
use analysis::statistics::Spread;
use xtask::packages::is_installed;
use xtask::step::output;

pub(super) const PEERS: Experiment = Experiment {
    name: "codec-peers",
    title: "a file that packs in parts, beside other programs",
    about: "1 GiB from tmpfs to tmpfs, half of it noise and half of it records, in turns by \
            chance, 1 MiB each. datapump is as it comes (auto), and with off; the others are with \
            and without what they have for packing. All take turns; times are of the whole \
            command, with its login. bbcp seals nothing, the others do. bbcp is optimised \
            (-O2); it sleeps a second at its end whatever it copies.",
    run: peers,
};

/// The rates of one program over one path, in MB/s.
type Rates = Vec<(&'static str, Vec<f64>)>;

fn peers(testbed: &Testbed) -> Result<Shown, String> {
    let folder = tempfile::Builder::new().prefix("datapump-peers-").tempdir_in("/dev/shm");
    let folder = folder.map_err(|why| format!("/dev/shm: {why}"))?;
    let (file, target) = (folder.path().join("mix"), folder.path().join("arrived"));
    let mut make = Command::new(&testbed.program);
    make.args(["copy", "--quiet", "--no-record"]).arg(format!("mix:{FILE_BYTES}")).arg(&file);
    output(&mut make)?;
    let mut shown = Shown::default();
    for path in &PATHS {
        let words: Vec<&str> = path.wan.split(' ').collect();
        let wan = Wan::up(&Profile::from_words(&words)?, Some(&testbed.program))?;
        let mut rates: Rates = Vec::new();
        for round in 0..ROUNDS {
            for place in 0..TOOLS.len() {
                // Each is the first one once.
                let tool = &TOOLS[(place + round * 5) % TOOLS.len()];
                let is_there = tool.program == DATAPUMP || is_installed(tool.program);
                if !is_there || round >= tool_rounds(tool) {
                    continue;
                }
                let program = match tool.program {
                    DATAPUMP => testbed.program.as_path(),
                    other => Path::new(other),
                };
                let seconds = tool.copy(&wan, program, &file, (path.to, &target))?;
                output(Command::new("cmp").arg(&file).arg(&target))?;
                note(&mut rates, tool.name, FILE_BYTES as f64 / 1e6 / seconds);
            }
        }
        show(&mut shown, path, &rates);
    }
    shown.note(
        "Half of the file is noise, which does not pack: if the rest took no room at all, the 117 \
         MB/s that 1 Gbit/s carries would move 234 MB/s of the file, which is less than 3 × bbcp \
         -c 1.",
    );
    Ok(shown)
}

/// Tools that take half a minute or more are run once.
fn tool_rounds(tool: &Tool) -> usize {
    if SLOW.contains(&tool.name) { 1 } else { ROUNDS }
}

fn note(rates: &mut Rates, name: &'static str, rate: f64) {
    println!("{name}: {rate:.0} MB/s");
    match rates.iter_mut().find(|(other, _)| *other == name) {
        Some((_, rates)) => rates.push(rate),
        None => rates.push((name, vec![rate])),
    }
}

fn show(shown: &mut Shown, path: &Link, rates: &Rates) {
    let spread = |name: &str| {
        let (_, rates) = rates.iter().find(|(other, _)| *other == name)?;
        Spread::of(rates.iter().copied())
    };
    let median = |name: &str| spread(name).map_or(f64::NAN, |spread| spread.median);
    let auto = median(AUTO);
    let title = format!("{}, MB/s:", path.name);
    let mut table = Table::new(&title, "program | median and range | auto by it");
    for (name, spread) in TOOLS.iter().filter_map(|tool| Some((tool.name, spread(tool.name)?))) {
        let by = format!("{:.2}", auto / spread.median);
        table.row(vec![name.to_string(), spread.text(0), by]);
    }
    shown.table(table);
    let bbcp = auto / median(BBCP_PACKED);
    if bbcp.is_nan() {
        shown.note("bbcp is not installed here.");
    } else {
        let wanted = format!("{}: 3 × bbcp -c 1", path.name);
        shown.check(&wanted, format!("× {bbcp:.2}"), bbcp >= 3.0);
    }
    let packed = TOOLS.iter().filter(|tool| tool.name.starts_with("rsync -z"));
    let best = packed.map(|tool| (median(tool.name), tool.name));
    let best = best.filter(|(rate, _)| rate.is_finite());
    let Some((best, name)) = best.max_by(|(one, _), (other, _)| one.total_cmp(other)) else {
        return;
    };
    shown.check(
        &format!("{}: at least rsync with its best codec", path.name),
        format!("× {:.2} ({name})", auto / best),
        auto >= best,
    );
}

struct Link {
    name: &'static str,
    wan: &'static str,
    to: &'static str,
}

const PATHS: [Link; 2] = [
    Link { name: "1 Gbit/s", wan: "--veth --rate 1Gbit", to: "far" },
    Link { name: "loopback", wan: "--rate none", to: "near" },
];
const FILE_BYTES: u64 = 1 << 30;
const ROUNDS: usize = 3;
const DATAPUMP: &str = "datapump";
const AUTO: &str = "datapump";
const BBCP_PACKED: &str = "bbcp -c 1";
const SLOW: [&str; 2] = ["scp -C", "rsync -z --compress-choice=zlibx"];
const TOOLS: &[Tool] = &[
    Tool::datapump(AUTO, &["copy", "--quiet", "--no-record"]),
    Tool::datapump("datapump --compress off", &["copy", "-q", "--no-record", "--compress", "off"]),
    Tool::bbcp("bbcp", &["-4", "-s", "4", "-w", "4M", "-f"]),
    Tool::bbcp(BBCP_PACKED, &["-4", "-s", "4", "-w", "4M", "-f", "-c", "1"]),
    Tool::rsync("rsync", &["-W"]),
    Tool::rsync("rsync -z --compress-choice=lz4", &["-W", "-z", "--compress-choice=lz4"]),
    Tool::rsync(
        "rsync -z --compress-choice=zstd --compress-level=1",
        &["-W", "-z", "--compress-choice=zstd", "--compress-level=1"],
    ),
    Tool::rsync("rsync -z --compress-choice=zstd", &["-W", "-z", "--compress-choice=zstd"]),
    Tool::rsync("rsync -z --compress-choice=zlibx", &["-W", "-z", "--compress-choice=zlibx"]),
    Tool::scp("scp", &["-q"]),
    Tool::scp("scp -C", &["-q", "-C"]),
];
