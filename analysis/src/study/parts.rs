//! Each part alone: its costs with the pump's own cost subtracted once, and the rate it reached.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cells::{self, CpuFrom, Depths, ProcessRole};
use crate::model::curve::{Curve, Offer, advised};
use crate::model::fit::{Known, Observation, SizeFit};
use crate::model::{Component, Part};
use crate::record::sample::{Record, Scenario};
use crate::statistics::{Estimate, median, median_estimate};

/// One part under given conditions at one depth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartStudy {
    pub part: Part,
    pub conditions: String,
    pub depths: Depths,
    /// One curve for all depths where starts have a cost of their own.
    pub curve: Curve,
    /// What `N` counts.
    pub counts: Counts,
    pub starts: Starts,
    /// Segments that TCP sent per request; empty where they were not counted.
    pub segments_per_request: Vec<(u32, f64)>,
    pub bandwidth: Vec<(u32, Estimate)>,
    pub calls_per_request: Vec<(u32, f64)>,
    /// The environment that its side ran in, and how many CPUs it had.
    pub environment: i64,
    pub cpus: u32,
}

/// What `Cr` is the cost of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Counts {
    Requests,
    /// Some calls were partial.
    Calls,
}

/// Which events besides bytes and requests the cost of a part has: starts (requests submitted while
/// their lane had no file request in flight), or segments of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Starts {
    /// The part has neither, or segments were not counted.
    None,
    /// Segments sent take the place of starts.
    Segments,
    /// They were not counted in every run, as in records of older versions.
    NotCounted,
    /// The share of starts is the same at all depths: their cost is part of `Cr`.
    Alike,
    /// More requests in flight give hardly more bytes: requests wait for each other before they
    /// reach the device, for example writes to one file where the file system admits one at a time.
    /// Then each request finds the device idle, and `Cr` includes the cost of that.
    TakeTurns,
    /// Starts have a cost of their own.
    Told,
}

impl Starts {
    pub(crate) fn are_of_files(self) -> bool {
        !matches!(self, Starts::None | Starts::Segments)
    }
}

/// The scenario in which a part is measured alone, and its side.
pub(crate) const ALONE: [(Part, Scenario, ProcessRole); 5] = [
    (Part::Pump, Scenario::Cpu, ProcessRole::Source),
    (Part::DiskSource, Scenario::DiskSource, ProcessRole::Source),
    (Part::DiskSink, Scenario::DiskSink, ProcessRole::Source),
    (Part::NetSource, Scenario::Net, ProcessRole::Sink),
    (Part::NetSink, Scenario::Net, ProcessRole::Source),
];

impl PartStudy {
    /// Segments per request where this part is alone.
    pub(crate) fn segments_alone(&self, request_bytes: u32) -> f64 {
        between(&self.segments_per_request, request_bytes).unwrap_or(1.0)
    }

    /// Starts per request where this part is alone, if it was measured at this depth; else each
    /// request is a start.
    pub(crate) fn starts_alone(&self, request_bytes: u32, depth: u16) -> f64 {
        let starts: Vec<(u32, f64)> = self
            .curve
            .sizes()
            .filter(|size| size.depth == depth)
            .map(|size| (size.request_bytes, size.starts_per_byte * f64::from(size.request_bytes)))
            .collect();
        between(&starts, request_bytes).unwrap_or(1.0)
    }

    /// Cost per byte of this part alone, without the pump's own, at this number of starts, or
    /// segments, per request.
    pub(crate) fn own_cost_ns(&self, request_bytes: u32, starts_per_request: f64) -> f64 {
        let calls = match self.counts {
            Counts::Requests => 1.0,
            Counts::Calls => between(&self.calls_per_request, request_bytes).unwrap_or(1.0),
        };
        let per_byte = |per_request: f64| per_request / f64::from(request_bytes.max(1));
        let fit = self.curve.fit(request_bytes);
        fit.cost_ns(request_bytes, per_byte(calls), per_byte(starts_per_request))
            - fit.known.cost_ns(request_bytes)
    }

    /// The cost of a start at a request size, if it has one of its own.
    pub(crate) fn start_ns(&self, request_bytes: u32) -> Option<f64> {
        self.curve.fit(request_bytes).cs_ns.map(|cs| cs.value)
    }

    /// The rate that it reached alone.
    pub fn rate(&self, request_bytes: u32) -> Option<f64> {
        let rates: Vec<(u32, f64)> =
            self.bandwidth.iter().map(|(size, rate)| (*size, rate.value)).collect();
        between(&rates, request_bytes)
    }

    fn best_rate(&self) -> f64 {
        self.bandwidth.iter().map(|(_, rate)| rate.value).fold(0.0, f64::max)
    }

    /// Whether this depth is preferred to another: one that was measured at more request sizes; and
    /// of equals the smaller depth, unless the other is faster by more than 3 %.
    pub(crate) fn stands_before(&self, other: &PartStudy) -> bool {
        if self.bandwidth.len() != other.bandwidth.len() {
            return self.bandwidth.len() > other.bandwidth.len();
        }
        let (mine, theirs) = (self.best_rate(), other.best_rate());
        match self.depths < other.depths {
            true => mine >= (1.0 - NEAR) * theirs,
            false => theirs < (1.0 - NEAR) * mine,
        }
    }

    pub fn offers(&self) -> Vec<Offer> {
        let depth = self.depths.in_flight();
        let offer = |size: &SizeFit| Offer {
            request_bytes: size.request_bytes,
            depth,
            rate_bytes_per_s: self.rate(size.request_bytes),
            cost_ns: size.observed_ns,
        };
        self.curve.sizes().filter(|size| size.depth == depth).map(offer).collect()
    }

    pub fn component(&self) -> Component {
        Component {
            part: self.part,
            conditions: self.conditions.clone(),
            regimes: self.curve.regimes(),
            bandwidth: self.bandwidth.clone(),
            calls_per_request: match self.counts {
                Counts::Requests => {
                    self.calls_per_request.iter().map(|(size, _)| (*size, 1.0)).collect()
                }
                Counts::Calls => self.calls_per_request.clone(),
            },
        }
    }
}

/// The recommended request size and depth of a part: the best of all depths under its conditions.
pub fn advice(parts: &[PartStudy], part: Part, conditions: &str) -> Option<Offer> {
    let same = parts.iter().filter(|one| one.part == part && one.conditions == conditions);
    advised(&same.flat_map(PartStudy::offers).collect::<Vec<_>>())
}

/// A value at a size: the measured one, else interpolated in the logarithm of the size, else that
/// of the nearest size.
pub fn between(known: &[(u32, f64)], request_bytes: u32) -> Option<f64> {
    let below = known.iter().filter(|(size, _)| *size <= request_bytes).max_by_key(|one| one.0);
    let above = known.iter().filter(|(size, _)| *size >= request_bytes).min_by_key(|one| one.0);
    match (below, above) {
        (Some((low, at_low)), Some((high, at_high))) if low != high => {
            let log = |size: u32| f64::from(size.max(1)).ln();
            let share = (log(request_bytes) - log(*low)) / (log(*high) - log(*low));
            Some(at_low + share * (at_high - at_low))
        }
        (Some((_, value)), _) | (None, Some((_, value))) => Some(*value),
        (None, None) => None,
    }
}

/// Studies every part that was measured alone; the pump first, as the others need its cost.
pub fn of(
    records: &[&Record],
    cpu_from: CpuFrom,
    cache_bytes: Option<u64>,
    remarks: &mut Vec<String>,
) -> Vec<PartStudy> {
    let mut studies: Vec<PartStudy> = Vec::new();
    for (part, scenario, end) in ALONE {
        for (conditions, depths) in groups(records, scenario) {
            let alone = Alone { part, end, conditions, cpu_from, cache_bytes };
            // For a curve over all depths, the pump's cost at the smallest depth is used.
            let known = |depths| match part {
                Part::Pump => Known::default(),
                _ => pump_of(&studies, depths),
            };
            let starts = alone.starts(&depths);
            let over_all = match starts {
                Starts::Told => alone.over_depths(&depths, known),
                _ => None,
            };
            let starts = match over_all {
                None if starts == Starts::Told => Starts::Alike,
                _ => starts,
            };
            let mut found = Vec::new();
            for (depths, group) in &depths {
                let known = known(*depths);
                match alone.study(*depths, group, known, starts, over_all.as_ref()) {
                    Ok(study) => found.push(study),
                    Err(why) => remarks.push(format!(
                        "{} at {}, depth {}/{}: {why}",
                        scenario.name(),
                        end.name(),
                        depths.source,
                        depths.sink
                    )),
                }
            }
            studies.extend(found);
        }
    }
    let others = studies.iter().any(|study| study.part != Part::Pump);
    if others && !studies.iter().any(|study| study.part == Part::Pump) {
        remarks.push(
            "the pump was not measured (null to null): its cost is included in every part, and \
             twice in predictions from two parts; run datapump measure cpu"
                .into(),
        );
    }
    studies
}

/// Runs by conditions, and by depth within them.
type Groups<'a> = BTreeMap<String, BTreeMap<Depths, Vec<&'a Record>>>;

fn groups<'a>(records: &[&'a Record], scenario: Scenario) -> Groups<'a> {
    let mut groups: Groups = BTreeMap::new();
    for record in records {
        if record.place.as_ref().is_some_and(|place| place.scenario == scenario) {
            let depths = groups.entry(cells::conditions(record, scenario)).or_default();
            depths.entry(cells::depths(record)).or_default().push(record);
        }
    }
    groups
}

/// The pump's own cost: at the same depth, if that was measured.
fn pump_of(studies: &[PartStudy], depths: Depths) -> Known {
    let pumps = || studies.iter().filter(|study| study.part == Part::Pump);
    let pump = pumps().find(|pump| pump.depths == depths).or_else(|| pumps().next());
    let fit = pump.and_then(|pump| pump.curve.fits.first());
    fit.map_or(Known::default(), |fit| Known { cb_ns: fit.cb_ns.value, cr_ns: fit.cr_ns.value })
}

/// A part that was measured alone under given conditions.
struct Alone {
    part: Part,
    end: ProcessRole,
    conditions: String,
    cpu_from: CpuFrom,
    cache_bytes: Option<u64>,
}

impl Alone {
    /// Whether these runs can give the cost of a start.
    fn starts(&self, depths: &BTreeMap<Depths, Vec<&Record>>) -> Starts {
        let all: Vec<&Record> = depths.values().flatten().copied().collect();
        let with_cpu = cells::with_cpu(&all, self.cpu_from);
        match self.part {
            Part::Pump => return Starts::None,
            Part::NetSource | Part::NetSink => {
                let counted = with_cpu.iter().all(|run| cells::segments(run).is_some());
                return if counted { Starts::Segments } else { Starts::None };
            }
            Part::DiskSource | Part::DiskSink => {}
        }
        if !with_cpu.iter().filter_map(|run| self.end.of(run)).all(|side| side.starts > 0) {
            return Starts::NotCounted;
        }
        match gain(depths) {
            None => Starts::Alike,
            Some(gain) if gain < OVERLAP => Starts::TakeTurns,
            Some(_) => Starts::Told,
        }
    }

    /// One curve over all depths, if these separate the cost of starts.
    fn over_depths(
        &self,
        depths: &BTreeMap<Depths, Vec<&Record>>,
        known: impl Fn(Depths) -> Known,
    ) -> Option<Curve> {
        let least = *depths.keys().next()?;
        let all: Vec<&Record> = depths.values().flatten().copied().collect();
        let curve = self.curve(&all, least, known(least), Starts::Told).ok()?;
        curve.has_starts().then_some(curve)
    }

    /// The knee is where the requests in flight at this depth no longer fit in the cache.
    fn curve(
        &self,
        records: &[&Record],
        depths: Depths,
        known: Known,
        starts: Starts,
    ) -> Result<Curve, String> {
        let with_cpu = cells::with_cpu(records, self.cpu_from);
        let counts = counts(&with_cpu, self.part, self.end);
        let runs: Vec<Observation> = with_cpu
            .iter()
            .filter_map(|record| observation(record, self.end, counts, starts))
            .collect();
        let in_flight = u64::from(depths.in_flight());
        let knee = self.cache_bytes.and_then(|cache| u32::try_from(cache / in_flight).ok());
        Curve::of(&runs, known, knee, SEED).map_err(|why| why.to_string())
    }

    fn study(
        &self,
        depths: Depths,
        records: &[&Record],
        known: Known,
        starts: Starts,
        over_all: Option<&Curve>,
    ) -> Result<PartStudy, String> {
        let with_cpu = cells::with_cpu(records, self.cpu_from);
        // The rate is from runs without a soaker, which may slow a run down.
        let with_rate = cells::with_cpu(records, CpuFrom::Bare);
        let curve = match over_all {
            Some(curve) => curve.clone(),
            None => self.curve(records, depths, known, starts)?,
        };
        let first = with_cpu.first().ok_or("there are no runs")?;
        let machine = match self.end {
            ProcessRole::Sink => first.machines.last(),
            ProcessRole::Source => first.machines.first(),
        };
        Ok(PartStudy {
            part: self.part,
            conditions: self.conditions.clone(),
            depths,
            counts: counts(&with_cpu, self.part, self.end),
            starts,
            segments_per_request: match starts {
                Starts::Segments => {
                    let of = |run: &Record| Some(cells::segments(run)? / cells::requests(run));
                    by_size(&with_cpu, median, of)
                }
                _ => Vec::new(),
            },
            curve,
            bandwidth: by_size(
                &with_rate,
                |rates| median_estimate(rates, SEED),
                |record| Some(cells::rate(record)),
            ),
            calls_per_request: by_size(&with_cpu, median, |record| {
                Some(self.end.of(record)?.calls as f64 / cells::requests(record))
            }),
            environment: self.end.of(first).map_or(0, |side| side.environment),
            cpus: machine.map_or(0, |machine| machine.cpus),
        })
    }
}

fn by_size<T>(
    records: &[&Record],
    middle: impl Fn(&[f64]) -> Option<T>,
    value: impl Fn(&Record) -> Option<f64>,
) -> Vec<(u32, T)> {
    let mut sizes: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for record in records {
        if let Some(value) = value(record) {
            sizes.entry(record.options.request_bytes).or_default().push(value);
        }
    }
    sizes.iter().filter_map(|(size, values)| Some((*size, middle(values)?))).collect()
}

/// Calls are counted where some are partial; the pump makes none.
fn counts(records: &[&Record], part: Part, end: ProcessRole) -> Counts {
    let sides = || records.iter().filter_map(|record| end.of(record));
    let (calls, partial) =
        sides().fold((0u64, 0u64), |sum, side| (sum.0 + side.calls, sum.1 + side.partial_returns));
    match part != Part::Pump && partial as f64 > PARTIAL_SHARE * calls as f64 {
        true => Counts::Calls,
        false => Counts::Requests,
    }
}

/// The rate of the smallest requests at the largest depth, over that at the smallest.
fn gain(depths: &BTreeMap<Depths, Vec<&Record>>) -> Option<f64> {
    let rates = |records: &Vec<&Record>| {
        let bare = cells::with_cpu(records, CpuFrom::Bare);
        by_size(&bare, median, |record| Some(cells::rate(record)))
    };
    let least = rates(depths.first_key_value()?.1);
    let largest = rates(depths.last_key_value()?.1);
    if depths.len() < 2 {
        return None;
    }
    let same = |(size, rate): &(u32, f64)| {
        let other = least.iter().find(|(other, _)| other == size)?;
        Some(rate / other.1)
    };
    largest.iter().find_map(same).filter(|gain| gain.is_finite())
}

fn observation(
    record: &Record,
    end: ProcessRole,
    counts: Counts,
    starts: Starts,
) -> Option<Observation> {
    let side = end.of(record)?;
    let calls = match counts {
        Counts::Requests => cells::requests(record),
        Counts::Calls => side.calls as f64,
    };
    Some(Observation {
        request_bytes: record.options.request_bytes,
        depth: cells::depths(record).in_flight(),
        bytes: record.moved.bytes as f64,
        calls,
        starts: match starts {
            Starts::Told => side.starts as f64,
            Starts::Segments => cells::segments(record).unwrap_or(calls),
            // At one depth starts cannot be separated from requests.
            Starts::None | Starts::NotCounted | Starts::Alike | Starts::TakeTurns => calls,
        },
        cpu_s: side.cpu_s(),
    })
}

/// Resampling the same runs gives the same intervals.
pub const SEED: u64 = 4;
const NEAR: f64 = 0.03;
/// A device that works on requests concurrently is faster than this.
const OVERLAP: f64 = 1.3;
/// With fewer partial calls than this, a request counts as a call.
const PARTIAL_SHARE: f64 = 0.01;
