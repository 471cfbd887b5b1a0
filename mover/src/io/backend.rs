//! Ways of doing I/O, behind one interface.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::request::Request;
use super::sampler::Sampler;
use super::volume::{Batch, Handle};
use base::settings::Receive;
use base::units::Tick;

/// Everything an engine can be asked to do. A new verb needs a decision record.
#[derive(Clone, Debug)]
pub enum Verb {
    ReadAt {
        file: Handle,
        offset: u64,
        speed: Speed,
    },
    WriteAt {
        file: Handle,
        offset: u64,
        speed: Speed,
    },
    /// The small files of one extent, read into one body or written out of it.
    Gather(Arc<Batch>),
    Scatter(Arc<Batch>),
    /// Bytes of a stream or a pipe, in order.
    Receive {
        socket: Handle,
        how: Receive,
        /// What a call took is acknowledged then (`TCP_QUICKACK`).
        quick_ack: bool,
    },
    Send {
        socket: Handle,
    },
    ReadNext {
        pipe: Handle,
    },
    WriteNext {
        pipe: Handle,
    },
}

impl Verb {
    /// True for verbs that read or write files.
    pub(crate) fn is_of_files(&self) -> bool {
        match self {
            Verb::ReadAt { .. } | Verb::WriteAt { .. } | Verb::Gather(_) | Verb::Scatter(_) => true,
            Verb::Receive { .. }
            | Verb::Send { .. }
            | Verb::ReadNext { .. }
            | Verb::WriteNext { .. } => false,
        }
    }
}

/// Whether a file's I/O may wait for a device, so that it is worth another thread than the lane's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// In memory: a copy, done on the calling thread.
    Copy,
    /// May be in the page cache, else on a device.
    Cached,
    /// Direct I/O: always a device.
    Device,
    /// An object store: always the network.
    Store,
}

/// A verb that has completed, with the request it was given.
#[derive(Debug)]
pub struct Completion {
    pub verb: Verb,
    pub request: Box<Request>,
    pub result: io::Result<u32>,
}

/// How long `reap` may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Return what has completed already.
    Poll,
    /// Until something completes. Only with requests in flight.
    Completion,
    /// Until something completes or the lane is woken.
    CompletionOrWake,
    /// Until this time, a completion, or a wake.
    Until(Tick),
}

/// One way of doing I/O. Returns every request it takes, exactly once, in any order.
///
/// A completion may be short, or an interruption: `Engine` submits the rest again.
pub trait Backend: Send + fmt::Debug {
    fn name(&self) -> &'static str;
    fn now(&self) -> Tick;
    fn submit(&mut self, verb: Verb, request: Box<Request>);
    fn reap(&mut self, wait: Wait, completions: &mut Vec<Completion>) -> io::Result<()>;
    /// Wakes this backend's `reap` from another thread.
    fn waker(&self) -> Arc<dyn Wake>;
    /// Registers the buffers with the kernel, where that pays.
    fn register(&mut self, _requests: &mut [Box<Request>]) {}
    /// Samples the lane's stream, also while this backend blocks.
    fn watch(&mut self, _sampler: Sampler) {}
    fn sampler(&mut self) -> Option<&mut Sampler> {
        None
    }
}

/// Wakes a backend that waits in `CompletionOrWake`.
pub trait Wake: Send + Sync + fmt::Debug {
    fn wake(&self);
}
