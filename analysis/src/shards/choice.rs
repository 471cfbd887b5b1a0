//! Which open shard a worker tries to claim, so that many that look at the same folder seldom try
//! the same, and seldom have to look.
//!
//! While many are open each worker has a sequence of its own: with N workers, worker k has the
//! shards k, k + N, k + 2N and so on. What follows the one that it has had is tried without a list.
//! A worker whose own sequence is used up takes another's from its end, so that the two meet once.
//! Once fewer are open than there are workers, each picks at random.

/// Which worker this is, of how many that were started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    number: u32,
    of: u32,
}

impl Rank {
    /// Of a worker that was started under this name, of so many.
    pub fn new(name: &str, of: usize) -> Rank {
        let of = u32::try_from(of).unwrap_or(u32::MAX).max(1);
        let number = super::names::number_of(name) % u64::from(of);
        Rank { number: number as u32, of }
    }
}

/// What is known to be open, or likely to be.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    rank: Rank,
    /// The next is the last. Of one sequence, or in no order.
    listed: Vec<(u32, u32)>,
    sequence: Option<Sequence>,
    /// Follows in the sequence what was claimed last.
    next: Option<u32>,
    /// How often another was quicker since the list.
    missed: u32,
    /// A number that others do not have.
    picks: u64,
}

/// In which direction a sequence is gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sequence {
    Up,
    Down,
}

impl Choice {
    /// `me` differs from that of every other process.
    pub(super) fn new(me: &str, rank: Rank) -> Choice {
        let picks = hash(me);
        Choice { rank, listed: Vec::new(), sequence: None, next: None, missed: 0, picks }
    }

    /// Open shards and how many attempts each has had, as a list has them; some or all.
    pub(super) fn list(&mut self, mut open: Vec<(u32, u32)>) {
        (self.missed, self.next, self.sequence) = (0, None, None);
        if open.len() > self.rank.of as usize {
            let of = self.rank.of;
            let own = self.rank.number;
            let has_own = open.iter().any(|(shard, _)| shard % of == own);
            let (whose, sequence) = match has_own {
                true => (own, Sequence::Up),
                false => (self.pick(&open).map_or(own, |(shard, _)| shard % of), Sequence::Down),
            };
            open.retain(|(shard, _)| shard % of == whose);
            open.sort_unstable();
            if sequence == Sequence::Up {
                open.reverse();
            }
            self.sequence = Some(sequence);
        }
        self.listed = open;
    }

    /// Nothing of what was listed is believed any more.
    pub(super) fn forget(&mut self) {
        self.list(Vec::new());
    }

    /// The shard that is tried next, and its attempts; `None` where a list is to be asked for.
    pub(super) fn take(&mut self) -> Option<(u32, u32)> {
        let listed = match self.sequence {
            Some(_) => self.listed.pop(),
            None => {
                let picked = self.pick(&self.listed.clone());
                self.listed.retain(|one| Some(*one) != picked);
                picked
            }
        };
        let next = self.next.take();
        listed.or(next.map(|shard| (shard, 0)))
    }

    /// The claim was this worker's.
    pub(super) fn won(&mut self, shard: u32) {
        self.next = match self.sequence {
            Some(Sequence::Up) => shard.checked_add(self.rank.of),
            Some(Sequence::Down) => shard.checked_sub(self.rank.of),
            None => None,
        };
    }

    /// Another was quicker. True where something else may be tried before the next list.
    pub(super) fn missed(&mut self) -> bool {
        self.missed += 1;
        self.missed < MISSES_MAX && !self.listed.is_empty()
    }

    fn pick(&mut self, of: &[(u32, u32)]) -> Option<(u32, u32)> {
        self.picks = self.picks.wrapping_mul(PRIME).wrapping_add(1);
        let at = (self.picks >> 33).checked_rem(of.len() as u64)?;
        of.get(at as usize).copied()
    }
}

/// Of a name (FNV-1a).
pub(super) fn hash(name: &str) -> u64 {
    name.bytes().fold(OFFSET, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// So often another may be quicker before the list is asked for again.
const MISSES_MAX: u32 = 3;
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;
