use super::cells::ProcessRole;
use super::verdicts::{Outcome, Verdict};
use super::*;
use crate::record::options::Options;
use crate::record::sample::{Gate, Moved, PlaceInExperiment, Side};
use crate::statistics::{Estimate, generator};
use rand::RngExt;

/// The cost of a planted part: nanoseconds per byte, and per request or call.
type Planted = (f64, f64);

const PUMP: Planted = (0.0, 1_500.0);
const DISK_SOURCE: Planted = (0.12, 9_000.0);
const DISK_SINK: Planted = (0.3, 14_000.0);
const NET_SOURCE: Planted = (0.25, 3_000.0);
const NET_SINK: Planted = (0.15, 5_000.0);

/// Calls of a network source for a full request: one for the header, and calls return at most 64
/// KiB.
fn calls_of_a_read(request_bytes: u32) -> f64 {
    1.0 + (f64::from(request_bytes) / 65536.0).max(1.0)
}

fn planted_side(parts: &[(Planted, f64)], bytes: f64, request_bytes: u32, noise: f64) -> Side {
    let requests = bytes / f64::from(request_bytes);
    let pump = bytes * PUMP.0 + requests * PUMP.1;
    let of = |((cb, cr), calls): &(Planted, f64)| bytes * cb + requests * calls * cr;
    let cpu_s = (pump + parts.iter().map(of).sum::<f64>()) / 1e9 * noise;
    let calls: f64 = parts.iter().map(|(_, calls)| requests * calls).sum();
    Side {
        cpu_user_s: cpu_s * 0.3,
        cpu_system_s: cpu_s * 0.6,
        kernel_threads_s: [("ksoftirqd/0".to_string(), cpu_s * 0.1)].into(),
        requests: requests as u64,
        calls: calls.round() as u64,
        partial_returns: parts.iter().map(|(_, n)| (requests * (n - 2.0).max(0.0)) as u64).sum(),
        depth: 1,
        environment: 1,
        ..Side::default()
    }
}

/// An experiment with planted costs: every scenario, five sizes, five repeats, with and without a
/// soaker.
pub fn planted(noise: f64) -> Vec<Record> {
    let mut generator = generator(11);
    let mut records = Vec::new();
    for scenario in Scenario::ALL {
        for size in [16u32, 64, 128, 256, 1024].map(|kibibytes| kibibytes << 10) {
            for repeat in 0..10u32 {
                let wobble = 1.0 + noise * (generator.random::<f64>() * 2.0 - 1.0);
                let id = records.len() as i64 + 1;
                records.push(planted_record(scenario, size, repeat, wobble, id));
            }
        }
    }
    records
}

/// The work at both ends, besides the pump, and the calls per request.
fn at_work(scenario: Scenario, request_bytes: u32) -> (Work, Option<Work>) {
    let read = (NET_SOURCE, calls_of_a_read(request_bytes));
    match scenario {
        Scenario::Cpu => (vec![], None),
        Scenario::DiskSource => (vec![(DISK_SOURCE, 1.0)], None),
        Scenario::DiskSink => (vec![(DISK_SINK, 1.0)], None),
        Scenario::Net => (vec![(NET_SINK, 1.0)], Some(vec![read])),
        Scenario::DiskDisk => (vec![(DISK_SOURCE, 1.0), (DISK_SINK, 1.0)], None),
        Scenario::DiskNetDisk => {
            (vec![(DISK_SOURCE, 1.0), (NET_SINK, 1.0)], Some(vec![read, (DISK_SINK, 1.0)]))
        }
        Scenario::DiskNet => (vec![(DISK_SOURCE, 1.0), (NET_SINK, 1.0)], Some(vec![read])),
        Scenario::NetDisk => (vec![(NET_SINK, 1.0)], Some(vec![read, (DISK_SINK, 1.0)])),
    }
}

type Work = Vec<(Planted, f64)>;

/// Bytes a second: a request takes the time of each part of its path, one after the other.
fn planted_rate(scenario: Scenario, request_bytes: u32) -> f64 {
    let size = f64::from(request_bytes);
    let parts: Vec<f64> = [
        (scenario.reads_disk(), 100e-6 + 1e-9 * size),
        (scenario.has_net(), 20e-6 + 0.5e-9 * size),
        (scenario.writes_disk(), 80e-6 + 0.8e-9 * size),
    ]
    .into_iter()
    .filter_map(|(is_in_path, seconds)| is_in_path.then_some(seconds))
    .collect();
    match parts.is_empty() {
        true => 1e9,
        false => size / parts.into_iter().sum::<f64>(),
    }
}

fn planted_record(
    scenario: Scenario,
    request_bytes: u32,
    repeat: u32,
    wobble: f64,
    id: i64,
) -> Record {
    let bytes = 1e9;
    let (source, sink) = at_work(scenario, request_bytes);
    let side = |parts: &[(Planted, f64)]| planted_side(parts, bytes, request_bytes, wobble);
    let (source, sink) = (side(&source), sink.as_deref().map(side));
    let own = source.cpu_s() + sink.as_ref().map_or(0.0, Side::cpu_s);
    let soaked = repeat % 2 == 1;
    let machine = crate::record::sample::Machine {
        cpus: 2,
        span_s: 1.0,
        busy_idle_s: own * 1.02,
        busy_iter_s: soaked.then_some(own * 1.01),
        busy_clock_s: soaked.then_some(own),
        background_s: Some(0.0),
        ..Default::default()
    };
    let mut conditions = crate::record::sample::Conditions {
        carrier: "tcp".into(),
        source_file_system: Some("tmpfs rw".into()),
        sink_file_system: Some("ext4 rw,relatime".into()),
        ..Default::default()
    };
    if soaked {
        conditions.soaked_cpus = vec![0, 1];
    }
    Record {
        id,
        command: "measure".into(),
        version: "0.1.0".into(),
        started_unix_s: 1.7e9 + id as f64,
        place: Some(PlaceInExperiment {
            experiment: "planted".into(),
            scenario,
            seed: 1,
            order_index: id as u32,
            repeat,
            block: 0,
        }),
        options: Options {
            request_bytes,
            streams: 1,
            engine: "auto".into(),
            direct: "on".into(),
            receive: "any".into(),
            congestion: Some("cubic".into()),
            ..Options::default()
        },
        conditions,
        moved: Moved {
            bytes: bytes as u64,
            elapsed_s: 1.0,
            goodput_bytes_per_s: planted_rate(scenario, request_bytes) * wobble,
            ..Moved::default()
        },
        source,
        sink,
        machines: vec![machine],
        gates: vec![Gate { name: "drift".into(), value: 0.01, limit: 0.03, passed: true }],
        ..Record::default()
    }
}

#[test]
fn planted_parts_are_found_and_predict_what_is_composed_of_them() {
    let study = Study::of(&planted(0.04));
    let near = |found: Estimate, planted: f64, slack: f64| {
        assert!((found.value - planted).abs() <= slack, "{found:?} for {planted}");
    };
    for (part, (cb, cr)) in [
        (Part::Pump, PUMP),
        (Part::DiskSource, DISK_SOURCE),
        (Part::DiskSink, DISK_SINK),
        (Part::NetSource, NET_SOURCE),
        (Part::NetSink, NET_SINK),
    ] {
        let chosen = study.chosen();
        let one = chosen.iter().find(|one| one.part == part).unwrap();
        let regime = one.curve.regimes()[0];
        near(regime.cb_ns, cb, 0.1 * cb + 0.02);
        near(regime.cr_ns, cr, 0.1 * cr + 300.0);
        let counts =
            if part == Part::NetSource { parts::Counts::Calls } else { parts::Counts::Requests };
        assert_eq!(one.counts, counts, "{part:?}");
    }
    assert_eq!(study.compositions.len(), 7, "{:?}", study.remarks);
    for one in &study.compositions {
        assert_eq!(one.sizes.len(), 5);
        assert!(one.errors().iter().all(|error| *error < 0.05), "{one:?}");
    }
    assert!(study.remarks.is_empty(), "{:?}", study.remarks);
    for verdict in verdicts::of(&study) {
        assert_eq!(verdict.outcome, Outcome::Passed, "{verdict:?}");
    }
}

#[test]
fn bandwidth_is_from_bare_runs_and_cpu_from_soaked_ones() {
    let mut records = planted(0.0);
    for record in records.iter_mut().filter(|record| cells::is_soaked(record)) {
        record.moved.goodput_bytes_per_s = 0.5e9;
        record.source.cpu_user_s += 1.0;
    }
    let study = Study::of(&records);
    let cell = &study.cells[0];
    assert_eq!(cell.rate.as_ref().unwrap().median, 1e9);
    assert_eq!(cell.rate_soaked.as_ref().unwrap().median, 0.5e9);
    assert!(cell.side(ProcessRole::Source).unwrap().cost_ns.min > 1.0);
}

#[test]
fn what_a_gate_took_is_named_and_not_averaged() {
    let mut records = planted(0.01);
    let disk_disk =
        |record: &&mut Record| record.place.as_ref().unwrap().scenario == Scenario::DiskDisk;
    for record in records.iter_mut().filter(disk_disk) {
        record.void_reason = Some("steal".into());
        record.source.cpu_user_s = 1e6;
    }
    let study = Study::of(&records);
    assert_eq!(study.voids.len(), 50);
    let verdicts = verdicts::of(&study);
    let verdict = verdicts.iter().find(|one| one.what.starts_with("disk-disk from")).unwrap();
    assert_eq!(verdict.outcome, Outcome::Void);
    assert!(verdict.because.contains("steal"), "{verdict:?}");
}

#[test]
fn order_is_no_matter_and_odd_records_do_no_harm() {
    let records = planted(0.05);
    let mut other = records.clone();
    other.reverse();
    assert_eq!(Study::of(&records), Study::of(&other));
    let odd: Vec<Record> = records
        .iter()
        .enumerate()
        .map(|(i, record)| {
            let mut odd = record.clone();
            match i % 5 {
                0 => odd.moved.bytes = 0,
                1 => odd.source.cpu_user_s = f64::NAN,
                2 => odd.options.request_bytes = 0,
                3 => odd.sink = None,
                _ => odd.started_unix_s = f64::NAN,
            }
            odd
        })
        .collect();
    let study = Study::of(&odd);
    let _ = (verdicts::of(&study), study.hosts(|_| "a".into()));
    assert_eq!(Study::of(&[]), Study { ..Study::default() });
    assert_eq!(Study::of(&[Record::default()]), Study { ..Study::default() });
    let whole = |record: &Record| {
        let mut whole = record.clone();
        whole.more.insert("whole".into(), 1.into());
        whole
    };
    let calibration: Vec<Record> = records.iter().map(whole).collect();
    assert_eq!(Study::of(&calibration), Study::default(), "no part was measured");
}

#[test]
fn a_model_holds_every_part() {
    let model = HostModel::of(&planted(0.02));
    assert_eq!((model.components.len(), model.cpus), (5, 2));
    let net = model.component(Part::NetSource, "tcp cubic any").unwrap();
    let calls = net.calls_per_request.last().unwrap();
    assert!((calls.1 - 17.0).abs() < 0.1, "{calls:?}");
    assert!(model.component(Part::DiskSource, "tmpfs").is_some());
    assert!(model.component(Part::DiskSink, "ext4 direct").is_some(), "{model:?}");
}

/// The additional cost of a request that finds the device idle.
const START_NS: f64 = 21_000.0;

/// Disks at two depths, and disk to disk, where a read and a write are submitted together and wake
/// the device once. `turns`: the file system admits one write at a time, so that each one finds the
/// device idle.
fn started(turns: bool) -> Vec<Record> {
    let mut records = Vec::new();
    let mut put = |scenario, size: u32, depth: u16, counted: f64, true_starts: f64, gain: f64| {
        for repeat in (0..12).step_by(2) {
            let id = records.len() as i64 + 1;
            let wobble = 1.0 + 0.01 * f64::from(repeat % 3);
            let mut record = planted_record(scenario, size, repeat, wobble, id);
            let requests = record.moved.bytes as f64 / f64::from(size);
            record.conditions.source_file_system = record.conditions.sink_file_system.clone();
            (record.options.depth_source, record.options.depth_sink) = (Some(depth), Some(depth));
            record.source.starts = (requests * counted).ceil() as u64;
            record.source.cpu_system_s += requests * true_starts * START_NS / 1e9;
            record.moved.goodput_bytes_per_s *= gain;
            records.push(record);
        }
    };
    for size in [16u32, 64, 128, 256, 1024].map(|kibibytes| kibibytes << 10) {
        put(Scenario::Cpu, size, 1, 0.0, 0.0, 1.0);
        put(Scenario::DiskSource, size, 1, 1.0, 1.0, 1.0);
        put(Scenario::DiskSink, size, 1, 1.0, 1.0, 1.0);
        put(Scenario::DiskDisk, size, 1, 1.0, 1.0, 1.0);
        if [16 << 10, 128 << 10, 1 << 20].contains(&size) {
            put(Scenario::DiskSource, size, 4, 0.25, 0.25, 2.2);
            match turns {
                true => put(Scenario::DiskSink, size, 4, 0.01, 1.0, 1.15),
                false => put(Scenario::DiskSink, size, 4, 0.25, 0.25, 2.0),
            }
        }
    }
    records
}

#[test]
fn what_shares_a_start_is_predicted_with_its_own_count() {
    for (turns, sink) in [(true, parts::Starts::TakeTurns), (false, parts::Starts::Told)] {
        let study = Study::of(&started(turns));
        let part = |part| study.chosen().into_iter().find(|one| one.part == part).unwrap();
        let source = part(Part::DiskSource);
        let cs = source.start_ns(64 << 10).unwrap();
        assert!((cs - START_NS).abs() < 0.05 * START_NS, "{cs}");
        assert_eq!(source.curve.sizes().count(), 8, "one curve over both depths");
        assert_eq!((source.starts, part(Part::DiskSink).starts), (parts::Starts::Told, sink));
        let disk_disk = &study.compositions[0];
        assert_eq!(disk_disk.scenario, Scenario::DiskDisk);
        for seen in &disk_disk.sizes {
            let error = seen.symmetric_error().unwrap();
            assert!(error < 0.04, "{turns}: {seen:?}");
            assert!((seen.starts_per_request.unwrap() - 1.0).abs() < 1e-3);
        }
    }
}

/// With one device each, both wake their own, although the engine counts the starts of both.
#[test]
fn two_devices_spare_each_other_nothing() {
    for turns in [true, false] {
        let mut records = started(turns);
        for record in &mut records {
            if record.place.as_ref().unwrap().scenario == Scenario::DiskDisk {
                record.source.cpu_system_s += cells::requests(record) * START_NS / 1e9;
            }
        }
        for two in [false, true] {
            for record in &mut records {
                record.conditions.has_two_devices = two;
            }
            let study = Study::of(&records);
            let worst = study.compositions[0].errors().into_iter().fold(0.0, f64::max);
            assert_eq!(worst < 0.04, two, "{turns}: {worst}");
        }
    }
}

/// The additional cost of waiting per request, for each end of a network.
const WAIT_NS: [f64; 2] = [17_000.0, 12_000.0];

/// A network that waits for a disk costs more, at both ends, than one that is never idle. The
/// slower half gives the difference; without halves it is unknown.
#[test]
fn a_network_that_waits_is_predicted_from_its_slower_half() {
    // The rates of the halves with the source's and the sink's disk, and their waits per request.
    let cases = [
        ([0.5, 0.8], [1.0, 0.2], halves::Network::Fed),
        ([0.8, 0.5], [0.2, 1.0], halves::Network::Drained),
    ];
    for (rates, waits, network) in cases {
        let mut records = planted(0.01);
        for record in &mut records {
            let (share, waits) = match record.place.as_ref().unwrap().scenario {
                Scenario::DiskNet => (rates[0], waits[0]),
                Scenario::NetDisk => (rates[1], waits[1]),
                Scenario::DiskNetDisk => (0.5, 1.0),
                _ => (1.0, 0.0),
            };
            record.moved.goodput_bytes_per_s *= share;
            let waits = waits * cells::requests(record) / 1e9;
            record.source.cpu_system_s += waits * WAIT_NS[0];
            if let Some(sink) = &mut record.sink {
                sink.cpu_system_s += waits * WAIT_NS[1];
            }
        }
        let whole = |study: &Study| -> Vec<Composition> {
            let of = |one: &&Composition| one.scenario == Scenario::DiskNetDisk;
            study.compositions.iter().filter(of).cloned().collect()
        };
        let worst = |errors: Vec<f64>| errors.into_iter().fold(0.0, f64::max);
        for one in whole(&Study::of(&records)) {
            assert!(one.sizes.iter().all(|seen| seen.network == network), "{one:?}");
            assert!(worst(one.errors()) < 0.03, "{one:?}");
            let flat = one.sizes.iter().filter_map(|seen| seen.flat_out_error()).collect();
            assert!(worst(flat) > 0.3, "{one:?}");
        }
        // Halves of the other kind of run (with or without a soaker) do not count.
        let is_half = |record: &Record| record.place.as_ref().unwrap().scenario.is_half();
        records.retain(|record| !is_half(record) || cells::is_soaked(record));
        let bare = Study::with(&records, None, CpuFrom::Bare);
        let soaked = Study::with(&records, None, CpuFrom::Soaked);
        assert!(whole(&bare).iter().all(|one| !one.has_halves() && worst(one.errors()) > 0.3));
        assert!(whole(&soaked).iter().all(|one| one.has_halves() && worst(one.errors()) < 0.03));
        // A half that failed a gate is void, not unmeasured.
        let of_half =
            |record: &&mut Record| record.place.as_ref().unwrap().scenario == Scenario::NetDisk;
        records.iter_mut().filter(of_half).for_each(|record| record.void_reason = Some("x".into()));
        let verdicts = verdicts::of(&Study::of(&records));
        let told = verdicts.iter().filter(|one| one.what.starts_with("disk-net-disk at"));
        let told: Vec<&Verdict> = told.collect();
        assert!(told.iter().all(|one| one.outcome == Outcome::Void), "{told:?}");
    }
}

/// How many interrupts the soaker absorbed is known from runs without one. Halves have no such run.
#[test]
fn of_halves_beside_a_soaker_idle_accounting_is_the_referee() {
    // Excess over the clocks by the soaker and by idle accounting; whether halves and others agree.
    let cases = [(0.3, 0.0, [true, false]), (0.0, 0.0, [true, true]), (0.0, 0.3, [false, false])];
    for (iterations, idle, agree) in cases {
        let mut records = planted(0.01);
        records.retain(cells::is_soaked);
        for record in &mut records {
            let own = record.source.cpu_s() + record.sink.as_ref().map_or(0.0, Side::cpu_s);
            record.machines[0].busy_idle_s = own * (1.0 + idle);
            record.machines[0].busy_iter_s = Some(own * (1.0 + iterations));
        }
        for referee in referee::of(&records.iter().collect::<Vec<_>>()) {
            let [half, other] = agree;
            let expect = if referee.scenario.is_half() { half } else { other };
            assert_eq!(referee.agrees(), expect, "{iterations} {idle}: {referee:?}");
        }
    }
}

const SEGMENT_NS: f64 = 6_000.0;
const SEGMENT_BYTES: f64 = 65_483.0;

/// Frames of `size` over a network, with a cost per segment. In whole transfers TCP combines small
/// frames: half as many segments.
fn segmented() -> Vec<Record> {
    let mut records = Vec::new();
    for scenario in [Scenario::Cpu, Scenario::DiskSource, Scenario::Net, Scenario::DiskNetDisk] {
        for kibibytes in [16u32, 32, 64, 128, 256, 1024] {
            let size = kibibytes << 10;
            let frame = f64::from(size) + 60.0;
            let together = if scenario == Scenario::Net || kibibytes > 32 { 1.0 } else { 0.5 };
            let segments = (frame / SEGMENT_BYTES).ceil() * together;
            for repeat in (0..12).step_by(2) {
                let wobble = 1.0 + 0.01 * f64::from(repeat % 3);
                let id = records.len() as i64 + 1;
                let mut record = planted_record(scenario, size, repeat, wobble, id);
                record.conditions.source_file_system = record.conditions.sink_file_system.clone();
                if scenario.has_net() {
                    let sent = segments * cells::requests(&record);
                    record.source.cpu_system_s += sent * SEGMENT_NS / 1e9;
                    record.moved.segments_sent = Some(sent);
                }
                records.push(record);
            }
        }
    }
    records
}

#[test]
fn segments_of_a_network_have_their_cost() {
    let sender = |study: &Study| {
        let chosen = study.chosen();
        (*chosen.iter().find(|one| one.part == Part::NetSink).unwrap()).clone()
    };
    let worst = |part: &parts::PartStudy| {
        part.curve.fits.iter().map(|fit| fit.max_error()).fold(0.0, f64::max)
    };
    let study = Study::of(&segmented());
    let told = sender(&study);
    let cs = told.curve.fit(64 << 10).cs_ns.unwrap().value;
    assert_eq!(told.starts, parts::Starts::Segments);
    assert!((cs / SEGMENT_NS - 1.0).abs() < 0.1 && worst(&told) < 0.03, "{cs} {}", worst(&told));
    let whole = study.compositions.iter().find(|one| one.end == ProcessRole::Source).unwrap();
    assert_eq!(whole.scenario, Scenario::DiskNetDisk);
    assert!(whole.errors().iter().all(|error| *error < 0.04), "{:?}", whole.sizes);
    // Older records have no counts.
    let mut records = segmented();
    records.iter_mut().for_each(|record| record.moved.segments_sent = None);
    let blind = sender(&Study::of(&records));
    assert_eq!(blind.starts, parts::Starts::None);
    assert!(worst(&blind) > 0.08, "{}", worst(&blind));
}

/// Interrupts on idle CPUs are on no thread's clock. The soaker must find as many of them as idle
/// accounting finds without it.
#[test]
fn the_referee_knows_interrupts() {
    // Excess over the clocks by idle accounting; by the soaker; whether they agree.
    let cases = [(0.3, 0.3, true), (0.3, 0.0, true), (0.3, 0.6, false), (0.0, 0.3, false)];
    for (idle, iterations, agree) in cases {
        let mut records = planted(0.01);
        for record in &mut records {
            let own = record.source.cpu_s() + record.sink.as_ref().map_or(0.0, Side::cpu_s);
            let soaked = cells::is_soaked(record);
            let machine = &mut record.machines[0];
            machine.busy_idle_s = if soaked { own } else { own * (1.0 + idle) };
            machine.busy_iter_s = soaked.then_some(own * (1.0 + iterations));
        }
        for referee in referee::of(&records.iter().collect::<Vec<_>>()) {
            assert_eq!(referee.agrees(), agree, "{idle} {iterations}: {referee:?}");
            assert!((referee.unclocked.unwrap() - idle).abs() < 0.01, "{referee:?}");
            let beside = (1.0 + idle) / (1.0 + iterations);
            assert!((referee.idle_to_soaker.unwrap() / beside - 1.0).abs() < 0.01, "{referee:?}");
        }
    }
}

/// Two ends on one host are judged separately only if the device was woken for each of them.
#[test]
fn ends_that_wake_one_device_together_are_void() {
    // Interrupts per request: reading alone, writing alone, both ends together.
    let cases = [
        ([1.0, 1.0, 2.0], Outcome::Passed),
        ([1.0, 1.0, 1.85], Outcome::Passed),
        ([1.0, 1.0, 1.0], Outcome::Void),
        ([0.0, 1.0, 1.0], Outcome::Passed),
        ([2.0, 2.0, 2.0], Outcome::Void),
    ];
    for (interrupts, outcome) in cases {
        let mut records = planted(0.02);
        for record in &mut records {
            let per_request = match record.place.as_ref().unwrap().scenario {
                Scenario::DiskSource => interrupts[0],
                Scenario::DiskSink => interrupts[1],
                Scenario::DiskNetDisk => interrupts[2],
                _ => 0.0,
            };
            let count = per_request * cells::requests(record);
            record.conditions.device_interrupts = Some(count as u64);
        }
        let verdicts = verdicts::of(&Study::of(&records));
        let ends = verdicts.iter().filter(|one| one.what.starts_with("disk-net-disk at"));
        let told: Vec<&Verdict> = ends.collect();
        assert_eq!(told.len(), 2);
        for one in told {
            assert_eq!(one.outcome, outcome, "{interrupts:?}: {one:?}");
            let named = one.because.contains("one-device at 5 of 5 sizes (preliminary:");
            assert_eq!(named, outcome == Outcome::Void, "{one:?}");
        }
        // Two hosts have one device each.
        for record in records.iter_mut().filter(|record| record.sink.is_some()) {
            record.machines.push(record.machines[0].clone());
        }
        let verdicts = verdicts::of(&Study::of(&records));
        let mut ends = verdicts.iter().filter(|one| one.what.starts_with("disk-net-disk at"));
        assert!(ends.all(|one| one.outcome == Outcome::Passed), "{verdicts:?}");
    }
}

/// Records of older versions have no starts: each request counts as one, as in the fit.
#[test]
fn without_counts_nothing_is_shared() {
    let mut records = started(true);
    records.iter_mut().for_each(|record| record.source.starts = 0);
    let study = Study::of(&records);
    let source = study.chosen().into_iter().find(|one| one.part == Part::DiskSource).unwrap();
    assert_eq!((source.starts, source.curve.sizes().count()), (parts::Starts::NotCounted, 5));
    let seen = &study.compositions[0].sizes[0];
    assert!(seen.predicted_ns > 1.3 * seen.observed_ns.unwrap(), "{seen:?}");
}

#[test]
fn either_kind_of_run_is_studied() {
    let mut records = planted(0.01);
    for record in records.iter_mut().filter(|record| cells::is_soaked(record)) {
        record.source.cpu_user_s *= 3.0;
        record.source.cpu_system_s *= 3.0;
        record.source.kernel_threads_s.values_mut().for_each(|spent| *spent *= 3.0);
        record.moved.goodput_bytes_per_s *= 0.9;
    }
    let cr = |study: &Study, part| {
        study.chosen().iter().find(|one| one.part == part).unwrap().curve.fits[0].cr_ns.value
    };
    for (full, times) in [(CpuFrom::Soaked, 3.0), (CpuFrom::Bare, 1.0)] {
        let studies = Studies::of(&records, None, full);
        let other = studies.other.as_ref().unwrap();
        assert!(other.cpu_from != full && studies.full.cpu_from == full);
        let found = cr(&studies.full, Part::DiskSink);
        assert!((found / DISK_SINK.1 - times).abs() < 0.1 * times, "{full:?}: {found}");
        // Copies have no soaker, whichever kind the page shows.
        let model = studies.hosts(|_| "a".into()).pop().unwrap();
        let sink = model.component(Part::DiskSink, "ext4 direct").unwrap();
        let cr = sink.regimes[0].cr_ns.value;
        assert!((cr / DISK_SINK.1 - 1.0).abs() < 0.1, "{cr}");
        let soaking = &studies.soaking[0];
        let (rate, source) = (soaking.rate.unwrap(), soaking.source.unwrap());
        assert!((rate.value - 0.9).abs() < 0.02 && rate.high < 1.0, "{rate:?}");
        assert!((source.value - 3.0).abs() < 0.1, "{source:?}");
        assert_eq!(soaking.n, (5, 5));
    }
    records.retain(cells::is_soaked);
    let studies = Studies::of(&records, None, CpuFrom::Soaked);
    assert!(studies.other.is_none() && studies.soaking.is_empty());
}

#[test]
fn a_size_with_few_runs_is_not_judged() {
    // Failed runs with a soaker leave too few at two of five sizes, and at four.
    let cases: [(&[u32], Outcome, &str); 2] = [
        (&[16, 64], Outcome::Passed, "3 of 5 sizes; fewer than 3 valid runs at 16K, 64K; void:"),
        (&[16, 64, 128, 256], Outcome::Void, "1 of 5 sizes; fewer than 3 valid runs at 16K, 64K"),
    ];
    for (sizes, outcome, because) in cases {
        let mut records = planted(0.02);
        let few = |record: &&mut Record| {
            let place = record.place.as_ref().unwrap();
            let here = place.scenario == Scenario::DiskDisk && place.repeat > 3;
            here && sizes.contains(&(record.options.request_bytes >> 10))
        };
        for record in records.iter_mut().filter(few) {
            record.void_reason = Some("steal".into());
        }
        let verdicts = verdicts::of(&Study::of(&records));
        let one = verdicts.iter().find(|one| one.what.starts_with("disk-disk at")).unwrap();
        assert_eq!(one.outcome, outcome, "{one:?}");
        assert!(one.because.contains(because), "{one:?}");
        assert!(one.because.ends_with("void: steal"), "{one:?}");
    }
}

/// A small file that is read too quickly to judge gives "not measured", not a failure.
#[test]
fn short_runs_fail_nothing() {
    for (elapsed_s, outcome) in [(0.1, Outcome::NotMeasured), (1.0, Outcome::Failed)] {
        let mut records = planted(0.02);
        for record in &mut records {
            let place = record.place.as_ref().unwrap();
            if place.scenario == Scenario::DiskSource && record.options.request_bytes == 64 << 10 {
                record.source.cpu_user_s *= 20.0;
            }
            record.moved.elapsed_s = elapsed_s;
        }
        let verdicts = verdicts::of(&Study::of(&records));
        let of = |what: &str| verdicts.iter().find(|one| one.what.starts_with(what)).unwrap();
        let one = of("disk source alone");
        assert_eq!(one.outcome, outcome, "{one:?}");
        assert_eq!(one.because.contains("runs of 0.10 s are too short"), elapsed_s < 0.5);
        assert_eq!(of("disk sink alone").outcome, Outcome::Passed);
    }
}
