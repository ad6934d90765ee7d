//! Who keeps a shard busy: the busy time of each shard, divided by its sources, of every operation.
//!
//! A source is a caller, an operation, a namespace and a partition. Each shard has a sketch of its sources, weighted by
//! busy time, which begins anew each second; the largest sources of the seconds go to the past ([`past`]).
//!
//! Hot path: a call that kept its shard busy for less than [`QUANTUM`] is recorded with the probability busy time over
//! quantum, as a whole quantum, so the sums are right on average and most gets end after one comparison. Nothing waits:
//! a call that finds the sketch of its shard locked is not recorded. Sources are told apart by a hash of 64 bits with a
//! random seed: people look at them, and nothing is decided by them.

pub(crate) mod past;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use umbo_types::{CallerId, NamespaceId, Operation, PartitionKey, ShardId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::past::{BusyPast, BusyShard, BusySlot, BusySource};
use crate::key::{KeyHasher, KeySeed};
use crate::sketch::Sketch;

/// Busy time below which calls are sampled: a get from memory is recorded once in some hundred times, and a source that
/// takes a tenth of a core is still recorded a hundred times a second.
const QUANTUM: Duration = Duration::from_millis(1);
/// Counters of a shard's sketch: a source with more than a twentieth of its busy time keeps its own.
const COUNTERS: usize = 64;
/// Share of a shard's busy time, of 1, below which a source is not told apart from the rest of its caller.
const SHARE_MIN: f64 = 0.05;

/// Whose work a call of the store is, and where; borrowed from the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceRef<'a> {
    /// The caller that pays; `None` for Umbo's own work.
    pub caller: Option<&'a CallerId>,
    /// What the caller does.
    pub operation: Operation,
    /// The namespace.
    pub namespace: NamespaceId,
    /// The partition; `None` for work in several.
    pub partition: Option<&'a PartitionKey>,
}

impl SourceRef<'_> {
    /// Returns the source with its bytes shared, for as long as a write runs.
    pub fn kept(self) -> Source {
        Source {
            caller: self.caller.cloned(),
            operation: self.operation,
            namespace: self.namespace,
            partition: self.partition.cloned(),
        }
    }

    /// Returns the same without the partition.
    const fn whole(self) -> Self {
        Self {
            partition: None,
            ..self
        }
    }

    fn hash(&self, seed: KeySeed) -> u64 {
        let partition = self.partition.map_or(&[][..], PartitionKey::as_bytes);
        let place = seed.partition(self.namespace, partition);
        let caller = self.caller.map_or("", CallerId::as_str);
        // Zero marks an empty place in the sketch.
        xxh3_64_with_seed(caller.as_bytes(), place ^ self.operation as u64).max(1)
    }

    /// Copies the source. The bytes of a partition may be a part of a large body, which must not be kept.
    fn copied(self) -> Source {
        let partition = self.partition.map(|key| key.as_bytes().to_vec());
        Source {
            partition: partition.and_then(|bytes| PartitionKey::new(bytes).ok()),
            ..self.whole().kept()
        }
    }
}

/// Whose work a call of the store is, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The caller that pays; `None` for Umbo's own work.
    pub caller: Option<CallerId>,
    /// What the caller does.
    pub operation: Operation,
    /// The namespace.
    pub namespace: NamespaceId,
    /// The partition; `None` for work in several, and for the rest of a caller's partitions.
    pub partition: Option<PartitionKey>,
}

impl Source {
    /// Returns the source as it is borrowed from a call.
    pub const fn borrow(&self) -> SourceRef<'_> {
        SourceRef {
            caller: self.caller.as_ref(),
            operation: self.operation,
            namespace: self.namespace,
            partition: self.partition.as_ref(),
        }
    }
}

/// The sources of one shard since the second began.
#[derive(Debug)]
struct ShardSources {
    sketch: Sketch,
    /// By hash; of those that have a counter.
    names: HashMap<u64, Arc<Source>, BuildHasherDefault<KeyHasher>>,
    /// Busy time of all of them, in seconds.
    busy: f64,
}

impl ShardSources {
    fn new() -> Self {
        Self {
            sketch: Sketch::new(COUNTERS),
            names: HashMap::default(),
            busy: 0.0,
        }
    }

    fn add(&mut self, hash: u64, seconds: f64, source: &SourceRef<'_>) {
        let lost = self.sketch.add_weight(hash, seconds);
        self.names.remove(&lost);
        let name = || Arc::new(source.copied());
        self.names.entry(hash).or_insert_with(name);
    }

    /// Ends the second: returns the busy time of the shard and its largest sources, or `None` if it was idle.
    fn take(&mut self, shard: ShardId) -> Option<BusyShard> {
        let least = self.busy * SHARE_MIN;
        let counted = self.sketch.counters().filter(|one| one.recent > 0.0);
        let named = counted.filter_map(|counter| {
            let source = Arc::clone(self.names.get(&counter.hash)?);
            let busy = counter.recent;
            Some(BusySource { source, busy })
        });
        let (mut found, wholes): (Vec<_>, Vec<_>) =
            named.partition(|one| one.source.partition.is_some());
        found.retain(|one| one.busy >= least);
        let partitions = found.len();
        for mut rest in wholes {
            let of_it = found[..partitions].iter();
            let of_it = of_it.filter(|one| one.source.borrow().whole() == rest.source.borrow());
            rest.busy -= of_it.map(|one| one.busy).sum::<f64>();
            if rest.busy >= least {
                found.push(rest);
            }
        }
        let busy = std::mem::take(&mut self.busy);
        self.sketch.decay(0.0);
        (busy > 0.0).then(|| BusyShard::of_largest(shard, busy, found))
    }
}

/// The sources of the busy time of all shards, now and in the past.
#[derive(Debug)]
pub struct BusySources {
    seed: KeySeed,
    /// By shard; `None` before its first call.
    shards: Box<[Mutex<Option<ShardSources>>]>,
    past: Mutex<BusyPast>,
}

impl BusySources {
    /// Begins with `shards` idle shards. The seed is random.
    pub fn new(shards: usize, seed: KeySeed) -> Self {
        Self {
            seed,
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            past: Mutex::default(),
        }
    }

    /// Records a call that kept a shard busy for so long. `random` is a random number.
    #[inline]
    pub fn record(&self, shard: ShardId, busy: Duration, random: u32, source: SourceRef<'_>) {
        let is_sampled = || random % QUANTUM.subsec_nanos() < busy.subsec_nanos();
        if busy >= QUANTUM || is_sampled() {
            self.add(shard, busy.max(QUANTUM).as_secs_f64(), source);
        }
    }

    #[cold]
    #[inline(never)]
    fn add(&self, shard: ShardId, seconds: f64, source: SourceRef<'_>) {
        let sources = self.shards.get(usize::from(shard.0)).map(Mutex::try_lock);
        let mut sources = match sources {
            Some(Ok(sources)) => sources,
            Some(Err(TryLockError::Poisoned(poisoned))) => poisoned.into_inner(),
            Some(Err(TryLockError::WouldBlock)) | None => return,
        };
        let sources = sources.get_or_insert_with(ShardSources::new);
        sources.busy += seconds;
        let whole = source.whole();
        sources.add(whole.hash(self.seed), seconds, &whole);
        if source.partition.is_some() {
            sources.add(source.hash(self.seed), seconds, &source);
        }
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

    /// Returns the shortest step that holds a second and is kept, in seconds since the Unix epoch.
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

/// Returns the partition of more than half of the keys, if there is one (Boyer and Moore 1991).
pub fn majority<'a>(
    partitions: impl Iterator<Item = &'a PartitionKey> + Clone,
) -> Option<&'a PartitionKey> {
    let mut candidate = None;
    let mut lead = 0_usize;
    for partition in partitions.clone() {
        if lead == 0 {
            candidate = Some(partition);
        }
        lead = if candidate == Some(partition) {
            lead + 1
        } else {
            lead - 1
        };
    }
    let candidate = candidate?;
    let (mut of_it, mut all) = (0_usize, 0_usize);
    for partition in partitions {
        of_it += usize::from(partition == candidate);
        all += 1;
    }
    (2 * of_it > all).then_some(candidate)
}

#[cfg(test)]
mod tests;
