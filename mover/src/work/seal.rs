//! Protection of data streams: frames that are sealed, or a keyed tag on each.

pub mod frame_keys;
pub mod handshake;

use std::fmt;

/// Keys that are derived from the transfer's secret: nobody without it can compute one.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    pub fn new(bytes: [u8; 32]) -> Secret {
        Secret(bytes)
    }

    /// A side's answer to a challenge, which proves that it belongs to the transfer.
    pub fn proof(
        &self,
        prover: &str,
        challenge: &[u8; 32],
        nonce: &[u8; 32],
        stream: u16,
    ) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key("datapump 1 stream proof"));
        hasher.update(prover.as_bytes()).update(challenge).update(nonce);
        *hasher.update(&stream.to_le_bytes()).finalize().as_bytes()
    }

    /// The key of one stream's tags, new for every connection.
    pub fn stream_key(&self, challenge: &[u8; 32], nonce: &[u8; 32], stream: u16) -> Tags {
        let mut hasher = blake3::Hasher::new_keyed(&self.key("datapump 1 stream tags"));
        hasher.update(challenge).update(nonce).update(&stream.to_le_bytes());
        Tags { key: *hasher.finalize().as_bytes(), counter: 0 }
    }

    fn key(&self, context: &str) -> [u8; 32] {
        blake3::derive_key(context, &self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The tags of one stream, one for each frame in order: a frame that is left out, repeated or moved
/// is detected.
pub struct Tags {
    key: [u8; 32],
    counter: u64,
}

impl Tags {
    /// The next frame's tag. `body` is empty where the header holds a BLAKE3 digest of it.
    pub fn next(&mut self, header: &[u8], body: &[u8]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&self.counter.to_le_bytes()).update(header).update(body);
        self.counter += 1;
        *hasher.finalize().as_bytes()
    }
}

impl fmt::Debug for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tags(at {})", self.counter)
    }
}

/// Compares secrets in constant time.
pub fn same(left: &[u8; 32], right: &[u8; 32]) -> bool {
    blake3::Hash::from_bytes(*left) == blake3::Hash::from_bytes(*right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_know_their_place() {
        let secret = Secret::new([1; 32]);
        let tag = |stream: u16, skip: usize, header: &[u8], body: &[u8]| {
            let mut tags = secret.stream_key(&[2; 32], &[3; 32], stream);
            (0..skip).for_each(|_| assert_ne!(tags.next(b"", b""), [0; 32]));
            tags.next(header, body)
        };
        let right = tag(0, 0, b"head", b"body");
        assert!(same(&right, &tag(0, 0, b"head", b"body")));
        for wrong in [
            tag(1, 0, b"head", b"body"),
            tag(0, 1, b"head", b"body"),
            tag(0, 0, b"heaD", b"body"),
            tag(0, 0, b"head", b"bodY"),
        ] {
            assert!(!same(&right, &wrong));
        }
    }
}
