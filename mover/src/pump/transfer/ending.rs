//! How a transfer ends: successfully, when both sides have reported; or by a fault, after which
//! nothing moves any more and what has arrived is kept for another run.

use std::sync::mpsc::Receiver;

use crate::pump::lane::Over;
use crate::pump::sink::SinkSide;
use crate::pump::sink::finisher::Ending;
use crate::pump::sink::objects::Unfinished;
use crate::pump::source::SourceSide;
use crate::pump::transfer::stream_states::Carried;
use crate::pump::transfer::{Action, Core, Done, Event, Report, Work};
use crate::wire::message::Message;
use base::fault::{Class, Fault};
use base::job::Carrier;
use base::tally::SideReport;
use base::units::{Nanos, Tick};

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a transfer has one, and is boxed")]
pub(super) enum Phase {
    Running,
    /// A fault ends it, which may only be a consequence of what the peer is about to send.
    Listening {
        fault: Fault,
        until: Tick,
    },
    /// Everything has been told to stop.
    Stopping {
        fault: Fault,
        until: Tick,
    },
    Over(Result<Done, Fault>),
}

/// How long the cause of such a consequence may take to arrive.
const CAUSE_WITHIN: Nanos = Nanos::from_millis(300);
/// How long lanes may take to end: limited, as a write can take minutes.
const LANES_WITHIN: Nanos = Nanos::from_millis(400);

impl Core {
    /// Whether it does not matter what the other side does after its last object. A far sink still
    /// sets the mode of the destination, removes its journal, and then reports that it is done.
    pub(super) fn knows_all(&self) -> bool {
        self.sink.is_some() || !self.drives()
    }

    pub(super) fn own_part_over(&self) -> bool {
        self.lanes_running == 0
            && self.source.as_ref().is_none_or(SourceSide::is_over)
            && self.sink.as_ref().is_none_or(SinkSide::is_over)
    }

    pub(super) fn is_over(&self) -> bool {
        if self.report != Report::Made {
            return false;
        }
        let heard = self.peer.is_none() || self.done.peer_report.is_some();
        let is_gone = self.peer.as_ref().is_some_and(|peer| peer.is_gone);
        match self.drives() {
            true => (heard || (is_gone && self.knows_all())) && self.own_part_over(),
            // Only then is the journal no longer needed: the driver knows that all is done.
            false => heard || is_gone,
        }
    }

    /// A side reports when its part is over; first the host is asked for its figures.
    pub(super) fn begin_report(&mut self) {
        if self.report == Report::NotYet && self.own_part_over() {
            self.report = Report::Asked;
            self.actions.push_back(Action::Measure);
        }
    }

    pub(super) fn measured(
        &mut self,
        report: SideReport,
        samples: Vec<Message>,
    ) -> Result<(), Fault> {
        self.report = Report::Made;
        samples.into_iter().for_each(|message| self.say(message));
        let sink = self.sink.as_ref().filter(|_| self.settings.dry_run);
        let room = sink.map(SinkSide::room).unwrap_or_default();
        for fault in self.sink.as_mut().map(SinkSide::close).unwrap_or_default() {
            self.warn(fault.text);
        }
        let (tally, excluded) = (self.tally, self.excluded);
        self.done.report = SideReport { tally, excluded, room, ..report };
        if !self.drives() {
            self.say(Message::Report(Box::new(self.done.report.clone())));
        }
        Ok(())
    }

    /// Everything is done.
    pub(super) fn conclude(&mut self) {
        let heard = self.done.peer_report.is_some();
        if heard && self.peer.as_ref().is_some_and(|peer| peer.drives) {
            // The last message: the side that was started learns that its report has arrived.
            let report = Box::new(self.done.report.clone());
            self.actions.push_back(Action::Say(Message::Report(report)));
        }
        let is_known = heard || self.drives();
        if let Some(sink) = &mut self.sink {
            let ending = if is_known { sink.ending() } else { Ending::Short };
            self.actions.push_back(Action::Finish(Work::Close(ending)));
        }
        self.done.replaced = self.streams.replaced;
        let only_started = self.streams.carried != Carried::Not && !self.streams.any_opened;
        self.done.carrier = if only_started { Carrier::Control } else { self.carrier };
        self.phase = Phase::Over(Ok(std::mem::take(&mut self.done)));
    }

    /// A fault ends the transfer.
    pub(super) fn fail(&mut self, fault: Fault) {
        // A cut stream is often only a consequence of what the peer is about to send.
        match fault.class == Class::Unreachable && self.peer.is_some() {
            true => {
                let until = self.now.after(CAUSE_WITHIN);
                self.phase = Phase::Listening { fault, until };
            }
            false => self.stop(fault),
        }
    }

    pub(super) fn listen(&mut self, event: Event) {
        let Phase::Listening { fault: echo, until } = &self.phase else { return };
        let cause = match event {
            Event::Heard(Message::Stop(fault)) => Some(fault),
            Event::LaneOver(_, over) => self.count(over).filter(is_no_echo),
            // A fault in its messages is reported before a write to it fails.
            Event::Closed(Some(fault)) if is_no_echo(&fault) => Some(fault),
            Event::Failed(fault) if is_no_echo(&fault) => Some(fault),
            Event::Closed(_) => Some(echo.clone()),
            Event::Beat if self.now >= *until || self.watch.stopping() => Some(echo.clone()),
            _ => None,
        };
        if let Some(cause) = cause {
            self.stop(cause);
        }
    }

    fn stop(&mut self, fault: Fault) {
        // Ctrl-C reaches every process of a terminal: we may see the end of the far side first.
        let is_stopped = fault.class == Class::Unreachable && self.watch.stopping();
        let fault = if is_stopped { Fault::interrupted() } else { fault };
        self.actions.push_back(Action::Cancel(fault.clone()));
        if self.peer.is_some() {
            self.actions.push_back(Action::Say(Message::Stop(fault.clone())));
        }
        let until = self.now.after(LANES_WITHIN);
        self.phase = Phase::Stopping { fault, until };
        self.leave_if_still();
    }

    pub(super) fn await_lanes(&mut self, event: Event) {
        if let Event::LaneOver(_, over) = event {
            self.count(over);
        }
        self.leave_if_still();
    }

    /// Counts a lane that has ended; returns its fault.
    fn count(&mut self, over: Over) -> Option<Fault> {
        self.tally.add(&over.tally);
        self.lanes_running -= 1;
        over.fault
    }

    /// Once the lanes have ended, keeps what has arrived and removes the rest.
    fn leave_if_still(&mut self) {
        let Phase::Stopping { fault, until } = &self.phase else { return };
        if self.lanes_running > 0 && self.now < *until {
            return;
        }
        let fault = fault.clone();
        if let Some(sink) = &self.sink {
            sink.restore_modes();
            let advances = sink.objects.take_advances();
            let Unfinished { told: mut left, untold } = sink.objects.unfinished();
            // Complete objects that no thread has taken: the journal may know of those with a file
            // of their own.
            let complete = self.complete.iter().flat_map(Receiver::try_iter);
            let (large, small): (Vec<_>, Vec<_>) =
                complete.map(|object| object.wanted).partition(|wanted| wanted.file.is_some());
            let begun_now = large.into_iter().filter(|wanted| wanted.begun.is_none());
            left.extend(begun_now.map(|wanted| (wanted.number, wanted.temporary)));
            if let Some(volume) = sink.target().volume() {
                let names = small.into_iter().map(|wanted| wanted.temporary).chain(untold);
                names.for_each(|temporary| drop(volume.remove(&temporary)));
            }
            self.actions.push_back(Action::Finish(Work::Stop { advances, left }));
        }
        self.phase = Phase::Over(Err(fault));
    }
}

fn is_no_echo(fault: &Fault) -> bool {
    fault.class != Class::Unreachable
}
