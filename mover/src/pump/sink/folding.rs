//! Names on a file system that takes names for one that differ only in case: two names of one copy
//! must not end as one file.

use std::collections::BTreeMap;

use crate::io::volume::{Volume, show};
use crate::pump::source::names::hash_of;
use crate::wire::manifest::{Entry, EntryKind};
use base::fault::{Class, Fault};

/// The names that a run has been offered so far.
#[derive(Debug, Default)]
pub(crate) struct Folding {
    /// By the hash of the name without its case: the hash of the name, or `FOLDER`, as folders
    /// become one without a loss.
    names: BTreeMap<u64, u64>,
}

impl Folding {
    /// None where capitals tell names apart.
    pub(crate) fn of(volume: Option<&dyn Volume>) -> Option<Folding> {
        volume.filter(|volume| volume.folds_case()).map(|_| Folding::default())
    }

    /// The refusal of a name that is another one's here.
    pub(crate) fn clash(&mut self, volume: &dyn Volume, entry: &Entry) -> Option<Fault> {
        let name = match entry.kind {
            EntryKind::Leave => return None,
            EntryKind::Directory => FOLDER,
            _ => hash_of(&entry.path) as u64 | 1,
        };
        let folded = hash_of(&without_case(&entry.path)) as u64;
        if self.names.len() >= NAMES_MAX && !self.names.contains_key(&folded) {
            return None;
        }
        if *self.names.entry(folded).or_insert(name) == name {
            return None;
        }
        let text = format!(
            "'{}' is not copied: this copy has another name that differs from it only in case, \
             and the file system there takes them for one: rename one of them",
            show(volume, &entry.path)
        );
        Some(Fault::new(Class::Local, text))
    }
}

/// As file systems that ignore case compare names, but for letters that only some of them know.
pub(crate) fn without_case(path: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(path) {
        Ok(text) => text.to_lowercase().into_bytes(),
        Err(_) => path.to_ascii_lowercase(),
    }
}

const FOLDER: u64 = 0;
/// As memory is bounded. Disks of this kind are small.
const NAMES_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::sim::{FaultRates, SimVolume, World};

    #[test]
    fn the_second_of_two_names_is_refused() {
        let volume = SimVolume::new(&World::new(1, FaultRates::default()), "/t");
        let mut folding = Folding::default();
        let cases = [
            ("README", EntryKind::File, false),
            ("README", EntryKind::File, false),
            ("readme", EntryKind::File, true),
            ("Readme", EntryKind::Link, true),
            ("readme", EntryKind::Directory, true),
            ("d", EntryKind::Directory, false),
            ("D", EntryKind::Directory, false),
            ("d/Ä", EntryKind::File, false),
            ("D/ä", EntryKind::HardLink, true),
            ("D/b", EntryKind::File, false),
            ("D", EntryKind::Leave, false),
        ];
        for (path, kind, expect) in cases {
            let entry = Entry { path: path.into(), kind, ..Entry::default() };
            assert_eq!(folding.clash(&volume, &entry).is_some(), expect, "{path} {kind:?}");
        }
    }
}
