//! What an admitted request has taken from its buckets, until it is settled.
//!
//! Settled exactly once: by [`Reservation::settle`], or on drop, so that no cancellation, panic or
//! early return leaks a micro-RU. A request that was dropped before the store was asked gets
//! everything back; afterwards it pays the estimate or what it is known to have cost, whichever is
//! more. Buckets, ledger and answer are charged the same figure.

use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use umbo_types::{Operation, RequestUnits, ShardId};

use crate::account::{Account, Served};
use crate::bucket::Bucket;
use crate::cost::{Charge, Work};
use crate::policy::{Limit, Source};
use crate::report::Advertised;

/// Share of a request's work that falls to a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardShare {
    /// The shard.
    pub shard: ShardId,
    /// Its part of the sum of all parts.
    pub parts: u32,
}

/// What was taken from one bucket.
#[derive(Debug)]
pub(crate) struct Debit {
    /// Place of the policy in the account.
    pub(crate) binding: u8,
    /// Where it is not the one of the binding.
    pub(crate) own: Option<Arc<Bucket>>,
    /// In atoms of the policy's unit.
    pub(crate) taken: u64,
    /// Parts of the request that this bucket is charged, of all parts.
    pub(crate) parts: (u32, u32),
}

/// An admitted request that is under way.
#[derive(Debug)]
#[must_use = "a reservation that is dropped at once admits nothing"]
pub struct Reservation {
    pub(crate) account: Arc<Account>,
    pub(crate) operation: Operation,
    body_len: u64,
    /// In micro-RU.
    estimate: u64,
    /// What is charged if nothing more becomes known: the estimate, or what is done where it is more.
    pub(crate) reserved: Charge,
    /// Rows and bytes known to be done.
    done: (u64, u64),
    pub(crate) debits: SmallVec<[Debit; 3]>,
    pub(crate) shares: SmallVec<[ShardShare; 1]>,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The store was not asked.
    Admitted,
    /// It was.
    Sent,
    /// It is over, at this price.
    Settled(RequestUnits),
}

impl Reservation {
    #[inline]
    pub(crate) fn new(
        account: Arc<Account>,
        operation: Operation,
        body_len: u64,
        estimate: Charge,
    ) -> Self {
        Self {
            account,
            operation,
            body_len,
            estimate: estimate.ru,
            reserved: estimate,
            done: (0, 0),
            debits: SmallVec::new(),
            shares: SmallVec::new(),
            phase: Phase::Admitted,
        }
    }

    /// Returns what was reserved.
    pub fn estimate(&self) -> RequestUnits {
        RequestUnits::from_micros(self.estimate)
    }

    /// Notes that the store is about to be asked: from now on the request costs something.
    pub fn sent(&mut self) {
        if self.phase == Phase::Admitted {
            self.phase = Phase::Sent;
        }
    }

    /// Charges at once what work done so far costs beyond what was taken. `work` is all of it, not
    /// what was added.
    pub fn progress(&mut self, work: &Work) {
        if matches!(self.phase, Phase::Settled(_)) {
            return;
        }
        self.phase = Phase::Sent;
        self.done = (work.rows, work.read_bytes + work.write_bytes);
        self.reserved = Charge::of(self.price(work), work).max(&self.reserved);
        let reserved = self.reserved;
        self.charge(&reserved);
    }

    /// Charges what the request cost in the end, and returns it. Only the first call counts; a
    /// later one returns the same figure.
    pub fn settle(&mut self, work: &Work) -> RequestUnits {
        self.end(work, None, true)
    }

    /// Settles at a fixed price, for work that no shard was asked for.
    pub fn settle_at(&mut self, price: RequestUnits, work: &Work) -> RequestUnits {
        self.end(work, Some(price), false)
    }

    /// Ends the reservation as dropping it would, and returns what it charged: nothing where the
    /// store was not asked, else the estimate or what is known to be done, whichever is more. Like
    /// [`Self::settle`] it counts once.
    pub fn abandon(&mut self) -> RequestUnits {
        match self.phase {
            Phase::Settled(price) => return price,
            Phase::Admitted => self.cancel(),
            Phase::Sent => {
                let price = RequestUnits::from_micros(self.reserved.ru);
                self.phase = Phase::Settled(price);
                // Every debit is at what is reserved already.
                let (rows, read_bytes) = self.done;
                let work = Work {
                    rows,
                    read_bytes,
                    ..Work::default()
                };
                self.count(price, &work, false);
            }
        }
        self.charged()
    }

    /// Gives everything back, also where the store was asked: it refused before it began. Does
    /// nothing to a reservation that is settled.
    pub fn release(&mut self) {
        if !matches!(self.phase, Phase::Settled(_)) {
            self.cancel();
        }
    }

    /// Returns what the request is charged at this moment.
    pub fn charged(&self) -> RequestUnits {
        match self.phase {
            Phase::Admitted | Phase::Sent => RequestUnits::from_micros(self.reserved.ru),
            Phase::Settled(price) => price,
        }
    }

    /// Returns what is left to the caller under the tightest of the enforced policies that somebody
    /// configured; none where there is none.
    pub fn advertised(&self, now: Instant) -> Option<Advertised> {
        let now = self.account.pricing().moment(now);
        let mut tightest: Option<(&Debit, Limit, i64)> = None;
        for debit in &self.debits {
            let policy = &self.account.binding(debit.binding).rule.policy;
            if policy.source == Source::BuiltIn || !self.is_enforced(debit) {
                continue;
            }
            let bucket = self.bucket(debit);
            let (limit, balance) = (bucket.limit(), bucket.balance(now));
            let share = |balance: i64, of: Limit| i128::from(balance) * i128::from(of.burst);
            let is_tighter = tightest
                .is_none_or(|(_, other, least)| share(balance, other) < share(least, limit));
            if is_tighter {
                tightest = Some((debit, limit, balance));
            }
        }
        let (debit, limit, balance) = tightest?;
        let missing = limit.burst.saturating_add_signed(balance.saturating_neg());
        Some(Advertised {
            policy: Arc::clone(&self.account.binding(debit.binding).rule.policy),
            limit,
            remaining: balance.max(0).cast_unsigned(),
            reset: Duration::from_millis(match missing.checked_mul(1_000) {
                Some(product) => product / limit.rate,
                None => (missing / limit.rate).saturating_mul(1_000),
            }),
        })
    }

    pub(crate) fn bucket<'a>(&'a self, debit: &'a Debit) -> &'a Arc<Bucket> {
        let binding = self.account.binding(debit.binding);
        debit
            .own
            .as_ref()
            .or(binding.bucket())
            .expect("a debit names its bucket where its policy has none for the account")
    }

    /// Gives everything back: a policy rejects the request.
    pub(crate) fn reject(&mut self) {
        self.cancel();
        self.account.record.cell(self.operation).count_rejected();
    }

    fn cancel(&mut self) {
        for debit in &self.debits {
            self.bucket(debit).refund(debit.taken);
        }
        self.debits.clear();
        self.phase = Phase::Settled(RequestUnits::ZERO);
    }

    fn is_enforced(&self, debit: &Debit) -> bool {
        self.account.binding(debit.binding).is_enforced
    }

    fn price(&self, work: &Work) -> RequestUnits {
        let pricing = self.account.pricing();
        let service_time = pricing.medians.capped(self.operation, work.service_time);
        let work = Work {
            service_time,
            ..*work
        };
        pricing.weights.price(self.operation, &work)
    }

    fn end(&mut self, work: &Work, fixed: Option<RequestUnits>, is_whole: bool) -> RequestUnits {
        if let Phase::Settled(price) = self.phase {
            return price;
        }
        let price = fixed.unwrap_or_else(|| self.price(work));
        self.phase = Phase::Settled(price);
        self.charge(&Charge::of(price, work));
        self.count(price, work, is_whole);
        price
    }

    /// Brings every bucket to what it is to be charged.
    fn charge(&mut self, charge: &Charge) {
        let account = &self.account;
        for debit in &mut self.debits {
            let binding = account.binding(debit.binding);
            let due = part(charge.in_unit(binding.unit), debit.parts);
            let bucket = debit.own.as_ref().or(binding.bucket());
            if let Some(bucket) = bucket {
                // Charges stay below 2^56, so their difference is exact.
                bucket.adjust(due.wrapping_sub(debit.taken).cast_signed());
            }
            debit.taken = due;
        }
    }

    fn count(&self, price: RequestUnits, work: &Work, is_whole: bool) {
        let account = &self.account;
        let served = Served {
            operation: self.operation,
            body_len: self.body_len,
            work,
            price,
            estimate: self.estimate,
            is_whole,
        };
        let cell = account.record.cell(self.operation);
        cell.count_served(account.pricing(), &served);
        if !self.shares.is_empty() {
            self.count_by_shard(price);
        }
    }

    fn count_by_shard(&self, price: RequestUnits) {
        let all = self
            .shares
            .iter()
            .map(|share| share.parts)
            .sum::<u32>()
            .max(1);
        let mut left = price.as_micros();
        for (at, share) in self.shares.iter().enumerate() {
            let is_last = at + 1 == self.shares.len();
            let own = if is_last {
                left
            } else {
                part(price.as_micros(), (share.parts, all)).min(left)
            };
            left -= own;
            self.account.space.count(share.shard, own);
        }
    }
}

impl Drop for Reservation {
    #[inline]
    fn drop(&mut self) {
        if !matches!(self.phase, Phase::Settled(_)) {
            self.abandon();
        }
    }
}

/// Returns a part of a charge, rounded down.
#[inline]
pub(crate) fn part(charge: u64, (parts, all): (u32, u32)) -> u64 {
    if parts == all {
        return charge;
    }
    (u128::from(charge) * u128::from(parts) / u128::from(all)) as u64
}
