//! The rate of a composition, predicted from its parts and never fitted: a request takes as long as
//! the slowest of what a lane does by itself, of each part, of a device that both ends share, and
//! of the CPUs. These are the bounds of a closed network of queues.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cells::{self, Depths, ProcessRole};
use super::compositions::{self, Composition};
use super::parts::PartStudy;
use super::referee::AccountingCheck;
use crate::model::Part;
use crate::record::sample::{Record, Scenario};
use crate::statistics::theil_sen;

/// What bounds a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// A lane does one thing after another.
    Lane,
    DiskSource,
    DiskSink,
    Network,
    /// Both ends wait for one device.
    Device,
    Cpus,
}

impl Bound {
    pub fn name(self) -> &'static str {
        match self {
            Bound::Lane => "lane",
            Bound::DiskSource => "disk source",
            Bound::DiskSink => "disk sink",
            Bound::Network => "network",
            Bound::Device => "device of both ends",
            Bound::Cpus => "CPUs",
        }
    }

    pub(crate) fn of(part: Part) -> Bound {
        match part {
            Part::DiskSource => Bound::DiskSource,
            Part::DiskSink => Bound::DiskSink,
            Part::NetSource | Part::NetSink => Bound::Network,
            Part::Pump => Bound::Lane,
        }
    }
}

/// A predicted rate, and what bounds it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RatePrediction {
    pub bytes_per_s: f64,
    pub bound: Bound,
}

/// The rates of a composition at its largest request size, by depth and number of lanes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RateGrid {
    pub scenario: Scenario,
    pub conditions: String,
    pub request_bytes: u32,
    /// For each depth, from 1, a rate for each number of lanes, from 1.
    pub by_depth: Vec<Vec<RatePrediction>>,
    /// Parts whose calls block their lane.
    pub blocking: Vec<Part>,
    /// How deep its disks were measured.
    pub depth_max: u16,
}

/// What one request needs, in seconds.
#[derive(Clone, Debug, PartialEq)]
struct Needs {
    stages: Vec<Stage>,
    /// The wake-up that two ends on one device share; `None` on two devices.
    shared_wake_s: Option<f64>,
    cpus_s: f64,
    request_bytes: u32,
}

/// A part of the path.
#[derive(Clone, Debug, PartialEq)]
struct Stage {
    part: Part,
    /// The time of a request alone, by the number of requests in flight.
    alone_s: BTreeMap<u16, f64>,
    /// What its lane cannot do anything else in while others are in flight.
    holds_lane_s: f64,
    /// Its calls return when they have moved their bytes.
    is_blocking: bool,
}

impl Stage {
    /// At so many requests in flight: as measured with no more, or with the fewest.
    fn at(&self, in_flight: u16) -> f64 {
        let below = self.alone_s.range(..=in_flight).next_back();
        below.or_else(|| self.alone_s.first_key_value()).map_or(0.0, |(_, seconds)| *seconds)
    }

    fn is_of_files(&self) -> bool {
        matches!(self.part, Part::DiskSource | Part::DiskSink)
    }
}

impl Needs {
    fn rate(&self, depth: u16, lanes: u16) -> Option<RatePrediction> {
        let (seconds, bound) = self
            .bounds(depth.max(1), lanes.max(1))
            .into_iter()
            .reduce(|slowest, other| if other.0 > slowest.0 { other } else { slowest })?;
        let bytes_per_s = f64::from(self.request_bytes) / seconds;
        bytes_per_s.is_finite().then_some(RatePrediction { bytes_per_s, bound })
    }

    /// The least time between two requests, by each bound.
    fn bounds(&self, depth: u16, lanes: u16) -> Vec<(f64, Bound)> {
        let in_flight = depth.saturating_mul(lanes);
        let mut bounds = vec![(self.lane_s(depth) / f64::from(lanes), Bound::Lane)];
        bounds.extend(self.stages.iter().map(|stage| {
            // Memory is no device: each lane copies by itself.
            let sharing = match stage.is_blocking && stage.is_of_files() {
                true => f64::from(lanes),
                false => 1.0,
            };
            (stage.at(in_flight) / sharing, Bound::of(stage.part))
        }));
        if self.shared_wake_s.is_some() && in_flight > 1 {
            let disks = self.stages.iter().filter(|stage| stage.is_of_files());
            bounds.push((disks.map(|stage| stage.at(in_flight)).sum(), Bound::Device));
        }
        bounds.push((self.cpus_s, Bound::Cpus));
        bounds
    }

    /// What a request keeps its lane busy. At depth 1 a request goes through one part after the
    /// other, also over a network: an end waits for the other's. Deeper, only calls that block and
    /// the CPU time of the others add up, at each end.
    fn lane_s(&self, depth: u16) -> f64 {
        if depth == 1 {
            let one_by_one: f64 = self.stages.iter().map(|stage| stage.at(1)).sum();
            return one_by_one - self.shared_wake_s.unwrap_or(0.0);
        }
        let of_end = |far: Part| {
            let here = self.stages.iter().filter(|stage| stage.part != far);
            here.map(|stage| stage.holds_lane_s).sum::<f64>()
        };
        match self.stages.iter().any(|stage| stage.part == Part::NetSink) {
            true => of_end(Part::DiskSink).max(of_end(Part::DiskSource)),
            false => of_end(Part::Pump),
        }
    }
}

/// Predicts the rate of every size of every composition.
pub(crate) fn predict(
    compositions: &mut [Composition],
    records: &[&Record],
    parts: &[PartStudy],
    referees: &[AccountingCheck],
) -> Vec<RateGrid> {
    let costs = costs(compositions);
    let mut grids: BTreeMap<(Scenario, String), RateGrid> = BTreeMap::new();
    for one in compositions {
        let is_its = |record: &&&Record| {
            cells::key(record)
                .is_some_and(|key| key.scenario == one.scenario && key.conditions == one.conditions)
        };
        let Some(run) = records.iter().find(is_its) else { continue };
        for seen in &mut one.sizes {
            let key = (one.scenario, one.conditions.clone(), one.depths, seen.request_bytes);
            let cpus_s = costs.get(&key).map_or(0.0, |ends| cpus_s(ends, run, referees, &key));
            let needs = needs(one.scenario, run, seen.request_bytes, cpus_s, parts);
            let Some(needs) = needs else { continue };
            seen.predicted_rate = needs.rate(one.depths.in_flight(), LANES_MEASURED);
            let key = (one.scenario, one.conditions.clone());
            if grids.get(&key).is_none_or(|grid| grid.request_bytes < seen.request_bytes) {
                grids.insert(key.clone(), grid(key, &needs));
            }
        }
    }
    grids.into_values().collect()
}

fn grid((scenario, conditions): (Scenario, String), needs: &Needs) -> RateGrid {
    let rates = |depth| (1..=GRID).filter_map(move |lanes| needs.rate(depth, lanes)).collect();
    let blocking = needs.stages.iter().filter(|stage| stage.is_blocking);
    let disks = needs.stages.iter().filter(|stage| stage.is_of_files());
    RateGrid {
        scenario,
        conditions,
        request_bytes: needs.request_bytes,
        by_depth: (1..=GRID).map(rates).collect(),
        blocking: blocking.map(|stage| stage.part).collect(),
        depth_max: disks
            .filter_map(|stage| stage.alone_s.last_key_value().map(|(depth, _)| *depth))
            .min()
            .unwrap_or(1),
    }
}

type Size = (Scenario, String, Depths, u32);

/// The predicted CPU cost of a byte at each end, in nanoseconds.
fn costs(compositions: &[Composition]) -> BTreeMap<Size, Vec<(ProcessRole, f64)>> {
    let mut costs: BTreeMap<Size, Vec<(ProcessRole, f64)>> = BTreeMap::new();
    for one in compositions {
        for seen in &one.sizes {
            let key = (one.scenario, one.conditions.clone(), one.depths, seen.request_bytes);
            costs.entry(key).or_default().push((one.end, seen.predicted_ns));
        }
    }
    costs
}

/// The time of a request on the CPUs: those of each end, and of the machine that both are on. With
/// the interrupts that are on no thread's clock, where they were measured.
fn cpus_s(
    ends: &[(ProcessRole, f64)],
    run: &Record,
    referees: &[AccountingCheck],
    (scenario, _, _, request_bytes): &Size,
) -> f64 {
    let referee = referees.iter().find(|referee| referee.scenario == *scenario);
    let interrupts = referee.and_then(|referee| referee.unclocked).unwrap_or(0.0).max(0.0);
    let request_s = |ns: f64| ns * 1e-9 * f64::from(*request_bytes) * (1.0 + interrupts);
    let on = |cpus: u32, ns: f64| request_s(ns) / f64::from(cpus.max(1));
    let machine = |end: ProcessRole| match (end, &run.machines[..]) {
        (ProcessRole::Sink, [_, far, ..]) => far.cpus,
        (_, [near, ..]) => near.cpus,
        (_, []) => 1,
    };
    let own = ends.iter().map(|(end, ns)| {
        let bound = end.of(run).map_or(0, |side| side.cpus.len() as u32);
        on(if bound > 0 { bound } else { machine(*end) }, *ns)
    });
    let together = match run.machines.len() {
        1 => on(machine(ProcessRole::Source), ends.iter().map(|(_, ns)| ns).sum()),
        _ => 0.0,
    };
    own.fold(together, f64::max)
}

/// `None` where a part was not measured alone.
fn needs(
    scenario: Scenario,
    run: &Record,
    request_bytes: u32,
    cpus_s: f64,
    parts: &[PartStudy],
) -> Option<Needs> {
    let stage = |part: &Part| stage(*part, run, request_bytes, parts);
    let stages: Vec<Stage> =
        compositions::path_of(scenario).iter().map(stage).collect::<Option<_>>()?;
    let disks: Vec<&Stage> = stages.iter().filter(|stage| stage.is_of_files()).collect();
    let is_shared = disks.len() == 2
        && disks.iter().all(|disk| !disk.is_blocking)
        && run.machines.len() <= 1
        && !cells::has_two_devices(run);
    let wake_s = |disk: &&Stage| wake_s(disk.part, run, parts);
    let shared_wake_s = is_shared.then(|| disks.iter().map(wake_s).fold(f64::INFINITY, f64::min));
    Some(Needs { stages, shared_wake_s, cpus_s, request_bytes })
}

fn stage(part: Part, run: &Record, request_bytes: u32, parts: &[PartStudy]) -> Option<Stage> {
    let mut alone_s = BTreeMap::new();
    let mut holds_lane_s = 0.0;
    let is_blocking = is_blocking(part, run);
    for one in alone(part, run, parts) {
        let depth = one.depths.in_flight();
        let Some(rate) = one.rate(request_bytes) else { continue };
        alone_s.insert(depth, f64::from(request_bytes) / rate);
        let starts = one.starts_alone(request_bytes, depth);
        holds_lane_s = one.own_cost_ns(request_bytes, starts) * 1e-9 * f64::from(request_bytes);
    }
    let (_, least_deep_s) = alone_s.first_key_value()?;
    if is_blocking {
        holds_lane_s = *least_deep_s;
    }
    Some(Stage { part, holds_lane_s, is_blocking, alone_s })
}

/// A part under the conditions of a run, at each depth that it was measured at; deeper ones last.
fn alone<'a>(part: Part, run: &Record, parts: &'a [PartStudy]) -> Vec<&'a PartStudy> {
    let conditions = compositions::conditions_of(part, run);
    let mut found: Vec<&PartStudy> =
        parts.iter().filter(|one| one.part == part && one.conditions == conditions).collect();
    found.sort_by_key(|one| one.depths.in_flight());
    found
}

/// Sockets, files in memory and reads from the page cache are moved by calls that return when it is
/// done; requests to devices are in flight while the lane does something else.
fn is_blocking(part: Part, run: &Record) -> bool {
    let options = &run.options;
    let conditions = &run.conditions;
    let in_memory = |file_system: &Option<String>| cells::in_memory(file_system.as_deref());
    match part {
        Part::Pump | Part::NetSource | Part::NetSink => true,
        Part::DiskSource => {
            in_memory(&conditions.source_file_system)
                || (conditions.cache == "warm" && options.direct == "off")
        }
        Part::DiskSink => in_memory(&conditions.sink_file_system),
    }
}

/// How long a device takes for a request without bytes: from a line through the request sizes at
/// the least depth.
fn wake_s(part: Part, run: &Record, parts: &[PartStudy]) -> f64 {
    let Some(one) = alone(part, run, parts).into_iter().next() else { return 0.0 };
    let point = |(size, rate): &(u32, crate::statistics::Estimate)| {
        (f64::from(*size), f64::from(*size) / rate.value)
    };
    let points: Vec<(f64, f64)> = one.bandwidth.iter().map(point).collect();
    theil_sen(&points).map_or(0.0, |line| line.intercept.max(0.0))
}

/// `measure` runs one lane.
const LANES_MEASURED: u16 = 1;
/// Depths and lanes of a grid.
const GRID: u16 = 4;

#[cfg(test)]
mod tests;
