//! One direction of the link as a value: packets go in at a time, and come out at a time. It has no
//! clock and no device, so that its arithmetic can be tested exactly.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

/// What one direction does to packets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// `u64::MAX` for no limit.
    pub rate_bits_per_s: u64,
    /// Propagation, one way.
    pub delay_ns: u64,
    /// Up to this is added to the delay, half of it on average.
    pub jitter_ns: u64,
    /// Limit of the queue, including the packet that is being transmitted. Packets beyond it are
    /// dropped.
    pub queue_bytes: u64,
    /// The share of transmitted packets that never arrive.
    pub loss: f64,
}

/// Counters of the packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipeCounters {
    pub packets_in: u64,
    pub bytes_in: u64,
    pub packets_out: u64,
    pub bytes_out: u64,
    /// Dropped because the queue was full.
    pub queue_drops: u64,
    /// Lost at random.
    pub losses: u64,
    /// Lost because they would have arrived during a cut.
    pub cut_drops: u64,
    /// The longest queue so far.
    pub queue_bytes_max: u64,
}

/// A queue, a transmitter and a wire with a delay. `P` is a packet; the pipe uses nothing of it but
/// its length. Times are nanoseconds since the link began. An offer may be dated a little before
/// the previous one: the transmitter sends packets one after the other anyway.
#[derive(Debug)]
pub(crate) struct Pipe<P> {
    shape: Shape,
    generator: Pcg64,
    jitter: Jitter,
    waiting: VecDeque<Waiting<P>>,
    waiting_bytes: u64,
    /// When the first of `waiting` will be transmitted; if none waits, when the last one was.
    head_done_ns: u64,
    /// The rounding error of transmission times, in parts of a nanosecond over the rate.
    remainder: u128,
    flying: VecDeque<Flying<P>>,
    /// When the newest of `flying` arrives: packets never overtake each other.
    last_arrival_ns: u64,
    cut: Option<Cut>,
    counters: PipeCounters,
}

#[derive(Debug)]
struct Waiting<P> {
    bytes: u32,
    packet: P,
}

#[derive(Debug)]
struct Flying<P> {
    arrival_ns: u64,
    bytes: u32,
    is_lost: bool,
    packet: P,
}

#[derive(Clone, Copy, Debug)]
struct Cut {
    from_ns: u64,
    until_ns: u64,
}

/// The result for a packet when it is due.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival<P> {
    /// It arrives; this is the time when it was due.
    Delivered(u64, P),
    /// It was lost; its memory is returned.
    Lost(P),
}

impl<P> Pipe<P> {
    pub(crate) fn new(shape: Shape, seed: u64) -> Pipe<P> {
        Pipe {
            shape,
            generator: Pcg64::seed_from_u64(seed),
            jitter: Jitter::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            head_done_ns: 0,
            remainder: 0,
            flying: VecDeque::new(),
            last_arrival_ns: 0,
            cut: None,
            counters: PipeCounters::default(),
        }
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    pub(crate) fn counters(&self) -> PipeCounters {
        self.counters
    }

    /// Adds a packet to the queue. Returns it if the queue is full.
    pub(crate) fn offer(&mut self, now_ns: u64, bytes: u32, packet: P) -> Option<P> {
        self.advance(now_ns);
        self.counters.packets_in += 1;
        self.counters.bytes_in += u64::from(bytes);
        if self.waiting_bytes + u64::from(bytes) > self.shape.queue_bytes {
            self.counters.queue_drops += 1;
            return Some(packet);
        }
        if self.waiting.is_empty() {
            if self.head_done_ns < now_ns {
                (self.head_done_ns, self.remainder) = (now_ns, 0);
            }
            self.head_done_ns = self.head_done_ns.saturating_add(self.transmission_ns(bytes));
        }
        self.waiting.push_back(Waiting { bytes, packet });
        self.waiting_bytes += u64::from(bytes);
        self.counters.queue_bytes_max = self.counters.queue_bytes_max.max(self.waiting_bytes);
        None
    }

    /// The next packet that arrives within `early_ns`, in the order of the offers.
    pub(crate) fn take_due(&mut self, now_ns: u64, early_ns: u64) -> Option<Arrival<P>> {
        self.advance(now_ns);
        let until_ns = now_ns.saturating_add(early_ns);
        let due = self.flying.pop_front_if(|flying| flying.arrival_ns <= until_ns)?;
        if self.is_cut_at(due.arrival_ns) {
            self.counters.cut_drops += 1;
            return Some(Arrival::Lost(due.packet));
        }
        if due.is_lost {
            self.counters.losses += 1;
            return Some(Arrival::Lost(due.packet));
        }
        self.counters.packets_out += 1;
        self.counters.bytes_out += u64::from(due.bytes);
        Some(Arrival::Delivered(due.arrival_ns, due.packet))
    }

    /// No packet arrives before this time, unless more are offered or the shape changes.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let flying = self.flying.front().map(|flying| flying.arrival_ns);
        let waits = !self.waiting.is_empty();
        let earliest = self.head_done_ns.saturating_add(self.shape.delay_ns);
        flying.or(waits.then_some(earliest.max(self.last_arrival_ns)))
    }

    /// Changes the shape from now on. Transmitted packets keep their arrival times and are not
    /// overtaken; the rest of the packet that is being transmitted is sent at the new rate.
    pub(crate) fn set(&mut self, now_ns: u64, shape: Shape) {
        self.advance(now_ns);
        let rest_ns = u128::from(self.head_done_ns.saturating_sub(now_ns));
        let was = u128::from(self.shape.rate_bits_per_s);
        let is = u128::from(shape.rate_bits_per_s);
        if was != is && !self.waiting.is_empty() {
            let rest_ns = u64::try_from(rest_ns * was / is).unwrap_or(u64::MAX);
            self.head_done_ns = now_ns.saturating_add(rest_ns);
            self.remainder = 0;
        }
        self.shape = shape;
    }

    /// Packets that would arrive from now until then are lost. A second cut replaces the first.
    pub(crate) fn cut(&mut self, now_ns: u64, until_ns: u64) {
        self.advance(now_ns);
        self.cut = Some(Cut { from_ns: now_ns, until_ns });
    }

    /// Ends a cut.
    pub(crate) fn mend(&mut self, now_ns: u64) {
        if let Some(cut) = &mut self.cut {
            cut.until_ns = cut.until_ns.min(now_ns);
        }
    }

    fn is_cut_at(&self, arrival_ns: u64) -> bool {
        self.cut.is_some_and(|cut| (cut.from_ns..cut.until_ns).contains(&arrival_ns))
    }

    /// Moves transmitted packets from the queue to the wire.
    fn advance(&mut self, now_ns: u64) {
        while self.head_done_ns <= now_ns {
            let Some(sent) = self.waiting.pop_front() else { return };
            self.waiting_bytes -= u64::from(sent.bytes);
            let done_ns = self.head_done_ns;
            let extra_ns = self.jitter.at(done_ns, self.shape.jitter_ns, &mut self.generator);
            let arrival_ns = done_ns.saturating_add(self.shape.delay_ns + extra_ns);
            self.last_arrival_ns = self.last_arrival_ns.max(arrival_ns);
            // One random number per packet, whatever the loss is: the same seed loses the same
            // packets.
            let is_lost = self.generator.random::<f64>() < self.shape.loss;
            self.flying.push_back(Flying {
                arrival_ns: self.last_arrival_ns,
                bytes: sent.bytes,
                is_lost,
                packet: sent.packet,
            });
            if let Some(next) = self.waiting.front() {
                self.head_done_ns = done_ns.saturating_add(self.transmission_ns(next.bytes));
            }
        }
    }

    /// The transmission time of a packet. The rounding error is added to the next, so that the sum
    /// over a million packets is exact.
    fn transmission_ns(&mut self, bytes: u32) -> u64 {
        let rate = u128::from(self.shape.rate_bits_per_s);
        let bit_ns = u128::from(bytes) * 8 * NANOS_PER_SECOND + self.remainder;
        self.remainder = bit_ns % rate;
        u64::try_from(bit_ns / rate).unwrap_or(u64::MAX)
    }
}

/// A delay that varies: straight lines between random points. The points are so far apart that the
/// delay never falls faster than time passes, so packets stay in order.
#[derive(Debug, Default)]
struct Jitter {
    from: Point,
    to: Point,
}

#[derive(Clone, Copy, Debug, Default)]
struct Point {
    at_ns: u64,
    extra_ns: u64,
}

impl Jitter {
    fn at(&mut self, now_ns: u64, jitter_ns: u64, generator: &mut Pcg64) -> u64 {
        if jitter_ns == 0 {
            return 0;
        }
        let span_ns = JITTER_SPANS * jitter_ns;
        if now_ns >= self.to.at_ns {
            // After a time without packets it continues from its last value.
            let last = if now_ns - self.to.at_ns < span_ns { self.to.at_ns } else { now_ns };
            self.from = Point { at_ns: last, extra_ns: self.to.extra_ns };
            let extra_ns = generator.random_range(0..=jitter_ns);
            self.to = Point { at_ns: last + span_ns, extra_ns };
        }
        let share =
            (now_ns - self.from.at_ns) as f64 / (self.to.at_ns - self.from.at_ns).max(1) as f64;
        let from = self.from.extra_ns as f64;
        let extra_ns = (from + (self.to.extra_ns as f64 - from) * share) as u64;
        extra_ns.min(jitter_ns)
    }
}

const NANOS_PER_SECOND: u128 = 1_000_000_000;
/// The distance of the random points, in multiples of the jitter.
const JITTER_SPANS: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SHAPE: Shape = Shape {
        rate_bits_per_s: 100_000_000,
        delay_ns: 51 * MS,
        jitter_ns: 0,
        queue_bytes: 64 << 10,
        loss: 0.0,
    };

    /// Offers packets of one length at these times, and returns when each arrived, by its number.
    fn arrivals(pipe: &mut Pipe<usize>, bytes: u32, at_ns: &[u64]) -> Vec<(usize, u64)> {
        for (number, at_ns) in at_ns.iter().enumerate() {
            pipe.offer(*at_ns, bytes, number);
        }
        drain(pipe)
    }

    fn drain(pipe: &mut Pipe<usize>) -> Vec<(usize, u64)> {
        let mut came = Vec::new();
        while let Some(next_ns) = pipe.next_ns() {
            while let Some(arrival) = pipe.take_due(next_ns, 0) {
                if let Arrival::Delivered(at_ns, number) = arrival {
                    came.push((number, at_ns));
                }
            }
        }
        came
    }

    #[test]
    fn rate_and_delay_are_exact() {
        // 1500 bytes at this rate take this long; n of them in a row n times as long.
        let cases = [
            (100_000_000, 51 * MS, 120_000.0),
            (300_000_000, 0, 40_000.0),
            (1_000_000_000, 75 * MS, 12_000.0),
            (7_000_000, 3 * MS, 12_000.0 / 7.0 * 1000.0),
            (u64::MAX, MS, 0.0),
        ];
        for (rate_bits_per_s, delay_ns, each_ns) in cases {
            let queue_bytes = u64::MAX;
            let shape = Shape { rate_bits_per_s, delay_ns, queue_bytes, ..SHAPE };
            let came = arrivals(&mut Pipe::new(shape, 1), 1500, &[1000; 1000]);
            for (i, (number, at_ns)) in came.iter().enumerate() {
                let expected = 1000.0 + delay_ns as f64 + each_ns * (i + 1) as f64;
                assert_eq!(*number, i, "{shape:?}");
                assert!((*at_ns as f64 - expected).abs() <= 1.0, "{shape:?}: {i} at {at_ns}");
            }
            assert_eq!(came.len(), 1000);
        }
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_nothing_else() {
        // (limit of the queue, packets at once, those that arrive)
        for (queue_bytes, offered, arrive) in
            [(3000, 5, 2), (4499, 5, 2), (4500, 5, 3), (15_000, 10, 10)]
        {
            let mut pipe = Pipe::new(Shape { queue_bytes, ..SHAPE }, 1);
            let came = arrivals(&mut pipe, 1500, &vec![0; offered]);
            assert_eq!(came.len(), arrive, "{queue_bytes}");
            let counters = pipe.counters();
            assert_eq!(counters.queue_drops, (offered - arrive) as u64);
            assert_eq!(counters.queue_bytes_max, 1500 * arrive as u64);
            assert_eq!(counters.packets_in, offered as u64);
            assert_eq!(counters.bytes_out, 1500 * arrive as u64);
        }
        // Packets stay in sequence, even if an offer is dated a little back.
        let mut pipe = Pipe::new(SHAPE, 1);
        let came = arrivals(&mut pipe, 1500, &[0, 130_000, 120_000]);
        let ends_ns = [120_000, 250_000, 370_000];
        assert!(came.iter().zip(ends_ns).all(|((_, at_ns), end_ns)| *at_ns == end_ns + 51 * MS));
        // One that is offered when another has just been transmitted finds space.
        let mut pipe = Pipe::new(Shape { queue_bytes: 3000, ..SHAPE }, 1);
        assert_eq!(arrivals(&mut pipe, 1500, &[0, 0, 119_999, 120_000]).len(), 3);
    }

    #[test]
    fn losses_have_the_frequency_and_repeat() {
        for loss in [0.0, 0.001, 0.01, 0.3, 1.0] {
            let lost = |seed| {
                let mut pipe = Pipe::new(Shape { loss, queue_bytes: u64::MAX, ..SHAPE }, seed);
                let came = arrivals(&mut pipe, 1500, &vec![0; 200_000]);
                assert_eq!(came.len() as u64 + pipe.counters().losses, 200_000);
                (pipe.counters().losses, came)
            };
            let (losses, came) = lost(7);
            let expected = loss * 200_000.0;
            let spread = 4.0 * (expected * (1.0 - loss)).sqrt();
            assert!((losses as f64 - expected).abs() <= spread, "{loss}: {losses}");
            assert_eq!(lost(7).1, came, "the same seed loses the same packets");
            assert!(loss == 0.0 || loss == 1.0 || lost(8).1 != came);
        }
    }

    #[test]
    fn jitter_wanders_within_its_bounds_and_keeps_the_order() {
        let jitter_ns = 5 * MS;
        let mut pipe = Pipe::new(Shape { jitter_ns, queue_bytes: u64::MAX, ..SHAPE }, 3);
        let times: Vec<u64> = (0..100_000).map(|i| i * 120_000).collect();
        let came = arrivals(&mut pipe, 1500, &times);
        let extras: Vec<u64> =
            came.iter().map(|(i, at_ns)| at_ns - times[*i] - 120_000 - SHAPE.delay_ns).collect();
        assert!(came.is_sorted_by_key(|(number, at_ns)| (*at_ns, *number)));
        assert!(extras.iter().all(|extra| *extra <= jitter_ns));
        let mean = extras.iter().sum::<u64>() as f64 / extras.len() as f64;
        assert!((mean / jitter_ns as f64 - 0.5).abs() < 0.1, "{mean}");
        assert!(extras.iter().max().unwrap() > &(jitter_ns * 8 / 10));
    }

    #[test]
    fn changes_hold_from_their_moment_on() {
        let queue_bytes = 1 << 20;
        let shape = Shape { queue_bytes, ..SHAPE };
        // (change after 60 µs, half of the first packet; arrival of the first and of the second
        // packet)
        let cases = [
            (shape, 120_000 + 51 * MS, 240_000 + 51 * MS),
            (
                Shape { rate_bits_per_s: 10_000_000, ..shape },
                660_000 + 51 * MS,
                1_860_000 + 51 * MS,
            ),
            (Shape { rate_bits_per_s: 1_000_000_000, ..shape }, 66_000 + 51 * MS, 78_000 + 51 * MS),
            (Shape { rate_bits_per_s: u64::MAX, ..shape }, 60_000 + 51 * MS, 60_000 + 51 * MS),
            (Shape { delay_ns: MS, ..shape }, 120_000 + MS, 240_000 + MS),
        ];
        for (changed, first_ns, second_ns) in cases {
            let mut pipe = Pipe::new(shape, 1);
            for number in 0..2 {
                pipe.offer(0, 1500, number);
            }
            pipe.set(60_000, changed);
            assert_eq!(drain(&mut pipe), [(0, first_ns), (1, second_ns)], "{changed:?}");
        }
        // With a shorter delay, no packet overtakes those on the wire.
        let mut pipe = Pipe::new(shape, 1);
        pipe.offer(0, 1500, 0);
        pipe.set(MS, Shape { delay_ns: 0, ..shape });
        pipe.offer(MS, 1500, 1);
        assert_eq!(drain(&mut pipe), [(0, 120_000 + 51 * MS), (1, 120_000 + 51 * MS)]);
        // A shorter queue drops new packets, not those in it.
        let mut pipe = Pipe::new(shape, 1);
        (0..10).for_each(|number| assert_eq!(pipe.offer(0, 1500, number), None));
        pipe.set(0, Shape { queue_bytes: 3000, ..shape });
        assert_eq!(pipe.offer(0, 1500, 10), Some(10));
        assert_eq!(drain(&mut pipe).len(), 10);
    }

    #[test]
    fn a_cut_loses_what_would_arrive_meanwhile() {
        let mut pipe = Pipe::new(SHAPE, 1);
        let times: Vec<u64> = (0..200).map(|i| i * MS).collect();
        for (number, at_ns) in times.iter().enumerate() {
            if number == 60 {
                pipe.cut(*at_ns, 100 * MS);
            }
            pipe.offer(*at_ns, 1500, number);
        }
        // Each arrives 51.12 ms after it was sent.
        let came: Vec<usize> = drain(&mut pipe).into_iter().map(|(number, _)| number).collect();
        let expected: Vec<usize> = (0..=8).chain(49..200).collect();
        assert_eq!(came, expected);
        assert_eq!(pipe.counters().cut_drops, 40);

        let mut pipe = Pipe::new(SHAPE, 1);
        pipe.cut(0, u64::MAX);
        pipe.offer(0, 1500, 0);
        pipe.offer(10 * MS, 1500, 1);
        pipe.mend(60 * MS);
        assert_eq!(drain(&mut pipe), [(1, 61 * MS + 120_000)]);
    }
}
