//! What the detection finds among a million keys, against exact counts of every one of them; how fast
//! it is; and what it holds.
//!
//! In simulated time, through the shield as a dispatcher uses it, four threads counting. The exact
//! twin decays as the sketch does: in steps of a merge, with the same half-life. *Found* is what is in
//! the hot set and at the threshold; a hot key stays in the set below it, down to half.

mod counting;
mod keys;
mod memory;
mod reaction;

use std::collections::BTreeSet;

use self::counting::{SimulatedDispatcher, THREADS, TICK, number_of};
use self::keys::{ATTACKED, FLOOD, KEYS, SETTLING};
use self::memory::memory;
use self::reaction::reaction;
use super::zipf::Zipf;
use crate::check::cases::{Case, Figure, run_all, verdicts_of};
use crate::check::plan::Plan;
use crate::random::Random;
use crate::verdict::{Bound, Verdict};

pub(super) fn sketch(plan: &Plan) -> Vec<Verdict> {
    let mut verdicts = accuracy(plan);
    verdicts.extend(reaction(plan));
    verdicts.extend(memory(plan));
    verdicts
}

/// What is read, and how it is spread.
struct Traffic {
    seed: u64,
    exponent: f64,
    /// Share of reads of keys that are never read again.
    flood: f64,
    /// Shares of keys under attack.
    attacked: &'static [f64],
    /// Reads a second.
    rate: u64,
    ticks: u64,
}

fn accuracy(plan: &Plan) -> Vec<Verdict> {
    let mut cases = Vec::new();
    // Just above and just below one in a hundred, and far above.
    let attacks: [&[f64]; 2] = [&[], &[0.008, 0.009, 0.011, 0.012, 0.015, 0.05, 0.1]];
    let ticks = if plan.is_quick { 40 } else { 400 };
    for exponent in [0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2] {
        for flood in [0.0, 0.5, 0.9] {
            for attacked in attacks {
                let what = if attacked.is_empty() {
                    ""
                } else {
                    ", attacked"
                };
                // A pod that is read little judges by fewer reads.
                let rates: &[u64] = if plan.is_quick {
                    &[50_000]
                } else {
                    &[25_000, 100_000]
                };
                for &rate in rates {
                    cases.push(Case {
                        name: format!("Zipf {exponent}, flood {flood}{what}, {rate}/s"),
                        scenario: Traffic {
                            seed: plan.seed ^ (cases.len() as u64) << 32,
                            exponent,
                            flood,
                            attacked,
                            rate,
                            ticks,
                        },
                    });
                }
            }
        }
    }
    let metrics = [
        ("sketch: recall of keys above 1 %", Bound::AtLeast(1.0)),
        ("sketch: precision", Bound::AtLeast(0.99)),
    ];
    let counted = run_all(&cases, |case| case.scenario.run());
    let figures = |(case, counts): (&Case<Traffic>, &Counts)| {
        let share = |of: u64, all: u64| Figure {
            name: format!("{} ({of} of {all})", case.name),
            // Nothing to be found, and nothing found: nothing is wrong.
            figure: if all == 0 {
                1.0
            } else {
                of as f64 / all as f64
            },
        };
        [
            share(counts.both, counts.hot),
            share(counts.both, counts.found),
        ]
    };
    let measured = cases.iter().zip(&counted).map(figures).collect();
    let mut verdicts = verdicts_of(metrics, measured);
    let hot: u64 = counted.iter().map(|counts| counts.hot).sum();
    verdicts.push(Verdict::one(
        "  keys to be found, merge by merge",
        Bound::Nothing,
        hot as f64,
        format!("{} merges of {} cases", ticks, cases.len()),
    ));
    verdicts
}

/// Keys by tick.
#[derive(Default)]
struct Counts {
    both: u64,
    hot: u64,
    found: u64,
}

impl Traffic {
    fn run(&self) -> Counts {
        let zipf = Zipf::new(KEYS, self.exponent);
        let mut random = Random::seeded(self.seed);
        let mut pod = SimulatedDispatcher::new(random.next(), THREADS);
        let mut twin = Twin::new();
        let mut counts = Counts::default();
        let mut fresh = FLOOD;
        let reads_a_tick = self.rate / 10;
        for tick in 0..self.ticks {
            let draw = |_| self.draw(&zipf, &mut random, &mut fresh);
            let reads: Vec<u64> = (0..reads_a_tick).map(draw).collect();
            pod.count(&reads);
            twin.tick(&reads);
            pod.tick();
            // The hot set learns from its readers which keys its hashes are.
            for &number in &reads {
                pod.is_hot(number);
            }
            if tick < SETTLING {
                continue;
            }
            let (exactly, found) = (twin.hot(), found(&pod));
            counts.both += exactly.intersection(&found).count() as u64;
            counts.hot += exactly.len() as u64;
            counts.found += found.len() as u64;
        }
        counts
    }

    fn draw(&self, zipf: &Zipf, random: &mut Random, fresh: &mut u64) -> u64 {
        let mut share = random.unit();
        for (number, attacked) in (ATTACKED..).zip(self.attacked) {
            if share < *attacked {
                return number;
            }
            share -= attacked;
        }
        if random.unit() < self.flood {
            *fresh += 1;
            return *fresh;
        }
        zipf.draw(random)
    }
}

/// Returns what the detection holds to be at the threshold or above.
fn found(pod: &SimulatedDispatcher) -> BTreeSet<u64> {
    let report = pod.shield.report(pod.now);
    let keys = report.keys.iter();
    let above = keys.filter(|key| key.is_hot && key.heat.rate >= report.threshold_rate);
    above.map(|key| number_of(&key.key)).collect()
}

/// Exact decayed reads of every key.
struct Twin {
    /// Of popular and attacked keys; a key of the flood is read once.
    reads: Vec<f64>,
    total: f64,
    seconds: f64,
    /// What a read of this tick weighs; grows, so that the old need not shrink.
    weight: f64,
}

impl Twin {
    fn new() -> Self {
        Self {
            reads: vec![0.0; (ATTACKED + 100) as usize],
            total: 0.0,
            seconds: 0.0,
            weight: 1.0,
        }
    }

    fn tick(&mut self, reads: &[u64]) {
        self.weight *= (TICK.as_secs_f64() / 2.0).exp2();
        for &number in reads {
            if let Some(sum) = self.reads.get_mut(number as usize) {
                *sum += self.weight;
            }
        }
        self.total += self.weight * reads.len() as f64;
        self.seconds += self.weight * TICK.as_secs_f64();
    }

    /// Returns every key at 1 % of all reads and 200 reads a second, or above.
    fn hot(&self) -> BTreeSet<u64> {
        let least = (0.01 * self.total).max(200.0 * self.seconds);
        let numbered = (0..).zip(&self.reads);
        let hot = numbered.filter(|(_, reads)| **reads >= least);
        hot.map(|(number, _)| number).collect()
    }
}
