//! The token bucket: one word that says how far its owner has spent along the refill axis.
//!
//! The balance is the position of the axis less that word, at most `burst`. A bucket admits while its balance is
//! positive, and takes the whole price. So the balance may go negative: an overrun is paid, and a request that costs
//! more than a burst is served at last. A charge or refund afterwards is one addition. (Folly's `TokenBucket` has the
//! same form, but its word is an instant; counting atoms instead of time keeps every micro-RU.)
//!
//! Four departures from a plain bucket:
//! - *Reserved refill*: a rejected request gets a ticket. New requests leave the volume of due tickets in the bucket,
//!   at most half a burst (see [`reserved_refill`](crate::reserved_refill)).
//! - *Bounded debt*: debt beyond a minute of the rate (or a burst, if that is more) is written off and counted, so that
//!   a single huge request does not lock its owner out for longer.
//! - Refill that spills over the burst is counted, so that the amount spent is known exactly.
//! - *Share*: a bucket that counts for the whole fleet pays its prices divided by the share of this dispatcher (see
//!   [`fleet_share`](crate::fleet_share)).
//!
//! Hot path: no lock, no allocation, no clock. A lock is taken only for a request with a ticket.

mod demand_window;
mod share;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;

use self::demand_window::DemandWindow;
use crate::crowd::RefusedCost;
use crate::fleet_share::{FleetShare, Scale};
use crate::policy::{BucketKind, Limit, Policy};
use crate::reserved_refill::{ReservedRefill, Turnout};
use crate::retry_ticket::RetryTicket;
use crate::schedule::{Millis, RefillOffset, Schedule};
use crate::used_tickets::UsedTickets;

/// The longest that a bucket lets a request wait, in seconds of the rate: refill is reserved no further
/// ahead, and debt goes no deeper.
pub(crate) const WAIT_SECONDS_MAX: u64 = 60;

/// One bucket of a policy: for a caller, or for another combination of dimension values.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Distinguishes it from all others.
    pub(crate) id: u64,
    /// Name of its policy.
    pub(crate) policy: Arc<str>,
    /// Kind that its policy had when the bucket was made.
    pub(crate) kind: BucketKind,
    /// Dimension values of the bucket, like `caller=listing-web`.
    pub(crate) label: Box<str>,
    schedule: ArcSwap<Schedule>,
    /// The level of the new bucket.
    first_level: u64,
    window: DemandWindow,
    turnout: Turnout,
    used: Mutex<UsedTickets>,
    /// Tickets issued.
    issued: AtomicU32,
    /// Debt written off.
    forgiven: AtomicU64,
    /// The counts for the fleet, if the bucket counts for it.
    share: Option<Box<FleetShare>>,
    words: Words,
}

/// The words that an admission touches, in a separate cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Words {
    /// Position on the axis at which the balance is zero.
    level: AtomicU64,
    reserved: ReservedRefill,
    /// Refill that spilled over the burst, all together.
    spilled: AtomicU64,
    refill_offset: RefillOffset,
    /// Bits of the [`Scale`] of prices; 0 if the bucket counts for this dispatcher alone.
    scale: AtomicU64,
}

/// Whether a bucket would admit a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// At most the burst; negative in debt.
    pub(crate) balance: i64,
    /// Whether the request would be admitted.
    pub(crate) admits: bool,
}

impl Bucket {
    /// Makes a full bucket. `hash` is a hash of its dimension values: the same hash gives the same refill offset.
    pub(crate) fn new(
        id: u64,
        hash: u64,
        policy: &Policy,
        label: Box<str>,
        schedule: &Arc<Schedule>,
        now: Millis,
    ) -> Self {
        let refill = Duration::from_millis(schedule.quantum_ms);
        let refill_offset = RefillOffset::of(hash, refill);
        let axis = schedule.level_at(now, refill_offset);
        let first_level = axis.wrapping_sub(schedule.limit.burst);
        Self {
            id,
            policy: Arc::clone(&policy.name),
            kind: policy.bucket_kind(),
            label,
            schedule: ArcSwap::new(Arc::clone(schedule)),
            first_level,
            window: DemandWindow::begin(now),
            turnout: Turnout::full(axis),
            used: Mutex::default(),
            issued: AtomicU32::new(0),
            forgiven: AtomicU64::new(0),
            share: None,
            words: Words {
                level: AtomicU64::new(first_level),
                reserved: ReservedRefill::none(axis),
                refill_offset,
                ..Words::default()
            },
        }
    }

    /// Sets how the bucket refills from now on. The balance changes only if a lower burst cuts it.
    pub(crate) fn set_limit(&self, limit: Limit, refill: Duration, now: Millis) {
        let schedule = self.schedule.load();
        if !schedule.is(limit, refill) {
            // Refill beyond the old burst must not come back under a higher burst.
            self.spill(&schedule, schedule.level_at(now, self.words.refill_offset));
            self.schedule.rcu(|schedule| {
                if schedule.is(limit, refill) {
                    Arc::clone(schedule)
                } else {
                    Arc::new(schedule.changed(limit, refill, now, self.words.refill_offset))
                }
            });
        }
    }

    /// Returns its rate and burst.
    pub(crate) fn limit(&self) -> Limit {
        self.schedule.load().limit
    }

    /// Returns how the bucket refills.
    pub(crate) fn schedule(&self) -> Arc<Schedule> {
        self.schedule.load_full()
    }

    /// Takes `price` if the bucket admits, else returns its balance. A ticket of this bucket that is
    /// due is used up, whether or not the bucket admits.
    ///
    /// `schedule` is the bucket's own, or was a moment ago. A change of the limit continues the axis from its position,
    /// so that a late reader is off by a moment of refill.
    #[inline]
    pub(crate) fn debit(
        &self,
        schedule: &Schedule,
        price: u64,
        now: Millis,
        ticket: Option<&RetryTicket>,
    ) -> Result<(), i64> {
        let axis = schedule.level_at(now, self.words.refill_offset);
        let scale = self.words.scale.load(Relaxed);
        let taken = match scale {
            0 => price,
            bits => Scale::from_bits(bits).price(price),
        };
        let left = if self.words.reserved.is_any() {
            let is_good = ticket.is_some_and(|ticket| self.use_up(ticket, axis, now));
            self.to_leave(schedule, axis, taken, ticket.filter(|_| is_good))
        } else {
            0
        };
        let mut level = self.words.level.load(Relaxed);
        loop {
            let BucketLevels { balance, overflow } = BucketLevels::of(schedule, axis, level);
            if balance <= left.cast_signed() {
                return Err(balance);
            }
            let next = level.wrapping_add(overflow).wrapping_add(taken);
            match self
                .words
                .level
                .compare_exchange_weak(level, next, Relaxed, Relaxed)
            {
                Ok(_) => {
                    if overflow > 0 {
                        self.words.spilled.fetch_add(overflow, Relaxed);
                    }
                    if scale != 0 {
                        self.count_spent(price.cast_signed());
                    }
                    return Ok(());
                }
                Err(found) => level = found,
            }
        }
    }

    /// Loads the cache line that [`Self::debit`] needs.
    #[inline]
    pub(crate) fn touch(&self) {
        self.words.level.load(Relaxed);
    }

    /// Returns the outcome that [`Self::debit`] would have; uses up no ticket.
    pub(crate) fn look(&self, price: u64, now: Millis, ticket: Option<&RetryTicket>) -> Look {
        let schedule = self.schedule.load();
        let axis = schedule.level_at(now, self.words.refill_offset);
        let ticket = ticket.filter(|ticket| ticket.bucket == self.id && ticket.is_due(now));
        let left = if self.words.reserved.is_any() {
            self.to_leave(&schedule, axis, self.scaled(price), ticket)
        } else {
            0
        };
        let balance = BucketLevels::of(&schedule, axis, self.words.level.load(Relaxed)).balance;
        Look {
            balance,
            admits: balance > left.cast_signed(),
        }
    }

    /// Issues a ticket to a rejected request. `is_renewed` says that the request brought another ticket.
    pub(crate) fn issue(&self, price: u64, now: Millis, is_renewed: bool) -> RetryTicket {
        let schedule = self.schedule.load();
        let axis = schedule.level_at(now, self.words.refill_offset);
        let farthest = schedule.limit.rate.saturating_mul(WAIT_SECONDS_MAX);
        let debt = self.debt(&schedule, axis, price);
        let after = |ahead: u64| {
            let after = ahead.max(debt);
            (after <= farthest).then_some(after)
        };
        let reserved = &self.words.reserved;
        let (cost, rate) = (self.scaled(price), schedule.limit.rate);
        let refused = RefusedCost {
            cost,
            rate,
            is_renewed,
        };
        let first = reserved
            .reserve(&self.turnout, axis, refused, after)
            .unwrap_or_else(|| axis.wrapping_add(farthest));
        RetryTicket {
            bucket: self.id,
            due: self.reached(&schedule, first, now),
            cost: price,
            nonce: self.issued.fetch_add(1, Relaxed),
        }
    }

    /// Returns when a ticket issued now would be due. If the request brings a ticket that is not due yet, returns when
    /// that ticket is due.
    pub(crate) fn due(&self, now: Millis, ticket: Option<&RetryTicket>) -> Millis {
        if let Some(ticket) = self.early(ticket, now) {
            return ticket.due;
        }
        let schedule = self.schedule.load();
        let axis = schedule.level_at(now, self.words.refill_offset);
        let farthest = schedule.limit.rate.saturating_mul(WAIT_SECONDS_MAX);
        let ahead = self.words.reserved.ahead(axis);
        let after = ahead.max(self.debt(&schedule, axis, 0));
        self.reached(&schedule, axis.wrapping_add(after.min(farthest)), now)
    }

    /// Returns when the debt is paid; at least a quantum from now.
    pub(crate) fn paid(&self, now: Millis) -> Millis {
        let schedule = self.schedule.load();
        let axis = schedule.level_at(now, self.words.refill_offset);
        let debt = self.debt(&schedule, axis, 0);
        self.reached(&schedule, axis.wrapping_add(debt), now)
    }

    /// Returns the ticket if this bucket issued it and it is not due yet.
    pub(crate) fn early<'a>(
        &self,
        ticket: Option<&'a RetryTicket>,
        now: Millis,
    ) -> Option<&'a RetryTicket> {
        ticket.filter(|ticket| ticket.bucket == self.id && ticket.due > now)
    }

    /// Uses up a ticket and ends its reservation; returns whether it was good.
    #[cold]
    fn use_up(&self, ticket: &RetryTicket, axis: u64, now: Millis) -> bool {
        if ticket.bucket != self.id || !ticket.is_due(now) {
            return false;
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let is_good = used.use_up(ticket, now);
        drop(used);
        if is_good {
            let cost = self.scaled(ticket.cost);
            self.words.reserved.claim(&self.turnout, axis, cost);
        }
        is_good
    }

    /// Returns the volume that a request has to leave in the bucket while refill is reserved, at most half a burst: the
    /// volume of due tickets, and its own price, so that it takes no refill to come. A request with a good ticket has
    /// priority up to the ticket's cost.
    #[cold]
    fn to_leave(
        &self,
        schedule: &Schedule,
        axis: u64,
        price: u64,
        ticket: Option<&RetryTicket>,
    ) -> u64 {
        let reserved = &self.words.reserved;
        let grace = schedule.grace();
        let unclaimed = reserved.unclaimed(&self.turnout, axis, grace);
        if self.turnout.is_without_tickets() {
            return 0;
        }
        // More tickets may be brought at once than the average expects: half a grace of refill more.
        let unclaimed = self
            .turnout
            .whole(unclaimed)
            .min(unclaimed.saturating_add(grace / 2));
        let beyond = ticket.map_or(u64::MAX, |ticket| {
            price.saturating_sub(self.scaled(ticket.cost))
        });
        let left = unclaimed.saturating_add(price.saturating_sub(1));
        left.min(schedule.limit.burst / 2).min(beyond)
    }

    /// Returns when the axis stands beyond a level; at least a quantum from now.
    fn reached(&self, schedule: &Schedule, level: u64, now: Millis) -> Millis {
        schedule
            .first_beyond(level, self.words.refill_offset)
            .max(Millis(now.0 + schedule.quantum_ms))
    }

    /// Returns the refill quantum, in milliseconds.
    pub(crate) fn quantum_ms(&self) -> u64 {
        self.schedule.load().quantum_ms
    }

    /// Records that `price` was refused.
    pub(crate) fn note_refused(&self, price: u64) {
        self.window.refuse(price);
        if let Some(share) = &self.share {
            share.count_refused(price);
        }
    }

    /// Returns the atoms refused.
    pub(crate) fn refused(&self) -> u64 {
        self.window.refused()
    }

    /// Returns the requests that were refused.
    pub(crate) fn refusals(&self) -> u64 {
        self.window.refusals()
    }

    /// Returns all that was charged, in atoms. Exact while no request spends.
    pub(crate) fn spent(&self) -> i64 {
        if let Some(share) = &self.share {
            return share.spent();
        }
        let level = self.words.level.load(Relaxed);
        level
            .wrapping_sub(self.first_level)
            .wrapping_sub(self.words.spilled.load(Relaxed))
            .wrapping_add(self.forgiven.load(Relaxed))
            .cast_signed()
    }

    /// Returns the balance, at most the burst.
    pub(crate) fn balance(&self, now: Millis) -> i64 {
        self.balance_by(&self.schedule.load(), now)
    }

    /// Returns the balance by a schedule that is the bucket's own, or was a moment ago.
    #[inline]
    pub(crate) fn balance_by(&self, schedule: &Schedule, now: Millis) -> i64 {
        let axis = schedule.level_at(now, self.words.refill_offset);
        BucketLevels::of(schedule, axis, self.words.level.load(Relaxed)).balance
    }

    /// Returns whether the bucket is full, so that a new one would be the same.
    pub(crate) fn is_full(&self, now: Millis) -> bool {
        self.balance(now).cast_unsigned() == self.limit().burst
    }

    /// Returns the demand in atoms a second: in the last whole window, or in the current one if that is more. Of a bucket
    /// that counts for the fleet, the demand at all dispatchers.
    pub(crate) fn observed(&self, now: Millis) -> u64 {
        let fleet = self.share.as_ref().map_or(0, |share| share.demand());
        self.window.observed(self.spent(), now).max(fleet)
    }

    /// Ends the window of the observed rate, and keeps the words of an idle bucket near the axis. To
    /// be called about once a second, by one thread at a time.
    pub(crate) fn roll(&self, now: Millis) {
        self.window.roll(self.spent(), now);
        let schedule = self.schedule.load();
        let axis = schedule.level_at(now, self.words.refill_offset);
        self.spill(&schedule, axis);
        let grace = schedule.grace();
        self.words.reserved.follow(&self.turnout, axis, grace);
    }

    /// Counts refill beyond the burst as spilled.
    fn spill(&self, schedule: &Schedule, axis: u64) {
        let words = &self.words;
        let level = words.level.load(Relaxed);
        let BucketLevels { overflow, .. } = BucketLevels::of(schedule, axis, level);
        let next = level.wrapping_add(overflow);
        if overflow > 0 {
            let changed = words.level.compare_exchange(level, next, Relaxed, Relaxed);
            // If another thread spends meanwhile, it has counted the spilled refill itself.
            if changed.is_ok() {
                words.spilled.fetch_add(overflow, Relaxed);
            }
        }
    }

    /// Writes off debt beyond its bound; returns the amount.
    pub(crate) fn bound_debt(&self, now: Millis) -> u64 {
        let schedule = self.schedule.load();
        let Limit { rate, burst } = schedule.limit;
        let bound = rate.saturating_mul(WAIT_SECONDS_MAX).max(burst);
        let axis = schedule.level_at(now, self.words.refill_offset);
        let level = self.words.level.load(Relaxed);
        let beyond = level
            .wrapping_sub(axis)
            .cast_signed()
            .saturating_sub_unsigned(bound);
        let Ok(beyond @ 1..) = u64::try_from(beyond) else {
            return 0;
        };
        let next = level.wrapping_sub(beyond);
        let words = &self.words;
        match words.level.compare_exchange(level, next, Relaxed, Relaxed) {
            Ok(_) => {
                self.forgiven.fetch_add(beyond, Relaxed);
                beyond
            }
            // The next rejection does it.
            Err(_) => 0,
        }
    }
}

/// A bucket at one instant.
struct BucketLevels {
    /// At most the burst.
    balance: i64,
    /// Refill beyond the burst.
    overflow: u64,
}

impl BucketLevels {
    #[inline]
    fn of(schedule: &Schedule, axis: u64, level: u64) -> Self {
        let burst = schedule.limit.burst.cast_signed();
        let gained = axis.wrapping_sub(level).cast_signed();
        Self {
            balance: gained.min(burst),
            overflow: gained.saturating_sub(burst).max(0).cast_unsigned(),
        }
    }
}
