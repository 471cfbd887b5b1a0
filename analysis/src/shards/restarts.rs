//! Whether a worker that has ended is started again.

use base::fault::Class;

/// How a worker has ended, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Code(u8),
    /// Killed, or lost with its node.
    Lost,
    /// Somebody has taken it out of the queue.
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    StartAgain,
    /// It has done what there was to do.
    Leave,
    /// It would end in the same way.
    GiveUp,
    /// Who has cancelled it does not want it.
    StayAway,
}

/// Counts restarts since the last shard that was done: a job that goes on may lose any number of
/// workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restarts {
    since_progress: usize,
    shards_done: u32,
}

impl Restarts {
    pub fn decide(&mut self, ended: Ended, shards_done: u32, workers: usize) -> Decision {
        if shards_done > self.shards_done {
            *self = Restarts { since_progress: 0, shards_done };
        }
        let class = match ended {
            Ended::Code(0) => return Decision::Leave,
            Ended::Code(code) => Class::from_code(code),
            Ended::Lost => None,
            Ended::Cancelled => return Decision::StayAway,
        };
        // A full disk, a wrong folder or another version is the same the next time.
        if matches!(class, Some(Class::Usage | Class::NoSpace | Class::Version)) {
            return Decision::GiveUp;
        }
        self.since_progress += 1;
        match self.since_progress > RESTARTS_MAX * workers.max(1) {
            true => Decision::GiveUp,
            false => Decision::StartAgain,
        }
    }
}

/// Of each worker, without a shard that was done in between.
const RESTARTS_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_started_again() {
        for (code, expect) in [
            (0, Decision::Leave),
            (1, Decision::StartAgain),
            (2, Decision::GiveUp),
            (5, Decision::GiveUp),
            (8, Decision::GiveUp),
            (130, Decision::StartAgain),
        ] {
            assert_eq!(Restarts::default().decide(Ended::Code(code), 0, 3), expect, "{code}");
        }
        assert_eq!(Restarts::default().decide(Ended::Cancelled, 0, 3), Decision::StayAway);
    }

    #[test]
    fn restarts_have_a_cap_that_progress_lifts() {
        let mut restarts = Restarts::default();
        let mut until_given_up = |done| {
            (0..100)
                .take_while(|_| restarts.decide(Ended::Lost, done, 2) == Decision::StartAgain)
                .count()
        };
        assert_eq!((until_given_up(0), until_given_up(0), until_given_up(4)), (6, 0, 6));
    }
}
