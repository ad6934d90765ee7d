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
    #[expect(
        clippy::inline_always,
        reason = "a twentieth of what an admission costs"
    )]
    #[inline(always)]
    pub(crate) fn debit(
        &mut self,
        binding: &Binding,
        bucket: &Arc<Bucket>,
        schedule: &Schedule,
        price: u64,
    ) -> bool {
        if self.longest.is_some() {
            self.ask(binding, bucket, price);
            return false;
        }
        let is_due = || self.claim(binding, bucket) == Claim::Due;
        match bucket.debit(schedule, price, self.now, is_due) {
            Ok(false) => true,
            Ok(true) => {
                self.keep(binding, bucket);
                true
            }
            Err(look) => {
                self.refuse(binding, bucket, look, price);
                false
            }
        }
    }

    /// Does what [`Self::debit`] does, where it need not be compiled in.
    #[inline(never)]
    pub(crate) fn debit_apart(
        &mut self,
        binding: &Binding,
        bucket: &Arc<Bucket>,
        schedule: &Schedule,
        price: u64,
    ) -> bool {
        self.debit(binding, bucket, schedule, price)
    }

    /// Asks how long a bucket would take to admit a request that is refused already.
    #[cold]
    fn ask(&mut self, binding: &Binding, bucket: &Arc<Bucket>, price: u64) {
        let is_due = || self.claim(binding, bucket) == Claim::Due;
        let look = bucket.look(price, self.now, is_due);
        if !look.admits {
            self.refuse(binding, bucket, look, price);
        }
    }

    /// Notes that whoever asks came as it was told.
    #[cold]
    fn keep(&self, binding: &Binding, bucket: &Bucket) {
        for who in self.who(bucket) {
            self.promises_of(binding).keep(who);
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
                for who in self.who(bucket) {
                    self.promises_of(binding).make(who, due);
                }
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

    /// Says what whoever asks was told. One who asks for something else by a connection that was
    /// told to wait is somebody else, and so is one who asks the same by another.
    #[cold]
    fn claim(&self, binding: &Binding, bucket: &Bucket) -> Claim {
        let mut claims = self.who(bucket);
        let mut next = || {
            let who = claims.next()?;
            Some(self.promises_of(binding).claim(who, self.now))
        };
        let Some(by_request) = next() else {
            return Claim::None;
        };
        match (by_request, next().unwrap_or(by_request)) {
            (Claim::Due, _) | (_, Claim::Due) => Claim::Due,
            (Claim::Early(_), Claim::Early(due)) => Claim::Early(due),
            (Claim::None, _) | (_, Claim::None) => Claim::None,
        }
    }

    const fn promises_of(&self, binding: &Binding) -> &Promises {
        if binding.is_enforced {
            &self.promises.enforced
        } else {
            &self.promises.shadow
        }
    }

    /// Returns under what the promises of this bucket to whoever asks are kept.
    fn who(&self, bucket: &Bucket) -> impl Iterator<Item = u64> + use<> {
        let (identities, bucket) = (self.identities, bucket.id);
        let request = self.claimant & u64::from(u32::MAX);
        let connection = self.claimant ^ request;
        let has_connection = connection != 0;
        let halves = [Some(request), has_connection.then_some(connection)];
        let halves = halves.into_iter().flatten();
        halves.map(move |half| identities.claim(bucket, half))
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
