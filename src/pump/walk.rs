//! Finds what there is to copy, a chunk at a time: a tree of any size takes the memory of its
//! depth.

use std::ffi::OsStr;
use std::fs::{self, Metadata as FsMetadata, ReadDir};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::fault::{Class, Fault};
use crate::base::job::Place;
use crate::io::disk::Disk;
use crate::io::volume::{Mtime, Volume};
use crate::wire::manifest::{Chunk, ENDLESS_BYTES, Entry, EntryKind, path_is_safe};
use crate::wire::message::Origin;

/// Where an object is read from.
#[derive(Clone, Debug)]
pub struct From {
    pub volume: Arc<dyn Volume>,
    pub path: Vec<u8>,
}

/// An object that can be offered.
#[derive(Clone, Debug)]
pub struct Found {
    pub entry: Entry,
    /// `None` for what has no bytes in files.
    pub from: Option<From>,
}

/// What a walk says as it goes.
#[derive(Debug)]
pub enum Sighting {
    Chunk(Vec<Found>),
    /// A path that cannot be offered; the walk goes on.
    Unoffered {
        path: Vec<u8>,
        fault: Fault,
    },
    /// A thing that is not copied, by its nature.
    Skipped(String),
}

/// Sources that were looked at: they exist, and whether they are one object is known.
#[derive(Debug)]
pub struct Sources {
    roots: Vec<Root>,
    pub origin: Origin,
}

#[derive(Debug)]
enum Root {
    Made(Entry),
    /// One of several that cannot be copied: it is named, the others are copied.
    Bad {
        path: PathBuf,
        fault: Fault,
    },
    File {
        real: PathBuf,
        name: Vec<u8>,
        meta: Box<FsMetadata>,
    },
    /// `prefix` is what stands before the names below it: empty for `SRC/`.
    Directory {
        real: PathBuf,
        prefix: Vec<u8>,
        meta: Box<FsMetadata>,
    },
}

impl Sources {
    /// Looks at each source. When none can be copied the transfer ends before it begins.
    pub fn look(places: &[Place], recursive: bool) -> Result<Sources, Fault> {
        let mut roots = Vec::with_capacity(places.len());
        for place in places {
            roots.push(match (look_at(place, recursive), place) {
                (Ok(root), _) => root,
                (Err(fault), Place::Path(path)) if places.len() > 1 => {
                    Root::Bad { path: path.clone(), fault }
                }
                (Err(fault), _) => return Err(fault),
            });
        }
        if roots.iter().all(|root| matches!(root, Root::Bad { .. }))
            && let Some(Root::Bad { fault, .. }) = roots.first()
        {
            return Err(fault.clone());
        }
        let single = roots.len() == 1 && !matches!(roots[0], Root::Directory { .. });
        let endless = matches!(&roots[..], [Root::Made(entry)] if entry.kind == EntryKind::Pipe);
        Ok(Sources { roots, origin: Origin { single, endless } })
    }

    /// The size of a single object that has one.
    pub fn single_bytes(&self) -> Option<u64> {
        match &self.roots[..] {
            [Root::File { meta, .. }] => Some(meta.size()),
            [Root::Made(entry)] if entry.kind != EntryKind::Pipe => Some(entry.size),
            _ => None,
        }
    }

    /// True when reading them can wait for a device.
    pub fn wait(&self) -> bool {
        self.roots.iter().any(|root| match root {
            Root::Made(_) | Root::Bad { .. } => false,
            Root::File { real, .. } => waits(real.parent().unwrap_or(Path::new("/"))),
            Root::Directory { real, .. } => waits(real),
        })
    }

    /// Walks everything; `tell` says false to stop.
    pub fn walk(self, tell: &mut dyn FnMut(Sighting) -> bool) {
        let mut batch = Offers { found: Vec::new(), bytes: 0, tell, going: true };
        for root in self.roots {
            match root {
                Root::Made(entry) => batch.add(Found { entry, from: None }),
                Root::Bad { path, fault } => batch.unoffered(&path, fault),
                Root::File { real, name, meta } => batch.add_file(&real, name, &meta),
                Root::Directory { real, prefix, meta } => batch.add_tree(&real, prefix, &meta),
            }
        }
        batch.flush();
    }
}

fn waits(directory: &Path) -> bool {
    Disk::open(directory).is_ok_and(|disk| disk.waits())
}

fn look_at(place: &Place, recursive: bool) -> Result<Root, Fault> {
    let made = |kind, size, name: &[u8]| Root::Made(made_entry(kind, size, name));
    match place {
        Place::Stdio => Ok(made(EntryKind::Pipe, ENDLESS_BYTES, b"stdin")),
        Place::Null { len } => Ok(made(EntryKind::Stretch, *len, b"null")),
        Place::Zero { len } => Ok(made(EntryKind::Stretch, *len, b"zero")),
        Place::Random { len, .. } => Ok(made(EntryKind::Stretch, *len, b"random")),
        Place::Path(path) => look_at_path(path, recursive),
    }
}

fn look_at_path(path: &Path, recursive: bool) -> Result<Root, Fault> {
    let fault = |doing, error| Fault::io(doing, path, &error);
    let meta = fs::metadata(path).map_err(|error| fault("find", error))?;
    let real = fs::canonicalize(path).map_err(|error| fault("find", error))?;
    let meta = Box::new(meta);
    // The name as it was typed: a link given on the command line is followed but keeps its name.
    let typed = path.file_name().or(real.file_name()).unwrap_or(OsStr::new(""));
    let name = typed.as_bytes().to_vec();
    if meta.is_dir() {
        if !recursive {
            let text =
                format!("'{}' is a directory: -r copies it with all that is in it", path.display());
            return Err(Fault::usage(text));
        }
        let bytes = path.as_os_str().as_bytes();
        let contents = bytes.ends_with(b"/") || bytes == b"." || bytes.ends_with(b"/.");
        let contents = contents || path.file_name().is_none();
        let prefix = if contents { Vec::new() } else { name };
        return Ok(Root::Directory { real, prefix, meta });
    }
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(Fault::usage(format!("'{}' is no directory", path.display())));
    }
    if !meta.is_file() {
        let text = "is no regular file: a pipe or device is copied as '-' from its reader";
        return Err(Fault::usage(format!("'{}' {text}", path.display())));
    }
    Ok(Root::File { real, name, meta })
}

/// Entries on their way into an offer.
struct Offers<'a> {
    found: Vec<Found>,
    bytes: usize,
    tell: &'a mut dyn FnMut(Sighting) -> bool,
    going: bool,
}

impl Offers<'_> {
    fn say(&mut self, sighting: Sighting) {
        self.going = self.going && (self.tell)(sighting);
    }

    fn unoffered(&mut self, path: &Path, fault: Fault) {
        let path = path.as_os_str().as_bytes().to_vec();
        self.say(Sighting::Unoffered { path, fault });
    }

    fn add(&mut self, found: Found) {
        let entries = self.found.len();
        if entries > 0 && Chunk::is_full(entries, self.bytes, &found.entry) {
            self.flush();
        }
        self.bytes += found.entry.encoded_bytes();
        self.found.push(found);
    }

    fn flush(&mut self) {
        self.bytes = 0;
        if !self.found.is_empty() {
            let found = std::mem::take(&mut self.found);
            self.say(Sighting::Chunk(found));
        }
    }

    fn add_file(&mut self, real: &Path, name: Vec<u8>, meta: &FsMetadata) {
        let parent = real.parent().unwrap_or(Path::new("/"));
        let in_parent = real.file_name().unwrap_or(OsStr::new("")).as_bytes().to_vec();
        match Disk::open(parent) {
            Ok(disk) => {
                let from = From { volume: Arc::new(disk), path: in_parent };
                let entry = entry_from(EntryKind::File, name, Vec::new(), meta);
                self.add(Found { entry, from: Some(from) });
            }
            Err(fault) => self.unoffered(real, fault),
        }
    }

    fn add_tree(&mut self, real: &Path, prefix: Vec<u8>, meta: &FsMetadata) {
        let volume: Arc<dyn Volume> = match Disk::open(real) {
            Ok(disk) => Arc::new(disk),
            Err(fault) => return self.unoffered(real, fault),
        };
        if !prefix.is_empty() {
            let entry = entry_from(EntryKind::Directory, prefix.clone(), Vec::new(), meta);
            self.add(Found { entry, from: None });
        }
        let mut open: Vec<(ReadDir, Vec<u8>)> = Vec::new();
        match fs::read_dir(real) {
            Ok(entries) => open.push((entries, Vec::new())),
            Err(error) => return self.unoffered(real, Fault::io("list", real, &error)),
        }
        while let Some((entries, below)) = open.last_mut() {
            if !self.going {
                return;
            }
            let Some(next) = entries.next() else {
                open.pop();
                continue;
            };
            let below = below.clone();
            match next {
                Ok(next) => {
                    let path = join(&below, next.file_name().as_bytes());
                    if let Some(entries) = self.add_below(&volume, &prefix, &path, &next) {
                        open.push((entries, path));
                    }
                }
                Err(error) => {
                    let directory = real.join(OsStr::from_bytes(&below));
                    let fault = Fault::io("list", &directory, &error);
                    self.unoffered(&directory, fault);
                    open.pop();
                }
            }
        }
    }

    /// Adds one thing in a tree; a directory comes back opened.
    fn add_below(
        &mut self,
        volume: &Arc<dyn Volume>,
        prefix: &[u8],
        path: &[u8],
        item: &fs::DirEntry,
    ) -> Option<ReadDir> {
        let real = item.path();
        let meta = match item.metadata() {
            Ok(meta) => meta,
            Err(error) => {
                self.unoffered(&real, Fault::io("look at", &real, &error));
                return None;
            }
        };
        let target = join(prefix, path);
        if !path_is_safe(&target) {
            let text = format!("'{}' is longer than a path may be (4095 bytes)", real.display());
            self.unoffered(&real, Fault::new(Class::Local, text));
            return None;
        }
        let kind = meta.file_type();
        if kind.is_file() {
            let from = Some(From { volume: volume.clone(), path: path.to_vec() });
            let entry = entry_from(EntryKind::File, target, Vec::new(), &meta);
            self.add(Found { entry, from });
        } else if kind.is_symlink() {
            match fs::read_link(&real) {
                Ok(to) => {
                    let to = to.into_os_string().as_bytes().to_vec();
                    let entry = entry_from(EntryKind::Link, target, to, &meta);
                    self.add(Found { entry, from: None });
                }
                Err(error) => self.unoffered(&real, Fault::io("read the link", &real, &error)),
            }
        } else if kind.is_dir() {
            let entry = entry_from(EntryKind::Directory, target, Vec::new(), &meta);
            self.add(Found { entry, from: None });
            match fs::read_dir(&real) {
                Ok(entries) => return Some(entries),
                Err(error) => self.unoffered(&real, Fault::io("list", &real, &error)),
            }
        } else {
            let text = format!("'{}' is a socket, pipe or device: skipped", real.display());
            self.say(Sighting::Skipped(text));
        }
        None
    }
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        b"" => name.to_vec(),
        _ => [directory, b"/", name].concat(),
    }
}

fn entry_from(kind: EntryKind, path: Vec<u8>, link_target: Vec<u8>, meta: &FsMetadata) -> Entry {
    Entry {
        kind,
        size: if kind == EntryKind::File { meta.size() } else { 0 },
        mtime_seconds: meta.mtime(),
        mtime_nanos: meta.mtime_nsec() as u32,
        mode: meta.mode() & 0o777,
        path,
        link_target,
        ..Entry::default()
    }
}

fn made_entry(kind: EntryKind, size: u64, name: &[u8]) -> Entry {
    Entry {
        kind,
        size,
        mtime_seconds: 0,
        mtime_nanos: 0,
        mode: 0o666,
        path: name.to_vec(),
        link_target: Vec::new(),
        ..Entry::default()
    }
}

/// When an offered file was last changed.
pub fn mtime_of(entry: &Entry) -> Mtime {
    Mtime { seconds: entry.mtime_seconds, nanos: entry.mtime_nanos }
}
