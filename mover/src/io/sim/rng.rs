//! Random numbers of a simulated world: the same numbers from the same seed.

/// A generator of random numbers: SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng { state: seed }
    }

    pub fn roll(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.roll() % end.max(1)
    }

    /// True once in `odds` calls, on average; never for 0.
    pub fn once_in(&mut self, odds: u64) -> bool {
        odds > 0 && self.below(odds) == 0
    }
}
