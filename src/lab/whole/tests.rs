use super::installed::heard;
use super::*;
use crate::base::fault::Class;
use crate::lab::model::HostModel;
use crate::lab::results::Store;
use crate::lab::sample::Record;
use crate::lab::study::Study;
use serde_json::Value;

/// A copy with these costs, a little off.
fn planted(trial: &Trial, number: usize) -> WholeSample {
    let shape = trial.load.shape();
    let (start, file, byte) = match (trial.far, trial.sink) {
        (false, Ground::Memory) => (0.004, 2e-5, 4e-10),
        (false, Ground::Disk) => (0.02, 2e-4, 6e-10),
        (true, _) => (0.03, 1e-4, 1.1e-9),
    };
    let seconds = start + file * shape.files as f64 + byte * shape.bytes() as f64;
    let off = 1.0 + 0.03 * ((number * 7 % 11) as f64 / 5.0 - 1.0);
    let name = |ground| if ground == Ground::Memory { "tmpfs" } else { "ext4" }.to_string();
    WholeSample {
        carrier: if trial.far { "tcp" } else { "memory" }.into(),
        source: name(trial.source),
        sink: name(trial.sink),
        cold: trial.cold,
        streams: 4,
        files: shape.files,
        small_bytes: shape.small_bytes,
        large_bytes: shape.large_bytes,
        login_s: if trial.far { 0.01 } else { 0.0 },
        elapsed_s: seconds * off + if trial.far { 0.01 } else { 0.0 },
        cpu_source_s: seconds * off * 0.7,
        cpu_sink_s: if trial.far { seconds * off * 0.5 } else { 0.0 },
    }
}

pub fn planted_whole() -> Whole {
    let jobs = calibration_jobs(1, 2);
    let samples: Vec<WholeSample> =
        jobs.iter().enumerate().map(|(number, trial)| planted(trial, number)).collect();
    Whole::fit(&samples, 2, 0.0)
}

#[test]
fn jobs_are_mixed_and_complete() {
    let jobs = calibration_jobs(7, 2);
    assert_eq!(jobs, calibration_jobs(7, 2), "the seed alone says the order");
    assert_ne!(jobs, calibration_jobs(8, 2));
    assert_eq!(jobs.len(), LOADS.len() * (8 * 2 + 4));
    assert!(jobs.iter().all(|job| !job.cold || job.source == Ground::Disk));
    let bytes: u64 = jobs.iter().map(|job| job.load.shape().bytes()).sum();
    assert!(bytes < 80 << 30, "{bytes} bytes take too long");
}

#[test]
fn planted_costs_are_found() {
    let whole = planted_whole();
    assert_eq!(whole.routes.len(), 12);
    assert!(whole.is_sound());
    let cases = [
        ("memory", "tmpfs", "tmpfs", 2e-5, 4e-10),
        ("memory", "ext4", "ext4", 2e-4, 6e-10),
        ("tcp", "tmpfs", "ext4", 1e-4, 1.1e-9),
    ];
    for (carrier, source, sink, file_s, byte_s) in cases {
        let cost = whole.find((carrier, source, sink), false).unwrap().elapsed;
        let near = |got: f64, wanted: f64| (got / wanted - 1.0).abs() < 0.1;
        assert!(near(cost.file_s, file_s), "{carrier} {source} {sink}: {cost:?}");
        assert!(near(cost.large_byte_s, byte_s), "{carrier} {source} {sink}: {cost:?}");
        assert!(cost.spread < 0.1, "{cost:?}");
    }
}

#[test]
fn odd_samples_break_nothing() {
    let odd = |elapsed_s: f64, files: u64| WholeSample {
        carrier: "tcp".into(),
        elapsed_s,
        files,
        ..WholeSample::default()
    };
    let cases = [
        vec![],
        vec![odd(1.0, 1)],
        vec![odd(f64::NAN, 1), odd(f64::INFINITY, 2)],
        vec![odd(0.0, 0), odd(-1.0, 0)],
        vec![odd(1.0, 1), odd(1.0, 1), odd(1e300, u64::MAX)],
    ];
    for samples in cases {
        let whole = Whole::fit(&samples, 2, 0.0);
        for route in &whole.routes {
            for cost in [route.elapsed, route.cpu_source, route.cpu_sink] {
                assert!(cost.numbers().iter().all(|n| n.is_finite() && *n >= 0.0), "{samples:?}");
            }
        }
    }
}

#[test]
fn runs_of_the_store_there_and_back() {
    let jobs = calibration_jobs(1, 1);
    let samples: Vec<WholeSample> = jobs.iter().map(|trial| planted(trial, 3)).collect();
    let of = jobs.len();
    let made = jobs.iter().zip(&samples).enumerate().map(|(place, (trial, sample))| trials::Made {
        trial: *trial,
        sample: sample.clone(),
        source: "/a".into(),
        target: "/b".into(),
        started_unix_s: place as f64,
        number: place + 1,
        of,
    });
    let mut runs: Vec<Record> =
        made.map(|made| records::record(&made, "measure-1", 1, 7)).collect();
    assert_eq!(records::samples(&runs), samples);
    let whole = records::fitted(&runs, 2).unwrap();
    assert_eq!(whole.routes, Whole::fit(&samples, 2, 0.0).routes);
    assert!(whole.fitted_unix_s > of as f64 - 2.0);
    assert_eq!(Study::of(&runs), Study::default(), "no part was measured");
    // What somebody has done to a store is no reason to fall.
    for odd in [Value::Null, Value::from(1), serde_json::json!({ "carrier": 3 })] {
        runs[0].more.insert("whole".into(), odd);
        assert_eq!(records::samples(&runs).len(), of - 1);
    }
    assert_eq!(records::fitted(&[], 2), None);
    assert_eq!(records::fitted(&runs[..1], 2), None);
}

#[test]
fn the_last_line_of_a_copy_is_read_with_care() {
    let trial = calibration_jobs(1, 1)[0];
    let shape = trial.load.shape();
    let ends = || ["tmpfs".to_string(), "ext4".to_string()];
    let good = format!(
        r#"{{"transfer":{{"bytes":{},"files":{},"carrier":"tcp","streams":4,"login_seconds":0.1,
        "elapsed_seconds":1.5,"sides":[{{"cpu_user_seconds":1,"cpu_system_seconds":2}},
        {{"cpu_user_seconds":3,"cpu_system_seconds":4}}]}}}}"#,
        shape.bytes(),
        shape.files
    );
    let sample = trials::sample(&good, trial, ends()).unwrap();
    assert_eq!((sample.cpu_source_s, sample.cpu_sink_s, sample.elapsed_s), (3.0, 7.0, 1.5));
    for odd in ["", "{}", "null", r#"{"transfer":null}"#, &good.replace("\"files\":", "\"f\":")] {
        assert_eq!(trials::sample(odd, trial, ends()), None, "{odd}");
    }
}

#[test]
fn a_peers_model_is_believed_only_when_it_is_sound() {
    let model = HostModel { cpus: 2, whole: Some(planted_whole()), ..HostModel::default() };
    let text = installed::told(&model);
    assert!(text.len() <= crate::base::limits::MODEL_BYTES_MAX, "{}", text.len());
    // The last digit of a number may be lost on the way.
    let routes = |model: &HostModel| model.whole.as_ref().map_or(0, |whole| whole.routes.len());
    assert_eq!(routes(&heard(&text).unwrap()), routes(&model));
    let spoil = |what: &dyn Fn(&mut Whole)| {
        let mut whole = planted_whole();
        what(&mut whole);
        serde_json::to_string(&HostModel { whole: Some(whole), ..HostModel::default() }).unwrap()
    };
    let hostile = [
        String::new(),
        "{".into(),
        "[]".into(),
        "[".repeat(20_000),
        "x".repeat(40_000),
        text.replace("\"whole\":{", "\"whole\":null,\"w\":{"),
        spoil(&|whole| whole.cpus = 0),
        spoil(&|whole| whole.routes[0].elapsed.file_s = -1.0),
        spoil(&|whole| whole.routes[0].cpu_sink.fixed_s = 1e9),
        spoil(&|whole| whole.routes[0].bytes_max = f64::NAN),
        spoil(&|whole| whole.routes[0].sink = "\u{1b}[2J".into()),
        spoil(&|whole| whole.routes = vec![Route::default(); 1000]),
    ];
    for text in hostile {
        assert_eq!(heard(&text), None, "{}", &text[..text.len().min(80)]);
    }
}

#[test]
fn a_model_is_found_in_a_store_and_what_is_none_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("below/results.db");
    assert_eq!(installed::model(&path).unwrap(), None, "none is no error");
    let model = HostModel {
        host: installed::host(),
        cpus: 2,
        whole: Some(planted_whole()),
        ..HostModel::default()
    };
    let mut store = Store::open(&path).unwrap();
    assert_eq!(installed::model(&path).unwrap(), None, "nothing was measured yet");
    store.put_model(&HostModel { host: "another".into(), ..model.clone() }).unwrap();
    assert_eq!(installed::model(&path).unwrap(), None, "another host's is not ours");
    store.put_model(&model).unwrap();
    // While somebody else has it open, and afterwards.
    assert_eq!(installed::model(&path).unwrap().unwrap().whole.unwrap().routes.len(), 12);
    let mut odd = planted_whole();
    odd.routes[0].elapsed.file_s = -1.0;
    store.put_model(&HostModel { whole: Some(odd), ..model }).unwrap();
    drop(store);
    let fault = installed::model(&path).unwrap_err();
    assert!(fault.text.contains("below zero"), "{fault}");
    for (text, damaged) in [("", false), ("{\"host\":", true)] {
        std::fs::write(&path, text).unwrap();
        match installed::model(&path) {
            Ok(found) => assert!(found.is_none() && !damaged, "{text}"),
            Err(fault) => {
                assert!(damaged && fault.class == Class::Local, "{fault}");
                assert!(fault.text.contains("--results"), "{fault}");
            }
        }
    }
    assert_eq!(installed::model(folder.path()).unwrap(), None, "a folder is no store");
}
