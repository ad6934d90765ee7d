//! The sections of a cluster with their defaults: its map and certificates, and a shard node.
//!
//! `config/umbo.toml` tells an operator what each setting does; this file is its twin.

use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::unit::{Size, empty_is_none};

/// `[cluster]`: the dispatchers and shard nodes that this process works with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClusterSection {
    /// File of the map; none for a server on its own.
    #[serde(with = "empty_is_none")]
    pub(crate) map: Option<String>,
    /// Name of this node in the map; none for a dispatcher.
    #[serde(with = "empty_is_none")]
    pub(crate) node: Option<String>,
    /// Certificate chain that this process shows the others, PEM; none speaks without TLS.
    #[serde(with = "empty_is_none")]
    pub(crate) certificate: Option<String>,
    /// Private key of the certificate, PEM.
    #[serde(with = "empty_is_none")]
    pub(crate) key: Option<String>,
    /// Authorities, PEM, one of which must have signed the certificates of the others.
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
    /// Requests in flight; more are turned away.
    pub(crate) in_flight_max: u32,
    /// Bytes that the requests in flight may hold together.
    pub(crate) request_memory: Size,
}

impl Default for ShardSection {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 7_411).into(),
            admin_listen: (Ipv4Addr::LOCALHOST, 7_412).into(),
            in_flight_max: 4_096,
            request_memory: Size(256 << 20),
        }
    }
}
