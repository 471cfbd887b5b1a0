//! Chooses the pace of a transfer's streams from what TCP reports: numbers in, a number out.
//!
//! A sender that is not paced sends what its window allows as fast as its host can. Where a queue
//! on the path is shorter than such a burst, much of it is lost at once, the congestion control
//! takes that for a full path, and most of the path stays empty. Paced a little below the rate of
//! the path, the same bytes are not lost. So a pace is set once a burst has been lost.
//!
//! The rate of the path is known just then: while more arrives than it carries, its queue is never
//! empty, and acknowledgements come back at its rate. That lasts for a part of a round trip only,
//! so the rate is measured over half a round trip; over a whole one it is far too low.
//!
//! Afterwards a slightly higher pace is tried now and then. When that is too much, a queue grows,
//! and the round trip with it, before anything is lost.
//!
//! A path that loses a segment now and then gets no pace. Neither does one with a deep queue,
//! unless the congestion control sends as much as it estimates the path to carry (BBR): several of
//! those keep a deep queue full, and lose there all the time.

use std::collections::{BTreeMap, VecDeque};

use base::path::PathSample;
use base::units::{Nanos, Tick};

/// What TCP reports of one stream at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub stream: u32,
    pub sample: PathSample,
    /// Segments that have been delivered, those after a gap included.
    pub delivered_segments: u64,
}

/// What the congestion control does with a deep queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeepQueue {
    /// It fills it, and loses segments when it is full: the path is always busy.
    Fills,
    /// It sends by a model of the path, whatever is lost.
    Overruns,
}

/// The pace of all streams of a transfer together.
#[derive(Debug)]
pub(crate) struct PaceController {
    deep_queue: DeepQueue,
    /// What each stream had delivered, and lost or sent again, at its last sample.
    streams: BTreeMap<u32, (u64, u64)>,
    delivered_bytes: u64,
    /// Delivered bytes over time, for as long as a rate is measured.
    delivered: VecDeque<(Tick, u64)>,
    /// The rates, and the losses, over the last round trips.
    rates: VecDeque<(Tick, f64)>,
    lost: VecDeque<(Tick, u64)>,
    lost_at: Option<Tick>,
    deep_at: Option<Tick>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// No burst has been lost.
    Free,
    /// A burst is being repaired, which shows what the path carries.
    Settling { pace: f64, since: Tick },
    /// Nothing is tried until a time. `calm` is the round trip meanwhile, in nanoseconds.
    Holding { pace: f64, since: Tick, raise_at: Tick, step: f64, calm: f64 },
    /// It is tried whether the path carries more.
    Trying { before: f64, step: f64, since: Tick, calm: f64 },
}

/// The samples of one moment, taken together.
#[derive(Clone, Copy, Debug)]
struct Now {
    at: Tick,
    rtt: Nanos,
    rtt_min: Nanos,
    /// The highest recent delivery rate of the path, and the average, in bytes a second.
    peak: f64,
    average: f64,
    burst_was_lost: bool,
}

impl PaceController {
    pub(crate) fn new(deep_queue: DeepQueue) -> PaceController {
        PaceController {
            deep_queue,
            streams: BTreeMap::new(),
            delivered_bytes: 0,
            delivered: VecDeque::new(),
            rates: VecDeque::new(),
            lost: VecDeque::new(),
            lost_at: None,
            deep_at: None,
            phase: Phase::Free,
        }
    }

    /// Takes samples of all streams; returns their total pace in bytes a second, `None` for none.
    pub(crate) fn look(&mut self, at: Tick, looks: &[Look]) -> Option<u64> {
        let rtt = looks.iter().map(|look| look.sample.rtt).max()?.min(RTT_MAX);
        let rtt_min = looks.iter().map(|look| look.sample.rtt_min).min()?;
        let lost = self.add_up(looks);
        if lost > 0 {
            self.lost_at = Some(at);
        }
        keep(&mut self.lost, (at, lost), rtt);
        if rtt.0 as f64 >= rtt_min.0 as f64 * QUEUE_DEEP {
            self.deep_at = Some(at);
        }
        self.note_rate(at, rtt);
        let window: u64 = looks.iter().map(|look| u64::from(look.sample.cwnd_segments)).sum();
        let lost: u64 = self.lost.iter().map(|(_, lost)| lost).sum();
        let queue_is_short = self.deep_queue == DeepQueue::Overruns
            || self.deep_at.is_none_or(|then| at.since(then).0 > rtt.0 * DEEP_RTTS);
        let count = self.rates.len().max(1) as f64;
        self.decide(&Now {
            at,
            rtt,
            rtt_min,
            peak: self.rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max),
            average: self.rates.iter().map(|(_, rate)| rate).sum::<f64>() / count,
            burst_was_lost: lost > BURST_SEGMENTS.max(window / BURST_SHARE) && queue_is_short,
        })
    }

    /// Adds what has been delivered since the last samples; returns what has been lost since.
    fn add_up(&mut self, looks: &[Look]) -> u64 {
        let mut lost_now = 0;
        for look in looks {
            let sample = &look.sample;
            let lost = sample.segments_retransmitted + u64::from(sample.lost_segments);
            let seen = (look.delivered_segments, lost);
            let Some(last) = self.streams.insert(look.stream, seen) else { continue };
            let segments = look.delivered_segments.saturating_sub(last.0);
            self.delivered_bytes += segments * u64::from(sample.mss_bytes);
            lost_now += lost.saturating_sub(last.1);
        }
        self.streams.retain(|number, _| looks.iter().any(|look| look.stream == *number));
        lost_now
    }

    /// The rate over the last half of a round trip, once that has passed.
    fn note_rate(&mut self, at: Tick, rtt: Nanos) {
        let span = Nanos((rtt.0 / 2).clamp(RATE_OVER_MIN.0, RATE_OVER_MAX.0));
        self.delivered.push_back((at, self.delivered_bytes));
        // The first entry that stays is at least that old.
        while self.delivered.get(1).is_some_and(|(then, _)| at.since(*then) >= span) {
            self.delivered.pop_front();
        }
        let Some((then, bytes)) = self.delivered.front().copied() else { return };
        let spent = at.since(then);
        if spent >= span {
            let rate = (self.delivered_bytes - bytes) as f64 / spent.seconds();
            keep(&mut self.rates, (at, rate), Nanos(RATES_MIN.0.max(rtt.0 * RATES_RTTS)));
        }
    }

    fn decide(&mut self, now: &Now) -> Option<u64> {
        let carries = now.peak * BELOW_PEAK;
        self.phase = match self.phase {
            Phase::Free if now.burst_was_lost && carries > 0.0 => {
                Phase::Settling { pace: carries, since: now.at }
            }
            Phase::Free => Phase::Free,
            Phase::Settling { pace, since } => {
                let pace = pace.max(carries);
                let quiet = self.lost_at.is_none_or(|then| now.has_passed(then, MENDED_RTTS));
                match quiet || now.has_passed(since, SETTLED_RTTS) {
                    true => now.hold(pace, RAISE_FIRST_AFTER),
                    false => Phase::Settling { pace, since },
                }
            }
            Phase::Holding { pace, since, raise_at, step, calm } => {
                let rtt = now.rtt.0 as f64;
                // A short round trip is the path's own, a long one may be due to our queue.
                let share = if rtt > calm { CALM_UP } else { CALM_DOWN };
                let calm = calm + (rtt - calm) * share;
                if now.burst_was_lost && now.has_passed(since, JUDGED_RTTS) {
                    // The path has become slower, or this was too much from the beginning.
                    let lower = (pace * LOWERED).min(carries).max(pace * LOWERED_MOST);
                    now.hold(lower, RAISE_AFTER_LOSS)
                } else if now.at < raise_at {
                    Phase::Holding { pace, since, raise_at, step, calm }
                } else if now.average >= pace * REACHED {
                    Phase::Trying { before: pace, step, since: now.at, calm }
                } else {
                    let raise_at = now.at.after(REACHED_EVERY);
                    Phase::Holding { pace, since, raise_at, step, calm }
                }
            }
            Phase::Trying { before, step, since, calm } => {
                let slack = (now.rtt_min.0 as f64 * QUEUE_GROWS).max(QUEUE_GROWS_MIN.0 as f64);
                if now.burst_was_lost || now.rtt.0 as f64 > calm + slack {
                    now.hold(before * BACK, RAISE_EVERY)
                } else if now.at.since(since).0 > TRIED_MIN.0.max(now.rtt.0 * TRIED_RTTS) {
                    // The path carries more: continue from there at once, in larger steps.
                    let pace = before * (1.0 + step);
                    let step = (step * STEP_GROWS).min(STEP_MAX);
                    Phase::Holding { pace, since: now.at, raise_at: now.at, step, calm }
                } else {
                    self.phase
                }
            }
        };
        match self.phase {
            Phase::Free => None,
            Phase::Settling { pace, .. } | Phase::Holding { pace, .. } => Some(pace as u64),
            Phase::Trying { before, step, .. } => Some((before * (1.0 + step)) as u64),
        }
    }
}

impl Now {
    fn has_passed(&self, then: Tick, rtts: u64) -> bool {
        self.at.since(then).0 > self.rtt.0 * rtts
    }

    fn hold(&self, pace: f64, time: Nanos) -> Phase {
        let calm = self.rtt.0 as f64;
        Phase::Holding { pace, since: self.at, raise_at: self.at.after(time), step: STEP, calm }
    }
}

/// Adds to a list, and drops what is older than `span`.
fn keep<T>(list: &mut VecDeque<(Tick, T)>, newest: (Tick, T), span: Nanos) {
    let at = newest.0;
    list.push_back(newest);
    while list.front().is_some_and(|(then, _)| at.since(*then) > span) {
        list.pop_front();
    }
}

/// More lost segments in a round trip than this, and than this share of the window, are a burst.
const BURST_SEGMENTS: u64 = 10;
const BURST_SHARE: u64 = 100;
/// A round trip longer than the minimum by this factor shows a deep queue; losses in this many
/// round trips after it were caused by its overflow.
const QUEUE_DEEP: f64 = 1.25;
const DEEP_RTTS: u64 = 10;
/// Delivery is measured over half a round trip, within bounds; rates are kept for this long.
const RATE_OVER_MIN: Nanos = Nanos::from_millis(20);
const RATE_OVER_MAX: Nanos = Nanos::from_millis(100);
const RATES_MIN: Nanos = Nanos::from_millis(500);
const RATES_RTTS: u64 = 4;
/// A queue that is never empty shows the path's rate, and a little more: acknowledgements bunch.
const BELOW_PEAK: f64 = 0.98;
/// A burst is repaired when nothing was lost for this many round trips, and at the latest after
/// this many.
const MENDED_RTTS: u64 = 2;
const SETTLED_RTTS: u64 = 10;
/// Losses this soon after a new pace were sent before it.
const JUDGED_RTTS: u64 = 3;
/// The share that is kept of a pace at which bursts are still lost, at most and at least.
const LOWERED: f64 = 0.98;
const LOWERED_MOST: f64 = 0.7;
/// A pace limits the streams when they reach this share of it.
const REACHED: f64 = 0.95;
/// By how much it is raised to see whether the path carries more; the factor of the next step each
/// time that it does; and what it returns to when it does not.
const STEP: f64 = 0.02;
const STEP_GROWS: f64 = 2.0;
const STEP_MAX: f64 = 0.5;
const BACK: f64 = 0.99;
/// How long a higher pace is tried, and how much longer the round trip gets when it is too high.
const TRIED_MIN: Nanos = Nanos::from_millis(400);
const TRIED_RTTS: u64 = 4;
const QUEUE_GROWS: f64 = 1.0 / 64.0;
const QUEUE_GROWS_MIN: Nanos = Nanos(1_500_000);
const CALM_UP: f64 = 0.02;
const CALM_DOWN: f64 = 0.3;
/// When a higher pace is tried: once it has settled, after a loss, after a failure, and where the
/// streams did not reach it.
const RAISE_FIRST_AFTER: Nanos = Nanos::from_millis(1_000);
const RAISE_AFTER_LOSS: Nanos = Nanos::from_millis(5_000);
const RAISE_EVERY: Nanos = Nanos::from_millis(30_000);
const REACHED_EVERY: Nanos = Nanos::from_millis(1_000);
/// Nothing is kept for longer than this requires.
const RTT_MAX: Nanos = Nanos::from_millis(2_000);

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: f64 = 1448.0;

    /// A path of 100 Mbit/s of payload and 100 ms, with a queue, as one stream meets it: what is
    /// sent faster than it drains is lost once the queue is full.
    struct Link {
        capacity: f64,
        queue_bytes: f64,
        /// What the stream sends without a pace: its bursts, and how they repeat.
        unpaced: fn(u64) -> f64,
        waits: f64,
        lost_bytes: f64,
        sample: PathSample,
    }

    const STEP_MS: u64 = 10;
    const CAPACITY: f64 = 12.0e6;

    impl Link {
        fn new(queue_bytes: f64, unpaced: fn(u64) -> f64) -> Link {
            let rtt = Nanos::from_millis(100);
            let mss_bytes = MSS as u32;
            let sample = PathSample { rtt, rtt_min: rtt, mss_bytes, ..PathSample::default() };
            Link { capacity: CAPACITY, queue_bytes, unpaced, waits: 0.0, lost_bytes: 0.0, sample }
        }

        /// The next 10 ms at a pace.
        fn step(&mut self, pace: Option<u64>) -> Look {
            let seconds = STEP_MS as f64 / 1e3;
            let step = self.sample.at.0 / (STEP_MS * 1_000_000);
            let offered = (self.unpaced)(step).min(pace.map_or(f64::MAX, |pace| pace as f64));
            let sample = &mut self.sample;
            self.waits += (offered - self.capacity) * seconds;
            let lost = (self.waits - self.queue_bytes).max(0.0);
            self.waits = self.waits.clamp(0.0, self.queue_bytes);
            let delivered = (offered * seconds - lost).min(self.capacity * seconds);
            sample.at = sample.at.after(Nanos::from_millis(STEP_MS));
            sample.rtt = Nanos(sample.rtt_min.0 + (self.waits / self.capacity * 1e9) as u64);
            sample.bytes_acked += delivered as u64;
            sample.bytes_sent += (offered * seconds) as u64;
            self.lost_bytes += lost;
            sample.segments_retransmitted = (self.lost_bytes / MSS) as u64;
            Look {
                stream: 0,
                sample: *sample,
                delivered_segments: sample.bytes_acked / u64::from(sample.mss_bytes),
            }
        }

        /// Runs for this many seconds with a pace controller; returns the pace at the end.
        fn run(&mut self, pace_controller: &mut PaceController, seconds: u64) -> Option<u64> {
            let mut pace = None;
            for _ in 0..seconds * 1000 / STEP_MS {
                let look = self.step(pace);
                pace = pace_controller.look(look.sample.at, &[look]);
            }
            pace
        }
    }

    /// Fills the path, then a burst of a window at the host's own speed, once in two seconds.
    fn bursts(step: u64) -> f64 {
        if step % 200 < 3 && step > 100 { 100e6 } else { 11.9e6 }
    }

    /// As much as the window allows, a little more than the path carries.
    fn steady(_: u64) -> f64 {
        12.2e6
    }

    fn slow(_: u64) -> f64 {
        5e6
    }

    #[test]
    fn a_pace_is_set_where_bursts_are_lost_and_the_queue_is_short() {
        type Case = (&'static str, f64, fn(u64) -> f64, Option<(f64, f64)>);
        let cases: [Case; 4] = [
            // At 1.18 of the path a burst of 30 ms fits into the queue.
            ("bursts, a short queue", 64e3, bursts, Some((0.85, 1.2))),
            ("bursts, a deep queue", 6e6, bursts, None),
            ("a little more than it carries, a deep queue", 3e6, steady, None),
            ("less than it carries", 64e3, slow, None),
        ];
        for (name, queue_bytes, unpaced, expect) in cases {
            let mut pace_controller = PaceController::new(DeepQueue::Fills);
            let pace = Link::new(queue_bytes, unpaced).run(&mut pace_controller, 60);
            let share = pace.map(|pace| pace as f64 / CAPACITY);
            match (share, expect) {
                (None, None) => {}
                (Some(share), Some((low, high))) => {
                    assert!((low..=high).contains(&share), "{name}: {share:.3} of the path");
                }
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_pace_follows_a_path_that_becomes_faster_or_slower() {
        let mut pace_controller = PaceController::new(DeepQueue::Fills);
        let mut link = Link::new(64e3, |step| if step % 200 < 3 { 100e6 } else { 30e6 });
        let before = link.run(&mut pace_controller, 20).unwrap() as f64;
        assert!((0.8..=1.02).contains(&(before / CAPACITY)), "{before}");
        link.capacity = CAPACITY / 2.0;
        let slower = link.run(&mut pace_controller, 20).unwrap() as f64;
        assert!((0.7..=1.02).contains(&(slower / link.capacity)), "{slower}");
        link.capacity = CAPACITY * 1.5;
        let faster = link.run(&mut pace_controller, 200).unwrap() as f64;
        assert!((0.85..=1.02).contains(&(faster / link.capacity)), "{faster}");
    }

    #[test]
    fn a_segment_lost_now_and_then_is_no_burst() {
        let mut pace_controller = PaceController::new(DeepQueue::Fills);
        let rtt = Nanos::from_millis(100);
        let mut sample = PathSample { rtt, rtt_min: rtt, mss_bytes: 1448, ..PathSample::default() };
        for step in 0..10_000_u64 {
            sample.at = sample.at.after(Nanos::from_millis(STEP_MS));
            sample.bytes_acked += 10_000;
            sample.segments_retransmitted += u64::from(step % 50 == 0) * 3;
            let look = Look { stream: 0, sample, delivered_segments: sample.bytes_acked / 1448 };
            assert_eq!(pace_controller.look(sample.at, &[look]), None, "step {step}");
        }
    }

    #[test]
    fn streams_that_come_and_go_are_added_up() {
        let mut pace_controller = PaceController::new(DeepQueue::Fills);
        let mut links: Vec<Link> = (0..4).map(|_| Link::new(16e3, bursts)).collect();
        links.iter_mut().for_each(|link| link.capacity = CAPACITY / 4.0);
        let mut pace = None;
        for step in 0..1000 {
            let count = if step < 500 { 4 } else { 3 };
            let each = pace.map(|pace| pace / count as u64);
            let looks = links.iter_mut().take(count).zip(0..);
            let looks: Vec<Look> =
                looks.map(|(link, stream)| Look { stream, ..link.step(each) }).collect();
            pace = pace_controller.look(looks[0].sample.at, &looks);
        }
        let share = pace.unwrap() as f64 / (CAPACITY * 3.0 / 4.0);
        assert!((0.8..=1.1).contains(&share), "{share:.3} of the path");
    }
}
