//! The load of a dispatcher's shards: two queues for each, two of each place for heavy requests, and one controller
//! over all of them.
//!
//! Owns both, and updates them. `phase/queue` gives permits to requests; `charge` asks how much the price of a request
//! is raised, once its shards are known.

use std::num::NonZero;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use umbo_observe::request_records::ShardMoment;
use umbo_overload::{
    Admission, AdmissionQueue, OverloadController, PressureSettings, QueueSettings, QueueStatus,
    TickInput, Wakeups,
};
use umbo_types::{Criticality, Operation, ShardId};
use xxhash_rust::xxh3::xxh3_64;

/// Busy time of all permits of heavy requests together, if there is more than one: two small durable writes.
const HEAVY_TIME_MAX: Duration = Duration::from_millis(2);

/// Wakes a request that waits at a queue.
pub(crate) type Waiter = oneshot::Sender<Admission>;

/// How queues and controller are made.
#[derive(Debug, Clone, Default)]
pub struct OverloadSettings {
    /// Of the queue of each shard for reads; that for writes has a fixed number of permits.
    pub queue: QueueSettings,
    /// Of the pressure.
    pub pressure: PressureSettings,
}

/// The ways into a shard, or the ways for heavy requests of a place. Reads and writes do not wait for each other:
/// writes are done in groups, one group after the other, and a slow disk does not hold up reads.
#[derive(Debug)]
struct Ways {
    reads: Way,
    writes: Way,
}

/// One way into a shard.
#[derive(Debug)]
struct Way {
    queue: AdmissionQueue<Waiter>,
    /// Store calls that have ended, modulo 2³².
    ended: AtomicU32,
    /// The queue as of the last tick: permits, permits in use, waiting requests.
    at_tick: [AtomicU32; 3],
}

impl Ways {
    fn new(reads: QueueSettings, writes: QueueSettings) -> Self {
        let way = |settings| Way {
            queue: AdmissionQueue::new(settings),
            ended: AtomicU32::new(0),
            at_tick: Default::default(),
        };
        Self {
            reads: way(reads),
            writes: way(writes),
        }
    }

    /// Returns the input of the controller, including the requests that the heavy queues shown at this shard have shed.
    /// The waiting time of heavy requests is no pressure: they wait so that others do not.
    fn input(&self, heavy: Option<&Self>, progress: &mut [Progress; 2], now: Instant) -> TickInput {
        let ways = [&self.reads, &self.writes];
        let statuses = ways.map(|way| way.queue.status(now));
        let mut oldest = Duration::ZERO;
        for ((way, status), progress) in ways.iter().zip(&statuses).zip(progress) {
            let queue = [status.limit, status.in_flight, status.waiting() as u32];
            for (kept, number) in way.at_tick.iter().zip(queue) {
                kept.store(number, Ordering::Relaxed);
            }
            oldest = oldest.max(progress.look(way, status.in_flight, now));
        }
        let [reads, writes] = statuses;
        let mut shed_by = [shed_of(&reads), shed_of(&writes)];
        if let Some(heavy) = heavy {
            for (shed, way) in shed_by.iter_mut().zip([&heavy.reads, &heavy.writes]) {
                let more = shed_of(&way.queue.status(now));
                shed.iter_mut()
                    .zip(more)
                    .for_each(|(shed, more)| *shed += more);
            }
        }
        let [of_reads, of_writes] = shed_by;
        TickInput {
            queue_delay: [reads.delay_times, writes.delay_times],
            lag: reads.lag_times.max(writes.lag_times),
            oldest,
            shed: std::array::from_fn(|tier| of_reads[tier] + of_writes[tier]),
            shed_by_queue: shed_by.map(|shed| shed.iter().sum()),
        }
    }

    const fn way(&self, operation: Operation) -> &Way {
        if operation.is_write() {
            &self.writes
        } else {
            &self.reads
        }
    }

    fn status(&self, now: Instant) -> QueueStatus {
        let writes = self.writes.queue.status(now);
        self.reads.queue.status(now).and(&writes)
    }
}

/// Returns how many requests a queue has shed, by tier.
fn shed_of(status: &QueueStatus) -> [u64; Criticality::ALL.len()] {
    status.tiers.map(|tier| tier.counts.shed.iter().sum())
}

/// The load of all shards.
#[derive(Debug)]
pub struct Overload {
    shards: Box<[Ways]>,
    /// The ways of heavy requests, of each place: of all shards of this process together, as they share its disk and
    /// processors; else of each shard.
    heavy: Box<[Ways]>,
    controller: OverloadController,
    /// Heavy requests that a place works on at once.
    heavy_at_once: u32,
    /// Of both ways into each shard.
    progress: Mutex<Vec<[Progress; 2]>>,
}

/// Since when a way into a shard has held requests without ending any.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    ended: u32,
    stuck_since: Option<Instant>,
}

impl Progress {
    /// Returns how long requests have been in flight without any of them ending.
    fn look(&mut self, way: &Way, in_flight: u32, now: Instant) -> Duration {
        let ended = way.ended.load(Ordering::Relaxed);
        if in_flight == 0 {
            self.stuck_since = None;
        } else if self.stuck_since.is_none() || self.ended != ended {
            self.stuck_since = Some(now);
        }
        self.ended = ended;
        let since = self.stuck_since;
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

impl Overload {
    /// Begins with all shards idle. `is_one_place` says whether all of them are in this process.
    pub(crate) fn new(
        settings: OverloadSettings,
        shards: usize,
        is_one_place: bool,
        now: Instant,
    ) -> Self {
        let count = u16::try_from(shards).unwrap_or(u16::MAX);
        let places = if is_one_place { count.min(1) } else { count };
        let queue = settings.queue;
        let heavy = queue.for_heavy_work();
        Self {
            shards: (0..count)
                .map(|_| Ways::new(queue, queue.for_groups()))
                .collect(),
            heavy: (0..places).map(|_| Ways::new(heavy, heavy)).collect(),
            controller: OverloadController::new(settings.pressure, count, now),
            heavy_at_once: heavy_at_once(),
            progress: Mutex::new(vec![Default::default(); usize::from(count)]),
        }
    }

    /// Returns the queue of a shard for an operation. `None` for a shard that does not exist.
    pub(crate) fn queue(
        &self,
        shard: ShardId,
        operation: Operation,
        is_heavy: bool,
    ) -> Option<&AdmissionQueue<Waiter>> {
        let ways = self.shards.get(usize::from(shard.0))?;
        let ways = if is_heavy {
            self.heavy_ways(shard)
        } else {
            ways
        };
        Some(&ways.way(operation).queue)
    }

    /// Returns whether a request waits for a shard.
    pub(crate) fn is_crowded(&self, shard: ShardId, operation: Operation) -> bool {
        let kinds = [false, true].into_iter();
        let mut queues = kinds.filter_map(|is_heavy| self.queue(shard, operation, is_heavy));
        queues.any(AdmissionQueue::is_crowded)
    }

    /// Returns the ways of heavy requests for a shard.
    fn heavy_ways(&self, shard: ShardId) -> &Ways {
        &self.heavy[usize::from(shard.0) % self.heavy.len()]
    }

    /// Returns how things stand at all queues of each shard together, by number. Heavy requests are shown at the first
    /// shard of their place, and their permits while there are such requests.
    pub fn statuses(&self, now: Instant) -> Vec<QueueStatus> {
        let mut statuses: Vec<_> = self.shards.iter().map(|ways| ways.status(now)).collect();
        for (status, heavy) in statuses.iter_mut().zip(&self.heavy) {
            let mut heavy = heavy.status(now);
            if heavy.in_flight == 0 && heavy.waiting() == 0 {
                heavy.limit = 0;
            }
            *status = status.and(&heavy);
        }
        statuses
    }

    /// Returns how a shard was at the last tick, for an operation.
    pub(crate) fn moment(&self, shard: ShardId, operation: Operation) -> Option<ShardMoment> {
        let way = self.shards.get(usize::from(shard.0))?.way(operation);
        let [limit, in_flight, waiting] =
            (way.at_tick.each_ref()).map(|number| number.load(Ordering::Relaxed));
        Some(ShardMoment {
            pressure: self.controller.pressure(shard),
            limit,
            in_flight,
            waiting,
        })
    }

    /// Returns the controller.
    pub const fn controller(&self) -> &OverloadController {
        &self.controller
    }

    /// Records that a store call has ended that was not heavy.
    #[inline]
    pub(crate) fn ended(&self, shard: ShardId, operation: Operation) {
        if let Some(shard) = self.shards.get(usize::from(shard.0)) {
            shard.way(operation).ended.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sheds requests that have waited too long. `lag` is how late the runtime runs.
    pub(crate) fn tick_queues(&self, now: Instant, lag: Duration) {
        let ways = self.shards.iter().chain(&self.heavy);
        for way in ways.flat_map(|ways| [&ways.reads, &ways.writes]) {
            let mut wakeups = Wakeups::new();
            way.queue.tick(now, lag, &mut wakeups);
            deliver(&way.queue, wakeups, now);
        }
    }

    /// Sets for how many heavy requests each place has permits: for a bounded busy time of the longest of them.
    fn set_permits(&self, now: Instant) {
        let places = self.heavy.len();
        for (place, ways) in self.heavy.iter().enumerate() {
            for (way, is_write) in [(&ways.reads, false), (&ways.writes, true)] {
                let shards = (0..self.shards.len()).skip(place).step_by(places);
                let longest = shards.map(|shard| {
                    let shard = ShardId(shard as u16);
                    self.controller.longest_heavy(shard, is_write)
                });
                let longest = longest.max().unwrap_or_default().as_nanos();
                let each = HEAVY_TIME_MAX.as_nanos().checked_div(longest).unwrap_or(1);
                let permits = self.heavy_at_once * (each as u32).max(1);
                let mut wakeups = Wakeups::new();
                way.queue.set_permits(permits, now, &mut wakeups);
                deliver(&way.queue, wakeups, now);
            }
        }
    }

    /// Judges all shards.
    pub(crate) fn tick_pressure(&self, now: Instant) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let ways = self.shards.iter().zip(progress.iter_mut());
        let inputs: Vec<_> = ways
            .enumerate()
            .map(|(at, (ways, progress))| ways.input(self.heavy.get(at), progress, now))
            .collect();
        drop(progress);
        let input = |shard: ShardId| inputs[usize::from(shard.0)];
        let changes = self.controller.tick(now, input);
        self.set_permits(now);
        for episode in changes.begun {
            tracing::warn!(
                shard = episode.shard.0,
                class = episode.class.as_str(),
                input = episode.input.as_str(),
                "a shard is overloaded; requests of lower tiers are shed, or cost more"
            );
        }
        for episode in changes.ended {
            tracing::info!(
                shard = episode.shard.0,
                class = episode.class.as_str(),
                shed = episode.shed_total(),
                "a shard has recovered"
            );
        }
    }
}

/// Returns how many heavy requests a place works on at once: one for two processors. Another machine is taken to have
/// the number of this one.
fn heavy_at_once() -> u32 {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    u32::try_from(processors / 2).unwrap_or(u32::MAX).max(1)
}

/// Returns the hash of a caller's name that overload control uses.
pub fn hash_of(caller: &str) -> u64 {
    xxh3_64(caller.as_bytes())
}

/// Wakes requests that waited. If a request has left, its permit goes to the next one.
pub(crate) fn deliver(queue: &AdmissionQueue<Waiter>, mut wakeups: Wakeups<Waiter>, now: Instant) {
    while let Some((waiter, admission)) = wakeups.pop() {
        if let Err(Admission::Permit(permit)) = waiter.send(admission) {
            queue.leave(
                permit,
                umbo_overload::ServiceOutcome::Unknown,
                now,
                &mut wakeups,
            );
        }
    }
}
