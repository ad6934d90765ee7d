//! The code and the shard of errors of the records and of the store.

use umbo_api::ErrorCode;
use umbo_control::ControlError;
use umbo_store::{StoreError, WriteError};
use umbo_types::ShardId;

/// Returns the text for a client whose write the rows or the idempotency records refuse.
pub(super) fn refused_text(error: &WriteError) -> String {
    match error {
        WriteError::IdempotencyMismatch => {
            "this Idempotency-Key was used for another request in the same partition".to_owned()
        }
        other => other.to_string(),
    }
}

pub(super) const fn write_code(error: &WriteError) -> ErrorCode {
    match error {
        WriteError::NotANumber => ErrorCode::NotANumber,
        WriteError::IncrementOverflow { .. } => ErrorCode::IncrementOverflow,
        WriteError::IdempotencyMismatch => ErrorCode::IdempotencyMismatch,
        WriteError::IdempotencyFull { .. } => ErrorCode::IdempotencyFull,
        WriteError::UploadGone => ErrorCode::UploadGone,
        WriteError::NeedsExactWrites => ErrorCode::NeedsExactWrites,
        WriteError::ConditionFailed { .. } | WriteError::GroupAborted { .. } => {
            ErrorCode::PreconditionFailed
        }
        WriteError::Store(error) => store_code(error),
        // `From` removes the mark.
        WriteError::Replayed(_) => ErrorCode::Internal,
    }
}

pub(super) fn control_code(error: &ControlError) -> ErrorCode {
    match error {
        ControlError::NamespaceNotFound { .. } => ErrorCode::NamespaceNotFound,
        ControlError::NamespaceExists { .. } => ErrorCode::NamespaceExists,
        ControlError::NamespaceBeingRemoved { .. } => ErrorCode::NamespaceBeingRemoved,
        ControlError::RecordsAway { .. } => ErrorCode::RecordsUnavailable,
        ControlError::RecordsUnreadable(_) => ErrorCode::RecordsUnreadable,
        ControlError::RecordsStale { .. } => ErrorCode::RecordsStale,
        ControlError::TokenUnknown { source, .. } => control_code(source),
        ControlError::Auth(error) => error.code(),
        ControlError::Quota(error) => error.code(),
        ControlError::HotKey(error) => error.code(),
        ControlError::Load(error) => error.code(),
        ControlError::Version(error) => error.code(),
        ControlError::ShardsUnconfirmed { .. } => ErrorCode::ShardUnavailable,
        ControlError::ConditionFailed { .. } => ErrorCode::PreconditionFailed,
        ControlError::Store(error) => store_code(error),
        ControlError::NoAnswer { .. } => ErrorCode::DeadlineInStore,
        ControlError::Internal(_) => ErrorCode::Internal,
    }
}

pub(super) fn control_shard(error: &ControlError) -> Option<ShardId> {
    match error {
        ControlError::RecordsAway { shard, .. } | ControlError::NoAnswer { shard, .. } => {
            Some(*shard)
        }
        ControlError::TokenUnknown { source, .. } => control_shard(source),
        ControlError::Store(error) => store_shard(error),
        ControlError::ShardsUnconfirmed { shards } => shards.first().copied().map(ShardId),
        ControlError::NamespaceNotFound { .. }
        | ControlError::NamespaceExists { .. }
        | ControlError::NamespaceBeingRemoved { .. }
        | ControlError::RecordsUnreadable(_)
        | ControlError::RecordsStale { .. }
        | ControlError::Auth(_)
        | ControlError::Quota(_)
        | ControlError::HotKey(_)
        | ControlError::Load(_)
        | ControlError::Version(_)
        | ControlError::ConditionFailed { .. }
        | ControlError::Internal(_) => None,
    }
}

pub(super) const fn store_shard(error: &StoreError) -> Option<ShardId> {
    match error {
        StoreError::Unavailable { shard, .. }
        | StoreError::Full { shard, .. }
        | StoreError::Io { shard, .. }
        | StoreError::Corrupt { shard, .. }
        | StoreError::QueueFull { shard }
        | StoreError::NodeBusy { shard }
        | StoreError::NamespaceGone { shard, .. }
        | StoreError::TooEarly { shard }
        | StoreError::Overtaken { shard }
        | StoreError::DeadlinePassed { shard } => Some(*shard),
        StoreError::Closing => None,
    }
}

pub(super) const fn store_code(error: &StoreError) -> ErrorCode {
    match error {
        StoreError::Unavailable { .. } | StoreError::TooEarly { .. } => ErrorCode::ShardUnavailable,
        StoreError::Full { .. } => ErrorCode::StorageFull,
        StoreError::Io { .. } => ErrorCode::StorageFailed,
        StoreError::Corrupt { .. } => ErrorCode::DataDamaged,
        StoreError::QueueFull { .. } => ErrorCode::WriteQueueFull,
        StoreError::NodeBusy { .. } => ErrorCode::Overloaded,
        StoreError::DeadlinePassed { .. } => ErrorCode::DeadlineBeforeStore,
        StoreError::NamespaceGone { .. } => ErrorCode::NamespaceNotFound,
        // Only runs of loads get this error, and no request waits for one.
        StoreError::Overtaken { .. } => ErrorCode::Internal,
        StoreError::Closing => ErrorCode::ShuttingDown,
    }
}
