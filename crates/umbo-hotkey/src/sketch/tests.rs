//! The sketch against an exact, slow twin.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// Exact decayed reads of all keys.
#[derive(Default)]
struct Twin {
    reads: HashMap<u64, f64>,
    recent: HashMap<u64, f64>,
}

impl Twin {
    fn add(&mut self, hash: u64) {
        *self.reads.entry(hash).or_default() += 1.0;
        *self.recent.entry(hash).or_default() += 1.0;
    }

    fn decay(&mut self, share: f64) {
        self.reads.values_mut().for_each(|reads| *reads *= share);
        self.recent.clear();
    }
}

#[derive(Debug, Clone)]
enum Event {
    Read(u64),
    Decay(f64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    // Few sets and many keys, so that counters change hands all the time; some keys are heavy.
    let key = prop_oneof![0_u64..4, 0_u64..200];
    let event = prop_oneof![
        40 => key.prop_map(Event::Read),
        1 => (0.0..1.0).prop_map(Event::Decay),
    ];
    prop::collection::vec(event, 0..1_500)
}

fn hash(key: u64) -> u64 {
    (key + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

proptest! {
    #[test]
    fn the_true_count_is_between_both_bounds(events in events()) {
        let mut sketch = Sketch::new(32);
        let mut twin = Twin::default();
        for event in events {
            match event {
                Event::Read(key) => {
                    sketch.add(hash(key));
                    twin.add(hash(key));
                }
                Event::Decay(share) => {
                    sketch.decay(share);
                    twin.decay(share);
                }
            }
        }
        let slack = 1e-9;
        for (hash, reads) in &twin.reads {
            prop_assert!(sketch.count_max(*hash) + slack >= *reads);
        }
        for counter in sketch.counters() {
            prop_assert!(counter.guaranteed <= twin.reads[&counter.hash] + slack);
            let recent = twin.recent.get(&counter.hash).copied().unwrap_or_default();
            prop_assert!(counter.recent <= recent);
            prop_assert_eq!(sketch.get(counter.hash), Some(counter));
        }
    }

    #[test]
    fn a_key_is_overcounted_by_a_sixteenth_of_its_set_at_most(
        keys in prop::collection::vec(0_u64..300, 0..2_000),
    ) {
        let mut sketch = Sketch::new(32);
        for key in &keys {
            sketch.add(hash(*key));
        }
        let reads_of_set = |set: usize| {
            let of_set = keys.iter().filter(|key| sketch.set_of(hash(**key)) == set);
            of_set.map(|_| 1.0).sum::<f64>()
        };
        let bounds = [reads_of_set(0) / WAYS as f64, reads_of_set(1) / WAYS as f64];
        for counter in sketch.counters() {
            let overcount = sketch.count_max(counter.hash) - counter.guaranteed;
            prop_assert!(overcount <= bounds[sketch.set_of(counter.hash)]);
        }
        prop_assert!((sketch.total() - keys.len() as f64).abs() < 1e-9);
    }
}

#[test]
fn a_sketch_with_room_is_exact() {
    let mut sketch = Sketch::new(1_024);
    for key in 0..300 {
        for _ in 0..=key {
            sketch.add(hash(key));
        }
    }
    for key in 0..300_u32 {
        let reads = f64::from(key + 1);
        let counter = sketch.get(hash(key.into())).unwrap();
        assert!((counter.guaranteed - reads).abs() < 1e-9);
        assert!((sketch.count_max(hash(key.into())) - reads).abs() < 1e-9);
    }
}

#[test]
fn a_flood_of_random_keys_guarantees_nothing_and_evicts_no_heavy_key() {
    let mut sketch = Sketch::new(1_024);
    for read in 0..1_000_000_u64 {
        // One read in fifty is of the same key.
        let key = if read % 50 == 0 { 0 } else { 1_000 + read };
        sketch.add(hash(key));
    }
    let most = sketch.counters().filter(|c| c.hash != hash(0));
    let most = most.map(|counter| counter.guaranteed).fold(0.0, f64::max);
    assert!(most <= 2.0, "{most}");
    // The counts of the flood are a hundred times that, all the same.
    assert!(sketch.count_max(hash(7_777_777)) > 500.0);
    let heavy = sketch.get(hash(0)).unwrap();
    assert!((heavy.guaranteed - 20_000.0).abs() < 1e-9);
}

#[test]
fn the_interval_counts_from_its_beginning() {
    let mut sketch = Sketch::new(32);
    sketch.add(1);
    sketch.decay(0.5);
    assert!(sketch.recent_total() < 1e-9);
    sketch.add(1);
    let counter = sketch.get(1).unwrap();
    assert_eq!((counter.guaranteed, counter.recent), (1.5, 1.0));
    assert_eq!((sketch.total(), sketch.recent_total()), (1.5, 1.0));
}
