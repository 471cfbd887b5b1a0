//! What the kernel says about a connection, about processes and threads, and about the page cache.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::base::cpus::Cpus;
use crate::base::units::Nanos;

/// What TCP knows of one connection, as far as we ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed and least round-trip time.
    pub rtt: Nanos,
    pub rtt_min: Nanos,
    /// The window that the peer advertises to us.
    pub peer_window_bytes: u64,
    pub retransmissions: u64,
    /// How long ago anything came, and how long ago anything was acknowledged.
    pub since_received: Nanos,
    pub since_acknowledged: Nanos,
    /// Segments that the peer's TCP has not acknowledged.
    pub unacknowledged: u32,
}

/// `TCP_INFO` of a socket; `None` for what is no TCP socket.
pub fn tcp_info(socket: BorrowedFd<'_>) -> Option<TcpInfo> {
    // SAFETY: `tcp_info` is plain integers, for which all bits zero are a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `info`, which is that long; a shorter
    // answer of an older kernel leaves zeros behind it.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    (status == 0).then(|| TcpInfo {
        rtt: Nanos(u64::from(info.tcpi_rtt) * 1000),
        rtt_min: Nanos(u64::from(info.tcpi_min_rtt) * 1000),
        peer_window_bytes: u64::from(info.tcpi_snd_wnd),
        retransmissions: u64::from(info.tcpi_total_retrans),
        since_received: Nanos(u64::from(info.tcpi_last_data_recv) * 1_000_000),
        since_acknowledged: Nanos(u64::from(info.tcpi_last_ack_recv) * 1_000_000),
        unacknowledged: info.tcpi_unacked,
    })
}

/// What this run of the system is known by, until it is started again; nothing that two runs share
/// where it is not known.
pub fn boot_id() -> &'static [u8] {
    static ID: OnceLock<Vec<u8>> = OnceLock::new();
    ID.get_or_init(|| {
        let unknown = || format!("process {}", std::process::id()).into_bytes();
        std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_else(|_| unknown())
    })
}

/// What this process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub user: Nanos,
    pub system: Nanos,
    pub peak_memory_bytes: u64,
}

pub fn usage() -> Usage {
    // SAFETY: `rusage` is plain integers, for which all bits zero are a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live `rusage`, which the call fills.
    let status = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    assert_eq!(status, 0, "getrusage of ourselves cannot fail");
    let nanos = |time: libc::timeval| {
        Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000)
    };
    Usage {
        user: nanos(usage.ru_utime),
        system: nanos(usage.ru_stime),
        peak_memory_bytes: usage.ru_maxrss as u64 * 1024,
    }
}

/// Holds the calling thread, and those that it will start, to these CPUs. The error says what to
/// write instead.
pub fn pin(cpus: &Cpus) -> Result<(), String> {
    let before = sched_getaffinity(None);
    // Whoever started us may have been held to others: what counts is what the system allows.
    let allowed = unpin();
    if let Some(cpu) = cpus.list().iter().find(|cpu| !allowed.contains(cpu)) {
        if let Ok(before) = before {
            let _ = sched_setaffinity(None, &before);
        }
        return Err(match Cpus::of(allowed) {
            Some(allowed) => format!(
                "CPU {cpu} is not there, or this process may not run on it: choose among {allowed}"
            ),
            None => format!("cannot hold to CPU {cpu}: the system does not tell which there are"),
        });
    }
    let mut set = CpuSet::new();
    cpus.list().iter().for_each(|cpu| set.set(*cpu as usize));
    sched_setaffinity(None, &set)
        .map_err(|why| format!("cannot hold to CPUs {cpus}: {why}; leave the list out"))
}

/// Lets the calling thread run on every CPU that the system allows it, and says which those are.
pub fn unpin() -> Vec<u32> {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    // The kernel leaves out those that are not there or not allowed.
    let _ = sched_setaffinity(None, &all);
    allowed_cpus(0)
}

/// The CPUs that a thread may run on, 0 for this one; empty where that is not known.
pub fn allowed_cpus(thread: u32) -> Vec<u32> {
    let thread = rustix::process::Pid::from_raw(thread.cast_signed());
    sched_getaffinity(thread).map(|set| members(&set)).unwrap_or_default()
}

fn members(set: &CpuSet) -> Vec<u32> {
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect()
}

/// Makes the calling thread run only where nobody else wants to.
pub fn run_when_idle() -> io::Result<()> {
    let nothing = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a live `sched_param`, which the call only reads.
    let status = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const nothing) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A clock that counts the time which a thread or process has had on a CPU, to the nanosecond.
#[derive(Clone, Copy, Debug)]
pub struct CpuClock(libc::clockid_t);

impl CpuClock {
    /// The calling thread's. Other threads of this process can read it.
    pub fn of_this_thread() -> Option<CpuClock> {
        let mut clock = 0;
        // SAFETY: the calling thread lives, and the call fills `clock`.
        let status = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        (status == 0).then_some(CpuClock(clock))
    }

    /// That of all threads of a process, also one of the kernel's.
    pub fn of_process(process: u32) -> Option<CpuClock> {
        let mut clock = 0;
        // SAFETY: the call only fills `clock`.
        let status = unsafe { libc::clock_getcpuclockid(process.cast_signed(), &raw mut clock) };
        (status == 0).then_some(CpuClock(clock))
    }

    /// `None` where its owner has ended.
    pub fn now(self) -> Option<Nanos> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a live `timespec`, which the call fills.
        let status = unsafe { libc::clock_gettime(self.0, &raw mut time) };
        (status == 0).then(|| Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64))
    }
}

/// The session that a process is in: 0 for those of the kernel, `None` for one that has ended.
pub fn session_of(process: u32) -> Option<u32> {
    // SAFETY: the call takes a number and gives one back.
    let session = unsafe { libc::getsid(process.cast_signed()) };
    u32::try_from(session).ok()
}

/// How many bytes of a file are in the page cache, in whole pages; `None` where the kernel does not
/// tell (before Linux 6.5).
pub fn cached_bytes(file: BorrowedFd<'_>) -> Option<u64> {
    /// As the kernel has them: `struct cachestat_range` and `struct cachestat`.
    #[repr(C)]
    struct Range {
        offset: u64,
        len: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Stat {
        cached: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    // A length of zero means: to the end.
    let range = Range { offset: 0, len: 0 };
    let mut stat = Stat::default();
    // SAFETY: both pointers are to live structures of the layout that the kernel expects; it reads
    // the first and fills the second.
    let status = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut stat, 0_u32)
    };
    (status == 0).then(|| stat.cached * rustix::param::page_size() as u64)
}

/// The number of the call, which every architecture but alpha shares and not every libc names.
const CACHESTAT: libc::c_long = 451;
