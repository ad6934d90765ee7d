//! What counting a read costs beside one probe of a hash map with the same key.
//!
//! Ten thousand keys, the same ones in the same random order for all, by turns within one run, the
//! hashing of the key included on both sides. The map hashes as we do and holds what a map would have
//! to, the whole key; it counts nothing. The map of the standard library is shown beside.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::hint::black_box;
use std::time::Instant;

use umbo_hotkey::{KeyHasher, KeyRef, KeySeed, Shield, ShieldSettings};
use umbo_types::{Key, NamespaceId};

use crate::allocations;
use crate::check::plan::Plan;
use crate::random::Random;
use crate::verdict::{Bound, Verdict};

const KEYS: u64 = 10_000;
const NAMESPACE: NamespaceId = NamespaceId(1);

/// Nanoseconds of one read, a figure a round.
#[derive(Debug, Default)]
struct Times {
    ours: Vec<f64>,
    probe: Vec<f64>,
    standard: Vec<f64>,
}

pub(super) fn cost(plan: &Plan) -> Vec<Verdict> {
    let (rounds, reads) = if plan.is_quick {
        (9, 100_000)
    } else {
        (21, 500_000)
    };
    let mut random = Random::seeded(plan.seed);
    let seed = KeySeed::new(random.next());
    let keys: Vec<Key> = (0..KEYS)
        .map(|number| {
            let (partition, sort) = (format!("listing:{number:05}"), format!("row-{number}"));
            Key::new(partition, sort).expect("short keys are keys")
        })
        .collect();
    let order: Vec<usize> = (0..reads).map(|_| random.below(KEYS) as usize).collect();
    let shield = Shield::<()>::new(
        ShieldSettings::new(4, seed),
        Box::new(drop),
        Box::new(|| 0),
        Instant::now(),
    );
    let map: HashMap<KeyRef<'_>, u64, BuildHasherDefault<KeyHasher>> = keys
        .iter()
        .zip(0..)
        .map(|(key, number)| (seed.row(NAMESPACE, key), number))
        .collect();
    let standard: HashMap<&Key, u64> = keys.iter().zip(0..).collect();
    let count = |at: usize| {
        shield.count(&seed.row(NAMESPACE, &keys[at]));
        1
    };
    let probe = |at: usize| map[&seed.row(NAMESPACE, &keys[at])];
    let probe_standard = |at: usize| standard[&keys[at]];
    let mut times = Times::default();
    for round in 0..=rounds {
        // Every second round is the other way round.
        let turns = if round % 2 == 0 { [0, 1, 2] } else { [2, 1, 0] };
        for who in turns {
            let (nanos, times) = match who {
                0 => (time(&order, count), &mut times.ours),
                1 => (time(&order, probe), &mut times.probe),
                _ => (time(&order, probe_standard), &mut times.standard),
            };
            // The first round brings everything into the caches, and is not counted.
            if round > 0 {
                times.push(nanos);
            }
        }
    }
    let (allocated, _) = allocations::count(|| time(&order, count));
    let Times {
        ours,
        probe,
        standard,
    } = &times;
    let what = "cost: counting a read, of a probe of a hash map";
    let of_standard = "  of a probe of the standard library's";
    vec![
        Verdict::of_nanos(what, Bound::AtMost(1.5), ours, probe),
        Verdict::of_nanos(of_standard, Bound::Nothing, ours, standard),
        Verdict::one(
            "cost: heap allocations",
            Bound::AtMost(0.0),
            allocated as f64,
            format!("in {reads} reads"),
        ),
    ]
}

/// Returns the nanoseconds of one read.
fn time(order: &[usize], read: impl Fn(usize) -> u64) -> f64 {
    let begun = Instant::now();
    let mut sum = 0_u64;
    for &at in order {
        sum = sum.wrapping_add(black_box(read(black_box(at))));
    }
    black_box(sum);
    begun.elapsed().as_nanos() as f64 / order.len() as f64
}
