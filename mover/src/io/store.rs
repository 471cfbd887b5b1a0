//! An object store as the mover uses it: a volume whose files are objects. A package of its own
//! implements it; no type of a client is known here.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::volume::{Metadata, Mtime, Replace, Segment, Volume};
use base::attributes::Attributes;
use base::fault::Fault;
use base::job::ObjectUrl;

/// The object stores that a program can reach, with their credentials and options.
pub trait Stores: Send + Sync + fmt::Debug {
    /// The objects below a URL, which is the root of the volume. Nothing is asked yet.
    fn open(&self, url: &ObjectUrl) -> Result<Arc<dyn Store>, Fault>;
}

/// A volume of objects. An object appears whole or not at all; its name until then is one of the
/// volume alone, and never reaches the store.
pub trait Store: Volume {
    /// Fails where nothing could be done: wrong credentials, or no such bucket.
    fn check(&self) -> Result<(), Fault>;
    /// Reports everything below the root in the order of keys, until `take` returns false. With
    /// `Details::All` each has its own mode and time, which costs a request for each.
    fn list(&self, details: Details, take: &mut dyn FnMut(Listed) -> bool) -> Result<(), Fault>;
    /// What has exactly this key; `None` where nothing has it.
    fn look(&self, path: &[u8]) -> Result<Option<Listed>, Fault>;
    /// True where keys begin with this path and a slash.
    fn is_folder(&self, path: &[u8]) -> Result<bool, Fault>;
    /// Reads small objects whole, many at a time. Returns those that failed.
    fn read_many(&self, segments: &[Segment], into: &mut [u8]) -> Vec<(u16, Fault)>;
    /// Writes small objects whole, many at a time. Returns those that failed; `skip` are not to be
    /// written.
    fn write_many(&self, segments: &[Segment], skip: &[u16], from: &[u8]) -> Vec<(u16, Fault)>;
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
}

/// An open object: read or written in ranges, in any order, by any number of threads. A call waits
/// until the store has answered.
pub trait Object: Send + Sync + fmt::Debug {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<u32>;
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<u32>;
    /// Whether what is read still has this size and time. Every range is of one object, or fails.
    fn is_still(&self, then: (u64, Mtime)) -> bool;
    /// Why a call failed: an error number does not say it.
    fn fault(&self) -> Option<Fault>;
}
