//! Values at a time, or over a span, from the samples of a stream.

use base::path::PathSample;
use base::units::Tick;

/// A counter at a time: interpolated between samples, and that of the nearest outside of them.
pub(crate) fn count_at(samples: &[PathSample], counter: fn(&PathSample) -> u64, at: Tick) -> f64 {
    let later = samples.partition_point(|sample| sample.at <= at);
    let before = later.checked_sub(1).map(|index| &samples[index]);
    match (before, samples.get(later)) {
        (Some(before), Some(after)) => {
            let whole_s = after.at.since(before.at).seconds();
            let share = at.since(before.at).seconds() / whole_s;
            let grown = counter(after).saturating_sub(counter(before)) as f64;
            counter(before) as f64 + share * grown
        }
        (Some(only), None) | (None, Some(only)) => counter(only) as f64,
        (None, None) => 0.0,
    }
}

/// The newest sample at or before a time; the first of all where there is none.
pub(crate) fn last_until(samples: &[PathSample], at: Tick) -> Option<&PathSample> {
    let later = samples.partition_point(|sample| sample.at <= at);
    samples.get(later.saturating_sub(1))
}

/// The mean of the samples in a span; the newest sample before it where it has none.
pub(crate) fn mean_over(
    samples: &[PathSample],
    value: fn(&PathSample) -> f64,
    from: Tick,
    to: Tick,
) -> Option<f64> {
    let first = samples.partition_point(|sample| sample.at <= from);
    let behind = samples.partition_point(|sample| sample.at <= to);
    match &samples[first.min(behind)..behind] {
        [] => last_until(samples, to).map(value),
        some => Some(some.iter().map(value).sum::<f64>() / some.len() as f64),
    }
}
