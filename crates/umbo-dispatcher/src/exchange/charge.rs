//! What a request is charged: estimated and debited before the work, settled after it, once.
//!
//! Owns the reservation of an exchange, and with it every way out: an answer settles it with the
//! work that was done, a failure as far as the work had got, and an exchange that is dropped with
//! it open (a client that left, a panic) does the same. Invariant: what [`Exchange::charged`] says
//! once an exchange is closed is what the ledger holds.

use std::sync::Arc;
use std::time::Instant;

use http::HeaderValue;
use smallvec::SmallVec;
use umbo_quota::{
    Advertised, Explanation, Known, Limit, Policy, Rejection, Request, Reservation, ShardShare,
    UsageRow, Work,
};
use umbo_shed::Work as ShedWork;
use umbo_store::{Outcome, StoreError};
use umbo_types::{CallerId, Names, Operation, RequestUnits};
use xxhash_rust::xxh3::xxh3_64;

use super::Exchange;
use crate::failure::Failure;
use crate::payer::Payer;
use crate::random;
use crate::shield::HIT_PRICE;

/// The part of an exchange that quotas know.
#[derive(Debug)]
pub(super) struct Charge {
    payer: Payer,
    /// Who is told to wait, and comes back.
    claimant: u64,
    known: Known,
    reservation: Option<Reservation>,
    /// Whether the store has done a part of the work.
    is_begun: bool,
    is_rejected: bool,
    /// Whether the work so far cost no read of the store of its own.
    pub(super) is_shared: bool,
    /// The shards concerned, once they are known.
    shares: SmallVec<[ShardShare; 2]>,
}

impl Charge {
    /// Begins with nothing charged.
    pub(super) fn new(claimant: u64) -> Self {
        Self {
            payer: Payer::default(),
            claimant,
            known: Known::default(),
            reservation: None,
            is_begun: false,
            is_rejected: false,
            is_shared: false,
            shares: SmallVec::new(),
        }
    }
}

impl Exchange {
    /// Notes who pays.
    pub(crate) fn paid_by(&mut self, payer: Payer) {
        self.charge.payer = payer;
    }

    /// Notes what is known of the work.
    pub(crate) fn priced(&mut self, known: Known) {
        self.charge.known = known;
    }

    /// Debits every quota that counts the request, or refuses it.
    pub(crate) fn admit(&mut self) -> Result<(), Failure> {
        let quota = &self.pod.quota;
        let request = self.request()?;
        match quota.admit(&request, self.started, random::next()) {
            Ok(reservation) => {
                self.charge.reservation = Some(reservation);
                Ok(())
            }
            Err(rejection) => Err(self.rejected(rejection)),
        }
    }

    /// Debits the quotas of the shards, now that they are known, or refuses the request.
    pub(crate) fn admit_shards(
        &mut self,
        shares: &[ShardShare],
        now: Instant,
    ) -> Result<(), Failure> {
        // Taken apart, so that the reservation stays where it is: it is large.
        let Self {
            pod,
            operation,
            caller,
            namespace,
            charge,
            ..
        } = self;
        let (Some(caller), Some(namespace), Some(reservation)) =
            (caller, namespace, &mut charge.reservation)
        else {
            return Ok(());
        };
        let request = Request {
            subject: charge.payer.subject(caller, namespace, *operation),
            known: charge.known,
            claimant: charge.claimant,
        };
        let quota = &pod.quota;
        quota
            .admit_shards(reservation, &request, shares, now, random::next())
            .map_err(|rejection| self.rejected(rejection))?;
        self.let_through(shares, now)
    }

    /// Forgets the shards: the answer was there, and none of them was asked.
    pub(super) fn release_shards(&mut self) {
        self.charge.shares.clear();
        if let Some(reservation) = &mut self.charge.reservation {
            reservation.release_shards();
        }
    }

    /// Sheds the request where one of its shards is overloaded and it is its turn to give way.
    fn let_through(&mut self, shares: &[ShardShare], now: Instant) -> Result<(), Failure> {
        self.charge.shares.clear();
        self.charge.shares.extend_from_slice(shares);
        let Some(overload) = &self.pod.overload else {
            return Ok(());
        };
        for work in self.work_by_shard(self.charged()) {
            overload
                .admit(&work, now, random::next())
                .map_err(Failure::Shed)?;
        }
        Ok(())
    }

    /// Divides what the request costs by its shards.
    fn work_by_shard(&self, cost: RequestUnits) -> impl Iterator<Item = ShedWork> {
        let shares = &self.charge.shares;
        let parts: u32 = shares.iter().map(|share| share.parts).sum();
        let (tier, caller) = (self.criticality(), self.caller_hash());
        shares.iter().map(move |share| ShedWork {
            shard: share.shard,
            tier,
            caller,
            cost: RequestUnits::from_micros(
                cost.as_micros() * u64::from(share.parts) / u64::from(parts.max(1)),
            ),
        })
    }

    /// Returns a hash of who pays: the same for all requests of a caller.
    pub(crate) fn caller_hash(&self) -> u64 {
        let caller = self.caller.as_deref();
        caller.map_or(0, |caller| {
            xxh3_64(self.charge.payer.name(caller).as_bytes())
        })
    }

    /// Returns who pays.
    pub(crate) fn payer_id(&self) -> Option<CallerId> {
        let caller = self.caller.as_deref()?;
        let name = self.charge.payer.name(caller);
        Some(if name == caller.id.as_str() {
            caller.id.clone()
        } else {
            CallerId::new(name)
        })
    }

    /// Returns whom the request is for beside who pays, where a quota of shards counts by them: the
    /// nodes of the shards keep it too.
    pub(super) fn names_for_shards(&self) -> Option<Arc<Names>> {
        let payer = &self.charge.payer;
        let is_told = payer.has_names() && self.pod.quota.has_named_ceilings();
        is_told.then(|| Arc::new(payer.names()))
    }

    fn rejected(&mut self, rejection: Box<Rejection>) -> Failure {
        self.charge.is_rejected = true;
        Failure::Rejected(rejection)
    }

    fn request(&self) -> Result<Request<'_>, Failure> {
        let (Some(caller), Some(namespace)) = (&self.caller, &self.namespace) else {
            let error = "a request was priced before it was classified";
            return Err(Failure::Internal(error.to_owned()));
        };
        Ok(Request {
            subject: self.charge.payer.subject(caller, namespace, self.operation),
            known: self.charge.known,
            claimant: self.charge.claimant,
        })
    }

    /// Returns the policy that the node of a shard says is spent, with what it allows the payer; none
    /// where it is not known here, as one that has just been made.
    pub(crate) fn spent_at_node(&self, policy_name: &str) -> Option<(Arc<Policy>, Limit)> {
        let policies = self.pod.quota.policies();
        let policy = policies.get(policy_name)?;
        let limit = policy.limit_for(&self.request().ok()?.subject);
        Some((Arc::clone(policy), limit))
    }

    /// Returns what another request of the same payer would cost and meet; debits nothing.
    pub(crate) fn explain(
        &self,
        operation: Operation,
        known: Known,
        shares: &[ShardShare],
    ) -> Result<Explanation, Failure> {
        let mut request = self.request()?;
        (request.subject.operation, request.known) = (operation, known);
        Ok(self.pod.quota.explain(&request, shares, self.started))
    }

    /// Returns what the payer has spent on the namespace.
    pub(crate) fn own_usage(&self) -> Result<Vec<UsageRow>, Failure> {
        let request = self.request()?;
        Ok(self.pod.quota.usage_of(&request.subject))
    }

    /// Notes that the store is about to be asked: from now on the request costs something.
    pub(crate) fn begin_store(&mut self) {
        if let Some(reservation) = &mut self.charge.reservation {
            reservation.sent();
        }
    }

    /// Charges what a part of the work took beyond the estimate; `work` is all of it so far.
    pub(crate) fn progress(&mut self, work: Work) {
        self.charge.is_begun |= work.rows + work.reads > 0;
        // What comes after a shared part is read for this request alone.
        self.charge.is_shared = false;
        let work = self.timed(work);
        if let Some(reservation) = &mut self.charge.reservation {
            reservation.progress(&work);
        }
    }

    /// Charges what the whole work took, and returns it. The first call counts.
    pub(crate) fn settle(&mut self, work: Work) -> RequestUnits {
        let work = self.timed(work);
        let is_shared = self.charge.is_shared;
        let reservation = self.charge.reservation.as_mut();
        reservation.map_or(RequestUnits::ZERO, |reservation| {
            if is_shared {
                reservation.settle_at(HIT_PRICE, &work)
            } else {
                reservation.settle(&work)
            }
        })
    }

    /// Charges rows that all came from the local cache.
    pub(crate) fn settle_hits(&mut self, work: Work) -> RequestUnits {
        let price = RequestUnits::from_micros(HIT_PRICE.as_micros() * work.reads);
        let reservation = self.charge.reservation.as_mut();
        reservation.map_or(RequestUnits::ZERO, |reservation| {
            reservation.settle_at(price, &work)
        })
    }

    fn timed(&self, work: Work) -> Work {
        Work {
            service_time: self.store_time.unwrap_or_default(),
            ..work
        }
    }

    /// Takes the charge back: the store refused the work before it began any of it.
    pub(crate) fn release(&mut self) {
        if let Some(reservation) = &mut self.charge.reservation {
            reservation.release();
        }
    }

    /// Ends the charge of a request that failed, unless it is settled.
    pub(super) fn close_failed(&mut self, failure: &Failure) {
        if is_unbegun(failure) && !self.charge.is_begun {
            self.release();
        }
        self.close();
    }

    /// Ends the charge, unless it is settled: nothing where the store was not asked, otherwise
    /// what was estimated, or more where more was done. From here on the figure stands.
    pub(crate) fn close(&mut self) -> RequestUnits {
        let reservation = self.charge.reservation.as_mut();
        reservation.map_or(RequestUnits::ZERO, Reservation::abandon)
    }

    /// Returns what the request has been charged; in a stream, so far.
    pub(crate) fn charged(&self) -> RequestUnits {
        let reservation = self.charge.reservation.as_ref();
        reservation.map_or(RequestUnits::ZERO, Reservation::charged)
    }

    /// Returns who paid, where the request named anybody.
    pub(crate) fn charged_to(&self) -> Option<HeaderValue> {
        self.charge.payer.charged_to(self.caller.as_deref()?)
    }

    /// Returns what is left to the caller, where a policy somebody configured counts it.
    pub(crate) fn advertised(&self) -> Option<Advertised<'_>> {
        let reservation = self.charge.reservation.as_ref()?;
        reservation.advertised(self.started)
    }

    /// Counts the charge. Called once, at the end of the exchange.
    pub(super) fn record_charge(&mut self) {
        let charged = self.close();
        if let Some(overload) = &self.pod.overload
            && charged > RequestUnits::ZERO
        {
            for work in self.work_by_shard(charged) {
                overload.signal().charged(&work);
            }
        }
        let metrics = &self.pod.metrics;
        if self.charge.is_rejected {
            metrics.record_rejected(self.operation);
        } else if self.charge.reservation.is_some() {
            metrics.record_admitted(self.operation, charged);
        }
    }
}

/// Says whether the store refused the work before it began any of it.
pub(crate) const fn is_unbegun(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::Shed(_)
            | Failure::DeadlineBeforeStore { .. }
            | Failure::Store(
                StoreError::Unavailable {
                    outcome: Outcome::NotApplied,
                    ..
                } | StoreError::QueueFull { .. }
                    | StoreError::NodeBusy { .. }
                    | StoreError::QuotaExceeded { .. }
                    | StoreError::DeadlinePassed { .. }
                    | StoreError::Closing
            )
    )
}
