//! TLS towards nodes: trust on both sides, and renewed certificates.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use umbo_routing::{ClusterMap, ClusterNode};
use umbo_store::StoreReport;
use umbo_store_remote::{RemoteSettings, RemoteStore};
use umbo_tls::PeerTlsFiles;

use crate::cluster::Cluster;
use crate::rows::{key, read, write};
use crate::time::{TokioClock, until};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    CertifiedIssuer::self_signed(params, key).expect("an authority")
}

/// Writes `name.crt` and `name.key` into a folder.
fn issue(authority: &Authority, folder: &Path, name: &str) {
    issue_until(authority, folder, name, 2_100);
}

/// As above, valid until the beginning of a year.
fn issue_until(authority: &Authority, folder: &Path, name: &str, year: i32) {
    let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    let mut params = CertificateParams::new(names).expect("names");
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, authority).expect("a certificate");
    let path = |kind| folder.join(format!("{name}.{kind}"));
    std::fs::write(path("crt"), certificate.pem()).expect("written");
    std::fs::write(path("key"), key.serialize_pem()).expect("written");
}

/// A TLS proxy in front of a node, for clients of one authority only.
async fn front(folder: &Path, clients: &Authority, node: SocketAddr) -> SocketAddr {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(clients.der().clone()).expect("an authority");
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let chain = CertificateDer::pem_file_iter(folder.join("node.crt")).expect("a file");
    let key = PrivateKeyDer::from_pem_file(folder.join("node.key")).expect("a key");
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("a verifier"))
        .with_single_cert(chain.map(|it| it.expect("a certificate")).collect(), key)
        .expect("a pair");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        loop {
            let (outer, _) = listener.accept().await.expect("a connection");
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut outer = acceptor.accept(outer).await.ok()?;
                let mut inner = TcpStream::connect(node).await.ok()?;
                tokio::io::copy_bidirectional(&mut outer, &mut inner)
                    .await
                    .ok()
            });
        }
    });
    address
}

/// Settings under which no connection is given up for the slowness of a machine, and a refused one is made again soon.
fn settings() -> RemoteSettings {
    RemoteSettings {
        connect_timeout: Duration::from_mins(1),
        grace: Duration::ZERO,
        probe_timeout: Duration::from_mins(1),
        backoff_max: Duration::from_millis(50),
        ..RemoteSettings::default()
    }
}

struct Secured {
    folder: TempDir,
    authority: Authority,
    cluster: Cluster,
    map: ClusterMap,
}

impl Secured {
    /// Starts a node behind TLS at the address in its map.
    async fn start() -> Self {
        Self::start_until(2_100).await
    }

    /// As above, with a node certificate that is valid until the beginning of a year.
    async fn start_until(year: i32) -> Self {
        let (folder, authority) = (TempDir::new().expect("a folder"), authority());
        std::fs::write(folder.path().join("ca.crt"), authority.pem()).expect("written");
        issue_until(&authority, folder.path(), "node", year);
        issue(&authority, folder.path(), "dispatcher");
        let cluster = Cluster::on_loopback(1, Arc::new(TokioClock::new()));
        let inner = cluster.members[0].address.expect("on loopback");
        let address = front(folder.path(), &authority, inner).await;
        let node = ClusterNode::new("node-0", &address.to_string()).expect("a node");
        let map = ClusterMap::create("test", vec![node], 6).expect("a map");
        Self {
            folder,
            authority,
            cluster,
            map,
        }
    }

    fn dial(&self, tls: Option<PeerTlsFiles>) -> Arc<RemoteStore> {
        let settings = RemoteSettings { tls, ..settings() };
        RemoteStore::connect(settings, self.map.clone(), Arc::new(TokioClock::new()))
    }

    fn files(&self) -> PeerTlsFiles {
        let path = |name| self.folder.path().join(name);
        PeerTlsFiles {
            authority: path("ca.crt"),
            identity: Some((path("dispatcher.crt"), path("dispatcher.key"))),
        }
    }
}

/// With certificates of each other's authorities, rows are written and read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_go_over_mutual_tls() {
    let secured = Secured::start().await;
    let store = secured.dial(Some(secured.files()));
    until(|| store.nodes()[0].failure.is_none()).await;
    write(&*store, &key("a"), &vec![7; 1 << 20])
        .await
        .expect("written");
    let row = read(&*store, &key("a")).await.expect("read");
    assert_eq!(row.expect("present").value.bytes.len(), 1 << 20);
}

/// Without TLS, without a certificate, with one of another authority, or trusting another authority, there is
/// no connection, and the reason is reported.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_are_kept_out_on_both_sides() {
    let secured = Secured::start().await;
    let (other, folder) = (authority(), TempDir::new().expect("a folder"));
    issue(&other, folder.path(), "stranger");
    let path = |name| folder.path().join(name);
    std::fs::write(path("other.crt"), other.pem()).expect("written");
    std::fs::write(path("empty.crt"), "").expect("written");
    let files = || secured.files();
    let stranger = (path("stranger.crt"), path("stranger.key"));
    let trusting = |authority| PeerTlsFiles {
        authority: path(authority),
        ..files()
    };
    let showing = |identity| PeerTlsFiles {
        identity,
        ..files()
    };
    for (tls, words) in [
        (None, ""),
        (Some(showing(None)), ""),
        (Some(showing(Some(stranger))), ""),
        (Some(trusting("other.crt")), "TLS: invalid peer certificate"),
        (
            Some(trusting("empty.crt")),
            "empty.crt holds no certificate",
        ),
        (Some(trusting("none.crt")), "none.crt: "),
    ] {
        let store = secured.dial(tls);
        until(|| store.stats().connections_refused > 0).await;
        let failure = store.nodes()[0].failure.clone().expect("no connection");
        assert!(failure.contains(words), "{failure}");
        assert_eq!(store.stats().connections, 0);
        read(&*store, &key("a")).await.expect_err("no connection");
    }
}

/// An expired certificate is refused on either side.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_certificates_are_refused() {
    let secured = Secured::start_until(2_001).await;
    let store = secured.dial(Some(secured.files()));
    until(|| store.stats().connections_refused > 0).await;
    let failure = store.nodes()[0].failure.clone().expect("no connection");
    assert!(failure.to_lowercase().contains("expired"), "{failure}");
    let secured = Secured::start().await;
    issue_until(
        &secured.authority,
        secured.folder.path(),
        "dispatcher",
        2_001,
    );
    let store = secured.dial(Some(secured.files()));
    until(|| store.stats().connections_refused > 0).await;
    assert_eq!(store.stats().connections, 0);
}

/// Files are read for every connection: a replaced one is used from the next on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_certificate_is_used() {
    let secured = Secured::start().await;
    issue(&authority(), secured.folder.path(), "dispatcher");
    let store = secured.dial(Some(secured.files()));
    until(|| store.stats().connections_refused > 0).await;
    issue(&secured.authority, secured.folder.path(), "dispatcher");
    until(|| store.nodes()[0].failure.is_none()).await;
    write(&*store, &key("a"), b"v").await.expect("written");
    drop(secured.cluster);
}
