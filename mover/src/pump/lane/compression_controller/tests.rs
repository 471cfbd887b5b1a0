//! The controller replayed over simulated CPUs, links and receivers, against each fixed coding.

use base::codec::{Codec, CodecTime};
use std::collections::BTreeMap;
use std::ops::Range;

use super::*;

/// The real cost of compression, in megabytes a second and ratio, for each rung but raw: measured
/// on one core (runs/2026-11-21-codecs.md).
type Truth = [(f64, f64); RUNGS - 1];

const ZEROS: Truth = [
    (8000.0, 254.0),
    (9000.0, 9000.0),
    (9000.0, 9000.0),
    (8000.0, 9000.0),
    (2100.0, 9000.0),
    (2100.0, 9000.0),
];
const NOISY: Truth =
    [(8000.0, 1.0), (5000.0, 1.0), (5000.0, 1.0), (4500.0, 1.0), (2500.0, 1.0), (1000.0, 1.0)];
const RECORDS: Truth =
    [(1500.0, 4.2), (1200.0, 4.5), (900.0, 5.6), (800.0, 5.9), (210.0, 6.1), (150.0, 6.1)];
const TEXT: Truth =
    [(500.0, 2.3), (400.0, 2.7), (330.0, 3.3), (250.0, 3.6), (110.0, 3.9), (60.0, 4.1)];

#[derive(Clone, Copy)]
struct Scene {
    /// The kind of data of each payload.
    data: Kinds,
    /// Bytes a second, before and after the middle.
    link: (f64, f64),
    workers: usize,
    /// Seconds in which the receiver decompresses a byte, on all its CPUs.
    decompresses: f64,
}

const PAYLOAD: u32 = 1 << 20;
const PAYLOADS: u64 = 8000;
const UNDER_WAY: usize = 8;

enum Policy {
    Fixed(usize),
    Auto(Box<Controller>),
}

/// Something that the controller is told when its time has come.
enum Feedback {
    Compressed(Compressibility, Coding, u32, Nanos),
    Sent(u32, Nanos),
}

/// Payload bytes a second that a policy reaches.
fn run(scene: &Scene, mut policy: Policy) -> f64 {
    let mut free = vec![0.0_f64; scene.workers];
    let (mut wire_free, mut receiver_free) = (0.0_f64, 0.0_f64);
    let mut done: Vec<f64> = Vec::new();
    let mut feedback: BTreeMap<(u64, u64), Feedback> = BTreeMap::new();
    let mut news = (0.0, 0_u64, 0.0);
    let tick = |seconds: f64| Tick((seconds * 1e9) as u64);
    let nanos = |seconds: f64| Nanos((seconds * 1e9) as u64);
    for payload in 0..PAYLOADS {
        let truth = (scene.data)(payload);
        let link = if payload < PAYLOADS / 2 { scene.link.0 } else { scene.link.1 };
        let departs = (payload as usize).checked_sub(UNDER_WAY).map_or(0.0, |before| done[before]);
        let worker = (0..free.len()).min_by(|a, b| free[*a].total_cmp(&free[*b])).unwrap();
        let begins = departs.max(free[worker]);
        let (rung, class, is_timed) = match &mut policy {
            Policy::Fixed(rung) => (*rung, NOISE, false),
            Policy::Auto(controller) => {
                tell(controller, &mut feedback, tick(begins));
                let class = Compressibility::of_ratio(truth[0].1);
                let is_seen = payload.is_multiple_of(u64::from(controller.left_out()) + 1);
                let coding = match controller.compresses() && is_seen {
                    true => controller.choose(tick(begins), class, PAYLOAD),
                    false => Coding::Raw,
                };
                let is_timed = controller.is_timed(tick(begins), class, coding);
                (LADDER.iter().position(|other| *other == coding).unwrap(), class, is_timed)
            }
        };
        let (seconds, size) = match rung {
            0 => (0.0, 1.0),
            rung => {
                let (speed, ratio) = truth[rung - 1];
                // Some payloads take longer than others.
                let noise = 1.0 + 0.15 * ((payload * 37 % 11) as f64 / 5.0 - 1.0);
                (f64::from(PAYLOAD) / speed / 1e6 * noise, 1.0 / ratio)
            }
        };
        let bytes = f64::from(PAYLOAD) * size;
        let ends = begins + seconds;
        free[worker] = ends;
        // A full window delays the wire while the receiver is behind.
        let admitted = ends.max(wire_free);
        let sends = admitted.max(receiver_free - 0.01);
        wire_free = sends + bytes / link;
        let takes =
            if rung > 0 && size < 1.0 { scene.decompresses * f64::from(PAYLOAD) } else { 0.0 };
        receiver_free = wire_free.max(receiver_free) + takes;
        done.push(receiver_free);
        news = (news.0 + takes, news.1 + u64::from(takes > 0.0), news.2);
        if let Policy::Auto(controller) = &mut policy {
            if is_timed {
                let result =
                    Feedback::Compressed(class, LADDER[rung], bytes as u32, nanos(seconds));
                feedback.insert((tick(ends).0, 2 * payload), result);
            }
            let sent = Feedback::Sent(bytes as u32, nanos(wire_free - admitted));
            feedback.insert((tick(wire_free).0, 2 * payload + 1), sent);
            if receiver_free - news.2 > 0.25 && news.1 > 0 {
                let elapsed = nanos(receiver_free - news.2);
                let raw_bytes = news.1 * u64::from(PAYLOAD);
                let time = CodecTime { raw_bytes, spent: nanos(news.0) };
                controller.record_decompression_time(&of_one(LADDER[rung].codec(), time, elapsed));
                news = (0.0, 0, receiver_free);
            }
        }
    }
    PAYLOADS as f64 * f64::from(PAYLOAD) / done[done.len() - 1]
}

/// Tells the controller all that has happened by now.
fn tell(controller: &mut Controller, feedback: &mut BTreeMap<(u64, u64), Feedback>, now: Tick) {
    while let Some(entry) = feedback.first_entry().filter(|entry| entry.key().0 <= now.0) {
        let at = Tick(entry.key().0);
        match entry.remove() {
            Feedback::Compressed(class, coding, compressed, spent) => {
                controller.compressed(class, coding, PAYLOAD, compressed, undisturbed(spent));
            }
            Feedback::Sent(wire_bytes, held_up) => {
                let sent = Sent { raw_bytes: PAYLOAD, wire_bytes, held_up };
                controller.sent(at, sent, 1);
            }
        }
    }
}

fn undisturbed(spent: Nanos) -> Took {
    Took { elapsed: spent, cpu: spent }
}

fn of_one(codec: Codec, codec_time: CodecTime, elapsed: Nanos) -> DecompressionTime {
    let mut report = DecompressionTime { elapsed, workers: 1, ..DecompressionTime::default() };
    report.by_codec[codec as usize] = codec_time;
    report
}

fn auto(scene: &Scene) -> f64 {
    run(scene, Policy::Auto(Box::new(Controller::new(Tick(0), scene.workers))))
}

fn best_fixed(scene: &Scene) -> (f64, usize) {
    let all = (0..RUNGS).map(|rung| (run(scene, Policy::Fixed(rung)), rung));
    all.max_by(|(one, _), (other, _)| one.total_cmp(other)).unwrap()
}

fn mixed(payload: u64) -> &'static Truth {
    if payload.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 0 { &RECORDS } else { &NOISY }
}

fn runs(payload: u64) -> &'static Truth {
    if (payload / 64).is_multiple_of(2) { &TEXT } else { &NOISY }
}

/// What kind of data each payload is of.
type Kinds = fn(u64) -> &'static Truth;

const DATA: [(&str, Kinds); 6] = [
    ("zeros", |_| &ZEROS),
    ("noise", |_| &NOISY),
    ("records", |_| &RECORDS),
    ("text", |_| &TEXT),
    ("mix", mixed),
    ("runs", runs),
];

#[test]
fn it_is_as_fast_as_the_best_fixed_way() {
    let mut worst = (f64::MAX, String::new());
    let mut shares = Vec::new();
    for (name, data) in DATA {
        for megabytes in [1.25, 6.0, 12.5, 50.0, 125.0, 1000.0, 2500.0] {
            for workers in [1, 2] {
                let link = (megabytes * 1e6, megabytes * 1e6);
                let scene = Scene { data, link, workers, decompresses: 0.0 };
                let (best, rung) = best_fixed(&scene);
                let share = auto(&scene) / best;
                let cell =
                    format!("{name}, {megabytes} MB/s, {workers} workers: {share:.3} of {rung}");
                shares.push(share);
                if share < worst.0 {
                    worst = (share, cell);
                }
            }
        }
    }
    shares.sort_by(f64::total_cmp);
    // The worst case: text and noise in turns on links of 125 MB/s and more.
    assert!(worst.0 > 0.93, "{}", worst.1);
    assert!(shares[shares.len() / 10] > 0.96, "a tenth of the cells is below {shares:?}");
    assert!(shares[shares.len() / 4] > 0.98, "a quarter of the cells is below {shares:?}");
}

#[test]
fn it_follows_a_wire_that_changes() {
    for (name, data) in DATA {
        for (before, behind) in [(12.5e6, 50e6), (50e6, 12.5e6), (1e9, 25e6), (25e6, 1e9)] {
            let scene = Scene { data, link: (before, behind), workers: 2, decompresses: 0.0 };
            let (best, rung) = best_fixed(&scene);
            let share = auto(&scene) / best;
            assert!(share > 0.9, "{name}, {before} then {behind}: {share:.3} of rung {rung}");
        }
    }
}

#[test]
fn it_sees_a_slow_receiver() {
    // It decompresses 30 MB/s; the wire carries 100 MB/s raw.
    let scene =
        Scene { data: |_| &RECORDS, link: (100e6, 100e6), workers: 2, decompresses: 1.0 / 30e6 };
    let (best, rung) = best_fixed(&scene);
    let share = auto(&scene) / best;
    assert!(rung == 0 && share > 0.9, "{share:.3} of rung {rung}");
}

#[test]
fn the_same_numbers_give_the_same_ways() {
    let scene = Scene { data: mixed, link: (50e6, 50e6), workers: 2, decompresses: 0.0 };
    assert_eq!(auto(&scene), auto(&scene));
}

#[test]
fn a_fast_wire_is_not_held_up_by_looks_at_noise() {
    for (link, most) in [(2e9, LEFT_OUT_MAX), (10e6, 0)] {
        let mut controller = Controller::new(Tick(0), 2);
        let held_up = Nanos((f64::from(PAYLOAD) / link * 1e9) as u64);
        let mut now = Tick(0);
        let mut look = |class, times| {
            for _ in 0..times {
                controller.choose(now, class, PAYLOAD);
                now = now.after(held_up);
                let sent = Sent { raw_bytes: PAYLOAD, wire_bytes: PAYLOAD, held_up };
                controller.sent(now, sent, 1);
            }
            controller.left_out()
        };
        assert_eq!(look(NOISE, LEFT_OUT_SHARE - 1), 0);
        assert_eq!(look(NOISE, 1000), most, "{link}");
        assert_eq!(look(Compressibility::of_ratio(2.0), 1), 0, "what shrinks is seen at once");
    }
}

/// The result of a payload.
struct Came {
    compressed: u32,
    took: Took,
    lasts: Nanos,
    held_up: Nanos,
}

/// Payloads of one class, each compressed as the controller says; returns when the last had left.
fn replay(
    controller: &mut Controller,
    class: Compressibility,
    from: Tick,
    payloads: Range<u64>,
    mut comes: impl FnMut(u64, usize) -> Came,
) -> Tick {
    let mut now = from;
    for payload in payloads {
        let coding = controller.choose(now, class, PAYLOAD);
        let rung = LADDER.iter().position(|other| *other == coding).unwrap();
        let Came { compressed, took, lasts, held_up } = comes(payload, rung);
        if controller.is_timed(now, class, coding) {
            controller.compressed(class, coding, PAYLOAD, compressed, took);
        }
        now = now.after(lasts);
        controller.sent(now, Sent { raw_bytes: PAYLOAD, wire_bytes: compressed, held_up }, 4);
    }
    now
}

const ZEROS_CLASS: Compressibility = Compressibility(6);

#[test]
fn a_wire_that_holds_nobody_up_has_no_high_price() {
    // Zeros, a few bytes for each payload: nothing is gained by compressing them harder.
    let mut controller = Controller::new(Tick(0), 2);
    let mut spent_s = 0.0;
    replay(&mut controller, ZEROS_CLASS, Tick(0), 0..4000, |payload, rung| {
        // Each rung makes a little less of them, and takes longer.
        let spent = Nanos(100_000 * (1 + rung as u64));
        spent_s += if payload > 200 { spent.seconds() } else { 0.0 };
        Came {
            compressed: 64 - 4 * rung as u32,
            took: undisturbed(spent),
            lasts: spent,
            held_up: Nanos(5_000),
        }
    });
    let mean_us = spent_s / 3800.0 * 1e6;
    assert!(mean_us < 230.0, "{mean_us} µs a payload, 200 with the fastest rung");
}

/// Zeros: LZ4 takes half of the CPU time of the others.
fn zeros_take(rung: usize) -> Nanos {
    Nanos(if rung == 1 { 100_000 } else { 150_000 + 50_000 * rung as u64 })
}

#[test]
fn who_waits_for_a_processor_is_not_slow() {
    // Some payloads wait for a CPU thirty times as long as they take.
    let mut controller = Controller::new(Tick(0), 2);
    let mut fastest = 0;
    replay(&mut controller, ZEROS_CLASS, Tick(0), 0..4000, |payload, rung| {
        let cpu = zeros_take(rung);
        let waits = payload.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62 == 0;
        let elapsed = Nanos(cpu.0 * if waits { 30 } else { 1 });
        fastest += u64::from(rung == 1);
        Came { compressed: 64, took: Took { elapsed, cpu }, lasts: elapsed, held_up: Nanos(5_000) }
    });
    assert!(fastest > 3600, "{fastest} of 4000 the fastest way");
}

#[test]
fn what_the_receiver_seems_to_take_less_for_is_not_run_after() {
    // Everything waits for the receiver. It takes as long for either format; of the few payloads
    // that are tried, some wait for a CPU there, or none does.
    let mut controller = Controller::new(Tick(0), 2);
    let (mut now, mut fastest) = (Tick(0), 0);
    for report in 0..40_u64 {
        now = replay(
            &mut controller,
            ZEROS_CLASS,
            now,
            100 * report..100 * (report + 1),
            |_, rung| {
                fastest += u64::from(rung == 1);
                let took = undisturbed(zeros_take(rung));
                Came { compressed: 64, took, lasts: Nanos(240_000), held_up: Nanos(5_000) }
            },
        );
        let codec_time = |payloads: u64, each_ns: u64| CodecTime {
            raw_bytes: payloads * u64::from(PAYLOAD),
            spent: Nanos(payloads * each_ns),
        };
        let mut times = of_one(Codec::Lz4, codec_time(95, 240_000), Nanos(24_000_000));
        times.by_codec[Codec::Zstd as usize] =
            codec_time(5, [100_000, 480_000][(report % 2) as usize]);
        controller.record_decompression_time(&times);
    }
    assert!(fastest > 3600, "{fastest} of 4000 the fastest way");
}

#[test]
fn of_what_is_as_fast_the_thriftier_is_taken() {
    // Everything waits for the wire, and every coding makes the same of the data.
    const SAME: Truth =
        [(900.0, 4.0), (600.0, 4.0), (500.0, 4.0), (400.0, 4.0), (300.0, 4.0), (200.0, 4.0)];
    let mut controller = Controller::new(Tick(0), 2);
    let class = Compressibility::of_ratio(4.0);
    replay(&mut controller, class, Tick(0), 0..2000, |_, rung| {
        let (compressed, seconds) = match rung {
            0 => (PAYLOAD, 0.0),
            _ => (PAYLOAD / 4, f64::from(PAYLOAD) / SAME[rung - 1].0 / 1e6),
        };
        let held_up = Nanos(u64::from(compressed) * 80 * 4);
        let lasts = Nanos(held_up.0 / 4);
        Came { compressed, took: undisturbed(Nanos((seconds * 1e9) as u64)), lasts, held_up }
    });
    assert_eq!(LADDER[controller.plan[class.index()]], Coding::Lz4);
}

#[test]
fn odd_payloads_spoil_no_way_for_good() {
    // Text on a wire of 1 Gbit/s; the first payloads of its class are mostly noise, as where one
    // kind of data follows another, and take next to no time.
    let mut controller = Controller::new(Tick(0), 2);
    let mut sizes = 0.0;
    replay(&mut controller, Compressibility::of_ratio(2.0), Tick(0), 0..3000, |payload, rung| {
        let (seconds, size) = match rung {
            0 => (0.0, 1.0),
            _ if payload < 40 => (1e-5, 1.0),
            _ => (f64::from(PAYLOAD) / TEXT[rung - 1].0 / 1e6, 1.0 / TEXT[rung - 1].1),
        };
        sizes += if payload >= 1500 { size / 1500.0 } else { 0.0 };
        let compressed = (f64::from(PAYLOAD) * size) as u32;
        let wire = f64::from(compressed) / 125e6;
        let nanos = |seconds: f64| Nanos((seconds * 1e9) as u64);
        // All four lanes wait for the wire.
        let (lasts, held_up) = (nanos(wire.max(seconds / 2.0)), nanos(4.0 * wire));
        Came { compressed, took: undisturbed(nanos(seconds)), lasts, held_up }
    });
    assert!(sizes < 0.33, "{sizes} of the bytes, 0.30 with zstd 1");
}

#[test]
fn a_clock_that_saw_nothing_of_a_payload_spoils_no_way() {
    let mut cost = guess(6, 1);
    for seconds in [0.0, 1e-10, 1e-10, 1e-10, 1e-10, 1e-10, 1e-10, 1e-10, 1e-10] {
        cost.add(seconds, 0.1);
    }
    for _ in 0..200 {
        cost.add(1e-10, 0.1);
    }
    assert!((0.9e-10..1.1e-10).contains(&cost.seconds), "{}", cost.seconds);
}

#[test]
fn noise_does_not_keep_others_from_being_timed() {
    let mut controller = Controller::new(Tick(0), 2);
    let class = Compressibility::of_ratio(2.0);
    let mut timed = 0;
    for payload in 0..10_000_u64 {
        let now = Tick(payload * 100_000);
        for class in [NOISE, class] {
            let coding = controller.choose(now, class, PAYLOAD);
            if controller.is_timed(now, class, coding) {
                assert_ne!(coding, Coding::Raw);
                controller.compressed(
                    class,
                    coding,
                    PAYLOAD,
                    PAYLOAD / 2,
                    undisturbed(Nanos(1_000_000)),
                );
                timed += 1;
            }
        }
    }
    // A second of them, timed every 2 ms.
    assert!((400..700).contains(&timed), "{timed} of 10000 timed");
}

#[test]
fn plans_that_are_alike_do_not_take_turns() {
    // Raw, the wire is done in 10.5 ns a byte; compressed, the receiver in 10.
    let mut controller = Controller::new(Tick(0), 2);
    let class = Compressibility::of_ratio(2.0);
    controller.shares[class.index()] = 1.0;
    controller.link.rate = Some(95e6);
    controller.receiver.seconds = [10e-9; Codec::COUNT];
    controller.receiver.seconds[Codec::Raw as usize] = 0.0;
    let mut changes = 0;
    for _ in 0..100 {
        let before = controller.plan;
        controller.decide();
        changes += u32::from(controller.plan != before);
    }
    assert!(changes <= 1, "{changes} changes of the plan");
}

#[test]
fn who_sends_next_to_nothing_doubts_a_slow_wire_too() {
    let mut link = Link::new(Tick(0));
    let step = Nanos(1_000_000);
    let mut now = Tick(0);
    // A receiver without a CPU looked like a wire of 15 MB/s.
    for _ in 0..100 {
        now = now.after(step);
        link.sent(now, 15_000, step, 1, false);
    }
    assert!(link.is_evident && !link.is_raised);
    for _ in 0..10_000 {
        now = now.after(step);
        link.sent(now, 51, Nanos(0), 1, false);
    }
    assert!(link.is_raised);
    let rate = link.rate.unwrap();
    assert!(rate > 1e9, "{rate} bytes a second are still believed");
}
