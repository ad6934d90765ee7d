//! Everything that ends a request other than well, before it becomes HTTP.
//!
//! Variants carry data; `encode` alone turns them into status, headers and problem body.

use std::sync::Arc;
use std::time::Duration;

use umbo_api::ErrorCode;
use umbo_api::path::PathError;
use umbo_quota::Rejection;
use umbo_store::{StoreError, WriteError};
use umbo_types::{KeyError, NamespaceError, RowError, ShardId, Version};

use crate::auth::AuthError;
use crate::edge::body::BodyError;
use crate::hot_keys::HotKeyError;
use crate::overload::ShedReport;
use crate::policies::QuotaError;

/// Which key of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPart {
    /// The partition key.
    Partition,
    /// The sort key.
    Sort,
    /// The `start` of a range.
    Start,
    /// The `end` of a range.
    End,
    /// The `prefix` of a range.
    Prefix,
}

impl KeyPart {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Partition => "partition key",
            Self::Sort => "sort key",
            Self::Start => "start",
            Self::End => "end",
            Self::Prefix => "prefix",
        }
    }
}

impl std::fmt::Display for KeyPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a request was refused or failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// No route has this path.
    #[error("no route has this path; GET /openapi.json lists them")]
    RouteNotFound,
    /// The route does not take this method.
    #[error("the route does not take this method; the Allow header names those it takes")]
    MethodNotAllowed {
        /// The methods it takes, as in `Allow`; empty where the router knows them.
        allowed: &'static str,
    },
    /// The namespace in the path is no namespace name.
    #[error("namespace: {0}")]
    BadNamespace(#[from] NamespaceError),
    /// No namespace has this name.
    #[error("there is no namespace '{name}'; create it with: umbo ns create {name}")]
    NamespaceNotFound {
        /// The name.
        name: String,
    },
    /// A key cannot be decoded.
    #[error("{part}: {problem}")]
    BadKeyText {
        /// Which key.
        part: KeyPart,
        /// What is wrong.
        problem: PathError,
    },
    /// A key has a length that no key has.
    #[error("{0}")]
    BadKey(#[from] KeyError),
    /// A query parameter that the route does not know.
    #[error("unknown query parameter '{name}'; this route {}", known_text(.known))]
    UnknownParameter {
        /// The parameter.
        name: String,
        /// Those it knows.
        known: &'static str,
    },
    /// A query parameter that stands twice.
    #[error("query parameter '{name}' stands twice")]
    RepeatedParameter {
        /// The parameter.
        name: String,
    },
    /// A query parameter or body field with an unusable value.
    #[error("'{name}' is '{value}', expected {expected}")]
    BadParameter {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// Two inputs that contradict each other.
    #[error("'{one}' and '{other}' cannot both be given")]
    Contradiction {
        /// The first.
        one: &'static str,
        /// The second.
        other: &'static str,
    },
    /// A header with an unusable value.
    #[error("header '{name}': expected {expected}")]
    BadHeader {
        /// The header.
        name: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// A cursor that cannot be used here.
    #[error("the cursor {0}")]
    BadCursor(#[from] crate::cursor::CursorError),
    /// A delete of a range without bounds.
    #[error("name start, end or prefix, or say all=true to delete the whole partition")]
    UnboundedDelete,
    /// A body that is not what the route reads.
    #[error("{0}")]
    BadBody(String),
    /// A batch with too many rows.
    #[error("a batch has at most {max} {what}, this one has more")]
    BatchTooLarge {
        /// Rows or keys.
        what: &'static str,
        /// How many there may be.
        max: usize,
    },
    /// A value that cannot be stored.
    #[error("{0}")]
    BadValue(#[from] RowError),
    /// The body could not be read.
    #[error("{0}")]
    Body(#[from] BodyError),
    /// The caller could not be identified.
    #[error("{0}")]
    Auth(Arc<AuthError>),
    /// The caller may not do this.
    #[error("'{caller}' holds no grant '{verb}' on namespace '{namespace}'")]
    Forbidden {
        /// The caller.
        caller: String,
        /// The verb it lacks.
        verb: &'static str,
        /// Where it lacks it.
        namespace: String,
    },
    /// An operator has blocked the key.
    #[error("an operator has blocked this key for its abnormal usage")]
    KeyBlocked,
    /// As many readers wait for the key as may.
    #[error("as many readers wait for this key as may")]
    TooManyReaders,
    /// No visible row has this key.
    #[error("no visible row has this key")]
    KeyNotFound,
    /// The condition was false.
    #[error("the condition was false; {}", current_text(*.current))]
    PreconditionFailed {
        /// Version of the visible row.
        current: Option<Version>,
    },
    /// Another row of an atomic group was refused.
    #[error(
        "row {index} of the same atomic group was refused, so nothing of the group was applied"
    )]
    GroupAborted {
        /// Index of the row that was refused.
        index: usize,
    },
    /// The store failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The deadline passed while the store worked.
    #[error("the store did not finish within the {}", timeout_text(*.timeout))]
    DeadlineInStore {
        /// The shard that did not answer, where it is one.
        shard: Option<ShardId>,
        /// Whether a write may have been applied.
        is_write: bool,
        /// The time that was given.
        timeout: Duration,
    },
    /// A delete of a range ended early, with some of its rows removed.
    #[error(
        "at least {rows} rows were removed, then: {source}; send the request again for the rest"
    )]
    RangeCutShort {
        /// Rows removed by the steps known to be done; one more may have been under way.
        rows: u64,
        /// Why no more were.
        source: StoreError,
    },
    /// The deadline passed before the store was asked.
    #[error("the {} were used up before the store was asked", timeout_text(*.timeout))]
    DeadlineBeforeStore {
        /// The shard that would have been asked, where it is one.
        shard: Option<ShardId>,
        /// The time that was given.
        timeout: Duration,
    },
    /// A quota is spent.
    #[error("{}", crate::rejection::detail(.0))]
    Rejected(Box<Rejection>),
    /// A shard is overloaded, and the request had to give way.
    #[error("{0}")]
    Shed(ShedReport),
    /// As many requests are in flight as the pod takes.
    #[error("{max} requests are in flight, as many as this pod takes")]
    TooManyInFlight {
        /// The bound.
        max: usize,
    },
    /// The bodies being read hold as much memory as they may.
    #[error("the request bodies being read hold all of the memory they may")]
    BodyMemoryFull,
    /// The response would be larger than a multi-get may be.
    #[error("the rows before this one fill the answer; ask for this one again")]
    AnswerFull,
    /// A policy cannot be changed like this.
    #[error("{0}")]
    Quota(Box<QuotaError>),
    /// Something about hot keys cannot be done.
    #[error("{0}")]
    HotKey(#[from] HotKeyError),
    /// A defect.
    #[error("internal error: {0}")]
    Internal(String),
}

fn known_text(known: &str) -> String {
    match known {
        "" => "takes none".to_owned(),
        known => format!("knows: {known}"),
    }
}

fn current_text(current: Option<Version>) -> String {
    current.map_or_else(
        || "nothing is stored there".to_owned(),
        |version| format!("the current ETag is \"{}\"", version.0),
    )
}

fn timeout_text(timeout: Duration) -> String {
    format!("{} ms given", timeout.as_millis())
}

impl From<AuthError> for Failure {
    fn from(error: AuthError) -> Self {
        Self::Auth(Arc::new(error))
    }
}

impl From<QuotaError> for Failure {
    fn from(error: QuotaError) -> Self {
        Self::Quota(Box::new(error))
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::ConditionFailed { current } => Self::PreconditionFailed { current },
            WriteError::GroupAborted { index } => Self::GroupAborted { index },
            WriteError::Store(error) => Self::Store(error),
        }
    }
}

impl Failure {
    /// Returns the code of the contract.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::RouteNotFound => ErrorCode::RouteNotFound,
            Self::MethodNotAllowed { .. } => ErrorCode::MethodNotAllowed,
            Self::NamespaceNotFound { .. } => ErrorCode::NamespaceNotFound,
            Self::BadNamespace(_)
            | Self::BadKeyText { .. }
            | Self::BadKey(KeyError::PartitionEmpty) => ErrorCode::InvalidKey,
            Self::BadKey(KeyError::PartitionTooLong(_) | KeyError::SortTooLong(_)) => {
                ErrorCode::KeyTooLarge
            }
            Self::UnknownParameter { .. }
            | Self::RepeatedParameter { .. }
            | Self::BadParameter { .. }
            | Self::Contradiction { .. } => ErrorCode::InvalidQuery,
            Self::BadHeader { .. } | Self::BadValue(RowError::ContentFieldTooLong(_)) => {
                ErrorCode::InvalidHeader
            }
            Self::BadCursor(_) => ErrorCode::InvalidCursor,
            Self::UnboundedDelete => ErrorCode::UnboundedDelete,
            Self::BadBody(_) => ErrorCode::InvalidBody,
            Self::BatchTooLarge { .. } | Self::AnswerFull => ErrorCode::BatchTooLarge,
            Self::BadValue(RowError::ValueTooLarge(_)) => ErrorCode::ValueTooLarge,
            Self::Body(BodyError::TooLarge { .. }) => ErrorCode::BodyTooLarge,
            Self::Body(BodyError::TimedOut { .. }) => ErrorCode::RequestTimeout,
            Self::Body(BodyError::Aborted { .. }) => ErrorCode::ClientClosed,
            Self::Auth(error) => error.code(),
            Self::Forbidden { .. } => ErrorCode::Forbidden,
            Self::KeyBlocked => ErrorCode::AbnormalUsageDetected,
            Self::TooManyReaders => ErrorCode::TooManyReaders,
            Self::KeyNotFound => ErrorCode::KeyNotFound,
            Self::PreconditionFailed { .. } | Self::GroupAborted { .. } => {
                ErrorCode::PreconditionFailed
            }
            Self::Store(error) => store_code(error),
            Self::RangeCutShort {
                source: StoreError::DeadlinePassed { .. },
                ..
            }
            | Self::DeadlineInStore { .. } => ErrorCode::DeadlineInStore,
            Self::RangeCutShort { source, .. } => store_code(source),
            Self::DeadlineBeforeStore { .. } => ErrorCode::DeadlineBeforeStore,
            Self::Rejected(_) => ErrorCode::QuotaExceeded,
            Self::Shed(_) => ErrorCode::Overloaded,
            Self::TooManyInFlight { .. } => ErrorCode::TooManyRequestsInFlight,
            Self::BodyMemoryFull => ErrorCode::BodyMemoryFull,
            Self::Quota(error) => error.code(),
            Self::HotKey(error) => error.code(),
            Self::Internal(_) => ErrorCode::Internal,
        }
    }

    /// Says whether it was for want of time, be it before the store was asked or after.
    pub(crate) fn is_late(&self) -> bool {
        let code = self.code();
        matches!(
            code,
            ErrorCode::DeadlineBeforeStore | ErrorCode::DeadlineInStore
        )
    }

    /// Returns the shard concerned.
    pub const fn shard(&self) -> Option<ShardId> {
        match self {
            Self::RangeCutShort { source, .. } => store_shard(source),
            Self::Store(error) => store_shard(error),
            Self::Shed(report) => Some(report.shard),
            Self::DeadlineInStore { shard, .. } | Self::DeadlineBeforeStore { shard, .. } => *shard,
            _ => None,
        }
    }
}

const fn store_shard(error: &StoreError) -> Option<ShardId> {
    match error {
        StoreError::Unavailable { shard, .. }
        | StoreError::Full { shard, .. }
        | StoreError::Io { shard, .. }
        | StoreError::Corrupt { shard, .. }
        | StoreError::QueueFull { shard }
        | StoreError::NodeBusy { shard }
        | StoreError::QuotaExceeded { shard, .. }
        | StoreError::DeadlinePassed { shard } => Some(*shard),
        StoreError::Closing => None,
    }
}

const fn store_code(error: &StoreError) -> ErrorCode {
    match error {
        StoreError::Unavailable { .. } => ErrorCode::ShardUnavailable,
        StoreError::Full { .. } => ErrorCode::StorageFull,
        StoreError::Io { .. } => ErrorCode::StorageFailed,
        StoreError::Corrupt { .. } => ErrorCode::DataDamaged,
        StoreError::QueueFull { .. } => ErrorCode::WriteQueueFull,
        StoreError::NodeBusy { .. } => ErrorCode::Overloaded,
        StoreError::QuotaExceeded { .. } => ErrorCode::QuotaExceeded,
        StoreError::DeadlinePassed { .. } => ErrorCode::DeadlineBeforeStore,
        StoreError::Closing => ErrorCode::ShuttingDown,
    }
}
