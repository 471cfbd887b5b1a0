//! How the streams of two hosts are protected.

use mover::ends::stream::Protection;
use mover::work::seal::{HandshakeStep, Identity, Secret, Tls};

pub(crate) fn protections(seal: u64, index: u16) -> (Protection, Protection) {
    match seal {
        0 => shaken(),
        1 => {
            let tags = || Secret::new([9; 32]).stream_key(&[1; 32], &[2; 32], index);
            (Protection::Auth(tags()), Protection::Auth(tags()))
        }
        _ => (Protection::Off, Protection::Off),
    }
}

/// A TLS handshake in memory.
fn shaken() -> (Protection, Protection) {
    let (near, far) = (Identity::ephemeral().unwrap(), Identity::ephemeral().unwrap());
    let mut source = Tls::source(&near, far.fingerprint).unwrap();
    let mut sink = Tls::sink(&far, near.fingerprint).unwrap();
    let (mut to_sink, mut to_source) = (Vec::new(), Vec::new());
    loop {
        let source_done = shake(&mut source, &mut to_source, &mut to_sink);
        let sink_done = shake(&mut sink, &mut to_sink, &mut to_source);
        if source_done && sink_done {
            return (Protection::Tls(source), Protection::Tls(sink));
        }
    }
}

fn shake(tls: &mut Tls, incoming: &mut Vec<u8>, outgoing: &mut Vec<u8>) -> bool {
    loop {
        let (used, next) = tls.shake(incoming, outgoing).expect("a handshake in memory");
        incoming.drain(..used);
        match next {
            HandshakeStep::Send => {}
            HandshakeStep::Receive => return false,
            HandshakeStep::Done => return true,
        }
    }
}
