//! Finds and removes what transfers that ended early have left: temporary files and journals. What
//! a running transfer holds stays, and so does every name that is not exactly one of ours.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::base::fault::Fault;
use crate::base::job::{Cleaned, Sight};

/// Whether things go or are only told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleaning {
    Remove,
    Tell,
}

/// Which of our names a name is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// With the tag of its transfer.
    Part(Vec<u8>),
    /// The tag is the front of its name.
    Journal(Vec<u8>),
}

/// Cleans everything below `root`, or `root` itself where that is one of ours. Links are not
/// followed.
pub fn clean(root: &Path, cleaning: Cleaning, tell: &mut dyn FnMut(&Sight)) -> Cleaned {
    let mut broom = Broom { cleaning, tell, cleaned: Cleaned::default(), tags: BTreeMap::new() };
    broom.look_above(root);
    // A journal lies in the root of a transfer and its parts anywhere below: two passes, so that
    // every held tag is known before a part goes.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for pass in [Pass::Journals, Pass::Parts] {
        match rustix::fs::open(root, flags, Mode::empty()) {
            Ok(folder) => broom.sweep(folder, root, pass),
            Err(why) => {
                broom.fail("open the directory", root, why);
                break;
            }
        }
    }
    broom.remove_journals();
    broom.cleaned
}

/// What one walk looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Journals,
    Parts,
}

/// What stands for a tag once journals were looked at.
struct Broom<'a> {
    cleaning: Cleaning,
    tell: &'a mut dyn FnMut(&Sight),
    cleaned: Cleaned,
    /// Each journal's tag: the journals with it that nobody held, locked until the end; none where
    /// one is held.
    tags: BTreeMap<Vec<u8>, Option<Vec<Journal>>>,
}

struct Journal {
    folder: OwnedFd,
    path: PathBuf,
    bytes: u64,
    /// Holds the lock.
    _file: OwnedFd,
}

impl Broom<'_> {
    /// A transfer to a folder above may be running: its journal is there, its parts here.
    fn look_above(&mut self, root: &Path) {
        let real = root.canonicalize().unwrap_or_default();
        for folder in real.ancestors().skip(1) {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let Ok(fd) = rustix::fs::open(folder, flags, Mode::empty()) else { continue };
            let Ok(entries) = Dir::read_from(&fd) else { continue };
            for entry in entries.flatten() {
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if let Some(Kind::Journal(tag)) = kind_of(name.as_bytes())
                    && !matches!(lock(&fd, &folder.join(name)), Ok(Some(_)))
                {
                    self.tags.insert(tag, None);
                }
            }
        }
    }

    /// Walks a folder by its descriptor: what is renamed or becomes a link meanwhile leads nowhere.
    fn sweep(&mut self, folder: OwnedFd, path: &Path, pass: Pass) {
        let mut open = vec![(folder, path.to_path_buf())];
        while let Some((folder, path)) = open.pop() {
            let entries = match Dir::read_from(&folder) {
                Ok(entries) => entries,
                Err(why) => {
                    self.fail("list", &path, why);
                    continue;
                }
            };
            for entry in entries {
                let entry = match entry {
                    Ok(entry) => entry,
                    Err(why) => {
                        self.fail("list", &path, why);
                        break;
                    }
                };
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if name == "." || name == ".." {
                    continue;
                }
                let real = path.join(name);
                match (file_type(&folder, name), kind_of(name.as_bytes()), pass) {
                    (Ok(FileType::Directory), _, _) => match open_folder(&folder, name) {
                        Ok(below) => open.push((below, real)),
                        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => {}
                        // The first walk has said it already.
                        Err(_) if pass == Pass::Parts => {}
                        Err(why) => self.fail("open the directory", &real, why),
                    },
                    (Ok(FileType::RegularFile), Some(Kind::Journal(tag)), Pass::Journals) => {
                        self.look_at_journal(&folder, &real, tag);
                    }
                    (Ok(FileType::RegularFile), Some(Kind::Part(tag)), Pass::Parts) => {
                        self.part(&folder, &real, &tag);
                    }
                    _ => {}
                }
            }
        }
    }

    fn look_at_journal(&mut self, folder: &OwnedFd, path: &Path, tag: Vec<u8>) {
        match lock(folder, path) {
            Ok(Some(journal)) => {
                if let Some(free) = self.tags.entry(tag).or_insert_with(|| Some(Vec::new())) {
                    free.push(journal);
                }
            }
            Ok(None) => {
                self.tags.insert(tag, None);
                self.held(path);
            }
            Err(Errno::NOENT) => {}
            Err(why) => {
                // Nobody knows whether it is held, so its parts stay.
                self.tags.insert(tag, None);
                self.fail("lock", path, why);
            }
        }
    }

    fn part(&mut self, folder: &OwnedFd, path: &Path, tag: &[u8]) {
        match self.tags.get(tag) {
            Some(None) => self.held(path),
            _ => self.remove(folder, path),
        }
    }

    /// The journals go last: a cleaning that is interrupted can be done again.
    fn remove_journals(&mut self) {
        for journal in std::mem::take(&mut self.tags).into_values().flatten().flatten() {
            self.remove_known(&journal.folder, &journal.path, journal.bytes);
        }
    }

    fn remove(&mut self, folder: &OwnedFd, path: &Path) {
        let name = path.file_name().unwrap_or(OsStr::new(""));
        match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            // What a file takes on the disk, not how long it says it is.
            Ok(status) => self.remove_known(folder, path, status.st_blocks as u64 * 512),
            Err(Errno::NOENT) => {}
            Err(why) => self.fail("look at", path, why),
        }
    }

    fn remove_known(&mut self, folder: &OwnedFd, path: &Path, bytes: u64) {
        let name = path.file_name().unwrap_or(OsStr::new(""));
        if self.cleaning == Cleaning::Remove
            && let Err(why) = rustix::fs::unlinkat(folder, name, AtFlags::empty())
        {
            return self.fail("remove", path, why);
        }
        self.cleaned.files += 1;
        self.cleaned.bytes += bytes;
        (self.tell)(&Sight::Removed { path: path.to_path_buf(), bytes });
    }

    fn held(&mut self, path: &Path) {
        self.cleaned.held += 1;
        (self.tell)(&Sight::Held(path.to_path_buf()));
    }

    fn fail(&mut self, doing: &str, path: &Path, why: Errno) {
        self.cleaned.failed += 1;
        (self.tell)(&Sight::Failed(Fault::io(doing, path, &why.into())));
    }
}

/// `None` where a running transfer holds it.
fn lock(folder: &OwnedFd, path: &Path) -> Result<Option<Journal>, Errno> {
    let name = path.file_name().unwrap_or(OsStr::new(""));
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, name, flags, Mode::empty())?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(why) => return Err(why),
    }
    let bytes = rustix::fs::fstat(&file)?.st_blocks as u64 * 512;
    let folder = folder.try_clone().map_err(|_| Errno::MFILE)?;
    Ok(Some(Journal { folder, path: path.to_path_buf(), bytes, _file: file }))
}

fn file_type(folder: &OwnedFd, name: &OsStr) -> Result<FileType, Errno> {
    let status = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(status.st_mode))
}

fn open_folder(folder: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::empty())
}

/// `.datapump-<8 hex>-<1 to 16 of 0-9a-z>.part` and `.datapump-<16 hex>.journal`, and nothing else.
/// True for a path whose last name only datapump gives.
pub fn is_ours(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    kind_of(name).is_some()
}

fn kind_of(name: &[u8]) -> Option<Kind> {
    let hex = |text: &[u8]| text.iter().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    let rest = name.strip_prefix(b".datapump-")?;
    if let Some(number) = rest.strip_suffix(b".journal") {
        return (number.len() == 16 && hex(number)).then(|| Kind::Journal(number[..8].to_vec()));
    }
    let rest = rest.strip_suffix(b".part")?;
    let (tag, number) = (rest.get(..8)?, rest.get(8..)?.strip_prefix(b"-")?);
    let plain = number.iter().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'z'));
    (hex(tag) && plain && (1..=16).contains(&number.len())).then(|| Kind::Part(tag.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn only_our_names() {
        let cases = [
            (".datapump-0123abcd-7.part", true),
            (".datapump-0123abcd-0123456789abcdef.part", true),
            (".datapump-0123abcd-link.part", true),
            (".datapump-0123abcd0123abcd.journal", true),
            (".datapump-0123abcd-0123456789abcdef0.part", false),
            (".datapump-0123abcd-.part", false),
            (".datapump-0123abcd.part", false),
            (".datapump-0123ABCD-7.part", false),
            (".datapump-0123abc-7.part", false),
            (".datapump-0123abcd-7.part~", false),
            ("x.datapump-0123abcd-7.part", false),
            (".datapump-0123abcd-a/b.part", false),
            (".datapump-0123abcd0123abc.journal", false),
            (".datapump-0123abcd0123abcd.journal.bak", false),
            ("datapump-0123abcd-7.part", false),
            ("", false),
        ];
        for (name, expect) in cases {
            assert_eq!(kind_of(name.as_bytes()).is_some(), expect, "{name}");
        }
    }

    /// Names that are left below a folder that was cleaned.
    fn check(cleaning: Cleaning, hold: bool, expect: &[&str], cleaned: Cleaned) {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("deep/er")).unwrap();
        fs::create_dir(path("outside")).unwrap();
        fs::create_dir(path("top")).unwrap();
        fs::rename(path("deep"), path("top/deep")).unwrap();
        let names = [
            "top/.datapump-0123abcd00000000.journal",
            "top/deep/er/.datapump-0123abcd-1.part",
            "top/.datapump-ffffffff-2.part",
            "top/kept.part",
            "outside/.datapump-ffffffff-3.part",
        ];
        names.iter().for_each(|name| fs::write(path(name), b"").unwrap());
        std::os::unix::fs::symlink("../outside", path("top/link")).unwrap();
        std::os::unix::fs::symlink("kept.part", path("top/.datapump-ffffffff-9.part")).unwrap();
        let journal = File::open(path(names[0])).unwrap();
        if hold {
            rustix::fs::flock(&journal, FlockOperation::LockExclusive).unwrap();
        }
        let mut told = 0;
        let got = clean(&path("top"), cleaning, &mut |_| told += 1);
        let left: Vec<&str> = names.into_iter().filter(|name| path(name).exists()).collect();
        assert_eq!((left.as_slice(), got), (expect, cleaned), "{cleaning:?} {hold}");
        assert_eq!(told, got.files + got.held + got.failed);
        assert!(path("top/.datapump-ffffffff-9.part").is_symlink(), "a link is not ours");
    }

    #[test]
    fn a_running_transfer_to_the_folder_above_keeps_its_parts() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("below")).unwrap();
        let part = folder.path().join("below/.datapump-0123abcd-1.part");
        fs::write(&part, b"").unwrap();
        let journal =
            File::create(folder.path().join(".datapump-0123abcd00000000.journal")).unwrap();
        rustix::fs::flock(&journal, FlockOperation::LockExclusive).unwrap();
        let sweep = || clean(&folder.path().join("below"), Cleaning::Remove, &mut |_| {});
        assert_eq!(sweep(), Cleaned { held: 1, ..Cleaned::default() });
        drop(journal);
        assert_eq!(sweep(), Cleaned { files: 1, ..Cleaned::default() });
        assert!(!part.exists());
    }

    #[test]
    fn what_is_left() {
        let all = [
            "top/.datapump-0123abcd00000000.journal",
            "top/deep/er/.datapump-0123abcd-1.part",
            "top/.datapump-ffffffff-2.part",
            "top/kept.part",
            "outside/.datapump-ffffffff-3.part",
        ];
        let three = Cleaned { files: 3, ..Cleaned::default() };
        let one = Cleaned { files: 1, held: 2, ..Cleaned::default() };
        check(Cleaning::Remove, false, &all[3..], three);
        check(Cleaning::Tell, false, &all, three);
        check(Cleaning::Remove, true, &[all[0], all[1], all[3], all[4]], one);
    }

    #[test]
    fn what_cannot_be_opened_is_named() {
        let mut told = Vec::new();
        let missing = Path::new("/nonexistent-folder");
        let got = clean(missing, Cleaning::Remove, &mut |sight| told.push(sight.clone()));
        assert_eq!(got, Cleaned { failed: 1, ..Cleaned::default() });
        assert!(matches!(&told[..], [Sight::Failed(_)]));
    }
}
