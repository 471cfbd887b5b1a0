//! Whether the peer is alive, where messages alone do not show it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Signs of life on the control connection besides messages: data that it carries, also while this
/// is passed on and nothing else can be read.
#[derive(Debug, Default)]
pub struct PeerActivity {
    came: AtomicBool,
    handing_on: AtomicBool,
}

impl PeerActivity {
    /// Passes on carried data; that may take as long as the sink needs.
    pub(crate) fn hand_on<T>(&self, work: impl FnOnce() -> T) -> T {
        self.came.store(true, Relaxed);
        self.handing_on.store(true, Relaxed);
        let done = work();
        self.handing_on.store(false, Relaxed);
        done
    }

    /// True when there was any sign since the last call.
    pub(crate) fn is_peer_active(&self) -> bool {
        self.came.swap(false, Relaxed) | self.handing_on.load(Relaxed)
    }
}
