//! Tests of the ledger: baselines, balances and their twin, and who has an account.

use proptest::prelude::*;

use super::*;

const SHARD: ShardId = ShardId(3);
const TIER: Criticality = Criticality::Sheddable;

fn units(units: u64) -> RequestUnits {
    RequestUnits::from_micros(units * 1_000_000)
}

fn visit(now_micros: u64, price: RequestUnits) -> Visit {
    Visit {
        now_micros,
        engagement: 1,
        price,
    }
}

fn id(caller: u64) -> AccountId {
    AccountId::new(caller, SHARD, TIER)
}

/// Asks at an even rate for ten seconds; returns what was let through, in units a second.
fn let_through(rate: u64, asked: u64, exponent: i32) -> f64 {
    let account = Account::default();
    let mut passed = 0;
    for at in 0..asked * 10 {
        let now = 5_000_000 + at * 1_000_000 / asked;
        let verdict = account.debit(&visit(now, units(1)), rate * 1_000_000, exponent);
        passed += u32::from(verdict.is_ok());
    }
    f64::from(passed) / 10.0
}

#[test]
fn a_caller_keeps_a_part_of_its_own_baseline() {
    for (exponent, part) in [(1, 2.0), (2, 4.0), (3, 8.0), (0, 1.0), (-2, 0.25)] {
        for asked in [1_000, 2_000] {
            let passed = let_through(200, asked, exponent);
            let kept = 200.0 / part;
            assert!(
                (kept..=kept * 1.05).contains(&passed),
                "{exponent} {asked}: {passed}"
            );
        }
    }
}

#[test]
fn nobody_waits_for_more_than_three_seconds() {
    let account = Account::default();
    assert!(
        account
            .debit(&visit(0, units(1_000_000)), RATE_MIN, 3)
            .is_ok()
    );
    assert_eq!(
        account.debit(&visit(0, units(1)), RATE_MIN, 3),
        Err(DEBT_MICROS)
    );
    assert!(
        account
            .debit(&visit(DEBT_MICROS, units(1)), RATE_MIN, 3)
            .is_ok()
    );
}

#[test]
fn the_wait_is_the_time_until_it_passes() {
    let account = Account::default();
    assert!(account.debit(&visit(7, units(10)), 20_000_000, 1).is_ok());
    let Err(wait) = account.debit(&visit(7, units(1)), 20_000_000, 1) else {
        panic!("a second's worth is owed");
    };
    let early = account.debit(&visit(7 + wait - 1, units(1)), 20_000_000, 1);
    assert_eq!(early, Err(1));
    assert!(
        account
            .debit(&visit(7 + wait, units(1)), 20_000_000, 1)
            .is_ok()
    );
}

#[test]
fn another_engagement_begins_anew() {
    let account = Account::default();
    assert!(account.debit(&visit(0, units(100)), RATE_MIN, 3).is_ok());
    assert!(account.debit(&visit(1, units(1)), RATE_MIN, 3).is_err());
    let next = Visit {
        engagement: 2,
        ..visit(1, units(1))
    };
    assert!(account.debit(&next, RATE_MIN, 3).is_ok());
}

#[test]
fn a_surge_is_above_the_baseline_and_its_end_is_not() {
    let account = Account::default();
    let rate = 100_000_000;
    let ask = |now: u64| account.demand(&visit(now, units(1)), rate);
    let mut now = 0;
    for _ in 0..1_000 {
        now += 9_000; // a ninth more than usual
        assert!(!ask(now));
    }
    let surge = now;
    while !ask(now) {
        now += 1_000; // ten times as much
    }
    assert!(now - surge < 200_000, "{}", now - surge);
    for _ in 0..5_000 {
        now += 1_000;
        assert!(ask(now));
    }
    let end = now;
    while ask(now) {
        now += 12_000;
    }
    assert!(now - end < 4_000_000, "{}", now - end);
}

#[test]
fn the_usual_rate_is_known_after_seconds_and_stands_still_when_frozen() {
    let ledger = Ledger::new(64);
    let charge = |ledger: &Ledger, cost| {
        ledger.find_or_place(id(9), cost).unwrap().charge(cost);
    };
    for second in 1..=10 {
        charge(&ledger, units(50));
        ledger.sweep(1.0, f64::from(second), |_| false);
    }
    let baseline = || ledger.baseline(ledger.find(id(9)).unwrap());
    let young = baseline();
    assert!((49_000_000..=51_000_000).contains(&young), "{young}");
    for second in 11..=600 {
        charge(&ledger, units(5_000));
        ledger.sweep(1.0, 10.0, |shard| shard == SHARD);
        assert!(ledger.find(id(9)).is_some(), "{second}");
    }
    assert_eq!(baseline(), young, "frozen");
}

#[test]
fn a_newcomer_has_the_lowest_rate_and_who_leaves_is_forgotten() {
    let ledger = Ledger::new(64);
    assert_eq!(ledger.baseline(&Account::default()), RATE_MIN);
    ledger
        .find_or_place(id(1), units(1))
        .unwrap()
        .charge(units(1));
    for second in 1..=3_000 {
        ledger.sweep(1.0, f64::from(second), |_| false);
    }
    assert!(ledger.find(id(1)).is_none());
}

#[test]
fn who_asks_for_much_is_not_replaced_by_who_asks_for_little() {
    let ledger = Ledger::new(WAYS);
    for caller in 1..=4 {
        ledger
            .find_or_place(id(caller), units(1))
            .unwrap()
            .charge(units(1_000));
    }
    ledger.sweep(1.0, 1_000.0, |_| false);
    for caller in 5..100_000 {
        assert!(ledger.find_or_place(id(caller), units(1)).is_none());
    }
    assert!((1..=4).all(|caller| ledger.find(id(caller)).is_some()));
    assert!(ledger.find_or_place(id(5), units(100)).is_some());
    assert_eq!(
        (1..=4)
            .filter(|&caller| ledger.find(id(caller)).is_some())
            .count(),
        3
    );
}

#[test]
fn shards_and_tiers_have_accounts_of_their_own() {
    let ledger = Ledger::new(1_024);
    let mut placed = 0;
    for shard in (0..16).map(ShardId) {
        for tier in Criticality::ALL {
            let id = AccountId::new(77, shard, tier);
            assert_eq!(id.shard(), shard);
            assert!(ledger.find(id).is_none());
            placed += u32::from(ledger.find_or_place(id, units(1)).is_some());
        }
    }
    assert_eq!(placed, 64);
    assert!(Ledger::new(8_192).memory() <= 8_192 * 80);
}

#[test]
fn no_charge_is_lost_between_threads() {
    let ledger = Ledger::new(64);
    ledger.find_or_place(id(1), units(1));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    ledger.find(id(1)).unwrap().charge(units(1));
                }
            });
        }
    });
    let charged = ledger.find(id(1)).unwrap().charged.load(Relaxed);
    assert_eq!(charged, 40_000 * 1_000_000);
}

/// A balance in micro-RU, at a rate at which that is a microsecond.
struct Twin {
    balance: i64,
    at: u64,
}

impl Twin {
    fn debit(&mut self, now: u64, price: i64) -> Result<(), u64> {
        self.balance += (now - self.at).cast_signed();
        self.balance = self.balance.min(BURST_MICROS.cast_signed());
        self.at = now;
        if self.balance < 0 {
            return Err(self.balance.unsigned_abs());
        }
        self.balance = (self.balance - price).max(-DEBT_MICROS.cast_signed());
        Ok(())
    }
}

proptest! {
    #[test]
    fn an_account_is_a_balance(
        visits in prop::collection::vec((0..400_000_u64, 0..900_000_u64, 0..4_i32), 1..200),
    ) {
        let account = Account::default();
        let mut now = 1_000_000;
        let mut twin = Twin { balance: BURST_MICROS.cast_signed(), at: now };
        for (pause, price, exponent) in visits {
            now += pause;
            let visit = visit(now, RequestUnits::from_micros(price));
            let expected = twin.debit(now, (price << exponent).cast_signed());
            prop_assert_eq!(account.debit(&visit, 1_000_000, exponent), expected);
        }
    }

    #[test]
    fn no_price_rate_or_time_overflows(price: u64, rate in RATE_MIN.., exponent in -32..4_i32, now in 0..1_u64 << 47) {
        let account = Account::default();
        let visit = visit(now, RequestUnits::from_micros(price));
        let rate = rate.min(u64::MAX / HEADROOM.0);
        account.demand(&visit, rate);
        account.demand(&visit, rate);
        prop_assert_eq!(account.debit(&visit, rate, exponent), Ok(()));
        let wait = account.debit(&visit, rate, exponent).err().unwrap_or(0);
        prop_assert!(wait <= DEBT_MICROS);
    }
}
