//! Gives complete objects their names: synced, renamed, directories synced, in that order, in
//! epochs.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::objects::{Complete, Wanted};
use crate::base::fault::Fault;
use crate::base::label::Sum;
use crate::base::settings::Fsync;
use crate::io::volume::{Access, Cache, Segment, Volume};

/// Small files that are synced one by one; more are synced by one call for the whole file system.
const SINGLE_SYNCS_MAX: usize = 8;

/// Objects that one epoch takes.
pub const EPOCH_OBJECTS_MAX: usize = 512;

/// What became of an object.
#[derive(Debug)]
pub struct Finished {
    pub number: u64,
    pub path: Vec<u8>,
    pub bytes: u64,
    pub outcome: Result<Option<Sum>, Fault>,
}

/// One a sink. Not a lane's work: a sync can take seconds.
#[derive(Debug)]
pub struct Finisher {
    /// `None` where nothing has a name: null and pipes.
    volume: Option<Arc<dyn Volume>>,
    fsync: Fsync,
}

impl Finisher {
    pub fn new(volume: Option<Arc<dyn Volume>>, fsync: Fsync) -> Finisher {
        Finisher { volume, fsync }
    }

    /// Finishes these objects together. What fails loses its temporary file and keeps its fault.
    pub fn epoch(&self, mut objects: Vec<Complete>) -> Vec<Finished> {
        if let Some(volume) = &self.volume {
            for object in &mut objects {
                apply(object, |wanted| prepare(&**volume, wanted));
            }
            if self.fsync == Fsync::File {
                sync(&**volume, &mut objects);
            }
            for object in &mut objects {
                apply(object, |wanted| {
                    volume.rename(&wanted.temporary, &wanted.path, wanted.replace)
                });
            }
            if self.fsync == Fsync::File {
                sync_directories(&**volume, &mut objects);
            }
            for object in objects.iter().filter(|object| object.outcome.is_err()) {
                // It failed already; a temporary file that stays is named like one.
                let _ = volume.remove(&object.wanted.temporary);
            }
        }
        objects.into_iter().map(Finished::from).collect()
    }
}

impl From<Complete> for Finished {
    fn from(object: Complete) -> Finished {
        Finished {
            number: object.wanted.number,
            path: object.wanted.path,
            bytes: object.wanted.size,
            outcome: object.outcome,
        }
    }
}

/// Does something to an object that is well so far.
fn apply(object: &mut Complete, step: impl FnOnce(&Wanted) -> Result<(), Fault>) {
    if object.outcome.is_ok()
        && let Err(fault) = step(&object.wanted)
    {
        object.outcome = Err(fault);
    }
}

/// Length, mode and time of a file with a handle; a batch has seen to that for its small ones.
fn prepare(volume: &dyn Volume, wanted: &Wanted) -> Result<(), Fault> {
    let Some(file) = &wanted.file else {
        return if wanted.size == 0 { make_empty(volume, wanted) } else { Ok(()) };
    };
    let handle = file.handle()?;
    if file.cache() == Cache::Around {
        volume.set_length(handle, &wanted.temporary, wanted.size)?;
    }
    volume.set_metadata(handle, &wanted.temporary, wanted.meta)
}

/// A file without bytes comes in no request: it is made here.
fn make_empty(volume: &dyn Volume, wanted: &Wanted) -> Result<(), Fault> {
    let segment = Segment {
        object: wanted.number,
        volume: None,
        path: wanted.temporary.clone(),
        len: 0,
        at: 0,
        meta: wanted.meta,
    };
    volume.write_small(&segment, b"")
}

/// Bytes before names. A sync that failed is not tried again: the kernel may have dropped the
/// pages.
fn sync(volume: &dyn Volume, objects: &mut [Complete]) {
    let small = objects.iter().filter(|object| object.wanted.file.is_none()).count();
    if objects.len() > SINGLE_SYNCS_MAX && small > SINGLE_SYNCS_MAX {
        if let Err(fault) = volume.sync_all() {
            objects.iter_mut().for_each(|object| apply(object, |_| Err(fault.clone())));
        }
        return;
    }
    for object in objects {
        apply(object, |wanted| match wanted.file.as_ref().and_then(|file| file.opened()) {
            Some(handle) => volume.sync(handle, &wanted.temporary),
            None => {
                let access = Access::Read { cache: Cache::Through };
                volume.sync(&volume.open(&wanted.temporary, access)?, &wanted.temporary)
            }
        });
    }
}

/// A name is durable when its directory is; one call for each directory.
fn sync_directories(volume: &dyn Volume, objects: &mut [Complete]) {
    let directory =
        |path: &[u8]| path[..path.iter().rposition(|b| *b == b'/').unwrap_or(0)].to_vec();
    let mut synced = BTreeSet::new();
    for object in objects.iter_mut() {
        if object.outcome.is_ok() && synced.insert(directory(&object.wanted.path)) {
            apply(object, |wanted| volume.sync_directory(&wanted.path));
        }
    }
}
