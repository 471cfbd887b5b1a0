//! What is known of one run: a row of the results store, and all that models are made from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::packed::Packed;
use base::job::StreamPath;

/// The pumps that are measured: each part alone between null ends, and what is composed of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// null → null
    Cpu,
    /// file → null
    DiskSource,
    /// null → file
    DiskSink,
    /// null → net → null
    Net,
    /// file → file
    DiskDisk,
    /// file → net → file
    DiskNetDisk,
    /// file → net → null: a network as this disk feeds it
    DiskNet,
    /// null → net → file: a network as this disk drains it
    NetDisk,
}

impl Scenario {
    pub const ALL: [Scenario; 8] = [
        Scenario::Cpu,
        Scenario::DiskSource,
        Scenario::DiskSink,
        Scenario::Net,
        Scenario::DiskDisk,
        Scenario::DiskNetDisk,
        Scenario::DiskNet,
        Scenario::NetDisk,
    ];
    pub const NAMES: [&str; 8] = [
        "cpu",
        "disk-source",
        "disk-sink",
        "net",
        "disk-disk",
        "disk-net-disk",
        "disk-net",
        "net-disk",
    ];

    pub fn name(self) -> &'static str {
        Scenario::NAMES[self as usize]
    }

    pub fn parse(text: &str) -> Option<Scenario> {
        Scenario::NAMES.iter().position(|name| *name == text).map(|i| Scenario::ALL[i])
    }

    /// True where source and sink are two processes.
    pub fn has_net(self) -> bool {
        matches!(self, Scenario::Net | Scenario::DiskNetDisk) || self.is_half()
    }

    /// True where a network stands between a disk and nothing.
    pub fn is_half(self) -> bool {
        matches!(self, Scenario::DiskNet | Scenario::NetDisk)
    }

    pub fn reads_disk(self) -> bool {
        use Scenario::{DiskDisk, DiskNet, DiskNetDisk, DiskSource};
        matches!(self, DiskSource | DiskDisk | DiskNetDisk | DiskNet)
    }

    pub fn writes_disk(self) -> bool {
        use Scenario::{DiskDisk, DiskNetDisk, DiskSink, NetDisk};
        matches!(self, DiskSink | DiskDisk | DiskNetDisk | NetDisk)
    }
}

/// One run of `copy`, `measure` or `sweep`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its number in the store; 0 until it is there.
    pub id: i64,
    /// `copy`, `measure` or `sweep`.
    pub command: String,
    pub version: String,
    /// Seconds since 1970-01-01T00:00:00Z.
    pub started_unix_s: f64,
    /// As typed.
    pub sources: Vec<String>,
    pub target: String,
    /// Where it stands in an experiment, if in one.
    pub place: Option<PlaceInExperiment>,
    pub knobs: Knobs,
    pub conditions: Conditions,
    pub moved: Moved,
    /// The host with the source; with the sink too where `sink` is not there.
    pub source: Side,
    pub sink: Option<Side>,
    /// What whole machines did meanwhile: the source's, then the sink's where it is another.
    pub machines: Vec<Machine>,
    pub gates: Vec<Gate>,
    /// Why this run counts for nothing; the first gate that it failed.
    pub void_reason: Option<String>,
    /// Bytes that were where they belong, over time.
    pub series: Vec<SeriesPoint>,
    /// Of probes beside the run, where there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trips: Option<RoundTrips>,
    pub predicted: Option<Predicted>,
    /// What became of payloads that were to be packed; `None` where none were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed: Option<Packed>,
    /// Each data stream as each of its ends saw it. The store keeps them apart, and gives them when
    /// it is asked for them.
    #[serde(default, with = "super::path_json", skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<StreamPath>,
    /// What only some kinds of runs have, by name: TCP's own account, the verdict on it, where a
    /// cell stands in a campaign.
    pub more: BTreeMap<String, serde_json::Value>,
}

/// Where a run stands in an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlaceInExperiment {
    /// All runs of one command have it in common.
    pub experiment: String,
    pub scenario: Scenario,
    pub seed: u64,
    /// Counts runs in the order in which they were made.
    pub order_index: u32,
    /// Which repeat of its cell it is, from 0.
    pub repeat: u32,
    /// Which block of runs between two calibrations it is in.
    pub block: u32,
}

/// How bytes were moved. `None` where the choice was left to the program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Knobs {
    pub request_bytes: u32,
    pub depth_source: Option<u16>,
    pub depth_sink: Option<u16>,
    pub streams: u16,
    pub window_bytes: Option<u32>,
    pub congestion: Option<String>,
    pub rate_bytes_per_s: Option<f64>,
    pub engine: String,
    pub direct: String,
    pub seal: String,
    pub digest: String,
    pub fsync: String,
    /// How a network source reads: `waitall` or `any`.
    pub receive: String,
    pub codec: Option<String>,
}

/// What the run met.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// What was asked for: `warm`, `cold`, or empty where nothing was.
    pub cache: String,
    /// The share of the source file that was in the page cache before the run, where it is known.
    pub resident_before: Option<f64>,
    /// `memory`, `tcp` or `control`.
    pub carrier: String,
    /// File systems with their mount options, where an end is in files.
    pub source_file_system: Option<String>,
    pub sink_file_system: Option<String>,
    /// CPUs with a soaker.
    pub soaked_cpus: Vec<u32>,
}

/// What was moved, and how long it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    pub bytes: u64,
    pub files: u64,
    pub wire_bytes: u64,
    /// From the first word of the transfer to its last.
    pub elapsed_s: f64,
    /// Payload over elapsed time.
    pub goodput_bytes_per_s: f64,
    /// The rate once it was steady, and when that was; `None` where it never was.
    pub steady_bytes_per_s: Option<f64>,
    pub steady_from_s: Option<f64>,
    pub retries: u32,
}

/// One host's part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// The environment that it ran in, a row of the store; 0 until it is there.
    pub environment: i64,
    /// The CPUs that it was held to; empty for all.
    pub cpus: Vec<u32>,
    pub cpu_user_s: f64,
    pub cpu_system_s: f64,
    /// What kernel threads did for it, by name.
    pub kernel_threads_s: BTreeMap<String, f64>,
    pub requests: u64,
    pub calls: u64,
    pub partial_returns: u64,
    /// What those returned in all.
    pub partial_bytes: u64,
    /// File requests that found no other of their lane in the air: each may have had to wake the
    /// device.
    #[serde(default)]
    pub starts: u64,
    pub fill_s: f64,
    pub pass_s: f64,
    pub gate_s: f64,
    pub drain_s: f64,
    /// By stage: digest, codec, seal.
    pub stages_s: BTreeMap<String, f64>,
    pub peak_memory_bytes: u64,
    pub planned_memory_bytes: u64,
    /// The engine that ran.
    pub engine: String,
    pub depth: u16,
    pub congestion: String,
    pub window_seen_bytes: u64,
}

impl Side {
    /// CPU time that is this side's: its own threads, and kernel threads on its account.
    pub fn cpu_s(&self) -> f64 {
        self.cpu_user_s + self.cpu_system_s + self.kernel_threads_s.values().sum::<f64>()
    }
}

/// What a whole machine did during a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub cpus: u32,
    pub span_s: f64,
    /// All CPUs' time less idle, waiting and stolen time, as the kernel counts.
    pub busy_idle_s: f64,
    /// The CPUs with a soaker. The next two are of these only.
    #[serde(default)]
    pub soaked_cpus: Vec<u32>,
    /// The same from the soaker's iterations and from its own CPU clock; `None` without a soaker.
    pub busy_iter_s: Option<f64>,
    pub busy_clock_s: Option<f64>,
    /// What others took while nothing was measured, scaled to this run.
    pub background_s: Option<f64>,
    pub steal_s: f64,
    /// Every kernel thread that ran, by name, and the CPU it is bound to.
    pub kernel_threads: Vec<KernelThread>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelThread {
    /// Without what changes from boot to boot: `ksoftirqd/0`, `kworker/u8-writeback`, `jbd2/vda1`.
    pub name: String,
    pub cpu: Option<u32>,
    pub cpu_s: f64,
}

/// Something that must hold for a run to count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// `drift`, `background`, `steal`, `intrusion`, `memory`, …
    pub name: String,
    pub value: f64,
    pub limit: f64,
    pub passed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeriesPoint {
    pub at_s: f64,
    pub bytes: u64,
}

/// How long probes took to the other host and back, at rest and under the load of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// What carried the probes: `icmp` or `tcp`.
    pub method: String,
    pub unloaded: Probes,
    pub loaded: Probes,
    /// How far behind its time the latest probe was sent.
    pub late_max_s: f64,
}

/// Probes of one state of the path. One that came back after a second was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probes {
    pub sent: u32,
    pub lost: u32,
    /// Of those that came back; `None` where none did.
    pub min_s: Option<f64>,
    pub median_s: Option<f64>,
    pub p95_s: Option<f64>,
}

/// What was said about a run before it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    pub elapsed_s: [f64; 3],
    pub cpu_source_s: [f64; 3],
    pub cpu_sink_s: [f64; 3],
    /// The part that will hold it back.
    pub binding: String,
}

/// What a run ran in, captured once for all that share it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    pub host: String,
    /// Every fact by name: `kernel`, `cpu_model`, `cpus`, `mhz`, `virtualization`, `clocksource`,
    /// `hz`, `sysctl net.ipv4.tcp_rmem`, …
    pub facts: BTreeMap<String, String>,
}
