//! What a part of a request costs that was admitted with its first one: a long range is fetched piece
//! by piece, and whoever keeps the quotas of shards sees each piece by itself.
//!
//! It costs the rows, bytes and time that it took, and neither the price of a request nor a place
//! among those that are counted by the number. It is never rejected, as a request is not that has
//! been let in: what it takes beyond a balance is a debt that the next one meets.

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;
use umbo_types::{Operation, RequestUnits};

use crate::account::Account;
use crate::cost::{Charge, Work};
use crate::limiter::{Limiter, Request};
use crate::reservation::{Debit, Debits, ShardShare, part};
use crate::unit::Unit;

/// A part of an admitted request that is under way. Nothing is taken before it is known what it
/// did: one that is dropped costs nothing.
#[derive(Debug)]
#[must_use = "a part that is not settled is not charged"]
pub struct Continuation {
    account: Arc<Account>,
    operation: Operation,
    due: Debits,
}

impl Limiter {
    /// Begins a part of a request that was admitted before, on the shards it concerns.
    pub fn go_on(
        &self,
        request: &Request<'_>,
        shares: &[ShardShare],
        now: Instant,
    ) -> Continuation {
        let (now, subject) = (self.pricing.moment(now), &request.subject);
        let account = self.account(subject, now);
        let all = shares.iter().map(|share| share.parts).sum::<u32>().max(1);
        let mut due = SmallVec::new();
        for (at, binding) in account.bindings().enumerate() {
            let is_counted = binding.unit != Unit::Requests;
            if !binding.by_shard || !is_counted || !binding.is_met(subject) {
                continue;
            }
            for share in shares {
                let shard = Some(share.shard);
                due.push(Debit {
                    bucket: self.find_bucket(&binding.rule, subject, shard, now),
                    binding: at as u8,
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
    /// Charges what the part did, and returns what that costs. `work` names the keys that were read
    /// for it, and no read of a range or scan, which counted with its first part.
    pub fn settle(self, work: &Work) -> RequestUnits {
        let pricing = self.account.pricing();
        let nanos = pricing.medians.capped(self.operation, work.service_time);
        let price = pricing.weights.price_of_part(work, nanos);
        let charge = Charge::of(price, work);
        for debit in &self.due {
            let unit = self.account.binding(debit.binding).unit;
            let due = part(charge.in_unit(unit), debit.parts);
            debit.bucket.adjust(due.cast_signed());
        }
        let cell = self.account.record.cell(self.operation);
        cell.count_part(price.as_micros(), work);
        price
    }
}
