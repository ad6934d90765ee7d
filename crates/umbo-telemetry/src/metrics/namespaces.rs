//! The series of namespaces: their use, and their requests that were not served.
//!
//! The first [`NAMESPACES_MAX`] namespaces that are known have series until the process ends, and all others share one:
//! a shared sum that loses a namespace would look like a restart. A served request touches nothing here, and a request
//! that was not served waits for no exporter.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use umbo_types::RequestUnits;

use super::outcome::RequestOutcome;
use super::visit::{Families, MetricValue};
use crate::metric::Metric;
use crate::metric_names as names;

/// Most namespaces with series, without the series that all others share.
pub const NAMESPACES_MAX: usize = 50;
/// Stands for all other namespaces. It holds a space, so that no namespace can be named so.
const OTHER_NAMESPACES: &str = "(all others)";

/// Use of a namespace since the start: requests admitted, micro-RU charged, rows, bytes read and bytes
/// written.
pub type NamespaceUse = [u64; 5];

/// Makes the value of a figure.
type AsValue = fn(u64) -> MetricValue;

/// The metric of each figure of a [`NamespaceUse`].
const METRICS: [(&Metric, AsValue); 5] = [
    (&names::NAMESPACE_REQUESTS, MetricValue::Count),
    (&names::NAMESPACE_REQUEST_UNITS, |micros| {
        RequestUnits::from_micros(micros).into()
    }),
    (&names::NAMESPACE_ROWS, MetricValue::Count),
    (&names::NAMESPACE_READ_BYTES, MetricValue::Count),
    (&names::NAMESPACE_WRITTEN_BYTES, MetricValue::Count),
];

/// The figures of a series.
#[derive(Debug, Clone, Copy, Default)]
struct NamespaceSeries {
    /// Its place among the counters of outcomes; 0 is that of [`OTHER_NAMESPACES`].
    place: usize,
    /// The highest figures so far: a report may lack an account that moves meanwhile, and no counter may fall.
    used: NamespaceUse,
}

type AllSeries = BTreeMap<Box<str>, NamespaceSeries>;

/// The namespaces that have series, and [`OTHER_NAMESPACES`].
#[derive(Debug)]
pub(super) struct NamespaceCounts {
    known: Mutex<AllSeries>,
    /// Requests by place and outcome.
    outcomes: Box<[[AtomicU64; RequestOutcome::ALL.len()]]>,
}

impl Default for NamespaceCounts {
    fn default() -> Self {
        let others = (OTHER_NAMESPACES.into(), NamespaceSeries::default());
        let places = 0..=NAMESPACES_MAX;
        Self {
            known: Mutex::new(AllSeries::from([others])),
            outcomes: places.map(|_| Default::default()).collect(),
        }
    }
}

impl NamespaceCounts {
    fn known(&self) -> MutexGuard<'_, AllSeries> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the place of a namespace, which has a series from now on if there is room.
    pub(super) fn place(&self, namespace: &str) -> usize {
        let mut known = self.known();
        let label = label_in(&mut known, namespace);
        known.get(label).map_or(0, |series| series.place)
    }

    /// Counts a request that was not served, at the place of its namespace.
    pub(super) fn record(&self, place: usize, outcome: RequestOutcome) {
        if let Some(outcomes) = self.outcomes.get(place) {
            outcomes[outcome as usize].fetch_add(1, Relaxed);
        }
    }

    /// Shows all series. The namespaces of `used` have series from now on, in their order while there is room.
    pub(super) fn visit(&self, families: &mut Families<'_>, used: &[(Arc<str>, NamespaceUse)]) {
        let known = self.raised(used);
        families.head(&names::NAMESPACE_ERRORS);
        for (namespace, series) in &known {
            for outcome in RequestOutcome::ALL {
                if outcome != RequestOutcome::Served {
                    let labels = [&**namespace, outcome.as_str()];
                    let count = self.outcomes[series.place][outcome as usize].load(Relaxed);
                    families.sample(&names::NAMESPACE_ERRORS, &labels, count);
                }
            }
        }
        for (at, (metric, value)) in METRICS.into_iter().enumerate() {
            let samples = known.iter();
            let samples = samples.map(|(name, series)| ([name], value(series.used[at])));
            families.family(metric, samples);
        }
    }

    /// Raises the figures of the series to the sums of `used`, and returns all series. Sums without the lock.
    fn raised(&self, used: &[(Arc<str>, NamespaceUse)]) -> AllSeries {
        let mut known = self.known();
        for (name, _) in used {
            if label_in(&mut known, name) == OTHER_NAMESPACES {
                break;
            }
        }
        let mut sums: BTreeMap<Box<str>, NamespaceUse> = known
            .keys()
            .map(|name| (name.clone(), NamespaceUse::default()))
            .collect();
        drop(known);
        for (name, used) in used {
            let label = if sums.contains_key(&**name) {
                name
            } else {
                OTHER_NAMESPACES
            };
            if let Some(sum) = sums.get_mut(label) {
                *sum = std::array::from_fn(|at| sum[at].saturating_add(used[at]));
            }
        }
        let mut known = self.known();
        for (label, sum) in sums {
            if let Some(series) = known.get_mut(&label) {
                series.used = std::array::from_fn(|at| series.used[at].max(sum[at]));
            }
        }
        known.clone()
    }
}

/// Returns the name that a namespace has in series: its own, or [`OTHER_NAMESPACES`].
fn label_in<'a>(known: &mut AllSeries, namespace: &'a str) -> &'a str {
    if !known.contains_key(namespace) {
        if known.len() > NAMESPACES_MAX {
            return OTHER_NAMESPACES;
        }
        let series = NamespaceSeries {
            place: known.len(),
            used: NamespaceUse::default(),
        };
        known.insert(namespace.into(), series);
    }
    namespace
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::MetricsText;

    fn text(counts: &NamespaceCounts, used: &[(&str, NamespaceUse)]) -> Vec<String> {
        let used = used.iter();
        let used: Vec<_> = used.map(|(name, used)| (Arc::from(*name), *used)).collect();
        let text = MetricsText::render(|visitor| counts.visit(&mut Families::new(visitor), &used));
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples
            .map(|line| line.replace("umbo_namespace_", ""))
            .collect()
    }

    #[track_caller]
    fn assert_has(text: &[String], lines: &[&str]) {
        for line in lines {
            assert!(text.iter().any(|one| one == line), "{line} in\n{text:#?}");
        }
    }

    #[test]
    fn namespaces_beyond_the_bound_share_a_series() {
        let counts = NamespaceCounts::default();
        let names: Vec<_> = (0..NAMESPACES_MAX).map(|at| format!("n{at:02}")).collect();
        let figures = [2, 1_500_000, 3, 40, 5];
        let used = names.iter().map(|name| (&**name, figures));
        let used: Vec<_> = used
            .chain([("late", figures), ("later", figures)])
            .collect();
        let shown = text(&counts, &used);
        assert_eq!(shown.len(), (NAMESPACES_MAX + 1) * (4 + 5));
        let lines = [
            "requests_total{namespace=\"(all others)\"} 4",
            "requests_total{namespace=\"n49\"} 2",
            "request_units_total{namespace=\"(all others)\"} 3",
            "request_units_total{namespace=\"n49\"} 1.5",
            "rows_total{namespace=\"n49\"} 3",
            "read_bytes_total{namespace=\"n49\"} 40",
            "written_bytes_total{namespace=\"(all others)\"} 10",
        ];
        assert_has(&shown, &lines);
        counts.record(counts.place("late"), RequestOutcome::Shed);
        counts.record(counts.place("later"), RequestOutcome::Shed);
        counts.record(counts.place("n49"), RequestOutcome::Rejected);
        let lines = [
            "errors_total{namespace=\"(all others)\",outcome=\"shed\"} 2",
            "errors_total{namespace=\"n49\",outcome=\"rejected\"} 1",
        ];
        assert_has(&text(&counts, &[]), &lines);
    }

    /// The sampler of the history is not shown these metrics.
    #[test]
    fn the_history_keeps_nothing_of_namespaces() {
        let metrics = METRICS.into_iter().map(|(metric, _)| metric);
        let mut metrics = metrics.chain([&names::NAMESPACE_ERRORS]);
        assert!(metrics.all(|metric| metric.history.is_empty()));
    }

    #[test]
    fn a_figure_never_falls() {
        let counts = NamespaceCounts::default();
        text(&counts, &[("n", [8, 0, 9, 0, 0])]);
        // An account moved during the second report, and was missed in the third.
        let shown = text(&counts, &[("n", [7, 0, 10, 0, 0])]);
        let lines = [
            "requests_total{namespace=\"n\"} 8",
            "rows_total{namespace=\"n\"} 10",
        ];
        assert_has(&shown, &lines);
        assert_has(&text(&counts, &[]), &lines);
    }

    #[test]
    fn series_are_at_zero_before_the_first_event() {
        let counts = NamespaceCounts::default();
        let lines = [
            "errors_total{namespace=\"(all others)\",outcome=\"failed\"} 0",
            "errors_total{namespace=\"n\",outcome=\"failed\"} 0",
            "rows_total{namespace=\"n\"} 0",
        ];
        let shown = text(&counts, &[("n", NamespaceUse::default())]);
        assert_has(&shown, &lines);
    }
}
