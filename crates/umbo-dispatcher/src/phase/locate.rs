//! The phase *locate*: the shards of a request are known, and their quotas are debited.
//!
//! Hot path. [`Located`] is the only way to the queue of a shard and to the store.

use std::sync::Arc;

use umbo_control::NamespaceEntry;
use umbo_hotkey::ReadContext;
use umbo_http::{CacheStatus, RequestError};
use umbo_overload::Entry;
use umbo_quota::{ActualUsage, ShardShare};
use umbo_types::{NamespaceId, RequestUnits, ShardId};

use crate::charge::Charge;
use crate::dispatcher::Dispatcher;
use crate::phase::identify::{Context, Identified};
use crate::request_log::RequestLog;
use crate::store_call::StoreCall;

/// A request whose shards are known.
#[derive(Debug)]
pub(crate) struct Located<'a> {
    pub(crate) dispatcher: &'a Arc<Dispatcher>,
    pub(crate) log: &'a mut RequestLog,
    pub(crate) charge: &'a mut Charge,
    /// The only shard that the request concerns, if there is exactly one.
    shard: Option<ShardId>,
    is_debited: bool,
}

impl<'a> Located<'a> {
    pub(super) fn new(
        dispatcher: &'a Arc<Dispatcher>,
        log: &'a mut RequestLog,
        charge: &'a mut Charge,
        shard: Option<ShardId>,
        is_debited: bool,
    ) -> Self {
        Self {
            dispatcher,
            log,
            charge,
            shard,
            is_debited,
        }
    }

    /// Debits the quotas of the only shard that the request concerns, unless they are debited already.
    pub(crate) fn debit(&mut self) -> Result<(), RequestError> {
        if self.is_debited {
            return Ok(());
        }
        self.is_debited = true;
        self.log.located(self.shard);
        let Some(shard) = self.shard else {
            return Ok(());
        };
        let whole = [ShardShare { shard, parts: 1 }];
        self.charge.admit_shards(&whole, self.log.started())
    }

    /// Asks again: nothing of the first time was done.
    pub(crate) fn ask_again(&mut self) {
        self.charge.release_shards();
        self.is_debited = false;
    }

    /// Returns the only shard that the request concerns, if there is exactly one.
    pub(crate) const fn shard(&self) -> Option<ShardId> {
        self.shard
    }

    /// Returns who asks.
    pub(crate) const fn identified(&self) -> &Identified {
        self.charge.identified()
    }

    /// Returns when the request began, and until when and how it is to be answered.
    pub(crate) const fn context(&self) -> Context {
        self.identified().context
    }

    /// Returns the namespace.
    pub(crate) fn namespace(&self) -> &NamespaceEntry {
        &self.identified().namespace
    }

    /// Returns the id of the namespace; it decides how partitions are divided among the shards.
    pub(crate) fn namespace_id(&self) -> NamespaceId {
        self.namespace().id
    }

    /// Returns the id of the dataset that holds the rows.
    pub(crate) fn dataset(&self) -> NamespaceId {
        self.namespace().dataset
    }

    /// Returns the name of the caller that pays.
    pub(crate) fn payer_name(&self) -> &str {
        self.identified().payer_name()
    }

    /// Waits for room for an answer of `len_min` to `len_max` bytes, if it is likely to need any.
    pub(crate) fn reserve_answer(
        &mut self,
        len_min: usize,
        len_max: usize,
    ) -> impl Future<Output = Result<(), RequestError>> {
        let (dispatcher, deadline) = (self.dispatcher, self.context().deadline);
        self.log
            .reserve_answer(dispatcher, deadline, len_min, len_max)
    }

    /// Holds the memory of an answer that is made, `len` bytes; or sheds it.
    pub(crate) fn hold_answer(&mut self, len: usize) -> Result<(), RequestError> {
        self.log.hold_answer(len)
    }

    /// Returns the attributes that the queue of a shard uses to order the request.
    pub(crate) fn entry(&self) -> Entry {
        self.charge.entry(self.shard)
    }

    /// Returns the attributes of the request for the queue of a shard.
    pub(crate) fn call(&self) -> StoreCall {
        let identified = self.identified();
        StoreCall {
            operation: identified.operation,
            entry: self.entry(),
            size: self.charge.estimate(),
            timeout: identified.context.timeout,
            payer: Some(self.charge.payer_id()),
            traceparent: self.log.traceparent(),
        }
    }

    /// Returns the attributes of the request for the shield.
    pub(crate) fn read_context(&self) -> ReadContext {
        let identified = self.identified();
        ReadContext {
            now: identified.started,
            price: self.charge.charged(),
            age_max: identified.context.freshness.age_max,
        }
    }

    /// Records the source of the result.
    pub(crate) fn served_by(&mut self, status: CacheStatus) {
        self.charge.served(status.is_read(), status.is_hit());
        self.log.served_by(status);
    }

    /// Charges a part of the work; `work` is all of it so far.
    pub(crate) fn progress(&mut self, work: ActualUsage) {
        self.charge.progress(&timed(work, self.log));
    }

    /// Charges rows that all came from the local cache.
    pub(crate) fn settle_hits(&mut self, work: ActualUsage) -> RequestUnits {
        self.charge.settle_hits(&timed(work, self.log))
    }

    /// Charges the whole work, and returns the charge.
    pub(crate) fn settle(&mut self, work: ActualUsage) -> RequestUnits {
        self.charge.settle(&timed(work, self.log))
    }
}

/// Adds the charged time of the store to the work.
pub(crate) fn timed(work: ActualUsage, log: &RequestLog) -> ActualUsage {
    ActualUsage {
        service_time: log.charged_time(),
        ..work
    }
}
