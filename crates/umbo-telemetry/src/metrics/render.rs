//! Text of a scrape: the series, their order, and their values.
//!
//! Series of an operation appear with its first request, so that a scrape of an idle server is short. `text`
//! writes the lines.

use std::time::Duration;

use umbo_types::{Operation, RequestUnits};

use super::RequestMetrics;
use super::buckets::{BOUNDS, BUCKETS, bound_nanos, nanos};
use super::counters::{Counter, CounterSlot, Histogram, OperationCounters, STATUS_SERIES};
use super::hotkey::HotKeyGauges;
use super::overload::OverloadGauges;
use super::process::ProcessSample;
use super::quota::QuotaGauges;
use super::remote::RemoteGauges;
use super::text::{MetricsText, Seconds, quoted};
use crate::metric_names::{self as names, Metric, STATUSES};

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
    /// Mutations waiting for a commit.
    pub queued_mutations: u64,
    /// Commits since the start.
    pub commits: u64,
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

/// Values of a scrape besides the counters.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scrape<'a> {
    /// Version of the program.
    pub version: &'a str,
    /// Umbo's own records.
    pub records: RecordsGauges,
    /// Shards in order.
    pub shards: &'a [ShardGauges],
    /// State of the quotas.
    pub quota: QuotaGauges<'a>,
    /// State of the hot-key layer, if there is one.
    pub hotkey: Option<HotKeyGauges<'a>>,
    /// State of the queues and of shedding, if they are on.
    pub overload: Option<OverloadGauges<'a>>,
    /// Bytes of answers that their clients have not read.
    pub answer_bytes: usize,
    /// State of the connections to the shard nodes, if shards are on other machines.
    pub remote: Option<RemoteGauges<'a>>,
    /// The process sample, if it could be read.
    pub process: Option<ProcessSample>,
}

impl RequestMetrics {
    /// Returns the text of a scrape.
    pub fn render(&self, scrape: &Scrape<'_>) -> String {
        let mut text = MetricsText(String::with_capacity(16 << 10));
        text.family(&names::BUILD_INFO, [([quoted(scrape.version)], 1_u64)]);
        self.render_operations(&mut text);
        self.render_charges(&mut text);
        scrape.quota.render(&mut text);
        if let Some(hotkey) = &scrape.hotkey {
            hotkey.render(&mut text);
        }
        if let Some(overload) = &scrape.overload {
            overload.render(&mut text);
        }
        self.render_refusals(&mut text);
        self.render_connections(&mut text);
        render_records(&mut text, &scrape.records);
        text.single(&names::ANSWER_BYTES, scrape.answer_bytes as u64);
        render_shards(&mut text, scrape.shards);
        if let Some(remote) = &scrape.remote {
            remote.render(&mut text);
        }
        if let Some(process) = scrape.process {
            render_process(&mut text, &process);
        }
        text.0
    }

    fn render_operations(&self, text: &mut MetricsText) {
        let seen: Vec<Operation> = Operation::ALL
            .into_iter()
            .filter(|&operation| {
                self.sum(|slot| &slot.operation(operation).begun) > 0 || {
                    (0..STATUS_SERIES).any(|at| self.requests(operation, at) > 0)
                }
            })
            .collect();
        text.head(&names::REQUESTS);
        for &operation in &seen {
            for at in 0..STATUS_SERIES {
                let count = self.requests(operation, at);
                if count > 0 {
                    let status = STATUSES
                        .get(at)
                        .map_or_else(|| names::STATUS_OTHER.to_owned(), u16::to_string);
                    text.sample(&names::REQUESTS, "", &[operation.as_str(), &status], count);
                }
            }
        }
        self.render_histogram(text, &names::REQUEST_DURATION, &seen, |counters| {
            &counters.duration
        });
        self.render_histogram(text, &names::STORE_DURATION, &seen, |counters| {
            &counters.store_duration
        });
        let by_operation = |pick: fn(&OperationCounters) -> &Counter| {
            seen.iter().map(move |&operation| {
                let sum = self.sum(|slot| pick(slot.operation(operation)));
                ([operation.as_str()], sum)
            })
        };
        text.family(&names::REQUEST_BYTES, by_operation(|c| &c.request_bytes));
        text.family(&names::RESPONSE_BYTES, by_operation(|c| &c.response_bytes));
        // `ended` is read before `begun`: a request that comes and goes meanwhile must not make the
        // difference negative.
        let ended: Vec<u64> = by_operation(|c| &c.ended).map(|(_, sum)| sum).collect();
        let in_flight = by_operation(|c| &c.begun)
            .zip(ended)
            .map(|((label, begun), ended)| (label, begun.saturating_sub(ended)));
        text.family(&names::REQUESTS_IN_FLIGHT, in_flight);
    }

    /// Writes the costs of requests; operations that cost nothing have no series.
    fn render_charges(&self, text: &mut MetricsText) {
        let by_operation = |pick: fn(&OperationCounters) -> &Counter| {
            Operation::ALL.into_iter().filter_map(move |operation| {
                let sum = self.sum(|slot| pick(slot.operation(operation)));
                (sum > 0).then_some(([operation.as_str()], sum))
            })
        };
        let charged = by_operation(|c| &c.charged_micros)
            .map(|(label, micros)| (label, RequestUnits::from_micros(micros)));
        text.family(&names::REQUEST_UNITS, charged);
        text.family(&names::REQUESTS_ADMITTED, by_operation(|c| &c.admitted));
        text.family(&names::REQUESTS_REJECTED, by_operation(|c| &c.rejected));
        text.family(&names::REQUESTS_REPEATED, by_operation(|c| &c.repeated));
    }

    fn render_histogram(
        &self,
        text: &mut MetricsText,
        metric: &Metric,
        operations: &[Operation],
        pick: fn(&OperationCounters) -> &Histogram,
    ) {
        text.head(metric);
        for &operation in operations {
            let label = operation.as_str();
            let mut cumulative = 0;
            for at in 0..BUCKETS {
                cumulative += self.sum(|slot| &pick(slot.operation(operation)).buckets[at]);
                let bound = if at < BOUNDS {
                    Seconds(bound_nanos(at)).to_string()
                } else {
                    "+Inf".to_owned()
                };
                text.bucket(metric, label, &bound, cumulative);
            }
            let sum = self.sum(|slot| &pick(slot.operation(operation)).sum_nanos);
            text.sample(metric, "_sum", &[label], Seconds(sum));
            text.sample(metric, "_count", &[label], cumulative);
        }
    }

    fn render_refusals(&self, text: &mut MetricsText) {
        let counts = self.codes.iter().enumerate().filter_map(|(at, code)| {
            let count = self.sum(|slot| &slot.refused[at]);
            (count > 0).then_some(([code.name, code.kind], count))
        });
        text.family(&names::REFUSED, counts);
        let aborted = self.sum(|slot| &slot.streams_aborted);
        text.single(&names::STREAMS_ABORTED, aborted);
    }

    fn render_connections(&self, text: &mut MetricsText) {
        use std::sync::atomic::Ordering::Relaxed;
        text.single(&names::CONNECTIONS, self.connections_open());
        let accepted = self.connections_accepted.load(Relaxed);
        text.single(&names::CONNECTIONS_ACCEPTED, accepted);
        let evicted = self.connections_evicted.load(Relaxed);
        text.single(&names::CONNECTIONS_EVICTED, evicted);
        let turned_away = self.connections_turned_away.load(Relaxed);
        text.single(&names::CONNECTIONS_TURNED_AWAY, turned_away);
        let failed = self.tls_handshakes_failed.load(Relaxed);
        text.single(&names::TLS_HANDSHAKES_FAILED, failed);
    }

    fn requests(&self, operation: Operation, at: usize) -> u64 {
        self.sum(|slot| &slot.operation(operation).requests[at])
    }

    fn sum<'a>(&'a self, pick: impl Fn(&'a CounterSlot) -> &'a Counter) -> u64 {
        let counts = self.slots.iter().map(|slot| pick(slot).get());
        counts.fold(0, u64::wrapping_add)
    }
}

fn render_records(text: &mut MetricsText, records: &RecordsGauges) {
    text.single(&names::RECORDS_EPOCH, records.epoch);
    text.single(&names::RECORDS_REVISION, records.revision);
    let age = Seconds(nanos(records.age));
    text.single(&names::RECORDS_AGE, age);
    let is_unreadable = u64::from(records.is_unreadable);
    text.single(&names::RECORDS_UNREADABLE, is_unreadable);
    text.single(&names::NAMESPACES_REMOVING, records.removing);
}

fn render_shards(text: &mut MetricsText, shards: &[ShardGauges]) {
    render_availability(text, shards);
    let requests = shards.iter().map(|s| ([s.shard.to_string()], s.requests));
    text.family(&names::SHARD_REQUESTS, requests);
    render_shard_files(text, shards);
    let charged = shards.iter().map(|s| ([s.shard.to_string()], s.charged));
    text.family(&names::SHARD_REQUEST_UNITS, charged);
}

pub(super) fn render_availability(text: &mut MetricsText, shards: &[ShardGauges]) {
    let serves = |s: &ShardGauges| ([s.shard.to_string()], u64::from(s.is_available));
    text.family(&names::SHARD_AVAILABLE, shards.iter().map(serves));
}

/// Writes the status of the shards' files.
pub(super) fn render_shard_files(text: &mut MetricsText, shards: &[ShardGauges]) {
    type Pick = fn(&ShardGauges) -> u64;
    let families: [(&Metric, Pick); 10] = [
        (&names::SHARD_ROWS, |s| s.rows),
        (&names::SHARD_FILE_BYTES, |s| s.file_bytes),
        (&names::SHARD_QUEUED_MUTATIONS, |s| s.queued_mutations),
        (&names::SHARD_COMMITS, |s| s.commits),
        (&names::SHARD_MUTATIONS, |s| s.mutations),
        (&names::SHARD_RECLAIMED_ROWS, |s| s.reclaimed_rows),
        (&names::SHARD_LOST_ASYNC_WRITES, |s| s.lost_async_writes),
        (&names::STORE_BAD_READS, |s| s.bad_reads),
        (&names::SHARD_EXPIRED_ROWS, |s| s.expired_rows),
        (&names::SHARD_PURGING_NAMESPACES, |s| s.purging_namespaces),
    ];
    for (metric, pick) in families {
        let samples = shards.iter().map(|s| ([s.shard.to_string()], pick(s)));
        text.family(metric, samples);
    }
}

pub(super) fn render_process(text: &mut MetricsText, process: &ProcessSample) {
    text.single(&names::PROCESS_CPU, process.cpu_seconds);
    text.single(
        &names::PROCESS_RESIDENT_MEMORY,
        process.resident_memory_bytes,
    );
    text.single(&names::PROCESS_OPEN_FDS, process.open_fds);
    text.single(&names::PROCESS_MAX_FDS, process.max_fds);
    text.single(&names::PROCESS_START_TIME, process.start_time_seconds);
}
