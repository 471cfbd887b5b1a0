//! What it takes to report on a run of 1,000,000 samples: the real program over a store with the
//! samples of 64 streams from both of their ends. `cargo bench --bench report`.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use analysis::record::sample::{Moved, Record};
use base::job::{PathRole, PathSide, StreamPath};
use base::path::PathSample;
use base::units::{Nanos, Tick};
use datapump::results::Store;

const SAMPLES: u64 = 1_000_000;
const STREAMS: u64 = 64;
const SECONDS_MAX: f64 = 5.0;
const MIB_MAX: f64 = 300.0;

fn main() -> ExitCode {
    let folder = tempfile::tempdir().unwrap();
    let (store, page) = (folder.path().join("results.db"), folder.path().join("page.html"));
    Store::open(&store).unwrap().insert(&record()).unwrap();
    let began = Instant::now();
    let took_mib = report(&store, &page);
    let seconds = began.elapsed().as_secs_f64();
    let size = std::fs::metadata(&page).unwrap().len();
    println!("{SAMPLES} samples: {seconds:.2} s, {took_mib:.0} MiB, a page of {size} bytes");
    match seconds < SECONDS_MAX && took_mib < MIB_MAX {
        true => ExitCode::SUCCESS,
        false => {
            println!("more than {SECONDS_MAX} s or {MIB_MAX} MiB");
            ExitCode::FAILURE
        }
    }
}

/// The largest memory of the program, in MiB.
fn report(store: &Path, page: &Path) -> f64 {
    let mut program = Command::new("/usr/bin/time");
    program.args(["-f", "%M", env!("CARGO_BIN_EXE_datapump"), "report", "1", "--results"]);
    let said = program.arg(store).arg("--html").arg(page).output().unwrap();
    let told = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.success(), "{told}");
    told.trim().parse::<f64>().unwrap() / 1024.0
}

fn record() -> Record {
    let each = SAMPLES / (2 * STREAMS);
    let path = |stream: u64, role: PathRole| StreamPath {
        stream: stream as u32,
        side: if role == PathRole::Source { PathSide::Near } else { PathSide::Far },
        role,
        samples: (0..each).map(|at| sample(stream, at)).collect(),
    };
    let paths = (0..STREAMS)
        .flat_map(|stream| [path(stream, PathRole::Source), path(stream, PathRole::Sink)]);
    Record {
        command: "copy".into(),
        sources: vec!["a".into()],
        target: "far:b".into(),
        moved: Moved {
            bytes: STREAMS * each * 10_000,
            elapsed_s: each as f64 / 200.0,
            goodput_bytes_per_s: (STREAMS * 2_000_000) as f64,
            ..Moved::default()
        },
        paths: paths.collect(),
        ..Record::default()
    }
}

/// 200 a second, of a stream that loses something each 700 samples and stops each 900.
fn sample(stream: u64, at: u64) -> PathSample {
    let moved = (at - at / 900 * 60 - (at % 900).min(60)) * 10_000;
    let lost = (at + stream) / 700;
    PathSample {
        at: Tick(at * 5_000_000 + stream),
        rtt: Nanos(20_000_000 + at % 97 * 10_000),
        rtt_min: Nanos(20_000_000),
        mss_bytes: 1448,
        cwnd_segments: 40 + (at % 700 / 20) as u32,
        unacked_segments: if at % 900 < 60 { 0 } else { 30 },
        peer_window_bytes: 1 << 20,
        state: if at % 700 < 10 { 3 } else { 0 },
        bytes_sent: moved + lost * 1448,
        bytes_acked: moved,
        bytes_retransmitted: lost * 1448,
        segments_sent: moved / 1448 + lost,
        segments_retransmitted: lost,
        busy: Nanos(at * 4_500_000),
        ..PathSample::default()
    }
}
