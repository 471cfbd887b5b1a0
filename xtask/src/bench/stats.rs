//! Medians and ranges of a few runs.

/// A median with its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// `None` of no values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median = match values.len() % 2 {
            1 => values[half],
            _ => (values[half - 1] + values[half]) / 2.0,
        };
        Some(Spread { median, min, max })
    }

    /// `1.35 (1.31–1.42)`; one value alone has no range.
    pub fn text(&self, digits: usize) -> String {
        match self.min == self.max {
            true => format!("{:.digits$}", self.median),
            false => {
                format!("{:.digits$} ({:.digits$}–{:.digits$})", self.median, self.min, self.max)
            }
        }
    }
}

/// A seeded order: the same seed gives the same rounds.
pub struct Shuffle {
    state: u64,
}

impl Shuffle {
    pub fn from_seed(seed: u64) -> Shuffle {
        Shuffle { state: seed.wrapping_mul(2).wrapping_add(1) }
    }

    /// xorshift64*, which is enough to mix an order.
    pub fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// The numbers below `count` in a mixed order.
    pub fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            order.swap(last, self.between(0, last as u64) as usize);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        let median = |values: &[f64]| Spread::of(values.iter().copied()).map(|s| s.median);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[f64::NAN, 1.0]), Some(1.0));
    }

    #[test]
    fn an_order_holds_everybody_once_and_repeats() {
        let order = Shuffle::from_seed(7).order(20);
        assert_eq!(order, Shuffle::from_seed(7).order(20));
        assert_ne!(order, Shuffle::from_seed(8).order(20));
        let mut sorted = order;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    }
}
