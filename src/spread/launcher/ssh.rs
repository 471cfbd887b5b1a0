//! Workers on a list of hosts that ssh reaches without a question.
//!
//! The connection only starts a worker, and says when it has ended: one that breaks leaves the
//! worker running, and it goes on. A worker is stopped by the job folder, not by its connection.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::Command;

use super::local::Started;
use super::{Launcher, Seen, WorkerCommand};
use base::fault::Fault;

/// `--on ssh:HOSTFILE`.
#[derive(Debug)]
pub struct Ssh {
    hosts: Vec<String>,
    /// The command of ssh, with its options.
    ssh: Vec<String>,
    started: Vec<Started>,
}

impl Ssh {
    /// Reads a list of hosts: `[USER@]HOST`, one a line; text after a # is a comment. A host that
    /// stands there twice gets two workers.
    pub fn read(list: &Path, ssh: Option<Vec<String>>) -> Result<Ssh, Fault> {
        let text = fs::read_to_string(list).map_err(|why| Fault::io("read", list, &why))?;
        let hosts = hosts(&text).map_err(|(line, why)| {
            Fault::usage(format!("'{}', line {line}: {why}", list.display()))
        })?;
        if hosts.is_empty() {
            let text = format!("'{}' names no host: write one a line", list.display());
            return Err(Fault::usage(text));
        }
        let ssh = ssh.unwrap_or_else(|| vec!["ssh".to_string()]);
        Ok(Ssh { hosts, ssh, started: Vec::new() })
    }

    /// The host of a worker, by its name.
    fn host(&self, name: &str) -> Option<&String> {
        (0..self.hosts.len()).find(|n| self.worker_name(*n) == name).map(|n| &self.hosts[n])
    }
}

impl Launcher for Ssh {
    fn name(&self) -> &'static str {
        "ssh"
    }

    fn workers(&self) -> Result<usize, Fault> {
        Ok(self.hosts.len())
    }

    fn start(&mut self, workers: &[WorkerCommand]) -> Result<(), Fault> {
        for worker in workers {
            let Some(host) = self.host(&worker.name).cloned() else { continue };
            let mut command = Command::new(&self.ssh[0]);
            command.args(&self.ssh[1..]).args(OPTIONS).arg(&host).arg("--");
            let words: Vec<Vec<u8>> =
                worker.words().iter().map(|word| quoted(word.as_bytes())).collect();
            command.arg(std::ffi::OsStr::from_bytes(&[b"exec ", &words.join(&b' ')[..]].concat()));
            self.started.push(Started::new(worker, host, &mut command));
        }
        Ok(())
    }

    fn look(&mut self) -> Result<Vec<Seen>, Fault> {
        Ok(self.started.iter_mut().map(Started::seen).collect())
    }

    /// The job folder has told them.
    fn cancel(&mut self) -> Result<(), Fault> {
        Ok(())
    }
}

fn hosts(text: &str) -> Result<Vec<String>, (usize, String)> {
    let mut hosts = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "@.-_:[]%".contains(c);
        if line.starts_with('-') || !line.chars().all(is_plain) {
            let why = format!("'{}' is no host: write [USER@]HOST", line.escape_debug());
            return Err((number + 1, why));
        }
        hosts.push(line.to_string());
    }
    Ok(hosts)
}

/// A command with its words as one word, as `--ssh` takes it.
pub(in crate::spread) fn one_word(words: &[String]) -> OsString {
    let words: Vec<Vec<u8>> = words.iter().map(|word| quoted(word.as_bytes())).collect();
    OsString::from_vec(words.join(&b' '))
}

/// A word as a shell takes it literally.
pub(super) fn quoted(word: &[u8]) -> Vec<u8> {
    let mut text = vec![b'\''];
    for byte in word {
        match byte {
            b'\'' => text.extend(b"'\\''"),
            byte => text.push(*byte),
        }
    }
    text.push(b'\'');
    text
}

/// It asks nothing, and sees a lost host within half a minute.
pub(in crate::spread) const OPTIONS: [&str; 6] =
    ["-o", "BatchMode=yes", "-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_hosts() {
        let list = "a\n# all\n me@b.example  # the fast one\n\n[::1]\n";
        assert_eq!(hosts(list).unwrap(), ["a", "me@b.example", "[::1]"]);
        for (list, line) in [("-oProxyCommand=x", 1), ("a\nb c", 2), ("a;b", 1), ("a\n\n$(b)", 3)] {
            assert_eq!(hosts(list).unwrap_err().0, line, "{list}");
        }
    }

    #[test]
    fn words_reach_the_far_shell_as_they_are() {
        for word in ["a b", "it's", "$(x)", "new\nline", ""] {
            let echo = [&b"printf %s "[..], &quoted(word.as_bytes())].concat();
            let script = std::ffi::OsStr::from_bytes(&echo);
            let said = Command::new("sh").arg("-c").arg(script).output().unwrap();
            assert_eq!(String::from_utf8(said.stdout).unwrap(), word);
        }
    }
}
