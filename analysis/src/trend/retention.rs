//! What of old campaigns is kept.

use std::collections::BTreeSet;

/// What becomes of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Keep,
    /// Without the samples of its streams: its cells stay, with all their figures.
    Thin,
    Remove,
}

/// Ages in seconds; without one, no campaign is too old.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ages {
    /// Older ones are thinned, and of each day only the first is left.
    pub thin_s: Option<f64>,
    /// Older ones are removed.
    pub keep_s: Option<f64>,
}

/// By the times at which campaigns began, in their order. The newest is always kept whole.
pub fn fates(started_unix_s: &[f64], now_unix_s: f64, ages: Ages) -> Vec<Fate> {
    let mut days = BTreeSet::new();
    let fate = |(place, started): (usize, &f64)| {
        let is_older = |age: Option<f64>| age.is_some_and(|age| now_unix_s - started > age);
        let is_newest = place + 1 == started_unix_s.len();
        match (is_newest, is_older(ages.keep_s), is_older(ages.thin_s)) {
            (true, ..) | (false, false, false) => Fate::Keep,
            (false, true, _) => Fate::Remove,
            (false, false, true) => match days.insert((started / 86_400.0).floor() as i64) {
                true => Fate::Thin,
                false => Fate::Remove,
            },
        }
    };
    started_unix_s.iter().enumerate().map(fate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_campaigns_are_thinned_and_removed() {
        use Fate::{Keep, Remove, Thin};
        let day = 86_400.0;
        // Two a day for four days; now is the end of the fourth.
        let started: Vec<f64> = (0..8).map(|at| f64::from(at) * day / 2.0 + 3600.0).collect();
        let fates = |thin: Option<f64>, keep: Option<f64>| {
            let ages = Ages { thin_s: thin.map(|d| d * day), keep_s: keep.map(|d| d * day) };
            fates(&started, 4.0 * day, ages)
        };
        assert_eq!(fates(None, None), [Keep; 8]);
        assert_eq!(
            fates(Some(2.0), None),
            [Thin, Remove, Thin, Remove, Keep, Keep, Keep, Keep],
            "one of each day"
        );
        assert_eq!(
            fates(Some(1.0), Some(3.0)),
            [Remove, Remove, Thin, Remove, Thin, Remove, Keep, Keep]
        );
        assert_eq!(fates(Some(0.0), Some(0.0))[7], Keep, "the newest stays");
        assert_eq!(super::fates(&[], 1.0, Ages::default()), []);
    }
}
