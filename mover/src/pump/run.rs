//! Runs one host's part of a transfer: threads, sockets and the clock around a [`Transfer`], which
//! decides.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use self::chooser::Chooser;
use self::sockets::Sockets;
use self::threads::FinisherThread;
use crate::io::{clock, system, tcp};
use crate::pump::cancellation::Cancellation;
use crate::pump::lane::assembly::{Assembly, Ends, Stream, streams_max};
use crate::pump::sink::backup::Backup;
use crate::pump::sink::compare::Compare;
use crate::pump::sink::expected::Expected;
use crate::pump::sink::finisher::Finisher;
use crate::pump::sink::mirror::Mirror;
use crate::pump::sink::owner_map::OwnerMap;
use crate::pump::sink::read_back::ReadBack;
use crate::pump::sink::resume::ResumeState;
use crate::pump::sink::{Begin, Target};
use crate::pump::transfer::{
    Action, BEAT, Done, Drain, Event, Here, Ledgers, Next, PeerActivity, PeerSetup, Setup, Transfer,
};
use crate::pump::watch::Watch;
use crate::wire::message::Message;
use crate::wire::preamble::CONTROL_STREAM;
use crate::wire::session::Session;
use base::fault::{Class, Fault};
use base::job::{Carrier, Location, PathRole};
use base::settings::{Settings, SkipUnchanged};
use base::tally::{About, SideReport};
use base::units::Nanos;

mod chooser;
pub mod pace_controller;
pub mod paths;
mod scavenger;
#[cfg(test)]
mod shared_path;
mod sockets;
pub(crate) mod stream_controller;
mod threads;

pub use self::threads::{Walking, start_walk};

/// The control connection to the peer.
pub trait Line: Send + fmt::Debug {
    /// Never waits for the network.
    fn send(&mut self, message: &Message) -> Result<(), Fault>;
    /// True while so much is queued that what can wait should wait.
    fn is_full(&self) -> bool;
    /// Lets the connection carry a data stream.
    fn carry(&mut self) -> Result<Stream, Fault>;
}

/// Opens a data stream in the background, and reports it as an event.
pub trait Dial: Send + fmt::Debug {
    fn dial(&self, number: u32, after: Duration);
}

/// The peer, where there is one.
#[derive(Debug)]
pub struct Peer {
    pub session: Session,
    pub line: Box<dyn Line>,
    pub pulse: Arc<PeerActivity>,
    /// How the side that opens streams opens another.
    pub dial: Option<Box<dyn Dial>>,
    /// True for the host that started the other.
    pub drives: bool,
    /// The line carries the data where no data stream can be opened.
    pub may_carry: bool,
    /// The name by which the user knows the other host, for its faults.
    pub host: Option<String>,
}

/// One host's part: the source, the sink, or both.
#[derive(Debug)]
pub struct Part {
    pub settings: Settings,
    pub source: Option<(Location, Walking)>,
    pub sink: Option<Target>,
    pub streams: Vec<Stream>,
    pub peer: Option<Peer>,
    /// How far beyond the lowest unsettled address the sink accepts bytes.
    pub window_bytes: Option<u64>,
    /// What the sink knows of earlier runs.
    pub resume_state: ResumeState,
    /// What its source may offer.
    pub expected: Expected,
    pub watch: Arc<Watch>,
    pub events: (Sender<Event>, Receiver<Event>),
    /// The name that a single object gets at a far sink.
    pub rename: Option<Vec<u8>>,
    pub carrier: Carrier,
    /// What this host reports of itself.
    pub about: About,
    /// What happened while the streams were being opened.
    pub early: Vec<Event>,
}

/// Runs a part to its end. After a fault everything is stopped and removed, and the peer is told.
pub fn run(part: Part) -> Result<Done, Fault> {
    let (mut host, setup, events, early) = Host::open(part)?;
    let ended = host.drive(setup, &events, early);
    host.leave(ended)
}

/// What a transfer runs on: threads, sockets, and the connection to its peer.
struct Host {
    settings: Settings,
    carrier: Carrier,
    watch: Arc<Watch>,
    cancellation: Arc<Cancellation>,
    assembly: Assembly,
    events_in: Sender<Event>,
    peer: Option<Connection>,
    sockets: Sockets,
    lanes: Vec<JoinHandle<()>>,
    /// Lets the walk continue.
    walk: Option<SyncSender<()>>,
    compare: Option<Sender<Message>>,
    finisher: Option<FinisherThread>,
    report: SideReport,
    usage: system::Usage,
    /// Chooses the number of streams, where this side opens them and the user leaves it to us.
    chooser: Option<Chooser>,
    /// Results of actions, which are handled first.
    pending: VecDeque<Event>,
}

/// The connection to the peer.
struct Connection {
    line: Box<dyn Line>,
    was_full: bool,
    pulse: Arc<PeerActivity>,
    dial: Option<Box<dyn Dial>>,
    drives: bool,
}

type Opened = (Host, Setup, Receiver<Event>, Vec<Event>);

impl Host {
    fn open(part: Part) -> Result<Opened, Fault> {
        let Part { settings, source, sink, streams, peer, resume_state, watch, .. } = part;
        let (events_in, events) = part.events;
        let here = Here {
            source: source.as_ref().map(|(place, _)| place),
            sink: sink.is_some(),
            far: peer.is_some(),
            window_bytes: part.window_bytes,
        };
        let ledgers = Ledgers::new(&settings, here, &watch);
        if let Some(objects) = &ledgers.objects {
            let events_in = events_in.clone();
            objects.when_written(move || drop(events_in.send(Event::Beat)));
        }
        let cancellation = ledgers.cancellation.clone();
        let ends = Ends {
            settings: settings.clone(),
            source: source.as_ref().map(|(place, _)| place.clone()).zip(ledgers.plan.clone()),
            sink: sink.clone().zip(ledgers.objects.clone()),
            source_waits: source.as_ref().is_some_and(|(_, walking)| walking.sources_wait),
            cancellation: cancellation.clone(),
        };
        let carried = streams.iter().filter(|it| it.handle.number == CONTROL_STREAM).count();
        let lanes = if here.far { streams_max(&settings) } else { settings.streams };
        let assembly = Assembly::new(ends, usize::from(lanes) + carried)?;
        let usage = system::usage_anew();
        let (place, walking) = source.unzip();
        let (begin, finisher) = begin(
            &settings,
            sink.as_ref(),
            resume_state,
            (part.expected, place.is_none()),
            &watch,
        )?;
        let (peer, peer_setup) = peer.map(connection).unzip();
        let dials = peer_setup.as_ref().is_some_and(|peer| peer.dials);
        let chooser = dials.then(|| Chooser::of(&settings)).flatten();
        let role = if place.is_some() { PathRole::Source } else { PathRole::Sink };
        let host = Host {
            walk: walking.map(|walking| walking.go_on),
            compare: compare(&settings, sink.as_ref(), &cancellation)
                .map(|compare| threads::compare(compare, events_in.clone())),
            finisher: finisher.map(|finisher| threads::finish(finisher, events_in.clone())),
            report: first_report(&assembly, part.about),
            sockets: Sockets::new(role, cancellation.clone()),
            settings: settings.clone(),
            carrier: part.carrier,
            watch: watch.clone(),
            cancellation,
            assembly,
            events_in,
            peer,
            lanes: Vec::new(),
            usage,
            chooser,
            pending: VecDeque::new(),
        };
        let (peer, rename, carrier) = (peer_setup, part.rename, part.carrier);
        let source = place;
        let setup =
            Setup { settings, source, sink, streams, peer, ledgers, begin, watch, rename, carrier };
        Ok((host, setup, events, part.early))
    }

    fn drive(
        &mut self,
        setup: Setup,
        events: &Receiver<Event>,
        early: Vec<Event>,
    ) -> Result<Done, Fault> {
        let drain = Transfer::begin(clock::now(), setup);
        self.pending.extend(early);
        let mut transfer = match self.settle(drain) {
            Settled::Waits(transfer) => transfer,
            Settled::Over(ended) => return ended,
        };
        loop {
            match events.recv_timeout(BEAT.into()) {
                Ok(event) => {
                    self.pending.push_back(event);
                    self.pending.extend(events.try_iter());
                }
                Err(RecvTimeoutError::Timeout) => self.sockets.look_at_windows(),
                Err(RecvTimeoutError::Disconnected) => panic!("this side holds a sender"),
            }
            self.look_around();
            self.pending.push_back(Event::Beat);
            let first = self.next_event().expect("a beat at least");
            transfer = match self.settle(self.tell(transfer, first)) {
                Settled::Waits(transfer) => transfer,
                Settled::Over(ended) => return ended,
            };
        }
    }

    /// Performs the actions, and handles their results, until nothing is left to do.
    fn settle(&mut self, mut drain: Drain) -> Settled {
        loop {
            drain = match drain.next() {
                Next::Do(action, rest) => {
                    self.perform(action);
                    rest
                }
                Next::Over(ended) => return Settled::Over(ended),
                Next::Waits(transfer) => match self.next_event() {
                    Some(event) => self.tell(transfer, event),
                    None => return Settled::Waits(transfer),
                },
            }
        }
    }

    /// The next event: first of all whether the line accepts more, as it is now.
    fn next_event(&mut self) -> Option<Event> {
        if let Some(peer) = &mut self.peer {
            let is_full = peer.line.is_full();
            if std::mem::replace(&mut peer.was_full, is_full) != is_full {
                return Some(Event::LineFull(is_full));
            }
        }
        self.pending.pop_front()
    }

    fn tell(&self, transfer: Transfer, event: Event) -> Drain {
        transfer.handle(clock::now(), event)
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Say(message) => self.say(&message),
            Action::StartLane(stream) => self.start_lane(stream),
            Action::Carry => self.carry(),
            Action::Dial { number, after } => {
                if let Some(dial) = self.peer.as_ref().and_then(|peer| peer.dial.as_ref()) {
                    dial.dial(number, after.into());
                }
            }
            Action::Cut { stream } => self.sockets.cut(stream),
            Action::Forget { stream } => self.sockets.remove(stream),
            Action::Check { stream, check } => {
                if let Some(holds) = self.sockets.check(stream, check, self.settings.stall) {
                    self.pending.push_back(Event::Checked { stream, check, holds });
                }
            }
            Action::WalkOn => {
                let _ = self.walk.as_ref().map(|walk| walk.try_send(()));
            }
            Action::Compare(message) => {
                // A thread that has panicked has reported it.
                let _ = self.compare.as_ref().map(|compare| compare.send(message));
            }
            Action::Finish(work) => {
                // A thread that has panicked has reported it.
                let _ = self.finisher.as_ref().map(|(work_in, _)| work_in.send(work));
            }
            Action::NoteDecompressionTime(time) => self.assembly.record_decompression_time(&time),
            Action::NoteSamples { stream, samples } => {
                self.sockets.hear_samples(stream, samples, &self.watch);
            }
            Action::Measure => {
                let samples = match self.drives() {
                    true => Vec::new(),
                    false => self.sockets.last_samples(clock::now()),
                };
                self.measure();
                let report = Box::new(self.report.clone());
                self.pending.push_back(Event::Measured(report, samples));
            }
            Action::Cancel(fault) => self.cancellation.cancel(fault),
        }
    }

    fn drives(&self) -> bool {
        self.peer.as_ref().is_none_or(|peer| peer.drives)
    }

    fn say(&mut self, message: &Message) {
        let Some(peer) = &mut self.peer else { return };
        if let Err(fault) = peer.line.send(message) {
            self.pending.push_back(Event::Failed(fault));
        }
    }

    fn carry(&mut self) {
        let Some(peer) = &mut self.peer else { return };
        self.pending.push_back(match peer.line.carry() {
            Ok(stream) => Event::Joined(stream),
            Err(fault) => Event::Failed(fault),
        });
    }

    /// Checks what is not reported as an event.
    fn look_around(&mut self) {
        for event in &self.pending {
            if let Event::LaneOver(Some(stream), _) = event {
                self.sockets.lane_over(*stream);
            }
        }
        if self.peer.as_ref().is_some_and(|peer| peer.pulse.is_peer_active()) {
            self.pending.push_back(Event::PeerActive);
        }
        let now = clock::now();
        if self.peer.as_ref().is_none_or(|peer| !peer.was_full)
            && let Some(time) = self.assembly.decompression_time(now)
        {
            self.pending.push_back(Event::DecompressionTime(time));
        }
        match self.drives() {
            true => self.sockets.keep(now, &self.watch),
            false => {
                let told = self.sockets.tell(now);
                self.pending.extend((!told.is_empty()).then_some(Event::Sampled(told)));
            }
        }
        if self.carrier == Carrier::Tcp {
            self.sockets.tend(now, &self.settings);
        }
        if let Some(chooser) = &mut self.chooser {
            self.pending.extend(chooser.look(now, &mut self.sockets, &self.watch));
        }
    }

    fn start_lane(&mut self, stream: Option<Stream>) {
        let wire = stream.as_ref().map(|stream| stream.handle.clone());
        let number = wire.as_ref().map(|wire| wire.number);
        let (lane, engine) = match self.assembly.lane(stream) {
            Ok(made) => made,
            Err(fault) => return self.pending.push_back(threads::not_started(number, fault)),
        };
        self.report.engine = engine;
        if let Some(wire) = wire {
            if self.report.congestion.is_empty() {
                self.report.congestion = tcp::congestion(&wire.socket);
                self.report.window_scale = tcp::peer_window_scale(&wire.socket);
            }
            self.sockets.add(wire, lane.waker());
        }
        self.lanes.retain(|lane| !lane.is_finished());
        self.lanes.push(threads::lane(number, lane, self.events_in.clone()));
    }

    /// The figures of this host.
    fn measure(&mut self) {
        self.sockets.look_at_windows();
        let usage = system::usage();
        let report = &mut self.report;
        report.cpu_user = usage.user - self.usage.user;
        report.cpu_system = usage.system - self.usage.system;
        report.peak_memory_bytes = usage.peak_memory_bytes;
        report.window_seen_bytes = self.sockets.window_seen_bytes;
        report.pace_bytes_per_s = self.sockets.pace_bytes_per_s();
    }

    /// Ends the threads. After a fault none is waited for long: a sync can take minutes.
    fn leave(mut self, ended: Result<Done, Fault>) -> Result<Done, Fault> {
        (self.walk, self.compare) = (None, None);
        let finisher = self.finisher.take().map(|(_, thread)| thread);
        let mut done = match ended {
            Ok(done) => done,
            Err(fault) => {
                wait_for(|| finisher.as_ref().is_none_or(JoinHandle::is_finished));
                return Err(fault);
            }
        };
        self.measure();
        let SideReport { tally, excluded, room, .. } = done.report;
        done.report = SideReport { tally, excluded, room, ..self.report };
        done.paths = self.sockets.finish(clock::now());
        done.stream_steps = self.chooser.take().map(|it| it.end(&self.watch)).unwrap_or_default();
        if finisher.is_some_and(|thread| thread.join().is_err()) {
            return Err(Fault::new(Class::Local, "the finisher panicked: please report this"));
        }
        for lane in self.lanes.drain(..) {
            if lane.join().is_err() {
                return Err(Fault::new(Class::Local, "a lane panicked: please report this"));
            }
        }
        Ok(done)
    }
}

/// How far a transfer has come.
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is returned to")]
enum Settled {
    Waits(Transfer),
    Over(Result<Done, Fault>),
}

fn connection(peer: Peer) -> (Connection, PeerSetup) {
    let Peer { session, line, pulse, dial, drives, may_carry, host } = peer;
    let setup = PeerSetup { session, drives, dials: dial.is_some(), may_carry, host };
    (Connection { line, was_full: false, pulse, dial, drives }, setup)
}

/// The comparison of files by their bytes, where that is asked for.
fn compare(
    settings: &Settings,
    sink: Option<&Target>,
    cancellation: &Arc<Cancellation>,
) -> Option<Compare> {
    let sink = sink.filter(|_| settings.skip_unchanged == SkipUnchanged::Checksum)?;
    let volume = sink.volume()?.clone();
    let (rename, cancellation) = (sink.rename(), cancellation.clone());
    Some(Compare { volume, rename, cancellation, twins: BTreeMap::new() })
}

/// What the sink of this host begins with, and what finishes its objects where it has one. `alone`:
/// the source is on another host.
fn begin(
    settings: &Settings,
    sink: Option<&Target>,
    resume_state: ResumeState,
    (expected, alone): (Expected, bool),
    watch: &Arc<Watch>,
) -> Result<(Begin, Option<Finisher>), Fault> {
    let ResumeState { tag, prior_runs, journal, .. } = resume_state;
    let backup = sink.and_then(|target| Backup::of(target, settings));
    let mirror = match sink {
        Some(target) => Mirror::of(target, settings, &tag, backup.clone())?,
        None => None,
    };
    let obstacles = mirror.as_ref().and_then(Mirror::obstacles).cloned();
    let finisher = sink.map(|target| {
        let volume = target.volume().cloned();
        Finisher::new(volume, settings.fsync, journal)
            .clearing(obstacles)
            .keeping(backup.clone())
            .reading_back(ReadBack::of(settings, watch))
    });
    let owners = OwnerMap::of(settings)?;
    Ok((Begin { tag, prior_runs, alone, expected, mirror, owners, backup }, finisher))
}

/// The report of a side before it has moved anything.
fn first_report(assembly: &Assembly, about: About) -> SideReport {
    SideReport {
        depth: assembly.depth(),
        planned_memory_bytes: assembly.planned_memory_bytes,
        about,
        ..SideReport::default()
    }
}

/// Waits for an end that is near, for a limited time.
fn wait_for(ended: impl Fn() -> bool) {
    for _ in 0..LEAVES_WITHIN.0 / BEAT.0 {
        if ended() {
            return;
        }
        std::thread::sleep(BEAT.into());
    }
}

const LEAVES_WITHIN: Nanos = Nanos::from_millis(400);
