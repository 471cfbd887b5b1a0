//! A whole transfer as the user asked for it: both ends here, or one of them on another host.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::control::{Carrier as CarrierSlot, ControlLine, Noise, carry, start_reader};
use super::launch::{Launch, Launched};
use super::peer::{PROGRAM, tag};
use super::streams::{self, Credentials, carried, random};
use crate::base::fault::{Class, Fault};
use crate::base::job::{Carrier, Job, Outcome, Place};
use crate::base::limits::{REQUEST_BYTES_MIN, REQUEST_BYTES_STEP};
use crate::base::units::Tick;
use crate::io::{clock, tcp};
use crate::pump::assembly::{Stream, pipe_window_bytes};
use crate::pump::sink::Target;
use crate::pump::transfer::{self, Event, Line, Part, Peer};
use crate::pump::walk::Sources;
use crate::pump::watch::Watch;
use crate::wire::message::{Message, Open, Opened, Origin, Role};
use crate::wire::session::Session;
use crate::work::seal::{Identity, Secret};

/// Runs a transfer to its end.
pub fn run(job: &Job, watch: &Arc<Watch>) -> Result<Outcome, Fault> {
    let started = clock::now();
    let job = &with_requests_for_rate(job);
    let host = match (&job.source_host, &job.target_host) {
        (None, None) => return local(job, watch, started),
        (Some(host), None) | (None, Some(host)) => host.clone(),
        (Some(_), Some(_)) => {
            return Err(Fault::usage("from host to host is not possible yet: copy through here"));
        }
    };
    let launch = Launch::Ssh { host, remote: job.remote.clone() };
    run_with(job, &launch, watch, started)
}

/// Runs a transfer whose far side is started in the given way.
pub fn run_with(
    job: &Job,
    launch: &Launch,
    watch: &Arc<Watch>,
    started: Tick,
) -> Result<Outcome, Fault> {
    // What can be wrong on this host is found before anybody has to log in.
    check_sources(job)?;
    tcp::check_congestion(job.settings.congestion.as_deref())?;
    let role = if job.source_host.is_some() { Role::Sink } else { Role::Source };
    let sources = match role {
        Role::Source => Some(Sources::look(&job.sources, job.settings.recursive)?),
        Role::Sink => None,
    };
    let job = &with_streams_for(job, sources.as_ref());
    let (mut launched, stdin, stdout) = launch.start()?;
    let (events_in, events) = channel();
    let carrier = CarrierSlot::default();
    let line = ControlLine::new(stdin);
    start_reader(stdout, Noise::Skip, events_in.clone(), carrier.clone());
    let near = Near { job, launch, watch, role, line: line.clone(), carrier, events_in };
    let outcome = near.transfer(sources, events, &mut launched, started);
    line.close();
    launched.end();
    outcome
}

/// A limited rate in requests of a second each would come in bursts: one takes an eighth at most.
fn with_requests_for_rate(job: &Job) -> Job {
    let mut job = job.clone();
    if let Some(rate) = job.settings.rate {
        let eighth = (rate.bytes_per_second / 8.0) as u32 / REQUEST_BYTES_STEP * REQUEST_BYTES_STEP;
        let most = eighth.max(REQUEST_BYTES_MIN);
        job.settings.request_bytes = job.settings.request_bytes.min(most);
    }
    job
}

/// No more streams than there are requests: each costs a handshake.
fn with_streams_for(job: &Job, sources: Option<&Sources>) -> Job {
    let mut job = job.clone();
    if let Some(bytes) = sources.and_then(Sources::single_bytes) {
        let requests = bytes.div_ceil(u64::from(job.settings.request_bytes)).max(1);
        let streams = u16::try_from(requests).unwrap_or(u16::MAX);
        job.settings.streams = job.settings.streams.min(streams);
    }
    job
}

/// A far source is told all its paths in one message.
fn check_sources(job: &Job) -> Result<(), Fault> {
    let path_bytes = |place: &Place| match place {
        Place::Path(path) => path.as_os_str().len(),
        _ => 0,
    };
    let bytes: usize = job.sources.iter().map(path_bytes).sum();
    match job.sources.len() <= SOURCES_MAX && bytes <= SOURCES_BYTES_MAX {
        true => Ok(()),
        false => Err(Fault::usage(format!(
            "{} sources are too many for one command (at most {SOURCES_MAX}, with \
             {SOURCES_BYTES_MAX} bytes of names): copy the folder they are in, or use several \
             commands",
            job.sources.len()
        ))),
    }
}

const SOURCES_MAX: usize = 1000;
const SOURCES_BYTES_MAX: usize = 100_000;

/// Both ends in this process.
fn local(job: &Job, watch: &Arc<Watch>, started: Tick) -> Result<Outcome, Fault> {
    let sources = Sources::look(&job.sources, job.settings.recursive)?;
    refuse_into_itself(job)?;
    let target = Target::open(&job.target, sources.origin)?;
    let window_bytes = window_of(&target, job);
    let part = Part {
        settings: job.settings.clone(),
        source: Some((job.sources[0].clone(), sources)),
        sink: Some(target),
        streams: Vec::new(),
        peer: None,
        window_bytes,
        rename: None,
        carrier: Carrier::Memory,
        tag: tag()?,
        watch: watch.clone(),
        events: channel(),
        early: Vec::new(),
    };
    let done = transfer::run(part)?;
    Ok(outcome(done, job, Carrier::Memory, (job.settings.streams, Role::Source, started)))
}

fn window_of(target: &Target, job: &Job) -> Option<u64> {
    matches!(target, Target::Pipe).then(|| pipe_window_bytes(&job.settings))
}

/// A tree copied into itself would never end.
fn refuse_into_itself(job: &Job) -> Result<(), Fault> {
    let Place::Path(target) = &job.target else { return Ok(()) };
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    let real = target.canonicalize().or_else(|_| parent.unwrap_or(Path::new(".")).canonicalize());
    let Ok(real) = real else { return Ok(()) };
    for source in &job.sources {
        if let Place::Path(source) = source
            && let Ok(source_real) = source.canonicalize()
            && source_real.is_dir()
            && real.starts_with(&source_real)
        {
            let text = format!(
                "'{}' lies in '{}': a tree cannot be copied into itself",
                target.display(),
                source.display()
            );
            return Err(Fault::usage(text));
        }
    }
    Ok(())
}

/// The driving side of a transfer with a far side.
struct Near<'a> {
    job: &'a Job,
    launch: &'a Launch,
    watch: &'a Arc<Watch>,
    role: Role,
    line: ControlLine,
    carrier: CarrierSlot,
    events_in: Sender<Event>,
}

impl Near<'_> {
    fn transfer(
        &self,
        sources: Option<Sources>,
        events: Receiver<Event>,
        launched: &mut Launched,
        started: Tick,
    ) -> Result<Outcome, Fault> {
        let identity = Identity::ephemeral()?;
        let secret: [u8; 32] = random()?;
        let origin = sources.as_ref().map(|sources| sources.origin);
        let open = Message::Open(Box::new(self.open(&identity, secret, origin)));
        let mut session = Session::driver(self.role, PROGRAM, clock::now());
        let opened =
            self.converse(&mut session, &open, &events).map_err(|fault| match fault.class {
                _ if self.watch.stopping() => Fault::interrupted(),
                Class::Unreachable | Class::Peer => launched.explain(fault),
                _ => fault,
            })?;
        let target = match self.role {
            Role::Source => None,
            Role::Sink => {
                let origin = opened.origin.expect("the session has seen to it");
                Some(Target::open(&self.job.target, origin)?)
            }
        };
        let credentials = Credentials {
            role: self.role,
            seal: self.job.settings.seal,
            identity,
            peer: opened.fingerprint,
            secret: Secret::new(secret),
        };
        let (streams, carrier) = self.streams(&opened, &credentials, &mut session)?;
        let count = streams.len() as u16;
        let part = Part {
            settings: self.job.settings.clone(),
            source: sources.map(|sources| (self.job.sources[0].clone(), sources)),
            window_bytes: match &target {
                Some(target) => window_of(target, self.job),
                None => (opened.window_bytes > 0).then_some(opened.window_bytes),
            },
            sink: target,
            streams,
            peer: Some(Peer { session, line: Box::new(self.line.clone()), drives: true }),
            rename: opened.rename,
            carrier,
            tag: tag()?,
            watch: self.watch.clone(),
            events: (self.events_in.clone(), events),
            early: Vec::new(),
        };
        let done = transfer::run(part)?;
        Ok(outcome(done, self.job, carrier, (count, self.role, started)))
    }

    fn open(&self, identity: &Identity, secret: [u8; 32], origin: Option<Origin>) -> Open {
        let places = match self.role {
            Role::Source => vec![self.job.target.clone()],
            Role::Sink => self.job.sources.clone(),
        };
        Open {
            role: self.role.other(),
            places,
            settings: self.job.settings.clone(),
            ports: self.job.remote.ports,
            secret,
            fingerprint: identity.fingerprint,
            origin,
            window_bytes: match (self.role, &self.job.target) {
                (Role::Sink, Place::Stdio) => pipe_window_bytes(&self.job.settings),
                _ => 0,
            },
            transfer: [0; 16],
            listed: false,
        }
    }

    /// Greets and opens. The far side may take long to log in: only the user's patience ends this.
    fn converse(
        &self,
        session: &mut Session,
        open: &Message,
        events: &Receiver<Event>,
    ) -> Result<Opened, Fault> {
        let mut line = self.line.clone();
        line.send(&session.hello())?;
        loop {
            match events.recv_timeout(Duration::from_millis(50)) {
                Ok(Event::Heard(message)) => {
                    session.hear(clock::now(), &message)?;
                    match message {
                        Message::Hello { .. } => {
                            session.say(clock::now(), open);
                            line.send(open)?;
                        }
                        Message::Opened(opened) => return Ok(opened),
                        Message::Stop(fault) => return Err(self.in_far_words(fault)),
                        Message::Warning { text } => self.watch.warn(text),
                        _ => {}
                    }
                }
                Ok(Event::Closed(fault)) => {
                    let gone = || Fault::new(Class::Unreachable, "the far side went away at once");
                    return Err(fault.unwrap_or_else(gone));
                }
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => panic!("this side holds a sender"),
            }
            if self.watch.stopping() {
                return Err(Fault::interrupted());
            }
        }
    }

    /// Says whose words they are.
    fn in_far_words(&self, fault: Fault) -> Fault {
        match self.launch {
            Launch::Ssh { host, .. } => Fault { text: format!("{host}: {}", fault.text), ..fault },
            Launch::Process { .. } => fault,
        }
    }

    /// TCP streams where the far side can be reached; else one stream on the connection there is.
    fn streams(
        &self,
        opened: &Opened,
        credentials: &Credentials,
        session: &mut Session,
    ) -> Result<(Vec<Stream>, Carrier), Fault> {
        let settings = &self.job.settings;
        let addresses = self.addresses(opened);
        let connected = streams::connect_all(
            &addresses,
            opened.port,
            settings.streams,
            &streams::tuning(settings),
            credentials,
        );
        let fault = match connected {
            Ok(streams) => return Ok((streams, Carrier::Tcp)),
            Err(fault) if fault.class != Class::Unreachable => return Err(fault),
            Err(fault) => fault,
        };
        self.watch.warn(format!(
            "no data port of the far side can be reached ({fault}; tried {} port {}): the data \
             goes over the control connection, in one stream; open a port range with --ports \
             LO-HI for more",
            addresses.join(", "),
            opened.port
        ));
        let mut line = self.line.clone();
        session.say(clock::now(), &Message::Carry);
        line.send(&Message::Carry)?;
        Ok((vec![carried(carry(&self.line, &self.carrier)?)], Carrier::Control))
    }

    /// Where the far side says it was reached; then the name that was typed.
    fn addresses(&self, opened: &Opened) -> Vec<String> {
        let mut addresses = opened.addresses.clone();
        match self.launch {
            Launch::Ssh { host, .. } => {
                let name = host.rsplit_once('@').map_or(host.as_str(), |(_, name)| name);
                addresses.push(name.to_string());
            }
            Launch::Process { .. } => addresses.push("127.0.0.1".into()),
        }
        addresses.dedup();
        addresses
    }
}

fn outcome(
    done: transfer::Done,
    job: &Job,
    carrier: Carrier,
    (streams, role, started): (u16, Role, Tick),
) -> Outcome {
    Outcome {
        files: done.files,
        directories: done.directories,
        failed: done.failed,
        kept: done.kept,
        worst: done.worst,
        bytes: done.bytes,
        elapsed: clock::now().since(started),
        streams,
        request_bytes: job.settings.request_bytes,
        carrier,
        near_is_source: role == Role::Source,
        near: done.report,
        far: done.peer_report,
    }
}
