//! Compression and decompression of payloads: each is a block of its own, and one that does not
//! shrink is sent raw.

use std::fmt;
use std::sync::Arc;

use flate2::{Compression, Decompress, FlushCompress, FlushDecompress, Status};
use lz4_flex::block::{self, CompressTable};
use zstd::bulk;
use zstd::zstd_safe::ResetDirective;

use super::passage::Step;
use super::sparse::check_map;
use crate::io::request::Request;
use crate::wire::frame::crc32c;
use base::codec::{Codec, Coding};
use base::fault::{Class, Fault};
use base::label::Kind;
use base::limits::HEADROOM_BYTES;
use base::tally::Stage;
use base::units::{Nanos, Tick};

/// A payload that keeps more than this share of its length is not worth decompressing.
const KEPT_SHARE_MAX: (u64, u64) = (31, 32);

/// The sample of a payload that is examined before it is compressed.
const PROBE_SAMPLES: usize = 4;
const PROBE_BYTES: usize = 4096;

/// Memory to compress payloads of this length: the output, and what the library takes at most.
pub(crate) fn compressor_bytes(coding: Coding, body_bytes: u32) -> u64 {
    let body = u64::from(body_bytes);
    let room = block::get_maximum_output_size(body_bytes as usize) as u64;
    room + match coding {
        Coding::Raw => 0,
        Coding::Lz4 => 64 << 10,
        Coding::Zlib(_) => 512 << 10,
        Coding::Zstd(..=4) => 4 << 20,
        Coding::Zstd(5..=9) => 12 << 20,
        // Its tables grow with the payload.
        Coding::Zstd(_) => ((8 << 20) + 14 * body).min(96 << 20),
    }
}

/// Memory to decompress payloads of this length.
pub(crate) fn decompressor_bytes(body_bytes: u32) -> u64 {
    u64::from(body_bytes) + (256 << 10)
}

/// Compresses payloads. Memory is allocated when a format is first asked for, then kept.
pub struct Compressor {
    compressed: Vec<u8>,
    body_bytes_max: u32,
    deflate: Option<flate2::Compress>,
    deflate_level: u8,
    zstd: Option<bulk::Compressor<'static>>,
    zstd_level: i8,
    lz4: Option<CompressTable>,
    probe: Option<CompressTable>,
}

impl Compressor {
    pub fn new(body_bytes_max: u32) -> Compressor {
        // LZ4 needs space for the worst case before it begins.
        let room = block::get_maximum_output_size((body_bytes_max as usize).max(PROBE_BYTES));
        Compressor {
            compressed: vec![0; room],
            body_bytes_max,
            deflate: None,
            deflate_level: 0,
            zstd: None,
            zstd_level: 0,
            lz4: None,
            probe: None,
        }
    }

    /// The compressed form of `raw`; `None` where that is hardly shorter.
    pub fn compress(&mut self, coding: Coding, raw: &[u8]) -> Option<&[u8]> {
        assert!(raw.len() <= self.body_bytes_max as usize, "a payload longer than a request");
        let (kept, whole) = KEPT_SHARE_MAX;
        let limit = (raw.len() as u64 * kept / whole) as usize;
        let count = match coding {
            Coding::Raw => None,
            Coding::Lz4 => self.lz4(raw),
            Coding::Zlib(level) => self.deflate(level, raw, limit),
            Coding::Zstd(level) => self.zstd(level, raw, limit),
        };
        let count = count.filter(|count| (1..=limit).contains(count))?;
        Some(&self.compressed[..count])
    }

    /// A fast estimate of the compression ratio: LZ4 of a few samples spread over the payload.
    pub fn probe(&mut self, raw: &[u8]) -> f64 {
        let step = raw.len() / PROBE_SAMPLES;
        let table = self.probe.get_or_insert_with(CompressTable::small);
        let (mut sampled, mut compressed) = (0, 0);
        for sample in 0..PROBE_SAMPLES {
            let from = sample * step + step.saturating_sub(PROBE_BYTES) / 2;
            let bytes = &raw[from..(from + PROBE_BYTES).min(raw.len())];
            // LZ4 has space for the worst case, so it does not fail.
            let count = block::compress_into_with_table(bytes, &mut self.compressed, table);
            sampled += bytes.len();
            compressed += count.unwrap_or(bytes.len());
        }
        sampled.max(1) as f64 / compressed.max(1) as f64
    }

    fn deflate(&mut self, level: u8, raw: &[u8], limit: usize) -> Option<usize> {
        let wanted = Compression::new(u32::from(level));
        let deflate = self.deflate.get_or_insert_with(|| flate2::Compress::new(wanted, false));
        deflate.reset();
        if self.deflate_level != level {
            deflate.set_level(wanted).ok()?;
            self.deflate_level = level;
        }
        let room = &mut self.compressed[..limit];
        let status = deflate.compress(raw, room, FlushCompress::Finish).ok()?;
        (status == Status::StreamEnd).then(|| deflate.total_out() as usize)
    }

    fn zstd(&mut self, level: i8, raw: &[u8], limit: usize) -> Option<usize> {
        let zstd = match &mut self.zstd {
            Some(zstd) => zstd,
            none => none.insert(bulk::Compressor::new(level.into()).ok()?),
        };
        if self.zstd_level != level {
            zstd.set_compression_level(level.into()).ok()?;
            self.zstd_level = level;
        }
        let compressed = zstd.compress_to_buffer(raw, &mut self.compressed[..limit]);
        // In practice only a full buffer fails, so nothing is gained. The library is then in the
        // middle of a payload, and takes no other level before a reset.
        if compressed.is_err() {
            zstd.context_mut().reset(ResetDirective::SessionOnly).ok()?;
        }
        compressed.ok()
    }

    fn lz4(&mut self, raw: &[u8]) -> Option<usize> {
        let table = self.lz4.get_or_insert_with(CompressTable::large);
        block::compress_into_with_table(raw, &mut self.compressed, table).ok()
    }
}

/// Decompresses payloads.
pub struct Decompressor {
    deflate: Option<Decompress>,
    zstd: Option<bulk::Decompressor<'static>>,
}

/// Why something cannot be decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It is not of this format, or of another length than it says.
    Damaged,
    /// The library could not allocate memory.
    NoMemory,
}

impl Default for Decompressor {
    fn default() -> Decompressor {
        Decompressor::new()
    }
}

impl Decompressor {
    pub fn new() -> Decompressor {
        Decompressor { deflate: None, zstd: None }
    }

    /// Decompresses into exactly this buffer: data of any other length is refused, and nothing is
    /// allocated for it.
    pub fn decompress(
        &mut self,
        codec: Codec,
        compressed: &[u8],
        raw: &mut [u8],
    ) -> Result<(), Unfit> {
        let wanted = raw.len();
        let count = match codec {
            Codec::Raw => return Err(Unfit::Damaged),
            Codec::Deflate => self.inflate(compressed, raw)?,
            Codec::Zstd => {
                let zstd = match &mut self.zstd {
                    Some(zstd) => zstd,
                    none => none.insert(bulk::Decompressor::new().map_err(|_| Unfit::NoMemory)?),
                };
                zstd.decompress_to_buffer(compressed, raw).map_err(|_| Unfit::Damaged)?
            }
            Codec::Lz4 => block::decompress_into(compressed, raw).map_err(|_| Unfit::Damaged)?,
        };
        if count == wanted { Ok(()) } else { Err(Unfit::Damaged) }
    }

    fn inflate(&mut self, compressed: &[u8], raw: &mut [u8]) -> Result<usize, Unfit> {
        let inflate = self.deflate.get_or_insert_with(|| Decompress::new(false));
        inflate.reset(false);
        let status = inflate.decompress(compressed, raw, FlushDecompress::Finish);
        let is_whole = matches!(status, Ok(Status::StreamEnd));
        let is_all = inflate.total_in() == compressed.len() as u64;
        if is_whole && is_all { Ok(inflate.total_out() as usize) } else { Err(Unfit::Damaged) }
    }
}

/// Chooses the coding of each payload, and is told the result.
pub trait Chooser: Send + Sync + fmt::Debug {
    /// `ratio`: the compression ratio of a probe of the payload.
    fn choose(&self, ratio: f64, raw_len: u32) -> Choice;
    fn compressed(&self, ratio: f64, coding: Coding, raw_len: u32, compressed_len: u32, took: Took);
    /// The start of compressing a payload that is timed.
    fn begin(&self) -> Moment;
    fn took(&self, since: Moment) -> Took;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub coding: Coding,
    /// The time of the compression must be reported.
    pub is_timed: bool,
}

/// A moment of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub at: Tick,
    /// The CPU time of the thread until then.
    pub cpu: Nanos,
}

/// The time that something took: elapsed, and of a CPU. Other threads may have run in between.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Took {
    pub elapsed: Nanos,
    pub cpu: Nanos,
}

#[derive(Clone, Debug)]
enum How {
    Always(Coding),
    Chosen(Arc<dyn Chooser>),
}

/// At the source: compresses the payload, and notes the format in the label.
#[derive(Debug)]
pub struct CompressStep {
    how: How,
    compressor: Compressor,
}

impl CompressStep {
    pub fn new(coding: Coding, body_bytes_max: u32) -> CompressStep {
        CompressStep { how: How::Always(coding), compressor: Compressor::new(body_bytes_max) }
    }

    /// Compresses each payload as the chooser says.
    pub fn choosing(chooser: Arc<dyn Chooser>, body_bytes_max: u32) -> CompressStep {
        CompressStep { how: How::Chosen(chooser), compressor: Compressor::new(body_bytes_max) }
    }
}

impl Step for CompressStep {
    fn stage(&self) -> Stage {
        Stage::Codec
    }

    fn apply(&mut self, request: &mut Request) -> Result<(), Fault> {
        let carries = matches!(request.label.kind, Kind::Data | Kind::Sparse);
        if !carries || request.payload_len() == 0 {
            return Ok(());
        }
        match &self.how {
            How::Always(coding) => compress(&mut self.compressor, *coding, request),
            How::Chosen(chooser) => {
                let raw_len = request.payload_len();
                let ratio = self.compressor.probe(&request.body()[..raw_len as usize]);
                let Choice { coding, is_timed } = chooser.choose(ratio, raw_len);
                if coding == Coding::Raw {
                    return Ok(());
                }
                let begun = is_timed.then(|| chooser.begin());
                compress(&mut self.compressor, coding, request);
                if let Some(begun) = begun {
                    let took = chooser.took(begun);
                    chooser.compressed(ratio, coding, raw_len, request.payload_len(), took);
                }
            }
        }
        Ok(())
    }
}

/// The compressed payload takes the place of the raw one, and what followed that follows it.
pub fn compress(compressor: &mut Compressor, coding: Coding, request: &mut Request) {
    let raw_len = request.payload_len();
    let Some(compressed) = compressor.compress(coding, &request.body()[..raw_len as usize]) else {
        return;
    };
    let compressed_len = compressed.len() as u32;
    request.label.compressed_check = crc32c(compressed);
    request.body_mut()[..compressed.len()].copy_from_slice(compressed);
    move_voids(request, raw_len, compressed_len);
    request.label.codec = coding.codec();
    request.label.body_len = compressed_len + u32::from(request.label.voids_len);
    request.coding = coding;
}

/// At the sink: decompresses the payload into the request that it came in.
pub struct DecompressStep {
    decompressor: Decompressor,
    /// Where the compressed bytes are while the raw ones take their place.
    compressed: Vec<u8>,
    body_bytes_max: u32,
}

impl DecompressStep {
    pub fn new(body_bytes_max: u32) -> DecompressStep {
        DecompressStep {
            decompressor: Decompressor::new(),
            compressed: vec![0; body_bytes_max as usize],
            body_bytes_max,
        }
    }
}

impl Step for DecompressStep {
    fn stage(&self) -> Stage {
        Stage::Codec
    }

    fn apply(&mut self, request: &mut Request) -> Result<(), Fault> {
        let label = request.label;
        if label.codec == Codec::Raw {
            return Ok(());
        }
        if label.kind == Kind::Sparse {
            check_map(request)?;
        }
        let (compressed_len, raw_len) = (request.payload_len(), request.raw_len());
        // The length that it states is checked before any of its bytes is read.
        if raw_len > self.body_bytes_max || compressed_len >= raw_len {
            return Err(unfit(request, "and stand for more than a request holds"));
        }
        let compressed = &mut self.compressed[..compressed_len as usize];
        compressed.copy_from_slice(&request.body()[..compressed_len as usize]);
        if crc32c(compressed) != label.compressed_check {
            let text = format!(
                "the {compressed_len} compressed bytes for address {} arrived other than they were \
                 sent: suspect memory or wire",
                label.extent.start
            );
            return Err(Fault::new(Class::Corrupt, text));
        }
        move_voids(request, compressed_len, raw_len);
        request.label.codec = Codec::Raw;
        request.label.compressed_check = 0;
        request.label.body_len = raw_len + u32::from(label.voids_len);
        let raw = &mut request.body_mut()[..raw_len as usize];
        match self.decompressor.decompress(label.codec, compressed, raw) {
            Ok(()) => Ok(()),
            Err(Unfit::NoMemory) => {
                Err(Fault::new(Class::Local, "no memory to decompress with: use --compress off"))
            }
            Err(Unfit::Damaged) => {
                request.label = label;
                Err(unfit(request, "and do not decompress to just that"))
            }
        }
    }
}

/// Its checksum was right, so it was sent like this.
fn unfit(request: &Request, what: &str) -> Fault {
    let label = &request.label;
    Fault::peer(format!(
        "the peer sent {} bytes of {} for the {} at address {}, {what}: the peer's fault, or \
         somebody's who plays it",
        request.payload_len(),
        label.codec.name(),
        label.extent.len,
        label.extent.start
    ))
}

/// Moves the list of voids after a payload that becomes shorter or longer.
fn move_voids(request: &mut Request, from: u32, to: u32) {
    let front = HEADROOM_BYTES as usize;
    let from = front + from as usize;
    let end = from + usize::from(request.label.voids_len);
    request.buffer.bytes_mut().copy_within(from..end, front + to as usize);
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Compressor({} bytes)", self.compressed.len())
    }
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decompressor")
    }
}

impl fmt::Debug for DecompressStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DecompressStep({} bytes)", self.compressed.len())
    }
}

#[cfg(test)]
mod tests;
