//! Runs Slurm's clients. Each has a time limit, as a client can wait for a controller for ever.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use base::fault::{Class, Fault};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Why a client has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Nothing is known: the controller cannot be reached, or not now. Ask again.
    NoAnswer(String),
    /// An answer: Slurm refuses, or does not know the job.
    Refused(String),
}

impl Trouble {
    pub(super) fn text(&self) -> &str {
        match self {
            Trouble::NoAnswer(text) | Trouble::Refused(text) => text,
        }
    }

    pub(super) fn fault(self, doing: &str) -> Fault {
        let class = match self {
            Trouble::NoAnswer(_) => Class::Unreachable,
            Trouble::Refused(_) => Class::Local,
        };
        Fault::new(class, format!("{doing}: {}", self.text()))
    }
}

/// Longer than Slurm's own time limit of a message and one repetition.
const LIMIT: Duration = Duration::from_secs(30);

/// Runs a client to its end; `input` is a script for `sbatch`.
pub(super) fn run(words: &[&str], input: &str) -> Result<String, Trouble> {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    run_within(command, input, LIMIT)
}

/// The same for `sbatch`, without the variables that it would take options from, or pass on to the
/// nodes: in what is kept of a job nothing must be a secret.
pub(super) fn submit(script: &str) -> Result<String, Trouble> {
    let mut command = Command::new("sbatch");
    command.arg("--parsable").env_clear();
    command.envs(
        std::env::vars_os()
            .filter(|(name, _)| name.to_str().is_some_and(|name| PASSED.contains(&name))),
    );
    run_within(command, script, LIMIT)
}

/// What `sbatch` needs to find Slurm, and where a user or a site says where jobs go.
const PASSED: &[&str] = &[
    "HOME",
    "LOGNAME",
    "PATH",
    "SBATCH_ACCOUNT",
    "SBATCH_CLUSTERS",
    "SBATCH_PARTITION",
    "SBATCH_QOS",
    "SBATCH_RESERVATION",
    "SLURM_CLUSTERS",
    "SLURM_CONF",
    "SLURM_CONF_SERVER",
    "USER",
];

fn run_within(mut command: Command, input: &str, limit: Duration) -> Result<String, Trouble> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|why| Trouble::Refused(format!("cannot run {program}: {why}; {ELSEWHERE}")))?;
    let handle = Pid::from_raw(child.id().cast_signed())
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let input = input.to_string();
    if let Some(mut pipe) = child.stdin.take() {
        // It may end without reading it: what it says then tells why.
        thread::spawn(move || pipe.write_all(input.as_bytes()).ok());
    }
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()).ok());
    match receiver.recv_timeout(limit) {
        Ok(Ok(output)) => answer(&program, &output),
        Ok(Err(why)) => Err(Trouble::NoAnswer(format!("{program}: {why}"))),
        Err(_) => {
            if let Some(handle) = handle {
                pidfd_send_signal(handle, Signal::KILL).ok();
            }
            Err(Trouble::NoAnswer(format!("{program} has no answer after {limit:?}")))
        }
    }
}

fn answer(program: &str, output: &Output) -> Result<String, Trouble> {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(trouble(program, &said)),
    }
}

/// Sorts what a failed client said. What is not known for certain is no answer.
fn trouble(program: &str, said: &str) -> Trouble {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = match said.contains("configuration source") {
        true => format!("{program} finds no configuration of Slurm on this host: {ELSEWHERE}"),
        false => format!("{program}: {}", lines.join("; ")),
    };
    match NO_ANSWER.iter().any(|words| said.contains(words)) || said.trim().is_empty() {
        true => Trouble::NoAnswer(text),
        false => Trouble::Refused(text),
    }
}

const ELSEWHERE: &str = "run it on a host of the cluster, such as a login node (SLURM_CONF may \
                         name the configuration); without Slurm 'datapump copy' copies from this \
                         host, and 'datapump spread --on ssh:HOSTFILE' by others";
const NO_ANSWER: &[&str] = &[
    "Unable to contact slurm controller",
    "Socket timed out",
    "Connection refused",
    "Connection timed out",
    "Zero Bytes were transmitted",
    "Unexpected message received",
    "Transport endpoint",
    "Protocol authentication error",
    "Authentication",
    "Slurm temporarily unable",
    "temporarily",
    "Insane message length",
    "Unable to establish",
    "Resource temporarily unavailable",
    "in standby mode",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failed_client_says_is_sorted() {
        for (said, is_answer) in [
            ("slurm_load_jobs error: Invalid job id specified", true),
            ("sbatch: error: Batch job submission failed: Invalid account", true),
            ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", false),
            ("slurm_load_jobs error: Socket timed out on send/recv operation", false),
            ("", false),
        ] {
            let found = matches!(trouble("squeue", said), Trouble::Refused(_));
            assert_eq!(found, is_answer, "{said}");
        }
        let lost = "sinfo: error: fetch_config: DNS SRV lookup failed\n\
                    sinfo: fatal: Could not establish a configuration source";
        let told = trouble("sinfo", lost).text().to_string();
        assert!(told.contains("no configuration") && !told.contains("DNS"), "{told}");
    }

    #[test]
    fn a_client_has_a_time_limit() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        let found = run_within(command, "", Duration::from_millis(1));
        assert!(matches!(found, Err(Trouble::NoAnswer(_))), "{found:?}");
        let found = run_within(Command::new("/nonexistent/squeue"), "", LIMIT);
        assert!(matches!(found, Err(Trouble::Refused(_))), "{found:?}");
        let found = run_within(Command::new("cat"), "a script", LIMIT);
        assert_eq!(found, Ok("a script".to_string()));
    }
}
