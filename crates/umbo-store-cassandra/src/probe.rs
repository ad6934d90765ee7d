//! The first question to a node, before the driver connects: whether both sides speak TLS, or both do not.
//!
//! The driver tries for long, and its errors do not tell a wrong authority from a node that is down. Each contact point
//! is asked once; the first answer is enough.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use umbo_tls::{PeerTlsError, PeerTlsFiles};

/// How long a contact point may take for its answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// A frame that any node answers before a session begins: version 4 of the protocol, opcode OPTIONS.
pub(crate) const OPTIONS: [u8; 9] = [4, 0, 0, 0, 5, 0, 0, 0, 0];
/// First byte of the answer.
const ANSWERED: u8 = 0x84;

/// Why a node cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ContactError {
    /// There is no TLS between the node and this process.
    #[error("{error}; {}", advice(error))]
    Tls {
        /// The reason.
        #[from]
        error: PeerTlsError,
    },
    /// The node ends a connection without TLS.
    #[error(
        "the node ends a connection without TLS; if the cluster demands TLS, name the authorities of its certificates in \
         cassandra.ca"
    )]
    EndsPlain,
    /// The node does not answer in time.
    #[error("the node does not answer within {} s", ANSWER_TIMEOUT.as_secs())]
    Silent,
    /// The node cannot be reached.
    #[error("{0}")]
    Unreachable(#[from] io::Error),
}

const fn advice(error: &PeerTlsError) -> &'static str {
    match error {
        PeerTlsError::Files(_) | PeerTlsError::BadName(_) => {
            "see cassandra.ca, cassandra.certificate and cassandra.key"
        }
        PeerTlsError::NotTls => {
            "turn on client_encryption_options in the cluster, or leave cassandra.ca empty"
        }
        PeerTlsError::BadCertificate(_) => {
            "cassandra.ca must hold the authority of the node's certificate, and this certificate must carry the IP \
             address of the node"
        }
        PeerTlsError::Refused(_) => {
            "if the cluster demands certificates of its clients, name a trusted one in cassandra.certificate and \
             cassandra.key"
        }
        // A reset may overtake the alert that tells why.
        PeerTlsError::Connection(_) => {
            "see whether the node serves CQL over TLS on this port; if the cluster demands certificates of its clients, \
             name a trusted one in cassandra.certificate and cassandra.key"
        }
    }
}

/// Asks the contact points until one answers, over TLS or without. Returns the last one with its error if all fail.
pub(crate) async fn probe(
    contact_points: &[String],
    tls: Option<&PeerTlsFiles>,
) -> Result<(), (String, ContactError)> {
    let mut failed = None;
    for node in contact_points {
        let asked = timeout(ANSWER_TIMEOUT, ask(node, tls)).await;
        match asked.unwrap_or(Err(ContactError::Silent)) {
            Ok(()) => return Ok(()),
            Err(error) => failed = Some((node.clone(), error)),
        }
    }
    failed.map_or(Ok(()), Err)
}

async fn ask(node: &str, tls: Option<&PeerTlsFiles>) -> Result<(), ContactError> {
    match tls {
        None => match first_byte(TcpStream::connect(node).await?).await {
            Ok(ANSWERED) => Ok(()),
            _ => Err(ContactError::EndsPlain),
        },
        Some(tls) => match first_byte(dial(node, tls).await?).await {
            Ok(ANSWERED) => Ok(()),
            Ok(_) => Err(PeerTlsError::NotTls.into()),
            Err(error) => Err(PeerTlsError::from(error).into()),
        },
    }
}

async fn first_byte(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<u8> {
    stream.write_all(&OPTIONS).await?;
    stream.flush().await?;
    stream.read_u8().await
}

/// Connects to a node over TLS.
pub(crate) async fn dial(
    node: &str,
    tls: &PeerTlsFiles,
) -> Result<TlsStream<TcpStream>, ContactError> {
    let stream = TcpStream::connect(node).await?;
    stream.set_nodelay(true)?;
    let address = stream.peer_addr()?.ip().to_string();
    Ok(tls.connect(stream, &address, None).await?)
}
