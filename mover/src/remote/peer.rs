//! The far side: started over the control connection, it ends with it.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::control::{Carrier as CarrierSlot, ControlLine, Noise, carry, start_reader};
use super::streams::{self, Credentials, carried, random};
use crate::io::medium::{self, TransferEnd};
use crate::io::tcp::Tuning;
use crate::io::{clock, system, tcp, window};
use crate::pump::lane::assembly::{Stream, pipe_window_bytes};
use crate::pump::run::{Line, Part, Peer, run};
use crate::pump::sink::Target;
use crate::pump::sink::expected::Expected;
use crate::pump::sink::resume::{ResumeCallbacks, ResumeState};
use crate::pump::source::names::Names;
use crate::pump::source::walk::Sources;
use crate::pump::transfer::{Event, open_here_only};
use crate::pump::watch::Watch;
use crate::wire::message::{Message, Open, Opened, Role};
use crate::wire::session::Session;
use crate::work::seal::Secret;
use crate::work::seal::handshake::Identity;
use base::cpus::Cpus;
use base::fault::{Class, Fault};
use base::job::{Carrier, Location};
use base::settings::{Cut, Settings};
use base::tally::About;
use base::units::{Nanos, Tick};

/// The name and version in the hello of either side.
pub const PROGRAM: &str = concat!("datapump ", env!("CARGO_PKG_VERSION"));

/// `datapump peer`, bound to these CPUs; returns the exit code. `model` is the cost model of this
/// host, as JSON, where there is one.
pub fn main(cpus: Option<&Cpus>, model: String) -> u8 {
    // Before any other thread is started.
    let pinned = cpus.map_or(Ok(()), system::pin);
    let pinned = pinned.map_err(|why| Fault::usage(format!("--remote-cpus: {why}")));
    let duplicated = io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .and_then(|input| Ok((input, io::stdout().as_fd().try_clone_to_owned()?)));
    let Ok((input, output)) = duplicated else { return Class::Local.exit_code() };
    let line = ControlLine::new(File::from(output));
    let code = match serve(File::from(input), line.clone(), Host { pinned, model }) {
        Ok(()) => 0,
        Err(fault) => {
            let _ = line.clone().send(&Message::Stop(fault.clone()));
            fault.class.exit_code()
        }
    };
    line.close_within(LEAVE_WITHIN);
    code
}

/// What the far side knows of its host.
struct Host {
    /// Whether it could be bound to the CPUs that were asked for.
    pinned: Result<(), Fault>,
    model: String,
}

fn serve(input: File, mut line: ControlLine, host: Host) -> Result<(), Fault> {
    let (events_in, events) = channel();
    let carried_data = CarrierSlot::default();
    line.send_mark()?;
    let mut session = Session::follower(PROGRAM, clock::now());
    line.send(&session.hello())?;
    start_reader(input, Noise::None, events_in.clone(), carried_data.clone(), leave_soon);
    let open = await_open(&mut session, &mut Hearing::new(&events, OPENS_WITHIN))?;
    host.pinned?;
    // Until the loop runs, which sends and expects pings itself.
    line.set_heartbeat(Some(heartbeat(open.settings.stall)));
    tcp::check_congestion(open.settings.congestion.as_deref())?;
    let prepared = prepare(&open, &line, host.model)?;
    let mut settings = open.settings.cut_as(prepared.resume_state.cut);
    let tuning = streams::tuning(&settings, open.role);
    if let Some(text) = tuning.window.and_then(window::shortfall) {
        line.send(&Message::Warning { text })?;
    }
    let listener = listen(open.ports, &tuning)?;
    let port = listener.local_addr().map_err(|error| Fault::system("listen", &error))?.port();
    let identity = Identity::ephemeral()?;
    let opened = prepared.opened(&settings, port, &identity);
    let credentials = Arc::new(credentials(&open, identity));
    streams::start_accepting(listener, tuning, credentials, events_in.clone())?;
    let opened = Message::Opened(opened);
    session.say(clock::now(), &opened);
    line.send(&opened)?;
    let mut hearing = Hearing::new(&events, settings.stall);
    let Joined { streams, mut early, carrier } =
        await_streams(&mut session, &mut hearing, &line, &carried_data)?;
    // A far source is told the window of the near sink; a far sink knows its own.
    let window_bytes = prepared.window_bytes(&settings).max(open.window_bytes);
    let mut sources = prepared.sources;
    if sources.is_some() {
        let cut = await_cut(&mut session, &mut hearing, &events_in, &mut early)?;
        settings = settings.cut_as(cut);
    }
    if open.listed {
        let names = Arc::new(await_names(&mut session, &mut hearing, &events_in, &mut early)?);
        sources = sources.map(|sources| sources.list(names, settings.recursive));
    }
    let source = sources.map(|sources| (open.locations[0].clone(), sources));
    line.set_heartbeat(None);
    let part = Part {
        window_bytes: (window_bytes > 0).then_some(window_bytes),
        rename: None,
        carrier,
        about: prepared.about,
        settings,
        source,
        sink: prepared.target,
        streams,
        peer: Some(Peer {
            session,
            line: Box::new(line.clone()),
            pulse: carried_data.pulse.clone(),
            drives: false,
            dial: None,
            host: None,
        }),
        resume_state: prepared.resume_state,
        expected: Expected::Anything,
        watch: prepared.watch,
        events: (events_in, events),
        early,
    };
    run(part)?;
    Ok(())
}

fn credentials(open: &Open, identity: Identity) -> Credentials {
    Credentials {
        role: open.role,
        seal: open.settings.seal,
        identity,
        peer: open.fingerprint,
        secret: Secret::new(open.secret),
        agreed: streams::agreed(&Message::Open(Box::new(open.clone()))),
    }
}

fn listen(ports: Option<(u16, u16)>, tuning: &Tuning) -> Result<TcpListener, Fault> {
    tcp::listen(ports, tuning).map_err(|error| {
        let range =
            ports.map_or("a port".to_string(), |(low, high)| format!("a port in {low}-{high}"));
        Fault::system(&format!("listen on {range}"), &error)
    })
}

/// What the far side looked at before it answered.
struct Prepared {
    sources: Option<Sources>,
    target: Option<Target>,
    resume_state: ResumeState,
    watch: Arc<Watch>,
    about: About,
}

impl Prepared {
    fn opened(&self, settings: &Settings, port: u16, identity: &Identity) -> Opened {
        Opened {
            fingerprint: identity.fingerprint,
            port,
            addresses: own_addresses(),
            origin: self.sources.as_ref().map(|sources| sources.origin),
            window_bytes: self.window_bytes(settings),
            rename: self.target.as_ref().and_then(Target::rename),
            cut: self.resume_state.cut,
        }
    }

    fn window_bytes(&self, settings: &Settings) -> u64 {
        match self.target {
            Some(Target::Pipe) => pipe_window_bytes(settings),
            _ => 0,
        }
    }
}

fn prepare(open: &Open, line: &ControlLine, model: String) -> Result<Prepared, Fault> {
    let is_made = |location: &Location| !matches!(location, Location::Path(_));
    if open.locations.len() > 1 && open.locations.iter().any(is_made) {
        return Err(Fault::peer("the peer asked for generated data among other sources"));
    }
    let end = if open.role == Role::Source { TransferEnd::Source } else { TransferEnd::Target };
    let about = medium::about(&open.locations, end, model);
    let (notices, _) = channel(); // the driver tells the user
    let watch = Arc::new(Watch::new(notices));
    let spare = tag()?;
    match (open.role, open.origin) {
        (Role::Source, _) => {
            let sources = match open.listed {
                true => Sources::look_below(&open.locations)?,
                false => Sources::look(&open.locations, open.settings.recursive)?,
            };
            let sources = sources.choose(&open.settings)?;
            let resume_state = ResumeState::none(spare, &open.settings);
            Ok(Prepared { sources: Some(sources), target: None, resume_state, watch, about })
        }
        (Role::Sink, Some(origin)) => {
            let target = Target::find(&open.locations[0], origin, &open.settings)?;
            let warn = |text| drop(line.clone().send(&Message::Warning { text }));
            let stopping = || watch.stopping();
            let callbacks = ResumeCallbacks { warn: &warn, stopping: &stopping };
            let resume_state =
                ResumeState::open(&target, open.transfer, &open.settings, spare, &callbacks)?;
            Ok(Prepared { sources: None, target: Some(target), resume_state, watch, about })
        }
        (Role::Sink, None) => Err(Fault::peer("a sink that is not told of its source")),
    }
}

fn await_open(session: &mut Session, hearing: &mut Hearing<'_>) -> Result<Open, Fault> {
    loop {
        match hearing.next()? {
            Event::Heard(message) => {
                session.hear(clock::now(), &message)?;
                match message {
                    Message::Open(open) => return Ok(*open),
                    Message::Stop(fault) => return Err(fault),
                    _ => {}
                }
            }
            Event::Closed(fault) => return Err(fault.unwrap_or_else(gone)),
            _ => {}
        }
    }
}

/// Receives messages before the loop runs; a near side that is silent for `stall` is gone.
struct Hearing<'a> {
    events: &'a Receiver<Event>,
    stall: Nanos,
    heard: Tick,
}

impl Hearing<'_> {
    fn new(events: &Receiver<Event>, stall: Nanos) -> Hearing<'_> {
        Hearing { events, stall, heard: clock::now() }
    }

    fn next(&mut self) -> Result<Event, Fault> {
        let left = self.stall.0.saturating_sub(clock::now().since(self.heard).0);
        match self.events.recv_timeout(Duration::from_nanos(left)) {
            Ok(event) => {
                if matches!(event, Event::Heard(_)) {
                    self.heard = clock::now();
                }
                Ok(event)
            }
            Err(RecvTimeoutError::Timeout) => Err(silent("the near side", self.stall)),
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }
}

/// How often a busy side sends a ping before its loop runs.
pub(crate) fn heartbeat(stall: Nanos) -> Duration {
    Duration::from_nanos(stall.0 / 4)
}

/// The fault of a peer from which nothing was heard.
pub fn silent(who: &str, stall: Nanos) -> Fault {
    Fault::new(Class::Unreachable, format!("nothing was heard from {who} for {stall}"))
}

/// Data streams, and the messages that came before they had joined.
struct Joined {
    streams: Vec<Stream>,
    early: Vec<Message>,
    carrier: Carrier,
}

/// Waits until a first stream has joined, or the driver cannot reach the port. The others join
/// while the transfer runs.
fn await_streams(
    session: &mut Session,
    hearing: &mut Hearing<'_>,
    line: &ControlLine,
    carried_data: &CarrierSlot,
) -> Result<Joined, Fault> {
    // Early messages are kept with their tickets: the reader waits when there are too many.
    let (mut early, mut tickets) = (Vec::new(), Vec::new());
    loop {
        match hearing.next()? {
            Event::Dealt(ticket) => tickets.push(ticket),
            Event::Joined(stream) => {
                return Ok(Joined { streams: vec![stream], early, carrier: Carrier::Tcp });
            }
            Event::Heard(message) => {
                session.hear(clock::now(), &message)?;
                match message {
                    Message::Carry => {
                        let streams = vec![carried(carry(line, carried_data)?)];
                        return Ok(Joined { streams, early, carrier: Carrier::Control });
                    }
                    Message::Stop(fault) => return Err(fault),
                    Message::Ping => {}
                    // Its last stream may still be proving itself here while the driver goes on.
                    message => early.push(message),
                }
            }
            Event::Closed(fault) => return Err(fault.unwrap_or_else(gone)),
            _ => {}
        }
    }
}

/// How the driver's sink needs objects cut.
fn await_cut(
    session: &mut Session,
    hearing: &mut Hearing<'_>,
    events_in: &Sender<Event>,
    early: &mut Vec<Message>,
) -> Result<Cut, Fault> {
    let said = early.iter().position(|message| matches!(message, Message::Cut(_)));
    if let Some(Message::Cut(cut)) = said.map(|at| early.remove(at)) {
        return Ok(cut);
    }
    let mut joined = Vec::new();
    let cut = loop {
        match hearing.next()? {
            Event::Heard(message) => {
                session.hear(clock::now(), &message)?;
                match message {
                    Message::Cut(cut) => break cut,
                    Message::Stop(fault) => return Err(fault),
                    Message::Ping => {}
                    other => {
                        let name = other.name();
                        return Err(Fault::peer(format!("the peer sent {name} before its Cut")));
                    }
                }
            }
            Event::Closed(fault) => return Err(fault.unwrap_or_else(gone)),
            event => joined.push(event),
        }
    };
    // Streams that have joined in the meantime are for the transfer.
    joined.into_iter().for_each(|event| drop(events_in.send(event)));
    Ok(cut)
}

/// All the names that the driver wants: the walk may not wait for messages.
fn await_names(
    session: &mut Session,
    hearing: &mut Hearing<'_>,
    events_in: &Sender<Event>,
    early: &mut Vec<Message>,
) -> Result<Names, Fault> {
    let mut joined = Vec::new();
    let mut names = Names::new()?;
    let mut take = |message| match message {
        Message::Names { paths, last } => {
            paths.iter().try_for_each(|path| names.push(path))?;
            Ok((last, None))
        }
        Message::Stop(fault) => Err(fault),
        Message::Ping => Ok((false, None)),
        other => Ok((false, Some(other))),
    };
    let mut others = Vec::new();
    let mut complete = false;
    for message in early.drain(..) {
        let (last, other) = take(message)?;
        complete |= last;
        others.extend(other);
    }
    while !complete {
        match hearing.next()? {
            Event::Heard(message) => {
                session.hear(clock::now(), &message)?;
                let (last, other) = take(message)?;
                complete = last;
                match other {
                    None => {}
                    Some(Message::Carry) => return Err(open_here_only()),
                    Some(other) => {
                        let text = "before the last name of its list";
                        return Err(Fault::peer(format!("the peer sent {} {text}", other.name())));
                    }
                }
            }
            Event::Closed(fault) => return Err(fault.unwrap_or_else(gone)),
            Event::Dealt(_) => {}
            event => joined.push(event),
        }
    }
    // Streams that have joined in the meantime are for the transfer.
    joined.into_iter().for_each(|event| drop(events_in.send(event)));
    *early = others;
    names.complete()?;
    Ok(names)
}

/// The address at which the driver reached us: the one that sshd took the connection on.
fn own_addresses() -> Vec<String> {
    let from_ssh = std::env::var("SSH_CONNECTION").ok();
    let server = from_ssh.as_deref().and_then(|text| text.split(' ').nth(2));
    server.map(str::to_string).into_iter().collect()
}

/// Part of the temporary names of one transfer.
pub fn tag() -> Result<String, Fault> {
    Ok(format!("{:08x}", u32::from_le_bytes(random()?)))
}

/// The control connection has ended: so does this process, even where a system call blocks it.
fn leave_soon() {
    std::thread::sleep(LEAVE_WITHIN);
    std::process::exit(Class::Unreachable.exit_code().into());
}

/// A driver sends its request right after its hello: it has logged in already.
const OPENS_WITHIN: Nanos = Nanos(30_000_000_000);
/// How long a side whose peer is gone may take to complete its journal.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

fn gone() -> Fault {
    Fault::new(Class::Unreachable, "the near side went away")
}
