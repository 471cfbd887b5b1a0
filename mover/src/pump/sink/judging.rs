//! What is done with an object that is offered: wanted, here already, or refused.

use crate::io::disk::{exists, special};
use crate::io::volume::{Mtime, Status, StatusKind, Volume, show};
use crate::pump::sink::clean::is_ours;
use crate::pump::sink::folders::no_directory;
use crate::pump::sink::journal::key_of;
use crate::pump::sink::places::{is_place, is_same_file};
use crate::pump::sink::resume::free_temporary;
use crate::pump::sink::target::Target;
use crate::pump::sink::{SinkSide, Verdict};
use crate::pump::source::walk::{has_time, mtime_of};
use crate::wire::manifest::{Entry, EntryKind};
use base::fault::{Class, Fault};
use base::limits::TWINS_MAX;
use base::reason::Changes;
use base::settings::{Fsync, Overwrite, SkipUnchanged};

impl SinkSide {
    /// What is done with an object, or what a dry run says of it. What is in a folder that could
    /// not be made is refused for that reason.
    pub(super) fn verdict(&mut self, number: u64, entry: &Entry) -> Result<Verdict, Fault> {
        if let Some(verdict) = self.in_unmade(entry) {
            return Ok(verdict);
        }
        if entry.repeated {
            let text = format!(
                "'{}' is the name of a file of another source of this command, too: copy one of \
                 them to another folder",
                entry.path.escape_ascii()
            );
            return Ok(Verdict::Refused(Fault::new(Class::Local, text)));
        }
        let verdict = match self.settings.dry_run {
            true => self.judge_dry_run(number, entry).map(|verdict| {
                let verdict = match self.settings.compare {
                    true => verdict,
                    false => readable(verdict, entry),
                };
                self.would_clear((number, &entry.path), verdict)
            }),
            false => self.judge(number, entry),
        };
        let has_failed = matches!(verdict, Ok(Verdict::Refused(_)) | Err(_));
        if has_failed && entry.kind == EntryKind::Directory && self.unmade.len() < UNMADE_MAX {
            let status = self.target.volume().map(|volume| volume.status(&entry.path));
            let is_there = |there: Status| there.kind == StatusKind::Directory;
            if !status.is_some_and(|there| there.is_ok_and(|there| there.is_some_and(is_there))) {
                self.unmade.insert(entry.path.clone());
            }
        }
        verdict
    }

    fn in_unmade(&mut self, entry: &Entry) -> Option<Verdict> {
        if self.unmade.is_empty() {
            return None;
        }
        // It has been reported.
        if entry.kind == EntryKind::Leave && self.unmade.remove(&entry.path) {
            return Some(Verdict::Done);
        }
        let slashes = entry.path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut above = slashes.map(|(at, _)| &entry.path[..at]);
        let folder = above.find(|folder| self.unmade.contains(*folder))?;
        if entry.kind == EntryKind::Leave {
            return Some(Verdict::Done);
        }
        let volume = self.target.volume()?;
        let [path, folder] = [&entry.path, folder].map(|path| show(&**volume, path));
        let text = format!("'{path}' is not copied: its folder '{folder}' could not be made");
        Some(Verdict::Refused(Fault::new(Class::Local, text)))
    }

    pub(super) fn judge(&mut self, number: u64, entry: &Entry) -> Result<Verdict, Fault> {
        let Target::Tree { volume, root, .. } = &self.target else {
            return Ok(match entry.kind {
                EntryKind::Directory | EntryKind::Link => Verdict::Done,
                kind if is_place(kind) => Verdict::Done,
                _ => Verdict::Wanted,
            });
        };
        let (volume, root_is_kept) = (volume.clone(), root.is_kept);
        if let Some(refusal) = self.refused(&*volume, entry) {
            return Ok(Verdict::Refused(refusal));
        }
        if entry.kind == EntryKind::Leave && entry.path.is_empty() {
            let like_source = self.settings.archive || self.folders.root_is_new();
            return Ok(match like_source && !root_is_kept {
                true => Verdict::Wanted,
                false => Verdict::Done,
            });
        }
        // In a folder of this run the rename would notice what somebody else put there.
        let status = match entry.kind == EntryKind::File && self.folders.is_free(&entry.path) {
            true => None,
            false => volume.status(&entry.path)?,
        };
        match entry.kind {
            EntryKind::Directory => return self.judge_directory(&*volume, entry, status),
            // One that could not be created has been reported already.
            EntryKind::Leave => {
                let is_there = status.is_some_and(|there| there.kind == StatusKind::Directory);
                return Ok(if is_there { Verdict::Wanted } else { Verdict::Done });
            }
            EntryKind::HardLink => {
                if let Some(verdict) = self.judge_name(&*volume, (number, entry))? {
                    return Ok(verdict);
                }
            }
            _ => {}
        }
        if let Some(status) = status
            && let Some(verdict) = self.judge_existing(&*volume, (number, entry), status)?
        {
            return Ok(verdict);
        }
        if entry.kind == EntryKind::Link {
            let temporary = free_temporary(&*volume, &self.tag, &entry.path);
            volume.remove(&temporary)?;
            let made = volume
                .make_link(&temporary, &entry.link_target, &self.metadata(entry))
                .and_then(|()| self.clear_for(number, &entry.path))
                .and_then(|()| volume.rename(&temporary, &entry.path, self.replace(number)));
            self.blocked.remove(&number);
            if let Err(fault) = made {
                let _ = volume.remove(&temporary);
                return Err(fault.renamed(&temporary, &entry.path));
            }
            self.renew(&entry.path);
            return Ok(Verdict::Done);
        }
        let refusal = volume
            .store()
            .filter(|_| entry.kind == EntryKind::File)
            .and_then(|store| store.refusal(&entry.path, entry.size, self.settings.request_bytes));
        Ok(refusal.map_or(Verdict::Wanted, Verdict::Refused))
    }

    /// The verdict on another name of a file, where that follows from the file's.
    fn judge_name(
        &mut self,
        volume: &dyn Volume,
        (number, entry): (u64, &Entry),
    ) -> Result<Option<Verdict>, Fault> {
        if self.afterwards.has_failed(entry.twin) {
            return Ok(Some(Verdict::Refused(self.twin_failed(volume, entry))));
        }
        if !is_same_file(volume, &entry.path, &entry.link_target)? {
            return Ok(None);
        }
        // It is in its place already, unless the file gets new bytes, and so is another one soon.
        Ok(Some(match self.settings.skip_unchanged {
            _ if self.renamed.contains(&entry.twin) || self.renamed.len() >= TWINS_MAX => {
                if let Some(there) = volume.status(&entry.path)? {
                    self.note_changes(volume, (number, entry), &there);
                }
                Verdict::Wanted
            }
            SkipUnchanged::No => Verdict::Held(None),
            SkipUnchanged::Times | SkipUnchanged::Checksum => Verdict::Kept,
        }))
    }

    fn twin_failed(&self, volume: &dyn Volume, entry: &Entry) -> Fault {
        twin_failed(&show(volume, &entry.path), &show(volume, &entry.link_target))
    }

    fn refused(&mut self, volume: &dyn Volume, entry: &Entry) -> Option<Fault> {
        if is_ours(&entry.path) {
            let text = format!(
                "'{}' has a name that datapump keeps for what is not complete: rename it, or \
                 leave it out",
                show(volume, &entry.path)
            );
            return Some(Fault::new(Class::Local, text));
        }
        let backup = self.backup.as_ref().filter(|backup| backup.has(&entry.path));
        let of_backup = backup.map(|backup| backup.refusal(&entry.path));
        let changed = of_backup.or_else(|| self.expected.changed(entry));
        changed.or_else(|| self.folding.as_mut()?.clash(volume, entry))
    }

    /// The verdict on an object whose name exists already, where it is not wanted.
    pub(super) fn judge_existing(
        &mut self,
        volume: &dyn Volume,
        (number, entry): (u64, &Entry),
        status: Status,
    ) -> Result<Option<Verdict>, Fault> {
        if let Some(verdict) = self.judge_done(volume, (number, entry), &status)? {
            return Ok(Some(verdict));
        }
        if status.kind == StatusKind::Directory {
            let text = format!("'{}' is a directory: remove it first", show(volume, &entry.path));
            let fault = Fault::new(Class::Local, text);
            return Ok(self.judge_blocked((number, entry), status, fault));
        }
        if status.kind == StatusKind::Special {
            let fault = special(volume, &entry.path);
            return Ok(self.judge_blocked((number, entry), status, fault));
        }
        if self.is_unchanged((number, entry), status) {
            self.mirror_metadata(volume, (number, entry), status)?;
            return Ok(Some(Verdict::Kept));
        }
        let verdict = match self.settings.overwrite {
            Overwrite::Never if self.may_be_ours(volume, entry, status) => None,
            Overwrite::Never => Some(Verdict::Refused(exists(volume, &entry.path))),
            Overwrite::Older if has_time(entry) && self.may_stay(mtime_of(entry), status.mtime) => {
                Some(Verdict::Kept)
            }
            Overwrite::Older | Overwrite::Always => None,
        };
        if verdict.is_none() {
            self.note_changes(volume, (number, entry), &status);
        }
        Ok(verdict)
    }

    /// What is there stays with `--overwrite older`: it is newer, or as old. Of what is as old,
    /// `--skip-unchanged` has kept what is equal, and the rest differs: that is replaced.
    fn may_stay(&self, source: Mtime, there: Mtime) -> bool {
        let differs = self.settings.skip_unchanged != SkipUnchanged::No;
        is_no_newer(source, there) && !(differs && source.is_kept_as(there))
    }

    /// A small object of a store has its name as soon as it is written, before a journal has it. An
    /// earlier run may have written one of this length: the store compares its bytes when it is put
    /// again.
    fn may_be_ours(&self, volume: &dyn Volume, entry: &Entry, there: Status) -> bool {
        let again = self.prior_runs.as_ref().is_some_and(|prior_runs| prior_runs.is_again());
        let is_small = entry.size <= u64::from(self.settings.request_bytes);
        volume.store().is_some()
            && again
            && is_small
            && !self.settings.fresh
            && entry.kind == EntryKind::File
            && (there.kind, there.size) == (StatusKind::File, entry.size)
    }

    /// Files that an earlier run made and nobody has changed since; and links that exist.
    pub(super) fn judge_done(
        &mut self,
        volume: &dyn Volume,
        (number, entry): (u64, &Entry),
        there: &Status,
    ) -> Result<Option<Verdict>, Fault> {
        if entry.kind == EntryKind::Link {
            let same = volume.read_link(&entry.path)?.as_ref() == Some(&entry.link_target);
            if same {
                self.mirror_metadata(volume, (number, entry), *there)?;
            }
            let verdict = match self.settings.skip_unchanged {
                SkipUnchanged::No => Verdict::Done,
                SkipUnchanged::Times | SkipUnchanged::Checksum => Verdict::Kept,
            };
            return Ok(same.then_some(verdict));
        }
        let Some(prior_runs) = self.prior_runs.as_ref().filter(|prior_runs| !prior_runs.is_empty())
        else {
            return Ok(None);
        };
        if entry.kind != EntryKind::File || there.kind != StatusKind::File {
            return Ok(None);
        }
        for fsync in [Fsync::File, Fsync::Off] {
            let key = key_of(&entry.path, entry.size, mtime_of(entry), there, fsync);
            if let Some(made) = prior_runs.done(&key)? {
                // A digest of another kind is none that this run could report.
                let sum = made.filter(|(kind, _)| *kind == self.settings.digest);
                return Ok(Some(Verdict::Held(sum.map(|(_, sum)| sum))));
            }
        }
        Ok(None)
    }

    pub(super) fn is_unchanged(&mut self, (number, entry): (u64, &Entry), status: Status) -> bool {
        let Some(bytes) = entry.file_bytes() else { return false };
        match self.settings.skip_unchanged {
            SkipUnchanged::No => false,
            SkipUnchanged::Times => {
                (status.kind, status.size) == (StatusKind::File, bytes)
                    && mtime_of(entry).is_kept_as(status.mtime)
            }
            SkipUnchanged::Checksum => self.same.remove(&number),
        }
    }

    /// What would happen to an object: looks, and changes nothing. What an earlier run completed
    /// is kept.
    pub(super) fn judge_dry_run(&mut self, number: u64, entry: &Entry) -> Result<Verdict, Fault> {
        let (Target::Tree { volume, .. } | Target::Absent { volume }) = &self.target else {
            return Ok(Verdict::Wanted);
        };
        let volume = volume.clone();
        if let Some(refusal) = self.refused(&*volume, entry) {
            return Ok(Verdict::Refused(refusal));
        }
        if entry.kind == EntryKind::HardLink && self.afterwards.has_failed(entry.twin) {
            return Ok(Verdict::Refused(self.twin_failed(&*volume, entry)));
        }
        if matches!(self.target, Target::Absent { .. }) {
            return Ok(Verdict::Wanted);
        }
        if entry.kind == EntryKind::Leave {
            return Ok(Verdict::Done);
        }
        if self.dry_folder.as_ref().is_some_and(|folder| entry.path.starts_with(folder)) {
            return Ok(Verdict::Wanted);
        }
        if entry.kind == EntryKind::HardLink
            && let Some(verdict) = self.judge_name(&*volume, (number, entry))?
        {
            return Ok(verdict);
        }
        Ok(match (entry.kind, volume.status(&entry.path)?) {
            (_, None) => Verdict::Wanted,
            (EntryKind::Directory, Some(status)) if status.kind == StatusKind::Directory => {
                if self.settings.compare {
                    self.differing.push((number, Changes::NONE)); // it is no new one
                }
                Verdict::Wanted
            }
            (EntryKind::Directory, Some(status)) => {
                match self.clear_for_folder(&entry.path, status.kind)? {
                    true => {
                        self.dry_folder = Some([&entry.path[..], b"/"].concat());
                        Verdict::Wanted
                    }
                    false => Verdict::Refused(no_directory(&*volume, entry)),
                }
            }
            (_, Some(status)) => match self.judge_existing(&*volume, (number, entry), status)? {
                Some(Verdict::Held(_)) => Verdict::Kept,
                verdict => verdict.unwrap_or(Verdict::Wanted),
            },
        })
    }
}

/// As far as the file system there keeps times.
fn is_no_newer(source: Mtime, there: Mtime) -> bool {
    source <= there || source.is_kept_as(there)
}

/// Folders that are remembered as not made; below more than so many each object fails by itself.
const UNMADE_MAX: usize = 1 << 16;

/// What would be copied and cannot be read: a run finds that out when it opens the file.
fn readable(verdict: Verdict, entry: &Entry) -> Verdict {
    match verdict {
        Verdict::Wanted if entry.unreadable => {
            let text = format!("the source cannot open '{}'", entry.path.escape_ascii());
            Verdict::Refused(Fault::new(Class::Local, text))
        }
        verdict => verdict,
    }
}

/// Why a name is not given: the file that it would be another name of is not there.
pub(super) fn twin_failed(path: &str, twin: &str) -> Fault {
    let text =
        format!("'{path}' is another name of '{twin}', which was not copied: copy both again");
    Fault::new(Class::Local, text)
}
