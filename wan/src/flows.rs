//! Rivals that run: a thread for each flow, and one for each of its connections at the receiver.
//! They are sockets of this process in the namespaces of a WAN.
//!
//! A flow that has sent for its time resets its connection, so that nothing of it is left in the
//! sender's buffers: a rival that has ended is gone at once.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{set_socket_linger, set_tcp_congestion};

use crate::enter_myself;
use crate::rivals::{FlowOutcome, Kind, Outcome, Rivals, SLOT, Way};
use crate::{FAR_ADDRESS, NEAR_ADDRESS};

/// Rivals on the path, until they are stopped or dropped.
pub struct RunningRivals {
    shared: Arc<Shared>,
    senders: Vec<JoinHandle<()>>,
    acceptor: Option<JoinHandle<()>>,
}

/// What the threads of a group of rivals share.
struct Shared {
    began: Instant,
    outcome: Mutex<Outcome>,
    end: End,
}

/// A thread that sleeps until a time is woken by the end.
#[derive(Default)]
struct End {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl RunningRivals {
    /// Starts flows between two namespaces, which are open files like those of `Access`.
    pub fn start(
        near: &impl AsFd,
        far: &impl AsFd,
        rivals: &Rivals,
    ) -> Result<RunningRivals, String> {
        let told = |why: io::Error| format!("rivals {rivals}: {why}");
        let handle = |file: &dyn AsFd| file.as_fd().try_clone_to_owned().map_err(told);
        let (sender, receiver, address) = match rivals.way {
            Way::Forward => (handle(near)?, handle(far)?, FAR_ADDRESS),
            Way::Back => (handle(far)?, handle(near)?, NEAR_ADDRESS),
        };
        let address = address.parse::<Ipv4Addr>().map_err(|why| format!("{address}: {why}"))?;
        let listener = within(&receiver, move || TcpListener::bind((address, 0))).map_err(told)?;
        let to = listener.local_addr().map_err(told)?;
        // A name that the kernel does not know is no reason to wait for the first connection.
        check_congestion(&listener, &rivals.congestion)?;
        let flows = vec![FlowOutcome::default(); usize::from(rivals.flows)];
        let shared = Arc::new(Shared {
            began: Instant::now(),
            outcome: Mutex::new(Outcome { flows }),
            end: End::default(),
        });
        let acceptor = {
            let shared = shared.clone();
            spawn(move || accept(&listener, &shared))
        };
        let mut running = RunningRivals { shared, senders: Vec::new(), acceptor: Some(acceptor) };
        for number in 0..rivals.flows {
            let namespace = sender.try_clone().map_err(told)?;
            let (rivals, shared) = (rivals.clone(), running.shared.clone());
            running.senders.push(spawn(move || {
                if enter_myself(&namespace).is_ok() {
                    Flow { number, rivals, to, shared }.run();
                }
            }));
        }
        Ok(running)
    }

    /// What came so far.
    pub fn outcome(&self) -> Outcome {
        self.shared.locked().clone()
    }

    /// Ends them at once.
    pub fn stop(mut self) -> Outcome {
        self.end();
        self.outcome()
    }

    /// Waits until the time of all flows is over, which must have one.
    pub fn wait(mut self) -> Outcome {
        self.senders.drain(..).for_each(|sender| drop(sender.join()));
        self.end();
        self.outcome()
    }

    fn end(&mut self) {
        self.shared.end.tell();
        let threads = self.senders.drain(..).chain(self.acceptor.take());
        threads.for_each(|thread| drop(thread.join()));
    }
}

impl Drop for RunningRivals {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for RunningRivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunningRivals({} flows)", self.shared.locked().flows.len())
    }
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flow(&self, number: u16, change: impl FnOnce(&mut FlowOutcome)) {
        if let Some(flow) = self.locked().flows.get_mut(usize::from(number)) {
            change(flow);
        }
    }
}

impl End {
    fn tell(&self) {
        *self.locked() = true;
        self.changed.notify_all();
    }

    fn is_over(&self) -> bool {
        *self.locked()
    }

    /// Returns false if the end came first.
    fn sleep_until(&self, at: Instant) -> bool {
        let mut is_over = self.locked();
        while !*is_over {
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let woken = self.changed.wait_timeout(is_over, left);
            is_over = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    fn locked(&self) -> MutexGuard<'_, bool> {
        self.is_over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sending end of a flow.
struct Flow {
    number: u16,
    rivals: Rivals,
    to: SocketAddr,
    shared: Arc<Shared>,
}

impl Flow {
    fn run(&self) {
        let Rivals { kind, flows, after, time, .. } = self.rivals;
        let start = self.shared.began + after;
        let until = start + time.unwrap_or(FOR_EVER);
        // Flows that pause do not all begin at once.
        let part = |period: Duration| period * u32::from(self.number) / u32::from(flows);
        let mut next = start
            + match kind {
                Kind::Bulk => Duration::ZERO,
                Kind::OnOff { on, off } => part(on + off),
                Kind::Short { every, .. } => part(every),
            };
        while next < until && self.shared.end.sleep_until(next) && Instant::now() < until {
            let done = match kind {
                Kind::Bulk => self.send_until(until),
                Kind::OnOff { on, .. } => self.send_until(until.min(next + on)),
                Kind::Short { bytes, .. } => self.send_all(bytes, until),
            };
            if done.is_err() {
                self.shared.flow(self.number, |flow| flow.broken += 1);
            }
            let now = Instant::now();
            next = match kind {
                Kind::Bulk => now + RETRY,
                Kind::OnOff { on, off } => now.max(next + on + off),
                Kind::Short { every, .. } => now.max(next + every),
            };
        }
    }

    /// Sends as much as it can until then, and drops what has not been sent.
    fn send_until(&self, until: Instant) -> io::Result<()> {
        let mut stream = self.connect()?;
        set_socket_linger(&stream, Some(Duration::ZERO))?;
        while Instant::now() < until && !self.shared.end.is_over() {
            ignore_timeout(stream.write(&BLOCK))?;
        }
        Ok(())
    }

    /// Sends this much, and waits until all has been received.
    fn send_all(&self, bytes: u64, until: Instant) -> io::Result<()> {
        let began = Instant::now();
        let mut stream = self.connect()?;
        set_socket_linger(&stream, Some(Duration::ZERO))?;
        let is_over = || Instant::now() >= until || self.shared.end.is_over();
        let mut left = bytes;
        while left > 0 {
            if is_over() {
                return Ok(());
            }
            let block = &BLOCK[..BLOCK.len().min(left as usize)];
            left -= ignore_timeout(stream.write(block))? as u64;
        }
        stream.shutdown(Shutdown::Write)?;
        // The receiver closes when it has everything.
        while !matches!(stream.read(&mut [0]), Ok(0)) {
            if is_over() {
                return Ok(());
            }
        }
        self.shared.flow(self.number, |flow| flow.completed.push(began.elapsed()));
        Ok(())
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect_timeout(&self.to, CONNECT)?;
        set_tcp_congestion(&stream, &self.rivals.congestion)?;
        stream.set_write_timeout(Some(LOOK))?;
        stream.set_read_timeout(Some(LOOK))?;
        // The receiver must know whose bytes they are.
        stream.write_all(&self.number.to_be_bytes())?;
        Ok(stream)
    }
}

/// The receiving end of all flows.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut receivers: Vec<JoinHandle<()>> = Vec::new();
    let look = Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as i64 };
    while !shared.end.is_over() {
        let mut ends = [PollFd::new(listener, PollFlags::IN)];
        if !matches!(poll(&mut ends, Some(&look)), Ok(1..)) {
            continue;
        }
        if let Ok((stream, _)) = listener.accept() {
            let shared = shared.clone();
            receivers.retain(|receiver| !receiver.is_finished());
            receivers.push(spawn(move || {
                // A reset is how a flow ends.
                receive(stream, &shared).ok();
            }));
        }
    }
    receivers.into_iter().for_each(|receiver| drop(receiver.join()));
}

fn receive(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(LOOK))?;
    let (mut number, mut known) = ([0; 2], 0);
    let mut buffer = vec![0; BUFFER_BYTES];
    while !shared.end.is_over() {
        let count = match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            read => ignore_timeout(read)?,
        };
        let of_number = count.min(number.len() - known);
        number[known..known + of_number].copy_from_slice(&buffer[..of_number]);
        known += of_number;
        let slot = (shared.began.elapsed().as_nanos() / SLOT.as_nanos()) as usize;
        if known == number.len() {
            shared.flow(u16::from_be_bytes(number), |flow| {
                if flow.received_bytes.len() <= slot {
                    flow.received_bytes.resize(slot + 1, 0);
                }
                flow.received_bytes[slot] += (count - of_number) as u64;
            });
        }
    }
    Ok(())
}

/// A call that would have waited longer than `LOOK` has done nothing.
fn ignore_timeout(done: io::Result<usize>) -> io::Result<usize> {
    match done {
        Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
        done => done,
    }
}

/// Tries it on a socket that does nothing with it.
fn check_congestion(listener: &TcpListener, name: &str) -> Result<(), String> {
    set_tcp_congestion(listener, name).map_err(|why| {
        format!(
            "congestion control {name}: {why}: this kernel has those that are listed in \
             /proc/sys/net/ipv4/tcp_available_congestion_control"
        )
    })
}

/// Runs a function on a thread in a namespace.
fn within<T: Send + 'static>(
    namespace: &OwnedFd,
    what: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let namespace = namespace.try_clone()?;
    let inside = spawn(move || {
        enter_myself(&namespace)?;
        what()
    });
    inside.join().unwrap_or_else(|_| Err(io::Error::other("the thread in a namespace panicked")))
}

static BLOCK: [u8; 64 << 10] = [0; 64 << 10];
const BUFFER_BYTES: usize = 128 << 10;
/// How long a call may wait before the end is looked for.
const LOOK: Duration = Duration::from_millis(100);
const CONNECT: Duration = Duration::from_secs(3);
/// Between a flow that broke and the next try.
const RETRY: Duration = Duration::from_millis(100);
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);
