//! TCP connections: opening, tuning, inspecting and closing them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use super::system;
use super::volume::Handle;
use super::window::{self, Window};
use base::dscp::Dscp;
use base::fault::Fault;
use base::path::PathSample;
use base::units::{Nanos, Tick};

/// How a connection is to be set up.
#[derive(Clone, Debug, Default)]
pub struct Tuning {
    /// The window to advertise or to fill; `None` leaves autotuning alone.
    pub window: Option<Window>,
    /// `None` leaves the host's default.
    pub congestion: Option<String>,
    /// How packets are marked; `None` leaves the host's default.
    pub dscp: Option<Dscp>,
    /// The most that TCP sends on the connection, in bytes a second; `None` sets no limit.
    pub pace_bytes_per_s: Option<u64>,
}

impl Tuning {
    /// True where the user leaves it to the host.
    pub(crate) fn is_plain(&self) -> bool {
        let Tuning { window, congestion, dscp, pace_bytes_per_s } = self;
        let is_set = window.is_some() || congestion.is_some() || dscp.is_some();
        !is_set && pace_bytes_per_s.is_none()
    }
}

/// The size of both socket buffers when the peer is on this host: what is in flight then fits the
/// CPU caches. The best size differs by processor (runs/2026-11-20-engines.md).
pub(crate) const SAME_HOST_BUFFER_BYTES: usize = 512 << 10;

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
    loop {
        let socket = new_socket(address, tuning)?;
        match socket.connect_timeout(&address.into(), timeout) {
            Ok(()) => return Ok(socket.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {} // by a signal to us
            Err(error) => return Err(error),
        }
    }
}

/// A socket with the options to set before connecting: the SYN negotiates the window scale.
fn new_socket(address: SocketAddr, tuning: &Tuning) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if let Some(window) = tuning.window {
        window::announce(&socket, window)?;
    }
    if let Some(dscp) = tuning.dscp {
        mark(&socket, address.is_ipv6(), dscp)?;
    }
    if let Some(name) = &tuning.congestion {
        socket.set_tcp_congestion(name.as_bytes())?;
    }
    Ok(socket)
}

/// Sets the DSCP of a socket. An IPv6 socket may carry IPv4 too, which has its own field.
fn mark(socket: &Socket, is_ipv6: bool, dscp: Dscp) -> io::Result<()> {
    let octet = dscp.octet().into();
    if is_ipv6 {
        socket.set_tclass_v6(octet)?;
    }
    socket.set_tos_v4(octet)
}

/// This much may wait for a receiver that has no CPU for a moment. The smallest send buffer that
/// TCP uses for a path holds more than twice that when it is full.
const BEHIND_BYTES: u32 = 8 << 10;
/// How long a connection may be idle before TCP asks whether the other end is there.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);

/// Tunes a connection that has proved that it belongs to the transfer.
pub fn tune(stream: &TcpStream, tuning: &Tuning) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    // Keepalives keep a NAT or firewall from dropping an idle connection, and notice if one did.
    let alive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_AFTER)
        .with_retries(3);
    socket.set_tcp_keepalive(&alive)?;
    match tuning.window {
        Some(window) => window::hold(stream.as_fd(), window),
        None if is_same_host(stream) => {
            socket.set_send_buffer_size(SAME_HOST_BUFFER_BYTES)?;
            socket.set_recv_buffer_size(SAME_HOST_BUFFER_BYTES)?;
        }
        None => {}
    }
    match tuning.pace_bytes_per_s {
        Some(pace) => system::set_pace(stream.as_fd(), pace),
        None => Ok(()),
    }
}

/// True when both ends of a connection are on this host.
fn is_same_host(stream: &TcpStream) -> bool {
    match (stream.local_addr(), stream.peer_addr()) {
        (Ok(local), Ok(peer)) => {
            plain(local.ip()) == plain(peer.ip()) || plain(peer.ip()).is_loopback()
        }
        _ => false,
    }
}

/// True for an address of this host, as its routes say.
pub(crate) fn is_this_host(ip: IpAddr) -> bool {
    let ip = plain(ip);
    // The system would send from the address itself. Nothing is sent.
    let any = if ip.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let from = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((ip, 9))?;
        socket.local_addr()
    });
    ip.is_loopback() || from.is_ok_and(|from| plain(from.ip()) == ip)
}

fn plain(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

pub fn into_handle(stream: TcpStream) -> Handle {
    Handle::new(OwnedFd::from(stream))
}

/// The congestion control of a connection; empty if it is not a TCP socket.
pub fn congestion(handle: &Handle) -> String {
    rustix::net::sockopt::tcp_congestion(handle.fd()).unwrap_or_default()
}

/// The current window. TCP does not report the largest so far: ask for this now and then.
pub fn peer_window_bytes(handle: &Handle) -> u64 {
    system::tcp_info(handle.fd()).map_or(0, |info| info.peer_window_bytes)
}

/// The peer's window scale in bits; `None` if it is not a TCP socket.
pub(crate) fn peer_window_scale(handle: &Handle) -> Option<u8> {
    system::windows(handle.fd()).map(|windows| windows.peer_scale)
}

/// Keeps a connection's receive window at the size that was asked for.
pub(crate) fn keep_window(handle: &Handle, window_bytes: u32) {
    window::keep(handle.fd(), window_bytes);
}

/// Limits what TCP sends, in bytes a second, and spaces it.
pub(crate) fn set_pace(handle: &Handle, bytes_per_s: u64) {
    // Where that fails, the connection works as before.
    let _ = system::set_pace(handle.fd(), bytes_per_s);
}

/// Acknowledges at once what has been received.
pub(crate) fn acknowledge(handle: &Handle) {
    // Where that fails, it is acknowledged a little later.
    let _ = rustix::net::sockopt::set_tcp_quickack(handle.fd(), true);
}

/// What TCP reports of a connection now; `None` if it is not a TCP socket.
pub fn path_sample(handle: &Handle, at: Tick) -> Option<PathSample> {
    system::path_sample(handle.fd(), at)
}

/// The same, and the segments that have been delivered, those after a gap included.
pub(crate) fn delivery(handle: &Handle, at: Tick) -> Option<(PathSample, u64)> {
    system::delivery(handle.fd(), at)
}

/// True where TCP still holds much of what it was given, sent or not. Otherwise a slow write has
/// waited for a CPU, and not for the path. Also true for other sockets, of which nothing is known.
pub(crate) fn is_behind(handle: &Handle) -> bool {
    match handle {
        Handle::Fd(fd) => {
            system::unacknowledged_bytes(fd.as_fd()).is_none_or(|bytes| bytes > BEHIND_BYTES)
        }
        Handle::Sim(_) | Handle::Object(_) => true,
    }
}

/// True when segments have been sent and nothing has been acknowledged for `stall`: a slow reader
/// still acknowledges, so it is the path.
pub(crate) fn path_is_dead(handle: &Handle, stall: Nanos) -> bool {
    system::tcp_info(handle.fd())
        .is_some_and(|info| info.unacknowledged > 0 && info.since_acknowledged.0 > stall.0)
}

/// True when nothing has arrived for `stall` and nothing waits to be read.
pub fn is_starved(handle: &Handle, stall: Nanos) -> bool {
    let waiting = rustix::io::ioctl_fionread(handle.fd()).unwrap_or(0);
    waiting == 0
        && system::tcp_info(handle.fd()).is_some_and(|info| info.since_received.0 > stall.0)
}

/// Closes the sending direction; what is in flight still arrives.
pub fn finish(handle: &Handle) {
    if let Handle::Fd(fd) = handle {
        let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Write);
    }
}

/// Shuts down a connection in both directions; a thread that waits on it returns.
pub fn cut(handle: &Handle) {
    if let Handle::Fd(fd) = handle {
        let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    /// Sends from one end to the other, with a window, and returns the largest that the sender saw.
    fn window_seen(listener_at: SocketAddr, window_bytes: u32) -> u64 {
        let advertise =
            Tuning { window: Some(Window::Advertise(window_bytes)), ..Tuning::default() };
        let fill = Tuning { window: Some(Window::Fill(window_bytes)), ..Tuning::default() };
        let listener = listen_at(listener_at, &advertise).unwrap();
        let timeout = Duration::from_secs(60);
        let sender = connect(listener.local_addr().unwrap(), &fill, timeout).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        tune(&receiver, &advertise).unwrap();
        tune(&sender, &fill).unwrap();
        let bytes = window_bytes as usize * 30;
        let receiving = std::thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            let mut left = bytes;
            while left > 0 {
                left -= receiver.read(&mut buffer).unwrap();
                window::keep(receiver.as_fd(), window_bytes);
            }
        });
        let mut writer = &sender;
        let piece = vec![0; window_bytes as usize];
        let handle = into_handle(sender.try_clone().unwrap());
        let mut seen = 0;
        for _ in 0..30 {
            writer.write_all(&piece).unwrap();
            seen = peer_window_bytes(&handle).max(seen);
        }
        receiving.join().unwrap();
        seen.max(peer_window_bytes(&handle))
    }

    #[test]
    fn who_fills_the_send_buffer_is_behind_and_who_sends_little_is_not() {
        let usual = Tuning::default();
        let listener = listen_at("127.0.0.1:0".parse().unwrap(), &usual).unwrap();
        let timeout = Duration::from_secs(60);
        let sender = connect(listener.local_addr().unwrap(), &usual, timeout).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let handle = into_handle(sender.try_clone().unwrap());
        let mut writer = &sender;
        // The receiver does not run in the meantime.
        (0..20).for_each(|_| writer.write_all(&[0; 51]).unwrap());
        assert!(!is_behind(&handle));
        sender.set_nonblocking(true).unwrap();
        let mut given = 20 * 51;
        while let Ok(count) = writer.write(&[0; 64 << 10]) {
            given += count;
        }
        assert!(is_behind(&handle));
        receiver.read_exact(&mut vec![0; given]).unwrap();
        let until = std::time::Instant::now() + timeout;
        while is_behind(&handle) && std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        assert!(!is_behind(&handle));
    }

    #[test]
    fn the_sender_sees_the_window_that_was_asked_of_the_receiver() {
        let addresses = ["127.0.0.1:0", "[::1]:0"].map(|text| text.parse().unwrap());
        for (address, window_bytes) in addresses.into_iter().flat_map(|address: SocketAddr| {
            [8 << 10, 64 << 10, 100_000, 256 << 10, 1 << 20].map(|bytes| (address, bytes))
        }) {
            let seen = window_seen(address, window_bytes) as f64;
            let off = (seen / f64::from(window_bytes) - 1.0).abs();
            assert!(off < 0.05, "{address}: asked {window_bytes}, seen {seen}");
        }
    }
}
