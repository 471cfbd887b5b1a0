//! What the drawings of a live page cost: those of a copy of a minute by four streams, one each
//! second, of as many samples as are kept. `cargo bench --bench live_page`; instructions, which are
//! the same on a busy machine: `valgrind --tool=callgrind` with the program that this builds.

use std::process::ExitCode;

use analysis::page::live;
use analysis::page::run::{Progress, SoFar};
use analysis::record::options::Options;
use analysis::record::sample::{Moved, Record};
use base::job::{PathRole, PathSide, StreamPath};
use base::path::PathSample;
use base::settings::Settings;
use base::units::{Nanos, Tick};
use mover::io::clock;

const STREAMS: u64 = 4;
const SECONDS: u64 = 60;
/// Of a stream: of all together they are not quite the 4096 that are kept.
const SAMPLES_PER_SECOND: u64 = 16;
/// The share of a CPU that the page may have, of a second (docs/decisions/0085).
const MILLIS_MAX: f64 = 1000.0 / 110.0;

fn main() -> ExitCode {
    let mut pages = SoFar::default();
    let (mut all, mut most, mut bytes) = (Nanos(0), Nanos(0), 0);
    for second in 1..=SECONDS {
        let record = record(second);
        let before = clock::thread_cpu();
        bytes = live::body(&pages.page(record, &Progress::default())).len();
        let took = clock::thread_cpu() - before;
        (all, most) = (Nanos(all.0 + took.0), most.max(took));
    }
    let millis = |nanos: Nanos| nanos.seconds() * 1e3;
    let mean = millis(all) / SECONDS as f64;
    println!("a drawing: {mean:.2} ms of CPU time, {:.2} at most; {bytes} bytes", millis(most));
    match mean < MILLIS_MAX {
        true => ExitCode::SUCCESS,
        false => {
            println!("more than {MILLIS_MAX:.2} ms: not each second has a drawing");
            ExitCode::FAILURE
        }
    }
}

fn record(second: u64) -> Record {
    let path = |stream: u64| StreamPath {
        stream: stream as u32,
        side: PathSide::Near,
        role: PathRole::Source,
        samples: (0..=second * SAMPLES_PER_SECOND).map(|at| sample(stream, at)).collect(),
    };
    let bytes = STREAMS * second * BYTES_PER_SECOND;
    Record {
        command: "copy".into(),
        sources: vec!["a".into()],
        target: "far:b".into(),
        options: Options { streams: STREAMS as u16, ..Options::of(&Settings::default()) },
        moved: Moved {
            bytes,
            elapsed_s: second as f64,
            goodput_bytes_per_s: (STREAMS * BYTES_PER_SECOND) as f64,
            ..Moved::default()
        },
        paths: (0..STREAMS).map(path).collect(),
        ..Record::default()
    }
}

const BYTES_PER_SECOND: u64 = 600_000;

/// Of a stream that fills a queue and loses something each three seconds.
fn sample(stream: u64, at: u64) -> PathSample {
    let moved = at * BYTES_PER_SECOND / SAMPLES_PER_SECOND;
    let (tooth, lost) = ((at + 7 * stream) % 48, (at + 7 * stream) / 48 * 5);
    PathSample {
        at: Tick(at * 1_000_000_000 / SAMPLES_PER_SECOND + stream * 1_000_003),
        rtt: Nanos(50_000_000 + tooth * 1_100_007),
        rtt_deviation: Nanos(900_000 + tooth * 3001),
        rtt_min: Nanos(50_000_000),
        mss_bytes: 1448,
        cwnd_segments: 22 + tooth as u32 / 2,
        ssthresh_segments: 20,
        unacked_segments: 20 + tooth as u32 / 2,
        peer_window_bytes: 1 << 20,
        state: if tooth < 2 { 3 } else { 0 },
        delivery_bytes_per_s: BYTES_PER_SECOND + at % 13 * 1009,
        pace_max_bytes_per_s: u64::MAX,
        bytes_sent: moved + lost * 1448 + 30_000,
        bytes_acked: moved,
        bytes_retransmitted: lost * 1448,
        segments_sent: moved / 1448 + lost,
        segments_retransmitted: lost,
        busy: Nanos(at * 1_000_000_000 / SAMPLES_PER_SECOND),
        ..PathSample::default()
    }
}
