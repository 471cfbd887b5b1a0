//! Plain numbers that a lane adds up and a side reports: no clock, no atomics.

use super::codec::CompressionCounts;
use super::job::FreeSpace;
use super::units::Nanos;

/// What a passage does to a request, in the order it is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    Digest,
    Codec,
    Seal,
}

impl Stage {
    pub const COUNT: usize = 3;
    pub const NAMES: [&str; Stage::COUNT] = ["digest", "codec", "seal"];
}

/// How long requests took in each phase, summed over requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// From departure until the source has filled the request.
    pub fill: Nanos,
    /// In the steps of the passage.
    pub pass: Nanos,
    /// Waiting until the sink admits it.
    pub gate: Nanos,
    /// From admission until the sink has taken the bytes.
    pub drain: Nanos,
}

impl Life {
    #[inline]
    pub fn total(&self) -> Nanos {
        self.fill + self.pass + self.gate + self.drain
    }
}

/// What one lane did, or several added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub requests: u64,
    /// Payload bytes that went through.
    pub bytes: u64,
    /// Bytes of holes and of blocks of zeros in files with holes: neither sent nor written. Each
    /// side counts them for itself; they are not in its report.
    pub hole_bytes: u64,
    /// Bytes on the wire: frames, tags and TLS records included.
    pub wire_bytes: u64,
    pub life: Life,
    pub stages: [Nanos; Stage::COUNT],
    /// Calls to the operating system on data, or submissions to a ring.
    pub calls: u64,
    /// Calls that returned less than was asked for, and how much those returned in all.
    pub partial_returns: u64,
    pub partial_bytes: u64,
    /// File requests that started with no other of their lane in flight.
    pub starts: u64,
    /// Payload bytes by coding, where they were to be compressed; the source's side counts them.
    pub compression: CompressionCounts,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.hole_bytes += other.hole_bytes;
        self.wire_bytes += other.wire_bytes;
        self.life.fill += other.life.fill;
        self.life.pass += other.life.pass;
        self.life.gate += other.life.gate;
        self.life.drain += other.life.drain;
        for (mine, theirs) in self.stages.iter_mut().zip(other.stages) {
            *mine += theirs;
        }
        self.calls += other.calls;
        self.partial_returns += other.partial_returns;
        self.partial_bytes += other.partial_bytes;
        self.starts += other.starts;
        self.compression.add(&other.compression);
    }
}

/// What a host reports of itself, for predictions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Tells one machine from another until its next boot; nothing else can be read from it. Empty
    /// where it is not known.
    pub machine: String,
    /// The medium of its end: `tmpfs`, `ext4`, or `pipe`, `null`, `made`.
    pub file_system: String,
    /// The file system of the sink, where both ends are in one process; it is not sent.
    pub sink_file_system: String,
    /// How much of its sources was in the page cache before, estimated from a sample.
    pub resident_percent: Option<u8>,
    /// Its cost model, as JSON; empty where nothing has been measured.
    pub model: String,
}

/// What one host says about its part of a transfer when it has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SideReport {
    pub tally: Tally,
    pub cpu_user: Nanos,
    pub cpu_system: Nanos,
    pub peak_memory_bytes: u64,
    /// What buffers, TLS and sockets were planned to take, as printed.
    pub planned_memory_bytes: u64,
    /// The engine that ran, with the reason where it is not the one asked for.
    pub engine: String,
    pub depth: u16,
    pub congestion: String,
    /// The largest window that the peer's TCP advertised to us; 0 when unknown.
    pub window_seen_bytes: u64,
    /// The window scale option of the peer in bits (RFC 7323), on a TCP stream.
    pub window_scale: Option<u8>,
    /// The pace of all streams together at the end, where it was chosen here.
    pub pace_bytes_per_s: Option<u64>,
    /// Names that filters left out, on the host that has the source.
    pub excluded: u64,
    /// Free space at the destination, where a dry run asked for it.
    pub room: FreeSpace,
    pub about: About,
}
