//! Runs a campaign: cell after cell, each after a pause as long as the copy before it. To a host,
//! probes of the path run in both. What fails is left alone for a while and tried again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::copying::{self, Via};
use super::round_trips::Prober;
use super::site::Site;
use super::store_folder::{StoreFolder, reach};
use crate::host::environment;
use crate::probe::{FAR_SINK, Probe};
use crate::results::Store;
use analysis::campaign::fields::{self, AtStore};
use analysis::campaign::{Cell, Extent, Plan, Setting, Way};
use analysis::record::sample::{Environment, PlaceInExperiment, Record, Scenario};
use base::fault::{Class, Fault};
use base::job::{Job, Location, ObjectUrl, Remote};
use base::limits::STORE_REQUEST_BYTES;
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
    pub routes: Vec<Route>,
    pub settings: Settings,
    pub remote: Remote,
    pub data: DataSet,
}

/// Where copies go to, or come from. `name` is told, and recorded.
#[derive(Clone, Debug)]
pub struct Route {
    pub name: String,
    pub end: RouteEnd,
}

#[derive(Clone, Debug)]
pub enum RouteEnd {
    /// With the destination folder; without one, the data is discarded.
    Host { folder: Option<PathBuf> },
    /// Objects below this URL.
    Store { way: Way, url: ObjectUrl, options: s3::Options },
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
    near_facts: Environment,
    sites: Vec<Site>,
    /// Of a campaign at a store.
    folder: Option<StoreFolder>,
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
        let sites = self.routes.iter().map(|route| Site::new(&route.name)).collect();
        let near_facts = environment::here();
        let folder = self.folder(&near_facts.host);
        let mut under =
            Under { course: self, near, near_environment, near_facts, sites, folder, last };
        let measured = under.measure_all(&mut left, of, (store, control), tell);
        if let Some(Err(fault)) = under.folder.as_ref().map(StoreFolder::remove) {
            tell(&Step::Warning(&fault.text));
        }
        measured?;
        Ok(under.left_out(&left))
    }

    /// Of the store, if this is a campaign at one.
    fn folder(&self, host: &str) -> Option<StoreFolder> {
        self.routes.iter().find_map(|route| match &route.end {
            RouteEnd::Store { url, options, .. } => {
                Some(StoreFolder::new(url, options, &self.name, host))
            }
            RouteEnd::Host { .. } => None,
        })
    }

    /// A cell's copy of synthetic data to a host.
    fn job(&self, cell: &Cell, folder: Option<&PathBuf>) -> Job {
        let target = match folder {
            Some(folder) => Location::Path(folder.join(FAR_SINK)),
            None => Location::Null { len: 0 },
        };
        let settings = Settings { overwrite: Overwrite::Always, ..self.settings_of(cell) };
        Job {
            target_host: Some(self.routes[cell.host].name.clone()),
            ..self.local_job(self.data(cell.extent), target, settings)
        }
    }

    /// A cell's copy of an object. What has its name already is not of this campaign.
    fn job_at_store(&self, cell: &Cell, way: Way, object: ObjectUrl) -> Job {
        let object = Location::Object(object);
        let (source, target) = match way {
            Way::Put => (self.data(cell.extent), object),
            Way::Get => (object, Location::Null { len: 0 }),
        };
        self.local_job(source, target, self.settings_of(cell))
    }

    fn data(&self, extent: Extent) -> Location {
        let (set, seed) = (self.data, self.plan.seed);
        match extent {
            Extent::Time(_) => Location::EndlessSynthetic { set, seed },
            Extent::Bytes(len) => Location::Synthetic { set, len, seed },
        }
    }

    fn settings_of(&self, cell: &Cell) -> Settings {
        let usual = Settings {
            overwrite: Overwrite::Never,
            fresh: true,
            dry_run: false,
            ..self.settings.clone()
        };
        match cell.setting {
            Setting::Path { window_bytes, streams, compress } => {
                Settings { window_bytes, streams, compress, ..usual }
            }
            Setting::Store { request_bytes, depth } => Settings {
                request_bytes: request_bytes.unwrap_or(STORE_REQUEST_BYTES),
                depth_source: depth,
                depth_sink: depth,
                ..usual
            },
        }
    }

    fn local_job(&self, source: Location, target: Location, settings: Settings) -> Job {
        Job {
            sources: vec![source],
            source_host: None,
            target,
            target_host: None,
            settings,
            listed: None,
            range: None,
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
    /// Measures what is left, and takes it out.
    fn measure_all(
        &mut self,
        left: &mut Vec<Cell>,
        of: usize,
        (store, control): (&mut Store, &Watch),
        tell: &mut dyn FnMut(&Step<'_>),
    ) -> Result<(), Fault> {
        while !control.stopping() {
            let now = clock::now();
            let ready = left.iter().position(|cell| self.sites[cell.host].is_ready(now));
            let Some(place) = ready else {
                let returns = left.iter().filter_map(|cell| self.sites[cell.host].returns());
                let Some(first) = returns.min() else { break };
                wait_until(first, control);
                continue;
            };
            let cell = left[place];
            match self.measure(&cell, store, control, tell) {
                Ok(Some(record)) => {
                    left.remove(place);
                    self.sites[cell.host].has_worked();
                    let done = of - left.len();
                    tell(&Step::CopyRecord { cell: &cell, record: &record, done, of });
                }
                Ok(None) => break,
                // A fault of the store or of this host would fail every other cell too.
                Err(Trouble::Here(fault)) => return Err(fault),
                Err(Trouble::There(fault)) => {
                    let host = &self.course.routes[cell.host].name;
                    let length = self.sites[cell.host].has_failed(fault.clone(), cell.extent);
                    tell(&Step::Resting { host, fault: &fault, length });
                }
            }
        }
        Ok(())
    }

    /// One cell with the pause before it; `None` if stopped during the pause.
    fn measure(
        &mut self,
        cell: &Cell,
        store: &mut Store,
        control: &Watch,
        tell: &mut dyn FnMut(&Step<'_>),
    ) -> Result<Option<Record>, Trouble> {
        let mut record = match &self.course.routes[cell.host].end {
            RouteEnd::Host { folder } => {
                let Some(record) =
                    self.measure_host(cell, folder.as_ref(), store, control, tell)?
                else {
                    return Ok(None);
                };
                record
            }
            RouteEnd::Store { way, url, .. } => {
                let measured = self.measure_at_store(cell, (*way, url), control, tell);
                let Some(record) = measured.map_err(Trouble::at_store)? else { return Ok(None) };
                record
            }
        };
        record.place = Some(self.place(cell));
        record.id = store.insert(&record).map_err(Trouble::Here)?;
        Ok(Some(record))
    }

    fn measure_host(
        &mut self,
        cell: &Cell,
        folder: Option<&PathBuf>,
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
        let job = self.course.job(cell, folder);
        let copied = copying::copy(&job, &Via::Host(met.launch.clone()), cell.extent);
        self.last = Some((clock::now(), clock::now().since(copying)));
        let (reflector, seen) = match prober.map(Prober::finish) {
            Some((reflector, seen)) => (reflector, Some(seen)),
            None => (None, None),
        };
        met.reflector = reflector;
        let copied = copied?;
        let after = [self.near.moment().map_err(here)?, met.probe.moment()?];
        if let Some(folder) = folder {
            met.probe.remove_sink(folder)?;
        }
        copied.warnings.iter().for_each(|text| tell(&Step::Warning(text)));
        let around = fields::Around {
            job: &job,
            copied: &copied,
            round_trips: seen.map(|seen| seen.round_trips(copied.moving)),
            paused,
            moments: [resting, before, after].map(Vec::from),
            environments: [self.near_environment, met.environment],
            near_facts: &met.near_facts,
            store: None,
        };
        Ok(Some(fields::record(cell, &around)))
    }

    /// The same at an object store: there is no host to probe.
    fn measure_at_store(
        &mut self,
        cell: &Cell,
        (way, url): (Way, &ObjectUrl),
        control: &Watch,
        tell: &mut dyn FnMut(&Step<'_>),
    ) -> Result<Option<Record>, Fault> {
        let Some(object) = self.object_of(cell, way)? else { return Ok(None) };
        let length = self.pause(cell);
        tell(&Step::Pausing { cell, length });
        let begun = clock::now();
        let resting = self.near.moment()?;
        wait_until(begun.after(length), control);
        if control.stopping() {
            return Ok(None);
        }
        let before = self.near.moment()?;
        let copying = clock::now();
        let paused = copying.since(self.last.map_or(begun, |(ended, _)| ended));
        tell(&Step::Copying { cell });
        let Some(folder) = &self.folder else { return Ok(None) };
        let job = self.course.job_at_store(cell, way, object);
        let client = folder.client_with(job.settings.depth_sink);
        let copied = copying::copy(&job, &Via::Store(reach(&client)), cell.extent);
        self.last = Some((clock::now(), clock::now().since(copying)));
        let after = self.near.moment()?;
        if way == Way::Put {
            folder.forget_written()?;
        }
        let copied = copied?;
        copied.warnings.iter().for_each(|text| tell(&Step::Warning(text)));
        let url = url.to_string();
        let around = fields::Around {
            job: &job,
            copied: &copied,
            round_trips: None,
            paused,
            moments: [resting, before, after].map(|moment| vec![moment]),
            environments: [self.near_environment, 0],
            near_facts: &self.near_facts,
            store: Some(AtStore { way, url: &url, times: client.times() }),
        };
        Ok(Some(fields::record(cell, &around)))
    }

    /// The object of a cell; what is to be read is there then.
    fn object_of(&mut self, cell: &Cell, way: Way) -> Result<Option<ObjectUrl>, Fault> {
        let Some(folder) = &mut self.folder else { return Ok(None) };
        folder.begin()?;
        let object = folder.object(way, cell);
        if folder.lacks(way, cell.extent) {
            let began = clock::now();
            let usual = Cell { setting: OWN, ..*cell };
            let job = self.course.job_at_store(&usual, Way::Put, object.clone());
            copying::copy(&job, &Via::Store(reach(&folder.client())), cell.extent)?;
            folder.has_made(cell.extent);
            self.last = Some((clock::now(), clock::now().since(began)));
        }
        Ok(Some(object))
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
            Some(LeftOut { host: self.course.routes[host].name.clone(), cells, fault })
        };
        cells.into_iter().filter_map(of).collect()
    }
}

impl Trouble {
    /// What a store refuses it refuses every cell. What fails in passing is tried again.
    fn at_store(fault: Fault) -> Trouble {
        match fault.class {
            Class::Unreachable => Trouble::There(fault),
            _ => Trouble::Here(fault),
        }
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

/// What a copy from or to a store has by itself.
const OWN: Setting = Setting::Store { request_bytes: None, depth: None };
const PAUSE_MIN: Nanos = Nanos::from_millis(1000);
const BEAT: Duration = Duration::from_millis(50);
