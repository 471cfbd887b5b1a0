//! A TCP connection that carries data: frames out, frames in, sealed as the transfer asks.

use std::io;

use super::endpoint::{Endpoint, Nature, Next};
use crate::io::backend::Verb;
use crate::io::buffer::Buffer;
use crate::io::request::{Leg, Request};
use crate::io::volume::Handle;
use crate::wire::frame::{self, HEADER_BYTES, TAG_BYTES};
use crate::work::seal::{Tags, Tls, same};
use base::codec::{Codec, Compress};
use base::fault::{Class, Fault};
use base::label::{Kind, Label};
use base::limits::{BLOCK_BYTES, HEADROOM_BYTES};
use base::settings::{DigestKind, Receive};
use base::tally::Stage;

/// How the frames of a stream are protected, once the handshake has ended.
#[derive(Debug)]
pub enum Protection {
    Off,
    Auth(Tags),
    Tls(Tls),
}

/// What a tag must cover besides the header: the body, except for data whose header holds a digest
/// that nobody can forge. Compressed data is digested after decompression, so a tag covers it.
fn tagged_body(request: &Request, digest: DigestKind) -> &[u8] {
    match (digest, request.label.kind, request.label.codec) {
        (DigestKind::Blake3, Kind::Data, Codec::Raw) => &[],
        _ => request.body(),
    }
}

/// Sends frames.
#[derive(Debug)]
pub struct StreamSink {
    socket: Handle,
    protection: Protection,
    digest: DigestKind,
    /// The buffer that the next frame is sealed into; it is exchanged with the request's.
    spare: Option<Buffer>,
    wire_bytes: u64,
}

impl StreamSink {
    pub fn new(
        socket: Handle,
        protection: Protection,
        digest: DigestKind,
        body_bytes: u32,
    ) -> StreamSink {
        let spare = matches!(protection, Protection::Tls(_)).then(|| Buffer::new(body_bytes));
        StreamSink { socket, protection, digest, spare, wire_bytes: 0 }
    }

    /// Puts the header in front of the body, seals both, and sets the span to send.
    fn frame(&mut self, request: &mut Request) -> Result<(), Fault> {
        let header = frame::encode(&request.label);
        let body = request.body_span();
        let prefix = HEADER_BYTES
            + if matches!(self.protection, Protection::Auth(_)) { TAG_BYTES } else { 0 };
        let start = HEADROOM_BYTES as usize - prefix;
        request.buffer.bytes_mut()[start..start + HEADER_BYTES].copy_from_slice(&header);
        match &mut self.protection {
            Protection::Off => request.ask(start as u32..body.end),
            Protection::Auth(tags) => {
                let tag = tags.next(&header, tagged_body(request, self.digest));
                let at = start + HEADER_BYTES;
                request.buffer.bytes_mut()[at..at + TAG_BYTES].copy_from_slice(&tag);
                request.ask(start as u32..body.end);
            }
            Protection::Tls(tls) => {
                let spare = self.spare.as_mut().expect("a sealed stream has a spare buffer");
                let plain = &request.buffer.bytes()[start..body.end as usize];
                let count = tls.seal(plain, spare.bytes_mut())?;
                std::mem::swap(&mut request.buffer, spare);
                request.ask(0..count as u32);
            }
        }
        Ok(())
    }
}

impl Endpoint for StreamSink {
    fn nature(&self) -> Nature {
        Nature::Flowing
    }

    fn next(&mut self, request: &mut Request) -> Next {
        debug_assert_eq!(request.leg, Leg::Out);
        if request.hops == 0 {
            return match self.frame(request) {
                Ok(()) => {
                    self.wire_bytes += u64::from(request.need);
                    Next::Do(Verb::Send { socket: self.socket.clone() })
                }
                Err(fault) => Next::Fail(fault),
            };
        }
        match request.outcome {
            Ok(count) if count == request.need => Next::Done,
            Ok(_) => Next::Fail(cut()),
            Err(errno) => Next::Fail(broken(errno)),
        }
    }

    fn stage(&self) -> Option<Stage> {
        (!matches!(self.protection, Protection::Off)).then_some(Stage::Seal)
    }

    fn wire_bytes(&self) -> u64 {
        self.wire_bytes
    }
}

/// Receives frames.
#[derive(Debug)]
pub struct StreamSource {
    socket: Handle,
    inner: Inner,
    how: Receive,
    allowed: Allowed,
    digest: DigestKind,
    wire_bytes: u64,
    ended: bool,
}

/// What a frame may contain.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    body_bytes_max: u32,
    compress: Compress,
}

#[derive(Debug)]
enum Inner {
    Clear { tags: Option<Tags> },
    Sealed(Opener),
}

impl StreamSource {
    /// `begun` has the bytes that followed the handshake already.
    pub fn new(
        socket: Handle,
        protection: Protection,
        digest: DigestKind,
        body_bytes_max: u32,
        begun: &[u8],
    ) -> StreamSource {
        let inner = match protection {
            Protection::Off => Inner::Clear { tags: None },
            Protection::Auth(tags) => Inner::Clear { tags: Some(tags) },
            Protection::Tls(tls) => Inner::Sealed(Opener::new(tls, body_bytes_max, begun)),
        };
        let how = Receive::WaitAll;
        let allowed = Allowed { body_bytes_max, compress: Compress::Off };
        StreamSource { socket, inner, how, allowed, digest, wire_bytes: 0, ended: false }
    }

    /// Receives bodies in another way.
    pub fn reading(self, how: Receive) -> StreamSource {
        StreamSource { how, ..self }
    }

    /// Accepts compressed payloads too.
    pub fn unpacking(mut self, compress: Compress) -> StreamSource {
        self.allowed.compress = compress;
        self
    }

    fn receive(&self) -> Next {
        Next::Do(Verb::Receive { socket: self.socket.clone(), how: self.how })
    }

    /// Frames in clear text: the kernel writes header and body to their places.
    fn next_clear(&mut self, request: &mut Request) -> Result<Next, Fault> {
        let Inner::Clear { tags } = &mut self.inner else { unreachable!("a sealed stream") };
        let prefix = HEADER_BYTES + if tags.is_some() { TAG_BYTES } else { 0 };
        let start = HEADROOM_BYTES - prefix as u32;
        if request.hops > 0 {
            self.wire_bytes += u64::from(request.moved);
        }
        match request.hops {
            0 => {
                request.ask(start..HEADROOM_BYTES);
                return Ok(self.receive());
            }
            1 => {
                request.label = read_label(request, start as usize, self.allowed)?;
                if request.label.body_len > 0 {
                    request.ask(request.body_span());
                    return Ok(self.receive());
                }
            }
            _ => {}
        }
        if let Some(tags) = tags {
            check_tag(tags, request, start as usize, self.digest)?;
        }
        Ok(Next::Done)
    }

    /// Sealed frames: what has arrived is opened and passed on until a frame is complete.
    fn next_sealed(&mut self, request: &mut Request) -> Result<Next, Fault> {
        let Inner::Sealed(opener) = &mut self.inner else { unreachable!("a clear stream") };
        if request.hops > 0 {
            self.wire_bytes += u64::from(request.moved);
            opener.landed(request);
        }
        match opener.assemble(request, self.allowed)? {
            Assembled::Frame => Ok(Next::Done),
            Assembled::Part => {
                opener.ask(request);
                Ok(self.receive())
            }
        }
    }
}

impl Endpoint for StreamSource {
    fn nature(&self) -> Nature {
        Nature::Flowing
    }

    fn next(&mut self, request: &mut Request) -> Next {
        debug_assert_eq!(request.leg, Leg::In);
        if self.ended {
            return Next::Dry;
        }
        if request.hops > 0 {
            match request.outcome {
                Err(errno) => return Next::Fail(broken(errno)),
                Ok(count) if count < request.need => return Next::Fail(cut()),
                Ok(_) => {}
            }
        }
        let next = match self.inner {
            Inner::Clear { .. } => self.next_clear(request),
            Inner::Sealed(_) => self.next_sealed(request),
        };
        match next {
            Ok(Next::Done) if request.label.kind == Kind::End => {
                self.ended = true;
                Next::Dry
            }
            Ok(next) => next,
            Err(fault) => Next::Fail(fault),
        }
    }

    fn stage(&self) -> Option<Stage> {
        match self.inner {
            Inner::Clear { tags: None } => None,
            _ => Some(Stage::Seal),
        }
    }

    fn wire_bytes(&self) -> u64 {
        self.wire_bytes
    }
}

/// Reads the label in the headroom; a body longer than a buffer is refused before it is received.
fn read_label(request: &Request, at: usize, allowed: Allowed) -> Result<Label, Fault> {
    let mut header = [0; HEADER_BYTES];
    header.copy_from_slice(&request.buffer.bytes()[at..at + HEADER_BYTES]);
    let label = frame::decode(&header)?;
    let voids_len = u32::from(label.voids_len);
    let payload = label.body_len - voids_len;
    if payload > allowed.body_bytes_max || voids_len > BLOCK_BYTES {
        return Err(Fault::peer("a frame whose body is longer than a request"));
    }
    if label.kind == Kind::Sparse && label.extent.len > allowed.body_bytes_max {
        return Err(Fault::peer("a frame with holes that stands for more than a request"));
    }
    match label.codec {
        Codec::Raw => Ok(label),
        _ if !allowed.compress.is_on() => {
            Err(Fault::peer("a packed frame, where compression is off"))
        }
        _ if label.extent.len > allowed.body_bytes_max => {
            Err(Fault::peer("a packed frame that stands for more than a request"))
        }
        _ => Ok(label),
    }
}

fn check_tag(
    tags: &mut Tags,
    request: &Request,
    at: usize,
    digest: DigestKind,
) -> Result<(), Fault> {
    let bytes = request.buffer.bytes();
    let (header, tag) = bytes[at..at + HEADER_BYTES + TAG_BYTES].split_at(HEADER_BYTES);
    let expect = tags.next(header, tagged_body(request, digest));
    match same(&expect, tag.try_into().expect("a tag's length")) {
        true => Ok(()),
        false => {
            let text = "a frame's tag is wrong: somebody changed a data stream on its way";
            Err(Fault::new(Class::Corrupt, text))
        }
    }
}

/// Opens a sealed stream: ciphertext is received into a buffer of its own, plain bytes are written
/// to their places.
#[derive(Debug)]
struct Opener {
    tls: Tls,
    /// Ciphertext: `filled` bytes of it, of which the front is opened next.
    sealed: Option<Buffer>,
    filled: usize,
    /// Plain bytes of the current frame that are in the request already.
    have: usize,
    /// Plain bytes that followed the current frame in its last record.
    carry: Vec<u8>,
}

enum Assembled {
    Frame,
    Part,
}

/// Where a frame's first byte lies in the request's buffer.
const FRAME_START: usize = HEADROOM_BYTES as usize - HEADER_BYTES;

impl Opener {
    fn new(tls: Tls, body_bytes: u32, begun: &[u8]) -> Opener {
        let mut buffer = Buffer::new(sealed_bytes(body_bytes));
        buffer.bytes_mut()[..begun.len()].copy_from_slice(begun);
        Opener {
            tls,
            sealed: Some(buffer),
            filled: begun.len(),
            have: 0,
            carry: Vec::with_capacity(RECORD_BYTES_MAX),
        }
    }

    /// Lends the ciphertext buffer to the request, to be filled after what is there.
    fn ask(&mut self, request: &mut Request) {
        let sealed = self.sealed.as_mut().expect("the buffer is here");
        request.span = self.filled as u32..sealed.len() as u32;
        request.need = 1;
        std::mem::swap(&mut request.buffer, sealed);
    }

    fn landed(&mut self, request: &mut Request) {
        std::mem::swap(&mut request.buffer, self.sealed.as_mut().expect("the buffer is here"));
        self.filled += request.moved as usize;
    }

    /// Opens what is there until a frame is complete.
    fn assemble(&mut self, request: &mut Request, allowed: Allowed) -> Result<Assembled, Fault> {
        let carried = std::mem::take(&mut self.carry);
        let mut assembly = Assembly { request, have: self.have, allowed, fault: None };
        let rest = assembly.take(&carried).len();
        self.carry = carried;
        self.carry.drain(..self.carry.len() - rest);
        let mut sealed = self.sealed.take().expect("the buffer is here");
        let mut used = 0;
        while !assembly.is_whole() && used < self.filled {
            // One record at a time: what follows the frame stays sealed.
            let Some(end) = record_end(&sealed.bytes()[used..self.filled]) else { break };
            let carry = &mut self.carry;
            let record = &mut sealed.bytes_mut()[used..used + end];
            let opened = self.tls.open(record, |plain| {
                let rest = assembly.take(plain);
                carry.extend_from_slice(rest);
            });
            match opened {
                Ok(count) if count == end => used += end,
                Ok(_) => return Err(damaged("a TLS record does not end where it says")),
                Err(fault) => {
                    self.sealed = Some(sealed);
                    return Err(fault);
                }
            }
        }
        sealed.bytes_mut().copy_within(used..self.filled, 0);
        self.filled -= used;
        self.sealed = Some(sealed);
        let whole = assembly.is_whole();
        self.have = if whole { 0 } else { assembly.have };
        match (assembly.fault.take(), whole) {
            (Some(fault), _) => Err(fault),
            (None, true) => Ok(Assembled::Frame),
            (None, false) => Ok(Assembled::Part),
        }
    }
}

/// A frame that is being assembled in a request's buffer.
struct Assembly<'a> {
    request: &'a mut Request,
    have: usize,
    allowed: Allowed,
    fault: Option<Fault>,
}

impl Assembly<'_> {
    fn is_whole(&self) -> bool {
        self.fault.is_some() || self.have == self.total()
    }

    /// The length of the frame: of its header until that has been read.
    fn total(&self) -> usize {
        match self.have {
            0..HEADER_BYTES => HEADER_BYTES,
            _ => HEADER_BYTES + self.request.label.body_len as usize,
        }
    }

    /// Takes what belongs to this frame; returns the rest.
    fn take<'b>(&mut self, mut plain: &'b [u8]) -> &'b [u8] {
        while !plain.is_empty() && !self.is_whole() {
            let count = plain.len().min(self.total() - self.have);
            let at = FRAME_START + self.have;
            self.request.buffer.bytes_mut()[at..at + count].copy_from_slice(&plain[..count]);
            plain = &plain[count..];
            let before = self.have;
            self.have += count;
            if before < HEADER_BYTES && self.have >= HEADER_BYTES {
                match read_label(self.request, FRAME_START, self.allowed) {
                    Ok(label) => self.request.label = label,
                    Err(fault) => {
                        self.fault = Some(fault);
                        return &[];
                    }
                }
            }
        }
        plain
    }
}

/// The end of the first TLS record; `None` while it is incomplete (RFC 8446, section 5.1).
fn record_end(bytes: &[u8]) -> Option<usize> {
    let length = u16::from_be_bytes([*bytes.get(3)?, *bytes.get(4)?]);
    let end = 5 + usize::from(length);
    (end <= bytes.len()).then_some(end)
}

/// What a sealed stream receives in one call, with bodies of this size at most.
pub(crate) fn sealed_bytes(body_bytes: u32) -> u32 {
    body_bytes.clamp(SEALED_BYTES_MIN, SEALED_BYTES_MAX)
}

/// The ciphertext buffer of small requests still holds several records; that of large ones is no
/// larger than pays in one call.
const SEALED_BYTES_MIN: u32 = 64 << 10;
const SEALED_BYTES_MAX: u32 = 256 << 10;

/// The content of a record with its protection (RFC 8446, section 5.2).
const RECORD_BYTES_MAX: usize = 16384 + 256;

fn damaged(what: &str) -> Fault {
    Fault::new(Class::Corrupt, format!("a data stream arrived damaged: {what}"))
}

fn cut() -> Fault {
    Fault::new(Class::Unreachable, "a data stream was cut: the peer or the path went away")
}

fn broken(errno: i32) -> Fault {
    let error = io::Error::from_raw_os_error(errno);
    Fault { class: Class::Unreachable, ..Fault::system("use a data stream", &error) }
}
