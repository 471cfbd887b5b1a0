//! Digests as a step, and the digest of a file from those of its parts, in whatever order they
//! come.
//!
//! BLAKE3 is a tree of 1 KiB chunks (specification, section 2.1): the nodes of a part's aligned
//! power-of-two blocks can be merged with their siblings later, so each side hashes bytes once.
//! CRC-64/NVME values of neighbours combine likewise.

mod file_sum;
mod short;
mod whole;

use std::slice::ChunksExact;

use blake3::hazmat::HasherExt;
use crc_fast::{CrcAlgorithm, checksum};

use super::extra::{Also, Running};
use super::passage::Step;
use crate::io::request::{Content, Coverage, ExtraPiece, Piece, Request};
use base::codec::Codec;
use base::fault::{Class, Fault};
use base::label::{Kind, Sum};
use base::limits::BLOCK_BYTES;
use base::settings::DigestKind;
use base::tally::Stage;
pub(crate) use file_sum::{FileSum, Shift};
pub(crate) use whole::Whole;

/// Bytes of a BLAKE3 chunk: no node covers less, except the last of a file.
const CHUNK_BYTES: u64 = 1024;

/// At the source: digests the body and writes the digest into the label.
#[derive(Debug)]
pub struct Sign {
    method: Method,
}

/// At the sink: digests the body and refuses it where the label has another digest. Where the
/// digests came with the body, checks a CRC-64 instead.
#[derive(Debug)]
pub struct Check {
    method: Method,
}

impl Sign {
    pub fn new(kind: DigestKind, slot_bytes: u32) -> Sign {
        Sign { method: Method::new(kind, slot_bytes) }
    }

    /// With these digests besides, in the same pass.
    pub(crate) fn with(self, also: Also) -> Sign {
        Sign { method: Method { also, ..self.method } }
    }
}

impl Check {
    pub fn new(kind: DigestKind, slot_bytes: u32) -> Check {
        Check { method: Method::new(kind, slot_bytes) }
    }

    /// With these digests besides, in the same pass.
    pub(crate) fn with(self, also: Also) -> Check {
        Check { method: Method { also, ..self.method } }
    }
}

impl Step for Sign {
    fn stage(&self) -> Stage {
        Stage::Digest
    }

    fn apply(&mut self, request: &mut Request) -> Result<(), Fault> {
        request.extra.clear();
        match request.label.kind {
            Kind::Data => request.label.digest = self.method.digest(request),
            Kind::Zero => self.method.digest_hole(request),
            Kind::Sparse | Kind::Void | Kind::End => {}
        }
        Ok(())
    }
}

impl Step for Check {
    fn stage(&self) -> Stage {
        Stage::Digest
    }

    fn apply(&mut self, request: &mut Request) -> Result<(), Fault> {
        assert_ne!(request.label.kind, Kind::Sparse, "it is expanded before it is checked");
        request.extra.clear();
        if request.label.kind == Kind::Zero {
            self.method.digest_hole(request);
        }
        let is_right = match request.label {
            label if label.digests_len > 0 => self.method.take_digests(request)?,
            label if label.kind == Kind::Data => self.method.digest(request) == label.digest,
            _ => true,
        };
        if is_right {
            return Ok(());
        }
        let extent = request.label.extent;
        Err(Fault::new(
            Class::Corrupt,
            format!(
                "the {} bytes at address {} arrived other than they were sent: suspect \
                 memory or wire",
                extent.len, extent.start
            ),
        ))
    }
}

/// At the source, where the sink does not digest: the digests of the pieces follow a raw payload,
/// and its CRC-64 takes the place of their digest. What is compressed, has holes or has voids, and
/// what is of very many pieces, is left as it is and digested by the sink too.
pub(crate) fn attach(request: &mut Request) {
    let label = &request.label;
    let is_plain = label.kind == Kind::Data && label.codec == Codec::Raw && label.voids_len == 0;
    let list_len = request.pieces.len() * SUM_BYTES;
    if !is_plain || list_len == 0 || list_len > BLOCK_BYTES as usize {
        return;
    }
    let check = crc(request.body());
    let at = request.body_span().end as usize;
    let list = &mut request.buffer.bytes_mut()[at..at + list_len];
    for (place, piece) in list.chunks_exact_mut(SUM_BYTES).zip(&request.pieces) {
        place.copy_from_slice(&piece.sum);
    }
    let label = &mut request.label;
    label.digest = check;
    label.digests_len = list_len as u16;
    label.body_len += list_len as u32;
}

const SUM_BYTES: usize = size_of::<Sum>();

/// A kind of digest, the largest block that is digested as one, and what is computed besides.
#[derive(Clone, Copy, Debug)]
struct Method {
    kind: DigestKind,
    block_bytes: u64,
    also: Also,
}

impl Method {
    /// Blocks are at most half a slot, so that an object of one whole slot whose length is not
    /// known beforehand (a pipe) still has two nodes, from which a root can be made.
    fn new(kind: DigestKind, slot_bytes: u32) -> Method {
        let half = u64::from(slot_bytes) / 2;
        Method { kind, block_bytes: 1 << half.max(CHUNK_BYTES).ilog2(), also: Also::NONE }
    }

    /// Digests the body into `pieces`, and those into one.
    fn digest(&self, request: &mut Request) -> Sum {
        let mut found = Found::taken_from(request);
        if self.kind != DigestKind::None || !self.also.is_none() {
            self.cut(request, &mut found, &mut Sums::Computed(self.kind))
                .expect("as many as there are pieces");
        }
        if self.kind == DigestKind::None {
            found.pieces.clear();
        }
        let mut all = blake3::Hasher::new();
        for piece in &found.pieces {
            all.update(&piece.sum);
        }
        all.update(&request.body()[request.payload_len() as usize..]);
        found.give_back(request);
        match self.kind {
            DigestKind::None => [0; 32],
            DigestKind::Blake3 | DigestKind::Crc64 => *all.finalize().as_bytes(),
        }
    }

    /// Makes `pieces` of the digests behind the payload; false where the payload is not what they
    /// were computed from.
    fn take_digests(&self, request: &mut Request) -> Result<bool, Fault> {
        let mut found = Found::taken_from(request);
        let (payload, list) = request.body().split_at(request.payload_len() as usize);
        let mut sums = Sums::Given(list.chunks_exact(SUM_BYTES));
        let cut = self.cut(request, &mut found, &mut sums);
        let fits = cut.is_some() && sums.is_used_up();
        let computed = match (&request.content, &found.extra[..]) {
            (Content::Part(_), [ExtraPiece { crc64: Some(crc64), .. }]) => sum_of(*crc64),
            _ => crc(payload),
        };
        let is_right = computed == request.label.digest;
        found.give_back(request);
        request.label.body_len -= u32::from(std::mem::take(&mut request.label.digests_len));
        match fits {
            true => Ok(is_right),
            false => Err(Fault::peer("a frame with more or fewer digests than it has pieces")),
        }
    }

    /// The header of a hole describes it completely, so it needs no digest; its file does, where
    /// the hole has been filled with zeros.
    fn digest_hole(&self, request: &mut Request) {
        if request.label.body_len > 0 {
            self.digest(request);
        }
    }

    /// `None` where there are too few sums.
    fn cut(&self, request: &Request, found: &mut Found, sums: &mut Sums<'_>) -> Option<()> {
        let payload = &request.body()[..request.payload_len() as usize];
        let Found { pieces, extra } = found;
        match &request.content {
            Content::Unknown => {}
            Content::Part(part) => {
                let (offset, len) = (part.offset, payload.len() as u32);
                let mut also = self.also.begin(part.coverage);
                match part.coverage {
                    Coverage::All => {
                        let sum = sums.whole(payload, &mut also)?;
                        pieces.push(Piece { segment: 0, offset: 0, len, sum });
                    }
                    Coverage::Some => self.cut_part((offset, payload), pieces, sums, &mut also)?,
                }
                extra.extend(also.piece(0, (offset, len.into())));
            }
            Content::Batch(batch) => {
                for (index, segment) in batch.segments.iter().enumerate() {
                    if request.is_void(index) {
                        continue;
                    }
                    let bytes = &payload[segment.at as usize..(segment.at + segment.len) as usize];
                    let mut also = self.also.begin(Coverage::All);
                    let sum = sums.whole(bytes, &mut also)?;
                    let (segment, len) = (index as u16, segment.len);
                    pieces.push(Piece { segment, offset: 0, len, sum });
                    extra.extend(also.piece(segment, (0, len.into())));
                }
            }
        }
        Some(())
    }

    fn cut_part(
        &self,
        (start, payload): (u64, &[u8]),
        pieces: &mut Vec<Piece>,
        sums: &mut Sums<'_>,
        also: &mut Running,
    ) -> Option<()> {
        let mut rest = payload;
        let mut offset = start;
        while !rest.is_empty() {
            let take = match self.kind {
                DigestKind::Blake3 => {
                    block_len(offset, rest.len() as u64, self.block_bytes) as usize
                }
                DigestKind::Crc64 | DigestKind::None => rest.len(),
            };
            let (block, after) = rest.split_at(take);
            let sum = sums.part(offset, block, also)?;
            pieces.push(Piece { segment: 0, offset, len: take as u32, sum });
            offset += take as u64;
            rest = after;
        }
        Some(())
    }
}

/// What is found out about the bytes of a request, in memory that the request keeps.
struct Found {
    pieces: Vec<Piece>,
    extra: Vec<ExtraPiece>,
}

impl Found {
    fn taken_from(request: &mut Request) -> Found {
        let mut found = Found {
            pieces: std::mem::take(&mut request.pieces),
            extra: std::mem::take(&mut request.extra),
        };
        found.pieces.clear();
        found.extra.clear();
        found
    }

    fn give_back(self, request: &mut Request) {
        (request.pieces, request.extra) = (self.pieces, self.extra);
    }
}

/// Where the digests of pieces come from.
enum Sums<'a> {
    Computed(DigestKind),
    /// The source's, in the order of the pieces.
    Given(ChunksExact<'a, u8>),
}

impl Sums<'_> {
    /// Of an object whose bytes these are.
    fn whole(&mut self, bytes: &[u8], also: &mut Running) -> Option<Sum> {
        let fits_the_cache = also.is_empty() || bytes.len() <= CACHED_BYTES;
        match self {
            Sums::Computed(DigestKind::Blake3) if fits_the_cache => {
                also.update(bytes);
                Some(short::hash(bytes))
            }
            Sums::Computed(DigestKind::Blake3) => {
                let mut blake = blake3::Hasher::new();
                together(bytes, also, |block| {
                    blake.update(block);
                });
                Some(*blake.finalize().as_bytes())
            }
            Sums::Computed(DigestKind::Crc64 | DigestKind::None) | Sums::Given(_) => {
                self.part(0, bytes, also)
            }
        }
    }

    fn is_used_up(&self) -> bool {
        match self {
            Sums::Computed(_) => true,
            Sums::Given(sums) => sums.len() == 0,
        }
    }

    /// Of a part of a longer object.
    fn part(&mut self, offset: u64, block: &[u8], also: &mut Running) -> Option<Sum> {
        match self {
            Sums::Computed(DigestKind::Blake3) => {
                let mut blake = blake3::Hasher::new();
                blake.set_input_offset(offset);
                together(block, also, |block| {
                    blake.update(block);
                });
                Some(blake.finalize_non_root())
            }
            Sums::Computed(DigestKind::Crc64) if also.is_empty() => Some(crc(block)),
            Sums::Computed(DigestKind::Crc64) => {
                let mut crc = crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme);
                together(block, also, |block| crc.update(block));
                Some(sum_of(crc.finalize()))
            }
            Sums::Computed(DigestKind::None) => {
                also.update(block);
                Some([0; 32])
            }
            Sums::Given(sums) => {
                also.update(block);
                sums.next()?.try_into().ok()
            }
        }
    }
}

/// Each digest takes a block while the processor's cache has it.
fn together(bytes: &[u8], also: &mut Running, mut own: impl FnMut(&[u8])) {
    let at_once = if also.is_empty() { usize::MAX } else { CACHED_BYTES };
    for block in bytes.chunks(at_once) {
        own(block);
        also.update(block);
    }
}

/// So much stays in the cache of every processor.
const CACHED_BYTES: usize = 64 << 10;

/// The longest block at `offset` that is a whole subtree: a power of two, aligned to itself.
fn block_len(offset: u64, left: u64, max: u64) -> u64 {
    if left < CHUNK_BYTES {
        return left;
    }
    let fits = 1 << left.ilog2();
    let aligned = if offset == 0 { max } else { 1 << offset.trailing_zeros() };
    debug_assert!(aligned >= CHUNK_BYTES, "a part that begins inside a chunk");
    fits.min(aligned).min(max)
}

fn crc(bytes: &[u8]) -> Sum {
    sum_of(checksum(CrcAlgorithm::Crc64Nvme, bytes))
}

fn sum_of(crc64: u64) -> Sum {
    let mut sum = [0; 32];
    sum[..8].copy_from_slice(&crc64.to_le_bytes());
    sum
}

/// The digest of no bytes.
pub(crate) fn empty_sum(kind: DigestKind) -> Option<Sum> {
    match kind {
        DigestKind::Blake3 => Some(*blake3::hash(b"").as_bytes()),
        DigestKind::Crc64 => Some(crc(b"")),
        DigestKind::None => None,
    }
}

/// A digest as people write it: 64 hex digits of BLAKE3, 16 of CRC-64, most significant first.
pub fn to_hex(kind: DigestKind, sum: &Sum) -> String {
    match kind {
        DigestKind::Blake3 | DigestKind::None => {
            blake3::Hash::from_bytes(*sum).to_hex().to_string()
        }
        DigestKind::Crc64 => {
            let mut value = [0; 8];
            value.copy_from_slice(&sum[..8]);
            format!("{:016x}", u64::from_le_bytes(value))
        }
    }
}

/// The digest of a range of a file, as it can be stored and found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    pub offset: u64,
    pub len: u64,
    pub sum: Sum,
}

/// True when the bytes that `read` returns at an offset have the digest of this node. It reads as
/// often as it must; bytes that cannot be read do not match.
pub(crate) fn node_matches(
    kind: DigestKind,
    node: &Node,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<usize, Fault>,
) -> bool {
    let mut blake = blake3::Hasher::new();
    // A BLAKE3 node that does not begin at a chunk is not ours.
    if kind == DigestKind::Blake3 {
        if !node.offset.is_multiple_of(CHUNK_BYTES) || !is_subtree(node) {
            return false;
        }
        blake.set_input_offset(node.offset);
    }
    let mut crc = crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme);
    let mut buffer = vec![0; CHECK_BYTES];
    let mut at = 0;
    while at < node.len {
        let want = (node.len - at).min(CHECK_BYTES as u64) as usize;
        match read(node.offset + at, &mut buffer[..want]) {
            Ok(count @ 1..) => {
                match kind {
                    DigestKind::Blake3 => drop(blake.update(&buffer[..count])),
                    DigestKind::Crc64 => crc.update(&buffer[..count]),
                    DigestKind::None => return false,
                }
                at += count as u64;
            }
            Ok(0) | Err(_) => return false,
        }
    }
    match kind {
        DigestKind::Blake3 => blake.finalize_non_root() == node.sum,
        DigestKind::Crc64 => node.sum[..8] == crc.finalize().to_le_bytes(),
        DigestKind::None => false,
    }
}

/// The nodes of these ranges, which begin and end between requests, of what `read` returns. A range
/// that cannot be read has none.
pub fn nodes_of(
    kind: DigestKind,
    slot_bytes: u32,
    stretches: &[(u64, u64)],
    read: impl Fn(u64, &mut [u8]) -> Result<usize, Fault>,
) -> Vec<Node> {
    let method = Method::new(kind, slot_bytes);
    let mut sums = FileSum::apart(kind, None);
    let mut buffer = vec![0; slot_bytes as usize];
    let mut pieces = Vec::new();
    for (start, end) in stretches {
        for at in (*start..*end).step_by(slot_bytes as usize) {
            let request = &mut buffer[..(end - at).min(slot_bytes.into()) as usize];
            let mut filled = 0;
            while let Ok(count @ 1..) = read(at + filled as u64, &mut request[filled..]) {
                filled += count;
            }
            if filled == request.len() {
                let mut computed = Sums::Computed(kind);
                method
                    .cut_part((at, request), &mut pieces, &mut computed, &mut Running::none())
                    .expect("as many as there are pieces");
                pieces.drain(..).for_each(|piece| sums.add(&piece));
            }
        }
    }
    sums.take_nodes()
}

/// A BLAKE3 node is never longer than its place in the tree allows.
fn is_subtree(node: &Node) -> bool {
    let longest = match node.offset {
        0 => u64::MAX,
        offset => 1 << offset.trailing_zeros(),
    };
    node.len <= longest
}

const CHECK_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::file_sum::apply;
    use super::*;
    use crate::io::request::Part;
    use crate::work::extra;
    use base::extra::ExtraDigests;
    use crc_fast::checksum_combine;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    fn cut(method: Method, part: (u64, &[u8]), pieces: &mut Vec<Piece>) {
        let mut sums = Sums::Computed(method.kind);
        method.cut_part(part, pieces, &mut sums, &mut Running::none()).unwrap();
    }

    /// Cuts a file into parts as a transfer would, in any order, and expects the digest of the
    /// whole.
    fn check(kind: DigestKind, len: usize, slot: u32, order: &[usize]) {
        let data = bytes(len);
        let method = Method::new(kind, slot);
        let shift = len.is_multiple_of(2).then(|| Arc::new(Shift::new(slot)));
        let mut file = FileSum::with_shift(kind, shift);
        let parts: Vec<(u64, &[u8])> = data
            .chunks(slot as usize)
            .enumerate()
            .map(|(i, part)| (i as u64 * u64::from(slot), part))
            .collect();
        let mut left: Vec<usize> = (0..parts.len()).collect();
        let mut turn = 0;
        while !left.is_empty() {
            let pick = order[turn % order.len()] % left.len();
            turn += 1;
            let (offset, part) = parts[left.swap_remove(pick)];
            let mut pieces = Vec::new();
            cut(method, (offset, part), &mut pieces);
            pieces.iter().for_each(|piece| file.add(piece));
        }
        let expect = Sums::Computed(kind).whole(&data, &mut Running::none()).unwrap();
        if kind == DigestKind::Blake3 && len <= slot as usize && len < slot as usize {
            return; // such a file is digested whole
        }
        assert_eq!(
            file.finish(0..len as u64, len as u64),
            Some(expect),
            "{kind:?} {len} bytes in slots of {slot}"
        );
    }

    #[test]
    fn sizes_around_the_edges() {
        for kind in [DigestKind::Blake3, DigestKind::Crc64] {
            for slot in [4096, 12288, 65536] {
                for len in
                    [slot, slot + 1, 2 * slot - 1, 2 * slot, 3 * slot + 1025, 8 * slot, 9 * slot]
                {
                    check(kind, len as usize, slot, &[0, 3, 1]);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn any_order(
            len in 8193usize..200_000,
            slot in 1u32..6,
            order in prop::collection::vec(any::<usize>(), 1..50),
            crc in any::<bool>(),
        ) {
            let kind = if crc { DigestKind::Crc64 } else { DigestKind::Blake3 };
            check(kind, len, slot * 4096, &order);
        }

        #[test]
        fn a_missing_part_is_noticed(len in 20_000usize..90_000, miss in any::<usize>()) {
            let data = bytes(len);
            let method = Method::new(DigestKind::Blake3, 4096);
            let mut file = FileSum::new(DigestKind::Blake3);
            let miss = miss % len.div_ceil(4096);
            for (i, part) in data.chunks(4096).enumerate().filter(|(i, _)| *i != miss) {
                let mut pieces = Vec::new();
                cut(method, (i as u64 * 4096, part), &mut pieces);
                pieces.iter().for_each(|piece| file.add(piece));
            }
            prop_assert_eq!(file.finish(0..len as u64, len as u64), None);
        }
    }

    /// The digests of ranges that are kept apart add up to that of the file.
    #[test]
    fn a_range_has_its_part_of_the_tree() {
        let method = Method::new(DigestKind::Blake3, 4096);
        for len in [8193, 16384, 32768, 40000, 49153] {
            let data = bytes(len);
            for range_len in [4096, 8192, 16384] {
                for start in (0..len).step_by(range_len).filter(|_| range_len < len) {
                    let end = len.min(start + range_len);
                    let mut file = FileSum::new(DigestKind::Blake3);
                    for at in (start..end).step_by(4096).rev() {
                        let mut pieces = Vec::new();
                        cut(method, (at as u64, &data[at..end.min(at + 4096)]), &mut pieces);
                        pieces.iter().for_each(|piece| file.add(piece));
                    }
                    let mut expect = blake3::Hasher::new();
                    expect.set_input_offset(start as u64).update(&data[start..end]);
                    assert_eq!(
                        file.finish(start as u64..end as u64, len as u64),
                        Some(expect.finalize_non_root()),
                        "{start}..{end} of {len}"
                    );
                }
            }
        }
    }

    #[test]
    fn few_nodes_when_in_order() {
        let data = bytes(1 << 20);
        let method = Method::new(DigestKind::Blake3, 16384);
        let mut file = FileSum::new(DigestKind::Blake3);
        for (i, part) in data.chunks(16384).enumerate() {
            let mut pieces = Vec::new();
            cut(method, (i as u64 * 16384, part), &mut pieces);
            pieces.iter().for_each(|piece| file.add(piece));
            assert!(file.nodes.len() <= 16, "{} nodes after part {i}", file.nodes.len());
        }
    }

    proptest! {
        #[test]
        fn a_shift_is_what_the_library_says(left: u64, right: u64, bytes in 1u32..20_000_000) {
            let expect = checksum_combine(CrcAlgorithm::Crc64Nvme, left, right, u64::from(bytes));
            prop_assert_eq!(apply(&Shift::new(bytes).columns, left) ^ right, expect);
        }
    }

    fn signed(kind: DigestKind) -> Box<Request> {
        let mut request = Request::new(8192);
        request.label.kind = Kind::Data;
        request.label.extent.len = 5000;
        request.label.body_len = 5000;
        request.content =
            Content::Part(Part { object: 0, offset: 8192, coverage: Coverage::Some, file: None });
        Sign::new(kind, 8192).apply(&mut request).unwrap();
        request
    }

    #[test]
    fn digests_that_come_with_the_body_are_those_that_are_computed() {
        let mut computed = signed(DigestKind::Blake3);
        Check::new(DigestKind::Blake3, 8192).apply(&mut computed).unwrap();
        let with_digests = |change: &dyn Fn(&mut Request)| {
            let mut request = signed(DigestKind::Blake3);
            attach(&mut request);
            assert!(request.label.digests_len > 0);
            request.pieces.clear();
            change(&mut request);
            let checked = Check::new(DigestKind::Blake3, 8192).apply(&mut request);
            (checked.map_err(|fault| fault.class), request)
        };
        let (checked, given) = with_digests(&|_| {});
        assert_eq!((checked, &given.pieces), (Ok(()), &computed.pieces));
        assert_eq!((given.label.body_len, given.label.digests_len), (5000, 0));
        for at in [0, 2500, 4999] {
            let (checked, _) = with_digests(&|request| request.body_mut()[at] ^= 1);
            assert_eq!(checked, Err(Class::Corrupt), "byte {at}");
        }
        let (checked, _) = with_digests(&|request| {
            request.label.digests_len -= 32;
            request.label.body_len -= 32;
        });
        assert_eq!(checked, Err(Class::Peer), "too few");
        let (checked, _) = with_digests(&|request| {
            request.label.digests_len += 32;
            request.label.body_len += 32;
        });
        assert_eq!(checked, Err(Class::Peer), "too many");
    }

    /// What is computed besides is that of each part or segment, whatever digest is checked, and
    /// changes nothing in it.
    #[test]
    fn digests_besides_are_of_the_same_bytes() {
        let (kinds, all) =
            (ExtraDigests::parse("adler32,crc32c,md5,sha256").unwrap(), bytes(200_000));
        let also = Also { kinds, crc64: true };
        for kind in [DigestKind::Blake3, DigestKind::Crc64, DigestKind::None] {
            for (coverage, len) in
                [(Coverage::All, 5000), (Coverage::All, 200_000), (Coverage::Some, 131_073)]
            {
                let signed = |also: Also| {
                    let mut request = Request::new(1 << 18);
                    request.label.kind = Kind::Data;
                    (request.label.extent.len, request.label.body_len) = (len, len);
                    let part = Part { object: 0, offset: 1 << 18, coverage, file: None };
                    request.content = Content::Part(part);
                    request.body_mut().copy_from_slice(&all[..len as usize]);
                    Sign::new(kind, 1 << 18).with(also).apply(&mut request).unwrap();
                    request
                };
                let (plain, request) = (signed(Also::NONE), signed(also));
                assert_eq!((&plain.pieces, plain.label), (&request.pieces, request.label));
                assert!(plain.extra.is_empty());
                let [piece] = request.extra[..] else { panic!("{:?}", request.extra) };
                let of_parts = if coverage == Coverage::All { kinds } else { kinds.combining() };
                assert_eq!(piece.sums, extra::of(of_parts, request.body()), "{kind:?} {len}");
                let crc64 = checksum(CrcAlgorithm::Crc64Nvme, request.body());
                assert_eq!((piece.offset, piece.len), (1 << 18, len.into()));
                assert_eq!(piece.crc64, Some(crc64), "{kind:?} {len}");
            }
        }
    }

    #[test]
    fn a_wrong_byte_is_refused() {
        for kind in [DigestKind::Blake3, DigestKind::Crc64] {
            let mut request = signed(kind);
            Check::new(kind, 8192).apply(&mut request).unwrap();
            request.body_mut()[4999] ^= 1;
            let fault = Check::new(kind, 8192).apply(&mut request).unwrap_err();
            assert_eq!(fault.class, Class::Corrupt);
        }
    }
}
