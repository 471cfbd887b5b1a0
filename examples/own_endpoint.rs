//! An endpoint of one's own: a sink that counts how often each byte value occurs, at the end of a
//! lane whose source generates random bytes.
//!
//! ```sh
//! cargo run --release --example own_endpoint
//! ```
//!
//! An endpoint says what a request needs next, and does no I/O itself: `Next::Do(verb)` hands a
//! request to the engine and it is asked again when that has ended; `Next::Done` ends this leg.
//! This one needs the bytes only. `mover/src/ends/pipe.rs` is one with I/O.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::label::Kind;
use mover::ends::endpoint::{Endpoint, Nature, Next};
use mover::ends::null::{Fill, Null};
use mover::io::engine::Engine;
use mover::io::request::Request;
use mover::io::threads::Threads;
use mover::pump::cancellation::Cancellation;
use mover::pump::lane::{Lane, Parts};
use mover::pump::source::plan::{Plan, Run};
use mover::work::passage::Passage;

const BYTES: u64 = 256 << 20;
const REQUEST_BYTES: u32 = 1 << 20;

/// Counts byte values. Several lanes may share the counters.
#[derive(Debug)]
struct Histogram {
    counts: Arc<[AtomicU64; 256]>,
}

impl Endpoint for Histogram {
    /// Any extent, in any order: which byte comes first does not matter here.
    fn nature(&self) -> Nature {
        Nature::Addressed { depth: 1 }
    }

    fn next(&mut self, request: &mut Request) -> Next {
        // After the last extent comes the end.
        if request.label.kind != Kind::End {
            let mut counts = [0u64; 256];
            for byte in request.body() {
                counts[usize::from(*byte)] += 1;
            }
            for (all, here) in self.counts.iter().zip(counts) {
                all.fetch_add(here, Relaxed);
            }
        }
        Next::Done
    }
}

fn main() {
    let cancellation = Arc::new(Cancellation::default());
    // What is wanted: one object, at the addresses from 0. The lane claims it by requests.
    let plan = Arc::new(Plan::new(REQUEST_BYTES, None, None, false, cancellation.clone()));
    plan.want([Run::Object { start: 0, size: BYTES, todo: 0..BYTES, object: 0, file: None }]);
    plan.end();
    let counts: Arc<[AtomicU64; 256]> = Arc::new([const { AtomicU64::new(0) }; 256]);
    let lane = Lane::new(Parts {
        engine: Engine::new(Box::new(Threads::new().expect("an engine of blocking calls"))),
        source: Box::new(Null::new(Fill::Seeded(7), 1)),
        passage: Passage::new(Vec::new()),
        pool_handle: None,
        sink: Box::new(Histogram { counts: counts.clone() }),
        plan: Some(plan),
        objects: None,
        cancellation,
        stream: None,
        requests: Request::several(2, REQUEST_BYTES),
    });
    let over = lane.run();
    if let Some(fault) = over.fault {
        eprintln!("{fault}");
        std::process::exit(fault.class.exit_code().into());
    }
    let total: u64 = counts.iter().map(|count| count.load(Relaxed)).sum();
    let most = counts.iter().map(|count| count.load(Relaxed)).max().unwrap_or(0);
    println!(
        "{total} bytes; the commonest value is {:.4} % of them",
        100.0 * most as f64 / total as f64
    );
    assert_eq!(total, BYTES, "every byte was seen once");
}
