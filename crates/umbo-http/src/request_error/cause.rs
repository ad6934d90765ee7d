//! What an error of the records or of the store says to a client: its code and its shard.

use umbo_api::ErrorCode;
use umbo_control::ControlError;
use umbo_store::StoreError;
use umbo_types::ShardId;

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
        ControlError::NamespaceNotFound { .. }
        | ControlError::NamespaceExists { .. }
        | ControlError::NamespaceBeingRemoved { .. }
        | ControlError::RecordsUnreadable(_)
        | ControlError::RecordsStale { .. }
        | ControlError::Auth(_)
        | ControlError::Quota(_)
        | ControlError::HotKey(_)
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
        | StoreError::QuotaExceeded { shard, .. }
        | StoreError::NamespaceGone { shard, .. }
        | StoreError::DeadlinePassed { shard } => Some(*shard),
        StoreError::Closing => None,
    }
}

pub(super) const fn store_code(error: &StoreError) -> ErrorCode {
    match error {
        StoreError::Unavailable { .. } => ErrorCode::ShardUnavailable,
        StoreError::Full { .. } => ErrorCode::StorageFull,
        StoreError::Io { .. } => ErrorCode::StorageFailed,
        StoreError::Corrupt { .. } => ErrorCode::DataDamaged,
        StoreError::QueueFull { .. } => ErrorCode::WriteQueueFull,
        StoreError::NodeBusy { .. } => ErrorCode::Overloaded,
        StoreError::QuotaExceeded { .. } => ErrorCode::QuotaExceeded,
        StoreError::DeadlinePassed { .. } => ErrorCode::DeadlineBeforeStore,
        StoreError::NamespaceGone { .. } => ErrorCode::NamespaceNotFound,
        StoreError::Closing => ErrorCode::ShuttingDown,
    }
}
