//! TCP connections: made, tuned, asked and cut.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use super::system;
use super::volume::Handle;
use crate::base::fault::Fault;
use crate::base::units::Nanos;

/// How a connection is to be set up.
#[derive(Clone, Debug, Default)]
pub struct Tuning {
    /// The window to advertise; `None` leaves autotuning alone.
    pub window_bytes: Option<u32>,
    /// `None` leaves the host's default.
    pub congestion: Option<String>,
}

/// What both socket buffers are held to when the peer is this very host: what is in flight then
/// fits the caches. Where that is best differs by processor (runs/2026-11-20-engines.md).
pub const SAME_HOST_BUFFER_BYTES: usize = 512 << 10;

/// Listens on all addresses, at the first free port of the range.
pub fn listen(ports: Option<(u16, u16)>, tuning: &Tuning) -> io::Result<TcpListener> {
    let (low, high) = ports.unwrap_or((0, 0));
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for port in low..=high {
        let six = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let four = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        match listen_at(six, tuning).or_else(|_| listen_at(four, tuning)) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn listen_at(address: SocketAddr, tuning: &Tuning) -> io::Result<TcpListener> {
    let socket = new_socket(address, tuning)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(128)?;
    Ok(socket.into())
}

/// Refuses new connections from now on; a thread that waits for one comes back.
pub fn stop_listening(listener: &TcpListener) {
    let _ = rustix::net::shutdown(listener, rustix::net::Shutdown::Both);
}

/// Fails when this host has no congestion control of that name.
pub fn check_congestion(name: Option<&str>) -> Result<(), Fault> {
    let Some(name) = name else { return Ok(()) };
    let tried = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))
        .and_then(|socket| socket.set_tcp_congestion(name.as_bytes()));
    tried.map_err(|error| {
        let list = "/proc/sys/net/ipv4/tcp_available_congestion_control";
        let there = std::fs::read_to_string(list).unwrap_or_default();
        Fault::usage(format!(
            "no congestion control '{name}' on this host ({error}); it has: {}",
            there.trim()
        ))
    })
}

/// Connects within `timeout`.
pub fn connect(address: SocketAddr, tuning: &Tuning, timeout: Duration) -> io::Result<TcpStream> {
    let socket = new_socket(address, tuning)?;
    socket.connect_timeout(&address.into(), timeout)?;
    Ok(socket.into())
}

/// A socket with what must be set before the connection: the window scale is agreed on in the SYN.
fn new_socket(address: SocketAddr, tuning: &Tuning) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if let Some(window) = tuning.window_bytes {
        socket.set_recv_buffer_size(window as usize)?;
        socket.set_send_buffer_size(window as usize)?;
    }
    if let Some(name) = &tuning.congestion {
        socket.set_tcp_congestion(name.as_bytes())?;
    }
    Ok(socket)
}

/// How long a connection may say nothing before TCP asks whether the other end is there.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);

/// Tunes a connection that has proved who it is.
pub fn tune(stream: &TcpStream, tuning: &Tuning) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    // A path that forgets connections is noticed on one that waits, and kept from forgetting it.
    let alive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_AFTER)
        .with_retries(3);
    socket.set_tcp_keepalive(&alive)?;
    if tuning.window_bytes.is_none() && is_same_host(stream) {
        socket.set_send_buffer_size(SAME_HOST_BUFFER_BYTES)?;
        socket.set_recv_buffer_size(SAME_HOST_BUFFER_BYTES)?;
    }
    Ok(())
}

/// True when both ends of a connection are on this host.
pub fn is_same_host(stream: &TcpStream) -> bool {
    match (stream.local_addr(), stream.peer_addr()) {
        (Ok(local), Ok(peer)) => {
            plain(local.ip()) == plain(peer.ip()) || plain(peer.ip()).is_loopback()
        }
        _ => false,
    }
}

fn plain(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

pub fn into_handle(stream: TcpStream) -> Handle {
    Handle::new(OwnedFd::from(stream))
}

/// The congestion control that a connection runs; empty for what is no TCP socket.
pub fn congestion(handle: &Handle) -> String {
    rustix::net::sockopt::tcp_congestion(handle.fd()).unwrap_or_default()
}

/// The largest window seen so far can only be asked now and then; this is the current one.
pub fn peer_window_bytes(handle: &Handle) -> u64 {
    system::tcp_info(handle.fd()).map_or(0, |info| info.peer_window_bytes)
}

/// True when segments have been sent and no answer of any kind has come for so long: a slow reader
/// still answers, so it is the path.
pub fn path_is_dead(handle: &Handle, stall: Nanos) -> bool {
    system::tcp_info(handle.fd())
        .is_some_and(|info| info.unacknowledged > 0 && info.since_acknowledged.0 > stall.0)
}

/// True when nothing has come for so long and nothing waits to be read.
pub fn is_starved(handle: &Handle, stall: Nanos) -> bool {
    let waiting = rustix::io::ioctl_fionread(handle.fd()).unwrap_or(0);
    waiting == 0
        && system::tcp_info(handle.fd()).is_some_and(|info| info.since_received.0 > stall.0)
}

/// Says that nothing more will be sent; what is under way still arrives.
pub fn finish(handle: &Handle) {
    if let Handle::Fd(fd) = handle {
        let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Write);
    }
}

/// Ends a connection in both directions; a thread that waits on it comes back.
pub fn cut(handle: &Handle) {
    if let Handle::Fd(fd) = handle {
        let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Both);
    }
}
