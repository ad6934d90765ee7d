//! All errors of a request, before they become HTTP.
//!
//! Variants carry data; `problem` and `encode` alone turn them into status, headers and body. Without a
//! wildcard every error has a code and tells whether a failed change took effect.

mod cause;
mod effect;

use std::time::Duration;

use umbo_api::ErrorCode;
use umbo_api::path::PathError;
use umbo_control::ControlError;
use umbo_edge::body::BodyError;
use umbo_edge::content_coding::{ContentCoding, InflateError, UnknownCoding};
use umbo_edge::memory::Full;
use umbo_quota::Rejection;
use umbo_store::{StoreError, WriteError};
use umbo_types::{KeyError, NamespaceError, RowError, ShardId, Version};

use crate::shed_report::ShedReport;

use cause::{control_code, control_shard, store_code, store_shard, write_code};

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
pub enum RequestError {
    /// No route has this path.
    #[error("no route has this path; GET /openapi.json lists them")]
    RouteNotFound,
    /// The route does not take this method.
    #[error("the route does not take this method; the Allow header lists the methods it takes")]
    MethodNotAllowed {
        /// The methods it takes, as in `Allow`; empty if only the router knows them.
        allowed: &'static str,
    },
    /// The namespace in the path is no namespace name.
    #[error("namespace: {0}")]
    BadNamespace(#[from] NamespaceError),
    /// Umbo's own records refuse the request, or cannot be used.
    #[error("{0}")]
    Control(#[from] ControlError),
    /// A key cannot be decoded.
    #[error("{part}: {problem}")]
    BadKeyText {
        /// Which key.
        part: KeyPart,
        /// Why it cannot be decoded.
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
        /// Parameters that the route knows.
        known: &'static str,
    },
    /// A query parameter that stands twice.
    #[error("query parameter '{name}' is given twice")]
    RepeatedParameter {
        /// The parameter.
        name: String,
    },
    /// A query parameter or body field with an unusable value.
    #[error("'{name}' is '{value}', expected {expected}")]
    BadParameter {
        /// The parameter.
        name: &'static str,
        /// Value of the parameter or field.
        value: String,
        /// Its accepted values.
        expected: &'static str,
    },
    /// The engine of the rows does not declare that it does this.
    #[error("{0}")]
    NotInEngine(&'static str),
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
        /// Its accepted values.
        expected: &'static str,
    },
    /// An unknown header whose name begins like Umbo's headers.
    #[error("unknown header '{name}'{}", nearest_text(*.nearest))]
    UnknownHeader {
        /// The header.
        name: String,
        /// The known header with the most similar name.
        nearest: Option<&'static str>,
    },
    /// A cursor that cannot be used here.
    #[error("the cursor {0}")]
    BadCursor(#[from] crate::cursor::CursorError),
    /// A delete of a range without bounds.
    #[error(
        "name start, end or prefix, each with a value that is not empty; or send all=true to delete without a \
         bound"
    )]
    UnboundedDelete,
    /// The body is not in the form that the route reads.
    #[error("{0}")]
    BadBody(String),
    /// A batch with too many rows.
    #[error("a batch has at most {max} {what}, this one has more")]
    BatchTooLarge {
        /// Rows or keys.
        what: &'static str,
        /// The maximum.
        max: usize,
    },
    /// A value that cannot be stored.
    #[error("{0}")]
    BadValue(#[from] RowError),
    /// A row of a batch has expired already: it is skipped, or refuses an atomic batch.
    #[error("it has expired already")]
    RowExpired,
    /// The body is of a coding that the route does not read.
    #[error("'content-encoding': this route reads {accepted}")]
    UnsupportedCoding {
        /// Codings that the route reads, as in `Accept-Encoding`.
        accepted: &'static str,
    },
    /// A batch is not read in the format of its media type.
    #[error("a batch is lines of JSON (application/x-ndjson) or CSV in UTF-8 (text/csv): {reason}")]
    BatchFormat {
        /// Why the media type is refused.
        reason: String,
    },
    /// The body of a route of the admin API is not JSON by its media type.
    #[error("the admin API reads JSON: send 'content-type: application/json'{}", sent_text(.sent.as_deref()))]
    BodyNotJson {
        /// The media type that was sent, if one was.
        sent: Option<String>,
    },
    /// The value is stored in a coding that the client does not accept.
    #[error("the value is stored as {stored}, which 'accept-encoding' does not accept")]
    NotAcceptable {
        /// Content encoding of the stored value.
        stored: String,
    },
    /// The body could not be read.
    #[error("{0}")]
    Body(#[from] BodyError),
    /// The body is not the one whose digest was sent.
    #[error("'content-digest': the body has another SHA-256")]
    DigestMismatch,
    /// The value has no byte of the part that is asked for.
    #[error("'range': the value has only {len} bytes, all outside of the range")]
    RangeNotSatisfiable {
        /// Length of the value, in bytes.
        len: u64,
    },
    /// The caller may not do this.
    #[error("'{caller}' holds no grant '{permission}' on namespace '{namespace}'")]
    Forbidden {
        /// The caller.
        caller: String,
        /// The permission it lacks.
        permission: &'static str,
        /// The namespace.
        namespace: String,
    },
    /// An operator has blocked the key.
    #[error("an operator has blocked this key for its abnormal usage")]
    KeyBlocked,
    /// The maximum number of readers waits for the key.
    #[error("too many readers wait for this key; back off")]
    TooManyReaders,
    /// The name of the server in the request may belong to a foreign page, and no token is required.
    #[error(
        "'host' is '{host}', which is not a known name of this server; use an address, localhost or a name \
         without a dot, list this name in server.hosts, or create a token"
    )]
    ForeignHost {
        /// The name.
        host: String,
    },
    /// A page of another origin sent a change, and no token is required.
    #[error(
        "'{field}' is '{value}', so a page of another origin sent this change; list its origin in \
         server.cors_origins, which is for the data plane, or create a token"
    )]
    ForeignOrigin {
        /// The header that shows the other origin.
        field: &'static str,
        /// Its value.
        value: String,
    },
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
    /// A row of a batch was refused in this way when the batch was first sent with the same idempotency
    /// key.
    #[error("{0}")]
    Replayed(Box<Self>),
    /// The store refused the write because of the state of the rows or the idempotency records.
    #[error("{}", cause::refused_text(.0))]
    WriteRefused(WriteError),
    /// The store failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The deadline passed while the store worked.
    #[error("the store did not finish within the {}", timeout_text(*.timeout))]
    DeadlineInStore {
        /// The shard that did not answer, if it is only one.
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
        /// Why the removal ended.
        source: StoreError,
    },
    /// The deadline passed before the store was asked.
    #[error("the {} were used up before the store was asked", timeout_text(*.timeout))]
    DeadlineBeforeStore {
        /// The shard that would have been asked, if it is only one.
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
    /// The dispatcher's limit of requests in flight is reached.
    #[error("the limit of {max} requests in flight is reached ('server.requests_in_flight_max')")]
    TooManyInFlight {
        /// The bound.
        max: usize,
    },
    /// The memory limit for pending answers is reached, in total or for this connection.
    #[error("{}", answers_full_text(*.0))]
    AnswerMemoryFull(Full),
    /// The response would be larger than a multi-get may be.
    #[error("the rows before this one fill the answer; ask for this one again")]
    AnswerFull,
    /// There is no record of a request.
    #[error("there is no record of request '{id}': {why}")]
    NotRecorded {
        /// The id.
        id: String,
        /// Possible reasons.
        why: String,
    },
    /// No request of an id runs.
    #[error("no request '{0}' runs on this server")]
    NotRunning(String),
    /// An operator has ended the request; the text has the operator and the reason.
    #[error("{0}")]
    Killed(String),
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

fn nearest_text(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || "; GET /openapi.json lists the known headers".to_owned(),
        |nearest| format!("; did you mean '{nearest}'?"),
    )
}

fn sent_text(sent: Option<&str>) -> String {
    sent.map_or_else(String::new, |sent| format!(", not '{sent}'"))
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

const fn answers_full_text(full: Full) -> &'static str {
    match full {
        Full::Holder => {
            "the answers that this connection has not read have reached its share of the memory limit \
             ('server.answer_memory')"
        }
        Full::Server | Full::Requests => {
            "the memory limit for answers that clients have not read is reached ('server.answer_memory')"
        }
    }
}

impl From<UnknownCoding> for RequestError {
    fn from(UnknownCoding: UnknownCoding) -> Self {
        Self::UnsupportedCoding {
            accepted: ContentCoding::ALL,
        }
    }
}

impl From<InflateError> for RequestError {
    fn from(error: InflateError) -> Self {
        match error {
            InflateError::TooLarge { len_max } => Self::Body(BodyError::TooLarge {
                len_max: len_max as u64,
            }),
            InflateError::NoRoom { full, .. } => Self::Body(BodyError::NoRoom(full)),
            InflateError::Malformed(_) => Self::BadBody(format!("the body: {error}")),
        }
    }
}

impl RequestError {
    /// Returns the code of the contract.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::RouteNotFound => ErrorCode::RouteNotFound,
            Self::MethodNotAllowed { .. } => ErrorCode::MethodNotAllowed,
            Self::Control(error) => control_code(error),
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
            Self::BadHeader { .. }
            | Self::UnknownHeader { .. }
            | Self::BadValue(RowError::ContentFieldTooLong(_)) => ErrorCode::InvalidHeader,
            Self::BadCursor(_) => ErrorCode::InvalidCursor,
            Self::NotInEngine(_) => ErrorCode::NotImplemented,
            Self::UnboundedDelete => ErrorCode::UnboundedDelete,
            Self::BadBody(_) | Self::RowExpired => ErrorCode::InvalidBody,
            Self::BatchTooLarge { .. } | Self::AnswerFull => ErrorCode::BatchTooLarge,
            Self::BadValue(RowError::ValueTooLarge(_) | RowError::LongerThanAny(_)) => {
                ErrorCode::ValueTooLarge
            }
            Self::UnsupportedCoding { .. } => ErrorCode::UnsupportedCoding,
            Self::BatchFormat { .. } => ErrorCode::UnsupportedFormat,
            Self::BodyNotJson { .. } => ErrorCode::BodyNotJson,
            Self::NotAcceptable { .. } => ErrorCode::NotAcceptable,
            Self::Body(BodyError::TooLarge { .. }) => ErrorCode::BodyTooLarge,
            Self::Body(BodyError::TimedOut { .. }) => ErrorCode::RequestTimeout,
            Self::Body(BodyError::Aborted { .. }) => ErrorCode::ClientClosed,
            Self::DigestMismatch => ErrorCode::DigestMismatch,
            Self::RangeNotSatisfiable { .. } => ErrorCode::RangeNotSatisfiable,
            Self::Forbidden { .. } => ErrorCode::Forbidden,
            Self::ForeignHost { .. } => ErrorCode::ForeignHost,
            Self::ForeignOrigin { .. } => ErrorCode::ForeignOrigin,
            Self::KeyBlocked => ErrorCode::AbnormalUsageDetected,
            Self::TooManyReaders => ErrorCode::TooManyReaders,
            Self::KeyNotFound => ErrorCode::KeyNotFound,
            Self::PreconditionFailed { .. } | Self::GroupAborted { .. } => {
                ErrorCode::PreconditionFailed
            }
            Self::Replayed(error) => error.code(),
            Self::WriteRefused(error) => write_code(error),
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
            Self::TooManyInFlight { .. } | Self::Body(BodyError::GaveWay(Full::Requests)) => {
                ErrorCode::TooManyRequestsInFlight
            }
            Self::Body(BodyError::NoRoom(_) | BodyError::GaveWay(_)) => ErrorCode::BodyMemoryFull,
            Self::AnswerMemoryFull(_) => ErrorCode::AnswerMemoryFull,
            Self::NotRecorded { .. } => ErrorCode::RecordNotFound,
            Self::NotRunning(_) => ErrorCode::RequestNotRunning,
            Self::Killed(_) => ErrorCode::RequestKilled,
            // No client chooses the form of a value.
            Self::BadValue(RowError::BadForm(_)) | Self::Internal(_) => ErrorCode::Internal,
        }
    }

    /// Returns whether the deadline passed, before or after the store was asked.
    pub fn is_late(&self) -> bool {
        let code = self.code();
        matches!(
            code,
            ErrorCode::DeadlineBeforeStore | ErrorCode::DeadlineInStore
        )
    }

    /// Returns the shard concerned.
    pub fn shard(&self) -> Option<ShardId> {
        match self {
            Self::RangeCutShort { source, .. } => store_shard(source),
            Self::Store(error) => store_shard(error),
            Self::Shed(report) => Some(report.shard),
            Self::Rejected(rejection) => rejection.shard,
            Self::Control(error) => control_shard(error),
            Self::DeadlineInStore { shard, .. } | Self::DeadlineBeforeStore { shard, .. } => *shard,
            _ => None,
        }
    }
}
