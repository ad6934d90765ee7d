//! How many calm has in flight: what a limit begins with, and what it does not go below without need.
//!
//! Slots that nobody has used say nothing about the store (after RFC 7661, Fairhurst, Sathiaseelan and
//! Secchi 2015: a window that is not used is not validated). A limit far above what calm needs lets a crowd
//! into the store before anything can be learned of it, and there it takes as long as it takes; a little
//! above it costs a crowd a doubling. And as many as calm has in flight by itself are no crowd: with fewer,
//! a store that has become slow would only do less.

use std::time::{Duration, Instant};

use super::window::Mean;

/// How long is looked before anything is said.
const FIRST: Duration = Duration::from_secs(1);
/// How long is looked before it is said anew.
const WINDOW: Duration = Duration::from_secs(10);
/// Deviations above the mean at which there is hardly ever anybody more: of 100 moments at 1, where
/// requests come by chance.
const ENOUGH: f64 = 2.5;

/// What was in flight in calm.
#[derive(Debug, Default)]
pub(super) struct Usage {
    since: Option<Instant>,
    window: Mean,
    /// Of the window before.
    known: Option<Mean>,
}

impl Usage {
    /// Takes notice of how many are in flight, or wait for a moment, while nobody waits for long.
    pub(super) fn add(&mut self, in_flight: u32, now: Instant) {
        let since = *self.since.get_or_insert(now);
        self.window.add(f64::from(in_flight));
        let length = self.known.map_or(FIRST, |_| WINDOW);
        if now.saturating_duration_since(since) >= length {
            self.since = Some(now);
            self.known = Some(std::mem::take(&mut self.window));
        }
    }

    /// Returns with how many slots hardly anybody would have waited; `None` where it is not known.
    pub(super) fn enough(&self) -> Option<u32> {
        self.known.map(|known| above(known, ENOUGH))
    }

    /// Returns how many are in flight at most moments; 0 where it is not known.
    pub(super) fn usual(&self) -> u32 {
        self.known.map_or(0, |known| above(known, 1.0))
    }
}

#[expect(clippy::cast_sign_loss)] // counts are not negative
fn above(known: Mean, deviations: f64) -> u32 {
    (known.mean() + deviations * known.deviation()).ceil() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds one, two and three by turns, so many milliseconds long; the deviation is 0.82.
    fn look(usage: &mut Usage, begun: Instant, millis: std::ops::Range<u32>, more: u32) {
        for at in millis.step_by(5) {
            let now = begun + Duration::from_millis(u64::from(at));
            usage.add(more + 1 + at / 5 % 3, now);
        }
    }

    #[test]
    fn nothing_is_known_in_the_first_second_and_then_what_there_was() {
        let (mut usage, begun) = (Usage::default(), Instant::now());
        look(&mut usage, begun, 0..1_000, 0);
        assert_eq!((usage.enough(), usage.usual()), (None, 0));
        look(&mut usage, begun, 1_000..1_005, 0);
        assert_eq!((usage.enough(), usage.usual()), (Some(5), 3));
    }

    #[test]
    fn it_follows_what_there_is_but_not_at_once() {
        let (mut usage, begun) = (Usage::default(), Instant::now());
        look(&mut usage, begun, 0..2_000, 0);
        // The window has begun with what was before.
        look(&mut usage, begun, 2_000..11_000, 20);
        assert_eq!(usage.usual(), 3);
        look(&mut usage, begun, 11_000..31_000, 20);
        assert_eq!((usage.enough(), usage.usual()), (Some(25), 23));
    }

    #[test]
    fn an_idle_gate_needs_nothing() {
        let (mut usage, begun) = (Usage::default(), Instant::now());
        for at in 0..300 {
            usage.add(0, begun + Duration::from_millis(5 * at));
        }
        assert_eq!((usage.enough(), usage.usual()), (Some(0), 0));
    }
}
