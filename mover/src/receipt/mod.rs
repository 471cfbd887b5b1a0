//! The receipt of a transfer: each file's digest and name. It is written while files finish and
//! gets its final name when the transfer has ended; `verify` reads the files again and compares
//! them with it.
//!
//! A line is what `b3sum --check` reads, `<hex>  <path>`, or `crc64nvme:<hex>  <path>`; digests
//! besides are files beside it, `NAME.md5`, of lines with a tag, `MD5 (<path>) = <hex>`, which
//! `md5sum --check` and its like read.
//! A path with a backslash, newline or carriage return is escaped and the line begins with a
//! backslash, as b3sum and md5sum do it. Lists that other programs have written are read too, for
//! what they are: a file is hashed by every kind of digest that its line may have.

mod kind;
mod lines;
mod reading;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

pub use self::kind::DigestOfList;
pub use self::lines::Form;
use self::lines::{Entry, Lines, line, tagged};
use self::reading::{KindsKnown, Read, Verdict, read_object, read_path};
use crate::io::store::Store;
use crate::pump::watch::Watch;
use base::extra::{ExtraDigest, ExtraDigests, ExtraSums, hex};
use base::fault::{Class, Fault};
use base::job::{FileKind, Notice, Verified};
use base::settings::Overwrite;

/// A receipt that is being written, under a temporary name until `finish`; with a list beside it of
/// each kind of digests that are computed besides, so that each is one that others read.
#[derive(Debug)]
pub struct Receipt {
    lists: Vec<List>,
}

/// One file of a receipt.
#[derive(Debug)]
struct List {
    /// `None` for the digests of the copy itself.
    kind: Option<ExtraDigest>,
    path: PathBuf,
    temporary: PathBuf,
    file: BufWriter<File>,
}

impl Receipt {
    /// Starts a receipt, before any byte is moved: a file that cannot be written is known now.
    pub fn create(path: &Path, also: ExtraDigests, overwrite: Overwrite) -> Result<Receipt, Fault> {
        let mut receipt = Receipt { lists: Vec::new() };
        for kind in also.iter().map(Some).chain([None]) {
            receipt.lists.push(List::create(kind, list_of(path, kind), overwrite)?);
        }
        Ok(receipt)
    }

    /// Adds a file that has its final name.
    pub fn add(
        &mut self,
        path: &[u8],
        digest: Option<&str>,
        extra: &ExtraSums,
    ) -> Result<(), Fault> {
        for list in &mut self.lists {
            let line = match list.kind {
                None => digest.map(|digest| line(path, digest)),
                Some(kind) => extra.get(kind).map(|sum| tagged(path, kind, &hex(sum))),
            };
            let written = line.map_or(Ok(()), |line| list.file.write_all(&line));
            written.map_err(|why| list.fault(&why))?;
        }
        Ok(())
    }

    /// Drops all that was added: the files will be reported again.
    pub fn restart(&mut self) -> Result<(), Fault> {
        self.lists.iter_mut().try_for_each(|list| {
            let emptied = list.file.flush().and_then(|()| {
                list.file.get_ref().set_len(0)?;
                list.file.rewind()
            });
            emptied.map_err(|why| list.fault(&why))
        })
    }

    /// Gives the receipt its final name, last, once all of it is on stable storage.
    pub fn finish(mut self) -> Result<(), Fault> {
        self.lists.iter_mut().try_for_each(|list| {
            let written = list.file.flush().and_then(|()| list.file.get_ref().sync_all());
            written.map_err(|why| list.fault(&why))
        })?;
        self.lists.iter().try_for_each(|list| {
            fs::rename(&list.temporary, &list.path).map_err(|why| list.fault(&why))
        })
    }
}

/// `sums`, and `sums.md5` beside it.
fn list_of(path: &Path, kind: Option<ExtraDigest>) -> PathBuf {
    let Some(kind) = kind else { return path.to_path_buf() };
    let mut name = path.as_os_str().to_os_string();
    name.push(format!(".{}", kind.name()));
    name.into()
}

impl List {
    fn create(
        kind: Option<ExtraDigest>,
        path: PathBuf,
        overwrite: Overwrite,
    ) -> Result<List, Fault> {
        let found = fs::symlink_metadata(&path);
        if found.as_ref().is_ok_and(fs::Metadata::is_dir) {
            return Err(Fault::usage(format!(
                "'{}' is a folder: name a file for the receipt",
                path.display()
            )));
        }
        // One of a run in which little was to do would replace the receipt of all.
        if overwrite != Overwrite::Always && found.is_ok() {
            return Err(Fault::usage(format!(
                "'{}' exists: name another file for the receipt, or write --overwrite always",
                path.display()
            )));
        }
        let temporary = beside(&path);
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary);
        let file = file.map_err(|why| Fault::io("write the receipt", &path, &why))?;
        Ok(List { kind, path, temporary, file: BufWriter::new(file) })
    }

    fn fault(&self, why: &io::Error) -> Fault {
        Fault::io("write the receipt", &self.path, why)
    }
}

impl Drop for List {
    /// A receipt that was not finished leaves nothing behind. After `finish` the temporary name is
    /// gone already.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.temporary);
    }
}

/// A receipt to read.
#[derive(Clone, Debug)]
pub struct ReceiptFile {
    pub path: PathBuf,
    /// As messages name it.
    pub shown: String,
    pub form: Form,
}

impl ReceiptFile {
    /// One where it was written, beside what says how.
    pub fn of(path: &Path) -> ReceiptFile {
        let form = match path.with_file_name("bagit.txt").is_file() {
            true => Form::BagIt,
            false => Form::Coreutils,
        };
        ReceiptFile { path: path.to_path_buf(), shown: path.display().to_string(), form }
    }
}

/// Reads again what a receipt names and reports to `watch` every file that is not as it says. Paths
/// are relative to `root`, and none leads out of it. `root` may be a file if the receipt names one
/// file only. With the kinds of digests that files had.
pub fn verify(
    manifest: &ReceiptFile,
    root: &Root,
    threads: usize,
    watch: &Arc<Watch>,
) -> Result<(Verified, Vec<DigestOfList>), Fault> {
    let inside = match root {
        Root::Here(path) => Inside::new(&manifest.path, path)?,
        Root::Store(store, key) => Inside::Store(store.clone(), key.clone()),
    };
    survey(manifest, &inside, watch)?;
    let lines = Mutex::new(Lines::open(manifest)?);
    let (found, known) = (Mutex::new(Verified::default()), KindsKnown::default());
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1))
            .map(|_| scope.spawn(|| worker(&lines, (&inside, &known), &found, watch)))
            .collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .unwrap_or_else(|_| Err(Fault::new(Class::Local, "a thread of verify panicked")))
        })
    })?;
    match watch.stopping() {
        true => Err(Fault::interrupted()),
        false => Ok((found.into_inner().unwrap_or_else(PoisonError::into_inner), known.all())),
    }
}

/// Takes line after line until none is left.
fn worker(
    lines: &Mutex<Lines>,
    (inside, known): (&Inside, &KindsKnown),
    found: &Mutex<Verified>,
    watch: &Watch,
) -> Result<(), Fault> {
    let mut buffer = vec![0; READ_BYTES];
    while !watch.stopping() {
        let Some(entry) = lines.lock().unwrap_or_else(PoisonError::into_inner).next()? else {
            return Ok(());
        };
        let verdict = check(&entry, inside, known, &mut Read { buffer: &mut buffer, watch });
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        settle(verdict, entry, &mut found, watch);
    }
    Ok(())
}

fn settle(verdict: Verdict, entry: Entry, found: &mut Verified, watch: &Watch) {
    let path = entry.path.into_vec();
    let fault = match verdict {
        Verdict::Stopped => return,
        Verdict::Same(bytes) => {
            found.files += 1;
            found.bytes += bytes;
            watch.gauge.files_done.fetch_add(1, Relaxed);
            let digest = entry.digests.into_iter().next().map(|digest| digest.hex);
            let (kind, reason, extra) = (FileKind::File, None, ExtraSums::NONE);
            watch.tell(Notice::FileDone { path, kind, bytes, reason, digest, extra });
            return;
        }
        Verdict::Differs(bytes) => {
            found.differing += 1;
            found.bytes += bytes;
            let name = OsStr::from_bytes(&path).to_string_lossy();
            Fault::new(
                Class::Corrupt,
                format!(
                    "'{name}' does not match the receipt: its bytes differ (compared as {})",
                    tags(entry.digests.iter().flat_map(|digest| &digest.kinds))
                ),
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

/// Names of kinds, each once.
fn tags<'a>(kinds: impl Iterator<Item = &'a DigestOfList>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for kind in kinds {
        if !names.contains(&kind.tag()) {
            names.push(kind.tag());
        }
    }
    match names.split_last() {
        Some((last, [])) => last.to_string(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

fn check(entry: &Entry, inside: &Inside, known: &KindsKnown, read: &mut Read<'_>) -> Verdict {
    if let Inside::Store(store, key) = inside {
        let path = key.as_deref().unwrap_or(entry.path.as_bytes());
        return known.check(entry, &mut |digests| read_object((&**store, path), digests, read));
    }
    match inside.resolve(&entry.path) {
        Ok(path) => known.check(entry, &mut |digests| read_path(&path, digests, read)),
        Err(verdict) => verdict,
    }
}

/// Reads the whole receipt once, so that a wrong line is known before any file is read, and the
/// gauge knows how much there is.
fn survey(manifest: &ReceiptFile, inside: &Inside, watch: &Watch) -> Result<(), Fault> {
    let mut lines = Lines::open(manifest)?;
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
                manifest.shown
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
        let shown = &manifest.shown;
        return Err(Fault::usage(format!(
            "the receipt '{shown}' names no file: nothing to verify"
        )));
    }
    match above.filter(|_| !is_one_there) {
        Some(above) => Err(Fault::usage(format!(
            "no file of the receipt '{}' is there, but they are in the folder above: name that, \
             '{}'",
            manifest.shown,
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
            let mut receipt =
                Receipt::create(&path, ExtraDigests::NONE, Overwrite::Always).unwrap();
            for (name, digest) in lines {
                receipt.add(name, Some(digest), &ExtraSums::default()).unwrap();
            }
            receipt.finish().unwrap();
            path
        }

        fn verify(&self, manifest: &Path, root: &str) -> (Result<Verified, Fault>, Vec<Notice>) {
            let (sender, notices) = mpsc::channel();
            let watch = Arc::new(Watch::new(sender));
            let found = verify(&ReceiptFile::of(manifest), &Root::Here(self.at(root)), 2, &watch);
            drop(watch);
            (found.map(|(found, _)| found), notices.iter().collect())
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

    /// A list of another program is read for what it is, whichever kinds are in it, and what no
    /// kind agrees with is told with those that were tried.
    #[test]
    fn the_kind_of_a_list_is_found() {
        let files: [(&str, &[u8]); 3] = [("a", b"abc"), ("b", b"abc"), ("c", b"abc")];
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let blake3 = &blake3_hex(b"abc");
        let (md5, xxh128) =
            ("900150983cd24fb0d6963f7d28e17f72", "06b05ab6733a618578af5f94892f3950");
        let other = "0".repeat(64);
        let cases: [([&str; 3], &str, u64, &str); 7] = [
            ([sha256; 3], "SHA256", 0, ""),
            ([xxh128; 3], "XXH128", 0, ""),
            ([md5, xxh128, sha256], "MD5, XXH128 and SHA256", 0, ""),
            ([sha256, sha256, blake3], "SHA256 and BLAKE3", 0, ""),
            (["78af5f94892f3950", "44bc2cf5ad770999", "32d153ff"], "XXH3, XXH64 and XXH32", 0, ""),
            ([sha256, &other, sha256], "SHA256", 1, "BLAKE3 and SHA256"),
            (["024d0127", "352441c2", "00000000"], "ADLER32 and CRC32", 1, "CRC32C and XXH32"),
        ];
        for (digests, expect, differing, tried) in cases {
            let scene = Scene::new(&files);
            let names = ["a", "b", "c"];
            let lines: String =
                digests.iter().zip(names).map(|(hex, name)| format!("{hex}  {name}\n")).collect();
            fs::write(scene.at("list"), lines).unwrap();
            let (sender, notices) = mpsc::channel();
            let watch = Arc::new(Watch::new(sender));
            let root = Root::Here(scene.at("root"));
            let (found, kinds) =
                verify(&ReceiptFile::of(&scene.at("list")), &root, 1, &watch).unwrap();
            drop(watch);
            assert_eq!(tags(kinds.iter()), expect, "{digests:?}");
            assert_eq!((found.files, found.differing), (3 - differing, differing), "{digests:?}");
            let told = notices.iter().any(|notice| match notice {
                Notice::FileFailed { fault, .. } => fault.text.contains(tried),
                _ => false,
            });
            assert_eq!(told, differing > 0, "{digests:?}");
        }
    }

    /// A digest besides is a list of its own, so that each program finds only lines that it knows.
    #[test]
    fn digests_besides_have_lists_of_their_own() {
        let scene = Scene::new(&[("a", b"abc")]);
        let also = ExtraDigests::parse("md5,adler32").unwrap();
        let mut receipt = Receipt::create(&scene.at("sums"), also, Overwrite::Never).unwrap();
        let sums = crate::work::extra::of(also, b"abc");
        receipt.add(b"a", Some(&blake3_hex(b"abc")), &sums).unwrap();
        receipt.finish().unwrap();
        for (name, expect) in [
            ("sums", format!("{}  a\n", blake3_hex(b"abc"))),
            ("sums.md5", "MD5 (a) = 900150983cd24fb0d6963f7d28e17f72\n".into()),
            ("sums.adler32", "ADLER32 (a) = 024d0127\n".into()),
        ] {
            assert_eq!(fs::read_to_string(scene.at(name)).unwrap(), expect);
            let (found, _) = scene.verify(&scene.at(name), "root");
            assert_eq!(found.unwrap().files, 1, "{name}");
        }
        fs::remove_file(scene.at("sums")).unwrap();
        let fault = Receipt::create(&scene.at("sums"), also, Overwrite::Never).unwrap_err();
        assert!(fault.text.contains("sums.adler32' exists"), "{fault}");
        assert_eq!(fs::read_dir(scene.folder.path()).unwrap().count(), 3, "nothing is left behind");
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
        let mut receipt = Receipt::create(&path, ExtraDigests::NONE, Overwrite::Never).unwrap();
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
        let mut receipt = Receipt::create(&path, ExtraDigests::NONE, Overwrite::Never).unwrap();
        receipt.add(b"a", Some(&blake3_hex(b"")), &ExtraSums::default()).unwrap();
        drop(receipt);
        assert_eq!(fs::read_dir(scene.folder.path()).unwrap().count(), 0, "nothing is left behind");
        Receipt::create(&path, ExtraDigests::NONE, Overwrite::Never).unwrap().finish().unwrap();
        assert_eq!(fs::read_dir(scene.folder.path()).unwrap().count(), 1);
        let fault = Receipt::create(&path, ExtraDigests::NONE, Overwrite::Never).unwrap_err();
        assert!(fault.text.contains("exists: name another file"), "{}", fault.text);
        assert!(Receipt::create(&path, ExtraDigests::NONE, Overwrite::Always).is_ok());
        assert!(
            Receipt::create(&scene.at("no/such"), ExtraDigests::NONE, Overwrite::Never).is_err()
        );
        assert!(
            Receipt::create(scene.folder.path(), ExtraDigests::NONE, Overwrite::Always).is_err()
        );
    }
}
