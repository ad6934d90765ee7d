//! Tests of the ladder: who climbs when, how far, and how soon everybody is down.

use proptest::prelude::*;

use super::*;

use Criticality::{Critical, CriticalPlus, Sheddable, SheddablePlus};

const EVEN: [f64; TIERS] = [0.25; TIERS];
const TROUBLE: Option<Band> = Some(Band::Trouble);

fn climb(ladder: &mut Ladder, ticks: u32, ratio: f64, shares: [f64; TIERS]) -> Steps {
    let mut steps = Steps::default();
    for _ in 0..ticks {
        steps = ladder.tick(TROUBLE, ratio, shares);
    }
    steps
}

#[test]
fn callers_above_their_baseline_pay_first() {
    let mut ladder = Ladder::default();
    let mut factors = Vec::new();
    for _ in 0..4 {
        let steps = climb(&mut ladder, 2, 0.25, EVEN);
        factors.push(steps.factors(Sheddable));
        assert!(!steps.has(SheddablePlus));
    }
    assert_eq!(factors, [(2.0, 1.0), (4.0, 2.0), (8.0, 4.0), (8.0, 8.0)]);
}

#[test]
fn half_a_rung_is_half_of_the_cohorts() {
    let steps = climb(&mut Ladder::default(), 3, 0.25, EVEN);
    assert_eq!(steps.exponent(Sheddable, 63, true), 2);
    assert_eq!(steps.exponent(Sheddable, 64, true), 1);
    assert_eq!(steps.exponent(Sheddable, 63, false), 1);
    assert_eq!(steps.exponent(Sheddable, 64, false), 0);
    assert_eq!(steps.exponent(SheddablePlus, 0, true), 0);
}

#[test]
fn the_default_tier_follows_after_two_seconds() {
    let mut ladder = Ladder::default();
    assert!(!climb(&mut ladder, 8 + 19, 0.25, EVEN).has(SheddablePlus));
    assert!(climb(&mut ladder, 1, 0.25, EVEN).has(SheddablePlus));
}

#[test]
fn a_tier_that_asks_for_nothing_is_not_waited_for() {
    let mut ladder = Ladder::default();
    let steps = climb(&mut ladder, 4, 0.25, [0.0, 0.9, 0.1, 0.0]);
    assert!(steps.has(SheddablePlus));
    assert_eq!(steps.factors(Sheddable), (8.0, 8.0), "whoever comes pays");
    let mut ladder = Ladder::default();
    let steps = climb(&mut ladder, 1_000, 0.25, [0.0, 0.0, 0.5, 0.5]);
    assert!(!steps.has(Critical), "nobody else is there, and yet");
}

#[test]
fn critical_follows_only_when_the_ratio_keeps_falling() {
    let mut ladder = Ladder::default();
    let steps = climb(&mut ladder, 1_000, 0.2, EVEN);
    assert_eq!(steps.factors(SheddablePlus), (8.0, 8.0));
    assert!(!steps.has(Critical));
    // p95s scatter.
    for tick in 0..1_000 {
        let ratio = if tick % 2 == 0 { 0.05 } else { 0.3 };
        assert!(!ladder.tick(TROUBLE, ratio, EVEN).has(Critical));
    }
    let steps = climb(&mut ladder, 30, 0.05, EVEN);
    assert!(steps.has(Critical) && !steps.has(CriticalPlus));
    let steps = climb(&mut ladder, 1_000, 0.05, EVEN);
    assert!(!steps.has(CriticalPlus));
    assert!(climb(&mut ladder, 100, 0.01, EVEN).has(CriticalPlus));
    let steps = climb(&mut ladder, 1_000, 0.000_1, EVEN);
    assert_eq!(steps.factors(CriticalPlus), (8.0, 8.0));
}

#[test]
fn between_trouble_and_recovery_nothing_moves() {
    let mut ladder = Ladder::default();
    let before = climb(&mut ladder, 5, 0.25, EVEN);
    assert_eq!(ladder.tick(Some(Band::Hold), 0.5, EVEN), before);
}

#[test]
fn recovery_divides_by_one_and_a_tenth_a_tick() {
    let mut ladder = Ladder::default();
    climb(&mut ladder, 8 + 20 + 7, 0.25, EVEN);
    let mut factors = Vec::new();
    for _ in 0..22 {
        let steps = ladder.tick(Some(Band::Mending), 0.65, EVEN);
        factors.push(steps.factors(Sheddable).1);
        assert!(steps.factors(SheddablePlus).1 <= steps.factors(Sheddable).1);
    }
    // Between two rungs the mean over cohorts is not quite the power.
    for (tick, factor) in (1..).zip(factors) {
        let expected = (8.0 / 1.1_f64.powi(tick)).max(1.0);
        assert!(
            (factor / expected - 1.0).abs() < 0.08,
            "{tick}: {factor} {expected}"
        );
    }
    assert!(!ladder.is_down());
    for _ in 0..8 {
        ladder.tick(Some(Band::Mending), 0.65, EVEN);
    }
    assert!(ladder.is_down());
}

#[test]
fn once_it_is_over_all_are_down_within_a_second_and_a_half() {
    let mut ladder = Ladder::default();
    climb(&mut ladder, 100, 0.25, EVEN);
    for _ in 0..15 {
        ladder.tick(None, 1.0, EVEN);
    }
    assert!(ladder.is_down());
}

#[test]
fn who_has_recovered_climbs_from_below_again() {
    let mut ladder = Ladder::default();
    climb(&mut ladder, 40, 0.25, EVEN);
    for _ in 0..16 {
        ladder.tick(Some(Band::Clear), 0.9, EVEN);
    }
    let steps = climb(&mut ladder, 1, 0.25, EVEN);
    assert!(steps.has(Sheddable) && !steps.has(SheddablePlus));
}

proptest! {
    #[test]
    fn a_higher_tier_never_pays_more(
        bands in prop::collection::vec((0..5_u8, 0.01..1.0), 1..200),
        shares in prop::array::uniform4(0.0..1.0),
    ) {
        let mut ladder = Ladder::default();
        for (band, ratio) in bands {
            let band = match band {
                0 => None,
                1 | 2 => TROUBLE,
                3 => Some(Band::Hold),
                _ => Some(Band::Mending),
            };
            let steps = ladder.tick(band, ratio, shares);
            for pair in Criticality::ALL.windows(2) {
                for is_above in [false, true] {
                    for cohort in [0, 1, 63, 127] {
                        let of = |tier| steps.exponent(tier, cohort, is_above);
                        prop_assert!(of(pair[0]) >= of(pair[1]));
                        prop_assert!(steps.exponent(pair[0], cohort, true) >= of(pair[0]));
                        prop_assert!(of(pair[0]) <= 3);
                    }
                }
            }
        }
    }
}
