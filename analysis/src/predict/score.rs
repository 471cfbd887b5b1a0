//! How good predictions were: their bias, their error, how wide their intervals were and how many
//! values were within, and the interval score. Pure.

use crate::record::sample::Record;
use crate::statistics::median;

/// An interval with its middle, and the observed value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pair {
    pub expected: [f64; 3],
    pub observed: f64,
}

impl Pair {
    /// The time of a copy; `None` for one without a prediction.
    pub fn of_time(record: &Record) -> Option<Pair> {
        let predicted = record.predicted.as_ref()?;
        let expected = [predicted.elapsed_low_s, predicted.elapsed_s, predicted.elapsed_high_s];
        let pair = Pair { expected, observed: record.moved.elapsed_s };
        pair.is_sound().then_some(pair)
    }

    /// Signed, relative to the observed value.
    pub fn error(&self) -> f64 {
        self.expected[1] / self.observed.max(1e-9) - 1.0
    }

    pub fn is_covered(&self) -> bool {
        (self.expected[0]..=self.expected[2]).contains(&self.observed)
    }

    fn is_sound(&self) -> bool {
        let numbers = self.expected.iter().chain([&self.observed]);
        numbers.into_iter().all(|number| number.is_finite() && *number > 0.0)
    }

    /// Of the logarithms, for intervals that nine of ten values are to be within (Gneiting and
    /// Raftery 2007): the width, and how far a value is outside by a penalty of 2/α.
    fn interval_score(&self) -> f64 {
        let [low, _, high] = self.expected.map(f64::ln);
        let observed = self.observed.ln();
        high - low + 2.0 / ALPHA * ((low - observed).max(0.0) + (observed - high).max(0.0))
    }
}

/// Of some predictions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    pub count: usize,
    /// The median logarithm of observed over predicted: above 0 where it took longer.
    pub bias_ln: f64,
    /// Median, relative to the observed value.
    pub error: f64,
    /// The median of the highest over the lowest of the interval.
    pub width: f64,
    /// The share within their intervals.
    pub covered: f64,
    /// The mean interval score of logarithms, at 90 %; the lower the better.
    pub interval_score: f64,
}

impl Score {
    /// `None` where there is none.
    pub fn of(pairs: &[Pair]) -> Option<Score> {
        let pairs: Vec<&Pair> = pairs.iter().filter(|pair| pair.is_sound()).collect();
        let middle =
            |of: fn(&Pair) -> f64| median(&pairs.iter().map(|pair| of(pair)).collect::<Vec<f64>>());
        let count = pairs.len();
        let covered = pairs.iter().filter(|pair| pair.is_covered()).count();
        let scores: f64 = pairs.iter().map(|pair| pair.interval_score()).sum();
        Some(Score {
            count,
            bias_ln: middle(|pair| (pair.observed / pair.expected[1]).ln())?,
            error: middle(|pair| pair.error().abs())?,
            width: middle(|pair| pair.expected[2] / pair.expected[0])?,
            covered: covered as f64 / count as f64,
            interval_score: scores / count as f64,
        })
    }
}

/// The scores of copies that took less than a second, whose time is mostly that of the login, which
/// is measured; and of the others.
pub fn by_length(times: &[Pair]) -> Vec<(&'static str, Score)> {
    let (long, short): (Vec<Pair>, Vec<Pair>) =
        times.iter().partition(|pair| pair.observed >= LONG_S);
    let groups = [("below 1 s", short), ("1 s and longer", long)];
    groups.iter().filter_map(|(name, pairs)| Some((*name, Score::of(pairs)?))).collect()
}

/// One of ten values may be outside.
const ALPHA: f64 = 0.1;
const LONG_S: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(expected: [f64; 3], observed: f64) -> Pair {
        Pair { expected, observed }
    }

    #[test]
    fn scores_of_known_predictions() {
        let e = std::f64::consts::E;
        // Pairs; bias, error, width, covered, interval score.
        let cases: [(&[Pair], [f64; 5]); 4] = [
            (&[pair([1.0, 2.0, 4.0], 2.0)], [0.0, 0.0, 4.0, 1.0, 4.0_f64.ln()]),
            // Too low, and outside by a factor of e.
            (&[pair([1.0, 1.0, 1.0], e)], [1.0, 1.0 - 1.0 / e, 1.0, 0.0, 20.0]),
            (&[pair([e, e, e], 1.0)], [-1.0, e - 1.0, 1.0, 0.0, 20.0]),
            (
                &[pair([1.0, 2.0, e], 2.0), pair([1.0, 2.0, e], e * e), pair([0.0, 1.0, 1.0], 1.0)],
                [(e * e / 2.0).ln() / 2.0, (1.0 - 2.0 / (e * e)) / 2.0, e, 0.5, 11.0],
            ),
        ];
        for (pairs, expect) in cases {
            let score = Score::of(pairs).unwrap();
            let got =
                [score.bias_ln, score.error, score.width, score.covered, score.interval_score];
            for (got, expect) in got.into_iter().zip(expect) {
                assert!((got - expect).abs() < 1e-9, "{score:?}, {expect} of {pairs:?}");
            }
        }
        assert_eq!(Score::of(&[]), None);
    }

    #[test]
    fn short_and_long_copies_are_apart() {
        let times = [0.1, 0.9, 1.0, 30.0].map(|s| pair([s, s, s], s));
        let scores = by_length(&times);
        let counts: Vec<(&str, usize)> =
            scores.iter().map(|(name, score)| (*name, score.count)).collect();
        assert_eq!(counts, [("below 1 s", 2), ("1 s and longer", 2)]);
        assert_eq!(by_length(&times[..1]).len(), 1);
        assert_eq!(by_length(&[]), []);
    }

    #[test]
    fn a_record_without_a_prediction_is_no_pair() {
        assert_eq!(Pair::of_time(&Record::default()), None);
    }
}
