//! Leases: whether the holder of a claim is taken for lost. No host's clock is compared with
//! another's: an observer counts, on its own clock, how long it has seen no change.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use base::units::{Nanos, Tick};

/// The times of a job, the same for all its workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseTimes {
    /// How often a worker shows that it is there.
    pub beat_ns: u64,
    /// How long an observer must see no change before it takes a worker's claims away.
    pub lease_ns: u64,
}

impl LeaseTimes {
    pub const fn beat(self) -> Nanos {
        Nanos(self.beat_ns)
    }

    pub const fn lease(self) -> Nanos {
        Nanos(self.lease_ns)
    }

    /// A lease is five beats: one that is late, or seen late, costs nothing.
    pub const fn of_lease(lease: Nanos) -> LeaseTimes {
        LeaseTimes { beat_ns: lease.0 / 5, lease_ns: lease.0 }
    }
}

impl Default for LeaseTimes {
    fn default() -> LeaseTimes {
        LeaseTimes::of_lease(Nanos::from_millis(15_000))
    }
}

/// What one observer knows of the others.
#[derive(Clone, Debug)]
pub struct Observer {
    lease: Nanos,
    seen: BTreeMap<String, LastChange>,
}

#[derive(Clone, Copy, Debug)]
struct LastChange {
    /// `None` while no beat was seen: a file that is not there says nothing.
    beat: Option<u64>,
    at: Tick,
}

impl Observer {
    pub fn new(times: LeaseTimes) -> Observer {
        Observer { lease: times.lease(), seen: BTreeMap::new() }
    }

    /// Notes the number of a worker's last beat, as it is read now.
    pub fn note(&mut self, worker: &str, beat: Option<u64>, now: Tick) {
        match self.seen.get_mut(worker) {
            Some(last) if beat.is_some() && last.beat != beat => {
                *last = LastChange { beat, at: now }
            }
            Some(_) => {}
            None => drop(self.seen.insert(worker.to_string(), LastChange { beat, at: now })),
        }
    }

    /// How long no change was seen; zero for a worker that was never looked at.
    pub fn silent(&self, worker: &str, now: Tick) -> Nanos {
        self.seen.get(worker).map_or(Nanos(0), |last| now.since(last.at))
    }

    pub fn has_expired(&self, worker: &str, now: Tick) -> bool {
        self.silent(worker, now) > self.lease
    }

    /// Forgets workers that hold nothing any more.
    pub fn keep(&mut self, holders: &BTreeSet<&str>) {
        self.seen.retain(|worker, _| holders.contains(worker.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: u64 = 10;

    /// Beats as they are read, each with its time, and when the lease has run out by then.
    fn check(looks: &[(u64, Option<u64>)], now: u64, expect: bool) {
        let mut observer = Observer::new(LeaseTimes { beat_ns: 2, lease_ns: LEASE });
        looks.iter().for_each(|(at, beat)| observer.note("w", *beat, Tick(*at)));
        assert_eq!(observer.has_expired("w", Tick(now)), expect, "{looks:?} at {now}");
    }

    #[test]
    fn leases_run_out_by_the_clock_of_the_observer() {
        check(&[], 1000, false);
        check(&[(5, Some(3))], 15, false);
        check(&[(5, Some(3))], 16, true);
        check(&[(5, Some(3)), (12, Some(3))], 16, true);
        check(&[(5, Some(3)), (12, Some(4))], 16, false);
        // A number that goes back is a change too; one that cannot be read is none.
        check(&[(5, Some(3)), (12, Some(2))], 16, false);
        check(&[(5, Some(3)), (12, None)], 16, true);
        check(&[(5, None), (12, None)], 16, true);
        check(&[(5, None), (12, Some(1))], 16, false);
        // It looked long ago, and nothing has changed since.
        check(&[(5, Some(3)), (500, Some(3))], 500, true);
        check(&[(5, Some(3)), (500, Some(9))], 505, false);
    }
}
