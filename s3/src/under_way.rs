//! The requests under way: how many may be, what they have moved, and how long they usually take.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};

use crate::client::{Answer, lock};
use crate::concurrency::{Concurrency, Look};
use crate::connection::{LeftBehind, Spent};
use crate::usual::{Course, TOOK_MIN, Usual};
use base::limits::STORE_REQUESTS_MAX;
use mover::io::clock;

#[derive(Debug)]
pub(crate) struct UnderWay {
    state: Mutex<State>,
    /// For those that wait until they may begin, short and long ones apart: one of each is woken by
    /// one that ends.
    short_may_begin: Condvar,
    long_may_begin: Condvar,
    /// Of the bodies of long requests, both ways.
    moved_bytes: AtomicU64,
}

#[derive(Debug)]
struct State {
    requests: usize,
    long: usize,
    /// Long ones that wait until they may begin.
    waiting: usize,
    concurrency: Concurrency,
    sent: Usual,
    received: Usual,
}

/// Which way the body of a request goes that is long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Long {
    Sent,
    Received,
}

impl Long {
    /// `None` of one that is short.
    fn of(sent_bytes: usize, received_bytes: usize) -> Option<Long> {
        match (sent_bytes >= LONG_BYTES, received_bytes >= LONG_BYTES) {
            (true, _) => Some(Long::Sent),
            (false, true) => Some(Long::Received),
            (false, false) => None,
        }
    }
}

/// One of the requests that may be under way at a time.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    under_way: &'a UnderWay,
    long: Option<Long>,
    bytes: u64,
}

impl UnderWay {
    pub(crate) fn new(concurrency: Concurrency) -> UnderWay {
        let state = State {
            requests: 0,
            long: 0,
            waiting: 0,
            concurrency,
            sent: Usual::default(),
            received: Usual::default(),
        };
        UnderWay {
            state: Mutex::new(state),
            short_may_begin: Condvar::new(),
            long_may_begin: Condvar::new(),
            moved_bytes: AtomicU64::new(0),
        }
    }

    /// Waits until one more may be under way, with a body of so many bytes each way.
    pub(crate) fn begin(&self, sent_bytes: usize, received_bytes: usize) -> Permit<'_> {
        let long = Long::of(sent_bytes, received_bytes);
        let mut state = lock(&self.state);
        let is_long = usize::from(long.is_some());
        state.waiting += is_long;
        self.look(&mut state);
        let may_begin = match long {
            Some(_) => &self.long_may_begin,
            None => &self.short_may_begin,
        };
        while !state.has_room(long) {
            state = may_begin.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= is_long;
        state.long += is_long;
        state.requests += 1;
        Permit { under_way: self, long, bytes: sent_bytes.max(received_bytes) as u64 }
    }

    fn look(&self, state: &mut State) {
        let before = state.concurrency.count();
        state.concurrency.look(&Look {
            at: clock::now(),
            moved_bytes: self.moved_bytes.load(Relaxed),
            wanted: state.long + state.waiting,
        });
        if state.concurrency.count() > before {
            self.long_may_begin.notify_all();
        }
    }
}

impl State {
    fn has_room(&self, long: Option<Long>) -> bool {
        let has_room = long.is_none() || self.long < self.concurrency.count();
        has_room && self.requests < STORE_REQUESTS_MAX
    }

    fn usual(&mut self, long: Long) -> &mut Usual {
        match long {
            Long::Sent => &mut self.sent,
            Long::Received => &mut self.received,
        }
    }
}

impl Permit<'_> {
    /// Counts what moves of it from now on, and gives its connection up where the same on another
    /// one would usually be done earlier: it got a small share of the path, and would end last.
    pub(crate) fn monitor(&self, may_leave: bool) -> impl FnMut(usize) -> io::Result<()> + use<'_> {
        let (mut moved_bytes, began) = (0, clock::now());
        move |count| {
            let Some(long) = self.long else { return Ok(()) };
            self.under_way.moved_bytes.fetch_add(count as u64, Relaxed);
            moved_bytes += count as u64;
            let took = clock::now().since(began);
            if !may_leave || took < TOOK_MIN {
                return Ok(());
            }
            let course = Course { bytes: self.bytes, moved_bytes, took };
            match lock(&self.under_way.state).usual(long).is_left_behind(&course) {
                true => Err(LeftBehind.into()),
                false => Ok(()),
            }
        }
    }

    pub(crate) fn answered(&self, answer: &Answer) {
        if let Some(long) = self.long
            && answer.head.status < 300
        {
            let Spent { sending, first_byte, receiving } = answer.spent;
            let took = sending + first_byte + receiving;
            lock(&self.under_way.state).usual(long).note(self.bytes, took);
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.under_way.state);
        state.requests -= 1;
        state.long -= usize::from(self.long.is_some());
        self.under_way.look(&mut state);
        drop(state);
        self.under_way.short_may_begin.notify_one();
        self.under_way.long_may_begin.notify_one();
    }
}

/// A body as long as this takes most of the time of its request.
const LONG_BYTES: usize = 1 << 20;
