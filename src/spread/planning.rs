//! The plan of a job: the sources are walked, and what is found becomes shards while the walk goes
//! on. Memory does not grow with the dataset.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::coordinator::{Earlier, RunOrder};
use super::far::{Hosts, News};
use super::folder::{JobFolder, Part, named, replace};
use super::rebuilding::planned_so_far;
use super::records::{
    Copying, Failed, PlanState, Range, Shard, SourceRoot, Whole, below, bytes_of, text_of,
};
use super::source::{Seen, SeenKind, Sighting, Source};
use analysis::shards::given::PLANNED_MAX;
use analysis::shards::names;
use analysis::shards::plan::{self, Batch, Cost, Cutter, Cutting};
use base::fault::{Class, Fault};
use base::units::{Nanos, Tick};
use mover::io::clock;
use mover::pump::sink::clean::is_ours;
use mover::pump::watch::Watch;

/// What a plan came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Planned {
    pub shards: u32,
    pub files: u64,
    pub bytes: u64,
    pub folders: u64,
    /// How many names could not be planned, and the first of them.
    pub failed: u64,
    pub unplanned: Vec<Failed>,
    /// How many names are not copied because of their kind, and what is told of the first.
    pub skipped: u64,
    pub warnings: Vec<String>,
    /// Predicted, on one node, with its share of the rate.
    pub total: Nanos,
    /// Of the longest shard, on a node without a limit of the rate.
    pub longest: Nanos,
    pub longest_bytes: u64,
}

/// Where the plan goes.
pub trait PlanSink {
    fn shard(&mut self, shard: &Shard, names: &[Vec<u8>]) -> Result<(), Fault>;
    /// A folder of the destination, with the mode and time of its source. The deepest come first.
    fn folder(&mut self, path: &[u8], mode: u32, mtime: (i64, u32)) -> Result<(), Fault>;
    /// True for a name of a source that an earlier plan has put into a shard.
    fn has(&self, source: usize, name: &[u8]) -> bool;
}

/// A plan that is only counted.
#[derive(Debug, Default)]
pub struct Counted {
    /// Where this host sees it: the destination, and what precedes the names of each source there.
    pub destination: Option<(PathBuf, Vec<Vec<u8>>)>,
    /// How many names have something there.
    pub existing: u64,
}

impl PlanSink for Counted {
    fn shard(&mut self, shard: &Shard, names: &[Vec<u8>]) -> Result<(), Fault> {
        // The ranges of a file are no names of the destination; the shard of the whole has it.
        if let (Some((folder, prefixes)), None) = (&self.destination, &shard.range) {
            let prefix = prefixes.get(shard.source).map(Vec::as_slice).unwrap_or_default();
            let is_there = |name: &&Vec<u8>| {
                let name = [prefix, name.as_slice()].concat();
                below(folder, &name).symlink_metadata().is_ok()
            };
            self.existing += names.iter().filter(is_there).count() as u64;
        }
        Ok(())
    }

    fn folder(&mut self, _: &[u8], _: u32, _: (i64, u32)) -> Result<(), Fault> {
        Ok(())
    }

    fn has(&self, _: usize, _: &[u8]) -> bool {
        false
    }
}

/// The job folder as the place of a plan.
#[derive(Debug)]
pub struct Written<'a> {
    folder: &'a JobFolder,
    folders: BufWriter<File>,
    /// What an earlier plan has, by hashes.
    earlier: HashSet<u128>,
}

impl Written<'_> {
    pub fn new(folder: &JobFolder, earlier: HashSet<u128>) -> Result<Written<'_>, Fault> {
        let path = folder.path().join(FOLDERS);
        let file = File::create(&path).map_err(|why| Fault::write("write", &path, &why))?;
        Ok(Written { folder, folders: BufWriter::new(file), earlier })
    }

    pub fn finish(mut self) -> Result<(), Fault> {
        let path = self.folder.path().join(FOLDERS);
        let synced = self.folders.flush().and_then(|()| self.folders.get_ref().sync_all());
        synced.map_err(|why| Fault::write("write", &path, &why))
    }
}

impl PlanSink for Written<'_> {
    /// The shard is complete before its name appears among the open ones.
    fn shard(&mut self, shard: &Shard, items: &[Vec<u8>]) -> Result<(), Fault> {
        let text = named(shard, items);
        replace(&self.folder.part(Part::Shards), &names::of_shard(shard.shard), &text)?;
        // What waits for others is opened by a worker that finds them done.
        let part = if shard.whole.is_some() { Part::Waiting } else { Part::Open };
        let open = self.folder.file(part, &names::open(shard.shard, 0));
        File::create(&open).map(drop).map_err(|why| Fault::write("write", &open, &why))
    }

    fn folder(&mut self, path: &[u8], mode: u32, mtime: (i64, u32)) -> Result<(), Fault> {
        let (seconds, nanos) = mtime;
        let written = write!(self.folders, "{mode:o} {seconds} {nanos} ")
            .and_then(|()| self.folders.write_all(path))
            .and_then(|()| self.folders.write_all(&[0]));
        written.map_err(|why| Fault::write("write", &self.folder.path().join(FOLDERS), &why))
    }

    fn has(&self, source: usize, name: &[u8]) -> bool {
        !self.earlier.is_empty() && self.earlier.contains(&hash_of(source, name))
    }
}

/// What stands for a name in memory.
pub fn hash_of(source: usize, name: &[u8]) -> u128 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(source as u64).to_le_bytes()).update(name);
    let mut first = [0; 16];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    u128::from_le_bytes(first)
}

/// How a dataset is planned.
#[derive(Debug)]
pub struct PlanOrder<'a> {
    pub sources: &'a [SourceRoot],
    pub copying: &'a Copying,
    pub cutting: Cutting,
    /// The number of the first shard.
    pub first: u32,
}

/// Walks the sources. `tell` is told how far it is, and the walk ends when `watch` is stopped.
pub fn walk(
    order: &PlanOrder<'_>,
    source: &mut Source,
    sink: &mut dyn PlanSink,
    watch: &Watch,
    tell: &mut dyn FnMut(&Planned),
) -> Result<Planned, Fault> {
    let mut planner = Planner {
        sink,
        tell,
        cutter: Cutter::new(order.cutting),
        cutting: order.cutting,
        cost: order.cutting.cost,
        preserve: order.copying.preserve,
        next: order.first,
        source: 0,
        prefix: Vec::new(),
        planned: Planned::default(),
    };
    for (number, root) in order.sources.iter().enumerate() {
        planner.source = number;
        planner.prefix = bytes_of(&root.prefix).unwrap_or_default();
        source.walk(root, order.copying, watch, &mut |sighting| planner.see(sighting))?;
        if let Some(rest) = planner.cutter.rest() {
            planner.write(rest)?;
        }
    }
    Ok(planner.planned)
}

struct Planner<'a> {
    sink: &'a mut dyn PlanSink,
    tell: &'a mut dyn FnMut(&Planned),
    cutter: Cutter<Vec<u8>>,
    cutting: Cutting,
    cost: Cost,
    preserve: bool,
    next: u32,
    source: usize,
    prefix: Vec<u8>,
    planned: Planned,
}

impl Planner<'_> {
    fn see(&mut self, sighting: Sighting) -> Result<(), Fault> {
        match sighting {
            Sighting::Entries(entries) => {
                for entry in entries {
                    self.entry(entry)?;
                }
                (self.tell)(&self.planned);
            }
            Sighting::Failed(failed) => self.unplanned(failed),
            Sighting::Skipped(text) => {
                self.planned.skipped += 1;
                if self.planned.warnings.len() < UNPLANNED_KEPT {
                    self.planned.warnings.push(text);
                }
            }
        }
        Ok(())
    }

    fn unplanned(&mut self, failed: Failed) {
        self.planned.failed += 1;
        if self.planned.unplanned.len() < UNPLANNED_KEPT {
            self.planned.unplanned.push(failed);
        }
    }

    fn entry(&mut self, entry: Seen) -> Result<(), Fault> {
        let target = [&self.prefix[..], &entry.name.0].concat();
        if is_ours(&target) {
            self.unplanned(Failed {
                name: text_of(&target),
                code: Class::SomeFailed.exit_code(),
                why: format!(
                    "'{}' has a name that datapump keeps for what is not complete: rename it, or \
                     leave it out",
                    text_of(&target)
                ),
            });
            return Ok(());
        }
        match entry.kind {
            SeenKind::File | SeenKind::Link => {
                self.planned.files += 1;
                self.planned.bytes = self.planned.bytes.saturating_add(entry.size);
                if self.sink.has(self.source, &entry.name.0) {
                    return Ok(());
                }
                let size = entry.size;
                let is_file = entry.kind == SeenKind::File;
                if let Some(cuts) = plan::ranges(size, &self.cutting).filter(|_| is_file) {
                    return self.write_ranges(&entry, &cuts);
                }
                match self.cutter.add(entry.name.0, size) {
                    Some(full) => self.write(full),
                    None => Ok(()),
                }
            }
            SeenKind::Folder => {
                self.planned.folders += 1;
                let path = target.strip_suffix(b"/").unwrap_or(&target);
                self.sink.folder(path, entry.mode, (entry.mtime_s, entry.mtime_ns))
            }
        }
    }

    fn write(&mut self, batch: Batch<Vec<u8>>) -> Result<(), Fault> {
        let predicted = self.cost.of(batch.files, batch.bytes);
        let shard = Shard {
            shard: self.next,
            source: self.source,
            files: batch.files,
            bytes: batch.bytes,
            predicted_ns: predicted.0,
            range: None,
            whole: None,
        };
        self.give(&shard, &batch.items)
    }

    fn give(&mut self, shard: &Shard, names: &[Vec<u8>]) -> Result<(), Fault> {
        if shard.shard >= PLANNED_MAX {
            return Err(Fault::usage(format!(
                "the plan has more than {PLANNED_MAX} shards: make several jobs of it, or raise \
                 --split-above"
            )));
        }
        self.sink.shard(shard, names)?;
        let predicted = Nanos(shard.predicted_ns);
        self.next += 1;
        self.planned.shards += 1;
        self.planned.total += predicted;
        let longest = Cost::UNKNOWN.of(shard.files, shard.bytes);
        self.planned.longest = self.planned.longest.max(longest);
        self.planned.longest_bytes = self.planned.longest_bytes.max(shard.bytes);
        (self.tell)(&self.planned);
        Ok(())
    }

    /// Each range is a shard, and so is putting them together.
    fn write_ranges(&mut self, entry: &Seen, ranges: &[plan::Range]) -> Result<(), Fault> {
        let names = [entry.name.0.clone()];
        let Seen { mtime_s, mtime_ns, size, mode, .. } = *entry;
        let base = Shard {
            shard: self.next,
            source: self.source,
            files: 1,
            bytes: 0,
            predicted_ns: 0,
            range: None,
            whole: None,
        };
        let mut parts = Vec::with_capacity(ranges.len());
        for cut in ranges {
            let (offset, len) = (cut.offset, cut.len);
            let shard = Shard {
                shard: self.next,
                bytes: len,
                predicted_ns: self.cost.of(1, len).0,
                range: Some(Range { offset, len, size, mtime_s, mtime_ns }),
                ..base.clone()
            };
            self.cutter.count(Nanos(shard.predicted_ns));
            parts.push(shard.shard);
            self.give(&shard, &names)?;
        }
        let mode = self.preserve.then_some(mode);
        let whole = Some(Whole { parts, size, mtime_s, mtime_ns, mode });
        let predicted_ns = self.cost.of(1, 0).0;
        self.give(&Shard { shard: self.next, predicted_ns, whole, ..base }, &names)
    }
}

/// Makes the plan. Where the far host that walks the source is lost, the next one begins the walk
/// anew, and what is planned by then stays.
pub(super) fn make_plan(
    folder: &JobFolder,
    order: &RunOrder,
    watch: &Watch,
) -> Result<Planned, Fault> {
    let mut source = Source::of(folder, "", order.ssh.as_deref());
    let mut left = source.hosts().map_or(0, |hosts| hosts.count());
    let (mut earlier, mut lost) = (None, Vec::new());
    loop {
        let of = earlier.as_ref().or(order.earlier.as_ref());
        let fault = match plan_once(folder, order, (&mut source, of), watch) {
            Ok(mut planned) => {
                planned.warnings.extend(lost);
                return Ok(planned);
            }
            Err(fault) if fault.class == Class::Unreachable => fault,
            Err(fault) => return Err(fault),
        };
        let news = source.hosts().map(Hosts::news).unwrap_or_default();
        let is_refused = |one: &&News| matches!(one, News::Refused(..));
        left = left.saturating_sub(news.iter().filter(is_refused).count());
        if left == 0 || watch.stopping() {
            let job = folder.path().display();
            let text = format!("{fault}: 'datapump spread resume {job}' continues");
            return Err(Fault { text, ..fault });
        }
        lost.push(format!("the walk of the source begins anew: {fault}"));
        earlier = Some(planned_so_far(folder)?);
    }
}

fn plan_once(
    folder: &JobFolder,
    order: &RunOrder,
    (source, earlier): (&mut Source, Option<&Earlier>),
    watch: &Watch,
) -> Result<Planned, Fault> {
    let (names, first, before, before_s) = match earlier {
        Some(of) => (of.names.clone(), of.next, of.count, of.predicted_s),
        None => (HashSet::new(), 0, 0, 0.0),
    };
    let mut sink = Written::new(folder, names)?;
    let of = PlanOrder {
        sources: &folder.manifest.sources,
        copying: &folder.manifest.copying,
        cutting: order.cutting,
        first,
    };
    let mut told_at = Tick(0);
    let state = |planned: &Planned, is_complete: bool| PlanState {
        planned: is_complete.then_some(before + planned.shards),
        files: planned.files,
        bytes: planned.bytes,
        folders: planned.folders,
        predicted_s: before_s + planned.total.seconds(),
        failed: planned.failed,
        unplanned: planned.unplanned.clone(),
    };
    let planned = walk(&of, source, &mut sink, watch, &mut |planned| {
        if clock::now().since(told_at) > PLAN_TOLD_EVERY {
            told_at = clock::now();
            // The complete one counts.
            let _ = folder.set_plan(&state(planned, false));
        }
    })?;
    sink.finish()?;
    folder.set_plan(&state(&planned, true))?;
    Ok(planned)
}

/// Takes the name, mode and time of a folder.
pub type TakeFolder<'a> = dyn FnMut(&[u8], u32, (i64, u32)) -> Result<(), Fault> + 'a;

/// The folders of a job, each with its mode and time, in the order of the plan.
pub fn each_folder(job: &Path, take: &mut TakeFolder<'_>) -> Result<(), Fault> {
    use std::io::{BufRead, BufReader};
    let path = job.join(FOLDERS);
    let fault = |why: std::io::Error| Fault::io("read", &path, &why);
    let mut file = BufReader::new(File::open(&path).map_err(fault)?);
    let mut record = Vec::new();
    loop {
        record.clear();
        if file.read_until(0, &mut record).map_err(fault)? == 0 {
            return Ok(());
        }
        record.pop();
        let mut parts = record.splitn(4, |byte| *byte == b' ');
        let mut text = || parts.next().and_then(|part| std::str::from_utf8(part).ok());
        let mode = text().and_then(|mode| u32::from_str_radix(mode, 8).ok());
        let seconds = text().and_then(|seconds| seconds.parse().ok());
        let nanos = text().and_then(|nanos| nanos.parse().ok());
        let (Some(mode), Some(seconds), Some(nanos), Some(name)) =
            (mode, seconds, nanos, parts.next())
        else {
            return Err(super::folder::damaged(&path));
        };
        take(name, mode, (seconds, nanos))?;
    }
}

const PLAN_TOLD_EVERY: Nanos = Nanos::from_millis(500);
const FOLDERS: &str = "folders";
/// Names that are listed; all of them are counted.
const UNPLANNED_KEPT: usize = 1000;
