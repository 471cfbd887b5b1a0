//! What others see of a running transfer, and how they ask it to stop, or to keep to another rate.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use base::fault::Fault;
use base::job::{Notice, StreamPath};
use base::units::Rate;

/// Counters that lanes and sessions add to; a progress display reads them at its own pace.
#[derive(Debug, Default)]
pub struct Gauge {
    /// Payload bytes that have arrived: written, or taken by null.
    pub bytes_done: AtomicU64,
    /// Those of them that an earlier run has left: they were not moved now.
    pub bytes_held: AtomicU64,
    /// Bytes found by the walk so far; final once `walk_done`.
    pub bytes_found: AtomicU64,
    pub files_held: AtomicU64,
    pub files_done: AtomicU64,
    pub files_found: AtomicU64,
    pub walk_done: AtomicBool,
    /// The sink has answered for all of them what it has already.
    pub answered: AtomicBool,
    /// True where the size is not known beforehand (a pipe).
    pub endless: AtomicBool,
}

/// Warnings and failures that have been sent and not received yet. A peer can send them faster than
/// they are printed: above a limit they are only counted.
#[derive(Debug, Default)]
pub struct Pending {
    bytes: AtomicU64,
    unheard: AtomicU64,
}

impl Pending {
    /// The receiver has taken this one.
    pub fn heard(&self, notice: &Notice) {
        self.bytes.fetch_sub(words_bytes(notice), Relaxed);
    }

    /// How many were counted and not sent.
    pub fn unheard(&self) -> u64 {
        self.unheard.load(Relaxed)
    }

    fn has_room(&self, notice: &Notice) -> bool {
        let bytes = words_bytes(notice);
        let before = self.bytes.fetch_add(bytes, Relaxed);
        let fits = bytes == 0 || before + bytes <= PENDING_BYTES_MAX;
        if !fits {
            self.bytes.fetch_sub(bytes, Relaxed);
            self.unheard.fetch_add(1, Relaxed);
        }
        fits
    }
}

/// What a peer's texts take in the queue; nothing for what counts against the credit of offers.
fn words_bytes(notice: &Notice) -> u64 {
    let words = match notice {
        Notice::Warning(text) => text.len(),
        Notice::FileFailed { path, fault } => path.len() + fault.text.len(),
        Notice::Deleted { path }
        | Notice::WouldDelete { path }
        | Notice::Adjusted { path, .. }
        | Notice::WouldAdjust { path, .. } => path.len(),
        Notice::Again(_)
        | Notice::FileDone { .. }
        | Notice::WouldCopy { .. }
        | Notice::Streams(_) => return 0,
    };
    (words + size_of::<Notice>()) as u64
}

const PENDING_BYTES_MAX: u64 = 8 << 20;
/// Files that are gathered.
const GATHERED_MAX: usize = 256;

/// No rate has been asked for while the transfer ran.
const NO_CHANGE: u64 = 0;
const NO_LIMIT: u64 = u64::MAX;

/// Where notices go.
#[derive(Debug)]
struct Notices {
    sender: Sender<Notice>,
    /// Files that are done and not sent yet: a receiver that waits is woken once for all of them.
    gathered: Vec<Notice>,
    /// As many as that are sent; 1 where nothing is gathered.
    gathered_max: usize,
}

impl Notices {
    /// It is no error if nothing receives them.
    fn send(&mut self, notice: Notice) {
        let is_file = matches!(notice, Notice::FileDone { .. } | Notice::Deleted { .. });
        self.gathered.push(notice);
        if !is_file || self.gathered.len() >= self.gathered_max {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.gathered.drain(..).for_each(|notice| drop(self.sender.send(notice)));
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Shared between a transfer and its observers.
#[derive(Debug)]
pub struct Watch {
    pub gauge: Gauge,
    stop: AtomicBool,
    /// Why nothing more can be done.
    refused: OnceLock<Fault>,
    enough: AtomicBool,
    /// The limit that was asked for last, in bytes a second: `NO_CHANGE`, `NO_LIMIT`, or that many.
    limit: AtomicU64,
    notices: Mutex<Notices>,
    pending: Arc<Pending>,
    /// Where samples of data streams are sent at once, if they are wanted.
    paths: Option<Sender<StreamPath>>,
}

impl Watch {
    pub fn new(notices: Sender<Notice>) -> Watch {
        Watch {
            gauge: Gauge::default(),
            stop: AtomicBool::new(false),
            refused: OnceLock::new(),
            enough: AtomicBool::new(false),
            limit: AtomicU64::new(NO_CHANGE),
            notices: Mutex::new(Notices { sender: notices, gathered: Vec::new(), gathered_max: 1 }),
            pending: Arc::default(),
            paths: None,
        }
    }

    /// Sends samples of data streams also while the transfer runs, a part of each stream's at a
    /// time.
    pub fn with_paths(self, paths: Sender<StreamPath>) -> Watch {
        Watch { paths: Some(paths), ..self }
    }

    /// Sends files that are done many at a time; `flush` sends the rest, as does what is no such
    /// notice, and the end.
    pub fn gathering(mut self) -> Watch {
        let notices = self.notices.get_mut().unwrap_or_else(PoisonError::into_inner);
        notices.gathered_max = GATHERED_MAX;
        self
    }

    /// Sends a notice to the user, after all before it.
    pub fn tell(&self, notice: Notice) {
        if self.pending.has_room(&notice) {
            self.lock().send(notice);
        }
    }

    /// Sends what has been gathered.
    pub fn flush(&self) {
        self.lock().flush();
    }

    fn lock(&self) -> MutexGuard<'_, Notices> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the receiver counts down.
    pub fn pending(&self) -> Arc<Pending> {
        self.pending.clone()
    }

    pub fn warn(&self, text: impl Into<String>) {
        self.tell(Notice::Warning(text.into()));
    }

    /// A transfer starts over after its connection was lost: counts start from zero.
    pub(crate) fn begin_again(&self, text: String) {
        let gauge = &self.gauge;
        for count in [
            &gauge.bytes_done,
            &gauge.bytes_found,
            &gauge.bytes_held,
            &gauge.files_held,
            &gauge.files_done,
            &gauge.files_found,
        ] {
            count.store(0, Relaxed);
        }
        gauge.walk_done.store(false, Relaxed);
        gauge.answered.store(false, Relaxed);
        self.tell(Notice::Again(text));
    }

    /// Asks the transfer to stop; it ends with `Fault::interrupted` within a second.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Asks an endless source to end: the transfer then succeeds, with all that has been sent.
    pub fn enough(&self) {
        self.enough.store(true, Relaxed);
    }

    pub(crate) fn is_enough(&self) -> bool {
        self.enough.load(Relaxed)
    }

    /// Asks the transfer to keep to another rate than its settings say, or to none.
    pub fn limit(&self, rate: Option<Rate>) {
        let bytes_per_second = rate.map_or(NO_LIMIT, |rate| (rate.bytes_per_second as u64).max(1));
        self.limit.store(bytes_per_second, Relaxed);
    }

    /// What was asked for last, if anything was.
    pub fn limit_asked(&self) -> Option<Option<Rate>> {
        match self.limit.load(Relaxed) {
            NO_CHANGE => None,
            NO_LIMIT => Some(None),
            bytes => Some(Some(Rate { bytes_per_second: bytes as f64 })),
        }
    }

    /// Sends samples of data streams, which are collected only where they are wanted.
    pub fn show<P: IntoIterator<Item = StreamPath>>(&self, seen: impl FnOnce() -> P) {
        if let Some(paths) = &self.paths {
            seen().into_iter().for_each(|path| drop(paths.send(path)));
        }
    }

    pub fn stopping(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Whatever is tried next would fail for this reason too: the transfer ends with it.
    pub fn refuse(&self, fault: &Fault) {
        let _ = self.refused.set(fault.clone());
    }

    pub fn refused(&self) -> Option<&Fault> {
        self.refused.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::extra::ExtraSums;
    use base::job::FileKind;
    use base::reason::Reason;
    use std::sync::mpsc::channel;

    #[test]
    fn a_flood_of_words_is_counted_and_not_kept() {
        let (notices, told) = channel();
        let watch = Watch::new(notices);
        let flood = 100_000;
        (0..flood).for_each(|_| watch.warn("w".repeat(1000)));
        let extra = ExtraSums::default();
        let kind = FileKind::File;
        let reason = Some(Reason::New);
        let path = Vec::new();
        watch.tell(Notice::FileDone { path, kind, bytes: 1, reason, digest: None, extra });
        let pending = watch.pending();
        let kept: Vec<Notice> = told.try_iter().collect();
        let bytes: u64 = kept.iter().map(words_bytes).sum();
        assert!(bytes <= PENDING_BYTES_MAX && bytes > PENDING_BYTES_MAX / 2, "{bytes}");
        assert_eq!(kept.len() as u64 + pending.unheard(), flood + 1);
        assert!(matches!(kept.last(), Some(Notice::FileDone { .. })), "what is done is told");
        kept.iter().for_each(|notice| pending.heard(notice));
        watch.warn("again");
        assert_eq!(told.try_iter().count(), 1, "there is room again");
    }

    /// Gathered or not, the same is heard in the same order; only files that are done wait, and not
    /// beyond a flush or the end.
    #[test]
    fn what_is_gathered_is_heard_in_order() {
        let (kind, extra) = (FileKind::File, ExtraSums::NONE);
        let done = |n: usize| Notice::FileDone {
            path: vec![n as u8],
            kind,
            bytes: 1,
            reason: Some(Reason::New),
            digest: None,
            extra,
        };
        let warning = Notice::Warning("w".into());
        let cases: [(&[Notice], usize); 5] = [
            (&[], 0),
            (&[done(1)], 0),
            (&[done(1), warning.clone()], 2),
            (&[done(1), warning.clone(), done(2), done(3)], 2),
            (&(0..GATHERED_MAX + 2).map(done).collect::<Vec<_>>(), GATHERED_MAX),
        ];
        for (told, heard_at_once) in cases {
            for ends_by_flush in [true, false] {
                let (notices, heard) = channel();
                let watch = Watch::new(notices).gathering();
                told.iter().for_each(|notice| watch.tell(notice.clone()));
                let mut all: Vec<Notice> = heard.try_iter().collect();
                assert_eq!(all.len(), heard_at_once, "{told:?}");
                if ends_by_flush {
                    watch.flush();
                } else {
                    drop(watch);
                }
                all.extend(heard.try_iter());
                assert_eq!(all, told);
            }
        }
    }
}
