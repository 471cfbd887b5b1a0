use super::*;
use crate::accounting::moment::{CpuTimes, SoakerTimes};

/// Two CPUs at `at_s`, with this much CPU time of the soakers, at 1000 iterations a second of it.
fn moment(at_s: f64, soaker_s: [f64; 2], steal_s: f64) -> Moment {
    let soaker = |cpu_s: f64| SoakerTimes {
        since_ns: 1,
        iterations: (cpu_s * 1000.0).round() as u64,
        cpu_ns: (cpu_s * 1e9).round() as u64,
    };
    let times = CpuTimes { steal_s, ..CpuTimes::default() };
    Moment {
        at_ns: (at_s * 1e9) as u64,
        cpus: [(0, times), (1, times)].into(),
        soakers: [(0, soaker(soaker_s[0])), (1, soaker(soaker_s[1]))].into(),
        ..Moment::default()
    }
}

fn calibration(soaker_s: [f64; 2], steal_s: f64) -> Calibration {
    let (from, to) = (moment(0.0, [0.0; 2], 0.0), moment(2.0, soaker_s, steal_s));
    Calibration::between(&from, &to, &BTreeMap::new())
}

fn near(got: f64, expect: f64) -> bool {
    (got - expect).abs() < 1e-6
}

#[test]
fn a_calibration_knows_the_background() {
    // CPU 0 is free; others take a tenth of CPU 1.
    let found = calibration([2.0, 1.8], 0.0);
    assert!(near(found.rho[&0], 1000.0) && near(found.rho[&1], 900.0), "{found:?}");
    assert!(near(found.background, 0.05), "{found:?}");
    // Half a second of each was stolen: of the rest others took nothing.
    let stolen = calibration([1.5, 1.5], 0.5);
    assert!(near(stolen.background, 0.0) && near(stolen.steal, 0.25), "{stolen:?}");
    // A slower clock rate shows in comparison with the best known.
    let best = [(0, 1250.0), (1, 1250.0)].into();
    let (from, to) = (moment(0.0, [0.0; 2], 0.0), moment(2.0, [2.0, 2.0], 0.0));
    let slow = Calibration::between(&from, &to, &best);
    assert!(near(slow.background, 0.0) && near(slow.speed, 0.8), "{slow:?}");
    assert!(near(found.speed, 1.0), "{found:?}");
}

#[test]
fn gates_of_a_block() {
    let quiet = || calibration([2.0, 1.99], 0.0);
    let no_soaker = Calibration::default();
    let intrusion = |share| BTreeMap::from([(0, 0.001), (1, share)]);
    let slow = |speed| Calibration { speed, ..quiet() };
    let cases: [(Calibration, Calibration, f64, &str); 11] = [
        (slow(0.93), slow(0.91), 0.001, ""),
        (quiet(), slow(0.88), 0.001, "the CPUs were 12.0 % below"),
        (quiet(), quiet(), 0.009, ""),
        (quiet(), calibration([2.0, 1.95], 0.0), 0.001, ""),
        (quiet(), calibration([1.9, 2.0], 0.0), 0.001, "the CPUs' speed changed by 5.0 %"),
        (calibration([1.9; 2], 0.0), calibration([1.9; 2], 0.0), 0.0, "other processes used 5.0 %"),
        (
            quiet(),
            calibration([1.96, 1.96], 0.04),
            0.0,
            "the host of this virtual machine took 2.0",
        ),
        (quiet(), quiet(), 0.015, "the soaker took 1.5 % of a CPU"),
        (quiet(), quiet(), f64::NAN, "the soaker took an unknown share"),
        (no_soaker.clone(), quiet(), 0.0, "the CPUs' speed changed by an unknown share"),
        (quiet(), no_soaker, 0.0, "the CPUs' speed changed by an unknown share"),
    ];
    for (before, after, share, expect) in cases {
        let gates = of_block(&before, &after, &intrusion(share));
        let names: Vec<&str> = gates.iter().map(|gate| gate.name.as_str()).collect();
        assert_eq!(names, ["drift", "background", "slowness", "steal", "intrusion"]);
        let got = void_reason(&gates).unwrap_or_default();
        assert!(got.starts_with(expect) && got.is_empty() == expect.is_empty(), "{expect}: {got}");
    }
    let gates = of_block(&quiet(), &quiet(), &BTreeMap::new());
    assert!(void_reason(&gates).is_some(), "an intrusion that was not measured passes nothing");
}

#[test]
fn a_calibration_is_calm_by_itself() {
    let cases = [
        (calibration([2.0, 1.99], 0.0), true),
        (calibration([1.9; 2], 0.0), false),
        (calibration([1.96, 1.96], 0.06), false),
        (Calibration { speed: 0.85, ..calibration([2.0; 2], 0.0) }, false),
        (Calibration::default(), false),
    ];
    for (calibration, calm) in cases {
        assert_eq!(is_calm(&calibration), calm, "{calibration:?}");
    }
}

#[test]
fn gates_of_a_run() {
    let machine = |steal_s, span_s| Machine { cpus: 2, span_s, steal_s, ..Machine::default() };
    let cases = [
        (machine(0.0, 1.0), 4 << 30, 1 << 30, ""),
        (machine(0.0, 1.0), 4 << 30, 0, ""),
        (machine(0.0, 1.0), 0, 0, ""),
        (machine(0.1, 1.0), 4 << 30, 0, "the host of this virtual machine took 5.0 %"),
        (machine(0.0, 0.0), 4 << 30, 0, "the host of this virtual machine took an unknown share"),
        (machine(0.0, 1.0), 3 << 30, 2 << 30, "only 1.5 times the file's size"),
    ];
    for (machine, available, file, expect) in cases {
        let got = void_reason(&of_run(&machine, available, file)).unwrap_or_default();
        assert!(got.starts_with(expect) && got.is_empty() == expect.is_empty(), "{expect}: {got}");
    }
}

#[test]
fn iterations_count_what_is_beyond_the_background() {
    let usual = calibration([2.0, 1.8], 0.0);
    let cases = [
        // Ten seconds as in the calibration: the run used nothing.
        ([10.0, 9.0], 0.0, 0.0),
        // The run used three seconds of CPU 0 and two of CPU 1.
        ([7.0, 7.2], 0.0, 5.0),
        // One second of each was stolen: the capacity is smaller.
        ([9.0, 8.1], 1.0, 0.0),
    ];
    for (soaker_s, steal_s, expect) in cases {
        let (from, to) = (moment(0.0, [0.0; 2], 0.0), moment(10.0, soaker_s, steal_s));
        let machine = usual.referee(&from, &to);
        assert!(near(machine.busy_iter_s.unwrap(), expect), "{machine:?}");
        assert!(near(machine.background_s.unwrap(), 1.0), "{machine:?}");
        assert_eq!(machine.soaked_cpus, [0, 1]);
    }
    let (from, to) = (moment(0.0, [0.0; 2], 0.0), moment(10.0, [5.0; 2], 0.0));
    let unknown = Calibration::default().referee(&from, &to);
    assert_eq!(unknown.busy_iter_s, None, "a CPU that was not calibrated");
}

fn thread(name: &str, cpu: Option<u32>, cpu_s: f64) -> KernelThread {
    KernelThread { name: name.into(), cpu, cpu_s }
}

#[test]
fn kernel_threads_less_what_they_do_anyway() {
    let usual = |cpu_s| Calibration {
        kernel_threads: vec![thread("ksoftirqd/0", Some(0), cpu_s)],
        ..Calibration::default()
    };
    let machine = Machine {
        span_s: 10.0,
        kernel_threads: vec![
            thread("ksoftirqd/0", Some(0), 0.5),
            thread("ksoftirqd/1", Some(1), 0.25),
        ],
        ..Machine::default()
    };
    let beyond = usual(0.02).mean(&usual(0.04)).beyond_usual(&machine);
    assert!(near(beyond[0].cpu_s, 0.2) && near(beyond[1].cpu_s, 0.25), "{beyond:?}");
    assert_eq!(usual(0.06).beyond_usual(&machine).len(), 1, "not less than nothing");
}

#[test]
fn kernel_threads_are_charged_to_a_side() {
    let binding = |cpus: &[u32], reads_files, writes_files| CpuBinding {
        cpus: cpus.into(),
        reads_files,
        writes_files,
    };
    let threads = [
        thread("ksoftirqd/0", Some(0), 1.0),
        thread("ksoftirqd/1", Some(1), 2.0),
        thread("kworker/u8-writeback", None, 4.0),
    ];
    let cases: [(Vec<CpuBinding>, &[f64]); 7] = [
        (vec![binding(&[0], true, false), binding(&[1], false, true)], &[1.0, 6.0]),
        (vec![binding(&[0], true, false), binding(&[1], false, false)], &[5.0, 2.0]),
        (vec![binding(&[0], false, false), binding(&[1], false, false)], &[5.0, 2.0]),
        (vec![binding(&[], true, false), binding(&[], false, true)], &[0.0, 7.0]),
        (vec![binding(&[0, 1], false, false), binding(&[0, 1], false, false)], &[7.0, 0.0]),
        (vec![binding(&[], false, true)], &[7.0]),
        (vec![], &[]),
    ];
    for (bindings, expect) in cases {
        let got: Vec<f64> =
            attribute(&threads, &bindings).iter().map(|side| side.values().sum()).collect();
        assert_eq!(got, expect, "{bindings:?}");
    }
}

#[test]
fn three_ways_of_counting() {
    let machine = |idle, clock, iter, background| Machine {
        cpus: 2,
        span_s: 10.0,
        busy_idle_s: idle,
        busy_clock_s: clock,
        busy_iter_s: iter,
        background_s: background,
        soaked_cpus: vec![0, 1],
        kernel_threads: vec![thread("ksoftirqd/0", Some(0), 1.0)],
        ..Machine::default()
    };
    let cases: [(Machine, &[Option<&str>]); 6] = [
        (machine(10.0, Some(10.5), Some(9.5), None), &[None, None, None]),
        (machine(10.0, Some(10.5), Some(8.8), Some(0.9)), &[None, None, None]),
        // 2 % of the machine can be more than 10 % of a small time.
        (machine(13.0, None, None, None), &[Some(OTHERS_RAN)]),
        (machine(7.0, Some(7.0), None, None), &[Some(SAMPLED), Some(SAMPLED)]),
        (machine(10.0, Some(10.0), Some(12.0), None), &[None, None, Some(ABSORBED)]),
        (machine(10.0, Some(10.0), Some(8.0), None), &[None, None, Some(FASTER)]),
    ];
    for (machine, expect) in cases {
        let got: Vec<_> = agreement(&machine, 9.0).iter().map(|pair| pair.residue).collect();
        assert_eq!(got, expect, "{machine:?}");
    }
    let part = Machine { soaked_cpus: vec![0], ..machine(10.0, Some(3.0), Some(3.0), None) };
    assert_eq!(agreement(&part, 9.0).len(), 1, "a part of the CPUs says nothing of all");
}

#[test]
fn what_a_soaker_takes_from_others() {
    let spun = |wall_s: f64| Spun { wall_ns: (wall_s * 1e9) as u64, cpu_ns: 0 };
    let cases = [
        // All of the soaker's time was before and after the thread.
        (0.5, 0.1, 0.4, 0.0),
        (0.5, 0.108, 0.4, 0.02),
        (0.5, 0.0, 0.4, 0.0),
        (0.4, 9.0, 0.4, 1.0),
    ];
    for (span_s, soaker_s, wall_s, expect) in cases {
        let got = intruded(span_s, soaker_s, spun(wall_s));
        assert!(near(got, expect), "{span_s} {soaker_s}: {got}");
    }
    assert!(intruded(0.0, 0.0, spun(0.0)).is_nan(), "nothing was measured");
}
