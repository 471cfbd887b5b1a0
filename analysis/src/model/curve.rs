//! A part's costs over all request sizes: one fit, or one on either side of a knee.
//!
//! Bytes cost more once the requests in flight no longer fit into a core's own cache. Where the
//! knee is follows from the cache and the depth; it is not searched for. Two fits are made only
//! where one is not adequate.

use serde::{Deserialize, Serialize};

use super::Regime;
use super::fit::{Fit, Known, NoFit, Observation, SizeFit};

/// Whether there is a knee, and why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Knee {
    /// The cache is not known, or every request size is on one side of it.
    None,
    /// One fit is adequate.
    NotNeeded,
    /// One fit is not adequate, but one side has fewer than three sizes: the misfit stays.
    TooFewSizes,
    /// Two fits are hardly better than one.
    DoesNotPay,
    /// Two fits: for requests of up to this size, and for larger ones.
    At(u32),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// One or two, smaller requests first.
    pub fits: Vec<Fit>,
    pub knee: Knee,
}

impl Curve {
    /// `knee_bytes` is the largest request with which all that is in flight stays in the cache.
    pub fn of(
        runs: &[Observation],
        known: Known,
        knee_bytes: Option<u32>,
        seed: u64,
    ) -> Result<Curve, NoFit> {
        let whole = Fit::of(runs, known, seed)?;
        let one = |whole: Fit, knee| Ok(Curve { fits: vec![whole], knee });
        let Some(knee_bytes) = knee_bytes else { return one(whole, Knee::None) };
        let (below, above) = sizes_beside(&whole, knee_bytes);
        if below == 0 || above == 0 {
            return one(whole, Knee::None);
        }
        if whole.adequate() {
            return one(whole, Knee::NotNeeded);
        }
        if below.min(above) < SIZES_MIN {
            return one(whole, Knee::TooFewSizes);
        }
        let (small, large): (Vec<_>, Vec<_>) =
            runs.iter().copied().partition(|run| run.request_bytes <= knee_bytes);
        let fits = vec![Fit::of(&small, known, seed)?, Fit::of(&large, known, seed)?];
        let worst = fits.iter().map(Fit::max_error).fold(0.0, f64::max);
        match worst <= PAYS * whole.max_error() {
            true => Ok(Curve { fits, knee: Knee::At(knee_bytes) }),
            false => one(whole, Knee::DoesNotPay),
        }
    }

    /// The fit for a request size.
    pub fn fit(&self, request_bytes: u32) -> &Fit {
        let place = match self.knee {
            Knee::At(knee_bytes) if request_bytes > knee_bytes => self.fits.len() - 1,
            _ => 0,
        };
        &self.fits[place]
    }

    /// What a byte costs, with all that was known: nanoseconds.
    pub fn cost_ns(&self, request_bytes: u32, calls_per_byte: f64, starts_per_byte: f64) -> f64 {
        self.fit(request_bytes).cost_ns(request_bytes, calls_per_byte, starts_per_byte)
    }

    pub fn sizes(&self) -> impl Iterator<Item = &SizeFit> {
        self.fits.iter().flat_map(|fit| &fit.sizes)
    }

    /// True where a start has a cost of its own, apart from that of a request.
    pub(crate) fn has_starts(&self) -> bool {
        self.fits.iter().any(|fit| fit.cs_ns.is_some())
    }

    /// True where the runs were made at several depths.
    pub(crate) fn has_depths(&self) -> bool {
        let mut depths = self.sizes().map(|size| size.depth);
        depths.next().is_some_and(|first| depths.any(|depth| depth != first))
    }

    pub fn adequate(&self) -> bool {
        self.fits.iter().all(Fit::adequate)
    }

    pub fn regimes(&self) -> Vec<Regime> {
        let regime = |fit: &Fit| Regime {
            request_bytes_min: fit.sizes.first().map_or(0, |size| size.request_bytes),
            request_bytes_max: fit.sizes.last().map_or(0, |size| size.request_bytes),
            cb_ns: fit.cb_ns,
            cr_ns: fit.cr_ns,
            cs_ns: fit.cs_ns,
        };
        self.fits.iter().map(regime).collect()
    }
}

/// How many request sizes there are up to the knee, and beyond it.
fn sizes_beside(fit: &Fit, knee_bytes: u32) -> (usize, usize) {
    let mut sizes: Vec<u32> = fit.sizes.iter().map(|size| size.request_bytes).collect();
    sizes.dedup();
    let below = sizes.iter().filter(|size| **size <= knee_bytes).count();
    (below, sizes.len() - below)
}

/// The request size from which requests are at most `share` of the total cost: `RS*/share`.
pub(crate) fn request_share_bytes(balance_bytes: f64, share: f64) -> f64 {
    balance_bytes / share
}

/// Bytes a second that this many CPUs can process at a cost per byte.
pub(crate) fn cpu_bound_rate(cpus: u32, ns_per_byte: f64) -> Option<f64> {
    (ns_per_byte > 0.0).then(|| f64::from(cpus) * 1e9 / ns_per_byte)
}

/// What was measured at one request size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    pub request_bytes: u32,
    pub depth: u16,
    /// `None` where only costs were measured.
    pub rate_bytes_per_s: Option<f64>,
    pub cost_ns: f64,
}

/// The smallest request size, and of that the smallest depth, that is within 3 % of both the best
/// rate and the least cost. Where there is none, the rate comes before the cost.
pub(crate) fn advised(offers: &[Offer]) -> Option<Offer> {
    let finite = |offer: &&Offer| offer.cost_ns.is_finite() && offer.cost_ns > 0.0;
    let mut offers: Vec<Offer> = offers.iter().filter(finite).copied().collect();
    offers.sort_by_key(|offer| (offer.request_bytes, offer.depth));
    let rate = |offer: &Offer| offer.rate_bytes_per_s.unwrap_or(f64::INFINITY);
    let fastest = offers.iter().map(rate).fold(0.0, f64::max);
    let fast: Vec<Offer> =
        offers.into_iter().filter(|offer| rate(offer) >= (1.0 - NEAR) * fastest).collect();
    let cheapest = fast.iter().map(|offer| offer.cost_ns).fold(f64::INFINITY, f64::min);
    fast.into_iter().find(|offer| offer.cost_ns <= (1.0 + NEAR) * cheapest)
}

/// A line through two points always fits.
const SIZES_MIN: usize = 3;
/// The error of two fits must be a fifth smaller than that of one.
const PAYS: f64 = 0.8;
const NEAR: f64 = 0.03;

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(costs: &[(u32, f64)]) -> Vec<Observation> {
        let wobble = [0.99, 1.0, 1.01];
        let of = |(kibibytes, ns): &(u32, f64)| {
            wobble.map(|wobble| Observation::per_byte(kibibytes << 10, ns * wobble))
        };
        costs.iter().flat_map(of).collect()
    }

    #[test]
    fn a_knee_is_taken_where_it_pays() {
        let line = |size: u32, cb: f64| (size, cb + 20.0 / f64::from(size));
        let straight: Vec<_> = [16, 32, 64, 128, 256, 512].map(|s| line(s, 0.5)).to_vec();
        let bent: Vec<_> =
            [16, 32, 64, 128, 256, 512].map(|s| line(s, if s > 64 { 1.2 } else { 0.5 })).to_vec();
        let cases = [
            (&straight, None, Knee::None),
            (&straight, Some(64 << 10), Knee::NotNeeded),
            (&straight, Some(8 << 20), Knee::None),
            (&bent, Some(64 << 10), Knee::At(64 << 10)),
            (&bent, Some(256 << 10), Knee::TooFewSizes),
        ];
        for (costs, knee_bytes, expect) in cases {
            let curve = Curve::of(&runs(costs), Known::default(), knee_bytes, 1).unwrap();
            assert_eq!(curve.knee, expect, "{costs:?}");
            assert_eq!(curve.fits.len(), if matches!(expect, Knee::At(_)) { 2 } else { 1 });
        }
        let curve = Curve::of(&runs(&bent), Known::default(), Some(64 << 10), 1).unwrap();
        assert!((curve.fit(64 << 10).cb_ns.value - 0.5).abs() < 0.05);
        assert!((curve.fit(128 << 10).cb_ns.value - 1.2).abs() < 0.05);
    }

    #[test]
    fn advice() {
        let offer = |kibibytes: u32, depth, rate, cost_ns| Offer {
            request_bytes: kibibytes << 10,
            depth,
            rate_bytes_per_s: rate,
            cost_ns,
        };
        type Case<'a> = (&'a [Offer], Option<(u32, u16)>);
        let cases: [Case<'_>; 5] = [
            (&[], None),
            (&[offer(64, 1, None, 2.0), offer(128, 1, None, 1.98)], Some((64, 1))),
            (&[offer(64, 1, None, 2.0), offer(128, 1, None, 1.5)], Some((128, 1))),
            (&[offer(64, 1, Some(80.0), 1.0), offer(64, 2, Some(99.0), 1.0)], Some((64, 2))),
            (&[offer(64, 1, Some(50.0), 1.0), offer(128, 1, Some(100.0), 3.0)], Some((128, 1))),
        ];
        for (offers, expect) in cases {
            let found = advised(offers).map(|offer| (offer.request_bytes >> 10, offer.depth));
            assert_eq!(found, expect, "{offers:?}");
        }
    }

    #[test]
    fn derived_numbers_are_those_of_the_report() {
        let balance = crate::model::fit::balance_bytes(0.5, 66_000.0).unwrap();
        assert_eq!(balance, 132_000.0);
        assert_eq!(request_share_bytes(balance, 0.1), 1_320_000.0);
        assert_eq!(cpu_bound_rate(1, 40.0), Some(25e6));
    }
}
