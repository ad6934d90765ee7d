//! What an operator may choose about the way to the shard nodes.

use std::path::PathBuf;
use std::time::Duration;

/// Settings of a [`crate::RemoteStore`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteSettings {
    /// Files for TLS; none for plain connections.
    pub tls: Option<TlsFiles>,
    /// Longest wait for a connection, and again for the word of the node on it.
    pub connect_timeout: Duration,
    /// How long calls wait for a node that was there and has gone, as one that restarts; zero for
    /// not at all.
    pub grace: Duration,
    /// How often a node is asked for its state.
    pub probe_interval: Duration,
    /// A node that owes an answer and has been silent for this long is asked for its state.
    pub silence_max: Duration,
    /// A node that does not tell its state within this time has failed.
    pub probe_timeout: Duration,
    /// Shortest wait before a connection is tried again.
    pub backoff_min: Duration,
    /// Longest wait before a connection is tried again.
    pub backoff_max: Duration,
    /// Most requests in flight on one of a node's two connections; at most 65,536.
    pub in_flight_max: usize,
    /// Most bytes of requests that wait to be sent on a connection.
    pub outbox_len_max: usize,
    /// Retries of what may have been begun, per hundred requests; 0 for none.
    pub retry_percent: u8,
    /// Reads that are sent a second time, per hundred reads; 0 for none.
    pub hedge_percent: u8,
    /// A read is not sent a second time before it has waited this long.
    pub hedge_after_min: Duration,
    /// Longest wait for the last answers of a connection that is not used any more.
    pub drain_timeout: Duration,
}

impl Default for RemoteSettings {
    fn default() -> Self {
        Self {
            tls: None,
            connect_timeout: Duration::from_secs(1),
            grace: Duration::from_secs(3),
            probe_interval: Duration::from_secs(1),
            silence_max: Duration::from_millis(250),
            probe_timeout: Duration::from_millis(750),
            backoff_min: Duration::from_millis(20),
            backoff_max: Duration::from_secs(1),
            in_flight_max: 8_192,
            outbox_len_max: 64 << 20,
            retry_percent: 10,
            hedge_percent: 5,
            hedge_after_min: Duration::from_millis(5),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

/// Files for TLS to the nodes, PEM. They are read again for every connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authorities that the certificates of nodes must come from.
    pub authority: PathBuf,
    /// Certificate chain and private key of this side; none where nodes ask for none.
    pub identity: Option<TlsIdentity>,
}

/// Who this side is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsIdentity {
    /// Certificate chain, its own certificate first.
    pub certificate: PathBuf,
    /// Private key of that certificate.
    pub key: PathBuf,
}
