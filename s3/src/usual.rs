//! What a long request usually takes, and which one is left behind: its connection got a small
//! share of the path, and another one would be done first. Numbers in, answers out.

use std::collections::VecDeque;

use base::units::Nanos;

/// Of the requests of one way.
#[derive(Debug, Default)]
pub(crate) struct Usual {
    /// Seconds a byte of the last requests that were answered.
    recent: VecDeque<f64>,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    pub bytes: u64,
    pub moved_bytes: u64,
    pub took: Nanos,
}

impl Usual {
    pub(crate) fn note(&mut self, bytes: u64, took: Nanos) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(took.seconds() / bytes.max(1) as f64);
    }

    /// True where the same request from its beginning, on another connection, would usually be done
    /// well before this one. A store that has all of it may do what it was asked to: it is not
    /// asked twice.
    pub(crate) fn is_left_behind(&self, course: &Course) -> bool {
        let Some(usual_s) = self.seconds_of(course.bytes) else { return false };
        let took_s = course.took.seconds();
        if took_s < usual_s || course.took < TOOK_MIN {
            return false;
        }
        let left = course.bytes.saturating_sub(course.moved_bytes) as f64;
        let left_s = took_s * left / course.moved_bytes.max(1) as f64;
        left_s > usual_s * WELL_BEFORE
    }

    /// The median; `None` of few.
    fn seconds_of(&self, bytes: u64) -> Option<f64> {
        if self.recent.len() < RECENT_MIN {
            return None;
        }
        let mut sorted: Vec<f64> = self.recent.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        Some(sorted[sorted.len() / 2] * bytes as f64)
    }
}

const RECENT: usize = 16;
const RECENT_MIN: usize = 5;
/// A store may think for so long whatever is usual.
pub(crate) const TOOK_MIN: Nanos = Nanos::from_millis(2_000);
/// What has moved is sent again: one that is only slow is left in peace.
const WELL_BEFORE: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_another_would_overtake_is_left_behind() {
        const MIB: u64 = 1 << 20;
        let mut usual = Usual::default();
        let is_left = |usual: &Usual, moved: u64, took_ms| {
            let took = Nanos::from_millis(took_ms);
            usual.is_left_behind(&Course { bytes: 8 * MIB, moved_bytes: moved * MIB, took })
        };
        (0..4).for_each(|_| usual.note(8 * MIB, Nanos::from_millis(3_000)));
        assert!(!is_left(&usual, 0, 60_000), "too few are known");
        usual.note(8 * MIB, Nanos::from_millis(30_000));
        // MiB moved in so many milliseconds, where 8 usually take 3,000.
        let cases = [
            (0, 2_900, false),
            (0, 3_100, true),
            (1, 3_100, true),
            (2, 3_100, true),
            (3, 3_100, false),
            (5, 6_000, false),
            (5, 20_000, true),
            (8, 90_000, false),
        ];
        for (moved, took, expect) in cases {
            assert_eq!(is_left(&usual, moved, took), expect, "{moved} MiB in {took} ms");
        }
        // A fast store that is late once.
        (0..RECENT).for_each(|_| usual.note(8 * MIB, Nanos::from_millis(20)));
        assert!(!is_left(&usual, 0, 1_900));
        assert!(is_left(&usual, 0, 2_100));
    }
}
