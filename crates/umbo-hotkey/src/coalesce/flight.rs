//! One flight: the readers that wait for one read of the store, and which of them leads next.
//!
//! The reader that asks the store is the *leader*, the others are *followers*. A leader that fails is replaced once, by
//! the follower that has waited longest. The failure goes to the leader's own client, which does not wait here, and to
//! no follower. If the elected follower leaves before it begins, the next one is elected. The second failure goes to
//! all followers that are left. A flight without followers ends with its leader.
//!
//! The lock of a flight is taken after the lock of its stripe, never before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64 as Gauge;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;
use std::time::Instant;

use umbo_types::Criticality;

use super::fetched::{Fetched, FlightError};
use super::sync::{Mutex, MutexGuard};

/// Leaders that a flight may have, one after the other.
const LEADERS_MAX: u8 = 2;

/// Identifies a leader and the read it makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaderToken {
    pub(crate) hash: u64,
    pub(crate) id: u64,
    pub(crate) attempt: u8,
    pub(crate) criticality: Criticality,
    /// When the first leader began.
    pub(crate) started: Instant,
}

impl LeaderToken {
    /// Returns 1 for the first leader of a flight, 2 for its replacement.
    pub const fn attempt(&self) -> u8 {
        self.attempt
    }

    /// Returns the criticality of the read: for the first leader its own, for the second the highest
    /// of all requests that have joined the flight.
    pub const fn criticality(&self) -> Criticality {
        self.criticality
    }
}

#[derive(Debug)]
struct FlightState<V, E> {
    /// Number of the leader, from 1.
    attempt: u8,
    /// By id.
    followers: BTreeMap<u64, Option<Waker>>,
    next_id: u64,
    elected: Option<u64>,
    result: Option<Result<Fetched<V>, FlightError<E>>>,
    held: Option<FlightBytes>,
}

/// Bytes of a result that followers have still to pick up; counted down on drop.
#[derive(Debug)]
struct FlightBytes {
    gauge: Arc<Gauge>,
    bytes: u64,
}

impl Drop for FlightBytes {
    fn drop(&mut self) {
        self.gauge.fetch_sub(self.bytes, Relaxed);
    }
}

/// The followers of an in-flight read. Made with the first of them.
#[derive(Debug)]
pub(crate) struct Flight<V, E> {
    state: Mutex<FlightState<V, E>>,
}

/// The state of a flight for a follower that is polled.
pub(crate) enum FlightProgress<V, E> {
    /// The read is still in flight.
    Waiting,
    /// The follower is the next leader, of this number.
    Elected(u8),
    /// The flight has ended.
    Ended(Result<Fetched<V>, FlightError<E>>),
}

/// The consequence of a leader's failure.
pub(crate) struct NextLeader {
    /// Whether the flight has ended, because no follower leads next.
    pub(crate) is_over: bool,
    pub(crate) wakeups: FollowerWakeups,
}

/// Followers to wake once no lock is held.
#[derive(Debug, Default)]
#[must_use = "followers that are not woken wait for ever"]
pub(crate) struct FollowerWakeups(Vec<Waker>);

impl FollowerWakeups {
    pub(crate) fn wake(self) {
        for waker in self.0 {
            waker.wake();
        }
    }
}

impl<V, E> Default for Flight<V, E> {
    fn default() -> Self {
        Self {
            state: Mutex::new(FlightState {
                attempt: 1,
                followers: BTreeMap::new(),
                next_id: 0,
                elected: None,
                result: None,
                held: None,
            }),
        }
    }
}

impl<V: Clone, E: Clone> Flight<V, E> {
    /// Adds a follower and returns its id, or `None` if the flight has `readers_max` readers, the leader included.
    pub(crate) fn follow(&self, readers_max: usize) -> Option<u64> {
        let mut state = self.lock();
        if state.followers.len() + 1 >= readers_max {
            return None;
        }
        let id = state.next_id;
        state.next_id += 1;
        state.followers.insert(id, None);
        Some(id)
    }

    /// Returns the number of the leader, from 1.
    pub(crate) fn attempt(&self) -> u8 {
        self.lock().attempt
    }

    /// Returns the state of a follower, and registers `waker` if the follower has to wait on.
    pub(crate) fn progress(&self, id: u64, waker: &Waker) -> FlightProgress<V, E> {
        let mut state = self.lock();
        if let Some(result) = state.result.clone() {
            state.followers.remove(&id);
            return FlightProgress::Ended(result);
        }
        if state.elected == Some(id) {
            state.elected = None;
            state.followers.remove(&id);
            return FlightProgress::Elected(state.attempt);
        }
        if let Some(held) = state.followers.get_mut(&id)
            && !held.as_ref().is_some_and(|held| held.will_wake(waker))
        {
            *held = Some(waker.clone());
        }
        FlightProgress::Waiting
    }

    /// Removes a follower that waits no longer; returns whether it was the elected one.
    pub(crate) fn leave(&self, id: u64) -> bool {
        let mut state = self.lock();
        state.followers.remove(&id);
        state.elected == Some(id)
    }

    /// Ends the flight with a result. The bytes of the result count in `gauge` until all followers have it. Returns
    /// whether there are followers.
    pub(crate) fn complete(
        &self,
        fetched: &Fetched<V>,
        gauge: &Arc<Gauge>,
    ) -> (bool, FollowerWakeups) {
        let mut state = self.lock();
        if state.followers.is_empty() {
            return (false, FollowerWakeups::default());
        }
        let bytes = fetched.bytes as u64;
        gauge.fetch_add(bytes, Relaxed);
        state.held = Some(FlightBytes {
            gauge: Arc::clone(gauge),
            bytes,
        });
        state.result = Some(Ok(fetched.clone()));
        (true, state.wake_all())
    }

    /// Ends the attempt of a leader, and elects its successor if another leader is allowed.
    pub(crate) fn fail(&self, attempt: u8, error: FlightError<E>) -> NextLeader {
        self.lock().succeed(attempt + 1, error)
    }

    /// Elects another follower after an elected one has left.
    pub(crate) fn pass_on(&self) -> NextLeader {
        let mut state = self.lock();
        let attempt = state.attempt;
        state.succeed(attempt, FlightError::LeaderLost)
    }

    /// A panic leaves the state whole, because nothing calls foreign code while it changes.
    fn lock(&self) -> MutexGuard<'_, FlightState<V, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V, E> FlightState<V, E> {
    /// Elects the follower that has waited longest as leader `attempt`, or ends the flight.
    fn succeed(&mut self, attempt: u8, error: FlightError<E>) -> NextLeader {
        let first = if attempt <= LEADERS_MAX {
            self.followers.iter_mut().next()
        } else {
            None
        };
        let Some((&id, waker)) = first else {
            self.elected = None;
            self.result = Some(Err(error));
            return NextLeader {
                is_over: true,
                wakeups: self.wake_all(),
            };
        };
        let wakeups = FollowerWakeups(waker.take().into_iter().collect());
        self.elected = Some(id);
        self.attempt = attempt;
        NextLeader {
            is_over: false,
            wakeups,
        }
    }

    fn wake_all(&mut self) -> FollowerWakeups {
        let wakers = self.followers.values_mut().filter_map(Option::take);
        FollowerWakeups(wakers.collect())
    }
}
