//! A mirror: once all has arrived, what is in the folders of the destination and not in those of
//! the source is removed.
//!
//! The sink notes a hash of each name that the source has, as it is offered. Nothing is removed
//! before every name is known and every object is in place, nor where one of them failed: so a run
//! that is killed at any moment has removed nothing that a complete one would have kept.

mod pass;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::io::volume::{StatusKind, Volume, show};
use crate::pump::sink::Target;
use crate::pump::sink::backup::Backup;
use crate::pump::sink::folding::without_case;
use crate::pump::source::names::hash_of;
use crate::pump::source::select::{Select, Shape};
use crate::wire::manifest::{Entry, EntryKind};
use base::fault::{Class, Fault};
use base::settings::{Delete, Overwrite, Settings};

pub use self::pass::{Pass, Removed, Step};

/// The mirror of a sink that makes one.
#[derive(Debug)]
pub struct Mirror {
    state: State,
    names: SourceNames,
    /// Roots below which the source has something; the last of them is the one of the moment.
    filled: Vec<Vec<u8>>,
    stays: Arc<Stays>,
    volume: Arc<dyn Volume>,
    /// Of this transfer's temporary names.
    tag: String,
    most: Option<u64>,
    is_dry: bool,
    /// Nothing is to be removed: two trees are compared.
    compares: bool,
    /// Objects of the source that are not here.
    lacking: u64,
    obstacles: Option<Arc<Obstacles>>,
}

/// How far a mirror has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The names of the source are being noted.
    Noting,
    /// What it does not have is being removed.
    Removing,
    Over,
}

/// What a mirror does once all has arrived.
#[derive(Debug)]
pub(crate) enum Due {
    Remove(Box<Pass>),
    /// Nothing, and why: something else has failed, which was reported.
    Nothing(String),
    /// Nothing, which is a failure of its own.
    Refused(Fault),
}

impl Mirror {
    /// `None` where nothing is to be removed.
    pub fn of(
        target: &Target,
        settings: &Settings,
        tag: &str,
        backup: Option<Arc<Backup>>,
    ) -> Result<Option<Mirror>, Fault> {
        let Some(volume) = target.volume().filter(|_| settings.delete != Delete::Off) else {
            return Ok(None);
        };
        let filters: &[String] = match settings.delete {
            Delete::Excluded | Delete::Off => &[],
            Delete::On => &settings.filters,
        };
        let select = Select::new(filters)?;
        let stays = Arc::new(Stays { select, roots: Mutex::default(), backup });
        let replaces = settings.overwrite != Overwrite::Never;
        let obstacles = replaces.then(|| {
            let counts = settings.delete_max.is_some();
            let (volume, stays) = (volume.clone(), stays.clone());
            Arc::new(Obstacles { volume, stays, counts, removed: Mutex::default() })
        });
        Ok(Some(Mirror {
            state: State::Noting,
            names: SourceNames::new(settings.memory_bytes, volume.folds_case()),
            filled: Vec::new(),
            stays,
            volume: volume.clone(),
            tag: tag.to_string(),
            most: settings.delete_max,
            is_dry: settings.dry_run,
            compares: settings.compare,
            lacking: 0,
            obstacles,
        }))
    }

    /// Notes what the source offers.
    pub(crate) fn note(&mut self, entries: &[Entry]) {
        for entry in entries {
            if !entry.is_root {
                self.fill(&entry.path);
            }
            match entry.kind {
                EntryKind::Directory => {
                    self.names.note(&entry.path, Noted::Folder);
                    self.stays.lock().begun.extend(entry.is_root.then(|| entry.path.clone()));
                }
                EntryKind::Leave => {
                    self.stays.lock().left.extend(entry.is_root.then(|| entry.path.clone()));
                }
                _ => self.names.note(&entry.path, Noted::Other),
            }
        }
    }

    /// Notes what the source has and does not offer.
    pub(crate) fn note_present(&mut self, paths: &[Vec<u8>]) {
        for path in paths {
            self.fill(path);
            self.names.note(path, Noted::Present);
        }
    }

    /// The source has something at this path, which is no root.
    fn fill(&mut self, path: &[u8]) {
        if self.filled.last().is_some_and(|root| is_below(path, root) && !root.is_empty()) {
            return; // nearly always
        }
        let begun = &self.stays.lock().begun;
        let root = begun.iter().rev().find(|root| is_below(path, root));
        let root = root.map_or(&b""[..], Vec::as_slice);
        if !self.filled.iter().any(|filled| filled == root) {
            self.filled.push(root.to_vec());
        }
    }

    /// Roots of the source below which it has nothing, although it was asked to tell all: what is
    /// mounted there may be away.
    fn empty_roots(&self) -> Vec<Vec<u8>> {
        let mut empty = self.stays.roots();
        empty.retain(|root| !self.filled.contains(root));
        empty
    }

    /// An object of the source is not here, or not as it is there.
    pub(crate) fn note_lacking(&mut self) {
        self.lacking += 1;
    }

    /// What makes way for objects of another kind, where that is allowed.
    pub fn obstacles(&self) -> Option<&Arc<Obstacles>> {
        self.obstacles.as_ref()
    }

    /// True for a folder that another source of this copy has, too.
    pub(crate) fn is_folder_of_source(&self, path: &[u8]) -> bool {
        // Within one source a name is offered once: only a second one can bring it again.
        !self.stays.lock().left.is_empty() && self.names.has_so_far(path, Noted::Folder)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    pub(crate) fn end(&mut self) {
        self.state = State::Over;
    }

    /// All has arrived, or failed: what is to be done, once.
    pub(crate) fn due(&mut self) -> Option<Due> {
        if self.state != State::Noting {
            return None;
        }
        self.state = State::Removing;
        if self.lacking > 0 && self.compares {
            let text = "what is only in B is not told, as not all of A could be looked at";
            return Some(Due::Nothing(text.to_string()));
        }
        if self.lacking > 0 {
            return Some(Due::Nothing(format!(
                "nothing is deleted in '{}', as not all of the source is there ({} not copied): \
                 run the same command again once that is settled",
                show(&*self.volume, b""),
                self.lacking
            )));
        }
        let mut names = std::mem::take(&mut self.names);
        if !names.complete() {
            let text = format!(
                "nothing is deleted in '{}': to know {} names of the source takes more than \
                 --memory allows: raise it",
                show(&*self.volume, b""),
                names.count
            );
            return Some(Due::Refused(Fault::new(Class::SomeFailed, text)));
        }
        Some(Due::Remove(Box::new(Pass::new(self, names))))
    }
}

/// The names that a source has: eight bytes of memory for each. Two names with one hash only keep
/// what could be removed.
#[derive(Debug, Default)]
pub(crate) struct SourceNames {
    /// 62 bits of the hash of a path, and in the lowest two what it is.
    hashes: Vec<u64>,
    count: u64,
    most: u64,
    folds_case: bool,
}

/// What a source has under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Noted {
    Other,
    /// What is in it is known, too.
    Folder,
    /// It is not offered.
    Present,
}

impl SourceNames {
    fn new(memory_bytes: u64, folds_case: bool) -> SourceNames {
        SourceNames { hashes: Vec::new(), count: 0, most: memory_bytes / 8, folds_case }
    }

    /// By what a name is known: where case does not count, without it.
    fn key(&self, path: &[u8], noted: Noted) -> u64 {
        match self.folds_case {
            true => key(&without_case(path), noted),
            false => key(path, noted),
        }
    }

    fn note(&mut self, path: &[u8], noted: Noted) {
        self.count += 1;
        if self.count <= self.most {
            self.hashes.push(self.key(path, noted));
        }
    }

    /// A slow search while names are still being noted.
    fn has_so_far(&self, path: &[u8], noted: Noted) -> bool {
        self.hashes.contains(&self.key(path, noted))
    }

    /// Every name has been noted. False where there were too many.
    fn complete(&mut self) -> bool {
        self.hashes.sort_unstable();
        self.hashes.dedup();
        self.count <= self.most
    }

    pub(crate) fn find(&self, path: &[u8]) -> Option<Noted> {
        let has = |noted| self.hashes.binary_search(&self.key(path, noted)).is_ok();
        [Noted::Folder, Noted::Other, Noted::Present].into_iter().find(|noted| has(*noted))
    }
}

/// True for what is in this folder, at any depth.
fn is_below(path: &[u8], folder: &[u8]) -> bool {
    folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with(b"/"))
}

fn key(path: &[u8], noted: Noted) -> u64 {
    (hash_of(path) as u64) & !3 | noted as u64
}

/// What stays although the source does not have it: what the filters leave out, and backups.
#[derive(Debug)]
pub(crate) struct Stays {
    select: Select,
    /// Filters count from them.
    roots: Mutex<Roots>,
    /// It stays too, and takes in what goes.
    backup: Option<Arc<Backup>>,
}

/// The folders that were named as sources, by their names here; no name where the contents are
/// copied.
#[derive(Debug, Default)]
pub(crate) struct Roots {
    /// Those with a name, of which something has been offered.
    begun: Vec<Vec<u8>>,
    /// Those of which everything has been offered.
    left: Vec<Vec<u8>>,
}

impl Stays {
    /// Takes a name from its folder: it goes, or is kept in the backup.
    pub(crate) fn take(
        &self,
        volume: &dyn Volume,
        path: &[u8],
        kind: StatusKind,
    ) -> Result<(), Fault> {
        match (&self.backup, kind) {
            (None, _) | (_, StatusKind::Directory) => volume.clear(path, kind),
            (Some(backup), kind) => backup.take(path, kind),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Roots> {
        self.roots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folders that are mirrored.
    pub(crate) fn roots(&self) -> Vec<Vec<u8>> {
        self.lock().left.clone()
    }

    /// Whether the filters leave out this name. The folders above it have been asked about.
    fn has(&self, path: &[u8], kind: StatusKind) -> bool {
        if self.backup.as_ref().is_some_and(|backup| backup.has(path)) {
            return true;
        }
        let shape = match kind {
            StatusKind::Directory => Shape::Folder,
            StatusKind::File | StatusKind::Link | StatusKind::Special => Shape::Other,
        };
        let roots = self.lock();
        let below = |root: &Vec<u8>| path.strip_prefix(&root[..])?.strip_prefix(b"/");
        let mut has_name = false;
        for inside in roots.begun.iter().filter_map(below) {
            has_name = true;
            if self.select.leaves_out(inside, shape) {
                return true;
            }
        }
        // Or it is among the contents of a source, which is said when all have been offered.
        let is_of_contents = !has_name || roots.left.iter().any(Vec::is_empty);
        is_of_contents && self.select.leaves_out(path, shape)
    }
}

/// What has the name of an object of the source and is of another kind. A folder is removed with
/// all in it when that object is complete.
#[derive(Debug)]
pub struct Obstacles {
    volume: Arc<dyn Volume>,
    stays: Arc<Stays>,
    /// Removals are counted before any is made: then no folder is removed on the way.
    counts: bool,
    removed: Mutex<Vec<Vec<u8>>>,
}

impl Obstacles {
    /// Whether what is there may go. The fault says what to do.
    pub(crate) fn check(&self, path: &[u8], kind: StatusKind) -> Result<(), Fault> {
        if kind != StatusKind::Directory || !self.counts {
            return Ok(());
        }
        let mut is_empty = true;
        self.volume.names_in(path, &mut |_, _| is_empty = false)?;
        match is_empty {
            true => Ok(()),
            false => Err(Fault::new(
                Class::Local,
                format!(
                    "'{}' is a directory in the way of what is no directory at the source, and \
                     with --max-delete none is removed before all is counted: remove it first",
                    show(&*self.volume, path)
                ),
            )),
        }
    }

    /// Removes what has this name, so that something of another kind can have it.
    pub(crate) fn remove(&self, path: &[u8]) -> Result<(), Fault> {
        let Some(there) = self.volume.status(path)? else { return Ok(()) };
        match there.kind {
            StatusKind::Directory => {
                let removed = pass::remove_tree(&self.volume, &self.stays, path)?;
                self.removed.lock().unwrap_or_else(PoisonError::into_inner).extend(removed);
                Ok(())
            }
            kind => self.stays.take(&*self.volume, path, kind),
        }
    }

    /// Notes what `remove` would remove.
    pub(crate) fn would_remove(&self, path: &[u8]) -> Result<(), Fault> {
        let there = self.volume.status(path)?;
        if there.is_some_and(|there| there.kind == StatusKind::Directory) {
            let told = pass::tell_tree(&self.volume, &self.stays, path)?;
            self.removed.lock().unwrap_or_else(PoisonError::into_inner).extend(told);
        }
        Ok(())
    }

    /// Takes away what has the name of a folder and is none.
    pub(crate) fn take(&self, path: &[u8], kind: StatusKind) -> Result<(), Fault> {
        self.check_for_folder(path)?;
        self.stays.take(&*self.volume, path, kind)?;
        self.note(path);
        Ok(())
    }

    /// Notes what `take` would.
    pub(crate) fn would_take(&self, path: &[u8]) -> Result<(), Fault> {
        self.check_for_folder(path)?;
        self.note(path);
        Ok(())
    }

    fn check_for_folder(&self, path: &[u8]) -> Result<(), Fault> {
        if !self.counts {
            return Ok(());
        }
        let text = format!(
            "'{}' is in the way of a folder of the source, and with --max-delete none is removed \
             before all is counted: remove it first",
            show(&*self.volume, path)
        );
        Err(Fault::new(Class::Local, text))
    }

    fn note(&self, path: &[u8]) {
        self.removed.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_vec());
    }

    /// Names that were removed and not told yet.
    pub(crate) fn take_removed(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *self.removed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests;
