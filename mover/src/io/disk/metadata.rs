//! What files and folders get besides bytes: owner, mode, time, attributes, durable names.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::PoisonError;

use crate::io::attributes::{self, What};
use crate::io::beneath::Folder;
use crate::io::disk::Disk;
use crate::io::disk::calls::{SET_ID_BITS, chmod_path, timestamps, umask};
use crate::io::volume::{Metadata, show};
use base::attributes::Attributes;
use base::owners::Owner;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

impl Disk {
    /// Puts the names in a folder on stable storage. A folder that may not be read cannot be
    /// synced; its whole file system is synced instead, through any file there.
    pub(super) fn sync_folder(&self, folder: &Folder, path: &[u8]) -> Result<(), Errno> {
        match folder.may_be_read {
            true => rustix::fs::fsync(&folder.fd),
            false => self.sync_around(folder, path),
        }
    }

    pub(super) fn sync_around(&self, folder: &Folder, path: &[u8]) -> Result<(), Errno> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::openat(&folder.fd, ".", flags, Mode::RUSR | Mode::WUSR) {
            Ok(unnamed) => rustix::fs::syncfs(unnamed),
            Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::IO)) => Err(errno),
            Err(errno) => {
                self.refuse(What::Names, path, errno);
                Ok(())
            }
        }
    }

    /// Sets the metadata of a folder, also of one whose mode denies its owner access.
    pub(super) fn give_folder(
        &self,
        folder: &Folder,
        path: &[u8],
        meta: &Metadata,
    ) -> Result<(), Errno> {
        let mut meta = meta.clone();
        if meta.mtime.is_none() {
            // A new folder inherits its group from the folder above, where the SGID bit says so.
            meta.mode |= rustix::fs::fstat(folder.as_fd())?.st_mode & Mode::SGID.bits();
        }
        let meta = &meta;
        if folder.may_be_read {
            return self.give_metadata(folder.as_fd(), path, meta);
        }
        chmod_path(folder.as_fd(), 0o700)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&folder.fd, ".", flags, Mode::empty())?;
        self.give_metadata(opened.as_fd(), path, meta)
    }

    /// Sets owner and mode, less the umask where nothing is preserved; where it is, time and
    /// attributes too. The owner is set first: a change of it clears bits of the mode.
    pub(super) fn give_metadata(
        &self,
        fd: BorrowedFd<'_>,
        path: &[u8],
        meta: &Metadata,
    ) -> Result<(), Errno> {
        let mut mode = meta.mode & if meta.mtime.is_some() { !0 } else { !umask() };
        if meta.owner.is_kept()
            && let Err(errno) = attributes::give_owner(fd, OsStr::new(""), meta.owner)
        {
            mode &= !SET_ID_BITS; // no program runs as somebody whom its source did not name
            self.refuse(What::Owner, path, errno);
        }
        if let Some(given) = meta.attributes.as_ref().filter(|_| meta.mtime.is_some()) {
            for refused in attributes::give(fd, given) {
                self.refuse(refused.what, path, refused.errno);
            }
        }
        rustix::fs::fchmod(fd, Mode::from_raw_mode(mode))?;
        meta.mtime.map_or(Ok(()), |mtime| rustix::fs::futimens(fd, &timestamps(mtime)))
    }

    /// Sets the attributes of a new symbolic link.
    pub(super) fn give_attributes_of_link(
        &self,
        path: &[u8],
        attributes: &Attributes,
    ) -> Result<(), Errno> {
        if !attributes.xattrs.is_empty() {
            let (parent, name) = self.parent(path)?;
            for refused in attributes::give_link(parent.as_fd(), name, attributes) {
                self.refuse(refused.what, path, refused.errno);
            }
        }
        Ok(())
    }

    pub(super) fn refuse(&self, what: What, path: &[u8], errno: Errno) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.said.insert(what) {
            let error = std::io::Error::from(errno);
            let text = format!("'{}': {} ({error}; said once)", show(self, path), what.text());
            refusals.texts.push(text);
        }
    }

    /// Sets the owner of what has this name; a link is not followed.
    pub(super) fn give_owner_of_name(&self, path: &[u8], owner: Owner) -> Result<(), Errno> {
        let (parent, name) = self.parent(path)?;
        if let Err(errno) = attributes::give_owner(parent.as_fd(), name, owner) {
            self.refuse(What::Owner, path, errno);
        }
        Ok(())
    }
}
