//! The pump never stops by itself: not at the end of an extent, a block or a file.

use std::fs;
use std::path::Path;

use super::Experiment;
use super::series::{self, Stream};
use super::shown::{Shown, Table};
use super::testbed::{Order, Run, Testbed};

pub(super) const NEVER: Experiment = Experiment {
    name: "no-stops",
    title: "the pump never stops for itself",
    about: "The HPSS mover stopped at the end of each block until its peer was ready. Ours asks \
            ahead: over 102 ms no stream has a pause between its first byte and its last, neither \
            in 10,000 small files nor in files of 2 MiB nor in one large one. A pause is half a \
            round trip with nothing on its way, or one and a half without a byte sent.",
    run: never,
};

struct Case {
    name: &'static str,
    files: usize,
    /// The smallest and the largest file; sizes are spread evenly between.
    bytes: [usize; 2],
}

fn never(testbed: &Testbed) -> Result<Shown, String> {
    let mut shown = Shown::default();
    let mut table = Table::new(
        "Over 100 Mbit/s, 102 ms, a queue of one bandwidth-delay product (longest silence: between \
         two looks at which bytes had gone out, on any stream):",
        "what | way | streams | files | MiB | Mbit/s | steady | pauses | longest silence ms \
         | held back by",
    );
    let mut copies = Vec::new();
    for case in &CASES {
        let folder = tempfile::Builder::new().prefix("datapump-no-stops-").tempdir();
        let folder = folder.map_err(|why| format!("experiment: {why}"))?;
        lay(&folder.path().join("in"), case).map_err(|why| format!("experiment: {why}"))?;
        let (mut pauses, mut silence_s) = (0, 0.0f64);
        for (way, streams) in [("push", 1), ("push", 4), ("pull", 4)] {
            let run = copy(testbed, folder.path(), way, streams)?;
            let found = run.of_streams("pause_list").len();
            let silent_s = run.streams.iter().map(Stream::longest_silence_s).fold(0.0, f64::max);
            table.row(vec![
                case.name.to_string(),
                way.to_string(),
                streams.to_string(),
                case.files.to_string(),
                format!("{:.0}", run.bytes() / f64::from(1 << 20)),
                format!("{:.1}", run.copying_mbit_s()),
                format!("{:.1}", run.steady_mbit_s()),
                found.to_string(),
                format!("{:.0}", silent_s * 1e3),
                run.sentence().to_string(),
            ]);
            pauses += found;
            silence_s = silence_s.max(silent_s);
            copies.push((format!("{} {way} {streams}", case.name), run.streams));
        }
        shown.check(
            &format!("{}: no pause", case.name),
            format!("{pauses}, longest silence {:.0} ms", silence_s * 1e3),
            pauses == 0,
        );
    }
    shown.table(table);
    let named = copies.iter().map(|(name, streams)| (name.clone(), streams.as_slice()));
    shown.data("", series::rates_csv(named, 0.25));
    Ok(shown)
}

fn copy(testbed: &Testbed, folder: &Path, way: &str, streams: usize) -> Result<Run, String> {
    let out = folder.join("out");
    let (source, sink) = match way {
        "push" => (format!("{}/in/", folder.display()), format!("far:{}", out.display())),
        _ => (format!("far:{}/in/", folder.display()), out.display().to_string()),
    };
    let words = format!("-r --streams {streams} {source} {sink}");
    let run = testbed.copy(&Order::new("--rate 100Mbit --rtt 102ms --queue 1bdp", words))?;
    fs::remove_dir_all(&out).map_err(|why| format!("{}: {why}", out.display()))?;
    Ok(run)
}

/// A hundred folders of files; their content does not matter.
fn lay(folder: &Path, case: &Case) -> std::io::Result<()> {
    let block: Vec<u8> = (0..case.bytes[1]).map(|i| (i % 251) as u8).collect();
    for number in 0..case.files {
        let inner = folder.join(format!("{:02}", number % 100));
        fs::create_dir_all(&inner)?;
        let spread = case.bytes[1] - case.bytes[0];
        let bytes = case.bytes[0] + number * 7919 % (spread + 1);
        fs::write(inner.join(format!("{number:05}")), &block[..bytes])?;
    }
    Ok(())
}

const CASES: [Case; 3] = [
    Case { name: "small files", files: 10_000, bytes: [1_000, 20_000] },
    Case { name: "files of about 2 MiB", files: 60, bytes: [1 << 20, 3 << 20] },
    Case { name: "one large file", files: 1, bytes: [250 << 20, 250 << 20] },
];
