//! The TLS settings of a client: rustls on ring, passed in, never installed for the whole process. Also describes
//! problems of certificates in words.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use rustls_platform_verifier::Verifier;

use crate::error::Error;

/// Which certificates of a server are accepted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Trust<'a> {
    /// Certificates signed by an authority that the system trusts.
    System,
    /// Certificates signed by an authority of a PEM file, and certificates in the file itself.
    File(&'a Path),
    /// All.
    Any,
}

/// Makes the settings for a server's address. The trusted authorities of the system are read only if TLS is used.
pub(crate) fn config(is_https: bool, trust: Trust<'_>) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(tls_error)?;
    let own = |accepted| -> Arc<dyn ServerCertVerifier> {
        let provider = Arc::clone(&provider);
        Arc::new(OwnVerifier { accepted, provider })
    };
    let verifier: Option<Arc<dyn ServerCertVerifier>> = match trust {
        Trust::File(path) => Some(own(Accepted::of_file(path, Arc::clone(&provider))?)),
        Trust::Any => Some(own(Accepted::Any)),
        Trust::System if is_https => Some(Arc::new(Verifier::new(provider).map_err(tls_error)?)),
        Trust::System => None,
    };
    let mut config = match verifier {
        Some(verifier) => builder
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth(),
        None => builder
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn tls_error(error: impl std::fmt::Display) -> Error {
    Error::Tls(error.to_string())
}

/// Accepts other certificates than the authorities of the system have signed. The handshake must be signed with
/// the key of the certificate in any case.
#[derive(Debug)]
struct OwnVerifier {
    accepted: Accepted,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug)]
enum Accepted {
    /// Certificates that an authority of a file has signed, and certificates in the file itself. An ordinary
    /// self-signed certificate says that it is an authority, so `webpki` does not accept it as the certificate of
    /// a server.
    OfFile {
        of_authorities: Arc<WebPkiServerVerifier>,
        certificates: Vec<CertificateDer<'static>>,
    },
    /// Every certificate.
    Any,
}

impl Accepted {
    fn of_file(path: &Path, provider: Arc<CryptoProvider>) -> Result<Self, Error> {
        let bad = |reason: String| Error::Tls(format!("CA file {}: {reason}", path.display()));
        let read = CertificateDer::pem_file_iter(path).map_err(|error| bad(error.to_string()))?;
        let certificates: Result<Vec<_>, _> = read.collect();
        let certificates = certificates.map_err(|error| bad(error.to_string()))?;
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            roots
                .add(certificate.clone())
                .map_err(|error| bad(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(bad("it holds no certificate".to_owned()));
        }
        let of_authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| bad(error.to_string()))?;
        Ok(Self::OfFile {
            of_authorities,
            certificates,
        })
    }
}

impl ServerCertVerifier for OwnVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Accepted::OfFile {
            of_authorities,
            certificates,
        } = &self.accepted
        else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified = of_authorities.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            // `webpki` returns this error only after the dates of the certificate were found good.
            Err(error) if is_of_authority(&error) && certificates.contains(end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Rustls wraps this error of `webpki` without naming it.
fn is_of_authority(error: &rustls::Error) -> bool {
    format!("{error:?}").contains("CaUsedAsEndEntity")
}

/// Returns the TLS error of a connection to an address, if there is one.
pub(crate) fn failure(url: &str, error: &(dyn std::error::Error + 'static)) -> Option<Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<rustls::Error>() {
            return Some(match found {
                rustls::Error::InvalidMessage(_) => Error::BadUrl {
                    url: url.to_owned(),
                    reason: "the server does not speak TLS; for plain HTTP, write http://"
                        .to_owned(),
                },
                found => Error::Tls(describe(found)),
            });
        }
        // An I/O error does not return the wrapped error as its source.
        let wrapped = error.downcast_ref::<std::io::Error>();
        if let Some(wrapped) = wrapped.and_then(std::io::Error::get_ref) {
            next = Some(wrapped);
            continue;
        }
        next = error.source();
    }
    None
}

fn describe(error: &rustls::Error) -> String {
    let certificate = match error {
        rustls::Error::InvalidCertificate(certificate) => certificate,
        other => return other.to_string(),
    };
    let reason = match certificate {
        _ if is_of_authority(error) => {
            "it is a self-signed authority, and not among the trusted ones"
        }
        CertificateError::UnknownIssuer => "no trusted authority has signed it",
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            "it has no host in a subjectAltName, and a common name is not enough"
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            // Names come as `DnsName("…")`.
            let name = |text: &String| text.split('"').nth(1).unwrap_or(text).to_owned();
            let names: Vec<String> = presented.iter().map(name).collect();
            let (names, host) = (names.join(", "), expected.to_str());
            return format!("the server's certificate is for {names}, not for {host}");
        }
        other => return format!("the server's certificate cannot be accepted: {other}"),
    };
    format!("the server's certificate cannot be accepted: {reason}")
}
