//! The cells of the grid: runs that differ only by chance.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::record::sample::{Record, Scenario, Side};
use crate::statistics::{Spread, median};

/// Which runs give the CPU time, if there are both kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuFrom {
    /// Those with a soaker: the procedure of Mayr and Gray (2000).
    #[default]
    Soaked,
    /// Those without one, as copies are.
    Bare,
}

impl CpuFrom {
    pub const NAMES: &[&str] = &["soaked", "bare"];
    pub const ALL: &[CpuFrom] = &[CpuFrom::Soaked, CpuFrom::Bare];
}

/// What runs of one cell have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CellKey {
    pub scenario: Scenario,
    /// As words: `ext4 direct cold`, `tcp cubic any`.
    pub conditions: String,
    pub depths: Depths,
    pub request_bytes: u32,
}

/// Requests in flight at the source and at the sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Depths {
    pub source: u16,
    pub sink: u16,
}

impl Depths {
    /// Of the end with more of them.
    pub(crate) fn in_flight(self) -> u16 {
        self.source.max(self.sink).max(1)
    }
}

/// The results of a cell's runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    pub key: CellKey,
    /// Bytes a second. From runs without a soaker where there are any: it may slow a run down.
    pub rate: Option<Spread>,
    /// The same from runs with a soaker.
    pub rate_soaked: Option<Spread>,
    /// The time of a run, of those that give the CPU time.
    pub elapsed_s: Option<f64>,
    /// From runs with a soaker or without, by the study's choice.
    pub source: Option<SideCell>,
    pub sink: Option<SideCell>,
    /// The kind of those runs: the other kind where there are none of the study's choice; `None`
    /// where no run is valid.
    pub cpu_from: Option<CpuFrom>,
    /// Segments that TCP sent per full request, in the runs that give the CPU time; `None` where
    /// they were not counted.
    pub segments_per_request: Option<f64>,
    /// Interrupts of the host's devices, likewise.
    pub interrupts_per_request: Option<f64>,
    /// Void runs, by the gate that they failed.
    pub voids: BTreeMap<String, usize>,
}

/// CPU time and calls of one side; medians, except for the whole cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SideCell {
    /// Nanoseconds per byte of all CPU time of this side.
    pub cost_ns: Spread,
    pub user_ns: f64,
    pub system_ns: f64,
    pub kernel_threads_ns: f64,
    pub calls_per_request: f64,
    /// Starts per full request (requests submitted while their lane had no file request in flight);
    /// `None` where they were not counted, and where there are no files.
    pub starts_per_request: Option<f64>,
    pub reads: Reads,
}

/// The reads of a network source. Every frame has a header, which takes a call of its own: the
/// others read payload.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reads {
    /// Calls for payload, per request.
    pub per_request: f64,
    /// The share of partial calls.
    pub partial_share: f64,
    /// The average bytes of a call, as a share of the request.
    pub mean_return: f64,
}

impl Cell {
    pub fn side(&self, end: ProcessRole) -> Option<&SideCell> {
        match end {
            ProcessRole::Source => self.source.as_ref(),
            ProcessRole::Sink => self.sink.as_ref(),
        }
    }
}

/// One of the two processes of a transfer; a single process has both ends as the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessRole {
    Source,
    Sink,
}

impl ProcessRole {
    pub fn of(self, record: &Record) -> Option<&Side> {
        match self {
            ProcessRole::Source => Some(&record.source),
            ProcessRole::Sink => record.sink.as_ref(),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            ProcessRole::Source => "source",
            ProcessRole::Sink => "sink",
        }
    }
}

pub fn of(records: &[&Record], cpu_from: CpuFrom) -> Vec<Cell> {
    let mut groups: BTreeMap<CellKey, Vec<&Record>> = BTreeMap::new();
    for record in records {
        if let Some(key) = key(record) {
            groups.entry(key).or_default().push(record);
        }
    }
    groups.into_iter().map(|(key, records)| cell(key, &records, cpu_from)).collect()
}

fn cell(key: CellKey, records: &[&Record], cpu_from: CpuFrom) -> Cell {
    let mut voids = BTreeMap::new();
    for gate in records.iter().filter_map(|record| failed_gate(record)) {
        *voids.entry(gate).or_default() += 1;
    }
    let counting: Vec<&Record> =
        records.iter().copied().filter(|record| record.void_reason.is_none()).collect();
    let (soaked, bare): (Vec<&Record>, Vec<&Record>) =
        counting.iter().partition(|record| is_soaked(record));
    let rate = |records: &[&Record]| {
        Spread::of(records.iter().map(|record| rate(record)).collect::<Vec<_>>())
    };
    let with_cpu = with_cpu(&counting, cpu_from);
    Cell {
        cpu_from: with_cpu.first().map(|record| match is_soaked(record) {
            true => CpuFrom::Soaked,
            false => CpuFrom::Bare,
        }),
        rate: rate(if bare.is_empty() { &soaked } else { &bare }),
        rate_soaked: if bare.is_empty() { None } else { rate(&soaked) },
        elapsed_s: median(
            &with_cpu.iter().map(|record| record.moved.elapsed_s).collect::<Vec<_>>(),
        ),
        segments_per_request: per_request(&with_cpu, segments),
        interrupts_per_request: per_request(&with_cpu, interrupts),
        source: side(&with_cpu, ProcessRole::Source),
        sink: side(&with_cpu, ProcessRole::Sink),
        key,
        voids,
    }
}

fn per_request(records: &[&Record], count: fn(&Record) -> Option<f64>) -> Option<f64> {
    let each = records.iter().filter_map(|record| Some(count(record)? / requests(record)));
    median(&each.collect::<Vec<_>>())
}

fn side(records: &[&Record], end: ProcessRole) -> Option<SideCell> {
    let runs: Vec<(&Record, &Side)> = records
        .iter()
        .filter(|record| record.moved.bytes > 0)
        .filter_map(|record| Some((*record, end.of(record)?)))
        .collect();
    let middle = |of: &dyn Fn(&Record, &Side) -> f64| {
        median(&runs.iter().map(|(record, side)| of(record, side)).collect::<Vec<_>>())
            .unwrap_or(0.0)
    };
    let per_byte = |record: &Record, seconds: f64| seconds * 1e9 / record.moved.bytes as f64;
    let costs: Vec<f64> =
        runs.iter().map(|(record, side)| per_byte(record, side.cpu_s())).collect();
    let payload_calls = |record: &Record, side: &Side| {
        let headers = requests(record).min(side.calls as f64 / 2.0);
        (side.calls as f64 - headers).max(1.0)
    };
    let counted = !runs.is_empty() && runs.iter().all(|(_, side)| side.starts > 0);
    Some(SideCell {
        cost_ns: Spread::of(&costs)?,
        user_ns: middle(&|record, side| per_byte(record, side.cpu_user_s)),
        system_ns: middle(&|record, side| per_byte(record, side.cpu_system_s)),
        kernel_threads_ns: middle(&|record, side| {
            per_byte(record, side.kernel_threads_s.values().sum())
        }),
        calls_per_request: middle(&|record, side| side.calls as f64 / requests(record)),
        starts_per_request: counted
            .then(|| middle(&|record, side| side.starts as f64 / requests(record))),
        reads: Reads {
            per_request: middle(&|record, side| payload_calls(record, side) / requests(record)),
            partial_share: middle(&|record, side| {
                side.partial_returns as f64 / payload_calls(record, side)
            }),
            mean_return: middle(&|record, side| {
                (requests(record) / payload_calls(record, side)).min(1.0)
            }),
        },
    })
}

/// The runs that give the CPU time: those of the requested kind, if there are any.
pub(crate) fn with_cpu<'a>(records: &[&'a Record], cpu_from: CpuFrom) -> Vec<&'a Record> {
    let (soaked, bare): (Vec<&Record>, Vec<&Record>) =
        records.iter().partition(|record| is_soaked(record));
    match cpu_from {
        CpuFrom::Soaked if !soaked.is_empty() => soaked,
        CpuFrom::Bare if bare.is_empty() => soaked,
        CpuFrom::Soaked | CpuFrom::Bare => bare,
    }
}

/// Why a run is void, in a word: the first gate that it failed.
pub(crate) fn failed_gate(record: &Record) -> Option<String> {
    let reason = record.void_reason.as_ref()?;
    let gate = record.gates.iter().find(|gate| !gate.passed);
    Some(gate.map_or_else(|| reason.clone(), |gate| gate.name.clone()))
}

/// The full requests that the bytes of a run fill: the reference for counted calls.
pub fn requests(record: &Record) -> f64 {
    record.moved.bytes as f64 / f64::from(record.options.request_bytes.max(1))
}

/// Segments with data that TCP sent.
pub fn segments(record: &Record) -> Option<f64> {
    record.moved.segments_sent
}

/// Interrupts of the devices of the host that started the run.
fn interrupts(record: &Record) -> Option<f64> {
    record.conditions.device_interrupts.map(|count| count as f64)
}

/// True where the host is known to read from one device and write to another.
pub fn has_two_devices(record: &Record) -> bool {
    record.conditions.has_two_devices
}

pub(crate) fn is_soaked(record: &Record) -> bool {
    !record.conditions.soaked_cpus.is_empty()
}

/// Bytes a second, in the steady part if there is one.
pub fn rate(record: &Record) -> f64 {
    record.moved.steady_bytes_per_s.unwrap_or(record.moved.goodput_bytes_per_s)
}

pub fn key(record: &Record) -> Option<CellKey> {
    let scenario = record.place.as_ref()?.scenario;
    Some(CellKey {
        scenario,
        conditions: conditions(record, scenario),
        depths: depths(record),
        request_bytes: record.options.request_bytes,
    })
}

pub fn depths(record: &Record) -> Depths {
    let sink = record.sink.as_ref().unwrap_or(&record.source);
    Depths {
        source: record.options.depth_source.unwrap_or(record.source.depth),
        sink: record.options.depth_sink.unwrap_or(sink.depth),
    }
}

/// The conditions of a run, of all its parts.
pub fn conditions(record: &Record, scenario: Scenario) -> String {
    let mut words = Vec::new();
    if scenario.reads_disk() {
        words.push(source_conditions(record));
    }
    if scenario.has_net() {
        words.push(net_conditions(record));
    }
    if scenario.writes_disk() {
        words.push(sink_conditions(record));
    }
    words.retain(|word| !word.is_empty());
    words.join(" to ")
}

pub(crate) fn source_conditions(record: &Record) -> String {
    let file_system = record.conditions.source_file_system.as_deref();
    let cache = record.conditions.cache.as_str();
    // `direct` already says that the page cache is bypassed.
    let said = in_memory(file_system) || (cache == "bypass" && record.options.direct == "on");
    disk(record, file_system, (!said).then_some(cache))
}

pub(crate) fn sink_conditions(record: &Record) -> String {
    disk(record, record.conditions.sink_file_system.as_deref(), None)
}

fn disk(record: &Record, file_system: Option<&str>, cache: Option<&str>) -> String {
    // The mount options come after the name.
    let name = file_system.and_then(|name| name.split_whitespace().next()).unwrap_or("files");
    let direct = match record.options.direct.as_str() {
        _ if in_memory(file_system) => "",
        "on" => "direct",
        "off" => "buffered",
        _ => "",
    };
    words([name, direct, cache.unwrap_or(""), engine(record)])
}

pub(crate) fn in_memory(file_system: Option<&str>) -> bool {
    file_system.is_some_and(|name| name.starts_with("tmpfs") || name.starts_with("ramfs"))
}

pub(crate) fn net_conditions(record: &Record) -> String {
    let congestion = match record.options.congestion.as_deref() {
        Some(asked) => asked,
        None => &record.source.congestion,
    };
    let carrier = match record.conditions.carrier.as_str() {
        "" => "tcp",
        carrier => carrier,
    };
    words([carrier, congestion, &record.options.receive, engine(record)])
}

/// The engine, where one was requested.
fn engine(record: &Record) -> &str {
    match record.options.engine.as_str() {
        "auto" => "",
        engine => engine,
    }
}

fn words<const N: usize>(words: [&str; N]) -> String {
    let said: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    said.join(" ")
}
