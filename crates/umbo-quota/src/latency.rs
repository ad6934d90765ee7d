//! The cap on the latency that a request is charged for: three times the median of its class.
//!
//! Without it the victims of an overload would be charged for it. The median follows the service
//! times by steps of a part of itself, up where a time lies above it and down where it lies below
//! (the idea of Ma, Muthukrishnan and Sandler, "Frugal Streaming for Estimating Quantiles", 2013,
//! with steps in proportion), so that it needs one word and no window. Updates that collide are
//! lost, which moves a median by nothing that matters.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use umbo_types::Operation;

use crate::cost::nanos;

/// Times the median that are charged at most.
const CAP: u64 = 3;
/// A step is this part of the median.
const STEP: u64 = 64;

/// The medians of all operations, in nanoseconds; 0 until there is one.
#[derive(Debug, Default)]
pub(crate) struct Medians([AtomicU64; Operation::ALL.len()]);

impl Medians {
    /// Takes note of a service time.
    pub(crate) fn note(&self, operation: Operation, service_time: Duration) {
        let nanos = nanos(service_time).max(1);
        let median = &self.0[operation as usize];
        let current = median.load(Relaxed);
        let step = current / STEP + 1;
        let next = match current {
            0 => nanos,
            _ if nanos > current => current + step,
            _ if nanos < current => current.saturating_sub(step).max(1),
            _ => current,
        };
        median.store(next, Relaxed);
    }

    /// Returns what of a service time is charged, in nanoseconds.
    #[inline]
    pub(crate) fn capped(&self, operation: Operation, service_time: Duration) -> u64 {
        let nanos = nanos(service_time);
        match self.0[operation as usize].load(Relaxed) {
            0 => nanos,
            median => nanos.min(median.saturating_mul(CAP)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_found_and_followed() {
        let medians = Medians::default();
        let micros = Duration::from_micros;
        let mut seed = 1_u64;
        let mut feed = |scale: u64, times: u32| {
            for _ in 0..times {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // One in eight is fifty times slower.
                let time = if seed >> 61 == 0 { 50 } else { 1 } * scale;
                medians.note(Operation::Get, micros(time));
            }
        };
        feed(100, 2_000);
        let capped = |operation, time| Duration::from_nanos(medians.capped(operation, time));
        let second = Duration::from_secs(1);
        let cap = capped(Operation::Get, second);
        assert!((micros(250)..micros(350)).contains(&cap), "{cap:?}");
        assert_eq!(capped(Operation::Get, micros(10)), micros(10));
        assert_eq!(capped(Operation::Put, second), second);
    }

    #[test]
    fn one_stall_moves_it_by_one_step() {
        let medians = Medians::default();
        for _ in 0..100 {
            medians.note(Operation::Range, Duration::from_millis(1));
        }
        medians.note(Operation::Range, Duration::from_secs(10));
        let cap = medians.capped(Operation::Range, Duration::from_secs(10));
        assert!(cap < 3_100_000, "{cap} ns");
    }
}
