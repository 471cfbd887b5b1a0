//! The fit: `CPU = B·Cb + N·Cr + S·Cs` over runs, robust, with relative errors, and figures of how
//! well it fits.
//!
//! Each run is a cost per byte, `c = Cb + Cr·N/B + Cs·S/B`, and its residual is divided by the
//! median cost of its cell (the runs of one request size and depth): errors of a measured CPU time
//! are proportional to it. `N` is B/RS where requests return whole, and the counted calls where
//! they do not. `S` is the starts: requests submitted while their lane had no file request in
//! flight. Where every cell has the same number of starts per request, `Cr` includes their cost.

use nalgebra::{Matrix3, Vector3};
use rand::RngExt;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use crate::statistics::{
    Bootstrap, Estimate, Line, RESAMPLES, generator, median, percentile_interval, signed_error,
    symmetric_error, theil_sen,
};

/// One run, as the fit sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    pub request_bytes: u32,
    /// Requests in flight; 0 where this is not known.
    pub depth: u16,
    pub bytes: f64,
    /// Counted calls; the number of requests where no call was partial.
    pub calls: f64,
    /// Requests submitted while their lane had no file request in flight; equal to the number of
    /// requests where starts were not counted.
    pub starts: f64,
    pub cpu_s: f64,
}

impl Observation {
    /// Cost per byte, where only that is known.
    pub fn per_byte(request_bytes: u32, ns: f64) -> Observation {
        let bytes = f64::from(request_bytes);
        let cpu_s = ns * bytes / 1e9;
        Observation { request_bytes, depth: 0, bytes, calls: 1.0, starts: 1.0, cpu_s }
    }

    fn usable(&self) -> bool {
        let numbers = [self.bytes, self.calls, self.starts, self.cpu_s];
        let ok = numbers.iter().all(|number| number.is_finite() && *number >= 0.0);
        ok && self.request_bytes > 0 && self.bytes > 0.0
    }

    fn cost_ns(&self) -> f64 {
        self.cpu_s * 1e9 / self.bytes
    }

    fn calls_per_byte(&self) -> f64 {
        self.calls / self.bytes
    }

    fn starts_per_byte(&self) -> f64 {
        self.starts / self.bytes
    }
}

/// A cost that is already known and is subtracted before the fit: the pump's own, per byte and per
/// request, whatever the number of calls.
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

/// Which of the costs would be negative without the bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtBound {
    pub cb: bool,
    pub cr: bool,
    pub cs: bool,
}

impl AtBound {
    pub fn names(self) -> Vec<&'static str> {
        let all = [(self.cb, "Cb"), (self.cr, "Cr"), (self.cs, "Cs")];
        all.into_iter().filter(|(at_bound, _)| *at_bound).map(|(_, name)| name).collect()
    }
}

/// How the intervals were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Intervals {
    /// Runs of each cell were resampled.
    Runs,
    /// There is one value for each cell: residuals of the fit were resampled.
    Residuals,
}

/// One request size at one depth: observed and predicted cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeFit {
    pub request_bytes: u32,
    pub depth: u16,
    pub n: usize,
    /// The median of the runs, in nanoseconds per byte.
    pub observed_ns: f64,
    pub predicted_ns: f64,
    /// Calls and starts per byte that the prediction is made for.
    pub calls_per_byte: f64,
    pub starts_per_byte: f64,
}

impl SizeFit {
    pub fn symmetric_error(&self) -> f64 {
        symmetric_error(self.observed_ns, self.predicted_ns)
    }

    /// The same, below 0 where the prediction is too low.
    pub(crate) fn signed_error(&self) -> f64 {
        signed_error(self.observed_ns, self.predicted_ns)
    }
}

/// Lack of fit: the variance between cells that the model leaves, against that within cells (NIST
/// e-Handbook 4.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LackOfFit {
    pub f: f64,
    pub degrees: (usize, usize),
    /// How often a correct model would show this much.
    pub p: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    pub cb_ns: Estimate,
    pub cr_ns: Estimate,
    /// `None` where every cell has the same number of starts per call: then `Cr` includes them.
    pub cs_ns: Option<Estimate>,
    pub at_bound: AtBound,
    pub intervals: Intervals,
    pub known: Known,
    pub n: usize,
    /// Runs without a usable number: no bytes, no cost, not finite.
    pub left_out: usize,
    pub sizes: Vec<SizeFit>,
    /// `None` without repeats, or with two sizes only: then only the errors are judged.
    pub lack_of_fit: Option<LackOfFit>,
    /// Cb and Cr by Theil-Sen, without bounds: intercept and slope after the cost of starts is
    /// subtracted.
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
    /// The number of calls per byte is the same at all sizes.
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
                 need at least two sizes to be separated: measure another",
                base::units::Bytes(u64::from(*request_bytes)).typed()
            ),
            NoFit::CallsAlike => f.write_str(
                "calls for each byte are the same at every request size; the cost of a byte and \
                 that of a call cannot be separated",
            ),
        }
    }
}

impl Fit {
    /// Fits the costs to runs after `known` is subtracted. The order of runs does not matter; the
    /// same runs and seed give the same numbers.
    pub fn of(runs: &[Observation], known: Known, seed: u64) -> Result<Fit, NoFit> {
        Fit::resampled(runs, known, seed, RESAMPLES)
    }

    /// The same with this many resamples; with none the intervals are points.
    pub(crate) fn resampled(
        runs: &[Observation],
        known: Known,
        seed: u64,
        resamples: usize,
    ) -> Result<Fit, NoFit> {
        let sample = Sample::of(runs, known)?;
        let left_out = runs.len() - sample.rows.len();
        let all: Vec<usize> = (0..sample.rows.len()).collect();
        let terms = sample.terms();
        let solved = robust(&sample.rows, &all, terms).ok_or(NoFit::CallsAlike)?;
        let (drawn, intervals) = sample.resampled(solved, seed, resamples);
        let estimate = |value: f64, pick: fn(&Costs) -> f64| {
            percentile_interval(value, &drawn.iter().map(pick).collect::<Vec<_>>())
        };
        let point = |row: &Row| (row.calls, row.cost - solved.cs * row.starts);
        let points: Vec<(f64, f64)> = sample.rows.iter().map(point).collect();
        Ok(Fit {
            cb_ns: estimate(solved.cb, |costs| costs.cb),
            cr_ns: estimate(solved.cr, |costs| costs.cr),
            cs_ns: (terms == Terms::WithStarts).then(|| estimate(solved.cs, |costs| costs.cs)),
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

    /// Cost per byte at a request size, including what was known: nanoseconds.
    pub fn cost_ns(&self, request_bytes: u32, calls_per_byte: f64, starts_per_byte: f64) -> f64 {
        let starts = self.cs_ns.map_or(0.0, |cs| cs.value * starts_per_byte);
        let own = self.cb_ns.value + self.cr_ns.value * calls_per_byte + starts;
        self.known.cost_ns(request_bytes) + own
    }

    pub fn errors(&self) -> Vec<f64> {
        self.sizes.iter().map(SizeFit::symmetric_error).collect()
    }

    pub fn max_error(&self) -> f64 {
        self.errors().into_iter().fold(0.0, f64::max)
    }

    /// The error of a size may be infinite, and so may the median.
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

    pub(crate) fn lack_of_fit_passes(&self) -> Option<bool> {
        self.lack_of_fit.map(|lack| lack.p >= SIGNIFICANCE)
    }

    /// The model is adequate where lack of fit is not significant, or where the error is small:
    /// with many repeats any misfit is significant.
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

/// Input of the solver.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// Nanoseconds per byte, without what is known.
    cost: f64,
    /// Per byte.
    calls: f64,
    starts: f64,
    /// The median cost of its cell, with what is known.
    scale: f64,
    /// What was subtracted.
    known: f64,
}

impl Row {
    fn modelled(&self, costs: &Costs) -> f64 {
        costs.cb + costs.cr * self.calls + costs.cs * self.starts
    }

    fn residual(&self, costs: &Costs) -> f64 {
        (self.cost - self.modelled(costs)) / self.scale
    }
}

#[derive(Clone, Copy, Debug)]
struct Costs {
    cb: f64,
    cr: f64,
    cs: f64,
    at_bound: AtBound,
}

/// The terms that are fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Terms {
    BytesAndCalls,
    WithStarts,
}

impl Terms {
    fn count(self) -> usize {
        match self {
            Terms::BytesAndCalls => 2,
            Terms::WithStarts => 3,
        }
    }
}

struct Sample {
    rows: Vec<Row>,
    /// Request size and depth of each stratum.
    cells: Vec<(u32, u16)>,
    /// Rows of each request size at each depth.
    strata: Vec<Vec<usize>>,
}

impl Sample {
    fn of(runs: &[Observation], known: Known) -> Result<Sample, NoFit> {
        let mut runs: Vec<Observation> = runs.iter().copied().filter(Observation::usable).collect();
        let offered = runs.len();
        let cell = |run: &Observation| (run.request_bytes, run.depth);
        runs.sort_by(|a, b| {
            let cells = cell(a).cmp(&cell(b)).then(a.cost_ns().total_cmp(&b.cost_ns()));
            let calls = a.calls_per_byte().total_cmp(&b.calls_per_byte());
            cells.then(calls).then(a.starts_per_byte().total_cmp(&b.starts_per_byte()))
        });
        let mut sample = Sample { rows: vec![], cells: vec![], strata: vec![] };
        for group in runs.chunk_by(|a, b| cell(a) == cell(b)) {
            let costs: Vec<f64> = group.iter().map(Observation::cost_ns).collect();
            // Errors are relative to the cost of a cell, so a cell whose cost is 0 is left out.
            let Some(scale) = median(&costs).filter(|scale| *scale > 0.0) else { continue };
            let known = known.cost_ns(group[0].request_bytes);
            let first = sample.rows.len();
            sample.rows.extend(group.iter().map(|run| Row {
                cost: run.cost_ns() - known,
                calls: run.calls_per_byte(),
                starts: run.starts_per_byte(),
                scale,
                known,
            }));
            sample.cells.push(cell(&group[0]));
            sample.strata.push((first..sample.rows.len()).collect());
        }
        match (sample.cells.first(), sample.cells.last()) {
            (Some(first), Some(last)) if first.0 != last.0 => Ok(sample),
            (Some((request_bytes, _)), _) => Err(NoFit::OneSize { request_bytes: *request_bytes }),
            (None, _) => Err(NoFit::Nothing { left_out: offered }),
        }
    }

    /// Starts are separate from calls where the starts per call differ between cells by more than
    /// chance explains.
    fn terms(&self) -> Terms {
        let share = |stratum: &Vec<usize>| {
            let of = |i: &usize| self.rows[*i].starts / self.rows[*i].calls;
            median(&stratum.iter().map(of).collect::<Vec<_>>())
        };
        let shares: Vec<f64> = self.strata.iter().filter_map(share).collect();
        let most = shares.iter().copied().fold(0.0, f64::max);
        let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
        // More unknowns than cells would fit anything.
        match most - least > STARTS_VARY && self.strata.len() > Terms::WithStarts.count() {
            true => Terms::WithStarts,
            false => Terms::BytesAndCalls,
        }
    }

    /// The costs of every resample.
    fn resampled(&self, solved: Costs, seed: u64, times: usize) -> (Vec<Costs>, Intervals) {
        if self.strata.iter().all(|stratum| stratum.len() == 1) {
            return (self.dealt_out(solved, seed, times), Intervals::Residuals);
        }
        let mut bootstrap = Bootstrap::new(&self.strata, seed);
        let terms = self.terms();
        let drawn = (0..times).filter_map(|_| robust(&self.rows, &bootstrap.draw(), terms));
        (drawn.collect(), Intervals::Runs)
    }

    /// Without repeats: residuals, scaled up for the degrees of freedom of the fit, are resampled
    /// over all cells.
    fn dealt_out(&self, solved: Costs, seed: u64, times: usize) -> Vec<Costs> {
        let all: Vec<usize> = (0..self.rows.len()).collect();
        let terms = self.terms();
        let (n, fitted) = (self.rows.len() as f64, terms.count() as f64);
        if n <= fitted {
            return Vec::new();
        }
        let larger = (n / (n - fitted)).sqrt();
        let left: Vec<f64> = self.rows.iter().map(|row| row.residual(&solved) * larger).collect();
        let mut generator = generator(seed);
        let mut draw = || {
            let mut rows = self.rows.clone();
            for row in &mut rows {
                let dealt = left[generator.random_range(0..left.len())];
                row.cost = row.modelled(&solved) + dealt * row.scale;
            }
            robust(&rows, &all, terms)
        };
        (0..times).filter_map(|_| draw()).collect()
    }

    fn sizes(&self, solved: Costs) -> Vec<SizeFit> {
        let of = |(stratum, cell): (&Vec<usize>, &(u32, u16))| {
            let middle = |pick: fn(&Row) -> f64| {
                let values: Vec<f64> = stratum.iter().map(|i| pick(&self.rows[*i])).collect();
                median(&values).unwrap_or(0.0)
            };
            let first = &self.rows[stratum[0]];
            let typical =
                Row { calls: middle(|row| row.calls), starts: middle(|row| row.starts), ..*first };
            SizeFit {
                request_bytes: cell.0,
                depth: cell.1,
                n: stratum.len(),
                observed_ns: first.scale,
                predicted_ns: first.known + typical.modelled(&solved),
                calls_per_byte: typical.calls,
                starts_per_byte: typical.starts,
            }
        };
        self.strata.iter().zip(&self.cells).map(of).collect()
    }

    fn lack_of_fit(&self, solved: Costs) -> Option<LackOfFit> {
        let (n, cells) = (self.rows.len(), self.strata.len());
        let degrees = (cells.checked_sub(self.terms().count())?, n.checked_sub(cells)?);
        if degrees.0 == 0 || degrees.1 == 0 {
            return None;
        }
        let (mut between, mut within) = (0.0, 0.0);
        for stratum in &self.strata {
            let left: Vec<f64> = stratum.iter().map(|i| self.rows[*i].residual(&solved)).collect();
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

/// Iteratively reweighted least squares with Huber's weights: a run further off than 1.345 standard
/// deviations, estimated by the median absolute residual, counts less. `None` where the calls per
/// byte are all alike.
fn robust(rows: &[Row], chosen: &[usize], terms: Terms) -> Option<Costs> {
    let mut weights = vec![1.0; chosen.len()];
    let mut costs = least_squares(rows, chosen, &weights, terms)?;
    for _ in 0..ITERATIONS_MAX {
        let left: Vec<f64> = chosen.iter().map(|i| rows[*i].residual(&costs).abs()).collect();
        let deviation = median(&left)? / MEDIAN_OF_NORMAL;
        if deviation < ROUNDING {
            return Some(costs);
        }
        let limit = HUBER * deviation;
        for (weight, left) in weights.iter_mut().zip(&left) {
            *weight = (limit / left).min(1.0);
        }
        let next = least_squares(rows, chosen, &weights, terms)?;
        let near = |a: f64, b: f64| (a - b).abs() <= TOLERANCE * a.abs().max(b.abs());
        let done = near(next.cb, costs.cb) && near(next.cr, costs.cr) && near(next.cs, costs.cs);
        costs = next;
        if done {
            break;
        }
    }
    Some(costs)
}

/// Weighted least squares of relative residuals with no cost below 0. With three unknowns at most,
/// all active sets are tried: of those without a negative cost, the one that explains most.
fn least_squares(rows: &[Row], chosen: &[usize], weights: &[f64], terms: Terms) -> Option<Costs> {
    let mut normal = Matrix3::<f64>::zeros();
    let mut right = Vector3::<f64>::zeros();
    for (i, weight) in chosen.iter().zip(weights) {
        let row = &rows[*i];
        let starts = if terms == Terms::WithStarts { row.starts } else { 0.0 };
        let design = Vector3::new(1.0, row.calls, starts) / row.scale;
        normal += *weight * design * design.transpose();
        right += *weight * design * (row.cost / row.scale);
    }
    // All columns are scaled to length 1, so that bytes and calls have comparable units.
    let mut length = normal.diagonal().map(f64::sqrt);
    if terms == Terms::BytesAndCalls {
        (normal[(2, 2)], length[2]) = (1.0, 1.0);
    }
    if !length.iter().all(|length| *length > 0.0) {
        return None;
    }
    let cosines = normal.component_div(&(length * length.transpose()));
    if cosines.determinant() < ALIKE {
        return None;
    }
    let right = right.component_div(&length);
    let (solved, at_bound) = non_negative(&cosines, &right, terms)?;
    let costs = solved.component_div(&length);
    Some(Costs { cb: costs[0], cr: costs[1], cs: costs[2], at_bound })
}

fn non_negative(
    normal: &Matrix3<f64>,
    right: &Vector3<f64>,
    terms: Terms,
) -> Option<(Vector3<f64>, AtBound)> {
    let starts = terms == Terms::WithStarts;
    let solve = |free: [bool; 3]| {
        // A cost that is not free has the equation: it is 0.
        let reduced = Matrix3::from_fn(|row, column| match free[row] && free[column] {
            true => normal[(row, column)],
            false => f64::from(u8::from(row == column)),
        });
        let wanted = Vector3::from_fn(|row, _| if free[row] { right[row] } else { 0.0 });
        let solved = reduced.try_inverse()? * wanted;
        solved.iter().all(|cost| *cost >= 0.0).then_some(solved)
    };
    // The unconstrained solution explains most.
    if let Some(solved) = solve([true, true, starts]) {
        return Some((solved, AtBound::default()));
    }
    let edges = (0..7u8).map(|bits| [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0 && starts]);
    let feasible = edges.filter_map(|free| Some((solve(free)?, free)));
    let (solved, [cb, cr, cs]) =
        feasible.max_by(|a, b| a.0.dot(right).total_cmp(&b.0.dot(right)))?;
    Some((solved, AtBound { cb: !cb, cr: !cr, cs: starts && !cs }))
}

/// 95 % efficiency with normal errors (Huber 1964; Holland and Welsch 1977).
const HUBER: f64 = 1.345;
/// The median of a normal variate's absolute value, in standard deviations.
const MEDIAN_OF_NORMAL: f64 = 0.6745;
const ITERATIONS_MAX: usize = 50;
const TOLERANCE: f64 = 1e-9;
/// Relative residuals below this are floating point rounding.
const ROUNDING: f64 = 1e-12;
/// Of the squared volume that the columns span; with two, the squared sine of their angle.
const ALIKE: f64 = 1e-9;
/// Above this p is the same, and the arithmetic of the distribution may overflow.
const F_MAX: f64 = 1e9;
const SIGNIFICANCE: f64 = 0.05;
/// Difference in starts per call, from the cell with the fewest to that with the most.
const STARTS_VARY: f64 = 0.2;
/// With an error of up to this a model is useful.
const ERROR_SMALL: f64 = 0.10;

#[cfg(test)]
mod tests;
