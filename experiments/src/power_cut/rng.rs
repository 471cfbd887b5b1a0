//! Random numbers, reproducible from a seed.

/// The random numbers of a round.
pub(super) struct Rng(blake3::OutputReader);

impl Rng {
    pub(super) fn of(seed: u64, round: u64) -> Rng {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes()).update(&round.to_le_bytes());
        Rng(hasher.finalize_xof())
    }

    /// Below `end`, which is not zero.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes) % end
    }

    /// From 0 to 1.
    pub(super) fn share(&mut self) -> f64 {
        self.below(1 << 20) as f64 / f64::from(1 << 20)
    }
}
