//! What earlier runs have left of the objects that are offered.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::io::store::NewObject;
use crate::io::volume::show;
use crate::pump::sink::journal::{Left, Origin, Partial, PriorRuns};
use crate::pump::sink::resume::{free_temporary, temporary};
use crate::pump::sink::{SinkSide, Target};
use crate::pump::source::walk::mtime_of;
use crate::wire::manifest::{Chunk, Entry, EntryKind};
use crate::wire::message::{HELD_RANGES_MAX, Message, RANGES_MAX, WantedRanges};
use base::extent::ExtentSet;
use base::fault::Fault;
use base::job::FileRange;
use base::limits::STRETCHES_MAX;
use base::settings::DigestKind;
use base::units::Bytes;

/// The ranges of a file outside of these.
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
    /// The name of an object until it is complete: the one that it has from an earlier run, or one
    /// that nobody else has.
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

    /// Warnings for the user.
    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        let mut warnings = std::mem::take(&mut self.warnings);
        warnings.extend(self.owners.take_warnings());
        warnings.extend(self.target.volume().iter().flat_map(|volume| volume.take_warnings()));
        warnings
    }

    /// True where an earlier run left some of this file.
    pub(super) fn is_begun(&self, path: &[u8]) -> bool {
        self.prior_runs.as_ref().is_some_and(|prior_runs| prior_runs.has(path))
    }

    /// Decides about what earlier runs began and nobody has offered now. Where names were left out
    /// it may be one of those; else its source is gone.
    pub(super) fn settle_unasked(&mut self) -> Option<String> {
        let unasked = self.prior_runs.as_ref().map_or(0, PriorRuns::unasked);
        if unasked == 0 || self.lacking > 0 {
            return None;
        }
        let stays = !self.settings.filters.is_empty();
        self.lacking += u64::from(stays);
        let what = format!("what earlier runs had brought of {unasked} files");
        Some(match stays {
            true => format!("{what} stays, as they were left out now: 'datapump clean' removes it"),
            false => format!("{what} is removed: they are not among what was copied now"),
        })
    }

    /// What it becomes where the destination is an object store, with what earlier runs have
    /// written of it.
    pub(super) fn new_object(
        &self,
        number: u64,
        entry: &Entry,
        partial: Option<&Partial>,
    ) -> Option<Arc<NewObject>> {
        self.target.volume()?.store()?;
        Some(Arc::new(NewObject {
            path: entry.path.clone(),
            size: (entry.kind != EntryKind::Pipe).then_some(entry.size),
            meta: self.metadata(entry),
            replace: self.replace(number),
            part_bytes: self.settings.request_bytes,
            prior: partial.and_then(Partial::continued),
        }))
    }

    /// Finds what earlier runs left of long files.
    pub(super) fn find_partials(&mut self, chunk: &Chunk, wanted: &[bool]) -> Result<(), Fault> {
        let (Some(prior_runs), Some(volume)) = (&mut self.prior_runs, self.target.volume()) else {
            return Ok(());
        };
        let slot = self.settings.request_bytes;
        for (member, entry) in chunk.entries.iter().enumerate() {
            if !wanted[member] || entry.kind != EntryKind::File || prior_runs.is_empty() {
                continue;
            }
            let name = temporary(&self.tag, &entry.path);
            let origin = origin_of(entry, self.settings.digest);
            let partial = match prior_runs.partial(&origin, slot, &name)? {
                Left::Part(partial) => partial,
                Left::Nothing => continue,
                Left::GivenUp { bytes, why } => {
                    let (name, bytes) = (show(&**volume, &entry.path), Bytes(bytes));
                    let text = format!("'{name}' begins anew, without {bytes} of it: {why}");
                    self.warnings.push(text);
                    continue;
                }
            };
            let there = if volume.store().is_some() { None } else { volume.status(&name)? };
            let number = chunk.first + member as u64;
            let has_room = there.map_or(0, |there| there.allocated_bytes);
            self.partial_rooms.insert(number, has_room);
            if entry.sparse {
                // Outside of all that the journal records, also where not all of it is reported:
                // another run will trust it.
                self.unknown.insert(number, gaps(&partial.flushed.ranges, entry.size));
            }
            let left = STRETCHES_MAX - self.stretches.values().sum::<usize>();
            let flushed = partial.flushed.longest(left);
            self.stretches.insert(number, flushed.ranges.range_count());
            self.partials.insert(number, Partial { flushed, ..partial });
        }
        Ok(())
    }

    /// What a run would find here of an object that an earlier one began.
    pub(super) fn would_hold(&mut self, number: u64, entry: &Entry) -> Result<u64, Fault> {
        let (Some(prior_runs), Some(volume)) = (&self.prior_runs, self.target.volume()) else {
            return Ok(0);
        };
        let held = prior_runs.would_continue(&origin_of(entry, self.settings.digest));
        if entry.kind != EntryKind::File || held == 0 {
            return Ok(0);
        }
        let there = volume.status(&temporary(&self.tag, &entry.path))?;
        self.partial_rooms.insert(number, there.map_or(0, |there| there.allocated_bytes));
        Ok(held)
    }

    /// The space that the missing bytes of an object need.
    pub(super) fn needed_bytes(&mut self, number: u64, entry: &Entry, missing: u64) -> u64 {
        let has_room = self.partial_rooms.remove(&number).unwrap_or(0);
        match entry.sparse {
            // What is here and not held frees its space before it is written again.
            true => entry.allocated_bytes.saturating_sub(has_room).min(missing),
            false => missing,
        }
    }

    /// What is wanted of a file where that is not all: its source hears that the rest is here.
    pub(super) fn range_of(&self, entry: &Entry) -> Option<&FileRange> {
        self.expected.range().filter(|_| entry.kind == EntryKind::File)
    }

    /// What is wanted of the objects of an offer, preceded by the ranges of those of which more are
    /// here than fit one message.
    pub(super) fn wanted_ranges(&self, chunk: &Chunk, wanted: &[bool]) -> Vec<Message> {
        let first = chunk.first;
        let mut messages = Vec::new();
        let mut inside = 0;
        let mut ranges_of = |number: u64, entry: &Entry| {
            if let Some(range) = self.range_of(entry) {
                return WantedRanges::Rest(range.outside());
            }
            let Some(partial) = self.partials.get(&number) else { return WantedRanges::All };
            let ranges: Vec<_> = partial.flushed.ranges.ranges().collect();
            if ranges.len() <= RANGES_MAX && inside + ranges.len() <= HELD_RANGES_MAX {
                inside += ranges.len();
                return WantedRanges::Rest(ranges);
            }
            let told = |some: &[(u64, u64)]| {
                let ranges = some.to_vec();
                Message::HeldRanges { object: number, ranges }
            };
            messages.extend(ranges.chunks(RANGES_MAX).map(told));
            WantedRanges::Rest(Vec::new())
        };
        let objects = (first..).zip(&chunk.entries);
        let wanted = objects.zip(wanted).map(|((number, entry), wanted)| match wanted {
            false => WantedRanges::Nothing,
            true => ranges_of(number, entry),
        });
        let wanted = wanted.collect();
        messages.push(Message::Want { first, wanted });
        messages
    }
}

/// How the journal identifies an offered file.
fn origin_of(entry: &Entry, digest: DigestKind) -> Origin {
    Origin { path: entry.path.clone(), size: entry.size, mtime: mtime_of(entry), digest }
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
