//! A pod that starts in the middle of a stampede, beside one that has been there for long.
//!
//! Simulated, read by read, and on a real server that is killed while all clients go on. From the
//! detection of its keys on, a cold one lets through at most what a warm one ever does in a time of the
//! same length. The reads before that are reported.

use super::drill::{ATTACK, KEYS};
use super::pod::{SECOND_NS, Stampede};
use super::stampede::variants;
use crate::check::cases::{Case, Figure, run_all, verdicts_of};
use crate::check::plan::Plan;
use crate::check::server::open;
use crate::ddos::{DETECTION_S, Drill, Outcome, Phases, Traffic};
use crate::failure::Failure;
use crate::process::Cores;
use crate::verdict::{Bound, Verdict};

/// Seconds that are compared: three times to live, from the first read on.
const WINDOW_S: u64 = 9;
/// Seconds after which a pod is warm.
const WARM_S: u64 = 10;

pub(super) fn cold_start(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let mut verdicts = simulated(plan);
    verdicts.extend(real(plan)?);
    Ok(verdicts)
}

fn simulated(plan: &Plan) -> Vec<Verdict> {
    let (seconds, rate) = if plan.is_quick {
        (30, 50_000)
    } else {
        (60, 400_000)
    };
    let cases: Vec<Case<Stampede>> = variants(plan.seed)
        .into_iter()
        .map(|(name, stampede)| Case {
            name: name.to_owned(),
            scenario: Stampede {
                seconds,
                rate,
                ..stampede
            },
        })
        .collect();
    let measured = run_all(&cases, |case| {
        let outcome = case.scenario.run();
        let (cold, warm) = a_key(&outcome.store_reads, case.scenario.keys);
        let undetected = outcome.undetected / case.scenario.keys;
        [Figure {
            name: format!(
                "{} ({cold} and {warm} a key, {undetected} before)",
                case.name
            ),
            figure: cold as f64 / warm as f64,
        }]
    });
    let what = "cold start: reads of a key in 9 s from detection, of a warm pod";
    verdicts_of([(what, Bound::AtMost(1.0))], measured)
}

/// Returns the most reads of any key in the first seconds, and in any as many of a warm pod.
fn a_key(store_reads: &[(u64, u64)], keys: u64) -> (usize, usize) {
    let window_ns = WINDOW_S * SECOND_NS;
    let (mut cold, mut warm) = (0, 0);
    for key in 0..keys {
        let of_key = store_reads.iter().filter(|read| read.1 == key);
        let times: Vec<u64> = of_key.map(|read| read.0).collect();
        let from = |begin: u64| {
            let within = times
                .iter()
                .filter(|&&at| (begin..begin + window_ns).contains(&at));
            within.count()
        };
        cold = cold.max(from(0));
        let begins = times.iter().filter(|&&at| at >= WARM_S * SECOND_NS);
        warm = begins.map(|&at| from(at)).fold(warm, usize::max);
    }
    (cold, warm)
}

fn real(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let mut lab = open(plan)?;
    let data = lab.loaded()?;
    // Nobody else reads, so that every read of the store is the attack's.
    let traffic = Traffic {
        seed: plan.seed,
        gets_rate: 0.0,
        ..ATTACK
    };
    let mut drill = Drill::open(&mut lab, &data, Cores::Server, true, &traffic)?;
    let warm_s = if plan.is_quick { 16 } else { 40 };
    let outcome = drill.run(&Phases {
        before: 0,
        attack: warm_s + WINDOW_S + 3,
        after: 0,
        restart: Some(warm_s),
    })?;
    drill.close()?;
    Ok(of_restart(&outcome))
}

fn of_restart(outcome: &Outcome) -> Vec<Verdict> {
    let Some(restart) = outcome.restart else {
        return Vec::new();
    };
    let window_s = WINDOW_S as f64;
    let within =
        |from_s: f64| outcome.store_gets_at(from_s + window_s) - outcome.store_gets_at(from_s);
    let detected_s = restart.to_s + DETECTION_S;
    let cold = within(detected_s);
    let before = outcome.store_gets_at(detected_s) - outcome.store_gets_at(restart.from_s);
    let mut from_s = 3.0;
    let mut warm: f64 = 0.0;
    while from_s + window_s < restart.from_s {
        warm = warm.max(within(from_s));
        from_s += 0.25;
    }
    vec![
        Verdict::one(
            "restart: reads of the store in 9 s from detection, of the warm server",
            Bound::AtMost(1.0),
            cold / warm,
            format!(
                "{cold} and at most {warm} of {KEYS} keys, {before} before; down for {:.2} s",
                restart.to_s - restart.from_s
            ),
        ),
        Verdict::one(
            "restart: reads answered with a failure",
            Bound::AtMost(0.0),
            outcome.attack.failed as f64,
            format!("{:.0} reads a second", outcome.attack.rate()),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cold_pod_is_held_against_the_worst_moment_of_a_warm_one() {
        let at = |second: u64, key| (second * SECOND_NS, key);
        let reads = [at(0, 0), at(0, 0), at(8, 0), at(9, 0), at(20, 1), at(28, 1)];
        assert_eq!(a_key(&reads, 2), (3, 2));
    }
}
