//! Folders while they are listed: everything is done by descriptors, so that replacing a folder by
//! a link in the meantime has no effect.

use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, Stat, fstat, openat, readlinkat, statat,
};
use rustix::io::Errno;

use crate::io::beneath::{Folder, Links};
use crate::io::disk::Disk;
use crate::io::reach::Reach;
use crate::pump::source::walk::Spot;
use base::settings::Moment;

/// What is known of a file, folder or link without opening it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meta(Stat);

impl Meta {
    /// The target of a path on the command line: links are followed.
    pub(super) fn of_path(path: &Path, reach: &Reach) -> Result<Meta, Errno> {
        reach.status(path).map(Meta)
    }

    pub(super) fn of_folder(folder: &Folder) -> Result<Meta, Errno> {
        fstat(folder).map(Meta)
    }

    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.0.st_mode)
    }

    pub(super) fn is_dir(&self) -> bool {
        self.kind() == FileType::Directory
    }

    pub(super) fn is_file(&self) -> bool {
        self.kind() == FileType::RegularFile
    }

    pub(super) fn is_link(&self) -> bool {
        self.kind() == FileType::Symlink
    }

    pub(super) fn size(&self) -> u64 {
        self.0.st_size as u64
    }

    /// The space that it takes on the disk: less than its length where it has holes.
    pub(super) fn allocated_bytes(&self) -> u64 {
        (self.0.st_blocks as u64).saturating_mul(STAT_BLOCK_BYTES)
    }

    /// True for files without blocks on a device: their size may be found only by reading.
    pub(crate) fn may_lack_size(&self) -> bool {
        self.0.st_blocks == 0 && rustix::fs::major(self.0.st_dev) == 0
    }

    pub(super) fn mtime(&self) -> (i64, u32) {
        (self.0.st_mtime, self.0.st_mtime_nsec as u32)
    }

    pub(super) fn moment(&self) -> Moment {
        let (seconds, nanos) = self.mtime();
        Moment { seconds, nanos }
    }

    pub(super) fn mode(&self) -> u32 {
        self.0.st_mode & 0o7777
    }

    pub(super) fn owner(&self) -> (u32, u32) {
        (self.0.st_uid, self.0.st_gid)
    }

    #[allow(clippy::useless_conversion, reason = "the number is narrower on other processors")]
    pub(super) fn names(&self) -> u64 {
        u64::from(self.0.st_nlink)
    }

    pub(super) fn inode(&self) -> (u64, u64) {
        (self.0.st_dev, self.0.st_ino)
    }
}

/// A name in an open folder.
#[derive(Clone, Debug)]
pub(super) struct At {
    folder: Arc<Folder>,
    name: OsString,
}

impl At {
    /// A folder itself.
    pub(super) fn folder(folder: Folder) -> At {
        At { folder: Arc::new(folder), name: ".".into() }
    }

    /// Finds a path below a disk's root; links on the way must stay below it.
    pub(super) fn find(disk: &Disk, path: &[u8]) -> Result<At, Errno> {
        let (folder, name) = disk.place(path)?;
        let name = if name.is_empty() { OsStr::new(".") } else { name };
        Ok(At { folder, name: name.to_owned() })
    }

    pub(super) fn name(&self) -> &OsStr {
        &self.name
    }

    pub(super) fn meta(&self) -> Result<Meta, Errno> {
        statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW).map(Meta)
    }

    pub(super) fn read_link(&self) -> Result<Vec<u8>, Errno> {
        readlinkat(&self.folder, &self.name, Vec::new()).map(|target| target.into_bytes())
    }

    /// A path to it that nobody can redirect: for calls that take no descriptor.
    pub(super) fn path(&self) -> PathBuf {
        let folder = format!("/proc/self/fd/{}", self.folder.as_fd().as_raw_fd());
        Path::new(&folder).join(&self.name)
    }
}

/// A folder that is being listed, and its remaining names. Where too many folders are open, its
/// names are kept in memory, and it is opened again when that is needed.
#[derive(Debug)]
pub(super) struct Listing {
    folder: Option<Arc<Folder>>,
    inode: (u64, u64),
    names: std::vec::IntoIter<OsString>,
    rest: Rest,
}

/// Whether the kernel has more names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Some,
    None,
}

impl Listing {
    /// `depth` folders above it are open.
    pub(super) fn open(
        at: &At,
        meta: &Meta,
        depth: usize,
        buffer: &mut Buffer,
    ) -> Result<Listing, Errno> {
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |more| openat(&at.folder, &at.name, flags | more, Mode::empty());
        let folder = Folder::open(open)?;
        if !folder.may_be_read {
            return Err(Errno::ACCESS);
        }
        let mut listing = Listing {
            folder: Some(Arc::new(folder)),
            inode: meta.inode(),
            names: Vec::new().into_iter(),
            rest: Rest::Some,
        };
        if depth >= LISTINGS_MAX {
            let mut names = Vec::new();
            while listing.rest == Rest::Some {
                listing.read(buffer)?;
                names.extend(&mut listing.names);
            }
            listing.names = names.into_iter();
        }
        Ok(listing)
    }

    /// Another folder is opened in this one: at great depth only the innermost stays open.
    pub(crate) fn cover(&mut self, depth: usize) {
        if depth >= LISTINGS_MAX {
            self.folder = None;
        }
    }

    /// The next name. An error is about the folder.
    pub(super) fn next(&mut self, spot: &Spot, buffer: &mut Buffer) -> Option<Result<At, Errno>> {
        loop {
            if let Some(name) = self.names.next() {
                let at = |folder| At { folder, name };
                return Some(self.reopened(spot).map(at));
            }
            if self.rest == Rest::None {
                return None;
            }
            if let Err(errno) = self.read(buffer) {
                return Some(Err(errno));
            }
        }
    }

    fn reopened(&mut self, spot: &Spot) -> Result<Arc<Folder>, Errno> {
        if let Some(folder) = &self.folder {
            return Ok(folder.clone());
        }
        let folder = Arc::new(spot.disk.folder(&spot.inside, Links::Refused)?);
        if Meta::of_folder(&folder)?.inode() != self.inode {
            return Err(Errno::STALE); // another one has its name by now
        }
        self.folder = Some(folder.clone());
        Ok(folder)
    }

    /// Reads as many names as the kernel returns at once.
    fn read(&mut self, buffer: &mut Buffer) -> Result<(), Errno> {
        let folder = self.folder.as_ref().expect("it is open until its names are all here");
        let mut entries = RawDir::new(folder.as_fd(), &mut buffer.0[..]);
        let mut names = Vec::new();
        loop {
            match entries.next() {
                None => {
                    self.rest = Rest::None;
                    break;
                }
                Some(entry) => {
                    let entry = entry?;
                    let name = entry.file_name().to_bytes();
                    if name != b"." && name != b".." {
                        names.push(OsStr::from_bytes(name).to_owned());
                    }
                }
            }
            if entries.is_buffer_empty() {
                break;
            }
        }
        self.names = names.into_iter();
        Ok(())
    }
}

/// The buffer into which the kernel writes names.
#[derive(Debug)]
pub(super) struct Buffer(Vec<MaybeUninit<u8>>);

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer(vec![MaybeUninit::uninit(); BUFFER_BYTES])
    }
}

/// Directories that are open while they are listed, one inside the other.
const LISTINGS_MAX: usize = 64;
const BUFFER_BYTES: usize = 32 << 10;
/// The unit of a file's block count, whatever its file system (stat(2)).
const STAT_BLOCK_BYTES: u64 = 512;
