//! Text of a scrape, in the Prometheus exposition format 0.0.4.
//!
//! Owns the format: `# HELP`, `# TYPE`, label quoting, cumulative buckets. Series of an operation
//! appear with its first request, so that a scrape of an idle server is short.

use std::fmt::{Display, Write};

use umbo_types::Operation;

use super::RequestMetrics;
use super::buckets::{BOUNDS, BUCKETS, bound_nanos};
use super::counters::{Counter, Histogram, OperationCounters, STATUS_SERIES, Slot};
use super::process::ProcessSample;
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
}

/// What a scrape shows beside the counters.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scrape<'a> {
    /// Version of the program.
    pub version: &'a str,
    /// Shards in order.
    pub shards: &'a [ShardGauges],
    /// The process, where it could be read.
    pub process: Option<ProcessSample>,
}

impl RequestMetrics {
    /// Returns the text of a scrape.
    pub fn render(&self, scrape: &Scrape<'_>) -> String {
        let mut text = Text(String::with_capacity(16 << 10));
        text.family(&names::BUILD_INFO, [([quoted(scrape.version)], 1_u64)]);
        self.render_operations(&mut text);
        self.render_refusals(&mut text);
        self.render_connections(&mut text);
        render_shards(&mut text, scrape.shards);
        if let Some(process) = scrape.process {
            render_process(&mut text, &process);
        }
        text.0
    }

    fn render_operations(&self, text: &mut Text) {
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
        // Ended before begun: a request that comes and goes meanwhile must not count negative.
        let ended: Vec<u64> = by_operation(|c| &c.ended).map(|(_, sum)| sum).collect();
        let in_flight = by_operation(|c| &c.begun)
            .zip(ended)
            .map(|((label, begun), ended)| (label, begun.saturating_sub(ended)));
        text.family(&names::REQUESTS_IN_FLIGHT, in_flight);
    }

    fn render_histogram(
        &self,
        text: &mut Text,
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

    fn render_refusals(&self, text: &mut Text) {
        let counts = self.codes.iter().enumerate().filter_map(|(at, code)| {
            let count = self.sum(|slot| &slot.refused[at]);
            (count > 0).then_some(([code.name, code.kind], count))
        });
        text.family(&names::REFUSED, counts);
        let aborted = self.sum(|slot| &slot.streams_aborted);
        text.single(&names::STREAMS_ABORTED, aborted);
    }

    fn render_connections(&self, text: &mut Text) {
        use std::sync::atomic::Ordering::Relaxed;
        text.single(&names::CONNECTIONS, self.connections_open());
        let accepted = self.connections_accepted.load(Relaxed);
        text.single(&names::CONNECTIONS_ACCEPTED, accepted);
        let failed = self.tls_handshakes_failed.load(Relaxed);
        text.single(&names::TLS_HANDSHAKES_FAILED, failed);
    }

    fn requests(&self, operation: Operation, at: usize) -> u64 {
        self.sum(|slot| &slot.operation(operation).requests[at])
    }

    fn sum<'a>(&'a self, pick: impl Fn(&'a Slot) -> &'a Counter) -> u64 {
        let counts = self.slots.iter().map(|slot| pick(slot).get());
        counts.fold(0, u64::wrapping_add)
    }
}

fn render_shards(text: &mut Text, shards: &[ShardGauges]) {
    type Pick = fn(&ShardGauges) -> u64;
    let families: [(&Metric, Pick); 7] = [
        (&names::SHARD_AVAILABLE, |s| u64::from(s.is_available)),
        (&names::SHARD_ROWS, |s| s.rows),
        (&names::SHARD_FILE_BYTES, |s| s.file_bytes),
        (&names::SHARD_QUEUED_MUTATIONS, |s| s.queued_mutations),
        (&names::SHARD_COMMITS, |s| s.commits),
        (&names::SHARD_MUTATIONS, |s| s.mutations),
        (&names::SHARD_RECLAIMED_ROWS, |s| s.reclaimed_rows),
    ];
    for (metric, pick) in families {
        let samples = shards.iter().map(|s| ([s.shard.to_string()], pick(s)));
        text.family(metric, samples);
    }
}

fn render_process(text: &mut Text, process: &ProcessSample) {
    text.single(&names::PROCESS_CPU, process.cpu_seconds);
    text.single(
        &names::PROCESS_RESIDENT_MEMORY,
        process.resident_memory_bytes,
    );
    text.single(&names::PROCESS_OPEN_FDS, process.open_fds);
    text.single(&names::PROCESS_MAX_FDS, process.max_fds);
    text.single(&names::PROCESS_START_TIME, process.start_time_seconds);
}

/// Nanoseconds, written as exact decimal seconds.
struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, nanos) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        if nanos == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{nanos:09}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

/// Escapes a label value that does not come from a closed list.
fn quoted(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

struct Text(String);

impl Text {
    fn head(&mut self, metric: &Metric) {
        let Metric {
            name, kind, help, ..
        } = metric;
        self.line(format_args!(
            "# HELP {name} {help}\n# TYPE {name} {}",
            kind.as_str()
        ));
    }

    /// Writes a family of one label; nothing but its head where there is no sample.
    fn family<L: AsRef<str>, const N: usize>(
        &mut self,
        metric: &Metric,
        samples: impl IntoIterator<Item = ([L; N], u64)>,
    ) {
        self.head(metric);
        for (labels, value) in samples {
            let labels = labels.each_ref().map(AsRef::as_ref);
            self.sample(metric, "", &labels, value);
        }
    }

    fn single(&mut self, metric: &Metric, value: impl Display) {
        self.head(metric);
        self.sample(metric, "", &[], value);
    }

    fn sample(&mut self, metric: &Metric, suffix: &str, values: &[&str], value: impl Display) {
        debug_assert_eq!(metric.labels.len(), values.len());
        let labels: Vec<String> = metric
            .labels
            .iter()
            .zip(values)
            .map(|(name, value)| format!("{name}=\"{value}\""))
            .collect();
        let name = metric.name;
        if labels.is_empty() {
            self.line(format_args!("{name}{suffix} {value}"));
        } else {
            let labels = labels.join(",");
            self.line(format_args!("{name}{suffix}{{{labels}}} {value}"));
        }
    }

    fn bucket(&mut self, metric: &Metric, label: &str, bound: &str, count: u64) {
        let (name, label_name) = (metric.name, metric.labels[0]);
        self.line(format_args!(
            "{name}_bucket{{{label_name}=\"{label}\",le=\"{bound}\"}} {count}"
        ));
    }

    fn line(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.0.write_fmt(arguments);
        self.0.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_written_exactly() {
        let cases = [
            (0, "0"),
            (1, "0.000000001"),
            (16_384, "0.000016384"),
            (1_500_000_000, "1.5"),
            (34_000_000_000, "34"),
        ];
        for (nanos, expected) in cases {
            assert_eq!(Seconds(nanos).to_string(), expected);
        }
    }

    #[test]
    fn foreign_label_values_are_escaped() {
        assert_eq!(quoted("1.0-\"x\\\n"), "1.0-\\\"x\\\\\\n");
    }
}
