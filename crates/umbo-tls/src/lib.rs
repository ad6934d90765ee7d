//! TLS of a listener: certificate and key from PEM files, client authority for mTLS, reload. TLS towards a peer.
//!
//! Shared by the ports of dispatchers and of shard nodes. Opens no socket. A reload that fails leaves the old
//! files in effect. A connection keeps the files that it began with.

mod certificate;
mod inspect;
mod peer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use rustls::client::verify_server_name;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::TlsAcceptor;

pub use self::certificate::CertificateFacts;
pub use self::inspect::{describe, verify};
pub use self::peer::{PeerTlsError, PeerTlsFiles};

/// Name of HTTP/2 in ALPN.
pub const ALPN_HTTP2: &[u8] = b"h2";
/// Name of HTTP/1.1 in ALPN.
pub const ALPN_HTTP1: &[u8] = b"http/1.1";

/// Files of a TLS listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerTlsFiles {
    /// Certificate chain, PEM, the server's own certificate first.
    pub certificate: PathBuf,
    /// Private key of that certificate, PEM (PKCS#8, PKCS#1 or SEC1).
    pub key: PathBuf,
    /// Certificate authorities of clients, PEM. If set, clients without a certificate are refused.
    pub client_authority: Option<PathBuf>,
}

/// Why TLS files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file contains no PEM item of the expected kind.
    #[error("{} holds no {wanted} in PEM form{}", path.display(), reason(detail.as_deref()))]
    NotPem {
        /// The file.
        path: PathBuf,
        /// The expected kind.
        wanted: &'static str,
        /// The parser's error, if any.
        detail: Option<String>,
    },
    /// The key does not belong to the certificate.
    #[error("the key in {} does not belong to the certificate in {}", key.display(), certificate.display())]
    KeyMismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// Certificate, key or authority cannot be used for TLS.
    #[error("{} cannot be used: {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

fn reason(detail: Option<&str>) -> String {
    detail.map(|text| format!(" ({text})")).unwrap_or_default()
}

/// The TLS settings in effect, and their files.
#[derive(Debug)]
pub struct TlsSource {
    files: ListenerTlsFiles,
    protocols: &'static [&'static [u8]],
    loaded: ArcSwap<Loaded>,
}

/// What the files held when they were loaded last.
#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    /// When the first certificate of the chain ends, in seconds since 1970; `None` if no certificate can be parsed.
    ends: Option<u64>,
}

impl TlsSource {
    /// Loads the files, for a port of any HTTP version. An expired or not yet valid certificate is logged as
    /// a warning and used.
    pub fn load(files: ListenerTlsFiles) -> Result<Self, TlsError> {
        Self::load_for(files, &[ALPN_HTTP2, ALPN_HTTP1])
    }

    /// Loads the files, for a port with only these protocols, in order of preference.
    pub fn load_for(
        files: ListenerTlsFiles,
        protocols: &'static [&'static [u8]],
    ) -> Result<Self, TlsError> {
        let loaded = ArcSwap::from_pointee(load(&files, protocols)?);
        Ok(Self {
            files,
            protocols,
            loaded,
        })
    }

    /// Loads the files again, for later connections. On an error nothing changes.
    pub fn reload(&self) -> Result<(), TlsError> {
        let loaded = load(&self.files, self.protocols)?;
        self.loaded.store(Arc::new(loaded));
        Ok(())
    }

    /// Returns the file of the certificates, and when the first of the certificates in effect ends, in seconds since 1970.
    pub fn ends(&self) -> Option<(&Path, u64)> {
        Some((&self.files.certificate, self.loaded.load().ends?))
    }

    /// Returns the acceptor of TLS handshakes in effect.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.loaded.load().config))
    }
}

/// The certificate of a client, verified against the client authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate(CertificateDer<'static>);

impl ClientCertificate {
    /// Returns the certificate that the client of a session sent.
    pub fn of(session: &ServerConnection) -> Option<Self> {
        session.peer_certificates()?.first().cloned().map(Self)
    }

    /// Returns whether the certificate carries a host name, as the certificate of a server does.
    pub fn has_name(&self, name: &str) -> bool {
        let parsed = ParsedCertificate::try_from(&self.0);
        let name = ServerName::try_from(name);
        parsed.is_ok_and(|own| name.is_ok_and(|name| verify_server_name(&own, &name).is_ok()))
    }
}

fn load(files: &ListenerTlsFiles, protocols: &[&[u8]]) -> Result<Loaded, TlsError> {
    let chain = certificates(&files.certificate)?;
    let facts = facts_of(&chain);
    warn_if_out_of_time(&files.certificate, &facts);
    let ends = facts.iter().map(|one| one.not_after).min();
    let key = key_of(&files.key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&files.certificate, &error))?;
    let builder = match &files.client_authority {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots(path)?, provider)
                .build()
                .map_err(|error| unusable(path, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| refused_pair(error, &files.certificate, &files.key))?;
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(Loaded {
        config: Arc::new(config),
        ends,
    })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Unreadable {
        path: path.to_owned(),
        source,
    })
}

fn key_of(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?)
        .map_err(|error| not_pem(path, "private key", &error))
}

/// Returns why rustls refuses a certificate with its key.
fn refused_pair(error: rustls::Error, certificate: &Path, key: &Path) -> TlsError {
    match error {
        rustls::Error::InconsistentKeys(_) => TlsError::KeyMismatch {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        },
        error => unusable(certificate, &error),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = CertificateDer::pem_slice_iter(&read(path)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| not_pem(path, "certificate", &error))?;
    if chain.is_empty() {
        return Err(TlsError::NotPem {
            path: path.to_owned(),
            wanted: "certificate",
            detail: None,
        });
    }
    Ok(chain)
}

/// Reads the authorities of a file.
fn roots(path: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        roots
            .add(authority)
            .map_err(|error| unusable(path, &error))?;
    }
    Ok(Arc::new(roots))
}

fn unusable(path: &Path, reason: &dyn std::fmt::Display) -> TlsError {
    TlsError::Unusable {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

fn not_pem(path: &Path, wanted: &'static str, error: &rustls_pki_types::pem::Error) -> TlsError {
    let is_absent = matches!(error, rustls_pki_types::pem::Error::NoItemsFound);
    TlsError::NotPem {
        path: path.to_owned(),
        wanted,
        detail: (!is_absent).then(|| error.to_string()),
    }
}

fn facts_of(chain: &[CertificateDer<'_>]) -> Vec<CertificateFacts> {
    let facts = chain.iter().map(|der| certificate::read(der.as_ref()));
    facts.flatten().collect()
}

fn warn_if_out_of_time(path: &Path, facts: &[CertificateFacts]) {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = since_epoch.unwrap_or(Duration::ZERO).as_secs();
    for facts in facts {
        let (path, subject) = (path.display(), &facts.subject);
        if facts.not_after < now {
            tracing::warn!(%path, subject, "the certificate has expired; clients will refuse it");
        } else if facts.not_before > now {
            tracing::warn!(%path, subject, "the certificate is not valid yet");
        }
    }
}
