//! Samples a stream on the thread that owns it, at intervals, and measures that thread's waits.
//!
//! A thread that blocks returns in time for the next sample: sockets have a timeout of half the
//! time until then, and waits end when a sample is due. Callers do not notice: a call that returned
//! for a sample continues where it was.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::backend::Verb;
use super::request::Request;
use super::volume::Handle;
use super::{blocking, clock, system};
use base::packed::not_behind;
use base::path::{LaneClocks, PathSample};
use base::settings::Receive;
use base::units::{Nanos, Tick};

/// What a lane waits for, or works at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    Source,
    Passage,
    Sink,
    Nothing,
}

impl Awaited {
    fn of(verb: &Verb) -> Awaited {
        match verb {
            Verb::ReadAt { .. }
            | Verb::Gather(_)
            | Verb::Receive { .. }
            | Verb::ReadNext { .. } => Awaited::Source,
            Verb::WriteAt { .. }
            | Verb::Scatter(_)
            | Verb::Send { .. }
            | Verb::WriteNext { .. } => Awaited::Sink,
        }
    }
}

/// Where a lane leaves its samples until another thread takes them. Neither waits for the other.
#[derive(Debug, Default)]
pub struct Outbox {
    samples: Mutex<Vec<PathSample>>,
}

impl Outbox {
    /// Moves all samples to the end of `into`.
    pub fn take(&self, into: &mut Vec<PathSample>) {
        into.append(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PathSample>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the samples where there is room for them and the lock is free.
    fn try_put(&self, samples: &mut Vec<PathSample>) -> Result<(), ()> {
        let mut held = self.samples.try_lock().map_err(|_| ())?;
        match held.len() + samples.len() <= OUTBOX_SAMPLES {
            true => {
                held.append(samples);
                Ok(())
            }
            false => Err(()),
        }
    }
}

/// Samples one connection.
#[derive(Debug)]
pub struct Sampler {
    socket: Handle,
    outbox: Arc<Outbox>,
    /// Taken and not yet in the outbox.
    looks: Vec<PathSample>,
    last: PathSample,
    clocks: LaneClocks,
    /// What the lane waits for when a wait can end in more than one way.
    awaited: Awaited,
    /// The start of the time that is not in any clock yet.
    since: Tick,
    due: Tick,
    interval: Nanos,
    /// The interval that the socket's timeouts were set for.
    timed_for: Nanos,
    buffers_due: Tick,
    hand_over_at: Tick,
}

impl Sampler {
    /// `None` where the socket is no TCP connection.
    pub fn new(socket: Handle, outbox: Arc<Outbox>) -> Option<Sampler> {
        let Handle::Fd(fd) = &socket else { return None };
        system::path_sample(std::os::fd::AsFd::as_fd(fd), Tick::default())?;
        outbox.lock().reserve_exact(OUTBOX_SAMPLES);
        Some(Sampler {
            outbox,
            looks: Vec::with_capacity(LOOKS_MAX),
            last: PathSample::default(),
            clocks: LaneClocks::default(),
            awaited: Awaited::Nothing,
            since: Tick::default(),
            due: Tick::default(),
            interval: INTERVAL_MIN,
            timed_for: Nanos(0),
            buffers_due: Tick::default(),
            hand_over_at: Tick::default(),
            socket,
        })
    }

    /// When the next sample is due.
    pub fn due(&self) -> Tick {
        self.due
    }

    /// What the lane waits for from now on, where a wait can end in more than one way.
    pub(crate) fn await_whom(&mut self, awaited: Awaited) {
        self.awaited = awaited;
    }

    pub fn awaited(&self) -> Awaited {
        self.awaited
    }

    /// Adds time that the lane itself has measured.
    pub fn add(&mut self, awaited: Awaited, spent: Nanos) {
        let clocks = &mut self.clocks;
        *match awaited {
            Awaited::Source => &mut clocks.source,
            Awaited::Passage => &mut clocks.passage,
            Awaited::Sink => &mut clocks.sink,
            Awaited::Nothing => &mut clocks.idle,
        } += spent;
    }

    /// A wait begins. The first sample comes before the first wait: until then no timeout is set.
    pub fn begin(&mut self) {
        self.since = clock::now();
        self.look_if_due(self.since);
    }

    /// A wait has ended, or is interrupted by a sample that is due.
    pub(crate) fn lap(&mut self, awaited: Awaited) -> Tick {
        let now = clock::now();
        self.add(awaited, now.since(self.since));
        self.since = now;
        self.look_if_due(now);
        now
    }

    pub fn look_if_due(&mut self, now: Tick) {
        if now >= self.due {
            self.look(now);
        }
    }

    /// Takes the last sample and puts all into the outbox: the lane has ended.
    pub fn close(&mut self) {
        self.look(clock::now());
        // Only here does the owner wait for the lock; the outbox grows where it is too small.
        self.outbox.lock().append(&mut self.looks);
    }

    fn look(&mut self, now: Tick) {
        let Some(seen) = system::path_sample(self.socket.fd(), now) else {
            self.due = now.after(INTERVAL_MAX);
            return;
        };
        let mut sample = PathSample { clocks: self.clocks, ..seen };
        if now >= self.buffers_due {
            let (send, receive) = buffers(&self.socket);
            (sample.send_buffer_bytes, sample.receive_buffer_bytes) = (send, receive);
            self.buffers_due = now.after(BUFFERS_EVERY);
        } else {
            sample.send_buffer_bytes = self.last.send_buffer_bytes;
            sample.receive_buffer_bytes = self.last.receive_buffer_bytes;
        }
        let sample = not_behind(&sample, &self.last);
        self.last = sample;
        self.interval = interval(sample.rtt);
        self.due = now.after(self.interval);
        self.time_socket(now);
        if self.looks.len() == LOOKS_MAX {
            thin(&mut self.looks);
        }
        self.looks.push(sample);
        let due = now >= self.hand_over_at || self.looks.len() == LOOKS_MAX;
        if due && self.outbox.try_put(&mut self.looks).is_ok() {
            self.hand_over_at = now.after(HAND_OVER_EVERY);
        }
    }

    /// A blocking call returns after half of the time until a sample is due, again and again: a
    /// call may begin at any time, and kernels round timeouts up to their ticks, so whole timeouts
    /// would make samples late.
    fn time_socket(&mut self, now: Tick) {
        let half = Nanos(self.due.since(now).0 / 2).max(TIMEOUT_MIN);
        let change = half.0.abs_diff(self.timed_for.0);
        if change * 4 <= self.timed_for.0 {
            return;
        }
        self.timed_for = half;
        let half = Some(Duration::from_nanos(half.0));
        // A socket that takes no timeout is sampled when it has moved something.
        let _ = set_socket_timeout(self.socket.fd(), Timeout::Recv, half);
        let _ = set_socket_timeout(self.socket.fd(), Timeout::Send, half);
    }

    /// Pipes have no timeouts: an empty one is polled until bytes come, or a sample is due.
    fn read_next(&self, pipe: &Handle, request: &mut Request) -> io::Result<u32> {
        match blocking::read_there(pipe, request) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let left = self.due.since(clock::now());
                let mut fds = [PollFd::from_borrowed_fd(pipe.fd(), PollFlags::IN)];
                if poll(&mut fds, Some(&timespec(left))).is_ok_and(|ready| ready == 0) {
                    return Err(error);
                }
                blocking::read_next(pipe, request)
            }
            Err(_) => blocking::read_next(pipe, request),
            Ok(count) => Ok(count),
        }
    }

    /// Performs a verb as `blocking::perform` does, and samples when it is time: a call that
    /// returned for a sample continues.
    pub fn perform(&mut self, verb: &Verb, request: &mut Request) -> io::Result<u32> {
        let awaited = Awaited::of(verb);
        let before = request.moved;
        self.begin();
        let result = loop {
            let result = match verb {
                Verb::ReadNext { pipe } => self.read_next(pipe, request),
                _ => blocking::perform(verb, request),
            };
            let now = self.lap(awaited);
            match (goes_on(verb, request), result) {
                (GoesOn::Never, result) => break result,
                (_, Err(error)) if is_early(&error) => self.time_socket(now),
                (GoesOn::UntilAll, Ok(count)) if count > 0 && !is_all(request, count) => {
                    request.moved += count;
                    self.time_socket(now);
                }
                (_, Ok(count)) => break Ok(request.moved - before + count),
                (_, Err(error)) => break Err(error),
            }
        };
        request.moved = before;
        result
    }
}

/// Whether a call that returned early is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GoesOn {
    /// It does not return for a sample.
    Never,
    /// Until some bytes have arrived.
    UntilAny,
    UntilAll,
}

fn goes_on(verb: &Verb, request: &Request) -> GoesOn {
    match verb {
        Verb::Send { .. } => GoesOn::UntilAll,
        Verb::Receive { how: Receive::WaitAll, .. }
            if request.need == request.span.end - request.span.start =>
        {
            GoesOn::UntilAll
        }
        Verb::Receive { .. } | Verb::ReadNext { .. } => GoesOn::UntilAny,
        _ => GoesOn::Never,
    }
}

/// True for errors that say nothing of the connection: the time for a sample, or a signal.
fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn is_all(request: &Request, count: u32) -> bool {
    request.span.start + request.moved + count == request.span.end
}

/// One sample from outside, where no lane owns the stream any more: the time counts as idle.
pub fn look(socket: &Handle, last: &PathSample, now: Tick) -> Option<PathSample> {
    let Handle::Fd(fd) = socket else { return None };
    let seen = system::path_sample(std::os::fd::AsFd::as_fd(fd), now)?;
    let idle = last.clocks.idle + now.since(last.at);
    let sample = PathSample {
        clocks: LaneClocks { idle, ..last.clocks },
        send_buffer_bytes: last.send_buffer_bytes,
        receive_buffer_bytes: last.receive_buffer_bytes,
        ..seen
    };
    Some(not_behind(&sample, last))
}

/// How long after a sample the next one is due: a quarter of a round trip, within bounds.
pub fn interval(rtt: Nanos) -> Nanos {
    Nanos((rtt.0 / 4).clamp(INTERVAL_MIN.0, INTERVAL_MAX.0))
}

/// Drops every second sample, but neither the first nor the last.
fn thin(samples: &mut Vec<PathSample>) {
    let last = samples.len().saturating_sub(1);
    let mut place = 0;
    samples.retain(|_| {
        let stays = place % 2 == 0 || place == last;
        place += 1;
        stays
    });
}

pub(crate) fn timespec(nanos: Nanos) -> Timespec {
    Timespec { tv_sec: (nanos.0 / 1_000_000_000) as i64, tv_nsec: (nanos.0 % 1_000_000_000) as _ }
}

fn buffers(socket: &Handle) -> (u32, u32) {
    let bytes = |size: rustix::io::Result<usize>| {
        u32::try_from(size.unwrap_or_default()).unwrap_or(u32::MAX)
    };
    use rustix::net::sockopt::{socket_recv_buffer_size, socket_send_buffer_size};
    (bytes(socket_send_buffer_size(socket.fd())), bytes(socket_recv_buffer_size(socket.fd())))
}

const INTERVAL_MIN: Nanos = Nanos::from_millis(5);
const INTERVAL_MAX: Nanos = Nanos::from_millis(50);
const TIMEOUT_MIN: Nanos = Nanos::from_millis(1);
const BUFFERS_EVERY: Nanos = Nanos::from_millis(1_000);
const HAND_OVER_EVERY: Nanos = Nanos::from_millis(250);
/// More than half a second at the shortest interval; the outbox has room for twice that.
const LOOKS_MAX: usize = 128;
const OUTBOX_SAMPLES: usize = 2 * LOOKS_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_a_round_trip_within_bounds() {
        let millis = Nanos::from_millis;
        for (rtt, expect) in [
            (Nanos(0), millis(5)),
            (Nanos(30_000), millis(5)),
            (millis(20), millis(5)),
            (millis(102), Nanos(25_500_000)),
            (millis(200), millis(50)),
            (Nanos(u64::MAX), millis(50)),
        ] {
            assert_eq!(interval(rtt), expect, "{rtt}");
        }
    }

    #[test]
    fn thinning_keeps_both_ends() {
        for (looks, expect) in
            [(0, vec![]), (1, vec![0]), (2, vec![0, 1]), (5, vec![0, 2, 4]), (6, vec![0, 2, 4, 5])]
        {
            let sample = |at| PathSample { at: Tick(at), ..PathSample::default() };
            let mut samples: Vec<PathSample> = (0..looks).map(sample).collect();
            thin(&mut samples);
            assert_eq!(samples.iter().map(|sample| sample.at.0).collect::<Vec<_>>(), expect);
        }
    }
}
