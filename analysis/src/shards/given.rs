//! Parts of shards that are given away: a worker that is slow lets those who have nothing to do
//! have what it has not begun. The part is a shard of its own, with a number that follows from
//! that of the shard it comes from, so that no number is used twice and nobody hands them out.

use std::collections::BTreeSet;

use super::lease::LeaseTimes;
use base::units::Nanos;

/// The numbers below are those of planned shards.
pub const PLANNED_MAX: u32 = 1 << PLANNED_BITS;

/// The shard that `from` gives away at a turn, or `None` once it has no turns left.
///
/// Each number above the planned ones has a bit for each time that it was given on. A shard can be
/// divided eight times, and its parts as often as it could be when they left it.
pub fn part(from: u32, turn: u8) -> Option<u32> {
    let bit = PLANNED_BITS + u32::from(first_turn(from)) + u32::from(turn);
    (bit < u32::BITS).then(|| from | 1 << bit)
}

/// The shard that a part was given away by; `None` for a planned one.
pub fn giver(shard: u32) -> Option<u32> {
    (shard >= PLANNED_MAX).then(|| shard & !(1 << shard.ilog2()))
}

/// The planned shard that all of a shard's names come from.
pub fn planned(shard: u32) -> u32 {
    shard % PLANNED_MAX
}

/// At which turn a part was given away by its giver.
pub fn turn_of(shard: u32) -> Option<u8> {
    let before = first_turn(giver(shard)?);
    Some(first_turn(shard) - 1 - before)
}

fn first_turn(shard: u32) -> u8 {
    match shard / PLANNED_MAX {
        0 => 0,
        above => above.ilog2() as u8 + 1,
    }
}

/// At which of its turns a shard has given something away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Turns(pub u8);

impl Turns {
    #[must_use]
    pub fn with(self, turn: u8) -> Turns {
        Turns(self.0 | 1 << turn)
    }

    /// The parts of a shard that has given away at these turns.
    pub fn parts(self, of: u32) -> impl Iterator<Item = u32> {
        let turns = (0..8).filter(move |turn| self.0 >> turn & 1 == 1);
        turns.filter_map(move |turn| part(of, turn))
    }
}

/// How many shards are done, of how many that are known of.
///
/// Both are equal only where everything is done: each shard says with its end what it gave away,
/// so no list that is old, or lacks names, can hide a part.
pub fn count(done: &[(u32, Turns)], planned: u32) -> (u32, u32) {
    let names: BTreeSet<u32> = done.iter().map(|(shard, _)| *shard).collect();
    let mut parts: BTreeSet<u32> = names.range(PLANNED_MAX..).copied().collect();
    for (shard, turns) in done {
        parts.extend(turns.parts(*shard));
    }
    (names.len() as u32, planned.saturating_add(parts.len() as u32))
}

/// What a worker that copies sees of its own shard, and of who waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Workers for whom nothing is open.
    pub waiting: u64,
    /// Files that the copy has not begun with.
    pub unbegun: u64,
    /// Files that this attempt has staged, and for how long it has been copying.
    pub staged: u64,
    pub copying: Nanos,
}

/// How many of the files that it has not begun a worker gives away: half of them, where at its own
/// pace they would take longer than a lease.
pub fn share(demand: &Demand, times: LeaseTimes) -> Option<u64> {
    let is_known = demand.copying >= times.beat();
    if demand.waiting == 0 || demand.unbegun == 0 || !is_known {
        return None;
    }
    // One that has staged nothing yet takes at least this long for the first.
    let each = demand.copying.0 / (demand.staged + 1);
    let rest = u128::from(each) * u128::from(demand.unbegun);
    (rest > u128::from(times.lease_ns) * LEASES_MIN).then(|| demand.unbegun.div_ceil(2))
}

/// How many files a copy begins with next, so that those take about a beat: what it has begun with
/// stays with it. `last` is how many it did before, and in what time.
pub fn next_files(last: Option<(u64, Nanos)>, left: u64, times: LeaseTimes) -> u64 {
    let Some((files, took)) = last else { return FIRST_FILES.min(left) };
    let in_a_beat = u128::from(files) * u128::from(times.beat_ns) / u128::from(took.0.max(1));
    let next = u64::try_from(in_a_beat).unwrap_or(u64::MAX).max(1);
    // A rest that takes hardly longer is not worth a beginning of its own.
    if left <= next.saturating_add(next / 2) { left } else { next }
}

/// The rest must be worth more than a claim and its fences, and than what a lost worker costs.
const LEASES_MIN: u128 = 1;
/// Of which the pace is learnt.
const FIRST_FILES: u64 = 16;
const PLANNED_BITS: u32 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_parts_are_used_once() {
        let mut all = BTreeSet::from([7, 8]);
        let mut new: Vec<u32> = all.iter().copied().collect();
        while let Some(from) = new.pop() {
            for turn in 0..8 {
                let Some(part) = part(from, turn) else { continue };
                assert!(all.insert(part), "{part:#x} is given twice");
                assert_eq!((giver(part), turn_of(part)), (Some(from), Some(turn)));
                assert_eq!(planned(part), planned(from));
                new.push(part);
            }
        }
        assert_eq!(all.len(), 2 * 256);
        assert_eq!((part(7, 8), giver(7), turn_of(7)), (None, None, None));
        assert_eq!(part(part(7, 7).unwrap(), 0), None);
    }

    #[test]
    fn done_is_what_includes_every_part() {
        let gave = |turns: &[u8]| turns.iter().fold(Turns::default(), |all, turn| all.with(*turn));
        let first = part(0, 0).unwrap();
        let inner = part(first, 0).unwrap();
        let cases: [(&[(u32, Turns)], bool); 6] = [
            (&[(0, gave(&[])), (1, gave(&[]))], true),
            (&[(0, gave(&[])), (first, gave(&[]))], false),
            (&[(0, gave(&[0])), (1, gave(&[]))], false),
            (&[(0, gave(&[0])), (1, gave(&[])), (first, gave(&[]))], true),
            // A part of a part is done, and the part in between is not.
            (&[(0, gave(&[0])), (1, gave(&[])), (inner, gave(&[]))], false),
            (&[(1, gave(&[])), (first, gave(&[0])), (inner, gave(&[]))], false),
        ];
        for (done, expect) in cases {
            let (done_count, total) = count(done, 2);
            assert_eq!(done_count >= total, expect, "{done:?}");
        }
    }

    #[test]
    fn a_copy_begins_with_what_takes_a_beat() {
        let times = LeaseTimes { beat_ns: 1000, lease_ns: 5000 };
        let cases = [
            (None, 1000, 16),
            (None, 3, 3),
            (Some((16, Nanos(100))), 1000, 160),
            (Some((16, Nanos(100))), 240, 240),
            (Some((16, Nanos(100))), 241, 160),
            (Some((1, Nanos(1_000_000))), 9, 1),
            (Some((1, Nanos(0))), 9, 9),
            (Some((u64::MAX, Nanos(1))), u64::MAX, u64::MAX),
        ];
        for (last, left, expect) in cases {
            assert_eq!(next_files(last, left, times), expect, "{last:?}, {left} left");
        }
    }

    #[test]
    fn half_of_what_takes_long_is_given() {
        let times = LeaseTimes { beat_ns: 2, lease_ns: 10 };
        let demand =
            |waiting, unbegun, staged, ns| Demand { waiting, unbegun, staged, copying: Nanos(ns) };
        let cases = [
            (demand(1, 9, 4, 10), Some(5)),
            (demand(0, 9, 4, 10), None),
            (demand(1, 0, 4, 10), None),
            (demand(1, 5, 4, 10), None),
            (demand(1, 6, 4, 10), Some(3)),
            // It has hardly begun.
            (demand(1, 1000, 0, 1), None),
            // It stands still, and its last file can be had too.
            (demand(1, 1, 0, 11), Some(1)),
            (demand(1000, u64::MAX, 0, u64::MAX), Some(u64::MAX.div_ceil(2))),
        ];
        for (demand, expect) in cases {
            assert_eq!(share(&demand, times), expect, "{demand:?}");
        }
    }
}
