//! What an object store has below a key, as a tree: its listing is in the order of keys, in which
//! all that is in a folder is side by side.

use std::sync::Arc;

use crate::io::reach::Reach;
use crate::io::store::{Details, Listed, ListedKind, Store};
use crate::io::system;
use crate::io::volume::{Mtime, Volume};
use crate::pump::source::safe_links::leads_out;
use crate::pump::source::select::Shape;
use crate::pump::source::walk::{Found, From, Offers, Root, WalkEvent, join, name_of};
use crate::wire::manifest::{Entry, EntryKind, path_is_safe};
use base::fault::{Class, Fault};
use base::job::ObjectUrl;
use base::settings::{Links, Moment};

/// What a URL names: an object, or all objects below a key.
pub(super) fn look_at(url: &ObjectUrl, recursive: bool, reach: &Reach) -> Result<Root, Fault> {
    let (folder, name) = match url.key.rsplit_once('/') {
        Some((folder, name)) => (folder, name),
        None => ("", &url.key[..]),
    };
    if !url.means_folder() {
        let holder = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let store = reach.store(&ObjectUrl { bucket: url.bucket.clone(), key: holder })?;
        if let Some(found) = store.look(name.as_bytes())? {
            let mut entry = Box::new(entry_of(EntryKind::File, name.as_bytes().to_vec(), &found));
            entry.size = found.size;
            return Ok(Root::Object { store, entry });
        }
        if !store.is_folder(name.as_bytes())? {
            return Err(Fault::new(Class::Local, format!("'{url}': there is no such object")));
        }
    }
    if !recursive {
        let text = format!("'{url}' is a folder: -r copies it with all that is in it");
        return Err(Fault::usage(text));
    }
    let key = match url.key.trim_end_matches('/') {
        "" => String::new(),
        key => format!("{key}/"),
    };
    let store = reach.store(&ObjectUrl { bucket: url.bucket.clone(), key })?;
    store.check()?;
    // A mistyped key is no empty folder. A bucket may be empty.
    let key = url.key.trim_end_matches('/');
    if url.means_folder() && !key.is_empty() {
        let all = reach.store(&ObjectUrl { bucket: url.bucket.clone(), key: String::new() })?;
        if !all.is_folder(key.as_bytes())? {
            return Err(Fault::new(Class::Local, format!("'{url}': there are no such objects")));
        }
    }
    let prefix = if url.means_folder() { Vec::new() } else { name.as_bytes().to_vec() };
    Ok(Root::Objects { store, prefix })
}

/// A folder whose objects are being offered.
#[derive(Debug)]
struct Open {
    /// Below the root of the store, with a slash at the end; empty for the root.
    inside: Vec<u8>,
    leave: Entry,
    /// It has a mode and a time of its own.
    is_marked: bool,
}

impl Offers<'_> {
    pub(super) fn add_object(&mut self, store: Arc<dyn Store>, entry: Entry) {
        let path = entry.path.clone();
        self.add(Found { entry, from: Some(From { volume: store, path }) });
    }

    pub(super) fn add_objects(&mut self, store: &Arc<dyn Store>, prefix: Vec<u8>) {
        self.prefix_bytes = if prefix.is_empty() { 0 } else { prefix.len() + 1 };
        let details = match self.settings.preserve {
            true => Details::All,
            false => Details::Listing,
        };
        let mut open = Vec::new();
        self.enter_folder(&mut open, (Vec::new(), prefix.clone()), true);
        let listed = store.list(details, &mut |found| {
            self.add_listed_object(store, &prefix, found, &mut open);
            self.going
        });
        if let Err(fault) = listed {
            let root = Volume::root(&**store).to_path_buf();
            self.unoffered(&root, fault);
        }
        while let Some(folder) = open.pop() {
            self.add(Found { entry: folder.leave, from: None });
        }
    }

    fn add_listed_object(
        &mut self,
        store: &Arc<dyn Store>,
        prefix: &[u8],
        found: Listed,
        open: &mut Vec<Open>,
    ) {
        let is_folder = found.kind == ListedKind::Folder;
        let inside = found.path.strip_suffix(b"/").unwrap_or(&found.path);
        let target = join(prefix, inside);
        if inside.is_empty() {
            // A root that gets no name of its own stays as it is.
            let root = open.first_mut().filter(|_| is_folder && !prefix.is_empty());
            root.into_iter().for_each(|root| root.note(&found));
            return;
        }
        let real = Volume::root(&**store).join(name_of(&found.path));
        if !path_is_safe(&target) || found.path.ends_with(b"/") && !is_folder {
            let text = format!(
                "'{}' is no name that a file can have: copy it alone, under another name",
                real.display()
            );
            return self.unoffered(&real, Fault::new(Class::Local, text));
        }
        if let ListedKind::Failed(fault) = found.kind {
            return self.unoffered(&real, fault);
        }
        if self.is_left_out(prefix, inside, is_folder) {
            self.excluded += 1;
            return;
        }
        self.go_to(open, prefix, folder_of(&found.path));
        if let Some(folder) = open.last_mut() {
            folder.note(&found);
        }
        match found.kind {
            ListedKind::Folder => {}
            ListedKind::Link(ref to) => self.add_link_object(target, to.clone(), &found),
            _ => {
                if self.limits.leave_out_file(found.size, moment_of(found.mtime)) {
                    self.excluded += 1;
                    return self.skip(target);
                }
                let mut entry = entry_of(EntryKind::File, target, &found);
                entry.size = found.size;
                let from = From { volume: store.clone(), path: found.path };
                self.add(Found { entry, from: Some(from) });
            }
        }
    }

    fn add_link_object(&mut self, target: Vec<u8>, to: Vec<u8>, found: &Listed) {
        let name = String::from_utf8_lossy(&target).into_owned();
        match self.settings.links {
            Links::Safe if leads_out(&target, &to) => {
                let text = format!(
                    "'{name}' is a symbolic link that leads out of what is copied: skipped"
                );
                self.say(WalkEvent::Skipped(text));
                self.skip(target);
            }
            Links::Skip | Links::Follow => {
                let text = format!("'{name}' is a symbolic link in a store: skipped");
                self.say(WalkEvent::Skipped(text));
                self.skip(target);
            }
            Links::Copy | Links::Safe => {
                let mut entry = entry_of(EntryKind::Link, target, found);
                entry.link_target = to;
                self.add(Found { entry, from: None });
            }
        }
    }

    /// Whether the filters leave out this object, or a folder that it is in.
    fn is_left_out(&self, prefix: &[u8], inside: &[u8], is_folder: bool) -> bool {
        let shape = if is_folder { Shape::Folder } else { Shape::Other };
        let path = join(prefix, inside);
        self.select.leaves_out_with_parents(&path[self.prefix_bytes..], shape)
    }

    /// Leaves the folders that are done, and enters those that this one is in.
    fn go_to(&mut self, open: &mut Vec<Open>, prefix: &[u8], folder: &[u8]) {
        while let Some(last) = open.pop_if(|last| !folder.starts_with(&last.inside)) {
            if let Some(above) = open.last_mut() {
                above.note_time(last.leave.mtime_seconds, last.leave.mtime_nanos);
            }
            self.add(Found { entry: last.leave, from: None });
        }
        let known = open.last().map_or(0, |last| last.inside.len());
        let ends = folder[known..].iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for (end, _) in ends {
            let inside = folder[..=known + end].to_vec();
            let target = join(prefix, &inside[..inside.len() - 1]);
            self.enter_folder(open, (inside, target), false);
        }
    }

    fn enter_folder(
        &mut self,
        open: &mut Vec<Open>,
        (inside, target): (Vec<u8>, Vec<u8>),
        is_root: bool,
    ) {
        let found = Listed {
            path: inside.clone(),
            size: 0,
            mtime: Mtime::default(),
            mode: Some(0o777 & !system::umask()),
            attributes: None,
            kind: ListedKind::Folder,
        };
        if !target.is_empty() {
            let entry = entry_of(EntryKind::Directory, target.clone(), &found);
            self.add(Found { entry: Entry { is_root, ..entry }, from: None });
        }
        let leave = Entry { is_root, ..entry_of(EntryKind::Leave, target, &found) };
        open.push(Open { inside, leave, is_marked: false });
    }
}

impl Open {
    /// A folder has what its marker says; one without has the time of the newest object in it.
    fn note(&mut self, found: &Listed) {
        match found.kind {
            ListedKind::Folder if found.path == self.inside => {
                self.is_marked = true;
                self.leave.mode = found.mode.unwrap_or(self.leave.mode);
                self.leave.attributes = found.attributes.clone();
                (self.leave.mtime_seconds, self.leave.mtime_nanos) =
                    (found.mtime.seconds, found.mtime.nanos);
            }
            _ => self.note_time(found.mtime.seconds, found.mtime.nanos),
        }
    }

    fn note_time(&mut self, seconds: i64, nanos: u32) {
        let leave = &mut self.leave;
        if !self.is_marked && (seconds, nanos) > (leave.mtime_seconds, leave.mtime_nanos) {
            (leave.mtime_seconds, leave.mtime_nanos) = (seconds, nanos);
        }
    }
}

/// The folder that a key is in, with the slash at its end; a marker is in the folder that it is of.
fn folder_of(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1)]
}

fn moment_of(mtime: Mtime) -> Moment {
    Moment { seconds: mtime.seconds, nanos: mtime.nanos }
}

fn entry_of(kind: EntryKind, path: Vec<u8>, found: &Listed) -> Entry {
    Entry {
        kind,
        mtime_seconds: found.mtime.seconds,
        mtime_nanos: found.mtime.nanos,
        mode: found.mode.unwrap_or(0o666 & !system::umask()),
        path,
        attributes: found.attributes.clone(),
        ..Entry::default()
    }
}
