//! The Prometheus exposition format 0.0.4: `# HELP`, `# TYPE`, labels in quotes, buckets.
//!
//! Owns the syntax of a line.

use std::borrow::Cow;
use std::fmt::{Display, Write};

use super::visit::{DurationHistogram, MetricValue, MetricVisitor, Seconds};
use crate::metric::Metric;

/// Content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Escapes a label value that does not come from a closed list.
fn quoted(value: &str) -> Cow<'_, str> {
    if !value.contains(['\\', '"', '\n']) {
        return Cow::Borrowed(value);
    }
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
    Cow::Owned(escaped.replace('\n', "\\n"))
}

/// The text of a scrape.
#[derive(Debug)]
pub struct MetricsText(String);

impl MetricsText {
    /// Returns the text of the metrics that `visit` shows.
    pub fn render(visit: impl FnOnce(&mut dyn MetricVisitor)) -> String {
        // Most scrapes are not longer.
        let mut text = Self(String::with_capacity(16 << 10));
        visit(&mut text);
        text.0
    }

    fn write(
        &mut self,
        metric: &Metric,
        suffix: &str,
        labels: &[&str],
        bound: Option<&dyn Display>,
        value: impl Display,
    ) {
        let name = metric.name;
        self.push(format_args!("{name}{suffix}"));
        let names = metric.labels.iter();
        let mut separator = '{';
        for (name, value) in names.zip(labels) {
            self.push(format_args!("{separator}{name}=\"{}\"", quoted(value)));
            separator = ',';
        }
        if let Some(bound) = bound {
            self.push(format_args!("{separator}le=\"{bound}\""));
            separator = ',';
        }
        let end = if separator == '{' { "" } else { "}" };
        self.push(format_args!("{end} {value}\n"));
    }

    fn push(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.0.write_fmt(arguments);
    }
}

impl MetricVisitor for MetricsText {
    fn family(&mut self, metric: &'static Metric) {
        let Metric {
            name, kind, help, ..
        } = metric;
        self.push(format_args!(
            "# HELP {name} {help}\n# TYPE {name} {}\n",
            kind.as_str()
        ));
    }

    fn sample(&mut self, metric: &'static Metric, labels: &[&str], value: MetricValue) {
        self.write(metric, "", labels, None, value);
    }

    fn histogram(
        &mut self,
        metric: &'static Metric,
        label: &str,
        histogram: &DurationHistogram<'_>,
    ) {
        let labels = [label];
        for (bound, count) in histogram.bounds.iter().zip(histogram.cumulative) {
            let bound: &dyn Display = match bound {
                Some(nanos) => &Seconds(*nanos),
                None => &"+Inf",
            };
            self.write(metric, "_bucket", &labels, Some(bound), count);
        }
        let sum = Seconds(histogram.sum_nanos);
        self.write(metric, "_sum", &labels, None, sum);
        let count = histogram.cumulative.last().copied().unwrap_or(0);
        self.write(metric, "_count", &labels, None, count);
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
