//! The retry budget: how many extra requests are allowed for each ordinary one.
//!
//! A retry adds load to a node that may be slow because of load. Each request earns a fraction of an extra
//! request; an extra request costs a whole one. The balance is bounded, so that quiet times cannot save up a
//! burst of retries.

use std::sync::atomic::{AtomicI64, Ordering};

/// Number of parts of an extra request.
const WHOLE: i64 = 1_000;
/// Most extra requests that can be saved up.
const SAVED_MAX: i64 = 50;

#[derive(Debug)]
pub(crate) struct Budget {
    balance: AtomicI64,
    /// Parts earned by each request.
    share: i64,
}

impl Budget {
    /// Makes a budget of this many extra requests per hundred, which begins full; with 0 it is always empty.
    pub(crate) fn new(percent: u8) -> Self {
        let share = i64::from(percent) * WHOLE / 100;
        let full = if share > 0 { SAVED_MAX * WHOLE } else { 0 };
        Self {
            balance: AtomicI64::new(full),
            share,
        }
    }

    /// Earns for this many requests.
    pub(crate) fn earn(&self, requests: u64) {
        let earned = self
            .share
            .saturating_mul(i64::try_from(requests).unwrap_or(i64::MAX));
        if earned == 0 || self.balance.load(Ordering::Relaxed) >= SAVED_MAX * WHOLE {
            return;
        }
        let before = self.balance.fetch_add(earned, Ordering::Relaxed);
        let excess = before.saturating_add(earned) - SAVED_MAX * WHOLE;
        if excess > 0 {
            self.balance
                .fetch_sub(excess.min(earned), Ordering::Relaxed);
        }
    }

    /// Takes an extra request; returns whether the budget had one.
    pub(crate) fn take(&self) -> bool {
        let has_one = |balance: i64| (balance >= WHOLE).then(|| balance - WHOLE);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        self.balance.fetch_update(set, fetch, has_one).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(budget: &Budget) -> usize {
        std::iter::from_fn(|| budget.take().then_some(())).count()
    }

    #[test]
    fn extras_are_a_share_of_requests() {
        let budget = Budget::new(10);
        assert_eq!(drain(&budget), 50);
        budget.earn(9);
        assert_eq!(drain(&budget), 0);
        budget.earn(1);
        assert_eq!(drain(&budget), 1);
        for _ in 0..100 {
            budget.earn(1);
        }
        assert_eq!(drain(&budget), 10);
    }

    #[test]
    fn quiet_times_save_up_no_storm() {
        let budget = Budget::new(100);
        drain(&budget);
        budget.earn(1_000_000);
        assert_eq!(drain(&budget), 50);
    }

    #[test]
    fn a_share_of_nothing_is_nothing() {
        let budget = Budget::new(0);
        budget.earn(1_000_000);
        assert_eq!(drain(&budget), 0);
    }
}
