//! A login that is there already: far sides of copies are started over it, without another.

use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Receiver;

use base::fault::Fault;

/// Starts far sides over one login.
pub trait Tunnel: Debug + Send + Sync {
    /// Starts `datapump peer` there.
    fn start(&self) -> Result<Started, Fault>;
}

/// A far side that was started so.
#[derive(Debug)]
pub struct Started {
    /// The ends of pipes that lead to its standard input and from its output.
    pub input: OwnedFd,
    pub output: OwnedFd,
    /// Its exit code, once it has ended; nothing where the login was lost before.
    pub code: Receiver<u8>,
}
