//! Runs one host's part of a transfer: lanes on threads, the conversation in one loop.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::assembly::{Assembly, Ends, Stream, assemble};
use super::brake::Brake;
use super::finisher::{EPOCH_OBJECTS_MAX, Finished, Finisher};
use super::lane::Lane;
use super::objects::{Complete, Objects};
use super::plan::Plan;
use super::sink::{SinkSide, Target};
use super::source::SourceSide;
use super::walk::{Sighting, Sources};
use super::watch::Watch;
use crate::base::fault::{Class, Fault};
use crate::base::job::{Carrier, Notice, Place};
use crate::base::label::Sum;
use crate::base::settings::Settings;
use crate::base::tally::{SideReport, Tally};
use crate::io::volume::Handle;
use crate::io::{clock, system, tcp};
use crate::wire::manifest::EntryKind;
use crate::wire::message::Message;
use crate::wire::session::Session;
use crate::work::digest::to_hex;

/// How long the loop sleeps when nothing happens; also how late an acknowledgement may be.
const BEAT: Duration = Duration::from_millis(10);
/// Chunks that the walk may be ahead of the offers.
const CHUNKS_AHEAD: usize = 4;

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    Heard(Message),
    /// The control connection ended; with a fault when it broke.
    Closed(Option<Fault>),
    LaneOver(Result<Tally, Fault>),
    Finished(Vec<Finished>),
    /// The walk has something; it is taken when there is credit for it.
    Walked,
    /// A data stream has proved that it belongs here.
    Joined(u16, Stream),
}

/// The control connection to the peer.
pub trait Line: Send + fmt::Debug {
    fn send(&mut self, message: &Message) -> Result<(), Fault>;
}

/// The peer, where there is one.
#[derive(Debug)]
pub struct Peer {
    pub session: Session,
    pub line: Box<dyn Line>,
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
    /// Part of every temporary name.
    pub tag: String,
    pub watch: Arc<Watch>,
    pub events: (Sender<Event>, Receiver<Event>),
    /// The name that a single object gets at a far sink.
    pub rename: Option<Vec<u8>>,
    pub carrier: Carrier,
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
    pub worst: Option<Class>,
    pub bytes: u64,
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
    finisher: Option<SyncSenderThread>,
    complete: Option<Receiver<Complete>>,
    walked: Option<Receiver<Sighting>>,
    held: Option<Sighting>,
    peer: Option<Peer>,
    watch: Arc<Watch>,
    brake: Arc<Brake>,
    events: Receiver<Event>,
    lanes: Vec<JoinHandle<()>>,
    lanes_running: usize,
    tally: Tally,
    sockets: Vec<Handle>,
    window_seen_bytes: u64,
    done: Done,
    reported: bool,
    carrier: Carrier,
    usage: system::Usage,
}

type SyncSenderThread = (SyncSender<Vec<Complete>>, JoinHandle<()>);

impl Running {
    fn start(part: Part) -> Result<Running, Fault> {
        let Part {
            settings, source, sink, streams, peer, window_bytes, tag, watch, events, ..
        } = part;
        let rename = part.rename.or_else(|| sink.as_ref().and_then(Target::rename));
        let usage = system::usage();
        let brake = Arc::new(Brake::default());
        let (complete_in, complete) = channel();
        let slot = settings.request_bytes;
        let plan = source
            .as_ref()
            .map(|_| Arc::new(Plan::new(slot, settings.rate, window_bytes, brake.clone())));
        let objects = sink
            .as_ref()
            .map(|_| Arc::new(Objects::new(slot, settings.digest, watch.clone(), complete_in)));
        let sockets: Vec<Handle> = streams.iter().map(|stream| stream.socket.clone()).collect();
        sockets.iter().for_each(|socket| brake.hold_socket(socket.clone()));
        let assembly = assemble(
            &Ends {
                settings: &settings,
                source: source.as_ref().map(|(place, _)| place).zip(plan.clone()),
                sink: sink.as_ref().zip(objects.clone()),
                source_waits: source.as_ref().is_some_and(|(_, sources)| sources.wait()),
                brake: brake.clone(),
            },
            streams,
        )?;
        let (events_in, events) = events;
        let walked =
            source.map(|(_, sources)| start_walk(sources, events_in.clone(), brake.clone()));
        let finisher = sink.as_ref().map(|target| {
            let finisher = Finisher::new(target.volume().cloned(), settings.fsync);
            start_finisher(finisher, events_in.clone())
        });
        let report = first_report(&assembly, &sockets);
        let start = |lane| start_lane(lane, events_in.clone());
        let lanes: Vec<_> = assembly.lanes.into_iter().map(start).collect();
        let mut source = plan.map(|plan| SourceSide::new(plan, settings.clone(), watch.clone()));
        if let Some(source) = &mut source {
            source.rename(rename);
        }
        let sink = sink.zip(objects).map(|(target, objects)| {
            SinkSide::new(objects, settings.clone(), target, watch.clone(), tag)
        });
        Ok(Running {
            settings,
            complete: sink.as_ref().map(|_| complete),
            source,
            sink,
            finisher,
            walked,
            held: None,
            peer,
            watch,
            brake,
            events,
            lanes_running: lanes.len(),
            lanes,
            tally: Tally::default(),
            sockets,
            window_seen_bytes: 0,
            done: Done { report, ..Done::default() },
            reported: false,
            carrier: part.carrier,
            usage,
        })
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
            // Who has said everything may go.
            Event::Closed(_) if self.done.peer_report.is_some() => Ok(()),
            Event::Closed(fault) => Err(fault.unwrap_or_else(|| {
                Fault::new(Class::Unreachable, "the far side went away: its connection was closed")
            })),
            Event::LaneOver(Ok(tally)) => {
                self.tally.add(&tally);
                self.lanes_running -= 1;
                Ok(())
            }
            Event::LaneOver(Err(fault)) => {
                self.lanes_running -= 1;
                Err(fault)
            }
            Event::Finished(finished) => self.finish(&finished),
            Event::Walked | Event::Joined(..) => Ok(()),
        }
    }

    /// What is due whether or not something happened.
    fn beat(&mut self) -> Result<(), Fault> {
        self.offer()?;
        if let Some(end) = self.source.as_mut().and_then(SourceSide::pipe_end) {
            self.say_to_sink(end)?;
        }
        if let Some(ack) = self.sink.as_mut().and_then(SinkSide::acknowledge) {
            self.say_to_source(ack)?;
        }
        self.feed_finisher();
        self.check_all_came()?;
        if let Some(peer) = &mut self.peer
            && let Some(ping) = peer.session.poll(clock::now(), self.carrier)?
        {
            peer.line.send(&ping)?;
        }
        self.report()
    }

    /// Streams that have ended bring nothing more.
    fn check_all_came(&self) -> Result<(), Fault> {
        let waits = self.sink.as_ref().is_some_and(|sink| sink.objects.is_waiting());
        match waits && self.lanes_running == 0 {
            true => Err(Fault::peer("the source ended its streams before all bytes had come")),
            false => Ok(()),
        }
    }

    /// Offers what the walk has found, as far as there is credit.
    fn offer(&mut self) -> Result<(), Fault> {
        loop {
            let Some(walked) = &self.walked else { return Ok(()) };
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
                    self.failed(path, fault);
                }
                Sighting::Skipped(text) => self.warn(text)?,
            }
        }
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
        let sink = self.sink.as_mut().expect("a message for the sink");
        match message {
            Message::Offer { first, entries } => {
                self.done.directories +=
                    entries.iter().filter(|entry| entry.kind == EntryKind::Directory).count()
                        as u64;
                let paths: Vec<_> =
                    entries.iter().map(|entry| (entry.path.clone(), entry.kind)).collect();
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
                self.failed(path, fault);
                Ok(())
            }
            other => Err(Fault::peer(format!("{other:?} is no message for a sink"))),
        }
    }

    /// A sink that drives tells people itself what it settled at once; otherwise the source does.
    fn note_own(&mut self, first: u64, paths: &[(Vec<u8>, EntryKind)], answer: &Message) {
        if self.source.is_some() {
            return;
        }
        match answer {
            Message::Failed { object, fault } => {
                let (path, _) = &paths[(object - first) as usize];
                self.failed(path.clone(), fault.clone());
            }
            Message::Kept { .. } => self.done.kept += 1,
            Message::Finished { objects } => {
                for (object, sum) in objects {
                    let (path, kind) = &paths[(object - first) as usize];
                    self.finished_well(path.clone(), *kind, 0, *sum);
                }
            }
            _ => {}
        }
    }

    fn tell_source(&mut self, message: Message) -> Result<(), Fault> {
        let source = self.source.as_mut().expect("a message for the source");
        match message {
            Message::Want { wanted, .. } => source.want(&wanted),
            Message::Ack { ranges, bytes } => {
                if self.sink.is_none() {
                    self.watch.gauge.bytes_done.fetch_add(bytes, Relaxed);
                }
                source.acknowledged(&ranges)
            }
            Message::Finished { objects } => {
                for (object, sum) in objects {
                    let source = self.source.as_mut().expect("as above");
                    let settled = source.settle(object)?;
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
            other => Err(Fault::peer(format!("{other:?} is no message for a source"))),
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
                        self.finished_well(
                            object.path.clone(),
                            EntryKind::File,
                            object.bytes,
                            *sum,
                        );
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
        if kind == EntryKind::Directory {
            if self.sink.is_none() {
                self.done.directories += 1;
            }
            return;
        }
        self.done.files += 1;
        self.done.bytes += bytes;
        self.watch.gauge.files_done.fetch_add(1, Relaxed);
        if kind != EntryKind::Link {
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
        self.watch.tell(Notice::FileFailed { path, fault });
    }

    fn feed_finisher(&mut self) {
        let (Some(complete), Some((finisher, _))) = (&self.complete, &self.finisher) else {
            return;
        };
        loop {
            let epoch: Vec<Complete> = complete.try_iter().take(EPOCH_OBJECTS_MAX).collect();
            if epoch.is_empty() || finisher.send(epoch).is_err() {
                return;
            }
        }
    }

    /// The largest window the peer's TCP has shown; there is no history to ask for.
    fn look_at_sockets(&mut self) {
        if self.source.is_some() {
            let seen = self.sockets.iter().map(tcp::peer_window_bytes).max().unwrap_or(0);
            self.window_seen_bytes = self.window_seen_bytes.max(seen);
        }
    }

    fn drives(&self) -> bool {
        self.peer.as_ref().is_none_or(|peer| peer.drives)
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
                heard && self.own_part_over()
            }
            false => self.reported,
        }
    }

    /// The host that was started tells what it did when its part is over.
    fn report(&mut self) -> Result<(), Fault> {
        if self.reported || !self.own_part_over() {
            return Ok(());
        }
        self.reported = true;
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
    }

    fn done(mut self) -> Result<Done, Fault> {
        self.fill_report();
        drop(self.finisher.take());
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
        if let Some((finisher, thread)) = self.finisher.take() {
            drop(finisher);
            wait_for(|| thread.is_finished());
        }
        if let Some(sink) = &self.sink {
            sink.clear_away();
            if let (Some(complete), Some(volume)) = (&self.complete, sink.target().volume()) {
                for object in complete.try_iter() {
                    let _ = volume.remove(&object.wanted.temporary);
                }
            }
        }
        fault
    }

    fn listen_for_cause(&mut self, echo: Fault) -> Fault {
        for _ in 0..30 {
            match self.events.recv_timeout(BEAT) {
                Ok(Event::Heard(Message::Stop(fault))) => return fault,
                Ok(Event::LaneOver(Err(fault))) if fault.class != Class::Unreachable => {
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

/// What is known of a side before it has moved anything.
fn first_report(assembly: &Assembly, sockets: &[Handle]) -> SideReport {
    SideReport {
        engine: assembly.engine.clone(),
        depth: assembly.depth,
        planned_memory_bytes: assembly.planned_memory_bytes,
        congestion: sockets.first().map(tcp::congestion).unwrap_or_default(),
        ..SideReport::default()
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

fn start_walk(sources: Sources, events: Sender<Event>, brake: Arc<Brake>) -> Receiver<Sighting> {
    let (found, walked) = sync_channel(CHUNKS_AHEAD);
    spawn("datapump-walk", move || {
        sources.walk(&mut |sighting| {
            let going = found.send(sighting).is_ok() && !brake.is_pulled();
            let _ = events.send(Event::Walked);
            going
        });
        drop(found);
        let _ = events.send(Event::Walked);
    });
    walked
}

fn start_finisher(finisher: Finisher, events: Sender<Event>) -> SyncSenderThread {
    let (objects, epochs) = sync_channel::<Vec<Complete>>(1024);
    let thread = spawn("datapump-finish", move || {
        while let Ok(mut epoch) = epochs.recv() {
            while epoch.len() < EPOCH_OBJECTS_MAX {
                let Ok(more) = epochs.try_recv() else { break };
                epoch.extend(more);
            }
            let _ = events.send(Event::Finished(finisher.epoch(epoch)));
        }
    });
    (objects, thread)
}

fn start_lane(lane: Lane, events: Sender<Event>) -> JoinHandle<()> {
    spawn("datapump-lane", move || {
        let run = std::panic::AssertUnwindSafe(|| lane.run());
        let over = std::panic::catch_unwind(run).unwrap_or_else(|_| {
            Err(Fault::new(
                Class::Local,
                "a lane panicked (its message is above): please report this",
            ))
        });
        let _ = events.send(Event::LaneOver(over));
    })
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    std::thread::Builder::new().name(name.into()).spawn(work).expect("the system gives a thread")
}
