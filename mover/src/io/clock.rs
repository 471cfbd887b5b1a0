//! The clock: one origin for the whole process.

use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::ClockId;

use super::system;
use base::units::{Nanos, Tick};

/// The time source of code that must not read a clock itself.
pub trait Clock: Send + Sync + fmt::Debug {
    fn now(&self) -> Tick;
    /// The CPU time of the calling thread so far.
    fn thread_cpu(&self) -> Nanos;
}

/// The clock of this host.
#[derive(Clone, Copy, Debug)]
pub struct HostClock;

impl Clock for HostClock {
    fn now(&self) -> Tick {
        now()
    }

    fn thread_cpu(&self) -> Nanos {
        thread_cpu()
    }
}

static ORIGIN: OnceLock<Nanos> = OnceLock::new();

/// Now, counted from the first call in this process. It is read several times for a request, so
/// it is no `Instant`, whose difference takes twice as long as the reading.
pub fn now() -> Tick {
    let now = system::monotonic();
    Tick(now.0.saturating_sub(ORIGIN.get_or_init(|| now).0))
}

/// The CPU time of the calling thread so far.
pub fn thread_cpu() -> Nanos {
    let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The wall-clock time since 1970-01-01T00:00:00Z, for records.
pub fn unix() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
