//! The steps, carried out on the storage that this process sees.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

use super::{DestinationFolder, FolderLook, Found, Linked, Name, Reply, Spot, Step, joining};
use crate::spread::folder::{make_private, replace};
use analysis::shards::names;
use base::fault::Fault;

pub(in crate::spread) fn carry_out(place: &DestinationFolder, step: &Step) -> Result<Reply, Fault> {
    match step {
        Step::Prepare => prepare(place),
        Step::Take { job } => take(place, job),
        Step::IsTaken => Ok(is_taken(place)),
        Step::Tombstone(attempt) => tombstone(&place.staging().join(attempt)),
        Step::RemoveStaging(attempt) => remove_staging(&place.staging().join(attempt)),
        Step::MakeStaging { attempt, tries } => {
            make_staging(&place.staging().join(attempt), *tries)
        }
        Step::Look(spots) => {
            let found = spots.iter().map(|spot| look(&place.path(spot)));
            found.collect::<Result<_, Fault>>().map(Reply::Found)
        }
        Step::Digest(spot) => digest(&place.path(spot)).map(Reply::Digest),
        Step::Link(names) => {
            let linked = names.iter().map(|(staged, name)| link(place, staged, name));
            linked.collect::<Result<_, Fault>>().map(Reply::Linked)
        }
        Step::SyncFolders(spots) => {
            spots.iter().try_for_each(|spot| sync_folder(&place.path(spot))).map(|()| Reply::Done)
        }
        Step::Join { parts, staged, at } => joining::join(place, parts, staged, *at),
        Step::Complete { staged, size, look } => {
            joining::complete(&place.path(staged), *size, *look).map(|()| Reply::Done)
        }
        Step::RemoveParts(shards) => {
            // The rest goes with the job.
            shards.iter().for_each(|shard| drop(fs::remove_file(place.path(&Spot::Part(*shard)))));
            Ok(Reply::Done)
        }
        Step::MakeFolders(names) => {
            names.iter().try_for_each(|name| make_folder(place, name)).map(|()| Reply::Done)
        }
        Step::SetFolders(folders) => {
            folders.iter().try_for_each(|folder| set_folder(place, folder)).map(|()| Reply::Done)
        }
        Step::ListStaging => list_staging(&place.staging()).map(Reply::Names),
        Step::Fence(shard) => fence(place, *shard),
        Step::Leave => leave(place),
    }
}

fn prepare(place: &DestinationFolder) -> Result<Reply, Fault> {
    let target = &place.destination();
    let was_empty = match fs::metadata(target) {
        Ok(found) if !found.is_dir() => Err(Fault::usage(format!(
            "'{}' is no folder: spread copies into one",
            target.display()
        ))),
        Ok(_) => {
            let mut entries =
                fs::read_dir(target).map_err(|why| Fault::io("list", target, &why))?;
            let holder = place.holder();
            Ok(entries.all(|entry| entry.is_ok_and(|entry| entry.path() == holder)))
        }
        Err(_) => {
            let made = DirBuilder::new().mode(0o755).create(target);
            made.map_err(|why| Fault::write("make", target, &why)).map(|()| true)
        }
    }?;
    let real = target.canonicalize().map_err(|why| Fault::io("find", target, &why))?;
    Ok(Reply::Prepared { folder: Name::from(&*real), was_empty })
}

fn take(place: &DestinationFolder, job: &str) -> Result<Reply, Fault> {
    let holder = place.holder();
    match DirBuilder::new().mode(0o700).create(&holder) {
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
            let other = fs::read_to_string(holder.join("job")).unwrap_or_default();
            return Err(Fault::usage(format!(
                "another spread has '{}' as its destination; its job folder is '{other}'. \
                 'datapump spread status {other}' shows it, 'resume' continues it, and \
                 'cancel --forget' gives it up",
                place.destination().display()
            )));
        }
        Err(why) => return Err(Fault::write("make", &holder, &why)),
        Ok(()) => {}
    }
    replace(&holder, "job", job.as_bytes())?;
    make_private(&place.staging())?;
    replace(&place.staging(), "token", place.token.as_bytes()).map(|()| Reply::Done)
}

fn is_taken(place: &DestinationFolder) -> Reply {
    let token = fs::read_to_string(place.staging().join("token")).unwrap_or_default();
    if token == place.token { Reply::Yes } else { Reply::No }
}

/// A file of the folder's name: the folder can then never be made.
fn tombstone(path: &Path) -> Result<Reply, Fault> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(Reply::Stands),
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
            match fs::symlink_metadata(path) {
                Ok(found) if found.is_dir() => Ok(Reply::Folder),
                Ok(_) => Ok(Reply::Stands),
                // It was removed by another in this moment: once more.
                Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Reply::Folder),
                Err(why) => Err(Fault::io("look at", path, &why)),
            }
        }
        Err(why) => Err(Fault::write("make", path, &why)),
    }
}

fn remove_staging(path: &Path) -> Result<Reply, Fault> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => remove_some(path, REMOVED_AT_ONCE),
        Ok(_) => Ok(Reply::Done),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Reply::Done),
        Err(why) => Err(Fault::io("look at", path, &why)),
    }
}

fn make_staging(path: &Path, tries: usize) -> Result<Reply, Fault> {
    let fault = |why: io::Error| Fault::write("make", path, &why);
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => return Ok(Reply::Stands),
        Err(why) => return Err(fault(why)),
    }
    for number in 0..tries {
        let made = DirBuilder::new().mode(0o700).create(path.join(number.to_string()));
        made.map_err(fault)?;
    }
    Ok(Reply::Done)
}

fn look(path: &Path) -> Result<Option<Found>, Fault> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(Fault::io("look at", path, &why)),
    };
    Ok(Some(Found::of(path, &found)))
}

impl Found {
    pub(in crate::spread) fn of(path: &Path, found: &fs::Metadata) -> Found {
        let target = found.is_symlink().then(|| fs::read_link(path).ok()).flatten();
        Found {
            target: target.map(|target| Name::from(&*target)),
            kind: found.mode() & TYPE_BITS,
            size: found.len(),
            mtime_s: found.mtime(),
            mtime_ns: found.mtime_nsec(),
        }
    }
}

/// `None` where nothing has the name.
fn digest(path: &Path) -> Result<Option<String>, Fault> {
    let mut hasher = blake3::Hasher::new();
    match File::open(path).and_then(|file| hasher.update_reader(file).map(drop)) {
        Ok(()) => Ok(Some(hasher.finalize().to_hex().to_string())),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(Fault::io("read", path, &why)),
    }
}

/// The one step that makes a file appear. It never replaces one.
fn link(place: &DestinationFolder, staged: &Spot, name: &Spot) -> Result<Linked, Fault> {
    let (staged, path) = (place.path(staged), place.path(name));
    let link = || rustix::fs::linkat(CWD, &staged, CWD, &path, AtFlags::empty());
    let linked = match link() {
        Err(rustix::io::Errno::NOENT) if look(&staged)?.is_some() => {
            let above = place.path(&name.above());
            fs::create_dir_all(&above).map_err(|why| Fault::write("make", &above, &why))?;
            link()
        }
        linked => linked,
    };
    match linked {
        Ok(()) => Ok(Linked::Ours),
        Err(rustix::io::Errno::NOENT) if look(&staged)?.is_none() => Ok(Linked::Gone),
        // The answer to a first try may have been lost: then it is the same file.
        Err(rustix::io::Errno::EXIST) => Ok(match is_same(&staged, &path)? {
            true => Linked::Ours,
            false => Linked::Exists,
        }),
        Err(why) => Err(Fault::write("link", &path, &why.into())),
    }
}

fn is_same(one: &Path, other: &Path) -> Result<bool, Fault> {
    let inode = |path: &Path| match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some((found.dev(), found.ino()))),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(Fault::io("look at", path, &why)),
    };
    let one = inode(one)?;
    Ok(one.is_some() && one == inode(other)?)
}

pub(in crate::spread) fn sync_folder(folder: &Path) -> Result<(), Fault> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|why| Fault::write("sync", folder, &why))
}

fn make_folder(place: &DestinationFolder, name: &Name) -> Result<(), Fault> {
    let path = place.path(&Spot::Final(name.clone()));
    let made = DirBuilder::new().recursive(true).mode(0o777).create(&path);
    made.map_err(|why| Fault::write("make", &path, &why))
}

fn set_folder(place: &DestinationFolder, folder: &FolderLook) -> Result<(), Fault> {
    let path = place.path(&Spot::Final(folder.name.clone()));
    let fault = |why: io::Error| Fault::write("set mode and time of", &path, &why);
    fs::set_permissions(&path, Permissions::from_mode(folder.mode & 0o777)).map_err(fault)?;
    let time = Timespec { tv_sec: folder.mtime_s, tv_nsec: folder.mtime_ns.into() };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).map_err(|why| fault(why.into()))
}

fn list_staging(staging: &Path) -> Result<Option<Vec<String>>, Fault> {
    let entries = match fs::read_dir(staging) {
        Ok(entries) => entries,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(Fault::io("list", staging, &why)),
    };
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    Ok(Some(entries.flatten().map(name).collect()))
}

/// A worker that has the shard still can commit nothing any more.
fn fence(place: &DestinationFolder, shard: u32) -> Result<Reply, Fault> {
    for name in list_staging(&place.staging())?.unwrap_or_default() {
        let path = place.staging().join(&name);
        let is_of_it = names::parse_open(&name).is_some_and(|(of, _)| of == shard);
        if is_of_it && path.is_dir() {
            let fault = |why: io::Error| Fault::write("remove", &path, &why);
            fs::remove_dir_all(&path).map_err(fault)?;
            File::create(&path).map_err(fault)?;
        }
    }
    Ok(Reply::Done)
}

fn leave(place: &DestinationFolder) -> Result<Reply, Fault> {
    let holder = place.holder();
    match fs::remove_dir_all(&holder) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => {
            Err(Fault::write("remove", &holder, &why))
        }
        _ => Ok(Reply::Done),
    }
}

/// Removes so many names below a folder, and the folder when none is left.
fn remove_some(folder: &Path, most: usize) -> Result<Reply, Fault> {
    let mut left = most;
    match remove_below(folder, &mut left) {
        Ok(true) => Ok(Reply::Done),
        Ok(false) => Ok(Reply::GoesOn),
        // Its attempt goes on in it: what came since it was listed is removed the next time.
        Err(why) if why.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(Reply::GoesOn),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Reply::GoesOn),
        Err(why) => Err(Fault::write("remove", folder, &why)),
    }
}

/// True once the folder itself is gone, as the storage says it.
fn remove_below(folder: &Path, left: &mut usize) -> io::Result<bool> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if *left == 0 {
            return Ok(false);
        }
        *left -= 1;
        if entry.file_type()?.is_dir() {
            if !remove_below(&entry.path(), left)? {
                return Ok(false);
            }
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_dir(folder).map(|()| true)
}

const REMOVED_AT_ONCE: usize = 2000;
/// What says whether a mode is that of a file, a folder or a link.
const TYPE_BITS: u32 = 0o170_000;
