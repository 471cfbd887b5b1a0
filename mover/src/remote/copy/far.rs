//! The second stage where one end is on another host: the messages before a part of the transfer
//! can be run.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use super::Attempt;
use super::open::{How, Opened, resume_state, window_of};
use crate::io::medium::{self, TransferEnd};
use crate::io::reach::Reach;
use crate::io::{clock, tcp, window};
use crate::pump::lane::assembly::{Stream, pipe_window_bytes};
use crate::pump::run::{Dial, Line, Part, Peer, Walking};
use crate::pump::sink::Target;
use crate::pump::sink::expected::Expected;
use crate::pump::sink::resume::ResumeState;
use crate::pump::source::first_offer;
use crate::pump::source::names::Names;
use crate::pump::source::walk::{WalkEvent, means_contents};
use crate::pump::transfer::Event;
use crate::remote::addresses::Known;
use crate::remote::control::{Carrier as CarrierSlot, ControlLine};
use crate::remote::launch::{Explained, Launch, Launched};
use crate::remote::peer::{PROGRAM, heartbeat, silent, tag};
use crate::remote::streams::{self, Credentials, Dialer, FarPort, random};
use crate::wire::message::{Carries, Message, Open, Opened as FarAnswer, Origin, Role};
use crate::wire::session::Session;
use crate::work::seal::Secret;
use crate::work::seal::handshake::Identity;
use base::fault::{Class, Fault};
use base::job::{Carrier, Job, Location};
use base::secret::SharedSecret;
use base::settings::{Cut, Pace};
use base::tally::About;

/// The driving side of a transfer with a far side.
pub(super) struct Near<'a> {
    pub job: &'a Job,
    pub attempt: &'a Attempt<'a>,
    pub role: Role,
    pub line: ControlLine,
    pub carrier: CarrierSlot,
    pub events_in: Sender<Event>,
}

/// What the two sides have agreed on.
struct Agreed<'a> {
    opened: FarAnswer,
    known: Known<'a>,
    /// The stream that starts the transfer, where that is known already.
    carried: Option<Stream>,
    /// What happened in the meantime.
    early: Vec<Event>,
}

/// How data streams are opened, and how many; and a stream that the control connection carries.
struct Opening {
    /// `None` where none can be.
    dial: Option<Box<dyn Dial>>,
    wanted: u16,
    carried: Option<Stream>,
}

impl Near<'_> {
    /// Negotiates with the far side, opens streams, and prepares this side's part.
    pub(super) fn open(
        &self,
        source: Option<(Origin, Walking)>,
        events: Receiver<Event>,
        launched: &mut Launched,
    ) -> Result<Opened, Fault> {
        let watch = self.attempt.watch;
        let identity = Identity::ephemeral()?;
        let secret: [u8; 32] = random()?;
        let (origin, walking) = source.unzip();
        let open = Message::Open(Box::new(self.request(&identity, secret, origin)));
        let mut session = Session::driver(self.role, PROGRAM, clock::now());
        let agreed = self.converse(&mut session, &open, &events, launched);
        let Agreed { opened, known, carried, early } =
            agreed.map_err(|fault| self.explain(fault, launched))?;
        let login = clock::now().since(self.attempt.started);
        self.attempt.opened.set(Some(login));
        let expected = self.expected(&opened)?;
        let (target, resume_state) = self.target(&opened)?;
        let cut = self.agree(&opened, &resume_state, &mut session)?;
        let mut settings = self.job.settings.cut_as(cut);
        let credentials = Credentials {
            role: self.role,
            seal: self.job.settings.seal,
            identity,
            peer: opened.fingerprint,
            secret: Secret::new(secret),
            agreed: streams::agreed(&open),
        };
        let far_port = self.far_port(known, &opened);
        let Opening { dial, wanted, carried } =
            self.streams(far_port, credentials, carried, &mut session)?;
        settings.streams = wanted;
        let carrier = if dial.is_some() { Carrier::Tcp } else { Carrier::Control };
        if let (Role::Sink, Some(names)) = (self.role, self.attempt.resolved.names.as_ref()) {
            self.tell_names(names, &mut session)?;
        }
        self.line.set_heartbeat(None); // the loop sends pings itself
        let part = Part {
            settings: settings.clone(),
            source: walking.map(|walking| (self.job.sources[0].clone(), walking)),
            window_bytes: match &target {
                Some(target) => window_of(target, &self.job.settings),
                None => (opened.window_bytes > 0).then_some(opened.window_bytes),
            },
            sink: target,
            streams: carried.into_iter().collect(),
            peer: Some(Peer {
                session,
                line: Box::new(self.line.clone()),
                pulse: self.carrier.pulse.clone(),
                drives: true,
                dial,
                may_carry: self.may_carry(),
                host: self.attempt.launch.host().map(str::to_string),
            }),
            rename: opened.rename,
            carrier,
            about: self.about(),
            resume_state,
            expected,
            watch: watch.clone(),
            events: (self.events_in.clone(), events),
            early,
        };
        let how = How { settings, role: self.role, streams: wanted, login };
        Ok(Opened { part, how })
    }

    fn far_port(&self, known: Known<'_>, opened: &FarAnswer) -> FarPort {
        FarPort {
            choice: known.choose(&opened.addresses),
            host: self.attempt.launch.host().unwrap_or("this host").to_string(),
            port: opened.port,
            may_carry: self.may_carry(),
        }
    }

    /// How both sides cut and digest: as the side with the sink needs it.
    fn agree(
        &self,
        opened: &FarAnswer,
        resume_state: &ResumeState,
        session: &mut Session,
    ) -> Result<Cut, Fault> {
        if self.role == Role::Sink {
            let message = Message::Cut(resume_state.cut);
            session.say(clock::now(), &message);
            self.line.clone().send(&message)?;
            return Ok(resume_state.cut);
        }
        match opened.cut.digest.is_weaker_than(self.job.settings.digest) {
            true => Err(Fault::peer("the far side wants a weaker digest than it was asked for")),
            false => Ok(opened.cut),
        }
    }

    /// What a far source may offer; a far sink may not replace the name that was typed.
    fn expected(&self, opened: &FarAnswer) -> Result<Expected, Fault> {
        let origin = match (self.role, opened.origin) {
            (Role::Sink, Some(origin)) => origin,
            _ => {
                let typed = match &self.job.target {
                    Location::Path(path) => path.file_name().map(OsStr::as_bytes),
                    _ => None,
                };
                return match opened.rename.is_none() || opened.rename.as_deref() == typed {
                    true => Ok(Expected::Anything),
                    false => Err(Fault::peer("the far side gives a name that nobody has typed")),
                };
            }
        };
        // Nothing is written, and names are those of the other side.
        if self.job.settings.compare {
            return Ok(Expected::Anything);
        }
        Expected::of(self.job, origin, self.attempt.resolved.names.as_ref())
    }

    /// Why the two sides did not agree.
    fn explain(&self, fault: Fault, launched: &mut Launched) -> Fault {
        match fault.class {
            _ if self.attempt.watch.stopping() => Fault::interrupted(),
            Class::Unreachable | Class::Peer => {
                let Explained { fault, was_there } = launched.explain(fault);
                let login = clock::now().since(self.attempt.started);
                self.attempt.opened.set(was_there.then_some(login));
                fault
            }
            _ => fault,
        }
    }

    /// The sink, where it is on this host, and what earlier runs left in it.
    fn target(&self, opened: &FarAnswer) -> Result<(Option<Target>, ResumeState), Fault> {
        if self.role == Role::Source {
            return Ok((None, ResumeState::none(tag()?, &self.job.settings)));
        }
        let origin = opened.origin.expect("the session has seen to it");
        let reach = &self.attempt.resolved.reach;
        let target = Target::find(&self.job.target, origin, &self.job.settings, reach)?;
        // Where no source means its contents, the folder itself keeps its metadata.
        let contents =
            |location: &Location| matches!(location, Location::Path(path) if means_contents(path));
        let target = match self.job.sources.iter().any(contents) {
            true => target,
            false => target.keeping_root(),
        };
        let resume_state =
            resume_state(&target, self.job, self.attempt.resolved.transfer, self.attempt.watch)?;
        Ok((Some(target), resume_state))
    }

    /// The request to the far side.
    fn request(&self, identity: &Identity, secret: [u8; 32], origin: Option<Origin>) -> Open {
        let locations = match self.role {
            Role::Source => vec![self.job.target.clone()],
            Role::Sink => self.job.sources.clone(),
        };
        Open {
            role: self.role.other(),
            locations,
            settings: self.job.settings.clone(),
            ports: self.job.remote.ports,
            secret: SharedSecret(secret),
            fingerprint: identity.fingerprint,
            origin,
            window_bytes: match (self.role, &self.job.target) {
                (Role::Sink, Location::Stdio) => pipe_window_bytes(&self.job.settings),
                _ => 0,
            },
            transfer: self.attempt.resolved.transfer,
            listed: self.role == Role::Sink && self.job.listed.is_some(),
        }
    }

    /// The far side does not use it, but this side's own report has it.
    fn about(&self) -> About {
        let (locations, end) = match self.role {
            Role::Source => (&self.job.sources[..], TransferEnd::Source),
            Role::Sink => (std::slice::from_ref(&self.job.target), TransferEnd::Target),
        };
        medium::about(locations, end, String::new(), &Reach::Host)
    }

    /// Sends a far source the names to copy, about a thousand at a time.
    fn tell_names(&self, names: &Names, session: &mut Session) -> Result<(), Fault> {
        let mut line = self.line.clone();
        let mut tell = |paths: Vec<Vec<u8>>, last: bool| {
            if self.attempt.watch.stopping() {
                return Err(Fault::interrupted());
            }
            line.await_room(self.job.settings.stall, &|| self.attempt.watch.stopping())?;
            let message = Message::Names { paths, last };
            session.say(clock::now(), &message);
            line.send(&message)
        };
        let (mut paths, mut bytes, mut told) = (Vec::new(), 0, Ok(()));
        names.each(&mut |name| {
            paths.push(name.to_vec());
            bytes += name.len();
            if paths.len() == NAMES_MAX || bytes > NAMES_BYTES_MAX {
                bytes = 0;
                told = tell(std::mem::take(&mut paths), false);
            }
            told.is_ok()
        })?;
        told.and_then(|()| tell(paths, true))
    }

    /// When the far side has greeted, greets and sends all that needs no answer: the request, what
    /// the walk finds first, and whether this connection carries it. Nothing before: without its
    /// mark it may be a shell that runs what it reads. The user may be asked for a password: then
    /// only the user's patience ends the login. After its first message the far side sends pings.
    fn converse(
        &self,
        session: &mut Session,
        open: &Message,
        events: &Receiver<Event>,
        launched: &Launched,
    ) -> Result<Agreed<'_>, Fault> {
        let mut line = self.line.clone();
        let known = Known::of(self.attempt.launch);
        let (mut early, mut carried, mut has_greeted) = (Vec::new(), None, false);
        let stall = self.job.settings.stall;
        let (mut heard, mut patience) = (clock::now(), self.attempt.login.patience(stall));
        let mut sent = 0;
        loop {
            match events.recv_timeout(Duration::from_millis(50)) {
                Ok(Event::Heard(message)) => {
                    session.hear(clock::now(), &message)?;
                    heard = clock::now();
                    match message {
                        Message::Hello { .. } => {
                            line.send(&session.hello())?;
                            session.say(clock::now(), open);
                            line.send(open)?;
                            has_greeted = true;
                            if let Some(first) = known.first()
                                && self.role == Role::Source
                                && self.starts_carried(first)
                            {
                                carried = Some(self.carry(Carries::First, None, session)?);
                            }
                            line.set_heartbeat(Some(heartbeat(stall)));
                            patience = Some(stall);
                        }
                        Message::Opened(opened) => {
                            return Ok(Agreed { opened, known, carried, early });
                        }
                        Message::Stop(fault) => return Err(self.in_far_words(fault)),
                        Message::Warning { text } => self.attempt.watch.warn(text),
                        _ => {}
                    }
                }
                Ok(Event::Closed(fault)) => {
                    let gone = || Fault::new(Class::Unreachable, "the far side went away at once");
                    return Err(fault.unwrap_or_else(gone));
                }
                Ok(event) => early.push(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => panic!("this side holds a sender"),
            }
            if has_greeted {
                self.offer_first(&mut early, session)?;
            }
            if self.attempt.watch.stopping() {
                return Err(Fault::interrupted());
            }
            if launched.sent_bytes() > sent {
                (sent, heard) = (launched.sent_bytes(), clock::now());
            }
            if patience.is_some_and(|patience| clock::now().since(heard) > patience) {
                return Err(silent("the far side", clock::now().since(heard)));
            }
        }
    }

    /// Offers what the walk has found first, once.
    fn offer_first(&self, early: &mut [Event], session: &mut Session) -> Result<(), Fault> {
        let Some(Event::Found(WalkEvent::Chunk(found))) = early.first_mut() else { return Ok(()) };
        let found = std::mem::take(found);
        let offer = first_offer(&found);
        early[0] = Event::OfferedBefore(found);
        session.say(clock::now(), &offer);
        self.line.clone().send(&offer)
    }

    /// Names the host that the message is from.
    fn in_far_words(&self, fault: Fault) -> Fault {
        match self.attempt.launch {
            Launch::Ssh { host, .. } => Fault { text: format!("{host}: {}", fault.text), ..fault },
            Launch::Process { .. } => fault,
        }
    }

    /// Streams are opened in the background. Between hosts the control connection carries the first
    /// bytes meanwhile, and all of them where no stream can be opened.
    fn streams(
        &self,
        far_port: FarPort,
        credentials: Credentials,
        carried: Option<Stream>,
        session: &mut Session,
    ) -> Result<Opening, Fault> {
        let tuning = streams::tuning(&self.job.settings, self.role);
        if let Some(text) = tuning.window.and_then(window::shortfall) {
            self.attempt.watch.warn(text);
        }
        let wanted = self.job.settings.streams;
        let Some(first) = far_port.choice.tries.first().map(SocketAddr::ip) else {
            let fault = far_port.unreachable(Fault::new(Class::Unreachable, "no address is known"));
            if !far_port.may_carry {
                return Err(fault);
            }
            self.attempt.watch.warn(fault.text);
            let carried = self.carry(Carries::All, carried, session)?;
            return Ok(Opening { dial: None, wanted, carried: Some(carried) });
        };
        let wanted = if tcp::is_this_host(first) { self.streams_within_host() } else { wanted };
        let carried = match carried {
            None if self.starts_carried(first) => {
                Some(self.carry(Carries::First, None, session)?)
            }
            carried => carried,
        };
        let dialer = Dialer::new(far_port, tuning, credentials, self.events_in.clone());
        Ok(Opening { dial: Some(Box::new(dialer)), wanted, carried })
    }

    /// The control connection carries data: all of it, or the first bytes; on this stream if there
    /// is one already.
    fn carry(
        &self,
        carries: Carries,
        carried: Option<Stream>,
        session: &mut Session,
    ) -> Result<Stream, Fault> {
        let (message, mut line) = (Message::Carry(carries), self.line.clone());
        session.say(clock::now(), &message);
        line.send(&message)?;
        carried.map_or_else(|| line.carry(), Ok)
    }

    /// True where the control connection carries the first bytes: between hosts, if the user leaves
    /// it to us how streams are to be.
    fn starts_carried(&self, address: IpAddr) -> bool {
        let is_plain = streams::tuning(&self.job.settings, self.role).is_plain();
        self.may_carry() && is_plain && !tcp::is_this_host(address)
    }

    /// A test of the path needs streams; any other copy can go over the control connection.
    fn may_carry(&self) -> bool {
        !self.job.sources.iter().any(Location::is_endless)
    }

    /// Within one host each stream has a lane at both ends, which share its CPUs. A pace that was
    /// asked for has been divided already. Where the number is ours to choose, one is the first.
    fn streams_within_host(&self) -> u16 {
        let asked = self.job.settings.streams;
        if self.job.settings.streams_auto {
            return 1;
        }
        let is_free = self.job.remote.may_have_fewer_streams
            && !matches!(self.job.settings.pace, Pace::Fixed(_));
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        if is_free { asked.min(u16::try_from(cpus).unwrap_or(u16::MAX)) } else { asked }
    }
}

/// Names in one message, and about how many bytes they take.
const NAMES_MAX: usize = 1024;
const NAMES_BYTES_MAX: usize = 32 << 10;
