//! How long requests took, as a histogram: quantiles to three digits in memory that does not grow with their number.
//!
//! Of what is measured. What is simulated or counted keeps its exact values, because its figures are held to the last
//! digit.

use hdrhistogram::Histogram;

/// Digits that a quantile is exact to.
const DIGITS: u8 = 3;
const NANOS_A_MILLISECOND: f64 = 1e6;

/// Times of requests, in nanoseconds.
#[derive(Debug, Clone)]
pub(crate) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        // Its range is not given, so it grows.
        Self(Histogram::new(DIGITS).expect("a histogram may have three digits"))
    }
}

impl Latencies {
    /// Records a time in milliseconds.
    pub(crate) fn record_ms(&mut self, ms: f64) {
        self.0
            .record((ms * NANOS_A_MILLISECOND).round() as u64)
            .expect("a histogram that grows has room for all times");
    }

    /// Adds the times of another one.
    pub(crate) fn add(&mut self, other: &Self) {
        self.0
            .add(&other.0)
            .expect("a histogram that grows has room for all times");
    }

    /// Forgets all times.
    pub(crate) fn clear(&mut self) {
        self.0.reset();
    }

    /// Returns the time in milliseconds that all but `1 - share` of the requests took at most, or `None` without any.
    pub(crate) fn quantile_ms(&self, share: f64) -> Option<f64> {
        let nanos = self.0.value_at_quantile(share);
        (!self.0.is_empty()).then_some(nanos as f64 / NANOS_A_MILLISECOND)
    }
}

impl FromIterator<f64> for Latencies {
    fn from_iter<I: IntoIterator<Item = f64>>(times_ms: I) -> Self {
        let mut latencies = Self::default();
        for ms in times_ms {
            latencies.record_ms(ms);
        }
        latencies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_has_three_digits() {
        assert_eq!(Latencies::default().quantile_ms(0.99), None);
        let mut latencies: Latencies = (1..=500).map(f64::from).collect();
        latencies.add(&(501..=1_000).map(f64::from).collect());
        for (share, exact) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1_000.0)] {
            let found = latencies.quantile_ms(share).unwrap();
            assert!((found / exact - 1.0).abs() < 1e-3, "{found} of {exact}");
        }
        latencies.clear();
        assert_eq!(latencies.quantile_ms(0.5), None);
    }
}
