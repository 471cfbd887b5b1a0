//! The shard that a worker has: what of it is left, staged, noted and committed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::PathBuf;

use super::destination::{Linked, Name, Spot};
use super::ledgers::Noted;
use super::records::{Committed, Failed, Shard};
use analysis::shards::overview::Waits;
use analysis::shards::{Claim, names};

/// A shard that this worker has.
#[derive(Debug)]
pub(super) struct ShardWork {
    pub(super) claim: Claim,
    pub(super) names: Vec<Vec<u8>>,
    pub(super) shard: Shard,
    pub(super) source: PathBuf,
    /// The source is far, so that a range is staged under the name of its file.
    pub(super) is_source_far: bool,
    pub(super) prefix: Vec<u8>,
    /// What earlier attempts have noted.
    pub(super) noted: Option<Noted>,
    /// What earlier attempts have given away, and what was predicted of all that is.
    pub(super) given: BTreeSet<Vec<u8>>,
    pub(super) given_ns: u64,
    pub(super) surveyed: usize,
    /// What is still to be copied.
    pub(super) left: BTreeMap<Vec<u8>, u64>,
    pub(super) staged: BTreeMap<u64, Staged>,
    /// Items that are noted, and what became of those that were linked with the one asked for.
    pub(super) noted_items: Vec<u64>,
    pub(super) linked: BTreeMap<u64, Linked>,
    pub(super) committed: BTreeMap<u64, Committed>,
    pub(super) failed: BTreeMap<u64, Failed>,
    pub(super) kept: u64,
    pub(super) moved_files: u64,
    pub(super) moved_bytes: u64,
    pub(super) ledger: Option<File>,
    /// Folders whose new names are not on stable storage yet.
    pub(super) unsynced: BTreeSet<Spot>,
    pub(super) began_s: f64,
    pub(super) waits: Waits,
}

/// What is complete in a staging folder.
#[derive(Clone, Debug)]
pub(super) struct Staged {
    pub(super) committed: Committed,
    /// Which try to copy it was, where each has a folder of its own.
    pub(super) copied_by: Option<usize>,
}

impl ShardWork {
    /// Where an item is in the staging folder.
    pub(super) fn staged_spot(&self, item: u64, copied_by: Option<usize>) -> Option<Spot> {
        let name = match (&self.shard.range, &self.shard.whole) {
            (None, None) => self.names.get(item as usize)?.clone(),
            (Some(_), None) if self.is_source_far => self.names.get(item as usize)?.clone(),
            _ => STAGED.to_vec(),
        };
        let name = match copied_by {
            Some(number) => [format!("{number}/").as_bytes(), &name].concat(),
            None => name,
        };
        Some(Spot::Staged { attempt: names::of_attempt(self.claim), name: Name(name) })
    }

    /// The final name of an item.
    pub(super) fn final_spot(&self, item: u64) -> Option<Spot> {
        let name = self.names.get(item as usize)?;
        Some(match self.shard.range {
            Some(_) => Spot::Part(self.claim.shard),
            None => Spot::Final(Name([&self.prefix, &name[..]].concat())),
        })
    }

    /// The final name of the file that it is a range of.
    pub(super) fn whole_of_range(&self) -> Option<Spot> {
        self.shard.range.as_ref()?;
        Some(Spot::Final(Name([&self.prefix, &self.names.first()?[..]].concat())))
    }

    /// What this attempt has staged.
    pub(super) fn copied_files(&self) -> u64 {
        self.moved_files + self.staged.len() as u64
    }

    /// Files, bytes, and files that failed. A range is no file: what failed of it is told by the
    /// shard that puts it together, and that one has no bytes of its own.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        let bytes = self.committed.values().map(|committed| committed.bytes).sum();
        let (files, failed) = match self.shard.range {
            Some(_) => (0, 0),
            None => (self.committed.len() as u64, self.failed.len() as u64),
        };
        (files, self.own_bytes(bytes), failed)
    }

    /// What is put together is no bytes of its own.
    pub(super) fn own_bytes(&self, bytes: u64) -> u64 {
        if self.shard.whole.is_some() { 0 } else { bytes }
    }
}

/// The name in the staging folder of what is no file that a copy has made.
pub(super) const STAGED: &[u8] = b"staged";
