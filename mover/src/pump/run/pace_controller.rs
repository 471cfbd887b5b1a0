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
//! A pace is the hypothesis that the lost bursts were ours, and it has to stand the test:
//!
//! - At a pace below the rate of the path nothing is lost and no queue stays. Where one stays, a
//!   lower pace for a moment shows whether it is ours. Where it is not, or where bursts are lost at
//!   lower and lower paces, others send too, and a pace would only leave them our share: it is
//!   dropped, and not set again for a time.
//! - It is never far below what was delivered without a pace.
//! - A slightly higher one is tried now and then. When that is too much, a queue grows, and the
//!   round trip with it, before anything is lost. When the path carries much more, it is dropped.
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
    /// Delivered bytes over time since there is no pace, and the rate that this came to.
    unpaced: VecDeque<(Tick, u64)>,
    unpaced_rate: f64,
    /// How many paces in a row were dropped because others were sending.
    refuted: u32,
    phase: Phase,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// There is no pace, and none is set before a time.
    Free { not_before: Tick },
    /// A burst is being repaired, which shows what the path carries.
    Settling { pace: f64, since: Tick },
    /// There is a pace.
    Holding(Hold),
    /// It is tried whether the path carries more.
    Trying { hold: Hold, since: Tick },
    /// It is tried whether the queue is ours: it would drain. `round_trip`: that at its beginning.
    Draining { hold: Hold, since: Tick, round_trip: f64 },
}

/// A pace, and what is known of it. Round trips are in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Hold {
    pace: f64,
    since: Tick,
    /// The pace that it began with.
    first: f64,
    /// Nothing higher is tried before this time; how much higher, and how long to wait if it fails.
    raise_at: Tick,
    step: f64,
    wait: Nanos,
    /// The round trip while nothing is tried.
    calm: f64,
    /// How often it was lowered because bursts were lost.
    lowered: u32,
    queue: QueueWatch,
}

/// Whether a queue stays: the least round trip of each period, and of the one before.
#[derive(Clone, Copy, Debug)]
struct QueueWatch {
    since: Tick,
    least: f64,
    before: f64,
    /// In how many periods in a row there was a queue that did not shrink.
    stayed: u32,
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
            unpaced: VecDeque::new(),
            unpaced_rate: 0.0,
            refuted: 0,
            phase: Phase::Free { not_before: Tick(0) },
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
        self.phase = match self.phase {
            Phase::Free { not_before } => self.free(now, not_before),
            Phase::Settling { pace, since } => self.settle(now, pace, since),
            Phase::Holding(hold) => self.hold(now, hold),
            Phase::Trying { hold, since } => self.try_more(now, hold, since),
            Phase::Draining { hold, since, round_trip } => self.drain(now, hold, since, round_trip),
        };
        match self.phase {
            Phase::Free { .. } => None,
            Phase::Settling { pace, .. } | Phase::Holding(Hold { pace, .. }) => Some(pace as u64),
            Phase::Trying { hold, .. } => Some((hold.pace * (1.0 + hold.step)) as u64),
            Phase::Draining { hold, .. } => Some((hold.pace * DRAINED_AT) as u64),
        }
    }

    fn free(&mut self, now: &Now, not_before: Tick) -> Phase {
        keep(&mut self.unpaced, (now.at, self.delivered_bytes), UNPACED_OVER);
        if !now.burst_was_lost || now.peak <= 0.0 || now.at < not_before {
            return Phase::Free { not_before };
        }
        let (then, bytes) = self.unpaced.front().copied().unwrap_or_default();
        let spent = now.at.since(then);
        if spent >= UNPACED_MIN {
            self.unpaced_rate = (self.delivered_bytes - bytes) as f64 / spent.seconds();
        }
        Phase::Settling { pace: self.at_least_unpaced(now.peak * BELOW_PEAK), since: now.at }
    }

    fn settle(&self, now: &Now, pace: f64, since: Tick) -> Phase {
        let pace = pace.max(now.peak * BELOW_PEAK);
        let quiet = self.lost_at.is_none_or(|then| now.has_passed(then, MENDED_RTTS));
        match quiet || now.has_passed(since, SETTLED_RTTS) {
            true => Phase::Holding(Hold::new(now, pace)),
            false => Phase::Settling { pace, since },
        }
    }

    fn hold(&mut self, now: &Now, mut hold: Hold) -> Phase {
        let rtt = now.rtt.0 as f64;
        // A short round trip is the path's own, a long one may be due to a queue.
        let share = if rtt > hold.calm { CALM_UP } else { CALM_DOWN };
        hold.calm += (rtt - hold.calm) * share;
        if now.burst_was_lost && now.has_passed(hold.since, JUDGED_RTTS) {
            return self.lower(now, hold);
        }
        if hold.queue.stays(now) {
            return Phase::Draining { hold, since: now.at, round_trip: rtt };
        }
        if now.at < hold.raise_at {
            return Phase::Holding(hold);
        }
        if now.average >= hold.pace * REACHED {
            return Phase::Trying { hold, since: now.at };
        }
        hold.raise_at = now.at.after(REACHED_EVERY);
        Phase::Holding(hold)
    }

    /// Bursts are lost at this pace: the path has become slower, or others send too.
    fn lower(&mut self, now: &Now, hold: Hold) -> Phase {
        let lower = (hold.pace * LOWERED).min(now.peak * BELOW_PEAK).max(hold.pace * LOWERED_MOST);
        let pace = self.at_least_unpaced(lower);
        if hold.lowered >= LOWERED_TIMES || pace >= hold.pace {
            return self.refute(now);
        }
        let lowered = hold.lowered + 1;
        let wait = RAISE_WAIT_MAX;
        Phase::Holding(Hold { lowered, first: pace, ..hold.again(now, pace, wait) })
    }

    fn try_more(&mut self, now: &Now, hold: Hold, since: Tick) -> Phase {
        let slack = (now.rtt_min.0 as f64 * QUEUE_GROWS).max(QUEUE_GROWS_MIN.0 as f64);
        if now.burst_was_lost || now.rtt.0 as f64 > hold.calm + slack {
            let wait = match now.burst_was_lost {
                true => RAISE_WAIT_MAX,
                false => Nanos((hold.wait.0 * 2).min(RAISE_WAIT_MAX.0)),
            };
            let pace = self.at_least_unpaced(hold.pace * BACK);
            return Phase::Holding(hold.again(now, pace, wait));
        }
        if now.at.since(since).0 <= TRIED_MIN.0.max(now.rtt.0 * TRIED_RTTS) {
            return Phase::Trying { hold, since };
        }
        // The path carries more: continue from there at once, in larger steps; or without a pace.
        let pace = hold.pace * (1.0 + hold.step);
        if pace >= hold.first * MUCH_MORE {
            return self.release(now.at);
        }
        let step = (hold.step * STEP_GROWS).min(STEP_MAX);
        let higher = hold.again(now, pace, RAISE_WAIT);
        Phase::Holding(Hold { raise_at: now.at, step, calm: hold.calm, ..higher })
    }

    fn drain(&mut self, now: &Now, hold: Hold, since: Tick, round_trip: f64) -> Phase {
        let rtt = now.rtt.0 as f64;
        let spent = now.at.since(since);
        if spent.0 <= QUEUE_PERIOD_MIN.0.max(now.rtt.0 * QUEUE_PERIOD_RTTS) {
            return Phase::Draining { hold, since, round_trip };
        }
        let drained = (1.0 - DRAINED_AT) * spent.0 as f64;
        if now.has_queue(rtt) && round_trip - rtt < drained * DRAINED_MIN {
            return self.refute(now);
        }
        let pace = self.at_least_unpaced(hold.pace * LOWERED);
        Phase::Holding(Hold { first: pace, ..hold.again(now, pace, RAISE_WAIT) })
    }

    /// Others are sending: no pace, each time for longer.
    fn refute(&mut self, now: &Now) -> Phase {
        let doublings = self.refuted.min(REFUTED_DOUBLINGS);
        self.refuted += 1;
        self.release(now.at.after(Nanos(REFUTED_FOR.0 << doublings)))
    }

    fn release(&mut self, not_before: Tick) -> Phase {
        self.unpaced.clear();
        Phase::Free { not_before }
    }

    fn at_least_unpaced(&self, pace: f64) -> f64 {
        pace.max(self.unpaced_rate * OF_UNPACED)
    }
}

impl Now {
    fn has_passed(&self, then: Tick, rtts: u64) -> bool {
        self.at.since(then).0 > self.rtt.0 * rtts
    }

    /// This round trip is longer than that of an empty path.
    fn has_queue(&self, round_trip: f64) -> bool {
        let least = self.rtt_min.0 as f64;
        round_trip > least + (least * QUEUE_STAYS).max(QUEUE_STAYS_MIN.0 as f64)
    }
}

impl Hold {
    fn new(now: &Now, pace: f64) -> Hold {
        Hold {
            pace,
            since: now.at,
            first: pace,
            raise_at: now.at.after(RAISE_WAIT),
            step: STEP,
            wait: RAISE_WAIT,
            calm: now.rtt.0 as f64,
            lowered: 0,
            queue: QueueWatch::new(now),
        }
    }

    /// The same at another pace; a higher one is tried after `wait`.
    fn again(self, now: &Now, pace: f64, wait: Nanos) -> Hold {
        let (first, lowered) = (self.first, self.lowered);
        let raise_at = now.at.after(wait);
        Hold { first, lowered, raise_at, wait, ..Hold::new(now, pace) }
    }
}

impl QueueWatch {
    fn new(now: &Now) -> QueueWatch {
        QueueWatch { since: now.at, least: f64::MAX, before: f64::MAX, stayed: 0 }
    }

    /// True when a queue has stayed for several periods: at a pace below that of the path it would
    /// have shrunk.
    fn stays(&mut self, now: &Now) -> bool {
        self.least = self.least.min(now.rtt.0 as f64);
        let spent = now.at.since(self.since);
        if spent.0 <= QUEUE_PERIOD_MIN.0.max(now.rtt.0 * QUEUE_PERIOD_RTTS) {
            return false;
        }
        let shrinks = (1.0 - BELOW_PEAK) * spent.0 as f64 * SHRINKS_MIN;
        let stays = now.has_queue(self.least) && self.least > self.before - shrinks;
        let stayed = if stays { self.stayed + 1 } else { 0 };
        *self = QueueWatch { before: self.least, stayed, ..QueueWatch::new(now) };
        stayed >= STAYED_PERIODS
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
/// The share that is kept of a pace at which bursts are still lost, at most and at least; and how
/// often that is tried before others are suspected.
const LOWERED: f64 = 0.98;
const LOWERED_MOST: f64 = 0.7;
const LOWERED_TIMES: u32 = 3;
/// A pace limits the streams when they reach this share of it.
const REACHED: f64 = 0.95;
/// By how much it is raised to see whether the path carries more; the factor of the next step each
/// time that it does; what it returns to when it does not; and from which factor on it is dropped.
const STEP: f64 = 0.02;
const STEP_GROWS: f64 = 3.0;
const STEP_MAX: f64 = 0.5;
const BACK: f64 = 0.995;
const MUCH_MORE: f64 = 1.25;
/// How long a higher pace is tried, and how much longer the round trip gets when it is too high.
const TRIED_MIN: Nanos = Nanos::from_millis(300);
const TRIED_RTTS: u64 = 4;
const QUEUE_GROWS: f64 = 1.0 / 64.0;
const QUEUE_GROWS_MIN: Nanos = Nanos(1_500_000);
const CALM_UP: f64 = 0.02;
const CALM_DOWN: f64 = 0.3;
/// When a higher pace is tried: at first, at most after failures, and where the streams did not
/// reach the present one.
const RAISE_WAIT: Nanos = Nanos::from_millis(1_000);
const RAISE_WAIT_MAX: Nanos = Nanos::from_millis(8_000);
const REACHED_EVERY: Nanos = Nanos::from_millis(1_000);
/// A round trip longer than the minimum by this shows a queue; in how many periods in a row it must
/// not shrink by this share of what it should; and how long a period is.
const QUEUE_STAYS: f64 = 1.0 / 32.0;
const QUEUE_STAYS_MIN: Nanos = Nanos(2_000_000);
const STAYED_PERIODS: u32 = 2;
const SHRINKS_MIN: f64 = 0.25;
const QUEUE_PERIOD_MIN: Nanos = Nanos::from_millis(300);
const QUEUE_PERIOD_RTTS: u64 = 6;
/// The share of the pace at which a queue of ours would drain, and the share of that drain which
/// shows that it is ours.
const DRAINED_AT: f64 = 0.9;
const DRAINED_MIN: f64 = 0.3;
/// No pace is below this share of the rate without one, which is that of the last two seconds.
const OF_UNPACED: f64 = 0.97;
const UNPACED_OVER: Nanos = Nanos::from_millis(2_000);
const UNPACED_MIN: Nanos = Nanos::from_millis(500);
/// After a pace that was refuted none is set for this long, and twice as long each time.
const REFUTED_FOR: Nanos = Nanos::from_millis(10_000);
const REFUTED_DOUBLINGS: u32 = 3;
/// Nothing is kept for longer than this requires.
const RTT_MAX: Nanos = Nanos::from_millis(2_000);

#[cfg(test)]
mod tests;
