//! Buckets that count for the whole fleet: prices by the share of this dispatcher, and the answers of the owner.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::{Bucket, BucketLevels};
use crate::fleet_share::{FleetShare, OwnerAnswer, Scale};
use crate::schedule::{Millis, Schedule};

impl Bucket {
    /// Makes the new bucket count for the fleet.
    pub(crate) fn shared(mut self, scale: Scale, share: impl FnOnce(u64) -> FleetShare) -> Self {
        self.share = Some(Box::new(share(self.first_level)));
        self.words.scale = AtomicU64::new(scale.to_bits());
        self
    }

    /// Numbers the tickets of the new bucket.
    pub(crate) fn number_tickets_from(&mut self, first: u32) {
        self.issued = AtomicU32::new(first);
    }

    /// Returns the counts for the fleet.
    pub(crate) fn share(&self) -> Option<&FleetShare> {
        self.share.as_deref()
    }

    /// Sets the share of this dispatcher until its owner answers again. The balance stays.
    pub(crate) fn set_scale(&self, scale: Scale) {
        if self.share.is_some() {
            self.words.scale.store(scale.to_bits(), Relaxed);
        }
    }

    /// Returns the inverse of this dispatcher's share.
    pub(crate) fn scale(&self) -> Scale {
        Scale::from_bits(self.words.scale.load(Relaxed))
    }

    /// Takes the answer of the owner to a report that told `spent_then`. The balance comes within one price of the
    /// fleet's, or a second of the rate: dispatchers with few requests then admit them in turn, and not all at the same
    /// moment.
    pub(crate) fn take_answer(&self, answer: &OwnerAnswer, spent_then: i64, now: Millis) {
        let Some(share) = &self.share else { return };
        self.words.scale.store(answer.scale.to_bits(), Relaxed);
        if answer.target == i64::MAX {
            return;
        }
        let schedule = self.schedule.load();
        let axis = schedule.level_at(now, self.words.refill_offset);
        let target = share.take(answer, spent_then, (axis, now));
        let slack = answer.scale.price(share.refused_price());
        let slack = slack.min(schedule.limit.rate).cast_signed();
        let level = self.words.level.load(Relaxed);
        let balance = BucketLevels::of(&schedule, axis, level).balance;
        let least = target.saturating_sub(slack);
        let most = target
            .saturating_add(slack)
            .min(schedule.limit.burst.cast_signed());
        let next = balance.clamp(least, most.max(least));
        let moved = axis.wrapping_sub(level).cast_signed().wrapping_sub(next);
        self.words.level.fetch_add(moved.cast_unsigned(), Relaxed);
    }

    /// Returns the price that takes an amount from the balance: the inverse of [`Self::scaled`].
    pub(crate) fn unscaled(&self, amount: u64) -> u64 {
        match self.words.scale.load(Relaxed) {
            0 => amount,
            bits => Scale::from_bits(bits).unscaled(amount),
        }
    }

    /// Returns what a price takes from the balance.
    #[inline]
    pub(crate) fn scaled(&self, price: u64) -> u64 {
        match self.words.scale.load(Relaxed) {
            0 => price,
            bits => Scale::from_bits(bits).price(price),
        }
    }

    /// Counts a charge or a refund for the fleet.
    pub(super) fn count_spent(&self, delta: i64) {
        if let Some(share) = &self.share {
            share.count(delta);
        }
    }

    /// Charges a request the difference between its cost and its debit; a negative `delta` is given back.
    pub(crate) fn adjust(&self, delta: i64) {
        if delta != 0 {
            let taken = match &self.share {
                None => delta,
                Some(share) => {
                    share.count(delta);
                    Scale::from_bits(self.words.scale.load(Relaxed)).signed(delta)
                }
            };
            self.words.level.fetch_add(taken.cast_unsigned(), Relaxed);
        }
    }

    /// Undoes a debit of `price`.
    pub(crate) fn refund(&self, price: u64) {
        self.adjust(-price.cast_signed());
    }

    /// Returns the refill that brings the balance up to zero. A small share makes a large debt of a large price, until
    /// the owner answers: no request is told to wait for more than the fleet's debt and its own price.
    pub(super) fn debt(&self, schedule: &Schedule, axis: u64, price: u64) -> u64 {
        let debt = self.words.level.load(Relaxed).wrapping_sub(axis);
        let debt = debt.cast_signed().max(0).cast_unsigned();
        match &self.share {
            None => debt,
            Some(share) => {
                let own = self.scaled(price.max(share.refused_price()));
                let fleet = share.fleet_debt(axis).saturating_add(own);
                debt.min(fleet.saturating_add(schedule.grace()))
            }
        }
    }
}
