//! The frame: sixty-four bytes of label in front of a body.
//!
//! ```text
//!  0  magic   "DPF1"       8  start     u64       24  digest  32 bytes
//!  4  kind    u8          16  len       u32       56  zero    4 bytes
//!  5  codec   u8, 0       20  body_len  u32       60  CRC-32C of bytes 0 to 59
//!  6  voids   u16, bytes
//! ```

use crc_fast::{CrcAlgorithm, checksum};

use crate::base::extent::Extent;
use crate::base::fault::Fault;
use crate::base::label::{Kind, Label};
use crate::base::limits::HEADROOM_BYTES;

/// Bytes of an encoded label.
pub const HEADER_BYTES: usize = 64;
/// Bytes of the keyed tag that follows the label where streams are sealed by `auth`.
pub const TAG_BYTES: usize = 32;

const MAGIC: [u8; 4] = *b"DPF1";
const _: () = assert!(HEADER_BYTES + TAG_BYTES <= HEADROOM_BYTES as usize);

/// Writes a label as it stands in front of its body.
pub fn encode(label: &Label) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[0..4].copy_from_slice(&MAGIC);
    header[4] = label.kind as u8;
    header[6..8].copy_from_slice(&label.voids_len.to_le_bytes());
    header[8..16].copy_from_slice(&label.extent.start.to_le_bytes());
    header[16..20].copy_from_slice(&label.extent.len.to_le_bytes());
    header[20..24].copy_from_slice(&label.body_len.to_le_bytes());
    header[24..56].copy_from_slice(&label.digest);
    let check = checksum(CrcAlgorithm::Crc32Iscsi, &header[..60]) as u32;
    header[60..64].copy_from_slice(&check.to_le_bytes());
    header
}

/// Reads a label; nothing of it is believed before its check sum is right.
pub fn decode(header: &[u8; HEADER_BYTES]) -> Result<Label, Fault> {
    if header[0..4] != MAGIC {
        return Err(Fault::new(
            crate::base::fault::Class::Corrupt,
            "a data stream carries something that is no frame: it was damaged on its way",
        ));
    }
    let check = u32::from_le_bytes(field(header, 60));
    if checksum(CrcAlgorithm::Crc32Iscsi, &header[..60]) as u32 != check {
        return Err(Fault::new(
            crate::base::fault::Class::Corrupt,
            "a frame's header arrived damaged (its CRC-32C is wrong)",
        ));
    }
    let kind = match header[4] {
        1 => Kind::Data,
        2 => Kind::Void,
        3 => Kind::End,
        4 => Kind::Zero,
        other => return Err(Fault::peer(format!("a frame of unknown kind {other}"))),
    };
    if header[5] != 0 || header[56..60] != [0; 4] {
        return Err(Fault::peer("a frame with reserved bytes that are not zero"));
    }
    let label = Label {
        kind,
        voids_len: u16::from_le_bytes(field(header, 6)),
        extent: Extent {
            start: u64::from_le_bytes(field(header, 8)),
            len: u32::from_le_bytes(field(header, 16)),
        },
        body_len: u32::from_le_bytes(field(header, 20)),
        digest: field(header, 24),
    };
    if label.extent.start.checked_add(u64::from(label.extent.len)).is_none() {
        return Err(Fault::peer("a frame past the end of the address space"));
    }
    let bare = label.body_len == 0 && label.voids_len == 0;
    let body_fits = match kind {
        Kind::Data => u32::from(label.voids_len) <= label.body_len,
        Kind::Void => u32::from(label.voids_len) == label.body_len,
        Kind::End => bare,
        Kind::Zero => bare && label.extent.len > 0 && label.digest == [0; 32],
    };
    if !body_fits {
        return Err(Fault::peer("a frame whose body does not fit its kind"));
    }
    Ok(label)
}

fn field<const N: usize>(header: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[at..at + N]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn label() -> impl Strategy<Value = Label> {
        let data =
            (0..u64::MAX / 2, any::<u32>(), 65535..u32::MAX, any::<u16>(), any::<[u8; 32]>())
                .prop_map(|(start, len, body_len, voids_len, digest)| Label {
                    kind: Kind::Data,
                    extent: Extent { start, len },
                    body_len,
                    voids_len,
                    digest,
                });
        let void = (0..u64::MAX / 2, any::<u32>()).prop_map(|(start, len)| Label {
            kind: Kind::Void,
            extent: Extent { start, len },
            ..Label::default()
        });
        let zero = (0..u64::MAX / 2, 1..u32::MAX).prop_map(|(start, len)| Label {
            kind: Kind::Zero,
            extent: Extent { start, len },
            ..Label::default()
        });
        prop_oneof![data, void, zero]
    }

    proptest! {
        #[test]
        fn there_and_back(label in label()) {
            prop_assert_eq!(decode(&encode(&label)).unwrap(), label);
        }

        #[test]
        fn one_wrong_bit_is_noticed(label in label(), bit in 0usize..HEADER_BYTES * 8) {
            let mut header = encode(&label);
            header[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode(&header).is_err());
        }

        #[test]
        fn rubbish_is_an_error(bytes in any::<[u8; 32]>()) {
            let mut header = [0; HEADER_BYTES];
            header[..32].copy_from_slice(&bytes);
            prop_assert!(decode(&header).is_err());
        }
    }
}
