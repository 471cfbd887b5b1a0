//! The end of a job: folders get their modes and times, the receipts become one, and what the job
//! had at the destination is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::destination::{Destination, FolderLook, Name, Refused, Reply, Step, strange};
use super::folder::{JobFolder, Part, damaged};
use super::planning::each_folder;
use super::records::{Control, Failed, ReceiptLine, ShardDone, bytes_of, text_of};
use analysis::report::escape;
use analysis::shards::{Held, names};
use base::extra::{ExtraDigests, ExtraSums};
use base::fault::{Class, Fault};
use base::settings::Overwrite;
use mover::receipt::Receipt;

/// What a job came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    pub files: u64,
    pub bytes: u64,
    pub kept: u64,
    pub failed: u64,
    /// With what was copied again.
    pub moved_bytes: u64,
    /// The first failures, and the class of the most serious of all.
    pub failures: Vec<Failed>,
    pub worst: Option<Class>,
}

impl Totals {
    fn fail(&mut self, failed: Failed) {
        self.failed += 1;
        self.worst = self.worst.max(Class::from_code(failed.code)).max(Some(Class::SomeFailed));
        if self.failures.len() < FAILURES_KEPT {
            self.failures.push(failed);
        }
    }
}

/// Makes missing folders, and gives all of them their modes and times. Returns what could not be
/// done: each folder counts once.
pub(super) fn finish_folders(
    folder: &JobFolder,
    at: &mut Destination,
) -> Result<Vec<Failed>, Fault> {
    let mut refused = BTreeMap::new();
    let mut some = Vec::new();
    each_folder(folder.path(), &mut |name, _, _| {
        some.push(Name(name.to_vec()));
        match some.len() >= FOLDERS_AT_ONCE {
            true => ask(at, &Step::MakeFolders(std::mem::take(&mut some)), &mut refused),
            false => Ok(()),
        }
    })?;
    ask(at, &Step::MakeFolders(some), &mut refused)?;
    if folder.manifest.copying.preserve {
        let mut some = Vec::new();
        each_folder(folder.path(), &mut |name, mode, (mtime_s, mtime_ns)| {
            let is_kept = name.is_empty() && !folder.manifest.destination_was_empty;
            let name = Name(name.to_vec());
            if is_kept || refused.contains_key(&name) {
                return Ok(());
            }
            some.push(FolderLook { name, mode, mtime_s, mtime_ns });
            match some.len() >= FOLDERS_AT_ONCE {
                true => ask(at, &Step::SetFolders(std::mem::take(&mut some)), &mut refused),
                false => Ok(()),
            }
        })?;
        ask(at, &Step::SetFolders(some), &mut refused)?;
    }
    Ok(refused.into_values().collect())
}

fn ask(
    at: &mut Destination,
    step: &Step,
    refused: &mut BTreeMap<Name, Failed>,
) -> Result<(), Fault> {
    match at.ask(step)? {
        Reply::Refused(some) => {
            refused.extend(some.into_iter().map(|Refused { name, code, why }| {
                let failed = Failed { name: text_of(&name.0), code, why };
                (name, failed)
            }));
            Ok(())
        }
        other => Err(strange(&other)),
    }
}

/// Where the receipt of a job is.
pub fn receipt_path(job: &Path) -> PathBuf {
    job.join("receipt")
}

/// One receipt from those of the shards that are done.
pub(super) fn merge_receipts(folder: &JobFolder, folders: Vec<Failed>) -> Result<Totals, Fault> {
    let mut totals = Totals::default();
    let plan = folder.plan()?;
    let untold = plan.failed.saturating_sub(plan.unplanned.len() as u64);
    let mut failures = Failures { folder, list: None };
    for failed in plan.unplanned.into_iter().chain(folders) {
        failures.add(&failed)?;
        totals.fail(failed);
    }
    totals.failed += untold;
    let mut receipt =
        Receipt::create(&receipt_path(folder.path()), ExtraDigests::NONE, Overwrite::Always)?;
    let done = folder.done()?.into_iter().map(|(held, _)| held);
    // A shard counts once, with its last attempt.
    let done: BTreeMap<u32, Held> =
        done.collect::<BTreeSet<Held>>().into_iter().map(|held| (held.claim.shard, held)).collect();
    for held in done.into_values() {
        let shard = folder.shard_head(held.claim.shard)?;
        let (prefix, is_range) = (folder.prefix(shard.source)?, shard.range.is_some());
        each_line(folder, &names::of_attempt(held.claim), &mut |line| match line {
            Line::Head(head) => {
                totals.files += head.files;
                totals.bytes += head.bytes;
                totals.kept += head.kept;
                totals.moved_bytes += head.moved_bytes;
                Ok(())
            }
            Line::Item(_) if is_range => Ok(()),
            Line::Item(ReceiptLine::Failed(failed)) => {
                failures.add(&failed)?;
                totals.fail(failed);
                Ok(())
            }
            Line::Item(ReceiptLine::Committed(committed)) => {
                let name = bytes_of(&committed.name).unwrap_or_default();
                let (path, digest) = ([&prefix[..], &name].concat(), committed.digest.as_deref());
                receipt.add(&path, digest, &ExtraSums::default())
            }
        })?;
    }
    failures.finish()?;
    receipt.finish()?;
    Ok(totals)
}

/// All that was not copied, a line each, beside the receipt.
struct Failures<'a> {
    folder: &'a JobFolder,
    /// Made for the first.
    list: Option<BufWriter<fs::File>>,
}

impl Failures<'_> {
    fn add(&mut self, failed: &Failed) -> Result<(), Fault> {
        let path = failures_path(self.folder.path());
        let fault = |why: io::Error| Fault::io("write", &path, &why);
        let list = match &mut self.list {
            Some(list) => list,
            none => none.insert(BufWriter::new(fs::File::create(&path).map_err(fault)?)),
        };
        writeln!(list, "{}", escape::line(&failed.why)).map_err(fault)
    }

    fn finish(self) -> Result<(), Fault> {
        let path = failures_path(self.folder.path());
        let mut list = self.list;
        let written = list.as_mut().map_or(Ok(()), Write::flush);
        written.map_err(|why| Fault::io("write", &path, &why))
    }
}

/// What was not copied, one line each; it is there where something was not.
pub fn failures_path(job: &Path) -> PathBuf {
    job.join("failures")
}

pub(super) enum Line {
    Head(ShardDone),
    Item(ReceiptLine),
}

/// The head of a shard's receipt.
pub(super) fn head(folder: &JobFolder, name: &str) -> Result<ShardDone, Fault> {
    let path = folder.file(Part::Receipts, name);
    let fault = |why: io::Error| Fault::io("read", &path, &why);
    let mut first = String::new();
    BufReader::new(fs::File::open(&path).map_err(fault)?).read_line(&mut first).map_err(fault)?;
    serde_json::from_str(&first).map_err(|_| damaged(&path))
}

pub(super) fn each_line(
    folder: &JobFolder,
    name: &str,
    take: &mut dyn FnMut(Line) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let path = folder.file(Part::Receipts, name);
    let fault = |why: io::Error| Fault::io("read", &path, &why);
    take(Line::Head(head(folder, name)?))?;
    for line in BufReader::new(fs::File::open(&path).map_err(fault)?).lines().skip(1) {
        let line = serde_json::from_str(&line.map_err(fault)?).map_err(|_| damaged(&path))?;
        take(Line::Item(line))?;
    }
    Ok(())
}

/// Gives the destination free: nothing of the job is left there.
pub(super) fn leave_destination(at: &mut Destination) -> Result<(), Fault> {
    at.ask(&Step::Leave).map(drop)
}

/// What became of a job that was to be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgotten {
    GivenUp,
    /// It is done, and keeps its receipt: there was nothing to give up.
    Done,
}

/// Gives a job up: its workers have a lease to stop, then what is unfinished is removed. What
/// another job has at the destination stays.
pub fn forget(folder: &JobFolder, ssh: Option<&[String]>) -> Result<Forgotten, Fault> {
    // Whether the job has the destination, is what the step itself asks.
    let mut at = Destination::of(folder, "", ssh).unchecked();
    if is_done(folder) {
        return leave_destination(&mut at).map(|()| Forgotten::Done);
    }
    folder.set_control(Control::cancelled())?;
    let beat = std::time::Duration::from(folder.manifest.times.beat());
    let is_held = || Ok::<_, Fault>(!folder.names(Part::Claims)?.is_empty());
    // A claim that nobody gives back is that of a lost worker, whose staging folder goes too.
    for _ in 0..BEATS_OF_A_LEASE {
        if !is_held()? {
            break;
        }
        std::thread::sleep(beat);
    }
    leave_destination(&mut at)?;
    folder.set_control(Control { is_given_up: true, ..Control::cancelled() })?;
    Ok(Forgotten::GivenUp)
}

/// True once its receipt is whole.
pub fn is_done(folder: &JobFolder) -> bool {
    receipt_path(folder.path()).exists()
}

const BEATS_OF_A_LEASE: usize = 6;
/// Folders that are made or set by one step.
const FOLDERS_AT_ONCE: usize = 500;
const FAILURES_KEPT: usize = 1000;
