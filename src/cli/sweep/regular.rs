//! Campaigns that are measured regularly: again and again, with old ones thinned, and an alarm when
//! the rate of a host has changed.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::kept;
use crate::cli::console::Console;
use crate::cli::options::{showing, sweeping};
use crate::cli::report;
use crate::cli::signals;
use crate::cli::typed::Typed;
use crate::measure;
use crate::results::{Experiment, Store};
use crate::telemetry::alarm::Receiver;
use crate::telemetry::http::Server;
use crate::telemetry::{self, Destination};
use analysis::report::{live, trend as text};
use analysis::trend::retention::{Ages, Fate, fates};
use base::fault::{Class, Fault};
use base::units::{Nanos, Tick};
use mover::io::clock;
use mover::pump::watch::Watch;

/// What is done after a campaign, and how often campaigns are measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Regular {
    pub every: Option<Nanos>,
    thin: Option<Nanos>,
    keep: Option<Nanos>,
    alarm: Option<Receiver>,
}

impl Regular {
    pub(super) fn of(typed: &Typed) -> Result<Regular, String> {
        let regular = Regular {
            every: typed.value(&sweeping::EVERY)?,
            thin: typed.value(&sweeping::THIN)?,
            keep: typed.value(&sweeping::KEEP)?,
            alarm: typed.value(&sweeping::ALARM)?,
        };
        match (regular.thin, regular.keep) {
            (Some(thin), Some(keep)) if thin >= keep => {
                Err("--thin is an age before --keep: write a shorter time for --thin".into())
            }
            _ => Ok(regular),
        }
    }

    /// True for a campaign that is one of a row: only such ones are thinned and removed.
    pub(super) fn is_one(&self) -> bool {
        *self != Regular::default() || std::env::var_os(OF_A_ROW).is_some()
    }

    /// Tells what the newest campaign has shown, thins old ones and removes them. What fails is a
    /// warning: the campaign is measured.
    pub(super) fn after(&self, store: &mut Store, console: &Console) {
        for done in [self.watch(store, console), self.clear(store)] {
            if let Err(fault) = done {
                console.warning(&fault.text);
            }
        }
    }

    fn clear(&self, store: &mut Store) -> Result<(), Fault> {
        let mut regular = kept::recorded(store)?;
        regular.retain(|experiment| experiment.more.contains_key(REGULAR));
        let started: Vec<f64> = regular.iter().map(|one| one.started_unix_s).collect();
        let seconds = |time: Option<Nanos>| time.map(Nanos::seconds);
        let ages = Ages { thin_s: seconds(self.thin), keep_s: seconds(self.keep) };
        for (experiment, fate) in regular.iter().zip(fates(&started, measure::unix_s(), ages)) {
            match fate {
                Fate::Keep => {}
                Fate::Thin => store.thin(&experiment.name)?,
                Fate::Remove => store.remove(&experiment.name)?,
            }
        }
        Ok(())
    }

    fn watch(&self, store: &Store, console: &Console) -> Result<(), Fault> {
        let Some(receiver) = &self.alarm else { return Ok(()) };
        let all = kept::recorded(store)?;
        let newest = &all[all.len().saturating_sub(LOOKED_AT)..];
        for alarm in report::routes(store, newest)?.iter().filter_map(text::alarm) {
            console.warning(&alarm.text);
            let json = serde_json::to_string(&alarm).unwrap_or_default();
            // One that does not arrive holds no other back.
            if let Err(fault) = receiver.tell(&alarm.text, &json) {
                console.warning(&fault.text);
            }
        }
        Ok(())
    }
}

/// Marks an experiment as one of a row.
pub(super) fn marked(experiment: &mut Experiment) {
    experiment.more.insert(REGULAR.into(), true.into());
}

/// Measures one campaign after the other, each in a process of its own, until it is told to stop. A
/// port for metrics is served by this process, which does not end between two campaigns.
pub(super) fn repeat(
    every: Nanos,
    metrics: Option<&Destination>,
    console: &Console,
) -> Result<Option<(Class, String)>, Fault> {
    let control = control();
    if let Err(why) = signals::install(&control) {
        console.warning(&format!("Ctrl-C ends the program at once: {why}"));
    }
    let program = std::env::current_exe()
        .map_err(|why| Fault::system("find the program that is running", &why))?;
    let mut words = without(std::env::args_os().skip(1), &[sweeping::EVERY.name]);
    let served = match metrics {
        Some(Destination::Address(address)) => Some(Served::begin(*address, console)?),
        _ => None,
    };
    if let Some(served) = &served {
        words = without(words.into_iter(), &[showing::METRICS.name]);
        words.push(served.option());
    }
    while !control.stopping() {
        let began = clock::now();
        // A group of its own: Ctrl-C reaches it through this process, once.
        let mut command = Command::new(&program);
        command.args(&words).env(OF_A_ROW, "1").process_group(0);
        let child = command.spawn().map_err(|why| Fault::system("begin a campaign", &why))?;
        let code = end_of(child, &control)?;
        if code == Class::Usage.exit_code() {
            return Ok(Some((Class::Usage, "the campaign cannot begin, so none will".into())));
        }
        let next = began.after(every);
        let wait = next.since(clock::now());
        if wait > Nanos(0) && !control.stopping() {
            console.remark(&format!("the next campaign begins in {}", live::clock(wait)));
        }
        wait_until(next, &control);
    }
    Ok(Some((Class::Interrupted, "stopped; what was measured is recorded".into())))
}

/// The metrics of campaigns over HTTP: each campaign writes them into a file, which is served.
struct Served {
    folder: tempfile::TempDir,
    /// Until it is dropped.
    _server: Server,
}

impl Served {
    fn begin(address: SocketAddr, console: &Console) -> Result<Served, Fault> {
        let folder = tempfile::Builder::new().prefix("datapump-metrics-").tempdir();
        let folder = folder.map_err(|why| Fault::system("make a folder for the metrics", &why))?;
        let server = telemetry::serve_file(address, folder.path().join(SERVED))?;
        console.remark(&format!("metrics are at http://{}/metrics", server.address()));
        Ok(Served { folder, _server: server })
    }

    /// What a campaign is told instead of the port.
    fn option(&self) -> OsString {
        let mut option = OsString::from(format!("--{}=", showing::METRICS.name));
        option.push(self.folder.path().join(SERVED));
        option
    }
}

/// Its exit code; it is told to stop when this process is.
fn end_of(mut child: Child, control: &Watch) -> Result<u8, Fault> {
    let mut is_told = false;
    loop {
        let ended = child.try_wait().map_err(|why| Fault::system("wait for a campaign", &why))?;
        if let Some(status) = ended {
            return Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
        }
        if control.stopping() && !is_told {
            is_told = true;
            let pid = Pid::from_raw(child.id().cast_signed());
            pid.and_then(|pid| kill_process(pid, Signal::INT).ok());
        }
        thread::sleep(BEAT);
    }
}

/// The watch that signals stop.
fn control() -> Arc<Watch> {
    let (notices, heard) = channel();
    // What it says is said by the campaign that is under way.
    drop(heard);
    Arc::new(Watch::new(notices))
}

fn wait_until(then: Tick, control: &Watch) {
    while clock::now() < then && !control.stopping() {
        thread::sleep(BEAT.min(then.since(clock::now()).into()));
    }
}

/// A command line without these options and their values.
pub(super) fn without(words: impl Iterator<Item = OsString>, names: &[&str]) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut words = words;
    while let Some(word) = words.next() {
        let (name, has_value) = match word.to_str().and_then(|word| word.strip_prefix("--")) {
            Some(long) => long.split_once('=').map_or((long, false), |(name, _)| (name, true)),
            None => ("", false),
        };
        if !names.contains(&name) {
            kept.push(word);
        } else if !has_value {
            words.next();
        }
    }
    kept
}

/// The name of the job is the same as where one campaign serves a port.
const SERVED: &str = "sweep.prom";
/// Set for a campaign that `--every` begins.
const OF_A_ROW: &str = "DATAPUMP_REGULAR";
const REGULAR: &str = "regular";
const BEAT: Duration = Duration::from_millis(50);
/// Twice what a change is compared with, and more.
const LOOKED_AT: usize = 130;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_taken_out() {
        let cases = [
            ("sweep --hosts h --every 6h -t 2", "sweep --hosts h -t 2"),
            ("sweep --every=6h --hosts h", "sweep --hosts h"),
            ("sweep --hosts h --every 6h", "sweep --hosts h"),
            ("sweep --hosts every", "sweep --hosts every"),
        ];
        for (line, expect) in cases {
            let words = line.split(' ').map(OsString::from);
            let kept = without(words, &["every"]);
            let kept: Vec<_> = kept.iter().map(|word| word.to_str().unwrap()).collect();
            assert_eq!(kept.join(" "), expect);
        }
    }
}
