//! Workers as elements of a job array in Slurm. Here its clients are called; `script` writes what
//! `sbatch` gets, `queue` reads what the clients print, `decide` says what follows.

mod client;
mod decide;
mod queue;
pub mod script;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use analysis::shards::overview::Queued;
use base::fault::{Class, Fault};

use self::client::Trouble;
use self::decide::{Memory, Step};
use self::queue::{Detail, Listed};
pub use self::script::Request;
use super::{End, Launcher, Seen, WorkerCommand, WorkerState};

/// Starts workers through `sbatch`, and follows them through `squeue` and `scontrol`. It needs no
/// `sacct`.
#[derive(Debug, Default)]
pub struct Slurm {
    request: Request,
    /// Where each worker is, or was last, by its name.
    workers: BTreeMap<String, Assigned>,
    elements: BTreeMap<Element, Memory>,
    is_cancelled: bool,
}

/// An element of an array: the job, and its index.
type Element = (u64, u64);

#[derive(Clone, Copy, Debug)]
struct Assigned {
    element: Element,
    /// Started by an earlier coordinator, and not seen yet.
    is_adopted: bool,
}

impl Slurm {
    pub fn new(request: Request) -> Slurm {
        Slurm { request, ..Slurm::default() }
    }

    /// What is said of an element that Slurm does not know any more.
    pub const LOST: &str = decide::LOST;

    /// The script that one copy would be started by; its folder has its words.
    pub fn script_of_copy(&self, program: &Path, folder: &Path) -> Result<String, Fault> {
        script::copy(&self.request, program, folder)
    }

    /// Starts one copy.
    pub fn start_copy(&mut self, program: &Path, folder: &Path) -> Result<(), Fault> {
        let script = self.script_of_copy(program, folder)?;
        let job = submit(&script)?;
        let place = Assigned { element: (job, 0), is_adopted: false };
        self.workers.insert(COPY.to_string(), place);
        Ok(())
    }

    /// Follows a job by its note, whatever became of it.
    pub fn follow(&mut self, note: &str) -> Result<(), Fault> {
        self.adopt(&[note.to_string()])?;
        self.workers.values_mut().for_each(|place| place.is_adopted = false);
        Ok(())
    }

    /// The script that so many workers would be started by.
    pub fn script(&self, worker: &WorkerCommand, count: usize) -> Result<String, Fault> {
        let (_, cpus) = self.nodes().unwrap_or_default();
        self.script_of(worker, count, cpus)
    }

    fn script_of(
        &self,
        worker: &WorkerCommand,
        count: usize,
        cpus: Option<u32>,
    ) -> Result<String, Fault> {
        // More than half of a node, so that no two workers share one where nodes are alike: a
        // second worker on a node adds less than one on another.
        let cpus = cpus.map(|cpus| cpus / 2 + 1);
        let is_given =
            self.request.extra.iter().any(|line| OF_CPUS.iter().any(|name| line.contains(name)));
        let cpus = cpus.filter(|_| !is_given);
        let program = worker.program.as_path();
        let element = script::Element { program, job_folder: &worker.job_folder, cpus };
        script::array(&self.request, &element, count)
    }

    fn nodes(&self) -> Result<(usize, Option<u32>), Trouble> {
        let mut words = vec!["sinfo", "--noheader", "--format=%D|%c|%T"];
        let partition =
            self.request.partition.as_ref().map(|partition| format!("--partition={partition}"));
        words.extend(partition.as_deref());
        client::run(&words, "").map(|text| queue::nodes(&text))
    }

    /// A partition that is not there is refused before anything is made.
    fn partition_exists(&self) -> Result<(), Fault> {
        let Some(wanted) = &self.request.partition else { return Ok(()) };
        let listed = client::run(&["sinfo", "--all", "--noheader", "--format=%R"], "");
        let missing = listed.ok().and_then(|text| queue::missing_partition(&text, wanted));
        missing.map_or(Ok(()), |text| Err(Fault::usage(text)))
    }

    /// All elements, as one answer of the controller has them.
    fn listed(&self) -> Result<Vec<Listed>, Trouble> {
        let mut listed = Vec::new();
        let jobs: BTreeSet<u64> = self.workers.values().map(|place| place.element.0).collect();
        // One by one, as squeue fails for all jobs where it does not know one that is alone, and
        // by number only: a job may be moved to another partition, or belong to nobody it knows.
        for job in jobs {
            let job = format!("--jobs={job}");
            let format = format!("--format={}", queue::FORMAT);
            let words = ["squeue", "--noheader", "--array", "--states=all", &job, &format];
            match client::run(&words, "") {
                Ok(text) => listed.extend(queue::listed(&text)),
                Err(Trouble::Refused(text)) if text.contains(UNKNOWN_JOB) => {}
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(listed)
    }

    /// Looks at one element, and does what follows.
    fn tend(&mut self, element: Element, listed: Option<&Listed>) -> WorkerState {
        let memory = self.elements.entry(element).or_default();
        let Some(listed) = listed else { return decide::absent(memory) };
        let wants = decide::needs_detail(listed) && memory.ended.is_none();
        let detail = if wants { detail(element) } else { None };
        let before = memory.clone();
        let (step, said) = decide::element(listed, detail.as_ref(), memory);
        if self.is_cancelled {
            *memory = before;
            // What would be started again is not: it has ended.
            return match step {
                Step::Requeue => WorkerState::Ended(End::Cancelled),
                _ => said,
            };
        }
        match carry_out(step, element) {
            Ok(()) => said,
            Err(trouble) => {
                // It was not done, so it does not count, and is tried again at the next look.
                if matches!(trouble, Trouble::NoAnswer(_)) {
                    *memory = before;
                }
                WorkerState::Unknown(trouble.text().to_string())
            }
        }
    }
}

impl Launcher for Slurm {
    fn name(&self) -> &'static str {
        "slurm"
    }

    /// One on each node of the partition that can run something, unless a number was given.
    fn workers(&self) -> Result<usize, Fault> {
        self.partition_exists()?;
        if let Some(workers) = self.request.workers {
            return Ok(workers);
        }
        let (nodes, _) = self.nodes().map_err(|trouble| trouble.fault("looking for nodes"))?;
        match nodes {
            0 => Err(Fault::new(
                Class::Unreachable,
                "no node of the partition can run something now: see sinfo, or say --workers",
            )),
            nodes => Ok(nodes.min(WORKERS_MAX)),
        }
    }

    fn start(&mut self, workers: &[WorkerCommand]) -> Result<(), Fault> {
        let Some(first) = workers.first() else { return Ok(()) };
        let config = client::run(&["scontrol", "show", "config"], "")
            .map_err(|trouble| trouble.fault("asking Slurm for its limits"))?;
        let elements_max = queue::array_elements_max(&config).unwrap_or(1).max(1);
        let (_, cpus) = self.nodes().unwrap_or_default();
        make_logs(&first.job_folder.join(script::LOGS))?;
        for some in workers.chunks(elements_max) {
            let job = submit(&self.script_of(&some[0], some.len(), cpus)?)?;
            for (worker, index) in some.iter().zip(0..) {
                let place = Assigned { element: (job, index), is_adopted: false };
                self.workers.insert(worker.name.clone(), place);
            }
        }
        Ok(())
    }

    fn look(&mut self) -> Result<Vec<Seen>, Fault> {
        let listed = self.listed();
        let mut seen = Vec::new();
        for (name, place) in self.workers.clone() {
            let state = match &listed {
                Ok(listed) => {
                    let is_it = |listed: &&Listed| {
                        (listed.job, listed.element) == (place.element.0, Some(place.element.1))
                    };
                    self.tend(place.element, listed.iter().find(is_it))
                }
                Err(trouble) => WorkerState::Unknown(trouble.text().to_string()),
            };
            match state {
                // What ended before this coordinator began is not its business.
                WorkerState::Ended(_) if place.is_adopted => {
                    self.workers.remove(&name);
                }
                state => {
                    let is_known = !matches!(state, WorkerState::Unknown(_));
                    if let Some(place) = self.workers.get_mut(&name).filter(|_| is_known) {
                        place.is_adopted = false;
                    }
                    seen.push(Seen { name, state });
                }
            }
        }
        Ok(seen)
    }

    fn cancel(&mut self) -> Result<(), Fault> {
        self.is_cancelled = true;
        let jobs: BTreeSet<u64> = self.workers.values().map(|place| place.element.0).collect();
        for job in jobs {
            match client::run(&["scancel", &job.to_string()], "") {
                Ok(_) => {}
                Err(Trouble::Refused(text)) if text.contains(UNKNOWN_JOB) => {}
                Err(trouble) => return Err(trouble.fault("cancelling workers")),
            }
        }
        Ok(())
    }

    /// A worker whose node was lost waits to be started again, and would find nothing to do.
    fn job_is_done(&mut self) {
        // What fails here costs a start of a worker, and nothing else.
        self.cancel().ok();
    }

    /// `slurm 123 0 NAME`: job, element and worker; and what was asked of Slurm.
    fn notes(&self) -> Vec<String> {
        let line = |(name, place): (&String, &Assigned)| {
            let (job, element) = place.element;
            format!("slurm {job} {element} {name}")
        };
        let request = serde_json::to_string(&self.request).unwrap_or_default();
        let request = format!("request {request}");
        self.workers.iter().map(line).chain([request]).collect()
    }

    fn process_name(&self, worker: &str) -> String {
        let place = self.workers.get(worker);
        place.map_or_else(|| worker.to_string(), |place| script::process_name(place.element))
    }

    fn queue(&self) -> Result<Vec<Queued>, Fault> {
        let listed = self.listed().map_err(|trouble| trouble.fault("asking Slurm's queue"))?;
        let ours: BTreeSet<Element> = self.workers.values().map(|place| place.element).collect();
        let of = |listed: Listed| {
            let element = (listed.job, listed.element?);
            ours.contains(&element).then(|| queue::told(listed, script::process_name(element)))
        };
        Ok(listed.into_iter().filter_map(of).collect())
    }

    fn adopt(&mut self, notes: &[String]) -> Result<(), Fault> {
        for note in notes {
            let wrong = || Fault::usage(format!("'{note}' is no note of workers in Slurm"));
            if let Some(request) = note.strip_prefix("request ") {
                self.request = serde_json::from_str(request).map_err(|_| wrong())?;
                continue;
            }
            let words: Vec<&str> = note.split_whitespace().collect();
            let ["slurm", job, element, name] = words[..] else { return Err(wrong()) };
            let number = |word: &str| word.parse().map_err(|_| wrong());
            let place = Assigned { element: (number(job)?, number(element)?), is_adopted: true };
            self.workers.insert(name.to_string(), place);
        }
        Ok(())
    }
}

fn submit(script: &str) -> Result<u64, Fault> {
    let text = client::submit(script).map_err(|trouble| trouble.fault("submitting a job"))?;
    queue::submitted(&text)
        .ok_or_else(|| Fault::new(Class::Local, format!("sbatch names no job: '{}'", text.trim())))
}

fn detail((job, element): Element) -> Option<Detail> {
    let id = format!("{job}_{element}");
    let text = client::run(&["scontrol", "show", "job", "--oneliner", &id], "").ok()?;
    queue::detail(&text)
}

fn carry_out(step: Step, (job, element): Element) -> Result<(), Trouble> {
    let id = format!("{job}_{element}");
    let of_job = format!("JobId={id}");
    match step {
        Step::Nothing => return Ok(()),
        Step::StartNow => client::run(&["scontrol", "update", &of_job, "StartTime=now"], ""),
        Step::Release => client::run(&["scontrol", "release", &id], ""),
        Step::Requeue => client::run(&["scontrol", "requeue", &id], ""),
    }
    .map(drop)
}

fn make_logs(folder: &Path) -> Result<(), Fault> {
    // Slurm ends a job at once whose log it cannot open.
    fs::create_dir_all(folder).map_err(|why| {
        Fault::new(Class::Local, format!("cannot make '{}': {why}", folder.display()))
    })
}

const UNKNOWN_JOB: &str = "Invalid job id";
/// The name of the only worker of a submitted copy.
const COPY: &str = "copy";
/// Options that say how many CPUs a worker has.
const OF_CPUS: &[&str] = &["cpus-per-task", "exclusive", "ntasks-per-node", "nodes"];

/// As many as a simulation has shown the job folder to serve.
const WORKERS_MAX: usize = 1000;
