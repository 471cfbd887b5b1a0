//! A sink that makes a mirror: what has a name that it needs, and what it removes in the end.

use crate::io::volume::{Replace, Status, StatusKind, Volume};
use crate::pump::sink::differing::metadata_changes;
use crate::pump::sink::mirror::{Due, Mirror, Obstacles};
use crate::pump::sink::{SinkSide, Verdict};
use crate::wire::manifest::Entry;
use base::fault::{Class, Fault};
use base::owners::Owner;
use base::reason::{Change, Changes};
use base::settings::Delete;

impl SinkSide {
    /// Where this sink is asked for a mirror.
    fn obstacles(&self) -> Option<&Obstacles> {
        self.mirror.as_ref().and_then(Mirror::obstacles).map(|obstacles| &**obstacles)
    }

    /// The verdict on an object of another kind than what has its name here, where it is not
    /// wanted. `otherwise` is why, where nothing is removed for it.
    pub(super) fn judge_blocked(
        &mut self,
        (number, entry): (u64, &Entry),
        there: Status,
        otherwise: Fault,
    ) -> Option<Verdict> {
        let path = &entry.path[..];
        let Some(obstacles) = self.obstacles() else { return Some(Verdict::Refused(otherwise)) };
        if self.mirror.as_ref().is_some_and(|mirror| mirror.is_folder_of_source(path)) {
            let text = format!("{otherwise}; another source of this copy has it, too");
            return Some(Verdict::Refused(Fault::new(Class::Local, text)));
        }
        if let Err(fault) = obstacles.check(path, there.kind) {
            return Some(Verdict::Refused(fault));
        }
        self.blocked.insert(number);
        self.differing.push((number, Changes::of([Change::Kind])));
        None
    }

    /// Removes what has the name of a new folder and is none. False where that is not asked for.
    pub(super) fn clear_for_folder(&self, path: &[u8], kind: StatusKind) -> Result<bool, Fault> {
        match self.obstacles() {
            None => Ok(false),
            Some(obstacles) if self.settings.dry_run => obstacles.would_take(path).map(|()| true),
            Some(obstacles) => obstacles.take(path, kind).map(|()| true),
        }
    }

    /// In a dry run: tells what a run would remove for an object of another kind, where all of it
    /// may go.
    pub(super) fn would_clear(
        &mut self,
        (number, path): (u64, &[u8]),
        verdict: Verdict,
    ) -> Verdict {
        let is_blocked = self.blocked.remove(&number) && matches!(verdict, Verdict::Wanted);
        match self.obstacles().filter(|_| is_blocked).map(|it| it.would_remove(path)) {
            Some(Err(fault)) => Verdict::Refused(fault),
            Some(Ok(())) | None => verdict,
        }
    }

    /// Removes what has the name of an object that is made at once, or keeps it in the backup.
    pub(super) fn clear_for(&self, number: u64, path: &[u8]) -> Result<(), Fault> {
        let replaced = self.backup.as_ref().filter(|_| self.replace(number) != Replace::Never);
        replaced.map_or(Ok(()), |backup| backup.keep(path))?;
        match self.obstacles().filter(|_| self.blocked.contains(&number)) {
            Some(obstacles) => obstacles.remove(path),
            None => replaced.map_or(Ok(()), |backup| backup.let_go(path)),
        }
    }

    /// In a mirror what is unchanged has its source's mode and owner, too.
    pub(super) fn mirror_metadata(
        &mut self,
        volume: &dyn Volume,
        (number, entry): (u64, &Entry),
        there: Status,
    ) -> Result<(), Fault> {
        if self.mirror.is_none() || !self.settings.preserve {
            return Ok(());
        }
        let meta = self.metadata(entry);
        let changes = metadata_changes(&meta, &there);
        if changes.is_empty() {
            return Ok(());
        }
        self.differing.push((number, changes));
        if self.settings.dry_run {
            return Ok(());
        }
        let owner = if changes.has(Change::Owner) { meta.owner } else { Owner::default() };
        // A change of the owner clears bits of the mode.
        let mode = (there.kind == StatusKind::File).then_some(meta.mode);
        volume.set_owner(&entry.path, owner, mode)
    }

    pub(super) fn note_lacking(&mut self) {
        self.mirror.iter_mut().for_each(Mirror::note_lacking);
    }

    /// Names that the source has and does not offer.
    pub(crate) fn note_present(&mut self, paths: &[Vec<u8>]) -> Result<(), Fault> {
        match &mut self.mirror {
            Some(mirror) => mirror.note_present(paths),
            None if self.settings.delete == Delete::Off => {
                return Err(Fault::peer("the peer told names that nobody asked for"));
            }
            None => {}
        }
        Ok(())
    }

    /// What a mirror does once all has arrived. It is asked once.
    pub(crate) fn mirror_due(&mut self) -> Option<Due> {
        if !self.is_settled() {
            return None;
        }
        self.mirror.as_mut().and_then(Mirror::due)
    }

    /// Nothing more is removed.
    pub(crate) fn end_mirror(&mut self) {
        self.mirror.iter_mut().for_each(Mirror::end);
    }

    /// What was removed for objects of another kind, and not told yet.
    pub(crate) fn take_cleared(&mut self) -> Vec<Vec<u8>> {
        self.obstacles().map(Obstacles::take_removed).unwrap_or_default()
    }
}
