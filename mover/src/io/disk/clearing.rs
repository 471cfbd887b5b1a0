//! Lists folders and removes names in them, through no link on the way: what somebody replaces by
//! a link in the meantime leads nowhere. The folder keeps its times, and its mode.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, PoisonError};

use crate::io::beneath::{Folder, Links, is_own};
use crate::io::disk::Disk;
use crate::io::disk::calls::{chmod_path, status_from, timestamps_of};
use crate::io::volume::StatusKind;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;

impl Disk {
    /// A folder below the root, through no link. The last one is kept open: many names of one
    /// folder follow each other.
    fn folder_without_links(&self, path: &[u8]) -> Result<Arc<Folder>, Errno> {
        let mut last = self.cleared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, folder)) = &*last
            && known == path
        {
            return Ok(folder.clone());
        }
        let folder = Arc::new(self.folder(path, Links::Refused)?);
        *last = Some((path.to_vec(), folder.clone()));
        Ok(folder)
    }

    pub(super) fn list_names(
        &self,
        path: &[u8],
        take: &mut dyn FnMut(&[u8], StatusKind),
    ) -> Result<(), Errno> {
        let folder = match self.folder_without_links(path) {
            Err(Errno::NOENT) => return Ok(()),
            folder => folder?,
        };
        let opened = open_to_list(&folder)?;
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
        let mut entries = RawDir::new(&opened, &mut buffer[..]);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::RegularFile => StatusKind::File,
                FileType::Directory => StatusKind::Directory,
                FileType::Symlink => StatusKind::Link,
                FileType::Unknown => match kind_of(&folder, name) {
                    Err(Errno::NOENT) => continue,
                    kind => kind?,
                },
                _ => StatusKind::Special,
            };
            take(name, kind);
        }
        Ok(())
    }

    pub(super) fn clear_name(&self, path: &[u8], kind: StatusKind) -> Result<(), Errno> {
        let flags = match kind {
            StatusKind::Directory => AtFlags::REMOVEDIR,
            _ => AtFlags::empty(),
        };
        self.take_name(path, kind, |folder, name| rustix::fs::unlinkat(folder, name, flags))
    }

    /// Moves a name to another folder, whose own times change.
    pub(super) fn move_name(&self, path: &[u8], kind: StatusKind, to: &[u8]) -> Result<(), Errno> {
        let (parent, to) = self.parent(to)?;
        self.take_name(path, kind, |folder, name| rustix::fs::renameat(folder, name, &parent, to))
    }

    /// Does what takes a name from its folder. None that is there is no error.
    fn take_name(
        &self,
        path: &[u8],
        kind: StatusKind,
        take: impl Fn(&Folder, &OsStr) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let slash = path.iter().rposition(|byte| *byte == b'/');
        let (around, name) = match slash {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&b""[..], path),
        };
        let folder = self.folder_without_links(around)?;
        let is_way = matches!(kind, StatusKind::Directory | StatusKind::Link);
        if is_way {
            // Paths that were resolved through it lead elsewhere from now on.
            self.forget_folders();
        }
        let before = rustix::fs::fstat(&folder)?;
        let remove = || take(&folder, OsStr::from_bytes(name));
        let mode = before.st_mode & 0o7777;
        let removed = match remove() {
            Err(Errno::ACCESS) if is_own(&before) && mode & OWNER_BITS != OWNER_BITS => {
                chmod_path(folder.as_fd(), mode | OWNER_BITS)?;
                let removed = remove();
                chmod_path(folder.as_fd(), mode)?;
                removed
            }
            removed => removed,
        };
        if removed.is_ok() {
            // Another user's folder keeps the time of the change.
            let _ = rustix::fs::futimens(&folder, &timestamps_of(&before));
        }
        match removed {
            Err(Errno::NOENT) => Ok(()),
            removed => removed,
        }
    }
}

/// A descriptor of its own, as listing moves its place. A folder of ours that we may not read is
/// opened to us for the moment.
fn open_to_list(folder: &Folder) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(folder, ".", flags, Mode::empty());
    match open() {
        Err(Errno::ACCESS) => {
            let before = rustix::fs::fstat(folder)?;
            if !is_own(&before) {
                return Err(Errno::ACCESS);
            }
            let mode = before.st_mode & 0o7777;
            chmod_path(folder.as_fd(), mode | OWNER_BITS)?;
            let opened = open();
            chmod_path(folder.as_fd(), mode)?;
            opened
        }
        opened => opened,
    }
}

fn kind_of(folder: &Folder, name: &[u8]) -> Result<StatusKind, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let stat = rustix::fs::statat(folder, OsStr::from_bytes(name), flags)?;
    Ok(status_from(&stat).kind)
}

const BUFFER_BYTES: usize = 32 << 10;
const OWNER_BITS: u32 = 0o700;
