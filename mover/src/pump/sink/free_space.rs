//! Whether what is wanted fits, on each file system that it is written to: another one may be
//! mounted anywhere below the destination.

use std::collections::BTreeMap;

use crate::io::volume::show;
use crate::pump::sink::SinkSide;
use base::fault::{Class, Fault};
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
    /// name; until then it is counted with the others.
    pub(super) fn file_system_of(&self, path: &[u8]) -> u64 {
        let Some(volume) = self.target.volume() else { return 0 };
        let found = volume.file_system_of(path);
        found.or_else(|_| volume.file_system_of(b"")).unwrap_or(0)
    }

    /// Ends a transfer that cannot fit, before it begins where the size is known.
    pub(super) fn check_room(&self) -> Result<(), Fault> {
        let Some(volume) = self.target.volume() else { return Ok(()) };
        for (file_system, needed) in &self.space_needed.by_file_system {
            let missing = needed.wanted_bytes.saturating_sub(needed.written_bytes);
            let free = match volume.free_bytes(&needed.path) {
                Ok(free) => free,
                Err(fault) if fault.ends_transfer() => return Err(fault),
                Err(_) => continue, // its directory is gone: the objects report it
            };
            if missing <= free {
                continue;
            }
            // Free space excludes reserved space. In this order nothing is counted twice.
            let reserved = self.objects.reserved_bytes(*file_system);
            let missing = missing.saturating_sub(reserved.saturating_add(needed.begun_bytes));
            if missing <= free {
                continue;
            }
            let is_root = volume.file_system_of(b"").ok() == Some(*file_system);
            let place = match is_root {
                true => volume.root().display().to_string(),
                false => format!("the file system of {}", show(&**volume, &needed.path)),
            };
            let text = format!(
                "'{place}' has no room: {} are still to come, {} are free, {} are missing",
                Bytes(missing),
                Bytes(free),
                Bytes(missing - free)
            );
            return Err(Fault::new(Class::NoSpace, text));
        }
        Ok(())
    }
}
