//! When datasets were created and live, as their clients know it: what a read may see.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest time for which a dispatcher may serve the dataset that was live before.
const STALE_MAX: Duration = Duration::from_secs(2);

/// From when to when something went on: before it was asked for, and after it was answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) begun: Instant,
    pub(super) ended: Instant,
}

impl Span {
    pub(super) fn of<T>(work: impl FnOnce() -> T) -> (Self, T) {
        let begun = Instant::now();
        let done = work();
        let ended = Instant::now();
        (Self { begun, ended }, done)
    }
}

/// A dataset that was the live one.
struct Live {
    dataset: u64,
    /// When its activation was asked for, and when that was answered.
    from: Instant,
    answered: Option<Instant>,
    /// When that of the next one was answered.
    until: Option<Instant>,
}

#[derive(Default)]
struct Events {
    /// When the load of each dataset was created.
    created: Vec<(u64, Span)>,
    lives: Vec<Live>,
}

/// What happened so far.
#[derive(Default)]
pub(super) struct Timeline(Mutex<Events>);

/// Whether a write is in a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    Certainly,
    Perhaps,
    CertainlyNot,
}

impl Timeline {
    fn events(&self) -> MutexGuard<'_, Events> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the load of a dataset was created.
    pub(super) fn create(&self, dataset: u64, span: Span) {
        self.events().created.push((dataset, span));
    }

    /// Activates a dataset.
    pub(super) fn activate<T>(&self, dataset: u64, work: impl FnOnce() -> T) -> T {
        self.events().lives.push(Live {
            dataset,
            from: Instant::now(),
            answered: None,
            until: None,
        });
        let (span, done) = Span::of(work);
        let mut events = self.events();
        let mut lives = events.lives.iter_mut().rev();
        if let Some(live) = lives.next() {
            live.answered = Some(span.ended);
        }
        if let Some(before) = lives.next() {
            before.until = Some(span.ended);
        }
        drop(events);
        done
    }

    /// Returns the datasets that a read may have seen.
    pub(super) fn seen_by(&self, read: &Span) -> Vec<u64> {
        let events = self.events();
        let lives = events.lives.iter().filter(|live| {
            let is_over = live
                .until
                .is_some_and(|until| until + STALE_MAX < read.begun);
            live.from <= read.ended && !is_over
        });
        lives.map(|live| live.dataset).collect()
    }

    /// Returns whether a write is in a dataset: it is if it came after the load of the dataset was created.
    pub(super) fn holds(&self, dataset: u64, write: &Span) -> Holds {
        let events = self.events();
        let created = events.created.iter().find(|(number, _)| *number == dataset);
        match created {
            Some((_, created)) if write.ended < created.begun => Holds::CertainlyNot,
            Some((_, created)) if write.begun <= created.ended => Holds::Perhaps,
            // The first one was there before the first write.
            Some(_) | None => Holds::Certainly,
        }
    }

    /// Returns whether something went on while a dataset was activated.
    pub(super) fn is_beside_activation(&self, span: &Span) -> bool {
        let events = self.events();
        let mut lives = events.lives.iter().rev();
        lives.any(|live| live.from <= span.ended && !live.was_answered_before(span.begun))
    }

    /// Returns how many activations came after the last one of a dataset.
    pub(super) fn activations_after(&self, dataset: u64) -> usize {
        let events = self.events();
        let lives = events.lives.iter().rev();
        lives.take_while(|live| live.dataset != dataset).count()
    }
}

impl Live {
    fn was_answered_before(&self, instant: Instant) -> bool {
        self.answered.is_some_and(|answered| answered < instant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_in_the_datasets_whose_loads_were_created_before_it() {
        let timeline = Timeline::default();
        let at = |ms| Instant::now() + Duration::from_millis(ms);
        let span = |from, to| Span {
            begun: at(from),
            ended: at(to),
        };
        timeline.create(1, span(100, 200));
        assert_eq!(timeline.holds(1, &span(50, 60)), Holds::CertainlyNot);
        assert_eq!(timeline.holds(1, &span(50, 150)), Holds::Perhaps);
        assert_eq!(timeline.holds(1, &span(150, 400)), Holds::Perhaps);
        assert_eq!(timeline.holds(1, &span(300, 400)), Holds::Certainly);
        assert_eq!(timeline.holds(0, &span(1, 2)), Holds::Certainly);
    }

    #[test]
    fn a_read_sees_what_is_live_and_for_a_while_what_was() {
        let timeline = Timeline::default();
        timeline.activate(0, || ());
        let before = Span::of(|| ()).0;
        let beside = timeline.activate(1, || Span::of(|| ()).0);
        assert!(timeline.is_beside_activation(&beside) && !timeline.is_beside_activation(&before));
        assert_eq!(
            [0, 1].map(|dataset| timeline.activations_after(dataset)),
            [1, 0]
        );
        assert_eq!(timeline.seen_by(&before), [0]);
        assert_eq!(timeline.seen_by(&Span::of(|| ()).0), [0, 1]);
        let later = Instant::now() + 2 * STALE_MAX;
        let later = Span {
            begun: later,
            ended: later,
        };
        assert_eq!(timeline.seen_by(&later), [1]);
    }
}
