//! Whether others send over the bottleneck too.
//!
//! While a queue stands at the bottleneck, it is never idle. If all of what passes it is ours, it
//! serves us at its own rate, which is constant, and the queue follows what we have in flight. If
//! others send too, what we get changes with what they send, and the queue follows them. So what
//! counts is how much the rate at which we are served varies over time while a queue stands.
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
    /// a normal distribution the standard deviation over the mean.
    pub variation: f64,
}

/// Of all streams, each after its ramp; `None` where too little time had a standing queue.
pub fn sharing(streams: &[(&Series, f64)], round_trip_s: f64) -> Option<Sharing> {
    let length_s = (BIN_ROUND_TRIPS * round_trip_s).max(BIN_SECONDS_MIN);
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
    let mut rates: Vec<(f64, f64)> = queued.iter().map(|bin| (bin.bytes_per_s, 1.0)).collect();
    let [low, middle, high] =
        [1.0 / 6.0, 0.5, 5.0 / 6.0].map(|part| weighted_quantile(&mut rates, part));
    (middle > 0.0).then(|| Sharing {
        queued: queued.len() as f64 / whole.len() as f64,
        variation: (high - low) / 2.0 / middle,
    })
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
        self.round_trip_s > round_trip_s + (round_trip_s * QUEUE_SHARE).max(QUEUE_SECONDS)
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
const BINS_MAX: usize = 100_000;
/// Fewer say nothing.
const BINS_MIN: usize = 8;
/// The part of such a time in which a stream must have been seen.
const SEEN_MIN: f64 = 0.5;
/// A round trip longer than the least one by this shows a queue, and more than a loaded host adds.
const QUEUE_SHARE: f64 = 0.25;
const QUEUE_SECONDS: f64 = 0.0025;
