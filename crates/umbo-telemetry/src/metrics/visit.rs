//! The one model of metrics, as every exporter sees it.
//!
//! The owner of a report shows it with [`Families`]: each family is followed by its samples. Label values come as they are; an exporter escapes what its form needs escaped. A visit is not atomic.

use std::fmt::Display;
use std::time::Duration;

use umbo_types::RequestUnits;

use super::buckets::nanos;
use crate::metric::Metric;

/// Nanoseconds, written as exact decimal seconds.
pub(super) struct Seconds(pub(super) u64);

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

/// A value, in the unit of its metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MetricValue {
    /// A whole number.
    Count(u64),
    /// Any number.
    Number(f64),
    /// Seconds, as nanoseconds.
    Nanos(u64),
    /// Request units.
    Units(RequestUnits),
}

impl MetricValue {
    /// Returns the value as a number: seconds and request units with their fractions.
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of over 2^53 lose their last digits"
    )]
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Count(count) => count as f64,
            Self::Number(number) => number,
            Self::Nanos(nanos) => nanos as f64 / 1e9,
            Self::Units(units) => units.as_f64(),
        }
    }
}

impl Display for MetricValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Nanos(nanos) => Seconds(*nanos).fmt(f),
            Self::Units(units) => units.fmt(f),
        }
    }
}

impl From<u64> for MetricValue {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<&u64> for MetricValue {
    fn from(count: &u64) -> Self {
        Self::Count(*count)
    }
}

impl From<u32> for MetricValue {
    fn from(count: u32) -> Self {
        Self::Count(count.into())
    }
}

impl From<f64> for MetricValue {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<RequestUnits> for MetricValue {
    fn from(units: RequestUnits) -> Self {
        Self::Units(units)
    }
}

impl From<usize> for MetricValue {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

/// 1 or 0.
impl From<bool> for MetricValue {
    fn from(holds: bool) -> Self {
        Self::Count(holds.into())
    }
}

/// Saturates after 584 years.
impl From<Duration> for MetricValue {
    fn from(duration: Duration) -> Self {
        Self::Nanos(nanos(duration))
    }
}

/// A histogram of durations.
#[derive(Debug, Clone, Copy)]
pub struct DurationHistogram<'a> {
    /// Inclusive upper bounds of the buckets in nanoseconds, ascending; `None` for the last one, which is open.
    pub bounds: &'a [Option<u64>],
    /// Observations up to each bound.
    pub cumulative: &'a [u64],
    /// Sum of the observations, in nanoseconds.
    pub sum_nanos: u64,
}

/// What sees all metrics in turn.
pub trait MetricVisitor {
    /// Begins a family, which may have no samples.
    fn family(&mut self, _metric: &'static Metric) {}

    /// Sees a sample; the label values are in the order of the metric's labels.
    fn sample(&mut self, metric: &'static Metric, labels: &[&str], value: MetricValue);

    /// Sees a histogram of a metric with one label.
    fn histogram(
        &mut self,
        metric: &'static Metric,
        label: &str,
        histogram: &DurationHistogram<'_>,
    );
}

/// Shows families to a visitor: what the visit of a report is written with.
pub struct Families<'a>(&'a mut dyn MetricVisitor);

impl<'a> Families<'a> {
    /// Shows families to this visitor.
    pub fn new(visitor: &'a mut dyn MetricVisitor) -> Self {
        Self(visitor)
    }

    /// Begins a family, whose samples follow.
    pub fn head(&mut self, metric: &'static Metric) {
        self.0.family(metric);
    }

    /// Shows a family; only its head if there is no sample.
    pub fn family<L: AsRef<str>, const N: usize>(
        &mut self,
        metric: &'static Metric,
        samples: impl IntoIterator<Item = ([L; N], impl Into<MetricValue>)>,
    ) {
        self.head(metric);
        for (labels, value) in samples {
            let labels = labels.each_ref().map(AsRef::as_ref);
            self.sample(metric, &labels, value);
        }
    }

    /// Shows a family of one sample without labels.
    pub fn single(&mut self, metric: &'static Metric, value: impl Into<MetricValue>) {
        self.head(metric);
        self.sample(metric, &[], value);
    }

    /// Shows a sample of the family that was begun last.
    pub fn sample(
        &mut self,
        metric: &'static Metric,
        labels: &[&str],
        value: impl Into<MetricValue>,
    ) {
        debug_assert_eq!(metric.labels.len(), labels.len());
        self.0.sample(metric, labels, value.into());
    }

    pub(super) fn histogram(
        &mut self,
        metric: &'static Metric,
        label: &str,
        histogram: &DurationHistogram<'_>,
    ) {
        self.0.histogram(metric, label, histogram);
    }
}

impl std::fmt::Debug for Families<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Families").finish_non_exhaustive()
    }
}
