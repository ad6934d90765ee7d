//! The detector: which keys become hot, and which cool down.
//!
//! Runs every 100 ms or so, off the path. It brings the sketches of the workers together and judges
//! by *guaranteed* counts only, so that a flood of random keys, which swells every count but
//! guarantees nothing, makes no key hot.
//!
//! A key becomes hot
//! - *steadily*, when its decayed rate has reached the threshold and it is still being read; or
//! - *suddenly*, when the last interval alone shows it: so many reads that chance does not explain
//!   them (four standard deviations above the threshold). The decayed rate would need seconds.
//!
//! It cools down when its mean rate over the last three seconds is below half the threshold. The
//! threshold is `rate_min` or `share_min` of all reads of the pod, whichever is higher.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::callers::Callers;
use crate::decay::Decay;
use crate::hot_set::HotKey;
use crate::sketch::{Counter, Sketch};
use crate::workers::Workers;

/// Standard deviations by which a sudden key has to exceed the threshold.
const SUDDEN_DEVIATIONS: f64 = 4.0;
/// Shortest time over which the threshold of a sudden key is reckoned.
const SUDDEN_INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Time of counting before a decayed rate means anything.
const STEADY_SECONDS_MIN: f64 = 0.75;
/// A key that is not read at this share of the threshold any more does not become hot.
const COOL_SHARE: f64 = 0.5;
/// Intervals that are remembered, however short they are.
const INTERVALS_MAX: usize = 64;
/// Intervals after which samples of callers count half.
const CALLERS_HALF_LIFE: u64 = 20;

/// When a key is hot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HotRule {
    /// Lowest rate of a hot key, in reads a second.
    pub rate_min: f64,
    /// Lowest share of the pod's reads that a hot key has, of 1.
    pub share_min: f64,
    /// Time in which an old read comes to count half. Not zero.
    pub half_life: Duration,
    /// Time over which a hot key's mean rate is taken to see whether it has cooled.
    pub cool_after: Duration,
    /// Hot keys there may be; at the limit the one read least makes room.
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

/// A key that is hot.
#[derive(Debug, Clone)]
pub(crate) struct Tracked {
    pub(crate) key: Arc<HotKey>,
    pub(crate) since: Instant,
    pub(crate) heat: Heat,
    /// Reads in the last intervals, newest last.
    recent: VecDeque<f64>,
}

/// How much a key is read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Heat {
    /// Reads a second that are certain, decayed with the half-life.
    pub rate: f64,
    /// How much higher the rate may be.
    pub rate_error: f64,
    /// Mean reads a second over the last three seconds, those that are certain.
    pub rate_now: f64,
    /// Request units a second that are certain, decayed with the half-life.
    pub units_rate: f64,
}

/// What one run of the detector has changed.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// Keys that have cooled down.
    pub(crate) cooled: Vec<Arc<HotKey>>,
    /// Whether samples of callers come to count half.
    pub(crate) is_half_life: bool,
}

/// One interval between two runs.
#[derive(Debug, Clone, Copy)]
struct Interval {
    length: Duration,
    reads: f64,
}

/// What all workers have counted, as of the end of an interval.
#[derive(Debug)]
struct View<'a> {
    sketches: &'a [Sketch],
    /// Weight of a read in the interval.
    increment: f64,
    /// Decayed seconds of counting: a weight over this is a rate.
    seconds: f64,
    interval: Interval,
    /// Reads a second that make a key hot.
    threshold: f64,
}

/// State of the detection.
#[derive(Debug)]
pub(crate) struct Detector {
    rule: HotRule,
    decay: Decay,
    last_run: Instant,
    runs: u64,
    seconds: f64,
    pod_rate: f64,
    threshold: f64,
    intervals: VecDeque<Interval>,
    hot: Vec<Tracked>,
    /// Copies of the workers' sketches, kept so that no run allocates them.
    sketches: Vec<Sketch>,
}

impl Detector {
    /// Begins at `now`.
    pub(crate) fn new(rule: HotRule, now: Instant) -> Self {
        Self {
            rule,
            decay: Decay::new(rule.half_life, now),
            last_run: now,
            runs: 0,
            seconds: 0.0,
            pod_rate: 0.0,
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
        (self.pod_rate, self.threshold)
    }

    /// Returns the memory of the detection beside the sketches of the workers, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let sketches = self.sketches.iter().map(Sketch::own_memory);
        let hot = size_of::<Tracked>() + size_of::<HotKey>() + INTERVALS_MAX * size_of::<f64>();
        sketches.sum::<usize>() + self.hot.len() * hot
    }

    /// Ends an interval: takes in what was counted, and judges. None where no time has passed.
    pub(crate) fn run(&mut self, workers: &Workers, now: Instant) -> Option<Change> {
        let length = now.saturating_duration_since(self.last_run);
        if length.is_zero() {
            return None;
        }
        self.last_run = now;
        self.runs += 1;
        self.take(workers, now);
        let sketches = std::mem::take(&mut self.sketches);
        let view = self.view(&sketches, length);
        for tracked in &mut self.hot {
            let sums = view.sums(tracked.key.hash);
            tracked.recent.push_back(sums.recent);
            tracked.heat = view.heat(&sums, tracked.key.hash);
        }
        self.remember(view.interval);
        let mut change = Change::default();
        self.cool(now, &mut change);
        self.warm(now, &view, &mut change);
        self.sketches = sketches;
        change.is_half_life = self.runs.is_multiple_of(CALLERS_HALF_LIFE);
        if change.is_half_life {
            for tracked in &self.hot {
                tracked.key.with_callers(Callers::halve);
            }
        }
        Some(change)
    }

    /// Copies the sketches, and begins the next interval in them.
    fn take(&mut self, workers: &Workers, now: Instant) {
        let step = self.decay.advance(now);
        let mut at = 0;
        let sketches = &mut self.sketches;
        workers.each(|sketch| {
            match sketches.get_mut(at) {
                Some(copy) => copy.clone_from(sketch),
                None => sketches.push(sketch.clone()),
            }
            sketch.advance(step.halvings, step.increment);
            at += 1;
        });
    }

    #[expect(clippy::cast_precision_loss)] // rates; weights are far below 2⁵³ times what matters
    fn view<'a>(&mut self, sketches: &'a [Sketch], length: Duration) -> View<'a> {
        let increment = sketches.first().map_or(1, Sketch::increment) as f64;
        let reads = |sum: fn(&Sketch) -> u64| {
            let weights = sketches.iter().map(|sketch| sum(sketch) as f64);
            weights.sum::<f64>() / increment
        };
        // The interval that ends was counted with the weight of its beginning; what was before has
        // decayed until then.
        let before = self.intervals.back().map_or(Duration::ZERO, |i| i.length);
        self.seconds = self.seconds * self.decay.left_after(before) + length.as_secs_f64();
        self.pod_rate = reads(Sketch::total) / self.seconds;
        self.threshold = self.rule.rate_min.max(self.rule.share_min * self.pod_rate);
        View {
            sketches,
            increment,
            seconds: self.seconds,
            interval: Interval {
                length,
                reads: reads(Sketch::recent_total),
            },
            threshold: self.threshold,
        }
    }

    fn remember(&mut self, interval: Interval) {
        self.intervals.push_back(interval);
        let mut remembered: Duration = self.intervals.iter().map(|i| i.length).sum();
        while self.intervals.len() > INTERVALS_MAX
            || self.intervals[0].length + self.rule.cool_after <= remembered
        {
            let Some(oldest) = self.intervals.pop_front() else {
                break;
            };
            remembered -= oldest.length;
        }
        for tracked in &mut self.hot {
            while tracked.recent.len() > self.intervals.len() {
                tracked.recent.pop_front();
            }
        }
    }

    /// Takes out what has cooled.
    fn cool(&mut self, now: Instant, change: &mut Change) {
        let lengths: Vec<f64> = self
            .intervals
            .iter()
            .map(|i| i.length.as_secs_f64())
            .collect();
        let pod_reads: f64 = self.intervals.iter().map(|i| i.reads).sum();
        let pod_rate_now = pod_reads / lengths.iter().sum::<f64>();
        let threshold = (self.rule.share_min * pod_rate_now).max(self.rule.rate_min);
        let cool_after = self.rule.cool_after;
        self.hot.retain_mut(|tracked| {
            let seconds: f64 = lengths.iter().rev().take(tracked.recent.len()).sum();
            tracked.heat.rate_now = tracked.recent.iter().sum::<f64>() / seconds;
            let is_new = now < tracked.since + cool_after;
            let stays = is_new || tracked.heat.rate_now >= threshold * COOL_SHARE;
            if !stays {
                change.cooled.push(Arc::clone(&tracked.key));
            }
            stays
        });
    }

    /// Takes in what has become hot.
    fn warm(&mut self, now: Instant, view: &View<'_>, change: &mut Change) {
        for hash in view.candidates() {
            if self.hot.iter().any(|tracked| tracked.key.hash == hash) {
                continue;
            }
            let sums = view.sums(hash);
            let mut heat = view.heat(&sums, hash);
            heat.rate_now = sums.recent / view.interval.length.as_secs_f64();
            if !view.is_hot(&sums, &heat, &self.rule) {
                continue;
            }
            if self.hot.len() >= self.rule.keys_max {
                let least = (0..self.hot.len()).min_by(|&one, &other| {
                    let rate = |at: usize| self.hot[at].heat.rate_now;
                    rate(one).total_cmp(&rate(other))
                });
                match least {
                    Some(at) if self.hot[at].heat.rate_now < heat.rate_now => {
                        change.cooled.push(self.hot.swap_remove(at).key);
                    }
                    _ => continue,
                }
            }
            self.hot.push(Tracked {
                key: HotKey::of_hash(hash),
                since: now,
                heat,
                recent: VecDeque::from([sums.recent]),
            });
        }
    }
}

/// What all sketches guarantee of one key, in reads.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    decayed: f64,
    recent: f64,
    units: f64,
}

impl View<'_> {
    /// Returns every hash that may be hot: one that is has its share of the threshold with at least
    /// one worker.
    #[expect(clippy::cast_precision_loss)]
    fn candidates(&self) -> Vec<u64> {
        let share = COOL_SHARE / self.sketches.len() as f64 * self.increment;
        let decayed_min = self.threshold * self.seconds * share;
        let recent_min = self.threshold * self.interval.length.as_secs_f64() * share;
        let may_be_hot = |counter: &Counter| {
            counter.guaranteed as f64 >= decayed_min || counter.recent as f64 >= recent_min
        };
        let counters = self.sketches.iter().flat_map(Sketch::counters);
        let mut hashes: Vec<u64> = counters.filter(may_be_hot).map(|c| c.hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        hashes
    }

    #[expect(clippy::cast_precision_loss)]
    fn sums(&self, hash: u64) -> Sums {
        let mut sums = Sums::default();
        for counter in self.sketches.iter().filter_map(|sketch| sketch.get(hash)) {
            sums.decayed += counter.guaranteed as f64 / self.increment;
            sums.recent += counter.recent as f64 / self.increment;
            sums.units += counter.units / self.increment;
        }
        sums
    }

    /// Returns the rates of a key. A sketch that has no counter for it may have missed as much as
    /// its smallest counter of that set holds.
    #[expect(clippy::cast_precision_loss)]
    fn heat(&self, sums: &Sums, hash: u64) -> Heat {
        let counts = self.sketches.iter().map(|sketch| sketch.count_max(hash));
        let most = counts.sum::<u64>() as f64 / self.increment;
        Heat {
            rate: sums.decayed / self.seconds,
            rate_error: (most - sums.decayed).max(0.0) / self.seconds,
            rate_now: 0.0,
            units_rate: sums.units / 1e6 / self.seconds,
        }
    }

    fn is_hot(&self, sums: &Sums, heat: &Heat, rule: &HotRule) -> bool {
        let seconds = self.interval.length.as_secs_f64();
        let is_steady = self.seconds >= STEADY_SECONDS_MIN
            && heat.rate >= self.threshold
            && sums.recent >= self.threshold * seconds * COOL_SHARE;
        let least = rule.rate_min * seconds.max(SUDDEN_INTERVAL_MIN.as_secs_f64());
        let usual = least.max(rule.share_min * self.interval.reads);
        let is_sudden = sums.recent >= usual + SUDDEN_DEVIATIONS * usual.sqrt();
        is_steady || is_sudden
    }
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss)] // counts here are far below 2⁵³
mod tests;
