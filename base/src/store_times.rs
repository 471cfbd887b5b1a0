//! What the requests to an object store have taken.

use crate::units::Nanos;

/// Of all requests together: those that are under way at the same time add up to more than the
/// time that has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreTimes {
    /// Those that were answered in the end.
    pub requests: u64,
    /// Bytes of their bodies, both ways.
    pub body_bytes: u64,
    /// Tries that the store refused because it wants fewer (429, 503).
    pub slow_downs: u64,
    /// Other tries that failed and were tried again.
    pub failures: u64,
    /// Requests that were sent again on a new connection, as theirs had been left behind.
    pub sent_again: u64,
    /// CPU time.
    pub signing: Nanos,
    pub connecting: Nanos,
    pub sending: Nanos,
    /// From the last byte of a request to the head of its answer.
    pub first_byte: Nanos,
    pub receiving: Nanos,
    /// Refused because the store wants fewer, and waiting after that.
    pub slowed: Nanos,
    /// Failed otherwise, and waiting after that.
    pub failing: Nanos,
}

impl StoreTimes {
    /// The time of all requests.
    pub fn total(&self) -> Nanos {
        let moving = self.sending + self.first_byte + self.receiving;
        self.signing + self.connecting + moving + self.slowed + self.failing
    }
}
