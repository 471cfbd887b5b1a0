//! What a transfer does about its data streams: parts with those that break, and opens others.

use std::time::Duration;

use super::super::assembly::Stream;
use super::super::lane::Over;
use super::super::paths::When;
use super::super::sink::SinkSide;
use super::{Running, say};
use crate::base::fault::{Class, Fault};
use crate::base::job::{Carrier, PathRole, PathSide, StreamPath};
use crate::base::path::PathSample;
use crate::base::units::{Nanos, Tick};
use crate::io::{clock, tcp};
use crate::wire::message::Message;

/// How long to wait before a stream that could not be opened is tried again, and how many stalls a
/// side may be without any.
const REDIAL_AFTER: Duration = Duration::from_millis(1_000);
const BARE_STALLS: u64 = 3;

impl Running {
    pub(super) fn lane_over(&mut self, stream: Option<u32>, over: Over) -> Result<(), Fault> {
        self.tally.add(&over.tally);
        self.lanes_running -= 1;
        let Some(number) = stream else { return over.fault.map_or(Ok(()), Err) };
        let replaceable = |fault: &Fault| {
            matches!(fault.class, Class::Unreachable | Class::Corrupt)
                && self.carrier == Carrier::Tcp
        };
        if let Some(fault) = &over.fault
            && !replaceable(fault)
        {
            return Err(fault.clone());
        }
        let why = self.wires.lane_over(number, over.fault.as_ref());
        match over.fault {
            Some(fault) if self.wires.is_damaged_beyond_use() => Err(fault),
            None if !self.wires.was_heard(number) => Ok(()),
            _ => self.let_go(number, why),
        }
    }

    /// This side's lane is over, and its stream is lost: parts with the stream.
    fn let_go(&mut self, number: u32, why: Option<String>) -> Result<(), Fault> {
        if self.sink.is_some() {
            while let Some(ack) = self.sink.as_mut().and_then(SinkSide::acknowledge) {
                self.say_to_source(ack)?;
            }
        }
        let first = self.wires.say_lost(number);
        if first && let Some(peer) = &mut self.peer {
            say(peer, &Message::Lost { stream: number })?;
        }
        let told = first && self.drives() && self.needs_streams();
        if told && let Some(why) = why {
            self.watch.warn(format!(
                "stream {number} was lost ({why}): another takes its place, and what it had under \
                 way is sent again"
            ));
        }
        if let Some(source) = &self.source {
            if !self.wires.was_heard(number) {
                return Ok(()); // what the sink has of it is not known yet
            }
            source.plan.lost(number);
        }
        self.wires.remove(number, clock::now());
        self.replace();
        Ok(())
    }

    pub(super) fn hear_lost(&mut self, number: u32) -> Result<(), Fault> {
        if number > u32::from(u16::MAX) || self.carrier != Carrier::Tcp {
            return Err(Fault::peer("the peer lost a stream that never was"));
        }
        if self.wires.is_unseen(number) {
            // Its handshake was whole for the peer alone: nothing has come or gone on it.
            return match (&self.sink, &mut self.peer) {
                (Some(_), Some(peer)) => say(peer, &Message::Lost { stream: number }),
                _ => Ok(()),
            };
        }
        if !self.wires.hear_lost(number) {
            return Ok(()); // both sides noticed at once
        }
        match self.wires.lane_is_over(number) {
            Some(true) => self.let_go(number, None),
            _ => {
                self.wires.give_up(number, Some("the far side lost it".to_string()));
                Ok(())
            }
        }
    }

    /// Ends an endless source once that is wanted: here, or by telling the far side.
    pub(super) fn end_if_enough(&mut self) -> Result<(), Fault> {
        if self.enough_said || !self.watch.is_enough() {
            return Ok(());
        }
        match (&self.source, &mut self.peer) {
            // It may not be wanted yet: then it ends later.
            (Some(source), _) => source.plan.enough(),
            (None, Some(peer)) => {
                self.enough_said = true;
                say(peer, &Message::Enough)?;
            }
            (None, None) => {}
        }
        Ok(())
    }

    /// True while a stream more would have something to do.
    fn needs_streams(&self) -> bool {
        let source = self.source.as_ref().is_some_and(|source| !source.plan.is_settled());
        let sink = self.sink.as_ref().is_some_and(|sink| !sink.has_all());
        source || (sink && self.source.is_none())
    }

    /// Opens a stream in the place of one that is gone, where that is this side's to do.
    fn replace(&mut self) {
        if self.needs_streams() {
            self.dial(Duration::ZERO);
        }
    }

    /// Opens those of the first streams that could not be opened at once.
    pub(super) fn open_missing(&mut self, begun: usize) {
        if self.carrier == Carrier::Tcp {
            (begun..usize::from(self.settings.streams)).for_each(|_| self.dial(Duration::ZERO));
        }
    }

    fn dial(&mut self, after: Duration) {
        let number = self.wires.next_number();
        if let Some(dial) = self.peer.as_ref().and_then(|peer| peer.dial.as_ref()) {
            self.wires.awaited += 1;
            dial.dial(number, after);
        }
    }

    pub(super) fn dial_again(&mut self, fault: &Fault) -> Result<(), Fault> {
        if !self.needs_streams() {
            self.wires.awaited -= 1;
            return Ok(());
        }
        let patience = Nanos(self.settings.stall.0 * BARE_STALLS);
        let bare = self.wires.bare_since.map(|since| clock::now().since(since));
        if bare.is_some_and(|bare| bare > patience) {
            let text = format!("every data stream was lost, and no other can be opened: {fault}");
            return Err(Fault::new(Class::Unreachable, text));
        }
        self.wires.awaited -= 1;
        self.dial(REDIAL_AFTER); // under a new number: the far side may have known the old one
        Ok(())
    }

    pub(super) fn join(&mut self, stream: Stream) -> Result<(), Fault> {
        let number = stream.wire.number;
        self.wires.awaited = self.wires.awaited.saturating_sub(1);
        if self.own_part_over() || self.reported {
            return Ok(()); // it is closed by being dropped
        }
        if !self.wires.may_join(number, self.settings.streams) {
            drop(stream);
            self.replace();
            return Ok(());
        }
        if number >= u32::from(self.settings.streams) {
            self.wires.replaced += 1;
        }
        self.start_lane(Some(stream))
    }

    /// The largest window the peer's TCP has shown; there is no history to ask for.
    pub(super) fn look_at_sockets(&mut self) {
        if self.source.is_some() {
            let seen = self.wires.sockets().map(tcp::peer_window_bytes).max().unwrap_or(0);
            self.window_seen_bytes = self.window_seen_bytes.max(seen);
        }
    }

    /// What the far side has seen of a stream. One that has joined there and not yet here is not
    /// missed: more comes.
    pub(super) fn hear_samples(
        &mut self,
        stream: u32,
        samples: &[PathSample],
    ) -> Result<(), Fault> {
        if self.wires.is_known(stream) {
            self.wires.paths.hear(stream, samples);
            let role = if self.source.is_some() { PathRole::Sink } else { PathRole::Source };
            let side = PathSide::Far;
            let seen = || [StreamPath { stream, side, role, samples: samples.to_vec() }];
            self.watch.show(seen);
        }
        Ok(())
    }

    /// What has been seen goes to the side that drives.
    pub(super) fn tell_paths(&mut self, when: When) -> Result<(), Fault> {
        let now = clock::now();
        if !self.wires.look(now, when) {
            return Ok(());
        }
        match &mut self.peer {
            // Behind its report a side says nothing more.
            Some(peer) if !peer.drives && self.reported && when == When::InTime => Ok(()),
            Some(peer) if !peer.drives => {
                let told = self.wires.paths.tell(now, when);
                told.iter().try_for_each(|message| say(peer, message))
            }
            _ => {
                self.watch.show(|| self.wires.paths.fresh());
                self.wires.paths.keep();
                Ok(())
            }
        }
    }

    /// What is known of streams when all is over.
    pub(super) fn close_wires(&mut self) {
        self.wires.look(clock::now(), When::AtEnd);
        self.done.replaced = self.wires.replaced;
        self.done.paths = self.wires.paths.finish();
    }

    /// Paces what is sent, and holds the windows of what receives to what was asked.
    fn tend_streams(&mut self, now: Tick) {
        if self.carrier != Carrier::Tcp {
            return;
        }
        match (&self.source, self.settings.window_bytes) {
            (Some(_), _) => self.wires.pace(now, self.settings.pace),
            (None, Some(bytes)) => self.wires.keep_windows(now, bytes),
            (None, None) => {}
        }
    }

    /// Looks for streams on which nothing moves although it should.
    pub(super) fn look_at_streams(&mut self) -> Result<(), Fault> {
        self.tell_paths(When::InTime)?;
        let now = clock::now();
        self.tend_streams(now);
        let stall = self.settings.stall;
        if now < self.look_at || self.carrier != Carrier::Tcp {
            return Ok(());
        }
        self.look_at = now.after(Nanos(stall.0 / 8));
        let Some(source) = &self.source else { return Ok(()) };
        let stalled = source.plan.stalled(now, stall);
        for stream in self.wires.doubt(now, stall, &stalled) {
            self.say_to_sink(Message::Doubt { stream })?;
        }
        Ok(())
    }
}
