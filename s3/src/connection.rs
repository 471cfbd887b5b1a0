//! One connection to a store: HTTP/1.1 as a client of S3 needs it, with or without TLS.
//!
//! Bodies are sent from, and received into, the memory of a request of the pump: nothing is copied
//! in between.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::waits::{LOOK_EVERY, Wait, too_long};
use base::units::Nanos;
use mover::io::clock;
use mover::io::system::unacknowledged_bytes;

/// Of a head with all that announce it, of a line, and of trailers.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 100;

#[derive(Debug)]
pub(crate) struct Connection {
    stream: Stream,
    pub address: SocketAddr,
    /// Received and not consumed: `received[at..]`.
    received: Vec<u8>,
    at: usize,
    body: Body,
    /// The store closes it after the answer, or what was sent is not known.
    ends: bool,
    pub wait: Wait,
}

/// What one call of the socket was good for, with the bytes that it moved.
#[derive(Clone, Copy, Debug)]
enum Step {
    Done(usize),
    /// A part of what TLS needs as a whole.
    Again(usize),
}

/// None of these calls the socket more than once: whoever waits looks in between whether to go on.
impl Stream {
    fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Plain(tcp) => tcp,
            Stream::Tls(tls) => &tls.sock,
        }
    }

    fn shake_hands(&mut self) -> io::Result<Step> {
        match self {
            Stream::Tls(tls) if tls.conn.wants_write() => write_tls(tls),
            Stream::Tls(tls) if tls.conn.is_handshaking() => match read_tls(tls)? {
                0 => Err(ErrorKind::UnexpectedEof.into()),
                count => Ok(Step::Again(count)),
            },
            _ => Ok(Step::Done(0)),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<Step> {
        let tls = match self {
            Stream::Plain(tcp) => return tcp.read(into).map(Step::Done),
            Stream::Tls(tls) => tls,
        };
        match tls.conn.reader().read(into) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            done => return done.map(Step::Done),
        }
        match tls.conn.wants_write() {
            true => write_tls(tls),
            false => read_tls(tls).map(Step::Again),
        }
    }

    fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<Step> {
        match self {
            Stream::Plain(tcp) => tcp.write_vectored(parts).map(Step::Done),
            Stream::Tls(tls) if tls.conn.wants_write() => write_tls(tls),
            Stream::Tls(tls) => tls.conn.writer().write_vectored(parts).map(Step::Done),
        }
    }

    fn flush(&mut self) -> io::Result<Step> {
        match self {
            Stream::Tls(tls) if tls.conn.wants_write() => write_tls(tls),
            _ => Ok(Step::Done(0)),
        }
    }
}

fn write_tls(tls: &mut StreamOwned<ClientConnection, TcpStream>) -> io::Result<Step> {
    match tls.conn.write_tls(&mut tls.sock)? {
        0 => Err(ErrorKind::WriteZero.into()),
        count => Ok(Step::Again(count)),
    }
}

fn read_tls(tls: &mut StreamOwned<ClientConnection, TcpStream>) -> io::Result<usize> {
    let count = tls.conn.read_tls(&mut tls.sock)?;
    if let Err(why) = tls.conn.process_new_packets() {
        let _ = tls.conn.write_tls(&mut tls.sock); // the alert that says so
        return Err(io::Error::new(ErrorKind::InvalidData, why));
    }
    Ok(count)
}

/// The monitor of a request is told how many bytes of its body have moved since the last call, as
/// far as the other side has acknowledged them, or that none have for a moment. It may end the
/// request with an error.
pub(crate) type Monitor<'a> = &'a mut dyn FnMut(usize) -> io::Result<()>;

/// Called where the socket was not ready for a moment.
type Tick<'a> = &'a mut dyn FnMut(&TcpStream) -> io::Result<()>;

/// The body of a request on its way: what the socket took, and what has been told of it.
#[derive(Debug, Default)]
struct Sending {
    written_bytes: usize,
    told_bytes: usize,
}

impl Sending {
    /// Bytes that have been acknowledged since the last call.
    fn news(&mut self, tcp: &TcpStream) -> usize {
        let queued = unacknowledged_bytes(tcp.as_fd()).unwrap_or(0) as usize;
        let acknowledged = self.written_bytes.saturating_sub(queued);
        let news = acknowledged.saturating_sub(self.told_bytes);
        self.told_bytes += news;
        news
    }
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

pub(crate) fn unmonitored(_: usize) -> io::Result<()> {
    Ok(())
}

/// The monitor of a request has given its connection up: another one is faster.
#[derive(Debug)]
pub(crate) struct LeftBehind;

impl fmt::Display for LeftBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its connection was left behind by others")
    }
}

impl std::error::Error for LeftBehind {}

impl From<LeftBehind> for io::Error {
    fn from(left: LeftBehind) -> io::Error {
        io::Error::other(left)
    }
}

pub(crate) fn is_left_behind(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<LeftBehind>())
}

/// What is left of the body of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Sized(u64),
    Chunk(u64),
    /// A chunk has ended; the next one has a size first.
    BetweenChunks,
    UntilClosed,
    Done,
}

/// The first part of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub status: u16,
    /// Names have small letters.
    pub headers: Vec<(String, String)>,
}

/// What a request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub sending: Nanos,
    /// From its last byte to the head of its answer.
    pub first_byte: Nanos,
    pub receiving: Nanos,
}

impl Head {
    /// A header; empty where there is none.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

impl Connection {
    pub(crate) fn open(
        address: SocketAddr,
        host: &str,
        tls: Option<&Arc<ClientConfig>>,
        mut wait: Wait,
    ) -> io::Result<Connection> {
        let within = wait.limits.connect;
        let connect = move || TcpStream::connect_timeout(&address, within);
        let tcp = wait.at_most(within).apart(connect)?;
        tcp.set_nodelay(true)?;
        let often = wait.limits.silent.min(LOOK_EVERY);
        tcp.set_read_timeout(Some(often))?;
        tcp.set_write_timeout(Some(often))?;
        let stream = match tls {
            None => Stream::Plain(tcp),
            Some(config) => {
                let bare = host.trim_start_matches('[').trim_end_matches(']').to_string();
                let name = ServerName::try_from(bare).map_err(io::Error::other)?;
                let session =
                    ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
                let mut stream = Stream::Tls(Box::new(StreamOwned::new(session, tcp)));
                wait.at_most(wait.limits.head);
                patiently(&mut stream, &mut wait, &mut |_| Ok(()), Stream::shake_hands)?;
                stream
            }
        };
        let (received, at, body) = (Vec::new(), 0, Body::Done);
        Ok(Connection { stream, address, received, at, body, ends: false, wait })
    }

    /// The body that comes is text, which a store may take its time for.
    pub(crate) fn expect_text(&mut self) {
        self.wait.at_most(self.wait.limits.text);
    }

    /// Sends a request and receives the first part of its answer.
    pub(crate) fn ask(
        &mut self,
        head: &str,
        body: &[u8],
        method: &str,
        monitor: Monitor<'_>,
    ) -> io::Result<(Head, Spent)> {
        let began = clock::now();
        let mut sending = Sending::default();
        self.wait.while_moving();
        let sent = self.send((head.as_bytes(), body), &mut sending, monitor);
        if sent.as_ref().is_err_and(is_left_behind) {
            return Err(LeftBehind.into());
        }
        self.wait.at_most(self.wait.limits.head);
        let waiting = clock::now();
        let spent_sending = waiting.since(began);
        // A store that refuses may answer, and close, before it has read everything.
        self.ends |= sent.is_err();
        let answered = self.head(method, &mut |tcp| monitor(sending.news(tcp)));
        let first_byte = clock::now().since(waiting);
        match (answered, sent) {
            (Ok(head), _) => {
                self.wait.while_moving();
                // It is answered: it is not given up any more.
                let _ = monitor(sending.written_bytes - sending.told_bytes);
                let spent = Spent { sending: spent_sending, first_byte, receiving: Nanos(0) };
                Ok((head, spent))
            }
            (Err(_), Err(error)) | (Err(error), Ok(())) => Err(error),
        }
    }

    fn send(
        &mut self,
        (mut head, mut body): (&[u8], &[u8]),
        sending: &mut Sending,
        monitor: Monitor<'_>,
    ) -> io::Result<()> {
        while !head.is_empty() || !body.is_empty() {
            let parts = [IoSlice::new(head), IoSlice::new(body)];
            let mut tick = |tcp: &TcpStream| monitor(sending.news(tcp));
            let write = |stream: &mut Stream| stream.write(&parts);
            let count = patiently(&mut self.stream, &mut self.wait, &mut tick, write)?;
            if count == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
            let of_head = count.min(head.len());
            head = &head[of_head..];
            body = &body[count - of_head..];
            sending.written_bytes += count - of_head;
            monitor(sending.news(self.stream.tcp()))?;
        }
        let mut tick = |tcp: &TcpStream| monitor(sending.news(tcp));
        patiently(&mut self.stream, &mut self.wait, &mut tick, Stream::flush).map(|_| ())
    }

    fn head(&mut self, method: &str, tick: Tick<'_>) -> io::Result<Head> {
        let mut announced_bytes = 0;
        loop {
            let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
            let mut answer = httparse::Response::new(&mut headers);
            let unread = &self.received[self.at..];
            match answer.parse(unread).map_err(|why| bad(&why.to_string()))? {
                httparse::Status::Complete(bytes) => {
                    let head = Head {
                        status: answer.code.unwrap_or(0),
                        headers: answer
                            .headers
                            .iter()
                            .map(|header| {
                                let value = String::from_utf8_lossy(header.value);
                                (header.name.to_ascii_lowercase(), value.trim().to_string())
                            })
                            .collect(),
                    };
                    self.at += bytes;
                    if (100..200).contains(&head.status) {
                        announced_bytes += bytes;
                        if announced_bytes > HEAD_BYTES_MAX {
                            return Err(bad("it is announced again and again"));
                        }
                        continue;
                    }
                    self.ends |= head.get("connection").eq_ignore_ascii_case("close");
                    self.body = body_of(&head, method)?;
                    return Ok(head);
                }
                httparse::Status::Partial if unread.len() > HEAD_BYTES_MAX => {
                    return Err(bad("its headers are too long"));
                }
                httparse::Status::Partial => {
                    if self.fill(tick)? == 0 {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                }
            }
        }
    }

    /// Receives some of the body, and 0 bytes where it has ended.
    pub(crate) fn read(&mut self, into: &mut [u8], monitor: Monitor<'_>) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            let most = match self.body {
                Body::Done => return Ok(0),
                Body::Sized(0) => {
                    self.body = Body::Done;
                    continue;
                }
                Body::Chunk(0) => {
                    self.line(&mut |_| monitor(0))?; // what ends a chunk
                    self.body = Body::BetweenChunks;
                    continue;
                }
                Body::BetweenChunks => {
                    self.next_chunk(&mut |_| monitor(0))?;
                    continue;
                }
                Body::Sized(left) | Body::Chunk(left) => left,
                Body::UntilClosed => u64::MAX,
            };
            let len = into.len().min(usize::try_from(most).unwrap_or(usize::MAX));
            let count = self.take(&mut into[..len], &mut |_| monitor(0))?;
            match (&mut self.body, count) {
                (Body::UntilClosed, 0) => self.body = Body::Done,
                (_, 0) => return Err(ErrorKind::UnexpectedEof.into()),
                (Body::Sized(left) | Body::Chunk(left), _) => *left -= count as u64,
                _ => {}
            }
            monitor(count)?;
            return Ok(count);
        }
    }

    /// True where another request can be sent: the body has been received.
    pub(crate) fn is_reusable(&self) -> bool {
        let is_over = matches!(self.body, Body::Done | Body::Sized(0));
        is_over && !self.ends && self.at == self.received.len()
    }

    /// What was received with the head, then what comes from the network.
    fn take(&mut self, into: &mut [u8], tick: Tick<'_>) -> io::Result<usize> {
        let unread = &self.received[self.at..];
        if unread.is_empty() {
            return receive(&mut self.stream, into, (&mut self.wait, tick));
        }
        let count = unread.len().min(into.len());
        into[..count].copy_from_slice(&unread[..count]);
        self.at += count;
        Ok(count)
    }

    fn next_chunk(&mut self, tick: Tick<'_>) -> io::Result<()> {
        let line = self.line(tick)?;
        let digits = line.split(';').next().unwrap_or("").trim();
        let len = u64::from_str_radix(digits, 16).map_err(|_| bad("a chunk without a size"))?;
        self.body = Body::Chunk(len);
        if len == 0 {
            self.trailers(tick)?;
            self.body = Body::Done;
        }
        Ok(())
    }

    fn trailers(&mut self, tick: Tick<'_>) -> io::Result<()> {
        self.wait.at_most(self.wait.limits.head);
        let mut bytes = 0;
        loop {
            match self.line(tick)?.len() {
                0 => return Ok(()),
                len => bytes += len,
            }
            if bytes > HEAD_BYTES_MAX {
                return Err(bad("its trailers are too long"));
            }
        }
    }

    fn line(&mut self, tick: Tick<'_>) -> io::Result<String> {
        loop {
            let unread = &self.received[self.at..];
            if let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8_lossy(&unread[..end]).trim_end().to_string();
                self.at += end + 1;
                return Ok(line);
            }
            if unread.len() > HEAD_BYTES_MAX {
                return Err(bad("a line is too long"));
            }
            if self.fill(tick)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn fill(&mut self, tick: Tick<'_>) -> io::Result<usize> {
        self.received.drain(..self.at);
        self.at = 0;
        let len = self.received.len();
        self.received.resize(len + RECEIVE_BYTES, 0);
        let patience = (&mut self.wait, tick);
        let count = receive(&mut self.stream, &mut self.received[len..], patience);
        self.received.truncate(len + *count.as_ref().unwrap_or(&0));
        count
    }
}

/// Little: the body that follows goes to where it belongs.
const RECEIVE_BYTES: usize = 4096;

fn receive(
    stream: &mut Stream,
    into: &mut [u8],
    (wait, tick): (&mut Wait, Tick<'_>),
) -> io::Result<usize> {
    patiently(stream, wait, tick, |stream| stream.read(into))
}

/// Again and again, until it is done, the socket has been silent for too long, or the wait for it
/// ends.
fn patiently(
    stream: &mut Stream,
    wait: &mut Wait,
    tick: Tick<'_>,
    mut work: impl FnMut(&mut Stream) -> io::Result<Step>,
) -> io::Result<usize> {
    let mut moved_at = clock::now();
    loop {
        match work(stream) {
            Ok(Step::Done(count)) => {
                wait.check(count)?;
                return Ok(count);
            }
            Ok(Step::Again(count)) => {
                wait.check(count)?;
                moved_at = clock::now();
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => wait.check(0)?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait.check(0)?;
                if clock::now().since(moved_at) >= Nanos::from(wait.limits.silent) {
                    return Err(too_long("it was silent for too long"));
                }
                tick(stream.tcp())?;
            }
            Err(error) => return Err(error),
        }
    }
}

fn body_of(head: &Head, method: &str) -> io::Result<Body> {
    if method == "HEAD" || matches!(head.status, 204 | 304) {
        return Ok(Body::Done);
    }
    if head.get("transfer-encoding").eq_ignore_ascii_case("chunked") {
        return Ok(Body::BetweenChunks);
    }
    match head.get("content-length") {
        "" => Ok(Body::UntilClosed),
        len => len.parse().map(Body::Sized).map_err(|_| bad("its length is no number")),
    }
}

fn bad(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("the answer is not HTTP: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::{Limits, SILENT_MAX, Stop};
    use std::net::TcpListener;

    /// A connection to something that has answered all requests beforehand.
    fn to(answers: &'static str) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut tcp, _) = listener.accept().unwrap();
            tcp.write_all(answers.as_bytes()).unwrap();
            let _ = tcp.shutdown(std::net::Shutdown::Write);
            let _ = io::copy(&mut tcp, &mut io::sink());
        });
        let wait = Wait::new(Limits::of(SILENT_MAX), &Stop::default());
        Connection::open(address, "h", None, wait).unwrap()
    }

    fn all(connection: &mut Connection) -> io::Result<String> {
        let (mut bytes, mut some) = (Vec::new(), [0; 3]);
        loop {
            match connection.read(&mut some, &mut unmonitored)? {
                0 => return Ok(String::from_utf8(bytes).unwrap()),
                count => bytes.extend_from_slice(&some[..count]),
            }
        }
    }

    #[test]
    fn bodies_end_as_their_heads_say() {
        let cases = [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "GET", "hello", true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "HEAD", "", false),
            ("HTTP/1.1 100 C\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "PUT", "", true),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n\
                 0\r\nT: x\r\n\r\n",
                "GET",
                "hello",
                true,
            ),
            ("HTTP/1.1 200 OK\r\n\r\nhello", "GET", "hello", true),
            ("HTTP/1.1 204 No\r\n\r\n", "DELETE", "", true),
            (
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx",
                "GET",
                "x",
                false,
            ),
        ];
        for (answer, method, expect, reusable) in cases {
            let mut connection = to(answer);
            connection.ask("GET / HTTP/1.1\r\n\r\n", b"", method, &mut unmonitored).unwrap();
            assert_eq!(all(&mut connection).unwrap(), expect, "{answer}");
            assert_eq!(connection.is_reusable(), reusable, "{answer}");
        }
    }

    #[test]
    fn what_is_cut_short_is_an_error() {
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        ] {
            let mut connection = to(answer);
            connection.ask("GET / HTTP/1.1\r\n\r\n", b"", "GET", &mut unmonitored).unwrap();
            assert!(all(&mut connection).is_err(), "{answer}");
            assert!(!connection.is_reusable(), "{answer}");
        }
        for answer in
            ["", "HTTP/1.1 20", "no HTTP\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"]
        {
            assert!(
                to(answer).ask("GET / HTTP/1.1\r\n\r\n", b"", "GET", &mut unmonitored).is_err(),
                "{answer}"
            );
        }
    }
}
