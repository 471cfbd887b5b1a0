//! Converts runs of the store's versions 1 to 5, with a column or table for each fact, to records.

use std::collections::BTreeMap;

use rusqlite::types::Value;
use rusqlite::{Connection, Row};
use serde::de::DeserializeOwned;

use super::rows::{all, number, parsed, unreadable};
use analysis::record::compression::{Compression, HeldBy, Without};
use analysis::record::options::Options;
use analysis::record::sample::{
    Cell, Conditions, Gate, KernelThread, Machine, Moved, PlaceInExperiment, Predicted, Probes,
    Record, Remote, RoundTrips, Scenario, Side,
};

/// The run of this number in `runs_of_5` and its tables, without its series and paths.
pub(super) fn record(connection: &Connection, id: i64) -> rusqlite::Result<Record> {
    let mut record = connection.query_row("SELECT * FROM runs_of_5 WHERE id = ?", [id], run)?;
    with_lists(connection, &mut record)?;
    name_what_had_no_type(&mut record);
    Ok(record)
}

/// Without its lists.
fn run(row: &Row<'_>) -> rusqlite::Result<Record> {
    Ok(Record {
        id: row.get("id")?,
        command: row.get("command")?,
        version: row.get("version")?,
        started_unix_s: number(row, "started_unix_s")?,
        sources: parsed(row, "sources_json")?,
        target: row.get("target")?,
        place: place(row)?,
        options: options(row)?,
        conditions: conditions(row)?,
        moved: moved(row)?,
        void_reason: row.get("void_reason")?,
        round_trips: round_trips(row)?,
        predicted: predicted(row)?,
        compression: compression(row)?,
        more: parsed(row, "more_json")?,
        ..Record::default()
    })
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

fn options(row: &Row<'_>) -> rusqlite::Result<Options> {
    let codec: Option<String> = row.get("codec")?;
    Ok(Options {
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
        compress: codec.unwrap_or_else(|| "off".to_string()),
        ..Options::default()
    })
}

fn conditions(row: &Row<'_>) -> rusqlite::Result<Conditions> {
    Ok(Conditions {
        cache: row.get("cache")?,
        resident_before: row.get("resident_before")?,
        carrier: row.get("carrier")?,
        source_file_system: row.get("source_file_system")?,
        sink_file_system: row.get("sink_file_system")?,
        soaked_cpus: parsed(row, "soaked_cpus_json")?,
        ..Conditions::default()
    })
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
        ..Moved::default()
    })
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

fn predicted(row: &Row<'_>) -> rusqlite::Result<Option<Predicted>> {
    let Some(binding) = row.get("predicted_binding")? else {
        return Ok(None);
    };
    let at = |name| number(row, name);
    Ok(Some(Predicted {
        elapsed_low_s: at("predicted_elapsed_low_s")?,
        elapsed_s: at("predicted_elapsed_s")?,
        elapsed_high_s: at("predicted_elapsed_high_s")?,
        cpu_source_low_s: at("predicted_cpu_source_low_s")?,
        cpu_source_s: at("predicted_cpu_source_s")?,
        cpu_source_high_s: at("predicted_cpu_source_high_s")?,
        cpu_sink_low_s: at("predicted_cpu_sink_low_s")?,
        cpu_sink_s: at("predicted_cpu_sink_s")?,
        cpu_sink_high_s: at("predicted_cpu_sink_high_s")?,
        binding,
        ..Predicted::default()
    }))
}

fn compression(row: &Row<'_>) -> rusqlite::Result<Option<Compression>> {
    if row.get::<_, Option<i64>>("packed_from_bytes")?.is_none() {
        return Ok(None);
    }
    Ok(Some(Compression {
        raw_bytes: counted(row, "packed_from_bytes")?,
        compressed_bytes: counted(row, "packed_to_bytes")?,
        bytes_by_coding: parsed(row, "packed_ways_json")?,
        compress_over_decompress: row.get("pack_over_unpack")?,
        without: without(row)?,
    }))
}

fn without(row: &Row<'_>) -> rusqlite::Result<Option<Without>> {
    let Some(held_by) = row.get::<_, Option<String>>("off_held_by")? else {
        return Ok(None);
    };
    Ok(Some(Without {
        bytes_per_s: number(row, "off_bytes_per_s")?,
        held_by: HeldBy::parse(todays_name(&held_by))
            .ok_or_else(|| unreadable(row, "off_held_by", format!("no '{held_by}'")))?,
    }))
}

/// The names of schema 3.
fn todays_name(held_by: &str) -> &str {
    match held_by {
        "packing" => "compression",
        "unpacking" => "decompression",
        other => other,
    }
}

fn side(row: &Row<'_>) -> rusqlite::Result<Side> {
    Ok(Side {
        environment: row.get::<_, Option<i64>>("environment")?.unwrap_or(0),
        cpus: parsed(row, "cpus_json")?,
        cpu_user_s: number(row, "cpu_user_s")?,
        cpu_system_s: number(row, "cpu_system_s")?,
        requests: counted(row, "requests")?,
        calls: counted(row, "calls")?,
        partial_returns: counted(row, "partial_returns")?,
        partial_bytes: counted(row, "partial_bytes")?,
        starts: counted(row, "starts")?,
        fill_s: number(row, "fill_s")?,
        pass_s: number(row, "pass_s")?,
        gate_s: number(row, "gate_s")?,
        drain_s: number(row, "drain_s")?,
        peak_memory_bytes: counted(row, "peak_memory_bytes")?,
        planned_memory_bytes: counted(row, "planned_memory_bytes")?,
        engine: row.get("engine")?,
        depth: row.get("depth")?,
        congestion: row.get("congestion")?,
        window_seen_bytes: counted(row, "window_seen_bytes")?,
        ..Side::default()
    })
}

fn machine(row: &Row<'_>) -> rusqlite::Result<Machine> {
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

fn kernel_thread(row: &Row<'_>) -> rusqlite::Result<KernelThread> {
    Ok(KernelThread { name: row.get("name")?, cpu: row.get("cpu")?, cpu_s: number(row, "cpu_s")? })
}

fn gate(row: &Row<'_>) -> rusqlite::Result<Gate> {
    Ok(Gate {
        name: row.get("name")?,
        value: number(row, "value")?,
        limit: number(row, "limit_value")?,
        passed: row.get("passed")?,
    })
}

fn counted(row: &Row<'_>, name: &str) -> rusqlite::Result<u64> {
    let value: i64 = row.get(name)?;
    u64::try_from(value).map_err(|_| unreadable(row, name, format!("{value} is below 0")))
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

fn with_lists(connection: &Connection, record: &mut Record) -> rusqlite::Result<()> {
    let id = [Value::Integer(record.id)];
    let list =
        |table: &str, order: &str| format!("SELECT * FROM {table} WHERE run = ? ORDER BY {order}");
    record.gates = all(connection, &list("gates", "place"), &id, gate)?;
    record.machines = all(connection, &list("machines", "machine"), &id, machine)?;
    let threads = list("machine_kernel_threads", "machine, place");
    let threads = all(connection, &threads, &id, |row| {
        Ok((row.get::<_, u32>("machine")?, kernel_thread(row)?))
    })?;
    for (machine, thread) in threads {
        if let Some(machine) = record.machines.get_mut(machine as usize) {
            machine.kernel_threads.push(thread);
        }
    }
    record.source = side_of(connection, record.id, "source")?.unwrap_or_default();
    record.sink = side_of(connection, record.id, "sink")?;
    Ok(())
}

fn side_of(connection: &Connection, run: i64, role: &str) -> rusqlite::Result<Option<Side>> {
    let key = [Value::Integer(run), Value::Text(role.to_string())];
    let spent = |table: &str, name: &'static str, spent: &'static str| {
        let sql = format!("SELECT * FROM {table} WHERE run = ? AND role = ?");
        let read = |row: &Row<'_>| Ok((row.get(name)?, number(row, spent)?));
        all(connection, &sql, &key, read).map(|pairs| pairs.into_iter().collect())
    };
    let sql = "SELECT * FROM sides WHERE run = ? AND role = ?";
    let Some(side) = all(connection, sql, &key, side)?.pop() else {
        return Ok(None);
    };
    Ok(Some(Side {
        kernel_threads_s: spent("side_kernel_threads", "name", "cpu_s")?,
        stages_s: spent("side_stages", "stage", "spent_s")?,
        ..side
    }))
}

/// Older versions kept some facts untyped in `more`; today each has a field. A value of another
/// type than its field stays in `more`.
fn name_what_had_no_type(record: &mut Record) {
    let mut taken = Taken(&mut record.more);
    let moved = &mut record.moved;
    for (name, field) in [
        ("directories", &mut moved.directories),
        ("failed", &mut moved.failed),
        ("kept", &mut moved.kept),
        ("excluded", &mut moved.excluded),
        ("resumed_bytes", &mut moved.resumed_bytes),
        ("held_files", &mut moved.held_files),
    ] {
        *field = taken.value(name).unwrap_or_default();
    }
    moved.exit_code = taken.value("exit_code").unwrap_or_default();
    moved.segments_sent = taken.value("segments_sent");
    let options = &mut record.options;
    options.pace = taken.value("pace").unwrap_or_else(|| "off".to_string());
    options.dscp = taken.value("dscp");
    options.lockstep = taken.value("lockstep");
    options.null_cycle_bytes = taken.value("null_cycle_bytes").unwrap_or_default();
    record.source.pace_chosen_bytes_per_s = taken.value("pace_chosen_bytes_per_s");
    record.source.window_scale = taken.value("window_scale");
    record.conditions.device_interrupts = taken.value("device_interrupts");
    record.conditions.has_two_devices = taken.value("two_devices").unwrap_or_default();
    record.remote = taken.value("far_host").map(|host| Remote {
        host,
        is_push: taken.value("is_push").unwrap_or_default(),
        login_s: taken.value("login_s").unwrap_or_default(),
        rtt_min_s: taken.value("path_rtt_s"),
    });
    record.tcp = taken.value("tcp");
    record.cell = taken.value("choice").map(|choice| {
        let extent: BTreeMap<String, f64> = taken.value("extent").unwrap_or_default();
        Cell {
            choice,
            extent_bytes: extent.get("bytes").map(|bytes| *bytes as u64),
            extent_s: extent.get("seconds").copied(),
            moving_s: taken.value("moving_s"),
            pause_s: taken.value("pause_s"),
            loaded_s: taken.value("loaded_s"),
            compression_ratio: taken.value("compression_ratio"),
            cycles_per_byte_source: taken.value("cycles_per_byte_source"),
        }
    });
    if let Some(level) = taken.value("level") {
        record.options.compress = level;
    }
}

/// Untyped facts; a fact that is taken is removed.
struct Taken<'a>(&'a mut BTreeMap<String, serde_json::Value>);

impl Taken<'_> {
    fn value<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let value = serde_json::from_value(self.0.get(name)?.clone()).ok()?;
        self.0.remove(name);
        Some(value)
    }
}

#[cfg(test)]
mod tests;
