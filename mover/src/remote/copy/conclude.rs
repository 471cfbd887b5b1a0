//! The last stage of a copy: its outcome, what to tell the user, and whether to try again.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::open::How;
use crate::io::clock;
use crate::pump::transfer::Done;
use crate::pump::watch::Watch;
use crate::wire::message::Role;
use base::fault::{Class, Fault};
use base::job::{Job, Location, Outcome};
use base::tally::SideReport;
use base::units::{Nanos, Tick};

/// The outcome of a run.
pub(super) fn outcome(done: Done, how: &How, watch: &Watch, started: Tick) -> Outcome {
    let reports: Vec<&SideReport> =
        std::iter::once(&done.report).chain(&done.peer_report).collect();
    let excluded = reports.iter().map(|side| side.excluded).sum();
    let room = reports.iter().map(|side| side.room).find(|room| room.free_bytes.is_some());
    Outcome {
        files: done.files,
        directories: done.directories,
        failed: done.failed,
        kept: done.kept,
        deleted: done.deleted,
        excluded,
        dry: how.settings.dry_run.then(|| room.unwrap_or_default()),
        worst: done.worst,
        bytes: done.bytes,
        held_files: watch.gauge.files_held.load(Relaxed),
        resumed_bytes: watch.gauge.bytes_held.load(Relaxed),
        retries: 0,
        login: how.login,
        elapsed: clock::now().since(started),
        streams: how.streams,
        request_bytes: how.settings.request_bytes,
        carrier: done.carrier,
        near_is_source: how.role == Role::Source,
        near: done.report,
        far: done.peer_report,
        paths: done.paths,
        stream_steps: done.stream_steps,
    }
}

/// How often a connection was restored after it was lost, and since when.
#[derive(Debug, Default)]
pub(super) struct Tries {
    pub lost_at: Option<Tick>,
    failed_in_a_row: u32,
    retries: u32,
    /// The least that was held here in the attempts that have asked about all: files and bytes.
    held_least: Option<(u64, u64)>,
    /// What was here before the first attempt, if that had asked about all; then nothing of the
    /// rest is of an earlier run.
    held_first: Option<(u64, u64)>,
    /// What the attempts have moved that lost their connection.
    moved: (u64, u64),
    /// How long the first of them took to be answered.
    login: Option<Nanos>,
}

impl Tries {
    /// An attempt has ended early; `opened` is set where both sides had agreed.
    pub(super) fn note(&mut self, opened: Option<Nanos>, watch: &Watch) {
        let Some(login) = opened else { return };
        let is_first = self.login.is_none();
        self.login.get_or_insert(login);
        let gauge = &watch.gauge;
        let held = (gauge.files_held.load(Relaxed), gauge.bytes_held.load(Relaxed));
        let done = (gauge.files_done.load(Relaxed), gauge.bytes_done.load(Relaxed));
        if gauge.answered.load(Relaxed) {
            let least = self.held_least.unwrap_or(held);
            self.held_least = Some((least.0.min(held.0), least.1.min(held.1)));
            self.held_first = if is_first { Some(held) } else { self.held_first };
        }
        self.moved.0 += done.0.saturating_sub(held.0);
        self.moved.1 += done.1.saturating_sub(held.1);
        // An attempt that moves nothing counts as a failed one.
        if self.lost_at.is_none() || done.0 > held.0 || done.1 > held.1 {
            self.lost_at = Some(clock::now());
            self.failed_in_a_row = 0;
        }
    }

    /// How long to wait before the next attempt; `None` when there is none. A connection that never
    /// worked is not tried again: its user is watching.
    pub(super) fn next(&mut self, retry_for: Nanos) -> Option<Duration> {
        let lost_at = self.lost_at?;
        if clock::now().since(lost_at) >= retry_for {
            return None;
        }
        let pause = Duration::from_millis(500 << self.failed_in_a_row.min(6));
        self.failed_in_a_row += 1;
        self.retries += 1;
        Some(pause)
    }

    pub(crate) fn add_to(&self, outcome: Outcome) -> Outcome {
        // Some of what is here in the end came in an earlier attempt: that was sent.
        let not_sent = |held: u64, moved: u64, least: Option<u64>, first: Option<u64>| match first {
            Some(first) => first.min(held),
            None => held.saturating_sub(moved).max(least.map_or(0, |least| least.min(held))),
        };
        let (least, first) = (self.held_least.unzip(), self.held_first.unzip());
        let held_files = not_sent(outcome.held_files, self.moved.0, least.0, first.0);
        let resumed_bytes = not_sent(outcome.resumed_bytes, self.moved.1, least.1, first.1);
        let login = self.login.unwrap_or(outcome.login);
        Outcome { retries: self.retries, held_files, resumed_bytes, login, ..outcome }
    }
}

/// A signal to a whole group may end ssh before it reaches this program.
pub(super) fn is_stopped(watch: &Watch) -> bool {
    wait(SIGNAL_WITHIN, watch);
    watch.stopping()
}

pub(super) fn wait(pause: Duration, watch: &Watch) {
    let until = clock::now().after(pause.into());
    while clock::now() < until && !watch.stopping() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// True when what has arrived can be found again: pipes cannot be read twice, an endless source
/// measures a time, which has passed, and of a range there is no journal.
pub(super) fn is_resumable(job: &Job) -> bool {
    let flows = |location: &Location| *location == Location::Stdio || location.is_endless();
    job.range.is_none() && !flows(&job.target) && !job.sources.iter().any(flows)
}

/// Adds a hint to a fault after which another run of the same command can resume.
pub(super) fn with_hint(fault: Fault, job: &Job) -> Fault {
    let resumes = matches!(
        fault.class,
        Class::Unreachable | Class::NoSpace | Class::Interrupted | Class::Corrupt
    );
    let is_kept = matches!(job.target, Location::Path(_) | Location::Object(_));
    let kept = is_kept && is_resumable(job);
    match resumes && kept {
        true => {
            let text = format!("{fault}; run the same command again to resume");
            Fault { text, ..fault }
        }
        false => fault,
    }
}

/// How long a signal that has ended ssh may take to arrive here.
const SIGNAL_WITHIN: Duration = Duration::from_millis(200);
