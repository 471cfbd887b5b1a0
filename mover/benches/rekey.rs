//! A stream that outlives its keys: AES-GCM's are good for 2^24 records (256 GiB of full ones),
//! then TLS changes them. Proves in memory that sealing and opening go on.
//! `cargo bench -p datapump-mover --bench rekey`.

use mover::work::seal::{HandshakeStep, Identity, Tls};

/// As many records as the first keys last, and some more.
const RECORDS: u64 = (1 << 24) + (1 << 16);

fn main() {
    let (mut source, mut sink) = shaken();
    let mut sealed = [0; 256];
    let mut longest = 0;
    for record in 0..RECORDS {
        let plain = record.to_le_bytes();
        let count = source.seal(&plain, &mut sealed).expect("sealed");
        longest = longest.max(count);
        let mut opened = Vec::with_capacity(plain.len());
        let mut used = 0;
        while used < count {
            let rest = &mut sealed[used..count];
            let more = sink.open(rest, |bytes| opened.extend_from_slice(bytes)).expect("opened");
            assert!(more > 0, "record {record}: {} bytes are left sealed", count - used);
            used += more;
        }
        assert_eq!(opened, plain, "record {record}");
    }
    let plain_record = 5 + 8 + 1 + 16;
    assert!(longest > plain_record, "no key update was seen in {RECORDS} records");
    println!(
        "{RECORDS} records sealed and opened; the one with the key update took {longest} bytes"
    );
}

/// A TLS handshake in memory.
fn shaken() -> (Tls, Tls) {
    let (near, far) = (Identity::ephemeral().expect("made"), Identity::ephemeral().expect("made"));
    let mut source = Tls::source(&near, far.fingerprint).expect("a client");
    let mut sink = Tls::sink(&far, near.fingerprint).expect("a server");
    let (mut to_sink, mut to_source) = (Vec::new(), Vec::new());
    loop {
        let source_done = shake(&mut source, &mut to_source, &mut to_sink);
        let sink_done = shake(&mut sink, &mut to_sink, &mut to_source);
        if source_done && sink_done {
            return (source, sink);
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
