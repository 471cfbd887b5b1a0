//! CRC-64/NVME of an object from those of its ranges, in whatever order they come, and as S3 writes
//! it.

use std::collections::BTreeMap;

use crc_fast::{CrcAlgorithm, checksum, checksum_combine};

pub(crate) fn of(bytes: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// Of bytes that come one after another.
#[derive(Debug)]
pub(crate) struct Running(crc_fast::Digest);

impl Running {
    pub(crate) fn new() -> Running {
        Running(crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme))
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(&self) -> u64 {
        self.0.finalize()
    }
}

/// Ranges of an object and their checksums; neighbours are merged.
#[derive(Debug)]
pub(crate) struct Ranges {
    algorithm: CrcAlgorithm,
    /// By their starts: length and checksum.
    ranges: BTreeMap<u64, (u64, u64)>,
}

impl Default for Ranges {
    fn default() -> Ranges {
        Ranges::of(CrcAlgorithm::Crc64Nvme)
    }
}

impl Ranges {
    pub(crate) fn of(algorithm: CrcAlgorithm) -> Ranges {
        Ranges { algorithm, ranges: BTreeMap::new() }
    }

    /// Adds a range. False where some of it is known already.
    pub(crate) fn add(&mut self, start: u64, len: u64, sum: u64) -> bool {
        let before = self.ranges.range(..start + len).next_back();
        if before.is_some_and(|(at, (len, _))| at + len > start) {
            return false;
        }
        let (mut start, mut range) = (start, (len, sum));
        if let Some((at, (len, sum))) = before.map(|(at, range)| (*at, *range))
            && at + len == start
        {
            self.ranges.remove(&at);
            (start, range) = (at, self.merged((len, sum), range));
        }
        if let Some(after) = self.ranges.remove(&(start + range.0)) {
            range = self.merged(range, after);
        }
        self.ranges.insert(start, range);
        true
    }

    /// The checksum of an object of this size, if all of it is known.
    pub(crate) fn whole(&self, size: u64) -> Option<u64> {
        match self.ranges.first_key_value() {
            None if size == 0 => Some(checksum(self.algorithm, b"")),
            Some((0, (len, sum))) if *len == size => Some(*sum),
            _ => None,
        }
    }

    fn merged(&self, one: (u64, u64), next: (u64, u64)) -> (u64, u64) {
        (one.0 + next.0, checksum_combine(self.algorithm, one.1, next.1, next.0))
    }
}

/// As headers and answers have it.
pub(crate) fn written(sum: u64) -> String {
    base64(&sum.to_be_bytes())
}

/// What a header has; `None` for what is not of a whole object, as `…-4`.
pub(crate) fn read(text: &str) -> Option<u64> {
    let bytes = unbase64(text)?;
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut three = [0; 3];
        three[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

pub(crate) fn unbase64(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        bits = bits << 6 | LETTERS.iter().position(|known| *known == letter)? as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_published_checksum() {
        // The check value of the catalogue of CRCs, of "123456789".
        assert_eq!(of(b"123456789"), 0xae8b_1486_0a79_9888);
        assert_eq!(written(0xae8b_1486_0a79_9888), "rosUhgp5mIg=");
        assert_eq!(read("rosUhgp5mIg="), Some(0xae8b_1486_0a79_9888));
        for bad in ["", "rosUhgp5mIg=-4", "rosU", "????????????"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn ranges_in_any_order_are_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 1..200),
            cuts in prop::collection::vec(0_usize..200, 0..6),
            seed in any::<u64>(),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < bytes.len()).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort();
            cuts.dedup();
            let mut parts: Vec<(usize, usize)> = cuts.windows(2).map(|w| (w[0], w[1])).collect();
            parts.sort_by_key(|(start, _)| (*start as u64).wrapping_mul(seed | 1));
            let mut ranges = Ranges::default();
            for (start, end) in parts {
                prop_assert_eq!(ranges.whole(bytes.len() as u64), None);
                let sum = of(&bytes[start..end]);
                prop_assert!(ranges.add(start as u64, (end - start) as u64, sum));
                prop_assert!(!ranges.add(start as u64, 1, 0), "the same again");
            }
            prop_assert_eq!(ranges.whole(bytes.len() as u64), Some(of(&bytes)));
            prop_assert_eq!(unbase64(&base64(&bytes)), Some(bytes));
        }
    }
}
