//! One flight: everybody who waits for one read of the store, and who of them is to lead.
//!
//! The one who reads is the *leader*, the others are *followers*. A leader that fails is replaced
//! once, by the follower that has waited longest; the failure goes to the leader's own client, which
//! does not wait here, and to nobody else. Should the elected follower leave before it begins, the
//! next one is elected. The second failure goes to all who are left. A flight that nobody waits for ends with its leader.
//!
//! The lock of a flight is taken after that of its stripe, never before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as Gauge;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;
use std::time::Instant;

use umbo_types::Criticality;

use super::board::Board;
use super::fill::Fill;
use super::sync::{Mutex, MutexGuard};

/// Leaders a flight may have, one after the other.
const LEADERS_MAX: u8 = 2;

/// Why a leader brought nothing.
#[derive(Debug, Clone)]
pub(crate) enum Failure<E> {
    /// The store has answered so.
    Error(E),
    /// The leader has panicked or was dropped.
    Lost,
}

#[derive(Debug)]
struct State<V, E> {
    /// Number of the leader, from 1.
    leader: u8,
    /// By id; with whom to wake.
    waiters: BTreeMap<u64, Option<Waker>>,
    next_id: u64,
    elected: Option<u64>,
    landed: Option<Result<Fill<V>, Failure<E>>>,
    held: Option<Held>,
}

/// Bytes of an answer that somebody has still to pick up; counts them down on drop.
#[derive(Debug)]
struct Held {
    gauge: Arc<Gauge>,
    bytes: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.gauge.fetch_sub(self.bytes, Relaxed);
    }
}

/// Those who wait for a read under way. Made with the first of them.
#[derive(Debug)]
pub(crate) struct Flight<V, E> {
    state: Mutex<State<V, E>>,
}

/// What a waiter finds when it looks.
pub(crate) enum Progress<V, E> {
    /// Nothing yet.
    Waiting,
    /// It is to lead, as the leader of this number.
    Elected(u8),
    /// The end, for this waiter.
    Landed(Result<Fill<V>, Failure<E>>),
}

/// What comes after a leader has failed.
pub(crate) enum Succession {
    /// A follower was elected, and is to be woken.
    Elected(Wake),
    /// Nobody is left to lead: the flight has landed, and these are to be woken.
    Over(Wake),
}

/// Those to be woken, once no lock is held.
#[derive(Debug, Default)]
#[must_use = "waiters that are not woken wait for ever"]
pub(crate) struct Wake(Vec<Waker>);

impl Wake {
    pub(crate) fn now(self) {
        for waker in self.0 {
            waker.wake();
        }
    }
}

impl<V, E> Default for Flight<V, E> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                leader: 1,
                waiters: BTreeMap::new(),
                next_id: 0,
                elected: None,
                landed: None,
                held: None,
            }),
        }
    }
}

impl<V: Clone, E: Clone> Flight<V, E> {
    /// Adds a follower, and returns its id; none where `waiters_max` wait already.
    pub(crate) fn follow(&self, waiters_max: usize) -> Option<u64> {
        let mut state = self.lock();
        // The client of the leader waits, too.
        (state.waiters.len() + 1 < waiters_max).then(|| state.add())
    }

    /// Returns the number of the leader, from 1.
    pub(crate) fn leader(&self) -> u8 {
        self.lock().leader
    }

    /// Tells a waiter where it stands; where it has to wait on, `waker` is woken.
    pub(crate) fn progress(&self, id: u64, waker: &Waker) -> Progress<V, E> {
        let mut state = self.lock();
        if let Some(landed) = state.landed.clone() {
            state.waiters.remove(&id);
            return Progress::Landed(landed);
        }
        if state.elected == Some(id) {
            state.elected = None;
            state.waiters.remove(&id);
            return Progress::Elected(state.leader);
        }
        if let Some(known) = state.waiters.get_mut(&id)
            && !known.as_ref().is_some_and(|known| known.will_wake(waker))
        {
            *known = Some(waker.clone());
        }
        Progress::Waiting
    }

    /// Takes out a waiter that does not wait any more; says whether it was the one to lead.
    pub(crate) fn leave(&self, id: u64) -> bool {
        let mut state = self.lock();
        state.waiters.remove(&id);
        state.elected == Some(id)
    }

    /// Lands the flight with an answer; its bytes count in `gauge` until all have picked it up.
    /// Returns how many followers there are, and who is to be woken.
    pub(crate) fn land(&self, fill: &Fill<V>, gauge: &Arc<Gauge>) -> (usize, Wake) {
        let mut state = self.lock();
        if state.waiters.is_empty() {
            return (0, Wake::default());
        }
        state.landed = Some(Ok(fill.clone()));
        let bytes = fill.bytes as u64;
        gauge.fetch_add(bytes, Relaxed);
        state.held = Some(Held {
            gauge: Arc::clone(gauge),
            bytes,
        });
        (state.waiters.len(), state.wake_all())
    }

    /// Ends the term of the leader of this number, and elects its successor where there may be one.
    pub(crate) fn fail(&self, leader: u8, failure: Failure<E>) -> Succession {
        let mut state = self.lock();
        if leader < LEADERS_MAX
            && let Some(wake) = state.elect()
        {
            state.leader = leader + 1;
            return Succession::Elected(wake);
        }
        state.landed = Some(Err(failure));
        Succession::Over(state.wake_all())
    }

    /// Elects another follower in the place of one that has left before it led.
    pub(crate) fn pass_on(&self) -> Succession {
        let mut state = self.lock();
        state.elected = None;
        if let Some(wake) = state.elect() {
            return Succession::Elected(wake);
        }
        state.landed = Some(Err(Failure::Lost));
        Succession::Over(state.wake_all())
    }

    fn lock(&self) -> MutexGuard<'_, State<V, E>> {
        Board::<V, E>::lock(&self.state)
    }
}

impl<V, E> State<V, E> {
    fn add(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.waiters.insert(id, None);
        id
    }

    fn elect(&mut self) -> Option<Wake> {
        let (&id, waker) = self.waiters.iter_mut().next()?;
        self.elected = Some(id);
        Some(Wake(waker.take().into_iter().collect()))
    }

    fn wake_all(&mut self) -> Wake {
        let wakers = self.waiters.values_mut().filter_map(Option::take);
        Wake(wakers.collect())
    }
}

/// What a leader is told when it is asked to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lead {
    pub(crate) hash: u64,
    pub(crate) claim: u64,
    pub(crate) leader: u8,
    pub(crate) criticality: Criticality,
    /// When the first leader began.
    pub(crate) started: Instant,
}

impl Lead {
    /// Returns 1 for the first leader of a flight, 2 for the one that replaces it.
    pub fn attempt(&self) -> u8 {
        self.leader
    }
}
