//! FQ-CoDel (RFC 8290): a queue for each flow, served by turns of bytes, new flows first, each with
//! a CoDel of its own.

use std::collections::VecDeque;

use crate::codel::ControlLaw;
use crate::queue::{Codel, Done, Held, Traffic};

#[derive(Debug)]
pub(crate) struct FqCodel<P> {
    codel: Codel,
    salt: u64,
    flows: Vec<Flow<P>>,
    /// Numbers of `flows`: those that have just begun, and the others that have packets.
    new_flows: VecDeque<usize>,
    old_flows: VecDeque<usize>,
    bytes: u64,
}

#[derive(Debug)]
struct Flow<P> {
    waiting: VecDeque<Held<P>>,
    bytes: u64,
    /// Bytes that it may still send in this turn; below 0 where the last packet was longer.
    deficit: i64,
    is_listed: bool,
    law: ControlLaw,
}

impl<P: Traffic> FqCodel<P> {
    pub(crate) fn new(codel: Codel, salt: u64) -> FqCodel<P> {
        let flow = || Flow {
            waiting: VecDeque::new(),
            bytes: 0,
            deficit: 0,
            is_listed: false,
            law: ControlLaw::default(),
        };
        FqCodel {
            codel,
            salt,
            flows: (0..FLOWS).map(|_| flow()).collect(),
            new_flows: VecDeque::new(),
            old_flows: VecDeque::new(),
            bytes: 0,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn set(&mut self, codel: Codel) {
        self.codel = codel;
    }

    pub(crate) fn into_waiting(self) -> Vec<Held<P>> {
        self.flows.into_iter().flat_map(|flow| flow.waiting).collect()
    }

    pub(crate) fn enqueue(&mut self, held: Held<P>, limit_bytes: u64, done: &mut Done<P>) {
        let number = (held.packet.flow(self.salt) % FLOWS as u64) as usize;
        let flow = &mut self.flows[number];
        flow.bytes += u64::from(held.bytes);
        self.bytes += u64::from(held.bytes);
        flow.waiting.push_back(held);
        if !flow.is_listed {
            flow.is_listed = true;
            flow.deficit = QUANTUM_BYTES;
            self.new_flows.push_back(number);
        }
        while self.bytes > limit_bytes {
            self.shorten(done);
        }
    }

    /// Drops half of the longest queue, oldest first, but at most `DROPS_MAX` packets.
    fn shorten(&mut self, done: &mut Done<P>) {
        let Some(flow) = self.flows.iter_mut().max_by_key(|flow| flow.bytes) else { return };
        let half = flow.bytes / 2;
        let mut gone = 0;
        for _ in 0..DROPS_MAX {
            let Some(held) = flow.waiting.pop_front() else { break };
            gone += u64::from(held.bytes);
            done.overflows += 1;
            done.dropped.push(held.packet);
            if gone >= half {
                break;
            }
        }
        flow.bytes -= gone;
        self.bytes -= gone;
    }

    pub(crate) fn dequeue(
        &mut self,
        now_ns: u64,
        packet_ns: u64,
        done: &mut Done<P>,
    ) -> Option<Held<P>> {
        loop {
            let is_new = !self.new_flows.is_empty();
            let list = if is_new { &mut self.new_flows } else { &mut self.old_flows };
            let number = list.pop_front()?;
            let flow = &mut self.flows[number];
            if flow.deficit <= 0 {
                flow.deficit += QUANTUM_BYTES;
                self.old_flows.push_back(number);
                continue;
            }
            let before = self.bytes;
            let waiting = &mut flow.waiting;
            let next =
                flow.law.dequeue(now_ns, packet_ns, self.codel, waiting, &mut self.bytes, done);
            flow.bytes -= before - self.bytes;
            match next {
                Some(held) => {
                    flow.deficit -= i64::from(held.bytes);
                    let list = if is_new { &mut self.new_flows } else { &mut self.old_flows };
                    list.push_front(number);
                    return Some(held);
                }
                // A new flow that is empty waits for a turn among the old ones: else a flow of
                // single packets would always be new.
                None if is_new && !self.old_flows.is_empty() => self.old_flows.push_back(number),
                None => flow.is_listed = false,
            }
        }
    }
}

/// As in section 5.2 of the RFC, and in Linux.
const FLOWS: usize = 1024;
const DROPS_MAX: usize = 64;
/// The bytes of a turn: one packet of our link, which has no Ethernet header.
const QUANTUM_BYTES: i64 = 1500;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::CODEL;

    const MS: u64 = 1_000_000;

    /// The number of its flow, and its own.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Packet(u64, u32);

    impl Traffic for Packet {
        fn flow(&self, _: u64) -> u64 {
            self.0
        }

        fn mark_congestion(&mut self) -> bool {
            false
        }
    }

    fn held(flow: u64, number: u32, bytes: u32) -> Held<Packet> {
        Held { bytes, entered_ns: 0, packet: Packet(flow, number) }
    }

    #[test]
    fn flows_take_turns_by_bytes() {
        let (mut queue, mut done) = (FqCodel::new(CODEL, 1), Done::default());
        // One flow has sixty full packets, another as many bytes in short ones, a third a few.
        for i in 0..60 {
            queue.enqueue(held(1, i, 1500), u64::MAX, &mut done);
        }
        for i in 0..300 {
            queue.enqueue(held(2, i, 300), u64::MAX, &mut done);
        }
        for i in 0..2 {
            queue.enqueue(held(3, i, 100), u64::MAX, &mut done);
        }
        let mut sent = [0_u64; 4];
        let mut order = Vec::new();
        while let Some(next) = queue.dequeue(MS, 0, &mut done) {
            sent[next.packet.0 as usize] += u64::from(next.bytes);
            // Neither is ahead of the other by more than a turn of each.
            assert!(sent[1].abs_diff(sent[2]) <= 3000 || sent[1] == 90_000 || sent[2] == 90_000);
            order.push(next.packet);
        }
        assert_eq!(sent, [0, 90_000, 90_000, 200]);
        assert_eq!((queue.bytes(), done.dropped.len()), (0, 0));
        // The third has both of its packets sent in its first turn.
        let third = order.iter().position(|packet| packet.0 == 3).unwrap();
        assert_eq!(order[third + 1], Packet(3, 1));
        for flow in [1, 2, 3] {
            let numbers = order.iter().filter(|packet| packet.0 == flow).map(|packet| packet.1);
            assert!(numbers.is_sorted(), "a flow stays in order");
        }
    }

    #[test]
    fn a_flow_that_begins_goes_first_once() {
        let (mut queue, mut done) = (FqCodel::new(CODEL, 1), Done::default());
        for i in 0..20 {
            queue.enqueue(held(1, i, 1500), u64::MAX, &mut done);
        }
        let mut next =
            |queue: &mut FqCodel<Packet>| queue.dequeue(MS, 0, &mut done).unwrap().packet.0;
        // The first packet of the long flow, after which it is no new one.
        assert_eq!((next(&mut queue), next(&mut queue)), (1, 1));
        queue.enqueue(held(2, 0, 1500), u64::MAX, &mut Done::default());
        assert_eq!(next(&mut queue), 2, "the new flow is served before those that wait");
        queue.enqueue(held(2, 1, 1500), u64::MAX, &mut Done::default());
        queue.enqueue(held(2, 2, 1500), u64::MAX, &mut Done::default());
        let order: Vec<u64> = (0..4).map(|_| next(&mut queue)).collect();
        assert_eq!(order, [2, 1, 2, 1], "and then by turns");
    }

    #[test]
    fn the_longest_queue_is_shortened() {
        let (mut queue, mut done) = (FqCodel::new(CODEL, 1), Done::default());
        for i in 0..10 {
            queue.enqueue(held(1, i, 1500), 60_000, &mut done);
            queue.enqueue(held(2, i, 100), 60_000, &mut done);
        }
        for i in 10..200 {
            queue.enqueue(held(1, i, 1500), 60_000, &mut done);
            assert!(queue.bytes() <= 60_000);
        }
        assert!(done.dropped.iter().all(|packet| packet.0 == 1), "a short flow loses nothing");
        assert_eq!(done.overflows, done.dropped.len() as u64);
        let left: Vec<Packet> = std::iter::from_fn(|| queue.dequeue(MS, 0, &mut done))
            .map(|held| held.packet)
            .collect();
        assert_eq!(left.iter().filter(|packet| packet.0 == 2).count(), 10);
        assert_eq!(left.len() as u64 + done.overflows, 210);
        // The oldest are dropped: the newest is there.
        assert!(left.contains(&Packet(1, 199)));
    }
}
