//! The visitor that turns metrics into samples of the history.
//!
//! Owns which metric a series comes from, and the arithmetic: counters become rates a second, histograms
//! quantiles. Runs once a second in the background; its cost is in proportion to the series.

use std::collections::HashMap;

use umbo_observe::{LEVELS, Series, SeriesKey, names as series};

use super::visit::{DurationHistogram, MetricValue, MetricVisitor};
use crate::metric_names::{self as names, Metric};

/// How the samples of a metric become a value of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// The growth a second of their sum.
    Rate,
    /// Sum of the samples.
    Sum,
    /// The highest.
    Max,
    /// The lowest.
    Min,
}

/// Where a series comes from: the metric, the index of the label that becomes the series' own, and a factor.
struct SeriesSource(
    &'static Metric,
    Option<usize>,
    &'static Series,
    Reading,
    f64,
);

static SOURCES: &[SeriesSource] = &[
    SeriesSource(&names::REQUEST_UNITS, None, &series::RU, Reading::Rate, 1.0),
    SeriesSource(
        &names::REQUESTS_IN_FLIGHT,
        None,
        &series::IN_FLIGHT,
        Reading::Sum,
        1.0,
    ),
    SeriesSource(
        &names::CONNECTIONS,
        None,
        &series::CONNECTIONS,
        Reading::Sum,
        1.0,
    ),
    SeriesSource(
        &names::HOTKEY_HITS,
        None,
        &series::HOT_HITS,
        Reading::Rate,
        1.0,
    ),
    SeriesSource(
        &names::HOTKEY_FOLLOWERS,
        None,
        &series::HOT_COLLAPSED,
        Reading::Rate,
        1.0,
    ),
    SeriesSource(&names::PROCESS_CPU, None, &series::CPU, Reading::Rate, 1.0),
    SeriesSource(
        &names::PROCESS_RESIDENT_MEMORY,
        None,
        &series::MEMORY,
        Reading::Sum,
        1.0,
    ),
    SeriesSource(
        &names::PRICE_MULTIPLIER,
        Some(0),
        &series::PENALTY,
        Reading::Max,
        1.0,
    ),
    SeriesSource(
        &names::POLICY_REJECTED,
        Some(0),
        &series::POLICY_REJECTED,
        Reading::Rate,
        1.0,
    ),
    SeriesSource(
        &names::POLICY_SHADOW_REJECTED,
        Some(0),
        &series::POLICY_WOULD_REJECT,
        Reading::Rate,
        1.0,
    ),
    SeriesSource(
        &names::POLICY_UTILISATION,
        Some(0),
        &series::POLICY_UTILISATION,
        Reading::Max,
        1.0,
    ),
    SeriesSource(
        &names::REMOTE_NODE_UP,
        Some(0),
        &series::NODE_UP,
        Reading::Sum,
        1.0,
    ),
    SeriesSource(
        &names::SHARD_REQUEST_UNITS,
        Some(0),
        &series::SHARD_RU,
        Reading::Rate,
        1.0,
    ),
    SeriesSource(
        &names::SHARD_REQUESTS,
        Some(0),
        &series::SHARD_REQUESTS,
        Reading::Rate,
        1.0,
    ),
    SeriesSource(
        &names::SHARD_ROWS,
        Some(0),
        &series::SHARD_ROWS,
        Reading::Sum,
        1.0,
    ),
    SeriesSource(
        &names::SHARD_FILE_BYTES,
        Some(0),
        &series::SHARD_FILE_BYTES,
        Reading::Sum,
        1.0,
    ),
    SeriesSource(
        &names::SHARD_LIVE_BYTES,
        Some(0),
        &series::SHARD_LIVE_BYTES,
        Reading::Sum,
        1.0,
    ),
    SeriesSource(
        &names::SHARD_COMMITS,
        Some(0),
        &series::SHARD_COMMITS,
        Reading::Rate,
        1.0,
    ),
    SeriesSource(
        &names::SHARD_QUEUED_MUTATIONS,
        Some(0),
        &series::SHARD_QUEUED,
        Reading::Sum,
        1.0,
    ),
    SeriesSource(
        &names::SHARD_EXPIRED_ROWS,
        Some(0),
        &series::SHARD_EXPIRED_ROWS,
        Reading::Sum,
        1.0,
    ),
    SeriesSource(
        &names::SHARD_LATENCY_RATIO,
        Some(0),
        &series::LATENCY_RATIO,
        Reading::Min,
        1.0,
    ),
    SeriesSource(
        &names::SHARD_PRESSURE,
        Some(0),
        &series::PRESSURE,
        Reading::Max,
        1.0,
    ),
    SeriesSource(
        &names::SHARD_OLDEST_WAITING,
        Some(0),
        &series::QUEUE_DELAY,
        Reading::Max,
        1_000.0,
    ),
    SeriesSource(
        &names::SHARD_WAITING,
        Some(0),
        &series::QUEUE_LENGTH,
        Reading::Sum,
        1.0,
    ),
    SeriesSource(
        &names::SHARD_SYNCS,
        None,
        &series::SYNCS,
        Reading::Rate,
        1.0,
    ),
    SeriesSource(
        &names::SHARD_SYNC_TIME,
        None,
        &series::SYNC_TIME,
        Reading::Rate,
        1.0,
    ),
    SeriesSource(
        &names::ROW_CACHE_HITS,
        None,
        &series::ROW_CACHE_HITS,
        Reading::Rate,
        1.0,
    ),
    SeriesSource(
        &names::ROW_CACHE_MISSES,
        None,
        &series::ROW_CACHE_MISSES,
        Reading::Rate,
        1.0,
    ),
    SeriesSource(
        &names::NODE_IN_FLIGHT,
        None,
        &series::IN_FLIGHT,
        Reading::Sum,
        1.0,
    ),
    SeriesSource(
        &names::NODE_CONNECTIONS,
        None,
        &series::CONNECTIONS,
        Reading::Sum,
        1.0,
    ),
];

/// The quantiles that are kept of the time of requests.
static QUANTILES: [(&Series, f64); 3] = [
    (&series::LATENCY_P50, 0.5),
    (&series::LATENCY_P99, 0.99),
    (&series::LATENCY_P999, 0.999),
];

/// Observations up to each bound, by operation.
type Histograms = HashMap<String, Vec<u64>>;

/// What one visit finds.
#[derive(Default)]
struct SampledValues {
    counters: HashMap<SeriesKey, f64>,
    gauges: HashMap<SeriesKey, f64>,
    histograms: Histograms,
    bounds: Vec<Option<u64>>,
    /// Sources of the family that is visited.
    sources: Vec<&'static SeriesSource>,
}

impl SampledValues {
    fn count(&mut self, series: &'static Series, label: &str, value: f64) {
        let key = SeriesKey::new(series, label);
        *self.counters.entry(key).or_default() += value;
    }
}

impl MetricVisitor for SampledValues {
    fn family(&mut self, metric: &'static Metric) {
        let of_it = SOURCES.iter().filter(|source| source.0.name == metric.name);
        self.sources.clear();
        self.sources.extend(of_it);
    }

    fn sample(&mut self, metric: &'static Metric, labels: &[&str], value: MetricValue) {
        let value = value.as_f64();
        match (metric.name, labels) {
            (name, [operation, tier, outcome]) if name == names::REQUEST_OUTCOMES.name => {
                let (by_operation, by_tier) = match *outcome {
                    "served" => (&series::SERVED, &series::SERVED_BY_TIER),
                    "rejected" => (&series::REJECTED, &series::REJECTED_BY_TIER),
                    "shed" => (&series::SHED, &series::SHED_BY_TIER),
                    _ => (&series::FAILED, &series::FAILED_BY_TIER),
                };
                self.count(by_operation, operation, value);
                self.count(by_tier, tier, value);
            }
            (name, [request, outcome]) if name == names::NODE_REQUESTS.name => {
                let by_request = match *outcome {
                    "done" => &series::SERVED,
                    "quota-exceeded" => &series::REJECTED,
                    "busy" => &series::SHED,
                    _ => &series::FAILED,
                };
                self.count(by_request, request, value);
            }
            _ => {}
        }
        for at in 0..self.sources.len() {
            let SeriesSource(_, label, series, reading, factor) = *self.sources[at];
            let label = label.and_then(|at| labels.get(at)).copied().unwrap_or("");
            let key = SeriesKey::new(series, label);
            let value = value * factor;
            if reading == Reading::Rate {
                *self.counters.entry(key).or_default() += value;
                continue;
            }
            let gauge = self.gauges.entry(key);
            let gauge = gauge.and_modify(|gauge| match reading {
                Reading::Rate | Reading::Sum => *gauge += value,
                Reading::Max => *gauge = gauge.max(value),
                Reading::Min => *gauge = gauge.min(value),
            });
            gauge.or_insert(value);
        }
    }

    fn histogram(
        &mut self,
        metric: &'static Metric,
        label: &str,
        histogram: &DurationHistogram<'_>,
    ) {
        if metric.name == names::REQUEST_DURATION.name {
            self.bounds = histogram.bounds.to_vec();
            let cumulative = histogram.cumulative.to_vec();
            self.histograms.insert(label.to_owned(), cumulative);
        }
    }
}

/// Values of a step that has ended.
#[derive(Debug)]
pub struct StepSamples {
    /// Level of the step.
    pub level: usize,
    /// Number of the step.
    pub step: u64,
    /// The values.
    pub values: Vec<(SeriesKey, f32)>,
}

/// What a sample adds to the history.
#[derive(Debug, Default)]
pub struct HistorySamples {
    /// Values of the second.
    pub values: Vec<(SeriesKey, f64)>,
    /// Values of longer steps that have ended.
    pub steps: Vec<StepSamples>,
}

/// Takes samples of one process.
#[derive(Debug, Default)]
pub struct HistorySampler {
    counters: HashMap<SeriesKey, f64>,
    /// By level: the step under way, and the histograms at its beginning.
    histograms: [(Option<u64>, Histograms); LEVELS.len()],
}

impl HistorySampler {
    /// Makes a sampler: counters of this process begin now, at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the sample of a second, in seconds since the Unix epoch, `elapsed` seconds after the last sample, or
    /// after the sampler was made.
    pub fn sample(
        &mut self,
        second: u64,
        elapsed: f64,
        visit: impl FnOnce(&mut dyn MetricVisitor),
    ) -> HistorySamples {
        let mut gathered = SampledValues::default();
        visit(&mut gathered);
        let mut samples = HistorySamples::default();
        for (key, &now) in &gathered.counters {
            if let Some(rate) = self.rate(key, now, elapsed) {
                samples.values.push((key.clone(), rate));
            }
        }
        self.counters = gathered.counters;
        samples.values.extend(gathered.gauges);
        for (level, (under_way, before)) in self.histograms.iter_mut().enumerate() {
            let step_seconds = LEVELS[level].step_seconds;
            let next = (second + 1) / step_seconds;
            let step = *under_way.get_or_insert(second / step_seconds);
            if next == step {
                continue;
            }
            *under_way = Some(next);
            let before = std::mem::replace(before, gathered.histograms.clone());
            let values = quantiles(&before, &gathered.histograms, &gathered.bounds);
            if level == 0 {
                samples.values.extend(values);
            } else {
                let values = values.into_iter().map(|(key, ms)| (key, ms as f32));
                samples.steps.push(StepSamples {
                    level,
                    step: next.saturating_sub(1),
                    values: values.collect(),
                });
            }
        }
        samples
    }

    /// Returns the growth a second of a counter. One that was not there before has grown from zero, if this process
    /// counts it; the begin of another one is unknown.
    fn rate(&self, key: &SeriesKey, now: f64, elapsed: f64) -> Option<f64> {
        let before = match self.counters.get(key) {
            Some(before) if *before <= now => *before,
            None if is_of_others(key.series) => return None,
            Some(_) | None => 0.0,
        };
        (elapsed > 0.0).then(|| (now - before) / elapsed)
    }
}

/// Returns whether a counter may have begun before this process did.
fn is_of_others(kind: &Series) -> bool {
    [
        &series::SHARD_COMMITS,
        &series::SYNCS,
        &series::SYNC_TIME,
        &series::ROW_CACHE_HITS,
        &series::ROW_CACHE_MISSES,
        &series::CPU,
    ]
    .iter()
    .any(|one| one.name == kind.name)
}

/// Returns the quantiles of what was observed between two states of the histograms, in milliseconds.
fn quantiles(
    before: &Histograms,
    now: &Histograms,
    bounds: &[Option<u64>],
) -> Vec<(SeriesKey, f64)> {
    let mut values = Vec::new();
    for (operation, now) in now {
        let before = before.get(operation);
        let grown = now.iter().enumerate().map(|(at, now)| {
            now.wrapping_sub(
                before
                    .and_then(|before| before.get(at))
                    .copied()
                    .unwrap_or(0),
            )
        });
        let grown: Vec<u64> = grown.collect();
        for (series, part) in QUANTILES {
            if let Some(nanos) = quantile(&grown, bounds, part) {
                let key = SeriesKey::new(series, operation.as_str());
                values.push((key, nanos / 1e6));
            }
        }
    }
    values
}

/// Returns a quantile in nanoseconds, as if observations were spread evenly within a bucket; none without any.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts and bounds stay under 2^53"
)]
fn quantile(cumulative: &[u64], bounds: &[Option<u64>], part: f64) -> Option<f64> {
    let all = *cumulative.last().filter(|&&all| all > 0)? as f64;
    let rank = part * all;
    let at = cumulative.iter().position(|&count| count as f64 >= rank)?;
    let below = at.checked_sub(1);
    let from = below.and_then(|at| bounds[at]).unwrap_or(0) as f64;
    // Of the open bucket only its lower bound is known.
    let Some(to) = bounds[at] else {
        return Some(from);
    };
    let before = below.map_or(0, |at| cumulative[at]) as f64;
    let within = cumulative[at] as f64 - before;
    Some(from + (to as f64 - from) * ((rank - before) / within).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use umbo_types::{Criticality, Operation, RequestUnits};

    use super::*;
    use crate::metrics::{Code, RequestMetrics, RequestOutcome, Scrape, ShardGauges};

    fn find(samples: &HistorySamples, series: &'static Series, label: &str) -> Option<f64> {
        let key = SeriesKey::new(series, label);
        let found = samples.values.iter().find(|(one, _)| *one == key);
        found.map(|(_, value)| *value)
    }

    #[test]
    fn counters_become_rates_and_histograms_quantiles() {
        let metrics = RequestMetrics::new(Vec::<Code>::new(), 1);
        let mut sampler = HistorySampler::new();
        let shard = |charged| ShardGauges {
            shard: 3,
            charged: RequestUnits::from_micros(charged),
            commits: charged,
            rows: 7,
            ..ShardGauges::default()
        };
        let mut sample = |second, metrics: &RequestMetrics, shard: ShardGauges| {
            let shards = [shard];
            let scrape = Scrape {
                shards: &shards,
                ..Scrape::default()
            };
            sampler.sample(second, 2.0, |visitor| metrics.visit(&scrape, visitor))
        };
        let first = sample(1_009, &metrics, shard(5_000_000));
        assert_eq!(find(&first, &series::SHARD_RU, "3"), Some(2.5));
        // A node may have counted for days.
        assert_eq!(find(&first, &series::SHARD_COMMITS, "3"), None);
        for nanos in [1_000_000, 100_000_000] {
            for _ in 0..50 {
                metrics.begin_request(Operation::Get);
                metrics.record(Operation::Get, 200, Duration::from_nanos(nanos), 0, 0);
                metrics.record_outcome(
                    Operation::Get,
                    Some(Criticality::Critical),
                    RequestOutcome::Served,
                );
            }
        }
        metrics.record_outcome(Operation::Get, None, RequestOutcome::Refused);
        assert!(first.steps.iter().all(|one| one.values.is_empty()));
        let next = sample(1_010, &metrics, shard(9_000_000));
        let rate = |series, label| find(&next, series, label);
        assert_eq!(rate(&series::SERVED, "get"), Some(50.0));
        assert_eq!(rate(&series::SERVED_BY_TIER, "critical"), Some(50.0));
        assert_eq!(rate(&series::FAILED_BY_TIER, "unknown"), Some(0.5));
        assert_eq!(rate(&series::SHARD_RU, "3"), Some(2.0));
        assert_eq!(rate(&series::SHARD_ROWS, "3"), Some(7.0));
        assert_eq!(rate(&series::IN_FLIGHT, ""), Some(100.0));
        let p50 = rate(&series::LATENCY_P50, "get").unwrap();
        assert!((0.7..=1.1).contains(&p50), "{p50}");
        let p99 = rate(&series::LATENCY_P99, "get").unwrap();
        assert!((67.0..=135.0).contains(&p99), "{p99}");
        assert!(next.steps.is_empty());
        let last = sample(1_019, &metrics, shard(9_000_000));
        assert_eq!(find(&last, &series::LATENCY_P50, "get"), None);
        let [
            StepSamples {
                level: 1,
                step: 101,
                values,
            },
        ] = &last.steps[..]
        else {
            panic!("{:?}", last.steps);
        };
        assert_eq!(values.len(), 3);
    }

    #[test]
    fn every_source_is_a_metric_with_that_label() {
        for SeriesSource(metric, label, series, ..) in SOURCES {
            assert!(
                label.is_none_or(|at| at < metric.labels.len()),
                "{}",
                metric.name
            );
            assert_eq!(label.is_some(), series.label.is_some(), "{}", series.name);
        }
    }
}
