//! Where filled requests wait until the sink admits them.

use std::collections::VecDeque;

use crate::ends::endpoint::Nature;
use crate::io::request::Request;

/// The queue in front of a sink, and how many requests the sink has.
#[derive(Debug)]
pub struct Gate {
    limit: usize,
    inside: usize,
    waiting: VecDeque<Box<Request>>,
}

impl Gate {
    pub fn new(sink: Nature) -> Gate {
        let limit = match sink {
            Nature::Addressed { depth } => depth as usize,
            Nature::Flowing => 1,
        };
        Gate { limit, inside: 0, waiting: VecDeque::new() }
    }

    /// Joins the queue at its end.
    pub fn arrive(&mut self, request: Box<Request>) {
        self.waiting.push_back(request);
    }

    /// Back to the queue: the sink cannot take this one yet, but perhaps another.
    pub(crate) fn send_back(&mut self, request: Box<Request>) {
        assert!(self.inside > 0, "a request sent back that was not inside");
        self.inside -= 1;
        self.waiting.push_back(request);
    }

    /// The next one, if the sink has room.
    pub(crate) fn admit(&mut self) -> Option<Box<Request>> {
        if self.inside >= self.limit {
            return None;
        }
        let request = self.waiting.pop_front()?;
        self.inside += 1;
        Some(request)
    }

    pub fn leave(&mut self) {
        assert!(self.inside > 0, "a request left that was not inside");
        self.inside -= 1;
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn drain(&mut self) -> impl Iterator<Item = Box<Request>> + '_ {
        self.waiting.drain(..)
    }
}
