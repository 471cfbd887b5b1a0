//! The copy of a shard: the same copy as `datapump copy` makes, in this process, from a list of
//! names to the staging folder of the attempt.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use super::destination::far::Far;
use super::destination::here::Here;
use super::destination::{Destination, DestinationFolder, Name, Spot};
use super::far::{FarEnd, Tries};
use super::ranges::{Pace, Progress, assemble, copy_range};
use super::records::{Copying, Range, Shard, below};
use super::shard_work::STAGED;
use super::staged_file::StagedFile;
use analysis::shards::given;
use analysis::shards::lease::LeaseTimes;
use analysis::shards::overview::Waits;
use base::fault::{Class, Fault};
use base::job::{FileRange, Job, Listed, Location, Notice, Outcome};
use base::settings::{Direct, EngineChoice, Fsync, Links, Moment, Settings};
use base::units::{Nanos, Rate, Tick};
use mover::io::clock;
use mover::pump::watch::Watch;
use mover::remote;

/// What a copy says to its worker.
#[derive(Debug)]
pub(super) enum Told {
    /// An item is complete and on stable storage, under its name in the staging folder.
    Staged {
        item: u64,
        bytes: u64,
        digest: Option<String>,
        /// Which try to copy it was, where each has a folder of its own.
        copied_by: Option<usize>,
    },
    /// Items of which a copy that went well said nothing: links, which have no bytes.
    Unsaid {
        items: Vec<u64>,
        copied_by: Option<usize>,
    },
    /// The far host was lost: what is left goes to the next.
    LostHost(String, Fault),
    /// An item cannot be copied.
    Failed {
        item: u64,
        fault: Fault,
    },
    Warning(String),
    /// It went through all items, or ended before.
    Ended(Result<Waits, Fault>),
}

/// A copy that runs.
#[derive(Debug)]
pub(super) struct ShardCopy {
    watch: Arc<Mutex<Weak<Watch>>>,
    /// Of a range, of a whole that is put together, or of copies that have ended.
    progress: Arc<Progress>,
    unbegun: Arc<Mutex<Unbegun>>,
    began: Tick,
}

/// Names and items, in the order in which they are copied.
type Unbegun = VecDeque<(Vec<u8>, u64)>;

/// What is copied from where to where.
#[derive(Debug)]
pub(super) struct ShardOrder {
    pub source: PathBuf,
    pub place: DestinationFolder,
    /// The name of its staging folder.
    pub attempt: String,
    pub copying: Copying,
    /// The items that are left, by their names.
    pub items: BTreeMap<Vec<u8>, u64>,
    pub shard: Shard,
    /// Of the ranges of a file that is put together.
    pub digests: Option<Result<Vec<String>, Fault>>,
    /// The source is a file, and not a folder with names.
    pub is_single: bool,
    pub times: LeaseTimes,
    /// Of all copies of the worker.
    pub pace: Arc<Pace>,
    /// Far hosts that see the staging folder, or the source.
    pub far: Option<Tries>,
}

impl ShardOrder {
    /// A range of a file that this host does not see.
    fn is_far_range(&self) -> bool {
        let is_far = self.far.as_ref().is_some_and(|tries| tries.end == FarEnd::Source);
        is_far && self.shard.range.is_some()
    }

    /// The staging folder; each try at a far host has a folder of its own in it.
    fn staging(&self, copied_by: Option<usize>) -> PathBuf {
        let attempt = self.place.staging().join(&self.attempt);
        copied_by.map_or(attempt.clone(), |number| attempt.join(number.to_string()))
    }

    /// What is no whole file of its source, there.
    fn staged(&self, copied_by: Option<usize>) -> Spot {
        let folder = copied_by.map(|number| format!("{number}/")).unwrap_or_default();
        let name = Name([folder.as_bytes(), STAGED].concat());
        Spot::Staged { attempt: self.attempt.clone(), name }
    }
}

impl ShardCopy {
    pub(super) fn start(order: ShardOrder, tell: &Sender<Told>) -> ShardCopy {
        let unbegun = match order.shard.is_of_files() {
            true => order.items.iter().map(|(name, item)| (name.clone(), *item)).collect(),
            false => VecDeque::new(),
        };
        let copy = ShardCopy {
            watch: Arc::default(),
            progress: Arc::default(),
            unbegun: Arc::new(Mutex::new(unbegun)),
            began: clock::now(),
        };
        let (of_thread, tell) = (copy.same(), tell.clone());
        thread::spawn(move || {
            let ended = match order.shard.is_of_files() {
                true => of_thread.all_files(&order, &tell),
                false if order.is_far_range() => of_thread.far_range(&order, &tell),
                false => one_file(&order, &of_thread.progress, &tell),
            };
            let _ = tell.send(Told::Ended(ended));
        });
        copy
    }

    fn same(&self) -> ShardCopy {
        let ShardCopy { watch, progress, unbegun, began } = self;
        let (watch, progress) = (watch.clone(), progress.clone());
        ShardCopy { watch, progress, unbegun: unbegun.clone(), began: *began }
    }

    /// It begins with some files at a time; what it has not begun with may be taken away. With a
    /// far host it begins with all of them, as each beginning is a login there.
    fn all_files(&self, order: &ShardOrder, tell: &Sender<Told>) -> Result<Waits, Fault> {
        let (mut waits, mut last) = (Waits::default(), None);
        loop {
            order.pace.wait(&self.progress.stop);
            let began = clock::now();
            let next: BTreeMap<Vec<u8>, u64> = {
                let mut unbegun = locked(&self.unbegun);
                let left = unbegun.len() as u64;
                let count = match order.far {
                    Some(_) => left,
                    None => given::next_files(last, left, order.times),
                };
                unbegun.drain(..count as usize).collect()
            };
            if next.is_empty() {
                return Ok(waits);
            }
            let count = next.len() as u64;
            let before = self.progress.bytes.load(Relaxed);
            let ended = copy_some(order, next, (&self.watch, &self.progress), tell);
            order.pace.spend(self.progress.bytes.load(Relaxed) - before, began);
            let some = ended?;
            waits.source_s += some.source_s;
            waits.cpu_s += some.cpu_s;
            waits.destination_s += some.destination_s;
            last = Some((count, clock::now().since(began)));
        }
    }

    /// A range of a far file is copied as a file is, over the streams of a copy.
    fn far_range(&self, order: &ShardOrder, tell: &Sender<Told>) -> Result<Waits, Fault> {
        let ShardCopy { watch, progress, .. } = self;
        order.pace.wait(&progress.stop);
        let began = clock::now();
        let ended = at_a_host(order, progress, tell, &mut |at| {
            // What a lost host gave of it is of no use to the next.
            progress.bytes.store(0, Relaxed);
            copy_at(order, &mut order.items.clone(), at, (watch, progress), tell)
        });
        order.pace.spend(progress.bytes.load(Relaxed), began);
        ended
    }

    /// It ends within a second.
    pub(super) fn stop(&self) {
        self.progress.stop.store(true, Relaxed);
        locked(&self.watch).upgrade().iter().for_each(|watch| watch.stop());
    }

    pub(super) fn bytes_done(&self) -> u64 {
        let watch = locked(&self.watch);
        let under_way = watch.upgrade().map_or(0, |watch| watch.gauge.bytes_done.load(Relaxed));
        self.progress.bytes.load(Relaxed) + under_way
    }

    /// How many files it has not begun with, and for how long it runs.
    pub(super) fn unbegun(&self) -> (u64, Nanos) {
        (locked(&self.unbegun).len() as u64, clock::now().since(self.began))
    }

    /// Takes so many of the last files out of it, at most.
    pub(super) fn set_aside(&self, count: u64) -> Vec<u64> {
        let mut unbegun = locked(&self.unbegun);
        let kept = unbegun.len().saturating_sub(usize::try_from(count).unwrap_or(usize::MAX));
        unbegun.drain(kept..).map(|(_, item)| item).collect()
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn copy_some(
    order: &ShardOrder,
    mut left: BTreeMap<Vec<u8>, u64>,
    (watch, progress): (&Mutex<Weak<Watch>>, &Progress),
    tell: &Sender<Told>,
) -> Result<Waits, Fault> {
    at_a_host(order, progress, tell, &mut |at| {
        copy_at(order, &mut left, at, (watch, progress), tell)
    })
}

/// At which far host a try to copy is, if at one, and then into which of its folders it goes.
#[derive(Clone, Copy, Debug)]
struct Try<'a> {
    host: Option<&'a String>,
    copied_by: Option<usize>,
}

/// What is copied here, or with one far host after the other where one is lost. Each try has a
/// folder of its own: what the far side of a lost one still writes is then in no other's file.
fn at_a_host<T>(
    order: &ShardOrder,
    progress: &Progress,
    tell: &Sender<Told>,
    copy: &mut dyn FnMut(Try<'_>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let tries: Vec<Option<&String>> = match &order.far {
        Some(tries) => tries.hosts.iter().map(Some).collect(),
        None => vec![None],
    };
    let count = tries.len();
    for (number, host) in tries.into_iter().enumerate() {
        match copy(Try { host, copied_by: host.map(|_| number) }) {
            Err(fault) if fault.class == Class::Unreachable => {
                let lost = host.cloned().map(|host| Told::LostHost(host, fault.clone()));
                lost.into_iter().for_each(|lost| drop(tell.send(lost)));
                if number + 1 == count || progress.stop.load(Relaxed) {
                    return Err(fault);
                }
            }
            ended => return ended,
        }
    }
    Err(Fault::new(Class::Unreachable, "there is no far host to copy with"))
}

fn copy_at(
    order: &ShardOrder,
    left: &mut BTreeMap<Vec<u8>, u64>,
    at: Try<'_>,
    (watched, progress): (&Mutex<Weak<Watch>>, &Progress),
    tell: &Sender<Told>,
) -> Result<Waits, Fault> {
    let (notices, heard) = mpsc::channel();
    let watch = Arc::new(Watch::new(notices));
    *locked(watched) = Arc::downgrade(&watch);
    // It was asked for before this watch could be told.
    if progress.stop.load(Relaxed) {
        watch.stop();
    }
    let (names, items) = (left.clone(), Mutex::new(std::mem::take(left)));
    let over = AtomicBool::new(false);
    let ended = thread::scope(|scope| {
        let (source, copied_by) = (&order.source, at.copied_by);
        let hearing = Hearing { items: &items, source, over: &over, copied_by };
        scope.spawn(move || hearing.hear(&heard, tell));
        let ended = carry_out(order, &names, at, &watch);
        over.store(true, Relaxed);
        {
            // At one moment, so that no byte is counted twice, or not.
            let mut watched = locked(watched);
            progress.bytes.fetch_add(watch.gauge.bytes_done.load(Relaxed), Relaxed);
            *watched = Weak::new();
        }
        // Usually nothing else holds it: then its notices end here.
        drop(watch);
        ended
    });
    *left = items.into_inner().unwrap_or_else(PoisonError::into_inner);
    if ended.is_ok() && !left.is_empty() {
        let (items, copied_by) = (left.values().copied().collect(), at.copied_by);
        let _ = tell.send(Told::Unsaid { items, copied_by });
    }
    ended
}

/// Copies a range, or puts a file together.
fn one_file(order: &ShardOrder, progress: &Progress, tell: &Sender<Told>) -> Result<Waits, Fault> {
    let done = at_a_host(order, progress, tell, &mut |Try { host, copied_by }| {
        let staged = order.staged(copied_by);
        let (bytes, (digest, waits)) = match (&order.shard.range, &order.shard.whole) {
            (Some(range), _) => {
                let before = progress.bytes.load(Relaxed);
                let copied = range_to(order, host, &staged, progress);
                if copied.is_err() {
                    progress.bytes.store(before, Relaxed);
                }
                (range.len, copied?)
            }
            (None, Some(whole)) => {
                let digests = order.digests.clone().unwrap_or(Ok(Vec::new()))?;
                let mut destination = match (host, &order.far) {
                    (Some(host), Some(Tries { end: FarEnd::Destination, remote, .. })) => {
                        Destination::Far(Box::new(Far::alone(order.place.clone(), host, remote)))
                    }
                    _ => Destination::here(order.place.clone()),
                };
                (whole.size, assemble(whole, &digests, (&mut destination, &staged), progress)?)
            }
            (None, None) => {
                return Err(Fault::new(Class::Local, "a shard is neither a range nor a whole"));
            }
        };
        Ok((bytes, digest, waits, copied_by))
    });
    match done {
        Ok((bytes, digest, waits, copied_by)) => {
            let digest = Some(digest);
            let _ = tell.send(Told::Staged { item: 0, bytes, digest, copied_by });
            Ok(waits)
        }
        // What ends a copy, or is wrong with the destination, is not the file's.
        Err(fault) if fault.ends_transfer() => Err(fault),
        Err(fault) => {
            let _ = tell.send(Told::Failed { item: 0, fault });
            Ok(Waits::default())
        }
    }
}

fn range_to(
    order: &ShardOrder,
    host: Option<&String>,
    staged: &Spot,
    progress: &Progress,
) -> Result<(String, Waits), Fault> {
    let Some(range) = &order.shard.range else { return Err(Fault::interrupted()) };
    let name = order.items.keys().next().map(Vec::as_slice).unwrap_or_default();
    let path = order.place.path(staged);
    let to = match (host, &order.far) {
        (Some(host), Some(Tries { end: FarEnd::Destination, remote, .. })) => {
            StagedFile::far((host, &path), order.copying.streams, remote, &progress.stop)?
        }
        _ => StagedFile::here(Here::new(order.place.clone()).create(staged)?, path),
    };
    let links = order.copying.links().unwrap_or(Links::Copy);
    copy_range(range, (&order.source, name, links), to, (progress, &order.pace))
}

fn carry_out(
    order: &ShardOrder,
    names: &BTreeMap<Vec<u8>, u64>,
    at: Try<'_>,
    watch: &Arc<Watch>,
) -> Result<Waits, Fault> {
    let fault = |why| Fault::system("keep the list of names in a temporary file", &why);
    let mut list = tempfile::NamedTempFile::new().map_err(fault)?;
    for name in names.keys() {
        list.write_all(name).and_then(|()| list.write_all(&[0])).map_err(fault)?;
    }
    list.flush().map_err(fault)?;
    let name = names.keys().next().map(Vec::as_slice).unwrap_or_default();
    let target = order.staging(at.copied_by);
    let (source, listed) = match order.is_single {
        true => (below(&order.source, name), None),
        false => {
            (order.source.clone(), Some(Listed { file: list.path().to_path_buf(), nul: true }))
        }
    };
    let (source_host, target_host) = match order.far.as_ref().map(|tries| tries.end) {
        Some(FarEnd::Source) => (at.host.cloned(), None),
        Some(FarEnd::Destination) => (None, at.host.cloned()),
        None => (None, None),
    };
    let job = Job {
        sources: vec![Location::Path(source)],
        source_host,
        target: Location::Path(target),
        target_host,
        settings: settings(&order.copying),
        listed,
        range: order.shard.range.as_ref().map(wanted_range),
        remote: order.far.as_ref().map(|tries| tries.remote.clone()).unwrap_or_default(),
    };
    let over = order.far.as_ref().zip(at.host).and_then(|(tries, host)| tries.over(host));
    let copied = match (over, at.host) {
        (Some(over), Some(host)) => remote::copy::run_over(&job, host, over, watch),
        _ => remote::copy::run(&job, watch),
    };
    copied.map(|outcome| waits(&outcome))
}

fn wanted_range(range: &Range) -> FileRange {
    let Range { offset, len, size, mtime_s, mtime_ns } = *range;
    let of_mtime = Moment { seconds: mtime_s, nanos: mtime_ns };
    FileRange { bytes: offset..offset.saturating_add(len), of_size: size, of_mtime }
}

fn settings(copying: &Copying) -> Settings {
    Settings {
        streams: copying.streams,
        links: copying.links().unwrap_or(Links::Copy),
        engine: copying.engine().unwrap_or(EngineChoice::Auto),
        direct: copying.direct().unwrap_or(Direct::Auto),
        preserve: copying.preserve,
        rate: copying.bytes_per_second.map(|rate| Rate { bytes_per_second: rate }),
        // What is committed must be on stable storage before.
        fsync: Fsync::File,
        // A staging folder is of one attempt: nothing in it is of an earlier one.
        fresh: true,
        // The first name may be committed, and gone from there, before the next is made.
        names_apart: true,
        ..Settings::default()
    }
}

fn waits(outcome: &Outcome) -> Waits {
    let life = outcome.near.tally.life;
    Waits {
        source_s: life.fill.seconds(),
        cpu_s: life.pass.seconds(),
        destination_s: (life.gate + life.drain).seconds(),
        ..Waits::default()
    }
}

/// What is heard of one copy.
struct Hearing<'a> {
    /// Those of which nothing was said yet.
    items: &'a Mutex<BTreeMap<Vec<u8>, u64>>,
    source: &'a Path,
    over: &'a AtomicBool,
    copied_by: Option<usize>,
}

impl Hearing<'_> {
    fn hear(&self, heard: &Receiver<Notice>, tell: &Sender<Told>) {
        loop {
            let notice = match heard.recv_timeout(LOOK_EVERY) {
                Ok(notice) => notice,
                Err(RecvTimeoutError::Timeout) if !self.over.load(Relaxed) => continue,
                Err(_) => return,
            };
            let told = match notice {
                Notice::FileDone { path, bytes, digest, .. } => self
                    .take(&path)
                    .map(|item| Told::Staged { item, bytes, digest, copied_by: self.copied_by }),
                Notice::FileFailed { path, fault } => match self.take(&path) {
                    Some(item) => Some(Told::Failed { item, fault }),
                    None => Some(Told::Warning(fault.text)),
                },
                Notice::Warning(text) => Some(Told::Warning(text)),
                _ => None,
            };
            if let Some(told) = told
                && tell.send(told).is_err()
            {
                return;
            }
        }
    }

    /// The item of this name; those in faults may be names of the source.
    fn take(&self, path: &[u8]) -> Option<u64> {
        let mut items = locked(self.items);
        let inside = Path::new(std::ffi::OsStr::new(mover::pump::source::walk::name_of(path)))
            .strip_prefix(self.source)
            .map(|inside| std::os::unix::ffi::OsStrExt::as_bytes(inside.as_os_str()).to_vec());
        items.remove(path).or_else(|| items.remove(&inside.ok()?))
    }
}

/// How often it is asked whether a copy is over whose notices have not ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);
