//! The source's ledger: which extents are wanted, and who carries them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::brake::Brake;
use crate::base::extent::{Extent, ExtentSet};
use crate::base::label::{Kind, Label};
use crate::base::units::{Nanos, Rate, Tick};
use crate::io::request::{Cargo, Coverage, Part, Request};
use crate::io::volume::{Batch, LazyFile};

/// A stretch of wanted addresses that lanes have not claimed yet.
#[derive(Debug)]
pub enum Run {
    /// One request's worth of small files.
    Batch { start: u64, batch: Arc<Batch> },
    /// One object, cut into requests as it is claimed.
    Whole { start: u64, size: u64, object: u64, file: Option<Arc<LazyFile>> },
}

/// What came of asking for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    Taken,
    /// The rate allows no more until then.
    Later(Tick),
    /// Nothing is wanted now; the brake's bell rings when that changes.
    Idle,
    /// Nothing will be wanted any more.
    Dry,
}

/// Shared by the lanes of a source.
#[derive(Debug)]
pub struct Plan {
    slot_bytes: u32,
    pub brake: Arc<Brake>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    runs: VecDeque<Run>,
    /// How far the first run has been claimed.
    claimed: u64,
    ended: bool,
    pipe: PipeState,
    /// Addresses beyond the lowest unsettled one that the sink takes.
    window: Option<u64>,
    settled: ExtentSet,
    pace: Option<Pace>,
}

/// A pipe gives addresses as it is read: one lane reads at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PipeState {
    None,
    Free,
    Reading,
    Ended { bytes: u64 },
}

impl Plan {
    pub fn new(
        slot_bytes: u32,
        rate: Option<Rate>,
        window: Option<u64>,
        brake: Arc<Brake>,
    ) -> Plan {
        let state = State {
            runs: VecDeque::new(),
            claimed: 0,
            ended: false,
            pipe: PipeState::None,
            window,
            settled: ExtentSet::default(),
            pace: rate.map(|rate| Pace { rate, allowed_at: Tick(0) }),
        };
        Plan { slot_bytes, brake, state: Mutex::new(state) }
    }

    /// Adds what the sink wants.
    pub fn want(&self, runs: impl IntoIterator<Item = Run>) {
        self.lock().runs.extend(runs);
        self.brake.bell.ring();
    }

    /// The source is a pipe, and the sink wants it.
    pub fn want_pipe(&self) {
        self.lock().pipe = PipeState::Free;
        self.brake.bell.ring();
    }

    /// Nothing more will be wanted.
    pub fn end(&self) {
        self.lock().ended = true;
        self.brake.bell.ring();
    }

    /// These addresses are where they belong.
    pub fn settle(&self, ranges: &[(u64, u64)]) -> bool {
        let mut state = self.lock();
        if state.window.is_none() {
            return true; // only a window needs to know where the settled ones lie
        }
        let fresh = ranges.iter().all(|(start, end)| state.settled.insert_new(*start, *end));
        drop(state);
        self.brake.bell.ring();
        fresh
    }

    /// Gives the request the next extent to carry, if there is one.
    pub fn claim(&self, now: Tick, request: &mut Request) -> Claim {
        let mut state = self.lock();
        if let Some(pace) = &state.pace
            && pace.allowed_at > now
        {
            return Claim::Later(pace.allowed_at);
        }
        let claim = match state.pipe {
            PipeState::None => self.claim_run(&mut state, request),
            PipeState::Free => self.claim_pipe(&mut state, request),
            PipeState::Reading => Claim::Idle,
            PipeState::Ended { .. } => Claim::Dry,
        };
        if let (Claim::Taken, Some(pace)) = (claim, &mut state.pace) {
            pace.spend(now, request.label.body_len);
        }
        claim
    }

    /// A lane has read the pipe: the next address is free to be read, unless the pipe has ended.
    pub fn filled(&self, request: &Request) {
        let mut state = self.lock();
        if state.pipe != PipeState::Reading {
            return;
        }
        let extent = request.label.extent;
        state.claimed = extent.end();
        state.pipe = match extent.len == self.slot_bytes {
            true => PipeState::Free,
            false => PipeState::Ended { bytes: extent.end() },
        };
        drop(state);
        self.brake.bell.ring();
    }

    /// How long the pipe was, once it has ended.
    pub fn pipe_bytes(&self) -> Option<u64> {
        match self.lock().pipe {
            PipeState::Ended { bytes } => Some(bytes),
            _ => None,
        }
    }

    fn claim_run(&self, state: &mut State, request: &mut Request) -> Claim {
        let claimed = state.claimed;
        let Some(run) = state.runs.front() else {
            return if state.ended { Claim::Dry } else { Claim::Idle };
        };
        let (start, len, cargo, last) = match run {
            Run::Batch { start, batch } => {
                (*start, batch.bytes(), Cargo::Batch(batch.clone()), true)
            }
            Run::Whole { start, size, object, file } => {
                let len = (size - claimed).min(u64::from(self.slot_bytes)) as u32;
                let coverage = match u64::from(len) == *size {
                    true => Coverage::Whole,
                    false => Coverage::Some,
                };
                let part = Part { object: *object, offset: claimed, coverage, file: file.clone() };
                (start + claimed, len, Cargo::Part(part), claimed + u64::from(len) == *size)
            }
        };
        if self.is_past_window(state, start) {
            return Claim::Idle;
        }
        state.claimed = if last { 0 } else { claimed + u64::from(len) };
        if last {
            state.runs.pop_front();
        }
        load(request, Extent { start, len }, cargo);
        Claim::Taken
    }

    fn claim_pipe(&self, state: &mut State, request: &mut Request) -> Claim {
        let start = state.claimed;
        if self.is_past_window(state, start) {
            return Claim::Idle;
        }
        state.pipe = PipeState::Reading;
        let part = Part { object: 0, offset: start, coverage: Coverage::Some, file: None };
        load(request, Extent { start, len: self.slot_bytes }, Cargo::Part(part));
        Claim::Taken
    }

    fn is_past_window(&self, state: &State, start: u64) -> bool {
        let end = start.saturating_add(u64::from(self.slot_bytes));
        state.window.is_some_and(|window| end > state.settled.first_gap().saturating_add(window))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn load(request: &mut Request, extent: Extent, cargo: Cargo) {
    request.label = Label { kind: Kind::Data, extent, body_len: extent.len, ..Label::default() };
    request.cargo = cargo;
}

/// A rate kept by departure times: what was not used in the past is lost, but for one request.
#[derive(Debug)]
struct Pace {
    rate: Rate,
    allowed_at: Tick,
}

impl Pace {
    fn spend(&mut self, now: Tick, bytes: u32) {
        let takes = Nanos((f64::from(bytes) / self.rate.bytes_per_second * 1e9) as u64);
        let from = if self.allowed_at.0 + takes.0 < now.0 { now } else { self.allowed_at };
        self.allowed_at = from.after(takes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rate: Option<Rate>, window: Option<u64>) -> Plan {
        Plan::new(4096, rate, window, Arc::default())
    }

    fn whole(start: u64, size: u64) -> Run {
        Run::Whole { start, size, object: 0, file: None }
    }

    fn claims(plan: &Plan, now: Tick) -> (Vec<Extent>, Claim) {
        let mut extents = Vec::new();
        let mut request = Request::new(4096);
        loop {
            match plan.claim(now, &mut request) {
                Claim::Taken => extents.push(request.label.extent),
                other => return (extents, other),
            }
        }
    }

    #[test]
    fn a_long_object_is_cut() {
        let plan = plan(None, None);
        plan.want([whole(8192, 9000), whole(20480, 5)]);
        let (extents, end) = claims(&plan, Tick(0));
        let expect = [(8192, 4096), (12288, 4096), (16384, 808), (20480, 5)];
        assert_eq!(extents, expect.map(|(start, len)| Extent { start, len }));
        assert_eq!(end, Claim::Idle);
        plan.end();
        assert_eq!(claims(&plan, Tick(0)).1, Claim::Dry);
    }

    #[test]
    fn a_window_stops_claims_until_settled() {
        let plan = plan(None, Some(8192));
        plan.want([whole(0, 20_000)]);
        assert_eq!(claims(&plan, Tick(0)).0.len(), 2);
        assert!(plan.settle(&[(4096, 8192)]));
        assert_eq!(claims(&plan, Tick(0)).0.len(), 0);
        assert!(plan.settle(&[(0, 4096)]));
        assert_eq!(claims(&plan, Tick(0)).0.len(), 2);
        assert!(!plan.settle(&[(0, 4096)]), "settled twice");
    }

    #[test]
    fn a_rate_spaces_claims() {
        let plan = plan(Some(Rate { bytes_per_second: 4096.0 * 10.0 }), None);
        plan.want([whole(0, 1 << 30)]);
        let mut request = Request::new(4096);
        let mut now = Tick(5_000_000_000);
        let mut count = 0;
        while now < Tick(6_000_000_000) {
            match plan.claim(now, &mut request) {
                Claim::Taken => count += 1,
                Claim::Later(until) => now = until,
                other => panic!("{other:?}"),
            }
        }
        assert!((10..=11).contains(&count), "{count} requests in a second of ten");
    }

    #[test]
    fn a_pipe_is_read_by_one_lane_at_a_time() {
        let plan = plan(None, None);
        plan.want_pipe();
        let mut request = Request::new(4096);
        assert_eq!(plan.claim(Tick(0), &mut request), Claim::Taken);
        assert_eq!(claims(&plan, Tick(0)).1, Claim::Idle);
        plan.filled(&request);
        assert_eq!(plan.claim(Tick(0), &mut request), Claim::Taken);
        assert_eq!(request.label.extent.start, 4096);
        request.label.extent.len = 10;
        plan.filled(&request);
        assert_eq!(plan.pipe_bytes(), Some(4106));
        assert_eq!(claims(&plan, Tick(0)).1, Claim::Dry);
    }
}
