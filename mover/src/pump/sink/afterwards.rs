//! Objects that wait for others: another name for its file, a directory for all that is in it.

use std::collections::{BTreeMap, BTreeSet};

use crate::pump::sink::wanted::Wanted;
use base::extent::ExtentSet;

/// The end of an object that others wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Well,
    Failed,
}

/// An object that can be made now. A name of a file that failed can only fail.
#[derive(Debug)]
pub enum Ready {
    Go(Wanted),
    TwinFailed(Wanted),
}

/// The order of objects without bytes. It holds only what is in flight.
#[derive(Debug, Default)]
pub(crate) struct Afterwards {
    /// Objects that are not finished: a directory waits while one with a lower number is not.
    unsettled: BTreeSet<u64>,
    directories: BTreeMap<u64, Wanted>,
    /// By the number of the object that they are other names of.
    names: BTreeMap<u64, Vec<Wanted>>,
    /// Numbers of failed objects, so that no name is given to a wrong file.
    failed: ExtentSet,
}

impl Afterwards {
    /// An object is open until `settle`.
    pub(crate) fn open(&mut self, number: u64) {
        self.unsettled.insert(number);
    }

    /// A directory, to be left when everything before it is finished.
    pub(crate) fn leave(&mut self, directory: Wanted) {
        self.directories.insert(directory.number, directory);
    }

    /// Another name of `twin`. It is ready at once unless that is still open.
    pub(crate) fn name(&mut self, twin: u64, name: Wanted) -> Option<Ready> {
        if self.unsettled.contains(&twin) {
            self.names.entry(twin).or_default().push(name);
            return None;
        }
        Some(match self.failed.contains(twin) {
            true => Ready::TwinFailed(name),
            false => Ready::Go(name),
        })
    }

    pub(crate) fn has_failed(&self, number: u64) -> bool {
        self.failed.contains(number)
    }

    /// An object is finished: what waited for it alone is ready.
    pub(crate) fn settle(&mut self, number: u64, end: Ended) -> Vec<Ready> {
        self.unsettled.remove(&number);
        if end == Ended::Failed {
            assert!(self.failed.insert_new(number, number + 1), "object {number} failed twice");
        }
        let waited = self.names.remove(&number).unwrap_or_default();
        let ready = |name| match end {
            Ended::Well => Ready::Go(name),
            Ended::Failed => Ready::TwinFailed(name),
        };
        waited.into_iter().map(ready).collect()
    }

    /// Directories that can be left now, in their order. They are left one after the other, so
    /// that the next need not wait for the end of the one before.
    pub(crate) fn ready_directories(&mut self) -> Vec<Wanted> {
        let mut ready = Vec::new();
        while let Some(lowest) = self.unsettled.first().copied() {
            let Some(directory) = self.directories.remove(&lowest) else { break };
            self.unsettled.remove(&lowest);
            ready.push(directory);
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::volume::{Metadata, Mtime, Replace};
    use crate::wire::manifest::EntryKind;

    fn wanted(number: u64) -> Wanted {
        Wanted {
            mtime: Mtime::default(),
            begun: None,
            number,
            kind: EntryKind::File,
            path: Vec::new(),
            temporary: Vec::new(),
            size: 0,
            range: None,
            file: None,
            meta: Metadata::default(),
            replace: Replace::Never,
            twin: Vec::new(),
            sparse: false,
            stays: false,
            file_system: 0,
            new: None,
        }
    }

    fn numbers(directories: &[Wanted]) -> Vec<u64> {
        directories.iter().map(|directory| directory.number).collect()
    }

    #[test]
    fn directories_wait_for_all_before_them() {
        let mut afterwards = Afterwards::default();
        for number in [1, 2, 3, 5, 6] {
            afterwards.open(number);
        }
        for number in [3, 5, 6] {
            afterwards.leave(wanted(number));
        }
        assert!(afterwards.ready_directories().is_empty());
        afterwards.settle(2, Ended::Failed);
        assert!(afterwards.ready_directories().is_empty());
        afterwards.settle(1, Ended::Well);
        assert_eq!(numbers(&afterwards.ready_directories()), [3, 5, 6]);
        assert!(afterwards.ready_directories().is_empty());
    }

    #[test]
    fn names_wait_for_their_file() {
        // Whether the file is open when the name comes, how it ends, whether the name is made.
        let cases = [
            (true, Ended::Well, true),
            (true, Ended::Failed, false),
            (false, Ended::Well, true),
            (false, Ended::Failed, false),
        ];
        for (open, end, made) in cases {
            let mut afterwards = Afterwards::default();
            if open {
                afterwards.open(4);
            } else {
                afterwards.settle(4, end);
            }
            let ready = match afterwards.name(4, wanted(9)) {
                Some(ready) => ready,
                None => afterwards.settle(4, end).remove(0),
            };
            assert_eq!(matches!(ready, Ready::Go(_)), made, "{open} {end:?}");
        }
    }
}
