//! How fast bulk work goes now, and how long the rest of it takes at this rate.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Time that a rate is taken over.
const OVER: Duration = Duration::from_secs(10);
/// Shortest time that a rate is taken over.
const OVER_MIN: Duration = Duration::from_secs(1);

/// Amounts of finished work, each with its time.
#[derive(Debug, Default)]
pub(crate) struct ProgressRate(VecDeque<(Instant, u64)>);

impl ProgressRate {
    /// Records how much is done.
    pub(crate) fn add(&mut self, done: u64, now: Instant) {
        // Keeps one entry that is at least as old as the time that a rate is taken over.
        while self.0.get(1).is_some_and(|(at, _)| now - *at >= OVER) {
            self.0.pop_front();
        }
        self.0.push_back((now, done));
    }

    /// Returns the rate a second and the time left at this rate as text: `, 1200 rows/s, 40s left`. Empty while there
    /// is no rate or no progress.
    pub(crate) fn text(&self, all: Option<u64>, unit: impl Fn(u64) -> String) -> String {
        let (Some((since, first)), Some((until, last))) = (self.0.front(), self.0.back()) else {
            return String::new();
        };
        let (took, done) = (*until - *since, last.saturating_sub(*first));
        if took < OVER_MIN || done == 0 {
            return String::new();
        }
        let in_time = |amount: u64, time: Duration, of: u128| {
            u64::try_from(u128::from(amount) * time.as_millis() / of.max(1)).unwrap_or(u64::MAX)
        };
        let rate = in_time(done, Duration::from_secs(1), took.as_millis());
        let mut text = format!(", {}/s", unit(rate));
        if let Some(rest) = all
            .and_then(|all| all.checked_sub(*last))
            .filter(|&rest| rest > 0)
        {
            let seconds = in_time(rest, took, u128::from(done)).div_ceil(1_000);
            let left = humantime::format_duration(Duration::from_secs(seconds));
            let _ = write!(text, ", {left} left");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_rate_before_a_second_and_none_of_what_stands() {
        let (mut pace, begin) = (ProgressRate::default(), Instant::now());
        let mut text = |millis, done| {
            pace.add(done, begin + Duration::from_millis(millis));
            pace.text(Some(10_000), |rows| format!("{rows} rows"))
        };
        assert_eq!(text(0, 0), "");
        assert_eq!(text(500, 400), "");
        assert_eq!(text(1_000, 1_000), ", 1000 rows/s, 9s left");
        assert_eq!(text(2_000, 1_500), ", 750 rows/s, 12s left");
        // Of the last ten seconds alone, to the one before.
        assert_eq!(text(11_000, 1_500), ", 50 rows/s, 2m 50s left");
        assert_eq!(text(12_000, 1_500), "");
        assert_eq!(text(13_000, 1_600), ", 9 rows/s, 15m 24s left");
        assert_eq!(text(13_500, 10_000), ", 739 rows/s");
        let other = pace.text(None, |rows| format!("{rows} B"));
        assert_eq!(other, ", 739 B/s");
        assert_eq!(pace.text(Some(5), |rows| format!("{rows} B")), ", 739 B/s");
    }
}
