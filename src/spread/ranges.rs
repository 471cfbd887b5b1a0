//! Ranges of a large file: each is a file of its own until all are there, and then they are put
//! together. Nothing is written into a file that another attempt writes to, so that nothing of an
//! attempt that is taken for lost can come into the file late.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};
use rustix::fs::{Timespec, Timestamps};

use super::records::{Range, Whole};
use analysis::shards::overview::Waits;
use base::fault::{Class, Fault};
use base::units::{Nanos, Tick};
use mover::io::clock;

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
    source: &Path,
    staged: &Path,
    (progress, pace): (&Progress, &Pace),
) -> Result<(String, Waits), Fault> {
    let read = |why: io::Error| Fault::io("read", source, &why);
    let write = |why: io::Error| Fault::write("write", staged, &why);
    let from = File::open(source).map_err(read)?;
    unchanged(&from, source, range)?;
    let to = new_file(staged)?;
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
        to.write_all_at(&buffer[..wanted], done).map_err(write)?;
        waits.source_s += filled.since(began).seconds();
        waits.cpu_s += hashed.since(filled).seconds();
        waits.destination_s += clock::now().since(hashed).seconds();
        done += wanted as u64;
        pace.spend(wanted as u64, began);
        progress.bytes.fetch_add(wanted as u64, Relaxed);
    }
    let began = clock::now();
    to.sync_all().map_err(write)?;
    waits.destination_s += clock::now().since(began).seconds();
    unchanged(&from, source, range)?;
    Ok((hex(&hasher.finalize_non_root()), waits))
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

/// Puts ranges together: by the file system itself where it can, without the bytes passing here.
pub(super) fn assemble(
    whole: &Whole,
    parts: &[PathBuf],
    digests: &[String],
    staged: &Path,
    progress: &Progress,
) -> Result<(String, Waits), Fault> {
    let write = |why: io::Error| Fault::write("write", staged, &why);
    let began = clock::now();
    let to = new_file(staged)?;
    for part in parts {
        let from = File::open(part).map_err(|why| Fault::io("open", part, &why))?;
        let mut left = from.metadata().map_err(|why| Fault::io("look at", part, &why))?.len();
        while left > 0 {
            if progress.stop.load(Relaxed) {
                return Err(Fault::interrupted());
            }
            let most = left.min(COPIED_AT_ONCE) as usize;
            match rustix::fs::copy_file_range(&from, None, &to, None, most) {
                Ok(0) => return Err(Fault::io("read", part, &io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => left -= count as u64,
                Err(why) => return Err(write(why.into())),
            }
        }
    }
    if to.metadata().map_err(write)?.len() != whole.size {
        return Err(Fault::new(Class::Corrupt, format!("'{}' lacks a range", staged.display())));
    }
    if let Some(mode) = whole.mode {
        to.set_permissions(Permissions::from_mode(mode & 0o777)).map_err(write)?;
        let time = Timespec { tv_sec: whole.mtime_s, tv_nsec: whole.mtime_ns.into() };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::futimens(&to, &times).map_err(|why| write(why.into()))?;
    }
    to.sync_all().map_err(write)?;
    let digest = merged(digests).ok_or_else(|| {
        Fault::new(Class::Corrupt, format!("a digest of '{}' is no digest", staged.display()))
    })?;
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

fn new_file(path: &Path) -> Result<File, Fault> {
    // It may be there from a call whose answer was lost.
    let mut options = OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    opened.map_err(|why| Fault::write("write", path, &why))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn value(hex: &str) -> Option<ChainingValue> {
    Some(*blake3::Hash::from_hex(hex).ok()?.as_bytes())
}

const BUFFER_BYTES: usize = 1 << 20;
const COPIED_AT_ONCE: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::shards::plan::{Cost, Cutting, ranges};

    #[test]
    fn ranges_have_the_digest_of_the_file() {
        let scratch = tempfile::tempdir().unwrap();
        let source = scratch.path().join("source");
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
                let part = scratch.path().join(format!("part-{number}"));
                let (offset, len, size) = (cut.offset, cut.len, bytes as u64);
                let range = Range { offset, len, size, mtime_s, mtime_ns };
                let (digest, _) =
                    copy_range(&range, &source, &part, (&progress, &Pace::default())).unwrap();
                parts.push(part);
                digests.push(digest);
            }
            let staged = scratch.path().join("whole");
            let (size, mode) = (bytes as u64, Some(0o640));
            let whole = Whole { parts: Vec::new(), size, mtime_s, mtime_ns, mode };
            let (digest, _) = assemble(&whole, &parts, &digests, &staged, &progress).unwrap();
            assert_eq!(digest, blake3::hash(&content).to_hex().to_string(), "{bytes}");
            assert_eq!(std::fs::read(&staged).unwrap(), content);
            let times = std::fs::metadata(&staged).unwrap();
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
        let progress = Progress::default();
        let part = scratch.path().join("part");
        let ran = copy_range(&range, &source, &part, (&progress, &Pace::default()));
        assert_eq!(ran.unwrap_err().class, Class::SourceChanged);
    }
}
