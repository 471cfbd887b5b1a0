//! What the outside sees of a running transfer, and how it asks it to stop.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

use crate::base::job::{Notice, StreamPath};

/// Counters that lanes and sessions add to; whoever shows progress reads them at its own pace.
#[derive(Debug, Default)]
pub struct Gauge {
    /// Payload bytes that are where they belong: written, or taken by null.
    pub bytes_done: AtomicU64,
    /// Those of them that an earlier run has left: they did not move now.
    pub bytes_held: AtomicU64,
    /// Bytes found by the walk so far; final once `walk_done`.
    pub bytes_found: AtomicU64,
    pub files_held: AtomicU64,
    pub files_done: AtomicU64,
    pub files_found: AtomicU64,
    pub walk_done: AtomicBool,
    /// True once the size is not known beforehand (a pipe).
    pub endless: AtomicBool,
}

/// Shared between a transfer and whoever watches it.
#[derive(Debug)]
pub struct Watch {
    pub gauge: Gauge,
    stop: AtomicBool,
    enough: AtomicBool,
    notices: Mutex<Sender<Notice>>,
    /// Where what is seen of data streams goes at once, if somebody wants that.
    paths: Option<Sender<StreamPath>>,
}

impl Watch {
    pub fn new(notices: Sender<Notice>) -> Watch {
        Watch {
            gauge: Gauge::default(),
            stop: AtomicBool::new(false),
            enough: AtomicBool::new(false),
            notices: Mutex::new(notices),
            paths: None,
        }
    }

    /// What is seen of data streams is also told while the transfer runs, a part of each stream's
    /// samples at a time.
    pub fn with_paths(self, paths: Sender<StreamPath>) -> Watch {
        Watch { paths: Some(paths), ..self }
    }

    /// Tells people something. Nobody listening is no error.
    pub fn tell(&self, notice: Notice) {
        let notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = notices.send(notice);
    }

    pub fn warn(&self, text: impl Into<String>) {
        self.tell(Notice::Warning(text.into()));
    }

    /// A transfer begins again after its connection was lost: counts from the start.
    pub fn begin_again(&self, text: String) {
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
        self.tell(Notice::Again(text));
    }

    /// Asks the transfer to stop; it ends with `Fault::interrupted` within a second.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Asks an endless source to end: the transfer then ends well, with all that has been sent.
    pub fn enough(&self) {
        self.enough.store(true, Relaxed);
    }

    pub fn is_enough(&self) -> bool {
        self.enough.load(Relaxed)
    }

    /// Tells what was seen of data streams, which is made only where somebody wants it.
    pub fn show<P: IntoIterator<Item = StreamPath>>(&self, seen: impl FnOnce() -> P) {
        if let Some(paths) = &self.paths {
            seen().into_iter().for_each(|path| drop(paths.send(path)));
        }
    }

    pub fn stopping(&self) -> bool {
        self.stop.load(Relaxed)
    }
}
