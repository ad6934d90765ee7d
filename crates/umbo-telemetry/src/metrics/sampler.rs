//! The visitor that turns metrics into samples of the history.
//!
//! Owns the arithmetic: counters become rates a second, histograms quantiles. The table of
//! [`metric_names`](crate::metric_names) says which metric a series comes from. Runs once a second in the background;
//! its cost is in proportion to the series.

use std::collections::HashMap;

use super::buckets;
use super::visit::{DurationHistogram, MetricValue, MetricVisitor};
use crate::history::LEVELS;
use crate::metric::{Metric, MetricKind};
use crate::series::{Reading, Series, SeriesKey};

/// A counter at one sample.
#[derive(Debug, Clone, Copy, Default)]
struct CounterSample {
    sum: f64,
    /// Whether it may have begun before this process counts.
    is_older: bool,
}

/// Observations up to each bound, of a metric with these series.
#[derive(Debug, Clone)]
struct Observed {
    series: &'static [Series],
    cumulative: Vec<u64>,
}

/// Observations by the value of the histogram's label.
type Histograms = HashMap<String, Observed>;

/// The values of one visit.
#[derive(Default)]
struct SampledValues {
    counters: HashMap<SeriesKey, CounterSample>,
    gauges: HashMap<SeriesKey, f64>,
    histograms: Histograms,
}

/// Returns the value of the label that a series is divided by, empty if it is not divided. `None` if the sample does
/// not count.
fn label_of<'a>(series: &Series, metric: &Metric, labels: &[&'a str]) -> Option<&'a str> {
    let last = labels.last().copied().unwrap_or("");
    if !series.of.is_empty() && !series.of.contains(&last) {
        return None;
    }
    let at = |by| metric.labels.iter().position(|label| *label == by);
    series.by.map_or(Some(""), |by| Some(labels[at(by)?]))
}

impl MetricVisitor for SampledValues {
    fn sample(&mut self, metric: &'static Metric, labels: &[&str], value: MetricValue) {
        for series in metric.history {
            let Some(label) = label_of(series, metric, labels) else {
                continue;
            };
            let key = SeriesKey::new(series, label);
            let value = value.as_f64() * series.factor;
            let fold = match series.reading {
                Reading::Rate => {
                    let counter = self.counters.entry(key).or_default();
                    counter.sum += value;
                    counter.is_older = metric.kind == MetricKind::OlderCounter;
                    continue;
                }
                Reading::Sum => std::ops::Add::add,
                Reading::Max => f64::max,
                Reading::Min => f64::min,
                Reading::Quantile(_) | Reading::Ranked => continue,
            };
            let gauge = self.gauges.entry(key);
            let gauge = gauge.and_modify(|gauge| *gauge = fold(*gauge, value));
            gauge.or_insert(value);
        }
    }

    fn histogram(
        &mut self,
        metric: &'static Metric,
        label: &str,
        histogram: &DurationHistogram<'_>,
    ) {
        if !metric.history.is_empty() {
            let observed = Observed {
                series: metric.history,
                cumulative: histogram.cumulative.to_vec(),
            };
            self.histograms.insert(label.to_owned(), observed);
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
    counters: HashMap<SeriesKey, CounterSample>,
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
            let values = quantiles(&before, &gathered.histograms);
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

    /// Returns the growth a second of a counter. A new counter has grown from zero, unless it may have begun before
    /// this process.
    fn rate(&self, key: &SeriesKey, now: CounterSample, elapsed: f64) -> Option<f64> {
        let before = match self.counters.get(key) {
            Some(before) if before.sum <= now.sum => before.sum,
            None if now.is_older => return None,
            Some(_) | None => 0.0,
        };
        (elapsed > 0.0).then(|| (now.sum - before) / elapsed)
    }
}

/// Returns the quantiles of the observations between two states of the histograms, in milliseconds.
fn quantiles(before: &Histograms, now: &Histograms) -> Vec<(SeriesKey, f64)> {
    let mut values = Vec::new();
    for (label, now) in now {
        let before = before.get(label).map(|before| &before.cumulative[..]);
        let before = before.unwrap_or(&[]).iter().chain(std::iter::repeat(&0));
        let mut below = 0;
        let grown = now.cumulative.iter().zip(before).map(|(now, before)| {
            let upto = now.wrapping_sub(*before);
            buckets::as_f64(upto.wrapping_sub(std::mem::replace(&mut below, upto)))
        });
        let grown: Vec<f64> = grown.collect();
        for series in now.series {
            if let Reading::Quantile(part) = series.reading
                && let Some(nanos) = buckets::quantile(&grown, part)
            {
                values.push((SeriesKey::new(series, label.as_str()), nanos / 1e6));
            }
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use umbo_types::{Criticality, Operation, RequestUnits};

    use super::*;
    use crate::metric_names::{SHARD_REQUEST_UNITS, series_by_name};
    use crate::metrics::tests::shard_status;
    use crate::metrics::{Code, Families, RequestMetrics, RequestOutcome, visit_shards};

    fn find(samples: &HistorySamples, name: &str, label: &str) -> Option<f64> {
        let key = SeriesKey::new(series_by_name(name).unwrap(), label);
        let found = samples.values.iter().find(|(one, _)| *one == key);
        found.map(|(_, value)| *value)
    }

    #[test]
    fn counters_become_rates_and_histograms_quantiles() {
        let metrics = RequestMetrics::new(Vec::<Code>::new(), 1);
        let mut sampler = HistorySampler::new();
        let mut sample = |second, metrics: &RequestMetrics, charged| {
            sampler.sample(second, 2.0, |visitor| {
                let families = &mut Families::new(visitor);
                metrics.visit(families);
                visit_shards(families, &[shard_status(3, charged)], &[]);
                let charged = RequestUnits::from_micros(charged);
                families.family(&SHARD_REQUEST_UNITS, [(["3"], charged)]);
            })
        };
        let first = sample(1_009, &metrics, 5_000_000);
        assert_eq!(find(&first, "shard_ru", "3"), Some(2.5));
        // A node may have counted for days.
        assert_eq!(find(&first, "shard_commits", "3"), None);
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
        let next = sample(1_010, &metrics, 9_000_000);
        let rate = |series, label| find(&next, series, label);
        assert_eq!(rate("served", "get"), Some(50.0));
        assert_eq!(rate("served_by_tier", "critical"), Some(50.0));
        assert_eq!(rate("refused", "get"), Some(0.5));
        assert_eq!(rate("refused_by_tier", "unknown"), Some(0.5));
        assert_ne!(rate("failed_by_tier", "unknown"), Some(0.5));
        assert_eq!(rate("shard_ru", "3"), Some(2.0));
        assert_eq!(rate("shard_rows", "3"), Some(7.0));
        assert_eq!(rate("in_flight", ""), Some(100.0));
        let p50 = rate("latency_p50_ms", "get").unwrap();
        assert!((0.7..=1.1).contains(&p50), "{p50}");
        let p99 = rate("latency_p99_ms", "get").unwrap();
        assert!((67.0..=135.0).contains(&p99), "{p99}");
        assert!(next.steps.is_empty());
        let last = sample(1_019, &metrics, 9_000_000);
        assert_eq!(find(&last, "latency_p50_ms", "get"), None);
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
}
