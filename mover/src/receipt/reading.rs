//! Reads the bytes of a file once and hashes them by every kind of digest that its lines may have.
//! A kind that a file has had is that of the list: the next ones are hashed by it alone, and by the
//! others, in a second reading, only where it does not agree.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::kind::{DigestOfList, Running};
use super::lines::{Entry, ListedDigest};
use crate::io::store::Store;
use crate::io::volume::READ_THROUGH;
use crate::pump::watch::Watch;
use base::fault::{Class, Fault};

/// The result of one entry.
pub(super) enum Verdict {
    Same(u64),
    Differs(u64),
    Missing(Fault),
    Unreadable(Fault),
    Stopped,
}

/// With what files are read, and who is told how far that is.
pub(super) struct Read<'a> {
    pub(super) buffer: &'a mut [u8],
    pub(super) watch: &'a Watch,
}

/// The kinds that files of this list have had.
#[derive(Debug, Default)]
pub(super) struct KindsKnown(Mutex<Vec<DigestOfList>>);

impl KindsKnown {
    fn locked(&self) -> MutexGuard<'_, Vec<DigestOfList>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In the order in which they were met.
    pub(super) fn all(&self) -> Vec<DigestOfList> {
        self.locked().clone()
    }

    /// What a digest is likely to be.
    fn of(&self, digest: &ListedDigest) -> Vec<DigestOfList> {
        let known = self.locked();
        let likely: Vec<_> =
            digest.kinds.iter().copied().filter(|kind| known.contains(kind)).collect();
        if likely.is_empty() { digest.kinds.clone() } else { likely }
    }

    /// Compares a file with what its lines say; `read` gives its bytes to digests, and may be asked
    /// a second time.
    pub(super) fn check(
        &self,
        entry: &Entry,
        read: &mut dyn FnMut(&mut Digests) -> Result<u64, Verdict>,
    ) -> Verdict {
        let likely: Vec<_> = entry.digests.iter().flat_map(|digest| self.of(digest)).collect();
        let all: Vec<_> =
            entry.digests.iter().flat_map(|digest| digest.kinds.iter().copied()).collect();
        let mut kinds = likely;
        loop {
            let mut digests = Digests::new(&kinds);
            let bytes = match read(&mut digests) {
                Ok(bytes) => bytes,
                Err(verdict) => return verdict,
            };
            let found = digests.finish();
            let is_of = |digest: &ListedDigest| {
                let kind = |(kind, hex): &(DigestOfList, String)| {
                    (digest.kinds.contains(kind) && *hex == digest.hex).then_some(*kind)
                };
                found.iter().find_map(kind)
            };
            let had: Option<Vec<DigestOfList>> = entry.digests.iter().map(is_of).collect();
            if let Some(had) = had {
                let mut known = self.locked();
                for kind in had {
                    if !known.contains(&kind) {
                        known.push(kind);
                    }
                }
                return Verdict::Same(bytes);
            }
            if all.iter().all(|kind| kinds.contains(kind)) {
                return Verdict::Differs(bytes);
            }
            kinds = all.clone();
        }
    }
}

/// The digests of bytes that are read once, in their order.
pub(super) struct Digests(Vec<(DigestOfList, Running)>);

impl Digests {
    fn new(kinds: &[DigestOfList]) -> Digests {
        let mut kinds = kinds.to_vec();
        kinds.sort();
        kinds.dedup();
        Digests(kinds.into_iter().map(|kind| (kind, Running::new(kind))).collect())
    }

    fn update(&mut self, bytes: &[u8]) {
        self.0.iter_mut().for_each(|(_, running)| running.update(bytes));
    }

    fn finish(self) -> Vec<(DigestOfList, String)> {
        self.0.into_iter().map(|(kind, running)| (kind, running.finish())).collect()
    }
}

/// Reads an object: a store's own checksum of it, where there is one, is compared too.
pub(super) fn read_object(
    (store, path): (&dyn Store, &[u8]),
    digests: &mut Digests,
    Read { buffer, watch }: &mut Read<'_>,
) -> Result<u64, Verdict> {
    let size = match store.look(path) {
        Ok(Some(there)) => there.size,
        Ok(None) => {
            let text = format!("'{}' is missing", String::from_utf8_lossy(path));
            return Err(Verdict::Missing(Fault::new(Class::SomeFailed, text)));
        }
        Err(fault) => return Err(Verdict::Unreadable(fault)),
    };
    let file = store.open(path, READ_THROUGH).map_err(Verdict::Unreadable)?;
    let mut bytes = 0;
    while bytes < size {
        let left = (size - bytes).min(buffer.len() as u64) as usize;
        match store.read_at(&file, path, bytes, &mut buffer[..left]) {
            Ok(read) => {
                digests.update(&buffer[..read]);
                bytes += read as u64;
                watch.gauge.bytes_done.fetch_add(read as u64, Relaxed);
            }
            Err(fault) if fault.class == Class::Corrupt => return Err(Verdict::Differs(bytes)),
            Err(fault) => return Err(Verdict::Unreadable(fault)),
        }
        if watch.stopping() {
            return Err(Verdict::Stopped);
        }
    }
    Ok(bytes)
}

pub(super) fn read_path(
    path: &Path,
    digests: &mut Digests,
    Read { buffer, watch }: &mut Read<'_>,
) -> Result<u64, Verdict> {
    let opened = File::open(path);
    let mut file = opened.map_err(|why| Verdict::Unreadable(Fault::io("open", path, &why)))?;
    // What the disk holds is asked for, not what a copy has left in memory.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    let mut bytes = 0;
    loop {
        match file.read(buffer) {
            Ok(0) => return Ok(bytes),
            Ok(read) => {
                digests.update(&buffer[..read]);
                bytes += read as u64;
                watch.gauge.bytes_done.fetch_add(read as u64, Relaxed);
            }
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(Verdict::Unreadable(Fault::io("read", path, &why))),
        }
        if watch.stopping() {
            return Err(Verdict::Stopped);
        }
    }
}
