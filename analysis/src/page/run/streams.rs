//! The data streams of a run on one axis of time: seconds since the first byte was sent, on the
//! clock of the sending host.

use crate::diagnosis::path::series::Series;
use crate::diagnosis::{Evidence, StreamVerdict, Verdict};
use crate::plot::scale::round_up;
use crate::record::sample::Record;
use base::path::PathSample;

pub(super) struct Streams<'a> {
    pub(super) each: Vec<One<'a>>,
    /// From the first byte to the last acknowledgement.
    pub(super) seconds: f64,
    pub(super) evidence: &'a Evidence,
}

pub(super) struct One<'a> {
    pub(super) number: u32,
    pub(super) series: Series<'a>,
    /// Of its first sample.
    pub(super) from_s: f64,
    /// `None` where it has too few samples for a verdict.
    pub(super) verdict: Option<&'a StreamVerdict>,
}

impl<'a> Streams<'a> {
    pub(super) fn of(
        record: &Record,
        evidence: &'a Evidence,
        verdict: Option<&'a Verdict>,
    ) -> Streams<'a> {
        let streams = evidence.streams.iter();
        let moving = streams.map(|stream| (stream, Series::of(&stream.sent).while_moving()));
        let known: Vec<_> = moving.filter(|(_, series)| series.samples().len() >= 2).collect();
        let origin = known.iter().map(|(_, series)| series.origin()).min().unwrap_or_default();
        let mut each: Vec<One<'a>> = known
            .into_iter()
            .map(|(stream, series)| One {
                number: stream.number,
                from_s: series.origin().since(origin).seconds(),
                series,
                verdict: verdict.and_then(|verdict| {
                    verdict.streams.iter().find(|one| one.number == stream.number)
                }),
            })
            .collect();
        each.sort_by_key(|one| one.number);
        let ends = each.iter().map(|one| one.from_s + one.series.seconds());
        let seconds = ends.fold(0.0, f64::max);
        let seconds = if each.is_empty() { record.moved.elapsed_s } else { seconds };
        Streams { each, seconds, evidence }
    }

    /// Seconds of a bin: one; less where that were fewer than forty, but not less than four round
    /// trips, in which a window is sent in bursts; more where that were more than six hundred.
    pub(super) fn bin_s(&self) -> f64 {
        let trips = self.each.iter().filter_map(|one| one.series.round_trip_min_s());
        let trip_s = trips.reduce(f64::min).unwrap_or(0.0);
        let wanted_s = (self.seconds / BINS_MIN).max(4.0 * trip_s).min(1.0);
        round_up(wanted_s.max(self.seconds / BINS_MAX).max(1e-4))
    }

    /// The beginnings of all bins, and the end of the last.
    pub(super) fn edges(&self) -> Vec<f64> {
        let bin_s = self.bin_s();
        let count = (self.seconds / bin_s).ceil().clamp(1.0, BINS_MAX * 2.0) as usize;
        (0..=count).map(|at| at as f64 * bin_s).collect()
    }
}

impl One<'_> {
    pub(super) fn name(&self) -> String {
        format!("stream {}", self.number)
    }

    /// A figure of each sample, over time.
    pub(super) fn over_time(&self, figure: impl Fn(&PathSample) -> f64) -> Vec<(f64, f64)> {
        let origin = self.series.origin();
        let at = |sample: &PathSample| self.from_s + sample.at.since(origin).seconds();
        self.series.samples().iter().map(|sample| (at(sample), figure(sample))).collect()
    }

    /// What a counter grew by in each bin, for a second, as if it grew evenly between samples.
    pub(super) fn rates(&self, edges: &[f64], counter: impl Fn(&PathSample) -> u64) -> Vec<f64> {
        let points = self.over_time(|sample| counter(sample) as f64);
        let until = |x: f64| {
            let behind = points.partition_point(|point| point.0 <= x);
            match (behind.checked_sub(1).map(|at| points[at]), points.get(behind)) {
                (None, first) => first.map_or(0.0, |point| point.1),
                (Some(last), None) => last.1,
                (Some(a), Some(b)) => a.1 + (x - a.0) / (b.0 - a.0) * (b.1 - a.1),
            }
        };
        let rate = |pair: &[f64]| (until(pair[1]) - until(pair[0])) / (pair[1] - pair[0]);
        edges.windows(2).map(rate).collect()
    }
}

/// The end of the last bin closes it.
pub(super) fn closed(edges: &[f64], values: &[f64]) -> Vec<(f64, f64)> {
    let last = values.last().copied().unwrap_or(0.0);
    edges.iter().copied().zip(values.iter().copied().chain([last])).collect()
}

const BINS_MIN: f64 = 40.0;
const BINS_MAX: f64 = 600.0;
