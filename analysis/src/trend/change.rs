//! The points where a series changes its level.

use crate::statistics::median;

/// A change of the level of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Place of the first sample of the new level.
    pub at: usize,
    /// Place of the sample with which it was told.
    pub told_at: usize,
    /// Medians of both windows.
    pub before: f64,
    pub after: f64,
    /// How much the level changed: the median of all ratios of a sample after to one before.
    pub ratio: f64,
    /// The probability that samples of one level are ordered so or further apart, two-sided.
    pub p: f64,
    /// The number of samples before that it was compared with.
    pub reference: usize,
    /// The spread of those, as a share: 1.4826 times the median deviation of their logarithms.
    pub noise: f64,
}

/// Every change of a series, in its order, as it would have been told sample by sample. After a
/// change the samples before it are not looked at again. All values are above zero.
pub fn changes(values: &[f64]) -> Vec<Change> {
    let mut found: Vec<Change> = Vec::new();
    let mut from = 0;
    for told_at in 0..values.len() {
        let told = WINDOWS.into_iter().find_map(|window| {
            let at = (told_at + 1).checked_sub(window).filter(|at| *at >= from + REFERENCE_MIN)?;
            let reference = &values[from.max(at.saturating_sub(REFERENCE_MAX))..at];
            let change = compared(reference, &values[at..=told_at])?;
            Some(Change { at, told_at, ..change })
        });
        if let Some(change) = told {
            from = change.at;
            found.push(change);
        }
    }
    found
}

/// The change between two windows, if there is one: by ranks, by its size, and by the noise.
fn compared(before: &[f64], after: &[f64]) -> Option<Change> {
    let p = mann_whitney(before, after);
    let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<_>>();
    let (old, new) = (logs(before), logs(after));
    let differences: Vec<f64> = new.iter().flat_map(|n| old.iter().map(move |o| n - o)).collect();
    let shift = median(&differences)?;
    let middle = median(&old)?;
    let deviations: Vec<f64> = old.iter().map(|value| (value - middle).abs()).collect();
    let noise = 1.4826 * median(&deviations)?;
    // Two bad samples of four are bad luck: three quarters of them must be beyond.
    let beyond = new.iter().filter(|value| (*value - middle) * shift.signum() >= SHIFT_MIN).count();
    let is_large = 4 * beyond >= 3 * new.len() && shift.abs() >= SHIFT_MIN;
    let is_one = p <= P_MAX && is_large && shift.abs() >= NOISES_MIN * noise;
    is_one.then_some(Change {
        at: 0,
        told_at: 0,
        before: median(before)?,
        after: median(after)?,
        ratio: shift.exp(),
        p,
        reference: before.len(),
        noise,
    })
}

/// The two-sided probability of the order of two samples of one distribution, exact; values that
/// are equal count half, rounded to the side of no change.
pub(crate) fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    let pairs = (a.len() * b.len()) as f64;
    let below = |x: &f64, y: &f64| match x.total_cmp(y) {
        std::cmp::Ordering::Less => 1.0,
        std::cmp::Ordering::Equal => 0.5,
        std::cmp::Ordering::Greater => 0.0,
    };
    let u: f64 = a.iter().flat_map(|x| b.iter().map(move |y| below(x, y))).sum();
    let least = u.min(pairs - u).ceil() as usize;
    let counts = arrangements(a.len(), b.len());
    let all: f64 = counts.iter().sum();
    let extreme: f64 = counts.iter().take(least + 1).sum();
    (2.0 * extreme / all).min(1.0)
}

/// In how many orders of `m` and `n` values the statistic is 0, 1, …: the coefficients of the
/// Gaussian binomial, the product of (1 - q^(n+i)) / (1 - q^i) for i of 1 to m.
fn arrangements(m: usize, n: usize) -> Vec<f64> {
    let mut counts = vec![0.0; m * n + 1];
    counts[0] = 1.0;
    for i in 1..=m {
        for place in (n + i..counts.len()).rev() {
            counts[place] -= counts[place - n - i];
        }
        for place in i..counts.len() {
            counts[place] += counts[place - i];
        }
    }
    counts
}

/// Samples that tell a change; more of them where bad luck before it hides it from the fewer.
const WINDOWS: [usize; 2] = [4, 8];
/// A bit more than three days of one each six hours. Four samples beyond all of these are one of
/// 2380 orders.
const REFERENCE_MIN: usize = 13;
/// Two weeks of one each six hours.
const REFERENCE_MAX: usize = 56;
const P_MAX: f64 = 0.005;
/// Of the logarithm: down to 0.85, or up to 1/0.85.
const SHIFT_MIN: f64 = 0.162_518_929;
/// A level that varies must change by more.
const NOISES_MIN: f64 = 3.0;
