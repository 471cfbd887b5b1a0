//! What earlier runs have left of the objects that are offered.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use super::super::resume::{free_temporary, temporary};
use super::{SinkSide, Target, origin_of};
use crate::base::extent::ExtentSet;
use crate::base::fault::Fault;
use crate::wire::manifest::{Chunk, Entry, EntryKind};
use crate::wire::message::{HELD_RANGES_MAX, Wish};

/// What a file has besides these stretches.
pub(super) fn gaps(held: &ExtentSet, size: u64) -> Vec<Range<u64>> {
    let mut gaps = Vec::new();
    let mut at = 0;
    for (start, end) in held.ranges().chain([(size, size)]) {
        if at < start {
            gaps.push(at..start);
        }
        at = end;
    }
    gaps
}

impl SinkSide {
    /// The name under which an object is kept until it is complete: the one that it has from an
    /// earlier run, or one that nobody else has.
    pub(super) fn temporary_of(&self, entry: &Entry, begun: Option<u32>) -> Vec<u8> {
        match &self.target {
            Target::Tree { volume, .. } if begun.is_none() && entry.kind != EntryKind::Leave => {
                free_temporary(&**volume, &self.tag, &entry.path)
            }
            _ => temporary(&self.tag, &entry.path),
        }
    }

    pub(super) fn hold(&mut self, bytes: u64) {
        if self.alone {
            self.watch.gauge.files_held.fetch_add(1, Relaxed);
        }
        self.note_held_bytes(bytes);
    }

    pub(super) fn note_held_bytes(&self, bytes: u64) {
        if self.alone {
            let gauge = &self.watch.gauge;
            gauge.bytes_found.fetch_add(bytes, Relaxed);
            gauge.bytes_done.fetch_add(bytes, Relaxed);
            gauge.bytes_held.fetch_add(bytes, Relaxed);
        }
    }

    /// Looks for what earlier runs left of long files.
    pub(super) fn find_partials(&mut self, chunk: &Chunk, wanted: &[bool]) -> Result<(), Fault> {
        let (Some(past), Some(volume)) = (&mut self.past, self.target.volume()) else {
            return Ok(());
        };
        let slot = self.settings.request_bytes;
        let mut ranges = 0;
        for (member, entry) in chunk.entries.iter().enumerate() {
            if !wanted[member] || entry.kind != EntryKind::File || past.is_empty() {
                continue;
            }
            let name = temporary(&self.tag, &entry.path);
            let origin = origin_of(entry, self.settings.digest);
            let mut has_room = 0;
            let look = || {
                let there = volume.status(&name)?;
                has_room = there.map_or(0, |there| there.allocated_bytes);
                Ok(there)
            };
            let Some(partial) = past.partial(&origin, slot, look)? else {
                continue;
            };
            ranges += partial.flushed.ranges.range_count();
            if ranges <= HELD_RANGES_MAX {
                let number = chunk.first + member as u64;
                self.partials.insert(number, partial);
                self.partial_rooms.insert(number, has_room);
            }
        }
        Ok(())
    }

    /// The room that what is missing of an object needs.
    pub(super) fn needed_bytes(&mut self, number: u64, entry: &Entry, missing: u64) -> u64 {
        let has_room = self.partial_rooms.remove(&number).unwrap_or(0);
        match entry.sparse {
            // What is here and not held gives its room back before it is written again.
            true => entry.allocated_bytes.saturating_sub(has_room).min(missing),
            false => missing,
        }
    }

    pub(super) fn wishes(&self, first: u64, wanted: &[bool]) -> Vec<Wish> {
        let wish = |(number, wanted): (u64, &bool)| match (wanted, self.partials.get(&number)) {
            (false, _) => Wish::Nothing,
            (true, None) => Wish::All,
            (true, Some(partial)) => Wish::Rest(partial.flushed.ranges.ranges().collect()),
        };
        (first..).zip(wanted).map(wish).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Stretches = &'static [(u64, u64)];

    #[test]
    fn gaps_are_what_is_not_held() {
        let cases: [(Stretches, Stretches); 4] = [
            (&[], &[(0, 100)]),
            (&[(0, 100)], &[]),
            (&[(10, 20), (30, 100)], &[(0, 10), (20, 30)]),
            (&[(0, 10), (40, 50)], &[(10, 40), (50, 100)]),
        ];
        for (held, expect) in cases {
            let mut set = ExtentSet::default();
            held.iter().for_each(|(start, end)| assert!(set.insert_new(*start, *end)));
            let found: Vec<_> =
                gaps(&set, 100).into_iter().map(|gap| (gap.start, gap.end)).collect();
            assert_eq!(found, expect, "{held:?}");
        }
    }
}
