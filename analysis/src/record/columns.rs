//! A record as rows of columns, and back. Whatever writes rows (the store, an export) takes them
//! from here.

use std::collections::BTreeMap;

use rusqlite::{Row, ToSql};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::packed::{HeldBy, Packed, Without};
use super::sample::{
    Conditions, Gate, KernelThread, Knobs, Machine, Moved, PlaceInExperiment, Predicted, Probes,
    Record, RoundTrips, Scenario, SeriesPoint, Side,
};

/// A value with its type, which it has also where it is not there. A number that is none (NaN) is
/// stored as not there.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Integer(Option<i64>),
    Real(Option<f64>),
    Text(Option<String>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub name: &'static str,
    pub cell: Cell,
}

impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        match self {
            Cell::Integer(value) => value.to_sql(),
            Cell::Real(value) => value.to_sql(),
            Cell::Text(value) => value.to_sql(),
        }
    }
}

/// What is known of a run as a whole; its lists are elsewhere, and its number is the store's.
pub fn of_run(record: &Record) -> Vec<Column> {
    let Record { command, version, started_unix_s, sources, target, void_reason, .. } = record;
    let mut columns = vec![
        text("command", command),
        text("version", version),
        real("started_unix_s", *started_unix_s),
        json("sources_json", sources),
        text("target", target),
    ];
    columns.extend(of_place(record.place.as_ref()));
    columns.extend(of_knobs(&record.knobs));
    columns.extend(of_conditions(&record.conditions));
    columns.extend(of_moved(&record.moved));
    columns.push(maybe_text("void_reason", void_reason.as_deref()));
    columns.extend(of_round_trips(record.round_trips.as_ref()));
    columns.extend(of_predicted(record.predicted.as_ref()));
    columns.extend(of_packed(record.packed.as_ref()));
    columns.push(json("more_json", &record.more));
    columns
}

/// The run without its lists.
pub fn run(row: &Row<'_>) -> rusqlite::Result<Record> {
    Ok(Record {
        id: row.get("id")?,
        command: row.get("command")?,
        version: row.get("version")?,
        started_unix_s: number(row, "started_unix_s")?,
        sources: parsed(row, "sources_json")?,
        target: row.get("target")?,
        place: place(row)?,
        knobs: knobs(row)?,
        conditions: conditions(row)?,
        moved: moved(row)?,
        void_reason: row.get("void_reason")?,
        round_trips: round_trips(row)?,
        predicted: predicted(row)?,
        packed: packed(row)?,
        more: parsed(row, "more_json")?,
        ..Record::default()
    })
}

fn of_place(place: Option<&PlaceInExperiment>) -> Vec<Column> {
    vec![
        maybe_text("experiment", place.map(|place| place.experiment.as_str())),
        maybe_text("scenario", place.map(|place| place.scenario.name())),
        // As text, since it may be larger than the integers of SQL.
        maybe_text("seed", place.map(|place| place.seed.to_string()).as_deref()),
        maybe_integer("order_index", place.map(|place| place.order_index)),
        maybe_integer("repeat", place.map(|place| place.repeat)),
        maybe_integer("block", place.map(|place| place.block)),
    ]
}

fn place(row: &Row<'_>) -> rusqlite::Result<Option<PlaceInExperiment>> {
    let Some(experiment) = row.get("experiment")? else {
        return Ok(None);
    };
    let scenario: String = row.get("scenario")?;
    let seed: String = row.get("seed")?;
    Ok(Some(PlaceInExperiment {
        experiment,
        scenario: Scenario::parse(&scenario)
            .ok_or_else(|| unreadable(row, "scenario", format!("no scenario '{scenario}'")))?,
        seed: seed.parse().map_err(|why| unreadable(row, "seed", format!("'{seed}': {why}")))?,
        order_index: row.get("order_index")?,
        repeat: row.get("repeat")?,
        block: row.get("block")?,
    }))
}

fn of_knobs(knobs: &Knobs) -> Vec<Column> {
    vec![
        integer("request_bytes", knobs.request_bytes),
        maybe_integer("depth_source", knobs.depth_source),
        maybe_integer("depth_sink", knobs.depth_sink),
        integer("streams", knobs.streams),
        maybe_integer("window_bytes", knobs.window_bytes),
        maybe_text("congestion", knobs.congestion.as_deref()),
        maybe_real("rate_limit_bytes_per_s", knobs.rate_bytes_per_s),
        text("engine", &knobs.engine),
        text("direct", &knobs.direct),
        text("seal", &knobs.seal),
        text("digest", &knobs.digest),
        text("fsync", &knobs.fsync),
        text("receive", &knobs.receive),
        maybe_text("codec", knobs.codec.as_deref()),
    ]
}

fn knobs(row: &Row<'_>) -> rusqlite::Result<Knobs> {
    Ok(Knobs {
        request_bytes: row.get("request_bytes")?,
        depth_source: row.get("depth_source")?,
        depth_sink: row.get("depth_sink")?,
        streams: row.get("streams")?,
        window_bytes: row.get("window_bytes")?,
        congestion: row.get("congestion")?,
        rate_bytes_per_s: row.get("rate_limit_bytes_per_s")?,
        engine: row.get("engine")?,
        direct: row.get("direct")?,
        seal: row.get("seal")?,
        digest: row.get("digest")?,
        fsync: row.get("fsync")?,
        receive: row.get("receive")?,
        codec: row.get("codec")?,
    })
}

fn of_conditions(conditions: &Conditions) -> Vec<Column> {
    vec![
        text("cache", &conditions.cache),
        maybe_real("resident_before", conditions.resident_before),
        text("carrier", &conditions.carrier),
        maybe_text("source_file_system", conditions.source_file_system.as_deref()),
        maybe_text("sink_file_system", conditions.sink_file_system.as_deref()),
        json("soaked_cpus_json", &conditions.soaked_cpus),
    ]
}

fn conditions(row: &Row<'_>) -> rusqlite::Result<Conditions> {
    Ok(Conditions {
        cache: row.get("cache")?,
        resident_before: row.get("resident_before")?,
        carrier: row.get("carrier")?,
        source_file_system: row.get("source_file_system")?,
        sink_file_system: row.get("sink_file_system")?,
        soaked_cpus: parsed(row, "soaked_cpus_json")?,
    })
}

fn of_moved(moved: &Moved) -> Vec<Column> {
    vec![
        count("bytes", moved.bytes),
        count("files", moved.files),
        count("wire_bytes", moved.wire_bytes),
        real("elapsed_s", moved.elapsed_s),
        real("goodput_bytes_per_s", moved.goodput_bytes_per_s),
        maybe_real("steady_bytes_per_s", moved.steady_bytes_per_s),
        maybe_real("steady_from_s", moved.steady_from_s),
        integer("retries", moved.retries),
    ]
}

fn moved(row: &Row<'_>) -> rusqlite::Result<Moved> {
    Ok(Moved {
        bytes: counted(row, "bytes")?,
        files: counted(row, "files")?,
        wire_bytes: counted(row, "wire_bytes")?,
        elapsed_s: number(row, "elapsed_s")?,
        goodput_bytes_per_s: number(row, "goodput_bytes_per_s")?,
        steady_bytes_per_s: row.get("steady_bytes_per_s")?,
        steady_from_s: row.get("steady_from_s")?,
        retries: row.get("retries")?,
    })
}

fn of_round_trips(seen: Option<&RoundTrips>) -> Vec<Column> {
    let mut columns = vec![
        maybe_text("probe_method", seen.map(|seen| seen.method.as_str())),
        maybe_real("probe_late_max_s", seen.map(|seen| seen.late_max_s)),
    ];
    columns.extend(of_probes(UNLOADED, seen.map(|seen| &seen.unloaded)));
    columns.extend(of_probes(LOADED, seen.map(|seen| &seen.loaded)));
    columns
}

fn of_probes(names: [&'static str; 5], probes: Option<&Probes>) -> [Column; 5] {
    let [sent, lost, min, median, p95] = names;
    [
        maybe_integer(sent, probes.map(|probes| probes.sent)),
        maybe_integer(lost, probes.map(|probes| probes.lost)),
        maybe_real(min, probes.and_then(|probes| probes.min_s)),
        maybe_real(median, probes.and_then(|probes| probes.median_s)),
        maybe_real(p95, probes.and_then(|probes| probes.p95_s)),
    ]
}

fn round_trips(row: &Row<'_>) -> rusqlite::Result<Option<RoundTrips>> {
    let Some(method) = row.get("probe_method")? else {
        return Ok(None);
    };
    Ok(Some(RoundTrips {
        method,
        unloaded: probes(row, UNLOADED)?,
        loaded: probes(row, LOADED)?,
        late_max_s: number(row, "probe_late_max_s")?,
    }))
}

fn probes(row: &Row<'_>, names: [&'static str; 5]) -> rusqlite::Result<Probes> {
    let [sent, lost, min, median, p95] = names;
    Ok(Probes {
        sent: row.get(sent)?,
        lost: row.get(lost)?,
        min_s: row.get(min)?,
        median_s: row.get(median)?,
        p95_s: row.get(p95)?,
    })
}

const UNLOADED: [&str; 5] = [
    "unloaded_probes_sent",
    "unloaded_probes_lost",
    "unloaded_rtt_min_s",
    "unloaded_rtt_median_s",
    "unloaded_rtt_p95_s",
];
const LOADED: [&str; 5] = [
    "loaded_probes_sent",
    "loaded_probes_lost",
    "loaded_rtt_min_s",
    "loaded_rtt_median_s",
    "loaded_rtt_p95_s",
];

fn of_predicted(predicted: Option<&Predicted>) -> Vec<Column> {
    let at = |values: fn(&Predicted) -> f64| predicted.map(values);
    vec![
        maybe_real("predicted_elapsed_low_s", at(|predicted| predicted.elapsed_s[0])),
        maybe_real("predicted_elapsed_s", at(|predicted| predicted.elapsed_s[1])),
        maybe_real("predicted_elapsed_high_s", at(|predicted| predicted.elapsed_s[2])),
        maybe_real("predicted_cpu_source_low_s", at(|predicted| predicted.cpu_source_s[0])),
        maybe_real("predicted_cpu_source_s", at(|predicted| predicted.cpu_source_s[1])),
        maybe_real("predicted_cpu_source_high_s", at(|predicted| predicted.cpu_source_s[2])),
        maybe_real("predicted_cpu_sink_low_s", at(|predicted| predicted.cpu_sink_s[0])),
        maybe_real("predicted_cpu_sink_s", at(|predicted| predicted.cpu_sink_s[1])),
        maybe_real("predicted_cpu_sink_high_s", at(|predicted| predicted.cpu_sink_s[2])),
        maybe_text("predicted_binding", predicted.map(|predicted| predicted.binding.as_str())),
    ]
}

fn predicted(row: &Row<'_>) -> rusqlite::Result<Option<Predicted>> {
    let Some(binding) = row.get("predicted_binding")? else {
        return Ok(None);
    };
    let at = |name| number(row, name);
    Ok(Some(Predicted {
        elapsed_s: [
            at("predicted_elapsed_low_s")?,
            at("predicted_elapsed_s")?,
            at("predicted_elapsed_high_s")?,
        ],
        cpu_source_s: [
            at("predicted_cpu_source_low_s")?,
            at("predicted_cpu_source_s")?,
            at("predicted_cpu_source_high_s")?,
        ],
        cpu_sink_s: [
            at("predicted_cpu_sink_low_s")?,
            at("predicted_cpu_sink_s")?,
            at("predicted_cpu_sink_high_s")?,
        ],
        binding,
    }))
}

fn of_packed(packed: Option<&Packed>) -> Vec<Column> {
    let bytes =
        |of: fn(&Packed) -> u64| packed.map(|packed| i64::try_from(of(packed)).unwrap_or(i64::MAX));
    let without = packed.and_then(|packed| packed.without);
    let ways = packed.map(|packed| json("packed_ways_json", &packed.bytes_by_way));
    vec![
        maybe_integer("packed_from_bytes", bytes(|packed| packed.raw_bytes)),
        maybe_integer("packed_to_bytes", bytes(|packed| packed.packed_bytes)),
        ways.unwrap_or_else(|| maybe_text("packed_ways_json", None)),
        maybe_real("pack_over_unpack", packed.and_then(|packed| packed.pack_over_unpack)),
        maybe_real("off_bytes_per_s", without.map(|without| without.bytes_per_s)),
        maybe_text("off_held_by", without.map(|without| without.held_by.name())),
    ]
}

fn packed(row: &Row<'_>) -> rusqlite::Result<Option<Packed>> {
    if row.get::<_, Option<i64>>("packed_from_bytes")?.is_none() {
        return Ok(None);
    }
    Ok(Some(Packed {
        raw_bytes: counted(row, "packed_from_bytes")?,
        packed_bytes: counted(row, "packed_to_bytes")?,
        bytes_by_way: parsed(row, "packed_ways_json")?,
        pack_over_unpack: row.get("pack_over_unpack")?,
        without: without(row)?,
    }))
}

fn without(row: &Row<'_>) -> rusqlite::Result<Option<Without>> {
    let Some(held_by) = row.get::<_, Option<String>>("off_held_by")? else {
        return Ok(None);
    };
    Ok(Some(Without {
        bytes_per_s: number(row, "off_bytes_per_s")?,
        held_by: HeldBy::parse(&held_by)
            .ok_or_else(|| unreadable(row, "off_held_by", format!("no '{held_by}'")))?,
    }))
}

/// One host's part without what is counted by name.
pub fn of_side(side: &Side) -> Vec<Column> {
    vec![
        maybe_integer("environment", Some(side.environment).filter(|number| *number != 0)),
        json("cpus_json", &side.cpus),
        real("cpu_user_s", side.cpu_user_s),
        real("cpu_system_s", side.cpu_system_s),
        count("requests", side.requests),
        count("calls", side.calls),
        count("partial_returns", side.partial_returns),
        count("partial_bytes", side.partial_bytes),
        count("starts", side.starts),
        real("fill_s", side.fill_s),
        real("pass_s", side.pass_s),
        real("gate_s", side.gate_s),
        real("drain_s", side.drain_s),
        count("peak_memory_bytes", side.peak_memory_bytes),
        count("planned_memory_bytes", side.planned_memory_bytes),
        text("engine", &side.engine),
        integer("depth", side.depth),
        text("congestion", &side.congestion),
        count("window_seen_bytes", side.window_seen_bytes),
    ]
}

pub fn side(row: &Row<'_>) -> rusqlite::Result<Side> {
    Ok(Side {
        environment: row.get::<_, Option<i64>>("environment")?.unwrap_or(0),
        cpus: parsed(row, "cpus_json")?,
        cpu_user_s: number(row, "cpu_user_s")?,
        cpu_system_s: number(row, "cpu_system_s")?,
        kernel_threads_s: BTreeMap::new(),
        requests: counted(row, "requests")?,
        calls: counted(row, "calls")?,
        partial_returns: counted(row, "partial_returns")?,
        partial_bytes: counted(row, "partial_bytes")?,
        starts: counted(row, "starts")?,
        fill_s: number(row, "fill_s")?,
        pass_s: number(row, "pass_s")?,
        gate_s: number(row, "gate_s")?,
        drain_s: number(row, "drain_s")?,
        stages_s: BTreeMap::new(),
        peak_memory_bytes: counted(row, "peak_memory_bytes")?,
        planned_memory_bytes: counted(row, "planned_memory_bytes")?,
        engine: row.get("engine")?,
        depth: row.get("depth")?,
        congestion: row.get("congestion")?,
        window_seen_bytes: counted(row, "window_seen_bytes")?,
    })
}

pub fn of_machine(machine: &Machine) -> Vec<Column> {
    vec![
        integer("cpus", machine.cpus),
        real("span_s", machine.span_s),
        real("busy_idle_s", machine.busy_idle_s),
        maybe_real("busy_iter_s", machine.busy_iter_s),
        maybe_real("busy_clock_s", machine.busy_clock_s),
        maybe_real("background_s", machine.background_s),
        real("steal_s", machine.steal_s),
        json("soaked_cpus_json", &machine.soaked_cpus),
    ]
}

pub fn machine(row: &Row<'_>) -> rusqlite::Result<Machine> {
    Ok(Machine {
        cpus: row.get("cpus")?,
        span_s: number(row, "span_s")?,
        busy_idle_s: number(row, "busy_idle_s")?,
        busy_iter_s: row.get("busy_iter_s")?,
        busy_clock_s: row.get("busy_clock_s")?,
        background_s: row.get("background_s")?,
        steal_s: number(row, "steal_s")?,
        soaked_cpus: parsed(row, "soaked_cpus_json")?,
        kernel_threads: Vec::new(),
    })
}

pub fn of_kernel_thread(thread: &KernelThread) -> Vec<Column> {
    vec![text("name", &thread.name), maybe_integer("cpu", thread.cpu), real("cpu_s", thread.cpu_s)]
}

pub fn kernel_thread(row: &Row<'_>) -> rusqlite::Result<KernelThread> {
    Ok(KernelThread { name: row.get("name")?, cpu: row.get("cpu")?, cpu_s: number(row, "cpu_s")? })
}

pub fn of_gate(gate: &Gate) -> Vec<Column> {
    vec![
        text("name", &gate.name),
        real("value", gate.value),
        real("limit_value", gate.limit),
        integer("passed", gate.passed),
    ]
}

pub fn gate(row: &Row<'_>) -> rusqlite::Result<Gate> {
    Ok(Gate {
        name: row.get("name")?,
        value: number(row, "value")?,
        limit: number(row, "limit_value")?,
        passed: row.get("passed")?,
    })
}

pub fn of_point(point: &SeriesPoint) -> Vec<Column> {
    vec![real("at_s", point.at_s), count("bytes", point.bytes)]
}

pub fn point(row: &Row<'_>) -> rusqlite::Result<SeriesPoint> {
    Ok(SeriesPoint { at_s: number(row, "at_s")?, bytes: counted(row, "bytes")? })
}

pub fn of_spent(name: &'static str, spent: &'static str, by: (&String, &f64)) -> Vec<Column> {
    vec![text(name, by.0), real(spent, *by.1)]
}

pub fn integer(name: &'static str, value: impl Into<i64>) -> Column {
    maybe_integer(name, Some(value))
}

pub(crate) fn maybe_integer(name: &'static str, value: Option<impl Into<i64>>) -> Column {
    Column { name, cell: Cell::Integer(value.map(Into::into)) }
}

/// A number that SQL has no room for is the largest that it has room for.
pub fn count(name: &'static str, value: u64) -> Column {
    integer(name, i64::try_from(value).unwrap_or(i64::MAX))
}

pub fn real(name: &'static str, value: f64) -> Column {
    maybe_real(name, Some(value))
}

pub(crate) fn maybe_real(name: &'static str, value: Option<f64>) -> Column {
    Column { name, cell: Cell::Real(value.filter(|value| !value.is_nan())) }
}

pub fn text(name: &'static str, value: &str) -> Column {
    maybe_text(name, Some(value))
}

pub(crate) fn maybe_text(name: &'static str, value: Option<&str>) -> Column {
    Column { name, cell: Cell::Text(value.map(String::from)) }
}

/// A list, as text. What consists of strings and numbers can always be written so.
pub fn json(name: &'static str, value: &impl Serialize) -> Column {
    text(name, &serde_json::to_string(value).unwrap_or_else(|_| "null".into()))
}

/// A number that must be there; what is not there was none.
pub fn number(row: &Row<'_>, name: &str) -> rusqlite::Result<f64> {
    Ok(row.get::<_, Option<f64>>(name)?.unwrap_or(f64::NAN))
}

fn counted(row: &Row<'_>, name: &str) -> rusqlite::Result<u64> {
    let value: i64 = row.get(name)?;
    u64::try_from(value).map_err(|_| unreadable(row, name, format!("{value} is below 0")))
}

pub fn parsed<T: DeserializeOwned>(row: &Row<'_>, name: &str) -> rusqlite::Result<T> {
    let text: String = row.get(name)?;
    serde_json::from_str(&text).map_err(|why| unreadable(row, name, why.to_string()))
}

fn unreadable(row: &Row<'_>, name: &str, why: String) -> rusqlite::Error {
    let at = row.as_ref().column_index(name).unwrap_or_default();
    let why = format!("column {name}: {why}").into();
    rusqlite::Error::FromSqlConversionFailure(at, rusqlite::types::Type::Text, why)
}
