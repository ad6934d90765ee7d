//! The time of day that a node has told. Its rows expire by this time.
//!
//! A node tells its time of day with its welcome and in each status. It has read its clock between the question and the
//! answer, so its time at any later instant is known up to the duration of the round trip. While the clock of this
//! process is within this range, it is used, because NTP keeps two clocks closer than a round trip. A clock outside of
//! the range is wrong: the nearest possible time of the node is used instead. If a clock is set, or a machine was
//! suspended, the next status shows it, a second later. Reads no clock.

use std::time::Instant;

use umbo_types::Timestamp;

/// The time of day that a node has told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToldTime {
    wall: Timestamp,
    asked: Instant,
    answered: Instant,
}

impl ToldTime {
    /// Keeps the time of day that was asked for and answered at these instants.
    pub(crate) fn new(wall: Timestamp, asked: Instant, answered: Instant) -> Self {
        Self {
            wall,
            asked: asked.min(answered),
            answered,
        }
    }

    /// Returns the time of day of the node at `now`, when the time of this process is `own`.
    pub(crate) fn at(&self, own: Timestamp, now: Instant) -> Timestamp {
        let after = |read: Instant| {
            let since = now.saturating_duration_since(read);
            self.wall.saturating_add(since)
        };
        own.clamp(after(self.answered), after(self.asked))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However far the clocks are apart and however long the ways take, the time is off by no more than the ways;
        /// and a clock that is right counts as it is.
        #[test]
        fn the_time_of_a_node_is_known_to_within_the_way(
            ahead_us in -10_000_000_000_i64..10_000_000_000,
            (there_us, back_us, later_us) in (0_u64..9_000_000, 0_u64..9_000_000, 0_u64..5_000_000),
        ) {
            let (asked, wall) = (Instant::now(), Timestamp(1 << 50));
            let after = |us| asked + Duration::from_micros(us);
            let read = wall.saturating_add(Duration::from_micros(there_us));
            let told = ToldTime::new(read, asked, after(there_us + back_us));
            let elapsed_us = there_us + back_us + later_us;
            let exact = wall.0 + elapsed_us;
            let own = Timestamp(exact.checked_add_signed(ahead_us).unwrap());
            let found = told.at(own, after(elapsed_us)).0;
            prop_assert!(found >= exact - back_us && found <= exact + there_us);
            prop_assert_eq!(told.at(Timestamp(exact), after(elapsed_us)).0, exact);
        }
    }
}
