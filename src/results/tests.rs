use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use super::schema::Migration;
use super::*;
use analysis::record::compression::{Compression, HeldBy, Without};
use analysis::record::options::Options;
use analysis::record::sample::{
    Cell, Conditions, Gate, KernelThread, Machine, Moved, PlaceInExperiment, Predicted, Probes,
    Remote, RoundTrips, Schema, SeriesPoint, Side, StreamStep, Tcp,
};
use base::job::{PathRole, PathSide};
use base::path::PathSample;
use base::units::Tick;

/// A store in a folder of its own.
fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("deep/er/results.db")).unwrap();
    (folder, store)
}

fn maybe<T: std::fmt::Debug + Clone>(
    some: impl Strategy<Value = T>,
) -> impl Strategy<Value = Option<T>> {
    prop::option::of(some)
}

fn names() -> impl Strategy<Value = BTreeMap<String, f64>> {
    prop::collection::btree_map("[ -~\u{e4}\u{1f600}]{0,8}", real(), 0..4)
}

fn real() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), prop::num::f64::NORMAL, Just(f64::MAX), Just(f64::MIN_POSITIVE)]
}

fn count() -> impl Strategy<Value = u64> {
    0..=i64::MAX as u64
}

prop_compose! {
    fn place()(
        experiment in "[a-c]{1,2}",
        scenario in prop::sample::select(Scenario::ALL.to_vec()),
        seed: u64, order_index: u32, repeat: u32, block: u32,
    ) -> PlaceInExperiment {
        PlaceInExperiment { experiment, scenario, seed, order_index, repeat, block }
    }
}

prop_compose! {
    fn options()(
        (request_bytes, depth_source, depth_sink, streams) in
            any::<(u32, Option<u16>, Option<u16>, u16)>(),
        window_bytes: Option<u32>,
        congestion in maybe(".{0,5}"),
        rate_bytes_per_s in maybe(real()),
        words in prop::array::uniform6(".{0,5}"),
        (pace, compress, filters) in (".{0,5}", ".{0,5}", any::<Vec<String>>()),
        (stall_s, dry_run) in (real(), any::<bool>()),
    ) -> Options {
        let [engine, direct, seal, digest, fsync, receive] = words;
        Options {
            request_bytes, depth_source, depth_sink, streams, window_bytes, congestion,
            rate_bytes_per_s, engine, direct, seal, digest, fsync, receive, pace, compress, filters,
            stall_s, dry_run, ..Options::default()
        }
    }
}

prop_compose! {
    fn side()(
        environment in Just(0),
        cpus: Vec<u32>,
        times in prop::array::uniform6(real()),
        counts in prop::array::uniform8(count()),
        (kernel_threads_s, stages_s) in (names(), names()),
        (engine, congestion) in (".{0,5}", ".{0,5}"),
        depth: u16,
        (window_scale, pace_chosen_bytes_per_s) in any::<(Option<u8>, Option<u64>)>(),
    ) -> Side {
        let [cpu_user_s, cpu_system_s, fill_s, pass_s, gate_s, drain_s] = times;
        let [requests, calls, partial_returns, partial_bytes, starts, peak, planned, window] =
            counts;
        Side {
            bytes: requests, wire_bytes: calls,
            environment, cpus, cpu_user_s, cpu_system_s, kernel_threads_s, requests, calls,
            partial_returns, partial_bytes, starts, fill_s, pass_s, gate_s, drain_s, stages_s,
            peak_memory_bytes: peak, planned_memory_bytes: planned, engine, depth, congestion,
            window_seen_bytes: window, window_scale, pace_chosen_bytes_per_s,
        }
    }
}

prop_compose! {
    fn machine()(
        cpus: u32,
        (span_s, busy_idle_s, steal_s) in (real(), real(), real()),
        (busy_iter_s, busy_clock_s, background_s) in
            (maybe(real()), maybe(real()), maybe(real())),
        threads in prop::collection::vec((".{0,5}", any::<Option<u32>>(), real()), 0..4),
        soaked_cpus: Vec<u32>,
    ) -> Machine {
        let thread = |(name, cpu, cpu_s)| KernelThread { name, cpu, cpu_s };
        Machine {
            cpus, span_s, busy_idle_s, busy_iter_s, busy_clock_s, background_s, steal_s,
            soaked_cpus,
            kernel_threads: threads.into_iter().map(thread).collect(),
        }
    }
}

prop_compose! {
    fn moved()(
        (bytes, files, wire_bytes, retries) in (count(), count(), count(), any::<u32>()),
        (elapsed_s, goodput_bytes_per_s) in (real(), real()),
        (steady_bytes_per_s, steady_from_s) in (maybe(real()), maybe(real())),
        (exit_code, segments_sent) in (any::<u8>(), maybe(real())),
        (failed, hole_bytes) in (count(), count()),
    ) -> Moved {
        Moved {
            bytes, files, wire_bytes, elapsed_s, goodput_bytes_per_s, steady_bytes_per_s,
            steady_from_s, retries, exit_code, segments_sent, failed, hole_bytes, ..Moved::default()
        }
    }
}

prop_compose! {
    fn conditions()(
        (cache, carrier) in (".{0,5}", ".{0,5}"),
        resident_before in maybe(real()),
        (source_file_system, sink_file_system) in (maybe(".{0,5}"), maybe(".{0,5}")),
        soaked_cpus: Vec<u32>,
        (device_interrupts, is_one_machine, has_two_devices, free_bytes) in
            any::<(Option<u64>, bool, bool, Option<u64>)>(),
    ) -> Conditions {
        Conditions {
            cache, resident_before, carrier, source_file_system, sink_file_system, soaked_cpus,
            device_interrupts, is_one_machine, has_two_devices, free_bytes,
        }
    }
}

prop_compose! {
    fn compression()(
        (raw_bytes, compressed_bytes) in (count(), count()),
        bytes_by_coding in prop::collection::btree_map("[a-z]{1,4}:[0-9]", count(), 0..4),
        compress_over_decompress in maybe(real()),
        without in maybe((real(), prop::sample::select(HeldBy::ALL.to_vec()))),
    ) -> Compression {
        let without = without.map(|(bytes_per_s, held_by)| Without { bytes_per_s, held_by });
        let sizes = Compression { raw_bytes, compressed_bytes, ..Compression::default() };
        Compression { bytes_by_coding, compress_over_decompress, without, ..sizes }
    }
}

prop_compose! {
    fn probes()(
        (sent, lost) in (any::<u32>(), any::<u32>()),
        (min_s, median_s, p95_s) in (maybe(real()), maybe(real()), maybe(real())),
    ) -> Probes {
        Probes { sent, lost, min_s, median_s, p95_s }
    }
}

prop_compose! {
    fn round_trips()(
        method in ".{0,5}",
        (unloaded, loaded) in (probes(), probes()),
        late_max_s in real(),
    ) -> RoundTrips {
        RoundTrips { method, unloaded, loaded, late_max_s }
    }
}

prop_compose! {
    fn remote()(
        (host, is_push) in (".{0,5}", any::<bool>()),
        (login_s, rtt_min_s) in (real(), maybe(real())),
    ) -> Remote {
        Remote { host, is_push, login_s, rtt_min_s }
    }
}

prop_compose! {
    fn cell()(
        choice in ".{0,5}",
        extent_bytes: Option<u64>,
        (extent_s, moving_s, pause_s) in (maybe(real()), maybe(real()), maybe(real())),
    ) -> Cell {
        Cell { choice, extent_bytes, extent_s, moving_s, pause_s, ..Cell::default() }
    }
}

prop_compose! {
    fn tcp()(
        (segments_sent, mss_bytes) in any::<(u64, Option<u32>)>(),
        (busy_s, rtt_min_s) in (real(), maybe(real())),
    ) -> Tcp {
        Tcp { segments_sent, mss_bytes, busy_s, rtt_min_s, ..Tcp::default() }
    }
}

prop_compose! {
    fn record()(
        (command, version, target) in (".{0,5}", ".{0,5}", ".{0,5}"),
        started_unix_s in real(),
        sources: Vec<String>,
        (place, options, conditions, moved) in
            (maybe(place()), options(), conditions(), moved()),
        (source, sink) in (side(), maybe(side())),
        machines in prop::collection::vec(machine(), 0..3),
        gates in prop::collection::vec((".{0,5}", real(), real(), any::<bool>()), 0..4),
        void_reason in maybe(".{0,9}"),
        (round_trips, compression) in (maybe(round_trips()), maybe(compression())),
        (remote, cell, tcp) in (maybe(remote()), maybe(cell()), maybe(tcp())),
        series in prop::collection::vec((real(), count()), 0..5),
        predicted in maybe((prop::array::uniform9(real()), ".{0,5}")),
        more in prop::collection::btree_map(".{0,5}", any::<(i64, String)>(), 0..3),
    ) -> Record {
        let gate = |(name, value, limit, passed)| Gate { name, value, limit, passed };
        let predicted = predicted.map(|(n, binding)| Predicted {
            elapsed_low_s: n[0],
            elapsed_s: n[1],
            elapsed_high_s: n[2],
            cpu_source_low_s: n[3],
            cpu_source_s: n[4],
            cpu_source_high_s: n[5],
            cpu_sink_low_s: n[6],
            cpu_sink_s: n[7],
            cpu_sink_high_s: n[8],
            notes: vec![binding.clone()],
            rate_bytes_per_s: Some(n[0]),
            rate_low_bytes_per_s: Some(n[1]),
            rate_high_bytes_per_s: Some(n[2]),
            binding,
        });
        Record {
            schema: Schema::default(),
            id: 0, command, version, started_unix_s, sources, target, given: None, place, options,
            conditions,
            moved, source, sink, machines, predicted, void_reason, compression,
            round_trips, remote, cell, tcp,
            gates: gates.into_iter().map(gate).collect(),
            series: series.into_iter().map(|(at_s, bytes)| SeriesPoint { at_s, bytes }).collect(),
            paths: Vec::new(),
            stream_steps: vec![StreamStep { reason: "most".into(), ..StreamStep::default() }],
            more: more.into_iter().map(|(name, value)| (name, serde_json::json!(value))).collect(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_record_comes_back_as_it_was(records in prop::collection::vec(record(), 1..4)) {
        let (_folder, mut store) = store();
        let mut expect = Vec::new();
        for record in records {
            let id = store.insert(&record).unwrap();
            expect.push(Record { id, ..record });
        }
        prop_assert_eq!(store.records(&Filter::default()).unwrap(), expect);
    }
}

#[test]
fn what_is_no_number_is_kept_as_none() {
    let (_folder, mut store) = store();
    let moved = Moved { elapsed_s: f64::NAN, bytes: u64::MAX, ..Moved::default() };
    store.insert(&Record { moved, ..Record::default() }).unwrap();
    let back = store.records(&Filter::default()).unwrap().remove(0);
    assert!(back.moved.elapsed_s.is_nan());
    assert_eq!(back.moved.bytes, u64::MAX);
}

#[test]
fn filters() {
    let (_folder, mut store) = store();
    let place = |name: &str, scenario| PlaceInExperiment {
        experiment: name.into(),
        scenario,
        seed: u64::MAX,
        order_index: 0,
        repeat: 0,
        block: 0,
    };
    let rows = [
        ("copy", 10.0, None),
        ("measure", 20.0, Some(place("a", Scenario::Cpu))),
        ("measure", 30.0, Some(place("a", Scenario::Net))),
        ("measure", 40.0, Some(place("b", Scenario::Cpu))),
    ];
    for (command, started_unix_s, place) in rows {
        let record = Record { command: command.into(), started_unix_s, place, ..Record::default() };
        store.insert(&record).unwrap();
    }
    let none = Filter::default;
    let cases = [
        (none(), vec![1, 2, 3, 4]),
        (Filter { ids: vec![4, 2, 99], ..none() }, vec![2, 4]),
        (Filter { experiment: Some("a".into()), ..none() }, vec![2, 3]),
        (Filter { experiment: Some("'; DROP TABLE runs; --".into()), ..none() }, vec![]),
        (Filter { command: Some("copy".into()), ..none() }, vec![1]),
        (Filter { scenario: Some(Scenario::Cpu), ..none() }, vec![2, 4]),
        (Filter { since_unix_s: Some(30.0), ..none() }, vec![3, 4]),
        (Filter { since_unix_s: Some(f64::NAN), ..none() }, vec![]),
        (Filter { newest: Some(2), ..none() }, vec![3, 4]),
        (Filter { newest: Some(1), experiment: Some("a".into()), ..none() }, vec![3]),
    ];
    for (filter, expect) in cases {
        let ids: Vec<i64> = store.records(&filter).unwrap().iter().map(|run| run.id).collect();
        assert_eq!(ids, expect, "{filter:?}");
    }
    let names: Vec<String> = store.experiments().unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["a", "b"], "an experiment is there with its first run at the latest");
}

#[test]
fn runs_with_a_text() {
    let (_folder, mut store) = store();
    let environment = Environment { host: "Node1".into(), facts: BTreeMap::new() };
    let environment = store.environment(&environment).unwrap();
    let side = || Side { environment, ..Side::default() };
    let remote = || Some(Remote { host: "joe@dtn2".into(), ..Remote::default() });
    let texts = |sources: &[&str], target: &str| Record {
        sources: sources.iter().map(|source| source.to_string()).collect(),
        target: target.into(),
        ..Record::default()
    };
    let rows = [
        texts(&["/data/run \"7\"", "b"], "/store"),
        Record { remote: remote(), ..texts(&[], "") },
        Record { source: side(), ..texts(&["100%_\u{e9}"], "") },
        Record { sink: Some(side()), ..texts(&[], "") },
    ];
    for record in rows {
        store.insert(&record).unwrap();
    }
    let cases: [(&str, &[i64]); 9] = [
        ("run \"7\"", &[1]),
        ("STORE", &[1]),
        ("dtn2", &[2]),
        ("node1", &[3, 4]),
        ("%", &[3]),
        ("\u{e9}", &[3]),
        ("[", &[]),
        ("data/run \"7\"\",", &[]),
        ("'; DROP TABLE runs; --", &[]),
    ];
    for (text, expect) in cases {
        let filter = Filter { containing: Some(text.into()), ..Filter::default() };
        let ids: Vec<i64> = store.records(&filter).unwrap().iter().map(|run| run.id).collect();
        assert_eq!(ids, expect, "{text}");
    }
}

#[test]
fn experiments_environments_and_models() {
    let (_folder, mut store) = store();
    let experiment = Experiment {
        name: "e".into(),
        command: "datapump measure all".into(),
        started_unix_s: 5.5,
        seed: u64::MAX,
        more: BTreeMap::from([("typed".to_string(), serde_json::json!(["measure", "all"]))]),
    };
    let same_second = Experiment { started_unix_s: 6.5, ..experiment.clone() };
    let begun = [&experiment, &same_second, &same_second]
        .map(|experiment| store.begin_experiment(experiment).unwrap());
    assert_eq!(begun, ["e", "e-2", "e-3"]);
    let named = |name: &str| Experiment { name: name.into(), ..same_second.clone() };
    assert_eq!(store.experiments().unwrap(), [experiment, named("e-2"), named("e-3")]);

    let facts = |kernel: &str| BTreeMap::from([("kernel".to_string(), kernel.to_string())]);
    let one = Environment { host: "h".into(), facts: facts("6.1") };
    let other = Environment { host: "h".into(), facts: facts("6.2") };
    let ids = [&one, &other, &one].map(|environment| store.environment(environment).unwrap());
    assert_eq!(ids, [1, 2, 1]);
    assert_eq!(store.environment_of(2).unwrap(), Some(other));
    assert_eq!(store.environment_of(3).unwrap(), None);

    for fitted_unix_s in [2.0, 3.0, 1.0] {
        let model = HostModel { host: "h".into(), fitted_unix_s, ..HostModel::default() };
        store.put_model(&model).unwrap();
    }
    assert_eq!(store.model("h").unwrap().unwrap().fitted_unix_s, 3.0);
    assert_eq!(store.model("g").unwrap(), None);
}

#[test]
fn a_run_in_an_environment_that_is_not_there_is_refused_whole() {
    let (_folder, mut store) = store();
    let source = Side { environment: 7, ..Side::default() };
    let why = store.insert(&Record { source, ..Record::default() }).unwrap_err();
    assert!(why.text.starts_with("cannot write to the results store"), "{why}");
    assert_eq!(store.records(&Filter::default()).unwrap(), [], "nothing of it stays");
}

/// Paths are stored with their runs, deleted with them, and found in the order of streams.
#[test]
fn paths_come_back_as_they_were() {
    let sample = |at| PathSample { at: Tick(at), bytes_sent: 9 * at, ..PathSample::default() };
    let path = |stream, side, role, samples: &[u64]| StreamPath {
        stream,
        side,
        role,
        samples: samples.iter().map(|at| sample(*at)).collect(),
    };
    let paths = vec![
        path(0, PathSide::Near, PathRole::Sink, &[1, 2, 5]),
        path(0, PathSide::Far, PathRole::Source, &[1]),
        path(9, PathSide::Near, PathRole::Sink, &[]),
    ];
    let (_folder, mut store) = store();
    let mut shuffled = Record { paths: paths.clone(), ..Record::default() };
    shuffled.paths.reverse();
    let run = store.insert(&shuffled).unwrap();
    assert_eq!(store.paths(run).unwrap(), paths);
    assert_eq!(store.paths(run + 1).unwrap(), []);
    let listed = store.records(&Filter::default()).unwrap();
    assert_eq!(listed[0].paths, [], "a list has no use for them");
    let fewer = Record { id: run, paths: paths[..1].to_vec(), ..Record::default() };
    store.replace(&fewer).unwrap();
    assert_eq!(store.paths(run).unwrap(), paths[..1]);
    let damage = "UPDATE paths SET packed = x'ff'";
    store.connection.execute(damage, []).unwrap();
    let why = store.paths(run).unwrap_err();
    assert!(why.text.contains("a path: it ends too early"), "{why}");
}

/// Migration itself, shown with a migration that the program does not have.
#[test]
fn a_migration_is_done_wholly_or_not_at_all() {
    let (folder, mut store) = store();
    store.insert(&Record::default()).unwrap();
    let path = store.path().to_path_buf();
    drop(store);
    let mut connection = Connection::open(&path).unwrap();
    let good = "ALTER TABLE runs ADD COLUMN colour TEXT;";
    let bad = "ALTER TABLE runs ADD COLUMN taste TEXT; ALTER TABLE nowhere ADD COLUMN a TEXT;";
    let with = |more: &[&'static str]| {
        let more: Vec<Migration> = more.iter().map(|text| Migration::Sql(text)).collect();
        [schema::MIGRATIONS, &more].concat()
    };
    let columns = |connection: &Connection| -> i64 {
        let sql = "SELECT count(*) FROM pragma_table_info('runs') \
                   WHERE name IN ('colour', 'taste')";
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    assert!(schema::migrate(&mut connection, &with(&[good, bad])).is_err());
    assert_eq!(columns(&connection), 0, "not even the good one");
    schema::migrate(&mut connection, &with(&[good])).unwrap();
    schema::migrate(&mut connection, &with(&[good])).unwrap();
    assert_eq!(columns(&connection), 1);
    drop(connection);
    // For this program that is a version of the future.
    let why = Store::open(&path).unwrap_err();
    let versions = format!("has version {}", schema::MIGRATIONS.len() + 1);
    assert!(why.text.contains(&versions), "{why}");
    assert!(why.text.contains("use the newer datapump"), "{why}");
    drop(folder);
}

#[test]
fn what_is_no_store_is_refused_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("text"), "no database at all, but text that is longer than a header".repeat(9))
        .unwrap();
    fs::create_dir(path("folder")).unwrap();
    let foreign = Connection::open(path("foreign")).unwrap();
    foreign.execute_batch("CREATE TABLE t (a); PRAGMA user_version = 1;").unwrap();
    drop(foreign);
    let cases = [
        ("text", "it is not an SQLite database; name another with --results"),
        ("folder", "cannot open the results store"),
        ("foreign", "is a database of another program"),
        ("text/below", "cannot make the folder of the results store"),
    ];
    for (name, expect) in cases {
        let before = fs::read(path(name)).ok();
        let why = Store::open(&path(name)).unwrap_err();
        assert!(why.text.contains(expect), "{name}: {why}");
        assert!(why.text.contains("--results"), "{name}: {why}");
        assert!(fs::read(path(name)).ok() == before, "{name} has changed");
    }
    let why = Store::open_existing(&path("nothing")).unwrap_err();
    assert!(why.text.starts_with("nothing has been recorded yet"), "{why}");
    assert!(!path("nothing").exists());
}

#[test]
fn a_damaged_store_is_a_fault() {
    let (_folder, mut store) = store();
    for _ in 0..50 {
        store.insert(&Record::default()).unwrap();
    }
    let path = store.path().to_path_buf();
    drop(store);
    let mut bytes = fs::read(&path).unwrap();
    bytes[4096..].fill(0x5a);
    fs::write(&path, bytes).unwrap();
    let result = Store::open(&path).and_then(|store| store.records(&Filter::default()));
    let why = result.unwrap_err();
    assert!(why.text.contains("damaged") && why.text.contains("move it away"), "{why}");
}

#[test]
fn values_that_somebody_has_put_there_are_a_fault() {
    let (_folder, mut store) = store();
    for (path, value, is_fault) in [
        ("moved.bytes", "-1", true),
        ("sources", "'{'", true),
        ("options.request_bytes", "99999999999", true),
        ("schema", "4", true),
        ("place", "NULL", false),
        ("taste", "'salty'", false),
    ] {
        let id = store.insert(&Record::default()).unwrap();
        let sql = format!(
            "UPDATE runs SET record_json = json_set(record_json, '$.{path}', {value}) \
             WHERE id = {id}"
        );
        store.connection.execute_batch(&sql).unwrap();
        let result = store.records(&Filter { ids: vec![id], ..Filter::default() });
        assert_eq!(result.is_err(), is_fault, "{path}: {result:?}");
    }
    let id = store.insert(&Record::default()).unwrap();
    let no_json = format!("UPDATE runs SET record_json = '{{' WHERE id = {id}");
    let why = store.connection.execute_batch(&no_json).unwrap_err();
    assert!(why.to_string().contains("malformed JSON"), "{why}");
}

/// The error of a full disk, without a full disk.
#[test]
fn no_room_is_a_fault_of_its_class() {
    let (_folder, mut store) = store();
    store.connection.pragma_update(None, "max_page_count", 1).unwrap();
    let series = vec![SeriesPoint::default(); 10_000];
    let why = store.insert(&Record { series, ..Record::default() }).unwrap_err();
    assert_eq!(why.class, Class::NoSpace, "{why}");
    store.insert(&Record::default()).ok();
    assert!(store.records(&Filter::default()).unwrap().len() <= 1, "nothing half");
}

/// Programs that each record one run and do not wait for the disk: the log is still written back in
/// the end.
#[test]
fn a_log_does_not_grow_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.db");
    let mut longest = 0;
    for _ in 0..100 {
        let mut store = Store::open_lasting(&path, Durability::Program).unwrap();
        store.insert(&Record::default()).unwrap();
        drop(store);
        longest = longest.max(log_bytes(&path));
    }
    assert!(longest > 0, "most runs leave it to others");
    assert!(longest < 2 * LOG_BYTES_MAX, "{longest}");
    let store = Store::open_existing(&path).unwrap();
    assert_eq!(store.records(&Filter::default()).unwrap().len(), 100);
}

/// Root may write everywhere: only another user gets the fault.
#[test]
fn a_store_that_may_only_be_read_can_be_read() {
    let (folder, mut store) = store();
    store.insert(&Record::default()).unwrap();
    let path = store.path().to_path_buf();
    drop(store);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let mut store = Store::open_existing(&path).unwrap();
    assert_eq!(store.records(&Filter::default()).unwrap().len(), 1);
    if !rustix::process::geteuid().is_root() {
        let why = store.insert(&Record::default()).unwrap_err();
        assert!(why.text.contains("it is read-only"), "{why}");
    }
    drop(folder);
}

/// A column has the value of the record, and a field newer than the store has a column.
#[test]
fn columns_are_taken_from_the_json() {
    let (_folder, mut store) = store();
    let place = PlaceInExperiment {
        experiment: "e".into(),
        scenario: Scenario::Net,
        seed: u64::MAX,
        order_index: 7,
        repeat: 0,
        block: 0,
    };
    let moved = Moved { bytes: u64::MAX, elapsed_s: f64::NAN, ..Moved::default() };
    let source = Side { cpu_user_s: 2.0, ..Side::default() };
    store.insert(&Record { place: Some(place), moved, source, ..Record::default() }).unwrap();
    let drop = "ALTER TABLE runs DROP COLUMN streams; ALTER TABLE runs DROP COLUMN target";
    store.connection.execute_batch(drop).unwrap();
    let store = Store::open(store.path()).unwrap();
    let cases = [
        ("scenario", "'net'"),
        ("seed", "'18446744073709551615'"),
        ("order_index", "7"),
        ("bytes", "9223372036854775807"),
        ("elapsed_s", "NULL"),
        ("source_cpu_user_s", "2.0"),
        ("source_environment", "NULL"),
        ("preserve", "0"),
        ("sources_json", "'[]'"),
        ("streams", "0"),
        ("target", "''"),
        ("sink_engine", "NULL"),
    ];
    for (column, expect) in cases {
        let sql = format!("SELECT quote({column}) FROM runs");
        let found: String = store.connection.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert_eq!(found, expect, "{column}");
    }
}

#[test]
fn a_run_is_written_anew_under_its_number() {
    let (_folder, mut store) = store();
    let first = store.insert(&Record::default()).unwrap();
    let mut record = Record { id: first, void_reason: Some("drift".into()), ..Record::default() };
    record.series.push(SeriesPoint { at_s: 0.5, bytes: 7 });
    for _ in 0..2 {
        store.replace(&record).unwrap();
        assert_eq!(store.records(&Filter::default()).unwrap(), [record.clone()]);
    }
    assert_eq!(store.insert(&Record::default()).unwrap(), first + 1);
}
