//! The frame: a label of 64 bytes in front of a body.
//!
//! ```text
//!  0  magic   "DPF1"       8  start     u64       24  digest  32 bytes
//!  4  kind    u8          16  len       u32       56  check of a compressed payload, or bytes of
//!  5  codec   u8          20  body_len  u32           the list of digests, u32
//!  6  voids   u16, bytes                          60  CRC-32C of bytes 0 to 59
//! ```

use crc_fast::{CrcAlgorithm, checksum};

use base::codec::Codec;
use base::extent::Extent;
use base::fault::Fault;
use base::label::{Kind, Label, MAPPED_BYTES_MAX, map_bytes};
use base::limits::HEADROOM_BYTES;

/// Bytes of an encoded label.
pub const HEADER_BYTES: usize = 64;
/// Bytes of the keyed tag that follows the label where streams are sealed by `auth`.
pub(crate) const TAG_BYTES: usize = 32;

const MAGIC: [u8; 4] = *b"DPF1";

/// The kind, on the wire, of data with the digests of its pieces behind it.
const DIGESTED: u8 = 6;
const DIGEST_BYTES: u16 = 32;

const _: () = assert!(HEADER_BYTES + TAG_BYTES <= HEADROOM_BYTES as usize);

/// Encodes a label as the header in front of its body.
pub fn encode(label: &Label) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[0..4].copy_from_slice(&MAGIC);
    header[4] = match label.digests_len {
        0 => label.kind as u8,
        _ => DIGESTED,
    };
    header[5] = label.codec as u8;
    header[6..8].copy_from_slice(&label.voids_len.to_le_bytes());
    header[8..16].copy_from_slice(&label.extent.start.to_le_bytes());
    header[16..20].copy_from_slice(&label.extent.len.to_le_bytes());
    header[20..24].copy_from_slice(&label.body_len.to_le_bytes());
    header[24..56].copy_from_slice(&label.digest);
    let last = match label.digests_len {
        0 => label.compressed_check,
        length => length.into(),
    };
    header[56..60].copy_from_slice(&last.to_le_bytes());
    let check = crc32c(&header[..60]);
    header[60..64].copy_from_slice(&check.to_le_bytes());
    header
}

/// Reads a label; no field of it is trusted before its checksum is right.
pub fn decode(header: &[u8; HEADER_BYTES]) -> Result<Label, Fault> {
    if header[0..4] != MAGIC {
        return Err(Fault::new(
            base::fault::Class::Corrupt,
            "a data stream carries something that is no frame: it was damaged on its way",
        ));
    }
    let check = u32::from_le_bytes(field(header, 60));
    if crc32c(&header[..60]) != check {
        return Err(Fault::new(
            base::fault::Class::Corrupt,
            "a frame's header arrived damaged (its CRC-32C is wrong)",
        ));
    }
    let kind = match header[4] {
        1 => Kind::Data,
        2 => Kind::Void,
        3 => Kind::End,
        4 => Kind::Zero,
        5 => Kind::Sparse,
        DIGESTED => Kind::Data,
        other => return Err(Fault::peer(format!("a frame of unknown kind {other}"))),
    };
    let codec = Codec::from_code(header[5])
        .ok_or_else(|| Fault::peer(format!("a frame of unknown codec {}", header[5])))?;
    let last = u32::from_le_bytes(field(header, 56));
    let (digests_len, compressed_check) = match header[4] {
        DIGESTED => (u16::try_from(last).unwrap_or(0), 0),
        _ => (0, last),
    };
    let label = Label {
        kind,
        voids_len: u16::from_le_bytes(field(header, 6)),
        extent: Extent {
            start: u64::from_le_bytes(field(header, 8)),
            len: u32::from_le_bytes(field(header, 16)),
        },
        body_len: u32::from_le_bytes(field(header, 20)),
        digest: field(header, 24),
        codec,
        compressed_check,
        digests_len,
    };
    if label.extent.start.checked_add(u64::from(label.extent.len)).is_none() {
        return Err(Fault::peer("a frame past the end of the address space"));
    }
    let bare = label.body_len == 0 && label.voids_len == 0;
    let body_fits = match kind {
        Kind::Data if header[4] == DIGESTED => digests_fit(&label),
        Kind::Data => u32::from(label.voids_len) <= label.body_len && codec_fits(&label),
        Kind::Void => u32::from(label.voids_len) == label.body_len,
        Kind::End => bare,
        Kind::Zero => bare && label.extent.len > 0 && label.digest == [0; 32],
        Kind::Sparse => map_fits(&label) && codec_fits(&label),
    };
    if !body_fits || (!matches!(kind, Kind::Data | Kind::Sparse) && !is_raw(&label)) {
        return Err(Fault::peer("a frame whose body does not fit its kind"));
    }
    Ok(label)
}

/// CRC-32C (Castagnoli), as in headers.
pub fn crc32c(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Something is left out. The map says how much, when it has arrived; it fits a block.
fn map_fits(label: &Label) -> bool {
    let map = u32::from(label.voids_len);
    let payload = label.body_len.checked_sub(map);
    label.extent.len <= MAPPED_BYTES_MAX
        && map == map_bytes(label.extent.len)
        && payload.is_some_and(|bytes| bytes < label.extent.len)
}

/// The whole extent, raw and without voids, with digests behind it.
fn digests_fit(label: &Label) -> bool {
    let payload = label.body_len.checked_sub(label.digests_len.into());
    let is_list = label.digests_len > 0 && label.digests_len.is_multiple_of(DIGEST_BYTES);
    is_list && is_raw(label) && label.voids_len == 0 && payload == Some(label.extent.len)
}

/// A compressed payload is shorter than the raw one: else it would have been sent raw.
fn codec_fits(label: &Label) -> bool {
    let compressed_bytes = label.body_len - u32::from(label.voids_len);
    is_raw(label)
        || (label.codec != Codec::Raw && (1..label.extent.len).contains(&compressed_bytes))
}

fn is_raw(label: &Label) -> bool {
    label.codec == Codec::Raw && label.compressed_check == 0
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
                    ..Label::default()
                });
        let compressed = (2..u32::MAX / 2, any::<u32>(), any::<u16>(), 1..4u8).prop_map(
            |(len, compressed_check, voids_len, codec)| Label {
                kind: Kind::Data,
                extent: Extent { start: 7, len },
                body_len: len / 2 + u32::from(voids_len),
                voids_len,
                codec: Codec::from_code(codec).unwrap(),
                compressed_check,
                digest: [0; 32],
                ..Label::default()
            },
        );
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
        let sparse = (1..400_000u32, any::<u32>(), 0..4u8).prop_map(|(len, check, codec)| Label {
            kind: Kind::Sparse,
            extent: Extent { start: 9, len },
            body_len: len / 2 + map_bytes(len),
            voids_len: map_bytes(len) as u16,
            codec: Codec::from_code(if len < 4 { 0 } else { codec }).unwrap(),
            compressed_check: if len < 4 || codec == 0 { 0 } else { check },
            digest: [3; 32],
            ..Label::default()
        });
        let digested = (1..u32::MAX / 2, 1..2000u16).prop_map(|(len, digests)| Label {
            kind: Kind::Data,
            extent: Extent { start: 5, len },
            body_len: len + u32::from(digests * DIGEST_BYTES),
            digests_len: digests * DIGEST_BYTES,
            digest: [9; 32],
            ..Label::default()
        });
        prop_oneof![digested, data, compressed, void, zero, sparse]
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
        fn a_map_fits_a_block(more in 0..MAPPED_BYTES_MAX) {
            let sparse = |len: u32| Label {
                kind: Kind::Sparse,
                extent: Extent { start: 0, len },
                body_len: map_bytes(len) + 4096,
                voids_len: map_bytes(len) as u16,
                ..Label::default()
            };
            let len = MAPPED_BYTES_MAX - more.min(MAPPED_BYTES_MAX - 8192);
            prop_assert!(decode(&encode(&sparse(len))).is_ok());
            prop_assert!(decode(&encode(&sparse(MAPPED_BYTES_MAX + 1 + more))).is_err());
        }

        #[test]
        fn rubbish_is_an_error(bytes in any::<[u8; 32]>()) {
            let mut header = [0; HEADER_BYTES];
            header[..32].copy_from_slice(&bytes);
            prop_assert!(decode(&header).is_err());
        }
    }
}
