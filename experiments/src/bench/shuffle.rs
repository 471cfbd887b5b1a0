//! A random order, reproducible from a seed.

/// A seeded order: the same seed gives the same rounds.
pub(crate) struct Shuffle {
    state: u64,
}

impl Shuffle {
    pub(crate) fn from_seed(seed: u64) -> Shuffle {
        Shuffle { state: seed.wrapping_mul(2).wrapping_add(1) }
    }

    /// xorshift64*, which is enough to shuffle.
    pub(crate) fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number from `low` to `high`, both inclusive.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// The numbers below `count` in random order.
    pub(crate) fn order(&mut self, count: usize) -> Vec<usize> {
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
    fn an_order_holds_everybody_once_and_repeats() {
        let order = Shuffle::from_seed(7).order(20);
        assert_eq!(order, Shuffle::from_seed(7).order(20));
        assert_ne!(order, Shuffle::from_seed(8).order(20));
        let mut sorted = order;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    }
}
