//! The Prometheus exposition format 0.0.4: `# HELP`, `# TYPE`, labels in quotes, buckets.
//!
//! Owns the syntax of a line. Deliberately does not depend on the metrics of Umbo.

use std::fmt::{Display, Write};

use crate::metric_names::Metric;

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

/// Escapes a label value that does not come from a closed list.
pub(super) fn quoted(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// The text of a scrape.
pub(super) struct MetricsText(pub(super) String);

impl MetricsText {
    pub(super) fn head(&mut self, metric: &Metric) {
        let Metric {
            name, kind, help, ..
        } = metric;
        self.line(format_args!(
            "# HELP {name} {help}\n# TYPE {name} {}",
            kind.as_str()
        ));
    }

    /// Writes a family; only its head if there is no sample.
    pub(super) fn family<L: AsRef<str>, const N: usize>(
        &mut self,
        metric: &Metric,
        samples: impl IntoIterator<Item = ([L; N], impl Display)>,
    ) {
        self.head(metric);
        for (labels, value) in samples {
            let labels = labels.each_ref().map(AsRef::as_ref);
            self.sample(metric, "", &labels, value);
        }
    }

    pub(super) fn single(&mut self, metric: &Metric, value: impl Display) {
        self.head(metric);
        self.sample(metric, "", &[], value);
    }

    pub(super) fn sample(
        &mut self,
        metric: &Metric,
        suffix: &str,
        values: &[&str],
        value: impl Display,
    ) {
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

    pub(super) fn bucket(&mut self, metric: &Metric, label: &str, bound: &str, count: u64) {
        let (name, label_name) = (metric.name, metric.labels[0]);
        self.line(format_args!(
            "{name}_bucket{{{label_name}=\"{label}\",le=\"{bound}\"}} {count}"
        ));
    }

    pub(super) fn line(&mut self, arguments: std::fmt::Arguments<'_>) {
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
