//! Measures the ladder on an embedded store: the busy time of each call, as a dispatcher charges it.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinSet;
use umbo_quota::ActualUsage;
use umbo_routing::SLOTS;
use umbo_store::{
    Atomicity, CallContext, Change, Condition, Durability, Mutation, RangeRequest, ScanRequest,
    SortRange, Store as _, Touched, WriteRequest,
};
use umbo_store_redb::{Config, RedbStore};
use umbo_types::limits::CHUNK_BYTES_MAX;
use umbo_types::{Clock, Key, NamespaceId, Operation, Value, Version};

use super::fit::{Pages, Rung, median};
use super::folder::{evict, open_files};
use super::ladder::{LENGTHS, LadderStep, rows_of, steps};
use crate::cli_error::CliError;
use crate::server::SystemClock;
use crate::settings::StoreSettings;

/// Memory of the store for cold pages: a small part of the rows of a ladder.
const COLD_CACHE: usize = 256 << 10;
/// Fewest passes over the ladder: a median of two calls or more for either half.
const PASSES_MIN: usize = 4;
/// Most calls of a step in a pass, and the time after which no other follows.
const VISIT_CALLS: usize = 8;
const VISIT_TIME: Duration = Duration::from_millis(2);
/// Bytes of a batch that fills the store: small, of all bytes that may wait for a commit.
const FILL_BYTES: usize = 1 << 20;
/// Partition of all rows: each length has a namespace, and so a shard.
const PARTITION: &str = "calibrate";
/// Namespace of the rows of the first length; the other lengths follow.
const FIRST_NAMESPACE: u32 = 1_000;

/// What a call did and took.
struct Sample {
    work: ActualUsage,
    busy: Duration,
}

/// An open store and its rows.
struct Bench {
    store: Arc<RedbStore>,
    /// Random bytes that values are cut from: no file system makes them smaller.
    noise: Bytes,
    random: u64,
    /// Files that are dropped from the page cache before each call.
    evicted: Vec<File>,
    /// How often they were dropped, and how often no page was left.
    evictions: [u32; 2],
}

/// Measures hot and cold rungs until the end; returns them, and whether cold ones came from the disk.
pub(super) async fn measure(
    settings: &StoreSettings,
    folder: &Path,
    end: Instant,
) -> Result<(Vec<Rung>, bool), CliError> {
    let cache = usize::try_from(settings.cache.0).unwrap_or(usize::MAX);
    let mut hot = Bench::open(settings, folder, cache)?;
    hot.fill().await?;
    let now = Instant::now();
    let half = end.saturating_duration_since(now) / 2;
    let mut rungs = hot.climb(Pages::Hot, now + half).await?;
    hot.close().await;
    let mut cold = Bench::open(settings, folder, COLD_CACHE)?;
    cold.evicted = open_files(folder)?;
    rungs.extend(cold.climb(Pages::Cold, end).await?);
    // A page that a write of the moment has left is no reason to say that nothing is dropped.
    let [tried, gone] = cold.evictions;
    let is_cold = gone > tried / 2;
    cold.close().await;
    Ok((rungs, is_cold))
}

impl Bench {
    fn open(settings: &StoreSettings, folder: &Path, cache: usize) -> Result<Self, CliError> {
        let config = Config {
            folder: folder.to_owned(),
            shards: Some(settings.shards).filter(|&shards| shards > 0),
            cache_bytes: cache,
            ..Config::default()
        };
        let mut bench = Self {
            store: Arc::new(RedbStore::open(config, Arc::new(SystemClock))?),
            noise: Bytes::new(),
            random: 1,
            evicted: Vec::new(),
            evictions: [0; 2],
        };
        let words = 2 * LENGTHS[LENGTHS.len() - 1] / size_of::<u64>();
        let noise = (0..words).flat_map(|_| bench.next().to_le_bytes());
        bench.noise = noise.collect::<Vec<_>>().into();
        Ok(bench)
    }

    async fn close(self) {
        self.store.close().await;
    }

    /// Returns the next number of a xorshift generator.
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    #[expect(clippy::cast_possible_truncation)] // the remainder is below the bound
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    async fn fill(&mut self) -> Result<(), CliError> {
        for len in LENGTHS {
            let rows = rows_of(len);
            let batch = (FILL_BYTES / (len + 1)).clamp(1, 1_000);
            let mut at = 0;
            while at < rows {
                let end = rows.min(at + batch);
                let request = self.request(len, at..end, Durability::Async)?;
                self.write(request).await?;
                at = end;
            }
        }
        Ok(())
    }

    /// Measures all steps in turn, so that whatever disturbs the machine meets all of them.
    async fn climb(&mut self, pages: Pages, end: Instant) -> Result<Vec<Rung>, CliError> {
        let steps = steps();
        let mut samples: Vec<Vec<Sample>> = steps.iter().map(|_| Vec::new()).collect();
        let mut passes = 0;
        while passes < PASSES_MIN || Instant::now() < end {
            for (step, samples) in steps.iter().zip(&mut samples) {
                let is_late = passes >= PASSES_MIN && Instant::now() >= end;
                if !is_late {
                    self.visit(step, pages, samples).await?;
                }
            }
            passes += 1;
        }
        let steps = steps.iter().zip(samples).enumerate();
        let rungs =
            steps.filter_map(|(at, (step, samples))| rung(step, pages, at % 3 == 2, &samples));
        Ok(rungs.collect())
    }

    async fn visit(
        &mut self,
        step: &LadderStep,
        pages: Pages,
        samples: &mut Vec<Sample>,
    ) -> Result<(), CliError> {
        if pages == Pages::Hot && !step.operation.is_write() {
            // Other steps were measured since: the processor's caches have their data.
            self.call(step).await?;
        }
        let began = Instant::now();
        for _ in 0..VISIT_CALLS {
            if pages == Pages::Cold {
                self.evictions[0] += 1;
                self.evictions[1] += u32::from(evict(&self.evicted));
            }
            samples.extend(self.call(step).await?);
            if began.elapsed() > VISIT_TIME {
                break;
            }
        }
        Ok(())
    }

    async fn call(&mut self, step: &LadderStep) -> Result<Vec<Sample>, CliError> {
        let rows = rows_of(step.len);
        let first = self.below(rows.saturating_sub(step.rows) + 1);
        match step.operation {
            Operation::Put | Operation::BatchWrite => self.writes(step).await,
            Operation::Get => self.get(step.len, first).await,
            Operation::MultiGet => self.multi_get(step).await,
            _ => self.walk(step, first).await,
        }
        .map_err(|error| match error {
            CliError::Calibration(reason) => {
                CliError::Calibration(format!("{}: {reason}", step.name()))
            }
            other => other,
        })
    }

    async fn get(&self, len: usize, row: usize) -> Result<Vec<Sample>, CliError> {
        let (call, key) = (CallContext::internal(), key(row)?);
        let began = Instant::now();
        let found = self.store.get(&call, namespace(len), &key).await;
        let busy = busy_time(&call, began);
        let bytes = found
            .map_err(failed)?
            .map_or(0, |row| row.value.bytes.len());
        let touched = Touched {
            rows: 1,
            bytes: (key.sort.as_bytes().len() + bytes) as u64,
        };
        Ok(vec![Sample::read(touched, busy)])
    }

    async fn multi_get(&mut self, step: &LadderStep) -> Result<Vec<Sample>, CliError> {
        let rows = rows_of(step.len);
        let keys = (0..step.rows).map(|_| key(self.below(rows)));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        let call = CallContext::internal();
        let began = Instant::now();
        let found = self
            .store
            .multi_get(&call, namespace(step.len), &keys)
            .await;
        let busy = busy_time(&call, began);
        let mut touched = Touched::default();
        for (key, row) in keys.iter().zip(found) {
            let bytes = row.map_err(failed)?.map_or(0, |row| row.value.bytes.len());
            touched += Touched {
                rows: 1,
                bytes: (key.sort.as_bytes().len() + bytes) as u64,
            };
        }
        Ok(vec![Sample::read(touched, busy)])
    }

    /// Reads rows by a range or scan, in as many chunks as it takes.
    async fn walk(&self, step: &LadderStep, first: usize) -> Result<Vec<Sample>, CliError> {
        let (namespace, first) = (namespace(step.len), key(first)?);
        let (mut touched, mut busy) = (Touched::default(), Duration::ZERO);
        let mut range = SortRange {
            start: first.sort.to_bytes(),
            end: None,
        };
        let map = self.store.shard_map();
        let shard = CallContext::internal().locate(&map, namespace, &first.partition);
        let shard = Some(shard.map_err(failed)?);
        let mut after = None;
        loop {
            let call = CallContext::internal();
            let rows_max = u32::try_from(step.rows as u64 - touched.rows).unwrap_or(u32::MAX);
            let (part, is_whole);
            if step.operation == Operation::Range {
                let request = RangeRequest {
                    namespace,
                    partition: first.partition.clone(),
                    range: range.clone(),
                    reverse: false,
                    rows_max,
                    bytes_max: CHUNK_BYTES_MAX,
                    keys_only: false,
                };
                let began = Instant::now();
                let page = self.store.range(&call, &request).await;
                busy += busy_time(&call, began);
                let page = page.map_err(failed)?;
                (part, is_whole) = (page.touched, page.resume_after.is_none());
                if let Some(last) = page.resume_after {
                    range = range.beyond(&last, false);
                }
            } else {
                let request = ScanRequest {
                    namespace,
                    slots: 0..=SLOTS - 1,
                    shard,
                    after: after.take(),
                    rows_max,
                    bytes_max: CHUNK_BYTES_MAX,
                    keys_only: false,
                };
                let began = Instant::now();
                let page = self.store.scan(&call, &request).await;
                busy += busy_time(&call, began);
                let page = page.map_err(failed)?;
                (part, is_whole) = (page.touched, page.resume_after.is_none());
                after = page.resume_after;
            }
            touched += part;
            if is_whole || touched.rows >= step.rows as u64 {
                return Ok(vec![Sample::read(touched, busy)]);
            }
        }
    }

    async fn writes(&mut self, step: &LadderStep) -> Result<Vec<Sample>, CliError> {
        let rows = rows_of(step.len);
        let mut calls = JoinSet::new();
        for _ in 0..step.at_once {
            let first = self.below(rows - step.rows + 1);
            let request = self.request(step.len, first..first + step.rows, Durability::Sync)?;
            let (bytes, rows) = (written_bytes(&request), step.rows as u64);
            let store = Arc::clone(&self.store);
            calls.spawn(async move {
                let call = CallContext::internal();
                let began = Instant::now();
                let written = store.write(&call, request).await;
                let busy = busy_time(&call, began);
                let refused = written.into_iter().find_map(Result::err);
                refused.map_or(Ok(()), |error| Err(failed(error)))?;
                let work = ActualUsage {
                    rows,
                    write_bytes: bytes,
                    writes: rows,
                    ..ActualUsage::default()
                };
                Ok(Sample { work, busy })
            });
        }
        calls.join_all().await.into_iter().collect()
    }

    async fn write(&self, request: WriteRequest) -> Result<(), CliError> {
        let written = self.store.write(&CallContext::internal(), request).await;
        let refused = written.into_iter().find_map(Result::err);
        refused.map_or(Ok(()), |error| Err(failed(error)))
    }

    fn request(
        &mut self,
        len: usize,
        rows: std::ops::Range<usize>,
        durability: Durability,
    ) -> Result<WriteRequest, CliError> {
        let mut mutations = Vec::with_capacity(rows.len());
        for row in rows {
            let from = self.below(self.noise.len() - len);
            let bytes = self.noise.slice(from..from + len);
            mutations.push(Mutation {
                key: key(row)?,
                change: Change::Put {
                    value: Value::new(bytes, Bytes::new(), Bytes::new()).map_err(failed)?,
                    expires_at: None,
                },
                condition: Condition::Always,
            });
        }
        Ok(WriteRequest {
            namespace: namespace(len),
            epoch: 0,
            mutations,
            atomicity: Atomicity::None,
            durability,
            proposed: Version::proposed_at(SystemClock.wall()),
            idempotency: None,
            not_before: None,
            run: None,
        })
    }
}

impl Sample {
    fn read(touched: Touched, busy: Duration) -> Self {
        let work = ActualUsage {
            rows: touched.rows,
            read_bytes: touched.bytes,
            reads: 1,
            ..ActualUsage::default()
        };
        Self { work, busy }
    }
}

/// Returns the rung of a step: every other call tells the time that is charged, those between the time that the price
/// is held against. `None` of a single call.
fn rung(step: &LadderStep, pages: Pages, is_held_out: bool, samples: &[Sample]) -> Option<Rung> {
    let middle = samples.get(samples.len() / 2)?;
    let half = |from: usize| {
        let times = samples.iter().skip(from).step_by(2);
        let mut times: Vec<f64> = times.map(|one| one.busy.as_secs_f64()).collect();
        median(&mut times)
    };
    let (charged, busy) = (half(0), half(1));
    let work = ActualUsage {
        service_time: Duration::from_secs_f64(charged),
        ..middle.work
    };
    (charged > 0.0 && busy > 0.0).then(|| Rung {
        name: step.name(),
        operation: step.operation,
        pages,
        work,
        busy_ms: busy * 1e3,
        calls: samples.len(),
        is_held_out,
        is_reference: step.is_small_get() && pages == Pages::Hot,
    })
}

/// Returns the time that a call is charged by.
fn busy_time(call: &CallContext, began: Instant) -> Duration {
    let elapsed = began.elapsed();
    call.busy_time().unwrap_or(elapsed)
}

fn written_bytes(request: &WriteRequest) -> u64 {
    let bytes = request.mutations.iter().map(|mutation| {
        let value = match &mutation.change {
            Change::Put { value, .. } => value.bytes.len(),
            _ => 0,
        };
        let Key { partition, sort } = &mutation.key;
        partition.as_bytes().len() + sort.as_bytes().len() + value
    });
    bytes.sum::<usize>() as u64
}

fn namespace(len: usize) -> NamespaceId {
    let at = (0_u32..).zip(LENGTHS).find(|(_, of)| *of == len);
    NamespaceId(FIRST_NAMESPACE + at.map_or(0, |(at, _)| at))
}

fn key(row: usize) -> Result<Key, CliError> {
    Key::new(PARTITION.as_bytes(), format!("{row:08}").into_bytes()).map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::Calibration(error.to_string())
}
