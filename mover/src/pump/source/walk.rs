//! Finds what there is to copy, a chunk at a time: the memory that it takes depends on the depth of
//! a tree, not on its size.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use self::hard_links::HardLinks;
use self::listed::{Folders, Listed};
use self::listing::{At, Buffer, Listing, Meta};
use self::naming::NamesTold;
use crate::io::attributes;
use crate::io::disk::Disk;
use crate::io::reach::{self, Reach};
use crate::io::store::Store;
use crate::io::volume::{Mtime, Volume};
use crate::pump::source::limits::Limits;
use crate::pump::source::names::Names;
use crate::pump::source::pattern;
use crate::pump::source::select::{Select, Shape};
use crate::wire::manifest::{Chunk, ENDLESS_BYTES, Entry, EntryKind, path_is_safe};
use crate::wire::message::Origin;
use base::attributes::Attributes;
use base::fault::Fault;
use base::job::Location;
use base::limits::{ATTRIBUTES_BYTES_MAX, OFFER_BYTES_MAX, OFFER_ENTRIES_MAX};
use base::settings::{Delete, Moment, Settings, SkipUnchanged};

mod hard_links;
mod listed;
mod listing;
mod marks;
mod naming;
mod objects;
mod tree;

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
    /// `None` for objects without bytes in files.
    pub from: Option<From>,
}

/// What a walk reports as it goes.
#[derive(Debug)]
pub enum WalkEvent {
    Chunk(Vec<Found>),
    /// A path that cannot be offered; the walk goes on.
    Unoffered {
        path: Vec<u8>,
        fault: Fault,
    },
    /// Something that is not copied, because of its kind.
    Skipped(String),
    /// Names that are there and not offered, where the sink must know all that are there.
    Present(Vec<Vec<u8>>),
    /// How many names the filters left out, at the end.
    Excluded(u64),
}

/// Sources that were checked: they exist, and whether they are one object is known.
#[derive(Debug)]
pub struct Sources {
    roots: Vec<Root>,
    pub origin: Origin,
    select: Select,
    limits: Limits,
    sums: Sums,
    listed: Option<Listed>,
    reach: Reach,
}

/// Whether files are hashed before they are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sums {
    None,
    Blake3,
}

#[derive(Debug)]
enum Root {
    Made(Entry),
    /// One of several that cannot be copied: it is reported, the others are copied.
    Bad {
        path: PathBuf,
        fault: Fault,
    },
    File {
        real: PathBuf,
        name: Vec<u8>,
        meta: Box<Meta>,
    },
    /// `prefix` precedes the names below it: it is empty for `SRC/`.
    Directory {
        real: PathBuf,
        prefix: Vec<u8>,
        meta: Box<Meta>,
    },
    /// One object of a store, in the volume of the folder that it is in.
    Object {
        store: Arc<dyn Store>,
        entry: Box<Entry>,
    },
    Objects {
        store: Arc<dyn Store>,
        prefix: Vec<u8>,
    },
}

impl Sources {
    /// Checks each source. When none can be copied the transfer ends before it begins.
    pub fn look(locations: &[Location], recursive: bool, reach: &Reach) -> Result<Sources, Fault> {
        let look = |location: &Location| (location.clone(), look_at(location, recursive, reach));
        Sources::of(locations.iter().map(look).collect(), reach)
    }

    /// The same on a host whose shell has not seen what was typed: patterns are expanded.
    pub(crate) fn look_for(
        locations: &[Location],
        recursive: bool,
        reach: &Reach,
    ) -> Result<Sources, Fault> {
        let mut looked = Vec::with_capacity(locations.len());
        for location in locations {
            let expanded = match location {
                Location::Path(path) => pattern::expand(path, reach),
                _ => Ok(Vec::new()),
            };
            match expanded {
                Ok(paths) if paths.is_empty() => {
                    looked.push((location.clone(), look_at(location, recursive, reach)));
                }
                Ok(paths) => looked.extend(paths.into_iter().map(|path| {
                    let root = look_at_path(&path, recursive, reach);
                    (Location::Path(path), root)
                })),
                Err(fault) => looked.push((location.clone(), Err(fault))),
            }
        }
        Sources::of(looked, reach)
    }

    fn of(looked: Vec<(Location, Result<Root, Fault>)>, reach: &Reach) -> Result<Sources, Fault> {
        let (count, mut roots) = (looked.len(), Vec::with_capacity(looked.len()));
        for looked in looked {
            roots.push(match looked {
                (_, Ok(root)) => root,
                (Location::Path(path), Err(fault)) if count > 1 => Root::Bad { path, fault },
                (Location::Object(url), Err(fault)) if count > 1 => {
                    Root::Bad { path: url.to_string().into(), fault }
                }
                (_, Err(fault)) => return Err(fault),
            });
        }
        if roots.iter().all(|root| matches!(root, Root::Bad { .. }))
            && let Some(Root::Bad { fault, .. }) = roots.first()
        {
            return Err(fault.clone());
        }
        let is_folder = |root: &Root| matches!(root, Root::Directory { .. } | Root::Objects { .. });
        let single = roots.len() == 1 && !is_folder(&roots[0]);
        let endless = matches!(&roots[..], [Root::Made(entry)] if entry.kind == EntryKind::Pipe);
        let select = Select::new(&[])?;
        let origin = Origin { single, endless };
        Ok(Sources {
            roots,
            origin,
            select,
            limits: Limits::default(),
            sums: Sums::None,
            listed: None,
            reach: reach.clone(),
        })
    }

    /// Checks the one folder below which a list names what is copied.
    pub(crate) fn look_below(locations: &[Location], reach: &Reach) -> Result<Sources, Fault> {
        let mut sources = Sources::look(locations, true, reach)?;
        match &mut sources.roots[..] {
            [Root::Directory { prefix, .. }] => {
                prefix.clear();
                Ok(sources)
            }
            _ => Err(Fault::usage(
                "--files-from names what is below one folder, and the source is none: name the \
                 folder as SRC",
            )),
        }
    }

    /// Limits the copy to these names below the source.
    pub fn list(mut self, names: Arc<Names>, recursive: bool) -> Sources {
        let folders = if recursive { Folders::Copied } else { Folders::Refused };
        self.listed = Some(Listed { names, folders });
        self
    }

    /// Limits the copy to what the settings choose.
    pub fn choose(mut self, settings: &Settings) -> Result<Sources, Fault> {
        self.select = Select::new(&settings.filters)?;
        self.limits = Limits::of(settings);
        if settings.compare {
            self.pair();
        }
        if settings.skip_unchanged == SkipUnchanged::Checksum {
            self.sums = Sums::Blake3;
        }
        Ok(self)
    }

    /// What is in a folder gets no name before its own.
    fn pair(&mut self) {
        for root in &mut self.roots {
            if let Root::Directory { prefix, .. } | Root::Objects { prefix, .. } = root {
                prefix.clear();
            }
        }
    }

    /// The size of a single object that has one.
    pub(crate) fn single_bytes(&self) -> Option<u64> {
        match &self.roots[..] {
            [Root::File { meta, .. }] => Some(meta.size()),
            [Root::Made(entry)] if entry.kind != EntryKind::Pipe => Some(entry.size),
            [Root::Object { entry, .. }] => Some(entry.size),
            _ => None,
        }
    }

    /// True when reading them may wait for a device.
    pub fn wait(&self) -> bool {
        self.roots.iter().any(|root| match root {
            Root::Made(_) | Root::Bad { .. } => false,
            Root::File { real, .. } => self.waits_at(real.parent().unwrap_or(Path::new("/"))),
            Root::Directory { real, .. } => self.waits_at(real),
            Root::Object { .. } | Root::Objects { .. } => true,
        })
    }

    fn waits_at(&self, directory: &Path) -> bool {
        self.reach.disk(directory).is_ok_and(|disk| disk.waits())
    }

    /// Walks everything; `tell` returns false to stop.
    pub fn walk(self, settings: &Settings, tell: &mut dyn FnMut(WalkEvent) -> bool) {
        let Sources { roots, select, limits, sums, listed, reach, .. } = self;
        let mut batch = Offers {
            settings,
            reach,
            found: Vec::new(),
            bytes: 0,
            number: 0,
            twins: HardLinks::new(settings),
            everything: None,
            buffer: Buffer::default(),
            tell,
            going: true,
            select,
            limits,
            sums,
            names_told: NamesTold::new(settings),
            links_told: false,
            excluded: 0,
            present: Vec::new(),
            present_bytes: 0,
            taken: (roots.len() > 1).then(BTreeSet::new),
            prefix_bytes: 0,
        };
        for root in roots {
            match root {
                Root::Made(entry) => batch.add(Found { entry, from: None }),
                Root::Bad { path, fault } => batch.unoffered(&path, fault),
                Root::Object { store, entry } => batch.add_object(store, *entry),
                Root::Objects { store, prefix } => batch.add_objects(&store, prefix),
                Root::File { real, name, meta } => batch.add_file(&real, name, &meta),
                Root::Directory { real, prefix, meta } => match &listed {
                    Some(listed) => batch.add_listed(&real, listed),
                    None => batch.add_tree(&real, prefix, &meta),
                },
            }
        }
        batch.flush();
        batch.tell_present();
        for text in batch.names_told.take_warnings() {
            batch.say(WalkEvent::Skipped(text));
        }
        let excluded = batch.excluded;
        batch.say(WalkEvent::Excluded(excluded));
    }
}

fn look_at(location: &Location, recursive: bool, reach: &Reach) -> Result<Root, Fault> {
    match (location, made_object(location)) {
        (Location::Path(path), _) => look_at_path(path, recursive, reach),
        (Location::Object(url), _) => objects::look_at(url, recursive, reach),
        (_, made) => Ok(Root::Made(made.expect("what is no path is made up, or piped"))),
    }
}

/// The only object of a source that is not a path.
pub(crate) fn made_object(location: &Location) -> Option<Entry> {
    let made = |kind, size, name: &str| Some(made_entry(kind, size, name.as_bytes()));
    match location {
        Location::Path(_) | Location::Object(_) => None,
        Location::Stdio => made(EntryKind::Pipe, ENDLESS_BYTES, "stdin"),
        Location::Endless => made(EntryKind::Pipe, ENDLESS_BYTES, "null"),
        Location::EndlessSynthetic { set, .. } => made(EntryKind::Pipe, ENDLESS_BYTES, set.name()),
        Location::Null { len } => made(EntryKind::Stretch, *len, "null"),
        Location::Zero { len } => made(EntryKind::Stretch, *len, "zero"),
        Location::Random { len, .. } => made(EntryKind::Stretch, *len, "random"),
        Location::Synthetic { set, len, .. } => made(EntryKind::Stretch, *len, set.name()),
    }
}

/// True for a folder that is typed so that its content is copied, and not the folder itself.
pub fn means_contents(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    let typed = bytes.ends_with(b"/") || bytes == b"." || bytes.ends_with(b"/.");
    typed || path.file_name().is_none()
}

fn look_at_path(path: &Path, recursive: bool, reach: &Reach) -> Result<Root, Fault> {
    let fault = |error| reach::fault("find", path, &error);
    let meta = Meta::of_path(path, reach).map_err(|errno| fault(errno.into()))?;
    let real = reach.canonical(path).map_err(fault)?;
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
        let prefix = if means_contents(path) { Vec::new() } else { name };
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

/// Entries that are collected for an offer.
struct Offers<'a> {
    settings: &'a Settings,
    reach: Reach,
    found: Vec<Found>,
    bytes: usize,
    /// The number that the next object will have: they are counted as they are offered.
    number: u64,
    twins: HardLinks,
    /// All that can be reached: the targets of followed links can be anywhere there.
    everything: Option<Arc<Disk>>,
    buffer: Buffer,
    tell: &'a mut dyn FnMut(WalkEvent) -> bool,
    going: bool,
    select: Select,
    limits: Limits,
    sums: Sums,
    names_told: NamesTold,
    /// It has been said that links with several names are copied as several links.
    links_told: bool,
    /// Names that the filters left out.
    excluded: u64,
    /// Names that are there and not offered, and their bytes.
    present: Vec<Vec<u8>>,
    present_bytes: usize,
    /// Names that were offered, where there are several sources.
    taken: Option<BTreeSet<u128>>,
    /// The length of the prefix of names below the current source.
    prefix_bytes: usize,
}

impl Offers<'_> {
    fn say(&mut self, sighting: WalkEvent) {
        self.going = self.going && (self.tell)(sighting);
    }

    fn failed(&mut self, doing: &str, path: &Path, errno: Errno) {
        self.unoffered(path, Fault::io(doing, path, &errno.into()));
    }

    fn unoffered(&mut self, path: &Path, fault: Fault) {
        let path = path.as_os_str().as_bytes().to_vec();
        self.say(WalkEvent::Unoffered { path, fault });
    }

    fn add(&mut self, mut found: Found) {
        self.sum(&mut found);
        self.try_to_open(&mut found);
        found.entry.repeated = self.is_repeated(&found.entry);
        self.names_told.name(&mut found.entry);
        let entries = self.found.len();
        if entries > 0 && Chunk::is_full(entries, self.bytes, &found.entry) {
            self.flush();
        }
        self.bytes += found.entry.encoded_bytes();
        self.found.push(found);
        self.number += 1;
    }

    /// Whether the filters leave out this name below the root of the source.
    fn leaves_out(&mut self, spot: &Spot, shape: Shape) -> bool {
        let path = &spot.target[self.prefix_bytes..];
        let out = self.select.leaves_out(path, shape);
        self.excluded += u64::from(out);
        out
    }

    /// A name that is there and not offered. A sink that removes what the source does not have
    /// hears of it.
    fn skip(&mut self, target: Vec<u8>) {
        if self.settings.delete == Delete::Off || !path_is_safe(&target) {
            return;
        }
        if self.present.len() == OFFER_ENTRIES_MAX
            || self.present_bytes + target.len() > PRESENT_BYTES_MAX
        {
            self.tell_present();
        }
        self.present_bytes += target.len();
        self.present.push(target);
    }

    fn tell_present(&mut self) {
        self.present_bytes = 0;
        if !self.present.is_empty() {
            let present = std::mem::take(&mut self.present);
            self.say(WalkEvent::Present(present));
        }
    }

    fn flush(&mut self) {
        self.bytes = 0;
        if !self.found.is_empty() {
            let found = std::mem::take(&mut self.found);
            self.say(WalkEvent::Chunk(found));
        }
    }

    fn add_file(&mut self, real: &Path, name: Vec<u8>, meta: &Meta) {
        let parent = real.parent().unwrap_or(Path::new("/"));
        let in_parent = real.file_name().unwrap_or(OsStr::new("")).as_bytes().to_vec();
        let disk = match self.reach.disk(parent) {
            Ok(disk) => Arc::new(disk),
            Err(fault) => return self.unoffered(real, fault),
        };
        match At::find(&disk, &in_parent) {
            Ok(at) => {
                let real = real.to_path_buf();
                self.add_regular(Spot { disk, inside: in_parent, target: name, real }, &at, meta);
            }
            Err(errno) => self.failed("find", real, errno),
        }
    }

    fn attributes(&mut self, real: &Path, at: &At, meta: &Meta) -> Option<Arc<Attributes>> {
        let (uid, gid) = meta.owner();
        let mut all = Attributes { uid, gid, ..Attributes::default() };
        if !self.settings.archive {
            return self.settings.keeps_owners().then(|| Arc::new(all));
        }
        let why = match attributes::read(&at.path()) {
            Ok(xattrs) => {
                all.xattrs = xattrs;
                match all.bytes() <= ATTRIBUTES_BYTES_MAX {
                    true => return Some(Arc::new(all)),
                    false => "they are more than 32 KiB".to_string(),
                }
            }
            Err(errno) => std::io::Error::from(errno).to_string(),
        };
        all.xattrs.clear();
        let text = format!("'{}': extended attributes are not copied: {why}", real.display());
        self.say(WalkEvent::Skipped(text));
        Some(Arc::new(all))
    }
}

/// Where an object is read, and its name at the target.
#[derive(Clone, Debug)]
struct Spot {
    disk: Arc<Disk>,
    inside: Vec<u8>,
    target: Vec<u8>,
    real: PathBuf,
}

impl Spot {
    fn below(&self, name: &OsStr) -> Spot {
        Spot {
            disk: self.disk.clone(),
            inside: join(&self.inside, name.as_bytes()),
            target: join(&self.target, name.as_bytes()),
            real: self.real.join(name),
        }
    }
}

/// A directory that is being listed.
#[derive(Debug)]
struct Frame {
    listing: Listing,
    spot: Spot,
    /// The entry that is offered when all that is in it has been.
    leave: Entry,
    inode: (u64, u64),
}

/// The size of a file that does not report it, as those below `/proc`; files on a device do.
fn size_if_unsized(spot: &Spot, meta: &Meta) -> Result<Option<u64>, Fault> {
    match meta.may_lack_size() {
        true => spot.disk.size_if_unsized(&spot.inside),
        false => Ok(None),
    }
}

/// The bytes of a path as a name.
pub fn name_of(path: &[u8]) -> &OsStr {
    OsStr::from_bytes(path)
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        b"" => name.to_vec(),
        _ => [directory, b"/", name].concat(),
    }
}

fn entry_from(kind: EntryKind, path: Vec<u8>, link_target: Vec<u8>, meta: &Meta) -> Entry {
    let (mtime_seconds, mtime_nanos) = meta.mtime();
    Entry {
        kind,
        size: if kind == EntryKind::File { meta.size() } else { 0 },
        mtime_seconds,
        mtime_nanos,
        mode: meta.mode(),
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

/// False for what comes from a pipe or is generated: it has no time and no mode of its own, and
/// counts as the newest.
pub fn has_time(entry: &Entry) -> bool {
    !matches!(entry.kind, EntryKind::Pipe | EntryKind::Stretch)
}

/// The same time as a setting has it.
pub(crate) fn moment_of(entry: &Entry) -> Moment {
    Moment { seconds: entry.mtime_seconds, nanos: entry.mtime_nanos }
}

/// When an offered file was last changed.
pub(crate) fn mtime_of(entry: &Entry) -> Mtime {
    Mtime { seconds: entry.mtime_seconds, nanos: entry.mtime_nanos }
}

/// Bytes of names in one message: one more name and the counts fit it too.
const PRESENT_BYTES_MAX: usize = OFFER_BYTES_MAX;
