//! Opens folders beneath a root, whatever others do to the path in the meantime: with the kernel's
//! `openat2`, or component by component where it is missing (before Linux 5.6, and in sandboxes
//! that do not know it).

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{
    Mode, OFlags, ResolveFlags, Stat, fgetxattr, fstat, fstatfs, openat, openat2, readlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// What is done with symbolic links in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Followed where they stay beneath the root.
    Beneath,
    Refused,
}

/// Who resolves a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolver {
    Kernel,
    ByComponent,
}

/// An open folder: readable, to list and sync it, or, where that is not allowed, only a directory
/// to resolve names in.
#[derive(Debug)]
pub struct Folder {
    pub fd: OwnedFd,
    pub may_be_read: bool,
    shared: OnceLock<bool>,
    device: OnceLock<u64>,
    inherits: OnceLock<bool>,
    only_replaces: AtomicBool,
    in_user_space: OnceLock<bool>,
}

impl Folder {
    /// Asks `open` for read access first.
    pub fn open(open: impl Fn(OFlags) -> Result<OwnedFd, Errno>) -> Result<Folder, Errno> {
        let (fd, may_be_read) = match open(OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(Errno::ACCESS) => (open(OFlags::PATH | OFlags::DIRECTORY)?, false),
            opened => (opened?, true),
        };
        let (shared, device, inherits) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let (only_replaces, in_user_space) = (AtomicBool::new(false), OnceLock::new());
        Ok(Folder { fd, may_be_read, shared, device, inherits, only_replaces, in_user_space })
    }

    /// The number of its file system.
    pub(crate) fn device(&self) -> Result<u64, Errno> {
        match self.device.get() {
            Some(device) => Ok(*device),
            None => fstat(&self.fd).map(|stat| *self.device.get_or_init(|| stat.st_dev)),
        }
    }

    /// False where a new file has just the mode that it is created with, less the umask: no default
    /// access control list changes it.
    pub(crate) fn may_change_modes(&self) -> bool {
        *self.inherits.get_or_init(|| {
            let found = fgetxattr(&self.fd, DEFAULT_ACL, &mut [0; 0]);
            !matches!(found, Err(Errno::NODATA | Errno::OPNOTSUPP))
        })
    }

    /// True where a program has the files, by FUSE.
    pub(crate) fn is_in_user_space(&self) -> bool {
        *self.in_user_space.get_or_init(|| {
            fstatfs(&self.fd).is_ok_and(|status| status.f_type as u64 == FUSE_MAGIC)
        })
    }

    /// True where a name that must be new was found to have no call of its own.
    pub(crate) fn only_replaces(&self) -> bool {
        self.only_replaces.load(Ordering::Relaxed)
    }

    pub(crate) fn know_that_it_only_replaces(&self) {
        self.only_replaces.store(true, Ordering::Relaxed);
    }

    /// True where other users can create names too.
    pub(crate) fn is_shared(&self) -> bool {
        *self.shared.get_or_init(|| {
            let alone = |stat: Stat| is_own(&stat) && stat.st_mode & 0o022 == 0;
            !fstat(&self.fd).is_ok_and(alone)
        })
    }
}

const FUSE_MAGIC: u64 = 0x6573_5546;

/// Where a folder keeps its default access control list.
const DEFAULT_ACL: &str = "system.posix_acl_default";

/// True for what belongs to the effective user of this process.
pub(crate) fn is_own(stat: &Stat) -> bool {
    stat.st_uid == geteuid().as_raw()
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens a folder beneath `root`; the empty path is the root. A path may be of any length.
pub(crate) fn open_folder(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    links: Links,
) -> Result<OwnedFd, Errno> {
    open_with(resolver(root), root, path, flags, links)
}

/// Determined once: the root itself can always be opened as a path, so an error is about the call.
/// Sandboxes return one error or another.
fn resolver(root: BorrowedFd<'_>) -> Resolver {
    static RESOLVER: OnceLock<Resolver> = OnceLock::new();
    *RESOLVER.get_or_init(|| {
        match by_kernel(root, b".", OFlags::PATH | OFlags::DIRECTORY, Links::Beneath) {
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL | Errno::TOOBIG) => Resolver::ByComponent,
            _ => Resolver::Kernel,
        }
    })
}

fn open_with(
    resolver: Resolver,
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    links: Links,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let by = match resolver {
        Resolver::Kernel => by_kernel,
        Resolver::ByComponent => by_component,
    };
    let mut rest = path;
    let mut from: Option<OwnedFd> = None;
    // A path longer than the kernel takes is opened in parts, each beneath the one before.
    while rest.len() > PART_BYTES_MAX {
        let front = &rest[..PART_BYTES_MAX];
        let slash = front.iter().rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?;
        let at = from.as_ref().map_or(root, AsFd::as_fd);
        from = Some(by(at, &rest[..slash], OFlags::PATH | flags, links)?);
        rest = &rest[slash + 1..];
    }
    let rest = if rest.is_empty() { b"." } else { rest };
    by(from.as_ref().map_or(root, AsFd::as_fd), rest, flags, links)
}

fn by_kernel(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    links: Links,
) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let resolve = match links {
        Links::Beneath => resolve,
        Links::Refused => resolve | ResolveFlags::NO_SYMLINKS,
    };
    let open = || openat2(root, OsStr::from_bytes(path), flags, Mode::empty(), resolve);
    // A rename somewhere on the system makes the kernel fail on a `..`: it asks to try again.
    let again = |tried: &Result<OwnedFd, Errno>| matches!(tried, Err(Errno::AGAIN | Errno::INTR));
    std::iter::repeat_with(open)
        .take(TRIES)
        .find(|tried| !again(tried))
        .unwrap_or(Err(Errno::AGAIN))
}

/// The same rules without the kernel's help.
fn by_component(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    links: Links,
) -> Result<OwnedFd, Errno> {
    let resolved = resolve(root, path, links)?;
    match resolved.file {
        Some(_) => Err(Errno::NOTDIR),
        None => openat(&resolved.folder, ".", flags, Mode::empty()),
    }
}

/// The path beneath `root` without links, of a folder or of anything else; empty for the root.
pub(crate) fn canonical(root: BorrowedFd<'_>, path: &[u8]) -> Result<Vec<u8>, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    let Resolved { mut way, file, .. } = resolve(root, path, Links::Beneath)?;
    way.extend(file);
    Ok(way.join(&b'/'))
}

/// What a path leads to.
struct Resolved {
    folder: OwnedFd,
    /// The names of the folders from the root to it.
    way: Vec<Vec<u8>>,
    /// The name in it of what is no folder, and no link.
    file: Option<Vec<u8>>,
}

/// Each folder is entered by its descriptor and never through a link; the target of a link is
/// resolved here, by its text.
fn resolve(root: BorrowedFd<'_>, path: &[u8], links: Links) -> Result<Resolved, Errno> {
    let mut at = enter(root, b".")?;
    // Names of real folders from the root to `at`: `..` is resolved by them, never by the kernel.
    let mut way: Vec<Vec<u8>> = Vec::new();
    let mut left = components(path)?;
    let mut followed = 0;
    while let Some(name) = left.pop() {
        if name == b".." {
            way.pop().ok_or(Errno::XDEV)?;
            at = enter(root, b".")?;
            for folder in &way {
                at = enter(at.as_fd(), folder)?;
            }
            continue;
        }
        match enter(at.as_fd(), &name) {
            Ok(below) => {
                at = below;
                way.push(name);
            }
            Err(errno @ (Errno::NOTDIR | Errno::LOOP)) => {
                let target = match readlinkat(&at, OsStr::from_bytes(&name), Vec::new()) {
                    Ok(target) => target.into_bytes(),
                    // Not a link.
                    Err(Errno::INVAL) if left.is_empty() => {
                        return Ok(Resolved { folder: at, way, file: Some(name) });
                    }
                    Err(Errno::INVAL) => return Err(errno),
                    Err(errno) => return Err(errno),
                };
                followed += 1;
                if links == Links::Refused || followed > LINKS_MAX {
                    return Err(Errno::LOOP);
                }
                left.extend(components(&target)?);
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(Resolved { folder: at, way, file: None })
}

/// Opens a folder that is not a link.
fn enter(at: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, OsStr::from_bytes(name), flags, Mode::empty())
}

/// The names in a path, the last one first.
fn components(path: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
    if path.starts_with(b"/") {
        return Err(Errno::XDEV);
    }
    if path.is_empty() {
        return Err(Errno::NOENT);
    }
    let names = path.split(|byte| *byte == b'/').rev();
    Ok(names.filter(|name| !matches!(*name, b"" | b".")).map(<[u8]>::to_vec).collect())
}

/// Links that are followed in one path, as in the kernel (path_resolution(7)).
const LINKS_MAX: usize = 40;
/// The kernel takes paths that are shorter than 4096 bytes.
const PART_BYTES_MAX: usize = 4000;
const TRIES: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn folder_at(path: &Path) -> OwnedFd {
        fs::File::open(path).unwrap().into()
    }

    fn name_of(fd: &OwnedFd) -> (u64, u64) {
        let stat = rustix::fs::fstat(fd).unwrap();
        (stat.st_dev, stat.st_ino)
    }

    /// Both resolvers find the same and refuse the same.
    #[test]
    fn both_resolvers_sit_one_exam() {
        let scene = tempfile::tempdir().unwrap();
        let path = |name: &str| scene.path().join(name);
        fs::create_dir_all(path("root/a/b")).unwrap();
        fs::create_dir_all(path("outside/b")).unwrap();
        fs::write(path("root/file"), b"").unwrap();
        for (target, name) in [
            ("a", "in"),
            ("../a/b", "a/back"),
            ("./a//b/", "long"),
            ("in/b", "twice"),
            ("../outside", "out"),
            ("a/../../outside", "out-and-over"),
            ("a/../..", "up"),
            ("/", "slash"),
            ("file", "to-file"),
            ("nowhere", "dangling"),
            ("loop", "loop"),
            ("a/../a/../a", "back-and-forth"),
        ] {
            symlink(target, path("root").join(name)).unwrap();
        }
        symlink(path("root/a"), path("root/absolute")).unwrap();
        let (a, b) = (Ok("root/a"), Ok("root/a/b"));
        let cases = [
            ("", Ok("root"), Ok("root")),
            (".", Ok("root"), Ok("root")),
            ("a", a, a),
            ("a/b", b, b),
            ("a//b/", b, b),
            ("a/../a", a, a),
            ("in", a, Err(Errno::LOOP)),
            ("in/b", b, Err(Errno::LOOP)),
            ("a/back", b, Err(Errno::LOOP)),
            ("long", b, Err(Errno::LOOP)),
            ("twice", b, Err(Errno::LOOP)),
            ("back-and-forth/b", b, Err(Errno::LOOP)),
            ("out", Err(Errno::XDEV), Err(Errno::LOOP)),
            ("out/b", Err(Errno::XDEV), Err(Errno::LOOP)),
            ("out-and-over/b", Err(Errno::XDEV), Err(Errno::LOOP)),
            ("up", Err(Errno::XDEV), Err(Errno::LOOP)),
            ("slash", Err(Errno::XDEV), Err(Errno::LOOP)),
            ("absolute", Err(Errno::XDEV), Err(Errno::LOOP)),
            ("..", Err(Errno::XDEV), Err(Errno::XDEV)),
            ("../outside", Err(Errno::XDEV), Err(Errno::XDEV)),
            ("a/../..", Err(Errno::XDEV), Err(Errno::XDEV)),
            ("a/../../root/a", Err(Errno::XDEV), Err(Errno::XDEV)),
            ("/tmp", Err(Errno::XDEV), Err(Errno::XDEV)),
            ("file", Err(Errno::NOTDIR), Err(Errno::NOTDIR)),
            ("file/x", Err(Errno::NOTDIR), Err(Errno::NOTDIR)),
            ("to-file", Err(Errno::NOTDIR), Err(Errno::LOOP)),
            ("nowhere", Err(Errno::NOENT), Err(Errno::NOENT)),
            ("dangling", Err(Errno::NOENT), Err(Errno::LOOP)),
            ("loop", Err(Errno::LOOP), Err(Errno::LOOP)),
        ];
        let root = folder_at(&path("root"));
        for (asked, followed, refused) in cases {
            for (links, expect) in [(Links::Beneath, followed), (Links::Refused, refused)] {
                let expect = expect.map(|name| name_of(&folder_at(&path(name))));
                for resolver in [Resolver::Kernel, Resolver::ByComponent] {
                    for flags in [OFlags::RDONLY, OFlags::PATH] {
                        let got = open_with(resolver, root.as_fd(), asked.as_bytes(), flags, links);
                        let got = got.map(|fd| name_of(&fd));
                        assert_eq!(got, expect, "{asked:?} {links:?} {resolver:?} {flags:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_path_of_any_length_is_opened_with_few_descriptors() {
        let scene = tempfile::tempdir().unwrap();
        let mut at = folder_at(scene.path());
        for _ in 0..5000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = enter(at.as_fd(), b"d").unwrap();
        }
        let path = vec!["d"; 5000].join("/").into_bytes();
        for resolver in [Resolver::Kernel, Resolver::ByComponent] {
            for links in [Links::Beneath, Links::Refused] {
                let root = folder_at(scene.path());
                let got = open_with(resolver, root.as_fd(), &path, OFlags::RDONLY, links).unwrap();
                assert_eq!(name_of(&got), name_of(&at), "{resolver:?} {links:?}");
            }
        }
        // The standard library keeps a descriptor for each folder that it removes.
        let removed = std::process::Command::new("rm").arg("-rf").arg(scene.path()).status();
        assert!(removed.unwrap().success());
    }
}
