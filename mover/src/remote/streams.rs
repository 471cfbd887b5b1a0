//! Data streams: connected, accepted, and proved to belong to the transfer before anything else
//! happens.
//!
//! ```text
//! connector  "DPS1" | stream u16 | zero u16 | nonce 32      (40 bytes)
//! auth, off  listener: challenge 32; connector: proof 32; listener: proof 32
//! tls        a TLS 1.3 handshake, the source as client; then the sink sends "ok". Nothing of TLS
//!            follows: frames are sealed with keys from the handshake
//! ```

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use super::addresses::Choice;
use crate::ends::stream::Protection;
use crate::io::clock;
use crate::io::tcp::{self, Tuning};
use crate::io::window::Window;
use crate::pump::lane::StreamHandle;
use crate::pump::lane::assembly::Stream;
use crate::pump::run::Dial;
use crate::pump::transfer::Event;
use crate::wire::message::{Message, Role};
use crate::wire::preamble::{CONTROL_STREAM, PREAMBLE_BYTES, Preamble};
use crate::work::seal::handshake::{
    Fingerprint, Handshake, Identity, RECORD_HEADER_BYTES, record_bytes,
};
use crate::work::seal::{Secret, same};
use base::fault::{Class, Fault};
use base::limits::STRANGERS_MAX;
use base::settings::{Seal, Settings};
use base::units::{Nanos, Tick};

/// How long a connection may take to prove itself, and how long connecting may take.
const PROOF_WITHIN: Duration = Duration::from_secs(10);
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// How long it may take to see that a far side whose ports do not answer has ended.
const ENDS_WITHIN: Duration = Duration::from_millis(300);

/// How long to wait after accepting a connection has failed.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// What a side must know to prove itself and to check the other.
#[derive(Debug)]
pub(crate) struct Credentials {
    pub role: Role,
    pub seal: Seal,
    pub identity: Identity,
    pub peer: Fingerprint,
    pub secret: Secret,
    /// What both sides agreed on: see `agreed`.
    pub agreed: [u8; 32],
}

/// What both sides agreed on: the digest of the driver's Open, which has the settings, the transfer
/// and its secret.
pub(crate) fn agreed(open: &Message) -> [u8; 32] {
    *blake3::hash(&open.encode()).as_bytes()
}

/// How the streams of a side are set up.
pub(crate) fn tuning(settings: &Settings, role: Role) -> Tuning {
    let window = |bytes| match role {
        Role::Source => Window::Fill(bytes),
        Role::Sink => Window::Advertise(bytes),
    };
    let pace = settings.pace.of_each_stream(settings.streams);
    Tuning {
        window: settings.window_bytes.map(window),
        congestion: settings.congestion.clone(),
        dscp: settings.dscp,
        pace_bytes_per_s: pace.filter(|_| role == Role::Source),
    }
}

/// Random bytes from the system, for keys and challenges.
pub fn random<const N: usize>() -> Result<[u8; N], Fault> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| {
        Fault::new(Class::Local, format!("the system gives no random bytes: {error}"))
    })?;
    Ok(bytes)
}

fn connect_one(
    address: SocketAddr,
    number: u16,
    tuning: &Tuning,
    credentials: &Credentials,
) -> Result<Stream, Fault> {
    let connection = tcp::connect(address, tuning, CONNECT_WITHIN);
    let connection = connection.map_err(|error| unreachable(&error))?;
    prove_connector(connection, number, tuning, credentials)
}

/// The data port of the far side, and where it can be reached, perhaps.
#[derive(Debug)]
pub(crate) struct FarPort {
    pub choice: Choice,
    /// As the user knows it.
    pub host: String,
    pub port: u16,
    /// The control connection carries the data if it cannot be reached.
    pub may_carry: bool,
}

impl FarPort {
    /// What this fault means, for the user.
    pub(crate) fn unreachable(&self, fault: Fault) -> Fault {
        let (what, advice) = self.choice.explain(&self.host, self.port, &fault);
        let text = match self.may_carry {
            true => format!(
                "{what}: the data goes over the control connection, in one stream; {advice} for \
                 more"
            ),
            false => format!("{what}, and a test of the path needs one: {advice}"),
        };
        Fault { text, ..fault }
    }
}

/// Opens streams in the background.
#[derive(Debug)]
pub(crate) struct Dialer(Arc<Dialing>);

#[derive(Debug)]
struct Dialing {
    far_port: FarPort,
    /// Where it was reached.
    address: OnceLock<SocketAddr>,
    tuning: Tuning,
    credentials: Credentials,
    events: Sender<Event>,
}

impl Dialer {
    pub(crate) fn new(
        far_port: FarPort,
        tuning: Tuning,
        credentials: Credentials,
        events: Sender<Event>,
    ) -> Dialer {
        let address = OnceLock::new();
        Dialer(Arc::new(Dialing { far_port, address, tuning, credentials, events }))
    }
}

impl Dial for Dialer {
    fn dial(&self, number: u32, after: Duration) {
        let dialing = self.0.clone();
        let connect = move || {
            thread::sleep(after);
            let _ = dialing.events.send(match dialing.connect(number) {
                Ok(stream) => Event::Joined(stream),
                Err(fault) => Event::NotJoined(fault),
            });
        };
        if let Err(error) = thread::Builder::new().name("datapump-dial".into()).spawn(connect) {
            let fault = Fault::system("start a thread", &error);
            let _ = self.0.events.send(Event::NotJoined(fault));
        }
    }
}

impl Dialing {
    fn connect(&self, number: u32) -> Result<Stream, Fault> {
        // Numbers are not used twice: this many streams are more than a path can lose.
        let number = u16::try_from(number).ok().filter(|it| u32::from(*it) != CONTROL_STREAM);
        let Some(number) = number else {
            return Err(Fault::new(Class::Unreachable, "65,535 data streams were lost"));
        };
        if let Some(address) = self.address.get() {
            return connect_one(*address, number, &self.tuning, &self.credentials);
        }
        let fault = match self.connect_somewhere(number) {
            Ok((stream, address)) => {
                self.address.get_or_init(|| address);
                return Ok(stream);
            }
            Err(fault) => fault,
        };
        // A far side that cannot be reached may just have ended: that comes first then.
        thread::sleep(ENDS_WITHIN);
        Err(self.far_port.unreachable(fault))
    }

    /// At the first address where the far side answers. Anything else that answers at an address
    /// (behind a NAT, a proxy, another program at that port) says nothing of the far side, which
    /// cannot be reached there.
    fn connect_somewhere(&self, number: u16) -> Result<(Stream, SocketAddr), Fault> {
        let mut last = unreachable(&io::ErrorKind::AddrNotAvailable.into());
        for address in &self.far_port.choice.tries {
            let mut address = *address;
            address.set_port(self.far_port.port);
            last = match tcp::connect(address, &self.tuning, CONNECT_WITHIN) {
                Err(error) => unreachable(&error),
                Ok(connection) => {
                    match prove_connector(connection, number, &self.tuning, &self.credentials) {
                        Ok(stream) => return Ok((stream, address)),
                        Err(fault) => Fault::new(
                            Class::Unreachable,
                            format!("something else answers at {address}: {}", fault.text),
                        ),
                    }
                }
            };
        }
        Err(last)
    }
}

/// Accepts connections for as long as the listener is wanted; each proves itself on a thread of its
/// own, so that a stranger delays no other.
pub(crate) fn start_accepting(
    listener: TcpListener,
    tuning: Tuning,
    credentials: Arc<Credentials>,
    events: Sender<Event>,
) -> Result<(), Fault> {
    let strangers = Arc::new(AtomicUsize::new(0));
    let work = move || {
        for connection in listener.incoming() {
            let Ok(connection) = connection else {
                thread::sleep(ACCEPT_AGAIN_AFTER); // out of descriptors, or it went away at once
                continue;
            };
            if strangers.fetch_add(1, SeqCst) >= STRANGERS_MAX {
                strangers.fetch_sub(1, SeqCst);
                continue; // dropped: this many at once are no streams of ours
            }
            let (tuning, credentials) = (tuning.clone(), credentials.clone());
            let counted = strangers.clone();
            let (strangers, events) = (strangers.clone(), events.clone());
            let prove = move || {
                let proved = prove_listener(connection, &tuning, &credentials);
                strangers.fetch_sub(1, SeqCst);
                if let Ok(stream) = proved {
                    let _ = events.send(Event::Joined(stream));
                }
            };
            if thread::Builder::new().name("datapump-join".into()).spawn(prove).is_err() {
                counted.fetch_sub(1, SeqCst);
            }
        }
    };
    thread::Builder::new()
        .name("datapump-accept".into())
        .spawn(work)
        .map(drop)
        .map_err(|error| Fault::system("start a thread", &error))
}

/// A connection that has to prove itself, all of it before one deadline: a peer that sends a byte
/// now and then cannot hold its place for long.
#[derive(Debug)]
struct Proving {
    stream: TcpStream,
    until: Tick,
}

impl Proving {
    fn new(stream: TcpStream) -> Proving {
        Proving { stream, until: clock::now().after(PROOF_WITHIN.into()) }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        match self.until.since(clock::now()) {
            Nanos(0) => Err(io::ErrorKind::TimedOut.into()),
            Nanos(left) => Ok(Some(Duration::from_nanos(left))),
        }
    }
}

impl Read for Proving {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(bytes)
    }
}

impl Write for Proving {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn prove_connector(
    connection: TcpStream,
    index: u16,
    tuning: &Tuning,
    credentials: &Credentials,
) -> Result<Stream, Fault> {
    let mut connection = Proving::new(connection);
    connection.stream.set_nodelay(true).map_err(|error| unreachable(&error))?;
    let nonce: [u8; 32] = random()?;
    let preamble = Preamble { stream: index, nonce };
    connection.write_all(&preamble.encode()).map_err(|error| unreachable(&error))?;
    let protection = match credentials.seal {
        Seal::Tls => shake_hands(&mut connection, index, credentials)?,
        seal => {
            let mut challenge = [0; 32];
            connection.read_exact(&mut challenge).map_err(|error| unreachable(&error))?;
            let proof = credentials.secret.proof("connector", &challenge, &nonce, index);
            connection.write_all(&proof).map_err(|error| unreachable(&error))?;
            let mut answer = [0; 32];
            connection.read_exact(&mut answer).map_err(|error| unreachable(&error))?;
            let expect = credentials.secret.proof("listener", &challenge, &nonce, index);
            if !same(&answer, &expect) {
                return Err(Fault::peer("whoever answers at the data port is not the far side"));
            }
            clear(seal, credentials, &challenge, &nonce, index)
        }
    };
    settle(connection.stream, index, protection, tuning)
}

fn prove_listener(
    connection: TcpStream,
    tuning: &Tuning,
    credentials: &Credentials,
) -> Result<Stream, Fault> {
    let mut connection = Proving::new(connection);
    connection.stream.set_nodelay(true).map_err(|error| unreachable(&error))?;
    let mut preamble = [0; PREAMBLE_BYTES];
    connection.read_exact(&mut preamble).map_err(|error| unreachable(&error))?;
    let Some(Preamble { stream: index, nonce }) = Preamble::decode(&preamble) else {
        return Err(Fault::peer("a connection to the data port that is no stream"));
    };
    let protection = match credentials.seal {
        Seal::Tls => shake_hands(&mut connection, index, credentials)?,
        seal => {
            let challenge: [u8; 32] = random()?;
            connection.write_all(&challenge).map_err(|error| unreachable(&error))?;
            let mut proof = [0; 32];
            connection.read_exact(&mut proof).map_err(|error| unreachable(&error))?;
            if !same(&proof, &credentials.secret.proof("connector", &challenge, &nonce, index)) {
                return Err(Fault::peer("a connection that does not belong to the transfer"));
            }
            let answer = credentials.secret.proof("listener", &challenge, &nonce, index);
            connection.write_all(&answer).map_err(|error| unreachable(&error))?;
            clear(seal, credentials, &challenge, &nonce, index)
        }
    };
    settle(connection.stream, index, protection, tuning)
}

fn clear(
    seal: Seal,
    credentials: &Credentials,
    challenge: &[u8; 32],
    nonce: &[u8; 32],
    index: u16,
) -> Protection {
    match seal {
        Seal::Auth => Protection::Auth(credentials.secret.stream_key(challenge, nonce, index)),
        Seal::Off | Seal::Tls => Protection::Off,
    }
}

/// Hands the connection over to a lane.
fn settle(
    connection: TcpStream,
    index: u16,
    protection: Protection,
    tuning: &Tuning,
) -> Result<Stream, Fault> {
    connection
        .set_read_timeout(None)
        .and_then(|()| connection.set_write_timeout(None))
        .and_then(|()| tcp::tune(&connection, tuning))
        .map_err(|error| unreachable(&error))?;
    let handle = StreamHandle::new(index.into(), tcp::into_handle(connection));
    Ok(Stream { handle, protection })
}

/// The TLS handshake. Records are received one by one, so nothing that follows is taken with them.
fn shake_hands(
    connection: &mut Proving,
    index: u16,
    credentials: &Credentials,
) -> Result<Protection, Fault> {
    let (identity, peer) = (&credentials.identity, credentials.peer);
    let purpose = (index, credentials.agreed);
    let mut handshake = match credentials.role {
        Role::Source => Handshake::source(identity, peer, purpose)?,
        Role::Sink => Handshake::sink(identity, peer, purpose)?,
    };
    loop {
        connection.write_all(&handshake.outgoing()).map_err(|error| unreachable(&error))?;
        if handshake.is_over() {
            break;
        }
        handshake.take(&read_record(connection)?)?;
    }
    Ok(Protection::Tls(handshake.frame_keys()?))
}

fn read_record(connection: &mut Proving) -> Result<Vec<u8>, Fault> {
    let mut header = [0; RECORD_HEADER_BYTES];
    connection.read_exact(&mut header).map_err(|error| unreachable(&error))?;
    let mut record = header.to_vec();
    record.resize(RECORD_HEADER_BYTES + record_bytes(&header)?, 0);
    let body = &mut record[RECORD_HEADER_BYTES..];
    connection.read_exact(body).map_err(|error| unreachable(&error))?;
    Ok(record)
}

fn unreachable(error: &io::Error) -> Fault {
    Fault { class: Class::Unreachable, ..Fault::system("open a data stream", error) }
}
