//! Operations of one or two kernel calls: statuses, times, modes, names that must be new.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::io::beneath::{Folder, is_own};
use crate::io::untold;
use crate::io::volume::{Mtime, Status, StatusKind};
use rustix::fs::{AtFlags, FileType, Mode, RenameFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

/// A regular file with one name that only we may write to.
pub(super) fn is_ours_alone(stat: &Stat) -> bool {
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    is_file && is_own(stat) && stat.st_nlink == 1 && stat.st_mode & 0o022 == 0
}

pub(super) fn is_special(parent: &Folder, name: &OsStr) -> bool {
    let found = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|stat| status_from(&stat).kind == StatusKind::Special)
}

/// How a name was given that must be new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewName {
    /// The kernel, or the file system, has refused to replace.
    Refused,
    /// Nothing was there a moment before: what was made in between is replaced.
    Looked,
}

/// A rename that replaces nothing. File systems without it use a link, which also fails when the
/// name exists. Those that have no links either, such as FAT, are looked at, and then renamed on.
pub(super) fn rename_new(
    (from_parent, from): (&Folder, &OsStr),
    (to_parent, to): (&Folder, &OsStr),
) -> Result<NewName, Errno> {
    if !to_parent.only_replaces() {
        match rustix::fs::renameat_with(from_parent, from, to_parent, to, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => {}
            renamed => return renamed.map(|()| NewName::Refused),
        }
        match rustix::fs::linkat(from_parent, from, to_parent, to, AtFlags::empty()) {
            Err(errno) if has_no_links(errno) => {}
            linked => {
                linked?;
                rustix::fs::unlinkat(from_parent, from, AtFlags::empty())?;
                return Ok(NewName::Refused);
            }
        }
    }
    match rustix::fs::statat(to_parent, to, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => return Err(Errno::EXIST),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    rustix::fs::renameat(from_parent, from, to_parent, to)?;
    to_parent.know_that_it_only_replaces();
    Ok(NewName::Looked)
}

/// What `link` answers where a file system has none: on FAT and exFAT, through FUSE, at a mount of
/// a store. The last also stands for a fault of a disk, which the next call meets as well.
pub(super) fn has_no_links(errno: Errno) -> bool {
    matches!(errno, Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::IO)
}

/// Whether a file still has this size, and this time where one is given.
pub(super) fn is_still(fd: BorrowedFd<'_>, size: u64, mtime: Option<Mtime>) -> Result<bool, Errno> {
    let now = status_from(&rustix::fs::fstat(fd)?);
    if now.size == size && mtime.is_none_or(|mtime| mtime == now.mtime) {
        return Ok(true);
    }
    untold::ends_at(fd, size)
}

/// For what this program has just made or changed. File systems on libfuse 2 ignore a call that
/// leaves one of the two times out, with success (Debian 12: exFAT, FAT, unionfs, bindfs).
pub(super) fn timestamps(mtime: Mtime) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
        last_modification: Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanos.into() },
    }
}

/// The times that something had.
pub(super) fn timestamps_of(stat: &Stat) -> Timestamps {
    let time = |seconds, nanos| Timespec { tv_sec: seconds, tv_nsec: nanos };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec as i64),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec as i64),
    }
}

/// The process's umask, which can only be read by setting it; read once.
pub(super) fn umask() -> u32 {
    static UMASK: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *UMASK.get_or_init(|| {
        let mask = rustix::process::umask(Mode::from_raw_mode(0o077));
        rustix::process::umask(mask);
        mask.as_raw_mode()
    })
}

pub(super) fn status_from(stat: &Stat) -> Status {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => StatusKind::File,
        FileType::Directory => StatusKind::Directory,
        FileType::Symlink => StatusKind::Link,
        _ => StatusKind::Special,
    };
    let mtime = Mtime { seconds: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 };
    Status {
        kind,
        size: stat.st_size as u64,
        mtime,
        mode: stat.st_mode & 0o7777,
        owner: (stat.st_uid, stat.st_gid),
        inode: (stat.st_dev, stat.st_ino),
        allocated_bytes: (stat.st_blocks as u64).saturating_mul(STAT_BLOCK_BYTES),
    }
}

/// The only way to set the mode through a descriptor that was opened as a path.
pub(super) fn chmod_path(fd: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
    rustix::fs::chmod(format!("/proc/self/fd/{}", fd.as_raw_fd()), Mode::from_raw_mode(mode))
}

/// A program with one of these runs as its file's owner or group.
pub(super) const SET_ID_BITS: u32 = 0o6000;

/// What `stat` counts blocks in.
pub(super) const STAT_BLOCK_BYTES: u64 = 512;
