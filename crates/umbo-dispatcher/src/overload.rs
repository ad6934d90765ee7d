//! The load of a dispatcher's shards: four queues for each, and one controller over all of them.
//!
//! Owns both, and brings them up to date. How a request gets a permit is the business of `phase/queue`; by
//! how much its price is raised is asked in `charge`, when its shards are known.

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
use umbo_types::{Operation, ShardId};
use xxhash_rust::xxh3::xxh3_64;

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

/// One shard. Reads and writes do not wait for each other: writes are done in groups, by one after the
/// other, and reads are not held up when a disk is. Heavy ones of both wait apart, so that light ones pass.
#[derive(Debug)]
struct Shard {
    reads: Way,
    writes: Way,
    heavy_reads: Way,
    heavy_writes: Way,
}

/// One way into a shard.
#[derive(Debug)]
struct Way {
    queue: AdmissionQueue<Waiter>,
    /// Store calls that have ended, modulo 2³².
    ended: AtomicU32,
    /// The queue as of the last tick: permits, those that were taken, requests that waited.
    at_tick: [AtomicU32; 3],
}

impl Shard {
    /// Returns what the controller goes by. What heavy requests wait is no pressure: they wait so that others do not.
    fn input(&self, progress: &mut [Progress; 2], now: Instant) -> TickInput {
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
        let heavy = [&self.heavy_reads, &self.heavy_writes].map(|way| way.queue.status(now));
        let (reads_all, writes_all) = (reads.and(&heavy[0]), writes.and(&heavy[1]));
        let shed = |tier: usize| {
            let shed = |status: &QueueStatus| status.tiers[tier].counts.shed.iter().sum::<u64>();
            shed(&reads_all) + shed(&writes_all)
        };
        let shed_by = |status: &QueueStatus| -> u64 {
            let tiers = status.tiers.iter();
            tiers.flat_map(|tier| tier.counts.shed).sum()
        };
        TickInput {
            queue_delay: [reads.delay_times, writes.delay_times],
            lag: reads.lag_times.max(writes.lag_times),
            oldest,
            shed: std::array::from_fn(shed),
            shed_by_queue: [shed_by(&reads_all), shed_by(&writes_all)],
        }
    }

    const fn way(&self, operation: Operation, is_heavy: bool) -> &Way {
        match (operation.is_write(), is_heavy) {
            (true, false) => &self.writes,
            (false, false) => &self.reads,
            (true, true) => &self.heavy_writes,
            (false, true) => &self.heavy_reads,
        }
    }

    const fn ways(&self) -> [&Way; 4] {
        [
            &self.reads,
            &self.writes,
            &self.heavy_reads,
            &self.heavy_writes,
        ]
    }
}

/// The load of all shards.
#[derive(Debug)]
pub struct Overload {
    shards: Box<[Shard]>,
    controller: OverloadController,
    /// Reads of a shard that are worked on at once.
    reads_at_once: u32,
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
    /// Returns for how long nothing has ended that is in flight.
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
    /// Begins with all shards idle.
    pub(crate) fn new(settings: OverloadSettings, shards: usize, now: Instant) -> Self {
        let way = |queue| Way {
            queue: AdmissionQueue::new(queue),
            ended: AtomicU32::new(0),
            at_tick: Default::default(),
        };
        let shard = || Shard {
            reads: way(settings.queue),
            writes: way(settings.queue.for_groups()),
            heavy_reads: way(settings.queue.for_heavy_work()),
            heavy_writes: way(settings.queue.for_heavy_work()),
        };
        let count = u16::try_from(shards).unwrap_or(u16::MAX);
        Self {
            shards: (0..count).map(|_| shard()).collect(),
            controller: OverloadController::new(settings.pressure, count, now),
            reads_at_once: heavy_reads_max(),
            progress: Mutex::new(vec![Default::default(); usize::from(count)]),
        }
    }

    /// Returns the queue of a shard for an operation; none for a shard that does not exist.
    pub(crate) fn queue(
        &self,
        shard: ShardId,
        operation: Operation,
        is_heavy: bool,
    ) -> Option<&AdmissionQueue<Waiter>> {
        let shard = self.shards.get(usize::from(shard.0))?;
        Some(&shard.way(operation, is_heavy).queue)
    }

    /// Returns whether a request waits at a shard.
    pub(crate) fn is_crowded(&self, shard: ShardId, operation: Operation) -> bool {
        let shard = self.shards.get(usize::from(shard.0));
        shard.is_some_and(|shard| {
            [false, true].map(|is_heavy| shard.way(operation, is_heavy).queue.is_crowded())
                != [false; 2]
        })
    }

    /// Returns how things stand at all queues of each shard together, by number. Permits for heavy requests count while
    /// there are such requests.
    pub fn statuses(&self, now: Instant) -> Vec<QueueStatus> {
        let all = |shard: &Shard| {
            let mut heavy =
                [&shard.heavy_reads, &shard.heavy_writes].map(|way| way.queue.status(now));
            for status in &mut heavy {
                let is_used = status.in_flight > 0 || status.waiting() > 0;
                status.limit = if is_used { status.limit } else { 0 };
            }
            let light = shard
                .reads
                .queue
                .status(now)
                .and(&shard.writes.queue.status(now));
            light.and(&heavy[0]).and(&heavy[1])
        };
        self.shards.iter().map(all).collect()
    }

    /// Returns how a shard was at the last tick, for an operation.
    pub(crate) fn moment(&self, shard: ShardId, operation: Operation) -> Option<ShardMoment> {
        let way = self.shards.get(usize::from(shard.0))?.way(operation, false);
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
            shard
                .way(operation, false)
                .ended
                .fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sheds who has waited too long. `lag` is by how much the runtime runs late.
    pub(crate) fn tick_queues(&self, now: Instant, lag: Duration) {
        for way in self.shards.iter().flat_map(Shard::ways) {
            let mut wakeups = Wakeups::new();
            way.queue.tick(now, lag, &mut wakeups);
            deliver(&way.queue, wakeups, now);
        }
    }

    /// Sets for how many heavy requests of each shard there are permits.
    fn set_permits(&self, now: Instant) {
        for (number, shard) in (0..).zip(&self.shards) {
            let ways = [
                (&shard.heavy_reads, false, self.reads_at_once),
                (&shard.heavy_writes, true, 1),
            ];
            for (way, is_write, at_once) in ways {
                let permits = self.controller.heavy_permits(ShardId(number), is_write);
                let mut wakeups = Wakeups::new();
                way.queue.set_permits(permits * at_once, now, &mut wakeups);
                deliver(&way.queue, wakeups, now);
            }
        }
    }

    /// Judges all shards.
    pub(crate) fn tick_pressure(&self, now: Instant) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let ways = self.shards.iter().zip(progress.iter_mut());
        let inputs: Vec<_> = ways
            .map(|(shard, progress)| shard.input(progress, now))
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
                "a shard is overloaded; what can wait is shed, or costs more"
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

/// Returns for how many reads the processors of a shard are to be busy with heavy ones: for half of the processors here,
/// which those of its node are taken to equal.
fn heavy_reads_max() -> u32 {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    u32::try_from(processors / 2).unwrap_or(u32::MAX).max(1)
}

/// Returns the hash by which overload control knows a caller of this name.
pub fn hash_of(caller: &str) -> u64 {
    xxh3_64(caller.as_bytes())
}

/// Wakes requests that waited. The permit of one that has left goes to the next.
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
