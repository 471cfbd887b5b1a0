//! A run of each version before records were JSON, as SQL and as the record that it becomes.

use super::*;
use crate::results::{Filter, Store, schema};
use analysis::record::sample::{SeriesPoint, Tcp};

/// A store of every version that had rows is migrated to today's: the run is still there, with a
/// field for each fact that was untyped.
#[test]
fn older_stores_become_todays() {
    for version in 1..=5 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.db");
        let mut connection = Connection::open(&path).unwrap();
        schema::migrate(&mut connection, &schema::MIGRATIONS[..version]).unwrap();
        connection.execute_batch(RUN_OF_VERSION_1).unwrap();
        for (since, text) in
            [(3, PATH_OF_VERSION_3), (4, PACKED_OF_VERSION_4), (5, PROBES_OF_VERSION_5)]
        {
            if version >= since {
                connection.execute_batch(text).unwrap();
            }
        }
        drop(connection);
        let mut store = Store::open(&path).unwrap();
        let runs = store.records(&Filter::default()).unwrap();
        let mut expect = run_of_version_1();
        expect.compression = (version >= 4).then(compression_of_version_4);
        expect.round_trips = (version >= 5).then(round_trips_of_version_5);
        assert_eq!(runs, [expect], "version {version}");
        assert_eq!(store.paths(3).unwrap().len(), usize::from(version >= 3), "version {version}");
        let tables = "SELECT count(*) FROM sqlite_schema WHERE name LIKE '%_of_5'";
        let left: i64 = store.connection.query_row(tables, [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0, "version {version}");
        let next = store.insert(&Record::default()).unwrap();
        assert_eq!(next, 10, "a number that was given once is not given again");
    }
}

/// A run of schema 2, in a store of version 6.
#[test]
fn a_run_of_schema_2_becomes_todays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.db");
    let mut connection = Connection::open(&path).unwrap();
    schema::migrate(&mut connection, &schema::MIGRATIONS[..6]).unwrap();
    let compression = Some(compression_of_version_4());
    let expect = Record { id: 1, command: "copy".into(), compression, ..Record::default() };
    let names = [
        ("\"schema\":3", "\"schema\":2"),
        ("\"held_by\":\"compression\"", "\"held_by\":\"packing\""),
        ("\"compression\":{", "\"packed\":{"),
        ("compressed_bytes", "packed_bytes"),
        ("bytes_by_coding", "bytes_by_way"),
        ("compress_over_decompress", "pack_over_unpack"),
    ];
    let mut json = serde_json::to_string(&expect).unwrap();
    for (today, then) in names {
        assert_eq!(json.matches(today).count(), 1, "{today} in {json}");
        json = json.replace(today, then);
    }
    let column = "ALTER TABLE runs ADD COLUMN packed_raw_bytes INTEGER GENERATED ALWAYS AS \
                  (json_extract(record_json, '$.packed.raw_bytes')) VIRTUAL";
    connection.execute(column, []).unwrap();
    connection.execute("INSERT INTO runs (record_json) VALUES (?)", [json]).unwrap();
    drop(connection);
    let store = Store::open(&path).unwrap();
    assert_eq!(store.records(&Filter::default()).unwrap(), [expect]);
    let columns = "SELECT count(*) FROM pragma_table_xinfo('runs') WHERE name = ?";
    for (name, count) in [("packed_raw_bytes", 0), ("compression_raw_bytes", 1)] {
        let found: i64 = store.connection.query_row(columns, [name], |row| row.get(0)).unwrap();
        assert_eq!(found, count, "{name}");
    }
}

const RUN_OF_VERSION_1: &str = "
INSERT INTO runs (id, command, version, started_unix_s, sources_json, target, request_bytes,
    streams, engine, direct, seal, digest, fsync, receive, cache, carrier, soaked_cpus_json,
    bytes, files, wire_bytes, elapsed_s, goodput_bytes_per_s, retries, more_json)
VALUES (3, 'copy', '0.1.0', 1.5, '[\"a\"]', 'b', 1048576, 8, 'auto', 'auto', 'tls', 'blake3',
    'file', 'any', '', 'memory', '[]', 1073741824, 1, 0, 2.0, 536870912.0, 0,
    '{\"directories\": 4, \"exit_code\": 3, \"pace\": \"auto\", \"far_host\": \"h\",
      \"is_push\": true,
      \"login_s\": 0.5, \"path_rtt_s\": 0.01, \"choice\": \"grid\", \"extent\": {\"seconds\": 1.5},
      \"level\": \"zlib:1\", \"tcp\": {\"segments_sent\": 7}, \"verdict\": {\"class\": \"cpu\"},
      \"two_devices\": \"odd\"}');
UPDATE sqlite_sequence SET seq = 9 WHERE name = 'runs';
INSERT INTO sides (run, role, cpus_json, cpu_user_s, cpu_system_s, requests, calls,
    partial_returns, partial_bytes, fill_s, pass_s, gate_s, drain_s, peak_memory_bytes,
    planned_memory_bytes, engine, depth, congestion, window_seen_bytes)
VALUES (3, 'source', '[]', 0.5, 0.25, 1024, 1024, 0, 0, 0.1, 0.1, 0.1, 0.1, 0, 0, 'uring', 4,
    '', 0);
INSERT INTO sides (run, role, cpus_json, cpu_user_s, cpu_system_s, requests, calls,
    partial_returns, partial_bytes, fill_s, pass_s, gate_s, drain_s, peak_memory_bytes,
    planned_memory_bytes, engine, depth, congestion, window_seen_bytes)
VALUES (3, 'sink', '[1]', 1.5, 0.0, 7, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0, 0, 'threads', 2, 'bbr', 9);
UPDATE runs SET predicted_elapsed_low_s = 1.0, predicted_elapsed_s = 2.0,
    predicted_elapsed_high_s = 3.0, predicted_cpu_source_low_s = 4.0, predicted_cpu_source_s = 5.0,
    predicted_cpu_source_high_s = 6.0, predicted_cpu_sink_low_s = 7.0, predicted_cpu_sink_s = 8.0,
    predicted_cpu_sink_high_s = 9.0, predicted_binding = 'cpu';
INSERT INTO side_kernel_threads VALUES (3, 'source', 'ksoftirqd/0', 0.125);
INSERT INTO side_stages VALUES (3, 'source', 'seal', 0.0625);
INSERT INTO machines VALUES (3, 0, 2, 2.0, 1.0, NULL, NULL, NULL, 0.0, '[0]');
INSERT INTO machine_kernel_threads VALUES (3, 0, 0, 'kswapd0', NULL, 0.5);
INSERT INTO gates VALUES (3, 0, 'drift', 0.05, 0.03, 0);
INSERT INTO series VALUES (3, 0, 0.1, 5), (3, 1, 0.2, 9);
";

const PATH_OF_VERSION_3: &str = "INSERT INTO paths VALUES (3, 0, 'near', 'source', 0, x'');";

const PACKED_OF_VERSION_4: &str = "
UPDATE runs SET packed_from_bytes = 10, packed_to_bytes = 5, packed_ways_json = '{\"lz4:1\": 10}',
    pack_over_unpack = 2.0, off_bytes_per_s = 7.0, off_held_by = 'packing';
";

const PROBES_OF_VERSION_5: &str = "
UPDATE runs SET probe_method = 'icmp', probe_late_max_s = 0.25, unloaded_probes_sent = 9,
    unloaded_probes_lost = 1, unloaded_rtt_min_s = 0.5, loaded_probes_sent = 8,
    loaded_probes_lost = 2, loaded_rtt_p95_s = 0.75;
";

fn compression_of_version_4() -> Compression {
    Compression {
        raw_bytes: 10,
        compressed_bytes: 5,
        bytes_by_coding: BTreeMap::from([("lz4:1".to_string(), 10)]),
        compress_over_decompress: Some(2.0),
        without: Some(Without { bytes_per_s: 7.0, held_by: HeldBy::Compression }),
    }
}

fn round_trips_of_version_5() -> RoundTrips {
    RoundTrips {
        method: "icmp".into(),
        unloaded: Probes { sent: 9, lost: 1, min_s: Some(0.5), ..Probes::default() },
        loaded: Probes { sent: 8, lost: 2, p95_s: Some(0.75), ..Probes::default() },
        late_max_s: 0.25,
    }
}

fn source_of_version_1() -> Side {
    let named = |name: &str, spent| BTreeMap::from([(name.to_string(), spent)]);
    Side {
        cpu_user_s: 0.5,
        cpu_system_s: 0.25,
        kernel_threads_s: named("ksoftirqd/0", 0.125),
        requests: 1024,
        calls: 1024,
        fill_s: 0.1,
        pass_s: 0.1,
        gate_s: 0.1,
        drain_s: 0.1,
        stages_s: named("seal", 0.0625),
        engine: "uring".into(),
        depth: 4,
        ..Side::default()
    }
}

fn sink_of_version_1() -> Side {
    Side {
        cpus: vec![1],
        cpu_user_s: 1.5,
        requests: 7,
        engine: "threads".into(),
        depth: 2,
        congestion: "bbr".into(),
        window_seen_bytes: 9,
        ..Side::default()
    }
}

fn predicted_of_version_1() -> Predicted {
    Predicted {
        elapsed_low_s: 1.0,
        elapsed_s: 2.0,
        elapsed_high_s: 3.0,
        cpu_source_low_s: 4.0,
        cpu_source_s: 5.0,
        cpu_source_high_s: 6.0,
        cpu_sink_low_s: 7.0,
        cpu_sink_s: 8.0,
        cpu_sink_high_s: 9.0,
        binding: "cpu".into(),
        ..Predicted::default()
    }
}

fn run_of_version_1() -> Record {
    Record {
        id: 3,
        command: "copy".into(),
        version: "0.1.0".into(),
        started_unix_s: 1.5,
        sources: vec!["a".into()],
        target: "b".into(),
        options: Options {
            request_bytes: 1 << 20,
            streams: 8,
            engine: "auto".into(),
            direct: "auto".into(),
            seal: "tls".into(),
            digest: "blake3".into(),
            fsync: "file".into(),
            receive: "any".into(),
            pace: "auto".into(),
            compress: "zlib:1".into(),
            ..Options::default()
        },
        conditions: Conditions { carrier: "memory".into(), ..Conditions::default() },
        moved: Moved {
            bytes: 1 << 30,
            files: 1,
            directories: 4,
            elapsed_s: 2.0,
            goodput_bytes_per_s: 536_870_912.0,
            exit_code: 3,
            ..Moved::default()
        },
        remote: Some(Remote {
            host: "h".into(),
            is_push: true,
            login_s: 0.5,
            rtt_min_s: Some(0.01),
        }),
        source: source_of_version_1(),
        sink: Some(sink_of_version_1()),
        predicted: Some(predicted_of_version_1()),
        machines: vec![Machine {
            cpus: 2,
            span_s: 2.0,
            busy_idle_s: 1.0,
            soaked_cpus: vec![0],
            kernel_threads: vec![KernelThread { name: "kswapd0".into(), cpu: None, cpu_s: 0.5 }],
            ..Machine::default()
        }],
        gates: vec![Gate { name: "drift".into(), value: 0.05, limit: 0.03, passed: false }],
        cell: Some(Cell { choice: "grid".into(), extent_s: Some(1.5), ..Cell::default() }),
        tcp: Some(Tcp { segments_sent: 7, ..Tcp::default() }),
        series: vec![SeriesPoint { at_s: 0.1, bytes: 5 }, SeriesPoint { at_s: 0.2, bytes: 9 }],
        more: BTreeMap::from([
            ("verdict".to_string(), serde_json::json!({ "class": "cpu" })),
            // Of another type, so it is kept as it is.
            ("two_devices".to_string(), serde_json::json!("odd")),
        ]),
        ..Record::default()
    }
}
