//! Who is on the other side: the first frame of each direction, and who is refused.
//!
//! A stream begins with a hello and a welcome. Peers speak the highest version that both know; where
//! there is none, or the cluster or node is another one than was meant, the node says so and ends
//! the stream.

/// A version of the protocol. They count up; this build knows [`ProtocolVersion::MIN`] to
/// [`ProtocolVersion::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProtocolVersion(pub u32);

impl ProtocolVersion {
    /// The oldest version that is still spoken.
    pub const MIN: Self = Self(1);
    /// The newest version.
    pub const MAX: Self = Self(1);
}

/// What a dispatcher says first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Oldest version it speaks.
    pub version_min: ProtocolVersion,
    /// Newest version it speaks.
    pub version_max: ProtocolVersion,
    /// Cluster that it means.
    pub cluster_id: String,
    /// Name of the node that it means.
    pub node: String,
    /// Version of the map that it goes by.
    pub map_version: u64,
    /// What it is, for the log.
    pub software: String,
}

impl Hello {
    /// Speaks to a node with the versions of this build.
    pub fn new(cluster_id: &str, node: &str, map_version: u64) -> Self {
        Self {
            version_min: ProtocolVersion::MIN,
            version_max: ProtocolVersion::MAX,
            cluster_id: cluster_id.to_owned(),
            node: node.to_owned(),
            map_version,
            software: concat!("umbo ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }

    /// Answers for a node of this name in this cluster.
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
            refusal,
        }
    }
}

/// What a node says first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// Version that is spoken from here on.
    pub version: ProtocolVersion,
    /// Cluster of the node.
    pub cluster_id: String,
    /// Its name.
    pub node: String,
    /// Version of the map that it goes by.
    pub map_version: u64,
    /// Why the stream ends here; none where it goes on.
    pub refusal: Option<Refusal>,
}

/// Why a node does not serve a stream, for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No version that both speak.
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
