//! Shares of callers, second by second.

use super::*;

const TIER: Criticality = Criticality::SheddablePlus;

fn add(shares: &FairShares, callers: impl IntoIterator<Item = (u64, u64)>) {
    for (caller, millis) in callers {
        shares.add(TIER, caller, Duration::from_millis(millis));
    }
}

fn refuse(shares: &FairShares, caller: u64) -> Option<Duration> {
    let refusal = shares.refusal(TIER, caller);
    if refusal.is_none() {
        shares.add(TIER, caller, Duration::from_millis(10));
    }
    refusal
}

#[test]
fn a_caller_with_more_than_the_capacity_by_callers_is_above_its_share() {
    let shares = FairShares::new();
    add(&shares, [(1, 10), (2, 10), (3, 100)]);
    assert!(!shares.is_above(TIER, 3), "the second is not over");
    shares.turn();
    assert!(shares.is_above(TIER, 3) && !shares.is_above(TIER, 1));
    assert!(!shares.is_above(TIER, 9) && !shares.is_above(Criticality::Sheddable, 3));
    assert_eq!(shares.excess().above, [false, true, false, false]);
    shares.turn();
    assert!(!shares.is_above(TIER, 3), "it has asked for nothing since");
}

#[test]
fn the_tiers_of_a_caller_are_one_caller() {
    let shares = FairShares::new();
    let of_tiers = |caller: u64, millis: [u64; TIERS]| {
        for (tier, millis) in Criticality::ALL.into_iter().zip(millis) {
            shares.add(tier, caller, Duration::from_millis(millis));
        }
    };
    of_tiers(1, [100, 100, 100, 100]);
    shares.turn();
    assert_eq!(shares.report().share, None, "it is alone");
    // Above its share by no tier alone, and by all together.
    for caller in 1..200 {
        of_tiers(
            caller,
            if caller == 7 {
                [30; TIERS]
            } else {
                [10; TIERS]
            },
        );
    }
    shares.turn();
    assert!((150..200).contains(&shares.report().callers));
    let above = |caller: &u64| {
        Criticality::ALL
            .iter()
            .any(|tier| shares.is_above(*tier, *caller))
    };
    assert_eq!((1..200).filter(above).collect::<Vec<_>>(), [7]);
    assert!(
        Criticality::ALL
            .iter()
            .all(|tier| shares.is_above(*tier, 7))
    );
}

#[test]
fn one_caller_alone_and_equal_callers_have_their_share() {
    let shares = FairShares::new();
    add(&shares, [(7, 1_000)]);
    shares.turn();
    assert!(!shares.is_above(TIER, 7));
    add(&shares, [(1, 500), (2, 500)]);
    shares.turn();
    assert!(!shares.is_above(TIER, 1) && !shares.is_above(TIER, 2));
    // Of a shard that has done more, neither has its share.
    add(&shares, [(1, 100), (2, 10)]);
    shares.turn();
    assert!(!shares.is_above(TIER, 1));
}

#[test]
fn callers_are_held_to_a_part_of_the_share_that_grows_with_the_second() {
    let shares = FairShares::new();
    add(&shares, [(1, 700), (2, 100)]);
    shares.turn();
    assert!(!shares.is_held(TIER), "no caller is held");
    // 200 ms a second: 20 in the first tick.
    let half = HeldParts {
        above: [None, Some(0.5), None, None],
        ..HeldParts::default()
    };
    shares.hold(&half, Duration::ZERO);
    assert_eq!(refuse(&shares, 1), None);
    assert_eq!(refuse(&shares, 1), None);
    assert_eq!(refuse(&shares, 1), Some(TICK));
    let below = (0..9).filter(|_| refuse(&shares, 2).is_none());
    assert_eq!(below.count(), 9, "who is below its share is not refused");
    assert_eq!(shares.excess().refused, [false; TIERS]);
    let elsewhere = shares.refusal(Criticality::Critical, 1);
    assert_eq!(elsewhere, None);
    shares.hold(&half, SLICE / 2);
    let granted = (0..100).filter(|_| refuse(&shares, 1).is_none());
    assert_eq!(granted.count(), 10);
    assert_eq!(shares.report().held_to[1], Some(SLICE / 5));
    shares.hold(&HeldParts::default(), SLICE / 2);
    assert_eq!(refuse(&shares, 1), None);
    // All of the tier.
    let tenth = HeldParts {
        all: [None, Some(0.1), None, None],
        ..HeldParts::default()
    };
    shares.hold(&tenth, Duration::ZERO);
    assert!(refuse(&shares, 2).is_some() && refuse(&shares, 3).is_none());
    assert_eq!(shares.excess().refused, [false, true, false, false]);
    // Nothing is owed once no caller is held.
    shares.hold(&HeldParts::default(), Duration::ZERO);
    (0..2).for_each(|_| shares.turn());
    assert_eq!(shares.excess(), Excess::default());
}

#[test]
fn what_a_held_caller_used_too_much_counts_in_the_next_second() {
    let shares = FairShares::new();
    add(&shares, (0..4).map(|caller| (caller, 100)));
    shares.turn();
    // Of a share of 100 ms, 2 ms a second.
    let few = HeldParts {
        all: [None, Some(0.02), None, None],
        ..HeldParts::default()
    };
    let mut granted = 0;
    for _ in 0..100 {
        for tick in 0..10 {
            shares.hold(&few, TICK * tick);
            granted += u32::from(refuse(&shares, 1).is_none());
        }
        add(&shares, [(2, 1), (3, 1), (4, 1)]);
        shares.turn();
    }
    // Of 10 ms each; the share is of two busy seconds before, and of the debt nothing is counted twice.
    assert!((19..=22).contains(&granted), "{granted}");
    let report = shares.report();
    assert!(report.busy <= Duration::from_millis(13), "{report:?}");
}

#[test]
fn a_debt_ends_with_what_it_is_held_for() {
    let shares = FairShares::new();
    add(&shares, [(1, 900), (2, 10)]);
    shares.turn();
    let held = HeldParts {
        above: [None, Some(0.1), None, None],
        ..HeldParts::default()
    };
    shares.hold(&held, Duration::ZERO);
    add(&shares, [(1, 900), (2, 10)]);
    shares.turn();
    assert!(refuse(&shares, 1).is_some());
    shares.hold(&HeldParts::default(), Duration::ZERO);
    shares.turn();
    assert!(!shares.is_held(TIER));
    assert_eq!(shares.report().busy, Duration::ZERO);
}

#[test]
fn a_crowd_of_a_lower_tier_does_not_make_a_large_caller_the_culprit() {
    let shares = FairShares::new();
    shares.add(Criticality::Critical, 1, Duration::from_millis(300));
    let crowd = |callers: u64| {
        let add = |caller| shares.add(Criticality::Sheddable, caller, Duration::from_millis(4));
        (100..100 + callers).for_each(add);
    };
    crowd(100);
    shares.turn();
    assert!(shares.is_above(Criticality::Critical, 1));
    assert_eq!(shares.excess().above, [false; TIERS]);
    (0..2).for_each(|_| shares.turn());
    shares.add(Criticality::Critical, 1, Duration::from_millis(300));
    crowd(50);
    shares.turn();
    assert_eq!(shares.excess().above, [false, false, true, false]);
}

#[test]
fn no_caller_answers_for_another_one() {
    let shares = FairShares::new();
    add(&shares, (0..100).map(|caller| (caller, 10)));
    add(&shares, [(1_000, 500)]);
    shares.turn();
    let above = (0..100_000).filter(|caller| shares.is_above(TIER, *caller));
    assert_eq!(above.collect::<Vec<_>>(), [1_000]);
    assert_eq!(shares.report().callers, 101);
    // With more callers than cells some are not judged.
    add(&shares, (0..10_000).map(|caller| (caller, 10)));
    shares.turn();
    let callers = shares.report().callers as usize;
    assert!((CELLS - 8..=CELLS).contains(&callers), "{callers}");
}

#[test]
fn the_capacity_is_the_longest_second_of_late_and_stays_while_a_tier_is_held() {
    let shares = FairShares::new();
    add(&shares, [(1, 600), (2, 200)]);
    shares.turn();
    let capacity = || shares.report().capacity.as_millis();
    assert_eq!(capacity(), 800);
    let all = HeldParts {
        above: [Some(1.0); TIERS],
        ..HeldParts::default()
    };
    shares.hold(&all, Duration::ZERO);
    (0..100).for_each(|_| shares.turn());
    assert_eq!(capacity(), 800);
    shares.hold(&HeldParts::default(), Duration::ZERO);
    (0..60).for_each(|_| shares.turn());
    assert!((280..310).contains(&capacity()), "{}", capacity());
}
