//! Another user with rights in a folder, who replaces one name in it by another and back, as fast
//! as possible.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

/// Exchanges two names until it is told to stop.
pub(crate) struct Swapper {
    stop: Arc<AtomicBool>,
    swaps: Arc<AtomicU64>,
    thread: thread::JoinHandle<()>,
}

impl Swapper {
    /// One of them may come and go meanwhile.
    pub(crate) fn start(one: PathBuf, other: PathBuf) -> Swapper {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let swaps = Arc::new(AtomicU64::new(0));
        let counted = swaps.clone();
        let thread = thread::spawn(move || {
            while !stopped.load(SeqCst) {
                let swaps = match renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE) {
                    Ok(()) => 1 + counted.fetch_add(1, SeqCst),
                    Err(Errno::NOENT) => counted.load(SeqCst),
                    Err(errno) => panic!("{one:?} and {other:?}: {errno}"),
                };
                // A moment for the copy, of another length each time.
                thread::sleep(Duration::from_micros(swaps * 37 % 400));
            }
        });
        Swapper { stop, swaps, thread }
    }

    pub(crate) fn swaps(&self) -> u64 {
        self.swaps.load(SeqCst)
    }

    pub(crate) fn stop(self) {
        self.stop.store(true, SeqCst);
        self.thread.join().unwrap();
    }
}
