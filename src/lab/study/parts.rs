//! Each part alone: its costs with the pump's own taken off once, and the rate it reached.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cells::{self, Depths, End};
use crate::lab::model::curve::{Curve, Offer, advised};
use crate::lab::model::fit::{Known, Observation};
use crate::lab::model::{Component, Estimate, Part};
use crate::lab::sample::{Record, Scenario};
use crate::lab::statistics::{median, median_estimate};

/// One part under one set of conditions at one depth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartStudy {
    pub part: Part,
    pub conditions: String,
    pub depths: Depths,
    pub curve: Curve,
    /// What `N` counts.
    pub counts: Counts,
    pub bandwidth: Vec<(u32, Estimate)>,
    pub calls_per_request: Vec<(u32, f64)>,
    /// The environment that its side ran in, and how many CPUs it had.
    pub environment: i64,
    pub cpus: u32,
}

/// What costs `Cr` each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Counts {
    Requests,
    /// Some calls returned less than they were asked for.
    Calls,
}

/// Where a part is measured alone: the pump, and the side of it.
pub const ALONE: [(Part, Scenario, End); 5] = [
    (Part::Pump, Scenario::Cpu, End::Source),
    (Part::DiskSource, Scenario::DiskSource, End::Source),
    (Part::DiskSink, Scenario::DiskSink, End::Source),
    (Part::NetSource, Scenario::Net, End::Sink),
    (Part::NetSink, Scenario::Net, End::Source),
];

impl PartStudy {
    /// What a byte costs with this part alone, the pump's own taken off.
    pub fn own_cost_ns(&self, request_bytes: u32) -> f64 {
        let calls = match self.counts {
            Counts::Requests => 1.0,
            Counts::Calls => between(&self.calls_per_request, request_bytes).unwrap_or(1.0),
        };
        let calls_per_byte = calls / f64::from(request_bytes.max(1));
        let fit = self.curve.fit(request_bytes);
        fit.cost_ns(request_bytes, calls_per_byte) - fit.known.cost_ns(request_bytes)
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

    /// Whether this depth is rather taken than another: a rate within 3 % is no reason for more
    /// requests in flight.
    pub fn stands_before(&self, other: &PartStudy) -> bool {
        let (mine, theirs) = (self.best_rate(), other.best_rate());
        match self.depths < other.depths {
            true => mine >= (1.0 - NEAR) * theirs,
            false => theirs < (1.0 - NEAR) * mine,
        }
    }

    pub fn offers(&self) -> Vec<Offer> {
        let offer = |size: &crate::lab::model::fit::SizeFit| Offer {
            request_bytes: size.request_bytes,
            depth: self.depths.source.max(self.depths.sink),
            rate_bytes_per_s: self.rate(size.request_bytes),
            cost_ns: size.observed_ns,
        };
        self.curve.sizes().map(offer).collect()
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

/// The request size and depth to take for a part: the best of all depths under its conditions.
pub fn advice(parts: &[PartStudy], part: Part, conditions: &str) -> Option<Offer> {
    let same = parts.iter().filter(|one| one.part == part && one.conditions == conditions);
    advised(&same.flat_map(PartStudy::offers).collect::<Vec<_>>())
}

/// A value at a size: what was measured there, else on the line between its neighbours in the
/// logarithm of the size, else that of the nearest.
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

/// Studies every part that was measured alone, the pump first: its cost is known to the others.
pub fn of(
    records: &[&Record],
    cache_bytes: Option<u64>,
    remarks: &mut Vec<String>,
) -> Vec<PartStudy> {
    let mut studies: Vec<PartStudy> = Vec::new();
    for (part, scenario, end) in ALONE {
        for ((conditions, depths), group) in groups(records, scenario) {
            let known = match part {
                Part::Pump => Known::default(),
                _ => pump_of(&studies, depths),
            };
            match study(part, end, conditions, depths, &group, known, cache_bytes) {
                Ok(study) => studies.push(study),
                Err(why) => remarks.push(format!(
                    "{} at {}, depth {}/{}: {why}",
                    scenario.name(),
                    end.name(),
                    depths.source,
                    depths.sink
                )),
            }
        }
    }
    let others = studies.iter().any(|study| study.part != Part::Pump);
    if others && !studies.iter().any(|study| study.part == Part::Pump) {
        remarks.push(
            "the pump was not measured (null to null): its own cost is still in every part, and \
             twice in what is predicted from two; run datapump measure cpu"
                .into(),
        );
    }
    studies
}

type Groups<'a> = BTreeMap<(String, Depths), Vec<&'a Record>>;

fn groups<'a>(records: &[&'a Record], scenario: Scenario) -> Groups<'a> {
    let mut groups: Groups = BTreeMap::new();
    for record in records {
        if record.place.as_ref().is_some_and(|place| place.scenario == scenario) {
            let conditions = cells::conditions(record, scenario);
            groups.entry((conditions, cells::depths(record))).or_default().push(record);
        }
    }
    groups
}

/// The pump's own cost: at the same depth where that was measured.
fn pump_of(studies: &[PartStudy], depths: Depths) -> Known {
    let pumps = || studies.iter().filter(|study| study.part == Part::Pump);
    let pump = pumps().find(|pump| pump.depths == depths).or_else(|| pumps().next());
    let fit = pump.and_then(|pump| pump.curve.fits.first());
    fit.map_or(Known::default(), |fit| Known { cb_ns: fit.cb_ns.value, cr_ns: fit.cr_ns.value })
}

fn study(
    part: Part,
    end: End,
    conditions: String,
    depths: Depths,
    records: &[&Record],
    known: Known,
    cache_bytes: Option<u64>,
) -> Result<PartStudy, String> {
    let (soaked, bare): (Vec<&Record>, Vec<&Record>) =
        records.iter().partition(|record| cells::is_soaked(record));
    let with_cpu = if soaked.is_empty() { &bare } else { &soaked };
    let with_rate = if bare.is_empty() { &soaked } else { &bare };
    let counts = counts(with_cpu, part, end);
    let runs: Vec<Observation> =
        with_cpu.iter().filter_map(|record| observation(record, end, counts)).collect();
    let in_flight = u64::from(depths.source.max(depths.sink).max(1));
    let knee = cache_bytes.and_then(|cache| u32::try_from(cache / in_flight).ok());
    let curve = Curve::of(&runs, known, knee, SEED).map_err(|why| why.to_string())?;
    let first = with_cpu.first().ok_or("there are no runs")?;
    let machine = match end {
        End::Sink => first.machines.last(),
        End::Source => first.machines.first(),
    };
    Ok(PartStudy {
        part,
        conditions,
        depths,
        curve,
        counts,
        bandwidth: by_size(
            with_rate,
            |rates| median_estimate(rates, SEED),
            |record| Some(cells::rate(record)),
        ),
        calls_per_request: by_size(with_cpu, median, |record| {
            Some(end.of(record)?.calls as f64 / cells::requests(record))
        }),
        environment: end.of(first).map_or(0, |side| side.environment),
        cpus: machine.map_or(0, |machine| machine.cpus),
    })
}

fn by_size<T>(
    records: &[&Record],
    middle: impl Fn(&[f64]) -> Option<T>,
    value: impl Fn(&Record) -> Option<f64>,
) -> Vec<(u32, T)> {
    let mut sizes: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for record in records {
        if let Some(value) = value(record) {
            sizes.entry(record.knobs.request_bytes).or_default().push(value);
        }
    }
    sizes.iter().filter_map(|(size, values)| Some((*size, middle(values)?))).collect()
}

/// Calls are counted where they return less than they were asked for; the pump makes none.
fn counts(records: &[&Record], part: Part, end: End) -> Counts {
    let sides = || records.iter().filter_map(|record| end.of(record));
    let (calls, partial) =
        sides().fold((0u64, 0u64), |sum, side| (sum.0 + side.calls, sum.1 + side.partial_returns));
    match part != Part::Pump && partial as f64 > PARTIAL_SHARE * calls as f64 {
        true => Counts::Calls,
        false => Counts::Requests,
    }
}

fn observation(record: &Record, end: End, counts: Counts) -> Option<Observation> {
    let side = end.of(record)?;
    Some(Observation {
        request_bytes: record.knobs.request_bytes,
        bytes: record.moved.bytes as f64,
        calls: match counts {
            Counts::Requests => cells::requests(record),
            Counts::Calls => side.calls as f64,
        },
        cpu_s: side.cpu_s(),
    })
}

/// Resamples of the same runs are the same.
pub const SEED: u64 = 4;
const NEAR: f64 = 0.03;
/// With fewer partial returns than this, a request is a call.
const PARTIAL_SHARE: f64 = 0.01;
