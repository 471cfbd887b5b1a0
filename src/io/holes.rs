//! Where bytes are not all zeros: the rest needs no room on a disk that knows holes.

use std::ops::Range;

use crate::base::limits::BLOCK_BYTES;

const BLOCK: usize = BLOCK_BYTES as usize;
const ZEROS: [u8; BLOCK] = [0; BLOCK];

/// The next stretch of blocks that are not all zeros, at `from` or behind it. `from` is a multiple
/// of a block; the last block may be short.
pub fn next_data(bytes: &[u8], from: usize) -> Option<Range<usize>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that are set in five blocks and a half, and the stretches that they make.
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
