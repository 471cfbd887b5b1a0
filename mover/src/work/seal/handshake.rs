//! The TLS 1.3 handshake of a data stream: it proves both sides to each other, and makes the secret
//! that the keys of frames come from. No sockets.
//!
//! The side with the source is the TLS client of every stream, whichever side connected.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, Connection, DigitallySignedStruct,
    DistinguishedName, ServerConfig, ServerConnection, SignatureScheme, SupportedCipherSuite,
};
use zeroize::Zeroizing;

use super::frame_keys::{FrameKeys, Suite};
use crate::wire::message::VERSION_MAX;
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

/// A handshake in progress. The caller sends what is `outgoing` and passes on record by record, so
/// that no byte that follows the handshake is ever taken for a part of it.
pub struct Handshake {
    connection: Connection,
    stream: u16,
    /// The digest of what both sides agreed on.
    agreed: [u8; 32],
    /// The sink has checked the source's certificate; the source knows it.
    accepted: bool,
}

/// What a handshake is for: a stream's number, and the digest of what both sides agreed on.
pub type Purpose = (u16, [u8; 32]);

impl Handshake {
    /// The source's side of a stream to the peer with that certificate, and to no other.
    pub fn source(
        identity: &Identity,
        peer: Fingerprint,
        purpose: Purpose,
    ) -> Result<Handshake, Fault> {
        let provider = Arc::new(provider(has_aes()));
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
        let connection = ClientConnection::new(Arc::new(config), name);
        Handshake::begin(connection.map(Connection::Client), purpose)
    }

    pub fn sink(
        identity: &Identity,
        peer: Fingerprint,
        purpose: Purpose,
    ) -> Result<Handshake, Fault> {
        let provider = Arc::new(provider(has_aes()));
        let mut config = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .and_then(|builder| {
                builder
                    .with_client_cert_verifier(Arc::new(Pinned { peer, provider }))
                    .with_single_cert(vec![identity.certificate.clone()], identity.key())
            })
            .map_err(|error| tls_fault(&error))?;
        config.send_tls13_tickets = 0;
        let connection = ServerConnection::new(Arc::new(config));
        Handshake::begin(connection.map(Connection::Server), purpose)
    }

    fn begin(
        connection: Result<Connection, rustls::Error>,
        (stream, agreed): Purpose,
    ) -> Result<Handshake, Fault> {
        let connection = connection.map_err(|error| tls_fault(&error))?;
        Ok(Handshake { connection, stream, agreed, accepted: false })
    }

    /// What must be sent before anything else is received.
    pub fn outgoing(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut bytes).expect("memory takes everything");
        }
        bytes
    }

    /// Takes one record of the peer.
    pub fn take(&mut self, mut record: &[u8]) -> Result<(), Fault> {
        while !record.is_empty() {
            let count = self.connection.read_tls(&mut record).map_err(|error| refused(&error))?;
            if count == 0 {
                return Err(refused(&io::ErrorKind::UnexpectedEof.into()));
            }
        }
        let state = self.connection.process_new_packets().map_err(|error| tls_fault(&error))?;
        let mut word = vec![0; state.plaintext_bytes_to_read()];
        self.connection.reader().read_exact(&mut word).map_err(|error| refused(&error))?;
        let expected = match self.connection.is_handshaking() {
            true => Vec::new(),
            false => [ACCEPTED, blake3::hash(&self.context()?.1).as_bytes()].concat(),
        };
        match &mut self.connection {
            // A TLS 1.3 client has finished before the server has checked its certificate, so the
            // sink says when it has, and what for: a number that was changed on its way is noticed.
            Connection::Server(_) if !word.is_empty() => {
                return Err(Fault::peer("a source that says something before it is accepted"));
            }
            Connection::Server(server) if !server.is_handshaking() => {
                server.writer().write_all(&expected).map_err(|error| refused(&error))?;
                self.accepted = true;
            }
            Connection::Client(_) if !word.is_empty() && word == expected => self.accepted = true,
            Connection::Client(_) if !word.is_empty() => {
                return Err(Fault::peer("the far side does not accept a data stream"));
            }
            Connection::Server(_) | Connection::Client(_) => {}
        }
        Ok(())
    }

    /// Both sides are proved, once what is `outgoing` has been sent.
    pub fn is_over(&self) -> bool {
        self.accepted
    }

    /// The keys of this stream's frames, which differ for each stream, and on each side unless both
    /// have agreed on the same (RFC 8446, section 7.5). The connection and its keys are gone then.
    pub fn frame_keys(self) -> Result<FrameKeys, Fault> {
        assert!(self.accepted, "a client's certificate is not covered before");
        let (suite, context) = self.context()?;
        let secret = Zeroizing::new([0; 32]);
        let secret = self
            .connection
            .export_keying_material(secret, EXPORTER_LABEL, Some(&context))
            .map_err(|error| tls_fault(&error))?;
        Ok(FrameKeys::new(suite, &secret))
    }

    /// The suite, and what the two sides must agree on: else their keys differ.
    fn context(&self) -> Result<(Suite, Vec<u8>), Fault> {
        let suite = self.connection.negotiated_cipher_suite().map(|suite| suite.suite());
        let suite = match suite {
            Some(CipherSuite::TLS13_AES_128_GCM_SHA256) => Suite::Aes128Gcm,
            Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256) => Suite::ChaCha20Poly1305,
            Some(CipherSuite::TLS13_AES_256_GCM_SHA384) => Suite::Aes256Gcm,
            other => return Err(Fault::peer(format!("a stream with the suite {other:?}"))),
        };
        let mut context = b"source".to_vec();
        context.extend(VERSION_MAX.to_le_bytes());
        context.extend(self.stream.to_le_bytes());
        context.push(suite as u8);
        context.extend(self.agreed);
        Ok((suite, context))
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.connection {
            Connection::Client(_) => "Handshake(source)",
            Connection::Server(_) => "Handshake(sink)",
        })
    }
}

/// What the sink says when it has checked the source's certificate; the digest of the context
/// follows.
const ACCEPTED: &[u8] = b"ok";

const EXPORTER_LABEL: &[u8] = b"EXPERIMENTAL datapump frame";

/// A record's header (RFC 8446, section 5.1), and the most that follows it (section 5.2).
pub(crate) const RECORD_HEADER_BYTES: usize = 5;
const RECORD_BYTES_MAX: usize = 16384 + 256;

/// How many bytes follow a record's header.
pub(crate) fn record_bytes(header: &[u8; RECORD_HEADER_BYTES]) -> Result<usize, Fault> {
    match usize::from(u16::from_be_bytes([header[3], header[4]])) {
        length @ ..=RECORD_BYTES_MAX => Ok(length),
        _ => Err(Fault::peer("a handshake with something that is no TLS record")),
    }
}

fn refused(error: &io::Error) -> Fault {
    Fault::peer(format!("a TLS handshake that cannot go on: {error}"))
}

fn tls_fault(error: &rustls::Error) -> Fault {
    let text = format!("a data stream arrived damaged, or is not the peer's (TLS: {error})");
    Fault::new(Class::Corrupt, text)
}

/// AES where the processor computes it, which is several times as fast there; it is used where both
/// sides have it.
fn provider(has_aes: bool) -> CryptoProvider {
    use aws_lc_rs::cipher_suite::{
        TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
    };
    let mut cipher_suites: Vec<SupportedCipherSuite> = vec![TLS13_CHACHA20_POLY1305_SHA256];
    if has_aes {
        cipher_suites.insert(0, TLS13_AES_128_GCM_SHA256);
        cipher_suites.push(TLS13_AES_256_GCM_SHA384);
    }
    CryptoProvider { cipher_suites, ..aws_lc_rs::default_provider() }
}

#[cfg(target_arch = "x86_64")]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes")
}

#[cfg(target_arch = "aarch64")]
fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn has_aes() -> bool {
    false
}

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

#[cfg(test)]
mod tests {
    use super::*;

    const PURPOSE: Purpose = (3, [1; 32]);

    /// Handshakes in memory; the pins say which certificate each side expects.
    fn shake(
        (source_pin, source): (Option<Fingerprint>, Purpose),
        (sink_pin, sink): (Option<Fingerprint>, Purpose),
    ) -> Result<(Handshake, Handshake), Fault> {
        let (near, far) = (Identity::ephemeral()?, Identity::ephemeral()?);
        let mut source = Handshake::source(&near, source_pin.unwrap_or(far.fingerprint), source)?;
        let mut sink = Handshake::sink(&far, sink_pin.unwrap_or(near.fingerprint), sink)?;
        while !(source.is_over() && sink.is_over()) {
            pass(&mut source, &mut sink)?;
            pass(&mut sink, &mut source)?;
        }
        Ok((source, sink))
    }

    fn pass(from: &mut Handshake, to: &mut Handshake) -> Result<(), Fault> {
        let bytes = from.outgoing();
        let mut rest = &bytes[..];
        while let Some(header) = rest.first_chunk() {
            let (record, others) = rest.split_at(RECORD_HEADER_BYTES + record_bytes(header)?);
            to.take(record)?;
            rest = others;
        }
        Ok(())
    }

    #[test]
    fn keys_agree_where_both_sides_do() {
        let (near, far) = shake((None, PURPOSE), (None, PURPOSE)).unwrap();
        let (mut sealer, mut opener) = (near.frame_keys().unwrap(), far.frame_keys().unwrap());
        let mut bytes = [7; 40];
        sealer.seal(&mut bytes).unwrap();
        opener.open(&mut bytes).unwrap();
        assert_eq!(bytes[..24], [7; 24]);
        for other in [(4, [1; 32]), (3, [2; 32])] {
            assert!(shake((None, PURPOSE), (None, other)).is_err(), "{other:?}");
        }
    }

    #[test]
    fn a_stranger_is_refused() {
        assert!(shake((Some([7; 32]), PURPOSE), (None, PURPOSE)).is_err());
        assert!(shake((None, PURPOSE), (Some([7; 32]), PURPOSE)).is_err());
    }

    #[test]
    fn nothing_is_said_before_the_sink_has_accepted() {
        let (near, far) = (Identity::ephemeral().unwrap(), Identity::ephemeral().unwrap());
        let mut source = Handshake::source(&near, far.fingerprint, PURPOSE).unwrap();
        let mut sink = Handshake::sink(&far, near.fingerprint, PURPOSE).unwrap();
        pass(&mut source, &mut sink).unwrap();
        pass(&mut sink, &mut source).unwrap();
        assert!(!source.is_over() && !sink.is_over());
        // A client may send as soon as it has finished; ours does not.
        source.connection.writer().write_all(b"early").unwrap();
        assert!(pass(&mut source, &mut sink).is_err());
    }

    #[test]
    fn aes_needs_both_processors() {
        let names = |has_aes| {
            let suites = provider(has_aes).cipher_suites;
            suites.iter().map(|suite| suite.suite()).collect::<Vec<_>>()
        };
        assert_eq!(names(true)[0], CipherSuite::TLS13_AES_128_GCM_SHA256);
        assert_eq!(names(false), [CipherSuite::TLS13_CHACHA20_POLY1305_SHA256]);
    }
}
