//! The lists against a slow twin that keeps everybody in one vector.

use std::time::Duration;

use proptest::prelude::*;
use umbo_types::{Deadline, RequestUnits};

use super::*;

fn entry(criticality: usize, caller: u64, price: u64) -> Entry {
    Entry {
        criticality: Criticality::ALL[criticality],
        caller,
        price: RequestUnits::from_micros(price),
        deadline: Deadline::after(Instant::now(), Duration::from_secs(1)),
        is_above_share: false,
    }
}

#[derive(Debug, Clone)]
enum Step {
    Push {
        tier: usize,
        caller: u64,
        price: u64,
    },
    Next {
        tier: usize,
        newest_first: bool,
    },
    Newest(usize),
    OfMost(usize),
    Oldest(usize),
    Cancel(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0..TIERS, 0..6_u64, 1..1_000_u64).prop_map(|(tier, caller, price)| Step::Push { tier, caller, price }),
        2 => (0..TIERS, any::<bool>()).prop_map(|(tier, newest_first)| Step::Next { tier, newest_first }),
        1 => (0..TIERS).prop_map(Step::Newest),
        1 => (0..TIERS).prop_map(Step::OfMost),
        1 => (0..TIERS).prop_map(Step::Oldest),
        2 => any::<usize>().prop_map(Step::Cancel),
    ];
    prop::collection::vec(step, 1..300)
}

/// One of the twin's: number, tier, caller, price, ticket.
type Twin = (u64, usize, u64, u64, QueueTicket);

fn check_taken(
    twin: &mut Vec<Twin>,
    taken: Option<QueuedRequest<u64>>,
    allowed: impl Fn(&Twin, &[Twin]) -> bool,
) {
    let Some(node) = taken else { return };
    let at = twin
        .iter()
        .position(|one| one.0 == node.waiter)
        .expect("it waits");
    assert!(allowed(&twin[at], twin), "{:?} of {twin:?}", twin[at]);
    twin.remove(at);
}

proptest! {
    #[test]
    fn lists_hold_exactly_those_who_wait_in_their_order(steps in steps()) {
        let begun = Instant::now();
        let mut tiers = TierQueues::new();
        let mut twin: Vec<Twin> = Vec::new();
        let mut gone = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            let number = number as u64;
            let at = |number: u64| begun + Duration::from_millis(number);
            match step {
                Step::Push { tier, caller, price } => {
                    let ticket = tiers.push(&entry(tier, caller, price), number, at(number));
                    twin.push((number, tier, caller, price, ticket));
                }
                Step::Next { tier, newest_first } => {
                    let is_any = twin.iter().any(|one| one.1 == tier);
                    let taken = tiers.take_next(tier, newest_first);
                    prop_assert_eq!(taken.is_some(), is_any);
                    check_taken(&mut twin, taken, |one, all| {
                        // Six callers may share a flow, which then has more than theirs in it.
                        let mut its = all.iter().filter(|other| other.1 == tier && other.2 == one.2);
                        one.1 == tier && if newest_first {
                            its.next_back().is_some_and(|newest| newest.0 == one.0)
                        } else {
                            its.next().is_some_and(|oldest| oldest.0 == one.0)
                        }
                    });
                }
                Step::Newest(tier) => {
                    let newest = twin.iter().rev().find(|one| one.1 == tier).map(|one| one.0);
                    let taken = tiers.take_newest(tier);
                    prop_assert_eq!(taken.as_ref().map(|node| node.waiter), newest);
                    check_taken(&mut twin, taken, |_, _| true);
                }
                Step::OfMost(tier) => {
                    let is_any = twin.iter().any(|one| one.1 == tier);
                    let taken = tiers.take_of_most(tier);
                    prop_assert_eq!(taken.is_some(), is_any);
                    check_taken(&mut twin, taken, |one, _| one.1 == tier);
                }
                Step::Oldest(tier) => {
                    let oldest = twin.iter().find(|one| one.1 == tier).map(|one| one.0);
                    let taken = tiers.take_oldest(tier);
                    prop_assert_eq!(taken.as_ref().map(|node| node.waiter), oldest);
                    check_taken(&mut twin, taken, |_, _| true);
                }
                Step::Cancel(which) => {
                    if !twin.is_empty() {
                        let one = twin.remove(which % twin.len());
                        prop_assert_eq!(tiers.cancel(one.4), Some(one.0));
                        gone.push(one.4);
                    }
                }
            }
            // A ticket of one who is gone finds nobody, whoever has its place now.
            for &ticket in &gone {
                prop_assert_eq!(tiers.cancel(ticket), None);
            }
            prop_assert_eq!(tiers.len(), twin.len());
            prop_assert_eq!(tiers.work(), twin.iter().map(|one| one.3).sum::<u64>());
            for tier in 0..TIERS {
                let mut its = twin.iter().filter(|one| one.1 == tier);
                prop_assert_eq!(tiers.len_of(tier), its.clone().count());
                prop_assert_eq!(tiers.oldest(tier).map(|(since, _)| since), its.next().map(|one| at(one.0)));
            }
            prop_assert_eq!(tiers.highest(), twin.iter().map(|one| one.1).max());
            prop_assert_eq!(tiers.lowest(), twin.iter().map(|one| one.1).min());
        }
        while let Some(tier) = tiers.highest() {
            tiers.take_next(tier, false);
        }
        prop_assert_eq!(tiers.work(), 0);
        tiers.shrink();
    }
}

#[test]
fn callers_share_by_request_units_whoever_asks_more_often() {
    let now = Instant::now();
    let mut tiers = TierQueues::new();
    // Two callers in different flows: one asks for ten units at a time and always has plenty
    // waiting, the other for one unit, and asks again each time.
    let (large, small) = (1, 2);
    assert_ne!(tiers.tiers[0].flow_of(large), tiers.tiers[0].flow_of(small));
    for _ in 0..200 {
        tiers.push(&entry(0, large, 10), large, now);
    }
    tiers.push(&entry(0, small, 1), small, now);
    let mut had = [0, 0, 0];
    for _ in 0..1_000 {
        let node = tiers.take_next(0, false).unwrap();
        had[node.waiter as usize] += node.price;
        let price = node.price;
        tiers.push(&entry(0, node.waiter, price), node.waiter, now);
    }
    assert!(had[1].abs_diff(had[2]) <= 20, "{had:?}");
}

#[test]
fn who_was_away_saves_nothing_up() {
    let now = Instant::now();
    let mut tiers = TierQueues::new();
    for _ in 0..300 {
        tiers.push(&entry(0, 1, 1), 1, now);
    }
    for _ in 0..100 {
        tiers.take_next(0, false);
    }
    for _ in 0..300 {
        tiers.push(&entry(0, 2, 1), 2, now);
    }
    let first: Vec<u64> = (0..40)
        .map(|_| tiers.take_next(0, false).unwrap().waiter)
        .collect();
    let of_late = first.iter().filter(|&&caller| caller == 2).count();
    assert!((19..=21).contains(&of_late), "{first:?}");
}

#[test]
fn a_node_is_small() {
    let len = size_of::<Option<QueuedRequest<usize>>>();
    assert!(len <= 64, "{len} bytes");
}
