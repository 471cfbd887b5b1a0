//! A real file system as a volume: every path is resolved beneath its root, by the kernel.

mod calls;
mod clearing;
mod digests;
mod faults;
mod filling;
mod keeping;
mod look;
mod metadata;
mod opening;

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;

use self::calls::{chmod_path, is_special, is_still, rename_new, status_from, timestamps};
pub use self::faults::{exists, special};
use self::look::{BY_OWNER, Look};
use super::attributes::What;
use super::beneath::{self, Folder, Links, is_own};
use super::call::Call;
use super::request::ExtraPiece;
use super::untold;
use super::volume::{
    Access, Durable, Handle, Identity, Kept, Left, Locked, Metadata, Mtime, Replace, Segment,
    Status, StatusKind, Volume, changed, show,
};
use base::extra::ExtraSums;
use base::fault::{Class, Fault};
use base::owners::Owner;

/// Directory handles kept open: small files of one directory follow each other.
const DIRECTORIES_MAX: usize = 64;

/// A tree below one directory.
#[derive(Debug)]
pub struct Disk {
    root: Arc<Folder>,
    path: PathBuf,
    /// What is done with links on the way to a name; the last name is never followed.
    links: Links,
    waits: bool,
    directories: Mutex<HashMap<Vec<u8>, Arc<Folder>>>,
    /// The folder in which names were removed last, which was reached through no link.
    cleared: Mutex<Option<(Vec<u8>, Arc<Folder>)>>,
    refusals: Mutex<Refusals>,
    /// How a new file looks where that says nothing of its maker, and on which file system.
    look: Mutex<Option<Look>>,
    folds_case: OnceLock<bool>,
}

/// What could not be preserved: each kind is reported once.
#[derive(Debug, Default)]
struct Refusals {
    said: BTreeSet<What>,
    texts: Vec<String>,
}

impl Disk {
    pub fn open(path: &Path) -> Result<Disk, Fault> {
        let open = |flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
        Disk::opened(path, open)
            .map_err(|errno| Fault::io("open the directory", path, &errno.into()))
    }

    /// The same, where the folder is opened in another way; `path` is for messages.
    pub(super) fn opened(
        path: &Path,
        open: impl Fn(OFlags) -> Result<OwnedFd, Errno>,
    ) -> Result<Disk, Errno> {
        let root = Folder::open(open)?;
        let waits = match rustix::fs::fstatfs(&root.fd) {
            Ok(status) => !matches!(status.f_type as u64, TMPFS_MAGIC | RAMFS_MAGIC),
            Err(_) => true,
        };
        Ok(Disk {
            root: Arc::new(root),
            path: path.to_path_buf(),
            links: Links::Beneath,
            waits,
            directories: Mutex::default(),
            cleared: Mutex::default(),
            refusals: Mutex::default(),
            look: Mutex::default(),
            folds_case: OnceLock::new(),
        })
    }

    fn fault(&self, call: Call, path: &[u8], errno: Errno) -> Fault {
        call.fault(&self.path.join(OsStr::from_bytes(path)), errno.raw_os_error())
    }

    /// A folder below the root.
    pub fn folder(&self, path: &[u8], links: Links) -> Result<Folder, Errno> {
        Folder::open(|flags| beneath::open_folder(self.root.as_fd(), path, flags, links))
    }

    /// The directory that holds `path`, and the name in it: operations on these cannot leave it.
    pub fn place<'a>(&self, path: &'a [u8]) -> Result<(Arc<Folder>, &'a OsStr), Errno> {
        self.parent(path)
    }

    fn parent<'a>(&self, path: &'a [u8]) -> Result<(Arc<Folder>, &'a OsStr), Errno> {
        let Some(slash) = path.iter().rposition(|byte| *byte == b'/') else {
            return Ok((self.root.clone(), OsStr::from_bytes(path)));
        };
        let (directory, name) = (&path[..slash], OsStr::from_bytes(&path[slash + 1..]));
        let mut directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = directories.get(directory) {
            return Ok((folder.clone(), name));
        }
        let folder = Arc::new(self.folder(directory, self.links)?);
        if directories.len() >= DIRECTORIES_MAX {
            directories.clear();
        }
        directories.insert(directory.to_vec(), folder.clone());
        Ok((folder, name))
    }
}

impl Volume for Disk {
    fn root(&self) -> &Path {
        &self.path
    }

    fn waits(&self) -> bool {
        self.waits
    }

    fn folds_case(&self) -> bool {
        *self.folds_case.get_or_init(|| self.seems_to_fold_case())
    }

    fn status(&self, path: &[u8]) -> Result<Option<Status>, Fault> {
        let found = self.parent(path).and_then(|(parent, name)| {
            rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)
        });
        match found {
            Ok(stat) => Ok(Some(status_from(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.fault(Call::LookAt, path, errno)),
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
                    // Left by an earlier run, under a name that only we use.
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
            Access::Read { .. } => self.fault(Call::Open, path, errno),
            Access::Resume { .. } => self.fault(Call::Resume, path, errno),
            Access::Create { .. } => self.fault(Call::Create, path, errno),
        })?;
        if let Access::Create { reserve: Some(size @ 1..), .. } = access {
            // With its length: a write past a file's end waits for all other writes of the file.
            match rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, size) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(errno) => return Err(self.fault(Call::Reserve, path, errno)),
            }
        }
        Ok(Handle::new(fd))
    }

    fn open_past_cache(&self, path: &[u8]) -> Result<Handle, Fault> {
        self.opened_past_cache(path)
    }

    fn status_of(&self, file: &Handle, path: &[u8]) -> Result<Status, Fault> {
        rustix::fs::fstat(file.fd())
            .map(|stat| status_from(&stat))
            .map_err(|errno| self.fault(Call::LookAt, path, errno))
    }

    fn identity_of(&self, file: &Handle, path: &[u8]) -> Result<(Option<Identity>, u64), Fault> {
        let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let stat = rustix::fs::statx(file.fd(), "", AtFlags::EMPTY_PATH, flags)
            .map_err(|errno| self.fault(Call::LookAt, path, errno))?;
        let kind = FileType::from_raw_mode(stat.stx_mode.into());
        let born = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
        let identity = Identity {
            inode: stat.stx_ino,
            owner: stat.stx_uid,
            born: born
                .then_some(Mtime { seconds: stat.stx_btime.tv_sec, nanos: stat.stx_btime.tv_nsec }),
        };
        let ours = kind == FileType::RegularFile && stat.stx_nlink == 1;
        Ok((ours.then_some(identity), stat.stx_size))
    }

    fn next_data(&self, file: &Handle, path: &[u8], offset: u64) -> Result<Option<u64>, Fault> {
        match rustix::fs::seek(file.fd(), SeekFrom::Data(offset)) {
            Ok(data) => Ok(Some(data)),
            Err(Errno::NXIO) => Ok(None),
            // The file system does not support this: everything is data.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(offset)),
            Err(errno) => Err(self.fault(Call::FindData, path, errno)),
        }
    }

    fn make_hole(&self, file: &Handle, path: &[u8], stretch: Range<u64>) -> Result<(), Fault> {
        let end = stretch.end.min(self.status_of(file, path)?.size);
        if stretch.start >= end {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(file.fd(), flags, stretch.start, end - stretch.start) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.fill_with_zeros(file, path, stretch.start..end)
            }
            made => made.map_err(|errno| self.fault(Call::MakeHole, path, errno)),
        }
    }

    fn make_directory(&self, path: &[u8], mode: u32) -> Result<(), Fault> {
        self.parent(path)
            .and_then(|(parent, name)| {
                rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(mode))
            })
            .map_err(|errno| self.fault(Call::MakeDirectory, path, errno))
    }

    fn make_directory_like(&self, path: &[u8], like: &[u8]) -> Result<(), Fault> {
        self.make_folder_like(path, like)
            .map_err(|errno| self.fault(Call::MakeDirectory, path, errno))
    }

    fn set_directory_mode(&self, path: &[u8], mode: u32) -> Result<(), Fault> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        self.open_in_parent(path, flags, 0)
            .and_then(|fd| self.give_mode(path, || chmod_path(fd.as_fd(), mode)))
            .map_err(|errno| self.fault(Call::SetMode, path, errno))
    }

    fn set_owner(&self, path: &[u8], owner: Owner, mode: Option<u32>) -> Result<(), Fault> {
        let owned = match owner.is_kept() {
            true => self.give_owner_of_name(path, owner),
            false => Ok(()),
        };
        let fault = |errno| self.fault(Call::SetMode, path, errno);
        owned.map_err(fault)?;
        let Some(mode) = mode else { return Ok(()) };
        self.open_in_parent(path, OFlags::PATH, 0)
            .and_then(|fd| self.give_mode(path, || chmod_path(fd.as_fd(), mode)))
            .map_err(fault)
    }

    fn make_link(&self, path: &[u8], target: &[u8], meta: &Metadata) -> Result<(), Fault> {
        self.parent(path)
            .and_then(|(parent, name)| {
                rustix::fs::symlinkat(OsStr::from_bytes(target), &parent, name)
            })
            .map_err(|errno| self.no_link(path, errno))?;
        let Some(mtime) = meta.mtime else { return Ok(()) };
        let owned = match meta.owner.is_kept() {
            true => self.give_owner_of_name(path, meta.owner),
            false => Ok(()),
        };
        let given = owned.and_then(|()| match &meta.attributes {
            Some(attributes) => self.give_attributes_of_link(path, attributes),
            None => Ok(()),
        });
        given
            .and_then(|()| self.parent(path))
            .and_then(|(parent, name)| {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::utimensat(&parent, name, &timestamps(mtime), flags)
            })
            .or_else(|errno| self.told_if_refused(What::Time, path, errno))
            .map_err(|errno| self.fault(Call::SetLinkTime, path, errno))
    }

    fn make_hard_link(&self, path: &[u8], twin: &[u8]) -> Result<(), Fault> {
        self.give_other_name(path, twin)
            .map_err(|errno| self.fault(Call::MakeHardLink, twin, errno))
    }

    fn set_length(&self, file: &Handle, path: &[u8], len: u64) -> Result<(), Fault> {
        rustix::fs::ftruncate(file.fd(), len)
            .map_err(|errno| self.fault(Call::SetLength, path, errno))
    }

    fn set_metadata(&self, file: &Handle, path: &[u8], meta: &Metadata) -> Result<(), Fault> {
        self.give_metadata(file.fd(), path, meta)
            .map_err(|errno| self.fault(Call::SetMetadata, path, errno))
    }

    fn leave_directory(&self, path: &[u8], meta: Option<&Metadata>, durable: Durable) -> Left {
        let opened = match path {
            b"" => Ok(self.root.clone()),
            path => Folder::open(|flags| self.open_in_parent(path, flags, 0)).map(Arc::new),
        };
        let folder = match opened {
            Ok(folder) => folder,
            Err(errno) => {
                let fault = self.fault(Call::OpenDirectory, path, errno);
                return Left { given: Err(fault.clone()), synced: Err(fault) };
            }
        };
        let given = match meta.map(|meta| self.give_folder(&folder, path, meta)) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(errno)) => Err(self.fault(Call::SetMetadata, path, errno)),
        };
        let synced = match durable {
            Durable::Later => Ok(()),
            Durable::Now => self
                .sync_folder(&folder, path)
                .map_err(|errno| self.fault(Call::SyncDirectory, path, errno)),
        };
        Left { given, synced }
    }

    fn set_digests(
        &self,
        file: Option<&Handle>,
        path: &[u8],
        sums: &ExtraSums,
    ) -> Result<(), Fault> {
        match file {
            Some(file) => self.record_digests(file.fd(), path, sums, None),
            None => self
                .open_in_parent(path, OFlags::RDONLY | OFlags::NONBLOCK, 0)
                .and_then(|file| self.record_digests(file.as_fd(), path, sums, None)),
        }
        .map_err(|errno| self.fault(Call::SetMetadata, path, errno))
    }

    fn take_warnings(&self) -> Vec<String> {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut refusals.texts)
    }

    fn sync(&self, file: &Handle, path: &[u8]) -> Result<(), Fault> {
        rustix::fs::fdatasync(file.fd()).map_err(|errno| self.fault(Call::Sync, path, errno))
    }

    fn file_system_of(&self, path: &[u8]) -> Result<u64, Fault> {
        self.parent(path)
            .and_then(|(parent, _)| parent.device())
            .map_err(|errno| self.fault(Call::LookAt, path, errno))
    }

    fn sync_all(&self, path: &[u8]) -> Result<(), Fault> {
        self.parent(path)
            .and_then(|(parent, _)| match parent.may_be_read {
                true => rustix::fs::syncfs(&parent.fd),
                false => self.sync_around(&parent, path),
            })
            .map_err(|errno| self.fault(Call::Sync, path, errno))
    }

    fn sync_own_name(&self) -> Result<(), Fault> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(holder) = rustix::fs::openat(&self.root.fd, "..", flags, Mode::empty()) else {
            return Ok(());
        };
        match rustix::fs::fsync(&holder) {
            // A file system that keeps its names elsewhere, as below a mount point.
            Ok(()) | Err(Errno::INVAL | Errno::ROFS) => Ok(()),
            Err(errno) => Err(self.fault(Call::SyncDirectory, b"", errno)),
        }
    }

    fn sync_directory(&self, path: &[u8]) -> Result<(), Fault> {
        self.parent(path)
            .and_then(|(parent, _)| self.sync_folder(&parent, path))
            .map_err(|errno| self.fault(Call::SyncDirectory, path, errno))
    }

    fn rename(&self, from: &[u8], to: &[u8], replace: Replace) -> Result<(), Fault> {
        let fault = |errno| match errno {
            Errno::EXIST => exists(self, to),
            errno => self.fault(Call::Rename, to, errno),
        };
        let (from_parent, from_name) = self.parent(from).map_err(fault)?;
        let (to_parent, to_name) = self.parent(to).map_err(fault)?;
        let (of, at) = ((&*from_parent, from_name), (&*to_parent, to_name));
        let rename = || match replace {
            Replace::Allowed | Replace::AnyKind => rustix::fs::renameat(of.0, of.1, at.0, at.1),
            Replace::Never => rename_new(of, at).map(|how| self.tell_of_new_name(to, how)),
        };
        // It was checked when it was offered, which may be long ago.
        if replace == Replace::Allowed && is_special(&to_parent, to_name) {
            return Err(special(self, to));
        }
        match to_parent.is_in_user_space() {
            true => self.rename_in_user_space(of, at, rename),
            false => rename(),
        }
        .map_err(fault)
    }

    fn remove(&self, path: &[u8]) -> Result<(), Fault> {
        let removed = self
            .parent(path)
            .and_then(|(parent, name)| rustix::fs::unlinkat(&parent, name, AtFlags::empty()));
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.fault(Call::Remove, path, errno)),
        }
    }

    fn names_in(
        &self,
        directory: &[u8],
        take: &mut dyn FnMut(&[u8], StatusKind),
    ) -> Result<(), Fault> {
        let listed = self.list_names(directory, take);
        listed.map_err(|errno| self.fault(Call::List, directory, errno))
    }

    fn clear(&self, path: &[u8], kind: StatusKind) -> Result<(), Fault> {
        self.clear_name(path, kind).map_err(|errno| self.fault(Call::Remove, path, errno))
    }

    fn link_aside(&self, path: &[u8], to: &[u8]) -> Result<Kept, Fault> {
        self.link_name(path, to)
    }

    fn move_aside(&self, path: &[u8], kind: StatusKind, to: &[u8]) -> Result<(), Fault> {
        self.move_name(path, kind, to).map_err(|errno| self.not_kept(path, to, errno))
    }

    fn open_locked(&self, path: &[u8]) -> Result<Locked, Fault> {
        self.open_file_of_ours(path)
    }

    fn is_foreign(&self, path: &[u8]) -> Result<bool, Fault> {
        let found = self.parent(path).and_then(|(parent, name)| match parent.is_shared() {
            true => rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW),
            false => Err(Errno::NOENT),
        });
        match found {
            // We remove it before we take its name.
            Ok(stat) if is_own(&stat) || self.is_like_new(path, &stat, BY_OWNER) => Ok(false),
            Ok(_) => {
                self.refuse(What::Temporary, path, Errno::EXIST);
                Ok(true)
            }
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.fault(Call::LookAt, path, errno)),
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
                read => return read.map_err(|errno| self.fault(Call::Read, path, errno)),
            }
        }
    }

    fn append(&self, file: &Handle, path: &[u8], at: u64, bytes: &[u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwrite(file.fd(), &bytes[done..], at + done as u64) {
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.fault(Call::Write, path, errno)),
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
            Err(errno) => Err(self.fault(Call::ReadLink, path, errno)),
        }
    }

    fn free_bytes(&self, path: &[u8]) -> Result<u64, Fault> {
        self.parent(path)
            .and_then(|(parent, _)| rustix::fs::fstatvfs(&parent.fd))
            .map(|status| match status.f_blocks {
                // /proc and its like have no size: that says nothing of free space.
                0 => u64::MAX,
                _ => status.f_bavail.saturating_mul(status.f_frsize),
            })
            .map_err(|errno| self.fault(Call::FreeSpace, path, errno))
    }

    fn size_if_unsized(&self, path: &[u8]) -> Result<Option<u64>, Fault> {
        let holder = self.parent(path).map(|(holder, _)| holder);
        if !holder.and_then(|holder| untold::is_unsized(holder.as_fd())).unwrap_or(false) {
            return Ok(None);
        }
        let fd = self
            .open_in_parent(path, OFlags::RDONLY | OFlags::NONBLOCK, 0)
            .map_err(|errno| self.fault(Call::Open, path, errno))?;
        match untold::size(fd.as_fd()) {
            Ok(size) => Ok(Some(size)),
            Err(Errno::FBIG) => {
                let name = show(self, path);
                let text = format!("'{name}' has no size, and no end within 16 MiB: not copied");
                Err(Fault::new(Class::Local, text))
            }
            Err(errno) => Err(self.fault(Call::Read, path, errno)),
        }
    }

    fn is_still(&self, file: &Handle, path: &[u8], then: (u64, Mtime)) -> Result<bool, Fault> {
        is_still(file.fd(), then.0, Some(then.1))
            .map_err(|errno| self.fault(Call::LookAt, path, errno))
    }

    fn read_small(&self, segment: &Segment, into: &mut [u8]) -> Result<(), Fault> {
        let path = &segment.path;
        let fd = self
            .open_in_parent(path, OFlags::RDONLY | OFlags::NONBLOCK, 0)
            .map_err(|errno| self.fault(Call::Open, path, errno))?;
        let mut filled = 0;
        while filled < into.len() {
            match rustix::io::read(&fd, &mut into[filled..]) {
                Ok(0) => return Err(changed(self, path)),
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.fault(Call::Read, path, errno)),
            }
        }
        self.check_small(&fd, segment)
    }

    fn write_small(
        &self,
        segment: &Segment,
        from: &[u8],
        extra: Option<&ExtraPiece>,
    ) -> Result<Status, Fault> {
        self.write_whole(segment, from, extra)
    }
}

/// Zeros that one call writes.
const ZEROS_BYTES: usize = 1 << 20;
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;
