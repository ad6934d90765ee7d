//! A failure becomes a problem body (RFC 9457): the text for the client, and the time of a retry.
//!
//! The texts for the client and for the log are separate: paths and causes stay inside. No match over
//! codes has a wildcard.

pub(crate) mod shed;

use http::HeaderValue;
use umbo_api::{ErrorCode, Outcome, Problem, Scope};
use umbo_control::ControlError;
use umbo_edge::body::BodyError;
use umbo_edge::memory::Full;
use umbo_store::StoreError;
use umbo_types::Operation;

use self::shed::jittered;
use crate::rejection;
use crate::request_error::RequestError;
use crate::request_id::RequestId;

/// Wait before jitter if a node had no place for a request.
const NODE_BUSY_WAIT_MS: u64 = 100;

/// The content of a problem in addition to its error.
#[derive(Debug)]
pub struct FailedRequest<'a> {
    /// Id of the request.
    pub request_id: &'a RequestId,
    /// The operation that failed.
    pub operation: Operation,
    /// Whether it may have changed something: the problem then tells the outcome.
    pub is_change: bool,
    /// The signed ticket of its rejection.
    pub retry_ticket: Option<HeaderValue>,
}

/// Makes the problem of a refused or failed request.
pub fn of_request(failure: &RequestError, request: &FailedRequest<'_>) -> Problem {
    let mut problem = of_row(failure);
    problem.request_id.push_str(request.request_id.as_str());
    if !failure.code().is_answer() {
        problem.why = Some(format!("umbo why {}", request.request_id.as_str()));
    }
    if request.is_change {
        let outcome = failure.effect();
        problem.outcome = Some(outcome);
        problem.retry.safe &= outcome == Outcome::NotApplied;
    }
    problem
}

/// Makes the problem of a failure without the request, as for a row of an answer.
pub fn of_row(failure: &RequestError) -> Problem {
    if let RequestError::Replayed(first) = failure {
        return of_row(first);
    }
    let code = failure.code();
    let mut problem = Problem::new(code, detail(failure));
    problem.shard = failure.shard().map(|shard| shard.0);
    problem.scope = match failure {
        RequestError::Body(BodyError::NoRoom(Full::Holder) | BodyError::GaveWay(Full::Holder)) => {
            Some(Scope::Caller)
        }
        _ => code.scope(),
    };
    if let RequestError::PreconditionFailed {
        current: Some(version),
    }
    | RequestError::Control(ControlError::ConditionFailed {
        current: Some(version),
    }) = failure
    {
        problem.etag = Some(format!("\"{}\"", version.0));
    }
    problem.retry.after_ms = wait_ms(code).map(jittered);
    if let RequestError::Shed(report) = failure {
        problem.retry.after_ms = Some(shed::wait_ms(report));
        problem.tier = Some(report.tier.as_str().to_owned());
        problem.signal = Some(report.reason.as_str().to_owned());
    }
    if let RequestError::Rejected(rejection) = failure {
        rejection::describe(rejection, &mut problem);
    }
    if let RequestError::Control(ControlError::TokenUnknown { token, .. }) = failure {
        problem.token = Some(token.token.clone());
    }
    if let RequestError::Store(StoreError::NodeBusy { .. }) = failure {
        problem.retry.after_ms = Some(jittered(NODE_BUSY_WAIT_MS));
    }
    problem
}

/// Returns the text for the client, without causes and paths.
pub fn detail(failure: &RequestError) -> String {
    match failure {
        RequestError::Store(error) => store_detail(error),
        RequestError::Control(error) => control_detail(error),
        RequestError::RangeCutShort { rows, source } => {
            let why = match source {
                StoreError::DeadlinePassed { .. } => "the deadline passed".to_owned(),
                source => store_detail(source),
            };
            format!(
                "at least {rows} rows were removed, then {why}; send the request again for the rest"
            )
        }
        RequestError::Internal(_) => ErrorCode::Internal.meaning().to_owned(),
        other => other.to_string(),
    }
}

fn store_detail(error: &StoreError) -> String {
    match error {
        StoreError::Unavailable { shard, .. } => format!("shard {shard} is unavailable"),
        StoreError::Io { shard, .. } => format!("the disk of shard {shard} failed"),
        StoreError::Corrupt { shard, .. } => {
            format!("shard {shard} holds a damaged row")
        }
        other => other.to_string(),
    }
}

fn control_detail(error: &ControlError) -> String {
    match error {
        ControlError::RecordsAway { shard, .. } => {
            format!("the home of Umbo's own records, shard {shard}, is away")
        }
        ControlError::RecordsUnreadable(_) => ErrorCode::RecordsUnreadable.meaning().to_owned(),
        ControlError::TokenUnknown { token, source } => {
            let (id, why) = (&token.info.id, control_detail(source));
            format!(
                "it is not known whether token '{id}' was made: {why}; if it was, it is 'token'"
            )
        }
        ControlError::ConditionFailed { current } => {
            let current = *current;
            RequestError::PreconditionFailed { current }.to_string()
        }
        ControlError::Store(error) => store_detail(error),
        ControlError::Internal(_) => ErrorCode::Internal.meaning().to_owned(),
        other => other.to_string(),
    }
}

/// Returns how long to wait before a repetition can help, in milliseconds.
const fn wait_ms(code: ErrorCode) -> Option<u64> {
    match code {
        ErrorCode::AnswerMemoryFull
        | ErrorCode::BodyMemoryFull
        | ErrorCode::WriteQueueFull
        | ErrorCode::TooManyReaders
        | ErrorCode::TooManyRequestsInFlight
        | ErrorCode::UploadGone => Some(100),
        ErrorCode::StorageFailed => Some(500),
        ErrorCode::NamespaceBeingRemoved
        | ErrorCode::RecordsUnavailable
        | ErrorCode::ShardUnavailable
        | ErrorCode::ShuttingDown => Some(1_000),
        ErrorCode::IdempotencyFull
        | ErrorCode::RecordsStale
        | ErrorCode::RecordsUnreadable
        | ErrorCode::StorageFull => Some(5_000),
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
        let busy = of_row(&RequestError::Store(StoreError::NodeBusy { shard }));
        assert_eq!((busy.status, busy.scope), (503, Some(Scope::Shard)));
        let wait = busy.retry.after_ms.unwrap();
        assert!(busy.retry.safe && (100..=120).contains(&wait), "{wait}");
    }

    #[test]
    fn a_client_is_told_no_path() {
        let shard = ShardId(3);
        let reason = "secret/shard-003.redb: torn".to_owned();
        let source = StoreError::Corrupt { shard, reason };
        for failure in [
            RequestError::Store(source.clone()),
            RequestError::RangeCutShort { rows: 7, source },
        ] {
            let problem = of_row(&failure);
            assert!(!problem.detail.contains("secret"), "{}", problem.detail);
            assert_eq!(problem.shard, Some(3));
        }
    }
}
