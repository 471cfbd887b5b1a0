//! The folder that what a copy replaces or removes is moved to, by the same relative name.
//!
//! A file that is replaced gets its second name there first, so that it has a name at any moment;
//! then the new one takes its old name.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::io::volume::{Kept, Replace, StatusKind, Volume, show};
use crate::pump::sink::Target;
use crate::pump::sink::finisher::folder;
use base::fault::{Class, Fault};
use base::settings::{Fsync, Settings};

/// Where a sink keeps what it replaces or removes.
#[derive(Debug)]
pub struct Backup {
    volume: Arc<dyn Volume>,
    path: Vec<u8>,
    fsync: Fsync,
    folders: Mutex<Folders>,
}

/// Folders below it, by their names at the destination.
#[derive(Debug, Default)]
struct Folders {
    there: BTreeSet<Vec<u8>>,
    /// By their names in the backup: the names in them may not last.
    unsynced: BTreeSet<Vec<u8>>,
}

impl Backup {
    pub fn of(target: &Target, settings: &Settings) -> Option<Arc<Backup>> {
        let (volume, path) = target.volume().zip(settings.backup_dir.as_ref())?;
        Some(Arc::new(Backup {
            volume: volume.clone(),
            path: path.as_bytes().to_vec(),
            fsync: settings.fsync,
            folders: Mutex::default(),
        }))
    }

    /// True for the folder itself and what is in it.
    pub fn has(&self, path: &[u8]) -> bool {
        let rest = path.strip_prefix(&self.path[..]);
        rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    }

    pub(crate) fn refusal(&self, path: &[u8]) -> Fault {
        let text = format!(
            "'{}' is the folder of --backup-dir, or in it: leave it out by --exclude, or name \
             another folder for backups",
            show(&*self.volume, path)
        );
        Fault::new(Class::Local, text)
    }

    /// Before a new file takes this name: what has it gets another one here. A folder does not.
    pub(crate) fn keep(&self, path: &[u8]) -> Result<(), Fault> {
        let Some(kept) = self.place_for(path)? else { return Ok(()) };
        self.volume.link_aside(path, &kept).map(drop)
    }

    /// Right before a new file takes this name: moves what could not have two names.
    pub(crate) fn let_go(&self, path: &[u8]) -> Result<(), Fault> {
        match self.place_for(path)? {
            Some(kept) if self.volume.link_aside(path, &kept)? == Kept::Not => {
                self.volume.rename(path, &kept, Replace::Allowed)
            }
            _ => Ok(()),
        }
    }

    /// Moves what has this name, and is no folder, to the backup.
    pub(crate) fn take(&self, path: &[u8], kind: StatusKind) -> Result<(), Fault> {
        match self.place_for(path)? {
            Some(kept) => self.volume.move_aside(path, kind, &kept),
            // It has its other name already, or nothing has this one.
            None => self.volume.clear(path, kind),
        }
    }

    /// Puts the names in the backup on stable storage.
    pub(crate) fn sync(&self) -> Result<(), Fault> {
        let unsynced = std::mem::take(&mut self.lock().unsynced);
        match self.fsync {
            Fsync::Off => Ok(()),
            Fsync::File => unsynced.iter().try_for_each(|folder| {
                let inside = [&folder[..], b"/."].concat();
                self.volume.sync_directory(if folder.is_empty() { b"." } else { &inside })
            }),
        }
    }

    /// The free name for what has this name; `None` where that is nothing, a folder, or there
    /// already. An older backup of that name is removed.
    fn place_for(&self, path: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let volume = &*self.volume;
        let there = volume.status(path)?.filter(|there| there.kind != StatusKind::Directory);
        let Some(there) = there else { return Ok(None) };
        let around = folder(path);
        self.make_folders(around)?;
        let kept = join(&self.path, path);
        self.lock().unsynced.insert(folder(&kept).to_vec());
        match volume.status(&kept)? {
            None => Ok(Some(kept)),
            Some(older) if older.inode == there.inode => Ok(None),
            Some(older) if older.kind == StatusKind::Directory => Err(self.in_the_way(&kept)),
            Some(older) => volume.clear(&kept, older.kind).map(|()| Some(kept)),
        }
    }

    /// Makes the folder for what is in this folder of the destination.
    fn make_folders(&self, around: &[u8]) -> Result<(), Fault> {
        if self.lock().there.contains(around) {
            return Ok(());
        }
        let own = ends(&self.path).map(|path| (path.to_vec(), Vec::new()));
        let below = ends(around).map(|path| (join(&self.path, path), path.to_vec()));
        for (path, like) in own.chain(below) {
            match self.volume.status(&path)?.map(|there| there.kind) {
                Some(StatusKind::Directory) => {}
                Some(_) => return Err(self.in_the_way(&path)),
                None => {
                    self.volume.make_directory_like(&path, &like)?;
                    self.lock().unsynced.insert(folder(&path).to_vec());
                }
            }
        }
        self.lock().there.insert(around.to_vec());
        Ok(())
    }

    fn in_the_way(&self, path: &[u8]) -> Fault {
        let text = format!(
            "'{}' is in the way of a backup: it is a folder where a file was, or the reverse; \
             remove it, or name another folder for --backup-dir",
            show(&*self.volume, path)
        );
        Fault::new(Class::Local, text)
    }

    fn lock(&self) -> MutexGuard<'_, Folders> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `a`, `a/b` and `a/b/c` of the last one; nothing of an empty path.
fn ends(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let whole = (!path.is_empty()).then_some(path.len());
    slashes.chain(whole).map(|end| &path[..end])
}

fn join(folder: &[u8], path: &[u8]) -> Vec<u8> {
    [folder, b"/", path].concat()
}
