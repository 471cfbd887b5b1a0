//! Opens names in their folder: through no link at the end, and without a trace where only we use
//! them.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::PoisonError;

use crate::io::beneath::{self, Links};
use crate::io::call::Call;
use crate::io::disk::Disk;
use crate::io::disk::calls::{is_ours_alone, timestamps_of};
use crate::io::system;
use crate::io::volume::{Cache, Handle, READ_THROUGH, Volume, show};
use base::fault::{Class, Fault};
use rustix::fs::{Advice, AtFlags, Mode, OFlags};
use rustix::io::Errno;

impl Disk {
    /// The same tree, in which no name is reached through a symbolic link.
    pub fn through_no_link(self) -> Disk {
        Disk { links: Links::Refused, ..self }
    }

    /// The tree below a folder of this one, with the same rule on links.
    pub fn below(&self, path: &[u8]) -> Result<Disk, Errno> {
        let opened = |flags| beneath::open_folder(self.root.as_fd(), path, flags, Links::Refused);
        let below = Disk::opened(&self.path.join(OsStr::from_bytes(path)), opened)?;
        Ok(Disk { links: self.links, ..below })
    }

    /// From now on every folder is found by its name again, whatever has become of it.
    pub fn forget_folders(&self) {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner).clear();
        *self.cleared.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Does something with a name and restores the times of its directory: files that only we use
    /// leave no trace.
    pub(super) fn unseen<T>(&self, path: &[u8], work: impl FnOnce() -> T) -> T {
        let parent = self.parent(path).map(|(parent, _)| parent);
        let before = parent.as_ref().ok().and_then(|parent| rustix::fs::fstat(parent).ok());
        let done = work();
        if let (Ok(parent), Some(before)) = (&parent, before) {
            // Another user's directory keeps the time of the change.
            let _ = rustix::fs::futimens(parent, &timestamps_of(&before));
        }
        done
    }

    pub(super) fn open_in_parent(
        &self,
        path: &[u8],
        flags: OFlags,
        mode: u32,
    ) -> Result<OwnedFd, Errno> {
        let (parent, name) = self.parent(path)?;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(mode))
    }

    /// Drops what the page cache has of a file that has been synced, and reads past it: with direct
    /// I/O, else where the kernel says that nothing of it is left there. A file in memory is its
    /// own medium.
    pub(super) fn opened_past_cache(&self, path: &[u8]) -> Result<Handle, Fault> {
        let file = self.open(path, READ_THROUGH)?;
        if !self.waits() {
            return Ok(file);
        }
        let fault = |errno| self.fault(Call::Open, path, errno);
        rustix::fs::fadvise(file.fd(), 0, None, Advice::DontNeed).map_err(fault)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::DIRECT;
        match self.open_in_parent(path, flags, 0) {
            Ok(direct) => return Ok(Handle::new(direct)),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(fault(errno)),
        }
        match system::cached_bytes(file.fd()) {
            Some(0) => Ok(file),
            _ => {
                let text = format!(
                    "'{}': its file system has no direct I/O and keeps it in memory, so what the \
                     disk has of it cannot be read: leave out --verify disk",
                    show(self, path)
                );
                Err(Fault::new(Class::Local, text))
            }
        }
    }

    /// Opens with direct I/O where the file system supports it, else through the page cache.
    pub(super) fn open_cached(
        &self,
        path: &[u8],
        flags: OFlags,
        cache: Cache,
    ) -> Result<OwnedFd, Errno> {
        if cache == Cache::Around {
            match self.open_in_parent(path, flags | OFlags::DIRECT, 0o600) {
                Err(Errno::INVAL) => {}
                opened => return opened,
            }
            // The refused open may have created the file already.
            if flags.contains(OFlags::CREATE) {
                let flags = flags.difference(OFlags::EXCL);
                return self.open_in_parent(path, flags, 0o600);
            }
        }
        self.open_in_parent(path, flags, 0o600)
    }

    pub(super) fn is_there_and_not_ours(&self, path: &[u8]) -> bool {
        let found = self.parent(path).and_then(|(parent, name)| {
            rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)
        });
        found.is_ok_and(|stat| !is_ours_alone(&stat))
    }
}
