//! A transfer that makes a mirror: once all has arrived, the sink's finisher removes what the
//! source does not have, and whoever drives is told.

use crate::pump::sink::mirror::{Due, Step};
use crate::pump::transfer::{Action, Core, Work};
use crate::wire::message::Message;
use base::fault::Fault;
use base::job::Notice;
use base::limits::{OFFER_BYTES_MAX, OFFER_ENTRIES_MAX};
use base::settings::Delete;

impl Core {
    /// Begins to remove once all has arrived, and tells what was removed on the way.
    pub(super) fn mirror(&mut self) {
        let Some(sink) = &mut self.sink else { return };
        let cleared = sink.take_cleared();
        let due = sink.mirror_due();
        self.tell_deleted(cleared);
        match due {
            None => {}
            Some(Due::Remove(pass)) => self.actions.push_back(Action::Finish(Work::Remove(pass))),
            Some(Due::Nothing(why)) => {
                self.end_mirror();
                self.warn(why);
            }
            Some(Due::Refused(fault)) => {
                self.end_mirror();
                self.not_deleted(Vec::new(), fault);
            }
        }
    }

    /// The finisher has removed some, or would have in a dry run.
    pub(super) fn removed(&mut self, step: Step) -> Result<(), Fault> {
        let Step { removed, rest } = step;
        self.tell_deleted(removed.paths);
        for text in removed.warnings {
            self.warn(text);
        }
        let ends = removed.failed.iter().find(|(_, fault)| fault.ends_transfer()).cloned();
        for (path, fault) in removed.failed {
            self.not_deleted(path, fault);
        }
        if let Some((_, fault)) = ends {
            return Err(fault);
        }
        match rest {
            Some(pass) => self.actions.push_back(Action::Finish(Work::Remove(pass))),
            None => self.end_mirror(),
        }
        Ok(())
    }

    fn end_mirror(&mut self) {
        self.sink.iter_mut().for_each(|sink| sink.end_mirror());
    }

    /// Tells the user, or the side that drives, in messages of a limited length.
    fn tell_deleted(&mut self, paths: Vec<Vec<u8>>) {
        if self.drives() {
            return self.note_deleted(paths);
        }
        let (mut some, mut bytes) = (Vec::new(), 0);
        for path in paths {
            if some.len() == OFFER_ENTRIES_MAX || bytes + path.len() > OFFER_BYTES_MAX {
                self.say(Message::Deleted { paths: std::mem::take(&mut some) });
                bytes = 0;
            }
            bytes += path.len();
            some.push(path);
        }
        if !some.is_empty() {
            self.say(Message::Deleted { paths: some });
        }
    }

    fn not_deleted(&mut self, path: Vec<u8>, fault: Fault) {
        match self.drives() {
            true => self.note_not_deleted(path, fault),
            false => self.say(Message::NotDeleted { path, fault }),
        }
    }

    /// Without a path nothing is deleted at all, and no file is missing.
    fn note_not_deleted(&mut self, path: Vec<u8>, fault: Fault) {
        match path.is_empty() {
            true => self.not_done(path, fault),
            false => self.failed(path, fault),
        }
    }

    /// This side drives: its user is told.
    fn note_deleted(&mut self, paths: Vec<Vec<u8>>) {
        self.done.deleted += paths.len() as u64;
        for path in paths {
            self.watch.tell(match self.settings.dry_run {
                true => Notice::WouldDelete { path },
                false => Notice::Deleted { path },
            });
        }
    }

    /// The far sink has removed something, or has not.
    pub(super) fn hear_deleted(&mut self, message: Message) -> Result<(), Fault> {
        if self.settings.delete == Delete::Off {
            return Err(Fault::peer("the far side deletes, and nobody asked it to"));
        }
        match message {
            Message::Deleted { paths } => {
                self.note_deleted(paths);
                Ok(())
            }
            Message::NotDeleted { path, fault } => {
                self.note_not_deleted(path, fault.from_other_side());
                Ok(())
            }
            other => Err(Fault::peer(format!("{} is no message of a mirror", other.name()))),
        }
    }
}
