//! A file system as this program uses it: names, handles, and changes that can be lost.
//!
//! Data goes through a `Backend`, many transfers at once. The calls of a volume are small,
//! synchronous and about names; the simulator has a volume of its own, so that it can lose every
//! change that was not synced.

use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::request::ExtraPiece;
use super::store::{NewObject, Object, Store};
use base::attributes::Attributes;
use base::extra::ExtraSums;
use base::fault::{Class, Fault};
use base::owners::Owner;

/// Something that the kernel, or the simulator, identifies by a number.
#[derive(Clone, Debug)]
pub enum Handle {
    Fd(Arc<OwnedFd>),
    Sim(u64),
    /// An object of a store.
    Object(Arc<dyn Object>),
}

impl Handle {
    pub fn new(fd: OwnedFd) -> Handle {
        Handle::Fd(Arc::new(fd))
    }

    /// True for two handles of the same thing.
    pub fn is(&self, other: &Handle) -> bool {
        match (self, other) {
            (Handle::Fd(one), Handle::Fd(another)) => Arc::ptr_eq(one, another),
            (Handle::Sim(one), Handle::Sim(another)) => one == another,
            (Handle::Object(one), Handle::Object(another)) => Arc::ptr_eq(one, another),
            _ => false,
        }
    }

    /// The descriptor. Only real backends ask, and they are only given real handles.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Handle::Fd(fd) => fd.as_fd(),
            Handle::Sim(id) => panic!("simulated handle {id} in a real backend"),
            Handle::Object(object) => panic!("{object:?} has no descriptor"),
        }
    }

    /// Why a call on it failed, where an error number does not say it.
    pub(crate) fn fault(&self) -> Option<Fault> {
        match self {
            Handle::Object(object) => object.fault(),
            Handle::Fd(_) | Handle::Sim(_) => None,
        }
    }
}

/// When a file was last changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtime {
    pub seconds: i64,
    pub nanos: u32,
}

/// The last time that a file system with 32 bits has (2038), and that of ext4 (2446).
const LATEST_S: [i64; 2] = [i32::MAX as i64, (1 << 34) - (1 << 31) - 1];
/// The first one of both (1901).
const EARLIEST_S: i64 = i32::MIN as i64;

impl Mtime {
    /// True where `kept` is this time, or what a file system keeps of it: NTFS cuts times to
    /// 100 ns, others to 1 us, 10 ms, 1 s (sshfs, exFAT, ext3) or 2 s (FAT). What a file system
    /// with finer times has kept has digits below, and must be equal.
    pub fn is_kept_as(self, kept: Mtime) -> bool {
        const STEPS_NS: [u32; 4] = [100, 1_000, 10_000_000, 1_000_000_000];
        let cut = |step: u32| Mtime { nanos: self.nanos - self.nanos % step, ..self };
        let cut_to_2_s = Mtime { seconds: self.seconds - self.seconds.rem_euclid(2), nanos: 0 };
        let is_beyond = || {
            let latest = LATEST_S.iter().any(|end| kept.seconds == *end && self.seconds > *end);
            let earliest = kept.seconds == EARLIEST_S && self.seconds < EARLIEST_S;
            kept.nanos == 0 && (latest || earliest)
        };
        kept == self
            || kept == cut_to_2_s
            || STEPS_NS.iter().any(|step| kept == cut(*step))
            || is_beyond()
    }

    /// True where some file systems have no such time: the kernel sets the next one that they have,
    /// without a word.
    pub fn is_far_off(self) -> bool {
        self.seconds < EARLIEST_S || self.seconds > LATEST_S[0]
    }
}

/// What a path is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub kind: StatusKind,
    pub size: u64,
    pub mtime: Mtime,
    /// Permission bits.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// Device and inode: names of the same file have the same pair, and so do objects with the same
    /// bytes (`OBJECT_DEVICE`).
    pub inode: (u64, u64),
    /// The space that it takes on the disk.
    pub allocated_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusKind {
    File,
    Directory,
    Link,
    /// A device, pipe or socket.
    Special,
}

/// Identifies a file that we created: by more than its inode number, which another file may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub inode: u64,
    pub owner: u32,
    /// When it was created, where the file system reports it.
    pub born: Option<Mtime>,
}

impl Identity {
    /// True for the same file.
    pub fn is(&self, other: &Identity) -> bool {
        let born = self.born.is_none() || other.born.is_none() || self.born == other.born;
        born && (self.inode, self.owner) == (other.inode, other.owner)
    }
}

/// Mode, time and attributes to give to a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    pub mode: u32,
    /// Set when mode and time are preserved.
    pub mtime: Option<Mtime>,
    /// Who it belongs to then.
    pub owner: Owner,
    /// Set when they are preserved.
    pub attributes: Option<Arc<Attributes>>,
}

/// Whether a change is on stable storage before the call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    Now,
    Later,
}

/// The result of opening a file for exclusive use.
#[derive(Clone, Debug)]
pub enum Locked {
    Ours(Handle),
    /// Another process of ours has locked it.
    Busy,
    /// The name is that of a file which is not ours alone: it was not touched.
    Foreign,
}

/// Whether something has another name now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    Linked,
    /// It cannot have several names.
    Not,
}

/// The results of finishing a directory.
#[derive(Clone, Debug)]
pub struct Left {
    pub given: Result<(), Fault>,
    pub synced: Result<(), Fault>,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To read; direct where `cache` says so.
    Read { cache: Cache },
    /// A new file to write. With `reserve` it gets that length, and space for it, at once, if the
    /// file system can do that.
    Create { cache: Cache, reserve: Option<u64> },
    /// An existing file, to write the parts that are missing.
    Resume { cache: Cache },
}

/// Opens a file to be read through the page cache, as most are.
pub(crate) const READ_THROUGH: Access = Access::Read { cache: Cache::Through };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    Through,
    Around,
}

/// Whether a rename may replace what has the name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    Never,
    Allowed,
    /// What has the name is of another kind, and is removed first.
    AnyKind,
}

/// A tree of files below one root. Every path is relative to it and cannot leave it.
pub trait Volume: Send + Sync + fmt::Debug {
    /// The name of this root in messages.
    fn root(&self) -> &Path;
    /// The object store that this is, where it is one.
    fn store(&self) -> Option<&dyn Store> {
        None
    }
    /// Begins an object of a store under a name that only the volume knows; a rename completes it.
    fn begin(&self, path: &[u8], object: &NewObject) -> Result<Handle, Fault> {
        let name = show_below(self.root(), path);
        Err(Fault::new(Class::Local, format!("'{name}' is in no object store, as {object:?} is")))
    }
    /// True when reads and writes can wait for a device: false for files in memory.
    fn waits(&self) -> bool;
    /// True where names that differ only in case are one name, as far as that can be seen.
    fn folds_case(&self) -> bool {
        false
    }
    fn status(&self, path: &[u8]) -> Result<Option<Status>, Fault>;
    fn open(&self, path: &[u8], access: Access) -> Result<Handle, Fault>;
    /// Opens a file to read, at whole blocks, what its medium has of it and not what the page cache
    /// has. Fails where that cannot be had.
    fn open_past_cache(&self, path: &[u8]) -> Result<Handle, Fault> {
        self.open(path, READ_THROUGH)
    }
    fn status_of(&self, file: &Handle, path: &[u8]) -> Result<Status, Fault>;
    /// The identity of an open file, and its length. `None` for anything but a regular file with
    /// one name: it is not ours alone.
    fn identity_of(&self, file: &Handle, path: &[u8]) -> Result<(Option<Identity>, u64), Fault>;
    /// The first data at `offset` or after it; `None` when a hole reaches to the end of the file.
    fn next_data(&self, file: &Handle, path: &[u8], offset: u64) -> Result<Option<u64>, Fault>;
    /// Makes a range of a file read as zeros, and frees its space where the file system has holes.
    /// The file keeps its length.
    fn make_hole(&self, file: &Handle, path: &[u8], stretch: Range<u64>) -> Result<(), Fault>;
    fn make_directory(&self, path: &[u8], mode: u32) -> Result<(), Fault>;
    /// Makes a directory with the owner, where that is allowed, and the mode of another.
    fn make_directory_like(&self, path: &[u8], like: &[u8]) -> Result<(), Fault>;
    /// Changes the mode of a directory, also of one that its owner may not read.
    fn set_directory_mode(&self, path: &[u8], mode: u32) -> Result<(), Fault>;
    /// Changes the owner of what has this name, and then the mode, which a link does not have; a
    /// link is not followed.
    fn set_owner(&self, path: &[u8], owner: Owner, mode: Option<u32>) -> Result<(), Fault>;
    fn make_link(&self, path: &[u8], target: &[u8], meta: &Metadata) -> Result<(), Fault>;
    /// Gives a file another name, which must be free.
    fn make_hard_link(&self, path: &[u8], twin: &[u8]) -> Result<(), Fault>;
    fn set_length(&self, file: &Handle, path: &[u8], len: u64) -> Result<(), Fault>;
    fn set_metadata(&self, file: &Handle, path: &[u8], meta: &Metadata) -> Result<(), Fault>;
    /// Gives a directory (the root where the path is empty) its final metadata, where there is any,
    /// and puts its names on stable storage, where that is asked.
    fn leave_directory(&self, path: &[u8], meta: Option<&Metadata>, durable: Durable) -> Left;
    /// Records the digests of what has this name, as archives look for them; through its open file,
    /// where there is one.
    fn set_digests(
        &self,
        _file: Option<&Handle>,
        _path: &[u8],
        _sums: &ExtraSums,
    ) -> Result<(), Fault> {
        Ok(())
    }
    /// What could not be preserved, reported once for each kind.
    fn take_warnings(&self) -> Vec<String> {
        Vec::new()
    }
    /// Puts the bytes of the file on stable storage.
    fn sync(&self, file: &Handle, path: &[u8]) -> Result<(), Fault>;
    /// The file system of the directory of a path, as a number: another one may be mounted anywhere
    /// below the root.
    fn file_system_of(&self, path: &[u8]) -> Result<u64, Fault>;
    /// Syncs the file system of the directory of this path: bytes, names and metadata.
    fn sync_all(&self, path: &[u8]) -> Result<(), Fault>;
    /// Syncs the root's own name, where the directory that holds it may be read.
    fn sync_own_name(&self) -> Result<(), Fault>;
    /// Syncs the names in the parent directory of this path.
    fn sync_directory(&self, path: &[u8]) -> Result<(), Fault>;
    fn rename(&self, from: &[u8], to: &[u8], replace: Replace) -> Result<(), Fault>;
    fn remove(&self, path: &[u8]) -> Result<(), Fault>;
    /// The names in a directory, the root where the path is empty; none if it does not exist.
    /// Unlike the other calls, this and `clear` follow no link on the way.
    fn names_in(
        &self,
        directory: &[u8],
        take: &mut dyn FnMut(&[u8], StatusKind),
    ) -> Result<(), Fault>;
    /// Removes what has this name: of a link the link, of a directory an empty one. The times of
    /// the directory that it is in stay as they were.
    fn clear(&self, path: &[u8], kind: StatusKind) -> Result<(), Fault>;
    /// Gives what has this name another one too, which must be free.
    fn link_aside(&self, path: &[u8], to: &[u8]) -> Result<Kept, Fault>;
    /// Moves what has this name to another one, which must be free; otherwise as `clear`.
    fn move_aside(&self, path: &[u8], kind: StatusKind, to: &[u8]) -> Result<(), Fault>;
    /// Opens a file to read and append, creates it where it does not exist, and locks others out
    /// until the handle is dropped.
    fn open_locked(&self, path: &[u8]) -> Result<Locked, Fault>;
    /// True where another user has something under a name that only we use.
    fn is_foreign(&self, _path: &[u8]) -> Result<bool, Fault> {
        Ok(false)
    }
    /// Removes a file that only we use; the times of its directory stay as they were.
    fn remove_unseen(&self, path: &[u8]) -> Result<(), Fault> {
        self.remove(path)
    }
    /// Reads the bytes at an offset; 0 at the end.
    fn read_at(&self, file: &Handle, path: &[u8], at: u64, into: &mut [u8])
    -> Result<usize, Fault>;
    /// Writes all of `bytes` at an offset.
    fn append(&self, file: &Handle, path: &[u8], at: u64, bytes: &[u8]) -> Result<(), Fault>;
    /// The target of a symbolic link; `None` if it is not one.
    fn read_link(&self, path: &[u8]) -> Result<Option<Vec<u8>>, Fault>;
    /// Bytes that can still be written in the directory of this path.
    fn free_bytes(&self, path: &[u8]) -> Result<u64, Fault>;
    /// The size of a file whose file system does not report sizes, found by reading it to its end;
    /// `None` where sizes are reported.
    fn size_if_unsized(&self, _path: &[u8]) -> Result<Option<u64>, Fault> {
        Ok(None)
    }
    /// Whether an open file still has this size and time.
    fn is_still(&self, file: &Handle, path: &[u8], then: (u64, Mtime)) -> Result<bool, Fault> {
        let status = self.status_of(file, path)?;
        Ok((status.size, status.mtime) == then)
    }
    /// Reads one small file whole: exactly `into`, from a file that has exactly that size and time.
    fn read_small(&self, segment: &Segment, into: &mut [u8]) -> Result<(), Fault>;
    /// Writes one small file whole, metadata and what is known of its digests included. Returns
    /// what it is then, whatever has its name later.
    fn write_small(
        &self,
        segment: &Segment,
        from: &[u8],
        extra: Option<&ExtraPiece>,
    ) -> Result<Status, Fault>;
}

/// A small file as part of a batch.
#[derive(Clone, Debug)]
pub struct Segment {
    pub object: u64,
    /// `None` where its bytes are discarded.
    pub volume: Option<Arc<dyn Volume>>,
    /// The path that it is read from, or the temporary name that it is written to.
    pub path: Vec<u8>,
    pub len: u32,
    /// Where its bytes are in the body.
    pub at: u32,
    pub meta: Metadata,
    /// Blocks of zeros become holes.
    pub sparse: bool,
    /// What it becomes in a store.
    pub new: Option<Arc<NewObject>>,
}

/// The small files of one extent.
#[derive(Debug)]
pub struct Batch {
    pub segments: Vec<Segment>,
}

impl Batch {
    pub fn bytes(&self) -> u32 {
        self.segments.last().map_or(0, |last| last.at + last.len)
    }

    pub fn waits(&self) -> bool {
        let waits = |segment: &Segment| segment.volume.as_ref().is_some_and(|v| v.waits());
        self.segments.iter().any(waits)
    }
}

/// A file that is opened by the first request that needs it and closed by the last that drops it.
#[derive(Debug)]
pub struct LazyFile {
    pub volume: Arc<dyn Volume>,
    pub path: Vec<u8>,
    pub access: Access,
    /// The size and time that a source file must still have when its bytes have been read.
    pub expect: Option<(u64, Mtime)>,
    /// The file that it must be, where it exists already.
    pub made: Option<Identity>,
    /// It has holes, or gets them.
    pub sparse: bool,
    /// The length that it gets before anything is written.
    length: Option<u64>,
    /// Ranges that are made holes before anything is written: their content is unknown.
    unknown: Vec<Range<u64>>,
    /// What it becomes in a store.
    new: Option<Arc<NewObject>>,
    /// The byte of its object that is the first of the file.
    pub first: u64,
    opened: OnceLock<Result<Handle, Fault>>,
}

impl LazyFile {
    pub fn new(
        volume: Arc<dyn Volume>,
        path: Vec<u8>,
        access: Access,
        expect: Option<(u64, Mtime)>,
    ) -> LazyFile {
        let (made, length, unknown, new) = (None, None, Vec::new(), None);
        let (sparse, first, opened) = (false, 0, OnceLock::new());
        LazyFile { volume, path, access, expect, made, sparse, length, unknown, new, first, opened }
    }

    /// It must be this file, whatever has its name when it is opened.
    pub(crate) fn known_by(self, made: Option<Identity>) -> LazyFile {
        LazyFile { made, ..self }
    }

    pub(crate) fn with_holes(self, sparse: bool) -> LazyFile {
        LazyFile { sparse, ..self }
    }

    /// A file to be written with holes. It gets its length when it is opened, so that a hole at its
    /// end exists wherever the last write ends; then these ranges become holes.
    pub(crate) fn hollow(self, size: u64, unknown: Vec<Range<u64>>) -> LazyFile {
        LazyFile { sparse: true, length: Some(size), unknown, ..self }
    }

    /// It becomes an object of a store.
    pub(crate) fn becoming(self, new: Option<Arc<NewObject>>) -> LazyFile {
        LazyFile { new, ..self }
    }

    /// It has what its object has from this byte on.
    pub(crate) fn beginning_at(self, first: u64) -> LazyFile {
        LazyFile { first, ..self }
    }

    pub fn handle(&self) -> Result<&Handle, Fault> {
        self.opened.get_or_init(|| self.open()).as_ref().map_err(Fault::clone)
    }

    fn open(&self) -> Result<Handle, Fault> {
        let handle = match &self.new {
            Some(new) => return self.volume.begin(&self.path, new),
            None => self.volume.open(&self.path, self.access)?,
        };
        if let Some(made) = self.made {
            let (there, _) = self.volume.identity_of(&handle, &self.path)?;
            if !there.is_some_and(|there| there.is(&made)) {
                let name = show(&*self.volume, &self.path);
                let text = format!("'{name}' is not the file that this transfer made: remove it");
                return Err(Fault::new(Class::Local, text));
            }
        }
        if let Some(length) = self.length {
            self.volume.set_length(&handle, &self.path, length)?;
        }
        for stretch in &self.unknown {
            self.volume.make_hole(&handle, &self.path, stretch.clone())?;
        }
        Ok(handle)
    }

    /// The handle, if the file has been opened.
    pub fn opened(&self) -> Option<&Handle> {
        self.opened.get().and_then(|opened| opened.as_ref().ok())
    }

    /// Whether space for all of it has been reserved.
    pub(crate) fn is_reserved(&self) -> bool {
        matches!(self.access, Access::Create { reserve: Some(_), .. }) && self.opened().is_some()
    }

    pub fn cache(&self) -> Cache {
        if self.volume.store().is_some() {
            return Cache::Through; // nothing here is kept in blocks
        }
        match self.access {
            Access::Read { cache } | Access::Create { cache, .. } | Access::Resume { cache } => {
                cache
            }
        }
    }

    /// Fails when the file is no longer what was offered.
    pub(crate) fn check_unchanged(&self) -> Result<(), Fault> {
        let (Some(then), Some(handle)) = (self.expect, self.opened()) else {
            return Ok(());
        };
        match self.volume.is_still(handle, &self.path, then)? {
            true => Ok(()),
            false => Err(changed(&*self.volume, &self.path)),
        }
    }
}

/// A source file that is not what it was when it was offered.
pub fn changed(volume: &dyn Volume, path: &[u8]) -> Fault {
    let text = format!("'{}' changed while it was read: copy it again", show(volume, path));
    Fault::new(Class::SourceChanged, text)
}

/// A path as the user knows it.
pub fn show(volume: &dyn Volume, path: &[u8]) -> String {
    show_below(volume.root(), path)
}

fn show_below(root: &Path, path: &[u8]) -> String {
    use std::os::unix::ffi::OsStrExt;
    root.join(std::ffi::OsStr::from_bytes(path)).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_was_cut_is_the_same() {
        let at = |seconds, nanos| Mtime { seconds, nanos };
        let cases = [
            ((7, 123_456_789), (7, 123_456_789), true),
            ((7, 123_456_789), (7, 123_456_700), true),
            ((7, 123_456_789), (7, 123_456_000), true),
            ((7, 123_456_789), (7, 120_000_000), true),
            ((7, 123_456_789), (7, 0), true),
            ((7, 123_456_789), (6, 0), true),
            // Before 1970 as well: cut to the past.
            ((-7, 500_000_000), (-7, 0), true),
            ((-7, 500_000_000), (-8, 0), true),
            ((7, 123_456_789), (7, 123_400_000), false),
            ((7, 123_456_789), (7, 123_456_790), false),
            ((7, 123_456_789), (8, 0), false),
            ((7, 123_456_789), (5, 0), false),
            ((8, 0), (7, 0), false),
            ((8, 0), (6, 0), false),
            // Beyond what ext4 has.
            ((15_032_385_536, 5), (15_032_385_535, 0), true),
            ((15_032_385_534, 5), (15_032_385_535, 0), false),
            ((-2_147_483_649, 5), (-2_147_483_648, 0), true),
            ((i64::MAX, 0), (2_147_483_647, 0), true),
            ((7, 0), (2_147_483_647, 0), false),
        ];
        for (source, there, expect) in cases {
            let (source, there) = (at(source.0, source.1), at(there.0, there.1));
            assert_eq!(source.is_kept_as(there), expect, "{source:?} {there:?}");
        }
    }
}
