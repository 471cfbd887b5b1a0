//! What a source does with what its walk finds.

use crate::pump::source::walk::{Found, WalkEvent};
use crate::pump::transfer::{Action, Core, Walk};
use crate::wire::message::Message;
use base::fault::{Class, Fault};
use base::job::Notice;

impl Core {
    /// Offers what the walk has found, as far as there is credit.
    pub(super) fn offer(&mut self) -> Result<(), Fault> {
        while !self.line_is_full() {
            let Some(sighting) = self.found.pop_front() else { return self.end_walk() };
            match sighting {
                WalkEvent::Chunk(found)
                    if self.source.as_ref().is_some_and(|source| !source.has_credit(&found)) =>
                {
                    self.found.push_front(WalkEvent::Chunk(found));
                    return Ok(());
                }
                WalkEvent::Chunk(found) => {
                    let source = self.source.as_mut().expect("a walk is the source's");
                    let offer = source.offer(found)?;
                    self.note_names(&offer);
                    self.say_to_sink(offer)?;
                }
                WalkEvent::Unoffered { path, fault } => {
                    if self.peer.is_some() {
                        self.say(Message::Unoffered { path: path.clone(), fault: fault.clone() });
                    }
                    if let Some(sink) = &mut self.sink {
                        sink.note_unoffered();
                    }
                    self.failed(path, fault);
                }
                WalkEvent::Skipped(text) => self.warn(text),
                WalkEvent::Present(paths) => self.say_to_sink(Message::Present { paths })?,
                WalkEvent::Excluded(names) => self.excluded = names,
            }
            self.actions.push_back(Action::WalkOn);
        }
        Ok(())
    }

    /// The peer has been offered this: only the source's own ledger learns it now.
    pub(super) fn offered_before(&mut self, found: Vec<Found>) -> Result<(), Fault> {
        let offer = self.source.as_mut().expect("a walk is the source's").offer(found)?;
        self.note_names(&offer);
        self.actions.push_back(Action::WalkOn);
        Ok(())
    }

    fn note_names(&mut self, offer: &Message) {
        if let Message::Offer { first, entries } = offer {
            self.twins.note_offer(*first, entries);
        }
    }

    fn end_walk(&mut self) -> Result<(), Fault> {
        if self.walk != Walk::Over {
            return Ok(());
        }
        self.walk = Walk::Told;
        let source = self.source.as_mut().expect("a walk is the source's");
        let end = source.end_walk();
        self.say_to_sink(end)
    }

    pub(super) fn failed(&mut self, path: Vec<u8>, fault: Fault) {
        self.done.failed += 1;
        self.not_done(path, fault);
    }

    /// The same of what is no file.
    pub(super) fn not_done(&mut self, path: Vec<u8>, fault: Fault) {
        let class = match fault.class {
            class @ (Class::SourceChanged | Class::Corrupt) => class,
            _ => Class::SomeFailed,
        };
        // Of several classes the least expected one counts: a wrong byte before a missing file.
        self.done.worst = self.done.worst.max(Some(class));
        let fault = self.of_its_host(fault);
        self.failed_last.clone_from(&fault.text);
        self.watch.tell(Notice::FileFailed { path, fault });
    }
}
