//! What a file system is to this program: names, handles, and changes that can be lost.
//!
//! Data goes through a `Backend`, many transfers at once. What a volume does is small, synchronous
//! and about names; the simulator has one of its own, so that it can lose every change that was not
//! synced.

use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use base::attributes::Attributes;
use base::fault::{Class, Fault};

/// Something the kernel, or the simulator, knows by a number.
#[derive(Clone, Debug)]
pub enum Handle {
    Fd(Arc<OwnedFd>),
    Sim(u64),
}

impl Handle {
    pub fn new(fd: OwnedFd) -> Handle {
        Handle::Fd(Arc::new(fd))
    }

    /// True for two names of one thing.
    pub fn is(&self, other: &Handle) -> bool {
        match (self, other) {
            (Handle::Fd(one), Handle::Fd(another)) => Arc::ptr_eq(one, another),
            (Handle::Sim(one), Handle::Sim(another)) => one == another,
            _ => false,
        }
    }

    /// The descriptor. Only real backends ask, and they are only given real handles.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Handle::Fd(fd) => fd.as_fd(),
            Handle::Sim(id) => panic!("simulated handle {id} in a real backend"),
        }
    }
}

/// When a file was last changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtime {
    pub seconds: i64,
    pub nanos: u32,
}

/// What a path is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub kind: StatusKind,
    pub size: u64,
    pub mtime: Mtime,
    /// Permission bits.
    pub mode: u32,
    /// Device and inode: names of the same file have the same.
    pub inode: (u64, u64),
    /// What it takes on the disk.
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

/// What a file that was made here is known by later: more than its number, which another file may
/// get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub inode: u64,
    pub owner: u32,
    /// When it was made, where the file system says so.
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
    /// Set when mode and time are to be kept.
    pub mtime: Option<Mtime>,
    /// Set when they are to be kept.
    pub attributes: Option<Arc<Attributes>>,
}

/// Whether a change is on stable storage before the call comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    Now,
    Later,
}

/// What came of asking for a file that nobody else is to have.
#[derive(Clone, Debug)]
pub enum Locked {
    Ours(Handle),
    /// Another process of ours has it.
    Busy,
    /// Its name leads to what is somebody else's, or not only ours: it was not touched.
    Foreign,
}

/// What came of leaving a directory.
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
    /// A new file to write. Where `reserve` is asked, it is that long at once and has room for it,
    /// if the file system can do that.
    Create { cache: Cache, reserve: Option<u64> },
    /// A file that is there already, to write what is missing of it.
    Resume { cache: Cache },
}

/// A file to be read, as most are.
pub(crate) const READ_THROUGH: Access = Access::Read { cache: Cache::Through };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    Through,
    Around,
}

/// May a rename replace what has the name already?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    Never,
    Allowed,
}

/// A tree of files below one root. Every path is relative to it and cannot leave it.
pub trait Volume: Send + Sync + fmt::Debug {
    /// What people call this root in messages.
    fn root(&self) -> &Path;
    /// True when reads and writes can wait for a device: false for files in memory.
    fn waits(&self) -> bool;
    fn status(&self, path: &[u8]) -> Result<Option<Status>, Fault>;
    fn open(&self, path: &[u8], access: Access) -> Result<Handle, Fault>;
    fn status_of(&self, file: &Handle, path: &[u8]) -> Result<Status, Fault>;
    /// What an open file is known by, and how long it is. `None` for what is no file, or has more
    /// names than one: it is not ours alone.
    fn identity_of(&self, file: &Handle, path: &[u8]) -> Result<(Option<Identity>, u64), Fault>;
    /// Where the file has data at `offset` or behind it; `None` when there is a hole to its end.
    fn next_data(&self, file: &Handle, path: &[u8], offset: u64) -> Result<Option<u64>, Fault>;
    /// Makes a stretch of a file read as zeros, and gives back its room where the file system knows
    /// holes. The file keeps its length.
    fn make_hole(&self, file: &Handle, path: &[u8], stretch: Range<u64>) -> Result<(), Fault>;
    fn make_directory(&self, path: &[u8], mode: u32) -> Result<(), Fault>;
    /// Changes the mode of a directory, also of one that its owner may not look into.
    fn set_directory_mode(&self, path: &[u8], mode: u32) -> Result<(), Fault>;
    fn make_link(&self, path: &[u8], target: &[u8], meta: &Metadata) -> Result<(), Fault>;
    /// Gives a file another name, which must be free.
    fn make_hard_link(&self, path: &[u8], twin: &[u8]) -> Result<(), Fault>;
    fn set_length(&self, file: &Handle, path: &[u8], len: u64) -> Result<(), Fault>;
    fn set_metadata(&self, file: &Handle, path: &[u8], meta: &Metadata) -> Result<(), Fault>;
    /// Gives a directory (the root where the path is empty) what it is to have in the end, where
    /// that is said, and puts its names on stable storage, where that is asked.
    fn leave_directory(&self, path: &[u8], meta: Option<&Metadata>, durable: Durable) -> Left;
    /// What could not be kept, said once for each kind of thing.
    fn take_warnings(&self) -> Vec<String> {
        Vec::new()
    }
    /// The file's bytes are on stable storage.
    fn sync(&self, file: &Handle, path: &[u8]) -> Result<(), Fault>;
    /// The file system that the directory of a path is on, as a number: another one may be mounted
    /// anywhere below the root.
    fn file_system_of(&self, path: &[u8]) -> Result<u64, Fault>;
    /// Everything on the file system that the directory of this path is on is: bytes, names and
    /// metadata.
    fn sync_all(&self, path: &[u8]) -> Result<(), Fault>;
    /// The root's own name is, where the directory that holds it may be read.
    fn sync_own_name(&self) -> Result<(), Fault>;
    /// The names in this directory (of a path's parent) are.
    fn sync_directory(&self, path: &[u8]) -> Result<(), Fault>;
    fn rename(&self, from: &[u8], to: &[u8], replace: Replace) -> Result<(), Fault>;
    fn remove(&self, path: &[u8]) -> Result<(), Fault>;
    /// Opens a file to be read and appended to, makes it where there is none, and keeps everybody
    /// else out of it until the handle is dropped.
    fn open_locked(&self, path: &[u8]) -> Result<Locked, Fault>;
    /// True where somebody else has put something under a name that only we give.
    fn is_foreign(&self, _path: &[u8]) -> Result<bool, Fault> {
        Ok(false)
    }
    /// Removes a file that is ours alone: its directory looks as if nothing had been.
    fn remove_unseen(&self, path: &[u8]) -> Result<(), Fault> {
        self.remove(path)
    }
    /// Reads what there is at an offset; 0 at the end.
    fn read_at(&self, file: &Handle, path: &[u8], at: u64, into: &mut [u8])
    -> Result<usize, Fault>;
    /// Writes all of `bytes` at an offset.
    fn append(&self, file: &Handle, path: &[u8], at: u64, bytes: &[u8]) -> Result<(), Fault>;
    /// Where a symbolic link points; `None` for what is none.
    fn read_link(&self, path: &[u8]) -> Result<Option<Vec<u8>>, Fault>;
    /// Bytes that can still be written in the directory of this path.
    fn free_bytes(&self, path: &[u8]) -> Result<u64, Fault>;
    /// The size of a file whose file system does not tell sizes, found by reading it to its end;
    /// `None` where sizes are told.
    fn untold_size(&self, _path: &[u8]) -> Result<Option<u64>, Fault> {
        Ok(None)
    }
    /// Whether an open file still has this size and time.
    fn is_still(&self, file: &Handle, path: &[u8], then: (u64, Mtime)) -> Result<bool, Fault> {
        let status = self.status_of(file, path)?;
        Ok((status.size, status.mtime) == then)
    }
    /// Reads one small file whole: exactly `into`, of a file that has just that size and time.
    fn read_small(&self, segment: &Segment, into: &mut [u8]) -> Result<(), Fault>;
    /// Writes one small file whole, metadata included.
    fn write_small(&self, segment: &Segment, from: &[u8]) -> Result<(), Fault>;
}

/// A small file as part of a batch.
#[derive(Clone, Debug)]
pub struct Segment {
    pub object: u64,
    /// `None` where its bytes are thrown away.
    pub volume: Option<Arc<dyn Volume>>,
    /// Where it is read from, or the temporary name that it is written under.
    pub path: Vec<u8>,
    pub len: u32,
    /// Where its bytes lie in the body.
    pub at: u32,
    pub meta: Metadata,
    /// Blocks of zeros need no room.
    pub sparse: bool,
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
    /// What a source file must still be when its bytes have been read.
    pub expect: Option<(u64, Mtime)>,
    /// The file that it must be, where it is there already.
    pub made: Option<Identity>,
    /// It has holes, or is to have them.
    pub sparse: bool,
    /// The length that it gets before anything is written.
    length: Option<u64>,
    /// Stretches that are made holes before anything is written: nobody knows what is there.
    unknown: Vec<Range<u64>>,
    opened: OnceLock<Result<Handle, Fault>>,
}

impl LazyFile {
    pub fn new(
        volume: Arc<dyn Volume>,
        path: Vec<u8>,
        access: Access,
        expect: Option<(u64, Mtime)>,
    ) -> LazyFile {
        let (made, length, unknown, opened) = (None, None, Vec::new(), OnceLock::new());
        LazyFile { volume, path, access, expect, made, sparse: false, length, unknown, opened }
    }

    /// It must be this file, whatever has its name when it is opened.
    pub(crate) fn known_by(self, made: Option<Identity>) -> LazyFile {
        LazyFile { made, ..self }
    }

    pub(crate) fn with_holes(self, sparse: bool) -> LazyFile {
        LazyFile { sparse, ..self }
    }

    /// A file to be written with holes. It has its length as soon as it is opened, so that what
    /// ends in a hole is there wherever the last write ends; and then these stretches are holes.
    pub(crate) fn hollow(self, size: u64, unknown: Vec<Range<u64>>) -> LazyFile {
        LazyFile { sparse: true, length: Some(size), unknown, ..self }
    }

    pub fn handle(&self) -> Result<&Handle, Fault> {
        self.opened.get_or_init(|| self.open()).as_ref().map_err(Fault::clone)
    }

    fn open(&self) -> Result<Handle, Fault> {
        let handle = self.volume.open(&self.path, self.access)?;
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

    /// The handle, if anybody has needed it.
    pub fn opened(&self) -> Option<&Handle> {
        self.opened.get().and_then(|opened| opened.as_ref().ok())
    }

    /// Whether room for all of it has been asked for.
    pub(crate) fn is_reserved(&self) -> bool {
        matches!(self.access, Access::Create { reserve: Some(_), .. }) && self.opened().is_some()
    }

    pub fn cache(&self) -> Cache {
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

/// A path as people know it.
pub fn show(volume: &dyn Volume, path: &[u8]) -> String {
    use std::os::unix::ffi::OsStrExt;
    volume.root().join(std::ffi::OsStr::from_bytes(path)).display().to_string()
}
