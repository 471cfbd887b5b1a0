//! The digest of an object whose bytes come in their order.

use crc_fast::CrcAlgorithm;

use base::label::Sum;
use base::settings::DigestKind;

/// The digest of an object from its bytes in their order.
#[derive(Debug)]
pub(crate) enum Whole {
    Blake3(Box<blake3::Hasher>),
    Crc64(Box<crc_fast::Digest>),
    None,
}

impl Whole {
    pub(crate) fn new(kind: DigestKind) -> Whole {
        match kind {
            DigestKind::Blake3 => Whole::Blake3(Box::default()),
            DigestKind::Crc64 => {
                Whole::Crc64(Box::new(crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme)))
            }
            DigestKind::None => Whole::None,
        }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Whole::Blake3(hasher) => drop(hasher.update(bytes)),
            Whole::Crc64(digest) => digest.update(bytes),
            Whole::None => {}
        }
    }

    pub(crate) fn finish(self) -> Sum {
        let mut sum = [0; 32];
        match self {
            Whole::Blake3(hasher) => return *hasher.finalize().as_bytes(),
            Whole::Crc64(digest) => sum[..8].copy_from_slice(&digest.finalize().to_le_bytes()),
            Whole::None => {}
        }
        sum
    }
}
