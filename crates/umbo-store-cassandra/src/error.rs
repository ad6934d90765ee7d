//! Errors of the cluster, in the kinds that the store distinguishes.

use scylla::errors::{
    DbError, DeserializationError, ExecutionError, FirstRowError, IntoRowsResultError,
    MaybeFirstRowError, RequestAttemptError, RowsError,
};
use umbo_store::{Outcome, StoreError};
use umbo_types::ShardId;

/// Why a request to the cluster failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    /// The cluster refused it, did not answer, or could not be reached.
    #[error("{0}")]
    Request(Box<ExecutionError>),
    /// Nodes gave a read up.
    #[error(
        "nodes gave the read up, as they do after `tombstone_failure_threshold` removed rows: {0}"
    )]
    GivenUp(Box<ExecutionError>),
    /// The answer is not what the statement has.
    #[error("the answer cannot be read: {0}")]
    Answer(Box<dyn std::error::Error + Send + Sync>),
    /// A row is not as Umbo writes it.
    #[error("{0}")]
    Damaged(String),
    /// Other processes have changed the bucket each time between its read and its commit.
    #[error("other processes have always been faster")]
    Contended,
    /// It is unknown whether a commit was applied.
    #[error("a commit was not answered in time")]
    InDoubt,
}

impl ClusterError {
    pub(crate) fn damaged(what: &str) -> Self {
        Self::Damaged(what.to_owned())
    }

    /// Returns the error of a call of a shard; writes that were sent may have been applied.
    pub(crate) fn of(&self, shard: ShardId) -> StoreError {
        let reason = self.to_string();
        match self {
            Self::Damaged(_) => StoreError::Corrupt { shard, reason },
            Self::InDoubt => StoreError::Unavailable {
                shard,
                reason,
                outcome: Outcome::Unknown,
            },
            Self::Request(_) | Self::GivenUp(_) | Self::Answer(_) | Self::Contended => {
                StoreError::Unavailable {
                    shard,
                    reason,
                    outcome: Outcome::NotApplied,
                }
            }
        }
    }
}

impl From<ExecutionError> for ClusterError {
    fn from(error: ExecutionError) -> Self {
        match error {
            ExecutionError::LastAttemptError(RequestAttemptError::DbError(
                DbError::ReadFailure { .. },
                _,
            )) => Self::GivenUp(Box::new(error)),
            _ => Self::Request(Box::new(error)),
        }
    }
}

macro_rules! answer_errors {
    ($($error:ty),+) => {
        $(impl From<$error> for ClusterError {
            fn from(error: $error) -> Self {
                Self::Answer(error.into())
            }
        })+
    };
}

answer_errors!(
    IntoRowsResultError,
    RowsError,
    DeserializationError,
    FirstRowError,
    MaybeFirstRowError
);

/// Returns whether no node has begun a conditional batch that failed with this error. A lack of copies is told after the
/// batch was accepted, too.
pub(crate) const fn was_never_begun(error: &ExecutionError) -> bool {
    match error {
        ExecutionError::BadQuery(_)
        | ExecutionError::EmptyPlan
        | ExecutionError::PrepareError(_)
        | ExecutionError::ConnectionPoolError(_) => true,
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, _)) => matches!(
            error,
            DbError::Overloaded
                | DbError::IsBootstrapping
                | DbError::Invalid
                | DbError::SyntaxError
                | DbError::Unauthorized
        ),
        _ => false,
    }
}
