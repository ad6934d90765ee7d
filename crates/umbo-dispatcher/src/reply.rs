//! The end of a request: its outcome becomes a response, and the resources of the request go with the body.
//!
//! Hot path. `umbo-http` writes the response. Here the charge is closed before the response names it, and memory and
//! the place among the requests in flight follow the body.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::Response;
use http_body::Body as _;
use umbo_control::ControlError;
use umbo_edge::body::ReplyBody;
use umbo_edge::memory::ConnectionAnswers;
use umbo_http::problem::FailedRequest;
use umbo_http::{Answer, Fields, RequestError, ResponseMeta, encode};
use umbo_store::StoreError;
use umbo_types::{Operation, RequestUnits};

use crate::charge::Charge;
use crate::dispatcher::Dispatcher;
use crate::large_read::LargeRead;
use crate::long_poll::LongPoll;
use crate::page::{EncodedChunk, PageWalk};
use crate::request_log::RequestLog;

/// The outcome of an operation.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The answer, of a page its first chunk.
    pub(crate) answer: Answer,
    /// The part that is read while the answer is being sent.
    pub(crate) rest: Option<Rest>,
}

/// The part that is read while the answer is being sent: the body becomes a stream that owns the log and the charge.
#[derive(Debug)]
pub(crate) enum Rest {
    /// The rest of a page; more chunks may follow.
    Page(Box<PageWalk>),
    /// The bytes of a large value.
    Large(Box<LargeRead>),
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self { answer, rest: None }
    }
}

impl Reply {
    /// Makes the reply of a page whose first chunk is there.
    pub(crate) fn page(walk: PageWalk, first: EncodedChunk) -> Self {
        Self {
            answer: Answer::Page {
                layout: walk.layout(),
                text: first.text,
            },
            rest: (!first.is_last).then(|| Rest::Page(Box::new(walk))),
        }
    }

    /// Makes the reply of a row whose bytes are read as they are sent.
    pub(crate) fn large(answer: Answer, read: LargeRead) -> Self {
        let rest = Some(Rest::Large(Box::new(read)));
        Self { answer, rest }
    }
}

impl Rest {
    /// Appends the rest to the first part of the body in `response`.
    pub(crate) fn follow(
        self,
        mut response: Response<ReplyBody>,
        log: RequestLog,
        charge: Charge,
    ) -> Response<ReplyBody> {
        let first = match std::mem::take(response.body_mut()) {
            ReplyBody::Full(text) => text,
            _ => Bytes::new(),
        };
        *response.body_mut() = match self {
            Self::Page(walk) => walk.into_body(first, log, charge),
            Self::Large(read) => read.into_body(log, charge),
        };
        response
    }
}

/// Makes the response of an identified request, and returns the rest that is still to be read for it. Log and charge
/// are large and are not moved here: only a rest takes them over. Without a rest they are closed.
#[inline]
pub(crate) fn reply(
    log: &mut RequestLog,
    charge: &mut Charge,
    outcome: Result<Reply, RequestError>,
) -> (Response<ReplyBody>, Option<Rest>) {
    let held = match &outcome {
        Ok(reply) => log.hold_answer(reply.answer.held_len()),
        Err(_) => Ok(()),
    };
    let mut response = match (outcome, held) {
        (Ok(Reply { answer, rest }), Ok(())) => {
            let is_head = matches!(&answer, Answer::Row(row) if row.is_head);
            let mut response = encode::answer(answer);
            if rest.is_some() {
                add_meta(&mut response, log, Some(charge));
                return (response, rest);
            }
            if !is_head {
                log.sent(len_of(&response));
            }
            charge.close();
            response
        }
        // An answer that found no room is refused as a whole.
        (Err(error), _) | (Ok(_), Err(error)) => {
            log.refused(&error);
            charge.close_failed(&error);
            refusal(log, Some(charge), &error)
        }
    };
    finish(&mut response, log, Some(charge));
    (response, None)
}

/// Makes the response to a request that was refused before it had a charge.
pub(crate) fn refuse(mut log: RequestLog, error: &RequestError) -> Response<ReplyBody> {
    log.refused(error);
    let mut response = refusal(&mut log, None, error);
    finish(&mut response, &mut log, None);
    response
}

/// A request below the data plane, counted and answered like all others.
#[derive(Debug)]
pub struct RoutedRequest(RequestLog);

impl RoutedRequest {
    /// Begins the request.
    pub fn begin(
        dispatcher: &Arc<Dispatcher>,
        operation: Operation,
        fields: &Fields<'_>,
        answers: Arc<ConnectionAnswers>,
        started: Instant,
    ) -> Self {
        Self(RequestLog::begin(
            dispatcher, operation, fields, answers, started,
        ))
    }

    /// Does not count the wait of `long_poll` as time of the request.
    pub fn waits_by(&mut self, long_poll: Arc<LongPoll>) {
        self.0.waits_by(long_poll);
    }

    /// Records that the request may change Umbo's own records: an error then says whether it did.
    pub fn changes_records(&mut self) {
        self.0.changes_records();
    }

    /// Makes the response to a request that was refused or failed.
    pub fn refuse(self, error: &RequestError) -> Response<ReplyBody> {
        refuse(self.0, error)
    }

    /// Makes the response of an answer. Operators get their answer even if there is no room for it.
    pub fn answer(
        self,
        head: http::response::Parts,
        body: Bytes,
        is_for_operators: bool,
    ) -> Response<ReplyBody> {
        let mut log = self.0;
        if is_for_operators {
            log.hold_answer_in_any_case(body.len());
        } else if let Err(error) = log.hold_answer(body.len()) {
            return refuse(log, &error);
        }
        log.sent(body.len());
        let mut response = Response::from_parts(head, ReplyBody::from(body));
        finish(&mut response, &mut log, None);
        response
    }
}

fn refusal(
    log: &mut RequestLog,
    charge: Option<&Charge>,
    error: &RequestError,
) -> Response<ReplyBody> {
    write_to_log(log, error);
    let request = FailedRequest {
        request_id: log.request_id(),
        operation: log.operation(),
        is_change: log.is_change(),
        retry_ticket: charge.and_then(|charge| charge.retry_ticket(error)),
    };
    let response = encode::refusal(error, &request);
    log.sent(len_of(&response));
    response
}

fn len_of(response: &Response<ReplyBody>) -> usize {
    response.body().size_hint().lower() as usize
}

fn finish(response: &mut Response<ReplyBody>, log: &mut RequestLog, charge: Option<&Charge>) {
    add_meta(response, log, charge);
    log.end(|at| charge.map(|charge| charge.end(at)));
    // A refusal is small, and a refused request is in flight no more.
    if !log.is_refused()
        && let ReplyBody::Full(bytes) = response.body_mut()
    {
        let bytes = std::mem::take(bytes);
        *response.body_mut() = ReplyBody::Held(log.room.hand_over(bytes));
    }
}

fn add_meta(response: &mut Response<ReplyBody>, log: &mut RequestLog, charge: Option<&Charge>) {
    log.answered(response.status().as_u16());
    let meta = ResponseMeta {
        request_id: log.request_id(),
        charged: charge.map_or(RequestUnits::ZERO, Charge::told),
        left: charge.and_then(Charge::advertised),
        cache: log.cache_status(),
        charged_to: charge.and_then(Charge::charged_to),
        timing: log.timing(),
        is_replayed: log.is_replayed(),
        lowered_criticality: log.lowered_criticality(),
    };
    encode::add_meta(response, meta);
}

fn write_to_log(log: &RequestLog, error: &RequestError) {
    let (request_id, code) = (|| log.request_id().as_str(), error.code().as_str());
    match error {
        RequestError::Internal(_)
        | RequestError::Store(StoreError::Corrupt { .. })
        | RequestError::Control(
            ControlError::Internal(_) | ControlError::Store(StoreError::Corrupt { .. }),
        ) => {
            tracing::error!(request_id = request_id(), code, failure = %error, "failed");
        }
        _ => tracing::debug!(request_id = request_id(), code, failure = %error, "refused"),
    }
}
