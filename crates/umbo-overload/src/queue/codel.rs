//! When a queue is overloaded: after Nichols and Jacobson, "Controlling Queue Delay" (2012).
//!
//! A queue that empties now and then is a good queue, however long it gets in between. A queue whose delay never falls
//! to the *target* for a whole *interval* stands, and only costs time. Four departures:
//! - The delay is the age of the oldest waiting request, not of the request that is served. With newest first, the
//!   served request is always young, and a standing queue would look well.
//! - The interval slides, so that the minimum over it is exact: it is over the target while the age has not once been
//!   at or below the target.
//! - A request whose deadline is far has a longer target: a tenth of its remaining time.
//! - There is no square root. While the queue is overloaded, every request that has waited twice the target is shed (as
//!   in folly's `Codel`), because clients here do not slow down when they lose a request.

use std::time::{Duration, Instant};

/// Part of its remaining deadline that a request may wait: a client that gives it ten seconds does not mind
/// one.
const DEADLINE_PART: u32 = 10;

/// The normal delay of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodelSettings {
    /// Delay that a queue may stand at. Default 5 ms; it should be above the time that waking a task takes.
    pub target: Duration,
    /// How long the target may be exceeded before the queue is overloaded. Default 100 ms; it should be above the
    /// service time of nearly all requests.
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
    /// Returns the delay that a request with this deadline may have at `from`: the target, or a tenth of its remaining
    /// time if that is more.
    pub(crate) fn target_until(self, deadline: Instant, from: Instant) -> Duration {
        let left = deadline.saturating_duration_since(from);
        self.target.max(left / DEADLINE_PART)
    }
}

/// Returns how long a request with this target waits in an overloaded queue.
pub(crate) const fn patience(target: Duration) -> Duration {
    target.saturating_mul(2)
}

/// The state of one tier's queue.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Codel {
    /// Since when the delay has not been at the target.
    above_since: Option<Instant>,
    overloaded_since: Option<Instant>,
    shed_at: Option<Instant>,
    /// The last target that was exceeded.
    target: Duration,
}

impl Codel {
    /// Records the delay and the target of the oldest request; `None` if no request waits. Once the delay has exceeded
    /// the target for `interval`, the queue is overloaded.
    pub(crate) fn observe(
        &mut self,
        interval: Duration,
        oldest: Option<(Duration, Duration)>,
        now: Instant,
    ) {
        let Some((_, target)) = oldest.filter(|(delay, target)| delay > target) else {
            // A queue that is short because others have just been shed is not a good one.
            let is_short_by_shedding = self
                .shed_at
                .is_some_and(|at| now.saturating_duration_since(at) < patience(self.target));
            if !is_short_by_shedding {
                *self = Self::default();
            }
            return;
        };
        self.target = target;
        let since = *self.above_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= interval {
            self.overloaded_since.get_or_insert(now);
        }
    }

    /// Records a shed.
    pub(crate) const fn shed(&mut self, now: Instant) {
        self.shed_at = Some(now);
    }

    /// Returns whether the delay is above the target, but perhaps only for a moment.
    pub(crate) const fn is_pressed(&self) -> bool {
        self.above_since.is_some() && self.overloaded_since.is_none()
    }

    /// Returns whether the queue is overloaded.
    pub(crate) const fn is_overloaded(&self) -> bool {
        self.overloaded_since.is_some()
    }

    /// Returns for how long it has been overloaded; zero if it is not.
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
            codel.observe(
                settings.interval,
                Some((6 * MILLI, settings.target)),
                begun + at * MILLI,
            );
            assert!(codel.is_pressed() && !codel.is_overloaded(), "{at}");
        }
        codel.observe(
            settings.interval,
            Some((6 * MILLI, settings.target)),
            begun + 100 * MILLI,
        );
        assert!(codel.is_overloaded() && !codel.is_pressed());
        codel.observe(
            settings.interval,
            Some((900 * MILLI, settings.target)),
            begun + 150 * MILLI,
        );
        assert_eq!(codel.overloaded_for(begun + 150 * MILLI), 50 * MILLI);
    }

    #[test]
    fn one_moment_at_the_target_ends_it() {
        let (settings, begun) = (CodelSettings::default(), Instant::now());
        for good in [None, Some(Duration::ZERO), Some(5 * MILLI)] {
            let mut codel = Codel::default();
            for at in 0..=100 {
                codel.observe(
                    settings.interval,
                    Some((50 * MILLI, settings.target)),
                    begun + at * MILLI,
                );
            }
            assert!(codel.is_overloaded());
            codel.observe(
                settings.interval,
                good.map(|delay| (delay, settings.target)),
                begun + 101 * MILLI,
            );
            assert!(!codel.is_overloaded());
            assert_eq!(codel.overloaded_for(begun + 101 * MILLI), Duration::ZERO);
            // And the interval begins anew.
            codel.observe(
                settings.interval,
                Some((6 * MILLI, settings.target)),
                begun + 102 * MILLI,
            );
            codel.observe(
                settings.interval,
                Some((6 * MILLI, settings.target)),
                begun + 201 * MILLI,
            );
            assert!(!codel.is_overloaded());
            codel.observe(
                settings.interval,
                Some((6 * MILLI, settings.target)),
                begun + 202 * MILLI,
            );
            assert!(codel.is_overloaded());
        }
    }

    #[test]
    fn a_queue_that_is_short_by_shedding_is_still_overloaded() {
        let (settings, begun) = (CodelSettings::default(), Instant::now());
        let mut codel = Codel::default();
        for at in 0..=100 {
            codel.observe(
                settings.interval,
                Some((50 * MILLI, settings.target)),
                begun + at * MILLI,
            );
        }
        codel.shed(begun + 100 * MILLI);
        codel.observe(settings.interval, None, begun + 109 * MILLI);
        assert!(codel.is_overloaded());
        codel.observe(settings.interval, None, begun + 110 * MILLI);
        assert!(!codel.is_overloaded());
    }

    #[test]
    fn a_far_deadline_has_a_longer_target() {
        let (settings, now) = (CodelSettings::default(), Instant::now());
        for (left_ms, target_ms) in [(0, 5), (40, 5), (50, 5), (500, 50), (10_000, 1_000)] {
            let deadline = now + left_ms * MILLI;
            assert_eq!(settings.target_until(deadline, now), target_ms * MILLI);
        }
        assert_eq!(settings.target_until(now, now + MILLI), 5 * MILLI);
    }
}
