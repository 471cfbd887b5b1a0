//! A set of namespaces with a first process, whose end is the end of every process in it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

#[derive(Debug)]
pub(crate) struct Boundary {
    /// What started it; its standard input is that of the first process, which ends when it closes.
    starter: Child,
    /// The first process, by its number outside.
    first: i32,
}

impl Boundary {
    /// One that belongs to the caller: network, mounts and processes.
    pub(crate) fn outermost() -> Result<Boundary, String> {
        let command = Command::new("unshare");
        Boundary::begin(command, &["--net"], ":")
    }

    /// A host within this one.
    pub(crate) fn host(&self, name: &str) -> Result<Boundary, String> {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.first.to_string(), "--pid", "--mount", "unshare"]);
        Boundary::begin(command, &["--net", "--uts"], &format!("hostname {name}"))
    }

    fn begin(mut command: Command, kinds: &[&str], first: &str) -> Result<Boundary, String> {
        command.args(kinds).args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["/bin/sh", "-c", &FIRST.replace("FIRST", first)]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut starter = command.spawn().map_err(|why| format!("{command:?}: {why}"))?;
        let mut line = String::new();
        let pipe = starter.stdout.take().expect("it is piped");
        BufReader::new(pipe).read_line(&mut line).map_err(|why| format!("{command:?}: {why}"))?;
        if line != "up\n" {
            let ended = starter.wait();
            return Err(format!("{command:?} did not start, as root? {ended:?}"));
        }
        let mut first = starter.id().cast_signed();
        // `nsenter` and `unshare` each have one child.
        while let Some(child) = child_of(first).filter(|_| !is_first(first)) {
            first = child;
        }
        Ok(Boundary { starter, first })
    }

    pub(crate) fn first(&self) -> i32 {
        self.first
    }

    /// The front of a command that runs among the processes here.
    pub(crate) fn entered(&self) -> Command {
        let mut command = Command::new("nsenter");
        let target = self.first.to_string();
        command.args(["--target", &target, "--net", "--uts", "--mount", "--pid", "--"]);
        command
    }

    /// The front of one that has only the network and the hostname of this one, and which is itself
    /// a child of the caller.
    pub(crate) fn entered_shallowly(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.first.to_string(), "--net", "--uts", "--"]);
        command
    }

    /// Runs a command line in here, and returns what it prints.
    pub(crate) fn run(&self, line: &str) -> Result<String, String> {
        let mut command = self.entered();
        command.args(line.split_whitespace());
        super::output(command)
    }

    /// The same for one that needs the caller's numbers of processes.
    pub(crate) fn run_in_network(&self, line: &str) -> Result<String, String> {
        let mut command = self.entered_shallowly();
        command.args(line.split_whitespace());
        super::output(command)
    }

    /// Kills every process in here, at once.
    pub(crate) fn kill(mut self) -> Result<(), String> {
        let first = Pid::from_raw(self.first).ok_or("no process")?;
        kill_process(first, Signal::KILL).map_err(|why| format!("kill {}: {why}", self.first))?;
        self.starter.wait().map(drop).map_err(|why| why.to_string())
    }
}

impl Drop for Boundary {
    fn drop(&mut self) {
        drop(self.starter.stdin.take());
        self.starter.wait().ok();
    }
}

/// True for the first process of a namespace of its own.
fn is_first(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let own = line.and_then(|line| line.split_whitespace().last().map(|last| last == "1"));
    own == Some(true)
}

fn child_of(parent: i32) -> Option<i32> {
    let pids = fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.into_iter().find(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // `pid (name) state ppid …`, and the name may contain anything.
        let fields = stat.rsplit_once(") ").map(|(_, fields)| fields.to_string());
        fields.and_then(|fields| fields.split(' ').nth(1)?.parse().ok()) == Some(parent)
    })
}

/// The first process: it waits for the end of its input, and for its orphans, which would remain as
/// zombies.
const FIRST: &str = "FIRST && exec 3<&0 && echo up && exec 1>&2 && { cat <&3 > /dev/null & } && \
                     exec 3<&- && wait $!";
