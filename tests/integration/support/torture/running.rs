//! A running copy, and what it reports.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// What its events have reported so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Reported {
    pub done_bytes: u64,
    pub held_bytes: u64,
    pub found_bytes: u64,
    pub all_found: bool,
    /// It could not report the end to the far side.
    pub journal_may_stay: bool,
    /// The event `end`.
    pub end: serde_json::Value,
    /// Every line, for the log.
    lines: String,
}

/// How a run has ended.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    /// `None`: by a signal.
    pub code: Option<i32>,
    pub reported: Reported,
    pub words: String,
}

pub(super) struct Running {
    child: Child,
    reported: Arc<Mutex<Reported>>,
    readers: Vec<JoinHandle<String>>,
}

impl Running {
    pub(super) fn new(mut command: Command) -> Running {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let reported = Arc::new(Mutex::new(Reported::default()));
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let takes = reported.clone();
        let events = thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                locked(&takes).take(&line);
            }
            String::new()
        });
        let mut stderr = child.stderr.take().unwrap();
        let words = thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Running { child, reported, readers: vec![events, words] }
    }

    pub(super) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// The share of this run's bytes that has moved.
    pub(super) fn share(&self) -> f64 {
        let reported = locked(&self.reported);
        let (moved, all) =
            (reported.sent_bytes(), reported.found_bytes.saturating_sub(reported.held_bytes));
        if reported.all_found && all > 0 { moved as f64 / all as f64 } else { 0.0 }
    }

    pub(super) fn is_over(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    }

    pub(super) fn signal_group(&self, signal: Signal) -> bool {
        Pid::from_raw(self.pid()).is_some_and(|pid| kill_process_group(pid, signal).is_ok())
    }

    /// Waits for its end, with checks meanwhile.
    pub(super) fn end(
        mut self,
        patience: Duration,
        mut look: impl FnMut(),
    ) -> Result<Ended, String> {
        let deadline = Instant::now() + patience;
        let mut hangs = false;
        while !self.is_over() {
            if Instant::now() > deadline {
                hangs = true;
                signal(self.pid(), Signal::KILL);
                break;
            }
            look();
            thread::sleep(Duration::from_millis(5));
        }
        let status = self.child.wait().map_err(|why| why.to_string())?;
        let texts: Vec<String> = self.readers.into_iter().map(|it| it.join().unwrap()).collect();
        let ended = Ended {
            code: status.code(),
            reported: locked(&self.reported).clone(),
            words: texts.concat(),
        };
        match hangs {
            true => Err(format!("hangs: it has not ended after {patience:?}: {}", ended.summary())),
            false => Ok(ended),
        }
    }
}

impl Reported {
    fn take(&mut self, line: &str) {
        self.lines.push_str(line);
        self.lines.push('\n');
        let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else { return };
        let number = |name: &str| event[name].as_u64().unwrap_or_default();
        match event["event"].as_str() {
            Some("progress") => {
                self.done_bytes = number("bytes_done");
                self.held_bytes = number("bytes_held");
                self.found_bytes = number("bytes_found");
                self.all_found = event["all_found"].as_bool().unwrap_or_default();
            }
            Some("warning") => {
                let text = event["text"].as_str().unwrap_or_default();
                self.journal_may_stay |= text.contains("its journal may stay");
            }
            Some("end") => {
                // The other side may have reported only then what it held.
                let resumed =
                    event["record"]["moved"]["resumed_bytes"].as_u64().unwrap_or_default();
                self.held_bytes = self.held_bytes.max(resumed);
                self.end = event;
            }
            _ => {}
        }
    }

    /// The bytes that it reported as sent; of a killed run the last report.
    pub(super) fn sent_bytes(&self) -> u64 {
        let sent = self.end["record"]["source"]["bytes"].as_u64();
        sent.unwrap_or(self.done_bytes.saturating_sub(self.held_bytes))
    }
}

impl Ended {
    pub(super) fn summary(&self) -> String {
        let message = &self.reported.end["message"];
        format!("exit {:?}: {message} {}", self.code, self.words.trim())
    }

    pub(super) fn log(&self, path: &Path) {
        let _ =
            fs::write(path, format!("{}{}\n{:?}\n", self.reported.lines, self.words, self.code));
    }
}

pub(super) fn signal(pid: i32, signal: Signal) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| kill_process(pid, signal).is_ok())
}

fn locked(reported: &Mutex<Reported>) -> MutexGuard<'_, Reported> {
    reported.lock().unwrap_or_else(PoisonError::into_inner)
}
