//! The answer of a key that may become hot, kept until the sketch has had time to say so.
//!
//! The hot set is up to two merges behind. Without more, a stampede would reach the store for that
//! long, read after read, wherever the store answers faster than readers arrive. So an answer is
//! kept for a moment where other readers waited for it, or where the key was read twice within 5 ms
//! (which is what 200 reads a second means). A few answers a stripe of the board: one more key finds
//! the places taken until one of them goes dark.
//!
//! The newest answers of a stripe, whatever their keys, are *sparks*: a reader that comes within half a
//! millisecond of the read gets it and kindles the afterglow, as if it had joined the read. So a
//! stampede on a cold key costs one read, however fast the store is.

use std::time::{Duration, Instant};

use super::fill::Fill;
use super::generation::Stamp;
use super::key::{KeyRef, ReadKey};

/// How long the afterglow lasts: two merges of the sketches, and as much again, because a pod under
/// attack is late with them.
pub(crate) const GLOW: Duration = Duration::from_millis(400);
/// Two reads of a key within this time make it worth an afterglow.
const REPEAT: Duration = Duration::from_millis(5);
/// How long a spark lasts. Less than a write through another pod and a read of it take together,
/// so that whoever reads back what it wrote there does not meet one.
const SPARK: Duration = Duration::from_micros(500);
/// Sparks of a stripe. More than one, so that two keys under attack that meet do not put out each
/// other's.
const SPARKS: usize = 2;
/// Embers of a stripe at most.
const EMBERS_MAX: usize = 8;
/// Bytes of the largest spark, key and answer: each stripe may hold two.
pub(crate) const SPARK_BYTES_MAX: usize = 16 << 10;

/// A kept answer.
#[derive(Debug)]
pub(crate) struct Ember<V> {
    pub(crate) key: ReadKey,
    pub(crate) fill: Fill<V>,
    pub(crate) stamp: Stamp,
    pub(crate) read_at: Instant,
}

impl<V> Ember<V> {
    /// Returns the memory the answer and its key take.
    pub(crate) fn bytes(&self) -> usize {
        self.fill.bytes + self.key.memory()
    }

    /// Says whether the answer may still be served, as far as time goes.
    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        now < self.read_at + GLOW && self.fill.expires_at.is_none_or(|at| now < at)
    }
}

/// The afterglow of one stripe.
#[derive(Debug)]
pub(crate) struct Afterglow<V> {
    embers: Vec<Ember<V>>,
    /// Answers of the last reads that went to the store.
    sparks: [Option<Ember<V>>; SPARKS],
    /// Hashes and instants of these reads.
    last: [Option<(u64, Instant)>; SPARKS],
    /// Which of them was noted last.
    newest: usize,
}

impl<V> Default for Afterglow<V> {
    fn default() -> Self {
        Self {
            embers: Vec::new(),
            sparks: [const { None }; SPARKS],
            last: [None; SPARKS],
            newest: 0,
        }
    }
}

impl<V> Afterglow<V> {
    /// Notes a read that goes to the store, and says whether the key was read just before.
    pub(crate) fn is_repeated(&mut self, hash: u64, now: Instant) -> bool {
        let is_it = |last: &Option<(u64, Instant)>| last.is_some_and(|(of, _)| of == hash);
        let held = self.last.iter().position(is_it);
        self.newest = held.unwrap_or((self.newest + 1) % SPARKS);
        let before = self.last[self.newest].replace((hash, now));
        held.is_some() && before.is_some_and(|(_, at)| now < at + REPEAT)
    }

    /// Keeps the answer of the read that was noted last, for the moment in which another reader may
    /// come.
    pub(crate) fn strike(&mut self, spark: Ember<V>) {
        self.sparks[self.newest] = (spark.bytes() <= SPARK_BYTES_MAX).then_some(spark);
    }

    /// Takes the spark of this key where it has not gone dark.
    pub(crate) fn take_spark(&mut self, key: &KeyRef<'_>, now: Instant) -> Option<Ember<V>> {
        let mut sparks = self.sparks.iter_mut();
        let spark = sparks.find_map(|spark| spark.take_if(|spark| spark.key.borrow() == *key))?;
        (now < spark.read_at + SPARK).then_some(spark)
    }

    /// Returns the kept answer of this key, fresh or not.
    pub(crate) fn find(&self, key: &KeyRef<'_>) -> Option<&Ember<V>> {
        self.embers.iter().find(|ember| ember.key.borrow() == *key)
    }

    /// Says whether an answer read at `read_at` may be kept.
    pub(crate) fn has_room(&self, key: &ReadKey, read_at: Instant) -> bool {
        self.embers.len() < EMBERS_MAX || self.place(key, read_at).is_some()
    }

    /// Returns where an answer belongs that takes the place of another one: of the same key, or of
    /// one that has gone dark.
    fn place(&self, key: &ReadKey, read_at: Instant) -> Option<usize> {
        let of_key = self.embers.iter().position(|held| held.key == *key);
        let dark = || self.embers.iter().position(|held| !held.is_fresh(read_at));
        of_key.or_else(dark)
    }

    /// Keeps an answer; returns the bytes of the one that made room.
    pub(crate) fn keep(&mut self, ember: Ember<V>) -> usize {
        if let Some(at) = self.place(&ember.key, ember.read_at) {
            return std::mem::replace(&mut self.embers[at], ember).bytes();
        }
        self.embers.push(ember);
        0
    }

    /// Lets answers go that have gone dark or `is_over`; returns their bytes.
    pub(crate) fn extinguish(&mut self, is_over: impl Fn(&Ember<V>) -> bool) -> usize {
        let mut freed = 0;
        self.embers.retain(|ember| {
            let is_over = is_over(ember);
            freed += if is_over { ember.bytes() } else { 0 };
            !is_over
        });
        freed
    }
}
