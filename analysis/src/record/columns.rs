//! A record as one row of columns, for SQL, CSV, Parquet, and the page of one run. Each column is a
//! field of the record, found by its path in the JSON.

use serde_json::Value;

use super::sample::Record;

/// A value with its type, also where the value is missing.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Integer(Option<i64>),
    Real(Option<f64>),
    Text(Option<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Integer,
    Real,
    Text,
    /// A list, or counts by name, as JSON text.
    Json,
}

/// A field that every record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Names of fields from the root of the record, separated by dots.
    pub path: &'static str,
    pub kind: Kind,
}

impl Column {
    /// The path with `_` between its names. The names of groups that exist once are left out:
    /// `streams` is `options.streams`. Others stay: `source_cpu_user_s` is `source.cpu_user_s`.
    pub fn name(&self) -> String {
        let rest = GROUPS.iter().find_map(|group| self.path.strip_prefix(group));
        let name = rest.unwrap_or(self.path).replace('.', "_");
        if self.kind == Kind::Json { format!("{name}_json") } else { name }
    }

    /// The cell of a record that is already JSON.
    pub fn cell(&self, record: &Value) -> Cell {
        let found = self.path.split('.').try_fold(record, |value, name| value.get(name));
        let value = found.filter(|value| !value.is_null());
        match self.kind {
            Kind::Integer => Cell::Integer(value.and_then(integer)),
            Kind::Real => Cell::Real(value.and_then(Value::as_f64)),
            Kind::Text => Cell::Text(value.map(text)),
            Kind::Json => Cell::Text(value.map(|value| sql_sized(value.clone()).to_string())),
        }
    }
}

/// The JSON of a record, from which the cells of a row are taken. Strings and numbers can always be
/// serialized.
pub fn value(record: &Record) -> Value {
    serde_json::to_value(record).unwrap_or_default()
}

/// The same where each number in it is one that SQL has.
fn sql_sized(value: Value) -> Value {
    match value {
        Value::Number(number) if number.as_u64().is_some_and(|it| it > i64::MAX as u64) => {
            i64::MAX.into()
        }
        Value::Array(list) => list.into_iter().map(sql_sized).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, sql_sized(value))).collect()
        }
        value => value,
    }
}

/// A number too large for SQL becomes the largest that SQL has.
fn integer(value: &Value) -> Option<i64> {
    let whole = value.as_u64().map(|number| i64::try_from(number).unwrap_or(i64::MAX));
    value.as_i64().or(whole).or(value.as_bool().map(i64::from))
}

/// Numbers that may be larger than the integers of SQL also become text.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), String::from)
}

const GROUPS: [&str; 4] = ["place.", "options.", "conditions.", "moved."];

const fn integer_at(path: &'static str) -> Column {
    Column { path, kind: Kind::Integer }
}

const fn real_at(path: &'static str) -> Column {
    Column { path, kind: Kind::Real }
}

const fn text_at(path: &'static str) -> Column {
    Column { path, kind: Kind::Text }
}

const fn json_at(path: &'static str) -> Column {
    Column { path, kind: Kind::Json }
}

/// Every field of a record, except its number and what the store keeps separately. A test below
/// fails if one is missing.
pub const COLUMNS: &[Column] = &[
    integer_at("schema"),
    text_at("command"),
    text_at("version"),
    real_at("started_unix_s"),
    json_at("sources"),
    text_at("target"),
    json_at("given"),
    text_at("place.experiment"),
    text_at("place.scenario"),
    text_at("place.seed"),
    integer_at("place.order_index"),
    integer_at("place.repeat"),
    integer_at("place.block"),
    integer_at("options.streams"),
    integer_at("options.streams_auto"),
    integer_at("options.request_bytes"),
    integer_at("options.depth_source"),
    integer_at("options.depth_sink"),
    integer_at("options.window_bytes"),
    text_at("options.congestion"),
    real_at("options.rate_bytes_per_s"),
    text_at("options.pace"),
    integer_at("options.dscp"),
    text_at("options.lockstep"),
    text_at("options.engine"),
    text_at("options.direct"),
    text_at("options.receive"),
    text_at("options.seal"),
    text_at("options.digest"),
    text_at("options.verify"),
    text_at("options.digest_also"),
    text_at("options.fsync"),
    text_at("options.overwrite"),
    integer_at("options.memory_bytes"),
    text_at("options.preallocate"),
    integer_at("options.preserve"),
    integer_at("options.archive"),
    integer_at("options.numeric_ids"),
    text_at("options.usermap"),
    text_at("options.groupmap"),
    integer_at("options.recursive"),
    text_at("options.links"),
    json_at("options.filters"),
    integer_at("options.min_size_bytes"),
    integer_at("options.max_size_bytes"),
    real_at("options.newer_s"),
    text_at("options.skip_unchanged"),
    text_at("options.deletes"),
    integer_at("options.max_delete"),
    text_at("options.backup_dir"),
    integer_at("options.dry_run"),
    integer_at("options.max_errors"),
    integer_at("options.fresh"),
    integer_at("options.mkpath"),
    real_at("options.stall_s"),
    text_at("options.path_samples"),
    text_at("options.compress"),
    integer_at("options.null_cycle_bytes"),
    text_at("conditions.cache"),
    real_at("conditions.resident_before"),
    text_at("conditions.carrier"),
    text_at("conditions.source_file_system"),
    text_at("conditions.sink_file_system"),
    json_at("conditions.soaked_cpus"),
    integer_at("conditions.device_interrupts"),
    integer_at("conditions.is_one_machine"),
    integer_at("conditions.has_two_devices"),
    integer_at("conditions.free_bytes"),
    integer_at("moved.bytes"),
    integer_at("moved.hole_bytes"),
    integer_at("moved.files"),
    integer_at("moved.directories"),
    integer_at("moved.failed"),
    integer_at("moved.kept"),
    integer_at("moved.deleted"),
    integer_at("moved.excluded"),
    integer_at("moved.resumed_bytes"),
    integer_at("moved.held_files"),
    integer_at("moved.wire_bytes"),
    real_at("moved.elapsed_s"),
    real_at("moved.goodput_bytes_per_s"),
    real_at("moved.steady_bytes_per_s"),
    real_at("moved.steady_from_s"),
    integer_at("moved.retries"),
    real_at("moved.segments_sent"),
    integer_at("moved.exit_code"),
    text_at("remote.host"),
    integer_at("remote.is_push"),
    real_at("remote.login_s"),
    real_at("remote.rtt_min_s"),
    json_at("stream_steps"),
    integer_at("source.environment"),
    json_at("source.cpus"),
    real_at("source.cpu_user_s"),
    real_at("source.cpu_system_s"),
    json_at("source.kernel_threads_s"),
    integer_at("source.bytes"),
    integer_at("source.wire_bytes"),
    integer_at("source.requests"),
    integer_at("source.calls"),
    integer_at("source.partial_returns"),
    integer_at("source.partial_bytes"),
    integer_at("source.starts"),
    real_at("source.fill_s"),
    real_at("source.pass_s"),
    real_at("source.gate_s"),
    real_at("source.drain_s"),
    json_at("source.stages_s"),
    integer_at("source.peak_memory_bytes"),
    integer_at("source.planned_memory_bytes"),
    text_at("source.engine"),
    integer_at("source.depth"),
    text_at("source.congestion"),
    integer_at("source.window_seen_bytes"),
    integer_at("source.window_scale"),
    integer_at("source.pace_chosen_bytes_per_s"),
    integer_at("sink.environment"),
    json_at("sink.cpus"),
    real_at("sink.cpu_user_s"),
    real_at("sink.cpu_system_s"),
    json_at("sink.kernel_threads_s"),
    integer_at("sink.bytes"),
    integer_at("sink.wire_bytes"),
    integer_at("sink.requests"),
    integer_at("sink.calls"),
    integer_at("sink.partial_returns"),
    integer_at("sink.partial_bytes"),
    integer_at("sink.starts"),
    real_at("sink.fill_s"),
    real_at("sink.pass_s"),
    real_at("sink.gate_s"),
    real_at("sink.drain_s"),
    json_at("sink.stages_s"),
    integer_at("sink.peak_memory_bytes"),
    integer_at("sink.planned_memory_bytes"),
    text_at("sink.engine"),
    integer_at("sink.depth"),
    text_at("sink.congestion"),
    integer_at("sink.window_seen_bytes"),
    integer_at("sink.window_scale"),
    integer_at("sink.pace_chosen_bytes_per_s"),
    json_at("machines"),
    json_at("gates"),
    text_at("void_reason"),
    text_at("round_trips.method"),
    integer_at("round_trips.unloaded.sent"),
    integer_at("round_trips.unloaded.lost"),
    real_at("round_trips.unloaded.min_s"),
    real_at("round_trips.unloaded.median_s"),
    real_at("round_trips.unloaded.p95_s"),
    integer_at("round_trips.loaded.sent"),
    integer_at("round_trips.loaded.lost"),
    real_at("round_trips.loaded.min_s"),
    real_at("round_trips.loaded.median_s"),
    real_at("round_trips.loaded.p95_s"),
    real_at("round_trips.late_max_s"),
    real_at("predicted.elapsed_low_s"),
    real_at("predicted.elapsed_s"),
    real_at("predicted.elapsed_high_s"),
    real_at("predicted.cpu_source_low_s"),
    real_at("predicted.cpu_source_s"),
    real_at("predicted.cpu_source_high_s"),
    real_at("predicted.cpu_sink_low_s"),
    real_at("predicted.cpu_sink_s"),
    real_at("predicted.cpu_sink_high_s"),
    text_at("predicted.binding"),
    real_at("predicted.rate_low_bytes_per_s"),
    real_at("predicted.rate_bytes_per_s"),
    real_at("predicted.rate_high_bytes_per_s"),
    json_at("predicted.notes"),
    integer_at("compression.raw_bytes"),
    integer_at("compression.compressed_bytes"),
    json_at("compression.bytes_by_coding"),
    real_at("compression.compress_over_decompress"),
    real_at("compression.without.bytes_per_s"),
    text_at("compression.without.held_by"),
    text_at("cell.choice"),
    integer_at("cell.extent_bytes"),
    real_at("cell.extent_s"),
    real_at("cell.moving_s"),
    real_at("cell.pause_s"),
    real_at("cell.loaded_s"),
    real_at("cell.compression_ratio"),
    real_at("cell.cycles_per_byte_source"),
    integer_at("tcp.segments_sent"),
    integer_at("tcp.segments_retransmitted"),
    real_at("tcp.busy_s"),
    real_at("tcp.window_limited_s"),
    real_at("tcp.buffer_limited_s"),
    real_at("tcp.rtt_min_s"),
    integer_at("tcp.mss_bytes"),
    real_at("tcp.peer_window_p50_bytes"),
    real_at("tcp.peer_window_p90_bytes"),
    integer_at("tcp.receive_threshold_bytes"),
    integer_at("tcp.send_buffer_bytes"),
    integer_at("tcp.receive_buffer_bytes"),
    json_at("more"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::record::compression::{Compression, Without};
    use crate::record::sample::{
        Cell as CampaignCell, PlaceInExperiment, Predicted, Remote, RoundTrips, Scenario, Side, Tcp,
    };

    /// A record in which every optional field has a value.
    fn full() -> Record {
        Record {
            place: Some(PlaceInExperiment {
                experiment: "e".into(),
                scenario: Scenario::Cpu,
                seed: u64::MAX,
                order_index: 0,
                repeat: 0,
                block: 0,
            }),
            remote: Some(Remote::default()),
            sink: Some(Side::default()),
            round_trips: Some(RoundTrips::default()),
            predicted: Some(Predicted::default()),
            compression: Some(Compression {
                without: Some(Without::default()),
                ..Compression::default()
            }),
            cell: Some(CampaignCell::default()),
            tcp: Some(Tcp::default()),
            more: [("a".to_string(), Value::Null)].into(),
            ..Record::default()
        }
    }

    /// The paths of all values that are not objects, and of objects that have one column.
    fn paths(value: &Value, at: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) if !COLUMNS.iter().any(|column| column.path == at) => {
                for (name, value) in fields {
                    let dot = if at.is_empty() { "" } else { "." };
                    paths(value, &format!("{at}{dot}{name}"), found);
                }
            }
            _ => drop(found.insert(at.to_string())),
        }
    }

    #[test]
    fn every_field_has_a_column_and_every_column_a_field() {
        let mut found = BTreeSet::new();
        paths(&value(&full()), "", &mut found);
        let columns: BTreeSet<String> = COLUMNS.iter().map(|c| c.path.to_string()).collect();
        let forgotten: Vec<&String> = found.difference(&columns).collect();
        let nowhere: Vec<&String> = columns.difference(&found).collect();
        assert!(forgotten.is_empty() && nowhere.is_empty(), "{forgotten:?} {nowhere:?}");
        let names: BTreeSet<String> = COLUMNS.iter().map(Column::name).collect();
        assert_eq!(names.len(), COLUMNS.len());
        let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(names.iter().all(|name| name.chars().all(lower)), "{names:?}");
    }

    #[test]
    fn cells() {
        let mut record = Record { started_unix_s: f64::NAN, sources: vec!["a".into()], ..full() };
        record.moved.bytes = u64::MAX;
        let value = value(&record);
        let cell = |path, kind| Column { path, kind }.cell(&value);
        let cases = [
            (cell("place.seed", Kind::Text), Cell::Text(Some(u64::MAX.to_string()))),
            (cell("moved.bytes", Kind::Integer), Cell::Integer(Some(i64::MAX))),
            (cell("place.scenario", Kind::Text), Cell::Text(Some("cpu".into()))),
            (cell("started_unix_s", Kind::Real), Cell::Real(None)),
            (cell("options.preserve", Kind::Integer), Cell::Integer(Some(0))),
            (cell("sources", Kind::Json), Cell::Text(Some("[\"a\"]".into()))),
            (cell("nowhere.at", Kind::Text), Cell::Text(None)),
        ];
        for (found, expect) in cases {
            assert_eq!(found, expect);
        }
    }
}
