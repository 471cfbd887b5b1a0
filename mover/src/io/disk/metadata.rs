//! What files and folders get besides bytes: owner, mode, time, attributes, durable names.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::PoisonError;

use crate::io::attributes::{self, What};
use crate::io::beneath::{Folder, is_own};
use crate::io::call::Call;
use crate::io::clock;
use crate::io::disk::Disk;
use crate::io::disk::calls::{
    NewName, SET_ID_BITS, chmod_path, has_no_links, status_from, timestamps, umask,
};
use crate::io::volume::{Metadata, Mtime, show};
use base::attributes::Attributes;
use base::fault::{Class, Fault, reason};
use base::owners::Owner;
use rustix::fs::{AtFlags, Mode, OFlags};
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
        self.give_mode(path, || chmod_path(folder.as_fd(), 0o700))?;
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
        self.give_mode(path, || rustix::fs::fchmod(fd, Mode::from_raw_mode(mode)))?;
        meta.mtime.map_or(Ok(()), |mtime| self.give_time(fd, path, mtime))
    }

    /// Changes a mode. Where that is refused the bytes are worth more than the mode: it is told.
    pub(super) fn give_mode(
        &self,
        path: &[u8],
        change: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        change().or_else(|errno| self.told_if_refused(What::Mode, path, errno))
    }

    pub(super) fn give_time(
        &self,
        fd: BorrowedFd<'_>,
        path: &[u8],
        mtime: Mtime,
    ) -> Result<(), Errno> {
        rustix::fs::futimens(fd, &timestamps(mtime))
            .or_else(|errno| self.told_if_refused(What::Time, path, errno))?;
        if mtime.is_far_off() && status_from(&rustix::fs::fstat(fd)?).mtime.seconds != mtime.seconds
        {
            self.refuse(What::Time, path, Errno::RANGE);
        }
        Ok(())
    }

    /// What a file system does not have, or not for this user, is told once; a fault of it stays
    /// one.
    pub(super) fn told_if_refused(
        &self,
        what: What,
        path: &[u8],
        errno: Errno,
    ) -> Result<(), Errno> {
        let is_own_root = || rustix::fs::fstat(self.root.as_fd()).is_ok_and(|stat| is_own(&stat));
        let is_root = path.is_empty() && errno == Errno::PERM && !is_own_root();
        match errno {
            // The last: sshfs, of the time of a symbolic link.
            Errno::PERM
            | Errno::ACCESS
            | Errno::NOSYS
            | Errno::OPNOTSUPP
            | Errno::INVAL
            | Errno::NOENT => {
                self.refuse(if is_root { What::Root } else { what }, path, errno);
                Ok(())
            }
            errno => Err(errno),
        }
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

    /// Why a symbolic link is not made. `rclone mount` calls it an error of the disk, which would
    /// end the copy.
    pub(super) fn no_link(&self, path: &[u8], errno: Errno) -> Fault {
        let is_of_mount = || self.parent(path).is_ok_and(|(parent, _)| parent.is_in_user_space());
        let fault = self.fault(Call::MakeLink, path, errno);
        if !has_no_links(errno) || (errno == Errno::IO && !is_of_mount()) {
            return fault;
        }
        let hint = "; where a file system has no links, --links follow copies what they lead to";
        Fault::new(Class::Local, fault.text + hint)
    }

    pub(super) fn refuse(&self, what: What, path: &[u8], errno: Errno) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.said.insert(what) {
            let error = reason(&errno.into());
            let path = match what {
                What::Temporary => path,
                _ => without_temporary(path),
            };
            let text = format!("'{}': {} ({error}; said once)", show(self, path), what.text());
            refusals.texts.push(text);
        }
    }

    /// Renames, and keeps the time of what is renamed: FAT's driver for FUSE writes a new entry
    /// with the time of the moment. s3fs shows the time of the upload before, and the right one
    /// after.
    pub(super) fn rename_in_user_space(
        &self,
        from: (&Folder, &OsStr),
        (parent, name): (&Folder, &OsStr),
        rename: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let time = |(parent, name): (&Folder, &OsStr)| {
            let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
            stat.map(|stat| status_from(&stat).mtime)
        };
        let before = time(from)?;
        rename()?;
        let after = time((parent, name))?;
        let is_of_the_moment = before < after && after <= now();
        if !is_of_the_moment {
            return Ok(());
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        // What has the wrong time has the right bytes.
        let _ = rustix::fs::utimensat(parent, name, &timestamps(before), flags);
        Ok(())
    }

    pub(super) fn tell_of_new_name(&self, to: &[u8], how: NewName) {
        if how == NewName::Looked {
            self.refuse(What::NewName, to, Errno::OPNOTSUPP);
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

fn now() -> Mtime {
    let now = clock::unix();
    Mtime { seconds: now.as_secs() as i64, nanos: now.subsec_nanos() }
}

/// What a person knows: the folder, where a file does not have its own name yet.
fn without_temporary(path: &[u8]) -> &[u8] {
    let (folder, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&b""[..], path),
    };
    if name.starts_with(b".datapump-") { folder } else { path }
}
