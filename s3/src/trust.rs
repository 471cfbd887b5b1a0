//! Whose certificates are trusted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::settings::{Options, Surroundings};
use base::fault::{Class, Fault};

/// Trusts a file that is named, or what the system trusts.
pub(crate) fn config(options: &Options, around: &Surroundings) -> Result<Arc<ClientConfig>, Fault> {
    let named = named(options, around);
    of(named.as_deref(), "name a file with --s3-ca")
}

pub(crate) fn named(options: &Options, around: &Surroundings) -> Option<PathBuf> {
    let around = || around.said(&["AWS_CA_BUNDLE"], "ca_bundle").map(PathBuf::from);
    options.ca.clone().or_else(around)
}

/// Trusts this file, or what the system trusts; where that is nothing, this is what to do.
pub(crate) fn of(named: Option<&Path>, or_do: &str) -> Result<Arc<ClientConfig>, Fault> {
    let mut roots = RootCertStore::empty();
    match named {
        Some(path) => {
            let (added, _) = roots.add_parsable_certificates(certificates(path)?);
            if added == 0 {
                let text = format!("'{}' has no certificate in the form PEM", path.display());
                return Err(Fault::usage(text));
            }
        }
        None => {
            let (added, _) =
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if added == 0 {
                let text = format!(
                    "this host trusts no certificates: install ca-certificates, or {or_do}"
                );
                return Err(Fault::new(Class::Local, text));
            }
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Fault::new(Class::Local, format!("TLS: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let bytes = std::fs::read(path).map_err(|error| Fault::io("read", path, &error))?;
    Ok(CertificateDer::pem_slice_iter(&bytes).filter_map(Result::ok).collect())
}
