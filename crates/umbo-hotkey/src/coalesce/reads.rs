//! Reads that share: from the local cache, from the afterglow, or from one read of the store.
//!
//! Owns the protocol of leader and follower. The leader's read is made where it was asked for; should
//! its client leave, it goes on in a task of its own, so that nobody can cancel what others wait
//! for. Each reader brings the read along, so that a follower can lead when the leader has failed.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use umbo_types::Criticality;

use super::afterglow::{Ember, SPARK_BYTES_MAX};
use super::board::{Board, BoardTotals, Boarding, FlightSettings, Stripe, Want};
use super::cache::{CacheSettings, Cached, LocalCache};
use super::duty::{Driving, Holder, Landing, Leading, Waiting};
use super::fill::{Fill, Payload, Served, ShareError, Source};
use super::flight::{Failure, Lead};
use super::generation::{Generations, Stamp, WriteGuard};
use super::key::KeyRef;

/// A read of the store, to be run by a leader.
pub type Reading<V, E> = Pin<Box<dyn Future<Output = Result<Fill<V>, E>> + Send>>;
/// Work that outlives the request it came from.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;
/// Starts a task on the runtime of the caller.
pub type Spawner = Box<dyn Fn(Task) + Send + Sync>;

/// What a reader says beside its key.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// Now.
    pub now: Instant,
    /// How critical the request is.
    pub criticality: Criticality,
    /// Age of the oldest answer the client takes (`Cache-Control: max-age`); none for any age.
    pub age_max: Option<Duration>,
    /// A random number.
    pub random: u64,
}

/// What is to be done about a read that would be over at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Solo<V> {
    /// Nothing: somebody else has just read it.
    Served(Served<V>),
    /// It is being read by somebody whose read is not over at once: share it.
    Join,
    /// Read it, and land it with this stamp.
    Read(Stamp),
}

/// What meets where tasks meet.
pub(crate) struct SharedReads<V, E> {
    generations: Arc<Generations>,
    pub(super) board: Board<V, E>,
    cache: LocalCache<V>,
    spawner: Spawner,
}

impl<V, E> fmt::Debug for SharedReads<V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReads").finish_non_exhaustive()
    }
}

/// How far a read gets without waiting.
enum Begun<V: Payload, E: Payload, F> {
    /// To its end.
    Over(Result<Served<V>, ShareError<E>>),
    /// Its own read of the store is under way.
    Leading(Driving<V, E>, Instant),
    /// Somebody else's is; what it brought along to read with is returned.
    Following(Waiting<V, E>, F),
}

impl<V: Payload, E: Payload> SharedReads<V, E> {
    pub(crate) fn new(
        generations: usize,
        flights: FlightSettings,
        cache: CacheSettings,
        spawner: Spawner,
    ) -> Self {
        Self {
            generations: Arc::new(Generations::new(generations)),
            board: Board::new(flights),
            cache: LocalCache::new(cache),
            spawner,
        }
    }

    /// Returns the kept answer of a hot key.
    pub(crate) fn look(&self, key: &KeyRef<'_>, terms: &Terms) -> Option<Cached<V>> {
        let stamp = self.generations.stamp(key);
        self.cache.get(key, stamp, terms.now, terms.age_max)
    }

    /// Reads with others: follows the read of the key that is under way, or leads one.
    ///
    /// Dropping the future gives up the waiting and nothing else.
    pub(crate) async fn share<F>(
        self: &Arc<Self>,
        key: &KeyRef<'_>,
        is_hot: bool,
        terms: &Terms,
        read: F,
    ) -> Result<Served<V>, ShareError<E>>
    where
        F: FnOnce(Lead) -> Reading<V, E>,
    {
        // All that needs no waiting is done in there, so that the future stays small.
        let mut begun = here(|context| self.begin(key, is_hot, terms, read, context)).await;
        if let Begun::Following(waiting, read) = begun {
            let started = waiting.followed.started;
            begun = match waiting.await {
                Landing::Landed(result) => return served(result, Source::Follower, started),
                Landing::Elected(leading) => {
                    here(|context| self.lead(leading, read, context)).await
                }
            };
        }
        match begun {
            Begun::Over(result) => result,
            Begun::Leading(own, started) => served(own.await, Source::Leader, started),
            // Who leads does not follow.
            Begun::Following(..) => Err(ShareError::Lost),
        }
    }

    fn begin<F>(
        self: &Arc<Self>,
        key: &KeyRef<'_>,
        is_hot: bool,
        terms: &Terms,
        read: F,
        context: &mut Context<'_>,
    ) -> Begun<V, E, F>
    where
        F: FnOnce(Lead) -> Reading<V, E>,
    {
        let mut stripe = self.board.stripe(key.hash());
        let stamp = self.generations.stamp(key);
        if let Some(served) = self.glowing(&mut stripe, key, stamp, is_hot, terms) {
            return Begun::Over(Ok(served));
        }
        let boarding = self
            .board
            .board(&mut stripe, key, &want(stamp, is_hot, terms));
        drop(stripe);
        match boarding {
            Boarding::Crowded => Begun::Over(Err(ShareError::Crowded)),
            Boarding::Lead(lead) => {
                self.lead(Leading::new(Holder::Request(self), lead), read, context)
            }
            Boarding::Follow(flight, followed, id) => {
                Begun::Following(Waiting::new(self, flight, followed, id), read)
            }
        }
    }

    /// Leads: reads, to the end where the store answers at once.
    fn lead<F>(
        self: &Arc<Self>,
        leading: Leading<'_, V, E>,
        read: F,
        context: &mut Context<'_>,
    ) -> Begun<V, E, F>
    where
        F: FnOnce(Lead) -> Reading<V, E>,
    {
        let lead = leading.lead;
        let mut reading = read(lead);
        if let Poll::Ready(result) = reading.as_mut().poll(context) {
            return Begun::Over(served(leading.land(result), Source::Leader, lead.started));
        }
        Begun::Leading(Driving::new(self, leading, reading), lead.started)
    }

    /// Reads in a task of its own.
    pub(super) fn spawn(&self, leading: Leading<'static, V, E>, reading: Reading<V, E>) {
        (self.spawner)(Box::pin(async move {
            let result = reading.await;
            drop(leading.land(result));
        }));
    }

    /// Says whether a read may find one of somebody else's, under way or just over.
    pub(crate) fn has_company(&self, key: &KeyRef<'_>) -> bool {
        let stripe = self.board.stripe(key.hash());
        stripe.is_claimed(key) || stripe.afterglow.find(key).is_some()
    }

    /// Says whether a read that would be over at once has to be made.
    pub(crate) fn solo(&self, key: &KeyRef<'_>, terms: &Terms) -> Solo<V> {
        let mut stripe = self.board.stripe(key.hash());
        let stamp = self.generations.stamp(key);
        if let Some(served) = self.glowing(&mut stripe, key, stamp, false, terms) {
            return Solo::Served(served);
        }
        if stripe.is_claimed(key) {
            return Solo::Join;
        }
        stripe.totals.leaders += 1;
        Solo::Read(stamp)
    }

    /// Lands a read that was over at once.
    pub(crate) fn land_solo(&self, key: &KeyRef<'_>, stamp: Stamp, fill: &Fill<V>, terms: &Terms) {
        let mut stripe = self.board.stripe(key.hash());
        let is_repeated = stripe.afterglow.is_repeated(key.hash(), terms.now);
        if !is_repeated && fill.bytes > SPARK_BYTES_MAX || !self.cache.fits(fill.bytes) {
            return;
        }
        if self.generations.stamp(key) != stamp {
            stripe.totals.stale += u64::from(is_repeated);
            return;
        }
        let ember = Ember {
            key: key.to_owned(),
            fill: fill.clone(),
            stamp,
            read_at: terms.now,
        };
        if is_repeated {
            self.board.glow(&mut stripe, ember);
        } else {
            stripe.afterglow.strike(ember);
        }
    }

    /// Reads in a task of its own, unless the key is being read already.
    pub(crate) fn refresh<F>(self: &Arc<Self>, key: &KeyRef<'_>, terms: &Terms, read: F)
    where
        F: FnOnce(Lead) -> Reading<V, E>,
    {
        // Not from the afterglow: what glows is no newer than what is to be refreshed.
        let mut stripe = self.board.stripe(key.hash());
        let stamp = self.generations.stamp(key);
        let boarding = self
            .board
            .board(&mut stripe, key, &want(stamp, true, terms));
        drop(stripe);
        match boarding {
            Boarding::Crowded => {}
            // Somebody reads it already, which is as good; leaves what it has joined.
            Boarding::Follow(flight, followed, id) => {
                drop(Waiting::new(self, flight, followed, id));
            }
            Boarding::Lead(lead) => {
                let leading = Leading::new(Holder::Task(Arc::clone(self)), lead);
                self.spawn(leading, read(lead));
            }
        }
    }

    /// Returns the state that a read which begins now depends on, for [`Self::keep`].
    pub(crate) fn stamp(&self, key: &KeyRef<'_>) -> Stamp {
        self.generations.stamp(key)
    }

    /// Keeps the answer of a read that no flight has made, where nothing was written since `stamp`
    /// was taken. Says whether it was kept.
    pub(crate) fn keep(
        &self,
        key: &KeyRef<'_>,
        stamp: Stamp,
        fill: &Fill<V>,
        terms: &Terms,
    ) -> bool {
        if !self.cache.fits(fill.bytes) {
            return false;
        }
        let mut stripe = self.board.stripe(key.hash());
        if self.generations.stamp(key) != stamp {
            stripe.totals.stale += 1;
            return false;
        }
        let (key, fill) = (key.to_owned(), fill.clone());
        self.cache.insert(key, fill, stamp, terms.now, terms.random);
        true
    }

    /// Returns the highest criticality of all who wait for this leader's read now.
    pub(crate) fn criticality(&self, lead: &Lead) -> Criticality {
        self.board.criticality(lead)
    }

    /// Begins a write; the guard is told what it touches.
    pub(crate) fn begin_write(&self) -> WriteGuard {
        self.generations.begin()
    }

    /// Lets the kept answer of a key go.
    pub(crate) fn forget(&self, key: &KeyRef<'_>) {
        self.cache.remove(key);
    }

    /// Lets what is over go. To be called now and then.
    pub(crate) fn sweep(&self, now: Instant) {
        self.board.sweep(now);
    }

    pub(crate) fn totals(&self) -> BoardTotals {
        self.board.totals()
    }

    pub(crate) fn flights(&self) -> usize {
        self.board.flights()
    }

    /// Returns the entries of the local cache and their bytes.
    pub(crate) fn cache_size(&self) -> (u64, u64) {
        self.cache.size()
    }

    /// Returns the bytes of answers that somebody has still to pick up.
    pub(crate) fn landed_bytes(&self) -> u64 {
        self.board.landed_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn glow_bytes(&self) -> u64 {
        self.board.glow_bytes()
    }

    /// Returns the afterglow of the key where it may be served. Once the key is hot, the answer
    /// moves to the local cache.
    fn glowing(
        &self,
        stripe: &mut Stripe<V, E>,
        key: &KeyRef<'_>,
        stamp: Stamp,
        is_hot: bool,
        terms: &Terms,
    ) -> Option<Served<V>> {
        self.board.kindle(stripe, key, terms.now);
        let ember = stripe.afterglow.find(key)?;
        if ember.stamp != stamp || !ember.is_fresh(terms.now) {
            self.board
                .extinguish(stripe, |ember| ember.key.borrow() == *key);
            return None;
        }
        let age = terms.now.saturating_duration_since(ember.read_at);
        if terms.age_max.is_some_and(|age_max| age > age_max) {
            return None;
        }
        let (fill, read_at) = (ember.fill.clone(), ember.read_at);
        let served = Served::of(fill.clone(), Source::Afterglow, read_at);
        stripe.totals.afterglows += 1;
        if is_hot {
            self.board
                .extinguish(stripe, |ember| ember.key.borrow() == *key);
            self.cache
                .insert(key.to_owned(), fill, stamp, read_at, terms.random);
        }
        Some(served)
    }

    /// Lands a read: takes it off the board, keeps the answer where it may be kept, and wakes.
    pub(super) fn land(&self, lead: &Lead, fill: &Fill<V>) {
        let mut stripe = self.board.stripe(lead.hash);
        let Some(claim) = stripe.claim(lead) else {
            return;
        };
        let landed = claim.flight.as_ref();
        let landed = landed.map(|flight| flight.land(fill, &self.board.landed_bytes));
        let (followers, wake) = landed.unwrap_or_default();
        let is_wanted = claim.is_hot || claim.is_repeated || followers > 0;
        if self.cache.fits(fill.bytes) {
            self.keep_landed(&mut stripe, lead, fill, is_wanted);
        } else {
            stripe.drop_claim(lead);
        }
        drop(stripe);
        wake.now();
    }

    /// Keeps the answer of a read that lands: for long where the key was hot, for a moment where it
    /// may become so, and else for less.
    fn keep_landed(&self, stripe: &mut Stripe<V, E>, lead: &Lead, fill: &Fill<V>, is_wanted: bool) {
        let Some(claim) = stripe.take_off(lead) else {
            return;
        };
        let ember = Ember {
            key: claim.key,
            fill: fill.clone(),
            stamp: claim.stamp,
            read_at: claim.started,
        };
        if self.generations.stamp(&ember.key.borrow()) != ember.stamp {
            stripe.totals.stale += u64::from(is_wanted);
        } else if claim.is_hot {
            let Ember {
                key,
                fill,
                stamp,
                read_at,
            } = ember;
            self.cache.insert(key, fill, stamp, read_at, claim.random);
        } else if is_wanted {
            self.board.glow(stripe, ember);
        } else {
            stripe.afterglow.strike(ember);
        }
    }
}

fn want(stamp: Stamp, is_hot: bool, terms: &Terms) -> Want {
    Want {
        stamp,
        now: terms.now,
        criticality: terms.criticality,
        age_max: terms.age_max,
        random: terms.random,
        is_hot,
    }
}

/// Does something at once, with the waker of the task.
async fn here<T>(work: impl FnOnce(&mut Context<'_>) -> T) -> T {
    let mut work = Some(work);
    poll_fn(move |context| match work.take() {
        Some(work) => Poll::Ready(work(context)),
        None => Poll::Pending,
    })
    .await
}

fn served<V, E>(
    result: Result<Fill<V>, Failure<E>>,
    source: Source,
    read_at: Instant,
) -> Result<Served<V>, ShareError<E>> {
    match result {
        Ok(fill) => Ok(Served::of(fill, source, read_at)),
        Err(Failure::Error(error)) => Err(ShareError::Failed(error)),
        Err(Failure::Lost) => Err(ShareError::Lost),
    }
}
