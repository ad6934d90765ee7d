//! Errors of a store, grouped by what the caller can do about them.
//!
//! An absent key is not an error. Every error of a write contains whether the write was applied, so that a
//! caller never has to guess.

use umbo_types::{NamespaceId, ShardId, Version};

/// Whether a failed write took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It did take effect; only the answer failed.
    Applied,
    /// It certainly did not take effect.
    NotApplied,
    /// It may or may not have; read again, or repeat it with a condition.
    Unknown,
}

/// Error of a store. Variants contain the shard, so that a failing shard can be identified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The shard cannot be reached or could not be opened. Wait, the others serve.
    #[error("shard {shard} is unavailable: {reason}")]
    Unavailable {
        /// The shard.
        shard: ShardId,
        /// Why, for the operator.
        reason: String,
        /// Whether a write took effect.
        outcome: Outcome,
    },
    /// The disk under the shard is full. Reads go on; make room.
    #[error("the disk of shard {shard} is full")]
    Full {
        /// The shard.
        shard: ShardId,
        /// Whether a write took effect.
        outcome: Outcome,
    },
    /// Reading or writing the shard's file failed.
    #[error("shard {shard} failed to use its file: {reason}")]
    Io {
        /// The shard.
        shard: ShardId,
        /// Why, for the operator.
        reason: String,
        /// Whether a write took effect.
        outcome: Outcome,
    },
    /// Stored bytes are not what was written.
    #[error("shard {shard} holds damaged data: {reason}")]
    Corrupt {
        /// The shard.
        shard: ShardId,
        /// Which file and what was found, for the operator.
        reason: String,
    },
    /// The shard's write queue is full. Back off.
    #[error("the write queue of shard {shard} is full")]
    QueueFull {
        /// The shard.
        shard: ShardId,
    },
    /// The node of the shard has as many requests in flight as it takes. Back off.
    #[error("the node of shard {shard} is busy")]
    NodeBusy {
        /// The shard.
        shard: ShardId,
    },
    /// A quota of the shard as a whole, over all dispatchers, is exceeded.
    #[error("policy {policy} of shard {shard} is used up")]
    QuotaExceeded {
        /// The shard.
        shard: ShardId,
        /// Name of the policy.
        policy: String,
        /// When the quota suffices again.
        retry_after: std::time::Duration,
        /// Requested rate per second, in atoms of the policy's unit; none if unknown.
        observed: Option<u64>,
    },
    /// The deadline passed before the store began the work. Nothing was applied.
    #[error("the deadline passed before shard {shard} began")]
    DeadlinePassed {
        /// The shard.
        shard: ShardId,
    },
    /// The namespace was removed, and the shard refuses all work for it. Nothing was applied. The caller has
    /// an outdated copy of the records.
    #[error("namespace {namespace} was removed from shard {shard}")]
    NamespaceGone {
        /// The shard.
        shard: ShardId,
        /// Id of the namespace.
        namespace: NamespaceId,
    },
    /// The store is closing.
    #[error("the store is closing")]
    Closing,
}

impl StoreError {
    /// Returns whether a write that failed with this error took effect.
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::Unavailable { outcome, .. }
            | Self::Full { outcome, .. }
            | Self::Io { outcome, .. } => *outcome,
            Self::Corrupt { .. }
            | Self::QueueFull { .. }
            | Self::NodeBusy { .. }
            | Self::QuotaExceeded { .. }
            | Self::DeadlinePassed { .. }
            | Self::NamespaceGone { .. }
            | Self::Closing => Outcome::NotApplied,
        }
    }
}

/// Why one mutation of a write was not applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The condition of this mutation was false.
    #[error("the condition was false")]
    ConditionFailed {
        /// Version of the row that is visible after the group was handled; none if there is none. A refused
        /// atomic group does not reveal what it would have written.
        current: Option<Version>,
    },
    /// Another mutation of the same atomic group was refused, so none of the group was applied.
    #[error("mutation {index} of the same atomic group was refused")]
    GroupAborted {
        /// Index of the first mutation of the group that was refused, within the request.
        index: usize,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl WriteError {
    /// Returns whether the mutation took effect.
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::ConditionFailed { .. } | Self::GroupAborted { .. } => Outcome::NotApplied,
            Self::Store(error) => error.outcome(),
        }
    }
}
