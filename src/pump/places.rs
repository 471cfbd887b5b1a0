//! What is made without bytes when its time has come: other names of files, and directories that
//! get their mode, time and attributes when everything is in them.

use super::finisher::{SINGLE_SYNCS_MAX, apply, sync_directories};
use super::objects::{Complete, Wanted};
use crate::base::fault::Fault;
use crate::base::settings::Fsync;
use crate::io::volume::{Durable, Volume};
use crate::wire::manifest::EntryKind;

/// True for what this is about.
pub fn is_place(kind: EntryKind) -> bool {
    matches!(kind, EntryKind::HardLink | EntryKind::Leave)
}

/// Makes names, then leaves directories, each in the order in which they come.
pub fn finish(volume: &dyn Volume, fsync: Fsync, places: Vec<Complete>) -> Vec<Complete> {
    let is_name = |place: &Complete| place.wanted.kind == EntryKind::HardLink;
    let (mut names, mut directories): (Vec<_>, Vec<_>) = places.into_iter().partition(is_name);
    for name in &mut names {
        apply(name, |wanted| make_name(volume, wanted));
    }
    if fsync == Fsync::File {
        sync_directories(volume, &mut names);
    }
    leave(volume, fsync, &mut directories);
    names.append(&mut directories);
    names
}

/// The name appears whole or not at all, and replaces only what it may.
fn make_name(volume: &dyn Volume, wanted: &Wanted) -> Result<(), Fault> {
    if is_same_file(volume, &wanted.path, &wanted.twin)? {
        return Ok(());
    }
    volume.make_hard_link(&wanted.temporary, &wanted.twin)?;
    let named = volume.rename(&wanted.temporary, &wanted.path, wanted.replace);
    if named.is_err() {
        let _ = volume.remove(&wanted.temporary);
    }
    named
}

/// True when both are names of one file already.
pub fn is_same_file(volume: &dyn Volume, path: &[u8], twin: &[u8]) -> Result<bool, Fault> {
    let Some(there) = volume.status(path)? else { return Ok(false) };
    Ok(volume.status(twin)?.is_some_and(|twin| twin.inode == there.inode))
}

/// Many directories are synced by one call for the whole file system.
fn leave(volume: &dyn Volume, fsync: Fsync, directories: &mut [Complete]) {
    let each = fsync == Fsync::File && directories.len() <= SINGLE_SYNCS_MAX;
    let durable = if each { Durable::Now } else { Durable::Later };
    for directory in directories.iter_mut() {
        apply(directory, |wanted| {
            let meta = wanted.meta.mtime.is_some().then_some(&wanted.meta);
            volume.leave_directory(&wanted.path, meta, durable)
        });
    }
    if fsync == Fsync::File
        && !each
        && let Err(fault) = volume.sync_all()
    {
        directories.iter_mut().for_each(|one| apply(one, |_| Err(fault.clone())));
    }
}
