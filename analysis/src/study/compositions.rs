//! Compositions of parts, predicted from them and never fitted: `c = pump + source + sink`, each
//! end of a network separately.

use serde::Serialize;

use super::cells::{self, Cell, Depths, ProcessRole};
use super::device::Interrupts;
use super::halves::{Halves, Network};
use super::law::RatePrediction;
use super::parts::{PartStudy, Starts};
use crate::model::Part;
use crate::record::sample::{Record, Scenario};
use crate::statistics::{signed_error, symmetric_error};

/// One end of a composition under given conditions at one depth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Composition {
    pub scenario: Scenario,
    pub end: ProcessRole,
    pub conditions: String,
    pub depths: Depths,
    /// The parts whose costs are added to the pump's.
    pub parts: &'static [Part],
    pub sizes: Vec<Composed>,
}

/// One request size of a composition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Composed {
    pub request_bytes: u32,
    pub n: usize,
    /// Nanoseconds per byte; `None` where every run is void.
    pub observed_ns: Option<f64>,
    pub predicted_ns: f64,
    /// The same with the network's cost as measured between null ends.
    pub flat_out_ns: f64,
    pub network: Network,
    /// Valid runs of the half with fewer of them; `None` where a half was not measured.
    pub half_runs: Option<usize>,
    /// Counted starts per request in these runs; `None` where they were not counted.
    pub starts_per_request: Option<f64>,
    pub observed_rate: Option<f64>,
    /// The rate by the law of `study::law`; `None` where a part was not measured alone.
    pub predicted_rate: Option<RatePrediction>,
    /// Gates that runs failed, and how many runs.
    pub voids: Vec<(String, usize)>,
    /// Where both ends are on one host.
    pub interrupts: Option<Interrupts>,
}

impl Composed {
    pub fn symmetric_error(&self) -> Option<f64> {
        Some(symmetric_error(self.observed_ns?, self.predicted_ns))
    }

    /// Valid runs, of this or of the half that it is predicted from: the smaller number.
    pub fn runs(&self) -> usize {
        self.half_runs.map_or(self.n, |runs| runs.min(self.n))
    }

    pub(crate) fn flat_out_error(&self) -> Option<f64> {
        Some(symmetric_error(self.observed_ns?, self.flat_out_ns))
    }

    /// True where both ends wake one device: then the error cannot be assigned to an end.
    pub(crate) fn shares_device(&self) -> bool {
        self.interrupts.is_some_and(|interrupts| interrupts.are_shared())
    }

    pub(crate) fn rate_error(&self) -> Option<f64> {
        Some(symmetric_error(self.observed_rate?, self.predicted_rate?.bytes_per_s))
    }

    pub(crate) fn signed_error(&self) -> Option<f64> {
        Some(signed_error(self.observed_ns?, self.predicted_ns))
    }
}

impl Composition {
    pub fn errors(&self) -> Vec<f64> {
        self.sizes.iter().filter_map(Composed::symmetric_error).collect()
    }

    /// True where the network's cost is not the one between null ends at some size.
    pub(crate) fn has_halves(&self) -> bool {
        self.sizes.iter().any(|seen| seen.network != Network::FlatOut)
    }
}

/// The ends of compositions, with the parts on either side of their pump; null has no part.
const COMPOSED: [(Scenario, ProcessRole, &[Part]); 7] = [
    (Scenario::DiskDisk, ProcessRole::Source, &[Part::DiskSource, Part::DiskSink]),
    (Scenario::DiskNetDisk, ProcessRole::Source, &[Part::DiskSource, Part::NetSink]),
    (Scenario::DiskNetDisk, ProcessRole::Sink, &[Part::NetSource, Part::DiskSink]),
    (Scenario::DiskNet, ProcessRole::Source, &[Part::DiskSource, Part::NetSink]),
    (Scenario::DiskNet, ProcessRole::Sink, &[Part::NetSource]),
    (Scenario::NetDisk, ProcessRole::Source, &[Part::NetSink]),
    (Scenario::NetDisk, ProcessRole::Sink, &[Part::NetSource, Part::DiskSink]),
];

pub(crate) fn of(
    all: &[Cell],
    records: &[&Record],
    parts: &[PartStudy],
    remarks: &mut Vec<String>,
) -> Vec<Composition> {
    let mut found: Vec<Composition> = Vec::new();
    for (scenario, end, its_parts) in COMPOSED {
        for cell in all.iter().filter(|cell| cell.key.scenario == scenario) {
            // The conditions of the parts are read from a run. A cell with only void runs has none,
            // so a run of another cell with the same conditions is used.
            let run = records.iter().find(|record| {
                cells::key(record).is_some_and(|key| {
                    key.scenario == scenario && key.conditions == cell.key.conditions
                })
            });
            let Some(run) = run else {
                let voids = spelled(cell);
                let size = cell.key.request_bytes;
                remarks
                    .push(format!("{} at {size} B: every run is void: {voids}", scenario.name()));
                continue;
            };
            let used: Result<Vec<&PartStudy>, String> =
                its_parts.iter().map(|part| part_for(*part, run, cell.key.depths, parts)).collect();
            let used = match used {
                Ok(used) => used,
                Err(why) => {
                    remarks.push(format!("{} at the {}: {why}", scenario.name(), end.name()));
                    continue;
                }
            };
            let same = |one: &Composition| {
                (one.scenario, one.end, one.depths) == (scenario, end, cell.key.depths)
                    && one.conditions == cell.key.conditions
            };
            let mut composed = composed(cell, end, &used, run);
            composed.interrupts = Interrupts::of(cell, all, run);
            if let Some(halves) = Halves::of(cell, all, run) {
                composed.half_runs = Some(halves.runs());
                if let Some((network, half)) = halves.slower() {
                    composed.network = network;
                    composed.predicted_ns = from_half(half, network, cell, end, &used, run);
                }
                composed.voids.extend(halves.voids());
            }
            match found.iter_mut().find(|one| same(one)) {
                Some(one) => one.sizes.push(composed),
                None => found.push(Composition {
                    scenario,
                    end,
                    conditions: cell.key.conditions.clone(),
                    depths: cell.key.depths,
                    parts: its_parts,
                    sizes: vec![composed],
                }),
            }
        }
    }
    remarks.sort();
    remarks.dedup();
    found
}

fn composed(cell: &Cell, end: ProcessRole, used: &[&PartStudy], run: &Record) -> Composed {
    let size = cell.key.request_bytes;
    // The cost of the pump is known to every part, and is added once.
    let pump = used.first().map_or(0.0, |part| part.curve.fit(size).known.cost_ns(size));
    let seen = cell.side(end);
    let starts = seen.and_then(|side| side.starts_per_request);
    let own_ns: f64 = used.iter().map(|part| own_cost_ns(part, used, cell, (starts, run))).sum();
    Composed {
        request_bytes: size,
        n: seen.map_or(0, |side| side.cost_ns.n),
        observed_ns: seen.map(|side| side.cost_ns.median),
        predicted_ns: pump + own_ns,
        flat_out_ns: pump + own_ns,
        network: Network::FlatOut,
        half_runs: None,
        starts_per_request: seen.and_then(|side| side.starts_per_request),
        observed_rate: cell.rate.as_ref().map(|rate| rate.median),
        predicted_rate: None,
        voids: cell.voids.clone().into_iter().collect(),
        interrupts: None,
    }
}

/// The cost of an end: as measured in the slower half; for the end that is null there, plus the
/// cost of its disk.
fn from_half(
    half: &Cell,
    network: Network,
    cell: &Cell,
    end: ProcessRole,
    used: &[&PartStudy],
    run: &Record,
) -> f64 {
    let within = half.side(end).map_or(0.0, |side| side.cost_ns.median);
    if network.disk_at() == Some(end) {
        return within;
    }
    let starts = cell.side(end).and_then(|side| side.starts_per_request);
    let of_files =
        used.iter().filter(|part| matches!(part.part, Part::DiskSource | Part::DiskSink));
    within + of_files.map(|part| own_cost_ns(part, used, cell, (starts, run))).sum::<f64>()
}

/// The cost of a part here, with the starts that were counted here. Without counts, every request
/// is a start.
fn own_cost_ns(
    part: &PartStudy,
    used: &[&PartStudy],
    cell: &Cell,
    (starts, run): (Option<f64>, &Record),
) -> f64 {
    let size = cell.key.request_bytes;
    if part.starts == Starts::Segments {
        let segments = cell.segments_per_request.unwrap_or_else(|| part.segments_alone(size));
        return part.own_cost_ns(size, segments);
    }
    let alone = part.own_cost_ns(size, 1.0);
    let with_files = used.iter().filter(|part| part.starts.are_of_files()).count().max(1);
    if with_files > 1 && cells::has_two_devices(run) {
        // Starts are not counted per device. Each part has the starts that it has alone.
        return match part.starts {
            Starts::Told => {
                let own = part.starts_alone(size, cell.key.depths.in_flight());
                part.own_cost_ns(size, own)
            }
            _ => alone,
        };
    }
    // Parts with files have equally many requests, so each has an equal share of the starts.
    let Some(share) = starts.map(|starts| starts / with_files as f64) else { return alone };
    let same_device = || used.iter().filter(|one| one.conditions == part.conditions);
    match part.starts {
        Starts::None | Starts::Segments | Starts::NotCounted => alone,
        // Two starts share the wake-up of the device, at the lower of their costs. What a start
        // costs beyond that, such as a kernel thread that completes it, is not shared.
        Starts::Told => {
            let own = part.starts_alone(size, cell.key.depths.in_flight());
            let wake_ns =
                same_device().filter_map(|one| one.start_ns(size)).fold(f64::INFINITY, f64::min);
            let shared_ns = (own - share).max(0.0) * wake_ns / f64::from(size.max(1));
            part.own_cost_ns(size, own.max(share)) - shared_ns
        }
        // With several requests in flight, the counted starts are not those of the device.
        Starts::TakeTurns if cell.key.depths.in_flight() > 1 => alone,
        // The wake-up of a device costs the same, whichever part causes it.
        Starts::TakeTurns | Starts::Alike => {
            let start_ns = same_device().find_map(|one| one.start_ns(size));
            let spared = start_ns.unwrap_or(0.0) * (1.0 - share).max(0.0);
            (alone - spared / f64::from(size.max(1))).max(0.0)
        }
    }
}

/// The part under the conditions of a run: at the same depth if that was measured, else at the
/// preferred depth.
fn part_for<'a>(
    part: Part,
    run: &Record,
    depths: Depths,
    parts: &'a [PartStudy],
) -> Result<&'a PartStudy, String> {
    let conditions = conditions_of(part, run);
    let same = || parts.iter().filter(|one| one.part == part && one.conditions == conditions);
    let exact = same().find(|one| one.depths == depths);
    let chosen = || same().reduce(|a, b| if b.stands_before(a) { b } else { a });
    exact.or_else(chosen).ok_or_else(|| {
        let name = name(part);
        format!("{name} was not measured alone under '{conditions}': measure it at several sizes")
    })
}

/// The conditions of a part in a run.
pub(crate) fn conditions_of(part: Part, run: &Record) -> String {
    match part {
        Part::Pump => String::new(),
        Part::DiskSource => cells::source_conditions(run),
        Part::DiskSink => cells::sink_conditions(run),
        Part::NetSource | Part::NetSink => cells::net_conditions(run),
    }
}

/// The parts that a byte goes through, at either end; a network is one.
pub(crate) fn path_of(scenario: Scenario) -> &'static [Part] {
    match scenario {
        Scenario::DiskNetDisk => &[Part::DiskSource, Part::NetSink, Part::DiskSink],
        Scenario::DiskNet => &[Part::DiskSource, Part::NetSink],
        Scenario::NetDisk => &[Part::NetSink, Part::DiskSink],
        _ => &[Part::DiskSource, Part::DiskSink],
    }
}

pub(crate) fn name(part: Part) -> &'static str {
    match part {
        Part::Pump => "pump",
        Part::DiskSource => "disk source",
        Part::DiskSink => "disk sink",
        Part::NetSource => "network source",
        Part::NetSink => "network sink",
    }
}

fn spelled(cell: &Cell) -> String {
    let reasons = cell.voids.iter().map(|(reason, count)| format!("{count} x {reason}"));
    reasons.collect::<Vec<_>>().join(", ")
}
