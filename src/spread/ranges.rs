//! Ranges of a large file: each is a file of its own until all are there, and then they are put
//! together. Nothing is written into a file that another attempt writes to, so that nothing of an
//! attempt that is taken for lost can come into the file late.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::destination::{Destination, FileLook, Reply, Spot, Step, strange};
use super::records::{Range, Whole, below};
use super::staged_file::StagedFile;
use analysis::shards::overview::Waits;
use base::fault::{Class, Fault};
use base::settings::Links;
use base::units::{Nanos, Tick};
use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};
use mover::io::clock;
use mover::io::disk::Disk;
use mover::io::volume::{Access, Cache, Volume};

/// How far a copy of ranges is, and whether it is to stop.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) bytes: AtomicU64,
    pub(super) stop: AtomicBool,
}

/// What a worker may move in a second, over all its copies: each of them keeps to it for itself,
/// but for its first request.
#[derive(Debug, Default)]
pub(super) struct Pace {
    bytes_per_second: Option<f64>,
    allowed_at: Mutex<Tick>,
}

impl Pace {
    pub(super) fn new(bytes_per_second: Option<f64>) -> Pace {
        Pace { bytes_per_second, allowed_at: Mutex::default() }
    }

    /// So many bytes were moved since then. Time that was not used before is lost.
    pub(super) fn spend(&self, bytes: u64, since: Tick) {
        let Some(rate) = self.bytes_per_second else { return };
        let takes = Nanos((bytes as f64 / rate.max(1.0) * 1e9) as u64);
        let mut allowed_at = self.allowed_at.lock().unwrap_or_else(PoisonError::into_inner);
        *allowed_at = (*allowed_at).max(since).after(takes);
    }

    /// Waits until more may be moved, or it is asked to stop.
    pub(super) fn wait(&self, stop: &AtomicBool) {
        loop {
            let allowed_at = *self.allowed_at.lock().unwrap_or_else(PoisonError::into_inner);
            let now = clock::now();
            if now >= allowed_at || stop.load(Relaxed) {
                return;
            }
            thread::sleep(Duration::from(allowed_at.since(now)).min(LOOK_EVERY));
        }
    }
}

/// How often a stop is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Copies a range into a file of its own, and returns the digest of its part of the file's tree.
pub(super) fn copy_range(
    range: &Range,
    (folder, name, links): (&Path, &[u8], Links),
    mut to: StagedFile<'_>,
    (progress, pace): (&Progress, &Pace),
) -> Result<(String, Waits), Fault> {
    let source = &below(folder, name);
    let read = |why: io::Error| Fault::io("read", source, &why);
    let from = opened(folder, name, links)?;
    unchanged(&from, source, range)?;
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(range.offset);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut waits = Waits::default();
    let mut done = 0;
    while done < range.len {
        pace.wait(&progress.stop);
        if progress.stop.load(Relaxed) {
            return Err(Fault::interrupted());
        }
        let wanted = (range.len - done).min(BUFFER_BYTES as u64) as usize;
        let began = clock::now();
        from.read_exact_at(&mut buffer[..wanted], range.offset + done).map_err(|why| match why
            .kind()
        {
            io::ErrorKind::UnexpectedEof => changed(source),
            _ => read(why),
        })?;
        let filled = clock::now();
        hasher.update(&buffer[..wanted]);
        let hashed = clock::now();
        to.write(&buffer[..wanted])?;
        waits.source_s += filled.since(began).seconds();
        waits.cpu_s += hashed.since(filled).seconds();
        waits.destination_s += clock::now().since(hashed).seconds();
        done += wanted as u64;
        pace.spend(wanted as u64, began);
        progress.bytes.fetch_add(wanted as u64, Relaxed);
    }
    unchanged(&from, source, range)?;
    let began = clock::now();
    to.finish()?;
    waits.destination_s += clock::now().since(began).seconds();
    Ok((hex(&hasher.finalize_non_root()), waits))
}

/// The file as a copy opens it: what has become a link since it was planned is not followed, unless
/// links are.
fn opened(folder: &Path, name: &[u8], links: Links) -> Result<File, Fault> {
    if links == Links::Follow {
        let path = below(folder, name);
        return File::open(&path).map_err(|why| Fault::io("read", &path, &why));
    }
    let file = Disk::open(folder)?.open(name, Access::Read { cache: Cache::Through })?;
    let file = file.fd().try_clone_to_owned();
    file.map(File::from).map_err(|why| Fault::io("read", &below(folder, name), &why))
}

/// The file as it was planned, also while it was read.
fn unchanged(file: &File, path: &Path, range: &Range) -> Result<(), Fault> {
    let found = file.metadata().map_err(|why| Fault::io("look at", path, &why))?;
    let times = (found.len(), found.mtime(), found.mtime_nsec());
    match times == (range.size, range.mtime_s, i64::from(range.mtime_ns)) {
        true => Ok(()),
        false => Err(changed(path)),
    }
}

fn changed(path: &Path) -> Fault {
    let text = format!("'{}' changed after it was planned: copy it again", path.display());
    Fault::new(Class::SourceChanged, text)
}

/// Has ranges put together at the destination, and merges their digests.
pub(super) fn assemble(
    whole: &Whole,
    digests: &[String],
    (destination, staged): (&mut Destination, &Spot),
    progress: &Progress,
) -> Result<(String, Waits), Fault> {
    let began = clock::now();
    let digest = merged(digests).ok_or_else(|| {
        let of = destination.shown(staged);
        Fault::new(Class::Corrupt, format!("a digest of '{of}' is no digest"))
    })?;
    let mut at = 0;
    while at < whole.size {
        if progress.stop.load(Relaxed) {
            return Err(Fault::interrupted());
        }
        let (parts, staged) = (whole.parts.clone(), staged.clone());
        match destination.ask(&Step::Join { parts, staged, at })? {
            Reply::Joined(until) if until > at => at = until,
            other => return Err(strange(&other)),
        }
    }
    let Whole { size, mtime_s, mtime_ns, .. } = *whole;
    let look = whole.mode.map(|mode| FileLook { mode, mtime_s, mtime_ns });
    match destination.ask(&Step::Complete { staged: staged.clone(), size, look })? {
        Reply::Done => {}
        other => return Err(strange(&other)),
    }
    let destination_s = clock::now().since(began).seconds();
    Ok((digest, Waits { destination_s, ..Waits::default() }))
}

/// The digest of a file from those of its ranges, all but the last of which have one length.
fn merged(digests: &[String]) -> Option<String> {
    let values: Vec<ChainingValue> = digests.iter().map(|hex| value(hex)).collect::<Option<_>>()?;
    let split = left_count(values.len())?;
    let (left, right) = values.split_at(split);
    let root = merge_subtrees_root(&subtree(left)?, &subtree(right)?, Mode::Hash);
    Some(root.to_hex().to_string())
}

fn subtree(values: &[ChainingValue]) -> Option<ChainingValue> {
    match values {
        [] => None,
        [one] => Some(*one),
        _ => {
            let (left, right) = values.split_at(left_count(values.len())?);
            Some(merge_subtrees_non_root(&subtree(left)?, &subtree(right)?, Mode::Hash))
        }
    }
}

/// The largest power of two that is less.
fn left_count(count: usize) -> Option<usize> {
    (count > 1).then(|| 1 << (count - 1).ilog2())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn value(hex: &str) -> Option<ChainingValue> {
    Some(*blake3::Hash::from_hex(hex).ok()?.as_bytes())
}

const BUFFER_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::super::destination::{DestinationFolder, Name};
    use super::*;
    use analysis::shards::plan::{Cost, Cutting, ranges};

    fn part(path: &Path) -> StagedFile<'static> {
        StagedFile::here(File::create(path).unwrap(), path.to_path_buf())
    }

    #[test]
    fn ranges_have_the_digest_of_the_file() {
        let scratch = tempfile::tempdir().unwrap();
        let source = scratch.path().join("source");
        let (folder, id) = (Name::from(scratch.path()), "1f".to_string());
        let place = DestinationFolder { folder, id, token: "2e".to_string() };
        let mut destination = Destination::here(place.clone());
        destination.ask(&Step::Take { job: "/job".into() }).unwrap();
        std::fs::create_dir_all(place.path(&Spot::Parts)).unwrap();
        let staged = Spot::Staged { attempt: "9.1".to_string(), name: Name(b"staged".to_vec()) };
        std::fs::create_dir(place.path(&staged.above())).unwrap();
        for bytes in [2049_usize, 4096, 10_000, 1 << 20, 3_000_001] {
            let content: Vec<u8> = (0..bytes).map(|i| (i * i / 7) as u8).collect();
            std::fs::write(&source, &content).unwrap();
            let found = std::fs::metadata(&source).unwrap();
            let (mtime_s, mtime_ns) = (found.mtime(), found.mtime_nsec() as u32);
            let cutting = Cutting::new(Cost::UNKNOWN, 2);
            let cutting = Cutting { range_above: Some(bytes as u64 / 3), ..cutting };
            let progress = Progress::default();
            let (mut parts, mut digests) = (Vec::new(), Vec::new());
            for (number, cut) in ranges(bytes as u64, &cutting).unwrap().into_iter().enumerate() {
                let number = number as u32;
                let part = part(&place.path(&Spot::Part(number)));
                let (offset, len, size) = (cut.offset, cut.len, bytes as u64);
                let range = Range { offset, len, size, mtime_s, mtime_ns };
                let from = (scratch.path(), &b"source"[..], Links::Copy);
                let pace = (&progress, &Pace::default());
                let (digest, _) = copy_range(&range, from, part, pace).unwrap();
                parts.push(number);
                digests.push(digest);
            }
            let (size, mode) = (bytes as u64, Some(0o640));
            let whole = Whole { parts, size, mtime_s, mtime_ns, mode };
            let at = (&mut destination, &staged);
            let (digest, _) = assemble(&whole, &digests, at, &progress).unwrap();
            assert_eq!(digest, blake3::hash(&content).to_hex().to_string(), "{bytes}");
            // Some of it again, as if an answer had been lost.
            let at = bytes as u64 / 2;
            let again = Step::Join { parts: whole.parts.clone(), staged: staged.clone(), at };
            assert_eq!(destination.ask(&again), Ok(Reply::Joined(size)));
            assert_eq!(std::fs::read(place.path(&staged)).unwrap(), content);
            let look = None;
            let short = Step::Complete { staged: staged.clone(), size: size + 1, look };
            assert_eq!(destination.ask(&short).unwrap_err().class, Class::Corrupt);
            let last = Some(FileLook { mode: 0o640, mtime_s, mtime_ns });
            let complete = Step::Complete { staged: staged.clone(), size, look: last };
            assert_eq!(destination.ask(&complete), Ok(Reply::Done));
            let times = std::fs::metadata(place.path(&staged)).unwrap();
            assert_eq!((times.mtime(), times.mode() & 0o777), (mtime_s, 0o640));
        }
    }

    /// Three copies of 600 bytes at 1000 a second, the second 2 s after the first has ended.
    #[test]
    fn a_pace_is_of_all_copies() {
        let pace = Pace::new(Some(1000.0));
        let allowed_ms = || pace.allowed_at.lock().unwrap().0 / 1_000_000;
        for (at_ms, expect_ms) in [(1000, 1600), (1100, 2200), (4200, 4800)] {
            pace.spend(600, Tick(at_ms * 1_000_000));
            assert_eq!(allowed_ms(), expect_ms);
        }
        Pace::new(None).spend(1 << 40, Tick(0));
        Pace::new(Some(1.0)).wait(&AtomicBool::new(true));
    }

    #[test]
    fn a_changed_file_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        let source = scratch.path().join("source");
        std::fs::write(&source, "abc").unwrap();
        let range = Range { offset: 0, len: 3, size: 4, mtime_s: 0, mtime_ns: 0 };
        let (progress, pace) = (Progress::default(), Pace::default());
        let copy = |range: &Range, name: &[u8], links| {
            let part = part(&scratch.path().join("part"));
            copy_range(range, (scratch.path(), name, links), part, (&progress, &pace)).map(drop)
        };
        let ran = copy(&range, b"source", Links::Copy);
        assert_eq!(ran.unwrap_err().class, Class::SourceChanged);
        // It has become a link to another file, of the same size and time.
        let found = std::fs::metadata(&source).unwrap();
        let (mtime_s, mtime_ns) = (found.mtime(), found.mtime_nsec() as u32);
        let range = Range { size: 3, mtime_s, mtime_ns, ..range };
        std::os::unix::fs::symlink(&source, scratch.path().join("link")).unwrap();
        assert!(copy(&range, b"link", Links::Copy).unwrap_err().text.contains("symbolic link"));
        assert_eq!(copy(&range, b"link", Links::Follow), Ok(()));
    }
}
