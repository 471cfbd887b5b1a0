//! What many workers ask of the folder that they share, where nothing goes wrong: counts of calls,
//! the same on every machine. `cargo xtask sim --spread-scale` shows them for 1,000 workers.

#[path = "claims/counting.rs"]
mod counting;

use base::units::{Nanos, Tick};
use counting::{Counting, WorkerPool, play};

const WORKERS: usize = 200;
const SHARDS: u32 = 8000;

/// Every worker takes so long for a shard; `slow` of four takes four times as long.
fn check(slow: usize, names_a_claim_max: f64) {
    let mut storage = Counting::of(SHARDS);
    let took = |worker: usize, shard: u32| {
        let varied = Nanos::from_millis(1500 + u64::from(shard * 7919 % 1000));
        if worker % 4 < slow { Nanos(varied.0 * 4) } else { varied }
    };
    play(&mut storage, &WorkerPool { workers: WORKERS, times: &took, die: None });
    let claims = f64::from(SHARDS);
    let names = storage.listed as f64 / claims;
    let lost = storage.lost as f64 / claims;
    let beats = storage.beats_read as f64 / WORKERS as f64;
    println!(
        "{slow} of 4 slow: {names:.0} names and {lost:.2} lost a claim, {beats:.0} beats read"
    );
    assert_eq!(storage.won, u64::from(SHARDS));
    assert!(names <= names_a_claim_max, "{names} names a claim");
    assert!(lost <= 0.5, "{lost} renames lost a claim");
    assert!(beats <= 1000.0, "{beats} beats a worker");
}

#[test]
fn workers_seldom_meet() {
    check(0, 300.0);
    check(1, 300.0);
    check(3, 300.0);
}

/// All want the one shard that is open.
#[test]
fn one_shard_is_tried_once_by_each() {
    let mut storage = Counting::of(1);
    let times = |_, _| Nanos::from_millis(5000);
    play(&mut storage, &WorkerPool { workers: WORKERS, times: &times, die: None });
    assert_eq!((storage.won, storage.lost), (1, WORKERS as u64 - 1));
}

/// What the dead held is taken by others within a lease and little more from when they have nothing
/// else to do, although each of them watches a part of the holders only.
#[test]
fn the_dead_are_missed_by_somebody() {
    let times = |_: usize, shard: u32| Nanos::from_millis(1500 + u64::from(shard * 7919 % 1000));
    let run = |die: Option<(Tick, &dyn Fn(usize) -> bool)>| {
        let mut storage = Counting::of(SHARDS);
        let took = play(&mut storage, &WorkerPool { workers: WORKERS, times: &times, die });
        assert_eq!(storage.done, SHARDS);
        took
    };
    let half = Tick(Nanos::from_millis(40_000).0);
    let dies = |worker: usize| worker % 5 == 2;
    let (calm, troubled) = (run(None), run(Some((half, &dies))));
    println!("{:.1} s, with deaths {:.1} s", calm.seconds(), troubled.seconds());
    // A fifth of them is lost half way: a quarter more of the rest, and the leases.
    assert!(troubled.seconds() <= calm.seconds() * 1.25 + 30.0);
}
