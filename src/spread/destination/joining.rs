//! Puts the ranges of a large file together, by the file system itself where it can, without the
//! bytes passing here.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{OFlags, Timespec, Timestamps};

use super::here::Here;
use super::{FileLook, Reply, Spot};
use base::fault::{Class, Fault};
use base::units::Nanos;
use mover::io::clock;

/// Goes on at this byte of the file for about a second. The same bytes go to the same place however
/// often it is asked for.
pub(super) fn join(
    here: &mut Here,
    parts: &[u32],
    staged: &Spot,
    mut at: u64,
) -> Result<Reply, Fault> {
    let path = here.place().path(staged);
    let write = |why: io::Error| Fault::write("write", &path, &why);
    let to = match at {
        0 => here.create(staged)?,
        _ => here.open(staged, OFlags::WRONLY).map_err(|why| write(why.into()))?.into(),
    };
    let until = clock::now().after(JOINS_FOR);
    let mut begins = 0;
    for part in parts {
        let spot = Spot::Part(*part);
        let part = here.place().path(&spot);
        let read = |why: io::Error| Fault::io("read", &part, &why);
        let from = here.open(&spot, OFlags::RDONLY).map_err(|why| read(why.into()))?;
        let from = File::from(from);
        let len = from.metadata().map_err(read)?.len();
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
pub(super) fn complete(
    here: &mut Here,
    staged: &Spot,
    size: u64,
    look: Option<FileLook>,
) -> Result<(), Fault> {
    let path = here.place().path(staged);
    let write = |why: io::Error| Fault::write("write", &path, &why);
    let file = here.open(staged, OFlags::WRONLY).map_err(|why| write(why.into()))?;
    let file = File::from(file);
    if file.metadata().map_err(write)?.len() != size {
        return Err(Fault::new(Class::Corrupt, format!("'{}' lacks a range", path.display())));
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
