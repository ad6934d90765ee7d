//! What can go wrong: bytes that are no message, and what a node answers instead of rows.

use umbo_store::StoreError;
use umbo_types::ShardId;

/// Bytes that are not what a peer may send.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// They are no protobuf message of this kind.
    #[error("not a message: {0}")]
    Malformed(String),
    /// A frame is longer than any may be.
    #[error("a frame of {len} bytes; at most {max} are allowed")]
    TooLong {
        /// Its length.
        len: usize,
        /// The longest allowed.
        max: usize,
    },
    /// A field holds what no request or answer may hold.
    #[error("{field} holds {found}")]
    BadField {
        /// Name of the field.
        field: &'static str,
        /// What it holds.
        found: String,
    },
    /// A request or answer of a kind that this version does not know.
    #[error("a message of a kind that this version does not know")]
    UnknownKind {
        /// Id of the request, so that it alone can be refused.
        id: u64,
    },
}

impl From<prost::DecodeError> for DecodeError {
    fn from(error: prost::DecodeError) -> Self {
        Self::Malformed(error.to_string())
    }
}

/// Why a node did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// The store failed, or would not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The node does not own the shard, by a map of this version.
    #[error("this node does not own shard {shard} (map version {map_version})")]
    NotOwner {
        /// The shard.
        shard: ShardId,
        /// Version of the map.
        map_version: u64,
    },
    /// The request breaks a rule of the protocol.
    #[error("the request cannot be used: {0}")]
    BadRequest(String),
    /// The node knows no request of this kind: it is older than the peer.
    #[error("the node does not know this kind of request")]
    Unsupported,
}
