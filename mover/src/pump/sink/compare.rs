//! Finds destination files that already have the bytes of their source. Reading them can take long,
//! so a separate thread does it, in the order of the offers.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use crate::io::volume::{Access, Cache, StatusKind, Volume};
use crate::pump::cancellation::Cancellation;
use crate::wire::manifest::{Entry, EntryKind};
use crate::wire::message::Message;
use base::fault::Fault;
use base::label::Sum;

/// Compares offered objects with what is at the destination.
#[derive(Debug)]
pub struct Compare {
    pub volume: Arc<dyn Volume>,
    /// The single object's name here, where it is another.
    pub rename: Option<Vec<u8>>,
    pub cancellation: Arc<Cancellation>,
}

impl Compare {
    /// The numbers of the objects of an offer that are at the destination, byte for byte.
    pub fn same(&self, message: &Message) -> Vec<u64> {
        let Message::Offer { first, entries } = message else { return Vec::new() };
        let numbered = (*first..).zip(entries);
        numbered.filter(|(_, entry)| self.is_same(entry)).map(|(number, _)| number).collect()
    }

    fn is_same(&self, entry: &Entry) -> bool {
        let path = self.rename.as_ref().unwrap_or(&entry.path);
        let Some(expect) = entry.sum.filter(|_| entry.kind == EntryKind::File) else {
            return false;
        };
        let candidate = matches!(
            self.volume.status(path),
            Ok(Some(status)) if status.kind == StatusKind::File && status.size == entry.size
        );
        // A file that cannot be read is not known to be the same: it is judged as any other.
        let going = || !self.cancellation.is_cancelled();
        candidate && sum_of(&*self.volume, path, going).is_ok_and(|sum| sum == expect)
    }
}

/// The BLAKE3 of a file.
pub(crate) fn sum_of(
    volume: &dyn Volume,
    path: &[u8],
    going: impl Fn() -> bool,
) -> Result<Sum, Fault> {
    let name = volume.root().join(crate::pump::source::walk::name_of(path));
    let handle = volume.open(path, Access::Read { cache: Cache::Through })?;
    let fd = handle.fd().try_clone_to_owned().map_err(|why| Fault::io("open", &name, &why))?;
    let mut file = File::from(fd);
    let mut buffer = vec![0; READ_BYTES];
    let mut hasher = blake3::Hasher::new();
    while going() {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(*hasher.finalize().as_bytes()),
            Ok(count) => hasher.update(&buffer[..count]),
            Err(why) if why.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(why) => return Err(Fault::io("read", &name, &why)),
        };
    }
    Err(Fault::interrupted())
}

const READ_BYTES: usize = 1 << 20;

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
        let compare = Compare { volume, rename: None, cancellation: Arc::default() };
        assert_eq!(compare.same(&Message::Offer { first: 7, entries: entries.clone() }), [8]);
        let renamed = Compare { rename: Some(b"same".to_vec()), ..compare };
        assert_eq!(
            renamed.same(&Message::Offer { first: 0, entries: entries[3..4].to_vec() }),
            [0]
        );
        assert!(renamed.same(&Message::Ping).is_empty());
    }
}
