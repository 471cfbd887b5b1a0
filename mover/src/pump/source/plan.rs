//! The source's ledger: which extents are wanted, and which stream carries them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::pace::Pace;
use crate::io::request::{Content, Coverage, Part, Request};
use crate::io::volume::{Batch, LazyFile};
use crate::pump::cancellation::Cancellation;
use crate::wire::message::Carries;
use base::extent::{Extent, ExtentSet};
use base::label::{Kind, Label};
use base::settings::Lockstep;
use base::units::{Nanos, Rate, Tick};

mod pace;

/// A range of wanted addresses that lanes have not claimed yet.
#[derive(Clone, Debug)]
pub enum Run {
    /// One request's worth of small files.
    Batch { start: u64, batch: Arc<Batch> },
    /// A range of one object that begins at address `start`, cut into requests as it is claimed.
    Object { start: u64, size: u64, todo: Range<u64>, object: u64, file: Option<Arc<LazyFile>> },
    /// Bytes that were read from a pipe and lost in transit.
    Again { start: u64, bytes: Arc<[u8]> },
    /// One request of a source without an end.
    Made { start: u64, len: u32 },
}

/// The result of asking for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    Taken,
    /// The rate allows no more until this time.
    Later(Tick),
    /// Nothing is wanted now; the cancellation's eventcount is notified when that changes.
    Idle,
    /// Nothing will be wanted any more.
    Dry,
}

/// Shared by the lanes of a source.
#[derive(Debug)]
pub struct Plan {
    slot_bytes: u32,
    pub cancellation: Arc<Cancellation>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    runs: VecDeque<Run>,
    /// How far a pipe has been read.
    read: u64,
    ended: bool,
    pipe: PipeState,
    /// Addresses beyond the lowest unsettled one that the sink accepts.
    window: Option<u64>,
    settled: ExtentSet,
    pace: Option<Pace>,
    /// Which stream carries what, where it can get lost in transit.
    claims: Option<Claims>,
    /// Each stream stops now and then to wait for the sink.
    lockstep: Option<Lockstep>,
    /// The stream on the control connection, if there is one.
    carried: Option<CarriedStream>,
    /// Streams that get nothing more, until all that they have claimed is settled.
    ending: BTreeSet<u32>,
}

/// A stream on the control connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CarriedStream {
    stream: u32,
    what: Carries,
}

/// What has been claimed and is not settled, by address.
#[derive(Debug, Default)]
struct Claims {
    claimed: BTreeMap<u64, Claimed>,
    /// Since when nothing of a stream has been settled, and how much of it is in flight.
    streams: BTreeMap<u32, Waiting>,
}

#[derive(Debug)]
struct Claimed {
    stream: u32,
    len: u32,
    again: Run,
    /// Its bytes have been read: they wait for the stream.
    filled: bool,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    since: Tick,
    filled: u32,
    /// What has been claimed and not settled, filled or not.
    claimed: u32,
    /// In lockstep: what was claimed since the last stop, and until when it stops.
    block_bytes: u64,
    stops_until: Tick,
}

impl Waiting {
    fn new(now: Tick) -> Waiting {
        Waiting { since: now, filled: 0, claimed: 0, block_bytes: 0, stops_until: Tick(0) }
    }
}

/// The addresses of a pipe are known as it is read: one lane reads at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PipeState {
    None,
    Free,
    Reading,
    /// All lanes take from an endless source, until it is stopped.
    Endless,
    Ended {
        bytes: u64,
    },
}

impl Plan {
    /// `streams`: claims are sent on streams, which can break.
    pub fn new(
        slot_bytes: u32,
        rate: Option<Rate>,
        window: Option<u64>,
        streams: bool,
        cancellation: Arc<Cancellation>,
    ) -> Plan {
        let state = State {
            runs: VecDeque::new(),
            read: 0,
            ended: false,
            pipe: PipeState::None,
            window,
            settled: ExtentSet::default(),
            pace: rate.map(|rate| Pace { rate, allowed_at: Tick(0), has_holes: false }),
            claims: streams.then(Claims::default),
            lockstep: None,
            carried: None,
            ending: BTreeSet::new(),
        };
        Plan { slot_bytes, cancellation, state: Mutex::new(state) }
    }

    /// Makes each stream stop as the lockstep says.
    pub(crate) fn in_lockstep(self, lockstep: Option<Lockstep>) -> Plan {
        self.lock().lockstep = lockstep;
        self
    }

    /// Keeps to this rate from now on, or to none. What was claimed at another rate before holds
    /// up nothing for longer than a request takes at this one.
    pub(crate) fn limit(&self, now: Tick, rate: Option<Rate>) {
        let mut state = self.lock();
        let before = state.pace.take();
        state.pace = rate.map(|rate| {
            let has_holes = before.as_ref().is_some_and(|before| before.has_holes)
                || state.runs.iter().any(Run::has_holes);
            let mut pace = Pace { rate, allowed_at: now, has_holes };
            if let Some(before) = before {
                pace.allowed_at = before.allowed_at.min(now.after(pace.takes(self.slot_bytes)));
            }
            pace
        });
        drop(state);
        self.cancellation.changes.notify();
    }

    /// Adds what the sink wants.
    pub fn want(&self, runs: impl IntoIterator<Item = Run>) {
        let mut state = self.lock();
        let before = state.runs.len();
        state.runs.extend(runs);
        let has_holes = state.runs.range(before..).any(Run::has_holes);
        if let Some(pace) = &mut state.pace {
            pace.has_holes |= has_holes;
        }
        drop(state);
        self.cancellation.changes.notify();
    }

    /// The source is a pipe, and the sink wants it.
    pub(crate) fn want_pipe(&self) {
        self.lock().pipe = PipeState::Free;
        self.cancellation.changes.notify();
    }

    /// The source is endless, and the sink wants it.
    pub(crate) fn want_endless(&self) {
        self.lock().pipe = PipeState::Endless;
        self.cancellation.changes.notify();
    }

    /// This stream, on the control connection, carries the first bytes, while others are being
    /// opened: one request under way at most, so that little is left on it when they are. Or all
    /// bytes, or no more.
    pub(crate) fn carry(&self, stream: u32, what: Carries) {
        self.lock().carried = Some(CarriedStream { stream, what });
        self.cancellation.changes.notify();
    }

    /// This stream gets nothing more: it ends once all that it has claimed is settled.
    pub(crate) fn end_stream(&self, stream: u32) {
        self.lock().ending.insert(stream);
        self.cancellation.changes.notify();
    }

    /// Ends an endless source after what has been claimed; others end by themselves.
    pub fn enough(&self) {
        let mut state = self.lock();
        if state.pipe == PipeState::Endless {
            state.pipe = PipeState::Ended { bytes: state.read };
            drop(state);
            self.cancellation.changes.notify();
        }
    }

    /// Nothing more will be wanted.
    pub fn end(&self) {
        self.lock().ended = true;
        self.cancellation.changes.notify();
    }

    /// These addresses have arrived. False when some of them were never sent.
    pub fn settle(&self, now: Tick, ranges: &[(u64, u64)]) -> bool {
        let mut state = self.lock();
        let mut sound = true;
        let lockstep = state.lockstep;
        if state.window.is_some() {
            sound = ranges.iter().all(|(start, end)| state.settled.insert_new(*start, *end));
        }
        if let Some(claims) = &mut state.claims {
            sound &= ranges.iter().all(|(start, end)| claims.settle(now, *start, *end));
        }
        if let (Some(lockstep), Some(claims)) = (lockstep, &mut state.claims) {
            claims.end_blocks(now, lockstep);
        }
        let is_news = state.window.is_some()
            || lockstep.is_some()
            || !state.ending.is_empty()
            || state.carried.is_some_and(|carried| carried.what == Carries::First)
            || state.claims.as_ref().is_some_and(|claims| claims.claimed.is_empty());
        drop(state);
        if is_news {
            self.cancellation.changes.notify();
        }
        sound
    }

    /// Gives the request the next extent to carry, if there is one.
    pub fn claim(&self, now: Tick, stream: u32, request: &mut Request) -> Claim {
        let mut state = self.lock();
        if let Some(stop) = state.stop_of_ending(stream) {
            return stop;
        }
        if let Some(pace) = &state.pace
            && pace.allowed_at > now
        {
            // A hole gives back the time that it was charged, so it may be sooner.
            let sooner = if pace.has_holes { now.after(LOOK_AGAIN) } else { pace.allowed_at };
            return Claim::Later(pace.allowed_at.min(sooner));
        }
        let stop = state.stop_of_carried(stream).or_else(|| state.stop_of(now, stream));
        if let Some(stop) = stop {
            return stop;
        }
        let claimed = match (state.runs.is_empty(), state.pipe) {
            (false, _) | (true, PipeState::None) => self.claim_run(&mut state, request),
            (true, PipeState::Free) => self.claim_pipe(&mut state, request),
            (true, PipeState::Reading) => Err(Claim::Idle),
            (true, PipeState::Endless) => self.claim_endless(&mut state, request),
            (true, PipeState::Ended { .. }) => Err(Claim::Dry),
        };
        let again = match claimed {
            Ok(again) => again,
            // What is in flight may still get lost.
            Err(Claim::Dry) if state.may_come_back(stream) => return Claim::Idle,
            Err(other) => return other,
        };
        if let Some(pace) = &mut state.pace {
            pace.spend(now, request.label.body_len);
        }
        if let Some(claims) = &mut state.claims {
            let Extent { start, len } = request.label.extent;
            let waiting = claims.streams.entry(stream).or_insert(Waiting::new(now));
            waiting.claimed += 1;
            waiting.block_bytes += u64::from(len);
            claims.claimed.insert(start, Claimed { stream, len, again, filled: false });
        }
        Claim::Taken
    }

    /// A lane has filled a request. The next address of a pipe can be read then, unless the pipe
    /// has ended.
    pub fn filled(&self, now: Tick, request: &Request) {
        let mut state = self.lock();
        let extent = request.label.extent;
        if let Some(pace) = &mut state.pace {
            pace.give_back(request.left_out());
        }
        let from_pipe = state.pipe == PipeState::Reading && extent.start == state.read;
        if let Some(claims) = &mut state.claims {
            claims.filled(now, request, from_pipe);
        }
        if !from_pipe {
            return;
        }
        state.read = extent.end();
        state.pipe = match extent.len == self.slot_bytes {
            true => PipeState::Free,
            false => PipeState::Ended { bytes: extent.end() },
        };
        drop(state);
        self.cancellation.changes.notify();
    }

    /// The length of the pipe, once it has ended.
    pub(crate) fn pipe_bytes(&self) -> Option<u64> {
        match self.lock().pipe {
            PipeState::Ended { bytes } => Some(bytes),
            _ => None,
        }
    }

    /// A stream is lost: what it carried and the sink does not have is wanted again. True when
    /// there is any.
    pub fn lost(&self, stream: u32) -> bool {
        let mut state = self.lock();
        state.ending.remove(&stream);
        let Some(claims) = &mut state.claims else { return false };
        claims.streams.remove(&stream);
        let starts: Vec<u64> = claims
            .claimed
            .iter()
            .filter(|(_, claimed)| claimed.stream == stream)
            .map(|(start, _)| *start)
            .collect();
        let again: Vec<Run> = starts
            .iter()
            .filter_map(|start| claims.claimed.remove(start))
            .map(|claimed| claimed.again)
            .collect();
        let any = !again.is_empty();
        for run in again.into_iter().rev() {
            state.runs.push_front(run);
        }
        drop(state);
        self.cancellation.changes.notify();
        any
    }

    /// Streams with filled requests of which nothing has been settled for `stall`.
    pub fn stalled(&self, now: Tick, stall: Nanos) -> Vec<u32> {
        let state = self.lock();
        let Some(claims) = &state.claims else { return Vec::new() };
        let stalled = |(_, waiting): &(&u32, &Waiting)| {
            waiting.filled > 0 && now.since(waiting.since).0 > stall.0
        };
        claims.streams.iter().filter(stalled).map(|(stream, _)| *stream).collect()
    }

    /// True when streams have nothing left to carry.
    pub(crate) fn is_settled(&self) -> bool {
        let state = self.lock();
        let under_way = state.claims.as_ref().is_some_and(|claims| !claims.claimed.is_empty());
        let piping =
            matches!(state.pipe, PipeState::Free | PipeState::Reading | PipeState::Endless);
        state.ended && state.runs.is_empty() && !under_way && !piping
    }

    fn claim_run(&self, state: &mut State, request: &mut Request) -> Result<Run, Claim> {
        let Some(run) = state.runs.front() else {
            return Err(if state.ended { Claim::Dry } else { Claim::Idle });
        };
        let again = match run {
            Run::Object { start, size, todo, object, file } => {
                let to = todo.end.min(todo.start + u64::from(self.slot_bytes));
                Run::Object {
                    start: *start,
                    size: *size,
                    todo: todo.start..to,
                    object: *object,
                    file: file.clone(),
                }
            }
            whole => whole.clone(),
        };
        let (extent, content) = again.content();
        if self.is_past_window(state, extent.start) {
            return Err(Claim::Idle);
        }
        match state.runs.front_mut() {
            Some(Run::Object { todo, .. }) if todo.end - todo.start > u64::from(extent.len) => {
                todo.start += u64::from(extent.len);
            }
            _ => drop(state.runs.pop_front()),
        }
        load(request, extent, content);
        if let Run::Again { bytes, .. } = &again {
            request.body_mut().copy_from_slice(bytes);
            request.again = true;
        }
        Ok(again)
    }

    fn claim_pipe(&self, state: &mut State, request: &mut Request) -> Result<Run, Claim> {
        let start = state.read;
        if self.is_past_window(state, start) {
            return Err(Claim::Idle);
        }
        state.pipe = PipeState::Reading;
        let extent = Extent { start, len: self.slot_bytes };
        load(request, extent, pipe_part(start));
        Ok(Run::Again { start, bytes: Arc::default() }) // its bytes are known when it is filled
    }

    fn claim_endless(&self, state: &mut State, request: &mut Request) -> Result<Run, Claim> {
        let run = Run::Made { start: state.read, len: self.slot_bytes };
        if self.is_past_window(state, state.read) {
            return Err(Claim::Idle);
        }
        state.read += u64::from(self.slot_bytes);
        let (extent, content) = run.content();
        load(request, extent, content);
        Ok(run)
    }

    fn is_past_window(&self, state: &State, start: u64) -> bool {
        let end = start.saturating_add(u64::from(self.slot_bytes));
        state.window.is_some_and(|window| end > state.settled.first_gap().saturating_add(window))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// True while something is in flight that this stream may have to send again. A stream on the
    /// control connection is not lost alone: with nothing on others, its end can follow at once.
    fn may_come_back(&self, stream: u32) -> bool {
        let Some(claims) = &self.claims else { return false };
        match self.carried.is_some_and(|carried| carried.stream == stream) {
            true => claims.claimed.values().any(|claimed| claimed.stream != stream),
            false => !claims.claimed.is_empty(),
        }
    }

    /// What the stream on the control connection is told, where it gets nothing now.
    fn stop_of_carried(&self, stream: u32) -> Option<Claim> {
        let carried = self.carried.filter(|carried| carried.stream == stream)?;
        match carried.what {
            Carries::All => None,
            Carries::NoMore => Some(Claim::Dry),
            Carries::First => {
                let waiting = self.claims.as_ref()?.streams.get(&stream)?;
                let has_more = !self.runs.is_empty() || self.pipe != PipeState::None;
                (waiting.claimed > 0 && has_more).then_some(Claim::Idle)
            }
        }
    }

    /// What a stream is told that is to end.
    fn stop_of_ending(&mut self, stream: u32) -> Option<Claim> {
        if !self.ending.contains(&stream) {
            return None;
        }
        let waiting = self.claims.as_ref().and_then(|claims| claims.streams.get(&stream));
        if waiting.is_some_and(|waiting| waiting.claimed > 0) {
            return Some(Claim::Idle);
        }
        self.ending.remove(&stream);
        Some(Claim::Dry)
    }

    /// What a stream in lockstep is told while it stops; `None` where it may continue. With nothing
    /// left to send it need not stop.
    fn stop_of(&self, now: Tick, stream: u32) -> Option<Claim> {
        let lockstep = self.lockstep?;
        let waiting = self.claims.as_ref()?.streams.get(&stream)?;
        let flows = matches!(self.pipe, PipeState::Free | PipeState::Endless);
        let more = !self.runs.is_empty() || flows;
        match more {
            true if waiting.block_bytes >= lockstep.every_bytes => Some(Claim::Idle),
            true if waiting.stops_until > now => Some(Claim::Later(waiting.stops_until)),
            _ => None,
        }
    }
}

impl Run {
    fn has_holes(&self) -> bool {
        match self {
            Run::Object { file, .. } => file.as_ref().is_some_and(|file| file.sparse),
            Run::Batch { batch, .. } => batch.segments.iter().any(|file| file.sparse),
            Run::Again { .. } | Run::Made { .. } => false,
        }
    }

    /// The content of a run that is no longer than one request.
    fn content(&self) -> (Extent, Content) {
        match self {
            Run::Batch { start, batch } => {
                (Extent { start: *start, len: batch.bytes() }, Content::Batch(batch.clone()))
            }
            Run::Object { start, size, todo, object, file } => {
                let len = (todo.end - todo.start) as u32;
                let coverage = match u64::from(len) == *size {
                    true => Coverage::All,
                    false => Coverage::Some,
                };
                let offset = todo.start;
                let part = Part { object: *object, offset, coverage, file: file.clone() };
                (Extent { start: start + offset, len }, Content::Part(part))
            }
            Run::Again { start, bytes } => {
                (Extent { start: *start, len: bytes.len() as u32 }, pipe_part(*start))
            }
            Run::Made { start, len } => (Extent { start: *start, len: *len }, pipe_part(*start)),
        }
    }
}

/// A pipe is the only object of its transfer: the addresses of its bytes are their offsets.
fn pipe_part(offset: u64) -> Content {
    Content::Part(Part { object: 0, offset, coverage: Coverage::Some, file: None })
}

impl Claims {
    fn filled(&mut self, now: Tick, request: &Request, from_pipe: bool) {
        let Extent { start, len } = request.label.extent;
        let Some(claimed) = self.claimed.get_mut(&start) else { return };
        claimed.filled = true;
        if from_pipe {
            // A pipe cannot be read twice: its bytes are kept until they are settled.
            claimed.len = len;
            claimed.again = Run::Again { start, bytes: request.body()[..len as usize].into() };
        }
        if let Some(waiting) = self.streams.get_mut(&claimed.stream) {
            if waiting.filled == 0 {
                waiting.since = now;
            }
            waiting.filled += 1;
        }
        if from_pipe && len == 0 {
            self.settle_one(now, start); // the end of a pipe, between two requests
        }
    }

    /// Settles the claims of a range; false when some of it was not claimed.
    fn settle(&mut self, now: Tick, start: u64, end: u64) -> bool {
        let mut at = start;
        while at < end {
            let Some(len) = self.claimed.get(&at).map(|claimed| claimed.len) else { return false };
            self.settle_one(now, at);
            at += u64::from(len);
        }
        at == end
    }

    fn settle_one(&mut self, now: Tick, start: u64) {
        let Some(claimed) = self.claimed.remove(&start) else { return };
        if let Some(waiting) = self.streams.get_mut(&claimed.stream) {
            waiting.since = now;
            waiting.filled = waiting.filled.saturating_sub(u32::from(claimed.filled));
            waiting.claimed = waiting.claimed.saturating_sub(1);
        }
    }

    /// Starts the pause of streams of which all is settled that was sent before their stop.
    fn end_blocks(&mut self, now: Tick, lockstep: Lockstep) {
        let over = |waiting: &&mut Waiting| {
            waiting.claimed == 0 && waiting.block_bytes >= lockstep.every_bytes
        };
        for waiting in self.streams.values_mut().filter(over) {
            waiting.block_bytes = 0;
            waiting.stops_until = now.after(lockstep.pause);
        }
    }
}

fn load(request: &mut Request, extent: Extent, content: Content) {
    request.label = Label { kind: Kind::Data, extent, body_len: extent.len, ..Label::default() };
    request.content = content;
}

/// How long to wait for the rate, where there are holes, before looking again.
const LOOK_AGAIN: Nanos = Nanos::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rate: Option<Rate>, window: Option<u64>) -> Plan {
        Plan::new(4096, rate, window, false, Arc::default())
    }

    fn whole(start: u64, size: u64) -> Run {
        Run::Object { start, size, todo: 0..size, object: 0, file: None }
    }

    fn claims(plan: &Plan, now: Tick) -> (Vec<Extent>, Claim) {
        let mut extents = Vec::new();
        let mut request = Request::new(4096);
        loop {
            match plan.claim(now, 0, &mut request) {
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
        assert!(plan.settle(Tick(0), &[(4096, 8192)]));
        assert_eq!(claims(&plan, Tick(0)).0.len(), 0);
        assert!(plan.settle(Tick(0), &[(0, 4096)]));
        assert_eq!(claims(&plan, Tick(0)).0.len(), 2);
        assert!(!plan.settle(Tick(0), &[(0, 4096)]), "settled twice");
    }

    #[test]
    fn a_rate_is_of_what_travels() {
        let plan = plan(Some(Rate { bytes_per_second: 4096.0 * 10.0 }), None);
        plan.want([whole(0, 1 << 30)]);
        let mut request = Request::new(4096);
        let now = Tick(5_000_000_000);
        for _ in 0..1000 {
            assert_eq!(plan.claim(now, 0, &mut request), Claim::Taken);
            request.label.kind = Kind::Zero;
            plan.filled(now, &request);
        }
        // Data waits as before.
        assert_eq!(plan.claim(now, 0, &mut request), Claim::Taken);
        assert!(matches!(plan.claim(now, 0, &mut request), Claim::Later(_)));
    }

    #[test]
    fn a_rate_spaces_claims() {
        let plan = plan(Some(Rate { bytes_per_second: 4096.0 * 10.0 }), None);
        plan.want([whole(0, 1 << 30)]);
        let mut request = Request::new(4096);
        let mut now = Tick(5_000_000_000);
        let mut count = 0;
        while now < Tick(6_000_000_000) {
            match plan.claim(now, 0, &mut request) {
                Claim::Taken => count += 1,
                Claim::Later(until) => now = until,
                other => panic!("{other:?}"),
            }
        }
        assert!((10..=11).contains(&count), "{count} requests in a second of ten");
    }

    /// From slow to fast, to slow, and to no limit: a second of each claims what its rate allows.
    #[test]
    fn a_rate_may_change() {
        let plan = plan(Some(Rate { bytes_per_second: 10.0 }), None);
        plan.want([whole(0, 1 << 30)]);
        let rates = [Some(4096.0 * 5.0), Some(4096.0 * 2.0), Some(4096.0 * 50.0)];
        assert_eq!(claims(&plan, Tick(1)).0.len(), 1, "the next one is days away");
        let mut now = Tick(1);
        for rate in rates {
            plan.limit(now, rate.map(|bytes_per_second| Rate { bytes_per_second }));
            let end = now.after(Nanos::from_millis(1000));
            let mut count = 0;
            while now < end {
                count += claims(&plan, now).0.len();
                now = now.after(Nanos::from_millis(1));
            }
            let asked = rate.unwrap_or_default() / 4096.0;
            assert!((count as f64 - asked).abs() <= 1.0, "{count} of {asked}");
        }
        plan.limit(now, None);
        let mut request = Request::new(4096);
        assert!((0..1000).all(|_| plan.claim(now, 0, &mut request) == Claim::Taken));
        plan.limit(now, Some(Rate { bytes_per_second: 1.0 }));
        assert_eq!(plan.claim(now, 0, &mut request), Claim::Taken);
        assert_eq!(
            plan.claim(now, 0, &mut request),
            Claim::Later(now.after(Nanos(4096 * 1_000_000_000)))
        );
    }

    #[test]
    fn a_pipe_is_read_by_one_lane_at_a_time() {
        let plan = plan(None, None);
        plan.want_pipe();
        let mut request = Request::new(4096);
        assert_eq!(plan.claim(Tick(0), 0, &mut request), Claim::Taken);
        assert_eq!(claims(&plan, Tick(0)).1, Claim::Idle);
        plan.filled(Tick(0), &request);
        assert_eq!(plan.claim(Tick(0), 0, &mut request), Claim::Taken);
        assert_eq!(request.label.extent.start, 4096);
        request.label.extent.len = 10;
        plan.filled(Tick(0), &request);
        assert_eq!(plan.pipe_bytes(), Some(4106));
        assert_eq!(claims(&plan, Tick(0)).1, Claim::Dry);
    }

    #[test]
    fn what_is_endless_ends_when_it_is_enough() {
        let plan = Plan::new(4096, None, None, true, Arc::default());
        plan.enough();
        plan.want_endless();
        plan.end();
        let mut request = Request::new(4096);
        for stream in [1, 2, 1] {
            assert_eq!(plan.claim(Tick(0), stream, &mut request), Claim::Taken);
            plan.filled(Tick(0), &request);
        }
        assert_eq!((plan.pipe_bytes(), plan.is_settled()), (None, false));
        plan.enough();
        assert_eq!(plan.pipe_bytes(), Some(3 * 4096));
        assert!(plan.lost(2));
        assert_eq!(plan.claim(Tick(1), 1, &mut request), Claim::Taken);
        assert_eq!(request.label.extent, Extent { start: 4096, len: 4096 });
        assert_eq!(plan.claim(Tick(1), 1, &mut request), Claim::Idle, "all is under way");
        assert!(plan.settle(Tick(2), &[(0, 3 * 4096)]));
        assert_eq!(plan.claim(Tick(2), 1, &mut request), Claim::Dry);
        assert!(plan.is_settled());
    }

    #[test]
    fn what_a_lost_stream_carried_is_claimed_again() {
        let plan = Plan::new(4096, None, None, true, Arc::default());
        plan.want([whole(0, 10_000), whole(12_288, 5)]);
        plan.end();
        let mut request = Request::new(4096);
        for stream in [1, 2, 1, 2] {
            assert_eq!(plan.claim(Tick(0), stream, &mut request), Claim::Taken);
            plan.filled(Tick(0), &request);
        }
        assert_eq!(plan.claim(Tick(0), 2, &mut request), Claim::Idle, "all is under way");
        assert!(plan.settle(Tick(5), &[(0, 8192)]), "two requests in one range");
        assert!(!plan.settle(Tick(5), &[(0, 4096)]), "settled twice");
        assert_eq!(plan.stalled(Tick(11), Nanos(5)), [1, 2]);
        assert!(plan.stalled(Tick(10), Nanos(5)).is_empty());
        assert!(plan.lost(1));
        assert!(!plan.lost(3));
        assert_eq!(plan.claim(Tick(6), 2, &mut request), Claim::Taken);
        assert_eq!(request.label.extent, Extent { start: 8192, len: 1808 });
        assert!(plan.settle(Tick(7), &[(8192, 10_000), (12_288, 12_293)]));
        assert_eq!(plan.claim(Tick(7), 2, &mut request), Claim::Dry);
        assert!(plan.is_settled());
    }

    #[test]
    fn in_lockstep_a_stream_stops_until_all_is_settled_and_then_for_a_while() {
        let lockstep = Lockstep { every_bytes: 8192, pause: Nanos(100) };
        let plan = Plan::new(4096, None, None, true, Arc::default()).in_lockstep(Some(lockstep));
        plan.want([whole(0, 24_576)]);
        plan.end();
        let mut request = Request::new(4096);
        let mut claim = |now, stream| plan.claim(Tick(now), stream, &mut request);
        assert_eq!([claim(0, 1), claim(0, 1), claim(0, 1)], [TAKEN, TAKEN, Claim::Idle]);
        assert_eq!(claim(0, 2), TAKEN, "the other stream is not at its stop");
        assert!(plan.settle(Tick(5), &[(0, 4096)]));
        assert_eq!(claim(5, 1), Claim::Idle, "a half is settled");
        assert!(plan.settle(Tick(7), &[(4096, 8192)]));
        assert_eq!(claim(8, 1), Claim::Later(Tick(107)));
        assert_eq!([claim(107, 1), claim(107, 1), claim(107, 1)], [TAKEN, TAKEN, Claim::Idle]);
        assert_eq!(claim(107, 2), TAKEN, "the last bytes");
        assert!(plan.settle(Tick(110), &[(8192, 24_576)]));
        assert_eq!(claim(110, 1), Claim::Dry, "nothing is left to stop for");
    }

    const TAKEN: Claim = Claim::Taken;

    #[test]
    fn a_carried_stream_has_one_request_under_way_until_it_gets_all_or_no_more() {
        let plan = Plan::new(4096, None, None, true, Arc::default());
        plan.want([whole(0, 100_000)]);
        plan.end();
        plan.carry(7, Carries::First);
        let mut request = Request::new(4096);
        let mut claim = |stream| plan.claim(Tick(0), stream, &mut request);
        assert_eq!((claim(7), claim(7)), (Claim::Taken, Claim::Idle), "one is under way");
        assert_eq!((claim(0), claim(0)), (Claim::Taken, Claim::Taken), "others have no limit");
        assert!(plan.settle(Tick(1), &[(0, 4096)]));
        assert_eq!((claim(7), claim(7)), (Claim::Taken, Claim::Idle));
        plan.carry(7, Carries::All);
        assert_eq!((claim(7), claim(7)), (Claim::Taken, Claim::Taken), "there is no other");
        plan.carry(7, Carries::First);
        plan.carry(7, Carries::NoMore);
        assert_eq!((claim(7), claim(0)), (Claim::Dry, Claim::Taken));

        let plan = Plan::new(4096, None, None, true, Arc::default());
        plan.want([whole(0, 5)]);
        plan.end();
        plan.carry(7, Carries::First);
        let mut claim = |stream| plan.claim(Tick(0), stream, &mut request);
        assert_eq!((claim(7), claim(0)), (Claim::Taken, Claim::Idle));
        assert_eq!(claim(7), Claim::Dry, "its end follows at once: nothing is lost on it alone");
    }

    #[test]
    fn what_came_from_a_pipe_is_kept_until_it_is_settled() {
        let plan = Plan::new(4096, None, None, true, Arc::default());
        plan.want_pipe();
        plan.end();
        let mut request = Request::new(4096);
        assert_eq!(plan.claim(Tick(0), 1, &mut request), Claim::Taken);
        request.label.extent.len = 10;
        request.label.body_len = 10;
        request.body_mut().copy_from_slice(b"ten bytes!");
        plan.filled(Tick(0), &request);
        request.body_mut().fill(0);
        assert!(plan.lost(1));
        assert_eq!(plan.claim(Tick(0), 2, &mut request), Claim::Taken);
        assert!(request.again);
        assert_eq!(request.body(), b"ten bytes!");
    }
}
