//! Whether the peer is alive, where messages alone do not tell.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Signs of life on the control connection besides messages: data that it carries, and is being
/// handed on while nothing else can be read.
#[derive(Debug, Default)]
pub struct Pulse {
    came: AtomicBool,
    handing_on: AtomicBool,
}

impl Pulse {
    /// Does something with carried data; it may take as long as the sink likes.
    pub(crate) fn hand_on(&self, work: impl FnOnce()) {
        self.came.store(true, Relaxed);
        self.handing_on.store(true, Relaxed);
        work();
        self.handing_on.store(false, Relaxed);
    }

    /// True when anything was seen since this was asked last.
    pub(crate) fn is_peer_active(&self) -> bool {
        self.came.swap(false, Relaxed) | self.handing_on.load(Relaxed)
    }
}
