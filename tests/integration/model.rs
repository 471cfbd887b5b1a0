//! Models are fitted to the runs of a store and to measurements of other programs, and shown: with
//! the real program.

use std::fs;
use std::path::PathBuf;

use crate::support::{Scene, each, run};
use analysis::record::options::Options;
use analysis::record::sample::{
    Conditions, Environment, Gate, Machine, Moved, PlaceInExperiment, Record, Scenario, Side,
};
use datapump::results::{Experiment, Store};

/// What each part costs: nanoseconds for a byte and for a request, and for one that wakes the disk.
const PUMP: (f64, f64) = (0.0, 500.0);
const DISK_SOURCE: (f64, f64) = (0.03, 9_000.0);
const DISK_SINK: (f64, f64) = (0.02, 23_000.0);
const START_NS: f64 = 21_000.0;

/// A run of a machine with known costs. With a soaker everything costs half as much again.
fn planted(scenario: Scenario, request_bytes: u32, depth: u16, repeat: u32) -> Record {
    let bytes = 1u64 << 30;
    let requests = bytes / u64::from(request_bytes);
    let parts: &[(f64, f64)] = match scenario {
        Scenario::DiskSource => &[PUMP, DISK_SOURCE],
        Scenario::DiskSink => &[PUMP, DISK_SINK],
        Scenario::DiskDisk => &[PUMP, DISK_SOURCE, DISK_SINK],
        _ => &[PUMP],
    };
    let starts = if parts.len() == 1 { 0 } else { requests / u64::from(depth) };
    let own: f64 = parts.iter().map(|(cb, cr)| bytes as f64 * cb + requests as f64 * cr).sum();
    let soaked = repeat % 2 == 1;
    let noise = 1.0 + 0.01 * f64::from(repeat % 3);
    let cpu_ns = (own + starts as f64 * START_NS) * noise * if soaked { 1.5 } else { 1.0 };
    Record {
        command: "measure".into(),
        version: "0.1.0".into(),
        started_unix_s: 1.7e9,
        place: Some(PlaceInExperiment {
            experiment: "planted".into(),
            scenario,
            seed: 1,
            order_index: 0,
            repeat,
            block: 0,
        }),
        options: Options {
            request_bytes,
            depth_source: Some(depth),
            depth_sink: Some(depth),
            streams: 1,
            engine: "auto".into(),
            direct: "on".into(),
            ..Options::default()
        },
        conditions: Conditions {
            cache: "bypass".into(),
            source_file_system: Some("ext4 rw".into()),
            sink_file_system: Some("ext4 rw".into()),
            soaked_cpus: if soaked { vec![0, 1] } else { vec![] },
            ..Conditions::default()
        },
        moved: Moved {
            bytes,
            elapsed_s: 1.0,
            goodput_bytes_per_s: 1e9 * f64::from(depth).sqrt(),
            ..Moved::default()
        },
        source: Side {
            cpu_system_s: cpu_ns / 1e9,
            requests,
            calls: requests,
            starts,
            depth,
            ..Side::default()
        },
        machines: vec![Machine { cpus: 2, span_s: 1.0, ..Machine::default() }],
        gates: vec![Gate { name: "drift".into(), value: 0.01, limit: 0.03, passed: true }],
        ..Record::default()
    }
}

/// An experiment on a host.
pub(crate) fn plant(store: &mut Store, host: &str, keep: fn(&Record) -> bool) {
    let environment = Environment { host: host.into(), ..Environment::default() };
    let environment = store.environment(&environment).unwrap();
    let experiment =
        Experiment { name: "planted".into(), command: "measure".into(), ..Experiment::default() };
    store.begin_experiment(&experiment).unwrap();
    let scenarios = [Scenario::Cpu, Scenario::DiskSource, Scenario::DiskSink, Scenario::DiskDisk];
    for scenario in scenarios {
        let alone = matches!(scenario, Scenario::DiskSource | Scenario::DiskSink);
        for (size, depth) in [(16, 1), (64, 1), (256, 1), (1024, 1), (16, 4), (1024, 4)] {
            for repeat in (0..8).filter(|_| alone || depth == 1) {
                let mut record = planted(scenario, size << 10, depth, repeat);
                record.source.environment = environment;
                if keep(&record) {
                    store.insert(&record).unwrap();
                }
            }
        }
    }
}

/// A scene with a store that has an experiment, without what `keep` filters out.
struct Measured {
    scene: Scene,
}

impl Measured {
    fn new(keep: fn(&Record) -> bool) -> Measured {
        let measured = Measured { scene: Scene::new() };
        plant(&mut Store::open(&measured.store()).unwrap(), "ada", keep);
        measured
    }

    fn store(&self) -> PathBuf {
        self.scene.path("results.db")
    }

    fn run(&self, line: &str, input: &[u8]) -> run::Ran {
        let mut command = self.scene.command(&self.scene.words(line));
        command.env("DATAPUMP_RESULTS", self.store());
        run::to_end(command, input)
    }
}

fn all(_: &Record) -> bool {
    true
}

#[test]
fn tables_take_cpu_time_from_the_runs_that_are_asked_for() {
    let measured = Measured::new(all);
    let other_of = [
        ("model fit", "beside a soaker", "The same without the soaker, by clocks alone"),
        ("model fit --cpu soaked", "beside a soaker", "The same without the soaker"),
        ("model fit --cpu bare", "without a soaker", "The same beside the soaker"),
    ];
    each(other_of, |(line, kind, other)| {
        let ran = measured.run(line, b"");
        assert_eq!(ran.code, 0, "{ran}");
        let expect = [
            "Table 1. ",
            "Table 5. ",
            "Table 8. ",
            "What a soaker changes",
            &format!("Verdicts, with CPU time from runs {kind}"),
            other,
        ];
        for words in expect {
            assert!(ran.stdout_text().contains(words), "{words}: {ran}");
        }
    });
    let ran = measured.run("model fit --cpu some", b"");
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("write soaked or bare"), "{ran}");
}

#[test]
fn forms() {
    let measured = Measured::new(all);
    let ran = measured.run("model fit --format markdown", b"");
    assert!(ran.stdout_text().starts_with("# What a byte costs\n"), "{ran}");
    for line in ["model fit --format json", "model fit --json"] {
        let ran = measured.run(line, b"");
        let json: serde_json::Value = serde_json::from_str(&ran.stdout_text()).unwrap();
        let parts = json["study"]["full"]["parts"].as_array().unwrap();
        assert_eq!(parts.len(), 5, "the pump, and two disks at two depths: {json}");
        assert_eq!(json["study"]["full"]["cpu_from"], "soaked");
        // The model is that of the runs without a soaker.
        let source = &json["models"][0]["components"][1]["regimes"][0];
        let cs = source["cs_ns"]["value"].as_f64().unwrap();
        assert!((cs / START_NS - 1.0).abs() < 0.05, "{source}");
    }
    let ran = measured.run("model fit --format markdown --output @/page.md", b"");
    assert_eq!((ran.code, ran.stdout_text().as_str()), (0, ""), "{ran}");
    let page = fs::read_to_string(measured.scene.path("page.md")).unwrap();
    assert_eq!(page, measured.run("model fit --format markdown", b"").stdout_text());
    let ran = measured.run("model fit --output @/page.md", b"");
    assert_eq!(ran.code, 1, "a page that is there is kept: {ran}");
    assert_eq!(fs::read_to_string(measured.scene.path("page.md")).unwrap(), page);
    for line in ["model fit --format csv", "model fit --json --format text", "model fit ada"] {
        assert_eq!(measured.run(line, b"").code, 2, "{line}");
    }
}

#[test]
fn a_model_is_kept_and_shown() {
    let measured = Measured::new(all);
    let ran = measured.run("model show ada", b"");
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.stderr.contains("there is no model of host 'ada'"), "{ran}");
    assert_eq!(measured.run("model fit", b"").code, 0);
    let ran = measured.run("model show ada", b"");
    assert_eq!(ran.code, 0, "{ran}");
    for words in ["Host ada: 2 CPUs, from planted", "disk source (ext4 direct)", "Cs µs"] {
        assert!(ran.stdout_text().contains(words), "{words}: {ran}");
    }
    let json = measured.run("model show ada --json", b"");
    let json: serde_json::Value = serde_json::from_str(&json.stdout_text()).unwrap();
    assert_eq!(json["host"], "ada");
}

/// Campaigns that were run since then are of paths, and hide no measurement.
#[test]
fn the_newest_measurement_is_fitted() {
    let measured = Measured::new(all);
    let mut store = Store::open(&measured.store()).unwrap();
    let name = "sweep-later".into();
    let campaign = Experiment { name, command: "sweep".into(), ..Experiment::default() };
    store.begin_experiment(&campaign).unwrap();
    let ran = measured.run("model fit", b"");
    assert!(ran.code == 0 && ran.stdout_text().contains("experiment planted,"), "{ran}");
}

#[test]
fn stores_with_nothing_to_fit() {
    type Case<'a> = (fn(&Record) -> bool, &'a str, &'a str);
    let cases: [Case<'_>; 4] = [
        (|_| false, "model fit", "nothing of experiment planted could be fitted"),
        (|run| run.options.request_bytes == 16 << 10, "model fit", "measure another"),
        (all, "model fit --experiment other", "there is no experiment 'other'"),
        (all, "model fit --results @/missing.db", "missing.db"),
    ];
    for (keep, line, expect) in cases {
        let ran = Measured::new(keep).run(line, b"");
        assert_eq!(ran.code, 1, "{line}: {ran}");
        assert!(ran.stderr.contains(expect), "{line}: {ran}");
    }
}

#[test]
fn a_strangers_measurements() {
    let measured = Measured::new(all);
    let by_depth = "request_size,depth,bytes,calls,starts,cpu_s\n\
                    16K,1,1048576,64,64,0.00192\n16K,4,1048576,64,16,0.000912\n\
                    64K,1,1048576,16,16,0.00048\n64K,4,1048576,16,4,0.000228\n\
                    1M,1,1048576,1,1,0.00003\n";
    let cases = [
        ("request_size,ns_per_byte\n32K,3.2\n64K,1.9\n128K,1.3\n256K,0.95\n", 0, "Cb = 0.6"),
        (by_depth, 0, "Cs = 21.0"),
        ("request_size,ns_per_byte\n32K,3.2\n32K,1.9\n", 1, "measure another"),
        ("request_size,ns_per_byte\n32K,three\n", 1, "line 2: ns_per_byte is 'three'"),
        ("", 1, "there is no column 'request_size'"),
    ];
    each(cases, |(text, code, expect)| {
        fs::write(measured.scene.path("mine.csv"), text).unwrap();
        for (line, input) in [("@/mine.csv", ""), ("-", *text)] {
            let ran = measured.run(&format!("model fit --input {line}"), input.as_bytes());
            assert_eq!(ran.code, *code, "{ran}");
            assert!(
                format!("{}{}", ran.stdout_text(), ran.stderr).contains(expect),
                "{expect}: {ran}"
            );
        }
    });
    assert_eq!(measured.run("model show --input @/mine.csv", b"").code, 2);
}
