//! Objects without bytes, made after others are finished: other names of files, and directories
//! that get their mode, time and attributes when everything is in them.

use std::collections::BTreeMap;

use crate::io::volume::{Durable, Volume};
use crate::pump::sink::finisher::{SINGLE_SYNCS_MAX, Ways, apply, folder, make_way};
use crate::pump::sink::objects::Complete;
use crate::pump::sink::wanted::Wanted;
use crate::wire::manifest::EntryKind;
use base::fault::Fault;
use base::settings::Fsync;

/// True for the kinds of these objects.
pub(crate) fn is_place(kind: EntryKind) -> bool {
    matches!(kind, EntryKind::HardLink | EntryKind::Leave)
}

/// Gives files their other names, in the order in which they come.
pub(crate) fn make_names(volume: &dyn Volume, ways: Ways<'_>, places: &mut [Complete]) {
    for place in places.iter_mut().filter(|place| place.wanted.kind == EntryKind::HardLink) {
        apply(place, |wanted| make_name(volume, ways, wanted));
    }
}

/// The name appears whole or not at all, and replaces only what it may.
fn make_name(volume: &dyn Volume, ways: Ways<'_>, wanted: &Wanted) -> Result<(), Fault> {
    if is_same_file(volume, &wanted.path, &wanted.twin)? {
        return Ok(());
    }
    volume.remove(&wanted.temporary)?; // an earlier run may have left it
    volume.make_hard_link(&wanted.temporary, &wanted.twin)?;
    let named = make_way(ways, wanted)
        .and_then(|()| volume.rename(&wanted.temporary, &wanted.path, wanted.replace));
    if named.is_err() {
        let _ = volume.remove(&wanted.temporary);
    }
    named
}

/// True when both are names of one file already.
pub(crate) fn is_same_file(volume: &dyn Volume, path: &[u8], twin: &[u8]) -> Result<bool, Fault> {
    let Some(there) = volume.status(path)? else { return Ok(false) };
    Ok(volume.status(twin)?.is_some_and(|twin| twin.inode == there.inode))
}

/// Leaves directories, in order. Many are synced by one call for each file system that they are on.
pub fn leave(volume: &dyn Volume, places: &mut [Complete], fsync: Fsync, synced: &mut Synced) {
    let is_directory = |place: &&mut Complete| place.wanted.kind == EntryKind::Leave;
    let count = places.iter_mut().filter(is_directory).count();
    let each = fsync == Fsync::File && count <= SINGLE_SYNCS_MAX;
    let durable = if each { Durable::Now } else { Durable::Later };
    let by_all = fsync == Fsync::File && !each;
    let mut file_systems = BTreeMap::new();
    for place in places.iter_mut().filter(is_directory) {
        apply(place, |wanted| {
            if by_all {
                // Before it has a mode that denies access.
                let inside = inside(&wanted.path);
                file_systems.entry(volume.file_system_of(&inside)?).or_insert(inside);
            }
            let meta = (!wanted.stays).then_some(&wanted.meta);
            let left = volume.leave_directory(&wanted.path, meta, durable);
            if each {
                synced.folders.insert(wanted.path.clone(), left.synced.clone());
            }
            left.given.and(left.synced)
        });
    }
    for (file_system, path) in file_systems {
        synced.file_systems.insert(file_system, volume.sync_all(&path));
    }
    let failed = synced.file_systems.values().find(|synced| synced.is_err());
    if let Some(failed) = failed.cloned() {
        places.iter_mut().filter(is_directory).for_each(|place| apply(place, |_| failed.clone()));
    }
}

/// A path inside this directory; the root's is empty.
fn inside(directory: &[u8]) -> Vec<u8> {
    match directory {
        b"" => b".".to_vec(),
        _ => [directory, b"/."].concat(),
    }
}

/// Folders whose names have been synced in one epoch, and the results. Each is synced once: a sync
/// that failed is not tried again.
#[derive(Debug, Default)]
pub struct Synced {
    /// File systems that have been synced as a whole.
    file_systems: BTreeMap<u64, Result<(), Fault>>,
    folders: BTreeMap<Vec<u8>, Result<(), Fault>>,
}

impl Synced {
    /// Syncs the folder that holds `path`, unless that has been done.
    pub fn folder_of(&mut self, volume: &dyn Volume, path: &[u8]) -> Result<(), Fault> {
        if !self.file_systems.is_empty()
            && let Some(whole) = self.file_systems.get(&volume.file_system_of(path)?)
        {
            return whole.clone();
        }
        let sync = || volume.sync_directory(path);
        self.folders.entry(folder(path).to_vec()).or_insert_with(sync).clone()
    }
}
