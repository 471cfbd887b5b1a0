//! What is in a folder of this host, or in a store below a prefix.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::FileType;

use crate::io::accounts::{Account, Accounts};
use crate::io::disk::Disk;
use crate::io::reach::{self, Reach};
use crate::io::store::{Details, Listed, ListedKind, Store};
use crate::io::volume::{Status, StatusKind, Volume};
use crate::pump::source::pattern;
use crate::pump::watch::Watch;
use base::fault::Fault;
use base::listing::{Item, ItemKind, Sum};
use base::settings::Moment;

/// Whether the contents of folders are counted, all the way down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sums {
    No,
    Yes,
}

/// What a path leads to: a folder's contents, or the file itself. A pattern may match several
/// names, which are listed themselves then.
pub fn of_path(path: &Path, sums: Sums, reach: &Reach, watch: &Watch) -> Result<Vec<Item>, Fault> {
    let found = pattern::expand(path, reach)?;
    let mut lister = Lister { sums, watch, owners: Owners::of_this_host(), items: Vec::new() };
    match &found[..] {
        [only] => match is_folder(only, reach)? {
            true => lister.folder(&reach.disk(only)?)?,
            false => lister.named(only, reach)?,
        },
        several => several.iter().try_for_each(|path| lister.named(path, reach))?,
    }
    watch.gauge.walk_done.store(true, Relaxed);
    Ok(lister.items)
}

fn is_folder(path: &Path, reach: &Reach) -> Result<bool, Fault> {
    let stat = reach.status(path).map_err(|why| reach::fault("find", path, &why.into()))?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

struct Lister<'a> {
    sums: Sums,
    watch: &'a Watch,
    owners: Owners,
    items: Vec<Item>,
}

impl Lister<'_> {
    /// All that is directly in a folder.
    fn folder(&mut self, disk: &Disk) -> Result<(), Fault> {
        let mut names = Vec::new();
        disk.names_in(b"", &mut |name, _| names.push(name.to_vec()))?;
        for name in names {
            self.add(disk, &name, &name)?;
        }
        Ok(())
    }

    /// One name, as it was typed.
    fn named(&mut self, path: &Path, reach: &Reach) -> Result<(), Fault> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let disk = reach.disk(parent.unwrap_or(Path::new(".")))?;
        let name = path.file_name().unwrap_or(OsStr::new(".")).as_bytes().to_vec();
        self.add(&disk, &name, path.as_os_str().as_bytes())
    }

    fn add(&mut self, disk: &Disk, name: &[u8], shown: &[u8]) -> Result<(), Fault> {
        if self.watch.stopping() {
            return Err(Fault::interrupted());
        }
        // One that is gone since is not listed.
        let Some(status) = disk.status(name)? else { return Ok(()) };
        let kind = kind_of(status.kind);
        let below = match (kind, self.sums) {
            (ItemKind::Folder, Sums::Yes) => Some(sum(disk, name, self.watch)?),
            _ => None,
        };
        let link_target = match kind {
            ItemKind::Link => disk.read_link(name)?.unwrap_or_default(),
            _ => Vec::new(),
        };
        let item = Item {
            kind,
            bytes: (kind == ItemKind::File).then_some(status.size),
            mtime: Some(moment(&status)),
            mode: (kind != ItemKind::Link).then_some(status.mode),
            owner: Some(self.owners.names(status.owner)),
            link_target,
            below,
            ..Item::folder(shown.to_vec())
        };
        if kind != ItemKind::Folder {
            count(self.watch, item.sum());
        }
        self.items.push(item);
        Ok(())
    }
}

/// The files below a folder. What cannot be read is told of and left out.
fn sum(disk: &Disk, folder: &[u8], watch: &Watch) -> Result<Sum, Fault> {
    let mut all = Sum::default();
    let mut folders = vec![folder.to_vec()];
    while let Some(folder) = folders.pop() {
        if watch.stopping() {
            return Err(Fault::interrupted());
        }
        let mut inside = Vec::new();
        let mut take = |name: &[u8], kind| inside.push(([&folder, &b"/"[..], name].concat(), kind));
        if let Err(fault) = disk.names_in(&folder, &mut take) {
            watch.warn(format!("{fault}: it is not counted"));
            continue;
        }
        let mut here = Sum::default();
        for (path, kind) in inside {
            match kind {
                StatusKind::Directory => folders.push(path),
                StatusKind::File => {
                    let bytes = disk.status(&path)?.map_or(0, |status| status.size);
                    here.add(Sum { files: 1, bytes });
                }
                StatusKind::Link | StatusKind::Special => here.add(Sum { files: 1, bytes: 0 }),
            }
        }
        count(watch, here);
        all.add(here);
    }
    Ok(all)
}

/// What is directly below the root of a store, with what is below its folders where that is
/// counted. A store is listed whole for that.
pub fn of_store(store: &dyn Store, sums: Sums, watch: &Watch) -> Result<Vec<Item>, Fault> {
    let mut items = Vec::new();
    let mut folders: BTreeMap<Vec<u8>, Sum> = BTreeMap::new();
    let mut take = |listed: Listed| {
        let bytes = Sum { files: 1, bytes: listed.size };
        match listed.path.iter().position(|byte| *byte == b'/') {
            Some(slash) => {
                let below = folders.entry(listed.path[..slash].to_vec()).or_default();
                let is_marker = slash + 1 == listed.path.len();
                if !is_marker && listed.kind != ListedKind::Folder {
                    below.add(bytes);
                    count(watch, bytes);
                }
            }
            None if listed.path.is_empty() => {}
            None => {
                count(watch, bytes);
                items.push(of_object(listed));
            }
        }
        !watch.stopping()
    };
    match sums {
        Sums::Yes => store.list(Details::Listing, &mut take)?,
        Sums::No => store.list_folder(&mut take)?,
    }
    if watch.stopping() {
        return Err(Fault::interrupted());
    }
    watch.gauge.walk_done.store(true, Relaxed);
    let below = |sum| (sums == Sums::Yes).then_some(sum);
    items.extend(
        folders.into_iter().map(|(name, sum)| Item { below: below(sum), ..Item::folder(name) }),
    );
    Ok(items)
}

/// One object of a store.
pub fn of_object(listed: Listed) -> Item {
    let link_target = match listed.kind {
        ListedKind::Link(target) => target,
        _ => Vec::new(),
    };
    Item {
        kind: if link_target.is_empty() { ItemKind::File } else { ItemKind::Link },
        bytes: Some(listed.size),
        mtime: Some(Moment { seconds: listed.mtime.seconds, nanos: listed.mtime.nanos }),
        mode: listed.mode,
        link_target,
        ..Item::folder(listed.path)
    }
}

fn count(watch: &Watch, sum: Sum) {
    watch.gauge.files_found.fetch_add(sum.files, Relaxed);
    watch.gauge.bytes_found.fetch_add(sum.bytes, Relaxed);
}

fn kind_of(kind: StatusKind) -> ItemKind {
    match kind {
        StatusKind::File => ItemKind::File,
        StatusKind::Directory => ItemKind::Folder,
        StatusKind::Link => ItemKind::Link,
        StatusKind::Special => ItemKind::Special,
    }
}

fn moment(status: &Status) -> Moment {
    Moment { seconds: status.mtime.seconds, nanos: status.mtime.nanos }
}

/// The names of users and groups.
struct Owners {
    users: Accounts,
    groups: Accounts,
}

impl Owners {
    fn of_this_host() -> Owners {
        Owners { users: Accounts::of(Account::User), groups: Accounts::of(Account::Group) }
    }

    fn names(&mut self, (user, group): (u32, u32)) -> (String, String) {
        let name = |accounts: &mut Accounts, id: u32| match accounts.name_of(id) {
            Some(name) => String::from_utf8_lossy(name).into_owned(),
            None => id.to_string(),
        };
        (name(&mut self.users, user), name(&mut self.groups, group))
    }
}
