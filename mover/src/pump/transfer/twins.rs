//! Files with several names: of a further name the user is told the digests of its file.

use std::collections::BTreeMap;

use crate::wire::manifest::{Entry, EntryKind};
use base::extra::ExtraSums;
use base::label::Sum;
use base::limits::TWINS_MAX;

/// The digests of an object, as far as they are known.
pub(super) type Sums = (Option<Sum>, ExtraSums);

/// Files of which more names may come, by the number of their first name.
#[derive(Debug, Default)]
pub(super) struct Twins {
    files: BTreeMap<u64, File>,
    /// Further names that are not settled, with the number of the first.
    names: BTreeMap<u64, u64>,
}

#[derive(Debug, Default)]
struct File {
    sums: Sums,
    /// Further names that have been offered and are not settled.
    open: u32,
    names_follow: bool,
}

impl Twins {
    pub(super) fn note_offer(&mut self, first: u64, entries: &[Entry]) {
        for (number, entry) in (first..).zip(entries) {
            match entry.kind {
                EntryKind::File if entry.names_follow && self.files.len() < TWINS_MAX => {
                    self.files.insert(number, File { names_follow: true, ..File::default() });
                }
                EntryKind::HardLink => {
                    if let Some(file) = self.files.get_mut(&entry.twin) {
                        file.open += 1;
                        file.names_follow = entry.names_follow;
                        self.names.insert(number, entry.twin);
                    }
                }
                _ => {}
            }
        }
    }

    /// An object is settled, well or not: its own digests, or those of the file that it names. The
    /// file's first name is settled before any other.
    pub(super) fn settle(&mut self, number: u64, sums: Sums) -> Sums {
        if let Some(file) = self.files.get_mut(&number) {
            file.sums = sums;
            return sums;
        }
        let Some(twin) = self.names.remove(&number) else { return sums };
        let file = self.files.get_mut(&twin).expect("kept while a name of it is open");
        file.open -= 1;
        let sums = file.sums;
        if file.open == 0 && !file.names_follow {
            self.files.remove(&twin);
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Sums = (None, ExtraSums::NONE);

    fn file() -> Entry {
        Entry { kind: EntryKind::File, names_follow: true, ..Entry::default() }
    }

    fn name(twin: u64, names_follow: bool) -> Entry {
        Entry { kind: EntryKind::HardLink, twin, names_follow, ..Entry::default() }
    }

    #[test]
    fn further_names_have_the_digests_of_their_file() {
        let (mut twins, sums) = (Twins::default(), (Some([7; 32]), ExtraSums::NONE));
        twins.note_offer(5, &[file(), name(5, true), Entry::default(), name(5, false)]);
        assert_eq!(twins.settle(5, sums), sums);
        assert_eq!(twins.settle(7, NONE), NONE, "a file of one name");
        // The last name that was offered may be settled before one that was offered earlier.
        assert_eq!(twins.settle(8, NONE), sums);
        assert_eq!(twins.settle(6, NONE), sums);
        assert!(twins.files.is_empty() && twins.names.is_empty());
    }
}
