//! Files with several names: each is offered once, and its other names as such.

use std::collections::BTreeMap;

use crate::pump::source::walk::listing::Meta;
use base::limits::TWINS_MAX;
use base::settings::Settings;

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
    pub(super) fn new(settings: &Settings) -> HardLinks {
        let most = if settings.names_apart { 0 } else { TWINS_MAX };
        HardLinks { seen: BTreeMap::new(), most }
    }

    /// What a name of a file is: the first, which is stored, or another one of a name that was.
    pub(super) fn meet(&mut self, meta: &Meta, number: u64, path: &[u8]) -> Met {
        if meta.names() < 2 {
            return Met::Only;
        }
        let inode = meta.inode();
        let Some(twin) = self.seen.get_mut(&inode) else {
            if self.seen.len() >= self.most {
                return Met::Only;
            }
            let twin = Twin { number, first: path.to_vec(), left: meta.names() - 1 };
            self.seen.insert(inode, twin);
            return Met::First;
        };
        twin.left -= 1;
        let names_follow = twin.left > 0;
        let met = Met::Again { twin: twin.number, first: twin.first.clone(), names_follow };
        if !names_follow {
            self.seen.remove(&inode);
        }
        met
    }
}

/// What is known of a name of a file.
pub(super) enum Met {
    /// No other is known, or none is joined with it.
    Only,
    First,
    Again {
        twin: u64,
        first: Vec<u8>,
        names_follow: bool,
    },
}
