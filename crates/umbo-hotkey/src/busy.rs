//! Who keeps a shard busy: the busy time of each shard, divided by its sources, of every operation.
//!
//! Each shard has a sketch of its sources, weighted by busy time, which begins anew each second; the largest sources of
//! the seconds go to the past.
//!
//! Hot path: a call that kept its shard busy for less than [`QUANTUM`] is recorded with the probability busy time over
//! quantum, as a whole quantum. So the sums are right on average, and most gets end after one comparison. No call
//! waits: a call that finds the sketch of its shard locked is not recorded. Sources are told apart by a seeded hash of
//! 64 bits, because people look at them and no decision depends on them.

pub(crate) mod past;

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use umbo_types::ShardId;

use self::past::{BusyPast, BusyShard, BusySlot, BusySource};
use crate::key::KeyHasher;
use crate::sketch::Sketch;
use crate::source::CallSource;

/// Busy time below which calls are sampled: a get from memory is recorded once in some hundred times, and a source that
/// takes a tenth of a core is still recorded a hundred times a second.
const QUANTUM: Duration = Duration::from_millis(1);
/// Counters of a shard's sketch: a source with more than a twentieth of its busy time keeps its counter.
const COUNTERS: usize = 64;
/// Share of a shard's busy time, of 1, below which a source is not told apart from the rest of its caller.
const SHARE_MIN: f64 = 0.05;

/// The sources of one shard since the second began.
#[derive(Debug)]
struct ShardSources {
    sketch: Sketch,
    /// By hash; only sources with a counter.
    names: HashMap<u64, Arc<CallSource>, BuildHasherDefault<KeyHasher>>,
    /// Busy time of all of them, in seconds.
    busy: f64,
}

impl ShardSources {
    fn add(&mut self, hash: u64, seconds: f64, source: &CallSource) {
        let lost = self.sketch.add_weight(hash, seconds);
        self.names.remove(&lost);
        let name = || Arc::new(source.copied());
        self.names.entry(hash).or_insert_with(name);
    }

    /// Ends the second: returns the busy time of the shard and its largest sources, or `None` if it was idle.
    fn take(&mut self, shard: ShardId) -> Option<BusyShard> {
        let busy = std::mem::take(&mut self.busy);
        let least = (busy * SHARE_MIN).max(f64::MIN_POSITIVE);
        let counted = self.sketch.counters().filter_map(|one| {
            let source = Arc::clone(self.names.get(&one.hash)?);
            let busy = one.recent;
            (busy >= least).then_some(BusySource { source, busy })
        });
        let mut sources: Vec<_> = counted.collect();
        self.sketch.decay(0.0);
        let partitions: Vec<_> = (sources.iter())
            .filter(|one| one.source.partition.is_some())
            .map(|one| (one.source.with(None), one.busy))
            .collect();
        for (whole, busy) in partitions {
            if let Some(rest) = sources.iter_mut().find(|one| *one.source == whole) {
                rest.busy -= busy;
            }
        }
        sources.retain(|one| one.busy >= least);
        (busy > 0.0).then(|| BusyShard::of_largest(shard, busy, sources))
    }
}

/// The sources of the busy time of all shards, now and in the past.
#[derive(Debug)]
pub struct BusySources {
    hasher: RandomState,
    /// By shard; `None` before its first call.
    shards: Box<[Mutex<Option<ShardSources>>]>,
    past: Mutex<BusyPast>,
}

impl BusySources {
    /// Begins with `shards` idle shards.
    pub fn new(shards: usize) -> Self {
        Self {
            hasher: RandomState::new(),
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            past: Mutex::default(),
        }
    }

    /// Records a call that kept a shard busy for so long. `random` is a random number.
    #[inline]
    pub fn record(
        &self,
        shard: ShardId,
        busy: Duration,
        random: u32,
        source: impl FnOnce() -> CallSource,
    ) {
        let is_sampled = || random % QUANTUM.subsec_nanos() < busy.subsec_nanos();
        if busy >= QUANTUM || is_sampled() {
            self.add(shard, busy.max(QUANTUM).as_secs_f64(), &source());
        }
    }

    #[cold]
    #[inline(never)]
    fn add(&self, shard: ShardId, seconds: f64, source: &CallSource) {
        let sources = self.shards.get(usize::from(shard.0)).map(Mutex::try_lock);
        let Some(Ok(mut sources)) = sources else {
            return;
        };
        let sources = sources.get_or_insert_with(|| ShardSources {
            sketch: Sketch::new(COUNTERS),
            names: HashMap::default(),
            busy: 0.0,
        });
        sources.busy += seconds;
        if source.partition.is_some() {
            sources.add(self.hash(source), seconds, source);
        }
        let whole = source.with(None);
        sources.add(self.hash(&whole), seconds, &whole);
    }

    fn hash(&self, source: &CallSource) -> u64 {
        // Zero marks an empty place in the sketch.
        self.hasher.hash_one(source).max(1)
    }

    /// Ends a second, in seconds since the Unix epoch: its sources become past.
    pub fn end_second(&self, second: u64) {
        let shards = (0_u16..).zip(&self.shards).filter_map(|(shard, sources)| {
            let mut sources = sources.lock().unwrap_or_else(PoisonError::into_inner);
            sources.as_mut()?.take(ShardId(shard))
        });
        let shards = shards.collect();
        self.past().push(BusySlot {
            start: second,
            seconds: 1,
            shards,
        });
    }

    /// Returns the largest sources of each shard that was busy in the last two seconds.
    pub fn now(&self) -> BusySlot {
        self.past().now()
    }

    /// Returns the step that holds a second, in seconds since the Unix epoch: the shortest that is kept for so long.
    pub fn at(&self, second: u64) -> BusySlot {
        self.past().at(second)
    }

    /// Returns the sources of `seconds` seconds from `start` on, from the longest steps that are kept within.
    pub fn over(&self, start: u64, seconds: u64) -> BusySlot {
        self.past().over(start, seconds)
    }

    fn past(&self) -> MutexGuard<'_, BusyPast> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
