//! Which packets are lost: each by itself, or in runs, by the model of Gilbert.

use std::fmt;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

/// The share of packets that never arrive, and how many of them are lost in a row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    pub share: f64,
    /// The mean length of a run of lost packets. With 1 each packet is lost by itself, so that two
    /// in a row are a coincidence.
    pub run_packets: f64,
}

impl Loss {
    pub const NONE: Loss = Loss { share: 0.0, run_packets: 1.0 };

    /// Runs are separated by packets that arrive: their share has a limit.
    pub(crate) fn is_possible(self) -> bool {
        !self.has_runs() || self.share <= self.run_packets / (self.run_packets + 1.0)
    }

    fn has_runs(self) -> bool {
        self.run_packets > 1.0
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.share * 100.0)?;
        match self.has_runs() {
            true => write!(f, " in runs of {}", self.run_packets),
            false => Ok(()),
        }
    }
}

/// Two states, one in which packets arrive and one in which they are lost. The probabilities to
/// change follow from the share and the mean run.
#[derive(Debug)]
pub(crate) struct Losses {
    generator: Pcg64,
    is_losing: bool,
}

impl Losses {
    pub(crate) fn new(seed: u64) -> Losses {
        Losses { generator: Pcg64::seed_from_u64(seed), is_losing: false }
    }

    /// Is the next packet lost? Takes one random number, whatever the loss is: the same seed loses
    /// the same packets.
    pub(crate) fn takes_next(&mut self, loss: Loss) -> bool {
        let number = self.generator.random::<f64>();
        if !loss.has_runs() {
            self.is_losing = false;
            return number < loss.share;
        }
        let leave = 1.0 / loss.run_packets;
        let enter = leave * loss.share / (1.0 - loss.share);
        self.is_losing = match self.is_losing {
            true => number >= leave,
            false => number < enter,
        };
        self.is_losing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of these packets are lost, and in how many runs.
    fn count(loss: Loss, seed: u64, packets: u32) -> (f64, f64) {
        let mut losses = Losses::new(seed);
        let (mut lost, mut runs, mut before) = (0_u32, 0_u32, false);
        for _ in 0..packets {
            let is_lost = losses.takes_next(loss);
            lost += u32::from(is_lost);
            runs += u32::from(is_lost && !before);
            before = is_lost;
        }
        (f64::from(lost), f64::from(runs))
    }

    #[test]
    fn shares_and_runs_are_as_asked() {
        const PACKETS: u32 = 2_000_000;
        for (share, run_packets) in [(0.01, 1.0), (0.01, 8.0), (0.1, 4.0), (0.3, 1.5), (0.5, 20.0)]
        {
            let (lost, runs) = count(Loss { share, run_packets }, 7, PACKETS);
            let seen = lost / f64::from(PACKETS);
            // A run of losses that are independent of each other is a little longer than 1.
            let mean = if run_packets == 1.0 { 1.0 / (1.0 - share) } else { run_packets };
            // Four standard deviations; runs have about the spread of their mean.
            let bound = 4.0 * mean / runs.sqrt();
            assert!((lost / runs - mean).abs() < bound, "{share} {run_packets}: {}", lost / runs);
            let bound = 4.0 * share * (2.0 / runs).sqrt();
            assert!((seen - share).abs() < bound, "{share} {run_packets}: {seen}");
        }
        assert_eq!(count(Loss::NONE, 1, 1000), (0.0, 0.0));
        assert_eq!(count(Loss { share: 1.0, ..Loss::NONE }, 1, 1000), (1000.0, 1.0));
        let loss = Loss { share: 0.1, run_packets: 3.0 };
        assert_eq!(count(loss, 5, 1000), count(loss, 5, 1000), "the same seed, the same losses");
    }

    #[test]
    fn what_cannot_be_is_known() {
        for (share, run_packets, is_possible) in
            [(1.0, 1.0, true), (0.8, 4.0, true), (0.81, 4.0, false), (1.0, 100.0, false)]
        {
            assert_eq!(Loss { share, run_packets }.is_possible(), is_possible);
        }
    }
}
