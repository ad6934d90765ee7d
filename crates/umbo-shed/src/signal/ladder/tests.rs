//! Tests of the ladder: who climbs when, how far, and how soon everybody is down.

use proptest::prelude::*;

use super::*;

use Criticality::{Critical, CriticalPlus, Sheddable, SheddablePlus};

const EVEN: [f64; TIERS] = [0.25; TIERS];

/// A ladder in weather in which somebody of every tier is shed all the time.
struct Climber {
    ladder: Ladder,
    shed: u64,
}

impl Climber {
    fn new() -> Self {
        Self {
            ladder: Ladder::new(),
            shed: 0,
        }
    }

    fn tick(&mut self, band: Band, ratio: f64, shares: [f64; TIERS]) -> Steps {
        self.shed += 1;
        self.ladder.tick(&Weather {
            band,
            ratio,
            shares,
            shed: [self.shed; TIERS],
        })
    }

    fn climb(&mut self, ticks: u32, ratio: f64, shares: [f64; TIERS]) -> Steps {
        let mut steps = Steps::default();
        for _ in 0..ticks {
            steps = self.tick(Band::Trouble, ratio, shares);
        }
        steps
    }

    /// Ticks until nobody is penalised.
    fn ticks_down(&mut self, band: Band) -> u32 {
        let mut ticks = 0;
        while !self.ladder.is_down() {
            self.tick(band, 0.9, EVEN);
            ticks += 1;
        }
        ticks
    }
}

fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() < 0.1
}

#[test]
fn callers_above_their_baseline_pay_first() {
    let mut climber = Climber::new();
    for (above, others) in [(2.0, 1.0), (4.0, 2.0), (8.0, 4.0), (8.0, 8.0)] {
        let steps = climber.climb(3, 0.25, EVEN);
        let factors = steps.factors(Sheddable);
        assert!(
            is_near(factors.0, above) && is_near(factors.1, others),
            "{factors:?}"
        );
        assert!(!steps.has(SheddablePlus));
    }
}

#[test]
fn part_of_a_rung_is_part_of_the_cohorts() {
    let steps = Climber::new().climb(4, 0.25, EVEN);
    for (cohort, above, other) in [(43, 2, Some(1)), (44, 1, None)] {
        assert_eq!(steps.exponent(Sheddable, cohort, true), Some(above));
        assert_eq!(steps.exponent(Sheddable, cohort, false), other);
    }
    assert_eq!(steps.exponent(SheddablePlus, 0, true), None);
}

#[test]
fn the_default_tier_follows_after_two_seconds() {
    let mut climber = Climber::new();
    assert!(!climber.climb(12 + 19, 0.25, EVEN).has(SheddablePlus));
    assert!(climber.climb(1, 0.25, EVEN).has(SheddablePlus));
}

#[test]
fn a_tier_that_asks_for_nothing_is_not_waited_for() {
    let mut climber = Climber::new();
    let steps = climber.climb(4, 0.25, [0.0, 0.9, 0.1, 0.0]);
    assert!(steps.has(SheddablePlus));
    assert!(
        is_near(steps.factors(Sheddable).1, 8.0),
        "whoever comes pays"
    );
    let mut climber = Climber::new();
    let steps = climber.climb(1_000, 0.25, [0.0, 0.0, 0.5, 0.5]);
    assert!(!steps.has(Critical), "nobody else is there, and yet");
}

#[test]
fn critical_follows_only_when_the_ratio_keeps_falling() {
    let mut climber = Climber::new();
    let steps = climber.climb(1_000, 0.2, EVEN);
    assert!(is_near(steps.factors(SheddablePlus).1, 8.0));
    assert!(!steps.has(Critical));
    // p95s scatter.
    for tick in 0..1_000 {
        let ratio = if tick % 2 == 0 { 0.05 } else { 0.3 };
        assert!(!climber.tick(Band::Trouble, ratio, EVEN).has(Critical));
    }
    let steps = climber.climb(30, 0.05, EVEN);
    assert!(steps.has(Critical) && !steps.has(CriticalPlus));
    let steps = climber.climb(1_000, 0.05, EVEN);
    assert!(!steps.has(CriticalPlus));
    assert!(climber.climb(100, 0.01, EVEN).has(CriticalPlus));
    let steps = climber.climb(1_000, 0.000_1, EVEN);
    assert!(is_near(steps.factors(CriticalPlus).1, 8.0));
}

#[test]
fn between_trouble_and_recovery_nothing_moves() {
    let mut climber = Climber::new();
    let before = climber.climb(5, 0.25, EVEN);
    assert_eq!(climber.tick(Band::Hold, 0.5, EVEN), before);
}

#[test]
fn recovery_divides_by_one_and_a_tenth_a_tick() {
    let mut climber = Climber::new();
    climber.climb(12 + 20 + 11, 0.25, EVEN);
    for tick in 1..=22 {
        let steps = climber.tick(Band::Mending, 0.65, EVEN);
        let (above, others) = steps.factors(Sheddable);
        // Between two rungs the mean over cohorts is not quite the power.
        let expected = (8.0 / 1.1_f64.powi(tick)).max(1.0);
        assert!(
            (others / expected - 1.0).abs() < 0.08,
            "{tick}: {others} {expected}"
        );
        assert!(above >= others && steps.factors(SheddablePlus).1 <= others);
    }
    let ticks = climber.ticks_down(Band::Mending);
    assert!(
        (40..50).contains(&ticks),
        "what is let through grows on to 32 times: {ticks}"
    );
}

#[test]
fn a_penalty_that_sheds_nobody_is_lifted() {
    let mut climber = Climber::new();
    climber.climb(100, 0.25, EVEN);
    let calm = Weather {
        band: Band::Clear,
        ratio: 0.9,
        shares: EVEN,
        shed: [climber.shed; TIERS],
    };
    let ticks = (0..100).find(|_| {
        climber.ladder.tick(&calm);
        climber.ladder.is_down()
    });
    assert_eq!(ticks, Some(IDLE_TICKS - 1));
}

#[test]
fn near_where_it_met_trouble_a_recovery_takes_its_time() {
    let down = |climber: &mut Climber, ticks: u32| {
        for _ in 0..ticks {
            climber.tick(Band::Mending, 0.65, EVEN);
        }
        climber.ladder.steps().of(Sheddable)
    };
    let mut climber = Climber::new();
    climber.climb(12, 0.25, EVEN);
    let knee = down(&mut climber, 10);
    let from = climber.climb(3, 0.25, EVEN).of(Sheddable);
    assert_eq!(from - knee, 129);
    let near = down(&mut climber, 5);
    assert!((87..90).contains(&(from - near)), "{from} {near}");
    assert!((4..6).contains(&(near - down(&mut climber, 1))));
}

#[test]
fn who_has_recovered_climbs_from_below_again() {
    let mut climber = Climber::new();
    climber.climb(40, 0.25, EVEN);
    climber.ticks_down(Band::Over);
    let steps = climber.climb(1, 0.25, EVEN);
    assert!(steps.has(Sheddable) && !steps.has(SheddablePlus));
    assert_eq!(
        steps.exponent(Sheddable, 127, true),
        Some(0),
        "no more than its baseline"
    );
}

proptest! {
    #[test]
    fn one_who_is_above_its_baseline_or_of_a_lower_cohort_never_pays_less(
        bands in prop::collection::vec((0..6_u8, 0.01..1.0), 1..200),
        shares in prop::array::uniform4(0.0..1.0),
    ) {
        let mut climber = Climber::new();
        for (band, ratio) in bands {
            let band = match band {
                0 => Band::Over,
                1 | 2 => Band::Trouble,
                3 => Band::Hold,
                4 => Band::Clear,
                _ => Band::Mending,
            };
            let steps = climber.tick(band, ratio, shares);
            prop_assert_eq!(Steps::of_word(steps.word()), steps);
            for tier in Criticality::ALL {
                let of = |cohort, is_above| {
                    steps.exponent(tier, cohort, is_above).unwrap_or(i32::MIN)
                };
                for cohort in [0, 1, 63, 126] {
                    prop_assert!(of(cohort, true) >= of(cohort, false));
                    prop_assert!(of(cohort, true) >= of(cohort + 1, true));
                    prop_assert!(of(cohort, true) <= EXPONENT_MAX);
                }
            }
        }
    }
}
