//! One request as operators see it: id, times, sizes, how it ended.
//!
//! A guard, begun when the request is recognised: metrics and span are written when it is dropped, so that no
//! exit forgets to count: an answer, an early return, a client that left, a panic. For a streamed page it lives
//! until the stream ends. If the request leaves a record, the log becomes that record.
//!
//! Hot path.

mod record;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderValue;
use umbo_api::ErrorCode;
use umbo_api::error_code::ErrorKind;
use umbo_control::NamespaceEntry;
use umbo_edge::body::InFlightRequest;
use umbo_edge::memory::{ConnectionAnswers, Full};
use umbo_http::{CacheStatus, Fields, RequestError, RequestId, Timing, problem};
use umbo_observe::request_records::{self as records, ChargeRecord, KeptAs};
use umbo_telemetry::metrics::RequestOutcome;
use umbo_telemetry::trace::{Phase, Summary, Trace};
use umbo_types::{Caller, CallerId, Criticality, Deadline, Operation, ShardId};

use crate::answer_room::AnswerRoom;
use crate::dispatcher::Dispatcher;
use crate::long_poll::LongPoll;
use crate::request_recorder::is_answer;
use crate::store_call::StoreTime;

/// The end of a request, gathered while its charge still exists.
#[derive(Debug)]
struct RequestEnd {
    at: Instant,
    /// Time since its begin, without the wait of a long poll.
    elapsed: Duration,
    /// Why it leaves a record, if it does.
    kept_as: Option<KeptAs>,
    charge: Option<ChargeEnd>,
}

/// The charge of a request for its record.
#[derive(Debug)]
pub(crate) struct ChargeEnd {
    /// The payer.
    pub(crate) payer: CallerId,
    /// The charge and its policies; `None` if the operation has no price.
    pub(crate) charge: Option<Box<ChargeRecord>>,
}

/// A request under way.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts of one request, each told by itself"
)]
pub(crate) struct RequestLog {
    pub(crate) dispatcher: Arc<Dispatcher>,
    operation: Operation,
    started: Instant,
    request_id: RequestId,
    trace: Option<Trace>,
    traceparent: Option<HeaderValue>,
    /// Attributes of the span that are known so far.
    caller: Option<Arc<Caller>>,
    namespace: Option<Arc<NamespaceEntry>>,
    criticality: Option<Criticality>,
    shard: Option<ShardId>,
    code: Option<ErrorCode>,
    outcome: RequestOutcome,
    /// 0 until it is known; a request that ends so was left by its client.
    status: u16,
    store_time: Option<StoreTime>,
    /// When a shard was first asked for.
    asked: Option<Instant>,
    /// The current phase.
    phase: Phase,
    /// Source of the result, for reads that can be shared.
    cache_status: Option<CacheStatus>,
    /// The end of the request and its record, gathered before the guard is dropped.
    end: Option<RequestEnd>,
    request_bytes: u64,
    response_bytes: u64,
    /// Text of an error for the client, if the rest of the record does not tell it.
    detail: Option<Box<str>>,
    wants_timing: bool,
    /// Whether the tier in effect is lower than the claimed one.
    is_lowered: bool,
    /// Whether this is the answer to an earlier request with the same idempotency key.
    is_replayed: bool,
    /// Whether it may change something: an error then says whether it did.
    is_change: bool,
    /// The wait of a request that may be a long poll.
    long_poll: Option<Arc<LongPoll>>,
    /// The resources of the answer.
    pub(crate) room: AnswerRoom,
}

impl RequestLog {
    /// Begins the log of a request. `answers` is the share of its connection in the memory of answers.
    pub(crate) fn begin(
        dispatcher: &Arc<Dispatcher>,
        operation: Operation,
        fields: &Fields<'_>,
        answers: Arc<ConnectionAnswers>,
        started: Instant,
    ) -> Self {
        dispatcher.begin_request(operation);
        let in_flight = InFlightRequest::new(Arc::clone(dispatcher) as _, operation);
        let traceparent = fields.traceparent.map(HeaderValue::as_bytes);
        Self {
            dispatcher: Arc::clone(dispatcher),
            operation,
            started,
            request_id: dispatcher.request_ids.of(fields.request_id),
            trace: dispatcher.tracer.begin(traceparent, started),
            traceparent: fields.traceparent.cloned(),
            caller: None,
            namespace: None,
            criticality: None,
            shard: None,
            code: None,
            outcome: RequestOutcome::Served,
            status: 0,
            store_time: None,
            asked: None,
            phase: Phase::Classify,
            cache_status: None,
            end: None,
            detail: None,
            request_bytes: 0,
            response_bytes: 0,
            wants_timing: fields.prefer.is_some() && fields.is_preferred("umbo-timing"),
            is_lowered: false,
            is_replayed: false,
            is_change: operation.is_write(),
            long_poll: None,
            room: AnswerRoom::new(answers, in_flight),
        }
    }

    /// Records which phase the request is in.
    pub(crate) fn phase(&mut self, phase: Phase) {
        // A failure is encoded too, but the record names the phase before.
        if phase != Phase::Encode {
            self.phase = phase;
        }
        if let Some(trace) = &mut self.trace {
            trace.phase(phase, self.dispatcher.clock.monotonic());
        }
    }

    /// Records that a shard is asked for, the first time, and returns when that was.
    pub(crate) fn asks(&mut self) -> Instant {
        let clock = &self.dispatcher.clock;
        *self.asked.get_or_insert_with(|| clock.monotonic())
    }

    /// Records who calls.
    pub(crate) fn called_by(&mut self, caller: &Arc<Caller>) {
        self.caller = Some(Arc::clone(caller));
    }

    /// Records the tier in effect, and whether the request claimed a higher one.
    pub(crate) fn ranked(&mut self, criticality: Criticality, is_lowered: bool) {
        self.criticality = Some(criticality);
        self.is_lowered = is_lowered;
    }

    /// Returns the tier in effect, if the request claimed a higher one.
    pub(crate) fn lowered_criticality(&self) -> Option<Criticality> {
        self.criticality.filter(|_| self.is_lowered)
    }

    /// Records the namespace.
    pub(crate) fn named(&mut self, namespace: &Arc<NamespaceEntry>) {
        self.namespace = Some(Arc::clone(namespace));
    }

    /// Records the only shard that the request concerns; `None` if there are several or none.
    pub(crate) fn located(&mut self, shard: Option<ShardId>) {
        self.shard = shard;
    }

    /// Records bytes of the request's body.
    pub(crate) fn received(&mut self, bytes: usize) {
        self.request_bytes += bytes as u64;
    }

    /// Records bytes of the answer's body.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.response_bytes += bytes as u64;
    }

    /// Records that the store has answered and how long it took. Adds up the times of several calls.
    pub(crate) fn stored(&mut self, time: StoreTime) {
        *self.store_time.get_or_insert_default() += time;
        self.phase = Phase::Fetch;
        if let Some(trace) = &mut self.trace {
            let now = self.dispatcher.clock.monotonic();
            trace.phase(Phase::Fetch, now.checked_sub(time.taken).unwrap_or(now));
            trace.phase(Phase::Settle, now);
        }
    }

    /// Takes back that the store has answered: other requests were to ask it for this one, and failed.
    pub(crate) fn not_stored(&mut self) {
        self.store_time = None;
        self.phase = Phase::Wait;
    }

    /// Returns the charged time of the store.
    pub(crate) fn charged_time(&self) -> Duration {
        self.store_time.unwrap_or_default().charged
    }

    /// Records whether this is the answer to an earlier request with the same idempotency key.
    pub(crate) fn replayed(&mut self, is_replayed: bool) {
        self.is_replayed = is_replayed;
    }

    /// Returns whether this is the answer to an earlier request with the same idempotency key.
    pub(crate) const fn is_replayed(&self) -> bool {
        self.is_replayed
    }

    /// Records the source of the result. The wait for another request's read is no store time.
    pub(crate) fn served_by(&mut self, status: CacheStatus) {
        if !status.is_read() {
            self.store_time = None;
        }
        self.cache_status = Some(status);
    }

    /// Returns the source of the result, for reads that can be shared.
    pub(crate) const fn cache_status(&self) -> Option<CacheStatus> {
        self.cache_status
    }

    /// Waits, until a deadline, for room for an answer of `len_min` to `len_max` bytes, if it is likely to need
    /// any.
    pub(crate) async fn reserve_answer(
        &mut self,
        dispatcher: &Dispatcher,
        deadline: Deadline,
        len_min: usize,
        len_max: usize,
    ) -> Result<(), RequestError> {
        let timeout = || {
            let remaining = deadline.remaining(dispatcher.clock.monotonic());
            remaining.min(dispatcher.limits.default_timeout)
        };
        let memory = &dispatcher.answer_memory;
        self.room.reserve(memory, len_min, len_max, timeout).await
    }

    /// Holds the memory of a finished answer of `len` bytes. Without room the answer is shed, unless the
    /// request is a write, which was applied.
    pub(crate) fn hold_answer(&mut self, len: usize) -> Result<(), RequestError> {
        if self.operation.is_write() {
            self.hold_answer_in_any_case(len);
            return Ok(());
        }
        self.room.hold(&self.dispatcher.answer_memory, len)
    }

    /// Holds memory for an answer that is being made, of at least `len` bytes, if there is room now.
    pub(crate) fn try_grow_answer(&mut self, len: usize) -> Result<(), Full> {
        self.room.try_grow(&self.dispatcher.answer_memory, len)
    }

    /// Holds the memory of an answer that is given whether or not there is room for it.
    pub(crate) fn hold_answer_in_any_case(&mut self, len: usize) {
        self.room
            .hold_in_any_case(&self.dispatcher.answer_memory, len);
    }

    /// Waits for room for the next piece of a stream; the room asked for is the length of the last piece.
    pub(crate) async fn reserve_piece(&mut self) -> Result<(), RequestError> {
        let timeout = self.dispatcher.limits.default_timeout;
        let memory = &self.dispatcher.answer_memory;
        self.room.reserve(memory, 0, usize::MAX, || timeout).await
    }

    /// Ties the memory that a piece of a stream holds to its bytes.
    pub(crate) fn hold_piece(&mut self, piece: Bytes, is_last: bool) -> Bytes {
        let memory = &self.dispatcher.answer_memory;
        self.room.hold_piece(memory, piece, is_last)
    }

    /// Records the status of the answer.
    pub(crate) fn answered(&mut self, status: u16) {
        self.status = status;
    }

    /// Records why the request was refused or failed.
    pub(crate) fn refused(&mut self, error: &RequestError) {
        let code = error.code();
        self.code = Some(code);
        self.outcome = outcome(code);
        // The rest of the record tells the text of these errors, and they may be many.
        if !is_answer(self.code)
            && !matches!(error, RequestError::Rejected(_) | RequestError::Shed(_))
        {
            self.detail = Some(records::detail(&problem::detail(error)));
        }
        if self.shard.is_none() {
            self.shard = error.shard();
        }
        self.outcome = outcome(code);
        self.dispatcher.metrics.record_refused(code as usize);
    }

    /// Records that a stream broke off.
    pub(crate) fn stream_failed(&mut self, error: &RequestError) {
        self.status = error.code().status();
        self.refused(error);
        self.dispatcher.metrics.record_stream_aborted();
    }

    /// Returns whether the request was refused or failed.
    pub(crate) const fn is_refused(&self) -> bool {
        self.code.is_some()
    }

    /// Does not count the wait of `long_poll` as time of the request.
    pub(crate) fn waits_by(&mut self, long_poll: Arc<LongPoll>) {
        self.long_poll = Some(long_poll);
    }

    /// Records that the request may change Umbo's own records.
    pub(crate) fn changes_records(&mut self) {
        self.is_change = true;
    }

    /// Returns whether the request may change something.
    pub(crate) const fn is_change(&self) -> bool {
        self.is_change
    }

    /// Returns the operation.
    pub(crate) const fn operation(&self) -> Operation {
        self.operation
    }

    /// Returns when the request began.
    pub(crate) const fn started(&self) -> Instant {
        self.started
    }

    /// Returns the id of the request.
    pub(crate) const fn request_id(&self) -> &RequestId {
        &self.request_id
    }

    /// Returns the `traceparent` for calls of the store, if the request is traced.
    pub(crate) fn traceparent(&self) -> Option<Box<str>> {
        let trace = self.trace.as_ref();
        trace.map(|trace| trace.traceparent().to_string().into())
    }

    /// Returns the times of the store and the request, if the client asked for them.
    pub(crate) fn timing(&self) -> Option<Timing> {
        self.wants_timing.then(|| Timing {
            // A result from memory took no time of the store.
            store: self
                .store_time
                .map(|time| time.taken)
                .or(self.cache_status.map(|_| Duration::ZERO)),
            total: self.dispatcher.clock.monotonic() - self.started,
        })
    }

    fn summary(&self) -> Summary<'_> {
        Summary {
            operation: self.operation,
            status: self.status,
            namespace: self
                .namespace
                .as_ref()
                .map(|entry| entry.info.name.as_str()),
            shard: self.shard,
            caller: self.caller.as_ref().map(|caller| caller.id.as_str()),
            criticality: self.criticality,
            code: self.code.map(ErrorCode::as_str),
            request_id: self.request_id.as_str(),
            response_bytes: self.response_bytes,
        }
    }
}

impl RequestLog {
    /// Ends the request; its record does not change afterwards. `charge` is called for the charge and the
    /// payer, if the request leaves a record.
    pub(crate) fn end(&mut self, charge: impl FnOnce(Instant) -> Option<ChargeEnd>) {
        let at = self.dispatcher.clock.monotonic();
        let waited = self.long_poll.as_ref().map(|poll| poll.waited(at));
        let elapsed = at
            .saturating_duration_since(self.started)
            .saturating_sub(waited.unwrap_or_default());
        let recorder = &self.dispatcher.recorder;
        let kept_as = recorder.kept_as(self.operation, self.status, self.code, elapsed);
        self.end = Some(RequestEnd {
            at,
            elapsed,
            kept_as,
            charge: kept_as.and_then(|_| charge(at)),
        });
    }
}

/// Returns the outcome that is counted for a request that was answered with a problem. An absent row and a
/// false condition count as served.
fn outcome(code: ErrorCode) -> RequestOutcome {
    match (code, code.kind()) {
        (ErrorCode::KeyNotFound | ErrorCode::PreconditionFailed, _) => RequestOutcome::Served,
        (_, ErrorKind::Refused) => RequestOutcome::Refused,
        (_, ErrorKind::Rejected) => RequestOutcome::Rejected,
        (_, ErrorKind::Shed) => RequestOutcome::Shed,
        (_, ErrorKind::Failed) => RequestOutcome::Failed,
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        if self.end.is_none() {
            self.end(|_| None);
        }
        let end = self.end.as_ref();
        let (ended, elapsed) =
            end.map_or((self.started, Duration::ZERO), |end| (end.at, end.elapsed));
        let is_left_waiting = self
            .long_poll
            .as_ref()
            .is_some_and(|poll| poll.is_under_way());
        let metrics = &self.dispatcher.metrics;
        let outcome = match self.status {
            // The client left before the request was answered.
            0 if !is_left_waiting => RequestOutcome::Failed,
            _ => self.outcome,
        };
        metrics.record_outcome(self.operation, self.criticality, outcome);
        if outcome != RequestOutcome::Served
            && let Some(namespace) = &self.namespace
        {
            let name = &namespace.info.name;
            let place = *namespace
                .place
                .get_or_init(|| metrics.namespace_place(name));
            metrics.record_namespace_error(place, outcome);
        }
        metrics.record(
            self.operation,
            self.status,
            elapsed,
            self.request_bytes,
            self.response_bytes,
        );
        if let Some(time) = self.store_time {
            metrics.record_store(self.operation, time.taken);
        }
        let tracer = &self.dispatcher.tracer;
        if let Some(trace) = self.trace.take() {
            tracer.finish(trace, &self.summary(), self.started, ended);
        } else if tracer.is_late(self.status, elapsed) {
            let traceparent = self.traceparent.as_ref().map(HeaderValue::as_bytes);
            tracer.late(traceparent, &self.summary(), self.started, ended);
        }
        if let Some(end) = self.end.take()
            && let Some(kept_as) = end.kept_as
        {
            let record = self.record(end, kept_as);
            self.dispatcher.recorder.keep(record);
        }
    }
}
