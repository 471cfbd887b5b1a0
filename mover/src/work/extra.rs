//! Digests besides the one of the transfer (`--digest-also`). Adler-32 and CRC-32C of parts
//! combine, in whatever order they come; MD5 and SHA-256 need all bytes in their order, and are
//! known of objects that come whole. What is not known is computed when the object is complete.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{Context, SHA256};
use crc_fast::{CrcAlgorithm, checksum_combine};
use md5::Digest as _;
use simd_adler32::Adler32;

use crate::io::request::{Coverage, ExtraPiece};
use base::extra::{ExtraDigest, ExtraDigests, ExtraSums};

/// What is computed in the same pass as the digest of the transfer: at the sink, or where both ends
/// are on one host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Also {
    pub kinds: ExtraDigests,
    /// What a store wants with each part.
    pub crc64: bool,
}

impl Also {
    pub(crate) const NONE: Also = Also { kinds: ExtraDigests::NONE, crc64: false };

    pub(crate) fn is_none(self) -> bool {
        self.kinds.is_empty() && !self.crc64
    }

    /// For the bytes of a whole object, or of a part of one.
    pub(crate) fn begin(self, coverage: Coverage) -> Running {
        let kinds = match coverage {
            Coverage::All => self.kinds,
            Coverage::Some => self.kinds.combining(),
        };
        let crc64 = self.crc64.then(|| crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme));
        Running { crc64, ..Running::new(kinds) }
    }
}

/// These digests of some bytes.
pub(crate) fn of(kinds: ExtraDigests, bytes: &[u8]) -> ExtraSums {
    let mut running = Running::new(kinds);
    running.update(bytes);
    running.finish()
}

/// Digests of bytes that come in their order.
pub(crate) struct Running {
    adler32: Option<Adler32>,
    crc32c: Option<crc_fast::Digest>,
    md5: Option<md5::Md5>,
    sha256: Option<Context>,
    crc64: Option<crc_fast::Digest>,
}

impl Running {
    pub(crate) fn new(kinds: ExtraDigests) -> Running {
        let crc32c = || crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi);
        Running {
            adler32: kinds.has(ExtraDigest::Adler32).then(Adler32::new),
            crc32c: kinds.has(ExtraDigest::Crc32c).then(crc32c),
            md5: kinds.has(ExtraDigest::Md5).then(md5::Md5::new),
            sha256: kinds.has(ExtraDigest::Sha256).then(|| Context::new(&SHA256)),
            crc64: None,
        }
    }

    pub(crate) fn none() -> Running {
        Running::new(ExtraDigests::NONE)
    }

    pub(crate) fn is_empty(&self) -> bool {
        let has_combining = self.adler32.is_some() || self.crc32c.is_some();
        !has_combining && self.md5.is_none() && self.sha256.is_none() && self.crc64.is_none()
    }

    /// What is known of a range, where anything is.
    pub(crate) fn piece(self, segment: u16, (offset, len): (u64, u64)) -> Option<ExtraPiece> {
        let crc64 = self.crc64.as_ref().map(crc_fast::Digest::finalize);
        let is_empty = self.is_empty();
        let sums = self.finish();
        (!is_empty).then_some(ExtraPiece { segment, offset, len, sums, crc64 })
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.adler32.iter_mut().for_each(|digest| digest.write(bytes));
        self.crc32c.iter_mut().for_each(|digest| digest.update(bytes));
        self.md5.iter_mut().for_each(|digest| digest.update(bytes));
        self.sha256.iter_mut().for_each(|digest| digest.update(bytes));
        self.crc64.iter_mut().for_each(|digest| digest.update(bytes));
    }

    pub(crate) fn finish(self) -> ExtraSums {
        ExtraSums {
            adler32: self.adler32.map(|digest| digest.finish().to_be_bytes()),
            crc32c: self.crc32c.map(|digest| (digest.finalize() as u32).to_be_bytes()),
            md5: self.md5.map(|digest| digest.finalize().into()),
            sha256: self
                .sha256
                .map(|digest| digest.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")),
        }
    }
}

/// What is known of an object from its parts; neighbours are merged.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// By their starts: length and digests.
    parts: BTreeMap<u64, (u64, ExtraSums)>,
}

impl Parts {
    pub(crate) fn add(&mut self, piece: &ExtraPiece) {
        let (mut start, mut part) = (piece.offset, (piece.len, piece.sums));
        if let Some((at, before)) = self.parts.range(..start).next_back()
            && at + before.0 == start
        {
            part = merged(*before, part);
            start = *at;
        }
        if let Some(after) = self.parts.remove(&(start + part.0)) {
            part = merged(part, after);
        }
        self.parts.insert(start, part);
    }

    /// The digests of an object of this size: those that its parts say.
    pub(crate) fn finish(&self, kinds: ExtraDigests, size: u64) -> ExtraSums {
        match self.parts.first_key_value() {
            None if size == 0 => of(kinds, b""),
            Some((0, (len, sums))) if *len == size => *sums,
            _ => ExtraSums::default(),
        }
    }
}

fn merged(one: (u64, ExtraSums), next: (u64, ExtraSums)) -> (u64, ExtraSums) {
    let both = |one: Option<[u8; 4]>, next: Option<[u8; 4]>| {
        Some((u32::from_be_bytes(one?), u32::from_be_bytes(next?)))
    };
    let adler32 = both(one.1.adler32, next.1.adler32);
    let crc32c = both(one.1.crc32c, next.1.crc32c);
    let crc = |(one, then): (u32, u32)| {
        checksum_combine(CrcAlgorithm::Crc32Iscsi, one.into(), then.into(), next.0) as u32
    };
    let sums = ExtraSums {
        adler32: adler32.map(|(one, then)| adler_of_both(one, then, next.0).to_be_bytes()),
        crc32c: crc32c.map(|pair| crc(pair).to_be_bytes()),
        ..ExtraSums::default()
    };
    (one.0 + next.0, sums)
}

/// The Adler-32 of two ranges, one after the other (RFC 1950, 8.2): `a` is one more than the sum of
/// all bytes, `b` the sum of `a` after each byte. So the second range adds its own sums, and `b`
/// once more what `a` was before it, for each of its bytes; both began with `a` = 1.
fn adler_of_both(one: u32, next: u32, next_len: u64) -> u32 {
    let (a, b) = (u64::from(one & 0xffff), u64::from(one >> 16));
    let (a_next, b_next) = (u64::from(next & 0xffff), u64::from(next >> 16));
    let before = (a + ADLER_BASE - 1) % ADLER_BASE;
    let low = (before + a_next) % ADLER_BASE;
    let high = (b + b_next + before * (next_len % ADLER_BASE)) % ADLER_BASE;
    (high << 16 | low) as u32
}

/// The largest prime below 2^16.
const ADLER_BASE: u64 = 65_521;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> ExtraDigests {
        ExtraDigests::parse("adler32,crc32c,md5,sha256").unwrap()
    }

    /// Published values of "Wikipedia" and of "123456789".
    #[test]
    fn published_values() {
        let hex = |bytes: &[u8]| -> Vec<String> {
            of(all(), bytes).hex().into_iter().map(|(_, hex)| hex).collect()
        };
        assert_eq!(hex(b"Wikipedia")[0], "11e60398");
        assert_eq!(hex(b"123456789")[1], "e3069283");
        assert_eq!(hex(b"")[2], "d41d8cd98f00b204e9800998ecf8427e");
        let sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hex(b"")[3], sha256);
        assert_eq!(hex(b"")[0], "00000001");
    }

    proptest! {
        #[test]
        fn parts_in_any_order_are_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 1..400),
            cuts in prop::collection::vec(0_usize..400, 0..6),
            seed in any::<u64>(),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < bytes.len()).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort();
            cuts.dedup();
            let mut ranges: Vec<(usize, usize)> = cuts.windows(2).map(|w| (w[0], w[1])).collect();
            ranges.sort_by_key(|(start, _)| (*start as u64).wrapping_mul(seed | 1));
            let kinds = all().combining();
            let mut parts = Parts::default();
            let size = bytes.len() as u64;
            for (start, end) in ranges {
                prop_assert!(parts.finish(kinds, size).is_empty());
                let sums = of(kinds, &bytes[start..end]);
                let (offset, len) = (start as u64, (end - start) as u64);
                parts.add(&ExtraPiece { segment: 0, offset, len, sums, crc64: None });
            }
            prop_assert_eq!(parts.finish(kinds, size), of(kinds, &bytes));
        }
    }
}
