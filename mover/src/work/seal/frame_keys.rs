//! The keys of one stream's frames: what seals and opens them, in place.
//!
//! ```text
//! secret                        from the handshake, 32 bytes
//! key     HKDF-Expand(secret, "datapump frame key")     16 or 32 bytes
//! iv      HKDF-Expand(secret, "datapump frame iv")      12 bytes
//! nonce   iv XOR counter, 64 bits, big-endian, at the end (RFC 8446, section 5.3)
//! secret  HKDF-Expand(secret, "datapump frame next")    after 2^36 bytes
//! ```

use std::fmt;

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce,
    UnboundKey,
};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use zeroize::Zeroizing;

use base::fault::{Class, Fault};

/// Bytes that a seal adds to what it seals.
pub const SEAL_TAG_BYTES: usize = 16;

/// The AEAD of a stream's frames: that of its TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    Aes128Gcm = 1,
    ChaCha20Poly1305 = 2,
    Aes256Gcm = 3,
}

impl Suite {
    fn algorithm(self) -> &'static Algorithm {
        match self {
            Suite::Aes128Gcm => &AES_128_GCM,
            Suite::ChaCha20Poly1305 => &CHACHA20_POLY1305,
            Suite::Aes256Gcm => &AES_256_GCM,
        }
    }
}

/// Seals at one side, opens at the other: both count alike, so nonces need not be sent, and what is
/// left out, repeated or moved cannot be opened.
pub struct FrameKeys {
    suite: Suite,
    /// What the key is made from, and the next secret.
    secret: Zeroizing<[u8; 32]>,
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    /// What has been sealed with this key.
    calls: u64,
    bytes: u64,
    bytes_max: u64,
}

impl FrameKeys {
    pub fn new(suite: Suite, secret: &[u8; 32]) -> FrameKeys {
        FrameKeys::changed_after(KEY_BYTES_MAX, suite, secret)
    }

    fn changed_after(bytes_max: u64, suite: Suite, secret: &[u8; 32]) -> FrameKeys {
        let mut key = Zeroizing::new([0; 32]);
        let key = &mut key[..suite.algorithm().key_len()];
        let mut iv = [0; NONCE_LEN];
        expand(secret, b"datapump frame key", key);
        expand(secret, b"datapump frame iv", &mut iv);
        let key = UnboundKey::new(suite.algorithm(), key).expect("a key of the right length");
        FrameKeys {
            suite,
            secret: Zeroizing::new(*secret),
            key: LessSafeKey::new(key),
            iv,
            calls: 0,
            bytes: 0,
            bytes_max,
        }
    }

    /// Seals all but the last 16 bytes, in place; those get the tag.
    pub fn seal(&mut self, bytes: &mut [u8]) -> Result<(), Fault> {
        let plain_bytes = bytes.len() - SEAL_TAG_BYTES;
        let nonce = self.nonce(plain_bytes)?;
        let (plain, tag_at) = bytes.split_at_mut(plain_bytes);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::empty(), plain);
        let tag = tag.map_err(|_| Fault::new(Class::Local, "cannot seal a frame"))?;
        tag_at.copy_from_slice(tag.as_ref());
        Ok(())
    }

    /// Opens what `seal` made, in place.
    pub fn open(&mut self, bytes: &mut [u8]) -> Result<(), Fault> {
        let nonce = self.nonce(bytes.len() - SEAL_TAG_BYTES)?;
        let opened = self.key.open_in_place(nonce, Aad::empty(), bytes);
        opened.map(drop).map_err(|_| {
            let text = "a data stream arrived damaged: a frame cannot be opened";
            Fault::new(Class::Corrupt, text)
        })
    }

    /// The next nonce, of the next key where this one is used up.
    fn nonce(&mut self, plain_bytes: usize) -> Result<Nonce, Fault> {
        if self.bytes >= self.bytes_max {
            let mut next = Zeroizing::new([0; 32]);
            expand(&self.secret, b"datapump frame next", &mut *next);
            *self = FrameKeys::changed_after(self.bytes_max, self.suite, &next);
        }
        let mut nonce = self.iv;
        for (byte, count) in nonce[4..].iter_mut().zip(self.calls.to_be_bytes()) {
            *byte ^= count;
        }
        let calls = self.calls.checked_add(1);
        self.calls = calls.ok_or_else(|| Fault::new(Class::Local, "a stream has no nonce left"))?;
        self.bytes += plain_bytes as u64;
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

/// How many bytes one key seals. In 2^32 blocks of 16 bytes somebody tells AES-GCM from a random
/// function with a chance of 2^-65 (draft-irtf-cfrg-aead-limits).
const KEY_BYTES_MAX: u64 = 1 << 36;

fn expand(secret: &[u8; 32], name: &[u8], out: &mut [u8]) {
    struct Length(usize);
    impl KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let secret = Prk::new_less_safe(HKDF_SHA256, secret);
    let name = [name];
    let expanded = secret.expand(&name, Length(out.len()));
    expanded.and_then(|bytes| bytes.fill(out)).expect("a few bytes");
}

impl fmt::Debug for FrameKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameKeys({:?}, {} calls)", self.suite, self.calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame;
    use base::extent::Extent;
    use base::label::{Kind, Label};

    const SUITES: [Suite; 3] = [Suite::Aes128Gcm, Suite::ChaCha20Poly1305, Suite::Aes256Gcm];

    fn sealed(keys: &mut FrameKeys, plain: &[u8]) -> Vec<u8> {
        let mut bytes = [plain, &[0; SEAL_TAG_BYTES]].concat();
        keys.seal(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn opened_in_order_and_with_every_key() {
        for suite in SUITES {
            // A key is used up after 100 bytes.
            let keys = || FrameKeys::changed_after(100, suite, &[1; 32]);
            let (mut sealer, mut opener) = (keys(), keys());
            let mut seen = std::collections::BTreeSet::new();
            for length in [0, 1, 16, 64, 100, 0, 4096, 3, 99, 1, 64] {
                let plain = vec![length as u8; length];
                let mut bytes = sealed(&mut sealer, &plain);
                assert!(seen.insert(bytes[length..].to_vec()), "a tag twice");
                opener.open(&mut bytes).unwrap();
                assert_eq!(bytes[..length], plain, "{suite:?}");
            }
            assert_ne!(sealer.secret, keys().secret, "no key was changed");
            assert_eq!(sealer.secret, opener.secret);
        }
    }

    #[test]
    fn nothing_else_is_opened() {
        let keys = |suite, first: u8| FrameKeys::new(suite, &[first; 32]);
        for suite in SUITES {
            let mut sealer = keys(suite, 1);
            let (first, second) = (sealed(&mut sealer, &[5; 64]), sealed(&mut sealer, &[6; 64]));
            let refused = |mut opener: FrameKeys, mut bytes: Vec<u8>, why: &str| {
                assert_eq!(opener.open(&mut bytes).unwrap_err().class, Class::Corrupt, "{why}");
                assert_ne!(bytes[..64], [5; 64], "{why}");
            };
            refused(keys(suite, 1), second, "a frame too early, or the one before left out");
            refused(keys(suite, 2), first.clone(), "another secret");
            let mut opener = keys(suite, 1);
            opener.open(&mut first.clone()).unwrap();
            refused(opener, first.clone(), "a frame repeated");
            refused(keys(suite, 1), first[..79].to_vec(), "a frame cut");
            for at in 0..first.len() {
                let mut flipped = first.clone();
                flipped[at] ^= 1;
                refused(keys(suite, 1), flipped, "a bit flipped");
            }
        }
    }

    /// The vectors of docs/WIRE.md, which a script without any of this code opens too
    /// (`tests/integration/seals.rs`).
    #[test]
    fn as_in_the_vectors() {
        let vectors: Vec<String> = SUITES.map(vector).into();
        let text = format!("[\n{}\n]\n", vectors.join(",\n"));
        let expected = include_str!("../../../../docs/wire/sealed-frames.json");
        assert!(text == expected, "docs/wire/sealed-frames.json is to be:\n{text}");
    }

    /// Frames of each form, with a tiny limit, so that the last has another key.
    fn vector(suite: Suite) -> String {
        let secret: [u8; 32] = std::array::from_fn(|at| at as u8);
        let mut keys = FrameKeys::changed_after(VECTOR_KEY_BYTES_MAX, suite, &secret);
        let mut key = vec![0; suite.algorithm().key_len()];
        expand(&secret, b"datapump frame key", &mut key);
        let iv = hex(&keys.iv);
        let data = |start: u64, len: u32, first: u8| {
            let extent = Extent { start, len };
            let label = Label {
                kind: Kind::Data,
                extent,
                body_len: len,
                digest: [first; 32],
                ..Label::default()
            };
            (label, (0..len as u8).map(|at| at ^ first).collect::<Vec<u8>>())
        };
        let zero = Extent { start: 1 << 40, len: 1 << 20 };
        let end = Extent { start: 3, len: 0 };
        let frames = [
            data(0, 16, 0xa5),
            (Label { kind: Kind::Zero, extent: zero, ..Label::default() }, Vec::new()),
            data(1 << 20, 200, 0x5a),
            (Label { kind: Kind::End, extent: end, ..Label::default() }, Vec::new()),
        ];
        let frames = frames.map(|(label, body)| {
            let header = frame::encode(&label);
            let mut wire = sealed(&mut keys, &header);
            if !body.is_empty() {
                wire.extend(sealed(&mut keys, &body));
            }
            let (header, body, wire) = (hex(&header), hex(&body), hex(&wire));
            format!(r#"      {{"header": "{header}", "body": "{body}", "wire": "{wire}"}}"#)
        });
        format!(
            r#"  {{
    "suite": "{}",
    "secret": "{}",
    "key_bytes_max": {VECTOR_KEY_BYTES_MAX},
    "first_key": "{}",
    "first_iv": "{iv}",
    "frames": [
{}
    ]
  }}"#,
            match suite {
                Suite::Aes128Gcm => "AES-128-GCM",
                Suite::ChaCha20Poly1305 => "ChaCha20-Poly1305",
                Suite::Aes256Gcm => "AES-256-GCM",
            },
            hex(&secret),
            hex(&key),
            frames.join(",\n"),
        )
    }

    const VECTOR_KEY_BYTES_MAX: u64 = 300;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_last_nonce_is_the_last() {
        let mut keys = FrameKeys::new(Suite::Aes128Gcm, &[1; 32]);
        keys.calls = u64::MAX - 1;
        let mut bytes = [0; 32];
        keys.seal(&mut bytes).unwrap();
        assert!(keys.seal(&mut bytes).is_err());
    }
}
