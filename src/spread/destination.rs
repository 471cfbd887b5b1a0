//! The destination's side of a job: what is asked of the storage on which files are committed. The
//! same steps are carried out by this process where it sees that storage, and otherwise by one at a
//! far host that does, through one login. docs/SPREAD.md says why each is as it is.

pub mod far;
pub(super) mod here;
mod joining;
mod refusals;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use rustix::fs::Stat;

use self::far::Far;
use self::here::Here;
use super::far::Hosts;
use super::folder::{JobFolder, holder_of};
use super::records::{below, bytes_of, text_of};
use analysis::shards::names;
use base::fault::Fault;
use mover::io::reach::SPREAD_FOLDER;

/// Bytes of a name or a path; in JSON as the job folder has them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Name(pub Vec<u8>);

impl From<Name> for String {
    fn from(name: Name) -> String {
        text_of(&name.0)
    }
}

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(text: String) -> Result<Name, String> {
        bytes_of(&text).map(Name).ok_or_else(|| format!("'{text}' is no name"))
    }
}

impl From<&Path> for Name {
    fn from(path: &Path) -> Name {
        Name(path.as_os_str().as_encoded_bytes().to_vec())
    }
}

/// Where a job's files go, and how what it has there is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestinationFolder {
    pub folder: Name,
    /// Of the job.
    pub id: String,
    /// What proves that a folder of this name is that of the job.
    pub token: String,
}

/// A name at the destination.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spot {
    /// Below the destination; the empty name is the destination itself.
    Final(Name),
    /// A range that is done, by the number of its shard, and the folder of all of them.
    Part(u32),
    Parts,
    /// In the staging folder of an attempt.
    Staged {
        attempt: String,
        name: Name,
    },
}

impl Spot {
    /// Its name below the destination, or in the folder that has what is the job's.
    fn name(&self) -> Vec<u8> {
        match self {
            Spot::Final(Name(name)) => name.clone(),
            Spot::Part(shard) => {
                [PARTS.as_bytes(), b"/", names::of_shard(*shard).as_bytes()].concat()
            }
            Spot::Parts => PARTS.into(),
            Spot::Staged { attempt, name: Name(name) } if name.is_empty() => attempt.clone().into(),
            Spot::Staged { attempt, name: Name(name) } => [attempt.as_bytes(), b"/", name].concat(),
        }
    }

    /// The folder that has it.
    pub fn above(&self) -> Spot {
        match self {
            Spot::Final(Name(name)) => {
                let end = name.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                Spot::Final(Name(name[..end].to_vec()))
            }
            Spot::Part(_) | Spot::Parts => Spot::Parts,
            Spot::Staged { attempt, .. } => {
                Spot::Staged { attempt: attempt.clone(), name: Name(Vec::new()) }
            }
        }
    }
}

impl DestinationFolder {
    pub fn of(folder: &JobFolder) -> DestinationFolder {
        let manifest = &folder.manifest;
        let (id, token) = (manifest.id.clone(), manifest.token.clone());
        DestinationFolder { folder: Name::from(&*folder.destination), id, token }
    }

    pub fn destination(&self) -> PathBuf {
        below(Path::new(""), &self.folder.0)
    }

    fn holder(&self) -> PathBuf {
        holder_of(&self.destination())
    }

    /// The staging folders of its attempts.
    pub fn staging(&self) -> PathBuf {
        self.holder().join(&self.id)
    }

    /// The same below the destination.
    fn inside(&self) -> Vec<u8> {
        [SPREAD_FOLDER, "/", &self.id].concat().into_bytes()
    }

    pub fn path(&self, spot: &Spot) -> PathBuf {
        match spot {
            Spot::Final(_) => below(&self.destination(), &spot.name()),
            _ => below(&self.staging(), &spot.name()),
        }
    }
}

/// The folder of ranges that are done.
const PARTS: &str = "parts";

/// One thing that is asked of the destination. Each may be carried out twice, or late: the answer
/// to a first try may have been lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Makes the destination if it is missing, and says where it is from the root.
    Prepare,
    /// Takes it for the job, which is in this folder: one job at a time has a destination.
    Take {
        job: String,
    },
    IsTaken,
    Tombstone(String),
    RemoveStaging(String),
    /// With a folder for each of so many tries to copy, if there are several.
    MakeStaging {
        attempt: String,
        tries: usize,
    },
    Look(Vec<Spot>),
    Digest(Spot),
    /// Each second name for what has the first; none is replaced.
    Link(Vec<(Spot, Spot)>),
    SyncFolders(Vec<Spot>),
    /// Goes on putting these ranges together in a staged file, which has so many bytes of them.
    Join {
        parts: Vec<u32>,
        staged: Spot,
        at: u64,
    },
    /// Such a file that has all of its bytes gets its mode and time, and is synced.
    Complete {
        staged: Spot,
        size: u64,
        look: Option<FileLook>,
    },
    RemoveParts(Vec<u32>),
    MakeFolders(Vec<Name>),
    SetFolders(Vec<FolderLook>),
    /// The names of attempts; nothing where the job has nothing there.
    ListStaging,
    /// No attempt at this shard commits anything any more.
    Fence(u32),
    /// Removes what the job has there.
    Leave,
}

/// Mode and time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLook {
    pub mode: u32,
    pub mtime_s: i64,
    pub mtime_ns: u32,
}

/// Mode and time of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderLook {
    pub name: Name,
    pub mode: u32,
    pub mtime_s: i64,
    pub mtime_ns: u32,
}

/// What a step came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Done,
    Yes,
    No,
    /// The name was there already.
    Stands,
    /// A staging folder has the name.
    Folder,
    /// There is more to do: the same step again.
    GoesOn,
    /// So many bytes are put together.
    Joined(u64),
    Prepared {
        folder: Name,
        was_empty: bool,
    },
    Found(Vec<Option<Found>>),
    Digest(Option<String>),
    Linked(Vec<Linked>),
    Names(Option<Vec<String>>),
    /// Of folders, those that were not made or set.
    Refused(Vec<Refused>),
}

/// A folder that a step did not make or set, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub name: Name,
    /// The exit code of its class.
    pub code: u8,
    pub why: String,
}

/// What has a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// File, folder or link: the bits of its mode that say so.
    pub kind: u32,
    pub size: u64,
    pub mtime_s: i64,
    pub mtime_ns: i64,
    /// Of a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Name>,
}

impl Found {
    pub(super) fn of(found: &Stat, target: Option<Name>) -> Found {
        Found {
            target,
            kind: found.st_mode & TYPE_BITS,
            size: found.st_size as u64,
            mtime_s: found.st_mtime,
            mtime_ns: found.st_mtime_nsec as i64,
        }
    }

    /// Whether a copy leaves it as it is: a link of the same target, or a file of the same size and
    /// time.
    pub fn is_as(&self, source: &Found) -> bool {
        match (&self.target, &source.target) {
            (Some(one), Some(other)) => one == other,
            _ => self == source,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Linked {
    Ours,
    /// Another file has the name.
    Exists,
    /// On the way to the name is a file or a link.
    Blocked,
    /// What was staged is not there any more.
    Gone,
}

/// A destination, as one process reaches it.
#[derive(Debug)]
pub enum Destination {
    Here(Here),
    Far(Box<Far>),
}

impl Destination {
    /// That of a job, for a worker of this name.
    pub fn of(folder: &JobFolder, worker: &str, ssh: Option<&[String]>) -> Destination {
        match &folder.manifest.far {
            Some(far) => Destination::Far(Box::new(Far::new(
                DestinationFolder::of(folder),
                far,
                worker,
                ssh,
            ))),
            None => Destination::here(DestinationFolder::of(folder)),
        }
    }

    pub fn here(place: DestinationFolder) -> Destination {
        Destination::Here(Here::new(place))
    }

    /// The same, where the job may have nothing there: no host must prove that it sees it.
    pub fn unchecked(self) -> Destination {
        match self {
            Destination::Far(far) => Destination::Far(Box::new(far.unchecked())),
            here => here,
        }
    }

    pub fn ask(&mut self, step: &Step) -> Result<Reply, Fault> {
        match self {
            Destination::Here(here) => here.carry_out(step),
            Destination::Far(far) => far.ask(step),
        }
    }

    pub fn place(&self) -> &DestinationFolder {
        match self {
            Destination::Here(here) => here.place(),
            Destination::Far(far) => far.place(),
        }
    }

    /// The same destination, by its path from the root and with the job's own id.
    pub(super) fn move_to(&mut self, to: DestinationFolder) {
        match self {
            Destination::Here(here) => *here = Here::new(to),
            Destination::Far(far) => far.move_to(to),
        }
    }

    pub fn far(&mut self) -> Option<&mut Far> {
        match self {
            Destination::Here(_) => None,
            Destination::Far(far) => Some(far),
        }
    }

    /// The far hosts that see it, where this process does not.
    pub fn hosts(&mut self) -> Option<&mut Hosts> {
        self.far().map(|far| &mut far.hosts)
    }

    /// The far host that is used now.
    pub fn host(&self) -> Option<&str> {
        match self {
            Destination::Here(_) => None,
            Destination::Far(far) => Some(far.hosts.host()),
        }
    }

    /// A name as the user would type it.
    pub fn shown(&self, spot: &Spot) -> String {
        let path = self.place().path(spot);
        match self.host() {
            Some(host) => format!("{host}:{}", path.display()),
            None => path.display().to_string(),
        }
    }

    /// True where this process sees the storage itself.
    pub fn is_here(&self) -> bool {
        matches!(self, Destination::Here(_))
    }
}

/// An answer to another question.
pub(super) fn strange(reply: &Reply) -> Fault {
    Fault::peer(format!("the destination's side gives an answer that makes no sense: {reply:?}"))
}

/// What says whether a mode is that of a file, a folder or a link.
const TYPE_BITS: u32 = 0o170_000;
