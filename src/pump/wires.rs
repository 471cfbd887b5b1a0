//! The data streams of one side: which are alive, and how one that died is parted with.
//!
//! A stream is gone when both sides have let it go. Whoever notices first says `Lost`; the sink's
//! `Lost` comes behind the last acknowledgement of what the stream brought, so that the source
//! knows exactly what to send again, and nothing ever comes twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::brake::Brake;
use super::governor::{DeepQueue, Governor, Look};
use super::lane::Wire;
use super::paths::{Paths, When};
use crate::base::fault::{Class, Fault};
use crate::base::job::PathRole;
use crate::base::settings::Pace;
use crate::base::units::{Nanos, Tick};
use crate::io::backend::Wake;
use crate::io::tcp;
use crate::io::volume::Handle;

/// One stream, until both sides have let it go.
#[derive(Debug)]
struct Each {
    wire: Wire,
    lane: Arc<dyn Wake>,
    lane_is_over: bool,
    said: bool,
    heard: bool,
    /// Why it was given up, where that is known better than by its lane.
    reason: Option<String>,
    doubted: Option<Tick>,
}

/// All streams of a side.
#[derive(Debug)]
pub struct Wires {
    each: BTreeMap<u32, Each>,
    /// Numbers that are or have been in use: none is used twice.
    known: BTreeSet<u32>,
    /// The number that the next stream gets which takes another's place.
    next: u32,
    brake: Arc<Brake>,
    /// Streams that this side is trying to replace.
    pub awaited: u32,
    pub replaced: u32,
    damaged: u32,
    /// Since when no stream at all has been alive.
    pub bare_since: Option<Tick>,
    /// What has been seen of all of them.
    pub paths: Paths,
    /// Chooses a pace, where that is left to us, and what each stream was given last.
    governor: Option<Governor>,
    paced: (Option<u64>, usize),
    /// When sockets are looked at again.
    tend_at: Tick,
}

/// A limit that nothing reaches, and yet a limit: TCP begins to space what it sends.
const PACE_UNLIMITED: u64 = 1 << 50;
/// Paths with a shorter round trip are left alone.
const PACED_FROM_RTT: Nanos = Nanos::from_millis(2);
/// How often sockets are looked at to be paced, or for their windows.
const TEND_EVERY: Nanos = Nanos::from_millis(10);

/// Streams that may bring damaged bytes before the whole transfer is given up: a wire that flips a
/// bit now and then is replaced, one that does nothing else is told of.
const DAMAGED_MAX: u32 = 16;

impl Wires {
    /// The first `streams` have the first numbers; those that take another's place come behind.
    pub fn new(streams: u16, brake: Arc<Brake>) -> Wires {
        Wires {
            each: BTreeMap::new(),
            known: BTreeSet::new(),
            next: streams.into(),
            brake,
            awaited: 0,
            replaced: 0,
            damaged: 0,
            bare_since: None,
            paths: Paths::default(),
            governor: None,
            paced: (None, 0),
            tend_at: Tick(0),
        }
    }

    /// Sets the pace of all streams where it is left to us. One that was asked for is set when a
    /// stream begins.
    pub fn pace(&mut self, now: Tick, pace: Pace) {
        if pace != Pace::Auto || now < self.tend_at {
            return;
        }
        self.tend_at = now.after(TEND_EVERY);
        let alive = self.each.iter().filter(|(_, each)| !each.lane_is_over);
        let looked = alive.filter_map(|(number, each)| {
            let (sample, delivered_segments) = tcp::delivery(&each.wire.socket, now)?;
            Some(Look { stream: *number, sample, delivered_segments })
        });
        let looks: Vec<Look> = looked.collect();
        // Where a round trip takes no time, nothing is on its way that could come in a burst.
        if looks.iter().all(|look| look.sample.rtt_min < PACED_FROM_RTT) {
            return;
        }
        if self.governor.is_none() {
            let is_bbr = |socket: &Handle| tcp::congestion(socket).starts_with("bbr");
            let deep_queue = match self.sockets().all(is_bbr) {
                true => DeepQueue::Overruns,
                false => DeepQueue::Fills,
            };
            self.governor = Some(Governor::new(deep_queue));
        }
        let of_all = self.governor.as_mut().and_then(|governor| governor.look(now, &looks));
        let count = looks.len();
        if (of_all, count) == self.paced || count == 0 {
            return;
        }
        self.paced = (of_all, count);
        let of_each = of_all.map_or(PACE_UNLIMITED, |pace| (pace / count as u64).max(1));
        self.each.values().for_each(|each| tcp::set_pace(&each.wire.socket, of_each));
    }

    /// What `pace` has chosen for all streams together.
    pub fn pace_bytes_per_s(&self) -> Option<u64> {
        self.paced.0
    }

    /// Holds the windows that this side advertises to what was asked.
    pub fn keep_windows(&mut self, now: Tick, window_bytes: u32) {
        if now < self.tend_at {
            return;
        }
        self.tend_at = now.after(TEND_EVERY);
        self.sockets().for_each(|socket| tcp::keep_window(socket, window_bytes));
    }

    pub fn add(&mut self, wire: Wire, role: PathRole, lane: Arc<dyn Wake>) {
        self.known.insert(wire.number);
        self.bare_since = None;
        self.paths.add(&wire, role);
        self.brake.hold_socket(wire.socket.clone());
        let each = Each {
            lane,
            lane_is_over: false,
            said: false,
            heard: false,
            reason: None,
            doubted: None,
            wire,
        };
        self.each.insert(each.wire.number, each);
    }

    /// The number for a stream that takes the place of one that is gone.
    pub fn next_number(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    /// True for a stream that may begin now: a number that was not in use, and not too many.
    pub fn may_join(&self, number: u32, streams: u16) -> bool {
        let alive = self.each.values().filter(|each| !each.lane_is_over).count();
        !self.known.contains(&number) && alive < 2 * usize::from(streams)
    }

    /// A stream that the peer has let go before this side has seen it; false for one that this side
    /// has known. It is not taken in any more.
    pub fn is_unseen(&mut self, number: u32) -> bool {
        self.known.insert(number)
    }

    pub fn sockets(&self) -> impl Iterator<Item = &Handle> {
        self.each.values().map(|each| &each.wire.socket)
    }

    /// True for a stream that this side has or has had.
    pub fn is_known(&self, number: u32) -> bool {
        self.known.contains(&number)
    }

    /// Takes what lanes have seen, and looks at the streams of those that are over; true where it
    /// was time for the former.
    pub fn look(&mut self, now: Tick, when: When) -> bool {
        for (number, each) in self.each.iter().filter(|(_, each)| each.lane_is_over) {
            self.paths.look_behind(*number, &each.wire.socket, now, when);
        }
        self.paths.collect(now, when)
    }

    /// Ends a stream from this side; its lane finds out at once.
    pub fn give_up(&mut self, number: u32, reason: Option<String>) {
        let Some(each) = self.each.get_mut(&number) else { return };
        if let Some(reason) = reason {
            each.reason.get_or_insert(reason);
        }
        each.wire.given_up.store(true, Relaxed);
        tcp::cut(&each.wire.socket);
        each.lane.wake();
        self.brake.bell.ring();
    }

    /// A stream's lane has ended; why, in the best words there are.
    pub fn lane_over(&mut self, number: u32, fault: Option<&Fault>) -> Option<String> {
        let each = self.each.get_mut(&number)?;
        each.lane_is_over = true;
        if fault.is_some_and(|fault| fault.class == Class::Corrupt) {
            self.damaged += 1;
        }
        each.reason.take().or_else(|| fault.map(|fault| fault.text.clone()))
    }

    pub fn is_damaged_beyond_use(&self) -> bool {
        self.damaged > DAMAGED_MAX
    }

    /// True when its lane has ended, for a stream that is not gone.
    pub fn lane_is_over(&self, number: u32) -> Option<bool> {
        self.each.get(&number).map(|each| each.lane_is_over)
    }

    /// Notes that the peer has let a stream go; false when there is none of that number.
    pub fn hear_lost(&mut self, number: u32) -> bool {
        let each = self.each.get_mut(&number);
        each.map(|each| each.heard = true).is_some()
    }

    pub fn was_heard(&self, number: u32) -> bool {
        self.each.get(&number).is_some_and(|each| each.heard)
    }

    /// True once, when this side is to say that a stream is lost.
    pub fn say_lost(&mut self, number: u32) -> bool {
        self.each.get_mut(&number).is_some_and(|each| !std::mem::replace(&mut each.said, true))
    }

    /// Both sides have let it go.
    pub fn remove(&mut self, number: u32, now: Tick) {
        if let Some(each) = self.each.remove(&number) {
            self.brake.forget_socket(&each.wire.socket);
        }
        if self.each.values().all(|each| each.lane_is_over) {
            self.bare_since.get_or_insert(now);
        }
    }

    /// Of streams that should move and do not: gives up those whose path is dead, and names those
    /// to ask the sink about.
    pub fn doubt(&mut self, now: Tick, stall: Nanos, stalled: &[u32]) -> Vec<u32> {
        let mut doubted = Vec::new();
        for number in stalled {
            let Some(each) = self.each.get_mut(number) else { continue };
            if each.lane_is_over {
                continue;
            }
            if tcp::path_is_dead(&each.wire.socket, stall) {
                let text = format!("no answer came from the far host's TCP for {stall}");
                self.give_up(*number, Some(text));
            } else if each.doubted.is_none_or(|then| now.since(then).0 > stall.0 / 2) {
                each.doubted = Some(now);
                doubted.push(*number);
            }
        }
        doubted
    }

    /// The source has sent and heard nothing of it: where nothing has come, the path holds it back.
    pub fn answer_doubt(&mut self, number: u32, stall: Nanos) {
        let Some(each) = self.each.get(&number) else { return };
        if !each.lane_is_over && tcp::is_starved(&each.wire.socket, Nanos(stall.0 / 2)) {
            let text = format!("nothing came for {stall}, though the source has sent");
            self.give_up(number, Some(text));
        }
    }
}
