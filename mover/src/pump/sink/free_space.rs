//! Whether what is wanted fits, on each file system that it is written to: another one may be
//! mounted anywhere below the destination.

use std::collections::BTreeMap;

use crate::io::volume::{Volume, show};
use crate::pump::sink::SinkSide;
use crate::pump::sink::target::Target;
use crate::wire::manifest::{Chunk, Entry, EntryKind};
use base::fault::{Class, Fault};
use base::job::FreeSpace;
use base::units::Bytes;

/// What is wanted, by the file system that it is written to.
#[derive(Debug, Default)]
pub(super) struct SpaceNeeded {
    by_file_system: BTreeMap<u64, Needed>,
}

#[derive(Debug, Default)]
struct Needed {
    /// A path on it.
    path: Vec<u8>,
    wanted_bytes: u64,
    /// Of these, what is missing of files that an earlier run began: they may have space for it.
    begun_bytes: u64,
    written_bytes: u64,
}

impl SpaceNeeded {
    /// An object at `path` needs this much, and may have space for some of it.
    pub(super) fn want(&mut self, file_system: u64, path: &[u8], needed: u64, begun: u64) {
        let all = self.by_file_system.entry(file_system).or_default();
        if all.path.is_empty() {
            all.path = path.to_vec();
        }
        all.wanted_bytes = all.wanted_bytes.saturating_add(needed);
        all.begun_bytes = all.begun_bytes.saturating_add(begun);
    }

    pub(super) fn record_written(&mut self, on: &BTreeMap<u64, u64>) {
        for (file_system, bytes) in on {
            self.by_file_system.entry(*file_system).or_default().written_bytes += bytes;
        }
    }
}

impl SinkSide {
    /// The file system that an object is written on. One without a directory to be in fails by its
    /// name, or the directory is one that a dry run does not make: that above it counts.
    pub(super) fn file_system_of(&self, path: &[u8]) -> u64 {
        let Some(volume) = self.target.volume() else { return 0 };
        let names = names_above(path).map(|name| volume.file_system_of(name));
        names.flatten().next().unwrap_or(0)
    }

    /// An object is wanted of which `missing` bytes are not `held` here.
    pub(super) fn want_space(&mut self, number: u64, entry: &Entry, held: u64, missing: u64) {
        let needed = self.needed_bytes(number, entry, missing);
        let begun = if held > 0 && !entry.sparse { missing } else { 0 };
        let file_system = self.file_system_of(&entry.path);
        self.space_needed.want(file_system, &entry.path, needed, begun);
    }

    /// What a run would want: a dry run counts the same, and reserves nothing.
    pub(super) fn note_space(&mut self, chunk: &Chunk, copied: &[bool]) -> Result<(), Fault> {
        for (member, entry) in chunk.entries.iter().enumerate() {
            if copied[member] && entry.kind != EntryKind::Pipe {
                let number = chunk.first + member as u64;
                let held = self.would_hold(number, entry)?.min(entry.size);
                self.want_space(number, entry, held, entry.size - held);
            }
        }
        Ok(())
    }

    /// Ends a transfer that cannot fit, before it begins where the size is known.
    pub(super) fn check_room(&self) -> Result<(), Fault> {
        if self.settings.dry_run {
            return Ok(()); // it tells all that it would do, and then this
        }
        let Some(volume) = self.target.volume() else { return Ok(()) };
        let Some(lack) = self.lacking_space(&**volume)? else { return Ok(()) };
        let place = match volume.file_system_of(b"").ok() == Some(lack.file_system) {
            true => volume.root().display().to_string(),
            false => format!("the file system of {}", show(&**volume, lack.path)),
        };
        let text = format!(
            "'{place}' has no room: {} are still to come, {} are free, {} are missing",
            Bytes(lack.needed_bytes),
            Bytes(lack.free_bytes),
            Bytes(lack.needed_bytes - lack.free_bytes)
        );
        Err(Fault::new(Class::NoSpace, text))
    }

    /// What a dry run found, where the destination is on file systems.
    pub fn room(&self) -> FreeSpace {
        let (Target::Tree { volume, .. } | Target::Absent { volume }) = &self.target else {
            return FreeSpace::default();
        };
        if volume.store().is_some() {
            return FreeSpace::default();
        }
        match self.lacking_space(&**volume) {
            Ok(Some(lack)) => FreeSpace {
                free_bytes: Some(lack.free_bytes),
                missing_bytes: lack.needed_bytes - lack.free_bytes,
            },
            _ => FreeSpace { free_bytes: volume.free_bytes(b"").ok(), missing_bytes: 0 },
        }
    }

    /// The first file system with less space than is needed.
    fn lacking_space(&self, volume: &dyn Volume) -> Result<Option<Lack<'_>>, Fault> {
        for (file_system, needed) in &self.space_needed.by_file_system {
            let missing = needed.wanted_bytes.saturating_sub(needed.written_bytes);
            let free_bytes = match self.free_bytes(volume, &needed.path) {
                Ok(free) => free,
                Err(fault) if fault.ends_transfer() => return Err(fault),
                Err(_) => continue, // its directory is gone: the objects report it
            };
            if missing <= free_bytes {
                continue;
            }
            // Free space excludes reserved space. In this order nothing is counted twice.
            let reserved = self.objects.reserved_bytes(*file_system);
            let needed_bytes = missing.saturating_sub(reserved.saturating_add(needed.begun_bytes));
            if needed_bytes > free_bytes {
                let (file_system, path) = (*file_system, &needed.path[..]);
                return Ok(Some(Lack { file_system, path, needed_bytes, free_bytes }));
            }
        }
        Ok(None)
    }

    /// Where a path is, or would be: a dry run does not make its directory, and of a destination
    /// that it does not make either only the volume is known.
    fn free_bytes(&self, volume: &dyn Volume, path: &[u8]) -> Result<u64, Fault> {
        match (&self.target, self.settings.dry_run) {
            (Target::Absent { .. }, _) => volume.free_bytes(b""),
            (_, false) => volume.free_bytes(path),
            (_, true) => {
                let found = names_above(path).find_map(|name| volume.free_bytes(name).ok());
                found.map_or_else(|| volume.free_bytes(path), Ok)
            }
        }
    }
}

/// A path, and those above it, the root as the last.
fn names_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    fn above<'a>(path: &&'a [u8]) -> Option<&'a [u8]> {
        let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        (!path.is_empty()).then(|| &path[..end])
    }
    std::iter::successors(Some(path), above)
}

struct Lack<'a> {
    file_system: u64,
    /// A path on it.
    path: &'a [u8],
    needed_bytes: u64,
    free_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_followed_by_those_above_it() {
        let cases: [(&[u8], &[&[u8]]); 3] =
            [(b"a/b/c", &[b"a/b/c", b"a/b", b"a", b""]), (b"a", &[b"a", b""]), (b"", &[b""])];
        for (path, expect) in cases {
            assert_eq!(names_above(path).collect::<Vec<_>>(), expect);
        }
    }
}
