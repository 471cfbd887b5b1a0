//! Makes the runs with the code of `copy`, between the ends that a cell asks for.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::workplace::Workplace;
use crate::host::file;
use crate::probe::FAR_SINK;
use analysis::record::copy_record::Series;
use analysis::record::sample::Scenario;
use analysis::study::experiment::{Cell, bytes_for};
use base::cpus::Cpus;
use base::fault::{Class, Fault};
use base::job::{Job, Location, Outcome, Remote};
use base::settings::{DigestKind, Direct, Overwrite, Seal, Settings};
use base::units::Bytes;
use mover::io::{clock, system};
use mover::pump::watch::Watch;
use mover::remote::copy;
use mover::remote::demo::make_file;
use mover::remote::launch::Launch;

/// How the files of a run use the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cache {
    /// Not at all: direct I/O.
    Bypass,
    /// All that is read is in it.
    Warm,
    /// None of what is read is in it.
    Cold,
}

impl Cache {
    pub(crate) const NAMES: &[&str] = &["bypass", "warm", "cold"];
    pub(crate) const ALL: &[Cache] = &[Cache::Bypass, Cache::Warm, Cache::Cold];

    pub(crate) fn name(self) -> &'static str {
        Cache::NAMES[self as usize]
    }
}

/// Where runs are made, and under which conditions.
#[derive(Clone, Debug)]
pub(crate) struct RunConditions {
    /// A folder in which files are made, or a file that is read.
    pub place: PathBuf,
    /// A folder to write in, if it is another.
    pub sink_place: Option<PathBuf>,
    pub settings: Settings,
    pub cache: Cache,
    /// How the other end of the network is started.
    pub far: Launch,
    /// Its folder; the near one where both ends are on this host.
    pub far_folder: Option<PathBuf>,
    /// CPUs that the near end is bound to.
    pub near_cpus: Option<Cpus>,
    /// About how long a run is to take.
    pub run_s: f64,
    /// How many bytes a run moves; `None` leaves it to `run_s`.
    pub bytes: Option<u64>,
    pub seed: u64,
}

/// The result of a run, before it becomes a record.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub job: Job,
    pub outcome: Outcome,
    pub series: Series,
}

/// Files and sizes for the runs of one experiment. The files are removed with it.
#[derive(Debug)]
pub(crate) struct Rig {
    conditions: RunConditions,
    folder: Workplace,
    sink_folder: Option<Workplace>,
    /// The file that is read, if one was given.
    given: Option<(PathBuf, u64)>,
    sizes: BTreeMap<Cell, u64>,
}

impl Rig {
    pub(crate) fn new(conditions: RunConditions) -> Result<Rig, Fault> {
        let place = &conditions.place;
        let metadata = fs::metadata(place).map_err(|error| Fault::io("find", place, &error))?;
        let (parent, given) = match metadata.is_dir() {
            true => (place.clone(), None),
            false if !metadata.is_file() || metadata.len() == 0 => {
                return Err(Fault::usage(format!(
                    "'{}' is neither a folder nor a file with data: name one or the other",
                    place.display()
                )));
            }
            false => {
                let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty());
                let parent = parent.unwrap_or(Path::new(".")).to_path_buf();
                (parent, Some((place.clone(), metadata.len())))
            }
        };
        let folder = Workplace::make(&parent)?;
        let sink_folder = conditions.sink_place.as_deref().map(Workplace::make).transpose()?;
        Ok(Rig { conditions, folder, sink_folder, given, sizes: BTreeMap::new() })
    }

    pub(crate) fn conditions(&self) -> &RunConditions {
        &self.conditions
    }

    /// Where the files of this experiment lie.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The folder of the files that are written, which may be the same.
    pub(crate) fn sink_folder(&self) -> &Path {
        self.sink_folder.as_ref().unwrap_or(&self.folder).path()
    }

    /// Measures how many bytes a run of this cell is to move.
    pub(crate) fn size(&mut self, cell: Cell, watch: &Watch) -> Result<(), Fault> {
        if self.sizes.contains_key(&cell) {
            return Ok(());
        }
        let bytes = match self.asked(cell)? {
            Some(bytes) => bytes,
            None => self.by_pilots(cell, watch)?,
        };
        self.check_room(cell, bytes)?;
        self.sizes.insert(cell, bytes);
        Ok(())
    }

    /// The bytes of a run, if a file or a number was given. Runs of the CPU scenario are sized by
    /// requests.
    fn asked(&self, cell: Cell) -> Result<Option<u64>, Fault> {
        match (&self.given, self.conditions.bytes) {
            (Some((_, length)), _) if cell.scenario.reads_disk() => Ok(Some(*length)),
            (None, Some(bytes)) if cell.scenario.reads_disk() => self.rung(bytes).map(Some),
            (_, bytes) => Ok(bytes.filter(|_| cell.scenario != Scenario::Cpu)),
        }
    }

    /// From the time of a pilot run; a second one if the first was too short.
    fn by_pilots(&mut self, cell: Cell, watch: &Watch) -> Result<u64, Fault> {
        let mut bytes = match cell.scenario {
            Scenario::Cpu => CPU_PILOT_REQUESTS * u64::from(cell.request_bytes),
            _ => PILOT_BYTES,
        };
        for _ in 0..PILOTS_MAX {
            self.check_room(cell, bytes)?;
            self.sizes.insert(cell, bytes);
            let ran = self.run(cell, watch);
            self.sizes.remove(&cell);
            self.remove_sink()?;
            let took_s = ran?.outcome.elapsed.seconds();
            let wanted = bytes_for(bytes, took_s, self.conditions.run_s, cell.request_bytes);
            bytes = self.fitting(cell, wanted)?;
            if took_s >= PILOT_SHARE_MIN * self.conditions.run_s {
                break;
            }
        }
        Ok(bytes)
    }

    /// The size within the free space and, where a file is read, the size of such a file.
    fn fitting(&self, cell: Cell, wanted: u64) -> Result<u64, Fault> {
        let bytes = match cell.scenario.writes_disk() {
            true => {
                let most = self.room(self.sink_folder())?.min(self.sink_bytes_max(cell));
                wanted.max(SINK_BYTES_MIN).min(most)
            }
            false => wanted,
        };
        if cell.scenario.reads_disk() { self.rung(bytes) } else { Ok(bytes) }
    }

    fn sink_bytes_max(&self, cell: Cell) -> u64 {
        let here = self.far_folder_of(cell).is_none();
        let in_memory = || file::state(self.sink_folder()).is_ok_and(|state| state.is_in_memory());
        if here && in_memory() { IN_MEMORY_BYTES_MAX } else { u64::MAX }
    }

    /// Reports a lack of space on this host before a run.
    fn check_room(&self, cell: Cell, bytes: u64) -> Result<(), Fault> {
        if !cell.scenario.writes_disk() || self.far_folder_of(cell).is_some() {
            return Ok(());
        }
        let free = available(self.sink_folder())?;
        if bytes <= free {
            return Ok(());
        }
        let (place, option) = match &self.conditions.sink_place {
            Some(place) => (place, "--sink-folder"),
            None => (&self.conditions.place, "--file"),
        };
        let text = format!(
            "'{}' has {} free, and {} writes {}: name another folder with {option}",
            place.display(),
            Bytes(free),
            cell.scenario.name(),
            Bytes(bytes)
        );
        Err(Fault::new(Class::NoSpace, text))
    }

    /// The file that a run of this cell reads.
    pub(crate) fn source_of(&self, cell: Cell) -> Option<PathBuf> {
        let bytes = *self.sizes.get(&cell)?;
        cell.scenario.reads_disk().then(|| match &self.given {
            Some((path, _)) => path.clone(),
            None => self.rung_path(bytes),
        })
    }

    /// The path where a run writes on this host, if it does.
    pub(crate) fn sink(&self) -> PathBuf {
        self.sink_folder().join("sink")
    }

    /// The folder on another host in which a run of this cell writes, if it does.
    pub(crate) fn far_folder_of(&self, cell: Cell) -> Option<&Path> {
        let writes = cell.scenario.writes_disk() && cell.scenario.has_net();
        self.conditions.far_folder.as_deref().filter(|_| writes)
    }

    /// Makes one run. What it wrote on this host stays until `remove_sink`, which is not part of
    /// its costs; on another host, the probe there removes it.
    pub(crate) fn run(&mut self, cell: Cell, watch: &Watch) -> Result<Ran, Fault> {
        let bytes = self.sizes[&cell];
        let source = match cell.scenario.reads_disk() {
            true => {
                let path = self.source_of(cell).expect("it has a size");
                if self.given.is_none() {
                    self.rung(bytes)?;
                }
                Location::Path(path)
            }
            false => Location::Null { len: bytes },
        };
        let target = match (cell.scenario.writes_disk(), self.far_folder_of(cell)) {
            (true, Some(folder)) => Location::Path(folder.join(FAR_SINK)),
            (true, None) => Location::Path(self.sink()),
            (false, _) => Location::Null { len: 0 },
        };
        let (target_host, remote) = match (&self.conditions.far, cell.scenario.has_net()) {
            (Launch::Ssh { host, remote }, true) => (Some(host.clone()), remote.clone()),
            _ => (None, Remote::default()),
        };
        let job = Job {
            sources: vec![source],
            source_host: None,
            target,
            target_host,
            settings: self.settings(cell),
            listed: None,
            range: None,
            remote,
        };
        self.transfer(job, cell.scenario.has_net(), watch)
    }

    /// Removes what a run wrote on this host.
    pub(crate) fn remove_sink(&self) -> Result<(), Fault> {
        let sink = self.sink();
        match sink.exists() {
            true => fs::remove_file(&sink).map_err(|error| Fault::io("remove", &sink, &error)),
            false => Ok(()),
        }
    }

    /// True where what is read and what is written on this host are on two devices.
    pub(crate) fn has_two_devices(&self) -> bool {
        let read = self.given.as_ref().map_or(self.folder(), |(path, _)| path);
        match (file::device(read), file::device(self.sink_folder())) {
            (Some(read), Some(written)) => read != written,
            _ => false,
        }
    }

    /// Reads a file to bring it into the page cache.
    pub(crate) fn read_through(&self, path: &Path) -> Result<(), Fault> {
        let read = fs::File::open(path)
            .and_then(|mut file| std::io::copy(&mut file, &mut std::io::sink()));
        read.map(|_| ()).map_err(|error| Fault::io("read", path, &error))
    }

    fn settings(&self, cell: Cell) -> Settings {
        Settings {
            streams: 1,
            request_bytes: cell.request_bytes,
            depth_source: Some(cell.depth),
            depth_sink: Some(cell.depth),
            seal: Seal::Off,
            digest: DigestKind::None,
            overwrite: Overwrite::Always,
            direct: match self.conditions.cache {
                Cache::Bypass => Direct::On,
                Cache::Warm | Cache::Cold => Direct::Off,
            },
            fresh: true,
            null_cycle_bytes: NULL_CYCLE_BYTES,
            ..self.conditions.settings.clone()
        }
    }

    /// Runs on a thread that is bound to the near CPUs, as are the threads that it starts, and
    /// records the progress.
    fn transfer(&self, job: Job, has_net: bool, outer: &Watch) -> Result<Ran, Fault> {
        let (notices, heard) = channel();
        let watch = Arc::new(Watch::new(notices));
        let far = self.conditions.far.clone();
        let cpus = self.conditions.near_cpus.clone();
        let (its_job, its_watch) = (job.clone(), watch.clone());
        let begun = clock::now();
        let work = move || {
            if let Some(cpus) = &cpus {
                system::pin(cpus).map_err(Fault::usage)?;
            }
            match has_net {
                true => copy::run_with(&its_job, &far, &its_watch, clock::now()),
                false => copy::run(&its_job, &its_watch),
            }
        };
        let working = thread::Builder::new()
            .name("run".into())
            .spawn(work)
            .map_err(|error| Fault::system("start a thread", &error))?;
        let mut series = Series::default();
        while !working.is_finished() {
            if outer.stopping() {
                watch.stop();
            }
            thread::sleep(LOOK_EVERY);
            series.add(clock::now().since(begun), watch.gauge.bytes_done.load(Relaxed));
        }
        let ended = working.join().unwrap_or_else(|_| {
            Err(Fault::new(Class::Local, "a run panicked; its message is above"))
        });
        drop(heard);
        let outcome = ended?;
        Ok(Ran { job, outcome, series })
    }

    /// The smallest source file that is long enough, or the longest that there is room for. Each is
    /// twice as long as the one before, and created on first use.
    fn rung(&self, bytes: u64) -> Result<u64, Fault> {
        let mut length = PILOT_BYTES;
        while length < bytes && length < LONGEST_BYTES {
            length *= 2;
        }
        let path = self.rung_path(length);
        if path.exists() {
            return Ok(length);
        }
        let room = self.room(self.folder())?;
        while length > PILOT_BYTES && length > room {
            length /= 2;
        }
        if length > room {
            return Err(Fault::new(
                Class::NoSpace,
                format!(
                    "'{}' has too little free space: {} are needed; name another folder with \
                     --file",
                    self.conditions.place.display(),
                    Bytes(2 * PILOT_BYTES)
                ),
            ));
        }
        make_file(&path, self.conditions.seed, length)?;
        let synced = fs::File::open(&path).and_then(|file| file.sync_all());
        synced.map_err(|error| Fault::io("sync", &path, &error))?;
        Ok(length)
    }

    fn rung_path(&self, bytes: u64) -> PathBuf {
        self.folder().join(format!("source-{bytes}"))
    }

    /// The largest new file in a folder: the sink of a run must fit beside its source.
    fn room(&self, at: &Path) -> Result<u64, Fault> {
        Ok(available(at)? / 5 * 2)
    }
}

fn available(at: &Path) -> Result<u64, Fault> {
    let found = rustix::fs::statvfs(at).map_err(|error| Fault::io("look at", at, &error.into()))?;
    Ok(found.f_bavail * found.f_frsize)
}

/// Bytes of the first pilot run.
const PILOT_BYTES: u64 = 256 << 20;
const PILOTS_MAX: u32 = 2;
/// Below this share of a run, the start and end of a transfer take too much of it.
const PILOT_SHARE_MIN: f64 = 0.25;
/// ext4 keeps up to four extents of a file in its inode. For a fifth it (6.18) allocates a block
/// and frees it again with each write into preallocated space. An extent is shorter than 128 MiB.
const SINK_BYTES_MIN: u64 = 512 << 20;
/// A hypervisor may take back the free memory of its guest within seconds, and touching it again
/// costs up to ten times as much as writing it. So the memory that one run frees serves the next.
const IN_MEMORY_BYTES_MAX: u64 = 1 << 30;
const CPU_PILOT_REQUESTS: u64 = 100_000;
const LONGEST_BYTES: u64 = 8 << 30;
/// A network scenario must find its bytes where those of a disk would be: not in the CPU's own
/// cache (1 to 2 MiB), which the same few requests would never leave.
const NULL_CYCLE_BYTES: u32 = 8 << 20;
const LOOK_EVERY: Duration = Duration::from_millis(20);
