//! The visitor that makes OTLP messages of metrics.
//!
//! Owns what a point is: cumulative, with the instant since which it counts. A counter that fell was reset at some
//! instant since the last export, which its next points count from. Follows the data model of `OpenTelemetry`
//! metrics, except that points carry no exemplars.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric as OtlpMetric,
    NumberDataPoint, Sum,
};

use super::visit::{DurationHistogram, MetricValue, MetricVisitor};
use crate::metric::{Metric, MetricKind};
use crate::metric_names::{PROCESS_CPU, SHARD, STATUS, otlp_attribute};

/// Most points of one message: at about 100 bytes a point it stays far under the 4 MiB that receivers of gRPC take
/// by default.
const POINTS_MAX: usize = 8_192;
const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

/// Instants since which the counters of a process count. Memory in proportion to the series of one export.
#[derive(Debug)]
pub(crate) struct Starts {
    /// Begin of the process's own counters, in nanoseconds since the Unix epoch.
    began: u64,
    /// Time of the last export.
    last: u64,
    counters: HashMap<u64, Counted>,
}

/// A counter at the last export.
#[derive(Debug, Clone, Copy)]
struct Counted {
    value: f64,
    start: u64,
    /// Time of the last export that had it.
    seen: u64,
}

impl Starts {
    /// Makes the instants of a process that begins to count at `began`, in nanoseconds since the Unix epoch.
    pub(crate) fn new(began: u64) -> Self {
        Self {
            began,
            last: began,
            counters: HashMap::new(),
        }
    }

    /// Returns the messages of one export at `now`, in nanoseconds since the Unix epoch: the metrics that `visit`
    /// shows. Families without samples are left out.
    pub(crate) fn export(
        &mut self,
        now: u64,
        visit: impl FnOnce(&mut dyn MetricVisitor),
    ) -> Vec<Vec<OtlpMetric>> {
        // A clock that was put back must not make an interval negative.
        let now = now.max(self.last);
        let mut visitor = OtlpVisitor {
            starts: self,
            now,
            messages: vec![Vec::new()],
            points: 0,
        };
        visit(&mut visitor);
        let mut messages = visitor.messages;
        self.counters.retain(|_, counter| counter.seen == now);
        self.last = now;
        messages.retain(|metrics| !metrics.is_empty());
        messages
    }

    /// Returns the instant since which a counter counts, which has this value now.
    fn start(&mut self, metric: &Metric, labels: &[&str], value: f64, now: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        (metric.name, labels).hash(&mut hasher);
        let start = match self.counters.get(&hasher.finish()) {
            Some(before) if before.value <= value => before.start,
            // The counter was reset after the last export.
            Some(_) => self.last,
            // The kernel counts from the start of this process, too.
            None if *metric == PROCESS_CPU => self.began,
            // The begin of the counter is unknown; a point says so by beginning when it is taken.
            None if metric.kind == MetricKind::OlderCounter => now,
            None => self.began,
        };
        let counted = Counted {
            value,
            start,
            seen: now,
        };
        self.counters.insert(hasher.finish(), counted);
        start
    }
}

struct OtlpVisitor<'a> {
    starts: &'a mut Starts,
    now: u64,
    messages: Vec<Vec<OtlpMetric>>,
    /// Points of the last message.
    points: usize,
}

impl OtlpVisitor<'_> {
    /// Returns the data that a point of the metric is added to.
    fn data(&mut self, metric: &'static Metric) -> Option<&mut Data> {
        if self.points == POINTS_MAX {
            self.messages.push(Vec::new());
            self.points = 0;
        }
        self.points += 1;
        let message = self.messages.last_mut()?;
        // Families come one after the other.
        if message
            .last()
            .is_none_or(|last| last.name != metric.otlp_name)
        {
            message.push(OtlpMetric {
                name: metric.otlp_name.to_owned(),
                description: metric.help.to_owned(),
                unit: metric.unit.to_owned(),
                metadata: Vec::new(),
                data: Some(empty(metric.kind)),
            });
        }
        message.last_mut()?.data.as_mut()
    }
}

impl MetricVisitor for OtlpVisitor<'_> {
    fn sample(&mut self, metric: &'static Metric, labels: &[&str], value: MetricValue) {
        let start = match metric.kind {
            MetricKind::Counter | MetricKind::OlderCounter => {
                self.starts.start(metric, labels, value.as_f64(), self.now)
            }
            MetricKind::UpDownCounter => self.starts.began,
            MetricKind::Gauge | MetricKind::Histogram => 0,
        };
        let point = NumberDataPoint {
            attributes: attributes(metric, labels),
            start_time_unix_nano: start,
            time_unix_nano: self.now,
            value: Some(number(value)),
            ..NumberDataPoint::default()
        };
        match self.data(metric) {
            Some(Data::Sum(sum)) => sum.data_points.push(point),
            Some(Data::Gauge(gauge)) => gauge.data_points.push(point),
            _ => {}
        }
    }

    fn histogram(
        &mut self,
        metric: &'static Metric,
        label: &str,
        histogram: &DurationHistogram<'_>,
    ) {
        let mut before = 0;
        let buckets = histogram.cumulative.iter().map(|&upto| {
            let count = upto.saturating_sub(before);
            before = upto;
            count
        });
        let bounds = histogram.bounds.iter().flatten();
        let point = HistogramDataPoint {
            attributes: attributes(metric, &[label]),
            start_time_unix_nano: self.starts.began,
            time_unix_nano: self.now,
            count: histogram.cumulative.last().copied().unwrap_or(0),
            sum: Some(MetricValue::Nanos(histogram.sum_nanos).as_f64()),
            bucket_counts: buckets.collect(),
            explicit_bounds: bounds
                .map(|&nanos| MetricValue::Nanos(nanos).as_f64())
                .collect(),
            ..HistogramDataPoint::default()
        };
        if let Some(Data::Histogram(histogram)) = self.data(metric) {
            histogram.data_points.push(point);
        }
    }
}

fn empty(kind: MetricKind) -> Data {
    match kind {
        MetricKind::Counter | MetricKind::OlderCounter | MetricKind::UpDownCounter => {
            Data::Sum(Sum {
                data_points: Vec::new(),
                aggregation_temporality: CUMULATIVE,
                is_monotonic: kind.is_counter(),
            })
        }
        MetricKind::Gauge => Data::Gauge(Gauge::default()),
        MetricKind::Histogram => Data::Histogram(Histogram {
            data_points: Vec::new(),
            aggregation_temporality: CUMULATIVE,
        }),
    }
}

fn number(value: MetricValue) -> Value {
    match value {
        MetricValue::Count(count) => Value::AsInt(i64::try_from(count).unwrap_or(i64::MAX)),
        value => Value::AsDouble(value.as_f64()),
    }
}

fn attributes(metric: &Metric, labels: &[&str]) -> Vec<KeyValue> {
    let pairs = metric.labels.iter().zip(labels);
    pairs
        .map(|(label, value)| {
            // The conventions, and the spans, have these as numbers.
            let whole = value
                .parse()
                .ok()
                .filter(|_| [STATUS, SHARD].contains(label));
            let value = whole.map_or_else(|| Any::StringValue((*value).to_owned()), Any::IntValue);
            attribute(otlp_attribute(label), value)
        })
        .collect()
}

/// Returns a pair of an OTLP message.
pub(crate) fn attribute(name: &str, value: Any) -> KeyValue {
    KeyValue {
        key: name.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

/// Returns nanoseconds since the Unix epoch of an instant of the wall clock.
pub(crate) fn unix_nanos(wall: umbo_types::Timestamp) -> u64 {
    wall.0.saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use umbo_types::Operation;

    use super::*;
    use crate::metric_names as names;
    use crate::metrics::tests::shard_status;
    use crate::metrics::{Code, Families, ProcessSample, RequestMetrics, visit_shards};

    fn find<'a>(messages: &'a [Vec<OtlpMetric>], metric: &Metric) -> Vec<&'a OtlpMetric> {
        let all = messages.iter().flatten();
        all.filter(|one| one.name == metric.otlp_name).collect()
    }

    fn sum<'a>(messages: &'a [Vec<OtlpMetric>], metric: &Metric) -> (&'a NumberDataPoint, bool) {
        let [one] = find(messages, metric)[..] else {
            panic!("{messages:?}");
        };
        assert_eq!(one.unit, metric.unit);
        let Some(Data::Sum(sum)) = &one.data else {
            panic!("{one:?}");
        };
        assert_eq!(sum.aggregation_temporality, CUMULATIVE);
        (&sum.data_points[0], sum.is_monotonic)
    }

    fn export(
        starts: &mut Starts,
        metrics: &RequestMetrics,
        now: u64,
        commits: u64,
    ) -> Vec<Vec<OtlpMetric>> {
        starts.export(now, |visitor| {
            let families = &mut Families::new(visitor);
            metrics.visit(families);
            visit_shards(families, &[shard_status(3, commits)], &[]);
            ProcessSample::default().visit(families);
        })
    }

    #[test]
    fn counters_count_from_the_begin_of_the_process_or_from_their_reset() {
        let metrics = RequestMetrics::new(Vec::<Code>::new(), 1);
        let mut starts = Starts::new(1_000);
        let first = export(&mut starts, &metrics, 2_000, 5);
        let (point, is_monotonic) = sum(&first, &names::CONNECTIONS_ACCEPTED);
        assert!(is_monotonic);
        assert_eq!(
            (point.start_time_unix_nano, point.time_unix_nano),
            (1_000, 2_000)
        );
        // A node may have counted for days.
        let (point, _) = sum(&first, &names::SHARD_COMMITS);
        assert_eq!(point.start_time_unix_nano, 2_000);
        assert_eq!(point.value, Some(Value::AsInt(5)));
        assert_eq!(
            point.attributes,
            [attribute("umbo.shard", Any::IntValue(3))]
        );
        let (point, _) = sum(&first, &PROCESS_CPU);
        assert_eq!(point.start_time_unix_nano, 1_000);
        let (point, is_monotonic) = sum(&first, &names::SHARD_ROWS);
        assert!(!is_monotonic);
        assert_eq!(point.start_time_unix_nano, 1_000);
        let start = |messages: &[Vec<OtlpMetric>]| {
            sum(messages, &names::SHARD_COMMITS).0.start_time_unix_nano
        };
        assert_eq!(start(&export(&mut starts, &metrics, 3_000, 9)), 2_000);
        assert_eq!(start(&export(&mut starts, &metrics, 4_000, 1)), 3_000);
        assert_eq!(start(&export(&mut starts, &metrics, 5_000, 1)), 3_000);
        // The clock was put back.
        let last = export(&mut starts, &metrics, 1_500, 1);
        assert_eq!(sum(&last, &names::SHARD_COMMITS).0.time_unix_nano, 5_000);
    }

    #[test]
    fn buckets_of_a_histogram_count_their_own_observations() {
        let metrics = RequestMetrics::new(Vec::<Code>::new(), 1);
        for millis in [1, 1, 100_000] {
            metrics.begin_request(Operation::Get);
            metrics.record(Operation::Get, 200, Duration::from_millis(millis), 0, 0);
        }
        let messages = export(&mut Starts::new(1_000), &metrics, 2_000, 0);
        let [one] = find(&messages, &names::REQUEST_DURATION)[..] else {
            panic!("{messages:?}");
        };
        let Some(Data::Histogram(histogram)) = &one.data else {
            panic!("{one:?}");
        };
        assert_eq!(histogram.aggregation_temporality, CUMULATIVE);
        let point = &histogram.data_points[0];
        assert_eq!((point.count, point.sum), (3, Some(100.002)));
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        assert_eq!(point.bucket_counts.iter().sum::<u64>(), 3);
        assert_eq!(point.bucket_counts.last(), Some(&1));
        let at = point
            .bucket_counts
            .iter()
            .position(|&count| count == 2)
            .unwrap();
        assert!(point.explicit_bounds[at - 1] < 0.001 && 0.001 <= point.explicit_bounds[at]);
    }

    #[test]
    fn many_points_are_cut_into_messages() {
        let shards: Vec<_> = (0..1_000).map(|shard| shard_status(shard, 0)).collect();
        let messages = Starts::new(1).export(2, |visitor| {
            visit_shards(&mut Families::new(visitor), &shards, &[]);
        });
        assert!(messages.len() > 1);
        let points = |metric: &OtlpMetric| match &metric.data {
            Some(Data::Sum(sum)) => sum.data_points.len(),
            Some(Data::Gauge(gauge)) => gauge.data_points.len(),
            _ => 0,
        };
        for message in &messages {
            assert!(message.iter().map(points).sum::<usize>() <= POINTS_MAX);
        }
        let of_rows = find(&messages, &names::SHARD_ROWS);
        assert_eq!(of_rows.into_iter().map(points).sum::<usize>(), 1_000);
    }
}
