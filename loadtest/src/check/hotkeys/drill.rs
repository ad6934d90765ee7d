//! The drill on a real server: ten keys, as fast as the machine goes, beside gets of other keys.
//!
//! *The same load without the attack* is as many connections in the same closed loop, whose reads are
//! of all keys alike: what is left between the two is that the attack wants the same keys. Beside it
//! stands the latency of normal traffic alone, on a machine that has nothing else to do.

use crate::check::plan::Plan;
use crate::check::server::open;
use crate::ddos::{Drill, Outcome, Phases, Target, Traffic, reads_max};
use crate::failure::Failure;
use crate::process::Cores;
use crate::verdict::{Bound, Verdict, median_of};

/// Keys under attack.
pub(super) const KEYS: u64 = 10;
/// The attack, beside a thousand gets of other keys a second.
pub(super) const ATTACK: Traffic = Traffic {
    seed: 1,
    target: Target::Keys(KEYS),
    connections: 64,
    gets_rate: 1_000.0,
    others_rate: 0.0,
};
/// Seconds of normal traffic alone before a round, and of the attack until its clients are there.
const ALONE: u64 = 2;
const SETTLING_S: f64 = 0.5;

pub(super) fn drill(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let mut lab = open(plan)?;
    let rounds = lab.plan.rounds;
    let data = lab.loaded()?;
    let attack = Traffic {
        seed: plan.seed,
        ..ATTACK
    };
    let spread = Traffic {
        target: Target::Spread,
        ..attack
    };
    let mut drill = Drill::open(&mut lab, &data, Cores::Server, true, &attack)?;
    let long = drill.run(&Phases {
        before: ALONE,
        attack: if plan.is_quick { 8 } else { 28 },
        after: 1,
    })?;
    let phases = Phases {
        before: ALONE,
        attack: if plan.is_quick { 2 } else { 4 },
        after: 0,
    };
    let mut turns = Turns::default();
    for round in 0..rounds {
        // The attack first, then the same load without it, and the other way round.
        for is_attack in [round % 2 == 0, round % 2 == 1] {
            drill.change(if is_attack { &attack } else { &spread })?;
            turns.add(is_attack, &drill.run(&phases)?);
        }
    }
    drill.close()?;
    let mut verdicts = of_attack(&long);
    verdicts.extend(turns.verdicts());
    Ok(verdicts)
}

fn of_attack(outcome: &Outcome) -> Vec<Verdict> {
    let (before, reads) = outcome.attack_store_reads();
    let seconds = outcome.attack_s();
    let (answered, rate) = (outcome.attack.requests, outcome.attack.rate());
    vec![
        Verdict::one(
            "drill: reads of the store since detection, of keys x ceil(T/TTL) x 1.05",
            Bound::AtMost(1.0),
            reads / reads_max(KEYS, seconds, 3.0),
            format!("{reads} for {answered} of {KEYS} keys in {seconds:.2} s, {before} before"),
        ),
        Verdict::one(
            "  collapse since detection, to one",
            Bound::Nothing,
            outcome.collapse(),
            format!("{rate:.0} reads a second, as fast as the machine goes"),
        ),
        Verdict::one(
            "drill: errors",
            Bound::AtMost(0.0),
            outcome.errors() as f64,
            format!(
                "{answered} reads and {} gets of other keys",
                outcome.gets.answered()
            ),
        ),
    ]
}

/// p99 of gets of other keys in milliseconds, turn by turn.
#[derive(Default)]
struct Turns {
    attacked: Vec<f64>,
    spread: Vec<f64>,
    alone: Vec<f64>,
    errors: u64,
}

impl Turns {
    fn add(&mut self, is_attack: bool, outcome: &Outcome) {
        let from_s = ALONE as f64;
        let to_s = from_s + outcome.attack_s();
        let p99_ms = outcome.window(from_s + SETTLING_S, to_s).p99_ms;
        self.errors += outcome.errors();
        if is_attack {
            self.attacked.push(p99_ms);
            self.alone.push(outcome.window(SETTLING_S, from_s).p99_ms);
        } else {
            self.spread.push(p99_ms);
        }
    }

    fn verdicts(&self) -> Vec<Verdict> {
        let Self {
            attacked,
            spread,
            alone,
            errors,
        } = self;
        let ratios = |others: &[f64]| -> Vec<f64> {
            let pairs = attacked.iter().zip(others);
            pairs.map(|(one, other)| one / other).collect()
        };
        let figures = |others: &[f64]| {
            let (one, other) = (median_of(attacked), median_of(others));
            format!("{one:.2} ms and {other:.2} ms")
        };
        vec![
            Verdict::new(
                "drill: p99 of cold keys, of the load without attack",
                Bound::AtMost(1.2),
                ratios(spread),
                figures(spread),
            ),
            Verdict::new(
                "  of normal traffic alone",
                Bound::Nothing,
                ratios(alone),
                figures(alone),
            ),
            Verdict::one(
                "drill: errors in these turns",
                Bound::AtMost(0.0),
                *errors as f64,
                format!("{} turns", attacked.len() + spread.len()),
            ),
        ]
    }
}
