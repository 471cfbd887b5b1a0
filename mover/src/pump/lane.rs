//! One thread of a transfer: moves requests from a source through a passage to a sink.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::ends::endpoint::{Endpoint, Nature, Next};
use crate::io::backend::{Wait, Wake};
use crate::io::engine::Engine;
use crate::io::request::{Leg, Request, Stamps};
use crate::io::sampler::{Awaited, Outbox};
use crate::io::tcp;
use crate::io::volume::Handle;
use crate::pump::cancellation::Cancellation;
use crate::pump::lane::gate::Gate;
use crate::pump::lane::worker_pool::{Passed, PoolHandle};
use crate::pump::sink::objects::Objects;
use crate::pump::source::plan::{Claim, Plan};
use crate::work::passage::Passage;
use base::fault::{Class, Fault};
use base::label::{Kind, Label};
use base::tally::Tally;
use base::units::{Nanos, Tick};

pub mod assembly;
pub mod compression_controller;
mod depths;
pub mod gate;
mod passing;
pub mod worker_pool;

/// The parts of a lane.
#[derive(Debug)]
pub struct Parts {
    pub engine: Engine,
    pub source: Box<dyn Endpoint>,
    pub passage: Passage,
    /// The threads that compress and decompress; what they do not take, the lane does itself.
    pub pool_handle: Option<PoolHandle>,
    pub sink: Box<dyn Endpoint>,
    /// The source's ledger, where this host has the source.
    pub plan: Option<Arc<Plan>>,
    /// The sink's ledger, where this host has the sink.
    pub objects: Option<Arc<Objects>>,
    pub cancellation: Arc<Cancellation>,
    /// Its stream, where one of its ends is one.
    pub stream: Option<StreamHandle>,
    pub requests: Vec<Box<Request>>,
}

/// A lane's stream as other threads see it.
#[derive(Clone, Debug)]
pub struct StreamHandle {
    pub number: u32,
    pub socket: Handle,
    /// Set to give the stream up: the lane then ends.
    pub given_up: Arc<AtomicBool>,
    /// Where the lane leaves its samples of the stream.
    pub outbox: Arc<Outbox>,
}

impl StreamHandle {
    pub fn new(number: u32, socket: Handle) -> StreamHandle {
        StreamHandle { number, socket, given_up: Arc::default(), outbox: Arc::default() }
    }
}

/// What a lane did, and why it ended early if it did.
#[derive(Debug, Default)]
pub struct Over {
    pub tally: Tally,
    pub fault: Option<Fault>,
}

/// The lane of one stream. `turn` is one step of its loop.
#[expect(clippy::vec_box, reason = "requests are handed on from these lists: pointers are moved")]
#[derive(Debug)]
pub struct Lane {
    parts: Parts,
    pool: Vec<Box<Request>>,
    pool_size: usize,
    gate: Gate,
    /// Requests that the source is filling.
    filling: usize,
    state: State,
    /// Why its stream cannot be used any more.
    broken: Option<Fault>,
    tally: Tally,
    completed: Vec<Box<Request>>,
    /// Completions of the worker pool.
    passed: Vec<Passed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// The source has no more; requests in flight continue.
    Dry,
    /// The end of the stream has been sent to the peer.
    Ending,
    /// The stream broke: what has arrived continues, nothing more comes.
    Broken,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There may be more to do at once.
    Moved,
    /// Nothing can move before the lane is woken, or before this time.
    Waiting(Option<Tick>),
    /// Everything is done.
    Over,
}

/// Whether a turn may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    Block,
    /// For a driver that steps many lanes in turn.
    Step,
}

/// The result of `depart`.
enum Departure {
    Went(Box<Request>),
    Nothing,
    Idle(Option<Tick>),
}

impl Lane {
    pub fn new(mut parts: Parts) -> Lane {
        let mut pool = std::mem::take(&mut parts.requests);
        parts.engine.register(&mut pool);
        // The first one is used first: few requests touch little of the memory.
        pool.reverse();
        parts.cancellation.hold_lane(parts.engine.waker());
        let gate = Gate::new(parts.sink.nature());
        let pool_size = pool.len();
        Lane {
            parts,
            pool,
            pool_size,
            gate,
            filling: 0,
            state: State::Running,
            broken: None,
            tally: Tally::default(),
            completed: Vec::new(),
            passed: Vec::new(),
        }
    }

    /// Runs to the end, or to the first fault; either way nothing is left in flight.
    pub fn run(mut self) -> Over {
        let ended = self.run_turns();
        self.leave(ended.err())
    }

    /// What the lane did, after its last turn or a turn with a fault. Nothing is left in flight.
    pub fn leave(mut self, fault: Option<Fault>) -> Over {
        if fault.is_some() {
            self.abandon();
        }
        if let Some(sampler) = self.parts.engine.sampler() {
            sampler.close();
        }
        match fault {
            None => self.into_over(),
            Some(fault) => Over { tally: self.tally, fault: Some(fault) },
        }
    }

    fn run_turns(&mut self) -> Result<(), Fault> {
        loop {
            let seen = self.parts.cancellation.changes.count();
            match self.turn(Patience::Block)? {
                Turn::Moved => {}
                Turn::Over => return Ok(()),
                Turn::Waiting(None) => self.wait_for_change(seen),
                Turn::Waiting(Some(until)) => {
                    self.await_whom(Awaited::Nothing);
                    let reaped = self.parts.engine.reap(Wait::Until(until), &mut self.completed);
                    reaped.map_err(|error| Fault::system("wait for I/O", &error))?;
                }
            }
        }
    }

    /// There is no work: only the stream is sampled.
    fn wait_for_change(&mut self, seen: u64) {
        let changes = &self.parts.cancellation.changes;
        let Some(sampler) = self.parts.engine.sampler() else { return changes.wait(seen) };
        sampler.begin();
        let mut now = sampler.lap(Awaited::Nothing);
        while !changes.wait_within(seen, sampler.due().since(now).into()) {
            now = sampler.lap(Awaited::Nothing);
        }
        sampler.lap(Awaited::Nothing);
    }

    /// Sets what the lane waits for from now on, where its stream is sampled.
    fn await_whom(&mut self, awaited: Awaited) {
        if let Some(sampler) = self.parts.engine.sampler() {
            sampler.await_whom(awaited);
        }
    }

    /// Counts the time since then as time of a ledger, where the stream is sampled.
    fn clock(&mut self, awaited: Awaited, since: Tick) {
        if self.parts.engine.is_watched() {
            let spent = self.now().since(since);
            if let Some(sampler) = self.parts.engine.sampler() {
                sampler.add(awaited, spent);
            }
        }
    }

    /// One turn: submit what may go, take in what has completed.
    pub fn turn(&mut self, patience: Patience) -> Result<Turn, Fault> {
        if self.parts.cancellation.is_cancelled() {
            return Err(self.parts.cancellation.fault().unwrap_or_else(Fault::interrupted));
        }
        self.look_at_stream();
        let passed = self.take_passed()?;
        let mut idle = None;
        loop {
            match self.depart()? {
                Departure::Went(request) => {
                    self.advance(request)?;
                    // What has arrived continues before more is fetched: it is in the cache now.
                    if self.parts.plan.is_some() && self.take_completed(Wait::Poll)? > 0 {
                        return Ok(Turn::Moved);
                    }
                }
                Departure::Nothing => break,
                Departure::Idle(until) => {
                    idle = Some(until);
                    break;
                }
            }
        }
        match self.state {
            State::Broken => self.empty_gate(),
            _ => self.admit_waiting()?,
        }
        if self.is_empty() && self.state != State::Running {
            return self.end();
        }
        if passed > 0 {
            // Their requests may be in the pool again, so that more can depart.
            return Ok(Turn::Moved);
        }
        if self.parts.engine.in_flight() > 0 {
            let wait = match (patience, self.gate.waiting() + self.passing()) {
                (Patience::Step, _) => Wait::Poll,
                (Patience::Block, 0) => Wait::Completion,
                (Patience::Block, _) => Wait::CompletionOrWake,
            };
            self.take_completed(wait)?;
            return Ok(Turn::Moved);
        }
        if self.gate.waiting() + self.passing() > 0 && patience == Patience::Block {
            self.take_completed(Wait::CompletionOrWake)?;
            return Ok(Turn::Moved);
        }
        Ok(Turn::Waiting(idle.flatten()))
    }

    /// Adds up what the lane did.
    fn finish(&mut self) -> Tally {
        assert_eq!(self.pool.len(), self.pool_size, "a lane ended with requests missing");
        let counts = self.parts.engine.counts;
        let mut tally = self.tally;
        for (sum, stage) in tally.stages.iter_mut().zip(self.parts.passage.spent) {
            *sum += stage;
        }
        tally.calls = counts.calls;
        tally.partial_returns = counts.partial_returns;
        tally.partial_bytes = counts.partial_bytes;
        tally.starts = counts.starts;
        tally.wire_bytes = self.parts.source.wire_bytes() + self.parts.sink.wire_bytes();
        tally
    }

    /// What a lane did that has ended.
    pub fn into_over(mut self) -> Over {
        Over { tally: self.finish(), fault: self.broken.take() }
    }

    /// Its stream cannot be used any more, and the requests in flight on it end.
    pub fn has_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// It ends in the middle, as by a kill. For simulations.
    pub fn end_by_kill(mut self) {
        self.parts.engine.abandon();
    }

    /// The stream may have been given up while nothing moved on it.
    fn look_at_stream(&mut self) {
        if self.state != State::Broken
            && self.parts.stream.as_ref().is_some_and(|wire| wire.given_up.load(Relaxed))
        {
            self.break_off(Fault::new(Class::Unreachable, "the stream was given up"));
        }
    }

    /// The stream cannot be used any more. What has arrived on it continues; what was to be sent on
    /// it stays with the plan, which gives it to another.
    fn break_off(&mut self, fault: Fault) {
        if let Some(wire) = &self.parts.stream {
            tcp::cut(&wire.socket);
        }
        self.state = State::Broken;
        self.broken.get_or_insert(fault);
    }

    /// Requests at the gate of a broken stream's lane may wait for others that were lost with it.
    fn empty_gate(&mut self) {
        for request in self.gate.drain() {
            if let Some(objects) = &self.parts.objects {
                objects.release(&request);
            }
            self.pool.push(request);
        }
    }

    /// True for faults that another stream would not have.
    fn is_of_stream(&self, fault: &Fault) -> bool {
        self.parts.stream.is_some() && matches!(fault.class, Class::Unreachable | Class::Corrupt)
    }

    /// Cuts the stream and waits for what is in flight: the kernel writes into our memory until
    /// then.
    pub fn abandon(&mut self) {
        if let Some(wire) = &self.parts.stream {
            tcp::cut(&wire.socket);
        }
        while self.parts.engine.in_flight() > 0 {
            if self.parts.engine.reap(Wait::Completion, &mut self.completed).is_err() {
                break;
            }
            self.pool.append(&mut self.completed);
        }
        if let Some(handle) = &mut self.parts.pool_handle {
            handle.take_all(&mut self.passed);
            self.pool.extend(self.passed.drain(..).map(|passed| passed.request));
        }
        self.pool.extend(self.gate.drain());
    }

    /// Wakes the lane while it waits.
    pub fn waker(&self) -> Arc<dyn Wake> {
        self.parts.engine.waker()
    }

    fn is_empty(&self) -> bool {
        self.pool.len() == self.pool_size
    }

    /// Requests that are with the worker pool.
    fn passing(&self) -> usize {
        self.parts.pool_handle.as_ref().map_or(0, PoolHandle::away)
    }

    fn now(&self) -> Tick {
        self.parts.engine.now()
    }

    /// Takes a request from the pool and gives it an extent to fetch.
    fn depart(&mut self) -> Result<Departure, Fault> {
        let limit = match self.parts.source.nature() {
            Nature::Addressed { depth } => depth as usize,
            Nature::Flowing => 1,
        };
        let kept = self.parts.pool_handle.as_ref().map_or(0, PoolHandle::idle_requests);
        let has_room = self.filling < limit && self.pool.len() > kept;
        if self.state != State::Running || !has_room {
            return Ok(Departure::Nothing);
        }
        let Some(mut request) = self.pool.pop() else { return Ok(Departure::Nothing) };
        request.clear();
        let now = self.now();
        request.stamps.departed = now;
        let claim = match &self.parts.plan {
            Some(plan) => {
                let stream = self.parts.stream.as_ref().map_or(0, |wire| wire.number);
                let claim = plan.claim(now, stream, &mut request);
                self.clock(Awaited::Source, now);
                claim
            }
            None => Claim::Taken, // the peer's ledger says what comes
        };
        if claim == Claim::Taken {
            self.filling += 1;
            return Ok(Departure::Went(request));
        }
        self.pool.push(request);
        Ok(match claim {
            Claim::Later(until) => Departure::Idle(Some(until)),
            Claim::Idle => Departure::Idle(None),
            Claim::Dry | Claim::Taken => {
                self.state = State::Dry;
                Departure::Nothing
            }
        })
    }

    /// Takes in completed requests, and advances each as far as it goes.
    fn take_completed(&mut self, wait: Wait) -> Result<usize, Fault> {
        // While the source is filling any request, the wait is for the source.
        let whose = match (self.filling, self.passing()) {
            (0, 0) => Awaited::Sink,
            (0, _) => Awaited::Passage,
            _ => Awaited::Source,
        };
        self.await_whom(whose);
        let mut completed = std::mem::take(&mut self.completed);
        let reaped = self.parts.engine.reap(wait, &mut completed);
        let count = completed.len();
        let mut fault = reaped.err().map(|error| Fault::system("wait for I/O", &error));
        for request in completed.drain(..) {
            match fault {
                Some(_) => self.pool.push(request),
                None => fault = self.advance(request).err(),
            }
        }
        self.completed = completed;
        fault.map_or(Ok(count), Err)
    }

    /// Admits requests that wait at the gate; each has one try, as the sink may send it back.
    fn admit_waiting(&mut self) -> Result<(), Fault> {
        for _ in 0..self.gate.waiting() {
            let Some(request) = self.admit() else { return Ok(()) };
            self.advance_one(request)?;
        }
        Ok(())
    }

    /// Advances a request as far as it goes without waiting, then those that it made room for.
    fn advance(&mut self, request: Box<Request>) -> Result<(), Fault> {
        self.advance_one(request)?;
        while self.gate.waiting() > 0 {
            let before = self.gate.waiting();
            let Some(next) = self.admit() else { return Ok(()) };
            self.advance_one(next)?;
            if self.gate.waiting() >= before {
                return Ok(());
            }
        }
        Ok(())
    }

    fn admit(&mut self) -> Option<Box<Request>> {
        let now = self.now();
        let mut request = self.gate.admit()?;
        request.leg = Leg::Out;
        request.hops = 0;
        request.stamps.admitted = now;
        Some(request)
    }

    fn advance_one(&mut self, mut request: Box<Request>) -> Result<(), Fault> {
        let next = match request.leg {
            Leg::In if request.again => Next::Done,
            Leg::In => {
                let Parts { source, engine, .. } = &mut self.parts;
                ask(&mut **source, Awaited::Source, engine, &mut self.tally, &mut request)
            }
            Leg::Out => self.ask_sink(&mut request),
        };
        match (next, request.leg) {
            (Next::Do(verb), _) => self.parts.engine.submit(verb, request),
            (Next::Done, Leg::In) => self.turn_around(request)?,
            (Next::Done, Leg::Out) => self.retire(request),
            (Next::Void(fault), leg) => self.void(leg, request, fault)?,
            (Next::Idle, Leg::Out) => self.gate.send_back(request),
            (Next::Idle, Leg::In) => panic!("a source that departs cannot be idle"),
            (Next::Dry, _) => {
                if let Some(plan) = &self.parts.plan {
                    plan.filled(self.now(), &request);
                }
                self.filling -= 1;
                if self.state == State::Running {
                    self.state = State::Dry;
                }
                self.pool.push(request);
            }
            (Next::Fail(fault), leg) => {
                self.pool.push(request);
                if !self.is_of_stream(&fault) {
                    return Err(fault);
                }
                match leg {
                    Leg::In => self.filling -= 1,
                    Leg::Out => self.gate.leave(),
                }
                self.break_off(fault);
            }
        }
        Ok(())
    }

    /// A void of this host's own ledger needs no sink; others are sent to the other host's ledger.
    fn ask_sink(&mut self, request: &mut Request) -> Next {
        match request.label.kind {
            Kind::Void if self.parts.objects.is_some() => Next::Done,
            _ => {
                let Parts { sink, engine, .. } = &mut self.parts;
                ask(&mut **sink, Awaited::Sink, engine, &mut self.tally, request)
            }
        }
    }

    /// All requests are back: the end is sent on a stream, anything else is over.
    fn end(&mut self) -> Result<Turn, Fault> {
        let tells = self.parts.plan.is_some() && self.parts.objects.is_none();
        if self.state == State::Ending
            && let Some(wire) = &self.parts.stream
        {
            // If the end were damaged in transit, the peer would wait for the rest of it.
            tcp::finish(&wire.socket);
        }
        if matches!(self.state, State::Ending | State::Broken) || !tells {
            return Ok(Turn::Over);
        }
        self.state = State::Ending;
        let mut request = self.pool.pop().expect("a lane has a request");
        request.clear();
        request.label = Label { kind: Kind::End, ..Label::default() };
        self.gate.arrive(request);
        self.admit_waiting()?;
        Ok(Turn::Moved)
    }
}

/// Asks an endpoint, and measures the time where the endpoint has a stage of its own, or the stream
/// is sampled.
fn ask(
    end: &mut dyn Endpoint,
    whose: Awaited,
    engine: &mut Engine,
    tally: &mut Tally,
    request: &mut Request,
) -> Next {
    let stage = end.stage();
    if stage.is_none() && !engine.is_watched() {
        return end.next(request);
    }
    let before = engine.now();
    let next = end.next(request);
    let spent = engine.now().since(before);
    if let Some(stage) = stage {
        tally.stages[stage as usize] += spent;
    }
    if let Some(sampler) = engine.sampler() {
        sampler.add(if stage.is_some() { Awaited::Passage } else { whose }, spent);
    }
    next
}

/// How long the wire delayed the sender of a request. A long send after which TCP had nothing left
/// to do has waited for a CPU.
fn held_up(wire: Option<&StreamHandle>, stamps: &Stamps) -> Nanos {
    let spent = stamps.retired.since(stamps.admitted);
    let is_behind = |wire: &StreamHandle| tcp::is_behind(&wire.socket);
    let waited = spent >= HELD_UP_MIN && wire.is_none_or(is_behind);
    if waited { spent } else { Nanos(0) }
}

/// Nothing delayed a send that took less.
const HELD_UP_MIN: Nanos = Nanos(20_000);
