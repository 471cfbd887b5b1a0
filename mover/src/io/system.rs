//! What the kernel reports of connections, of processes and threads, and of the page cache.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use base::cpus::Cpus;
use base::path::{LaneClocks, PathSample};
use base::units::{Nanos, Tick};

pub use super::page_cache::cached_bytes;

/// What TCP reports of one connection, as far as we use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TcpInfo {
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

/// The umask of this process. It is read from `/proc`: the system call would change it for a
/// moment, for every thread.
pub fn umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        let umask = field.and_then(|digits| u32::from_str_radix(digits.trim(), 8).ok());
        umask.unwrap_or(CAREFUL_UMASK)
    })
}

/// Used where the system does not report it.
const CAREFUL_UMASK: u32 = 0o077;

/// Makes the process of a command end when the thread that starts it ends, and ignore the interrupt
/// that a terminal sends to all its processes.
pub fn end_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    let work = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
        if rustix::process::getppid() != Some(parent) {
            return Err(io::ErrorKind::BrokenPipe.into()); // it has ended in between
        }
        // SAFETY: no handler is installed, so none can run at a bad time.
        match unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) } {
            libc::SIG_ERR => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: between fork and exec it makes three system calls, and allocates nothing.
    unsafe { command.pre_exec(work) };
}

/// `TCP_INFO` of a socket; `None` if it is not a TCP socket.
pub(crate) fn tcp_info(socket: BorrowedFd<'_>) -> Option<TcpInfo> {
    let info = raw_tcp_info(socket)?;
    Some(TcpInfo {
        rtt: micros(info.rtt),
        rtt_min: micros(info.min_rtt),
        peer_window_bytes: u64::from(info.snd_wnd),
        retransmissions: u64::from(info.total_retrans),
        since_received: Nanos(u64::from(info.last_data_recv) * 1_000_000),
        since_acknowledged: Nanos(u64::from(info.last_ack_recv) * 1_000_000),
        unacknowledged: info.unacked,
    })
}

/// What TCP reports of a connection now, as a sample; `None` if it is not a TCP socket. Buffers and
/// the lane's clocks are not filled in.
pub fn path_sample(socket: BorrowedFd<'_>, at: Tick) -> Option<PathSample> {
    raw_tcp_info(socket).map(|info| sample_of(&info, at))
}

/// A sample, and how many segments were delivered, those after a gap included.
pub(crate) fn delivery(socket: BorrowedFd<'_>, at: Tick) -> Option<(PathSample, u64)> {
    raw_tcp_info(socket).map(|info| (sample_of(&info, at), u64::from(info.delivered)))
}

fn sample_of(info: &RawTcpInfo, at: Tick) -> PathSample {
    PathSample {
        at,
        rtt: micros(info.rtt),
        rtt_deviation: micros(info.rttvar),
        rtt_min: micros(info.min_rtt),
        mss_bytes: info.snd_mss,
        cwnd_segments: info.snd_cwnd,
        // The kernel's value for none (TCP_INFINITE_SSTHRESH) is smaller than ours.
        ssthresh_segments: match info.snd_ssthresh {
            NO_THRESHOLD_SEGMENTS.. => u32::MAX,
            segments => segments,
        },
        unacked_segments: info.unacked,
        lost_segments: info.lost,
        unsent_bytes: info.notsent_bytes,
        peer_window_bytes: info.snd_wnd,
        state: info.ca_state,
        app_limited: info.delivery_and_fastopen & APP_LIMITED != 0,
        delivery_bytes_per_s: info.delivery_rate,
        pace_max_bytes_per_s: info.max_pacing_rate,
        bytes_sent: info.bytes_sent,
        bytes_acked: info.bytes_acked,
        bytes_retransmitted: info.bytes_retrans,
        bytes_received: info.bytes_received,
        segments_sent: u64::from(info.data_segs_out),
        segments_retransmitted: u64::from(info.total_retrans),
        segments_marked: u64::from(info.delivered_ce),
        segments_duplicate: u64::from(info.dsack_dups),
        reorderings: u64::from(info.reord_seen),
        timeouts: u64::from(info.total_rto),
        busy: Nanos(info.busy_time.saturating_mul(1000)),
        window_limited: Nanos(info.rwnd_limited.saturating_mul(1000)),
        buffer_limited: Nanos(info.sndbuf_limited.saturating_mul(1000)),
        receive_threshold_bytes: info.rcv_ssthresh,
        send_buffer_bytes: 0,
        receive_buffer_bytes: 0,
        clocks: LaneClocks::default(),
    }
}

/// The windows that a connection agreed on, and what its receiving side has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// The peer's window scale in bits.
    pub peer_scale: u8,
    /// The largest segment received, and the largest that we allow.
    pub segment_received_bytes: u32,
    pub segment_allowed_bytes: u32,
    pub received_bytes: u64,
}

/// `None` if it is not a TCP socket.
pub fn windows(socket: BorrowedFd<'_>) -> Option<Windows> {
    raw_tcp_info(socket).map(|info| Windows {
        // The lower half of the byte is the peer's, the upper half ours.
        peer_scale: info.window_scales & 0xf,
        segment_received_bytes: info.rcv_mss,
        segment_allowed_bytes: info.advmss,
        received_bytes: info.bytes_received,
    })
}

/// What both ends of a connection agreed on, and what it has found out about the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    pub window_scaling: bool,
    pub selective: bool,
    pub timestamps: bool,
    pub path_mtu_bytes: u32,
    pub rtt: Nanos,
    pub rtt_min: Nanos,
}

/// `None` if it is not a TCP socket.
pub fn agreed(socket: BorrowedFd<'_>) -> Option<Agreed> {
    raw_tcp_info(socket).map(|info| Agreed {
        timestamps: info.options & OPTION_TIMESTAMPS != 0,
        selective: info.options & OPTION_SACK != 0,
        window_scaling: info.options & OPTION_WINDOW_SCALE != 0,
        path_mtu_bytes: info.pmtu,
        rtt: micros(info.rtt),
        rtt_min: micros(info.min_rtt),
    })
}

/// `TCPI_OPT_TIMESTAMPS` and others of `linux/tcp.h`.
const OPTION_TIMESTAMPS: u8 = 1;
const OPTION_SACK: u8 = 2;
const OPTION_WINDOW_SCALE: u8 = 4;

/// `struct tcp_info` of the kernel's `linux/tcp.h`: libc's leaves out bit fields. Fields after the
/// last one here are not used.
#[repr(C)]
#[derive(Default)]
struct RawTcpInfo {
    state: u8,
    ca_state: u8,
    retransmits: u8,
    probes: u8,
    backoff: u8,
    options: u8,
    /// The peer's scale and ours, four bits each.
    window_scales: u8,
    /// `APP_LIMITED`, and two bits of TCP Fast Open.
    delivery_and_fastopen: u8,
    rto: u32,
    ato: u32,
    snd_mss: u32,
    rcv_mss: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,
    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    last_ack_recv: u32,
    pmtu: u32,
    rcv_ssthresh: u32,
    rtt: u32,
    rttvar: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt: u32,
    rcv_space: u32,
    total_retrans: u32,
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    notsent_bytes: u32,
    min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    delivery_rate: u64,
    busy_time: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
    delivered: u32,
    delivered_ce: u32,
    bytes_sent: u64,
    bytes_retrans: u64,
    dsack_dups: u32,
    reord_seen: u32,
    rcv_ooopack: u32,
    snd_wnd: u32,
    rcv_wnd: u32,
    rehash: u32,
    total_rto: u16,
    total_rto_recoveries: u16,
    total_rto_time: u32,
}

const APP_LIMITED: u8 = 1;
const NO_THRESHOLD_SEGMENTS: u32 = 0x7fff_ffff;
/// The offset that the kernel's headers give the last field.
const _: () = assert!(std::mem::offset_of!(RawTcpInfo, total_rto_time) == 244);

fn raw_tcp_info(socket: BorrowedFd<'_>) -> Option<RawTcpInfo> {
    let mut info = RawTcpInfo::default();
    let mut length = size_of::<RawTcpInfo>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `info`, which is that long and plain
    // integers; a shorter answer of an older kernel leaves zeros after it.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    (status == 0).then_some(info)
}

fn micros(micros: u32) -> Nanos {
    Nanos(u64::from(micros) * 1000)
}

/// Limits the receive window of a TCP socket.
pub(crate) fn set_window_clamp(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set_number(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, bytes)
}

/// `None` if it is not a TCP socket.
pub(crate) fn window_clamp(socket: BorrowedFd<'_>) -> Option<u32> {
    let mut bytes = 0_u32;
    let mut length = size_of::<u32>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `bytes`, which is that long.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_WINDOW_CLAMP,
            (&raw mut bytes).cast(),
            &raw mut length,
        )
    };
    (status == 0).then_some(bytes)
}

/// Limits what TCP sends, in bytes a second; `u64::MAX` is no limit.
pub(crate) fn set_pace(socket: BorrowedFd<'_>, bytes_per_s: u64) -> io::Result<()> {
    set_number(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, bytes_per_s)
}

/// Sets an option that is a plain number.
fn set_number<T: Copy>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: T,
) -> io::Result<()> {
    // SAFETY: the call reads `size_of::<T>()` bytes of a live `T`.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// An interface of this network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    pub index: u32,
    pub mtu_bytes: u32,
    /// The length of its transmit queue (`txqueuelen`).
    pub queue_packets: u32,
}

/// `None` where no interface has that name.
pub fn interface(name: &str) -> Option<Interface> {
    use rustix::net::{AddressFamily, SocketType, netdevice, socket};
    let asked = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    let number = |what: libc::c_ulong| {
        // SAFETY: an `ifreq` is integers, addresses as bytes, and a pointer that may be null.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // One byte is left for the end of the name.
        if name.len() >= request.ifr_name.len() {
            return None;
        }
        let letters = request.ifr_name.iter_mut().zip(name.bytes());
        letters.for_each(|(letter, byte)| *letter = byte as libc::c_char);
        // SAFETY: both requests read the name and write a number into a live `ifreq`.
        let status =
            unsafe { libc::ioctl(asked.as_raw_fd(), what as libc::Ioctl, &raw mut request) };
        // SAFETY: the kernel has written the union as a number.
        (status == 0).then(|| unsafe { request.ifr_ifru.ifru_mtu }.cast_unsigned())
    };
    Some(Interface {
        index: netdevice::name_to_index(&asked, name).ok()?,
        mtu_bytes: number(libc::SIOCGIFMTU)?,
        queue_packets: number(libc::SIOCGIFTXQLEN)?,
    })
}

/// Bytes that a TCP connection was given and its peer has not acknowledged, sent or not; `None` if
/// it is not one. See tcp(7), SIOCOUTQ.
pub fn unacknowledged_bytes(socket: BorrowedFd<'_>) -> Option<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes a number into a live `c_int`.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    (status == 0).then(|| bytes.max(0).cast_unsigned())
}

/// Identifies this boot of the system; where that is not known, a value of this process alone.
pub(crate) fn boot_id() -> &'static [u8] {
    static ID: OnceLock<Vec<u8>> = OnceLock::new();
    ID.get_or_init(|| {
        let unknown = || format!("process {}", std::process::id()).into_bytes();
        std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_else(|_| unknown())
    })
}

/// What this process has used so far, and the most memory it held at once.
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
        peak_memory_bytes: peak_memory_bytes().unwrap_or(usage.ru_maxrss as u64 * 1024),
    }
}

/// The same, and the peak starts over from here. `ru_maxrss` never does: it even includes what the
/// process held that started this one.
pub(crate) fn usage_anew() -> Usage {
    // See proc(5): 5 resets the peak. Where that is refused, an older peak is reported.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    usage()
}

fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(peak.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// Binds the calling thread, and those that it will start, to these CPUs. The error says what to
/// write instead.
pub fn pin(cpus: &Cpus) -> Result<(), String> {
    let before = sched_getaffinity(None);
    // Our parent may have bound us to other CPUs: what counts is what the system allows.
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

/// Lets the calling thread run on every CPU that the system allows it, and returns those.
pub fn unpin() -> Vec<u32> {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    // The kernel leaves out CPUs that do not exist or are not allowed.
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

/// Makes the calling thread run only when no other thread wants the CPU.
pub fn run_when_idle() -> io::Result<()> {
    // The kernel's `struct sched_param`: the library of musl refuses the call itself.
    let nothing: libc::c_int = 0;
    // SAFETY: the pointer is to a live structure, which the call only reads.
    let status = unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_IDLE, &raw const nothing)
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn read_clock(clock: libc::clockid_t) -> Option<Nanos> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live `timespec`, which the call fills.
    let status = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (status == 0).then(|| Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64))
}

/// The system's clock that never goes back. It is read through the C library, not by rustix, which
/// calls the kernel's page of fast calls also where a tool (valgrind) hides it.
pub(super) fn monotonic() -> Nanos {
    read_clock(libc::CLOCK_MONOTONIC).unwrap_or_default()
}

/// A clock that counts the CPU time of a thread or process, to the nanosecond.
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

    /// That of all threads of a process, kernel processes included.
    pub fn of_process(process: u32) -> Option<CpuClock> {
        let mut clock = 0;
        // SAFETY: the call only fills `clock`.
        let status = unsafe { libc::clock_getcpuclockid(process.cast_signed(), &raw mut clock) };
        (status == 0).then_some(CpuClock(clock))
    }

    /// `None` where its thread or process has ended.
    pub fn now(self) -> Option<Nanos> {
        read_clock(self.0)
    }
}

/// The session of a process: 0 for kernel processes, `None` for one that has ended.
pub fn session_of(process: u32) -> Option<u32> {
    // SAFETY: the call takes a number and gives one back.
    let session = unsafe { libc::getsid(process.cast_signed()) };
    u32::try_from(session).ok()
}

/// Of a stretch of a file, the bytes that are in the page cache, in whole pages, by a mapping.
/// Nothing of it is touched, so a file that gets shorter does no harm. To who may not write the
/// file the kernel says that all are there.
pub(super) fn mapped_cached_bytes(file: BorrowedFd<'_>, stretch: Range<u64>) -> Option<u64> {
    let page = rustix::param::page_size();
    let bytes = usize::try_from(stretch.end - stretch.start).ok()?;
    let mut pages = vec![0_u8; bytes.div_ceil(page)];
    let (flags, access) = (libc::MAP_SHARED, libc::PROT_READ);
    let (fd, at) = (file.as_raw_fd(), stretch.start.try_into().ok()?);
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let map = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, fd, at) };
    if map == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: `map` is a mapping of `bytes` bytes, and `pages` has a byte for each of its pages.
    let status = unsafe { libc::mincore(map, bytes, pages.as_mut_ptr()) };
    // SAFETY: the mapping is ours, and nothing refers to it.
    unsafe { libc::munmap(map, bytes) };
    let count = pages.iter().filter(|page| **page & 1 == 1).count();
    (status == 0).then_some((count * page) as u64)
}

/// Of a whole file, the same by `cachestat`; `None` where the kernel does not report it (before
/// Linux 6.5).
pub(super) fn stat_cached_bytes(file: BorrowedFd<'_>) -> Option<u64> {
    /// As the kernel has them: `struct cachestat_range` and `struct cachestat`.
    #[repr(C)]
    struct Stretch {
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
    let range = Stretch { offset: 0, len: 0 };
    let mut stat = Stat::default();
    // SAFETY: both pointers are to live structures of the layout that the kernel expects; it reads
    // the first and fills the second.
    let status = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut stat, 0_u32)
    };
    (status == 0).then(|| stat.cached * rustix::param::page_size() as u64)
}

/// The calls that are used where they exist and that this kernel does not have, by name, each with
/// the Linux that brought it.
pub fn absent_calls() -> Vec<&'static str> {
    let calls = [
        (libc::SYS_io_uring_setup, "io_uring (Linux 5.1)"),
        (libc::SYS_openat2, "openat2 (Linux 5.6)"),
        (CACHESTAT, "cachestat (Linux 6.5)"),
    ];
    let is_absent = |call: libc::c_long| {
        // SAFETY: each of the calls refuses these arguments: no descriptor, no size, no pointer.
        let status = unsafe { libc::syscall(call, -1, 0, 0, 0, 0) };
        status == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS)
    };
    calls.iter().filter(|(call, _)| is_absent(*call)).map(|(_, name)| *name).collect()
}

/// The system call number, which all architectures but alpha share and not every libc names.
const CACHESTAT: libc::c_long = 451;

/// A file that grows past the limit of this process (`ulimit -f`) is then a failed write, with a
/// reason; without this the kernel ends the process, which says nothing.
pub fn outlive_file_size_limit() {
    let noted = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    // A handler, as a program that is started would inherit that a signal is ignored.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, noted);
}
