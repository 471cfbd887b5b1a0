//! A net test: what each interval moved, from samples of its streams alone. Pure: it uses
//! neither a clock nor the copy that makes the test.
//!
//! One direction is a `DirectionSamples`. All times are on the clock of the near end; samples of
//! the far end are shifted so that the first byte of each stream moves at the same time at both,
//! with an error of a round trip at most.

mod nearby;

use std::collections::BTreeMap;

use serde::Serialize;

use self::nearby::{count_at, last_until, mean_over};
use base::job::{PathRole, PathSide, StreamPath};
use base::path::PathSample;
use base::units::{Nanos, Tick};

/// How long is measured, how long is omitted before that, and the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub omit: Nanos,
    pub time: Nanos,
    pub interval: Nanos,
}

/// An interval. Both times are since the start of its part, omitted or counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    pub from: Nanos,
    pub to: Nanos,
    pub omitted: bool,
}

impl Span {
    /// The intervals in order of time; the last of each part may be shorter.
    pub fn intervals(self) -> impl Iterator<Item = Interval> {
        let parts = [(self.omit, true), (self.time, false)];
        parts.into_iter().flat_map(move |(length, omitted)| {
            let count = length.0.div_ceil(self.interval.0.max(1));
            (0..count).map(move |number| Interval {
                from: Nanos(number * self.interval.0),
                to: Nanos(((number + 1) * self.interval.0).min(length.0)),
                omitted,
            })
        })
    }

    /// When an interval begins and ends, on the clock of `began`.
    pub fn bounds(self, began: Tick, interval: Interval) -> (Tick, Tick) {
        let origin = if interval.omitted { began } else { began.after(self.omit) };
        (origin.after(interval.from), origin.after(interval.to))
    }

    pub fn end(self, began: Tick) -> Tick {
        began.after(self.omit).after(self.time)
    }
}

/// The direction of the data, from this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    Forward,
    Reverse,
}

/// The samples of one direction so far.
#[derive(Clone, Debug)]
pub struct DirectionSamples {
    pub direction: Direction,
    streams: BTreeMap<u32, Stream>,
    /// Samples closer to each other than this are dropped.
    spacing: Nanos,
}

#[derive(Clone, Debug, Default)]
struct Stream {
    near: EndSamples,
    far: EndSamples,
}

/// The samples of one end of a stream.
#[derive(Clone, Debug, Default)]
struct EndSamples {
    first: Option<PathSample>,
    /// When its first byte had moved.
    moved_at: Option<Tick>,
    samples: Vec<PathSample>,
}

/// What one stream, or all of them, moved in a span of time. Unknown values are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Moved {
    /// `None` for all streams together.
    pub stream: Option<u32>,
    /// Bytes at the near end: received, or acknowledged if it is the sender.
    pub bytes: u64,
    pub rate_bits_per_s: f64,
    /// As the sender counts them.
    pub retransmitted_segments: Option<u64>,
    /// At the end of the span.
    pub congestion_window_bytes: Option<u64>,
    /// Smoothed, the mean over the span.
    pub rtt_s: Option<f64>,
}

/// What one end of a direction moved in the time that counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct EndTotal {
    pub stream: Option<u32>,
    pub bytes: u64,
    pub rate_bits_per_s: f64,
    /// Only of the sender.
    pub retransmitted_segments: Option<u64>,
}

/// Both ends of a direction: each stream, and then all together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Total {
    /// New bytes that TCP has sent.
    pub sender: Vec<EndTotal>,
    /// Bytes that have arrived.
    pub receiver: Vec<EndTotal>,
}

impl DirectionSamples {
    /// `interval` is the shortest span that will be queried.
    pub fn new(direction: Direction, interval: Nanos) -> DirectionSamples {
        let spacing = Nanos(interval.0 / SAMPLES_IN_INTERVAL);
        DirectionSamples { direction, streams: BTreeMap::new(), spacing }
    }

    /// All samples of a finished test.
    pub fn whole(direction: Direction, paths: &[StreamPath]) -> DirectionSamples {
        let mut direction_samples = DirectionSamples::new(direction, Nanos(0));
        paths.iter().for_each(|path| direction_samples.see(path));
        direction_samples
    }

    pub fn see(&mut self, path: &StreamPath) {
        let stream = self.streams.entry(path.stream).or_default();
        let end = match path.side {
            PathSide::Near => &mut stream.near,
            PathSide::Far => &mut stream.far,
        };
        path.samples.iter().for_each(|sample| end.see(sample, path.role, self.spacing));
    }

    /// When the first byte moved, by the clock of this host.
    pub fn began(&self) -> Option<Tick> {
        self.streams.values().filter_map(|stream| stream.near.moved_at).min()
    }

    /// True when no later sample can change the values up to that time.
    pub fn is_known_until(&self, until: Tick) -> bool {
        let mut ends = self.streams.values().map(|stream| {
            let far = stream.far_here();
            let far_is_wanted = self.direction == Direction::Reverse;
            let far = far.and_then(|(end, shift)| Some((end.samples.last()?.at, shift)));
            let far = far.is_some_and(|(last, shift)| shifted(last, shift) >= until);
            let near = stream.near.samples.last().is_some_and(|last| last.at >= until);
            near && (far || !far_is_wanted)
        });
        !self.streams.is_empty() && ends.all(|known| known)
    }

    /// Each stream, and then all together. A stream that is over, or has not begun, is left out.
    pub fn between(&self, from: Tick, to: Tick) -> Vec<Moved> {
        let lives = |stream: &&Stream| stream.near.lives_between(from, to);
        let streams = self.streams.iter().filter(|(_, stream)| lives(stream));
        let mut moved: Vec<Moved> =
            streams.map(|(number, stream)| self.moved(*number, stream, from, to)).collect();
        moved.push(sum(&moved, to.since(from)));
        moved
    }

    pub fn total(&self, from: Tick, to: Tick) -> Total {
        let time = to.since(from);
        let mut total = Total::default();
        for (number, stream) in &self.streams {
            let (sender, receiver) = match self.direction {
                Direction::Forward => (stream.near_here(), stream.far_here()),
                Direction::Reverse => (stream.far_here(), stream.near_here()),
            };
            let one = |grown: u64, retransmitted| EndTotal {
                stream: Some(*number),
                bytes: grown,
                rate_bits_per_s: bits_per_second(grown, time),
                retransmitted_segments: retransmitted,
            };
            total.sender.extend(sender.map(|end| {
                let again = grown(end, |sample| sample.segments_retransmitted, from, to);
                one(grown(end, sent_once, from, to), Some(again))
            }));
            total.receiver.extend(
                receiver.map(|end| one(grown(end, |sample| sample.bytes_received, from, to), None)),
            );
        }
        for ends in [&mut total.sender, &mut total.receiver] {
            ends.extend(sum_of_ends(ends, time));
        }
        total
    }

    /// Drops samples before this time, except the last of them.
    pub fn forget(&mut self, before: Tick) {
        for stream in self.streams.values_mut() {
            let shift = stream.shift();
            stream.near.forget(before);
            if let Some(shift) = shift {
                stream.far.forget(shifted(before, -shift));
            }
        }
    }

    fn moved(&self, number: u32, stream: &Stream, from: Tick, to: Tick) -> Moved {
        let near = stream.near_here();
        let (counter, sender): (Counter, _) = match self.direction {
            Direction::Forward => (|sample| sample.bytes_acked, near),
            Direction::Reverse => (|sample| sample.bytes_received, stream.far_here()),
        };
        let bytes = near.map_or(0, |near| grown(near, counter, from, to));
        let last = sender.and_then(|(end, shift)| last_until(&end.samples, shifted(to, -shift)));
        let rtt_s = sender.and_then(|(end, shift)| {
            let (from, to) = (shifted(from, -shift), shifted(to, -shift));
            mean_over(&end.samples, |sample| sample.rtt.seconds(), from, to)
        });
        Moved {
            stream: Some(number),
            bytes,
            rate_bits_per_s: bits_per_second(bytes, to.since(from)),
            retransmitted_segments: sender
                .map(|end| grown(end, |sample| sample.segments_retransmitted, from, to)),
            congestion_window_bytes: last
                .map(|last| u64::from(last.cwnd_segments) * u64::from(last.mss_bytes)),
            rtt_s: rtt_s.filter(|rtt_s| *rtt_s > 0.0),
        }
    }
}

impl Stream {
    fn near_here(&self) -> Option<(&EndSamples, i64)> {
        self.near.first.map(|_| (&self.near, 0))
    }

    /// Samples of the far end, and how far its clock is behind ours.
    fn far_here(&self) -> Option<(&EndSamples, i64)> {
        self.shift().map(|shift| (&self.far, shift))
    }

    fn shift(&self) -> Option<i64> {
        let (near, far) = self.near.moved_at.zip(self.far.moved_at)?;
        Some(near.0.wrapping_sub(far.0) as i64)
    }
}

impl EndSamples {
    fn see(&mut self, sample: &PathSample, role: PathRole, spacing: Nanos) {
        let first = *self.first.get_or_insert(*sample);
        let moves = match role {
            PathRole::Source => sample.bytes_acked > first.bytes_acked,
            PathRole::Sink => sample.bytes_received > first.bytes_received,
        };
        if moves {
            self.moved_at.get_or_insert(sample.at);
        }
        match self.samples.last() {
            Some(last) if sample.at.since(last.at).0 <= spacing.0 => {}
            _ => self.samples.push(*sample),
        }
    }

    fn lives_between(&self, from: Tick, to: Tick) -> bool {
        let begins = self.first.is_some_and(|first| first.at < to);
        begins && self.samples.last().is_some_and(|last| last.at > from)
    }

    fn forget(&mut self, before: Tick) {
        let later = self.samples.partition_point(|sample| sample.at < before);
        self.samples.drain(..later.saturating_sub(1));
    }
}

type Counter = fn(&PathSample) -> u64;

fn sent_once(sample: &PathSample) -> u64 {
    sample.bytes_sent.saturating_sub(sample.bytes_retransmitted)
}

/// By how much a counter grew in a span on our clock.
fn grown((end, shift): (&EndSamples, i64), counter: Counter, from: Tick, to: Tick) -> u64 {
    let at = |time| count_at(&end.samples, counter, shifted(time, -shift));
    (at(to) - at(from)).max(0.0).round() as u64
}

fn shifted(at: Tick, by_ns: i64) -> Tick {
    Tick(at.0.saturating_add_signed(by_ns))
}

fn bits_per_second(bytes: u64, time: Nanos) -> f64 {
    match time.seconds() {
        seconds if seconds > 0.0 => bytes as f64 * 8.0 / seconds,
        _ => 0.0,
    }
}

/// All streams together: windows are added, and the round trip is the mean.
fn sum(moved: &[Moved], time: Nanos) -> Moved {
    let total = |of: fn(&Moved) -> Option<u64>| moved.iter().map(of).sum::<Option<u64>>();
    let bytes = moved.iter().map(|one| one.bytes).sum();
    let rtts: Vec<f64> = moved.iter().filter_map(|one| one.rtt_s).collect();
    let mean = rtts.iter().sum::<f64>() / rtts.len().max(1) as f64;
    let some = !moved.is_empty();
    Moved {
        stream: None,
        bytes,
        rate_bits_per_s: bits_per_second(bytes, time),
        retransmitted_segments: total(|one| one.retransmitted_segments).filter(|_| some),
        congestion_window_bytes: total(|one| one.congestion_window_bytes).filter(|_| some),
        rtt_s: (!rtts.is_empty()).then_some(mean),
    }
}

fn sum_of_ends(ends: &[EndTotal], time: Nanos) -> Option<EndTotal> {
    let bytes = ends.iter().map(|end| end.bytes).sum();
    (!ends.is_empty()).then(|| EndTotal {
        stream: None,
        bytes,
        rate_bits_per_s: bits_per_second(bytes, time),
        retransmitted_segments: ends.iter().map(|end| end.retransmitted_segments).sum(),
    })
}

/// More samples per interval change no figure by more than a hundredth.
const SAMPLES_IN_INTERVAL: u64 = 100;

#[cfg(test)]
mod tests;
