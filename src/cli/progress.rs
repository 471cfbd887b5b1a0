//! Follows a running transfer: prints its messages, shows its progress, writes the receipt.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::console::Console;
use super::order::{Amount, Form};
use super::refusals::Refusals;
use analysis::model::shape::Shape;
use analysis::predict::Prediction;
use analysis::record::copy_record::Series;
use analysis::record::sample::{Environment, StreamStep};
use analysis::report::compare::{self, Compared, Difference};
use analysis::report::escape;
use analysis::report::files::{self, Direction, Dry};
use analysis::report::json::{self, Event};
use analysis::report::live::{self, Meter, Phase, Seen, Walk};
use base::extra::ExtraSums;
use base::fault::{Class, Fault};
use base::job::{FileKind, Notice, StreamPath};
use base::reason::Changes;
use base::units::Nanos;
use mover::pump::watch::{Pending, Watch};
use mover::receipt::Receipt;

/// A transfer's watch, and the thread that follows it.
#[derive(Debug)]
pub(crate) struct Followed {
    pub watch: Arc<Watch>,
    over: Arc<AtomicBool>,
    thread: JoinHandle<Collected>,
}

/// What was collected until the end.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    /// The first failures, for the end of a JSON run.
    pub failed: Vec<(Vec<u8>, Fault)>,
    pub failed_count: u64,
    /// The digests of finished files, or why they could not be written.
    pub receipt: Option<Result<Receipt, Fault>>,
    /// Bytes at their destination, over time.
    pub series: Series,
    /// How two trees differ, where they are compared.
    pub compared: Compared,
    /// How many that is of files whose contents are equal.
    pub adjusted: u64,
    /// What was copied, or would be.
    pub shape: Shape,
    /// What was expected of it.
    pub expected: Option<Prediction>,
    /// This host's, where it was read while the copy ran.
    pub environment: Option<Environment>,
}

/// Starts to follow. `first` is the phase shown until the transfer has found something.
/// Samples of streams are sent on, if somebody wants them.
pub(super) fn follow(
    console: &Arc<Console>,
    first: Phase,
    receipt: Option<Receipt>,
    paths: Option<Sender<StreamPath>>,
) -> Followed {
    let (sender, notices) = mpsc::channel();
    let watch = Watch::new(sender).gathering();
    let watch = Arc::new(match paths {
        Some(paths) => watch.with_paths(paths),
        None => watch,
    });
    let over = Arc::new(AtomicBool::new(false));
    // Zero at the start, so that the first sample has a rate.
    let before = Seen { first, ..Seen::default() };
    let mut meter = Meter::default();
    meter.see(&before);
    let follower = Follower {
        console: Arc::clone(console),
        watch: Arc::downgrade(&watch),
        pending: watch.pending(),
        over: Arc::clone(&over),
        first,
        meter,
        before,
        interval: interval(console),
        connected_at: None,
        moved_before: 0,
        last_moved: 0,
        collected: Collected { receipt: receipt.map(Ok), ..Collected::default() },
        refusals: Refusals::default(),
    };
    let thread = thread::spawn(move || follower.run(&notices));
    Followed { watch, over, thread }
}

impl Followed {
    /// Waits until all notices were handled.
    pub(super) fn finish(self) -> Collected {
        let Followed { watch, over, thread } = self;
        over.store(true, Relaxed);
        // Usually no other thread holds the watch: then its notices end here, and this thread need
        // not wait.
        drop(watch);
        let panicked = || {
            let fault = Fault::new(Class::Local, "the thread that shows progress panicked");
            Collected { receipt: Some(Err(fault)), ..Collected::default() }
        };
        thread.join().unwrap_or_else(|_| panicked())
    }
}

/// How often a line is printed; `None` for never.
fn interval(console: &Console) -> Option<Nanos> {
    let show = console.show();
    match (show.interval, show.form, show.amount) {
        (_, _, Amount::Quiet) => None,
        (Some(interval), _, _) => Some(interval),
        (None, Form::Json, _) => Some(JSON_INTERVAL),
        (None, Form::Text, _) if console.has_line() => None,
        (None, Form::Text, _) => Some(PLAIN_INTERVAL),
    }
}

struct Follower {
    console: Arc<Console>,
    watch: Weak<Watch>,
    pending: Arc<Pending>,
    /// Set when the transfer has returned, in case something still holds its watch.
    over: Arc<AtomicBool>,
    first: Phase,
    meter: Meter,
    /// At the end of the last interval.
    before: Seen,
    interval: Option<Nanos>,
    /// When the first phase of connecting ended.
    connected_at: Option<Nanos>,
    /// What moved before a connection was lost.
    moved_before: u64,
    /// At the last sample.
    last_moved: u64,
    collected: Collected,
    refusals: Refusals,
}

impl Follower {
    fn run(mut self, notices: &Receiver<Notice>) -> Collected {
        let mut next_look = Instant::now() + LOOK_EVERY;
        loop {
            match notices.recv_timeout(next_look.saturating_duration_since(Instant::now())) {
                Ok(notice) => {
                    self.pending.heard(&notice);
                    self.hear(notice);
                }
                Err(RecvTimeoutError::Timeout) if self.over.load(Relaxed) => {
                    self.hear_rest(notices);
                    break;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if Instant::now() >= next_look {
                self.look();
                next_look = Instant::now() + LOOK_EVERY;
            }
        }
        self.console.clear();
        self.refusals.rest().for_each(|text| self.console.error(&text));
        let unheard = self.pending.unheard();
        if unheard > 0 {
            self.console.warning(&format!("{unheard} more warnings and errors were not shown"));
        }
        self.collected
    }

    /// Hears what was sent, and gathered, until now: something may still hold the watch.
    fn hear_rest(&mut self, notices: &Receiver<Notice>) {
        let held = self.watch.upgrade().map(|watch| watch.flush());
        let next = || match held {
            Some(()) => notices.try_recv().ok(),
            // It is being dropped, which sends the rest and ends the notices.
            None => notices.recv().ok(),
        };
        while let Some(notice) = next() {
            self.pending.heard(&notice);
            self.hear(notice);
        }
    }

    fn hear(&mut self, notice: Notice) {
        match notice {
            Notice::Warning(text) => self.console.warning(&text),
            Notice::Again(text) => {
                self.console.warning(&text);
                self.start_over();
            }
            Notice::FileDone { path, kind, bytes, reason, digest, extra } => {
                self.note_shape(kind, bytes);
                let done = (&path[..], kind, bytes, reason);
                let line = |direction| files::itemized(direction, &path, bytes, reason);
                self.show(Dry::No, &|| json::file_done(done, digest.as_deref(), &extra), &line);
                if kind != FileKind::SymbolicLink {
                    self.note(&path, digest.as_deref(), &extra);
                }
            }
            Notice::WouldCopy { path, reason, .. } if self.compares() => {
                self.show_difference(&path, Difference::of(reason));
            }
            Notice::WouldAdjust { path, changes } if self.compares() => {
                self.collected.adjusted += 1;
                self.show_difference(&path, Difference::Differs(changes));
            }
            Notice::WouldDelete { path } if self.compares() => {
                self.show_difference(&path, Difference::OnlyInB);
            }
            Notice::WouldCopy { path, kind, bytes, reason } => {
                self.note_shape(kind, bytes);
                let line = |direction| files::itemized(direction, &path, bytes, Some(reason));
                self.show(Dry::Yes, &|| json::would_copy(&path, kind, bytes, reason), &line);
            }
            Notice::Adjusted { path, changes } => self.show_adjusted(&path, changes, Dry::No),
            Notice::WouldAdjust { path, changes } => self.show_adjusted(&path, changes, Dry::Yes),
            Notice::Deleted { path } => self.show_deleted(&path, Dry::No),
            Notice::WouldDelete { path } => self.show_deleted(&path, Dry::Yes),
            Notice::Streams(step) => {
                self.console.event(&Event::StreamsStep(StreamStep::of(&step)));
            }
            Notice::FileFailed { path, fault } => {
                self.console.event(&json::file_failed(&path, &fault));
                let text = files::failed(&path, &fault);
                match self.console.shows_all_errors() || self.refusals.is_named(&text) {
                    true => self.console.error(&text),
                    false => self.console.error_of_many(&text),
                }
                self.collected.failed_count += 1;
                if self.collected.failed.len() < FAILED_KEPT {
                    self.collected.failed.push((path, fault));
                }
            }
        }
    }

    /// The sizes of files, by which a later copy is predicted: links have none.
    fn note_shape(&mut self, kind: FileKind, bytes: u64) {
        if kind == FileKind::File {
            self.collected.shape.add(bytes);
        }
    }

    /// Many files come in a second, and few runs show them: nothing is made that is not shown. A
    /// dry run is made to see them.
    fn show(&self, dry: Dry, event: &dyn Fn() -> Event, line: &dyn Fn(Direction) -> String) {
        let show = self.console.show();
        if show.form == Form::Json && show.amount >= Amount::Usual {
            self.console.event(&event());
        }
        match dry {
            Dry::Yes => self.console.summary(&escape::line(&line(show.direction))),
            Dry::No if self.console.shows_files() => self.console.file(&line(show.direction)),
            Dry::No => {}
        }
    }

    fn compares(&self) -> bool {
        self.console.show().direction == Direction::Compared
    }

    fn show_difference(&mut self, path: &[u8], difference: Difference) {
        self.collected.compared.add(difference);
        let line = |_| compare::line(path, difference);
        self.show(Dry::Yes, &|| json::difference(path, difference), &line);
    }

    fn show_deleted(&self, path: &[u8], dry: Dry) {
        self.show(dry, &|| json::deleted(path, dry), &|_| files::deleted(path));
    }

    fn show_adjusted(&self, path: &[u8], changes: Changes, dry: Dry) {
        self.show(dry, &|| json::adjusted(path, changes, dry), &|_| files::adjusted(path, changes));
    }

    /// The next attempt reports every file again.
    fn start_over(&mut self) {
        self.collected.failed.clear();
        self.collected.failed_count = 0;
        self.refusals = Refusals::default();
        self.collected.series = Series::default();
        self.collected.shape = Shape::default();
        if let Some(Ok(receipt)) = &mut self.collected.receipt
            && let Err(fault) = receipt.restart()
        {
            self.console.warning(&fault.text);
            self.collected.receipt = Some(Err(fault));
        }
        // The gauges start at zero again: bytes moved before say nothing about the rate.
        self.first = Phase::Reconnecting;
        self.moved_before += std::mem::take(&mut self.last_moved);
        self.before = Seen {
            at: self.console.started().elapsed().into(),
            first: self.first,
            ..Seen::default()
        };
        self.meter = Meter::default();
        self.meter.see(&self.before);
    }

    /// Adds a file to the receipt. The first failure ends the receipt, not the transfer.
    fn note(&mut self, path: &[u8], digest: Option<&str>, extra: &ExtraSums) {
        if let Some(Ok(receipt)) = &mut self.collected.receipt
            && let Err(fault) = receipt.add(path, digest, extra)
        {
            self.console.warning(&fault.text);
            self.collected.receipt = Some(Err(fault));
        }
    }

    fn look(&mut self) {
        let Some(watch) = self.watch.upgrade() else {
            return;
        };
        watch.flush();
        let seen = self.seen(&watch);
        if seen.phase() != Phase::Connecting {
            self.connected_at.get_or_insert(seen.at);
        }
        self.last_moved = seen.moved();
        self.collected.series.add(seen.at, seen.bytes_done.saturating_sub(seen.bytes_held));
        self.meter.see(&seen);
        // Not while connecting: ssh may be asking for a password on the same line.
        if self.console.has_line() && seen.phase() != Phase::Connecting {
            self.console.draw(live::line(&seen, &self.meter, self.console.columns()));
        }
        if self.interval.is_some_and(|interval| seen.at - self.before.at >= interval) {
            match self.console.show().form {
                Form::Json => self.console.event(&json::progress(&seen, &self.meter)),
                Form::Text => self.console.remark(&live::interval_line(&self.before, &seen)),
            }
            self.before = seen;
        }
    }

    fn seen(&self, watch: &Watch) -> Seen {
        let gauge = &watch.gauge;
        let at = self.console.started().elapsed().into();
        Seen {
            at,
            bytes_done: gauge.bytes_done.load(Relaxed),
            bytes_held: gauge.bytes_held.load(Relaxed),
            bytes_found: gauge.bytes_found.load(Relaxed),
            files_done: gauge.files_done.load(Relaxed),
            files_found: gauge.files_found.load(Relaxed),
            walk: match (gauge.endless.load(Relaxed), gauge.walk_done.load(Relaxed)) {
                (true, _) => Walk::Endless,
                (false, true) => Walk::Done,
                (false, false) => Walk::Looking,
            },
            first: self.first,
            connected_at: self.connected_at.unwrap_or(at),
            moved_before: self.moved_before,
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(100);
const JSON_INTERVAL: Nanos = Nanos::from_millis(1000);
/// Without a terminal; shorter runs print none.
const PLAIN_INTERVAL: Nanos = Nanos::from_millis(10_000);
/// Failures that are kept for the list at the end.
const FAILED_KEPT: usize = 1000;
