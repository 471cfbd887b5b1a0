//! Messages that have been received and not handled yet, in bounded memory: the reader of a
//! connection waits. It never waits forever: the loop takes all received messages before it sends
//! anything more by itself, and its answers are bounded by the credit of offers.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::pump::transfer::Event;
use crate::wire::manifest::Entry;
use crate::wire::message::{Message, WantedRanges};
use base::path::PathSample;

/// Shared by the reader and its tickets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backlog {
    shared: Arc<Shared>,
    /// Received since the last ticket.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<usize>,
    gone: Condvar,
}

/// Follows in the queue what it counts. Taking it out, or dropping the queue, makes room.
#[derive(Debug)]
pub struct Ticket {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Backlog {
    /// Counts a message that has been passed on; now and then returns a ticket to pass on after it.
    /// Waits while too much has not been handled.
    pub(crate) fn count(&mut self, message_bytes: usize) -> Option<Ticket> {
        self.bytes += message_bytes;
        if self.bytes < TICKET_BYTES {
            return None;
        }
        let bytes = std::mem::take(&mut self.bytes);
        let lock = self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |waiting: &mut usize| *waiting > 0 && *waiting + bytes > BACKLOG_BYTES_MAX;
        let waited = self.shared.gone.wait_while(lock, full);
        *waited.unwrap_or_else(PoisonError::into_inner) += bytes;
        Some(Ticket { shared: self.shared.clone(), bytes })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        *self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        self.shared.gone.notify_all();
    }
}

/// About the memory that a message takes which had this length on the wire.
pub(crate) fn heard_bytes(message: &Message, wire_bytes: usize) -> usize {
    let items = match message {
        Message::Offer { entries, .. } => entries.len() * size_of::<Entry>(),
        Message::Want { wanted, .. } => wanted.len() * size_of::<WantedRanges>(),
        Message::Samples { samples, .. } => samples.len() * size_of::<PathSample>(),
        _ => 0,
    };
    size_of::<Event>() + wire_bytes + items
}

/// More than an honest source can have offered and not finished.
const BACKLOG_BYTES_MAX: usize = 24 << 20;
const TICKET_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_reader_waits_until_what_it_heard_is_dealt_with() {
        let (events, queue) = channel();
        let (said, heard) = channel();
        let reader = std::thread::spawn(move || {
            let mut backlog = Backlog::default();
            for _ in 0..4 * BACKLOG_BYTES_MAX / TICKET_BYTES {
                let ticket = backlog.count(TICKET_BYTES).expect("each is worth one");
                said.send(ticket.bytes).unwrap();
                events.send(ticket).unwrap();
            }
        });
        let (mut handed_on, mut dealt_with) = (0, 0);
        while let Ok(ticket) = queue.recv() {
            handed_on += heard.try_iter().sum::<usize>();
            assert!(handed_on - dealt_with <= BACKLOG_BYTES_MAX, "{handed_on} - {dealt_with}");
            dealt_with += ticket.bytes;
            drop(ticket);
        }
        reader.join().unwrap();
        assert_eq!(dealt_with, 4 * BACKLOG_BYTES_MAX);
    }

    /// A loop that has ended blocks no reader.
    #[test]
    fn a_queue_that_is_dropped_makes_room() {
        let (events, queue) = channel();
        let reader = std::thread::spawn(move || {
            let mut backlog = Backlog::default();
            while events.send(backlog.count(TICKET_BYTES)).is_ok() {}
        });
        drop(queue.recv());
        drop(queue);
        reader.join().unwrap();
    }
}
