//! Runs one host's part of a transfer: lanes on threads, the conversation in one loop.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use self::comparing::{COMPARING_MAX, Comparing, compared_objects};
use self::finishing::{FinisherThread, News, Work};
use self::starting::{first_report, plan_of};
use super::assembly::{Assembly, Ends, Stream};
use super::brake::Brake;
use super::expected::Expected;
use super::finisher::{Ending, Finished, Finisher};
use super::lane::{Lane, Over};
use super::objects::{Complete, Objects, Unfinished};
use super::paths::When;
use super::resume::Memory;
use super::sink::{Begin, SinkSide, Target};
use super::source::{Flow, SourceSide};
use super::walk::{Sighting, Sources};
use super::watch::Watch;
use super::wires::Wires;
use crate::base::fault::{Class, Fault};
use crate::base::job::{Carrier, Notice, PathRole, Place, StreamPath};
use crate::base::label::Sum;
use crate::base::settings::Settings;
use crate::base::tally::{About, SideReport, Tally};
use crate::base::units::Tick;
use crate::io::{clock, system, tcp};
use crate::wire::manifest::EntryKind;
use crate::wire::message::Message;
use crate::wire::session::Session;
use crate::work::digest::to_hex;

mod backlog;
mod comparing;
mod finishing;
mod pulse;
mod starting;
mod streams;

pub use self::backlog::{Backlog, Ticket, heard_bytes};
pub use self::pulse::Pulse;

/// How long the loop sleeps when nothing happens; also how late an acknowledgement may be.
const BEAT: Duration = Duration::from_millis(10);
/// Chunks that the walk may be ahead of the offers.
const CHUNKS_AHEAD: usize = 4;

/// Something that happened.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "the largest comes once, when a lane ends")]
pub enum Event {
    Heard(Message),
    /// Everything that was heard before this is dealt with.
    Dealt(Ticket),
    /// The control connection ended; with a fault when it broke.
    Closed(Option<Fault>),
    /// A lane has ended, with the number of its stream if it has one.
    LaneOver(Option<u32>, Over),
    Finished(Vec<Finished>),
    /// The journal says what it was told to.
    Advanced(Result<(), Fault>),
    /// The walk has something; it is taken when there is credit for it.
    Walked,
    /// A data stream has proved that it belongs here.
    Joined(Stream),
    /// A stream that was to take another's place could not be opened.
    NotJoined(Fault),
    /// A message of the source, with the numbers of objects that are here byte for byte.
    Compared(Message, Vec<u64>),
}

/// The control connection to the peer.
pub trait Line: Send + fmt::Debug {
    /// Never waits for the network.
    fn send(&mut self, message: &Message) -> Result<(), Fault>;
    /// True while so much waits to be written that what can be said later is.
    fn is_full(&self) -> bool;
}

/// Opens a data stream, in its own time, and reports it as an event.
pub trait Dial: Send + fmt::Debug {
    fn dial(&self, number: u32, after: Duration);
}

/// The peer, where there is one.
#[derive(Debug)]
pub struct Peer {
    pub session: Session,
    pub line: Box<dyn Line>,
    pub pulse: Arc<Pulse>,
    /// How the side that opens streams opens another.
    pub dial: Option<Box<dyn Dial>>,
    /// True for the host that started the other.
    pub drives: bool,
}

/// One host's part: the source, the sink, or both.
#[derive(Debug)]
pub struct Part {
    pub settings: Settings,
    pub source: Option<(Place, Sources)>,
    pub sink: Option<Target>,
    pub streams: Vec<Stream>,
    pub peer: Option<Peer>,
    /// Beyond which lowest unsettled address the sink takes nothing.
    pub window_bytes: Option<u64>,
    /// What the sink knows of earlier runs.
    pub memory: Memory,
    /// What its source may offer.
    pub expected: Expected,
    pub watch: Arc<Watch>,
    pub events: (Sender<Event>, Receiver<Event>),
    /// The name that a single object gets at a far sink.
    pub rename: Option<Vec<u8>>,
    pub carrier: Carrier,
    /// What this host says of itself in its report.
    pub about: About,
    /// What the peer said while the streams were being opened.
    pub early: Vec<Message>,
}

/// What a part did.
#[derive(Debug, Default)]
pub struct Done {
    pub files: u64,
    pub directories: u64,
    pub failed: u64,
    /// Destination files that were as new as their source, and stay.
    pub kept: u64,
    /// Streams that took another's place.
    pub replaced: u32,
    pub worst: Option<Class>,
    pub bytes: u64,
    /// What was seen of the data streams.
    pub paths: Vec<StreamPath>,
    pub report: SideReport,
    pub peer_report: Option<SideReport>,
}

/// Runs a part to its end. On a fault everything is stopped, told to the peer, and cleared away.
pub fn run(mut part: Part) -> Result<Done, Fault> {
    let early = std::mem::take(&mut part.early);
    let mut running = Running::start(part)?;
    let heard = early.into_iter().try_for_each(|message| running.hear_checked(message));
    let ended = heard.and_then(|()| running.run_loop());
    match ended {
        Ok(()) => running.done(),
        Err(fault) => Err(running.stop(fault)),
    }
}

struct Running {
    settings: Settings,
    source: Option<SourceSide>,
    sink: Option<SinkSide>,
    finisher: Option<FinisherThread>,
    complete: Option<Receiver<Complete>>,
    walked: Option<Receiver<Sighting>>,
    held: Option<Sighting>,
    peer: Option<Peer>,
    watch: Arc<Watch>,
    brake: Arc<Brake>,
    events: Receiver<Event>,
    assembly: Assembly,
    lanes: Vec<JoinHandle<()>>,
    lanes_running: usize,
    wires: Wires,
    events_in: Sender<Event>,
    /// When streams are looked at for life again.
    look_at: Tick,
    news: News,
    /// Takes what is offered and gives it back as `Event::Compared`.
    compare: Option<Comparing>,
    /// The object that failed last.
    failed_last: String,
    tally: Tally,
    window_seen_bytes: u64,
    done: Done,
    reported: bool,
    /// The far source has been told that it is enough.
    enough_said: bool,
    /// It went away when everything was done, before it had said what it did.
    peer_is_gone: bool,
    carrier: Carrier,
    usage: system::Usage,
}

impl Running {
    fn start(part: Part) -> Result<Running, Fault> {
        let Part { settings, source, sink, streams, peer, window_bytes, memory, watch, .. } = part;
        let (events_in, events) = part.events;
        let rename = part.rename.or_else(|| sink.as_ref().and_then(Target::rename));
        let brake = Arc::new(Brake::default());
        let (complete_in, complete) = channel();
        let (slot, far) = (settings.request_bytes, !streams.is_empty());
        let plan = plan_of(&settings, source.as_ref(), (window_bytes, far), &brake);
        let objects = sink
            .as_ref()
            .map(|_| Arc::new(Objects::new(slot, settings.digest, watch.clone(), complete_in)));
        let ends = Ends {
            settings: settings.clone(),
            source: source.as_ref().map(|(place, _)| place.clone()).zip(plan.clone()),
            sink: sink.clone().zip(objects.clone()),
            source_waits: source.as_ref().is_some_and(|(_, sources)| sources.wait()),
            brake: brake.clone(),
        };
        let lanes = usize::from(settings.streams);
        let assembly = Assembly::new(ends, lanes)?;
        let flow = Flow::of(source.as_ref().map(|(place, _)| place));
        let walked = source.map(|(_, sources)| start_walk(sources, &settings, &events_in, &brake));
        let finisher = sink.as_ref().map(|target| {
            let volume = target.volume().cloned();
            let finisher = Finisher::new(volume, settings.fsync, memory.journal);
            finishing::start(finisher, events_in.clone())
        });
        let (alone, expected) = (plan.is_none(), part.expected);
        let begin = Begin { tag: memory.tag, past: memory.past, alone, expected };
        let source = plan
            .map(|plan| SourceSide::new(plan, settings.clone(), watch.clone()))
            .map(|side| side.renamed(rename).flowing(flow));
        let compare = comparing::start(&settings, sink.as_ref(), &events_in, &brake);
        let sink = sink.zip(objects).map(|(target, objects)| {
            SinkSide::new(objects, settings.clone(), target, watch.clone(), begin)
        });
        let now = clock::now();
        let mut running = Running {
            complete: sink.as_ref().map(|_| complete),
            source,
            sink,
            finisher,
            walked,
            held: None,
            peer,
            watch,
            wires: Wires::new(settings.streams, brake.clone()),
            brake,
            events,
            events_in,
            lanes_running: 0,
            lanes: Vec::new(),
            look_at: now,
            news: News::none(now),
            compare,
            failed_last: String::new(),
            tally: Tally::default(),
            window_seen_bytes: 0,
            done: Done { report: first_report(&assembly, part.about), ..Done::default() },
            reported: false,
            enough_said: false,
            peer_is_gone: false,
            carrier: part.carrier,
            usage: system::usage_anew(),
            assembly,
            settings,
        };
        running.start_lanes(streams, lanes)?;
        Ok(running)
    }

    /// One lane for each stream; where there are none, this many.
    fn start_lanes(&mut self, streams: Vec<Stream>, lanes: usize) -> Result<(), Fault> {
        match streams.is_empty() {
            true => (0..lanes).try_for_each(|_| self.start_lane(None))?,
            false => {
                let begun = streams.len();
                streams.into_iter().try_for_each(|stream| self.start_lane(Some(stream)))?;
                self.open_missing(begun);
            }
        }
        if let Some(peer) = &mut self.peer {
            peer.session.bear(clock::now(), self.settings.stall);
        }
        Ok(())
    }

    fn start_lane(&mut self, stream: Option<Stream>) -> Result<(), Fault> {
        let wire = stream.as_ref().map(|stream| stream.wire.clone());
        let (lane, engine) = self.assembly.lane(stream)?;
        let report = &mut self.done.report;
        report.engine = engine;
        let number = wire.as_ref().map(|wire| wire.number);
        if let Some(wire) = wire {
            if report.congestion.is_empty() {
                report.congestion = tcp::congestion(&wire.socket);
                report.window_scale = tcp::peer_window_scale(&wire.socket);
            }
            let role = if self.source.is_some() { PathRole::Source } else { PathRole::Sink };
            self.wires.add(wire, role, lane.waker());
        }
        self.lanes.retain(|lane| !lane.is_finished());
        self.lanes.push(start_lane(number, lane, self.events_in.clone()));
        self.lanes_running += 1;
        Ok(())
    }

    fn run_loop(&mut self) -> Result<(), Fault> {
        loop {
            match self.events.recv_timeout(BEAT) {
                Ok(event) => {
                    self.handle(event)?;
                    while let Ok(event) = self.events.try_recv() {
                        self.handle(event)?;
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.look_at_sockets(),
                Err(RecvTimeoutError::Disconnected) => panic!("this side holds a sender"),
            }
            if self.watch.stopping() {
                return Err(Fault::interrupted());
            }
            self.beat()?;
            if self.is_over() {
                return Ok(());
            }
        }
    }

    fn handle(&mut self, event: Event) -> Result<(), Fault> {
        match event {
            Event::Heard(message) => self.hear(message),
            Event::Dealt(_) => Ok(()),
            // Who has said everything may go; and what is complete needs no more words.
            Event::Closed(_) if self.done.peer_report.is_some() => Ok(()),
            Event::Closed(_) if self.own_part_over() && self.knows_all() => {
                self.peer_is_gone = true;
                Ok(())
            }
            Event::Closed(fault) => Err(fault.unwrap_or_else(|| {
                Fault::new(Class::Unreachable, "the far side went away: its connection was closed")
            })),
            Event::LaneOver(stream, over) => self.lane_over(stream, over),
            Event::Finished(finished) => self.finish(&finished),
            Event::Advanced(told) => {
                self.news.under_way = false;
                told
            }
            Event::Compared(message, same) => {
                let sink = self.sink.as_mut().expect("what is compared is the sink's");
                sink.note_same(same);
                if let Some(compare) = &mut self.compare {
                    compare.objects -= compared_objects(&message);
                }
                self.take_in(message)
            }
            Event::Joined(stream) => self.join(stream),
            Event::NotJoined(fault) => self.dial_again(&fault),
            Event::Walked => Ok(()),
        }
    }

    /// What is due whether or not something happened.
    fn beat(&mut self) -> Result<(), Fault> {
        self.offer()?;
        self.end_if_enough()?;
        if let Some(end) = self.source.as_mut().and_then(SourceSide::pipe_end) {
            self.say_to_sink(end)?;
        }
        let room = !self.line_is_full();
        if let Some(ack) = self.sink.as_mut().filter(|_| room).and_then(SinkSide::acknowledge) {
            if let Message::Ack { bytes, .. } = &ack {
                self.news.bytes += bytes;
            }
            self.say_to_source(ack)?;
        }
        if !self.reported
            && room
            && let Some(unpacked) = self.assembly.unpacked(clock::now())
        {
            self.say_to_source(Message::Unpacked(unpacked))?;
        }
        self.feed_finisher();
        self.tell_journal();
        self.look_at_streams()?;
        for text in self.sink.as_mut().map(SinkSide::take_warnings).unwrap_or_default() {
            self.warn(text)?;
        }
        self.check_all_came()?;
        self.check_errors()?;
        if let Some(peer) = &mut self.peer
            && let Some(ping) = peer.session.poll(clock::now(), peer.pulse.felt())?
        {
            peer.line.send(&ping)?;
        }
        self.report()
    }

    /// Streams that have ended bring nothing more.
    fn check_all_came(&self) -> Result<(), Fault> {
        let waits = self.sink.as_ref().is_some_and(|sink| sink.objects.is_waiting());
        let ended = self.lanes_running == 0 && self.wires.bare_since.is_none();
        match waits && ended && self.wires.awaited == 0 {
            true => Err(Fault::peer("the source ended its streams before all bytes had come")),
            false => Ok(()),
        }
    }

    /// Ends a transfer of which more has failed than its user allows.
    fn check_errors(&self) -> Result<(), Fault> {
        let Some(most) = self.settings.errors_max.filter(|_| self.drives()) else { return Ok(()) };
        if self.done.failed <= u64::from(most) {
            return Ok(());
        }
        let text = format!(
            "{} failed, and --max-errors allows {most}; the last: {}; what has its final name is \
             complete, and the same command goes on",
            self.done.failed, self.failed_last
        );
        Err(Fault::new(self.done.worst.unwrap_or(Class::SomeFailed), text))
    }

    /// Offers what the walk has found, as far as there is credit.
    fn offer(&mut self) -> Result<(), Fault> {
        loop {
            let Some(walked) = self.walked.as_ref().filter(|_| !self.line_is_full()) else {
                return Ok(());
            };
            let sighting = match self.held.take() {
                Some(held) => held,
                None => match walked.try_recv() {
                    Ok(sighting) => sighting,
                    Err(std::sync::mpsc::TryRecvError::Empty) => return Ok(()),
                    Err(std::sync::mpsc::TryRecvError::Disconnected) => {
                        self.walked = None;
                        let source = self.source.as_mut().expect("a walk is the source's");
                        let end = source.end_walk();
                        return self.say_to_sink(end);
                    }
                },
            };
            match sighting {
                Sighting::Chunk(found)
                    if self.source.as_ref().is_some_and(|source| !source.has_credit(&found)) =>
                {
                    self.held = Some(Sighting::Chunk(found));
                    return Ok(());
                }
                Sighting::Chunk(found) => {
                    let source = self.source.as_mut().expect("a walk is the source's");
                    let offer = source.offer(found)?;
                    self.say_to_sink(offer)?;
                }
                Sighting::Unoffered { path, fault } => {
                    if let Some(peer) = &mut self.peer {
                        let message =
                            Message::Unoffered { path: path.clone(), fault: fault.clone() };
                        say(peer, &message)?;
                    }
                    if let Some(sink) = &mut self.sink {
                        sink.note_unoffered();
                    }
                    self.failed(path, fault);
                }
                Sighting::Skipped(text) => self.warn(text)?,
                Sighting::Excluded(names) => self.done.report.excluded = names,
            }
        }
    }

    fn line_is_full(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.line.is_full())
    }

    fn warn(&mut self, text: String) -> Result<(), Fault> {
        match &mut self.peer {
            Some(peer) if !peer.drives => say(peer, &Message::Warning { text }),
            _ => {
                self.watch.warn(text);
                Ok(())
            }
        }
    }

    fn hear(&mut self, message: Message) -> Result<(), Fault> {
        let peer = self.peer.as_mut().expect("only a peer is heard");
        peer.session.hear(clock::now(), &message)?;
        self.hear_checked(message)
    }

    /// A message that the session has seen.
    fn hear_checked(&mut self, message: Message) -> Result<(), Fault> {
        match message {
            Message::Stop(fault) => Err(fault),
            Message::Ping => Ok(()),
            Message::Warning { text } => {
                self.watch.warn(text);
                Ok(())
            }
            Message::Carry => Err(open_here_only()),
            Message::Enough => {
                self.watch.enough();
                Ok(())
            }
            Message::Lost { stream } => self.hear_lost(stream),
            Message::Samples { stream, samples } => self.hear_samples(stream, &samples),
            Message::Doubt { stream } => {
                self.wires.answer_doubt(stream, self.settings.stall);
                Ok(())
            }
            Message::Report(report) => {
                self.done.peer_report = Some(*report);
                Ok(())
            }
            message if self.source.is_some() => self.tell_source(message),
            message => self.tell_sink(message),
        }
    }

    /// A message of the source: over the line, or across the room.
    fn say_to_sink(&mut self, message: Message) -> Result<(), Fault> {
        match &mut self.peer {
            Some(peer) => say(peer, &message),
            None => self.tell_sink(message),
        }
    }

    fn say_to_source(&mut self, message: Message) -> Result<(), Fault> {
        match &mut self.peer {
            Some(peer) => say(peer, &message),
            None => self.tell_source(message),
        }
    }

    fn tell_sink(&mut self, message: Message) -> Result<(), Fault> {
        match (&mut self.compare, &message) {
            (
                Some(compare),
                Message::Offer { .. } | Message::OfferEnd { .. } | Message::PipeEnd { .. },
            ) => {
                self.sink.as_ref().map_or(Ok(()), |sink| sink.check_offer(&message))?;
                compare.objects += compared_objects(&message);
                if compare.objects > COMPARING_MAX {
                    return Err(Fault::peer("the peer offered more than it has credit for"));
                }
                compare
                    .offers
                    .send(message)
                    .expect("the thread listens as long as this side lives");
                Ok(())
            }
            _ => self.take_in(message),
        }
    }

    /// The same, once what is here has been compared.
    fn take_in(&mut self, message: Message) -> Result<(), Fault> {
        let sink = self.sink.as_mut().expect("a message for the sink");
        match message {
            Message::Offer { first, entries } => {
                self.done.directories +=
                    entries.iter().filter(|entry| entry.kind == EntryKind::Directory).count()
                        as u64;
                let paths: Vec<_> = entries
                    .iter()
                    .map(|entry| (entry.path.clone(), entry.kind, entry.size))
                    .collect();
                let answers = sink.offer(first, entries)?;
                for answer in answers {
                    self.note_own(first, &paths, &answer);
                    self.say_to_source(answer)?;
                }
                Ok(())
            }
            Message::OfferEnd { objects, .. } => sink.end_offers(objects),
            Message::PipeEnd { bytes } => sink.objects.end_pipe(bytes),
            Message::Unoffered { path, fault } => {
                sink.note_unoffered();
                self.failed(path, fault);
                Ok(())
            }
            other => Err(Fault::peer(format!("{} is no message for a sink", other.name()))),
        }
    }

    /// A sink that drives tells people itself what it settled at once; otherwise the source does.
    fn note_own(&mut self, first: u64, paths: &[(Vec<u8>, EntryKind, u64)], answer: &Message) {
        if self.source.is_some() {
            return;
        }
        match answer {
            Message::Failed { object, fault } => {
                let (path, ..) = &paths[(object - first) as usize];
                self.failed(path.clone(), fault.clone());
            }
            Message::Kept { .. } => self.done.kept += 1,
            Message::Finished { objects } | Message::Held { objects } => {
                for (object, sum) in objects {
                    let (path, kind, size) = &paths[(object - first) as usize];
                    self.finished_well(path.clone(), *kind, *size, *sum);
                }
            }
            _ => {}
        }
    }

    fn tell_source(&mut self, message: Message) -> Result<(), Fault> {
        let source = self.source.as_mut().expect("a message for the source");
        match message {
            Message::Want { wanted, .. } => source.want(&wanted),
            Message::HeldRanges { object, ranges } => source.note_held(object, &ranges),
            Message::Ack { ranges, bytes } => {
                if self.sink.is_none() {
                    self.watch.gauge.bytes_done.fetch_add(bytes, Relaxed);
                }
                source.acknowledged(clock::now(), &ranges)
            }
            Message::Finished { objects } => {
                for (object, sum) in objects {
                    let source = self.source.as_mut().expect("as above");
                    let settled = source.settle(object)?;
                    self.finished_well(settled.path, settled.kind, settled.bytes, sum);
                }
                Ok(())
            }
            Message::Held { objects } => {
                for (object, sum) in objects {
                    let source = self.source.as_mut().expect("as above");
                    let settled = source.held_whole(object)?;
                    self.finished_well(settled.path, settled.kind, settled.bytes, sum);
                }
                Ok(())
            }
            Message::Failed { object, fault } => {
                let settled = source.settle(object)?;
                self.failed(settled.path, fault);
                Ok(())
            }
            Message::Kept { object } => {
                source.settle(object)?;
                self.done.kept += 1;
                Ok(())
            }
            Message::Unpacked(unpacked) => {
                self.assembly.hear_unpacked(&unpacked);
                Ok(())
            }
            other => Err(Fault::peer(format!("{} is no message for a source", other.name()))),
        }
    }

    /// The finisher is done with some objects.
    fn finish(&mut self, finished: &[Finished]) -> Result<(), Fault> {
        let sink = self.sink.as_mut().expect("a finisher is the sink's");
        let messages = sink.finished(finished);
        if self.source.is_none() {
            for object in finished {
                match &object.outcome {
                    Ok(sum) => {
                        self.finished_well(object.path.clone(), object.kind, object.bytes, *sum);
                    }
                    Err(fault) => self.failed(object.path.clone(), fault.clone()),
                }
            }
        }
        for message in messages {
            self.say_to_source(message)?;
        }
        match finished.iter().find_map(|object| object.outcome.as_ref().err()) {
            Some(fault) if fault.ends_transfer() => Err(fault.clone()),
            _ => Ok(()),
        }
    }

    fn finished_well(&mut self, path: Vec<u8>, kind: EntryKind, bytes: u64, sum: Option<Sum>) {
        if matches!(kind, EntryKind::Directory | EntryKind::Leave) {
            if self.sink.is_none() && kind == EntryKind::Directory {
                self.done.directories += 1;
            }
            return;
        }
        self.done.files += 1;
        self.done.bytes += bytes;
        self.watch.gauge.files_done.fetch_add(1, Relaxed);
        if self.settings.dry_run {
            self.watch.tell(Notice::WouldCopy { path, bytes });
        } else if !matches!(kind, EntryKind::Link | EntryKind::HardLink) {
            let digest = sum.map(|sum| to_hex(self.settings.digest, &sum));
            self.watch.tell(Notice::FileDone { path, bytes, digest });
        }
    }

    fn failed(&mut self, path: Vec<u8>, fault: Fault) {
        self.done.failed += 1;
        let class = match fault.class {
            class @ (Class::SourceChanged | Class::Corrupt) => class,
            _ => Class::SomeFailed,
        };
        // Of several kinds the one that nobody expects is told: a wrong byte before a missing file.
        self.done.worst = self.done.worst.max(Some(class));
        self.failed_last.clone_from(&fault.text);
        self.watch.tell(Notice::FileFailed { path, fault });
    }

    fn drives(&self) -> bool {
        self.peer.as_ref().is_none_or(|peer| peer.drives)
    }

    /// Whether what the other side does after its last object is of no concern. A sink there still
    /// gives the destination its mode and removes its journal, and says then that it is done.
    fn knows_all(&self) -> bool {
        self.sink.is_some() || !self.drives()
    }

    fn own_part_over(&self) -> bool {
        self.lanes_running == 0
            && self.source.as_ref().is_none_or(SourceSide::is_over)
            && self.sink.as_ref().is_none_or(SinkSide::is_over)
    }

    fn is_over(&self) -> bool {
        match self.drives() {
            true => {
                let heard = self.peer.is_none() || self.done.peer_report.is_some();
                (heard || (self.peer_is_gone && self.knows_all())) && self.own_part_over()
            }
            // Only then is the journal of no more use: the driver knows that all is done.
            false => self.reported && (self.done.peer_report.is_some() || self.peer_is_gone),
        }
    }

    /// The host that was started tells what it did when its part is over.
    fn report(&mut self) -> Result<(), Fault> {
        if self.reported || !self.own_part_over() {
            return Ok(());
        }
        self.reported = true;
        self.tell_paths(When::AtEnd)?;
        if self.settings.dry_run {
            self.done.report.free_bytes = self.sink.as_ref().and_then(SinkSide::free_bytes);
        }
        let faults = self.sink.as_mut().map(SinkSide::close).unwrap_or_default();
        for fault in faults {
            self.warn(fault.text)?;
        }
        self.fill_report();
        let report = Box::new(self.done.report.clone());
        match &mut self.peer {
            Some(peer) if !peer.drives => say(peer, &Message::Report(report)),
            _ => Ok(()),
        }
    }

    fn fill_report(&mut self) {
        self.look_at_sockets();
        let usage = system::usage();
        let report = &mut self.done.report;
        report.tally = self.tally;
        report.cpu_user = usage.user - self.usage.user;
        report.cpu_system = usage.system - self.usage.system;
        report.peak_memory_bytes = usage.peak_memory_bytes;
        report.window_seen_bytes = self.window_seen_bytes;
        report.pace_bytes_per_s = self.wires.pace_bytes_per_s();
    }

    fn done(mut self) -> Result<Done, Fault> {
        self.fill_report();
        self.close_wires();
        let heard = self.done.peer_report.is_some();
        if let Some(peer) = self.peer.as_mut().filter(|peer| peer.drives && heard) {
            // The last word: whoever was started knows that it is known what it did.
            let _ = peer.line.send(&Message::Report(Box::new(self.done.report.clone())));
        }
        let known = heard || self.peer.as_ref().is_none_or(|peer| peer.drives);
        if let Some((finisher, thread)) = self.finisher.take() {
            if let Some(sink) = &mut self.sink {
                let ending = if known { sink.ending() } else { Ending::Short };
                let _ = finisher.send(Work::Close(ending));
            }
            drop(finisher);
            if thread.join().is_err() {
                return Err(Fault::new(Class::Local, "the finisher panicked: please report this"));
            }
        }
        for lane in self.lanes.drain(..) {
            if lane.join().is_err() {
                return Err(Fault::new(Class::Local, "a lane panicked: please report this"));
            }
        }
        Ok(self.done)
    }

    /// Ends everything because of a fault, and gives back the one that people should hear of.
    fn stop(mut self, fault: Fault) -> Fault {
        // A cut stream is often only the echo of what the peer is about to say.
        let echo = fault.class == Class::Unreachable;
        let fault = if echo { self.listen_for_cause(fault) } else { fault };
        // Ctrl-C reaches every process of a terminal: ours may hear of the far side's end first.
        let stopped = echo && self.watch.stopping();
        let fault = if stopped { Fault::interrupted() } else { fault };
        self.brake.pull(fault.clone());
        if let Some(peer) = &mut self.peer {
            let _ = peer.line.send(&Message::Stop(fault.clone()));
        }
        wait_for(|| self.lanes.iter().all(JoinHandle::is_finished));
        if let (Some((finisher, thread)), Some(sink)) = (self.finisher.take(), &self.sink) {
            sink.restore_modes();
            let advances = sink.objects.take_advances();
            let Unfinished { told, untold } = sink.objects.unfinished();
            if let Some(volume) = sink.target().volume() {
                let complete = self.complete.iter().flat_map(Receiver::try_iter);
                let small = complete.filter(|object| object.wanted.file.is_none());
                let names = small.map(|object| object.wanted.temporary).chain(untold);
                names.for_each(|temporary| drop(volume.remove(&temporary)));
            }
            let _ = finisher.try_send(Work::Stop { advances, left: told });
            drop(finisher);
            wait_for(|| thread.is_finished());
        }
        fault
    }

    fn listen_for_cause(&mut self, echo: Fault) -> Fault {
        for _ in 0..30 {
            match self.events.recv_timeout(BEAT) {
                Ok(Event::Heard(Message::Stop(fault))) => return fault,
                Ok(Event::LaneOver(_, Over { fault: Some(fault), .. }))
                    if fault.class != Class::Unreachable =>
                {
                    return fault;
                }
                // What was wrong with its words was heard before a write to it failed.
                Ok(Event::Closed(Some(fault))) if fault.class != Class::Unreachable => {
                    return fault;
                }
                Ok(Event::Closed(_)) => break,
                Ok(_) | Err(_) => {}
            }
            if self.peer.is_none() {
                break;
            }
        }
        echo
    }
}

/// Waits for an end that is near, but not for ever: a sync can take minutes.
fn wait_for(ended: impl Fn() -> bool) {
    for _ in 0..40 {
        if ended() {
            return;
        }
        std::thread::sleep(BEAT);
    }
}

fn say(peer: &mut Peer, message: &Message) -> Result<(), Fault> {
    peer.session.say(clock::now(), message);
    peer.line.send(message)
}

/// It missed an answer on a stream that is open here; another login begins anew.
pub fn open_here_only() -> Fault {
    let text = "the other side could not open its data streams, one of which is open here";
    Fault::new(Class::Unreachable, text)
}

fn start_walk(
    sources: Sources,
    settings: &Settings,
    events: &Sender<Event>,
    brake: &Arc<Brake>,
) -> Receiver<Sighting> {
    let (found, walked) = sync_channel(CHUNKS_AHEAD);
    let (settings, events, brake) = (settings.clone(), events.clone(), brake.clone());
    spawn("datapump-walk", move || {
        sources.walk(&settings, &mut |sighting| {
            let going = found.send(sighting).is_ok() && !brake.is_pulled();
            let _ = events.send(Event::Walked);
            going
        });
        drop(found);
        let _ = events.send(Event::Walked);
    });
    walked
}

fn start_lane(stream: Option<u32>, lane: Lane, events: Sender<Event>) -> JoinHandle<()> {
    spawn("datapump-lane", move || {
        let run = std::panic::AssertUnwindSafe(|| lane.run());
        let over = std::panic::catch_unwind(run).unwrap_or_else(|_| {
            let text = "a lane panicked (its message is above): please report this";
            Over { fault: Some(Fault::new(Class::Local, text)), ..Over::default() }
        });
        let _ = events.send(Event::LaneOver(stream, over));
    })
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    std::thread::Builder::new().name(name.into()).spawn(work).expect("the system gives a thread")
}
