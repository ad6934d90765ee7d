//! TLS towards other processes: authority and identity from PEM files, read for every connection, so that a
//! renewed certificate is used without a restart.

use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::connector::Io;
use crate::dial_error::DialError;
use crate::settings::TlsFiles;

/// Speaks TLS on a connection to a process whose certificate must carry a name. Offers `protocol`, or no protocol
/// by name to shard nodes.
pub(crate) async fn connect(
    files: TlsFiles,
    name: &str,
    protocol: Option<&[u8]>,
    stream: Box<dyn Io>,
) -> Result<TlsStream<Box<dyn Io>>, DialError> {
    let bad_name = |_| DialError::Tls(format!("{name} is not a name that a certificate can have"));
    let name = ServerName::try_from(name.to_owned()).map_err(bad_name)?;
    // A few small files; the task has nothing else to do.
    let mut config = config(&files)?;
    config.alpn_protocols = protocol.into_iter().map(<[u8]>::to_vec).collect();
    let connector = TlsConnector::from(Arc::new(config));
    let spoken = connector.connect(name, stream).await;
    spoken.map_err(|error| DialError::Tls(error.to_string()))
}

fn config(files: &TlsFiles) -> Result<ClientConfig, DialError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let refused = |error: rustls::Error| DialError::Tls(error.to_string());
    let mut roots = RootCertStore::empty();
    for authority in certificates(&files.authority)? {
        roots.add(authority).map_err(refused)?;
    }
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .with_root_certificates(roots);
    let config = match &files.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let key = PrivateKeyDer::from_pem_file(&identity.key);
            let key = key.map_err(|error| unusable(&identity.key, &error))?;
            builder
                .with_client_auth_cert(certificates(&identity.certificate)?, key)
                .map_err(refused)?
        }
    };
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, DialError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| unusable(path, &error))?;
    let found: Result<Vec<_>, _> = read.collect();
    let found = found.map_err(|error| unusable(path, &error))?;
    if found.is_empty() {
        return Err(unusable(path, &"it holds no certificate"));
    }
    Ok(found)
}

fn unusable(path: &Path, reason: &dyn std::fmt::Display) -> DialError {
    DialError::Tls(format!("{} cannot be used: {reason}", path.display()))
}
