//! Settings for the connections to the shard nodes.

use std::time::Duration;

use umbo_tls::PeerTlsFiles;

use crate::connector::Transport;

/// Settings of a [`crate::RemoteStore`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteSettings {
    /// How connections are made.
    pub transport: Transport,
    /// Files for TLS, or `None` for plain connections.
    pub tls: Option<PeerTlsFiles>,
    /// Seed of all random numbers, or `None` for a seed of the operating system.
    pub seed: Option<u64>,
    /// Timeout for a connection, and again for the node's welcome on it.
    pub connect_timeout: Duration,
    /// How long calls wait for a node that was connected and is away, such as during a restart; zero for no wait.
    pub grace: Duration,
    /// How often a node is asked for the status of its shards.
    pub probe_interval: Duration,
    /// Silence after which a node that owes an answer is pinged.
    pub silence_max: Duration,
    /// Silence after a ping after which the node has failed.
    pub probe_timeout: Duration,
    /// Shortest wait before a connection is tried again.
    pub backoff_min: Duration,
    /// Longest wait before a connection is tried again.
    pub backoff_max: Duration,
    /// Most requests in flight on the connection of a node; at most 65,536.
    pub in_flight_max: usize,
    /// At this length of its queue, in bytes, a connection accepts no more requests.
    pub queued_len_max: usize,
    /// Retries of requests that may have been begun, per hundred requests; 0 for none.
    pub retry_percent: u8,
    /// Longest wait for the last answers of a connection that is no longer used.
    pub drain_timeout: Duration,
}

impl Default for RemoteSettings {
    fn default() -> Self {
        Self {
            transport: Transport::Tcp,
            tls: None,
            seed: None,
            connect_timeout: Duration::from_secs(1),
            grace: Duration::from_secs(3),
            probe_interval: Duration::from_secs(1),
            silence_max: Duration::from_millis(250),
            probe_timeout: Duration::from_millis(750),
            backoff_min: Duration::from_millis(20),
            backoff_max: Duration::from_secs(1),
            in_flight_max: 8_192,
            queued_len_max: 64 << 20,
            retry_percent: 10,
            drain_timeout: Duration::from_secs(30),
        }
    }
}
