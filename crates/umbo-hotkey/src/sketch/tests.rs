//! The sketch against an exact, slow twin.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// Exact weights of all keys.
#[derive(Default)]
struct Twin {
    weights: HashMap<u64, f64>,
    recent: HashMap<u64, f64>,
    units: HashMap<u64, f64>,
}

impl Twin {
    fn add(&mut self, hash: u64, increment: u64, units: u64) {
        *self.weights.entry(hash).or_default() += increment as f64;
        *self.recent.entry(hash).or_default() += increment as f64;
        *self.units.entry(hash).or_default() += increment as f64 * units as f64;
    }

    fn advance(&mut self, halvings: u32) {
        let share = 2_f64.powi(-halvings.cast_signed());
        for weight in self.weights.values_mut().chain(self.units.values_mut()) {
            *weight *= share;
        }
        self.recent.clear();
    }
}

#[derive(Debug, Clone)]
enum Event {
    Read(u64, u64),
    Advance(u32, u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    // Few sets and many keys, so that counters change hands all the time; some keys are heavy.
    let key = prop_oneof![0_u64..4, 0_u64..200];
    let event = prop_oneof![
        40 => (key, 0_u64..5).prop_map(|(key, units)| Event::Read(key, units)),
        1 => (prop_oneof![Just(0_u32), 1_u32..80], 1_u64..1 << 37)
            .prop_map(|(halvings, increment)| Event::Advance(halvings, increment)),
    ];
    prop::collection::vec(event, 0..1_500)
}

fn hash(key: u64) -> u64 {
    (key + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

proptest! {
    #[test]
    fn the_true_weight_is_between_both_bounds(events in events()) {
        let mut sketch = Sketch::new(32, 1 << 20);
        let mut twin = Twin::default();
        for event in events {
            match event {
                Event::Read(key, units) => {
                    sketch.add(hash(key), units);
                    twin.add(hash(key), sketch.increment(), units);
                }
                Event::Advance(halvings, increment) => {
                    sketch.advance(halvings, increment);
                    twin.advance(halvings);
                }
            }
        }
        let slack = 1.0 + 1e-9;
        for (hash, weight) in &twin.weights {
            prop_assert!(sketch.count_max(*hash) as f64 * slack >= *weight);
        }
        for counter in sketch.counters() {
            prop_assert!(counter.guaranteed as f64 <= twin.weights[&counter.hash] * slack);
            prop_assert!(counter.units <= twin.units[&counter.hash] * slack);
            let recent = twin.recent.get(&counter.hash).copied().unwrap_or_default();
            // What was divided has been rounded.
            prop_assert!(counter.recent as f64 <= recent * slack + 1.0);
            prop_assert_eq!(sketch.get(counter.hash), Some(counter));
        }
    }

    #[test]
    fn a_key_is_overcounted_by_a_sixteenth_of_its_set_at_most(
        keys in prop::collection::vec(0_u64..300, 0..2_000),
    ) {
        let mut sketch = Sketch::new(32, 1);
        for key in &keys {
            sketch.add(hash(*key), 0);
        }
        let weight_of_set = |set: usize| {
            let of_set = keys.iter().filter(|key| sketch.set_of(hash(**key)) == set);
            of_set.count() as u64
        };
        let bounds = [weight_of_set(0) / WAYS as u64, weight_of_set(1) / WAYS as u64];
        for counter in sketch.counters() {
            let overcount = sketch.count_max(counter.hash) - counter.guaranteed;
            prop_assert!(overcount <= bounds[sketch.set_of(counter.hash)]);
        }
        prop_assert_eq!(sketch.total(), keys.len() as u64);
    }
}

#[test]
fn a_sketch_with_room_is_exact() {
    let mut sketch = Sketch::new(1_024, 1);
    for key in 0..300 {
        for _ in 0..=key {
            sketch.add(hash(key), 2);
        }
    }
    for key in 0..300 {
        let counter = sketch.get(hash(key)).unwrap();
        assert_eq!(counter.guaranteed, key + 1);
        assert_eq!(sketch.count_max(hash(key)), key + 1);
        assert!((counter.units - 2.0 * (key + 1) as f64).abs() < 1e-9);
    }
}

#[test]
fn a_flood_of_random_keys_guarantees_nothing_and_evicts_no_heavy_key() {
    let mut sketch = Sketch::new(1_024, 1);
    for read in 0..1_000_000_u64 {
        // One read in fifty is of the same key.
        let key = if read % 50 == 0 { 0 } else { 1_000 + read };
        sketch.add(hash(key), 0);
    }
    let most = sketch.counters().filter(|c| c.hash != hash(0));
    let most = most.map(|counter| counter.guaranteed).max().unwrap();
    assert!(most <= 2, "{most}");
    // The counts of the flood are a hundred times that, all the same.
    assert!(sketch.count_max(hash(7_777_777)) > 500);
    let heavy = sketch.get(hash(0)).unwrap();
    assert_eq!(heavy.guaranteed, 20_000);
}

#[test]
fn the_interval_counts_from_its_beginning() {
    let mut sketch = Sketch::new(32, 8);
    sketch.add(1, 0);
    sketch.advance(0, 16);
    assert_eq!(sketch.recent_total(), 0);
    sketch.add(1, 0);
    let counter = sketch.get(1).unwrap();
    assert_eq!((counter.guaranteed, counter.recent), (24, 16));
    assert_eq!((sketch.total(), sketch.recent_total()), (24, 16));
}
