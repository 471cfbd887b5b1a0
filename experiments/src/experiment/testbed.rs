//! One copy over a path of its own, with all observations: the program's output, its record, its
//! verdict, and the packets on the wire.

use crate::said;
use analysis::record::sample::{Record, Side};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ::wan::{Counters, Profile, Wan};
use serde_json::Value;

use super::packets;
use super::series::{self, Stream};
use xtask::step::output;

/// The program under test, in the build that is shipped.
#[derive(Debug)]
pub(crate) struct Testbed {
    pub program: PathBuf,
    /// Words after the name, for an experiment with options.
    pub options: Vec<String>,
    /// A copy that several experiments use.
    pub mover: OnceLock<Run>,
}

/// The specification of a copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    /// Words of `cargo xtask wan up`.
    pub path: String,
    /// Words of `datapump copy`.
    pub copy: String,
    pub capture: Capture,
    /// Commands to run first on the near host.
    pub before: Vec<String>,
    /// Replaces the program on the far host.
    pub far_program: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Capture {
    #[default]
    Off,
    On,
}

#[derive(Debug)]
pub(crate) struct Run {
    /// From the last event.
    pub record: Record,
    pub verdict: Value,
    /// The output of `datapump explain`.
    pub page: String,
    /// The sending ends, in the order of their numbers.
    pub streams: Vec<Stream>,
    /// The same streams in a capture on the sending host's interface.
    pub packets: Vec<packets::Stream>,
    pub counters: Counters,
}

impl Order {
    pub(crate) fn new(path: impl Into<String>, copy: impl Into<String>) -> Order {
        Order { path: path.into(), copy: copy.into(), ..Order::default() }
    }

    pub(crate) fn captured(mut self) -> Order {
        self.capture = Capture::On;
        self
    }
}

impl Testbed {
    pub(crate) fn of(program: PathBuf) -> Testbed {
        Testbed { program, options: Vec::new(), mover: OnceLock::new() }
    }

    pub(crate) fn copy(&self, order: &Order) -> Result<Run, String> {
        self.copy_beside(order, |_| Ok(()))
    }

    /// `beside` gets the WAN and runs during the copy.
    pub(crate) fn copy_beside(
        &self,
        order: &Order,
        beside: impl Fn(&Wan) -> Result<(), String> + Sync,
    ) -> Result<Run, String> {
        let told = |why: std::io::Error| format!("experiment: {why}");
        let folder = tempfile::Builder::new().prefix("datapump-experiment-").tempdir();
        let folder = folder.map_err(told)?;
        let pcap = folder.path().join("pcap");
        let store = folder.path().join("results.db");
        let name = pcap.to_string_lossy().into_owned();
        let mut words: Vec<&str> = order.path.split_whitespace().collect();
        if order.capture == Capture::On {
            words.extend(["--pcap", &name]);
        }
        let wan = Wan::up(&Profile::from_words(&words)?, Some(&self.program))?;
        for line in &order.before {
            output(&mut wan.near(plain(line)?).map_err(told)?)?;
        }
        let copy = wan.near(self.command(order, &wan, &store)).map_err(told)?;
        let said = std::thread::scope(|scope| {
            let watching = scope.spawn(|| beside(&wan));
            let said = output(&mut { copy });
            watching.join().map_err(|_| "what ran beside the copy has failed")??;
            said
        })?;
        let counters = wan.counters();
        // The capture is complete when the WAN is gone.
        drop(wan);
        let packets = match order.capture {
            Capture::On => packets::streams(&pcap)?,
            Capture::Off => Vec::new(),
        };
        let page = output(&mut self.ask(&store, "explain"))?;
        let verdict = output(&mut self.ask(&store, "explain --json"))?;
        let samples = output(&mut self.ask(&store, "results export --what paths --format csv"))?;
        Ok(Run {
            record: said::record(&said)?,
            verdict: first_verdict(&verdict).ok_or("datapump explain --json has no verdict")?,
            page,
            streams: series::sending_ends(&samples)?,
            packets,
            counters,
        })
    }

    fn command(&self, order: &Order, wan: &Wan, store: &Path) -> Command {
        let mut copy = Command::new(&self.program);
        copy.env_remove("DATAPUMP_NO_RECORD").args(["copy", "--json", "--results"]).arg(store);
        copy.args(["--ssh", &wan.ssh_command()]);
        if let Some(program) = &order.far_program {
            copy.arg("--remote-datapump").arg(program);
        }
        copy.args(order.copy.split_whitespace());
        copy
    }

    fn ask(&self, store: &Path, words: &str) -> Command {
        let mut ask = Command::new(&self.program);
        ask.args(words.split_whitespace()).arg("--results").arg(store);
        ask
    }
}

impl Run {
    pub(crate) fn bytes(&self) -> f64 {
        self.record.moved.bytes as f64
    }

    /// From the end of the login to the end of the copy, including ramp, syncs and end messages.
    pub(crate) fn copying_s(&self) -> f64 {
        let login_s = self.record.remote.as_ref().map_or(0.0, |remote| remote.login_s);
        (self.record.moved.elapsed_s - login_s).max(1e-9)
    }

    pub(crate) fn copying_mbit_s(&self) -> f64 {
        self.bytes() * 8.0 / self.copying_s() / 1e6
    }

    /// The rate after the ramp, from the diagnosis.
    pub(crate) fn steady_mbit_s(&self) -> f64 {
        self.figure("bytes_per_s") * 8.0 / 1e6
    }

    pub(crate) fn figure(&self, name: &str) -> f64 {
        self.verdict["figures"][name].as_f64().unwrap_or(0.0)
    }

    /// The same for a nested figure.
    pub(crate) fn figure_at(&self, names: &[&str]) -> f64 {
        let found = names.iter().fold(&self.verdict["figures"], |value, name| &value[*name]);
        found.as_f64().unwrap_or(0.0)
    }

    pub(crate) fn class(&self) -> String {
        self.verdict["primary"].as_str().unwrap_or("mixed").to_string()
    }

    /// The first sentence of `datapump explain`.
    pub(crate) fn sentence(&self) -> &str {
        self.page.lines().next().unwrap_or_default().trim_start_matches("held back by: ")
    }

    pub(crate) fn round_trip_s(&self) -> f64 {
        self.figure("round_trip_min_s")
    }

    /// The list with this name from the verdicts of all streams.
    pub(crate) fn of_streams(&self, list: &str) -> Vec<&Value> {
        let streams = self.verdict["streams"].as_array();
        streams.into_iter().flatten().filter_map(|one| one[list].as_array()).flatten().collect()
    }

    pub(crate) fn segments_again(&self) -> u64 {
        self.streams.iter().map(Stream::segments_again).sum()
    }

    /// Retransmitted segments, in percent of all payload segments sent.
    pub(crate) fn again_percent(&self) -> f64 {
        let sent: u64 = self.streams.iter().map(Stream::segments_sent).sum();
        self.segments_again() as f64 / sent.max(1) as f64 * 100.0
    }

    /// CPU time of the side with the source, per byte.
    pub(crate) fn source_ns_per_byte(&self) -> f64 {
        ns_per_byte(&self.record.source)
    }

    /// The same for the side with the sink.
    pub(crate) fn sink_ns_per_byte(&self) -> f64 {
        self.record.sink.as_ref().map_or(0.0, ns_per_byte)
    }
}

fn ns_per_byte(side: &Side) -> f64 {
    side.cpu_s() * 1e9 / side.bytes.max(1) as f64
}

/// A command line without quotes.
fn plain(line: &str) -> Result<Command, String> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().ok_or("an empty command")?);
    command.args(words);
    Ok(command)
}

fn first_verdict(text: &str) -> Option<Value> {
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut events = events.filter(|event| event["event"] == "verdict");
    events.next()
}
