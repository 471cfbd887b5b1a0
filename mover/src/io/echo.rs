//! A reflector on another host: the kernel there, by ICMP echo, or a TCP connection whose peer
//! echoes. Sending and receiving never block.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;
use socket2::{Domain, Protocol, Socket, Type};

use base::units::Nanos;

/// What sends the bytes back.
#[derive(Debug)]
pub enum Reflector {
    Icmp(Icmp),
    Tcp(Echoed),
}

/// The kernel of another host, asked as `ping` does.
#[derive(Debug)]
pub struct Icmp {
    socket: Socket,
    framing: Framing,
    /// What tells our packets from those of others.
    cookie: [u8; 8],
}

/// A connection whose far end echoes every byte.
#[derive(Debug)]
pub struct Echoed {
    connection: TcpStream,
    /// The part of a number that has arrived.
    begun: Vec<u8>,
}

/// What a packet looks like on its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Framing {
    request: u8,
    reply: u8,
    /// A raw IPv4 socket delivers the IP header too.
    ip_header: bool,
}

impl Reflector {
    /// Uses ICMP where that is permitted: a datagram socket (`net.ipv4.ping_group_range`), else a
    /// raw one, which needs a capability.
    pub fn icmp(address: IpAddr) -> io::Result<Reflector> {
        let (domain, protocol, request, reply) = match address {
            IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, 8, 0),
            IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, 128, 129),
        };
        let open = |kind| Socket::new(domain, kind, Some(protocol));
        let (socket, ip_header) = match open(Type::DGRAM) {
            Ok(socket) => (socket, false),
            Err(_) => (open(Type::RAW)?, address.is_ipv4()),
        };
        socket.set_nonblocking(true)?;
        socket.connect(&SocketAddr::new(address, 0).into())?;
        let mut cookie = [0; 8];
        getrandom::fill(&mut cookie).map_err(io::Error::other)?;
        let framing = Framing { request, reply, ip_header };
        Ok(Reflector::Icmp(Icmp { socket, framing, cookie }))
    }

    pub fn tcp(connection: TcpStream) -> io::Result<Reflector> {
        connection.set_nodelay(true)?;
        connection.set_nonblocking(true)?;
        Ok(Reflector::Tcp(Echoed { connection, begun: Vec::new() }))
    }

    pub fn method(&self) -> &'static str {
        match self {
            Reflector::Icmp(_) => "icmp",
            Reflector::Tcp(_) => "tcp",
        }
    }

    /// Sends a number. It is not sent later where the system has no room for it now.
    pub fn send(&mut self, number: u32) -> io::Result<()> {
        match self {
            Reflector::Icmp(icmp) => {
                let packet = icmp.framing.packet(icmp.cookie, number);
                rustix::net::send(&icmp.socket, &packet, SendFlags::DONTWAIT)?;
                Ok(())
            }
            Reflector::Tcp(echoed) => echoed.connection.write_all(&number.to_be_bytes()),
        }
    }

    /// Receives a number that has come back; `None` where none has.
    pub fn receive(&mut self) -> io::Result<Option<u32>> {
        loop {
            let found = match self {
                Reflector::Icmp(icmp) => icmp.receive(),
                Reflector::Tcp(echoed) => echoed.receive(),
            };
            match found {
                // A packet of another process, or a part of a number.
                Ok(None) => {}
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Waits until something has arrived, at most this long.
    pub fn wait(&self, at_most: Nanos) -> io::Result<()> {
        let timeout = Timespec {
            tv_sec: (at_most.0 / 1_000_000_000) as i64,
            tv_nsec: (at_most.0 % 1_000_000_000) as i64,
        };
        match poll(&mut [PollFd::from_borrowed_fd(self.fd(), PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(why) => Err(why.into()),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Reflector::Icmp(icmp) => icmp.socket.as_fd(),
            Reflector::Tcp(echoed) => echoed.connection.as_fd(),
        }
    }
}

impl Icmp {
    fn receive(&mut self) -> io::Result<Option<u32>> {
        let mut packet = [0; 256];
        let length = (&self.socket).read(&mut packet)?;
        Ok(self.framing.number(self.cookie, &packet[..length]))
    }
}

impl Echoed {
    fn receive(&mut self) -> io::Result<Option<u32>> {
        let mut bytes = [0; 4];
        let wanted = bytes.len() - self.begun.len();
        match self.connection.read(&mut bytes[..wanted])? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            count => {
                self.begun.extend(&bytes[..count]);
                let whole = <[u8; 4]>::try_from(&self.begun[..]).ok();
                whole.iter().for_each(|_| self.begun.clear());
                Ok(whole.map(u32::from_be_bytes))
            }
        }
    }
}

impl Framing {
    /// An echo request (RFC 792, RFC 4443) as long as that of `ping`.
    fn packet(self, cookie: [u8; 8], number: u32) -> [u8; PACKET_BYTES] {
        let mut packet = [0; PACKET_BYTES];
        packet[0] = self.request;
        // A datagram socket writes its own identifier there; a raw one leaves ours.
        packet[4..6].copy_from_slice(&cookie[..2]);
        packet[6..8].copy_from_slice(&(number as u16).to_be_bytes());
        packet[8..16].copy_from_slice(&cookie);
        packet[16..20].copy_from_slice(&number.to_be_bytes());
        let sum = checksum(&packet);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    /// The number of a reply to us.
    fn number(self, cookie: [u8; 8], packet: &[u8]) -> Option<u32> {
        let header = if self.ip_header { usize::from(packet.first()? & 15) * 4 } else { 0 };
        let reply = packet.get(header..)?;
        let ours = *reply.first()? == self.reply && reply.get(8..16)? == cookie;
        ours.then(|| reply.get(16..20)?.try_into().ok().map(u32::from_be_bytes)).flatten()
    }
}

/// RFC 1071.
fn checksum(packet: &[u8]) -> u16 {
    let words = packet.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let mut sum: u32 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// What `ping` sends: 8 bytes of header and 56 more.
const PACKET_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const RAW: Framing = Framing { request: 8, reply: 0, ip_header: true };

    #[test]
    fn a_reply_is_known_by_its_cookie() {
        let mut packet = RAW.packet([7; 8], 66_000);
        assert_eq!(checksum(&packet), 0, "of a packet with its check sum it is nothing");
        packet[0] = 0;
        let with_header = |packet: &[u8]| [&[0x45_u8][..], &[0; 19], packet].concat();
        assert_eq!(RAW.number([7; 8], &with_header(&packet)), Some(66_000));
        assert_eq!(RAW.number([8; 8], &with_header(&packet)), None, "somebody else's");
        assert_eq!(RAW.number([7; 8], &with_header(&packet)[..30]), None, "cut short");
        assert_eq!(RAW.number([7; 8], &[]), None);
        let bare = Framing { ip_header: false, ..RAW };
        assert_eq!(bare.number([7; 8], &packet), Some(66_000));
        packet[0] = 8;
        assert_eq!(bare.number([7; 8], &packet), None, "our own request");
    }

    #[test]
    fn a_connection_echoes() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let mut reflector = Reflector::tcp(near).unwrap();
        assert_eq!(reflector.receive().unwrap(), None);
        reflector.send(70_000).unwrap();
        let mut bytes = [0; 4];
        far.read_exact(&mut bytes).unwrap();
        for part in [&bytes[..3], &bytes[3..]] {
            far.write_all(part).unwrap();
        }
        let second = Nanos::from_millis(1000);
        let back = (0..3).find_map(|_| {
            reflector.wait(second).unwrap();
            reflector.receive().unwrap()
        });
        assert_eq!(back, Some(70_000));
        drop(far);
        reflector.wait(second).unwrap();
        assert!(reflector.receive().is_err());
    }
}
