//! A series of the history: its name, and how it is made of the samples of a metric.
//!
//! Owns no list: the table of [`metric_names`](crate::metric_names) has the series of each metric. A series has one
//! label at most. Rates are computed before they are recorded, so that no reader does arithmetic.

use std::sync::Arc;

/// How the samples of a metric become a value of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reading {
    /// The growth a second of the sum of the samples.
    Rate,
    /// The sum of the samples.
    Sum,
    /// The highest sample.
    Max,
    /// The lowest sample.
    Min,
    /// The quantile of a histogram of durations, in milliseconds, over all requests of a step.
    Quantile(f64),
    /// Not made of samples: the process that ranks its callers records the rates of the first ones.
    Ranked,
}

/// A kind of series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Series {
    /// Name on the wire.
    pub name: &'static str,
    /// Unit of the values.
    pub unit: &'static str,
    /// How the values are made.
    pub reading: Reading,
    /// Label of the metric: each of its values has a series. `None` if there is one series of the name.
    pub by: Option<&'static str>,
    /// Name of the label on the wire.
    pub label: Option<&'static str>,
    /// Values of the metric's last label whose samples count; all samples count if this is empty.
    pub of: &'static [&'static str],
    /// The factor from the unit of the metric to the unit of the series.
    pub factor: f64,
}

impl Series {
    /// Makes a series that is read in this way.
    pub(crate) const fn read(reading: Reading, name: &'static str, unit: &'static str) -> Self {
        Self {
            name,
            unit,
            reading,
            by: None,
            label: None,
            of: &[],
            factor: 1.0,
        }
    }

    /// Divides the series by a label of the metric.
    pub(crate) const fn by(self, label: &'static str) -> Self {
        let (by, label) = (Some(label), Some(label));
        Self { by, label, ..self }
    }

    /// Calls the label by another name on the wire.
    pub(crate) const fn called(self, label: &'static str) -> Self {
        let label = Some(label);
        Self { label, ..self }
    }

    /// Counts only samples whose last label has one of these values.
    pub(crate) const fn of(self, of: &'static [&'static str]) -> Self {
        Self { of, ..self }
    }

    /// Multiplies the samples.
    pub(crate) const fn times(self, factor: f64) -> Self {
        Self { factor, ..self }
    }

    /// Returns whether a longer step is computed anew, because the mean of quantiles says nothing.
    pub const fn is_quantile(&self) -> bool {
        matches!(self.reading, Reading::Quantile(_))
    }
}

/// One series: its kind, and the value of its label, empty if it has no label.
#[derive(Debug, Clone)]
pub struct SeriesKey {
    /// The kind.
    pub series: &'static Series,
    /// Value of the label.
    pub value: Arc<str>,
}

impl SeriesKey {
    /// Names the series of a kind whose label has this value.
    pub fn new(series: &'static Series, value: impl Into<Arc<str>>) -> Self {
        let value = value.into();
        Self { series, value }
    }

    fn parts(&self) -> (&'static str, &str) {
        (self.series.name, &self.value)
    }
}

impl PartialEq for SeriesKey {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for SeriesKey {}

impl std::hash::Hash for SeriesKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl PartialOrd for SeriesKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SeriesKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.parts().cmp(&other.parts())
    }
}

/// Makes a series of the rate of a metric.
pub(crate) const fn rate(name: &'static str, unit: &'static str) -> Series {
    Series::read(Reading::Rate, name, unit)
}

/// Makes a series of the sum of a metric.
pub(crate) const fn sum(name: &'static str, unit: &'static str) -> Series {
    Series::read(Reading::Sum, name, unit)
}

/// Makes a series of the highest sample of a metric.
pub(crate) const fn max(name: &'static str, unit: &'static str) -> Series {
    Series::read(Reading::Max, name, unit)
}

/// Makes a series of the lowest sample of a metric.
pub(crate) const fn min(name: &'static str, unit: &'static str) -> Series {
    Series::read(Reading::Min, name, unit)
}

/// Makes a series of a quantile, in milliseconds, of a metric.
pub(crate) const fn quantile(name: &'static str, part: f64) -> Series {
    Series::read(Reading::Quantile(part), name, "ms")
}
