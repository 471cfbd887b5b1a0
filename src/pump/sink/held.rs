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
            let Some(partial) = past.partial(&origin, slot, || volume.status(&name))? else {
                continue;
            };
            ranges += partial.flushed.ranges.range_count();
            if ranges <= HELD_RANGES_MAX {
                self.partials.insert(chunk.first + member as u64, partial);
            }
        }
        Ok(())
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

    #[test]
    fn gaps_are_what_is_not_held() {
        let cases: [(&[(u64, u64)], &[Range<u64>]); 4] = [
            (&[], &[0..100]),
            (&[(0, 100)], &[]),
            (&[(10, 20), (30, 100)], &[0..10, 20..30]),
            (&[(0, 10), (40, 50)], &[10..40, 50..100]),
        ];
        for (held, expect) in cases {
            let mut set = ExtentSet::default();
            held.iter().for_each(|(start, end)| assert!(set.insert_new(*start, *end)));
            assert_eq!(gaps(&set, 100), expect, "{held:?}");
        }
    }
}
