//! What is found out of a file system by looking: whether it says whose a file is, and whether it
//! tells names apart that differ in case.
//!
//! On some all files belong to one user (NTFS and exFAT as desktops mount them, shares that give
//! root's files to nobody), or everybody may write to all.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::PoisonError;

use crate::io::attributes::What;
use crate::io::call::Call;
use crate::io::disk::Disk;
use crate::io::disk::calls::is_ours_alone;
use crate::io::volume::{Handle, Locked, Volume};
use base::fault::Fault;
use rustix::fs::{AtFlags, FlockOperation, OFlags, Stat};
use rustix::io::Errno;

/// What a file shows of its maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    device: u64,
    user: u32,
    group: u32,
    mode: u32,
}

/// How far a file must look like a new one.
pub(super) type Likeness = fn(&Look, &Look) -> bool;

const FULLY: Likeness = |one, other| one == other;
/// A file that is nearly complete may have the mode of its source.
pub(super) const BY_OWNER: Likeness = |one, other| one.user == other.user;

impl Disk {
    /// Opens and locks a file that only we use.
    pub(super) fn open_file_of_ours(&self, path: &[u8]) -> Result<Locked, Fault> {
        loop {
            let (fd, is_new) = match self.unseen(path, || self.open_or_make(path)) {
                Ok(opened) => opened,
                // Something exists there that cannot be opened, or that we may not open.
                Err(errno) => match self.is_there_and_not_ours(path) {
                    true => return Ok(Locked::Foreign),
                    false => return Err(self.fault(Call::Create, path, errno)),
                },
            };
            // A file of another user is neither trusted nor locked: they would decide for how long.
            let stat =
                rustix::fs::fstat(&fd).map_err(|errno| self.fault(Call::LookAt, path, errno))?;
            if stat.st_nlink == 0 {
                continue; // its owner has removed it while we opened it
            }
            if !is_new && !is_ours_alone(&stat) && !self.is_like_new(path, &stat, FULLY) {
                return Ok(Locked::Foreign);
            }
            match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(Locked::Busy),
                Err(errno) => return Err(self.fault(Call::Lock, path, errno)),
            }
            // Still the same file, now that the lock is ours?
            if self.status(path)?.is_some_and(|there| there.inode == (stat.st_dev, stat.st_ino)) {
                self.folds_case.get_or_init(|| self.is_there_in_other_case(path));
                return Ok(Locked::Ours(Handle::new(fd)));
            }
        }
    }

    /// Opens one, and says whether this call has made it: what is new is ours,
    /// whatever it looks like.
    fn open_or_make(&self, path: &[u8]) -> Result<(OwnedFd, bool), Errno> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK;
        loop {
            match self.open_in_parent(path, flags | OFlags::CREATE | OFlags::EXCL, 0o600) {
                Err(Errno::EXIST) => {}
                made => return Ok((made?, true)),
            }
            match self.open_in_parent(path, flags, 0) {
                Err(Errno::NOENT) => {} // its owner has removed it in between
                opened => return Ok((opened?, false)),
            }
        }
    }

    /// True where a file that looks like somebody else's looks just like one that we make now, in
    /// the same folder. Others who may write there could have made it, which is told.
    pub(super) fn is_like_new(&self, path: &[u8], stat: &Stat, likeness: Likeness) -> bool {
        let found = look_of(stat);
        let mut known = self.look.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none_or(|known| known.device != found.device) {
            // Where that cannot be found out it stays somebody else's.
            *known = self.unseen(path, || self.look_of_new(path)).ok().flatten();
        }
        let is_like = known.is_some_and(|known| likeness(&known, &found));
        drop(known);
        if is_like {
            self.refuse(What::WhoMade, path, Errno::OPNOTSUPP);
        }
        is_like
    }

    /// None where a new file is seen to be ours: there others differ from it.
    fn look_of_new(&self, path: &[u8]) -> Result<Option<Look>, Errno> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|_| Errno::IO)?;
        let name = format!(".datapump-{:016x}.journal", u64::from_le_bytes(bytes));
        let folder = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let trial = [&path[..folder], name.as_bytes()].concat();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let made = self.open_in_parent(&trial, flags, 0o600)?;
        let stat = rustix::fs::fstat(&made);
        let (parent, name) = self.parent(&trial)?;
        rustix::fs::unlinkat(&parent, OsStr::from_bytes(name.as_bytes()), AtFlags::empty())?;
        let stat = stat?;
        Ok((!is_ours_alone(&stat)).then(|| look_of(&stat)))
    }
}

impl Disk {
    /// Whether a name that we have made, which nobody makes in capitals, is found by these.
    fn is_there_in_other_case(&self, path: &[u8]) -> bool {
        self.status(&path.to_ascii_uppercase()).is_ok_and(|found| found.is_some())
    }

    /// The same by a name that is there, where this program writes nothing: a directory that tells
    /// capitals apart does not find a name in the other case that it does not list.
    pub(super) fn seems_to_fold_case(&self) -> bool {
        let mut names = Vec::new();
        let mut take = |name: &[u8], _| {
            if names.len() < LOOKED_AT_MAX && name.iter().any(u8::is_ascii_alphabetic) {
                names.push(name.to_vec());
            }
        };
        if self.list_names(b"", &mut take).is_err() {
            return false;
        }
        let other_case = |name: &Vec<u8>| match name.iter().any(u8::is_ascii_lowercase) {
            true => name.to_ascii_uppercase(),
            false => name.to_ascii_lowercase(),
        };
        let alone = names.iter().find(|name| !names.contains(&other_case(name)));
        // Of a longer list the other name may lie beyond.
        names.len() < LOOKED_AT_MAX
            && alone.is_some_and(|name| {
                self.status(&other_case(name)).is_ok_and(|found| found.is_some())
            })
    }
}

const LOOKED_AT_MAX: usize = 4096;

fn look_of(stat: &Stat) -> Look {
    Look { device: stat.st_dev, user: stat.st_uid, group: stat.st_gid, mode: stat.st_mode }
}
