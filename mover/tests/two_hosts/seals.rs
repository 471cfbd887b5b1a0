//! How the streams of two hosts are protected.

use mover::ends::stream::Protection;
use mover::work::seal::Secret;
use mover::work::seal::frame_keys::{FrameKeys, Suite};

pub(crate) fn protections(seal: u64, index: u16) -> (Protection, Protection) {
    match seal {
        0 => {
            let keys = || FrameKeys::new(Suite::Aes128Gcm, &[index as u8; 32]);
            (Protection::Tls(keys()), Protection::Tls(keys()))
        }
        1 => {
            let tags = || Secret::new([9; 32]).stream_key(&[1; 32], &[2; 32], index);
            (Protection::Auth(tags()), Protection::Auth(tags()))
        }
        _ => (Protection::Off, Protection::Off),
    }
}
