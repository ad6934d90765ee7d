//! When a queue is overloaded: after Nichols and Jacobson, "Controlling Queue Delay" (2012).
//!
//! A queue that empties now and then is a good queue, however long it gets in between; one whose
//! delay never falls to the *target* for a whole *interval* stands, and only costs time. Four
//! departures:
//! - The delay is the age of the oldest who waits, not that of whoever is served: newest first, who
//!   is served is always young, and a queue that rots would look well.
//! - The interval slides, so that the minimum over it is exact: it is over the target as long as
//!   the age has not once been at or below it.
//! - Where the store itself takes longer than the target, that is the target.
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

impl CodelSettings {
    /// Returns the same for a store that usually takes so long: no queue is shorter than what it
    /// waits for. The target is at most ten times, the interval five times what it was.
    pub(crate) fn for_service_time(self, usual: Duration) -> Self {
        Self {
            target: usual.clamp(self.target, 10 * self.target),
            interval: (8 * usual).clamp(self.interval, 5 * self.interval),
        }
    }

    /// Returns how long anybody waits at an overloaded queue.
    pub(crate) const fn patience(self) -> Duration {
        self.target.saturating_mul(2)
    }
}

/// The state of one tier's queue.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Codel {
    /// Since when the delay has not been at the target.
    above_since: Option<Instant>,
    overloaded_since: Option<Instant>,
    shed_at: Option<Instant>,
}

impl Codel {
    /// Takes notice of the delay of the oldest; `None` where nobody waits. It may be high for so many
    /// intervals.
    pub(crate) fn observe(
        &mut self,
        settings: CodelSettings,
        intervals: u32,
        delay: Option<Duration>,
        now: Instant,
    ) {
        if delay.is_none_or(|delay| delay <= settings.target) {
            // A queue that is short because the others have just been shed is not a good one.
            let is_short_by_shedding = self
                .shed_at
                .is_some_and(|at| now.saturating_duration_since(at) < settings.patience());
            if !is_short_by_shedding {
                *self = Self::default();
            }
            return;
        }
        let since = *self.above_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= settings.interval * intervals {
            self.overloaded_since.get_or_insert(now);
        }
    }

    /// Takes notice of a shed.
    pub(crate) const fn shed(&mut self, now: Instant) {
        self.shed_at = Some(now);
    }

    /// Says whether the delay has been above the target for an interval, whatever the patience.
    pub(crate) fn has_stood(&self, interval: Duration, now: Instant) -> bool {
        let since = self.above_since;
        since.is_some_and(|since| now.saturating_duration_since(since) >= interval)
    }

    /// Says whether the delay is above the target, and may yet be a moment's.
    pub(crate) const fn is_pressed(&self) -> bool {
        self.above_since.is_some() && self.overloaded_since.is_none()
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
            codel.observe(settings, 1, Some(6 * MILLI), begun + at * MILLI);
            assert!(codel.is_pressed() && !codel.is_overloaded(), "{at}");
        }
        codel.observe(settings, 1, Some(6 * MILLI), begun + 100 * MILLI);
        assert!(codel.is_overloaded() && !codel.is_pressed());
        codel.observe(settings, 1, Some(900 * MILLI), begun + 150 * MILLI);
        assert_eq!(codel.overloaded_for(begun + 150 * MILLI), 50 * MILLI);
    }

    #[test]
    fn one_moment_at_the_target_ends_it() {
        let (settings, begun) = (CodelSettings::default(), Instant::now());
        for good in [None, Some(Duration::ZERO), Some(5 * MILLI)] {
            let mut codel = Codel::default();
            for at in 0..=100 {
                codel.observe(settings, 1, Some(50 * MILLI), begun + at * MILLI);
            }
            assert!(codel.is_overloaded());
            codel.observe(settings, 1, good, begun + 101 * MILLI);
            assert!(!codel.is_overloaded());
            assert_eq!(codel.overloaded_for(begun + 101 * MILLI), Duration::ZERO);
            // And the interval begins anew.
            codel.observe(settings, 1, Some(6 * MILLI), begun + 102 * MILLI);
            codel.observe(settings, 1, Some(6 * MILLI), begun + 201 * MILLI);
            assert!(!codel.is_overloaded());
            codel.observe(settings, 1, Some(6 * MILLI), begun + 202 * MILLI);
            assert!(codel.is_overloaded());
        }
    }

    #[test]
    fn a_queue_that_is_short_by_shedding_is_still_overloaded() {
        let (settings, begun) = (CodelSettings::default(), Instant::now());
        let mut codel = Codel::default();
        for at in 0..=100 {
            codel.observe(settings, 1, Some(50 * MILLI), begun + at * MILLI);
        }
        codel.shed(begun + 100 * MILLI);
        codel.observe(settings, 1, None, begun + 109 * MILLI);
        assert!(codel.is_overloaded());
        codel.observe(settings, 1, None, begun + 110 * MILLI);
        assert!(!codel.is_overloaded());
    }

    #[test]
    fn a_slow_store_has_longer_queues() {
        let settings = CodelSettings::default();
        assert_eq!(settings.for_service_time(MILLI), settings);
        let slow = settings.for_service_time(32 * MILLI);
        assert_eq!((slow.target, slow.interval), (32 * MILLI, 256 * MILLI));
        let asleep = settings.for_service_time(9_000 * MILLI);
        assert_eq!((asleep.target, asleep.interval), (50 * MILLI, 500 * MILLI));
    }
}
