//! The sink's record from one run to the next: which ranges of which files are here, and which
//! files are complete.
//!
//! The journal is a file in the destination root, or in a folder of this host where that is an
//! object store; it is appended to and never edited:
//!
//! ```text
//! record   length u32 | CRC-32C of what follows u32 | kind u8 | fields
//! Open     version u8, transfer 16 bytes             the first record
//! Begin    file u32, path, size u64, mtime, digest u8, request u32, inode u64, owner u32, born?
//! Have     file u32, ranges, nodes                   written, with the digests of what was written
//! Flushed  file u32                                  all its records are on stable storage
//! Done     (key 16 bytes, digest?) ...               complete under these keys, and flushed
//! Drop     file u32                                  its ranges are of no use any more
//! Forget   file u32                                  what was written and not flushed is lost
//! Folder   path, inode u64                           is created next; the root (no path) exists
//! Upload   file u32, id                              writes it to an object store
//! Parts    file u32, (offset, len, sum, tag) ...     of that, acknowledged by the store
//! ```
//!
//! A record that is cut short or damaged ends the journal: what follows it is ignored, which costs
//! time and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use self::record::Record;
use self::record::{DONE_FRONT_BYTES, FRONT_BYTES, LIST_MAX, MADE_BYTES, RECORD_BYTES_MAX};
use crate::io::store::{OBJECT_DEVICE, Upload};
use crate::io::system::boot_id;
use crate::io::volume::{
    Handle, Identity, Locked, Mtime, READ_THROUGH, Status, StatusKind, Volume, show,
};
use crate::work::digest::Node;
use base::extent::ExtentSet;
use base::fault::{Class, Fault};
use base::label::Sum;
use base::settings::{Cut, DigestKind, Fsync};

mod prior_runs;
mod record;
#[cfg(test)]
mod tests;
mod uploads;

pub(crate) use self::prior_runs::Left;

/// Identifies a transfer on the sink's disk.
pub(crate) type TransferId = [u8; 16];

/// Identifies a complete file: by its source and the file that was made of it.
pub type Key = [u8; 16];

/// A file as its source described it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub path: Vec<u8>,
    pub size: u64,
    pub mtime: Mtime,
    pub digest: DigestKind,
}

impl Origin {
    /// The same file, however it is digested.
    fn is_same_source(&self, other: &Origin) -> bool {
        let source = |origin: &Origin| (origin.path.clone(), origin.size, origin.mtime);
        source(self) == source(other)
    }
}

/// The digest of a complete file, and its kind; `None` where it has none.
pub type FileDigest = Option<(DigestKind, Sum)>;

/// The ranges of a file that are here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub ranges: ExtentSet,
    pub nodes: Vec<Node>,
}

impl Held {
    /// True when all of `0..size` is here.
    pub fn is_whole(&self, size: u64) -> bool {
        self.ranges.total() == size
    }

    fn add(&mut self, ranges: &[(u64, u64)], nodes: &[Node]) -> bool {
        let all_new = ranges.iter().all(|(start, end)| self.ranges.insert_new(*start, *end));
        self.nodes.extend_from_slice(nodes);
        all_new
    }

    /// The same as records, each of which is short enough.
    fn records(&self, file: u32) -> Vec<Record> {
        if self.nodes.is_empty() {
            let ranges: Vec<_> = self.ranges.ranges().collect();
            let record = |some: &[(u64, u64)]| Record::Have {
                file,
                ranges: some.to_vec(),
                nodes: Vec::new(),
            };
            return ranges.chunks(LIST_MAX).map(record).collect();
        }
        let mut nodes = self.nodes.clone();
        nodes.sort_unstable_by_key(|node| node.offset);
        let record = |some: &[Node]| {
            let mut covered = ExtentSet::default();
            for node in some {
                let new = covered.insert_new(node.offset, node.offset + node.len);
                assert!(new, "nodes of a file are apart");
            }
            Record::Have { file, ranges: covered.ranges().collect(), nodes: some.to_vec() }
        };
        nodes.chunks(LIST_MAX).map(record).collect()
    }
}

/// A file of which some is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partial {
    pub file: u32,
    pub origin: Origin,
    pub request_bytes: u32,
    /// The identity of its temporary file.
    pub made: Identity,
    /// On stable storage, as the journal says.
    pub flushed: Held,
    /// Written, but perhaps only to memory: it is read back before it is trusted.
    pub written: Held,
    /// The upload that writes it to a store.
    pub upload: Option<Arc<Upload>>,
    /// The store was asked to complete that, and may still be doing it.
    pub is_completing: bool,
}

/// What a journal says, read from its start. Pure: any bytes make some state.
#[derive(Debug, Default)]
pub struct Replay {
    transfer: Option<TransferId>,
    partials: BTreeMap<u32, Partial>,
    /// The start of a key, and where the whole of it is in the journal.
    done: Vec<(u64, u64)>,
    folders: BTreeMap<Vec<u8>, u64>,
    files: u32,
    /// Bytes of valid records.
    pub sound_bytes: u64,
}

impl Replay {
    /// Takes the valid records at the start of `bytes`; returns their length.
    pub fn take(&mut self, bytes: &[u8], transfer: &TransferId) -> usize {
        let mut used = 0;
        while let Some((record, length)) = Record::decode(&bytes[used..]) {
            if !self.apply(record, transfer) {
                break;
            }
            used += length;
            self.sound_bytes += length as u64;
        }
        used
    }

    /// Files of which some is here, in the order in which they began.
    pub fn partials(&self) -> impl Iterator<Item = &Partial> {
        self.partials.values()
    }

    /// False for a record that cannot follow: the journal ends before it.
    fn apply(&mut self, record: Record, expect: &TransferId) -> bool {
        if self.transfer.is_none() && !matches!(record, Record::Open { .. }) {
            return false;
        }
        match record {
            Record::Open { transfer } => {
                let first = self.transfer.is_none() && transfer == *expect;
                self.transfer = Some(transfer);
                return first;
            }
            Record::Begin { file, origin, request_bytes, made } => {
                if file < self.files || file == u32::MAX || origin.path.is_empty() {
                    return false;
                }
                self.files = file.saturating_add(1);
                let (flushed, written) = (Held::default(), Held::default());
                // Of two that began under one name only the later one has the file.
                self.partials.retain(|_, partial| partial.origin.path != origin.path);
                let upload = None;
                let is_completing = false;
                let partial = Partial {
                    file,
                    origin,
                    request_bytes,
                    made,
                    flushed,
                    written,
                    upload,
                    is_completing,
                };
                self.partials.insert(file, partial);
            }
            Record::Have { file, ranges, nodes } => self.have(file, &ranges, &nodes),
            Record::Flushed { file } => {
                let Some(partial) = self.partials.get_mut(&file) else { return true };
                let written = std::mem::take(&mut partial.written);
                let ranges: Vec<_> = written.ranges.ranges().collect();
                if !partial.flushed.add(&ranges, &written.nodes) {
                    self.partials.remove(&file);
                }
            }
            Record::Done { files } => {
                let mut at = self.sound_bytes + DONE_FRONT_BYTES as u64;
                for (key, made) in &files {
                    self.done.push((front_of(key), at));
                    at += 16 + 1 + if made.is_some() { MADE_BYTES } else { 0 };
                }
            }
            Record::Drop { file } => {
                self.partials.remove(&file);
            }
            Record::Forget { file } => {
                if let Some(partial) = self.partials.get_mut(&file) {
                    partial.written = Held::default();
                }
            }
            Record::Folder { path, inode } => {
                self.folders.insert(path, inode);
            }
            Record::Upload { file, .. }
            | Record::Parts { file, .. }
            | Record::Completing { file } => {
                if let Some(partial) = self.partials.get_mut(&file) {
                    partial.note_upload(record);
                }
            }
        }
        true
    }

    fn have(&mut self, file: u32, ranges: &[(u64, u64)], nodes: &[Node]) {
        let Some(partial) = self.partials.get_mut(&file) else { return };
        let size = partial.origin.size;
        let sound = ranges.iter().all(|(start, end)| start < end && *end <= size)
            && ranges.is_sorted_by(|one, next| one.1 <= next.0)
            && nodes_fit(partial.origin.digest, ranges, nodes);
        if !sound {
            self.partials.remove(&file);
            return;
        }
        // What was here and could not be used has arrived again.
        for held in [&mut partial.flushed, &mut partial.written] {
            if held.has_any(ranges) {
                *held = held.without(ranges);
            }
        }
        assert!(partial.written.add(ranges, nodes), "made room for above");
    }
}

/// The nodes of a range cover it exactly.
fn nodes_fit(digest: DigestKind, ranges: &[(u64, u64)], nodes: &[Node]) -> bool {
    if digest == DigestKind::None {
        return nodes.is_empty();
    }
    let mut said = ExtentSet::default();
    let mut covered = ExtentSet::default();
    ranges.iter().all(|(start, end)| said.insert_new(*start, *end))
        && nodes.iter().all(|node| {
            node.len > 0
                && node.offset.checked_add(node.len).is_some_and(|end| {
                    said.end_of(node.offset).is_some_and(|reaches| end <= reaches)
                        && covered.insert_new(node.offset, end)
                })
        })
        && covered == said
}

fn front_of(key: &Key) -> u64 {
    u64::from_le_bytes(key[..8].try_into().expect("eight of sixteen bytes"))
}

/// The key of a file that is complete: what it was made from, and what it is.
///
/// A file that was not synced is known until the next boot: then it may have lost its bytes.
pub(crate) fn key_of(path: &[u8], size: u64, mtime: Mtime, made: &Status, fsync: Fsync) -> Key {
    let mut hasher = blake3::Hasher::new();
    if fsync == Fsync::Off {
        hasher.update(boot_id());
    }
    hasher.update(&(path.len() as u64).to_le_bytes()).update(path);
    for number in [size, mtime.seconds as u64, mtime.nanos.into()] {
        hasher.update(&number.to_le_bytes());
    }
    // What the bytes of an object are is known; a store may keep another time.
    let made_at = if made.inode.0 == OBJECT_DEVICE { Mtime::default() } else { made.mtime };
    let of_made = [made.size, made.inode.1, made_at.seconds as u64, made_at.nanos.into()];
    for number in of_made {
        hasher.update(&number.to_le_bytes());
    }
    hasher.finalize().as_bytes()[..16].try_into().expect("sixteen of 32 bytes")
}

/// The journal's name in the destination root.
pub(crate) fn journal_name(transfer: &TransferId) -> Vec<u8> {
    let id = u64::from_be_bytes(transfer[..8].try_into().expect("eight of sixteen bytes"));
    format!(".datapump-{id:016x}.journal").into_bytes()
}

/// The same for a tag that nobody can guess.
pub(crate) fn spare_journal_name(tag: &str) -> Vec<u8> {
    format!(".datapump-{tag}00000000.journal").into_bytes()
}

/// The common part of all temporary names of a transfer.
pub fn tag_of(transfer: &TransferId) -> String {
    let id = u32::from_be_bytes(transfer[..4].try_into().expect("four of sixteen bytes"));
    format!("{id:08x}")
}

/// The journal's file and its end, shared by both that append to it.
#[derive(Debug)]
struct Tail {
    volume: Arc<dyn Volume>,
    name: Vec<u8>,
    file: Handle,
    transfer: TransferId,
    state: Mutex<TailState>,
}

#[derive(Debug)]
struct TailState {
    end: u64,
    /// Folders that it records and that do not have their mode yet.
    open_folders: usize,
}

impl Tail {
    fn lock(&self) -> MutexGuard<'_, TailState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, record: &Record) -> Result<(), Fault> {
        self.begin()?;
        let state = &mut *self.lock();
        let bytes = record.encode();
        self.volume.append(&self.file, &self.name, state.end, &bytes)?;
        state.end += bytes.len() as u64;
        Ok(())
    }

    /// Writes the first record, where there is none.
    fn begin(&self) -> Result<(), Fault> {
        let state = &mut *self.lock();
        if state.end == 0 {
            let open = Record::Open { transfer: self.transfer }.encode();
            self.volume.append(&self.file, &self.name, 0, &open)?;
            state.end = open.len() as u64;
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), Fault> {
        self.volume.sync(&self.file, &self.name)
    }
}

/// What earlier runs of the same transfer left here.
#[derive(Debug)]
pub struct PriorRuns {
    tail: Arc<Tail>,
    /// Where files are, which may be elsewhere than the journal.
    volume: Arc<dyn Volume>,
    partials: BTreeMap<Vec<u8>, Partial>,
    /// The same for a run that changes nothing.
    begun: BTreeMap<Vec<u8>, Partial>,
    done: Vec<(u64, u64)>,
    /// Folders that they have created, and for the root its inode.
    folders: BTreeMap<Vec<u8>, u64>,
    unread: bool,
    /// An earlier run began, whether or not it has left anything.
    is_again: bool,
}

/// Appends to the journal. One for each sink, with its finisher.
#[derive(Debug)]
pub struct Journal {
    tail: Arc<Tail>,
    files: u32,
    /// True once its name is on stable storage.
    named: bool,
    /// Files of which some is here, and whether any is complete.
    begun: BTreeSet<u32>,
    any_done: bool,
    request_bytes: u32,
    digest: DigestKind,
}

/// The result of looking for a journal.
#[derive(Debug)]
pub enum Opened {
    Ours(Box<(PriorRuns, Journal)>),
    /// Another process is using it.
    Busy,
    /// Its name is that of somebody else's file.
    Foreign,
}

/// Finds what earlier runs left under this name, and continues it.
pub fn open(
    files: &Arc<dyn Volume>,
    name: &[u8],
    transfer: TransferId,
    own: Cut,
) -> Result<Opened, Fault> {
    let (volume, name) = (&beside(files)?, name.to_vec());
    let file = match volume.open_locked(&name)? {
        Locked::Ours(file) => file,
        Locked::Busy => return Ok(Opened::Busy),
        Locked::Foreign => return Ok(Opened::Foreign),
    };
    let mut replay = Replay::default();
    read_all(&**volume, &file, &name, |bytes| replay.take(bytes, &transfer))?;
    let unread = replay.sound_bytes == 0 && volume.status_of(&file, &name)?.size > 0;
    volume.set_length(&file, &name, replay.sound_bytes)?;
    let begun = replay.partials.keys().copied().collect();
    let mut done = replay.done;
    done.sort_unstable();
    let state = TailState { end: replay.sound_bytes, open_folders: replay.folders.len() };
    let state = Mutex::new(state);
    let tail = Arc::new(Tail { volume: volume.clone(), name, file, transfer, state });
    let partials = replay.partials.into_values();
    let partials = partials.map(|partial| (partial.origin.path.clone(), partial)).collect();
    let (folders, volume) = (replay.folders, files.clone());
    let is_again = replay.sound_bytes > 0;
    if files.store().is_some() {
        // A small object is there before anything is recorded of it.
        tail.begin()?;
    }
    let prior_runs = PriorRuns {
        tail: tail.clone(),
        volume,
        partials,
        begun: BTreeMap::new(),
        done,
        folders,
        unread,
        is_again,
    };
    let journal = Journal {
        tail,
        files: replay.files,
        named: replay.sound_bytes > 0,
        begun,
        any_done: !prior_runs.done.is_empty(),
        request_bytes: own.request_bytes,
        digest: own.digest,
    };
    Ok(Opened::Ours(Box::new((prior_runs, journal))))
}

/// What earlier runs completed, as a journal under this name says, for a run that changes nothing.
/// `None` where there is none of this user.
pub(crate) fn look(
    files: &Arc<dyn Volume>,
    name: &[u8],
    transfer: TransferId,
) -> Result<Option<PriorRuns>, Fault> {
    let (volume, name) = (&beside(files)?, name.to_vec());
    let is_file = volume.status(&name)?.is_some_and(|there| there.kind == StatusKind::File);
    if !is_file || volume.is_foreign(&name)? {
        return Ok(None);
    }
    let file = volume.open(&name, READ_THROUGH)?;
    let mut replay = Replay::default();
    read_all(&**volume, &file, &name, |bytes| replay.take(bytes, &transfer))?;
    let mut done = replay.done;
    done.sort_unstable();
    let begun = replay.partials.into_values();
    let begun = begun.map(|partial| (partial.origin.path.clone(), partial)).collect();
    let state = Mutex::new(TailState { end: replay.sound_bytes, open_folders: 0 });
    let tail = Arc::new(Tail { volume: volume.clone(), name, file, transfer, state });
    let (partials, folders) = (BTreeMap::new(), BTreeMap::new());
    let volume = files.clone();
    let (unread, is_again) = (false, true);
    Ok(Some(PriorRuns { tail, volume, partials, begun, done, folders, unread, is_again }))
}

/// Where the journal of what is written to this volume is.
pub(crate) fn beside(files: &Arc<dyn Volume>) -> Result<Arc<dyn Volume>, Fault> {
    files.store().map_or_else(|| Ok(files.clone()), |store| store.journals())
}

/// Reads a file from its start for as long as `take` uses what it is given.
fn read_all(
    volume: &dyn Volume,
    file: &Handle,
    name: &[u8],
    mut take: impl FnMut(&[u8]) -> usize,
) -> Result<(), Fault> {
    let mut buffer = vec![0; 2 * (RECORD_BYTES_MAX + FRONT_BYTES)];
    let (mut at, mut filled) = (0, 0);
    loop {
        let count = volume.read_at(file, name, at, &mut buffer[filled..])?;
        at += count as u64;
        filled += count;
        let used = take(&buffer[..filled]);
        buffer.copy_within(used..filled, 0);
        filled -= used;
        if count == 0 || (used == 0 && filled > RECORD_BYTES_MAX + FRONT_BYTES) {
            return Ok(());
        }
    }
}

impl Journal {
    /// Sets how files that begin from now on are cut and digested.
    pub fn cut_as(&mut self, cut: Cut) {
        (self.request_bytes, self.digest) = (cut.request_bytes, cut.digest);
    }

    /// Gives a file that begins its number. Records of one with the same name are dropped.
    pub fn begin(&mut self, origin: Origin, made: Identity) -> Result<u32, Fault> {
        let file = self.files;
        self.files = file.saturating_add(1);
        self.begun.insert(file);
        let request_bytes = self.request_bytes;
        self.add(&Record::Begin { file, origin, request_bytes, made })?;
        Ok(file)
    }

    pub fn have(&mut self, file: u32, held: &Held) -> Result<(), Fault> {
        held.records(file).iter().try_for_each(|record| self.add(record))
    }

    pub fn flushed(&mut self, file: u32) -> Result<(), Fault> {
        self.add(&Record::Flushed { file })
    }

    pub fn done(&mut self, files: Vec<(Key, Option<Sum>)>) -> Result<(), Fault> {
        self.any_done = true;
        let made = |(key, sum): (Key, Option<Sum>)| (key, sum.map(|sum| (self.digest, sum)));
        let files: Vec<(Key, FileDigest)> = files.into_iter().map(made).collect();
        files.chunks(LIST_MAX).try_for_each(|some| self.add(&Record::Done { files: some.to_vec() }))
    }

    pub(crate) fn drop_file(&mut self, file: u32) -> Result<(), Fault> {
        self.begun.remove(&file);
        self.add(&Record::Drop { file })
    }

    /// What is recorded as written, and not as flushed, is not trusted any more.
    pub fn forget(&mut self, file: u32) -> Result<(), Fault> {
        self.add(&Record::Forget { file })
    }

    /// Puts what was added on stable storage.
    pub fn sync(&mut self) -> Result<(), Fault> {
        self.tail.sync()?;
        if !self.named {
            self.tail.volume.sync_directory(&self.tail.name)?;
            self.named = true;
        }
        Ok(())
    }

    /// Starts over with an empty journal.
    pub fn restart(&mut self) -> Result<(), Fault> {
        let tail = &self.tail;
        tail.volume.set_length(&tail.file, &tail.name, 0)?;
        *tail.lock() = TailState { end: 0, open_folders: 0 };
        (self.files, self.named) = (0, false);
        (self.begun, self.any_done) = (BTreeSet::new(), false);
        Ok(())
    }

    /// Removes the journal: everything is done.
    pub fn remove(self) -> Result<(), Fault> {
        self.tail.volume.remove_unseen(&self.tail.name)
    }

    /// True when it records nothing that another run could use.
    pub(crate) fn is_useless(&self) -> bool {
        self.begun.is_empty() && !self.any_done && self.tail.lock().open_folders == 0
    }

    fn add(&mut self, record: &Record) -> Result<(), Fault> {
        self.tail.add(record)
    }
}

/// The fault when another process has the journal.
pub fn busy(volume: &dyn Volume) -> Fault {
    let text = format!(
        "another datapump is copying the same to '{}' at this moment: wait for it to end",
        show(volume, b"")
    );
    Fault::new(Class::Local, text)
}
