//! How one request is sent, repeated and turned into an answer or an [`Error`].
//!
//! The timeout of a call is a budget for all its attempts: each attempt sends the server the rest of it.
//! The wait for its turn in paced work comes before and does not count. The body of a streamed answer may
//! take longer; the timeout then bounds each wait for more bytes.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::HeaderMap;
use reqwest::{Method, Response};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use umbo_api::{Outcome, header};

use crate::answer::{charged, quota_state, refusal};
use crate::call::Call;
use crate::client::{Client, chain};
use crate::concern::RequestScope;
use crate::error::Error;
use crate::flow::{UnderWay, result};
use crate::pacer::{Sent, ServerFeedback};
use crate::request::RepeatableRequest;
use crate::retry::{Failures, Repeat};
use crate::tls;

/// How much longer than the server's deadline the client waits, so that the server's own answer
/// to a passed deadline still arrives.
const GRACE: Duration = Duration::from_secs(2);
/// Most bytes of a body that is read whole.
const BODY_LEN_MAX: usize = 64 << 20;

/// The part of an answer that a call reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// The header fields; the body is not read.
    Head,
    /// The whole body of the answer.
    Body,
    /// A body that is read later and tells its charge at its end.
    Stream,
}

/// A successful answer whose body is not read yet.
#[derive(Debug)]
pub(crate) struct StreamedBody {
    pub(crate) response: Response,
    /// Whether an earlier attempt may have been applied.
    pub(crate) is_in_doubt: bool,
    /// The request that the charge at the end of the body belongs to, if work is paced.
    pub(crate) sent: Option<Sent>,
}

/// Whether an attempt of a write may have been applied without an answer that says so.
#[derive(Debug, Default)]
struct Doubt {
    is_in_doubt: bool,
}

impl Doubt {
    /// Records the failure of an attempt before the next one.
    fn note(&mut self, request: &RepeatableRequest, error: &Error) {
        self.is_in_doubt |= request.is_write && error.outcome() == Outcome::Unknown;
    }

    /// Returns the error of the call after its last attempt. If the last attempt was not applied, an
    /// earlier one may have been, unless the server decided by the idempotency key.
    fn told(&self, request: &RepeatableRequest, error: Error) -> Error {
        let is_decided = request.is_keyed && error.is_decision();
        if self.is_in_doubt && !is_decided && error.outcome() == Outcome::NotApplied {
            Error::Unconfirmed {
                last: Box::new(error),
            }
        } else {
            error
        }
    }
}

impl Client {
    /// Sends a request and repeats it if that is safe and may help. Returns a successful answer; its body
    /// is not read yet.
    pub(crate) async fn send(&self, request: &RepeatableRequest) -> Result<Response, Error> {
        let (streamed, _) = self.attempts(request, Wanted::Head).await?;
        Ok(streamed.response)
    }

    /// Like [`Client::send`], for a body that tells its charge at its end.
    pub(crate) async fn send_for_stream(
        &self,
        request: &RepeatableRequest,
    ) -> Result<StreamedBody, Error> {
        let (streamed, _) = self.attempts(request, Wanted::Stream).await?;
        Ok(streamed)
    }

    /// Like [`Client::send`], and reads the whole body too; a body cut off is repeated as well.
    pub(crate) async fn send_for_body(&self, request: &RepeatableRequest) -> Result<Bytes, Error> {
        let (_, body) = self.attempts(request, Wanted::Body).await?;
        Ok(body)
    }

    /// Like [`Client::send_for_body`], and returns the headers too.
    pub(crate) async fn send_for_parts(
        &self,
        request: &RepeatableRequest,
    ) -> Result<(HeaderMap, Bytes), Error> {
        let (mut streamed, body) = self.attempts(request, Wanted::Body).await?;
        Ok((std::mem::take(streamed.response.headers_mut()), body))
    }

    /// Like [`Client::send_for_body`], and returns whether an earlier attempt may have been applied.
    pub(crate) async fn send_in_doubt(
        &self,
        request: &RepeatableRequest,
    ) -> Result<(Bytes, bool), Error> {
        let (streamed, body) = self.attempts(request, Wanted::Body).await?;
        Ok((body, streamed.is_in_doubt))
    }

    /// Like [`Client::send_for_body`], and reads the body as JSON.
    pub(crate) async fn send_for_json<T: DeserializeOwned>(
        &self,
        request: &RepeatableRequest,
    ) -> Result<T, Error> {
        let body = self.send_for_body(request).await?;
        serde_json::from_slice(&body).map_err(|error| Error::json(&error))
    }

    /// Reads a document of JSON.
    pub(crate) async fn read<T: DeserializeOwned>(
        &self,
        target: impl Into<String>,
    ) -> Result<T, Error> {
        let request = RepeatableRequest::read(target.into());
        self.send_for_json(&request).await
    }

    /// Makes a call without a body, and reads the answer as JSON.
    pub(crate) async fn change<T: DeserializeOwned>(
        &self,
        method: Method,
        target: String,
        repeat: Repeat,
    ) -> Result<T, Error> {
        let request = RepeatableRequest::new(method, target, repeat);
        self.send_for_json(&request).await
    }

    /// Reads a text.
    pub(crate) async fn read_text(&self, target: &str) -> Result<String, Error> {
        let request = RepeatableRequest::read(target.to_owned());
        let body = self.send_for_body(&request).await?;
        String::from_utf8(body.into())
            .map_err(|_| Error::Malformed("its body is not text".to_owned()))
    }

    async fn attempts(
        &self,
        request: &RepeatableRequest,
        wanted: Wanted,
    ) -> Result<(StreamedBody, Bytes), Error> {
        let (shared, call) = (&self.shared, self.call());
        let flow = &shared.flow;
        let mut under_way = self.enter(request, &call).await?;
        if call.is_new() {
            flow.deposit();
        }
        let deadline = Instant::now() + shared.timeout;
        let mut failures = Failures::default();
        let mut doubt = Doubt::default();
        loop {
            let attempt = self.attempt(request, &call, deadline, under_way, wanted);
            let error = match self.whole(attempt.await, wanted).await {
                Ok((mut streamed, body)) => {
                    streamed.is_in_doubt = doubt.is_in_doubt && !request.is_keyed;
                    return Ok((streamed, body));
                }
                Err(error) => error,
            };
            let random = shared.random.next();
            let wait = shared
                .retry
                .wait(&mut failures, &error, request.repeat, random);
            let Some(wait) = wait.filter(|wait| Instant::now() + *wait < deadline) else {
                return Err(doubt.told(request, error));
            };
            doubt.note(request, &error);
            // The error of the server says more than the fact that no attempt follows.
            if !flow.withdraw() || flow.wait_after(&error, wait).await.is_err() {
                return Err(doubt.told(request, error));
            }
            under_way = match self.enter(request, &call).await {
                Ok(under_way) => under_way,
                Err(_) => return Err(doubt.told(request, error)),
            };
        }
    }

    /// Waits after a failed read for the time that the server or the policy names. Returns whether the
    /// read is to be repeated.
    pub(crate) async fn wait_to_repeat(&self, failures: &mut Failures, error: &Error) -> bool {
        let shared = &self.shared;
        let random = shared.random.next();
        let wait = shared.retry.wait(failures, error, Repeat::Always, random);
        let Some(wait) = wait.filter(|wait| *wait < shared.timeout) else {
            return false;
        };
        shared.flow.withdraw() && shared.flow.wait_after(error, wait).await.is_ok()
    }

    /// Waits until a request may be sent, or fails with why it is given up.
    async fn enter(&self, request: &RepeatableRequest, call: &Call) -> Result<UnderWay<'_>, Error> {
        let shared = &self.shared;
        let kind = RequestScope::of(request, &self.payer);
        if !call.is_due() {
            let random = shared.random.next();
            shared.flow.admit(kind.as_ref(), random)?;
        }
        let entering = shared
            .flow
            .enter(kind.as_ref(), request.load(), call.is_due());
        entering.await
    }

    /// Reads the body too, if `wanted` asks for it.
    async fn whole(
        &self,
        answer: Result<StreamedBody, Error>,
        wanted: Wanted,
    ) -> Result<(StreamedBody, Bytes), Error> {
        let mut streamed = answer?;
        let body = match wanted {
            Wanted::Body => self.body(&mut streamed.response).await?,
            Wanted::Head | Wanted::Stream => Bytes::new(),
        };
        Ok((streamed, body))
    }

    async fn attempt(
        &self,
        request: &RepeatableRequest,
        call: &Call,
        deadline: Instant,
        under_way: UnderWay<'_>,
        wanted: Wanted,
    ) -> Result<StreamedBody, Error> {
        let shared = &self.shared;
        let left = deadline.saturating_duration_since(Instant::now());
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
        let url = format!("{}{}", shared.base, request.target);
        let mut builder = shared
            .http
            .request(request.method.clone(), url)
            .headers(self.payer.clone())
            .headers(request.headers.clone())
            .header(header::TIMEOUT_MS, left_ms)
            .header(header::REQUEST_ID, call.id());
        if let Some(number) = call.next_attempt() {
            builder = builder.header(header::ATTEMPT, number);
        }
        if let Some(ticket) = call.take_ticket() {
            builder = builder.header(header::RETRY_TICKET, ticket);
        }
        let sending = builder.body(request.attempt_body()).send();
        let response = tokio::time::timeout(left + GRACE, sending)
            .await
            .map_err(|_| Error::Timeout(shared.timeout))?
            .map_err(|error| self.transport(&error))?;
        call.keep_ticket(response.headers().get(header::RETRY_TICKET));
        let quota = quota_state(response.headers());
        let charged = charged(response.headers()).filter(|_| wanted != Wanted::Stream);
        let answer = if response.status().is_success() {
            Ok(response)
        } else {
            Err(self.refusal(response).await)
        };
        let error = answer.as_ref().err();
        let kind = RequestScope::of(request, &self.payer);
        shared.flow.note(kind.as_ref(), error);
        call.set_due(
            error.is_some_and(|error| error.is_overload() && error.retry_after().is_some()),
        );
        let sent = under_way.answered(&ServerFeedback {
            quota,
            charged,
            result: result(error),
        });
        answer.map(|response| StreamedBody {
            response,
            is_in_doubt: false,
            sent,
        })
    }

    async fn refusal(&self, mut response: Response) -> Error {
        match self.body(&mut response).await {
            Ok(body) => refusal(response.status().as_u16(), response.headers(), &body),
            Err(error) => error,
        }
    }

    /// Records the charge at the end of a streamed answer.
    pub(crate) fn charged_late(&self, sent: &Sent, charged: f64) {
        self.shared.flow.charged_late(sent, charged);
    }

    /// Waits for the next bytes of a body, or returns `None` at its end.
    pub(crate) async fn chunk(&self, response: &mut Response) -> Result<Option<Bytes>, Error> {
        let patience = self.shared.timeout + GRACE;
        tokio::time::timeout(patience, response.chunk())
            .await
            .map_err(|_| Error::Timeout(self.shared.timeout))?
            .map_err(|error| self.transport(&error))
    }

    /// Reads a body whole, up to a bound.
    pub(crate) async fn body(&self, response: &mut Response) -> Result<Bytes, Error> {
        let mut body = BytesMut::new();
        while let Some(chunk) = self.chunk(response).await? {
            if body.len() + chunk.len() > BODY_LEN_MAX {
                return Err(Error::Malformed(format!(
                    "its body has more than {BODY_LEN_MAX} bytes"
                )));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }

    fn transport(&self, error: &reqwest::Error) -> Error {
        if let Some(failure) = tls::failure(&self.shared.base, error) {
            return failure;
        }
        if error.is_connect() {
            return Error::Unreachable {
                url: self.shared.base.clone(),
                reason: chain(error),
            };
        }
        Error::Transport(chain(error))
    }
}
