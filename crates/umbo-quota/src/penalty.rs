//! What a request pays above its plain price while a shard that it needs is overloaded.
//!
//! The penalty is the plain price times the price multiplier less one. It makes the caller's own buckets drain faster,
//! so that the caller backs off. It is not paid by buckets of other callers, by buckets of a shard, or by buckets that
//! count something other than request units. Invariants:
//! - half of a burst is the reserve for the caller's higher tiers. A request that pays a penalty is admitted if the
//!   bucket covers both prices above the reserve, or is full. A penalty takes no balance below the reserve, so that it
//!   never becomes a debt;
//! - all buckets that pay, the ledger and the answer are charged the same penalty;
//! - work that no shard did, or that it refused to begin, costs no penalty;
//! - estimates learn from plain prices only.

use std::sync::Arc;

use umbo_types::{PriceMultiplier, RequestUnits};

use crate::bucket::Bucket;
use crate::caller_state::MatchedPolicy;
use crate::policy::Limit;
use crate::refusals::Refusals;
use crate::reservation::{Reservation, TakenPenalty};
use crate::schedule::Millis;

/// The reserve for the caller's higher tiers is the burst divided by this.
const RESERVE_PART: u64 = 2;

impl Reservation {
    /// Returns the penalty that is charged at this moment.
    #[inline]
    pub(crate) fn penalty(&self) -> RequestUnits {
        let taken = self.penalty.as_ref().map_or(0, |penalty| penalty.taken);
        RequestUnits::from_micros(taken)
    }

    /// Takes the penalty of the estimate; gives back an earlier penalty first. Refuses the request for the first bucket
    /// that does not cover the price with the penalty.
    #[cold]
    pub(crate) fn take_penalty(
        &mut self,
        multiplier: PriceMultiplier,
        refusals: &mut Refusals<'_>,
    ) {
        self.refund_penalty();
        if multiplier.is_none() {
            return;
        }
        let (plain, now) = (self.reserved.ru, refusals.now);
        let wanted = multiplier.penalty(RequestUnits::from_micros(plain));
        let price = plain.saturating_add(wanted.as_micros());
        let uncovered = self.payers().find_map(|(matched, bucket)| {
            let held = bucket.scaled(plain);
            let balance = bucket.balance(now).saturating_add_unsigned(held);
            let due = covered_at(bucket, bucket.scaled(price), balance, now)?;
            Some((matched.clone(), Arc::clone(bucket), balance, due))
        });
        if let Some((matched, bucket, balance, due)) = uncovered {
            refusals.refuse_penalty(matched, bucket, (price, wanted), balance, due);
            return;
        }
        self.penalty = Some(TakenPenalty {
            multiplier,
            taken: self.take_spare(wanted.as_micros(), 0, now),
            taken_at: now,
        });
    }

    /// Changes the penalty of the estimate to the penalty of the plain price of the work. An increase is taken only up
    /// to the amount that the buckets hold above their reserves. Call it before the plain price is settled.
    #[cold]
    pub(crate) fn settle_penalty(&mut self, plain: RequestUnits) {
        let Some(penalty) = self.penalty else { return };
        let due = penalty.multiplier.penalty(plain).as_micros();
        let taken = if due <= penalty.taken {
            self.refund_all(penalty.taken - due);
            due
        } else {
            let unsettled = plain.as_micros().saturating_sub(self.reserved.ru);
            let more = self.take_spare(due - penalty.taken, unsettled, penalty.taken_at);
            penalty.taken + more
        };
        self.penalty = Some(TakenPenalty { taken, ..penalty });
    }

    /// Gives the penalty back.
    #[inline]
    pub(crate) fn refund_penalty(&mut self) {
        if let Some(penalty) = self.penalty.take() {
            self.refund_all(penalty.taken);
        }
    }

    /// Takes the amount that every bucket holds above its reserve and `unsettled`, at most `wanted`. Returns the
    /// amount; 0 if no bucket pays penalties.
    fn take_spare(&self, wanted: u64, unsettled: u64, now: Millis) -> u64 {
        let mut taken = wanted;
        let mut has_payer = false;
        for (at, (_, bucket)) in self.payers().enumerate() {
            let held = take_spare(bucket, taken, unsettled, now);
            for (_, earlier) in self.payers().take(at) {
                earlier.refund(taken - held);
            }
            taken = held;
            has_payer = true;
        }
        if has_payer { taken } else { 0 }
    }

    fn refund_all(&self, amount: u64) {
        for (_, bucket) in self.payers() {
            bucket.refund(amount);
        }
    }

    /// Returns the buckets that pay.
    fn payers(&self) -> impl Iterator<Item = (&MatchedPolicy, &Arc<Bucket>)> {
        let whole = self
            .whole()
            .map(|(matched, bound)| (matched, &bound.bucket));
        let apart = self.debits.iter().flatten();
        let apart = apart.map(|debit| (self.account.matched(debit.matched), &debit.bucket));
        whole
            .chain(apart)
            .filter(|(matched, _)| matched.pays_penalty)
    }
}

/// Returns when a bucket with this balance will cover a scaled price above its reserve, or `None` if it covers the price now.
/// If price and reserve exceed the burst, the bucket must be full.
pub(crate) fn covered_at(bucket: &Bucket, price: u64, balance: i64, now: Millis) -> Option<Millis> {
    let Limit { rate, burst } = bucket.limit();
    let needed = reserve(burst).saturating_add(price).min(burst);
    let missing = needed.cast_signed().saturating_sub(balance);
    let missing = u128::from(u64::try_from(missing).ok().filter(|missing| *missing > 0)?);
    let wait_ms = (missing * 1_000).div_ceil(u128::from(rate.max(1)));
    let wait_ms = u64::try_from(wait_ms).unwrap_or(u64::MAX / 4);
    // The bucket refills in quanta, so that the wait ends up to a quantum later.
    Some(Millis(
        now.0
            .saturating_add(wait_ms)
            .saturating_add(bucket.quantum_ms()),
    ))
}

/// Takes the amount that a bucket holds above its reserve and `unsettled`, at most `wanted`; returns it.
fn take_spare(bucket: &Bucket, wanted: u64, unsettled: u64, now: Millis) -> u64 {
    let floor = reserve(bucket.limit().burst)
        .saturating_add(bucket.scaled(unsettled))
        .cast_signed();
    let spare = |balance: i64| balance.saturating_sub(floor);
    let held = u64::try_from(spare(bucket.balance(now))).unwrap_or(0);
    let held = bucket.unscaled(held).min(wanted);
    bucket.adjust(held.cast_signed());
    // Another request may have taken the same amount: the excess goes back.
    let below = spare(bucket.balance(now)).min(0).unsigned_abs();
    let excess = bucket.unscaled(below).min(held);
    bucket.refund(excess);
    held - excess
}

const fn reserve(burst: u64) -> u64 {
    burst / RESERVE_PART
}
