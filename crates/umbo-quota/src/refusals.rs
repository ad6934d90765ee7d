//! The refusals of one request: which policies refuse it, and how long it has to wait.
//!
//! All enforced policies are asked, even after one has refused, so that a request is told the longest wait of all. The bucket
//! with the longest wait issues a retry ticket. A ticket that is brought too early is given back as it is, with a wait
//! until it is due and the debt is paid. Jitter on top of the wait is at most a quantum: tickets are due one after the
//! other.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use umbo_types::{PriceMultiplier, RequestUnits, ShardId};

use crate::bucket::Bucket;
use crate::caller_state::MatchedPolicy;
use crate::report::Rejection;
use crate::request::QuotaRequest;
use crate::retry_ticket::{BroughtTicket, RetryTicket};
use crate::schedule::{Millis, Schedule};

/// Jitter for each request that one refill is good for, in microseconds: enough for requests to come one after the
/// other. With more jitter, a new request could take the refill that is due to a ticket.
const JITTER_US: u128 = 500;

/// The answers of the policies to one request.
pub(crate) struct Refusals<'a> {
    /// The ticket that the request brings.
    ticket: Option<&'a BroughtTicket>,
    price_multiplier: PriceMultiplier,
    pub(crate) now: Millis,
    /// The shard whose policies are asked.
    pub(crate) shard: Option<ShardId>,
    /// Boxed: hardly any request has one.
    pub(crate) longest: Option<Box<LongestRefusal>>,
}

/// The refusal with the longest wait.
pub(crate) struct LongestRefusal {
    matched: MatchedPolicy,
    bucket: Arc<Bucket>,
    shard: Option<ShardId>,
    due: Millis,
    balance: i64,
    price: u64,
    /// The part of the price that an overload adds.
    penalty: RequestUnits,
    /// Whether the bucket reserves refill for a retry.
    is_reserving: bool,
}

impl<'a> Refusals<'a> {
    /// Begins without a refusal.
    #[inline]
    pub(crate) const fn new(request: &'a QuotaRequest<'_>, now: Millis) -> Self {
        Self {
            ticket: request.ticket.as_ref(),
            price_multiplier: request.price_multiplier,
            now,
            shard: None,
            longest: None,
        }
    }

    /// Takes a price from a bucket; returns whether it was taken. A shadow policy counts a refusal, and refuses
    /// nothing. It is asked last, and only by requests that the others let in.
    #[expect(
        clippy::inline_always,
        reason = "a twentieth of what an admission costs"
    )]
    #[inline(always)]
    pub(crate) fn debit(
        &mut self,
        matched: &MatchedPolicy,
        bucket: &Arc<Bucket>,
        schedule: &Schedule,
        price: u64,
    ) -> bool {
        if self.longest.is_some() {
            self.ask(matched, bucket, price);
            return false;
        }
        match bucket.debit(schedule, price, self.now, self.issued()) {
            Ok(()) => true,
            Err(balance) => {
                self.refuse(matched, bucket, balance, price);
                false
            }
        }
    }

    /// Does the same as [`Self::debit`], not inlined.
    #[inline(never)]
    pub(crate) fn debit_apart(
        &mut self,
        matched: &MatchedPolicy,
        bucket: &Arc<Bucket>,
        schedule: &Schedule,
        price: u64,
    ) -> bool {
        self.debit(matched, bucket, schedule, price)
    }

    /// Asks how long a bucket would take to admit a request that is refused already.
    #[cold]
    fn ask(&mut self, matched: &MatchedPolicy, bucket: &Arc<Bucket>, price: u64) {
        let look = bucket.look(price, self.now, self.issued());
        if !look.admits {
            self.refuse(matched, bucket, look.balance, price);
        }
    }

    #[cold]
    fn refuse(&mut self, matched: &MatchedPolicy, bucket: &Arc<Bucket>, balance: i64, price: u64) {
        bucket.note_refused(price);
        let stats = &matched.active.stats;
        stats
            .forgiven
            .fetch_add(bucket.bound_debt(self.now), Relaxed);
        if !matched.is_enforced {
            stats.shadow_rejected.fetch_add(1, Relaxed);
            // A shadow policy reserves refill as it would if it were enforced.
            bucket.issue(price, self.now, self.ticket.is_some());
            return;
        }
        let due = bucket.due(self.now, self.issued());
        let is_longer = self
            .longest
            .as_ref()
            .is_none_or(|longest| due > longest.due);
        if is_longer {
            self.longest = Some(Box::new(LongestRefusal {
                matched: matched.clone(),
                bucket: Arc::clone(bucket),
                shard: self.shard,
                due,
                balance,
                price,
                penalty: RequestUnits::ZERO,
                is_reserving: true,
            }));
        }
    }

    /// Refuses a request because a bucket does not cover the multiplied price. No refill is reserved: the overload may
    /// be over before.
    #[cold]
    pub(crate) fn refuse_penalty(
        &mut self,
        matched: MatchedPolicy,
        bucket: Arc<Bucket>,
        (price, penalty): (u64, RequestUnits),
        balance: i64,
        due: Millis,
    ) {
        bucket.note_refused(price);
        self.longest = Some(Box::new(LongestRefusal {
            matched,
            bucket,
            shard: self.shard,
            due,
            balance,
            price,
            penalty,
            is_reserving: false,
        }));
    }

    #[inline]
    fn issued(&self) -> Option<&'a RetryTicket> {
        self.ticket.and_then(BroughtTicket::issued)
    }

    /// Returns the rejection, or `None` if no policy refused. `random` is uniform over all of `u64`.
    #[inline]
    pub(crate) fn end(mut self, random: u64) -> Option<Box<Rejection>> {
        let longest = self.longest.take()?;
        Some(Box::new(self.reject(*longest, random)))
    }

    #[cold]
    fn reject(&self, longest: LongestRefusal, random: u64) -> Rejection {
        let LongestRefusal {
            matched,
            bucket,
            shard,
            due,
            balance,
            price,
            penalty,
            is_reserving,
        } = longest;
        matched.active.stats.rejected.fetch_add(1, Relaxed);
        let early = bucket.early(self.issued(), self.now);
        let ticket = is_reserving.then(|| {
            let issue = || bucket.issue(price, self.now, self.ticket.is_some());
            early.map_or_else(issue, |early| *early)
        });
        let due = ticket
            .map_or(due, |ticket| ticket.due)
            .max(bucket.paid(self.now));
        let quantum = Duration::from_millis(bucket.quantum_ms());
        let wait = self.now.until(due).max(quantum);
        // The high half of a 128-bit product is uniform below the bound, without a division.
        let turns = u128::from(bucket.limit().rate) * quantum.as_micros()
            / (u128::from(bucket.scaled(price).max(1)) * 1_000_000);
        let jitter_max_us = quantum.as_micros().min(JITTER_US * turns);
        let jitter_us = (u128::from(random) * jitter_max_us) >> 64;
        Rejection {
            label: bucket.label.to_string(),
            limit: bucket.limit(),
            observed: bucket.observed(self.now),
            policy: Arc::clone(&matched.active.policy),
            shard,
            balance,
            wait: wait + Duration::from_micros(jitter_us as u64),
            price,
            penalty,
            ticket,
            price_multiplier: self.price_multiplier,
        }
    }
}
