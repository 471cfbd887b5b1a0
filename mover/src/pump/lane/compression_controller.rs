//! Chooses how each payload is compressed: numbers in, a coding out.
//!
//! A payload costs CPU time to compress, `t`, and time on the wire, where it is `z` bytes long. One
//! price of a wire byte makes them comparable: each payload gets the coding that minimizes `t +
//! price * z`, and the price is the one with which the slowest of CPUs, wire and receiver finishes
//! soonest. `t` and `z` are learnt for each class of compressibility (from a probe of the payload)
//! from what was compressed. Raw payloads teach nothing about compression, so now and then a
//! neighbour of the chosen coding is tried, within a small allowance of time.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::link::{Link, Receiver};
use crate::io::clock::Clock;
use crate::work::codec::{Choice, Chooser, Moment, Took};
use base::codec::{Coding, DecompressionTime};
use base::units::{Nanos, Tick};

mod link;
mod trial;

use trial::{Mode, Trial};

/// One controller for all compressing threads of a side, and the lanes that measure the wire.
#[derive(Debug)]
pub struct CompressionController {
    controller: Mutex<Controller>,
    clock: Arc<dyn Clock>,
    lanes: AtomicUsize,
    /// Payloads pass through the worker pool.
    compresses: AtomicBool,
    /// How many payloads skip it between two that pass.
    left_out: AtomicU32,
    payloads: AtomicU32,
}

impl CompressionController {
    pub fn new(workers: usize, clock: Arc<dyn Clock>) -> CompressionController {
        let controller = Controller::new(clock.now(), workers);
        CompressionController {
            controller: Mutex::new(controller),
            clock,
            lanes: AtomicUsize::new(0),
            compresses: AtomicBool::new(true),
            left_out: AtomicU32::new(0),
            payloads: AtomicU32::new(0),
        }
    }

    pub fn join(&self) {
        self.lanes.fetch_add(1, Relaxed);
    }

    pub fn leave(&self) {
        self.lanes.fetch_sub(1, Relaxed);
    }

    /// True where the next payload must be probed; otherwise it is sent raw.
    pub fn should_probe(&self) -> bool {
        let every = self.left_out.load(Relaxed) + 1;
        self.compresses.load(Relaxed) && self.payloads.fetch_add(1, Relaxed).is_multiple_of(every)
    }

    /// True while each payload is probed.
    pub(crate) fn probes_all(&self) -> bool {
        self.compresses.load(Relaxed) && self.left_out.load(Relaxed) == 0
    }

    /// A lane has sent a frame; `sent` says how long that delayed it.
    pub fn sent(&self, now: Tick, sent: Sent) {
        let lanes = self.lanes.load(Relaxed);
        let mut controller = self.lock();
        controller.sent(now, sent, lanes);
        self.compresses.store(controller.compresses(), Relaxed);
    }

    /// The time that a compressing thread spent on a payload besides compression.
    pub fn record_overhead(&self, raw_len: u32, spent: Nanos) {
        self.lock().record_overhead(raw_len, spent);
    }

    /// The sink has reported the time of its passage.
    pub fn record_decompression_time(&self, time: &DecompressionTime) {
        self.lock().record_decompression_time(time);
    }

    fn lock(&self) -> MutexGuard<'_, Controller> {
        self.controller.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Chooser for CompressionController {
    fn choose(&self, ratio: f64, raw_len: u32) -> Choice {
        let (now, class) = (self.clock.now(), Compressibility::of_ratio(ratio));
        let mut controller = self.lock();
        let coding = controller.choose(now, class, raw_len);
        self.left_out.store(controller.left_out(), Relaxed);
        Choice { coding, is_timed: controller.is_timed(now, class, coding) }
    }

    fn compressed(&self, ratio: f64, coding: Coding, raw_len: u32, len: u32, took: Took) {
        let class = Compressibility::of_ratio(ratio);
        self.lock().compressed(class, coding, raw_len, len, took);
    }

    // A thread may lose its CPU while it reads its CPU time, and that is not compression.
    fn begin(&self) -> Moment {
        let cpu = self.clock.thread_cpu();
        Moment { at: self.clock.now(), cpu }
    }

    fn took(&self, since: Moment) -> Took {
        let elapsed = self.clock.now().since(since.at);
        Took { elapsed, cpu: Nanos(self.clock.thread_cpu().0.saturating_sub(since.cpu.0)) }
    }
}

/// A frame that has been sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub raw_bytes: u32,
    pub wire_bytes: u32,
    /// How long it delayed its lane.
    pub held_up: Nanos,
}

/// The codings to choose from, from the fastest to the smallest.
pub(crate) const LADDER: [Coding; 7] = [
    Coding::Raw,
    Coding::Lz4,
    Coding::Zstd(-1),
    Coding::Zstd(1),
    Coding::Zstd(3),
    Coding::Zstd(6),
    Coding::Zstd(9),
];
const RUNGS: usize = LADDER.len();
/// The first choice while nothing is known of the wire.
const FIRST_RUNG: usize = 3;

/// The class of a payload, by the compression ratio of a probe of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressibility(u8);

/// Upper bounds of the ratios of each class but the last.
const COMPRESSIBILITY_ENDS: [f64; 6] = [1.02, 1.5, 3.0, 6.0, 12.0, 100.0];
const CLASSES: usize = COMPRESSIBILITY_ENDS.len() + 1;
/// Data that does not shrink.
const NOISE: Compressibility = Compressibility(0);

impl Compressibility {
    pub(crate) fn of_ratio(ratio: f64) -> Compressibility {
        Compressibility(COMPRESSIBILITY_ENDS.iter().filter(|end| ratio >= **end).count() as u8)
    }

    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The cost of one coding, for each byte that was compressed. Its time is CPU time: elapsed time
/// may be ten times as long because the thread had to wait, which must not decide between codings.
#[derive(Clone, Copy, Debug)]
struct Cost {
    seconds: f64,
    wire_bytes: f64,
    seen: u32,
}

impl Cost {
    /// The first few are averaged, then old ones are forgotten. An outlier counts as no more than
    /// `COST_ODD`.
    fn add(&mut self, seconds: f64, wire_bytes: f64) {
        self.seen = self.seen.saturating_add(1);
        if self.seen == 1 {
            (self.seconds, self.wire_bytes) = (seconds, wire_bytes);
            return;
        }
        let weight = COST_WEIGHT.max(1.0 / f64::from(self.seen));
        let known = self.seconds.max(COST_LEAST_S);
        let seconds = seconds.clamp(known / COST_ODD, known * COST_ODD);
        self.seconds += weight * (seconds - self.seconds);
        self.wire_bytes += weight * (wire_bytes - self.wire_bytes);
    }

    fn is_seen(&self) -> bool {
        self.seen > 0
    }
}

/// The estimate for a plan.
#[derive(Clone, Copy, Debug)]
struct Judged {
    plan: [usize; CLASSES],
    /// Payload bytes a second.
    speed: f64,
    /// Seconds of compression for a byte.
    compression_s: f64,
    waits_for_receiver: bool,
}

/// The compressing threads, and their work besides compression.
#[derive(Debug)]
struct Workers {
    count: f64,
    /// The ratio of elapsed to CPU time of compression, as others use the CPUs too.
    stretch: f64,
    /// Elapsed seconds for a byte of their other work.
    overhead: f64,
}

impl Workers {
    fn compressed(&mut self, took: Took) {
        let stretch = took.elapsed.seconds() / took.cpu.seconds().max(1e-9);
        let change = stretch.clamp(1.0, STRETCH_MAX) - self.stretch;
        self.stretch += HANDS_WEIGHT * change;
    }

    fn add_overhead(&mut self, raw: u32, spent: Nanos) {
        let seconds = spent.seconds() / f64::from(raw.max(1));
        let change = if self.overhead > 0.0 {
            HANDS_WEIGHT * (seconds.min(self.overhead * COST_ODD) - self.overhead)
        } else {
            seconds
        };
        self.overhead += change;
    }
}

/// Decides for one side of a transfer.
#[derive(Debug)]
pub(crate) struct Controller {
    workers: Workers,
    costs: [[Cost; RUNGS]; CLASSES],
    /// The rung chosen for each class.
    plan: [usize; CLASSES],
    /// Shares of the classes in recent payloads.
    shares: [f64; CLASSES],
    link: Link,
    receiver: Receiver,
    trial: Trial,
    timed_at: Tick,
    payloads: u64,
    /// Payloads in a row that do not shrink.
    noise: u32,
    /// The mean length of recent payloads.
    payload_bytes: f64,
    allowance: Allowance,
}

impl Controller {
    pub(crate) fn new(now: Tick, workers: usize) -> Controller {
        let costs = std::array::from_fn(|class| std::array::from_fn(|rung| guess(class, rung)));
        let plan = std::array::from_fn(|class| if class == NOISE.index() { 0 } else { FIRST_RUNG });
        Controller {
            workers: Workers { count: workers.max(1) as f64, stretch: 1.0, overhead: 0.0 },
            costs,
            plan,
            shares: [0.0; CLASSES],
            link: Link::new(now),
            receiver: Receiver::default(),
            trial: Trial::new(now),
            timed_at: now,
            payloads: 0,
            noise: 0,
            payload_bytes: 0.0,
            allowance: Allowance { seconds: 0.0, since: now, rng: 1 },
        }
    }

    /// The coding for the next payload, which is of this class.
    pub(crate) fn choose(&mut self, now: Tick, class: Compressibility, bytes: u32) -> Coding {
        self.payloads += 1;
        self.payload_bytes += SHARE_WEIGHT * (f64::from(bytes) - self.payload_bytes);
        for share in &mut self.shares {
            *share *= 1.0 - SHARE_WEIGHT;
        }
        self.shares[class.index()] += SHARE_WEIGHT;
        self.noise = if class == NOISE { self.noise.saturating_add(1) } else { 0 };
        if self.payloads.is_multiple_of(PLAN_EVERY) {
            self.decide();
        }
        let rung = self.plan[class.index()];
        LADDER[self.explored(now, class, rung, bytes)]
    }

    /// True where the time of this payload must be measured: of what is tried, what is little
    /// known, and others now and then. Reading a thread's CPU time for every payload makes threads
    /// change CPUs with each payload, and all of them slower.
    pub(crate) fn is_timed(&mut self, now: Tick, class: Compressibility, coding: Coding) -> bool {
        // It takes no time, and would use up the turn of one that does.
        if coding == Coding::Raw {
            return false;
        }
        let planned = self.plan[class.index()];
        let is_tried = LADDER[planned] != coding;
        let is_known = self.costs[class.index()][planned].seen >= WELL_KNOWN;
        let is_timed = is_tried || !is_known || now >= self.timed_at;
        if is_timed {
            self.timed_at = now.after(TIMED_EVERY);
        }
        is_timed
    }

    /// A neighbour of the chosen rung where the allowance permits it; raw is known.
    fn explored(&mut self, now: Tick, class: Compressibility, rung: usize, bytes: u32) -> usize {
        self.allowance.fill(now);
        let Some(rate) = self.link.rate.filter(|_| class != NOISE) else { return rung };
        let Some(rng) = self.allowance.roll() else { return rung };
        let other = if rng { rung + 1 } else { rung.saturating_sub(1) };
        if other == 0 || other >= RUNGS || other == rung {
            return rung;
        }
        let costs = &self.costs[class.index()];
        let compression = (costs[other].seconds - costs[rung].seconds).abs();
        let wire = (costs[other].wire_bytes - costs[rung].wire_bytes).max(0.0) / rate;
        let extra = (compression + wire) * f64::from(bytes);
        if self.allowance.spend(extra) { other } else { rung }
    }

    /// The time and the result of compressing a payload.
    pub(crate) fn compressed(
        &mut self,
        class: Compressibility,
        coding: Coding,
        raw: u32,
        compressed: u32,
        took: Took,
    ) {
        let Some(rung) = LADDER.iter().position(|other| *other == coding) else { return };
        if rung == 0 || raw == 0 {
            return;
        }
        let raw = f64::from(raw);
        self.costs[class.index()][rung].add(took.cpu.seconds() / raw, f64::from(compressed) / raw);
        self.workers.compressed(took);
        self.guess_neighbours(class);
        self.keep_order(class);
    }

    /// A stronger coding never makes more of the same data. One that was seen with a few odd
    /// payloads only would look useless otherwise, and never be tried again.
    fn keep_order(&mut self, class: Compressibility) {
        let costs = &mut self.costs[class.index()];
        for rung in 2..RUNGS {
            let lighter = costs[rung - 1].wire_bytes;
            costs[rung].wire_bytes = costs[rung].wire_bytes.min(lighter);
        }
    }

    /// The elapsed time of a compressing thread for a payload besides compression.
    pub(crate) fn record_overhead(&mut self, raw: u32, spent: Nanos) {
        self.workers.add_overhead(raw, spent);
    }

    /// A rung that was never tried is estimated from the nearest one that was.
    fn guess_neighbours(&mut self, class: Compressibility) {
        let costs = &mut self.costs[class.index()];
        for rung in 1..RUNGS {
            if costs[rung].is_seen() {
                continue;
            }
            let seen = (1..RUNGS).filter(|near| costs[*near].is_seen());
            if let Some(near) = seen.min_by_key(|near| near.abs_diff(rung)) {
                costs[rung].seconds = costs[near].seconds * TIMES[rung] / TIMES[near];
                let wire_bytes = costs[near].wire_bytes * size(class, rung) / size(class, near);
                costs[rung].wire_bytes = wire_bytes.min(1.0);
            }
        }
    }

    /// True where payloads are to be probed at all.
    pub(crate) fn compresses(&self) -> bool {
        self.trial.mode() == Mode::Compress
    }

    /// How many payloads are skipped before one is probed again. In a run that does not shrink that
    /// is an eighth of the run so far: what is missed at its end is small in comparison. Over a
    /// slow wire a probe costs nothing compared with the gain of one payload that shrinks.
    pub(crate) fn left_out(&self) -> u32 {
        let is_fast = self.link.rate.is_some_and(|rate| self.is_fast(rate));
        if is_fast { (self.noise / LEFT_OUT_SHARE).min(LEFT_OUT_MAX) } else { 0 }
    }

    /// Even probing a payload and handing it over may cost more than a hundredth of its time.
    fn is_fast(&self, rate: f64) -> bool {
        let [compression, wire, _] = self.times(&self.plan, rate);
        self.payload_bytes * compression.max(wire) < DOUBTED_PAYLOAD_S
    }

    /// A frame has been sent by one of `lanes` lanes.
    pub(crate) fn sent(&mut self, now: Tick, sent: Sent, lanes: usize) {
        self.link.sent(now, sent.wire_bytes, sent.held_up, lanes, self.receiver.is_behind());
        match self.is_in_doubt() {
            true => self.trial.sent(now, sent.raw_bytes),
            false => self.trial.is_settled(now),
        }
    }

    /// True where compression is estimated to gain little, and costs so much compared with the wire
    /// that the estimate may be wrong.
    fn is_in_doubt(&self) -> bool {
        let Some(rate) = self.link.rate else { return false };
        let [compression, wire, decompression] = self.times(&self.plan, rate);
        let gain = 1.0 / rate / compression.max(wire).max(decompression).max(1e-15);
        gain < BEYOND_DOUBT && (self.is_fast(rate) || compression > DOUBTED_SHARE * wire)
    }

    /// The time of the receiver's passage since its last report.
    pub(crate) fn record_decompression_time(&mut self, time: &DecompressionTime) {
        self.receiver.record_decompression_time(time);
    }

    /// Chooses the fastest plan, and of those that are about as fast the one that compresses least:
    /// the CPUs may have other work, and their cost is known better than the rate of the wire. A
    /// new plan must be worth the change.
    fn decide(&mut self) {
        let Some(rate) = self.link.rate else { return };
        let plans: [Judged; PLANS] = std::array::from_fn(|place| self.judged(place, rate));
        let fastest = plans.iter().max_by(|one, other| one.speed.total_cmp(&other.speed));
        let Some(fastest) = fastest else { return };
        // Compared with the fastest, not with the current plan: else two of them could alternate.
        let alike = if fastest.waits_for_receiver { ALIKE_THERE } else { ALIKE };
        let as_fast = plans.iter().filter(|plan| plan.speed * alike >= fastest.speed);
        let Some(best) =
            as_fast.min_by(|one, other| one.compression_s.total_cmp(&other.compression_s))
        else {
            return;
        };
        let now = self.judge(self.plan, rate);
        if best.speed > now.speed * alike || best.compression_s < now.compression_s * THRIFTY {
            self.plan = best.plan;
        }
    }

    /// One of the plans that are judged: one for each price, then one for each single coding.
    fn judged(&self, place: usize, rate: f64) -> Judged {
        let plan = match place.checked_sub(PRICES) {
            None => {
                let halves = place as f64 - PRICES as f64 / 2.0;
                self.priced((halves / 2.0).exp2() / rate)
            }
            Some(rung) => {
                std::array::from_fn(|class| if class == NOISE.index() { 0 } else { rung })
            }
        };
        self.judge(plan, rate)
    }

    /// The estimate for a plan. Of equally fast ones the one that compresses less wins narrowly.
    fn judge(&self, plan: [usize; CLASSES], rate: f64) -> Judged {
        let [compression_s, wire, decompression] = self.times(&plan, rate);
        let here = (compression_s + self.workers.overhead / self.workers.count).max(wire);
        let speed = 1.0 / (here.max(decompression) + compression_s * TIE_BREAK).max(1e-15);
        Judged { plan, speed, compression_s, waits_for_receiver: decompression > here }
    }

    /// The plan for one price, in seconds for a byte on the wire. Classes that do not occur keep
    /// their rung.
    fn priced(&self, price: f64) -> [usize; CLASSES] {
        std::array::from_fn(|class| {
            if self.shares[class] < SHARE_LEAST {
                return self.plan[class];
            }
            let total = |rung: &usize| {
                let cost = &self.costs[class][*rung];
                self.on_clock(cost.seconds) + price * cost.wire_bytes
            };
            (0..RUNGS).min_by(|one, other| total(one).total_cmp(&total(other))).unwrap_or(0)
        })
    }

    /// The elapsed time of all workers together for this much CPU time.
    fn on_clock(&self, cpu_seconds: f64) -> f64 {
        cpu_seconds * self.workers.stretch / self.workers.count
    }

    /// Seconds that a plan takes compressors, wire and receiver for a payload byte.
    fn times(&self, plan: &[usize; CLASSES], rate: f64) -> [f64; 3] {
        let all: f64 = self.shares.iter().sum();
        let met = plan.iter().enumerate().filter(|(class, _)| self.shares[*class] >= SHARE_LEAST);
        let (mut compression, mut wire, mut decompression) = (0.0, 0.0, 0.0);
        for (class, rung) in met {
            let share = self.shares[class] / all.max(1e-12);
            let cost = &self.costs[class][*rung];
            compression += share * cost.seconds;
            wire += share * cost.wire_bytes;
            decompression += share * self.receiver.seconds_per_byte(LADDER[*rung].codec());
        }
        [self.on_clock(compression), wire / rate, decompression]
    }
}

/// Time that may be spent on trying neighbours: a hundredth of the whole.
#[derive(Debug)]
struct Allowance {
    seconds: f64,
    since: Tick,
    rng: u64,
}

impl Allowance {
    fn fill(&mut self, now: Tick) {
        let elapsed = now.since(self.since).seconds();
        self.seconds = (self.seconds + elapsed * ALLOWED_SHARE).min(ALLOWED_SECONDS_MAX);
        self.since = now;
    }

    /// Once in twenty: upwards or downwards.
    fn roll(&mut self) -> Option<bool> {
        // A linear congruential generator (Knuth's MMIX), of which the high bits are good enough.
        self.rng = self.rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let rolled = self.rng >> 33;
        rolled.is_multiple_of(20).then_some((rolled / 20).is_multiple_of(2))
    }

    fn spend(&mut self, seconds: f64) -> bool {
        let affordable = seconds <= self.seconds;
        if affordable {
            self.seconds -= seconds;
        }
        affordable
    }
}

/// Estimates before anything of a class was compressed: multiples of zstd:1, which compresses text
/// at 400 MB/s and zeros half as fast again; measured here, and replaced by what is seen.
fn guess(class: usize, rung: usize) -> Cost {
    if rung == 0 {
        return Cost { seconds: 0.0, wire_bytes: 1.0, seen: 1 };
    }
    let (seconds, wire_bytes) = FIRST[class];
    Cost {
        seconds: seconds * TIMES[rung],
        wire_bytes: (wire_bytes * size(Compressibility(class as u8), rung)).min(1.0),
        seen: 0,
    }
}

/// The size of a rung's output compared with zstd:1. For noise all are the same.
fn size(class: Compressibility, rung: usize) -> f64 {
    if class == NOISE { 1.0 } else { SIZES[rung] }
}

/// Seconds and wire bytes for a byte of each class, with zstd:1.
const FIRST: [(f64, f64); CLASSES] = [
    (0.3e-9, 1.0),
    (3.0e-9, 0.8),
    (2.5e-9, 0.45),
    (2.5e-9, 0.22),
    (2.0e-9, 0.12),
    (1.0e-9, 0.05),
    (0.3e-9, 0.001),
];
/// How rungs compare with each other where nothing better is known; raw is not compared.
const TIMES: [f64; RUNGS] = [0.0, 0.5, 0.6, 1.0, 1.8, 4.5, 8.0];
const SIZES: [f64; RUNGS] = [1.0, 1.3, 1.15, 1.0, 0.8, 0.74, 0.7];

/// Payloads that a plan is for; also how many are in flight.
const SHARE_WEIGHT: f64 = 1.0 / 16.0;
const PLAN_EVERY: u64 = 4;
/// The least share of a class that counts: it occurred within a hundred payloads or so.
const SHARE_LEAST: f64 = 1e-4;
const COST_WEIGHT: f64 = 0.1;
/// Payloads after which the cost is known well enough to measure only a few of the next.
const WELL_KNOWN: u32 = 16;
const TIMED_EVERY: Nanos = Nanos(2_000_000);
/// A payload that took this many times as long as others, or as short, counts as only that.
const COST_ODD: f64 = 2.0;
/// For a byte: a coarse clock may measure nothing at all for a payload.
const COST_LEAST_S: f64 = 1e-12;
const STRETCH_MAX: f64 = 10.0;
const HANDS_WEIGHT: f64 = 1.0 / 64.0;
/// In half octaves around the wire's own price.
const PRICES: usize = 49;
const PLANS: usize = PRICES + RUNGS;
/// Plans within this factor are equally fast. What the receiver takes, and whether another format
/// would take less, is known only remotely and by elapsed time.
const ALIKE: f64 = 1.01;
const ALIKE_THERE: f64 = 1.1;
/// Compression that takes more than this share of another's time is not cheaper.
const THRIFTY: f64 = 0.9;
const TIE_BREAK: f64 = 0.001;
/// A gain above this is not doubted, nor compression in a small part of the wire's time.
const BEYOND_DOUBT: f64 = 2.0;
const DOUBTED_SHARE: f64 = 0.25;
const LEFT_OUT_SHARE: u32 = 8;
const LEFT_OUT_MAX: u32 = 32;
const DOUBTED_PAYLOAD_S: f64 = 0.005;
const ALLOWED_SHARE: f64 = 0.01;
const ALLOWED_SECONDS_MAX: f64 = 0.05;

#[cfg(test)]
mod tests;
