//! One request and its answer, as operators see them: id, times, sizes, how it ended.
//!
//! Begun when the request is recognised, settled when it is dropped, so that no exit forgets to
//! count: an answer, an early return, a client that left, a panic. For a streamed page it lives as
//! long as the stream. What the request is charged is its `charge`.
//!
//! Hot path.

mod charge;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::HeaderValue;
use umbo_hotkey::Terms;
use umbo_quota::ShardShare;
use umbo_shed::Entry;
use umbo_telemetry::metrics::{InFlight, RequestMetrics};
use umbo_telemetry::trace::{Summary, Trace, Verb};
use umbo_types::{Caller, CallerId, Criticality, Operation, ShardId, Verb as Grant};

use self::charge::Charge;
pub(crate) use self::charge::is_unbegun;
use crate::classify::Context;
use crate::failure::Failure;
use crate::fields::Fields;
use crate::namespaces::NamespaceEntry;
use crate::pod::Dispatcher;
use crate::random;
use crate::request_id::RequestId;
use crate::shield::Passage;
use crate::wait::{self, Call};

/// A request under way.
#[derive(Debug)]
pub(crate) struct Exchange {
    pod: Arc<Dispatcher>,
    operation: Operation,
    started: Instant,
    request_id: RequestId,
    trace: Option<Trace>,
    traceparent: Option<HeaderValue>,
    namespace: Option<Arc<NamespaceEntry>>,
    caller: Option<Arc<Caller>>,
    criticality: Option<Criticality>,
    code: Option<&'static str>,
    _in_flight: InFlight<Arc<RequestMetrics>>,
    /// 0 until it is known; a request that ends so was left by its client.
    status: u16,
    shard: Option<ShardId>,
    store_time: Option<Duration>,
    /// How the answer came by, of reads that can be shared.
    passage: Option<Passage>,
    charge: Charge,
    request_bytes: u64,
    response_bytes: u64,
    wants_timing: bool,
}

impl Exchange {
    /// Begins an exchange. `origin` stands for the client where the request has no id of its own.
    pub(crate) fn begin(
        pod: &Arc<Dispatcher>,
        operation: Operation,
        fields: &Fields<'_>,
        origin: u64,
        started: Instant,
    ) -> Self {
        if is_bounded(operation) {
            pod.in_flight.fetch_add(1, Ordering::Relaxed);
        }
        let traceparent = fields.traceparent.map(HeaderValue::as_bytes);
        let request_id = pod.request_ids.of(fields.request_id);
        Self {
            pod: Arc::clone(pod),
            operation,
            started,
            charge: Charge::new(request_id.claimant(origin)),
            request_id,
            trace: pod.tracer.begin(traceparent, started),
            traceparent: fields.traceparent.cloned(),
            namespace: None,
            caller: None,
            criticality: None,
            code: None,
            _in_flight: InFlight::begin(Arc::clone(&pod.metrics), operation),
            status: 0,
            shard: None,
            store_time: None,
            passage: None,
            request_bytes: 0,
            response_bytes: 0,
            wants_timing: fields.prefer.is_some() && fields.is_preferred("umbo-timing"),
        }
    }

    /// Refuses the request where the pod has as many in flight as it takes.
    pub(crate) fn check_in_flight(&self) -> Result<(), Failure> {
        let max = self.pod.limits.requests_in_flight_max;
        if self.pod.in_flight.load(Ordering::Relaxed) > max {
            return Err(Failure::TooManyInFlight { max });
        }
        Ok(())
    }

    /// Notes where the request has got to, where it is traced.
    pub(crate) fn verb(&mut self, verb: Verb) {
        if let Some(trace) = &mut self.trace {
            trace.verb(verb, self.pod.clock.monotonic());
        }
    }

    /// Notes who calls.
    pub(crate) fn classified(&mut self, caller: Arc<Caller>) {
        self.caller = Some(caller);
    }

    /// Says whether the caller administers the namespace.
    pub(crate) fn is_by_admin(&self) -> bool {
        let (Some(caller), Some(namespace)) = (&self.caller, &self.namespace) else {
            return false;
        };
        caller.is_allowed(Grant::Admin, &namespace.info.name)
    }

    /// Notes the tier in effect.
    pub(crate) fn ranked(&mut self, criticality: Criticality) {
        self.criticality = Some(criticality);
    }

    /// Returns the tier in effect.
    pub(crate) fn criticality(&self) -> Criticality {
        self.criticality.unwrap_or_default()
    }

    /// Notes the namespace.
    pub(crate) fn named(&mut self, namespace: &Arc<NamespaceEntry>) {
        self.namespace = Some(Arc::clone(namespace));
    }

    /// Notes the shard that alone the request concerns, and debits its quotas.
    pub(crate) fn located(&mut self, shard: ShardId) -> Result<(), Failure> {
        self.shard = Some(shard);
        let whole = [ShardShare { shard, parts: 1 }];
        self.admit_shards(&whole, self.started)
    }

    /// Returns the shard that alone the request concerns; none where it is not known or not one.
    pub(crate) const fn shard(&self) -> Option<ShardId> {
        self.shard
    }

    /// Notes the size of the request body.
    pub(crate) fn received(&mut self, bytes: usize) {
        self.request_bytes += bytes as u64;
    }

    /// Notes bytes of the answer's body.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.response_bytes += bytes as u64;
    }

    /// Notes that the store has answered and how long it took; adds up where it is asked more than
    /// once.
    pub(crate) fn stored(&mut self, time: Duration) {
        self.store_time = Some(self.store_time.unwrap_or_default() + time);
        if let Some(trace) = &mut self.trace {
            let now = self.pod.clock.monotonic();
            trace.verb(Verb::Fetch, now.checked_sub(time).unwrap_or(now));
            trace.verb(Verb::Settle, now);
        }
    }

    /// Sheds the request where the gate of its shard would, before more is done for it.
    pub(crate) fn turn_away(&self, shard: ShardId, context: &Context) -> Result<(), Failure> {
        wait::turn_away(&self.pod, shard, self.operation, || self.entry(context))
    }

    fn entry(&self, context: &Context) -> Entry {
        Entry {
            criticality: self.criticality(),
            caller: self.caller_hash(),
            price: self.charged(),
            deadline: context.deadline,
        }
    }

    /// Returns what the gate of a shard is told of the request.
    pub(crate) fn call(&self, context: &Context) -> Call {
        Call {
            operation: self.operation,
            entry: self.entry(context),
            timeout: context.timeout,
            payer: self.payer_id(),
            names: self.names_for_shards(),
            is_continued: false,
            traceparent: self
                .trace
                .as_ref()
                .map(|trace| trace.traceparent().to_string().into()),
        }
    }

    /// Notes how the answer came by. Waiting for the read of another one is no time of the store.
    pub(crate) fn passed(&mut self, passage: Passage) {
        self.charge.is_shared = passage.is_shared();
        if !passage.is_read() {
            self.store_time = None;
        }
        if passage.is_kept() {
            self.release_shards();
        }
        self.passage = Some(passage);
    }

    /// Returns how the answer came by, of reads that can be shared.
    pub(crate) const fn passage(&self) -> Option<Passage> {
        self.passage
    }

    /// Returns what the shield is told of the request.
    pub(crate) fn terms(&self, context: &Context) -> Terms {
        Terms {
            now: self.started,
            criticality: self.criticality(),
            age_max: context.freshness.age_max,
            random: random::next(),
        }
    }

    /// Returns when the request began.
    pub(crate) const fn started(&self) -> Instant {
        self.started
    }

    /// Returns who calls.
    pub(crate) fn caller_id(&self) -> Result<&CallerId, Failure> {
        let caller = self.caller.as_ref().map(|caller| &caller.id);
        caller.ok_or_else(|| Failure::Internal("a request was read for nobody".to_owned()))
    }

    /// Notes the status of the answer.
    pub(crate) fn answered(&mut self, status: u16) {
        self.status = status;
    }

    /// Notes why the request was refused or failed.
    pub(crate) fn refused(&mut self, failure: &Failure) {
        self.code = Some(failure.code().as_str());
        self.pod.metrics.record_refused(failure.code() as usize);
        self.close_failed(failure);
    }

    /// Notes that a stream broke off.
    pub(crate) fn stream_failed(&mut self, failure: &Failure) {
        self.status = failure.code().status();
        self.refused(failure);
        self.pod.metrics.record_stream_aborted();
    }

    /// Returns the operation.
    pub(crate) const fn operation(&self) -> Operation {
        self.operation
    }

    /// Returns the id of the request.
    pub(crate) const fn request_id(&self) -> &RequestId {
        &self.request_id
    }

    /// Returns the value of `Server-Timing`, where the client asked for it.
    pub(crate) fn server_timing(&self) -> Option<HeaderValue> {
        if !self.wants_timing {
            return None;
        }
        let millis = |time: Duration| time.as_secs_f64() * 1_000.0;
        let total = millis(self.pod.clock.monotonic() - self.started);
        // What is served from memory took no time of the store.
        let store_time = self.store_time.or(self.passage.map(|_| Duration::ZERO));
        let text = match store_time {
            Some(store) => format!("store;dur={:.3}, total;dur={total:.3}", millis(store)),
            None => format!("total;dur={total:.3}"),
        };
        HeaderValue::from_str(&text).ok()
    }
}

impl Exchange {
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
            code: self.code,
            request_id: self.request_id.as_str(),
            response_bytes: self.response_bytes,
        }
    }
}

/// Says whether an operation counts towards the bound on requests in flight. Operators are let in
/// when services are not.
const fn is_bounded(operation: Operation) -> bool {
    !matches!(operation, Operation::Admin | Operation::Service)
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let ended = self.pod.clock.monotonic();
        self.record_charge();
        if is_bounded(self.operation) {
            self.pod.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
        let metrics = &self.pod.metrics;
        let elapsed = ended.saturating_duration_since(self.started);
        metrics.record(
            self.operation,
            self.status,
            elapsed,
            self.request_bytes,
            self.response_bytes,
        );
        if let Some(time) = self.store_time {
            metrics.record_store(self.operation, time);
        }
        let tracer = &self.pod.tracer;
        if let Some(trace) = self.trace.take() {
            tracer.finish(trace, &self.summary(), self.started, ended);
        } else if tracer.is_late(self.status, elapsed) {
            let traceparent = self.traceparent.as_ref().map(HeaderValue::as_bytes);
            tracer.late(traceparent, &self.summary(), self.started, ended);
        }
    }
}
