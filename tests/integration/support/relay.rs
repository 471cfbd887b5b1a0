//! A path between near and far that a test controls: a relay for the control connection, and a
//! proxy for the data streams that cuts, stalls, delays, flips and repeats.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use mover::wire::message::{Message, Open};

use super::speaker::{envelope, skip_mark, skip_script};
use super::{Scene, need};

/// The direction of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toward {
    Near,
    Far,
}

/// What happens to a data stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Both directions end.
    Cut,
    /// Nothing more is forwarded in this direction; the connection stays.
    Stall,
    /// One bit of the byte is turned over.
    Flip(u8),
    /// The rest comes later.
    Delay(Duration),
    /// What has been sent so far is sent again, on a connection of its own.
    Replay,
}

/// Which data connections, counted over all logins, and at which byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trouble {
    pub connection: Option<usize>,
    pub toward: Toward,
    pub at_byte: u64,
    pub what: What,
}

pub(crate) struct Relay {
    shared: Arc<Shared>,
    /// What `--ssh` takes.
    pub ssh: PathBuf,
}

struct Shared {
    troubles: Vec<Trouble>,
    far_program: PathBuf,
    stopped: AtomicBool,
    connections: AtomicUsize,
    happened: AtomicUsize,
    logins: AtomicUsize,
    forwarded: AtomicU64,
    captured: Mutex<Vec<u8>>,
    opens: Mutex<Vec<Open>>,
    lines: Mutex<Vec<UnixStream>>,
    far_sides: Mutex<Vec<Child>>,
}

impl Relay {
    pub(crate) fn start(scene: &Scene, troubles: Vec<Trouble>) -> Relay {
        let socket = scene.path("relay");
        let listener = UnixListener::bind(&socket).unwrap();
        let socat = need("socat", "socat");
        let words = format!("exec {} -t 0.05 - UNIX-CONNECT:{}", socat.display(), socket.display());
        let shared = Arc::new(Shared {
            troubles,
            far_program: scene.far_program(),
            stopped: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            happened: AtomicUsize::new(0),
            logins: AtomicUsize::new(0),
            forwarded: AtomicU64::new(0),
            captured: Mutex::new(Vec::new()),
            opens: Mutex::new(Vec::new()),
            lines: Mutex::new(Vec::new()),
            far_sides: Mutex::new(Vec::new()),
        });
        let logins = shared.clone();
        thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                if !logins.stopped.load(SeqCst) {
                    log_in(&logins, connection);
                }
            }
        });
        Relay { shared, ssh: scene.script("relayed-ssh", &words) }
    }

    /// Cuts the open control connections; a new login is accepted.
    pub(crate) fn cut_control(&self) {
        for line in self.shared.lines.lock().unwrap().drain(..) {
            let _ = line.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn logins(&self) -> usize {
        self.shared.logins.load(SeqCst)
    }

    /// How many of the troubles have occurred.
    pub(crate) fn happened(&self) -> usize {
        self.shared.happened.load(SeqCst)
    }

    /// Bytes of all data connections, both directions.
    pub(crate) fn forwarded(&self) -> u64 {
        self.shared.forwarded.load(SeqCst)
    }

    /// The first bytes that were forwarded, of all data connections in both directions.
    pub(crate) fn captured(&self) -> Vec<u8> {
        self.shared.captured.lock().unwrap().clone()
    }

    /// What drivers have asked for, secrets included.
    pub(crate) fn opens(&self) -> Vec<Open> {
        self.shared.opens.lock().unwrap().clone()
    }

    pub(crate) fn far_pids(&self) -> Vec<i32> {
        let far_sides = self.shared.far_sides.lock().unwrap();
        far_sides.iter().map(|child| child.id().cast_signed()).collect()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stopped.store(true, SeqCst);
        self.cut_control();
        for far in self.shared.far_sides.lock().unwrap().iter_mut() {
            let _ = far.kill();
            let _ = far.wait();
        }
    }
}

/// Starts a far side for a connection and forwards both directions.
fn log_in(shared: &Arc<Shared>, line: UnixStream) {
    shared.logins.fetch_add(1, SeqCst);
    let mut far = Command::new(&shared.far_program);
    far.arg("peer").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut far = far.spawn().unwrap();
    let (stdin, stdout) = (far.stdin.take().unwrap(), far.stdout.take().unwrap());
    shared.far_sides.lock().unwrap().push(far);
    shared.lines.lock().unwrap().push(line.try_clone().unwrap());
    let (near, opens) = (line.try_clone().unwrap(), shared.clone());
    thread::spawn(move || toward_far(near, stdin, &opens));
    let shared = shared.clone();
    thread::spawn(move || {
        toward_near(stdout, &line, &shared);
        let _ = line.shutdown(Shutdown::Both);
    });
}

fn toward_far(mut near: UnixStream, mut far: impl Write, shared: &Shared) {
    // The far side is started here: the script that would do it is left out.
    let first = skip_script(&mut near);
    let mut near = first.as_slice().chain(near);
    while let Some(bytes) = envelope(&mut near) {
        if let Ok(Message::Open(open)) = Message::decode(&bytes[4..]) {
            shared.opens.lock().unwrap().push(*open);
        }
        if far.write_all(&bytes).and_then(|()| far.flush()).is_err() {
            return;
        }
    }
}

/// Replaces the far side's port by the proxy's.
fn toward_near(mut far: impl Read, mut near: &UnixStream, shared: &Arc<Shared>) -> Option<()> {
    let mark = skip_mark(&mut far)?;
    near.write_all(&mark).ok()?;
    while let Some(mut bytes) = envelope(&mut far) {
        if let Ok(Message::Opened(mut opened)) = Message::decode(&bytes[4..]) {
            opened.port = proxy(shared.clone(), opened.port);
            opened.addresses = vec!["127.0.0.1".into()];
            bytes = Message::Opened(opened).encode();
        }
        near.write_all(&bytes).ok()?;
    }
    None
}

/// Listens for data connections on a port of its own.
fn proxy(shared: Arc<Shared>, far_port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            if shared.stopped.load(SeqCst) {
                return;
            }
            let Ok(far) = TcpStream::connect(("127.0.0.1", far_port)) else { continue };
            let index = shared.connections.fetch_add(1, SeqCst);
            for (from, to, toward) in [(&near, &far, Toward::Far), (&far, &near, Toward::Near)] {
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                let pump = Pump { shared: shared.clone(), index, toward, from, to, far_port };
                thread::spawn(move || pump.run());
            }
        }
    });
    port
}

/// One direction of one data connection.
struct Pump {
    shared: Arc<Shared>,
    index: usize,
    toward: Toward,
    from: TcpStream,
    to: TcpStream,
    far_port: u16,
}

impl Pump {
    fn run(mut self) {
        let mut due: Vec<Trouble> = self.shared.troubles.clone();
        due.retain(|t| t.toward == self.toward && t.connection.is_none_or(|n| n == self.index));
        due.sort_by_key(|trouble| trouble.at_byte);
        let (mut buffer, mut seen, mut recorded) = (vec![0; 64 << 10], 0_u64, Vec::new());
        loop {
            let count = match self.from.read(&mut buffer) {
                Ok(count @ 1..) => count,
                _ => break drop(self.to.shutdown(Shutdown::Write)),
            };
            let mut start = 0;
            while let Some(trouble) = due.first().copied() {
                if trouble.at_byte >= seen + count as u64 {
                    break;
                }
                due.remove(0);
                self.shared.happened.fetch_add(1, SeqCst);
                let at = (trouble.at_byte - seen) as usize;
                if let What::Flip(bit) = trouble.what {
                    buffer[at] ^= 1 << (bit % 8);
                    continue;
                }
                self.forward(&buffer[start..at]);
                recorded.extend_from_slice(&buffer[start..at]);
                start = at;
                if self.apply(trouble.what, &recorded) == Over::Yes {
                    return;
                }
            }
            recorded.extend_from_slice(&buffer[start..count]);
            recorded.truncate(RECORDED_BYTES_MAX);
            self.forward(&buffer[start..count]);
            seen += count as u64;
        }
    }

    fn forward(&mut self, bytes: &[u8]) {
        self.shared.forwarded.fetch_add(bytes.len() as u64, SeqCst);
        let mut captured = self.shared.captured.lock().unwrap();
        if captured.len() < RECORDED_BYTES_MAX {
            captured.extend_from_slice(bytes);
        }
        drop(captured);
        if self.to.write_all(bytes).is_err() {
            let _ = self.from.shutdown(Shutdown::Both);
        }
    }

    fn apply(&self, what: What, recorded: &[u8]) -> Over {
        match what {
            What::Cut => {
                let _ = self.from.shutdown(Shutdown::Both);
                let _ = self.to.shutdown(Shutdown::Both);
                return Over::Yes;
            }
            What::Stall => {
                // Held open until the test is over: a path that swallows everything.
                while !self.shared.stopped.load(SeqCst) {
                    thread::sleep(Duration::from_millis(50));
                }
                return Over::Yes;
            }
            What::Delay(time) => thread::sleep(time),
            What::Replay => {
                if let Ok(mut again) = TcpStream::connect(("127.0.0.1", self.far_port)) {
                    let _ = again.write_all(recorded);
                    thread::spawn(move || again.read_to_end(&mut Vec::new()));
                }
            }
            What::Flip(_) => {}
        }
        Over::No
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    Yes,
    No,
}

const RECORDED_BYTES_MAX: usize = 4 << 20;
