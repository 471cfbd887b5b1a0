//! Puts the ranges of a large file together, by the file system itself where it can, without the
//! bytes passing here.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{Timespec, Timestamps};

use super::{DestinationFolder, FileLook, Reply, Spot};
use base::fault::{Class, Fault};
use base::units::Nanos;
use mover::io::clock;

/// Goes on at this byte of the file for about a second. The same bytes go to the same place however
/// often it is asked for.
pub(super) fn join(
    place: &DestinationFolder,
    parts: &[u32],
    staged: &Spot,
    mut at: u64,
) -> Result<Reply, Fault> {
    let staged = place.path(staged);
    let write = |why: io::Error| Fault::write("write", &staged, &why);
    let mut options = OpenOptions::new();
    // It may be there from a call whose answer was lost.
    options.write(true).create(at == 0).truncate(at == 0).mode(0o600);
    let to = options.open(&staged).map_err(write)?;
    let until = clock::now().after(JOINS_FOR);
    let mut begins = 0;
    for part in parts {
        let part = place.path(&Spot::Part(*part));
        let read = |why: io::Error| Fault::io("read", &part, &why);
        let len = part.metadata().map_err(read)?.len();
        let from = match begins + len > at {
            true => File::open(&part).map_err(read)?,
            false => {
                begins += len;
                continue;
            }
        };
        while at < begins + len {
            let (mut from_at, mut to_at) = (at - begins, at);
            let most = (len - from_at).min(COPIED_AT_ONCE) as usize;
            let offsets = (Some(&mut from_at), Some(&mut to_at));
            match rustix::fs::copy_file_range(&from, offsets.0, &to, offsets.1, most) {
                Ok(0) => return Err(read(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => at += count as u64,
                Err(why) => return Err(write(why.into())),
            }
            if clock::now() >= until {
                to.sync_data().map_err(write)?;
                return Ok(Reply::Joined(at));
            }
        }
        begins += len;
    }
    Ok(Reply::Joined(at))
}

/// A file that has all of its bytes gets its mode and time, and is synced.
pub(super) fn complete(staged: &Path, size: u64, look: Option<FileLook>) -> Result<(), Fault> {
    let write = |why: io::Error| Fault::write("write", staged, &why);
    let file = OpenOptions::new().write(true).open(staged).map_err(write)?;
    if file.metadata().map_err(write)?.len() != size {
        return Err(Fault::new(Class::Corrupt, format!("'{}' lacks a range", staged.display())));
    }
    if let Some(FileLook { mode, mtime_s, mtime_ns }) = look {
        file.set_permissions(Permissions::from_mode(mode & 0o777)).map_err(write)?;
        let time = Timespec { tv_sec: mtime_s, tv_nsec: mtime_ns.into() };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::futimens(&file, &times).map_err(|why| write(why.into()))?;
    }
    file.sync_all().map_err(write)
}

const JOINS_FOR: Nanos = Nanos::from_millis(1000);
const COPIED_AT_ONCE: u64 = 64 << 20;
