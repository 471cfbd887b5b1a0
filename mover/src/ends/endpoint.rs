//! The interface of an endpoint.

use std::fmt;

use crate::io::backend::Verb;
use crate::io::request::Request;
use base::fault::Fault;
use base::tally::Stage;

/// One end of a pump, in either direction. It says what to do next and does nothing itself.
pub trait Endpoint: Send + fmt::Debug {
    fn nature(&self) -> Nature;

    /// What the request needs next on its leg: `request.hops` verbs have completed on it so far.
    fn next(&mut self, request: &mut Request) -> Next;

    /// The stage that the time spent in `next` belongs to, if that is worth measuring.
    fn stage(&self) -> Option<Stage> {
        None
    }

    /// Bytes on the wire, framing and sealing included.
    fn wire_bytes(&self) -> u64 {
        0
    }
}

/// How an end takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// Any extent, in any order, this many at once.
    Addressed { depth: u32 },
    /// One at a time, in the order in which they come; frames say where they belong.
    Flowing,
}

/// What a request needs next.
#[derive(Debug)]
pub enum Next {
    Do(Verb),
    /// This leg has ended.
    Done,
    /// These bytes will never come; the object fails, not the lane.
    Void(Fault),
    /// Not now: another request must go first.
    Idle,
    /// No more bytes will ever come.
    Dry,
    /// The lane cannot go on.
    Fail(Fault),
}
