//! What earlier runs left of objects of a store: parts of uploads, which cannot be read back. One
//! is trusted where the store lists it as it acknowledged it.

use std::sync::Arc;

use crate::io::store::{Store, Upload, UploadedPart};
use crate::pump::sink::journal::prior_runs::Lost;
use crate::pump::sink::journal::record::{ID_BYTES_MAX, TAG_BYTES_MAX};
use crate::pump::sink::journal::{
    ExtentSet, Held, Journal, LIST_MAX, Partial, RECORD_BYTES_MAX, Record,
};
use base::fault::Fault;
use base::settings::Cut;

/// The size of parts, and the digest, of the upload of which most is there: another size would
/// number its parts in another way.
pub(super) fn cut_for<'a>(
    partials: impl Iterator<Item = &'a Partial>,
    cut: Cut,
    request_bytes_max: u32,
) -> Cut {
    let most = partials
        .filter(|partial| partial.upload.is_some() && partial.request_bytes <= request_bytes_max)
        .max_by_key(|partial| partial.bytes());
    most.map_or(cut, |partial| Cut { request_bytes: partial.request_bytes, ..cut })
}

/// Asks the store what it has of an upload. What it does not list as it was written is forgotten;
/// the upload itself where it is gone.
pub(super) fn prepare(store: &dyn Store, partial: &mut Partial) -> Result<Option<Lost>, Fault> {
    let written = std::mem::take(&mut partial.written);
    // What a store has acknowledged is kept.
    let new: Vec<_> = written.ranges.ranges().collect();
    if !new.is_empty() && !partial.flushed.add(&new, &written.nodes) {
        partial.flushed = Held::default();
    }
    let Some(upload) = &partial.upload else { return Ok(None) };
    let path = &partial.origin.path;
    let listed = match store.parts(path, &upload.id) {
        Err(fault) if fault.ends_transfer() => return Err(fault),
        Ok(Some(listed)) => listed,
        // It cannot be continued, whatever else it is.
        Ok(None) | Err(_) => {
            partial.upload = None;
            return Ok(None);
        }
    };
    let mut found = upload.found(partial.request_bytes, &listed);
    let mut there = ExtentSet::default();
    found.parts.retain(|offset, part| {
        part.len > 0 && there.insert_new(*offset, offset.saturating_add(part.len))
    });
    let before = partial.flushed.ranges.total();
    let gone: Vec<_> = outside(&partial.flushed.ranges, &there);
    partial.flushed = partial.flushed.without(&gone);
    partial.upload = Some(Arc::new(found));
    let bytes = before - partial.flushed.ranges.total();
    Ok((bytes > 0).then(|| Lost { path: path.clone(), bytes }))
}

/// Why nothing of an upload can be used, where that is so.
pub(super) fn unusable(partial: &Partial, slot_bytes: u32) -> Option<&'static str> {
    match partial.upload {
        None => Some("the store does not have its parts any more"),
        Some(_) if partial.request_bytes != slot_bytes => Some("it was cut into other parts"),
        Some(_) => None,
    }
}

impl Partial {
    /// What a record says of its upload.
    pub(super) fn note_upload(&mut self, record: Record) {
        match record {
            Record::Upload { id, .. } => {
                self.upload = Some(Arc::new(Upload { id, ..Upload::default() }));
            }
            Record::Parts { parts, .. } => {
                if let Some(upload) = &mut self.upload {
                    Arc::make_mut(upload).parts.extend(parts);
                }
            }
            Record::Completing { .. } => self.is_completing = true,
            _ => {}
        }
    }

    /// The upload that this run continues: only parts of ranges that are not sent again count as
    /// written.
    pub(crate) fn continued(&self) -> Option<Arc<Upload>> {
        let mut upload = Upload::clone(self.upload.as_deref()?);
        for (offset, part) in std::mem::take(&mut upload.parts) {
            let end = self.flushed.ranges.end_of(offset);
            match end.is_some_and(|end| offset.saturating_add(part.len) <= end) {
                true => upload.parts.insert(offset, part),
                false => upload.unproved.insert(offset, part),
            };
        }
        Some(Arc::new(upload))
    }
}

impl Journal {
    /// Records parts of the upload that writes a file, and the upload itself when it is new.
    pub(crate) fn parts(&mut self, file: u32, upload: Upload, is_new: bool) -> Result<(), Fault> {
        if upload.id.len() > ID_BYTES_MAX {
            return Ok(()); // nothing that is said of it could be used
        }
        if is_new {
            self.add(&Record::Upload { file, id: upload.id })?;
        }
        let fits = |(_, part): &(u64, UploadedPart)| part.tag.len() <= TAG_BYTES_MAX;
        let parts: Vec<_> = upload.parts.into_iter().filter(fits).collect();
        let record = |some: &[(u64, UploadedPart)]| Record::Parts { file, parts: some.to_vec() };
        parts.chunks(PARTS_MAX).try_for_each(|some| self.add(&record(some)))
    }

    /// Recorded before the store is asked: it may carry that out after this run has ended.
    pub(crate) fn completing(&mut self, file: u32) -> Result<(), Fault> {
        self.add(&Record::Completing { file })
    }
}

/// Parts of one record, which is short enough then.
const PARTS_MAX: usize = 1024;
const _: () = assert!(PARTS_MAX * (26 + TAG_BYTES_MAX) < RECORD_BYTES_MAX && PARTS_MAX <= LIST_MAX);

/// The ranges of `all` that are not in `some`.
fn outside(all: &ExtentSet, some: &ExtentSet) -> Vec<(u64, u64)> {
    let mut outside = Vec::new();
    for (start, end) in all.ranges() {
        let mut at = start;
        for (from, to) in some.ranges().filter(|(from, to)| *from < end && start < *to) {
            if at < from {
                outside.push((at, from));
            }
            at = at.max(to);
        }
        if at < end {
            outside.push((at, end));
        }
    }
    outside
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::store::{ListedPart, UploadedPart};

    fn set(ranges: &[(u64, u64)]) -> ExtentSet {
        let mut set = ExtentSet::default();
        ranges.iter().for_each(|(start, end)| assert!(set.insert_new(*start, *end)));
        set
    }

    type Ranges = &'static [(u64, u64)];

    #[test]
    fn what_is_not_there_is_outside() {
        let cases: [(Ranges, Ranges, Ranges); 5] = [
            (&[(0, 100)], &[(0, 100)], &[]),
            (&[(0, 100)], &[], &[(0, 100)]),
            (&[(0, 100)], &[(10, 20), (90, 200)], &[(0, 10), (20, 90)]),
            (&[(0, 10), (20, 30)], &[(5, 25)], &[(0, 5), (25, 30)]),
            (&[], &[(0, 10)], &[]),
        ];
        for (all, some, expect) in cases {
            assert_eq!(outside(&set(all), &set(some)), expect, "{all:?} without {some:?}");
        }
    }

    /// A part that the store lists in another way than it acknowledged it is not trusted.
    #[test]
    fn parts_are_what_the_store_acknowledged() {
        let known = UploadedPart { len: 10, sum: 7, tag: "a".into() };
        let upload =
            Upload { id: "id".into(), parts: [(10, known.clone())].into(), ..Upload::default() };
        let listed = ListedPart { number: 2, len: 10, sum: Some(7), tag: "a".into() };
        let cases = [
            (listed.clone(), true),
            (ListedPart { sum: None, ..listed.clone() }, true),
            (ListedPart { sum: Some(8), ..listed.clone() }, false),
            (ListedPart { len: 9, ..listed.clone() }, false),
            (ListedPart { tag: "b".into(), ..listed.clone() }, false),
            (ListedPart { number: 3, ..listed.clone() }, false),
            (ListedPart { number: 0, ..listed.clone() }, false),
            (ListedPart { number: u64::MAX, ..listed }, false),
        ];
        for (listed, is_trusted) in cases {
            let found = upload.found(10, std::slice::from_ref(&listed));
            assert_eq!(found.parts.contains_key(&10), is_trusted, "{listed:?}");
        }
    }
}
