//! What a metric is: its names, kind, labels, unit, and the series that the history keeps of it.

use crate::series::Series;

/// Kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only increases, until the process restarts.
    Counter,
    /// A counter that may have begun before this process counts: a dispatcher shows what its shard nodes count, and
    /// the kernel counts from the start of the process.
    OlderCounter,
    /// Increases and decreases; sums over labels and processes mean something.
    UpDownCounter,
    /// Increases and decreases; a sum over labels or processes means nothing.
    Gauge,
    /// Counts observations by size.
    Histogram,
}

impl MetricKind {
    /// Returns the word of the text format.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter | Self::OlderCounter => "counter",
            Self::UpDownCounter | Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }

    /// Returns whether a sample only increases.
    pub const fn is_counter(self) -> bool {
        matches!(self, Self::Counter | Self::OlderCounter)
    }
}

/// A metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// Name in the text for Prometheus.
    pub name: &'static str,
    /// Kind of series.
    pub kind: MetricKind,
    /// Label names, in the order they are written.
    pub labels: &'static [&'static str],
    /// Name over OTLP: the name of the semantic conventions of `OpenTelemetry` if they have the same metric.
    pub otlp_name: &'static str,
    /// Unit over OTLP, by UCUM: what the text for Prometheus has as the suffix of the name.
    pub unit: &'static str,
    /// Meaning, one sentence.
    pub help: &'static str,
    /// Series that the history keeps of the metric.
    pub history: &'static [Series],
}
