//! One worker on its node: its calls on their way, its copy, and what goes wrong.

use std::collections::{BTreeMap, VecDeque};

use analysis::shards::Claim;
use analysis::shards::given::Demand;
use analysis::shards::lease::LeaseTimes;
use analysis::shards::worker::{Action, Answer, Call, End, Event, Rank, Worker};
use base::fault::Class;
use base::units::{Nanos, Tick};

use super::storage::{Rng, Storage};

/// A worker's process, and what its node keeps for it.
#[derive(Debug)]
pub(crate) struct Node {
    name: String,
    worker: Worker,
    /// The call that was not answered yet, and the claim that it is for.
    asked: Option<(Call, Option<Claim>)>,
    wakes_at: Tick,
    copy: Option<Copy>,
    /// Events of the copy that the worker has not heard.
    told: VecDeque<Event>,
    /// Lists as they were read, for a client that trusts its cache.
    cache: BTreeMap<&'static str, (Tick, Answer)>,
    paused_until: Tick,
    cut_until: Tick,
    is_dead: bool,
    has_left: bool,
    /// Its copy goes on at one in so many steps.
    slowness: u64,
    pub(crate) copied: u64,
}

#[derive(Debug)]
struct Copy {
    claim: Claim,
    left: VecDeque<u64>,
    /// Written and not synced.
    dirty: Option<(u64, usize)>,
    is_stopped: bool,
}

impl Node {
    pub(crate) fn new(number: u32, times: LeaseTimes, now: Tick, slowness: u64) -> Node {
        let name = format!("w{number}");
        Node {
            // Two may have one number, as where a worker is started again.
            worker: Worker::new(&name, Rank::new(&name, RANKS), times, now).watching_at_least(1),
            name,
            asked: None,
            wakes_at: now,
            copy: None,
            told: VecDeque::new(),
            cache: BTreeMap::new(),
            paused_until: now,
            cut_until: now,
            is_dead: false,
            has_left: false,
            slowness,
            copied: 0,
        }
    }

    /// Its process is over.
    pub(crate) fn is_gone(&self, now: Tick) -> bool {
        (self.is_dead || self.has_left) && now >= self.paused_until
    }

    /// What was written and not synced may still arrive, and so may its last call.
    pub(crate) fn leave_behind(&mut self, now: Tick, storage: &mut Storage, rng: &mut Rng) {
        if let Some(Copy { dirty: Some((_, inode)), .. }) = self.copy.take() {
            storage.write_back_at(now.after(rng.time(LONG)), inode);
        }
        if let Some((call, claim)) = self.asked.take()
            && rng.once_in(2)
        {
            storage.repeat_at(now.after(rng.time(LONG)), &self.name, claim, &call);
        }
    }

    /// One thing happens on this node.
    pub(crate) fn step(
        &mut self,
        now: Tick,
        calm: bool,
        storage: &mut Storage,
        rng: &mut Rng,
    ) -> Result<(), String> {
        if calm {
            (self.paused_until, self.cut_until) = (self.paused_until.min(now), now);
        } else {
            self.suffer(now, rng);
        }
        if now < self.paused_until || self.is_dead || self.has_left {
            return Ok(());
        }
        if now >= self.cut_until && rng.once_in(self.slowness) {
            self.copy_some(storage)?;
        }
        if let Some((call, claim)) = self.asked.clone() {
            if now < self.cut_until {
                return Ok(());
            }
            self.asked = None;
            let answer = self.carry_out(now, calm, claim, &call, (storage, rng))?;
            return self.tell(now, Event::Answer(answer), storage);
        }
        match self.told.pop_front() {
            Some(event) => self.tell(now, event, storage),
            None if now >= self.wakes_at => self.tell(now, Event::Woke, storage),
            None => Ok(()),
        }
    }

    fn suffer(&mut self, now: Tick, rng: &mut Rng) {
        if rng.once_in(800) {
            self.paused_until = now.after(rng.time(LONG));
        }
        if rng.once_in(800) {
            self.cut_until = now.after(rng.time(LONG));
        }
        if rng.once_in(1200) {
            // Another may be started only after a while.
            self.is_dead = true;
            self.paused_until = now.after(rng.time(LONG));
        }
        if rng.once_in(2000) {
            self.told.push_back(Event::Stop);
        }
    }

    /// The call reaches the storage, once or twice or later, and its answer comes back, or not.
    fn carry_out(
        &mut self,
        now: Tick,
        calm: bool,
        claim: Option<Claim>,
        call: &Call,
        (storage, rng): (&mut Storage, &mut Rng),
    ) -> Result<Answer, String> {
        match call {
            Call::LookAround(claim) => return Ok(self.look_around(*claim, rng)),
            Call::SetAside(claim, count) => return Ok(self.set_aside(*claim, *count, storage)),
            _ => {}
        }
        // These never leave the node.
        let calm = calm || matches!(call, Call::StartCopy(_) | Call::StopCopy);
        if !calm && changes(call) && rng.once_in(40) {
            // Between two steps of the protocol a pause does most harm.
            self.paused_until = now.after(rng.time(LONG));
        }
        let kind = listed(call);
        if let (Some(kind), false) = (kind, calm)
            && rng.once_in(3)
            && let Some((at, answer)) = self.cache.get(kind)
            && now.since(*at) < CACHED
        {
            return Ok(answer.clone());
        }
        if !calm && matches!(call, Call::IsMine(_)) && rng.once_in(60) {
            return Ok(if rng.once_in(2) { Answer::Yes } else { Answer::No });
        }
        if !calm && rng.once_in(60) {
            if rng.once_in(2) {
                storage.repeat_at(now.after(rng.time(LONG)), &self.name, claim, call);
            } else {
                storage.call(now, &self.name, claim, call)?;
            }
            return Ok(Answer::Trouble(Class::Local));
        }
        let mut answer = storage.call(now, &self.name, claim, call)?;
        if let Answer::Claims { waiting, .. } = &mut answer {
            *waiting = rng.below(WAITING_TOLD);
        }
        if !calm && rng.once_in(30) {
            answer = storage.call(now, &self.name, claim, call)?;
        }
        if !calm && rng.once_in(30) {
            storage.repeat_at(now.after(rng.time(LONG)), &self.name, claim, call);
        }
        self.cache.extend(kind.map(|kind| (kind, (now, answer.clone()))));
        Ok(answer)
    }

    /// Whatever the worker decides must be safe, so what it is told is not always so.
    fn look_around(&self, claim: Claim, rng: &mut Rng) -> Answer {
        let copy = self.copy.as_ref().filter(|copy| copy.claim == claim);
        let unbegun = copy.map_or(0, |copy| copy.left.len() as u64);
        let waiting = rng.below(2);
        Answer::Demand(Demand { waiting, unbegun, staged: 0, copying: LONG })
    }

    /// The last of what the copy has not begun with.
    fn set_aside(&mut self, claim: Claim, count: u64, storage: &Storage) -> Answer {
        let Some(copy) = self.copy.as_mut().filter(|copy| copy.claim == claim) else {
            return Answer::SetAside(Vec::new());
        };
        let kept = copy.left.len().saturating_sub(count as usize);
        let aside: Vec<u64> = copy.left.iter().skip(kept).copied().collect();
        if !storage.goes_on_with_given() {
            copy.left.truncate(kept);
        }
        Answer::SetAside(aside)
    }

    fn tell(&mut self, now: Tick, event: Event, storage: &mut Storage) -> Result<(), String> {
        match self.worker.step(now, event) {
            Action::Call(call) => {
                match &call {
                    Call::StartCopy(claim) => {
                        let left = storage.left_of(*claim)?.into();
                        let claim = *claim;
                        self.copy = Some(Copy { claim, left, dirty: None, is_stopped: false });
                    }
                    Call::StopCopy => {
                        self.copy.iter_mut().for_each(|copy| copy.is_stopped = true);
                    }
                    _ => {}
                }
                self.asked = Some((call, self.worker.claim()));
            }
            Action::Wait(until) => self.wakes_at = until,
            Action::Exit(End::Done) if !storage.is_done() => {
                return Err(format!("{} ends, and not all is done: {}", self.name, storage.left()));
            }
            Action::Exit(_) => self.has_left = true,
        }
        Ok(())
    }

    /// A step of the copy: an item is written, or synced and told.
    fn copy_some(&mut self, storage: &mut Storage) -> Result<(), String> {
        let Some(copy) = &mut self.copy else { return Ok(()) };
        if let Some((item, inode)) = copy.dirty.take() {
            storage.sync(inode);
            self.told.push_back(Event::Staged(vec![item]));
            return Ok(());
        }
        let next = if copy.is_stopped { None } else { copy.left.pop_front() };
        let ended = match next {
            Some(item) => match storage.create(copy.claim, item)? {
                Some(inode) => {
                    copy.dirty = Some((item, inode));
                    self.copied += 1;
                    return Ok(());
                }
                None => Some(Class::Local),
            },
            None if copy.is_stopped => Some(Class::Interrupted),
            None => None,
        };
        self.copy = None;
        self.told.push_back(Event::CopyEnded(ended));
        Ok(())
    }
}

/// Calls whose answer may be an old one.
fn listed(call: &Call) -> Option<&'static str> {
    match call {
        Call::ListOpen => Some("open"),
        Call::ListClaims => Some("claims"),
        Call::Count => Some("count"),
        Call::ReadBeats(_) => Some("beats"),
        _ => None,
    }
}

/// Calls of one attempt after which it is paused more often.
fn changes(call: &Call) -> bool {
    matches!(
        call,
        Call::Claim { .. }
            | Call::OpenLedger(_)
            | Call::Tombstone(_)
            | Call::MakeStaging(_)
            | Call::CloseTurn(_)
            | Call::Give(..)
            | Call::OpenGiven(_)
            | Call::Survey(_)
            | Call::Intend(_)
            | Call::Receipt(_)
    )
}

/// How long something is late, or a node away: longer than a lease.
const LONG: Nanos = Nanos::from_millis(40_000);
/// How long a client may believe what it has read.
const CACHED: Nanos = Nanos::from_millis(3_000);
/// Fewer than shards, so that workers have sequences of their own.
const RANKS: usize = 2;
/// What a worker is told of how many wait: enough that it watches a part, or all.
const WAITING_TOLD: u64 = 40;
