//! Identification of the peer: the first frame of each direction, and refusals.
//!
//! A connection begins with a hello and a welcome. Peers use the highest version that both support. If they have no
//! common version, or the cluster or node is not the expected one, the node reports that and closes the connection.

use umbo_store::RecordsRevision;
use umbo_types::Timestamp;

use crate::credit::WINDOW_LEN;

/// A version of the protocol. Versions increase; this build supports [`ProtocolVersion::MIN`] to
/// [`ProtocolVersion::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProtocolVersion(pub u32);

impl ProtocolVersion {
    /// The oldest supported version.
    pub const MIN: Self = Self(1);
    /// The newest supported version.
    pub const MAX: Self = Self::WHOLE_ANSWERS;
    /// From this version on a multi-get or write is of one shard, and a multi-get has one answer. The answer has fewer
    /// rows than keys if the values are too long together. Peers of version 1 sent such answers in parts.
    pub const WHOLE_ANSWERS: Self = Self(2);
}

/// The first frame of a dispatcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Oldest version that it supports.
    pub version_min: ProtocolVersion,
    /// Newest version that it supports.
    pub version_max: ProtocolVersion,
    /// The expected cluster.
    pub cluster_id: String,
    /// Name of the expected node.
    pub node: String,
    /// Version of the map that it uses.
    pub map_version: u64,
    /// Revision of its copy of Umbo's own records.
    pub records: RecordsRevision,
    /// Identifies the dispatcher's process; random. A new connection of the same incarnation replaces the older one.
    /// The node withdraws the requests of the older connection that it has not begun, and then sends the welcome.
    pub incarnation: u64,
    /// Most bytes of frames that the node may send without credit.
    pub window: u32,
    /// Program and version, for the log.
    pub software: String,
}

impl Hello {
    /// Makes the hello to a node with the versions of this build.
    pub fn new(cluster_id: &str, node: &str, map_version: u64, incarnation: u64) -> Self {
        Self {
            version_min: ProtocolVersion::MIN,
            version_max: ProtocolVersion::MAX,
            cluster_id: cluster_id.to_owned(),
            node: node.to_owned(),
            map_version,
            records: RecordsRevision::default(),
            incarnation,
            window: WINDOW_LEN as u32,
            software: concat!("umbo ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }

    /// Makes the welcome of a node of this name in this cluster.
    pub fn welcome(&self, cluster_id: &str, node: &str, map_version: u64) -> Welcome {
        let common = self.version_max.min(ProtocolVersion::MAX);
        let refusal = if common < self.version_min || common < ProtocolVersion::MIN {
            Some(Refusal::NoCommonVersion(format!(
                "this node speaks versions {} to {}, the dispatcher {} to {}",
                ProtocolVersion::MIN.0,
                ProtocolVersion::MAX.0,
                self.version_min.0,
                self.version_max.0
            )))
        } else if self.cluster_id != cluster_id {
            Some(Refusal::OtherCluster(format!(
                "this node belongs to cluster {cluster_id:?}, not to {:?}",
                self.cluster_id
            )))
        } else if self.node != node {
            Some(Refusal::OtherNode(format!(
                "this is node {node:?}, not {:?}",
                self.node
            )))
        } else {
            None
        };
        Welcome {
            version: common,
            cluster_id: cluster_id.to_owned(),
            node: node.to_owned(),
            map_version,
            window: WINDOW_LEN as u32,
            wall: None,
            program_version: None,
            refusal,
        }
    }
}

/// The first frame of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The version in use from here on.
    pub version: ProtocolVersion,
    /// Cluster of the node.
    pub cluster_id: String,
    /// Name of the node.
    pub node: String,
    /// Version of the map that it uses.
    pub map_version: u64,
    /// Most bytes of frames that the dispatcher may send without credit.
    pub window: u32,
    /// Time of day of the node, or `None` from a node that does not tell it.
    pub wall: Option<Timestamp>,
    /// Version of its program, or `None` from a node that does not tell it.
    pub program_version: Option<String>,
    /// Why the connection ends here, or `None` if it continues.
    pub refusal: Option<Refusal>,
}

/// Why a node does not serve a connection, for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The peers have no version in common.
    #[error("no common version: {0}")]
    NoCommonVersion(String),
    /// The node belongs to another cluster.
    #[error("another cluster: {0}")]
    OtherCluster(String),
    /// The address belongs to another node.
    #[error("another node: {0}")]
    OtherNode(String),
    /// A reason that this version does not know.
    #[error("{0}")]
    Other(String),
}
