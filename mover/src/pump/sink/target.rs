//! Where objects go, and whether the folder itself is new.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::io::reach::{self, Reach};
use crate::io::volume::Volume;
use crate::pump::sink::OWNER_BITS;
use crate::pump::sink::owner_map::OwnerMap;
use crate::wire::message::Origin;
use base::fault::Fault;
use base::job::{Location, ObjectUrl};
use base::settings::{Fsync, Settings};

/// Where objects go.
#[derive(Clone, Debug)]
pub enum Target {
    Null,
    Pipe,
    /// Below this root; a single object may be given another name.
    Tree {
        volume: Arc<dyn Volume>,
        rename: Option<Vec<u8>>,
        root: Root,
    },
    /// A folder that a dry run does not create; it would be created on this volume.
    Absent {
        volume: Arc<dyn Volume>,
    },
}

/// The destination folder itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// This run has created it, for itself alone until the copy is over.
    pub is_new: bool,
    /// It stays as it is, or gets the mode of any new folder. Else, where `SRC/` is copied into it,
    /// a new one becomes like its source, and so does an existing one where everything must be as
    /// at the source.
    pub is_kept: bool,
}

impl Root {
    pub const FOUND: Root = Root { is_new: false, is_kept: false };
    const MADE: Root = Root { is_new: true, is_kept: false };
    const KEPT: Root = Root { is_new: false, is_kept: true };
}

impl Target {
    /// Determines what the destination is, as `cp` would: a directory takes objects by their names,
    /// anything else is the new name of a single object.
    pub fn open(location: &Location, origin: Origin, reach: &Reach) -> Result<Target, Fault> {
        match location {
            Location::Null { .. }
            | Location::Zero { .. }
            | Location::Random { .. }
            | Location::Synthetic { .. } => Ok(Target::Null),
            Location::Endless | Location::EndlessSynthetic { .. } => {
                Err(Fault::usage("an endless source is no place to copy to"))
            }
            Location::Stdio if origin.single => Ok(Target::Pipe),
            Location::Stdio => Err(Fault::usage("only one file can go to standard output")),
            Location::Path(path) => Target::open_path(path, origin, reach),
            Location::Object(url) => Target::open_object(url, origin, reach),
        }
    }

    /// The same for these settings: folders above it are created if they may be, and a dry run
    /// creates nothing.
    pub fn find(
        location: &Location,
        origin: Origin,
        settings: &Settings,
        reach: &Reach,
    ) -> Result<Target, Fault> {
        OwnerMap::of(settings)?; // its faults come before anything is made
        let Location::Path(path) = location else { return Target::open(location, origin, reach) };
        let of_staging = reach.of_staging(path)?;
        let reach = of_staging.as_ref().unwrap_or(reach);
        let (above, is_there) = (parent_of(path), reach.is_there(path));
        if settings.compare && !is_there {
            return Err(reach::fault("find", path, &Errno::NOENT.into()));
        }
        let lacks_above = !is_there && is_missing(above, reach);
        if lacks_above && !settings.mkpath {
            return Target::open(location, origin, reach).map_err(|fault| Fault {
                text: format!("{}: --mkpath makes the folders above it", fault.text),
                ..fault
            });
        }
        if settings.dry_run {
            let is_new_name = origin.single && !path.as_os_str().as_bytes().ends_with(b"/");
            return match lacks_above || !(is_new_name || is_there) {
                true => {
                    let volume = Arc::new(reach.disk(there_above(path, reach))?);
                    Ok(Target::Absent { volume })
                }
                false => Target::open(location, origin, reach),
            };
        }
        if lacks_above {
            make_folders(above, settings.fsync, reach)?;
        }
        Target::open(location, origin, reach)
    }

    fn open_path(path: &Path, origin: Origin, reach: &Reach) -> Result<Target, Fault> {
        let wants_directory = path.as_os_str().as_bytes().ends_with(b"/");
        let kind = reach.status(path).map(|stat| FileType::from_raw_mode(stat.st_mode));
        match kind {
            Ok(FileType::Directory) => Target::directory(path, Root::FOUND, reach),
            Ok(_) if wants_directory || !origin.single => {
                let text = "is no directory: several things need one to go into";
                Err(Fault::usage(format!("'{}' {text}", path.display())))
            }
            Ok(kind) if kind != FileType::RegularFile => {
                let text = "is a device, pipe or socket, which a file does not replace: '-' as the \
                            target writes to standard output";
                Err(Fault::usage(format!("'{}' {text}", path.display())))
            }
            // Such as /dev/stdout: what it leads to is open, and has a name of its own.
            Ok(_) if reach.is_open_file(path) => {
                let text = "is an open file of a process, which a file does not replace: '-' as \
                            the target writes to standard output";
                Err(Fault::usage(format!("'{}' {text}", path.display())))
            }
            Ok(_) => Target::file(path, reach),
            Err(Errno::NOENT) => {
                if origin.single && !wants_directory {
                    return Target::file(path, reach);
                }
                reach.make_directory(path, OWNER_BITS)?;
                Target::directory(path, Root::MADE, reach)
            }
            Err(errno) => Err(reach::fault("look at", path, &errno.into())),
        }
    }

    /// A single object gets the key as typed, unless that ends with a slash; what is several goes
    /// below it. Folders of a store come and go with what is in them.
    fn open_object(url: &ObjectUrl, origin: Origin, reach: &Reach) -> Result<Target, Fault> {
        let (folder, name) = match url.key.rsplit_once('/') {
            _ if url.means_folder() || !origin.single => (url.key.trim_end_matches('/'), None),
            Some((folder, name)) => (folder, Some(name)),
            None => ("", Some(&url.key[..])),
        };
        let key = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let store = reach.store(&ObjectUrl { bucket: url.bucket.clone(), key })?;
        store.check()?;
        let rename = name.map(|name| name.as_bytes().to_vec());
        Ok(Target::Tree { volume: store, rename, root: Root::KEPT })
    }

    fn directory(path: &Path, root: Root, reach: &Reach) -> Result<Target, Fault> {
        Ok(Target::Tree { volume: Arc::new(reach.disk(path)?), rename: None, root })
    }

    fn file(path: &Path, reach: &Reach) -> Result<Target, Fault> {
        let parent = parent_of(path);
        let name = path.file_name().unwrap_or(OsStr::new("")).as_bytes().to_vec();
        if name.is_empty() {
            return Err(Fault::usage(format!("'{}' is no name for a file", path.display())));
        }
        let volume = Arc::new(reach.disk(parent)?);
        Ok(Target::Tree { volume, rename: Some(name), root: Root::KEPT })
    }

    /// The same, but the folder itself stays as it is, whatever a source says.
    pub(crate) fn keeping_root(self) -> Target {
        match self {
            Target::Tree { volume, rename, root } => {
                Target::Tree { volume, rename, root: Root { is_kept: true, ..root } }
            }
            other => other,
        }
    }

    /// True where this run has created the folder itself.
    pub fn is_new(&self) -> bool {
        matches!(self, Target::Tree { root: Root { is_new: true, .. }, .. })
    }

    /// The name of a single object, where it is not its own.
    pub fn rename(&self) -> Option<Vec<u8>> {
        match self {
            Target::Tree { rename, .. } => rename.clone(),
            Target::Null | Target::Pipe | Target::Absent { .. } => None,
        }
    }

    pub fn volume(&self) -> Option<&Arc<dyn Volume>> {
        match self {
            Target::Tree { volume, .. } => Some(volume),
            Target::Null | Target::Pipe | Target::Absent { .. } => None,
        }
    }
}

/// The nearest folder above that exists.
fn there_above<'a>(path: &'a Path, reach: &Reach) -> &'a Path {
    let mut above = parent_of(path);
    while is_missing(above, reach) && parent_of(above) != above {
        above = parent_of(above);
    }
    above
}

/// Makes a folder and those above it that are missing, as `mkdir -p` does, to last like the files
/// that go into it.
fn make_folders(path: &Path, fsync: Fsync, reach: &Reach) -> Result<(), Fault> {
    let there = there_above(path, reach);
    let mut missing = vec![path];
    while let Some(above) = missing.last().map(|last| parent_of(last)).filter(|at| *at != there) {
        missing.push(above);
    }
    for folder in missing.into_iter().rev() {
        match reach.make_directory(folder, 0o777) {
            Err(_) if reach.is_folder(folder) => {} // another process was faster
            made => made?,
        }
        if fsync == Fsync::File {
            reach.disk(parent_of(folder))?.sync_directory(b".")?;
        }
    }
    Ok(())
}

fn is_missing(path: &Path, reach: &Reach) -> bool {
    matches!(reach.status(path), Err(Errno::NOENT))
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
