//! What held back a copy from or to an object store, from what its requests took.

use base::job::Outcome;
use base::store_times::StoreTimes;
use base::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::record::sample::Record;

/// What held it back, at a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreBottleneck {
    /// Answers are long in coming.
    FirstByte,
    /// The same, where bodies are small.
    Requests,
    /// The store asks for fewer requests.
    Throttled,
    /// Requests fail and are tried again.
    Failing,
    Signing,
    /// Bodies move: the path, or what the store reads and writes at.
    Bodies,
    /// Requests are hardly ever under way: something else is slower.
    Elsewhere,
}

impl StoreBottleneck {
    pub fn name(self) -> &'static str {
        match self {
            StoreBottleneck::FirstByte => "the store: first-byte latency",
            StoreBottleneck::Requests => "the store: requests per second",
            StoreBottleneck::Throttled => "the store throttles",
            StoreBottleneck::Failing => "the store fails",
            StoreBottleneck::Signing => "signing",
            StoreBottleneck::Bodies => "the path to the store",
            StoreBottleneck::Elsewhere => "not the store",
        }
    }
}

/// The diagnosis, with the figures that it is made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreVerdict {
    /// `None` is mixed: nothing took half of the time of requests.
    pub primary: Option<StoreBottleneck>,
    /// Parts of the time of all requests, the largest first.
    pub shares: Vec<StoreShare>,
    pub requests: u64,
    pub requests_per_s: f64,
    /// Of the bodies, on average.
    pub request_bytes: f64,
    pub slow_downs: u64,
    pub failures: u64,
    /// On a new connection, as that of the first try was left behind by others.
    #[serde(default)]
    pub sent_again: u64,
    /// From the last byte of a request to the first of its answer, on average.
    pub first_byte_s: f64,
    /// How many requests were under way, on average.
    pub under_way: f64,
    /// Of bodies, all requests together.
    pub bytes_per_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreShare {
    pub class: StoreBottleneck,
    pub share: f64,
}

/// Diagnoses what the requests of a copy took, which moved for so long; `None` where there were
/// none.
pub fn diagnose(times: &StoreTimes, moving: Nanos) -> Option<StoreVerdict> {
    if times.requests == 0 {
        return None;
    }
    let (total_s, moving_s) = (times.total().seconds(), moving.seconds().max(1e-9));
    let per_request = |whole: f64| whole / times.requests as f64;
    let request_bytes = per_request(times.body_bytes as f64);
    let is_small = request_bytes < SMALL_BYTES && times.requests >= SMALL_REQUESTS_MIN;
    let waiting = match is_small {
        true => StoreBottleneck::Requests,
        false => StoreBottleneck::FirstByte,
    };
    let bodies = times.sending + times.receiving;
    let weights = [
        (waiting, times.first_byte + times.connecting),
        (StoreBottleneck::Throttled, times.slowed),
        (StoreBottleneck::Failing, times.failing),
        (StoreBottleneck::Signing, times.signing),
        (StoreBottleneck::Bodies, bodies),
    ];
    let share = |time: Nanos| time.seconds() / total_s.max(1e-9);
    let mut shares = weights.map(|(class, time)| StoreShare { class, share: share(time) });
    shares.sort_by(|one, other| other.share.total_cmp(&one.share));
    let under_way = total_s / moving_s;
    let primary = match shares[0] {
        _ if under_way < UNDER_WAY_MIN => Some(StoreBottleneck::Elsewhere),
        first => (first.share >= PRIMARY_SHARE_MIN).then_some(first.class),
    };
    Some(StoreVerdict {
        primary,
        shares: shares.into_iter().filter(|share| share.share > 0.0).collect(),
        requests: times.requests,
        requests_per_s: times.requests as f64 / moving_s,
        request_bytes,
        slow_downs: times.slow_downs,
        failures: times.failures,
        sent_again: times.sent_again,
        first_byte_s: per_request(times.first_byte.seconds()),
        under_way,
        bytes_per_s: times.body_bytes as f64 / moving_s,
    })
}

/// What held a copy back at a store; `None` if it asked none, or moved nothing.
pub fn of_copy(times: &StoreTimes, outcome: &Outcome) -> Option<StoreVerdict> {
    let has_moved = outcome.dry.is_none() && outcome.moved_bytes() > 0;
    has_moved.then(|| diagnose(times, outcome.moving())).flatten()
}

/// Keeps it in the record of its run.
pub fn keep(record: &mut Record, verdict: Option<&StoreVerdict>) {
    if let Some(value) = verdict.and_then(|verdict| serde_json::to_value(verdict).ok()) {
        record.more.insert(AT_STORE.into(), value);
    }
}

/// What the record of a run has of it.
pub fn kept(record: &Record) -> Option<StoreVerdict> {
    serde_json::from_value(record.more.get(AT_STORE)?.clone()).ok()
}

/// Its name among what a record has more.
const AT_STORE: &str = "store_verdict";
impl StoreVerdict {
    /// Instead of a class.
    pub const MIXED: &str = "mixed";
}

/// Bodies that hardly matter beside the request around them.
const SMALL_BYTES: f64 = (256 << 10) as f64;
/// Fewer requests have no rate.
const SMALL_REQUESTS_MIN: u64 = 16;
/// With fewer under way the store has nothing to do most of the time.
const UNDER_WAY_MIN: f64 = 0.25;
const PRIMARY_SHARE_MIN: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Nanos {
        Nanos::from_millis(millis)
    }

    #[test]
    fn each_class_is_found() {
        // A copy of a second: 100 requests of 8 MiB each, four under way.
        let copy = StoreTimes {
            requests: 100,
            body_bytes: 100 << 23,
            signing: ms(10),
            connecting: ms(20),
            sending: ms(100),
            first_byte: ms(400),
            receiving: ms(3000),
            ..StoreTimes::default()
        };
        let small = StoreTimes { body_bytes: 100 << 10, receiving: ms(9), ..copy };
        let cases = [
            (copy, Some(StoreBottleneck::Bodies)),
            (StoreTimes { first_byte: ms(9000), ..copy }, Some(StoreBottleneck::FirstByte)),
            (small, Some(StoreBottleneck::Requests)),
            (StoreTimes { requests: 3, ..small }, Some(StoreBottleneck::FirstByte)),
            (
                StoreTimes { slowed: ms(5000), slow_downs: 9, ..copy },
                Some(StoreBottleneck::Throttled),
            ),
            (StoreTimes { failing: ms(5000), failures: 9, ..copy }, Some(StoreBottleneck::Failing)),
            (StoreTimes { signing: ms(3000), ..small }, Some(StoreBottleneck::Signing)),
            (StoreTimes { first_byte: ms(2500), slowed: ms(900), ..copy }, None),
            (
                StoreTimes { receiving: ms(40), first_byte: ms(20), ..copy },
                Some(StoreBottleneck::Elsewhere),
            ),
        ];
        for (times, expect) in cases {
            let verdict = diagnose(&times, ms(1000)).unwrap();
            assert_eq!(verdict.primary, expect, "{times:?}\n{verdict:?}");
            let sum: f64 = verdict.shares.iter().map(|share| share.share).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{verdict:?}");
        }
        assert_eq!(diagnose(&StoreTimes::default(), ms(1000)), None);
    }
}
