//! What the kernel says about a connection and about this process.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;

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
