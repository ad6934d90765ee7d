//! Checks of certificate files for operators, before a port uses the files: subject, validity, and whether a peer would
//! accept the chain.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls_pki_types::{ServerName, UnixTime};

use crate::certificate::CertificateFacts;
use crate::{TlsError, certificates, facts_of, roots, unusable};

/// Returns the facts of the certificates of a file, in their order. Leaves out certificates that cannot be parsed.
pub fn describe(path: &Path) -> Result<Vec<CertificateFacts>, TlsError> {
    Ok(facts_of(&certificates(path)?))
}

/// Verifies the signatures, the validity and the names of a certificate chain, as a peer does that trusts an authority
/// and expects a host name or address.
pub fn verify(chain: &Path, authority: &Path, host: &str) -> Result<(), TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots(authority)?, provider)
        .build()
        .map_err(|error| unusable(authority, &error))?;
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| unusable(chain, &format_args!("'{host}': {error}")))?;
    let certificates = certificates(chain)?;
    let (leaf, intermediates) = certificates.split_first().ok_or(TlsError::NotPem {
        path: chain.to_owned(),
        wanted: "certificate",
        detail: None,
    })?;
    verifier
        .verify_server_cert(leaf, intermediates, &name, &[], UnixTime::now())
        .map_err(|error| unusable(chain, &error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Writes an authority and a certificate for `localhost` that it has signed.
    fn signed(folder: &Path, names: &[&str], years: (i32, i32)) -> (PathBuf, PathBuf) {
        let authority_key = rcgen::KeyPair::generate().unwrap();
        let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let root = authority.self_signed(&authority_key).unwrap();
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut parameters = rcgen::CertificateParams::new(names).unwrap();
        parameters.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let issuer = rcgen::Issuer::from_params(&authority, &authority_key);
        let leaf = parameters.signed_by(&key, &issuer).unwrap();
        let paths = (folder.join("leaf.pem"), folder.join("ca.pem"));
        std::fs::write(&paths.0, leaf.pem()).unwrap();
        std::fs::write(&paths.1, root.pem()).unwrap();
        paths
    }

    #[test]
    fn a_peer_takes_what_is_signed_in_time_and_of_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let (leaf, ca) = signed(folder.path(), &["localhost", "10.0.0.1"], (2000, 2090));
        assert_eq!(describe(&leaf).unwrap().len(), 1);
        for host in ["localhost", "10.0.0.1"] {
            verify(&leaf, &ca, host).unwrap();
        }
        for host in ["elsewhere", "10.0.0.2", "", "no name"] {
            assert!(verify(&leaf, &ca, host).is_err(), "{host}");
        }
        let other = tempfile::tempdir().unwrap();
        let (expired, other_ca) = signed(other.path(), &["localhost"], (2000, 2001));
        let late = verify(&expired, &other_ca, "localhost").unwrap_err();
        assert!(late.to_string().contains("xpired"), "{late}");
        let stranger = verify(&leaf, &other_ca, "localhost").unwrap_err();
        assert!(stranger.to_string().contains("leaf.pem"), "{stranger}");
        assert!(describe(Path::new("/nowhere")).is_err());
    }
}
