//! Blocking calls: on the calling thread when they only copy, on a shared thread pool when they may
//! wait.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::backend::{Backend, Completion, Speed, Verb, Wait, Wake};
use super::blocking::{self, Patience};
use super::clock;
use super::request::Request;
use super::sampler::{Awaited, Sampler, timespec};
use base::limits::STORE_REQUESTS_MAX;
use base::units::Tick;

/// Threads that wait for devices, shared by all lanes of the process.
const DEVICE_THREADS: usize = 16;

/// The backend of blocking calls.
#[derive(Debug)]
pub struct Threads {
    /// Completed on the calling thread.
    completed: VecDeque<Completion>,
    /// Waiting for bytes from a socket.
    receiving: VecDeque<(Verb, Box<Request>)>,
    /// With the pool.
    away: usize,
    inbox: Arc<Inbox>,
    sampler: Option<Sampler>,
}

impl Threads {
    pub fn new() -> io::Result<Threads> {
        Ok(Threads {
            completed: VecDeque::new(),
            receiving: VecDeque::new(),
            away: 0,
            inbox: Arc::new(Inbox::new()?),
            sampler: None,
        })
    }

    /// Requests that have completed here.
    pub fn ready(&self) -> usize {
        self.completed.len()
    }

    /// Requests whose completion comes from elsewhere: the pool, or a peer.
    pub fn waiting(&self) -> usize {
        self.away + self.receiving.len()
    }

    fn offload(&mut self, verb: Verb, request: Box<Request>) {
        self.away += 1;
        Pool::of(&verb).put(Job { verb, request, inbox: self.inbox.clone() });
    }

    /// Performs a verb on this thread, and keeps its completion.
    fn perform(&mut self, verb: Verb, mut request: Box<Request>) {
        let result = match &mut self.sampler {
            Some(sampler) => sampler.perform(&verb, &mut request),
            None => blocking::perform(&verb, &mut request),
        };
        self.completed.push_back(Completion { verb, request, result });
    }

    /// Collects what has completed here and in the pool.
    pub fn collect(&mut self, completions: &mut Vec<Completion>) {
        completions.extend(self.completed.drain(..));
        if self.away > 0 {
            let mut ended = self.inbox.lock();
            self.away -= ended.len();
            completions.append(&mut ended);
        }
    }

    /// Measures the time from here to `lap`, where a stream is sampled.
    pub fn begin(&mut self) {
        if let Some(sampler) = &mut self.sampler {
            sampler.begin();
        }
    }

    pub(crate) fn lap(&mut self, awaited: Awaited) {
        if let Some(sampler) = &mut self.sampler {
            sampler.lap(awaited);
        }
    }

    /// With nothing else in flight the kernel may wait for the whole receive.
    fn receive_blocking(&mut self, completions: &mut Vec<Completion>) {
        let Some((verb, mut request)) = self.receiving.pop_front() else { return };
        let result = match &mut self.sampler {
            Some(sampler) => sampler.perform(&verb, &mut request),
            None => blocking::receive(&verb, &mut request, Patience::Block),
        };
        completions.push(Completion { verb, request, result });
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
        wait_for(&mut fds, deadline, self.sampler.as_mut())?;
        if fds[0].revents().contains(PollFlags::IN) {
            self.inbox.quiet();
        }
        Ok(())
    }

    /// Receives what the sockets have, without waiting.
    pub(crate) fn receive_ready(&mut self, completions: &mut Vec<Completion>) {
        for _ in 0..self.receiving.len() {
            let Some((verb, mut request)) = self.receiving.pop_front() else { return };
            self.begin();
            let received = blocking::receive(&verb, &mut request, Patience::Peek);
            self.lap(Awaited::Source);
            match received {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.receiving.push_back((verb, request));
                }
                result => completions.push(Completion { verb, request, result }),
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

    fn submit(&mut self, verb: Verb, mut request: Box<Request>) {
        match &verb {
            Verb::Receive { .. } => self.receiving.push_back((verb, request)),
            Verb::ReadAt { speed: Speed::Cached, .. } => {
                self.begin();
                let read = blocking::read_cached(&verb, &mut request);
                self.lap(Awaited::Source);
                match read {
                    Ok(count) if count > 0 => {
                        self.completed.push_back(Completion { verb, request, result: Ok(count) });
                    }
                    _ => self.offload(verb, request),
                }
            }
            Verb::ReadAt { speed: Speed::Device | Speed::Store, .. }
            | Verb::WriteAt { speed: Speed::Cached | Speed::Device | Speed::Store, .. } => {
                self.offload(verb, request);
            }
            Verb::Gather(batch) | Verb::Scatter(batch) if batch.waits() => {
                self.offload(verb, request);
            }
            _ => self.perform(verb, request),
        }
    }

    fn reap(&mut self, wait: Wait, completions: &mut Vec<Completion>) -> io::Result<()> {
        self.collect(completions);
        if !completions.is_empty() {
            // There is work, so do not wait; sockets are polled when there is none.
            return Ok(());
        }
        match wait {
            Wait::Completion if self.away == 0 => self.receive_blocking(completions),
            Wait::Poll => self.receive_ready(completions),
            Wait::Completion | Wait::CompletionOrWake => {
                self.wait(None, None)?;
                self.collect(completions);
                self.receive_ready(completions);
            }
            Wait::Until(deadline) => {
                self.wait(Some(deadline), None)?;
                self.collect(completions);
                self.receive_ready(completions);
            }
        }
        Ok(())
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.inbox.clone()
    }

    fn watch(&mut self, sampler: Sampler) {
        self.sampler = Some(sampler);
    }

    fn sampler(&mut self) -> Option<&mut Sampler> {
        self.sampler.as_mut()
    }
}

/// Polls until something is ready or the deadline has passed, and samples the lane's stream
/// whenever that is due.
fn wait_for(
    fds: &mut [PollFd<'_>],
    deadline: Option<Tick>,
    mut sampler: Option<&mut Sampler>,
) -> io::Result<()> {
    if let Some(sampler) = &mut sampler {
        sampler.begin();
    }
    loop {
        let look = sampler.as_ref().map(|sampler| sampler.due());
        let until = [deadline, look].into_iter().flatten().min();
        let timeout = until.map(|until| timespec(until.since(clock::now())));
        let ready = match poll(fds, timeout.as_ref()) {
            Ok(ready) => ready > 0,
            Err(rustix::io::Errno::INTR) => true,
            Err(error) => return Err(error.into()),
        };
        let Some(sampler) = &mut sampler else { return Ok(()) };
        let now = sampler.lap(sampler.awaited());
        if ready || deadline.is_some_and(|deadline| now >= deadline) {
            return Ok(());
        }
    }
}

/// Where the pool leaves the completions of one lane.
#[derive(Debug)]
struct Inbox {
    ended: Mutex<Vec<Completion>>,
    event: OwnedFd,
}

impl Inbox {
    fn new() -> io::Result<Inbox> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Inbox { ended: Mutex::new(Vec::new()), event })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Completion>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Clears the wakes so far; the caller then looks at what they were about.
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
    request: Box<Request>,
    inbox: Arc<Inbox>,
}

/// A job queue with threads, each started when a job finds no other.
#[derive(Debug)]
struct Pool {
    threads_max: usize,
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
    /// Who waits for a store does not keep others from a device. The small objects of one verb are
    /// many requests, so those verbs are as few as those of devices.
    fn of(verb: &Verb) -> &'static Pool {
        static DEVICES: OnceLock<Pool> = OnceLock::new();
        static STORES: OnceLock<Pool> = OnceLock::new();
        match verb {
            Verb::ReadAt { speed: Speed::Store, .. }
            | Verb::WriteAt { speed: Speed::Store, .. } => {
                STORES.get_or_init(|| Pool::new(STORE_REQUESTS_MAX))
            }
            _ => DEVICES.get_or_init(|| Pool::new(DEVICE_THREADS)),
        }
    }

    fn new(threads_max: usize) -> Pool {
        Pool { threads_max, jobs: Mutex::default(), more: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&'static self, job: Job) {
        let mut state = self.lock();
        state.queue.push_back(job);
        if state.idle < state.queue.len() && state.threads < self.threads_max {
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
            inbox.lock().push(Completion { verb, request, result });
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
