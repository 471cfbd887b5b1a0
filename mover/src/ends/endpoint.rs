//! What an end of a pump is.

use std::fmt;

use crate::io::backend::Verb;
use crate::io::request::Request;
use base::fault::Fault;
use base::tally::Stage;

/// One end of a pump, in either direction. Says what to do next; does nothing itself.
pub trait Endpoint: Send + fmt::Debug {
    fn nature(&self) -> Nature;

    /// What the request needs next on its leg: `request.hops` verbs have landed on it so far.
    fn next(&mut self, request: &mut Request) -> Next;

    /// The stage that the time spent in `next` belongs to, if that is worth a clock.
    fn stage(&self) -> Option<Stage> {
        None
    }

    /// Bytes that went over a wire, framing and sealing included.
    fn wire_bytes(&self) -> u64 {
        0
    }
}

/// How an end takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// Any extent, in any order, this many at once.
    Addressed { depth: u32 },
    /// One at a time, in the order they come; frames say where they belong.
    Flowing,
}

/// What a request needs next.
#[derive(Debug)]
pub enum Next {
    Do(Verb),
    /// This leg is over.
    Done,
    /// These bytes will never come; the object fails, not the lane.
    Void(Fault),
    /// Not now: another request must go first.
    Idle,
    /// Nothing more will ever come.
    Dry,
    /// The lane cannot go on.
    Fail(Fault),
}
