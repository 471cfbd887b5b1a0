//! What a transfer does about its data streams: releases those that break, and opens others.

use crate::pump::lane::Over;
use crate::pump::lane::assembly::{Stream, streams_max};
use crate::pump::sink::SinkSide;
use crate::pump::transfer::stream_states::Carried;
use crate::pump::transfer::{Action, Check, Core, Report};
use crate::wire::message::{Carries, Message};
use crate::wire::preamble::CONTROL_STREAM;
use base::fault::{Class, Fault};
use base::job::Carrier;
use base::units::Nanos;

/// How long to wait before a stream that could not be opened is tried again, and for how many
/// stalls a side may have no stream.
const REDIAL_AFTER: Nanos = Nanos::from_millis(1_000);
const BARE_STALLS: u64 = 3;

impl Core {
    /// One lane for each stream, and others for those that are still to be opened; within one
    /// process as many as streams were asked for.
    pub(super) fn start_lanes(&mut self, streams: Vec<Stream>) {
        let wanted = usize::from(self.settings.streams);
        if self.peer.is_none() {
            return (0..wanted).for_each(|_| self.start_lane(None));
        }
        let is_carried = |stream: &Stream| stream.handle.number == CONTROL_STREAM;
        let begun = streams.iter().filter(|stream| !is_carried(stream)).count();
        if begun == 0 && self.carrier == Carrier::Tcp {
            self.streams.none_opened(self.now);
        }
        match (streams.len() - begun, self.carrier) {
            (0, _) => {}
            (_, Carrier::Tcp) => self.start_with_carried(),
            _ => {
                self.streams.carried = Carried::All;
                self.plan_carries(Carries::All);
            }
        }
        streams.into_iter().for_each(|stream| self.start_lane(Some(stream)));
        (begun..wanted).for_each(|_| self.dial(Nanos(0)));
    }

    /// The control connection carries the first bytes, until a data stream has been opened.
    fn start_with_carried(&mut self) {
        self.streams.carried = Carried::Starts;
        self.plan_carries(Carries::First);
    }

    fn plan_carries(&self, carries: Carries) {
        if let Some(source) = &self.source {
            source.plan.carry(CONTROL_STREAM, carries);
        }
    }

    /// What the driver lets this connection carry.
    pub(super) fn hear_carry(&mut self, carries: Carries) -> Result<(), Fault> {
        match (carries, self.streams.carried) {
            (Carries::First, Carried::Not) => {
                self.start_with_carried();
                self.actions.push_back(Action::Carry);
            }
            (Carries::All, Carried::Not | Carried::Starts) => self.carry_all(),
            (Carries::NoMore, Carried::Starts) => self.plan_carries(carries),
            // All was copied before the driver knew.
            (Carries::All | Carries::NoMore, Carried::Over) => {}
            _ => return Err(Fault::peer("the peer carries data out of turn")),
        }
        Ok(())
    }

    /// The control connection carries all data.
    fn carry_all(&mut self) {
        if self.streams.carried == Carried::Not {
            self.actions.push_back(Action::Carry);
        }
        self.streams.carried = Carried::All;
        self.plan_carries(Carries::All);
    }

    fn start_lane(&mut self, stream: Option<Stream>) {
        if let Some(stream) = &stream {
            self.streams.add(stream.handle.number);
            self.note_opened(stream.handle.number);
        }
        self.lanes_running += 1;
        self.actions.push_back(Action::StartLane(stream));
    }

    /// The side that opens streams has opened one: then it knows that the far side has it, too.
    fn note_opened(&mut self, number: u32) {
        let starts = self.streams.carried == Carried::Starts;
        if starts && self.drives() && number != CONTROL_STREAM && !self.streams.no_more_said {
            self.streams.no_more_said = true;
            self.plan_carries(Carries::NoMore);
            if self.source.is_none() {
                self.say(Message::Carry(Carries::NoMore));
            }
        }
    }

    pub(super) fn lane_over(&mut self, stream: Option<u32>, over: Over) -> Result<(), Fault> {
        self.tally.add(&over.tally);
        self.lanes_running -= 1;
        let Some(number) = stream else { return over.fault.map_or(Ok(()), Err) };
        let replaceable = |fault: &Fault| {
            matches!(fault.class, Class::Unreachable | Class::Corrupt) && number != CONTROL_STREAM
        };
        if let Some(fault) = &over.fault
            && !replaceable(fault)
        {
            return Err(fault.clone());
        }
        let why = self.streams.lane_over(number, over.fault.as_ref());
        if number == CONTROL_STREAM {
            self.carried_is_over();
            return Ok(());
        }
        match over.fault {
            Some(fault) if self.streams.is_damaged_beyond_use() => Err(fault),
            None if !self.streams.was_heard(number) => {
                // Where some end on the way, others may have been lost before.
                if self.settings.streams_auto {
                    self.streams.note_bare(self.now);
                }
                Ok(())
            }
            _ => self.let_go(number, why),
        }
    }

    /// The source has ended the stream that the control connection carried. If that only started
    /// the transfer others are open, or will be soon.
    fn carried_is_over(&mut self) {
        let before = std::mem::replace(&mut self.streams.carried, Carried::Over);
        if before == Carried::Starts && (self.streams.any_opened || !self.drives()) {
            self.streams.remove(CONTROL_STREAM, self.now);
        }
        self.actions.push_back(Action::Forget { stream: CONTROL_STREAM });
    }

    /// This side's lane has ended, and its stream is lost: releases the stream.
    fn let_go(&mut self, number: u32, why: Option<String>) -> Result<(), Fault> {
        while let Some(ack) = self.sink.as_mut().and_then(SinkSide::acknowledge) {
            self.say_to_source(ack)?;
        }
        let first = self.streams.say_lost(number);
        if first {
            self.say_lost(number);
        }
        let is_to_end = self.streams.is_to_end(number);
        let told = first && self.drives() && self.needs_streams() && !is_to_end;
        if told && let Some(why) = why {
            self.watch.warn(format!(
                "stream {number} was lost ({why}): another takes its place, and what it had under \
                 way is sent again"
            ));
        }
        if let Some(source) = &self.source {
            if !self.streams.was_heard(number) {
                return Ok(()); // what the sink has of it is not known yet
            }
            source.plan.lost(number);
        }
        self.streams.remove(number, self.now);
        self.actions.push_back(Action::Forget { stream: number });
        self.replace();
        Ok(())
    }

    pub(super) fn hear_lost(&mut self, number: u32) -> Result<(), Fault> {
        if number >= CONTROL_STREAM {
            return Err(Fault::peer("the peer lost a stream that never was"));
        }
        if self.streams.is_unseen(number) {
            // Only the peer completed its handshake: nothing was sent on it.
            if self.sink.is_some() {
                self.say_lost(number);
            }
            return Ok(());
        }
        if !self.streams.hear_lost(number) {
            return Ok(()); // both sides noticed at once
        }
        match self.streams.lane_is_over(number) {
            Some(true) => self.let_go(number, None),
            _ => {
                self.give_up(number, "the far side lost it".to_string());
                Ok(())
            }
        }
    }

    /// After its report a side says nothing more, and nothing waits for it.
    fn say_lost(&mut self, number: u32) {
        let has_reported = self.report == Report::Made && !self.drives();
        if self.peer.is_some() && !has_reported {
            self.say(Message::Lost { stream: number });
        }
    }

    /// Gives up a stream on this side; its lane sees that at once.
    fn give_up(&mut self, number: u32, reason: String) {
        if self.streams.give_up(number, reason) {
            self.actions.push_back(Action::Cut { stream: number });
        }
    }

    /// Ends an endless source once that is wanted: here, or by telling the far side.
    pub(super) fn end_if_enough(&mut self) {
        if self.enough_said || !self.watch.is_enough() {
            return;
        }
        match (&self.source, &self.peer) {
            // It may not be wanted yet: then it ends later.
            (Some(source), _) => source.plan.enough(),
            (None, Some(_)) => {
                self.enough_said = true;
                self.say(Message::Enough);
            }
            (None, None) => {}
        }
    }

    /// Keeps to the rate that is asked for since the transfer began: here, or by telling the far
    /// side.
    pub(super) fn limit_if_asked(&mut self) {
        let asked = self.watch.limit_asked();
        let Some(rate) = asked.filter(|_| asked != self.limit_known) else { return };
        match (&self.source, &self.peer) {
            (Some(source), _) => source.plan.limit(self.now, rate),
            (None, Some(_)) if self.report == Report::NotYet => {
                self.say(Message::Limit { rate });
            }
            (None, _) => {}
        }
        self.limit_known = asked;
    }

    /// True while another stream would have something to do.
    fn needs_streams(&self) -> bool {
        let source = self.source.as_ref().is_some_and(|source| !source.plan.is_settled());
        let sink = self.sink.as_ref().is_some_and(|sink| !sink.has_all());
        source || (sink && self.source.is_none())
    }

    /// Opens a stream to replace a lost one, where this side has to.
    fn replace(&mut self) {
        if self.needs_streams() && self.streams.are_too_few() {
            self.dial(Nanos(0));
        }
    }

    fn dial(&mut self, after: Nanos) {
        if self.dials() {
            let number = self.streams.next_number();
            self.dial_as(number, after);
        }
    }

    fn dial_as(&mut self, number: u32, after: Nanos) {
        self.streams.awaited += 1;
        self.actions.push_back(Action::Dial { number, after });
    }

    /// True where this side opens streams.
    fn dials(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.dials) && self.carrier == Carrier::Tcp
    }

    /// There are to be this many streams from now on: more are opened, or the newest ended.
    pub(super) fn resize(&mut self, wanted: u16) {
        if !self.dials() || self.report != Report::NotYet || !self.needs_streams() {
            return;
        }
        let wanted = wanted.clamp(1, streams_max(&self.settings));
        self.streams.wanted = Some(wanted);
        let in_use = self.streams.in_use();
        in_use.into_iter().skip(wanted.into()).for_each(|number| self.end_stream(number));
        while self.streams.are_too_few() {
            let number = self.streams.additional_number();
            self.dial_as(number, Nanos(0));
        }
    }

    /// Ends a stream that breaks nothing: what it has sent arrives first.
    fn end_stream(&mut self, number: u32) {
        self.streams.end(number);
        match &self.source {
            Some(source) => source.plan.end_stream(number),
            None => self.say(Message::EndStream { stream: number }),
        }
    }

    /// The driver has told this source to end a stream, which may not have joined here yet.
    pub(super) fn hear_end_stream(&mut self, number: u32) -> Result<(), Fault> {
        let Some(source) = self.source.as_ref().filter(|_| number < CONTROL_STREAM) else {
            return Err(Fault::peer("the peer ended a stream that never was"));
        };
        source.plan.end_stream(number);
        self.streams.end(number);
        Ok(())
    }

    /// A stream could not be opened: it is tried again. Where none could ever be, the control
    /// connection carries all data.
    pub(super) fn not_joined(&mut self, fault: &Fault) -> Result<(), Fault> {
        self.streams.awaited = self.streams.awaited.saturating_sub(1);
        if !self.needs_streams() || self.carrier == Carrier::Control {
            return Ok(());
        }
        if !self.streams.any_opened {
            return self.go_without_streams(fault);
        }
        let bare = self.streams.bare_since.map(|since| self.now.since(since));
        if bare.is_some_and(|bare| bare > self.bare_patience()) {
            let text = format!("every data stream was lost, and no other can be opened: {fault}");
            return Err(Fault::new(Class::Unreachable, text));
        }
        if self.streams.are_too_few() {
            self.dial(REDIAL_AFTER); // under a new number: the far side may have known the old one
        }
        Ok(())
    }

    /// No stream can be opened: the control connection carries all data, if that is of any use.
    fn go_without_streams(&mut self, fault: &Fault) -> Result<(), Fault> {
        let may_carry = self.peer.as_ref().is_some_and(|peer| peer.may_carry);
        let is_over = self.streams.carried == Carried::Over;
        if is_over && self.source.is_some() {
            return Ok(()); // it has brought all that there was
        }
        if !may_carry || is_over {
            return Err(fault.clone());
        }
        self.carrier = Carrier::Control;
        self.watch.warn(fault.text.clone());
        self.carry_all();
        self.say(Message::Carry(Carries::All));
        Ok(())
    }

    /// How long a side may have no stream.
    pub(super) fn bare_patience(&self) -> Nanos {
        Nanos(self.settings.stall.0 * BARE_STALLS)
    }

    pub(super) fn join(&mut self, stream: Stream) {
        let number = stream.handle.number;
        self.streams.awaited = self.streams.awaited.saturating_sub(1);
        if self.own_part_over() || self.report != Report::NotYet {
            return; // it is closed by being dropped
        }
        if !self.streams.may_join(number, streams_max(&self.settings)) {
            drop(stream);
            return self.replace();
        }
        let is_first = number < u32::from(self.settings.streams);
        if !is_first && number != CONTROL_STREAM && !self.streams.is_additional(number) {
            self.streams.replaced += 1;
        }
        self.start_lane(Some(stream));
        // There may have been fewer wanted while it was being opened.
        let in_use = self.streams.in_use().len();
        if self.streams.wanted.is_some_and(|wanted| in_use > usize::from(wanted)) {
            self.end_stream(number);
        }
    }

    /// Finds streams on which nothing moves although it should.
    pub(super) fn look_at_streams(&mut self) {
        let stall = self.settings.stall;
        if self.now < self.look_at {
            return;
        }
        self.look_at = self.now.after(Nanos(stall.0 / 8));
        let Some(source) = &self.source else { return };
        for stream in source.plan.stalled(self.now, stall) {
            if stream != CONTROL_STREAM && self.streams.lane_is_over(stream) == Some(false) {
                self.actions.push_back(Action::Check { stream, check: Check::PathIsDead });
            }
        }
    }

    /// The source has sent and had no answer: where nothing has arrived, the path is the cause.
    /// One that was never seen here is lost: only the peer completed its handshake, or knows it
    /// under another number.
    pub(super) fn hear_doubt(&mut self, stream: u32) {
        if self.streams.is_unseen(stream) {
            return self.say_lost(stream);
        }
        if self.streams.lane_is_over(stream) == Some(false) {
            self.actions.push_back(Action::Check { stream, check: Check::IsStarved });
        }
    }

    pub(super) fn checked(&mut self, number: u32, check: Check, holds: bool) -> Result<(), Fault> {
        if self.streams.lane_is_over(number) != Some(false) {
            return Ok(());
        }
        let stall = self.settings.stall;
        match (check, holds) {
            (Check::PathIsDead, true) => {
                let text = format!("no answer came from the far host's TCP for {stall}");
                self.give_up(number, text);
            }
            (Check::PathIsDead, false) if self.streams.doubt(number, self.now, stall) => {
                self.say_to_sink(Message::Doubt { stream: number })?;
            }
            (Check::IsStarved, true) => {
                let text = format!("nothing came for {stall}, though the source has sent");
                self.give_up(number, text);
            }
            (Check::PathIsDead | Check::IsStarved, false) => {}
        }
        Ok(())
    }
}
