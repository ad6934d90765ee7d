//! Tests of the slices: no sample is lost, a window is two of them, and a full one takes no more.

use proptest::prelude::*;

use super::*;

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

#[test]
fn no_samples_have_no_quantile() {
    let slices = TimeSlices::new();
    assert_eq!(
        (slices.window().p95(), slices.window().samples()),
        (None, 0)
    );
    slices.record(Duration::ZERO);
    assert_eq!(slices.window().p95().map(Place::bucket), Some(0));
}

#[test]
fn a_sample_that_comes_between_the_two_looks_does_no_harm() {
    for first in [0, 1, 19, 20, 100] {
        let looks = std::cell::Cell::new(0);
        let growing = |bucket: usize| {
            let looked = looks.replace(looks.get() + 1);
            let is_second = looked >= BUCKETS;
            u32::from(bucket == 7) * first + u32::from(is_second && (bucket == 3 || bucket == 9))
        };
        let place = p95_of(growing);
        assert_eq!(place.is_some(), first > 0, "{first}");
        assert!(place.is_none_or(|place| place.bucket() <= 7), "{place:?}");
    }
}

#[test]
fn a_window_is_the_slice_under_way_and_the_one_before() {
    let slices = TimeSlices::new();
    for (count, window) in [(1, 1), (10, 11), (100, 110), (1_000, 1_100)] {
        for _ in 0..count {
            slices.record(micros(50));
        }
        assert_eq!(
            (slices.current().samples(), slices.window().samples()),
            (count, window)
        );
        slices.end_slice();
        assert_eq!(slices.current().samples(), 0);
    }
}

#[test]
fn a_full_slice_takes_no_more_and_the_next_one_does() {
    let slices = TimeSlices::new();
    for _ in 0..70_000 {
        slices.record(micros(50));
    }
    assert!(slices.is_full());
    slices.record(micros(5_000));
    assert_eq!(slices.current().samples(), u32::from(FULL) + 1);
    slices.end_slice();
    assert!(!slices.is_full());
    slices.record(micros(5_000));
    assert_eq!(slices.current().samples(), 1);
    slices.end_slice();
    assert_eq!(slices.window().samples(), 1);
}

#[test]
fn no_sample_is_lost_between_threads() {
    let slices = TimeSlices::new();
    std::thread::scope(|scope| {
        for thread in 1..5 {
            let slices = &slices;
            scope.spawn(move || {
                for at in 0..10_000 {
                    slices.record(micros(thread * 100 + at % 7));
                }
            });
        }
    });
    assert_eq!(slices.current().samples(), 40_000);
}

proptest! {
    /// Against the samples themselves.
    #[test]
    fn it_agrees_with_a_sorted_list(
        times in prop::collection::vec(2_000..4_000_000_000_u64, 1..400),
        thresholds in prop::array::uniform3(2_000..4_000_000_000_u64),
        half in 0..400_usize,
    ) {
        let slices = TimeSlices::new();
        for (at, nanos) in times.iter().enumerate() {
            if at == half {
                slices.end_slice();
            }
            slices.record(Duration::from_nanos(*nanos));
        }
        let mut sorted = times;
        sorted.sort_unstable();
        let exact = sorted[(sorted.len() * 19).div_ceil(20) - 1] as f64;
        let p95 = slices.window().p95().unwrap().nanos();
        prop_assert!((p95 / exact - 1.0).abs() <= 0.125, "{p95} {exact}");
        let places = thresholds.map(|nanos| Place::of_nanos(nanos as f64));
        let (above, samples) = slices.window().above(places);
        prop_assert_eq!(samples as usize, sorted.len());
        for (threshold, above) in thresholds.into_iter().zip(above) {
            // Those in the bucket of the threshold are told apart by their number alone.
            let bucket = log_histogram::bucket(Duration::from_nanos(threshold));
            let in_buckets = |is_in: fn(usize, usize) -> bool| {
                let inside = |nanos: &&u64| is_in(log_histogram::bucket(Duration::from_nanos(**nanos)), bucket);
                sorted.iter().filter(inside).count() as u32
            };
            prop_assert!(in_buckets(|at, bucket| at > bucket) <= above);
            prop_assert!(above <= in_buckets(|at, bucket| at >= bucket));
        }
    }
}
