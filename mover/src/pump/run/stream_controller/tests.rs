//! The controller over a path that is simulated from a seed.

use super::*;
use crate::io::sim::Rng;
use StepReason::{
    AsFast, Compare, Cpu, Gain, Late, Losses, Most, NoGain, NothingSeen, Others, PathFull, Queue,
    ReceiveWindow,
};

const MSS: f64 = 1448.0;

/// What limits the streams of a path. Rates are in bytes a second.
#[derive(Clone, Copy, Debug)]
struct Path {
    capacity: f64,
    round_trip_s: f64,
    window_bytes: Option<f64>,
    /// The share of the time in which a sender waits for its window: less if it is paced.
    window_waits: f64,
    /// The share of segments that is lost by chance.
    loss: f64,
    /// Streams of others, which send as much as ours do.
    others: f64,
    /// What one thread gets done.
    lane: f64,
    /// What limits all streams together without a queue.
    host: f64,
    /// How long a stream takes to be opened, and to end.
    opens_s: f64,
    ends_s: f64,
}

const PATH: Path = Path {
    capacity: 25e6,
    round_trip_s: 0.1,
    window_bytes: None,
    window_waits: 1.0,
    loss: 0.0,
    others: 0.0,
    lane: f64::INFINITY,
    host: f64::INFINITY,
    opens_s: 0.3,
    ends_s: 0.5,
};

/// A copy over such a path.
struct Copy {
    path: Path,
    rng: Rng,
    open: u16,
    /// What the number of open streams becomes, and when.
    becomes: Option<(Tick, u16)>,
    look: Look,
}

impl Copy {
    fn new(path: Path, streams: u16, seed: u64) -> Copy {
        let look = Look { open: streams, ..Look::default() };
        Copy { path, rng: Rng::new(seed), open: streams, becomes: None, look }
    }

    fn resize(&mut self, streams: u16) {
        let takes_s = if streams > self.open { self.path.opens_s } else { self.path.ends_s };
        let at = self.look.at.after(Nanos((takes_s * 1e9) as u64));
        self.becomes = Some((at, streams));
    }

    fn rate(&self, streams: u16) -> f64 {
        let (path, streams) = (self.path, f64::from(streams));
        let ours = path.capacity * streams / (streams + path.others);
        (self.each() * streams).min(ours).min(path.host)
    }

    /// What one stream would get alone.
    fn each(&self) -> f64 {
        let Path { round_trip_s, window_bytes, loss, lane, .. } = self.path;
        let window = window_bytes.map_or(f64::INFINITY, |bytes| bytes / round_trip_s);
        let by_loss = if loss > 0.0 { 1.22 * MSS / (round_trip_s * loss.sqrt()) } else { f64::MAX };
        window.min(by_loss).min(lane)
    }

    fn next(&mut self) -> &Look {
        let at = self.look.at.after(LOOK_EVERY);
        if let Some((_, streams)) = self.becomes.filter(|(when, _)| *when <= at) {
            (self.open, self.becomes) = (streams, None);
            self.look.senders.retain(|number, _| *number < u32::from(streams));
        }
        let noise = 0.98 + 0.04 * self.rng.below(1000) as f64 / 1000.0;
        let bytes = self.rate(self.open) * LOOK_EVERY.seconds() * noise;
        self.look.at = at;
        self.look.open = self.open;
        self.look.delivered_bytes += bytes as u64;
        for number in 0..u32::from(self.open) {
            let mut sample = self.look.senders.get(&number).copied().unwrap_or_default();
            self.sample(&mut sample, bytes / f64::from(self.open));
            self.look.senders.insert(number, sample);
        }
        &self.look
    }

    fn sample(&mut self, sample: &mut PathSample, bytes: f64) {
        let path = self.path;
        let demand = (self.each() * f64::from(self.open)).min(path.host);
        let has_queue = path.others > 0.0 || demand > path.capacity * 1.01;
        let is_window =
            path.window_bytes.is_some_and(|bytes| bytes / path.round_trip_s <= self.each());
        let is_lane = path.lane <= self.each();
        let round_trip = Nanos((path.round_trip_s * 1e9) as u64);
        sample.at = self.look.at;
        sample.rtt_min = round_trip;
        let queue = Nanos((round_trip.0 / 2).max(3_000_000));
        sample.rtt = round_trip + if has_queue { queue } else { Nanos(0) };
        let segments = (self.each().min(path.capacity) * path.round_trip_s / MSS) as u32 + 10;
        sample.unacked_segments = segments;
        sample.cwnd_segments = if is_window || is_lane { 4 * segments } else { segments };
        if is_window && !has_queue {
            sample.window_limited += Nanos((LOOK_EVERY.0 as f64 * path.window_waits) as u64);
        }
        sample.bytes_acked += bytes as u64;
        sample.peer_window_bytes = path.window_bytes.map_or(u32::MAX, |bytes| bytes as u32);
        let waits = if is_lane && !has_queue { 0 } else { LOOK_EVERY.0 };
        sample.clocks.sink += Nanos(waits.max(1));
        let losses = bytes / MSS * path.loss;
        let whole = losses as u64 + u64::from(self.rng.below(1000) < (losses.fract() * 1e3) as u64);
        sample.segments_retransmitted += whole;
    }
}

const BOUNDS: Bounds = Bounds { streams_max: 64, cpus: 8, lane_bytes: 2 << 20 };

/// The steps of a copy of so many seconds; each is checked to follow the one before.
fn steps(copy: &mut Copy, streams: u16, bounds: Bounds, seconds: u64) -> Vec<StreamStep> {
    let mut controller = StreamController::new(streams, bounds);
    let mut steps: Vec<StreamStep> = Vec::new();
    for _ in 0..seconds * 10 {
        let Some(step) = controller.look(copy.next()) else { continue };
        assert!(steps.last().is_none_or(|last| last.at <= step.at), "{steps:?} {step:?}");
        if step.to != step.from {
            copy.resize(step.to);
        }
        steps.push(step);
    }
    steps.extend(controller.end());
    let mut count = streams;
    for step in &steps {
        assert_eq!(step.from, count, "{steps:?}");
        assert!((1..=bounds.streams_max.max(streams)).contains(&step.to), "{step:?}");
        count = step.to;
    }
    steps
}

fn reasons(steps: &[StreamStep]) -> Vec<(u16, StepReason)> {
    steps.iter().map(|step| (step.to, step.reason)).collect()
}

/// Numbers of streams, each with why there are so many.
type Steps = Vec<(u16, StepReason)>;

#[test]
fn what_holds_streams_back_decides() {
    let window = Path { window_bytes: Some(65536.0), ..PATH };
    let lossy = Path { loss: 0.001, ..PATH };
    let on_host = Path { lane: 1e6, capacity: 1e9, round_trip_s: 0.005, ..PATH };
    // The window is small, but what limits all streams is behind it.
    let shown = Path { window_bytes: Some(65536.0), host: 2.6e6, ..PATH };
    // Part of what the window would let through: not beyond doubt.
    let a_little = Path { window_bytes: Some(65536.0), host: 3.2e6, ..PATH };
    let grown = |to: u16, why| vec![(to, why), (to, Gain)];
    let taken_back = |from: u16, to: u16, why| vec![(to, why), (from, NoGain)];
    let paced = Path { window_waits: 0.3, ..window };
    let cases: [(&str, Path, u16, Vec<Steps>); 11] = [
        ("full", PATH, 4, vec![vec![(4, PathFull)]]),
        ("one fills it", PATH, 1, vec![vec![(1, PathFull)]]),
        (
            "too many",
            PATH,
            16,
            vec![vec![(8, Queue), (8, AsFast), (4, Queue), (4, AsFast), (4, PathFull)]],
        ),
        ("others", Path { others: 8.0, ..PATH }, 16, vec![vec![(8, Queue), (4, Others)]]),
        ("few beside others", Path { others: 8.0, ..PATH }, 4, vec![vec![(4, PathFull)]]),
        (
            "a window",
            window,
            4,
            vec![grown(16, ReceiveWindow), grown(64, ReceiveWindow), vec![(32, Queue)]],
        ),
        ("a window, paced", paced, 4, vec![grown(16, ReceiveWindow)]),
        ("losses", lossy, 4, vec![grown(8, Losses), grown(16, Losses), grown(32, Losses)]),
        ("threads", on_host, 4, vec![grown(8, Cpu), vec![(8, NothingSeen)]]),
        ("in doubt", a_little, 4, vec![vec![(16, ReceiveWindow), (4, Compare), (16, Gain)]]),
        (
            "no gain",
            shown,
            4,
            vec![
                taken_back(4, 16, ReceiveWindow),
                taken_back(4, 16, ReceiveWindow),
                vec![(4, NoGain)],
            ],
        ),
    ];
    for (name, path, streams, expect) in cases {
        let took = reasons(&steps(&mut Copy::new(path, streams, 7), streams, BOUNDS, 40));
        let expect = expect.concat();
        assert_eq!(took.get(..expect.len()), Some(&expect[..]), "{name}: {took:?}");
    }
}

#[test]
fn bounds_are_kept() {
    let window = Path { window_bytes: Some(65536.0), ..PATH };
    let few = Bounds { streams_max: 6, ..BOUNDS };
    let took = reasons(&steps(&mut Copy::new(window, 4, 7), 4, few, 40));
    assert_eq!(took, [(6, ReceiveWindow), (6, Gain), (6, Most)]);
    // Streams that cannot be opened.
    let shut = Path { opens_s: 1e6, ..window };
    let took = reasons(&steps(&mut Copy::new(shut, 4, 7), 4, BOUNDS, 40));
    assert_eq!(took, [(16, ReceiveWindow), (4, Late)]);
    // A copy that is nearly over has no trial, and one that moves nothing has none either.
    let mut copy = Copy::new(window, 4, 7);
    copy.look.left_bytes = Some(1 << 20);
    assert_eq!(reasons(&steps(&mut copy, 4, BOUNDS, 10)), [(4, StepReason::Short)]);
    let still = Path { host: 0.0, ..window };
    let took = reasons(&steps(&mut Copy::new(still, 4, 7), 4, BOUNDS, 40));
    assert_eq!(took, [(4, StepReason::Short)]);
}

/// Where those that were there before become faster too, it is the path that changed.
#[test]
fn a_path_that_changes_meanwhile_is_measured_again() {
    let mut copy = Copy::new(Path { window_bytes: Some(65536.0), ..PATH }, 4, 7);
    let mut controller = StreamController::new(4, BOUNDS);
    let mut took = Vec::new();
    while took.len() < 2 {
        let Some(step) = controller.look(copy.next()) else { continue };
        copy.resize(step.to);
        copy.path.window_bytes = Some(131072.0);
        took.push(step);
    }
    assert_eq!(reasons(&took), [(16, ReceiveWindow), (4, Compare)]);
}

/// Whatever the path: it ends in time, changes little, and loses nothing by it.
#[test]
fn any_path_is_settled() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mut of = |values: &[f64]| values[rng.below(values.len() as u64) as usize];
        let path = Path {
            capacity: of(&[1e6, 12e6, 125e6, 1.2e9]),
            round_trip_s: of(&[0.0002, 0.002, 0.02, 0.1, 0.3]),
            window_bytes: Some(of(&[65536.0, 1e6, 1e9])).filter(|bytes| *bytes < 1e9),
            window_waits: of(&[1.0, 0.3]),
            loss: of(&[0.0, 0.0, 0.0001, 0.001, 0.02]),
            others: of(&[0.0, 0.0, 1.0, 16.0]),
            lane: of(&[f64::INFINITY, 2e6, 1e9]),
            host: of(&[f64::INFINITY, 3e6]),
            opens_s: of(&[0.0, 0.3, 3.0]),
            ends_s: of(&[0.0, 1.0, 4.0, 30.0]),
        };
        let streams = of(&[1.0, 2.0, 4.0, 16.0, 64.0]) as u16;
        let mut copy = Copy::new(path, streams, seed);
        let took = steps(&mut copy, streams, BOUNDS, 90);
        let case = format!("seed {seed}, {path:?}: {took:#?}");
        let last = took.last().expect("at least why it stays");
        // A trial that was begun in time may still wait for streams that end.
        assert!(last.at.seconds() <= 45.0, "{case}");
        let changes = took.iter().filter(|step| step.from != step.to).count();
        assert!(changes <= 16, "{case}");
        let unless_others = path.others == 0.0;
        let (begun, ended) = (copy.rate(streams), copy.rate(last.to));
        assert!(!unless_others || ended >= 0.9 * begun, "{begun} {ended} {case}");
        assert!(unless_others || last.to <= streams.max(4), "{case}");
    }
}

#[test]
fn the_same_looks_give_the_same_steps() {
    let path = Path { window_bytes: Some(65536.0), ..PATH };
    let run = || steps(&mut Copy::new(path, 4, 3), 4, BOUNDS, 40);
    assert_eq!(run(), run());
}
