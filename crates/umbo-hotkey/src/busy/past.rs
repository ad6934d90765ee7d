//! The past of the sources: the largest of each second, and of longer steps made of them, as the heat map shows them.
//!
//! Steps of a second for five minutes, of ten seconds for an hour, of two minutes for a day and of an hour for thirty
//! days, each within [`LEVEL_BYTES_MAX`]. Idle steps are not kept. In memory only.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use umbo_types::{PartitionKey, ShardId};

use super::Source;

/// Length of a step in seconds and number of steps that are kept, of each level: a step is a multiple of the one before.
const LEVELS: [(u64, u64); 4] = [(1, 300), (10, 360), (120, 720), (3_600, 720)];
/// Memory of the steps of a level, in bytes, counted as if no two of them shared a source; the oldest are dropped beyond.
/// All sources of 50 shards with short keys for all steps, or those of the last few minutes with the longest keys.
const LEVEL_BYTES_MAX: usize = 8 << 20;
/// Sources that are kept of a shard and step: the fewest that show a few callers with a few operations each.
const SOURCES_MAX: usize = 8;
/// Seconds that are shown as now: a call that ends once a second is seen all the time.
const NOW_SECONDS: u64 = 2;

/// A source, and how long it kept a shard busy.
#[derive(Debug, Clone, PartialEq)]
pub struct BusySource {
    /// The source.
    pub source: Arc<Source>,
    /// Busy time, in seconds.
    pub busy: f64,
}

/// How long a shard was busy, and with whose work.
#[derive(Debug, Clone, PartialEq)]
pub struct BusyShard {
    /// The shard.
    pub shard: ShardId,
    /// Busy time of all sources, in seconds; more than the time that passed if several threads worked.
    pub busy: f64,
    /// The largest sources, largest first; eight at most.
    pub sources: Vec<BusySource>,
}

impl BusyShard {
    /// Keeps the largest of some sources.
    pub(super) fn of_largest(shard: ShardId, busy: f64, mut sources: Vec<BusySource>) -> Self {
        sources.sort_by(|one, other| other.busy.total_cmp(&one.busy));
        sources.truncate(SOURCES_MAX);
        Self {
            shard,
            busy,
            sources,
        }
    }

    fn add(&mut self, more: &Self) {
        self.busy += more.busy;
        for one in &more.sources {
            let same = |held: &&mut BusySource| held.source == one.source;
            match self.sources.iter_mut().find(same) {
                Some(held) => held.busy += one.busy,
                None => self.sources.push(one.clone()),
            }
        }
    }
}

/// A step of time, and the shards that were busy in it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BusySlot {
    /// Its beginning, in seconds since the Unix epoch.
    pub start: u64,
    /// Its length, in seconds.
    pub seconds: u64,
    /// By number.
    pub shards: Vec<BusyShard>,
}

impl BusySlot {
    const fn end(&self) -> u64 {
        self.start + self.seconds
    }

    /// Returns about how much memory it takes, in bytes.
    fn memory(&self) -> usize {
        let of_key = |key: &PartitionKey| key.as_bytes().len();
        let of_source = |one: &BusySource| {
            let key = one.source.partition.as_ref().map_or(0, of_key);
            size_of::<BusySource>() + size_of::<Source>() + key
        };
        let sources = self.shards.iter().flat_map(|shard| &shard.sources);
        size_of_val(&*self.shards) + sources.map(of_source).sum::<usize>()
    }
}

/// The steps of one length, oldest first.
#[derive(Debug, Default)]
struct Level {
    slots: VecDeque<BusySlot>,
    bytes: usize,
}

impl Level {
    fn push(&mut self, slot: BusySlot, kept: u64) {
        if slot.shards.is_empty() {
            return;
        }
        let oldest = slot.end().saturating_sub(kept * slot.seconds);
        self.bytes += slot.memory();
        self.slots.push_back(slot);
        while let Some(first) = self.slots.front()
            && (first.start < oldest || self.bytes > LEVEL_BYTES_MAX)
        {
            self.bytes -= first.memory();
            self.slots.pop_front();
        }
    }

    fn within(&self, start: u64, end: u64) -> impl Iterator<Item = &BusySlot> {
        let slots = self.slots.iter();
        slots.filter(move |slot| start <= slot.start && slot.end() <= end)
    }

    /// Puts the steps within a longer one together.
    fn folded(&self, start: u64, seconds: u64) -> BusySlot {
        folded(start, seconds, self.within(start, start + seconds))
    }

    /// Forgets what is not over at a time.
    fn forget_from(&mut self, second: u64) {
        self.slots.retain(|slot| slot.end() <= second);
        self.bytes = self.slots.iter().map(BusySlot::memory).sum();
    }
}

/// The past of all shards.
#[derive(Debug, Default)]
pub(super) struct BusyPast {
    levels: [Level; LEVELS.len()],
    /// The second after the newest.
    end: u64,
}

impl BusyPast {
    /// Adds a second, and the longer steps that end with it. A second that comes in two parts is put together; what is
    /// after the second that a clock went back to is forgotten.
    pub(super) fn push(&mut self, mut slot: BusySlot) {
        if slot.start < self.end {
            let known = self.levels[0].within(slot.start, slot.end());
            slot = folded(slot.start, slot.seconds, known.chain([&slot]));
            for level in &mut self.levels {
                level.forget_from(slot.start);
            }
        }
        let (begin, end) = (slot.start.min(self.end), slot.end());
        self.end = end;
        self.levels[0].push(slot, LEVELS[0].1);
        for (level, (seconds, kept)) in LEVELS.into_iter().enumerate().skip(1) {
            let ended = end / seconds * seconds;
            if begin < ended {
                let step = self.levels[level - 1].folded(ended.saturating_sub(seconds), seconds);
                self.levels[level].push(step, kept);
            }
        }
    }

    pub(super) fn now(&self) -> BusySlot {
        let start = self.end.saturating_sub(NOW_SECONDS);
        self.levels[0].folded(start, NOW_SECONDS)
    }

    pub(super) fn at(&self, second: u64) -> BusySlot {
        let reaches_back =
            |level: &Level| (level.slots.front()).is_some_and(|one| one.start <= second);
        let mut levels = self.levels.iter().zip(LEVELS);
        let found = levels.find(|(level, _)| reaches_back(level));
        let (level, (seconds, _)) = found.unwrap_or((&self.levels[0], LEVELS[0]));
        level.folded(second / seconds * seconds, seconds)
    }

    pub(super) fn over(&self, start: u64, seconds: u64) -> BusySlot {
        let levels = self.levels.iter().rev();
        let mut steps = levels.map(|level| level.folded(start, seconds));
        let found = steps.find(|step| !step.shards.is_empty());
        found.unwrap_or(BusySlot {
            start,
            seconds,
            shards: Vec::new(),
        })
    }
}

/// Puts steps together to one.
fn folded<'a>(start: u64, seconds: u64, steps: impl Iterator<Item = &'a BusySlot>) -> BusySlot {
    let mut shards: BTreeMap<ShardId, BusyShard> = BTreeMap::new();
    for shard in steps.flat_map(|slot| &slot.shards) {
        let idle = || BusyShard {
            shard: shard.shard,
            busy: 0.0,
            sources: Vec::new(),
        };
        shards.entry(shard.shard).or_insert_with(idle).add(shard);
    }
    let largest = |shard: BusyShard| BusyShard::of_largest(shard.shard, shard.busy, shard.sources);
    BusySlot {
        start,
        seconds,
        shards: shards.into_values().map(largest).collect(),
    }
}

#[cfg(test)]
pub(super) const MEMORY_MAX: usize = LEVELS.len() * LEVEL_BYTES_MAX;

#[cfg(test)]
impl BusyPast {
    /// Returns about how much memory the steps take, in bytes.
    pub(super) fn memory(&self) -> usize {
        let slots = self.levels.iter().flat_map(|level| &level.slots);
        slots.map(BusySlot::memory).sum()
    }
}
