//! The digest of a file from those of its parts, in whatever order they come.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use blake3::hazmat::{Mode, merge_subtrees_non_root, merge_subtrees_root};
use crc_fast::{CrcAlgorithm, checksum_combine};

use super::{CHUNK_BYTES, Node, empty_sum};
use crate::io::request::Piece;
use base::label::Sum;
use base::settings::DigestKind;

/// A file's digest while its parts arrive. Neighbours merge at once, so that parts that come nearly
/// in order leave only a few nodes.
#[derive(Debug)]
pub(crate) struct FileSum {
    kind: DigestKind,
    /// offset → (length, digest)
    pub(super) nodes: BTreeMap<u64, (u64, Sum)>,
    /// Set by a piece that covers the whole file: nothing is left to merge.
    whole: Option<Sum>,
    shift: Option<Arc<Shift>>,
    /// The parts are ranges that are kept apart from their file, and so are merged by themselves.
    apart: bool,
}

/// How this many bytes change the CRC-64 before them: a linear map, so 64 columns define it. The
/// library computes it again for every pair, in 400,000 instructions; applying it takes 100.
#[derive(Debug)]
pub(crate) struct Shift {
    bytes: u64,
    pub(super) columns: [u64; 64],
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

pub(super) fn apply(columns: &[u64; 64], crc: u64) -> u64 {
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

    /// The digest of the file, or of its part of the file's BLAKE3 tree where that is wanted of a
    /// range; `None` when there is none, or when some of it is missing.
    pub(crate) fn finish(self, range: Range<u64>, size: u64) -> Option<Sum> {
        let is_whole = range == (0..size);
        if self.kind == DigestKind::None || self.whole.is_some() {
            return self.whole;
        }
        if size == 0 {
            return empty_sum(self.kind);
        }
        let mut end = range.start;
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
        if end != range.end {
            return None;
        }
        let (_, _, mut right) = stack.pop()?;
        if self.kind == DigestKind::Crc64 {
            return stack.is_empty().then_some(right);
        }
        while let Some((offset, _, left)) = stack.pop() {
            right = match offset {
                0 if is_whole => *merge_subtrees_root(&left, &right, Mode::Hash).as_bytes(),
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
