//! What waits for the transmitter of a direction: first in, first out, or by FQ-CoDel. Values
//! without a clock: each call names the time.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::fq_codel::FqCodel;

/// How a queue is managed (active queue management), beside its limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Aqm {
    /// First in, first out. What does not fit is dropped.
    None,
    /// A queue for each flow, by turns, and CoDel for each (RFC 8290).
    FqCodel(Codel),
}

/// The parameters of CoDel (RFC 8289).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Codel {
    /// Packets may wait this long for ever,
    pub target_ns: u64,
    /// and longer than that for this long.
    pub interval_ns: u64,
    /// Mark packets of flows that use explicit congestion notification, instead of dropping them.
    pub ecn: bool,
}

/// What a queue must know of a packet, besides its length.
pub(crate) trait Traffic {
    /// A number for its flow: equal for packets of one, and with another salt another.
    fn flow(&self, salt: u64) -> u64;

    /// Marks it with "congestion experienced". Returns false if its sender does not know marks.
    fn mark_congestion(&mut self) -> bool;
}

/// A packet that waits.
#[derive(Debug)]
pub(crate) struct Held<P> {
    pub(crate) bytes: u32,
    pub(crate) entered_ns: u64,
    pub(crate) packet: P,
}

/// What a queue has done to packets besides queueing them.
#[derive(Debug)]
pub(crate) struct Done<P> {
    /// Packets that were dropped since somebody took them away.
    pub(crate) dropped: Vec<P>,
    /// Counters of all time: dropped as the queue was full, dropped by CoDel, marked by CoDel.
    pub(crate) overflows: u64,
    pub(crate) aqm_drops: u64,
    pub(crate) marks: u64,
}

impl<P> Default for Done<P> {
    fn default() -> Done<P> {
        Done { dropped: Vec::new(), overflows: 0, aqm_drops: 0, marks: 0 }
    }
}

#[derive(Debug)]
pub(crate) enum Queue<P> {
    Fifo(Fifo<P>),
    FqCodel(Box<FqCodel<P>>),
}

#[derive(Debug)]
pub(crate) struct Fifo<P> {
    waiting: VecDeque<Held<P>>,
    bytes: u64,
}

impl<P: Traffic> Queue<P> {
    pub(crate) fn new(aqm: Aqm, salt: u64) -> Queue<P> {
        match aqm {
            Aqm::None => Queue::Fifo(Fifo { waiting: VecDeque::new(), bytes: 0 }),
            Aqm::FqCodel(codel) => Queue::FqCodel(Box::new(FqCodel::new(codel, salt))),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Queue::Fifo(fifo) => fifo.bytes,
            Queue::FqCodel(fair) => fair.bytes(),
        }
    }

    /// Adds a packet. Of a queue that then has more than `limit_bytes` something is dropped: the
    /// packet itself, or the oldest of the longest queue.
    pub(crate) fn enqueue(&mut self, held: Held<P>, limit_bytes: u64, done: &mut Done<P>) {
        match self {
            Queue::Fifo(fifo) if fifo.bytes + u64::from(held.bytes) > limit_bytes => {
                done.overflows += 1;
                done.dropped.push(held.packet);
            }
            Queue::Fifo(fifo) => fifo.push(held),
            Queue::FqCodel(fair) => fair.enqueue(held, limit_bytes, done),
        }
    }

    /// The packet that is transmitted next. `packet_ns` is what a full packet takes.
    pub(crate) fn dequeue(
        &mut self,
        now_ns: u64,
        packet_ns: u64,
        done: &mut Done<P>,
    ) -> Option<Held<P>> {
        match self {
            Queue::Fifo(fifo) => fifo.pop(),
            Queue::FqCodel(fair) => fair.dequeue(now_ns, packet_ns, done),
        }
    }

    /// Manages the same packets in another way from now on.
    pub(crate) fn set(&mut self, aqm: Aqm, salt: u64) {
        if let (Queue::FqCodel(fair), Aqm::FqCodel(codel)) = (&mut *self, aqm) {
            fair.set(codel);
            return;
        }
        if matches!((&*self, aqm), (Queue::Fifo(_), Aqm::None)) {
            return;
        }
        let before = std::mem::replace(self, Queue::new(aqm, salt));
        let mut waiting: Vec<Held<P>> = match before {
            Queue::Fifo(fifo) => fifo.waiting.into(),
            Queue::FqCodel(fair) => fair.into_waiting(),
        };
        waiting.sort_by_key(|held| held.entered_ns);
        // What waits already is never dropped by a change.
        for held in waiting {
            self.enqueue(held, u64::MAX, &mut Done::default());
        }
    }
}

impl<P> Fifo<P> {
    fn push(&mut self, held: Held<P>) {
        self.bytes += u64::from(held.bytes);
        self.waiting.push_back(held);
    }

    fn pop(&mut self) -> Option<Held<P>> {
        let held = self.waiting.pop_front()?;
        self.bytes -= u64::from(held.bytes);
        Some(held)
    }
}

/// The values of RFC 8290, section 5.2, without ECN.
pub(crate) const CODEL: Codel =
    Codel { target_ns: 5_000_000, interval_ns: 100_000_000, ecn: false };
