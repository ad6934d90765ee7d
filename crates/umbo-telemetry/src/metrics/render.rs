//! A scrape: the families, their order, and their values, for any visitor.
//!
//! Series of an operation appear with its first request, so that a scrape of an idle server is short. Those of refusals
//! are there from the start, at zero: a rate over a series that begins with an event does not see it. `text` is the visitor that writes Prometheus' lines.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use umbo_types::{Criticality, Operation, RequestUnits};

use super::RequestMetrics;
use super::buckets::{BUCKETS, HISTOGRAM_BOUNDS, nanos};
use super::counters::{Counter, CounterSlot, Histogram, OperationCounters, STATUS_SERIES};
use super::hotkey::HotKeyGauges;
use super::outcome::RequestOutcome;
use super::overload::OverloadGauges;
use super::process::{DiskGauges, ProcessSample};
use super::quota::QuotaGauges;
use super::remote::RemoteGauges;
use super::text::MetricsText;
use super::visit::{DurationHistogram, Families, MetricVisitor, Seconds};
use crate::metric::Metric;
use crate::metric_names::{self as names, STATUSES};

/// Content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// State of one shard at the time of a scrape.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShardGauges {
    /// Number of the shard.
    pub shard: u16,
    /// Whether it serves reads and writes.
    pub is_available: bool,
    /// Requests for it.
    pub requests: u64,
    /// Cost of its part of them.
    pub charged: RequestUnits,
    /// Rows stored.
    pub rows: u64,
    /// Size of its file.
    pub file_bytes: u64,
    /// Bytes of its rows, with what the engine stores beside keys and values; none where they are unknown.
    pub live_bytes: Option<u64>,
    /// Mutations waiting for a commit.
    pub queued_mutations: u64,
    /// Commits since the start.
    pub commits: u64,
    /// Commits since the start that were waited for until they were on the disk.
    pub syncs: u64,
    /// Time that those took, in nanoseconds.
    pub sync_nanos: u64,
    /// Reads of a row that its cache answered.
    pub cache_hits: u64,
    /// Reads of a row that the shard's cache did not answer.
    pub cache_misses: u64,
    /// Compactions of its file.
    pub compactions: u64,
    /// Time that those took, in nanoseconds.
    pub compaction_nanos: u64,
    /// Mutations committed since the start.
    pub mutations: u64,
    /// Expired rows reclaimed since the start.
    pub reclaimed_rows: u64,
    /// Asynchronous writes that were acknowledged and lost.
    pub lost_async_writes: u64,
    /// Reads of its file since the start that failed, or needed a part that is known to be unreadable.
    pub bad_reads: u64,
    /// Expired rows that await reclaiming.
    pub expired_rows: u64,
    /// Removed namespaces whose rows may not all be reclaimed yet.
    pub purging_namespaces: u64,
}

/// Umbo's own records in effect at the time of a scrape.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordsGauges {
    /// Epoch of their home.
    pub epoch: u64,
    /// Number of their changes.
    pub revision: u64,
    /// Time since the revision was last found to be the newest.
    pub age: Duration,
    /// Whether a newer revision cannot be read.
    pub is_unreadable: bool,
    /// Namespaces that are being removed.
    pub removing: u64,
}

/// Loads at the time of a scrape.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadGauges {
    /// How many there are in each state.
    pub by_state: Vec<(&'static str, u64)>,
    /// How many have waited here for long without getting on.
    pub stuck: u64,
}

/// Values of a scrape besides the counters.
#[derive(Debug, Clone, Default)]
pub struct Scrape<'a> {
    /// Version of the program.
    pub version: &'a str,
    /// Umbo's own records.
    pub records: RecordsGauges,
    /// Loads.
    pub loads: LoadGauges,
    /// Shards in order.
    pub shards: &'a [ShardGauges],
    /// State of the quotas.
    pub quota: QuotaGauges,
    /// State of the hot-key layer, if there is one.
    pub hotkey: Option<HotKeyGauges>,
    /// State of the queues and of shedding, if they are on.
    pub overload: Option<OverloadGauges>,
    /// Bytes of answers that their clients have not read.
    pub answer_bytes: usize,
    /// Bytes that request bodies hold.
    pub body_bytes: usize,
    /// State of the connections to the shard nodes, if shards are on other machines.
    pub remote: Option<RemoteGauges<'a>>,
    /// The disk of the shards, if they are on one of this machine.
    pub disk: Option<DiskGauges>,
    /// The process sample, if it could be read.
    pub process: Option<ProcessSample>,
}

impl RequestMetrics {
    /// Returns the text of a scrape.
    pub fn render(&self, scrape: &Scrape<'_>) -> String {
        let mut text = MetricsText::new();
        self.visit(scrape, &mut text);
        text.into_text()
    }

    /// Shows all metrics to a visitor.
    pub fn visit(&self, scrape: &Scrape<'_>, visitor: &mut dyn MetricVisitor) {
        let families = &mut Families(visitor);
        families.family(
            &names::BUILD_INFO,
            [([String::from(scrape.version)], 1_u64)],
        );
        self.visit_operations(families);
        self.visit_charges(families);
        scrape.quota.visit(families);
        if let Some(hotkey) = &scrape.hotkey {
            hotkey.visit(families);
        }
        if let Some(overload) = &scrape.overload {
            overload.visit(families);
        }
        self.visit_refusals(families);
        let loads = scrape.loads.by_state.iter();
        families.family(&names::LOADS, loads.map(|&(state, count)| ([state], count)));
        families.single(&names::LOADS_STUCK, scrape.loads.stuck);
        self.visit_connections(families);
        visit_records(families, &scrape.records);
        families.single(&names::ANSWER_BYTES, scrape.answer_bytes as u64);
        families.single(&names::BODY_BYTES, scrape.body_bytes as u64);
        visit_shards(families, scrape.shards);
        if let Some(remote) = &scrape.remote {
            remote.visit(families);
        }
        visit_disk(families, scrape.disk);
        if let Some(process) = scrape.process {
            visit_process(families, &process);
        }
    }

    fn visit_operations(&self, families: &mut Families<'_>) {
        let seen: Vec<Operation> = Operation::ALL
            .into_iter()
            .filter(|&operation| {
                self.sum(|slot| &slot.operation(operation).begun) > 0 || {
                    (0..STATUS_SERIES).any(|at| self.requests(operation, at) > 0)
                }
            })
            .collect();
        families.head(&names::REQUESTS);
        for &operation in &seen {
            for at in 0..STATUS_SERIES {
                let count = self.requests(operation, at);
                if count > 0 {
                    let status = STATUSES
                        .get(at)
                        .map_or_else(|| names::STATUS_OTHER.to_owned(), u16::to_string);
                    families.sample(&names::REQUESTS, &[operation.as_str(), &status], count);
                }
            }
        }
        self.visit_outcomes(families);
        self.visit_histogram(families, &names::REQUEST_DURATION, &seen, |counters| {
            &counters.duration
        });
        self.visit_histogram(families, &names::STORE_DURATION, &seen, |counters| {
            &counters.store_duration
        });
        let by_operation = |pick: fn(&OperationCounters) -> &Counter| {
            seen.iter().map(move |&operation| {
                let sum = self.sum(|slot| pick(slot.operation(operation)));
                ([operation.as_str()], sum)
            })
        };
        families.family(&names::REQUEST_BYTES, by_operation(|c| &c.request_bytes));
        families.family(&names::RESPONSE_BYTES, by_operation(|c| &c.response_bytes));
        // `ended` is read before `begun`: a request that comes and goes meanwhile must not make the
        // difference negative.
        let ended: Vec<u64> = by_operation(|c| &c.ended).map(|(_, sum)| sum).collect();
        let in_flight = by_operation(|c| &c.begun)
            .zip(ended)
            .map(|((label, begun), ended)| (label, begun.saturating_sub(ended)));
        families.family(&names::REQUESTS_IN_FLIGHT, in_flight);
    }

    fn visit_outcomes(&self, families: &mut Families<'_>) {
        families.head(&names::REQUEST_OUTCOMES);
        let tiers = Criticality::ALL.map(Criticality::as_str);
        let tiers = tiers.into_iter().chain([names::TIER_UNKNOWN]);
        for operation in Operation::ALL {
            for (at, tier) in tiers.clone().enumerate() {
                for outcome in RequestOutcome::ALL {
                    let count =
                        self.sum(|slot| &slot.operation(operation).outcomes[at][outcome as usize]);
                    let labels = [operation.as_str(), tier, outcome.as_str()];
                    families.sample(&names::REQUEST_OUTCOMES, &labels, count);
                }
            }
        }
    }

    /// Writes the costs of requests, of which operations that cost nothing have no series, and how many were rejected.
    fn visit_charges(&self, families: &mut Families<'_>) {
        let by_operation = |pick: fn(&OperationCounters) -> &Counter| {
            Operation::ALL.into_iter().map(move |operation| {
                let sum = self.sum(|slot| pick(slot.operation(operation)));
                ([operation.as_str()], sum)
            })
        };
        let some = |(_, sum): &(_, u64)| *sum > 0;
        let charged = by_operation(|c| &c.charged_micros)
            .filter(some)
            .map(|(label, micros)| (label, RequestUnits::from_micros(micros)));
        families.family(&names::REQUEST_UNITS, charged);
        let admitted = by_operation(|c| &c.admitted).filter(some);
        families.family(&names::REQUESTS_ADMITTED, admitted);
        families.family(&names::REQUESTS_REJECTED, by_operation(|c| &c.rejected));
        families.family(&names::REQUESTS_REPEATED, by_operation(|c| &c.repeated));
    }

    fn visit_histogram(
        &self,
        families: &mut Families<'_>,
        metric: &'static Metric,
        operations: &[Operation],
        pick: fn(&OperationCounters) -> &Histogram,
    ) {
        families.head(metric);
        for &operation in operations {
            let label = operation.as_str();
            let mut sum = 0;
            let cumulative: [u64; BUCKETS] = std::array::from_fn(|at| {
                sum += self.sum(|slot| &pick(slot.operation(operation)).buckets[at]);
                sum
            });
            let histogram = DurationHistogram {
                bounds: &HISTOGRAM_BOUNDS,
                cumulative: &cumulative,
                sum_nanos: self.sum(|slot| &pick(slot.operation(operation)).sum_nanos),
            };
            families.0.histogram(metric, label, &histogram);
        }
    }

    fn visit_refusals(&self, families: &mut Families<'_>) {
        let counts = self.codes.iter().enumerate().map(|(at, code)| {
            let count = self.sum(|slot| &slot.refused[at]);
            ([code.name, code.kind], count)
        });
        families.family(&names::REFUSED, counts);
        let aborted = self.sum(|slot| &slot.streams_aborted);
        families.single(&names::STREAMS_ABORTED, aborted);
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let rows = ["applied", "skipped", "rejected"]
            .into_iter()
            .zip(&self.load_rows);
        families.family(
            &names::LOAD_ROWS,
            rows.map(|(outcome, rows)| ([outcome], count(rows))),
        );
        families.single(&names::LOAD_BYTES, count(&self.load_bytes));
        let ended = ["applied", "failed"].into_iter().zip(&self.loads_ended);
        families.family(
            &names::LOADS_ENDED,
            ended.map(|(outcome, ended)| ([outcome], count(ended))),
        );
    }

    fn visit_connections(&self, families: &mut Families<'_>) {
        use std::sync::atomic::Ordering::Relaxed;
        families.single(&names::CONNECTIONS, self.connections_open());
        let accepted = self.connections_accepted.load(Relaxed);
        families.single(&names::CONNECTIONS_ACCEPTED, accepted);
        let evicted = self.connections_evicted.load(Relaxed);
        families.single(&names::CONNECTIONS_EVICTED, evicted);
        let turned_away = self.connections_turned_away.load(Relaxed);
        families.single(&names::CONNECTIONS_TURNED_AWAY, turned_away);
        let failed = self.tls_handshakes_failed.load(Relaxed);
        families.single(&names::TLS_HANDSHAKES_FAILED, failed);
    }

    fn requests(&self, operation: Operation, at: usize) -> u64 {
        self.sum(|slot| &slot.operation(operation).requests[at])
    }

    fn sum<'a>(&'a self, pick: impl Fn(&'a CounterSlot) -> &'a Counter) -> u64 {
        let counts = self.slots.iter().map(|slot| pick(slot).get());
        counts.fold(0, u64::wrapping_add)
    }
}

fn visit_records(families: &mut Families<'_>, records: &RecordsGauges) {
    families.single(&names::RECORDS_EPOCH, records.epoch);
    families.single(&names::RECORDS_REVISION, records.revision);
    let age = Seconds(nanos(records.age));
    families.single(&names::RECORDS_AGE, age);
    let is_unreadable = u64::from(records.is_unreadable);
    families.single(&names::RECORDS_UNREADABLE, is_unreadable);
    families.single(&names::NAMESPACES_REMOVING, records.removing);
}

fn visit_shards(families: &mut Families<'_>, shards: &[ShardGauges]) {
    visit_availability(families, shards);
    let requests = shards.iter().map(|s| ([s.shard.to_string()], s.requests));
    families.family(&names::SHARD_REQUESTS, requests);
    visit_shard_files(families, shards);
    let charged = shards.iter().map(|s| ([s.shard.to_string()], s.charged));
    families.family(&names::SHARD_REQUEST_UNITS, charged);
}

pub(super) fn visit_availability(families: &mut Families<'_>, shards: &[ShardGauges]) {
    let serves = |s: &ShardGauges| ([s.shard.to_string()], u64::from(s.is_available));
    families.family(&names::SHARD_AVAILABLE, shards.iter().map(serves));
}

/// Writes the status of the shards' files.
pub(super) fn visit_shard_files(families: &mut Families<'_>, shards: &[ShardGauges]) {
    type Pick = fn(&ShardGauges) -> u64;
    let gauges: [(&'static Metric, Pick); 14] = [
        (&names::SHARD_ROWS, |s| s.rows),
        (&names::SHARD_FILE_BYTES, |s| s.file_bytes),
        (&names::SHARD_QUEUED_MUTATIONS, |s| s.queued_mutations),
        (&names::SHARD_COMMITS, |s| s.commits),
        (&names::SHARD_SYNCS, |s| s.syncs),
        (&names::SHARD_COMPACTIONS, |s| s.compactions),
        (&names::ROW_CACHE_HITS, |s| s.cache_hits),
        (&names::ROW_CACHE_MISSES, |s| s.cache_misses),
        (&names::SHARD_MUTATIONS, |s| s.mutations),
        (&names::SHARD_RECLAIMED_ROWS, |s| s.reclaimed_rows),
        (&names::SHARD_LOST_ASYNC_WRITES, |s| s.lost_async_writes),
        (&names::STORE_BAD_READS, |s| s.bad_reads),
        (&names::SHARD_EXPIRED_ROWS, |s| s.expired_rows),
        (&names::SHARD_PURGING_NAMESPACES, |s| s.purging_namespaces),
    ];
    let live = shards.iter();
    let live = live.filter_map(|s| Some(([s.shard.to_string()], s.live_bytes?)));
    families.family(&names::SHARD_LIVE_BYTES, live);
    let synced = |s: &ShardGauges| ([s.shard.to_string()], Seconds(s.sync_nanos));
    families.family(&names::SHARD_SYNC_TIME, shards.iter().map(synced));
    let paused = |s: &ShardGauges| ([s.shard.to_string()], Seconds(s.compaction_nanos));
    families.family(&names::SHARD_COMPACTION_TIME, shards.iter().map(paused));
    for (metric, pick) in gauges {
        let samples = shards.iter().map(|s| ([s.shard.to_string()], pick(s)));
        families.family(metric, samples);
    }
}

pub(super) fn visit_disk(families: &mut Families<'_>, disk: Option<DiskGauges>) {
    if let Some(disk) = disk {
        families.single(&names::DISK_SIZE, disk.size_bytes);
        families.single(&names::DISK_FREE, disk.free_bytes);
    }
}

pub(super) fn visit_process(families: &mut Families<'_>, process: &ProcessSample) {
    families.single(&names::PROCESS_CPU, process.cpu_seconds);
    families.single(
        &names::PROCESS_RESIDENT_MEMORY,
        process.resident_memory_bytes,
    );
    families.single(&names::PROCESS_OPEN_FDS, process.open_fds);
    families.single(&names::PROCESS_MAX_FDS, process.max_fds);
    families.single(&names::PROCESS_START_TIME, process.start_time_seconds);
}
