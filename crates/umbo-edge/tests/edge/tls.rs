//! TLS: both protocols by ALPN, client certificates, reload, and files that are not what they
//! should be.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use http_body_util::BodyExt as _;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use umbo_edge::EdgeLimits;
use umbo_tls::{ListenerTlsFiles, TlsError, TlsSource};

use crate::support::{Server, get, http2_client, in_time, read_answer, read_to_end};

/// An authority, and a folder with the server's files.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
    folder: TempDir,
}

/// What a client proves itself with.
type Identity = (CertificateDer<'static>, PrivateKeyDer<'static>);

impl Authority {
    fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        let authority = Self {
            certificate: certificate.der().clone(),
            pem: certificate.pem(),
            issuer: Issuer::new(parameters, key),
            folder: tempfile::tempdir().unwrap(),
        };
        authority.issue_server();
        authority.write("authority.pem", &authority.pem);
        authority
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn issue(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let mut parameters =
            CertificateParams::new(vec!["localhost".to_owned(), name.to_owned()]).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        (parameters.signed_by(&key, &self.issuer).unwrap(), key)
    }

    fn issue_server(&self) {
        let (certificate, key) = self.issue("server");
        self.write("certificate.pem", &certificate.pem());
        self.write("key.pem", &key.serialize_pem());
    }

    fn issue_client(&self, name: &str) -> Identity {
        let (certificate, key) = self.issue(name);
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        (certificate.der().clone(), key)
    }

    fn files(&self, has_clients: bool) -> ListenerTlsFiles {
        ListenerTlsFiles {
            certificate: self.path("certificate.pem"),
            key: self.path("key.pem"),
            client_authority: has_clients.then(|| self.path("authority.pem")),
        }
    }

    fn start(&self, has_clients: bool, limits: EdgeLimits) -> (Server, Arc<TlsSource>) {
        let source = Arc::new(TlsSource::load(self.files(has_clients)).unwrap());
        (Server::start_with(limits, Some(source.clone())), source)
    }

    async fn connect(
        &self,
        server: &Server,
        protocol: &str,
        identity: Option<Identity>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(vec![certificate], key)
                .unwrap(),
        };
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let name = ServerName::try_from("localhost").unwrap();
        let socket = server.connect().await;
        in_time(TlsConnector::from(Arc::new(config)).connect(name, socket)).await
    }
}

#[tokio::test]
async fn both_protocols_are_spoken_by_name() {
    let authority = Authority::new();
    let (server, _) = authority.start(false, EdgeLimits::default());
    let mut socket = authority.connect(&server, "http/1.1", None).await.unwrap();
    socket
        .write_all(b"GET /who HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    let answer = read_answer(&mut socket).await;
    assert!(
        answer.contains("is_tls: true, protocol: Http1, client: None"),
        "{answer}"
    );
    socket.write_all(b"garbage\r\n\r\n").await.unwrap();
    crate::support::problem_of(&read_to_end(&mut socket).await);

    let socket = authority.connect(&server, "h2", None).await.unwrap();
    let (mut client, connection) = http2_client(socket).await;
    let connection = tokio::spawn(connection);
    let answer = in_time(client.send_request(get("/who"))).await.unwrap();
    let text = in_time(answer.into_body().collect())
        .await
        .unwrap()
        .to_bytes();
    assert!(String::from_utf8_lossy(&text).contains("is_tls: true, protocol: Http2"));
    drop(client);
    let _ = in_time(connection).await.unwrap();
}

#[tokio::test]
async fn a_client_is_who_its_certificate_says_or_stays_outside() {
    let authority = Authority::new();
    let (server, _) = authority.start(true, EdgeLimits::default());
    let identity = authority.issue_client("shard-7");
    let mut socket = authority
        .connect(&server, "http/1.1", Some(identity))
        .await
        .unwrap();
    socket
        .write_all(b"GET /who HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    let answer = read_answer(&mut socket).await;
    assert!(
        answer.contains("named shard-7: true, named shard-8: false"),
        "{answer}"
    );

    let stranger = Authority::new().issue_client("shard-7");
    for identity in [None, Some(stranger)] {
        // In TLS 1.3 the client may be done before the server has looked at its certificate.
        if let Ok(mut socket) = authority.connect(&server, "http/1.1", identity).await {
            let _ = socket
                .write_all(b"GET /who HTTP/1.1\r\nhost: a\r\n\r\n")
                .await;
            assert_eq!(read_to_end(&mut socket).await, b"");
        }
    }
    assert_eq!(server.counts.failed_handshakes.load(SeqCst), 2);
}

#[tokio::test]
async fn a_reload_is_for_new_connections_and_a_failed_one_changes_nothing() {
    let authority = Authority::new();
    let (server, source) = authority.start(false, EdgeLimits::default());
    let leaf = |socket: &TlsStream<TcpStream>| {
        socket.get_ref().1.peer_certificates().unwrap()[0]
            .clone()
            .into_owned()
    };
    let mut first = authority.connect(&server, "http/1.1", None).await.unwrap();
    authority.issue_server();
    source.reload().unwrap();
    let second = authority.connect(&server, "http/1.1", None).await.unwrap();
    assert_ne!(leaf(&first), leaf(&second));

    authority.write("key.pem", "nothing");
    assert!(matches!(source.reload(), Err(TlsError::NotPem { .. })));
    let third = authority.connect(&server, "http/1.1", None).await.unwrap();
    assert_eq!(leaf(&second), leaf(&third));
    first
        .write_all(b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    assert!(read_answer(&mut first).await.ends_with("hello"));
}

#[tokio::test]
async fn what_is_no_handshake_ends() {
    let authority = Authority::new();
    let limits = EdgeLimits {
        handshake_timeout: Duration::from_millis(100),
        ..EdgeLimits::default()
    };
    let (server, _) = authority.start(false, limits);
    let _alert = server.exchange(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(server.exchange(b"\x16\x03").await, b"");
    assert_eq!(server.counts.failed_handshakes.load(SeqCst), 2);
}

#[test]
fn files_that_cannot_be_used_are_named_with_what_is_wrong() {
    let authority = Authority::new();
    let other = Authority::new();
    let says = |files: ListenerTlsFiles, path: &Path, text: &str| {
        let error = TlsSource::load(files).unwrap_err().to_string();
        assert!(
            error.contains(text) && error.contains(path.to_str().unwrap()),
            "{error}"
        );
    };
    let absent = authority.path("absent.pem");
    says(
        ListenerTlsFiles {
            key: absent.clone(),
            ..authority.files(false)
        },
        &absent,
        "cannot read",
    );
    authority.write("text.pem", "no PEM at all");
    let text = authority.path("text.pem");
    let files = ListenerTlsFiles {
        certificate: text.clone(),
        ..authority.files(false)
    };
    says(files, &text, "holds no certificate in PEM form");
    let certificate = authority.path("certificate.pem");
    let files = ListenerTlsFiles {
        key: certificate.clone(),
        ..authority.files(false)
    };
    says(files, &certificate, "holds no private key in PEM form");
    let key = other.path("key.pem");
    let files = ListenerTlsFiles {
        key: key.clone(),
        ..authority.files(false)
    };
    says(files, &key, "does not belong to the certificate");
    let files = ListenerTlsFiles {
        client_authority: Some(text.clone()),
        ..authority.files(false)
    };
    says(files, &text, "holds no certificate in PEM form");
}
