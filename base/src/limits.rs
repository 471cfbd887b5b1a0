//! Every constant limit, and the assertions between them.

use super::units::Nanos;

/// Streams in one transfer.
pub const STREAMS_MAX: u16 = 64;
/// Bounds of the request size, and the step between allowed sizes.
pub const REQUEST_BYTES_MIN: u32 = 4 << 10;
pub const REQUEST_BYTES_MAX: u32 = 1 << 30;
pub const REQUEST_BYTES_STEP: u32 = 4 << 10;
/// Of a copy from or to an object store: each request has a first byte to wait for.
pub const STORE_REQUEST_BYTES: u32 = 8 << 20;
/// Requests that a stream has under way at an object store: an answer is a round trip away, and
/// each connection begins slowly.
pub const STORE_DEPTH: u16 = 8;
/// Requests under way at object stores, of all streams together.
pub const STORE_REQUESTS_MAX: usize = 64;
/// Of the parts of an object none but the last has less, and a store takes no more of them.
pub const PART_BYTES_MIN: u32 = 5 << 20;
pub const PARTS_MAX: u64 = 10_000;
/// Requests in flight at one end of one lane.
pub const DEPTH_MAX: u16 = 256;
/// Bounds of `--window`.
pub const WINDOW_BYTES_MIN: u32 = 4 << 10;
pub const WINDOW_BYTES_MAX: u32 = 1 << 30;
/// How much a source in lockstep sends between two stops, and how long it may stop.
pub(crate) const LOCKSTEP_BYTES_MIN: u64 = 4 << 10;
pub(crate) const LOCKSTEP_BYTES_MAX: u64 = 1 << 40;
pub(crate) const LOCKSTEP_PAUSE_MAX: Nanos = Nanos(3_600_000_000_000);
/// Least memory a transfer can be given.
pub const MEMORY_BYTES_MIN: u64 = 64 << 20;

/// Patterns of one transfer, and their bytes in all: they are sent in one message.
pub const FILTERS_MAX: usize = 4096;
pub const PATTERN_BYTES_MAX: usize = 4000;
pub const FILTER_BYTES_MAX: usize = 64 << 10;

/// Direct I/O moves whole blocks of this size from addresses of this alignment.
pub const BLOCK_BYTES: u32 = 4096;
/// Room in front of a body, for the frame header.
pub const HEADROOM_BYTES: u32 = BLOCK_BYTES;

/// One control message, header included.
pub const MESSAGE_BYTES_MAX: usize = 128 << 10;
/// Entries in one offer, and bytes they may take encoded.
pub const OFFER_ENTRIES_MAX: usize = 1024;
pub const OFFER_BYTES_MAX: usize = 64 << 10;
/// A path on the wire, and one name in it.
pub const PATH_BYTES_MAX: usize = 4095;
pub const NAME_BYTES_MAX: usize = 255;
/// A host's cost model, as JSON.
pub const MODEL_BYTES_MAX: usize = 32 << 10;
/// Bytes that an object's owner and extended attributes may take encoded.
pub const ATTRIBUTES_BYTES_MAX: usize = 32 << 10;
/// What `--usermap` and `--groupmap` say.
pub const OWNER_RULES_BYTES_MAX: usize = 4096;
/// Users, and groups, of which a source tells the names; files of others have their ids.
pub const OWNER_NAMES_MAX: usize = 64 << 10;
/// Objects offered and not yet finished; one of a slot or more counts as 32.
pub const OBJECTS_IN_FLIGHT_MAX: u64 = 16 << 10;
/// Bytes of their entries in offers: names, targets of links, attributes.
pub const OFFERED_BYTES_MAX: u64 = 16 << 20;
/// Ranges that a sink holds of all objects offered and not yet finished; ranges above the limit are
/// sent again. Enough for 100,000 islands of data, interrupted five times each.
pub const STRETCHES_MAX: usize = 512 << 10;
/// Samples of a path in one message, kept of one stream, and kept of all streams of one side.
pub const SAMPLES_MAX: usize = 256;
pub const PATH_SAMPLES_MAX: usize = 16 << 10;
pub const SIDE_SAMPLES_MAX: usize = 64 << 10;
/// Bytes of shell noise skipped before the far side's first message.
pub const NOISE_BYTES_MAX: usize = 64 << 10;
/// Connections to the data port that have not proved yet that they belong to the transfer.
pub const STRANGERS_MAX: usize = 128;

/// Files of this size and more bypass the page cache where the user leaves the choice to us: they
/// would evict everything else from it, and must reach the disk anyway.
pub const DIRECT_BYTES_MIN: u64 = 16 << 20;

/// Files of which more names may come, at a time. Beyond it a further name is a file of its own, as
/// memory is bounded.
pub const TWINS_MAX: usize = 1 << 19;

const _: () = assert!(SAMPLES_MAX * super::packed::SAMPLE_BYTES_MAX + 64 <= MESSAGE_BYTES_MAX);
const _: () = assert!(OFFER_BYTES_MAX + 1024 <= MESSAGE_BYTES_MAX);
const _: () = assert!(REQUEST_BYTES_MAX.is_multiple_of(REQUEST_BYTES_STEP));
const _: () = assert!(REQUEST_BYTES_STEP.is_multiple_of(BLOCK_BYTES));
/// One read or write moves so much at most on Linux, and a buffer has a body and some blocks more.
const CALL_BYTES_MAX: u32 = 0x7fff_f000;
const _: () = assert!(REQUEST_BYTES_MAX + 16 * BLOCK_BYTES <= CALL_BYTES_MAX);
const _: () = assert!(PATH_BYTES_MAX + 64 < OFFER_BYTES_MAX);
