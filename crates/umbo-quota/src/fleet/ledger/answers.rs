//! Balances and shares as an owner answers them, report by report.

use super::*;

const LIMIT: Limit = Limit {
    rate: 1_000,
    burst: 2_000,
};

/// Returns a report of a dispatcher that holds `part` of `whole`.
fn report(spent: i64, acked: i64, (part, whole): (u64, u64)) -> CounterReport {
    CounterReport {
        counter: 1,
        limit: LIMIT,
        bucket: 0,
        spent,
        acked,
        refused: 0,
        scale: Scale::of(part, whole),
        heard: None,
    }
}

fn heard(balance: i64, age_ms: u64, report: CounterReport) -> CounterReport {
    let heard = Some(HeardBalance { balance, age_ms });
    CounterReport { heard, ..report }
}

fn balance(ledgers: &mut Ledgers, sender: u64, report: &CounterReport, at: u64) -> i64 {
    ledgers.take(sender, report, 2, Millis(at)).balance
}

#[test]
fn a_new_owner_begins_with_the_least_balance_that_was_told() {
    let mut ledgers = Ledgers::default();
    // 100 ms brought 100; 50 were spent since the answer.
    let first = heard(-500, 100, report(350, 300, (1, 2)));
    assert_eq!(balance(&mut ledgers, 1, &first, 9_000), -450);
    // Another dispatcher heard a higher balance, and spent 30 since.
    let second = heard(900, 60, report(30, 0, (1, 2)));
    assert_eq!(balance(&mut ledgers, 2, &second, 9_000), -480);
    // A third heard less than is known: its balance was told before the spending that is reported here.
    let third = heard(-600, 200, report(0, 0, (1, 2)));
    assert_eq!(balance(&mut ledgers, 3, &third, 9_000), -480);
    let fourth = heard(-700, 200, report(0, 0, (1, 2)));
    assert_eq!(balance(&mut ledgers, 4, &fourth, 9_000), -580);
}

#[test]
fn a_balance_that_another_owner_told_meanwhile_changes_nothing() {
    let mut ledgers = Ledgers::default();
    balance(&mut ledgers, 1, &report(0, 0, (1, 2)), 1_000);
    for second in 2..=60 {
        let told = report(900 * (second - 1), 900 * (second - 2), (1, 2));
        balance(
            &mut ledgers,
            1,
            &heard(1_900, 90, told),
            second.cast_unsigned() * 1_000,
        );
    }
    let late = heard(2_000, 30_000, report(0, 0, (1, 2)));
    assert_eq!(balance(&mut ledgers, 2, &late, 60_000), 1_100);
}

#[test]
fn a_large_price_is_given_back_whole() {
    let mut ledgers = Ledgers::default();
    balance(&mut ledgers, 1, &report(0, 0, (1, 2)), 1_000);
    assert_eq!(
        balance(&mut ledgers, 1, &report(9_000, 0, (1, 2)), 1_000),
        -7_000
    );
    assert_eq!(
        balance(&mut ledgers, 1, &report(100, 9_000, (1, 2)), 1_000),
        1_900
    );
    // A new owner knows the price only from the answers of the earlier one.
    let mut next = Ledgers::default();
    let charged = heard(-7_000, 0, report(9_000, 9_000, (1, 2)));
    assert_eq!(balance(&mut next, 1, &charged, 1_000), -7_000);
    assert_eq!(
        balance(&mut next, 1, &report(100, 9_000, (1, 2)), 1_000),
        1_900
    );
}

#[test]
fn a_dispatcher_that_was_cut_off_leaves_a_second_of_debt_at_most() {
    let mut ledgers = Ledgers::default();
    for sender in [1, 2] {
        balance(&mut ledgers, sender, &report(0, 0, (1, 2)), 1_000);
    }
    let late = heard(2_000, 20_000, report(10_000, 0, (1, 2)));
    assert_eq!(balance(&mut ledgers, 1, &late, 21_000), -1_000);
    // The debt of others is not forgiven.
    assert_eq!(
        balance(&mut ledgers, 2, &report(3_000, 0, (1, 2)), 21_000),
        -4_000
    );
    let late = heard(2_000, 20_000, report(20_000, 0, (1, 2)));
    assert_eq!(balance(&mut ledgers, 1, &late, 21_000), -4_000);
}

#[test]
fn counts_that_are_told_twice_or_late_count_once() {
    let mut ledgers = Ledgers::default();
    let told = report(500, 0, (1, 2));
    assert_eq!(balance(&mut ledgers, 1, &told, 1_000), 1_500);
    assert_eq!(balance(&mut ledgers, 1, &told, 1_000), 1_500);
    // Another bucket of the dispatcher begins at zero again.
    let again = CounterReport {
        bucket: 1,
        ..report(200, 0, (1, 2))
    };
    assert_eq!(balance(&mut ledgers, 1, &again, 1_000), 1_300);
}

#[test]
fn a_share_grows_only_by_what_no_other_may_hold() {
    let mut ledgers = Ledgers::default();
    let mut share = |sender, part: (u64, u64), spent: i64, at| {
        let answer = ledgers.take(sender, &report(spent, 0, part), 2, Millis(at));
        answer.scale.share() as f64 / Scale::WHOLE as f64
    };
    share(1, (1, 2), 0, 1_000);
    share(2, (1, 2), 0, 1_000);
    // The first dispatcher has all the demand, but the second may still use its half.
    let first = share(1, (1, 2), 500, 1_100);
    assert!(first <= 0.51, "{first}");
    // The answer that takes the share from the second may be lost: its report says that it still holds the half.
    let second = share(2, (1, 2), 0, 1_100);
    let first = share(1, (1, 2), 1_000, 1_200);
    assert!(second < 0.4 && first <= 0.51, "{second} {first}");
    // Now it has it.
    let second = share(2, (1, 4), 0, 1_200);
    let first = share(1, (1, 2), 1_500, 1_300);
    assert!(
        second <= 0.25 && first > 0.6 && first < 0.751,
        "{second} {first}"
    );
}

#[test]
fn the_target_leaves_what_others_may_spend_before_they_tell() {
    let mut ledgers = Ledgers::default();
    let mut take =
        |sender, spent, at| ledgers.take(sender, &report(spent, 0, (1, 2)), 2, Millis(at));
    take(1, 0, 1_000);
    take(2, 0, 1_000);
    let (first, second) = (take(1, 100, 1_150), take(2, 100, 1_150));
    for (answer, other) in [(first, second), (second, first)] {
        assert!(answer.target <= answer.balance);
        let spends =
            |answer: OwnerAnswer| part(answer.target.max(0).cast_unsigned(), answer.scale.share());
        let both = spends(answer) + spends(other);
        assert!(
            both <= answer.balance.cast_unsigned() + 100,
            "{answer:?} {other:?}"
        );
    }
    // In debt there is nothing to leave.
    let in_debt = take(1, 9_000, 1_200);
    assert!(in_debt.target < 0 && in_debt.target == in_debt.balance);
}
