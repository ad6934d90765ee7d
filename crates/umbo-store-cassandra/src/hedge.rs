//! Hedged reads: what a node does not answer in time is asked of another one, within a budget.
//!
//! A node that stands still holds its requests until its connection is given up. Where all nodes are slow, a second
//! request for each would make them slower: so hedges are paid from the number of requests.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use scylla::policies::speculative_execution::{Context, SpeculativeExecutionPolicy};

/// Time after which a request that changes nothing if it is sent twice is also sent to another node: many times a
/// read of a node that is well.
const HEDGE_AFTER: Duration = Duration::from_millis(50);
/// Requests that pay for one hedge: five percent of them may be sent twice.
const HEDGE_PRICE: i64 = 20;
/// Requests that pay for hedges to come: those under way at a node when it stops.
const CREDIT_MAX: i64 = 2_000;

/// Decides whether a request may be sent twice.
#[derive(Debug, Default)]
pub(crate) struct HedgeBudget {
    /// Requests that no hedge has been paid with.
    credit: AtomicI64,
}

impl HedgeBudget {
    /// Counts a request. Returns whether it may be sent twice.
    fn count(&self) -> bool {
        let more = |credit: i64| Some((credit + 1).min(CREDIT_MAX));
        let relaxed = Ordering::Relaxed;
        let before = self.credit.fetch_update(relaxed, relaxed, more);
        before.is_ok_and(|credit| credit >= HEDGE_PRICE)
    }

    /// Pays for the hedge of a request that has taken this long. No request is sent twice while all are slow.
    pub(crate) fn pay(&self, took: Duration) {
        if took >= HEDGE_AFTER {
            let less = |credit: i64| Some((credit - HEDGE_PRICE).max(-CREDIT_MAX));
            let relaxed = Ordering::Relaxed;
            let _ = self.credit.fetch_update(relaxed, relaxed, less);
        }
    }
}

impl SpeculativeExecutionPolicy for HedgeBudget {
    fn max_retry_count(&self, _context: &Context) -> usize {
        usize::from(self.count())
    }

    fn retry_interval(&self, _context: &Context) -> Duration {
        HEDGE_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(budget: &HedgeBudget, requests: i64) -> i64 {
        (0..requests).map(|_| i64::from(budget.count())).sum()
    }

    #[test]
    fn one_request_in_twenty_may_be_sent_twice() {
        let budget = HedgeBudget::default();
        assert_eq!(allowed(&budget, HEDGE_PRICE), 0);
        assert_eq!(allowed(&budget, 10), 10, "none was slow");
        budget.pay(Duration::from_millis(49));
        assert!(budget.count());
        let mut hedged = 0;
        for _ in 0..100 * HEDGE_PRICE {
            if budget.count() {
                budget.pay(HEDGE_AFTER);
                hedged += 1;
            }
        }
        assert!((100..=102).contains(&hedged), "all are slow: {hedged}");
    }

    #[test]
    fn hedges_that_were_under_way_together_are_paid_afterwards() {
        let budget = HedgeBudget::default();
        allowed(&budget, 1_000_000);
        // However many there were.
        for _ in 0..1_000_000 {
            budget.pay(HEDGE_AFTER);
        }
        assert_eq!(allowed(&budget, CREDIT_MAX + HEDGE_PRICE), 0);
        assert!(budget.count());
    }
}
