//! The sections of a cluster with their defaults: its map and certificates, and a shard node.
//!
//! `config/umbo.toml` explains each setting to operators and must match this file.

use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::unit::{ByteCount, empty_is_none};

/// `[cluster]`: the dispatchers and shard nodes that this process works with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClusterSection {
    /// File of the map; none for a standalone server.
    #[serde(with = "empty_is_none")]
    pub(crate) map: Option<String>,
    /// Name of this node in the map; none for a dispatcher.
    #[serde(with = "empty_is_none")]
    pub(crate) node: Option<String>,
    /// Certificate chain that this process presents to other processes, PEM; none disables TLS.
    #[serde(with = "empty_is_none")]
    pub(crate) certificate: Option<String>,
    /// Private key of the certificate, PEM.
    #[serde(with = "empty_is_none")]
    pub(crate) key: Option<String>,
    /// Certificate authorities, PEM, one of which must have signed the certificates of the other processes.
    #[serde(with = "empty_is_none")]
    pub(crate) ca: Option<String>,
}

/// `[shard]`: a shard node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShardSection {
    /// Address for dispatchers.
    pub(crate) listen: SocketAddr,
    /// Address of metrics and health.
    pub(crate) admin_listen: SocketAddr,
    /// Most requests in flight; more are refused.
    pub(crate) in_flight_max: u32,
    /// Most bytes that the requests in flight may hold together.
    pub(crate) request_memory: ByteCount,
}

impl Default for ShardSection {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 7_411).into(),
            admin_listen: (Ipv4Addr::LOCALHOST, 7_412).into(),
            in_flight_max: 4_096,
            request_memory: ByteCount(256 << 20),
        }
    }
}
