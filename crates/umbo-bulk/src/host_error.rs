//! Why an operation for a load failed, and when it is tried again.

use std::time::Duration;

use umbo_store::StoreError;

/// Wait before a shard is asked again that has failed.
const FAILED_WAIT: Duration = Duration::from_secs(1);
/// Wait before a shard is asked again that had no room for the request.
const BUSY_WAIT: Duration = Duration::from_millis(200);

/// Why an operation for a load failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HostError {
    /// The operation cannot be done now.
    #[error("{reason}")]
    Wait {
        /// When to try again.
        after: Duration,
        /// Why, for people.
        reason: String,
    },
    /// A namespace was removed: the namespace of the load, or its content or report because the load
    /// has ended.
    #[error("the namespace was removed")]
    Gone,
    /// A later run of the load has written to the shard.
    #[error("a later run of the load has taken over")]
    Overtaken,
    /// The operation can never be done.
    #[error("{0}")]
    Never(String),
}

impl From<StoreError> for HostError {
    fn from(error: StoreError) -> Self {
        let reason = error.to_string();
        let wait = |after| Self::Wait {
            after,
            reason: reason.clone(),
        };
        match &error {
            StoreError::NamespaceGone { .. } => Self::Gone,
            StoreError::Overtaken { .. } => Self::Overtaken,
            StoreError::Corrupt { shard, .. } => {
                Self::Never(format!("shard {shard} holds a damaged row"))
            }
            StoreError::QueueFull { .. } | StoreError::NodeBusy { .. } => wait(BUSY_WAIT),
            StoreError::Unavailable { shard, .. } => Self::Wait {
                after: FAILED_WAIT,
                reason: format!("shard {shard} is unavailable"),
            },
            StoreError::Io { shard, .. } => Self::Wait {
                after: FAILED_WAIT,
                reason: format!("the disk of shard {shard} failed"),
            },
            StoreError::Full { .. }
            | StoreError::DeadlinePassed { .. }
            | StoreError::TooEarly { .. }
            | StoreError::Closing => wait(FAILED_WAIT),
        }
    }
}
