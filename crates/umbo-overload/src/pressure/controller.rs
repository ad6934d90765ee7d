//! The overload controller of a dispatcher: all shards together.
//!
//! Requests record, are priced and are charged from any thread without a lock. One task calls the tick every 100 ms,
//! which judges all shards under one lock; only reports take that lock too.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use umbo_types::{Criticality, PriceMultiplier, RequestUnits, ShardId};

use super::episode::{EpisodeLog, OverloadEpisode};
use super::fair_shares::FairShares;
use super::heavy_work::HeavyWork;
use super::latency;
use super::penalty::Prices;
use super::pressure_controller::{CLASSES, TickInput};
use super::report::OverloadReport;
use super::settings::{PressureSettings, TICK};
use super::shard_monitor::{EpisodeChange, ShardMonitor, ShardView};
use super::time_slices::TimeSlices;
use crate::class::Class;
use crate::estimate::SLICE;

/// Timers are not exact: a tick may come early by half its time.
const EARLY: Duration = TICK.checked_div(2).expect("two is not zero");

/// A call of one shard.
#[derive(Debug, Clone, Copy)]
pub struct ShardCall {
    /// The shard that is asked.
    pub shard: ShardId,
    /// What kind of work it is.
    pub class: Class,
    /// How much it matters.
    pub tier: Criticality,
    /// A hash of the payer; the same for all requests of a caller. `None` for Umbo's own work, which has no share.
    pub caller: Option<u64>,
    /// The estimate of its request, at the plain price: calls of one class and size take about as long.
    pub size: RequestUnits,
}

/// The state of one shard that requests read and update.
#[derive(Debug)]
struct ShardSamples {
    /// [`Prices`] of now.
    prices: AtomicU64,
    slices: [TimeSlices; CLASSES],
    /// The longest service time that is charged, by class, in nanoseconds; 0 if all of it is charged.
    charged_max: [AtomicU64; CLASSES],
    shares: FairShares,
    heavy: HeavyWork,
    /// The greatest pressure of any class at the last tick, as the bits of an `f32`.
    pressure: AtomicU32,
}

/// Knows the pressure of each shard, and the price multipliers that follow from it.
#[derive(Debug)]
pub struct OverloadController {
    settings: PressureSettings,
    shards: Box<[ShardSamples]>,
    watch: Mutex<ShardWatch>,
}

/// Episodes that a tick has begun and ended, for the log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// Episodes that began.
    pub begun: Vec<OverloadEpisode>,
    /// Episodes that ended: there is no pressure, nothing was shed, and every price is the plain one again.
    pub ended: Vec<OverloadEpisode>,
}

/// State that only the tick changes.
#[derive(Debug)]
struct ShardWatch {
    ticked: Instant,
    turned: Instant,
    shards: Vec<ShardMonitor>,
    log: EpisodeLog,
}

impl OverloadController {
    /// Memory for the service times of one shard and class, in bytes.
    pub const CLASS_BYTES: usize = latency::CLASS_BYTES;

    /// Begins at `now` with `shards` shards. Nothing is known about them yet.
    pub fn new(settings: PressureSettings, shards: u16, now: Instant) -> Self {
        let watch = ShardWatch {
            ticked: now,
            turned: now,
            shards: (0..shards).map(|_| ShardMonitor::new()).collect(),
            log: EpisodeLog::new(settings.episodes_max),
        };
        let shard = || ShardSamples {
            prices: AtomicU64::new(0),
            slices: std::array::from_fn(|_| TimeSlices::new()),
            charged_max: Default::default(),
            shares: FairShares::new(),
            heavy: HeavyWork::new(),
            pressure: AtomicU32::new(0),
        };
        Self {
            shards: (0..shards).map(|_| shard()).collect(),
            watch: Mutex::new(watch),
            settings,
        }
    }

    /// Records the service time of one store call. For a call that timed out it is the timeout.
    ///
    /// Answers from a cache and requests that were shed do not belong here. Times are told apart
    /// from 1 µs to 4.3 s. A shard that does not exist is ignored.
    #[inline]
    pub fn record(&self, shard: ShardId, class: Class, service_time: Duration) {
        if let Some(shard) = self.shards.get(usize::from(shard.0)) {
            shard.slices[class as usize].record(service_time);
        }
    }

    /// Returns the charged part of a service time: all of it, or at most the normal p99 of the class while the shard is
    /// under pressure. So the victims of an overload do not pay for it. One relaxed load.
    #[inline]
    pub fn charged_time(&self, shard: ShardId, class: Class, service_time: Duration) -> Duration {
        let shard = self.shards.get(usize::from(shard.0));
        match shard.map_or(0, |shard| shard.charged_max[class as usize].load(Relaxed)) {
            0 => service_time,
            nanos => service_time.min(Duration::from_nanos(nanos)),
        }
    }

    /// Returns whether prices of a shard are raised: one relaxed load.
    #[inline]
    pub fn is_raised(&self, shard: ShardId) -> bool {
        let shard = self.shards.get(usize::from(shard.0));
        shard.is_some_and(|shard| shard.prices.load(Relaxed) != 0)
    }

    /// Returns the greatest pressure of any class of work on a shard as of the last tick, from 0 to 1; 0 for a shard
    /// that does not exist. One relaxed load.
    #[inline]
    pub fn pressure(&self, shard: ShardId) -> f32 {
        let shard = self.shards.get(usize::from(shard.0));
        shard.map_or(0.0, |shard| f32::from_bits(shard.pressure.load(Relaxed)))
    }

    /// Returns the price multiplier of a caller's request for a shard. Without pressure this is one relaxed load.
    #[inline]
    pub fn multiplier(&self, shard: ShardId, tier: Criticality, caller: u64) -> PriceMultiplier {
        let Some(shard) = self.shards.get(usize::from(shard.0)) else {
            return PriceMultiplier::NONE;
        };
        match shard.prices.load(Relaxed) {
            0 => PriceMultiplier::NONE,
            word => self.raised(shard, Prices::of_word(word), tier, caller),
        }
    }

    /// Returns whether a caller has more than its fair share of a shard's busy time.
    #[inline]
    pub fn is_above_share(&self, shard: ShardId, tier: Criticality, caller: u64) -> bool {
        let shard = self.shards.get(usize::from(shard.0));
        shard.is_some_and(|shard| shard.shares.is_above(tier, caller))
    }

    /// Returns how long a caller has to stay away if it has used the part of its share that its tier is held to. While
    /// no caller is held to a share this is one relaxed load.
    #[inline]
    pub fn refusal(&self, call: &ShardCall) -> Option<Duration> {
        let shard = self.shards.get(usize::from(call.shard.0))?;
        if !shard.shares.is_held(call.tier) {
            return None;
        }
        let is_designated = |caller: &u64| self.settings.designated.has_caller(*caller);
        let caller = call.caller.filter(is_designated)?;
        shard.shares.refusal(call.tier, caller)
    }

    /// Returns the busy time that a call is expected to take if its caller is held to a share, and counts it, so that
    /// later calls see a call that waits. Zero while no caller is held, and then one relaxed load.
    #[inline]
    pub fn expect(&self, call: &ShardCall) -> Duration {
        let shard = self.shards.get(usize::from(call.shard.0));
        let Some(shard) = shard.filter(|shard| shard.shares.is_held(call.tier)) else {
            return Duration::ZERO;
        };
        let expected = shard.heavy.expected(call.class, call.size);
        shard.shares.add(call.tier, call.caller, expected);
        expected
    }

    /// Returns whether a call takes much longer than others that the shard serves now. While nothing is heavy this is
    /// one relaxed load.
    #[inline]
    pub fn is_heavy(&self, call: &ShardCall) -> bool {
        let shard = self.shards.get(usize::from(call.shard.0));
        shard.is_some_and(|shard| shard.heavy.is_heavy(call.class, call.size))
    }

    /// Returns the longest busy time that heavy reads or writes of a shard usually take now; zero while nothing is
    /// heavy.
    pub fn longest_heavy(&self, shard: ShardId, is_write: bool) -> Duration {
        let shard = self.shards.get(usize::from(shard.0));
        shard.map_or(Duration::ZERO, |shard| shard.heavy.longest(is_write))
    }

    /// Records how long a call kept its shard busy; of work for several calls at once, its part. `expected` of it is
    /// counted already.
    #[inline]
    pub fn was_busy(&self, call: &ShardCall, busy: Duration, expected: Duration) {
        if let Some(shard) = self.shards.get(usize::from(call.shard.0)) {
            shard.heavy.record(call.class, call.size, busy);
            let more = busy.saturating_sub(expected);
            shard.shares.add(call.tier, call.caller, more);
        }
    }

    /// Judges all shards; `input` returns the findings at each of them. Call it every [`TICK`]; an earlier call does
    /// nothing.
    pub fn tick(&self, now: Instant, input: impl Fn(ShardId) -> TickInput) -> Changes {
        let mut watch = self.watch();
        let elapsed = now.saturating_duration_since(watch.ticked);
        let mut changes = Changes::default();
        if elapsed + EARLY < TICK {
            return changes;
        }
        watch.ticked = now;
        let elapsed_ms = u32::try_from(elapsed.as_millis()).unwrap_or(u32::MAX);
        let in_second = now.saturating_duration_since(watch.turned);
        let is_over = in_second + EARLY >= SLICE;
        if is_over {
            watch.turned = now;
        }
        let ShardWatch { shards, log, .. } = &mut *watch;
        for (at, monitor) in shards.iter_mut().enumerate() {
            let ShardSamples { shares, heavy, .. } = &self.shards[at];
            if is_over {
                shares.turn();
                heavy.turn();
            }
            heavy.tick(shares.callers_by_tier());
            let view = self.view(at, now);
            let input = input(view.shard);
            let (measures, change) = monitor.tick(&view, &input, elapsed_ms, log, &self.settings);
            self.shards[at]
                .prices
                .store(measures.prices.word(), Relaxed);
            shares.hold(
                &measures.parts,
                if is_over { Duration::ZERO } else { in_second },
            );
            let pressure = monitor.pressure().to_bits();
            self.shards[at].pressure.store(pressure, Relaxed);
            let charged_max = self.shards[at].charged_max.iter();
            for (word, time) in charged_max.zip(monitor.charged_max()) {
                let nanos = time.map_or(0, |time| time.as_nanos() as u64);
                word.store(nanos, Relaxed);
            }
            match change {
                Some(EpisodeChange::Begun(episode)) => changes.begun.push(episode),
                Some(EpisodeChange::Ended(episode)) => changes.ended.push(episode),
                None => {}
            }
        }
        changes
    }

    /// Returns the state of all shards.
    pub fn report(&self, now: Instant) -> OverloadReport {
        let watch = self.watch();
        let shards = watch.shards.iter().enumerate();
        let shard = size_of::<ShardSamples>() + size_of::<ShardMonitor>();
        OverloadReport {
            shards: shards
                .map(|(at, shard)| shard.report(&self.view(at, now)))
                .collect(),
            episodes: watch.log.begun(),
            memory: self.shards.len() * shard,
        }
    }

    /// Returns the episodes, newest first: those under way, then up to
    /// [`PressureSettings::episodes_max`] that have ended.
    pub fn episodes(&self) -> Vec<OverloadEpisode> {
        let watch = self.watch();
        let under_way = watch.shards.iter().filter_map(ShardMonitor::episode);
        let mut all: Vec<_> = under_way.cloned().collect();
        all.sort_by_key(|episode| Reverse(episode.number));
        all.extend(watch.log.newest_first().cloned());
        all
    }

    #[cold]
    fn raised(
        &self,
        shard: &ShardSamples,
        prices: Prices,
        tier: Criticality,
        caller: u64,
    ) -> PriceMultiplier {
        let designated = &self.settings.designated;
        if !designated.has_caller(caller) {
            return PriceMultiplier::NONE;
        }
        let is_first = designated.names_callers() || shard.shares.is_above(tier, caller);
        prices.multiplier(tier, is_first)
    }

    fn view(&self, at: usize, now: Instant) -> ShardView<'_> {
        ShardView {
            shard: ShardId(at as u16),
            slices: &self.shards[at].slices,
            shares: &self.shards[at].shares,
            heavy: &self.shards[at].heavy,
            now,
        }
    }

    /// A panic under the lock leaves each part whole, and the next tick goes on from there.
    fn watch(&self) -> MutexGuard<'_, ShardWatch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
