//! What a bucket owes to those whom it told to wait.
//!
//! A promise gives away refill that has yet to flow, one promise after the other along the axis. When
//! the axis has passed it, it is *due*: for a term whoever was told so goes before newcomers, who
//! leave as much in the bucket as is due and not yet come for. Then it *lapses*, and what it held
//! back is everybody's.
//!
//! Many never come back. Were each of their promises taken at its word, a caller that forgets what
//! was rejected would lock itself out of its own burst, and whoever waits beside it would be told
//! to wait for all of them. So a promise counts in the proportion in which promises were kept of
//! late: its *worth*, learned from what fell due and what was come for.
//!
//! The counters are apart and not moved in one step. A thread that reads between two moves sees a
//! little more or less owed for a moment, which decides who goes first and never how much is spent.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::schedule::Moment;

/// The worth of a promise that is certainly kept.
const FULL: u64 = 1 << 12;
/// Time between two lessons, in milliseconds.
const LESSON_MS: u64 = 500;
/// Promises that a lesson is drawn from, at least.
const LESSON_PROMISES: u64 = 16;
/// A lesson lowers the worth to this part of it at most.
const FALL: u64 = 8;

/// The words that an admission looks at. Volumes are in atoms, grow and wrap around.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// Position on the axis up to which refill is promised.
    until: AtomicU64,
    /// Volume of all promises.
    made: AtomicU64,
    /// Volume of those that were kept or have lapsed.
    closed: AtomicU64,
}

/// What is known of those who were told to wait.
#[derive(Debug)]
pub(crate) struct Lessons {
    /// In parts of [`FULL`].
    worth: AtomicU64,
    /// Volume that was come for when it was due.
    kept: AtomicU64,
    /// The last lesson.
    drawn_ms: AtomicU64,
    kept_then: AtomicU64,
    due_then: AtomicU64,
    /// Where the axis stood, and what had fallen due, at the last look for what lapses.
    looked_at: AtomicU64,
    due_at_look: AtomicU64,
}

impl Owed {
    /// Owes nothing.
    pub(crate) fn nothing(axis: u64) -> Self {
        Self {
            until: AtomicU64::new(axis),
            ..Self::default()
        }
    }

    /// Says whether any promise is neither kept nor lapsed.
    pub(crate) fn is_any(&self) -> bool {
        self.made.load(Relaxed) != self.closed.load(Relaxed)
    }

    /// Returns how far ahead of the axis refill is promised.
    pub(crate) fn ahead(&self, axis: u64) -> u64 {
        at_least_zero(self.until.load(Relaxed).wrapping_sub(axis))
    }

    /// Returns what newcomers have to leave. `term` is the refill for which a promise is due.
    pub(crate) fn reserve(&self, lessons: &Lessons, axis: u64, term: u64) -> u64 {
        self.lapse(lessons, axis, term);
        at_least_zero(self.due(axis).wrapping_sub(self.closed.load(Relaxed)))
    }

    /// Promises a price to somebody who was refused, `after` so much refill.
    pub(crate) fn promise(
        &self,
        lessons: &Lessons,
        axis: u64,
        after: impl Fn(u64) -> Option<u64>,
        price: u64,
    ) -> Option<u64> {
        let volume = lessons.worth_of(price);
        let mut until = self.until.load(Relaxed);
        loop {
            let first = axis.wrapping_add(after(at_least_zero(until.wrapping_sub(axis)))?);
            let next = first.wrapping_add(volume);
            match self
                .until
                .compare_exchange_weak(until, next, Relaxed, Relaxed)
            {
                Ok(_) => {
                    self.made.fetch_add(volume, Relaxed);
                    return Some(first);
                }
                Err(found) => until = found,
            }
        }
    }

    /// Notes that somebody took what was due.
    pub(crate) fn close(&self, price: u64) {
        self.closed.fetch_add(price, Relaxed);
    }

    /// Keeps the position of an idle bucket near the axis.
    pub(crate) fn follow(&self, axis: u64) {
        let until = self.until.load(Relaxed);
        if until.wrapping_sub(axis).cast_signed() < 0 {
            // A promise made meanwhile stays.
            let _ = self.until.compare_exchange(until, axis, Relaxed, Relaxed);
        }
    }

    /// Returns the volume that has fallen due by a position of the axis.
    fn due(&self, axis: u64) -> u64 {
        self.made.load(Relaxed).wrapping_sub(self.ahead(axis))
    }

    /// Lets lapse what fell due longer than a term ago.
    fn lapse(&self, lessons: &Lessons, axis: u64, term: u64) {
        // As if all promises stood close together; where they do not, the last look knows better.
        let mut lapsed = self.due(axis.wrapping_sub(term));
        let looked_at = lessons.looked_at.load(Relaxed);
        let is_over = at_least_zero(axis.wrapping_sub(looked_at)) >= term;
        if is_over
            && lessons
                .looked_at
                .compare_exchange(looked_at, axis, Relaxed, Relaxed)
                .is_ok()
        {
            let due_then = lessons.due_at_look.swap(self.due(axis), Relaxed);
            lapsed = later(lapsed, due_then);
        }
        let closed = self.closed.load(Relaxed);
        // Those who come for more than was promised, because it was not worth its price, close more
        // than was made: what is made next is not theirs.
        let next = earlier(later(closed, lapsed), self.made.load(Relaxed));
        if next != closed {
            // Where somebody takes what is due meanwhile, the next look is soon.
            let _ = self.closed.compare_exchange(closed, next, Relaxed, Relaxed);
        }
    }

    /// Shortens what is promised to `part` of `whole`.
    fn shorten(&self, axis: u64, part: u64, whole: u64) {
        let until = self.until.load(Relaxed);
        let ahead = at_least_zero(until.wrapping_sub(axis));
        let left = (u128::from(ahead) * u128::from(part) / u128::from(whole)) as u64;
        let next = axis.wrapping_add(left);
        if ahead > 0
            && self
                .until
                .compare_exchange(until, next, Relaxed, Relaxed)
                .is_ok()
        {
            self.made.fetch_sub(ahead - left, Relaxed);
        }
    }
}

impl Lessons {
    /// Trusts everybody.
    pub(crate) fn none(axis: u64, now: Moment) -> Self {
        Self {
            worth: AtomicU64::new(FULL),
            kept: AtomicU64::new(0),
            drawn_ms: AtomicU64::new(now.0),
            kept_then: AtomicU64::new(0),
            due_then: AtomicU64::new(0),
            looked_at: AtomicU64::new(axis),
            due_at_look: AtomicU64::new(0),
        }
    }

    /// Notes that somebody came back as told, whether or not there was enough.
    pub(crate) fn note_kept(&self, price: u64) {
        self.kept.fetch_add(price, Relaxed);
    }

    /// Learns what promises are worth, where there is something to learn from. `price` is a usual one.
    pub(crate) fn draw(&self, owed: &Owed, axis: u64, now: Moment, price: u64) {
        let due = owed.due(axis);
        let fell_due = at_least_zero(due.wrapping_sub(self.due_then.load(Relaxed)));
        let kept = self.kept.load(Relaxed);
        let came = kept.wrapping_sub(self.kept_then.load(Relaxed));
        let enough = price.saturating_mul(LESSON_PROMISES);
        let drawn_ms = self.drawn_ms.load(Relaxed);
        // That promises are worth more is learned at once: people are waiting.
        let is_underrated = came >= enough && came / 2 >= fell_due;
        let is_time = now.0.saturating_sub(drawn_ms) >= LESSON_MS && came.max(fell_due) >= enough;
        if !(is_underrated || is_time)
            || self
                .drawn_ms
                .compare_exchange(drawn_ms, now.0, Relaxed, Relaxed)
                .is_err()
        {
            return;
        }
        self.due_then.store(due, Relaxed);
        self.kept_then.store(kept, Relaxed);
        let worth = self.worth.load(Relaxed);
        // Those who come back are late by their jitter, and few at a time: half of them is all.
        if came < fell_due && came > fell_due / 2 {
            return;
        }
        let next = u128::from(worth) * u128::from(came) / u128::from(fell_due.max(1));
        let next = next.min(u128::from(FULL)) as u64;
        let next = next.max(worth / FALL).max(1);
        self.worth.store(next, Relaxed);
        if next < worth {
            owed.shorten(axis, next, worth);
        }
    }

    fn worth_of(&self, price: u64) -> u64 {
        let worth = self.worth.load(Relaxed);
        ((u128::from(price) * u128::from(worth)) / u128::from(FULL)) as u64
    }
}

/// Returns a difference of two positions, 0 where it is negative.
fn at_least_zero(difference: u64) -> u64 {
    difference.cast_signed().max(0).cast_unsigned()
}

fn later(one: u64, other: u64) -> u64 {
    if one.wrapping_sub(other).cast_signed() < 0 {
        other
    } else {
        one
    }
}

fn earlier(one: u64, other: u64) -> u64 {
    if one.wrapping_sub(other).cast_signed() < 0 {
        one
    } else {
        other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: u64 = 10;
    const TERM: u64 = 100;

    fn fresh() -> (Owed, Lessons) {
        (Owed::nothing(0), Lessons::none(0, Moment(0)))
    }

    /// Promises as much as there is for so many.
    fn promise(owed: &Owed, lessons: &Lessons, axis: u64, times: u64) {
        for _ in 0..times {
            owed.promise(lessons, axis, Some, PRICE).unwrap();
        }
    }

    #[test]
    fn a_promise_falls_due_in_its_turn_and_lapses_after_a_term() {
        let (owed, lessons) = fresh();
        assert!(!owed.is_any());
        promise(&owed, &lessons, 0, 20);
        assert_eq!(owed.ahead(0), 200);
        assert_eq!(owed.reserve(&lessons, 0, TERM), 0);
        assert_eq!(owed.reserve(&lessons, 70, TERM), 70);
        owed.close(PRICE);
        assert_eq!(owed.reserve(&lessons, 70, TERM), 60);
        assert_eq!(owed.reserve(&lessons, 150, TERM), 100, "50 have lapsed");
        assert_eq!(owed.reserve(&lessons, 310, TERM), 0);
        assert!(!owed.is_any());
    }

    #[test]
    fn promises_that_nobody_keeps_lose_their_worth_and_get_it_back_when_they_are_kept() {
        let (owed, lessons) = fresh();
        let mut axis = 0;
        let mut now = Moment(0);
        for _ in 0..5 {
            promise(&owed, &lessons, axis, 50);
            (axis, now) = (axis + 500, Moment(now.0 + LESSON_MS));
            lessons.draw(&owed, axis, now, PRICE);
        }
        let before = owed.ahead(axis);
        promise(&owed, &lessons, axis, 50);
        assert!(owed.ahead(axis) - before <= 10, "{}", owed.ahead(axis));
        for _ in 0..LESSON_PROMISES * 2 {
            lessons.note_kept(PRICE);
        }
        lessons.draw(&owed, axis, Moment(now.0 + 1), PRICE);
        let before = owed.ahead(axis);
        promise(&owed, &lessons, axis, 50);
        assert_eq!(owed.ahead(axis) - before, 500);
    }

    #[test]
    fn those_who_come_a_little_late_lose_no_trust() {
        let (owed, lessons) = fresh();
        promise(&owed, &lessons, 0, 100);
        for step in 1..=10 {
            lessons.note_kept(PRICE * 8);
            lessons.draw(&owed, 100 * step, Moment(LESSON_MS * step), PRICE);
        }
        promise(&owed, &lessons, 1_000, 1);
        assert_eq!(owed.ahead(1_000), PRICE);
    }
}
