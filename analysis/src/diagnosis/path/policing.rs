//! Whether a policer limits the path: a token bucket whose excess is dropped at once.
//!
//! A policer lets a burst pass as fast as the link is, until its bucket is empty. From then on it
//! passes its own rate, always the same, and drops what is above it, without a queue. So the first
//! losses are many, after them the rate never again is what it was before, many segments are lost
//! each time that the bucket is empty again, or a few all the time where several streams keep it
//! empty and have its rate to the byte, and round trips are not longer for it (Flach et al., An
//! Internet-Wide Analysis of Traffic Policing, SIGCOMM 2016). A queue is served as fast after a
//! loss as before it, and a long one is seen in the round trip; chance takes a segment or two.

use serde::Serialize;

use super::episodes::Episode;
use super::series::{Series, weighted_quantile};
use base::path::PathSample;

/// What a policer was seen to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Policing {
    /// What it lets pass, seen over seconds.
    pub bytes_per_s: f64,
    /// The fastest round trip until the first losses, and the bytes that had arrived by then.
    pub before_bytes_per_s: f64,
    pub before_bytes: f64,
}

/// Of all streams together, each with its recovery episodes.
pub fn policing(streams: &[(&Series, &[Episode])], round_trip_s: f64) -> Option<Policing> {
    let start_s = streams.iter().map(|(series, _)| series.origin_s()).reduce(f64::min)?;
    let ends_s = streams.iter().map(|(series, _)| series.origin_s() - start_s + series.seconds());
    let end_s = ends_s.reduce(f64::min)?;
    let first = First::of(streams, start_s, round_trip_s).filter(First::is_burst)?;
    let rate = |from_s: f64, length_s: f64| -> f64 {
        let of = |(series, _): &(&Series, &[Episode])| {
            let offset_s = series.origin_s() - start_s;
            series.rate_between(from_s - offset_s, from_s + length_s - offset_s)
        };
        streams.iter().map(of).sum()
    };
    // A round trip after the first losses what was sent before them is still acknowledged.
    let trips = (first.at_s / round_trip_s) as usize + 1;
    let trips = (0..trips.min(TRIPS_MAX)).map(|trip| trip as f64 * round_trip_s);
    let before_bytes_per_s = trips.map(|from_s| rate(from_s, round_trip_s)).fold(0.0, f64::max);
    let after_s = first.at_s + SETTLE_SECONDS.max(SETTLE_ROUND_TRIPS * round_trip_s);
    let spans = ((end_s - after_s) / SPAN_SECONDS) as usize;
    let mut after: Vec<(f64, f64)> = (0..spans.min(SPANS_MAX))
        .map(|at| (rate(after_s + at as f64 * SPAN_SECONDS, SPAN_SECONDS), 1.0))
        .collect();
    let [low, high] = [0.1, 0.9].map(|part| weighted_quantile(&mut after, part));
    // While a gap is filled nothing is acknowledged, and then much at once: the mean counts.
    let mean = rate(after_s, spans as f64 * SPAN_SECONDS);
    let is_steady = spans >= SPANS_MIN && high <= STEADY_MAX * mean;
    let queue_max_s = QUEUE_SHARE_MAX * round_trip_s;
    let is_policed = is_steady
        && before_bytes_per_s >= FASTER_MIN * high
        && (low >= EVEN_MIN * high || goes_on_dropping(streams, start_s + after_s))
        && (first.queue_s <= queue_max_s
            || queue_after_s(streams, start_s + after_s) <= queue_max_s);
    is_policed.then(|| Policing {
        bytes_per_s: high,
        before_bytes_per_s,
        before_bytes: rate(0.0, first.at_s) * first.at_s,
    })
}

/// The first losses of all streams.
struct First {
    /// Since the start of the first stream.
    at_s: f64,
    lost_segments: f64,
    window_segments: f64,
    /// By how much the round trip was longer than the least one just before.
    queue_s: f64,
}

impl First {
    fn of(streams: &[(&Series, &[Episode])], start_s: f64, round_trip_s: f64) -> Option<First> {
        let each = || {
            let first = |(series, lost): &(&Series, &[Episode])| {
                let episode = *lost.first()?;
                let at_s = series.origin_s() - start_s + episode.at_s;
                Some((at_s, episode, queue_before_s(series, &episode)))
            };
            streams.iter().filter_map(first)
        };
        let at_s = each().map(|(at_s, ..)| at_s).reduce(f64::min)?;
        let nothing = First { at_s, lost_segments: 0.0, window_segments: 0.0, queue_s: 0.0 };
        let together_s = at_s + TOGETHER_ROUND_TRIPS * round_trip_s;
        let together = each().filter(|(at_s, ..)| *at_s <= together_s);
        Some(together.fold(nothing, |all, (_, episode, queue_s)| First {
            at_s,
            lost_segments: all.lost_segments + episode.retransmitted_segments as f64,
            window_segments: all.window_segments + f64::from(episode.cwnd_segments),
            queue_s: all.queue_s.max(queue_s),
        }))
    }

    fn is_burst(&self) -> bool {
        self.lost_segments >= LOST_SEGMENTS_MIN
            && self.lost_segments >= LOST_SHARE_MIN * self.window_segments
    }
}

/// A whole bucket's worth is lost again and again, or all the time: chance takes a segment or two.
fn goes_on_dropping(streams: &[(&Series, &[Episode])], after_s: f64) -> bool {
    let all = || {
        streams.iter().flat_map(|(series, lost)| {
            lost.iter().map(|episode| (series.origin_s() + episode.at_s, episode))
        })
    };
    let later: Vec<f64> = all()
        .filter(|(at_s, _)| *at_s >= after_s)
        .map(|(_, episode)| episode.retransmitted_segments as f64)
        .collect();
    let lasts = all().any(|(at_s, episode)| at_s + episode.length_s >= after_s);
    match later.is_empty() {
        true => lasts,
        false => later.iter().sum::<f64>() / later.len() as f64 >= LATER_SEGMENTS_MIN,
    }
}

fn queue_before_s(series: &Series, episode: &Episode) -> f64 {
    let origin = series.origin();
    let is_before = |sample: &&PathSample| {
        sample.state == 0 && sample.at.since(origin).seconds() <= episode.at_s
    };
    let last = series.samples().iter().take_while(is_before).last();
    last.map_or(f64::INFINITY, |sample| queue_s(sample, least_s(series)))
}

/// The median of all streams, where no segment is missing.
fn queue_after_s(streams: &[(&Series, &[Episode])], after_s: f64) -> f64 {
    let whole = |sample: &&PathSample| sample.state == 0 && sample.at.0 as f64 / 1e9 >= after_s;
    let mut all: Vec<(f64, f64)> = streams
        .iter()
        .flat_map(|(series, _)| {
            let least_s = least_s(series);
            let samples = series.samples().iter().filter(whole);
            samples.map(move |sample| (queue_s(sample, least_s), 1.0))
        })
        .collect();
    weighted_quantile(&mut all, 0.5)
}

fn least_s(series: &Series) -> f64 {
    series.round_trip_min_s().unwrap_or(0.0)
}

fn queue_s(sample: &PathSample, least_s: f64) -> f64 {
    (sample.rtt.seconds() - least_s).max(0.0)
}

const TOGETHER_ROUND_TRIPS: f64 = 2.0;
const LOST_SEGMENTS_MIN: f64 = 10.0;
/// Of the congestion window: at twice the rate that passes, half is lost.
const LOST_SHARE_MIN: f64 = 0.25;
/// Of the least round trip.
const QUEUE_SHARE_MAX: f64 = 0.2;
/// The rate before the first losses over the fastest seconds after them.
const FASTER_MIN: f64 = 1.5;
/// The first losses may take a second to repair.
const SETTLE_SECONDS: f64 = 1.0;
const SETTLE_ROUND_TRIPS: f64 = 10.0;
const SPAN_SECONDS: f64 = 1.0;
const SPANS_MIN: usize = 4;
const SPANS_MAX: usize = 1000;
const TRIPS_MAX: usize = 1000;
/// The fastest tenth of seconds over the mean.
const STEADY_MAX: f64 = 1.6;
/// What keeps a bucket empty has its rate in each second.
const EVEN_MIN: f64 = 0.9;
/// Of an episode, on average.
const LATER_SEGMENTS_MIN: f64 = 5.0;
