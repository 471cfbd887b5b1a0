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
    /// Notified when something changes that an idle lane may be waiting for.
    pub changes: EventCount,
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
        self.changes.notify();
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

/// An eventcount (Reed and Kanodia, 1979): counts changes, so that one between looking for work and
/// waiting is not missed.
#[derive(Debug, Default)]
pub struct EventCount {
    count: Mutex<u64>,
    changed: Condvar,
}

impl EventCount {
    pub fn notify(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// To be read before looking for work.
    pub(crate) fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it has been notified since `seen`.
    pub fn wait(&self, seen: u64) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_while(count, |count| *count == seen);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// The same, at most this long; true where it has been notified.
    pub(crate) fn wait_within(&self, seen: u64, within: Duration) -> bool {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(count, within, |count| *count == seen);
        let (count, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *count != seen
    }
}
