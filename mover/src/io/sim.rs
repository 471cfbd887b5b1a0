//! A simulated world in memory, driven by a seed: files lose what was not synced, connections
//! deliver at any time, transfers end short, interrupted, in another order, or not at all.
//!
//! Nothing here blocks: the driver of the world decides when something can complete.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::backend::{Backend, Completion, Verb, Wait, Wake};
use super::clock::Clock;
use super::request::Request;
use super::volume::{Handle, Mtime};
use super::{blocking, holes};
use base::units::{Nanos, Tick};

mod rng;
mod volume;

pub use self::rng::Rng;
pub use self::volume::{Failure, SimVolume};

/// How often each fault is injected: once in so many times; 0 is never.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultRates {
    /// Something in flight does not complete at this attempt.
    pub late: u64,
    /// A transfer moves less than was asked for.
    pub short: u64,
    pub interrupted: u64,
    pub read_fails: u64,
    pub write_fails: u64,
    pub disk_full: u64,
    /// A connection breaks.
    pub cut: u64,
    /// A bit flips on a connection.
    pub flip: u64,
    /// A connection accepts what is sent and delivers nothing any more.
    pub stuck: u64,
    /// A write reports success and drops a byte: no real disk, but a test of the tests.
    pub lying_disk: u64,
}

/// The whole state: connections, files, random numbers.
#[derive(Debug)]
pub struct World {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    rng: Rng,
    fault_rates: FaultRates,
    now: Tick,
    sockets: Vec<Socket>,
    files: Vec<File>,
    /// Completions so far: they show the driver whether anything moves.
    completions: u64,
}

#[derive(Debug, Default)]
struct Socket {
    bytes: VecDeque<u8>,
    cut: bool,
    /// What is sent from now on is lost.
    stuck: bool,
    /// When the last byte arrived.
    came_at: Tick,
    /// It has no faults.
    is_sound: bool,
}

/// Bytes in flight on one connection at most.
const SOCKET_BYTES: usize = 20_000;

#[derive(Clone, Debug, Default)]
struct File {
    bytes: Vec<u8>,
    durable: Option<Vec<u8>>,
    mtime: Mtime,
    /// Blocks that it takes on the disk: those that were written and are not holes again.
    room: BTreeSet<u64>,
}

impl File {
    fn takes(&mut self, at: usize, count: usize) {
        let blocks = (at / ROOM_BYTES) as u64..(at + count).div_ceil(ROOM_BYTES) as u64;
        self.room.extend(blocks);
    }

    /// Only blocks that are not zeros take space.
    fn takes_data(&mut self) {
        let mut from = 0;
        while let Some(data) = holes::next_data(&self.bytes, from) {
            from = data.end;
            self.takes(data.start, data.len());
        }
    }
}

/// The unit in which space is allocated.
const ROOM_BYTES: usize = base::limits::BLOCK_BYTES as usize;

impl World {
    pub fn new(seed: u64, fault_rates: FaultRates) -> Arc<World> {
        let inner = Inner {
            rng: Rng::new(seed),
            fault_rates,
            now: Tick(0),
            sockets: Vec::new(),
            files: Vec::new(),
            completions: 0,
        };
        Arc::new(World { inner: Mutex::new(inner) })
    }

    /// A connection: what is sent to it is received from it.
    pub fn connect(&self) -> Handle {
        let mut world = self.lock();
        let came_at = world.now;
        world.sockets.push(Socket { came_at, ..Socket::default() });
        Handle::Sim(world.sockets.len() as u64 - 1)
    }

    /// A connection without faults, as the control connection is until it ends.
    pub fn connect_sound(&self) -> Handle {
        let handle = self.connect();
        self.lock().sockets.last_mut().expect("just made").is_sound = true;
        handle
    }

    pub fn backend(self: &Arc<World>) -> SimBackend {
        SimBackend { world: self.clone(), in_flight: Vec::new() }
    }

    pub fn completions(&self) -> u64 {
        self.lock().completions
    }

    pub fn now(&self) -> Tick {
        self.lock().now
    }

    /// Advances the time.
    pub fn wait(&self, time: Nanos) {
        let mut world = self.lock();
        world.now = world.now.after(time);
    }

    /// True when nothing has arrived on a connection for `time`, and nothing waits to be read.
    pub fn is_starved(&self, socket: &Handle, time: Nanos) -> bool {
        let Handle::Sim(id) = socket else { panic!("a real handle in a simulated world") };
        let world = self.lock();
        let socket = &world.sockets[*id as usize];
        socket.bytes.is_empty() && world.now.since(socket.came_at).0 > time.0
    }

    pub fn set_fault_rates(&self, fault_rates: FaultRates) {
        self.lock().fault_rates = fault_rates;
    }

    /// Closes a connection, as a peer that goes away does.
    pub fn cut(&self, socket: &Handle) {
        if let Handle::Sim(id) = socket {
            self.lock().sockets[*id as usize].cut = true;
        }
    }

    /// Resets a connection: what is in flight on it is lost.
    pub fn reset(&self, socket: &Handle) {
        if let Handle::Sim(id) = socket {
            let socket = &mut self.lock().sockets[*id as usize];
            socket.bytes.clear();
            socket.cut = true;
        }
    }

    /// True for a connection that delivers nothing any more.
    pub fn is_stuck(&self, socket: &Handle) -> bool {
        matches!(socket, Handle::Sim(id) if self.lock().sockets[*id as usize].stuck)
    }

    /// Sends bytes from the other end of a connection, without a limit.
    pub fn say(&self, socket: &Handle, bytes: &[u8]) {
        if let Handle::Sim(id) = socket {
            self.lock().sockets[*id as usize].bytes.extend(bytes);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Tries a verb now; `None` when it has to wait.
    fn attempt(&mut self, verb: &Verb, request: &mut Request) -> Option<io::Result<u32>> {
        let fault_rates = self.fault_rates;
        if self.rng.once_in(fault_rates.late) {
            return None;
        }
        if self.rng.once_in(fault_rates.interrupted) {
            return Some(Err(io::ErrorKind::Interrupted.into()));
        }
        let asked = request.pending().len();
        let count = match self.rng.once_in(fault_rates.short) && asked > 1 {
            true => 1 + self.rng.below(asked as u64 - 1) as usize,
            false => asked,
        };
        match verb {
            Verb::Receive { socket: Handle::Sim(id), .. } => self.receive(*id, count, request),
            Verb::Send { socket: Handle::Sim(id) } => self.send(*id, count, request),
            Verb::ReadAt { file: Handle::Sim(id), offset, .. } => {
                Some(self.read_at(*id, offset + u64::from(request.moved), count, request))
            }
            Verb::WriteAt { file: Handle::Sim(id), offset, .. } => {
                Some(self.write_at(*id, offset + u64::from(request.moved), count, request))
            }
            other => panic!("{other:?} in a simulated world"),
        }
    }

    fn receive(&mut self, id: u64, count: usize, request: &mut Request) -> Option<io::Result<u32>> {
        let socket = &mut self.sockets[id as usize];
        if socket.bytes.is_empty() {
            return socket.cut.then_some(Ok(0));
        }
        let count = count.min(socket.bytes.len());
        for byte in &mut request.pending_bytes_mut()[..count] {
            *byte = socket.bytes.pop_front().expect("counted");
        }
        if !socket.is_sound && self.rng.once_in(self.fault_rates.flip) {
            let at = self.rng.below(count as u64) as usize;
            request.pending_bytes_mut()[at] ^= 1 << self.rng.below(8);
        }
        Some(Ok(count as u32))
    }

    fn send(&mut self, id: u64, count: usize, request: &mut Request) -> Option<io::Result<u32>> {
        let faulty = !self.sockets[id as usize].is_sound;
        if faulty && self.rng.once_in(self.fault_rates.cut) {
            self.sockets[id as usize].cut = true;
        }
        let sticks = faulty && self.rng.once_in(self.fault_rates.stuck);
        let socket = &mut self.sockets[id as usize];
        if socket.cut {
            return Some(Err(io::Error::from_raw_os_error(libc::EPIPE)));
        }
        socket.stuck |= sticks;
        if socket.stuck {
            return Some(Ok(count as u32));
        }
        let count = count.min(SOCKET_BYTES - socket.bytes.len());
        if count == 0 {
            return None;
        }
        socket.bytes.extend(&request.pending_bytes()[..count]);
        socket.came_at = self.now;
        Some(Ok(count as u32))
    }

    fn read_at(
        &mut self,
        id: u64,
        at: u64,
        count: usize,
        request: &mut Request,
    ) -> io::Result<u32> {
        if self.rng.once_in(self.fault_rates.read_fails) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let bytes = &self.files[id as usize].bytes;
        let at = (at as usize).min(bytes.len());
        let count = count.min(bytes.len() - at);
        request.pending_bytes_mut()[..count].copy_from_slice(&bytes[at..at + count]);
        Ok(count as u32)
    }

    fn write_at(
        &mut self,
        id: u64,
        at: u64,
        count: usize,
        request: &mut Request,
    ) -> io::Result<u32> {
        self.storm().map_err(io::Error::from_raw_os_error)?;
        let lies = self.rng.once_in(self.fault_rates.lying_disk);
        let file = &mut self.files[id as usize];
        let end = at as usize + count;
        if file.bytes.len() < end {
            file.bytes.resize(end, 0);
        }
        file.bytes[at as usize..end].copy_from_slice(&request.pending_bytes()[..count]);
        file.takes(at as usize, count);
        if lies {
            file.bytes[at as usize] ^= 0xff;
        }
        Ok(count as u32)
    }

    /// Errors that a disk may return for any write.
    fn storm(&mut self) -> Result<(), i32> {
        if self.rng.once_in(self.fault_rates.disk_full) {
            return Err(libc::ENOSPC);
        }
        match self.rng.once_in(self.fault_rates.write_fails) {
            true => Err(libc::EIO),
            false => Ok(()),
        }
    }
}

impl Clock for World {
    /// Reading the clock takes a little time, so that measurements see some.
    fn now(&self) -> Tick {
        let mut world = self.lock();
        world.now.0 += 1000;
        world.now
    }

    fn thread_cpu(&self) -> Nanos {
        Nanos(self.lock().now.0)
    }
}

/// The backend of one lane.
#[derive(Debug)]
pub struct SimBackend {
    world: Arc<World>,
    in_flight: Vec<(Verb, Box<Request>)>,
}

impl Backend for SimBackend {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn now(&self) -> Tick {
        Clock::now(&*self.world)
    }

    fn submit(&mut self, verb: Verb, request: Box<Request>) {
        self.in_flight.push((verb, request));
    }

    /// Completes what can complete, in random order. Never waits, whatever it is asked.
    fn reap(&mut self, _wait: Wait, completions: &mut Vec<Completion>) -> io::Result<()> {
        let mut left = Vec::new();
        while !self.in_flight.is_empty() {
            let pick = self.world.lock().rng.below(self.in_flight.len() as u64) as usize;
            let (verb, mut request) = self.in_flight.swap_remove(pick);
            let result = match &verb {
                // Small files go through their volume, which takes the lock itself.
                Verb::Gather(batch) => Some(Ok(blocking::gather(batch, &mut request))),
                Verb::Scatter(batch) => Some(Ok(blocking::scatter(batch, &mut request))),
                verb => self.world.lock().attempt(verb, &mut request),
            };
            match result {
                Some(result) => {
                    self.world.lock().completions += 1;
                    completions.push(Completion { verb, request, result });
                }
                None => left.push((verb, request)),
            }
        }
        self.in_flight = left;
        Ok(())
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(Silent)
    }
}

/// Nothing sleeps here, so nothing has to be woken.
#[derive(Debug)]
struct Silent;

impl Wake for Silent {
    fn wake(&self) {}
}
