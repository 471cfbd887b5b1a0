//! Where bytes are not all zeros: the rest takes no space on a file system that has holes.

use std::ops::Range;

use base::limits::BLOCK_BYTES;

const BLOCK: usize = BLOCK_BYTES as usize;
const ZEROS: [u8; BLOCK] = [0; BLOCK];

/// The next run of blocks that are not all zeros, at `from` or after it. `from` is a multiple of a
/// block; the last block may be short.
pub(crate) fn next_data(bytes: &[u8], from: usize) -> Option<Range<usize>> {
    debug_assert!(from.is_multiple_of(BLOCK) || from >= bytes.len());
    let rest = bytes.get(from..)?;
    let is_data = |block: &[u8]| *block != ZEROS[..block.len()];
    let skipped = rest.chunks(BLOCK).take_while(|block| !is_data(block)).count();
    let start = from + skipped * BLOCK;
    let blocks = bytes.get(start..)?.chunks(BLOCK).take_while(|block| is_data(block)).count();
    match blocks {
        0 => None,
        _ => Some(start..(start + blocks * BLOCK).min(bytes.len())),
    }
}

/// A bitmap of the blocks that are not all zeros; the lowest bit of the first byte is the first.
pub(crate) fn map_of(bytes: &[u8], map: &mut Vec<u8>) {
    map.clear();
    map.resize(bytes.len().div_ceil(BLOCK).div_ceil(8), 0);
    for (number, block) in bytes.chunks(BLOCK).enumerate() {
        if *block != ZEROS[..block.len()] {
            map[number / 8] |= 1 << (number % 8);
        }
    }
}

/// Bytes of the blocks that a map of `len` bytes marks. `None` where the map has another length, or
/// marks blocks beyond the end.
pub(crate) fn mapped_bytes(map: &[u8], len: u32) -> Option<u32> {
    let blocks = len.div_ceil(BLOCK_BYTES);
    if map.len() != blocks.div_ceil(8) as usize {
        return None;
    }
    let named: u64 = map.iter().map(|bits| u64::from(bits.count_ones())).sum();
    if (blocks as usize..map.len() * 8).any(|block| is_named(map, block)) {
        return None;
    }
    let has_last = blocks > 0 && is_named(map, blocks as usize - 1);
    let missing = if has_last { u64::from(blocks) * BLOCK as u64 - u64::from(len) } else { 0 };
    Some((named * BLOCK as u64 - missing) as u32)
}

/// Moves the blocks that a map marks to the front, and returns their length.
pub(crate) fn squeeze(bytes: &mut [u8], map: &[u8]) -> usize {
    let mut count = 0;
    for block in 0..bytes.len().div_ceil(BLOCK) {
        if is_named(map, block) {
            let end = ((block + 1) * BLOCK).min(bytes.len());
            bytes.copy_within(block * BLOCK..end, count);
            count += end - block * BLOCK;
        }
    }
    count
}

/// Moves the `count` bytes of `squeeze` back to where they were, with zeros between.
pub(crate) fn expand(bytes: &mut [u8], map: &[u8], mut count: usize) {
    for block in (0..bytes.len().div_ceil(BLOCK)).rev() {
        let (start, end) = (block * BLOCK, ((block + 1) * BLOCK).min(bytes.len()));
        if is_named(map, block) {
            bytes.copy_within(count - (end - start)..count, start);
            count -= end - start;
        } else {
            bytes[start..end].fill(0);
        }
    }
}

fn is_named(map: &[u8], block: usize) -> bool {
    map[block / 8] >> (block % 8) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that are set in five blocks and a half, and the ranges that they make.
    type Case = (&'static [usize], &'static [(usize, usize)]);

    #[test]
    fn stretches() {
        let cases: [Case; 5] = [
            (&[], &[]),
            (&[0], &[(0, BLOCK)]),
            (&[BLOCK, 3 * BLOCK - 1], &[(BLOCK, 3 * BLOCK)]),
            (&[0, 2 * BLOCK], &[(0, BLOCK), (2 * BLOCK, 3 * BLOCK)]),
            (&[5 * BLOCK + 7], &[(5 * BLOCK, 5 * BLOCK + BLOCK / 2)]),
        ];
        for (set, expect) in cases {
            let mut bytes = vec![0; 5 * BLOCK + BLOCK / 2];
            set.iter().for_each(|at| bytes[*at] = 1);
            let mut found = Vec::new();
            let mut from = 0;
            while let Some(run) = next_data(&bytes, from) {
                from = run.end;
                found.push((run.start, run.end));
            }
            assert_eq!(found, expect, "{set:?}");
        }
    }
}
