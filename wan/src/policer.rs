//! A policer: a token bucket whose excess is dropped at once, so that it limits a rate without a
//! queue. Providers use it to enforce what a customer pays for.

use serde::{Deserialize, Serialize};

/// A rate, and how many bytes may pass at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policer {
    pub rate_bits_per_s: u64,
    pub burst_bytes: u64,
}

/// The tokens of a policer, in bits times a thousand million, so that filling it has no rounding.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    policer: Policer,
    tokens: u128,
    filled_ns: u64,
}

impl TokenBucket {
    /// A full one.
    pub(crate) fn new(policer: Policer, now_ns: u64) -> TokenBucket {
        TokenBucket { policer, tokens: room(policer), filled_ns: now_ns }
    }

    pub(crate) fn policer(&self) -> Policer {
        self.policer
    }

    /// Takes the tokens of a packet, or says that there are too few: then it takes none. Times may
    /// go back a little; no time is counted twice.
    pub(crate) fn admits(&mut self, now_ns: u64, bytes: u32) -> bool {
        let passed_ns = now_ns.saturating_sub(self.filled_ns);
        self.filled_ns += passed_ns;
        let filled = u128::from(passed_ns) * u128::from(self.policer.rate_bits_per_s);
        self.tokens = (self.tokens + filled).min(room(self.policer));
        let needed = tokens_of(u64::from(bytes));
        match self.tokens.checked_sub(needed) {
            Some(rest) => {
                self.tokens = rest;
                true
            }
            None => false,
        }
    }
}

fn room(policer: Policer) -> u128 {
    tokens_of(policer.burst_bytes)
}

fn tokens_of(bytes: u64) -> u128 {
    u128::from(bytes) * 8 * NANOS_PER_SECOND
}

const NANOS_PER_SECOND: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        // 12 Mbit/s are a packet of 1500 bytes in each ms.
        let policer = Policer { rate_bits_per_s: 12_000_000, burst_bytes: 15_000 };
        // (offers: time in ms and number at once; how many pass)
        let cases: [&[(u64, u32, u32)]; 4] = [
            &[(0, 20, 10), (1, 5, 1), (5, 9, 4), (1000, 20, 10)],
            // Tokens do not grow beyond the bucket.
            &[(10_000, 11, 10), (10_001, 2, 1)],
            // A clock that goes back fills nothing twice.
            &[(0, 10, 10), (4, 2, 2), (2, 3, 2), (4, 1, 0), (5, 2, 1)],
            &[(0, 0, 0)],
        ];
        for offers in cases {
            let mut bucket = TokenBucket::new(policer, 0);
            for (at_ms, offered, expected) in offers {
                let pass = (0..*offered).filter(|_| bucket.admits(at_ms * MS, 1500)).count();
                assert_eq!(pass as u32, *expected, "{offers:?} at {at_ms} ms");
            }
        }
    }

    #[test]
    fn the_rate_has_no_rounding() {
        // A rate whose packets take no whole number of nanoseconds, offered twice as fast.
        let policer = Policer { rate_bits_per_s: 7_000_000, burst_bytes: 1500 };
        let mut bucket = TokenBucket::new(policer, 0);
        let step_ns = 857_143;
        let offers = 1_000_000_u64;
        let passed = (1..=offers).filter(|i| bucket.admits(i * step_ns, 1500)).count() as f64;
        let expected = offers as f64 * step_ns as f64 * 7e6 / 1e9 / 12_000.0;
        assert!((passed - expected).abs() <= 2.0, "{passed} for {expected}");
        // A packet larger than the bucket never passes, and takes nothing from it.
        assert!(!bucket.admits(u64::MAX / 2, 1501));
        assert!(bucket.admits(u64::MAX / 2, 1500));
    }
}
