//! What a source may offer: in a pull, only what was asked for. A pure value, so that a table can
//! test every case of it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::pump::source::limits::Limits;
use crate::pump::source::names::{Names, hash_of};
use crate::pump::source::pattern::{Pattern, is_pattern};
use crate::pump::source::safe_links::leads_out;
use crate::pump::source::select::{Select, Shape};
use crate::pump::source::walk::{made_object, means_contents, moment_of};
use crate::wire::manifest::{Entry, EntryKind};
use crate::wire::message::Origin;
use base::fault::{Class, Fault};
use base::job::{FileRange, Job, Location};
use base::settings::Links;

/// What a sink lets a source offer.
#[derive(Clone, Debug)]
pub enum Expected {
    /// The source is on this host, or its host drives: it decides what is copied.
    Anything,
    /// This host drives, and the source is on another: what was typed here, and nothing else.
    Only(Box<Asked>),
}

/// What was typed for a far source.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The last names of sources that are copied under them.
    named: BTreeSet<Vec<u8>>,
    /// Those with wildcards, which the far side expands.
    patterns: Vec<Pattern>,
    /// Some source has wildcards: how many it stands for is the far side's to say.
    open_ended: bool,
    /// Some source is `SRC/`, of which only the content is copied.
    contents: bool,
    listed: Option<Listed>,
    /// A generated source: the one object that it comes as.
    made: Option<Entry>,
    /// How many sources there are, and what the far side says they come to.
    sources: usize,
    single: bool,
    recursive: bool,
    links: Links,
    select: Select,
    limits: Limits,
    range: Option<AskedRange>,
}

/// What of the only file is asked for.
#[derive(Clone, Debug)]
struct AskedRange {
    range: FileRange,
    /// Where the file is, or the folder that it is below.
    source: PathBuf,
}

/// The names of `--files-from`, and the folders on the way to them.
#[derive(Clone, Debug)]
struct Listed {
    names: Arc<Names>,
    on_the_way: BTreeSet<u128>,
}

impl Expected {
    /// What a far source of this job may offer. Its description of itself must fit what was typed.
    pub fn of(job: &Job, origin: Origin, names: Option<&Arc<Names>>) -> Result<Expected, Fault> {
        let mut asked = Asked {
            named: BTreeSet::new(),
            patterns: Vec::new(),
            open_ended: false,
            contents: false,
            listed: names.map(Listed::of).transpose()?,
            made: None,
            sources: job.sources.len(),
            single: origin.single,
            recursive: job.settings.recursive,
            links: job.settings.links,
            select: Select::new(&job.settings.filters)?,
            limits: Limits::of(&job.settings),
            range: AskedRange::of(job),
        };
        let is_listed = asked.listed.is_some();
        for place in job.sources.iter().filter(|_| !is_listed) {
            match place {
                Location::Path(path) => asked.add(path),
                made => asked.made = made_object(made),
            }
        }
        match asked.fits(origin) {
            true => Ok(Expected::Only(Box::new(asked))),
            false => Err(Fault::peer(
                "the far side says that the source is something else than what was asked for",
            )),
        }
    }

    /// What of the only file is wanted, where that is not all of it.
    pub(crate) fn range(&self) -> Option<&FileRange> {
        match self {
            Expected::Only(asked) => asked.range.as_ref().map(|asked| &asked.range),
            Expected::Anything => None,
        }
    }

    /// Why nothing of a file is taken of which a range was asked for: it is another by now.
    pub(crate) fn changed(&self, entry: &Entry) -> Option<Fault> {
        let Expected::Only(asked) = self else { return None };
        let AskedRange { range, source } = asked.range.as_ref()?;
        if matches!(entry.kind, EntryKind::Directory | EntryKind::Leave) {
            return None;
        }
        let found = (entry.kind, entry.size, moment_of(entry));
        if found == (EntryKind::File, range.of_size, range.of_mtime) {
            return None;
        }
        let path = match &asked.listed {
            Some(_) => source.join(OsStr::from_bytes(&entry.path)),
            None => source.clone(),
        };
        let text = format!("'{}' changed after it was planned: copy it again", path.display());
        Some(Fault::new(Class::SourceChanged, text))
    }

    /// Checks an offer before any of it is used.
    pub fn check(&self, first: u64, entries: &[Entry]) -> Result<(), Fault> {
        let Expected::Only(asked) = self else { return Ok(()) };
        if asked.single && first + entries.len() as u64 > 1 {
            return Err(Fault::peer("the far side offered several objects where it said one"));
        }
        match entries.iter().find(|entry| !asked.allows(entry)) {
            None => Ok(()),
            Some(entry) => Err(Fault::peer(format!(
                "the far side offered '{}' ({}), which was not asked for: nothing of that offer \
                 was written; do not trust that host before you know why",
                entry.path.escape_ascii(),
                what(entry.kind)
            ))),
        }
    }
}

impl AskedRange {
    fn of(job: &Job) -> Option<AskedRange> {
        let source = match job.sources.first() {
            Some(Location::Path(path)) => path.clone(),
            _ => PathBuf::new(),
        };
        job.range.clone().map(|range| AskedRange { range, source })
    }
}

impl Asked {
    /// Adds a source as it was typed. A name with wildcards stands for itself too.
    fn add(&mut self, path: &Path) {
        self.open_ended |= is_pattern(path);
        match path.file_name() {
            _ if means_contents(path) => self.contents = true,
            None => {}
            Some(name) => {
                self.named.insert(name.as_bytes().to_vec());
                // What is no pattern can still be a name.
                let pattern = Pattern::new(name.as_bytes()).ok();
                self.patterns.extend(pattern.filter(|_| is_pattern(Path::new(name))));
            }
        }
    }

    /// Whether the far side's description of its sources can be true.
    fn fits(&self, origin: Origin) -> bool {
        let endless = self.made.as_ref().is_some_and(|made| made.kind == EntryKind::Pipe);
        let single = match self.sources {
            _ if self.listed.is_some() || self.contents => Some(false),
            1 if self.open_ended => None,
            1 if self.made.is_some() || !self.recursive => Some(true),
            1 => None, // a file or a folder: both were asked for
            _ => Some(false),
        };
        origin.endless == endless && single.is_none_or(|single| single == origin.single)
    }

    fn allows(&self, entry: &Entry) -> bool {
        match entry.kind {
            // What is in it and was not offered may be deleted.
            _ if entry.is_root && !self.is_root(&entry.path) => false,
            EntryKind::Stretch | EntryKind::Pipe => self.made.as_ref().is_some_and(|made| {
                (made.kind, made.size, &made.path) == (entry.kind, entry.size, &entry.path)
            }),
            EntryKind::Link if !self.allows_link(entry) => false,
            EntryKind::Link if self.limits.leave_out_link(moment_of(entry)) => false,
            EntryKind::File if self.limits.leave_out_file(entry.size, moment_of(entry)) => false,
            EntryKind::HardLink => {
                self.allows_name(&entry.path, entry.kind)
                    && self.allows_name(&entry.link_target, EntryKind::File)
            }
            kind => self.allows_name(&entry.path, kind),
        }
    }

    /// Whether a folder is one that was typed as a source.
    fn is_root(&self, path: &[u8]) -> bool {
        let is_typed = || {
            let matches = |pattern: &Pattern| pattern.matches(path);
            self.named.contains(path) || self.patterns.iter().any(matches)
        };
        self.listed.is_none()
            && (self.contents && path.is_empty() || !path.contains(&b'/') && is_typed())
    }

    fn allows_link(&self, entry: &Entry) -> bool {
        match self.links {
            Links::Copy => true,
            Links::Safe => !leads_out(&entry.path, &entry.link_target),
            Links::Follow | Links::Skip => false,
        }
    }

    fn allows_name(&self, path: &[u8], kind: EntryKind) -> bool {
        if let Some(listed) = &self.listed {
            return listed.allows(path, kind, self.recursive) && !self.leaves_out(path, kind);
        }
        if self.contents && self.recursive {
            let root = path.is_empty() && kind == EntryKind::Leave;
            if root || (!path.is_empty() && !self.leaves_out(path, kind)) {
                return true;
            }
        }
        let end = path.iter().position(|byte| *byte == b'/');
        let name = &path[..end.unwrap_or(path.len())];
        let matches = |pattern: &Pattern| pattern.matches(name);
        if !self.named.contains(name) && !self.patterns.iter().any(matches) {
            return false;
        }
        match end {
            None => self.allows_source(kind),
            // Only a folder has something below it.
            Some(end) => {
                self.allows_source(EntryKind::Directory) && !self.leaves_out(&path[end + 1..], kind)
            }
        }
    }

    /// The kinds that a source may have which is copied under its name. A typed link is followed.
    fn allows_source(&self, kind: EntryKind) -> bool {
        match kind {
            EntryKind::File | EntryKind::HardLink => {
                self.sources > 1 || self.open_ended || self.single
            }
            EntryKind::Directory | EntryKind::Leave => self.recursive && !self.single,
            EntryKind::Link | EntryKind::Stretch | EntryKind::Pipe => false,
        }
    }

    /// Whether the filters leave out this name or a folder above it. Where links are followed a
    /// folder may have been found as a link, which patterns for folders do not match.
    fn leaves_out(&self, path: &[u8], kind: EntryKind) -> bool {
        let shapes: &[Shape] = match (self.links, kind) {
            (Links::Follow, _) => &[Shape::Folder, Shape::Other],
            (_, EntryKind::Directory | EntryKind::Leave) => &[Shape::Folder],
            _ => &[Shape::Other],
        };
        let above: &[Shape] = match self.links {
            Links::Follow => shapes,
            Links::Copy | Links::Skip | Links::Safe => &[Shape::Folder],
        };
        let out = |path: &[u8], shapes: &[Shape]| {
            shapes.iter().all(|shape| self.select.leaves_out(path, *shape))
        };
        out(path, shapes) || above_of(path).any(|folder| out(folder, above))
    }
}

impl Listed {
    fn of(names: &Arc<Names>) -> Result<Listed, Fault> {
        let mut on_the_way = BTreeSet::new();
        names.each(&mut |name| {
            on_the_way.extend(above_of(name).map(hash_of));
            true
        })?;
        Ok(Listed { names: names.clone(), on_the_way })
    }

    fn allows(&self, path: &[u8], kind: EntryKind, recursive: bool) -> bool {
        let folder = matches!(kind, EntryKind::Directory | EntryKind::Leave);
        let named = self.names.contains(path);
        (named && (!folder || recursive))
            || (folder && self.on_the_way.contains(&hash_of(path)))
            || (recursive && above_of(path).any(|folder| self.names.contains(folder)))
    }
}

/// The folders that a name is in, the outermost first.
fn above_of(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.map(|(at, _)| &path[..at])
}

fn what(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "a file",
        EntryKind::Directory | EntryKind::Leave => "a folder",
        EntryKind::Link => "a symbolic link",
        EntryKind::HardLink => "a hard link",
        EntryKind::Stretch | EntryKind::Pipe => "generated data",
    }
}

#[cfg(test)]
mod tests;
