//! Steps against their seconds, and the bounds of a history.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::metric_names::{CALLER_REQUEST_UNITS, REQUEST_DURATION};

fn key(label: &str) -> SeriesKey {
    SeriesKey::new(&CALLER_REQUEST_UNITS.history[0], label)
}

/// Every sample there was, without any folding.
#[derive(Default)]
struct Twin(BTreeMap<(String, u64), f64>);

impl Twin {
    /// Computes a point from the seconds.
    fn mean(&self, label: &str, from: u64, seconds: u64) -> Option<f64> {
        let of_it = (from..from + seconds).filter_map(|at| self.0.get(&(label.to_owned(), at)));
        let (sum, count) = of_it.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
        (count > 0.0).then(|| sum / count)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn steps_are_the_means_of_their_seconds(
        calls in prop::collection::vec((0_u64..40, 0_u8..3, 0_u32..1_000), 1..200),
        begin in 1_000_000_u64..1_001_000,
    ) {
        let mut history = History::new();
        let mut twin = Twin::default();
        let mut second = begin;
        let mut last = None::<u64>;
        for (forward, caller, value) in calls {
            second += if forward < 30 { 1 } else { forward * 20 };
            let label = caller.to_string();
            let from = match last {
                Some(last) if second - last <= COVERED_MAX => last + 1,
                _ => second,
            };
            for at in from..=second {
                twin.0.insert((label.clone(), at), f64::from(value));
            }
            history.record(second, [(key(&label), f64::from(value))]);
            last = Some(second);
        }
        for (range, step) in [(Range::FiveMinutes, 1), (Range::Hour, 10)] {
            let view = history.view(range, |_| true);
            prop_assert_eq!(view.step_ms, step * 1_000);
            let start = view.start_ms / 1_000;
            let points = range.seconds() / step;
            prop_assert_eq!(start + points * step, (second + 1) / step * step);
            for label in ["0", "1", "2"] {
                let shown = view.series.iter().find(|series| &*series.key.value == label);
                for point in 0..points {
                    let shown = shown.and_then(|series| series.values[point as usize]);
                    let expected = twin.mean(label, start + point * step, step);
                    match (shown, expected) {
                        (None, None) => {}
                        (Some(shown), Some(expected)) => {
                            prop_assert!((f64::from(shown) - expected).abs() < 1e-3);
                        }
                        other => prop_assert!(false, "{label} {point}: {other:?}"),
                    }
                }
            }
        }
    }
}

#[test]
fn what_is_new_is_the_end_of_the_whole() {
    let mut history = History::new();
    for second in 1_000_000..1_000_700_u64 {
        let value = f64::from(u32::try_from(second).unwrap());
        history.record(second, [(key("a"), value)]);
    }
    for range in [Range::FiveMinutes, Range::Hour, Range::Day] {
        let whole = history.view(range, |_| true);
        let end = whole.start_ms + whole.step_ms * whole.series[0].values.len() as u64;
        let since = history.view_since(range, end - 2 * whole.step_ms, |_| true);
        assert_eq!(since.start_ms, end - 2 * whole.step_ms);
        let values = &whole.series[0].values;
        assert_eq!(since.series[0].values, values[values.len() - 2..]);
        // Nothing is newer than the end.
        assert!(
            history
                .view_since(range, end + 1, |_| true)
                .series
                .is_empty()
        );
    }
}

#[test]
fn a_day_has_720_points_and_a_month_too() {
    let mut history = History::new();
    for second in 0..86_400 {
        history.record(1_700_000_000 + second, [(key("a"), 2.0)]);
    }
    for range in [Range::Day, Range::Month] {
        let view = history.view(range, |_| true);
        assert_eq!(view.series[0].values.len(), 720, "{range:?}");
    }
    let day = history.view(Range::Day, |_| true);
    assert_eq!(day.step_ms, 120_000);
    // The oldest point may be older than the first sample.
    let values = &day.series[0].values[1..];
    assert!(values.iter().all(|value| *value == Some(2.0)));
    let month = history.view(Range::Month, |_| true);
    assert_eq!(month.step_ms, 3_600_000);
    let of_it = month.series[0].values.iter().flatten().count();
    assert!((24..=25).contains(&of_it), "{of_it}");
}

#[test]
fn quantiles_have_values_of_their_own_in_each_step() {
    let mut history = History::new();
    let quantile = SeriesKey::new(&REQUEST_DURATION.history[1], "get");
    for second in 600_000..600_600 {
        history.record(second, [(quantile.clone(), 9.0)]);
        if second % 10 == 9 {
            history.record_step(1, second / 10, [(quantile.clone(), 3.0)]);
        }
    }
    let seconds = history.view(Range::FiveMinutes, |_| true);
    assert_eq!(seconds.series[0].values.last(), Some(&Some(9.0)));
    let hour = history.view(Range::Hour, |_| true);
    assert_eq!(hour.series[0].values.last(), Some(&Some(3.0)));
}

#[test]
fn a_clock_that_goes_back_takes_the_future_with_it() {
    let mut history = History::new();
    for second in 10_000..10_100 {
        history.record(second, [(key("a"), 1.0)]);
    }
    history.record(10_050, [(key("a"), 5.0)]);
    let view = history.view(Range::FiveMinutes, |_| true);
    assert_eq!(view.start_ms / 1_000 + 300, 10_051);
    let values = &view.series[0].values;
    assert_eq!(values[298..], [Some(1.0), Some(5.0)]);
}

#[test]
fn the_number_of_series_is_bounded_and_those_that_ended_first_go() {
    let mut history = History::new();
    let many =
        |from: usize| (from..from + SERIES_MAX).map(|number| (key(&number.to_string()), 1.0));
    history.record(1_000, many(0));
    // All places are taken by series that are as recent.
    history.record(1_001, many(0).chain([(key("late"), 1.0)]));
    assert_eq!(history.series(), SERIES_MAX);
    assert!(!history.entries.contains_key(&key("late")));
    history.record(1_100, many(1));
    history.record(1_101, many(1));
    assert_eq!(history.series(), SERIES_MAX);
    assert!(history.entries.contains_key(&key("512")));
    assert!(!history.entries.contains_key(&key("0")));
}

#[test]
fn a_full_history_is_under_its_bound() {
    let mut history = History::new();
    for number in 0..SERIES_MAX {
        let key = key(&number.to_string());
        for (level, Level { kept, .. }) in LEVELS.into_iter().enumerate() {
            for step in 0..kept {
                history.record_step(level, step, [(key.clone(), f32::from(step as u16))]);
            }
        }
    }
    let bytes = history.heap_bytes();
    assert!(bytes < 32 << 20, "{bytes}");
}
