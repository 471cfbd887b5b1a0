//! A transfer as it is meant: from where, to where, how; and what comes out of it.

use std::path::PathBuf;

use super::cpus::Cpus;
use super::path::PathSample;
use super::settings::{DataSet, Settings};
use super::tally::SideReport;
use super::units::{Nanos, Rate};
use crate::addresses::AddressList;

/// One end of a transfer on its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A file or a tree. As given: a trailing slash is kept, it has a meaning.
    Path(PathBuf),
    /// Standard input as a source, standard output as a sink.
    Stdio,
    /// No bytes are made and none are looked at; a source says how many it stands for.
    Null { len: u64 },
    /// Zero bytes, really made.
    Zero { len: u64 },
    /// Bytes from a seed, the same for every run of that seed.
    Random { len: u64, seed: u64 },
    /// Bytes that pack like data of a kind, from a seed.
    Synthetic { set: DataSet, len: u64, seed: u64 },
    /// Bytes that nobody makes, until somebody says that it is enough. Only a source.
    Endless,
    /// Bytes that pack like data of a kind, until it is enough. Only a source.
    EndlessSynthetic { set: DataSet, seed: u64 },
}

impl Location {
    /// True for a source that ends when somebody says that it is enough.
    pub fn is_endless(&self) -> bool {
        matches!(self, Location::Endless | Location::EndlessSynthetic { .. })
    }
}

/// How the far side is reached and started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The command and its arguments that stand for `ssh`; the host and the command follow them.
    pub ssh: Option<Vec<String>>,
    /// The far side's program; `datapump` in the far PATH when not given.
    pub datapump: Option<String>,
    /// Ports that the far side may listen on, both ends included.
    pub ports: Option<(u16, u16)>,
    /// Where data connections may go besides the addresses of the host that was typed.
    pub addresses: AddressList,
    /// How long a lost connection is made again before the transfer ends; 0 for not at all.
    pub retry_for: Nanos,
    /// The CPUs that the far side is held to; any where not given.
    pub cpus: Option<Cpus>,
}

impl Default for Remote {
    fn default() -> Remote {
        let retry_for = Nanos::from_millis(10 * 60 * 1000);
        let addresses = AddressList::default();
        Remote { ssh: None, datapump: None, ports: None, addresses, retry_for, cpus: None }
    }
}

/// Where the names to copy stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// `-` for standard input.
    pub file: PathBuf,
    /// Names end with a NUL byte instead of a line.
    pub nul: bool,
}

/// A whole transfer. At most one of the two hosts is set: host to host is refused when it is
/// parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub sources: Vec<Location>,
    /// `[user@]host` as `ssh` takes it (brackets of an IPv6 address removed).
    pub source_host: Option<String>,
    pub target: Location,
    pub target_host: Option<String>,
    pub settings: Settings,
    /// The names below the one source that are copied; everything where it is not set.
    pub listed: Option<Listed>,
    pub remote: Remote,
}

/// What carries the bytes between the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Both ends are in this process.
    Memory,
    /// TCP streams to the far side's port.
    Tcp,
    /// The control connection, because no data port could be reached.
    Control,
}

/// What a transfer that ran to its end did.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub files: u64,
    pub directories: u64,
    /// Objects that were not copied; each was named in a notice.
    pub failed: u64,
    /// Destination files that stay as they were: unchanged, or not older.
    pub kept: u64,
    /// Things that filters left out: files, and folders with all that is in them.
    pub excluded: u64,
    /// Bytes that were there from an earlier run.
    pub resumed_bytes: u64,
    /// Files that an earlier run had finished.
    pub held_files: u64,
    /// How often a lost connection was made again.
    pub retries: u32,
    /// What a dry run found of room at the destination; `None` for a real run.
    pub dry: Option<FreeSpace>,
    /// The exit code's class when something failed: the most serious of the objects' faults.
    pub worst: Option<super::fault::Class>,
    pub bytes: u64,
    pub elapsed: Nanos,
    /// How long it took of that until the far side had answered for the first time; nothing without
    /// one.
    pub login: Nanos,
    pub streams: u16,
    /// The size of requests as it was: a limited rate has smaller ones.
    pub request_bytes: u32,
    pub carrier: Carrier,
    /// True when this process was the source (a push or a local copy).
    pub near_is_source: bool,
    pub near: SideReport,
    /// `None` when both ends were in this process; then `near` speaks for both.
    pub far: Option<SideReport>,
    /// Each TCP stream as each of its ends saw it, lost and replaced ones too.
    pub paths: Vec<StreamPath>,
}

impl Outcome {
    /// Bytes that moved in this run; what an earlier one had left did not.
    pub fn moved_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.resumed_bytes)
    }

    /// The time in which bytes could move: from the far side's first answer to the end.
    pub fn moving(&self) -> Nanos {
        self.elapsed - self.login
    }

    /// The one rate of a run, wherever it is told.
    pub fn rate(&self) -> Rate {
        Rate::of(self.moved_bytes(), self.moving())
    }
}

/// One data stream over time, seen from one of its ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamPath {
    /// The stream's number; no two streams of a transfer have the same.
    pub stream: u32,
    pub side: PathSide,
    pub role: PathRole,
    /// In the order of time, on the clock of that side.
    pub samples: Vec<PathSample>,
}

/// Which host looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathSide {
    /// The one that a person started.
    Near,
    Far,
}

/// What the stream is to the host that looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathRole {
    /// It sends.
    Source,
    Sink,
}

impl PathSide {
    pub fn name(self) -> &'static str {
        match self {
            PathSide::Near => "near",
            PathSide::Far => "far",
        }
    }

    pub fn parse(text: &str) -> Option<PathSide> {
        [PathSide::Near, PathSide::Far].into_iter().find(|side| side.name() == text)
    }
}

impl PathRole {
    pub fn name(self) -> &'static str {
        match self {
            PathRole::Source => "source",
            PathRole::Sink => "sink",
        }
    }

    pub fn parse(text: &str) -> Option<PathRole> {
        [PathRole::Source, PathRole::Sink].into_iter().find(|role| role.name() == text)
    }

    pub fn other(self) -> PathRole {
        match self {
            PathRole::Source => PathRole::Sink,
            PathRole::Sink => PathRole::Source,
        }
    }
}

/// The room that a dry run found at the destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeSpace {
    /// `None` where the destination is no file system of the host that was asked.
    pub free_bytes: Option<u64>,
}

/// What re-reading the files of a receipt found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Files that are what the receipt says.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    pub differing: u64,
    pub missing: u64,
    pub unreadable: u64,
}

impl Verified {
    /// The exit code's class when not all is well.
    pub fn worst(&self) -> Option<super::fault::Class> {
        match self {
            Verified { differing: 1.., .. } => Some(super::fault::Class::Corrupt),
            Verified { missing: 0, unreadable: 0, .. } => None,
            _ => Some(super::fault::Class::SomeFailed),
        }
    }
}

/// What is told of one thing while a folder is cleaned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// It is gone, or would be.
    Removed {
        path: PathBuf,
        bytes: u64,
    },
    /// A running transfer holds it.
    Held(PathBuf),
    Failed(super::fault::Fault),
}

/// What cleaning came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    pub files: u64,
    pub bytes: u64,
    pub held: u64,
    pub failed: u64,
}

impl Cleaned {
    pub fn add(&mut self, other: &Cleaned) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.held += other.held;
        self.failed += other.failed;
    }
}

/// Something that people are told while a transfer runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    Warning(String),
    /// The connection was lost and a new attempt begins: what was heard so far starts over.
    Again(String),
    /// An object has its final name (or, for null and pipes, all its bytes have arrived).
    FileDone {
        path: Vec<u8>,
        bytes: u64,
        digest: Option<String>,
    },
    /// A dry run found that this would be copied.
    WouldCopy {
        path: Vec<u8>,
        bytes: u64,
    },
    FileFailed {
        path: Vec<u8>,
        fault: super::fault::Fault,
    },
}
