//! For whom a store is asked, how urgently and until when; and how long it took.
//!
//! A store in this process needs little of it; one on another machine passes it on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use umbo_types::{CallerId, Criticality, Deadline, Names, RequestUnits};

/// What goes with one call of a store.
#[derive(Debug)]
pub struct CallContext {
    /// When nobody waits for the answer any more. A write that has not begun by then is refused
    /// with [`crate::StoreError::DeadlinePassed`]; none bounds it by nothing but the engine.
    pub deadline: Option<Deadline>,
    /// How much the call matters.
    pub criticality: Criticality,
    /// On whose behalf it is made; none for Umbo's own work.
    pub caller: Option<CallerId>,
    /// Whom it is made for beside the caller, where a quota of shards counts by them.
    pub names: Option<Arc<Names>>,
    /// Whether an earlier part of the same request was let in: then this one costs what it does, and
    /// is no request of its own.
    pub is_continued: bool,
    /// Estimate of what it costs.
    pub price: RequestUnits,
    /// Trace that it belongs to, as a `traceparent` header names it; none where it is not sampled.
    pub traceparent: Option<Box<str>>,
    /// In nanoseconds; 0 until it is known.
    service_time: AtomicU64,
}

impl CallContext {
    /// Describes a call of Umbo's own, which nobody else pays for and which is never turned away
    /// for somebody else.
    pub const fn internal() -> Self {
        Self {
            deadline: None,
            criticality: Criticality::CriticalPlus,
            caller: None,
            names: None,
            is_continued: false,
            price: RequestUnits::ZERO,
            traceparent: None,
            service_time: AtomicU64::new(0),
        }
    }

    /// The same, bounded by a deadline.
    pub const fn internal_until(deadline: Deadline) -> Self {
        let mut call = Self::internal();
        call.deadline = Some(deadline);
        call
    }

    /// Describes a later part of the same request.
    #[must_use]
    pub fn later_part(&self) -> Self {
        Self {
            deadline: self.deadline,
            criticality: self.criticality,
            caller: self.caller.clone(),
            names: self.names.clone(),
            is_continued: true,
            price: self.price,
            traceparent: self.traceparent.clone(),
            service_time: AtomicU64::new(0),
        }
    }

    /// Notes how long the shard itself worked, where that is known apart from the time on the way.
    /// Adds up over parts.
    pub fn note_service_time(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.service_time.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Returns how long the shard itself worked; none where the call's duration says it.
    pub fn service_time(&self) -> Option<Duration> {
        let nanos = self.service_time.load(Ordering::Relaxed);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }
}

impl Default for CallContext {
    /// A call of nobody in particular, with no deadline.
    fn default() -> Self {
        Self {
            criticality: Criticality::default(),
            ..Self::internal()
        }
    }
}
