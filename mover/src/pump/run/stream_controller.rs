//! Chooses the number of a copy's streams from what TCP and the lanes report: numbers in, steps
//! out.
//!
//! More streams are tried only for a reason that can be seen: the window of each, its send buffer,
//! losses by chance, or its thread, holds it back, and no queue stands. Then the rate is measured
//! with as many as before and with more. Where the gain is large, and those that were there before
//! have not become faster themselves, it is the new ones' and they stay. In doubt the rate is
//! measured with as many as before again, as the path may have changed meanwhile: more stay only
//! if they are faster than fewer were both times. Where a queue stands, the path is full: of more
//! than four streams half is tried, and stays unless it is slower.

use std::collections::BTreeMap;

use base::path::PathSample;
use base::stream_steps::{StepReason, StreamStep};
use base::units::{Nanos, Rate, Tick};

/// What is seen of a copy's streams at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    pub at: Tick,
    /// What all streams together have delivered so far.
    pub delivered_bytes: u64,
    /// Streams that carry data, with those that are still ending.
    pub open: u16,
    /// What is still to be moved, where that is known.
    pub left_bytes: Option<u64>,
    /// The newest sample of the sender of each stream, on the clock of its host.
    pub senders: BTreeMap<u32, PathSample>,
}

/// What the number of streams depends on, beside what is seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub streams_max: u16,
    pub cpus: u16,
    /// A stream that ends sends first what it has: this much at most.
    pub lane_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct StreamController {
    bounds: Bounds,
    /// How many streams there are to be now.
    count: u16,
    begun: Option<Tick>,
    now: Tick,
    stage: Stage,
    span: Span,
    /// What each stream had when the trial began, in bytes a second.
    had: BTreeMap<u32, f64>,
    /// How often a trial for a reason gained nothing.
    failed: BTreeMap<&'static str, u32>,
    /// Spans in a row with a queue that nothing is to be done about.
    full_spans: u32,
    is_settled: bool,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Watching,
    /// With another number of streams.
    Trying(Trial),
    /// Back at the number before; the rate of the trial is known.
    Comparing(Trial, f64),
}

/// Rates are in bytes a second.
#[derive(Clone, Copy, Debug)]
struct Trial {
    reason: StepReason,
    from: u16,
    to: u16,
    before: f64,
}

/// What is seen since the number of streams was chosen.
#[derive(Debug, Default)]
struct Span {
    since: Tick,
    /// Since when there are as many streams as there are to be.
    complete: Option<Tick>,
    /// Where the measurement begins: the time, and what had been delivered.
    begun: Option<(Tick, u64)>,
    first: BTreeMap<u32, PathSample>,
    last: BTreeMap<u32, PathSample>,
    samples: u32,
    with_queue: u32,
    with_full_window: u32,
    /// Samples that came with losses, and with bursts of them.
    with_losses: u32,
    with_bursts: u32,
}

/// The share of the time, or of the samples, in which something held.
#[derive(Clone, Copy, Debug)]
struct Seen {
    window: f64,
    /// How much of its window each stream has under way, on average.
    window_filled: f64,
    buffer: f64,
    queue: f64,
    full_window: f64,
    busy: f64,
    lost: bool,
    lost_in_bursts: bool,
}

impl StreamController {
    pub(crate) fn new(count: u16, bounds: Bounds) -> StreamController {
        StreamController {
            bounds,
            count,
            begun: None,
            now: Tick(0),
            stage: Stage::Watching,
            span: Span::default(),
            had: BTreeMap::new(),
            failed: BTreeMap::new(),
            full_spans: 0,
            is_settled: false,
        }
    }

    /// Takes a look; returns what is to be done, if anything is.
    pub(crate) fn look(&mut self, look: &Look) -> Option<StreamStep> {
        self.now = look.at;
        if self.is_settled || look.delivered_bytes == 0 {
            return None;
        }
        if self.begun.is_none() {
            self.begun = Some(look.at);
            self.span.since = look.at;
        }
        if look.open != self.count {
            self.span = Span { since: self.span.since, ..Span::default() };
            let is_late = look.at.since(self.span.since) > COMPLETE_WITHIN;
            return is_late.then(|| self.give_up());
        }
        let rate = self.span.measure(look)?;
        let seen = self.span.seen();
        let is_watching = matches!(self.stage, Stage::Watching);
        if rate <= 0.0 || (is_watching && seen.is_none()) {
            return self.settle_in_time();
        }
        let each = self.span.rates();
        self.span = Span { since: look.at, ..Span::default() };
        match self.stage {
            Stage::Watching => {
                self.had = each;
                self.watched(look, rate, seen?)
            }
            Stage::Trying(trial) if trial.to < trial.from => self.tried_fewer(trial, rate, seen),
            Stage::Trying(trial) => Some(self.tried_more(trial, rate, &each)),
            Stage::Comparing(trial, with) => Some(self.compared(trial, with, rate)),
        }
    }

    /// The copy is over: why the number had not been settled, if it had not.
    pub(crate) fn end(&mut self) -> Option<StreamStep> {
        (!self.is_settled).then(|| self.settle(StepReason::Short))
    }

    fn watched(&mut self, look: &Look, rate: f64, seen: Seen) -> Option<StreamStep> {
        let reason = seen.reason(self.count, self.bounds.cpus);
        let is_full = reason == Some(StepReason::Queue) && self.count <= BESIDE_OTHERS;
        self.full_spans = if is_full { self.full_spans + 1 } else { 0 };
        if is_full {
            let is_sure = self.full_spans >= FULL_SPANS;
            return if is_sure { Some(self.settle(StepReason::PathFull)) } else { None };
        }
        let Some(reason) = reason else { return self.settle_in_time() };
        let to = match reason {
            StepReason::Queue => (self.count / 2).max(BESIDE_OTHERS),
            // Each more brings as much as each has, until the path is full.
            StepReason::ReceiveWindow | StepReason::SendBuffer => self.count.saturating_mul(4),
            _ => self.count.saturating_mul(2),
        };
        let to = to.min(self.bounds.streams_max);
        if to == self.count {
            return Some(self.settle(StepReason::Most));
        }
        if self.failed.get(reason.name()).is_some_and(|failed| *failed >= FAILED_MAX) {
            return Some(self.settle(StepReason::NoGain));
        }
        let takes = self.trial_takes(to, rate);
        if look.left_bytes.is_some_and(|left| (left as f64) < rate * takes.seconds()) {
            return None; // the copy is nearly over
        }
        if self.spent() + takes > SETTLED_WITHIN {
            return Some(self.settle(StepReason::Time));
        }
        let trial = Trial { reason, from: self.count, to, before: rate };
        self.stage = Stage::Trying(trial);
        Some(self.step(to, reason, Some(rate), None))
    }

    fn tried_more(&mut self, trial: Trial, rate: f64, each: &BTreeMap<u32, f64>) -> StreamStep {
        let Trial { from, to, before, .. } = trial;
        let had: f64 = self.had.values().sum();
        let have: f64 = self.had.keys().filter_map(|number| each.get(number)).sum();
        if rate >= before * GAIN_BEYOND_DOUBT && have <= had * NO_FASTER {
            self.stage = Stage::Watching;
            return self.step(to, StepReason::Gain, Some(before), Some(rate));
        }
        if rate >= before * GAIN {
            self.stage = Stage::Comparing(trial, rate);
            return self.step(from, StepReason::Compare, Some(before), Some(rate));
        }
        self.taken_back(trial, StepReason::NoGain, before, rate)
    }

    fn compared(&mut self, trial: Trial, with: f64, rate: f64) -> StreamStep {
        let before = trial.before.max(rate);
        if with < before * GAIN {
            return self.taken_back(trial, StepReason::NoGain, before, with);
        }
        self.stage = Stage::Watching;
        self.step(trial.to, StepReason::Gain, Some(before), Some(with))
    }

    fn tried_fewer(&mut self, trial: Trial, rate: f64, seen: Option<Seen>) -> Option<StreamStep> {
        self.stage = Stage::Watching;
        let (before, after) = (Some(trial.before), Some(rate));
        if rate >= trial.before * AS_FAST {
            return Some(self.step(trial.to, StepReason::AsFast, before, after));
        }
        if seen.is_some_and(|seen| seen.queue >= MOSTLY) {
            // The queue stays although less is sent: it is not ours alone.
            self.is_settled = true;
            return Some(self.step(BESIDE_OTHERS, StepReason::Others, before, after));
        }
        Some(self.taken_back(trial, StepReason::Slower, trial.before, rate))
    }

    /// As many streams as before the trial.
    fn taken_back(
        &mut self,
        trial: Trial,
        reason: StepReason,
        before: f64,
        after: f64,
    ) -> StreamStep {
        *self.failed.entry(trial.reason.name()).or_default() += 1;
        self.stage = Stage::Watching;
        self.step(trial.from, reason, Some(before), Some(after))
    }

    fn settle(&mut self, reason: StepReason) -> StreamStep {
        self.is_settled = true;
        self.step(self.count, reason, None, None)
    }

    /// Streams were not opened, or have not ended, for long.
    fn give_up(&mut self) -> StreamStep {
        self.is_settled = true;
        let to = match self.stage {
            Stage::Trying(trial) => trial.from,
            Stage::Watching | Stage::Comparing(..) => self.count,
        };
        self.step(to, StepReason::Late, None, None)
    }

    fn settle_in_time(&mut self) -> Option<StreamStep> {
        let is_time = self.spent() >= SETTLED_WITHIN;
        is_time.then(|| self.settle(StepReason::NothingSeen))
    }

    fn step(
        &mut self,
        to: u16,
        reason: StepReason,
        before: Option<f64>,
        after: Option<f64>,
    ) -> StreamStep {
        let from = std::mem::replace(&mut self.count, to);
        let rate = |bytes_per_second| Rate { bytes_per_second };
        let (before, after) = (before.map(rate), after.map(rate));
        StreamStep { at: self.spent(), from, to, reason, before, after }
    }

    fn spent(&self) -> Nanos {
        self.begun.map_or(Nanos(0), |begun| self.now.since(begun))
    }

    /// How long it takes, about, until it is known what so many streams bring: a measurement, and
    /// what streams that end have still to send.
    fn trial_takes(&self, to: u16, rate: f64) -> Nanos {
        let measures = SPAN_MIN.0 + CALM_MIN.0;
        if to >= self.count {
            return Nanos(measures);
        }
        let of_each = rate / f64::from(self.count.max(1));
        let ends_s = self.bounds.lane_bytes as f64 / of_each.max(1.0);
        Nanos(measures) + Nanos((ends_s.min(1e6) * 1e9) as u64)
    }
}

impl Span {
    /// Takes a look with as many streams as there are to be; the rate, once it was measured long
    /// enough.
    fn measure(&mut self, look: &Look) -> Option<f64> {
        let round_trip = look.senders.values().map(|sample| sample.rtt.0).max().unwrap_or(0);
        let complete = *self.complete.get_or_insert(look.at);
        let calm = (round_trip * CALM_RTTS).clamp(CALM_MIN.0, SPAN_MIN.0);
        if look.at.since(complete).0 < calm {
            return None;
        }
        let (begun, bytes) = *self.begun.get_or_insert((look.at, look.delivered_bytes));
        self.add(look);
        let spent = look.at.since(begun);
        let needed = (round_trip * SPAN_RTTS).clamp(SPAN_MIN.0, SPAN_MAX.0);
        let delivered = look.delivered_bytes.saturating_sub(bytes);
        (spent.0 >= needed).then(|| delivered as f64 / spent.seconds())
    }

    fn add(&mut self, look: &Look) {
        for (number, sample) in &look.senders {
            self.first.entry(*number).or_insert(*sample);
            let Some(last) = self.last.insert(*number, *sample) else { continue };
            let spent = sample.at.since(last.at);
            if spent.0 == 0 {
                continue; // it is the same sample
            }
            self.samples += 1;
            self.with_queue += u32::from(has_queue(sample));
            let fills =
                f64::from(sample.unacked_segments) >= FULL_WINDOW * f64::from(sample.cwnd_segments);
            self.with_full_window += u32::from(fills);
            let lost = sample.segments_retransmitted.saturating_sub(last.segments_retransmitted);
            let burst = BURST_SEGMENTS * (spent.seconds() / LOOK_EVERY.seconds()).max(1.0);
            self.with_losses += u32::from(lost > 0);
            self.with_bursts += u32::from(lost as f64 > burst);
        }
    }

    /// What each stream delivered, in bytes a second.
    fn rates(&self) -> BTreeMap<u32, f64> {
        let rate = |(number, first): (&u32, &PathSample)| {
            let last = self.last.get(number).filter(|last| last.at > first.at)?;
            let bytes = last.bytes_acked.saturating_sub(first.bytes_acked) as f64;
            Some((*number, bytes / last.at.since(first.at).seconds()))
        };
        self.first.iter().filter_map(rate).collect()
    }

    /// What was seen; `None` where no sample has come yet.
    fn seen(&self) -> Option<Seen> {
        let pairs: Vec<(&PathSample, &PathSample)> = self
            .first
            .iter()
            .filter_map(|(number, first)| Some((first, self.last.get(number)?)))
            .filter(|(first, last)| last.at > first.at)
            .collect();
        if pairs.is_empty() || self.samples == 0 {
            return None;
        }
        let mean = |of: &dyn Fn(&PathSample) -> Nanos| {
            let share = |(first, last): &(&PathSample, &PathSample)| {
                (of(last) - of(first)).seconds() / last.at.since(first.at).seconds()
            };
            pairs.iter().map(share).sum::<f64>() / pairs.len() as f64
        };
        let filled = |(first, last): &(&PathSample, &PathSample)| {
            let bytes = last.bytes_acked.saturating_sub(first.bytes_acked) as f64;
            let under_way = bytes / last.at.since(first.at).seconds() * last.rtt.seconds();
            under_way / f64::from(last.peer_window_bytes.max(1))
        };
        let part = |count: u32| f64::from(count) / f64::from(self.samples);
        let has_clocks = pairs.iter().any(|(_, last)| last.clocks.sink.0 > 0);
        let waits = mean(&|sample| sample.clocks.source + sample.clocks.sink + sample.clocks.idle);
        Some(Seen {
            window: mean(&|sample| sample.window_limited),
            window_filled: pairs.iter().map(filled).sum::<f64>() / pairs.len() as f64,
            buffer: mean(&|sample| sample.buffer_limited),
            queue: part(self.with_queue),
            full_window: part(self.with_full_window),
            busy: if has_clocks { 1.0 - waits } else { 0.0 },
            lost: self.with_losses > 0,
            lost_in_bursts: 2 * self.with_bursts > self.with_losses,
        })
    }
}

impl Seen {
    /// Why another number of streams is worth a trial.
    fn reason(self, count: u16, cpus: u16) -> Option<StepReason> {
        let overflows = self.lost && self.lost_in_bursts;
        let is_full = self.full_window >= MOSTLY;
        // A sender that is paced comes to send what its window lets through, and seldom waits.
        let fills_window = self.window >= WINDOW_FELT && self.window_filled >= WINDOW_FILLED;
        match self {
            _ if self.queue >= MOSTLY || (is_full && overflows) => Some(StepReason::Queue),
            _ if self.window >= MOSTLY || (fills_window && !is_full) => {
                Some(StepReason::ReceiveWindow)
            }
            _ if self.buffer >= BUFFER_LIMITS => Some(StepReason::SendBuffer),
            _ if is_full && self.lost => Some(StepReason::Losses),
            _ if is_full => None, // its window still grows
            _ if self.busy >= BUSY && cpus > count => Some(StepReason::Cpu),
            _ => None,
        }
    }
}

/// On a short path a queue is told from a thread that waits for a CPU only by its length.
fn has_queue(sample: &PathSample) -> bool {
    let (now, least) = (sample.rtt, sample.rtt_min);
    let is_known = least.0 > 0 && least.0 < u64::from(u32::MAX) * 1000;
    let least_queue = if least < SHORT_RTT { SHORT_QUEUE } else { Nanos(least.0 / 4) };
    is_known && now >= least + least_queue
}

/// How often streams are looked at.
pub(crate) const LOOK_EVERY: Nanos = Nanos::from_millis(100);
/// No trial begins that would not be over by then, counted from the first bytes.
const SETTLED_WITHIN: Nanos = Nanos::from_millis(20_000);
/// How long streams may take to be opened, or to end.
const COMPLETE_WITHIN: Nanos = Nanos::from_millis(10_000);
/// A rate is measured over so many round trips, at least and at most so long; before that, streams
/// get so many to find their windows.
const SPAN_RTTS: u64 = 8;
const SPAN_MIN: Nanos = Nanos::from_millis(1_000);
const SPAN_MAX: Nanos = Nanos::from_millis(2_000);
const CALM_RTTS: u64 = 6;
const CALM_MIN: Nanos = Nanos::from_millis(300);
/// More streams stay if they are this much faster; fewer if they are as fast as this.
const GAIN: f64 = 1.08;
/// This much faster cannot be the path alone where the streams of before are no faster than this.
const GAIN_BEYOND_DOUBT: f64 = 1.5;
const NO_FASTER: f64 = 1.1;
const AS_FAST: f64 = 0.95;
/// After so many trials for a reason that gained nothing there is no other.
const FAILED_MAX: u32 = 2;
/// No more than this many streams where others fill the path too.
const BESIDE_OTHERS: u16 = 4;
/// After so many spans with a queue the path is full.
const FULL_SPANS: u32 = 3;
/// Shares from which on something holds a stream back: see docs/decisions/0028-diagnosis.md.
const MOSTLY: f64 = 0.5;
const WINDOW_FELT: f64 = 0.02;
const WINDOW_FILLED: f64 = 0.85;
const BUFFER_LIMITS: f64 = 0.2;
const FULL_WINDOW: f64 = 0.8;
const BUSY: f64 = 0.7;
/// More segments than this lost in one look are the overflow of a queue.
const BURST_SEGMENTS: f64 = 10.0;
const SHORT_RTT: Nanos = Nanos::from_millis(1);
const SHORT_QUEUE: Nanos = Nanos::from_millis(2);

#[cfg(test)]
mod tests;
