//! A worker's calls, carried out on the job folder and at the destination. What each of them does
//! is said in `analysis::shards::worker`, and why in docs/SPREAD.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD};
use serde::Serialize;

use super::copying::Parts;
use super::ending::{Line, each_line};
use super::folder::{JobFolder, Part, read_json, replace};
use super::ledgers::Noted;
use super::records::{
    Beat, Committed, Failed, ReceiptLine, Shard, ShardDone, Whole, below, text_of,
};
use analysis::shards::given::{self, Turns};
use analysis::shards::names;
use analysis::shards::overview::Waits;
use analysis::shards::worker::Answer;
use analysis::shards::{Claim, Held};
use base::fault::{Class, Fault};

/// The storage, as one worker sees it.
#[derive(Debug)]
pub(super) struct Storage {
    pub(super) folder: JobFolder,
    /// The name of this process among workers.
    pub(super) me: String,
    pub(super) host: String,
    pub(super) work: Option<ShardWork>,
    /// Attempts whose staging folder was there when they were fenced.
    had_staging: BTreeSet<Claim>,
    /// What the last call failed at.
    pub(super) trouble: Option<Fault>,
}

/// A shard that this worker has.
#[derive(Debug)]
pub(super) struct ShardWork {
    pub(super) claim: Claim,
    pub(super) names: Vec<Vec<u8>>,
    pub(super) shard: Shard,
    pub(super) source: PathBuf,
    prefix: Vec<u8>,
    /// What earlier attempts have noted.
    noted: Option<Noted>,
    /// What earlier attempts have given away, and what was predicted of all that is.
    pub(super) given: BTreeSet<Vec<u8>>,
    pub(super) given_ns: u64,
    surveyed: usize,
    /// What is still to be copied.
    pub(super) left: BTreeMap<Vec<u8>, u64>,
    pub(super) staged: BTreeMap<u64, Committed>,
    committed: BTreeMap<u64, Committed>,
    pub(super) failed: BTreeMap<u64, Failed>,
    kept: u64,
    moved_files: u64,
    moved_bytes: u64,
    ledger: Option<File>,
    /// Folders whose new names are not on stable storage yet.
    unsynced: BTreeSet<PathBuf>,
    pub(super) began_s: f64,
    pub(super) waits: Waits,
}

impl ShardWork {
    /// The name of an item in the staging folder.
    fn staged_name(&self, item: u64) -> Option<Vec<u8>> {
        match (&self.shard.range, &self.shard.whole) {
            (None, None) => self.names.get(item as usize).cloned(),
            _ => Some(STAGED.to_vec()),
        }
    }

    /// What this attempt has staged.
    pub(super) fn copied_files(&self) -> u64 {
        self.moved_files + self.staged.len() as u64
    }

    pub(super) fn counts(&self) -> (u64, u64, u64) {
        let bytes = self.committed.values().map(|committed| committed.bytes).sum();
        (self.committed.len() as u64, bytes, self.failed.len() as u64)
    }
}

impl Storage {
    pub(super) fn new(folder: JobFolder, me: &str) -> Storage {
        let host = super::folder::hostname();
        let had_staging = BTreeSet::new();
        Storage { folder, me: me.to_string(), host, work: None, had_staging, trouble: None }
    }

    /// A failed call, as the worker is told of it.
    pub(super) fn or_trouble(&mut self, answer: Result<Answer, Fault>) -> Answer {
        answer.unwrap_or_else(|fault| {
            let class = fault.class;
            self.trouble = Some(fault);
            Answer::Trouble(class)
        })
    }

    pub(super) fn beat(&self, beat: &Beat) -> Result<Answer, Fault> {
        let text = serde_json::to_vec(beat).unwrap_or_default();
        replace(&self.folder.part(Part::Workers), &self.me, &text).map(|()| Answer::Done)
    }

    pub(super) fn control(&self) -> Result<Answer, Fault> {
        Ok(yes(!self.folder.control()?.is_cancelled))
    }

    pub(super) fn list_open(&self) -> Result<Answer, Fault> {
        let names = self.folder.some_names(Part::Open, LISTED_MAX)?;
        Ok(Answer::Open(names.iter().filter_map(|name| names::parse_open(name)).collect()))
    }

    pub(super) fn count(&self) -> Result<Answer, Fault> {
        let total = self.folder.plan()?.planned;
        let done = self.folder.done()?;
        let done: Vec<_> = done.iter().map(|(held, gave)| (held.claim.shard, *gave)).collect();
        let (count, known) = given::count(&done, total.unwrap_or(0));
        Ok(Answer::Count { done: count, total: total.map(|_| known) })
    }

    pub(super) fn list_claims(&self) -> Result<Answer, Fault> {
        let names = self.folder.names(Part::Claims)?;
        Ok(Answer::Claims(names.iter().filter_map(|name| names::parse_held(name)).collect()))
    }

    pub(super) fn read_beats(&self, workers: &[String]) -> Answer {
        let read = |worker: &String| {
            let path = self.folder.file(Part::Workers, worker);
            (worker.clone(), read_json::<Beat>(&path).ok().map(|beat| beat.beat))
        };
        Answer::Beats(workers.iter().map(read).collect())
    }

    pub(super) fn claim(&self, shard: u32, attempts: u32) -> Result<Answer, Fault> {
        let claim = Claim { shard, attempt: attempts + 1 };
        let from = self.folder.file(Part::Open, &names::open(shard, attempts));
        self.rename(&from, &self.claim_file(claim, &self.me))
    }

    pub(super) fn is_mine(&self, claim: Claim) -> Result<Answer, Fault> {
        is_there(&self.claim_file(claim, &self.me))
    }

    pub(super) fn is_done(&self, claim: Claim, gave: Turns) -> Result<Answer, Fault> {
        is_there(&self.done_file(claim, gave))
    }

    fn done_file(&self, claim: Claim, gave: Turns) -> PathBuf {
        self.folder.file(Part::Done, &names::done(claim, &self.me, gave))
    }

    pub(super) fn expire(&self, held: &Held) -> Result<Answer, Fault> {
        let Held { claim, worker } = held;
        let open = self.folder.file(Part::Open, &names::open(claim.shard, claim.attempt));
        self.rename(&self.claim_file(*claim, worker), &open)
    }

    pub(super) fn release(&mut self, claim: Claim) -> Result<Answer, Fault> {
        let mine = Held { claim, worker: self.me.clone() };
        let answer = self.expire(&mine)?;
        self.work = None;
        Ok(answer)
    }

    pub(super) fn finish(&mut self, claim: Claim, gave: Turns) -> Result<Answer, Fault> {
        let done = self.done_file(claim, gave);
        let answer = self.rename(&self.claim_file(claim, &self.me), &done)?;
        let whole = self.work.as_ref().and_then(|work| work.shard.whole.as_ref());
        if let (Answer::Moved, Some(whole)) = (&answer, whole) {
            // The rest goes with the job.
            for part in &whole.parts {
                let _ = fs::remove_file(part_file(&self.folder.staging(), *part));
            }
        }
        Ok(answer)
    }

    /// Opens the shards that put a file together all of whose ranges are done.
    pub(super) fn open_ready(&self) -> Result<Answer, Fault> {
        let waiting = self.folder.names(Part::Waiting)?;
        if waiting.is_empty() {
            return Ok(Answer::Opened(0));
        }
        let done = self.folder.done()?;
        let done: BTreeSet<u32> = done.iter().map(|(held, _)| held.claim.shard).collect();
        let mut opened = 0;
        for name in waiting {
            let Some((number, _)) = names::parse_open(&name) else { continue };
            let parts = self.folder.shard_head(number)?.whole.unwrap_or_default().parts;
            if parts.iter().all(|part| done.contains(part)) {
                let from = self.folder.file(Part::Waiting, &name);
                let moved = self.rename(&from, &self.folder.file(Part::Open, &name))?;
                opened += u32::from(moved == Answer::Moved);
            }
        }
        Ok(Answer::Opened(opened))
    }

    /// The ranges of a file, where they are and their digests.
    pub(super) fn parts(&self, whole: &Whole) -> Result<Parts, Fault> {
        let mut digests: BTreeMap<u32, String> = BTreeMap::new();
        for (held, _) in self.folder.done()? {
            if whole.parts.contains(&held.claim.shard) {
                let name = names::of_attempt(held.claim);
                each_line(&self.folder, &name, &mut |line| {
                    match line {
                        Line::Item(ReceiptLine::Committed(Committed { digest, .. })) => {
                            digests.extend(digest.map(|digest| (held.claim.shard, digest)));
                        }
                        Line::Item(ReceiptLine::Failed(failed)) => {
                            let class = Class::from_code(failed.code).unwrap_or(Class::Local);
                            return Err(Fault::new(class, failed.why));
                        }
                        Line::Head(_) => {}
                    }
                    Ok(())
                })?;
            }
        }
        let path = |part: &u32| part_file(&self.folder.staging(), *part);
        let paths: Vec<PathBuf> = whole.parts.iter().map(path).collect();
        let digests: Vec<String> =
            whole.parts.iter().filter_map(|part| digests.get(part).cloned()).collect();
        Ok((paths, digests))
    }

    fn claim_file(&self, claim: Claim, worker: &str) -> PathBuf {
        self.folder.file(Part::Claims, &names::held(claim, worker))
    }

    pub(super) fn rename(&self, from: &Path, to: &Path) -> Result<Answer, Fault> {
        match fs::rename(from, to) {
            Ok(()) => Ok(Answer::Moved),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Answer::Missing),
            Err(why) => Err(Fault::write("rename", from, &why)),
        }
    }

    /// Reads what the shard is, and makes the file of what will be committed.
    pub(super) fn open_ledger(&mut self, claim: Claim, now_s: f64) -> Result<Answer, Fault> {
        let (shard, names) = self.folder.shard(claim.shard)?;
        let (source, prefix) =
            (self.folder.source(shard.source)?, self.folder.prefix(shard.source)?);
        let path = self.folder.file(Part::Ledgers, &names::of_attempt(claim));
        let fault = |why: io::Error| Fault::write("write", &path, &why);
        let ledger = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        let ledger = ledger.map_err(fault)?;
        ledger.sync_all().map_err(fault)?;
        sync_folder(&self.folder.part(Part::Ledgers))?;
        self.work = Some(ShardWork {
            claim,
            names,
            shard,
            source,
            prefix,
            noted: None,
            given: BTreeSet::new(),
            given_ns: 0,
            surveyed: 0,
            left: BTreeMap::new(),
            staged: BTreeMap::new(),
            committed: BTreeMap::new(),
            failed: BTreeMap::new(),
            kept: 0,
            moved_files: 0,
            moved_bytes: 0,
            ledger: Some(ledger),
            unsynced: BTreeSet::new(),
            began_s: now_s,
            waits: Waits::default(),
        });
        Ok(Answer::Done)
    }

    pub(super) fn staging_of(&self, claim: Claim) -> PathBuf {
        self.folder.staging().join(names::of_attempt(claim))
    }

    /// A file of the folder's name: the folder can then never be made.
    pub(super) fn tombstone(&mut self, claim: Claim) -> Result<Answer, Fault> {
        let path = self.staging_of(claim);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(_) => Ok(Answer::Stands),
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
                match fs::symlink_metadata(&path) {
                    Ok(found) if found.is_dir() => {
                        self.had_staging.insert(claim);
                        Ok(Answer::Folder)
                    }
                    Ok(_) => Ok(Answer::Stands),
                    // It was removed by another in this moment: once more.
                    Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Answer::Folder),
                    Err(why) => Err(Fault::io("look at", &path, &why)),
                }
            }
            Err(why) => Err(Fault::write("make", &path, &why)),
        }
    }

    pub(super) fn remove_staging(&mut self, claim: Claim) -> Result<Answer, Fault> {
        if self.work.as_ref().is_some_and(|work| work.claim == claim) {
            self.work = None;
        }
        let path = self.staging_of(claim);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => remove_some(&path, REMOVED_AT_ONCE),
            Ok(_) => Ok(Answer::Done),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Answer::Done),
            Err(why) => Err(Fault::io("look at", &path, &why)),
        }
    }

    pub(super) fn make_staging(&self, claim: Claim) -> Result<Answer, Fault> {
        let path = self.staging_of(claim);
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Ok(Answer::Done),
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Ok(Answer::Stands),
            Err(why) => Err(Fault::write("make", &path, &why)),
        }
    }

    /// What earlier attempts have committed, some names at a time.
    pub(super) fn survey(&mut self) -> Result<Answer, Fault> {
        let may_be_there = !self.folder.manifest.destination_was_empty;
        let skips = self.folder.manifest.copying.skip_unchanged;
        let (destination, staging) = (self.folder.destination.clone(), self.folder.staging());
        let noted = match self.work.as_mut().and_then(|work| work.noted.take()) {
            Some(noted) => noted,
            None => match &self.work {
                Some(work) => Noted::read(&self.folder, work.claim, &self.had_staging)?,
                None => return Ok(Answer::Surveyed(0)),
            },
        };
        let Some(work) = &mut self.work else { return Ok(Answer::Surveyed(0)) };
        let until = (work.surveyed + SURVEYED_AT_ONCE).min(work.names.len());
        for item in work.surveyed..until {
            let name = work.names[item].clone();
            if work.given.contains(&name) {
                continue;
            }
            let path = match work.shard.range {
                Some(_) => part_file(&staging, work.claim.shard),
                None => final_name(&destination, &work.prefix, &name),
            };
            let of_job = noted.of(&name, &path)?;
            let is_there = of_job.is_some() || may_be_there;
            let found = if is_there { look(&path)? } else { None };
            let item = item as u64;
            match (found, of_job) {
                (None, _) => drop(work.left.insert(name, item)),
                (Some(_), Some(committed)) => drop(work.committed.insert(item, committed.clone())),
                (Some(found), None) if skips && is_unchanged(work, &name, &found) => {
                    work.kept += 1;
                }
                (Some(_), None) => drop(work.failed.insert(item, exists(&name, &path))),
            }
        }
        work.surveyed = until;
        if until < work.names.len() {
            work.noted = Some(noted);
            return Ok(Answer::GoesOn);
        }
        Ok(Answer::Surveyed(work.left.len() as u64))
    }

    pub(super) fn intend(&mut self, items: &[u64]) -> Result<Answer, Fault> {
        let Some(work) = &mut self.work else { return Ok(Answer::Done) };
        let path = self.folder.file(Part::Ledgers, &names::of_attempt(work.claim));
        let fault = |why: io::Error| Fault::write("write", &path, &why);
        let mut lines = Vec::new();
        items.iter().filter_map(|item| work.staged.get(item)).for_each(|one| line(&mut lines, one));
        let Some(ledger) = &mut work.ledger else { return Ok(Answer::Done) };
        ledger.write_all(&lines).and_then(|()| ledger.sync_data()).map_err(fault)?;
        Ok(Answer::Done)
    }

    /// The one step that makes a file appear. It never replaces one.
    pub(super) fn link(&mut self, item: u64) -> Result<Answer, Fault> {
        let destination = self.folder.destination.clone();
        let Some(work) = &self.work else { return Ok(Answer::Gone) };
        let Some(name) = work.names.get(item as usize).cloned() else { return Ok(Answer::Gone) };
        let Some(staged) = work.staged_name(item) else { return Ok(Answer::Gone) };
        let staged = below(&self.staging_of(work.claim), &staged);
        let path = match work.shard.range {
            Some(_) => part_file(&self.folder.staging(), work.claim.shard),
            None => final_name(&destination, &work.prefix, &name),
        };
        let link = || rustix::fs::linkat(CWD, &staged, CWD, &path, AtFlags::empty());
        let linked = match link() {
            Err(rustix::io::Errno::NOENT) if look(&staged)?.is_some() => {
                let above = path.parent().unwrap_or(&destination);
                fs::create_dir_all(above).map_err(|why| Fault::write("make", above, &why))?;
                link()
            }
            linked => linked,
        };
        let is_ours = match linked {
            Ok(()) => true,
            Err(rustix::io::Errno::NOENT) if look(&staged)?.is_none() => return Ok(Answer::Gone),
            // The answer to a first try may have been lost: then it is the same file.
            Err(rustix::io::Errno::EXIST) => is_same(&staged, &path)?,
            Err(why) => return Err(Fault::write("link", &path, &why.into())),
        };
        let Some(work) = &mut self.work else { return Ok(Answer::Gone) };
        let staged_as = work.staged.remove(&item);
        if is_ours {
            if let Some(committed) = staged_as {
                work.moved_files += 1;
                work.moved_bytes += committed.bytes;
                work.committed.insert(item, committed);
            }
            work.unsynced.extend(path.parent().map(Path::to_path_buf));
        } else {
            work.failed.insert(item, exists(&name, &path));
        }
        // The rest of the folder goes when the shard is done.
        let _ = fs::remove_file(&staged);
        Ok(if is_ours { Answer::Done } else { Answer::Exists })
    }

    /// New names are synced some folders at a time; then the receipt is written.
    pub(super) fn receipt(&mut self, now_s: f64) -> Result<Answer, Fault> {
        let Some(work) = &mut self.work else { return Ok(Answer::Done) };
        for _ in 0..SYNCED_AT_ONCE {
            let Some(folder) = work.unsynced.pop_first() else { break };
            sync_folder(&folder)?;
        }
        if !work.unsynced.is_empty() {
            return Ok(Answer::GoesOn);
        }
        let (files, bytes, failed) = work.counts();
        let head = ShardDone {
            shard: work.claim.shard,
            attempt: work.claim.attempt,
            worker: self.me.clone(),
            host: self.host.clone(),
            // A range is no file; what failed of it is told by the shard of the whole.
            files: if work.shard.range.is_some() { 0 } else { files },
            bytes: if work.shard.whole.is_some() { 0 } else { bytes },
            kept: work.kept,
            failed: if work.shard.range.is_some() { 0 } else { failed },
            moved_files: work.moved_files,
            moved_bytes: work.moved_bytes,
            given_ns: work.given_ns,
            seconds: now_s - work.began_s,
            waits: work.waits,
        };
        let mut lines = Vec::new();
        line(&mut lines, &head);
        let committed = work.committed.values().cloned().map(ReceiptLine::Committed);
        let failed = work.failed.values().cloned().map(ReceiptLine::Failed);
        committed.chain(failed).for_each(|one| line(&mut lines, &one));
        let name = names::of_attempt(work.claim);
        replace(&self.folder.part(Part::Receipts), &name, &lines)?;
        Ok(Answer::Done)
    }
}

/// Opening asks the server, which a look at the name may not.
fn is_there(path: &Path) -> Result<Answer, Fault> {
    match File::open(path) {
        Ok(_) => Ok(Answer::Yes),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Answer::No),
        Err(why) => Err(Fault::io("open", path, &why)),
    }
}

fn yes(is_so: bool) -> Answer {
    if is_so { Answer::Yes } else { Answer::No }
}

/// A line of JSON.
fn line<T: Serialize>(lines: &mut Vec<u8>, value: &T) {
    lines.extend(serde_json::to_vec(value).unwrap_or_default());
    lines.push(b'\n');
}

fn final_name(destination: &Path, prefix: &[u8], name: &[u8]) -> PathBuf {
    below(destination, &[prefix, name].concat())
}

fn look(path: &Path) -> Result<Option<fs::Metadata>, Fault> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(Fault::io("look at", path, &why)),
    }
}

fn is_same(one: &Path, other: &Path) -> Result<bool, Fault> {
    let inode = |found: fs::Metadata| (found.dev(), found.ino());
    Ok(match (look(one)?, look(other)?) {
        (Some(one), Some(other)) => inode(one) == inode(other),
        _ => false,
    })
}

/// A destination file of the same size and time as its source.
fn is_unchanged(work: &ShardWork, name: &[u8], found: &fs::Metadata) -> bool {
    let times = |of: &fs::Metadata| (of.file_type(), of.len(), of.mtime(), of.mtime_nsec());
    fs::symlink_metadata(below(&work.source, name))
        .is_ok_and(|source| times(&source) == times(found))
}

fn exists(name: &[u8], path: &Path) -> Failed {
    Failed {
        name: text_of(name),
        code: Class::SomeFailed.exit_code(),
        why: format!(
            "'{}' exists: it is kept, as spread replaces nothing (--skip-unchanged keeps what has \
             the same size and time without an error)",
            path.display()
        ),
    }
}

pub(super) fn sync_folder(folder: &Path) -> Result<(), Fault> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|why| Fault::write("sync", folder, &why))
}

/// Removes so many names below a folder, and the folder when none is left.
fn remove_some(folder: &Path, most: usize) -> Result<Answer, Fault> {
    let mut left = most;
    match remove_below(folder, &mut left) {
        Ok(true) => Ok(Answer::Done),
        Ok(false) => Ok(Answer::GoesOn),
        // Its attempt goes on in it: what came since it was listed is removed the next time.
        Err(why) if why.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(Answer::GoesOn),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Answer::GoesOn),
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

/// A range that is done.
fn part_file(staging: &Path, shard: u32) -> PathBuf {
    staging.join("parts").join(names::of_shard(shard))
}

/// The name in the staging folder of what is no whole file of its source.
pub(super) const STAGED: &[u8] = b"staged";
/// Enough that thousands of workers choose different shards.
const LISTED_MAX: usize = 4096;
const REMOVED_AT_ONCE: usize = 2000;
const SURVEYED_AT_ONCE: usize = 2000;
const SYNCED_AT_ONCE: usize = 200;
