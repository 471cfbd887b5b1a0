//! Paths as numbers, and what the controller makes of them.

use super::*;

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

/// A flow that shares a path: it adds a segment to its window each round trip, and keeps 0.7 of it
/// when something was lost (Reno with CUBIC's factor); or it sends by the highest rate at which it
/// was delivered in ten round trips (as BBR does).
#[derive(Debug)]
struct Flow {
    by_rate: bool,
    window: f64,
    slow_start: bool,
    lost_bytes: f64,
    reacts_at: Option<f64>,
    blind_until: f64,
    rates: VecDeque<(f64, f64)>,
    acked_bytes: f64,
}

impl Flow {
    fn new(by_rate: bool) -> Flow {
        Flow {
            by_rate,
            window: 10.0 * MSS,
            slow_start: true,
            lost_bytes: 0.0,
            reacts_at: None,
            blind_until: 0.0,
            rates: VecDeque::new(),
            acked_bytes: 0.0,
        }
    }

    fn rate(&self, at: f64, base: f64, rtt: f64) -> f64 {
        if !self.by_rate || self.slow_start {
            return self.window / rtt;
        }
        let seen = self.rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let gain = match (at / base) as u64 % 8 {
            0 => 1.25,
            1 => 0.75,
            _ => 1.0,
        };
        (gain * seen).min(2.0 * seen * base / rtt)
    }

    /// What became of the bytes of `seconds`.
    fn hear(&mut self, at: f64, seconds: f64, rtt: f64, (delivered, lost): (f64, f64)) {
        self.acked_bytes += delivered;
        self.lost_bytes += lost;
        self.rates.push_back((at, delivered / seconds));
        while self.rates.front().is_some_and(|(then, _)| at - then > 10.0 * rtt) {
            self.rates.pop_front();
        }
        match self.slow_start {
            true => self.window += delivered,
            false => self.window += MSS * seconds / rtt,
        }
        if lost > 0.0 && self.reacts_at.is_none() && at >= self.blind_until {
            self.reacts_at = Some(at + rtt);
        }
        if self.reacts_at.is_some_and(|then| at >= then) {
            self.window = (self.window * 0.7).max(2.0 * MSS);
            (self.slow_start, self.reacts_at, self.blind_until) = (false, None, at + rtt);
        }
    }
}

/// Our streams and rivals on one path of 100 Mbit/s and 30 ms.
struct Shared {
    queue_bytes: f64,
    waits: f64,
    at: f64,
    ours: Vec<Flow>,
    rivals: Vec<Flow>,
    pace_controller: Option<PaceController>,
    pace: Option<u64>,
}

const BASE_S: f64 = 0.030;
const OURS: usize = 4;

impl Shared {
    fn new(by_rate: bool, queue_bytes: f64, paced: bool) -> Shared {
        let deep_queue = if by_rate { DeepQueue::Overruns } else { DeepQueue::Fills };
        Shared {
            queue_bytes,
            waits: 0.0,
            at: 0.0,
            ours: (0..OURS).map(|_| Flow::new(by_rate)).collect(),
            rivals: Vec::new(),
            pace_controller: paced.then(|| PaceController::new(deep_queue)),
            pace: None,
        }
    }

    fn step(&mut self) {
        let seconds = STEP_MS as f64 / 1e3;
        self.at += seconds;
        let at = self.at;
        let rtt = BASE_S + self.waits / CAPACITY;
        let limit = self.pace.map_or(f64::MAX, |pace| pace as f64 / OURS as f64);
        let ours = self.ours.iter().map(|flow| flow.rate(at, BASE_S, rtt).min(limit));
        let rates: Vec<f64> =
            ours.chain(self.rivals.iter().map(|flow| flow.rate(at, BASE_S, rtt))).collect();
        let all: f64 = rates.iter().sum();
        let full = self.waits + all * seconds > CAPACITY * seconds;
        self.waits += (all - CAPACITY) * seconds;
        let lost = (self.waits - self.queue_bytes).max(0.0);
        self.waits = self.waits.clamp(0.0, self.queue_bytes);
        for (flow, rate) in self.ours.iter_mut().chain(&mut self.rivals).zip(rates) {
            let share = rate / all.max(1.0);
            let delivered = if full { CAPACITY * seconds * share } else { rate * seconds };
            flow.hear(at, seconds, rtt, (delivered, lost * share));
        }
        let Some(pace_controller) = &mut self.pace_controller else { return };
        let looks: Vec<Look> = self
            .ours
            .iter()
            .zip(0..)
            .map(|(flow, stream)| Look {
                stream,
                sample: PathSample {
                    at: Tick((at * 1e9) as u64),
                    rtt: Nanos((rtt * 1e9) as u64),
                    rtt_min: Nanos((BASE_S * 1e9) as u64),
                    mss_bytes: MSS as u32,
                    cwnd_segments: (flow.window / MSS) as u32,
                    segments_retransmitted: (flow.lost_bytes / MSS) as u64,
                    bytes_acked: flow.acked_bytes as u64,
                    ..PathSample::default()
                },
                delivered_segments: (flow.acked_bytes / MSS) as u64,
            })
            .collect();
        self.pace = pace_controller.look(looks[0].sample.at, &looks);
    }

    /// Our share of the path over so many seconds.
    fn share(&mut self, seconds: f64) -> f64 {
        let acked = |shared: &Shared| shared.ours.iter().map(|flow| flow.acked_bytes).sum::<f64>();
        let (before, until) = (acked(self), self.at + seconds);
        while self.at < until {
            self.step();
        }
        (acked(self) - before) / seconds / CAPACITY
    }
}

/// Beside others a pace takes nothing from us, and it is gone soon after they are.
#[test]
fn a_pace_leaves_our_share_beside_others() {
    for by_rate in [false, true] {
        for queue_bytes in [64e3, 375e3] {
            for rivals in [1, 4, 8] {
                let [paced, unpaced] = [true, false].map(|paced| {
                    let mut shared = Shared::new(by_rate, queue_bytes, paced);
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
