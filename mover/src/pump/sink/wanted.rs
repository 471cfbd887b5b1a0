//! What is known of an object that is wanted, and how its file is opened.

use std::ops::Range;
use std::sync::Arc;

use crate::io::store::NewObject;
use crate::io::volume::{Access, Cache, LazyFile, Metadata, Mtime, Replace, Volume};
use crate::pump::sink::journal::{Origin, Partial};
use crate::pump::sink::{SinkSide, Target};
use crate::pump::source::walk::mtime_of;
use crate::wire::manifest::{Chunk, Entry, EntryKind};
use base::limits::DIRECT_BYTES_MIN;
use base::settings::{DigestKind, Direct, Overwrite, Preallocate};

/// An object that is wanted here.
#[derive(Debug)]
pub struct Wanted {
    pub number: u64,
    pub kind: EntryKind,
    /// Its name at the target, and its name until it is complete.
    pub path: Vec<u8>,
    pub temporary: Vec<u8>,
    pub size: u64,
    /// What of it is wanted, where that is not all: its file has these bytes and no others.
    pub range: Option<Range<u64>>,
    /// `None` for null and pipes, and for small files, which a batch writes.
    pub file: Option<Arc<LazyFile>>,
    pub meta: Metadata,
    pub replace: Replace,
    /// When its source was last changed.
    pub mtime: Mtime,
    /// Its number in the journal, where an earlier run began it.
    pub begun: Option<u32>,
    /// The name of the file that a hard link is another name of; empty for anything else.
    pub twin: Vec<u8>,
    /// Extents of it may be holes.
    pub sparse: bool,
    /// A directory that stays as it is, and is only synced.
    pub stays: bool,
    /// The file system that it is written on; 0 where there is none.
    pub file_system: u64,
    /// What it becomes in an object store.
    pub new: Option<Arc<NewObject>>,
}

impl Wanted {
    /// The length of its file.
    pub(crate) fn bytes(&self) -> u64 {
        self.range.as_ref().map_or(self.size, |range| range.end - range.start)
    }

    /// How the journal identifies it.
    pub fn origin(&self, digest: DigestKind) -> Origin {
        Origin { path: self.path.clone(), size: self.size, mtime: self.mtime, digest }
    }
}

/// Whether an object's bytes come in requests of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storage<'a> {
    /// With what an earlier run left of it, where one began it.
    OwnFile {
        begun: Option<&'a Partial>,
    },
    Batch,
}

impl SinkSide {
    pub(super) fn wanted(&self, chunk: &Chunk, member: usize, storage: Storage<'_>) -> Wanted {
        let entry = &chunk.entries[member];
        let number = chunk.first + member as u64;
        let partial = match storage {
            Storage::OwnFile { begun } => begun,
            Storage::Batch => None,
        };
        let begun = partial.map(|partial| partial.file);
        let temporary = self.temporary_of(entry, begun);
        let new = self.new_object(number, entry, partial);
        let range = self.range_of(entry).map(|range| range.bytes.clone());
        let here = range.clone().unwrap_or(0..entry.size);
        let bytes = here.end - here.start;
        let file = match (&self.target, storage) {
            (Target::Tree { volume, .. }, Storage::OwnFile { .. }) => {
                let access = self.access(&**volume, (entry, bytes), begun);
                let file = LazyFile::new(volume.clone(), temporary.clone(), access, None)
                    .known_by(partial.map(|partial| partial.made))
                    .becoming(new.clone())
                    .beginning_at(here.start);
                // Zeros are not written: where a run continues, unknown ranges become holes first.
                // An object of a store has none.
                let unknown = || self.unknown.get(&number).cloned().unwrap_or_default();
                let has_holes = entry.sparse && new.is_none();
                Some(Arc::new(if has_holes { file.hollow(bytes, unknown()) } else { file }))
            }
            _ => None,
        };
        let twin = match entry.kind {
            EntryKind::HardLink => entry.link_target.clone(),
            _ => Vec::new(),
        };
        Wanted {
            number,
            kind: entry.kind,
            path: entry.path.clone(),
            temporary,
            size: entry.size,
            range,
            file,
            meta: self.metadata(entry),
            replace: self.replace(number),
            mtime: mtime_of(entry),
            begun,
            twin,
            sparse: entry.sparse,
            stays: self.stays(entry),
            file_system: self.file_system_of(&entry.path),
            new,
        }
    }

    fn access(
        &self,
        volume: &dyn Volume,
        (entry, bytes): (&Entry, u64),
        begun: Option<u32>,
    ) -> Access {
        let around = match self.settings.direct {
            Direct::On => true,
            Direct::Off => false,
            // A pipe's length is not known; its bytes go through the cache.
            Direct::Auto => {
                volume.waits() && entry.kind == EntryKind::File && bytes >= DIRECT_BYTES_MIN
            }
        };
        let cache = if around { Cache::Around } else { Cache::Through };
        if begun.is_some() {
            return Access::Resume { cache };
        }
        let fixed = entry.kind != EntryKind::Pipe && !entry.sparse;
        let reserve = fixed
            && match self.settings.preallocate {
                Preallocate::On => true,
                Preallocate::Auto => around,
                Preallocate::Off => false,
            };
        Access::Create { cache, reserve: reserve.then_some(bytes) }
    }

    pub(super) fn replace(&self, number: u64) -> Replace {
        match self.settings.overwrite {
            _ if self.blocked.contains(&number) => Replace::AnyKind,
            Overwrite::Never => Replace::Never,
            Overwrite::Older | Overwrite::Always => Replace::Allowed,
        }
    }
}
