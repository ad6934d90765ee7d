//! One thread that has more to do than it can, simulated: every request waits for it, is let in or
//! turned away when its turn comes, and costs it time either way.

use std::collections::VecDeque;

use umbo_types::{Criticality, Deadline, Operation, RequestUnits};

use super::*;
use crate::queue::gate::{Gate, GateSettings};
use crate::queue::verdict::{Entered, Outcome, Woken};

/// What it takes to serve one, and to turn one away.
const SERVED_US: u64 = 50;
const SHED_US: u64 = 5;
/// Arrivals are spread over four tiers, lowest first, in parts of a hundred.
const MIX: [u64; 4] = [40, 50, 7, 3];

struct Pod {
    gate: Gate<()>,
    begun: Instant,
    now_us: u64,
    free_us: u64,
    tick_us: u64,
    /// When they arrived, with tier and caller.
    waiting: VecDeque<(u64, usize, u64)>,
    random: u64,
}

/// What became of those who arrived in a time.
#[derive(Debug, Default)]
struct Sum {
    served: [u64; 4],
    shed: [u64; 4],
    /// The longest that anybody waited for the thread.
    late_us: u64,
}

impl Pod {
    fn new() -> Self {
        Self {
            gate: Gate::new(GateSettings::default()),
            begun: Instant::now(),
            now_us: 0,
            free_us: 0,
            tick_us: 0,
            waiting: VecDeque::new(),
            random: 1,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.random >> 33) % below
    }

    fn instant(&self, at_us: u64) -> Instant {
        self.begun + Duration::from_micros(at_us)
    }

    /// Lets so many requests arrive for each that can be served, for a time.
    fn run(&mut self, load: f64, millis: u64) -> Sum {
        let mut sum = Sum::default();
        let end_us = self.now_us + millis * 1_000;
        let mean_us = SERVED_US as f64 / load;
        while self.now_us < end_us {
            // Uniform from nothing to twice the mean.
            self.now_us += self.draw((2.0 * mean_us) as u64 + 1);
            let mut part = self.draw(100);
            let mut tier = 0;
            while part >= MIX[tier] {
                part -= MIX[tier];
                tier += 1;
            }
            let caller = self.draw(1_000);
            self.waiting.push_back((self.now_us, tier, caller));
            self.work(&mut sum);
        }
        sum
    }

    /// Does what the thread gets done until now.
    fn work(&mut self, sum: &mut Sum) {
        while let Some(&(arrived_us, tier, caller)) = self.waiting.front() {
            let at_us = self.free_us.max(arrived_us);
            if at_us > self.now_us {
                return;
            }
            self.waiting.pop_front();
            self.tick(at_us, at_us - arrived_us);
            sum.late_us = sum.late_us.max(at_us - arrived_us);
            let now = self.instant(at_us);
            let entry = Entry {
                criticality: Criticality::ALL[tier],
                caller,
                price: RequestUnits::from_micros(1_000_000),
                deadline: Deadline::after(now, Duration::from_secs(1)),
            };
            let mut woken = Woken::new();
            match self.gate.enter(&entry, now, || (), &mut woken) {
                Entered::Slot(grant) => {
                    sum.served[tier] += 1;
                    self.free_us = at_us + SERVED_US;
                    let outcome = Outcome::Served {
                        operation: Operation::Get,
                        service_time: Duration::from_micros(3),
                    };
                    let now = self.instant(self.free_us);
                    self.gate.leave(grant, outcome, now, &mut woken);
                }
                Entered::Shed(shed) => {
                    assert!(shed.wait >= Duration::from_millis(100));
                    sum.shed[tier] += 1;
                    self.free_us = at_us + SHED_US;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn tick(&mut self, at_us: u64, late_us: u64) {
        if at_us >= self.tick_us + 5_000 {
            self.tick_us = at_us;
            let now = self.instant(at_us);
            let lag = Duration::from_micros(late_us);
            self.gate.tick(now, lag, &mut Woken::new());
        }
    }
}

#[test]
fn a_thread_that_is_late_turns_the_lowest_away_and_serves_the_others_in_time() {
    let mut pod = Pod::new();
    let calm = pod.run(0.7, 1_000);
    assert_eq!(calm.shed, [0; 4]);
    let first = pod.run(3.0, 1_000);
    assert!(
        first.shed[0] > 0 && first.shed[2] + first.shed[3] == 0,
        "{first:?}"
    );
    let then = pod.run(3.0, 3_000);
    assert_eq!(then.shed[2] + then.shed[3], 0, "{then:?}");
    assert!(then.late_us < 100_000, "{then:?}");
    // What turning away costs is left out of what can be done.
    let served: u64 = then.served.iter().sum();
    let can = (3_000_000 - then.shed.iter().sum::<u64>() * SHED_US) / SERVED_US;
    assert!(served * 10 >= can * 9, "{served} of {can}");
    // The lowest has its floor.
    assert!(then.served[0] * 100 >= can * 8, "{then:?}");
    // And is served as soon as there is room.
    pod.run(0.7, 200);
    let after = pod.run(0.7, 1_000);
    assert_eq!(after.shed, [0; 4]);
    let tally = pod
        .gate
        .status(pod.instant(pod.now_us))
        .tiers
        .map(|tier| tier.tally);
    assert!(tally[0].shed[0] >= first.shed[0] + then.shed[0]);
}

#[test]
fn a_moment_of_lag_turns_nobody_away() {
    let mut pod = Pod::new();
    for _ in 0..20 {
        let calm = pod.run(0.7, 300);
        // The thread does something else for a while.
        pod.free_us = pod.now_us + 15_000;
        assert_eq!(calm.shed, [0; 4]);
    }
}

#[test]
fn who_asks_for_little_is_not_why_the_machine_is_late() {
    let (words, mut control) = (LagWords::default(), LagControl::default());
    let settings = CodelSettings::default();
    let start = Instant::now();
    let mut left = 0;
    for tick in 0..2_000_u64 {
        let now = start + Duration::from_millis(5) * tick as u32;
        // One request in each 5 ms: ten in a half interval.
        left += 1;
        control.tick(
            &words,
            &settings,
            10,
            Duration::from_millis(80),
            (left, u64::MAX),
            now,
        );
        assert_eq!(words.level.load(Relaxed), 0);
    }
}

#[test]
fn the_first_to_go_are_others_in_the_next_minute() {
    let (words, begun) = (LagWords::default(), Instant::now());
    let (mut control, settings) = (LagControl::default(), CodelSettings::default());
    let millis = Duration::from_millis;
    // Always late, and nothing that a floor could be kept of.
    let late = 10 * settings.target;
    let half_full = TIERS as u32 * COHORTS / 8;
    let mut parts: Vec<Vec<u64>> = Vec::new();
    for minute in 0..3 {
        let mut left = 0;
        for tick in 0..600 {
            let now = begun + Duration::from_mins(minute) + millis(tick * 100);
            left += 1_000;
            control.tick(&words, &settings, 0, late, (left, u64::MAX), now);
            words.level.store(half_full, Relaxed);
            if tick == 599 {
                let entry = |caller| Entry {
                    criticality: Criticality::Sheddable,
                    caller,
                    price: RequestUnits::from_micros(1_000_000),
                    deadline: Deadline::after(now, Duration::from_secs(1)),
                };
                let away = (0..1_000).filter(|&caller| words.turns_away(&entry(caller)).is_some());
                parts.push(away.collect());
            }
        }
    }
    for (at, part) in parts.iter().enumerate() {
        assert!((400..600).contains(&part.len()), "{}", part.len());
        for other in &parts[..at] {
            let both = part.iter().filter(|caller| other.contains(caller)).count();
            // Half of them, by chance.
            assert!((150..350).contains(&both), "{both}");
        }
    }
}
