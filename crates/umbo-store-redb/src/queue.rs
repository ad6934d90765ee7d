//! The queue of work before a shard's committer, bounded by mutations and by bytes.
//!
//! Owns the waiting and the bounds; does not depend on the kind of work. The invariant: accepted work is
//! taken, even after the queue has been closed, so every caller gets an answer.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often the committer yields the processor to other threads before a group is closed.
const TURNS_MAX: usize = 8;
/// Time after which the committer stops yielding, because the machine may be busy with unrelated work.
const TURNS_TIME_MAX: Duration = Duration::from_micros(250);

/// Bytes of a small row: most of its cost is its place in the tree.
const SMALL_ROW_BYTES: usize = 512;

/// Size of a piece of work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WorkSize {
    /// Mutations.
    pub(crate) mutations: usize,
    /// Bytes of keys and values.
    pub(crate) bytes: usize,
}

impl WorkSize {
    /// More than any work.
    const MAX: Self = Self {
        mutations: usize::MAX,
        bytes: usize::MAX,
    };

    /// Returns its mutations, or the small rows that have as many bytes.
    pub(crate) fn rows(self) -> usize {
        self.mutations.max(self.bytes / SMALL_ROW_BYTES)
    }

    fn plus(self, other: Self) -> Self {
        Self {
            mutations: self.mutations + other.mutations,
            bytes: self.bytes + other.bytes,
        }
    }

    fn is_within(self, bound: Self) -> bool {
        self.mutations <= bound.mutations && self.bytes <= bound.bytes
    }
}

/// Why work was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PushError {
    /// There is no room.
    Full,
    /// The queue was closed.
    Closed,
}

/// The work that a committer takes from the queue at once.
#[derive(Debug)]
pub(crate) struct TakenWork<T> {
    /// Work in order of arrival.
    pub(crate) work: Vec<T>,
    /// Whether [`Queue::nudge`] was called since the last time.
    pub(crate) was_nudged: bool,
    /// Whether the queue is closed and empty.
    pub(crate) is_finished: bool,
}

/// What wakes a consumer without work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Signal {
    #[default]
    None,
    /// An apply may have ended.
    Wake,
    /// The file is to be opened again.
    Nudge,
}

#[derive(Debug)]
struct QueueContents<T> {
    waiting: VecDeque<(T, WorkSize)>,
    size: WorkSize,
    /// The greatest since the last time.
    signal: Signal,
    is_closed: bool,
    /// Whether the consumer sleeps. Waking a consumer that is awake would waste a system call.
    is_awaited: bool,
}

impl<T> QueueContents<T> {
    /// Returns whether the consumer has nothing to do, and records that it waits then.
    fn is_quiet(&mut self) -> bool {
        let has_news = self.signal != Signal::None || self.is_closed;
        self.is_awaited = self.waiting.is_empty() && !has_news;
        self.is_awaited
    }

    fn taken(&mut self, work: Vec<T>) -> TakenWork<T> {
        self.is_awaited = false;
        TakenWork {
            was_nudged: std::mem::take(&mut self.signal) == Signal::Nudge,
            is_finished: self.is_closed && work.is_empty(),
            work,
        }
    }

    /// Moves work out of the queue while the total is within `most`.
    fn move_to(&mut self, work: &mut Vec<T>, taken: &mut WorkSize, most: WorkSize) {
        while let Some(&(_, size)) = self.waiting.front() {
            if !work.is_empty() && !taken.plus(size).is_within(most) {
                break;
            }
            let Some((piece, size)) = self.waiting.pop_front() else {
                break;
            };
            *taken = taken.plus(size);
            self.size.mutations -= size.mutations;
            self.size.bytes -= size.bytes;
            work.push(piece);
        }
    }
}

/// A bounded queue of many producers and one consumer.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    state: Mutex<QueueContents<T>>,
    has_news: Condvar,
    #[cfg(feature = "simulation")]
    has_news_for_task: tokio::sync::Notify,
    bound: WorkSize,
}

impl<T> Queue<T> {
    /// Makes an empty queue that holds at most `bound`.
    pub(crate) fn new(bound: WorkSize) -> Self {
        Self {
            state: Mutex::new(QueueContents {
                waiting: VecDeque::new(),
                size: WorkSize::default(),
                signal: Signal::None,
                is_closed: false,
                is_awaited: false,
            }),
            has_news: Condvar::new(),
            #[cfg(feature = "simulation")]
            has_news_for_task: tokio::sync::Notify::new(),
            bound,
        }
    }

    /// Adds work at the end. An empty queue accepts work of any size, so that no request is impossible.
    pub(crate) fn push(&self, work: T, size: WorkSize) -> Result<(), PushError> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(PushError::Closed);
        }
        let sum = state.size.plus(size);
        if !state.waiting.is_empty() && !sum.is_within(self.bound) {
            return Err(PushError::Full);
        }
        state.size = sum;
        state.waiting.push_back((work, size));
        let is_awaited = std::mem::take(&mut state.is_awaited);
        drop(state);
        if is_awaited {
            self.tell();
        }
        Ok(())
    }

    /// Wakes the consumer, which looks whether an apply has ended.
    pub(crate) fn wake(&self) {
        let mut state = self.lock();
        state.signal = state.signal.max(Signal::Wake);
        self.tell();
    }

    /// Asks the consumer to open the file again. Returns whether the queue is still open.
    pub(crate) fn nudge(&self) -> bool {
        let mut state = self.lock();
        if state.is_closed {
            return false;
        }
        state.signal = Signal::Nudge;
        self.tell();
        true
    }

    /// Closes the queue for new work.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.tell();
    }

    /// Closes the queue, and returns the work that the consumer will never take.
    pub(crate) fn abandon(&self) -> Vec<T> {
        let mut state = self.lock();
        state.is_closed = true;
        let (mut work, mut taken) = (Vec::new(), WorkSize::default());
        state.move_to(&mut work, &mut taken, WorkSize::MAX);
        work
    }

    /// Wakes the consumer.
    fn tell(&self) {
        self.has_news.notify_one();
        #[cfg(feature = "simulation")]
        self.has_news_for_task.notify_one();
    }

    /// Like [`Self::take`], for a consumer that is a task. It does not yield: tasks that are ready run while the
    /// consumer waits.
    #[cfg(feature = "simulation")]
    pub(crate) async fn taken(&self, wait: Option<Duration>, most: WorkSize) -> TakenWork<T> {
        let until = wait.map(|wait| tokio::time::Instant::now() + wait);
        loop {
            let news = self.has_news_for_task.notified();
            {
                let mut state = self.lock();
                let is_over = until.is_some_and(|until| until <= tokio::time::Instant::now());
                if is_over || !state.is_quiet() {
                    let (mut work, mut taken) = (Vec::new(), WorkSize::default());
                    state.move_to(&mut work, &mut taken, most);
                    return state.taken(work);
                }
            }
            match until {
                None => news.await,
                Some(until) => drop(tokio::time::timeout_at(until, news).await),
            }
        }
    }

    /// Takes waiting work, up to `most` but at least one piece. If no work waits, waits for some, up to `wait`, or
    /// without limit. If several pieces wait, more are likely to arrive: the consumer yields to threads that are ready
    /// to run, and takes their work too.
    pub(crate) fn take(&self, wait: Option<Duration>, most: WorkSize) -> TakenWork<T> {
        self.take_group(wait, most, thread::yield_now)
    }

    fn take_group(
        &self,
        wait: Option<Duration>,
        most: WorkSize,
        mut let_others_run: impl FnMut(),
    ) -> TakenWork<T> {
        let mut state = self.lock();
        state = match wait {
            None => self
                .has_news
                .wait_while(state, QueueContents::is_quiet)
                .unwrap_or_else(PoisonError::into_inner),
            Some(wait) => {
                self.has_news
                    .wait_timeout_while(state, wait, QueueContents::is_quiet)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
        let (mut work, mut taken) = (Vec::new(), WorkSize::default());
        state.move_to(&mut work, &mut taken, most);
        let began = Instant::now();
        for _ in 0..TURNS_MAX {
            if work.len() < 2 || !state.waiting.is_empty() {
                break;
            }
            drop(state);
            let_others_run();
            state = self.lock();
            state.move_to(&mut work, &mut taken, most);
            if began.elapsed() >= TURNS_TIME_MAX {
                break;
            }
        }
        state.taken(work)
    }

    /// Returns how many pieces of work wait.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Returns the number of mutations that wait.
    pub(crate) fn mutations(&self) -> usize {
        self.lock().size.mutations
    }

    fn lock(&self) -> MutexGuard<'_, QueueContents<T>> {
        // No code of this module panics under this lock; if it did, the queue would still be consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(mutations: usize, bytes: usize) -> WorkSize {
        WorkSize { mutations, bytes }
    }

    #[test]
    fn either_bound_refuses_and_room_is_given_back() {
        let queue = Queue::new(size(3, 100));
        queue.push("a", size(1, 90)).unwrap();
        assert_eq!(queue.push("b", size(1, 11)), Err(PushError::Full));
        assert_eq!(queue.push("c", size(3, 1)), Err(PushError::Full));
        queue.push("d", size(2, 10)).unwrap();
        assert_eq!(queue.mutations(), 3);
        assert_eq!(queue.take(None, size(9, 999)).work, ["a", "d"]);
        assert_eq!(queue.mutations(), 0);
        queue.push("larger than the bound", size(1, 101)).unwrap();
    }

    #[test]
    fn one_take_is_bounded_but_never_empty_handed() {
        let queue = Queue::new(size(100, 100));
        for work in [5, 1, 1] {
            queue.push(work, size(work, 1)).unwrap();
        }
        assert_eq!(queue.take(None, size(2, 9)).work, [5]);
        assert_eq!(queue.take(None, size(2, 9)).work, [1, 1]);
        assert!(queue.take(Some(Duration::ZERO), size(2, 9)).work.is_empty());
    }

    #[test]
    fn what_comes_while_others_have_their_turn_is_taken_too() {
        let queue = Queue::new(size(9, 9));
        let mut next = 3;
        let mut turn = || {
            // The fourth piece exceeds the bound of this group.
            if next < 6 {
                queue.push(next, size(1, 1)).unwrap();
                next += 1;
            }
        };
        queue.push(1, size(1, 1)).unwrap();
        let alone = queue.take_group(None, size(4, 9), &mut turn);
        assert_eq!(alone.work, [1]);
        queue.push(1, size(1, 1)).unwrap();
        queue.push(2, size(1, 1)).unwrap();
        let gathered = queue.take_group(None, size(4, 9), &mut turn).work;
        assert!([&[1, 2, 3][..], &[1, 2, 3, 4]].contains(&&gathered[..]));
    }

    #[test]
    fn what_was_accepted_is_taken_after_the_close() {
        let queue = Queue::new(size(9, 9));
        queue.push(1, size(1, 1)).unwrap();
        assert!(queue.nudge());
        queue.close();
        assert_eq!(queue.push(2, size(1, 1)), Err(PushError::Closed));
        assert!(!queue.nudge());
        let taken = queue.take(None, size(9, 9));
        assert!(taken.work == [1] && !taken.is_finished);
        assert!(queue.take(None, size(9, 9)).is_finished);
    }
}
