//! How far estimates were from what requests cost: a histogram of their ratio for each operation.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use umbo_types::{Operation, RequestUnits};

use crate::report::{RESIDUAL_CLASSES, Residual};

/// The histograms of all operations, of one request in eight.
#[derive(Debug, Default)]
pub(crate) struct Residuals([ResidualCounts; Operation::ALL.len()]);

#[derive(Debug, Default)]
struct ResidualCounts {
    classes: [AtomicU64; RESIDUAL_CLASSES],
    estimated: AtomicU64,
    actual: AtomicU64,
}

impl Residuals {
    /// Counts one request.
    pub(crate) fn note(&self, operation: Operation, estimate: u64, actual: u64) {
        let counts = &self.0[operation as usize];
        counts.classes[class(estimate, actual)].fetch_add(1, Relaxed);
        counts.estimated.fetch_add(estimate, Relaxed);
        counts.actual.fetch_add(actual, Relaxed);
    }

    /// Returns the histogram of an operation, or `None` before the first request.
    pub(crate) fn of(&self, operation: Operation) -> Option<Residual> {
        let counts = &self.0[operation as usize];
        let units = |micros: &AtomicU64| RequestUnits::from_micros(micros.load(Relaxed));
        let residual = Residual {
            operation,
            counts: std::array::from_fn(|class| counts.classes[class].load(Relaxed)),
            estimated: units(&counts.estimated),
            actual: units(&counts.actual),
        };
        (residual.actual > RequestUnits::ZERO).then_some(residual)
    }
}

/// Returns the class of a ratio.
fn class(estimate: u64, actual: u64) -> usize {
    // The square of the ratio is compared with odd powers of two, in integers.
    let square = |number: u64| u128::from(number.max(1)) * u128::from(number.max(1));
    let (estimate, actual) = (square(estimate.min(1 << 50)), square(actual.min(1 << 50)));
    let highest = RESIDUAL_CLASSES as u32 - 1;
    let exceeds = |power: u32| {
        // Is actual² > estimate² × 2^(2 × power − highest + 1), for powers 0 to highest − 1?
        let (up, down) = (2 * power + 1, highest);
        (actual << down) > (estimate << up)
    };
    (0..highest).take_while(|&power| exceeds(power)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_factors_of_two_around_one() {
        for (actual, expected) in [
            (1_000, 4),
            (1_400, 4),
            (1_430, 5),
            (2_000, 5),
            (4_000, 6),
            (8_000, 7),
            (16_000, 8),
            (1_000_000, 8),
            (710, 4),
            (700, 3),
            (250, 2),
            (125, 1),
            (60, 0),
            (0, 0),
        ] {
            assert_eq!(class(1_000, actual), expected, "{actual}");
        }
    }
}
