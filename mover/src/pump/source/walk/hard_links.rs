//! Files with several names: each is offered once, and its other names as such.

use std::collections::BTreeMap;

use crate::pump::source::walk::listing::Meta;

/// What a further name of a file is offered as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamesOfFile {
    /// As another name of that file.
    Joined,
    /// As a file of its own.
    Apart,
}

/// Files with several names, until all of these have been seen.
#[derive(Debug)]
pub(super) struct HardLinks {
    seen: BTreeMap<(u64, u64), Twin>,
    most: usize,
}

#[derive(Debug)]
struct Twin {
    number: u64,
    first: Vec<u8>,
    /// Names that have not been seen. Some may be outside of what is copied.
    left: u64,
}

impl HardLinks {
    pub(super) fn new(names: NamesOfFile) -> HardLinks {
        let most = match names {
            NamesOfFile::Joined => TWINS_MAX,
            NamesOfFile::Apart => 0,
        };
        HardLinks { seen: BTreeMap::new(), most }
    }

    /// The first name of the same file, if it was seen; else this one is stored.
    pub(super) fn meet(&mut self, meta: &Meta, number: u64, path: &[u8]) -> Option<(u64, Vec<u8>)> {
        if meta.names() < 2 {
            return None;
        }
        let inode = meta.inode();
        let Some(twin) = self.seen.get_mut(&inode) else {
            if self.seen.len() < self.most {
                let twin = Twin { number, first: path.to_vec(), left: meta.names() - 1 };
                self.seen.insert(inode, twin);
            }
            return None;
        };
        twin.left -= 1;
        let met = (twin.number, twin.first.clone());
        if twin.left == 0 {
            self.seen.remove(&inode);
        }
        Some(met)
    }
}

/// The limit for files with names that have not been seen. Above it a further name is copied as a
/// file of its own, as memory is bounded.
const TWINS_MAX: usize = 1 << 19;
