//! Several policies, changed policies, and more callers than there is room for.

use std::time::{Duration, Instant};

use umbo_quota::{Dimension, Limiter, Mode, Policy, Unit};

use crate::support::{RU, admit, get, limiter, policy, set, work};

#[test]
fn all_policies_must_admit_and_a_refusal_charges_none() {
    let origin = Instant::now();
    let narrow = policy("narrow", &[Dimension::Caller, Dimension::Namespace], RU, RU);
    let wide = policy("wide", &[Dimension::Namespace], 10 * RU, 10 * RU);
    let limiter = limiter([narrow, wide], origin);
    assert!(admit(&limiter, &get("a"), origin));
    let rejection = limiter.admit(&get("a"), origin, 0).unwrap_err();
    assert_eq!(&*rejection.policy.name, "narrow");
    assert_eq!(rejection.label, "caller=a namespace=n");
    assert_eq!(limiter.spent("wide"), RU.cast_signed());
    for caller in ["b", "c", "d", "e", "f", "g", "h", "i", "j"] {
        assert!(admit(&limiter, &get(caller), origin));
    }
    let rejection = limiter.admit(&get("k"), origin, 0).unwrap_err();
    assert_eq!((&*rejection.policy.name, rejection.balance), ("wide", 0));
    assert_eq!(limiter.spent("narrow"), 10 * RU.cast_signed());
}

#[test]
fn each_of_many_policies_is_charged_and_gets_back_what_it_is_owed() {
    let origin = Instant::now();
    let name = |at: u64| format!("p{at}");
    let many = (0..100).map(|at| policy(&name(at), &[Dimension::Caller], 1, 100 * RU));
    let limiter = limiter(many, origin);
    let spent = || (0..100).map(|at| limiter.spent(&name(at)));
    let admitted = limiter.admit(&get("web"), origin, 0).unwrap();
    assert!(spent().all(|spent| spent > 0));
    drop(admitted);
    assert!(spent().all(|spent| spent == 0));
    let mut admitted = limiter.admit(&get("web"), origin, 0).unwrap();
    admitted.settle(&work());
    assert!(spent().all(|spent| spent == RU.cast_signed()));
}

#[test]
fn a_shadow_policy_is_counted_and_changes_nothing() {
    let origin = Instant::now();
    let shadow = Policy {
        mode: Mode::Shadow,
        ..policy("shadow", &[Dimension::Caller], 5 * RU, 5 * RU)
    };
    let enforced = || policy("enforced", &[Dimension::Caller], 10 * RU, 10 * RU);
    let of_requests = Policy {
        mode: Mode::Shadow,
        unit: Unit::Requests,
        ..policy("requests", &[Dimension::Namespace], 2 * RU, 2 * RU)
    };
    let with = limiter([enforced(), shadow.clone(), of_requests.clone()], origin);
    let without = limiter([enforced()], origin);
    let alone = limiter(
        [Policy {
            mode: Mode::Enforce,
            ..shadow
        }],
        origin,
    );
    let alone_of_requests = limiter(
        [Policy {
            mode: Mode::Enforce,
            ..of_requests
        }],
        origin,
    );
    // What was charged, or the wait.
    let decide = |limiter: &Limiter, now| {
        let mut admitted = limiter
            .admit(&get("c"), now, 0)
            .map_err(|refused| refused.wait)?;
        Ok::<_, Duration>(admitted.settle(&work()))
    };
    let (mut refused_alone, mut requests_refused) = (0, 0);
    for step in 0..5_000 {
        let now = origin + Duration::from_millis(step * 20);
        let request = get("c");
        let verdict = decide(&with, now);
        assert_eq!(verdict, decide(&without, now), "{step}");
        if verdict.is_ok() {
            requests_refused += u64::from(!admit(&alone_of_requests, &request, now));
            refused_alone += u64::from(!admit(&alone, &request, now));
        }
    }
    let report = with.policy_report(origin);
    let shadows = [report[1].shadow_rejected, report[2].shadow_rejected];
    assert_eq!(shadows, [requests_refused, refused_alone]);
    assert!(requests_refused > 400 && refused_alone > 400);
    assert_eq!((report[2].rejected, report[0].shadow_rejected), (0, 0));
}

#[test]
fn a_higher_burst_is_not_full_of_what_an_idle_bucket_could_not_hold() {
    let origin = Instant::now();
    let of = |burst| policy("p", &[Dimension::Caller], 100 * RU, burst);
    let limiter = limiter([of(100 * RU)], origin);
    assert!(admit(&limiter, &get("c"), origin));
    let later = origin + Duration::from_mins(1);
    limiter.replace(set([of(10_000 * RU)]));
    let meets = limiter.explain(&get("c"), &[], later).meets;
    assert_eq!(meets[0].balance, (100 * RU).cast_signed());
}

#[test]
fn a_changed_limit_moves_no_balance_and_a_lower_burst_cuts_it() {
    let origin = Instant::now();
    let limiter = limiter(
        [policy("p", &[Dimension::Caller], 100 * RU, 1_000 * RU)],
        origin,
    );
    for _ in 0..400 {
        assert!(admit(&limiter, &get("c"), origin));
    }
    let balance = |now: Instant| limiter.buckets("p", now, 1)[0].balance / RU.cast_signed();
    let later = origin + Duration::from_secs(1);
    // The grid of the bucket has a phase of its own.
    let gained = balance(later) - balance(origin);
    assert!(
        balance(origin) == 600 && (95..=105).contains(&gained),
        "{gained}"
    );
    limiter.replace(set([policy(
        "p",
        &[Dimension::Caller],
        1_000 * RU,
        5_000 * RU,
    )]));
    assert!(admit(&limiter, &get("c"), later));
    assert_eq!(balance(later), 600 + gained - 1);
    let gained_more = balance(later + Duration::from_secs(1)) - balance(later);
    assert!((950..=1_050).contains(&gained_more), "{gained_more}");
    limiter.replace(set([policy("p", &[Dimension::Caller], 10 * RU, 50 * RU)]));
    assert!(admit(&limiter, &get("c"), later));
    assert_eq!(balance(later), 49);
    limiter.replace(set([]));
    assert!(admit(&limiter, &get("c"), later));
}

#[test]
fn only_the_bucket_in_effect_is_listed_with_the_limit_in_effect() {
    let origin = Instant::now();
    let of = |mode, rate| Policy {
        mode,
        ..policy("p", &[Dimension::Caller], rate, rate)
    };
    let limiter = limiter([of(Mode::Enforce, 200 * RU)], origin);
    admit(&limiter, &get("c"), origin);
    let changes = [
        of(Mode::Shadow, 200 * RU),
        of(Mode::Enforce, 200 * RU),
        of(Mode::Enforce, 5 * RU),
        of(Mode::Shadow, 5 * RU),
        policy(
            "p",
            &[Dimension::Caller, Dimension::Namespace],
            7 * RU,
            7 * RU,
        ),
        Policy {
            unit: Unit::Requests,
            ..of(Mode::Enforce, RU)
        },
    ];
    for change in changes {
        let (limit, name) = (change.limit, format!("{change:?}"));
        limiter.replace(set([change]));
        admit(&limiter, &get("c"), origin);
        let found = limiter.buckets("p", origin, 9);
        let limits: Vec<_> = found.iter().map(|bucket| bucket.limit).collect();
        assert_eq!(limits, [limit], "{name}");
        assert_eq!(limiter.policy_report(origin)[0].buckets, 1, "{name}");
    }
    // An idle caller has asked nothing since the change.
    limiter.replace(set([Policy {
        unit: Unit::Requests,
        ..of(Mode::Enforce, 3 * RU)
    }]));
    assert_eq!(limiter.buckets("p", origin, 9)[0].limit.rate, 3 * RU);
}

#[test]
fn a_flood_of_callers_takes_no_balance_and_hands_out_no_burst() {
    let origin = Instant::now();
    let limiter = limiter([policy("p", &[Dimension::Caller], RU, 10 * RU)], origin);
    for _ in 0..10 {
        assert!(admit(&limiter, &get("known"), origin));
    }
    let mut admitted = 0;
    for number in 0..50_000_u64 {
        let name = format!("stranger-{number}");
        admitted += u64::from(admit(&limiter, &get(&name), origin));
    }
    let (accounts, buckets) = limiter.sizes();
    assert!(
        accounts <= 1_024 && buckets <= 1_024,
        "{accounts} {buckets}"
    );
    assert!(
        admitted <= 1_024 + 10,
        "those without room share one burst: {admitted}"
    );
    assert!(!admit(&limiter, &get("known"), origin));
    assert_eq!(
        limiter
            .usage()
            .rows
            .iter()
            .map(|row| row.tally.requests)
            .sum::<u64>(),
        10 + admitted
    );
    let later = origin + Duration::from_millis(1_500);
    let admitted = (0..10).filter(|_| admit(&limiter, &get("known"), later));
    assert_eq!(admitted.count(), 2, "a little more than one has flowed in");
}
