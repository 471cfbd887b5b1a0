//! What a worker does next: which call on the shared storage, from the answers to those before.
//!
//! A worker makes one call at a time. It claims a shard, fences the attempts before its own, copies
//! what they have not committed, commits each file, and finishes the shard. Where no shard is free
//! it watches the holders of the others; one that is slow gives away what it has not begun.
//! docs/SPREAD.md says why each step is where it is.

mod fences;
mod watching;

use std::collections::VecDeque;

pub use super::calls::{Action, Answer, Call, End, Event, Given};
use super::choice::Choice;
pub use super::choice::Rank;
use super::given::{self, Turns};
use super::lease::{LeaseTimes, Observer};
use super::{Claim, Held};
use base::fault::Class;
use base::units::{Nanos, Tick};

/// Where a worker is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Choose,
    Ready,
    Count,
    ShowIdle,
    Watch,
    Beats(Vec<Held>),
    Expire(Vec<Held>),
    /// Claims of this worker that it does not work on: an answer got lost.
    GiveBack(Vec<Claim>),
    Idle(Tick),
    Claim {
        shard: u32,
        attempts: u32,
    },
    Confirm(Claim),
    ShowBusy,
    Ledger,
    Tombstone(u32),
    Remove(u32),
    CloseTurn(Given),
    /// An earlier attempt has given it away.
    OpenEarlier(Given),
    Staging,
    Survey,
    Start,
    Copy,
    SetAside(u64, Given),
    Give(Given, Vec<u64>),
    OpenGiven(Given),
    StopCopy,
    /// The copy has failed: because of this claim, or because it is this worker's no more?
    Suspect(Class),
    Intend,
    Link,
    Receipt,
    Finish,
    IsDone,
    Clean(Claim),
    Release(Option<End>),
    Exit(End),
}

/// What the call under way is for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    Duty(Call),
    Work,
}

/// A worker, as a value.
#[derive(Debug)]
pub struct Worker {
    me: String,
    times: LeaseTimes,
    observer: Observer,
    state: State,
    asked: Asked,
    /// What is tried next of the shards that are open.
    choice: Choice,
    /// So many holders are watched by all who wait; more are divided among them.
    watched_min: usize,
    /// Before this time no beats are read, where there are many.
    reads_at: Tick,
    /// The shard that this worker has.
    claim: Option<Claim>,
    /// The turn at which that shard can give something away next, and those at which it has.
    turn: u8,
    gave: Turns,
    /// So many files are to be given away.
    share: Option<u64>,
    /// Others are shown that this worker waits for a shard.
    shows_idle: bool,
    /// The copy runs, or its end was not told yet.
    copies: bool,
    /// The copy was asked to stop.
    is_cut: bool,
    /// What this attempt has staged is not committed any more; the claim is released, and this
    /// follows.
    gives_up: Option<Option<End>>,
    ended: Option<Option<Class>>,
    staged: VecDeque<u64>,
    /// Staged and noted.
    intended: VecDeque<u64>,
    duties: VecDeque<Call>,
    beat: u64,
    next_beat: Tick,
    beat_began: Tick,
    /// When the last beat that was written began; others count from no earlier time.
    renewed: Tick,
    trouble: Option<(Tick, Class)>,
    retry_at: Tick,
    /// How often it has found nothing open since it had a shard.
    idles: u32,
    stop: bool,
}

impl Worker {
    /// `me` must differ from that of every other process, earlier ones too.
    pub fn new(me: &str, rank: Rank, times: LeaseTimes, now: Tick) -> Worker {
        Worker {
            me: me.to_string(),
            times,
            observer: Observer::new(times),
            state: State::Choose,
            asked: Asked::Nothing,
            choice: Choice::new(me, rank),
            watched_min: WATCHED_MIN,
            reads_at: now,
            claim: None,
            turn: 0,
            gave: Turns::default(),
            share: None,
            shows_idle: false,
            copies: false,
            is_cut: false,
            gives_up: None,
            ended: None,
            staged: VecDeque::new(),
            intended: VecDeque::new(),
            duties: VecDeque::new(),
            beat: 0,
            next_beat: now,
            beat_began: now,
            renewed: now,
            trouble: None,
            retry_at: now,
            idles: 0,
            stop: false,
        }
    }

    /// The same, where those who wait divide the holders among them from so many on.
    pub fn watching_at_least(self, holders: usize) -> Worker {
        Worker { watched_min: holders.max(1), ..self }
    }

    /// The shard that this worker works on.
    pub fn claim(&self) -> Option<Claim> {
        self.claim
    }

    /// Takes what happened, and says what to do. While a call is under way only `Staged`,
    /// `CopyEnded` and `Stop` may come before its answer; the action is then to wait.
    pub fn step(&mut self, now: Tick, event: Event) -> Action {
        match event {
            Event::Woke => {}
            Event::Stop => self.stop = true,
            Event::Staged(items) => self.staged.extend(items),
            Event::CopyEnded(class) => {
                self.ended = Some(class);
                self.copies = false;
            }
            Event::Answer(answer) => match std::mem::replace(&mut self.asked, Asked::Nothing) {
                Asked::Duty(call) => self.duty_done(&call, &answer),
                Asked::Work => self.take(answer, now),
                Asked::Nothing => {}
            },
        }
        if self.asked != Asked::Nothing {
            return Action::Wait(Tick(u64::MAX));
        }
        self.next(now)
    }

    fn next(&mut self, now: Tick) -> Action {
        if let State::Exit(end) = self.state {
            return Action::Exit(end);
        }
        if now >= self.next_beat {
            self.next_beat = now.after(self.times.beat());
            self.beat += 1;
            self.duties = VecDeque::from([Call::Beat(self.beat), Call::Control]);
            self.duties.extend(self.claim.map(Call::IsMine));
            self.duties.extend(self.next_part().map(|given| Call::LookAround(given.claim)));
        }
        if let Some(call) = self.duties.pop_front() {
            if matches!(call, Call::Beat(_)) {
                self.beat_began = now;
            }
            self.asked = Asked::Duty(call.clone());
            return Action::Call(call);
        }
        self.redirect();
        if let State::Exit(end) = self.state {
            return Action::Exit(end);
        }
        if now < self.retry_at {
            return Action::Wait(self.retry_at.min(self.next_beat));
        }
        match self.wanted(now) {
            Some(call) => {
                self.asked = Asked::Work;
                Action::Call(call)
            }
            None => Action::Wait(match self.state {
                State::Idle(until) => until.min(self.next_beat),
                _ => self.next_beat,
            }),
        }
    }

    fn duty_done(&mut self, call: &Call, answer: &Answer) {
        match (call, answer) {
            (Call::Beat(_), Answer::Done) => self.renewed = self.beat_began,
            (Call::Control, Answer::No) => self.stop = true,
            (Call::IsMine(claim), Answer::No) if self.claim == Some(*claim) => self.lose(),
            (Call::LookAround(_), Answer::Demand(demand)) => {
                self.share = given::share(demand, self.times);
            }
            _ => {}
        }
    }

    /// What would be given away next, while the copy runs.
    fn next_part(&self) -> Option<Given> {
        let is_own = self.copies && !self.is_cut && self.gives_up.is_none();
        self.part_at(self.turn).filter(|_| is_own)
    }

    fn part_at(&self, turn: u8) -> Option<Given> {
        let claim = self.claim?;
        given::part(claim.shard, turn).map(|part| Given { claim, part })
    }

    /// The claim has gone to another: nothing of it may be committed, finished or released.
    fn lose(&mut self) {
        self.claim = None;
        self.state = self.stop_copy(State::Choose);
    }

    /// The copy is stopped if it runs; else comes `then`.
    fn stop_copy(&self, then: State) -> State {
        match self.copies {
            true if self.is_cut => State::Copy,
            true => State::StopCopy,
            false => then,
        }
    }

    /// A stop that was asked for changes what is wanted, where it can be obeyed.
    fn redirect(&mut self) {
        if !self.stop {
            return;
        }
        let stopped = End::Stopped;
        match &self.state {
            State::Choose
            | State::Ready
            | State::Count
            | State::ShowIdle
            | State::Watch
            | State::Beats(_)
            | State::Expire(_)
            | State::GiveBack(_)
            | State::Idle(_)
            | State::Clean(_)
            | State::Claim { .. } => self.state = State::Exit(stopped),
            State::ShowBusy
            | State::Ledger
            | State::Tombstone(_)
            | State::Remove(_)
            | State::CloseTurn(_)
            | State::OpenEarlier(_)
            | State::Staging
            | State::Survey
            | State::Start => self.state = State::Release(Some(stopped)),
            State::Release(None) => self.state = State::Release(Some(stopped)),
            State::Copy if self.copies && !self.is_cut => self.state = State::StopCopy,
            _ => {}
        }
    }

    /// The call of the current state, or `None` to wait.
    fn wanted(&mut self, now: Tick) -> Option<Call> {
        if self.state == State::Copy {
            self.leave_copy();
        }
        let claim = self.claim;
        Some(match &self.state {
            State::Choose => match self.choose() {
                Some(claim) => claim,
                None => Call::ListOpen,
            },
            State::Ready => Call::OpenReady,
            State::Count => Call::Count,
            State::ShowIdle => Call::ShowIdle,
            State::ShowBusy => Call::ShowBusy,
            State::Watch => Call::ListClaims,
            State::Beats(held) => {
                let mut workers: Vec<String> = held.iter().map(|h| h.worker.clone()).collect();
                workers.dedup();
                Call::ReadBeats(workers)
            }
            State::Expire(held) => Call::Expire(held.last()?.clone()),
            State::GiveBack(claims) => Call::Release(*claims.last()?),
            State::Idle(until) if now < *until => return None,
            State::Idle(_) => {
                self.state = State::Choose;
                self.choice.forget();
                Call::ListOpen
            }
            State::Claim { shard, attempts } => Call::Claim { shard: *shard, attempts: *attempts },
            State::Confirm(claim) => Call::IsMine(*claim),
            State::Ledger => Call::OpenLedger(claim?),
            State::Tombstone(attempt) => Call::Tombstone(Claim { attempt: *attempt, ..claim? }),
            State::Remove(attempt) => Call::RemoveStaging(Claim { attempt: *attempt, ..claim? }),
            State::CloseTurn(given) => Call::CloseTurn(*given),
            State::OpenEarlier(given) | State::OpenGiven(given) => Call::OpenGiven(*given),
            State::SetAside(files, given) => Call::SetAside(given.claim, *files),
            State::Give(given, items) => Call::Give(*given, items.clone()),
            State::Staging => Call::MakeStaging(claim?),
            State::Survey => Call::Survey(claim?),
            State::Start => {
                (self.ended, self.copies, self.is_cut) = (None, true, false);
                Call::StartCopy(claim?)
            }
            State::Copy => return None,
            State::StopCopy => {
                self.is_cut = true;
                Call::StopCopy
            }
            State::Suspect(_) => Call::IsMine(claim?),
            // A worker that could not show itself for a lease commits nothing before it can.
            State::Intend | State::Link if now.since(self.renewed) > self.times.lease() => {
                return None;
            }
            State::Intend => {
                let count = self.staged.len().min(BATCH_MAX);
                self.intended = self.staged.drain(..count).collect();
                Call::Intend(self.intended.iter().copied().collect())
            }
            State::Link => Call::Link(*self.intended.front()?),
            State::Receipt => Call::Receipt(claim?),
            State::Finish => Call::Finish(claim?, self.gave),
            State::IsDone => Call::IsDone(claim?, self.gave),
            State::Clean(claim) => Call::RemoveStaging(*claim),
            State::Release(_) => Call::Release(claim?),
            State::Exit(_) => return None,
        })
    }

    /// What comes after copying, once something is staged or it has ended.
    fn leave_copy(&mut self) {
        let keeps = self.claim.is_some() && self.gives_up.is_none();
        if !keeps {
            self.staged.clear();
            self.intended.clear();
        }
        if !self.intended.is_empty() {
            self.state = State::Link;
        } else if !self.staged.is_empty() {
            self.state = State::Intend;
        } else if let Some(ended) = self.ended {
            self.state = match (ended, self.gives_up.take()) {
                _ if self.claim.is_none() => State::Choose,
                (_, Some(end)) => State::Release(end),
                (None, None) => State::Receipt,
                (Some(_), None) if self.stop => State::Release(Some(End::Stopped)),
                (Some(class), None) => State::Suspect(class),
            };
        } else if let (Some(files), Some(given)) = (self.share.take(), self.next_part()) {
            self.state = State::SetAside(files, given);
        }
    }

    fn take(&mut self, answer: Answer, now: Tick) {
        if let Answer::Trouble(class) = answer {
            return self.in_trouble(class, now);
        }
        self.trouble = None;
        let state = std::mem::replace(&mut self.state, State::Choose);
        self.state = self.after(state, answer, now);
    }

    /// The same call again, after a pause; not for ever, and not where the next would fail too.
    fn in_trouble(&mut self, class: Class, now: Tick) {
        if self.state == State::Intend {
            // Whether it was noted is not known: it is noted again.
            self.staged.extend(self.intended.drain(..));
        }
        if self.state == State::Start {
            self.copies = false;
        }
        let (since, first) = *self.trouble.get_or_insert((now, class));
        let is_long = now.since(since).0 > 4 * self.times.lease_ns;
        let is_full = class == Class::NoSpace && self.claim.is_some();
        match self.state {
            State::Clean(_) => self.state = State::Choose,
            State::Release(_) if class == Class::NoSpace => {
                self.state = State::Exit(End::Failed(first));
            }
            // Others see that it is silent, and take what it holds.
            _ if is_long => self.state = State::Exit(End::Failed(first)),
            State::Release(_) => {}
            _ if is_full => {
                let end = Some(End::Failed(class));
                self.gives_up = self.copies.then_some(end);
                self.state = self.stop_copy(State::Release(end));
            }
            _ => {}
        }
        self.retry_at = now.after(RETRY_AFTER);
    }

    fn after(&mut self, state: State, answer: Answer, now: Tick) -> State {
        match (state, answer) {
            (State::Choose, Answer::Open(open)) => {
                let is_none = open.is_empty();
                self.choice.list(open);
                if is_none { State::Ready } else { State::Choose }
            }
            (State::Ready, Answer::Opened(1..)) => State::Choose,
            (State::Ready, _) if !self.shows_idle => State::ShowIdle,
            (State::Ready, _) => State::Watch,
            (State::ShowIdle, _) => {
                self.shows_idle = true;
                State::Watch
            }
            (State::Count, Answer::Count { done, total: Some(total) }) if done >= total => {
                State::Exit(End::Done)
            }
            (State::Count, _) => self.idle(now),
            (State::Watch, Answer::Claims { held, waiting }) => self.watched(held, waiting, now),
            (State::Beats(held), Answer::Beats(beats)) => self.observed(held, &beats, now),
            (State::Expire(mut held), _) => {
                held.pop();
                if held.is_empty() { State::Choose } else { State::Expire(held) }
            }
            (State::GiveBack(mut claims), _) => {
                claims.pop();
                if claims.is_empty() { State::Choose } else { State::GiveBack(claims) }
            }
            (State::Claim { shard, attempts }, answer) => {
                let claim = Claim { shard, attempt: attempts + 1 };
                match answer {
                    Answer::Moved => self.begin(claim),
                    // Another was quicker, or the answer to a first try was lost.
                    _ => State::Confirm(claim),
                }
            }
            (State::Confirm(claim), Answer::Yes) => self.begin(claim),
            // Who looks again does not meet the same others.
            (State::Confirm(_), _) if self.choice.missed() => State::Choose,
            (State::Confirm(_), _) => State::Idle(now.after(CONTENDED)),
            (state, answer) => self.after_with_claim(state, answer),
        }
    }

    /// What is left is not for this attempt.
    fn give_up(&mut self) -> State {
        self.gives_up = self.copies.then_some(None);
        self.stop_copy(State::Release(None))
    }

    fn after_with_claim(&mut self, state: State, answer: Answer) -> State {
        match (state, answer) {
            (State::Staging, Answer::Done) => State::Survey,
            // A later attempt has fenced this one; or it was made and the answer lost.
            (State::Staging, _) => State::Release(None),
            (State::Survey, Answer::GoesOn) => State::Survey,
            (State::Survey, Answer::Surveyed(0)) => State::Receipt,
            (State::Survey, _) => State::Start,
            (State::Start | State::StopCopy | State::Intend, _) => State::Copy,
            (State::SetAside(_, given), Answer::SetAside(items)) if !items.is_empty() => {
                State::Give(given, items)
            }
            // A later attempt has closed the turn.
            (State::Give(..), Answer::Exists) => self.give_up(),
            (State::Give(given, _), _) => {
                self.gave = self.gave.with(self.turn);
                self.turn += 1;
                State::OpenGiven(given)
            }
            (State::SetAside(..) | State::OpenGiven(_), _) => State::Copy,
            // Fenced, or a file that somebody removed.
            (State::Link, Answer::Gone) => self.give_up(),
            (State::Link, _) => {
                self.intended.pop_front();
                State::Copy
            }
            (State::Receipt, Answer::GoesOn) => State::Receipt,
            (State::Receipt, _) => State::Finish,
            (State::Finish, Answer::Moved) => self.finished(),
            (State::Finish, _) => State::IsDone,
            (State::IsDone, Answer::Yes) => self.finished(),
            (State::IsDone, _) => {
                self.claim = None;
                State::Choose
            }
            (State::Suspect(class), Answer::Yes) => State::Release(Some(End::Failed(class))),
            (State::Suspect(_), _) => {
                self.claim = None;
                State::Choose
            }
            (State::Clean(claim), Answer::GoesOn) => State::Clean(claim),
            (State::Clean(_), _) => State::Choose,
            (State::Release(end), _) => {
                self.claim = None;
                end.map_or(State::Choose, State::Exit)
            }
            (state, answer) => self.after_fence(state, answer),
        }
    }

    fn begin(&mut self, claim: Claim) -> State {
        self.claim = Some(claim);
        self.choice.won(claim.shard);
        self.staged.clear();
        self.intended.clear();
        (self.ended, self.gives_up, self.idles) = (None, None, 0);
        (self.turn, self.gave, self.share) = (0, Turns::default(), None);
        if self.shows_idle { State::ShowBusy } else { State::Ledger }
    }

    fn finished(&mut self) -> State {
        self.claim.take().map_or(State::Choose, State::Clean)
    }

    /// What is likely to be open still; a list is asked for only when nothing is.
    fn choose(&mut self) -> Option<Call> {
        let (shard, attempts) = self.choice.take()?;
        self.state = State::Claim { shard, attempts };
        Some(Call::Claim { shard, attempts })
    }

    /// What comes soon, or ends soon, is seen soon; later four times in a beat.
    fn idle(&mut self, now: Tick) -> State {
        let wait = (IDLE_FIRST.0 << self.idles).min(self.times.beat_ns / 4);
        self.idles = (self.idles + 1).min(IDLES_MAX);
        State::Idle(now.after(Nanos(wait)))
    }
}

/// Items that are noted together.
const BATCH_MAX: usize = 512;
const RETRY_AFTER: Nanos = Nanos::from_millis(500);
/// Until a worker that was not the first to claim a shard looks again.
const CONTENDED: Nanos = Nanos::from_millis(20);
/// Until a worker looks again that finds nothing open, for the first time; each time twice as long.
const IDLE_FIRST: Nanos = Nanos::from_millis(50);
const IDLES_MAX: u32 = 10;
/// Reading so many beats is little, for each who waits.
const WATCHED_MIN: usize = 8;
