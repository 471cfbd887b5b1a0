//! Workers on this host, as processes of their own.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::ssh::one_word;
use super::{End, Launcher, Seen, WorkerCommand, WorkerState};
use crate::spread::folder::{Part, hostname};
use base::fault::Fault;

/// `--on local[:N]`.
#[derive(Debug)]
pub struct Local {
    workers: usize,
    /// The command of ssh, for far hosts.
    ssh: Option<Vec<String>>,
    children: Vec<Started>,
}

/// A process that is a worker, or that reaches one.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) name: String,
    pub(super) host: String,
    child: Result<Child, String>,
    end: Option<End>,
}

impl Local {
    pub fn new(workers: usize, ssh: Option<Vec<String>>) -> Local {
        Local { workers, ssh, children: Vec::new() }
    }
}

impl Launcher for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn workers(&self) -> Result<usize, Fault> {
        Ok(self.workers)
    }

    fn start(&mut self, workers: &[WorkerCommand]) -> Result<(), Fault> {
        for worker in workers {
            let words = worker.words();
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            if let Some(ssh) = &self.ssh {
                command.arg("--ssh").arg(one_word(ssh));
            }
            self.children.push(Started::new(worker, hostname(), &mut command));
        }
        Ok(())
    }

    fn look(&mut self) -> Result<Vec<Seen>, Fault> {
        Ok(self.children.iter_mut().map(Started::seen).collect())
    }

    fn cancel(&mut self) -> Result<(), Fault> {
        self.children.iter_mut().for_each(Started::terminate);
        Ok(())
    }
}

impl Started {
    /// In a process group of its own: Ctrl-C is for the coordinator. What it says goes to a log.
    pub(super) fn new(worker: &WorkerCommand, host: String, command: &mut Command) -> Started {
        let log = worker.job_folder.join(Part::Logs.name()).join(&worker.name);
        let log = OpenOptions::new().append(true).create(true).mode(0o600).open(log);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        if let Ok(log) = log
            && let Ok(other) = log.try_clone()
        {
            command.stdout(log).stderr(other);
        }
        let child = command.spawn().map_err(|why| {
            format!("'{}' cannot be started: {why}", command.get_program().display())
        });
        Started { name: worker.name.clone(), host, child, end: None }
    }

    pub(super) fn seen(&mut self) -> Seen {
        let state = match (&mut self.child, &self.end) {
            (_, Some(end)) => WorkerState::Ended(end.clone()),
            (Err(why), None) => WorkerState::Ended(End::Lost(why.clone())),
            (Ok(child), None) => match child.try_wait() {
                Ok(None) => WorkerState::Running(self.host.clone()),
                Ok(Some(status)) => {
                    let end = end_of(status);
                    self.end = Some(end.clone());
                    WorkerState::Ended(end)
                }
                Err(why) => WorkerState::Unknown(why.to_string()),
            },
        };
        Seen { name: self.name.clone(), state }
    }

    pub(super) fn terminate(&mut self) {
        if let (Ok(child), None) = (&self.child, &self.end)
            && let Some(pid) = Pid::from_raw(child.id() as i32)
        {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

fn end_of(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Code(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, Some(signal)) => End::Signal(u8::try_from(signal).unwrap_or(u8::MAX)),
        (None, None) => End::Lost(status.to_string()),
    }
}
