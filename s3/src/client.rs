//! Signed requests, with retries: what a store refuses, what it cannot do now, and what does not
//! arrive are told apart.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustls::ClientConfig;

use crate::abilities::Abilities;
use crate::addresses::Addresses;
use crate::answers::Element;
use crate::checksum;
use crate::concurrency::Concurrency;
use crate::connection::{Connection, Head, Monitor, Spent, is_left_behind};
use crate::credentials::{self, Found};
use crate::refusal::{Refusal, fault_of};
use crate::settings::{Endpoint, Options, Requests, Surroundings, check_bucket};
use crate::signing::{self, Keys, Payload, Unsigned};
use crate::trust;
use crate::under_way::UnderWay;
use crate::waits::{Limits, SILENT_MAX, Stop, Wait, is_stopped};
use base::fault::{Class, Fault, reason};
use base::store_times::StoreTimes;
use base::units::Nanos;
use mover::io::clock;

/// One request to a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call<'a> {
    pub method: &'a str,
    pub bucket: &'a str,
    /// Empty for the bucket itself.
    pub key: &'a str,
    pub query: &'a [(&'a str, &'a str)],
    /// Names have small letters.
    pub headers: Vec<(String, String)>,
    pub body: &'a [u8],
    /// The body's own checksum is a header: its hash is not signed as well.
    pub is_summed: bool,
    /// It removes what would stay: it is made, too, after the user has asked to stop.
    pub is_clearing: bool,
    /// There is another way: what the store cannot do now is refused after few tries.
    pub is_brief: bool,
}

/// Where the body of a good answer goes.
#[derive(Debug)]
pub(crate) enum Into<'a> {
    /// It must be exactly as long.
    Exactly(&'a mut [u8]),
    /// The same, and its checksum is computed while it is received.
    Summed(&'a mut [u8]),
    /// The same; one of another length, by its header, is not received.
    Small(&'a mut [u8]),
    Text,
}

impl Into<'_> {
    /// Bytes that a good answer has.
    fn len(&self) -> usize {
        match self {
            Into::Exactly(bytes) | Into::Summed(bytes) | Into::Small(bytes) => bytes.len(),
            Into::Text => 0,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub head: Head,
    pub text: String,
    pub spent: Spent,
    /// CRC-64/NVME of the body, where that was asked for.
    pub crc64: Option<u64>,
}

impl Answer {
    /// The document; the store's fault where there is none.
    pub(crate) fn document(&self, what: &str) -> Result<Element, Fault> {
        Element::parse(&self.text).ok_or_else(|| {
            Fault::new(Class::Peer, format!("the store's answer to {what} is no XML that it sends"))
        })
    }
}

/// What a call became.
pub(crate) type Called = Result<Answer, Trouble>;

/// Why a call was not answered as it should be.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// The store refused it, and would again.
    Refused(Refusal),
    /// It could not be answered, however often it was tried.
    Lost(Fault),
}

/// Asks one store, for all of its buckets. Any number of threads share it.
#[derive(Debug)]
pub(crate) struct Client {
    endpoint: Endpoint,
    requester_pays: bool,
    limits: Limits,
    stop: Stop,
    surroundings: Surroundings,
    tls: Option<Arc<ClientConfig>>,
    credentials: Mutex<Option<Found>>,
    idle: Mutex<Vec<(String, Connection)>>,
    under_way: UnderWay,
    addresses: Addresses,
    /// It has answered something.
    answered: AtomicBool,
    /// What the store refuses for all requests: the next one is not asked.
    refused: OnceLock<Fault>,
    pub abilities: Abilities,
    times: Mutex<StoreTimes>,
}

impl Client {
    pub(crate) fn new(options: &Options, stop: &Stop) -> Result<Client, Fault> {
        let surroundings = Surroundings::look(options)?;
        let endpoint = Endpoint::of(options, &surroundings)?;
        let tls = match endpoint.is_tls {
            true => Some(trust::config(options, &surroundings)?),
            false => None,
        };
        Ok(Client {
            endpoint,
            requester_pays: options.requester_pays,
            limits: Limits::of(options.silent_max.unwrap_or(SILENT_MAX)),
            stop: stop.clone(),
            surroundings,
            tls,
            credentials: Mutex::new(None),
            idle: Mutex::new(Vec::new()),
            under_way: UnderWay::new(match options.requests {
                Requests::ByRate => Concurrency::new(),
                Requests::AsAsked => Concurrency::fixed(),
            }),
            addresses: Addresses::default(),
            answered: AtomicBool::new(false),
            refused: OnceLock::new(),
            abilities: Abilities::default(),
            times: Mutex::default(),
        })
    }

    /// Calls, again where that may help, until it is answered, refused, or given up.
    pub(crate) fn call(&self, call: &Call<'_>, mut into: Into<'_>) -> Called {
        check_bucket(call.bucket).map_err(Trouble::Lost)?;
        let (mut tries, mut left_behind, mut failing) = (0_u32, 0_u32, Nanos(0));
        let mut wait = self.wait(call);
        loop {
            wait.check(0).map_err(lost)?;
            if let Some(fault) = self.refused.get() {
                return Err(Trouble::Lost(fault.clone()));
            }
            let tried_at = clock::now();
            let tried = self.try_once(call, &mut into, left_behind);
            let (why, fewer) = match tried {
                Ok(answer) if answer.head.status < 300 => {
                    self.note_answered(call, &answer, into.len());
                    return Ok(answer);
                }
                Ok(answer) => {
                    let refusal = Refusal::of(&answer);
                    let is_last = call.is_brief && tries + 1 >= BRIEF_TRIES_MAX;
                    if !refusal.is_passing() || is_last && !refusal.asks_for_fewer() {
                        self.note_answered(call, &answer, 0);
                        return Err(Trouble::Refused(self.note(call, refusal)));
                    }
                    (refusal.told(), refusal.asks_for_fewer())
                }
                Err(Failure::Fault(fault)) => return Err(Trouble::Lost(fault)),
                Err(Failure::Io(error)) if is_left_behind(&error) => {
                    left_behind += 1;
                    lock(&self.times).sent_again += 1;
                    continue;
                }
                Err(Failure::Io(error)) if is_stopped(&error) => return Err(lost(error)),
                Err(Failure::Io(error)) => (error.to_string(), false),
            };
            tries += 1;
            let most = if self.answered.load(Relaxed) { TRIES_MAX } else { FIRST_TRIES_MAX };
            // A long request may have moved for minutes before it failed.
            failing += clock::now().since(tried_at).min(Nanos::from(self.limits.silent));
            if tries >= most || failing > TRY_FOR {
                let url = format!("s3://{}/{}", call.bucket, call.key.escape_debug());
                let host = &self.endpoint.host;
                let text = format!("the store at {host} failed {tries} times for '{url}': {why}");
                return Err(Trouble::Lost(Fault::new(Class::Unreachable, text)));
            }
            let pause = pause(tries);
            wait.sleep(pause).map_err(lost)?;
            failing += Nanos::from(pause);
            self.note_again(fewer, clock::now().since(tried_at));
        }
    }

    /// What all requests have taken so far.
    pub(crate) fn times(&self) -> StoreTimes {
        *lock(&self.times)
    }

    fn note_answered(&self, call: &Call<'_>, answer: &Answer, received: usize) {
        let mut times = lock(&self.times);
        times.requests += 1;
        times.body_bytes += (call.body.len() + received) as u64;
        times.sending += answer.spent.sending;
        times.first_byte += answer.spent.first_byte;
        times.receiving += answer.spent.receiving;
    }

    /// A try that failed took so long, with the pause after it.
    fn note_again(&self, fewer: bool, took: Nanos) {
        let mut times = lock(&self.times);
        match fewer {
            true => (times.slow_downs, times.slowed) = (times.slow_downs + 1, times.slowed + took),
            false => (times.failures, times.failing) = (times.failures + 1, times.failing + took),
        }
    }

    /// What `look` finds, for as long as a request may be silent.
    pub(crate) fn wait_for<T>(&self, look: impl Fn() -> Option<T>) -> Option<T> {
        let mut wait = Wait::new(self.limits, &self.stop);
        wait.at_most(self.limits.silent);
        loop {
            let found = look();
            if found.is_some() || wait.sleep(LOOK_PAUSE).is_err() {
                return found;
            }
        }
    }

    /// For the table of waits: other limits, with TLS or without, as somebody who has keys.
    #[cfg(test)]
    pub(crate) fn given(&mut self, limits: Limits, tls: Option<Arc<ClientConfig>>) {
        let keys = Keys::of("id".into(), "secret".into(), None);
        self.credentials = Mutex::new(Some(Found { keys, expires_unix_s: None }));
        (self.limits, self.tls) = (limits, tls);
    }

    fn wait(&self, call: &Call<'_>) -> Wait {
        let mut wait = Wait::new(self.limits, &self.stop);
        wait.is_clearing = call.is_clearing;
        wait
    }

    /// The folder of the journals of what is written to this endpoint.
    pub(crate) fn journals(&self) -> Result<PathBuf, Fault> {
        let host = self.endpoint.host.replace('/', "_");
        let state = self.surroundings.state().ok_or_else(|| {
            Fault::new(Class::Local, "there is no folder for a journal: set XDG_STATE_HOME or HOME")
        })?;
        Ok(state.join("uploads").join(host))
    }

    /// A refusal of all requests, such as of wrong credentials, is one for the next ones too: the
    /// command ends.
    fn note(&self, call: &Call<'_>, refusal: Refusal) -> Refusal {
        let is_told_later = call.method == "HEAD" && refusal.hides_why();
        if refusal.is_of_all() && !is_told_later {
            let fault = fault_of(&refusal, call.bucket, call.key);
            self.stop.refused(&fault);
            let _ = self.refused.set(fault);
        }
        refusal
    }

    fn try_once(
        &self,
        call: &Call<'_>,
        into: &mut Into<'_>,
        left_behind: u32,
    ) -> Result<Answer, Failure> {
        let permit = self.under_way.begin(call.body.len(), into.len());
        let may_leave = left_behind < LEFT_BEHIND_MAX;
        let (host, base) = self.endpoint.host_and_base(call.bucket);
        let path = format!("{base}/{}", signing::encode(call.key, b"/"));
        let signing = clock::thread_cpu();
        let head = self.signed(call, &host, &path)?;
        lock(&self.times).signing += clock::thread_cpu() - signing;
        // One that is idle has the share of the path that it had; a new one may get more.
        let idle = if left_behind == 0 { self.idle_to(&host) } else { None };
        if let Some(mut connection) = idle {
            let mut monitor = permit.monitor(may_leave);
            connection.wait = self.wait(call);
            match self.exchange(&mut connection, &head, (call, into), &mut monitor) {
                Ok(answer) => {
                    permit.answered(&answer);
                    return Ok(self.keep(host, connection, answer));
                }
                // The store may have closed it meanwhile; a new one decides.
                Err(error) if is_final(&error) => return Err(error.into()),
                Err(_) => {}
            }
        }
        let mut wait = self.wait(call);
        let place = (&host[..], self.endpoint.port);
        let (address, pause) = self.addresses.next(place, clock::now(), &mut wait.clone())?;
        if pause > Nanos(0) {
            wait.sleep(pause.into())?;
            lock(&self.times).slowed += pause;
        }
        let name =
            host.rsplit_once(':').map_or(&host[..], |(name, port)| match port.parse::<u16>() {
                Ok(_) => name,
                Err(_) => &host[..],
            });
        let connecting = clock::now();
        let mut connection = Connection::open(address, name, self.tls.as_ref(), wait)
            .inspect_err(|_| self.addresses.note(address, false, clock::now()))
            .map_err(|error| match is_stopped(&error) {
                true => Failure::Io(error),
                false => cannot_connect(&self.endpoint.host, &error),
            })?;
        lock(&self.times).connecting += clock::now().since(connecting);
        let mut monitor = permit.monitor(may_leave);
        let answer = self.exchange(&mut connection, &head, (call, into), &mut monitor);
        match answer {
            Ok(answer) => {
                permit.answered(&answer);
                Ok(self.keep(host, connection, answer))
            }
            Err(error) if is_left_behind(&error) => Err(error.into()),
            Err(error) => {
                self.addresses.note(address, false, clock::now());
                Err(error.into())
            }
        }
    }

    fn exchange(
        &self,
        connection: &mut Connection,
        head: &str,
        (call, into): (&Call<'_>, &mut Into<'_>),
        monitor: Monitor<'_>,
    ) -> io::Result<Answer> {
        let (head, spent) = connection.ask(head, call.body, call.method, monitor)?;
        self.answered.store(true, Relaxed);
        let mut answer = Answer { head, spent, ..Answer::default() };
        let receiving = clock::now();
        let is_well = !matches!(answer.head.status, 429 | 503);
        self.addresses.note(connection.address, is_well, clock::now());
        match into {
            Into::Exactly(bytes) if answer.head.status < 300 => fill(connection, bytes, monitor)?,
            Into::Summed(bytes) if answer.head.status < 300 => {
                answer.crc64 = Some(fill_summed(connection, bytes, monitor)?);
            }
            Into::Small(bytes) if answer.head.status < 300 => {
                let len = answer.head.get("content-length");
                if len.is_empty() || len == bytes.len().to_string() {
                    answer.crc64 = Some(fill_summed(connection, bytes, monitor)?);
                }
            }
            Into::Exactly(_) | Into::Summed(_) | Into::Small(_) | Into::Text => {
                answer.text = text(connection, monitor)?
            }
        }
        answer.spent.receiving = clock::now().since(receiving);
        Ok(answer)
    }

    fn signed(&self, call: &Call<'_>, host: &str, path: &str) -> Result<String, Failure> {
        let unix_s = clock::unix().as_secs();
        let mut headers = call.headers.clone();
        headers.push(("host".to_string(), host.to_string()));
        if self.requester_pays {
            headers.push(("x-amz-request-payer".to_string(), "requester".to_string()));
        }
        let payload = match call.is_summed {
            true => Payload::Unsigned,
            false => Payload::Signed(call.body),
        };
        let (method, query) = (call.method, call.query);
        let unsigned = Unsigned { method, path, query, headers: &headers, payload };
        let keys = self.keys(unix_s)?;
        let added = signing::sign(&unsigned, &keys, &self.endpoint.region, unix_s);
        let query = match signing::query(call.query) {
            query if query.is_empty() => query,
            query => format!("?{query}"),
        };
        let mut head = format!("{method} {path}{query} HTTP/1.1\r\n");
        if !call.body.is_empty() || matches!(method, "PUT" | "POST") {
            headers.push(("content-length".to_string(), call.body.len().to_string()));
        }
        for (name, value) in headers.iter().chain(&added) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        Ok(head)
    }

    fn keys(&self, unix_s: u64) -> Result<Keys, Failure> {
        let mut found = lock(&self.credentials);
        if found.as_ref().is_none_or(|found| found.is_stale(unix_s)) {
            *found =
                Some(credentials::find(&self.surroundings, &self.stop).map_err(Failure::Fault)?);
        }
        Ok(found.as_ref().expect("found above").keys.clone())
    }

    fn idle_to(&self, host: &str) -> Option<Connection> {
        let mut idle = lock(&self.idle);
        let at = idle.iter().rposition(|(known, _)| known == host)?;
        Some(idle.remove(at).1)
    }

    fn keep(&self, host: String, connection: Connection, answer: Answer) -> Answer {
        if connection.is_reusable() {
            lock(&self.idle).push((host, connection));
        }
        answer
    }
}

#[derive(Debug)]
enum Failure {
    Io(io::Error),
    Fault(Fault),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Io(error)
    }
}

/// A certificate that is not trusted is not trusted the next time either.
fn cannot_connect(host: &str, error: &io::Error) -> Failure {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(why) => Failure::Fault(Fault::new(
            Class::Unreachable,
            format!(
                "the store at {host} cannot be trusted: {why}; --s3-ca names a file with the \
                 certificate of its authority"
            ),
        )),
        None => {
            Failure::Io(io::Error::new(error.kind(), format!("cannot connect: {}", reason(error))))
        }
    }
}

/// The user has asked to stop.
fn lost(_: io::Error) -> Trouble {
    Trouble::Lost(Fault::interrupted())
}

/// Another connection is not to decide.
fn is_final(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut || is_left_behind(error) || is_stopped(error)
}

fn fill(connection: &mut Connection, into: &mut [u8], monitor: Monitor<'_>) -> io::Result<()> {
    fill_by(connection, into, monitor, usize::MAX, |_| {})
}

/// The same, and computes the checksum of what comes while the processor's cache has it.
fn fill_summed(
    connection: &mut Connection,
    into: &mut [u8],
    monitor: Monitor<'_>,
) -> io::Result<u64> {
    let mut sum = checksum::Running::new();
    fill_by(connection, into, monitor, SUMMED_BYTES, |bytes| sum.add(bytes))?;
    Ok(sum.finish())
}

fn fill_by(
    connection: &mut Connection,
    mut into: &mut [u8],
    monitor: Monitor<'_>,
    most: usize,
    mut take: impl FnMut(&[u8]),
) -> io::Result<()> {
    let len = into.len();
    while !into.is_empty() {
        let most = most.min(into.len());
        let count = connection.read(&mut into[..most], monitor)?;
        if count == 0 {
            let text = format!("it sent {} of {len} bytes", len - into.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        take(&into[..count]);
        into = &mut into[count..];
    }
    match connection.read(&mut [0], monitor)? {
        0 => Ok(()),
        _ => Err(io::Error::other(format!("it sent more than {len} bytes"))),
    }
}

fn text(connection: &mut Connection, monitor: Monitor<'_>) -> io::Result<String> {
    let (mut bytes, mut some) = (Vec::new(), [0; 16 << 10]);
    connection.expect_text();
    loop {
        match connection.read(&mut some, monitor)? {
            0 => break,
            count => bytes.extend_from_slice(&some[..count]),
        }
        if bytes.len() > TEXT_BYTES_MAX {
            return Err(io::Error::other("its answer is too long"));
        }
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("its answer is no text"))
}

/// Twice as long each time, and not the same for all.
fn pause(tries: u32) -> Duration {
    let mut bytes = [0; 2];
    let _ = getrandom::fill(&mut bytes);
    let share = 0.5 + f64::from(u16::from_le_bytes(bytes)) / 131_072.0;
    (FIRST_PAUSE * 2_u32.pow(tries.min(7) - 1)).mul_f64(share)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is tried again: so often, and no more once it has failed for so long. One try counts as
/// what a silent one takes at most.
const TRIES_MAX: u32 = 8;
const TRY_FOR: Nanos = Nanos::from_millis(120_000);
/// The same for a store that has never answered: its user is watching.
const FIRST_TRIES_MAX: u32 = 4;
/// The same of a request in place of which there is another.
const BRIEF_TRIES_MAX: u32 = 3;
/// A request is sent again so often because its connection was left behind.
const LEFT_BEHIND_MAX: u32 = 2;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Between two looks at an object that the store is making.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// What is received at a time where it is summed: so much stays in the cache.
const SUMMED_BYTES: usize = 256 << 10;
const TEXT_BYTES_MAX: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::thread;

    /// Answers so many requests, each on a connection of its own.
    fn serve(listener: TcpListener, count: usize) -> thread::JoinHandle<()> {
        thread::spawn(move || {
            for _ in 0..count {
                let (mut tcp, _) = listener.accept().unwrap();
                let (mut head, mut some) = (Vec::new(), [0; 1024]);
                while !head.ends_with(b"\r\n\r\n") {
                    let count = tcp.read(&mut some).unwrap();
                    head.extend_from_slice(&some[..count]);
                }
                let answer = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
                tcp.write_all(answer.as_bytes()).unwrap();
            }
        })
    }

    /// Each of the addresses of a name would wait for ever for a connection that went to another.
    #[test]
    fn connections_are_spread_over_all_addresses_of_a_name() {
        let listeners: Vec<TcpListener> = ["127.0.0.1:0", "127.0.0.2:0", "127.0.0.3:0"]
            .map(|at| TcpListener::bind(at).unwrap())
            .into();
        let addresses: Vec<SocketAddr> =
            listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let endpoint = Some("http://stores.invalid:9".to_string());
        let mut client =
            Client::new(&Options { endpoint, ..Options::default() }, &Stop::default()).unwrap();
        client.addresses = Addresses::known("stores.invalid:9", addresses);
        client.given(Limits::of(SILENT_MAX), None);
        let servers: Vec<_> = listeners.into_iter().map(|listener| serve(listener, 4)).collect();
        for _ in 0..12 {
            let call = Call { method: "HEAD", bucket: "bucket", key: "k", ..Call::default() };
            client.call(&call, Into::Text).unwrap();
        }
        servers.into_iter().for_each(|server| server.join().unwrap());
    }
}
