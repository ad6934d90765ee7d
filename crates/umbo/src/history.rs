//! The part of a server's history for an interval that ends now.
//!
//! The history has whole steps, of a second or more, and an interval is extended to whole steps. Requests to the admin
//! API are left out, because the command that asks sends some.

use std::collections::BTreeMap;
use std::time::Duration;

use umbo_api::observe::{HistoryReport, SeriesReport};
use umbo_client::{Client, Error};
use umbo_types::Operation;

/// Values of a series by its label.
pub(crate) type ByLabel = BTreeMap<String, f64>;

/// Longest interval with a value for each second in the history.
const BY_SECOND_MAX: Duration = Duration::from_mins(5);
/// Steps that are asked for in addition, because the last one may not be recorded yet.
const STEPS_MORE: u64 = 2;

/// The steps of an interval of one hour at most.
#[derive(Debug, Default)]
pub(crate) struct RecentHistory {
    series: Vec<SeriesReport>,
    /// Steps of the interval; at least one.
    steps: u64,
    /// Length of a step, in milliseconds.
    step_ms: u64,
    /// When the server answered, by its clock, in milliseconds since the Unix epoch.
    now_ms: u64,
}

impl RecentHistory {
    /// Asks for series, whose names have a space between them, from `since_ms` on (milliseconds since the Unix epoch), which is 0 or what
    /// [`Self::next_since_ms`] has returned for the same interval.
    pub(crate) async fn ask(
        client: &Client,
        interval: Duration,
        names: &str,
        since_ms: u64,
    ) -> Result<Self, Error> {
        let range = if interval <= BY_SECOND_MAX {
            "5m"
        } else {
            "1h"
        };
        let names: Vec<_> = names.split(' ').collect();
        let report = client.history(range, &names, since_ms).await?;
        Ok(Self::new(report, interval))
    }

    fn new(report: HistoryReport, interval: Duration) -> Self {
        let step_ms = report.step_ms.max(1);
        Self {
            series: report.series,
            steps: (interval.as_millis() as u64).div_ceil(step_ms).max(1),
            step_ms,
            now_ms: report.now_ms,
        }
    }

    /// Returns the start of the next request for an interval of the same length, in milliseconds since the Unix epoch.
    pub(crate) fn next_since_ms(&self) -> u64 {
        let before = (self.steps + STEPS_MORE) * self.step_ms;
        self.now_ms.saturating_sub(before)
    }

    /// Returns the length of the interval in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        Duration::from_millis(self.steps * self.step_ms).as_secs_f64()
    }

    /// Returns the means of a series by its label; a step without a value counts as 0.
    pub(crate) fn means(&self, name: &str) -> ByLabel {
        // An hour has few steps.
        let steps = f64::from(u32::try_from(self.steps).unwrap_or(u32::MAX));
        self.fold(name, |values| values.iter().sum::<f64>() / steps)
    }

    /// Returns the highest values of a series by its label.
    pub(crate) fn maxima(&self, name: &str) -> ByLabel {
        self.fold(name, |values| values.iter().copied().fold(0.0, f64::max))
    }

    /// Returns the last value of a series without labels, 0 if it has none.
    pub(crate) fn last(&self, name: &str) -> f64 {
        let of_name = self.series.iter().find(|series| series.name == name);
        let last = of_name.and_then(|series| series.values.iter().rev().flatten().next());
        last.copied().map_or(0.0, f64::from)
    }

    /// Returns the sum of the means of a series over its labels.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        // The sum of an empty iterator is -0.
        self.means(name)
            .into_values()
            .fold(0.0, |sum, mean| sum + mean)
    }

    fn fold(&self, name: &str, fold: impl Fn(&[f64]) -> f64) -> ByLabel {
        let left_out = [Operation::Admin, Operation::Service].map(Operation::as_str);
        let is_left_out = |operation: &String| left_out.contains(&operation.as_str());
        let of_name = self.series.iter().filter(|series| {
            series.name == name && !series.labels.get("operation").is_some_and(is_left_out)
        });
        let folded = of_name.filter_map(|series| {
            let values = series.values.iter().rev().take(self.steps as usize);
            let values: Vec<f64> = values.flatten().copied().map(f64::from).collect();
            let label = series.labels.values().next().cloned();
            (!values.is_empty()).then(|| (label.unwrap_or_default(), fold(&values)))
        });
        folded.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recent(interval: Duration) -> RecentHistory {
        let series = |name: &str, label: &str, values: &[Option<f32>]| SeriesReport {
            name: name.to_owned(),
            labels: BTreeMap::from([("operation".to_owned(), label.to_owned())]),
            unit: String::new(),
            values: values.to_vec(),
        };
        let report = HistoryReport {
            now_ms: 10_500,
            start_ms: 7_000,
            step_ms: 1_000,
            series: vec![
                series("served", "get", &[Some(9.0), Some(2.0), None, Some(4.0)]),
                series("served", "admin", &[None, Some(70.0), None, None]),
                series("shed", "get", &[Some(9.0), None, None, None]),
            ],
        };
        RecentHistory::new(report, interval)
    }

    #[test]
    fn an_interval_has_its_last_steps_and_no_requests_of_operators() {
        let of_three = recent(Duration::from_millis(2_001));
        assert_eq!(format!("{:.1}", of_three.seconds()), "3.0");
        assert_eq!(format!("{:.1}", of_three.means("served")["get"]), "2.0");
        assert_eq!(format!("{:.1}", of_three.maxima("served")["get"]), "4.0");
        assert_eq!(format!("{:.1}", of_three.sum("served")), "2.0");
        assert_eq!(format!("{:.1}", of_three.sum("shed")), "0.0");
        assert!(of_three.means("shed").is_empty() && of_three.means("ru").is_empty());
    }

    #[test]
    fn the_next_answer_has_the_steps_of_one_interval() {
        assert_eq!(recent(Duration::from_secs(2)).next_since_ms(), 6_500);
        let of_one = recent(Duration::from_millis(100));
        assert_eq!(of_one.next_since_ms(), 7_500);
        assert_eq!(format!("{:.1}", of_one.sum("served")), "4.0");
    }
}
