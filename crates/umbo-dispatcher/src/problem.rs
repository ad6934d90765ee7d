//! A failure becomes a problem body (RFC 9457): what a client is told, and when to come back.
//!
//! What a client is told is kept apart from what the log says: paths and causes stay inside. No
//! wildcard stands where codes are told apart.

pub(crate) mod shed;

use umbo_api::{ErrorCode, Outcome, Problem, Scope};
use umbo_store::StoreError;

use self::shed::jittered;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::rejection;

/// Wait after a node had no place for a request, before jitter.
const NODE_BUSY_WAIT_MS: u64 = 100;

/// Makes the problem of a refused or failed request.
pub(crate) fn of_request(failure: &Failure, exchange: &Exchange) -> Problem {
    let mut problem = of_part(failure, exchange);
    problem.request_id.push_str(exchange.request_id().as_str());
    if exchange.operation().is_write() {
        let outcome = outcome(failure);
        problem.outcome = Some(outcome);
        problem.retry.safe &= outcome == Outcome::NotApplied;
    }
    problem
}

/// Makes the problem of a failure that stands in a row of an answer.
pub(crate) fn of_part(failure: &Failure, exchange: &Exchange) -> Problem {
    let mut problem = of_row(failure);
    // A node says which policy is spent; what it allows is known here.
    if let Failure::Store(StoreError::QuotaExceeded {
        policy, observed, ..
    }) = failure
        && let Some((policy, limit)) = exchange.spent_at_node(policy)
    {
        problem.status = policy.status;
        problem.limit = Some(rejection::limit(policy.unit, limit));
        problem.observed = observed.map(|atoms| rejection::observed(policy.unit, atoms));
    }
    problem
}

/// The same, as far as the failure tells it.
fn of_row(failure: &Failure) -> Problem {
    let code = failure.code();
    let mut problem = Problem::new(code, detail(failure));
    problem.shard = failure.shard().map(|shard| shard.0);
    problem.scope = scope(code);
    if let Failure::PreconditionFailed {
        current: Some(version),
    } = failure
    {
        problem.etag = Some(format!("\"{}\"", version.0));
    }
    problem.retry.after_ms = wait_ms(code).map(jittered);
    if let Failure::Shed(report) = failure {
        problem.retry.after_ms = Some(shed::wait_ms(report));
        problem.tier = Some(report.tier.as_str().to_owned());
        problem.signal = Some(report.signal.as_str().to_owned());
    }
    if let Failure::Rejected(rejection) = failure {
        rejection::describe(rejection, &mut problem);
    }
    match failure {
        Failure::Store(StoreError::NodeBusy { .. }) => {
            problem.retry.after_ms = Some(jittered(NODE_BUSY_WAIT_MS));
        }
        // The node has added what keeps those who wait apart.
        Failure::Store(StoreError::QuotaExceeded {
            policy,
            retry_after,
            ..
        }) => {
            problem.scope = Some(Scope::Shard);
            problem.policy = Some(policy.clone());
            problem.retry.after_ms = Some(rejection::wait_ms(*retry_after));
        }
        _ => {}
    }
    problem
}

/// Says whether a failed write took effect.
pub(crate) const fn outcome(failure: &Failure) -> Outcome {
    match failure {
        Failure::Store(error) => match error.outcome() {
            umbo_store::Outcome::Applied => Outcome::Applied,
            umbo_store::Outcome::NotApplied => Outcome::NotApplied,
            umbo_store::Outcome::Unknown => Outcome::Unknown,
        },
        Failure::DeadlineInStore { .. } | Failure::RangeCutShort { .. } | Failure::Internal(_) => {
            Outcome::Unknown
        }
        _ => Outcome::NotApplied,
    }
}

/// Returns what a client is told; causes and paths are for the log.
fn detail(failure: &Failure) -> String {
    match failure {
        Failure::Store(StoreError::Unavailable { shard, .. }) => {
            format!("shard {shard} is unavailable")
        }
        Failure::Store(StoreError::Io { shard, .. }) => {
            format!("the disk of shard {shard} failed")
        }
        Failure::Store(StoreError::Corrupt { shard, .. }) => {
            format!("shard {shard} holds a row that is not what was written")
        }
        Failure::RangeCutShort { rows, source } => {
            let why = match source {
                StoreError::DeadlinePassed { .. } => "the deadline passed".to_owned(),
                source => detail(&Failure::Store(source.clone())),
            };
            format!(
                "at least {rows} rows were removed, then {why}; send the request again for the rest"
            )
        }
        Failure::Internal(_) => ErrorCode::Internal.meaning().to_owned(),
        other => other.to_string(),
    }
}

const fn scope(code: ErrorCode) -> Option<Scope> {
    match code {
        ErrorCode::Overloaded
        | ErrorCode::ShardUnavailable
        | ErrorCode::StorageFailed
        | ErrorCode::StorageFull
        | ErrorCode::DataDamaged
        | ErrorCode::WriteQueueFull => Some(Scope::Shard),
        ErrorCode::BodyMemoryFull
        | ErrorCode::TooManyRequestsInFlight
        | ErrorCode::HotKeysDisabled
        | ErrorCode::ShuttingDown => Some(Scope::Pod),
        ErrorCode::Forbidden | ErrorCode::QuotaExceeded | ErrorCode::Unauthenticated => {
            Some(Scope::Caller)
        }
        ErrorCode::NamespaceNotFound => Some(Scope::Namespace),
        ErrorCode::AbnormalUsageDetected | ErrorCode::TooManyReaders => Some(Scope::Partition),
        ErrorCode::BatchTooLarge
        | ErrorCode::BodyTooLarge
        | ErrorCode::ClientClosed
        | ErrorCode::DeadlineBeforeStore
        | ErrorCode::DeadlineInStore
        | ErrorCode::HeadersTooLarge
        | ErrorCode::HotKeyNotListed
        | ErrorCode::HotListFull
        | ErrorCode::Internal
        | ErrorCode::InvalidBody
        | ErrorCode::InvalidCursor
        | ErrorCode::InvalidHeader
        | ErrorCode::InvalidKey
        | ErrorCode::InvalidQuery
        | ErrorCode::InvalidRequest
        | ErrorCode::KeyNotFound
        | ErrorCode::KeyTooLarge
        | ErrorCode::LastAdmin
        | ErrorCode::MethodNotAllowed
        | ErrorCode::PreconditionFailed
        | ErrorCode::QuotaInvalid
        | ErrorCode::QuotaNotFound
        | ErrorCode::QuotaOfFile
        | ErrorCode::RequestTimeout
        | ErrorCode::RouteNotFound
        | ErrorCode::TokenNotFound
        | ErrorCode::TokenOfFile
        | ErrorCode::UnboundedDelete
        | ErrorCode::UriTooLong
        | ErrorCode::ValueTooLarge => None,
    }
}

/// Returns how long to wait before a repetition can help, in milliseconds.
const fn wait_ms(code: ErrorCode) -> Option<u64> {
    match code {
        ErrorCode::BodyMemoryFull
        | ErrorCode::WriteQueueFull
        | ErrorCode::TooManyReaders
        | ErrorCode::TooManyRequestsInFlight => Some(100),
        ErrorCode::StorageFailed => Some(500),
        ErrorCode::ShardUnavailable | ErrorCode::ShuttingDown => Some(1_000),
        ErrorCode::StorageFull => Some(5_000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use umbo_types::ShardId;

    use super::*;

    #[test]
    fn what_a_node_turns_away_is_told_like_what_a_dispatcher_does() {
        let shard = ShardId(3);
        let busy = of_row(&Failure::Store(StoreError::NodeBusy { shard }));
        assert_eq!((busy.status, busy.scope), (503, Some(Scope::Shard)));
        let wait = busy.retry.after_ms.unwrap();
        assert!(busy.retry.safe && (100..=120).contains(&wait), "{wait}");
        let spent = of_row(&Failure::Store(StoreError::QuotaExceeded {
            shard,
            policy: "ceiling".to_owned(),
            retry_after: std::time::Duration::from_micros(349_001),
            observed: None,
        }));
        assert_eq!((spent.status, spent.scope), (429, Some(Scope::Shard)));
        assert_eq!(spent.policy.as_deref(), Some("ceiling"));
        assert_eq!((spent.shard, spent.retry.after_ms), (Some(3), Some(350)));
    }

    #[test]
    fn a_client_is_told_no_path() {
        let shard = ShardId(3);
        let reason = "secret/shard-003.redb: torn".to_owned();
        let source = StoreError::Corrupt { shard, reason };
        for failure in [
            Failure::Store(source.clone()),
            Failure::RangeCutShort { rows: 7, source },
        ] {
            let problem = of_row(&failure);
            assert!(!problem.detail.contains("secret"), "{}", problem.detail);
            assert_eq!(problem.shard, Some(3));
        }
    }
}
