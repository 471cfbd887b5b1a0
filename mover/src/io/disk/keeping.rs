//! Other names for what is replaced: a folder like another one, and a link into it.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;

use crate::io::attributes::What;
use crate::io::call::Call;
use crate::io::disk::Disk;
use crate::io::disk::calls::{chmod_path, has_no_links, status_from};
use crate::io::volume::{Kept, show};
use base::fault::{Class, Fault};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

impl Disk {
    pub(super) fn make_folder_like(&self, path: &[u8], like: &[u8]) -> Result<(), Errno> {
        let (parent, name) = self.parent(path)?;
        let (holder, there) = match like {
            b"" => (self.root.clone(), OsStr::new("")),
            like => self.parent(like)?,
        };
        // The folder itself, where a link leads to it.
        let stat = rustix::fs::statat(&holder, there, AtFlags::EMPTY_PATH)?;
        rustix::fs::mkdirat(&parent, name, Mode::RWXU)?;
        let made = self.open_in_parent(path, OFlags::PATH | OFlags::DIRECTORY, 0)?;
        let (user, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        // Others than root keep what they move in folders of their own.
        let _ = rustix::fs::chownat(&made, "", Some(user), Some(group), AtFlags::EMPTY_PATH);
        self.give_mode(path, || chmod_path(made.as_fd(), stat.st_mode & 0o777 | OWNER_BITS))
    }

    /// A hard link, or a copy where the file system has none.
    pub(super) fn give_other_name(&self, path: &[u8], twin: &[u8]) -> Result<(), Errno> {
        let (twin_parent, twin_name) = self.parent(twin)?;
        let (parent, name) = self.parent(path)?;
        match rustix::fs::linkat(&twin_parent, twin_name, &parent, name, AtFlags::empty()) {
            Err(errno) if has_no_links(errno) => {
                if let Err(errno) = self.copy_twin(path, twin) {
                    // It has no room, or a part of it that nobody goes on with would take some.
                    let _ = rustix::fs::unlinkat(&parent, name, AtFlags::empty());
                    return Err(errno);
                }
                self.refuse(What::HardLink, path, errno);
                Ok(())
            }
            linked => linked,
        }
    }

    /// Its bytes, mode and time, on stable storage.
    fn copy_twin(&self, path: &[u8], twin: &[u8]) -> Result<(), Errno> {
        let mut from = File::from(self.open_in_parent(twin, OFlags::RDONLY, 0)?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut to = File::from(self.open_in_parent(path, flags, 0o600)?);
        std::io::copy(&mut from, &mut to)
            .map_err(|why| Errno::from_io_error(&why).unwrap_or(Errno::IO))?;
        let stat = rustix::fs::fstat(&from)?;
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        self.give_mode(path, || rustix::fs::fchmod(&to, mode))?;
        self.give_time(to.as_fd(), path, status_from(&stat).mtime)?;
        // After it has its time: s3fs uploads what it has by now, and loses what it gets then.
        rustix::fs::fdatasync(&to)
    }

    pub(super) fn link_name(&self, path: &[u8], to: &[u8]) -> Result<Kept, Fault> {
        let linked = self.parent(path).and_then(|(parent, name)| {
            let (to_parent, to_name) = self.parent(to)?;
            rustix::fs::linkat(&parent, name, &to_parent, to_name, AtFlags::empty())
        });
        match linked {
            Ok(()) => Ok(Kept::Linked),
            // Not on this file system, not of this kind, not by this user, or not more of them.
            Err(errno) if has_no_links(errno) || errno == Errno::MLINK => Ok(Kept::Not),
            Err(errno) => Err(self.not_kept(path, to, errno)),
        }
    }

    /// The fault of what could not be moved to a backup.
    pub(super) fn not_kept(&self, path: &[u8], to: &[u8], errno: Errno) -> Fault {
        if errno != Errno::XDEV {
            return self.fault(Call::Move, path, errno);
        }
        let text = format!(
            "'{}' stays, as its backup would be on another file system, at '{}': name a folder for \
             --backup-dir that is on the same one",
            show(self, path),
            show(self, to)
        );
        Fault::new(Class::Local, text)
    }
}

const OWNER_BITS: u32 = 0o700;
