//! Five costs, fitted to whole copies: nonnegative, robust, with a spread from cross-validation.

use crate::statistics::median;
use nalgebra::{DMatrix, DVector};
use serde::{Deserialize, Serialize};

use crate::model::shape::Shape;

/// What a copy's costs depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Features {
    pub streams: f64,
    pub files: f64,
    pub small_bytes: f64,
    pub large_bytes: f64,
}

impl Features {
    pub fn of(shape: &Shape, streams: u16) -> Features {
        Features {
            streams: f64::from(streams),
            files: shape.files as f64,
            small_bytes: shape.small_bytes as f64,
            large_bytes: shape.large_bytes as f64,
        }
    }

    fn row(&self) -> [f64; COSTS] {
        [1.0, self.streams, self.files, self.small_bytes, self.large_bytes]
    }
}

/// What a copy costs on one route: seconds of time, or of CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub fixed_s: f64,
    pub lane_s: f64,
    pub file_s: f64,
    pub small_byte_s: f64,
    pub large_byte_s: f64,
    /// Nine of ten copies are within `exp(spread)` times the prediction.
    pub spread: f64,
}

/// A cost, divided by its causes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parts {
    pub start_s: f64,
    pub files_s: f64,
    pub bytes_s: f64,
}

impl Parts {
    pub(crate) fn total_s(&self) -> f64 {
        self.start_s + self.files_s + self.bytes_s
    }

    /// `share` of these, and the rest from the others.
    pub(crate) fn blend(&self, others: &Parts, share: f64) -> Parts {
        let mix = |mine: f64, theirs: f64| mine * share + theirs * (1.0 - share);
        Parts {
            start_s: mix(self.start_s, others.start_s),
            files_s: mix(self.files_s, others.files_s),
            bytes_s: mix(self.bytes_s, others.bytes_s),
        }
    }
}

/// One copy, as input of a fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub features: Features,
    /// The time to be explained.
    pub seconds: f64,
    /// Known time that was spent in addition, such as the login: errors are relative to the sum.
    pub beside_s: f64,
}

impl Cost {
    pub fn at(&self, features: &Features) -> Parts {
        Parts {
            start_s: self.fixed_s + features.streams * self.lane_s,
            files_s: features.files * self.file_s,
            bytes_s: features.small_bytes * self.small_byte_s
                + features.large_bytes * self.large_byte_s,
        }
    }

    /// The costs that fit best, and their errors in cross-validation. All zero where there are no
    /// points.
    pub fn fit(points: &[Point]) -> (Cost, Misses) {
        let points: Vec<Point> = points.iter().copied().filter(Point::is_sound).collect();
        let misses = left_out(&points);
        (Cost { spread: spread(&misses), ..robust(&points) }, misses)
    }

    fn of(costs: [f64; COSTS]) -> Cost {
        let [fixed_s, lane_s, file_s, small_byte_s, large_byte_s] = costs;
        Cost { fixed_s, lane_s, file_s, small_byte_s, large_byte_s, spread: 0.0 }
    }

    /// Every number, for a check of their limits.
    pub fn numbers(&self) -> [f64; COSTS + 1] {
        let Cost { fixed_s, lane_s, file_s, small_byte_s, large_byte_s, spread } = *self;
        [fixed_s, lane_s, file_s, small_byte_s, large_byte_s, spread]
    }
}

impl Point {
    fn is_sound(&self) -> bool {
        let row = self.features.row();
        let sound = |number: f64| number.is_finite() && number >= 0.0;
        row.into_iter().chain([self.seconds, self.beside_s]).all(sound) && self.whole_s() > 0.0
    }

    fn whole_s(&self) -> f64 {
        self.seconds + self.beside_s
    }

    /// The error of a fit: the logarithm of the factor.
    fn off(&self, cost: &Cost) -> f64 {
        let predicted = cost.at(&self.features).total_s() + self.beside_s;
        (self.whole_s() / predicted.max(1e-9)).ln()
    }
}

/// Iteratively reweighted least squares: Huber's weights on relative residuals.
fn robust(points: &[Point]) -> Cost {
    let mut weights = vec![1.0; points.len()];
    let mut cost = Cost::default();
    for _ in 0..ROUNDS {
        cost = Cost::of(nonnegative(points, &weights));
        let off: Vec<f64> = points.iter().map(|point| point.off(&cost).abs()).collect();
        let scale = (median(&off).unwrap_or(0.0) / NORMAL_MEDIAN).max(1e-4);
        for (weight, off) in weights.iter_mut().zip(off) {
            *weight = (HUBER * scale / off.max(1e-12)).min(1.0);
        }
    }
    cost
}

/// Weighted least squares of relative errors with no cost below zero. There are few costs, so every
/// subset of nonzero costs is tried.
fn nonnegative(points: &[Point], weights: &[f64]) -> [f64; COSTS] {
    let mut best = ([0.0; COSTS], f64::INFINITY);
    let mut sets: Vec<Vec<usize>> =
        (1..1_u32 << COSTS).map(|set| (0..COSTS).filter(|i| set >> i & 1 == 1).collect()).collect();
    // Subsets with fewer costs come first: a larger one must be better, not equal.
    sets.sort_by_key(Vec::len);
    for set in sets.iter().filter(|set| set.len() <= points.len()) {
        let Some(costs) = solve(points, weights, set) else { continue };
        let miss = miss(points, weights, &costs);
        if costs.iter().all(|cost| *cost >= 0.0) && miss < best.1 * (1.0 - 1e-9) {
            best = (costs, miss);
        }
    }
    best.0
}

fn solve(points: &[Point], weights: &[f64], set: &[usize]) -> Option<[f64; COSTS]> {
    let rows: Vec<[f64; COSTS]> = points.iter().map(|point| point.features.row()).collect();
    let scales: Vec<f64> =
        set.iter().map(|i| rows.iter().map(|row| row[*i]).fold(0.0, f64::max)).collect();
    if scales.iter().any(|scale| *scale <= 0.0) {
        return None;
    }
    let root = |row: usize| weights[row].sqrt() / points[row].whole_s();
    let left = DMatrix::from_fn(points.len(), set.len(), |row, column| {
        rows[row][set[column]] / scales[column] * root(row)
    });
    let right = DVector::from_fn(points.len(), |row, _| points[row].seconds * root(row));
    let normal = left.transpose() * &left;
    let strength = normal.diagonal().max();
    let solved = normal.cholesky().filter(|factor| {
        // Where the costs of a subset cannot be told apart, one of its pivots is close to zero.
        factor.l_dirty().diagonal().iter().all(|pivot| pivot * pivot > strength * 1e-10)
    })?;
    let found = solved.solve(&(left.transpose() * right));
    let mut costs = [0.0; COSTS];
    for (place, i) in set.iter().enumerate() {
        costs[*i] = found[place] / scales[place];
    }
    costs.iter().all(|cost| cost.is_finite()).then_some(costs)
}

fn miss(points: &[Point], weights: &[f64], costs: &[f64; COSTS]) -> f64 {
    let one = |(point, weight): (&Point, &f64)| {
        let predicted: f64 = point.features.row().iter().zip(costs).map(|(x, c)| x * c).sum();
        weight * ((predicted - point.seconds) / point.whole_s()).powi(2)
    };
    points.iter().zip(weights).map(one).sum()
}

/// Errors of copies that were left out of their own fit: absolute logarithms of factors.
pub(crate) type Misses = Vec<f64>;

/// The limit that nine of ten future copies keep: the ninth decile of the errors of copies that
/// were left out, counting one more for the future copy. With few errors it is the largest.
pub fn spread(misses: &[f64]) -> f64 {
    let mut off = misses.to_vec();
    off.sort_by(f64::total_cmp);
    let rank = ((off.len() + 1) as f64 * 0.9).ceil() as usize;
    let found = off.get(rank.min(off.len()).saturating_sub(1));
    found.copied().unwrap_or(SPREAD_UNKNOWN).min(SPREAD_MAX)
}

/// Cross-validation. A size between others is left out with all its repeats, so the fit does not
/// know the size that it predicts. The smallest and the largest sizes are left out one copy at a
/// time: without them some cost would be undetermined.
fn left_out(points: &[Point]) -> Misses {
    let mut off: Vec<f64> = Vec::new();
    for (place, point) in points.iter().enumerate() {
        let others: Vec<Point> =
            points.iter().copied().filter(|other| other.features != point.features).collect();
        let kept = match is_between(point, &others) {
            true => others,
            false => {
                let all = points.iter().enumerate().filter(|(other, _)| *other != place);
                all.map(|(_, other)| *other).collect()
            }
        };
        // A size at an end that was copied only once: the fit must include it.
        let known = kept.iter().any(|other| other.features == point.features);
        let between = is_between(point, &kept);
        let cost = if known || between { robust(&kept) } else { robust(points) };
        off.push(point.off(&cost).abs());
    }
    off
}

/// True when, for each feature, some other copy has no less and some other no more.
fn is_between(point: &Point, others: &[Point]) -> bool {
    (0..COSTS).all(|i| {
        let own = point.features.row()[i];
        let has = |fits: &dyn Fn(f64) -> bool| others.iter().any(|o| fits(o.features.row()[i]));
        own == 0.0 || (has(&|other| other >= own) && has(&|other| other > 0.0 && other <= own))
    })
}

const COSTS: usize = 5;
const ROUNDS: usize = 8;
const HUBER: f64 = 1.345;
/// The median of the absolute value of a normal variate, in standard deviations.
const NORMAL_MEDIAN: f64 = 0.6745;
const SPREAD_UNKNOWN: f64 = 0.7;
const SPREAD_MAX: f64 = 3.0;
