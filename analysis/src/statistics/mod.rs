//! Summaries of a sample: median, spread, and intervals of both. Everything here is a pure function
//! of numbers and, where it resamples, of a seed: no record and no other module.

use std::borrow::Borrow;

use rand::RngExt;
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};
use statrs::statistics::{Data, OrderStatistics};

/// A value with its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Estimate {
    pub fn exactly(value: f64) -> Estimate {
        Estimate { value, low: value, high: value }
    }

    pub fn holds(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// Median and spread of a sample. Values that are not finite are left out and counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub n: usize,
    pub median: f64,
    pub lower_quartile: f64,
    pub upper_quartile: f64,
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    /// Of the mean; 0 where there is only one value.
    pub standard_error: f64,
    /// Values beyond 1.5 interquartile ranges from the quartiles. They are flagged and kept.
    pub outliers: usize,
    /// Those of them beyond 3.
    pub far_outliers: usize,
    pub not_numbers: usize,
}

/// How far a value is from the others, by Tukey's fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    Inside,
    /// Beyond 1.5 interquartile ranges.
    Outlier,
    /// Beyond 3.
    Far,
}

impl Spread {
    /// `None` where there is no number at all.
    pub fn of<V: Borrow<f64>>(values: impl IntoIterator<Item = V>) -> Option<Spread> {
        let values: Vec<f64> = values.into_iter().map(|value| *value.borrow()).collect();
        let finite = finite(&values);
        if finite.is_empty() {
            return None;
        }
        let n = finite.len();
        let mean = finite.iter().sum::<f64>() / n as f64;
        let squares: f64 = finite.iter().map(|value| (value - mean).powi(2)).sum();
        let standard_error = match n {
            1 => 0.0,
            n => (squares / (n - 1) as f64 / n as f64).sqrt(),
        };
        let mut spread = Spread {
            n,
            median: quantile(&finite, 0.5),
            lower_quartile: quantile(&finite, 0.25),
            upper_quartile: quantile(&finite, 0.75),
            min: finite[0],
            max: finite[n - 1],
            mean,
            standard_error,
            not_numbers: values.len() - n,
            ..Spread::default()
        };
        let fences: Vec<Fence> = finite.iter().map(|value| spread.fence(*value)).collect();
        spread.outliers = fences.iter().filter(|fence| **fence != Fence::Inside).count();
        spread.far_outliers = fences.iter().filter(|fence| **fence == Fence::Far).count();
        Some(spread)
    }

    /// The median with the range, `1.35 (1.31–1.42)`; one value alone has no range.
    pub fn text(&self, digits: usize) -> String {
        match self.min == self.max {
            true => format!("{:.digits$}", self.median),
            false => {
                format!("{:.digits$} ({:.digits$}–{:.digits$})", self.median, self.min, self.max)
            }
        }
    }

    pub(crate) fn interquartile_range(&self) -> f64 {
        self.upper_quartile - self.lower_quartile
    }

    pub(crate) fn fence(&self, value: f64) -> Fence {
        let beyond = (self.lower_quartile - value).max(value - self.upper_quartile);
        let range = self.interquartile_range();
        // Of values that are almost equal, rounding makes none an outlier.
        let slack = 1e-9 * self.median.abs();
        match beyond {
            beyond if beyond > 3.0 * range + slack => Fence::Far,
            beyond if beyond > 1.5 * range + slack => Fence::Outlier,
            _ => Fence::Inside,
        }
    }
}

/// The finite values, sorted.
fn finite(values: &[f64]) -> Vec<f64> {
    let mut finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    finite.sort_by(f64::total_cmp);
    finite
}

/// `None` where there is no number.
pub fn median(values: &[f64]) -> Option<f64> {
    let finite = finite(values);
    (!finite.is_empty()).then(|| quantile(&finite, 0.5))
}

/// A quantile by the approximately median-unbiased rule (Hyndman and Fan's eighth).
fn quantile(finite: &[f64], share: f64) -> f64 {
    match share {
        0.5 => Data::new(finite.to_vec()).median(),
        share => Data::new(finite.to_vec()).quantile(share),
    }
}

/// How many times a sample is resampled.
pub(crate) const RESAMPLES: usize = 2000;

/// Resamples every stratum, with replacement: `strata` are indices of a sample, and each result has
/// as many indices.
#[derive(Debug)]
pub(crate) struct Bootstrap<'a> {
    strata: &'a [Vec<usize>],
    generator: Pcg64,
}

impl<'a> Bootstrap<'a> {
    pub(crate) fn new(strata: &'a [Vec<usize>], seed: u64) -> Bootstrap<'a> {
        Bootstrap { strata, generator: generator(seed) }
    }

    pub(crate) fn draw(&mut self) -> Vec<usize> {
        let generator = &mut self.generator;
        let of = |stratum: &'a Vec<usize>| stratum.iter().map(move |_| stratum);
        let places = self.strata.iter().flat_map(of);
        places.map(|stratum| stratum[generator.random_range(0..stratum.len())]).collect()
    }
}

/// The random number generator of a seed.
pub fn generator(seed: u64) -> Pcg64 {
    Pcg64::new(u128::from(seed), PCG_STREAM)
}

/// The 95 % percentile interval of the resampled values, widened where necessary to contain
/// `value`.
pub(crate) fn percentile_interval(value: f64, resampled: &[f64]) -> Estimate {
    let finite = finite(resampled);
    if finite.is_empty() {
        return Estimate { value, low: value, high: value };
    }
    // Percentiles without interpolation.
    let last = (finite.len() - 1) as f64;
    let at = |share: f64| finite[(share * last).round() as usize];
    Estimate { value, low: at(0.025).min(value), high: at(0.975).max(value) }
}

/// The median with its bootstrap interval.
pub fn median_estimate(values: &[f64], seed: u64) -> Option<Estimate> {
    let values = finite(values);
    let value = median(&values)?;
    let strata = [(0..values.len()).collect::<Vec<_>>()];
    let mut bootstrap = Bootstrap::new(&strata, seed);
    let drawn: Vec<f64> =
        (0..RESAMPLES).filter_map(|_| median(&picked(&values, &bootstrap.draw()))).collect();
    Some(percentile_interval(value, &drawn))
}

/// The ratio of two medians with its bootstrap interval. A difference is significant only where 1
/// is outside that interval. `None` where there is nothing to divide, or to divide by.
pub(crate) fn ratio_of_medians(above: &[f64], below: &[f64], seed: u64) -> Option<Estimate> {
    let (above, below) = (finite(above), finite(below));
    let ratio = |above: &[f64], below: &[f64]| {
        let ratio = median(above)? / median(below)?;
        ratio.is_finite().then_some(ratio)
    };
    let value = ratio(&above, &below)?;
    let strata = [(0..above.len()).collect(), (above.len()..above.len() + below.len()).collect()];
    let both: Vec<f64> = above.iter().chain(&below).copied().collect();
    let mut bootstrap = Bootstrap::new(&strata, seed);
    let drawn: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| {
            let drawn = picked(&both, &bootstrap.draw());
            let (above, below) = drawn.split_at(above.len());
            ratio(above, below)
        })
        .collect();
    Some(percentile_interval(value, &drawn))
}

/// The lower end of the 95 % interval of a share, of which so many of all were seen (Wilson 1927).
/// 0 where there are none.
///
/// ```
/// use analysis::statistics::least_share;
///
/// assert!((least_share(96, 100) - 0.9016).abs() < 1e-4);
/// ```
pub fn least_share(seen: u64, all: u64) -> f64 {
    if all == 0 {
        return 0.0;
    }
    let (share, all) = (seen as f64 / all as f64, all as f64);
    let part = NORMAL_975 * NORMAL_975 / all;
    let middle = share + part / 2.0;
    let half = (part * (share * (1.0 - share) + part / 4.0)).sqrt();
    (middle - half) / (1.0 + part)
}

/// Of the standard normal distribution, the value below which 97.5 % lie.
const NORMAL_975: f64 = 1.959_964;

fn picked(values: &[f64], indices: &[usize]) -> Vec<f64> {
    indices.iter().map(|index| values[*index]).collect()
}

/// A line by the median of the slopes of all pairs of points, and the median of the residuals
/// (Theil 1950, Sen 1968): up to 29 % of the points may be outliers. `None` where all points have
/// the same x.
///
/// ```
/// use analysis::statistics::theil_sen;
///
/// let points = [(1.0, 12.0), (2.0, 14.0), (3.0, 16.0), (4.0, 99.0), (5.0, 20.0)];
/// let line = theil_sen(&points).unwrap();
/// assert!((line.slope - 2.0).abs() < 0.5, "one outlier of five does not count");
/// ```
pub fn theil_sen(points: &[(f64, f64)]) -> Option<Line> {
    let mut points: Vec<(f64, f64)> =
        points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    // The number of pairs grows with the square of the points: beyond a thousand points, every
    // second, third, … is enough.
    let step = points.len().div_ceil(THEIL_SEN_POINTS_MAX).max(1);
    let points: Vec<(f64, f64)> = points.into_iter().step_by(step).collect();
    let mut slopes = Vec::new();
    for (i, (x0, y0)) in points.iter().enumerate() {
        let right = points[i + 1..].iter().filter(|(x, _)| x != x0);
        slopes.extend(right.map(|(x, y)| (y - y0) / (x - x0)));
    }
    let slope = median(&slopes)?;
    let rest: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
    Some(Line { slope, intercept: median(&rest)? })
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    pub slope: f64,
    pub intercept: f64,
}

/// Where a series of rates became steady, and the mean from there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    pub from_index: usize,
    pub mean: f64,
}

/// Finds where a series became steady by MSER-5 (White 1997; White, Cobb and Spratt 2000): of all
/// truncation points, the one that minimises the standard error of the mean of batches of five.
/// `None` where the series is too short, or where that point is in its second half: then it was not
/// steady for long enough.
pub fn steady_state(rates: &[f64]) -> Option<Steady> {
    if rates.iter().any(|rate| !rate.is_finite()) {
        return None;
    }
    let batches: Vec<f64> =
        rates.chunks_exact(MSER_BATCH).map(|batch| mean(batch).unwrap_or(0.0)).collect();
    if batches.len() < MSER_BATCHES_MIN {
        return None;
    }
    // The last batches are too few to estimate their variance.
    let cuts = 0..=batches.len() - MSER_BATCHES_MIN / 2;
    let scored = cuts.map(|cut| (cut, squared_standard_error(&batches[cut..])));
    let (cut, _) = scored.min_by(|a, b| a.1.total_cmp(&b.1))?;
    if cut > batches.len() / 2 {
        return None;
    }
    let from_index = cut * MSER_BATCH;
    Some(Steady { from_index, mean: mean(&rates[from_index..])? })
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn squared_standard_error(values: &[f64]) -> f64 {
    let Some(mean) = mean(values) else { return f64::INFINITY };
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    squares / (values.len() as f64).powi(2)
}

/// The relative error of Mayr and Gray (2000): `max/min - 1`. 0 where both are the same, and
/// infinite where one is not above 0.
pub fn symmetric_error(observed: f64, predicted: f64) -> f64 {
    let (low, high) = (observed.min(predicted), observed.max(predicted));
    match low > 0.0 && high.is_finite() {
        true => high / low - 1.0,
        false => f64::INFINITY,
    }
}

/// The same, below 0 where the prediction is too low.
pub(crate) fn signed_error(observed: f64, predicted: f64) -> f64 {
    let error = symmetric_error(observed, predicted);
    if predicted < observed { -error } else { error }
}

/// Any odd constant: the stream of the generator, so that a seed always gives the same numbers.
const PCG_STREAM: u128 = 0xa02b_dbf7_bb3c_0a7a_c28f_a16a_64ab_f96b;
const THEIL_SEN_POINTS_MAX: usize = 1000;
const MSER_BATCH: usize = 5;
const MSER_BATCHES_MIN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_samples() {
        let cases: [(&[f64], f64, usize, usize); 5] = [
            (&[3.0, 1.0, 2.0], 2.0, 0, 0),
            (&[1.0, 2.0, 3.0, 4.0], 2.5, 0, 0),
            (&[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0], 1.0, 1, 1),
            (&[10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 24.9], 13.5, 1, 0),
            (&[f64::NAN, 5.0, f64::INFINITY], 5.0, 0, 0),
        ];
        for (values, median, outliers, far) in cases {
            let spread = Spread::of(values).unwrap();
            assert_eq!(spread.median, median, "{values:?}");
            assert_eq!((spread.outliers, spread.far_outliers), (outliers, far), "{spread:?}");
        }
        assert_eq!(Spread::of::<f64>([]), None);
        assert_eq!(Spread::of([f64::NAN]), None);
        assert_eq!(ratio_of_medians(&[1.0], &[0.0], 1), None);
        assert_eq!(ratio_of_medians(&[], &[1.0], 1), None);
        assert_eq!(theil_sen(&[(1.0, 2.0), (1.0, 3.0)]), None);
    }

    #[test]
    fn a_difference_is_told_from_none() {
        let one: Vec<f64> = (0..20).map(|i| 100.0 + f64::from(i % 5)).collect();
        let more: Vec<f64> = one.iter().map(|value| value * 1.2).collect();
        let same = ratio_of_medians(&one, &one, 7).unwrap();
        let faster = ratio_of_medians(&more, &one, 7).unwrap();
        assert!(same.low <= 1.0 && 1.0 <= same.high, "{same:?}");
        assert!(faster.low > 1.0 && (faster.value - 1.2).abs() < 1e-9, "{faster:?}");
        assert_eq!(faster, ratio_of_medians(&more, &one, 7).unwrap(), "a seed is a result");
    }

    #[test]
    fn steady_is_where_the_ramp_ends() {
        let noise = |i: usize| 1.0 + 0.01 * ((i * 7919 % 13) as f64 - 6.0);
        let ramp = |i: usize| if i < 20 { i as f64 / 20.0 } else { 1.0 };
        let check = |rates: Vec<f64>, expect: Option<std::ops::RangeInclusive<usize>>| {
            let found = steady_state(&rates);
            match expect {
                None => assert_eq!(found, None),
                Some(range) => {
                    let found = found.unwrap();
                    assert!(range.contains(&found.from_index), "{found:?}");
                    assert!((found.mean - 1.0).abs() < 0.02, "{found:?}");
                }
            }
        };
        check((0..100).map(|i| ramp(i) * noise(i)).collect(), Some(15..=25));
        check((0..100).map(noise).collect(), Some(0..=45));
        check((0..100).map(|i| i as f64).collect(), None);
        check(vec![1.0; 12], None);
        check(vec![f64::NAN; 100], None);
    }

    proptest! {
        #[test]
        fn a_spread_is_in_order(values in prop::collection::vec(-1e12..1e12f64, 1..60)) {
            let spread = Spread::of(&values).unwrap();
            prop_assert!(spread.min <= spread.lower_quartile + 1e-3);
            prop_assert!(spread.lower_quartile <= spread.median + 1e-3);
            prop_assert!(spread.median <= spread.upper_quartile + 1e-3);
            prop_assert!(spread.upper_quartile <= spread.max + 1e-3);
            prop_assert!(spread.far_outliers <= spread.outliers);
            prop_assert!(spread.outliers < spread.n.max(2));
        }

        #[test]
        fn nothing_panics(values in prop::collection::vec(any::<f64>(), 0..30)) {
            let _ = (Spread::of(&values), steady_state(&values), median(&values));
            let points: Vec<(f64, f64)> = values.chunks_exact(2).map(|p| (p[0], p[1])).collect();
            let _ = theil_sen(&points);
        }

        #[test]
        fn a_line_is_found_through_dirt(slope in -10.0..10.0f64, intercept in -10.0..10.0f64) {
            let clean = (0..30).map(|i| (f64::from(i), intercept + slope * f64::from(i)));
            let points: Vec<(f64, f64)> =
                clean.map(|(x, y)| (x, if x % 7.0 == 0.0 { 1e6 } else { y })).collect();
            let line = theil_sen(&points).unwrap();
            prop_assert!((line.slope - slope).abs() < 1e-6, "{line:?}");
            prop_assert!((line.intercept - intercept).abs() < 1e-6, "{line:?}");
        }

        #[test]
        fn errors_are_symmetric(a in 1e-9..1e9f64, b in 1e-9..1e9f64) {
            prop_assert_eq!(symmetric_error(a, b), symmetric_error(b, a));
            prop_assert!(symmetric_error(a, b) >= 0.0);
        }

        #[test]
        fn a_median_is_in_its_interval(values in prop::collection::vec(0.0..1e3f64, 1..20)) {
            let found = median_estimate(&values, 3).unwrap();
            prop_assert!(found.low <= found.value && found.value <= found.high);
        }
    }
}
