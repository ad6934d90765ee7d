//! The board: which flights are under way, by key.
//!
//! Divided into stripes by hash, each with a lock that is held for a few comparisons. What a flight
//! brings back is kept, if at all, under that lock, with the stamp checked there. The invariants: a
//! key has at most one flight that readers join; a flight leaves the board when it lands, fails for
//! good, or is overtaken by a write or by its deadline, and then takes on nobody any more.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64 as Gauge;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use umbo_types::Criticality;

use super::afterglow::{Afterglow, Ember};
use super::fill::Fill;
use super::flight::{Departure, Failure, Flight, Succession};
use super::key::KeyRef;
use super::sync::{Mutex, MutexGuard};

/// Bounds of the flights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlightSettings {
    /// Time a leader has for its read. The one who reads keeps to it; readers do not join a flight
    /// that should have ended.
    pub timeout: Duration,
    /// Readers that may wait for one flight.
    pub waiters_max: usize,
    /// Flights that may be under way, about.
    pub flights_max: usize,
    /// Bytes of answers that may be on their way to those who waited for them; readers that would
    /// wait while there are more are turned away.
    pub landed_bytes_max: u64,
    /// Bytes of all afterglows together.
    pub glow_bytes_max: u64,
    /// Stripes of the board.
    pub stripes: usize,
}

impl Default for FlightSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            waiters_max: 10_000,
            flights_max: 65_536,
            landed_bytes_max: 256 << 20,
            glow_bytes_max: 16 << 20,
            stripes: 512,
        }
    }
}

/// What has happened on the board since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BoardTotals {
    /// Reads that went to the store, the second leaders and refreshes included.
    pub leaders: u64,
    /// Reads that waited for another one's.
    pub followers: u64,
    /// Reads answered from the afterglow.
    pub afterglows: u64,
    /// Followers that have replaced a failed leader.
    pub elections: u64,
    /// Reads turned away because too many waited.
    pub crowded: u64,
    /// Flights that readers stopped joining because a write or their deadline overtook them.
    pub overtaken: u64,
    /// Answers not kept because a write came between.
    pub stale: u64,
}

impl BoardTotals {
    fn add(&mut self, other: &Self) {
        self.leaders += other.leaders;
        self.followers += other.followers;
        self.afterglows += other.afterglows;
        self.elections += other.elections;
        self.crowded += other.crowded;
        self.overtaken += other.overtaken;
        self.stale += other.stale;
    }
}

#[derive(Debug)]
pub(crate) struct Stripe<V, E> {
    pub(crate) flights: Vec<Arc<Flight<V, E>>>,
    pub(crate) afterglow: Afterglow<V>,
    pub(crate) totals: BoardTotals,
}

/// All flights of a pod.
#[derive(Debug)]
pub(crate) struct Board<V, E> {
    stripes: Box<[Mutex<Stripe<V, E>>]>,
    pub(crate) settings: FlightSettings,
    glow_bytes: Gauge,
    /// Bytes of landed answers that somebody has still to pick up.
    pub(crate) landed_bytes: Arc<Gauge>,
}

/// What a reader found on the board.
pub(crate) enum Boarding<V, E> {
    /// Nobody reads the key: the reader leads.
    Lead(Arc<Flight<V, E>>),
    /// The reader waits under this id.
    Follow(Arc<Flight<V, E>>, u64),
    /// Too many wait.
    Crowded,
}

impl<V: Clone, E: Clone> Board<V, E> {
    pub(crate) fn new(settings: FlightSettings) -> Self {
        let stripe = || Stripe {
            flights: Vec::new(),
            afterglow: Afterglow::default(),
            totals: BoardTotals::default(),
        };
        let stripes = settings.stripes.next_power_of_two();
        Self {
            stripes: (0..stripes).map(|_| Mutex::new(stripe())).collect(),
            settings,
            glow_bytes: Gauge::new(0),
            landed_bytes: Arc::default(),
        }
    }

    /// Locks anything of this module; what a panic has left behind is still whole, because nothing
    /// in here calls foreign code while it changes something.
    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stripe(&self, hash: u64) -> MutexGuard<'_, Stripe<V, E>> {
        let at = (hash >> 40) as usize & (self.stripes.len() - 1);
        Self::lock(&self.stripes[at])
    }

    fn stripe_flights_max(&self) -> usize {
        (self.settings.flights_max / self.stripes.len()).max(1)
    }

    /// Joins the flight of a key, or begins one with what `depart` says.
    pub(crate) fn board(
        &self,
        stripe: &mut Stripe<V, E>,
        key: &KeyRef<'_>,
        criticality: Criticality,
        is_joinable: impl FnOnce(&Flight<V, E>) -> bool,
        depart: impl FnOnce(&mut Afterglow<V>) -> Departure,
    ) -> Boarding<V, E> {
        let found = stripe.flights.iter().position(|f| f.key.borrow() == *key);
        if let Some(at) = found {
            let flight = &stripe.flights[at];
            if is_joinable(flight) {
                let is_full = self.landed_bytes.load(Relaxed) > self.settings.landed_bytes_max;
                let waiters_max = if is_full {
                    0
                } else {
                    self.settings.waiters_max
                };
                return if let Some(id) = flight.follow(criticality, waiters_max) {
                    stripe.totals.followers += 1;
                    Boarding::Follow(Arc::clone(flight), id)
                } else {
                    stripe.totals.crowded += 1;
                    Boarding::Crowded
                };
            }
            // Those who joined before keep it; everybody else has a newer one.
            stripe.flights.swap_remove(at);
            stripe.totals.overtaken += 1;
        }
        if stripe.flights.len() >= self.stripe_flights_max() {
            stripe.totals.crowded += 1;
            return Boarding::Crowded;
        }
        let flight = Arc::new(Flight::new(depart(&mut stripe.afterglow)));
        stripe.flights.push(Arc::clone(&flight));
        stripe.totals.leaders += 1;
        Boarding::Lead(flight)
    }

    /// Takes a flight off the board, where it is still on it.
    pub(crate) fn take_off(stripe: &mut Stripe<V, E>, flight: &Arc<Flight<V, E>>) {
        let is_it = |held: &Arc<Flight<V, E>>| Arc::ptr_eq(held, flight);
        if let Some(at) = stripe.flights.iter().position(is_it) {
            stripe.flights.swap_remove(at);
        }
    }

    /// Ends the term of a leader; where nobody succeeds it, the flight is over.
    pub(crate) fn fail(&self, flight: &Arc<Flight<V, E>>, leader: u8, failure: Failure<E>) {
        self.succeed(flight, || flight.fail(leader, failure));
    }

    /// Finds another one in the place of an elected follower that has left.
    pub(crate) fn pass_on(&self, flight: &Arc<Flight<V, E>>) {
        self.succeed(flight, || flight.pass_on());
    }

    fn succeed(&self, flight: &Arc<Flight<V, E>>, next: impl FnOnce() -> Succession) {
        let mut stripe = self.stripe(flight.key.borrow().hash());
        let wake = match next() {
            Succession::Elected(wake) => wake,
            Succession::Over(wake) => {
                Self::take_off(&mut stripe, flight);
                wake
            }
        };
        drop(stripe);
        wake.now();
    }

    /// Counts a follower that now leads.
    pub(crate) fn elected(&self, flight: &Flight<V, E>) {
        let mut stripe = self.stripe(flight.key.borrow().hash());
        stripe.totals.elections += 1;
        stripe.totals.leaders += 1;
    }

    /// Keeps an answer for a moment, where there is room.
    pub(crate) fn glow(&self, stripe: &mut Stripe<V, E>, flight: &Flight<V, E>, fill: &Fill<V>) {
        if !stripe.afterglow.has_room(&flight.key, flight.started) {
            return;
        }
        let ember = Ember {
            key: flight.key.clone(),
            fill: fill.clone(),
            stamp: flight.stamp,
            read_at: flight.started,
        };
        let bytes = ember.bytes() as u64;
        if self.glow_bytes.load(Relaxed) + bytes > self.settings.glow_bytes_max {
            return;
        }
        let freed = stripe.afterglow.keep(ember) as u64;
        self.glow_bytes.fetch_add(bytes, Relaxed);
        self.glow_bytes.fetch_sub(freed, Relaxed);
    }

    /// Lets the afterglow of a stripe go where `is_over` says so.
    pub(crate) fn extinguish(
        &self,
        stripe: &mut Stripe<V, E>,
        is_over: impl FnOnce(&Ember<V>) -> bool,
    ) {
        let freed = stripe.afterglow.extinguish(is_over) as u64;
        self.glow_bytes.fetch_sub(freed, Relaxed);
    }

    /// Lets all afterglows go that are over. To be called now and then.
    pub(crate) fn sweep(&self, now: Instant) {
        if self.glow_bytes.load(Relaxed) == 0 {
            return;
        }
        for stripe in &self.stripes {
            let mut stripe = Self::lock(stripe);
            self.extinguish(&mut stripe, |ember| !ember.is_fresh(now));
        }
    }

    /// Returns what has happened so far.
    pub(crate) fn totals(&self) -> BoardTotals {
        let mut totals = BoardTotals::default();
        for stripe in &self.stripes {
            totals.add(&Self::lock(stripe).totals);
        }
        totals
    }

    /// Returns the number of flights that readers may join.
    pub(crate) fn flights(&self) -> usize {
        let flights = self.stripes.iter().map(|s| Self::lock(s).flights.len());
        flights.sum()
    }

    /// Returns the bytes of all afterglows.
    pub(crate) fn glow_bytes(&self) -> u64 {
        self.glow_bytes.load(Relaxed)
    }
}
