//! Finds and removes what transfers that ended early have left: temporary files and journals. What
//! a running transfer holds stays, and so does every name that is not exactly one of ours.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::io::beneath::{self, Links};
use crate::io::reach::SPREAD_FOLDER;
use base::fault::Fault;
use base::job::{CleanEvent, Cleaned, Cleaning};

/// Which of our names a name is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// With the tag of its transfer.
    Part(Vec<u8>),
    /// The tag is the start of its name.
    Journal(Vec<u8>),
}

/// Cleans everything below `root`, or `root` itself where that is one of ours. Links are not
/// followed.
pub fn clean(root: &Path, cleaning: Cleaning, tell: &mut dyn FnMut(&CleanEvent)) -> Cleaned {
    let cleaned = Cleaned::default();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(root, flags, Mode::empty());
    let folder = match opened {
        Ok(folder) => folder,
        Err(why) => {
            tell(&CleanEvent::Failed(Fault::io("open the directory", root, &why.into())));
            return Cleaned { failed: 1, ..cleaned };
        }
    };
    let (root, journals) = (Root { folder, path: root.to_path_buf() }, BTreeMap::new());
    let mut cleaner = Cleaner { root, cleaning, tell, cleaned, journals, locked: None };
    cleaner.look_above();
    // A journal is in the root of a transfer and its parts anywhere below: two passes, so that
    // every held tag is known before a part is removed.
    for pass in [Pass::Journals, Pass::Parts] {
        cleaner.sweep(pass);
    }
    cleaner.remove_journals();
    cleaner.cleaned
}

/// What one walk looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Journals,
    Parts,
}

struct Cleaner<'a> {
    root: Root,
    cleaning: Cleaning,
    tell: &'a mut dyn FnMut(&CleanEvent),
    cleaned: Cleaned,
    journals: BTreeMap<Owned, Journals>,
    /// The tag and owner whose journals are locked now.
    locked: Option<(Owned, Vec<OwnedFd>)>,
}

/// A tag and the user whose files have it: another user's files with our tag mean nothing.
type Owned = (Vec<u8>, u32);

/// What is known of a tag's journals.
#[derive(Debug)]
enum Journals {
    /// A transfer is running, or that is not known.
    Held,
    /// Not held when they were looked at.
    Free(Vec<PathBuf>),
}

/// The folder that is cleaned. Paths below it are opened when they are needed, however many there
/// are, and never through a link.
struct Root {
    folder: OwnedFd,
    path: PathBuf,
}

impl Root {
    fn open(&self, below: &Path) -> Result<OwnedFd, Errno> {
        let path = below.as_os_str().as_bytes();
        beneath::open_folder(self.folder.as_fd(), path, OFlags::RDONLY, Links::Refused)
    }

    fn open_parent(&self, below: &Path) -> Result<OwnedFd, Errno> {
        self.open(below.parent().unwrap_or(Path::new("")))
    }
}

impl Cleaner<'_> {
    /// A transfer to a folder above may be running: its journal is there, its parts here.
    fn look_above(&mut self) {
        let real = self.root.path.canonicalize().unwrap_or_default();
        for folder in real.ancestors().skip(1) {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let Ok(fd) = rustix::fs::open(folder, flags, Mode::empty()) else { continue };
            let Ok(entries) = Dir::read_from(&fd) else { continue };
            for entry in entries.flatten() {
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if let Some(Kind::Journal(tag)) = kind_of(name.as_bytes())
                    && let Ok(status) = look(&fd, name)
                    && !matches!(lock(&fd, name), Ok(Some(_)))
                {
                    self.journals.insert((tag, status.st_uid), Journals::Held);
                }
            }
        }
    }

    /// Walks everything by descriptors: a rename or a link in the meantime has no effect.
    fn sweep(&mut self, pass: Pass) {
        let mut left = vec![PathBuf::new()];
        while let Some(below) = left.pop() {
            match self.root.open(&below) {
                Ok(folder) => self.sweep_folder(&folder, &below, pass, &mut left),
                Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => {}
                // The first walk has reported it already.
                Err(_) if pass == Pass::Parts => {}
                Err(why) => self.fail("open the directory", &below, why),
            }
        }
    }

    fn sweep_folder(
        &mut self,
        folder: &OwnedFd,
        below: &Path,
        pass: Pass,
        left: &mut Vec<PathBuf>,
    ) {
        let entries = match Dir::read_from(folder) {
            Ok(entries) => entries,
            Err(why) => return self.fail("list", below, why),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(why) => return self.fail("list", below, why),
            };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let Ok(status) = look(folder, name) else { continue };
            let path = below.join(name);
            match (FileType::from_raw_mode(status.st_mode), kind_of(name.as_bytes()), pass) {
                (FileType::Directory, _, _) => left.push(path),
                (FileType::RegularFile, Some(Kind::Journal(tag)), Pass::Journals) => {
                    self.look_at_journal(folder, path, (tag, status.st_uid));
                }
                (FileType::RegularFile, Some(Kind::Part(tag)), Pass::Parts) => {
                    self.part(folder, &path, (tag, status.st_uid));
                }
                _ => {}
            }
        }
    }

    fn look_at_journal(&mut self, folder: &OwnedFd, path: PathBuf, owned: Owned) {
        match lock(folder, name_of(&path)) {
            Ok(Some(_)) => {
                let known = self.journals.entry(owned).or_insert(Journals::Free(Vec::new()));
                if let Journals::Free(paths) = known {
                    paths.push(path);
                }
            }
            Ok(None) => {
                self.journals.insert(owned, Journals::Held);
                self.held(&path);
            }
            Err(Errno::NOENT) => {}
            Err(why) => {
                // It is not known whether it is held, so its parts stay.
                self.journals.insert(owned, Journals::Held);
                self.fail("lock", &path, why);
            }
        }
    }

    /// A part is owned by the user of its transfer; transfers of root give parts to others.
    fn part(&mut self, folder: &OwnedFd, path: &Path, (tag, owner): Owned) {
        let free = self.take((tag.clone(), owner)) && (owner == ROOT || self.take((tag, ROOT)));
        match free {
            true => self.remove(folder, path),
            false => self.held(path),
        }
    }

    /// Locks a tag's journals until another tag is asked for; false where a transfer holds one.
    fn take(&mut self, owned: Owned) -> bool {
        if self.locked.as_ref().is_some_and(|(locked, _)| *locked == owned) {
            return true;
        }
        let paths = match self.journals.get(&owned) {
            None => return true,
            Some(Journals::Held) => return false,
            Some(Journals::Free(paths)) => paths,
        };
        let mut locks = Vec::new();
        for path in paths {
            let parent = self.root.open_parent(path);
            match parent.and_then(|parent| lock(&parent, name_of(path))) {
                // More copies of one journal than are ever needed are only checked.
                Ok(Some(file)) if locks.len() < LOCKS_MAX => locks.push(file),
                Ok(Some(_)) | Err(Errno::NOENT) => {}
                Ok(None) | Err(_) => {
                    self.journals.insert(owned, Journals::Held);
                    return false;
                }
            }
        }
        self.locked = Some((owned, locks));
        true
    }

    /// The journals go last: an interrupted cleaning can be done again.
    fn remove_journals(&mut self) {
        self.locked = None;
        for journals in std::mem::take(&mut self.journals).into_values() {
            let Journals::Free(paths) = journals else { continue };
            for path in paths {
                let parent = match self.root.open_parent(&path) {
                    Ok(parent) => parent,
                    Err(Errno::NOENT) => continue,
                    Err(why) => {
                        self.fail("open the directory of", &path, why);
                        continue;
                    }
                };
                match lock(&parent, name_of(&path)) {
                    Ok(Some(_file)) => self.remove(&parent, &path),
                    Ok(None) => self.held(&path),
                    Err(Errno::NOENT) => {}
                    Err(why) => self.fail("lock", &path, why),
                }
            }
        }
    }

    fn remove(&mut self, folder: &OwnedFd, path: &Path) {
        let bytes = match look(folder, name_of(path)) {
            // The space that a file takes on the disk, not its length.
            Ok(status) => status.st_blocks as u64 * 512,
            Err(Errno::NOENT) => return,
            Err(why) => return self.fail("look at", path, why),
        };
        if self.cleaning == Cleaning::Remove
            && let Err(why) = rustix::fs::unlinkat(folder, name_of(path), AtFlags::empty())
        {
            return self.fail("remove", path, why);
        }
        self.cleaned.files += 1;
        self.cleaned.bytes += bytes;
        (self.tell)(&CleanEvent::Removed { path: self.root.path.join(path), bytes });
    }

    fn held(&mut self, path: &Path) {
        self.cleaned.held += 1;
        (self.tell)(&CleanEvent::Held(self.root.path.join(path)));
    }

    fn fail(&mut self, doing: &str, below: &Path, why: Errno) {
        self.cleaned.failed += 1;
        let path = match below.as_os_str().is_empty() {
            true => self.root.path.clone(),
            false => self.root.path.join(below),
        };
        (self.tell)(&CleanEvent::Failed(Fault::io(doing, &path, &why.into())));
    }
}

/// Locks a journal until it is dropped; `None` where a running transfer holds it.
fn lock(folder: &OwnedFd, name: &OsStr) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, name, flags, Mode::empty())?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(why) => Err(why),
    }
}

fn look(folder: &OwnedFd, name: &OsStr) -> Result<Stat, Errno> {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn name_of(path: &Path) -> &OsStr {
    path.file_name().unwrap_or(OsStr::new(""))
}

/// True for names that only datapump gives, and for what is below a folder of such a name:
/// `.datapump-<8 hex>-<1 to 16 of 0-9a-z>.part`, `.datapump-<16 hex>.journal`, and what a job of
/// `spread` has at its destination, `.datapump-spread`.
pub fn is_ours(path: &[u8]) -> bool {
    let is_own = |name: &[u8]| name == SPREAD_FOLDER.as_bytes() || kind_of(name).is_some();
    path.split(|byte| *byte == b'/').any(is_own)
}

/// True for a path whose last name is that of a part with this tag.
pub(crate) fn is_part_of(path: &[u8], tag: &str) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    kind_of(name) == Some(Kind::Part(tag.as_bytes().to_vec()))
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

/// Journals of one tag that are locked at the same time.
const LOCKS_MAX: usize = 8;
const ROOT: u32 = 0;

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
        for (path, expect) in [
            (".datapump-spread", true),
            ("a/.datapump-spread/b/c", true),
            ("a/.datapump-0123abcd-7.part", true),
            (".datapump-0123abcd-7.part/a", true),
            (".datapump-spread-1/a", false),
            ("a.datapump-spread", false),
        ] {
            assert_eq!(is_ours(path.as_bytes()), expect, "{path}");
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

    /// Journals are found wherever they are, and a stranger's say nothing about our parts.
    #[test]
    fn only_its_own_journal_speaks_for_a_part() {
        // The journal's owner and the part's, and whether a held journal keeps the part.
        let cases = [(0, 0, true), (0, 4000, true), (4000, 4000, true), (4000, 0, false)];
        for (journals, parts, keeps) in cases {
            let folder = tempfile::tempdir().unwrap();
            let names = [".datapump-0123abcd00000000.journal", ".datapump-0123abcd-1.part"];
            for (name, owner) in names.into_iter().zip([journals, parts]) {
                fs::write(folder.path().join(name), b"").unwrap();
                std::os::unix::fs::chown(folder.path().join(name), Some(owner), None).unwrap();
            }
            let journal = File::open(folder.path().join(names[0])).unwrap();
            rustix::fs::flock(&journal, FlockOperation::LockExclusive).unwrap();
            clean(folder.path(), Cleaning::Remove, &mut |_| {});
            let left = names.map(|name| folder.path().join(name).exists());
            assert_eq!(left, [true, keeps], "{journals} {parts}");
        }
    }

    #[test]
    fn what_cannot_be_opened_is_named() {
        let mut told = Vec::new();
        let missing = Path::new("/nonexistent-folder");
        let got = clean(missing, Cleaning::Remove, &mut |sight| told.push(sight.clone()));
        assert_eq!(got, Cleaned { failed: 1, ..Cleaned::default() });
        assert!(matches!(&told[..], [CleanEvent::Failed(_)]));
    }
}
