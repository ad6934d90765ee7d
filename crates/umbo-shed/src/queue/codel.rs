//! When a queue is overloaded: after Nichols and Jacobson, "Controlling Queue Delay" (2012).
//!
//! A queue that empties now and then is a good queue, however long it gets in between; one whose
//! delay never falls to the *target* for a whole *interval* stands, and only costs time. Three
//! departures:
//! - The delay is the age of the oldest who waits, not that of whoever is served: newest first, who
//!   is served is always young, and a queue that rots would look well.
//! - The interval slides, so that the minimum over it is exact: it is over the target as long as
//!   the age has not once been at or below it.
//! - There is no square root: while it is overloaded, whatever has waited twice the target is shed
//!   (as in folly's `Codel`), because here senders do not slow down when they lose something.

use std::time::{Duration, Instant};

/// How much delay is normal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodelSettings {
    /// Delay that a queue may stand at. Default 5 ms; it should be above what waking a task takes.
    pub target: Duration,
    /// How long it may be exceeded before the queue is overloaded. Default 100 ms; it should be
    /// above the service time of nearly all requests.
    pub interval: Duration,
}

impl Default for CodelSettings {
    fn default() -> Self {
        Self {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
        }
    }
}

/// The state of one tier's queue.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Codel {
    /// Since when the delay has not been at the target.
    above_since: Option<Instant>,
    overloaded_since: Option<Instant>,
}

impl Codel {
    /// Takes notice of the delay of the oldest; `None` where nobody waits.
    pub(crate) fn observe(
        &mut self,
        settings: &CodelSettings,
        delay: Option<Duration>,
        now: Instant,
    ) {
        if delay.is_none_or(|delay| delay <= settings.target) {
            *self = Self::default();
            return;
        }
        let since = *self.above_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= settings.interval {
            self.overloaded_since.get_or_insert(now);
        }
    }

    /// Says whether the queue is overloaded.
    pub(crate) const fn is_overloaded(&self) -> bool {
        self.overloaded_since.is_some()
    }

    /// Returns for how long it has been overloaded; zero where it is not.
    pub(crate) fn overloaded_for(&self, now: Instant) -> Duration {
        self.overloaded_since
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn a_queue_is_overloaded_once_its_delay_has_been_high_for_an_interval() {
        let (settings, begun) = (CodelSettings::default(), Instant::now());
        let mut codel = Codel::default();
        for at in 0..100 {
            codel.observe(&settings, Some(6 * MILLI), begun + at * MILLI);
            assert!(!codel.is_overloaded(), "{at}");
        }
        codel.observe(&settings, Some(6 * MILLI), begun + 100 * MILLI);
        assert!(codel.is_overloaded());
        codel.observe(&settings, Some(900 * MILLI), begun + 150 * MILLI);
        assert_eq!(codel.overloaded_for(begun + 150 * MILLI), 50 * MILLI);
    }

    #[test]
    fn one_moment_at_the_target_ends_it() {
        let (settings, begun) = (CodelSettings::default(), Instant::now());
        for good in [None, Some(Duration::ZERO), Some(5 * MILLI)] {
            let mut codel = Codel::default();
            for at in 0..=100 {
                codel.observe(&settings, Some(50 * MILLI), begun + at * MILLI);
            }
            assert!(codel.is_overloaded());
            codel.observe(&settings, good, begun + 101 * MILLI);
            assert!(!codel.is_overloaded());
            assert_eq!(codel.overloaded_for(begun + 101 * MILLI), Duration::ZERO);
            // And the interval begins anew.
            codel.observe(&settings, Some(6 * MILLI), begun + 102 * MILLI);
            codel.observe(&settings, Some(6 * MILLI), begun + 201 * MILLI);
            assert!(!codel.is_overloaded());
            codel.observe(&settings, Some(6 * MILLI), begun + 202 * MILLI);
            assert!(codel.is_overloaded());
        }
    }
}
