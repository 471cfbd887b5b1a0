//! A transfer as it is ordered (source, destination, options), and its outcome.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use super::cpus::Cpus;
use super::path::PathSample;
use super::reason::{Changes, Reason};
use super::settings::{DataSet, Moment, Settings, choice};
use super::stream_steps::StreamStep;
use super::tally::SideReport;
use super::units::{Nanos, Rate};
use crate::addresses::AddressList;

/// One end of a transfer on its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A file or a tree, as typed: a trailing slash has a meaning, so it is kept.
    Path(PathBuf),
    /// Standard input as a source, standard output as a sink.
    Stdio,
    /// No bytes are generated, and none are read; a source states how many it stands for.
    Null { len: u64 },
    /// Zero bytes, written into memory.
    Zero { len: u64 },
    /// Pseudo-random bytes, the same for every run with that seed.
    Random { len: u64, seed: u64 },
    /// Bytes that compress like data of a kind, generated from a seed.
    Synthetic { set: DataSet, len: u64, seed: u64 },
    /// `Null` without an end: the source runs until it is stopped. Only a source.
    Endless,
    /// `Synthetic` without an end: the source runs until it is stopped. Only a source.
    EndlessSynthetic { set: DataSet, seed: u64 },
    /// An object, or all objects whose keys begin with this one and a slash. Only on the host where
    /// the program was started.
    Object(ObjectUrl),
}

/// `s3://bucket/key`, as typed: a trailing slash has a meaning, so it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectUrl {
    pub bucket: String,
    pub key: String,
}

impl ObjectUrl {
    /// True for what can only be a folder.
    pub fn means_folder(&self) -> bool {
        self.key.is_empty() || self.key.ends_with('/')
    }
}

impl fmt::Display for ObjectUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.key)
    }
}

impl Location {
    /// True for a source that runs until it is stopped.
    pub fn is_endless(&self) -> bool {
        matches!(self, Location::Endless | Location::EndlessSynthetic { .. })
    }
}

choice!(
    /// Whether the far side's program is sent to its host. `Auto`: where it has none that fits.
    Install { Auto = "auto", Never = "never", Always = "always", }
);

/// How the far side is reached and started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The command that replaces `ssh`, with its arguments; the host and the far command follow.
    pub ssh: Option<Vec<String>>,
    /// The far side's program; `datapump` in the far PATH when not given, or one that is sent.
    pub datapump: Option<String>,
    /// Whether a program is sent.
    pub install: Install,
    /// Ports that the far side may listen on, both ends included.
    pub ports: Option<(u16, u16)>,
    /// Where data connections may go besides the addresses of the host that was typed.
    pub addresses: AddressList,
    /// How long reconnecting is tried before the transfer ends; 0 for not at all.
    pub retry_for: Nanos,
    /// The CPUs that the far side is bound to; any where not given.
    pub cpus: Option<Cpus>,
    /// Where the far side turns out to be on this host, there are no more streams than it has CPUs:
    /// nobody has said how many there are to be.
    pub may_have_fewer_streams: bool,
}

impl Default for Remote {
    fn default() -> Remote {
        let retry_for = Nanos::from_millis(10 * 60 * 1000);
        let addresses = AddressList::default();
        Remote {
            ssh: None,
            datapump: None,
            install: Install::Auto,
            ports: None,
            addresses,
            retry_for,
            cpus: None,
            may_have_fewer_streams: false,
        }
    }
}

/// Where the list of names to copy is.
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
    /// The names below the only source to copy; everything where it is not set.
    pub listed: Option<Listed>,
    /// What of the only file to copy is wanted, where that is not all of it.
    pub range: Option<FileRange>,
    pub remote: Remote,
}

/// A part of a far file, which becomes a file of its own here, for its owner alone, and with the
/// digest of its part of the file's BLAKE3 tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRange {
    pub bytes: Range<u64>,
    /// What the file must be, so that its other parts fit.
    pub of_size: u64,
    pub of_mtime: Moment,
}

impl FileRange {
    /// The largest requests, at most of so many bytes, that its ends are between; 0 where there are
    /// none.
    pub fn request_bytes(&self, at_most: u32) -> u32 {
        let Range { start, end } = self.bytes;
        let ends = if end == self.of_size { start } else { start | end };
        let largest = 1_u64 << ends.trailing_zeros().min(u32::BITS - 1);
        let largest = u32::try_from(largest).unwrap_or(u32::MAX);
        largest.min(at_most.checked_ilog2().map_or(0, |log| 1 << log))
    }

    /// The rest of the file.
    pub fn outside(&self) -> Vec<(u64, u64)> {
        let ends = [(0, self.bytes.start), (self.bytes.end, self.of_size)];
        ends.into_iter().filter(|(start, end)| start < end).collect()
    }
}

/// What carries the bytes between the two sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// Both ends are in this process.
    #[default]
    Memory,
    /// TCP streams to the far side's port.
    Tcp,
    /// The control connection: no data port was reached, or none before all was copied.
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
    /// Names at the destination that its source does not have: removed, or found in a dry run.
    pub deleted: u64,
    /// What filters left out: files, and folders with all that is in them.
    pub excluded: u64,
    /// Bytes that were there from an earlier run.
    pub resumed_bytes: u64,
    /// Files that an earlier run had finished.
    pub held_files: u64,
    /// How often a lost connection was restored.
    pub retries: u32,
    /// Free space at the destination, which a dry run looks up; `None` for a real run.
    pub dry: Option<FreeSpace>,
    /// The exit code's class when something failed: the most serious of the objects' faults.
    pub worst: Option<super::fault::Class>,
    pub bytes: u64,
    pub elapsed: Nanos,
    /// The part of `elapsed` before the far side's first answer; zero without a far side.
    pub login: Nanos,
    pub streams: u16,
    /// The request size in use: a limited rate makes it smaller.
    pub request_bytes: u32,
    pub carrier: Carrier,
    /// True when this process was the source (a push or a local copy).
    pub near_is_source: bool,
    pub near: SideReport,
    /// `None` when both ends were in this process; then `near` covers both.
    pub far: Option<SideReport>,
    /// Samples of each TCP stream from both of its ends, lost and replaced streams too.
    pub paths: Vec<StreamPath>,
    /// How the number of streams was chosen, where that was left to the program.
    pub stream_steps: Vec<StreamStep>,
}

impl Outcome {
    /// Bytes that were moved in this run, without those that an earlier run left.
    pub fn moved_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.resumed_bytes)
    }

    /// The time in which bytes could move: from the far side's first answer to the end.
    pub fn moving(&self) -> Nanos {
        self.elapsed - self.login
    }

    /// True where both ends were on one machine, and shared its CPUs.
    pub fn is_one_machine(&self) -> bool {
        let near = &self.near.about.machine;
        let far = self.far.as_ref().map_or(near, |far| &far.about.machine);
        near == far && !near.is_empty()
    }

    /// Of the bytes that were moved, those of holes: no disk and no network had them. A lost stream
    /// may have carried some twice.
    pub fn hole_bytes(&self) -> u64 {
        self.near.tally.hole_bytes.min(self.moved_bytes())
    }

    /// The rate of a run, the same wherever it is reported: of the bytes that are not holes.
    pub fn rate(&self) -> Rate {
        Rate::of(self.moved_bytes() - self.hole_bytes(), self.moving())
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

/// Which host took the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathSide {
    /// The one that a person started.
    Near,
    Far,
}

/// What that host does on the stream.
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

/// Free space at the destination, as a dry run found it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeSpace {
    /// `None` where the destination is on no file system of the host that was asked.
    pub free_bytes: Option<u64>,
    /// How much more the copy needs; of several file systems that it writes to, the first that
    /// lacks space is told of.
    pub missing_bytes: u64,
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
    /// The class of the exit code when a file differs, is missing or cannot be read.
    pub fn worst(&self) -> Option<super::fault::Class> {
        match self {
            Verified { differing: 1.., .. } => Some(super::fault::Class::Corrupt),
            Verified { missing: 0, unreadable: 0, .. } => None,
            _ => Some(super::fault::Class::SomeFailed),
        }
    }
}

/// What cleaning a folder reports of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CleanEvent {
    /// It was removed, or would be.
    Removed {
        path: PathBuf,
        bytes: u64,
    },
    /// A running transfer holds it.
    Held(PathBuf),
    /// An upload to an object store that is not old enough to be called abandoned.
    Young(PathBuf),
    Failed(super::fault::Fault),
}

/// Whether files are removed or only reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleaning {
    Remove,
    Tell,
}

/// The totals of cleaning a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    pub files: u64,
    pub bytes: u64,
    pub held: u64,
    pub young: u64,
    pub failed: u64,
}

impl Cleaned {
    pub fn add(&mut self, other: &Cleaned) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.held += other.held;
        self.young += other.young;
        self.failed += other.failed;
    }
}

/// What is told of as a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    File,
    /// Another name of a file: it has that file's digests, and no bytes were moved for it.
    HardLink,
    SymbolicLink,
}

/// What a user is told while a transfer runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    Warning(String),
    /// The connection was lost and a new attempt begins: the counts so far start over.
    Again(String),
    /// An object has its final name (or, for null and pipes, all its bytes have arrived).
    FileDone {
        path: Vec<u8>,
        kind: FileKind,
        bytes: u64,
        /// `None` where nothing was copied.
        reason: Option<Reason>,
        digest: Option<String>,
        /// Digests besides.
        extra: super::extra::ExtraSums,
    },
    /// A dry run found that this would be copied.
    WouldCopy {
        path: Vec<u8>,
        kind: FileKind,
        bytes: u64,
        reason: Reason,
    },
    /// What is there has got the mode and the owner of its source.
    Adjusted {
        path: Vec<u8>,
        changes: Changes,
    },
    /// A dry run found that it would.
    WouldAdjust {
        path: Vec<u8>,
        changes: Changes,
    },
    FileFailed {
        path: Vec<u8>,
        fault: super::fault::Fault,
    },
    /// A name that the source does not have was removed from the destination.
    Deleted {
        path: Vec<u8>,
    },
    /// A dry run found that this would be removed.
    WouldDelete {
        path: Vec<u8>,
    },
    /// The number of streams has changed, or is settled.
    Streams(StreamStep),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_request_is_in_a_range_and_outside_of_it() {
        let mib = 1 << 20;
        // Bytes, the size of the file, the largest requests, and what becomes of them.
        let cases = [
            (0..mib, 10 * mib, 4 << 20, 1 << 20),
            (mib..2 * mib, 10 * mib, 4 << 20, 1 << 20),
            (8 * mib..8 * mib + 1, 8 * mib + 1, 1 << 20, 1 << 20),
            (4 * mib..8 * mib, 9 * mib, 61 * 4096, 32 * 4096),
            (1024..2048, 2049, 1 << 20, 1024),
            (3..9, 20, 1 << 20, 1),
            (0..mib, 2 * mib, 0, 0),
        ];
        for (bytes, of_size, at_most, expect) in cases {
            let range = FileRange { bytes, of_size, of_mtime: Moment::default() };
            assert_eq!(range.request_bytes(at_most), expect, "{range:?}");
        }
    }

    #[test]
    fn the_rest_of_a_file_is_outside() {
        let outside = |bytes: Range<u64>| {
            FileRange { bytes, of_size: 9, of_mtime: Moment::default() }.outside()
        };
        assert_eq!(outside(0..4), [(4, 9)]);
        assert_eq!(outside(4..8), [(0, 4), (8, 9)]);
        assert_eq!(outside(8..9), [(0, 8)]);
    }
}
