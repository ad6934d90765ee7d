//! The simulator against what is known without it: a bucket so simple that it can be added up, the
//! demand of each pattern, and the books.

use umbo_quota::Unit;

use super::*;

fn study() -> Study {
    Study {
        seed: 3,
        patterns: Vec::new(),
        errors: Vec::new(),
        knowledge: Knowledge::Declared,
        length_s: 80,
        pods: 2,
        fleet: None,
        quota: Quota {
            rate: 1_000_000_000,
            burst: 1_000_000_000,
        },
        refill: Duration::from_millis(50),
        mean_cost: 20_000_000,
    }
}

#[test]
fn every_pattern_offers_what_it_says() {
    // In multiples of the quota of one pod.
    let demands = [
        2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 24.0, 14.0, 0.89, 1.95, 4.0,
    ];
    for (pattern, demand) in Pattern::ALL.into_iter().zip(demands) {
        let scenario = study().scenario(pattern, SettleError::Exact);
        let outcome = scenario.run();
        let accounts = || outcome.accounts.iter().flatten();
        let offered: u64 = accounts()
            .flat_map(Account::seconds)
            .map(|second| second.offered)
            .sum();
        let full = (2 * 80 * scenario.quota.rate) as f64;
        let ratio = offered as f64 / full / demand;
        if pattern == Pattern::Obedient {
            // What clients want, they want less often while they wait.
            let admitted: u64 = accounts().map(|account| account.admitted).sum();
            assert!(admitted > 0 && ratio < 1.0, "{pattern:?}: {ratio}");
        } else {
            // Service time adds 0.2 RU to the 20.
            assert!((0.98..1.04).contains(&ratio), "{pattern:?}: {ratio}");
        }
    }
}

#[test]
fn charges_are_the_ledger_and_what_accounts_admitted() {
    for knowledge in [Knowledge::Declared, Knowledge::Learned] {
        for error in SettleError::ALL {
            let study = Study {
                knowledge,
                length_s: 5,
                ..study()
            };
            let outcome = study.scenario(Pattern::Zipf, error).run();
            assert_eq!(outcome.charged, outcome.ledger);
            let accounts = outcome.accounts.iter().flatten();
            let admitted: u64 = accounts
                .flat_map(Account::seconds)
                .map(|second| second.admitted)
                .sum();
            assert_eq!(outcome.charged, u128::from(admitted));
        }
    }
}

/// Ten requests a second arrive, each is one request, and the bucket holds three and gets two a
/// second: of the first ten, three are admitted, and from then on two a second, whenever they fall.
#[test]
fn a_limiter_does_what_a_bucket_added_up_by_hand_does() {
    let quota = Quota {
        rate: 2_000_000,
        burst: 3_000_000,
    };
    let caller = Caller {
        name: "caller".to_owned(),
        behaviour: Behaviour::Open {
            shape: Shape::Level(5.0),
            scale: 1.0,
            is_random: false,
        },
    };
    let scenario = Scenario {
        seed: 1,
        length_s: 100,
        pods: 1,
        fleet: None,
        callers: vec![caller],
        quota,
        unit: Unit::Requests,
        error: SettleError::Exact,
        mean_cost: 10_000_000,
        knowledge: Knowledge::Declared,
        policies: one_quota(Unit::Requests, quota, REFILL),
    };
    let outcome = scenario.run();
    let account = &outcome.accounts[0][0];
    assert_eq!(account.admitted + account.rejected, 1_000);
    // One more may be admitted into debt.
    let exact = 3 + 2 * 100;
    assert!(
        (exact - 1..=exact + 1).contains(&account.admitted),
        "{}",
        account.admitted
    );
    let first: u64 = account.seconds()[..10].iter().map(|s| s.admitted).sum();
    assert!((22_000_000..=24_000_000).contains(&first), "{first}");
}

#[test]
fn pods_have_quotas_of_their_own() {
    let of_pods = |pods| {
        let study = Study { pods, ..study() };
        let outcome = study.scenario(Pattern::Steady, SettleError::Exact).run();
        assert_eq!(outcome.accounts[0].len(), pods as usize);
        let accounts = outcome.accounts[0].iter();
        accounts.map(|account| account.admitted).sum::<u64>()
    };
    let ratio = of_pods(4) as f64 / of_pods(1) as f64;
    assert!((3.9..4.1).contains(&ratio), "{ratio}");
}
