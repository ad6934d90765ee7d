//! TLS towards a peer: its authorities, the certificate that this process shows, and the reasons of a refusal.
//!
//! The caller opens the connection. The files are read for every handshake, so that a renewed certificate is used without
//! a restart.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::{TlsError, certificates, key_of, refused_pair, roots, unusable};

/// Files of TLS towards peers, PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerTlsFiles {
    /// Authorities that must have signed the certificates of peers.
    pub authority: PathBuf,
    /// Certificate chain and private key of this process, or `None` if the peers require no certificate.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Why a connection to a peer has no TLS.
#[derive(Debug, thiserror::Error)]
pub enum PeerTlsError {
    /// A file of this process cannot be used.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// No certificate can have the name.
    #[error("{0} is not a name that a certificate can have")]
    BadName(String),
    /// The peer answered, but not in TLS.
    #[error("its answer is not TLS")]
    NotTls,
    /// The certificate of the peer was refused.
    #[error("{0}")]
    BadCertificate(rustls::Error),
    /// The peer refused this process, as a peer does that requires another certificate.
    #[error("{0}")]
    Refused(rustls::Error),
    /// The connection failed.
    #[error("{0}")]
    Connection(#[source] io::Error),
}

impl From<io::Error> for PeerTlsError {
    fn from(error: io::Error) -> Self {
        let reason = error.get_ref().and_then(|inner| inner.downcast_ref());
        match reason {
            Some(rustls::Error::InvalidMessage(_)) => Self::NotTls,
            Some(reason @ rustls::Error::InvalidCertificate(_)) => {
                Self::BadCertificate(reason.clone())
            }
            Some(reason @ rustls::Error::AlertReceived(_)) => Self::Refused(reason.clone()),
            _ => Self::Connection(error),
        }
    }
}

impl PeerTlsFiles {
    /// Reads the files, and does the handshake on a connection. The certificate of the peer must carry this host name or
    /// address; `protocol` is offered by ALPN. A peer of TLS 1.3 may refuse the certificate of this process later, when the
    /// first bytes are read.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        name: &str,
        protocol: Option<&[u8]>,
    ) -> Result<TlsStream<S>, PeerTlsError> {
        // A few small files; the task has nothing else to do.
        let mut config = self.config()?;
        config.alpn_protocols = protocol.into_iter().map(<[u8]>::to_vec).collect();
        let connector = TlsConnector::from(Arc::new(config));
        let bad_name = |_| PeerTlsError::BadName(name.to_owned());
        let name = ServerName::try_from(name.to_owned()).map_err(bad_name)?;
        Ok(connector.connect(name, stream).await?)
    }

    fn config(&self) -> Result<ClientConfig, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&self.authority, &error))?
            .with_root_certificates(roots(&self.authority)?);
        let Some((certificate, key)) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        builder
            .with_client_auth_cert(certificates(certificate)?, key_of(key)?)
            .map_err(|error| refused_pair(error, certificate, key))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;
    use crate::{ListenerTlsFiles, TlsSource};

    const HERE: &str = "127.0.0.1";

    /// Writes an authority, and a certificate for an address that it has signed.
    fn sign(folder: &Path, name: &str, address: &str) -> (PathBuf, PathBuf, PathBuf) {
        let path = |end: &str| folder.join(format!("{name}.{end}"));
        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = authority.self_signed(&authority_key).unwrap();
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_params(&authority, &authority_key);
        let own = CertificateParams::new(vec![address.to_owned()]).unwrap();
        std::fs::write(path("ca"), root.pem()).unwrap();
        std::fs::write(path("pem"), own.signed_by(&key, &issuer).unwrap().pem()).unwrap();
        std::fs::write(path("key"), key.serialize_pem()).unwrap();
        (path("ca"), path("pem"), path("key"))
    }

    /// Sends a byte to a peer with these files, and returns the answer.
    async fn answer(peer: ListenerTlsFiles, own: &PeerTlsFiles) -> Result<u8, PeerTlsError> {
        let (near, far) = duplex(1 << 16);
        let acceptor = TlsSource::load(peer).unwrap().acceptor();
        let peer = tokio::spawn(async move {
            let mut stream = acceptor.accept(far).await?;
            let byte = stream.read_u8().await?;
            stream.write_u8(byte + 1).await?;
            stream.flush().await
        });
        let asked = async {
            let mut stream = own.connect(near, HERE, None).await?;
            stream.write_u8(1).await?;
            stream.flush().await?;
            Ok(stream.read_u8().await?)
        };
        let answered = asked.await;
        drop(peer.await.unwrap());
        answered
    }

    #[tokio::test]
    async fn a_refusal_says_who_refuses_what() {
        let folder = tempfile::tempdir().unwrap();
        let (ca, certificate, key) = sign(folder.path(), "node", "127.0.0.1");
        let (other_ca, other, other_key) = sign(folder.path(), "other", "10.0.0.1");
        let peer = |client_authority: Option<&PathBuf>| ListenerTlsFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            client_authority: client_authority.cloned(),
        };
        let elsewhere = ListenerTlsFiles {
            certificate: other.clone(),
            key: other_key.clone(),
            client_authority: None,
        };
        let own = |authority: &PathBuf, identity: Option<(&PathBuf, &PathBuf)>| PeerTlsFiles {
            authority: authority.clone(),
            identity: identity.map(|(certificate, key)| (certificate.clone(), key.clone())),
        };
        let alone = own(&ca, None);
        let known = own(&ca, Some((&other, &other_key)));
        assert_eq!(answer(peer(None), &alone).await.unwrap(), 2);
        assert_eq!(answer(peer(None), &known).await.unwrap(), 2);
        assert_eq!(answer(peer(Some(&other_ca)), &known).await.unwrap(), 2);
        for (peer, own) in [
            (peer(None), own(&other_ca, None)),
            (elsewhere, own(&other_ca, None)),
        ] {
            let refused = answer(peer, &own).await.unwrap_err();
            assert!(
                matches!(refused, PeerTlsError::BadCertificate(_)),
                "{refused}"
            );
        }
        for own in [alone, own(&ca, Some((&certificate, &key)))] {
            let refused = answer(peer(Some(&other_ca)), &own).await.unwrap_err();
            assert!(matches!(refused, PeerTlsError::Refused(_)), "{refused}");
        }
        let mixed = own(&ca, Some((&certificate, &other_key)));
        let refused = answer(peer(None), &mixed).await.unwrap_err();
        let is_mixed = matches!(refused, PeerTlsError::Files(TlsError::KeyMismatch { .. }));
        assert!(is_mixed, "{refused}");
    }

    #[tokio::test]
    async fn a_peer_without_tls_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let (authority, ..) = sign(folder.path(), "node", "127.0.0.1");
        let own = PeerTlsFiles {
            authority,
            identity: None,
        };
        let (near, mut far) = duplex(1 << 16);
        let written = far.write_all(b"\x84\0\0\0\0\0\0\0\0");
        written.await.unwrap();
        let refused = own.connect(near, HERE, None).await.unwrap_err();
        assert!(matches!(refused, PeerTlsError::NotTls), "{refused}");
    }
}
