//! The driver's first bytes on a data stream: `"DPS1" | stream u16 | zero u16 | nonce 32`.

const MAGIC: &[u8; 4] = b"DPS1";
pub(crate) const PREAMBLE_BYTES: usize = 40;

/// The number of the data stream that the control connection carries. No connection has it.
pub const CONTROL_STREAM: u32 = u16::MAX as u32;

/// The number of the stream, and a nonce that is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Preamble {
    pub stream: u16,
    pub nonce: [u8; 32],
}

impl Preamble {
    pub(crate) fn encode(&self) -> [u8; PREAMBLE_BYTES] {
        let mut bytes = [0; PREAMBLE_BYTES];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4..6].copy_from_slice(&self.stream.to_le_bytes());
        bytes[8..].copy_from_slice(&self.nonce);
        bytes
    }

    /// `None` if it is not a preamble.
    pub(crate) fn decode(bytes: &[u8; PREAMBLE_BYTES]) -> Option<Preamble> {
        let (front, nonce) = bytes.split_last_chunk::<32>()?;
        let stream = u16::from_le_bytes([front[4], front[5]]);
        let is_one = front.starts_with(MAGIC) && u32::from(stream) != CONTROL_STREAM;
        is_one.then_some(Preamble { stream, nonce: *nonce })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood_and_nothing_else() {
        let preamble = Preamble { stream: 513, nonce: [7; 32] };
        let bytes = preamble.encode();
        assert_eq!(bytes[..8], *b"DPS1\x01\x02\0\0");
        assert_eq!(Preamble::decode(&bytes), Some(preamble));
        let carried = Preamble { stream: CONTROL_STREAM as u16, ..preamble };
        assert_eq!(Preamble::decode(&carried.encode()), None);
        assert_eq!(Preamble::decode(b"GET / HTTP/1.1\r\nHost: somebody else's\r\n\r"), None);
    }
}
