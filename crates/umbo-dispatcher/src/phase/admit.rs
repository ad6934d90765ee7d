//! The phase *admit*: every quota that counts the payer is debited, or the request is rejected.
//!
//! Hot path. [`Admitted`] is the only way to a shard: a request that was not admitted has none.

use std::sync::Arc;

use umbo_control::NamespaceEntry;
use umbo_http::RequestError;
use umbo_quota::{CostHint, ShardShare};
use umbo_types::{NamespaceId, ShardId};

use crate::charge::Charge;
use crate::dispatcher::Dispatcher;
use crate::phase::identify::{Context, Identified};
use crate::phase::locate::Located;
use crate::request_log::RequestLog;

/// A request that its quotas have admitted.
#[derive(Debug)]
pub(crate) struct Admitted<'a> {
    pub(crate) dispatcher: &'a Arc<Dispatcher>,
    pub(crate) log: &'a mut RequestLog,
    pub(crate) charge: &'a mut Charge,
}

/// Debits the quotas of an identified request, by the hint of its work.
pub(crate) fn admit<'a>(
    dispatcher: &'a Arc<Dispatcher>,
    log: &'a mut RequestLog,
    charge: &'a mut Charge,
    hint: CostHint,
) -> Result<Admitted<'a>, RequestError> {
    charge.admit(hint)?;
    Ok(Admitted {
        dispatcher,
        log,
        charge,
    })
}

impl Admitted<'_> {
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

    /// Debits the quotas of the shards that the request concerns.
    pub(crate) fn locate(&mut self, shares: &[ShardShare]) -> Result<Located<'_>, RequestError> {
        self.charge
            .admit_shards(shares, self.dispatcher.clock.monotonic())?;
        Ok(self.located(None, true))
    }

    /// Debits the quotas of the only shard that the request concerns.
    pub(crate) fn locate_at(&mut self, shard: ShardId) -> Result<Located<'_>, RequestError> {
        let mut located = self.locate_unasked(shard);
        located.debit()?;
        Ok(located)
    }

    /// Records the only shard that the request concerns. Its quotas are debited when it is asked: they do
    /// not count answers from the local cache.
    pub(crate) fn locate_unasked(&mut self, shard: ShardId) -> Located<'_> {
        self.located(Some(shard), false)
    }

    /// Continues with a request that asks no shard.
    pub(crate) fn locate_nowhere(&mut self) -> Located<'_> {
        self.located(None, true)
    }

    fn located(&mut self, shard: Option<ShardId>, is_debited: bool) -> Located<'_> {
        Located::new(self.dispatcher, self.log, self.charge, shard, is_debited)
    }
}
