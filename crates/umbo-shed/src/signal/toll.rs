//! The toll of a shard: who is let through while the shard is overloaded.
//!
//! What requests read and count; the tick sets it. A tier without a penalty passes. In one with a
//! penalty a caller is debited its price times its factor, and passes while its account is not in
//! debt; whatever else is known, a tenth of what a tier asks for passes.
//!
//! Hot path: no lock, no allocation, no clock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use umbo_types::{Criticality, RequestUnits, ShardId};

use super::class::Class;
use super::cohort::cohort;
use super::ladder::{Steps, TIERS};
use super::ledger::{Account, AccountId, Ledger, Visit};
use super::report::ShedByPenalty;
use super::settings::TICK;

/// A tick forgets this part of what tiers have asked for.
const FADE: u64 = 8;
/// Jitter is at most this part of a wait, and at most this long where that is more.
const JITTER_PART: u64 = 5;
const JITTER_MICROS_MIN: u64 = 50_000;

/// Work for one shard.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// The shard that does it.
    pub shard: ShardId,
    /// How much it matters.
    pub tier: Criticality,
    /// A hash of who asks; the same for all requests of a caller.
    pub caller: u64,
    /// What it costs, or is estimated to.
    pub cost: RequestUnits,
}

/// What a request has to bring that is not of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) now_micros: u64,
    /// Hour since the start: cohorts change by it.
    pub(crate) epoch: u32,
    pub(crate) floor: f64,
    pub(crate) random: u64,
}

/// One tier of one shard.
#[derive(Debug, Default)]
struct Tier {
    /// Micro-RU asked for and let through while the shard is overloaded; they fade.
    asked: AtomicU64,
    passed: AtomicU64,
    /// Requests shed since the engagement began.
    shed: AtomicU64,
    /// The account of callers that have none of their own.
    others: Account,
}

/// What the requests of one shard read and count.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Toll {
    /// [`Steps`]; 0 while the shard is not overloaded.
    steps: AtomicU64,
    /// Number of the engagement; its lower bits.
    engagement: AtomicU64,
    /// The class in the upper half, the bits of the ratio in the lower one.
    cause: AtomicU64,
    /// For how long the store has held its oldest request, in microseconds.
    oldest_micros: AtomicU64,
    tiers: [Tier; TIERS],
}

impl Toll {
    /// Lets work through or sheds it.
    #[inline]
    pub(crate) fn admit(&self, work: &Work, terms: &Terms<'_>) -> Result<(), ShedByPenalty> {
        let steps = self.steps();
        if steps == Steps::default() {
            return Ok(());
        }
        self.weigh(work, terms, steps)
    }

    #[inline(never)]
    fn weigh(&self, work: &Work, terms: &Terms<'_>, steps: Steps) -> Result<(), ShedByPenalty> {
        let tier = &self.tiers[work.tier as usize];
        let price = work.cost.as_micros();
        let asked = tier.asked.fetch_add(price, Relaxed).saturating_add(price);
        let verdict = if steps.has(work.tier) {
            self.debit(work, terms, steps)
        } else {
            Ok(())
        };
        if verdict.is_ok() || is_below_floor(asked, tier.passed.load(Relaxed), terms.floor) {
            tier.passed.fetch_add(price, Relaxed);
            return Ok(());
        }
        tier.shed.fetch_add(1, Relaxed);
        verdict
    }

    fn debit(&self, work: &Work, terms: &Terms<'_>, steps: Steps) -> Result<(), ShedByPenalty> {
        let account = terms
            .ledger
            .find(AccountId::new(work.caller, work.shard, work.tier));
        let account = account.unwrap_or(&self.tiers[work.tier as usize].others);
        let rate = terms.ledger.baseline(account);
        let visit = Visit {
            now_micros: terms.now_micros,
            engagement: self.engagement.load(Relaxed) as u16,
            price: work.cost,
        };
        let is_above = account.demand(&visit, rate);
        let cohort = cohort(work.caller, terms.epoch);
        let Some(exponent) = steps.exponent(work.tier, cohort, is_above) else {
            return Ok(());
        };
        let Err(wait) = account.debit(&visit, rate, exponent) else {
            return Ok(());
        };
        let (class, ratio) = unpack(self.cause.load(Relaxed));
        Err(ShedByPenalty {
            shard: work.shard,
            class,
            ratio,
            tier: work.tier,
            penalty: 2_f64.powi(exponent),
            wait: jittered(wait, terms.random),
        })
    }

    /// Begins an engagement: all accounts and counts begin anew.
    pub(crate) fn begin(&self, engagement: u64) {
        self.engagement.store(engagement, Relaxed);
        for tier in &self.tiers {
            tier.asked.store(0, Relaxed);
            tier.passed.store(0, Relaxed);
            tier.shed.store(0, Relaxed);
        }
    }

    /// Says why work is shed.
    pub(crate) fn set_cause(&self, class: Class, ratio: f64) {
        let ratio = u64::from((ratio as f32).to_bits());
        self.cause.store((class as u64) << 32 | ratio, Relaxed);
    }

    /// Sets how hard each tier is penalised.
    pub(crate) fn set_steps(&self, steps: Steps) {
        self.steps.store(steps.word(), Relaxed);
    }

    /// Returns how hard each tier is penalised.
    #[inline]
    pub(crate) fn steps(&self) -> Steps {
        Steps::of_word(self.steps.load(Relaxed))
    }

    /// Returns what each tier asks for, of 1; all 0 where nothing is asked.
    #[expect(clippy::cast_precision_loss)] // shares
    pub(crate) fn shares(&self) -> [f64; TIERS] {
        let asked = self
            .tiers
            .each_ref()
            .map(|tier| tier.asked.load(Relaxed) as f64);
        let sum = asked.iter().sum::<f64>().max(1.0);
        asked.map(|asked| asked / sum)
    }

    /// Forgets a part of what was asked for and let through.
    pub(crate) fn fade(&self) {
        for tier in &self.tiers {
            for sum in [&tier.asked, &tier.passed] {
                sum.fetch_sub(sum.load(Relaxed) / FADE, Relaxed);
            }
        }
    }

    /// Returns the requests shed since the engagement began, by tier.
    pub(crate) fn shed(&self) -> [u64; TIERS] {
        self.tiers.each_ref().map(|tier| tier.shed.load(Relaxed))
    }

    /// Notes the age of the oldest request that the store has not answered.
    pub(crate) fn note_oldest(&self, age: Duration) {
        let micros = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
        self.oldest_micros.store(micros, Relaxed);
    }

    /// Returns the age of the oldest request, as it was noted.
    pub(crate) fn oldest(&self) -> Duration {
        Duration::from_micros(self.oldest_micros.load(Relaxed))
    }

    /// Notes what a caller without an account of its own was charged.
    pub(crate) fn charge_others(&self, work: &Work) {
        self.tiers[work.tier as usize].others.charge(work.cost);
    }

    /// Takes what was charged to those into their usual rates.
    pub(crate) fn sweep(&self, seconds: f64, is_frozen: bool) {
        for tier in &self.tiers {
            tier.others.sweep(seconds, is_frozen);
        }
    }
}

/// Says whether less has passed than always does. The first request of a tier always passes.
#[expect(clippy::cast_precision_loss)] // a share
fn is_below_floor(asked: u64, passed: u64, floor: f64) -> bool {
    (passed as f64) < floor * asked as f64
}

fn jittered(wait_micros: u64, random: u64) -> Duration {
    let wait = wait_micros.max(TICK.as_micros() as u64);
    let range = (wait / JITTER_PART).max(JITTER_MICROS_MIN);
    let jitter = (u128::from(random) * u128::from(range)) >> 64;
    Duration::from_micros(wait + jitter as u64)
}

fn unpack(cause: u64) -> (Class, f64) {
    let class = Class::ALL.get((cause >> 32) as usize).copied();
    let ratio = f32::from_bits(cause as u32);
    (class.unwrap_or(Class::PointRead), f64::from(ratio))
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss)] // counts here are far below 2⁵³
mod tests;
