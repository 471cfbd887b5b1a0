//! The kinds of digests that lists of files have: our own receipts, and what sha256sum, md5sum,
//! xxhsum, rclone, rsync, XRootD and their like write. Which kind a line without a tag has, its
//! length alone does not say.

use aws_lc_rs::digest::{Context, SHA256};
use crc_fast::{CrcAlgorithm, Digest as Crc};
use md5::Digest as _;
use simd_adler32::Adler32;
use twox_hash::{XxHash3_64, XxHash3_128, XxHash32, XxHash64};

use base::extra::{ExtraDigest, hex};

/// A kind of digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DigestOfList {
    Blake3,
    Sha256,
    Md5,
    Xxh128,
    Crc64Nvme,
    Xxh3,
    Xxh64,
    Adler32,
    Crc32,
    Crc32c,
    Xxh32,
}

impl DigestOfList {
    /// Of the same length, the more usual ones first.
    pub const ALL: [DigestOfList; 11] = [
        DigestOfList::Blake3,
        DigestOfList::Sha256,
        DigestOfList::Md5,
        DigestOfList::Xxh128,
        DigestOfList::Crc64Nvme,
        DigestOfList::Xxh3,
        DigestOfList::Xxh64,
        DigestOfList::Adler32,
        DigestOfList::Crc32,
        DigestOfList::Crc32c,
        DigestOfList::Xxh32,
    ];

    /// As a tag has it, `SHA256 (path) = …`, and as people are told of it.
    pub fn tag(self) -> &'static str {
        match self {
            DigestOfList::Blake3 => "BLAKE3",
            DigestOfList::Sha256 => ExtraDigest::Sha256.tag(),
            DigestOfList::Md5 => ExtraDigest::Md5.tag(),
            DigestOfList::Xxh128 => "XXH128",
            DigestOfList::Crc64Nvme => "CRC64NVME",
            DigestOfList::Xxh3 => "XXH3",
            DigestOfList::Xxh64 => "XXH64",
            DigestOfList::Adler32 => ExtraDigest::Adler32.tag(),
            DigestOfList::Crc32 => "CRC32",
            DigestOfList::Crc32c => ExtraDigest::Crc32c.tag(),
            DigestOfList::Xxh32 => "XXH32",
        }
    }

    /// Hexadecimal digits.
    pub(super) const fn digits(self) -> usize {
        match self {
            DigestOfList::Blake3 | DigestOfList::Sha256 => 64,
            DigestOfList::Md5 | DigestOfList::Xxh128 => 32,
            DigestOfList::Crc64Nvme | DigestOfList::Xxh3 | DigestOfList::Xxh64 => 16,
            DigestOfList::Adler32
            | DigestOfList::Crc32
            | DigestOfList::Crc32c
            | DigestOfList::Xxh32 => 8,
        }
    }

    /// What a line without a tag may have. Of CRC-64 it always says so.
    pub(super) fn of_digits(digits: usize) -> impl Iterator<Item = DigestOfList> {
        let fits = move |kind: &DigestOfList| kind.digits() == digits;
        DigestOfList::ALL.into_iter().filter(fits).filter(|kind| *kind != DigestOfList::Crc64Nvme)
    }
}

/// A digest of bytes that come in their order.
pub(super) enum Running {
    Blake3(Box<blake3::Hasher>),
    Sha256(Context),
    Md5(md5::Md5),
    Xxh128(Box<XxHash3_128>),
    Crc(Box<Crc>, usize),
    Xxh3(Box<XxHash3_64>),
    Xxh64(XxHash64),
    Adler32(Adler32),
    Xxh32(XxHash32),
}

impl Running {
    pub(super) fn new(kind: DigestOfList) -> Running {
        let crc = |of| Running::Crc(Box::new(Crc::new(of)), kind.digits());
        match kind {
            DigestOfList::Blake3 => Running::Blake3(Box::default()),
            DigestOfList::Sha256 => Running::Sha256(Context::new(&SHA256)),
            DigestOfList::Md5 => Running::Md5(md5::Md5::new()),
            DigestOfList::Xxh128 => Running::Xxh128(Box::new(XxHash3_128::new())),
            DigestOfList::Crc64Nvme => crc(CrcAlgorithm::Crc64Nvme),
            DigestOfList::Xxh3 => Running::Xxh3(Box::new(XxHash3_64::new())),
            DigestOfList::Xxh64 => Running::Xxh64(XxHash64::with_seed(0)),
            DigestOfList::Adler32 => Running::Adler32(Adler32::new()),
            DigestOfList::Crc32 => crc(CrcAlgorithm::Crc32IsoHdlc),
            DigestOfList::Crc32c => crc(CrcAlgorithm::Crc32Iscsi),
            DigestOfList::Xxh32 => Running::Xxh32(XxHash32::with_seed(0)),
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Running::Blake3(digest) => drop(digest.update(bytes)),
            Running::Sha256(digest) => digest.update(bytes),
            Running::Md5(digest) => digest.update(bytes),
            Running::Xxh128(digest) => digest.write(bytes),
            Running::Crc(digest, _) => digest.update(bytes),
            Running::Xxh3(digest) => std::hash::Hasher::write(&mut **digest, bytes),
            Running::Xxh64(digest) => std::hash::Hasher::write(digest, bytes),
            Running::Adler32(digest) => digest.write(bytes),
            Running::Xxh32(digest) => std::hash::Hasher::write(digest, bytes),
        }
    }

    /// As lists have it.
    pub(super) fn finish(self) -> String {
        let number = |value: u64, digits: usize| format!("{value:0digits$x}");
        match self {
            Running::Blake3(digest) => digest.finalize().to_hex().to_string(),
            Running::Sha256(digest) => hex(digest.finish().as_ref()),
            Running::Md5(digest) => hex(&digest.finalize()),
            Running::Xxh128(digest) => format!("{:032x}", digest.finish_128()),
            Running::Crc(digest, digits) => number(digest.finalize(), digits),
            Running::Xxh3(digest) => number(std::hash::Hasher::finish(&*digest), 16),
            Running::Xxh64(digest) => number(std::hash::Hasher::finish(&digest), 16),
            Running::Adler32(digest) => number(digest.finish().into(), 8),
            Running::Xxh32(digest) => number(std::hash::Hasher::finish(&digest), 8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What b3sum 1.2, coreutils 9.1, xxhsum 0.8.1 and Python's zlib say of "abc"; CRC-32C and
    /// CRC-64/NVME of "123456789" are in their catalogue.
    #[test]
    fn they_are_those_of_other_programs() {
        let of = |kind: DigestOfList, bytes: &[u8]| {
            let mut running = Running::new(kind);
            bytes.chunks(2).for_each(|some| running.update(some));
            let digest = running.finish();
            assert_eq!(digest.len(), kind.digits(), "{kind:?}");
            digest
        };
        for (kind, expect) in [
            (
                DigestOfList::Blake3,
                "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
            ),
            (
                DigestOfList::Sha256,
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            (DigestOfList::Md5, "900150983cd24fb0d6963f7d28e17f72"),
            (DigestOfList::Xxh128, "06b05ab6733a618578af5f94892f3950"),
            (DigestOfList::Xxh3, "78af5f94892f3950"),
            (DigestOfList::Xxh64, "44bc2cf5ad770999"),
            (DigestOfList::Adler32, "024d0127"),
            (DigestOfList::Crc32, "352441c2"),
            (DigestOfList::Xxh32, "32d153ff"),
        ] {
            assert_eq!(of(kind, b"abc"), expect, "{kind:?}");
        }
        assert_eq!(of(DigestOfList::Crc32c, b"123456789"), "e3069283");
        assert_eq!(of(DigestOfList::Crc64Nvme, b"123456789"), "ae8b14860a799888");
    }

    #[test]
    fn the_length_says_which_may_be_meant() {
        for (digits, expect) in [
            (64, "BLAKE3 SHA256"),
            (32, "MD5 XXH128"),
            (16, "XXH3 XXH64"),
            (8, "ADLER32 CRC32 CRC32C XXH32"),
            (40, ""),
        ] {
            let tags: Vec<&str> = DigestOfList::of_digits(digits).map(DigestOfList::tag).collect();
            assert_eq!(tags.join(" "), expect, "{digits}");
        }
    }
}
