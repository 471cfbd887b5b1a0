//! The link between two TUN devices: a thread for each direction reads packets from one device,
//! asks the pipe when they arrive, and then writes them to the other device.

use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use serde::{Deserialize, Serialize};

use crate::ip;
use crate::pcap::Pcap;
use crate::pipe::{Arrival, Pipe, PipeCounters, Shape};
use crate::queue::Traffic;
use crate::tun;

/// Counters of one direction of a running link, and how late it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WayCounters {
    pub packets: PipeCounters,
    /// The largest delay of a packet beyond its due time, and how many were more than 1 ms late:
    /// then the machine was too busy for this link.
    pub late_ns_max: u64,
    pub late_packets: u64,
    /// Packets that a device refused, or lost before the link could read them.
    pub kernel_drops: u64,
    /// CPU time of the direction's thread. It includes the delivery of packets, and so what the
    /// receiving host's kernel does at once.
    pub cpu_ns: u64,
}

/// Both directions: near to far, and back.
pub(crate) struct Link {
    directions: [Arc<Direction>; 2],
    threads: Vec<JoinHandle<()>>,
}

struct Direction {
    pipe: Mutex<Pipe<Packet>>,
    /// Wakes the thread when the shape changes or the link ends.
    wake_up: OwnedFd,
    is_over: AtomicBool,
    began: Instant,
    late_ns_max: AtomicU64,
    late_packets: AtomicU64,
    refused: AtomicU64,
    thread_id: AtomicU64,
}

/// One IP packet.
struct Packet {
    bytes: Box<[u8; MTU_BYTES]>,
    len: usize,
}

/// The capture of a direction, and whether packets are captured where they enter or leave.
struct Tap {
    pcap: Arc<Mutex<Pcap>>,
    at_entry: bool,
}

impl Link {
    /// Connects two devices. `pcap` captures what is on the near side's interface.
    pub(crate) fn start(
        near: OwnedFd,
        far: OwnedFd,
        shapes: [Shape; 2],
        seed: u64,
        pcap: Option<Pcap>,
    ) -> io::Result<Link> {
        let began = Instant::now();
        let pcap = pcap.map(|pcap| Arc::new(Mutex::new(pcap)));
        let [near, far] = [Arc::new(near), Arc::new(far)];
        let mut link = Link {
            directions: [
                Direction::new(shapes[0], seed, began)?,
                Direction::new(shapes[1], !seed, began)?,
            ]
            .map(Arc::new),
            threads: Vec::new(),
        };
        let ends = [(near.clone(), far.clone(), true), (far, near, false)];
        for (direction, (from, to, at_entry)) in link.directions.clone().into_iter().zip(ends) {
            let tap = pcap.clone().map(|pcap| Tap { pcap, at_entry });
            let (ready, is_ready) = mpsc::channel();
            let name = if at_entry { "wan-forward" } else { "wan-back" };
            let carry = move || {
                let id = rustix::thread::gettid().as_raw_nonzero().get();
                direction.thread_id.store(u64::from(id.unsigned_abs()), Ordering::Relaxed);
                // Without the privilege the link works too, and reports how late it was.
                tun::run_first().ok();
                rustix::thread::set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS)).ok();
                ready.send(()).ok();
                direction.carry(&from, &to, tap.as_ref());
            };
            link.threads.push(std::thread::Builder::new().name(name.into()).spawn(carry)?);
            is_ready.recv().ok();
        }
        Ok(link)
    }

    pub(crate) fn set(&self, shapes: [Shape; 2]) {
        for (direction, shape) in self.directions.iter().zip(shapes) {
            direction.lock().set(direction.now_ns(), shape);
            direction.wake();
        }
    }

    /// Changes the shapes at these times from now on, which are in order.
    pub(crate) fn follow(&self, changes: &[(Duration, [Shape; 2])]) {
        for (i, direction) in self.directions.iter().enumerate() {
            let now_ns = direction.now_ns();
            let at_ns = |after: Duration| now_ns.saturating_add(after.as_nanos() as u64);
            let own = changes.iter().map(|(after, shapes)| (at_ns(*after), shapes[i]));
            direction.lock().follow(now_ns, own.collect());
            direction.wake();
        }
    }

    /// The shapes now, forward and back.
    pub(crate) fn shapes(&self) -> [Shape; 2] {
        [0, 1].map(|i| self.directions[i].lock().shape())
    }

    /// Drops all packets from now on, for this time or until `mend`.
    pub(crate) fn cut(&self, time: Option<Duration>) {
        for direction in &self.directions {
            let now_ns = direction.now_ns();
            let until_ns = time.map_or(u64::MAX, |time| now_ns + time.as_nanos() as u64);
            direction.lock().cut(now_ns, until_ns);
        }
    }

    pub(crate) fn mend(&self) {
        self.directions.iter().for_each(|direction| direction.lock().mend(direction.now_ns()));
    }

    /// Forward and back.
    pub(crate) fn counters(&self) -> [WayCounters; 2] {
        [0, 1].map(|i| self.directions[i].counters())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for direction in &self.directions {
            direction.is_over.store(true, Ordering::Relaxed);
            direction.wake();
        }
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl Direction {
    fn new(shape: Shape, seed: u64, began: Instant) -> io::Result<Direction> {
        Ok(Direction {
            pipe: Mutex::new(Pipe::new(shape, seed)),
            wake_up: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_over: AtomicBool::new(false),
            began,
            late_ns_max: AtomicU64::new(0),
            late_packets: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            thread_id: AtomicU64::new(0),
        })
    }

    /// The thread of this direction. It sleeps until a packet comes or is due. While packets flow
    /// it polls once per tick instead: a wake-up costs more than a packet.
    fn carry(&self, from: &OwnedFd, to: &OwnedFd, tap: Option<&Tap>) {
        let mut batch = Batch::default();
        let mut sleeper = Sleeper { lag_ns: LAG_NS_FIRST };
        let mut looked_ns = self.now_ns();
        let mut wake = Wake::Time;
        while !self.is_over.load(Ordering::Relaxed) {
            let now_ns = self.now_ns();
            let mut pipe = self.lock();
            let tick_ns = tick_ns(&pipe.shape());
            let came = batch.read(from);
            let came_ns = match wake {
                Wake::Tick => {
                    let takes_ns = transmission_ns(batch.bytes(), &pipe.shape());
                    let came_ns = entered(looked_ns..now_ns, tick_ns, takes_ns);
                    self.note_late(came_ns.start - looked_ns, came as u64);
                    came_ns
                }
                // A packet woke the thread, which took `lag_ns`.
                Wake::Packet => {
                    let at_ns = now_ns.saturating_sub(sleeper.lag_ns).max(looked_ns);
                    at_ns..at_ns
                }
                // No packet had come before now.
                Wake::Time => now_ns..now_ns,
            };
            looked_ns = now_ns;
            batch.enter(came_ns, &mut pipe, tap.filter(|tap| tap.at_entry));
            let early_ns = match wake {
                Wake::Tick => (tick_ns + sleeper.lag_ns) / 2,
                Wake::Packet | Wake::Time => tick_ns / 2,
            };
            let gone = self.give_out(&mut pipe, to, tap, early_ns, &mut batch.spare);
            let next_ns = pipe.next_ns();
            drop(pipe);
            wake = if came == BATCH_PACKETS || gone == BATCH_PACKETS {
                Wake::Tick
            } else if came + gone > 0 {
                sleeper.tick(self, tick_ns)
            } else {
                sleeper.wait(self, from, next_ns)
            };
        }
    }

    /// Writes packets that are due now or within half a tick, so that on average they are on time.
    /// Returns how many.
    fn give_out(
        &self,
        pipe: &mut Pipe<Packet>,
        to: &OwnedFd,
        tap: Option<&Tap>,
        early_ns: u64,
        spare: &mut Vec<Packet>,
    ) -> usize {
        for count in 0..BATCH_PACKETS {
            let now_ns = self.now_ns();
            match pipe.take_due(now_ns, early_ns) {
                None => return count,
                Some(Arrival::Lost(packet)) => spare.push(packet),
                Some(Arrival::Delivered(due_ns, packet)) => {
                    self.note_late(now_ns.saturating_sub(due_ns), 1);
                    if rustix::io::write(to, &packet.bytes[..packet.len]).is_err() {
                        self.refused.fetch_add(1, Ordering::Relaxed);
                    }
                    if let Some(tap) = tap.filter(|tap| !tap.at_entry) {
                        tap.note(now_ns, &packet);
                    }
                    spare.push(packet);
                }
            }
        }
        BATCH_PACKETS
    }

    /// Records that packets were late by this much.
    fn note_late(&self, late_ns: u64, packets: u64) {
        if packets > 0 {
            self.late_ns_max.fetch_max(late_ns, Ordering::Relaxed);
        }
        if late_ns > LATE_NS {
            self.late_packets.fetch_add(packets, Ordering::Relaxed);
        }
    }

    fn counters(&self) -> WayCounters {
        let packets = self.lock().counters();
        WayCounters {
            packets,
            late_ns_max: self.late_ns_max.load(Ordering::Relaxed),
            late_packets: self.late_packets.load(Ordering::Relaxed),
            kernel_drops: self.refused.load(Ordering::Relaxed),
            cpu_ns: cpu_ns(self.thread_id.load(Ordering::Relaxed)),
        }
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn wake(&self) {
        rustix::io::write(&self.wake_up, &1_u64.to_ne_bytes()).ok();
    }

    fn lock(&self) -> MutexGuard<'_, Pipe<Packet>> {
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Packets between a device and the pipe, and buffers for more.
#[derive(Default)]
struct Batch {
    packets: Vec<Packet>,
    spare: Vec<Packet>,
}

impl Batch {
    /// Reads all waiting packets of the device, up to a batch: due packets must not wait for long.
    fn read(&mut self, from: &OwnedFd) -> usize {
        while self.packets.len() < BATCH_PACKETS {
            let mut packet = self.spare.pop().unwrap_or_else(Packet::empty);
            match rustix::io::read(from, packet.bytes.as_mut_slice()) {
                Ok(len) => packet.len = len,
                Err(_) => {
                    self.spare.push(packet);
                    break;
                }
            }
            self.packets.push(packet);
        }
        self.packets.len()
    }

    fn bytes(&self) -> u64 {
        self.packets.iter().map(|packet| packet.len as u64).sum()
    }

    /// Offers the packets, as if they had come evenly over this time.
    fn enter(&mut self, time_ns: Range<u64>, pipe: &mut Pipe<Packet>, tap: Option<&Tap>) {
        let parts = 2 * self.packets.len() as u64;
        let span_ns = time_ns.end - time_ns.start;
        for (i, packet) in self.packets.drain(..).enumerate() {
            let at_ns = time_ns.start + span_ns * (2 * i as u64 + 1) / parts;
            if let Some(tap) = tap {
                tap.note(at_ns, &packet);
            }
            pipe.offer(at_ns, packet.len as u32, packet);
        }
        self.spare.extend(pipe.take_dropped());
    }
}

/// Why a thread woke up.
enum Wake {
    /// A tick is over, or there were more packets than fit in a batch.
    Tick,
    Packet,
    /// A packet is due, or the shape has changed.
    Time,
}

/// Sleeps, and measures how late it wakes: some 50 µs on a virtual machine. Timers are set earlier
/// by this lag, and a packet that woke the thread is dated earlier by it.
struct Sleeper {
    lag_ns: u64,
}

impl Sleeper {
    /// Sleeps for a tick, or until `wake_up`.
    fn tick(&mut self, direction: &Direction, tick_ns: u64) -> Wake {
        self.sleep(direction, &mut [PollFd::new(&direction.wake_up, PollFlags::IN)], Some(tick_ns));
        Wake::Tick
    }

    /// Sleeps until a packet comes, one is due, or `wake_up`.
    fn wait(&mut self, direction: &Direction, device: &OwnedFd, until_ns: Option<u64>) -> Wake {
        let mut ends =
            [PollFd::new(&direction.wake_up, PollFlags::IN), PollFd::new(device, PollFlags::IN)];
        let time_ns =
            until_ns.map(|until_ns| until_ns.saturating_sub(direction.now_ns() + self.lag_ns));
        self.sleep(direction, &mut ends, time_ns);
        match ends[1].revents().contains(PollFlags::IN) {
            true => Wake::Packet,
            false => Wake::Time,
        }
    }

    /// `wake_up` is the first of the ends.
    fn sleep(&mut self, direction: &Direction, ends: &mut [PollFd<'_>], time_ns: Option<u64>) {
        let until_ns = time_ns.map(|time_ns| direction.now_ns() + time_ns);
        let time = time_ns.map(|time_ns| Timespec {
            tv_sec: (time_ns / NANOS_PER_SECOND).cast_signed(),
            tv_nsec: (time_ns % NANOS_PER_SECOND).cast_signed(),
        });
        // A signal counts as a wake-up; nothing else can fail here.
        let woken = poll(ends, time.as_ref());
        if ends[0].revents().contains(PollFlags::IN) {
            rustix::io::read(&direction.wake_up, &mut [0; 8]).ok();
        }
        // A timeout of 0 does not measure the lag.
        if let (Ok(0), Some(until_ns), Some(1..)) = (woken, until_ns, time_ns) {
            let late_ns = direction.now_ns().saturating_sub(until_ns).min(LAG_NS_MAX);
            self.lag_ns = (self.lag_ns * 7 + late_ns) / 8;
        }
    }
}

/// The arrival times of packets that are found after a tick: any time since the last look. If that
/// was long ago the thread was late, and a single packet may have come at the very end. Dated
/// evenly it would arrive too early, by half of the lateness, and TCP keeps the least round trip.
/// So all are dated within the last ticks, or within the time that the link takes to transmit them,
/// so that lateness alone does not overflow its queue.
fn entered(looked_ns: Range<u64>, tick_ns: u64, takes_ns: u64) -> Range<u64> {
    let span_ns = (looked_ns.end - looked_ns.start).min(takes_ns.max(2 * tick_ns));
    looked_ns.end - span_ns..looked_ns.end
}

fn transmission_ns(bytes: u64, shape: &Shape) -> u64 {
    let bit_ns = u128::from(bytes) * 8 * u128::from(NANOS_PER_SECOND);
    u64::try_from(bit_ns / u128::from(shape.rate_bits_per_s)).unwrap_or(u64::MAX)
}

/// A fiftieth of the one-way delay, but at most the time that fills a twentieth of the queue.
fn tick_ns(shape: &Shape) -> u64 {
    let bits = u128::from(shape.queue_bytes) * 8 / 20;
    let queue_ns = bits * u128::from(NANOS_PER_SECOND) / u128::from(shape.rate_bits_per_s);
    let queue_ns = u64::try_from(queue_ns).unwrap_or(u64::MAX);
    (shape.delay_ns / 50).min(queue_ns).clamp(TICK_NS_MIN, TICK_NS_MAX)
}

impl Packet {
    fn empty() -> Packet {
        Packet { bytes: Box::new([0; MTU_BYTES]), len: 0 }
    }
}

impl Traffic for Packet {
    fn flow(&self, salt: u64) -> u64 {
        ip::flow(&self.bytes[..self.len], salt)
    }

    fn mark_congestion(&mut self) -> bool {
        ip::mark_congestion(&mut self.bytes[..self.len])
    }
}

impl Tap {
    fn note(&self, now_ns: u64, packet: &Packet) {
        let mut pcap = self.pcap.lock().unwrap_or_else(PoisonError::into_inner);
        pcap.write(now_ns, &packet.bytes[..packet.len]);
    }
}

/// CPU time of a thread of this process, to the nanosecond.
fn cpu_ns(thread: u64) -> u64 {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat"));
    stat.ok().and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0)
}

pub(crate) const MTU_BYTES: usize = 1500;
const BATCH_PACKETS: usize = 256;
const TICK_NS_MIN: u64 = 50_000;
const TICK_NS_MAX: u64 = 500_000;
/// The initial value, before a measurement.
const LAG_NS_FIRST: u64 = 50_000;
/// A larger lag means that the machine is busy, not that it wakes slowly.
const LAG_NS_MAX: u64 = 200_000;
const LATE_NS: u64 = 1_000_000;
const TIMER_SLACK_NS: u64 = 1000;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_dated_long_before_it_may_have_come() {
        // (last look, now, transmission time of the packets, since when they came), in µs; a tick
        // is 500.
        let cases = [
            // On time, and a little late.
            (1000, 1500, 120, 1000),
            (1000, 1900, 120, 1000),
            // 50 ms late: one packet, and as many as the link carries in that time, and more.
            (1000, 51_500, 120, 50_500),
            (1000, 51_500, 40_000, 11_500),
            (1000, 51_500, 90_000, 1000),
        ];
        for (looked, now, takes, since) in cases {
            let came = entered(looked * 1000..now * 1000, 500_000, takes * 1000);
            assert_eq!(came, since * 1000..now * 1000, "{looked} {now} {takes}");
        }
    }
}
