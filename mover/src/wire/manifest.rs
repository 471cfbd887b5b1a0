//! The list of objects: entries, and where in the address space each one lies.

use std::sync::Arc;

use super::reader::{Reader, Writer};
use base::attributes::Attributes;
use base::fault::Fault;
use base::label::Sum;
use base::limits::{
    ATTRIBUTES_BYTES_MAX, NAME_BYTES_MAX, OFFER_BYTES_MAX, OFFER_ENTRIES_MAX, PATH_BYTES_MAX,
};

/// What an object is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum EntryKind {
    #[default]
    File = 1,
    Directory = 2,
    /// A symbolic link; its target travels in the entry.
    Link = 3,
    /// Bytes that are made up: null, zero, random.
    Stretch = 4,
    /// A pipe: its length is known when it has ended.
    Pipe = 5,
    /// Another name of a file that was offered before.
    HardLink = 6,
    /// Everything in this directory has been offered: what it must be like in the end. An empty
    /// path is the destination itself.
    Leave = 7,
}

/// One object as the source offers it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub kind: EntryKind,
    /// Bytes; `ENDLESS_BYTES` for a pipe, 0 for what has no bytes of its own.
    pub size: u64,
    pub mtime_seconds: i64,
    pub mtime_nanos: u32,
    /// Permission bits.
    pub mode: u32,
    /// Relative to the target; names as bytes, joined by `/`.
    pub path: Vec<u8>,
    /// Where a link points; the path of a hard link's first name; empty for anything else.
    pub link_target: Vec<u8>,
    /// The number of the object that a hard link is another name of.
    pub twin: u64,
    /// The file has holes: what has no data on the source's disk needs none here.
    pub sparse: bool,
    /// What a file with holes takes on the source's disk; 0 for anything else.
    pub allocated_bytes: u64,
    /// Owner and extended attributes, where they are kept.
    pub attributes: Option<Arc<Attributes>>,
    /// BLAKE3 of the file, where unchanged ones are found by it.
    pub sum: Option<Sum>,
}

/// What an encoded entry has besides the usual.
const SPARSE: u8 = 1;
const ATTRIBUTES: u8 = 2;
const SUM: u8 = 4;

/// The room that a pipe takes in the address space, as nobody knows its length yet.
pub const ENDLESS_BYTES: u64 = 1 << 62;

/// Bytes of an encoded entry besides its path and link target.
const ENTRY_FIXED_BYTES: usize = 1 + 1 + 8 + 8 + 4 + 4 + 2 + 2 + 8 + 8 + 32;

impl Entry {
    pub fn encoded_bytes(&self) -> usize {
        let attributes = self.attributes.as_ref().map_or(0, |attributes| attributes.bytes());
        ENTRY_FIXED_BYTES + self.path.len() + self.link_target.len() + attributes
    }

    pub fn encode(&self, out: &mut Writer) {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out.u8(self.kind as u8);
        out.u8(flag(self.sparse, SPARSE)
            | flag(self.attributes.is_some(), ATTRIBUTES)
            | flag(self.sum.is_some(), SUM));
        out.u64(self.size);
        out.i64(self.mtime_seconds);
        out.u32(self.mtime_nanos);
        out.u32(self.mode);
        out.bytes(&self.path);
        out.bytes(&self.link_target);
        if self.kind == EntryKind::HardLink {
            out.u64(self.twin);
        }
        if self.sparse {
            out.u64(self.allocated_bytes);
        }
        if let Some(attributes) = &self.attributes {
            put_attributes(out, attributes);
        }
        if let Some(sum) = &self.sum {
            out.raw(sum);
        }
    }

    pub fn decode(from: &mut Reader<'_>) -> Result<Entry, Fault> {
        let kind = match from.u8()? {
            1 => EntryKind::File,
            2 => EntryKind::Directory,
            3 => EntryKind::Link,
            4 => EntryKind::Stretch,
            5 => EntryKind::Pipe,
            6 => EntryKind::HardLink,
            7 => EntryKind::Leave,
            other => return Err(Fault::peer(format!("an object of unknown kind {other}"))),
        };
        let flags = from.u8()?;
        if flags & !(SPARSE | ATTRIBUTES | SUM) != 0 {
            return Err(Fault::peer("an object with flags that nobody knows"));
        }
        let mut entry = Entry {
            kind,
            sparse: flags & SPARSE != 0,
            size: from.u64()?,
            mtime_seconds: from.i64()?,
            mtime_nanos: from.u32()?,
            mode: from.u32()?,
            path: from.bytes(PATH_BYTES_MAX)?.to_vec(),
            link_target: from.bytes(PATH_BYTES_MAX)?.to_vec(),
            ..Entry::default()
        };
        if kind == EntryKind::HardLink {
            entry.twin = from.u64()?;
        }
        if entry.sparse {
            entry.allocated_bytes = from.u64()?;
        }
        if flags & ATTRIBUTES != 0 {
            entry.attributes = Some(Arc::new(get_attributes(from)?));
        }
        if flags & SUM != 0 {
            entry.sum = Some(from.array()?);
        }
        entry.check()?;
        Ok(entry)
    }

    /// What no honest source sends. A path that leaves the target is the worst of it.
    fn check(&self) -> Result<(), Fault> {
        let sized = match self.kind {
            EntryKind::File | EntryKind::Stretch => self.size < ENDLESS_BYTES,
            EntryKind::Pipe => self.size == ENDLESS_BYTES,
            EntryKind::Directory | EntryKind::Leave => self.size == 0,
            EntryKind::Link | EntryKind::HardLink => self.size == 0,
        };
        let linked = matches!(self.kind, EntryKind::Link | EntryKind::HardLink);
        let fits = self.allocated_bytes <= self.size;
        if !sized || !fits || self.mtime_nanos >= 1_000_000_000 || self.mode > 0o7777 {
            return Err(Fault::peer("the peer offered an object whose numbers cannot be"));
        }
        if self.link_target.is_empty() == linked {
            return Err(Fault::peer("the peer offered a link without a target, or the reverse"));
        }
        let twin = (self.kind == EntryKind::HardLink).then_some(&self.link_target);
        if self.kind == EntryKind::Leave && self.path.is_empty() {
            return Ok(());
        }
        match std::iter::once(&self.path).chain(twin).find(|path| !path_is_safe(path)) {
            None => Ok(()),
            Some(path) => Err(Fault::peer(format!(
                "the peer offered the path '{}', which could leave the destination",
                path.escape_ascii()
            ))),
        }
    }
}

fn put_attributes(out: &mut Writer, attributes: &Attributes) {
    out.u32(attributes.uid);
    out.u32(attributes.gid);
    out.u16(attributes.xattrs.len() as u16);
    for (name, value) in &attributes.xattrs {
        out.bytes(name);
        out.bytes(value);
    }
}

fn get_attributes(from: &mut Reader<'_>) -> Result<Attributes, Fault> {
    let (uid, gid, count) = (from.u32()?, from.u32()?, from.u16()?);
    let mut attributes = Attributes { uid, gid, xattrs: Vec::new() };
    for _ in 0..count {
        let name = from.bytes(NAME_BYTES_MAX)?.to_vec();
        let value = from.bytes(ATTRIBUTES_BYTES_MAX)?.to_vec();
        attributes.xattrs.push((name, value));
        if attributes.bytes() > ATTRIBUTES_BYTES_MAX {
            return Err(Fault::peer("an object with more attributes than are allowed"));
        }
    }
    Ok(attributes)
}

/// True for a relative path of real names: nothing empty, no `.`, no `..`, no NUL.
pub fn path_is_safe(path: &[u8]) -> bool {
    !path.is_empty()
        && path.len() <= PATH_BYTES_MAX
        && path.split(|byte| *byte == b'/').all(|name| {
            !name.is_empty()
                && name.len() <= NAME_BYTES_MAX
                && name != b"."
                && name != b".."
                && !name.contains(&0)
        })
}

/// Entries offered together, and their addresses. A chunk begins a new slot of the address space,
/// so it can be planned without its neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The number of its first object.
    pub first: u64,
    pub entries: Vec<Entry>,
    /// Where each object's bytes begin; as many as entries.
    pub starts: Vec<u64>,
}

/// Lays objects end to end. Both sides run it over every offered entry and so agree on all
/// addresses.
#[derive(Clone, Debug)]
pub struct Layout {
    slot_bytes: u64,
    next: u64,
    objects: u64,
}

impl Layout {
    /// `slot_bytes` is the request size: no extent is longer.
    pub fn new(slot_bytes: u32) -> Layout {
        assert!(slot_bytes > 0, "slots have a size");
        Layout { slot_bytes: u64::from(slot_bytes), next: 0, objects: 0 }
    }

    /// Gives the entries of one offer their numbers and addresses.
    pub fn place(&mut self, entries: Vec<Entry>) -> Result<Chunk, Fault> {
        let first = self.objects;
        self.next = self.aligned()?;
        let mut starts = Vec::with_capacity(entries.len());
        for entry in &entries {
            starts.push(self.place_one(entry.size)?);
        }
        self.objects += entries.len() as u64;
        Ok(Chunk { first, entries, starts })
    }

    /// An object that fits what is left of the slot shares it; a larger one begins a slot, and one
    /// that is longer than a slot also ends with one, so that its extents stay aligned.
    fn place_one(&mut self, size: u64) -> Result<u64, Fault> {
        let used = self.next % self.slot_bytes;
        if size > self.slot_bytes - used {
            self.next = self.aligned()?;
        }
        let start = self.next;
        self.next = start.checked_add(size).ok_or_else(too_much)?;
        if size > self.slot_bytes {
            self.next = self.aligned()?;
        }
        Ok(start)
    }

    fn aligned(&self) -> Result<u64, Fault> {
        self.next.checked_next_multiple_of(self.slot_bytes).ok_or_else(too_much)
    }
}

fn too_much() -> Fault {
    Fault::usage("this is more than one transfer can hold (2^64 bytes): split it")
}

/// A slot of a chunk: what one request carries, or a long object that takes many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot {
    /// One object, cut into requests of the slot size.
    EndToEnd { member: usize },
    /// Several objects in one request, by their place in the chunk.
    Batch { start: u64, members: Vec<usize> },
}

impl Chunk {
    /// How the wanted objects with bytes share slots, in the order of their addresses.
    pub fn slots(&self, wanted: impl Fn(usize) -> bool, slot_bytes: u32) -> Vec<Slot> {
        let mut slots: Vec<Slot> = Vec::new();
        let mut batch: Vec<usize> = Vec::new();
        let slot_of = |member: usize| self.starts[member] / u64::from(slot_bytes);
        let mut close = |batch: &mut Vec<usize>| match batch.len() {
            0 => {}
            1 => slots.push(Slot::EndToEnd { member: batch.remove(0) }),
            _ => slots
                .push(Slot::Batch { start: self.starts[batch[0]], members: std::mem::take(batch) }),
        };
        for member in 0..self.entries.len() {
            if self.entries[member].size == 0 || !wanted(member) {
                continue;
            }
            if batch.last().is_some_and(|last| slot_of(*last) != slot_of(member)) {
                close(&mut batch);
            }
            batch.push(member);
        }
        close(&mut batch);
        slots
    }

    /// True when one more entry would break the limits of an offer.
    pub fn is_full(entries: usize, bytes: usize, next: &Entry) -> bool {
        entries >= OFFER_ENTRIES_MAX || bytes + next.encoded_bytes() > OFFER_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(size: u64) -> Entry {
        Entry {
            kind: EntryKind::File,
            size,
            mtime_seconds: 0,
            mtime_nanos: 0,
            mode: 0o644,
            path: b"a".to_vec(),
            ..Entry::default()
        }
    }

    #[test]
    fn paths() {
        let long = [b'a'; 256];
        let cases: [(&[u8], bool); 11] = [
            (b"a", true),
            (b"a/b c/\xff\n", true),
            (&long[..255], true),
            (&long, false),
            (b"", false),
            (b"/a", false),
            (b"a/", false),
            (b"a//b", false),
            (b"a/../b", false),
            (b".", false),
            (b"a\0", false),
        ];
        for (path, safe) in cases {
            assert_eq!(path_is_safe(path), safe, "{}", path.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn objects_neither_overlap_nor_straddle(
            chunks in prop::collection::vec(prop::collection::vec(0u64..40_000, 1..20), 1..5),
        ) {
            const SLOT: u32 = 8192;
            let mut layout = Layout::new(SLOT);
            let mut end = 0;
            let mut count = 0;
            for sizes in chunks {
                let chunk = layout.place(sizes.iter().map(|size| file(*size)).collect()).unwrap();
                prop_assert_eq!(chunk.first, count);
                prop_assert!(chunk.starts[0].is_multiple_of(u64::from(SLOT)) || sizes[0] == 0);
                count += sizes.len() as u64;
                for (start, size) in chunk.starts.iter().zip(&sizes) {
                    prop_assert!(*start >= end);
                    end = start + size;
                    let slots = start / u64::from(SLOT)..end.div_ceil(u64::from(SLOT));
                    if *size <= u64::from(SLOT) {
                        prop_assert!(slots.end - slots.start <= 1);
                    } else {
                        prop_assert!(start.is_multiple_of(u64::from(SLOT)));
                    }
                }
                let members: usize = chunk
                    .slots(|_| true, SLOT)
                    .iter()
                    .map(|slot| match slot {
                        Slot::EndToEnd { .. } => 1,
                        Slot::Batch { members, .. } => members.len(),
                    })
                    .sum();
                prop_assert_eq!(members, sizes.iter().filter(|size| **size > 0).count());
            }
        }
    }

    #[test]
    fn the_largest_file_fits_once() {
        let mut layout = Layout::new(4096);
        assert!(layout.place(vec![file(1 << 61), file(1)]).is_ok());
        let mut layout = Layout::new(4096);
        let huge: Vec<Entry> = (0..3).map(|_| file(ENDLESS_BYTES - 1)).collect();
        assert!(layout.place(huge.clone()).is_ok());
        assert!(layout.place(huge).is_err());
    }
}
