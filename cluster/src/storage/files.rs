//! The file system: each request is passed on to the shared folder.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Manner, State};

pub(super) struct Files {
    manner: Manner,
    state: Arc<State>,
    tables: SharedTables,
}

/// It outlives the node.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedTables(Arc<Mutex<Tables>>);

#[derive(Debug, Default)]
struct Tables {
    /// A descriptor of each file whose number the node knows, opened only as a path.
    inodes: HashMap<u64, Inode>,
    open: HashMap<u64, Open>,
    next: u64,
    /// Where bytes came to a file that has its final name.
    to_final: Vec<String>,
    /// Bytes that the node has written to files of the destination.
    to_destination: u64,
}

#[derive(Debug)]
struct Inode {
    path: Arc<OwnedFd>,
    lookups: u64,
}

#[derive(Debug)]
enum Open {
    Folder(Vec<(u64, FileType, Vec<u8>)>),
    File { file: Arc<File>, written: Vec<(u64, Vec<u8>)> },
}

type Done<T> = Result<T, Errno>;

impl SharedTables {
    fn locked(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes what is held of these files on: given are the number of each and its handle.
    pub(super) fn writes_to_final_names(&self) -> Vec<String> {
        self.locked().to_final.clone()
    }

    pub(super) fn written_bytes(&self) -> u64 {
        self.locked().to_destination
    }

    /// Passes bytes on, and notes it where the file has its final name.
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> Done<()> {
        let path = path_of(file);
        let links = file.metadata().map_err(Errno::from)?.nlink();
        let is_staged = path.contains("/.datapump-") && links < 2;
        let is_gone = path.ends_with(" (deleted)") && links == 0;
        if is_destination(&path) && !is_staged && !is_gone {
            self.locked().to_final.push(format!("{path} at {offset}"));
        }
        file.write_all_at(bytes, offset).map_err(Errno::from)
    }

    pub(super) fn write_back(&self, which: impl Fn(u64, u64) -> bool) -> Done<()> {
        let mut held = Vec::new();
        for (handle, open) in &mut self.locked().open {
            let Open::File { file, written } = open else { continue };
            if written.is_empty() {
                continue;
            }
            let number = rustix::fs::fstat(&*file).map_err(errno)?.st_ino;
            if which(number, *handle) {
                held.push((file.clone(), std::mem::take(written)));
            }
        }
        for (file, written) in held {
            for (offset, bytes) in written {
                self.write_at(&file, &bytes, offset)?;
            }
        }
        Ok(())
    }
}

/// Where an open file is, by the name that it has now.
fn path_of(file: &File) -> String {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::read_link(link).unwrap_or_default().to_string_lossy().into_owned()
}

fn is_destination(path: &str) -> bool {
    path.contains("/dst/")
}

impl Files {
    pub(super) fn new(root: OwnedFd, manner: Manner, state: Arc<State>) -> io::Result<Files> {
        let most = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
        let tables = SharedTables::default();
        let inode = Inode { path: Arc::new(root), lookups: 1 };
        tables.locked().inodes.insert(ROOT, inode);
        Ok(Files { manner, state, tables })
    }

    pub(super) fn shared_tables(&self) -> SharedTables {
        self.tables.clone()
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.locked()
    }

    /// Every request waits here while the storage is cut off.
    fn pass(&self) -> Done<()> {
        if self.state.pass() { Ok(()) } else { Err(Errno::EIO) }
    }

    fn inode(&self, number: INodeNo) -> Done<Arc<OwnedFd>> {
        let tables = self.tables();
        let inode = tables.inodes.get(&u64::from(number)).ok_or(Errno::ESTALE)?;
        Ok(inode.path.clone())
    }

    /// Looks a name up, and remembers what it is.
    fn entry(&self, parent: INodeNo, name: &OsStr) -> Done<FileAttr> {
        let folder = self.inode(parent)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = rustix::fs::openat(&folder, name, flags, Mode::empty()).map_err(errno)?;
        let stat = rustix::fs::fstat(&path).map_err(errno)?;
        let mut attr = attributes(&stat);
        let number = if stat.st_ino == self.root_number()? { ROOT } else { stat.st_ino };
        attr.ino = INodeNo(number);
        let mut tables = self.tables();
        let inode = tables.inodes.entry(number);
        inode.or_insert_with(|| Inode { path: Arc::new(path), lookups: 0 }).lookups += 1;
        Ok(attr)
    }

    fn root_number(&self) -> Done<u64> {
        let root = self.inode(INodeNo(ROOT))?;
        Ok(rustix::fs::fstat(&root).map_err(errno)?.st_ino)
    }

    fn attributes_of(&self, number: INodeNo) -> Done<FileAttr> {
        // What the node has written and not closed is not in the shared folder yet.
        self.write_back(|open_number, _| open_number == u64::from(number))?;
        let stat = rustix::fs::fstat(self.inode(number)?).map_err(errno)?;
        let mut attr = attributes(&stat);
        attr.ino = number;
        Ok(attr)
    }

    fn opened(&self, open: Open) -> FileHandle {
        let mut tables = self.tables();
        tables.next += 1;
        let handle = tables.next;
        tables.open.insert(handle, open);
        FileHandle(handle)
    }

    fn file(&self, handle: FileHandle) -> Done<Arc<File>> {
        match self.tables().open.get(&u64::from(handle)) {
            Some(Open::File { file, .. }) => Ok(file.clone()),
            _ => Err(Errno::EBADF),
        }
    }

    fn write_back(&self, which: impl Fn(u64, u64) -> bool) -> Done<()> {
        self.tables.write_back(which)
    }

    fn write_back_handle(&self, handle: FileHandle) -> Done<()> {
        self.write_back(|_, of| of == u64::from(handle))
    }

    /// Bytes for a file: held, or passed on at once.
    fn put(&self, handle: FileHandle, offset: u64, data: &[u8]) -> Done<u32> {
        let size = u32::try_from(data.len()).map_err(|_| Errno::EINVAL)?;
        std::thread::sleep(self.manner.write_takes);
        if is_destination(&path_of(&*self.file(handle)?)) {
            self.tables().to_destination += u64::from(size);
        }
        if self.manner.caches_writes {
            // Into the node's memory, which is there whether or not the storage is.
            let mut tables = self.tables();
            let Some(Open::File { written, .. }) = tables.open.get_mut(&u64::from(handle)) else {
                return Err(Errno::EBADF);
            };
            written.push((offset, data.to_vec()));
            let held: usize = written.iter().map(|(_, bytes)| bytes.len()).sum();
            if held < HELD_BYTES_MAX {
                return Ok(size);
            }
            drop(tables);
            self.pass()?;
            return self.write_back_handle(handle).map(|()| size);
        }
        self.pass()?;
        self.tables.write_at(&*self.file(handle)?, data, offset)?;
        Ok(size)
    }

    fn set(&self, number: INodeNo, change: &Change) -> Done<FileAttr> {
        self.pass()?;
        self.write_back(|of, _| of == u64::from(number))?;
        let path = self.inode(number)?;
        let real = real(&path);
        if let Some(mode) = change.mode {
            rustix::fs::chmod(&real, Mode::from_raw_mode(mode & 0o7777)).map_err(errno)?;
        }
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            rustix::fs::chownat(&*path, "", uid, gid, AtFlags::EMPTY_PATH).map_err(errno)?;
        }
        if let Some(size) = change.size {
            let file = File::options().write(true).open(&real).map_err(Errno::from)?;
            file.set_len(size).map_err(Errno::from)?;
        }
        if change.atime.is_some() || change.mtime.is_some() {
            let times = Timestamps {
                last_access: timespec(change.atime),
                last_modification: timespec(change.mtime),
            };
            let flags = AtFlags::empty();
            rustix::fs::utimensat(rustix::fs::CWD, &real, &times, flags).map_err(errno)?;
        }
        self.attributes_of(number)
    }

    fn open_file(&self, number: INodeNo, flags: OpenFlags) -> Done<FileHandle> {
        self.pass()?;
        let path = self.inode(number)?;
        // Appends are at an offset that the kernel gives; reading what was written needs both.
        let own = OFlags::from_bits_retain(flags.0.cast_unsigned());
        let mut flags = OFlags::CLOEXEC | (own & (OFlags::TRUNC | OFlags::RWMODE));
        if flags & OFlags::RWMODE == OFlags::WRONLY {
            flags = (flags - OFlags::WRONLY) | OFlags::RDWR;
        }
        let file = rustix::fs::open(real(&path), flags, Mode::empty()).map_err(errno)?;
        Ok(self.opened(Open::File { file: Arc::new(File::from(file)), written: Vec::new() }))
    }

    fn create_file(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        (mode, flags): (u32, i32),
    ) -> Done<(FileAttr, FileHandle)> {
        self.pass()?;
        let folder = self.inode(parent)?;
        let own = OFlags::from_bits_retain(flags.cast_unsigned());
        let keep = own & (OFlags::TRUNC | OFlags::EXCL);
        let flags = keep | OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let file = rustix::fs::openat(&folder, name, flags, mode).map_err(errno)?;
        owned(&file, request)?;
        let attr = self.entry(parent, name)?;
        let open = Open::File { file: Arc::new(File::from(file)), written: Vec::new() };
        Ok((attr, self.opened(open)))
    }

    fn list(&self, number: INodeNo) -> Done<FileHandle> {
        self.pass()?;
        let folder = File::open(real(&*self.inode(number)?)).map_err(Errno::from)?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&folder).map_err(errno)? {
            let entry = entry.map_err(errno)?;
            let kind = kind_of(entry.file_type());
            names.push((entry.ino(), kind, entry.file_name().to_bytes().to_vec()));
        }
        Ok(self.opened(Open::Folder(names)))
    }

    fn link_to(&self, number: INodeNo, parent: INodeNo, name: &OsStr) -> Done<FileAttr> {
        let linked = || {
            let (file, folder) = (self.inode(number)?, self.inode(parent)?);
            let flags = AtFlags::SYMLINK_FOLLOW;
            rustix::fs::linkat(rustix::fs::CWD, real(&file), &*folder, name, flags).map_err(errno)
        };
        // The request arrives, and its answer is lost: the node asks again.
        if self.state.is_cut() {
            linked().ok();
        }
        self.pass()?;
        linked()?;
        self.entry(parent, name)
    }

    fn made(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        make: impl Fn(&OwnedFd) -> rustix::io::Result<()>,
    ) -> Done<FileAttr> {
        self.pass()?;
        let folder = self.inode(parent)?;
        make(&folder).map_err(errno)?;
        let (uid, gid) = (Uid::from_raw(request.uid()), Gid::from_raw(request.gid()));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(&*folder, name, Some(uid), Some(gid), flags).map_err(errno)?;
        self.entry(parent, name)
    }

    fn removed(&self, parent: INodeNo, name: &OsStr, flags: AtFlags) -> Done<()> {
        self.pass()?;
        rustix::fs::unlinkat(&*self.inode(parent)?, name, flags).map_err(errno)
    }

    fn answer_entry(&self, made: Done<FileAttr>, reply: ReplyEntry) {
        match made {
            Ok(attr) => reply.entry(&self.manner.remembers_names, &attr, Generation(0)),
            Err(why) => reply.error(why),
        }
    }

    fn answer_attr(&self, made: Done<FileAttr>, reply: ReplyAttr) {
        match made {
            Ok(attr) => reply.attr(&self.manner.remembers_names, &attr),
            Err(why) => reply.error(why),
        }
    }
}

/// What is to become of a file's attributes.
#[derive(Default)]
struct Change {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    size: Option<u64>,
    atime: Option<TimeOrNow>,
    mtime: Option<TimeOrNow>,
}

impl Filesystem for Files {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.pass().and_then(|()| self.entry(parent, name));
        match found {
            // The node remembers that there is no such name.
            Err(why) if i32::from(why) == i32::from(Errno::ENOENT) => {
                let mut none = nothing();
                none.ino = INodeNo(0);
                reply.entry(&self.manner.remembers_names, &none, Generation(0));
            }
            found => self.answer_entry(found, reply),
        }
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        let number = u64::from(number);
        let mut tables = self.tables();
        let Some(inode) = tables.inodes.get_mut(&number) else { return };
        inode.lookups = inode.lookups.saturating_sub(lookups);
        if inode.lookups == 0 && number != ROOT {
            tables.inodes.remove(&number);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.answer_attr(self.pass().and_then(|()| self.attributes_of(ino)), reply);
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = Change { mode, uid, gid, size, atime, mtime };
        self.answer_attr(self.set(ino, &change), reply);
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let target = self
            .pass()
            .and_then(|()| self.inode(ino))
            .and_then(|path| rustix::fs::readlinkat(&*path, "", Vec::new()).map_err(errno));
        match target {
            Ok(target) => reply.data(target.as_bytes()),
            Err(why) => reply.error(why),
        }
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let make = |folder: &OwnedFd| rustix::fs::mkdirat(folder, name, mode);
        self.answer_entry(self.made(request, parent, name, make), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let make = |folder: &OwnedFd| rustix::fs::symlinkat(target, folder, name);
        self.answer_entry(self.made(request, parent, name, make), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.removed(parent, name, AtFlags::empty()), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.removed(parent, name, AtFlags::REMOVEDIR), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        let renamed = self.pass().and_then(|()| {
            let (from, to) = (self.inode(parent)?, self.inode(newparent)?);
            rustix::fs::renameat_with(&*from, name, &*to, newname, flags).map_err(errno)
        });
        done(renamed, reply);
    }

    fn link(
        &self,
        _: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        self.answer_entry(self.link_to(ino, newparent, newname), reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open_file(ino, flags) {
            Ok(handle) => reply.opened(handle, FopenFlags::empty()),
            Err(why) => reply.error(why),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let ttl = self.manner.remembers_names;
        match self.create_file(request, parent, name, (mode, flags)) {
            Ok((attr, handle)) => {
                reply.created(&ttl, &attr, Generation(0), handle, FopenFlags::empty());
            }
            Err(why) => reply.error(why),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let passed = if self.state.pass_to_read() { Ok(()) } else { Err(Errno::EIO) };
        let read = passed.and_then(|()| {
            self.write_back_handle(handle)?;
            let file = self.file(handle)?;
            let mut bytes = vec![0; size as usize];
            let mut filled = 0;
            while filled < bytes.len() {
                match file.read_at(&mut bytes[filled..], offset + filled as u64)? {
                    0 => break,
                    count => filled += count,
                }
            }
            bytes.truncate(filled);
            Ok(bytes)
        });
        match read {
            Ok(bytes) => reply.data(&bytes),
            Err(why) => reply.error(why),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.put(handle, offset, data) {
            Ok(size) => reply.written(size),
            Err(why) => reply.error(why),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        done(self.pass().and_then(|()| self.write_back_handle(handle)), reply);
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        done(self.pass().and_then(|()| self.write_back_handle(handle)), reply);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        // Of a killed process too: what it wrote is the node's to pass on.
        let passed = self.pass().and_then(|()| self.write_back_handle(handle));
        // What a dead node wrote may still be under way.
        if !self.state.is_ended() {
            self.tables().open.remove(&u64::from(handle));
        }
        done(passed, reply);
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.list(ino) {
            Ok(handle) => reply.opened(handle, FopenFlags::empty()),
            Err(why) => reply.error(why),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let tables = self.tables();
        let Some(Open::Folder(names)) = tables.open.get(&u64::from(handle)) else {
            return reply.error(Errno::EBADF);
        };
        for (at, (number, kind, name)) in names.iter().enumerate().skip(offset as usize) {
            let name = OsStr::from_bytes(name);
            if reply.add(INodeNo(*number), at as u64 + 1, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.tables().open.remove(&u64::from(handle));
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        done(self.pass(), reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let found = self
            .pass()
            .and_then(|()| rustix::fs::fstatvfs(&*self.inode(INodeNo(ROOT))?).map_err(errno));
        match found {
            Ok(stat) => reply.statfs(
                stat.f_blocks,
                stat.f_bfree,
                stat.f_bavail,
                stat.f_files,
                stat.f_ffree,
                stat.f_bsize as u32,
                255,
                stat.f_frsize as u32,
            ),
            Err(why) => reply.error(why),
        }
    }
}

fn done(made: Done<()>, reply: ReplyEmpty) {
    match made {
        Ok(()) => reply.ok(),
        Err(why) => reply.error(why),
    }
}

/// The path of a file by its descriptor, from which it can be opened.
fn real(path: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", path.as_raw_fd()).into()
}

/// Gives a new file to the user who asked for it: this server is root.
fn owned(file: &OwnedFd, request: &Request) -> Done<()> {
    let (uid, gid) = (Uid::from_raw(request.uid()), Gid::from_raw(request.gid()));
    rustix::fs::fchown(file.as_fd(), Some(uid), Some(gid)).map_err(errno)
}

fn errno(why: rustix::io::Errno) -> Errno {
    Errno::from_i32(why.raw_os_error())
}

fn attributes(stat: &Stat) -> FileAttr {
    let time = |seconds: i64, nanos: u64| {
        let nanos = u32::try_from(nanos).unwrap_or(0);
        match u64::try_from(seconds) {
            Ok(seconds) => UNIX_EPOCH + Duration::new(seconds, nanos),
            Err(_) => UNIX_EPOCH,
        }
    };
    FileAttr {
        ino: INodeNo(stat.st_ino),
        size: stat.st_size.cast_unsigned(),
        blocks: stat.st_blocks.cast_unsigned(),
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: UNIX_EPOCH,
        kind: kind_of(rustix::fs::FileType::from_raw_mode(stat.st_mode)),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// The attributes of a name that does not exist, which are not looked at.
fn nothing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn kind_of(kind: rustix::fs::FileType) -> FileType {
    match kind {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::Fifo => FileType::NamedPipe,
        rustix::fs::FileType::Socket => FileType::Socket,
        rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
        rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            Timespec { tv_sec: since.as_secs().cast_signed(), tv_nsec: since.subsec_nanos().into() }
        }
    }
}

const ROOT: u64 = 1;

/// Of one file; more is passed on.
const HELD_BYTES_MAX: usize = 8 << 20;
