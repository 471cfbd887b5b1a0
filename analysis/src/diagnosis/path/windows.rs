//! The steady part of a stream divided into windows, and the features of each.

use serde::Serialize;

use super::pauses::Pause;
use super::series::{Series, Step, share, threshold, weighted_quantile, weighted_quantiles};
use base::path::PathSample;

/// Features of a part of a stream's time. Shares are of time, from 0 to 1, and all but `duration_s`
/// and `paused_s` exclude pauses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Features {
    pub from_s: f64,
    pub duration_s: f64,
    pub paused_s: f64,
    pub acked_bytes: f64,
    /// Bytes acknowledged a second.
    pub goodput: f64,
    /// With data to send or unacknowledged data.
    pub busy: f64,
    /// The part of that which is limited by the peer's window, and by our send buffer.
    pub window_limited: f64,
    pub buffer_limited: f64,
    /// The kernel marks the delivery rate as limited by the application.
    pub app_limited: f64,
    /// A segment or more is queued to be sent.
    pub queued: f64,
    /// Unacknowledged segments over the congestion window: the median.
    pub fill: f64,
    /// The peer's window: its 90th and 10th percentile.
    pub window_high_bytes: f64,
    pub window_low_bytes: f64,
    /// Unacknowledged bytes over the peer's window: the median.
    pub window_fill: f64,
    /// Unacknowledged bytes over half of the send buffer: the median. Half, as the kernel counts
    /// its own overhead as part of a buffer. 0 where the buffer is not known.
    pub buffer_fill: f64,
    /// Medians of the smoothed round trip and its deviation; the least round trip of the stream.
    pub round_trip_s: f64,
    pub deviation_s: f64,
    pub round_trip_min_s: f64,
    /// Retransmitted bytes, as a share of all sent.
    pub retransmitted: f64,
    /// The congestion window at the end, over that at the beginning.
    pub growth: f64,
    /// The congestion window is below the threshold: slow start.
    pub slow_start: f64,
    /// Shares of the lane's own clocks.
    pub source: f64,
    pub passage: f64,
    pub sink: f64,
    pub idle: f64,
    /// The median of the requested pace, if there was one.
    pub pace_bytes_per_s: Option<f64>,
}

impl Features {
    /// The share of the peer's window that the goodput would use on an empty path.
    pub(crate) fn window_use(&self) -> f64 {
        ratio(self.goodput * self.round_trip_min_s, self.window_high_bytes)
    }

    pub(crate) fn window_steadiness(&self) -> f64 {
        ratio(self.window_low_bytes, self.window_high_bytes)
    }

    /// The round trip over the least one: 1 is an empty path.
    pub(crate) fn queueing(&self) -> f64 {
        match self.round_trip_min_s > 0.0 {
            true => ratio(self.round_trip_s, self.round_trip_min_s).max(1.0),
            false => 1.0,
        }
    }

    pub(crate) fn queue_s(&self) -> f64 {
        (self.round_trip_s - self.round_trip_min_s).max(0.0)
    }

    pub(crate) fn lane(&self) -> LaneShares {
        let Features { source, passage, sink, idle, .. } = *self;
        LaneShares { source, passage, sink, idle }
    }
}

/// Shares of the time of a lane by its own clocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaneShares {
    pub source: f64,
    pub passage: f64,
    pub sink: f64,
    pub idle: f64,
}

impl LaneShares {
    /// Of all of a series.
    pub(crate) fn whole(series: &Series) -> LaneShares {
        let steps: Vec<Step<'_>> = series.steps().collect();
        LaneShares::of(steps.iter(), series.seconds())
    }

    fn of<'a>(steps: impl Iterator<Item = &'a Step<'a>> + Clone, seconds: f64) -> LaneShares {
        let clock = |clock| share(steps.clone().map(|step| step.ran(clock)).sum(), seconds);
        LaneShares {
            source: clock(|s| s.clocks.source),
            passage: clock(|s| s.clocks.passage),
            sink: clock(|s| s.clocks.sink),
            idle: clock(|s| s.clocks.idle),
        }
    }

    /// True if the lane's clocks were recorded.
    pub(crate) fn are_known(&self) -> bool {
        self.source + self.passage + self.sink + self.idle > 0.05
    }
}

/// The ramp, and the windows after it.
#[derive(Clone, Debug, Default)]
pub struct Cut {
    pub ramp_s: f64,
    pub windows: Vec<Features>,
}

/// Windows of ten round trips, a second at least, after the ramp.
pub fn cut(series: &Series, pauses: &[Pause], round_trip_s: f64, peak: f64) -> Cut {
    let ramp_s = ramp(series, round_trip_s, peak);
    let seconds = series.seconds();
    let length_s = WINDOW_SECONDS_MIN.max(WINDOW_ROUND_TRIPS * round_trip_s);
    let rest_s = seconds - ramp_s;
    // The remainder at the end is divided among the windows.
    let count = (rest_s / length_s).floor().clamp(1.0, WINDOWS_MAX) as usize;
    let length_s = rest_s / count as f64;
    let edge = |index: usize| match index == count {
        true => f64::INFINITY,
        false => ramp_s + index as f64 * length_s,
    };
    let steps: Vec<Step<'_>> = series.steps().collect();
    let windows = (0..count)
        .map(|index| {
            let first = steps.partition_point(|step| step.from_s < edge(index));
            let end = steps.partition_point(|step| step.from_s < edge(index + 1));
            features(&steps[first..end.max(first)], pauses, round_trip_s)
        })
        .filter(|window| window.duration_s > 0.0)
        .collect();
    Cut { ramp_s, windows }
}

/// The ramp ends with slow start, or when three bandwidth-delay products have arrived.
pub(crate) fn ramp(series: &Series, round_trip_s: f64, peak: f64) -> f64 {
    let product = peak * round_trip_s;
    let Some(first) = series.samples().first() else { return 0.0 };
    let over = |step: &Step<'_>| {
        let sample = step.after;
        let threshold = threshold(sample).is_some_and(|segments| sample.cwnd_segments >= segments);
        let acked = sample.bytes_acked.saturating_sub(first.bytes_acked) as f64;
        threshold || sample.state >= 3 || acked >= RAMP_PRODUCTS * product
    };
    series.steps().find(over).map_or(series.seconds(), |step| step.to_s)
}

/// The features of some steps.
pub(crate) fn features(steps: &[Step<'_>], pauses: &[Pause], round_trip_s: f64) -> Features {
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
        return Features::default();
    };
    let duration_s = last.to_s - first.from_s;
    let active: Vec<&Step<'_>> = steps.iter().filter(|step| !paused(step, pauses)).collect();
    let active_s: f64 = active.iter().map(|step| step.seconds()).sum();
    let acked: f64 = steps.iter().map(|step| step.grown(|s| s.bytes_acked) as f64).sum();
    let sent: f64 = steps.iter().map(|step| step.grown(|s| s.bytes_sent) as f64).sum();
    let again: f64 = steps.iter().map(|step| step.grown(|s| s.bytes_retransmitted) as f64).sum();
    let lane = LaneShares::of(active.iter().copied(), active_s);
    let busy_s: f64 = active.iter().map(|step| step.ran(|s| s.busy)).sum();
    let of_busy = |clock| share(active.iter().map(|step| step.ran(clock)).sum(), busy_s);
    let seen = Seen { active: &active, active_s };
    let [window_low_bytes, window_high_bytes] =
        seen.quantiles([0.1, 0.9], |s| s.peer_window_bytes.into());
    Features {
        from_s: first.from_s,
        duration_s,
        paused_s: (duration_s - active_s).max(0.0),
        acked_bytes: acked,
        goodput: ratio(acked, active_s),
        busy: share(busy_s, active_s),
        window_limited: of_busy(|s| s.window_limited),
        buffer_limited: of_busy(|s| s.buffer_limited),
        app_limited: seen.time_share(|s| s.app_limited),
        queued: seen.time_share(|s| s.unsent_bytes > 0 && s.unsent_bytes >= s.mss_bytes),
        fill: seen.quantile(0.5, |s| ratio(s.unacked_segments.into(), s.cwnd_segments.into())),
        window_high_bytes,
        window_low_bytes,
        window_fill: seen.quantile(0.5, |s| ratio(unacked_bytes(s), s.peer_window_bytes.into())),
        buffer_fill: seen
            .quantile(0.5, |s| ratio(unacked_bytes(s), f64::from(s.send_buffer_bytes) / 2.0)),
        round_trip_s: seen.quantile(0.5, |s| s.rtt.seconds()),
        deviation_s: seen.quantile(0.5, |s| s.rtt_deviation.seconds()),
        round_trip_min_s: round_trip_s,
        retransmitted: share(again, sent),
        growth: ratio(last.after.cwnd_segments.into(), first.before.cwnd_segments.into()),
        slow_start: seen.time_share(|s| threshold(s).is_none_or(|t| s.cwnd_segments < t)),
        source: lane.source,
        passage: lane.passage,
        sink: lane.sink,
        idle: lane.idle,
        pace_bytes_per_s: seen.pace(),
    }
}

/// The steps of a window that are not in pauses.
struct Seen<'a> {
    active: &'a [&'a Step<'a>],
    active_s: f64,
}

impl Seen<'_> {
    fn time_share(&self, is: impl Fn(&PathSample) -> bool) -> f64 {
        let held = self.active.iter().filter(|step| is(step.after)).map(|step| step.seconds());
        share(held.sum(), self.active_s)
    }

    fn quantile(&self, part: f64, of: impl Fn(&PathSample) -> f64) -> f64 {
        let [one] = self.quantiles([part], of);
        one
    }

    fn quantiles<const N: usize>(
        &self,
        parts: [f64; N],
        of: impl Fn(&PathSample) -> f64,
    ) -> [f64; N] {
        let mut values: Vec<(f64, f64)> =
            self.active.iter().map(|step| (of(step.after), step.seconds())).collect();
        weighted_quantiles(&mut values, parts)
    }

    fn pace(&self) -> Option<f64> {
        let none =
            self.time_share(|s| s.pace_max_bytes_per_s == 0 || s.pace_max_bytes_per_s > PACE_MAX);
        let pace = self.quantile(0.5, |s| s.pace_max_bytes_per_s as f64);
        (none < 0.5 && pace > 0.0).then_some(pace)
    }
}

fn paused(step: &Step<'_>, pauses: &[Pause]) -> bool {
    let middle = (step.from_s + step.to_s) / 2.0;
    pauses.iter().any(|pause| (pause.at_s..pause.at_s + pause.length_s).contains(&middle))
}

fn unacked_bytes(sample: &PathSample) -> f64 {
    f64::from(sample.unacked_segments) * f64::from(sample.mss_bytes)
}

/// 0 where the divisor is 0.
fn ratio(above: f64, below: f64) -> f64 {
    match below > 0.0 {
        true => above / below,
        false => 0.0,
    }
}

/// The fastest rate of acknowledgements, in bytes a second, between samples: a high percentile, as
/// acknowledgements may come in bursts. The path carries at least about this. A retransmitted
/// segment acknowledges all that arrived after it at once, so samples with missing segments are
/// left out.
pub fn fastest(series: &Series, percentile: f64) -> f64 {
    let whole = |sample: &PathSample| sample.state == 0;
    let mut rates = Vec::new();
    let (mut bytes, mut seconds) = (0.0, 0.0);
    for step in series.steps() {
        if !whole(step.before) || !whole(step.after) {
            (bytes, seconds) = (0.0, 0.0);
            continue;
        }
        bytes += step.grown(|s| s.bytes_acked) as f64;
        seconds += step.seconds();
        if seconds >= SPAN_SECONDS_MIN {
            rates.push((bytes / seconds, seconds));
            (bytes, seconds) = (0.0, 0.0);
        }
    }
    weighted_quantile(&mut rates, percentile)
}

/// The same for several streams together, between samples of the stream that has most of them.
pub(crate) fn fastest_together(streams: &[&Series], percentile: f64) -> f64 {
    let Some(most) = streams.iter().max_by_key(|series| series.samples().len()) else {
        return 0.0;
    };
    let origin_s = most.origin_s();
    let offset = |series: &Series| series.origin_s() - origin_s;
    let whole = |step: &Step<'_>| {
        let within = |s: &&Series| s.whole_between(step.from_s - offset(s), step.seconds());
        streams.iter().all(within)
    };
    let rate = |step: &Step<'_>| {
        let of = |s: &&Series| s.rate_between(step.from_s - offset(s), step.to_s - offset(s));
        streams.iter().map(of).sum::<f64>()
    };
    let steps = most.steps().filter(|step| step.seconds() >= STEP_SECONDS_MIN && whole(step));
    let mut rates: Vec<(f64, f64)> = steps.map(|step| (rate(&step), step.seconds())).collect();
    weighted_quantile(&mut rates, percentile)
}

/// The highest delivery rate that the kernel has measured: its 98th percentile.
pub(crate) fn peak_delivery(series: &Series) -> f64 {
    let steps = series.steps().filter(|step| step.after.delivery_bytes_per_s < PACE_MAX);
    let mut rates: Vec<(f64, f64)> =
        steps.map(|s| (s.after.delivery_bytes_per_s as f64, s.seconds())).collect();
    weighted_quantile(&mut rates, OFTEN)
}

pub(crate) const WINDOW_SECONDS_MIN: f64 = 1.0;
pub(crate) const WINDOW_ROUND_TRIPS: f64 = 10.0;
/// More windows than this add no information.
const WINDOWS_MAX: f64 = 5000.0;
const RAMP_PRODUCTS: f64 = 3.0;
/// In less time, late sampling counts for more than the path.
const SPAN_SECONDS_MIN: f64 = 0.007;
const STEP_SECONDS_MIN: f64 = 0.002;
/// Percentiles: a rate that is reached often enough to compare with, and one that only short trains
/// of acknowledgements reach, shorter than the time between two samples.
pub(crate) const OFTEN: f64 = 0.98;
pub(crate) const SELDOM: f64 = 0.995;
/// 100 Tbit/s: a higher value means that there is no pace.
const PACE_MAX: u64 = 12_500_000_000_000;
