//! Runs programs to their end, or fails the test.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use super::{PATIENCE, processes};

/// A program's output, and how it ended.
pub(crate) struct Ran {
    /// The exit code; 128 and the signal's number where a signal ended it, as a shell says it.
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ran {
    pub(crate) fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The events of `--json`, each of which must parse.
    pub(crate) fn events(&self) -> Vec<serde_json::Value> {
        let text = self.stdout_text();
        let event = |line: &str| {
            serde_json::from_str(line)
                .unwrap_or_else(|why| panic!("no JSON: {why}: {line}\n{self}"))
        };
        text.lines().map(event).collect()
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let out = String::from_utf8_lossy(&self.stdout[..self.stdout.len().min(4000)]);
        write!(f, "exit code {}\nstdout: {out}\nstderr: {}", self.code, self.stderr)
    }
}

/// A program that runs, with its output being read.
pub(crate) struct Running {
    pub child: Child,
    lines: Receiver<Vec<u8>>,
    stdout: Vec<u8>,
    stderr: Receiver<Vec<u8>>,
    words: String,
}

/// Runs a program with this input until it ends.
pub(crate) fn to_end(command: Command, input: &[u8]) -> Ran {
    let mut running = start(command);
    let mut stdin = running.child.stdin.take().unwrap();
    let input = input.to_vec();
    // A program may end without reading its input: that is no error.
    thread::spawn(move || stdin.write_all(&input).ok());
    running.end()
}

/// Starts a program; its standard input stays open until `child.stdin` is taken and dropped.
pub(crate) fn start(mut command: Command) -> Running {
    let words = format!("{command:?}");
    not_recorded(&mut command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|why| panic!("{words}: {why}"));
    let (line_in, lines) = mpsc::channel();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    thread::spawn(move || {
        loop {
            let mut line = Vec::new();
            match stdout.read_until(b'\n', &mut line) {
                Ok(count) if count > 0 && line_in.send(line).is_ok() => {}
                _ => return,
            }
        }
    });
    let (text_in, stderr) = mpsc::channel();
    let mut pipe = child.stderr.take().unwrap();
    thread::spawn(move || {
        let mut text = Vec::new();
        pipe.read_to_end(&mut text).ok();
        text_in.send(text).ok();
    });
    Running { child, lines, stdout: Vec::new(), stderr, words }
}

/// Tests do not use the user's store; a test of recording names its own.
pub(crate) fn not_recorded(command: &mut Command) {
    if !command.get_envs().any(|(name, _)| name == "DATAPUMP_RESULTS") {
        command.env("DATAPUMP_NO_RECORD", "1");
        // Nor do this machine's measurements change the output.
        command.env("DATAPUMP_RESULTS", "/nonexistent/results.db");
    }
    // Nor does the user's configuration.
    if !command.get_envs().any(|(name, _)| name == "XDG_CONFIG_HOME") {
        command.env("DATAPUMP_CONFIG", "none");
    }
}

impl Running {
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Reads its events up to one that reports moved bytes.
    pub(crate) fn wait_for_bytes(&mut self) {
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            let event: serde_json::Value = serde_json::from_slice(&line).unwrap_or_default();
            self.stdout.extend(line);
            if event["event"] == "progress" && event["bytes_done"].as_u64() > Some(0) {
                return;
            }
        }
        let ran = self.stop();
        panic!("{}: no bytes are moved\n{ran}", self.words);
    }

    /// Reads its events up to one of this name.
    pub(crate) fn wait_for(&mut self, name: &str) {
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            let event: serde_json::Value = serde_json::from_slice(&line).unwrap_or_default();
            self.stdout.extend(line);
            if event["event"] == name {
                return;
            }
        }
        let ran = self.stop();
        panic!("{}: no event {name}\n{ran}", self.words);
    }

    /// Waits for its next line; false at the end of its output.
    pub(crate) fn wait_for_any(&mut self) -> bool {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                self.stdout.extend(line);
                true
            }
            Err(_) => false,
        }
    }

    /// Kills it at once.
    pub(crate) fn kill(&mut self) {
        self.child.kill().ok();
    }

    /// Reads its lines up to one with this mark, and returns what follows the mark.
    pub(crate) fn wait_for_line(&mut self, mark: &str) -> String {
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            let text = String::from_utf8_lossy(&line).into_owned();
            self.stdout.extend(line);
            if let Some((_, behind)) = text.split_once(mark) {
                return behind.trim_end().to_string();
            }
        }
        let ran = self.stop();
        panic!("{}: no line with {mark}\n{ran}", self.words);
    }

    /// Waits for its end, and fails the test if it does not come.
    pub(crate) fn end(mut self) -> Ran {
        let ended = processes::ends_within(self.pid(), PATIENCE);
        let ran = self.stop();
        assert!(ended, "{} has not ended after {PATIENCE:?}\n{ran}", self.words);
        ran
    }

    fn stop(&mut self) -> Ran {
        // Without effect where it has ended by itself.
        self.child.kill().ok();
        let status = self.child.wait().unwrap();
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
        while let Ok(line) = self.lines.recv_timeout(CLOSING) {
            self.stdout.extend(line);
        }
        let stderr = self.stderr.recv_timeout(CLOSING).unwrap_or_else(|_| LEAKED.to_vec());
        let stdout = std::mem::take(&mut self.stdout);
        Ran { code, stdout, stderr: String::from_utf8_lossy(&stderr).into_owned() }
    }
}

/// How long another process may hold an ended program's pipes open.
const CLOSING: Duration = PATIENCE;
const LEAKED: &[u8] = b"(standard error is still held open by a process that was left behind)";
