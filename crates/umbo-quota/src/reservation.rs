//! The debits of an admitted request, until they are settled.
//!
//! Settled exactly once: by [`Reservation::settle`], or on drop, so that no cancellation, panic or early return leaks a
//! micro-RU. A request that is dropped before the store was asked gets everything back. Later it pays the estimate, or
//! the cost of its known work if that is more. Buckets, ledger and answer are charged the same figure.

use std::iter;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use umbo_types::{Operation, PriceMultiplier, RequestUnits, ShardId};

use crate::bucket::Bucket;
use crate::caller_state::{CallerBucket, CallerState, MatchedPolicy};
use crate::cost::{ActualUsage, CostByUnit, CostHint};
use crate::operation_usage::unknown;
use crate::policy::Limit;
use crate::price_memory::PriceKeys;
use crate::pricing::Pricing;
use crate::report::Advertised;
use crate::schedule::Millis;

/// The penalty of one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TakenPenalty {
    pub(crate) multiplier: PriceMultiplier,
    /// Amount that each paying bucket was charged, in micro-RU.
    pub(crate) taken: u64,
    /// When it was taken. A settlement reads balances as of this instant, which leaves out the refill since then.
    pub(crate) taken_at: Millis,
}

/// Share of a request's work that falls to a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardShare {
    /// The shard.
    pub shard: ShardId,
    /// Parts of the work that fall to the shard, of the sum of the parts of all shards.
    pub parts: u32,
}

/// Policies of an account by their indexes, a bit each.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DebitedPolicies(u64);

impl DebitedPolicies {
    /// Adds an index; returns whether there is a bit for it.
    #[inline]
    pub(crate) fn add(&mut self, at: usize) -> bool {
        let is_one = at < u64::BITS as usize;
        if is_one {
            self.0 |= 1 << at;
        }
        is_one
    }

    #[inline]
    fn iter(self) -> impl Iterator<Item = u8> {
        let mut left = self.0;
        iter::from_fn(move || {
            let at = left.trailing_zeros() as u8;
            let is_one = left != 0;
            left &= left.wrapping_sub(1);
            is_one.then_some(at)
        })
    }
}

/// A debit of one bucket.
#[derive(Debug)]
pub(crate) struct Debit {
    pub(crate) bucket: Arc<Bucket>,
    /// Index of the policy in the account.
    pub(crate) matched: u8,
    /// Share of the reservation that this bucket was charged: parts, of all parts.
    pub(crate) parts: (u32, u32),
}

/// Three policies that count by users or sessions find room without an allocation.
pub(crate) type Debits = SmallVec<[Debit; 3]>;

/// The hint that an estimate was made from, and the keys under which its price will be remembered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Foreseen {
    pub(crate) hint: CostHint,
    pub(crate) keys: PriceKeys,
}

/// An admitted request that is under way.
#[derive(Debug)]
#[must_use = "a reservation that is dropped at once admits nothing"]
pub struct Reservation {
    pub(crate) account: Arc<CallerState>,
    pub(crate) operation: Operation,
    foreseen: Foreseen,
    /// In micro-RU.
    estimate: u64,
    /// The charge if nothing more becomes known: the estimate, or the cost of the known work if that is more.
    pub(crate) reserved: CostByUnit,
    /// Rows and bytes known to be done.
    done: (u64, u64),
    /// Policies whose account bucket took the whole reservation. They are most policies, so that there is little to
    /// write down.
    whole: DebitedPolicies,
    /// The debits of all other policies.
    pub(crate) debits: Option<Debits>,
    pub(crate) shares: SmallVec<[ShardShare; 1]>,
    /// The penalty of an overload, if one was taken.
    pub(crate) penalty: Option<TakenPenalty>,
    state: ReservationState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReservationState {
    /// The store was not asked.
    Admitted,
    /// The store was asked, or is about to be.
    Sent,
    /// The reservation is over, at this price.
    Settled(RequestUnits),
}

impl Reservation {
    #[inline]
    pub(crate) fn new(
        account: Arc<CallerState>,
        operation: Operation,
        foreseen: Foreseen,
        estimate: CostByUnit,
        whole: DebitedPolicies,
    ) -> Self {
        Self {
            account,
            operation,
            foreseen,
            estimate: estimate.ru,
            reserved: estimate,
            done: (0, 0),
            whole,
            debits: None,
            shares: SmallVec::new(),
            penalty: None,
            state: ReservationState::Admitted,
        }
    }

    /// Returns the estimate.
    pub fn estimate(&self) -> RequestUnits {
        RequestUnits::from_micros(self.estimate)
    }

    /// Estimates the request again once more is known of it, and adjusts every bucket to the new estimate. Refuses
    /// nothing. Does nothing once the store was asked or a penalty was taken.
    pub fn foresee(&mut self, hint: CostHint) {
        if self.state != ReservationState::Admitted || self.penalty.is_some() {
            return;
        }
        let pricing = self.account.pricing();
        let (estimate, keys) = self.account.estimate(pricing, self.operation, &hint);
        self.charge(&estimate);
        (self.estimate, self.reserved) = (estimate.ru, estimate);
        self.foreseen = Foreseen { hint, keys };
    }

    /// Records that the store is about to be asked: from now on the request costs something.
    pub fn sent(&mut self) {
        if self.state == ReservationState::Admitted {
            self.state = ReservationState::Sent;
        }
    }

    /// Charges at once the cost of the work so far, beyond the amount taken before. `work` is all work of the request,
    /// and not only the latest.
    pub fn progress(&mut self, work: &ActualUsage) {
        if matches!(self.state, ReservationState::Settled(_)) {
            return;
        }
        self.state = ReservationState::Sent;
        self.done = (work.rows, work.read_bytes + work.write_bytes);
        let price = self.price(self.account.pricing(), work);
        let reserved = CostByUnit::of(price, work).max(&self.reserved);
        self.charge(&reserved);
        self.reserved = reserved;
    }

    /// Charges the final cost of the request, and returns it. Only the first call counts; a later one returns the same
    /// figure.
    pub fn settle(&mut self, work: &ActualUsage) -> RequestUnits {
        match self.state {
            ReservationState::Settled(price) => price,
            ReservationState::Admitted | ReservationState::Sent => {
                if self.penalty.is_some() {
                    self.settle_penalty(self.price(self.account.pricing(), work));
                }
                let pricing = self.account.pricing();
                let price = self.price(pricing, work);
                let paid = price.saturating_add(self.penalty());
                self.state = ReservationState::Settled(paid);
                self.end(pricing, price, &CostByUnit::of(price, work), work, true);
                paid
            }
        }
    }

    /// Settles at a fixed price, for work that no shard was asked for: no overload raises it.
    pub fn settle_at(&mut self, price: RequestUnits, work: &ActualUsage) -> RequestUnits {
        match self.state {
            ReservationState::Settled(price) => price,
            ReservationState::Admitted | ReservationState::Sent => {
                self.refund_penalty();
                self.end_at(price, &CostByUnit::of(price, work), work)
            }
        }
    }

    /// Ends the reservation as dropping it would, and returns the charge. The charge is zero if the store was not
    /// asked. Else it is the estimate, or the cost of the known work if that is more. Only the first call counts, as
    /// with [`Self::settle`].
    pub fn abandon(&mut self) -> RequestUnits {
        match self.state {
            ReservationState::Settled(price) => price,
            ReservationState::Admitted => {
                self.cancel();
                self.charged()
            }
            ReservationState::Sent => {
                let (rows, read_bytes) = self.done;
                let work = ActualUsage {
                    rows,
                    read_bytes,
                    ..ActualUsage::default()
                };
                // The debits are equal to the reservation already.
                let reserved = self.reserved;
                self.end_at(RequestUnits::from_micros(reserved.ru), &reserved, &work)
            }
        }
    }

    /// Kept out of the code that drops settled reservations.
    #[cold]
    fn abandon_unsettled(&mut self) {
        self.abandon();
    }

    /// Gives everything back, even if the store was asked: it refused before it began. Does nothing to a reservation
    /// that is settled.
    pub fn release(&mut self) {
        if !matches!(self.state, ReservationState::Settled(_)) {
            self.cancel();
        }
    }

    /// Returns what the request is charged if this is all of its work.
    pub fn price_of(&self, work: &ActualUsage) -> RequestUnits {
        let plain = self.price(self.account.pricing(), work);
        let penalty = self.penalty.as_ref();
        let penalty = penalty.map_or(RequestUnits::ZERO, |one| one.multiplier.penalty(plain));
        plain.saturating_add(penalty)
    }

    /// Returns what the request is charged at this moment.
    pub fn charged(&self) -> RequestUnits {
        match self.state {
            ReservationState::Admitted | ReservationState::Sent => {
                RequestUnits::from_micros(self.reserved.ru).saturating_add(self.penalty())
            }
            ReservationState::Settled(price) => price,
        }
    }

    /// Returns the remaining budget of the caller under the tightest enforced policy that an operator configured, or
    /// `None` if no such policy counts the request.
    pub fn advertised(&self, now: Instant) -> Option<Advertised<'_>> {
        let now = || self.account.pricing().millis(now);
        let mut tightest: Option<(&MatchedPolicy, Limit, i64)> = None;
        let mut see = |matched, limit: Limit, balance| {
            let share = |balance: i64, of: Limit| i128::from(balance) * i128::from(of.burst);
            let is_tighter = tightest
                .is_none_or(|(_, other, least)| share(balance, other) < share(least, limit));
            if is_tighter {
                tightest = Some((matched, limit, balance));
            }
        };
        for (matched, CallerBucket { bucket, schedule }) in self.whole() {
            if matched.is_told {
                see(matched, schedule.limit, bucket.balance_by(schedule, now()));
            }
        }
        for Debit {
            matched, bucket, ..
        } in self.debits.iter().flatten()
        {
            let matched = self.account.matched(*matched);
            if matched.is_told {
                see(matched, bucket.limit(), bucket.balance(now()));
            }
        }
        let (matched, limit, balance) = tightest?;
        let missing = limit.burst.saturating_add_signed(balance.saturating_neg());
        Some(Advertised {
            policy: &matched.active.policy,
            limit,
            balance,
            reset: Duration::from_millis(match missing.checked_mul(1_000) {
                Some(product) => product / limit.rate,
                None => (missing / limit.rate).saturating_mul(1_000),
            }),
        })
    }

    /// Returns the policies whose account bucket took the whole reservation.
    #[inline]
    pub(crate) fn whole(&self) -> impl Iterator<Item = (&MatchedPolicy, &CallerBucket)> {
        self.whole.iter().filter_map(|at| {
            let matched = self.account.matched(at);
            Some((matched, matched.bound.as_ref()?))
        })
    }

    /// Gives everything back, and counts the rejection.
    pub(crate) fn reject(&mut self) {
        self.cancel();
        self.account.record.cell(self.operation).count_rejected();
    }

    fn cancel(&mut self) {
        self.refund_penalty();
        for (matched, bound) in self.whole() {
            bound.bucket.refund(self.reserved.in_unit(matched.unit));
        }
        for debit in self.debits.iter().flatten() {
            debit.bucket.refund(self.taken(debit));
        }
        self.whole = DebitedPolicies::default();
        self.debits = None;
        self.state = ReservationState::Settled(RequestUnits::ZERO);
    }

    /// Gives back the debits of shard quotas and the penalty: the request reaches no shard after all.
    pub fn release_shards(&mut self) {
        self.refund_penalty();
        if let Some(mut debits) = self.debits.take() {
            debits.retain(|debit| {
                let is_of_shard = self.account.matched(debit.matched).by_shard;
                if is_of_shard {
                    debit.bucket.adjust(beyond(0, self.taken(debit)));
                }
                !is_of_shard
            });
            self.debits = Some(debits);
        }
        self.shares.clear();
    }

    /// Returns the debit of a bucket, in atoms of its policy's unit.
    fn taken(&self, debit: &Debit) -> u64 {
        let unit = self.account.matched(debit.matched).unit;
        part(self.reserved.in_unit(unit), debit.parts)
    }

    #[inline]
    fn price(&self, pricing: &Pricing, work: &ActualUsage) -> RequestUnits {
        pricing.weights.price(self.operation, work)
    }

    /// Ends at a plain price; the penalty comes on top. Estimates learn nothing from it.
    #[inline(never)]
    fn end_at(
        &mut self,
        price: RequestUnits,
        charge: &CostByUnit,
        work: &ActualUsage,
    ) -> RequestUnits {
        let paid = price.saturating_add(self.penalty());
        self.state = ReservationState::Settled(paid);
        self.end(self.account.pricing(), price, charge, work, false);
        paid
    }

    /// Charges and counts the settled request. `price` is the plain price: estimates learn from it if `is_whole`.
    #[expect(
        clippy::inline_always,
        reason = "all but one of its uses are out of the hot path"
    )]
    #[inline(always)]
    fn end(
        &self,
        pricing: &Pricing,
        price: RequestUnits,
        charge: &CostByUnit,
        work: &ActualUsage,
        is_whole: bool,
    ) {
        self.charge(charge);
        let (operation, micros) = (self.operation, price.as_micros());
        let Foreseen { hint, keys } = &self.foreseen;
        let lesson = is_whole.then(|| unknown(&pricing.weights, operation, hint, micros));
        if is_whole {
            pricing.prices.learn(keys, micros);
        }
        let cell = self.account.record.cell(operation);
        let penalty = self.penalty();
        if cell.count_served(micros, penalty.as_micros(), work, lesson) {
            pricing.residuals.note(operation, self.estimate, micros);
        }
        if !self.shares.is_empty() {
            self.count_by_shard(price.saturating_add(penalty));
        }
    }

    /// Changes every debit from the reservation to a charge.
    #[inline]
    fn charge(&self, charge: &CostByUnit) {
        for (matched, bound) in self.whole() {
            let taken = self.reserved.in_unit(matched.unit);
            bound
                .bucket
                .adjust(beyond(charge.in_unit(matched.unit), taken));
        }
        if let Some(debits) = &self.debits {
            self.charge_apart(debits, charge);
        }
    }

    #[inline(never)]
    fn charge_apart(&self, debits: &Debits, charge: &CostByUnit) {
        for debit in debits {
            let matched = self.account.matched(debit.matched);
            let due = part(charge.in_unit(matched.unit), debit.parts);
            debit.bucket.adjust(beyond(due, self.taken(debit)));
        }
    }

    fn count_by_shard(&self, price: RequestUnits) {
        if let [share] = self.shares.as_slice() {
            self.account.space.count(share.shard, price.as_micros());
            return;
        }
        let all = self
            .shares
            .iter()
            .map(|share| share.parts)
            .sum::<u32>()
            .max(1);
        let mut left = price.as_micros();
        for (at, share) in self.shares.iter().enumerate() {
            let is_last = at + 1 == self.shares.len();
            let own = if is_last {
                left
            } else {
                part(price.as_micros(), (share.parts, all)).min(left)
            };
            left -= own;
            self.account.space.count(share.shard, own);
        }
    }
}

impl Drop for Reservation {
    #[inline]
    fn drop(&mut self) {
        if !matches!(self.state, ReservationState::Settled(_)) {
            self.abandon_unsettled();
        }
    }
}

/// Charges stay below 2^56, so their difference is exact.
#[inline]
fn beyond(due: u64, taken: u64) -> i64 {
    due.wrapping_sub(taken).cast_signed()
}

/// Returns a part of a charge, rounded down.
#[inline]
pub(crate) fn part(charge: u64, (parts, all): (u32, u32)) -> u64 {
    if parts == all {
        return charge;
    }
    (u128::from(charge) * u128::from(parts) / u128::from(all)) as u64
}
