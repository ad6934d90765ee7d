//! Calls of the store: their attributes, and the answer with its time.

use std::ops::AddAssign;
use std::time::Duration;

use umbo_hotkey::CallSource;
use umbo_overload::Entry;
use umbo_store::CallContext;
use umbo_types::{CallerId, NamespaceId, Operation, PartitionKey, RequestUnits};

/// The attributes of a request for the queue of a shard and the store.
#[derive(Debug, Clone)]
pub(crate) struct StoreCall {
    pub(crate) operation: Operation,
    pub(crate) entry: Entry,
    /// The estimate of the request at the plain price; zero for Umbo's own work.
    pub(crate) size: RequestUnits,
    /// The timeout of the request, for the error message.
    pub(crate) timeout: Duration,
    /// The payer; `None` for Umbo's own work.
    pub(crate) payer: Option<CallerId>,
    /// As a `traceparent` header, if the request is traced.
    pub(crate) traceparent: Option<Box<str>>,
}

impl StoreCall {
    /// Returns the attributes of one call of the store.
    pub(crate) fn context(&self) -> CallContext {
        let mut context = self.anonymous_context();
        context.caller.clone_from(&self.payer);
        context.traceparent.clone_from(&self.traceparent);
        context
    }

    /// Takes the attributes of the only call of the store.
    pub(crate) fn take_context(&mut self) -> CallContext {
        let mut context = self.anonymous_context();
        context.caller = self.payer.take();
        context.traceparent = self.traceparent.take();
        context
    }

    /// Returns the source of the call in a namespace; `partition` is `None` for work in several.
    pub(crate) fn source(
        &self,
        namespace: NamespaceId,
        partition: Option<&PartitionKey>,
    ) -> CallSource {
        CallSource {
            caller: self.payer.clone(),
            operation: self.operation,
            namespace,
            partition: partition.cloned(),
        }
    }

    fn anonymous_context(&self) -> CallContext {
        let mut context = CallContext::internal();
        context.deadline = Some(self.entry.deadline);
        context.criticality = self.entry.criticality;
        context.price = self.entry.price;
        context
    }
}

/// The answer of the store to a call, and how long the shard says that it worked.
#[derive(Debug)]
pub(crate) struct Answered<T> {
    pub(crate) answer: T,
    pub(crate) service_time: Option<Duration>,
    /// The busy time of the shard; of work for several calls, the share of this one.
    pub(crate) busy_time: Option<Duration>,
    /// How often more than once a shard node was asked.
    pub(crate) retries: u32,
}

impl<T> Answered<T> {
    pub(crate) fn new(context: &CallContext, answer: T) -> Self {
        Self {
            answer,
            service_time: context.service_time(),
            busy_time: context.busy_time(),
            retries: context.retries(),
        }
    }
}

/// How long the store worked, and how long it was waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StoreTime {
    /// The service time.
    pub(crate) taken: Duration,
    /// From the queue until a permit was there.
    pub(crate) waited: Duration,
    /// While the permit was held: the service time, and the way to another machine.
    pub(crate) held: Duration,
    /// How often more than once a shard node was asked.
    pub(crate) retries: u32,
    /// The part that is charged: the time for this request alone, and at most the usual time if the shard is
    /// overloaded.
    pub(crate) charged: Duration,
}

impl AddAssign for StoreTime {
    fn add_assign(&mut self, more: Self) {
        self.taken += more.taken;
        self.charged += more.charged;
        self.waited += more.waited;
        self.held += more.held;
        self.retries += more.retries;
    }
}

/// An answer of the store, and how long the store took for it.
#[derive(Debug, Clone)]
pub(crate) struct Timed<T> {
    pub(crate) answer: T,
    pub(crate) time: StoreTime,
}

impl<T> Timed<T> {
    /// Makes something else of the answer.
    pub(crate) fn map<U>(self, make: impl FnOnce(T) -> U) -> Timed<U> {
        Timed {
            answer: make(self.answer),
            time: self.time,
        }
    }

    /// Wraps an answer whose time has been recorded elsewhere.
    pub(crate) fn untimed(answer: T) -> Self {
        Self {
            answer,
            time: StoreTime::default(),
        }
    }
}

impl<T, E> Timed<Result<T, E>> {
    /// Maps an answer that is not an error.
    pub(crate) fn and_then<U>(self, make: impl FnOnce(T) -> U) -> Result<Timed<U>, E> {
        Ok(Timed {
            answer: make(self.answer?),
            time: self.time,
        })
    }
}
