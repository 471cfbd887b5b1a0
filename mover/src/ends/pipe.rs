//! Standard input and standard output: bytes in order, whatever lane they come through.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::endpoint::{Endpoint, Nature, Next};
use crate::io::backend::{Verb, Wake};
use crate::io::request::{Content, Coverage, Leg, Request};
use crate::io::volume::Handle;
use base::fault::{Class, Fault};

/// Reads a pipe. The plan lets one lane at a time read, and gives it the next address.
#[derive(Debug)]
pub(crate) struct PipeSource {
    pipe: Handle,
}

impl PipeSource {
    pub(crate) fn new(pipe: Handle) -> PipeSource {
        PipeSource { pipe }
    }
}

impl Endpoint for PipeSource {
    fn nature(&self) -> Nature {
        Nature::Flowing
    }

    fn next(&mut self, request: &mut Request) -> Next {
        debug_assert_eq!(request.leg, Leg::In);
        if request.hops == 0 {
            request.ask(request.body_span());
            return Next::Do(Verb::ReadNext { pipe: self.pipe.clone() });
        }
        let asked = request.label.body_len;
        match request.outcome {
            Err(errno) => {
                let error = io::Error::from_raw_os_error(errno);
                Next::Fail(Fault::system("read standard input", &error))
            }
            Ok(count) => {
                request.label.body_len = count;
                request.label.extent.len = count;
                mark_whole(request, asked);
                if count == 0 { Next::Dry } else { Next::Done }
            }
        }
    }
}

/// A pipe shorter than its first request is digested as a whole: its length tells both sides.
pub(crate) fn mark_whole(request: &mut Request, slot_bytes: u32) {
    if let Content::Part(part) = &mut request.content
        && part.offset == 0
        && request.label.extent.len < slot_bytes
    {
        part.coverage = Coverage::All;
    }
}

/// Writes a pipe in the order of addresses; requests that come early wait for their turn.
#[derive(Debug)]
pub(crate) struct PipeSink {
    pipe: Handle,
    turn: Arc<Turn>,
    depth: u32,
}

impl PipeSink {
    pub(crate) fn new(pipe: Handle, turn: Arc<Turn>, depth: u32) -> PipeSink {
        PipeSink { pipe, turn, depth }
    }
}

impl Endpoint for PipeSink {
    fn nature(&self) -> Nature {
        Nature::Addressed { depth: self.depth }
    }

    fn next(&mut self, request: &mut Request) -> Next {
        debug_assert_eq!(request.leg, Leg::Out);
        if request.hops == 0 {
            if self.turn.next.load(Ordering::Acquire) != request.label.extent.start {
                return Next::Idle;
            }
            request.ask(request.body_span());
            return Next::Do(Verb::WriteNext { pipe: self.pipe.clone() });
        }
        match request.outcome {
            Ok(count) if count == request.need => {
                self.turn.pass_to(request.label.extent.end());
                Next::Done
            }
            Ok(_) => Next::Fail(Fault::new(Class::Local, "standard output takes nothing more")),
            Err(errno) => {
                let error = io::Error::from_raw_os_error(errno);
                Next::Fail(Fault::system("write standard output", &error))
            }
        }
    }
}

/// The address that is written next; shared by the lanes of a pipe sink.
#[derive(Debug, Default)]
pub struct Turn {
    next: AtomicU64,
    lanes: Mutex<Vec<Arc<dyn Wake>>>,
}

impl Turn {
    /// Registers a lane to be woken whenever the turn changes.
    pub fn join(&self, lane: Arc<dyn Wake>) {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner).push(lane);
    }

    fn pass_to(&self, address: u64) {
        self.next.store(address, Ordering::Release);
        for lane in self.lanes.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            lane.wake();
        }
    }
}
