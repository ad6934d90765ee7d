//! Dispatchers that share a quota, held against the one exact bucket of the whole fleet.

use super::account::Second;
use super::*;

/// Eight dispatchers; a caller has 4,000 RU/s in the whole fleet, and a request costs 40 RU.
fn study(faults: Faults) -> Study {
    Study {
        seed: 1,
        patterns: Vec::new(),
        errors: Vec::new(),
        knowledge: Knowledge::Declared,
        length_s: 90,
        pods: 8,
        fleet: Some(faults),
        quota: quota(4_000),
        refill: REFILL,
        mean_cost: 40_000_000,
    }
}

fn quota(rate: u64) -> Quota {
    let rate = rate * 1_000_000;
    Quota { rate, burst: rate }
}

/// Figures of the callers of a pattern: the worst ones.
#[derive(Debug)]
struct Figures {
    /// The least and the greatest share of the ideal bucket, over any 60 s.
    shares: (f64, f64),
    /// The most in any second, of burst + 1.05 × rate.
    worst_second: f64,
}

/// Runs a pattern, and returns the account of each caller.
fn accounts(study: &Study, pattern: Pattern) -> Vec<Account> {
    let outcome = study.scenario(pattern, SettleError::Exact).run();
    outcome.accounts.into_iter().flatten().collect()
}

fn figures(study: &Study, pattern: Pattern) -> Figures {
    let mut figures = Figures {
        shares: (f64::INFINITY, 0.0),
        worst_second: 0.0,
    };
    for account in accounts(study, pattern) {
        if let Some((least, most)) = account.shares() {
            figures.shares = (figures.shares.0.min(least), figures.shares.1.max(most));
        }
        figures.worst_second = figures.worst_second.max(account.worst_second());
    }
    figures
}

/// What 100 ms of the rate are of burst + 1.05 × rate, if the burst is a second of the rate.
const PERIOD: f64 = 0.1 / 2.05;
/// What the equal share of a burst and a request into debt are of it: a dispatcher that begins may admit them before it
/// has told.
const FIRST_USE: f64 = (1.0 / 8.0 + 0.01) / 2.05;

/// Runs all patterns; each caller gets at least the first bound of the ideal bucket and at most the second, and no
/// second has more than the allowed one and `more`.
fn hold(faults: Faults, more: f64, bounds: impl Fn(Pattern) -> (f64, f64)) {
    for pattern in Pattern::ALL {
        let figures = figures(&study(faults), pattern);
        let (least, most) = bounds(pattern);
        let (lowest, highest) = figures.shares;
        assert!(
            lowest >= least && highest <= most,
            "{pattern:?}: {figures:?}"
        );
        assert!(
            figures.worst_second <= 1.0 + more,
            "{pattern:?}: {figures:?}"
        );
    }
}

#[test]
fn eight_dispatchers_admit_what_one_bucket_serves() {
    hold(Faults::default(), 0.0, |_| (0.98, 1.02));
}

#[test]
fn a_third_of_the_messages_may_be_lost() {
    let faults = Faults {
        lost: 0.3,
        ..Faults::default()
    };
    hold(faults, PERIOD, |_| (0.97, 1.03));
}

#[test]
fn a_caller_at_one_dispatcher_gets_the_whole_quota() {
    let faults = Faults {
        is_on_one: true,
        ..Faults::default()
    };
    hold(faults, 0.0, |pattern| match pattern {
        // Shares of a fleet without demand are equal: some periods pass until the one dispatcher has the whole.
        Pattern::Burst | Pattern::Spike => (0.96, 1.02),
        _ => (0.97, 1.02),
    });
}

/// After the owner is killed, a new one begins with the balance that was told last. If the bucket was full then, the
/// refill since cannot be known to have found room: seven tenths of a second of the rate, until the row has changed.
#[test]
fn five_seconds_after_the_owner_is_killed_are_those_of_the_ideal_bucket() {
    let faults = Faults {
        killed_at_s: Some(30),
        ..Faults::default()
    };
    let study = Study {
        length_s: 35,
        ..study(faults)
    };
    for pattern in Pattern::ALL {
        for account in accounts(&study, pattern) {
            let sum = |of: fn(&Second) -> u64| -> f64 {
                let after = account.seconds()[30..].iter();
                after.map(of).sum::<u64>() as f64 / study.quota.rate as f64
            };
            let (admitted, ideal) = (sum(|second| second.admitted), sum(|second| second.ideal));
            let begins_full = matches!(
                pattern,
                Pattern::Burst
                    | Pattern::OnOff
                    | Pattern::RampUp
                    | Pattern::Spike
                    | Pattern::Sawtooth
            );
            let missing = if begins_full { 0.7 } else { 0.05 * ideal };
            assert!(
                admitted >= ideal - missing && admitted <= 1.05 * ideal + 0.02,
                "{pattern:?}: {admitted} of {ideal} seconds of the rate"
            );
        }
    }
}

/// Another dispatcher is killed every ten seconds, and the one that was killed before begins again.
#[test]
fn dispatchers_may_come_and_go_every_ten_seconds() {
    let faults = Faults {
        churn_s: Some(10),
        ..Faults::default()
    };
    hold(faults, FIRST_USE, |pattern| match pattern {
        // Bursts from a full bucket: the new owner of each counter grants none, as after a single kill.
        Pattern::Burst | Pattern::Spike => (0.94, 1.02),
        _ => (0.97, 1.02),
    });
}

#[test]
fn a_quota_of_ten_requests_a_second_is_shared_by_eight_dispatchers() {
    for pattern in [Pattern::Steady, Pattern::Poisson] {
        for seed in 1..=3 {
            let study = Study {
                seed,
                quota: quota(400),
                ..study(Faults::default())
            };
            let figures = figures(&study, pattern);
            let (least, most) = figures.shares;
            assert!(least >= 0.97 && most <= 1.03, "{pattern:?}: {figures:?}");
            // A price is a tenth of the burst: one more may be admitted into debt.
            assert!(figures.worst_second <= 1.1, "{pattern:?}: {figures:?}");
        }
    }
}
