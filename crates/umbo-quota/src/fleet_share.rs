//! A dispatcher's share of a counter that counts for the whole fleet.
//!
//! The bucket of such a counter is an image of the fleet's bucket: it has the rate, burst and balance of the whole
//! fleet, and the dispatcher pays its prices divided by its share. So a dispatcher with a quarter of the demand pays
//! four times the price, and balance, wait and limit belong to the fleet everywhere. The owner of the counter sends
//! shares and balance (see [`fleet`](crate::fleet)); a request asks no other process.

use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, PoisonError};

use crate::schedule::Millis;

/// The inverse of a share, in 65,536ths: prices are multiplied by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Scale(u64);

impl Scale {
    /// Of a dispatcher that is alone.
    pub(crate) const ONE: Self = Self(1 << Self::BITS);
    /// Of the smallest share, 1 / 65,536.
    pub(crate) const MAX: Self = Self(1 << (2 * Self::BITS));
    /// All shares together.
    pub(crate) const WHOLE: u64 = 1 << 32;
    const BITS: u32 = 16;

    /// Returns the inverse of `part / whole`.
    pub(crate) fn of(part: u64, whole: u64) -> Self {
        let scale = (u128::from(whole) << Self::BITS) / u128::from(part.max(1));
        let scale = scale.clamp(Self::ONE.0.into(), Self::MAX.0.into());
        Self(scale as u64)
    }

    /// Returns the share, as a part of [`Self::WHOLE`].
    pub(crate) fn share(self) -> u64 {
        (Self::WHOLE << Self::BITS) / self.0
    }

    /// Returns the inverse of a part of [`Self::WHOLE`].
    pub(crate) fn of_share(share: u64) -> Self {
        Self::of(share, Self::WHOLE)
    }

    /// Reads the number of [`Self::to_bits`]; any number is brought between the bounds.
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits.clamp(Self::ONE.0, Self::MAX.0))
    }

    pub(crate) const fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the price that a share pays.
    #[inline]
    pub(crate) fn price(self, price: u64) -> u64 {
        let scaled = (u128::from(price) * u128::from(self.0)) >> Self::BITS;
        // Levels are compared by their difference, which must stay below 2^63.
        scaled.min(1 << 61) as u64
    }

    /// Returns the price that comes to an amount: the inverse of [`Self::price`].
    pub(crate) fn unscaled(self, amount: u64) -> u64 {
        ((u128::from(amount) << Self::BITS) / u128::from(self.0)) as u64
    }

    /// Returns the same of a price or a refund.
    pub(crate) fn signed(self, delta: i64) -> i64 {
        let scaled = self.price(delta.unsigned_abs()).cast_signed();
        if delta < 0 { -scaled } else { scaled }
    }
}

/// Stands for an instant that has not come.
const NEVER: u64 = u64::MAX;

/// Keys of the buckets that were used and are not reported yet.
#[derive(Debug, Default)]
pub(crate) struct UsedBuckets(Mutex<Vec<u128>>);

impl UsedBuckets {
    pub(crate) fn take(&self) -> Vec<u128> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, key: u128) {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        keys.push(key);
    }
}

/// The counts of a dispatcher for one counter of the fleet, and the last answer of its owner.
#[derive(Debug)]
pub(crate) struct FleetShare {
    /// Name of the counter: the same at all dispatchers.
    pub(crate) counter: u128,
    /// Distinguishes the bucket from earlier ones of the counter at this dispatcher.
    pub(crate) made: u64,
    /// Key of the bucket at this dispatcher.
    key: u128,
    used: Arc<UsedBuckets>,
    /// Whether the bucket was given to `used`, and not let go since.
    is_active: AtomicBool,
    /// Atoms charged here since the bucket was made.
    spent: AtomicI64,
    /// The part of `spent` that an owner knows.
    acked: AtomicI64,
    /// Price of the last request that was refused, in atoms.
    refused_price: AtomicU64,
    /// Position on the axis at which the fleet's balance is zero, as the owner told it, less `spent` then.
    fleet_level: AtomicU64,
    /// Demand of the fleet in atoms a second, as the owner told it.
    demand: AtomicU64,
    /// The balance that the owner told last, and when, in milliseconds; [`NEVER`] before.
    heard: (AtomicI64, AtomicU64),
}

/// An answer of an owner to one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnerAnswer {
    pub(crate) scale: Scale,
    /// Balance of the fleet; at most the burst.
    pub(crate) balance: i64,
    /// Balance that the bucket of this dispatcher should have, which is less while others spend; `i64::MAX` if the owner
    /// has no room for the counter.
    pub(crate) target: i64,
    /// Atoms asked for a second at all dispatchers.
    pub(crate) demand: u64,
}

impl FleetShare {
    /// Makes the share of a bucket. `level` is the level of the new bucket.
    pub(crate) fn new(
        (counter, made): (u128, u64),
        key: u128,
        used: Arc<UsedBuckets>,
        level: u64,
    ) -> Self {
        Self {
            counter,
            made,
            key,
            used,
            is_active: AtomicBool::new(false),
            spent: AtomicI64::new(0),
            acked: AtomicI64::new(0),
            refused_price: AtomicU64::new(0),
            fleet_level: AtomicU64::new(level),
            demand: AtomicU64::new(0),
            heard: (AtomicI64::new(0), AtomicU64::new(NEVER)),
        }
    }

    /// Counts a charge or a refund.
    #[inline]
    pub(crate) fn count(&self, delta: i64) {
        self.spent.fetch_add(delta, Release);
        if !self.is_active.load(Relaxed) {
            self.begin();
        }
    }

    /// Counts a refused price.
    pub(crate) fn count_refused(&self, price: u64) {
        self.refused_price.store(price, Relaxed);
        if !self.is_active.load(Relaxed) {
            self.begin();
        }
    }

    #[cold]
    fn begin(&self) {
        if !self.is_active.swap(true, AcqRel) {
            self.used.add(self.key);
        }
    }

    /// Lets the bucket go until its next use.
    pub(crate) fn rest(&self) {
        self.is_active.store(false, Release);
        self.demand.store(0, Relaxed);
    }

    /// Returns the atoms charged.
    pub(crate) fn spent(&self) -> i64 {
        self.spent.load(Acquire)
    }

    /// Returns the part of the spent atoms that an owner knows.
    pub(crate) fn acked(&self) -> i64 {
        self.acked.load(Relaxed)
    }

    /// Returns the balance that an owner told last, and when.
    pub(crate) fn heard(&self) -> Option<(i64, Millis)> {
        let at = self.heard.1.load(Relaxed);
        (at != NEVER).then(|| (self.heard.0.load(Relaxed), Millis(at)))
    }

    /// Forgets the price that was refused last: requests of that size may not come again.
    pub(crate) fn forget_refused(&self) {
        self.refused_price.store(0, Relaxed);
    }

    /// Returns the demand of the fleet that the owner told last; 0 while no owner is asked.
    pub(crate) fn demand(&self) -> u64 {
        self.demand.load(Relaxed)
    }

    /// Returns the price of the request that was refused last.
    pub(crate) fn refused_price(&self) -> u64 {
        self.refused_price.load(Relaxed)
    }

    /// Returns the fleet's debt that is known here. `axis` is the position of the axis.
    pub(crate) fn fleet_debt(&self, axis: u64) -> u64 {
        let level = self.fleet_level.load(Relaxed);
        let debt = level
            .wrapping_add(self.spent().cast_unsigned())
            .wrapping_sub(axis);
        debt.cast_signed().max(0).cast_unsigned()
    }

    /// Takes the answer to a report that told `spent_then`. Returns the balance that the bucket should have, in prices
    /// of the new share.
    pub(crate) fn take(
        &self,
        answer: &OwnerAnswer,
        spent_then: i64,
        (axis, now): (u64, Millis),
    ) -> i64 {
        self.heard.0.store(answer.balance, Relaxed);
        self.heard.1.store(now.0, Relaxed);
        let level = axis.wrapping_sub(answer.balance.cast_unsigned());
        let level = level.wrapping_sub(spent_then.cast_unsigned());
        self.fleet_level.store(level, Relaxed);
        self.demand.store(answer.demand, Relaxed);
        self.acked.store(spent_then, Relaxed);
        let since = self.spent().wrapping_sub(spent_then);
        answer.target.saturating_sub(answer.scale.signed(since))
    }
}
