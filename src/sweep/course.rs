//! Runs a campaign: cell after cell, each after a pause as long as the copy before it. Probes of
//! the path run in both. A host that fails is left alone for a while and tried again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::copying;
use super::round_trips::Prober;
use super::site::FarHost;
use crate::probe::{FAR_SINK, Probe};
use crate::results::Store;
use analysis::campaign::{Cell, Extent, Plan, fields};
use analysis::record::sample::{PlaceInExperiment, Record, Scenario};
use base::fault::{Class, Fault};
use base::job::{Job, Location, Remote};
use base::settings::{DataSet, Overwrite, Settings};
use base::units::{Nanos, Tick};
use mover::io::clock;
use mover::pump::watch::Watch;

/// The inputs of a campaign: the same for all cells.
#[derive(Debug)]
pub struct Course {
    /// Unique among campaigns.
    pub name: String,
    pub plan: Plan,
    /// Each host with its destination folder; without one, the data is discarded.
    pub hosts: Vec<(String, Option<PathBuf>)>,
    pub settings: Settings,
    pub remote: Remote,
    pub data: DataSet,
}

/// Events of a campaign, for its observer.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    /// No copy runs for this time.
    Pausing {
        cell: &'a Cell,
        length: Nanos,
    },
    Copying {
        cell: &'a Cell,
    },
    CopyRecord {
        cell: &'a Cell,
        record: &'a Record,
        done: usize,
        of: usize,
    },
    /// The host is not measured for this time.
    Resting {
        host: &'a str,
        fault: &'a Fault,
        length: Nanos,
    },
    Warning(&'a str),
}

/// A host with cells that could not be measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LeftOut {
    pub host: String,
    pub cells: usize,
    pub fault: Fault,
}

/// What an earlier run of the campaign has measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Done {
    pub cells: BTreeSet<u32>,
    /// How long the newest of them took.
    pub last_took: Option<Nanos>,
}

/// The state of a campaign.
#[derive(Debug)]
struct Under<'a> {
    course: &'a Course,
    near: Probe,
    near_environment: i64,
    sites: Vec<FarHost>,
    /// When the last copy ended, and how long it took.
    last: Option<(Tick, Nanos)>,
}

impl Course {
    /// Measures the cells that are not done yet. Stopping the watch ends it after the current cell.
    pub(crate) fn carry_out(
        &self,
        done: &Done,
        mut near: Probe,
        store: &mut Store,
        control: &Watch,
        tell: &mut dyn FnMut(&Step<'_>),
    ) -> Result<Vec<LeftOut>, Fault> {
        let near_environment = store.environment(&near.environment()?)?;
        let all = self.plan.cells();
        let of = all.len();
        let mut left: Vec<Cell> =
            all.into_iter().filter(|cell| !done.cells.contains(&cell.index)).collect();
        let last = done.last_took.map(|took| (clock::now(), took));
        let sites = self.hosts.iter().map(|(name, _)| FarHost::new(name)).collect();
        let mut under = Under { course: self, near, near_environment, sites, last };
        while !control.stopping() {
            let now = clock::now();
            let ready = left.iter().position(|cell| under.sites[cell.host].is_ready(now));
            let Some(place) = ready else {
                let returns = left.iter().filter_map(|cell| under.sites[cell.host].returns());
                let Some(first) = returns.min() else { break };
                wait_until(first, control);
                continue;
            };
            let cell = left[place];
            match under.measure(&cell, store, control, tell) {
                Ok(Some(record)) => {
                    left.remove(place);
                    under.sites[cell.host].has_worked();
                    let done = of - left.len();
                    tell(&Step::CopyRecord { cell: &cell, record: &record, done, of });
                }
                Ok(None) => break,
                // A fault of the store or of this host would fail every other cell too.
                Err(Trouble::Here(fault)) => return Err(fault),
                Err(Trouble::There(fault)) => {
                    let host = &self.hosts[cell.host].0;
                    let length = under.sites[cell.host].has_failed(fault.clone(), cell.extent);
                    tell(&Step::Resting { host, fault: &fault, length });
                }
            }
        }
        Ok(under.left_out(&left))
    }

    fn job(&self, cell: &Cell) -> Job {
        let (host, folder) = &self.hosts[cell.host];
        let (set, seed) = (self.data, self.plan.seed);
        let source = match cell.extent {
            Extent::Time(_) => Location::EndlessSynthetic { set, seed },
            Extent::Bytes(len) => Location::Synthetic { set, len, seed },
        };
        let target = match folder {
            Some(folder) => Location::Path(folder.join(FAR_SINK)),
            None => Location::Null { len: 0 },
        };
        Job {
            sources: vec![source],
            source_host: None,
            target,
            target_host: Some(host.clone()),
            settings: Settings {
                streams: cell.setting.streams,
                window_bytes: cell.setting.window_bytes,
                compress: cell.setting.compress,
                overwrite: Overwrite::Always,
                fresh: true,
                dry_run: false,
                ..self.settings.clone()
            },
            listed: None,
            // A lost connection ends the cell, and the host is tried again later.
            remote: Remote { retry_for: Nanos(0), ..self.remote.clone() },
        }
    }
}

/// Who must act when a cell fails.
#[derive(Debug)]
enum Trouble {
    Here(Fault),
    There(Fault),
}

impl Under<'_> {
    /// One cell with the pause before it; `None` if stopped during the pause.
    fn measure(
        &mut self,
        cell: &Cell,
        store: &mut Store,
        control: &Watch,
        tell: &mut dyn FnMut(&Step<'_>),
    ) -> Result<Option<Record>, Trouble> {
        let length = self.pause(cell);
        let site = &mut self.sites[cell.host];
        let met = site.meet(&self.course.name, &self.course.remote, store)?;
        tell(&Step::Pausing { cell, length });
        let prober = met.reflector.take().map(Prober::start);
        let begun = clock::now();
        let here = |fault| Trouble::Here(fault);
        let resting = [self.near.moment().map_err(here)?, met.probe.moment()?];
        wait_until(begun.after(length), control);
        if control.stopping() {
            met.reflector = prober.and_then(|prober| prober.finish().0);
            return Ok(None);
        }
        let before = [self.near.moment().map_err(here)?, met.probe.moment()?];
        let copying = clock::now();
        let paused = copying.since(self.last.map_or(begun, |(ended, _)| ended));
        tell(&Step::Copying { cell });
        let job = self.course.job(cell);
        let copied = copying::copy(&job, &met.launch, cell.extent);
        self.last = Some((clock::now(), clock::now().since(copying)));
        let (reflector, seen) = match prober.map(Prober::finish) {
            Some((reflector, seen)) => (reflector, Some(seen)),
            None => (None, None),
        };
        met.reflector = reflector;
        let copied = copied?;
        let after = [self.near.moment().map_err(here)?, met.probe.moment()?];
        if let Some(folder) = &self.course.hosts[cell.host].1 {
            met.probe.remove_sink(folder)?;
        }
        copied.warnings.iter().for_each(|text| tell(&Step::Warning(text)));
        let around = fields::Around {
            job: &job,
            copied: &copied,
            round_trips: seen.map(|seen| seen.round_trips(copied.moving)),
            paused,
            moments: [resting, before, after],
            environments: [self.near_environment, met.environment],
            near_facts: &met.near_facts,
        };
        let mut record = fields::record(cell, &around);
        record.place = Some(self.place(cell));
        record.id = store.insert(&record).map_err(Trouble::Here)?;
        Ok(Some(record))
    }

    /// The previous copy's duration and a twentieth more, less the time since its end; before the
    /// first copy, the length of the cell. So load takes at most half of the time, first and last
    /// cell included. Long enough for some probes.
    fn pause(&self, cell: &Cell) -> Nanos {
        let whole = match (self.last, cell.extent) {
            (Some((_, took)), _) => Nanos(took.0 / 20 * 21),
            (None, Extent::Time(time)) => time,
            (None, Extent::Bytes(_)) => PAUSE_MIN,
        };
        let passed = self.last.map_or(Nanos(0), |(ended, _)| clock::now().since(ended));
        (whole - passed).max(PAUSE_MIN)
    }

    fn place(&self, cell: &Cell) -> PlaceInExperiment {
        PlaceInExperiment {
            experiment: self.course.name.clone(),
            scenario: Scenario::Net,
            seed: self.course.plan.seed,
            order_index: cell.index,
            repeat: cell.pass,
            block: 0,
        }
    }

    fn left_out(self, left: &[Cell]) -> Vec<LeftOut> {
        let mut cells: BTreeMap<usize, usize> = BTreeMap::new();
        left.iter().for_each(|cell| *cells.entry(cell.host).or_default() += 1);
        let mut sites = self.sites;
        let of = |(host, cells): (usize, usize)| {
            let fault = sites[host].last_fault()?;
            Some(LeftOut { host: self.course.hosts[host].0.clone(), cells, fault })
        };
        cells.into_iter().filter_map(of).collect()
    }
}

impl From<Fault> for Trouble {
    /// Most faults are the far host's or the path's.
    fn from(fault: Fault) -> Trouble {
        match fault.class {
            Class::Usage => Trouble::Here(fault),
            _ => Trouble::There(fault),
        }
    }
}

fn wait_until(then: Tick, control: &Watch) {
    while clock::now() < then && !control.stopping() {
        thread::sleep(BEAT.min(then.since(clock::now()).into()));
    }
}

const PAUSE_MIN: Nanos = Nanos::from_millis(1000);
const BEAT: Duration = Duration::from_millis(50);
