use super::*;
use crate::record::sample::Record;
use serde_json::Value;

/// A copy with these costs, plus a small error.
fn planted(trial: &Trial, number: usize) -> EndToEndSample {
    let shape = trial.load.shape();
    let (start, file, byte) = match (trial.far, trial.sink) {
        (false, Medium::Memory) => (0.004, 2e-5, 4e-10),
        (false, Medium::Disk) => (0.02, 2e-4, 6e-10),
        (true, _) => (0.03, 1e-4, 1.1e-9),
    };
    let seconds = start + file * shape.files as f64 + byte * shape.bytes() as f64;
    let off = 1.0 + 0.03 * ((number * 7 % 11) as f64 / 5.0 - 1.0);
    let name = |medium| if medium == Medium::Memory { "tmpfs" } else { "ext4" }.to_string();
    EndToEndSample {
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

pub(crate) fn planted_end_to_end() -> EndToEnd {
    let jobs = calibration_jobs(1, 2);
    let samples: Vec<EndToEndSample> =
        jobs.iter().enumerate().map(|(number, trial)| planted(trial, number)).collect();
    EndToEnd::fit(&samples, 2, 0.0)
}

#[test]
fn jobs_are_mixed_and_complete() {
    let jobs = calibration_jobs(7, 2);
    assert_eq!(jobs, calibration_jobs(7, 2), "the seed alone says the order");
    assert_ne!(jobs, calibration_jobs(8, 2));
    assert_eq!(jobs.len(), LOADS.len() * (8 * 2 + 4));
    assert!(jobs.iter().all(|job| !job.cold || job.source == Medium::Disk));
    let bytes: u64 = jobs.iter().map(|job| job.load.shape().bytes()).sum();
    assert!(bytes < 80 << 30, "{bytes} bytes take too long");
}

#[test]
fn planted_costs_are_found() {
    let whole = planted_end_to_end();
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
    let odd = |elapsed_s: f64, files: u64| EndToEndSample {
        carrier: "tcp".into(),
        elapsed_s,
        files,
        ..EndToEndSample::default()
    };
    let cases = [
        vec![],
        vec![odd(1.0, 1)],
        vec![odd(f64::NAN, 1), odd(f64::INFINITY, 2)],
        vec![odd(0.0, 0), odd(-1.0, 0)],
        vec![odd(1.0, 1), odd(1.0, 1), odd(1e300, u64::MAX)],
    ];
    for samples in cases {
        let whole = EndToEnd::fit(&samples, 2, 0.0);
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
    let samples: Vec<EndToEndSample> = jobs.iter().map(|trial| planted(trial, 3)).collect();
    let of = jobs.len();
    let made = jobs.iter().zip(&samples).enumerate().map(|(place, (trial, sample))| TrialCopy {
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
    assert_eq!(whole.routes, EndToEnd::fit(&samples, 2, 0.0).routes);
    assert!(whole.fitted_unix_s > of as f64 - 2.0);
    assert!(runs.iter().all(records::is_whole), "no part was measured");
    // Values that somebody changed in a store must not cause a panic.
    for odd in [Value::Null, Value::from(1), serde_json::json!({ "carrier": 3 })] {
        runs[0].more.insert("whole".into(), odd);
        assert_eq!(records::samples(&runs).len(), of - 1);
    }
    assert_eq!(records::fitted(&[], 2), None);
    assert_eq!(records::fitted(&runs[..1], 2), None);
}
