//! A worker: it carries out the calls of `analysis::shards::worker` until no shard is left.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use super::copying::{ShardCopy, ShardOrder, Told};
use super::destination::Destination;
use super::events::{Events, GIVES_UP};
use super::far::{Hosts, News};
use super::folder::{JobFolder, random_hex};
use super::ranges::Pace;
use super::records::{Beat, Committed, Failed, WorkerDoes, text_of};
use super::shard_work::{ShardWork, Staged};
use super::source::Source;
use super::storage::Storage;
use analysis::shards::given::Demand;
use analysis::shards::overview::Waits;
use analysis::shards::worker::{Action, Answer, Call, End, Event, Given, Rank, Worker};
use analysis::shards::{Claim, names};
use base::fault::{Class, Fault};
use base::units::Tick;
use mover::io::clock;
use mover::pump::watch::Watch;

/// A worker's process around the decisions.
struct Process {
    storage: Storage,
    events: Events,
    /// As it was started.
    name: String,
    copy: Option<ShardCopy>,
    /// What the last copy has come to, and of which claim it was: it is shown until that is over.
    copied: Option<(Claim, u64)>,
    /// Why it is not known what the copy has staged.
    unknown: Option<Fault>,
    tell: Sender<Told>,
    told: Receiver<Told>,
    /// Committed in shards before the one under way.
    before: (u64, u64, u64),
    waits: Waits,
    does: WorkerDoes,
    last_trouble: String,
    pace: Arc<Pace>,
    /// The last claim that its log says it has.
    claimed: Option<Claim>,
    began: Tick,
}

/// Works on the job in a folder until no shard is left, or `watch` is stopped.
pub fn work(
    folder: JobFolder,
    name: &str,
    ssh: Option<&[String]>,
    watch: &Watch,
) -> Result<(), Fault> {
    let mut destination = Destination::of(&folder, name, ssh);
    let mut source = Source::of(&folder, name, ssh);
    folder.check_shared(&mut destination, &mut source)?;
    let me = format!("{name}-{}", random_hex(4)?);
    let times = folder.manifest.times;
    let rank = Rank::new(name, folder.manifest.workers);
    let share = folder.manifest.copying.bytes_per_second;
    let (tell, told) = mpsc::channel();
    let mut process = Process {
        events: Events::open(&folder, &me),
        storage: Storage::new(folder, (source, destination), &me),
        name: name.to_string(),
        copy: None,
        copied: None,
        unknown: None,
        tell,
        told,
        before: (0, 0, 0),
        waits: Waits::default(),
        does: WorkerDoes::Claiming,
        last_trouble: String::new(),
        pace: Arc::new(Pace::new(share)),
        claimed: None,
        began: clock::now(),
    };
    process.events.note("begins", None, &process.storage.host.clone());
    process.tell_far();
    let mut worker = Worker::new(&me, rank, times, clock::now());
    let mut event = Event::Woke;
    let mut is_stopped = false;
    let mut beat = 0;
    let end = loop {
        match worker.step(clock::now(), event) {
            Action::Exit(end) => break end,
            Action::Wait(until) => {
                event = match watch.stopping() && !is_stopped {
                    true => {
                        is_stopped = true;
                        Event::Stop
                    }
                    false => process.wait(until),
                };
            }
            Action::Call(call) => {
                if let Call::Beat(number) = call {
                    beat = number;
                }
                // A worker that never waits is told while a call is under way.
                if watch.stopping() && !is_stopped {
                    is_stopped = true;
                    worker.step(clock::now(), Event::Stop);
                }
                event = Event::Answer(process.carry_out(&call, worker.claim()));
            }
        }
    };
    process.end(beat + 1, end)
}

impl Process {
    /// What the copy says next, or nothing until then.
    fn wait(&mut self, until: Tick) -> Event {
        let now = clock::now();
        let wait = Duration::from(until.since(now)).min(LOOK_EVERY);
        let began = now;
        let heard = self.told.recv_timeout(wait);
        let waited_s = clock::now().since(began).seconds();
        match self.does {
            WorkerDoes::Copying => self.waits.copying_s += waited_s,
            _ => self.waits.idle_s += waited_s,
        }
        match heard {
            Ok(told) => self.hear(told),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Event::Woke,
        }
    }

    /// Takes all that has been said until now, so that many files are noted together.
    fn hear(&mut self, first: Told) -> Event {
        let mut staged = Vec::new();
        let mut next = Some(first);
        while let Some(told) = next {
            match told {
                Told::Staged { item, bytes, digest, copied_by } => {
                    self.keep_staged(item, bytes, digest, copied_by);
                    staged.push(item);
                }
                Told::Unsaid { items, copied_by } => {
                    staged.extend(self.keep_unsaid(&items, copied_by));
                }
                Told::LostHost(host, fault) => {
                    if let Some(hosts) = self.storage.hosts() {
                        hosts.leave_host(&host, &fault);
                    }
                    self.tell_far();
                }
                Told::Failed { item, fault } => self.keep_failed(item, &fault),
                Told::Warning(text) => {
                    let claim = self.claim();
                    self.events.note("warns", claim, &text);
                }
                Told::Ended(ended) if staged.is_empty() => return self.ended(ended),
                // What was staged is told first.
                ended @ Told::Ended(_) => {
                    let _ = self.tell.send(ended);
                    break;
                }
            }
            next = self.told.try_recv().ok();
        }
        match staged.is_empty() {
            true => Event::Woke,
            false => Event::Staged(staged),
        }
    }

    fn ended(&mut self, ended: Result<Waits, Fault>) -> Event {
        let claim = self.claim();
        let bytes = self.copy.take().map_or(0, |copy| copy.bytes_done());
        self.copied = claim.map(|claim| (claim, bytes));
        match self.unknown.take().map_or(ended, Err) {
            Ok(waits) => {
                if let Some(work) = &mut self.storage.work {
                    work.waits = waits;
                }
                self.waits.source_s += waits.source_s;
                self.waits.cpu_s += waits.cpu_s;
                self.waits.destination_s += waits.destination_s;
                Event::CopyEnded(None)
            }
            Err(fault) => {
                // The advice to run a copy again is not for a worker.
                let text = match fault.class {
                    Class::Interrupted => "it was asked to stop".to_string(),
                    _ => fault.text,
                };
                self.events.note("copy ends", claim, &text);
                self.last_trouble = text;
                Event::CopyEnded(Some(fault.class))
            }
        }
    }

    fn keep_staged(
        &mut self,
        item: u64,
        bytes: u64,
        digest: Option<String>,
        copied_by: Option<usize>,
    ) {
        if let Some(work) = &mut self.storage.work {
            let name = work.names.get(item as usize).map(|name| text_of(name)).unwrap_or_default();
            let committed = Committed { name, bytes, digest };
            work.staged.insert(item, Staged { committed, copied_by });
        }
    }

    /// Those of which the copy said nothing, and that are there all the same.
    fn keep_unsaid(&mut self, items: &[u64], copied_by: Option<usize>) -> Vec<u64> {
        let found = self.storage.staged_of(items, copied_by);
        let mut staged = Vec::new();
        for item in items {
            match &found {
                Ok(found) if found.contains(item) => {
                    self.keep_staged(*item, 0, None, copied_by);
                    staged.push(*item);
                }
                Ok(_) => self.keep_failed(*item, &self.not_copied(*item)),
                Err(_) => {}
            }
        }
        // Whether they are there is not known: this attempt does not finish the shard.
        self.unknown = found.err();
        staged
    }

    fn not_copied(&self, item: u64) -> Fault {
        let name = self.storage.work.as_ref().and_then(|work| work.names.get(item as usize));
        let shown = name.map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default();
        let text = format!("'{shown}' was not copied, as it is of no kind that is");
        Fault::new(Class::SomeFailed, text)
    }

    /// Notes which far host is used, and which cannot be.
    fn tell_far(&mut self) {
        let claim = self.claim();
        let news = self.storage.hosts().map(Hosts::news).unwrap_or_default();
        for one in news {
            match one {
                News::LoggedIn(host) => self.events.note("logs in", claim, &host),
                News::Refused(host, why) => {
                    self.events.note("leaves", claim, &format!("{host}: {why}"));
                }
            }
        }
    }

    fn keep_failed(&mut self, item: u64, fault: &Fault) {
        let claim = self.claim();
        self.events.note("file fails", claim, &fault.text);
        if let Some(work) = &mut self.storage.work {
            let name = work.names.get(item as usize).map(|name| text_of(name)).unwrap_or_default();
            let (code, why) = (fault.class.exit_code(), fault.text.clone());
            work.failed.insert(item, Failed { name, code, why });
        }
    }

    fn claim(&self) -> Option<Claim> {
        self.storage.work.as_ref().map(|work| work.claim)
    }

    fn now_s(&self) -> f64 {
        clock::now().since(self.began).seconds()
    }

    fn carry_out(&mut self, call: &Call, claim: Option<Claim>) -> Answer {
        let began = clock::now();
        let answer = self.answer(call, claim);
        self.tell_far();
        let answer = self.storage.or_trouble(answer);
        if let (Answer::Trouble(_), Some(fault)) = (&answer, self.storage.trouble.take()) {
            self.events.note("fails", claim, &fault.text);
            self.last_trouble = fault.text;
        }
        self.tell_log(call, &answer);
        let took_s = clock::now().since(began).seconds();
        match call {
            Call::Intend(_) | Call::Link(_) | Call::Receipt(_) => self.waits.committing_s += took_s,
            _ => self.waits.claiming_s += took_s,
        }
        answer
    }

    fn answer(&mut self, call: &Call, claim: Option<Claim>) -> Result<Answer, Fault> {
        let now_s = self.now_s();
        let storage = &mut self.storage;
        match call {
            Call::Beat(number) => {
                let beat = self.beat(*number, None);
                self.storage.beat(&beat)
            }
            Call::Control => storage.control(),
            Call::ListOpen => {
                self.does = WorkerDoes::Claiming;
                storage.list_open()
            }
            Call::OpenReady => storage.open_ready(),
            Call::Count => storage.count(),
            Call::ListClaims => {
                self.does = WorkerDoes::Watching;
                storage.list_claims()
            }
            Call::ReadBeats(workers) => Ok(storage.read_beats(workers)),
            Call::Claim { shard, attempts } => storage.claim(*shard, *attempts),
            Call::IsMine(claim) => storage.is_mine(*claim),
            Call::IsDone(claim, gave) => storage.is_done(*claim, *gave),
            Call::ShowIdle => storage.show_idle(),
            Call::ShowBusy => storage.show_busy(),
            Call::CloseTurn(given) => storage.close_turn(*given),
            Call::LookAround(_) => self.look_around(),
            Call::SetAside(_, count) => {
                let aside = self.copy.as_ref().map(|copy| copy.set_aside(*count));
                Ok(Answer::SetAside(aside.unwrap_or_default()))
            }
            Call::Give(given, items) => storage.give(*given, items),
            Call::OpenGiven(given) => storage.open_given(*given),
            Call::Expire(held) => storage.expire(held),
            Call::Release(claim) => storage.release(*claim),
            Call::OpenLedger(claim) => storage.open_ledger(*claim, now_s),
            Call::Tombstone(claim) => storage.tombstone(*claim),
            Call::RemoveStaging(claim) => storage.remove_staging(*claim),
            Call::MakeStaging(claim) => storage.make_staging(*claim),
            Call::Survey(_) => storage.survey(),
            Call::StartCopy(claim) => Ok(self.start_copy(*claim)),
            Call::StopCopy => {
                self.copy.iter().for_each(ShardCopy::stop);
                Ok(Answer::Done)
            }
            Call::Intend(items) => storage.intend(items),
            Call::Link(_) if claim.is_none() => Ok(Answer::Gone),
            Call::Link(item) => storage.link(*item),
            Call::Receipt(_) => storage.receipt(now_s),
            Call::Finish(claim, gave) => storage.finish(*claim, *gave),
        }
    }

    fn look_around(&self) -> Result<Answer, Fault> {
        let Some(copy) = &self.copy else { return Ok(Answer::Demand(Demand::default())) };
        let staged = self.storage.work.as_ref().map_or(0, ShardWork::copied_files);
        let (unbegun, copying) = copy.unbegun();
        let waiting = self.storage.waiting()?;
        Ok(Answer::Demand(Demand { waiting, unbegun, staged, copying }))
    }

    fn start_copy(&mut self, claim: Claim) -> Answer {
        let attempt = names::of_attempt(claim);
        let place = self.storage.destination.place().clone();
        let far = self.storage.hosts().map(|hosts| hosts.tries());
        let copying = self.storage.folder.manifest.copying.clone();
        let Some(work) = &self.storage.work else { return Answer::Trouble(Class::Local) };
        self.does = WorkerDoes::Copying;
        let (source, items) = (work.source.clone(), work.left.clone());
        let shard = work.shard.clone();
        let digests = shard.whole.as_ref().map(|whole| self.storage.digests(whole));
        let root = self.storage.folder.manifest.sources.get(shard.source);
        let is_single = root.is_some_and(|root| root.only.is_some());
        let times = self.storage.folder.manifest.times;
        let pace = self.pace.clone();
        let order = ShardOrder {
            source,
            place,
            attempt,
            copying,
            items,
            shard,
            digests,
            is_single,
            times,
            pace,
            far,
        };
        self.copy = Some(ShardCopy::start(order, &self.tell));
        Answer::Done
    }

    /// What others may want to know of a call.
    fn tell_log(&mut self, call: &Call, answer: &Answer) {
        let (what, claim, why) = match (call, answer) {
            (Call::Claim { shard, attempts }, Answer::Moved) => {
                ("claims", Claim { shard: *shard, attempt: attempts + 1 }, String::new())
            }
            (Call::Expire(held), Answer::Moved) => {
                let lease_s = self.storage.folder.manifest.times.lease().seconds();
                let why = format!("{} showed no change for {lease_s} s", held.worker);
                ("takes away", held.claim, why)
            }
            (Call::Release(claim), Answer::Moved) => {
                ("releases", *claim, self.last_trouble.clone())
            }
            (Call::Tombstone(claim), Answer::Folder) => {
                ("fences", *claim, "its staging folder is removed".to_string())
            }
            (Call::IsMine(claim), Answer::Yes) if self.claimed != Some(*claim) => {
                ("claims", *claim, "the answer to its rename was lost".to_string())
            }
            // Who has never had it was only slower than another.
            (Call::IsMine(claim), Answer::No) if self.claimed == Some(*claim) => {
                ("has lost", *claim, "the claim has another name by now".to_string())
            }
            (Call::Give(Given { claim, part }, items), Answer::Done) => {
                let count = items.len();
                let why = format!("{count} files that it has not begun, as shard {part}");
                ("gives away", *claim, why)
            }
            (Call::Finish(claim, _), Answer::Moved) => {
                if let Some(work) = &self.storage.work {
                    let (files, bytes, failed) = work.counts();
                    self.before.0 += files;
                    self.before.1 += bytes;
                    self.before.2 += failed;
                }
                self.storage.work = None;
                ("finishes", *claim, String::new())
            }
            _ => return,
        };
        if what == "claims" {
            self.claimed = Some(claim);
        }
        self.events.note(what, Some(claim), &why);
    }

    fn beat(&self, number: u64, code: Option<u8>) -> Beat {
        let (files, bytes, failed) =
            self.storage.work.as_ref().map_or((0, 0, 0), |work| work.counts());
        let claim = self.claim();
        let copied = self.copied.filter(|(of, _)| Some(*of) == claim).map_or(0, |(_, bytes)| bytes);
        let moved = self.storage.work.as_ref().map_or(0, |work| work.moved_bytes);
        let beat = Beat {
            beat: number,
            name: self.name.clone(),
            host: self.storage.host.clone(),
            far: self.storage.far_host().map(str::to_string),
            pid: std::process::id(),
            state: if code.is_some() { WorkerDoes::Ended } else { self.does },
            shard: claim.map(|claim| claim.shard),
            files: self.before.0 + files,
            bytes: self.before.1 + bytes,
            shard_files: files,
            shard_bytes: self.copy.as_ref().map_or(copied, ShardCopy::bytes_done),
            unfinished_bytes: 0,
            failed: self.before.2 + failed,
            seconds: self.now_s(),
            waits: self.waits,
            code,
        };
        // What is put together is no bytes of its own.
        let is_whole = self.storage.work.as_ref().is_some_and(|work| work.shard.whole.is_some());
        let unfinished_bytes = match is_whole {
            true => 0,
            false => beat.shard_bytes.saturating_sub(moved),
        };
        Beat { unfinished_bytes, ..beat }
    }

    fn end(mut self, beat: u64, end: End) -> Result<(), Fault> {
        let (what, result) = match end {
            End::Done => ("ends", Ok(())),
            End::Stopped => ("is stopped", Err(Fault::new(Class::Interrupted, STOPPED))),
            End::Failed(class) => (GIVES_UP, Err(Fault::new(class, self.last_trouble.clone()))),
        };
        let code = result.as_ref().err().map_or(0, |fault: &Fault| fault.class.exit_code());
        let last = self.beat(beat, Some(code));
        let _ = self.storage.beat(&last);
        let _ = self.storage.show_busy();
        self.events.note(what, None, result.as_ref().err().map_or("", |fault| &fault.text));
        result
    }
}

const STOPPED: &str = "it was asked to, and holds nothing any more";
/// How often a signal is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);
