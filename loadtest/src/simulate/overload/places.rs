//! The places of a server, and the requests that wait for one: first come, first served.
//!
//! What the policies of others stand in front of. A request whose client has given it up is dropped when its turn
//! comes; neither paper says so, and without it both would work on what is of no use to anybody.

use std::collections::VecDeque;
use std::time::Instant;

use umbo_types::Deadline;

/// A request that waits.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    request: u32,
    since_ns: u64,
    deadline: Deadline,
}

/// A request whose turn has come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub(super) request: u32,
    /// How long it has waited.
    pub(super) waited_ns: u64,
    /// Whether its client has given it up: it takes no place.
    pub(super) is_expired: bool,
}

/// Places, and a queue.
#[derive(Debug)]
pub(super) struct Places {
    all: usize,
    taken: usize,
    waiting: VecDeque<Waiting>,
}

impl Places {
    pub(super) const fn new(places: usize) -> Self {
        Self {
            all: places,
            taken: 0,
            waiting: VecDeque::new(),
        }
    }

    pub(super) const fn places(&self) -> usize {
        self.all
    }

    /// A request arrives and waits for its turn.
    pub(super) fn enter(&mut self, request: u32, deadline: Deadline, now_ns: u64) {
        self.waiting.push_back(Waiting {
            request,
            since_ns: now_ns,
            deadline,
        });
    }

    /// A request has been served.
    pub(super) const fn leave(&mut self) {
        self.taken -= 1;
    }

    /// Returns the next request whose turn it is, if there is a place.
    pub(super) fn next(&mut self, (now, now_ns): (Instant, u64)) -> Option<Turn> {
        if self.taken >= self.all {
            return None;
        }
        let next = self.waiting.pop_front()?;
        let is_expired = next.deadline.has_passed(now);
        self.taken += usize::from(!is_expired);
        Some(Turn {
            request: next.request,
            waited_ns: now_ns - next.since_ns,
            is_expired,
        })
    }

    /// Returns for how long the oldest has waited.
    pub(super) fn delay_ns(&self, now_ns: u64) -> u64 {
        self.waiting
            .front()
            .map_or(0, |oldest| now_ns - oldest.since_ns)
    }
}
