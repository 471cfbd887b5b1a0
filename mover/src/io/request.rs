//! The unit of work. A request is always in exactly one place: with a lane, an engine, or a pool.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::buffer::Buffer;
use super::holes;
use super::volume::{Batch, LazyFile, Status};
use base::codec::{Codec, Coding};
use base::extra::ExtraSums;
use base::fault::Fault;
use base::label::{Kind, Label, MAP_CHECK_BYTES, MAPPED_BYTES_MAX, Sum, map_bytes};
use base::limits::HEADROOM_BYTES;
use base::units::Tick;

/// The direction of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leg {
    /// From the source into the program.
    In,
    /// Out of the program to the sink.
    Out,
}

/// When a request passed the points at which the clock is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stamps {
    pub departed: Tick,
    pub filled: Tick,
    pub passed: Tick,
    pub admitted: Tick,
    pub retired: Tick,
}

/// What the extent of a request is made of.
#[derive(Clone, Debug, Default)]
pub enum Content {
    /// Not known yet: the label has not been read, or nothing has been claimed.
    #[default]
    Unknown,
    Part(Part),
    Batch(Arc<Batch>),
}

/// A range of one object.
#[derive(Clone, Debug)]
pub struct Part {
    pub object: u64,
    pub offset: u64,
    pub coverage: Coverage,
    /// The file it is in; `None` for generated or discarded bytes, and for pipes.
    pub file: Option<Arc<LazyFile>>,
}

/// How much of its object a part is: a whole object's digest is a root, a part's a node below one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    All,
    Some,
}

/// The digest of a range of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which segment of a batch; 0 for a part.
    pub segment: u16,
    pub offset: u64,
    pub len: u32,
    pub sum: Sum,
}

/// Digests of a range of one object, besides the one that is checked.
#[derive(Clone, Copy, Debug)]
pub struct ExtraPiece {
    pub segment: u16,
    pub offset: u64,
    pub len: u64,
    pub sums: ExtraSums,
    /// CRC-64/NVME, where the sink is a store.
    pub crc64: Option<u64>,
}

impl ExtraPiece {
    /// That of a segment; they are in the order of their segments.
    pub fn of(pieces: &[ExtraPiece], segment: u16) -> Option<&ExtraPiece> {
        let at = pieces.binary_search_by_key(&segment, |piece| piece.segment).ok()?;
        Some(&pieces[at])
    }
}

/// A unit of work and the memory it travels in.
pub struct Request {
    pub leg: Leg,
    /// How many verbs have completed on this leg.
    pub hops: u32,
    pub label: Label,
    /// How the source compressed it.
    pub coding: Coding,
    /// At a source that compresses: `raw_len` before the payload was sealed, which may be in place.
    pub uncompressed_len: u32,
    pub content: Content,
    /// The part of the buffer that the next verb moves, and how much of it must be moved at least.
    pub span: Range<u32>,
    pub need: u32,
    /// What the verb in flight has moved so far.
    pub moved: u32,
    /// Its body is there already: it was read once, and lost after it had left the source.
    pub again: bool,
    /// How the last verb ended: bytes moved, or the system's error number.
    pub outcome: Result<u32, i32>,
    /// Digests of the body, made by the digest step.
    pub pieces: Vec<Piece>,
    /// Other digests of it, where they are asked for.
    pub extra: Vec<ExtraPiece>,
    /// Segments that cannot be read or written, and why.
    pub voids: Vec<(u16, Fault)>,
    /// What became of the segments that were written, in their order.
    pub made: Vec<(u16, Status)>,
    /// Which blocks of the payload are data, where the others are zeros that are not sent. Empty
    /// where all are sent.
    pub map: Vec<u8>,
    pub buffer: Buffer,
    pub stamps: Stamps,
}

impl Request {
    /// Boxed, as all are: a lane hands each on six times, and then moves a pointer.
    pub fn new(body_bytes: u32) -> Box<Request> {
        Request::with(Buffer::new(body_bytes))
    }

    /// `count` requests, with their memory side by side.
    pub fn several(count: usize, body_bytes: u32) -> Vec<Box<Request>> {
        Buffer::several(count, body_bytes).into_iter().map(Request::with).collect()
    }

    fn with(buffer: Buffer) -> Box<Request> {
        Box::new(Request {
            leg: Leg::In,
            hops: 0,
            label: Label::default(),
            coding: Coding::Raw,
            uncompressed_len: 0,
            content: Content::Unknown,
            span: 0..0,
            need: 0,
            moved: 0,
            again: false,
            outcome: Ok(0),
            pieces: Vec::new(),
            extra: Vec::new(),
            voids: Vec::new(),
            made: Vec::new(),
            map: Vec::new(),
            buffer,
            stamps: Stamps::default(),
        })
    }

    /// Resets it for another use; the memory stays.
    pub fn clear(&mut self) {
        self.leg = Leg::In;
        self.hops = 0;
        self.label = Label::default();
        self.coding = Coding::Raw;
        self.uncompressed_len = 0;
        self.content = Content::Unknown;
        self.span = 0..0;
        self.again = false;
        self.outcome = Ok(0);
        self.pieces.clear();
        self.extra.clear();
        self.voids.clear();
        self.made.clear();
        self.map.clear();
    }

    /// Asks the next verb to move `span`, all of it.
    pub fn ask(&mut self, span: Range<u32>) {
        self.need = span.end - span.start;
        self.span = span;
    }

    /// The part of the span that the verb in flight has still to move.
    pub fn pending(&self) -> Range<usize> {
        (self.span.start + self.moved) as usize..self.span.end as usize
    }

    pub(crate) fn pending_bytes(&self) -> &[u8] {
        &self.buffer.bytes()[self.pending()]
    }

    pub fn pending_bytes_mut(&mut self) -> &mut [u8] {
        let pending = self.pending();
        &mut self.buffer.bytes_mut()[pending]
    }

    pub(crate) fn body_span(&self) -> Range<u32> {
        HEADROOM_BYTES..HEADROOM_BYTES + self.label.body_len
    }

    pub fn body(&self) -> &[u8] {
        let span = self.body_span();
        &self.buffer.bytes()[span.start as usize..span.end as usize]
    }

    pub fn body_mut(&mut self) -> &mut [u8] {
        let span = self.body_span();
        &mut self.buffer.bytes_mut()[span.start as usize..span.end as usize]
    }

    /// Fills a hole with the zeros that a reader sees there.
    pub(crate) fn fill_hole(&mut self) {
        if self.label.kind == Kind::Zero {
            self.label.body_len = self.label.extent.len;
            self.body_mut().fill(0);
        }
    }

    /// Notes which blocks are zeros, where leaving them out saves more than the map costs. A map
    /// that is too long to be sent must say that there is nothing else.
    pub(crate) fn find_holes(&mut self) {
        let len = self.payload_len();
        let mut map = std::mem::take(&mut self.map);
        holes::map_of(&self.body()[..len as usize], &mut map);
        let data = holes::mapped_bytes(&map, len).expect("a map of just this");
        let is_unsendable = len > MAPPED_BYTES_MAX && data > 0;
        if is_unsendable || data + map_bytes(len) >= len {
            map.clear();
        }
        self.map = map;
    }

    /// Bytes of the extent that are known to be zeros, and are not sent.
    pub fn left_out(&self) -> u32 {
        let len = self.label.extent.len;
        match self.label.kind {
            Kind::Zero => len,
            Kind::Data | Kind::Sparse if !self.map.is_empty() => {
                len - holes::mapped_bytes(&self.map, len).unwrap_or(len)
            }
            Kind::Data | Kind::Sparse | Kind::Void | Kind::End => 0,
        }
    }

    /// The map after a sparse payload, without its checksum.
    pub(crate) fn carried_map(&self) -> &[u8] {
        let at = (self.payload_len() + MAP_CHECK_BYTES) as usize;
        self.body().get(at..).unwrap_or_default()
    }

    /// The length of the payload as it is now, compressed or not: the body without what follows it.
    pub(crate) fn payload_len(&self) -> u32 {
        let Label { body_len, voids_len, digests_len, .. } = self.label;
        body_len - u32::from(voids_len) - u32::from(digests_len)
    }

    /// The length of the payload without compression.
    pub(crate) fn raw_len(&self) -> u32 {
        match self.label.codec {
            Codec::Raw => self.payload_len(),
            Codec::Deflate | Codec::Zstd | Codec::Lz4 if self.label.kind == Kind::Sparse => {
                holes::mapped_bytes(self.carried_map(), self.label.extent.len).unwrap_or(0)
            }
            Codec::Deflate | Codec::Zstd | Codec::Lz4 => self.label.extent.len,
        }
    }

    pub(crate) fn is_void(&self, segment: usize) -> bool {
        self.voids.iter().any(|(void, _)| usize::from(*void) == segment)
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({:?}, hop {}, {:?})", self.leg, self.hops, self.label.extent)
    }
}
