//! The folders of a destination. New ones are for their owner alone until everything is in them,
//! and become like their sources then, also where another run completes what one began. Existing
//! ones are opened to their owner for as long as files are put there.

use std::collections::{BTreeMap, BTreeSet};

use crate::io::system;
use crate::io::volume::{Durable, Metadata, Status, StatusKind, Volume, show};
use crate::pump::sink::afterwards::Ended;
use crate::pump::sink::finisher::folder;
use crate::pump::sink::journal::PriorRuns;
use crate::pump::sink::{OWNER_BITS, SinkSide, Target, Verdict};
use crate::wire::manifest::{Entry, EntryKind};
use base::fault::{Class, Fault};
use base::settings::Fsync;

#[derive(Debug, Default)]
pub(super) struct Folders {
    /// Existing folders that their owner may write in only while files are put there, and their
    /// modes.
    loosened: BTreeMap<Vec<u8>, u32>,
    /// Folders that earlier runs may have created and not left.
    begun: BTreeSet<Vec<u8>>,
    /// Folders that this transfer has created and not left. Only where modes are not preserved:
    /// else all get their source's mode, whoever created them.
    made: BTreeSet<Vec<u8>>,
    /// Folders that this transfer has created and that were offered once: nothing is in them but
    /// what it puts there.
    empty: BTreeSet<Vec<u8>>,
    /// This transfer has created the root, and not left it.
    root_is_new: bool,
}

impl Folders {
    pub(super) fn new(target: &Target, prior_runs: Option<&PriorRuns>) -> Folders {
        let begun = prior_runs.into_iter().flat_map(PriorRuns::folders).cloned().collect();
        let root_is_new = target.is_new() || prior_runs.is_some_and(PriorRuns::made_root);
        Folders { begun, root_is_new, ..Folders::default() }
    }

    /// True where nothing can have this name yet.
    pub(super) fn is_free(&self, path: &[u8]) -> bool {
        self.empty.contains(folder(path))
    }

    pub(super) fn root_is_new(&self) -> bool {
        self.root_is_new
    }
}

impl SinkSide {
    pub(super) fn judge_directory(
        &mut self,
        volume: &dyn Volume,
        entry: &Entry,
        there: Option<Status>,
    ) -> Result<Verdict, Fault> {
        let path = &entry.path;
        match there {
            Some(Status { kind: StatusKind::Directory, mode, .. }) => {
                self.folders.empty.remove(path);
                let was_begun = self.folders.begun.remove(path);
                // One with another mode has been left, or somebody has changed it.
                if was_begun && mode & 0o777 == OWNER_BITS && !self.settings.preserve {
                    self.folders.made.insert(path.clone());
                } else if was_begun {
                    self.prior_runs.iter_mut().for_each(|prior_runs| prior_runs.left(path));
                }
                if mode & OWNER_BITS != OWNER_BITS {
                    volume.set_directory_mode(path, mode | OWNER_BITS)?;
                    self.folders.loosened.insert(path.clone(), mode);
                }
            }
            Some(Status { kind, .. }) if !self.clear_for_folder(path, kind)? => {
                return Ok(Verdict::Refused(no_directory(volume, entry)));
            }
            Some(_) | None => {
                if !self.settings.preserve {
                    self.prior_runs
                        .iter_mut()
                        .try_for_each(|prior_runs| prior_runs.making(path, 0))?;
                    self.folders.made.insert(path.clone());
                }
                volume.make_directory(path, OWNER_BITS)?;
                self.folders.empty.insert(path.clone());
                self.renew(path);
            }
        }
        Ok(Verdict::Done)
    }

    /// True for a folder that stays as it was found.
    pub(super) fn stays(&self, entry: &Entry) -> bool {
        let is_new = || match &entry.path[..] {
            b"" => self.folders.root_is_new,
            path => self.folders.made.contains(path),
        };
        entry.kind == EntryKind::Leave && !self.settings.preserve && !is_new()
    }

    /// A folder got its source's mode and time, or failed to. In that case an existing one gets its
    /// old mode back.
    pub(super) fn left(&mut self, path: &[u8], end: Ended) {
        let folders = &mut self.folders;
        folders.empty.remove(path);
        if end == Ended::Well
            && (folders.made.remove(path) || path.is_empty() && folders.root_is_new)
        {
            folders.root_is_new &= !path.is_empty();
            self.prior_runs.iter_mut().for_each(|prior_runs| prior_runs.left(path));
        }
        let (Some(mode), Some(volume)) = (folders.loosened.remove(path), self.target.volume())
        else {
            return;
        };
        if !self.settings.preserve || end == Ended::Failed {
            let _ = volume.set_directory_mode(path, mode);
        }
    }

    /// A new root without a source of its own gets the mode of any new folder.
    pub(super) fn leave_root(&mut self) -> Result<(), Fault> {
        let Some(volume) = self.target.volume().filter(|_| self.folders.root_is_new) else {
            return Ok(());
        };
        let durable = match self.settings.fsync {
            Fsync::File => Durable::Now,
            Fsync::Off => Durable::Later,
        };
        let meta = Metadata { mode: 0o777 & !system::umask(), ..Metadata::default() };
        let left = volume.leave_directory(b"", Some(&meta), durable);
        left.given?;
        self.left(b"", Ended::Well);
        left.synced
    }

    /// Restores the modes of folders, where the transfer ends before they are left.
    pub(crate) fn restore_modes(&self) {
        let Some(volume) = self.target.volume() else { return };
        for (path, mode) in &self.folders.loosened {
            let _ = volume.set_directory_mode(path, *mode);
        }
    }
}

pub(super) fn no_directory(volume: &dyn Volume, entry: &Entry) -> Fault {
    let name = show(volume, &entry.path);
    Fault::new(Class::Local, format!("'{name}' is no directory: remove it first"))
}
