//! Why a mutation is not applied, until it is answered.

use umbo_store::{StoreError, WriteError};
use umbo_types::{ShardId, Version};

/// Why a mutation is not applied.
#[derive(Debug)]
pub(super) enum MutationRefusal {
    /// The condition of the mutation is false; with the version of the visible row, if one was found.
    Condition(Option<Version>),
    /// The row is no number, or the upload is not there.
    Refused(WriteError),
    /// The row cannot be decoded.
    Damaged(String),
    /// The mutation needs an unreadable part of the file.
    LeftOut(StoreError),
}

impl MutationRefusal {
    /// Returns the error that it is answered with.
    pub(super) fn into_error(self, shard: ShardId) -> WriteError {
        match self {
            Self::Condition(current) => WriteError::ConditionFailed { current },
            Self::Refused(error) => error,
            Self::Damaged(reason) => StoreError::Corrupt { shard, reason }.into(),
            Self::LeftOut(error) => error.into(),
        }
    }
}
