//! What earlier runs left, according to their journal, and what of that can be trusted.

use crate::io::volume::{Handle, READ_THROUGH, Volume};
use crate::pump::sink::journal::{
    DigestKind, ExtentSet, FileDigest, Held, Journal, Key, MADE_BYTES, Origin, Partial, PriorRuns,
    Record, front_of, uploads,
};
use crate::work::digest::{Node, node_matches, nodes_of};
use base::fault::Fault;
use base::limits::BLOCK_BYTES;
use base::settings::Cut;

/// What earlier runs left of a file that is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    Nothing,
    Part(Partial),
    /// There was something, which is of no use any more.
    GivenUp {
        bytes: u64,
        why: &'static str,
    },
}

/// Bytes of a file that the journal recorded and that cannot be trusted, or not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    pub path: Vec<u8>,
    pub bytes: u64,
}

impl PriorRuns {
    pub fn is_empty(&self) -> bool {
        self.partials.is_empty() && self.done.is_empty()
    }

    /// True where an earlier run of the same command has begun, and has not ended.
    pub(crate) fn is_again(&self) -> bool {
        self.is_again
    }

    /// True where there is a journal that cannot be read at all.
    pub(crate) fn is_unread(&self) -> bool {
        self.unread
    }

    /// True where some of this file is here, and it has not been asked for yet.
    pub fn has(&self, path: &[u8]) -> bool {
        self.partials.contains_key(path)
    }

    /// Files of which some is here, and which have not been asked for.
    pub(crate) fn unasked(&self) -> usize {
        self.partials.len()
    }

    /// How a run continues that would cut and digest like `own`: with the digest of what is here
    /// where that is stronger, and with requests into which all that is here can be cut where its
    /// own would lose some of it. They are no larger than its own, or than memory allows.
    pub(crate) fn cut_for(&self, own: Cut, request_bytes_max: u32) -> Cut {
        let begun = || self.partials.values().filter(|partial| partial.bytes() > 0);
        let digest = begun().fold(own.digest, |digest, partial| {
            let other = partial.origin.digest;
            if digest.is_weaker_than(other) { other } else { digest }
        });
        if begun().any(|partial| partial.upload.is_some()) {
            let most = request_bytes_max.max(own.request_bytes);
            return uploads::cut_for(begun(), Cut { digest, ..own }, most);
        }
        let fits = |partial: &Partial| {
            let Partial { origin, flushed, written, .. } = partial;
            let fits = |held: &Held| held.fits(origin.size, own.request_bytes);
            origin.size > own.request_bytes.into() && fits(flushed) && fits(written)
        };
        if begun().all(fits) {
            return Cut { digest, ..own };
        }
        let common =
            begun().fold(0, |common, partial| common_divisor(common, partial.request_bytes));
        let most = request_bytes_max.max(own.request_bytes);
        let request_bytes = match common > most {
            true => common_divisor(common, own.request_bytes),
            false => common,
        };
        Cut { request_bytes, digest }
    }

    /// Bytes that are read back before they are trusted.
    pub(crate) fn doubtful_bytes(&self, cut: Cut) -> u64 {
        let doubtful = |partial: &Partial| {
            if partial.upload.is_some() {
                return 0; // the store is asked instead
            }
            let weak = partial.origin.digest.is_weaker_than(cut.digest);
            let flushed = if weak { partial.flushed.ranges.total() } else { 0 };
            flushed + partial.written.ranges.total()
        };
        self.partials.values().map(doubtful).sum()
    }

    /// Prepares what is here for this run. What was written and not flushed is read back, and so is
    /// all that has a weaker digest; what does not match its digests is forgotten, here and in the
    /// journal, and what is beside it is kept. `temporary` returns the temporary name of a file.
    /// Where `going` says to stop, the journal stays as it is.
    pub fn prepare(
        &mut self,
        journal: &mut Journal,
        cut: Cut,
        temporary: impl Fn(&[u8]) -> Vec<u8>,
        going: impl Fn() -> bool,
    ) -> Result<Vec<Lost>, Fault> {
        let mut lost = Vec::new();
        let volume = &*self.volume;
        for partial in self.partials.values_mut() {
            if let Some(store) = volume.store() {
                lost.extend(uploads::prepare(store, partial)?);
                continue;
            }
            let name = temporary(&partial.origin.path);
            // A file that is not the one that was written is left to `partial`.
            let Some(part) = Part::open(volume, &name, partial)? else { continue };
            let before = partial.bytes();
            let now = part.believed(partial, cut, &going);
            if !going() {
                return Ok(lost);
            }
            tell(journal, partial, &now, cut)?;
            let bytes = before - now.all.ranges.total();
            if bytes > 0 {
                lost.push(Lost { path: partial.origin.path.clone(), bytes });
            }
            (partial.flushed, partial.written) = (now.all, Held::default());
        }
        Ok(lost)
    }

    /// Objects whose upload is gone after an earlier run had asked the store to complete it. One
    /// that is not there yet may still come.
    pub(crate) fn completing(&self) -> Vec<Vec<u8>> {
        let awaited = |partial: &&Partial| partial.is_completing && partial.upload.is_none();
        let awaited = self.partials.values().filter(awaited);
        awaited.map(|partial| partial.origin.path.clone()).collect()
    }

    /// What is here of this file, where that can be used: from the same source, in the file that
    /// the journal recorded.
    pub fn partial(
        &mut self,
        origin: &Origin,
        slot_bytes: u32,
        name: &[u8],
    ) -> Result<Left, Fault> {
        let Some(partial) = self.partials.get(&origin.path) else { return Ok(Left::Nothing) };
        let store = self.volume.store();
        let there = store.is_some() || Part::open(&*self.volume, name, partial)?.is_some();
        let partial = self.partials.remove(&origin.path).expect("looked at above");
        let held = &partial.flushed;
        let bytes = partial.bytes();
        let lost = store.and_then(|_| uploads::unusable(&partial, slot_bytes));
        let why = match () {
            () if !partial.origin.is_same_source(origin) => "its source has changed since",
            () if lost.is_some() => lost.unwrap_or_default(),
            () if !there => "its part is not the file that was written",
            () if held.ranges.is_empty() => "nothing of it could be believed",
            () if partial.origin.digest != origin.digest => "it was digested in another way",
            () if !held.fits(origin.size, slot_bytes) || origin.size <= slot_bytes.into() => {
                "it was cut into other requests"
            }
            () => return Ok(Left::Part(partial)),
        };
        if let (Some(store), Some(upload)) = (store, &partial.upload) {
            store.abandon(&origin.path, &upload.id);
        }
        // Its temporary file is replaced by a new one, which may get the same inode.
        self.tail.add(&Record::Drop { file: partial.file })?;
        self.tail.sync()?;
        match bytes {
            0 => Ok(Left::Nothing),
            bytes => Ok(Left::GivenUp { bytes, why }),
        }
    }

    /// The digest of a file that an earlier run completed, where it did and the file is still the
    /// same.
    pub fn done(&self, key: &Key) -> Result<Option<FileDigest>, Fault> {
        let tail = &self.tail;
        let front = front_of(key);
        let from = self.done.partition_point(|(other, _)| *other < front);
        for (_, at) in self.done[from..].iter().take_while(|(other, _)| *other == front) {
            let mut record = [0; 16 + 1 + MADE_BYTES as usize];
            let count = tail.volume.read_at(&tail.file, &tail.name, *at, &mut record)?;
            if count >= 17 && record[..16] == *key {
                let sum = record[18..].try_into().expect("32 bytes");
                let made = DigestKind::from_code(record[17]).map(|kind| (kind, sum));
                return Ok(Some(made.filter(|_| record[16] == 1 && count == record.len())));
            }
        }
        Ok(None)
    }

    /// Bytes that a run would find here of this file. Only a run that changes nothing asks, and it
    /// believes the journal.
    pub(crate) fn would_continue(&self, origin: &Origin) -> u64 {
        let same = self.begun.get(&origin.path).filter(|it| it.origin.is_same_source(origin));
        same.map_or(0, Partial::bytes)
    }

    /// Folders that earlier runs have created.
    pub fn folders(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.folders.keys().filter(|path| !path.is_empty())
    }

    /// True where an earlier run, or this one, has created the root.
    pub(crate) fn made_root(&self) -> bool {
        self.folders.contains_key(&b""[..])
    }

    /// Records which folder the root is, and whether this run has created it: the one that an
    /// earlier run created may have been replaced.
    pub(crate) fn know_root(&mut self, inode: u64, is_new: bool) -> Result<(), Fault> {
        match self.folders.get(&b""[..]) {
            _ if is_new => self.making(b"", inode)?,
            Some(other) if *other != inode => self.left(b""),
            _ => {}
        }
        Ok(())
    }

    /// Records that this run creates a folder; for the root its inode too.
    pub(crate) fn making(&mut self, path: &[u8], inode: u64) -> Result<(), Fault> {
        self.tail.add(&Record::Folder { path: path.to_vec(), inode })?;
        self.tail.lock().open_folders += 1;
        if path.is_empty() {
            self.folders.insert(Vec::new(), inode);
        }
        Ok(())
    }

    /// A folder that a run has created got its mode.
    pub fn left(&mut self, path: &[u8]) {
        self.folders.remove(path);
        let state = &mut *self.tail.lock();
        state.open_folders = state.open_folders.saturating_sub(1);
    }

    /// Records the folders that earlier runs have created once more: in a journal that starts over.
    pub(crate) fn repeat_folders(&mut self) -> Result<(), Fault> {
        let folders = std::mem::take(&mut self.folders);
        for (path, inode) in &folders {
            self.making(path, *inode)?;
        }
        self.folders = folders;
        Ok(())
    }

    /// Removes what earlier runs began and was not asked for since, and forgets everything.
    pub(crate) fn remove_all(&mut self, temporary: impl Fn(&[u8]) -> Vec<u8>) {
        for (path, partial) in std::mem::take(&mut self.partials) {
            if let (Some(store), Some(upload)) = (self.volume.store(), &partial.upload) {
                store.abandon(&path, &upload.id);
            }
            // A file that cannot be removed has a temporary name still, and `clean` finds it.
            let _ = self.volume.remove(&temporary(&path));
        }
        self.done.clear();
    }
}

/// What is trusted of a part.
struct Believed {
    all: Held,
    /// What of it is not flushed, where the rest of it is as the journal says.
    written: Option<Held>,
    /// It is all on stable storage.
    flushed: bool,
}

/// Updates the journal to what is trusted.
fn tell(
    journal: &mut Journal,
    partial: &mut Partial,
    now: &Believed,
    cut: Cut,
) -> Result<(), Fault> {
    match &now.written {
        Some(written) if *written == partial.written => Ok(()),
        Some(written) => {
            journal.forget(partial.file)?;
            journal.have(partial.file, written)
        }
        // Recorded as one that begins: that ends what was recorded before.
        None => {
            partial.origin.digest = cut.digest;
            partial.request_bytes = cut.request_bytes;
            journal.begun.remove(&partial.file);
            partial.file = journal.begin(partial.origin.clone(), partial.made)?;
            journal.have(partial.file, &now.all)?;
            if now.flushed { journal.flushed(partial.file) } else { Ok(()) }
        }
    }
}

/// The temporary file that a journal recorded.
struct Part<'a> {
    volume: &'a dyn Volume,
    name: &'a [u8],
    file: Handle,
    len: u64,
}

impl<'a> Part<'a> {
    /// `None` where there is none, or another.
    fn open(
        volume: &'a dyn Volume,
        name: &'a [u8],
        partial: &Partial,
    ) -> Result<Option<Part<'a>>, Fault> {
        // Nothing else is opened: a pipe would block, and a link may lead anywhere.
        if volume.status(name)?.is_none_or(|there| there.inode.1 != partial.made.inode) {
            return Ok(None);
        }
        let file = volume.open(name, READ_THROUGH)?;
        let (made, len) = volume.identity_of(&file, name)?;
        let longest = partial.origin.size.next_multiple_of(BLOCK_BYTES.into());
        let same = made.is_some_and(|made| made.is(&partial.made)) && len <= longest;
        Ok(same.then_some(Part { volume, name, file, len }))
    }

    fn believed(&self, partial: &Partial, cut: Cut, going: impl Fn() -> bool) -> Believed {
        let Partial { origin, flushed, written, .. } = partial;
        let written = self.read_back(origin, written, &going).cut(origin.size, cut.request_bytes);
        let end = flushed.ranges.ranges().last().map_or(0, |(_, end)| end);
        let weak = origin.digest.is_weaker_than(cut.digest);
        // Somebody may have shortened it, or it ends in a hole.
        let doubted = weak || end > self.len;
        let fits = |held: &Held| held.fits(origin.size, cut.request_bytes);
        let as_cut = partial.request_bytes == cut.request_bytes && fits(flushed) && fits(&written);
        if !doubted && as_cut {
            let mut all = flushed.clone();
            if all.add(&written.ranges.ranges().collect::<Vec<_>>(), &written.nodes) {
                return Believed { all, written: Some(written), flushed: false };
            }
        }
        let flushed = match (doubted, origin.digest) {
            (false, _) => flushed.clone(),
            (true, DigestKind::None) => flushed.up_to(self.len),
            (true, _) => self.read_back(origin, flushed, &going),
        };
        let is_flushed = written.ranges.is_empty();
        let mut all = flushed;
        if !all.add(&written.ranges.ranges().collect::<Vec<_>>(), &written.nodes) {
            all = Held::default();
        }
        let mut all = all.cut(origin.size, cut.request_bytes);
        if weak {
            let read = |at: u64, into: &mut [u8]| match going() {
                true => self.read(origin.size, at, into),
                false => Err(Fault::interrupted()),
            };
            let ranges: Vec<_> = all.ranges.ranges().collect();
            all = Held::of(nodes_of(cut.digest, cut.request_bytes, &ranges, read));
        }
        Believed { all, written: None, flushed: is_flushed }
    }

    /// What of these ranges is here: those that match their digests, whatever is beside them.
    fn read_back(&self, origin: &Origin, held: &Held, going: impl Fn() -> bool) -> Held {
        let read = |at: u64, into: &mut [u8]| self.read(origin.size, at, into);
        let is_here = |node: &&Node| going() && node_matches(origin.digest, node, read);
        let nodes: Vec<Node> = held.nodes.iter().filter(is_here).copied().collect();
        match nodes.len() == held.nodes.len() && !nodes.is_empty() {
            true => held.clone(),
            false => Held::of(nodes),
        }
    }

    fn read(&self, size: u64, at: u64, into: &mut [u8]) -> Result<usize, Fault> {
        match self.volume.read_at(&self.file, self.name, at, into) {
            // A hole at its end, which appears when its length is set.
            Ok(0) if at < size => {
                into.fill(0);
                Ok(into.len())
            }
            read => read,
        }
    }
}

impl Partial {
    /// How much of it the journal records.
    pub(super) fn bytes(&self) -> u64 {
        self.flushed.ranges.total() + self.written.ranges.total()
    }
}

fn common_divisor(one: u32, other: u32) -> u32 {
    if other == 0 { one } else { common_divisor(other, one % other) }
}

impl Held {
    /// True when every range begins and ends between two requests.
    pub fn fits(&self, size: u64, slot_bytes: u32) -> bool {
        let slot = u64::from(slot_bytes);
        self.ranges.ranges().all(|(start, end)| {
            start.is_multiple_of(slot) && (end.is_multiple_of(slot) || end == size)
        })
    }

    /// The `count` longest of its ranges.
    pub fn longest(self, count: usize) -> Held {
        if self.ranges.range_count() <= count {
            return self;
        }
        let mut all: Vec<_> = self.ranges.ranges().collect();
        all.sort_unstable_by_key(|(start, end)| std::cmp::Reverse(end - start));
        let mut ranges = ExtentSet::default();
        for (start, end) in all.into_iter().take(count) {
            assert!(ranges.insert_new(start, end), "ranges of a set are apart");
        }
        let nodes = self.nodes.into_iter().filter(|node| ranges.contains(node.offset)).collect();
        Held { ranges, nodes }
    }

    pub(super) fn has_any(&self, ranges: &[(u64, u64)]) -> bool {
        ranges.iter().any(|(start, end)| self.ranges.touches(*start, *end))
    }

    /// The same without these ranges: they have been written again.
    pub(super) fn without(&self, again: &[(u64, u64)]) -> Held {
        let mut left = ExtentSet::default();
        for (start, end) in self.ranges.ranges() {
            let mut at = start;
            for (from, to) in again.iter().filter(|(from, to)| *from < end && start < *to) {
                assert!(at >= *from || left.insert_new(at, *from), "ranges are apart");
                at = at.max(*to);
            }
            assert!(at >= end || left.insert_new(at, end), "ranges are apart");
        }
        let is_whole = |node: &&Node| {
            let end = left.end_of(node.offset);
            end.is_some_and(|end| node.offset + node.len <= end)
        };
        match self.nodes.is_empty() {
            true => Held { ranges: left, nodes: Vec::new() },
            false => Held::of(self.nodes.iter().filter(is_whole).copied().collect()),
        }
    }

    /// What these nodes cover.
    fn of(nodes: Vec<Node>) -> Held {
        let mut held = Held::default();
        for node in nodes {
            if held.ranges.insert_new(node.offset, node.offset + node.len) {
                held.nodes.push(node);
            }
        }
        held
    }

    /// What of it lies before an end; for files without digests.
    fn up_to(&self, len: u64) -> Held {
        let mut ranges = ExtentSet::default();
        for (start, end) in self.ranges.ranges().filter(|(start, _)| *start < len) {
            assert!(ranges.insert_new(start, end.min(len)), "ranges of a set are apart");
        }
        Held { ranges, nodes: Vec::new() }
    }

    /// The whole requests in it: those that are cut through are dropped, and so are nodes that
    /// reach beyond them.
    fn cut(self, size: u64, slot_bytes: u32) -> Held {
        let slot = u64::from(slot_bytes);
        let mut held = self;
        while !held.fits(size, slot_bytes) {
            let mut ranges = ExtentSet::default();
            for (start, end) in held.ranges.ranges() {
                let start = start.next_multiple_of(slot);
                let end = if end == size { end } else { end - end % slot };
                assert!(start >= end || ranges.insert_new(start, end), "ranges are apart");
            }
            let is_inside = |node: &Node| {
                let end = ranges.end_of(node.offset);
                end.is_some_and(|end| node.offset + node.len <= end)
            };
            if held.nodes.is_empty() {
                return Held { ranges, nodes: Vec::new() };
            }
            held.nodes.retain(is_inside);
            held = Held::of(held.nodes);
        }
        held
    }
}
