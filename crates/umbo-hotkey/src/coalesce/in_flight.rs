//! The reads in flight, by key.
//!
//! Divided into stripes by hash, each with a lock that is held for a few comparisons. A read is entered before it asks
//! the store and removed when it is over. The flight, where others wait, is made with the first follower, so that a
//! read without followers costs two short locks. The invariants: a key has at most one read that others join; others no
//! longer join a read that a write or its deadline has overtaken; a read is removed when it has completed or failed for
//! good, and not before.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64 as Gauge;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use umbo_types::{Criticality, RequestUnits};

use super::fetched::FlightError;
use super::flight::{Flight, LeaderToken, NextLeader};
use super::generation::Stamp;
use super::key::{KeyRef, ReadKey};
use super::sync::{Mutex, MutexGuard};

/// Bounds of the in-flight reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlightSettings {
    /// Time that a leader has for its read. Readers do not join a read that should have ended.
    pub timeout: Duration,
    /// Most readers of one flight, its leader included.
    pub readers_max: usize,
    /// Most reads in flight, about.
    pub flights_max: usize,
    /// Bytes of results that followers have still to pick up; above it no reader becomes a follower.
    pub held_bytes_max: u64,
    /// Stripes of the table.
    pub stripes: usize,
}

impl Default for FlightSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            readers_max: 10_000,
            flights_max: 65_536,
            held_bytes_max: 256 << 20,
            stripes: 64,
        }
    }
}

/// Counts of single-flight since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlightTotals {
    /// Reads of the store that others could join, second leaders and refreshes included.
    pub leaders: u64,
    /// Reads that joined one in flight.
    pub followers: u64,
    /// Followers that replaced a failed leader.
    pub elections: u64,
    /// Reads refused because a limit was reached.
    pub crowded: u64,
    /// In-flight reads that readers stopped joining because of a write or their deadline.
    pub overtaken: u64,
    /// Results not cached because a write came in between.
    pub stale: u64,
}

impl FlightTotals {
    fn add(&mut self, other: &Self) {
        self.leaders += other.leaders;
        self.followers += other.followers;
        self.elections += other.elections;
        self.crowded += other.crowded;
        self.overtaken += other.overtaken;
        self.stale += other.stale;
    }
}

/// The facts about a request that a read needs, apart from its key.
#[derive(Debug, Clone, Copy)]
pub struct ReadContext {
    /// Now.
    pub now: Instant,
    /// Criticality of the request.
    pub criticality: Criticality,
    /// Estimated cost of the read if it asks the store.
    pub price: RequestUnits,
    /// Age of the oldest result that the client takes (`Cache-Control: max-age`); `None` for any age.
    pub age_max: Option<Duration>,
}

/// A read of the store that others may join.
#[derive(Debug)]
pub(crate) struct InFlightRead<V, E> {
    id: u64,
    pub(crate) key: ReadKey,
    /// State of the writes when it began.
    pub(crate) stamp: Stamp,
    pub(crate) started: Instant,
    /// Whether the key was hot when it began.
    pub(crate) is_hot: bool,
    /// Whether a newer read has taken its place.
    is_overtaken: bool,
    /// Highest criticality of all requests that have joined.
    criticality: Criticality,
    pub(crate) flight: Option<Arc<Flight<V, E>>>,
}

/// Reads in flight whose hashes have some bits in common.
#[derive(Debug)]
pub(crate) struct FlightStripe<V, E> {
    reads: Vec<InFlightRead<V, E>>,
    next_id: u64,
    pub(crate) totals: FlightTotals,
}

impl<V, E> FlightStripe<V, E> {
    /// Returns the in-flight read of a key that others may join.
    pub(crate) fn find(&mut self, key: &KeyRef<'_>) -> Option<&mut InFlightRead<V, E>> {
        let mut reads = self.reads.iter_mut();
        reads.find(|read| !read.is_overtaken && read.key.borrow() == *key)
    }

    fn of(&mut self, token: &LeaderToken) -> Option<&mut InFlightRead<V, E>> {
        self.reads.iter_mut().find(|read| read.id == token.id)
    }

    /// Removes a read that is over.
    pub(crate) fn remove(&mut self, token: &LeaderToken) -> Option<InFlightRead<V, E>> {
        let at = self.reads.iter().position(|read| read.id == token.id)?;
        Some(self.reads.swap_remove(at))
    }
}

/// The part of a reader in the in-flight read of its key.
pub(crate) enum FlightRole<V, E> {
    /// The reader leads: there is no flight of the key.
    Leader(LeaderToken),
    /// The reader follows this leader, with this id in the flight.
    Follower(Arc<Flight<V, E>>, LeaderToken, u64),
    /// A limit is reached.
    Refused,
}

/// All reads in flight of a dispatcher.
#[derive(Debug)]
pub(crate) struct InFlightReads<V, E> {
    stripes: Box<[Mutex<FlightStripe<V, E>>]>,
    settings: FlightSettings,
    /// Bytes of results that followers have still to pick up.
    pub(crate) held_bytes: Arc<Gauge>,
}

impl<V: Clone, E: Clone> InFlightReads<V, E> {
    pub(crate) fn new(settings: FlightSettings) -> Self {
        let stripe = |_| {
            Mutex::new(FlightStripe {
                reads: Vec::new(),
                next_id: 0,
                totals: FlightTotals::default(),
            })
        };
        let stripes = settings.stripes.next_power_of_two();
        Self {
            stripes: (0..stripes).map(stripe).collect(),
            settings,
            held_bytes: Arc::default(),
        }
    }

    /// Locks the stripe of a hash. A panic leaves the stripe whole, because nothing calls foreign code while it
    /// changes.
    pub(crate) fn stripe(&self, hash: u64) -> MutexGuard<'_, FlightStripe<V, E>> {
        let at = (hash >> 40) as usize & (self.stripes.len() - 1);
        let stripe = self.stripes[at].lock();
        stripe.unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the in-flight read of a key, or enters one.
    pub(crate) fn join_or_lead(
        &self,
        stripe: &mut FlightStripe<V, E>,
        key: &KeyRef<'_>,
        stamp: Stamp,
        is_hot: bool,
        context: &ReadContext,
    ) -> FlightRole<V, E> {
        if let Some(read) = stripe.find(key) {
            if self.is_joinable(read, stamp, context) {
                let role = self.join(read, context);
                match role {
                    FlightRole::Follower(..) => stripe.totals.followers += 1,
                    _ => stripe.totals.crowded += 1,
                }
                return role;
            }
            // Followers keep the overtaken read; all other requests have a newer one.
            read.is_overtaken = true;
            stripe.totals.overtaken += 1;
        }
        if stripe.reads.len() >= (self.settings.flights_max / self.stripes.len()).max(1) {
            stripe.totals.crowded += 1;
            return FlightRole::Refused;
        }
        let id = stripe.next_id;
        stripe.next_id += 1;
        stripe.reads.push(InFlightRead {
            id,
            key: key.to_owned(),
            stamp,
            started: context.now,
            is_hot,
            is_overtaken: false,
            criticality: context.criticality,
            flight: None,
        });
        stripe.totals.leaders += 1;
        FlightRole::Leader(LeaderToken {
            hash: key.hash(),
            id,
            attempt: 1,
            criticality: context.criticality,
            started: context.now,
        })
    }

    fn is_joinable(&self, read: &InFlightRead<V, E>, stamp: Stamp, context: &ReadContext) -> bool {
        let age = context.now.saturating_duration_since(read.started);
        let attempt = read.flight.as_ref().map_or(1, |flight| flight.attempt());
        read.stamp == stamp
            && age < self.settings.timeout * u32::from(attempt)
            && context.age_max.is_none_or(|age_max| age <= age_max)
    }

    fn join(&self, read: &mut InFlightRead<V, E>, context: &ReadContext) -> FlightRole<V, E> {
        if self.held_bytes.load(Relaxed) > self.settings.held_bytes_max {
            return FlightRole::Refused;
        }
        let flight = read.flight.get_or_insert_with(Arc::default);
        let Some(follower) = flight.follow(self.settings.readers_max) else {
            return FlightRole::Refused;
        };
        read.criticality = read.criticality.max(context.criticality);
        let token = LeaderToken {
            hash: read.key.borrow().hash(),
            id: read.id,
            attempt: flight.attempt(),
            criticality: read.criticality,
            started: read.started,
        };
        FlightRole::Follower(Arc::clone(flight), token, follower)
    }

    /// Ends the attempt of a leader; without a successor the read is over.
    pub(crate) fn fail(&self, token: &LeaderToken, error: FlightError<E>) {
        self.succeed(token, |flight| flight.fail(token.attempt, error));
    }

    /// Replaces an elected follower that has left.
    pub(crate) fn pass_on(&self, token: &LeaderToken) {
        self.succeed(token, Flight::pass_on);
    }

    fn succeed(&self, token: &LeaderToken, next: impl FnOnce(&Flight<V, E>) -> NextLeader) {
        let mut stripe = self.stripe(token.hash);
        let flight = stripe.of(token).and_then(|read| read.flight.clone());
        let succession = flight.map(|flight| next(&flight));
        if succession.as_ref().is_none_or(|next| next.is_over) {
            stripe.remove(token);
        }
        drop(stripe);
        if let Some(succession) = succession {
            succession.wakeups.wake();
        }
    }

    /// Counts a follower that leads from now on, and returns its token.
    pub(crate) fn elected(&self, followed: &LeaderToken, attempt: u8) -> LeaderToken {
        let mut stripe = self.stripe(followed.hash);
        stripe.totals.elections += 1;
        stripe.totals.leaders += 1;
        let read = stripe.of(followed);
        let criticality = read.map_or(followed.criticality, |read| read.criticality);
        LeaderToken {
            attempt,
            criticality,
            ..*followed
        }
    }

    /// Returns the counts, and the number of reads in flight.
    pub(crate) fn totals(&self) -> (FlightTotals, usize) {
        let (mut totals, mut flights) = (FlightTotals::default(), 0);
        for stripe in &self.stripes {
            let stripe = stripe.lock().unwrap_or_else(PoisonError::into_inner);
            totals.add(&stripe.totals);
            flights += stripe.reads.len();
        }
        (totals, flights)
    }
}
