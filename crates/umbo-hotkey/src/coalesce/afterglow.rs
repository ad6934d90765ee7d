//! The answer of a key that may become hot, kept until the sketch has had time to say so.
//!
//! The hot set is up to two merges behind. Without more, a stampede would reach the store for that
//! long, read after read, wherever the store answers faster than readers arrive. So an answer is
//! kept for a moment where other readers waited for it, or where the key was read twice within 5 ms
//! (which is what 200 reads a second means). One answer a stripe of the board: a newer key finds
//! the place taken until it goes dark.
//!
//! The newest answer of a stripe, whatever its key, is a *spark*: a reader that comes within half a
//! millisecond of the read gets it and kindles the afterglow, as if it had joined the read. So a
//! stampede on a cold key costs one read, however fast the store is.

use std::time::{Duration, Instant};

use super::fill::Fill;
use super::generation::Stamp;
use super::key::{KeyRef, ReadKey};

/// How long the afterglow lasts: two merges of the sketches.
pub(crate) const GLOW: Duration = Duration::from_millis(200);
/// Two reads of a key within this time make it worth an afterglow.
const REPEAT: Duration = Duration::from_millis(5);
/// How long a spark lasts. Less than a write through another pod and a read of it take together,
/// so that whoever reads back what it wrote there does not meet one.
const SPARK: Duration = Duration::from_micros(500);
/// Bytes of the largest spark, key and answer: each stripe may hold one.
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
    ember: Option<Ember<V>>,
    /// The answer of the last read that went to the store.
    spark: Option<Ember<V>>,
    /// Hash and instant of the last read that went to the store.
    last: Option<(u64, Instant)>,
}

impl<V> Default for Afterglow<V> {
    fn default() -> Self {
        Self {
            ember: None,
            spark: None,
            last: None,
        }
    }
}

impl<V> Afterglow<V> {
    /// Notes a read that goes to the store, and says whether the key was read just before.
    pub(crate) fn is_repeated(&mut self, hash: u64, now: Instant) -> bool {
        let last = self.last.replace((hash, now));
        last.is_some_and(|(last, at)| last == hash && now < at + REPEAT)
    }

    /// Keeps the answer of a read for the moment in which another reader may come.
    pub(crate) fn strike(&mut self, spark: Ember<V>) {
        self.spark = (spark.bytes() <= SPARK_BYTES_MAX).then_some(spark);
    }

    /// Takes the spark of this key where it has not gone dark.
    pub(crate) fn take_spark(&mut self, key: &KeyRef<'_>, now: Instant) -> Option<Ember<V>> {
        let spark = self.spark.take_if(|spark| spark.key.borrow() == *key)?;
        (now < spark.read_at + SPARK).then_some(spark)
    }

    /// Returns the kept answer of this key, fresh or not.
    pub(crate) fn find(&self, key: &KeyRef<'_>) -> Option<&Ember<V>> {
        let ember = self.ember.as_ref();
        ember.filter(|ember| ember.key.borrow() == *key)
    }

    /// Says whether an answer read at `read_at` may take the place.
    pub(crate) fn has_room(&self, key: &ReadKey, read_at: Instant) -> bool {
        let held = self.ember.as_ref();
        held.is_none_or(|held| held.key == *key || !held.is_fresh(read_at))
    }

    /// Keeps an answer; returns the bytes of the one that made room.
    pub(crate) fn keep(&mut self, ember: Ember<V>) -> usize {
        let old = self.ember.replace(ember);
        old.map_or(0, |old| old.bytes())
    }

    /// Lets the answer go where it has gone dark or `is_over`; returns its bytes.
    pub(crate) fn extinguish(&mut self, is_over: impl FnOnce(&Ember<V>) -> bool) -> usize {
        // Sparks are out by the time anybody looks here.
        self.spark = None;
        match self.ember.take_if(|ember| is_over(ember)) {
            Some(ember) => ember.bytes(),
            None => 0,
        }
    }
}
