//! Tries out whether compression pays at all, where that cannot be predicted.
//!
//! Threads that compress share the CPUs with everything else. Where the wire is fast, handing over
//! a payload, probing it and leaving it as it is costs a tenth of its time. So now and then two
//! modes alternate: payloads pass through the worker pool, or stay in their lanes as if compression
//! were off. The one that has moved more is used until the next trial.

use base::units::{Nanos, Tick};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Payloads are probed, and compressed as planned.
    Compress,
    /// They stay in their lanes.
    Off,
}

impl Mode {
    fn other(self) -> Mode {
        match self {
            Mode::Compress => Mode::Off,
            Mode::Off => Mode::Compress,
        }
    }
}

#[derive(Debug)]
pub(super) struct Trial {
    /// The mode between trials.
    holder: Mode,
    turns: Option<Turns>,
    next_at: Tick,
    pause: Nanos,
}

/// A trial in progress: the holder begins, and each has half of the turns.
#[derive(Clone, Copy, Debug)]
struct Turns {
    taken: u32,
    begun: Option<Tick>,
    /// Moved since `begun`.
    all_bytes: u64,
    /// When the turn began to count: what moves first was begun in the turn before.
    counts_from: Option<Tick>,
    bytes: u64,
    payloads: u32,
    /// Of the holder and of the other: what they moved, and in what time.
    moved: [(u64, Nanos); 2],
}

impl Turns {
    fn begin() -> Turns {
        Turns {
            taken: 0,
            begun: None,
            all_bytes: 0,
            counts_from: None,
            bytes: 0,
            payloads: 0,
            moved: Default::default(),
        }
    }

    fn index(&self) -> usize {
        (self.taken % 2) as usize
    }

    /// True when no further turn is needed.
    fn sent(&mut self, now: Tick, raw_bytes: u32) -> bool {
        self.payloads += 1;
        self.all_bytes += u64::from(raw_bytes);
        let since_begun = now.since(*self.begun.get_or_insert(now));
        if self.is_hopeless(since_begun) {
            self.moved[1] = (self.all_bytes, since_begun);
            return true;
        }
        let Some(counts_from) = self.counts_from else {
            if self.payloads == SETTLES {
                (self.counts_from, self.payloads) = (Some(now), 0);
            }
            return false;
        };
        self.bytes += u64::from(raw_bytes);
        let spent = now.since(counts_from);
        if spent < TURN || self.payloads < PAYLOADS_MIN {
            return false;
        }
        let place = self.index();
        let (bytes, time) = &mut self.moved[place];
        *bytes += self.bytes;
        *time += spent;
        self.taken += 1;
        (self.begun, self.all_bytes) = (None, 0);
        (self.counts_from, self.bytes, self.payloads) = (None, 0, 0);
        // A pair with a clear result ends the trial; a change takes two, as one of them may have
        // begun while everything waited for a CPU.
        let is_pair = self.taken.is_multiple_of(2);
        let is_lost = self.gain() < 1.0 / EVIDENT;
        let is_clear = self.gain() > EVIDENT && self.taken >= 4;
        self.taken == TURNS || (is_pair && (is_lost || is_clear))
    }

    /// True where the other moves so much less that its turn can be cut short.
    fn is_hopeless(&self, since_begun: Nanos) -> bool {
        let (bytes, time) = self.moved[0];
        let rate = self.all_bytes as f64 / since_begun.seconds().max(1e-9);
        let holder = bytes as f64 / time.seconds().max(1e-9);
        self.index() == 1 && since_begun > HOPELESS_AFTER && rate < holder * HOPELESS_SHARE
    }

    /// How much more the other moved than the holder.
    fn gain(&self) -> f64 {
        let [holder, other] =
            self.moved.map(|(bytes, time)| bytes as f64 / time.seconds().max(1e-9));
        other / holder.max(1e-9)
    }
}

impl Trial {
    pub(super) fn new(now: Tick) -> Trial {
        Trial { holder: Mode::Compress, turns: None, next_at: now.after(FIRST), pause: PAUSE_MIN }
    }

    /// The mode in force now.
    pub(super) fn mode(&self) -> Mode {
        match &self.turns {
            Some(turns) if turns.index() == 1 => self.holder.other(),
            _ => self.holder,
        }
    }

    /// A payload has been sent.
    pub(super) fn sent(&mut self, now: Tick, raw_bytes: u32) {
        if let Some(turns) = &mut self.turns {
            if turns.sent(now, raw_bytes) {
                let gain = turns.gain();
                self.decide(now, gain);
            }
        } else if now >= self.next_at {
            self.turns = Some(Turns::begin());
        }
    }

    /// Compression clearly pays: nothing is tried.
    pub(crate) fn is_settled(&mut self, now: Tick) {
        self.turns = None;
        self.holder = Mode::Compress;
        self.next_at = self.next_at.max(now.after(FIRST));
    }

    fn decide(&mut self, now: Tick, gain: f64) {
        let longer = |times: u64| Nanos(self.pause.0 * times).min(PAUSE_MAX);
        self.pause = match gain {
            gain if gain > WORTH_IT => PAUSE_MIN,
            gain if gain > 1.0 / EVIDENT => longer(2),
            // A trial that costs much is made rarely.
            _ => longer(4),
        };
        if gain > WORTH_IT {
            self.holder = self.holder.other();
        }
        self.turns = None;
        self.next_at = now.after(self.pause);
    }
}

const TURNS: u32 = 6;
const TURN: Nanos = Nanos::from_millis(50);
/// Kinds of data may alternate too.
const PAYLOADS_MIN: u32 = 32;
/// Payloads that may be in flight when a turn begins.
const SETTLES: u32 = 16;
const FIRST: Nanos = Nanos::from_millis(200);
const PAUSE_MIN: Nanos = Nanos::from_millis(1000);
const PAUSE_MAX: Nanos = Nanos::from_millis(16_000);
const WORTH_IT: f64 = 1.01;
const EVIDENT: f64 = 1.2;
const HOPELESS_AFTER: Nanos = Nanos::from_millis(100);
const HOPELESS_SHARE: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves payloads for this many seconds, at rates in payloads a second with compression and
    /// without; returns the share of the better rate, and the mode at the end.
    fn run(trial: &mut Trial, from_s: f64, to_s: f64, on: f64, off: f64) -> (f64, Mode) {
        let (mut at_s, mut moved) = (from_s, 0.0);
        while at_s < to_s {
            let rate = if trial.mode() == Mode::Compress { on } else { off };
            at_s += 1.0 / rate;
            moved += 1.0;
            trial.sent(Tick((at_s * 1e9) as u64), 1 << 20);
        }
        (moved / (to_s - from_s) / on.max(off), trial.mode())
    }

    #[test]
    fn what_moves_more_goes_on() {
        for (on, off, mode) in [
            (900.0, 1000.0, Mode::Off),
            (1000.0, 900.0, Mode::Compress),
            (3000.0, 1000.0, Mode::Compress),
        ] {
            let mut trial = Trial::new(Tick(0));
            let (share, holder) = run(&mut trial, 0.0, 10.0, on, off);
            assert_eq!(holder, mode, "{on} {off}");
            assert!(share > if on == 3000.0 { 0.93 } else { 0.98 }, "{on} {off}: {share}");
            // The data changes, and what moves more is found again.
            let (share, holder) = run(&mut trial, 10.0, 40.0, off, on);
            assert_eq!(holder, mode.other(), "{on} {off} changed");
            assert!(share > if on == 3000.0 { 0.6 } else { 0.95 }, "{on} {off}: {share}");
        }
    }

    #[test]
    fn a_turn_that_moves_next_to_nothing_is_cut_short() {
        // 48 payloads without compression would take half a second.
        let (share, holder) = run(&mut Trial::new(Tick(0)), 0.0, 10.0, 3000.0, 100.0);
        assert!(holder == Mode::Compress && share > 0.95, "{share}");
    }

    #[test]
    fn what_is_beyond_doubt_is_not_tried() {
        let mut trial = Trial::new(Tick(0));
        for second in 1..20_u64 {
            trial.is_settled(Tick(second * 100_000_000));
            trial.sent(Tick(second * 100_000_000 + 1), 1);
            assert_eq!(trial.mode(), Mode::Compress);
        }
    }
}
