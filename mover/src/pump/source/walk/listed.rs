//! What a list of names chooses below one folder, with the folders on the way to it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::io::beneath::{Folder, Links as On};
use crate::io::disk::Disk;
use crate::pump::source::names::Names;
use crate::pump::source::select::Shape;
use crate::pump::source::walk::listing::{At, Meta};
use crate::pump::source::walk::{Found, Offers, Spot, entry_from, name_of};
use crate::wire::manifest::EntryKind;
use base::fault::{Class, Fault};
use base::settings::Links;

/// The names below a source that are copied, and no others.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub names: Arc<Names>,
    pub folders: Folders,
}

/// What is done with a folder that a list names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Folders {
    /// It is copied with its content.
    Copied,
    Refused,
}

/// The source folder of a list, and what has been offered on the way to its names.
struct Below<'a> {
    listed: &'a Listed,
    disk: Arc<Disk>,
    root: PathBuf,
    /// They are left when everything has been offered, the deepest first.
    on_the_way: BTreeSet<Vec<u8>>,
}

impl Offers<'_> {
    /// Adds what a list names, with the folders on the way to it.
    pub(super) fn add_listed(&mut self, root: &Path, listed: &Listed) {
        let disk = match self.reach.disk(root) {
            Ok(disk) => Arc::new(disk),
            Err(fault) => return self.unoffered(root, fault),
        };
        let root = root.to_path_buf();
        let mut below = Below { listed, disk, root, on_the_way: BTreeSet::new() };
        let read = listed.names.each(&mut |name| {
            self.add_name(&mut below, name);
            self.going
        });
        if let Err(fault) = read {
            self.unoffered(&below.root, fault);
        }
        for folder in below.on_the_way.iter().rev() {
            if !self.going {
                return;
            }
            self.leave_on_the_way(&below, folder);
        }
    }

    fn add_name(&mut self, below: &mut Below, name: &[u8]) {
        if self.comes_with_another(below, name) {
            return;
        }
        let real = below.root.join(name_of(name));
        // A listed name is resolved beneath the source folder: no link on the way leads out of it.
        let found = At::find(&below.disk, name).and_then(|at| Ok((at.meta()?, at)));
        let (meta, at) = match found {
            Ok(found) => found,
            Err(errno) => return self.failed("look at", &real, errno),
        };
        let shape = if meta.is_dir() { Shape::Folder } else { Shape::Other };
        if self.select.leaves_out_with_parents(name, shape) {
            self.excluded += 1;
            return;
        }
        let followed = self.settings.links == Links::Follow && self.is_folder(&real);
        if (meta.is_dir() || followed) && below.listed.folders == Folders::Refused {
            let text =
                format!("'{}' is a directory: -r copies it with all that is in it", real.display());
            return self.unoffered(&real, Fault::new(Class::Local, text));
        }
        if let Err(fault) = self.add_folders_to(below, name) {
            return self.unoffered(&real, fault);
        }
        let disk = below.disk.clone();
        let spot = Spot { disk, inside: name.to_vec(), target: name.to_vec(), real };
        let mut open = Vec::new();
        self.add_found(spot, &at, &meta, &mut open);
        self.add_open(&mut open);
    }

    /// True for a name in a folder that the list names too: it is copied with that folder.
    fn comes_with_another(&self, below: &Below, name: &[u8]) -> bool {
        below.listed.folders == Folders::Copied
            && parents(name).any(|folder| {
                let is_entered = || match self.settings.links {
                    Links::Follow => self.is_folder(&below.root.join(name_of(folder))),
                    Links::Copy | Links::Skip | Links::Safe => {
                        let meta = At::find(&below.disk, folder).and_then(|at| at.meta());
                        meta.is_ok_and(|meta| meta.is_dir())
                    }
                };
                below.listed.names.contains(folder) && is_entered()
            })
    }

    /// True for a folder, and for a link to one.
    fn is_folder(&self, path: &Path) -> bool {
        Meta::of_path(path, &self.reach).is_ok_and(|meta| meta.is_dir())
    }

    /// Offers the folders above a name that have not been offered.
    fn add_folders_to(&mut self, below: &mut Below, name: &[u8]) -> Result<(), Fault> {
        for folder in parents(name) {
            if below.on_the_way.contains(folder) {
                continue;
            }
            let (_, meta) = below.open(folder)?;
            let entry = entry_from(EntryKind::Directory, folder.to_vec(), Vec::new(), &meta);
            self.add(Found { entry, from: None });
            below.on_the_way.insert(folder.to_vec());
        }
        Ok(())
    }

    fn leave_on_the_way(&mut self, below: &Below, folder: &[u8]) {
        let real = below.root.join(name_of(folder));
        let (opened, meta) = match below.open(folder) {
            Ok(opened) => opened,
            Err(fault) => return self.unoffered(&real, fault),
        };
        let mut leave = entry_from(EntryKind::Leave, folder.to_vec(), Vec::new(), &meta);
        leave.attributes = self.attributes(&real, &At::folder(opened), &meta);
        self.add(Found { entry: leave, from: None });
    }
}

impl Below<'_> {
    /// A folder on the way to a name.
    fn open(&self, folder: &[u8]) -> Result<(Folder, Meta), Fault> {
        let opened = self.disk.folder(folder, On::Beneath);
        let found = opened.and_then(|opened| {
            let meta = Meta::of_folder(&opened)?;
            Ok((opened, meta))
        });
        found.map_err(|errno| Fault::io("look at", &self.root.join(name_of(folder)), &errno.into()))
    }
}

/// The folders that a name is in, the outermost first.
fn parents(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.map(|(at, _)| &name[..at])
}
