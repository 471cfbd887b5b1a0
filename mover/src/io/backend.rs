//! Ways of doing I/O, behind one door.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::request::Request;
use super::sampler::Sampler;
use super::volume::{Batch, Handle};
use base::settings::Receive;
use base::units::Tick;

/// Everything an engine can be asked to do. Closed: a new verb is a decision record.
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
    /// Bytes of a stream or a pipe, in their order.
    Receive {
        socket: Handle,
        how: Receive,
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
    /// True for what reads or writes files.
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

/// Whether a file's I/O can wait for a device, so that it is worth doing beside the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// In memory: a copy, done where it is asked for.
    Copy,
    /// May be in the page cache, else on a device.
    Cached,
    /// Around the page cache: always a device.
    Device,
}

/// A verb that has ended, with the request it was given.
#[derive(Debug)]
pub struct Landing {
    pub verb: Verb,
    pub request: Request,
    pub result: io::Result<u32>,
}

/// How long `reap` may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Take what is there.
    Poll,
    /// Until something lands. Only when something is in the air.
    Landing,
    /// Until something lands or the lane is woken.
    LandingOrWake,
    /// Until then, a landing, or a wake.
    Until(Tick),
}

/// One way of doing I/O. Gives back every request it takes, exactly once, in any order.
///
/// A landing may be short, or an interruption: `Engine` sees to the rest.
pub trait Backend: Send + fmt::Debug {
    fn name(&self) -> &'static str;
    fn now(&self) -> Tick;
    fn submit(&mut self, verb: Verb, request: Request);
    fn reap(&mut self, wait: Wait, landings: &mut Vec<Landing>) -> io::Result<()>;
    /// Wakes this backend's `reap` from another thread.
    fn waker(&self) -> Arc<dyn Wake>;
    /// Tells the kernel of the buffers it will see, where that pays.
    fn register(&mut self, _requests: &mut [Request]) {}
    /// Has the lane's stream looked at, also while this backend blocks.
    fn watch(&mut self, _sampler: Sampler) {}
    fn sampler(&mut self) -> Option<&mut Sampler> {
        None
    }
}

/// The other end of a `LandingOrWake`.
pub trait Wake: Send + Sync + fmt::Debug {
    fn wake(&self);
}
