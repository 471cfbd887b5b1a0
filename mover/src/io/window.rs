//! The receive window that a socket advertises, kept at the size that was asked for.
//!
//! `SO_RCVBUF` is memory, not a window: the kernel doubles it, advertises a share of it, and learns
//! that share from the first full segment. `TCP_WINDOW_CLAMP` is a window, but the kernel resets it
//! whenever it learns. So the clamp is set with memory that is too small to overshoot until the
//! share has been learned, and then set again with ample memory. The figures are in
//! docs/decisions/0029.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::system::{self, Windows};
use base::units::Bytes;

/// What a socket does for the window that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Its host receives: it advertises the window.
    Advertise(u32),
    /// Its host sends: it must be able to fill the window.
    Fill(u32),
}

/// Called before connecting: the first packets negotiate the scale of the window and the size of
/// segments.
pub(crate) fn announce(socket: &Socket, window: Window) -> io::Result<()> {
    let Window::Advertise(bytes) = window else { return Ok(()) };
    let Announced { clamp_bytes, segment_bytes } = announced(bytes);
    system::set_window_clamp(socket.as_fd(), clamp_bytes)?;
    segment_bytes.map_or(Ok(()), |bytes| socket.set_tcp_mss(bytes))
}

/// What the first packets announce for a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Announced {
    clamp_bytes: u32,
    /// The largest segment that the peer may send, its TCP options included.
    segment_bytes: Option<u32>,
}

/// Without a scale the kernel advertises whole segments, so a small window is cut into segments
/// that divide it, and begins with half of it, as it may only grow. A larger one begins with the
/// smallest clamp whose scale can express it.
fn announced(window: u32) -> Announced {
    if window <= UNSCALED_BYTES_MAX {
        let segments = window.div_ceil(SEGMENT_BYTES_MAX);
        let segment_bytes = Some(window / segments + TIMESTAMP_BYTES);
        return Announced { clamp_bytes: window / 2, segment_bytes };
    }
    let scale = (1..=SCALE_MAX).find(|scale| UNSCALED_BYTES_MAX << scale >= window);
    // A segment as long as the window, as on loopback, would make it grow beyond its size.
    let segment_bytes = (window / SEGMENTS_MIN).max(ETHERNET_BYTES) + TIMESTAMP_BYTES;
    Announced {
        clamp_bytes: 1 << (15 + scale.unwrap_or(SCALE_MAX)),
        segment_bytes: (segment_bytes <= UNSCALED_BYTES_MAX / 2).then_some(segment_bytes),
    }
}

/// Called on a connection that has just been made.
pub fn hold(socket: BorrowedFd<'_>, window: Window) {
    match window {
        Window::Advertise(bytes) => apply(socket, bytes, tight(bytes)),
        Window::Fill(bytes) => {
            // Where the system allows less than that, its autotuning may still reach further.
            let room = bytes.saturating_mul(FILL_FACTOR);
            if send_buffer_max() >= room {
                set_send_buffer(socket, room);
            }
        }
    }
}

/// Called now and then while bytes arrive: sets again what the kernel has reset.
pub fn keep(socket: BorrowedFd<'_>, window: u32) {
    let (Some(clamp_bytes), Ok(buffer_bytes), Some(met)) = (
        system::window_clamp(socket),
        SockRef::from(&socket).recv_buffer_size(),
        system::windows(socket),
    ) else {
        return;
    };
    let now = Held { clamp_bytes, buffer_bytes: buffer_bytes as u32 };
    if let Some(buffer_bytes) = buffer_to_hold(now, met, window, receive_buffer_max()) {
        apply(socket, window, buffer_bytes);
    }
}

/// The settings of a socket, as the kernel reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    clamp_bytes: u32,
    buffer_bytes: u32,
}

/// The receive buffer to set, with the clamp; `None` where both are right.
fn buffer_to_hold(now: Held, met: Windows, window: u32, buffer_max: u32) -> Option<u32> {
    // A path with small segments never shows the largest one: then this many bytes are enough.
    let learned = met.segment_received_bytes + SEGMENT_SLACK_BYTES >= met.segment_allowed_bytes
        || met.received_bytes > u64::from(window) * 4 + LEARNING_BYTES_MAX;
    let wanted = if learned { ample(window) } else { tight(window) }.min(buffer_max);
    let fits = now.clamp_bytes == window && now.buffer_bytes >= wanted;
    (!fits).then_some(wanted)
}

/// Memory of which the largest share is the window.
fn tight(window: u32) -> u32 {
    (window / 20).saturating_add(window)
}

/// Memory of which the smallest share is the window; where the share is larger, the rest is for
/// bytes that wait to be read.
fn ample(window: u32) -> u32 {
    window.saturating_mul(4)
}

fn apply(socket: BorrowedFd<'_>, window: u32, buffer_bytes: u32) {
    set_receive_buffer(socket, buffer_bytes);
    let _ = system::set_window_clamp(socket, window);
}

/// The kernel doubles what it is given, so it gets half.
fn set_receive_buffer(socket: BorrowedFd<'_>, bytes: u32) {
    let half = bytes as usize / 2;
    if rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, half).is_err() {
        let _ = SockRef::from(&socket).set_recv_buffer_size(half);
    }
}

fn set_send_buffer(socket: BorrowedFd<'_>, bytes: u32) {
    let half = bytes as usize / 2;
    if rustix::net::sockopt::set_socket_send_buffer_size_force(socket, half).is_err() {
        let _ = SockRef::from(&socket).set_send_buffer_size(half);
    }
}

/// The largest buffers that this process may have, found by asking for more.
fn receive_buffer_max() -> u32 {
    static MAX: OnceLock<u32> = OnceLock::new();
    *MAX.get_or_init(|| {
        buffer_max(|socket| {
            set_receive_buffer(socket, u32::MAX / 2);
            SockRef::from(&socket).recv_buffer_size()
        })
    })
}

fn send_buffer_max() -> u32 {
    static MAX: OnceLock<u32> = OnceLock::new();
    *MAX.get_or_init(|| {
        buffer_max(|socket| {
            set_send_buffer(socket, u32::MAX / 2);
            SockRef::from(&socket).send_buffer_size()
        })
    })
}

fn buffer_max(ask: impl FnOnce(BorrowedFd<'_>) -> io::Result<usize>) -> u32 {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP));
    socket.and_then(|socket| ask(socket.as_fd())).map_or(0, |bytes| bytes as u32)
}

/// How this host's limits change a window, where it is not what was asked for; for the user.
pub(crate) fn shortfall(window: Window) -> Option<String> {
    let tuned_max = tuned_send_buffer_max();
    match window {
        Window::Advertise(bytes) => advertise_shortfall(bytes, receive_buffer_max()),
        Window::Fill(bytes) => fill_shortfall(bytes, send_buffer_max().max(tuned_max)),
    }
}

fn advertise_shortfall(window: u32, buffer_max: u32) -> Option<String> {
    (buffer_max / 2 < window).then(|| {
        format!(
            "--window {}: the receiving host lets a program have receive buffers of {}, so the \
             window may stay near {}; to allow it there, as root: sysctl -w \
             net.core.rmem_max={}",
            Bytes(window.into()).typed(),
            Bytes(buffer_max.into()),
            Bytes(u64::from(buffer_max / 2)),
            u64::from(window) * 2
        )
    })
}

fn fill_shortfall(window: u32, buffer_max: u32) -> Option<String> {
    (u64::from(buffer_max) < u64::from(window) * 2).then(|| {
        format!(
            "--window {}: the sending host lets a program have send buffers of {}, which cannot \
             fill such a window; to allow it there, as root: sysctl -w net.core.wmem_max={}",
            Bytes(window.into()).typed(),
            Bytes(buffer_max.into()),
            u64::from(window) * 2
        )
    })
}

/// The limit of the system's own tuning of send buffers.
fn tuned_send_buffer_max() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").unwrap_or_default();
    text.split_whitespace().nth(2).and_then(|max| max.parse().ok()).unwrap_or(0)
}

/// The largest window without a scale, and the largest scale (RFC 7323).
const UNSCALED_BYTES_MAX: u32 = 65535;
const SCALE_MAX: u32 = 14;
/// Payload of a segment on Ethernet over IPv6, and what timestamps take of each segment.
const SEGMENT_BYTES_MAX: u32 = 1428;
const TIMESTAMP_BYTES: u32 = 12;
/// Payload of a segment on Ethernet over IPv4; and the least number of segments in a larger window.
const ETHERNET_BYTES: u32 = 1448;
const SEGMENTS_MIN: u32 = 64;
/// TCP options make a full segment at most this much smaller than the largest.
const SEGMENT_SLACK_BYTES: u32 = 40;
/// After this much besides four windows, no larger segment will come.
const LEARNING_BYTES_MAX: u64 = 64 << 10;
/// A writer is woken when a third of the send buffer is free, and a third of the memory may be
/// overhead: this factor keeps a window full.
const FILL_FACTOR: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_first_packets_say() {
        let cases = [
            (4 << 10, 2 << 10, Some(1365 + 12)),
            (8 << 10, 4 << 10, Some(1365 + 12)),
            (16 << 10, 8 << 10, Some(1365 + 12)),
            (32 << 10, 16 << 10, Some(1424 + 12)),
            (65535, 32767, Some(1424 + 12)),
            (64 << 10, 1 << 16, Some(1460)),
            (131_070, 1 << 16, Some(2047 + 12)),
            (128 << 10, 1 << 17, Some(2048 + 12)),
            (256 << 10, 1 << 18, Some(4096 + 12)),
            (1 << 20, 1 << 20, Some(16_384 + 12)),
            (1 << 30, 1 << 29, None),
        ];
        for (window, clamp_bytes, segment_bytes) in cases {
            let expect = Announced { clamp_bytes, segment_bytes };
            assert_eq!(announced(window), expect, "{window}");
            if let Some(segment_bytes) = segment_bytes.filter(|_| window <= UNSCALED_BYTES_MAX) {
                let payload = segment_bytes - TIMESTAMP_BYTES;
                assert!(window % payload < window / 50, "{window} in whole segments");
            }
        }
    }

    #[test]
    fn the_clamp_is_set_again_when_it_was_forgotten() {
        const N: u32 = 256 << 10;
        let met = |segment_received_bytes, received_bytes| Windows {
            segment_received_bytes,
            segment_allowed_bytes: 1460,
            received_bytes,
            ..Windows::default()
        };
        let held = |clamp_bytes, buffer_bytes| Held { clamp_bytes, buffer_bytes };
        let cases = [
            ("as it was set", held(N, tight(N)), met(536, 900), None),
            ("forgotten by small segments", held(N / 3, tight(N)), met(700, 900), Some(tight(N))),
            ("a full segment has come", held(N / 2, tight(N)), met(1448, 3000), Some(N * 4)),
            ("and it is held", held(N, N * 4), met(1448, 3000), None),
            ("forgotten again", held(N * 3, N * 4), met(1448, 9000), Some(N * 4)),
            ("only small ones come", held(N, tight(N)), met(700, 2 << 20), Some(N * 4)),
        ];
        for (name, now, met, expect) in cases {
            assert_eq!(buffer_to_hold(now, met, N, u32::MAX), expect, "{name}");
        }
        let capped = held(N, N * 2);
        assert_eq!(buffer_to_hold(capped, met(1448, 3000), N, N * 2), None, "all there is");
    }

    #[test]
    fn limits_are_named_with_what_to_set() {
        assert_eq!(advertise_shortfall(1 << 20, 2 << 20), None);
        assert_eq!(fill_shortfall(1 << 20, 2 << 20), None);
        let cases = [
            (advertise_shortfall(64 << 20, 8 << 20), "--window 64M", "rmem_max=134217728"),
            (fill_shortfall(64 << 20, 8 << 20), "--window 64M", "wmem_max=134217728"),
        ];
        for (text, begins, ends) in cases {
            let text = text.unwrap();
            assert!(text.starts_with(begins) && text.ends_with(ends), "{text}");
        }
    }
}
