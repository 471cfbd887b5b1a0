//! Nothing is free: who holds the rest, and who of them is silent?

use std::collections::BTreeSet;

use super::super::choice::hash;
use super::{Claim, Held, State, Tick, Worker};

impl Worker {
    pub(super) fn watched(&mut self, mut held: Vec<Held>, waiting: u64, now: Tick) -> State {
        let mine = held.iter().filter(|held| held.worker == self.me).map(|held| held.claim);
        let mine: Vec<Claim> = mine.collect();
        if !mine.is_empty() {
            return State::GiveBack(mine);
        }
        // Where something is held, not all is done.
        if held.is_empty() {
            return State::Count;
        }
        held.sort_by(|a, b| a.worker.cmp(&b.worker));
        let workers: BTreeSet<&str> = held.iter().map(|held| held.worker.as_str()).collect();
        self.observer.keep(&workers);
        let groups = groups(workers.len(), waiting, self.watched_min);
        // Where there are many, each beat is read about as often as it is written.
        if groups > 1 && now < self.reads_at {
            return self.idle(now);
        }
        self.reads_at = now.after(self.times.beat());
        let group = group_of(&self.me, self.beat / BEATS_OF_A_GROUP, groups);
        held.retain(|held| group_of(&held.worker, 0, groups) == group);
        if held.is_empty() { self.idle(now) } else { State::Beats(held) }
    }

    /// Only those whose beats were read just now are judged.
    pub(super) fn observed(
        &mut self,
        mut held: Vec<Held>,
        beats: &[(String, Option<u64>)],
        now: Tick,
    ) -> State {
        beats.iter().for_each(|(worker, beat)| self.observer.note(worker, *beat, now));
        held.retain(|held| self.observer.has_expired(&held.worker, now));
        if held.is_empty() { self.idle(now) } else { State::Expire(held) }
    }
}

/// Into how many groups the holders of claims are divided: each who waits watches those of one.
/// How many wait is a hint, so each goes on to the next group after a while, and comes to all.
fn groups(holders: usize, waiting: u64, watched_min: usize) -> u64 {
    let wanted = (holders / watched_min) as u64;
    // A power of two, so that most stay in their group where the number changes.
    1 << wanted.min(waiting / WATCHERS_MIN).max(1).ilog2()
}

fn group_of(worker: &str, round: u64, groups: u64) -> u64 {
    (hash(worker) >> HASH_SHIFT).wrapping_add(round) % groups
}

/// So many watch each group in the mean: one of 3,000 groups has none, until they go on.
const WATCHERS_MIN: u64 = 8;
/// Three leases, so that one that runs out is seen.
const BEATS_OF_A_GROUP: u64 = 16;
/// The lower bits of a hash of names depend on few of theirs.
const HASH_SHIFT: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// However many wait, and whatever they are told of that, each holder is watched by somebody
    /// within as many rounds as there are groups, and none reads much more than its part.
    #[test]
    fn every_holder_is_watched() {
        for (holders, waiting, told) in
            [(1, 1, 1), (7, 1, 500), (999, 1, 1), (999, 1, 1000), (500, 500, 500), (10, 990, 990)]
        {
            let name = |kind: &str, number: u64| format!("{kind}{number}-{:08x}", number * 7919);
            let groups = groups(holders as usize, told, 8);
            let held: Vec<String> = (0..holders).map(|number| name("h", number)).collect();
            let watches = |watcher: u64, holder: &str, round: u64| {
                group_of(&name("w", watcher), round, groups) == group_of(holder, 0, groups)
            };
            let mut unwatched: BTreeSet<&String> = held.iter().collect();
            let mut round = 0;
            while round < groups && !unwatched.is_empty() {
                for watcher in 0..waiting {
                    let mine = held.iter().filter(|held| watches(watcher, held, round));
                    let mine: BTreeSet<&String> = mine.collect();
                    let most = 40 + 2 * holders as usize / groups as usize;
                    assert!(mine.len() <= most, "{} of {holders} in {groups}", mine.len());
                    unwatched = unwatched.difference(&mine).copied().collect();
                }
                let is_few = unwatched.len() * 100 <= held.len();
                assert!(is_few || waiting != told, "{holders} held: {} unseen", unwatched.len());
                round += 1;
            }
            assert!(unwatched.is_empty(), "{holders} held, {waiting} wait: {unwatched:?}");
        }
    }
}
