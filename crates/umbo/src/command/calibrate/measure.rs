//! Measures all steps on an embedded store: the busy time of each call, as a dispatcher charges it.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinSet;
use umbo_quota::ActualUsage;
use umbo_store::{
    Atomicity, CallContext, Change, Condition, Durability, Mutation, RangeRequest, ScanRequest,
    SortRange, Store as _, Touched, WriteRequest,
};
use umbo_store_redb::{Config, RedbStore};
use umbo_types::limits::SLOTS;
use umbo_types::{Clock, Key, NamespaceId, Operation, ShardId, Value, Version};

use super::fit::{Cost, Pages, median};
use super::steps::{CallKind, LENGTHS, rows_of, steps};
use crate::cli_error::{CliError, Exit};
use crate::server::SystemClock;
use crate::settings::StoreSettings;

/// Memory of the store for cold pages: a small part of the rows of the steps.
const COLD_CACHE: usize = 256 << 10;
/// Fewest passes over the steps, so that each half of the calls has at least two.
const PASSES_MIN: usize = 4;
/// Most calls of a step in a pass, and the time after which no further call begins.
const VISIT_CALLS: usize = 8;
const VISIT_TIME: Duration = Duration::from_millis(2);
/// Bytes of a batch that fills the store: a small part of the bytes that may wait for a commit.
const FILL_BYTES: usize = 1 << 20;
/// Partition of all rows: each length has a namespace, and so a shard.
const PARTITION: &str = "calibrate";
/// Bytes of a sort key: the digits of the number of its row.
const SORT_KEY_LEN: usize = 8;
/// Namespace of the rows of the first length; the other lengths follow.
const FIRST_NAMESPACE: u32 = 1_000;

/// Lowest time of a call, in seconds, for a clock that cannot tell it from zero.
const SHORTEST: f64 = 1e-9;

/// An open store and its rows.
struct Bench {
    store: Arc<RedbStore>,
    /// Random bytes that values are cut from: no file system makes them smaller.
    noise: Bytes,
    random: fastrand::Rng,
    /// Files that are dropped from the page cache before each call.
    evicted: Vec<File>,
    /// Number of calls with all pages dropped before, minus the calls with pages that stayed: pages of a recent write
    /// may stay.
    cold_calls: i64,
}

/// Measures hot and cold costs until the end; returns them, and whether cold ones came from the disk.
pub(super) async fn measure(
    settings: &StoreSettings,
    folder: &Path,
    end: Instant,
) -> Result<(Vec<Cost>, bool), CliError> {
    let cache = usize::try_from(settings.cache.0).unwrap_or(usize::MAX);
    let mut hot = Bench::open(settings, folder, cache)?;
    hot.fill().await?;
    let now = Instant::now();
    let half = end.saturating_duration_since(now) / 2;
    let mut costs = hot.pass(Pages::Hot, now + half).await?;
    hot.store.close().await;
    drop(hot);
    let mut cold = Bench::open(settings, folder, COLD_CACHE)?;
    cold.evicted = open_files(folder).map_err(failed)?;
    costs.extend(cold.pass(Pages::Cold, end).await?);
    cold.store.close().await;
    Ok((costs, cold.cold_calls > 0))
}

impl Bench {
    fn open(settings: &StoreSettings, folder: &Path, cache: usize) -> Result<Self, CliError> {
        let config = Config {
            folder: folder.to_owned(),
            shards: Some(settings.shards).filter(|&shards| shards > 0),
            cache_bytes: cache,
            ..Config::default()
        };
        let mut random = fastrand::Rng::with_seed(1);
        let mut noise = vec![0; 2 * LENGTHS[LENGTHS.len() - 1]];
        random.fill(&mut noise);
        Ok(Self {
            store: Arc::new(RedbStore::open(config, Arc::new(SystemClock))?),
            noise: noise.into(),
            random,
            evicted: Vec::new(),
            cold_calls: 0,
        })
    }

    async fn fill(&mut self) -> Result<(), CliError> {
        for len in LENGTHS {
            let rows = rows_of(len);
            let batch = (FILL_BYTES / (len + 1)).clamp(1, 1_000);
            for at in (0..rows).step_by(batch) {
                let request = self.request(len, at..rows.min(at + batch), Durability::Async)?;
                write(&self.store, request, len).await?;
            }
        }
        Ok(())
    }

    /// Measures all steps in turn, so that a disturbance of the machine affects all of them.
    async fn pass(&mut self, pages: Pages, end: Instant) -> Result<Vec<Cost>, CliError> {
        let mut steps: Vec<_> = steps().into_iter().map(|step| (step, Vec::new())).collect();
        let mut passes = 0;
        while passes < PASSES_MIN || Instant::now() < end {
            for (step, calls) in &mut steps {
                if pages == Pages::Hot && !step.operation.is_write() {
                    // This call brings the data back into the processor's caches, which other steps have used since.
                    self.call(step).await?;
                }
                let began = Instant::now();
                for _ in 0..VISIT_CALLS {
                    if pages == Pages::Cold {
                        let is_cold = evict(&self.evicted);
                        self.cold_calls += if is_cold { 1 } else { -1 };
                    }
                    calls.extend(self.call(step).await?);
                    if began.elapsed() > VISIT_TIME {
                        break;
                    }
                }
            }
            passes += 1;
        }
        let steps = steps.iter().enumerate();
        Ok(steps
            .map(|(at, (step, calls))| cost(*step, pages, at % 3 == 2, calls))
            .collect())
    }

    async fn call(&mut self, step: &CallKind) -> Result<Vec<ActualUsage>, CliError> {
        let &CallKind {
            operation,
            rows,
            len,
            at_once,
        } = step;
        if !operation.is_write() {
            return Ok(vec![self.read(operation, len, rows).await?]);
        }
        let mut calls = JoinSet::new();
        for _ in 0..at_once {
            let first = self.random.usize(..=rows_of(len) - rows);
            let request = self.request(len, first..first + rows, Durability::Sync)?;
            let store = Arc::clone(&self.store);
            calls.spawn(async move { write(&store, request, len).await });
        }
        calls.join_all().await.into_iter().collect()
    }

    /// Reads rows by their keys, or in their order by a range or a scan.
    async fn read(
        &mut self,
        operation: Operation,
        len: usize,
        rows: usize,
    ) -> Result<ActualUsage, CliError> {
        let namespace = namespace(len);
        let shard = shard_of(&self.store, namespace)?;
        let first = key(self.random.usize(..=rows_of(len) - rows))?;
        let keys = (0..rows).map(|_| key(self.random.usize(..rows_of(len))));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        let of_keys = Touched {
            rows: rows as u64,
            bytes: (rows * (SORT_KEY_LEN + len)) as u64,
        };
        let rows_max = u32::try_from(rows).unwrap_or(u32::MAX);
        let (bytes_max, keys_only) = (u32::MAX, false);
        let range = RangeRequest {
            namespace,
            range: SortRange {
                start: first.sort.to_bytes(),
                end: None,
            },
            partition: first.partition,
            reverse: false,
            rows_max,
            bytes_max,
            keys_only,
        };
        let scan = ScanRequest {
            namespace,
            slots: 0..=SLOTS - 1,
            after: None,
            rows_max,
            bytes_max,
            keys_only,
        };
        let (store, call) = (&self.store, CallContext::internal());
        let began = Instant::now();
        let read = match operation {
            Operation::Get => {
                let row = store.get(&call, shard, namespace, &keys[0]).await;
                row.map(|_| of_keys)
            }
            Operation::MultiGet => {
                let rows = store.multi_get(&call, shard, namespace, &keys).await;
                let failure = rows.into_iter().find_map(Result::err);
                failure.map_or(Ok(of_keys), Err)
            }
            Operation::Range => {
                let page = store.range(&call, shard, &range).await;
                page.map(|page| page.touched)
            }
            _ => {
                let page = store.scan(&call, shard, &scan).await;
                page.map(|page| page.touched)
            }
        };
        let service_time = busy_time(&call, began);
        let touched = read.map_err(failed)?;
        Ok(ActualUsage {
            rows: touched.rows,
            read_bytes: touched.bytes,
            reads: 1,
            service_time,
            ..ActualUsage::default()
        })
    }

    fn request(
        &mut self,
        len: usize,
        rows: Range<usize>,
        durability: Durability,
    ) -> Result<WriteRequest, CliError> {
        let mut mutation = |row| {
            let from = self.random.usize(..self.noise.len() - len);
            let bytes = self.noise.slice(from..from + len);
            Ok(Mutation {
                key: key(row)?,
                change: Change::Put {
                    value: Value::new(bytes, Bytes::new(), Bytes::new()).map_err(failed)?,
                    expires_at: None,
                },
                condition: Condition::Always,
            })
        };
        Ok(WriteRequest {
            namespace: namespace(len),
            epoch: 0,
            mutations: rows.map(&mut mutation).collect::<Result<_, CliError>>()?,
            atomicity: Atomicity::None,
            durability,
            proposed: Version::proposed_at(SystemClock.wall()),
            idempotency: None,
            not_before: None,
            run: None,
        })
    }
}

/// Returns the shard of the rows of a namespace, which are in one partition.
fn shard_of(store: &RedbStore, namespace: NamespaceId) -> Result<ShardId, CliError> {
    Ok(store.shard_map().locate(namespace, &key(0)?.partition))
}

/// Writes rows with values of a length.
async fn write(
    store: &RedbStore,
    request: WriteRequest,
    len: usize,
) -> Result<ActualUsage, CliError> {
    let rows = request.mutations.len();
    let call = CallContext::internal();
    let shard = shard_of(store, request.namespace)?;
    let began = Instant::now();
    let written = store.write(&call, shard, request).await;
    let service_time = busy_time(&call, began);
    if let Some(error) = written.into_iter().find_map(Result::err) {
        return Err(failed(error));
    }
    Ok(ActualUsage {
        rows: rows as u64,
        write_bytes: (rows * (PARTITION.len() + SORT_KEY_LEN + len)) as u64,
        writes: rows as u64,
        service_time,
        ..ActualUsage::default()
    })
}

/// Returns the cost of a step. Every other call gives the charged time, and the calls between give the time to compare
/// the price with.
fn cost(step: CallKind, pages: Pages, is_held_out: bool, calls: &[ActualUsage]) -> Cost {
    let half = |from: usize| {
        let times = calls.iter().skip(from).step_by(2);
        let mut times: Vec<f64> = times.map(|call| call.service_time.as_secs_f64()).collect();
        median(&mut times).max(SHORTEST)
    };
    Cost {
        step,
        pages,
        work: ActualUsage {
            service_time: Duration::from_secs_f64(half(0)),
            ..calls[calls.len() / 2]
        },
        busy_ms: half(1) * 1e3,
        calls: calls.len(),
        is_held_out,
    }
}

/// Returns the time that a call is charged by.
fn busy_time(call: &CallContext, began: Instant) -> Duration {
    let elapsed = began.elapsed();
    call.busy_time().unwrap_or(elapsed)
}

fn namespace(len: usize) -> NamespaceId {
    let at = (FIRST_NAMESPACE..).zip(LENGTHS).find(|(_, of)| *of == len);
    NamespaceId(at.map_or(FIRST_NAMESPACE, |(at, _)| at))
}

fn key(row: usize) -> Result<Key, CliError> {
    Key::new(
        PARTITION.as_bytes(),
        format!("{row:0SORT_KEY_LEN$}").into_bytes(),
    )
    .map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::told(Exit::Failed, format_args!("cannot calibrate: {error}"))
}

/// Opens the files of all shards of a folder of data.
fn open_files(folder: &Path) -> std::io::Result<Vec<File>> {
    let paths = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let paths = paths.collect::<std::io::Result<Vec<_>>>()?.into_iter();
    let files = paths.filter(|path| path.extension().is_some_and(|end| end == "redb"));
    files.map(File::open).collect()
}

/// Asks the system to drop the pages of files from its page cache, and returns whether their first pages are gone then.
#[cfg(target_os = "linux")]
fn evict(files: &[File]) -> bool {
    use std::io::IoSliceMut;

    use rustix::fs::{Advice, fadvise};
    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    let mut is_gone = true;
    for file in files {
        // Advice: a file system may ignore it.
        let _ = fadvise(file, 0, None, Advice::DontNeed);
        let byte = &mut [0];
        let read = preadv2(
            file,
            &mut [IoSliceMut::new(byte)],
            0,
            ReadWriteFlags::NOWAIT,
        );
        is_gone &= matches!(read, Ok(0) | Err(Errno::AGAIN));
    }
    is_gone
}

/// Other systems have no such advice.
#[cfg(not(target_os = "linux"))]
fn evict(_files: &[File]) -> bool {
    false
}
