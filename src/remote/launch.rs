//! Starts the far side: the system's `ssh`, or a process on this host.

use std::io;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use crate::base::cpus::Cpus;
use crate::base::fault::{Class, Fault};
use crate::base::job::Remote;

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
        let what = command.get_program().to_string_lossy().into_owned();
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

    /// The command, and what the far program is called there.
    fn command(&self, words: &[String], login: Login) -> (Command, String) {
        match self {
            Launch::Process { program, .. } => {
                let mut command = Command::new(program);
                command.args(words);
                (command, program.display().to_string())
            }
            Launch::Ssh { host, remote } => {
                let program = remote.datapump.clone().unwrap_or_else(|| "datapump".into());
                let mut command = match remote.ssh.as_deref() {
                    Some([ssh, arguments @ ..]) => {
                        let mut command = Command::new(ssh);
                        if login == Login::Again && ssh.rsplit('/').next() == Some("ssh") {
                            command.args(UNATTENDED);
                        }
                        command.args(arguments);
                        command
                    }
                    _ => {
                        let mut command = Command::new("ssh");
                        // No terminal, no X11, no escape character: the connection carries bytes.
                        command.args(["-T", "-x", "-e", "none"]);
                        if login == Login::Again {
                            command.args(UNATTENDED);
                        }
                        command
                    }
                };
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
