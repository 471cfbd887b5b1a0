//! The shared storage: what is on it, what each call does to it, and what must always hold.

use std::collections::{BTreeMap, BTreeSet};

use analysis::shards::given::{self, Turns};
use analysis::shards::worker::{Answer, Call, Given};
use analysis::shards::{Claim, Held};
use base::units::{Nanos, Tick};

/// A rule of the protocol that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    None,
    /// Earlier attempts are not fenced.
    NoFence,
    /// A staging folder that is not seen is taken for one that cannot come.
    AbsenceBelieved,
    /// A staging folder is made where a tombstone stands.
    TombstoneIgnored,
    /// A final name is replaced instead of linked once.
    Replaced,
    /// An item is called staged before it is synced.
    NotSynced,
    /// Two workers can claim the same open shard.
    ClaimCopied,
    /// What is about to be committed is noted, and not synced.
    NoteNotSynced,
    /// A shard is called done by who thinks that it has it.
    DoneWithoutClaim,
    /// A claim keeps its attempt when it is opened again.
    AttemptReused,
    /// A folder is removed as it was listed; what came since stays, and nobody looks.
    HalfRemoved,
    /// What is given away is open before it is written down that it was given away.
    OpenBeforeGiven,
    /// A worker goes on with what it has given away.
    GoesOnWithGiven,
    /// Earlier attempts can give away what a later one copies.
    TurnsNotClosed,
    /// What was given away is opened each time that somebody opens it.
    OpenedAgain,
    /// A shard that is done does not say what it gave away.
    PartsForgotten,
}

impl Plant {
    pub(crate) const ALL: &[Plant] = &[
        Plant::NoFence,
        Plant::AbsenceBelieved,
        Plant::TombstoneIgnored,
        Plant::Replaced,
        Plant::NotSynced,
        Plant::ClaimCopied,
        Plant::NoteNotSynced,
        Plant::DoneWithoutClaim,
        Plant::AttemptReused,
        Plant::HalfRemoved,
        Plant::OpenBeforeGiven,
        Plant::GoesOnWithGiven,
        Plant::TurnsNotClosed,
        Plant::OpenedAgain,
        Plant::PartsForgotten,
    ];
}

/// A file's content, wherever its names are.
#[derive(Clone, Copy, Debug)]
struct Inode {
    of: Claim,
    item: u64,
    /// All of it is on the storage.
    is_complete: bool,
}

#[derive(Clone, Debug)]
enum Slot {
    Folder(BTreeMap<u64, usize>),
    Tombstone,
}

/// What became of a turn at which a shard could give something away.
#[derive(Clone, Debug)]
enum Turn {
    Closed(Claim),
    Gave { by: Claim, items: BTreeSet<u64>, is_open: bool },
}

/// A call that reaches the storage after its answer was given up, or a second time.
#[derive(Debug)]
struct Late {
    at: Tick,
    who: String,
    claim: Option<Claim>,
    what: LateCall,
}

#[derive(Debug)]
enum LateCall {
    Call(Call),
    WriteBack(usize),
}

#[derive(Debug)]
pub(crate) struct Storage {
    plant: Plant,
    items: u64,
    shards: u32,
    waiting: BTreeSet<u32>,
    open: BTreeSet<(u32, u32)>,
    claims: BTreeSet<Held>,
    done: BTreeSet<(Held, Turns)>,
    /// By the numbers of the parts.
    turns: BTreeMap<u32, Turn>,
    /// The items of shards that were given away.
    parts: BTreeMap<u32, BTreeSet<u64>>,
    staging: BTreeMap<Claim, Slot>,
    ledgers: BTreeMap<Claim, BTreeSet<u64>>,
    /// A name is that of a planned shard and an item.
    finals: BTreeMap<(u32, u64), usize>,
    receipts: BTreeMap<Claim, BTreeSet<u64>>,
    beats: BTreeMap<String, u64>,
    inodes: Vec<Inode>,
    /// Attempts that a later one has found fenced.
    fenced: BTreeSet<Claim>,
    late: Vec<Late>,
    /// A final name that somebody else gives to a file of theirs, and when.
    strangers: Option<(Tick, (u32, u64))>,
    foreign: BTreeSet<(u32, u64)>,
    trace: bool,
}

impl Storage {
    /// The last of several shards waits for the first.
    pub(crate) fn new(plant: Plant, shards: u32, items: u64) -> Storage {
        let waiting: BTreeSet<u32> = (shards > 2).then_some(shards - 1).into_iter().collect();
        Storage {
            plant,
            items,
            shards,
            open: (0..shards).filter(|shard| !waiting.contains(shard)).map(|s| (s, 0)).collect(),
            waiting,
            claims: BTreeSet::new(),
            done: BTreeSet::new(),
            turns: BTreeMap::new(),
            parts: BTreeMap::new(),
            staging: BTreeMap::new(),
            ledgers: BTreeMap::new(),
            finals: BTreeMap::new(),
            receipts: BTreeMap::new(),
            beats: BTreeMap::new(),
            inodes: Vec::new(),
            fenced: BTreeSet::new(),
            late: Vec::new(),
            strangers: None,
            foreign: BTreeSet::new(),
            trace: std::env::var_os("DATAPUMP_SIM_TRACE").is_some(),
        }
    }

    pub(crate) fn with_strangers(mut self, at: Tick, shard: u32, item: u64) -> Storage {
        self.strangers = Some((at, (shard % self.shards, item % self.items)));
        self
    }

    /// What a call does, and what it finds. `claim` is that of the worker which makes it.
    pub(crate) fn call(
        &mut self,
        now: Tick,
        who: &str,
        claim: Option<Claim>,
        call: &Call,
    ) -> Result<Answer, String> {
        let answer = self.answer(who, claim, call)?;
        if self.trace {
            println!("{:>9.3} {who} {call:?} -> {answer:?}", now.0 as f64 / 1e9);
        }
        Ok(answer)
    }

    fn answer(&mut self, who: &str, claim: Option<Claim>, call: &Call) -> Result<Answer, String> {
        Ok(match call {
            Call::Beat(number) => {
                self.beats.insert(who.to_string(), *number);
                Answer::Done
            }
            Call::Control => Answer::Yes,
            Call::ListOpen => Answer::Open(self.open.iter().copied().collect()),
            Call::OpenReady => self.open_ready(),
            Call::Count => {
                let done = self.done.iter().map(|(held, gave)| (held.claim.shard, *gave));
                let (done, total) = given::count(&done.collect::<Vec<_>>(), self.shards);
                Answer::Count { done, total: Some(total) }
            }
            // How many wait is a hint: what the node makes of it is the node's.
            Call::ListClaims => {
                Answer::Claims { held: self.claims.iter().cloned().collect(), waiting: 0 }
            }
            Call::ReadBeats(workers) => {
                let beat = |w: &String| (w.clone(), self.beats.get(w).copied());
                Answer::Beats(workers.iter().map(beat).collect())
            }
            Call::Claim { shard, attempts } => self.claim(who, *shard, *attempts),
            Call::IsMine(claim) => yes(self.claims.contains(&held(*claim, who))),
            Call::IsDone(claim, gave) => yes(self.done.contains(&(held(*claim, who), *gave))),
            Call::Expire(held) => self.reopen(held.clone()),
            Call::Release(claim) => self.reopen(held(*claim, who)),
            Call::Finish(claim, gave) => return self.finish(held(*claim, who), *gave),
            Call::CloseTurn(given) => self.close_turn(*given),
            Call::Give(given, items) => self.give(*given, items),
            Call::OpenGiven(given) => self.open_given(*given),
            Call::Tombstone(claim) => self.tombstone(*claim),
            Call::RemoveStaging(claim) => self.remove_staging(*claim),
            Call::MakeStaging(claim) => self.make_staging(*claim),
            Call::Survey(claim) => Answer::Surveyed(self.left_of(*claim)?.len() as u64),
            Call::Intend(items) => self.intend(claim, items),
            Call::Link(item) => return self.link(claim, *item),
            Call::Receipt(claim) => {
                let known = self.known(*claim);
                let own = self.items_of(claim.shard);
                self.receipts.insert(*claim, known.intersection(&own).copied().collect());
                Answer::Done
            }
            Call::OpenLedger(claim) => {
                self.ledgers.entry(*claim).or_default();
                Answer::Done
            }
            Call::StartCopy(_)
            | Call::StopCopy
            | Call::ShowIdle
            | Call::ShowBusy
            | Call::LookAround(_)
            | Call::SetAside(..) => Answer::Done,
        })
    }

    fn open_ready(&mut self) -> Answer {
        let is_done = |shard: u32| self.done.iter().any(|(held, _)| held.claim.shard == shard);
        let ready: Vec<u32> = self.waiting.iter().copied().filter(|_| is_done(0)).collect();
        for shard in &ready {
            self.waiting.remove(shard);
            self.open.insert((*shard, 0));
        }
        Answer::Opened(ready.len() as u32)
    }

    fn claim(&mut self, who: &str, shard: u32, attempts: u32) -> Answer {
        if !self.open.contains(&(shard, attempts)) {
            return Answer::Missing;
        }
        // With this bug the name goes away only with the next call of somebody.
        if self.plant != Plant::ClaimCopied || self.claims.iter().any(|h| h.claim.shard == shard) {
            self.open.remove(&(shard, attempts));
        }
        self.claims.insert(held(Claim { shard, attempt: attempts + 1 }, who));
        Answer::Moved
    }

    fn reopen(&mut self, held: Held) -> Answer {
        if !self.claims.remove(&held) {
            return Answer::Missing;
        }
        let reused = u32::from(self.plant == Plant::AttemptReused);
        self.open.insert((held.claim.shard, held.claim.attempt - reused));
        Answer::Moved
    }

    fn finish(&mut self, held: Held, gave: Turns) -> Result<Answer, String> {
        if !self.claims.remove(&held) && self.plant != Plant::DoneWithoutClaim {
            return Ok(Answer::Missing);
        }
        let shard = held.claim.shard;
        if self.done.iter().any(|(other, _)| other.claim.shard == shard && *other != held) {
            return Err(format!("shard {shard} is done twice"));
        }
        let forgets = self.plant == Plant::PartsForgotten;
        self.done.insert((held, if forgets { Turns::default() } else { gave }));
        Ok(Answer::Moved)
    }

    fn tombstone(&mut self, claim: Claim) -> Answer {
        match (self.staging.get(&claim), self.plant) {
            (_, Plant::NoFence) => {}
            (Some(Slot::Folder(_)), _) => return Answer::Folder,
            (Some(Slot::Tombstone), _) => {}
            (None, Plant::AbsenceBelieved) => {}
            (None, _) => drop(self.staging.insert(claim, Slot::Tombstone)),
        }
        self.fenced.insert(claim);
        Answer::Stands
    }

    fn remove_staging(&mut self, claim: Claim) -> Answer {
        match self.staging.get_mut(&claim) {
            Some(Slot::Folder(items)) if !items.is_empty() => {
                items.pop_first();
                match self.plant == Plant::HalfRemoved {
                    true => {
                        self.fenced.insert(claim);
                        Answer::Done
                    }
                    false => Answer::GoesOn,
                }
            }
            Some(Slot::Folder(_)) => {
                self.staging.remove(&claim);
                Answer::Done
            }
            _ => Answer::Done,
        }
    }

    fn make_staging(&mut self, claim: Claim) -> Answer {
        let is_taken = match self.staging.get(&claim) {
            Some(Slot::Tombstone) => self.plant != Plant::TombstoneIgnored,
            Some(Slot::Folder(_)) => true,
            None => false,
        };
        if is_taken {
            return Answer::Stands;
        }
        self.staging.insert(claim, Slot::Folder(BTreeMap::new()));
        Answer::Done
    }

    /// The first who takes a turn decides it.
    fn close_turn(&mut self, given: Given) -> Answer {
        match self.turns.get(&given.part) {
            Some(Turn::Gave { .. }) => Answer::Stands,
            Some(Turn::Closed(by)) if *by != given.claim => Answer::Closed,
            Some(Turn::Closed(_)) => Answer::Done,
            None if self.plant == Plant::TurnsNotClosed => Answer::Done,
            None => {
                self.turns.insert(given.part, Turn::Closed(given.claim));
                Answer::Done
            }
        }
    }

    fn give(&mut self, given: Given, items: &[u64]) -> Answer {
        let items: BTreeSet<u64> = items.iter().copied().collect();
        match self.turns.get(&given.part) {
            Some(Turn::Gave { by, .. }) if *by == given.claim => Answer::Done,
            Some(_) => Answer::Exists,
            None if self.plant == Plant::OpenBeforeGiven
                && self.parts.contains_key(&given.part) =>
            {
                Answer::Done
            }
            None if self.plant == Plant::OpenBeforeGiven => {
                self.parts.insert(given.part, items);
                self.open.insert((given.part, 0));
                Answer::Done
            }
            None => {
                let turn = Turn::Gave { by: given.claim, items, is_open: false };
                self.turns.insert(given.part, turn);
                Answer::Done
            }
        }
    }

    fn open_given(&mut self, given: Given) -> Answer {
        if self.plant == Plant::OpenBeforeGiven
            && let Some(items) = self.parts.get(&given.part)
        {
            let turn = Turn::Gave { by: given.claim, items: items.clone(), is_open: true };
            self.turns.entry(given.part).or_insert(turn);
            return Answer::Moved;
        }
        match self.turns.get_mut(&given.part) {
            Some(Turn::Gave { items, is_open, .. })
                if !*is_open || self.plant == Plant::OpenedAgain =>
            {
                *is_open = true;
                self.parts.insert(given.part, items.clone());
                self.open.insert((given.part, 0));
                Answer::Moved
            }
            _ => Answer::Missing,
        }
    }

    /// What a shard has, without what it has given away.
    fn items_of(&self, shard: u32) -> BTreeSet<u64> {
        let mut items = match self.parts.get(&shard) {
            Some(items) => items.clone(),
            None => (0..self.items).collect(),
        };
        for (part, turn) in &self.turns {
            if let Turn::Gave { items: given, .. } = turn
                && given::giver(*part) == Some(shard)
            {
                items.retain(|item| !given.contains(item));
            }
        }
        items
    }

    pub(crate) fn goes_on_with_given(&self) -> bool {
        self.plant == Plant::GoesOnWithGiven
    }

    /// What earlier attempts, and this one, have noted.
    fn known(&self, claim: Claim) -> BTreeSet<u64> {
        let of_shard = self
            .ledgers
            .iter()
            .filter(|(of, _)| of.shard == claim.shard && of.attempt <= claim.attempt);
        of_shard.flat_map(|(_, items)| items.iter().copied()).collect()
    }

    pub(crate) fn left_of(&self, claim: Claim) -> Result<Vec<u64>, String> {
        let known = self.known(claim);
        let mut left = Vec::new();
        let family = given::planned(claim.shard);
        let items = self.items_of(claim.shard).into_iter();
        for item in items.filter(|item| !self.foreign.contains(&(family, *item))) {
            match (self.finals.contains_key(&(family, item)), known.contains(&item)) {
                (true, true) => {}
                // A late attempt finds what its successor has committed, and commits nothing.
                (true, false) if self.fenced.contains(&claim) => {}
                (true, false) => {
                    return Err(format!("{claim:?}: item {item} is committed and not noted"));
                }
                (false, _) => left.push(item),
            }
        }
        Ok(left)
    }

    fn intend(&mut self, claim: Option<Claim>, items: &[u64]) -> Answer {
        let Some(claim) = claim else { return Answer::Done };
        if self.plant != Plant::NoteNotSynced || claim.attempt % 2 == 0 {
            self.ledgers.entry(claim).or_default().extend(items);
        }
        Answer::Done
    }

    fn link(&mut self, claim: Option<Claim>, item: u64) -> Result<Answer, String> {
        let Some(claim) = claim else { return Ok(Answer::Gone) };
        let staged = match self.staging.get(&claim) {
            Some(Slot::Folder(items)) => items.get(&item).copied(),
            _ => None,
        };
        let Some(inode) = staged else { return Ok(Answer::Gone) };
        let name = (given::planned(claim.shard), item);
        if self.foreign.contains(&name) {
            return match self.plant == Plant::Replaced {
                true => Err(format!("{claim:?}: item {item} replaces a file of somebody else")),
                false => Ok(Answer::Exists),
            };
        }
        let there = self.finals.get(&name).copied();
        if there.is_some() {
            return match there == Some(inode) {
                true => Ok(Answer::Exists),
                false => Err(format!("{claim:?}: item {item} was committed by another attempt")),
            };
        }
        if self.fenced.contains(&claim) {
            return Err(format!("{claim:?} is fenced and commits item {item}"));
        }
        if !self.inodes[inode].is_complete {
            return Err(format!("{claim:?}: item {item} is committed before it is on the storage"));
        }
        self.finals.insert(name, inode);
        Ok(Answer::Done)
    }

    /// Begins to copy an item: a file in the staging folder. `None` where that is gone.
    pub(crate) fn create(&mut self, claim: Claim, item: u64) -> Result<Option<usize>, String> {
        let Some(Slot::Folder(items)) = self.staging.get_mut(&claim) else { return Ok(None) };
        if self.finals.contains_key(&(given::planned(claim.shard), item)) {
            return Err(format!("{claim:?}: item {item} is copied again"));
        }
        let inode = self.inodes.len();
        self.inodes.push(Inode { of: claim, item, is_complete: false });
        items.insert(item, inode);
        Ok(Some(inode))
    }

    pub(crate) fn sync(&mut self, inode: usize) {
        self.inodes[inode].is_complete |= self.plant != Plant::NotSynced;
    }

    /// Later the call is made once more, or a write that a node still has arrives.
    pub(crate) fn repeat_at(&mut self, at: Tick, who: &str, claim: Option<Claim>, call: &Call) {
        let what = LateCall::Call(call.clone());
        self.late.push(Late { at, who: who.to_string(), claim, what });
    }

    pub(crate) fn write_back_at(&mut self, at: Tick, inode: usize) {
        let (who, what) = (String::new(), LateCall::WriteBack(inode));
        self.late.push(Late { at, who, claim: None, what });
    }

    pub(crate) fn late_calls(&mut self, now: Tick, calm: bool) -> Result<(), String> {
        if let Some((_, name)) = self.strangers.take_if(|(at, _)| *at <= now)
            && !self.finals.contains_key(&name)
        {
            self.foreign.insert(name);
        }
        let (due, later) = std::mem::take(&mut self.late)
            .into_iter()
            .partition(|late: &Late| late.at <= now || calm);
        self.late = later;
        for Late { who, claim, what, .. } in due {
            match what {
                LateCall::Call(call) => drop(self.call(now, &who, claim, &call)?),
                LateCall::WriteBack(inode) => {
                    let Inode { of, item, .. } = self.inodes[inode];
                    if self.finals.get(&(given::planned(of.shard), item)) == Some(&inode) {
                        return Err(format!("{of:?}: item {item} is written to after its commit"));
                    }
                    self.inodes[inode].is_complete = true;
                }
            }
        }
        Ok(())
    }

    /// All shards, those that were given away too.
    fn all(&self) -> impl Iterator<Item = u32> {
        let gave = |turn: &Turn| matches!(turn, Turn::Gave { .. });
        let parts = self.turns.iter().filter(move |(_, turn)| gave(turn)).map(|(part, _)| *part);
        (0..self.shards).chain(parts)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.all().all(|shard| self.done.iter().any(|(held, _)| held.claim.shard == shard))
    }

    pub(crate) fn attempts(&self) -> u64 {
        self.done.iter().map(|(held, _)| u64::from(held.claim.attempt)).sum()
    }

    pub(crate) fn given(&self) -> u64 {
        self.parts.len() as u64
    }

    pub(crate) fn left(&self) -> String {
        format!("open {:?}, claims {:?}, done {:?}", self.open, self.claims, self.done)
    }

    /// Everything is there once, and in one receipt that counts.
    pub(crate) fn check_end(&self) -> Result<(), String> {
        let mut receipts: BTreeMap<(u32, u64), u32> = BTreeMap::new();
        for shard in self.all() {
            let mut of_shard = self.done.iter().filter(|(held, _)| held.claim.shard == shard);
            let (Some((done, _)), None) = (of_shard.next(), of_shard.next()) else {
                return Err(format!("shard {shard} is not done once: {:?}", self.done));
            };
            let receipt = self.receipts.get(&done.claim).ok_or("a shard has no receipt")?;
            for item in receipt {
                *receipts.entry((given::planned(shard), *item)).or_default() += 1;
            }
        }
        let names = (0..self.shards).flat_map(|shard| (0..self.items).map(move |i| (shard, i)));
        for name in names.filter(|name| !self.foreign.contains(name)) {
            let inode = self.finals.get(&name).ok_or(format!("{name:?} is missing"))?;
            if !self.inodes[*inode].is_complete || receipts.get(&name) != Some(&1) {
                return Err(format!("{name:?} is incomplete, or not in one receipt"));
            }
        }
        match self.open.is_empty() && self.claims.is_empty() && self.waiting.is_empty() {
            true => Ok(()),
            false => Err(format!("something is left: {}", self.left())),
        }
    }
}

fn held(claim: Claim, worker: &str) -> Held {
    Held { claim, worker: worker.to_string() }
}

fn yes(is_so: bool) -> Answer {
    if is_so { Answer::Yes } else { Answer::No }
}

/// Numbers from a seed (SplitMix64).
#[derive(Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// True once in so many times.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn time(&mut self, most: Nanos) -> Nanos {
        Nanos(1 + self.below(most.0))
    }
}
