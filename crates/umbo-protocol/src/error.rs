//! Errors of the protocol: bytes that are not a message, and answers of a node without rows.

use umbo_store::StoreError;
use umbo_types::ShardId;

/// Bytes that a peer must not send. All but [`Self::UnknownKind`] and [`Self::BadField`] of a known request
/// end the connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The connection does not begin with [`crate::PREFACE`].
    #[error("the peer does not speak the protocol of shard nodes: its first bytes are {0:02x?}")]
    WrongPreface([u8; 8]),
    /// A frame of a kind that no version may send.
    #[error("a frame of unknown kind {0}")]
    UnknownFrame(u8),
    /// The bytes end within a field, or a field cannot be decoded.
    #[error("a message that cannot be decoded: {0}")]
    Malformed(&'static str),
    /// A frame or message exceeds its maximum length.
    #[error("a {what} of {len} bytes; at most {max} are allowed")]
    TooLong {
        /// The thing that is too long: a frame, a message, or the unfinished messages together.
        what: &'static str,
        /// Length of the frame or messages, in bytes.
        len: usize,
        /// The maximum length.
        max: usize,
    },
    /// The peer exceeded its credit.
    #[error("the peer sent {len} bytes, but its window had only {left} left")]
    WindowExceeded {
        /// Length of the frame.
        len: usize,
        /// The remaining credit.
        left: usize,
    },
    /// A field has a value that is not allowed.
    #[error("{field} holds {found}")]
    BadField {
        /// Name of the field.
        field: &'static str,
        /// The value.
        found: String,
    },
    /// A request or answer of an unknown kind, or with an unknown field that must not be ignored.
    #[error("a message of a kind that this version does not know")]
    UnknownKind {
        /// Id of the request, so that it alone can be refused.
        id: u64,
    },
}

/// Why a node did not execute a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// The store failed, or refused it.
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
    /// The node places the dataset of the request differently, or does not know it yet.
    #[error("{reason}")]
    Misplaced {
        /// The shard where the sender has placed it.
        shard: ShardId,
        /// The placements of both sides, for the operator.
        reason: String,
    },
    /// The request breaks a rule of the protocol.
    #[error("the request cannot be used: {0}")]
    BadRequest(String),
    /// The node does not know this kind of request: it is older than the peer.
    #[error("the node does not know this kind of request")]
    Unsupported,
}
