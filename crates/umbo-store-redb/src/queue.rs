//! The queue of work before a shard's committer, bounded by mutations and by bytes.
//!
//! Owns waiting and the bounds; knows nothing of what the work is. The invariant: what was
//! accepted is taken, also after the queue has been closed, so every caller gets an answer.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Turns of the processor that are left to others before a group is closed.
const TURNS_MAX: usize = 8;
/// Time after which no more of them are, however many are left: a machine may be busy with something
/// else altogether.
const TURNS_TIME_MAX: Duration = Duration::from_micros(250);

/// Size of a piece of work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// Mutations.
    pub(crate) mutations: usize,
    /// Bytes of keys and values.
    pub(crate) bytes: usize,
}

impl Size {
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

/// Why work was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There is no room.
    Full,
    /// The queue was closed.
    Closed,
}

/// What a committer finds when it looks.
#[derive(Debug)]
pub(crate) struct Taken<T> {
    /// Work in the order in which it came.
    pub(crate) work: Vec<T>,
    /// Whether somebody asked for attention with [`Queue::nudge`] since the last time.
    pub(crate) was_nudged: bool,
    /// Whether the queue is closed and empty.
    pub(crate) is_finished: bool,
}

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<(T, Size)>,
    size: Size,
    was_nudged: bool,
    is_closed: bool,
    /// Whether the consumer sleeps; waking one that does not costs a system call for nothing.
    is_awaited: bool,
}

impl<T> State<T> {
    /// Moves work out of the queue, as long as all that was taken is within `most`.
    fn move_to(&mut self, work: &mut Vec<T>, taken: &mut Size, most: Size) {
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

/// Many producers, one consumer.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    has_news: Condvar,
    bound: Size,
}

impl<T> Queue<T> {
    /// Makes an empty queue that holds at most `bound`.
    pub(crate) fn new(bound: Size) -> Self {
        Self {
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                size: Size::default(),
                was_nudged: false,
                is_closed: false,
                is_awaited: false,
            }),
            has_news: Condvar::new(),
            bound,
        }
    }

    /// Adds work at the end. An empty queue accepts work of any size, so that no request is
    /// impossible.
    pub(crate) fn push(&self, work: T, size: Size) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(Refused::Closed);
        }
        let sum = state.size.plus(size);
        if !state.waiting.is_empty() && !sum.is_within(self.bound) {
            return Err(Refused::Full);
        }
        state.size = sum;
        state.waiting.push_back((work, size));
        let is_awaited = std::mem::take(&mut state.is_awaited);
        drop(state);
        if is_awaited {
            self.has_news.notify_one();
        }
        Ok(())
    }

    /// Wakes the consumer without work. Says whether there is still one to wake.
    pub(crate) fn nudge(&self) -> bool {
        let mut state = self.lock();
        state.was_nudged = !state.is_closed;
        self.has_news.notify_one();
        state.was_nudged
    }

    /// Accepts no more work.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.has_news.notify_one();
    }

    /// Takes what waits, up to `most` but at least one piece; waits for news first, for ever or
    /// for a while. Where more than one piece waits, more are likely to be on their way: threads that
    /// are ready to run have their turn first, and what they bring is taken, too.
    pub(crate) fn take(&self, wait: Option<Duration>, most: Size) -> Taken<T> {
        self.take_group(wait, most, thread::yield_now)
    }

    fn take_group(
        &self,
        wait: Option<Duration>,
        most: Size,
        mut let_others_run: impl FnMut(),
    ) -> Taken<T> {
        let mut state = self.lock();
        let is_quiet = |state: &mut State<T>| {
            state.is_awaited = state.waiting.is_empty() && !state.was_nudged && !state.is_closed;
            state.is_awaited
        };
        state = match wait {
            None => self
                .has_news
                .wait_while(state, is_quiet)
                .unwrap_or_else(PoisonError::into_inner),
            Some(wait) => {
                self.has_news
                    .wait_timeout_while(state, wait, is_quiet)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
        state.is_awaited = false;
        let (mut work, mut taken) = (Vec::new(), Size::default());
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
        Taken {
            was_nudged: std::mem::take(&mut state.was_nudged),
            is_finished: state.is_closed && work.is_empty(),
            work,
        }
    }

    /// Returns the number of mutations that wait.
    pub(crate) fn mutations(&self) -> usize {
        self.lock().size.mutations
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // No code of ours panics under this lock; if it did, the queue would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(mutations: usize, bytes: usize) -> Size {
        Size { mutations, bytes }
    }

    #[test]
    fn either_bound_refuses_and_room_is_given_back() {
        let queue = Queue::new(size(3, 100));
        queue.push("a", size(1, 90)).unwrap();
        assert_eq!(queue.push("b", size(1, 11)), Err(Refused::Full));
        assert_eq!(queue.push("c", size(3, 1)), Err(Refused::Full));
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
            // The fourth piece is one too many for this group.
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
        assert_eq!(queue.push(2, size(1, 1)), Err(Refused::Closed));
        assert!(!queue.nudge());
        let taken = queue.take(None, size(9, 9));
        assert!(taken.work == [1] && !taken.is_finished);
        assert!(queue.take(None, size(9, 9)).is_finished);
    }
}
