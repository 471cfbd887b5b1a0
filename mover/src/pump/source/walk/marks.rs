//! What is found out about an object before it is offered, and marked in its entry.

use crate::io::volume::READ_THROUGH;
use crate::pump::sink::compare::sum_of;
use crate::pump::source::names::hash_of;
use crate::pump::source::walk::{Found, Offers, Sums, WalkEvent};
use crate::wire::manifest::{Entry, EntryKind};

impl Offers<'_> {
    /// Hashes a file where unchanged ones are found by their hash. If it cannot be read, the error
    /// is reported when it is copied.
    pub(super) fn sum(&mut self, found: &mut Found) {
        if self.sums == Sums::Blake3
            && found.entry.kind == EntryKind::File
            && let Some(from) = &found.from
        {
            found.entry.sum = sum_of(&*from.volume, &from.path, || true).ok();
        }
    }

    /// Whether another source has offered this name. Folders of two sources become one.
    pub(super) fn is_repeated(&mut self, entry: &Entry) -> bool {
        let is_folder = matches!(entry.kind, EntryKind::Directory | EntryKind::Leave);
        let Some(taken) = self.taken.as_mut().filter(|_| !is_folder) else { return false };
        let is_repeated = !taken.insert(hash_of(&entry.path));
        if taken.len() as u64 * TAKEN_BYTES > self.settings.memory_bytes {
            self.taken = None;
            self.say(WalkEvent::Skipped(
                "to know the names of all sources takes more than --memory allows: a name that two \
                 of them have may be copied from either"
                    .into(),
            ));
        }
        is_repeated
    }

    /// A dry run opens what a run would read. Of a store that would be a request each.
    pub(super) fn try_to_open(&mut self, found: &mut Found) {
        if self.settings.dry_run
            && found.entry.kind == EntryKind::File
            && let Some(from) = &found.from
            && from.volume.store().is_none()
        {
            found.entry.unreadable = from.volume.open(&from.path, READ_THROUGH).is_err();
        }
    }
}

/// What a name takes in such a set, about.
const TAKEN_BYTES: u64 = 48;
