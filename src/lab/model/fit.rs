//! The fit: `CPU = B·Cb + N·Cr` over runs, robust, with relative errors, and what can be said of
//! how well it fits.
//!
//! Each run is put as cost per byte, `c = Cb + Cr·N/B`, and its residual is divided by the median
//! cost of its request size: errors of a measured CPU time are in proportion to it. `N` is B/RS
//! where requests return whole, and the counted calls where they do not.

use nalgebra::{Matrix2, Vector2};
use rand::RngExt;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use super::Estimate;
use crate::lab::statistics::{
    Bootstrap, Line, RESAMPLES, generator, median, percentile_interval, symmetric_error, theil_sen,
};

/// One run, as the fit sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    pub request_bytes: u32,
    pub bytes: f64,
    /// Calls that were counted, or requests where no call returned less than it was asked for.
    pub calls: f64,
    pub cpu_s: f64,
}

impl Observation {
    /// Cost for each byte, where only that is known.
    pub fn per_byte(request_bytes: u32, ns: f64) -> Observation {
        let bytes = f64::from(request_bytes);
        Observation { request_bytes, bytes, calls: 1.0, cpu_s: ns * bytes / 1e9 }
    }

    fn usable(&self) -> bool {
        let numbers = [self.bytes, self.calls, self.cpu_s];
        let ok = numbers.iter().all(|number| number.is_finite() && *number >= 0.0);
        ok && self.request_bytes > 0 && self.bytes > 0.0
    }

    fn cost_ns(&self) -> f64 {
        self.cpu_s * 1e9 / self.bytes
    }

    fn calls_per_byte(&self) -> f64 {
        self.calls / self.bytes
    }
}

/// A cost that is known already and taken off before the fit: the pump's own, for each byte and for
/// each request whatever the number of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Known {
    pub cb_ns: f64,
    pub cr_ns: f64,
}

impl Known {
    pub fn cost_ns(&self, request_bytes: u32) -> f64 {
        self.cb_ns + self.cr_ns / f64::from(request_bytes.max(1))
    }
}

/// Which of the two costs would be below 0 if it might.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtBound {
    #[default]
    Neither,
    Cb,
    Cr,
    Both,
}

/// How the intervals were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Intervals {
    /// Runs of each request size were drawn again.
    Runs,
    /// There is one value for each request size: what the fit leaves over was dealt out again.
    Residuals,
}

/// One request size: what was seen and what the fit says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeFit {
    pub request_bytes: u32,
    pub n: usize,
    /// The median of the runs, in nanoseconds for each byte.
    pub observed_ns: f64,
    pub predicted_ns: f64,
    /// The calls for each byte that the prediction is for.
    pub calls_per_byte: f64,
}

impl SizeFit {
    pub fn symmetric_error(&self) -> f64 {
        symmetric_error(self.observed_ns, self.predicted_ns)
    }

    /// Above 0 where the prediction is too high.
    pub fn signed_error(&self) -> f64 {
        self.predicted_ns / self.observed_ns - 1.0
    }
}

/// The variance between request sizes that the model leaves, against that within them (NIST
/// e-Handbook 4.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LackOfFit {
    pub f: f64,
    pub degrees: (usize, usize),
    /// How often runs of a model that is right would give as much.
    pub p: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    pub cb_ns: Estimate,
    pub cr_ns: Estimate,
    pub at_bound: AtBound,
    pub intervals: Intervals,
    pub known: Known,
    pub n: usize,
    /// Runs without a usable number: no bytes, no cost, not finite.
    pub left_out: usize,
    pub sizes: Vec<SizeFit>,
    /// `None` without repeats, or with two sizes only: then the errors alone judge.
    pub lack_of_fit: Option<LackOfFit>,
    /// The same two costs by Theil and Sen, who know no bounds: intercept Cb, slope Cr.
    pub theil_sen: Option<Line>,
}

/// Why there is no fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFit {
    Nothing {
        left_out: usize,
    },
    OneSize {
        request_bytes: u32,
    },
    /// The number of calls for each byte is the same at all sizes.
    CallsAlike,
}

impl std::fmt::Display for NoFit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoFit::Nothing { left_out: 0 } => f.write_str("there are no runs to fit"),
            NoFit::Nothing { left_out } => {
                write!(f, "none of {left_out} runs has bytes and a CPU time above 0")
            }
            NoFit::OneSize { request_bytes } => write!(
                f,
                "all runs have the same request size, {}; the cost of a byte and that of a request \
                 are told apart by two sizes at least: measure another",
                crate::base::units::Bytes(u64::from(*request_bytes)).typed()
            ),
            NoFit::CallsAlike => f.write_str(
                "calls for each byte are the same at every request size; the cost of a byte and \
                 that of a call cannot be told apart",
            ),
        }
    }
}

impl Fit {
    /// Fits the two costs to runs, after `known` was taken off. The order of runs does not matter;
    /// the same runs and seed give the same numbers.
    pub fn of(runs: &[Observation], known: Known, seed: u64) -> Result<Fit, NoFit> {
        Fit::resampled(runs, known, seed, RESAMPLES)
    }

    /// The same with so many resamples; with none the intervals are points.
    pub fn resampled(
        runs: &[Observation],
        known: Known,
        seed: u64,
        resamples: usize,
    ) -> Result<Fit, NoFit> {
        let sample = Sample::of(runs, known)?;
        let left_out = runs.len() - sample.rows.len();
        let all: Vec<usize> = (0..sample.rows.len()).collect();
        let solved = robust(&sample.rows, &all).ok_or(NoFit::CallsAlike)?;
        let (drawn, intervals) = sample.resampled(solved, seed, resamples);
        let estimate = |value: f64, pick: fn(&Costs) -> f64| {
            percentile_interval(value, &drawn.iter().map(pick).collect::<Vec<_>>())
        };
        let points: Vec<(f64, f64)> = sample.rows.iter().map(|row| (row.calls, row.cost)).collect();
        Ok(Fit {
            cb_ns: estimate(solved.cb, |costs| costs.cb),
            cr_ns: estimate(solved.cr, |costs| costs.cr),
            at_bound: solved.at_bound,
            intervals,
            known,
            n: sample.rows.len(),
            left_out,
            sizes: sample.sizes(solved),
            lack_of_fit: sample.lack_of_fit(solved),
            theil_sen: theil_sen(&points),
        })
    }

    /// What a byte costs at a request size, with all that was known: nanoseconds.
    pub fn cost_ns(&self, request_bytes: u32, calls_per_byte: f64) -> f64 {
        self.known.cost_ns(request_bytes) + self.cb_ns.value + self.cr_ns.value * calls_per_byte
    }

    pub fn errors(&self) -> Vec<f64> {
        self.sizes.iter().map(SizeFit::symmetric_error).collect()
    }

    pub fn max_error(&self) -> f64 {
        self.errors().into_iter().fold(0.0, f64::max)
    }

    /// With an error without end at one size or more, the median may have none either.
    pub fn median_error(&self) -> f64 {
        let mut errors = self.errors();
        errors.sort_by(f64::total_cmp);
        let half = errors.len() / 2;
        match errors.len() {
            0 => 0.0,
            len if len % 2 == 1 => errors[half],
            _ => errors[half - 1].midpoint(errors[half]),
        }
    }

    pub fn lack_of_fit_passes(&self) -> Option<bool> {
        self.lack_of_fit.map(|lack| lack.p >= SIGNIFICANCE)
    }

    /// The model is adequate where lack of fit cannot be shown, or where it is small: with many
    /// repeats any misfit can be shown.
    pub fn adequate(&self) -> bool {
        self.lack_of_fit_passes() == Some(true) || self.max_error() <= ERROR_SMALL
    }

    /// The request size at which a request costs as much as its bytes; `None` where bytes cost
    /// nothing.
    pub fn balance_bytes(&self) -> Option<f64> {
        balance_bytes(self.cb_ns.value, self.cr_ns.value)
    }
}

/// `RS* = Cr/Cb`.
pub fn balance_bytes(cb_ns: f64, cr_ns: f64) -> Option<f64> {
    (cb_ns > 0.0 && cr_ns >= 0.0).then(|| cr_ns / cb_ns)
}

/// Numbers as the solver wants them.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// Nanoseconds for each byte, without what is known.
    cost: f64,
    /// For each byte.
    calls: f64,
    /// The median cost of its request size, with what is known.
    scale: f64,
    /// What was taken off.
    known: f64,
}

impl Row {
    fn residual(&self, cb: f64, cr: f64) -> f64 {
        (self.cost - cb - cr * self.calls) / self.scale
    }
}

#[derive(Clone, Copy, Debug)]
struct Costs {
    cb: f64,
    cr: f64,
    at_bound: AtBound,
}

struct Sample {
    rows: Vec<Row>,
    request_bytes: Vec<u32>,
    /// Rows of each request size.
    strata: Vec<Vec<usize>>,
}

impl Sample {
    fn of(runs: &[Observation], known: Known) -> Result<Sample, NoFit> {
        let mut runs: Vec<Observation> = runs.iter().copied().filter(Observation::usable).collect();
        let offered = runs.len();
        let key = |run: &Observation| (run.cost_ns(), run.calls_per_byte());
        runs.sort_by(|a, b| {
            let ((cost_a, calls_a), (cost_b, calls_b)) = (key(a), key(b));
            let size = a.request_bytes.cmp(&b.request_bytes);
            size.then(cost_a.total_cmp(&cost_b)).then(calls_a.total_cmp(&calls_b))
        });
        let mut sample = Sample { rows: vec![], request_bytes: vec![], strata: vec![] };
        for group in runs.chunk_by(|a, b| a.request_bytes == b.request_bytes) {
            let costs: Vec<f64> = group.iter().map(Observation::cost_ns).collect();
            // Errors are in proportion to a cost; of a size that costs nothing none can be had.
            let Some(scale) = median(&costs).filter(|scale| *scale > 0.0) else { continue };
            let known = known.cost_ns(group[0].request_bytes);
            let first = sample.rows.len();
            sample.rows.extend(group.iter().map(|run| Row {
                cost: run.cost_ns() - known,
                calls: run.calls_per_byte(),
                scale,
                known,
            }));
            sample.request_bytes.push(group[0].request_bytes);
            sample.strata.push((first..sample.rows.len()).collect());
        }
        match *sample.request_bytes {
            [] => Err(NoFit::Nothing { left_out: offered }),
            [request_bytes] => Err(NoFit::OneSize { request_bytes }),
            _ => Ok(sample),
        }
    }

    /// The costs of every resample.
    fn resampled(&self, solved: Costs, seed: u64, times: usize) -> (Vec<Costs>, Intervals) {
        if self.strata.iter().all(|stratum| stratum.len() == 1) {
            return (self.dealt_out(solved, seed, times), Intervals::Residuals);
        }
        let mut bootstrap = Bootstrap::new(&self.strata, seed);
        let drawn = (0..times).filter_map(|_| robust(&self.rows, &bootstrap.draw())).collect();
        (drawn, Intervals::Runs)
    }

    /// Without repeats: the residuals, made larger by what two fitted numbers took from them, are
    /// dealt to other sizes.
    fn dealt_out(&self, solved: Costs, seed: u64, times: usize) -> Vec<Costs> {
        let all: Vec<usize> = (0..self.rows.len()).collect();
        let n = self.rows.len() as f64;
        if self.rows.len() <= 2 {
            return Vec::new();
        }
        let larger = (n / (n - 2.0)).sqrt();
        let left: Vec<f64> =
            self.rows.iter().map(|row| row.residual(solved.cb, solved.cr) * larger).collect();
        let mut generator = generator(seed);
        let mut draw = || {
            let mut rows = self.rows.clone();
            for row in &mut rows {
                let dealt = left[generator.random_range(0..left.len())];
                row.cost = solved.cb + solved.cr * row.calls + dealt * row.scale;
            }
            robust(&rows, &all)
        };
        (0..times).filter_map(|_| draw()).collect()
    }

    fn sizes(&self, solved: Costs) -> Vec<SizeFit> {
        let of = |(stratum, request_bytes): (&Vec<usize>, &u32)| {
            let calls: Vec<f64> = stratum.iter().map(|i| self.rows[*i].calls).collect();
            let calls_per_byte = median(&calls).unwrap_or(0.0);
            let first = &self.rows[stratum[0]];
            SizeFit {
                request_bytes: *request_bytes,
                n: stratum.len(),
                observed_ns: first.scale,
                predicted_ns: first.known + solved.cb + solved.cr * calls_per_byte,
                calls_per_byte,
            }
        };
        self.strata.iter().zip(&self.request_bytes).map(of).collect()
    }

    fn lack_of_fit(&self, solved: Costs) -> Option<LackOfFit> {
        let (n, sizes) = (self.rows.len(), self.strata.len());
        let degrees = (sizes.checked_sub(2)?, n.checked_sub(sizes)?);
        if degrees.0 == 0 || degrees.1 == 0 {
            return None;
        }
        let (mut between, mut within) = (0.0, 0.0);
        for stratum in &self.strata {
            let left: Vec<f64> =
                stratum.iter().map(|i| self.rows[*i].residual(solved.cb, solved.cr)).collect();
            let mean = left.iter().sum::<f64>() / left.len() as f64;
            between += left.len() as f64 * mean * mean;
            within += left.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        }
        let (above, below) = (between / degrees.0 as f64, within / degrees.1 as f64);
        // Runs that are equal to the last digit have no variance to compare with.
        let f = match below > ROUNDING * ROUNDING {
            true => (above / below).min(F_MAX),
            false if above <= ROUNDING * ROUNDING => 0.0,
            false => F_MAX,
        };
        let fisher = FisherSnedecor::new(degrees.0 as f64, degrees.1 as f64).ok()?;
        Some(LackOfFit { f, degrees, p: 1.0 - fisher.cdf(f) })
    }
}

/// Iteratively reweighted least squares with Huber's weights: what is further than 1.345 standard
/// deviations, as the median absolute residual tells them, counts less and less. `None` where calls
/// for each byte are all alike.
fn robust(rows: &[Row], chosen: &[usize]) -> Option<Costs> {
    let mut weights = vec![1.0; chosen.len()];
    let mut costs = least_squares(rows, chosen, &weights)?;
    for _ in 0..ITERATIONS_MAX {
        let left: Vec<f64> =
            chosen.iter().map(|i| rows[*i].residual(costs.cb, costs.cr).abs()).collect();
        let deviation = median(&left)? / MEDIAN_OF_NORMAL;
        if deviation < ROUNDING {
            return Some(costs);
        }
        let limit = HUBER * deviation;
        for (weight, left) in weights.iter_mut().zip(&left) {
            *weight = (limit / left).min(1.0);
        }
        let next = least_squares(rows, chosen, &weights)?;
        let near = |a: f64, b: f64| (a - b).abs() <= TOLERANCE * a.abs().max(b.abs());
        let done = near(next.cb, costs.cb) && near(next.cr, costs.cr);
        costs = next;
        if done {
            break;
        }
    }
    Some(costs)
}

/// Weighted least squares of relative residuals with neither cost below 0. With two unknowns the
/// active set is found by looking at all of them: the free solution, then either edge.
fn least_squares(rows: &[Row], chosen: &[usize], weights: &[f64]) -> Option<Costs> {
    let mut normal = Matrix2::<f64>::zeros();
    let mut right = Vector2::<f64>::zeros();
    for (i, weight) in chosen.iter().zip(weights) {
        let row = &rows[*i];
        let design = Vector2::new(1.0, row.calls) / row.scale;
        normal += *weight * design * design.transpose();
        right += *weight * design * (row.cost / row.scale);
    }
    // Both columns get the length 1, so that nanoseconds and calls for each byte are alike.
    let length = Vector2::new(normal[(0, 0)].sqrt(), normal[(1, 1)].sqrt());
    if !(length[0] > 0.0 && length[1] > 0.0) {
        return None;
    }
    let cosine = normal[(0, 1)] / (length[0] * length[1]);
    if 1.0 - cosine * cosine < ALIKE {
        return None;
    }
    let right = right.component_div(&length);
    let free = Matrix2::new(1.0, cosine, cosine, 1.0).try_inverse()? * right;
    let (solved, at_bound) = match (free[0] >= 0.0, free[1] >= 0.0) {
        (true, true) => (free, AtBound::Neither),
        // An edge on which the other cost is above 0; of two, the one that explains more.
        _ if right[0] <= 0.0 && right[1] <= 0.0 => (Vector2::zeros(), AtBound::Both),
        _ if right[0] >= right[1] => (Vector2::new(right[0], 0.0), AtBound::Cr),
        _ => (Vector2::new(0.0, right[1]), AtBound::Cb),
    };
    let costs = solved.component_div(&length);
    Some(Costs { cb: costs[0], cr: costs[1], at_bound })
}

/// 95 % efficiency where errors are normal (Huber 1964; Holland and Welsch 1977).
const HUBER: f64 = 1.345;
/// The median of a normal variate's absolute value, in standard deviations.
const MEDIAN_OF_NORMAL: f64 = 0.6745;
const ITERATIONS_MAX: usize = 50;
const TOLERANCE: f64 = 1e-9;
/// Relative residuals below this are the rounding of floating point.
const ROUNDING: f64 = 1e-12;
/// Of the squared sine between the two columns.
const ALIKE: f64 = 1e-9;
/// What is larger has the same p, and the distribution's own arithmetic ends somewhere.
const F_MAX: f64 = 1e9;
const SIGNIFICANCE: f64 = 0.05;
/// A misfit up to this is small enough for a model to be of use.
const ERROR_SMALL: f64 = 0.10;

#[cfg(test)]
mod tests;
