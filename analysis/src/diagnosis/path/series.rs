//! The samples of one stream, and the steps between them. Whatever was recorded, a step has a
//! positive length, and no counter decreases in it.

use std::borrow::Cow;

use base::path::PathSample;
use base::units::{Nanos, Tick};

/// The samples of one stream in order of time.
#[derive(Clone, Debug, Default)]
pub struct Series<'a> {
    samples: Cow<'a, [PathSample]>,
}

/// From one sample to the next. Times are in seconds since the first sample of the stream.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    pub before: &'a PathSample,
    pub after: &'a PathSample,
    pub from_s: f64,
    pub to_s: f64,
}

impl<'a> Series<'a> {
    /// A sample that is not later than the one before it is left out.
    pub fn of(samples: impl Into<Cow<'a, [PathSample]>>) -> Series<'a> {
        let mut samples = samples.into();
        if samples.windows(2).any(|pair| pair[1].at <= pair[0].at) {
            let mut last = None;
            samples.to_mut().retain(|sample| {
                let is_later = last.is_none_or(|last| sample.at > last);
                last = if is_later { Some(sample.at) } else { last };
                is_later
            });
        }
        Series { samples }
    }

    /// Without the time before the first byte was sent and after the last was acknowledged: then
    /// the stream waits for others. The end message that it sends when all are done does not count.
    pub(crate) fn while_moving(self) -> Series<'a> {
        let moves = |step: &Step<'_>| {
            let grown = |counter| step.grown(counter) > 0;
            let waiting = step.after.unacked_segments > 0 || step.after.unsent_bytes > 0;
            grown(|sample| sample.bytes_sent) || grown(|sample| sample.bytes_acked) || waiting
        };
        let steps: Vec<Step<'_>> = self.steps().collect();
        // What is acknowledged in the step of the end message was sent before it.
        let acked = |index: &usize| steps[*index].grown(|sample| sample.bytes_acked) > 0;
        let end = farewell(&steps).map(|index| index + usize::from(acked(&index)));
        let steps = &steps[..end.unwrap_or(steps.len())];
        let first = steps.iter().position(moves);
        let last = steps.iter().rposition(moves);
        let Some((first, last)) = first.zip(last) else { return self };
        let samples = match self.samples {
            Cow::Borrowed(samples) => samples[first..=last + 1].into(),
            Cow::Owned(samples) => samples[first..=last + 1].to_vec().into(),
        };
        Series { samples }
    }

    pub fn samples(&self) -> &[PathSample] {
        &self.samples
    }

    pub fn steps(&self) -> impl Iterator<Item = Step<'_>> + Clone {
        let origin = self.origin();
        self.samples.windows(2).map(move |pair| Step {
            before: &pair[0],
            after: &pair[1],
            from_s: pair[0].at.since(origin).seconds(),
            to_s: pair[1].at.since(origin).seconds(),
        })
    }

    /// When the first sample was taken.
    pub fn origin(&self) -> Tick {
        self.samples.first().map_or(Tick(0), |first| first.at)
    }

    /// The same in seconds, on the clock of the host that took the samples.
    pub(crate) fn origin_s(&self) -> f64 {
        self.origin().0 as f64 / 1e9
    }

    pub fn seconds(&self) -> f64 {
        self.samples.last().map_or(0.0, |last| last.at.since(self.origin()).seconds())
    }

    /// The least round trip; `None` where no sample has one. It is the least smoothed one: a single
    /// packet may be early by a quarter, and the kernel keeps that minimum. Only where the kernel's
    /// minimum is far below was the path loaded in all samples; then it counts.
    pub fn round_trip_min_s(&self) -> Option<f64> {
        let least = |pick: fn(&PathSample) -> Nanos| {
            let known = self.samples.iter().map(pick).filter(|time| plausible(*time));
            known.min().map(Nanos::seconds)
        };
        let smoothed = least(|sample| sample.rtt);
        let single = least(|sample| sample.rtt_min);
        match smoothed.zip(single) {
            Some((smoothed, single)) if single >= EARLY_SHARE * smoothed => Some(smoothed),
            _ => single.or(smoothed),
        }
    }

    /// Bytes that the peer has acknowledged since the first sample.
    pub fn acked_bytes(&self) -> u64 {
        self.grown(|sample| sample.bytes_acked)
    }

    /// How much a counter grew from the first sample to the last.
    pub fn grown(&self, counter: fn(&PathSample) -> u64) -> u64 {
        match (self.samples.first(), self.samples.last()) {
            (Some(first), Some(last)) => counter(last).saturating_sub(counter(first)),
            _ => 0,
        }
    }

    /// Bytes acknowledged until a time, interpolated between samples.
    pub fn acked_until(&self, seconds: f64) -> f64 {
        let Some(first) = self.samples.first() else { return 0.0 };
        let origin = self.origin();
        let time = |sample: &PathSample| sample.at.since(origin).seconds();
        let bytes =
            |sample: &PathSample| sample.bytes_acked.saturating_sub(first.bytes_acked) as f64;
        let later = self.samples.partition_point(|sample| time(sample) <= seconds);
        let Some(before) = later.checked_sub(1).map(|index| &self.samples[index]) else {
            return 0.0;
        };
        let Some(after) = self.samples.get(later) else { return bytes(before) };
        let share = (seconds - time(before)) / (time(after) - time(before));
        bytes(before) + share * (bytes(after) - bytes(before)).max(0.0)
    }

    /// Bytes acknowledged per second between two times; 0 if they are not in order.
    pub(crate) fn rate_between(&self, from_s: f64, to_s: f64) -> f64 {
        match to_s > from_s {
            true => (self.acked_until(to_s) - self.acked_until(from_s)).max(0.0) / (to_s - from_s),
            false => 0.0,
        }
    }

    /// True if no segment was missing in a span of time.
    pub(crate) fn whole_between(&self, from_s: f64, length_s: f64) -> bool {
        let origin = self.origin();
        let time = |sample: &PathSample| sample.at.since(origin).seconds();
        let first = self.samples.partition_point(|sample| time(sample) < from_s);
        let behind = self.samples.partition_point(|sample| time(sample) <= from_s + length_s);
        let last = (behind + 1).min(self.samples.len());
        self.samples[first.saturating_sub(1)..last].iter().all(|sample| sample.state == 0)
    }
}

/// The step with a stream's end message: a frame header alone, sent after an idle step.
pub(super) fn farewell(steps: &[Step<'_>]) -> Option<usize> {
    let sent = |step: &Step<'_>| step.grown(|sample| sample.bytes_sent);
    let last = steps.iter().rposition(|step| sent(step) > 0)?;
    let before = &steps[last.checked_sub(1)?];
    let idle = sent(before) == 0 && before.after.unsent_bytes == 0;
    (idle && sent(&steps[last]) <= FAREWELL_BYTES_MAX).then_some(last)
}

impl Step<'_> {
    pub fn seconds(&self) -> f64 {
        self.to_s - self.from_s
    }

    pub fn grown(&self, counter: fn(&PathSample) -> u64) -> u64 {
        counter(self.after).saturating_sub(counter(self.before))
    }

    /// By how much a clock advanced in this step, in seconds.
    pub fn ran(&self, clock: fn(&PathSample) -> Nanos) -> f64 {
        (clock(self.after) - clock(self.before)).seconds()
    }
}

/// The kernel reports `u32::MAX` microseconds where it has not measured a round trip.
fn plausible(round_trip: Nanos) -> bool {
    (1..UNKNOWN_NANOS).contains(&round_trip.0)
}

/// A slow-start threshold that has been set; before the first loss the kernel has `0x7fff_ffff`.
pub(crate) fn threshold(sample: &PathSample) -> Option<u32> {
    (1..UNSET_SEGMENTS).contains(&sample.ssthresh_segments).then_some(sample.ssthresh_segments)
}

/// A weighted quantile; 0 where all weights are 0.
pub(crate) fn weighted_quantile(values: &mut [(f64, f64)], share: f64) -> f64 {
    let [one] = weighted_quantiles(values, [share]);
    one
}

/// Several of the same values, which are sorted once.
pub(crate) fn weighted_quantiles<const N: usize>(
    values: &mut [(f64, f64)],
    shares: [f64; N],
) -> [f64; N] {
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let total: f64 = values.iter().map(|(_, weight)| weight).sum();
    shares.map(|share| {
        let mut below = 0.0;
        for (value, weight) in values.iter() {
            below += weight;
            if below >= share * total {
                return *value;
            }
        }
        values.last().map_or(0.0, |(value, _)| *value)
    })
}

/// The sum of counts, without overflow.
pub fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// A part of a whole as a number from 0 to 1; 0 where the whole is 0.
pub fn share(part: f64, whole: f64) -> f64 {
    match whole > 0.0 && part.is_finite() {
        // Adding 0 turns -0 into 0.
        true => (part / whole).clamp(0.0, 1.0) + 0.0,
        false => 0.0,
    }
}

const UNKNOWN_NANOS: u64 = 4_000_000_000_000;
const EARLY_SHARE: f64 = 0.6;
/// A frame header in a TLS record (86 bytes), and TLS's close_notify.
const FAREWELL_BYTES_MAX: u64 = 128;
const UNSET_SEGMENTS: u32 = 0x7fff_ffff;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(millis: u64, acked: u64) -> PathSample {
        let at = Tick(millis * 1_000_000);
        PathSample { at, bytes_acked: acked, ..PathSample::default() }
    }

    #[test]
    fn odd_samples_are_left_out() {
        let series = Series::of(vec![sample(10, 0), sample(5, 9), sample(10, 9), sample(20, 100)]);
        assert_eq!(series.samples().len(), 2);
        assert_eq!(series.acked_bytes(), 100);
        assert_eq!(series.seconds(), 0.01);
        let falling = Series::of(vec![sample(0, 100), sample(10, 50)]);
        assert_eq!(falling.steps().map(|step| step.grown(|s| s.bytes_acked)).sum::<u64>(), 0);
        assert_eq!(Series::of(vec![]).acked_until(1.0), 0.0);
    }

    #[test]
    fn waiting_before_and_behind_is_left_out() {
        let samples: Vec<PathSample> =
            [0, 0, 100, 200, 200, 200].iter().zip(0..).map(|(a, i)| sample(i * 10, *a)).collect();
        let moving = Series::of(&samples).while_moving();
        assert_eq!((moving.seconds(), moving.acked_bytes()), (0.02, 200));
        assert_eq!(Series::of(&samples[3..]).while_moving().samples().len(), 3);
    }

    /// A stream has sent its share, waits for the others, and sends its end message.
    #[test]
    fn a_farewell_is_left_out() {
        for (last_bytes, expect_s) in [(64, 0.02), (86, 0.02), (1448, 0.06)] {
            let sent = [0, 5000, 5000, 5000, 5000, 5000 + last_bytes, 5000 + last_bytes];
            let acked = [0, 0, 5000, 5000, 5000, 5000, 5000 + last_bytes];
            let samples: Vec<PathSample> = (0..7)
                .map(|i| PathSample { bytes_sent: sent[i], ..sample(i as u64 * 10, acked[i]) })
                .collect();
            let moving = Series::of(&samples).while_moving();
            assert_eq!(moving.seconds(), expect_s, "{last_bytes}");
        }
    }

    #[test]
    fn rates_between_samples_follow_a_line() {
        let series = Series::of(vec![sample(0, 7), sample(100, 1007), sample(200, 1007)]);
        for (from_s, to_s, expect) in
            [(0.0, 0.1, 10_000.0), (0.05, 0.15, 5_000.0), (0.1, 0.2, 0.0), (0.2, 0.1, 0.0)]
        {
            let rate = series.rate_between(from_s, to_s);
            assert!((rate - expect).abs() < 1e-6, "{from_s} to {to_s}: {rate}");
        }
    }

    #[test]
    fn quantiles_follow_the_weights() {
        let mut values = [(3.0, 1.0), (1.0, 8.0), (2.0, 1.0)];
        assert_eq!(weighted_quantile(&mut values, 0.5), 1.0);
        assert_eq!(weighted_quantile(&mut values, 0.9), 2.0);
        assert_eq!(weighted_quantile(&mut values, 1.0), 3.0);
        assert_eq!(weighted_quantile(&mut [], 0.5), 0.0);
    }
}
