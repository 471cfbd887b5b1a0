//! The receipt of a transfer: each file's digest and name. It is written while files finish and
//! gets its final name when the transfer has ended; `verify` reads the files again and compares
//! them with it.
//!
//! A line is what `b3sum --check` reads, `<hex>  <path>`, or `crc64nvme:<hex>  <path>`. A path with
//! a backslash, newline or carriage return is escaped and the line begins with a backslash, as
//! b3sum does it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crc_fast::CrcAlgorithm;

use crate::pump::watch::Watch;
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
    pub fn add(&mut self, path: &[u8], digest: &str) -> Result<(), Fault> {
        let written = self.file.write_all(&line(path, digest));
        written.map_err(|why| Fault::io("write the receipt", &self.path, &why))
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
/// are relative to `root`, and none leads out of it. `root` may be a file if the receipt names one
/// file only.
pub fn verify(
    manifest: &Path,
    root: &Path,
    threads: usize,
    watch: &Arc<Watch>,
) -> Result<Verified, Fault> {
    let inside = Inside::new(manifest, root)?;
    survey(manifest, &inside, watch)?;
    let lines = Mutex::new(Lines::open(manifest)?);
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
            watch.tell(Notice::FileDone { path, bytes, digest: Some(entry.digest) });
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

fn check(entry: &Entry, inside: &Inside, buffer: &mut [u8], watch: &Watch) -> Verdict {
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
    let mut digest = Digest::of_length(entry.digest.len());
    let mut bytes = 0;
    loop {
        match file.read(buffer) {
            Ok(0) => break,
            Ok(read) => {
                digest.update(&buffer[..read]);
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
    match digest.hex() == entry.digest {
        true => Verdict::Same(bytes),
        false => Verdict::Differs(bytes),
    }
}

/// Reads the whole receipt once, so that a wrong line is known before any file is read, and the
/// gauge knows how much there is.
fn survey(manifest: &Path, inside: &Inside, watch: &Watch) -> Result<(), Fault> {
    let mut lines = Lines::open(manifest)?;
    let mut files = 0;
    let mut is_one_there = false;
    let mut above = None;
    while let Some(entry) = lines.next()? {
        if watch.stopping() {
            return Err(Fault::interrupted());
        }
        files += 1;
        if files > 1 && matches!(inside, Inside::File(_)) {
            return Err(Fault::usage(format!(
                "the receipt '{}' names several files: name the folder that they are in",
                manifest.display()
            )));
        }
        let len = inside.resolve(&entry.path).ok().and_then(|path| fs::metadata(path).ok());
        is_one_there |= len.is_some();
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

/// What the receipt's paths are relative to.
#[derive(Debug)]
enum Inside {
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

/// The lines of a receipt, one at a time: a receipt of a million files is never in memory.
struct Lines {
    path: PathBuf,
    reader: BufReader<File>,
    number: u64,
}

/// One line: a digest in hexadecimal, whose length says which it is, and a path that stays inside.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    digest: String,
    path: OsString,
}

impl Lines {
    fn open(path: &Path) -> Result<Lines, Fault> {
        let file = File::open(path).map_err(|why| Fault::io("open", path, &why))?;
        Ok(Lines { path: path.to_path_buf(), reader: BufReader::new(file), number: 0 })
    }

    /// `Ok(None)` at the end. Empty lines are skipped.
    fn next(&mut self) -> Result<Option<Entry>, Fault> {
        loop {
            let mut line = Vec::new();
            let limited = &mut (&mut self.reader).take(LINE_BYTES_MAX);
            let read = limited.read_until(b'\n', &mut line);
            let read = read.map_err(|why| Fault::io("read", &self.path, &why))?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            if line.is_empty() {
                continue;
            }
            return match parse(line) {
                Ok(entry) => Ok(Some(entry)),
                Err(why) => Err(Fault::usage(format!(
                    "'{}' is no receipt: line {}: {why}",
                    self.path.display(),
                    self.number
                ))),
            };
        }
    }
}

/// One line of a receipt, newline included.
fn line(path: &[u8], digest: &str) -> Vec<u8> {
    let mut line = Vec::with_capacity(path.len() + digest.len() + 16);
    if path.iter().any(|byte| ESCAPES.iter().any(|(plain, _)| plain == byte)) {
        line.push(b'\\');
    }
    if digest.len() == CRC_HEX {
        line.extend_from_slice(CRC_PREFIX);
    }
    line.extend_from_slice(digest.as_bytes());
    line.extend_from_slice(b"  ");
    for byte in path {
        match ESCAPES.iter().find(|(plain, _)| plain == byte) {
            Some((_, letter)) => line.extend_from_slice(&[b'\\', *letter]),
            None => line.push(*byte),
        }
    }
    line.push(b'\n');
    line
}

fn parse(line: &[u8]) -> Result<Entry, &'static str> {
    let (escaped, line) = match line.strip_prefix(b"\\") {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (length, line) = match line.strip_prefix(CRC_PREFIX) {
        Some(rest) => (CRC_HEX, rest),
        None => (BLAKE3_HEX, line),
    };
    let (digest, path) = line.split_at_checked(length).ok_or("it is too short for a digest")?;
    if !digest.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Err("it does not begin with a digest (BLAKE3, or crc64nvme:)");
    }
    let path = path.strip_prefix(b"  ").ok_or("two blanks do not follow the digest")?;
    let path = if escaped { unescape(path)? } else { path.to_vec() };
    let path = stays_inside(OsString::from_vec(path))?;
    Ok(Entry { digest: digest.iter().map(|byte| char::from(*byte)).collect(), path })
}

fn unescape(path: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut plain = Vec::with_capacity(path.len());
    let mut bytes = path.iter();
    while let Some(byte) = bytes.next() {
        if *byte != b'\\' {
            plain.push(*byte);
            continue;
        }
        let known =
            bytes.next().and_then(|after| ESCAPES.iter().find(|(_, letter)| letter == after));
        plain.push(known.ok_or("its path has an unknown escape")?.0);
    }
    Ok(plain)
}

/// A receipt comes from elsewhere: its paths must not reach files that were never copied.
fn stays_inside(path: OsString) -> Result<OsString, &'static str> {
    let bytes = path.as_bytes();
    if bytes.is_empty() || bytes.contains(&0) {
        return Err("its path is no name");
    }
    let inner = |part: Component| matches!(part, Component::Normal(_) | Component::CurDir);
    match Path::new(&path).components().all(inner) {
        true => Ok(path),
        false => Err("its path is absolute or has '..': it would lead out of the folder"),
    }
}

/// A name beside the receipt's that nobody else uses.
fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.partial", std::process::id()));
    path.with_file_name(name)
}

enum Digest {
    Blake3(Box<blake3::Hasher>),
    Crc64(Box<crc_fast::Digest>),
}

impl Digest {
    /// The digest whose hexadecimal form has this length.
    fn of_length(hex: usize) -> Digest {
        match hex {
            CRC_HEX => Digest::Crc64(Box::new(crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme))),
            _ => Digest::Blake3(Box::default()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Digest::Blake3(hasher) => {
                hasher.update(bytes);
            }
            Digest::Crc64(digest) => digest.update(bytes),
        }
    }

    fn hex(self) -> String {
        match self {
            Digest::Blake3(hasher) => hasher.finalize().to_hex().to_string(),
            Digest::Crc64(digest) => format!("{:016x}", digest.finalize()),
        }
    }
}

const CRC_PREFIX: &[u8] = b"crc64nvme:";
const CRC_HEX: usize = 16;
const BLAKE3_HEX: usize = 64;
/// A byte that is escaped, and the letter that represents it after a backslash.
const ESCAPES: [(u8, u8); 3] = [(b'\\', b'\\'), (b'\n', b'n'), (b'\r', b'r')];
/// Two hexadecimal digests and a path whose every byte is escaped are shorter.
const LINE_BYTES_MAX: u64 = 16 << 10;
const READ_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use base::limits::PATH_BYTES_MAX;
    use proptest::prelude::*;
    use std::sync::mpsc;

    const _: () = assert!(2 * PATH_BYTES_MAX + 2 * BLAKE3_HEX < LINE_BYTES_MAX as usize);

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
                receipt.add(name, digest).unwrap();
            }
            receipt.finish().unwrap();
            path
        }

        fn verify(&self, manifest: &Path, root: &str) -> (Result<Verified, Fault>, Vec<Notice>) {
            let (sender, notices) = mpsc::channel();
            let watch = Arc::new(Watch::new(sender));
            let found = verify(manifest, &self.at(root), 2, &watch);
            drop(watch);
            (found, notices.iter().collect())
        }
    }

    #[test]
    fn lines_are_those_of_b3sum() {
        let hex = blake3_hex(b"x");
        let cases: [(&[u8], &str, String); 4] = [
            (b"a/b c", &hex, format!("{hex}  a/b c\n")),
            (b"a\\b\nc\r", &hex, format!("\\{hex}  a\\\\b\\nc\\r\n")),
            (b"a", "0123456789abcdef", "crc64nvme:0123456789abcdef  a\n".into()),
            (b"\\", "0123456789abcdef", "\\crc64nvme:0123456789abcdef  \\\\\n".into()),
        ];
        for (path, digest, expect) in cases {
            assert_eq!(line(path, digest), expect.as_bytes());
        }
        assert_eq!(line(b"\xff", &hex), [hex.as_bytes(), b"  \xff\n"].concat(), "names are bytes");
    }

    proptest! {
        #[test]
        fn lines_come_back(path in prop::collection::vec(1u8.., 1..40), crc in any::<bool>()) {
            let digest = if crc { "0123456789abcdef".to_string() } else { blake3_hex(&path) };
            let line = line(&path, &digest);
            prop_assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            let path = OsString::from_vec(path);
            match stays_inside(path.clone()) {
                Ok(_) => {
                    prop_assert_eq!(parse(&line[..line.len() - 1]), Ok(Entry { digest, path }));
                }
                Err(_) => prop_assert!(parse(&line[..line.len() - 1]).is_err()),
            }
        }

        #[test]
        fn rubbish_is_refused_without_a_panic(line in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = parse(&line);
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
        (0..1000).for_each(|_| receipt.add(b"before", "00").unwrap());
        receipt.restart().unwrap();
        receipt.add(b"after", "11").unwrap();
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
        receipt.add(b"a", &blake3_hex(b"")).unwrap();
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
