//! One host's part of a transfer as a state machine: events go in, actions come out.
//!
//! It has no thread, no socket and no clock. The driver of a [`Transfer`] passes it an [`Event`]
//! with the time, and gets a [`Drain`]: every [`Action`] in it has to be taken out before the next
//! event, which the types enforce. `run.rs` drives it with threads and sockets,
//! `mover/tests/two_hosts.rs` drives two of them in a simulated world.
//!
//! In place it changes only the ledgers that lanes share, and names at the destination through
//! [`Volume`](crate::io::volume::Volume), which the simulation implements too.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use self::comparing::{COMPARING_MAX, compared_objects};
use self::ending::Phase;
use self::finishing::News;
use self::stream_states::StreamStates;
use crate::pump::lane::Over;
use crate::pump::lane::assembly::Stream;
use crate::pump::sink::finisher::Finished;
use crate::pump::sink::mirror::Step;
use crate::pump::sink::objects::Complete;
use crate::pump::sink::{self, SinkSide, Target};
use crate::pump::source::walk::{Found, WalkEvent};
use crate::pump::source::{Flow, SourceSide};
use crate::pump::watch::Watch;
use crate::wire::message::Message;
use crate::wire::session::Session;
use base::codec::DecompressionTime;
use base::extra::ExtraSums;
use base::fault::{Class, Fault};
use base::job::{Carrier, Location, StreamPath};
use base::path::PathSample;
use base::reason::Changes;
use base::settings::Settings;
use base::stream_steps::StreamStep;
use base::tally::{SideReport, Tally};
use base::units::{Nanos, Rate, Tick};

mod backlog;
mod comparing;
mod ending;
mod finishing;
mod hearing;
mod ledgers;
mod mirroring;
mod offering;
mod pulse;
mod stream_states;
mod streams;
mod twins;

pub(crate) use self::backlog::{Backlog, Ticket, heard_bytes};
pub use self::finishing::Work;
pub use self::ledgers::{Here, Ledgers};
pub(crate) use self::pulse::PeerActivity;
use self::twins::Twins;

/// How often a transfer gets a [`Event::Beat`]; also the longest delay of an acknowledgement.
pub const BEAT: Nanos = Nanos::from_millis(10);
/// How many chunks of the walk may wait to be offered.
pub const CHUNKS_AHEAD: usize = 4;

/// Something that happened.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "the largest comes once, when a lane ends")]
pub enum Event {
    /// Time has passed; all that had happened until now has been reported.
    Beat,
    Heard(Message),
    /// A message that the session saw while the streams were being opened.
    HeardBefore(Message),
    /// What the walk had found, and the peer was offered, while the streams were being opened.
    OfferedBefore(Vec<Found>),
    /// All messages before this one are handled.
    Dealt(Ticket),
    /// The control connection ended; with a fault when it broke.
    Closed(Option<Fault>),
    /// The queue of the connection is full, so that what can wait must wait; or it no longer is.
    LineFull(bool),
    /// The peer gave a sign of life other than a message.
    PeerActive,
    /// A lane has ended, with the number of its stream if it has one.
    LaneOver(Option<u32>, Over),
    Finished(Vec<Finished>),
    /// The journal has been updated.
    Advanced(Result<(), Fault>),
    /// Some of what the source does not have has been removed.
    Removed(Step),
    /// The walk has found something; it continues when it is told to.
    Found(WalkEvent),
    /// The walk is over.
    Walked,
    /// A data stream has proved that it belongs here.
    Joined(Stream),
    /// A stream that was to replace another could not be opened.
    NotJoined(Fault),
    /// From now on this many streams are to carry the data.
    Resize {
        streams: u16,
    },
    /// A message of the source, with the numbers of objects that exist here byte for byte.
    Compared(Message, Vec<u64>),
    /// The result of a [`Check`] of a stream.
    Checked {
        stream: u32,
        check: Check,
        holds: bool,
    },
    /// The time of decompression here.
    DecompressionTime(DecompressionTime),
    /// Samples of the streams of this host, for the side that drives.
    Sampled(Vec<Message>),
    /// The figures of this host and its streams at the end.
    Measured(Box<SideReport>, Vec<Message>),
    /// What was asked for cannot be done on this host.
    Failed(Fault),
}

/// Something to do, in this order.
#[derive(Debug)]
pub enum Action {
    /// Send to the peer.
    Say(Message),
    /// A lane for a stream, or for two ends on this host. `LaneOver` comes when it ends.
    StartLane(Option<Stream>),
    /// Let the connection to the peer carry a data stream: `Joined`.
    Carry,
    /// Open a data stream of this number after a delay: `Joined` or `NotJoined`.
    Dial { number: u32, after: Nanos },
    /// A stream cannot be used any more: its lane must end.
    Cut { stream: u32 },
    /// Both sides have released it.
    Forget { stream: u32 },
    /// Ask the host's TCP about a stream: `Checked`.
    Check { stream: u32, check: Check },
    /// The walk may continue by one.
    WalkOn,
    /// Compare with the files here: `Compared`.
    Compare(Message),
    /// Work for the finisher: `Finished`, `Advanced`, or nothing at the end.
    Finish(Work),
    /// The time of decompression at the sink.
    NoteDecompressionTime(DecompressionTime),
    /// The peer's samples of a stream.
    NoteSamples { stream: u32, samples: Vec<PathSample> },
    /// Take the last figures of the host and its streams: `Measured`.
    Measure,
    /// Everything that moves bytes must stop.
    Cancel(Fault),
}

/// A check of a stream on which nothing moves although it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Whether segments were sent and not acknowledged for `--stall`.
    PathIsDead,
    /// Whether nothing has arrived for half of `--stall`, and nothing waits to be read.
    IsStarved,
}

/// What a transfer starts with.
#[derive(Debug)]
pub struct Setup {
    pub settings: Settings,
    pub source: Option<Location>,
    pub sink: Option<Target>,
    pub streams: Vec<Stream>,
    pub peer: Option<PeerSetup>,
    pub ledgers: Ledgers,
    pub begin: sink::Begin,
    pub watch: Arc<Watch>,
    /// The name that a single object gets at a far sink.
    pub rename: Option<Vec<u8>>,
    pub carrier: Carrier,
}

/// The peer, where there is one: the protocol has come as far as its data streams.
#[derive(Debug)]
pub struct PeerSetup {
    pub session: Session,
    /// True for the host that started the other.
    pub drives: bool,
    /// True for the side that opens streams.
    pub dials: bool,
    /// The connection to the peer carries the data where it cannot open any.
    pub may_carry: bool,
    /// The name by which the user knows it, where there is one.
    pub host: Option<String>,
}

/// The result of a part.
#[derive(Debug, Default)]
pub struct Done {
    pub files: u64,
    pub directories: u64,
    pub failed: u64,
    /// Destination files that were as new as their source, and stay.
    pub kept: u64,
    /// Names that the source does not have, and that were removed.
    pub deleted: u64,
    /// Streams that replaced others.
    pub replaced: u32,
    pub worst: Option<Class>,
    pub bytes: u64,
    /// Samples of the data streams.
    pub paths: Vec<StreamPath>,
    /// How the number of streams was chosen.
    pub stream_steps: Vec<StreamStep>,
    pub report: SideReport,
    pub peer_report: Option<SideReport>,
    /// What carried the data.
    pub carrier: Carrier,
}

/// A transfer that waits for an event.
#[derive(Debug)]
pub struct Transfer(Box<Core>);

/// A transfer after an event: its actions come first.
#[must_use = "what is to be done has to be taken out before the transfer goes on"]
#[derive(Debug)]
pub struct Drain(Box<Core>);

/// The result of [`Drain::next`].
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is returned to")]
pub enum Next {
    /// Do this, and then what follows.
    Do(Action, Drain),
    /// Nothing to do before the next event.
    Waits(Transfer),
    /// The transfer has ended.
    Over(Result<Done, Fault>),
}

impl Transfer {
    /// Begins a transfer.
    pub fn begin(now: Tick, setup: Setup) -> Drain {
        let mut core = Core::new(now, setup.settings, setup.peer, setup.watch, setup.carrier);
        let rename = setup.rename.or_else(|| setup.sink.as_ref().and_then(Target::rename));
        let flow = Flow::of(setup.source.as_ref());
        let Ledgers { plan, objects, complete, .. } = setup.ledgers;
        core.source = plan
            .map(|plan| SourceSide::new(plan, core.settings.clone(), core.watch.clone()))
            .map(|side| side.renamed(rename).flowing(flow));
        let compares = comparing::is_asked(&core.settings, setup.sink.as_ref());
        core.comparing = compares.then_some(0);
        core.sink = setup.sink.zip(objects).map(|(target, objects)| {
            SinkSide::new(objects, core.settings.clone(), target, core.watch.clone(), setup.begin)
        });
        core.complete = complete;
        core.walk = if core.source.is_some() { Walk::Going } else { Walk::Told };
        core.start_lanes(setup.streams);
        Drain(Box::new(core))
    }

    /// Handles an event.
    pub fn handle(mut self, now: Tick, event: Event) -> Drain {
        self.0.now = now;
        self.0.handle(event);
        Drain(self.0)
    }
}

impl Drain {
    /// The next action.
    pub fn next(mut self) -> Next {
        if let Some(action) = self.0.actions.pop_front() {
            return Next::Do(action, self);
        }
        match self.0.phase {
            Phase::Over(result) => Next::Over(result),
            _ => Next::Waits(Transfer(self.0)),
        }
    }
}

#[derive(Debug)]
struct Core {
    settings: Settings,
    now: Tick,
    actions: VecDeque<Action>,
    phase: Phase,
    source: Option<SourceSide>,
    sink: Option<SinkSide>,
    complete: Option<Receiver<Complete>>,
    walk: Walk,
    /// Found by the walk, and not offered yet.
    found: VecDeque<WalkEvent>,
    peer: Option<Peer>,
    /// What carries the data, and by what more streams are opened.
    carrier: Carrier,
    watch: Arc<Watch>,
    streams: StreamStates,
    lanes_running: usize,
    /// When streams are checked for life again.
    look_at: Tick,
    news: News,
    /// Digests besides of objects that the sink finishes next.
    extra: BTreeMap<u64, ExtraSums>,
    /// In what objects differ that are not finished.
    reasons: BTreeMap<u64, Changes>,
    twins: Twins,
    /// Where files are compared first: objects that are being compared.
    comparing: Option<u64>,
    tally: Tally,
    /// Names that the walk was told to leave out.
    excluded: u64,
    done: Done,
    /// The object that failed last.
    failed_last: String,
    report: Report,
    /// The far source has been told to stop.
    enough_said: bool,
    /// The limit of the rate that the source has been told, since the transfer began.
    limit_known: Option<Option<Rate>>,
}

/// The peer's state during the transfer.
#[derive(Debug)]
struct Peer {
    session: Session,
    drives: bool,
    dials: bool,
    may_carry: bool,
    host: Option<String>,
    line_is_full: bool,
    /// It has given a sign of life since the session was last polled.
    was_active: bool,
    /// It went away when everything was done, before its report.
    is_gone: bool,
}

/// How far the walk has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    Going,
    Over,
    /// And the sink has been told, or there is none here.
    Told,
}

/// How far this side's report has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    NotYet,
    /// The host is being asked for its figures.
    Asked,
    Made,
}

impl Core {
    fn new(
        now: Tick,
        settings: Settings,
        peer: Option<PeerSetup>,
        watch: Arc<Watch>,
        carrier: Carrier,
    ) -> Core {
        let peer = peer.map(|PeerSetup { mut session, drives, dials, may_carry, host }| {
            session.set_timeout(now, settings.stall);
            let (line_is_full, was_active, is_gone) = (false, false, false);
            Peer { session, drives, dials, may_carry, host, line_is_full, was_active, is_gone }
        });
        Core {
            streams: StreamStates::new(settings.streams),
            settings,
            now,
            actions: VecDeque::new(),
            phase: Phase::Running,
            source: None,
            sink: None,
            complete: None,
            walk: Walk::Told,
            found: VecDeque::new(),
            peer,
            carrier,
            watch,
            lanes_running: 0,
            look_at: now,
            news: News::none(now),
            extra: BTreeMap::new(),
            reasons: BTreeMap::new(),
            twins: Twins::default(),
            comparing: None,
            tally: Tally::default(),
            excluded: 0,
            done: Done::default(),
            failed_last: String::new(),
            report: Report::NotYet,
            enough_said: false,
            limit_known: None,
        }
    }

    fn handle(&mut self, event: Event) {
        match &self.phase {
            Phase::Running => {
                if let Err(fault) = self.take(event) {
                    self.fail(fault);
                }
            }
            Phase::Listening { .. } => self.listen(event),
            Phase::Stopping { .. } => self.await_lanes(event),
            Phase::Over(_) => {}
        }
    }

    fn take(&mut self, event: Event) -> Result<(), Fault> {
        // Before what it has made fail is named, one after the other.
        if let Some(fault) = self.watch.refused() {
            return Err(fault.clone());
        }
        match event {
            Event::Beat => self.beat(),
            Event::Heard(message) => self.hear(message),
            Event::HeardBefore(message) => self.hear_checked(message),
            Event::OfferedBefore(found) => self.offered_before(found),
            Event::Dealt(_) => Ok(()),
            Event::Closed(fault) => self.closed(fault),
            Event::LaneOver(stream, over) => self.lane_over(stream, over),
            Event::Finished(finished) => self.finish(&finished),
            Event::Advanced(told) => {
                self.news.under_way = false;
                told
            }
            Event::Removed(step) => self.removed(step),
            Event::Compared(message, same) => self.compared(message, same),
            Event::Joined(stream) => {
                self.join(stream);
                Ok(())
            }
            Event::NotJoined(fault) => self.not_joined(&fault),
            Event::Resize { streams } => {
                self.resize(streams);
                Ok(())
            }
            Event::Found(sighting) => {
                self.found.push_back(sighting);
                Ok(())
            }
            Event::Walked => {
                self.walk = Walk::Over;
                Ok(())
            }
            Event::LineFull(is_full) => {
                self.peer.iter_mut().for_each(|peer| peer.line_is_full = is_full);
                Ok(())
            }
            Event::PeerActive => {
                self.peer.iter_mut().for_each(|peer| peer.was_active = true);
                Ok(())
            }
            Event::Checked { stream, check, holds } => self.checked(stream, check, holds),
            Event::DecompressionTime(time) if self.report == Report::NotYet => {
                self.say_to_source(Message::DecompressionTime(time))
            }
            Event::Sampled(messages) if self.report == Report::NotYet => {
                messages.into_iter().for_each(|message| self.say(message));
                Ok(())
            }
            Event::DecompressionTime(_) | Event::Sampled(_) => Ok(()),
            Event::Measured(report, samples) => self.measured(*report, samples),
            Event::Failed(fault) => Err(fault),
        }
    }

    /// What is due in any case, whether or not something happened.
    fn beat(&mut self) -> Result<(), Fault> {
        if self.watch.stopping() {
            return Err(Fault::interrupted());
        }
        self.offer()?;
        self.end_if_enough();
        self.limit_if_asked();
        if let Some(end) = self.source.as_mut().and_then(SourceSide::pipe_end) {
            self.say_to_sink(end)?;
        }
        if !self.line_is_full()
            && let Some(ack) = self.sink.as_mut().and_then(SinkSide::acknowledge)
        {
            if let Message::Ack { bytes, .. } = &ack {
                self.news.bytes += bytes;
            }
            self.say_to_source(ack)?;
        }
        self.feed_finisher();
        self.tell_journal();
        self.look_at_streams();
        for text in self.sink.as_mut().map(SinkSide::take_warnings).unwrap_or_default() {
            self.warn(text);
        }
        self.mirror();
        self.check_all_came()?;
        self.check_errors()?;
        self.keep_alive()?;
        self.begin_report();
        if self.is_over() {
            self.conclude();
        }
        Ok(())
    }

    fn keep_alive(&mut self) -> Result<(), Fault> {
        let Some(peer) = &mut self.peer else { return Ok(()) };
        let was_active = std::mem::take(&mut peer.was_active);
        if let Some(ping) = peer.session.poll(self.now, was_active)? {
            self.actions.push_back(Action::Say(ping));
        }
        Ok(())
    }

    /// Streams that have ended deliver no more bytes. For those that were lost, and for the one
    /// that only starts a transfer, others come.
    fn check_all_came(&self) -> Result<(), Fault> {
        let waits = self.sink.as_ref().is_some_and(|sink| sink.objects.is_waiting());
        if !waits || self.lanes_running > 0 || self.streams.awaited > 0 {
            return Ok(());
        }
        match self.streams.bare_since {
            None => Err(Fault::peer("the source ended its streams before all bytes had come")),
            Some(since) if self.now.since(since) > self.bare_patience() => {
                let text = "no data stream is open, and none was opened for long";
                Err(Fault::new(Class::Unreachable, text))
            }
            Some(_) => Ok(()),
        }
    }

    /// Ends a transfer in which more has failed than the user allows.
    fn check_errors(&self) -> Result<(), Fault> {
        let Some(most) = self.settings.errors_max.filter(|_| self.drives()) else { return Ok(()) };
        if self.done.failed <= u64::from(most) {
            return Ok(());
        }
        let text = format!(
            "{} failed, and --max-errors allows {most}; the last: {}; what has its final name is \
             complete; run the same command again for the rest",
            self.done.failed, self.failed_last
        );
        Err(Fault::new(self.done.worst.unwrap_or(Class::SomeFailed), text))
    }

    fn line_is_full(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.line_is_full)
    }

    fn drives(&self) -> bool {
        self.peer.as_ref().is_none_or(|peer| peer.drives)
    }

    /// Sends to the peer.
    fn say(&mut self, message: Message) {
        let peer = self.peer.as_mut().expect("only a peer is told");
        peer.session.say(self.now, &message);
        self.actions.push_back(Action::Say(message));
    }

    fn warn(&mut self, text: String) {
        match &self.peer {
            Some(peer) if !peer.drives => self.say(Message::Warning { text }),
            _ => self.watch.warn(text),
        }
    }
}
