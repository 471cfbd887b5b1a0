//! One host of the simulation: drives a shipped `Transfer` as `pump/run.rs` does, but in steps, in
//! the order that the seed gives, and with a world in memory in place of threads and sockets.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, channel};

use base::fault::{Class, Fault};
use base::job::{Carrier, Location, Notice};
use base::settings::{Settings, SkipUnchanged};
use base::tally::SideReport;
use base::units::{Nanos, Tick};
use mover::io::sim::{Rng, World};
use mover::io::volume::Volume;
use mover::pump::cancellation::Cancellation;
use mover::pump::lane::assembly::Stream;
use mover::pump::lane::{Lane, Patience, StreamHandle, Turn};
use mover::pump::sink::backup::Backup;
use mover::pump::sink::compare::Compare;
use mover::pump::sink::expected::Expected;
use mover::pump::sink::finisher::Finisher;
use mover::pump::sink::mirror::Mirror;
use mover::pump::sink::owner_map::OwnerMap;
use mover::pump::sink::resume::{ResumeCallbacks, ResumeState};
use mover::pump::sink::{Begin, Root, Target};
use mover::pump::source::walk::{Found, WalkEvent};
use mover::pump::transfer::{
    Action, CHUNKS_AHEAD, Check, Done, Drain, Event, Here, Ledgers, Next, PeerSetup, Setup,
    Transfer, Work,
};
use mover::pump::watch::Watch;
use mover::wire::message::Message;

use super::lanes::{Compressors, Lanes};
use super::trace::{Trace, of_action, of_event};
use super::{Fixture, TRANSFER};

/// What a host has of a transfer.
pub(crate) struct Part {
    pub has_source: bool,
    pub has_sink: bool,
    pub peer: Option<PeerSetup>,
    pub streams: Vec<Stream>,
    /// This end of the stream that the control connection can carry.
    pub carried: Option<Stream>,
}

pub(crate) struct Host {
    pub name: &'static str,
    transfer: Option<Transfer>,
    /// How the transfer ended.
    pub ended: Option<Result<Done, Fault>>,
    pub watch: Arc<Watch>,
    pub notices: Receiver<Notice>,
    /// What has happened and is not told yet, in the order in which it happened.
    pub events: VecDeque<Event>,
    /// What has been said and is on its way, as bytes.
    pub said: VecDeque<Vec<u8>>,
    line_was_full: bool,
    carried: Option<Stream>,
    /// Streams to be opened: their numbers, and when.
    pub dials: Vec<(Tick, u32)>,
    lanes: BTreeMap<u32, Lane>,
    assembly: Lanes,
    compressors: Option<Compressors>,
    sockets: BTreeMap<u32, StreamHandle>,
    finisher: Option<Finisher>,
    /// What the finisher is to do, with what had been written when it was told to.
    pub work: VecDeque<(Work, u64)>,
    /// Of what has been written in this run, what the journal has been told by now.
    pub told_bytes: u64,
    /// What had been written at some times of this run.
    written: Vec<(Tick, u64)>,
    walk: VecDeque<WalkEvent>,
    walk_may: usize,
    has_walked: bool,
    compare: Option<Compare>,
    offers: VecDeque<Message>,
    cancellation: Arc<Cancellation>,
    /// Until when lanes must be waited for, once they have been told to end.
    lanes_until: Option<Tick>,
    /// Lanes had not ended by then.
    pub has_left_lanes: bool,
    world: Arc<World>,
    settings: Settings,
    next_local: u32,
}

/// How long lanes are waited for when a transfer stops.
const LANES_WITHIN: Nanos = Nanos::from_millis(400);
/// Turns that a lane may still have while a process goes away.
const LEAVING_TURNS: usize = 20;
/// What a line holds before it is called full.
const LINE_MESSAGES: usize = 6;

impl Host {
    /// Begins a host's part over what is there.
    pub(crate) fn begin(
        name: &'static str,
        fixture: &mut Fixture,
        part: Part,
        trace: &mut Trace,
    ) -> Host {
        let (notices_in, notices) = channel();
        let watch = Arc::new(Watch::new(notices_in));
        let settings = fixture.settings.clone();
        let sink = part.has_sink.then(|| target(fixture));
        let place = part.has_source.then(|| Location::Path("/origin".into()));
        let far = part.peer.is_some();
        let here = Here { source: place.as_ref(), sink: part.has_sink, far, window_bytes: None };
        let ledgers = Ledgers::new(&settings, here, &watch);
        let resume_state = match part.has_sink {
            true => fixture.resume_state.take().expect("opened before the two have met"),
            false => ResumeState::none("none".into(), &settings),
        };
        let mut host = Host::new(name, fixture, (&ledgers, far), watch.clone(), notices);
        host.carried = part.carried;
        let volume: Arc<dyn Volume> = fixture.target.clone();
        host.finisher = part
            .has_sink
            .then(|| Finisher::new(Some(volume.clone()), settings.fsync, resume_state.journal));
        let is_compared = part.has_sink && settings.skip_unchanged == SkipUnchanged::Checksum;
        let cancellation = ledgers.cancellation.clone();
        host.compare = is_compared.then(|| {
            let twins = BTreeMap::new();
            Compare { volume, rename: None, cancellation, twins }
        });
        let backup = sink.as_ref().and_then(|sink| Backup::of(sink, &settings));
        let mirror = sink
            .as_ref()
            .map(|sink| Mirror::of(sink, &settings, &resume_state.tag, backup.clone()));
        let mirror = mirror.and_then(|mirror| mirror.expect("the filters are good"));
        let begin = Begin {
            tag: resume_state.tag,
            prior_runs: resume_state.prior_runs,
            alone: !part.has_source,
            expected: Expected::Anything,
            mirror,
            owners: OwnerMap::of(&settings).expect("there are no rules"),
            backup,
        };
        let setup = Setup {
            settings,
            source: place,
            sink,
            streams: part.streams,
            carrier: if part.peer.is_some() { Carrier::Tcp } else { Carrier::Memory },
            peer: part.peer,
            ledgers,
            begin,
            watch,
            rename: None,
        };
        let drain = Transfer::begin(fixture.world.now(), setup);
        host.settle(drain, &mut fixture.rng, trace);
        host
    }

    /// A host on which nothing has begun.
    fn new(
        name: &'static str,
        fixture: &mut Fixture,
        (ledgers, far): (&Ledgers, bool),
        watch: Arc<Watch>,
        notices: Receiver<Notice>,
    ) -> Host {
        let has_source = ledgers.plan.is_some();
        let chunks = fixture.offers.iter().filter(|_| has_source);
        let walk = chunks.map(|found: &Vec<Found>| WalkEvent::Chunk(found.clone())).collect();
        Host {
            name,
            transfer: None,
            ended: None,
            watch,
            notices,
            events: VecDeque::new(),
            said: VecDeque::new(),
            line_was_full: false,
            carried: None,
            dials: Vec::new(),
            lanes: BTreeMap::new(),
            assembly: Lanes::new(fixture, ledgers),
            compressors: far.then(|| Compressors::new(fixture, has_source)).flatten(),
            sockets: BTreeMap::new(),
            finisher: None,
            work: VecDeque::new(),
            told_bytes: 0,
            written: Vec::new(),
            walk,
            walk_may: CHUNKS_AHEAD,
            has_walked: !has_source,
            compare: None,
            offers: VecDeque::new(),
            cancellation: ledgers.cancellation.clone(),
            lanes_until: None,
            has_left_lanes: false,
            world: fixture.world.clone(),
            settings: fixture.settings.clone(),
            next_local: 0,
        }
    }

    /// Tells the transfer what has happened, and does what it says.
    pub(crate) fn tell(&mut self, event: Event, rng: &mut Rng, trace: &mut Trace) {
        let is_full = self.said.len() >= LINE_MESSAGES;
        if std::mem::replace(&mut self.line_was_full, is_full) != is_full {
            self.tell(Event::LineFull(is_full), rng, trace);
        }
        let Some(transfer) = self.transfer.take() else {
            if let Event::Joined(stream) = event {
                self.world.cut(&stream.handle.socket);
            }
            return;
        };
        trace.note(self.name, self.world.now(), &of_event(&event));
        let joined = match &event {
            Event::Joined(stream) => Some(stream.handle.clone()),
            _ => None,
        };
        let drain = transfer.handle(self.world.now(), event);
        self.settle(drain, rng, trace);
        // What is not taken is dropped, and so closed.
        if let Some(wire) = joined.filter(|wire| !self.sockets.contains_key(&wire.number)) {
            self.world.cut(&wire.socket);
        }
    }

    fn settle(&mut self, mut drain: Drain, rng: &mut Rng, trace: &mut Trace) {
        loop {
            match drain.next() {
                Next::Do(action, rest) => {
                    trace.note(self.name, self.world.now(), &of_action(&action));
                    self.perform(action, rng);
                    drain = rest;
                }
                Next::Waits(transfer) => return self.transfer = Some(transfer),
                Next::Over(ended) => return self.ended = Some(ended),
            }
        }
    }

    fn perform(&mut self, action: Action, rng: &mut Rng) {
        match action {
            Action::Say(message) => self.said.push_back(message.encode()),
            Action::StartLane(stream) => self.start_lane(stream, rng),
            Action::Carry => {
                let stream = self.carried.take().expect("it is carried once");
                self.events.push_back(Event::Joined(stream));
            }
            Action::Dial { number, after } => {
                self.dials.push((self.world.now().after(after), number));
            }
            Action::Cut { stream } => {
                if let Some(wire) = self.sockets.get(&stream) {
                    wire.given_up.store(true, Relaxed);
                    match rng.once_in(2) {
                        true => self.world.reset(&wire.socket),
                        false => self.world.cut(&wire.socket),
                    }
                }
            }
            Action::Forget { stream } => drop(self.sockets.remove(&stream)),
            Action::Check { stream, check } => {
                let Some(wire) = self.sockets.get(&stream) else { return };
                let half = Nanos(self.settings.stall.0 / 2);
                let holds = match check {
                    // Every second one is answered on the way, by something that is no far host.
                    Check::PathIsDead => stream % 2 == 0 && self.world.is_stuck(&wire.socket),
                    Check::IsStarved => self.world.is_starved(&wire.socket, half),
                };
                self.events.push_back(Event::Checked { stream, check, holds });
            }
            Action::WalkOn => self.walk_may += 1,
            Action::Compare(message) => self.offers.push_back(message),
            Action::Finish(work) => {
                let has_waited = self.lanes_until.is_some_and(|at| self.world.now() >= at);
                let leaves = matches!(work, Work::Stop { .. }) && !self.lanes.is_empty();
                assert!(!leaves || has_waited, "lanes still run, and nobody has waited for them");
                self.has_left_lanes |= leaves;
                self.work.push_back((work, self.written_bytes()));
            }
            Action::NoteDecompressionTime(time) => {
                self.compressors.iter().for_each(|compressors| {
                    compressors.worker_pool.record_decompression_time(&time)
                });
            }
            Action::NoteSamples { .. } => {}
            Action::Measure => {
                self.events.push_back(Event::Measured(Box::<SideReport>::default(), Vec::new()));
            }
            Action::Cancel(fault) => {
                self.lanes_until = Some(self.world.now().after(LANES_WITHIN));
                self.cancellation.cancel(fault);
                self.sockets.values().for_each(|wire| self.world.cut(&wire.socket));
            }
        }
    }

    fn start_lane(&mut self, stream: Option<Stream>, rng: &mut Rng) {
        let number = stream.as_ref().map_or(self.next_local, |stream| stream.handle.number);
        self.next_local += u32::from(stream.is_none());
        if let Some(stream) = &stream {
            self.sockets.insert(number, stream.handle.clone());
        }
        let lane = self.assembly.lane(stream, self.compressors.as_ref(), rng);
        self.lanes.insert(number, lane);
    }

    /// Bytes that have arrived in this run.
    pub(crate) fn written_bytes(&self) -> u64 {
        let gauge = &self.watch.gauge;
        gauge.bytes_done.load(Relaxed) - gauge.bytes_held.load(Relaxed)
    }

    /// What has been written in so long.
    pub(crate) fn written_within(&self, time: Nanos) -> u64 {
        let now = self.world.now();
        let before = self.written.iter().rev().find(|(at, _)| now.since(*at).0 > time.0);
        self.written_bytes() - before.map_or(0, |(_, bytes)| *bytes)
    }

    /// This host does one thing of those that it could do, as the seed gives.
    pub(crate) fn step(&mut self, rng: &mut Rng, trace: &mut Trace) {
        let lanes = self.lanes.len() as u64;
        let pick = rng.below(2 * lanes + 8);
        if pick < 2 * lanes {
            let number = *self.lanes.keys().nth((pick / 2) as usize).expect("counted");
            return self.step_lane(number, trace);
        }
        match pick - 2 * lanes {
            0 => self.step_walk(),
            1 => {
                self.step_finisher();
            }
            2 => self.step_compare(),
            3 => self.compressors.iter_mut().for_each(|compressors| compressors.step(rng)),
            4 | 5 => self.beat(rng, trace),
            _ => {
                if let Some(event) = self.events.pop_front() {
                    self.tell(event, rng, trace);
                }
            }
        }
    }

    fn step_lane(&mut self, number: u32, trace: &mut Trace) {
        let mut lane = self.lanes.remove(&number).expect("one of those that run");
        let ended = match lane.turn(Patience::Step) {
            Ok(Turn::Moved | Turn::Waiting(_)) => None,
            Ok(Turn::Over) => Some(None),
            Err(fault) => Some(Some(fault)),
        };
        if ended.is_some() || lane.has_broken() {
            // What was sent is still under way; nothing more is.
            self.sockets.get(&number).iter().for_each(|wire| self.world.cut(&wire.socket));
        }
        match ended {
            None => drop(self.lanes.insert(number, lane)),
            Some(fault) => {
                // It takes back what is with the workers, and waits for that.
                self.compressors.iter_mut().for_each(Compressors::finish);
                let over = lane.leave(fault);
                trace.note(self.name, self.world.now(), &format!("{number} {:?}", over.fault));
                let stream = self.transfers_on_streams().then_some(number);
                self.events.push_back(Event::LaneOver(stream, over));
            }
        }
    }

    fn transfers_on_streams(&self) -> bool {
        self.next_local == 0
    }

    fn step_walk(&mut self) {
        if self.has_walked || self.walk_may == 0 || self.cancellation.is_cancelled() {
            return;
        }
        match self.walk.pop_front() {
            Some(sighting) => {
                self.walk_may -= 1;
                self.events.push_back(Event::Found(sighting));
            }
            None => {
                self.has_walked = true;
                self.events.push_back(Event::Walked);
            }
        }
    }

    pub(crate) fn step_finisher(&mut self) -> bool {
        let Some((work, written)) = self.work.pop_front() else { return false };
        let Some(finisher) = &mut self.finisher else { return false };
        let tells = matches!(work, Work::Advance(_) | Work::Stop { .. });
        let event = work.run(finisher);
        if tells && !matches!(event, Some(Event::Advanced(Err(_)))) {
            self.told_bytes = written;
        }
        self.events.extend(event);
        true
    }

    fn step_compare(&mut self) {
        if let (Some(compare), Some(message)) = (&mut self.compare, self.offers.pop_front()) {
            let same = compare.same(&message);
            self.events.push_back(Event::Compared(message, same));
        }
    }

    pub(crate) fn beat(&mut self, rng: &mut Rng, trace: &mut Trace) {
        if self.said.len() < LINE_MESSAGES
            && let Some(compressors) = &self.compressors
            && compressors.tells
            && let Some(time) = compressors.worker_pool.decompression_time(self.world.now())
        {
            self.tell(Event::DecompressionTime(time), rng, trace);
        }
        self.written.push((self.world.now(), self.written_bytes()));
        self.tell(Event::Beat, rng, trace);
    }

    /// What moves without the transfer once that is over.
    pub(crate) fn leave(&mut self, trace: &mut Trace) {
        // Lanes that are left go on until the process has gone.
        for number in self.lanes.keys().copied().collect::<Vec<_>>() {
            for _ in 0..LEAVING_TURNS {
                if self.lanes.contains_key(&number) {
                    self.step_lane(number, trace);
                }
            }
        }
        while self.step_finisher() {}
        self.abandon_lanes();
        trace.note(self.name, self.world.now(), "left");
    }

    pub(crate) fn has_left(&self) -> bool {
        self.ended.is_some() && self.work.is_empty()
    }

    /// The host goes away in the middle of everything.
    pub(crate) fn abandon_lanes(&mut self) {
        std::mem::take(&mut self.lanes).into_values().for_each(Lane::end_by_kill);
    }

    pub(crate) fn hear(&mut self, bytes: &[u8]) {
        let heard = Message::decode(&bytes[4..]).expect("what we write we can read");
        assert_eq!(heard.encode(), bytes, "the same again");
        self.events.push_back(Event::Heard(heard));
    }

    /// The other end of the control connection has gone.
    pub(crate) fn lose_peer(&mut self, fault: Option<Fault>) {
        self.events.push_back(Event::Closed(fault));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A lane that is dropped must have nothing in flight, whatever the faults.
        self.abandon_lanes();
    }
}

fn target(fixture: &Fixture) -> Target {
    Target::Tree { volume: fixture.target.clone(), rename: None, root: Root::FOUND }
}

/// What earlier runs left where the sink is.
pub(crate) fn resume_state(fixture: &Fixture) -> ResumeState {
    let target = target(fixture);
    let callbacks = ResumeCallbacks { warn: &|_| {}, stopping: &|| false };
    ResumeState::open(&target, TRANSFER, &fixture.settings, "spare".into(), &callbacks)
        .expect("nobody else has the journal")
}

/// A connection that broke, in words.
pub(crate) fn gone() -> Fault {
    Fault::new(Class::Unreachable, "the connection to the other host broke")
}
