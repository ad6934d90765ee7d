//! The refusals of one request: who said no, and how long it has to wait.
//!
//! All policies are asked, also after one has said no, so that the wait is the longest of all and a
//! request is not told a wait that another policy then makes longer. The wait is the time until the
//! bucket really admits, what was promised to others included; jitter on top spreads those who were
//! told the same.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::account::Binding;
use crate::bucket::{Bucket, Look};
use crate::identity::Identities;
use crate::promise::{Claim, Promises};
use crate::report::Rejection;
use crate::schedule::{Moment, Schedule};

/// Jitter is at most this part of the wait, and at most one quantum where that is more.
const JITTER_PART: u32 = 5;

/// What the policies say of one request.
pub(crate) struct Refusals<'a> {
    pub(crate) identities: Identities,
    pub(crate) promises: &'a PromisesByMode,
    pub(crate) claimant: u64,
    pub(crate) now: Moment,
    /// Boxed: hardly any request has one.
    pub(crate) longest: Option<Box<Refusal>>,
}

/// Shadow policies promise as if they were enforced, in a table of their own: they must not change
/// what an enforced one decides.
#[derive(Debug, Default)]
pub(crate) struct PromisesByMode {
    enforced: Promises,
    shadow: Promises,
}

/// The refusal with the longest wait.
pub(crate) struct Refusal {
    binding: Binding,
    bucket: Arc<Bucket>,
    due: Moment,
    balance: i64,
    price: u64,
}

impl Refusals<'_> {
    /// Takes a price from a bucket; says whether it was taken. A shadow policy that would refuse is
    /// counted and refuses nothing; it is asked last, and only by requests that are let in.
    #[inline]
    pub(crate) fn debit(
        &mut self,
        binding: &Binding,
        bucket: &Arc<Bucket>,
        schedule: &Schedule,
        price: u64,
    ) -> bool {
        let now = self.now;
        let is_due = || self.claim(binding, bucket) == Claim::Due;
        if self.longest.is_some() {
            // Refused already: this one is only asked how long it would take.
            let look = bucket.look(price, now, is_due);
            if !look.admits {
                self.refuse(binding, bucket, look, price);
            }
            return false;
        }
        match bucket.debit(schedule, price, now, is_due) {
            Ok(was_due) => {
                if was_due {
                    self.promises_of(binding).keep(self.who(bucket));
                }
                true
            }
            Err(look) => {
                self.refuse(binding, bucket, look, price);
                false
            }
        }
    }

    #[cold]
    fn refuse(&mut self, binding: &Binding, bucket: &Arc<Bucket>, look: Look, price: u64) {
        bucket.note_refused(price);
        let due = match self.claim(binding, bucket) {
            // Too early: what was said before still holds.
            Claim::Early(due) => due,
            claim @ (Claim::None | Claim::Due) => {
                let due = bucket.promise(price, self.now, claim == Claim::Due);
                self.promises_of(binding).make(self.who(bucket), due);
                due
            }
        };
        if !binding.is_enforced {
            binding.rule.stats.shadow_rejected.fetch_add(1, Relaxed);
            return;
        }
        let is_longer = self
            .longest
            .as_ref()
            .is_none_or(|longest| due > longest.due);
        if is_longer {
            self.longest = Some(Box::new(Refusal {
                binding: binding.clone(),
                bucket: Arc::clone(bucket),
                due,
                balance: look.balance,
                price,
            }));
        }
    }

    fn claim(&self, binding: &Binding, bucket: &Bucket) -> Claim {
        self.promises_of(binding).claim(self.who(bucket), self.now)
    }

    const fn promises_of(&self, binding: &Binding) -> &Promises {
        if binding.is_enforced {
            &self.promises.enforced
        } else {
            &self.promises.shadow
        }
    }

    fn who(&self, bucket: &Bucket) -> u64 {
        self.identities.claim(bucket.id, self.claimant)
    }

    /// Returns the rejection, where there is one. `random` is uniform over all of `u64`.
    #[inline]
    pub(crate) fn end(self, random: u64) -> Option<Box<Rejection>> {
        Some(Box::new(self.longest?.reject(self.now, random)))
    }
}

impl Refusal {
    #[cold]
    fn reject(self, now: Moment, random: u64) -> Rejection {
        let Self {
            binding,
            bucket,
            due,
            balance,
            price,
        } = self;
        binding.rule.stats.rejected.fetch_add(1, Relaxed);
        let quantum = Duration::from_millis(bucket.quantum_ms());
        let wait = now.until(due).max(quantum);
        let jitter_max = (wait / JITTER_PART).max(quantum);
        // The high half of a 128-bit product is uniform below the bound, without a division.
        let jitter_us = (u128::from(random) * jitter_max.as_micros()) >> 64;
        Rejection {
            label: bucket.label.to_string(),
            limit: bucket.limit(),
            observed: bucket.observed(now),
            policy: Arc::clone(&binding.rule.policy),
            balance,
            wait: wait + Duration::from_micros(jitter_us as u64),
            price,
        }
    }
}
