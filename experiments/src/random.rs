//! Random numbers, reproducible from a seed.

pub(crate) struct Random(blake3::OutputReader);

impl Random {
    /// Those of a round.
    pub(crate) fn of(seed: u64, round: u64) -> Random {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes()).update(&round.to_le_bytes());
        Random(hasher.finalize_xof())
    }

    /// Those of a seed in words, such as the hash of a commit.
    pub(crate) fn from_words(seed: &str) -> Random {
        Random(blake3::Hasher::new().update(seed.as_bytes()).finalize_xof())
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }

    /// Below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes) % end
    }

    /// Both ends can come.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// Of some, which are not none.
    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// From 0 to 1.
    pub(crate) fn share(&mut self) -> f64 {
        self.below(1 << 20) as f64 / f64::from(1 << 20)
    }
}
