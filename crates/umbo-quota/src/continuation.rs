//! The cost of a later part of a request that was admitted with its first part. A long range is fetched piece by piece,
//! and the node that keeps the quotas of a shard sees each piece by itself.
//!
//! A part costs its rows, bytes and time. It does not pay the base price of a request, and does not count where
//! requests are counted by number. It is never rejected, because its request has been admitted: a charge beyond a
//! balance is a debt that the next request meets.

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;
use umbo_types::{Operation, RequestUnits};

use crate::caller_state::CallerState;
use crate::cost::{ActualUsage, CostByUnit};
use crate::limiter::Limiter;
use crate::request::QuotaRequest;
use crate::reservation::{Debit, Debits, ShardShare, part};
use crate::unit::Unit;

/// A part of an admitted request that is under way. It takes nothing before its work is known: a part that is dropped
/// costs nothing.
#[derive(Debug)]
#[must_use = "a part that is not settled is not charged"]
pub struct Continuation {
    account: Arc<CallerState>,
    operation: Operation,
    due: Debits,
}

impl Limiter {
    /// Begins a part of a request that was admitted before, on the shards it concerns.
    pub fn go_on(
        &self,
        request: &QuotaRequest<'_>,
        shares: &[ShardShare],
        now: Instant,
    ) -> Continuation {
        let (now, subject) = (self.pricing.millis(now), &request.subject);
        let account = self.account(subject, now);
        let all = shares.iter().map(|share| share.parts).sum::<u32>().max(1);
        let mut due = SmallVec::new();
        for (at, matched) in account.matched_policies().enumerate() {
            let is_counted = matched.unit != Unit::Requests;
            if !matched.by_shard || !is_counted || !matched.is_met(subject) {
                continue;
            }
            for share in shares {
                let shard = Some(share.shard);
                due.push(Debit {
                    bucket: self.find_bucket(&matched.active, subject, shard, now),
                    matched: at as u8,
                    parts: (share.parts, all),
                });
            }
        }
        Continuation {
            account,
            operation: subject.operation,
            due,
        }
    }
}

impl Continuation {
    /// Charges the work of the part, and returns its price. `work` counts the keys that were read for it. It counts no
    /// read of a range or scan, which counted with its first part.
    pub fn settle(self, work: &ActualUsage) -> RequestUnits {
        let pricing = self.account.pricing();
        let price = pricing.weights.price_of_part(work);
        let charge = CostByUnit::of(price, work);
        for debit in &self.due {
            let unit = self.account.matched(debit.matched).unit;
            let due = part(charge.in_unit(unit), debit.parts);
            debit.bucket.adjust(due.cast_signed());
        }
        let cell = self.account.record.cell(self.operation);
        cell.count_part(price.as_micros(), work);
        price
    }
}
