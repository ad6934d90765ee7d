//! From when on a request is slow: longer than 99 of 100 of its operation lately.
//!
//! The p99 is read from the duration histograms once a second, over about the last half minute: counts fade by a
//! 16th each second. A request compares its time with one number; nothing else of it is on its path.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use umbo_types::Operation;

use super::RequestMetrics;
use super::buckets::{self, BUCKETS};
use super::counters::OPERATIONS;

/// Share of the requests of an operation that are not slow.
const SHARE: f64 = 0.99;
/// Requests of an operation before its p99 is known.
const REQUESTS_MIN: f64 = 100.0;
/// From when on a request is slow while the p99 of its operation is not known.
const UNKNOWN: Duration = Duration::from_millis(100);
/// Part of the counts that is left after a second.
const KEPT: f64 = 15.0 / 16.0;

/// From when on requests are slow, by operation.
#[derive(Debug)]
pub struct SlowBounds {
    nanos: [AtomicU64; OPERATIONS],
    windows: Mutex<Vec<LatencyWindow>>,
}

/// Recent counts of one operation.
#[derive(Debug, Clone)]
struct LatencyWindow {
    seen: [u64; BUCKETS],
    recent: [f64; BUCKETS],
}

impl Default for SlowBounds {
    fn default() -> Self {
        let window = LatencyWindow {
            seen: [0; BUCKETS],
            recent: [0.0; BUCKETS],
        };
        Self {
            nanos: std::array::from_fn(|_| AtomicU64::new(buckets::nanos(UNKNOWN))),
            windows: Mutex::new(vec![window; OPERATIONS]),
        }
    }
}

impl SlowBounds {
    /// Returns whether a request that took so long is slow. One relaxed load.
    #[inline]
    pub fn is_slow(&self, operation: Operation, elapsed: Duration) -> bool {
        buckets::nanos(elapsed) > self.nanos[operation as usize].load(Relaxed)
    }

    /// Returns from when on requests of an operation are slow.
    pub fn bound(&self, operation: Operation) -> Duration {
        Duration::from_nanos(self.nanos[operation as usize].load(Relaxed))
    }

    /// Reads the histograms. To be called once a second.
    pub fn update(&self, metrics: &RequestMetrics) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        for operation in Operation::ALL {
            let window = &mut windows[operation as usize];
            for (bucket, recent) in window.recent.iter_mut().enumerate() {
                let slots = metrics.slots.iter();
                let counts =
                    slots.map(|slot| slot.operation(operation).duration.buckets[bucket].get());
                let count = counts.fold(0, u64::wrapping_add);
                let new = count.wrapping_sub(std::mem::replace(&mut window.seen[bucket], count));
                *recent = *recent * KEPT + buckets::as_f64(new);
            }
            let is_known = window.recent.iter().sum::<f64>() >= REQUESTS_MIN;
            let nanos = buckets::quantile(&window.recent, SHARE).filter(|_| is_known);
            let nanos = nanos.map_or(UNKNOWN, |nanos| Duration::from_secs_f64(nanos / 1e9));
            self.nanos[operation as usize].store(buckets::nanos(nanos), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(metrics: &RequestMetrics, count: usize, millis: u64) {
        for _ in 0..count {
            let elapsed = Duration::from_millis(millis);
            metrics.record(Operation::Get, 200, elapsed, 0, 0);
        }
    }

    #[test]
    fn one_in_a_hundred_is_slow_of_its_own_operation() {
        let metrics = RequestMetrics::new([], 1);
        let slow = SlowBounds::default();
        let is_slow = |millis| slow.is_slow(Operation::Get, Duration::from_millis(millis));
        assert!(!is_slow(100) && is_slow(101), "nothing is known");
        record(&metrics, 980, 1);
        record(&metrics, 20, 40);
        slow.update(&metrics);
        assert!(!is_slow(2) && is_slow(50));
        let put = Duration::from_millis(50);
        assert!(!slow.is_slow(Operation::Put, put));
        // What was slow is usual after a while.
        for _ in 0..120 {
            record(&metrics, 100, 40);
            slow.update(&metrics);
        }
        assert!(!is_slow(35), "{:?}", slow.bound(Operation::Get));
        // Without requests nothing is known any more.
        for _ in 0..120 {
            slow.update(&metrics);
        }
        assert_eq!(slow.bound(Operation::Get), UNKNOWN);
    }
}
