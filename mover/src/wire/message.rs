//! The messages of the control protocol, and how each is encoded.
//!
//! An envelope is `length u32 | type u8 | fields`; the length counts what follows it.

use super::manifest::Entry;
use super::reader::{Reader, Writer};
use base::codec::DecompressionTime;
use base::extra::ExtraSums;
use base::fault::{Class, Fault};
use base::job::Location;
use base::label::Sum;
use base::limits::{MESSAGE_BYTES_MAX, OFFER_ENTRIES_MAX, PATH_BYTES_MAX};
use base::path::PathSample;
use base::reason::Changes;
use base::secret::SharedSecret;
use base::settings::{Cut, Settings};
use base::tally::SideReport;
use base::units::Rate;

mod asking;
mod fields;
mod settings;

pub use self::asking::{Answer, Ask, ITEMS_MAX, PIECE_BYTES_MAX, ReceiptForm};

/// Sent before the far side's first message, so that the output of a shell can be skipped.
pub const MARK: &[u8; 16] = b"\0datapump-peer\0\n";

/// Protocol versions. One sentence each:
/// 1: offers, wants, acks; frames of 64 bytes; BLAKE3 or CRC-64 digests; no codec.
/// 2: what an earlier run left is not sent again; lost streams are replaced; hard links, holes,
/// attributes.
/// 3: a setting says how bodies are received; a report describes its host and its costs.
/// 4: the far side reports samples of its streams, where a setting says so. Settings for TCP
/// pacing, DSCP and lockstep; reports have the window scale and the pace. A source may be endless,
/// until its sink says that it is enough.
/// 5: payloads may be compressed: frames say how, a setting asks for it, reports count the results.
/// 6: a sink reports the time of decompression.
/// 7: preallocate may be auto, and a null end may cycle through many buffers.
/// 8: of files with holes only the data is sent; a run continues with the request size and the
/// digest of an earlier one.
/// 9: frames are sealed one by one, and digests may travel with the bytes.
/// 10: offers before the answers to Open, and the control connection may carry the first bytes.
/// 11: a sink may make the folders above its target, and may remove what its source does not have;
/// a far source expands `~USER` and wildcards.
/// 12: owners have names, and settings say whether they count, who gets the files of whom, and
/// where a sink keeps what it replaces or removes.
/// 13: the rate can be changed while the transfer runs; a pace that gives way to others.
/// 14: a sink may read again what it has written, and may compute digests besides, which it tells.
/// 15: samples have congestion marks, needless repetition, order and timeouts.
/// 16: the number of streams may change while a transfer runs: a driver ends some.
/// 19: a dry run says what is missing at its destination, and which files cannot be opened.
/// 20: a sink says in what objects differ that it replaces, and pairs the names of two trees; a
/// driver may ask for a listing, or for the files of a receipt, instead of a copy.
pub const VERSION_MIN: u16 = 20;
pub const VERSION_MAX: u16 = 20;

const TEXT_BYTES_MAX: usize = 4096;
/// Address ranges in one acknowledgement, and objects in one report of finished ones.
pub(crate) const RANGES_MAX: usize = 2048;
pub(crate) const FINISHED_MAX: usize = 1024;
/// Ranges that a sink reports to have already, in one Want. `HeldRanges` reports those above it.
pub(crate) const HELD_RANGES_MAX: usize = 4096;

/// Which end of the transfer a host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    Source = 1,
    Sink = 2,
}

impl Role {
    pub fn other(self) -> Role {
        match self {
            Role::Source => Role::Sink,
            Role::Sink => Role::Source,
        }
    }
}

/// What a source says about its objects before the first is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// One object that is not a directory: the target may be its new name.
    pub single: bool,
    /// A pipe: its length is known at the end.
    pub endless: bool,
}

/// What the driver asks of the far side.
#[derive(Clone, Debug, PartialEq)]
pub struct Open {
    /// The far side's role.
    pub role: Role,
    /// Its sources, or its one target.
    pub locations: Vec<Location>,
    pub settings: Settings,
    pub ports: Option<(u16, u16)>,
    pub secret: SharedSecret,
    /// BLAKE3 of the driver's certificate in DER form.
    pub fingerprint: [u8; 32],
    /// Set when the driver is the source.
    pub origin: Option<Origin>,
    /// Bytes past the lowest unsettled address that the driver's sink takes; 0 for any.
    pub window_bytes: u64,
    /// The same for every run of the same command: it identifies what an earlier run left.
    pub transfer: [u8; 16],
    /// The source copies only what it is told by `Names`.
    pub listed: bool,
}

/// The far side's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    pub fingerprint: [u8; 32],
    pub port: u16,
    /// Where the far side believes it can be reached, best first.
    pub addresses: Vec<String>,
    /// Set when the far side is the source.
    pub origin: Option<Origin>,
    /// Bytes past the lowest unsettled address that the far sink takes; 0 when the far side is the
    /// source.
    pub window_bytes: u64,
    /// The name that a single object gets, where the target is no folder.
    pub rename: Option<Vec<u8>>,
    /// How a far sink needs objects cut: as it was asked to, unless earlier runs did otherwise.
    pub cut: Cut,
}

/// What a sink wants of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedRanges {
    Nothing,
    All,
    /// All but these ranges, which it has from an earlier run: (start, end) in the object.
    Rest(Vec<(u64, u64)>),
}

/// Which data the control connection carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// The first bytes, while a data stream is being opened.
    First,
    /// All of it: no data stream can be opened.
    All,
    /// None any more: one has been opened.
    NoMore,
}

impl Carries {
    fn from_code(code: u8) -> Option<Carries> {
        [Carries::First, Carries::All, Carries::NoMore].into_iter().find(|it| *it as u8 == code)
    }
}

/// One message of the control protocol.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    Hello {
        min: u16,
        max: u16,
        program: String,
    },
    Open(Box<Open>),
    Opened(Opened),
    /// Driver, instead of Open: nothing is copied.
    Ask(Ask),
    /// Driver: bytes of the receipt that it asks about.
    Piece {
        bytes: Vec<u8>,
        last: bool,
    },
    /// Follower: what it was asked.
    Answer(Answer),
    /// Which data this connection carries.
    Carry(Carries),
    /// Bytes of the data stream, where this connection carries it.
    Carried(Vec<u8>),
    /// Source: objects, the first of which has this number.
    Offer {
        first: u64,
        entries: Vec<Entry>,
    },
    /// Sink: what it wants of the objects from `first` on.
    Want {
        first: u64,
        wanted: Vec<WantedRanges>,
    },
    /// Sink: it has these ranges too, of an object whose rest the next answer wants.
    HeldRanges {
        object: u64,
        ranges: Vec<(u64, u64)>,
    },
    /// Sink that drives: how objects are cut and digested. Before any stream is opened.
    Cut(Cut),
    /// Source: every object has been offered.
    OfferEnd {
        objects: u64,
        bytes: u64,
    },
    /// Sink: these addresses are matched and written, as (start, end);
    /// `bytes` of payload lie in them.
    Ack {
        ranges: Vec<(u64, u64)>,
        bytes: u64,
    },
    /// Sink: these objects have their final name; with digests where there are any.
    Finished {
        objects: Vec<(u64, Option<Sum>)>,
    },
    /// Sink: digests besides of objects that are finished next.
    Extra {
        objects: Vec<(u64, ExtraSums)>,
    },
    /// Sink: this object will not be finished.
    Failed {
        object: u64,
        fault: Fault,
    },
    /// Sink: in what these objects differ from what has their names there. The others that it
    /// finishes are new.
    Differing {
        objects: Vec<(u64, Changes)>,
    },
    /// Sink: the file that exists is as new as this object, and stays.
    Kept {
        object: u64,
    },
    /// Sink: these objects have had their final name since an earlier run.
    Held {
        objects: Vec<(u64, Option<Sum>)>,
    },
    /// Source: this data stream is lost. Sink: all that came on it is acknowledged.
    Lost {
        stream: u32,
    },
    /// Source: nothing that was sent on this stream has been acknowledged for a long time.
    Doubt {
        stream: u32,
    },
    /// Sink that drives: paths to copy, below the one source.
    Names {
        paths: Vec<Vec<u8>>,
        last: bool,
    },
    /// Follower: samples of a stream since its last message about it.
    Samples {
        stream: u32,
        samples: Vec<PathSample>,
    },
    /// Source: this path could not be offered.
    Unoffered {
        path: Vec<u8>,
        fault: Fault,
    },
    /// Source: the pipe has ended after this many bytes.
    PipeEnd {
        bytes: u64,
    },
    /// Source: it has these names too, and does not offer them: they stay.
    Present {
        paths: Vec<Vec<u8>>,
    },
    /// Sink: it has removed these names, which the source does not have, or would in a dry run.
    Deleted {
        paths: Vec<Vec<u8>>,
    },
    /// Sink: this name is not removed; where the path is empty, nothing more is.
    NotDeleted {
        path: Vec<u8>,
        fault: Fault,
    },
    /// Sink that drives: an endless source must end now.
    Enough,
    /// Sink that drives: the rate that the source must keep from now on; `None`: no limit.
    Limit {
        rate: Option<Rate>,
    },
    /// Sink that drives: the source sends nothing more on this stream, and ends it once all that it
    /// has sent is acknowledged.
    EndStream {
        stream: u32,
    },
    /// Sink: the time that its passage took since it last reported it.
    DecompressionTime(DecompressionTime),
    Warning {
        text: String,
    },
    /// Nothing more comes from this side except the end of the connection.
    Report(Box<SideReport>),
    /// This side ends the transfer, and why.
    Stop(Fault),
    Ping,
}

/// Carried data is framed and read in place too.
const CARRIED_CODE: u8 = 5;
/// What lies before the data: the length and the code.
pub const CARRIED_PREFIX_BYTES: usize = 5;

impl Message {
    /// The message in its envelope.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u32(0);
        out.u8(self.code());
        self.encode_fields(&mut out);
        let length = out.bytes.len() - 4;
        assert!(length <= MESSAGE_BYTES_MAX, "a message of {length} bytes");
        out.bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
        out.bytes
    }

    /// Makes a message of carried data in place: the data lies behind the first
    /// `CARRIED_PREFIX_BYTES` of `bytes`, which are set here.
    pub fn frame_carried(bytes: &mut [u8]) {
        let length = bytes.len() - 4;
        assert!((1..=MESSAGE_BYTES_MAX).contains(&length), "a message of {length} bytes");
        bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
        bytes[4] = CARRIED_CODE;
    }

    /// The data of a message of carried data, without decoding it; `bytes` follow the length.
    pub fn carried_data(bytes: &[u8]) -> Option<&[u8]> {
        bytes.split_first().filter(|(code, _)| **code == CARRIED_CODE).map(|(_, data)| data)
    }

    /// The length that an envelope announces; too long is a fault before anything is allocated.
    pub fn length(envelope: [u8; 4]) -> Result<usize, Fault> {
        let length = u32::from_le_bytes(envelope) as usize;
        match length {
            1..=MESSAGE_BYTES_MAX => Ok(length),
            _ => Err(Fault::peer(format!(
                "the peer announced a message of {length} bytes; {MESSAGE_BYTES_MAX} are allowed"
            ))),
        }
    }

    /// Reads what follows the length.
    pub fn decode(bytes: &[u8]) -> Result<Message, Fault> {
        let mut from = Reader::new(bytes);
        let code = from.u8()?;
        let message = Message::decode_fields(code, &mut from)?;
        from.end()?;
        Ok(message)
    }

    fn code(&self) -> u8 {
        match self {
            Message::Hello { .. } => 1,
            Message::Open(_) => 2,
            Message::Opened(_) => 3,
            Message::Carry(_) => 4,
            Message::Carried(_) => CARRIED_CODE,
            Message::Offer { .. } => 6,
            Message::Want { .. } => 7,
            Message::OfferEnd { .. } => 8,
            Message::Ack { .. } => 9,
            Message::Finished { .. } => 10,
            Message::Failed { .. } => 11,
            Message::Unoffered { .. } => 12,
            Message::PipeEnd { .. } => 13,
            Message::Warning { .. } => 14,
            Message::Report(_) => 15,
            Message::Stop(_) => 16,
            Message::Ping => 17,
            Message::Kept { .. } => 18,
            Message::Held { .. } => 19,
            Message::Lost { .. } => 20,
            Message::Doubt { .. } => 21,
            Message::Names { .. } => 22,
            Message::Samples { .. } => 23,
            Message::Enough => 24,
            Message::DecompressionTime(_) => 25,
            Message::HeldRanges { .. } => 26,
            Message::Cut(_) => 27,
            Message::Present { .. } => 28,
            Message::Deleted { .. } => 29,
            Message::NotDeleted { .. } => 30,
            Message::Limit { .. } => 31,
            Message::Extra { .. } => 32,
            Message::EndStream { .. } => 33,
            Message::Differing { .. } => 34,
            Message::Ask(_) => 35,
            Message::Piece { .. } => 36,
            Message::Answer(_) => 37,
        }
    }

    /// For the user: its kind, without its content, which may be long and is the peer's.
    pub fn name(&self) -> String {
        let name = format!("{self:?}");
        name.split(['(', ' ']).next().unwrap_or("?").to_string()
    }

    fn encode_fields(&self, out: &mut Writer) {
        match self {
            Message::Hello { min, max, program } => {
                out.u16(*min);
                out.u16(*max);
                out.text(program, TEXT_BYTES_MAX);
            }
            Message::Open(open) => fields::put_open(out, open),
            Message::Opened(opened) => fields::put_opened(out, opened),
            Message::Ask(ask) => asking::put_ask(out, ask),
            Message::Piece { bytes, last } => asking::put_piece(out, bytes, *last),
            Message::Answer(answer) => asking::put_answer(out, answer),
            Message::Carry(carries) => out.u8(*carries as u8),
            Message::Ping | Message::Enough => {}
            Message::Limit { rate } => settings::put_rate(out, *rate),
            Message::Carried(bytes) => out.raw(bytes),
            Message::Offer { first, entries } => {
                out.u64(*first);
                out.u16(entries.len() as u16);
                entries.iter().for_each(|entry| entry.encode(out));
            }
            Message::Want { first, wanted } => {
                out.u64(*first);
                out.u16(wanted.len() as u16);
                wanted.iter().for_each(|ranges| fields::put_wanted_ranges(out, ranges));
            }
            Message::HeldRanges { object, ranges } => {
                out.u64(*object);
                fields::put_ranges(out, ranges);
            }
            Message::Cut(cut) => fields::put_cut(out, *cut),
            Message::OfferEnd { objects, bytes } => fields::put_totals(out, *objects, *bytes),
            Message::Ack { ranges, bytes } => {
                fields::put_ranges(out, ranges);
                out.u64(*bytes);
            }
            Message::Finished { objects } | Message::Held { objects } => {
                fields::put_finished(out, objects);
            }
            Message::Extra { objects } => fields::put_extra(out, objects),
            Message::Differing { objects } => fields::put_differing(out, objects),
            Message::Lost { stream }
            | Message::Doubt { stream }
            | Message::EndStream { stream } => out.u32(*stream),
            Message::Names { paths, last } => {
                fields::put_paths(out, paths);
                out.flag(*last);
            }
            Message::Present { paths } | Message::Deleted { paths } => {
                fields::put_paths(out, paths);
            }
            Message::Samples { stream, samples } => fields::put_samples(out, *stream, samples),
            Message::Failed { object, fault } => {
                out.u64(*object);
                fields::put_fault(out, fault);
            }
            Message::Unoffered { path, fault } | Message::NotDeleted { path, fault } => {
                out.bytes(&path[..path.len().min(PATH_BYTES_MAX)]);
                fields::put_fault(out, fault);
            }
            Message::Kept { object } => out.u64(*object),
            Message::DecompressionTime(time) => fields::put_decompression_time(out, time),
            Message::PipeEnd { bytes } => out.u64(*bytes),
            Message::Warning { text } => out.text(text, TEXT_BYTES_MAX),
            Message::Report(report) => fields::put_report(out, report),
            Message::Stop(fault) => fields::put_fault(out, fault),
        }
    }

    fn decode_fields(code: u8, from: &mut Reader<'_>) -> Result<Message, Fault> {
        Ok(match code {
            1 => Message::Hello {
                min: from.u16()?,
                max: from.u16()?,
                program: from.text(TEXT_BYTES_MAX)?,
            },
            2 => Message::Open(Box::new(fields::get_open(from)?)),
            3 => Message::Opened(fields::get_opened(from)?),
            4 => Message::Carry(fields::get_choice(from, Carries::from_code)?),
            CARRIED_CODE => Message::Carried(from.rest().to_vec()),
            6 => {
                let first = from.u64()?;
                let entries = fields::get_list(from, OFFER_ENTRIES_MAX, Entry::decode)?;
                Message::Offer { first, entries }
            }
            7 => {
                let first = from.u64()?;
                let wanted = fields::get_list(from, OFFER_ENTRIES_MAX, fields::get_wanted_ranges)?;
                Message::Want { first, wanted }
            }
            8 => Message::OfferEnd { objects: from.u64()?, bytes: from.u64()? },
            9 => Message::Ack { ranges: fields::get_ranges(from)?, bytes: from.u64()? },
            10 => Message::Finished { objects: fields::get_finished(from)? },
            32 => Message::Extra { objects: fields::get_extra(from)? },
            34 => Message::Differing { objects: fields::get_differing(from)? },
            35 => Message::Ask(asking::get_ask(from)?),
            36 => {
                let (bytes, last) = asking::get_piece(from)?;
                Message::Piece { bytes, last }
            }
            37 => Message::Answer(asking::get_answer(from)?),
            11 => Message::Failed { object: from.u64()?, fault: fields::get_fault(from)? },
            12 => Message::Unoffered {
                path: from.bytes(PATH_BYTES_MAX)?.to_vec(),
                fault: fields::get_fault(from)?,
            },
            13 => Message::PipeEnd { bytes: from.u64()? },
            14 => Message::Warning { text: from.text(TEXT_BYTES_MAX)? },
            15 => Message::Report(Box::new(fields::get_report(from)?)),
            16 => Message::Stop(fields::get_fault(from)?),
            17 => Message::Ping,
            18 => Message::Kept { object: from.u64()? },
            19 => Message::Held { objects: fields::get_finished(from)? },
            20 => Message::Lost { stream: from.u32()? },
            21 => Message::Doubt { stream: from.u32()? },
            22 => Message::Names { paths: fields::get_paths(from)?, last: from.flag()? },
            23 => {
                let (stream, samples) = fields::get_samples(from)?;
                Message::Samples { stream, samples }
            }
            24 => Message::Enough,
            31 => Message::Limit { rate: settings::get_rate(from)? },
            33 => Message::EndStream { stream: from.u32()? },
            25 => Message::DecompressionTime(fields::get_decompression_time(from)?),
            26 => Message::HeldRanges { object: from.u64()?, ranges: fields::get_ranges(from)? },
            27 => Message::Cut(fields::get_cut(from)?),
            28 => Message::Present { paths: fields::get_paths(from)? },
            29 => Message::Deleted { paths: fields::get_paths(from)? },
            30 => Message::NotDeleted {
                path: from.bytes(PATH_BYTES_MAX)?.to_vec(),
                fault: fields::get_fault(from)?,
            },
            other => {
                return Err(Fault::peer(format!(
                    "the peer sent a message of unknown type {other}"
                )));
            }
        })
    }
}

/// A fault from the peer keeps its class, so that it ends with the same exit code.
pub(crate) fn fault_class(code: u8) -> Result<Class, Fault> {
    Class::from_code(code)
        .ok_or_else(|| Fault::peer(format!("the peer sent an unknown fault class {code}")))
}

#[cfg(test)]
mod tests;
