//! A TCP connection that carries data: frames out, frames in, sealed as the transfer asks.

use std::io;
use std::ops::Range;

use super::endpoint::{Endpoint, Nature, Next};
use crate::io::backend::Verb;
use crate::io::request::{Leg, Request};
use crate::io::volume::Handle;
use crate::wire::frame::{self, HEADER_BYTES, TAG_BYTES};
use crate::work::digest;
use crate::work::seal::frame_keys::{FrameKeys, SEAL_TAG_BYTES};
use crate::work::seal::{Tags, same};
use base::codec::{Codec, Compress};
use base::fault::{Class, Fault};
use base::label::{Kind, Label};
use base::limits::{BLOCK_BYTES, HEADROOM_BYTES};
use base::settings::{DigestKind, Receive, Verify};
use base::tally::Stage;

/// How the frames of a stream are protected, once the handshake has ended.
#[derive(Debug)]
pub enum Protection {
    Off,
    Auth(Tags),
    Tls(FrameKeys),
}

impl Protection {
    /// What lies between a frame's header and its body.
    fn tag_bytes(&self) -> usize {
        match self {
            Protection::Off => 0,
            Protection::Auth(_) => TAG_BYTES,
            Protection::Tls(_) => SEAL_TAG_BYTES,
        }
    }

    /// Where a frame begins in a request's buffer, so that its body is where bodies are.
    fn frame_start(&self) -> usize {
        HEADROOM_BYTES as usize - self.tag_bytes() - HEADER_BYTES
    }

    /// The end of a frame whose body ends there: a sealed body has a tag of its own.
    fn frame_end(&self, body: &Range<u32>) -> u32 {
        match self {
            Protection::Tls(_) if !body.is_empty() => body.end + SEAL_TAG_BYTES as u32,
            _ => body.end,
        }
    }
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
    verify: Verify,
    frames: u64,
    wire_bytes: u64,
}

impl StreamSink {
    pub fn new(socket: Handle, protection: Protection, digest: DigestKind) -> StreamSink {
        let verify = Verify::Received;
        StreamSink { socket, protection, digest, verify, frames: 0, wire_bytes: 0 }
    }

    /// Sends the digests of what the sink does not digest. Only a seal proves that they are ours.
    pub fn verifying(mut self, verify: Verify) -> StreamSink {
        if matches!(self.protection, Protection::Tls(_)) && self.digest == DigestKind::Blake3 {
            self.verify = verify;
        }
        self
    }

    /// Puts the header in front of the body, seals both where they are, and sets the span to send.
    fn frame(&mut self, request: &mut Request) -> Result<(), Fault> {
        if request.label.kind == Kind::End {
            request.label.extent.start = self.frames;
        }
        self.frames += 1;
        if self.verify == Verify::Source {
            digest::attach(request);
        }
        let header = frame::encode(&request.label);
        let body = request.body_span();
        let (start, end) = (self.protection.frame_start(), self.protection.frame_end(&body));
        let tag_at = start + HEADER_BYTES;
        request.buffer.bytes_mut()[start..tag_at].copy_from_slice(&header);
        match &mut self.protection {
            Protection::Off => {}
            Protection::Auth(tags) => {
                let tag = tags.next(&header, tagged_body(request, self.digest));
                request.buffer.bytes_mut()[tag_at..tag_at + TAG_BYTES].copy_from_slice(&tag);
            }
            Protection::Tls(keys) => {
                let (front, rest) = request.buffer.bytes_mut().split_at_mut(body.start as usize);
                keys.seal(&mut front[start..])?;
                if !body.is_empty() {
                    keys.seal(&mut rest[..(end - body.start) as usize])?;
                }
            }
        }
        request.ask(start as u32..end);
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
    protection: Protection,
    how: Receive,
    quick_ack: bool,
    allowed: Allowed,
    digest: DigestKind,
    frames: u64,
    wire_bytes: u64,
    ended: bool,
}

/// What a frame may contain.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    body_bytes_max: u32,
    compress: Compress,
    verify: Verify,
}

impl StreamSource {
    pub fn new(
        socket: Handle,
        protection: Protection,
        digest: DigestKind,
        body_bytes_max: u32,
    ) -> StreamSource {
        StreamSource {
            socket,
            protection,
            how: Receive::WaitAll,
            quick_ack: false,
            allowed: Allowed { body_bytes_max, compress: Compress::Off, verify: Verify::Received },
            digest,
            frames: 0,
            wire_bytes: 0,
            ended: false,
        }
    }

    /// Receives bodies in another way.
    pub fn reading(self, how: Receive) -> StreamSource {
        StreamSource { how, ..self }
    }

    /// Receives what has arrived, and acknowledges it then: the sender sees round trips of the path
    /// without the wait of a delayed acknowledgement (RFC 1122, 4.2.3.2).
    pub(crate) fn acknowledging_at_once(self) -> StreamSource {
        StreamSource { how: Receive::Any, quick_ack: true, ..self }
    }

    /// Accepts compressed payloads too.
    pub fn decompressing(mut self, compress: Compress) -> StreamSource {
        self.allowed.compress = compress;
        self
    }

    /// Accepts the digests of a source whose bytes are not digested here. Only a seal proves that
    /// they are the source's.
    pub fn verifying(mut self, verify: Verify) -> StreamSource {
        if matches!(self.protection, Protection::Tls(_)) {
            self.allowed.verify = verify;
        }
        self
    }

    fn receive(&self) -> Next {
        let (socket, how, quick_ack) = (self.socket.clone(), self.how, self.quick_ack);
        Next::Do(Verb::Receive { socket, how, quick_ack })
    }

    /// A header first, then the body: the kernel writes both to their places, and there they are
    /// opened.
    fn step(&mut self, request: &mut Request) -> Result<Next, Fault> {
        let start = self.protection.frame_start();
        if request.hops > 0 {
            self.wire_bytes += u64::from(request.moved);
        }
        match request.hops {
            0 => {
                request.ask(start as u32..HEADROOM_BYTES);
                return Ok(self.receive());
            }
            1 => {
                if let Protection::Tls(keys) = &mut self.protection {
                    keys.open(&mut request.buffer.bytes_mut()[start..HEADROOM_BYTES as usize])?;
                }
                request.label = read_label(request, start, self.allowed)?;
                let body = request.body_span();
                if !body.is_empty() {
                    request.ask(body.start..self.protection.frame_end(&body));
                    return Ok(self.receive());
                }
            }
            _ => {
                if let Protection::Tls(keys) = &mut self.protection {
                    let sealed = request.span.start as usize..request.span.end as usize;
                    keys.open(&mut request.buffer.bytes_mut()[sealed])?;
                }
            }
        }
        if let Protection::Auth(tags) = &mut self.protection {
            check_tag(tags, request, start, self.digest)?;
        }
        self.count(&request.label)?;
        Ok(Next::Done)
    }

    /// The last frame says how many came before it.
    fn count(&mut self, label: &Label) -> Result<(), Fault> {
        if label.kind == Kind::End {
            self.ended = true;
            if label.extent.start != self.frames {
                let (sent, frames) = (label.extent.start, self.frames);
                let text = format!("a data stream of {sent} frames brought {frames}");
                return Err(Fault::new(Class::Corrupt, text));
            }
        }
        self.frames += 1;
        Ok(())
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
        match self.step(request) {
            Ok(Next::Done) if self.ended => Next::Dry,
            Ok(next) => next,
            Err(fault) => Next::Fail(fault),
        }
    }

    fn stage(&self) -> Option<Stage> {
        (!matches!(self.protection, Protection::Off)).then_some(Stage::Seal)
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
    let digests_len = u32::from(label.digests_len);
    if digests_len > 0 && allowed.verify != Verify::Source {
        return Err(Fault::peer("a frame with digests, which were not asked for"));
    }
    let payload = label.body_len - voids_len - digests_len;
    if payload > allowed.body_bytes_max || voids_len.max(digests_len) > BLOCK_BYTES {
        return Err(Fault::peer("a frame whose body is longer than a request"));
    }
    if label.kind == Kind::Sparse && label.extent.len > allowed.body_bytes_max {
        return Err(Fault::peer("a frame with holes that stands for more than a request"));
    }
    match label.codec {
        Codec::Raw => Ok(label),
        _ if !allowed.compress.is_on() => {
            Err(Fault::peer("a compressed frame, where compression is off"))
        }
        _ if label.extent.len > allowed.body_bytes_max => {
            Err(Fault::peer("a compressed frame that stands for more than a request"))
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

fn cut() -> Fault {
    Fault::new(Class::Unreachable, "a data stream was cut: the peer or the path went away")
}

fn broken(errno: i32) -> Fault {
    let error = io::Error::from_raw_os_error(errno);
    Fault { class: Class::Unreachable, ..Fault::system("use a data stream", &error) }
}
