//! CoDel, "controlled delay" (RFC 8289): when packets have waited too long for too long, packets
//! are dropped at growing frequency, until they wait no longer.

use std::collections::VecDeque;

use crate::queue::{Codel, Done, Held, Traffic};

/// The state of one queue, as in section 5.1 of the RFC.
#[derive(Debug, Default)]
pub(crate) struct ControlLaw {
    /// When packets will have waited longer than the target for an interval.
    first_above_ns: Option<u64>,
    is_dropping: bool,
    /// When the next packet is dropped, while dropping.
    drop_next_ns: u64,
    /// Packets dropped since dropping began, and what it was when it last began.
    count: u32,
    last_count: u32,
}

/// The next packet, and whether it may be dropped.
struct Candidate<P> {
    held: Held<P>,
    may_drop: bool,
}

impl ControlLaw {
    /// The next packet of `waiting` that is not dropped. `backlog` has the bytes of all flows; as
    /// in Linux nothing is dropped while that is at most one packet. Time that the transmitter
    /// needs for a packet or two is no queue (section 4.4), so that the target is at least that.
    pub(crate) fn dequeue<P: Traffic>(
        &mut self,
        now_ns: u64,
        packet_ns: u64,
        codel: Codel,
        waiting: &mut VecDeque<Held<P>>,
        backlog: &mut u64,
        done: &mut Done<P>,
    ) -> Option<Held<P>> {
        let target_ns = codel.target_ns.max(packet_ns.saturating_mul(3) / 2);
        let codel = Codel { target_ns, ..codel };
        let mut next = self.candidate(now_ns, codel, waiting, backlog);
        if self.is_dropping {
            self.is_dropping = next.as_ref().is_some_and(|next| next.may_drop);
            while self.is_dropping && now_ns >= self.drop_next_ns {
                self.count = self.count.saturating_add(1);
                let kept = next.and_then(|next| drop_or_mark(next.held, codel, done));
                if let Some(kept) = kept {
                    self.drop_next_ns = self.after(self.drop_next_ns, codel);
                    return Some(kept);
                }
                next = self.candidate(now_ns, codel, waiting, backlog);
                match next.as_ref().is_some_and(|next| next.may_drop) {
                    true => self.drop_next_ns = self.after(self.drop_next_ns, codel),
                    false => self.is_dropping = false,
                }
            }
            return next.map(|next| next.held);
        }
        let next = next?;
        if !next.may_drop {
            return Some(next.held);
        }
        let kept = drop_or_mark(next.held, codel, done);
        self.begin_dropping(now_ns, codel);
        kept.or_else(|| self.candidate(now_ns, codel, waiting, backlog).map(|next| next.held))
    }

    /// It begins at the frequency that it had, if it ended a short time ago.
    fn begin_dropping(&mut self, now_ns: u64, codel: Codel) {
        self.is_dropping = true;
        let since = self.count.saturating_sub(self.last_count);
        let ended_ns = now_ns.saturating_sub(self.drop_next_ns);
        let is_recent = ended_ns < codel.interval_ns.saturating_mul(16);
        self.count = if since > 1 && is_recent { since } else { 1 };
        self.last_count = self.count;
        self.drop_next_ns = self.after(now_ns, codel);
    }

    fn candidate<P>(
        &mut self,
        now_ns: u64,
        codel: Codel,
        waiting: &mut VecDeque<Held<P>>,
        backlog: &mut u64,
    ) -> Option<Candidate<P>> {
        let Some(held) = waiting.pop_front() else {
            self.first_above_ns = None;
            return None;
        };
        *backlog -= u64::from(held.bytes);
        let waited_ns = now_ns.saturating_sub(held.entered_ns);
        if waited_ns < codel.target_ns || *backlog <= PACKET_BYTES {
            self.first_above_ns = None;
            return Some(Candidate { held, may_drop: false });
        }
        let first_above_ns =
            *self.first_above_ns.get_or_insert(now_ns.saturating_add(codel.interval_ns));
        Some(Candidate { held, may_drop: now_ns >= first_above_ns })
    }

    /// An interval, divided by the square root of the count, after this time.
    fn after(&self, at_ns: u64, codel: Codel) -> u64 {
        let wait_ns = codel.interval_ns as f64 / f64::from(self.count.max(1)).sqrt();
        at_ns.saturating_add(wait_ns as u64)
    }
}

/// Returns the packet if it is marked instead.
fn drop_or_mark<P: Traffic>(
    mut held: Held<P>,
    codel: Codel,
    done: &mut Done<P>,
) -> Option<Held<P>> {
    if codel.ecn && held.packet.mark_congestion() {
        done.marks += 1;
        return Some(held);
    }
    done.aqm_drops += 1;
    done.dropped.push(held.packet);
    None
}

const PACKET_BYTES: u64 = 1500;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::CODEL;

    const MS: u64 = 1_000_000;

    /// A packet of a sender that does or does not know marks, and whether it has one.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Packet {
        knows_marks: bool,
        is_marked: bool,
    }

    impl Traffic for Packet {
        fn flow(&self, _: u64) -> u64 {
            0
        }

        fn mark_congestion(&mut self) -> bool {
            self.is_marked = self.knows_marks;
            self.knows_marks
        }
    }

    /// A queue from which a packet is taken in each millisecond. Each has waited `waited_ms`.
    /// Returns when packets were dropped or marked.
    fn signals(codel: Codel, knows_marks: bool, waits_ms: &[u64]) -> Vec<u64> {
        let (mut law, mut done) = (ControlLaw::default(), Done::default());
        let mut at = Vec::new();
        for (i, waited_ms) in waits_ms.iter().enumerate() {
            let now_ns = (1000 + i as u64) * MS;
            let held = || Held {
                bytes: 1500,
                entered_ns: now_ns - waited_ms * MS,
                packet: Packet { knows_marks, is_marked: false },
            };
            let mut waiting: VecDeque<Held<Packet>> = (0..10).map(|_| held()).collect();
            let mut backlog = 15_000;
            let before = done.aqm_drops + done.marks;
            let next = law.dequeue(now_ns, MS, codel, &mut waiting, &mut backlog, &mut done);
            let signalled = done.aqm_drops + done.marks - before;
            at.extend((0..signalled).map(|_| i as u64));
            let left: u64 = waiting.iter().map(|held| u64::from(held.bytes)).sum();
            assert_eq!(backlog, left);
            assert_eq!(
                next.is_some_and(|held| held.packet.is_marked),
                done.marks > 0 && signalled > 0
            );
        }
        assert_eq!(done.dropped.len() as u64, done.aqm_drops);
        at
    }

    #[test]
    fn drops_come_after_an_interval_and_then_more_often() {
        let no_ecn = |waits: &[u64]| signals(CODEL, false, waits);
        // An interval divided by the roots of 1, 2, 3, 4 …, after the first at 100 ms.
        assert_eq!(no_ecn(&[20; 400]), [100, 200, 271, 329, 379]);
        // Below the target, or above it for less than an interval: nothing.
        assert_eq!(no_ecn(&[4; 1000]), Vec::<u64>::new());
        let mut waits = vec![20; 1000];
        waits.iter_mut().step_by(99).for_each(|waited| *waited = 4);
        assert_eq!(no_ecn(&waits), Vec::<u64>::new());
        // It stops as soon as packets wait less, and goes on more often if that was short:
        // four drops were made before, so that count begins with three.
        let waits = [vec![20; 350], vec![4; 10], vec![20; 200]].concat();
        assert_eq!(no_ecn(&waits), [100, 200, 271, 329, 460, 518]);
        // After a long rest it begins anew.
        let waits = [vec![20; 350], vec![4; 2000], vec![20; 250]].concat();
        assert_eq!(no_ecn(&waits), [100, 200, 271, 329, 2450, 2550]);
    }

    #[test]
    fn packets_are_marked_instead_if_their_sender_knows() {
        let ecn = Codel { ecn: true, ..CODEL };
        assert_eq!(signals(ecn, true, &[20; 300]), [100, 200, 271]);
        assert_eq!(signals(ecn, false, &[20; 300]), [100, 200, 271]);
        let (mut law, mut done) = (ControlLaw::default(), Done::default());
        let mut waiting = VecDeque::new();
        for i in 0..300 {
            let packet = Packet { knows_marks: true, is_marked: false };
            waiting.push_back(Held { bytes: 1500, entered_ns: i * MS, packet });
        }
        let mut backlog = 300 * 1500;
        for i in 0..298 {
            let taken = law.dequeue((500 + i) * MS, MS, ecn, &mut waiting, &mut backlog, &mut done);
            assert!(taken.is_some(), "no packet is lost");
        }
        assert!(done.marks > 2 && done.aqm_drops == 0 && done.dropped.is_empty(), "{done:?}");
    }

    #[test]
    fn a_slow_link_has_a_longer_target() {
        // 12 ms for a packet: waiting 15 is no queue, waiting 30 is.
        for (waited_ms, drops) in [(15, 0), (30, 1)] {
            let (mut law, mut done) = (ControlLaw::default(), Done::default());
            for i in 0..15_u64 {
                let now_ns = (100 + 12 * i) * MS;
                let held = || Held {
                    bytes: 1500,
                    entered_ns: now_ns - waited_ms * MS,
                    packet: Packet { knows_marks: false, is_marked: false },
                };
                let mut waiting: VecDeque<Held<Packet>> = (0..9).map(|_| held()).collect();
                law.dequeue(now_ns, 12 * MS, CODEL, &mut waiting, &mut 13_500, &mut done);
            }
            assert_eq!(done.aqm_drops, drops, "{waited_ms}");
        }
    }
}
