//! The records of a journal, and how they are encoded.

use crate::io::store::UploadedPart;
use crate::io::volume::{Identity, Mtime};
use crate::pump::sink::journal::{FileDigest, Key, Origin, TransferId};
use crate::wire::reader::{Reader, Writer};
use crate::work::digest::Node;
use base::fault::{Class, Fault};
use base::limits::{PATH_BYTES_MAX, REQUEST_BYTES_MAX, REQUEST_BYTES_MIN, REQUEST_BYTES_STEP};
use base::settings::DigestKind;
use crc_fast::{CrcAlgorithm, checksum};

/// One record of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Open {
        transfer: TransferId,
    },
    /// A temporary file that was created, and the size of the requests that fill it.
    Begin {
        file: u32,
        origin: Origin,
        request_bytes: u32,
        made: Identity,
    },
    Have {
        file: u32,
        ranges: Vec<(u64, u64)>,
        nodes: Vec<Node>,
    },
    Flushed {
        file: u32,
    },
    Done {
        files: Vec<(Key, FileDigest)>,
    },
    Drop {
        file: u32,
    },
    Forget {
        file: u32,
    },
    /// A folder that this transfer creates. It is recorded before that is done, except for the
    /// root, which holds the journal; only the root is identified by its inode.
    Folder {
        path: Vec<u8>,
        inode: u64,
    },
    /// The upload that writes a file to a store.
    Upload {
        file: u32,
        id: String,
    },
    /// Parts of that, by their offsets, which the store has acknowledged.
    Parts {
        file: u32,
        parts: Vec<(u64, UploadedPart)>,
    },
    /// The store is asked to make an object of all its parts.
    Completing {
        file: u32,
    },
}

pub(super) const VERSION: u8 = 3;

pub(super) const FRONT_BYTES: usize = 8;

/// Lists are cut so that a record fits; nothing longer is read.
pub(super) const RECORD_BYTES_MAX: usize = 256 << 10;

pub(super) const LIST_MAX: usize = 2048;

/// Bytes before the first file of a `Done`: front, kind, count.
pub(super) const DONE_FRONT_BYTES: usize = FRONT_BYTES + 3;

/// What a store may call an upload, and a part; one with a longer name is not recorded.
pub(super) const ID_BYTES_MAX: usize = 8 << 10;
pub(super) const TAG_BYTES_MAX: usize = 96;

/// Bytes of a digest and its kind.
pub(super) const MADE_BYTES: u64 = 33;

impl Record {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.raw(&[0; FRONT_BYTES]);
        self.encode_fields(&mut out);
        let length = out.bytes.len() - FRONT_BYTES;
        assert!(length <= RECORD_BYTES_MAX, "a record of {length} bytes");
        let check = checksum(CrcAlgorithm::Crc32Iscsi, &out.bytes[FRONT_BYTES..]) as u32;
        out.bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
        out.bytes[4..8].copy_from_slice(&check.to_le_bytes());
        out.bytes
    }

    pub(super) fn encode_fields(&self, out: &mut Writer) {
        match self {
            Record::Open { transfer } => {
                out.u8(1);
                out.u8(VERSION);
                out.raw(transfer);
            }
            Record::Begin { file, origin, request_bytes, made } => {
                out.u8(2);
                out.u32(*file);
                put_begin(out, origin, *request_bytes, made);
            }
            Record::Have { file, ranges, nodes } => {
                out.u8(3);
                out.u32(*file);
                out.u16(ranges.len() as u16);
                for (start, end) in ranges {
                    out.u64(*start);
                    out.u64(*end);
                }
                out.u16(nodes.len() as u16);
                for node in nodes {
                    out.u64(node.offset);
                    out.u64(node.len);
                    out.raw(&node.sum);
                }
            }
            Record::Flushed { file } => put_mark(out, 4, *file),
            Record::Done { files } => {
                out.u8(5);
                out.u16(files.len() as u16);
                for (key, made) in files {
                    out.raw(key);
                    out.option(*made, |out, (kind, sum)| {
                        out.u8(kind as u8);
                        out.raw(&sum);
                    });
                }
            }
            Record::Drop { file } => put_mark(out, 6, *file),
            Record::Forget { file } => put_mark(out, 7, *file),
            Record::Folder { path, inode } => {
                out.u8(8);
                out.bytes(path);
                out.u64(*inode);
            }
            Record::Upload { file, id } => {
                out.u8(9);
                out.u32(*file);
                out.bytes(id.as_bytes());
            }
            Record::Parts { file, parts } => {
                out.u8(10);
                out.u32(*file);
                put_parts(out, parts);
            }
            Record::Completing { file } => put_mark(out, 11, *file),
        }
    }

    /// The record at the start of these bytes, and its length; `None` when they hold no complete
    /// and valid one.
    pub fn decode(bytes: &[u8]) -> Option<(Record, usize)> {
        let front = bytes.get(..FRONT_BYTES)?;
        let length = u32::from_le_bytes(front[..4].try_into().ok()?) as usize;
        let check = u32::from_le_bytes(front[4..].try_into().ok()?);
        if length > RECORD_BYTES_MAX {
            return None;
        }
        let fields = bytes.get(FRONT_BYTES..FRONT_BYTES + length)?;
        if checksum(CrcAlgorithm::Crc32Iscsi, fields) as u32 != check {
            return None;
        }
        let mut from = Reader::new(fields);
        let record = Record::decode_fields(&mut from).ok()?;
        from.end().ok()?;
        Some((record, FRONT_BYTES + length))
    }

    pub(super) fn decode_fields(from: &mut Reader<'_>) -> Result<Record, Fault> {
        let unknown = || Fault::new(Class::Local, "a journal of another version");
        Ok(match from.u8()? {
            1 => match from.u8()? {
                VERSION => Record::Open { transfer: from.array()? },
                _ => return Err(unknown()),
            },
            2 => {
                let file = from.u32()?;
                let path = from.bytes(PATH_BYTES_MAX)?.to_vec();
                let size = from.u64()?;
                let mtime = Mtime { seconds: from.i64()?, nanos: from.u32()? };
                let digest = DigestKind::from_code(from.u8()?).ok_or_else(unknown)?;
                let origin = Origin { path, size, mtime, digest };
                let request_bytes = from.u32()?;
                if !(REQUEST_BYTES_MIN..=REQUEST_BYTES_MAX).contains(&request_bytes)
                    || !request_bytes.is_multiple_of(REQUEST_BYTES_STEP)
                {
                    return Err(unknown());
                }
                let (inode, owner) = (from.u64()?, from.u32()?);
                let born =
                    from.option(|from| Ok(Mtime { seconds: from.i64()?, nanos: from.u32()? }))?;
                let made = Identity { inode, owner, born };
                Record::Begin { file, origin, request_bytes, made }
            }
            3 => {
                let file = from.u32()?;
                let ranges = list(from, |from| Ok((from.u64()?, from.u64()?)))?;
                let nodes = list(from, |from| {
                    Ok(Node { offset: from.u64()?, len: from.u64()?, sum: from.array()? })
                })?;
                Record::Have { file, ranges, nodes }
            }
            4 => Record::Flushed { file: from.u32()? },
            5 => {
                let file = |from: &mut Reader<'_>| {
                    let key = from.array()?;
                    let made = from.option(|from| {
                        let kind = DigestKind::from_code(from.u8()?).ok_or_else(unknown)?;
                        Ok((kind, from.array()?))
                    })?;
                    Ok((key, made))
                };
                Record::Done { files: list(from, file)? }
            }
            6 => Record::Drop { file: from.u32()? },
            7 => Record::Forget { file: from.u32()? },
            8 => {
                let path = from.bytes(PATH_BYTES_MAX)?.to_vec();
                Record::Folder { path, inode: from.u64()? }
            }
            9 => Record::Upload { file: from.u32()?, id: from.text(ID_BYTES_MAX)? },
            10 => {
                let part = |from: &mut Reader<'_>| {
                    let (offset, len, sum) = (from.u64()?, from.u64()?, from.u64()?);
                    Ok((offset, UploadedPart { len, sum, tag: from.text(TAG_BYTES_MAX)? }))
                };
                Record::Parts { file: from.u32()?, parts: list(from, part)? }
            }
            11 => Record::Completing { file: from.u32()? },
            _ => return Err(unknown()),
        })
    }
}

/// A record that says one thing of a file.
fn put_mark(out: &mut Writer, kind: u8, file: u32) {
    out.u8(kind);
    out.u32(file);
}

fn put_parts(out: &mut Writer, parts: &[(u64, UploadedPart)]) {
    out.u16(parts.len() as u16);
    for (offset, part) in parts {
        out.u64(*offset);
        out.u64(part.len);
        out.u64(part.sum);
        out.bytes(part.tag.as_bytes());
    }
}

fn put_begin(out: &mut Writer, origin: &Origin, request_bytes: u32, made: &Identity) {
    out.bytes(&origin.path);
    out.u64(origin.size);
    out.i64(origin.mtime.seconds);
    out.u32(origin.mtime.nanos);
    out.u8(origin.digest as u8);
    out.u32(request_bytes);
    out.u64(made.inode);
    out.u32(made.owner);
    out.option(made.born, |out, born| {
        out.i64(born.seconds);
        out.u32(born.nanos);
    });
}

pub(super) fn list<T>(
    from: &mut Reader<'_>,
    item: impl Fn(&mut Reader<'_>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let count = usize::from(from.u16()?);
    if count > LIST_MAX {
        return Err(Fault::new(Class::Local, "a list that is longer than this journal's are"));
    }
    (0..count).map(|_| item(from)).collect()
}
