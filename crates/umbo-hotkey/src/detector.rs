//! The detector: which keys become hot, and which cool down.
//!
//! Runs every 100 ms or so, off the path. It brings the sketches of the threads together and judges
//! by *guaranteed* counts only, so that a flood of random keys, which swells every count but
//! guarantees nothing, makes no key hot.
//!
//! A key becomes hot
//! - *steadily*, when its decayed rate has reached the threshold and it is still being read; or
//! - *suddenly*, when the last interval alone shows it: so many reads that chance does not explain
//!   them (four standard deviations above the threshold). The decayed rate would need seconds.
//!
//! It cools down when its mean rate over the last three seconds is below half the threshold. The threshold is
//! `rate_min`, or `share_min` of all reads of the dispatcher if that is higher.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::hot_set::{HotKey, HotSet};
use crate::read_counts::ReadCounts;
use crate::sketch::{Sketch, SketchCounter};

/// A sudden key exceeds the threshold by at least so many standard deviations.
const SUDDEN_DEVIATIONS: f64 = 4.0;
/// Shortest time over which the threshold of a sudden key is computed.
const SUDDEN_INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Time of counting before a decayed rate means anything.
const STEADY_SECONDS_MIN: f64 = 0.75;
/// A key whose last interval is below this share of the threshold does not become hot.
const COOL_SHARE: f64 = 0.5;
/// Intervals that are remembered, however short they are.
const INTERVALS_MAX: usize = 64;

/// When a key is hot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HotRule {
    /// Lowest rate of a hot key, in reads a second.
    pub rate_min: f64,
    /// Lowest share of the dispatcher's reads that a hot key has, of 1.
    pub share_min: f64,
    /// Time after which an old read counts half. Not zero.
    pub half_life: Duration,
    /// Time over which the mean rate of a hot key decides whether it has cooled.
    pub cool_after: Duration,
    /// Most hot keys; at the limit the key with the fewest reads makes room.
    pub keys_max: usize,
}

impl Default for HotRule {
    fn default() -> Self {
        Self {
            rate_min: 200.0,
            share_min: 0.01,
            half_life: Duration::from_secs(2),
            cool_after: Duration::from_secs(3),
            keys_max: 256,
        }
    }
}

impl HotRule {
    /// Returns the share of a count that is left after a time.
    fn decay(&self, elapsed: Duration) -> f64 {
        (-elapsed.as_secs_f64() / self.half_life.as_secs_f64()).exp2()
    }

    /// Returns the rate that makes a key hot while the dispatcher has so many reads a second.
    fn threshold(&self, reads_rate: f64) -> f64 {
        self.rate_min.max(self.share_min * reads_rate)
    }
}

/// A key that is hot.
#[derive(Debug, Clone)]
pub(crate) struct Tracked {
    pub(crate) key: Arc<HotKey>,
    pub(crate) since: Instant,
    pub(crate) heat: Heat,
    /// The last intervals, newest last.
    recent: VecDeque<Recent>,
}

/// Reads of a hot key in one interval, and their estimated cost in request units.
#[derive(Debug, Clone, Copy)]
struct Recent {
    reads: f64,
    units: f64,
}

/// How much a key is read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Heat {
    /// Certain reads a second, decayed with the half-life.
    pub rate: f64,
    /// How much higher the rate may be.
    pub rate_error: f64,
    /// Mean of the certain reads a second over the last three seconds.
    pub rate_now: f64,
    /// Mean of the request units a second over the last three seconds that the reads would cost if each asked the
    /// store; estimated.
    pub units_rate: f64,
}

/// One interval between two runs.
#[derive(Debug, Clone, Copy)]
struct Interval {
    seconds: f64,
    reads: f64,
}

/// State of the detection.
#[derive(Debug)]
pub(crate) struct Detector {
    rule: HotRule,
    last_run: Instant,
    /// Share of the counts that the end of the last run has left.
    decay: f64,
    /// Decayed seconds of counting: a count over this is a rate.
    seconds: f64,
    reads_rate: f64,
    threshold: f64,
    intervals: VecDeque<Interval>,
    hot: Vec<Tracked>,
    /// Copies of the threads' sketches as of the end of the interval.
    sketches: Vec<Sketch>,
}

/// Sums over all sketches for one key, in reads.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    guaranteed: f64,
    recent: f64,
    /// Upper bound of its decayed reads.
    most: f64,
}

impl Detector {
    /// Begins at `now`.
    pub(crate) fn new(rule: HotRule, now: Instant) -> Self {
        Self {
            rule,
            last_run: now,
            decay: 1.0,
            seconds: 0.0,
            reads_rate: 0.0,
            threshold: rule.rate_min,
            intervals: VecDeque::new(),
            hot: Vec::new(),
            sketches: Vec::new(),
        }
    }

    /// Returns the hot keys.
    pub(crate) fn hot(&self) -> &[Tracked] {
        &self.hot
    }

    /// Returns the decayed rate of all reads, and the rate that makes a key hot.
    pub(crate) fn rates(&self) -> (f64, f64) {
        (self.reads_rate, self.threshold)
    }

    /// Returns the memory of the detection without the sketches of the threads, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let sketches = self.sketches.iter().map(Sketch::memory);
        let hot = size_of::<Tracked>() + size_of::<HotKey>() + INTERVALS_MAX * size_of::<Recent>();
        sketches.sum::<usize>() + self.hot.len() * hot
    }

    /// Ends an interval: takes in the counts, and judges. A key that becomes hot and is in the set `known` already
    /// stays the same object. Returns the keys that have cooled, or `None` if no time has passed.
    pub(crate) fn run(
        &mut self,
        counts: &ReadCounts,
        known: &HotSet,
        now: Instant,
    ) -> Option<Vec<Arc<HotKey>>> {
        let length = now.saturating_duration_since(self.last_run);
        if length.is_zero() {
            return None;
        }
        self.last_run = now;
        self.seconds = self.seconds * self.decay + length.as_secs_f64();
        self.decay = self.rule.decay(length);
        self.copy_sketches(counts);
        // The sum of an empty iterator is -0.
        let sum = |sum: f64, reads: f64| sum + reads;
        let reads = |of: fn(&Sketch) -> f64| self.sketches.iter().map(of).fold(0.0, sum);
        self.reads_rate = reads(Sketch::total) / self.seconds;
        self.threshold = self.rule.threshold(self.reads_rate);
        let interval = Interval {
            seconds: length.as_secs_f64(),
            reads: reads(Sketch::recent_total),
        };
        self.update_hot(interval);
        let mut cooled = self.cool(now);
        self.warm(now, interval, known, &mut cooled);
        Some(cooled)
    }

    /// Copies the sketches, and begins the next interval in them.
    fn copy_sketches(&mut self, counts: &ReadCounts) {
        let (mut at, decay) = (0, self.decay);
        let sketches = &mut self.sketches;
        counts.each(|sketch| {
            match sketches.get_mut(at) {
                Some(copy) => copy.clone_from(sketch),
                None => sketches.push(sketch.clone()),
            }
            sketch.decay(decay);
            at += 1;
        });
    }

    fn sums(&self, hash: u64) -> Sums {
        let mut sums = Sums::default();
        for sketch in &self.sketches {
            let counter = sketch.get(hash).unwrap_or_default();
            sums.guaranteed += counter.guaranteed;
            sums.recent += counter.recent;
            sums.most += sketch.count_max(hash);
        }
        sums
    }

    fn heat(&self, sums: &Sums) -> Heat {
        Heat {
            rate: sums.guaranteed / self.seconds,
            rate_error: (sums.most - sums.guaranteed).max(0.0) / self.seconds,
            ..Heat::default()
        }
    }

    /// Adds an interval to the remembered ones, and to each hot key.
    #[expect(clippy::cast_precision_loss)] // a sum for people to look at
    fn update_hot(&mut self, interval: Interval) {
        self.intervals.push_back(interval);
        let mut seconds: f64 = self.intervals.iter().map(|i| i.seconds).sum();
        let cool_after = self.rule.cool_after.as_secs_f64();
        while self.intervals.len() > INTERVALS_MAX
            || self.intervals[0].seconds + cool_after <= seconds + 1e-9
        {
            let Some(oldest) = self.intervals.pop_front() else {
                break;
            };
            seconds -= oldest.seconds;
        }
        let mut hot = std::mem::take(&mut self.hot);
        for tracked in &mut hot {
            let sums = self.sums(tracked.key.hash);
            tracked.recent.push_back(Recent {
                reads: sums.recent,
                units: tracked.key.take_units() as f64 / 1e6,
            });
            while tracked.recent.len() > self.intervals.len() {
                tracked.recent.pop_front();
            }
            let lengths = self.intervals.iter().rev().map(|i| i.seconds);
            let seconds: f64 = lengths.take(tracked.recent.len()).sum();
            let mean =
                |of: fn(&Recent) -> f64| tracked.recent.iter().map(of).sum::<f64>() / seconds;
            tracked.heat = Heat {
                rate_now: mean(|recent| recent.reads),
                units_rate: mean(|recent| recent.units),
                ..self.heat(&sums)
            };
        }
        self.hot = hot;
    }

    /// Removes the keys that have cooled, and returns them.
    fn cool(&mut self, now: Instant) -> Vec<Arc<HotKey>> {
        let sum = |of: fn(&Interval) -> f64| self.intervals.iter().map(of).sum::<f64>();
        let reads_rate_now = sum(|i| i.reads) / sum(|i| i.seconds);
        let rate_min = self.rule.threshold(reads_rate_now) * COOL_SHARE;
        let cool_after = self.rule.cool_after;
        let has_cooled = |tracked: &mut Tracked| {
            now >= tracked.since + cool_after && tracked.heat.rate_now < rate_min
        };
        let cooled = self.hot.extract_if(.., has_cooled);
        cooled.map(|tracked| tracked.key).collect()
    }

    /// Adds the keys that have become hot. Keys that make room for them count as cooled.
    fn warm(
        &mut self,
        now: Instant,
        interval: Interval,
        known: &HotSet,
        cooled: &mut Vec<Arc<HotKey>>,
    ) {
        for hash in self.candidates(interval) {
            if self.hot.iter().any(|tracked| tracked.key.hash == hash) {
                continue;
            }
            let sums = self.sums(hash);
            let mut heat = self.heat(&sums);
            heat.rate_now = sums.recent / interval.seconds;
            if !self.is_hot(&sums, &heat, interval) {
                continue;
            }
            if self.hot.len() >= self.rule.keys_max {
                let rate = |at: &usize| self.hot[*at].heat.rate_now;
                let least =
                    (0..self.hot.len()).min_by(|one, other| rate(one).total_cmp(&rate(other)));
                match least {
                    Some(at) if rate(&at) < heat.rate_now => {
                        cooled.push(self.hot.swap_remove(at).key);
                    }
                    _ => continue,
                }
            }
            let held = known.by_hash(hash).map(|entry| Arc::clone(&entry.key));
            let key = held.unwrap_or_else(|| HotKey::of_hash(hash));
            let first = Recent {
                reads: sums.recent,
                units: 0.0,
            };
            self.hot.push(Tracked {
                key,
                since: now,
                heat,
                recent: VecDeque::from([first]),
            });
        }
    }

    /// Returns every hash that may be hot. A hot key has its share of the threshold with at least one thread.
    #[expect(clippy::cast_precision_loss)] // a number of threads
    fn candidates(&self, interval: Interval) -> Vec<u64> {
        let least = self.threshold * COOL_SHARE / self.sketches.len() as f64;
        let may_be_hot = |counter: &SketchCounter| {
            counter.guaranteed >= least * self.seconds || counter.recent >= least * interval.seconds
        };
        let counters = self.sketches.iter().flat_map(Sketch::counters);
        let mut hashes: Vec<u64> = counters.filter(may_be_hot).map(|c| c.hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        hashes
    }

    fn is_hot(&self, sums: &Sums, heat: &Heat, interval: Interval) -> bool {
        let is_steady = self.seconds >= STEADY_SECONDS_MIN
            && heat.rate >= self.threshold
            && sums.recent >= self.threshold * interval.seconds * COOL_SHARE;
        let seconds_min = interval.seconds.max(SUDDEN_INTERVAL_MIN.as_secs_f64());
        let usual = (self.rule.rate_min * seconds_min).max(self.rule.share_min * interval.reads);
        let is_sudden = sums.recent >= usual + SUDDEN_DEVIATIONS * usual.sqrt();
        is_steady || is_sudden
    }
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss)] // counts here are far below 2⁵³
mod tests;
