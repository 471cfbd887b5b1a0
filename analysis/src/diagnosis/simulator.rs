//! A path simulated in small steps of time, for tests: connections with the window rules of Reno
//! and CUBIC share a link with a droptail queue. Segments are lost by overflow and at random, the
//! peer's window and the send buffer limit the rate, and samples are taken as in the program.

use std::collections::VecDeque;

use rand::RngExt;
use rand_pcg::Pcg64;

use super::evidence::{Evidence, Host, Stream};
use crate::statistics::generator;
use base::path::{LaneClocks, PathSample};
use base::units::{Nanos, Tick};

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub bits_per_s: f64,
    pub round_trip_s: f64,
    pub queue_bytes: f64,
    /// What is above this rate is dropped before the queue, once a bucket of bytes is empty.
    pub policer: Option<Policer>,
    /// Probability that a segment is lost.
    pub loss: f64,
    pub seconds: f64,
    pub streams: usize,
    pub congestion: Congestion,
    /// The window that the receiver advertises while its buffer is empty.
    pub window_bytes: f64,
    pub reader_bits_per_s: Option<f64>,
    pub send_buffer_bytes: f64,
    pub application: Application,
    pub pace_bits_per_s: Option<f64>,
    /// The rate at which the sending host's kernel can send.
    pub kernel_bits_per_s: Option<f64>,
    pub seed: u64,
    /// CUBIC connections that always send and are not ours.
    pub rivals: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Policer {
    pub bits_per_s: f64,
    pub bucket_bytes: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Congestion {
    Reno,
    Cubic,
    /// Paces at the known rate of the link.
    Bbr,
}

/// What each stream's application does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Application {
    Always,
    /// A stage supplies data at this rate, in requests.
    Source {
        bits_per_s: f64,
        request_bytes: f64,
    },
    Passage {
        bits_per_s: f64,
        request_bytes: f64,
    },
    /// Stops after each block until all of it has arrived, and then pauses.
    Lockstep {
        block_bytes: f64,
        pause_s: f64,
    },
    /// This many bytes in all.
    Total {
        bytes: f64,
    },
}

impl Default for World {
    fn default() -> World {
        World {
            bits_per_s: 100e6,
            round_trip_s: 0.102,
            queue_bytes: 1.3e6,
            policer: None,
            loss: 0.0,
            seconds: 20.0,
            streams: 1,
            congestion: Congestion::Cubic,
            window_bytes: 64e6,
            reader_bits_per_s: None,
            send_buffer_bytes: 64e6,
            application: Application::Always,
            pace_bits_per_s: None,
            kernel_bits_per_s: None,
            seed: 1,
            rivals: 0,
        }
    }
}

impl World {
    /// Runs the simulation, and returns what the program would have recorded.
    pub(crate) fn evidence(&self) -> Evidence {
        let mut random = generator(self.seed);
        let step_s = (self.round_trip_s / 100.0).clamp(20e-6, 1e-3);
        let every_s = (self.round_trip_s / 4.0).clamp(0.005, 0.05);
        let mut link = Link::of(self);
        let mut streams: Vec<Connection> =
            (0..self.streams).map(|_| Connection::new(self)).collect();
        let other = self.without_limits();
        let mut rivals: Vec<Connection> =
            (0..self.rivals).map(|_| Connection::new(&other)).collect();
        let mut recorded: Vec<(Vec<PathSample>, Vec<PathSample>)> =
            vec![Default::default(); self.streams];
        let steps = (self.seconds / step_s) as usize;
        let mut next_sample_s = 0.0;
        for index in 0..steps {
            let now_s = index as f64 * step_s;
            link.pass(step_s);
            let count = streams.len();
            for turn in 0..count {
                let stream = &mut streams[(turn + index) % count];
                stream.turn(self, &mut link, &mut random, now_s, step_s);
            }
            for rival in &mut rivals {
                rival.turn(&other, &mut link, &mut random, now_s, step_s);
            }
            if now_s >= next_sample_s {
                next_sample_s += every_s;
                for (stream, (sent, received)) in streams.iter().zip(&mut recorded) {
                    sent.push(stream.sample(self, now_s));
                    received.push(stream.received(now_s));
                }
            }
            if streams.iter().all(|stream| stream.finished(self)) {
                break;
            }
        }
        self.told(recorded)
    }

    /// The same path, for a connection that only the path limits.
    fn without_limits(&self) -> World {
        let World { bits_per_s, round_trip_s, queue_bytes, loss, seconds, .. } = *self;
        World { bits_per_s, round_trip_s, queue_bytes, loss, seconds, ..World::default() }
    }

    fn told(&self, recorded: Vec<(Vec<PathSample>, Vec<PathSample>)>) -> Evidence {
        let congestion = match self.congestion {
            Congestion::Reno => "reno",
            Congestion::Cubic => "cubic",
            Congestion::Bbr => "bbr",
        };
        let streams = (0..)
            .zip(recorded)
            .map(|(number, (sent, received))| Stream { number, sent, received })
            .collect();
        let busy = self.kernel_bits_per_s.map(|_| 0.97);
        let sender = Host {
            busy_cpus: busy,
            usable_cpus: busy.map(|_| 1.0),
            congestion: congestion.to_string(),
            ..Host::default()
        };
        Evidence { streams, sender, ..Evidence::default() }
    }
}

struct Link {
    queue: f64,
    carries: f64,
    limit: f64,
    policer: Option<Policer>,
    /// Bytes that the policer lets pass at once.
    bucket: f64,
}

impl Link {
    fn of(world: &World) -> Link {
        Link {
            queue: 0.0,
            carries: world.bits_per_s / 8.0,
            limit: world.queue_bytes,
            policer: world.policer,
            bucket: world.policer.map_or(0.0, |policer| policer.bucket_bytes),
        }
    }

    fn pass(&mut self, step_s: f64) {
        self.queue = (self.queue - self.carries * step_s).max(0.0);
        if let Some(policer) = self.policer {
            let filled = self.bucket + policer.bits_per_s / 8.0 * step_s;
            self.bucket = filled.min(policer.bucket_bytes);
        }
    }

    /// How many of these segments are not dropped.
    fn accept(&mut self, segments: u64, step_s: f64) -> u64 {
        let mut passed = segments;
        if self.policer.is_some() {
            passed = passed.min((self.bucket / MSS) as u64);
            self.bucket -= passed as f64 * MSS;
        }
        let room = ((self.limit - self.queue + self.carries * step_s) / MSS).max(0.0) as u64;
        passed.min(room)
    }
}

/// Segments that were sent together.
struct Batch {
    sent_s: f64,
    ack_s: f64,
    arrived: u64,
    lost: u64,
    again: u64,
}

struct Connection {
    cwnd: f64,
    ssthresh: f64,
    flight: VecDeque<Batch>,
    in_flight: u64,
    /// Segments that arrived after a gap.
    held: u64,
    /// To be retransmitted; and retransmitted but not acknowledged.
    missing: u64,
    again_in_flight: u64,
    recovering: bool,
    /// CUBIC: the window at the last loss, how long it takes to return to it, and when it was.
    window_max: f64,
    back_s: f64,
    loss_s: f64,
    limited_by_window: bool,
    /// When the congestion window was last full.
    filled_s: f64,
    srtt: f64,
    deviation: f64,
    rtt_min: f64,
    unsent: f64,
    written: f64,
    /// What the application may write at its own rate.
    offered: f64,
    block_written: f64,
    resume_s: f64,
    backlog: f64,
    read_budget: f64,
    tokens: f64,
    delivered: f64,
    history: VecDeque<(f64, f64)>,
    counters: PathSample,
    receiver: LaneClocks,
    app_limited: bool,
}

impl Connection {
    fn new(world: &World) -> Connection {
        Connection {
            cwnd: 10.0,
            ssthresh: f64::INFINITY,
            flight: VecDeque::new(),
            in_flight: 0,
            held: 0,
            missing: 0,
            again_in_flight: 0,
            recovering: false,
            window_max: 0.0,
            back_s: 0.0,
            loss_s: 0.0,
            limited_by_window: false,
            filled_s: 0.0,
            srtt: world.round_trip_s,
            deviation: 0.0,
            rtt_min: f64::INFINITY,
            unsent: 0.0,
            written: 0.0,
            offered: 0.0,
            block_written: 0.0,
            resume_s: 0.0,
            backlog: 0.0,
            read_budget: 0.0,
            tokens: 0.0,
            delivered: 0.0,
            history: VecDeque::new(),
            counters: PathSample::default(),
            receiver: LaneClocks::default(),
            app_limited: false,
        }
    }

    fn turn(
        &mut self,
        world: &World,
        link: &mut Link,
        random: &mut Pcg64,
        now_s: f64,
        step_s: f64,
    ) {
        self.read(world, step_s);
        self.hear(world, now_s);
        let blocked = self.write(world, now_s, step_s);
        self.send(world, link, random, now_s, step_s);
        let waits = self.unsent >= MSS;
        let time = nanos(step_s);
        if waits || self.in_flight > 0 {
            self.counters.busy += time;
            if waits && self.limited_by_window {
                self.counters.window_limited += time;
            } else if !waits && blocked {
                self.counters.buffer_limited += time;
            }
        }
        self.app_limited = !waits && (self.in_flight as f64) < self.cwnd;
        self.history.push_back((now_s, self.delivered));
        while self.history.front().is_some_and(|(at, _)| *at < now_s - self.srtt.max(0.001)) {
            self.history.pop_front();
        }
    }

    /// The receiving application reads from its buffer, a request at a time.
    fn read(&mut self, world: &World, step_s: f64) {
        let time = nanos(step_s);
        let Some(rate) = world.reader_bits_per_s else {
            self.backlog = 0.0;
            self.receiver.source += time;
            return;
        };
        self.read_budget = (self.read_budget + rate / 8.0 * step_s).min(2.0 * READ_BYTES);
        match self.backlog > 0.0 {
            true => self.receiver.sink += time,
            false => self.receiver.source += time,
        }
        if self.read_budget >= READ_BYTES {
            self.backlog = (self.backlog - READ_BYTES).max(0.0);
            self.read_budget -= READ_BYTES;
        }
    }

    fn hear(&mut self, world: &World, now_s: f64) {
        while self.flight.front().is_some_and(|batch| batch.ack_s <= now_s) {
            let Some(batch) = self.flight.pop_front() else { return };
            self.in_flight -= batch.arrived + batch.lost;
            self.again_in_flight -= batch.again;
            self.delivered += batch.arrived as f64 * MSS;
            self.backlog += batch.arrived as f64 * MSS;
            let rtt = batch.ack_s - batch.sent_s;
            self.deviation += ((rtt - self.srtt).abs() - self.deviation) / 8.0;
            self.srtt += (rtt - self.srtt) / 8.0;
            self.rtt_min = self.rtt_min.min(rtt);
            if batch.lost > 0 {
                self.lose(world, batch.lost, now_s);
            }
            self.held += batch.arrived;
            if self.recovering && self.missing == 0 && self.again_in_flight == 0 {
                self.recovering = false;
            }
            if !self.recovering {
                self.grow(world, batch.arrived as f64, now_s);
                self.counters.bytes_acked += self.held * MSS as u64;
                self.held = 0;
            }
        }
    }

    fn lose(&mut self, world: &World, lost: u64, now_s: f64) {
        self.missing += lost;
        if self.recovering {
            return;
        }
        self.recovering = true;
        let keep = match world.congestion {
            Congestion::Reno => 0.5,
            Congestion::Cubic => 0.7,
            Congestion::Bbr => return,
        };
        self.window_max = self.cwnd;
        self.back_s = (self.cwnd * 0.3 / 0.4).cbrt();
        self.loss_s = now_s;
        self.ssthresh = (self.cwnd * keep).max(2.0);
        self.cwnd = self.ssthresh;
    }

    fn grow(&mut self, world: &World, acked: f64, now_s: f64) {
        if world.congestion == Congestion::Bbr {
            let product = world.bits_per_s / 8.0 / world.streams as f64 * world.round_trip_s / MSS;
            self.cwnd = (self.cwnd + acked).min(2.0 * product);
            return;
        }
        // A window that was not filled within the last round trip does not grow.
        if now_s - self.filled_s > self.srtt * 1.1 {
            return;
        }
        if self.cwnd < self.ssthresh {
            self.cwnd += acked;
            let late = (self.rtt_min / 8.0).clamp(0.004, 0.016);
            if self.srtt > self.rtt_min + late && world.congestion == Congestion::Cubic {
                self.ssthresh = self.cwnd;
                self.window_max = self.cwnd;
                self.back_s = 0.0;
                self.loss_s = now_s;
            }
            return;
        }
        let reno = self.cwnd + acked / self.cwnd;
        self.cwnd = match world.congestion {
            Congestion::Reno => reno,
            _ => {
                let aim = 0.4 * (now_s - self.loss_s - self.back_s).powi(3) + self.window_max;
                let step = ((aim - self.cwnd) / self.cwnd).clamp(0.01 / self.cwnd, 0.5) * acked;
                (self.cwnd + step).max(self.cwnd + 0.5 * acked / self.cwnd)
            }
        };
    }

    /// Moves the application's data into the send buffer; returns whether it blocks there.
    fn write(&mut self, world: &World, now_s: f64, step_s: f64) -> bool {
        let time = nanos(step_s);
        let room = world.send_buffer_bytes - self.unsent - self.unacked_bytes();
        let (rate, request) = match world.application {
            Application::Source { bits_per_s, request_bytes }
            | Application::Passage { bits_per_s, request_bytes } => (bits_per_s, request_bytes),
            _ => (f64::INFINITY, 0.0),
        };
        let ready = match world.application {
            Application::Always => f64::INFINITY,
            Application::Source { .. } | Application::Passage { .. } => {
                self.offered = (self.offered + rate / 8.0 * step_s).min(2.0 * request);
                if self.offered >= request { request } else { 0.0 }
            }
            Application::Lockstep { block_bytes, pause_s } => {
                if self.block_written >= block_bytes && self.unsent < 1.0 && self.in_flight == 0 {
                    self.resume_s = now_s + pause_s;
                    self.block_written = 0.0;
                }
                let open = now_s >= self.resume_s;
                if open { block_bytes - self.block_written } else { 0.0 }
            }
            Application::Total { bytes } => bytes - self.written,
        };
        let written = ready.min(room).max(0.0);
        self.offered -= written.min(self.offered);
        self.block_written += written;
        self.written += written;
        self.unsent += written;
        let blocked = ready > written && ready > 0.0;
        let clocks = &mut self.counters.clocks;
        match world.application {
            _ if blocked => clocks.sink += time,
            Application::Source { .. } => clocks.source += time,
            Application::Passage { .. } => clocks.passage += time,
            Application::Lockstep { .. } => clocks.idle += time,
            _ => clocks.sink += time,
        }
        blocked
    }

    fn unacked_bytes(&self) -> f64 {
        (self.in_flight + self.held + self.missing) as f64 * MSS
    }

    fn window(&self, world: &World) -> f64 {
        (world.window_bytes - self.backlog).max(0.0)
    }

    fn send(
        &mut self,
        world: &World,
        link: &mut Link,
        random: &mut Pcg64,
        now_s: f64,
        step_s: f64,
    ) {
        let bbr = (world.congestion == Congestion::Bbr)
            .then_some(world.bits_per_s / world.streams as f64 * 0.99);
        let rates = [world.pace_bits_per_s, world.kernel_bits_per_s, bbr];
        let rate = rates.into_iter().flatten().fold(LINE_BITS_PER_S, f64::min) / 8.0;
        self.tokens = (self.tokens + rate * step_s).min(rate * (0.001 + step_s) + 2.0 * MSS);
        let by_cwnd = self.cwnd - self.in_flight as f64;
        let by_window = (self.window(world) - self.unacked_bytes()) / MSS;
        self.limited_by_window = by_window < 1.0 && by_window < by_cwnd;
        let allowed = by_cwnd.min(self.tokens / MSS).max(0.0) as u64;
        let again = self.missing.min(allowed);
        let news = (allowed - again).min(by_window.max(0.0) as u64).min((self.unsent / MSS) as u64);
        // A last piece smaller than a segment is sent as one.
        let tail = u64::from(news == 0 && again == 0 && self.unsent > 0.0 && self.unsent < MSS);
        let segments = again + news + tail;
        if (self.in_flight + segments) as f64 + 1.5 >= self.cwnd {
            self.filled_s = now_s;
        }
        if segments == 0 {
            return;
        }
        self.missing -= again;
        self.again_in_flight += again;
        self.unsent = (self.unsent - (news + tail) as f64 * MSS).max(0.0);
        self.tokens -= segments as f64 * MSS;
        let accepted = link.accept(segments, step_s);
        let unlucky = match world.loss > 0.0 {
            true => (0..accepted).filter(|_| random.random::<f64>() < world.loss).count() as u64,
            false => 0,
        };
        let lost = segments - accepted + unlucky;
        self.fly(world, link, now_s, step_s, [accepted - unlucky, lost, again]);
        self.in_flight += segments;
        self.counters.segments_sent += segments;
        self.counters.segments_retransmitted += again;
        self.counters.bytes_sent += segments * MSS as u64;
        self.counters.bytes_retransmitted += again * MSS as u64;
    }

    /// Segments leave the queue one after the other, and their acknowledgements arrive like that.
    fn fly(&mut self, world: &World, link: &mut Link, now_s: f64, step_s: f64, counts: [u64; 3]) {
        let [mut arrived, mut lost, mut again] = counts;
        let piece = ((link.carries * step_s / MSS) as u64).max(1);
        while arrived + lost > 0 {
            let now = arrived.min(piece);
            arrived -= now;
            let lost_now = if arrived == 0 { std::mem::take(&mut lost) } else { 0 };
            let again_now = again.min(now + lost_now);
            again -= again_now;
            link.queue += now as f64 * MSS;
            let ack_s = now_s + world.round_trip_s + link.queue / link.carries;
            let batch =
                Batch { sent_s: now_s, ack_s, arrived: now, lost: lost_now, again: again_now };
            self.flight.push_back(batch);
        }
    }

    fn finished(&self, world: &World) -> bool {
        let Application::Total { bytes } = world.application else { return false };
        self.written >= bytes && self.in_flight == 0 && self.missing == 0 && self.unsent < 1.0
    }

    fn sample(&self, world: &World, now_s: f64) -> PathSample {
        let since = self.history.front().copied().unwrap_or((now_s, self.delivered));
        let span_s = (now_s - since.0).max(1e-3);
        PathSample {
            at: Tick(nanos(now_s).0),
            rtt: nanos(self.srtt),
            rtt_deviation: nanos(self.deviation),
            rtt_min: nanos(if self.rtt_min.is_finite() { self.rtt_min } else { 0.0 }),
            mss_bytes: MSS as u32,
            cwnd_segments: self.cwnd as u32,
            ssthresh_segments: if self.ssthresh.is_finite() {
                self.ssthresh as u32
            } else {
                u32::MAX
            },
            unacked_segments: (self.in_flight + self.held + self.missing) as u32,
            lost_segments: self.missing as u32,
            unsent_bytes: self.unsent.min(4e9) as u32,
            peer_window_bytes: self.window(world) as u32,
            state: if self.recovering { 3 } else { 0 },
            app_limited: self.app_limited,
            delivery_bytes_per_s: ((self.delivered - since.1) / span_s) as u64,
            pace_max_bytes_per_s: world
                .pace_bits_per_s
                .map_or(u64::MAX, |bits| (bits / 8.0) as u64),
            send_buffer_bytes: (2.0 * world.send_buffer_bytes).min(4e9) as u32,
            ..self.counters
        }
    }

    fn received(&self, now_s: f64) -> PathSample {
        PathSample { at: Tick(nanos(now_s).0), clocks: self.receiver, ..PathSample::default() }
    }
}

fn nanos(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as u64)
}

const MSS: f64 = 1448.0;
const LINE_BITS_PER_S: f64 = 10e9;
const READ_BYTES: f64 = 65_536.0;
