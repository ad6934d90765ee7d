//! The board: which reads are under way, by key.
//!
//! Divided into stripes by hash, each with a lock that is held for a few comparisons. A read writes
//! a *claim* on the board before it asks the store, and takes it off when it is over; the flight
//! itself, in which others wait, is made with the first of them, so that a read nobody joins costs
//! two short locks. What a read brings back is kept, if at all, under the lock of its stripe, with
//! the stamp checked there. The invariants: a key has at most one claim that readers join; a claim
//! that a write or its deadline has overtaken is joined by nobody any more; a claim leaves the
//! board when its read has landed or failed for good, and not before.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64 as Gauge;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use umbo_types::Criticality;

use super::afterglow::{Afterglow, Ember};
use super::flight::{Failure, Flight, Lead, Succession};
use super::generation::Stamp;
use super::key::{KeyRef, ReadKey};
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
    /// Stripes of the board. Few, so that they stay in the processor's cache with what they hold:
    /// every cold read touches one.
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
            stripes: 64,
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

/// A read under way.
#[derive(Debug)]
pub(crate) struct Claim<V, E> {
    id: u64,
    pub(crate) key: ReadKey,
    /// State of the writes when it began.
    pub(crate) stamp: Stamp,
    pub(crate) started: Instant,
    /// Decides, with the settings, how long its answer is kept.
    pub(crate) random: u64,
    /// Whether the key was hot when it began.
    pub(crate) is_hot: bool,
    /// Whether the key was read just before.
    pub(crate) is_repeated: bool,
    /// Whether something newer has taken its place.
    is_overtaken: bool,
    /// Highest of all who have joined.
    criticality: Criticality,
    pub(crate) flight: Option<Arc<Flight<V, E>>>,
}

impl<V: Clone, E: Clone> Claim<V, E> {
    fn flight(&mut self) -> &Arc<Flight<V, E>> {
        self.flight.get_or_insert_with(Arc::default)
    }

    fn leader(&self) -> u8 {
        self.flight.as_ref().map_or(1, |flight| flight.leader())
    }
}

/// What a reader says that wants a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want {
    /// State of the writes now.
    pub(crate) stamp: Stamp,
    pub(crate) now: Instant,
    pub(crate) criticality: Criticality,
    pub(crate) age_max: Option<Duration>,
    pub(crate) random: u64,
    pub(crate) is_hot: bool,
}

#[derive(Debug)]
pub(crate) struct Stripe<V, E> {
    claims: Vec<Claim<V, E>>,
    next_id: u64,
    pub(crate) afterglow: Afterglow<V>,
    pub(crate) totals: BoardTotals,
}

impl<V, E> Stripe<V, E> {
    /// Says whether somebody reads the key.
    pub(crate) fn is_claimed(&self, key: &KeyRef<'_>) -> bool {
        let mut claims = self.claims.iter();
        claims.any(|claim| !claim.is_overtaken && claim.key.borrow() == *key)
    }

    /// Returns the claim of a leader.
    pub(crate) fn claim(&mut self, lead: &Lead) -> Option<&mut Claim<V, E>> {
        self.claims.iter_mut().find(|claim| claim.id == lead.claim)
    }

    /// Takes a claim off the board: its read is over.
    pub(crate) fn take_off(&mut self, lead: &Lead) -> Option<Claim<V, E>> {
        let at = self
            .claims
            .iter()
            .position(|claim| claim.id == lead.claim)?;
        Some(self.claims.swap_remove(at))
    }

    /// Takes a claim off the board that nobody wants to look at again. It is dropped where it is:
    /// claims are large, and this is the way of nearly every read.
    pub(crate) fn drop_claim(&mut self, lead: &Lead) {
        let Some(last) = self.claims.len().checked_sub(1) else {
            return;
        };
        if let Some(at) = self.claims.iter().position(|claim| claim.id == lead.claim) {
            self.claims.swap(at, last);
            self.claims.truncate(last);
        }
    }
}

/// All reads under way of a pod.
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
    Lead(Lead),
    /// The reader waits for the read of this leader, under this id.
    Follow(Arc<Flight<V, E>>, Lead, u64),
    /// Too many wait.
    Crowded,
}

impl<V: Clone, E: Clone> Board<V, E> {
    pub(crate) fn new(settings: FlightSettings) -> Self {
        let stripe = || Stripe {
            claims: Vec::new(),
            next_id: 0,
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

    fn stripe_claims_max(&self) -> usize {
        (self.settings.flights_max / self.stripes.len()).max(1)
    }

    /// Joins the read of a key, or claims it.
    pub(crate) fn board(
        &self,
        stripe: &mut Stripe<V, E>,
        key: &KeyRef<'_>,
        want: &Want,
    ) -> Boarding<V, E> {
        let is_it = |claim: &&mut Claim<V, E>| !claim.is_overtaken && claim.key.borrow() == *key;
        if let Some(claim) = stripe.claims.iter_mut().find(is_it) {
            if self.is_joinable(claim, want) {
                let joined = self.follow(claim, want);
                match joined {
                    Boarding::Follow(..) => stripe.totals.followers += 1,
                    _ => stripe.totals.crowded += 1,
                }
                return joined;
            }
            // Those who joined before keep it; everybody else has a newer one.
            claim.is_overtaken = true;
            stripe.totals.overtaken += 1;
        }
        if stripe.claims.len() >= self.stripe_claims_max() {
            stripe.totals.crowded += 1;
            return Boarding::Crowded;
        }
        let id = stripe.next_id;
        stripe.next_id += 1;
        stripe.claims.push(Claim {
            id,
            key: key.to_owned(),
            stamp: want.stamp,
            started: want.now,
            random: want.random,
            is_hot: want.is_hot,
            is_repeated: stripe.afterglow.is_repeated(key.hash(), want.now),
            is_overtaken: false,
            criticality: want.criticality,
            flight: None,
        });
        stripe.totals.leaders += 1;
        Boarding::Lead(Lead {
            hash: key.hash(),
            claim: id,
            leader: 1,
            criticality: want.criticality,
            started: want.now,
        })
    }

    fn is_joinable(&self, claim: &Claim<V, E>, want: &Want) -> bool {
        let age = want.now.saturating_duration_since(claim.started);
        claim.stamp == want.stamp
            && age < self.settings.timeout * u32::from(claim.leader())
            && want.age_max.is_none_or(|age_max| age <= age_max)
    }

    fn follow(&self, claim: &mut Claim<V, E>, want: &Want) -> Boarding<V, E> {
        if self.landed_bytes.load(Relaxed) > self.settings.landed_bytes_max {
            return Boarding::Crowded;
        }
        let Some(waiter) = claim.flight().follow(self.settings.waiters_max) else {
            return Boarding::Crowded;
        };
        claim.criticality = claim.criticality.max(want.criticality);
        let lead = Lead {
            hash: claim.key.borrow().hash(),
            claim: claim.id,
            leader: claim.leader(),
            criticality: claim.criticality,
            started: claim.started,
        };
        Boarding::Follow(Arc::clone(claim.flight()), lead, waiter)
    }

    /// Returns the highest criticality of all who wait for this leader's read now.
    pub(crate) fn criticality(&self, lead: &Lead) -> Criticality {
        let mut stripe = self.stripe(lead.hash);
        let claim = stripe.claim(lead);
        claim.map_or(lead.criticality, |claim| claim.criticality)
    }

    /// Ends the term of a leader; where nobody succeeds it, the read is over.
    pub(crate) fn fail(&self, lead: &Lead, failure: Failure<E>) {
        self.succeed(lead, |flight| flight.fail(lead.leader, failure));
    }

    /// Finds another one in the place of an elected follower that has left.
    pub(crate) fn pass_on(&self, lead: &Lead) {
        self.succeed(lead, Flight::pass_on);
    }

    fn succeed(&self, lead: &Lead, next: impl FnOnce(&Flight<V, E>) -> Succession) {
        let mut stripe = self.stripe(lead.hash);
        let flight = stripe.claim(lead).and_then(|claim| claim.flight.clone());
        let wake = match flight.map(|flight| next(&flight)) {
            Some(Succession::Elected(wake)) => wake,
            Some(Succession::Over(wake)) => {
                stripe.drop_claim(lead);
                wake
            }
            None => {
                stripe.drop_claim(lead);
                return;
            }
        };
        drop(stripe);
        wake.now();
    }

    /// Counts a follower that now leads, and says what it leads.
    pub(crate) fn elected(&self, followed: &Lead, leader: u8) -> Lead {
        let mut stripe = self.stripe(followed.hash);
        stripe.totals.elections += 1;
        stripe.totals.leaders += 1;
        Lead {
            leader,
            ..*followed
        }
    }

    /// Keeps an answer for a moment, where there is room.
    pub(crate) fn glow(&self, stripe: &mut Stripe<V, E>, ember: Ember<V>) {
        if !stripe.afterglow.has_room(&ember.key, ember.read_at) {
            return;
        }
        let bytes = ember.bytes() as u64;
        if self.glow_bytes.load(Relaxed) + bytes > self.settings.glow_bytes_max {
            return;
        }
        let freed = stripe.afterglow.keep(ember) as u64;
        self.glow_bytes.fetch_add(bytes, Relaxed);
        self.glow_bytes.fetch_sub(freed, Relaxed);
    }

    /// Makes an afterglow of the spark of this key, where it has one.
    pub(crate) fn kindle(&self, stripe: &mut Stripe<V, E>, key: &KeyRef<'_>, now: Instant) {
        if let Some(spark) = stripe.afterglow.take_spark(key, now) {
            self.glow(stripe, spark);
        }
    }

    /// Lets what glows in a stripe go where `is_over` says so.
    pub(crate) fn extinguish(
        &self,
        stripe: &mut Stripe<V, E>,
        is_over: impl Fn(&Ember<V>) -> bool,
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

    /// Returns the number of reads under way.
    pub(crate) fn flights(&self) -> usize {
        let claims = self.stripes.iter().map(|s| Self::lock(s).claims.len());
        claims.sum()
    }

    /// Returns the bytes of all afterglows.
    pub(crate) fn glow_bytes(&self) -> u64 {
        self.glow_bytes.load(Relaxed)
    }
}
