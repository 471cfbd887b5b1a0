//! Digests as a step, and the digest of a file from those of its parts, in whatever order they
//! come.
//!
//! BLAKE3 is a tree of 1 KiB chunks (specification, section 2.1): the nodes of a part's aligned
//! power-of-two blocks can be merged with their siblings later, so each side hashes bytes once.
//! CRC-64/NVME values of neighbours combine likewise.

mod short;
mod whole;

use std::collections::BTreeMap;
use std::slice::ChunksExact;
use std::sync::Arc;

use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use crc_fast::{CrcAlgorithm, checksum, checksum_combine};

use super::passage::Step;
use crate::io::request::{Content, Coverage, Piece, Request};
use base::codec::Codec;
use base::fault::{Class, Fault};
use base::label::{Kind, Sum};
use base::limits::BLOCK_BYTES;
use base::settings::DigestKind;
use base::tally::Stage;
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
}

impl Check {
    pub fn new(kind: DigestKind, slot_bytes: u32) -> Check {
        Check { method: Method::new(kind, slot_bytes) }
    }
}

impl Step for Sign {
    fn stage(&self) -> Stage {
        Stage::Digest
    }

    fn apply(&mut self, request: &mut Request) -> Result<(), Fault> {
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

/// A kind of digest and the largest block that is digested as one.
#[derive(Clone, Copy, Debug)]
struct Method {
    kind: DigestKind,
    block_bytes: u64,
}

impl Method {
    /// Blocks are at most half a slot, so that an object of one whole slot whose length is not
    /// known beforehand (a pipe) still has two nodes, from which a root can be made.
    fn new(kind: DigestKind, slot_bytes: u32) -> Method {
        let half = u64::from(slot_bytes) / 2;
        Method { kind, block_bytes: 1 << half.max(CHUNK_BYTES).ilog2() }
    }

    /// Digests the body into `pieces`, and those into one.
    fn digest(&self, request: &mut Request) -> Sum {
        let mut pieces = std::mem::take(&mut request.pieces);
        pieces.clear();
        if self.kind != DigestKind::None {
            self.cut(request, &mut pieces, &mut Sums::Computed(self.kind))
                .expect("as many as there are pieces");
        }
        let mut all = blake3::Hasher::new();
        for piece in &pieces {
            all.update(&piece.sum);
        }
        all.update(&request.body()[request.payload_len() as usize..]);
        request.pieces = pieces;
        match self.kind {
            DigestKind::None => [0; 32],
            DigestKind::Blake3 | DigestKind::Crc64 => *all.finalize().as_bytes(),
        }
    }

    /// Makes `pieces` of the digests behind the payload; false where the payload is not what they
    /// were computed from.
    fn take_digests(&self, request: &mut Request) -> Result<bool, Fault> {
        let mut pieces = std::mem::take(&mut request.pieces);
        pieces.clear();
        let (payload, list) = request.body().split_at(request.payload_len() as usize);
        let is_right = crc(payload) == request.label.digest;
        let mut sums = Sums::Given(list.chunks_exact(SUM_BYTES));
        let cut = self.cut(request, &mut pieces, &mut sums);
        let fits = cut.is_some() && sums.is_used_up();
        request.pieces = pieces;
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
    fn cut(&self, request: &Request, pieces: &mut Vec<Piece>, sums: &mut Sums<'_>) -> Option<()> {
        let payload = &request.body()[..request.payload_len() as usize];
        match &request.content {
            Content::Unknown => {}
            Content::Part(part) if part.coverage == Coverage::All => {
                let len = payload.len() as u32;
                pieces.push(Piece { segment: 0, offset: 0, len, sum: sums.whole(payload)? });
            }
            Content::Part(part) => self.cut_part(part.offset, payload, pieces, sums)?,
            Content::Batch(batch) => {
                for (index, segment) in batch.segments.iter().enumerate() {
                    if request.is_void(index) {
                        continue;
                    }
                    let bytes = &payload[segment.at as usize..(segment.at + segment.len) as usize];
                    let sum = sums.whole(bytes)?;
                    pieces.push(Piece { segment: index as u16, offset: 0, len: segment.len, sum });
                }
            }
        }
        Some(())
    }

    fn cut_part(
        &self,
        start: u64,
        payload: &[u8],
        pieces: &mut Vec<Piece>,
        sums: &mut Sums<'_>,
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
            let sum = sums.part(offset, block)?;
            pieces.push(Piece { segment: 0, offset, len: take as u32, sum });
            offset += take as u64;
            rest = after;
        }
        Some(())
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
    fn whole(&mut self, bytes: &[u8]) -> Option<Sum> {
        match self {
            Sums::Computed(DigestKind::Blake3) => Some(short::hash(bytes)),
            Sums::Computed(DigestKind::Crc64 | DigestKind::None) => Some(crc(bytes)),
            Sums::Given(sums) => sums.next()?.try_into().ok(),
        }
    }

    fn is_used_up(&self) -> bool {
        match self {
            Sums::Computed(_) => true,
            Sums::Given(sums) => sums.len() == 0,
        }
    }

    /// Of a part of a longer object.
    fn part(&mut self, offset: u64, block: &[u8]) -> Option<Sum> {
        match self {
            Sums::Computed(DigestKind::Blake3) => Some(node(offset, block)),
            Sums::Computed(DigestKind::Crc64 | DigestKind::None) => Some(crc(block)),
            Sums::Given(sums) => sums.next()?.try_into().ok(),
        }
    }
}

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

fn node(offset: u64, block: &[u8]) -> Sum {
    blake3::Hasher::new().set_input_offset(offset).update(block).finalize_non_root()
}

fn crc(bytes: &[u8]) -> Sum {
    let mut sum = [0; 32];
    sum[..8].copy_from_slice(&checksum(CrcAlgorithm::Crc64Nvme, bytes).to_le_bytes());
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

/// A file's digest while its parts arrive. Neighbours merge at once, so that parts that come nearly
/// in order leave only a few nodes.
#[derive(Debug)]
pub(crate) struct FileSum {
    kind: DigestKind,
    /// offset → (length, digest)
    nodes: BTreeMap<u64, (u64, Sum)>,
    /// Set by a piece that covers the whole file: nothing is left to merge.
    whole: Option<Sum>,
    shift: Option<Arc<Shift>>,
    /// The parts are ranges that are kept apart from their file, and so are merged by themselves.
    apart: bool,
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
                    .cut_part(at, request, &mut pieces, &mut computed)
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

/// How this many bytes change the CRC-64 before them: a linear map, so 64 columns define it. The
/// library computes it again for every pair, in 400,000 instructions; applying it takes 100.
#[derive(Debug)]
pub(crate) struct Shift {
    bytes: u64,
    columns: [u64; 64],
}

impl Shift {
    /// By squaring, from the shift by one byte.
    pub(crate) fn new(bytes: u32) -> Shift {
        let one = |bit: usize| checksum_combine(CrcAlgorithm::Crc64Nvme, 1 << bit, 0, 1);
        let mut power: [u64; 64] = std::array::from_fn(one);
        let mut columns: [u64; 64] = std::array::from_fn(|bit| 1 << bit);
        let mut left = bytes;
        while left > 0 {
            if left % 2 == 1 {
                columns = columns.map(|column| apply(&power, column));
            }
            power = power.map(|column| apply(&power, column));
            left /= 2;
        }
        Shift { bytes: u64::from(bytes), columns }
    }
}

fn apply(columns: &[u64; 64], crc: u64) -> u64 {
    let bits = (0..64).filter(|bit| crc >> bit & 1 == 1);
    bits.fold(0, |sum, bit| sum ^ columns[bit])
}

impl FileSum {
    pub(crate) fn new(kind: DigestKind) -> FileSum {
        FileSum { kind, nodes: BTreeMap::new(), whole: None, shift: None, apart: false }
    }

    /// The same, with the shift for parts of the usual length computed.
    pub(crate) fn with_shift(kind: DigestKind, shift: Option<Arc<Shift>>) -> FileSum {
        FileSum { shift, ..FileSum::new(kind) }
    }

    /// For ranges that are kept apart from the rest of their file.
    pub(crate) fn apart(kind: DigestKind, shift: Option<Arc<Shift>>) -> FileSum {
        FileSum { apart: true, ..FileSum::with_shift(kind, shift) }
    }

    /// The nodes so far, merged as far as possible.
    pub(crate) fn take_nodes(&mut self) -> Vec<Node> {
        let nodes = std::mem::take(&mut self.nodes).into_iter();
        nodes.map(|(offset, (len, sum))| Node { offset, len, sum }).collect()
    }

    pub(crate) fn set_whole(&mut self, sum: Sum) {
        self.whole = Some(sum);
    }

    pub(crate) fn add(&mut self, piece: &Piece) {
        let Piece { offset, len, sum, .. } = *piece;
        self.add_node(Node { offset, len: len.into(), sum });
    }

    pub(crate) fn add_node(&mut self, node: Node) {
        let Node { mut offset, mut len, mut sum } = node;
        loop {
            let left = self.nodes.range(..offset).next_back().map(|(at, node)| (*at, *node));
            if let Some((at, (left_len, left_sum))) = left
                && at + left_len == offset
                && let Some(merged) = self.merge((at, left_len, left_sum), (len, sum))
            {
                self.nodes.remove(&at);
                (offset, len, sum) = (at, left_len + len, merged);
                continue;
            }
            let right = self.nodes.get(&(offset + len)).copied();
            if let Some((right_len, right_sum)) = right
                && let Some(merged) = self.merge((offset, len, sum), (right_len, right_sum))
            {
                self.nodes.remove(&(offset + len));
                (len, sum) = (len + right_len, merged);
                continue;
            }
            break;
        }
        self.nodes.insert(offset, (len, sum));
    }

    /// Merges two neighbours, where the result is a node of every file they can be in. The node at
    /// offset 0 stays alone until the end: merged with its sibling it might be the root, which is
    /// computed differently.
    fn merge(&self, left: (u64, u64, Sum), right: (u64, Sum)) -> Option<Sum> {
        let (offset, left_len, left_sum) = left;
        let (right_len, right_sum) = right;
        match self.kind {
            DigestKind::None => None,
            // Only with the node at offset 0: parts that wait keep the usual length.
            DigestKind::Crc64 => {
                let cheap = self.shift.as_ref().is_some_and(|shift| shift.bytes == right_len);
                (offset == 0 || (self.apart && cheap))
                    .then(|| self.combine(left_sum, right_sum, right_len))
            }
            DigestKind::Blake3 => {
                let siblings = left_len == right_len
                    && left_len.is_power_of_two()
                    && left_len >= CHUNK_BYTES
                    && offset > 0
                    && offset.is_multiple_of(2 * left_len);
                siblings.then(|| merge_subtrees_non_root(&left_sum, &right_sum, Mode::Hash))
            }
        }
    }

    fn combine(&self, left: Sum, right: Sum, right_len: u64) -> Sum {
        let value = |sum: Sum| u64::from_le_bytes(sum[..8].try_into().expect("eight bytes"));
        let both = match &self.shift {
            Some(shift) if shift.bytes == right_len => {
                apply(&shift.columns, value(left)) ^ value(right)
            }
            _ => checksum_combine(CrcAlgorithm::Crc64Nvme, value(left), value(right), right_len),
        };
        let mut sum = [0; 32];
        sum[..8].copy_from_slice(&both.to_le_bytes());
        sum
    }

    /// The file's digest; `None` when there is none, or when parts of the file are missing.
    pub(crate) fn finish(self, size: u64) -> Option<Sum> {
        if self.kind == DigestKind::None || self.whole.is_some() {
            return self.whole;
        }
        if size == 0 {
            return empty_sum(self.kind);
        }
        let mut end = 0;
        let mut stack: Vec<(u64, u64, Sum)> = Vec::new();
        for (offset, (len, sum)) in self.nodes {
            if offset != end {
                return None;
            }
            end += len;
            stack.push((offset, len, sum));
            if self.kind == DigestKind::Blake3 {
                merge_top(&mut stack, size);
            }
        }
        if end != size {
            return None;
        }
        let (_, _, mut right) = stack.pop()?;
        if self.kind == DigestKind::Crc64 {
            return stack.is_empty().then_some(right);
        }
        while let Some((offset, _, left)) = stack.pop() {
            right = match offset {
                0 => *merge_subtrees_root(&left, &right, Mode::Hash).as_bytes(),
                _ => merge_subtrees_non_root(&left, &right, Mode::Hash),
            };
        }
        Some(right)
    }
}

/// Merges siblings at the top of the stack, except into the root.
fn merge_top(stack: &mut Vec<(u64, u64, Sum)>, size: u64) {
    while let [.., (offset, len, left), (_, right_len, right)] = stack[..] {
        let siblings = len == right_len && offset.is_multiple_of(2 * len);
        if !siblings || (offset == 0 && 2 * len >= size) {
            return;
        }
        let merged = merge_subtrees_non_root(&left, &right, Mode::Hash);
        stack.truncate(stack.len() - 2);
        stack.push((offset, 2 * len, merged));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::request::Part;
    use proptest::prelude::*;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
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
            method.cut_part(offset, part, &mut pieces, &mut Sums::Computed(kind)).unwrap();
            pieces.iter().for_each(|piece| file.add(piece));
        }
        let expect = Sums::Computed(kind).whole(&data).unwrap();
        if kind == DigestKind::Blake3 && len <= slot as usize && len < slot as usize {
            return; // such a file is digested whole
        }
        assert_eq!(
            file.finish(len as u64),
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
                let mut sums = Sums::Computed(DigestKind::Blake3);
                method.cut_part(i as u64 * 4096, part, &mut pieces, &mut sums).unwrap();
                pieces.iter().for_each(|piece| file.add(piece));
            }
            prop_assert_eq!(file.finish(len as u64), None);
        }
    }

    #[test]
    fn few_nodes_when_in_order() {
        let data = bytes(1 << 20);
        let method = Method::new(DigestKind::Blake3, 16384);
        let mut file = FileSum::new(DigestKind::Blake3);
        for (i, part) in data.chunks(16384).enumerate() {
            let mut pieces = Vec::new();
            let mut sums = Sums::Computed(DigestKind::Blake3);
            method.cut_part(i as u64 * 16384, part, &mut pieces, &mut sums).unwrap();
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
