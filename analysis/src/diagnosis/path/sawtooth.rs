//! The sawtooth of a rate: a period in time, found by autocorrelation.

use serde::Serialize;

use super::series::{Series, weighted_quantile};

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sawtooth {
    pub period_s: f64,
    /// 1 - trough / peak.
    pub depth: f64,
    /// 1 where each period equals the one before.
    pub correlation: f64,
}

/// `None` where the rate is not periodic, or too few periods were seen.
pub fn sawtooth(series: &Series, from_s: f64, round_trip_s: f64) -> Option<Sawtooth> {
    let bin_s = BIN_SECONDS.max(round_trip_s / 2.0);
    let bins = ((series.seconds() - from_s) / bin_s).floor();
    if bins < BINS_MIN as f64 {
        return None;
    }
    let bins = bins.min(BINS_MAX as f64) as usize;
    let time = |index: usize| from_s + index as f64 * bin_s;
    let rates: Vec<f64> =
        (0..bins).map(|index| series.rate_between(time(index), time(index + 1))).collect();
    let shortest = ((SHORTEST_ROUND_TRIPS * round_trip_s / bin_s).ceil() as usize).max(2);
    let (lag, correlation) = peak(&rates, shortest)?;
    let quantile = |share| weighted_quantile(&mut weighed(&rates), share);
    let (high, low) = (quantile(0.95), quantile(0.05));
    let depth = if high > 0.0 { 1.0 - low / high } else { 0.0 };
    (depth >= DEPTH_MIN).then_some(Sawtooth { period_s: lag as f64 * bin_s, depth, correlation })
}

/// The first lag at which the autocorrelation, once it has fallen below zero, is highest.
fn peak(rates: &[f64], shortest: usize) -> Option<(usize, f64)> {
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let off: Vec<f64> = rates.iter().map(|rate| rate - mean).collect();
    let power: f64 = off.iter().map(|value| value * value).sum();
    if !power.is_finite() || power <= 0.0 {
        return None;
    }
    // Divided by the number of terms, so that long lags do not look weak.
    let at = |lag: usize| {
        let sum: f64 = off.iter().zip(&off[lag..]).map(|(a, b)| a * b).sum();
        sum / power * off.len() as f64 / (off.len() - lag) as f64
    };
    let longest = rates.len() / 2;
    let fallen = (1..=longest).find(|lag| at(*lag) <= 0.0)?;
    let lags = fallen.max(shortest)..=longest;
    let highest = lags.map(|lag| (lag, at(lag))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    // Of a lag and its multiples, the shortest is the period.
    let nearly = (fallen.max(shortest)..=highest.0).find(|lag| {
        let value = at(*lag);
        value >= 0.9 * highest.1 && value >= at(lag - 1) && value >= at((lag + 1).min(longest))
    });
    let lag = nearly.unwrap_or(highest.0);
    let correlation = at(lag).min(1.0);
    (correlation >= CORRELATION_MIN).then_some((lag, correlation))
}

fn weighed(values: &[f64]) -> Vec<(f64, f64)> {
    values.iter().map(|value| (*value, 1.0)).collect()
}

const BIN_SECONDS: f64 = 0.1;
const BINS_MIN: usize = 20;
/// The cost of the autocorrelation grows with the square of this.
const BINS_MAX: usize = 3000;
const SHORTEST_ROUND_TRIPS: f64 = 3.0;
const CORRELATION_MIN: f64 = 0.3;
const DEPTH_MIN: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::*;
    use base::path::PathSample;
    use base::units::Tick;

    fn series(rate: impl Fn(f64) -> f64) -> Series<'static> {
        let mut acked = 0.0;
        let samples: Vec<PathSample> = (0..2000u64)
            .map(|index| {
                acked += rate(index as f64 * 0.02) * 0.02;
                let at = Tick(index * 20_000_000);
                PathSample { at, bytes_acked: acked as u64, ..PathSample::default() }
            })
            .collect();
        Series::of(samples)
    }

    #[test]
    fn a_period_is_found_and_none_is_not_invented() {
        for period_s in [1.0, 2.5, 6.0] {
            let tooth = |time: f64| 1e6 * (0.5 + 0.5 * (time / period_s).fract());
            let found = sawtooth(&series(tooth), 0.0, 0.1).unwrap();
            assert!((found.period_s / period_s - 1.0).abs() < 0.06, "{period_s}: {found:?}");
            assert!((0.35..0.6).contains(&found.depth), "{found:?}");
        }
        assert_eq!(sawtooth(&series(|_| 1e6), 0.0, 0.1), None);
        assert_eq!(sawtooth(&series(|time| 1e4 * time), 0.0, 0.1), None);
        assert_eq!(sawtooth(&Series::of(Vec::new()), 0.0, 0.1), None);
    }
}
