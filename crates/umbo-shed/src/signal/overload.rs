//! The signal of a pod: all shards and classes together.
//!
//! Requests record, are admitted and are charged from any thread without a lock; the tick, which one
//! task calls every 100 ms, does all the judging under one lock that only reports share.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use umbo_types::ShardId;

use super::class::Class;
use super::events::{Engagement, Log};
use super::ladder::{Steps, TIERS};
use super::ledger::{AccountId, Ledger};
use super::ratio;
use super::report::{OverloadReport, ShedByPenalty};
use super::settings::{SignalSettings, TICK};
use super::slices::Slices;
use super::toll::{Terms, Toll, Work};
use super::watched::{CLASSES, Change, Post, Watched};

/// A tick this much early is in time: timers are not exact.
const EARLY: Duration = Duration::from_millis(10);
/// Time between two sweeps of the ledger.
const SWEEP: Duration = Duration::from_secs(1);
/// Length of an epoch of cohorts.
const EPOCH_SECONDS: u64 = 3_600;

/// Knows which shards are overloaded, and sheds what can wait.
#[derive(Debug)]
pub struct Overload {
    settings: SignalSettings,
    origin: Instant,
    /// By shard, then by class.
    slices: Box<[[Slices; CLASSES]]>,
    tolls: Box<[Toll]>,
    ledger: Ledger,
    /// Shards that penalise somebody.
    penalising: AtomicU32,
    epoch: AtomicU32,
    watch: Mutex<Watch>,
}

/// What a tick has begun and ended, for the log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// Engagements that began.
    pub begun: Vec<Engagement>,
    /// Engagements that ended: the last penalty was lifted.
    pub ended: Vec<Engagement>,
}

/// What the tick alone changes.
#[derive(Debug)]
struct Watch {
    ticked: Instant,
    swept: Instant,
    shards: Vec<Watched>,
    log: Log,
    /// Requests shed in engagements that have ended.
    shed: [u64; TIERS],
}

impl Overload {
    /// Memory that knows the service times of one shard and class, in bytes: at most a kibibyte.
    pub const CLASS_BYTES: usize = ratio::CLASS_BYTES;

    /// Begins at `now` with `shards` shards, about all of which nothing is known.
    pub fn new(settings: SignalSettings, shards: u16, now: Instant) -> Self {
        let watch = Watch {
            ticked: now,
            swept: now,
            shards: (0..shards).map(|_| Watched::new()).collect(),
            log: Log::new(settings.events_max),
            shed: [0; TIERS],
        };
        let slices = || std::array::from_fn(|_| Slices::new());
        Self {
            origin: now,
            slices: (0..shards).map(|_| slices()).collect(),
            tolls: (0..shards).map(|_| Toll::default()).collect(),
            ledger: Ledger::new(settings.callers_max),
            penalising: AtomicU32::new(0),
            epoch: AtomicU32::new(0),
            watch: Mutex::new(watch),
            settings,
        }
    }

    /// Records the service time of one store call; of one that timed out, the timeout.
    ///
    /// Answers from a cache and requests that were shed do not belong here. Times are told apart
    /// from 1 µs to 4.3 s. A shard that does not exist is ignored.
    #[inline]
    pub fn record(&self, shard: ShardId, class: Class, service_time: Duration) {
        if let Some(classes) = self.slices.get(usize::from(shard.0)) {
            classes[class as usize].record(service_time);
        }
    }

    /// Lets work through, or sheds it. `random` spreads the waits of those who are shed.
    ///
    /// While no shard is overloaded this is one relaxed load.
    #[inline]
    pub fn admit(&self, work: &Work, now: Instant, random: u64) -> Result<(), ShedByPenalty> {
        if self.penalising.load(Relaxed) == 0 {
            return Ok(());
        }
        let Some(toll) = self.tolls.get(usize::from(work.shard.0)) else {
            return Ok(());
        };
        let terms = Terms {
            ledger: &self.ledger,
            now_micros: self.micros(now),
            epoch: self.epoch.load(Relaxed),
            floor: self.settings.floor,
            random,
        };
        toll.admit(work, &terms)
    }

    /// Notes what work was charged when it was done, from which the caller's usual rate is known.
    #[inline]
    pub fn charged(&self, work: &Work) {
        let Some(toll) = self.tolls.get(usize::from(work.shard.0)) else {
            return;
        };
        let id = AccountId::new(work.caller, work.shard, work.tier);
        match self.ledger.find_or_place(id, work.cost) {
            Some(account) => account.charge(work.cost),
            None => toll.charge_others(work),
        }
    }

    /// Notes for how long the store has held the oldest request of a shard; zero where it holds none.
    ///
    /// To be told before each tick. Without it a shard that answers nothing at all looks like one
    /// that is asked nothing, and is released.
    pub fn note_oldest(&self, shard: ShardId, age: Duration) {
        if let Some(toll) = self.tolls.get(usize::from(shard.0)) {
            toll.note_oldest(age);
        }
    }

    /// Returns the cohort of a caller at the moment, to shed a part of a tier before all of it.
    #[inline]
    pub fn cohort(&self, caller: u64) -> u8 {
        super::cohort::cohort(caller, self.epoch.load(Relaxed))
    }

    /// Judges all shards. To be called every [`TICK`]; does nothing before one has passed.
    pub fn tick(&self, now: Instant) -> Changes {
        let mut watch = self.watch();
        let elapsed = now.saturating_duration_since(watch.ticked);
        let mut changes = Changes::default();
        if elapsed + EARLY < TICK {
            return changes;
        }
        watch.ticked = now;
        let age = now.saturating_duration_since(self.origin);
        self.epoch
            .store((age.as_secs() / EPOCH_SECONDS) as u32, Relaxed);
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        for at in 0..watch.shards.len() {
            self.tick_shard(&mut watch, at, elapsed_ms, now, &mut changes);
        }
        let since_sweep = now.saturating_duration_since(watch.swept);
        if since_sweep + EARLY >= SWEEP {
            watch.swept = now;
            self.sweep(&watch, since_sweep.as_secs_f64(), age.as_secs_f64());
        }
        changes
    }

    /// Returns the state of all shards.
    pub fn report(&self, now: Instant) -> OverloadReport {
        let watch = self.watch();
        let shards = watch.shards.iter().enumerate();
        let shards: Vec<_> = shards
            .map(|(at, shard)| shard.report(&self.post(at, now)))
            .collect();
        let mut shed = watch.shed;
        for engagement in shards.iter().filter_map(|shard| shard.engagement.as_ref()) {
            add(&mut shed, engagement.shed);
        }
        OverloadReport {
            shards,
            engagements: watch.log.begun(),
            shed,
            memory: self.memory(),
        }
    }

    /// Returns the engagements, newest first: those under way, then up to
    /// [`SignalSettings::events_max`] that have ended.
    pub fn engagements(&self) -> Vec<Engagement> {
        let watch = self.watch();
        let shards = watch.shards.iter().zip(&self.tolls);
        let mut all: Vec<_> = shards
            .filter_map(|(shard, toll)| shard.engagement(toll))
            .collect();
        all.sort_by_key(|engagement| Reverse(engagement.number));
        all.extend(watch.log.newest_first().cloned());
        all
    }

    fn tick_shard(
        &self,
        watch: &mut Watch,
        at: usize,
        elapsed_ms: u64,
        now: Instant,
        changes: &mut Changes,
    ) {
        let post = self.post(at, now);
        let is_penalised = || post.toll.steps() != Steps::default();
        let before = is_penalised();
        let change = watch.shards[at].tick(&post, elapsed_ms, &mut watch.log, &self.settings);
        match (before, is_penalised()) {
            (false, true) => _ = self.penalising.fetch_add(1, Relaxed),
            (true, false) => _ = self.penalising.fetch_sub(1, Relaxed),
            _ => {}
        }
        match change {
            Some(Change::Begun(engagement)) => changes.begun.push(engagement),
            Some(Change::Ended(engagement)) => {
                add(&mut watch.shed, engagement.shed);
                changes.ended.push(engagement);
            }
            None => {}
        }
    }

    fn post(&self, at: usize, now: Instant) -> Post<'_> {
        Post {
            shard: ShardId(at as u16),
            toll: &self.tolls[at],
            slices: &self.slices[at],
            now,
        }
    }

    fn sweep(&self, watch: &Watch, seconds: f64, age_seconds: f64) {
        let is_engaged = |at: usize| watch.shards.get(at).is_some_and(Watched::is_engaged);
        self.ledger.sweep(seconds, age_seconds, |shard| {
            is_engaged(usize::from(shard.0))
        });
        for (at, toll) in self.tolls.iter().enumerate() {
            toll.sweep(seconds, is_engaged(at));
        }
    }

    fn memory(&self) -> usize {
        let shard = size_of::<[Slices; CLASSES]>() + size_of::<Watched>() + size_of::<Toll>();
        self.ledger.memory() + self.tolls.len() * shard
    }

    fn micros(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.origin);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    /// A panic under the lock leaves each part whole, and the next tick goes on from there.
    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(sums: &mut [u64; TIERS], more: [u64; TIERS]) {
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum += more;
    }
}
