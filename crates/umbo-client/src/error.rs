//! Why a call failed: the one error type of the client.

use std::time::Duration;

use umbo_api::{ErrorCode, Outcome, Problem};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address of the server cannot be used.
    #[error("'{url}' is not the address of a server: {reason}")]
    BadUrl {
        /// The address as given.
        url: String,
        /// Why it cannot be used.
        reason: String,
    },
    /// An option cannot be sent.
    #[error("{0}")]
    BadOption(&'static str),
    /// Certificates cannot be read, or TLS with the server fails.
    #[error("TLS: {0}")]
    Tls(String),
    /// The server refused the request or failed, and said why.
    #[error("{}: {}", .problem.title, .problem.detail)]
    Problem {
        /// The problem that it sent.
        problem: Box<Problem>,
    },
    /// An answer that did not come from Umbo, but from another program or a proxy.
    #[error("the answer has status {status} and is not Umbo's: {body}")]
    Foreign {
        /// HTTP status.
        status: u16,
        /// The beginning of its body.
        body: String,
        /// How long it asks to wait.
        retry_after: Option<Duration>,
    },
    /// Not sent, because the server lately rejected or shed too many requests. A later attempt may succeed; one
    /// request a second is sent in any case.
    #[error(
        "not sent: the server accepted {accepts} of the last {requests} requests and answered the others \
         with {status}"
    )]
    GivenUp {
        /// Requests of the last 30 seconds, those given up here included.
        requests: u64,
        /// Requests of the same 30 seconds that the server took.
        accepts: u64,
        /// Status of the last refusal: 419 or 429 (rejected), or 503 (shed).
        status: u16,
    },
    /// Not sent: the client was told to wait no longer.
    #[error("not sent: the client stopped waiting")]
    WaitEnded,
    /// The server was not reached; nothing was sent.
    #[error("cannot connect to {url}: {reason}")]
    Unreachable {
        /// The address of the server.
        url: String,
        /// The message of the system.
        reason: String,
    },
    /// The connection broke after the request was sent, in part or whole.
    #[error("the connection broke: {0}")]
    Transport(String),
    /// No answer in time.
    #[error("no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The outcome of a write is unknown: one attempt got no answer that tells it, and the next attempt got this
    /// error. A condition may be false because of the write itself.
    #[error(
        "it is unknown whether the write was applied: one attempt had no answer, and the next one failed: \
         {last}"
    )]
    Unconfirmed {
        /// The error of the last attempt; by itself it would mean that the write was not applied.
        last: Box<Error>,
    },
    /// A streamed answer ended without its last line, or without all its rows.
    #[error("the answer was cut off after {rows} rows")]
    TruncatedStream {
        /// Rows read before the end.
        rows: u64,
    },
    /// An answer that does not keep to the contract.
    #[error("the answer cannot be read: {0}")]
    Malformed(String),
}

impl Error {
    /// Returns the problem that the server sent, if it sent one.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Problem { problem } => Some(problem),
            // The named time to come back still holds. Other refusals may be an effect of the write itself.
            Self::Unconfirmed { last } => last.problem().filter(|_| last.is_overload()),
            _ => None,
        }
    }

    /// Returns the code of the problem. `None` without a problem, or if the code is from a newer server.
    pub fn code(&self) -> Option<ErrorCode> {
        self.problem().and_then(Problem::code)
    }

    /// Returns the HTTP status, if there was an answer.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Problem { problem } => Some(problem.status),
            Self::Unconfirmed { .. } => self.problem().map(|problem| problem.status),
            Self::Foreign { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Returns whether a write took effect, or that this is unknown.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Problem { problem } => problem.outcome.unwrap_or(if problem.status < 500 {
                Outcome::NotApplied
            } else {
                Outcome::Unknown
            }),
            Self::BadUrl { .. }
            | Self::BadOption(_)
            | Self::Tls(_)
            | Self::GivenUp { .. }
            | Self::WaitEnded
            | Self::Unreachable { .. } => Outcome::NotApplied,
            Self::Unconfirmed { .. }
            | Self::Foreign { .. }
            | Self::Transport(_)
            | Self::Timeout(_)
            | Self::TruncatedStream { .. }
            | Self::Malformed(_) => Outcome::Unknown,
        }
    }

    /// Returns whether the server decided the request by its stored rows. With an idempotency key the decision is the
    /// same for each attempt.
    pub(crate) fn is_decision(&self) -> bool {
        matches!(
            self.code(),
            Some(
                ErrorCode::PreconditionFailed
                    | ErrorCode::KeyNotFound
                    | ErrorCode::NotANumber
                    | ErrorCode::IncrementOverflow
            )
        )
    }

    /// Returns how long the server asks to wait before a repetition.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Problem { problem } => problem.retry.after_ms.map(Duration::from_millis),
            Self::Foreign { retry_after, .. } => *retry_after,
            Self::Unconfirmed { last } => last.retry_after(),
            _ => None,
        }
    }

    /// Returns whether this is Umbo's answer to too many requests, of the caller (419, 429) or of all callers together
    /// (503). Answers of proxies do not count.
    pub fn is_overload(&self) -> bool {
        self.problem()
            .is_some_and(|problem| matches!(problem.status, 419 | 429 | 503))
    }

    pub(crate) fn json(error: &serde_json::Error) -> Self {
        Self::Malformed(error.to_string())
    }
}
