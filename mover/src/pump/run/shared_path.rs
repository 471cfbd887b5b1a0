//! A path that we share with other flows, as numbers, for the tests of what paces ours.

use std::collections::VecDeque;

use super::pace_controller::Look;
use base::path::PathSample;
use base::units::{Nanos, Tick};

const MSS: f64 = 1448.0;
const STEP_MS: u64 = 10;
const SEGMENTS_PER_ACK: f64 = 1.5;
pub(super) const CAPACITY: f64 = 12.0e6;

/// What chooses the pace of all our streams.
pub(super) type Choose = Box<dyn FnMut(Tick, &[Look]) -> Option<u64>>;

/// A flow that shares a path: it adds a segment to its window each round trip, and keeps 0.7 of it
/// when something was lost (Reno with CUBIC's factor); or it sends by the highest rate at which it
/// was delivered in ten round trips (as BBR does).
#[derive(Debug)]
pub(super) struct Flow {
    by_rate: bool,
    window: f64,
    slow_start: bool,
    lost_bytes: f64,
    reacts_at: Option<f64>,
    blind_until: f64,
    rates: VecDeque<(f64, f64)>,
    acked_bytes: f64,
    /// As TCP has it: smoothed.
    round_trip_s: f64,
}

impl Flow {
    pub(super) fn new(by_rate: bool) -> Flow {
        Flow {
            by_rate,
            window: 10.0 * MSS,
            slow_start: true,
            lost_bytes: 0.0,
            reacts_at: None,
            blind_until: 0.0,
            rates: VecDeque::new(),
            acked_bytes: 0.0,
            round_trip_s: BASE_S,
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
        let kept = (7.0_f64 / 8.0).powf(delivered / MSS / SEGMENTS_PER_ACK);
        self.round_trip_s = rtt + (self.round_trip_s - rtt) * kept;
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
pub(super) struct Shared {
    pub queue_bytes: f64,
    waits: f64,
    at: f64,
    ours: Vec<Flow>,
    pub rivals: Vec<Flow>,
    choose: Option<Choose>,
    pace: Option<u64>,
}

const BASE_S: f64 = 0.030;
const OURS: usize = 4;

impl Shared {
    pub(super) fn new(by_rate: bool, queue_bytes: f64, choose: Option<Choose>) -> Shared {
        Shared {
            queue_bytes,
            waits: 0.0,
            at: 0.0,
            ours: (0..OURS).map(|_| Flow::new(by_rate)).collect(),
            rivals: Vec::new(),
            choose,
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
        let Some(choose) = &mut self.choose else { return };
        let looks: Vec<Look> = self
            .ours
            .iter()
            .zip(0..)
            .map(|(flow, stream)| Look {
                stream,
                sample: PathSample {
                    at: Tick((at * 1e9) as u64),
                    rtt: Nanos((flow.round_trip_s * 1e9) as u64),
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
        self.pace = choose(looks[0].sample.at, &looks);
    }

    /// Our share of the path over so many seconds.
    pub(super) fn share(&mut self, seconds: f64) -> f64 {
        let acked = |shared: &Shared| shared.ours.iter().map(|flow| flow.acked_bytes).sum::<f64>();
        let (before, until) = (acked(self), self.at + seconds);
        while self.at < until {
            self.step();
        }
        (acked(self) - before) / seconds / CAPACITY
    }
}
