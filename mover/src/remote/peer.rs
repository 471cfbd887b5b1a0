//! The far side: started over the control connection, it ends with it.

use std::fs::File;
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::answering;
use super::control::{Carrier as CarrierSlot, ControlLine, Noise, start_reader};
use super::home;
use super::restriction::{PeerOptions, Restriction};
use super::streams::{self, Credentials, random};
use crate::io::medium::{self, TransferEnd};
use crate::io::reach::Reach;
use crate::io::tcp::Tuning;
use crate::io::{clock, system, tcp, window};
use crate::pump::lane::assembly::pipe_window_bytes;
use crate::pump::run::{Line, Part, Peer, Walking, run, start_walk};
use crate::pump::sink::Target;
use crate::pump::sink::expected::Expected;
use crate::pump::sink::resume::{ResumeCallbacks, ResumeState};
use crate::pump::source::first_offer;
use crate::pump::source::names::Names;
use crate::pump::source::walk::{Sources, WalkEvent};
use crate::pump::transfer::Event;
use crate::pump::watch::Watch;
use crate::wire::message::{Ask, Message, Open, Opened, Role};
use crate::wire::session::Session;
use crate::work::seal::Secret;
use crate::work::seal::handshake::Identity;
use base::escape;
use base::fault::{Class, Fault};
use base::job::{Carrier, Location};
use base::settings::{Cut, Settings};
use base::tally::About;
use base::units::{Nanos, Tick};

/// The name and version in the hello of either side.
pub const PROGRAM: &str = concat!("datapump ", env!("CARGO_PKG_VERSION"));

/// `datapump peer`, with these options; returns the exit code. `model` gives the cost model of this
/// host, as JSON, where there is one: only a client that is not limited hears it.
pub fn main(options: &PeerOptions, model: impl FnOnce() -> String) -> u8 {
    let restriction = match options.restriction() {
        Ok(restriction) => restriction,
        Err(_) => return Class::Usage.exit_code(), // its caller has checked it
    };
    let asked_cpus = match restriction.as_ref().map(Restriction::asked_cpus).transpose() {
        Ok(cpus) => cpus.flatten(),
        Err(fault) => {
            // It is no datapump that listens.
            let text = escape::line(&format!("datapump: {fault}")) + "\n";
            let _ = io::stderr().write_all(text.as_bytes());
            return fault.class.exit_code();
        }
    };
    // Before any other thread is started.
    let pinned = options.cpus.as_ref().or(asked_cpus.as_ref()).map_or(Ok(()), system::pin);
    let pinned = pinned.map_err(|why| Fault::usage(format!("--remote-cpus: {why}")));
    let duplicated = io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .and_then(|input| Ok((input, io::stdout().as_fd().try_clone_to_owned()?)));
    let Ok((input, output)) = duplicated else { return Class::Local.exit_code() };
    let carrier = CarrierSlot::default();
    let line = ControlLine::new(File::from(output), carrier.clone());
    let host = Host { pinned, restriction };
    let code = match serve(File::from(input), line.clone(), carrier, host, model) {
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
    restriction: Option<Restriction>,
}

impl Host {
    /// The model of its costs, which a client that is limited does not hear.
    fn told(&self, model: impl FnOnce() -> String) -> String {
        if self.restriction.is_some() { String::new() } else { model() }
    }

    /// Where the paths of this request may lead, if it is allowed.
    fn reach(&self, open: &Open) -> Result<Reach, Fault> {
        let Some(restriction) = &self.restriction else { return Ok(Reach::Host) };
        restriction.check(open)?;
        restriction.reach()
    }
}

fn serve(
    input: File,
    mut line: ControlLine,
    carrier: CarrierSlot,
    host: Host,
    model: impl FnOnce() -> String,
) -> Result<(), Fault> {
    let (events_in, events) = channel();
    line.send_mark()?;
    let mut negotiation = Negotiation::new(&line, &events);
    line.send(&negotiation.session.hello())?;
    start_reader(input, Noise::Script, events_in.clone(), carrier.clone(), leave_soon);
    let model = host.told(model); // while the near side answers the hello
    let open = match negotiation.await_request()? {
        Request::Open(open) => *open,
        Request::Ask(ask) => {
            line.set_heartbeat(Some(heartbeat(OPENS_WITHIN)));
            let restriction = host.restriction.as_ref();
            return answering::answer(ask, restriction, &line, &mut || negotiation.hear());
        }
    };
    let reach = host.reach(&open)?;
    host.pinned?;
    // Until the loop runs, which sends and expects pings itself.
    line.set_heartbeat(Some(heartbeat(open.settings.stall)));
    tcp::check_congestion(open.settings.congestion.as_deref())?;
    let prepared = prepare(&open, &line, model, &reach)?;
    let mut settings = open.settings.cut_as(prepared.resume_state.cut);
    let tuning = streams::tuning(&settings, open.role);
    if let Some(text) = tuning.window.and_then(window::shortfall) {
        line.send(&Message::Warning { text })?;
    }
    let (listener, port) = listen(open.ports, &tuning)?;
    let identity = Identity::ephemeral()?;
    let opened = prepared.opened(&settings, port, &identity);
    let credentials = Arc::new(credentials(&open, identity));
    streams::start_accepting(listener, tuning, credentials, events_in.clone())?;
    negotiation.say(&Message::Opened(opened))?;
    // A far source is told the window of the near sink; a far sink knows its own.
    let window_bytes = prepared.window_bytes(&settings).max(open.window_bytes);
    let source = match prepared.sources {
        Some(sources) => {
            let (walking, cut) = negotiation.begin_source(sources, &open, &events_in)?;
            settings = settings.cut_as(cut);
            Some((open.locations[0].clone(), walking))
        }
        None => None,
    };
    line.set_heartbeat(None);
    let Negotiation { session, early, .. } = negotiation;
    let part = Part {
        window_bytes: (window_bytes > 0).then_some(window_bytes),
        rename: None,
        carrier: Carrier::Tcp,
        about: prepared.about,
        settings,
        source,
        sink: prepared.target,
        streams: Vec::new(),
        peer: Some(driver(session, &line, &carrier)),
        resume_state: prepared.resume_state,
        expected: Expected::Anything,
        watch: prepared.watch,
        events: (events_in, events),
        early,
    };
    run(part)?;
    Ok(())
}

/// The side that started this one.
fn driver(session: Session, line: &ControlLine, carrier: &CarrierSlot) -> Peer {
    Peer {
        session,
        line: Box::new(line.clone()),
        pulse: carrier.pulse.clone(),
        drives: false,
        may_carry: false,
        dial: None,
        host: None,
    }
}

fn credentials(open: &Open, identity: Identity) -> Credentials {
    Credentials {
        role: open.role,
        seal: open.settings.seal,
        identity,
        peer: open.fingerprint,
        secret: Secret::new(open.secret.0),
        agreed: streams::agreed(&Message::Open(Box::new(open.clone()))),
    }
}

fn listen(ports: Option<(u16, u16)>, tuning: &Tuning) -> Result<(TcpListener, u16), Fault> {
    let listener = tcp::listen(ports, tuning).map_err(|error| {
        let range =
            ports.map_or("a port".to_string(), |(low, high)| format!("a port in {low}-{high}"));
        Fault::system(&format!("listen on {range}"), &error)
    })?;
    let port = listener.local_addr().map_err(|error| Fault::system("listen", &error))?.port();
    Ok((listener, port))
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

fn prepare(
    open: &Open,
    line: &ControlLine,
    model: String,
    reach: &Reach,
) -> Result<Prepared, Fault> {
    let is_made = |location: &Location| !matches!(location, Location::Path(_));
    if open.locations.len() > 1 && open.locations.iter().any(is_made) {
        return Err(Fault::peer("the peer asked for generated data among other sources"));
    }
    let end = if open.role == Role::Source { TransferEnd::Source } else { TransferEnd::Target };
    let locations = match reach {
        Reach::Host | Reach::Stores(_) => home::expanded(&open.locations)?,
        Reach::Beneath(_) => home::expanded_beneath(&open.locations)?,
    };
    let about = medium::about(&locations, end, model, reach);
    let (notices, _) = channel(); // the driver tells the user
    let watch = Arc::new(Watch::new(notices));
    let spare = tag()?;
    match (open.role, open.origin) {
        (Role::Source, _) => {
            let sources = match open.listed {
                true => Sources::look_below(&locations, reach)?,
                false => Sources::look_for(&locations, open.settings.recursive, reach)?,
            };
            let sources = sources.choose(&open.settings)?;
            let resume_state = ResumeState::none(spare, &open.settings);
            Ok(Prepared { sources: Some(sources), target: None, resume_state, watch, about })
        }
        (Role::Sink, Some(origin)) => {
            let target = Target::find(&locations[0], origin, &open.settings, reach)?;
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

/// What the driver wants.
enum Request {
    Open(Box<Open>),
    Ask(Ask),
}

/// The conversation before the loop runs. A near side that is silent for `stall` is gone.
struct Negotiation<'a> {
    session: Session,
    line: ControlLine,
    events: &'a Receiver<Event>,
    stall: Nanos,
    heard: Tick,
    /// What the loop has to handle first.
    early: Vec<Event>,
    /// What the walk finds first may be offered at once.
    may_offer: bool,
}

impl<'a> Negotiation<'a> {
    fn new(line: &ControlLine, events: &'a Receiver<Event>) -> Negotiation<'a> {
        let now = clock::now();
        Negotiation {
            session: Session::follower(PROGRAM, now),
            line: line.clone(),
            events,
            stall: OPENS_WITHIN,
            heard: now,
            early: Vec::new(),
            may_offer: false,
        }
    }

    fn say(&mut self, message: &Message) -> Result<(), Fault> {
        self.session.say(clock::now(), message);
        self.line.send(message)
    }

    /// The next message. Other events are kept, and what the walk finds first is offered.
    fn hear(&mut self) -> Result<Message, Fault> {
        loop {
            let left = self.stall.0.saturating_sub(clock::now().since(self.heard).0);
            match self.events.recv_timeout(Duration::from_nanos(left)) {
                Ok(Event::Heard(message)) => {
                    self.heard = clock::now();
                    self.session.hear(self.heard, &message)?;
                    match message {
                        Message::Stop(fault) => return Err(fault),
                        Message::Ping => {}
                        message => return Ok(message),
                    }
                }
                Ok(Event::Closed(fault)) => return Err(fault.unwrap_or_else(gone)),
                Ok(Event::Found(WalkEvent::Chunk(found))) if self.may_offer => {
                    self.may_offer = false;
                    self.say(&first_offer(&found))?;
                    self.early.push(Event::OfferedBefore(found));
                }
                Ok(event) => self.early.push(event),
                Err(RecvTimeoutError::Timeout) => return Err(silent("the near side", self.stall)),
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
            }
        }
    }

    fn await_request(&mut self) -> Result<Request, Fault> {
        loop {
            match self.hear()? {
                Message::Open(open) => {
                    self.stall = open.settings.stall;
                    return Ok(Request::Open(open));
                }
                Message::Ask(ask) => return Ok(Request::Ask(ask)),
                _ => {}
            }
        }
    }

    /// What a far source does before the loop runs: it begins to walk, offers what that finds
    /// first, and hears how the driver's sink needs objects cut. Only a list of names has to come
    /// before the walk.
    fn begin_source(
        &mut self,
        sources: Sources,
        open: &Open,
        events_in: &Sender<Event>,
    ) -> Result<(Walking, Cut), Fault> {
        let start = |sources| start_walk(sources, &open.settings, events_in.clone());
        if open.listed {
            let cut = self.await_cut()?;
            let names = Arc::new(self.await_names()?);
            return Ok((start(sources.list(names, open.settings.recursive)), cut));
        }
        self.may_offer = true;
        let walking = start(sources);
        let cut = self.await_cut()?;
        Ok((walking, cut))
    }

    /// How the driver's sink needs objects cut: it says so before all else.
    fn await_cut(&mut self) -> Result<Cut, Fault> {
        match self.hear()? {
            Message::Cut(cut) => Ok(cut),
            other => Err(too_early(&other, "its Cut")),
        }
    }

    /// All the names that the driver wants: the walk may not wait for messages.
    fn await_names(&mut self) -> Result<Names, Fault> {
        let mut names = Names::new()?;
        loop {
            match self.hear()? {
                Message::Names { paths, last } => {
                    paths.iter().try_for_each(|path| names.push(path))?;
                    if last {
                        names.complete()?;
                        return Ok(names);
                    }
                }
                carry @ Message::Carry(_) => self.early.push(Event::HeardBefore(carry)),
                other => return Err(too_early(&other, "the last name of its list")),
            }
        }
    }
}

fn too_early(message: &Message, before: &str) -> Fault {
    Fault::peer(format!("the peer sent {} before {before}", message.name()))
}

/// How often a busy side sends a ping before its loop runs.
pub(crate) fn heartbeat(stall: Nanos) -> Duration {
    Duration::from_nanos(stall.0 / 4)
}

/// The fault of a peer from which nothing was heard.
pub fn silent(who: &str, stall: Nanos) -> Fault {
    Fault::new(Class::Unreachable, format!("nothing was heard from {who} for {stall}"))
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
