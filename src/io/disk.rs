//! A real file system as a volume: every path is resolved beneath its root, by the kernel.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{
    AtFlags, FallocateFlags, FileType, FlockOperation, Gid, Mode, OFlags, RenameFlags,
    ResolveFlags, SeekFrom, Stat, Timespec, Timestamps, Uid,
};
use rustix::io::Errno;

use super::attributes::{self, What};
use super::holes;
use super::volume::{
    Access, Cache, Durable, Handle, Left, Metadata, Mtime, Replace, Segment, Status, StatusKind,
    Volume, changed, show,
};
use crate::base::attributes::Attributes;
use crate::base::fault::{Class, Fault};

/// Directory handles kept open: small files of one directory follow each other.
const DIRECTORIES_MAX: usize = 64;

/// A tree below one directory.
#[derive(Debug)]
pub struct Disk {
    root: OwnedFd,
    path: PathBuf,
    waits: bool,
    directories: Mutex<HashMap<Vec<u8>, Arc<OwnedFd>>>,
    refusals: Mutex<Refusals>,
}

/// What could not be kept: each kind is told once.
#[derive(Debug, Default)]
struct Refusals {
    said: BTreeSet<What>,
    texts: Vec<String>,
}

impl Disk {
    pub fn open(path: &Path) -> Result<Disk, Fault> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| Fault::io("open the directory", path, &errno.into()))?;
        let waits = match rustix::fs::fstatfs(&root) {
            Ok(status) => !matches!(status.f_type as u64, TMPFS_MAGIC | RAMFS_MAGIC),
            Err(_) => true,
        };
        Ok(Disk {
            root,
            path: path.to_path_buf(),
            waits,
            directories: Mutex::default(),
            refusals: Mutex::default(),
        })
    }

    fn fault(&self, doing: &str, path: &[u8], errno: Errno) -> Fault {
        // What is not read is changed: a disk that fails then ends the transfer.
        let make = if READING.contains(&doing) { Fault::io } else { Fault::write };
        make(doing, &self.path.join(OsStr::from_bytes(path)), &errno.into())
    }

    /// The directory that holds `path`, and the name in it.
    fn parent<'a>(&self, path: &'a [u8]) -> Result<(Parent<'_>, &'a OsStr), Errno> {
        let Some(slash) = path.iter().rposition(|byte| *byte == b'/') else {
            return Ok((Parent::Root(&self.root), OsStr::from_bytes(path)));
        };
        let (directory, name) = (&path[..slash], OsStr::from_bytes(&path[slash + 1..]));
        let mut directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fd) = directories.get(directory) {
            return Ok((Parent::Below(fd.clone()), name));
        }
        let fd = Arc::new(self.beneath(directory, OFlags::RDONLY | OFlags::DIRECTORY)?);
        if directories.len() >= DIRECTORIES_MAX {
            directories.clear();
        }
        directories.insert(directory.to_vec(), fd.clone());
        Ok((Parent::Below(fd), name))
    }

    fn beneath(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let path = OsStr::from_bytes(path);
        rustix::fs::openat2(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    }

    /// Does something with a name and gives its directory the times that it had: what is ours alone
    /// leaves no trace.
    fn unseen<T>(&self, path: &[u8], work: impl FnOnce() -> T) -> T {
        let parent = self.parent(path).map(|(parent, _)| parent);
        let before = parent.as_ref().ok().and_then(|parent| rustix::fs::fstat(parent).ok());
        let done = work();
        if let (Ok(parent), Some(before)) = (&parent, before) {
            // Somebody else's directory keeps the time of the change.
            let _ = rustix::fs::futimens(parent, &timestamps(status_from(&before).mtime));
        }
        done
    }

    fn open_in_parent(&self, path: &[u8], flags: OFlags, mode: u32) -> Result<OwnedFd, Errno> {
        let (parent, name) = self.parent(path)?;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(mode))
    }

    /// Opens around the page cache where the file system can, else through it.
    fn open_cached(&self, path: &[u8], flags: OFlags, cache: Cache) -> Result<OwnedFd, Errno> {
        if cache == Cache::Around {
            match self.open_in_parent(path, flags | OFlags::DIRECT, 0o600) {
                Err(Errno::INVAL) => {}
                opened => return opened,
            }
            // The refused open may have made the file already.
            if flags.contains(OFlags::CREATE) {
                let flags = flags.difference(OFlags::EXCL);
                return self.open_in_parent(path, flags, 0o600);
            }
        }
        self.open_in_parent(path, flags, 0o600)
    }

    /// Gives a mode, less what the umask withholds where nothing is preserved; where it is, time
    /// and attributes too. The owner comes first: a change of it takes bits from the mode.
    fn give_metadata(&self, fd: BorrowedFd<'_>, path: &[u8], meta: &Metadata) -> Result<(), Errno> {
        let Some(mtime) = meta.mtime else {
            return rustix::fs::fchmod(fd, Mode::from_raw_mode(meta.mode & !umask()));
        };
        let mut mode = meta.mode;
        if let Some(given) = &meta.attributes {
            let refused = attributes::give(fd, given);
            if refused.iter().any(|refused| refused.what == What::Owner) {
                mode &= !SET_ID_BITS; // no program runs as somebody whom its source did not name
            }
            for refused in refused {
                self.refuse(refused.what, path, refused.errno);
            }
        }
        rustix::fs::fchmod(fd, Mode::from_raw_mode(mode))?;
        rustix::fs::futimens(fd, &timestamps(mtime))
    }

    fn refuse(&self, what: What, path: &[u8], errno: Errno) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.said.insert(what) {
            let error = std::io::Error::from(errno);
            let text = format!("'{}': {} ({error}; said once)", show(self, path), what.text());
            refusals.texts.push(text);
        }
    }

    fn give_link_owner(&self, path: &[u8], given: &Attributes) -> Result<(), Errno> {
        let (parent, name) = self.parent(path)?;
        let (uid, gid) = (Uid::from_raw(given.uid), Gid::from_raw(given.gid));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        match rustix::fs::chownat(&parent, name, Some(uid), Some(gid), flags) {
            Err(errno) => {
                self.refuse(What::Owner, path, errno);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Writes a new file; blocks of zeros become holes where that is asked.
    fn fill(&self, fd: &OwnedFd, segment: &Segment, from: &[u8]) -> Result<(), Errno> {
        let mut at = 0;
        while at < from.len() {
            let run = match segment.sparse {
                false => at..from.len(),
                true => match holes::next_data(from, at) {
                    Some(run) => run,
                    None => break,
                },
            };
            at = run.start;
            while at < run.end {
                match rustix::io::pwrite(fd, &from[at..run.end], at as u64) {
                    Ok(count) => at += count,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        match segment.sparse {
            true => rustix::fs::ftruncate(fd, from.len() as u64),
            false => Ok(()),
        }
    }

    fn check_small(&self, fd: &OwnedFd, segment: &Segment) -> Result<(), Fault> {
        let now =
            rustix::fs::fstat(fd).map_err(|errno| self.fault("look at", &segment.path, errno))?;
        let status = status_from(&now);
        let expect = segment.meta.mtime.unwrap_or(status.mtime);
        match status.size == u64::from(segment.len) && status.mtime == expect {
            true => Ok(()),
            false => Err(changed(self, &segment.path)),
        }
    }
}

impl Volume for Disk {
    fn root(&self) -> &Path {
        &self.path
    }

    fn waits(&self) -> bool {
        self.waits
    }

    fn status(&self, path: &[u8]) -> Result<Option<Status>, Fault> {
        let found = self.parent(path).and_then(|(parent, name)| {
            rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)
        });
        match found {
            Ok(stat) => Ok(Some(status_from(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.fault("look at", path, errno)),
        }
    }

    fn open(&self, path: &[u8], access: Access) -> Result<Handle, Fault> {
        let opened = match access {
            Access::Read { cache } => {
                self.open_cached(path, OFlags::RDONLY | OFlags::NONBLOCK, cache)
            }
            Access::Create { cache, .. } => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
                match self.open_cached(path, flags, cache) {
                    // Left by an earlier run, under a name that is ours alone.
                    Err(Errno::EXIST) => {
                        let _ = self.remove(path);
                        self.open_cached(path, flags, cache)
                    }
                    opened => opened,
                }
            }
            Access::Resume { cache } => self.open_cached(path, OFlags::WRONLY, cache),
        };
        let fd = opened.map_err(|errno| match access {
            Access::Read { .. } | Access::Resume { .. } => self.fault("open", path, errno),
            Access::Create { .. } => self.fault("create", path, errno),
        })?;
        if let Access::Create { reserve: Some(size @ 1..), .. } = access {
            // With its length: a write behind a file's end waits for all others of the file.
            match rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, size) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(errno) => return Err(self.fault("reserve room for", path, errno)),
            }
        }
        Ok(Handle::new(fd))
    }

    fn status_of(&self, file: &Handle, path: &[u8]) -> Result<Status, Fault> {
        rustix::fs::fstat(file.fd())
            .map(|stat| status_from(&stat))
            .map_err(|errno| self.fault("look at", path, errno))
    }

    fn next_data(&self, file: &Handle, path: &[u8], offset: u64) -> Result<Option<u64>, Fault> {
        match rustix::fs::seek(file.fd(), SeekFrom::Data(offset)) {
            Ok(data) => Ok(Some(data)),
            Err(Errno::NXIO) => Ok(None),
            // The file system does not know: everything is data.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(offset)),
            Err(errno) => Err(self.fault("look for holes in", path, errno)),
        }
    }

    fn make_directory(&self, path: &[u8], mode: u32) -> Result<(), Fault> {
        self.parent(path)
            .and_then(|(parent, name)| {
                rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(mode))
            })
            .map_err(|errno| self.fault("make the directory", path, errno))
    }

    fn set_directory_mode(&self, path: &[u8], mode: u32) -> Result<(), Fault> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        self.open_in_parent(path, flags, 0)
            .and_then(|fd| {
                // What is open only as a path has no other way to a new mode.
                let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
                rustix::fs::chmod(name, Mode::from_raw_mode(mode))
            })
            .map_err(|errno| self.fault("set the mode of", path, errno))
    }

    fn make_link(&self, path: &[u8], target: &[u8], meta: &Metadata) -> Result<(), Fault> {
        self.parent(path)
            .and_then(|(parent, name)| {
                rustix::fs::symlinkat(OsStr::from_bytes(target), &parent, name)
            })
            .map_err(|errno| self.fault("make the link", path, errno))?;
        let Some(mtime) = meta.mtime else { return Ok(()) };
        let owned = match &meta.attributes {
            Some(given) => self.give_link_owner(path, given),
            None => Ok(()),
        };
        owned
            .and_then(|()| self.parent(path))
            .and_then(|(parent, name)| {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::utimensat(&parent, name, &timestamps(mtime), flags)
            })
            .map_err(|errno| self.fault("set the time of the link", path, errno))
    }

    fn make_hard_link(&self, path: &[u8], twin: &[u8]) -> Result<(), Fault> {
        self.parent(twin)
            .and_then(|(twin_parent, twin_name)| {
                let (parent, name) = self.parent(path)?;
                rustix::fs::linkat(&twin_parent, twin_name, &parent, name, AtFlags::empty())
            })
            .map_err(|errno| self.fault("make another name of", twin, errno))
    }

    fn set_length(&self, file: &Handle, path: &[u8], len: u64) -> Result<(), Fault> {
        rustix::fs::ftruncate(file.fd(), len)
            .map_err(|errno| self.fault("set the length of", path, errno))
    }

    fn set_metadata(&self, file: &Handle, path: &[u8], meta: &Metadata) -> Result<(), Fault> {
        self.give_metadata(file.fd(), path, meta)
            .map_err(|errno| self.fault("set mode and time of", path, errno))
    }

    fn leave_directory(&self, path: &[u8], meta: Option<&Metadata>, durable: Durable) -> Left {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let opened = match path {
            b"" => self.root.try_clone().map_err(|_| Errno::MFILE),
            path => self.open_in_parent(path, flags, 0),
        };
        let fd = match opened {
            Ok(fd) => fd,
            Err(errno) => {
                let fault = self.fault("open the directory", path, errno);
                return Left { given: Err(fault.clone()), synced: Err(fault) };
            }
        };
        let given = match meta.map(|meta| self.give_metadata(fd.as_fd(), path, meta)) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(Errno::PERM)) if path.is_empty() => {
                self.refuse(What::Root, path, Errno::PERM);
                Ok(())
            }
            Some(Err(errno)) => Err(self.fault("set mode and time of", path, errno)),
        };
        let synced = match durable {
            Durable::Later => Ok(()),
            Durable::Now => rustix::fs::fsync(&fd)
                .map_err(|errno| self.fault("sync the directory", path, errno)),
        };
        Left { given, synced }
    }

    fn take_warnings(&self) -> Vec<String> {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut refusals.texts)
    }

    fn sync(&self, file: &Handle, path: &[u8]) -> Result<(), Fault> {
        rustix::fs::fdatasync(file.fd()).map_err(|errno| self.fault("sync", path, errno))
    }

    fn sync_all(&self) -> Result<(), Fault> {
        rustix::fs::syncfs(&self.root).map_err(|errno| self.fault("sync", b"", errno))
    }

    fn sync_directory(&self, path: &[u8]) -> Result<(), Fault> {
        self.parent(path)
            .and_then(|(parent, _)| rustix::fs::fsync(&parent))
            .map_err(|errno| self.fault("sync the directory of", path, errno))
    }

    fn rename(&self, from: &[u8], to: &[u8], replace: Replace) -> Result<(), Fault> {
        let renamed = self.parent(from).and_then(|(from_parent, from_name)| {
            let (to_parent, to_name) = self.parent(to)?;
            match replace {
                Replace::Allowed => {
                    rustix::fs::renameat(&from_parent, from_name, &to_parent, to_name)
                }
                Replace::Never => rename_new(&from_parent, from_name, &to_parent, to_name),
            }
        });
        renamed.map_err(|errno| match errno {
            Errno::EXIST => exists(self, to),
            errno => self.fault("give its name to", to, errno),
        })
    }

    fn remove(&self, path: &[u8]) -> Result<(), Fault> {
        let removed = self
            .parent(path)
            .and_then(|(parent, name)| rustix::fs::unlinkat(&parent, name, AtFlags::empty()));
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.fault("remove", path, errno)),
        }
    }

    fn open_locked(&self, path: &[u8]) -> Result<Option<Handle>, Fault> {
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE;
            let fd = self
                .unseen(path, || self.open_in_parent(path, flags, 0o600))
                .map_err(|errno| self.fault("create", path, errno))?;
            match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(self.fault("lock", path, errno)),
            }
            // What somebody else has put here is not believed.
            let stat =
                rustix::fs::fstat(&fd).map_err(|errno| self.fault("look at", path, errno))?;
            if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
                let text = format!("'{}' belongs to somebody else: remove it", show(self, path));
                return Err(Fault::new(Class::Local, text));
            }
            // Whoever had it may have removed it while we opened it.
            let handle = Handle::new(fd);
            let ours = self.status_of(&handle, path)?;
            if self.status(path)?.is_some_and(|there| there.inode == ours.inode) {
                return Ok(Some(handle));
            }
        }
    }

    fn remove_unseen(&self, path: &[u8]) -> Result<(), Fault> {
        self.unseen(path, || self.remove(path))
    }

    fn read_at(
        &self,
        file: &Handle,
        path: &[u8],
        at: u64,
        into: &mut [u8],
    ) -> Result<usize, Fault> {
        loop {
            match rustix::io::pread(file.fd(), &mut *into, at) {
                Err(Errno::INTR) => {}
                read => return read.map_err(|errno| self.fault("read", path, errno)),
            }
        }
    }

    fn append(&self, file: &Handle, path: &[u8], at: u64, bytes: &[u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwrite(file.fd(), &bytes[done..], at + done as u64) {
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.fault("write", path, errno)),
            }
        }
        Ok(())
    }

    fn read_link(&self, path: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let read = self
            .parent(path)
            .and_then(|(parent, name)| rustix::fs::readlinkat(&parent, name, Vec::new()));
        match read {
            Ok(target) => Ok(Some(target.into_bytes())),
            Err(Errno::INVAL | Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.fault("read the link", path, errno)),
        }
    }

    fn free_bytes(&self) -> Result<u64, Fault> {
        rustix::fs::fstatvfs(&self.root)
            .map(|status| status.f_bavail.saturating_mul(status.f_frsize))
            .map_err(|errno| self.fault("ask for the free space of", b"", errno))
    }

    fn read_small(&self, segment: &Segment, into: &mut [u8]) -> Result<(), Fault> {
        let path = &segment.path;
        let fd = self
            .open_in_parent(path, OFlags::RDONLY | OFlags::NONBLOCK, 0)
            .map_err(|errno| self.fault("open", path, errno))?;
        let mut filled = 0;
        while filled < into.len() {
            match rustix::io::read(&fd, &mut into[filled..]) {
                Ok(0) => return Err(changed(self, path)),
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.fault("read", path, errno)),
            }
        }
        self.check_small(&fd, segment)
    }

    fn write_small(&self, segment: &Segment, from: &[u8]) -> Result<(), Fault> {
        let path = &segment.path;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        // What is given at the end is not open to anybody before.
        let mode = if segment.meta.mtime.is_some() { 0o600 } else { segment.meta.mode };
        let open = || self.open_in_parent(path, flags, mode);
        let opened = match open() {
            // Left by an earlier run, under a name that is ours alone.
            Err(Errno::EXIST) => {
                let _ = self.remove(path);
                open()
            }
            opened => opened,
        };
        let fd = opened.map_err(|errno| self.fault("create", path, errno))?;
        self.fill(&fd, segment, from).map_err(|errno| self.fault("write", path, errno))?;
        match segment.meta.mtime {
            None => Ok(()),
            Some(_) => self
                .give_metadata(fd.as_fd(), path, &segment.meta)
                .map_err(|errno| self.fault("set mode and time of", path, errno)),
        }
    }
}

/// The fault of a name that is taken.
pub fn exists(volume: &dyn Volume, path: &[u8]) -> Fault {
    let name = show(volume, path);
    let text = format!("'{name}' exists: --overwrite older or always replaces it");
    Fault::new(Class::Local, text)
}

/// A rename that replaces nothing. File systems without it get the same by a link, which also fails
/// when the name is taken.
fn rename_new(
    from_parent: &Parent<'_>,
    from: &OsStr,
    to_parent: &Parent<'_>,
    to: &OsStr,
) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from_parent, from, to_parent, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::linkat(from_parent, from, to_parent, to, AtFlags::empty())?;
            rustix::fs::unlinkat(from_parent, from, AtFlags::empty())
        }
        renamed => renamed,
    }
}

fn timestamps(mtime: Mtime) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        last_modification: Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanos.into() },
    }
}

/// The process's umask, which can only be read by setting it; asked once.
fn umask() -> u32 {
    static UMASK: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *UMASK.get_or_init(|| {
        let mask = rustix::process::umask(Mode::from_raw_mode(0o077));
        rustix::process::umask(mask);
        mask.as_raw_mode()
    })
}

fn status_from(stat: &Stat) -> Status {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => StatusKind::File,
        FileType::Directory => StatusKind::Directory,
        _ => StatusKind::Other,
    };
    let mtime = Mtime { seconds: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 };
    Status {
        kind,
        size: stat.st_size as u64,
        mtime,
        mode: stat.st_mode & 0o7777,
        inode: (stat.st_dev, stat.st_ino),
    }
}

/// A directory handle: the root's, or one from the cache.
#[derive(Debug)]
enum Parent<'a> {
    Root(&'a OwnedFd),
    Below(Arc<OwnedFd>),
}

impl AsFd for Parent<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Parent::Root(fd) => fd.as_fd(),
            Parent::Below(fd) => fd.as_fd(),
        }
    }
}

/// A program with one of these runs as its file's owner or group.
const SET_ID_BITS: u32 = 0o6000;
/// What a volume does that changes nothing.
const READING: [&str; 4] = ["open", "read", "look at", "read the link"];

const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;
