//! The coordinator of a job: it plans, has workers started, follows them, starts lost ones again,
//! and finishes. Workers do not need it: one that is killed is replaced by `spread resume`.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::destination::{Destination, Reply, Step};
use super::ending::{Totals, finish_folders, leave_destination, merge_receipts};
use super::events::{Events, GIVES_UP, last_note};
use super::folder::{JobFolder, Part};
use super::launcher::{End, Launcher, Seen, WorkerCommand, WorkerState};
use super::planning::{Planned, make_plan};
use super::records::{Beat, Control};
use super::view::{Look, View};
use analysis::shards::attention::SILENT;
use analysis::shards::lease::Observer;
use analysis::shards::overview::{JobState, Overview};
use analysis::shards::plan::Cutting;
use analysis::shards::restarts::{Decision, Ended, Restarts};
use base::fault::{Class, Fault};
use base::units::{Bytes, Nanos, Tick};
use mover::io::clock;
use mover::pump::watch::Watch;

/// What a job needs besides its folder.
#[derive(Debug)]
pub struct RunOrder {
    /// The program, on the nodes.
    pub program: PathBuf,
    pub cutting: Cutting,
    /// Shards of an earlier coordinator, by the hashes of their names; the plan is made anew.
    pub earlier: Option<Earlier>,
    /// The plan is complete.
    pub is_planned: bool,
    /// The command of ssh, for far hosts.
    pub ssh: Option<Vec<String>>,
    /// The destination, where the job was begun just now: its login is of use at the end.
    pub destination: Mutex<Option<Destination>>,
    /// Whether what stops the watch is for the command alone: its workers go on.
    pub leaves: fn() -> bool,
}

/// What an interrupted plan has left.
#[derive(Debug)]
pub struct Earlier {
    pub names: HashSet<u128>,
    /// How many shards it has, and the first number that is free.
    pub count: u32,
    pub next: u32,
    pub predicted_s: f64,
}

/// What a coordinator tells while it runs.
#[derive(Debug)]
pub enum Told<'a> {
    Progress(&'a Overview),
    Planned(&'a Planned),
    Warning(String),
}

/// Runs a job to its end. `tell` hears of it a few times a second.
pub fn run(
    folder: &JobFolder,
    order: &RunOrder,
    launcher: &mut dyn Launcher,
    watch: &Arc<Watch>,
    tell: &mut dyn FnMut(Told<'_>),
) -> Result<Totals, Fault> {
    let mut coordinator = Coordinator {
        folder,
        order,
        launcher,
        events: Events::open(folder, "coordinator"),
        view: View::default(),
        restarts: Restarts::default(),
        left: BTreeMap::new(),
        adopted: BTreeSet::new(),
        observer: Observer::new(folder.manifest.times),
        next_worker: 0,
        followed: BTreeSet::new(),
        queue: QueueLook::default(),
        silent: Silent::default(),
        stops: None,
        unfinished_bytes: 0,
        began: clock::now(),
    };
    coordinator.events.note("coordinates", None, &super::folder::hostname());
    folder.set_control(Control::default())?;
    let ran = thread::scope(|scope| {
        let (planned_in, planned) = mpsc::channel();
        let plan_watch = watch.clone();
        if !order.is_planned {
            scope.spawn(move || planned_in.send(make_plan(folder, order, &plan_watch)));
        }
        let ran = coordinator.follow(watch, &planned, tell);
        if ran.is_err() {
            watch.stop(); // the plan too
        }
        ran
    });
    match ran {
        Ok(()) => coordinator.finish(),
        Err(fault) => {
            coordinator.events.note("ends", None, &fault.text);
            Err(fault)
        }
    }
}

struct Coordinator<'a> {
    folder: &'a JobFolder,
    order: &'a RunOrder,
    launcher: &'a mut dyn Launcher,
    events: Events,
    view: View,
    restarts: Restarts,
    /// Workers that are not started again, and how they ended.
    left: BTreeMap<String, End>,
    /// Processes that an earlier coordinator has started, and that show themselves still.
    adopted: BTreeSet<String>,
    observer: Observer,
    next_worker: usize,
    /// Workers of an earlier coordinator that the launcher follows: their names are taken.
    followed: BTreeSet<String>,
    queue: QueueLook,
    silent: Silent,
    /// Since when all workers are asked to stop, and why.
    stops: Option<(Tick, Fault)>,
    unfinished_bytes: u64,
    began: Tick,
}

/// What the queue has said at the last look.
#[derive(Debug, Default)]
struct QueueLook {
    at: Option<Tick>,
    /// Workers that run for the queue, and that have not shown themselves.
    unshown: BTreeSet<String>,
    told: BTreeSet<String>,
}

/// What is known of workers that show themselves no more.
#[derive(Debug, Default)]
struct Silent {
    /// The beats that each was seen with first.
    first: BTreeMap<String, u64>,
    /// Processes that have ended for the launcher.
    ended: BTreeSet<String>,
    told: BTreeSet<String>,
}

impl Coordinator<'_> {
    fn follow(
        &mut self,
        watch: &Watch,
        planned: &mpsc::Receiver<Result<Planned, Fault>>,
        tell: &mut dyn FnMut(Told<'_>),
    ) -> Result<(), Fault> {
        self.start(tell)?;
        loop {
            match planned.try_recv() {
                Ok(Ok(planned)) => {
                    let text = format!("{} files in {} shards", planned.files, planned.shards);
                    self.events.note("has planned", None, &text);
                    tell(Told::Planned(&planned));
                }
                // The watch has ended it: what follows from that comes next.
                Ok(Err(_)) if watch.stopping() => {}
                Ok(Err(fault)) => self.stop(fault)?,
                Err(_) => {}
            }
            if watch.stopping() {
                match (self.order.leaves)() {
                    true => return Err(self.leave()?),
                    false => {
                        self.tell_unfinished(tell);
                        self.stop(Fault::interrupted())?;
                    }
                }
            }
            self.ask_queue();
            let began = clock::now();
            let look = self.view.look(self.folder)?;
            self.warn_of_unshown(&look, tell);
            self.warn_of_silent(&look, tell);
            let took = Duration::from(clock::now().since(began));
            match look.overview.state {
                JobState::Cancelled | JobState::GivenUp => self.stop(Fault::interrupted())?,
                JobState::Done => return Ok(()),
                JobState::Planning | JobState::Running => {}
            }
            self.unfinished_bytes = look.overview.unfinished_bytes;
            let running = self.tend(&look, tell)?;
            tell(Told::Progress(&look.overview));
            if let Some((since, fault)) = &self.stops {
                let is_long = clock::now().since(*since) > STOPS_WITHIN;
                if running == 0 || is_long {
                    return Err(fault.clone());
                }
            } else if running == 0 && !self.is_done()? {
                return Err(self.nobody_left()?);
            }
            // A large job takes no more than a twentieth of this thread; the end of a short one is
            // seen soon.
            let since = Duration::from(clock::now().since(self.began));
            thread::sleep((since / 20).clamp(ENDS_EVERY, LOOK_EVERY).max(took * 19));
        }
    }

    /// As many workers as are wanted, less those of an earlier coordinator that are there still, or
    /// wait in a queue.
    fn start(&mut self, tell: &mut dyn FnMut(Told<'_>)) -> Result<(), Fault> {
        let notes = self.folder.notes();
        if !notes.is_empty() {
            self.launcher.adopt(&notes)?;
            self.followed = self.followed()?;
        }
        let processes: BTreeSet<String> =
            self.followed.iter().map(|name| self.launcher.process_name(name)).collect();
        self.adopted = self.alive_already(&processes)?;
        let there = self.followed.len() + self.adopted.len();
        if there > 0 {
            let text = format!(
                "it follows {there} workers of this job, which run already or wait in the queue"
            );
            tell(Told::Warning(text));
        }
        let missing = self.folder.manifest.workers.saturating_sub(there);
        let commands: Vec<WorkerCommand> = (0..missing).map(|_| self.next_command()).collect();
        self.launcher.start(&commands).map_err(|fault| self.not_started(fault))?;
        self.folder.set_notes(&self.launcher.notes())
    }

    /// What is there, and has the destination, although no worker was started.
    fn not_started(&self, fault: Fault) -> Fault {
        let job = self.folder.path().display();
        let text = format!(
            "{}; the job folder is kept: 'datapump spread resume {job}' tries again, 'datapump \
             spread cancel --forget {job}' gives it up",
            fault.text
        );
        Fault { text, ..fault }
    }

    /// Workers that the launcher has found again. What ends just now is waited for: it may come
    /// back, or not.
    fn followed(&mut self) -> Result<BTreeSet<String>, Fault> {
        let until = clock::now().after(ENDS_WITHIN);
        loop {
            let seen = self.launcher.look()?;
            let is_unsure = |seen: &Seen| matches!(seen.state, WorkerState::Unknown(_));
            if !seen.iter().any(is_unsure) || clock::now() > until {
                let is_there = |state: &WorkerState| {
                    !matches!(state, WorkerState::Ended(_) | WorkerState::Unknown(_))
                };
                let there = seen.into_iter().filter(|seen| is_there(&seen.state));
                return Ok(there.map(|seen| seen.name).collect());
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Workers that show themselves, but for processes that are known: only a job that was begun
    /// before has any.
    fn alive_already(&self, known: &BTreeSet<String>) -> Result<BTreeSet<String>, Fault> {
        let read = || -> Result<BTreeMap<String, u64>, Fault> {
            let names = self.folder.names(Part::Workers)?.into_iter();
            let beat = |name: String| {
                let path = self.folder.file(Part::Workers, &name);
                let beat: Beat = super::folder::read_json(&path).ok()?;
                let is_other = beat.code.is_none() && !known.contains(&beat.name);
                is_other.then_some((name, beat.beat))
            };
            Ok(names.filter_map(beat).collect())
        };
        let before = read()?;
        if before.is_empty() {
            return Ok(BTreeSet::new());
        }
        thread::sleep(Duration::from(self.folder.manifest.times.beat()) * 2);
        let mut after = read()?;
        after.retain(|name, beat| before.get(name) != Some(beat));
        Ok(after.into_keys().collect())
    }

    /// The next name that no worker has.
    fn next_command(&mut self) -> WorkerCommand {
        loop {
            let name = self.launcher.worker_name(self.next_worker);
            self.next_worker += 1;
            if !self.followed.contains(&name) {
                return self.command(name);
            }
        }
    }

    /// What the queue says, at most once each lease.
    fn ask_queue(&mut self) {
        let now = clock::now();
        let lease = self.folder.manifest.times.lease();
        if self.stops.is_none() && self.queue.at.is_none_or(|at| now.since(at) > lease) {
            self.queue.at = Some(now);
            // A queue that does not answer is asked again; workers do not need it.
            self.view.queue = self.launcher.queue().unwrap_or_default();
            self.view.is_queue_new = true;
        }
    }

    /// Names a worker once that runs and writes nothing: at two looks at the queue, as it may have
    /// ended just now.
    fn warn_of_unshown(&mut self, look: &Look, tell: &mut dyn FnMut(Told<'_>)) {
        if !std::mem::take(&mut self.view.is_queue_new) {
            return;
        }
        let unshown: BTreeSet<String> = look.overview.unshown().map(|of| of.name.clone()).collect();
        for name in unshown.intersection(&self.queue.unshown) {
            if self.queue.told.insert(name.clone()) {
                let text = look.overview.unshown_text(name);
                self.events.note("misses", None, &text);
                tell(Told::Warning(text));
            }
        }
        self.queue.unshown = unshown;
    }

    /// Names a worker once that has shown itself here, shows itself no more, and has not ended for
    /// the launcher, which may learn of a dead node late.
    fn warn_of_silent(&mut self, look: &Look, tell: &mut dyn FnMut(Told<'_>)) {
        for (name, beat) in &look.beats {
            self.silent.first.entry(name.clone()).or_insert(beat.beat);
        }
        for worker in look.overview.workers.iter().filter(|worker| worker.state == SILENT) {
            let beat = look.beats.get(&worker.name).map(|beat| beat.beat);
            let was_here = beat > self.silent.first.get(&worker.name).copied();
            let has_ended = self.silent.ended.contains(&worker.started_as);
            if was_here && !has_ended && self.silent.told.insert(worker.name.clone()) {
                let text = look.overview.silent_text(worker);
                self.events.note("misses", None, &text);
                tell(Told::Warning(text));
            }
        }
    }

    fn is_done(&mut self) -> Result<bool, Fault> {
        Ok(self.view.look(self.folder)?.overview.state == JobState::Done)
    }

    fn command(&self, name: String) -> WorkerCommand {
        let (program, job_folder) = (self.order.program.clone(), self.folder.path().to_path_buf());
        WorkerCommand { name, program, job_folder }
    }

    /// Starts again who was lost. Returns how many workers run, or will.
    fn tend(&mut self, look: &Look, tell: &mut dyn FnMut(Told<'_>)) -> Result<usize, Fault> {
        let mut latest: BTreeMap<String, WorkerState> = BTreeMap::new();
        for seen in self.launcher.look()? {
            latest.insert(seen.name, seen.state);
        }
        let mut again = self.instead_of_adopted(look);
        let mut running = again.len() + self.adopted.len();
        for (name, state) in latest {
            let end = match state {
                WorkerState::Ended(end) => end,
                _ => {
                    running += 1;
                    continue;
                }
            };
            self.silent.ended.insert(self.launcher.process_name(&name));
            if self.stops.is_some() || self.left.contains_key(&name) {
                self.left.insert(name, end);
                continue;
            }
            let (done, workers) = (look.overview.shards_done, self.folder.manifest.workers);
            match self.restarts.decide(ended(&end), done, workers) {
                Decision::StartAgain => {
                    let text = format!("{name} {}: it is started again", said(&end));
                    self.events.note("starts again", None, &text);
                    tell(Told::Warning(text));
                    again.push(self.command(name));
                    running += 1;
                }
                decision => {
                    if let Some(what) = left_because(decision) {
                        let process = self.launcher.process_name(&name);
                        let why = self.last_words(look, &process);
                        let text =
                            format!("{process} {}{why}: it is not started again", said(&end));
                        self.events.note(what, None, &text);
                        tell(Told::Warning(text));
                    }
                    self.left.insert(name, end);
                }
            }
        }
        if !again.is_empty() {
            self.launcher.start(&again)?;
            self.folder.set_notes(&self.launcher.notes())?;
        }
        Ok(running)
    }

    /// Workers for those of an earlier coordinator that are gone.
    fn instead_of_adopted(&mut self, look: &Look) -> Vec<WorkerCommand> {
        let now = clock::now();
        let mut lost = 0;
        for name in self.adopted.clone() {
            let beat = look.beats.get(&name);
            self.observer.note(&name, beat.map(|beat| beat.beat), now);
            let code = beat.and_then(|beat| beat.code);
            if code.is_some() || self.observer.has_expired(&name, now) {
                self.adopted.remove(&name);
                lost += usize::from(code != Some(0) && self.stops.is_none());
            }
        }
        (0..lost).map(|_| self.next_command()).collect()
    }

    fn stop(&mut self, why: Fault) -> Result<(), Fault> {
        if self.stops.is_none() {
            self.stops = Some((clock::now(), why));
            self.folder.set_control(Control::cancelled())?;
            self.launcher.cancel()?;
        }
        Ok(())
    }

    fn tell_unfinished(&self, tell: &mut dyn FnMut(Told<'_>)) {
        if self.stops.is_none() && self.unfinished_bytes > 0 {
            let bytes = Bytes(self.unfinished_bytes);
            let text = format!("stopping: {bytes} of files that are not complete begin anew");
            tell(Told::Warning(text));
        }
    }

    /// The job goes on without this command.
    fn leave(&self) -> Result<Fault, Fault> {
        let job = self.folder.path().display();
        let what = match self.folder.plan()?.planned {
            Some(_) => "",
            None => " with what was planned until now",
        };
        Ok(Fault::new(
            Class::Interrupted,
            format!(
                "this command was asked to end, and its workers go on{what}: 'datapump spread \
                 resume {job}' follows them and finishes the job, 'datapump spread cancel {job}' \
                 stops them"
            ),
        ))
    }

    /// All is done: workers see that, and end.
    fn wait_for_ends(&mut self) -> Result<(), Fault> {
        let until = clock::now().after(self.folder.manifest.times.lease());
        while clock::now() < until && self.stops.is_none() {
            let is_over = |state: &WorkerState| matches!(state, WorkerState::Ended(_));
            if self.launcher.look()?.iter().all(|seen| is_over(&seen.state)) {
                break;
            }
            thread::sleep(ENDS_EVERY);
        }
        Ok(())
    }

    /// Why the last worker that was started under this name gave up, where it has noted that.
    fn last_words(&self, look: &Look, process: &str) -> String {
        let of_it = look.overview.workers.iter().filter(|worker| worker.started_as == process);
        let notes = of_it.filter_map(|worker| last_note(self.folder, &worker.name));
        let last =
            notes.filter(|note| note.what == GIVES_UP).max_by(|a, b| a.time_utc.cmp(&b.time_utc));
        last.map_or(String::new(), |note| format!(" ({})", note.why))
    }

    fn nobody_left(&self) -> Result<Fault, Fault> {
        let job = self.folder.path().display();
        let is_cancelled = |end: &End| *end == End::Cancelled;
        if self.left.values().any(is_cancelled) {
            // As after `spread cancel`: the job says so to who looks later.
            self.folder.set_control(Control::cancelled())?;
            let text = format!(
                "its workers were cancelled in Slurm, and are not started again: 'datapump spread \
                 resume {job}' continues"
            );
            return Ok(Fault::new(Class::Interrupted, text));
        }
        let worst = self.left.values().filter_map(|end| match end {
            End::Code(code) => Class::from_code(*code),
            _ => None,
        });
        let class = worst.max().unwrap_or(Class::Local);
        let ends: Vec<String> =
            self.left.iter().map(|(name, end)| format!("{name} {}", said(end))).collect();
        Ok(Fault::new(
            class,
            format!(
                "no worker is left ({}): what is wrong is in '{job}/logs', and 'datapump spread \
                 resume {job}' continues",
                ends.join(", ")
            ),
        ))
    }

    /// By the login that the job was begun with, where that still stands.
    fn destination(&self) -> Destination {
        let kept = self.order.destination.lock().unwrap_or_else(PoisonError::into_inner).take();
        let stands = |at: &mut Destination| at.ask(&Step::IsTaken) == Ok(Reply::Yes);
        let kept = kept.and_then(|mut at| stands(&mut at).then_some(at));
        kept.unwrap_or_else(|| Destination::of(self.folder, "", self.order.ssh.as_deref()))
    }

    fn finish(mut self) -> Result<Totals, Fault> {
        let mut at = self.destination();
        let folders = finish_folders(self.folder, &mut at)?;
        let totals = merge_receipts(self.folder, folders)?;
        self.wait_for_ends()?;
        self.launcher.job_is_done();
        leave_destination(&mut at)?;
        self.events.note("has finished", None, &format!("{} files", totals.files));
        Ok(totals)
    }
}

fn ended(end: &End) -> Ended {
    match end {
        End::Code(code) => Ended::Code(*code),
        End::Signal(_) | End::Lost(_) => Ended::Lost,
        End::Cancelled => Ended::Cancelled,
    }
}

fn said(end: &End) -> String {
    match end {
        End::Code(code) => format!("ended with code {code}"),
        End::Signal(signal) => format!("was killed by signal {signal}"),
        End::Lost(why) => format!("was lost ({why})"),
        End::Cancelled => "was cancelled in Slurm".to_string(),
    }
}

/// What a log says of a worker that is left.
fn left_because(decision: Decision) -> Option<&'static str> {
    match decision {
        Decision::GiveUp => Some("gives up"),
        Decision::StayAway => Some("leaves"),
        Decision::StartAgain | Decision::Leave => None,
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(200);
const ENDS_EVERY: Duration = Duration::from_millis(20);
/// Slurm kills what does not end after 30 seconds.
const ENDS_WITHIN: Nanos = Nanos::from_millis(40_000);
/// Workers stop within five seconds; a queue may take longer to ask them.
const STOPS_WITHIN: Nanos = Nanos::from_millis(30_000);
