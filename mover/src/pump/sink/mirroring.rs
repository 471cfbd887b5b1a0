//! A sink that makes a mirror: what has a name that it needs, and what it removes in the end.

use crate::io::volume::{Replace, Status, StatusKind, Volume};
use crate::pump::sink::mirror::{Due, Mirror, Obstacles};
use crate::pump::sink::{SinkSide, Verdict};
use crate::wire::manifest::Entry;
use base::fault::{Class, Fault};
use base::owners::Owner;
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
        (number, path): (u64, &[u8]),
        there: Status,
        otherwise: Fault,
    ) -> Option<Verdict> {
        let Some(obstacles) = self.obstacles() else { return Some(Verdict::Refused(otherwise)) };
        if self.mirror.as_ref().is_some_and(|mirror| mirror.is_folder_of_source(path)) {
            let text = format!("{otherwise}; another source of this copy has it, too");
            return Some(Verdict::Refused(Fault::new(Class::Local, text)));
        }
        if let Err(fault) = obstacles.check(path, there.kind) {
            return Some(Verdict::Refused(fault));
        }
        self.blocked.insert(number);
        None
    }

    /// Removes what has the name of a new folder and is none. False where that is not asked for.
    pub(super) fn clear_for_folder(
        &self,
        volume: &dyn Volume,
        path: &[u8],
        kind: StatusKind,
    ) -> Result<bool, Fault> {
        match self.obstacles() {
            None => Ok(false),
            Some(_) if self.settings.dry_run => Ok(true),
            Some(obstacles) => obstacles.take(volume, path, kind).map(|()| true),
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
        &self,
        volume: &dyn Volume,
        entry: &Entry,
        there: Status,
    ) -> Result<(), Fault> {
        let is_asked = self.mirror.is_some() && self.settings.preserve && !self.settings.dry_run;
        if !is_asked {
            return Ok(());
        }
        let meta = self.metadata(entry);
        let (user, group) = there.owner;
        let is_others = meta.owner.user.is_some_and(|id| id != user)
            || meta.owner.group.is_some_and(|id| id != group);
        // A change of the owner clears bits of the mode.
        let mode = match there.kind {
            StatusKind::File if is_others || there.mode != meta.mode => Some(meta.mode),
            _ => None,
        };
        let owner = if is_others { meta.owner } else { Owner::default() };
        match is_others || mode.is_some() {
            true => volume.set_owner(&entry.path, owner, mode),
            false => Ok(()),
        }
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
