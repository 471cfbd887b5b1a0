//! Whether others send over the bottleneck too.
//!
//! While a queue stands at the bottleneck, it is never idle. If all of what passes it is ours, it
//! serves us at its own rate, which is constant, and the queue follows what we have in flight. If
//! others send too, what we get changes with what they send, and the queue follows them. So what
//! counts is how much the rate at which we are served varies over time while a queue stands. A path
//! whose own rate changes once has two rates, each of them constant.
//!
//! That rate is what is in flight over the round trip (Little's law): acknowledgements that come in
//! bursts, or all at once when a gap is filled, do not disturb it.

use serde::Serialize;

use super::series::{Series, Step, weighted_quantile};

/// How the bottleneck served all streams together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sharing {
    /// The share of the time with a standing queue.
    pub queued: f64,
    /// Half of the range of the middle two thirds of the rates meanwhile, over their median: for
    /// a normal distribution the standard deviation over the mean. Where the rate changed once for
    /// all, the larger one of before and after.
    pub variation: f64,
}

/// Of all streams, each after its ramp; `None` where too little time had a standing queue.
pub fn sharing(streams: &[(&Series, f64)], round_trip_s: f64) -> Option<Sharing> {
    let length_s = bin_seconds(streams, round_trip_s)?;
    let start_s = streams.iter().map(|(series, _)| series.origin_s()).reduce(f64::min)?;
    let end_s = streams.iter().map(|(series, _)| series.origin_s() + series.seconds());
    let count = ((end_s.fold(0.0, f64::max) - start_s) / length_s) as usize;
    let mut bins = vec![Bin::default(); count.min(BINS_MAX)];
    for (series, ramp_s) in streams {
        let offset_s = series.origin_s() - start_s;
        let mut own = vec![Served::default(); bins.len()];
        for step in series.steps().filter(|step| step.from_s >= *ramp_s) {
            let bin = ((offset_s + step.from_s) / length_s) as usize;
            own.get_mut(bin).into_iter().for_each(|served| served.add(&step));
        }
        for (bin, served) in bins.iter_mut().zip(&own) {
            bin.add(served, length_s);
        }
    }
    // Only times at which all streams were seen, and none was repairing a loss.
    let whole: Vec<&Bin> = bins.iter().filter(|bin| bin.streams == streams.len()).collect();
    let queued: Vec<&&Bin> = whole.iter().filter(|bin| bin.has_queue(round_trip_s)).collect();
    if queued.len() < BINS_MIN {
        return None;
    }
    let rates: Vec<f64> = queued.iter().map(|bin| bin.bytes_per_s).collect();
    let level = Level::of(&rates);
    (level.middle > 0.0).then(|| Sharing {
        queued: queued.len() as f64 / whole.len() as f64,
        variation: one_step(&rates).unwrap_or(level.variation),
    })
}

/// Some round trips, and as long as many segments take: one more or less in flight is no change.
fn bin_seconds(streams: &[(&Series, f64)], round_trip_s: f64) -> Option<f64> {
    let rate: f64 =
        streams.iter().map(|(series, _)| series.rate_between(0.0, series.seconds())).sum();
    let mss = streams.iter().filter_map(|(series, _)| series.samples().last());
    let mss = mss.map(|sample| f64::from(sample.mss_bytes)).fold(0.0, f64::max);
    let segments_s = BIN_SEGMENTS * mss / rate;
    segments_s
        .is_finite()
        .then(|| (BIN_ROUND_TRIPS * round_trip_s).max(BIN_SECONDS_MIN).max(segments_s))
}

/// The rates of a time.
#[derive(Clone, Copy, Debug)]
struct Level {
    middle: f64,
    variation: f64,
}

impl Level {
    fn of(rates: &[f64]) -> Level {
        let mut rates: Vec<(f64, f64)> = rates.iter().map(|rate| (*rate, 1.0)).collect();
        let [low, middle, high] =
            [1.0 / 6.0, 0.5, 5.0 / 6.0].map(|part| weighted_quantile(&mut rates, part));
        Level { middle, variation: (high - low) / 2.0 / middle.max(f64::MIN_POSITIVE) }
    }
}

/// The variation of the rates where they have two levels, one after the other, far apart for how
/// much each varies.
fn one_step(rates: &[f64]) -> Option<f64> {
    let places = BINS_MIN..(rates.len() + 1).saturating_sub(BINS_MIN);
    let step = places.step_by((rates.len() / PLACES_MAX).max(1)).filter_map(|place| {
        let [before, after] = [Level::of(&rates[..place]), Level::of(&rates[place..])];
        let variation = before.variation.max(after.variation);
        let apart = (before.middle - after.middle).abs();
        (apart >= STEP_MIN * variation * before.middle.max(after.middle)).then_some(variation)
    });
    step.reduce(f64::min)
}

/// All streams in a short time.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    streams: usize,
    bytes_per_s: f64,
    round_trip_s: f64,
}

impl Bin {
    fn add(&mut self, served: &Served, length_s: f64) {
        if served.seconds >= length_s * SEEN_MIN {
            self.streams += 1;
            self.bytes_per_s += served.bytes / served.seconds;
            self.round_trip_s = self.round_trip_s.max(served.round_trips / served.seconds);
        }
    }

    fn has_queue(&self, round_trip_s: f64) -> bool {
        let queue_s = self.round_trip_s - round_trip_s;
        let is_long = queue_s > (round_trip_s * QUEUE_SHARE).max(QUEUE_SECONDS);
        is_long && queue_s * self.bytes_per_s >= QUEUED_BYTES_MIN
    }
}

/// One stream in a short time: sums over the seconds in which no segment was missing.
#[derive(Clone, Copy, Debug, Default)]
struct Served {
    seconds: f64,
    bytes: f64,
    round_trips: f64,
}

impl Served {
    fn add(&mut self, step: &Step<'_>) {
        let after = step.after;
        let round_trip_s = after.rtt.seconds();
        if step.before.state != 0 || after.state != 0 || round_trip_s <= 0.0 {
            return;
        }
        let in_flight = f64::from(after.unacked_segments) * f64::from(after.mss_bytes);
        self.seconds += step.seconds();
        self.bytes += step.seconds() * in_flight / round_trip_s;
        self.round_trips += step.seconds() * round_trip_s;
    }
}

const BIN_ROUND_TRIPS: f64 = 4.0;
const BIN_SECONDS_MIN: f64 = 0.25;
const BIN_SEGMENTS: f64 = 100.0;
const BINS_MAX: usize = 100_000;
/// Fewer say nothing.
const BINS_MIN: usize = 8;
/// Of a long transfer not each place is tried.
const PLACES_MAX: usize = 200;
/// Two levels are a step where they are this many times as far apart as each varies.
const STEP_MIN: f64 = 10.0;
/// The part of such a time in which a stream must have been seen.
const SEEN_MIN: f64 = 0.5;
/// A round trip longer than the least one by this shows a queue, and more than a loaded host adds.
const QUEUE_SHARE: f64 = 0.1;
const QUEUE_SECONDS: f64 = 0.0025;
/// Four segments of Ethernet's size wait in it, ours: delayed acknowledgements (RFC 1122, 4.2.3.2)
/// make round trips look as long as fewer do, which shows where losses keep the window small.
const QUEUED_BYTES_MIN: f64 = 4.0 * 1448.0;
