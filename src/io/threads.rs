//! Blocking calls: where they are asked for when they only copy, on a shared pool when they may
//! wait.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::backend::{Backend, Landing, Speed, Verb, Wait, Wake};
use super::blocking::{self, Patience};
use super::clock;
use super::request::Request;
use crate::base::units::{Nanos, Tick};

/// Threads that wait for devices, shared by all lanes of the process.
const POOL_THREADS: usize = 16;

/// The backend of blocking calls.
#[derive(Debug)]
pub struct Threads {
    /// Ended where they were asked for.
    landed: VecDeque<Landing>,
    /// Waiting for bytes from a socket.
    receiving: VecDeque<(Verb, Request)>,
    /// With the pool.
    away: usize,
    inbox: Arc<Inbox>,
}

impl Threads {
    pub fn new() -> io::Result<Threads> {
        Ok(Threads {
            landed: VecDeque::new(),
            receiving: VecDeque::new(),
            away: 0,
            inbox: Arc::new(Inbox::new()?),
        })
    }

    /// Requests that nobody has to wait for.
    pub fn ready(&self) -> usize {
        self.landed.len()
    }

    /// Requests whose end comes from elsewhere: the pool, or a peer.
    pub fn waiting(&self) -> usize {
        self.away + self.receiving.len()
    }

    fn offload(&mut self, verb: Verb, request: Request) {
        self.away += 1;
        Pool::shared().put(Job { verb, request, inbox: self.inbox.clone() });
    }

    /// Does now what was asked for, and remembers how it ended.
    fn perform(&mut self, verb: Verb, mut request: Request) {
        let result = blocking::perform(&verb, &mut request);
        self.landed.push_back(Landing { verb, request, result });
    }

    /// Takes what the pool has ended.
    pub fn collect(&mut self, landings: &mut Vec<Landing>) {
        landings.extend(self.landed.drain(..));
        if self.away > 0 {
            let mut ended = self.inbox.lock();
            self.away -= ended.len();
            landings.append(&mut ended);
        }
    }

    /// With nothing else in the air the kernel may wait for the whole receive.
    fn receive_blocking(&mut self, landings: &mut Vec<Landing>) {
        let Some((verb, mut request)) = self.receiving.pop_front() else { return };
        let result = blocking::receive(&verb, &mut request, Patience::Block);
        landings.push(Landing { verb, request, result });
    }

    /// Waits for a socket, the pool, a wake, `other`, or the deadline.
    pub fn wait(&mut self, deadline: Option<Tick>, other: Option<&dyn AsFd>) -> io::Result<()> {
        let mut fds = Vec::with_capacity(3);
        fds.push(PollFd::new(&self.inbox.event, PollFlags::IN));
        if let Some(other) = other {
            fds.push(PollFd::from_borrowed_fd(other.as_fd(), PollFlags::IN));
        }
        if let Some((Verb::Receive { socket, .. }, _)) = self.receiving.front() {
            fds.push(PollFd::from_borrowed_fd(socket.fd(), PollFlags::IN));
        }
        let timeout = deadline.map(|deadline| timespec(deadline.since(clock::now())));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if fds[0].revents().contains(PollFlags::IN) {
            self.inbox.quiet();
        }
        Ok(())
    }

    /// Takes what the sockets have without waiting.
    pub fn receive_ready(&mut self, landings: &mut Vec<Landing>) {
        for _ in 0..self.receiving.len() {
            let Some((verb, mut request)) = self.receiving.pop_front() else { return };
            match blocking::receive(&verb, &mut request, Patience::Peek) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.receiving.push_back((verb, request));
                }
                result => landings.push(Landing { verb, request, result }),
            }
        }
    }
}

impl Backend for Threads {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn now(&self) -> Tick {
        clock::now()
    }

    fn submit(&mut self, verb: Verb, mut request: Request) {
        match &verb {
            Verb::Receive { .. } => self.receiving.push_back((verb, request)),
            Verb::ReadAt { speed: Speed::Cached, .. } => {
                match blocking::read_cached(&verb, &mut request) {
                    Ok(count) if count > 0 => {
                        self.landed.push_back(Landing { verb, request, result: Ok(count) });
                    }
                    _ => self.offload(verb, request),
                }
            }
            Verb::ReadAt { speed: Speed::Device, .. } => self.offload(verb, request),
            Verb::WriteAt { speed: Speed::Cached | Speed::Device, .. } => {
                self.offload(verb, request)
            }
            Verb::Gather(batch) | Verb::Scatter(batch) if batch.waits() => {
                self.offload(verb, request);
            }
            _ => self.perform(verb, request),
        }
    }

    fn reap(&mut self, wait: Wait, landings: &mut Vec<Landing>) -> io::Result<()> {
        self.collect(landings);
        if !landings.is_empty() {
            // Nobody waits while there is work; a socket is looked at when there is none.
            return Ok(());
        }
        match wait {
            Wait::Landing if self.away == 0 => self.receive_blocking(landings),
            Wait::Poll => self.receive_ready(landings),
            Wait::Landing | Wait::LandingOrWake => {
                self.wait(None, None)?;
                self.collect(landings);
                self.receive_ready(landings);
            }
            Wait::Until(deadline) => {
                self.wait(Some(deadline), None)?;
                self.collect(landings);
                self.receive_ready(landings);
            }
        }
        Ok(())
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.inbox.clone()
    }
}

/// Where the pool leaves what it has done for one lane.
#[derive(Debug)]
struct Inbox {
    ended: Mutex<Vec<Landing>>,
    event: OwnedFd,
}

impl Inbox {
    fn new() -> io::Result<Inbox> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Inbox { ended: Mutex::new(Vec::new()), event })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Landing>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the wakes so far; what they were about is looked at next.
    fn quiet(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }
}

impl Wake for Inbox {
    fn wake(&self) {
        // A full counter means that many wakes are pending already.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

#[derive(Debug)]
struct Job {
    verb: Verb,
    request: Request,
    inbox: Arc<Inbox>,
}

/// A queue with threads behind it, started when the first job comes.
#[derive(Debug)]
struct Pool {
    jobs: Mutex<PoolState>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct PoolState {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Pool {
    fn shared() -> &'static Pool {
        static POOL: OnceLock<Pool> = OnceLock::new();
        POOL.get_or_init(|| Pool { jobs: Mutex::default(), more: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&'static self, job: Job) {
        let mut state = self.lock();
        state.queue.push_back(job);
        if state.idle < state.queue.len() && state.threads < POOL_THREADS {
            state.threads += 1;
            let name = format!("datapump-io-{}", state.threads);
            if std::thread::Builder::new().name(name).spawn(|| self.work()).is_err() {
                state.threads -= 1;
                assert!(state.threads > 0, "the system gives no thread for file I/O");
            }
        }
        drop(state);
        self.more.notify_one();
    }

    fn work(&self) {
        loop {
            let Job { verb, mut request, inbox } = self.take();
            let result = blocking::perform(&verb, &mut request);
            inbox.lock().push(Landing { verb, request, result });
            inbox.wake();
        }
    }

    fn take(&self) -> Job {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                return job;
            }
            state.idle += 1;
            state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

fn timespec(nanos: Nanos) -> Timespec {
    Timespec { tv_sec: (nanos.0 / 1_000_000_000) as i64, tv_nsec: (nanos.0 % 1_000_000_000) as _ }
}
