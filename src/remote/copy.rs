//! A whole transfer as the user asked for it: both ends here, or one of them on another host.

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::addresses;
use super::control::{Carrier as CarrierSlot, ControlLine, Noise, carry, start_reader};
use super::launch::{Explained, LEAVES_WITHIN, Launch, Launched, Login};
use super::peer::{PROGRAM, heartbeat, silent, tag};
use super::streams::{self, Credentials, Dialer, carried, random};
use crate::base::fault::{Class, Fault};
use crate::base::job::{Carrier, Job, Outcome, Place, Room};
use crate::base::limits::{
    MESSAGE_BYTES_MAX, PATH_BYTES_MAX, REQUEST_BYTES_MIN, REQUEST_BYTES_STEP,
};
use crate::base::settings::Cut;
use crate::base::tally::{About, SideReport};
use crate::base::units::{Nanos, Tick};
use crate::io::medium::{self, End};
use crate::io::{clock, tcp, window};
use crate::pump::lane::assembly::{Stream, pipe_window_bytes};
use crate::pump::run::{self, Dial, Line, Part, Peer};
use crate::pump::sink::Target;
use crate::pump::sink::expected::Expected;
use crate::pump::sink::journal::TransferId;
use crate::pump::sink::resume::{Memory, Voice};
use crate::pump::source::names::{Ending, Names};
use crate::pump::source::walk::{Sources, means_contents};
use crate::pump::transfer::{Done, Event};
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

/// Runs a transfer whose far side is started in the given way; again where its connection is lost
/// and what has arrived can be resumed.
pub fn run_with(
    job: &Job,
    launch: &Launch,
    watch: &Arc<Watch>,
    started: Tick,
) -> Result<Outcome, Fault> {
    // What can be wrong on this host is found before anybody has to log in.
    check_request(job)?;
    tcp::check_congestion(job.settings.congestion.as_deref())?;
    let transfer = transfer_id(job)?;
    let names = names(job)?.map(Arc::new);
    let mut tries = Tries::default();
    loop {
        let login = if tries.lost_at.is_some() { Login::Again } else { Login::First };
        let opened = Cell::new(false);
        let mut near = Attempt {
            job,
            launch,
            watch,
            transfer,
            names: names.as_ref(),
            started,
            login,
            opened: &opened,
        };
        let fault = match near.run() {
            Ok(outcome) => return Ok(tries.add_to(outcome)),
            Err(fault) => fault,
        };
        tries.note(opened.get(), watch);
        let lost = fault.class == Class::Unreachable;
        if lost && is_stopped(watch) {
            return Err(with_hint(Fault::interrupted(), job));
        }
        if !lost || !is_resumable(job) {
            return Err(with_hint(fault, job));
        }
        match tries.next(job.remote.retry_for) {
            Some(pause) => {
                let text = format!("{fault}: trying again, from what has arrived");
                watch.begin_again(text);
                wait(pause, watch);
            }
            None => return Err(with_hint(fault, job)),
        }
    }
}

/// How often and since when a connection that was there is being made again.
#[derive(Debug, Default)]
struct Tries {
    lost_at: Option<Tick>,
    failed_in_a_row: u32,
    retries: u32,
    /// What was here at least in each attempt that has asked about all: files and bytes.
    held_least: Option<(u64, u64)>,
    /// What attempts that were lost have moved.
    moved: (u64, u64),
}

impl Tries {
    /// An attempt has ended early; did it get as far as a conversation?
    fn note(&mut self, opened: bool, watch: &Watch) {
        if !opened {
            return;
        }
        let gauge = &watch.gauge;
        let held = (gauge.files_held.load(Relaxed), gauge.bytes_held.load(Relaxed));
        let done = (gauge.files_done.load(Relaxed), gauge.bytes_done.load(Relaxed));
        if gauge.answered.load(Relaxed) {
            let least = self.held_least.unwrap_or(held);
            self.held_least = Some((least.0.min(held.0), least.1.min(held.1)));
        }
        self.moved.0 += done.0.saturating_sub(held.0);
        self.moved.1 += done.1.saturating_sub(held.1);
        // One that moves nothing is no better than none.
        if self.lost_at.is_none() || done.0 > held.0 || done.1 > held.1 {
            self.lost_at = Some(clock::now());
            self.failed_in_a_row = 0;
        }
    }

    /// How long to wait before the next attempt; `None` when there is to be none. What never was
    /// there is not tried again: its user is looking.
    fn next(&mut self, retry_for: Nanos) -> Option<Duration> {
        let lost_at = self.lost_at?;
        if clock::now().since(lost_at) >= retry_for {
            return None;
        }
        let pause = Duration::from_millis(500 << self.failed_in_a_row.min(6));
        self.failed_in_a_row += 1;
        self.retries += 1;
        Some(pause)
    }

    fn add_to(&self, outcome: Outcome) -> Outcome {
        // Some of what is here in the end has come in an attempt before: that was sent.
        let not_sent = |held: u64, moved: u64, least: Option<u64>| {
            held.saturating_sub(moved).max(least.map_or(0, |least| least.min(held)))
        };
        let least = self.held_least;
        let held_files = not_sent(outcome.held_files, self.moved.0, least.map(|(files, _)| files));
        let resumed_bytes =
            not_sent(outcome.resumed_bytes, self.moved.1, least.map(|(_, bytes)| bytes));
        Outcome { retries: self.retries, held_files, resumed_bytes, ..outcome }
    }
}

/// A signal to a whole group may end ssh before this program has been told of it.
fn is_stopped(watch: &Watch) -> bool {
    wait(SIGNAL_WITHIN, watch);
    watch.stopping()
}

fn wait(pause: Duration, watch: &Watch) {
    let until = clock::now().after(pause.into());
    while clock::now() < until && !watch.stopping() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// True when what has arrived is found again: pipes cannot be read twice, and what is endless
/// measures a time, which is over.
fn is_resumable(job: &Job) -> bool {
    let flows = |place: &Place| *place == Place::Stdio || place.is_endless();
    !flows(&job.target) && !job.sources.iter().any(flows)
}

/// A fault that another run of the same command goes on behind says so.
fn with_hint(fault: Fault, job: &Job) -> Fault {
    let resumes = matches!(
        fault.class,
        Class::Unreachable | Class::NoSpace | Class::Interrupted | Class::Corrupt
    );
    let kept = matches!(job.target, Place::Path(_)) && is_resumable(job);
    match resumes && kept {
        true => {
            let text = format!("{fault}; the same command goes on from what has arrived");
            Fault { text, ..fault }
        }
        false => fault,
    }
}

/// What a transfer is known by at its destination: the same for the same command.
fn transfer_id(job: &Job) -> Result<TransferId, Fault> {
    let mut hasher = blake3::Hasher::new_derive_key("datapump 2026 transfer");
    let mut add = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
    };
    let here = rustix::system::uname();
    for (host, places) in [
        (&job.source_host, &job.sources[..]),
        (&job.target_host, std::slice::from_ref(&job.target)),
    ] {
        let name = host.as_ref().map_or(here.nodename().to_bytes(), |name| name.as_bytes());
        add(name);
        for place in places {
            match place {
                Place::Path(path) if host.is_none() => {
                    let path = std::path::absolute(path)
                        .map_err(|error| Fault::io("find", path, &error))?;
                    add(path.as_os_str().as_bytes());
                }
                Place::Path(path) => add(path.as_os_str().as_bytes()),
                made => add(format!("{made:?}").as_bytes()),
            }
        }
    }
    let mut id = [0; 16];
    hasher.finalize_xof().fill(&mut id);
    Ok(id)
}

/// One login and what comes of it.
struct Attempt<'a> {
    job: &'a Job,
    launch: &'a Launch,
    watch: &'a Arc<Watch>,
    transfer: TransferId,
    /// The list of what is copied. It is read once: it may be standard input.
    names: Option<&'a Arc<Names>>,
    started: Tick,
    login: Login,
    /// Set once the two sides have understood each other.
    opened: &'a Cell<bool>,
}

impl Attempt<'_> {
    fn run(&mut self) -> Result<Outcome, Fault> {
        let role = if self.job.source_host.is_some() { Role::Sink } else { Role::Source };
        let sources = match role {
            Role::Source => Some(near_sources(self.job, self.names)?),
            Role::Sink => None,
        };
        let job = &with_streams_for(self.job, sources.as_ref());
        let tell = self.watch.clone();
        let (mut launched, stdin, stdout) =
            self.launch.start(self.login, move |line| tell.warn(line))?;
        let (events_in, events) = channel();
        let carrier = CarrierSlot::default();
        let line = ControlLine::new(stdin);
        start_reader(stdout, Noise::Skip, events_in.clone(), carrier.clone(), || {});
        let near = Near { job, attempt: self, role, line: line.clone(), carrier, events_in };
        let outcome = near.transfer(sources, events, &mut launched);
        let patience = if outcome.is_ok() { LAST_WORD_WITHIN } else { LEAVES_WITHIN };
        let heard_all = match line.close_within(WRITTEN_WITHIN) {
            true => launched.end(patience),
            false => {
                launched.cut(); // it takes nothing: what waits is of no use any more
                false
            }
        };
        if outcome.is_ok() && role == Role::Source && !heard_all {
            let text = "all is copied, but the connection broke before the far side knew that: \
                        its journal may stay, until the same command runs again or 'datapump \
                        clean' there";
            self.watch.warn(text.to_string());
        }
        outcome
    }
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

/// The far side is told its paths and the patterns in one message.
fn check_request(job: &Job) -> Result<(), Fault> {
    let far = match job.source_host {
        Some(_) => &job.sources[..],
        None => std::slice::from_ref(&job.target),
    };
    let path_bytes = |place: &Place| match place {
        Place::Path(path) => path.as_os_str().len(),
        _ => 0,
    };
    if let Some(bytes) = far.iter().map(path_bytes).find(|bytes| *bytes > PATH_BYTES_MAX) {
        return Err(Fault::usage(format!(
            "a path of {bytes} bytes is longer than any there can be ({PATH_BYTES_MAX}): shorten \
             it, or name a folder above it"
        )));
    }
    let names: usize = job.sources.iter().map(path_bytes).sum();
    if job.sources.len() > SOURCES_MAX || names > SOURCES_BYTES_MAX {
        return Err(Fault::usage(format!(
            "{} sources are too many for one command (at most {SOURCES_MAX}, with \
             {SOURCES_BYTES_MAX} bytes of names): copy the folder they are in, or use several \
             commands",
            job.sources.len()
        )));
    }
    let fields = |bytes: usize| bytes + FIELD_BYTES;
    let patterns = &job.settings.filters;
    let paths: usize = far.iter().map(|place| fields(path_bytes(place))).sum();
    let bytes = paths + patterns.iter().map(|line| fields(line.len())).sum::<usize>();
    match bytes <= OPEN_BYTES_MAX {
        true => Ok(()),
        false => Err(Fault::usage(format!(
            "{} sources and {} patterns are {bytes} bytes, and one command takes \
             {OPEN_BYTES_MAX}: write wider patterns, name the files with --files-from, or use \
             several commands",
            job.sources.len(),
            patterns.len()
        ))),
    }
}

/// How long what waits to be written may take when a side ends, until ssh is ended with it.
const WRITTEN_WITHIN: Duration = Duration::from_millis(300);
/// How long a far side that is told that all is done may take to go, on a path with loss.
const LAST_WORD_WITHIN: Duration = Duration::from_secs(5);
/// How long the end of a far side whose ports do not answer may take to show.
const ENDS_WITHIN: Duration = Duration::from_millis(300);
/// How long a signal that has ended ssh may take to be told here.
const SIGNAL_WITHIN: Duration = Duration::from_millis(200);

/// Names that one message tells, and about how many bytes.
const NAMES_MAX: usize = 1024;
const NAMES_BYTES_MAX: usize = 32 << 10;

/// What stands in front of a path or a pattern at most; and what all of them may take, so that the
/// rest of the message fits too.
const FIELD_BYTES: usize = 32;
const OPEN_BYTES_MAX: usize = MESSAGE_BYTES_MAX - (16 << 10);

const SOURCES_MAX: usize = 1000;
const SOURCES_BYTES_MAX: usize = 100_000;

/// Both ends in this process.
fn local(job: &Job, watch: &Arc<Watch>, started: Tick) -> Result<Outcome, Fault> {
    let names = names(job)?.map(Arc::new);
    let sources = near_sources(job, names.as_ref())?;
    refuse_into_itself(job)?;
    let target = Target::find(&job.target, sources.origin, &job.settings)?;
    let memory = memory(&target, job, transfer_id(job)?, watch)?;
    let job = &Job { settings: job.settings.cut_as(memory.cut), ..job.clone() };
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
        about: About {
            sink_file_system: medium::file_system(&job.target),
            ..medium::about(&job.sources, End::Source, String::new())
        },
        memory,
        expected: Expected::Anything,
        watch: watch.clone(),
        events: channel(),
        early: Vec::new(),
    };
    let done = run::run(part).map_err(|fault| with_hint(fault, job))?;
    Ok(outcome(done, job, watch, Carrier::Memory, (job.settings.streams, Role::Source, started)))
}

/// What earlier runs left where this host has the sink.
fn memory(
    target: &Target,
    job: &Job,
    transfer: TransferId,
    watch: &Watch,
) -> Result<Memory, Fault> {
    let voice = Voice { warn: &|text| watch.warn(text), stopping: &|| watch.stopping() };
    Memory::open(target, transfer, &job.settings, tag()?, &voice)
}

fn near_sources(job: &Job, names: Option<&Arc<Names>>) -> Result<Sources, Fault> {
    let Some(names) = names else {
        return Sources::look(&job.sources, job.settings.recursive)?.choose(&job.settings);
    };
    let sources = Sources::look_below(&job.sources)?.choose(&job.settings)?;
    Ok(sources.list(names.clone(), job.settings.recursive))
}

fn names(job: &Job) -> Result<Option<Names>, Fault> {
    let Some(listed) = &job.listed else { return Ok(None) };
    let ending = if listed.nul { Ending::Nul } else { Ending::Line };
    Names::read(&listed.file, ending).map(Some)
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

/// Data streams, what carries them, and how another is opened.
struct Opening {
    streams: Vec<Stream>,
    carrier: Carrier,
    dial: Option<Box<dyn Dial>>,
    /// What the far side said meanwhile.
    early: Vec<Message>,
}

/// The driving side of a transfer with a far side.
struct Near<'a> {
    job: &'a Job,
    attempt: &'a Attempt<'a>,
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
    ) -> Result<Outcome, Fault> {
        let watch = self.attempt.watch;
        let identity = Identity::ephemeral()?;
        let secret: [u8; 32] = random()?;
        let origin = sources.as_ref().map(|sources| sources.origin);
        let open = Message::Open(Box::new(self.open(&identity, secret, origin)));
        let mut session = Session::driver(self.role, PROGRAM, clock::now());
        let opened = self.converse(&mut session, &open, &events);
        let opened = opened.map_err(|fault| self.explain(fault, launched))?;
        self.attempt.opened.set(true);
        let login = clock::now().since(self.attempt.started);
        let expected = self.expected(&opened)?;
        let (target, memory) = self.target(&opened)?;
        let cut = self.agree(&opened, &memory, &mut session)?;
        let settings = self.job.settings.cut_as(cut);
        let credentials = Credentials {
            role: self.role,
            seal: self.job.settings.seal,
            identity,
            peer: opened.fingerprint,
            secret: Secret::new(secret),
        };
        let credentials = Arc::new(credentials);
        let Opening { streams, carrier, dial, early } =
            self.streams(&opened, &credentials, &mut session, &events)?;
        if let (Role::Sink, Some(names)) = (self.role, self.attempt.names) {
            self.tell_names(names, &mut session)?;
        }
        let count = streams.len() as u16;
        self.line.set_heartbeat(None); // the loop gives signs of life itself
        let part = Part {
            settings: settings.clone(),
            source: sources.map(|sources| (self.job.sources[0].clone(), sources)),
            window_bytes: match &target {
                Some(target) => window_of(target, self.job),
                None => (opened.window_bytes > 0).then_some(opened.window_bytes),
            },
            sink: target,
            streams,
            peer: Some(Peer {
                session,
                line: Box::new(self.line.clone()),
                pulse: self.carrier.pulse.clone(),
                drives: true,
                dial,
            }),
            rename: opened.rename,
            carrier,
            about: self.about(),
            memory,
            expected,
            watch: watch.clone(),
            events: (self.events_in.clone(), events),
            early,
        };
        let done = run::run(part)?;
        let how = (count, self.role, self.attempt.started);
        let job = Job { settings, ..self.job.clone() };
        Ok(Outcome { login, ..outcome(done, &job, watch, carrier, how) })
    }

    /// How both sides cut and digest: as whoever has the sink needs it.
    fn agree(&self, opened: &Opened, memory: &Memory, session: &mut Session) -> Result<Cut, Fault> {
        if self.role == Role::Sink {
            let message = Message::Cut(memory.cut);
            session.say(clock::now(), &message);
            self.line.clone().send(&message)?;
            return Ok(memory.cut);
        }
        match opened.cut.digest.is_weaker_than(self.job.settings.digest) {
            true => Err(Fault::peer("the far side wants a weaker digest than it was asked for")),
            false => Ok(opened.cut),
        }
    }

    /// What a far source may offer; a far sink may give no other name than the one that was typed.
    fn expected(&self, opened: &Opened) -> Result<Expected, Fault> {
        let origin = match (self.role, opened.origin) {
            (Role::Sink, Some(origin)) => origin,
            _ => {
                let typed = match &self.job.target {
                    Place::Path(path) => path.file_name().map(OsStr::as_bytes),
                    _ => None,
                };
                return match opened.rename.is_none() || opened.rename.as_deref() == typed {
                    true => Ok(Expected::Anything),
                    false => Err(Fault::peer("the far side gives a name that nobody has typed")),
                };
            }
        };
        Expected::of(self.job, origin, self.attempt.names)
    }

    /// Why the two sides did not come to understand each other.
    fn explain(&self, fault: Fault, launched: &mut Launched) -> Fault {
        match fault.class {
            _ if self.attempt.watch.stopping() => Fault::interrupted(),
            Class::Unreachable | Class::Peer => {
                let Explained { fault, was_there } = launched.explain(fault);
                self.attempt.opened.set(was_there);
                fault
            }
            _ => fault,
        }
    }

    /// The sink, where it is here, and what earlier runs left in it.
    fn target(&self, opened: &Opened) -> Result<(Option<Target>, Memory), Fault> {
        if self.role == Role::Source {
            return Ok((None, Memory::none(tag()?, &self.job.settings)));
        }
        let origin = opened.origin.expect("the session has seen to it");
        let target = Target::find(&self.job.target, origin, &self.job.settings)?;
        // A source that was not asked for contents has no say in the folder itself.
        let contents = |place: &Place| matches!(place, Place::Path(path) if means_contents(path));
        let target = match self.job.sources.iter().any(contents) {
            true => target,
            false => target.keeping_root(),
        };
        let memory = memory(&target, self.job, self.attempt.transfer, self.attempt.watch)?;
        Ok((Some(target), memory))
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
            transfer: self.attempt.transfer,
            listed: self.role == Role::Sink && self.job.listed.is_some(),
        }
    }

    /// The far side makes nothing of it, but this side's own report has it.
    fn about(&self) -> About {
        match self.role {
            Role::Source => medium::about(&self.job.sources, End::Source, String::new()),
            Role::Sink => {
                let target = std::slice::from_ref(&self.job.target);
                medium::about(target, End::Target, String::new())
            }
        }
    }

    /// Tells a far source what to copy, some thousand names at a time.
    fn tell_names(&self, names: &Names, session: &mut Session) -> Result<(), Fault> {
        let mut line = self.line.clone();
        let mut tell = |paths: Vec<Vec<u8>>, last: bool| {
            if self.attempt.watch.stopping() {
                return Err(Fault::interrupted());
            }
            self.await_room()?;
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

    /// Waits until the connection has taken most of what was said.
    fn await_room(&self) -> Result<(), Fault> {
        let stall = self.job.settings.stall;
        let (mut written, mut since) = (self.line.written_bytes(), clock::now());
        while self.line.is_full() {
            if self.attempt.watch.stopping() {
                return Err(Fault::interrupted());
            }
            if self.line.written_bytes() != written {
                (written, since) = (self.line.written_bytes(), clock::now());
            }
            if clock::now().since(since) > stall {
                let text = format!("the connection to the far side took nothing for {stall}");
                return Err(Fault::new(Class::Unreachable, text));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Greets and opens. Somebody may be asked for a password: then only the user's patience ends
    /// the login. From its first word on the far side gives signs of life.
    fn converse(
        &self,
        session: &mut Session,
        open: &Message,
        events: &Receiver<Event>,
    ) -> Result<Opened, Fault> {
        let mut line = self.line.clone();
        line.send(&session.hello())?;
        let stall = self.job.settings.stall;
        let (mut heard, mut patience) = (clock::now(), self.attempt.login.patience(stall));
        loop {
            match events.recv_timeout(Duration::from_millis(50)) {
                Ok(Event::Heard(message)) => {
                    session.hear(clock::now(), &message)?;
                    heard = clock::now();
                    match message {
                        Message::Hello { .. } => {
                            session.say(clock::now(), open);
                            line.send(open)?;
                            line.set_heartbeat(Some(heartbeat(stall)));
                            patience = Some(stall);
                        }
                        Message::Opened(opened) => return Ok(opened),
                        Message::Stop(fault) => return Err(self.in_far_words(fault)),
                        Message::Warning { text } => self.attempt.watch.warn(text),
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
            if self.attempt.watch.stopping() {
                return Err(Fault::interrupted());
            }
            if patience.is_some_and(|patience| clock::now().since(heard) > patience) {
                return Err(silent("the far side", clock::now().since(heard)));
            }
        }
    }

    /// Says whose words they are.
    fn in_far_words(&self, fault: Fault) -> Fault {
        match self.attempt.launch {
            Launch::Ssh { host, .. } => Fault { text: format!("{host}: {}", fault.text), ..fault },
            Launch::Process { .. } => fault,
        }
    }

    /// TCP streams where the far side can be reached; else one stream on the connection there is.
    fn streams(
        &self,
        opened: &Opened,
        credentials: &Arc<Credentials>,
        session: &mut Session,
        events: &Receiver<Event>,
    ) -> Result<Opening, Fault> {
        let settings = &self.job.settings;
        let tuning = streams::tuning(settings, self.role);
        if let Some(text) = tuning.window.and_then(window::shortfall) {
            self.attempt.watch.warn(text);
        }
        let choice = addresses::choose(self.attempt.launch, &opened.addresses);
        let (port, count) = (opened.port, settings.streams);
        let connected = streams::connect_all(&choice.tries, port, count, &tuning, credentials);
        let fault = match connected {
            Ok((streams, address)) => {
                let dialer = Dialer {
                    address,
                    tuning,
                    credentials: credentials.clone(),
                    events: self.events_in.clone(),
                };
                let dial: Box<dyn Dial> = Box::new(dialer);
                let early = Vec::new();
                return Ok(Opening { streams, carrier: Carrier::Tcp, dial: Some(dial), early });
            }
            Err(fault) if fault.class != Class::Unreachable => return Err(fault),
            Err(fault) => fault,
        };
        let early = self.listen_for_end(session, events)?;
        let host = match self.attempt.launch {
            Launch::Ssh { host, .. } => host,
            Launch::Process { .. } => "this host",
        };
        let (what, advice) = choice.explain(host, port, &fault);
        if self.job.sources.iter().any(Place::is_endless) {
            let text = format!("{what}, and a test of the path needs one: {advice}");
            return Err(Fault { text, ..fault });
        }
        self.attempt.watch.warn(format!(
            "{what}: the data goes over the control connection, in one stream; {advice} for more"
        ));
        let mut line = self.line.clone();
        session.say(clock::now(), &Message::Carry);
        line.send(&Message::Carry)?;
        let streams = vec![carried(carry(&self.line, &self.carrier)?)];
        Ok(Opening { streams, carrier: Carrier::Control, dial: None, early })
    }

    /// Whoever cannot be reached may just have ended, or this side is being stopped: then its ports
    /// are not to blame. What else it says meanwhile is for the loop.
    fn listen_for_end(
        &self,
        session: &mut Session,
        events: &Receiver<Event>,
    ) -> Result<Vec<Message>, Fault> {
        // Its tickets are kept too: the reader waits where it is too much.
        let (mut early, mut tickets) = (Vec::new(), Vec::new());
        let until = clock::now().after(ENDS_WITHIN.into());
        while clock::now() < until {
            match events.recv_timeout(Duration::from_millis(20)) {
                Ok(Event::Heard(message)) => {
                    session.hear(clock::now(), &message)?;
                    match message {
                        Message::Stop(fault) => return Err(self.in_far_words(fault)),
                        Message::Ping => {}
                        message => early.push(message),
                    }
                }
                Ok(Event::Closed(fault)) => {
                    let gone = || Fault::new(Class::Unreachable, "the far side went away");
                    return Err(fault.unwrap_or_else(gone));
                }
                Ok(Event::Dealt(ticket)) => tickets.push(ticket),
                Ok(_) | Err(_) => {}
            }
            if self.attempt.watch.stopping() {
                return Err(Fault::interrupted());
            }
        }
        Ok(early)
    }
}

fn outcome(
    done: Done,
    job: &Job,
    watch: &Watch,
    carrier: Carrier,
    (streams, role, started): (u16, Role, Tick),
) -> Outcome {
    let reports: Vec<&SideReport> =
        std::iter::once(&done.report).chain(&done.peer_report).collect();
    let excluded = reports.iter().map(|side| side.excluded).sum();
    let free_bytes = reports.iter().find_map(|side| side.free_bytes);
    Outcome {
        files: done.files,
        directories: done.directories,
        failed: done.failed,
        kept: done.kept,
        excluded,
        dry: job.settings.dry_run.then_some(Room { free_bytes }),
        worst: done.worst,
        bytes: done.bytes,
        held_files: watch.gauge.files_held.load(Relaxed),
        resumed_bytes: watch.gauge.bytes_held.load(Relaxed),
        retries: 0,
        login: Nanos(0),
        elapsed: clock::now().since(started),
        streams,
        request_bytes: job.settings.request_bytes,
        carrier,
        near_is_source: role == Role::Source,
        near: done.report,
        far: done.peer_report,
        paths: done.paths,
    }
}
