//! The table of waits: each ends when the user stops the command, when nothing comes, when next to
//! nothing comes, and when what comes has no end.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::thread;

use rustls::{ClientConfig, RootCertStore};

use super::*;
use crate::client::{Call, Client, Into, Trouble};
use crate::credentials::{self, Service};
use crate::settings::Options;
use base::fault::{Class, Fault};

/// What the other side does once it has been asked: it says this, and then that again and again.
#[derive(Clone, Copy, Debug)]
enum Far {
    Silent(&'static str),
    Trickles(&'static str, &'static str),
    Floods(&'static str, &'static str),
    /// It does not even read.
    Deaf,
}

/// What is waited for.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Data,
    Text,
    Put,
    Tls,
    /// A service that has credentials.
    Service,
    /// A program that prints some.
    Program(&'static str),
    /// Such as the name of a host.
    Uninterruptible,
}

const HEAD: &str = "HTTP/1.1 200 OK\r\nx-amz-none: ";
const TEXT: &str = "HTTP/1.1 200 OK\r\n\r\n";
const DATA: &str = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
const CHUNKS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const TRAILERS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n";
const AGAIN: &str = "HTTP/1.1 100 Continue\r\n\r\n";
/// A record of TLS that never comes whole.
const RECORD: &str = "\u{16}\u{3}\u{3}\u{40}\u{0}";

const WAITS: &[(Asked, Far)] = &[
    (Asked::Text, Far::Silent("")),
    (Asked::Text, Far::Silent(HEAD)),
    (Asked::Text, Far::Silent(TEXT)),
    (Asked::Text, Far::Silent(TRAILERS)),
    (Asked::Text, Far::Trickles("", AGAIN)),
    (Asked::Text, Far::Trickles(HEAD, "a")),
    (Asked::Text, Far::Trickles(TEXT, " ")),
    (Asked::Text, Far::Trickles(CHUNKS, "1")),
    (Asked::Text, Far::Trickles(TRAILERS, "a: b\r\n")),
    (Asked::Text, Far::Floods("", AGAIN)),
    (Asked::Text, Far::Floods(HEAD, "a")),
    (Asked::Text, Far::Floods(TEXT, " ")),
    (Asked::Text, Far::Floods(CHUNKS, "1")),
    (Asked::Text, Far::Floods(TRAILERS, "a: b\r\n")),
    (Asked::Data, Far::Silent("")),
    (Asked::Data, Far::Silent(DATA)),
    (Asked::Data, Far::Trickles(DATA, "a")),
    (Asked::Data, Far::Trickles(CHUNKS, "1\r\na\r\n")),
    (Asked::Data, Far::Floods(CHUNKS, "1;x=y\r\na\r\n")),
    (Asked::Put, Far::Deaf),
    (Asked::Put, Far::Silent("")),
    (Asked::Put, Far::Floods("", AGAIN)),
    (Asked::Tls, Far::Deaf),
    (Asked::Tls, Far::Silent(RECORD)),
    (Asked::Tls, Far::Trickles(RECORD, "a")),
    (Asked::Service, Far::Silent("")),
    (Asked::Service, Far::Trickles("", AGAIN)),
    (Asked::Service, Far::Trickles(TEXT, " ")),
    (Asked::Service, Far::Floods("", AGAIN)),
    (Asked::Program("exec sleep 3600"), Far::Deaf),
    (Asked::Program("while :; do echo; sleep 0.01; done"), Far::Deaf),
    (Asked::Program("exec yes"), Far::Deaf),
    (Asked::Uninterruptible, Far::Deaf),
];

/// Serves one wait, and notes when it has begun.
struct Scene {
    port: u16,
    begun: Arc<AtomicBool>,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new(far: Far) -> Scene {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let begun = Arc::new(AtomicBool::new(false));
        let scene = Scene { port, begun: begun.clone(), folder: tempfile::tempdir().unwrap() };
        thread::spawn(move || {
            for tcp in listener.incoming().map_while(Result::ok) {
                let begun = begun.clone();
                thread::spawn(move || far.answer(tcp, &begun));
            }
        });
        scene
    }

    fn wait(&self, limits: Limits, stop: &Stop, asked: Asked) -> Result<(), Fault> {
        let mut wait = Wait::new(limits, stop);
        let told = |error: io::Error| match is_stopped(&error) {
            true => Fault::interrupted(),
            false => Fault::new(Class::Unreachable, error.to_string()),
        };
        match asked {
            Asked::Data | Asked::Text | Asked::Put | Asked::Tls => self.call(limits, stop, asked),
            Asked::Service => {
                let place = Service::of(&format!("http://127.0.0.1:{}/creds", self.port)).unwrap();
                place.get("GET", "", &mut wait).map(drop).map_err(told)
            }
            Asked::Program(command) => {
                let mark = self.folder.path().join("begun");
                let command = format!("touch {}; {command}", mark.display());
                let ran = credentials::output_of(&command, &mut wait).map_err(told)?;
                match ran.status.success() {
                    true => Ok(()),
                    false => Err(Fault::new(Class::Unreachable, "nobody read what it printed")),
                }
            }
            Asked::Uninterruptible => {
                let begun = self.begun.clone();
                let work = move || {
                    begun.store(true, Relaxed);
                    thread::sleep(HOUR);
                    Ok(())
                };
                wait.at_most(limits.connect).apart(work).map_err(told)
            }
        }
    }

    fn call(&self, limits: Limits, stop: &Stop, asked: Asked) -> Result<(), Fault> {
        let endpoint = Some(format!("http://127.0.0.1:{}", self.port));
        let mut client = Client::new(&Options { endpoint, ..Options::default() }, stop).unwrap();
        client.given(limits, matches!(asked, Asked::Tls).then(tls));
        let (mut data, body) = (vec![0; 1_000_000], vec![0; 32 << 20]);
        let (method, body, into) = match asked {
            Asked::Put => ("PUT", &body[..], Into::Text),
            Asked::Data => ("GET", &[][..], Into::Exactly(&mut data)),
            _ => ("GET", &[][..], Into::Text),
        };
        let call =
            Call { method, bucket: "bucket", key: "k", body, is_summed: true, ..Call::default() };
        client.call(&call, into).map(drop).map_err(|trouble| match trouble {
            Trouble::Lost(fault) => fault,
            Trouble::Refused(refusal) => panic!("{refusal:?}"),
        })
    }

    fn has_begun(&self) -> Stopping {
        let (begun, mark) = (self.begun.clone(), self.folder.path().join("begun"));
        Arc::new(move || begun.load(Relaxed) || mark.exists())
    }
}

/// Trusts nobody: no handshake comes to its end.
fn tls() -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

impl Far {
    fn answer(self, mut tcp: TcpStream, begun: &AtomicBool) {
        if !matches!(self, Far::Deaf) {
            // A body is read meanwhile.
            let _ = tcp.read(&mut [0; 4096]);
            let mut reader = tcp.try_clone().unwrap();
            thread::spawn(move || io::copy(&mut reader, &mut io::sink()));
        }
        let (first, again, pause) = match self {
            Far::Deaf => ("", "", HOUR),
            Far::Silent(first) => (first, "", HOUR),
            Far::Trickles(first, again) => (first, again, Duration::from_millis(5)),
            Far::Floods(first, again) => (first, again, Duration::ZERO),
        };
        let many = again.repeat(if pause.is_zero() { 1000 } else { 1 });
        let mut sent = tcp.write_all(first.as_bytes());
        begun.store(true, Relaxed);
        while sent.is_ok() {
            sent = tcp.write_all(many.as_bytes());
            thread::sleep(pause);
        }
    }
}

/// How a wait ended; it has to.
fn ended(limits: Limits, is_stopped: bool, (asked, far): (Asked, Far)) -> Class {
    let (end_in, end) = channel();
    thread::spawn(move || {
        let (scene, stop) = (Scene::new(far), Stop::default());
        if is_stopped {
            stop.when(scene.has_begun());
        }
        let _ = end_in.send(scene.wait(limits, &stop, asked));
    });
    match end.recv_timeout(Duration::from_secs(120)) {
        Ok(Ok(())) => panic!("{asked:?}, {far:?}: it has no end, and was taken for whole"),
        Ok(Err(fault)) => fault.class,
        Err(_) => panic!("{asked:?}, {far:?} is still waited for"),
    }
}

fn each(waits: &[(Asked, Far)], check: impl Fn((Asked, Far)) + Sync) {
    thread::scope(|scope| {
        for wait in waits {
            let check = &check;
            scope.spawn(move || check(*wait));
        }
    });
}

const HOUR: Duration = Duration::from_secs(3600);
const FOREVER: Limits = Limits { silent: HOUR, connect: HOUR, head: HOUR, text: HOUR };
const SHORT: Duration = Duration::from_millis(300);

/// None has a bound but the user.
#[test]
fn every_wait_ends_when_the_user_stops_the_command() {
    // What floods ends by itself too.
    let waits: Vec<_> =
        WAITS.iter().filter(|(_, far)| !matches!(far, Far::Floods(..))).copied().collect();
    let waits: Vec<_> = waits
        .into_iter()
        .filter(|(asked, _)| !matches!(asked, Asked::Program(command) if command.contains("yes")))
        .collect();
    each(&waits, |wait| assert_eq!(ended(FOREVER, true, wait), Class::Interrupted, "{wait:?}"));
}

/// Silence, and trickles.
#[test]
fn every_wait_has_a_bound_in_time() {
    let limits = Limits { silent: SHORT, connect: SHORT, head: SHORT, text: SHORT };
    each(WAITS, |wait| assert_eq!(ended(limits, false, wait), Class::Unreachable, "{wait:?}"));
}

/// The same without end at full speed, where time has no bound.
#[test]
fn every_wait_has_a_bound_in_bytes() {
    let is_flood = |(asked, far): &(Asked, Far)| {
        let prints = matches!(asked, Asked::Program(command) if command.contains("yes"));
        prints || matches!(far, Far::Floods(..))
    };
    let waits: Vec<_> = WAITS.iter().copied().filter(is_flood).collect();
    each(&waits, |wait| assert_eq!(ended(FOREVER, false, wait), Class::Unreachable, "{wait:?}"));
}
