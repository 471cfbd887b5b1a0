//! Walks a tree: folders, and what is found in them.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::io::reach;
use crate::pump::source::safe_links::leads_out;
use crate::pump::source::select::Shape;
use crate::pump::source::walk::hard_links::Met;
use crate::pump::source::walk::listing::{At, Listing, Meta};
use crate::pump::source::walk::{
    Found, Frame, From, Offers, Spot, WalkEvent, entry_from, size_if_unsized,
};
use crate::wire::manifest::{Entry, EntryKind, path_is_safe};
use base::fault::{Class, Fault};
use base::settings::Links;

impl Offers<'_> {
    pub(super) fn add_tree(&mut self, real: &Path, prefix: Vec<u8>, meta: &Meta) {
        let disk = match self.reach.disk(real) {
            Ok(disk) => Arc::new(disk),
            Err(fault) => return self.unoffered(real, fault),
        };
        let mut open: Vec<Frame> = Vec::new();
        let has_name = !prefix.is_empty();
        self.prefix_bytes = if prefix.is_empty() { 0 } else { prefix.len() + 1 };
        let at = match At::find(&disk, b"") {
            Ok(at) => at,
            Err(errno) => return self.failed("find", real, errno),
        };
        let root = Spot { disk, inside: Vec::new(), target: prefix, real: real.to_path_buf() };
        self.enter(root, &at, meta, &mut open);
        if let Some(folder) = self.found.last_mut().filter(|_| has_name) {
            folder.entry.is_root = true;
        }
        open.iter_mut().for_each(|root| root.leave.is_root = true);
        self.add_open(&mut open);
    }

    /// Adds everything in the directories that are being listed.
    pub(super) fn add_open(&mut self, open: &mut Vec<Frame>) {
        while let Some(frame) = open.last_mut() {
            if !self.going {
                return;
            }
            match frame.listing.next(&frame.spot, &mut self.buffer) {
                Some(Ok(at)) => {
                    let spot = frame.spot.below(at.name());
                    let meta = at.meta();
                    let shape = match meta.as_ref().is_ok_and(Meta::is_dir) {
                        true => Shape::Folder,
                        false => Shape::Other,
                    };
                    if !self.leaves_out(&spot, shape) {
                        match meta {
                            Ok(meta) => self.add_found(spot, &at, &meta, open),
                            Err(errno) => self.failed("look at", &spot.real, errno),
                        }
                    }
                }
                Some(Err(errno)) => {
                    let real = frame.spot.real.clone();
                    self.failed("list", &real, errno);
                    self.leave(open);
                }
                None => self.leave(open),
            }
        }
    }

    /// Adds one entry of a tree; a directory is entered.
    pub(super) fn add_found(&mut self, spot: Spot, at: &At, meta: &Meta, open: &mut Vec<Frame>) {
        if !path_is_safe(&spot.target) {
            let text =
                format!("'{}' is longer than a path may be (4095 bytes)", spot.real.display());
            return self.unoffered(&spot.real, Fault::new(Class::Local, text));
        }
        match (meta.is_link(), self.settings.links) {
            (false, _) => self.add_thing(spot, at, meta, open),
            (true, Links::Copy | Links::Safe) => self.add_link(spot, at, meta),
            (true, Links::Follow) => self.follow(spot, open),
            (true, Links::Skip) => {
                let text = format!("'{}' is a symbolic link: skipped", spot.real.display());
                self.say(WalkEvent::Skipped(text));
                self.skip(spot.target);
            }
        }
    }

    pub(super) fn add_thing(&mut self, spot: Spot, at: &At, meta: &Meta, open: &mut Vec<Frame>) {
        if meta.is_file() {
            self.add_regular(spot, at, meta);
        } else if meta.is_dir() {
            self.enter(spot, at, meta, open);
        } else {
            let text = format!("'{}' is a socket, pipe or device: skipped", spot.real.display());
            self.say(WalkEvent::Skipped(text));
            self.skip(spot.target);
        }
    }

    /// A file, or another name of one that has been offered.
    pub(super) fn add_regular(&mut self, spot: Spot, at: &At, meta: &Meta) {
        let untold = match size_if_unsized(&spot, meta) {
            Ok(untold) => untold,
            Err(fault) => return self.unoffered(&spot.real, fault),
        };
        if self.limits.leave_out_file(untold.unwrap_or(meta.size()), meta.moment()) {
            self.excluded += 1;
            return self.skip(spot.target);
        }
        let met = self.twins.meet(meta, self.number, &spot.target);
        let names_follow = matches!(met, Met::First);
        if let Met::Again { twin, first, names_follow } = met {
            let entry = entry_from(EntryKind::HardLink, spot.target, first, meta);
            let twin_bytes = untold.unwrap_or(meta.size());
            let entry = Entry { twin, twin_bytes, names_follow, ..entry };
            return self.add(Found { entry, from: None });
        }
        let mut entry = entry_from(EntryKind::File, spot.target, Vec::new(), meta);
        entry.names_follow = names_follow;
        let allocated_bytes = meta.allocated_bytes();
        match untold {
            Some(size) => entry.size = size,
            None if allocated_bytes < meta.size() => {
                (entry.sparse, entry.allocated_bytes) = (true, allocated_bytes);
            }
            None => {}
        }
        entry.attributes = self.attributes(&spot.real, at, meta);
        let from = From { volume: spot.disk, path: spot.inside };
        self.add(Found { entry, from: Some(from) });
    }

    pub(super) fn add_link(&mut self, spot: Spot, at: &At, meta: &Meta) {
        match at.read_link() {
            Ok(to) if self.settings.links == Links::Safe && leads_out(&spot.target, &to) => {
                let text = format!(
                    "'{}' is a symbolic link that leads out of what is copied: skipped",
                    spot.real.display()
                );
                self.say(WalkEvent::Skipped(text));
                self.skip(spot.target);
            }
            Ok(_) if self.limits.leave_out_link(meta.moment()) => {
                self.excluded += 1;
                self.skip(spot.target);
            }
            Ok(to) => {
                self.warn_of_names(&spot, meta);
                let mut entry = entry_from(EntryKind::Link, spot.target, to, meta);
                entry.attributes = self.attributes(&spot.real, at, meta);
                self.add(Found { entry, from: None });
            }
            Err(errno) => self.failed("read the link", &spot.real, errno),
        }
    }

    /// A symbolic link with several names becomes several links, which says the same.
    fn warn_of_names(&mut self, spot: &Spot, meta: &Meta) {
        if meta.names() > 1 && !std::mem::replace(&mut self.links_told, true) {
            let text = format!(
                "'{}' is a symbolic link with several names: each is copied as a link of its own \
                 (said once)",
                spot.real.display()
            );
            self.say(WalkEvent::Skipped(text));
        }
    }

    /// The target of a link, in place of the link.
    pub(super) fn follow(&mut self, spot: Spot, open: &mut Vec<Frame>) {
        let everything = match &self.everything {
            Some(disk) => disk.clone(),
            None => match self.reach.disk(Path::new("/")) {
                Ok(disk) => Arc::new(disk),
                Err(fault) => return self.unoffered(&spot.real, fault),
            },
        };
        self.everything = Some(everything.clone());
        let real = match self.reach.canonical(&spot.real) {
            Ok(real) => real,
            Err(error) => {
                let fault = reach::fault("follow", &spot.real, &error);
                return self.unoffered(&spot.real, fault);
            }
        };
        let inside = real.as_os_str().as_bytes()[1..].to_vec();
        let found = At::find(&everything, &inside).and_then(|at| Ok((at.meta()?, at)));
        let (meta, at) = match found {
            Ok(found) => found,
            Err(errno) => return self.failed("follow", &spot.real, errno),
        };
        if meta.is_dir() && open.iter().any(|frame| frame.inode == meta.inode()) {
            let text = format!(
                "'{}' leads back to '{}', which it is in: a loop cannot be copied",
                spot.real.display(),
                real.display()
            );
            return self.unoffered(&spot.real, Fault::new(Class::Local, text));
        }
        let spot = Spot { disk: everything, inside, target: spot.target, real };
        self.add_thing(spot, &at, &meta, open);
    }

    pub(super) fn enter(&mut self, spot: Spot, at: &At, meta: &Meta, open: &mut Vec<Frame>) {
        let target = spot.target.clone();
        if !target.is_empty() {
            let entry = entry_from(EntryKind::Directory, target.clone(), Vec::new(), meta);
            self.add(Found { entry, from: None });
        }
        let mut leave = entry_from(EntryKind::Leave, target, Vec::new(), meta);
        leave.attributes = self.attributes(&spot.real, at, meta);
        match Listing::open(at, meta, open.len(), &mut self.buffer) {
            Ok(listing) => {
                let depth = open.len();
                if let Some(around) = open.last_mut() {
                    around.listing.cover(depth - 1);
                }
                open.push(Frame { listing, spot, leave, inode: meta.inode() });
            }
            Err(errno) => {
                self.failed("list", &spot.real, errno);
                if !leave.path.is_empty() {
                    self.add(Found { entry: leave, from: None });
                }
            }
        }
    }

    /// Everything in the innermost directory has been offered.
    pub(super) fn leave(&mut self, open: &mut Vec<Frame>) {
        if let Some(Frame { leave, .. }) = open.pop() {
            self.add(Found { entry: leave, from: None });
        }
    }
}
