//! Digests that are computed besides the one that every block is checked against: those that
//! archives keep.

use std::fmt;

use crate::settings::choice;

choice!(
    /// A digest that is computed besides.
    ExtraDigest { Adler32 = "adler32", Crc32c = "crc32c", Md5 = "md5", Sha256 = "sha256", }
);

impl ExtraDigest {
    /// As the tag of a line has it: `SHA256 (path) = …`.
    pub fn tag(self) -> &'static str {
        match self {
            ExtraDigest::Adler32 => "ADLER32",
            ExtraDigest::Crc32c => "CRC32C",
            ExtraDigest::Md5 => "MD5",
            ExtraDigest::Sha256 => "SHA256",
        }
    }

    pub const fn bytes(self) -> usize {
        match self {
            ExtraDigest::Adler32 | ExtraDigest::Crc32c => 4,
            ExtraDigest::Md5 => 16,
            ExtraDigest::Sha256 => 32,
        }
    }

    /// The digest of a whole follows from those of its parts.
    pub fn combines(self) -> bool {
        matches!(self, ExtraDigest::Adler32 | ExtraDigest::Crc32c)
    }
}

/// Some of these digests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtraDigests(u8);

impl ExtraDigests {
    pub const NONE: ExtraDigests = ExtraDigests(0);

    pub fn of(kinds: impl IntoIterator<Item = ExtraDigest>) -> ExtraDigests {
        ExtraDigests(kinds.into_iter().fold(0, |code, kind| code | 1 << kind as u8))
    }

    /// Names with commas between them.
    pub fn parse(text: &str) -> Option<ExtraDigests> {
        let mut all = ExtraDigests::NONE;
        for name in text.split(',') {
            all.0 |= 1 << ExtraDigest::parse(name)? as u8;
        }
        Some(all)
    }

    pub fn from_code(code: u8) -> Option<ExtraDigests> {
        (code < 1 << ExtraDigest::ALL.len()).then_some(ExtraDigests(code))
    }

    pub fn code(self) -> u8 {
        self.0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn has(self, kind: ExtraDigest) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    pub fn iter(self) -> impl Iterator<Item = ExtraDigest> {
        ExtraDigest::ALL.iter().copied().filter(move |kind| self.has(*kind))
    }

    /// Those whose digests of parts combine.
    pub fn combining(self) -> ExtraDigests {
        ExtraDigests::of(self.iter().filter(|kind| kind.combines()))
    }

    /// Those of which `sums` has none.
    pub fn without(self, sums: &ExtraSums) -> ExtraDigests {
        ExtraDigests::of(self.iter().filter(|kind| sums.get(*kind).is_none()))
    }
}

impl fmt::Display for ExtraDigests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(ExtraDigest::name).collect();
        f.write_str(&names.join(","))
    }
}

/// The digests of one object, those that are known; most significant byte first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtraSums {
    pub adler32: Option<[u8; 4]>,
    pub crc32c: Option<[u8; 4]>,
    pub md5: Option<[u8; 16]>,
    pub sha256: Option<[u8; 32]>,
}

impl ExtraSums {
    pub const NONE: ExtraSums = ExtraSums { adler32: None, crc32c: None, md5: None, sha256: None };

    pub fn get(&self, kind: ExtraDigest) -> Option<&[u8]> {
        match kind {
            ExtraDigest::Adler32 => self.adler32.as_ref().map(|sum| &sum[..]),
            ExtraDigest::Crc32c => self.crc32c.as_ref().map(|sum| &sum[..]),
            ExtraDigest::Md5 => self.md5.as_ref().map(|sum| &sum[..]),
            ExtraDigest::Sha256 => self.sha256.as_ref().map(|sum| &sum[..]),
        }
    }

    /// Sets one; false for bytes of another length.
    pub fn set(&mut self, kind: ExtraDigest, sum: &[u8]) -> bool {
        match kind {
            ExtraDigest::Adler32 => sum.try_into().map(|sum| self.adler32 = Some(sum)).is_ok(),
            ExtraDigest::Crc32c => sum.try_into().map(|sum| self.crc32c = Some(sum)).is_ok(),
            ExtraDigest::Md5 => sum.try_into().map(|sum| self.md5 = Some(sum)).is_ok(),
            ExtraDigest::Sha256 => sum.try_into().map(|sum| self.sha256 = Some(sum)).is_ok(),
        }
    }

    /// Takes those that are missing here.
    pub fn complete_with(&mut self, other: &ExtraSums) {
        for (kind, sum) in other.iter() {
            if self.get(kind).is_none() {
                self.set(kind, sum);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == ExtraSums::default()
    }

    pub fn iter(&self) -> impl Iterator<Item = (ExtraDigest, &[u8])> {
        ExtraDigest::ALL.iter().filter_map(|kind| Some((*kind, self.get(*kind)?)))
    }

    /// As people write them.
    pub fn hex(&self) -> Vec<(ExtraDigest, String)> {
        self.iter().map(|(kind, sum)| (kind, hex(sum))).collect()
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for text in ["adler32", "adler32,crc32c,md5,sha256", "md5,sha256"] {
            assert_eq!(ExtraDigests::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(ExtraDigests::parse("sha256,md5").unwrap().to_string(), "md5,sha256");
        for bad in ["", "adler", "md5,", "md5 sha256"] {
            assert_eq!(ExtraDigests::parse(bad), None, "{bad}");
        }
        assert_eq!(ExtraDigests::from_code(16), None);
    }

    #[test]
    fn what_is_missing_is_known() {
        let all = ExtraDigests::parse("adler32,md5").unwrap();
        let mut sums = ExtraSums::default();
        assert!(sums.set(ExtraDigest::Md5, &[7; 16]) && !sums.set(ExtraDigest::Md5, &[7; 4]));
        assert_eq!(all.without(&sums).to_string(), "adler32");
        let other = ExtraSums { adler32: Some([1, 2, 3, 0xff]), md5: Some([0; 16]), ..sums };
        sums.complete_with(&other);
        assert_eq!(sums.md5, Some([7; 16]));
        assert_eq!(sums.hex()[0], (ExtraDigest::Adler32, "010203ff".to_string()));
    }
}
