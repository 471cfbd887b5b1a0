//! What ends a wait for an answer: the user who stops the command, and bounds in time and in bytes.
//! Every wait of this client asks here.

use std::fmt;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::client::lock;
use base::fault::Fault;
use base::units::{Nanos, Tick};
use mover::io::clock;
use mover::io::store::{Stopping, TellRefused};

/// How long an answer is waited for. One value, so that tests can have a short one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Nothing moves at all.
    pub silent: Duration,
    /// To find a host's name, and to connect.
    pub connect: Duration,
    /// The handshake of TLS; the head of an answer, with all that announce it (1xx); trailers.
    pub head: Duration,
    /// A whole body that is text.
    pub text: Duration,
}

impl Limits {
    /// Those of a store that may be silent for so long.
    pub(crate) fn of(silent: Duration) -> Limits {
        let (head, text) = (silent.saturating_mul(4), silent.saturating_mul(20));
        Limits { silent, connect: CONNECT_WITHIN, head, text }
    }

    /// Those of a service that is there at once or not at all.
    pub(crate) fn near() -> Limits {
        Limits { silent: NEAR, connect: NEAR, head: NEAR, text: NEAR }
    }
}

/// Whether the user has asked to stop, and who is told why nothing more can be done. All
/// connections of a client share it.
#[derive(Clone, Default)]
pub(crate) struct Stop {
    asked: Arc<Mutex<(Option<Stopping>, Option<Tick>)>>,
    tell: Arc<Mutex<Option<TellRefused>>>,
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stop")
    }
}

impl Stop {
    pub(crate) fn when(&self, stopping: Stopping) {
        *lock(&self.asked) = (Some(stopping), None);
    }

    pub(crate) fn when_refused(&self, tell: TellRefused) {
        *lock(&self.tell) = Some(tell);
    }

    /// The store refuses all requests.
    pub(crate) fn refused(&self, fault: &Fault) {
        let tell = lock(&self.tell).clone();
        tell.iter().for_each(|tell| tell(fault));
    }

    /// An error soon after the user has asked to stop: what has nearly been answered still is.
    fn check(&self, now: Tick, grace: Nanos) -> io::Result<()> {
        let mut state = lock(&self.asked);
        let (Some(stopping), asked_at) = &mut *state else { return Ok(()) };
        if !stopping() {
            return Ok(());
        }
        let asked_at = asked_at.get_or_insert(now);
        match now.since(*asked_at) >= grace {
            true => Err(io::Error::other(Stopped)),
            false => Ok(()),
        }
    }
}

/// The user has asked to stop.
#[derive(Debug)]
struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Stopped {}

pub(crate) fn is_stopped(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Stopped>())
}

/// One wait after the other: what bounds the present one.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub limits: Limits,
    stop: Stop,
    /// Removes what would stay: it may take longer after the user has asked to stop.
    pub is_clearing: bool,
    bound: Bound,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    /// It ends by then.
    Until(Tick),
    /// Some bytes must move, again and again.
    Moving { since: Tick, bytes: usize },
}

impl Wait {
    /// Nothing is waited for yet.
    pub(crate) fn new(limits: Limits, stop: &Stop) -> Wait {
        let bound = Bound::Until(Tick(u64::MAX));
        Wait { limits, stop: stop.clone(), is_clearing: false, bound }
    }

    /// From here on, until so much time has passed.
    pub(crate) fn at_most(&mut self, time: Duration) -> &mut Wait {
        self.bound = Bound::Until(clock::now().after(Nanos::from(time)));
        self
    }

    /// From here on, for as long as bytes move.
    pub(crate) fn while_moving(&mut self) {
        self.bound = Bound::Moving { since: clock::now(), bytes: 0 };
    }

    /// So many bytes have moved, or none have for a moment.
    pub(crate) fn check(&mut self, moved_bytes: usize) -> io::Result<()> {
        let now = clock::now();
        self.stop.check(now, if self.is_clearing { CLEARING_GRACE } else { GRACE })?;
        match &mut self.bound {
            Bound::Until(end) if now >= *end => Err(too_long("its answer takes too long")),
            Bound::Until(_) => Ok(()),
            Bound::Moving { since, bytes } => {
                *bytes = bytes.saturating_add(moved_bytes);
                if now.since(*since) < Nanos::from(self.limits.silent) {
                    return Ok(());
                }
                if *bytes < MOVED_BYTES_MIN {
                    return Err(too_long("next to nothing of it moves"));
                }
                (*since, *bytes) = (now, 0);
                Ok(())
            }
        }
    }

    pub(crate) fn sleep(&mut self, time: Duration) -> io::Result<()> {
        let end = clock::now().after(Nanos::from(time));
        loop {
            self.check(0)?;
            let left = Duration::from(Nanos(end.0.saturating_sub(clock::now().0)));
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }

    /// Does what cannot be interrupted on a thread of its own, which is left to itself where the
    /// wait for it ends.
    pub(crate) fn apart<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (done_in, done) = sync_channel(1);
        let run = move || {
            let _ = done_in.send(work());
        };
        std::thread::Builder::new().name("datapump-s3".into()).spawn(run)?;
        loop {
            match done.recv_timeout(LOOK_EVERY) {
                Ok(done) => return done,
                Err(RecvTimeoutError::Timeout) => self.check(0)?,
                Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("it failed")),
            }
        }
    }
}

pub(crate) fn too_long(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, why)
}

/// How long a store may be silent.
pub(crate) const SILENT_MAX: Duration = Duration::from_secs(30);
/// Whoever waits looks this often whether it is to go on.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(200);
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
const NEAR: Duration = Duration::from_secs(1);
/// Less than this in as long as a store may be silent is as good as silence.
const MOVED_BYTES_MIN: usize = 1024;
/// What is under way when the user asks to stop may take so long, and what removes traces of it.
const GRACE: Nanos = Nanos::from_millis(400);
const CLEARING_GRACE: Nanos = Nanos::from_millis(1_200);

#[cfg(test)]
mod tests;
