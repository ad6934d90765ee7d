//! Errors of a store, grouped by what the caller can do about them.
//!
//! An absent key is not an error. Every error of a write contains whether the write was applied, so that a
//! caller never has to guess.

use umbo_routing::Misplaced;
use umbo_types::{NamespaceId, ShardId, Version};

/// Whether a failed write took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The write did take effect; only the answer failed.
    Applied,
    /// The write certainly did not take effect.
    NotApplied,
    /// The write may or may not have taken effect; read again, or repeat it with a condition.
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
    /// Stored bytes are damaged.
    #[error("shard {shard} holds damaged data: {reason}")]
    Corrupt {
        /// The shard.
        shard: ShardId,
        /// The file and the damage, for the operator.
        reason: String,
    },
    /// The shard's write queue is full. Back off.
    #[error("the write queue of shard {shard} is full")]
    QueueFull {
        /// The shard.
        shard: ShardId,
    },
    /// The node of the shard has reached its limit of requests in flight. Back off.
    #[error("the node of shard {shard} is busy")]
    NodeBusy {
        /// The shard.
        shard: ShardId,
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
    /// By the believed time of day of the shard, the write is not due yet. Nothing was applied.
    #[error("by the clock of shard {shard} the change is not due yet")]
    TooEarly {
        /// The shard.
        shard: ShardId,
    },
    /// The shard has begun a write of a later run of the same load. Nothing was applied. The sender's run has ended.
    #[error("a later run of the load writes to shard {shard}")]
    Overtaken {
        /// The shard.
        shard: ShardId,
    },
    /// The store is closing.
    #[error("the store is closing")]
    Closing,
}

impl StoreError {
    /// Makes the refusal of a request for a dataset that its sender and the store place differently.
    pub fn misplaced(misplaced: Misplaced, shard: ShardId) -> Self {
        Self::refused(shard, misplaced.to_string())
    }

    /// Makes the refusal of a call of a shard for a row of another one.
    pub(crate) fn of_other_shard(shard: ShardId, owner: ShardId) -> Self {
        Self::refused(shard, format!("the request is for a row of shard {owner}"))
    }

    /// Makes the refusal of a call of a shard that is not in the map.
    pub fn no_such_shard(shard: ShardId) -> Self {
        Self::refused(shard, "there is no such shard".to_owned())
    }

    const fn refused(shard: ShardId, reason: String) -> Self {
        Self::Unavailable {
            shard,
            reason,
            outcome: Outcome::NotApplied,
        }
    }

    /// Returns whether a write that failed with this error took effect.
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::Unavailable { outcome, .. }
            | Self::Full { outcome, .. }
            | Self::Io { outcome, .. } => *outcome,
            Self::Corrupt { .. }
            | Self::QueueFull { .. }
            | Self::NodeBusy { .. }
            | Self::DeadlinePassed { .. }
            | Self::NamespaceGone { .. }
            | Self::TooEarly { .. }
            | Self::Overtaken { .. }
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
        /// Version of the visible row after the group was handled, or `None` if no row is visible. The version that a
        /// refused atomic group would have written is not revealed.
        current: Option<Version>,
    },
    /// Another mutation of the same atomic group was refused, so the whole group was not applied.
    #[error("mutation {index} of the same atomic group was refused")]
    GroupAborted {
        /// Index within the request of the first refused mutation of the group.
        index: usize,
    },
    /// The value to be incremented is not the decimal text of a signed 64-bit number. The row stays as it is.
    #[error("the value is not the decimal text of a signed 64-bit number")]
    NotANumber,
    /// The sum would not be a signed 64-bit number. The row stays as it is.
    #[error("the sum with {current} is not a signed 64-bit number")]
    IncrementOverflow {
        /// The number that is stored.
        current: i64,
    },
    /// Another request of the same caller in this partition has used the idempotency key.
    #[error("the idempotency key belongs to another request")]
    IdempotencyMismatch,
    /// The idempotency records of the namespace have reached their limit in the shard.
    #[error("the idempotency records of the namespace fill their {bytes_max} bytes of the shard")]
    IdempotencyFull {
        /// The limit, in bytes of keys and records.
        bytes_max: u64,
    },
    /// The upload of the mutation does not exist, has another length than the reference or the chunk says, or takes no
    /// more chunks. Send the value again.
    #[error("bytes of the large value are missing")]
    UploadGone,
    /// The namespace has fast writes, which change rows without reading them.
    #[error(
        "the namespace has fast writes: conditions, increments, idempotency keys and large values need one with exact \
         writes"
    )]
    NeedsExactWrites,
    /// An earlier request with the same idempotency key was refused with this error.
    #[error("{0}")]
    Replayed(Box<Self>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl WriteError {
    /// Returns whether the store refused the mutation by the rows that it saw. An idempotency record keeps such
    /// refusals.
    pub const fn is_decision(&self) -> bool {
        match self {
            Self::ConditionFailed { .. }
            | Self::GroupAborted { .. }
            | Self::NotANumber
            | Self::IncrementOverflow { .. } => true,
            Self::IdempotencyMismatch
            | Self::IdempotencyFull { .. }
            | Self::UploadGone
            | Self::NeedsExactWrites
            | Self::Replayed(_)
            | Self::Store(_) => false,
        }
    }

    /// Returns the error with its index mapped to another list of the same mutations.
    #[must_use]
    pub fn with_index(self, at: impl Fn(usize) -> usize) -> Self {
        match self {
            Self::GroupAborted { index } => Self::GroupAborted { index: at(index) },
            Self::Replayed(error) => Self::Replayed(Box::new(error.with_index(at))),
            other => other,
        }
    }

    /// Returns the error without the mark of a replayed error, and whether it had the mark.
    pub fn into_first(self) -> (Self, bool) {
        match self {
            Self::Replayed(error) => (*error, true),
            other => (other, false),
        }
    }

    /// Returns whether the mutation took effect.
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::ConditionFailed { .. }
            | Self::GroupAborted { .. }
            | Self::NotANumber
            | Self::IncrementOverflow { .. }
            | Self::IdempotencyMismatch
            | Self::IdempotencyFull { .. }
            | Self::UploadGone
            | Self::NeedsExactWrites => Outcome::NotApplied,
            Self::Replayed(error) => error.outcome(),
            Self::Store(error) => error.outcome(),
        }
    }
}
