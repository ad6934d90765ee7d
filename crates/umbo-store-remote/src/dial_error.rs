//! Why a connection to a node could not be made.

use std::time::Duration;

use umbo_protocol::{DecodeError, Refusal};
use umbo_tls::PeerTlsError;

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("cannot connect: {}", in_words(.0))]
    Connect(std::io::Error),
    #[error("no {what} within {} ms", within.as_millis())]
    Timeout {
        what: &'static str,
        within: Duration,
    },
    #[error("TLS: {0}")]
    Tls(#[from] PeerTlsError),
    #[error("the peer is not a shard node: {0}")]
    Garbage(#[from] DecodeError),
    #[error("the connection was lost before the welcome: {}", in_words(.0))]
    Lost(std::io::Error),
    #[error("the node sent no welcome")]
    NoWelcome,
    #[error("the node chose version {0}, which was not offered")]
    UnknownVersion(u32),
    #[error("the node identifies itself as {0}")]
    Other(String),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl DialError {
    /// Returns whether something answers at the address of the node that cannot be used as the node; else nothing
    /// does, as while the node is away.
    pub(crate) const fn is_unusable(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Timeout { .. } | Self::Lost(_) | Self::NoWelcome => false,
            Self::Tls(_)
            | Self::Garbage(_)
            | Self::UnknownVersion(_)
            | Self::Other(_)
            | Self::Refused(_) => true,
        }
    }
}

/// Returns an error of a connection in words, without the number that the system has for it.
pub(crate) fn in_words(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(_) => error.kind().to_string(),
        None => error.to_string(),
    }
}
