//! Starts the far side: the system's `ssh`, or a process on this host.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use crate::base::cpus::Cpus;
use crate::base::fault::{Class, Fault};
use crate::base::job::{Interrupts, Remote};

/// How the far side is started.
#[derive(Clone, Debug)]
pub enum Launch {
    Ssh {
        host: String,
        remote: Remote,
    },
    /// This very program, as another process on this host.
    Process {
        program: PathBuf,
        /// The CPUs that it is held to.
        cpus: Option<Cpus>,
    },
}

/// Whether somebody may be asked for a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    First,
    /// The connection was lost: a key or an agent must do.
    Again,
}

/// What makes ssh fail where it would ask, and give up where nobody answers.
const UNATTENDED: [&str; 4] = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=15"];

/// A far side that has been started.
#[derive(Debug)]
pub struct Launched {
    child: Child,
    what: String,
    host: Option<String>,
    program: String,
}

impl Launch {
    /// Starts the far side of a copy.
    pub fn start(&self, login: Login) -> Result<(Launched, ChildStdin, ChildStdout), Fault> {
        let cpus = match self {
            Launch::Ssh { remote, .. } => remote.cpus.as_ref(),
            Launch::Process { cpus, .. } => cpus.as_ref(),
        };
        let mut words = vec!["peer".to_string()];
        words.extend(cpus.map(|cpus| format!("--cpus={cpus}")));
        self.start_as(&words, login)
    }

    /// Starts this program there with these words, none of which a shell must be kept from.
    pub fn start_as(
        &self,
        words: &[String],
        login: Login,
    ) -> Result<(Launched, ChildStdin, ChildStdout), Fault> {
        let (mut command, launched_as) = self.command(words, login);
        let what = self.what();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            let fault = Fault::system(&format!("start '{what}'"), &error);
            Fault { class: Class::Unreachable, ..fault }
        })?;
        let stdin = child.stdin.take().expect("asked for");
        let stdout = child.stdout.take().expect("asked for");
        let host = match self {
            Launch::Ssh { host, .. } => Some(host.clone()),
            Launch::Process { .. } => None,
        };
        Ok((Launched { child, what, host, program: launched_as }, stdin, stdout))
    }

    /// The command as people know it.
    fn what(&self) -> String {
        match self {
            Launch::Process { program, .. } => program.display().to_string(),
            Launch::Ssh { remote, .. } => {
                let ssh = remote.ssh.as_ref().and_then(|words| words.first());
                ssh.map_or("ssh", String::as_str).to_string()
            }
        }
    }

    /// The command, and what the far program is called there.
    fn command(&self, words: &[String], login: Login) -> (Command, String) {
        match self {
            Launch::Process { program, .. } => {
                let mut command = Command::new(program);
                // What a terminal sends is for us; when we end, its streams tell it.
                command.args(words).process_group(0);
                (command, program.display().to_string())
            }
            Launch::Ssh { host, remote } => {
                let program = remote.datapump.clone().unwrap_or_else(|| "datapump".into());
                let (ssh, arguments) = match remote.ssh.as_deref() {
                    Some([ssh, arguments @ ..]) => (ssh.as_str(), arguments.to_vec()),
                    // No terminal, no X11, no escape character: the connection carries bytes.
                    _ => ("ssh", ["-T", "-x", "-e", "none"].map(String::from).to_vec()),
                };
                let mut command = program_of(ssh, remote.interrupts);
                if login == Login::Again && ssh.rsplit('/').next() == Some("ssh") {
                    command.args(UNATTENDED);
                }
                command.args(arguments);
                command.arg(host).arg(format!("{} {}", quoted(&program), words.join(" ")));
                (command, program)
            }
        }
    }
}

impl Launched {
    /// What the end of the far side means, when it ended before it said anything useful.
    pub fn explain(&mut self, fault: Fault) -> Fault {
        let Some(status) = self.wait(Duration::from_millis(500)) else { return fault };
        let host = self.host.as_deref().unwrap_or("this host");
        let unreachable = fault.class == Class::Unreachable;
        match status.code() {
            Some(126 | 127) => Fault::new(
                Class::Version,
                format!(
                    "there is no datapump at {host} ('{}' was not found there): install the same \
                     version, or name its path with --remote-datapump",
                    self.program
                ),
            ),
            Some(255) if unreachable && self.host.is_some() => Fault::new(
                Class::Unreachable,
                format!(
                    "cannot reach {host}: '{}' failed (its message is above); try '{} {host} true'",
                    self.what, self.what
                ),
            ),
            Some(code) if unreachable => Fault::new(
                Class::Unreachable,
                format!(
                    "the far side at {host} ended before it answered ('{}' with exit code \
                     {code}): {fault}",
                    self.what
                ),
            ),
            _ => fault,
        }
    }

    /// Waits for the far side to go; what does not go is ended.
    pub fn end(mut self) {
        if self.wait(Duration::from_millis(900)).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    fn wait(&mut self, at_most: Duration) -> Option<ExitStatus> {
        const BEAT: Duration = Duration::from_millis(2);
        let mut left = at_most;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) | Err(_) if left.is_zero() => return None,
                _ => {}
            }
            thread::sleep(BEAT);
            left = left.saturating_sub(BEAT);
        }
    }
}

/// What is ignored stays ignored in what a shell becomes. One that finds no such program ends as
/// ssh does that cannot connect.
fn program_of(ssh: &str, interrupts: Interrupts) -> Command {
    const KEPT: &str = "trap '' INT; command -v \"$0\" > /dev/null || \
                        { echo \"$0: not found\" >&2; exit 255; }; exec \"$0\" \"$@\"";
    match interrupts {
        Interrupts::Shared => Command::new(ssh),
        Interrupts::Kept => {
            let mut command = Command::new("sh");
            command.args(["-c", KEPT, ssh]);
            command
        }
    }
}

/// A word as every shell takes it literally; `~` at its front keeps its meaning.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+~".contains(c);
    match word.chars().all(plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// This program's own file.
pub fn own_program() -> Result<PathBuf, Fault> {
    std::env::current_exe()
        .map_err(|error: io::Error| Fault::system("find this program's file", &error))
}
