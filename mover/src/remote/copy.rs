//! A whole copy as the user asked for it, in four stages that pass a value on: *resolve* what is
//! meant, *open* both ends, *run*, and *conclude*. Copies on one host and between two differ only
//! in how they are opened.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use self::conclude::{Tries, is_resumable, is_stopped, outcome, wait, with_hint};
use self::far::Near;
use self::open::Opened;
use self::resolve::{Resolved, near_sources, resolve, with_requests_for, with_streams_for};
use super::control::{Carrier as CarrierSlot, ControlLine, Noise, start_reader};
use super::launch::{LEAVES_WITHIN, Launch, Login};
use super::tunnel::Tunnel;
use crate::io::clock;
use crate::io::reach::Reach;
use crate::pump::run::{self, start_walk};
use crate::pump::watch::Watch;
use crate::wire::message::Role;
use base::fault::{Class, Fault};
use base::job::{Job, Outcome};
use base::units::{Nanos, Tick};

mod conclude;
mod far;
mod open;
mod part_size;
mod resolve;

/// Runs a copy to its end.
///
/// ```
/// # use std::sync::{Arc, mpsc::channel};
/// use base::job::{Job, Location, Remote};
/// use base::settings::Settings;
/// use mover::pump::watch::Watch;
///
/// let folder = tempfile::tempdir()?;
/// let job = Job {
///     sources: vec![Location::Random { len: 1 << 20, seed: 7 }],
///     source_host: None,
///     target: Location::Path(folder.path().join("data")),
///     target_host: None, // or Some("user@host"), as ssh takes it
///     listed: None,
///     range: None,
///     settings: Settings { streams: 2, ..Settings::default() },
///     remote: Remote::default(),
/// };
/// let (notices, told) = channel(); // files that failed, and warnings
/// let outcome = mover::remote::copy::run(&job, &Arc::new(Watch::new(notices)))?;
/// assert_eq!((outcome.files, outcome.bytes, outcome.failed), (1, 1 << 20, 0));
/// assert_eq!(folder.path().join("data").metadata()?.len(), 1 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn run(job: &Job, watch: &Arc<Watch>) -> Result<Outcome, Fault> {
    run_in(job, &Reach::Host, watch)
}

/// The same, where the ends on this host may be in object stores too.
pub fn run_in(job: &Job, reach: &Reach, watch: &Arc<Watch>) -> Result<Outcome, Fault> {
    let started = clock::now();
    if let Reach::Stores(stores) = reach {
        let (stopped, refused) = (watch.clone(), watch.clone());
        stores.stop_when(Arc::new(move || stopped.stopping()));
        stores.when_refused(Arc::new(move |fault| refused.refuse(fault)));
    }
    let job = &with_requests_for(job);
    let host = match (&job.source_host, &job.target_host) {
        (None, None) => {
            let resolved = resolve(job, false, reach)?;
            let opened = open::here(&resolved, watch)?;
            return carry_out(opened, watch, started).map_err(|fault| with_hint(fault, job));
        }
        (Some(host), None) | (None, Some(host)) => host.clone(),
        (Some(_), Some(_)) => {
            return Err(Fault::usage("from host to host is not possible yet: copy through here"));
        }
    };
    let launch = Launch::Ssh { host, remote: job.remote.clone() };
    run_far(job, (&launch, None), (reach, watch), started)
}

/// Copies to or from a host, over a login to it that is there already.
pub fn run_over(
    job: &Job,
    host: &str,
    tunnel: &dyn Tunnel,
    watch: &Arc<Watch>,
) -> Result<Outcome, Fault> {
    let started = clock::now();
    let job = &with_requests_for(job);
    let launch = Launch::Ssh { host: host.to_string(), remote: job.remote.clone() };
    run_far(job, (&launch, Some(tunnel)), (&Reach::Host, watch), started)
}

/// Copies with a far side that is started in the given way; again where its connection is lost and
/// what has arrived can be resumed.
pub fn run_with(
    job: &Job,
    launch: &Launch,
    watch: &Arc<Watch>,
    started: Tick,
) -> Result<Outcome, Fault> {
    run_far(job, (launch, None), (&Reach::Host, watch), started)
}

fn run_far(
    job: &Job,
    (launch, tunnel): (&Launch, Option<&dyn Tunnel>),
    (reach, watch): (&Reach, &Arc<Watch>),
    started: Tick,
) -> Result<Outcome, Fault> {
    let resolved = &resolve(job, true, reach)?;
    let mut tries = Tries::default();
    loop {
        let login = if tries.lost_at.is_some() { Login::Again } else { Login::First };
        let opened = &Cell::new(None);
        let attempt = Attempt { resolved, launch, tunnel, watch, started, login, opened };
        let fault = match attempt.run() {
            Ok(outcome) => return Ok(tries.add_to(outcome)),
            Err(fault) => fault,
        };
        tries.note(opened.get(), watch);
        // A copy that was never connected has nothing to resume.
        let has_begun = opened.get().is_some() || tries.lost_at.is_some();
        let with_hint = |fault| if has_begun { with_hint(fault, job) } else { fault };
        let lost = fault.class == Class::Unreachable;
        if lost && is_stopped(watch) {
            return Err(with_hint(Fault::interrupted()));
        }
        if !lost || !is_resumable(job) {
            return Err(with_hint(fault));
        }
        match tries.next(job.remote.retry_for) {
            Some(pause) => {
                let text = format!("{fault}: trying again, from what has arrived");
                watch.begin_again(text);
                wait(pause, watch);
            }
            None => return Err(with_hint(fault)),
        }
    }
}

/// The last two stages.
fn carry_out(opened: Opened, watch: &Watch, started: Tick) -> Result<Outcome, Fault> {
    let Opened { part, how } = opened;
    let done = run::run(part)?;
    Ok(outcome(done, &how, watch, started))
}

/// One login and what follows.
struct Attempt<'a> {
    resolved: &'a Resolved,
    launch: &'a Launch,
    /// The login, if it is there already.
    tunnel: Option<&'a dyn Tunnel>,
    watch: &'a Arc<Watch>,
    started: Tick,
    login: Login,
    /// The time from the start of the copy until both sides had agreed.
    opened: &'a Cell<Option<Nanos>>,
}

impl Attempt<'_> {
    fn run(&self) -> Result<Outcome, Fault> {
        let Resolved { job, names, reach, .. } = self.resolved;
        let role = if job.source_host.is_some() { Role::Sink } else { Role::Source };
        let sources = match role {
            Role::Source => Some(near_sources(job, names.as_ref(), reach)?),
            Role::Sink => None,
        };
        let job = &with_streams_for(job, sources.as_ref());
        let (events_in, events) = channel();
        // While the user logs in, the walk begins.
        let source = sources
            .map(|sources| (sources.origin, start_walk(sources, &job.settings, events_in.clone())));
        let tell = self.watch.clone();
        let (mut launched, stdin, stdout) = match self.tunnel {
            Some(tunnel) => self.launch.start_over(tunnel)?,
            None => self.launch.start(self.login, move |line| tell.warn(line))?,
        };
        let carrier = CarrierSlot::default();
        let line = ControlLine::new(stdin, carrier.clone());
        start_reader(stdout, Noise::UntilMark, events_in.clone(), carrier.clone(), || {});
        let near = Near { job, attempt: self, role, line: line.clone(), carrier, events_in };
        let opened = near.open(source, events, &mut launched);
        let outcome = opened.and_then(|opened| carry_out(opened, self.watch, self.started));
        let patience = if outcome.is_ok() { LAST_WORD_WITHIN } else { LEAVES_WITHIN };
        let heard_all = match line.close_within(WRITTEN_WITHIN) {
            true => launched.end(patience),
            false => {
                launched.cut(); // it reads nothing: what is queued is of no use now
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

/// How long a side that ends waits for its queue to be written, until ssh is ended too.
const WRITTEN_WITHIN: Duration = Duration::from_millis(300);
/// How long a far side may take to end after it was told that all is done, on a path with loss.
const LAST_WORD_WITHIN: Duration = Duration::from_secs(5);
