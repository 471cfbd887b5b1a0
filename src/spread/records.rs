//! What the files of a job folder contain: JSON, one value a file or one a line.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use analysis::shards::Claim;
use analysis::shards::lease::LeaseTimes;
use analysis::shards::overview::Waits;
use base::job::Install;
use base::settings::{Direct, EngineChoice, Links};

/// What a job is. Written once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The format of the folder, and the program's version: both must be a worker's own.
    pub format: u32,
    pub version: String,
    /// In hexadecimal; it is in the name of every staging folder.
    pub id: String,
    /// What the file `token` here and at the destination must say.
    pub token: String,
    pub sources: Vec<SourceRoot>,
    /// From the root.
    pub destination: String,
    /// The hosts that see the destination, where the nodes do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<FarHosts>,
    /// The hosts that see the sources, where the nodes do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_source: Option<FarHosts>,
    /// Nothing was at the destination when the job was planned.
    pub destination_was_empty: bool,
    pub copying: Copying,
    pub times: LeaseTimes,
    pub workers: usize,
    /// Larger files are cut into ranges.
    pub split_above: u64,
    /// As `--on` was typed.
    pub on: String,
    /// The command line that began it.
    pub command: Vec<String>,
    pub began_unix_s: u64,
}

/// Hosts that all see an end of the job under the same path. How ssh logs in there is not kept
/// here: that is what each node's own configuration says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FarHosts {
    /// `[USER@]HOST`, as ssh takes it.
    pub hosts: Vec<String>,
    /// The program there; the one in their PATH, or one that is sent, when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datapump: Option<String>,
    /// Whether a program is sent.
    pub install: String,
}

impl FarHosts {
    pub fn install(&self) -> Install {
        Install::parse(&self.install).unwrap_or(Install::Auto)
    }

    /// As it may be typed.
    pub fn name(&self) -> &str {
        self.hosts.first().map_or("", String::as_str)
    }
}

/// A folder whose content is copied, or that has a file which is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRoot {
    pub folder: String,
    /// What precedes its names at the destination; empty, or a name and a slash.
    pub prefix: String,
    /// The only name of it that is copied.
    pub only: Option<String>,
}

/// What a worker must know of how a job's files are copied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Copying {
    pub streams: u16,
    pub links: String,
    pub engine: String,
    pub direct: String,
    pub preserve: bool,
    /// A destination file of the same size and time is kept.
    pub skip_unchanged: bool,
    pub filters: Vec<String>,
    pub min_size: Option<u64>,
    pub max_size: Option<u64>,
    /// Each worker's part of the rate that all of them may have.
    pub bytes_per_second: Option<f64>,
}

impl Copying {
    pub fn links(&self) -> Option<Links> {
        Links::parse(&self.links)
    }

    pub fn engine(&self) -> Option<EngineChoice> {
        EngineChoice::parse(&self.engine)
    }

    pub fn direct(&self) -> Option<Direct> {
        Direct::parse(&self.direct)
    }
}

/// Whether the job goes on. It is replaced as a whole, and always there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    pub is_cancelled: bool,
    /// The destination has nothing of it any more: it cannot go on.
    #[serde(default)]
    pub is_given_up: bool,
}

impl Control {
    pub fn cancelled() -> Control {
        Control { is_cancelled: true, is_given_up: false }
    }
}

/// How far the plan is. It is replaced as a whole, and always there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanState {
    /// How many shards there are, once the plan is complete.
    pub planned: Option<u32>,
    pub files: u64,
    pub bytes: u64,
    pub folders: u64,
    /// What all shards so far are predicted to take on one node.
    pub predicted_s: f64,
    /// How many names could not be planned, and the first of them.
    pub failed: u64,
    pub unplanned: Vec<Failed>,
}

/// What a shard is: the first line of its file. Names follow, each with a NUL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    pub shard: u32,
    /// Which of the job's sources.
    pub source: usize,
    pub files: u64,
    pub bytes: u64,
    pub predicted_ns: u64,
    /// It is a part of its only name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// It puts its only name together, once other shards are done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<Whole>,
}

impl Shard {
    /// It is no range, and puts no ranges together.
    pub fn is_of_files(&self) -> bool {
        self.range.is_none() && self.whole.is_none()
    }
}

/// What became of a turn at which a shard could give a part of itself away: the first line of its
/// file; the names of the part follow. Who makes it first decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    pub by: Claim,
    pub worker: String,
    /// `None` where the turn was closed: the attempts before `by` can give nothing away.
    pub part: Option<Shard>,
}

/// A range of a file, and the file as it was planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    pub offset: u64,
    pub len: u64,
    pub size: u64,
    pub mtime_s: i64,
    pub mtime_ns: u32,
}

/// A file that is put together from the ranges that these shards have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whole {
    pub parts: Vec<u32>,
    pub size: u64,
    pub mtime_s: i64,
    pub mtime_ns: u32,
    /// `None` where mode and time are not kept.
    pub mode: Option<u32>,
}

/// A line of a ledger: what is about to be committed. And of a receipt: what was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    pub name: String,
    pub bytes: u64,
    /// In hexadecimal; a symbolic link has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// A line of a receipt: what failed, and for which class of reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    pub name: String,
    /// The exit code of its class.
    pub code: u8,
    pub why: String,
}

/// The first line of a receipt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShardDone {
    pub shard: u32,
    pub attempt: u32,
    pub worker: String,
    pub host: String,
    /// The far host that it was committed at, or that its source was read at last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<String>,
    pub files: u64,
    pub bytes: u64,
    pub kept: u64,
    pub failed: u64,
    /// Of the files, those that this attempt copied.
    pub moved_files: u64,
    pub moved_bytes: u64,
    /// What was predicted of the shard for what is other shards' by now.
    #[serde(default)]
    pub given_ns: u64,
    pub seconds: f64,
    pub waits: Waits,
}

/// Any other line of a receipt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ReceiptLine {
    Failed(Failed),
    Committed(Committed),
}

/// What a worker shows of itself with each beat.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Beat {
    pub beat: u64,
    /// As it was started; the file has a name of its own for each process.
    pub name: String,
    pub host: String,
    /// The far host that it logs in to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<String>,
    pub pid: u32,
    pub state: WorkerDoes,
    pub shard: Option<u32>,
    /// Committed so far, and of the shard under way.
    pub files: u64,
    pub bytes: u64,
    pub shard_files: u64,
    pub shard_bytes: u64,
    /// Copied of the shard, and not committed.
    #[serde(default)]
    pub unfinished_bytes: u64,
    pub failed: u64,
    /// Since the worker began.
    pub seconds: f64,
    pub waits: Waits,
    /// How it ended: the exit code.
    pub code: Option<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerDoes {
    /// It looks for a shard.
    #[default]
    Claiming,
    Copying,
    /// Nothing is free: it watches those who hold shards.
    Watching,
    Ended,
}

/// A line of an event log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventLine {
    pub time_utc: String,
    pub who: String,
    pub what: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// Bytes as text that returns: what is no UTF-8, a control character or a percent sign is `%XX`.
pub fn text_of(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '%' | '\0'..='\x1f' | '\x7f' => {
                    text.push_str(&format!("%{:02X}", u32::from(c)));
                }
                c => text.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("%{byte:02X}")));
    }
    text
}

/// `None` where a percent sign is followed by no two digits.
pub fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = after.get(..2)?;
        let digits = std::str::from_utf8(digits).ok().filter(|d| !d.starts_with('+'))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &after[2..];
    }
    Some(bytes)
}

pub fn text_of_path(path: &Path) -> String {
    text_of(path.as_os_str().as_bytes())
}

pub fn path_of(text: &str) -> Option<PathBuf> {
    bytes_of(text).map(|bytes| std::ffi::OsString::from_vec(bytes).into())
}

/// A name below a folder, as a path.
pub fn below(folder: &Path, name: &[u8]) -> PathBuf {
    folder.join(OsStr::from_bytes(name))
}

/// The format of job folders.
pub const FORMAT: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_return_from_text() {
        let quotes = "ü'\"".as_bytes();
        for name in [&b"a b"[..], b"100%", b"new\nline", b"\xff\xfe", quotes, b"", b"%4"] {
            let text = text_of(name);
            assert_eq!(bytes_of(&text).as_deref(), Some(name), "{text}");
            assert!(text.chars().all(|c| !c.is_control()), "{text}");
        }
        for wrong in ["%", "%4", "%zz", "%+1"] {
            assert_eq!(bytes_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn lines_of_a_receipt_are_told_apart() {
        let failed = Failed { name: "a".into(), code: 4, why: "b".into() };
        let committed = Committed { name: "a".into(), bytes: 4, digest: None };
        let text = |line: &ReceiptLine| serde_json::to_string(line).unwrap();
        for line in [ReceiptLine::Failed(failed), ReceiptLine::Committed(committed)] {
            assert_eq!(serde_json::from_str::<ReceiptLine>(&text(&line)).unwrap(), line);
        }
    }
}
