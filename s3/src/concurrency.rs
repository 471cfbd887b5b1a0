//! How many long requests are under way, by what all of them move together: numbers in, a number
//! out.
//!
//! It begins with few. Twice as many are tried, and stay where they move more: each connection has
//! a share of the path, and what is under way at the end has to be moved with that share.

use base::limits::STORE_REQUESTS_MAX;
use base::units::{Nanos, Tick};

/// What is seen of all long requests at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub at: Tick,
    /// Of their bodies, both ways, since the beginning.
    pub moved_bytes: u64,
    /// Those under way, and those that wait until they may begin.
    pub wanted: usize,
}

#[derive(Debug)]
pub(crate) struct Concurrency {
    count: usize,
    stage: Stage,
    span: Span,
    /// How long it rests after the next trial that gains nothing.
    rest: Nanos,
}

/// Rates are in bytes a second.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The user has said how many.
    Fixed,
    Measuring,
    /// With more; how many there were before, and what they moved.
    Trying {
        from: usize,
        before: f64,
    },
    Resting(Tick),
}

/// What is measured since the number was chosen.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    since: Option<Tick>,
    /// Where the measurement begins.
    begun: Option<(Tick, u64)>,
}

impl Concurrency {
    pub(crate) fn new() -> Concurrency {
        Concurrency {
            count: COUNT_FIRST,
            stage: Stage::Measuring,
            span: Span::default(),
            rest: REST_MIN,
        }
    }

    /// As many as are asked for.
    pub(crate) fn fixed() -> Concurrency {
        let count = STORE_REQUESTS_MAX;
        Concurrency { count, stage: Stage::Fixed, ..Concurrency::new() }
    }

    /// How many may be under way.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn look(&mut self, look: &Look) {
        match self.stage {
            Stage::Fixed => return,
            Stage::Resting(until) if look.at < until => return,
            Stage::Resting(_) => self.become_stage(Stage::Measuring),
            Stage::Measuring | Stage::Trying { .. } => {}
        }
        if look.wanted * 8 < self.count * 7 {
            // Something else is slower: this number moves no less than another.
            self.span = Span::default();
            return;
        }
        let Some(rate) = self.span.measure(look) else { return };
        match self.stage {
            Stage::Trying { from, before } => self.tried(look.at, (from, before), rate),
            Stage::Measuring | Stage::Resting(_) | Stage::Fixed => self.begin_trial(look, rate),
        }
    }

    fn begin_trial(&mut self, look: &Look, before: f64) {
        let from = self.count;
        let to = (from * 2).min(STORE_REQUESTS_MAX).min(look.wanted);
        if to <= from {
            return self.rest(look.at);
        }
        self.count = to;
        self.become_stage(Stage::Trying { from, before });
    }

    fn tried(&mut self, now: Tick, (from, before): (usize, f64), rate: f64) {
        if rate >= before * GAIN {
            self.rest = REST_MIN;
            return self.become_stage(Stage::Measuring);
        }
        self.count = from;
        self.rest(now);
    }

    fn rest(&mut self, now: Tick) {
        self.become_stage(Stage::Resting(now.after(self.rest)));
        self.rest = Nanos((self.rest.0 * 2).min(REST_MAX.0));
    }

    fn become_stage(&mut self, stage: Stage) {
        self.stage = stage;
        self.span = Span::default();
    }
}

impl Span {
    /// The rate, once it has been measured for long enough.
    fn measure(&mut self, look: &Look) -> Option<f64> {
        let since = *self.since.get_or_insert(look.at);
        if look.at.since(since) < SETTLES_WITHIN {
            return None;
        }
        let (begun, bytes) = *self.begun.get_or_insert((look.at, look.moved_bytes));
        let took = look.at.since(begun);
        (took >= MEASURED_FOR).then(|| (look.moved_bytes - bytes) as f64 / took.seconds())
    }
}

/// Over a path of 400 Mbit/s and 100 ms eight of 8 MiB left a tenth of it empty, while each waited
/// for its answer; more than 16 moved no more, and took longer at the end.
const COUNT_FIRST: usize = 16;
/// Windows grow after a change, and what is moved goes to buffers of sockets first.
const SETTLES_WITHIN: Nanos = Nanos::from_millis(1_000);
const MEASURED_FOR: Nanos = Nanos::from_millis(2_000);
/// More are to move more by this much.
const GAIN: f64 = 1.15;
const REST_MIN: Nanos = Nanos::from_millis(30_000);
const REST_MAX: Nanos = Nanos::from_millis(300_000);

#[cfg(test)]
mod tests {
    use super::*;

    /// How many are under way after each second, where the path and each connection carry so many
    /// MB/s.
    fn counts(seconds: u64, wanted: usize, moves: impl Fn(u64, usize) -> f64) -> Vec<usize> {
        let mut concurrency = Concurrency::new();
        let (mut moved, mut counts) = (0.0, Vec::new());
        for tenth in 0..seconds * 10 {
            let at = Tick(1 + tenth * 100_000_000);
            concurrency.look(&Look { at, moved_bytes: moved as u64, wanted });
            let under_way = concurrency.count().min(wanted);
            moved += moves(tenth / 10, under_way) * 1e5;
            if tenth % 10 == 0 && counts.last() != Some(&concurrency.count()) {
                counts.push(concurrency.count());
            }
        }
        counts
    }

    #[test]
    fn as_many_stay_as_move_more() {
        // What is moved by so many; how many there are to be, one after another.
        let path = |path: f64, each: f64| move |_, count: usize| path.min(each * count as f64);
        assert_eq!(counts(30, 64, path(50.0, 20.0)), [16, 32, 16], "the path is full");
        assert_eq!(counts(30, 64, path(1000.0, 2.0)), [16, 32, 64], "each moves little");
        assert_eq!(counts(30, 64, path(100.0, 2.8)), [16, 32, 64, 32], "36 would do");
        assert_eq!(counts(30, 20, path(1000.0, 2.0)), [16, 20], "no more are wanted");
        assert_eq!(counts(60, 12, path(50.0, 1.0)), [16], "something else has no more");
        // The path changes while it rests.
        let widens = |second, count: usize| match second < 40 {
            true => f64::min(50.0, 3.0 * count as f64),
            false => 3.0 * count as f64,
        };
        assert_eq!(counts(90, 64, widens), [16, 32, 16, 32, 64]);
    }

    #[test]
    fn what_the_user_has_said_stays() {
        let mut concurrency = Concurrency::fixed();
        for second in 0..60_u64 {
            let at = Tick(1 + second * 1_000_000_000);
            concurrency.look(&Look { at, moved_bytes: second, wanted: 64 });
            assert_eq!(concurrency.count(), STORE_REQUESTS_MAX);
        }
    }
}
