//! The closed list of error codes, with total functions over it.
//!
//! The list is the contract: every refusal and failure of the HTTP interface has one of these codes. Each code has a
//! status and a meaning, and says whether the same request may succeed later. Three words are kept apart: *rejected*
//! (the caller's quota, or a blocked key), *shed* (the server's overload), *failed* (something broke).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a refusal concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The caller.
    Caller,
    /// The namespace.
    Namespace,
    /// The partition.
    Partition,
    /// The shard.
    Shard,
    /// This dispatcher.
    Pod,
    /// All dispatchers.
    Fleet,
}

macro_rules! scope {
    (Request) => {
        None
    };
    ($scope:ident) => {
        Some(Scope::$scope)
    };
}

macro_rules! error_codes {
    ($($variant:ident $name:literal $status:literal $retry:literal $scope:ident $title:literal $meaning:literal;)+) => {
        /// Why a request was refused or failed. The name is stable; match on it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ErrorCode {
            $(#[doc = $meaning] $variant,)+
        }

        impl ErrorCode {
            /// All codes, alphabetically.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the stable name, the last part of a problem's `type`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Returns the HTTP status. A policy may replace the status of [`Self::QuotaExceeded`].
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ }
            }

            /// Returns whether the same request may succeed later without any change to it.
            pub const fn is_retryable(self) -> bool {
                match self { $(Self::$variant => $retry,)+ }
            }

            /// Returns what a refusal with this code concerns beyond the request, or `None`.
            pub const fn scope(self) -> Option<Scope> {
                match self { $(Self::$variant => scope!($scope),)+ }
            }

            /// Returns the short summary, the same for every occurrence.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)+ }
            }

            /// Returns what happened and what to do about it.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)+ }
            }
        }
    };
}

error_codes! {
    AbnormalUsageDetected "abnormal-usage-detected" 429 false Partition "Rejected: the key is blocked"
        "An operator has blocked this key because of how it was used. Other keys are served. Ask the operator, who lifts it with: umbo hot unblock.";
    AnswerMemoryFull "answer-memory-full" 503 true Pod "Shed: no memory for the answer"
        "The memory limit for answers that clients have not taken is reached, in total or for this connection. Nothing was applied. Read the pending answers, and back off.";
    BatchTooLarge "batch-too-large" 413 false Request "Batch too large"
        "The batch has more rows, keys or bytes than a batch may have. Split it.";
    BodyMemoryFull "body-memory-full" 503 true Pod "Shed: no memory for the body"
        "The memory limit for request bodies is reached, and this one was shed. Nothing was applied. Back off.";
    BodyNotJson "body-not-json" 415 false Request "Body is not JSON"
        "The admin API reads JSON, and the body is of another media type. Nothing of it was applied. Send it with Content-Type: application/json.";
    BodyTooLarge "body-too-large" 413 false Request "Body too large"
        "The request body is longer than this route reads. Nothing of it was applied.";
    ClientClosed "client-closed" 400 true Request "Body cut off"
        "The connection ended before the request body did. Nothing was applied.";
    DataDamaged "data-damaged" 500 false Shard "Stored data is damaged"
        "The checksum of a stored row is wrong. Restore the shard's file, which the server's log names.";
    DeadlineBeforeStore "deadline-before-store" 504 true Request "Deadline passed before the store began"
        "The caller's timeout ran out before the store began the work. Nothing was applied.";
    DeadlineInStore "deadline-in-store" 504 true Request "Deadline passed in the store"
        "The store did not finish in the time the caller gave. A write may or may not have been applied: repeat it with the same Idempotency-Key, if it had one; otherwise read it back, or repeat it with a condition.";
    DigestMismatch "digest-mismatch" 422 true Request "Body differs from its digest"
        "The SHA-256 of the body differs from Content-Digest: the body was changed on its way, or the digest is wrong. Nothing was applied or kept.";
    Forbidden "forbidden" 403 false Caller "Not allowed"
        "The credential is good but holds no grant for this permission on this namespace.";
    ForeignHost "foreign-host" 403 false Request "Unknown host name"
        "While there is no token, the server answers only under an address, localhost, a name without a dot, a .svc name or a name that server.hosts lists, because any other name may belong to another site. Nothing was applied. Use such a name, list this one in server.hosts, or create a token.";
    ForeignOrigin "foreign-origin" 403 false Request "Change from another origin"
        "While there is no token, pages of other origins may change nothing. Nothing was applied. List the origin in `server.cors_origins` if it may use the data plane, or create a token. A proxy in front of the server has to pass the Host field on as it is.";
    HeadersTooLarge "headers-too-large" 431 false Request "Header fields too large"
        "The request's header fields are too many or too long.";
    HotKeyListed "hot-key-listed" 409 false Request "Key already listed"
        "The key is already pinned or blocked, with another reason or duration. To replace the entry, send If-Match.";
    HotKeyNotListed "hot-key-not-listed" 404 false Request "Key not listed"
        "The key is not pinned or not blocked. Expired entries are no longer listed.";
    HotKeysDisabled "hot-keys-disabled" 409 false Pod "Hot keys are off"
        "Hot keys are switched off: hotkey.enabled is false in the settings of the server.";
    HotListFull "hot-list-full" 409 false Request "List full"
        "The maximum number of keys is pinned or blocked. Take one off the list first.";
    IdempotencyFull "idempotency-full" 507 true Namespace "Idempotency records are full"
        "The idempotency records of the namespace have reached their limit in the shard. Nothing was applied. Wait until records expire, use a shorter Umbo-Idempotency-TTL, or send the write without a key.";
    IdempotencyMismatch "idempotency-mismatch" 422 false Request "Idempotency key of another request"
        "The caller has used this Idempotency-Key for another request in the same partition: another method, row, body, condition or expiry. Nothing was applied. Make a new key for each request.";
    IncrementOverflow "increment-overflow" 409 false Request "Increment out of range"
        "The sum is not a signed 64-bit number. The row stays as it is.";
    Internal "internal" 500 true Request "Internal error"
        "A defect of the server. The request id finds it in the server's log.";
    InvalidBody "invalid-body" 400 false Request "Malformed body"
        "The request body, or a row in it, is malformed. The detail names the place.";
    InvalidCursor "invalid-cursor" 400 false Request "Invalid cursor"
        "The cursor was not made by this server, was changed, or belongs to another request. Start again without one.";
    InvalidHeader "invalid-header" 400 false Request "Malformed header"
        "A header field cannot be read. The detail names it.";
    InvalidKey "invalid-key" 400 false Request "Malformed key"
        "A namespace, partition key or sort key cannot be read. The detail says which and why.";
    InvalidQuery "invalid-query" 400 false Request "Malformed query"
        "A query parameter is unknown, repeated or cannot be read. The detail names it.";
    InvalidRequest "invalid-request" 400 false Request "Malformed request"
        "The request is not valid HTTP.";
    KeyNotFound "key-not-found" 404 false Request "Key not found"
        "The namespace exists, and no visible row has this key.";
    KeyTooLarge "key-too-large" 413 false Request "Key too large"
        "A partition key has at most 1,024 bytes, a sort key at most 2,048.";
    LastAdmin "last-admin" 409 false Request "No administrator would be left"
        "After this change no token could change tokens. Create another token with admin:* first.";
    LoadBuilding "load-building" 409 false Namespace "Another load is building"
        "Another load of mode replace builds the next version of the namespace, or waits to be activated. The detail names it. Finish, activate or abort it first.";
    LoadLimit "load-limit" 409 false Namespace "Too many loads"
        "The namespace has the maximum number of unfinished loads. Finish or abort one of them first.";
    LoadNotFound "load-not-found" 404 false Request "Load not found"
        "The namespace has no load with this id. A load is forgotten some time after it has ended.";
    LoadState "load-state" 409 false Request "Load in another state"
        "The state of the load does not allow this: a sealed load takes no parts, and one that has ended does not change. The detail names the state.";
    MethodNotAllowed "method-not-allowed" 405 false Request "Method not allowed"
        "The route does not take this method. The Allow header lists the methods it takes.";
    NamespaceBeingRemoved "namespace-being-removed" 409 false Namespace "Namespace being removed"
        "A namespace of this name is being removed, and the name is free once every shard has confirmed that. The problem names the shards that have not. If one of them never comes back, an operator says so with: umbo ns rm NAME --abandon-shard SHARD.";
    NamespaceExists "namespace-exists" 409 false Namespace "Namespace exists"
        "A namespace of this name exists and has other settings. PATCH changes settings; PUT with If-Match replaces them.";
    NamespaceHasRows "namespace-has-rows" 409 false Namespace "Namespace has rows"
        "A load that keeps row versions needs a namespace without rows: the versions of rows that are there could go back. Load into a new namespace, or give the rows new versions.";
    NamespaceNotFound "namespace-not-found" 404 false Namespace "Namespace not found"
        "No namespace has this name. An administrator creates one with: umbo ns create NAME.";
    NeedsExactWrites "needs-exact-writes" 409 false Namespace "Namespace has fast writes"
        "The namespace has fast writes, which change rows without reading them: there are no conditions, increments, idempotency keys, loads and large values.";
    NotANumber "not-a-number" 409 false Request "Value is not a number"
        "The value to be incremented is not the decimal text of a signed 64-bit number. The row stays as it is.";
    NotAcceptable "not-acceptable" 406 false Request "Not acceptable"
        "The value is stored in a content coding that Accept-Encoding does not accept, and that Umbo cannot decode.";
    NotImplemented "not-implemented" 501 false Request "Not in this engine"
        "The engine that keeps the rows does not do this. The detail says what, and what to use instead.";
    OffsetMismatch "offset-mismatch" 409 false Request "Wrong upload offset"
        "The piece does not begin where the stored bytes of the part end. Continue at the offset that Upload-Offset and the detail name.";
    Overloaded "overloaded" 503 true Shard "Shed: the shard is overloaded"
        "The shard that owns the key cannot keep up, so requests of lower tiers are shed first. The problem names tier, signal and wait. Nothing was applied.";
    PartDiffers "part-differs" 409 false Request "Part differs"
        "The load has a part of this number with other bytes or in another format. A complete part is never replaced; abort the load to begin again.";
    PartNotFound "part-not-found" 404 false Request "Part not found"
        "Nothing of this part was uploaded.";
    PartsMissing "parts-missing" 409 false Request "Parts are missing"
        "The load lacks parts below the number that the request names. The detail lists them. Upload them, and seal the load again.";
    PreconditionFailed "precondition-failed" 412 false Request "Precondition failed"
        "The condition of If-Match or If-None-Match was false. The answer has the current tag, if there is one.";
    QuotaExceeded "quota-exceeded" 429 true Caller "Rejected: quota spent"
        "The caller's quota under a policy is used up. Nothing was applied. The problem names the policy, its limit, the recent rate in its unit, and how long to wait.";
    QuotaExists "quota-exists" 409 false Request "Policy exists"
        "A different policy of this name is stored. To replace it, send its tag in If-Match.";
    QuotaInvalid "quota-invalid" 400 false Request "Invalid policy"
        "The policy contradicts itself, or has a value that cannot be read. The detail names the place and both values. Nothing was changed.";
    QuotaNotFound "quota-not-found" 404 false Request "Policy not found"
        "No policy has this name.";
    QuotaOfFile "quota-of-file" 409 false Request "Policy of the policy file"
        "The policy is defined in the server's policy file. Change it there; the server reloads the file.";
    RangeNotSatisfiable "range-not-satisfiable" 416 false Request "Range not satisfiable"
        "The value has no bytes in the requested range. Content-Range gives its length.";
    RecordNotFound "record-not-found" 404 false Request "Request not recorded"
        "This server has no record of a request with this id. It records refused, failed and slow requests and a sample of the others, until newer ones replace them; the detail says for how long. Another server may have answered the request.";
    RecordsStale "records-stale" 503 true Pod "Own records too old"
        "For longer than its settings allow, this server could not confirm that its records (namespaces, tokens, policies) are the newest. Nothing was applied. Other servers may serve.";
    RecordsUnavailable "records-unavailable" 503 true Shard "Own records cannot be changed"
        "The shard that holds Umbo's own records (namespaces, tokens, policies, lists) is unavailable. Nothing was applied; requests for rows are served from the last copy.";
    RecordsUnreadable "records-unreadable" 503 true Pod "Own records cannot be read"
        "The server cannot read the newest of Umbo's own records: they are damaged, or a newer version wrote them. Nothing was applied. The server's log names the record; until it can be read, the last good records are in effect.";
    RequestKilled "request-killed" 409 false Request "Ended by an operator"
        "An operator has ended the request: the detail says why. Continue a stream with its last cursor; a write may have been applied.";
    RequestNotRunning "request-not-running" 404 false Request "Request not running"
        "No request with this id runs on this server, or it is too new to be listed. Another server of the cluster may serve it: `umbo ps` asks all of them.";
    RequestTimeout "request-timeout" 408 true Request "Request too slow"
        "The request did not arrive in time. Nothing of it was applied.";
    RouteNotFound "route-not-found" 404 false Request "Route not found"
        "This server has no route with this path.";
    ShardUnavailable "shard-unavailable" 503 true Shard "Shard unavailable"
        "The shard that owns this partition cannot serve now. Other partitions are served.";
    ShuttingDown "shutting-down" 503 true Pod "Shutting down"
        "This server is stopping. Another one will serve.";
    StorageFailed "storage-failed" 503 true Shard "Storage failed"
        "The disk under the shard failed a write. The outcome member says whether the write was applied; reads go on.";
    StorageFull "storage-full" 507 true Shard "Storage full"
        "The disk under the shard is full. Reads go on; writes succeed again once there is room.";
    TokenNotFound "token-not-found" 404 false Request "Token not found"
        "No token has this id.";
    TokenOfFile "token-of-file" 409 false Request "Token of the token file"
        "The token is defined in the server's token file. Remove it there; the server reloads the file.";
    TooManyReaders "too-many-readers" 503 true Partition "Shed: too many readers of one key"
        "Too many readers wait for this key, and this one was shed. Back off.";
    TooManyRequestsInFlight "too-many-in-flight" 503 true Pod "Shed: too many requests in flight"
        "The server has too many requests in flight and shed this one. Back off.";
    Unauthenticated "unauthenticated" 401 false Caller "Not authenticated"
        "The request carries no token, or one that is malformed, unknown, expired or revoked.";
    UnboundedDelete "unbounded-delete" 400 false Request "Unbounded delete"
        "The delete of a range has no bound or an empty one. Name start, end or prefix, or send all=true.";
    UnsupportedCoding "unsupported-coding" 415 false Request "Unsupported content coding"
        "This route does not read the content coding of the body. The Accept-Encoding header lists the codings it reads.";
    UnsupportedFormat "unsupported-format" 415 false Request "Unsupported format"
        "This route does not read the media type or content coding of the rows. The detail lists those it reads.";
    UploadGone "upload-gone" 503 true Shard "Bytes of a large value are gone"
        "Bytes of a large value were missing when its row was to be stored: the upload paused for too long, or the namespace was replaced meanwhile. Nothing was applied. Send the value again.";
    UriTooLong "uri-too-long" 414 false Request "URI too long"
        "The request target is longer than any key needs.";
    ValueTooLarge "value-too-large" 413 false Request "Value too large"
        "A value has at most 67,108,864 bytes, and one in a batch at most 1,048,576: put a longer one by itself, or load it.";
    VersionInUse "version-in-use" 409 false Namespace "Version in use"
        "The version is the live one, or is being built. Activate another version, or abort the load that builds it.";
    VersionNotFound "version-not-found" 404 false Namespace "Version not found"
        "The namespace has no version of this number, and never had one.";
    VersionNotReady "version-not-ready" 409 false Namespace "Version not ready"
        "The load that builds the version has not finished. The detail names its state.";
    VersionSuperseded "version-superseded" 409 false Namespace "Version dropped"
        "The version was dropped: later ones were activated, its load failed or was aborted, or it was removed. For a rollback: the namespace has no version to go back to.";
    WriteQueueFull "write-queue-full" 503 true Shard "Shed: write queue full"
        "The shard has too many writes waiting and shed this one. Nothing was applied. Back off.";
}

/// The four kinds of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request cannot be served as it is.
    Refused,
    /// The caller's quota is used up, or an operator has blocked the key.
    Rejected,
    /// The server had too much to do.
    Shed,
    /// Something broke, or took too long.
    Failed,
}

impl ErrorKind {
    /// Returns the name used in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Rejected => "rejected",
            Self::Shed => "shed",
            Self::Failed => "failed",
        }
    }
}

impl ErrorCode {
    /// Returns the kind of this problem.
    pub const fn kind(self) -> ErrorKind {
        match self {
            Self::AbnormalUsageDetected | Self::QuotaExceeded => ErrorKind::Rejected,
            Self::AnswerMemoryFull
            | Self::BodyMemoryFull
            | Self::Overloaded
            | Self::TooManyReaders
            | Self::TooManyRequestsInFlight
            | Self::WriteQueueFull => ErrorKind::Shed,
            Self::NotImplemented => ErrorKind::Refused,
            code if code.status() < 500 => ErrorKind::Refused,
            _ => ErrorKind::Failed,
        }
    }

    /// Returns whether the code is a regular answer to the question asked: no such row, or a false condition.
    pub const fn is_answer(self) -> bool {
        matches!(self, Self::KeyNotFound | Self::PreconditionFailed)
    }

    /// Returns the `type` of a problem with this code: a path where the server explains the code.
    pub fn type_uri(self) -> String {
        format!("/v1/errors/{}", self.as_str())
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text is not an error code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no such error code: '{0}'")]
pub struct UnknownErrorCode(pub String);

impl FromStr for ErrorCode {
    type Err = UnknownErrorCode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = text.rsplit('/').next().unwrap_or(text);
        Self::ALL
            .iter()
            .copied()
            .find(|code| code.as_str() == name)
            .ok_or_else(|| UnknownErrorCode(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_read_back() {
        let mut names: Vec<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ErrorCode::ALL.len(), "a name stands twice");
        for code in ErrorCode::ALL {
            assert_eq!(code.type_uri().parse::<ErrorCode>().unwrap(), *code);
        }
    }

    #[test]
    fn codes_are_declared_by_variant() {
        let variants: Vec<_> = ErrorCode::ALL
            .iter()
            .map(|code| format!("{code:?}"))
            .collect();
        assert!(variants.is_sorted(), "{variants:?}");
    }

    #[test]
    fn the_three_words_are_kept_apart() {
        for code in ErrorCode::ALL {
            let title = code.title();
            assert_eq!(
                code.kind() == ErrorKind::Rejected,
                title.starts_with("Rejected: ")
            );
            assert_eq!(code.kind() == ErrorKind::Shed, title.starts_with("Shed: "));
            assert_eq!(
                code.kind() == ErrorKind::Rejected,
                code.status() == 429,
                "{code}"
            );
        }
    }

    #[test]
    fn a_retryable_code_is_never_a_client_mistake() {
        for code in ErrorCode::ALL.iter().filter(|code| code.is_retryable()) {
            assert!(
                code.status() >= 500
                    || matches!(code.status(), 400 | 408 | 422)
                    || code.kind() == ErrorKind::Rejected,
                "{code}"
            );
        }
    }
}
