//! Complete objects are read again: for digests that only all bytes in their order give
//! (`--digest-also`), and for what the medium gives back (`--verify disk`). Files are read past the
//! page cache for that when they have been synced, before they get their names; objects of a store,
//! which have no name until they are complete, after that.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::io::buffer::Buffer;
use crate::io::volume::{READ_THROUGH, StatusKind, Volume, show};
use crate::pump::sink::finisher::apply;
use crate::pump::sink::objects::Complete;
use crate::pump::watch::Watch;
use crate::wire::manifest::EntryKind;
use crate::work::digest::Whole;
use crate::work::extra::Running;
use base::extra::{ExtraDigests, ExtraSums};
use base::fault::{Class, Fault};
use base::label::Sum;
use base::limits::{BLOCK_BYTES, HEADROOM_BYTES};
use base::settings::{DigestKind, Settings, Verify};

/// Reads complete objects again and compares them with their digests.
#[derive(Debug)]
pub(crate) struct ReadBack {
    digest: DigestKind,
    verify: Verify,
    digest_also: ExtraDigests,
    watch: Arc<Watch>,
}

/// Which bytes of a file are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Cache,
    Medium,
}

impl ReadBack {
    /// `None` where nothing asks for it.
    pub(crate) fn of(settings: &Settings, watch: &Arc<Watch>) -> Option<ReadBack> {
        let Settings { digest, verify, digest_also, .. } = *settings;
        let is_asked = verify == Verify::Disk || !digest_also.is_empty();
        is_asked.then(|| ReadBack { digest, verify, digest_also, watch: watch.clone() })
    }

    /// Computes what is not known yet of files, under the names that they have until they are
    /// complete, and records all of it there.
    pub(crate) fn digest_also(&self, volume: &dyn Volume, objects: &mut [Complete]) {
        if volume.store().is_some() || self.digest_also.is_empty() {
            return;
        }
        self.each(objects, |object, buffer| {
            let name = &object.wanted.temporary;
            let missing = self.digest_also.without(&object.extra);
            if missing.is_empty() && object.made.is_some() {
                return Ok(()); // it got them when it was written
            }
            if !missing.is_empty() {
                let read = self.read(volume, (name, From::Cache), missing, (object, buffer))?;
                object.extra.complete_with(&read);
            }
            let file = object.wanted.file.as_ref().and_then(|file| file.opened());
            volume.set_digests(file, name, &object.extra)
        });
    }

    /// What the medium has of files that have been synced.
    pub(crate) fn files(&self, volume: &dyn Volume, objects: &mut [Complete]) {
        if volume.store().is_some() || self.verify != Verify::Disk {
            return;
        }
        self.each(objects, |object, buffer| {
            let name = (&object.wanted.temporary[..], From::Medium);
            self.read(volume, name, ExtraDigests::NONE, (object, buffer)).map(|_| ())
        });
    }

    /// Objects of a store that have just been completed. One that is wrong is deleted.
    pub(crate) fn objects(&self, volume: &dyn Volume, objects: &mut [Complete]) {
        if volume.store().is_none() {
            return;
        }
        self.each(objects, |object, buffer| {
            let name = &object.wanted.path;
            let missing = self.digest_also.without(&object.extra);
            if self.verify == Verify::Disk || !missing.is_empty() {
                let read = self.read(volume, (name, From::Medium), missing, (object, buffer));
                if read.as_ref().is_err_and(|fault| fault.class == Class::Corrupt) {
                    // It failed already: what can be done about it is done.
                    let _ = volume.clear(name, StatusKind::File);
                }
                object.extra.complete_with(&read?);
            }
            match object.extra.is_empty() {
                true => Ok(()),
                false => volume.set_digests(None, name, &object.extra),
            }
        });
    }

    /// Several at a time: a medium has a depth, and a digest takes a processor.
    fn each(
        &self,
        objects: &mut [Complete],
        work: impl Fn(&mut Complete, &mut Buffer) -> Result<(), Fault> + Sync,
    ) {
        let is_file = |object: &&mut Complete| {
            object.outcome.is_ok() && object.wanted.kind != EntryKind::HardLink
        };
        let objects: Vec<_> = objects.iter_mut().filter(is_file).map(Mutex::new).collect();
        let next = AtomicUsize::new(0);
        let run = || {
            let mut buffer = Buffer::new(READ_BYTES);
            while let Some(object) = objects.get(next.fetch_add(1, Relaxed)) {
                let object = &mut **object.lock().unwrap_or_else(PoisonError::into_inner);
                let done = work(object, &mut buffer);
                apply(object, |_| done);
            }
        };
        thread::scope(|scope| {
            for _ in 1..AT_ONCE.min(objects.len()) {
                scope.spawn(run);
            }
            run();
        });
    }

    /// Reads all of an object. Fails where it has another digest than what was written; else has
    /// the digests that are asked for besides.
    fn read(
        &self,
        volume: &dyn Volume,
        (path, from): (&[u8], From),
        also: ExtraDigests,
        (object, buffer): (&Complete, &mut Buffer),
    ) -> Result<ExtraSums, Fault> {
        let size = object.wanted.size;
        let (mut whole, mut running) = (Whole::new(self.digest), Running::new(also));
        let file = match from {
            From::Cache => volume.open(path, READ_THROUGH)?,
            From::Medium => volume.open_past_cache(path)?,
        };
        let is_store = volume.store().is_some();
        let mut at = 0;
        while at < size {
            if self.watch.stopping() {
                return Err(Fault::interrupted());
            }
            let left = (size - at).min(READ_BYTES.into()) as usize;
            // Direct I/O reads whole blocks; a store gives exactly what it is asked for.
            let asked = if is_store { left } else { left.next_multiple_of(BLOCK_BYTES as usize) };
            let start = HEADROOM_BYTES as usize;
            let into = &mut buffer.bytes_mut()[start..start + asked];
            let count = volume.read_at(&file, path, at, into)?.min(left);
            if count == 0 {
                return Err(differs(volume, path, from));
            }
            whole.update(&into[..count]);
            running.update(&into[..count]);
            at += count as u64;
        }
        let expect: Option<Sum> = object.outcome.as_ref().ok().copied().flatten();
        match expect.is_some_and(|expect| whole.finish() != expect) {
            true => Err(differs(volume, path, from)),
            false => Ok(running.finish()),
        }
    }
}

fn differs(volume: &dyn Volume, path: &[u8], from: From) -> Fault {
    let text = match (volume.store(), from) {
        (Some(_), _) => "the store gives back other bytes than were written: it is deleted",
        (None, From::Medium) => {
            "the disk gives back other bytes than were written: suspect the disk, its cable or its \
             controller"
        }
        (None, From::Cache) => {
            "it has other bytes than were written: suspect memory, or somebody who writes to it"
        }
    };
    Fault::new(Class::Corrupt, format!("'{}': {text}", show(volume, path)))
}

const READ_BYTES: u32 = 4 << 20;
const AT_ONCE: usize = 4;
