//! Sums over the last while: a ring of ten slots. The oldest slot is dropped as time passes, so
//! that a sum never falls to nothing at once. Pure: the time is a parameter.
//!
//! The invariant: an amount counts until its slot is ten slots old, so for nine tenths of the
//! window at least and for the whole window at most.

use std::time::{Duration, Instant};

/// Slots of a window.
pub(crate) const SLOTS: usize = 10;

/// Sums of several kinds of amounts over one window.
#[derive(Debug, Clone)]
pub(crate) struct SlidingWindow<const KINDS: usize> {
    slots: [[i64; KINDS]; SLOTS],
    sums: [i64; KINDS],
    slot_len: Duration,
    start: Instant,
    /// Slots since the start; the place in the ring is this modulo the slots.
    number: u64,
}

impl<const KINDS: usize> SlidingWindow<KINDS> {
    /// Makes an empty window. A length below ten nanoseconds is ten nanoseconds.
    pub(crate) fn new(len: Duration, now: Instant) -> Self {
        Self {
            slots: [[0; KINDS]; SLOTS],
            sums: [0; KINDS],
            slot_len: (len / SLOTS as u32).max(Duration::from_nanos(1)),
            start: now,
            number: 0,
        }
    }

    /// Adds an amount, which may be negative.
    pub(crate) fn add(&mut self, kind: usize, amount: i64, now: Instant) {
        self.turn(now);
        let slot = &mut self.slots[(self.number % SLOTS as u64) as usize];
        slot[kind] = slot[kind].saturating_add(amount);
        self.sums[kind] = self.sums[kind].saturating_add(amount);
    }

    /// Forgets all amounts of a kind.
    pub(crate) fn clear(&mut self, kind: usize) {
        for slot in &mut self.slots {
            slot[kind] = 0;
        }
        self.sums[kind] = 0;
    }

    /// Returns the sums.
    pub(crate) fn sums(&mut self, now: Instant) -> [i64; KINDS] {
        self.turn(now);
        self.sums
    }

    /// Lets go of slots that are too old. A time before one already seen changes nothing: threads
    /// read the clock before they come here, and may come here in another order.
    fn turn(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.start).as_nanos();
        let number = u64::try_from(passed / self.slot_len.as_nanos()).unwrap_or(u64::MAX);
        let steps = number.saturating_sub(self.number).min(SLOTS as u64);
        for step in 1..=steps {
            let place = (self.number.wrapping_add(step) % SLOTS as u64) as usize;
            let old = std::mem::replace(&mut self.slots[place], [0; KINDS]);
            for (sum, old) in self.sums.iter_mut().zip(old) {
                *sum = sum.saturating_sub(old);
            }
        }
        if steps == SLOTS as u64 {
            self.slots = [[0; KINDS]; SLOTS];
            self.sums = [0; KINDS];
        }
        self.number = self.number.max(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Keeps every amount for ever and adds up those that are young enough.
    struct Twin {
        slot_ms: u64,
        added: Vec<(u64, i64)>,
    }

    impl Twin {
        fn sum(&self, now_ms: u64) -> i64 {
            let slot = |at_ms: u64| at_ms / self.slot_ms;
            let is_young = |at_ms: u64| slot(now_ms) - slot(at_ms) < SLOTS as u64;
            let young = self.added.iter().filter(|(at_ms, _)| is_young(*at_ms));
            young.map(|(_, amount)| amount).sum()
        }
    }

    proptest! {
        #[test]
        fn sums_are_those_of_the_exact_twin(
            steps in prop::collection::vec((0_u64..4_000, -50_i64..50, 0_usize..2), 1..200),
        ) {
            let start = Instant::now();
            let mut window = SlidingWindow::<2>::new(Duration::from_secs(10), start);
            let mut twins = [(); 2].map(|()| Twin { slot_ms: 1_000, added: Vec::new() });
            let mut now_ms = 0;
            for (step_ms, amount, kind) in steps {
                now_ms += step_ms;
                let now = start + Duration::from_millis(now_ms);
                window.add(kind, amount, now);
                twins[kind].added.push((now_ms, amount));
                let expected = [twins[0].sum(now_ms), twins[1].sum(now_ms)];
                prop_assert_eq!(window.sums(now), expected);
            }
        }
    }

    #[test]
    fn a_time_before_one_already_seen_is_that_one() {
        let start = Instant::now();
        let mut window = SlidingWindow::<1>::new(Duration::from_secs(10), start);
        window.add(0, 1, start + Duration::from_secs(9));
        window.add(0, 1, start);
        assert_eq!(window.sums(start + Duration::from_secs(18)), [2]);
        assert_eq!(window.sums(start + Duration::from_secs(19)), [0]);
    }

    #[test]
    fn a_long_silence_leaves_nothing() {
        let start = Instant::now();
        let mut window = SlidingWindow::<1>::new(Duration::from_secs(10), start);
        for second in 0..10 {
            window.add(0, 1, start + Duration::from_secs(second));
        }
        assert_eq!(window.sums(start + Duration::from_secs(9)), [10]);
        assert_eq!(window.sums(start + Duration::from_hours(99)), [0]);
        window.add(0, 3, start + Duration::from_hours(99));
        assert_eq!(window.sums(start + Duration::from_hours(99)), [3]);
    }
}
