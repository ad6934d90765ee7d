//! The offset of a node's clock from the local one, never overestimated.
//!
//! A node stamps each frame with its monotonic clock; the stamp is older than the instant at which the frame
//! is received, so each difference is at most the true offset, and the largest one is the best estimate. The
//! largest of the last 30 to 60 seconds is used, because two clocks drift (some 50 µs a second at most). The
//! invariant: a deadline on the clock of the node is never later than the deadline itself.

use std::time::{Duration, Instant};

/// How long the largest difference of a window is used after the window.
const WINDOW: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct ClockOffset {
    /// Where this side counts its nanoseconds from, and the present window.
    origin: Instant,
    begun: Instant,
    /// Largest differences of the present window and of the one before, in nanoseconds.
    largest: i64,
    before: i64,
}

impl ClockOffset {
    /// Begins with the first frame of a connection.
    pub(crate) fn new(stamp_ns: u64, received: Instant) -> Self {
        let largest = signed(u128::from(stamp_ns));
        Self {
            origin: received,
            begun: received,
            largest,
            before: largest,
        }
    }

    /// Records the stamp of a frame. `received` must not be before the frame was received.
    pub(crate) fn heard(&mut self, stamp_ns: u64, received: Instant) {
        let difference = signed(u128::from(stamp_ns)).saturating_sub(self.local(received));
        let elapsed = received.saturating_duration_since(self.begun);
        if elapsed >= WINDOW {
            // The oldest difference may be too large by now.
            self.before = if elapsed < WINDOW * 2 {
                self.largest
            } else {
                difference
            };
            self.largest = difference;
            self.begun = received;
        }
        self.largest = self.largest.max(difference);
    }

    /// Returns a local instant on the clock of the node, in nanoseconds; 0 for instants before the node's
    /// clock began.
    pub(crate) fn at_node(&self, instant: Instant) -> u64 {
        let offset = self.largest.max(self.before);
        let at = self.local(instant).saturating_add(offset);
        u64::try_from(at).unwrap_or(0)
    }

    fn local(&self, instant: Instant) -> i64 {
        match instant.checked_duration_since(self.origin) {
            Some(after) => signed(after.as_nanos()),
            None => -signed(self.origin.duration_since(instant).as_nanos()),
        }
    }
}

fn signed(nanos: u128) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// For any delays, the node's clock is not overestimated; and after a frame with a short delay, the
        /// estimate is within that delay.
        #[test]
        fn a_deadline_is_never_late_at_the_node(
            ahead_ns in 1_000_000_000_u64..1 << 50,
            frames in prop::collection::vec((0_u64..100_000_000, 0_u64..50_000_000), 1..100),
            left in 0_u64..10_000_000_000,
        ) {
            let origin = Instant::now();
            let mut clock: Option<ClockOffset> = None;
            let (mut now, mut quickest) = (0, u64::MAX);
            for (pause, way) in frames {
                now += pause;
                let received = origin + Duration::from_nanos(now + way);
                let stamp = ahead_ns + now;
                quickest = quickest.min(way);
                match &mut clock {
                    None => clock = Some(ClockOffset::new(stamp, received)),
                    Some(clock) => clock.heard(stamp, received),
                }
            }
            let deadline = origin + Duration::from_nanos(now + left);
            let at_node = clock.unwrap().at_node(deadline);
            let exact = ahead_ns + now + left;
            prop_assert!(at_node <= exact && at_node >= exact - quickest);
        }
    }

    #[test]
    fn what_was_heard_long_ago_is_forgotten() {
        let origin = Instant::now();
        let at = |seconds| origin + Duration::from_secs(seconds);
        let mut clock = ClockOffset::new(1_000_000_000, origin);
        // The clock of the node is slow by a millisecond a second.
        for second in 1..=90 {
            clock.heard(1_000_000_000 + second * 999_000_000, at(second));
        }
        let exact = 1_000_000_000 + 90 * 999_000_000;
        let found = clock.at_node(at(90));
        assert!(found >= exact && found <= exact + 60_000_000, "{found}");
        // After a silence only new differences count.
        clock.heard(1_000_000_000 + 190 * 999_000_000, at(190));
        assert_eq!(clock.at_node(at(190)), 1_000_000_000 + 190 * 999_000_000);
    }

    #[test]
    fn a_deadline_before_the_node_began_is_its_beginning() {
        let origin = Instant::now();
        let clock = ClockOffset::new(5, origin + Duration::from_secs(9));
        assert_eq!(clock.at_node(origin), 0);
    }
}
