//! Whether a measurement counts.

use super::probe::Spun;

/// The share of a CPU that a soaker took from a thread that wanted all of it. Between the two
/// moments there also was time before that thread began and after it ended, which the soaker could
/// have: that much is not held against it.
pub fn intruded(span_s: f64, soaker_s: f64, spun: Spun) -> f64 {
    let wall_s = spun.wall_ns as f64 / 1e9;
    let free_s = (span_s - wall_s).max(0.0);
    ((soaker_s - free_s) / wall_s).clamp(0.0, 1.0)
}
