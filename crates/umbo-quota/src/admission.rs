//! One request on its way through the policies of its account, with the debits so far.
//!
//! Hot path. The usual case, a policy with a bucket for the account, is written to be compiled into the loop. The
//! buckets of users, sessions and organisations are found apart from it.

use std::sync::Arc;

use crate::bucket::Bucket;
use crate::caller_state::{CallerBucket, CallerState, MatchedPolicy};
use crate::cost::CostByUnit;
use crate::refusals::Refusals;
use crate::reservation::{Debit, DebitedPolicies, Debits};
use crate::subject::Subject;

type Find<'a> = &'a dyn Fn(&MatchedPolicy) -> Arc<Bucket>;

/// A request that is being admitted.
pub(crate) struct AdmissionAttempt<'a> {
    pub(crate) subject: &'a Subject<'a>,
    pub(crate) charge: &'a CostByUnit,
    pub(crate) refusals: Refusals<'a>,
    pub(crate) whole: DebitedPolicies,
    /// `None` before the first debit, and for most requests: `None` costs nothing to move.
    pub(crate) debits: Option<Debits>,
}

impl AdmissionAttempt<'_> {
    /// Asks the policies of an account that do not count by shard. `find` finds the bucket of a policy
    /// whose bucket the account alone does not decide.
    #[inline]
    pub(crate) fn ask_all(&mut self, account: &CallerState, find: Find<'_>) {
        let (mut next, more) = account.first_and_more();
        let mut more = more.iter();
        let mut at = 0;
        while let Some(matched) = next {
            if self.refusals.longest.is_some() && !matched.is_enforced {
                break;
            }
            self.ask(at, matched, find);
            (next, at) = (more.next(), at + 1);
        }
    }

    #[inline]
    fn ask(&mut self, at: usize, matched: &MatchedPolicy, find: Find<'_>) {
        if matched.by_shard || !matched.is_met(self.subject) {
            return;
        }
        let price = self.charge.in_unit(matched.unit);
        let Some(CallerBucket { bucket, schedule }) = &matched.bound else {
            self.ask_apart(at, matched, price, &find(matched));
            return;
        };
        if self.refusals.debit(matched, bucket, schedule, price) && !self.whole.add(at) {
            self.write_down(at, Arc::clone(bucket));
        }
    }

    #[inline(never)]
    fn ask_apart(&mut self, at: usize, matched: &MatchedPolicy, price: u64, bucket: &Arc<Bucket>) {
        let schedule = bucket.schedule();
        if self.refusals.debit_apart(matched, bucket, &schedule, price) {
            self.write_down(at, Arc::clone(bucket));
        }
    }

    #[inline(never)]
    fn write_down(&mut self, at: usize, bucket: Arc<Bucket>) {
        self.debits.get_or_insert_default().push(Debit {
            bucket,
            matched: at as u8,
            parts: (1, 1),
        });
    }
}
