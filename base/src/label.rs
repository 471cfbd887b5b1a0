//! What a frame says about its body.

use super::codec::Codec;
use super::extent::Extent;
use super::limits::{BLOCK_BYTES, REQUEST_BYTES_STEP};

/// A digest in the form a label carries: 32 bytes of BLAKE3, 8 of CRC-64, or nothing.
pub type Sum = [u8; 32];

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Kind {
    /// The bytes of an extent.
    #[default]
    Data = 1,
    /// The reason instead of bytes: the source cannot read this extent, and its object fails.
    Void = 2,
    /// No bytes and no extent: this stream carries nothing more.
    End = 3,
    /// No bytes: the whole extent is a hole in the source's file, and reads as zeros.
    Zero = 4,
    /// The bytes of an extent without its blocks of zeros, and a map of those that are there.
    Sparse = 5,
}

/// The checksum in front of a map.
pub const MAP_CHECK_BYTES: u32 = 4;

/// Bytes of the map after the data of a sparse frame: a checksum, and a bit for each block.
pub const fn map_bytes(extent_len: u32) -> u32 {
    MAP_CHECK_BYTES + extent_len.div_ceil(BLOCK_BYTES).div_ceil(8)
}

/// The longest extent whose map fits the block behind a body, almost 128 MiB. A longer one is sent
/// with its blocks of zeros, unless it has nothing else.
pub const MAPPED_BYTES_MAX: u32 = (BLOCK_BYTES - MAP_CHECK_BYTES) * 8 * BLOCK_BYTES;

const _: () = assert!(map_bytes(MAPPED_BYTES_MAX) <= BLOCK_BYTES);
const _: () = assert!(map_bytes(MAPPED_BYTES_MAX + 1) > BLOCK_BYTES);
const _: () = assert!(MAPPED_BYTES_MAX.is_multiple_of(REQUEST_BYTES_STEP));

/// The header of a frame: where its body belongs and what its digest must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Label {
    pub kind: Kind,
    pub extent: Extent,
    /// Bytes that follow on the wire: the extent's wanted bytes, then the list of voids, the map or
    /// the digests.
    pub body_len: u32,
    /// Bytes of the list of voids: what the source could not read, and why. In a sparse frame,
    /// bytes of the map.
    pub voids_len: u16,
    /// The format of the payload; decompressed it is as long as the extent, or as the map says.
    pub codec: Codec,
    /// CRC-32C of a compressed payload: it tells damage in transit from a faulty encoder.
    pub compressed_check: u32,
    /// Bytes of the list of digests of the pieces behind a raw payload without voids; `digest` is a
    /// CRC-64 of the payload then. 0: there is none.
    pub digests_len: u16,
    pub digest: Sum,
}
