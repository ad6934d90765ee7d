//! What the detection holds.

use super::counting::{SimulatedDispatcher, THREADS};
use super::keys::{ATTACKED, SETTLING};
use crate::allocations;
use crate::check::cases::{Figure, verdicts_of};
use crate::check::plan::Plan;
use crate::random::Random;
use crate::verdict::{Bound, Verdict};

/// Threads of a pod that is larger than most.
const THREADS_MAX: usize = 64;
/// Keys that are hot while the memory is looked at.
const HOT: u64 = 95;
const MEGABYTE: f64 = 1e6;

/// What the detection of a pod holds when as many keys are hot as can be.
pub(super) fn memory(plan: &Plan) -> Vec<Verdict> {
    let of = |threads: usize| {
        let (hot, bytes) = memory_of(plan.seed, threads);
        let name = format!("{threads} threads, {hot} hot keys");
        let figure = bytes as f64 / MEGABYTE;
        Figure { name, figure }
    };
    let usual = [1, 2, 4, 8, 16, 32].map(|threads| [of(threads)]);
    let mut verdicts = verdicts_of(
        [("sketch: memory of a pod, MB", Bound::AtMost(1.0))],
        usual.into(),
    );
    let largest = of(THREADS_MAX);
    verdicts.push(Verdict::one(
        "  of a pod that is larger than most, MB",
        Bound::Nothing,
        largest.figure,
        largest.name,
    ));
    let (held, pod) = allocations::held(|| SimulatedDispatcher::new(plan.seed, THREADS));
    drop(pod);
    verdicts.push(Verdict::one(
        "  all of the layer before it keeps anything, MB",
        Bound::Nothing,
        held as f64 / MEGABYTE,
        format!("{THREADS} threads, by the allocator"),
    ));
    verdicts
}

/// Returns how many keys are hot and the bytes that the detection of such a pod holds.
fn memory_of(seed: u64, threads: usize) -> (usize, usize) {
    let mut random = Random::seeded(seed);
    let mut pod = SimulatedDispatcher::new(random.next(), threads);
    // Each has more than one read in a hundred.
    for _ in 0..2 * SETTLING {
        let hot = (0..HOT * 1_000).map(|read| ATTACKED + read % HOT);
        let reads: Vec<u64> = hot.chain((0..1_000).map(|_| random.next())).collect();
        pod.count(&reads);
        pod.tick();
        for number in ATTACKED..ATTACKED + HOT {
            pod.is_hot(number);
        }
    }
    let report = pod.shield.report(pod.now);
    (report.keys.len(), report.detection_bytes)
}
