//! Carries out an experiment: chooses the size of its runs, puts each block of runs between two
//! calibrations, and judges the runs. It does not know the store: its observer keeps the runs.

pub mod codec;
pub(crate) mod rig;
mod speed;
pub mod trials;
pub(crate) mod workplace;

use std::collections::BTreeMap;
use std::fmt;
use std::thread;
use std::time::Duration;

use self::rig::{Cache, Ran, Rig};
use crate::probe::Probe;
use analysis::accounting::gates::{self, Calibration, CpuBinding};
use analysis::accounting::moment::Moment;
use analysis::record::copy_record::{CopyRecord, record_of_copy};
use analysis::record::sample::{Gate, Machine, PlaceInExperiment, Record, SeriesPoint};
use analysis::statistics;
use analysis::study::experiment::{BLOCK_RUNS, Beside, Cell, Design, Run, Soak};
use base::fault::Fault;
use base::job::Location;
use base::units::{Nanos, Tick};
use mover::io::clock;
use mover::pump::watch::Watch;

/// Progress of an experiment.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    /// How many bytes a run of this cell is to move is being measured.
    Sizing {
        cell: Cell,
        done: usize,
        of: usize,
    },
    Calibrating {
        done: usize,
        of: usize,
    },
    Ran {
        record: &'a Record,
        beside: Beside,
        done: usize,
        of: usize,
    },
    /// Runs of a block are void.
    Void {
        why: &'a str,
        runs: usize,
        again: bool,
    },
    /// So many runs were to be repeated, and there is no time for it.
    NoTime {
        runs: usize,
    },
}

/// Who is told of progress, and who keeps the runs.
pub(crate) struct Observer<'a> {
    pub tell: &'a mut dyn FnMut(&Step<'_>),
    /// Keeps a run and returns its number; a run that already has a number is replaced.
    pub keep: &'a mut dyn FnMut(&Record) -> Result<i64, Fault>,
}

impl fmt::Debug for Observer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// The probe of a host, and the number of its environment in the store.
#[derive(Debug)]
pub(crate) struct HostProbe {
    pub probe: Probe,
    pub environment: i64,
}

/// An experiment, ready to be carried out.
#[derive(Debug)]
pub(crate) struct Bench {
    /// The name of the experiment in the store.
    pub name: String,
    pub design: Design,
    pub rig: Rig,
    pub near: HostProbe,
    /// On the other host, where there is one.
    pub far: Option<HostProbe>,
    /// CPUs that the other end of the network is bound to.
    pub far_cpus: Vec<u32>,
    /// Share of each CPU that a soaker takes from a busy thread.
    pub intrusion: BTreeMap<u32, f64>,
    /// The scheduler of this host groups threads by session.
    pub autogroup: bool,
    /// Blocks are repeated as long as all ends within this time; `None` for no limit.
    pub again_within: Option<Nanos>,
}

/// A run between two calibrations, with the moments around it.
struct FinishedRun {
    record: Record,
    from: Moment,
    to: Moment,
    file_bytes: u64,
}

impl Bench {
    /// Makes every run. A run or a block that fails a gate is repeated once, at the end.
    pub(crate) fn carry_out(
        &mut self,
        watch: &Watch,
        observer: &mut Observer<'_>,
    ) -> Result<(), Fault> {
        let begun = clock::now();
        let cells = self.design.cells();
        for (done, &cell) in cells.iter().enumerate() {
            (observer.tell)(&Step::Sizing { cell, done, of: cells.len() });
            let sized = self.rig.size(cell, watch);
            self.remove_far_sink(cell)?;
            sized?;
        }
        self.measure_intrusion()?;
        let mut blocks: Vec<(Vec<Run>, bool)> =
            self.design.blocks().into_iter().map(|runs| (runs, true)).collect();
        let mut of: usize = blocks.iter().map(|(runs, _)| runs.len()).sum();
        let (mut done, mut best, mut at) = (0, BTreeMap::new(), 0);
        let mut again: Vec<Run> = Vec::new();
        loop {
            if at == blocks.len() {
                blocks.extend(again.chunks(BLOCK_RUNS).map(|runs| (runs.to_vec(), false)));
                again.clear();
            }
            let Some((runs, is_first)) = blocks.get(at).cloned() else { return Ok(()) };
            if !is_first && !self.has_time(begun, at) {
                (observer.tell)(&Step::NoTime { runs: of - done });
                return Ok(());
            }
            (observer.tell)(&Step::Calibrating { done, of });
            let made = self.make_block(&runs, (at, done, of), &mut best, watch, observer)?;
            done += made.len();
            let why = |made: &FinishedRun| made.record.void_reason.clone();
            let void = runs.iter().zip(&made).filter(|(_, made)| why(made).is_some());
            let void: Vec<Run> = void.map(|(run, _)| *run).collect();
            if let Some(why) = made.iter().find_map(why) {
                if is_first {
                    of += void.len();
                    again.extend(&void);
                }
                (observer.tell)(&Step::Void { why: &why, runs: void.len(), again: is_first });
            }
            at += 1;
        }
    }

    /// Makes and judges the runs between two calibrations. `best` is the best CPU speed so far.
    fn make_block(
        &mut self,
        runs: &[Run],
        (block, done, of): (usize, usize, usize),
        best: &mut BTreeMap<u32, f64>,
        watch: &Watch,
        observer: &mut Observer<'_>,
    ) -> Result<Vec<FinishedRun>, Fault> {
        if self.intrudes() {
            self.measure_intrusion()?;
        }
        let before = self.calibrate(best)?;
        let mut made: Vec<FinishedRun> = Vec::new();
        for run in runs {
            let done = done + made.len();
            let mut one = self.make(*run, (block, done), &before, watch)?;
            one.record.id = (observer.keep)(&one.record)?;
            let step = Step::Ran { record: &one.record, beside: run.beside, done: done + 1, of };
            (observer.tell)(&step);
            made.push(one);
        }
        let after = self.calibrate(&before.rho_best)?;
        best.clone_from(&after.rho_best);
        let gates = self.gates_of_block(&before, &after);
        let mean = before.mean(&after);
        for one in &mut made {
            self.judge(one, &gates, &mean);
            (observer.keep)(&one.record)?;
        }
        Ok(made)
    }

    /// True if one more block ends in time, given the time that the blocks so far took.
    fn has_time(&self, begun: Tick, blocks: usize) -> bool {
        let used = clock::now().since(begun).0;
        let one_more = used + used / blocks.max(1) as u64;
        self.again_within.is_none_or(|within| one_more <= within.0)
    }

    /// True if the soaker took more from a thread than allowed when that was last measured: always
    /// so with some settings of the scheduler, for a while beside other load.
    fn intrudes(&self) -> bool {
        self.intrusion.values().any(|share| share.is_nan() || *share > gates::INTRUSION_MAX)
    }

    /// Measures how much the soaker takes from a thread of a run.
    fn measure_intrusion(&mut self) -> Result<(), Fault> {
        let cpus = self.soaked();
        if cpus.is_empty() {
            return Ok(());
        }
        let mut spinner = Probe::start(&own_process()?)?;
        self.near.probe.soak(&cpus)?;
        self.intrusion = crate::probe::intrusion(&mut self.near.probe, &mut spinner)?;
        self.near.probe.soak(&[])
    }

    fn soaked(&self) -> Vec<u32> {
        self.design.soak.among(self.near.probe.cpus())
    }

    /// Measures soakers and kernel threads while nothing else runs. Repeated if there was other
    /// load: runs have their own gate against that, and must not be void for load before or after
    /// them.
    fn calibrate(&mut self, best: &BTreeMap<u32, f64>) -> Result<Calibration, Fault> {
        let mut calibration = self.calibrate_once(best)?;
        for _ in 1..CALIBRATION_TRIES {
            if self.design.soak == Soak::None || gates::is_calm(&calibration) {
                break;
            }
            calibration = self.calibrate_once(&calibration.rho_best)?;
        }
        Ok(calibration)
    }

    fn calibrate_once(&mut self, best: &BTreeMap<u32, f64>) -> Result<Calibration, Fault> {
        let cpus = self.soaked();
        let probe = &mut self.near.probe;
        probe.soak(&cpus)?;
        let from = probe.moment()?;
        thread::sleep(if cpus.is_empty() { GLANCE } else { CALIBRATION });
        let to = probe.moment()?;
        probe.soak(&[])?;
        Ok(Calibration::between(&from, &to, best))
    }

    fn gates_of_block(&self, before: &Calibration, after: &Calibration) -> Vec<Gate> {
        match self.design.soak {
            // Without soakers the speed of the CPUs is unknown.
            Soak::None => Vec::new(),
            Soak::Some | Soak::All => gates::of_block(before, after, &self.intrusion),
        }
    }

    fn make(
        &mut self,
        run: Run,
        (block, order_index): (usize, usize),
        calibration: &Calibration,
        watch: &Watch,
    ) -> Result<FinishedRun, Fault> {
        let cpus = match run.beside {
            Beside::Nothing => Vec::new(),
            Beside::Soaker => self.soaked(),
        };
        let resident = self.prepare_cache(run.cell)?;
        self.near.probe.soak(&cpus)?;
        let far_from = self.far_moment(run.cell)?;
        let from = self.near.probe.moment()?;
        let started_unix_s = unix_s();
        let ran = self.rig.run(run.cell, watch);
        let to = self.near.probe.moment()?;
        let far_to = self.far_moment(run.cell)?;
        self.near.probe.soak(&[])?;
        self.rig.remove_sink()?;
        self.remove_far_sink(run.cell)?;
        let ran = ran?;
        let mut record = self.record(&ran, started_unix_s)?;
        record.place = Some(PlaceInExperiment {
            experiment: self.name.clone(),
            scenario: run.cell.scenario,
            seed: self.design.seed,
            order_index: order_index as u32,
            repeat: run.repeat,
            block: block as u32,
        });
        record.conditions.cache = self.rig.conditions().cache.name().to_string();
        record.conditions.resident_before = resident;
        record.conditions.soaked_cpus = cpus;
        let interrupts = to.device_interrupts.saturating_sub(from.device_interrupts);
        record.conditions.device_interrupts = Some(interrupts);
        record.conditions.has_two_devices = self.rig.has_two_devices();
        let file_bytes = match self.rig.conditions().cache {
            Cache::Bypass => 0,
            Cache::Warm | Cache::Cold => ran.outcome.bytes,
        };
        let touches = run.cell.scenario.reads_disk() || run.cell.scenario.writes_disk();
        let file_bytes = if touches { file_bytes } else { 0 };
        let far = far_from.zip(far_to).map(|(from, to)| from.until(&to));
        let mut made = FinishedRun { record, from, to, file_bytes };
        made.record.machines = std::iter::once(Machine::default()).chain(far).collect();
        self.judge(&mut made, &[], calibration);
        Ok(made)
    }

    /// Everything that depends on a calibration: what the machine did, which of the kernel threads'
    /// time belongs to the run, and whether the run is valid.
    fn judge(&self, made: &mut FinishedRun, block: &[Gate], calibration: &Calibration) {
        let FinishedRun { record, from, to, file_bytes } = made;
        let machine = calibration.referee(from, to);
        let place = record.place.as_ref().expect("a run of an experiment");
        let scenario = place.scenario;
        let near_cpus = self.rig.conditions().near_cpus.as_ref().map(|cpus| cpus.list().to_vec());
        let binding = |cpus: &[u32], reads_files, writes_files| CpuBinding {
            cpus: cpus.to_vec(),
            reads_files,
            writes_files,
        };
        let near_cpus = near_cpus.unwrap_or_default();
        let (reads, writes) = (scenario.reads_disk(), scenario.writes_disk());
        let on_one_host = self.far.is_none();
        let bindings = match (&record.sink, on_one_host) {
            (None, _) => vec![binding(&near_cpus, reads, writes)],
            (Some(_), true) => {
                vec![binding(&near_cpus, reads, false), binding(&self.far_cpus, false, writes)]
            }
            (Some(_), false) => vec![binding(&near_cpus, reads, false)],
        };
        let mut charged =
            gates::attribute(&calibration.beyond_usual(&machine), &bindings).into_iter();
        record.source.kernel_threads_s = charged.next().unwrap_or_default();
        record.source.cpus = near_cpus;
        if let Some(sink) = &mut record.sink {
            sink.kernel_threads_s = charged.next().unwrap_or_else(|| {
                let threads = record.machines.get(1).map(|far| far.kernel_threads.clone());
                let bindings = [binding(&self.far_cpus, false, writes)];
                gates::attribute(&threads.unwrap_or_default(), &bindings).remove(0)
            });
            sink.cpus = self.far_cpus.clone();
        }
        let own = gates::of_run(&machine, to.memory_available_bytes, *file_bytes);
        record.gates = block.iter().cloned().chain(own).collect();
        record.void_reason = gates::void_reason(&record.gates);
        match record.machines.first_mut() {
            Some(first) => *first = machine,
            None => record.machines.push(machine),
        }
    }

    /// Removes what the run wrote on another host, also after a failure.
    fn remove_far_sink(&mut self, cell: Cell) -> Result<(), Fault> {
        match (&mut self.far, self.rig.far_folder_of(cell)) {
            (Some(far), Some(folder)) => far.probe.remove_sink(folder),
            _ => Ok(()),
        }
    }

    fn far_moment(&mut self, cell: Cell) -> Result<Option<Moment>, Fault> {
        match &mut self.far {
            Some(far) if cell.scenario.has_net() => far.probe.moment().map(Some),
            _ => Ok(None),
        }
    }

    /// Loads the source into the page cache, or drops it; returns the share that is cached.
    fn prepare_cache(&mut self, cell: Cell) -> Result<Option<f64>, Fault> {
        let Some(path) = self.rig.source_of(cell) else { return Ok(None) };
        let path = std::path::absolute(&path).unwrap_or(path);
        match self.rig.conditions().cache {
            Cache::Bypass => {}
            Cache::Cold => self.near.probe.drop_from_cache(&path)?,
            Cache::Warm => {
                let resident = self.near.probe.file(&path)?.resident;
                if resident.is_none_or(|share| share < WARM_SHARE) {
                    self.rig.read_through(&path)?;
                }
            }
        }
        Ok(self.near.probe.file(&path)?.resident)
    }

    fn record(&mut self, ran: &Ran, started_unix_s: f64) -> Result<Record, Fault> {
        let shown = |place: &Location| match place {
            Location::Path(path) => path.display().to_string(),
            Location::Null { len: 0 } => "null:".to_string(),
            Location::Null { len } => format!("null:{len}"),
            Location::Object(url) => url.to_string(),
            other => format!("{other:?}"),
        };
        let file_system = |probe: &mut Probe, place: &Location| match place {
            Location::Path(path) => {
                let path = std::path::absolute(path).unwrap_or(path.clone());
                let state = probe.file(&path)?;
                Ok(Some(format!("{} {}", state.file_system, state.mount_options)))
            }
            _ => Ok(None),
        };
        let source_file_system = file_system(&mut self.near.probe, &ran.job.sources[0])?;
        let over_net = ran.outcome.far.is_some();
        let sink_probe = match &mut self.far {
            Some(far) if over_net => &mut far.probe,
            _ => &mut self.near.probe,
        };
        let sink_file_system = file_system(sink_probe, &ran.job.target)?;
        let mut record = record_of_copy(&CopyRecord {
            command: "measure",
            sources: vec![shown(&ran.job.sources[0])],
            target: shown(&ran.job.target),
            settings: &ran.job.settings,
            outcome: &ran.outcome,
            series: &ran.series,
            started_unix_s,
            environment: self.near.environment,
            source_file_system,
            sink_file_system,
            predicted: None,
            far_host: None,
        });
        if let Some(sink) = &mut record.sink {
            let far = self.far.as_ref().map(|far| far.environment);
            sink.environment = far.unwrap_or(self.near.environment);
        }
        let steady = steady(&record.series, record.moved.bytes);
        record.moved.steady_from_s = steady.map(|(from_s, _)| from_s);
        record.moved.steady_bytes_per_s = steady.map(|(_, rate)| rate);
        Ok(record)
    }
}

/// When the rate became steady, and that rate. Time after the last byte does not count.
fn steady(series: &[SeriesPoint], bytes: u64) -> Option<(f64, f64)> {
    let last = series.iter().position(|point| point.bytes >= bytes).unwrap_or(series.len());
    let moving = &series[..last];
    let first = moving.iter().position(|point| point.bytes > 0)?;
    let moving = &moving[first..];
    let rate = |pair: &[SeriesPoint]| {
        (pair[1].bytes.saturating_sub(pair[0].bytes)) as f64 / (pair[1].at_s - pair[0].at_s)
    };
    let rates: Vec<f64> = moving.windows(2).map(rate).collect();
    let steady = statistics::steady_state(&rates)?;
    Some((moving[steady.from_index].at_s, steady.mean))
}

/// This program as another process on this host.
pub(crate) fn own_process() -> Result<mover::remote::launch::Launch, Fault> {
    let program = mover::remote::launch::own_program()?;
    Ok(mover::remote::launch::Launch::Process { program, cpus: None })
}

/// Unix time, for records.
pub(crate) fn unix_s() -> f64 {
    clock::unix().as_secs_f64()
}

/// Long compared with a scheduler tick.
const CALIBRATION: Duration = Duration::from_secs(2);
const CALIBRATION_TRIES: u32 = 3;
/// Long enough to see the usual load of the kernel's threads.
const GLANCE: Duration = Duration::from_millis(300);
/// Nearly all pages are in the page cache.
const WARM_SHARE: f64 = 0.99;
