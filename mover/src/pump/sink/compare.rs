//! Finds destination files that already have the bytes of their source. Reading them can take long,
//! so a separate thread does it, in the order of the offers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::io::volume::{Access, Cache, StatusKind, Volume};
use crate::pump::cancellation::Cancellation;
use crate::wire::manifest::{Entry, EntryKind};
use crate::wire::message::Message;
use base::fault::Fault;
use base::label::Sum;
use base::limits::TWINS_MAX;

/// Compares offered objects with what is at the destination.
#[derive(Debug)]
pub struct Compare {
    pub volume: Arc<dyn Volume>,
    /// The single object's name here, where it is another.
    pub rename: Option<Vec<u8>>,
    pub cancellation: Arc<Cancellation>,
    /// Digests of files of which more names may come, by number.
    pub twins: BTreeMap<u64, Sum>,
}

impl Compare {
    /// The numbers of the objects of an offer that are at the destination, byte for byte.
    pub fn same(&mut self, message: &Message) -> Vec<u64> {
        let Message::Offer { first, entries } = message else { return Vec::new() };
        let mut same = Vec::new();
        for (number, entry) in (*first..).zip(entries) {
            let sum = match entry.kind {
                EntryKind::File => entry.sum,
                EntryKind::HardLink => self.twins.get(&entry.twin).copied(),
                _ => None,
            };
            self.note_twin(number, entry);
            if sum.is_some_and(|sum| self.is_same(entry, sum)) {
                same.push(number);
            }
        }
        same
    }

    fn note_twin(&mut self, number: u64, entry: &Entry) {
        match (entry.kind, entry.sum) {
            (EntryKind::File, Some(sum)) if entry.names_follow && self.twins.len() < TWINS_MAX => {
                self.twins.insert(number, sum);
            }
            (EntryKind::HardLink, _) if !entry.names_follow => {
                self.twins.remove(&entry.twin);
            }
            _ => {}
        }
    }

    fn is_same(&self, entry: &Entry, expect: Sum) -> bool {
        let path = self.rename.as_ref().unwrap_or(&entry.path);
        let candidate = matches!(
            self.volume.status(path),
            Ok(Some(status))
                if status.kind == StatusKind::File && Some(status.size) == entry.file_bytes()
        );
        // A file that cannot be read is not known to be the same: it is judged as any other.
        let going = || !self.cancellation.is_cancelled();
        candidate && sum_of(&*self.volume, path, going).is_ok_and(|sum| sum == expect)
    }
}

/// The BLAKE3 of a file, or of an object.
pub(crate) fn sum_of(
    volume: &dyn Volume,
    path: &[u8],
    going: impl Fn() -> bool,
) -> Result<Sum, Fault> {
    let handle = volume.open(path, Access::Read { cache: Cache::Through })?;
    // A store is asked for as much as takes longer than to ask.
    let mut buffer = vec![0; if volume.waits() { REQUEST_BYTES } else { READ_BYTES }];
    let (mut hasher, mut at) = (blake3::Hasher::new(), 0);
    while going() {
        match volume.read_at(&handle, path, at, &mut buffer)? {
            0 => return Ok(*hasher.finalize().as_bytes()),
            count => {
                hasher.update(&buffer[..count]);
                at += count as u64;
            }
        }
    }
    Err(Fault::interrupted())
}

const READ_BYTES: usize = 1 << 20;
const REQUEST_BYTES: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::disk::Disk;
    use std::fs;

    #[test]
    fn only_the_same_bytes_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("same"), b"abc").unwrap();
        fs::write(path("other"), b"abd").unwrap();
        fs::write(path("longer"), b"abcd").unwrap();
        fs::create_dir(path("folder")).unwrap();
        let volume: Arc<dyn Volume> = Arc::new(Disk::open(folder.path()).unwrap());
        let entry = |name: &str| Entry {
            kind: EntryKind::File,
            size: 3,
            path: name.into(),
            sum: Some(*blake3::hash(b"abc").as_bytes()),
            ..Entry::default()
        };
        let names = ["other", "same", "longer", "missing", "folder"];
        let entries: Vec<Entry> = names.iter().map(|name| entry(name)).collect();
        let (cancellation, twins) = (Arc::default(), BTreeMap::new());
        let mut compare = Compare { volume, rename: None, cancellation, twins };
        assert_eq!(compare.same(&Message::Offer { first: 7, entries: entries.clone() }), [8]);
        let mut renamed = Compare { rename: Some(b"same".to_vec()), ..compare };
        assert_eq!(
            renamed.same(&Message::Offer { first: 0, entries: entries[3..4].to_vec() }),
            [0]
        );
        assert!(renamed.same(&Message::Ping).is_empty());
    }
}
