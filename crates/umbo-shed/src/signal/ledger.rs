//! The ledger: what each caller usually asks of a shard in a tier, and what it has been let through
//! while the tier is penalised.
//!
//! Beside the quotas and apart from them. An [`Account`] refills at the caller's own baseline, as it
//! was before the overload, and is debited the price times the penalty; so a caller at its baseline
//! keeps one part in eight of it under ×8, and one that asks for ten times as much as usual pays for
//! it itself. An account belongs to one engagement by its number: with the next one all are new, so
//! wiping them takes no time.
//!
//! Bounded: a table of sets of four, by hash. Where a set is full a caller replaces one that asks
//! for less than its request, or else shares one account of its shard and tier with all the others.
//! Two threads that place callers at the same instant may lose one of them until its next request.
//!
//! Hot path: no lock, no allocation, no clock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use umbo_types::{Criticality, RequestUnits, ShardId};

const WAYS: usize = 4;
/// Time constant of usual rates, in seconds.
const MEMORY_SECONDS: f64 = 120.0;
/// Lowest rate at which an account refills, in micro-RU a second, so that a newcomer is not shut out.
const RATE_MIN: u64 = 1_000_000;
/// An account whose rate falls below this many micro-RU a second is forgotten.
const RATE_FORGOTTEN: u64 = 1_000;
/// Refill that an account has at first and at most, in microseconds.
const BURST_MICROS: u64 = 100_000;
/// Debt of an account at most: in microseconds, the longest that a caller gets nothing at all.
const DEBT_MICROS: u64 = 3_000_000;
/// How much more than usual counts as usual: a quarter, and one second's worth at once.
const HEADROOM: (u64, u64) = (5, 4);
const SURPLUS_MICROS: u64 = 1_000_000;
/// Bits of a word that hold the instant, in microseconds; the others hold the engagement.
const INSTANT_BITS: u32 = 48;

/// Instants of one engagement, in one word.
#[derive(Debug, Default)]
struct Meter(AtomicU64);

impl Meter {
    /// Returns the instant at which the meter is even; `first` where it is of an older engagement.
    fn read(word: u64, engagement: u16, first: u64) -> u64 {
        if word >> INSTANT_BITS == u64::from(engagement) {
            word & ((1 << INSTANT_BITS) - 1)
        } else {
            first
        }
    }

    /// Moves the instant to what `step` says of it, or leaves it where that is none. Returns what it
    /// was.
    fn step(
        &self,
        engagement: u16,
        first: u64,
        step: impl Fn(u64) -> Option<u64>,
    ) -> Result<u64, u64> {
        let pack = |instant: u64| u64::from(engagement) << INSTANT_BITS | instant;
        let read = |word| Self::read(word, engagement, first);
        let stepped = self
            .0
            .fetch_update(Relaxed, Relaxed, |word| step(read(word)).map(pack));
        stepped.map(read).map_err(read)
    }
}

/// What is known of one caller at one shard in one tier.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Micro-RU charged since the last sweep.
    charged: AtomicU64,
    /// Usual micro-RU a second.
    rate: AtomicU64,
    /// When what was let through is paid for.
    debt: Meter,
    /// When what was asked for is what is usual.
    demand: Meter,
}

/// A request at an account.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visit {
    pub(crate) now_micros: u64,
    /// Number of the engagement of the shard.
    pub(crate) engagement: u16,
    pub(crate) price: RequestUnits,
}

impl Visit {
    /// Returns the time in which `rate` refills the price times 2 to the power of `exponent`, which
    /// is from −32 to 32.
    fn micros(&self, rate: u64, exponent: i32) -> u64 {
        let micros = (u128::from(self.price.as_micros()) * 1_000_000) << exponent.max(0);
        let micros = (micros >> (-exponent).max(0)) / u128::from(rate);
        u64::try_from(micros).unwrap_or(u64::MAX)
    }
}

impl Account {
    /// Notes what a caller asks for; says whether that is above its baseline.
    #[inline]
    pub(crate) fn demand(&self, visit: &Visit, rate: u64) -> bool {
        let now = visit.now_micros;
        let step = visit.micros(rate * HEADROOM.0 / HEADROOM.1, 0);
        let limit = now + 2 * SURPLUS_MICROS;
        let move_on = |even: u64| Some(even.max(now).saturating_add(step).min(limit));
        let even = self.demand.step(visit.engagement, now, move_on);
        let (Ok(even) | Err(even)) = even;
        even > now + SURPLUS_MICROS
    }

    /// Takes the price times 2 to the power of `exponent` while the balance is not negative, or says
    /// in how many microseconds it will not be.
    #[inline]
    pub(crate) fn debit(&self, visit: &Visit, rate: u64, exponent: i32) -> Result<(), u64> {
        let now = visit.now_micros;
        let full = now.saturating_sub(BURST_MICROS);
        let step = visit.micros(rate, exponent);
        let limit = now + DEBT_MICROS;
        let take =
            |even: u64| (even <= now).then(|| even.max(full).saturating_add(step).min(limit));
        match self.debt.step(visit.engagement, full, take) {
            Ok(_) => Ok(()),
            Err(even) => Err(even - now),
        }
    }

    /// Notes what a request was charged.
    #[inline]
    pub(crate) fn charge(&self, cost: RequestUnits) {
        self.charged.fetch_add(cost.as_micros(), Relaxed);
    }

    /// Takes what was charged for `seconds` into the usual rate, unless that is frozen.
    #[expect(clippy::cast_precision_loss, clippy::cast_sign_loss)] // rates
    pub(crate) fn sweep(&self, seconds: f64, is_frozen: bool) {
        let charged = self.charged.swap(0, Relaxed);
        if is_frozen {
            return;
        }
        let kept = (-seconds / MEMORY_SECONDS).exp();
        let rate = self.rate.load(Relaxed) as f64;
        let next = rate * kept + charged as f64 / seconds * (1.0 - kept);
        self.rate.store(next as u64, Relaxed);
    }

    fn weight(&self) -> u64 {
        self.rate
            .load(Relaxed)
            .saturating_add(self.charged.load(Relaxed))
    }

    fn reset(&self) {
        self.charged.store(0, Relaxed);
        self.rate.store(0, Relaxed);
        self.debt.0.store(0, Relaxed);
        self.demand.0.store(0, Relaxed);
    }
}

/// Whose account, by whom and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AccountId(u64);

impl AccountId {
    const IS_TAKEN: u64 = 1 << 16;

    /// Names the account of a caller (a hash), a shard and a tier.
    #[inline]
    pub(crate) const fn new(caller: u64, shard: ShardId, tier: Criticality) -> Self {
        let spread = (tier as u64 + 1).wrapping_mul(0xD1B5_4A32_D192_ED03);
        let mixed = (caller ^ spread).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ mixed >> 32) & !0xFFFF;
        Self(mixed | Self::IS_TAKEN | shard.0 as u64)
    }

    const fn shard(self) -> ShardId {
        ShardId((self.0 & 0xFFFF) as u16)
    }

    const fn set(self) -> u64 {
        self.0.wrapping_mul(0xA24B_AED4_963E_E407) >> 32
    }
}

/// All accounts that are known apart.
#[derive(Debug)]
pub(crate) struct Ledger {
    ids: Box<[[AtomicU64; WAYS]]>,
    accounts: Box<[[Account; WAYS]]>,
    /// What a sum over the time so far has to be multiplied with to be a rate, times a million.
    /// Without it a pod that has just started would take everybody for a newcomer.
    youth_millionths: AtomicU64,
}

impl Ledger {
    /// Makes a ledger of at least `accounts` accounts, rounded up to a power of two.
    pub(crate) fn new(accounts: usize) -> Self {
        let sets = accounts.div_ceil(WAYS).next_power_of_two();
        Self {
            ids: (0..sets).map(|_| Default::default()).collect(),
            accounts: (0..sets).map(|_| Default::default()).collect(),
            youth_millionths: AtomicU64::new(1_000_000),
        }
    }

    /// Returns the memory that it takes, in bytes.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.ids) + size_of_val(&*self.accounts)
    }

    /// Finds an account.
    #[inline]
    pub(crate) fn find(&self, id: AccountId) -> Option<&Account> {
        let set = self.set(id);
        let way = self.ids[set]
            .iter()
            .position(|held| held.load(Relaxed) == id.0)?;
        Some(&self.accounts[set][way])
    }

    /// Finds an account, or places it where there is room for one that is charged `cost`.
    #[inline]
    pub(crate) fn find_or_place(&self, id: AccountId, cost: RequestUnits) -> Option<&Account> {
        self.find(id).or_else(|| self.place(id, cost))
    }

    #[cold]
    fn place(&self, id: AccountId, cost: RequestUnits) -> Option<&Account> {
        let set = self.set(id);
        let weight = |way: &usize| {
            let is_taken = self.ids[set][*way].load(Relaxed) != 0;
            if is_taken {
                self.accounts[set][*way].weight() + 1
            } else {
                0
            }
        };
        let way = (0..WAYS).min_by_key(weight)?;
        let lightest = weight(&way);
        if lightest > cost.as_micros() {
            return None;
        }
        self.accounts[set][way].reset();
        self.ids[set][way].store(id.0, Relaxed);
        Some(&self.accounts[set][way])
    }

    /// Returns the rate at which an account refills, in micro-RU a second.
    #[inline]
    pub(crate) fn baseline(&self, account: &Account) -> u64 {
        let rate = u128::from(account.rate.load(Relaxed));
        let rate = rate * u128::from(self.youth_millionths.load(Relaxed)) / 1_000_000;
        u64::try_from(rate)
            .unwrap_or(u64::MAX / HEADROOM.0)
            .clamp(RATE_MIN, u64::MAX / HEADROOM.0)
    }

    /// Takes in what was charged in the last `seconds`, `age_seconds` after the start.
    #[expect(clippy::cast_sign_loss)]
    pub(crate) fn sweep(
        &self,
        seconds: f64,
        age_seconds: f64,
        is_frozen: impl Fn(ShardId) -> bool,
    ) {
        let known = 1.0 - (-age_seconds / MEMORY_SECONDS).exp();
        self.youth_millionths
            .store((1e6 / known.max(1e-6)) as u64, Relaxed);
        for (ids, accounts) in self.ids.iter().zip(&self.accounts) {
            for (id, account) in ids.iter().zip(accounts) {
                let held = id.load(Relaxed);
                if held == 0 {
                    continue;
                }
                let is_frozen = is_frozen(AccountId(held).shard());
                account.sweep(seconds, is_frozen);
                if !is_frozen && account.weight() < RATE_FORGOTTEN {
                    id.store(0, Relaxed);
                }
            }
        }
    }

    fn set(&self, id: AccountId) -> usize {
        id.set() as usize & (self.ids.len() - 1)
    }
}

#[cfg(test)]
mod tests;
