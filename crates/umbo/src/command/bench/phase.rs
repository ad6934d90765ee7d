//! One phase of a self-test: a closed loop of requests of one kind for a fixed time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::JoinSet;
use umbo_client::{BatchOptions, Client, Error, PutOptions, RangeOptions};
use umbo_telemetry::metrics::ProcessSample;

use crate::cli_error::CliError;
use crate::connection::{allowed, process_metric};

/// Number of partitions that are read, high enough to keep every key below the threshold of hot keys.
const PARTITIONS: u64 = 400;
/// Rows of a partition, and of a range.
const PARTITION_ROWS: u64 = 100;
/// Distance between two reads. A prime, so that all rows and all partitions are read before one is read again.
const STRIDE: u64 = 7_919;
/// Bytes of a value.
const VALUE_LEN: usize = 256;
/// Rows of a batch that stores the rows to read.
const BATCH_ROWS: u64 = 1_000;

/// Fields of `/proc/stat` that add up to all time: user, nice, system, idle, iowait, irq, softirq, steal.
const BUSY_FIELDS: usize = 8;
/// Position of idle among them; iowait follows.
const IDLE_FIELD: usize = 3;
/// The kernel's unit of time in `/proc`, fixed at 100 a second for programs on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// The kind of the requests of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BenchRequest {
    /// A durable write of a new row.
    Put,
    /// A read of one of the rows.
    Get,
    /// A read of a partition.
    Range,
}

/// The result of a phase.
#[derive(Debug, Serialize)]
pub(super) struct PhaseResult {
    pub(super) request: BenchRequest,
    pub(super) in_flight: u64,
    pub(super) per_second: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// Requests that were refused or failed.
    pub(super) failed: usize,
    /// The first reason among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<String>,
    /// CPU cores that the server was busy on; absent without the permission to see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server_cores: Option<f64>,
    /// CPU cores that this process was busy on.
    pub(super) client_cores: f64,
    /// CPU cores that other programs of this machine were busy on.
    pub(super) other_cores: f64,
    /// The limit of the phase, in words.
    pub(super) limit: String,
}

/// Stores the rows that are read.
pub(super) async fn fill(client: &Client, namespace: &str) -> Result<(), CliError> {
    let value = "x".repeat(VALUE_LEN);
    let all = PARTITIONS * PARTITION_ROWS;
    for first in (0..all).step_by(BATCH_ROWS as usize) {
        let line = |row: u64| {
            let (partition, sort) = (row / PARTITION_ROWS, row % PARTITION_ROWS);
            format!("{{\"pk\":\"p{partition}\",\"sk\":\"{sort:03}\",\"v\":\"{value}\"}}\n")
        };
        let lines: String = (first..first + BATCH_ROWS).map(line).collect();
        let options = BatchOptions {
            is_minimal: true,
            is_repeatable: true,
            ..BatchOptions::default()
        };
        let result = client.batch_write(namespace, lines, options).await?;
        if result.end.failed > 0 {
            return Err(CliError::start(format_args!(
                "the server refused {} rows of the self-test; see its quotas",
                result.end.failed
            )));
        }
    }
    Ok(())
}

/// Sends requests for a time. Each connection sends one request after the other.
pub(super) async fn run(
    client: &Client,
    namespace: &str,
    load: BenchRequest,
    connections: u64,
    time: Duration,
) -> Result<PhaseResult, CliError> {
    let next = Arc::new(AtomicU64::new(0));
    let before = CpuTimes::read(client).await?;
    let begun = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..connections {
        let (client, namespace) = (client.clone(), namespace.to_owned());
        let next = Arc::clone(&next);
        workers.spawn(async move {
            let mut outcomes = Vec::new();
            while begun.elapsed() < time {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let at = Instant::now();
                let outcome = request(&client, &namespace, load, number).await;
                let outcome = outcome.map(|()| at.elapsed());
                outcomes.push(outcome.map_err(|error| error.to_string()));
            }
            outcomes
        });
    }
    let outcomes = workers.join_all().await.concat();
    let seconds = begun.elapsed().as_secs_f64();
    let after = CpuTimes::read(client).await?;
    let server_cores = before.server.zip(after.server);
    let server_cores = server_cores.map(|(before, after)| (after - before) / seconds);
    let client_cores = (after.client - before.client) / seconds;
    let machine_cores = (after.machine - before.machine) / seconds;
    let mut times: Vec<Duration> = outcomes.iter().flatten().copied().collect();
    times.sort_unstable();
    Ok(PhaseResult {
        request: load,
        in_flight: connections,
        per_second: f64::from(u32::try_from(times.len()).unwrap_or(u32::MAX)) / seconds,
        p50_ms: quantile_ms(&times, 500),
        p99_ms: quantile_ms(&times, 990),
        failed: outcomes.len() - times.len(),
        failure: outcomes.into_iter().find_map(Result::err),
        server_cores,
        client_cores,
        other_cores: (machine_cores - client_cores - server_cores.unwrap_or(0.0)).max(0.0),
        limit: String::new(),
    })
}

async fn request(
    client: &Client,
    namespace: &str,
    load: BenchRequest,
    number: u64,
) -> Result<(), Error> {
    match load {
        BenchRequest::Put => {
            let partition = format!("put-{}", number % PARTITIONS);
            let (sort, value) = (number.to_be_bytes(), vec![b'x'; VALUE_LEN]);
            let options = PutOptions::default();
            let put = client.put(namespace, partition.as_bytes(), &sort, value, &options);
            put.await.map(drop)
        }
        BenchRequest::Get => {
            let row = number.wrapping_mul(STRIDE) % (PARTITIONS * PARTITION_ROWS);
            let partition = format!("p{}", row / PARTITION_ROWS);
            let sort = format!("{:03}", row % PARTITION_ROWS);
            let get = client.get(namespace, partition.as_bytes(), sort.as_bytes());
            get.await.map(drop)
        }
        BenchRequest::Range => {
            let partition = format!("p{}", number.wrapping_mul(STRIDE) % PARTITIONS);
            let options = RangeOptions::default();
            let mut rows = client.range(namespace, partition.as_bytes(), &options);
            while rows.next_block().await?.is_some() {}
            Ok(())
        }
    }
}

/// CPU time so far, in seconds.
struct CpuTimes {
    /// Of the server, or `None` without the permission to see it.
    server: Option<f64>,
    /// Of this process.
    client: f64,
    /// Of all cores of this machine; 0 if the system does not say.
    machine: f64,
}

impl CpuTimes {
    async fn read(client: &Client) -> Result<Self, CliError> {
        let metrics = allowed(client.metrics().await)?;
        let server = |text: String| process_metric(&text, "process_cpu_seconds_total");
        let machine = std::fs::read_to_string("/proc/stat");
        Ok(Self {
            server: metrics.and_then(server),
            client: ProcessSample::read().map_or(0.0, |sample| sample.cpu_seconds),
            machine: machine.map_or(0.0, |text| busy_seconds(&text)),
        })
    }
}

/// Returns the busy time in the text of `/proc/stat` (proc(5)): all but idle and waiting for disks.
fn busy_seconds(text: &str) -> f64 {
    let first = text.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = first
        .split_whitespace()
        .skip(1)
        .take(BUSY_FIELDS)
        .filter_map(|field| field.parse().ok())
        .collect();
    let idle: f64 = ticks.iter().skip(IDLE_FIELD).take(2).sum();
    (ticks.iter().sum::<f64>() - idle) / TICKS_PER_SECOND
}

/// Returns a quantile of sorted times in milliseconds, by its part of a thousand; 0 if there are no times.
pub(super) fn quantile_ms(sorted: &[Duration], per_mille: usize) -> f64 {
    let at = sorted.len().saturating_sub(1) * per_mille / 1_000;
    sorted
        .get(at)
        .map_or(0.0, |time| time.as_secs_f64() * 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_what_was_measured() {
        let times: Vec<_> = (0..101).map(Duration::from_millis).collect();
        let of = |per_mille| format!("{:.1}", quantile_ms(&times, per_mille));
        assert_eq!(
            [of(0), of(500), of(990), of(1_000)],
            ["0.0", "50.0", "99.0", "100.0"]
        );
        assert_eq!(quantile_ms(&[], 500).to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn idle_and_waiting_cores_are_not_busy() {
        let text = "cpu  100 10 50 9000 700 5 15 20 3 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(format!("{:.1}", busy_seconds(text)), "2.0");
        assert_eq!(format!("{:.1}", busy_seconds("")), "0.0");
    }

    #[test]
    fn reads_are_spread_over_all_rows() {
        let rows = PARTITIONS * PARTITION_ROWS;
        let read: std::collections::BTreeSet<u64> =
            (0..rows).map(|number| number * STRIDE % rows).collect();
        assert_eq!(read.len() as u64, rows);
    }
}
