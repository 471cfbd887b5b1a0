//! Protection of data streams: the TLS record layer, or a keyed tag on each block.
//!
//! The side with the source is the TLS client of every stream, whichever side connected: a client
//! always seals then, and a server always opens.

use std::fmt;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::UnbufferedServerConnection;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
};

use base::fault::{Class, Fault};

/// BLAKE3 of a certificate's DER form.
pub(crate) type Fingerprint = [u8; 32];

/// A certificate for one transfer, and its key.
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
    pub fingerprint: Fingerprint,
}

impl Identity {
    /// Makes a new one. It lives as long as the transfer and is never stored.
    pub fn ephemeral() -> Result<Identity, Fault> {
        let made =
            rcgen::generate_simple_self_signed(vec!["datapump".to_string()]).map_err(|error| {
                Fault::new(Class::Local, format!("cannot make a certificate: {error}"))
            })?;
        let certificate = made.cert.der().clone();
        let fingerprint = *blake3::hash(&certificate).as_bytes();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Ok(Identity { certificate, key, fingerprint })
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from(self.key.clone_key())
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", blake3::Hash::from_bytes(self.fingerprint).to_hex())
    }
}

/// What a handshake needs next.
#[derive(Debug)]
pub enum HandshakeStep {
    /// Bytes to send are in `outgoing`.
    Send,
    /// Bytes from the peer are needed.
    Receive,
    Done,
}

/// A TLS connection before, during and after its handshake; no sockets.
pub enum Tls {
    Source(Box<UnbufferedClientConnection>),
    Sink(Box<UnbufferedServerConnection>),
}

impl Tls {
    /// The source's side of a stream to the peer with that certificate, and to no other.
    pub fn source(identity: &Identity, peer: Fingerprint) -> Result<Tls, Fault> {
        let provider = Arc::new(provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .and_then(|builder| {
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(Pinned { peer, provider }))
                    .with_client_auth_cert(vec![identity.certificate.clone()], identity.key())
            })
            .map_err(|error| tls_fault(&error))?;
        let name = ServerName::try_from("datapump").expect("a valid name");
        let connection = UnbufferedClientConnection::new(Arc::new(config), name);
        Ok(Tls::Source(Box::new(connection.map_err(|error| tls_fault(&error))?)))
    }

    pub fn sink(identity: &Identity, peer: Fingerprint) -> Result<Tls, Fault> {
        let provider = Arc::new(provider());
        let mut config = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .and_then(|builder| {
                builder
                    .with_client_cert_verifier(Arc::new(Pinned { peer, provider }))
                    .with_single_cert(vec![identity.certificate.clone()], identity.key())
            })
            .map_err(|error| tls_fault(&error))?;
        config.send_tls13_tickets = 0;
        let connection = UnbufferedServerConnection::new(Arc::new(config));
        Ok(Tls::Sink(Box::new(connection.map_err(|error| tls_fault(&error))?)))
    }

    /// One step of the handshake over the bytes received so far. Returns how many of them are
    /// consumed.
    pub fn shake(
        &mut self,
        incoming: &mut [u8],
        outgoing: &mut Vec<u8>,
    ) -> Result<(usize, HandshakeStep), Fault> {
        match self {
            Tls::Source(connection) => {
                shake_step(connection.process_tls_records(incoming), outgoing)
            }
            Tls::Sink(connection) => shake_step(connection.process_tls_records(incoming), outgoing),
        }
    }

    /// Seals `plain` into `sealed`; returns the bytes written there. New keys are due after 2^24
    /// records of AES-GCM: then a key update comes first.
    pub fn seal(&mut self, plain: &[u8], sealed: &mut [u8]) -> Result<usize, Fault> {
        let mut end = 0;
        loop {
            let room = &mut sealed[end..];
            let (count, more) = match self {
                Tls::Source(tls) => seal_step(tls.process_tls_records(&mut []), plain, room)?,
                Tls::Sink(tls) => seal_step(tls.process_tls_records(&mut []), plain, room)?,
            };
            end += count;
            if more == More::No {
                return Ok(end);
            }
        }
    }

    /// Opens the records in `incoming` and passes their bytes to `take`. Returns the bytes that are
    /// consumed; the rest is the beginning of a record.
    pub fn open(
        &mut self,
        incoming: &mut [u8],
        mut take: impl FnMut(&[u8]),
    ) -> Result<usize, Fault> {
        let mut used = 0;
        loop {
            let rest = &mut incoming[used..];
            let (count, more) = match self {
                Tls::Source(connection) => {
                    open_step(connection.process_tls_records(rest), &mut take)?
                }
                Tls::Sink(connection) => {
                    open_step(connection.process_tls_records(rest), &mut take)?
                }
            };
            used += count;
            if more == More::No {
                return Ok(used);
            }
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tls::Source(_) => "Tls(source)",
            Tls::Sink(_) => "Tls(sink)",
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum More {
    Yes,
    No,
}

fn shake_step<D>(
    status: UnbufferedStatus<'_, '_, D>,
    outgoing: &mut Vec<u8>,
) -> Result<(usize, HandshakeStep), Fault> {
    let UnbufferedStatus { discard, state, .. } = status;
    let next = match state.map_err(|error| tls_fault(&error))? {
        ConnectionState::EncodeTlsData(mut data) => {
            let at = outgoing.len();
            outgoing.resize(at + HANDSHAKE_BYTES_MAX, 0);
            let count = data
                .encode(&mut outgoing[at..])
                .map_err(|error| Fault::peer(format!("a TLS handshake message: {error}")))?;
            outgoing.truncate(at + count);
            HandshakeStep::Send
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            HandshakeStep::Send
        }
        ConnectionState::BlockedHandshake => HandshakeStep::Receive,
        ConnectionState::WriteTraffic(_) | ConnectionState::ReadTraffic(_) => HandshakeStep::Done,
        ConnectionState::PeerClosed | ConnectionState::Closed => return Err(closed()),
        _ => return Err(Fault::peer("a TLS handshake in a state that it cannot be in")),
    };
    Ok((discard, next))
}

fn seal_step<D>(
    status: UnbufferedStatus<'_, '_, D>,
    plain: &[u8],
    sealed: &mut [u8],
) -> Result<(usize, More), Fault> {
    let failed = |error: &dyn fmt::Display| {
        Fault::new(Class::Local, format!("cannot seal a block: {error}"))
    };
    match status.state.map_err(|error| tls_fault(&error))? {
        ConnectionState::EncodeTlsData(mut data) => {
            let count = data.encode(sealed).map_err(|error| failed(&error))?;
            Ok((count, More::Yes))
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok((0, More::Yes))
        }
        ConnectionState::WriteTraffic(mut traffic) => {
            let count = traffic.encrypt(plain, sealed).map_err(|error| failed(&error))?;
            Ok((count, More::No))
        }
        _ => Err(closed()),
    }
}

fn open_step<D>(
    status: UnbufferedStatus<'_, '_, D>,
    take: &mut impl FnMut(&[u8]),
) -> Result<(usize, More), Fault> {
    let UnbufferedStatus { mut discard, state, .. } = status;
    let more = match state.map_err(|error| tls_fault(&error))? {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record.map_err(|error| tls_fault(&error))?;
                discard += record.discard;
                take(record.payload);
            }
            More::Yes
        }
        ConnectionState::WriteTraffic(_) | ConnectionState::BlockedHandshake => More::No,
        ConnectionState::PeerClosed | ConnectionState::Closed => return Err(closed()),
        _ => return Err(Fault::peer("a TLS stream in a state that it cannot be in")),
    };
    Ok((discard, more))
}

fn closed() -> Fault {
    Fault::new(Class::Unreachable, "the peer closed a data stream too early")
}

fn tls_fault(error: &rustls::Error) -> Fault {
    let text = format!("a data stream arrived damaged, or is not the peer's (TLS: {error})");
    Fault::new(Class::Corrupt, text)
}

/// AES-128-GCM first: the cheapest on CPUs with AES instructions, which these machines have.
fn provider() -> CryptoProvider {
    use aws_lc_rs::cipher_suite::{
        TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
    };
    CryptoProvider {
        cipher_suites: vec![
            TLS13_AES_128_GCM_SHA256,
            TLS13_CHACHA20_POLY1305_SHA256,
            TLS13_AES_256_GCM_SHA384,
        ],
        ..aws_lc_rs::default_provider()
    }
}

const HANDSHAKE_BYTES_MAX: usize = 16 << 10;

/// Accepts one certificate, by its fingerprint, from a peer that proves to have its key.
#[derive(Debug)]
struct Pinned {
    peer: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        match blake3::hash(certificate) == self.peer {
            true => Ok(()),
            false => {
                Err(rustls::Error::General("the peer's certificate is not this transfer's".into()))
            }
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }

    fn only_13() -> rustls::Error {
        rustls::Error::General("streams are TLS 1.3".into())
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(certificate).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(Pinned::only_13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.check_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(certificate).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(Pinned::only_13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.check_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

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

    /// Runs a handshake in memory; the pins say which certificate each side expects.
    fn shake(
        source_pin: Option<Fingerprint>,
        sink_pin: Option<Fingerprint>,
    ) -> Result<(Tls, Tls), Fault> {
        let (near, far) = (Identity::ephemeral()?, Identity::ephemeral()?);
        let mut source = Tls::source(&near, source_pin.unwrap_or(far.fingerprint))?;
        let mut sink = Tls::sink(&far, sink_pin.unwrap_or(near.fingerprint))?;
        let (mut to_sink, mut to_source) = (Vec::new(), Vec::new());
        let mut done = [false; 2];
        while done != [true; 2] {
            for (side, end) in [&mut source, &mut sink].into_iter().enumerate() {
                let (incoming, outgoing) = match side {
                    0 => (&mut to_source, &mut to_sink),
                    _ => (&mut to_sink, &mut to_source),
                };
                loop {
                    let (used, next) = end.shake(incoming, outgoing)?;
                    incoming.drain(..used);
                    match next {
                        HandshakeStep::Send => {}
                        HandshakeStep::Receive => break,
                        HandshakeStep::Done => {
                            done[side] = true;
                            break;
                        }
                    }
                }
            }
        }
        Ok((source, sink))
    }

    #[test]
    fn sealed_and_opened() {
        let (mut source, mut sink) = shake(None, None).unwrap();
        let plain: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
        let mut sealed = vec![0; 110_000];
        let count = source.seal(&plain, &mut sealed).unwrap();
        let mut opened = Vec::new();
        let mut from = 0;
        // In two parts, the first of which ends inside a record.
        for end in [50_000, count] {
            from +=
                sink.open(&mut sealed[from..end], |bytes| opened.extend_from_slice(bytes)).unwrap();
        }
        assert_eq!((from, opened), (count, plain));
    }

    #[test]
    fn a_stranger_is_refused() {
        assert!(shake(Some([7; 32]), None).is_err());
        assert!(shake(None, Some([7; 32])).is_err());
    }

    #[test]
    fn a_changed_record_is_refused() {
        let (mut source, mut sink) = shake(None, None).unwrap();
        let mut sealed = vec![0; 4096];
        let count = source.seal(&[1; 1000], &mut sealed).unwrap();
        sealed[500] ^= 1;
        assert!(sink.open(&mut sealed[..count], |_| panic!("opened")).is_err());
    }

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
