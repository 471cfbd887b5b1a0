//! Paths as numbers, and what the controller makes of them.

use super::*;
use crate::pump::run::shared_path::{Choose, Flow, Shared};

const MSS: f64 = 1448.0;

/// A path of 100 Mbit/s of payload and 100 ms, with a queue, as one stream meets it: what is
/// sent faster than it drains is lost once the queue is full.
struct Link {
    capacity: f64,
    queue_bytes: f64,
    /// What the stream sends without a pace: its bursts, and how they repeat.
    unpaced: fn(u64) -> f64,
    waits: f64,
    lost_bytes: f64,
    sample: PathSample,
}

const STEP_MS: u64 = 10;
const CAPACITY: f64 = 12.0e6;

impl Link {
    fn new(queue_bytes: f64, unpaced: fn(u64) -> f64) -> Link {
        let rtt = Nanos::from_millis(100);
        let mss_bytes = MSS as u32;
        let sample = PathSample { rtt, rtt_min: rtt, mss_bytes, ..PathSample::default() };
        Link { capacity: CAPACITY, queue_bytes, unpaced, waits: 0.0, lost_bytes: 0.0, sample }
    }

    /// The next 10 ms at a pace.
    fn step(&mut self, pace: Option<u64>) -> Look {
        let seconds = STEP_MS as f64 / 1e3;
        let step = self.sample.at.0 / (STEP_MS * 1_000_000);
        let offered = (self.unpaced)(step).min(pace.map_or(f64::MAX, |pace| pace as f64));
        let sample = &mut self.sample;
        self.waits += (offered - self.capacity) * seconds;
        let lost = (self.waits - self.queue_bytes).max(0.0);
        self.waits = self.waits.clamp(0.0, self.queue_bytes);
        let delivered = (offered * seconds - lost).min(self.capacity * seconds);
        sample.at = sample.at.after(Nanos::from_millis(STEP_MS));
        sample.rtt = Nanos(sample.rtt_min.0 + (self.waits / self.capacity * 1e9) as u64);
        sample.bytes_acked += delivered as u64;
        sample.bytes_sent += (offered * seconds) as u64;
        self.lost_bytes += lost;
        sample.segments_retransmitted = (self.lost_bytes / MSS) as u64;
        Look {
            stream: 0,
            sample: *sample,
            delivered_segments: sample.bytes_acked / u64::from(sample.mss_bytes),
        }
    }

    /// Runs for this many seconds with a pace controller; returns the pace at the end.
    fn run(&mut self, pace_controller: &mut PaceController, seconds: u64) -> Option<u64> {
        let mut pace = None;
        for _ in 0..seconds * 1000 / STEP_MS {
            let look = self.step(pace);
            pace = pace_controller.look(look.sample.at, &[look]);
        }
        pace
    }
}

/// Fills the path, then a burst of a window at the host's own speed, once in two seconds.
fn bursts(step: u64) -> f64 {
    if step % 200 < 3 && step > 100 { 100e6 } else { 11.9e6 }
}

/// As much as the window allows, a little more than the path carries.
fn steady(_: u64) -> f64 {
    12.2e6
}

fn slow(_: u64) -> f64 {
    5e6
}

#[test]
fn a_pace_is_set_where_bursts_are_lost_and_the_queue_is_short() {
    type Case = (&'static str, f64, fn(u64) -> f64, Option<(f64, f64)>);
    let cases: [Case; 4] = [
        // At 1.18 of the path a burst of 30 ms fits into the queue.
        ("bursts, a short queue", 64e3, bursts, Some((0.85, 1.2))),
        ("bursts, a deep queue", 6e6, bursts, None),
        ("a little more than it carries, a deep queue", 3e6, steady, None),
        ("less than it carries", 64e3, slow, None),
    ];
    for (name, queue_bytes, unpaced, expect) in cases {
        let mut pace_controller = PaceController::new(DeepQueue::Fills);
        let pace = Link::new(queue_bytes, unpaced).run(&mut pace_controller, 60);
        let share = pace.map(|pace| pace as f64 / CAPACITY);
        match (share, expect) {
            (None, None) => {}
            (Some(share), Some((low, high))) => {
                assert!((low..=high).contains(&share), "{name}: {share:.3} of the path");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn a_pace_follows_a_path_that_becomes_faster_or_slower() {
    let mut pace_controller = PaceController::new(DeepQueue::Fills);
    let mut link = Link::new(64e3, |step| if step % 200 < 3 { 100e6 } else { 30e6 });
    let before = link.run(&mut pace_controller, 20).unwrap() as f64;
    assert!((0.8..=1.02).contains(&(before / CAPACITY)), "{before}");
    link.capacity = CAPACITY / 2.0;
    let slower = link.run(&mut pace_controller, 20).unwrap() as f64;
    assert!((0.7..=1.02).contains(&(slower / link.capacity)), "{slower}");
    link.capacity = CAPACITY * 1.5;
    let faster = link.run(&mut pace_controller, 200).unwrap() as f64;
    assert!((0.85..=1.02).contains(&(faster / link.capacity)), "{faster}");
}

#[test]
fn a_segment_lost_now_and_then_is_no_burst() {
    let mut pace_controller = PaceController::new(DeepQueue::Fills);
    let rtt = Nanos::from_millis(100);
    let mut sample = PathSample { rtt, rtt_min: rtt, mss_bytes: 1448, ..PathSample::default() };
    for step in 0..10_000_u64 {
        sample.at = sample.at.after(Nanos::from_millis(STEP_MS));
        sample.bytes_acked += 10_000;
        sample.segments_retransmitted += u64::from(step % 50 == 0) * 3;
        let look = Look { stream: 0, sample, delivered_segments: sample.bytes_acked / 1448 };
        assert_eq!(pace_controller.look(sample.at, &[look]), None, "step {step}");
    }
}

#[test]
fn streams_that_come_and_go_are_added_up() {
    let mut pace_controller = PaceController::new(DeepQueue::Fills);
    let mut links: Vec<Link> = (0..4).map(|_| Link::new(16e3, bursts)).collect();
    links.iter_mut().for_each(|link| link.capacity = CAPACITY / 4.0);
    let mut pace = None;
    for step in 0..1000 {
        let count = if step < 500 { 4 } else { 3 };
        let each = pace.map(|pace| pace / count as u64);
        let looks = links.iter_mut().take(count).zip(0..);
        let looks: Vec<Look> =
            looks.map(|(link, stream)| Look { stream, ..link.step(each) }).collect();
        pace = pace_controller.look(looks[0].sample.at, &looks);
    }
    let share = pace.unwrap() as f64 / (CAPACITY * 3.0 / 4.0);
    assert!((0.8..=1.1).contains(&share), "{share:.3} of the path");
}

fn chooser(by_rate: bool, paced: bool) -> Option<Choose> {
    let deep_queue = if by_rate { DeepQueue::Overruns } else { DeepQueue::Fills };
    let mut controller = PaceController::new(deep_queue);
    paced.then(|| Box::new(move |at, looks: &[Look]| controller.look(at, looks)) as Choose)
}

/// Beside others a pace takes nothing from us, and it is gone soon after they are.
#[test]
fn a_pace_leaves_our_share_beside_others() {
    for by_rate in [false, true] {
        for queue_bytes in [64e3, 375e3] {
            for rivals in [1, 4, 8] {
                let [paced, unpaced] = [true, false].map(|paced| {
                    let mut shared = Shared::new(by_rate, queue_bytes, chooser(by_rate, paced));
                    let alone = shared.share(15.0);
                    shared.rivals.extend((0..rivals).map(|_| Flow::new(false)));
                    shared.share(5.0);
                    let beside = shared.share(40.0);
                    shared.rivals.clear();
                    shared.share(2.0);
                    let after = shared.share(10.0);
                    (alone, beside, after)
                });
                let case = format!(
                    "by rate {by_rate}, {queue_bytes} bytes of queue, {rivals} rivals: paced \
                     {paced:.3?}, unpaced {unpaced:.3?}"
                );
                assert!(paced.1 >= 0.9 * unpaced.1, "{case}");
                assert!(paced.2 >= 0.95 * unpaced.2, "{case}");
                assert!(paced.0 >= 0.95 * unpaced.0, "{case}");
            }
        }
    }
}
