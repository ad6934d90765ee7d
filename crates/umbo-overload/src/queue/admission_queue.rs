//! The queue of one shard: permits while there is room, and the order of the waiting requests.
//!
//! One word holds the number of requests in flight and whether a request waits. While no request waits, entering and
//! leaving each change that word and nothing else. The lock is taken only if there is no room or a request waits.
//! Invariants:
//! - no request waits while there is room: a permit that is given back goes to a waiting request;
//! - a permit is seen to be free and taken in one step;
//! - if requests of two tiers wait, the higher tier is served, except for the floor of the lower;
//! - a tier is shed only after its requests have waited for a whole interval, while no lower tier was served except by
//!   its floor;
//! - a request whose deadline has passed gets no permit.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use umbo_types::Criticality;

use super::admission::{Entered, Entry, Permit, QueueTicket, ServiceOutcome, Shed, Wakeups};
use super::codel::CodelSettings;
use super::late_runtime::LateRuntime;
use super::queue_state::QueueState;
use super::settings::QueueSettings;
use super::status::QueueStatus;
use crate::estimate::SAMPLES_MIN;

/// A request waits. The bits below count the requests in flight, the bits above the requests that have left.
const WAITING: u64 = 1 << 31;
/// One request that has left.
const LEFT: u64 = WAITING << 1;
/// The requests in flight.
const IN_FLIGHT: u64 = WAITING - 1;
/// The limit learns from one in so many requests that leave while no request waits.
const SAMPLED: u64 = 16;
/// The limit learns from all of the first requests, until the sampled requests are enough. So it also knows a shard
/// with few requests.
const FIRST: u64 = SAMPLED * SAMPLES_MIN as u64;

/// The queue of one shard. `W` wakes a request that waits.
#[derive(Debug)]
pub struct AdmissionQueue<W> {
    word: AtomicU64,
    limit: AtomicU32,
    codel: CodelSettings,
    late: LateRuntime,
    state: Mutex<QueueState<W>>,
}

impl<W> AdmissionQueue<W> {
    /// Makes a queue without requests in flight.
    pub fn new(settings: QueueSettings) -> Self {
        let state = QueueState::new(settings);
        Self {
            word: AtomicU64::new(0),
            limit: AtomicU32::new(state.permits()),
            codel: settings.codel,
            late: LateRuntime::default(),
            state: Mutex::new(state),
        }
    }

    /// Asks for a permit. `waiter` is called only if the request has to wait.
    ///
    /// Other requests may be woken by it: they are added to `wakeups`.
    #[inline]
    pub fn enter(
        &self,
        entry: &Entry,
        now: Instant,
        waiter: impl FnOnce() -> W,
        wakeups: &mut Wakeups<W>,
    ) -> Entered {
        if entry.deadline.has_passed(now) {
            return Entered::Expired;
        }
        if self.late.sheds(entry, &self.codel, now) {
            return Entered::Shed(self.lock().shed_for_lag(entry.criticality, now));
        }
        if self.take_free() {
            return Entered::Permit(Permit::ordinary(entry.criticality));
        }
        self.enter_state(entry, now, waiter, wakeups)
    }

    /// Sheds a request that would be shed if it entered now, before anything is prepared for it. `None` says only that
    /// the request is not turned away at once.
    #[inline]
    pub fn turn_away(&self, entry: &Entry, now: Instant) -> Option<Shed> {
        if !self.is_crowded() || entry.deadline.has_passed(now) {
            return None;
        }
        self.lock().turn_away(entry, now)
    }

    /// Counts a request as shed because its caller has more than its share. `wait` says how long the caller is to stay
    /// away.
    pub fn shed_for_share(&self, criticality: Criticality, wait: Duration) -> Shed {
        self.lock().shed_for_share(criticality, wait)
    }

    /// Sets the number of permits of a queue whose limit does not learn, at least one.
    pub fn set_permits(&self, permits: u32, now: Instant, wakeups: &mut Wakeups<W>) {
        if self.limit.load(Ordering::Relaxed) == permits.max(1) {
            return;
        }
        let mut state = self.lock();
        state.set_permits(permits);
        self.attend(&mut state, now, wakeups);
    }

    /// Gives a permit back. The request that gets it, and those shed meanwhile, are added to `wakeups`.
    #[inline]
    #[expect(clippy::needless_pass_by_value)] // so that it is given back once
    pub fn leave(
        &self,
        permit: Permit,
        outcome: ServiceOutcome,
        now: Instant,
        wakeups: &mut Wakeups<W>,
    ) {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & WAITING == 0 {
            debug_assert!(word & IN_FLIGHT > 0, "a permit is given back once");
            let next = word.wrapping_add(LEFT) - 1;
            let ordering = (Ordering::Release, Ordering::Relaxed);
            match self
                .word
                .compare_exchange_weak(word, next, ordering.0, ordering.1)
            {
                Ok(_) => {
                    let left = next / LEFT;
                    if left < FIRST || left.is_multiple_of(SAMPLED) {
                        self.sample(outcome, next & IN_FLIGHT);
                    }
                    return;
                }
                Err(current) => word = current,
            }
        }
        let mut state = self.lock();
        self.word.fetch_sub(1, Ordering::AcqRel);
        state.left(&permit, outcome, now);
        self.limit.store(state.permits(), Ordering::Relaxed);
        self.attend(&mut state, now, wakeups);
    }

    /// Takes a request out of the queue, and returns its waiter. `None` if it does not wait any more: an admission is
    /// on its way, and a permit in it has to be given back.
    pub fn cancel(&self, ticket: QueueTicket, now: Instant) -> Option<W> {
        let mut state = self.lock();
        let waiter = state.cancel(ticket, now);
        self.note_empty(&state);
        waiter
    }

    /// Attends to the waiting requests: sheds requests that have waited too long, also at a shard that stands still.
    ///
    /// Call it every few milliseconds. `lag` is the lateness of the runtime. It is counted as if every request had
    /// waited that much longer. If it stays high, the lowest tiers are shed at the entry, even while there are permits.
    pub fn tick(&self, now: Instant, lag: Duration, wakeups: &mut Wakeups<W>) {
        let mut state = self.lock();
        let word = self.word.load(Ordering::Relaxed);
        state.set_lag(lag, &self.late, (word / LEFT) as u32, now);
        self.attend(&mut state, now, wakeups);
        state.shrink();
    }

    /// Returns whether a request would find a permit now. Another one may be faster.
    #[inline]
    pub fn has_room(&self) -> bool {
        let limit = u64::from(self.limit.load(Ordering::Relaxed));
        let word = self.word.load(Ordering::Relaxed);
        word & WAITING == 0 && word & IN_FLIGHT < limit
    }

    /// Returns whether a request waits.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.word.load(Ordering::Relaxed) & WAITING != 0
    }

    /// Returns the state of the queue.
    pub fn status(&self, now: Instant) -> QueueStatus {
        let state = self.lock();
        let in_flight = (self.word.load(Ordering::Relaxed) & IN_FLIGHT) as u32;
        state.status(in_flight, now)
    }

    /// Takes a permit if there is one and no request waits.
    #[inline]
    fn take_free(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let limit = u64::from(self.limit.load(Ordering::Relaxed));
            if word & WAITING != 0 || word & IN_FLIGHT >= limit {
                return false;
            }
            let ordering = (Ordering::Acquire, Ordering::Relaxed);
            match self
                .word
                .compare_exchange_weak(word, word + 1, ordering.0, ordering.1)
            {
                Ok(_) => return true,
                Err(current) => word = current,
            }
        }
    }

    #[cold]
    fn enter_state(
        &self,
        entry: &Entry,
        now: Instant,
        waiter: impl FnOnce() -> W,
        wakeups: &mut Wakeups<W>,
    ) -> Entered {
        let mut state = self.lock();
        // A request that is shed at the entry must cost little, and changes nothing: the tick looks after the others.
        if let Some(shed) = state.turn_away(entry, now) {
            return Entered::Shed(shed);
        }
        // From here on others see that a request waits, and requests that leave take this lock. A permit that became
        // free a moment ago is seen here.
        if state.is_empty() && !self.begin_waiting(state.permits()) {
            return Entered::Permit(Permit::ordinary(entry.criticality));
        }
        let entered = match state.make_room(entry, now, wakeups) {
            Ok(()) => Entered::Queued(state.push(entry, waiter(), now)),
            Err(shed) => Entered::Shed(shed),
        };
        self.attend(&mut state, now, wakeups);
        entered
    }

    /// Records that a request waits, or takes a permit if there is one after all. Returns whether the request has to
    /// wait.
    fn begin_waiting(&self, limit: u32) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let has_room = word & IN_FLIGHT < u64::from(limit);
            let next = if has_room { word + 1 } else { word | WAITING };
            let ordering = (Ordering::AcqRel, Ordering::Relaxed);
            match self
                .word
                .compare_exchange_weak(word, next, ordering.0, ordering.1)
            {
                Ok(_) => return !has_room,
                Err(current) => word = current,
            }
        }
    }

    /// Gives the free permits to waiting requests, and then sheds the requests that have to be shed. In this order, no
    /// permit goes to a lower tier because a higher one has just been shed.
    fn attend(&self, state: &mut QueueState<W>, now: Instant, wakeups: &mut Wakeups<W>) {
        // While a request waits, permits are taken only here.
        let in_flight = (self.word.load(Ordering::Acquire) & IN_FLIGHT) as u32;
        let free = state.permits().saturating_sub(in_flight);
        let issued = state.serve(free, now, wakeups);
        if issued > 0 {
            self.word.fetch_add(u64::from(issued), Ordering::AcqRel);
        }
        state.shed_old(now, wakeups);
        self.limit.store(state.permits(), Ordering::Relaxed);
        self.note_empty(state);
    }

    fn note_empty(&self, state: &QueueState<W>) {
        if state.is_empty() {
            self.word.fetch_and(!WAITING, Ordering::AcqRel);
        }
    }

    /// Learns from a request that left while no request waited, if the lock is free and at most half of the permits are
    /// out: then no request was in another's way.
    fn sample(&self, outcome: ServiceOutcome, in_flight: u64) {
        let limit = u64::from(self.limit.load(Ordering::Relaxed));
        if in_flight * 2 <= limit
            && let Ok(mut state) = self.state.try_lock()
        {
            state.learn_calm(outcome);
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "admission_queue_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "admission_queue_counts_tests.rs"]
mod counts_tests;
