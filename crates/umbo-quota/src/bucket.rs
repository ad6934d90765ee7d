//! The token bucket: one word that says how far its owner has spent along the refill axis.
//!
//! The balance is the axis now minus that word, at most `burst`. A bucket admits while its balance
//! is positive and takes the whole price, so the balance may go negative: nobody forgets an overrun,
//! and whoever asked for more than a burst is served at last. A charge or refund afterwards is one
//! addition. (The form is that of folly's `TokenBucket`, whose word is an instant; counting atoms
//! instead of time keeps every micro-RU.)
//!
//! Three departures from a plain bucket:
//! - *Promises*: whoever is rejected is promised refill, and newcomers leave in the bucket what is
//!   due to those who were, at most half a burst (see [`owed`](crate::owed)).
//! - *Parked debt*: what one request overdraws beyond the debt floor is set aside, so that a
//!   single huge request does not lock its owner out for minutes. While anything is parked, a
//!   request has to be covered, pays its price twice, the second time off the parked debt, and
//!   refill beyond the burst pays it off too. Nothing is parked on top of it.
//! - What refill spilled over the burst is counted, so that what was spent can be told exactly.
//!
//! Hot path: no lock, no allocation, no clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::bounded_map::Kept;
use crate::owed::{Lessons, Owed};
use crate::policy::Limit;
use crate::schedule::{Moment, Phase, Schedule};

/// Debt beyond which the rest is parked, in seconds of the rate.
const DEBT_SECONDS: u64 = 2;
/// How far ahead refill is promised, in seconds of the rate. Those who are rejected later are told
/// this time and may have to come again.
const PROMISE_SECONDS: u64 = 60;
/// Length of the window in which the observed rate is measured, in milliseconds.
const WINDOW_MS: u64 = 1_000;

/// The bucket of one caller, or of whatever a policy counts by.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Distinguishes it from all others.
    pub(crate) id: u64,
    /// Name of its policy.
    pub(crate) policy: Arc<str>,
    /// Whose it is, like `caller=listing-web`.
    pub(crate) label: Box<str>,
    schedule: ArcSwap<Schedule>,
    /// Where the level stood at first.
    first_level: u64,
    window: Window,
    lessons: Lessons,
    words: Words,
}

/// What an admission touches, in one cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Words {
    /// Position on the axis at which the balance is zero.
    level: AtomicU64,
    owed: Owed,
    /// Debt set aside.
    parked: AtomicU64,
    /// Refill that spilled over the burst, all together.
    spilled: AtomicU64,
    was_used: AtomicBool,
    phase: Phase,
}

/// What was asked for in the last whole window.
#[derive(Debug, Default)]
struct Window {
    since_ms: AtomicU64,
    spent_then: AtomicI64,
    refused_then: AtomicU64,
    /// Atoms refused, all together.
    refused: AtomicU64,
    /// Requests refused, all together.
    refusals: AtomicU64,
    /// Atoms asked for a second in the last whole window.
    rate: AtomicU64,
}

/// What a bucket says of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// At most the burst; negative in debt.
    pub(crate) balance: i64,
    /// Whether the request would be admitted.
    pub(crate) admits: bool,
}

impl Bucket {
    /// Makes a full bucket.
    pub(crate) fn new(
        id: u64,
        policy: Arc<str>,
        label: Box<str>,
        schedule: &Arc<Schedule>,
        now: Moment,
    ) -> Self {
        // The id is a hash: as good a phase as any.
        let phase = Phase::of(id >> 32, Duration::from_millis(schedule.quantum_ms));
        let axis = schedule.level_at(now, phase);
        let first_level = axis.wrapping_sub(schedule.limit.burst);
        let window = Window {
            since_ms: AtomicU64::new(now.0),
            ..Window::default()
        };
        Self {
            id,
            policy,
            label,
            schedule: ArcSwap::new(Arc::clone(schedule)),
            first_level,
            window,
            lessons: Lessons::none(axis, now),
            words: Words {
                level: AtomicU64::new(first_level),
                owed: Owed::nothing(axis),
                phase,
                ..Words::default()
            },
        }
    }

    /// Sets how the bucket refills from now on; its balance stays, but for what a lower burst cuts.
    pub(crate) fn set_limit(&self, limit: Limit, refill: Duration, now: Moment) {
        let schedule = self.schedule.load();
        if !schedule.is(limit, refill) {
            // What an idle bucket could not hold must not come back under a higher burst.
            self.spill(&schedule, schedule.level_at(now, self.words.phase));
            self.schedule.rcu(|schedule| {
                if schedule.is(limit, refill) {
                    Arc::clone(schedule)
                } else {
                    Arc::new(schedule.changed(limit, refill, now, self.words.phase))
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

    /// Takes `price` if the bucket admits, else says its balance. `is_due` says whether whoever
    /// asks was told to come now; it is asked only where it matters, and the answer returned.
    ///
    /// `schedule` is the bucket's own or a copy that was its own a moment ago: where a limit changes
    /// the axis goes on from where it stood, so that a late reader is off by a moment of refill.
    #[inline]
    pub(crate) fn debit(
        &self,
        schedule: &Schedule,
        price: u64,
        now: Moment,
        is_due: impl Fn() -> bool,
    ) -> Result<bool, Look> {
        let axis = schedule.level_at(now, self.words.phase);
        let is_owed = self.words.owed.is_any();
        let is_due = is_owed && is_due();
        let reserve = if is_owed && !is_due {
            self.reserve(schedule, axis)
        } else {
            0
        };
        let mut level = self.words.level.load(Relaxed);
        loop {
            let parked = self.words.parked.load(Relaxed);
            let state = State::of(schedule, axis, level, parked);
            if !state.admits(price, reserve) {
                let balance = state.balance;
                return Err(Look {
                    balance,
                    admits: false,
                });
            }
            let surcharge = parked.saturating_sub(state.overflow).min(price);
            let next = level
                .wrapping_add(state.overflow)
                .wrapping_add(price)
                .wrapping_add(surcharge);
            match self
                .words
                .level
                .compare_exchange_weak(level, next, Relaxed, Relaxed)
            {
                Ok(_) => {
                    if state.overflow > 0 || surcharge > 0 {
                        self.repay(state.overflow, surcharge);
                    }
                    if is_due {
                        self.lessons.note_kept(price);
                        self.words.owed.close(price);
                    }
                    return Ok(is_due);
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

    /// Says what [`Self::debit`] would say.
    pub(crate) fn look(&self, price: u64, now: Moment, is_due: impl Fn() -> bool) -> Look {
        let schedule = self.schedule.load();
        let axis = schedule.level_at(now, self.words.phase);
        let parked = self.words.parked.load(Relaxed);
        let state = State::of(&schedule, axis, self.words.level.load(Relaxed), parked);
        let reserve = if self.words.owed.is_any() && !is_due() {
            self.reserve(&schedule, axis)
        } else {
            0
        };
        Look {
            balance: state.balance,
            admits: state.admits(price, reserve),
        }
    }

    /// Charges what a request cost beyond what was taken, or gives back what it did not cost.
    pub(crate) fn adjust(&self, delta: i64) {
        if delta != 0 {
            self.words.level.fetch_add(delta.cast_unsigned(), Relaxed);
        }
    }

    /// Takes back a debit that came to nothing.
    pub(crate) fn refund(&self, price: u64) {
        self.words.level.fetch_sub(price, Relaxed);
    }

    /// Promises refill to whoever was refused, and returns when to come back. `is_kept` says that
    /// they came as they were told before.
    pub(crate) fn promise(&self, price: u64, now: Moment, is_kept: bool) -> Moment {
        let schedule = self.schedule.load();
        let axis = schedule.level_at(now, self.words.phase);
        self.park(&schedule, axis);
        if is_kept {
            self.lessons.note_kept(price);
        }
        self.lessons.draw(&self.words.owed, axis, now, price);
        let reach = schedule.limit.rate.saturating_mul(PROMISE_SECONDS);
        let after = |ahead| {
            let after = self.after(&schedule, axis, ahead, price);
            (after <= reach).then_some(after)
        };
        let first = self.words.owed.promise(&self.lessons, axis, after, price);
        schedule
            .first_beyond(first.unwrap_or(axis.wrapping_add(reach)), self.words.phase)
            .max(Moment(now.0 + schedule.quantum_ms))
    }

    /// Returns when a request that is refused now would be told to come back.
    pub(crate) fn due(&self, price: u64, now: Moment) -> Moment {
        let schedule = self.schedule.load();
        let axis = schedule.level_at(now, self.words.phase);
        let after = self.after(&schedule, axis, self.words.owed.ahead(axis), price);
        schedule
            .first_beyond(axis.wrapping_add(after), self.words.phase)
            .max(Moment(now.0 + schedule.quantum_ms))
    }

    /// Returns the refill quantum, in milliseconds.
    pub(crate) fn quantum_ms(&self) -> u64 {
        self.schedule.load().quantum_ms
    }

    /// Notes that `price` was refused.
    pub(crate) fn note_refused(&self, price: u64) {
        self.window.refused.fetch_add(price, Relaxed);
        self.window.refusals.fetch_add(1, Relaxed);
    }

    /// Returns the requests that were refused.
    pub(crate) fn refusals(&self) -> u64 {
        self.window.refusals.load(Relaxed)
    }

    /// Returns all that was charged, in atoms. Exact while nobody spends.
    pub(crate) fn spent(&self) -> i64 {
        let level = self
            .words
            .level
            .load(Relaxed)
            .wrapping_sub(self.first_level);
        let spilled = self.words.spilled.load(Relaxed);
        let parked = self.words.parked.load(Relaxed);
        level
            .wrapping_sub(spilled)
            .wrapping_add(parked)
            .cast_signed()
    }

    /// Returns the balance, at most the burst; parked debt counts.
    pub(crate) fn balance(&self, now: Moment) -> i64 {
        self.balance_by(&self.schedule.load(), now)
    }

    /// Returns the balance by a schedule that is its own, or was a moment ago.
    #[inline]
    pub(crate) fn balance_by(&self, schedule: &Schedule, now: Moment) -> i64 {
        let axis = schedule.level_at(now, self.words.phase);
        let parked = self.words.parked.load(Relaxed);
        let state = State::of(schedule, axis, self.words.level.load(Relaxed), parked);
        state.balance.saturating_sub_unsigned(parked)
    }

    /// Says whether a new bucket would be the same: full, and nothing parked.
    pub(crate) fn is_full(&self, now: Moment) -> bool {
        self.words.parked.load(Relaxed) == 0
            && self.balance(now).cast_unsigned() == self.schedule.load().limit.burst
    }

    /// Returns the atoms asked for a second: in the last whole window, or in this one where it is more.
    pub(crate) fn observed(&self, now: Moment) -> u64 {
        let window = &self.window;
        let elapsed_ms = now
            .0
            .saturating_sub(window.since_ms.load(Relaxed))
            .max(WINDOW_MS);
        let per_second = |asked: u64| u128::from(asked) * 1_000 / u128::from(elapsed_ms);
        let current = u64::try_from(per_second(self.asked_in_window())).unwrap_or(u64::MAX);
        current.max(window.rate.load(Relaxed))
    }

    /// Ends the window of the observed rate, and keeps the words of an idle bucket near the axis. To
    /// be called about once a second, by one thread at a time.
    pub(crate) fn roll(&self, now: Moment) {
        let window = &self.window;
        let elapsed_ms = now.0.saturating_sub(window.since_ms.load(Relaxed));
        if elapsed_ms >= WINDOW_MS {
            let rate = u128::from(self.asked_in_window()) * 1_000 / u128::from(elapsed_ms);
            window
                .rate
                .store(u64::try_from(rate).unwrap_or(u64::MAX), Relaxed);
            window.spent_then.store(self.spent(), Relaxed);
            window
                .refused_then
                .store(window.refused.load(Relaxed), Relaxed);
            window.since_ms.store(now.0, Relaxed);
        }
        let schedule = self.schedule.load();
        let axis = schedule.level_at(now, self.words.phase);
        self.spill(&schedule, axis);
        self.words.owed.follow(axis);
    }

    /// Lets go of refill beyond the burst.
    fn spill(&self, schedule: &Schedule, axis: u64) {
        let words = &self.words;
        let level = words.level.load(Relaxed);
        let state = State::of(schedule, axis, level, words.parked.load(Relaxed));
        let next = level.wrapping_add(state.overflow);
        if state.overflow > 0 {
            let changed = words.level.compare_exchange(level, next, Relaxed, Relaxed);
            // Where somebody spends meanwhile, they have let go of it themselves.
            if changed.is_ok() {
                self.repay(state.overflow, 0);
            }
        }
    }

    /// Returns what newcomers leave to those who were told to come. They have a fifth of their wait
    /// for jitter, and two quanta at least.
    fn reserve(&self, schedule: &Schedule, axis: u64) -> u64 {
        let owed = &self.words.owed;
        let term = schedule.grace() + owed.ahead(axis) / 5;
        let reserve = owed.reserve(&self.lessons, axis, term);
        reserve.min(schedule.limit.burst / 2)
    }

    /// Returns the atoms that have to flow in before a request that came now would be admitted, where
    /// so many are promised.
    fn after(&self, schedule: &Schedule, axis: u64, promised: u64, price: u64) -> u64 {
        let parked = self.words.parked.load(Relaxed);
        // While debt is parked a price has to be covered, and one beyond the burst waits for all of it.
        let covered = if parked == 0 {
            0
        } else if price > schedule.limit.burst {
            price.saturating_add(parked) - 1
        } else {
            price.saturating_sub(1)
        };
        let level = self.words.level.load(Relaxed).wrapping_add(covered);
        let debt = level.wrapping_sub(axis).cast_signed().max(0);
        promised.max(debt.cast_unsigned())
    }

    /// Pays off parked debt: `surcharge` was charged for it, and `overflow` would be lost.
    fn repay(&self, overflow: u64, surcharge: u64) {
        let pay = |parked: u64| parked.saturating_sub(overflow).saturating_sub(surcharge);
        let parked = self
            .words
            .parked
            .fetch_update(Relaxed, Relaxed, |parked| (parked > 0).then(|| pay(parked)))
            .unwrap_or(0);
        // Another request may have paid the same debt: what was charged too much comes back.
        let by_overflow = parked.min(overflow);
        let by_surcharge = (parked - by_overflow).min(surcharge);
        if by_surcharge < surcharge {
            self.words
                .level
                .fetch_sub(surcharge - by_surcharge, Relaxed);
        }
        self.words
            .spilled
            .fetch_add(overflow - by_overflow, Relaxed);
    }

    /// Sets debt beyond the floor aside.
    fn park(&self, schedule: &Schedule, axis: u64) {
        let floor = schedule
            .limit
            .rate
            .saturating_mul(DEBT_SECONDS)
            .max(schedule.limit.burst);
        let level = self.words.level.load(Relaxed);
        let debt = level.wrapping_sub(axis).cast_signed();
        let Ok(beyond @ 1..) = u64::try_from(debt.saturating_sub_unsigned(floor)) else {
            return;
        };
        if self.words.parked.load(Relaxed) > 0 {
            return;
        }
        let next = level.wrapping_sub(beyond);
        if self
            .words
            .level
            .compare_exchange(level, next, Relaxed, Relaxed)
            .is_ok()
        {
            self.words.parked.fetch_add(beyond, Relaxed);
        }
    }

    fn asked_in_window(&self) -> u64 {
        let window = &self.window;
        let spent = self
            .spent()
            .wrapping_sub(window.spent_then.load(Relaxed))
            .max(0);
        let refused = window.refused.load(Relaxed) - window.refused_then.load(Relaxed);
        spent.cast_unsigned().saturating_add(refused)
    }
}

impl Kept for Arc<Bucket> {
    fn was_used(&self) -> &AtomicBool {
        &self.words.was_used
    }

    fn is_held(&self) -> bool {
        Self::strong_count(self) > 1
    }
}

/// A bucket at one moment.
struct State {
    /// At most the burst.
    balance: i64,
    /// Refill beyond the burst.
    overflow: u64,
    parked: u64,
}

impl State {
    fn of(schedule: &Schedule, axis: u64, level: u64, parked: u64) -> Self {
        let burst = schedule.limit.burst.cast_signed();
        let gained = axis.wrapping_sub(level).cast_signed();
        Self {
            balance: gained.min(burst),
            overflow: gained.saturating_sub(burst).max(0).cast_unsigned(),
            parked,
        }
    }

    /// Says whether `price` can be taken by one who leaves `reserve`.
    fn admits(&self, price: u64, reserve: u64) -> bool {
        if self.balance <= reserve.cast_signed() {
            return false;
        }
        // Refill that spills over pays off the parked debt first.
        self.parked <= self.overflow || price <= self.balance.cast_unsigned()
    }
}
