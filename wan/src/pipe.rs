//! One direction of the link as a value: packets go in at a time, and come out at a time. It has no
//! clock and no device, so that its arithmetic can be tested exactly.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

use crate::losses::{Loss, Losses};
use crate::policer::{Policer, TokenBucket};
use crate::queue::{Aqm, Done, Held, Queue, Traffic};

/// What one direction does to packets, in this order: policer, queue, transmitter, loss, wire.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// Drops what comes faster than its rate, before the queue.
    pub policer: Option<Policer>,
    /// `u64::MAX` for no limit.
    pub rate_bits_per_s: u64,
    /// Limit of the queue, including the packet that is being transmitted. Packets beyond it are
    /// dropped.
    pub queue_bytes: u64,
    pub aqm: Aqm,
    /// Of the transmitted packets: those that never arrive.
    pub loss: Loss,
    /// Propagation, one way.
    pub delay_ns: u64,
    /// Up to this is added to the delay, half of it on average.
    pub jitter_ns: u64,
    pub reordering: Reordering,
}

/// A share of packets takes longer, by the same time, so that later ones overtake them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reordering {
    pub share: f64,
    pub extra_ns: u64,
}

/// Counters of the packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipeCounters {
    pub packets_in: u64,
    pub bytes_in: u64,
    pub packets_out: u64,
    pub bytes_out: u64,
    /// Dropped by the policer.
    pub policer_drops: u64,
    /// Dropped because the queue was full.
    pub queue_drops: u64,
    /// Dropped by CoDel, before the queue was full.
    pub aqm_drops: u64,
    /// Marked by CoDel with "congestion experienced".
    pub marks: u64,
    /// Lost at random.
    pub losses: u64,
    /// Delayed so that others overtook them.
    pub reordered: u64,
    /// Lost because they would have arrived during a cut.
    pub cut_drops: u64,
    /// The longest queue so far.
    pub queue_bytes_max: u64,
}

/// A policer, a queue, a transmitter and a wire with a delay. `P` is a packet. Times are
/// nanoseconds since the link began. An offer may be dated a little before the previous one: the
/// transmitter sends packets one after the other anyway.
#[derive(Debug)]
pub(crate) struct Pipe<P> {
    shape: Shape,
    /// Shapes to come, in the order of their times.
    changes: VecDeque<(u64, Shape)>,
    salt: u64,
    losses: Losses,
    /// Of jitter and reordering, so that the same packets are lost with and without them.
    generator: Pcg64,
    jitter: Jitter,
    bucket: Option<TokenBucket>,
    queue: Queue<P>,
    done: Done<P>,
    sending: Option<Sending<P>>,
    /// When the last packet was transmitted.
    free_ns: u64,
    /// The rounding error of transmission times, in parts of a nanosecond over the rate.
    remainder: u128,
    flying: VecDeque<Flying<P>>,
    /// When the newest of `flying` arrives: these packets never overtake each other.
    last_arrival_ns: u64,
    /// Packets that are overtaken.
    delayed: BinaryHeap<Delayed<P>>,
    delayed_count: u64,
    cut: Option<Cut>,
    counters: PipeCounters,
}

/// The packet that is being transmitted.
#[derive(Debug)]
struct Sending<P> {
    done_ns: u64,
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

/// Ordered for a heap whose greatest comes first: the earliest arrival, then the earliest number.
#[derive(Debug)]
struct Delayed<P> {
    number: u64,
    flying: Flying<P>,
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

impl<P: Traffic> Pipe<P> {
    pub(crate) fn new(shape: Shape, seed: u64) -> Pipe<P> {
        Pipe {
            shape,
            changes: VecDeque::new(),
            salt: seed,
            losses: Losses::new(seed),
            generator: Pcg64::seed_from_u64(seed ^ OTHER_SEED),
            jitter: Jitter::default(),
            bucket: shape.policer.map(|policer| TokenBucket::new(policer, 0)),
            queue: Queue::new(shape.aqm, seed),
            done: Done::default(),
            sending: None,
            free_ns: 0,
            remainder: 0,
            flying: VecDeque::new(),
            last_arrival_ns: 0,
            delayed: BinaryHeap::new(),
            delayed_count: 0,
            cut: None,
            counters: PipeCounters::default(),
        }
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    pub(crate) fn counters(&self) -> PipeCounters {
        PipeCounters {
            queue_drops: self.done.overflows,
            aqm_drops: self.done.aqm_drops,
            marks: self.done.marks,
            ..self.counters
        }
    }

    /// Adds a packet to the queue. What is dropped meanwhile is in `take_dropped`.
    pub(crate) fn offer(&mut self, now_ns: u64, bytes: u32, packet: P) {
        self.advance(now_ns);
        self.counters.packets_in += 1;
        self.counters.bytes_in += u64::from(bytes);
        if self.bucket.as_mut().is_some_and(|bucket| !bucket.admits(now_ns, bytes)) {
            self.counters.policer_drops += 1;
            self.done.dropped.push(packet);
            return;
        }
        let room = self.shape.queue_bytes.saturating_sub(self.sending_bytes());
        self.queue.enqueue(Held { bytes, entered_ns: now_ns, packet }, room, &mut self.done);
        let waiting_bytes = self.queue.bytes() + self.sending_bytes();
        self.counters.queue_bytes_max = self.counters.queue_bytes_max.max(waiting_bytes);
        if self.sending.is_none() {
            if self.free_ns < now_ns {
                (self.free_ns, self.remainder) = (now_ns, 0);
            }
            self.send_next();
        }
    }

    /// The packets that were dropped since the last call, for their memory.
    pub(crate) fn take_dropped(&mut self) -> impl Iterator<Item = P> + '_ {
        self.done.dropped.drain(..)
    }

    /// The next packet that arrives within `early_ns`.
    pub(crate) fn take_due(&mut self, now_ns: u64, early_ns: u64) -> Option<Arrival<P>> {
        self.advance(now_ns);
        let until_ns = now_ns.saturating_add(early_ns);
        let in_order_ns = self.flying.front().map_or(u64::MAX, |flying| flying.arrival_ns);
        let delayed_ns = self.delayed.peek().map_or(u64::MAX, |next| next.flying.arrival_ns);
        let due = match delayed_ns <= until_ns && delayed_ns < in_order_ns {
            true => self.delayed.pop().map(|delayed| delayed.flying),
            false => self.flying.pop_front_if(|flying| flying.arrival_ns <= until_ns),
        }?;
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

    /// Nothing happens before this time, unless more is offered or the shape changes: no packet
    /// arrives, and no change to come begins.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let flying = self.flying.front().map(|flying| flying.arrival_ns);
        let delayed = self.delayed.peek().map(|next| next.flying.arrival_ns);
        let sending = self.sending.as_ref().map(|sending| {
            sending.done_ns.saturating_add(self.shape.delay_ns).max(self.last_arrival_ns)
        });
        let change = self.changes.front().map(|(at_ns, _)| *at_ns);
        [flying, delayed, sending, change].into_iter().flatten().min()
    }

    /// Changes the shape from now on, in place of all changes to come.
    pub(crate) fn set(&mut self, now_ns: u64, shape: Shape) {
        self.advance(now_ns);
        self.changes.clear();
        self.reshape(now_ns, shape);
    }

    /// Changes the shape at these times, which are in order, in place of all changes to come.
    pub(crate) fn follow(&mut self, now_ns: u64, changes: VecDeque<(u64, Shape)>) {
        self.advance(now_ns);
        self.changes = changes;
        self.advance(now_ns);
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

    /// Transmitted packets keep their arrival times, and those in order are not overtaken; the rest
    /// of the packet that is being transmitted is sent at the new rate. What waits is not dropped.
    fn reshape(&mut self, now_ns: u64, shape: Shape) {
        let was = u128::from(self.shape.rate_bits_per_s);
        let is = u128::from(shape.rate_bits_per_s);
        if let Some(sending) = self.sending.as_mut().filter(|_| was != is) {
            let rest_ns = u128::from(sending.done_ns.saturating_sub(now_ns));
            let rest_ns = u64::try_from(rest_ns * was / is).unwrap_or(u64::MAX);
            sending.done_ns = now_ns.saturating_add(rest_ns);
            self.remainder = 0;
        }
        if self.bucket.as_ref().map(TokenBucket::policer) != shape.policer {
            self.bucket = shape.policer.map(|policer| TokenBucket::new(policer, now_ns));
        }
        self.queue.set(shape.aqm, self.salt);
        self.shape = shape;
        self.advance_to(now_ns);
    }

    /// All that happens until now: changes, and what is transmitted before and after each.
    fn advance(&mut self, now_ns: u64) {
        while let Some((at_ns, shape)) = self.changes.pop_front_if(|(at_ns, _)| *at_ns <= now_ns) {
            self.advance_to(at_ns);
            self.reshape(at_ns, shape);
        }
        self.advance_to(now_ns);
    }

    /// Moves transmitted packets from the queue to the wire.
    fn advance_to(&mut self, now_ns: u64) {
        while let Some(sent) = self.sending.take_if(|sending| sending.done_ns <= now_ns) {
            self.free_ns = sent.done_ns;
            self.fly(sent);
            self.send_next();
        }
    }

    /// Begins to transmit what the queue has next, at `free_ns`.
    fn send_next(&mut self) {
        let packet_ns = whole_ns(PACKET_BYTES * 8, self.shape.rate_bits_per_s);
        let next = self.queue.dequeue(self.free_ns, packet_ns, &mut self.done);
        self.sending = next.map(|held| {
            let takes_ns = self.transmission_ns(held.bytes);
            let done_ns = self.free_ns.saturating_add(takes_ns);
            Sending { done_ns, bytes: held.bytes, packet: held.packet }
        });
    }

    fn fly(&mut self, sent: Sending<P>) {
        let extra_ns = self.jitter.at(sent.done_ns, self.shape.jitter_ns, &mut self.generator);
        let arrival_ns = sent.done_ns.saturating_add(self.shape.delay_ns + extra_ns);
        let is_lost = self.losses.takes_next(self.shape.loss);
        let Reordering { share, extra_ns } = self.shape.reordering;
        let is_delayed = share > 0.0 && self.generator.random::<f64>() < share;
        let mut flying = Flying { arrival_ns, bytes: sent.bytes, is_lost, packet: sent.packet };
        if is_delayed {
            flying.arrival_ns = arrival_ns.saturating_add(extra_ns);
            self.counters.reordered += 1;
            self.delayed_count += 1;
            self.delayed.push(Delayed { number: self.delayed_count, flying });
            return;
        }
        self.last_arrival_ns = self.last_arrival_ns.max(arrival_ns);
        flying.arrival_ns = self.last_arrival_ns;
        self.flying.push_back(flying);
    }

    fn sending_bytes(&self) -> u64 {
        self.sending.as_ref().map_or(0, |sending| u64::from(sending.bytes))
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

fn whole_ns(bits: u64, rate_bits_per_s: u64) -> u64 {
    let bit_ns = u128::from(bits) * NANOS_PER_SECOND;
    u64::try_from(bit_ns / u128::from(rate_bits_per_s)).unwrap_or(u64::MAX)
}

impl<P> Delayed<P> {
    fn key(&self) -> (u64, u64) {
        (self.flying.arrival_ns, self.number)
    }
}

impl<P> PartialEq for Delayed<P> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<P> Eq for Delayed<P> {}

impl<P> PartialOrd for Delayed<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> Ord for Delayed<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
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
const PACKET_BYTES: u64 = 1500;
/// Makes another generator of the same seed.
const OTHER_SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// The distance of the random points, in multiples of the jitter.
const JITTER_SPANS: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{CODEL, Codel};

    const MS: u64 = 1_000_000;
    const SHAPE: Shape = Shape {
        policer: None,
        rate_bits_per_s: 100_000_000,
        queue_bytes: 64 << 10,
        aqm: Aqm::None,
        loss: Loss::NONE,
        delay_ns: 51 * MS,
        jitter_ns: 0,
        reordering: Reordering { share: 0.0, extra_ns: 0 },
    };

    /// Numbers are packets of a hundred flows, whose senders know marks; they keep none.
    impl Traffic for usize {
        fn flow(&self, _: u64) -> u64 {
            *self as u64 % 100
        }

        fn mark_congestion(&mut self) -> bool {
            true
        }
    }

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
                let loss = Loss { share: loss, ..Loss::NONE };
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
        (0..10).for_each(|number| pipe.offer(0, 1500, number));
        pipe.set(0, Shape { queue_bytes: 3000, ..shape });
        assert_eq!(pipe.take_dropped().count(), 0);
        pipe.offer(0, 1500, 10);
        assert_eq!(pipe.take_dropped().collect::<Vec<_>>(), [10]);
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

    #[test]
    fn planned_changes_begin_to_the_nanosecond() {
        // The same as `set` at those times, whoever looks when.
        let slow = Shape { rate_bits_per_s: 10_000_000, queue_bytes: u64::MAX, ..SHAPE };
        let fast = Shape { rate_bits_per_s: 1_000_000_000, ..slow };
        let changes = [(60_000, slow), (5 * MS, fast)];
        let offer = |pipe: &mut Pipe<usize>| (0..20).for_each(|i| pipe.offer(0, 1500, i));
        let mut set = Pipe::new(SHAPE, 1);
        offer(&mut set);
        for (at_ns, shape) in changes {
            set.set(at_ns, shape);
        }
        let mut planned = Pipe::new(SHAPE, 1);
        planned.follow(0, VecDeque::from(changes));
        offer(&mut planned);
        assert_eq!(planned.next_ns(), Some(60_000));
        let came = drain(&mut planned);
        assert_eq!(came, drain(&mut set));
        assert_eq!(came.len(), 20);
        assert_eq!(planned.shape(), fast);
        // One that is set drops what was planned.
        let mut pipe: Pipe<usize> = Pipe::new(SHAPE, 1);
        pipe.follow(0, VecDeque::from(changes));
        pipe.set(MS, SHAPE);
        pipe.take_due(10 * MS, 0);
        assert_eq!((pipe.shape(), pipe.next_ns()), (SHAPE, None));
    }

    #[test]
    fn a_policer_limits_without_a_queue() {
        // 12 Mbit/s are a packet a ms; four come in each, and the bucket holds ten.
        let policer = Policer { rate_bits_per_s: 12_000_000, burst_bytes: 15_000 };
        let shape = Shape { policer: Some(policer), ..SHAPE };
        let mut pipe = Pipe::new(shape, 1);
        let times: Vec<u64> = (0..4000).map(|i| i / 4 * MS).collect();
        let came = arrivals(&mut pipe, 1500, &times);
        assert_eq!(came.len(), 1009);
        assert_eq!(pipe.counters().policer_drops, 4000 - 1009);
        assert_eq!(pipe.counters().queue_drops, 0);
        assert_eq!(pipe.take_dropped().count(), 4000 - 1009);
        // What passes does not wait, but for the other three of its burst.
        let waits = came.iter().map(|(i, at_ns)| at_ns - times[*i] - SHAPE.delay_ns);
        assert!(waits.max().unwrap() <= 4 * 120_000);
        // Without it all pass, from that moment on.
        pipe.set(1000 * MS, SHAPE);
        (0..20).for_each(|number| pipe.offer(1000 * MS, 1500, number));
        assert_eq!(drain(&mut pipe).len(), 20);
    }

    #[test]
    fn codel_keeps_a_queue_short_and_a_fifo_does_not() {
        // Eleven packets come in the time of ten, for ten seconds.
        let times: Vec<u64> = (0..91_000).map(|i| i * 120_000 * 10 / 11).collect();
        let waits_ms = |aqm| {
            let shape = Shape { aqm, queue_bytes: 100 << 20, ..SHAPE };
            let mut pipe = Pipe::new(shape, 1);
            let mut waited = Vec::new();
            for (number, at_ns) in times.iter().enumerate() {
                pipe.offer(*at_ns, 1500, number);
                while let Some(arrival) = pipe.take_due(*at_ns, 0) {
                    if let Arrival::Delivered(at_ns, number) = arrival {
                        waited.push((at_ns - times[number] - SHAPE.delay_ns) / MS);
                    }
                }
            }
            let last = waited.split_off(waited.len() - 10_000);
            (last.iter().sum::<u64>() / 10_000, pipe.counters())
        };
        let (fifo_ms, fifo) = waits_ms(Aqm::None);
        assert!(fifo_ms > 700 && fifo.aqm_drops == 0, "{fifo_ms}");
        let (codel_ms, codel) = waits_ms(Aqm::FqCodel(CODEL));
        assert!(
            codel_ms < 50 && codel.aqm_drops > 1000 && codel.marks == 0,
            "{codel_ms} {codel:?}"
        );
        // Marks alone do not help against a sender that does not care.
        let (marked_ms, marked) = waits_ms(Aqm::FqCodel(Codel { ecn: true, ..CODEL }));
        assert!(marked_ms > 500 && marked.marks > 100, "{marked_ms} {marked:?}");
        assert_eq!((marked.aqm_drops, marked.queue_drops), (0, 0));
    }

    #[test]
    fn a_change_of_the_queue_keeps_what_waits() {
        let shape = Shape { queue_bytes: 1 << 20, ..SHAPE };
        let fair = Shape { aqm: Aqm::FqCodel(CODEL), ..shape };
        for (before, after) in [(shape, fair), (fair, shape)] {
            let mut pipe = Pipe::new(before, 1);
            (0..200).for_each(|number| pipe.offer(0, 1500, number));
            pipe.set(MS, Shape { queue_bytes: 3000, ..after });
            let mut numbers: Vec<usize> = drain(&mut pipe).into_iter().map(|(n, _)| n).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, Vec::from_iter(0..200));
        }
    }

    #[test]
    fn a_share_of_packets_is_overtaken() {
        let reordering = Reordering { share: 0.02, extra_ns: 5 * MS };
        let loss = Loss { share: 0.01, ..Loss::NONE };
        let plain = Shape { loss, queue_bytes: u64::MAX, ..SHAPE };
        let times: Vec<u64> = (0..100_000).map(|i| i * 120_000).collect();
        let mut pipe = Pipe::new(Shape { reordering, ..plain }, 3);
        let came = arrivals(&mut pipe, 1500, &times);
        assert!(came.is_sorted_by_key(|(_, at_ns)| *at_ns));
        let late = |(i, at_ns): &&(usize, u64)| *at_ns == times[*i] + 120_000 + 56 * MS;
        let in_time = |(i, at_ns): &&(usize, u64)| *at_ns == times[*i] + 120_000 + 51 * MS;
        let (late, in_time) =
            (came.iter().filter(late).count(), came.iter().filter(in_time).count());
        assert_eq!(late + in_time, came.len(), "one time or the other");
        assert!((1800..2200).contains(&pipe.counters().reordered), "{late}");
        // The same packets are lost as without it.
        let mut others: Vec<usize> =
            arrivals(&mut Pipe::new(plain, 3), 1500, &times).into_iter().map(|(i, _)| i).collect();
        let mut numbers: Vec<usize> = came.into_iter().map(|(i, _)| i).collect();
        assert!(!numbers.is_sorted());
        numbers.sort_unstable();
        others.sort_unstable();
        assert_eq!(numbers, others);
    }
}
