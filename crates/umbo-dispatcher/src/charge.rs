//! The charge of a request: estimated and debited before the work, settled after it, once.
//!
//! `Charge` is a guard over the reservation and covers every way out. An answer settles it with the work that was done.
//! An error or a drop (a client that left, a panic) closes it: with nothing if the request has entered no queue of a shard, otherwise with
//! the estimate, or the work done if that is more. Invariant: once the charge is closed, [`Charge::charged`] returns
//! the figure that the ledger holds.

use std::sync::Arc;
use std::time::Instant;

use http::HeaderValue;
use smallvec::SmallVec;
use umbo_control::NamespaceEntry;
use umbo_http::RequestError;
use umbo_observe::request_records::{ChargeRecord, PolicyRecord};
use umbo_overload::Entry;
use umbo_quota::{
    ActualUsage, Advertised, Breakdown, CostHint, Explanation, QuotaRequest, Rejection,
    Reservation, ShardShare, UsageLine,
};
use umbo_types::{CallerId, Deadline, Operation, PriceMultiplier, RequestUnits, ShardId};

use crate::dispatcher::Dispatcher;
use crate::overload::hash_of;
use crate::phase::identify::Identified;
use crate::policy_record::{asked, rejected_by};
use crate::request_log::ChargeEnd;

/// Price of a result that did not need a call of the store.
const HIT_PRICE: RequestUnits = RequestUnits::from_micros(100_000);

/// The charge of an identified request.
#[derive(Debug)]
pub(crate) struct Charge {
    dispatcher: Arc<Dispatcher>,
    identified: Identified,
    /// The hint of the operation.
    hint: CostHint,
    /// `None` if the operation has no price, and until the request is admitted.
    reservation: Option<Reservation>,
    /// Whether the store has done a part of the work.
    is_begun: bool,
    /// Whether the queue of a shard has shed the request.
    is_shed: bool,
    /// The policy that rejected the request.
    rejected_by: Option<PolicyRecord>,
    /// Whether the work so far used no separate read of the store.
    is_shared: bool,
    /// The shards that were debited.
    shares: SmallVec<[ShardShare; 2]>,
    /// Charges of writes of the request that have separate charges.
    paid_apart: RequestUnits,
    /// Charge of the whole answer, if it is known before the answer is made.
    announced: Option<RequestUnits>,
}

impl Charge {
    /// Begins with nothing charged.
    #[inline]
    pub(crate) fn new(dispatcher: &Arc<Dispatcher>, identified: Identified) -> Self {
        Self {
            dispatcher: Arc::clone(dispatcher),
            identified,
            hint: CostHint::default(),
            reservation: None,
            is_begun: false,
            is_shed: false,
            rejected_by: None,
            is_shared: false,
            shares: SmallVec::new(),
            paid_apart: RequestUnits::ZERO,
            announced: None,
        }
    }

    /// Returns the payer, the namespace and the operation.
    pub(crate) const fn identified(&self) -> &Identified {
        &self.identified
    }

    /// Prices the request as another operation, which does the same work.
    pub(crate) const fn price_as(&mut self, operation: Operation) {
        self.identified.operation = operation;
    }

    /// Continues with another namespace of the same name; nothing of the work so far lasts.
    pub(crate) fn rename(&mut self, namespace: Arc<NamespaceEntry>) {
        self.release_shards();
        self.identified.namespace = namespace;
    }

    /// Debits every quota that counts the request, or refuses it. Does nothing if the request already has a
    /// reservation.
    pub(crate) fn admit(&mut self, hint: CostHint) -> Result<(), RequestError> {
        self.hint = hint;
        if self.reservation.is_some() || !self.identified.operation.has_price() {
            return Ok(());
        }
        let quota = &self.dispatcher.quota;
        let started = self.identified.started;
        match quota.admit(&self.request(), started, fastrand::u64(..)) {
            Ok(reservation) => {
                self.reservation = Some(reservation);
                Ok(())
            }
            Err(rejection) => Err(self.rejected(rejection)),
        }
    }

    /// Estimates the request anew, once more is known of it.
    pub(crate) fn foresee(&mut self, hint: CostHint) {
        // The body as it was announced: explanations ask by its length for the price of a write.
        let is_write = self.identified.operation.is_write();
        let announced = self.hint.body_len.filter(|_| is_write);
        self.hint = CostHint {
            body_len: announced.or(hint.body_len),
            ..hint
        };
        if let Some(reservation) = &mut self.reservation {
            reservation.foresee(self.hint);
        }
    }

    /// Debits the quotas of shards, or refuses the request.
    pub(crate) fn admit_shards(
        &mut self,
        shares: &[ShardShare],
        now: Instant,
    ) -> Result<(), RequestError> {
        // The fields are borrowed one by one, so that the large reservation is not moved.
        let Self {
            dispatcher,
            identified,
            hint,
            reservation,
            ..
        } = self;
        let Some(reservation) = reservation else {
            return Ok(());
        };
        let mut request = request(identified, *hint);
        request.price_multiplier = multiplier(dispatcher, identified, shares);
        let quota = &dispatcher.quota;
        quota
            .admit_shards(reservation, &request, shares, now, fastrand::u64(..))
            .map_err(|rejection| self.rejected(rejection))?;
        self.shares.clear();
        self.shares.extend_from_slice(shares);
        Ok(())
    }

    /// Takes the debit of the shards back: the request asks no shard.
    pub(crate) fn release_shards(&mut self) {
        self.shares.clear();
        if let Some(reservation) = &mut self.reservation {
            reservation.release_shards();
        }
    }

    /// Returns the estimate of the request, which no overload raises; zero if it has no price.
    pub(crate) fn estimate(&self) -> RequestUnits {
        let reservation = self.reservation.as_ref();
        reservation.map_or(RequestUnits::ZERO, Reservation::estimate)
    }

    /// Returns a hash of who pays: the same for all requests of a caller.
    pub(crate) fn caller_hash(&self) -> u64 {
        caller_hash(&self.identified)
    }

    /// Returns whether the caller has more than its fair share of a shard's busy time; not asked while the
    /// shard is under no pressure.
    pub(crate) fn is_above_share(&self, shard: Option<ShardId>) -> bool {
        let (Some(overload), Some(shard)) = (&self.dispatcher.overload, shard) else {
            return false;
        };
        let controller = overload.controller();
        let tier = self.identified.criticality;
        controller.is_raised(shard) && controller.is_above_share(shard, tier, self.caller_hash())
    }

    /// Returns who pays.
    pub(crate) fn payer_id(&self) -> CallerId {
        let Identified { payer, caller, .. } = &self.identified;
        let name = payer.name(caller);
        if name == caller.id.as_str() {
            caller.id.clone()
        } else {
            CallerId::new(name)
        }
    }

    fn rejected(&mut self, rejection: Box<Rejection>) -> RequestError {
        self.rejected_by = Some(rejected_by(&rejection));
        RequestError::Rejected(rejection)
    }

    /// Signs the retry ticket of a rejection, if it has one.
    pub(crate) fn retry_ticket(&self, error: &RequestError) -> Option<HeaderValue> {
        let RequestError::Rejected(rejection) = error else {
            return None;
        };
        let Identified { payer, caller, .. } = &self.identified;
        let Dispatcher {
            ticket_key, quota, ..
        } = &*self.dispatcher;
        let now = self.dispatcher.clock.monotonic();
        let ticket = quota.ticket_out(rejection.ticket?, self.dispatcher.home_time(), now);
        Some(ticket_key.seal(&ticket, payer.name(caller)))
    }

    fn request(&self) -> QuotaRequest<'_> {
        request(&self.identified, self.hint)
    }

    /// Returns the cost of another request of the same payer, and the policies that count it; debits nothing.
    pub(crate) fn explain(
        &self,
        operation: Operation,
        hint: CostHint,
        shares: &[ShardShare],
    ) -> Explanation {
        let mut request = self.request();
        (request.subject.operation, request.hint) = (operation, hint);
        request.price_multiplier = multiplier(&self.dispatcher, &self.identified, shares);
        let quota = &self.dispatcher.quota;
        quota.explain(&request, shares, self.identified.started)
    }

    /// Returns the usage of the payer in the namespace.
    pub(crate) fn own_usage(&self) -> Vec<UsageLine> {
        self.dispatcher.quota.usage_of(&self.request().subject)
    }

    /// Returns the payer and the charge for the record of the request.
    pub(crate) fn end(&self, now: Instant) -> ChargeEnd {
        ChargeEnd {
            payer: self.payer_id(),
            charge: self.record(now),
        }
    }

    /// Returns the record of cost and policies. Returns `None` for an operation without a price. Returns `None` for a
    /// shed request too: it was charged nothing, no policy refused it, and it has to cost less than an answer.
    fn record(&self, now: Instant) -> Option<Box<ChargeRecord>> {
        if self.is_shed || !self.identified.operation.has_price() {
            return None;
        }
        let mut request = self.request();
        request.price_multiplier = multiplier(&self.dispatcher, &self.identified, &self.shares);
        let price_multiplier = request.price_multiplier.as_hundredths();
        let mut policies: SmallVec<[PolicyRecord; 4]> = self.rejected_by.iter().cloned().collect();
        let is_refused = self.rejected_by.is_some();
        let quota = &self.dispatcher.quota;
        let priced = quota.visit_policies(&request, &self.shares, now, |met| {
            let is_refusing =
                |refusing: &PolicyRecord| Arc::ptr_eq(&refusing.policy, &met.policy.name);
            if !self.rejected_by.as_ref().is_some_and(is_refusing) {
                policies.push(asked(met, is_refused));
            }
        });
        let Breakdown {
            base,
            rows,
            read_bytes,
            write_bytes,
            latency,
            penalty,
        } = priced.breakdown;
        let reservation = self.reservation.as_ref();
        Some(Box::new(ChargeRecord {
            estimate: reservation.map_or(priced.estimate, Reservation::estimate),
            actual: self.charged(),
            parts: [base, rows, read_bytes, write_bytes, latency, penalty],
            price_multiplier: f32::from(price_multiplier) / 100.0,
            policies: policies.into_vec().into(),
        }))
    }

    /// Records that the store is about to be asked: from now on the request costs something.
    pub(crate) fn begin_store(&mut self) {
        if let Some(reservation) = &mut self.reservation {
            reservation.sent();
        }
    }

    /// Records whether the result needed a separate read of the store. A result from the local cache has asked no
    /// shard.
    pub(crate) fn served(&mut self, is_read: bool, is_hit: bool) {
        self.is_shared = !is_read;
        if is_hit {
            self.release_shards();
        }
    }

    /// Charges the work beyond the estimate; `work` is all of it so far.
    pub(crate) fn progress(&mut self, work: &ActualUsage) {
        self.is_begun |= work.rows + work.reads > 0;
        // Work after a shared part is done for this request alone.
        self.is_shared = false;
        if let Some(reservation) = &mut self.reservation {
            reservation.progress(work);
        }
    }

    /// Charges the whole work, and returns the charge. Only the first call counts.
    pub(crate) fn settle(&mut self, work: &ActualUsage) -> RequestUnits {
        let is_shared = self.is_shared;
        let reservation = self.reservation.as_mut();
        reservation.map_or(RequestUnits::ZERO, |reservation| {
            if is_shared {
                reservation.settle_at(HIT_PRICE, work)
            } else {
                reservation.settle(work)
            }
        })
    }

    /// Charges rows that all came from the local cache.
    pub(crate) fn settle_hits(&mut self, work: &ActualUsage) -> RequestUnits {
        let price = RequestUnits::from_micros(HIT_PRICE.as_micros() * work.reads);
        let reservation = self.reservation.as_mut();
        reservation.map_or(RequestUnits::ZERO, |reservation| {
            reservation.settle_at(price, work)
        })
    }

    /// Takes the charge back: the store refused the work before it began any of it.
    pub(crate) fn release(&mut self) {
        if let Some(reservation) = &mut self.reservation {
            reservation.release();
        }
    }

    /// Ends the charge of a request that failed, unless it is settled.
    pub(crate) fn close_failed(&mut self, error: &RequestError) {
        self.is_shed = !self.is_begun && matches!(error, RequestError::Shed(_));
        if error.is_unbegun() && !self.is_begun {
            self.release();
        }
        self.close();
    }

    /// Ends the charge, unless it is settled. Charges nothing if the store was not asked, otherwise the estimate, or
    /// the work done if that is more. The figure does not change afterwards.
    pub(crate) fn close(&mut self) -> RequestUnits {
        let reservation = self.reservation.as_mut();
        reservation.map_or(RequestUnits::ZERO, Reservation::abandon)
    }

    /// Returns the charge of the request; in a stream, the charge so far.
    pub(crate) fn charged(&self) -> RequestUnits {
        let reservation = self.reservation.as_ref();
        let charged = reservation.map_or(RequestUnits::ZERO, Reservation::charged);
        charged.saturating_add(self.paid_apart)
    }

    /// Returns the charge of the request if this is all of its work.
    pub(crate) fn price_of(&self, work: &ActualUsage) -> RequestUnits {
        let reservation = self.reservation.as_ref();
        reservation.map_or(RequestUnits::ZERO, |reservation| reservation.price_of(work))
    }

    /// Announces the work of the whole answer when a part of it is done.
    pub(crate) fn announce(&mut self, work: &ActualUsage) {
        let reservation = self.reservation.as_ref();
        self.announced = reservation.map(|reservation| reservation.price_of(work));
    }

    /// Returns the charge for the head of the answer.
    pub(crate) fn told(&self) -> RequestUnits {
        self.announced.unwrap_or_else(|| self.charged())
    }

    /// Begins the time of the request anew, unless the client has named a timeout: its body took long.
    pub(crate) fn renew_deadline(&mut self) {
        let context = &mut self.identified.context;
        if !context.is_timeout_named {
            context.deadline = Deadline::after(self.dispatcher.clock.monotonic(), context.timeout);
        }
    }

    /// Adds the separate charge of a write of the request.
    pub(crate) fn paid_apart(&mut self, units: RequestUnits) {
        self.paid_apart = self.paid_apart.saturating_add(units);
    }

    /// Returns the attributes that the queue of a shard uses to order the request.
    pub(crate) fn entry(&self, shard: Option<ShardId>) -> Entry {
        Entry {
            criticality: self.identified.criticality,
            caller: self.caller_hash(),
            price: self.charged(),
            deadline: self.identified.context.deadline,
            is_above_share: self.is_above_share(shard),
        }
    }

    /// Returns the payer, if the request named one.
    pub(crate) fn charged_to(&self) -> Option<HeaderValue> {
        self.identified.payer.charged_to(&self.identified.caller)
    }

    /// Returns the remaining quota of the caller, if a configured policy counts the request.
    pub(crate) fn advertised(&self) -> Option<Advertised<'_>> {
        let reservation = self.reservation.as_ref()?;
        reservation.advertised(self.identified.started)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let charged = self.close();
        let (metrics, operation) = (&self.dispatcher.metrics, self.identified.operation);
        if self.rejected_by.is_some() {
            metrics.record_rejected(operation);
        } else if self.reservation.is_some() {
            metrics.record_admitted(operation, charged);
        }
    }
}

fn request(identified: &Identified, hint: CostHint) -> QuotaRequest<'_> {
    let Identified {
        payer,
        caller,
        namespace,
        operation,
        ticket,
        ..
    } = identified;
    QuotaRequest {
        subject: payer.subject(caller, namespace, *operation),
        hint,
        ticket: *ticket,
        price_multiplier: PriceMultiplier::NONE,
    }
}

/// Returns a hash of who pays.
fn caller_hash(identified: &Identified) -> u64 {
    let Identified { payer, caller, .. } = identified;
    hash_of(payer.name(caller))
}

/// Returns by how much overloads raise the price of a request for these shards: the most that any of them
/// does.
fn multiplier(
    dispatcher: &Dispatcher,
    identified: &Identified,
    shares: &[ShardShare],
) -> PriceMultiplier {
    let Some(overload) = &dispatcher.overload else {
        return PriceMultiplier::NONE;
    };
    let controller = overload.controller();
    let raised = shares.iter().map(|share| share.shard);
    let raised = raised.filter(|shard| controller.is_raised(*shard));
    let tier = identified.criticality;
    let multipliers =
        raised.map(|shard| controller.multiplier(shard, tier, caller_hash(identified)));
    multipliers.max().unwrap_or(PriceMultiplier::NONE)
}
