//! The side of a copy that keeps its power: the real program, whose events are read.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The arguments of a run.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub program: PathBuf,
    /// This very program, in place of ssh.
    pub connector: PathBuf,
    pub source: PathBuf,
    pub login_port: u16,
    pub data_port: u16,
    pub fsync: &'static str,
}

/// Whether a run survives the power cut, or another one follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    LogsInAgain,
    EndsAtOnce,
}

pub(super) struct Near {
    child: Child,
    reported: Arc<Mutex<Reported>>,
    readers: Vec<JoinHandle<()>>,
}

/// The output of a run so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Reported {
    /// Moved by finished attempts, and by the current one.
    before_bytes: u64,
    attempt_bytes: u64,
    /// Kept from earlier runs and attempts: the largest value reported.
    pub held_bytes: u64,
    /// The last event.
    pub end: serde_json::Value,
    words: String,
}

impl Near {
    pub(super) fn start(call: &Call, retry: Retry) -> Result<Near, String> {
        let mut command = Command::new(&call.program);
        command.args(["copy", "-r", "--json", "--interval", "0.1"]);
        let port = call.login_port;
        command
            .arg("--ssh")
            .arg(format!("'{}' power-cut connect {port}", call.connector.display()));
        command.args(["--remote-datapump", "/bin/datapump"]);
        command.arg("--ports").arg(format!("{0}-{0}", call.data_port));
        let retry_for = if retry == Retry::LogsInAgain { "10m" } else { "off" };
        command.args(["--retry-for", retry_for, "--fsync", call.fsync]);
        // A guest that gets no CPU from a busy host for a while has not lost its power.
        command.args(["--stall", "120"]);
        command.arg(format!("{}/", call.source.display())).arg("127.0.0.1:/sink/tree");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|why| format!("{command:?}: {why}"))?;
        let reported = Arc::new(Mutex::new(Reported::default()));
        let (events, words) = (reported.clone(), reported.clone());
        let stdout = child.stdout.take().expect("asked for");
        let mut stderr = child.stderr.take().expect("asked for");
        let readers = vec![
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if let Ok(event) = serde_json::from_str(&line) {
                        locked(&events).note(event);
                    }
                }
            }),
            thread::spawn(move || {
                let mut text = Vec::new();
                let _ = stderr.read_to_end(&mut text);
                locked(&words).words = String::from_utf8_lossy(&text).into_owned();
            }),
        ];
        Ok(Near { child, reported, readers })
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Waits for the end: the exit code, and all output.
    pub(super) fn end(mut self, patience: Duration) -> Result<(i32, Reported), String> {
        let deadline = Instant::now() + patience;
        while !self.has_ended() {
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return Err(format!("the run has not ended after {patience:?}"));
            }
            thread::sleep(Duration::from_millis(10));
        }
        let status = self.child.wait().map_err(|why| why.to_string())?;
        self.readers.drain(..).for_each(|reader| drop(reader.join()));
        let reported = locked(&self.reported).clone();
        Ok((status.code().unwrap_or(-1), reported))
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn locked(reported: &Mutex<Reported>) -> MutexGuard<'_, Reported> {
    reported.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reported {
    fn note(&mut self, event: serde_json::Value) {
        let number = |name: &str| event[name].as_u64().unwrap_or(0);
        if event["event"] == "progress" {
            let moved = number("bytes_done").saturating_sub(number("bytes_held"));
            if moved < self.attempt_bytes {
                self.before_bytes += self.attempt_bytes;
            }
            self.attempt_bytes = moved;
            self.held_bytes = self.held_bytes.max(number("bytes_held"));
        }
        if event["event"] == "end" {
            let moved = event["record"]["source"]["bytes"].as_u64().unwrap_or(0);
            self.attempt_bytes = self.attempt_bytes.max(moved);
            self.end = event;
        }
    }

    /// Bytes that all attempts have moved.
    pub(super) fn moved_bytes(&self) -> u64 {
        self.before_bytes + self.attempt_bytes
    }

    /// The reason why it ended.
    pub(super) fn why(&self) -> String {
        format!("{} {}", self.end["message"], self.words.trim())
    }
}
