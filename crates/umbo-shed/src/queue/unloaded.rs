//! How long a request takes without a crowd: of each operation, and by how much more or less just now.
//!
//! All times are logarithms to base 2 of nanoseconds, so that one slow mode of two, or a heavy tail,
//! weighs little. Each is compared with the usual one of its operation, so that another mix of them is no
//! slowness.

use std::time::Duration;

use umbo_types::Operation;

use super::window::{Mean, log2_nanos};

/// Fewest samples of a mean.
const SAMPLES_MIN: u32 = 32;
/// Samples of an operation that was never seen in calm, until it is taken for known.
const STRANGE_MIN: u32 = 512;
/// Error at which what calm says is known well enough.
const ERROR_MAX: f64 = 0.15;
/// Samples over which the usual service time of an operation is the mean.
const USUAL_SAMPLES: u16 = 256;

/// What is usual.
#[derive(Debug, Default)]
pub(super) struct Unloaded {
    /// The usual service time of each operation.
    usual: [Option<f64>; Operation::ALL.len()],
    /// How many of its samples that is the mean of.
    seen: [u16; Operation::ALL.len()],
    /// The same, of operations that have only been seen in a crowd.
    strange: [Mean; Operation::ALL.len()],
    /// Whether any operation is known.
    is_experienced: bool,
    /// How much longer than usual an unloaded request takes now.
    level: f64,
    calm: Mean,
}

impl Unloaded {
    /// Learns from a request that ended while there was room.
    pub(super) fn learn(&mut self, operation: Operation, service_time: Duration) {
        let sample = log2_nanos(service_time);
        self.is_experienced = true;
        let usual = self.usual[operation as usize].get_or_insert(sample);
        self.calm.add(sample - *usual);
        let seen = &mut self.seen[operation as usize];
        *seen = (*seen + 1).min(USUAL_SAMPLES);
        *usual += (sample - *usual) / f64::from(*seen);
        if self.calm.count() >= SAMPLES_MIN && self.calm.error() <= ERROR_MAX {
            let change = self.calm.mean() - self.level;
            // What is within the error is mostly error.
            let is_real = change.abs() > 4.0 * self.calm.error();
            self.level += if is_real { change } else { change / 4.0 };
            self.calm = Mean::default();
        }
    }

    /// Returns how much longer than usual an unloaded request takes now.
    pub(super) const fn level(&self) -> f64 {
        self.level
    }

    /// Says whether any operation is known.
    pub(super) const fn is_experienced(&self) -> bool {
        self.is_experienced
    }

    /// Takes notice that an unloaded request takes no longer than that.
    pub(super) const fn lower_to(&mut self, level: f64) {
        self.level = self.level.min(level);
    }

    /// Takes notice that an unloaded request takes at least as long.
    pub(super) const fn raise_to(&mut self, level: f64) {
        self.level = self.level.max(level);
    }

    /// Returns how much longer than an unloaded one of its operation a request took; `None` where that
    /// is not known.
    pub(super) fn inflation(&self, operation: Operation, service_time: Duration) -> Option<f64> {
        let usual = self.usual[operation as usize]?;
        Some(log2_nanos(service_time) - usual - self.level)
    }

    /// Returns how much longer than usual a request of a crowd took. What has never been seen in calm is
    /// learned in the crowd, but later, when the limit has come to terms with what is known.
    pub(super) fn over_usual(
        &mut self,
        operation: Operation,
        service_time: Duration,
        is_starting: bool,
    ) -> Option<f64> {
        let sample = log2_nanos(service_time);
        let usual = &mut self.usual[operation as usize];
        if let Some(usual) = usual {
            return Some(sample - *usual);
        }
        let strange = &mut self.strange[operation as usize];
        strange.add(sample);
        // At the start there is nothing yet to come to terms with.
        let needed = if self.is_experienced && !is_starting {
            STRANGE_MIN
        } else {
            SAMPLES_MIN
        };
        if strange.count() >= needed {
            *usual = Some(strange.mean());
            self.seen[operation as usize] = USUAL_SAMPLES;
            self.is_experienced = true;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn calm_tells_what_is_usual_and_how_much_slower_it_has_become() {
        let mut unloaded = Unloaded::default();
        assert!(!unloaded.is_experienced());
        assert_eq!(unloaded.inflation(Operation::Get, MILLI), None);
        for _ in 0..300 {
            unloaded.learn(Operation::Get, MILLI);
        }
        assert!(unloaded.is_experienced() && unloaded.level() == 0.0);
        let inflation = unloaded.inflation(Operation::Get, 8 * MILLI).unwrap();
        assert!((inflation - 3.0).abs() < 0.1, "{inflation}");
        assert_eq!(unloaded.inflation(Operation::Scan, 8 * MILLI), None);
        for _ in 0..SAMPLES_MIN {
            unloaded.learn(Operation::Get, 4 * MILLI);
        }
        // What is usual follows meanwhile.
        assert!((1.0..2.0).contains(&unloaded.level()), "{unloaded:?}");
    }

    #[test]
    fn what_only_a_crowd_has_shown_is_taken_for_usual_later() {
        let mut unloaded = Unloaded::default();
        unloaded.learn(Operation::Get, MILLI);
        let known = |unloaded: &mut Unloaded, operation, is_starting| {
            (1..=1_000)
                .find(|_| unloaded.over_usual(operation, MILLI, is_starting).is_some())
                .unwrap()
        };
        assert_eq!(known(&mut unloaded, Operation::Get, false), 1);
        assert_eq!(
            known(&mut unloaded, Operation::Scan, false),
            STRANGE_MIN + 1
        );
        assert_eq!(known(&mut unloaded, Operation::Put, true), SAMPLES_MIN + 1);
    }

    #[test]
    fn the_level_is_bounded_by_what_is_seen() {
        let mut unloaded = Unloaded::default();
        unloaded.raise_to(0.5);
        unloaded.lower_to(f64::INFINITY);
        assert!((unloaded.level() - 0.5).abs() < 1e-9);
        unloaded.lower_to(0.25);
        assert!((unloaded.level() - 0.25).abs() < 1e-9);
    }
}
