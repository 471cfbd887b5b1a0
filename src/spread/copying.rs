//! The copy of a shard: the same copy as `datapump copy` makes, in this process, from a list of
//! names to the staging folder of the attempt.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use super::ranges::{Progress, assemble, copy_range};
use super::records::{Copying, Shard, below};
use super::storage::STAGED;
use analysis::shards::overview::Waits;
use base::fault::{Class, Fault};
use base::job::{Job, Listed, Location, Notice, Outcome, Remote};
use base::settings::{Direct, EngineChoice, Fsync, Links, Settings};
use base::units::Rate;
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
    },
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
    watch: Weak<Watch>,
    /// Of a range, or of a whole that is put together.
    progress: Arc<Progress>,
}

/// What is copied from where to where.
#[derive(Debug)]
pub(super) struct ShardOrder {
    pub source: PathBuf,
    pub staging: PathBuf,
    pub copying: Copying,
    /// The items that are left, by their names.
    pub items: BTreeMap<Vec<u8>, u64>,
    pub shard: Shard,
    /// The ranges of a file that is put together, with their digests.
    pub parts: Option<Result<Parts, Fault>>,
    /// The source is a file, and not a folder with names.
    pub is_single: bool,
}

/// Where the ranges of a file are, and their digests.
pub(super) type Parts = (Vec<PathBuf>, Vec<String>);

impl ShardCopy {
    pub(super) fn start(order: ShardOrder, tell: &Sender<Told>) -> ShardCopy {
        let progress = Arc::new(Progress::default());
        if order.shard.range.is_some() || order.shard.whole.is_some() {
            let (tell, of_thread) = (tell.clone(), progress.clone());
            thread::spawn(move || one_file(&order, &of_thread, &tell));
            return ShardCopy { watch: Weak::new(), progress };
        }
        let (notices, heard) = mpsc::channel();
        let watch = Arc::new(Watch::new(notices));
        let (weak, tell) = (Arc::downgrade(&watch), tell.clone());
        thread::spawn(move || {
            let items = Arc::new(Mutex::new(order.items.clone()));
            let over = AtomicBool::new(false);
            let ended = thread::scope(|scope| {
                let left = items.clone();
                let (source, tell, over) = (order.source.clone(), tell.clone(), &over);
                scope.spawn(move || hear(&heard, &left, (&source, over), &tell));
                let ended = carry_out(&order, &watch);
                over.store(true, Relaxed);
                // Usually nothing else holds it: then its notices end here.
                drop(watch);
                ended
            });
            if ended.is_ok() {
                let left = items.lock().unwrap_or_else(PoisonError::into_inner);
                unsaid(&order.staging, &left, &tell);
            }
            let _ = tell.send(Told::Ended(ended));
        });
        ShardCopy { watch: weak, progress }
    }

    /// It ends within a second.
    pub(super) fn stop(&self) {
        self.watch.upgrade().iter().for_each(|watch| watch.stop());
        self.progress.stop.store(true, Relaxed);
    }

    pub(super) fn bytes_done(&self) -> u64 {
        let of_files = self.watch.upgrade().map(|watch| watch.gauge.bytes_done.load(Relaxed));
        of_files.unwrap_or_else(|| self.progress.bytes.load(Relaxed))
    }
}

/// Copies a range, or puts a file together.
fn one_file(order: &ShardOrder, progress: &Progress, tell: &Sender<Told>) {
    let staged = below(&order.staging, STAGED);
    let name = order.items.keys().next().cloned().unwrap_or_default();
    let source = below(&order.source, &name);
    let done = match (&order.shard.range, &order.shard.whole, &order.parts) {
        (Some(range), _, _) => {
            copy_range(range, &source, &staged, progress).map(|done| (range.len, done))
        }
        (None, Some(whole), Some(Ok((parts, digests)))) => {
            assemble(whole, parts, digests, &staged, progress).map(|done| (whole.size, done))
        }
        (_, _, Some(Err(fault))) => Err(fault.clone()),
        _ => Err(Fault::new(Class::Local, "a shard is neither a range nor a whole")),
    };
    let ended = match done {
        Ok((bytes, (digest, waits))) => {
            let _ = tell.send(Told::Staged { item: 0, bytes, digest: Some(digest) });
            Ok(waits)
        }
        // What ends a copy, or is wrong with the destination, is not the file's.
        Err(fault) if fault.ends_transfer() => Err(fault),
        Err(fault) => {
            let _ = tell.send(Told::Failed { item: 0, fault });
            Ok(Waits::default())
        }
    };
    let _ = tell.send(Told::Ended(ended));
}

fn carry_out(order: &ShardOrder, watch: &Arc<Watch>) -> Result<Waits, Fault> {
    let fault = |why| Fault::system("keep the list of names in a temporary file", &why);
    let mut list = tempfile::NamedTempFile::new().map_err(fault)?;
    for name in order.items.keys() {
        list.write_all(name).and_then(|()| list.write_all(&[0])).map_err(fault)?;
    }
    list.flush().map_err(fault)?;
    let name = order.items.keys().next().map(Vec::as_slice).unwrap_or_default();
    let (source, listed) = match order.is_single {
        true => (below(&order.source, name), None),
        false => {
            (order.source.clone(), Some(Listed { file: list.path().to_path_buf(), nul: true }))
        }
    };
    let job = Job {
        sources: vec![Location::Path(source)],
        source_host: None,
        target: Location::Path(order.staging.clone()),
        target_host: None,
        settings: settings(&order.copying),
        listed,
        remote: Remote::default(),
    };
    remote::copy::run(&job, watch).map(|outcome| waits(&outcome))
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

fn hear(
    heard: &Receiver<Notice>,
    items: &Mutex<BTreeMap<Vec<u8>, u64>>,
    (source, over): (&Path, &AtomicBool),
    tell: &Sender<Told>,
) {
    // Names in faults may be those of the source.
    let take = |path: &[u8]| {
        let mut items = items.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = Path::new(std::ffi::OsStr::new(mover::pump::source::walk::name_of(path)))
            .strip_prefix(source)
            .map(|inside| std::os::unix::ffi::OsStrExt::as_bytes(inside.as_os_str()).to_vec());
        items.remove(path).or_else(|| items.remove(&inside.ok()?))
    };
    loop {
        let notice = match heard.recv_timeout(LOOK_EVERY) {
            Ok(notice) => notice,
            Err(RecvTimeoutError::Timeout) if !over.load(Relaxed) => continue,
            Err(_) => return,
        };
        let told = match notice {
            Notice::FileDone { path, bytes, digest, .. } => {
                take(&path).map(|item| Told::Staged { item, bytes, digest })
            }
            Notice::FileFailed { path, fault } => match take(&path) {
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

/// Items of which the copy said nothing: links, which have no bytes.
fn unsaid(staging: &Path, left: &BTreeMap<Vec<u8>, u64>, tell: &Sender<Told>) {
    for (name, item) in left {
        let path = below(staging, name);
        let told = match fs::symlink_metadata(&path) {
            Ok(_) => Told::Staged { item: *item, bytes: 0, digest: None },
            Err(_) => {
                let shown = String::from_utf8_lossy(name).into_owned();
                let text = format!("'{shown}' was not copied, as it is of no kind that is");
                Told::Failed { item: *item, fault: Fault::new(Class::SomeFailed, text) }
            }
        };
        let _ = tell.send(told);
    }
}

/// How often it is asked whether a copy is over whose notices have not ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);
