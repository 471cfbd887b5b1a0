//! The pace of streams that take only what others leave: numbers in, a number out.
//!
//! All streams together have a window, as one flow of LEDBAT has (RFC 6817, with the start and the
//! decrease of LEDBAT++, draft-irtf-iccrg-ledbat-plus-plus), and are paced at a window each round
//! trip. The window grows while the queue of the path, which is the round trip without its least,
//! is shorter than a small target, and shrinks when it is longer: others that fill the queue find
//! this one gone. Lost segments mean the same, but for a few of them where there is no queue.
//!
//! Unlike LEDBAT's, its steps are shares of the window and not segments, so that it comes back
//! within seconds on fast paths too. The congestion control below still has its own window.

use std::collections::BTreeMap;

use super::pace_controller::Look;
use base::units::{Nanos, Tick};

/// Paces all streams of a transfer together, so that they give way to other traffic.
#[derive(Debug, Default)]
pub(crate) struct Scavenger {
    streams: BTreeMap<u32, Heard>,
    window_bytes: f64,
    is_starting: bool,
    /// The average below when a queue of ours was seen for the last time; less when others came.
    known_bytes: f64,
    /// What is delivered in a round trip, on average over some.
    mean_bytes: f64,
    /// Decisions in a row that found no queue, and that found too long a one.
    calm: u32,
    above: u32,
    /// Decisions in which the queue is what the start has left.
    drains: u32,
    /// Others were seen, and may still be there.
    others_until: Tick,
    period: Option<Period>,
}

/// The last sample of a stream.
#[derive(Clone, Copy, Debug)]
struct Heard {
    delivered_segments: u64,
    /// Or sent again.
    lost_segments: u64,
    /// Smoothed.
    round_trip: Nanos,
}

/// What was seen since the last decision.
#[derive(Clone, Copy, Debug)]
struct Period {
    since: Tick,
    least_round_trip: Nanos,
    delivered_bytes: f64,
    delivered_segments: u64,
    lost_segments: u64,
}

/// What a period says.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The round trip of the empty path, and the queue's part of it; nanoseconds.
    base: f64,
    queue: f64,
    bytes_per_s: f64,
    lost: Lost,
    mss_bytes: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    Nothing,
    /// So few, where there is no queue, that the path may be to blame.
    Few,
    Many,
}

impl Scavenger {
    /// Takes samples of all streams; returns their total pace in bytes a second.
    pub(crate) fn look(&mut self, at: Tick, looks: &[Look]) -> Option<u64> {
        let round_trip = looks.iter().map(|look| look.sample.rtt).min()?;
        let base = looks.iter().map(|look| look.sample.rtt_min).min()?.min(round_trip);
        let mss_bytes = looks.iter().map(|look| look.sample.mss_bytes).max().map_or(0.0, f64::from);
        if round_trip.0 == 0 || mss_bytes == 0.0 {
            return None;
        }
        if self.window_bytes == 0.0 {
            (self.window_bytes, self.is_starting) = (LEAST_SEGMENTS * mss_bytes, true);
        }
        let mut period = self.period.unwrap_or(Period::new(at));
        self.add_up(looks, &mut period);
        let spent = at.since(period.since);
        if spent < Nanos(round_trip.0.max(PERIOD_MIN.0)) || period.delivered_segments == 0 {
            self.period = Some(period);
        } else {
            self.decide(at, &period.seen(base, spent, mss_bytes));
            self.period = Some(Period::new(at));
        }
        Some((self.window_bytes / round_trip.seconds()) as u64)
    }

    /// Adds what is new to a period. A look without news of a stream says nothing of its path.
    fn add_up(&mut self, looks: &[Look], period: &mut Period) {
        for look in looks {
            let sample = &look.sample;
            let seen = Heard {
                delivered_segments: look.delivered_segments,
                lost_segments: sample.segments_retransmitted + u64::from(sample.lost_segments),
                round_trip: sample.rtt,
            };
            let Some(last) = self.streams.insert(look.stream, seen) else { continue };
            let delivered = seen.delivered_segments.saturating_sub(last.delivered_segments);
            period.delivered_segments += delivered;
            period.delivered_bytes += delivered as f64 * f64::from(sample.mss_bytes);
            period.lost_segments += seen.lost_segments.saturating_sub(last.lost_segments);
            if delivered > 0 {
                let recent = recent_round_trip(last.round_trip, seen.round_trip, delivered);
                period.least_round_trip = period.least_round_trip.min(recent.max(sample.rtt_min));
            }
        }
        self.streams.retain(|number, _| looks.iter().any(|look| look.stream == *number));
    }

    fn decide(&mut self, at: Tick, seen: &Seen) {
        let target = seen.target();
        let room = 1.0 - seen.queue / target;
        let is_calm = seen.lost == Lost::Nothing && seen.queue < target * CALM;
        self.calm = if is_calm { self.calm + 1 } else { 0 };
        let is_draining = self.drains > 0;
        self.drains = self.drains.saturating_sub(1);
        self.above = if room < 0.0 && !is_draining { self.above + 1 } else { 0 };
        let delivered = seen.bytes_per_s * seen.base / 1e9;
        self.mean_bytes += (delivered - self.mean_bytes) * MEAN_STEP;
        // A queue of ours is gone once the window has shrunk.
        let sees_others = seen.lost == Lost::Many || self.above >= OTHERS_PERIODS;
        if at >= self.others_until && !is_calm {
            let kept = if sees_others { self.known_bytes * KNOWN_KEPT } else { 0.0 };
            self.known_bytes = self.mean_bytes.max(kept);
        }
        if sees_others && !self.is_starting && !is_draining {
            self.others_until = at.after(OTHERS_FOR);
        }
        let was_starting = self.is_starting;
        self.is_starting &= seen.lost == Lost::Nothing && room > 0.0;
        if was_starting && !self.is_starting {
            self.window_bytes = self.window_bytes.min(delivered * DRAINED);
            self.drains = DRAINING_PERIODS;
        }
        let used = if self.is_starting { USED_AT_FIRST } else { USED };
        let factor = match seen.lost {
            _ if is_draining || was_starting && !self.is_starting => 1.0,
            Lost::Many => LEAST_KEPT,
            _ if self.above >= OTHERS_PERIODS => (1.0 + room).max(LEAST_KEPT),
            // Ours, as far as is known: it is gone when so much less is under way.
            _ if room < 0.0 => {
                let excess = seen.queue - target;
                (1.0 - DRAINS * excess / (seen.base + seen.queue)).max(LEAST_KEPT)
            }
            Lost::Few => 1.0,
            // What is sent is less for another reason: its source, or its congestion control.
            Lost::Nothing if delivered < self.window_bytes * used => 1.0,
            Lost::Nothing if self.is_starting => 2.0,
            Lost::Nothing if at < self.others_until => {
                1.0 + SEGMENTS_BESIDE * seen.mss_bytes / self.window_bytes * room
            }
            Lost::Nothing if self.calm < CALM_PERIODS => {
                let share = GAIN * target / (seen.base + target);
                1.0 + share.max(seen.mss_bytes / self.window_bytes) * room
            }
            Lost::Nothing if self.window_bytes < self.known_bytes * NEARLY_KNOWN => GROWS_MOST,
            Lost::Nothing => {
                let beyond = (self.window_bytes / self.known_bytes - 1.0).max(0.0);
                GROWS_MOST.min(1.0 + GROWS * (1.0 + BEYOND * beyond) * target / seen.base)
            }
        };
        self.window_bytes = (self.window_bytes * factor).max(LEAST_SEGMENTS * seen.mss_bytes);
    }
}

impl Period {
    fn new(since: Tick) -> Period {
        Period {
            since,
            least_round_trip: Nanos(u64::MAX),
            delivered_bytes: 0.0,
            delivered_segments: 0,
            lost_segments: 0,
        }
    }

    fn seen(&self, base: Nanos, spent: Nanos, mss_bytes: f64) -> Seen {
        let (base, least) = (base.0 as f64, self.least_round_trip.0 as f64);
        let mut seen = Seen {
            base,
            queue: (least - base).max(0.0),
            bytes_per_s: self.delivered_bytes / spent.seconds(),
            lost: Lost::Nothing,
            mss_bytes,
        };
        let many = (self.delivered_segments as f64 * LOST_SHARE).max(LOST_SEGMENTS);
        seen.lost = match self.lost_segments as f64 {
            0.0 => Lost::Nothing,
            lost if lost <= many && seen.queue < seen.target() / 2.0 => Lost::Few,
            _ => Lost::Many,
        };
        seen
    }
}

/// The newest round trips: TCP's smoothed one moves an eighth of the way to each of them (RFC
/// 6298), and at a few segments a round trip that takes seconds. There were at most as many as
/// segments were delivered; if there were fewer, this is still somewhat of the old value.
fn recent_round_trip(before: Nanos, now: Nanos, segments: u64) -> Nanos {
    let kept = (7.0_f64 / 8.0).powf(segments as f64);
    Nanos(((now.0 as f64 - before.0 as f64 * kept) / (1.0 - kept)).max(0.0) as u64)
}

impl Seen {
    fn target(&self) -> f64 {
        (self.base * TARGET).clamp(TARGET_MIN.0 as f64, TARGET_MAX.0 as f64)
    }
}

/// The queue that it keeps: this share of the least round trip, within bounds. LEDBAT's 60 to
/// 100 ms are more than many queues hold, and then it does not give way.
const TARGET: f64 = 0.1;
const TARGET_MIN: Nanos = Nanos::from_millis(3);
const TARGET_MAX: Nanos = Nanos::from_millis(25);
/// The window at first, and at least. It doubles until the queue is as long as the target.
const LEAST_SEGMENTS: f64 = 4.0;
/// When that ends, it keeps this share of what is delivered in a round trip: the queue that it has
/// made drains in so many periods.
const DRAINED: f64 = 0.75;
const DRAINING_PERIODS: u32 = 8;
/// How strongly the window follows the queue: as much as is stable with a round trip's delay.
const GAIN: f64 = 0.4;
/// Where the queue was below this share of the target for so many periods, the window grows by a
/// share of itself in each: by the most far from the window at which there was a queue before, near
/// it by so little that a round trip's delay does not overshoot the target.
const CALM: f64 = 0.5;
const CALM_PERIODS: u32 = 2;
const NEARLY_KNOWN: f64 = 0.75;
const GROWS_MOST: f64 = 1.25;
const GROWS: f64 = 0.25;
/// A window that is a twentieth beyond that grows twice as fast: the path carries more now.
const BEYOND: f64 = 20.0;
/// Others are there when the queue was too long for so many periods, or segments were lost: then
/// the window grows more slowly than theirs, for so long after the last sign of them.
const OTHERS_PERIODS: u32 = 4;
const OTHERS_FOR: Nanos = Nanos::from_millis(4_000);
const SEGMENTS_BESIDE: f64 = 0.5;
const KNOWN_KEPT: f64 = 0.7;
/// How far the average goes to what a period delivered.
const MEAN_STEP: f64 = 0.25;
/// How much of the excess of a queue a step takes away, as long as the queue may be ours.
const DRAINS: f64 = 2.0;
/// What is kept of the window at least, in a period.
const LEAST_KEPT: f64 = 0.5;
/// A window of which less than this is used does not grow; what is used is seen a round trip later.
const USED: f64 = 0.9;
const USED_AT_FIRST: f64 = 0.7;
/// Lost segments that mean nothing without a queue: so many, or this share of what was delivered.
const LOST_SEGMENTS: f64 = 2.0;
const LOST_SHARE: f64 = 0.01;
const PERIOD_MIN: Nanos = Nanos::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pump::run::shared_path::{Choose, Flow, Shared};

    fn shared(by_rate: bool, queue_bytes: f64) -> Shared {
        let mut scavenger = Scavenger::default();
        let choose: Choose = Box::new(move |at, looks: &[Look]| scavenger.look(at, looks));
        Shared::new(by_rate, queue_bytes, Some(choose))
    }

    #[test]
    fn the_newest_round_trip_is_found_in_the_smoothed_one() {
        for (before, each, acknowledgements, segments) in
            [(30.0, 60.0, 1, 1), (60.0, 30.0, 3, 3), (60.0, 30.0, 2, 4), (30.0, 30.0, 1, 9)]
        {
            let now = (0..acknowledgements).fold(before, |now, _| now + (each - now) / 8.0);
            let nanos = |millis: f64| Nanos((millis * 1e6) as u64);
            let found = recent_round_trip(nanos(before), nanos(now), segments).0 as f64 / 1e6;
            let case = format!("{found} of {before} to {each}");
            match acknowledgements == segments {
                true => assert!((found - each).abs() < 0.01, "{case}"),
                false => assert!(found >= each - 0.01 && found <= now + 0.01, "{case}"),
            }
        }
    }

    /// Alone it fills the path; beside others it takes little, whatever its own congestion control
    /// would take; after them it is back.
    #[test]
    fn it_gives_way_and_comes_back() {
        for by_rate in [false, true] {
            for queue_bytes in [64e3, 375e3, 3e6] {
                for rivals in [1, 4] {
                    let mut path = shared(by_rate, queue_bytes);
                    path.share(5.0);
                    let alone = path.share(20.0);
                    path.rivals.extend((0..rivals).map(|_| Flow::new(false)));
                    path.share(5.0);
                    let beside = path.share(40.0);
                    path.rivals.clear();
                    path.share(6.0);
                    let after = path.share(10.0);
                    let case = format!(
                        "by rate {by_rate}, {queue_bytes} bytes of queue, {rivals} rivals: \
                         {alone:.3} {beside:.3} {after:.3}"
                    );
                    assert!(alone >= 0.95 && after >= 0.9, "{case}");
                    assert!(beside <= 0.10, "{case}");
                }
            }
        }
    }
}
