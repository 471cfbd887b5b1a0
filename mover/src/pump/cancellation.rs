//! Stops everything at once: every wait in a transfer is for something that this reaches.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::io::backend::Wake;
use crate::io::tcp;
use crate::io::volume::Handle;
use base::fault::Fault;

/// The first fault of a transfer's side, and what it must interrupt.
#[derive(Debug, Default)]
pub struct Cancellation {
    cancelled: AtomicBool,
    state: Mutex<State>,
    /// Rung when something changes that an idle lane may be waiting for.
    pub bell: Bell,
}

#[derive(Debug, Default)]
struct State {
    fault: Option<Fault>,
    sockets: Vec<Handle>,
    lanes: Vec<Arc<dyn Wake>>,
}

impl Cancellation {
    /// Ends the side with this fault; only the first one counts.
    pub fn cancel(&self, fault: Fault) {
        let mut state = self.lock();
        state.fault.get_or_insert(fault);
        self.cancelled.store(true, SeqCst);
        state.sockets.iter().for_each(tcp::cut);
        state.lanes.iter().for_each(|lane| lane.wake());
        drop(state);
        self.bell.ring();
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(SeqCst)
    }

    pub fn fault(&self) -> Option<Fault> {
        self.lock().fault.clone()
    }

    /// Registers a socket to be cut when the side is cancelled, or now if it has been.
    pub(crate) fn hold_socket(&self, socket: Handle) {
        let mut state = self.lock();
        if state.fault.is_some() {
            tcp::cut(&socket);
        }
        state.sockets.push(socket);
    }

    /// The socket is gone: it need not be cut any more.
    pub(crate) fn forget_socket(&self, socket: &Handle) {
        self.lock().sockets.retain(|held| !held.is(socket));
    }

    pub(crate) fn hold_lane(&self, lane: Arc<dyn Wake>) {
        let mut state = self.lock();
        // Those of lanes that have ended have no other owner.
        state.lanes.retain(|held| Arc::strong_count(held) > 1);
        state.lanes.push(lane);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts changes, so that one between looking for work and waiting is not missed.
#[derive(Debug, Default)]
pub struct Bell {
    rings: Mutex<u64>,
    changed: Condvar,
}

impl Bell {
    pub fn ring(&self) {
        *self.rings.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// To be read before looking for work.
    pub(crate) fn rings(&self) -> u64 {
        *self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it has rung since `seen`.
    pub fn wait(&self, seen: u64) {
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_while(rings, |rings| *rings == seen);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// The same, at most this long; true where it has rung.
    pub(crate) fn wait_within(&self, seen: u64, within: Duration) -> bool {
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(rings, within, |rings| *rings == seen);
        let (rings, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *rings != seen
    }
}
