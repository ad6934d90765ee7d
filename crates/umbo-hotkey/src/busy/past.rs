//! The past of the sources: the largest of each second, and of longer steps made of them, as the heat map shows them.
//!
//! Steps of a second for five minutes, of ten seconds for an hour, of two minutes for a day and of an hour for thirty
//! days, each within [`LEVEL_BYTES_MAX`]. Idle steps are not kept. In memory only.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use umbo_types::{PartitionKey, ShardId};

use crate::source::CallSource;

/// Length of a step in seconds and number of steps that are kept, of each level: a step is a multiple of the step of
/// the level before.
const LEVELS: [(u64, u64); 4] = [(1, 300), (10, 360), (120, 720), (3_600, 720)];
/// Memory of the steps of a level, in bytes, counted as if no two of them shared a source; beyond it the oldest steps
/// are dropped. It holds all steps of some 15 busy shards, or the last minutes with the longest keys.
const LEVEL_BYTES_MAX: usize = 8 << 20;
/// Sources that are kept of a shard and step: enough for a few callers with a few operations each.
const SOURCES_MAX: usize = 8;
/// Seconds that are shown as now: a call that ends once a second is seen all the time.
const NOW_SECONDS: u64 = 2;

/// A source, and how long it kept a shard busy.
#[derive(Debug, Clone, PartialEq)]
pub struct BusySource {
    /// The source.
    pub source: Arc<CallSource>,
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
        let sources = self.shards.iter().flat_map(|shard| &shard.sources);
        let keys = sources
            .clone()
            .filter_map(|one| one.source.partition.as_ref());
        let each = size_of::<BusySource>() + size_of::<CallSource>();
        let key_len = |key: &PartitionKey| key.as_bytes().len();
        size_of_val(&*self.shards) + sources.count() * each + keys.map(key_len).sum::<usize>()
    }

    /// Puts steps together to one.
    fn of<'a>(start: u64, seconds: u64, steps: impl Iterator<Item = &'a Self>) -> Self {
        let mut shards: BTreeMap<ShardId, (f64, Vec<BusySource>)> = BTreeMap::new();
        for shard in steps.flat_map(|step| &step.shards) {
            let (busy, sources) = shards.entry(shard.shard).or_default();
            *busy += shard.busy;
            for one in &shard.sources {
                match sources.iter_mut().find(|held| held.source == one.source) {
                    Some(held) => held.busy += one.busy,
                    None => sources.push(one.clone()),
                }
            }
        }
        let shards = shards.into_iter();
        let shards =
            shards.map(|(shard, (busy, sources))| BusyShard::of_largest(shard, busy, sources));
        Self {
            start,
            seconds,
            shards: shards.collect(),
        }
    }
}

/// The steps of one length, oldest first.
#[derive(Debug, Default)]
struct Steps {
    slots: VecDeque<BusySlot>,
    bytes: usize,
}

impl Steps {
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

    fn within(&self, start: u64, seconds: u64) -> impl Iterator<Item = &BusySlot> {
        let is_within =
            move |slot: &&BusySlot| start <= slot.start && slot.end() <= start + seconds;
        self.slots.iter().filter(is_within)
    }

    /// Forgets the steps that are not over at a time.
    fn forget_from(&mut self, second: u64) {
        self.slots.retain(|slot| slot.end() <= second);
        self.bytes = self.slots.iter().map(BusySlot::memory).sum();
    }
}

/// The past of all shards.
#[derive(Debug, Default)]
pub(super) struct BusyPast {
    levels: [Steps; LEVELS.len()],
    /// The second after the newest.
    end: u64,
}

impl BusyPast {
    /// Adds a second, and the longer steps that end with it. A second that comes in two parts is put together. If the
    /// clock went back, the steps after the new time are forgotten.
    pub(super) fn push(&mut self, mut slot: BusySlot) {
        if slot.start < self.end {
            let known = self.levels[0].within(slot.start, 1);
            slot = BusySlot::of(slot.start, 1, known.chain([&slot]));
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
                let step = self.step(level - 1, ended.saturating_sub(seconds), seconds);
                self.levels[level].push(step, kept);
            }
        }
    }

    /// Puts the steps of a level within a longer one together.
    fn step(&self, level: usize, start: u64, seconds: u64) -> BusySlot {
        BusySlot::of(start, seconds, self.levels[level].within(start, seconds))
    }

    pub(super) fn now(&self) -> BusySlot {
        self.step(0, self.end.saturating_sub(NOW_SECONDS), NOW_SECONDS)
    }

    pub(super) fn at(&self, second: u64) -> BusySlot {
        let first = |level: &usize| self.levels[*level].slots.front();
        let reaches_back = |level: &usize| first(level).is_some_and(|one| one.start <= second);
        let level = (0..LEVELS.len()).find(reaches_back).unwrap_or(0);
        let (seconds, _) = LEVELS[level];
        self.step(level, second / seconds * seconds, seconds)
    }

    pub(super) fn over(&self, start: u64, seconds: u64) -> BusySlot {
        let levels = (1..LEVELS.len()).rev();
        let mut steps = levels.map(|level| self.step(level, start, seconds));
        let found = steps.find(|step| !step.shards.is_empty());
        found.unwrap_or_else(|| self.step(0, start, seconds))
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
