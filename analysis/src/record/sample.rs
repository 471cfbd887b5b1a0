//! The data of one run: the one type that the results store keeps as JSON, that `--json` and
//! exports write, and that all models are fitted to.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::compression::Compression;
use super::number;
use super::options::Options;
use base::job::StreamPath;

/// The pumps that are measured: each part alone between null ends, and their compositions.
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
    /// file → net → null: a network supplied by this disk
    DiskNet,
    /// null → net → file: a network drained by this disk
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

    /// As texts say it, where `name` is what is typed: a part has one spelling in a report.
    pub fn told(self) -> &'static str {
        match self {
            Scenario::DiskSource => "disk source",
            Scenario::DiskSink => "disk sink",
            other => other.name(),
        }
    }

    pub fn parse(text: &str) -> Option<Scenario> {
        Scenario::NAMES.iter().position(|name| *name == text).map(|i| Scenario::ALL[i])
    }

    /// True where source and sink are two processes.
    pub fn has_net(self) -> bool {
        matches!(self, Scenario::Net | Scenario::DiskNetDisk) || self.is_half()
    }

    /// True where a network is between a disk and a null end.
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

/// The version of a record and of the JSON events. A new field needs no new version, as an older
/// record gets its default; a removed or renamed one does, and a conversion of older records
/// (`results/older.rs`).
pub const SCHEMA: u32 = 3;

/// The schema that a record was written with: always this one, as no other is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Schema(u32);

impl Default for Schema {
    fn default() -> Schema {
        Schema(SCHEMA)
    }
}

impl<'a> Deserialize<'a> for Schema {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Schema, D::Error> {
        match u32::deserialize(from)? {
            SCHEMA => Ok(Schema(SCHEMA)),
            other => Err(serde::de::Error::custom(format!(
                "a record of schema {other}; this datapump reads schema {SCHEMA}"
            ))),
        }
    }
}

/// One run of `copy`, `net-test`, `measure` or `sweep`. A field without a unit in its name is a
/// count, a text or a share; NaN and infinite numbers are null in JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub schema: Schema,
    /// Its number in the store; 0 before it is stored.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub id: i64,
    /// `copy`, `measure` or `sweep`.
    pub command: String,
    /// Of the program.
    pub version: String,
    /// Seconds since 1970-01-01T00:00:00Z.
    #[serde(deserialize_with = "number::or_nan")]
    pub started_unix_s: f64,
    /// As typed on the command line.
    pub sources: Vec<String>,
    pub target: String,
    /// The options of the command, as words, from wherever they came, but for those that only show
    /// or record a run. `None` where they are not known.
    #[serde(default)]
    pub given: Option<Vec<String>>,
    /// Its place in an experiment, if it is part of one.
    pub place: Option<PlaceInExperiment>,
    pub options: Options,
    pub conditions: Conditions,
    pub moved: Moved,
    /// The other host; `None` where both ends are on this one.
    pub remote: Option<Remote>,
    /// The host with the source; also with the sink where `sink` is `None`.
    pub source: Side,
    pub sink: Option<Side>,
    /// What whole machines did during the run: the source's, then the sink's if it is another.
    pub machines: Vec<Machine>,
    pub gates: Vec<Gate>,
    /// Why this run is void: the first gate that it failed.
    pub void_reason: Option<String>,
    /// From probes during the run, if there were any.
    pub round_trips: Option<RoundTrips>,
    pub predicted: Option<Predicted>,
    /// The payloads of a copy with compression; `None` without.
    pub compression: Option<Compression>,
    /// How the number of streams was chosen; empty where the user said it.
    #[serde(default)]
    pub stream_steps: Vec<StreamStep>,
    /// Its cell of a campaign, if it is part of one.
    pub cell: Option<Cell>,
    /// TCP's own counts of the data streams, for runs of campaigns.
    pub tcp: Option<Tcp>,
    /// Bytes that have arrived at the sink, over time. The store keeps them separately.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<SeriesPoint>,
    /// Each data stream as each of its ends saw it. The store keeps them separately, and returns
    /// them on request.
    #[serde(default, with = "super::path_json", skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<StreamPath>,
    /// Extra data by name, for parts of the program that use records: the verdict on a cell, the
    /// sample of a calibration.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub more: BTreeMap<String, serde_json::Value>,
}

/// A change of the number of streams; or, where both numbers are the same, why it stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamStep {
    /// Since the first bytes arrived.
    #[serde(deserialize_with = "number::or_nan")]
    pub at_s: f64,
    pub from: u16,
    pub to: u16,
    /// A name of `base::stream_steps`.
    pub reason: String,
    /// What was delivered before the trial, and in it, as far as that was known.
    pub before_bytes_per_s: Option<f64>,
    pub after_bytes_per_s: Option<f64>,
}

impl StreamStep {
    pub fn of(step: &base::stream_steps::StreamStep) -> StreamStep {
        StreamStep {
            at_s: step.at.seconds(),
            from: step.from,
            to: step.to,
            reason: step.reason.name().to_string(),
            before_bytes_per_s: step.before.map(|rate| rate.bytes_per_second),
            after_bytes_per_s: step.after.map(|rate| rate.bytes_per_second),
        }
    }
}

/// The host that a copy went to or came from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Remote {
    /// As typed: `[user@]host`.
    pub host: String,
    /// True where the source is on this host.
    pub is_push: bool,
    /// Time until the far side had answered.
    #[serde(deserialize_with = "number::or_nan")]
    pub login_s: f64,
    /// The least that TCP has measured; `None` where it was not read.
    pub rtt_min_s: Option<f64>,
}

/// A cell of a campaign: what was varied, and the times that are counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cell {
    /// Who chose the setting: `grid`, or `auto` for the program.
    pub choice: String,
    /// What ends the copy: a number of bytes, or a time.
    pub extent_bytes: Option<u64>,
    pub extent_s: Option<f64>,
    /// From the login to the last byte.
    pub moving_s: Option<f64>,
    /// Pause before the copy, in which nothing was copied.
    pub pause_s: Option<f64>,
    /// While the path was loaded.
    pub loaded_s: Option<f64>,
    pub compression_ratio: Option<f64>,
    pub cycles_per_byte_source: Option<f64>,
}

/// TCP's counts from the sending ends; the receive buffers are from the receiving ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tcp {
    pub segments_sent: u64,
    pub segments_retransmitted: u64,
    #[serde(deserialize_with = "number::or_nan")]
    pub busy_s: f64,
    #[serde(deserialize_with = "number::or_nan")]
    pub window_limited_s: f64,
    #[serde(deserialize_with = "number::or_nan")]
    pub buffer_limited_s: f64,
    pub rtt_min_s: Option<f64>,
    pub mss_bytes: Option<u32>,
    pub peer_window_p50_bytes: Option<f64>,
    pub peer_window_p90_bytes: Option<f64>,
    pub receive_threshold_bytes: Option<u32>,
    pub send_buffer_bytes: Option<u32>,
    pub receive_buffer_bytes: Option<u32>,
}

/// The place of a run in an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlaceInExperiment {
    /// The same for all runs of one command.
    pub experiment: String,
    pub scenario: Scenario,
    /// As text in JSON: it may be larger than the integers of SQL and of JavaScript.
    #[serde(with = "number::as_text")]
    pub seed: u64,
    /// Index of the run in the order in which they were made.
    pub order_index: u32,
    /// Which repeat of its cell this is, from 0.
    pub repeat: u32,
    /// The block of runs between two calibrations that it is in.
    pub block: u32,
}

/// The conditions of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// The requested cache state: `warm`, `cold`, or empty.
    pub cache: String,
    /// The share of the source file that was in the page cache before the run, where it is known.
    pub resident_before: Option<f64>,
    /// `memory`, `tcp` or `control`.
    pub carrier: String,
    /// File systems with their mount options, where an end is in files; of a copy to or from
    /// another host its end there without them.
    pub source_file_system: Option<String>,
    pub sink_file_system: Option<String>,
    /// CPUs with a soaker.
    pub soaked_cpus: Vec<u32>,
    /// Interrupts of all devices of the host that started the run, during the run.
    pub device_interrupts: Option<u64>,
    /// True where both ends were on one machine and shared its CPUs.
    pub is_one_machine: bool,
    /// True where files of that host are read from one device and written to another.
    pub has_two_devices: bool,
    /// Free space at the destination, from a dry run.
    pub free_bytes: Option<u64>,
}

/// What was moved, and how long it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Moved {
    /// Without those that an earlier run had copied.
    pub bytes: u64,
    /// Of these, bytes of holes: no disk and no network had them.
    pub hole_bytes: u64,
    pub files: u64,
    pub directories: u64,
    /// Files that were not copied.
    pub failed: u64,
    /// Destination files that were left as they were.
    pub kept: u64,
    /// Names at the destination that the source does not have, and that were removed.
    pub deleted: u64,
    /// Names excluded by filters.
    pub excluded: u64,
    /// Bytes and files that an earlier run had copied.
    pub resumed_bytes: u64,
    pub held_files: u64,
    pub wire_bytes: u64,
    /// From the first message of the transfer to the last.
    #[serde(deserialize_with = "number::or_nan")]
    pub elapsed_s: f64,
    /// `bytes` without holes over the time since the login.
    #[serde(deserialize_with = "number::or_nan")]
    pub goodput_bytes_per_s: f64,
    /// The rate once it was steady, and since when; `None` where it never was.
    pub steady_bytes_per_s: Option<f64>,
    pub steady_from_s: Option<f64>,
    /// How often a lost connection was re-established.
    pub retries: u32,
    /// Segments with data that TCP sent, by its last samples.
    pub segments_sent: Option<f64>,
    pub exit_code: u8,
}

impl Moved {
    /// What was read, sent and written: without holes. Rates are of these.
    pub fn data_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.hole_bytes)
    }
}

/// One side of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Side {
    /// The environment that it ran in, a row of the store; 0 before it is stored.
    pub environment: i64,
    /// The CPUs that it was bound to; empty for all.
    pub cpus: Vec<u32>,
    #[serde(deserialize_with = "number::or_nan")]
    pub cpu_user_s: f64,
    #[serde(deserialize_with = "number::or_nan")]
    pub cpu_system_s: f64,
    /// CPU time that kernel threads used for it, by name.
    #[serde(deserialize_with = "number::all_or_nan")]
    pub kernel_threads_s: BTreeMap<String, f64>,
    /// Payload that went through its lanes, and its size on the wire; 0 in older records.
    pub bytes: u64,
    pub wire_bytes: u64,
    pub requests: u64,
    pub calls: u64,
    pub partial_returns: u64,
    /// Bytes returned by those calls.
    pub partial_bytes: u64,
    /// File requests submitted while no other of their lane was in flight: each may have had to
    /// wake up the device.
    pub starts: u64,
    #[serde(deserialize_with = "number::or_nan")]
    pub fill_s: f64,
    #[serde(deserialize_with = "number::or_nan")]
    pub pass_s: f64,
    #[serde(deserialize_with = "number::or_nan")]
    pub gate_s: f64,
    #[serde(deserialize_with = "number::or_nan")]
    pub drain_s: f64,
    /// By stage: digest, codec, seal.
    #[serde(deserialize_with = "number::all_or_nan")]
    pub stages_s: BTreeMap<String, f64>,
    pub peak_memory_bytes: u64,
    pub planned_memory_bytes: u64,
    /// The engine that ran.
    pub engine: String,
    pub depth: u16,
    pub congestion: String,
    /// The largest window that the sink's TCP advertised; 0 where unknown.
    pub window_seen_bytes: u64,
    /// The window scale of TCP, in bits, as negotiated in the first packets.
    pub window_scale: Option<u8>,
    /// The rate that `--pace auto` chose for all streams together; `None` where it saw no need.
    pub pace_chosen_bytes_per_s: Option<u64>,
}

impl Side {
    /// CPU time of this side: its own threads, and the kernel threads charged to it.
    pub fn cpu_s(&self) -> f64 {
        self.cpu_user_s + self.cpu_system_s + self.kernel_threads_s.values().sum::<f64>()
    }
}

/// What a whole machine did during a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    pub cpus: u32,
    #[serde(deserialize_with = "number::or_nan")]
    pub span_s: f64,
    /// All CPUs' time less idle, iowait and stolen time, as the kernel counts.
    #[serde(deserialize_with = "number::or_nan")]
    pub busy_idle_s: f64,
    /// The CPUs with a soaker. The next two are of these only.
    pub soaked_cpus: Vec<u32>,
    /// The same from the soaker's iterations and from its own CPU clock; `None` without a soaker.
    pub busy_iter_s: Option<f64>,
    pub busy_clock_s: Option<f64>,
    /// CPU time of others while nothing was measured, scaled to this run.
    pub background_s: Option<f64>,
    #[serde(deserialize_with = "number::or_nan")]
    pub steal_s: f64,
    /// Every kernel thread that ran, by name, and the CPU it is bound to.
    pub kernel_threads: Vec<KernelThread>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelThread {
    /// Without what changes from boot to boot: `ksoftirqd/0`, `kworker/u8-writeback`, `jbd2/vda1`.
    pub name: String,
    pub cpu: Option<u32>,
    #[serde(deserialize_with = "number::or_nan")]
    pub cpu_s: f64,
}

/// Something that must hold for a run to count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// `drift`, `background`, `steal`, `intrusion`, `memory`, …
    pub name: String,
    #[serde(deserialize_with = "number::or_nan")]
    pub value: f64,
    #[serde(deserialize_with = "number::or_nan")]
    pub limit: f64,
    pub passed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeriesPoint {
    #[serde(deserialize_with = "number::or_nan")]
    pub at_s: f64,
    pub bytes: u64,
}

/// Round-trip times of probes to the other host, at rest and under the load of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundTrips {
    /// What carried the probes: `icmp` or `tcp`.
    pub method: String,
    pub unloaded: Probes,
    pub loaded: Probes,
    /// How late the latest probe was sent.
    #[serde(deserialize_with = "number::or_nan")]
    pub late_max_s: f64,
}

/// Probes in one state of the path. One that takes longer than a second counts as lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Probes {
    pub sent: u32,
    pub lost: u32,
    /// Of those that returned; `None` where none did.
    pub min_s: Option<f64>,
    pub median_s: Option<f64>,
    pub p95_s: Option<f64>,
}

/// A prediction made before the run: the middle, and the limits of the likely range.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Predicted {
    #[serde(deserialize_with = "number::or_nan")]
    pub elapsed_low_s: f64,
    #[serde(deserialize_with = "number::or_nan")]
    pub elapsed_s: f64,
    #[serde(deserialize_with = "number::or_nan")]
    pub elapsed_high_s: f64,
    /// Of both sides, where both ends are in one process.
    #[serde(deserialize_with = "number::or_nan")]
    pub cpu_source_low_s: f64,
    #[serde(deserialize_with = "number::or_nan")]
    pub cpu_source_s: f64,
    #[serde(deserialize_with = "number::or_nan")]
    pub cpu_source_high_s: f64,
    #[serde(deserialize_with = "number::or_nan")]
    pub cpu_sink_low_s: f64,
    #[serde(deserialize_with = "number::or_nan")]
    pub cpu_sink_s: f64,
    #[serde(deserialize_with = "number::or_nan")]
    pub cpu_sink_high_s: f64,
    /// The part that is predicted to be the bottleneck.
    pub binding: String,
    /// `None` in older records.
    pub rate_low_bytes_per_s: Option<f64>,
    pub rate_bytes_per_s: Option<f64>,
    pub rate_high_bytes_per_s: Option<f64>,
    /// Assumptions of the prediction, where it does not rest on measurements.
    pub notes: Vec<String>,
}

/// The environment of runs, captured once for all that share it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    pub host: String,
    /// Every fact by name: `kernel`, `cpu_model`, `cpus`, `mhz`, `virtualization`, `clocksource`,
    /// `hz`, `sysctl net.ipv4.tcp_rmem`, …
    pub facts: BTreeMap<String, String>,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}
