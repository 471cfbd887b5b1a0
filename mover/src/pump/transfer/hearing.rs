//! How a transfer handles each message: of its peer, or of its own other side where both ends are
//! on this host.

use std::sync::atomic::Ordering::Relaxed;

use crate::pump::source::Settled;
use crate::pump::transfer::twins::Sums;
use crate::pump::transfer::{Action, COMPARING_MAX, Core, compared_objects};
use crate::wire::manifest::EntryKind;
use crate::wire::message::Message;
use crate::work::digest::to_hex;
use base::extra::ExtraSums;
use base::fault::{Class, Fault};
use base::job::{FileKind, Notice};
use base::limits::OBJECTS_IN_FLIGHT_MAX;
use base::reason::Reason;

impl Core {
    pub(super) fn hear(&mut self, message: Message) -> Result<(), Fault> {
        let peer = self.peer.as_mut().expect("only a peer is heard");
        peer.session.hear(self.now, &message)?;
        self.hear_checked(message)
    }

    /// A message that the session has accepted.
    pub(super) fn hear_checked(&mut self, message: Message) -> Result<(), Fault> {
        match message {
            Message::Stop(fault) => Err(self.of_its_host(fault.from_other_side())),
            Message::Ping => Ok(()),
            Message::Warning { text } => {
                self.watch.warn(text);
                Ok(())
            }
            Message::Carry(carries) => self.hear_carry(carries),
            Message::Enough => {
                self.watch.enough();
                Ok(())
            }
            Message::Limit { rate } => {
                self.watch.limit(rate);
                Ok(())
            }
            Message::Lost { stream } => self.hear_lost(stream),
            Message::EndStream { stream } => self.hear_end_stream(stream),
            Message::Samples { stream, samples } => {
                // Samples of a stream that has not joined here yet are dropped: more will come.
                if self.streams.is_known(stream) {
                    self.actions.push_back(Action::NoteSamples { stream, samples });
                }
                Ok(())
            }
            Message::Doubt { stream } => {
                self.hear_doubt(stream);
                Ok(())
            }
            Message::Report(report) => {
                self.done.peer_report = Some(*report);
                Ok(())
            }
            message if self.source.is_some() => self.tell_source(message),
            message => self.tell_sink(message),
        }
    }

    /// Names the far host in a fault that happened there: its paths are not this host's.
    pub(super) fn of_its_host(&self, fault: Fault) -> Fault {
        let host = self.peer.as_ref().and_then(|peer| peer.host.as_ref());
        let is_own = matches!(fault.class, Class::Interrupted | Class::Peer | Class::Unreachable);
        match host.filter(|_| fault.is_far && !is_own) {
            Some(host) => Fault { text: format!("{host}: {}", fault.text), ..fault },
            None => fault,
        }
    }

    /// The control connection has ended.
    pub(super) fn closed(&mut self, fault: Option<Fault>) -> Result<(), Fault> {
        // A peer that has reported may go; and what is complete needs no more messages.
        if self.done.peer_report.is_some() {
            return Ok(());
        }
        if self.own_part_over() && self.knows_all() {
            self.peer.iter_mut().for_each(|peer| peer.is_gone = true);
            return Ok(());
        }
        Err(fault.unwrap_or_else(|| {
            Fault::new(Class::Unreachable, "the far side went away: its connection was closed")
        }))
    }

    /// A message of the source: to the peer, or to this host's own sink.
    pub(super) fn say_to_sink(&mut self, message: Message) -> Result<(), Fault> {
        match &self.peer {
            Some(_) => {
                self.say(message);
                Ok(())
            }
            None => self.tell_sink(message),
        }
    }

    pub(super) fn say_to_source(&mut self, message: Message) -> Result<(), Fault> {
        match &self.peer {
            Some(_) => {
                self.say(message);
                Ok(())
            }
            None => self.tell_source(message),
        }
    }

    fn tell_sink(&mut self, message: Message) -> Result<(), Fault> {
        let is_compared = matches!(
            message,
            Message::Offer { .. } | Message::OfferEnd { .. } | Message::PipeEnd { .. }
        );
        let Some(comparing) = self.comparing.as_mut().filter(|_| is_compared) else {
            return self.take_in(message);
        };
        self.sink.as_ref().map_or(Ok(()), |sink| sink.check_offer(&message))?;
        *comparing += compared_objects(&message);
        if *comparing > COMPARING_MAX {
            return Err(Fault::peer("the peer offered more than it has credit for"));
        }
        self.actions.push_back(Action::Compare(message));
        Ok(())
    }

    /// The files here have been compared with what is offered.
    pub(super) fn compared(&mut self, message: Message, same: Vec<u64>) -> Result<(), Fault> {
        let sink = self.sink.as_mut().expect("what is compared is the sink's");
        sink.note_same(same);
        if let Some(comparing) = &mut self.comparing {
            *comparing -= compared_objects(&message);
        }
        self.take_in(message)
    }

    fn take_in(&mut self, message: Message) -> Result<(), Fault> {
        let sink = self.sink.as_mut().expect("a message for the sink");
        match message {
            Message::Offer { first, entries } => {
                let is_directory = |kind| kind == EntryKind::Directory;
                self.done.directories +=
                    entries.iter().filter(|entry| is_directory(entry.kind)).count() as u64;
                let paths: Vec<_> = entries
                    .iter()
                    .map(|entry| (entry.path.clone(), entry.kind, entry.size))
                    .collect();
                if self.source.is_none() {
                    self.twins.note_offer(first, &entries);
                }
                let answers = sink.offer(first, entries)?;
                for answer in answers {
                    self.note_own(first, &paths, &answer);
                    self.say_to_source(answer)?;
                }
                Ok(())
            }
            Message::OfferEnd { objects, .. } => sink.end_offers(objects),
            Message::PipeEnd { bytes } => sink.objects.end_pipe(bytes),
            Message::Present { paths } => sink.note_present(&paths),
            Message::Unoffered { path, fault } => {
                sink.note_unoffered();
                self.failed(path, fault.from_other_side());
                Ok(())
            }
            other => Err(Fault::peer(format!("{} is no message for a sink", other.name()))),
        }
    }

    /// A sink that drives reports by itself what it settled at once; otherwise the source does.
    fn note_own(&mut self, first: u64, paths: &[(Vec<u8>, EntryKind, u64)], answer: &Message) {
        if self.source.is_some() {
            return;
        }
        match answer {
            Message::Failed { object, fault } => {
                let (path, ..) = &paths[(object - first) as usize];
                self.not_copied(*object);
                self.failed(path.clone(), fault.clone());
            }
            Message::Kept { object } => {
                let (path, ..) = &paths[(object - first) as usize];
                self.kept(*object, path.clone());
            }
            Message::Differing { objects } => self.reasons.extend(objects.iter().copied()),
            Message::Finished { objects } | Message::Held { objects } => {
                for (object, sum) in objects {
                    let (path, kind, bytes) = paths[(object - first) as usize].clone();
                    let settled = Settled { number: *object, path, kind, bytes };
                    self.finished_well(settled, (*sum, ExtraSums::NONE));
                }
            }
            _ => {}
        }
    }

    fn tell_source(&mut self, message: Message) -> Result<(), Fault> {
        let source = self.source.as_mut().expect("a message for the source");
        match message {
            Message::Want { wanted, .. } => source.want(&wanted),
            Message::HeldRanges { object, ranges } => source.note_held(object, &ranges),
            Message::Ack { ranges, bytes } => {
                if self.sink.is_none() {
                    self.watch.gauge.bytes_done.fetch_add(bytes, Relaxed);
                }
                source.acknowledged(self.now, &ranges)
            }
            Message::Extra { objects } => {
                if self.extra.len() + objects.len() > OBJECTS_IN_FLIGHT_MAX as usize {
                    return Err(Fault::peer("digests of objects that are not finished"));
                }
                self.extra.extend(objects);
                Ok(())
            }
            Message::Differing { objects } => {
                if self.reasons.len() + objects.len() > OBJECTS_IN_FLIGHT_MAX as usize {
                    return Err(Fault::peer("differences of objects that are not offered"));
                }
                self.reasons.extend(objects);
                Ok(())
            }
            Message::Finished { objects } => {
                for (object, sum) in objects {
                    let source = self.source.as_mut().expect("as above");
                    let settled = source.settle(object)?;
                    let extra = self.extra.remove(&object).unwrap_or_default();
                    self.finished_well(settled, (sum, extra));
                }
                Ok(())
            }
            Message::Held { objects } => {
                for (object, sum) in objects {
                    let source = self.source.as_mut().expect("as above");
                    let settled = source.held_whole(object)?;
                    self.finished_well(settled, (sum, ExtraSums::NONE));
                }
                Ok(())
            }
            Message::Failed { object, fault } => {
                let own = source.unreadable(object);
                let settled = source.settle(object)?;
                self.not_copied(object);
                self.failed(settled.path, own.unwrap_or_else(|| fault.from_other_side()));
                Ok(())
            }
            Message::Kept { object } => {
                let settled = source.settle(object)?;
                self.kept(object, settled.path);
                Ok(())
            }
            deleted @ (Message::Deleted { .. } | Message::NotDeleted { .. }) => {
                self.hear_deleted(deleted)
            }
            Message::DecompressionTime(time) => {
                self.actions.push_back(Action::NoteDecompressionTime(time));
                Ok(())
            }
            other => Err(Fault::peer(format!("{} is no message for a source", other.name()))),
        }
    }

    /// An object has failed.
    pub(super) fn not_copied(&mut self, number: u64) {
        self.twins.settle(number, Sums::default());
        self.reasons.remove(&number);
    }

    /// What is there stays, and may get its source's mode and owner.
    fn kept(&mut self, number: u64, path: Vec<u8>) {
        self.twins.settle(number, Sums::default());
        self.done.kept += 1;
        if let Some(changes) = self.reasons.remove(&number) {
            self.watch.tell(match self.settings.dry_run {
                true => Notice::WouldAdjust { path, changes },
                false => Notice::Adjusted { path, changes },
            });
        }
    }

    pub(super) fn finished_well(&mut self, settled: Settled, sums: Sums) {
        let Settled { number, path, kind, bytes } = settled;
        let reason = self.reasons.remove(&number).map_or(Reason::New, Reason::Changed);
        let (sum, extra) = self.twins.settle(number, sums);
        let Some(kind) = kind.of_file() else {
            if self.sink.is_none() && kind == EntryKind::Directory {
                self.done.directories += 1;
            }
            if self.settings.compare && kind == EntryKind::Directory && reason == Reason::New {
                let (path, kind) = ([&path[..], b"/"].concat(), FileKind::File);
                self.watch.tell(Notice::WouldCopy { path, kind, bytes: 0, reason });
            }
            return;
        };
        self.done.files += 1;
        self.done.bytes += bytes;
        self.watch.gauge.files_done.fetch_add(1, Relaxed);
        self.watch.tell(match self.settings.dry_run {
            true => Notice::WouldCopy { path, kind, bytes, reason },
            false => {
                let digest = sum.map(|sum| to_hex(self.settings.digest, &sum));
                let reason = Some(reason);
                Notice::FileDone { path, kind, bytes, reason, digest, extra }
            }
        });
    }
}
