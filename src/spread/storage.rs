//! A worker's calls, carried out on the job folder and at the destination. What each of them does
//! is said in `analysis::shards::worker`, and why in docs/SPREAD.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::destination::here::blocked;
use super::destination::{Destination, Found, Linked, Reply, Spot, Step, strange};
use super::ending::{Line, each_line};
use super::far::Hosts;
use super::folder::{JobFolder, Part, read_json, replace, sync_folder};
use super::ledgers::Noted;
use super::records::{
    Beat, Committed, Copying, Failed, ReceiptLine, ShardDone, Whole, below, text_of,
};
use super::shard_work::ShardWork;
use super::source::Source;
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
    pub(super) destination: Destination,
    pub(super) source: Source,
    /// The name of this process among workers.
    pub(super) me: String,
    pub(super) host: String,
    pub(super) work: Option<ShardWork>,
    /// Attempts whose staging folder was there when they were fenced.
    had_staging: BTreeSet<Claim>,
    /// What the last call failed at.
    pub(super) trouble: Option<Fault>,
}

impl Storage {
    pub(super) fn new(
        folder: JobFolder,
        (source, destination): (Source, Destination),
        me: &str,
    ) -> Storage {
        let (me, host) = (me.to_string(), super::folder::hostname());
        let (work, had_staging, trouble) = (None, BTreeSet::new(), None);
        Storage { folder, destination, source, me, host, work, had_staging, trouble }
    }

    /// The far hosts that see one of the ends, where this process does not.
    pub(super) fn hosts(&mut self) -> Option<&mut Hosts> {
        self.destination.hosts().or(self.source.hosts())
    }

    /// The far host that is used now.
    pub(super) fn far_host(&self) -> Option<&str> {
        self.destination.host().or(self.source.host())
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
        let held = names.iter().filter_map(|name| names::parse_held(name)).collect();
        Ok(Answer::Claims { held, waiting: self.folder.names(Part::Idle)?.len() as u64 })
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
            self.destination.ask(&Step::RemoveParts(whole.parts.clone()))?;
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

    /// The digests of the ranges of a file.
    pub(super) fn digests(&self, whole: &Whole) -> Result<Vec<String>, Fault> {
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
        let all: Vec<String> =
            whole.parts.iter().filter_map(|part| digests.get(part).cloned()).collect();
        match all.len() == whole.parts.len() {
            true => Ok(all),
            false => {
                let name = self.work.as_ref().and_then(|work| work.names.first());
                let text = format!(
                    "'{}' existed when its ranges were to be copied, and is gone: copy it again",
                    String::from_utf8_lossy(name.map(Vec::as_slice).unwrap_or_default())
                );
                Err(Fault::new(Class::SomeFailed, text))
            }
        }
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
            is_source_far: self.source.host().is_some(),
            prefix,
            noted: None,
            given: BTreeSet::new(),
            given_ns: 0,
            surveyed: 0,
            left: BTreeMap::new(),
            staged: BTreeMap::new(),
            noted_items: Vec::new(),
            linked: BTreeMap::new(),
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

    /// A file of the folder's name: the folder can then never be made.
    pub(super) fn tombstone(&mut self, claim: Claim) -> Result<Answer, Fault> {
        match self.destination.ask(&Step::Tombstone(names::of_attempt(claim)))? {
            Reply::Folder => {
                self.had_staging.insert(claim);
                Ok(Answer::Folder)
            }
            Reply::Stands => Ok(Answer::Stands),
            other => Err(strange(&other)),
        }
    }

    pub(super) fn remove_staging(&mut self, claim: Claim) -> Result<Answer, Fault> {
        if self.work.as_ref().is_some_and(|work| work.claim == claim) {
            self.work = None;
        }
        match self.destination.ask(&Step::RemoveStaging(names::of_attempt(claim)))? {
            Reply::GoesOn => Ok(Answer::GoesOn),
            Reply::Done => Ok(Answer::Done),
            other => Err(strange(&other)),
        }
    }

    pub(super) fn make_staging(&mut self, claim: Claim) -> Result<Answer, Fault> {
        let tries = self.hosts().map_or(0, |hosts| hosts.count());
        let attempt = names::of_attempt(claim);
        match self.destination.ask(&Step::MakeStaging { attempt, tries })? {
            Reply::Done => Ok(Answer::Done),
            Reply::Stands => Ok(Answer::Stands),
            other => Err(strange(&other)),
        }
    }

    /// What earlier attempts have committed, some names at a time.
    pub(super) fn survey(&mut self) -> Result<Answer, Fault> {
        let may_be_there = !self.folder.manifest.destination_was_empty;
        let copying = &self.folder.manifest.copying;
        let noted = match self.work.as_mut().and_then(|work| work.noted.take()) {
            Some(noted) => noted,
            None => match &self.work {
                Some(work) => Noted::read(&self.folder, work.claim, &self.had_staging)?,
                None => return Ok(Answer::Surveyed(0)),
            },
        };
        let Some(work) = &mut self.work else { return Ok(Answer::Surveyed(0)) };
        // No range is copied of a file that will not be put together.
        if let Some(whole) = work.whole_of_range().filter(|_| may_be_there)
            && !look(&mut self.destination, &[(0, whole)])?.is_empty()
        {
            return Ok(Answer::Surveyed(0));
        }
        let until = (work.surveyed + SURVEYED_AT_ONCE).min(work.names.len());
        let mut known = BTreeMap::new();
        let mut looked_at = Vec::new();
        for item in work.surveyed as u64..until as u64 {
            let Some(spot) = work.final_spot(item) else { continue };
            let name = &work.names[item as usize];
            if work.given.contains(name) {
                continue;
            }
            let of_job = noted.of(name, &mut || digest_there(&mut self.destination, &spot))?;
            if of_job.is_some() || may_be_there {
                looked_at.push((item, spot));
            }
            known.extend(of_job.map(|committed| (item, committed.clone())));
        }
        let found = look(&mut self.destination, &looked_at)?;
        let others = found.iter().filter(|(item, there)| {
            let is_link = there.target.is_some();
            (copying.skip_unchanged || is_link) && !known.contains_key(item)
        });
        let unchanged = unchanged(&mut self.source, copying, work, others)?;
        for item in work.surveyed as u64..until as u64 {
            let name = work.names[item as usize].clone();
            if work.given.contains(&name) {
                continue;
            }
            match (found.get(&item), known.remove(&item)) {
                (None, _) => drop(work.left.insert(name, item)),
                (Some(_), Some(committed)) => drop(work.committed.insert(item, committed)),
                (Some(_), None) if unchanged.contains(&item) => work.kept += 1,
                (Some(_), None) => {
                    let shown = work.final_spot(item).map(|spot| self.destination.shown(&spot));
                    work.failed.insert(item, exists(&name, &shown.unwrap_or_default()));
                }
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
        let staged = items.iter().filter_map(|item| work.staged.get(item));
        staged.for_each(|staged| line(&mut lines, &staged.committed));
        let Some(ledger) = &mut work.ledger else { return Ok(Answer::Done) };
        ledger.write_all(&lines).and_then(|()| ledger.sync_data()).map_err(fault)?;
        work.noted_items = items.to_vec();
        Ok(Answer::Done)
    }

    /// The one step that makes a file appear. It never replaces one.
    pub(super) fn link(&mut self, item: u64) -> Result<Answer, Fault> {
        let linked = self.linked(item)?;
        let Some(work) = &mut self.work else { return Ok(Answer::Gone) };
        if linked == Linked::Gone {
            return Ok(Answer::Gone);
        }
        let (Some(staged), Some(spot)) = (work.staged.remove(&item), work.final_spot(item)) else {
            return Ok(Answer::Gone);
        };
        let at = work.staged_spot(item, staged.copied_by);
        if linked == Linked::Ours {
            work.moved_files += 1;
            work.moved_bytes += work.own_bytes(staged.committed.bytes);
            work.committed.insert(item, staged.committed);
            work.unsynced.insert(spot.above());
        } else {
            let name = work.names.get(item as usize).cloned().unwrap_or_default();
            let shown = self.destination.shown(&spot);
            let failed = match linked {
                Linked::Blocked => not_copied(&name, blocked(&shown)),
                _ => exists(&name, &shown),
            };
            work.failed.insert(item, failed);
        }
        // The rest of the folder goes when the shard is done. At a far host all of it does: there
        // an answer may be lost, and the same link be asked for again.
        if let (Destination::Here(here), Some(at)) = (&mut self.destination, at) {
            let _ = here.remove(&at);
        }
        Ok(if linked == Linked::Ours { Answer::Done } else { Answer::Exists })
    }

    /// Far away all that is noted is linked at once: a round trip for each file is too much. What
    /// is noted may be committed as long as it is staged, whatever becomes of this worker.
    fn linked(&mut self, item: u64) -> Result<Linked, Fault> {
        let Some(work) = &mut self.work else { return Ok(Linked::Gone) };
        if let Some(linked) = work.linked.remove(&item) {
            return Ok(linked);
        }
        let items = match self.destination.is_here() {
            true => vec![item],
            false => work.noted_items.clone(),
        };
        let spots = |item: &u64| {
            let staged = work.staged.get(item)?;
            Some((*item, (work.staged_spot(*item, staged.copied_by)?, work.final_spot(*item)?)))
        };
        let (items, names): (Vec<u64>, Vec<_>) = items.iter().filter_map(spots).unzip();
        match self.destination.ask(&Step::Link(names))? {
            Reply::Linked(linked) if linked.len() == items.len() => {
                work.linked.extend(items.into_iter().zip(linked));
                Ok(work.linked.remove(&item).unwrap_or(Linked::Gone))
            }
            other => Err(strange(&other)),
        }
    }

    /// New names are synced some folders at a time; then the receipt is written.
    pub(super) fn receipt(&mut self, now_s: f64) -> Result<Answer, Fault> {
        let far = self.far_host().map(str::to_string);
        let Some(work) = &mut self.work else { return Ok(Answer::Done) };
        let some: Vec<Spot> = work.unsynced.iter().take(SYNCED_AT_ONCE).cloned().collect();
        if !some.is_empty() {
            self.destination.ask(&Step::SyncFolders(some.clone()))?;
            work.unsynced.retain(|spot| !some.contains(spot));
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
            far,
            files,
            bytes,
            kept: work.kept,
            failed,
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

impl Storage {
    /// Which of these items are in the staging folder: links, of which a copy says nothing.
    pub(super) fn staged_of(
        &mut self,
        items: &[u64],
        copied_by: Option<usize>,
    ) -> Result<BTreeSet<u64>, Fault> {
        let Some(work) = &self.work else { return Ok(BTreeSet::new()) };
        let spots = |item: &u64| Some((*item, work.staged_spot(*item, copied_by)?));
        let names: Vec<(u64, Spot)> = items.iter().filter_map(spots).collect();
        Ok(look(&mut self.destination, &names)?.into_keys().collect())
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

/// What has these names, by their items.
fn look(at: &mut Destination, names: &[(u64, Spot)]) -> Result<BTreeMap<u64, Found>, Fault> {
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let spots = names.iter().map(|(_, spot)| spot.clone()).collect();
    match at.ask(&Step::Look(spots))? {
        Reply::Found(found) if found.len() == names.len() => {
            let items = names.iter().map(|(item, _)| *item);
            Ok(items.zip(found).filter_map(|(item, found)| Some((item, found?))).collect())
        }
        other => Err(strange(&other)),
    }
}

fn digest_there(at: &mut Destination, spot: &Spot) -> Result<Option<String>, Fault> {
    match at.ask(&Step::Digest(spot.clone()))? {
        Reply::Digest(digest) => Ok(digest),
        other => Err(strange(&other)),
    }
}

/// Those items whose destination is as their source.
fn unchanged<'a>(
    source: &mut Source,
    copying: &Copying,
    work: &ShardWork,
    found: impl Iterator<Item = (&'a u64, &'a Found)>,
) -> Result<BTreeSet<u64>, Fault> {
    let (items, found): (Vec<u64>, Vec<&Found>) = found.map(|(item, found)| (*item, found)).unzip();
    let names = items.iter().filter_map(|item| work.names.get(*item as usize));
    let paths: Vec<PathBuf> = names.map(|name| below(&work.source, name)).collect();
    let same = items.into_iter().zip(source.look(&paths, copying)?).zip(found);
    Ok(same
        .filter_map(|((item, at_source), found)| found.is_as(&at_source?).then_some(item))
        .collect())
}

fn exists(name: &[u8], shown: &str) -> Failed {
    let why = format!(
        "'{shown}' exists: it is kept, as spread replaces nothing (--skip-unchanged keeps what has \
         the same size and time without an error)"
    );
    not_copied(name, why)
}

fn not_copied(name: &[u8], why: String) -> Failed {
    Failed { name: text_of(name), code: Class::SomeFailed.exit_code(), why }
}

/// Enough that thousands of workers choose different shards.
const LISTED_MAX: usize = 4096;
const SURVEYED_AT_ONCE: usize = 2000;
const SYNCED_AT_ONCE: usize = 200;
