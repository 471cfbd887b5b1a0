//! The steps, carried out on the storage that this process sees. The destination is opened once,
//! and every name is reached from it through no symbolic link: what is planted there, or committed
//! by the job itself, leads no step out of it.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::refusals::{has_no_links, is_anothers};
use super::{
    DestinationFolder, FolderLook, Found, Linked, Name, Refused, Reply, Spot, Step, joining,
};
use analysis::shards::names;
use base::fault::{Class, Fault};
use mover::io::beneath::{Folder, Links};
use mover::io::disk::Disk;
use mover::io::reach::SPREAD_FOLDER as HOLDER;
use mover::io::volume::{Durable, Metadata, Mtime, Volume};

/// A destination that this process sees.
#[derive(Debug)]
pub struct Here {
    place: DestinationFolder,
    /// The destination itself, once it is needed.
    root: Option<Arc<Disk>>,
    /// What the job has there, once a token has proved that it is the job's.
    staging: Option<Arc<Disk>>,
}

/// An open tree, and a name in it.
type Within = (Arc<Disk>, Vec<u8>);

impl Here {
    pub(in crate::spread) fn new(place: DestinationFolder) -> Here {
        Here { place, root: None, staging: None }
    }

    pub(in crate::spread) fn place(&self) -> &DestinationFolder {
        &self.place
    }

    pub(in crate::spread) fn carry_out(&mut self, step: &Step) -> Result<Reply, Fault> {
        for disk in self.root.iter().chain(&self.staging) {
            disk.forget_folders();
        }
        match step {
            Step::Prepare => self.prepare(),
            Step::Take { job } => self.take(job),
            Step::IsTaken => Ok(self.is_taken()),
            Step::Tombstone(attempt) => self.tombstone(attempt),
            Step::RemoveStaging(attempt) => self.remove_staging(attempt),
            Step::MakeStaging { attempt, tries } => self.make_staging(attempt, *tries),
            Step::Look(spots) => {
                let found = spots.iter().map(|spot| self.look(spot));
                found.collect::<Result<_, Fault>>().map(Reply::Found)
            }
            Step::Digest(spot) => self.digest(spot).map(Reply::Digest),
            Step::Link(names) => {
                let linked = names.iter().map(|(staged, name)| self.link(staged, name));
                linked.collect::<Result<_, Fault>>().map(Reply::Linked)
            }
            Step::SyncFolders(spots) => {
                spots.iter().try_for_each(|spot| self.sync_folder(spot)).map(|()| Reply::Done)
            }
            Step::Join { parts, staged, at } => joining::join(self, parts, staged, *at),
            Step::Complete { staged, size, look } => {
                joining::complete(self, staged, *size, *look).map(|()| Reply::Done)
            }
            Step::RemoveParts(shards) => {
                // The rest goes with the job.
                shards.iter().for_each(|shard| drop(self.remove(&Spot::Part(*shard))));
                Ok(Reply::Done)
            }
            Step::MakeFolders(names) => {
                refused(names.iter().map(|name| (name, self.make_folder(name))))
            }
            Step::SetFolders(folders) => {
                refused(folders.iter().map(|folder| (&folder.name, self.set_folder(folder))))
            }
            Step::ListStaging => self.list_staging().map(Reply::Names),
            Step::Fence(shard) => self.fence(*shard),
            Step::Leave => self.leave(),
        }
    }

    fn prepare(&mut self) -> Result<Reply, Fault> {
        let target = self.place.destination();
        let was_empty = match fs::metadata(&target) {
            Ok(found) if !found.is_dir() => Err(Fault::usage(format!(
                "'{}' is no folder: spread copies into one",
                target.display()
            ))),
            Ok(_) => {
                let mut entries =
                    fs::read_dir(&target).map_err(|why| Fault::io("list", &target, &why))?;
                let holder = self.place.holder();
                Ok(entries.all(|entry| entry.is_ok_and(|entry| entry.path() == holder)))
            }
            Err(_) => {
                let made = DirBuilder::new().mode(0o755).create(&target);
                made.map_err(|why| Fault::write("make", &target, &why)).map(|()| true)
            }
        }?;
        let real = target.canonicalize().map_err(|why| Fault::io("find", &target, &why))?;
        Ok(Reply::Prepared { folder: Name::from(&*real), was_empty })
    }

    fn take(&mut self, job: &str) -> Result<Reply, Fault> {
        let taken = self.try_to_take(job);
        if taken.is_err() {
            let _ = self.leave();
        }
        taken.map(|()| Reply::Done)
    }

    /// Who gives the holder its name `job` has the destination: it says to others whose it is from
    /// the first moment. What is there without it, of a command that ended before, is nobody's.
    fn try_to_take(&mut self, job: &str) -> Result<(), Fault> {
        let (holder, own) = (self.place.holder(), self.place.staging());
        let fault = |path: &Path, why: Errno| Fault::write("make", path, &why.into());
        let root = self.root()?;
        make(&folder_of(&root, b"", &holder)?, HOLDER).map_err(|why| fault(&holder, why))?;
        let folder = folder_of(&root, HOLDER.as_bytes(), &holder)?;
        make(&folder, &self.place.id).map_err(|why| fault(&own, why))?;
        let staging = folder_of(&root, &self.place.inside(), &own)?;
        let job = format!("{job}\n{}\n", self.place.id);
        for (name, text) in [(TOKEN, &*self.place.token), (JOB, &job)] {
            write(&staging, name, text)
                .map_err(|why| Fault::write("write", &own.join(name), &why))?;
        }
        rustix::fs::fsync(&staging).map_err(|why| fault(&own, why))?;
        match rustix::fs::linkat(&staging, JOB, &folder, JOB, AtFlags::empty()) {
            Ok(()) => {}
            // The answer to a first try may have been lost: then it is the same file.
            Err(Errno::EXIST) if has_taken(&staging, &folder) => {}
            Err(Errno::EXIST) => {
                let other = read_text(&folder, JOB).unwrap_or_default();
                let job = other.lines().next().unwrap_or_default();
                return Err(is_anothers(&self.place.destination(), job));
            }
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
                return Err(has_no_links(&self.place.destination()));
            }
            Err(why) => return Err(fault(&holder.join(JOB), why)),
        }
        rustix::fs::fsync(&folder).map_err(|why| fault(&holder, why))
    }

    fn is_taken(&mut self) -> Reply {
        self.staging = None;
        if self.staging().is_ok_and(|staging| staging.is_some()) { Reply::Yes } else { Reply::No }
    }

    /// A file of the folder's name: the folder can then never be made.
    fn tombstone(&mut self, attempt: &str) -> Result<Reply, Fault> {
        let path = self.place.staging().join(attempt);
        let folder = folder_of(&*self.must_have_staging()?, b"", &path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match rustix::fs::openat(&folder, attempt, flags, PRIVATE_FILE) {
            Ok(_) => Ok(Reply::Stands),
            Err(Errno::EXIST) => match kind_of(&folder, OsStr::new(attempt)) {
                Ok(FileType::Directory) => Ok(Reply::Folder),
                Ok(_) => Ok(Reply::Stands),
                // It was removed by another in this moment: once more.
                Err(Errno::NOENT) => Ok(Reply::Folder),
                Err(why) => Err(Fault::io("look at", &path, &why.into())),
            },
            Err(why) => Err(Fault::write("make", &path, &why.into())),
        }
    }

    fn remove_staging(&mut self, attempt: &str) -> Result<Reply, Fault> {
        let path = self.place.staging().join(attempt);
        let Some(staging) = self.staging()? else { return Ok(Reply::Done) };
        let folder = folder_of(&staging, b"", &path)?;
        match kind_of(&folder, OsStr::new(attempt)) {
            Ok(FileType::Directory) => {}
            Ok(_) | Err(Errno::NOENT) => return Ok(Reply::Done),
            Err(why) => return Err(Fault::io("look at", &path, &why.into())),
        }
        let mut left = REMOVED_AT_ONCE;
        match remove_below(&staging, attempt.as_bytes(), &mut left) {
            Ok(true) => Ok(Reply::Done),
            Ok(false) => Ok(Reply::GoesOn),
            // Its attempt goes on in it: what came since it was listed is removed the next time.
            Err(Errno::NOTEMPTY | Errno::NOENT) => Ok(Reply::GoesOn),
            Err(why) => Err(Fault::write("remove", &path, &why.into())),
        }
    }

    fn make_staging(&mut self, attempt: &str, tries: usize) -> Result<Reply, Fault> {
        let path = self.place.staging().join(attempt);
        let fault = |why: Errno| Fault::write("make", &path, &why.into());
        let staging = self.must_have_staging()?;
        match rustix::fs::mkdirat(folder_of(&staging, b"", &path)?, attempt, PRIVATE) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(Reply::Stands),
            Err(why) => return Err(fault(why)),
        }
        let folder = folder_of(&staging, attempt.as_bytes(), &path)?;
        for number in 0..tries {
            rustix::fs::mkdirat(&folder, number.to_string(), PRIVATE).map_err(fault)?;
        }
        Ok(Reply::Done)
    }

    /// What cannot be reached is not there: the step that would make it says so.
    fn look(&mut self, spot: &Spot) -> Result<Option<Found>, Fault> {
        let Some((disk, name)) = self.find(spot)? else { return Ok(None) };
        let path = self.place.path(spot);
        let fault = |why: Errno| Fault::io("look at", &path, &why.into());
        let (folder, name) = match disk.place(&name) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            found => found.map_err(fault)?,
        };
        let stat = match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            found => found.map_err(fault)?,
        };
        let target = rustix::fs::readlinkat(&folder, name, Vec::new()).ok();
        Ok(Some(Found::of(&stat, target.map(|target| Name(target.into_bytes())))))
    }

    /// `None` where nothing has the name.
    fn digest(&mut self, spot: &Spot) -> Result<Option<String>, Fault> {
        let path = self.place.path(spot);
        let mut hasher = blake3::Hasher::new();
        let opened = match self.open(spot, OFlags::RDONLY) {
            Ok(opened) => opened,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(why) => return Err(Fault::io("read", &path, &why.into())),
        };
        let read = hasher.update_reader(File::from(opened));
        read.map_err(|why| Fault::io("read", &path, &why))?;
        Ok(Some(hasher.finalize().to_hex().to_string()))
    }

    /// The one step that makes a file appear. It never replaces one.
    fn link(&mut self, staged: &Spot, spot: &Spot) -> Result<Linked, Fault> {
        let path = self.place.path(spot);
        let (Some(from), Some(to)) = (self.find(staged)?, self.find(spot)?) else {
            return Ok(Linked::Gone);
        };
        let linked = match link_at(&from, &to) {
            Err(Errno::NOENT) if self.look(staged)?.is_some() => {
                let above = spot.above();
                match self.make_way(&above) {
                    Err(why) if is_blocked(why) => return Ok(Linked::Blocked),
                    made => made.map_err(|why| {
                        Fault::write("make", &self.place.path(&above), &why.into())
                    })?,
                }
                link_at(&from, &to)
            }
            linked => linked,
        };
        match linked {
            Ok(()) => Ok(Linked::Ours),
            Err(Errno::NOENT) if self.look(staged)?.is_none() => Ok(Linked::Gone),
            // The answer to a first try may have been lost: then it is the same file.
            Err(Errno::EXIST) => {
                let is_same = match (from.0.place(&from.1), to.0.place(&to.1)) {
                    (Ok(from), Ok(to)) => is_same((&from.0, from.1), (&to.0, to.1)),
                    _ => false,
                };
                Ok(if is_same { Linked::Ours } else { Linked::Exists })
            }
            Err(why) if is_blocked(why) => Ok(Linked::Blocked),
            Err(why) => Err(Fault::write("link", &path, &why.into())),
        }
    }

    fn sync_folder(&mut self, spot: &Spot) -> Result<(), Fault> {
        let path = self.place.path(spot);
        let fault = |why: Errno| Fault::write("sync", &path, &why.into());
        let Some((disk, name)) = self.find(spot)? else { return Err(fault(Errno::NOENT)) };
        let folder = disk.folder(&name, Links::Refused).map_err(fault)?;
        rustix::fs::fsync(&folder).map_err(fault)
    }

    fn make_folder(&mut self, name: &Name) -> Result<(), Fault> {
        let spot = Spot::Final(name.clone());
        let path = self.place.path(&spot);
        self.make_way(&spot).map_err(|why| match is_blocked(why) {
            true => Fault::new(Class::SomeFailed, blocked(&path.display().to_string())),
            false => Fault::write("make", &path, &why.into()),
        })
    }

    fn set_folder(&mut self, folder: &FolderLook) -> Result<(), Fault> {
        let FolderLook { name, mode, mtime_s, mtime_ns } = folder;
        let meta = Metadata {
            mode: mode & 0o777,
            mtime: Some(Mtime { seconds: *mtime_s, nanos: *mtime_ns }),
            ..Metadata::default()
        };
        self.root()?.leave_directory(&name.0, Some(&meta), Durable::Later).given
    }

    fn list_staging(&mut self) -> Result<Option<Vec<String>>, Fault> {
        let Some(staging) = self.staging()? else { return Ok(None) };
        let mut names = Vec::new();
        staging.names_in(b"", &mut |name, _| {
            names.push(String::from_utf8_lossy(name).into_owned());
        })?;
        Ok(Some(names))
    }

    /// A worker that has the shard still can commit nothing any more.
    fn fence(&mut self, shard: u32) -> Result<Reply, Fault> {
        for name in self.list_staging()?.unwrap_or_default() {
            let is_of_it = names::parse_open(&name).is_some_and(|(of, _)| of == shard);
            while is_of_it && self.tombstone(&name)? == Reply::Folder {
                self.remove_staging(&name)?;
            }
        }
        Ok(Reply::Done)
    }

    /// Removes what this job has there, and the holder where it is this job's: never what another
    /// job has.
    fn leave(&mut self) -> Result<Reply, Fault> {
        let Some(staging) = self.staging()? else { return Ok(Reply::Done) };
        let root = self.root()?;
        self.staging = None;
        let holder = self.place.holder();
        let fault = |why: Errno| Fault::write("remove", &holder, &why.into());
        empty(&staging, b"", &[TOKEN, JOB]).map_err(fault)?;
        let folder = folder_of(&root, HOLDER.as_bytes(), &holder)?;
        let own = folder_of(&staging, b"", &holder)?;
        if has_taken(&own, &folder) {
            // What others have in it is no job's: they did not get the destination.
            empty(&root, HOLDER.as_bytes(), &[&self.place.id, JOB]).map_err(fault)?;
            remove_name(&folder, OsStr::new(JOB), AtFlags::empty()).map_err(fault)?;
        }
        remove_all(&root, &self.place.inside()).map_err(fault)?;
        match rustix::fs::unlinkat(folder_of(&root, b"", &holder)?, HOLDER, AtFlags::REMOVEDIR) {
            // Another job has it by now.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(Reply::Done),
            Err(why) => Err(fault(why)),
        }
    }

    fn root(&mut self) -> Result<Arc<Disk>, Fault> {
        if self.root.is_none() {
            let root = Disk::open(&self.place.destination())?;
            self.root = Some(Arc::new(root.through_no_link()));
        }
        self.root.clone().ok_or_else(|| gone(&self.place.destination()))
    }

    /// `None` where the job has nothing there, or what is there is another's.
    fn staging(&mut self) -> Result<Option<Arc<Disk>>, Fault> {
        if self.staging.is_none() {
            let path = self.place.staging();
            let staging = match self.root()?.below(&self.place.inside()) {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                found => found.map_err(|why| Fault::io("open", &path, &why.into()))?,
            };
            let token = read_text(&folder_of(&staging, b"", &path)?, TOKEN);
            self.staging =
                token.is_some_and(|token| token == self.place.token).then(|| Arc::new(staging));
        }
        Ok(self.staging.clone())
    }

    fn must_have_staging(&mut self) -> Result<Arc<Disk>, Fault> {
        self.staging()?.ok_or_else(|| gone(&self.place.staging()))
    }

    /// The tree that a name is in, and the name there. `None` where the job has nothing there.
    fn find(&mut self, spot: &Spot) -> Result<Option<Within>, Fault> {
        let name = spot.name();
        match spot {
            Spot::Final(_) => self.root().map(|root| Some((root, name))),
            _ => Ok(self.staging()?.map(|staging| (staging, name))),
        }
    }

    /// Makes a folder, and those above it, where they are missing.
    fn make_way(&mut self, spot: &Spot) -> Result<(), Errno> {
        let found = self.find(spot).map_err(|_| Errno::NOENT)?;
        let (disk, name) = found.ok_or(Errno::NOENT)?;
        let mut above = disk.folder(b"", Links::Refused)?.fd;
        for name in name.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            let name = OsStr::from_bytes(name);
            let enter = || rustix::fs::openat(&above, name, WAY, Mode::empty());
            above = match enter() {
                Err(Errno::NOENT) => match rustix::fs::mkdirat(&above, name, ANY_FOLDER) {
                    Ok(()) | Err(Errno::EXIST) => enter()?,
                    Err(why) => return Err(why),
                },
                entered => entered?,
            };
        }
        Ok(())
    }

    /// Opens a name, through no link: also not where the name itself is one.
    pub(super) fn open(&mut self, spot: &Spot, flags: OFlags) -> Result<OwnedFd, Errno> {
        let found = self.find(spot).map_err(|_| Errno::NOENT)?;
        let (disk, name) = found.ok_or(Errno::NOENT)?;
        let (folder, name) = disk.place(&name)?;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&folder, name, flags, PRIVATE_FILE)
    }

    /// Creates a staged file for its owner alone, or empties it: it may be there from a call whose
    /// answer was lost.
    pub(in crate::spread) fn create(&mut self, spot: &Spot) -> Result<File, Fault> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let opened = self.open(spot, flags).map(File::from);
        opened.map_err(|why| Fault::write("write", &self.place.path(spot), &why.into()))
    }

    /// What is not there any more is no error.
    pub(in crate::spread) fn remove(&mut self, spot: &Spot) -> Result<(), Fault> {
        let Some((disk, name)) = self.find(spot)? else { return Ok(()) };
        let fault = |why: Errno| Fault::write("remove", &self.place.path(spot), &why.into());
        let (folder, name) = disk.place(&name).map_err(fault)?;
        remove_name(&folder, name, AtFlags::empty()).map_err(fault)
    }
}

/// What could not be done with each of these; what ends a job is an error.
fn refused<'a>(done: impl Iterator<Item = (&'a Name, Result<(), Fault>)>) -> Result<Reply, Fault> {
    let mut refused = Vec::new();
    for (name, done) in done {
        match done {
            Ok(()) => {}
            Err(fault) if fault.ends_transfer() => return Err(fault),
            Err(Fault { class, text, .. }) => {
                refused.push(Refused { name: name.clone(), code: class.exit_code(), why: text });
            }
        }
    }
    Ok(Reply::Refused(refused))
}

/// True where a file or a link is in the way of a name.
fn is_blocked(why: Errno) -> bool {
    matches!(why, Errno::LOOP | Errno::NOTDIR)
}

/// Why such a name is not made.
pub(in crate::spread) fn blocked(shown: &str) -> String {
    format!(
        "'{shown}' is not made: on its way at the destination is a file, or a symbolic link, which \
         is not followed; remove that, or leave one of the two out"
    )
}

fn gone(path: &Path) -> Fault {
    Fault::io("open", path, &io::ErrorKind::NotFound.into())
}

fn folder_of(disk: &Disk, path: &[u8], shown: &Path) -> Result<Folder, Fault> {
    disk.folder(path, Links::Refused).map_err(|why| Fault::io("open", shown, &why.into()))
}

/// Makes a folder for its owner alone. It may be there already.
fn make(above: &Folder, name: &str) -> Result<(), Errno> {
    match rustix::fs::mkdirat(above, name, PRIVATE) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

fn write(folder: &Folder, name: &str, text: &str) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW;
    let opened = rustix::fs::openat(folder, name, flags | OFlags::CLOEXEC, PRIVATE_FILE)?;
    let mut file = File::from(opened);
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn read_text(folder: &Folder, name: &str) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::openat(folder, name, flags, Mode::empty()).ok()?);
    let mut text = String::new();
    file.take(TEXT_BYTES_MAX).read_to_string(&mut text).ok().map(|_| text)
}

fn kind_of(folder: &Folder, name: &OsStr) -> Result<FileType, Errno> {
    let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

fn is_same<A: rustix::path::Arg, B: rustix::path::Arg>(
    (folder, name): (&Folder, A),
    (other_folder, other): (&Folder, B),
) -> bool {
    let inode = |stat: Stat| (stat.st_dev, stat.st_ino);
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let one = rustix::fs::statat(folder, name, flags).map(inode);
    one.is_ok() && one == rustix::fs::statat(other_folder, other, flags).map(inode)
}

/// Whether the job with this staging folder has the holder. File systems of FUSE may give two names
/// of a file two inode numbers: they have the same job in them, with its id.
fn has_taken(staging: &Folder, holder: &Folder) -> bool {
    let text = |folder| read_text(folder, JOB);
    is_same((staging, JOB), (holder, JOB))
        || text(staging).is_some_and(|own| Some(own) == text(holder))
}

fn link_at((from_disk, from): &Within, (to_disk, to): &Within) -> Result<(), Errno> {
    let (from_folder, from) = from_disk.place(from)?;
    let (to_folder, to) = to_disk.place(to)?;
    rustix::fs::linkat(&from_folder, from, &to_folder, to, AtFlags::empty())
}

fn remove_name(folder: impl AsFd, name: &OsStr, flags: AtFlags) -> Result<(), Errno> {
    match rustix::fs::unlinkat(folder, name, flags) {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

/// Removes so many names below a folder, and the folder when none is left. True once the folder
/// itself is gone, as the storage says it.
fn remove_below(disk: &Disk, path: &[u8], left: &mut usize) -> Result<bool, Errno> {
    let folder = disk.folder(path, Links::Refused)?;
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if *left == 0 {
            return Ok(false);
        }
        *left -= 1;
        let name = OsStr::from_bytes(name);
        if kind_of(&folder, name)? == FileType::Directory {
            if !remove_below(disk, &[path, b"/", name.as_bytes()].concat(), left)? {
                return Ok(false);
            }
        } else {
            rustix::fs::unlinkat(&folder, name, AtFlags::empty())?;
        }
    }
    let (above, name) = disk.place(path)?;
    rustix::fs::unlinkat(&above, name, AtFlags::REMOVEDIR).map(|()| true)
}

/// Removes a folder with all that is in it; somebody else may do the same.
fn remove_all(disk: &Disk, path: &[u8]) -> Result<(), Errno> {
    match remove_below(disk, path, &mut { usize::MAX }) {
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(why) => Err(why),
    }
}

/// Removes everything in a folder but these names.
fn empty(disk: &Disk, path: &[u8], but: &[&str]) -> Result<(), Errno> {
    let folder = disk.folder(path, Links::Refused)?;
    let mut names = Vec::new();
    for entry in Dir::read_from(&folder)? {
        let name = entry?.file_name().to_bytes().to_vec();
        let stays = name == b"." || name == b".." || but.iter().any(|but| but.as_bytes() == name);
        names.extend((!stays).then_some(name));
    }
    for name in names {
        match kind_of(&folder, OsStr::from_bytes(&name)) {
            Ok(FileType::Directory) => {
                let below = [path, if path.is_empty() { b"" } else { b"/" }, &name].concat();
                remove_all(disk, &below)?;
            }
            Ok(_) => remove_name(&folder, OsStr::from_bytes(&name), AtFlags::empty())?,
            Err(Errno::NOENT) => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

const REMOVED_AT_ONCE: usize = 2000;
/// What a job writes into its own folder.
const TOKEN: &str = "token";
const JOB: &str = "job";
const TEXT_BYTES_MAX: u64 = 8192;
const WAY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const PRIVATE: Mode = Mode::RWXU;
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);
const ANY_FOLDER: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    struct Scene(tempfile::TempDir);

    impl Scene {
        /// A destination that a job has, and folders outside of it that nothing may touch.
        fn new() -> (Scene, Here) {
            let scene = Scene(tempfile::tempdir().unwrap());
            for folder in ["to", "outside", "outside/below"] {
                DirBuilder::new().mode(0o700).create(scene.at(folder)).unwrap();
            }
            let mut here = scene.job("1f");
            assert_eq!(here.carry_out(&Step::Take { job: "/job".into() }), Ok(Reply::Done));
            (scene, here)
        }

        fn at(&self, name: &str) -> std::path::PathBuf {
            self.0.path().join(name)
        }

        fn job(&self, id: &str) -> Here {
            let folder = Name::from(&*self.at("to"));
            Here::new(DestinationFolder { folder, id: id.into(), token: format!("token of {id}") })
        }

        fn outside(&self) -> Vec<(String, u32, i64)> {
            let mut found = Vec::new();
            for folder in ["outside", "outside/below"] {
                let of = self.at(folder).metadata().unwrap();
                found.push((folder.to_string(), of.mode(), of.mtime()));
                for entry in fs::read_dir(self.at(folder)).unwrap() {
                    found.push((entry.unwrap().file_name().into_string().unwrap(), 0, 0));
                }
            }
            found
        }
    }

    fn staged(name: &str) -> Spot {
        Spot::Staged { attempt: "3.1".into(), name: Name(name.into()) }
    }

    fn last(name: &str) -> Spot {
        Spot::Final(Name(name.into()))
    }

    /// Every step that names something, with a link on the way to it, or in its place.
    #[test]
    fn no_step_leads_out_of_the_destination() {
        let (scene, mut here) = Scene::new();
        let make = Step::MakeStaging { attempt: "3.1".into(), tries: 0 };
        assert_eq!(here.carry_out(&make), Ok(Reply::Done));
        fs::write(scene.at("to/.datapump-spread/1f/3.1/f"), "new").unwrap();
        symlink(scene.at("outside"), scene.at("to/absolute")).unwrap();
        symlink("../outside", scene.at("to/relative")).unwrap();
        fs::create_dir(scene.at("to/real")).unwrap();
        symlink("real", scene.at("to/inner")).unwrap();
        symlink("nowhere", scene.at("to/dangling")).unwrap();
        fs::write(scene.at("to/file"), "").unwrap();
        let before = scene.outside();
        for way in ["absolute", "relative", "inner", "dangling", "file"] {
            let name = format!("{way}/below/f");
            let link = Step::Link(vec![(staged("f"), last(&name))]);
            assert_eq!(here.carry_out(&link), Ok(Reply::Linked(vec![Linked::Blocked])), "{way}");
            let look = Step::Look(vec![last(&format!("{way}/below"))]);
            assert_eq!(here.carry_out(&look), Ok(Reply::Found(vec![None])), "{way}");
            assert_eq!(here.carry_out(&Step::Digest(last(&name))), Ok(Reply::Digest(None)));
            assert!(here.carry_out(&Step::SyncFolders(vec![last(way)])).is_err(), "{way}");
            let names = [way.to_string(), format!("{way}/below"), format!("{way}/below/new")];
            let names = names.map(|name| Name(name.into()));
            let of = |name: &Name| FolderLook {
                name: name.clone(),
                mode: 0o777,
                mtime_s: 1,
                mtime_ns: 0,
            };
            for step in [
                Step::MakeFolders(names.to_vec()),
                Step::SetFolders(names.iter().map(of).collect()),
            ] {
                let Ok(Reply::Refused(refused)) = here.carry_out(&step) else {
                    panic!("{way}: {step:?}")
                };
                let refused: Vec<&Name> = refused.iter().map(|one| &one.name).collect();
                assert_eq!(refused, names.iter().collect::<Vec<_>>(), "{way}: {step:?}");
            }
        }
        assert_eq!(scene.outside(), before);
        let good = Step::Link(vec![(staged("f"), last("real/new/f"))]);
        assert_eq!(here.carry_out(&good), Ok(Reply::Linked(vec![Linked::Ours])));
    }

    /// A link, or a folder of somebody else, in the place of what the job has there.
    #[test]
    fn what_is_not_the_jobs_is_not_taken_for_it() {
        for planted in ["link", "folder"] {
            let (scene, _) = Scene::new();
            fs::rename(scene.at("to/.datapump-spread"), scene.at("to/away")).unwrap();
            fs::create_dir(scene.at("outside/1f")).unwrap();
            fs::write(scene.at("outside/1f/token"), "a guess").unwrap();
            fs::create_dir(scene.at("outside/1f/3.1")).unwrap();
            match planted {
                "link" => symlink(scene.at("outside"), scene.at("to/.datapump-spread")).unwrap(),
                _ => fs::rename(scene.at("outside"), scene.at("to/.datapump-spread")).unwrap(),
            }
            let mut here = scene.job("1f");
            assert_eq!(here.carry_out(&Step::IsTaken), Ok(Reply::No), "{planted}");
            for step in [
                Step::MakeStaging { attempt: "3.2".into(), tries: 0 },
                Step::Tombstone("3.1".into()),
            ] {
                assert!(here.carry_out(&step).is_err(), "{planted}: {step:?}");
            }
            assert!(here.create(&staged("f")).is_err(), "{planted}");
            for step in [Step::RemoveStaging("3.1".into()), Step::Fence(3), Step::Leave] {
                assert_eq!(here.carry_out(&step), Ok(Reply::Done), "{planted}: {step:?}");
            }
            let of = scene.at("to/.datapump-spread/1f/3.1");
            assert!(of.is_dir(), "{planted}: it was removed");
        }
    }

    #[test]
    fn a_job_gives_free_what_is_its_own() {
        let (scene, mut first) = Scene::new();
        let mut second = scene.job("2e");
        let refused = second.carry_out(&Step::Take { job: "/other".into() }).unwrap_err();
        assert!(refused.text.contains("its job folder is '/job'"), "{refused}");
        assert!(!scene.at("to/.datapump-spread/2e").exists());
        assert_eq!(first.carry_out(&Step::Take { job: "/job".into() }), Ok(Reply::Done), "again");
        // A command that ended before it had the destination has left this.
        let of_nobody = scene.at("to/.datapump-spread/3d");
        fs::create_dir(&of_nobody).unwrap();
        assert_eq!(second.carry_out(&Step::Leave), Ok(Reply::Done));
        assert_eq!(first.carry_out(&Step::IsTaken), Ok(Reply::Yes));
        assert_eq!(first.carry_out(&Step::Leave), Ok(Reply::Done));
        assert_eq!(fs::read_dir(scene.at("to")).unwrap().count(), 0);
        // Nor does what is there of nobody keep others out.
        DirBuilder::new().mode(0o700).recursive(true).create(&of_nobody).unwrap();
        assert_eq!(second.carry_out(&Step::Take { job: "/other".into() }), Ok(Reply::Done));
        for step in [Step::Leave, Step::Fence(0), Step::RemoveStaging("0.1".into())] {
            assert_eq!(first.carry_out(&step), Ok(Reply::Done));
        }
        assert_eq!(second.carry_out(&Step::IsTaken), Ok(Reply::Yes));
        let mode = scene.at("to/.datapump-spread").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
