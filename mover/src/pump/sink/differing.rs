//! In what an object differs from what has its name here: the reason why it is copied.

use crate::io::volume::{Metadata, Status, StatusKind, Volume};
use crate::pump::sink::SinkSide;
use crate::pump::source::walk::{has_time, mtime_of};
use crate::wire::manifest::{Entry, EntryKind};
use crate::wire::message::{FINISHED_MAX, Message};
use base::reason::{Change, Changes};
use base::settings::SkipUnchanged;

impl SinkSide {
    /// Notes in what an object differs that replaces what is here.
    pub(super) fn note_changes(
        &mut self,
        volume: &dyn Volume,
        (number, entry): (u64, &Entry),
        there: &Status,
    ) {
        let is_link = entry.kind == EntryKind::Link;
        let changes = match (is_link, there.kind == StatusKind::Link) {
            (true, true) => Changes::of([Change::Contents]), // its target
            (false, false) => self.changes_of_file(volume, entry, there),
            _ => Changes::of([Change::Kind]),
        };
        self.differing.push((number, changes));
    }

    fn changes_of_file(&self, volume: &dyn Volume, entry: &Entry, there: &Status) -> Changes {
        let Some(bytes) = entry.file_bytes() else { return Changes::of([Change::Contents]) };
        let has_other_size = bytes != there.size;
        let is_checked = self.settings.skip_unchanged == SkipUnchanged::Checksum;
        let has_other_time = has_time(entry) && !mtime_of(entry).is_kept_as(there.mtime);
        let found = [
            has_other_size.then_some(Change::Size),
            (has_other_time && !is_checked).then_some(Change::Time),
            (is_checked && !has_other_size).then_some(Change::Contents),
        ];
        let changes = Changes::of(found.into_iter().flatten());
        // An object of a store need not have a mode.
        match self.settings.preserve && volume.store().is_none() {
            true => changes.and(metadata_changes(&self.metadata(entry), there)),
            false => changes,
        }
    }

    /// What was noted, for the source.
    pub(super) fn take_differing(&mut self) -> Vec<Message> {
        let differing = std::mem::take(&mut self.differing);
        let tell = |some: &[(u64, Changes)]| Message::Differing { objects: some.to_vec() };
        differing.chunks(FINISHED_MAX).map(tell).collect()
    }
}

/// What a file or a link gets that has its bytes already.
pub(super) fn metadata_changes(meta: &Metadata, there: &Status) -> Changes {
    let (user, group) = there.owner;
    let is_others = meta.owner.user.is_some_and(|id| id != user)
        || meta.owner.group.is_some_and(|id| id != group);
    let has_other_mode = there.kind == StatusKind::File && there.mode != meta.mode;
    let found = [has_other_mode.then_some(Change::Mode), is_others.then_some(Change::Owner)];
    Changes::of(found.into_iter().flatten())
}
