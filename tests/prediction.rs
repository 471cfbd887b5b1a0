//! Predictions against recorded copies: some sizes are left out of the fit and asked about.

use datapump::lab::model::HostModel;
use datapump::lab::predict::{Plan, Prediction};
use datapump::lab::whole::trials::from_csv;
use datapump::lab::whole::{Whole, WholeSample};

/// `measure whole` on a machine with two CPUs, while others were building on it: so the bounds are
/// wide. Those of a quiet machine are in `runs/`.
const RECORDED: &str = include_str!("data/whole-copies.csv");

fn plan(sample: &WholeSample) -> Plan {
    Plan {
        shape: sample.shape(),
        carrier: if sample.carrier == "tcp" { "tcp" } else { "memory" },
        streams: sample.streams,
        source: sample.source.clone(),
        sink: sample.sink.clone(),
        resident: if sample.cold { 0.0 } else { 1.0 },
        login_s: sample.login_s,
        near_is_source: true,
        same_machine: true,
        rate_limit_bytes_per_s: None,
        unusual: Vec::new(),
    }
}

#[test]
fn sizes_that_were_left_out_are_predicted() {
    let samples = from_csv(RECORDED).unwrap();
    assert!(samples.len() > 100);
    let is_out = |sample: &WholeSample| {
        sample.files == 1000 || (sample.files == 1 && sample.large_bytes == 96 << 20)
    };
    let (out, kept): (Vec<WholeSample>, Vec<WholeSample>) =
        samples.into_iter().partition(|sample| is_out(sample) && !sample.cold);
    let model = HostModel { whole: Some(Whole::fit(&kept, 2, 0.0)), ..HostModel::default() };
    let mut time_errors = Vec::new();
    let mut cpu_errors = Vec::new();
    let mut covered = 0;
    for sample in &out {
        let got = Prediction::of(&plan(sample), Some(&model), None).unwrap();
        let cpu_s = sample.cpu_source_s + sample.cpu_sink_s;
        time_errors.push((got.elapsed_s[1] / sample.elapsed_s - 1.0).abs());
        cpu_errors.push(((got.cpu_source_s[1] + got.cpu_sink_s[1]) / cpu_s - 1.0).abs());
        let within = (got.elapsed_s[0]..=got.elapsed_s[2]).contains(&sample.elapsed_s);
        covered += usize::from(within);
    }
    let (time, cpu) = (median(&mut time_errors), median(&mut cpu_errors));
    let share = covered as f64 / out.len() as f64;
    println!("median errors {time:.3} {cpu:.3}, covered {share:.2} of {}", out.len());
    assert!(time < TIME_ERROR_MAX, "time is {time:.3} off");
    assert!(cpu < CPU_ERROR_MAX, "CPU is {cpu:.3} off");
    assert!(share >= 0.8, "{share:.2} within the interval");
}

#[test]
fn the_same_copies_make_the_same_model() {
    let samples = from_csv(RECORDED).unwrap();
    assert_eq!(Whole::fit(&samples, 2, 1.0), Whole::fit(&samples, 2, 1.0));
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

const TIME_ERROR_MAX: f64 = 0.35;
const CPU_ERROR_MAX: f64 = 0.35;
