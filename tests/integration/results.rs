//! Runs are recorded and shown: with the real program.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::gateway::tool;
use crate::support::{Scene, each, is_root, need, run};
use analysis::record::export::{Format, flat};
use analysis::record::sample::{Moved, Record, SeriesPoint, Side};
use datapump::results::{Filter, Store};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;

/// A scene whose runs are recorded in a store of its own.
struct Recorded {
    scene: Scene,
}

impl Recorded {
    fn new() -> Recorded {
        Recorded { scene: Scene::new() }
    }

    fn store(&self) -> PathBuf {
        self.scene.path("results.db")
    }

    fn command(&self, line: &str) -> Command {
        let mut command = self.scene.command(&self.scene.words(line));
        command.env("DATAPUMP_RESULTS", self.store()).env_remove("DATAPUMP_NO_RECORD");
        command
    }

    fn run(&self, line: &str) -> run::Ran {
        run::to_end(self.command(line), b"")
    }

    fn records(&self) -> Vec<Record> {
        match self.store().exists() {
            true => {
                Store::open_existing(&self.store()).unwrap().records(&Filter::default()).unwrap()
            }
            false => Vec::new(),
        }
    }
}

#[test]
fn a_copy_is_recorded() {
    let recorded = Recorded::new();
    let source = recorded.scene.path("a");
    fs::write(&source, vec![7; 3 << 20]).unwrap();
    let ran = recorded.run("copy -s 2 @/a @/b");
    assert_eq!((ran.code, ran.stderr.contains("warning")), (0, false), "{ran}");
    let record = recorded.records().remove(0);
    assert_eq!((record.id, record.command.as_str()), (1, "copy"));
    assert_eq!(record.sources, [source.to_str().unwrap()]);
    assert_eq!((record.moved.bytes, record.moved.files), (3 << 20, 1));
    assert_eq!(record.source.requests, 3);
    assert!(record.started_unix_s > 1.7e9 && record.moved.elapsed_s > 0.0, "{record:?}");
    assert!(record.conditions.source_file_system.is_some(), "{record:?}");
    let store = Store::open_existing(&recorded.store()).unwrap();
    let environment = store.environment_of(record.source.environment).unwrap().unwrap();
    assert!(environment.facts.contains_key("kernel"), "{environment:?}");
}

#[test]
fn what_is_recorded_and_what_is_not() {
    let cases = [
        ("copy null:8M null:", 1),
        ("copy far:null:8M null:", 1),
        ("copy -q null:8M null:", 1),
        ("copy --no-record null:8M null:", 0),
        ("copy -n @/a @/b", 0),
        ("copy @/missing @/b", 0),
        ("demo --bytes 1M --files 3", 1),
        // A folder without -r is refused, the file is copied.
        ("copy @/a @/some @/into/", 1),
        ("copy -r @/some @/b", 1),
    ];
    each(cases, |(line, expect)| {
        let recorded = Recorded::new();
        fs::write(recorded.scene.path("a"), b"a").unwrap();
        for folder in ["some", "into"] {
            fs::create_dir(recorded.scene.path(folder)).unwrap();
        }
        fs::write(recorded.scene.path("some/good"), b"good").unwrap();
        let ran = recorded.run(line);
        assert_eq!(recorded.records().len(), *expect, "{line}: {ran}");
        let mut refused = recorded.command(line);
        refused.env("DATAPUMP_NO_RECORD", "1");
        run::to_end(refused, b"");
        assert_eq!(recorded.records().len(), *expect, "{line}, refused by the variable");
    });
}

/// An error of the store is one warning; the copy is not affected.
#[test]
fn a_store_that_cannot_be_written_fails_no_copy() {
    let make_text = |path: &Path| fs::write(path, "no database, but text ".repeat(99)).unwrap();
    let make_folder = |path: &Path| fs::create_dir(path).unwrap();
    let make_newer = |path: &Path| {
        drop(Store::open(path).unwrap());
        let connection = rusqlite::Connection::open(path).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
    };
    type Make = fn(&Path);
    let cases: [(&str, Make, &str); 3] = [
        ("text", make_text, "it is not an SQLite database"),
        ("folder", make_folder, "cannot open the results store"),
        ("newer", make_newer, "has version 99"),
    ];
    each(cases, |(_, make, expect)| {
        let recorded = Recorded::new();
        make(&recorded.store());
        fs::write(recorded.scene.path("a"), b"a").unwrap();
        let ran = recorded.run("copy @/a @/b");
        assert_eq!(ran.code, 0, "{ran}");
        assert_eq!(ran.stderr.matches("this run is not recorded").count(), 1, "{ran}");
        assert!(ran.stderr.contains(expect), "{ran}");
        assert_eq!(fs::read(recorded.scene.path("b")).unwrap(), b"a");
        let ran = recorded.run("copy --json @/a @/c");
        let events = ran.events();
        let last = &events[events.len() - 1];
        assert_eq!((last["event"].as_str(), last["exit_code"].as_u64()), (Some("end"), Some(0)));
        let ran = recorded.run("results list");
        assert_eq!(ran.code, 1, "{ran}");
        assert!(ran.stderr.contains(expect), "{ran}");
    });
}

#[test]
fn a_folder_that_may_not_be_written_fails_no_copy() {
    if is_root() {
        let setpriv = need("setpriv", "util-linux");
        let recorded = Recorded::new();
        let program = recorded.scene.program_for_all();
        let mut command = Command::new(setpriv);
        command.args(["--reuid", "65534", "--clear-groups"]).arg(program);
        command.args(["copy", "null:1M", "null:"]).env("DATAPUMP_RESULTS", recorded.store());
        command.env_remove("DATAPUMP_NO_RECORD");
        let ran = run::to_end(command, b"");
        assert_eq!(ran.code, 0, "{ran}");
        assert!(ran.stderr.contains("this run is not recorded"), "{ran}");
    }
}

#[test]
fn lists_pages_and_exports() {
    let recorded = Recorded::new();
    let ran = recorded.run("results list");
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.stderr.contains("nothing has been recorded yet"), "{ran}");
    for _ in 0..3 {
        assert_eq!(recorded.run("copy null:8M null:").code, 0);
    }
    let cases = [
        ("results list", 0, "null:8M -> null:"),
        ("results list --limit 1", 0, "  3  "),
        ("results show 2", 0, "run 2, 20"),
        ("results export", 0, "\"command\":\"copy\""),
        ("results export --format csv 1 3", 0, "id,schema,command,version,started_unix_s"),
        ("results export --format parquet", 0, "PAR1"),
        ("results export --format parquet --output @/all.parquet", 0, ""),
        ("results export --output @/all.parquet", 1, "exists: remove it"),
        ("results export --output @/no/such/folder", 1, "cannot write"),
        ("results export --format text", 2, "write csv, json or parquet"),
        ("results export --format xml", 2, "--format 'xml'"),
        ("results show", 2, "show needs the number of a run"),
        ("results show 9", 1, "there is no run 9"),
        ("results show -- -1", 2, "run '-1': write its number"),
        ("results show 1x", 2, "run '1x': write its number"),
        ("results drop", 2, "results 'drop': write list, show or export"),
        ("results list --experiment none", 0, "no matching runs"),
        ("results list --results @/nowhere.db", 1, "nothing has been recorded yet"),
    ];
    each(cases, |(line, code, expect)| {
        let ran = recorded.run(line);
        assert_eq!(ran.code, *code, "{ran}");
        let said = format!("{}{}", ran.stdout_text(), ran.stderr);
        assert!(said.contains(expect), "{ran}");
    });
    let bytes = fs::read(recorded.scene.path("all.parquet")).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"), "as it was first written");
    let ran = recorded.run("results export --format csv 1 3");
    assert_eq!(ran.stdout_text().lines().count(), 3, "{ran}");
}

/// A reader that closes the pipe after the first line is no error.
#[test]
fn a_reader_may_go_early() {
    let recorded = Recorded::new();
    let mut store = Store::open(&recorded.store()).unwrap();
    let series = vec![SeriesPoint { at_s: 0.1, bytes: 1 }; 2000];
    for _ in 0..50 {
        store.insert(&Record { series: series.clone(), ..Record::default() }).unwrap();
    }
    drop(store);
    for format in ["csv", "json", "parquet"] {
        let mut command = recorded.command(&format!("results export --format {format}"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{format}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{format}");
    }
}

/// A writer that is killed loses at most the run in hand, and the store stays whole.
#[test]
fn a_writer_that_is_killed_loses_at_most_one_run() {
    let recorded = Recorded::new();
    for kills in 1..=3 {
        let mut writer = writer(&recorded.store(), u32::MAX, 1);
        let mut told = BufReader::new(writer.stdout.take().unwrap()).lines();
        let numbers = told.by_ref().map(Result::unwrap).filter_map(|line| line.parse::<i64>().ok());
        let last = numbers.take(20 * kills).last().unwrap();
        writer.kill().unwrap();
        writer.wait().unwrap();
        let after: Vec<i64> = told.map_while(Result::ok).filter_map(|l| l.parse().ok()).collect();
        let told = after.last().copied().unwrap_or(last);
        let records = recorded.records();
        let kept = records.iter().map(|record| record.id).max().unwrap();
        assert!(kept >= told, "{told} was told, {kept} is there");
        assert!(kept <= told + 1, "{kept} was never told");
        assert!(records.iter().all(|record| record.series.len() == 50), "all of them are whole");
    }
    let connection = rusqlite::Connection::open(recorded.store()).unwrap();
    let sound: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
}

#[test]
fn two_writers_at_once() {
    let recorded = Recorded::new();
    // From the first: they also make the store at once.
    let writers = [1, 2, 3].map(|mark| writer(&recorded.store(), 100, mark));
    for writer in writers {
        let output = writer.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let records = recorded.records();
    for mark in [1, 2, 3] {
        let own = records.iter().filter(|record| record.moved.files == mark).count();
        assert_eq!(own, 100, "writer {mark}");
    }
}

#[test]
fn an_export_to_parquet_is_read_back() {
    let moved = Moved { bytes: 1000, elapsed_s: 0.5, ..Moved::default() };
    let unknown = Moved { elapsed_s: f64::NAN, ..Moved::default() };
    let sink = Some(Side { cpu_user_s: 0.25, ..Side::default() });
    let large = Moved { bytes: u64::MAX, ..Moved::default() };
    let records = [
        Record { id: 1, target: "a,\"b\"\nc\u{e4}".into(), moved, ..Record::default() },
        Record { id: 2, sink, moved: unknown, ..Record::default() },
        Record { id: 3, moved: large, ..Record::default() },
    ];
    for count in [0, 3] {
        let mut file = tempfile::tempfile().unwrap();
        let no_paths = |_: &Record| Ok(Vec::new());
        Format::Parquet.write(&records[..count], &no_paths, &mut file).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let names = flat(&Record::default());
        let schema = reader.metadata().file_metadata().schema_descr_ptr();
        assert_eq!(schema.num_columns(), names.len());
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), count);
        let at = |name: &str| names.iter().position(|(other, _)| other == name).unwrap();
        let Some(row) = rows.first() else { continue };
        assert_eq!(row.get_long(at("id")).unwrap(), 1);
        assert_eq!(row.get_double(at("elapsed_s")).unwrap(), 0.5);
        assert_eq!(row.get_string(at("target")).unwrap(), "a,\"b\"\nc\u{e4}");
        assert!(row.get_double(at("sink_cpu_user_s")).is_err(), "it is not there");
        assert_eq!(rows[1].get_double(at("sink_cpu_user_s")).unwrap(), 0.25);
        assert!(rows[1].get_double(at("elapsed_s")).is_err());
        assert_eq!(rows[2].get_long(at("bytes")).unwrap(), i64::MAX, "the largest that SQL has");
    }
}

/// DuckDB reads all three formats, also where a number is too large for SQL.
#[test]
fn exports_are_read_by_duckdb() {
    let recorded = Recorded::new();
    let moved = [1000, u64::MAX].map(|bytes| Moved { bytes, elapsed_s: 0.5, ..Moved::default() });
    let mut store = Store::open(&recorded.store()).unwrap();
    for moved in moved {
        store.insert(&Record { moved, target: "a,\"b\"\nc".into(), ..Record::default() }).unwrap();
    }
    drop(store);
    for (format, columns) in [
        ("json", "id, moved.bytes, moved.elapsed_s, target"),
        ("csv", "id, bytes, elapsed_s, target"),
        ("parquet", "id, bytes, elapsed_s, target"),
    ] {
        let line = format!("results export --format {format} --output @/all.{format}");
        let ran = recorded.run(&line);
        assert_eq!(ran.code, 0, "{ran}");
        let file = recorded.scene.path(format!("all.{format}"));
        let question = format!("SELECT {columns} FROM '{}' ORDER BY id", file.display());
        let mut python = Command::new(tool("moto/bin/python"));
        python.args(["-c", "import duckdb, sys; print(duckdb.sql(sys.argv[1]).fetchall())"]);
        let ran = python.arg(question).output().unwrap();
        let expect =
            "[(1, 1000, 0.5, 'a,\"b\"\\nc'), (2, 9223372036854775807, 0.5, 'a,\"b\"\\nc')]";
        let found = String::from_utf8_lossy(&ran.stdout);
        assert_eq!(found.trim_end(), expect, "{format}: {ran:?}");
    }
}

/// Runs this program again to write `count` runs and print the number of each.
fn writer(store: &Path, count: u32, mark: u64) -> std::process::Child {
    let words: [OsString; 4] =
        ["results::writes_when_it_is_told_to", "--exact", "--nocapture", "--test-threads=1"]
            .map(Into::into);
    Command::new(std::env::current_exe().unwrap())
        .args(words)
        .env("DATAPUMP_TEST_STORE", store)
        .env("DATAPUMP_TEST_COUNT", count.to_string())
        .env("DATAPUMP_TEST_MARK", mark.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn writes_when_it_is_told_to() {
    let Some(path) = std::env::var_os("DATAPUMP_TEST_STORE") else {
        return;
    };
    let number = |name| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let mut store = Store::open(Path::new(&path)).unwrap();
    let mut record =
        Record { series: vec![SeriesPoint { at_s: 0.1, bytes: 1 }; 50], ..Record::default() };
    record.moved.files = number("DATAPUMP_TEST_MARK");
    println!();
    for _ in 0..number("DATAPUMP_TEST_COUNT") {
        println!("{}", store.insert(&record).unwrap());
    }
}
