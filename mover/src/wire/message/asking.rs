//! What is asked of a far side that moves nothing: to list a folder, or to read files again that a
//! receipt names.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use super::TEXT_BYTES_MAX;
use super::fields::{get_choice, get_fault, get_list, put_fault};
use crate::wire::reader::{Reader, Writer};
use base::fault::Fault;
use base::job::Verified;
use base::limits::{NAME_BYTES_MAX, PATH_BYTES_MAX};
use base::listing::{Item, ItemKind, Sum};
use base::settings::Moment;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// What is in this folder; with the sums of what is below each of its folders, or without.
    List { path: PathBuf, sums: bool },
    /// Whether the files below this folder are those of a receipt, which comes in pieces.
    Verify { path: PathBuf, receipt: ReceiptForm },
}

/// How a receipt is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptForm {
    /// As messages name it.
    pub shown: String,
    /// Its paths are written as in BagIt.
    pub is_bagit: bool,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Names in the folder.
    Items(Vec<Item>),
    /// All of them were told.
    Listed,
    /// How far it has come.
    Progress { found: Sum, done: Sum },
    /// A file that is what the receipt says.
    Matches { path: Vec<u8>, bytes: u64, digest: Option<String> },
    /// One that is not, or that cannot be read.
    Differs { path: Vec<u8>, fault: Fault },
    /// All files were read; with the kinds of digests that they had.
    Verified { found: Verified, kinds: Vec<String> },
}

/// Items of one answer: each may be a path of 4 KiB to another.
pub const ITEMS_MAX: usize = 12;
/// Bytes of a receipt in one piece.
pub const PIECE_BYTES_MAX: usize = 60 << 10;
const KINDS_MAX: usize = 64;

pub(super) fn put_ask(out: &mut Writer, ask: &Ask) {
    match ask {
        Ask::List { path, sums } => {
            out.u8(1);
            out.bytes(path.as_os_str().as_bytes());
            out.flag(*sums);
        }
        Ask::Verify { path, receipt } => {
            out.u8(2);
            out.bytes(path.as_os_str().as_bytes());
            out.text(&receipt.shown, TEXT_BYTES_MAX);
            out.flag(receipt.is_bagit);
        }
    }
}

pub(super) fn get_ask(from: &mut Reader<'_>) -> Result<Ask, Fault> {
    let kind = from.u8()?;
    let path = OsString::from_vec(from.bytes(PATH_BYTES_MAX)?.to_vec()).into();
    match kind {
        1 => Ok(Ask::List { path, sums: from.flag()? }),
        2 => {
            let shown = from.text(TEXT_BYTES_MAX)?;
            Ok(Ask::Verify { path, receipt: ReceiptForm { shown, is_bagit: from.flag()? } })
        }
        other => Err(Fault::peer(format!("the peer asks for something unknown ({other})"))),
    }
}

pub(super) fn put_answer(out: &mut Writer, answer: &Answer) {
    match answer {
        Answer::Items(items) => {
            out.u8(1);
            out.u16(items.len() as u16);
            items.iter().for_each(|item| put_item(out, item));
        }
        Answer::Listed => out.u8(2),
        Answer::Progress { found, done } => {
            out.u8(3);
            put_sum(out, *found);
            put_sum(out, *done);
        }
        Answer::Matches { path, bytes, digest } => {
            out.u8(4);
            out.bytes(&path[..path.len().min(PATH_BYTES_MAX)]);
            out.u64(*bytes);
            out.option(digest.as_ref(), |out, digest| out.text(digest, TEXT_BYTES_MAX));
        }
        Answer::Differs { path, fault } => {
            out.u8(5);
            out.bytes(&path[..path.len().min(PATH_BYTES_MAX)]);
            put_fault(out, fault);
        }
        Answer::Verified { found, kinds } => {
            out.u8(6);
            let Verified { files, bytes, differing, missing, unreadable } = *found;
            [files, bytes, differing, missing, unreadable].into_iter().for_each(|it| out.u64(it));
            out.u16(kinds.len() as u16);
            kinds.iter().for_each(|kind| out.text(kind, NAME_BYTES_MAX));
        }
    }
}

pub(super) fn get_answer(from: &mut Reader<'_>) -> Result<Answer, Fault> {
    Ok(match from.u8()? {
        1 => Answer::Items(get_list(from, ITEMS_MAX, get_item)?),
        2 => Answer::Listed,
        3 => Answer::Progress { found: get_sum(from)?, done: get_sum(from)? },
        4 => Answer::Matches {
            path: from.bytes(PATH_BYTES_MAX)?.to_vec(),
            bytes: from.u64()?,
            digest: from.option(|from| from.text(TEXT_BYTES_MAX))?,
        },
        5 => {
            Answer::Differs { path: from.bytes(PATH_BYTES_MAX)?.to_vec(), fault: get_fault(from)? }
        }
        6 => Answer::Verified {
            found: Verified {
                files: from.u64()?,
                bytes: from.u64()?,
                differing: from.u64()?,
                missing: from.u64()?,
                unreadable: from.u64()?,
            },
            kinds: get_list(from, KINDS_MAX, |from| from.text(NAME_BYTES_MAX))?,
        },
        other => {
            return Err(Fault::peer(format!("the peer answers something unknown ({other})")));
        }
    })
}

fn put_item(out: &mut Writer, item: &Item) {
    out.bytes(&item.name[..item.name.len().min(PATH_BYTES_MAX)]);
    out.u8(item.kind as u8);
    out.option(item.bytes, |out, bytes| out.u64(bytes));
    out.option(item.mtime, |out, mtime| {
        out.i64(mtime.seconds);
        out.u32(mtime.nanos);
    });
    out.option(item.mode, |out, mode| out.u32(mode));
    out.option(item.owner.as_ref(), |out, (user, group)| {
        out.text(user, NAME_BYTES_MAX);
        out.text(group, NAME_BYTES_MAX);
    });
    out.bytes(&item.link_target[..item.link_target.len().min(PATH_BYTES_MAX)]);
    out.option(item.below, put_sum);
}

fn get_item(from: &mut Reader<'_>) -> Result<Item, Fault> {
    Ok(Item {
        name: from.bytes(PATH_BYTES_MAX)?.to_vec(),
        kind: get_choice(from, ItemKind::from_code)?,
        bytes: from.option(|from| from.u64())?,
        mtime: from.option(|from| Ok(Moment { seconds: from.i64()?, nanos: from.u32()? }))?,
        mode: from.option(|from| from.u32())?,
        owner: from.option(|from| Ok((from.text(NAME_BYTES_MAX)?, from.text(NAME_BYTES_MAX)?)))?,
        link_target: from.bytes(PATH_BYTES_MAX)?.to_vec(),
        below: from.option(get_sum)?,
    })
}

fn put_sum(out: &mut Writer, sum: Sum) {
    out.u64(sum.files);
    out.u64(sum.bytes);
}

fn get_sum(from: &mut Reader<'_>) -> Result<Sum, Fault> {
    Ok(Sum { files: from.u64()?, bytes: from.u64()? })
}

/// A piece of a receipt, and whether it is the last.
pub(super) fn put_piece(out: &mut Writer, bytes: &[u8], last: bool) {
    out.flag(last);
    out.bytes(bytes);
}

pub(super) fn get_piece(from: &mut Reader<'_>) -> Result<(Vec<u8>, bool), Fault> {
    let last = from.flag()?;
    Ok((from.bytes(PIECE_BYTES_MAX)?.to_vec(), last))
}
