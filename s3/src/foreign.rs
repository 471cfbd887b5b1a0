//! Checksums of a whole object that other writers have left in a store, and whether what is read of
//! it has them.

use std::collections::BTreeMap;

use aws_lc_rs::digest;
use crc_fast::{CrcAlgorithm, checksum};

use crate::checksum::{Ranges, unbase64};
use crate::connection::Head;

/// Of all bytes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Foreign {
    kind: Kind,
    sum: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Crc32,
    Crc32c,
    Sha1,
    Sha256,
}

/// The fastest first: one is enough.
const KINDS: [(Kind, &str, usize); 4] = [
    (Kind::Crc32c, "x-amz-checksum-crc32c", 4),
    (Kind::Crc32, "x-amz-checksum-crc32", 4),
    (Kind::Sha256, "x-amz-checksum-sha256", 32),
    (Kind::Sha1, "x-amz-checksum-sha1", 20),
];

impl Foreign {
    /// `None` where there is none, or one of the checksums of parts.
    pub(crate) fn of(head: &Head) -> Option<Foreign> {
        let is_in_parts = head.get("etag").trim_end_matches('"').contains('-');
        match head.get("x-amz-checksum-type") {
            "FULL_OBJECT" => {}
            // A store that does not say it may mean either where there are parts.
            "" if !is_in_parts => {}
            _ => return None,
        }
        KINDS.iter().find_map(|(kind, name, len)| {
            let sum = unbase64(head.get(name)).filter(|sum| sum.len() == *len)?;
            Some(Foreign { kind: *kind, sum })
        })
    }

    /// Whether these are all the bytes of the object.
    pub(crate) fn is_of(&self, bytes: &[u8]) -> bool {
        let mut check = Check::of(self);
        check.add(0, bytes);
        check.verdict(bytes.len() as u64) == Verdict::Same
    }
}

/// What is known of an object of which ranges have come, in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not all of it has come.
    Open,
    Same,
    Other,
    /// All of it has come; what begins here has to be read again, in order.
    From(u64),
}

#[derive(Debug)]
pub(crate) struct Check {
    expect: Foreign,
    ranges: Ranges,
    /// `None` where checksums of ranges can be merged.
    ordered: Option<Ordered>,
}

/// A digest of what came in order, and what came before its turn.
struct Ordered {
    digest: digest::Context,
    at: u64,
    early: BTreeMap<u64, Vec<u8>>,
    early_bytes: usize,
}

impl std::fmt::Debug for Ordered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ordered({}, {})", self.at, self.early_bytes)
    }
}

impl Check {
    pub(crate) fn of(expect: &Foreign) -> Check {
        let (algorithm, digest) = match expect.kind {
            Kind::Crc32 => (CrcAlgorithm::Crc32IsoHdlc, None),
            Kind::Crc32c => (CrcAlgorithm::Crc32Iscsi, None),
            Kind::Sha1 => (CrcAlgorithm::Crc32Iscsi, Some(&digest::SHA1_FOR_LEGACY_USE_ONLY)),
            Kind::Sha256 => (CrcAlgorithm::Crc32Iscsi, Some(&digest::SHA256)),
        };
        let ordered = digest.map(|algorithm| Ordered {
            digest: digest::Context::new(algorithm),
            at: 0,
            early: BTreeMap::new(),
            early_bytes: 0,
        });
        Check { expect: expect.clone(), ranges: Ranges::of(algorithm), ordered }
    }

    pub(crate) fn add(&mut self, at: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let sum = match (&self.ordered, self.expect.kind) {
            (Some(_), _) => 0, // only what has come is of interest
            (None, Kind::Crc32) => checksum(CrcAlgorithm::Crc32IsoHdlc, bytes),
            (None, _) => checksum(CrcAlgorithm::Crc32Iscsi, bytes),
        };
        self.ranges.add(at, bytes.len() as u64, sum);
        if let Some(ordered) = &mut self.ordered {
            ordered.add(at, bytes);
        }
    }

    pub(crate) fn verdict(&self, size: u64) -> Verdict {
        let Some(sum) = self.ranges.whole(size) else { return Verdict::Open };
        let is_same = match &self.ordered {
            None => self.expect.sum == (sum as u32).to_be_bytes(),
            Some(ordered) if ordered.at < size => return Verdict::From(ordered.at),
            Some(ordered) => ordered.digest.clone().finish().as_ref() == self.expect.sum,
        };
        if is_same { Verdict::Same } else { Verdict::Other }
    }
}

impl Ordered {
    fn add(&mut self, at: u64, bytes: &[u8]) {
        match at {
            at if at == self.at => self.update(bytes),
            at if at > self.at && self.early_bytes + bytes.len() <= EARLY_BYTES_MAX => {
                self.early_bytes += bytes.len();
                let before = self.early.insert(at, bytes.to_vec());
                self.early_bytes -= before.map_or(0, |before| before.len());
            }
            _ => {}
        }
        while let Some(early) = self.early.remove(&self.at) {
            self.early_bytes -= early.len();
            self.update(&early);
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.at += bytes.len() as u64;
    }
}

/// What comes before its turn is kept up to here, and else read again at the end.
const EARLY_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn head(pairs: &[(&str, &str)]) -> Head {
        let headers = pairs.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        Head { status: 200, headers: headers.collect() }
    }

    /// Of "123456789": the check values of the catalogue of CRCs, and what sha1sum and others say.
    const SUMS: [(&str, &str); 4] = [
        ("x-amz-checksum-crc32", "y/Q5Jg=="),
        ("x-amz-checksum-crc32c", "4waSgw=="),
        ("x-amz-checksum-sha1", "98O8HYCOBHMq32eZZczDTKeuNEE="),
        ("x-amz-checksum-sha256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
    ];

    #[test]
    fn ranges_in_any_order_are_checked() {
        let bytes = b"123456789";
        for sum in SUMS {
            let foreign = Foreign::of(&head(&[sum])).unwrap();
            assert!(foreign.is_of(bytes), "{sum:?}");
            assert!(!foreign.is_of(b"123456780") && !foreign.is_of(b""), "{sum:?}");
            for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
                let mut check = Check::of(&foreign);
                for part in order {
                    assert_eq!(check.verdict(9), Verdict::Open);
                    check.add(part * 3, &bytes[part as usize * 3..][..3]);
                }
                assert_eq!(check.verdict(9), Verdict::Same, "{sum:?}, {order:?}");
            }
            let mut other = Check::of(&foreign);
            for (at, bytes) in [(6, b"780"), (0, b"123"), (3, b"456")] {
                other.add(at, bytes);
            }
            assert_eq!(other.verdict(9), Verdict::Other, "{sum:?}");
        }
    }

    /// What does not fit in memory is read again.
    #[test]
    fn what_came_much_too_early_is_asked_for_again() {
        let foreign = Foreign::of(&head(&SUMS[3..])).unwrap();
        let (mut check, half) = (Check::of(&foreign), EARLY_BYTES_MAX / 2 + 1);
        let (bytes, len) = (vec![0; half], half as u64);
        check.add(len, &bytes);
        check.add(2 * len, &bytes);
        check.add(0, &bytes);
        assert_eq!(check.verdict(3 * len), Verdict::From(2 * len));
        check.add(2 * len, &bytes);
        assert_eq!(check.verdict(3 * len), Verdict::Other);
    }

    #[test]
    fn checksums_of_parts_are_none_of_the_whole() {
        let (kind, composite) = ("x-amz-checksum-type", "COMPOSITE");
        for (pairs, is_whole) in [
            (&[SUMS[0], (kind, "FULL_OBJECT"), ("etag", "\"x-3\"")][..], true),
            (&[SUMS[0], (kind, composite)], false),
            (&[SUMS[0], ("etag", "\"x-3\"")], false),
            (&[SUMS[0], ("etag", "\"x\"")], true),
            (&[(SUMS[0].0, "y/Q5Jg==-3")], false),
            (&[(SUMS[0].0, "y/Q5JgAA")], false),
            (&[], false),
        ] {
            assert_eq!(Foreign::of(&head(pairs)).is_some(), is_whole, "{pairs:?}");
        }
    }
}
