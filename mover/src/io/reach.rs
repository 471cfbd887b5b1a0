//! Where the paths of a transfer may lead: anywhere on this host, or only beneath one folder.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, StatFs, mkdirat, statat};
use rustix::io::Errno;

use super::beneath::{self, Links, open_folder};
use super::disk::Disk;
use super::store::{PartSize, Store, Stores};
use base::fault::{Class, Fault};
use base::job::ObjectUrl;

/// What paths may lead to. Every path that a user or a peer gives is resolved by one of these; what
/// is found then is named below a [`Disk`], which never leaves its own root.
#[derive(Clone, Debug, Default)]
pub enum Reach {
    /// Everything on this host that the process has a right to.
    #[default]
    Host,
    /// That, and object stores.
    Stores(Arc<dyn Stores>),
    /// What is beneath one folder.
    Beneath(Beneath),
}

/// A folder that paths do not leave. A path begins there, also one with a slash in front; one with
/// too many `..`, and one through a link that leads out, is refused.
#[derive(Clone, Debug)]
pub struct Beneath {
    root: Arc<OwnedFd>,
    /// How paths name the folder, where they are not relative to it.
    typed: PathBuf,
}

/// As many links as the kernel follows.
const LINKS_MAX: usize = 40;

impl Beneath {
    /// A path as it is resolved beneath the root: a leading slash means the root.
    fn below<'a>(&self, path: &'a Path) -> &'a [u8] {
        let bytes = path.strip_prefix(&self.typed).unwrap_or(path).as_os_str().as_bytes();
        let slashes = bytes.iter().take_while(|byte| **byte == b'/').count();
        &bytes[slashes..]
    }

    fn open(&self, path: &Path, flags: OFlags, links: Links) -> Result<OwnedFd, Errno> {
        open_folder(self.root.as_fd(), self.below(path), flags, links)
    }

    fn canonical(&self, path: &Path) -> Result<Vec<u8>, Errno> {
        beneath::canonical(self.root.as_fd(), self.below(path))
    }
}

impl Reach {
    /// Only what is beneath this folder, which may be named by a link.
    pub fn beneath(folder: &Path) -> Result<Reach, Fault> {
        rustix::fs::open(folder, OFlags::PATH | FOLDER, Mode::empty())
            .map(|root| Reach::Beneath(Beneath { root: Arc::new(root), typed: PathBuf::new() }))
            .map_err(|errno| Fault::io("open the directory", folder, &errno.into()))
    }

    /// Where a path may lead that goes through a [`SPREAD_FOLDER`]: nowhere else than to what is
    /// beneath the folder that has it, whoever replaces names on the way by links. `None` for any
    /// other path.
    pub(crate) fn of_staging(&self, path: &Path) -> Result<Option<Reach>, Fault> {
        let is_of_spread = |above: &&Path| above.file_name() == Some(OsStr::new(SPREAD_FOLDER));
        let Some(of_spread) = path.ancestors().filter(is_of_spread).last() else {
            return Ok(None);
        };
        let folder = match of_spread.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let flags = OFlags::PATH | FOLDER;
        let root = match self {
            Reach::Host | Reach::Stores(_) => rustix::fs::open(folder, flags, Mode::empty()),
            Reach::Beneath(root) => root.open(folder, flags, Links::Beneath),
        };
        let root = root.map_err(|errno| fault("open the directory", folder, &errno.into()))?;
        let typed = of_spread.parent().unwrap_or(Path::new("")).to_path_buf();
        Ok(Some(Reach::Beneath(Beneath { root: Arc::new(root), typed })))
    }

    /// The tree below a folder.
    pub fn disk(&self, path: &Path) -> Result<Disk, Fault> {
        let root = match self {
            Reach::Host | Reach::Stores(_) => return Disk::open(path),
            Reach::Beneath(root) => root,
        };
        let open = |flags| root.open(path, flags, Links::Beneath);
        Disk::opened(path, open).map_err(|errno| fault("open the directory", path, &errno.into()))
    }

    /// The objects below a URL.
    pub(crate) fn store(&self, url: &ObjectUrl) -> Result<Arc<dyn Store>, Fault> {
        match self {
            Reach::Stores(stores) => stores.open(url),
            Reach::Host | Reach::Beneath(_) => {
                let text = format!("'{url}': this program has no client for object stores");
                Err(Fault::new(Class::Usage, text))
            }
        }
    }

    /// How long the parts of objects are.
    pub(crate) fn part_size(&self) -> PartSize {
        match self {
            Reach::Stores(stores) => stores.part_size(),
            Reach::Host | Reach::Beneath(_) => PartSize::AsRequests,
        }
    }

    /// The path with all links resolved. It begins with a slash: that of this host, or that of the
    /// folder that everything is beneath.
    pub fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        match self {
            Reach::Host | Reach::Stores(_) => std::fs::canonicalize(path),
            Reach::Beneath(root) => {
                let way = root.canonical(path)?;
                Ok(Path::new("/").join(OsStr::from_bytes(&way)))
            }
        }
    }

    /// True for a link of procfs to an open file, and for a link to such a link.
    pub(crate) fn is_open_file(&self, path: &Path) -> bool {
        if matches!(self, Reach::Beneath(_)) {
            return false; // procfs is not beneath it
        }
        let mut at = path.to_path_buf();
        for _ in 0..LINKS_MAX {
            let Ok(to) = std::fs::read_link(&at) else { return false };
            let folder = match at.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
                _ => PathBuf::from("."),
            };
            let system = rustix::fs::statfs(&folder);
            if system.is_ok_and(|system| system.f_type == rustix::fs::PROC_SUPER_MAGIC) {
                return true;
            }
            at = folder.join(to);
        }
        false
    }

    /// What the path leads to; links are followed.
    pub fn status(&self, path: &Path) -> Result<Stat, Errno> {
        let root = match self {
            Reach::Host | Reach::Stores(_) => return rustix::fs::stat(path),
            Reach::Beneath(root) => root,
        };
        let way = root.canonical(path)?;
        let (folder, name) = match way.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&way[..slash], &way[slash + 1..]),
            None if way.is_empty() => (&b""[..], &b"."[..]),
            None => (&b""[..], &way[..]),
        };
        let folder = open_folder(root.root.as_fd(), folder, OFlags::PATH, Links::Refused)?;
        let name = OsStr::from_bytes(name);
        // What has become a link since is taken as that: nothing follows it.
        statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// True where something has this name; a link is not followed.
    pub fn is_there(&self, path: &Path) -> bool {
        let (Reach::Beneath(root), Some((folder, name))) = (self, parent_and_name(path)) else {
            return match self {
                Reach::Host | Reach::Stores(_) => std::fs::symlink_metadata(path).is_ok(),
                Reach::Beneath(_) => self.status(path).is_ok(),
            };
        };
        root.open(folder, OFlags::PATH, Links::Beneath)
            .and_then(|folder| statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW))
            .is_ok()
    }

    /// True for a folder, and for a link to one.
    pub fn is_folder(&self, path: &Path) -> bool {
        let kind = self.status(path).map(|stat| FileType::from_raw_mode(stat.st_mode));
        kind == Ok(FileType::Directory)
    }

    /// The names in a folder that fit, so many at most.
    pub fn names(
        &self,
        path: &Path,
        fits: impl Fn(&OsStr) -> bool,
        max: usize,
    ) -> io::Result<Vec<OsString>> {
        let flags = OFlags::RDONLY | FOLDER;
        let folder = match self {
            Reach::Host | Reach::Stores(_) => rustix::fs::open(path, flags, Mode::empty())?,
            Reach::Beneath(root) => root.open(path, flags, Links::Beneath)?,
        };
        let mut names = Vec::new();
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if names.len() == max {
                break;
            }
            if name != "." && name != ".." && fits(name) {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Makes a folder with this mode, less the umask.
    pub fn make_directory(&self, path: &Path, mode: u32) -> Result<(), Fault> {
        let made = match self {
            Reach::Host | Reach::Stores(_) => std::fs::DirBuilder::new().mode(mode).create(path),
            Reach::Beneath(root) => parent_and_name(path)
                .ok_or(Errno::EXIST)
                .and_then(|(folder, name)| {
                    let folder = root.open(folder, OFlags::PATH, Links::Beneath)?;
                    mkdirat(&folder, name, Mode::from_raw_mode(mode))
                })
                .map_err(io::Error::from),
        };
        made.map_err(|error| fault("make the directory", path, &error))
    }

    /// The file system that paths are on, where all of them are beneath one folder.
    pub(super) fn file_system(&self) -> Option<StatFs> {
        match self {
            Reach::Host | Reach::Stores(_) => None,
            Reach::Beneath(root) => rustix::fs::fstatfs(&root.root).ok(),
        }
    }
}

/// The fault of a path that could not be resolved.
pub fn fault(doing: &str, path: &Path, why: &io::Error) -> Fault {
    if why.raw_os_error() != Some(Errno::XDEV.raw_os_error()) {
        return Fault::io(doing, path, why);
    }
    let text = format!(
        "'{}' leads out of the folder that this side is limited to: name something beneath it",
        path.display()
    );
    Fault::new(Class::Usage, text)
}

/// `None` for the root, and for what ends with `..`.
fn parent_and_name(path: &Path) -> Option<(&Path, &OsStr)> {
    Some((path.parent()?, path.file_name()?))
}

/// What a job of `spread` has at its destination while it runs: staging folders, in which only the
/// job makes names.
pub const SPREAD_FOLDER: &str = ".datapump-spread";
const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    struct Scene(tempfile::TempDir);

    impl Scene {
        /// A folder `root` with links of every kind, and `outside` beside it.
        fn new() -> Scene {
            let scene = Scene(tempfile::tempdir().unwrap());
            fs::create_dir_all(scene.at("root/a/b")).unwrap();
            fs::create_dir_all(scene.at("outside/b")).unwrap();
            for file in ["root/file", "root/a/file", "outside/file"] {
                fs::write(scene.at(file), b"").unwrap();
            }
            for (target, name) in [
                ("a", "in"),
                ("a/file", "to-file"),
                ("../file", "a/up-to-file"),
                ("to-file", "to-link"),
                ("../outside", "out"),
                ("../outside/file", "out-to-file"),
                ("nowhere", "dangling"),
                ("loop", "loop"),
            ] {
                symlink(target, scene.at("root").join(name)).unwrap();
            }
            symlink(scene.at("root/a"), scene.at("root/absolute")).unwrap();
            scene
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn reach(&self) -> Reach {
            Reach::beneath(&self.at("root")).unwrap()
        }
    }

    #[test]
    fn paths_are_resolved_beneath_the_root() {
        let scene = Scene::new();
        let out = Err(Errno::XDEV);
        let cases = [
            ("", Ok("/")),
            (".", Ok("/")),
            ("/", Ok("/")),
            ("//a//b/", Ok("/a/b")),
            ("a/../a", Ok("/a")),
            ("in/b/../..", Ok("/")),
            ("file", Ok("/file")),
            ("/file", Ok("/file")),
            ("to-file", Ok("/a/file")),
            ("to-link", Ok("/a/file")),
            ("in/up-to-file", Ok("/file")),
            ("..", out),
            ("/..", out),
            ("a/../../outside", out),
            ("out", out),
            ("out/b", out),
            ("out/../root/a", out),
            ("out-to-file", out),
            ("absolute", out),
            ("file/x", Err(Errno::NOTDIR)),
            ("file/..", Err(Errno::NOTDIR)),
            ("nothing", Err(Errno::NOENT)),
            ("dangling", Err(Errno::NOENT)),
            ("loop", Err(Errno::LOOP)),
        ];
        for (asked, expect) in cases {
            let path = Path::new(asked);
            let got = scene.reach().canonical(path);
            let got = got.map_err(|why| Errno::from_io_error(&why).unwrap());
            assert_eq!(got, expect.map(PathBuf::from), "{asked}");
            let inode = |stat: Stat| (stat.st_dev, stat.st_ino);
            let real = |way: &str| rustix::fs::stat(scene.at(&format!("root{way}"))).map(inode);
            let status = scene.reach().status(path).map(inode);
            assert_eq!(status, expect.and_then(real), "{asked}");
        }
    }

    #[test]
    fn nothing_outside_is_seen_opened_or_made() {
        let scene = Scene::new();
        let reach = scene.reach();
        let seen = ["out", "a", "/", "..", "out/b", "dangling", "../outside", "nothing"];
        let seen = seen.map(|path| reach.is_there(Path::new(path)));
        assert_eq!(seen, [true, true, true, false, false, true, false, false]);
        for path in ["../new", "/../new", "out/new", "absolute/new", "..", "/"] {
            assert!(reach.make_directory(Path::new(path), 0o755).is_err(), "{path}");
        }
        for path in ["..", "out", "out/b", "absolute", "a/../.."] {
            let fault = reach.disk(Path::new(path)).unwrap_err();
            assert_eq!(fault.class, Class::Usage, "{path}: {fault}");
            assert!(fault.text.contains("leads out of the folder"), "{path}: {fault}");
        }
        assert_eq!(fs::read_dir(scene.0.path()).unwrap().count(), 2, "nothing is new beside it");
        assert_eq!(fs::read_dir(scene.at("outside")).unwrap().count(), 2);
        for path in ["new", "/a/new", "in/other"] {
            reach.make_directory(Path::new(path), 0o755).unwrap();
        }
        assert!(scene.at("root/a/other").is_dir() && reach.disk(Path::new("/in/new")).is_ok());
    }
}
