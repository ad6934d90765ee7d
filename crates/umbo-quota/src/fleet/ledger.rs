//! The counters that a dispatcher owns: their balances, and the share of each dispatcher.
//!
//! A ledger is a bucket that is charged by reports, after the fact. Its balance and the shares go back with each answer.
//! A dispatcher's share of a counter is its part of the demand: equal parts would starve the dispatcher that has the
//! traffic. On top there is slack for dispatchers whose demand grows: the quota without demand, and always an eighth.
//! The slack also brings clients that wait, and so ask for no more than they get, back to equal waits.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use super::message::{CounterReport, HeardBalance};
use super::period::{IDLE_PERIODS, PERIOD_MS, SILENT_PERIODS};
use crate::fleet_share::{OwnerAnswer, Scale};
use crate::policy::Limit;
use crate::schedule::{Millis, RefillOffset, Schedule};
use crate::striped_lru::ByHash;
use crate::unit::Unit;

/// Most counters that a dispatcher owns; about 300 bytes each. Further ones are limited to equal shares.
const LEDGERS_MAX: usize = 1 << 20;
/// Least slack, as a part of the demand: a dispatcher that waits for its share to grow reaches half of it in eight
/// reports, less than a second.
const SLACK_PART: u64 = 8;
/// Time until rising demand is followed, in milliseconds: a period.
const RISE_MS: u64 = PERIOD_MS;
/// Time until falling demand is followed, in milliseconds: a client with a burst a second keeps its share.
const FALL_MS: u64 = 10 * PERIOD_MS;
/// How long a new ledger leaves the shares as an earlier owner gave them, in milliseconds: every dispatcher has reported
/// by then, even if two messages were lost.
const YOUNG_MS: u64 = 3 * PERIOD_MS;
/// How long a silent dispatcher stays in a ledger, in milliseconds: it may be cut off, and come back.
const FORGET_MS: u64 = 60_000;
/// Deepest debt of a counter, in seconds of its rate, as of a bucket.
const DEBT_SECONDS_MAX: u64 = 60;
/// Step of the axis of a ledger: reports come at any time.
const AXIS_STEP: Duration = Duration::from_millis(1);
/// Most atoms that one report charges or gives back.
const SPENT_MAX: u64 = 1 << 60;
/// Highest demand that is counted, in atoms a second: sums of it fit.
const DEMAND_MAX: u64 = 1 << 56;

/// The counters of an owner.
#[derive(Debug, Default)]
pub(super) struct Ledgers {
    by_counter: HashMap<u128, Ledger, ByHash>,
    swept: Millis,
}

#[derive(Debug)]
struct Ledger {
    schedule: Schedule,
    /// Position on the axis at which the balance is zero.
    level: u64,
    since: Millis,
    /// When reports began after a time without any, and the last report.
    active: (Millis, Millis),
    /// Atoms charged since the beginning.
    charged: i64,
    reporters: Vec<Reporter>,
}

/// A dispatcher that reports on a counter.
#[derive(Debug)]
struct Reporter {
    id: u64,
    bucket: u64,
    at: Millis,
    spent: i64,
    /// Atoms that it may give back: the charges here, and the deepest debt for the charges of an earlier owner.
    /// A peer that lies can spend the quota, and can create none.
    paid: u64,
    refused: u64,
    /// Atoms asked for a second.
    demand: u64,
    /// The largest share that may be in effect there, a part of [`Scale::WHOLE`].
    held: u64,
    /// Atoms that it may spend before its next report, as they were answered.
    credit: u64,
}

impl Ledgers {
    /// Charges the counts of a dispatcher, and answers them. `members` is the number of dispatchers.
    pub(super) fn take(
        &mut self,
        sender: u64,
        report: &CounterReport,
        members: u64,
        now: Millis,
    ) -> OwnerAnswer {
        self.sweep(now);
        let limit = sane(report.limit);
        let has_room = self.by_counter.len() < LEDGERS_MAX;
        let Some(ledger) = self.ledger(report, limit, has_room, now) else {
            return OwnerAnswer {
                scale: Scale::of(1, members),
                balance: limit.burst.cast_signed(),
                target: i64::MAX,
                demand: 0,
            };
        };
        ledger.set_limit(limit, now);
        let at = ledger.charge(sender, report, now);
        let sums = ledger.sums(at, members, now);
        let held = report.scale.share();
        let is_young = now.0.saturating_sub(ledger.since.0) < YOUNG_MS;
        let share = if is_young && report.heard.is_some() {
            held
        } else {
            sums.grown(held, sums.share(ledger.schedule.limit.rate, members))
        };
        let balance = ledger.balance(now);
        let target = sums.target(balance, share);
        let own = &mut ledger.reporters[at];
        own.held = held.max(share);
        own.credit = part(target.max(0).cast_unsigned(), share);
        OwnerAnswer {
            scale: Scale::of_share(share),
            balance,
            target,
            demand: sums.demand,
        }
    }

    /// Keeps the counters that are still owned: others would come back with an old balance.
    pub(super) fn keep(&mut self, is_owned: impl Fn(u128) -> bool) {
        self.by_counter.retain(|counter, _| is_owned(*counter));
    }

    /// Returns the number of counters.
    pub(super) fn len(&self) -> usize {
        self.by_counter.len()
    }

    fn ledger(
        &mut self,
        report: &CounterReport,
        limit: Limit,
        has_room: bool,
        now: Millis,
    ) -> Option<&mut Ledger> {
        match self.by_counter.entry(report.counter) {
            Entry::Occupied(found) => Some(found.into_mut()),
            Entry::Vacant(place) => has_room.then(|| place.insert(Ledger::full(limit, now))),
        }
    }

    /// Forgets silent dispatchers, and counters without any that are full again.
    fn sweep(&mut self, now: Millis) {
        if now.0.saturating_sub(self.swept.0) < FORGET_MS / 4 {
            return;
        }
        self.swept = now;
        self.by_counter.retain(|_, ledger| {
            let is_known = |one: &Reporter| now.0.saturating_sub(one.at.0) < FORGET_MS;
            ledger.reporters.retain(is_known);
            ledger.roll(now);
            !ledger.reporters.is_empty() || ledger.balance(now) < ledger.burst()
        });
    }
}

impl Ledger {
    fn full(limit: Limit, now: Millis) -> Self {
        let schedule = Schedule::begin(limit, AXIS_STEP);
        let level = schedule.level_at(now, RefillOffset::default());
        Self {
            level: level.wrapping_sub(limit.burst),
            schedule,
            since: now,
            active: (now, now),
            charged: 0,
            reporters: Vec::new(),
        }
    }

    fn set_limit(&mut self, limit: Limit, now: Millis) {
        if self.schedule.limit != limit {
            self.roll(now);
            let offset = RefillOffset::default();
            self.schedule = self.schedule.changed(limit, AXIS_STEP, now, offset);
        }
    }

    fn axis(&self, now: Millis) -> u64 {
        self.schedule.level_at(now, RefillOffset::default())
    }

    fn burst(&self) -> i64 {
        self.schedule.limit.burst.cast_signed()
    }

    fn balance(&self, now: Millis) -> i64 {
        let gained = self.axis(now).wrapping_sub(self.level).cast_signed();
        gained.min(self.burst())
    }

    /// Drops refill beyond the burst, and debt beyond its bound.
    fn roll(&mut self, now: Millis) {
        let axis = self.axis(now);
        let balance = self.balance(now).max(-self.deepest().cast_signed());
        self.level = axis.wrapping_sub(balance.cast_unsigned());
    }

    /// Returns the deepest debt, in atoms.
    fn deepest(&self) -> u64 {
        let Limit { rate, burst } = self.schedule.limit;
        rate.saturating_mul(DEBT_SECONDS_MAX).max(burst)
    }

    /// Charges the counts of a dispatcher, and returns its place.
    fn charge(&mut self, sender: u64, report: &CounterReport, now: Millis) -> usize {
        self.roll(now);
        let is_silent = now.0.saturating_sub(self.active.1.0) >= IDLE_PERIODS * PERIOD_MS;
        self.active = (if is_silent { now } else { self.active.0 }, now);
        let is_same = |one: &Reporter| one.id == sender && one.bucket == report.bucket;
        let found = self.reporters.iter().position(is_same);
        let at = found.unwrap_or_else(|| {
            if let Some(heard) = report.heard {
                self.follow(heard, now);
            }
            // Without an owner it spent by equal shares: at most a burst of that is charged.
            let unheard = report.spent.saturating_sub(self.burst());
            let earlier = self.reporters.iter().position(|one| one.id == sender);
            let earlier = earlier.map(|at| self.reporters.swap_remove(at));
            self.reporters.push(Reporter {
                id: sender,
                bucket: report.bucket,
                at: Millis(now.0.saturating_sub(PERIOD_MS)),
                spent: match report.heard {
                    Some(_) => report.acked,
                    None => report.acked.max(unheard),
                },
                paid: earlier.map_or_else(|| self.deepest(), |earlier| earlier.paid),
                refused: report.refused,
                demand: 0,
                held: 0,
                credit: 0,
            });
            self.reporters.len() - 1
        });
        let reporter = &mut self.reporters[at];
        let spent = report.spent.saturating_sub(reporter.spent);
        let spent = spent.clamp(
            -reporter.paid.min(SPENT_MAX).cast_signed(),
            SPENT_MAX.cast_signed(),
        );
        reporter.paid = reporter.paid.saturating_add_signed(spent);
        let refused = report.refused.saturating_sub(reporter.refused);
        reporter.learn(spent, refused, now);
        (reporter.spent, reporter.refused) = (report.spent, report.refused);
        self.charged = self.charged.saturating_add(spent);
        let before = self.balance(now);
        self.level = self.level.wrapping_add(spent.cast_unsigned());
        self.roll(now);
        let is_late = |heard: HeardBalance| heard.age_ms > SILENT_PERIODS * PERIOD_MS;
        if report.heard.is_some_and(is_late) {
            // It was cut off and had an equal share meanwhile: to repay all of it at once would refuse everything.
            let least = before.min(-self.schedule.limit.rate.cast_signed());
            let balance = self.balance(now).max(least);
            self.level = self.axis(now).wrapping_sub(balance.cast_unsigned());
        }
        at
    }

    /// Follows the balance that an earlier owner told, so that a new owner hands out no burst. Only a young ledger does:
    /// a balance that comes later knows nothing of the charges and the refill since.
    fn follow(&mut self, heard: HeardBalance, now: Millis) {
        let age_ms = now.0.saturating_sub(self.since.0);
        if age_ms >= YOUNG_MS {
            return;
        }
        let rate = u128::from(self.schedule.limit.rate);
        let gained = rate * u128::from(heard.age_ms.min(FORGET_MS)) / 1_000;
        let gained = i64::try_from(gained).unwrap_or(i64::MAX);
        let told = heard.balance.max(-self.deepest().cast_signed());
        let then = told.saturating_add(gained).min(self.burst());
        let is_of_before = heard.age_ms >= age_ms;
        let balance = then.saturating_sub(if is_of_before { self.charged } else { 0 });
        if balance < self.balance(now) {
            self.level = self.axis(now).wrapping_sub(balance.cast_unsigned());
        }
    }

    /// Sums up the dispatchers that use the counter, for the one at `own`.
    fn sums(&self, own: usize, members: u64, now: Millis) -> FleetSums {
        let Limit { rate, burst } = self.schedule.limit;
        let mut sums = FleetSums {
            own: self.reporters[own].demand,
            ..FleetSums::default()
        };
        for (at, one) in self.reporters.iter().enumerate() {
            let age_ms = now.0.saturating_sub(one.at.0);
            if age_ms >= IDLE_PERIODS * PERIOD_MS {
                continue;
            }
            sums.reporters += 1;
            sums.demand = sums.demand.saturating_add(one.demand);
            if at != own {
                sums.held += one.held;
                let refill = part(rate * age_ms / 1_000, one.held);
                let credit = one.credit.saturating_add(refill).min(part(burst, one.held));
                sums.credit = sums.credit.saturating_add(credit);
            }
        }
        if now.0.saturating_sub(self.active.0.0) < PERIOD_MS {
            // A dispatcher that begins with an equal share tells so within a period.
            let further = members.saturating_sub(sums.reporters);
            let equal = Scale::WHOLE / members.max(1) * further;
            let left = self.balance(now).max(0).cast_unsigned();
            sums.held += equal;
            sums.credit = sums.credit.saturating_add(part(left, equal));
        }
        sums
    }
}

/// The dispatchers that use a counter, for one of them.
#[derive(Debug, Default)]
struct FleetSums {
    reporters: u64,
    /// Atoms asked for a second, by all and by the one.
    demand: u64,
    own: u64,
    /// Shares that may be in effect at the others, parts of [`Scale::WHOLE`].
    held: u64,
    /// Atoms that the others may have spent since they told.
    credit: u64,
}

impl FleetSums {
    /// Returns the share that the one should have.
    fn share(&self, rate: u64, members: u64) -> u64 {
        let unasked = rate.saturating_sub(self.demand);
        let least = self.demand / SLACK_PART;
        let (slack, parts) = if unasked > least {
            // Dispatchers without a report hold their equal share of it already.
            (unasked, members.max(self.reporters))
        } else {
            (least, self.reporters)
        };
        let part = self.own.saturating_add(slack / parts.max(1));
        let whole = u128::from(self.demand.saturating_add(slack).max(1));
        let share = u128::from(part) * u128::from(Scale::WHOLE) / whole;
        u64::try_from(share).unwrap_or(Scale::WHOLE)
    }

    /// Returns the share that the one may have now. A share grows only by the part that no other dispatcher may still
    /// use: each would spend the same balance otherwise, before it has told.
    fn grown(&self, held: u64, wanted: u64) -> u64 {
        let free = Scale::WHOLE.saturating_sub(self.held);
        wanted.min(free.max(held))
    }

    /// Returns the balance that the bucket of the one should have: the fleet's, or less if the others may spend so much
    /// of it that their next reports leave less.
    fn target(&self, balance: i64, share: u64) -> i64 {
        let Ok(left) = u64::try_from(balance) else {
            return balance;
        };
        let free = u128::from(left.saturating_sub(self.credit)) * u128::from(Scale::WHOLE);
        let free = i64::try_from(free / u128::from(share.max(1))).unwrap_or(i64::MAX);
        free.min(balance)
    }
}

impl Reporter {
    /// Moves the measured demand.
    fn learn(&mut self, spent: i64, refused: u64, now: Millis) {
        let elapsed_ms = now.0.saturating_sub(self.at.0).max(1);
        self.at = now;
        let asked = spent.max(0).cast_unsigned().saturating_add(refused);
        let asked = u128::from(asked) * 1_000 / u128::from(elapsed_ms);
        let asked = u64::try_from(asked).unwrap_or(u64::MAX).min(DEMAND_MAX);
        let memory_ms = if asked > self.demand {
            RISE_MS
        } else {
            FALL_MS
        };
        let part = elapsed_ms.min(memory_ms);
        let kept = u128::from(self.demand) * u128::from(memory_ms - part);
        let learned = (kept + u128::from(asked) * u128::from(part)) / u128::from(memory_ms);
        self.demand = learned as u64;
    }
}

/// Returns the part of an amount that belongs to a share.
fn part(amount: u64, share: u64) -> u64 {
    (u128::from(amount) * u128::from(share) / u128::from(Scale::WHOLE)) as u64
}

/// Brings a limit between the bounds of policies: a peer may tell any numbers.
fn sane(limit: Limit) -> Limit {
    let max = |of: fn(Unit) -> u64| Unit::ALL.into_iter().map(of).max().unwrap_or(1);
    Limit {
        rate: limit.rate.clamp(1, max(Unit::rate_max)),
        burst: limit.burst.clamp(1, max(Unit::burst_max)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(spent: i64, acked: i64, heard: Option<(i64, u64)>) -> CounterReport {
        CounterReport {
            counter: 1,
            limit: Limit {
                rate: 100,
                burst: 100,
            },
            bucket: 1,
            spent,
            acked,
            refused: 0,
            scale: Scale::ONE,
            heard: heard.map(|(balance, age_ms)| HeardBalance { balance, age_ms }),
        }
    }

    #[test]
    fn a_new_owner_follows_what_was_told_and_an_old_one_does_not() {
        let mut ledgers = Ledgers::default();
        let mut take = |sender, report: &CounterReport, at| {
            let answer = ledgers.take(sender, report, 3, Millis(at));
            answer.balance
        };
        // It takes the counter over after 600 ms, in which 60 of it came back and 50 were spent.
        let at = 10_000;
        assert_eq!(take(1, &report(1_050, 1_000, Some((5, 600))), at), 15);
        assert_eq!(take(2, &report(500, 490, Some((0, 650))), at + 50), 5);
        for second in 1..=4_i64 {
            take(
                1,
                &report(1_050 + 100 * second, 1_050, None),
                at + 1_000 * second.cast_unsigned(),
            );
        }
        let before = take(1, &report(1_450, 1_450, None), at + 4_000);
        // The earlier owner stood still and comes back: neither its balance of now nor that of then counts.
        for (sender, heard) in [(3, (61, 11)), (4, (0, 4_600))] {
            assert_eq!(
                take(sender, &report(900, 900, Some(heard)), at + 4_000),
                before
            );
        }
    }
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss, reason = "shares in messages")]
mod answers;
