//! The 95th percentile of how long recent reads of a connection took.
//!
//! Counts in slices of an eighth of a power of two, so the answer is at most an eighth too high.
//! Old counts are halved by [`Latency::age`], which the owner calls once a second.

use std::time::Duration;

/// Slices of a power of two.
const SLICES: usize = 8;
/// Microseconds up to about half an hour.
const COUNTS: usize = 31 * SLICES;
/// Fewer reads say nothing about a 95th percentile.
const READS_MIN: u32 = 40;

#[derive(Debug)]
pub(crate) struct Latency {
    counts: Box<[u32; COUNTS]>,
    total: u32,
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            counts: Box::new([0; COUNTS]),
            total: 0,
        }
    }
}

impl Latency {
    pub(crate) fn record(&mut self, took: Duration) {
        let micros = took.as_micros().clamp(1, 1 << 30) as usize;
        self.counts[slice(micros)] += 1;
        self.total += 1;
    }

    /// Lets what was recorded count half from now on.
    pub(crate) fn age(&mut self) {
        self.total = 0;
        for count in &mut *self.counts {
            *count /= 2;
            self.total += *count;
        }
    }

    /// Returns the time within which 95 of 100 reads were answered, rounded up to the end of its
    /// slice; none where there were too few.
    pub(crate) fn p95(&self) -> Option<Duration> {
        if self.total < READS_MIN {
            return None;
        }
        let rank = self.total - self.total / 20;
        let mut below = 0;
        for (at, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= rank {
                return Some(Duration::from_micros(end(at)));
            }
        }
        None
    }
}

fn slice(micros: usize) -> usize {
    let power = micros.ilog2() as usize;
    let within = if power >= 3 {
        (micros >> (power - 3)) & (SLICES - 1)
    } else {
        (micros << (3 - power)) & (SLICES - 1)
    };
    (power * SLICES + within).min(COUNTS - 1)
}

fn end(slice: usize) -> u64 {
    let (power, within) = (slice / SLICES, slice % SLICES);
    ((SLICES + within + 1) as u64) << power >> 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_at_most_an_eighth_above_the_exact_one(
            mut micros in prop::collection::vec(8_u64..10_000_000, 40..400)
        ) {
            let mut latency = Latency::default();
            for &took in &micros {
                latency.record(Duration::from_micros(took));
            }
            micros.sort_unstable();
            let exact = micros[micros.len() - micros.len() / 20 - 1];
            let found = latency.p95().unwrap().as_micros() as u64;
            prop_assert!(found >= exact && found <= exact + exact / 8 + 1, "{found} for {exact}");
        }
    }

    #[test]
    fn few_reads_say_nothing_and_old_ones_are_forgotten() {
        let mut latency = Latency::default();
        for _ in 0..39 {
            latency.record(Duration::from_millis(1));
        }
        assert_eq!(latency.p95(), None);
        latency.record(Duration::ZERO);
        assert!(latency.p95().is_some());
        latency.age();
        assert_eq!(latency.p95(), None);
    }
}
