//! The TLS settings of a client: rustls on ring, passed in, never installed for the whole process.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use rustls_platform_verifier::Verifier;

use crate::error::Error;

/// Makes the settings for a server's address. With a CA file only that CA is trusted, otherwise
/// those the system trusts. The system's are read only where TLS is spoken at all.
pub(crate) fn config(is_https: bool, ca_file: Option<&Path>) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Tls(error.to_string()))?;
    let mut config = match ca_file {
        Some(path) => builder
            .with_root_certificates(roots(path)?)
            .with_no_client_auth(),
        None if is_https => {
            let verifier =
                Verifier::new(provider).map_err(|error| Error::Tls(error.to_string()))?;
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
                .with_no_client_auth()
        }
        None => builder
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn roots(path: &Path) -> Result<RootCertStore, Error> {
    let bad = |reason: String| Error::Tls(format!("CA file {}: {reason}", path.display()));
    let mut roots = RootCertStore::empty();
    for certificate in
        CertificateDer::pem_file_iter(path).map_err(|error| bad(error.to_string()))?
    {
        let certificate = certificate.map_err(|error| bad(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| bad(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(bad("it holds no certificate".to_owned()));
    }
    Ok(roots)
}
