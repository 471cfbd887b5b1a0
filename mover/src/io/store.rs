//! An object store as the mover uses it: a volume whose files are objects. A package of its own
//! implements it; no type of a client is known here.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use super::request::ExtraPiece;
use super::volume::{Metadata, Mtime, Replace, Segment, Status, Volume};
use base::attributes::Attributes;
use base::fault::Fault;
use base::job::ObjectUrl;

/// The object stores that a program can reach, with their credentials and options.
pub trait Stores: Send + Sync + fmt::Debug {
    /// The objects below a URL, which is the root of the volume. Nothing is asked yet.
    fn open(&self, url: &ObjectUrl) -> Result<Arc<dyn Store>, Fault>;
    /// How long the parts of an object are that is written.
    fn part_size(&self) -> PartSize;
    /// No call waits for an answer any more, soon after this is true.
    fn stop_when(&self, stopping: Stopping);
    /// Is told once a store refuses all requests, as of credentials that have expired.
    fn when_refused(&self, tell: TellRefused);
}

/// Whether the user has asked to stop.
pub type Stopping = Arc<dyn Fn() -> bool + Send + Sync>;

/// Takes the reason why nothing more can be done.
pub type TellRefused = Arc<dyn Fn(&Fault) + Send + Sync>;

/// Who says how long the parts of an object are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartSize {
    /// The user: a part is a request.
    #[default]
    AsRequests,
    /// The object: a long one has longer parts.
    ByLength,
}

/// A volume of objects. An object appears whole or not at all; its name until then is one of the
/// volume alone, and never reaches the store.
pub trait Store: Volume {
    /// Fails where nothing could be done: wrong credentials, or no such bucket.
    fn check(&self) -> Result<(), Fault>;
    /// Reports everything below the root in the order of keys, until `take` returns false. With
    /// `Details::All` each has its own mode and time, which costs a request for each.
    fn list(&self, details: Details, take: &mut dyn FnMut(Listed) -> bool) -> Result<(), Fault>;
    /// Reports what is directly below the root: objects, and folders, whose names end with a slash.
    fn list_folder(&self, take: &mut dyn FnMut(Listed) -> bool) -> Result<(), Fault>;
    /// What has exactly this key; `None` where nothing has it.
    fn look(&self, path: &[u8]) -> Result<Option<Listed>, Fault>;
    /// The folder of this host with the journals of what is written to the store. It is made where
    /// it does not exist.
    fn journals(&self) -> Result<Arc<dyn Volume>, Fault>;
    /// The parts that the store has of an upload to the object with this path, each with its
    /// checksum where the store tells one; `None` where the upload is gone.
    fn parts(&self, path: &[u8], id: &str) -> Result<Option<Vec<ListedPart>>, Fault>;
    /// Removes an upload that nobody will continue.
    fn abandon(&self, path: &[u8], id: &str);
    /// Why no object of this length can be written in parts of this one.
    fn refusal(&self, path: &[u8], size: u64, part_bytes: u32) -> Option<Fault>;
    /// True where keys begin with this path and a slash.
    fn is_folder(&self, path: &[u8]) -> Result<bool, Fault>;
    /// Reads small objects whole, many at a time. Returns those that failed.
    fn read_many(&self, segments: &[Segment], into: &mut [u8]) -> Vec<(u16, Fault)>;
    /// Writes small objects whole, many at a time. Returns what became of each but `skip`, which
    /// are not to be written. `extra` has what is known of their bytes.
    fn write_many(
        &self,
        segments: &[Segment],
        skip: &[u16],
        from: &[u8],
        extra: &[ExtraPiece],
    ) -> Vec<(u16, Result<Status, Fault>)>;
}

/// How much is asked of each object that is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Details {
    /// What the listing has.
    Listing,
    All,
}

/// An object that was found in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Below the root of the volume; one of a folder ends with a slash.
    pub path: Vec<u8>,
    pub size: u64,
    pub mtime: Mtime,
    /// Permissions, where the object has some.
    pub mode: Option<u32>,
    /// Owner and extended attributes, where the object has some.
    pub attributes: Option<Arc<Attributes>>,
    pub kind: ListedKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListedKind {
    File,
    /// A marker that stands for a folder.
    Folder,
    /// A symbolic link, with its target.
    Link(Vec<u8>),
    /// It could not be looked at.
    Failed(Fault),
}

/// What an object that is written becomes.
#[derive(Clone, Debug)]
pub struct NewObject {
    /// The name that it will have.
    pub path: Vec<u8>,
    /// `None` where it is known only at the end.
    pub size: Option<u64>,
    pub meta: Metadata,
    pub replace: Replace,
    /// It is written in parts of this size; the last one may be shorter.
    pub part_bytes: u32,
    /// What an earlier run has written of it.
    pub prior: Option<Arc<Upload>>,
}

/// What a store has of an object that is not complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upload {
    /// The store's name of it.
    pub id: String,
    /// By their offsets; each was acknowledged by the store.
    pub parts: BTreeMap<u64, UploadedPart>,
    /// In the store, and not known to be what belongs there: each is compared with the source's
    /// bytes when they come again.
    pub unproved: BTreeMap<u64, UploadedPart>,
}

/// A part of an upload, as the store has acknowledged it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadedPart {
    pub len: u64,
    /// CRC-64/NVME.
    pub sum: u64,
    /// The store's name of it, its ETag.
    pub tag: String,
}

/// A part that a store lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPart {
    /// Counted from 1.
    pub number: u64,
    pub len: u64,
    /// CRC-64/NVME, where the store tells it.
    pub sum: Option<u64>,
    pub tag: String,
}

impl Upload {
    /// The same with those of its parts that a store lists as they were written, and with what else
    /// is there of this size.
    pub fn found(&self, part_bytes: u32, listed: &[ListedPart]) -> Upload {
        let mut found = Upload { id: self.id.clone(), ..Upload::default() };
        for part in listed {
            let Some(offset) = part.number.checked_sub(1) else { continue };
            let Some(offset) = offset.checked_mul(part_bytes.into()) else { continue };
            let there = |sum| UploadedPart { len: part.len, sum, tag: part.tag.clone() };
            match (self.parts.get(&offset), part.sum) {
                (Some(known), sum) if there(sum.unwrap_or(known.sum)) == *known => {
                    found.parts.insert(offset, known.clone());
                }
                (_, Some(sum)) => {
                    found.unproved.insert(offset, there(sum));
                }
                (_, None) => {}
            }
        }
        found
    }
}

/// The device of objects whose number is the checksum of their bytes, or of a tag that follows from
/// their bytes: see `Status`.
pub const OBJECT_DEVICE: u64 = u64::MAX;

/// An open object: read or written in ranges, in any order, by any number of threads. A call waits
/// until the store has answered.
pub trait Object: Send + Sync + fmt::Debug {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<u32>;
    /// Writes a range, with its CRC-64/NVME where that is known.
    fn write_at(&self, at: u64, bytes: &[u8], crc64: Option<u64>) -> io::Result<u32>;
    /// Whether what is read still has this size and time. Every range is of one object, or fails.
    fn is_still(&self, then: (u64, Mtime)) -> bool;
    /// Why a call failed: an error number does not say it.
    fn fault(&self) -> Option<Fault>;
    /// The upload that writes it, with the parts acknowledged since the last call; `None` where it
    /// has not begun, or is none.
    fn take_parts(&self) -> Option<Upload> {
        None
    }
    /// What a store that tells no checksum will know it by: see `Status`. `None` where that is not
    /// known beforehand.
    fn number_by_tag(&self) -> Option<u64> {
        None
    }
    /// Length and CRC-64/NVME of all that was written, where that is all of it.
    fn written(&self) -> Option<(u64, u64)> {
        None
    }
}
