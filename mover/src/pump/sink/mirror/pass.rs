//! The walk through the destination that removes what the source does not have, a step at a time:
//! whoever drives it can stop between two steps.

use std::sync::Arc;
use std::vec::IntoIter;

use crate::io::volume::{StatusKind, Volume, show};
use crate::pump::sink::clean::{is_ours, is_part_of};
use crate::pump::sink::mirror::{Mirror, Noted, SourceNames, Stays, is_below};
use base::fault::{Class, Fault};

/// A walk that removes, or only counts or tells what it would remove.
#[derive(Debug)]
pub struct Pass {
    volume: Arc<dyn Volume>,
    names: SourceNames,
    stays: Arc<Stays>,
    tag: String,
    /// The folders that are mirrored, and those that are not walked yet.
    all_roots: Vec<Vec<u8>>,
    roots: IntoIter<Vec<u8>>,
    /// From the outermost to the innermost.
    open: Vec<Frame>,
    doing: Doing,
    /// What follows when all is counted.
    then: Doing,
    /// Where there is more, nothing is removed.
    most: Option<u64>,
    found: u64,
    /// Folders that are empty at the source: from them nothing is removed unless `most` was said.
    empty_roots: Vec<Vec<u8>>,
    /// All folders that were named as sources.
    all_named: Vec<Vec<u8>>,
    found_in_empty: u64,
}

/// What is done with a name that the source does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Count,
    Remove,
    /// What this says is what `Remove` would do.
    Tell,
}

/// A folder that is walked.
#[derive(Debug)]
struct Frame {
    path: Vec<u8>,
    whose: Whose,
    /// What is left in it to look at: names that go, and folders.
    names: IntoIter<(Vec<u8>, Fate)>,
    /// Something in it stays.
    is_needed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// The source has it, too.
    Both,
    /// It goes when it is empty.
    Stranger,
}

/// What becomes of a name at the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stays,
    /// A folder that the source has, too.
    Entered,
    /// A part of this transfer that nobody needs any more: it is no name of the user's.
    Swept,
    Goes(StatusKind),
}

/// What a step has done.
#[derive(Debug, Default)]
pub struct Removed {
    pub paths: Vec<Vec<u8>>,
    /// What could not be removed. An empty path: nothing is, or nothing more.
    pub failed: Vec<(Vec<u8>, Fault)>,
    pub warnings: Vec<String>,
}

/// A step, and the walk where there is more to do.
#[derive(Debug)]
pub struct Step {
    pub removed: Removed,
    pub rest: Option<Box<Pass>>,
}

impl Pass {
    pub(super) fn new(mirror: &Mirror, names: SourceNames) -> Pass {
        let mut all_roots = mirror.stays.roots();
        all_roots.sort_unstable();
        all_roots.dedup();
        if all_roots.first().is_some_and(Vec::is_empty) {
            all_roots.truncate(1); // the others are in it
        }
        let then = if mirror.is_dry { Doing::Tell } else { Doing::Remove };
        let empty_roots = if mirror.most.is_some() { Vec::new() } else { mirror.empty_roots() };
        let counts_first = mirror.most.is_some() || !empty_roots.is_empty();
        Pass {
            volume: mirror.volume.clone(),
            names,
            stays: mirror.stays.clone(),
            tag: mirror.tag.clone(),
            roots: all_roots.clone().into_iter(),
            all_roots,
            open: Vec::new(),
            doing: if counts_first { Doing::Count } else { then },
            then,
            most: mirror.most,
            found: 0,
            empty_roots,
            all_named: mirror.stays.roots(),
            found_in_empty: 0,
        }
    }

    /// Goes on for some names.
    pub fn step(mut self: Box<Self>) -> Step {
        let mut removed = Removed::default();
        for _ in 0..STEP_NAMES {
            if !self.advance(&mut removed) {
                return Step { removed, rest: None };
            }
        }
        Step { removed, rest: Some(self) }
    }

    /// Looks at one name, or at the next folder. False at the end.
    fn advance(&mut self, removed: &mut Removed) -> bool {
        let Some(frame) = self.open.last_mut() else { return self.next_root(removed) };
        let Some((name, fate)) = frame.names.next() else {
            self.leave(removed);
            return true;
        };
        let path = join(&frame.path, &name);
        match fate {
            Fate::Stays => {}
            Fate::Entered => self.enter(path, Whose::Both, removed),
            Fate::Goes(StatusKind::Directory) => self.enter(path, Whose::Stranger, removed),
            Fate::Goes(kind) => self.remove(path, kind, removed),
            Fate::Swept if self.doing == Doing::Remove => {
                // One that stays is found by 'clean'.
                let _ = self.volume.clear(&path, StatusKind::File);
            }
            Fate::Swept => {}
        }
        !removed.failed.iter().any(|(_, fault)| fault.ends_transfer())
    }

    fn next_root(&mut self, removed: &mut Removed) -> bool {
        if let Some(root) = self.roots.next() {
            self.enter(root, Whose::Both, removed);
            return true;
        }
        if self.doing != Doing::Count {
            return false;
        }
        if let Some(fault) = self.too_many().or_else(|| self.nothing_there()) {
            removed.failed.push((Vec::new(), fault));
            return false;
        }
        (self.doing, self.found) = (self.then, 0);
        self.roots = self.all_roots.clone().into_iter();
        true
    }

    fn too_many(&self) -> Option<Fault> {
        let most = self.most.filter(|most| self.found > *most)?;
        let found = match self.found {
            1 => "1 name".to_string(),
            found => format!("{found} names"),
        };
        let text = format!(
            "not at the source, and in '{}': {found}; --max-delete allows {most}: nothing is \
             deleted; see which by --dry-run, and raise --max-delete",
            show(&*self.volume, b"")
        );
        Some(Fault::new(Class::SomeFailed, text))
    }

    fn nothing_there(&self) -> Option<Fault> {
        let found = Some(self.found_in_empty).filter(|found| *found > 0)?;
        let root = self.empty_roots.first()?;
        let text = format!(
            "nothing is deleted in '{}': the source has nothing for it, and it holds {found} \
             names; see whether what should be mounted at the source is there, or say how many \
             may go by --max-delete",
            show(&*self.volume, root),
        );
        Some(Fault::new(Class::SomeFailed, text))
    }

    fn enter(&mut self, path: Vec<u8>, whose: Whose, removed: &mut Removed) {
        let (mut names, mut is_needed, mut is_held) = (Vec::new(), false, false);
        let listed = self.volume.names_in(&path, &mut |name, kind| {
            let path = join(&path, name);
            match self.fate(whose, &path, kind) {
                Fate::Stays => {
                    is_needed = true;
                    is_held |= is_ours(&path);
                }
                fate => names.push((name.to_vec(), fate)),
            }
        });
        if is_held && whose == Whose::Stranger && self.doing != Doing::Count {
            removed.warnings.push(format!(
                "'{}' is not deleted: it holds what another copy has begun; 'datapump clean' \
                 removes what no running copy needs",
                show(&*self.volume, &path)
            ));
        }
        match listed {
            Ok(()) => {
                let names = names.into_iter();
                self.open.push(Frame { path, whose, names, is_needed });
            }
            Err(fault) => self.fail(path, fault, removed),
        }
    }

    fn fate(&self, whose: Whose, path: &[u8], kind: StatusKind) -> Fate {
        if kind == StatusKind::File && is_part_of(path, &self.tag) {
            return Fate::Swept;
        }
        if is_ours(path) {
            return Fate::Stays;
        }
        match (self.names.find(path), kind) {
            (Some(Noted::Folder), StatusKind::Directory) if whose == Whose::Both => Fate::Entered,
            (Some(_), _) => Fate::Stays,
            (None, _) if self.stays.has(path, kind) => Fate::Stays,
            (None, _) => Fate::Goes(kind),
        }
    }

    /// All in a folder has been looked at.
    fn leave(&mut self, removed: &mut Removed) {
        let Some(frame) = self.open.pop() else { return };
        match (frame.whose, frame.is_needed) {
            (Whose::Both, _) => {}
            (Whose::Stranger, true) => self.need(),
            (Whose::Stranger, false) => self.remove(frame.path, StatusKind::Directory, removed),
        }
    }

    fn remove(&mut self, path: Vec<u8>, kind: StatusKind, removed: &mut Removed) {
        self.found += 1;
        let done = match self.doing {
            Doing::Count => {
                // In one of the roots with a name, or in the one that holds them.
                let is_empty = |root: &Vec<u8>| is_below(&path, root) && !root.is_empty();
                let is_of_named = self.all_named.iter().any(is_empty);
                let found = match is_of_named {
                    true => self.empty_roots.iter().any(is_empty),
                    false => self.empty_roots.iter().any(Vec::is_empty),
                };
                self.found_in_empty += u64::from(found);
                return;
            }
            Doing::Tell => Ok(()),
            // There are more than were counted.
            Doing::Remove => match self.too_many() {
                Some(fault) => Err(fault),
                None => self.stays.take(&*self.volume, &path, kind),
            },
        };
        match done {
            Ok(()) => removed.paths.push(path),
            Err(fault) => self.fail(path, fault, removed),
        }
    }

    fn fail(&mut self, path: Vec<u8>, fault: Fault, removed: &mut Removed) {
        self.need();
        if self.doing != Doing::Count {
            removed.failed.push((path, fault));
        }
    }

    /// The innermost open folder stays.
    fn need(&mut self) {
        if let Some(around) = self.open.last_mut() {
            around.is_needed = true;
        }
    }
}

/// Removes a folder with all in it, if nothing in it stays. Returns what was removed.
pub(super) fn remove_tree(
    volume: &Arc<dyn Volume>,
    stays: &Arc<Stays>,
    path: &[u8],
) -> Result<Vec<Vec<u8>>, Fault> {
    tell_tree(volume, stays, path)?;
    walk_tree(volume, stays, path, Doing::Remove)
}

/// What that would remove; an error where something in it stays.
pub(super) fn tell_tree(
    volume: &Arc<dyn Volume>,
    stays: &Arc<Stays>,
    path: &[u8],
) -> Result<Vec<Vec<u8>>, Fault> {
    let told = walk_tree(volume, stays, path, Doing::Tell)?;
    // The folder itself is the last that goes.
    if told.last().is_none_or(|last| last != path) {
        let text = format!(
            "'{}' is a directory here and none at the source, and something in it stays: what \
             filters leave out, or what another copy has begun; remove it first",
            show(&**volume, path)
        );
        return Err(Fault::new(Class::Local, text));
    }
    Ok(told)
}

fn walk_tree(
    volume: &Arc<dyn Volume>,
    stays: &Arc<Stays>,
    path: &[u8],
    doing: Doing,
) -> Result<Vec<Vec<u8>>, Fault> {
    let mut pass = Pass {
        volume: volume.clone(),
        names: SourceNames::default(),
        stays: stays.clone(),
        tag: String::new(),
        all_roots: Vec::new(),
        roots: Vec::new().into_iter(),
        open: Vec::new(),
        doing,
        then: doing,
        most: None,
        found: 0,
        empty_roots: Vec::new(),
        all_named: Vec::new(),
        found_in_empty: 0,
    };
    let mut removed = Removed::default();
    pass.enter(path.to_vec(), Whose::Stranger, &mut removed);
    while pass.advance(&mut removed) {}
    match removed.failed.pop() {
        Some((_, fault)) => Err(fault),
        None => Ok(removed.paths),
    }
}

fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    match folder {
        b"" => name.to_vec(),
        _ => [folder, b"/", name].concat(),
    }
}

/// Names that one step looks at.
const STEP_NAMES: usize = 512;
