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

/// A rename that replaces nothing. File systems without it use a link, which also fails when the
/// name exists.
pub(super) fn rename_new(
    from_parent: &Folder,
    from: &OsStr,
    to_parent: &Folder,
    to: &OsStr,
) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from_parent, from, to_parent, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::linkat(from_parent, from, to_parent, to, AtFlags::empty())?;
            rustix::fs::unlinkat(from_parent, from, AtFlags::empty())
        }
        renamed => renamed,
    }
}

/// Whether a file still has this size, and this time where one is given.
pub(super) fn is_still(fd: BorrowedFd<'_>, size: u64, mtime: Option<Mtime>) -> Result<bool, Errno> {
    let now = status_from(&rustix::fs::fstat(fd)?);
    if now.size == size && mtime.is_none_or(|mtime| mtime == now.mtime) {
        return Ok(true);
    }
    untold::ends_at(fd, size)
}

pub(super) fn timestamps(mtime: Mtime) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        last_modification: Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanos.into() },
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
