//! What is fuzzed: each target takes any bytes and fails where the program breaks a promise.
//!
//! `cargo xtask fuzz` drives these with an engine, `tests/corpus.rs` with the committed corpus.

#[path = "conversation.rs"]
mod conversation;

use base::codec::Codec;
use base::extent::Extent;
use base::fault::{Class, Fault};
use base::label::{Kind, Label, MAP_CHECK_BYTES, map_bytes};
use base::limits::{HEADROOM_BYTES, MESSAGE_BYTES_MAX, OBJECTS_IN_FLIGHT_MAX, OFFER_ENTRIES_MAX};
use base::units::Tick;
pub(super) use conversation::conversation;
use crc_fast::{CrcAlgorithm, checksum};
use mover::io::request::Request;
use mover::pump::sink::journal::{Record, Replay};
use mover::wire::frame::{self, HEADER_BYTES};
use mover::wire::manifest::{Chunk, Entry, EntryKind, Layout, Slot, path_is_safe};
use mover::wire::message::{Message, Role};
use mover::wire::reader::{Reader, Writer};
use mover::wire::session::Session;
use mover::work::codec::DecompressStep;
use mover::work::passage::Step;
use mover::work::sparse::Expand;

/// A label that is read is written as the same bytes; the check sum is made right, or nothing
/// behind it would ever be reached.
pub(super) fn frame(bytes: &[u8]) {
    let Some(raw) = bytes.first_chunk::<HEADER_BYTES>() else { return };
    check_frame(raw);
    let mut sealed = *raw;
    sealed[..4].copy_from_slice(b"DPF1");
    let sum = checksum(CrcAlgorithm::Crc32Iscsi, &sealed[..60]) as u32;
    sealed[60..].copy_from_slice(&sum.to_le_bytes());
    check_frame(&sealed);
}

fn check_frame(header: &[u8; HEADER_BYTES]) {
    let Ok(label) = frame::decode(header) else { return };
    assert!(label.extent.start.checked_add(u64::from(label.extent.len)).is_some());
    assert!(u32::from(label.voids_len) <= label.body_len);
    assert_eq!(frame::encode(&label), *header, "a label that is written in another way");
}

/// A message that is read can be written, and is read again as the same.
pub(super) fn message(bytes: &[u8]) {
    if let Some(envelope) = bytes.first_chunk::<4>()
        && let Ok(length) = Message::length(*envelope)
    {
        assert!((1..=MESSAGE_BYTES_MAX).contains(&length));
    }
    let Ok(message) = Message::decode(&bytes[..bytes.len().min(MESSAGE_BYTES_MAX)]) else { return };
    let encoded = message.encode();
    let envelope = encoded.first_chunk().expect("an envelope");
    assert_eq!(Message::length(*envelope).ok(), Some(encoded.len() - 4));
    assert_eq!(Message::decode(&encoded[4..]), Ok(message));
}

/// Whatever the peer says, a session refuses it or its counts stay right. The first byte says which
/// side we are, then each step is ours or a message of the peer behind its length.
pub(super) fn session(bytes: &[u8]) {
    let mut from = Reader::new(bytes);
    let Ok(side) = from.u8() else { return };
    let role = if side & 1 == 0 { Role::Source } else { Role::Sink };
    let mut talk = Talk {
        session: match side & 2 {
            0 => Session::driver(role, "fuzz", Tick(0)),
            _ => Session::follower("fuzz", Tick(0)),
        },
        we_offer: side & 3 == 0,
        moving: false,
        offered: 0,
        settled: 0,
        now: 0,
    };
    while talk.step(&mut from).is_ok() {}
}

/// A session, and our own count of what it must know.
struct Talk {
    session: Session,
    we_offer: bool,
    moving: bool,
    offered: u64,
    settled: u64,
    now: u64,
}

impl Talk {
    /// An error where the bytes are used up or the session has refused something.
    fn step(&mut self, from: &mut Reader<'_>) -> Result<(), Fault> {
        self.now = self.now.saturating_add(u64::from(from.u8()?) << 27);
        self.session.poll(Tick(self.now), false)?;
        let length = from.u16()?;
        if length == 0 {
            self.offer(u64::from(from.u16()?));
            return Ok(());
        }
        let message = Message::decode(from.take(usize::from(length))?)?;
        self.session.hear(Tick(self.now), &message)?;
        self.moving |= matches!(message, Message::Opened(_));
        self.count(&message);
        Ok(())
    }

    /// Offers what there is credit for by our own count: the session must let it pass.
    fn offer(&mut self, wanted: u64) {
        let credit = OBJECTS_IN_FLIGHT_MAX - (self.offered - self.settled);
        let count = wanted.min(credit).min(OFFER_ENTRIES_MAX as u64);
        if !self.we_offer || !self.moving || count == 0 {
            return;
        }
        let entries = vec![Entry::default(); count as usize];
        self.session.say(Tick(self.now), &Message::Offer { first: self.offered, entries });
        self.offered += count;
    }

    fn count(&mut self, message: &Message) {
        match message {
            Message::Offer { entries, .. } => self.offered += entries.len() as u64,
            Message::Finished { objects } | Message::Held { objects } => {
                self.settled += objects.len() as u64;
            }
            Message::Failed { .. } | Message::Kept { .. } => self.settled += 1,
            _ => {}
        }
        assert!(self.settled <= self.offered, "more settled than offered was let pass");
    }
}

/// Entries are read and written alike, no path leaves the target, and no two objects share an
/// address. The first byte chooses the slot, the second which objects are wanted.
pub(super) fn manifest(bytes: &[u8]) {
    let mut from = Reader::new(bytes);
    let (Ok(size), Ok(wanted)) = (from.u8(), from.u8()) else { return };
    let slot_bytes = 4096_u32 << (size % 13);
    let mut layout = Layout::new(slot_bytes);
    let mut end = 0;
    while let Ok(count) = from.u8() {
        let entries: Vec<Entry> =
            (0..count).map_while(|_| Entry::decode(&mut from).ok()).inspect(check_entry).collect();
        let Ok(chunk) = layout.place(entries) else { return };
        end = check_chunk(&chunk, slot_bytes, end);
        check_slots(&chunk, slot_bytes, wanted);
    }
}

fn check_entry(entry: &Entry) {
    // The destination itself is left under an empty path.
    let root = entry.kind == EntryKind::Leave && entry.path.is_empty();
    assert!(root || path_is_safe(&entry.path));
    assert!(!entry.path.starts_with(b"/") && !entry.path.split(|b| *b == b'/').any(|n| n == b".."));
    let mut out = Writer::default();
    entry.encode(&mut out);
    assert!(out.bytes.len() <= entry.encoded_bytes(), "an entry is longer than it says");
    let mut again = Reader::new(&out.bytes);
    assert_eq!(Entry::decode(&mut again).as_ref(), Ok(entry));
    assert!(again.end().is_ok());
}

/// Returns where the last object ends.
fn check_chunk(chunk: &Chunk, slot_bytes: u32, mut end: u64) -> u64 {
    assert_eq!(chunk.starts.len(), chunk.entries.len());
    for (entry, start) in chunk.entries.iter().zip(&chunk.starts) {
        assert!(*start >= end, "two objects share an address");
        end = start.checked_add(entry.size).expect("the layout has checked the sum");
        let slot = u64::from(slot_bytes);
        let fits = entry.size <= slot && start % slot + entry.size <= slot;
        assert!(fits || start.is_multiple_of(slot), "an object lies across slots");
    }
    end
}

fn check_slots(chunk: &Chunk, slot_bytes: u32, wanted: u8) {
    let is_wanted = |member: usize| wanted >> (member % 8) & 1 == 1;
    let mut members = Vec::new();
    for slot in chunk.slots(is_wanted, slot_bytes) {
        match slot {
            Slot::Object { member } => members.push(member),
            Slot::Batch { start, members: batch } => {
                let bytes: u64 = batch.iter().map(|member| chunk.entries[*member].size).sum();
                assert!(bytes <= u64::from(slot_bytes), "a batch is longer than a request");
                assert_eq!(start, chunk.starts[batch[0]]);
                members.extend(batch);
            }
        }
    }
    let has_bytes = |member: &usize| chunk.entries[*member].size > 0 && is_wanted(*member);
    assert!((0..chunk.entries.len()).filter(has_bytes).eq(members));
    let bodiless = |kind| !matches!(kind, EntryKind::File | EntryKind::Stretch | EntryKind::Pipe);
    assert!(chunk.entries.iter().all(|entry| !bodiless(entry.kind) || entry.size == 0));
}

/// Whatever is compressed in a payload, it decompresses to just what its header says or it is
/// the peer's fault, and no byte outside the payload's room changes. The first byte says how it is
/// compressed, the next two how long it claims to be. The same bytes then are a payload with a map
/// behind it.
pub(super) fn decompress(bytes: &[u8]) {
    decompress_whole(bytes);
    decompress_sparse(bytes);
}

/// What is left of a payload, and a map of it: made whole it is as long as its extent, with what
/// came in it and zeros, or it is the peer's fault.
fn decompress_sparse(bytes: &[u8]) {
    let [codec, low, high, rest @ ..] = bytes else { return };
    let Some(codec) = Codec::from_code(codec % 4) else { return };
    let len = u32::from(u16::from_le_bytes([*low, *high]));
    let map_len = map_bytes(len) as usize - MAP_CHECK_BYTES as usize;
    let Some((map, payload)) = rest.split_at_checked(map_len) else { return };
    let payload = &payload[..payload.len().min(ROOM_BYTES as usize)];
    let body = [payload, &frame::crc32c(map).to_le_bytes(), map].concat();
    let mut request = Request::new(ROOM_BYTES);
    request.label = Label {
        kind: Kind::Sparse,
        extent: Extent { start: 0, len },
        body_len: body.len() as u32,
        voids_len: map_bytes(len) as u16,
        codec,
        compressed_check: if codec == Codec::Raw { 0 } else { frame::crc32c(payload) },
        ..Label::default()
    };
    request.buffer.bytes_mut().fill(0xa5);
    request.body_mut().copy_from_slice(&body);
    let decompressed = DecompressStep::new(ROOM_BYTES).apply(&mut request);
    match decompressed.and_then(|()| Expand::new(ROOM_BYTES).apply(&mut request)) {
        Ok(()) => {
            assert_eq!((request.body().len(), request.label.kind), (len as usize, Kind::Data));
            let data = |bytes: &[u8]| bytes.iter().filter(|byte| **byte != 0).count();
            let came = if codec == Codec::Raw { data(payload) } else { data(request.body()) };
            assert_eq!(data(request.body()), came, "bytes that did not come");
        }
        Err(fault) => assert_eq!(fault.class, Class::Peer, "{fault}"),
    }
    let front = &request.buffer.bytes()[..HEADROOM_BYTES as usize];
    assert!(front.iter().all(|byte| *byte == 0xa5), "bytes in front of the payload changed");
}

fn decompress_whole(bytes: &[u8]) {
    let [codec, low, high, compressed @ ..] = bytes else { return };
    let Some(codec) = Codec::from_code(codec % 4) else { return };
    let len = u32::from(u16::from_le_bytes([*low, *high]));
    let compressed = &compressed[..compressed.len().min(ROOM_BYTES as usize)];
    let mut request = Request::new(ROOM_BYTES);
    request.label = Label {
        kind: Kind::Data,
        extent: Extent { start: 0, len },
        body_len: compressed.len() as u32,
        codec,
        compressed_check: frame::crc32c(compressed),
        ..Label::default()
    };
    request.buffer.bytes_mut().fill(0xa5);
    request.body_mut().copy_from_slice(compressed);
    let outcome = DecompressStep::new(ROOM_BYTES).apply(&mut request);
    match outcome {
        Ok(()) if codec == Codec::Raw => assert_eq!(request.body(), compressed),
        Ok(()) => {
            assert_eq!((request.body().len(), request.label.codec), (len as usize, Codec::Raw))
        }
        Err(fault) => assert_eq!(fault.class, Class::Peer, "{fault}"),
    }
    let used = HEADROOM_BYTES as usize + compressed.len().max(len.min(ROOM_BYTES) as usize);
    let all = request.buffer.bytes();
    let untouched = all[..HEADROOM_BYTES as usize].iter().chain(&all[used..]);
    assert!(untouched.into_iter().all(|byte| *byte == 0xa5), "bytes outside the payload changed");
}

/// Less than what can be claimed.
const ROOM_BYTES: u32 = 32 << 10;

/// Any bytes are some journal: what is sound at their front is believed, the rest is forgotten. The
/// same bytes say the same however they are cut, and nothing that a journal says reaches past its
/// file.
pub(super) fn journal(bytes: &[u8]) {
    check_journal(bytes);
    // The same as the fields of records whose lengths and check sums are right.
    let mut sound = Record::Open { transfer: TRANSFER }.encode();
    let mut from = Reader::new(bytes);
    while let Ok(fields) = from.u8().and_then(|length| from.take(usize::from(length))) {
        sound.extend_from_slice(&(fields.len() as u32).to_le_bytes());
        let sum = checksum(CrcAlgorithm::Crc32Iscsi, fields) as u32;
        sound.extend_from_slice(&sum.to_le_bytes());
        sound.extend_from_slice(fields);
    }
    check_journal(&sound);
}

const TRANSFER: [u8; 16] = [7; 16];

fn check_journal(bytes: &[u8]) {
    let mut at = 0;
    while let Some((record, length)) = Record::decode(&bytes[at..]) {
        assert_eq!(Record::decode(&record.encode()), Some((record, length)));
        at += length;
    }
    let mut whole = Replay::default();
    let used = whole.take(bytes, &TRANSFER);
    assert!(used <= at && whole.sound_bytes == used as u64);
    for partial in whole.partials() {
        let size = partial.origin.size;
        for held in [&partial.flushed, &partial.written] {
            assert!(held.ranges.ranges().all(|(start, end)| start < end && end <= size));
        }
    }
    let mut cut = Replay::default();
    let first = cut.take(&bytes[..bytes.len() / 2], &TRANSFER);
    cut.take(&bytes[first..], &TRANSFER);
    assert!(whole.partials().eq(cut.partials()), "cut in two it says something else");
}
