//! The receipt of a transfer: each file's digest and name. It is written while files finish and
//! gets its final name when the transfer has ended; `verify` reads the files again and compares
//! them with it.
//!
//! A line is what `b3sum --check` reads, `<hex>  <path>`, or `crc64nvme:<hex>  <path>`; digests
//! besides are lines with a tag, `MD5 (<path>) = <hex>`, which `md5sum --check` and its like read.
//! A path with a backslash, newline or carriage return is escaped and the line begins with a
//! backslash, as b3sum and md5sum do it. Files that those programs have written are read too.

mod lines;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

pub use self::lines::Algorithm;
use self::lines::{Digests, Entry, Lines, line, tagged};
use crate::io::store::Store;
use crate::io::volume::READ_THROUGH;
use crate::pump::watch::Watch;
use base::extra::ExtraSums;
use base::fault::{Class, Fault};
use base::job::{Notice, Verified};
use base::settings::Overwrite;

/// A receipt that is being written, under a temporary name until `finish`.
#[derive(Debug)]
pub struct Receipt {
    path: PathBuf,
    temporary: PathBuf,
    file: BufWriter<File>,
}

impl Receipt {
    /// Starts a receipt, before any byte is moved: a file that cannot be written is known now.
    pub fn create(path: &Path, overwrite: Overwrite) -> Result<Receipt, Fault> {
        if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
            return Err(Fault::usage(format!(
                "'{}' is a folder: name a file for the receipt",
                path.display()
            )));
        }
        if overwrite == Overwrite::Never && fs::symlink_metadata(path).is_ok() {
            return Err(Fault::usage(format!(
                "'{}' exists: name another file for the receipt, or write --overwrite always",
                path.display()
            )));
        }
        let temporary = beside(path);
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary);
        let file = file.map_err(|why| Fault::io("write the receipt", path, &why))?;
        Ok(Receipt { path: path.to_path_buf(), temporary, file: BufWriter::new(file) })
    }

    /// Adds a file that has its final name.
    pub fn add(
        &mut self,
        path: &[u8],
        digest: Option<&str>,
        extra: &ExtraSums,
    ) -> Result<(), Fault> {
        let plain = digest.map(|digest| line(path, digest));
        let tagged = extra.hex().into_iter().map(|(kind, hex)| tagged(path, kind, &hex));
        let lines: Vec<u8> = plain.into_iter().chain(tagged).flatten().collect();
        self.file.write_all(&lines).map_err(|why| Fault::io("write the receipt", &self.path, &why))
    }

    /// Drops all that was added: the files will be reported again.
    pub fn restart(&mut self) -> Result<(), Fault> {
        let emptied = self.file.flush().and_then(|()| {
            self.file.get_ref().set_len(0)?;
            self.file.rewind()
        });
        emptied.map_err(|why| Fault::io("write the receipt", &self.path, &why))
    }

    /// Gives the receipt its final name, once it is on stable storage.
    pub fn finish(mut self) -> Result<(), Fault> {
        let written = self.file.flush().and_then(|()| self.file.get_ref().sync_all());
        written
            .and_then(|()| fs::rename(&self.temporary, &self.path))
            .map_err(|why| Fault::io("write the receipt", &self.path, &why))
    }
}

impl Drop for Receipt {
    /// A receipt that was not finished leaves nothing behind. After `finish` the temporary name is
    /// gone already.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.temporary);
    }
}

/// Reads again what a receipt names and reports to `watch` every file that is not as it says. Paths
/// are relative to `root`, and none leads out of it. `plain` is what lines without a tag have.
/// `root` may be a file if the receipt names one file only.
pub fn verify(
    manifest: &Path,
    root: &Root,
    plain: Option<Algorithm>,
    threads: usize,
    watch: &Arc<Watch>,
) -> Result<Verified, Fault> {
    let inside = match root {
        Root::Here(path) => Inside::new(manifest, path)?,
        Root::Store(store, key) => Inside::Store(store.clone(), key.clone()),
    };
    survey((manifest, plain), &inside, watch)?;
    let lines = Mutex::new(Lines::open(manifest, plain)?);
    let found = Mutex::new(Verified::default());
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1))
            .map(|_| scope.spawn(|| worker(&lines, &inside, &found, watch)))
            .collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .unwrap_or_else(|_| Err(Fault::new(Class::Local, "a thread of verify panicked")))
        })
    })?;
    match watch.stopping() {
        true => Err(Fault::interrupted()),
        false => Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// Takes line after line until none is left.
fn worker(
    lines: &Mutex<Lines>,
    inside: &Inside,
    found: &Mutex<Verified>,
    watch: &Watch,
) -> Result<(), Fault> {
    let mut buffer = vec![0; READ_BYTES];
    while !watch.stopping() {
        let Some(entry) = lines.lock().unwrap_or_else(PoisonError::into_inner).next()? else {
            return Ok(());
        };
        let verdict = check(&entry, inside, &mut buffer, watch);
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        settle(verdict, entry, &mut found, watch);
    }
    Ok(())
}

/// The result of one line.
enum Verdict {
    Same(u64),
    Differs(u64),
    Missing(Fault),
    Unreadable(Fault),
    Stopped,
}

fn settle(verdict: Verdict, entry: Entry, found: &mut Verified, watch: &Watch) {
    let path = entry.path.into_vec();
    let fault = match verdict {
        Verdict::Stopped => return,
        Verdict::Same(bytes) => {
            found.files += 1;
            found.bytes += bytes;
            watch.gauge.files_done.fetch_add(1, Relaxed);
            let digest = entry.digests.into_iter().next().map(|(_, hex)| hex);
            watch.tell(Notice::FileDone { path, bytes, digest, extra: ExtraSums::default() });
            return;
        }
        Verdict::Differs(bytes) => {
            found.differing += 1;
            found.bytes += bytes;
            let name = OsStr::from_bytes(&path).to_string_lossy();
            Fault::new(
                Class::Corrupt,
                format!("'{name}' does not match the receipt: its bytes differ"),
            )
        }
        Verdict::Missing(fault) => {
            found.missing += 1;
            fault
        }
        Verdict::Unreadable(fault) => {
            found.unreadable += 1;
            fault
        }
    };
    watch.gauge.files_done.fetch_add(1, Relaxed);
    watch.tell(Notice::FileFailed { path, fault });
}

/// The same for an object: a store's own checksum of it, where there is one, is compared too.
fn check_object(
    entry: &Entry,
    (store, path): (&dyn Store, &[u8]),
    buffer: &mut [u8],
    watch: &Watch,
) -> Verdict {
    let size = match store.look(path) {
        Ok(Some(there)) => there.size,
        Ok(None) => {
            let text = format!("'{}' is missing", entry.path.display());
            return Verdict::Missing(Fault::new(Class::SomeFailed, text));
        }
        Err(fault) => return Verdict::Unreadable(fault),
    };
    let file = match store.open(path, READ_THROUGH) {
        Ok(file) => file,
        Err(fault) => return Verdict::Unreadable(fault),
    };
    let mut digests = Digests::of(entry);
    let mut bytes = 0;
    while bytes < size {
        let left = (size - bytes).min(buffer.len() as u64) as usize;
        match store.read_at(&file, path, bytes, &mut buffer[..left]) {
            Ok(read) => {
                digests.update(&buffer[..read]);
                bytes += read as u64;
                watch.gauge.bytes_done.fetch_add(read as u64, Relaxed);
            }
            Err(fault) if fault.class == Class::Corrupt => return Verdict::Differs(bytes),
            Err(fault) => return Verdict::Unreadable(fault),
        }
        if watch.stopping() {
            return Verdict::Stopped;
        }
    }
    match digests.match_all(entry) {
        true => Verdict::Same(bytes),
        false => Verdict::Differs(bytes),
    }
}

fn check(entry: &Entry, inside: &Inside, buffer: &mut [u8], watch: &Watch) -> Verdict {
    if let Inside::Store(store, key) = inside {
        let path = key.as_deref().unwrap_or(entry.path.as_bytes());
        return check_object(entry, (&**store, path), buffer, watch);
    }
    let path = match inside.resolve(&entry.path) {
        Ok(path) => path,
        Err(verdict) => return verdict,
    };
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(why) => return Verdict::Unreadable(Fault::io("open", &path, &why)),
    };
    // What the disk holds is asked for, not what a copy has left in memory.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    let mut digests = Digests::of(entry);
    let mut bytes = 0;
    loop {
        match file.read(buffer) {
            Ok(0) => break,
            Ok(read) => {
                digests.update(&buffer[..read]);
                bytes += read as u64;
                watch.gauge.bytes_done.fetch_add(read as u64, Relaxed);
            }
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Verdict::Unreadable(Fault::io("read", &path, &why)),
        }
        if watch.stopping() {
            return Verdict::Stopped;
        }
    }
    match digests.match_all(entry) {
        true => Verdict::Same(bytes),
        false => Verdict::Differs(bytes),
    }
}

/// Reads the whole receipt once, so that a wrong line is known before any file is read, and the
/// gauge knows how much there is.
fn survey(
    (manifest, plain): (&Path, Option<Algorithm>),
    inside: &Inside,
    watch: &Watch,
) -> Result<(), Fault> {
    let mut lines = Lines::open(manifest, plain)?;
    let mut files = 0;
    let mut is_one_there = false;
    let mut above = None;
    while let Some(entry) = lines.next()? {
        if watch.stopping() {
            return Err(Fault::interrupted());
        }
        files += 1;
        if files > 1 && matches!(inside, Inside::File(_) | Inside::Store(_, Some(_))) {
            return Err(Fault::usage(format!(
                "the receipt '{}' names several files: name the folder that they are in",
                manifest.display()
            )));
        }
        let resolved = inside.resolve(&entry.path).ok();
        let len = resolved.and_then(|path| fs::metadata(path).ok());
        // A store is asked when the file's turn comes.
        is_one_there |= len.is_some() || matches!(inside, Inside::Store(..));
        above = above.or_else(|| inside.above(&entry.path));
        watch.gauge.files_found.fetch_add(1, Relaxed);
        watch.gauge.bytes_found.fetch_add(len.map_or(0, |found| found.len()), Relaxed);
    }
    watch.gauge.walk_done.store(true, Relaxed);
    if files == 0 {
        let shown = manifest.display();
        return Err(Fault::usage(format!(
            "the receipt '{shown}' names no file: nothing to verify"
        )));
    }
    match above.filter(|_| !is_one_there) {
        Some(above) => Err(Fault::usage(format!(
            "no file of the receipt '{}' is there, but they are in the folder above: name that, \
             '{}'",
            manifest.display(),
            above.display()
        ))),
        None => Ok(()),
    }
}

/// Where the files of a receipt are.
#[derive(Clone, Debug)]
pub enum Root {
    /// A folder of this host, or the receipt's only file.
    Here(PathBuf),
    /// A store, and the key below it of the receipt's only file, where that is named.
    Store(Arc<dyn Store>, Option<Vec<u8>>),
}

/// What the receipt's paths are relative to.
#[derive(Debug)]
enum Inside {
    Store(Arc<dyn Store>, Option<Vec<u8>>),
    /// With its links resolved.
    Folder(PathBuf),
    /// The receipt's only file.
    File(PathBuf),
}

impl Inside {
    fn new(manifest: &Path, root: &Path) -> Result<Inside, Fault> {
        let open =
            |what: &Path| fs::canonicalize(what).map_err(|why| Fault::io("open", what, &why));
        open(manifest)?;
        let real = open(root)?;
        match real.is_dir() {
            true => Ok(Inside::Folder(real)),
            false => Ok(Inside::File(real)),
        }
    }

    /// The folder above, if the file is there: its path may begin with the name of this folder.
    fn above(&self, path: &OsStr) -> Option<PathBuf> {
        let Inside::Folder(root) = self else { return None };
        let above = root.parent()?;
        let starts_with_it = Path::new(path).starts_with(root.file_name()?);
        (starts_with_it && above.join(path).is_file()).then(|| above.to_path_buf())
    }

    /// The regular file of a line. Links are followed, but not out of the folder.
    fn resolve(&self, path: &OsStr) -> Result<PathBuf, Verdict> {
        let real = match self {
            Inside::File(file) => file.clone(),
            Inside::Store(..) => PathBuf::from(path),
            Inside::Folder(root) => {
                let joined = root.join(path);
                let real = fs::canonicalize(&joined).map_err(|why| match why.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                        let text = format!("'{}' is missing", path.display());
                        Verdict::Missing(Fault::new(Class::SomeFailed, text))
                    }
                    _ => Verdict::Unreadable(Fault::io("open", &joined, &why)),
                })?;
                if !real.starts_with(root) {
                    let text = format!("'{}' leads out of '{}'", joined.display(), root.display());
                    return Err(Verdict::Unreadable(Fault::new(Class::Local, text)));
                }
                real
            }
        };
        // Opening a pipe or a device could wait for ever.
        match fs::metadata(&real) {
            Ok(found) if found.is_file() => Ok(real),
            Ok(_) => {
                let text = format!("'{}' is no regular file", real.display());
                Err(Verdict::Unreadable(Fault::new(Class::Local, text)))
            }
            Err(why) => Err(Verdict::Unreadable(Fault::io("open", &real, &why))),
        }
    }
}

/// A name beside the receipt's that nobody else uses.
fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.partial", std::process::id()));
    path.with_file_name(name)
}

const READ_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crc_fast::CrcAlgorithm;
    use std::sync::mpsc;

    fn blake3_hex(bytes: &[u8]) -> String {
        blake3::hash(bytes).to_hex().to_string()
    }

    /// A folder with files in it, and a receipt of the given lines beside it.
    struct Scene {
        folder: tempfile::TempDir,
    }

    impl Scene {
        fn new(files: &[(&str, &[u8])]) -> Scene {
            let folder = tempfile::tempdir().unwrap();
            for (name, bytes) in files {
                let path = folder.path().join("root").join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, bytes).unwrap();
            }
            Scene { folder }
        }

        fn at(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn receipt(&self, lines: &[(&[u8], String)]) -> PathBuf {
            let path = self.at("receipt");
            let mut receipt = Receipt::create(&path, Overwrite::Always).unwrap();
            for (name, digest) in lines {
                receipt.add(name, Some(digest), &ExtraSums::default()).unwrap();
            }
            receipt.finish().unwrap();
            path
        }

        fn verify(&self, manifest: &Path, root: &str) -> (Result<Verified, Fault>, Vec<Notice>) {
            let (sender, notices) = mpsc::channel();
            let watch = Arc::new(Watch::new(sender));
            let found = verify(manifest, &Root::Here(self.at(root)), None, 2, &watch);
            drop(watch);
            (found, notices.iter().collect())
        }
    }

    #[test]
    fn what_is_well_and_what_is_not_is_told_apart() {
        let scene = Scene::new(&[("a", b"aa"), ("d/b", b"bb"), ("c", b"other"), ("e\nf", b"")]);
        fs::create_dir(scene.at("root/folder")).unwrap();
        let crc = crc_fast::checksum(CrcAlgorithm::Crc64Nvme, b"bb");
        let receipt = scene.receipt(&[
            (b"a", blake3_hex(b"aa")),
            (b"d/b", format!("{crc:016x}")),
            (b"e\nf", blake3_hex(b"")),
            (b"c", blake3_hex(b"cc")),
            (b"gone", blake3_hex(b"")),
            (b"a/below a file", blake3_hex(b"")),
            (b"folder", blake3_hex(b"")),
        ]);
        let (found, notices) = scene.verify(&receipt, "root");
        let found = found.unwrap();
        let expect = Verified { files: 3, bytes: 9, differing: 1, missing: 2, unreadable: 1 };
        assert_eq!(found, expect);
        assert_eq!(found.worst(), Some(Class::Corrupt));
        let mut bad: Vec<Vec<u8>> = notices
            .into_iter()
            .filter_map(|notice| match notice {
                Notice::FileFailed { path, .. } => Some(path),
                _ => None,
            })
            .collect();
        bad.sort();
        assert_eq!(bad, [&b"a/below a file"[..], b"c", b"folder", b"gone"]);
    }

    #[test]
    fn the_folder_above_is_named_once() {
        let scene = Scene::new(&[("a", b"a"), ("b", b"b")]);
        let hex = || blake3_hex(b"a");
        let all = scene.receipt(&[(b"root/a", hex()), (b"root/b", hex()), (b"root/c", hex())]);
        let (found, notices) = scene.verify(&all, "root");
        let fault = found.unwrap_err();
        assert_eq!((fault.class, notices.len()), (Class::Usage, 0));
        assert!(fault.text.contains("in the folder above: name that, '/"), "{}", fault.text);
        let some = scene.receipt(&[(b"root/a", hex()), (b"a", hex())]);
        let (found, _) = scene.verify(&some, "root");
        assert_eq!(
            found.unwrap(),
            Verified { files: 1, bytes: 1, missing: 1, ..Verified::default() }
        );
    }

    #[test]
    fn no_path_leads_out() {
        let scene = Scene::new(&[("a", b"")]);
        fs::write(scene.at("secret"), b"").unwrap();
        std::os::unix::fs::symlink(scene.at("secret"), scene.at("root/link")).unwrap();
        let (found, _) = scene.verify(&scene.receipt(&[(b"link", blake3_hex(b""))]), "root");
        assert_eq!(found.unwrap(), Verified { unreadable: 1, ..Verified::default() });
        for path in [&b"../secret"[..], b"/etc/passwd", b"a/../../secret", b""] {
            let (found, _) = scene.verify(&scene.receipt(&[(path, blake3_hex(b""))]), "root");
            let fault = found.unwrap_err();
            assert_eq!(fault.class, Class::Usage);
            assert!(fault.text.contains("line 1: its path"), "{}", fault.text);
        }
    }

    #[test]
    fn a_receipt_that_starts_over_forgets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("receipt");
        let mut receipt = Receipt::create(&path, Overwrite::Never).unwrap();
        (0..1000).for_each(|_| receipt.add(b"before", Some("00"), &ExtraSums::default()).unwrap());
        receipt.restart().unwrap();
        receipt.add(b"after", Some("11"), &ExtraSums::default()).unwrap();
        receipt.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), line(b"after", "11"));
    }

    #[test]
    fn one_file_may_be_named_itself() {
        let scene = Scene::new(&[("renamed", b"x")]);
        let one = scene.receipt(&[(b"original", blake3_hex(b"x"))]);
        let (found, _) = scene.verify(&one, "root/renamed");
        assert_eq!(found.unwrap().files, 1);
        let two = scene.receipt(&[(b"a", blake3_hex(b"x")), (b"b", blake3_hex(b"x"))]);
        let (found, _) = scene.verify(&two, "root/renamed");
        assert!(found.unwrap_err().text.contains("names several files"));
    }

    #[test]
    fn a_receipt_is_whole_or_absent() {
        let scene = Scene::new(&[]);
        let path = scene.at("receipt");
        let mut receipt = Receipt::create(&path, Overwrite::Never).unwrap();
        receipt.add(b"a", Some(&blake3_hex(b"")), &ExtraSums::default()).unwrap();
        drop(receipt);
        assert_eq!(fs::read_dir(scene.folder.path()).unwrap().count(), 0, "nothing is left behind");
        Receipt::create(&path, Overwrite::Never).unwrap().finish().unwrap();
        assert_eq!(fs::read_dir(scene.folder.path()).unwrap().count(), 1);
        let fault = Receipt::create(&path, Overwrite::Never).unwrap_err();
        assert!(fault.text.contains("exists: name another file"), "{}", fault.text);
        assert!(Receipt::create(&path, Overwrite::Always).is_ok());
        assert!(Receipt::create(&scene.at("no/such"), Overwrite::Never).is_err());
        assert!(Receipt::create(scene.folder.path(), Overwrite::Always).is_err());
    }
}
