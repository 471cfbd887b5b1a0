//! The data streams of one side: which are alive, and how a lost one is released.
//!
//! A stream is gone when both sides have released it. The side that notices first sends `Lost`; the
//! sink's `Lost` follows the last acknowledgement of what the stream carried, so that the source
//! knows exactly what to send again, and nothing ever comes twice.

use std::collections::{BTreeMap, BTreeSet};

use crate::wire::preamble::CONTROL_STREAM;
use base::fault::{Class, Fault};
use base::units::{Nanos, Tick};

/// One stream, until both sides have released it.
#[derive(Debug, Default)]
struct StreamState {
    lane_is_over: bool,
    /// It is to end: the source sends nothing more on it.
    ends: bool,
    said: bool,
    heard: bool,
    /// Why it was given up, where that is known better than from its lane.
    reason: Option<String>,
    doubted: Option<Tick>,
}

/// All streams of a side.
#[derive(Debug)]
pub(super) struct StreamStates {
    each: BTreeMap<u32, StreamState>,
    /// Numbers that are or have been in use: none is used twice.
    known: BTreeSet<u32>,
    /// The number that the next replacement of a stream gets.
    next: u32,
    /// Streams that this side is opening.
    pub awaited: u32,
    /// A stream of its own connection has been opened, at the start or later.
    pub any_opened: bool,
    pub carried: Carried,
    /// The driver has told a far source that a stream is open.
    pub no_more_said: bool,
    pub replaced: u32,
    /// How many streams there are to be, once that has changed.
    pub wanted: Option<u16>,
    /// Streams that are opened because there are to be more, and replace no other.
    additional: BTreeSet<u32>,
    damaged: u32,
    /// Since when no stream has been alive.
    pub bare_since: Option<Tick>,
}

/// The stream that the control connection carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carried {
    Not,
    /// It only starts the transfer.
    Starts,
    /// It carries all data.
    All,
    /// The source has ended it.
    Over,
}

/// Streams that may deliver damaged bytes before the whole transfer is given up: a path that flips
/// a bit now and then is tolerated, one that always does is reported.
const DAMAGED_MAX: u32 = 16;

impl StreamStates {
    /// The first streams have the numbers below `streams`; replacements follow.
    pub(super) fn new(streams: u16) -> StreamStates {
        StreamStates {
            each: BTreeMap::new(),
            known: BTreeSet::new(),
            next: streams.into(),
            awaited: 0,
            any_opened: false,
            carried: Carried::Not,
            no_more_said: false,
            replaced: 0,
            wanted: None,
            additional: BTreeSet::new(),
            damaged: 0,
            bare_since: None,
        }
    }

    /// The first ones, too, are still to be opened.
    pub(super) fn none_opened(&mut self, now: Tick) {
        self.next = 0;
        self.bare_since = Some(now);
    }

    pub(super) fn add(&mut self, number: u32) {
        self.known.insert(number);
        self.any_opened |= number != CONTROL_STREAM;
        self.bare_since = None;
        self.each.insert(number, StreamState::default());
    }

    /// The number for a stream that replaces a lost one.
    pub(crate) fn next_number(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    /// The number for a stream that is opened because there are to be more.
    pub(crate) fn additional_number(&mut self) -> u32 {
        let number = self.next_number();
        self.additional.insert(number);
        number
    }

    pub(crate) fn is_additional(&self, number: u32) -> bool {
        self.additional.contains(&number)
    }

    /// True for a stream that may begin now: a number that was not in use, and not too many where
    /// there are `streams_max` at most.
    pub(crate) fn may_join(&self, number: u32, streams_max: u16) -> bool {
        let alive = self.each.values().filter(|each| !each.lane_is_over).count();
        !self.known.contains(&number) && alive < 2 * usize::from(streams_max)
    }

    /// Streams of their own connections that carry data, and are not to end.
    pub(super) fn in_use(&self) -> Vec<u32> {
        let in_use = |(number, each): &(&u32, &StreamState)| {
            **number != CONTROL_STREAM && !each.lane_is_over && !each.ends
        };
        self.each.iter().filter(in_use).map(|(number, _)| *number).collect()
    }

    /// True while there are fewer streams than there are to be, with those that are being opened.
    pub(super) fn are_too_few(&self) -> bool {
        let there = self.in_use().len() + self.awaited as usize;
        self.wanted.is_none_or(|wanted| there < usize::from(wanted))
    }

    /// Records that a stream is to end; false where there is none of that number.
    pub(super) fn end(&mut self, number: u32) -> bool {
        self.each.get_mut(&number).map(|each| each.ends = true).is_some()
    }

    pub(super) fn is_to_end(&self, number: u32) -> bool {
        self.each.get(&number).is_some_and(|each| each.ends)
    }

    /// Records a stream that the peer released before this side has seen it; false for one that
    /// this side has known. It cannot join any more.
    pub(crate) fn is_unseen(&mut self, number: u32) -> bool {
        self.known.insert(number)
    }

    /// True for a stream that this side has or has had.
    pub(super) fn is_known(&self, number: u32) -> bool {
        self.known.contains(&number)
    }

    /// Records why a stream is given up; false where there is none of that number.
    pub(crate) fn give_up(&mut self, number: u32, reason: String) -> bool {
        let Some(each) = self.each.get_mut(&number) else { return false };
        each.reason.get_or_insert(reason);
        true
    }

    /// A stream's lane has ended; returns the best known reason.
    pub(crate) fn lane_over(&mut self, number: u32, fault: Option<&Fault>) -> Option<String> {
        let each = self.each.get_mut(&number)?;
        each.lane_is_over = true;
        if fault.is_some_and(|fault| fault.class == Class::Corrupt) {
            self.damaged += 1;
        }
        each.reason.take().or_else(|| fault.map(|fault| fault.text.clone()))
    }

    pub(crate) fn is_damaged_beyond_use(&self) -> bool {
        self.damaged > DAMAGED_MAX
    }

    /// True when its lane has ended, for a stream that is not gone.
    pub(crate) fn lane_is_over(&self, number: u32) -> Option<bool> {
        self.each.get(&number).map(|each| each.lane_is_over)
    }

    /// Records that the peer has released a stream; false when there is none of that number.
    pub(crate) fn hear_lost(&mut self, number: u32) -> bool {
        let each = self.each.get_mut(&number);
        each.map(|each| each.heard = true).is_some()
    }

    pub(crate) fn was_heard(&self, number: u32) -> bool {
        self.each.get(&number).is_some_and(|each| each.heard)
    }

    /// True once, when this side must send that a stream is lost.
    pub(crate) fn say_lost(&mut self, number: u32) -> bool {
        self.each.get_mut(&number).is_some_and(|each| !std::mem::replace(&mut each.said, true))
    }

    /// Both sides have released it.
    pub(super) fn remove(&mut self, number: u32, now: Tick) {
        self.each.remove(&number);
        self.note_bare(now);
    }

    /// Notes since when no stream is alive, if none is.
    pub(super) fn note_bare(&mut self, now: Tick) {
        if self.each.values().all(|each| each.lane_is_over) {
            self.bare_since.get_or_insert(now);
        }
    }

    /// True where the sink must be asked about a stream on which nothing moves: not too often.
    pub(super) fn doubt(&mut self, number: u32, now: Tick, stall: Nanos) -> bool {
        let Some(each) = self.each.get_mut(&number).filter(|each| !each.lane_is_over) else {
            return false;
        };
        let asks = each.doubted.is_none_or(|then| now.since(then).0 > stall.0 / 2);
        if asks {
            each.doubted = Some(now);
        }
        asks
    }
}
