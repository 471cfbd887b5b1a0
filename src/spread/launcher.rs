//! How workers come to run: the one part that differs between one host, a list of hosts and Slurm.
//!
//! A launcher starts processes and says what became of them. It never says what is done: that only
//! the job folder does, and what a launcher does not know is asked again. So a launcher that
//! forgets a worker, or starts one too many, costs time and nothing else.

pub mod local;
pub mod slurm;
pub mod ssh;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use analysis::shards::overview::Queued;
use base::fault::Fault;

/// Starts workers, and follows them.
pub trait Launcher: std::fmt::Debug {
    /// Its name, as `--on` takes it: `local`.
    fn name(&self) -> &'static str;

    /// How many workers there are when nobody says.
    fn workers(&self) -> Result<usize, Fault>;

    /// The name of the worker of this number, from 0: the same each time.
    fn worker_name(&self, number: usize) -> String {
        format!("{}-{}", self.name(), number + 1)
    }

    /// Starts one worker for each command. A worker that could not be started is `Ended` at the
    /// next look; the error is one that all of them would meet.
    fn start(&mut self, workers: &[WorkerCommand]) -> Result<(), Fault>;

    /// What became of the workers that were started, those of an earlier coordinator too where the
    /// launcher can find them. Asked again each few seconds.
    fn look(&mut self) -> Result<Vec<Seen>, Fault>;

    /// Asks all workers to stop: each gets SIGTERM, leaves what it holds to others, and ends.
    fn cancel(&mut self) -> Result<(), Fault>;

    /// The job is done: takes out of a queue what still waits there to be started.
    fn job_is_done(&mut self) {}

    /// Lines that the coordinator keeps in the job folder for a later coordinator: the number of a
    /// queue's job, for instance. They are what `adopt` is given.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Takes over what an earlier coordinator has started.
    fn adopt(&mut self, _notes: &[String]) -> Result<(), Fault> {
        Ok(())
    }

    /// What the process of a worker was told to be called, where that is not the worker's name.
    fn process_name(&self, worker: &str) -> String {
        worker.to_string()
    }

    /// What a queue says of the workers that were started or adopted; nothing is changed by asking.
    fn queue(&self) -> Result<Vec<Queued>, Fault> {
        Ok(Vec::new())
    }
}

/// One worker: `datapump spread work JOB_FOLDER --worker NAME`. It needs nothing but the folder, in
/// which its source, its destination and its options are. It claims shards until none is left.
///
/// It ends with
/// - 0: no shard is left, for it or for others;
/// - 130: it was stopped (SIGTERM, SIGINT, or `spread cancel`), and holds nothing any more;
/// - 2: the folder is no job folder, others may write to it, or it is not shared;
/// - 5: its destination is full or read-only, which others may not see: not to be started again on
///   that node;
/// - 8: its version is not that of the job;
/// - another code of README's table: an error of this worker, which may be started again.
///
/// Files that fail for themselves (missing, forbidden, changed while read) end no worker: they
/// stand in the receipts, and the exit code of the coordinator says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCommand {
    /// Letters, digits and dashes. Two workers may have the same name, one after the other or at
    /// once: each process adds something of its own.
    pub name: String,
    /// Where the program is, on the nodes.
    pub program: PathBuf,
    pub job_folder: PathBuf,
}

impl WorkerCommand {
    /// The words of the command, the program first. A launcher that has an index for each worker
    /// (an array in a queue) writes the name itself.
    pub fn words(&self) -> Vec<OsString> {
        WorkerCommand::words_of(&self.program, &self.job_folder, &self.name)
    }

    pub fn words_of(program: &Path, job_folder: &Path, name: &str) -> Vec<OsString> {
        let words: [OsString; 6] = [
            program.into(),
            "spread".into(),
            "work".into(),
            job_folder.into(),
            "--worker".into(),
            name.into(),
        ];
        words.to_vec()
    }
}

/// A worker as its launcher sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub name: String,
    pub state: WorkerState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// It waits to be started; the text says for what.
    Pending(String),
    /// Where it runs, as far as that is known.
    Running(String),
    Ended(End),
    /// The launcher could not find out. Nothing follows from it.
    Unknown(String),
}

/// How a worker's process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Code(u8),
    Signal(u8),
    /// It never ran, or its node was lost; the text says what is known.
    Lost(String),
    /// A person, or the site, has taken it out of the queue.
    Cancelled,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Code(code) => write!(f, "exit code {code}"),
            End::Signal(signal) => write!(f, "signal {signal}"),
            End::Lost(why) => f.write_str(why),
            End::Cancelled => f.write_str("cancelled in Slurm"),
        }
    }
}
