//! A small HTTP/1.1 server for pages that are made in memory. Everything about a client is bounded:
//! the number of connections, the size of a request, and the time that it takes.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use base::units::{Nanos, Tick};
use mover::io::clock;

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub is_head: bool,
    /// Without what follows a `?`.
    pub path: String,
    pub accept: String,
    pub host: String,
    /// Empty where the client names none, as a browser that opens a page.
    pub origin: String,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub content_type: &'static str,
    /// More lines of the head.
    pub headers: Vec<(&'static str, String)>,
    pub body: Body,
}

pub enum Body {
    Text(String),
    /// Parts that are asked for one after the other, until there is none.
    Parts(Parts),
}

/// It may wait as long as it likes, and is dropped when the client is gone.
pub type Parts = Box<dyn FnMut() -> Option<String> + Send>;

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Body::Text(text) => f.debug_tuple("Text").field(text).finish(),
            Body::Parts(_) => f.write_str("Parts"),
        }
    }
}

impl Answer {
    pub fn ok(content_type: &'static str, body: String) -> Answer {
        Answer { status: 200, content_type, headers: Vec::new(), body: Body::Text(body) }
    }

    pub fn parts(content_type: &'static str, parts: Parts) -> Answer {
        Answer { body: Body::Parts(parts), ..Answer::ok(content_type, String::new()) }
    }

    pub fn status(status: u16, body: &str) -> Answer {
        Answer { status, ..Answer::ok("text/plain; charset=utf-8", body.into()) }
    }

    pub fn with(mut self, name: &'static str, value: &str) -> Answer {
        self.headers.push((name, value.to_string()));
        self
    }

    fn head(&self) -> String {
        let reason = match self.status {
            200 => "OK",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            431 => "Request Header Fields Too Large",
            503 => "Service Unavailable",
            _ => "Bad Request",
        };
        let mut head = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nConnection: close\r\n",
            self.status, self.content_type,
        );
        if let Body::Text(text) = &self.body {
            head.push_str(&format!("Content-Length: {}\r\n", text.len()));
        }
        if self.status == 405 {
            head.push_str("Allow: GET, HEAD\r\n");
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head + "\r\n"
    }
}

/// The head of a request as a browser or Prometheus sends it; what is wrong with it otherwise.
pub fn parse(head: &[u8]) -> Result<Request, Answer> {
    let bad = || Answer::status(400, "this is no request of HTTP/1.1\n");
    let text = std::str::from_utf8(head).map_err(|_| bad())?;
    let mut lines = text.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = words[..] else { return Err(bad()) };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") || !target.starts_with('/') {
        return Err(bad());
    }
    if !matches!(method, "GET" | "HEAD") {
        return Err(Answer::status(405, "only GET and HEAD are answered\n"));
    }
    let path = target.split('?').next().unwrap_or_default().to_string();
    let mut request = Request { is_head: method == "HEAD", path, ..Request::default() };
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or_else(bad)?;
        let field = match name.to_ascii_lowercase().as_str() {
            "accept" => &mut request.accept,
            // Of two, one might be checked and the other meant.
            "host" if !request.host.is_empty() => return Err(bad()),
            "origin" if !request.origin.is_empty() => return Err(bad()),
            "host" => &mut request.host,
            "origin" => &mut request.origin,
            _ => continue,
        };
        *field = value.trim().to_string();
    }
    Ok(request)
}

/// Serves until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(
        listener: TcpListener,
        answer: impl Fn(&Request) -> Answer + Send + Sync + 'static,
    ) -> io::Result<Server> {
        let address = listener.local_addr()?;
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ends);
        let thread = thread::spawn(move || accept(&listener, &Arc::new(answer), &is_over));
        Ok(Server { address, ends, thread: Some(thread) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    /// Ends at once: a client that is still read from is left to its time-out.
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // A connection of our own wakes up the thread that accepts.
        let mut own = self.address;
        if own.ip().is_unspecified() {
            own.set_ip(match own.ip() {
                std::net::IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                std::net::IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        if TcpStream::connect_timeout(&own, REQUEST_TIME.into()).is_ok() {
            self.thread.take().map(JoinHandle::join);
        }
    }
}

fn accept<F: Fn(&Request) -> Answer + Send + Sync + 'static>(
    listener: &TcpListener,
    answer: &Arc<F>,
    ends: &AtomicBool,
) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if ends.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else {
            // No descriptor is free, for instance: it may pass.
            thread::sleep(ACCEPT_AGAIN);
            continue;
        };
        // One more than these is closed without an answer.
        if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (answer, mine) = (Arc::clone(answer), Arc::clone(&open));
        let spawned = thread::Builder::new().name("http".into()).spawn(move || {
            // A client that goes away has what it wanted.
            let _ = converse(stream, answer.as_ref());
            mine.fetch_sub(1, Ordering::Relaxed);
        });
        if spawned.is_err() {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// One request and its answer.
fn converse(mut stream: TcpStream, answer: &dyn Fn(&Request) -> Answer) -> io::Result<()> {
    let until = clock::now().after(REQUEST_TIME);
    let (answer, is_head) = match head(&mut stream, until)? {
        Ok(head) => match parse(&head) {
            Ok(request) => (answer(&request), request.is_head),
            Err(answer) => (answer, false),
        },
        Err(answer) => (answer, false),
    };
    let mut head = answer.head();
    // A client that does not read is left.
    stream.set_write_timeout(Some(REQUEST_TIME.into()))?;
    match answer.body {
        Body::Text(text) if !is_head => {
            head.push_str(&text);
            stream.write_all(head.as_bytes())?;
        }
        Body::Parts(mut parts) if !is_head => {
            stream.write_all(head.as_bytes())?;
            while let Some(part) = parts() {
                stream.write_all(part.as_bytes())?;
            }
        }
        Body::Text(_) | Body::Parts(_) => stream.write_all(head.as_bytes())?,
    }
    stream.shutdown(Shutdown::Write)?;
    // What it still sends is taken, so that it gets the answer and not a reset.
    let mut rest = [0; 1024];
    for _ in 0..REST_READS {
        stream.set_read_timeout(Some(left(until)))?;
        if stream.read(&mut rest)? == 0 {
            break;
        }
    }
    Ok(())
}

/// The bytes up to the empty line. Nothing is answered to a client that sends too slowly.
fn head(stream: &mut TcpStream, until: Tick) -> io::Result<Result<Vec<u8>, Answer>> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    loop {
        stream.set_read_timeout(Some(left(until)))?;
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&part[..count]);
        if head.windows(4).any(|four| four == b"\r\n\r\n") {
            return Ok(Ok(head));
        }
        if head.len() > HEAD_BYTES_MAX {
            return Ok(Err(Answer::status(431, "the request is too long\n")));
        }
    }
}

/// Until then; a time-out of zero is none.
fn left(until: Tick) -> Duration {
    Duration::from(until.since(clock::now())).max(Duration::from_millis(1))
}

/// For a whole request, and for a whole answer.
const REQUEST_TIME: Nanos = Nanos::from_millis(2000);
const HEAD_BYTES_MAX: usize = 8 << 10;
const CONNECTIONS_MAX: usize = 8;
const REST_READS: usize = 16;
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests() {
        let named = || Request {
            path: "/".into(),
            host: "a".into(),
            origin: "http://a".into(),
            ..Request::default()
        };
        let get = |path: &str, accept: &str| {
            Ok(Request { path: path.into(), accept: accept.into(), ..Request::default() })
        };
        let cases = [
            ("GET /metrics HTTP/1.1\r\nX: a\r\n\r\n", get("/metrics", "")),
            ("GET /m?x=1 HTTP/1.0\r\nAccept:  text/plain \r\n\r\n", get("/m", "text/plain")),
            ("GET / HTTP/1.1\r\nHOST: a\r\norigin: http://a\r\n\r\n", Ok(named())),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Err(400)),
            ("GET / HTTP/1.1\r\nOrigin: a\r\nOrigin: b\r\n\r\n", Err(400)),
            (
                "HEAD / HTTP/1.1\r\n\r\n",
                Ok(Request { is_head: true, path: "/".into(), ..Request::default() }),
            ),
            ("POST / HTTP/1.1\r\n\r\n", Err(405)),
            ("GET http://a/ HTTP/1.1\r\n\r\n", Err(400)),
            ("GET / HTTP/2.0\r\n\r\n", Err(400)),
            ("GET  / HTTP/1.1\r\n\r\n", Err(400)),
            ("GET / HTTP/1.1\r\nno colon\r\n\r\n", Err(400)),
            ("\r\n\r\n", Err(400)),
            ("\u{16}\u{3}\u{1}", Err(400)),
        ];
        for (head, expect) in cases {
            let found = parse(head.as_bytes()).map_err(|answer| answer.status);
            assert_eq!(found, expect, "{head:?}");
        }
        assert_eq!(parse(&[0xff, 0xfe]).unwrap_err().status, 400);
    }

    fn server() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Server::start(listener, |request| Answer::ok("text/plain", request.path.clone())).unwrap()
    }

    /// Empty where it is closed without an answer.
    fn said(server: &Server, sent: &[u8]) -> String {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        let mut text = String::new();
        let _ = stream.write_all(sent).and_then(|()| stream.read_to_string(&mut text));
        text
    }

    #[test]
    fn answers() {
        let server = server();
        let text = said(&server, b"GET /x HTTP/1.1\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\n/x"), "{text}");
        let text = said(&server, b"HEAD /x HTTP/1.1\r\n\r\n");
        assert!(text.contains("Content-Length: 2\r\n") && text.ends_with("\r\n\r\n"), "{text}");
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(3 * HEAD_BYTES_MAX));
        let text = said(&server, long.as_bytes());
        assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
    }

    /// Clients that say nothing keep nobody out for longer than their time-out, and the server ends
    /// while they are connected.
    #[test]
    fn silent_clients_time_out() {
        let server = server();
        let silent: Vec<TcpStream> =
            (0..CONNECTIONS_MAX).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
        // Each is closed by the server, without an answer.
        for mut stream in silent {
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            assert_eq!(text, "");
        }
        while !said(&server, b"GET /x HTTP/1.1\r\n\r\n").ends_with("/x") {
            thread::yield_now();
        }
        let _silent = TcpStream::connect(server.address()).unwrap();
        drop(server);
    }
}
