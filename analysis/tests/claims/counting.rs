//! Workers as they ship over a storage in memory that only counts what is asked of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use analysis::shards::lease::LeaseTimes;
use analysis::shards::worker::{Action, Answer, Call, Event, Rank, Worker};
use analysis::shards::{Claim, Held};
use base::units::{Nanos, Tick};

/// What a call takes at the storage: a round trip.
const CALL: Nanos = Nanos::from_millis(1);

/// A storage that only counts: claims and what is open, answered at once.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    open: BTreeSet<(u32, u32)>,
    claims: BTreeMap<u32, Held>,
    waiting: BTreeSet<String>,
    beats: BTreeMap<String, u64>,
    pub(crate) done: u32,
    total: u32,
    pub(crate) calls: u64,
    pub(crate) lists: u64,
    pub(crate) listed: u64,
    pub(crate) beats_read: u64,
    pub(crate) won: u64,
    pub(crate) lost: u64,
}

/// As many names as one list has at most.
const LISTED_MAX: usize = 4096;

impl Counting {
    pub(crate) fn of(count: u32) -> Counting {
        let open = (0..count).map(|shard| (shard, 0)).collect();
        Counting { open, total: count, ..Counting::default() }
    }

    fn answer(&mut self, who: &str, call: &Call) -> Answer {
        self.calls += 1;
        match call {
            Call::ListOpen => {
                let open: Vec<(u32, u32)> = self.open.iter().copied().take(LISTED_MAX).collect();
                (self.lists, self.listed) = (self.lists + 1, self.listed + open.len() as u64);
                Answer::Open(open)
            }
            Call::Claim { shard, attempts } => {
                let is_won = self.open.remove(&(*shard, *attempts));
                if !is_won {
                    self.lost += 1;
                    return Answer::Missing;
                }
                self.won += 1;
                let claim = Claim { shard: *shard, attempt: attempts + 1 };
                self.claims.insert(*shard, Held { claim, worker: who.to_string() });
                Answer::Moved
            }
            Call::IsMine(claim) => {
                let mine = self.claims.get(&claim.shard).is_some_and(|held| held.worker == who);
                if mine { Answer::Yes } else { Answer::No }
            }
            Call::Finish(claim, _) => {
                self.claims.remove(&claim.shard);
                self.done += 1;
                Answer::Moved
            }
            Call::OpenReady => Answer::Opened(0),
            Call::ShowIdle => {
                self.waiting.insert(who.to_string());
                Answer::Done
            }
            Call::ShowBusy => {
                self.waiting.remove(who);
                Answer::Done
            }
            Call::ListClaims => {
                let held: Vec<Held> = self.claims.values().cloned().collect();
                Answer::Claims { held, waiting: self.waiting.len() as u64 }
            }
            Call::ReadBeats(workers) => {
                self.beats_read += workers.len() as u64;
                let beat = |worker: &String| (worker.clone(), self.beats.get(worker).copied());
                Answer::Beats(workers.iter().map(beat).collect())
            }
            Call::Beat(number) => {
                self.beats.insert(who.to_string(), *number);
                Answer::Done
            }
            Call::Expire(Held { claim, .. }) => {
                self.claims.remove(&claim.shard);
                self.open.insert((claim.shard, claim.attempt));
                Answer::Moved
            }
            Call::Count => Answer::Count { done: self.done, total: Some(self.total) },
            Call::Control => Answer::Yes,
            Call::Survey(_) => Answer::Surveyed(1),
            _ => Answer::Done,
        }
    }
}

/// Workers, and what becomes of them.
pub(crate) struct WorkerPool<'a> {
    pub(crate) workers: usize,
    /// How long one takes for a shard.
    pub(crate) times: &'a dyn Fn(usize, u32) -> Nanos,
    /// Some do nothing more from then on.
    pub(crate) die: Option<(Tick, &'a dyn Fn(usize) -> bool)>,
}

/// Lets workers run until all shards are done. Returns the time that it took.
pub(crate) fn play(storage: &mut Counting, pool: &WorkerPool<'_>) -> Nanos {
    let workers = pool.workers;
    let lease = LeaseTimes::default();
    let names: Vec<String> = (0..workers).map(|number| format!("node{number:04}-5f3a")).collect();
    let mut all: Vec<Worker> = names
        .iter()
        .map(|name| Worker::new(name, Rank::new(&name[..8], workers), lease, Tick(0)))
        .collect();
    let mut copies: Vec<Option<Tick>> = vec![None; workers];
    let mut queue: BinaryHeap<Reverse<(Tick, usize, u64)>> = BinaryHeap::new();
    let mut events: BTreeMap<u64, Event> = BTreeMap::new();
    for worker in 0..workers {
        queue.push(Reverse((Tick(worker as u64), worker, 0)));
    }
    let (mut next, mut end) = (1, Tick(0));
    while let Some(Reverse((now, at, number))) = queue.pop() {
        let event = match copies[at].is_some_and(|until| until <= now) && number == 0 {
            true => {
                copies[at] = None;
                Event::CopyEnded(None)
            }
            false => events.remove(&number).unwrap_or(Event::Woke),
        };
        if pool.die.is_some_and(|(from, dies)| now >= from && dies(at)) {
            continue;
        }
        end = now;
        match all[at].step(now, event) {
            Action::Exit(_) => {}
            Action::Wait(until) if until.0 == u64::MAX => {}
            Action::Wait(until) => {
                let until = copies[at].map_or(until, |copied| copied.min(until));
                queue.push(Reverse((Tick(until.0.max(now.0 + 1)), at, 0)));
            }
            Action::Call(call) => {
                if let Call::StartCopy(claim) = &call {
                    copies[at] = Some(now.after((pool.times)(at, claim.shard)));
                }
                events.insert(next, Event::Answer(storage.answer(&names[at], &call)));
                queue.push(Reverse((now.after(CALL), at, next)));
                next += 1;
            }
        }
    }
    end.since(Tick(0))
}
