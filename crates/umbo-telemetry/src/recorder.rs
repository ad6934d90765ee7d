//! Records the history of a process: once a second, at the end of a second of the wall clock, so that steps of all
//! processes are the same.
//!
//! Owns when a sample is due and when files are written. Takes time in proportion to the series, on a thread that the
//! caller provides; nothing here is on the path of a request.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use umbo_api::observe::Event;
use umbo_observe::{History, HistoryFiles, SeriesKey};
use umbo_types::Timestamp;

use crate::metrics::{HistorySampler, MetricVisitor, StepSamples};

/// How often files are written, in seconds: what a crash loses at most.
const WRITE_INTERVAL: u64 = 60;

/// The recorder of a process.
#[derive(Debug, Default)]
pub struct Recorder {
    sampler: HistorySampler,
    sampled_at: Option<Instant>,
    files: Option<HistoryFiles>,
    /// When files were written last, in seconds since the Unix epoch.
    written_at: u64,
}

impl Recorder {
    /// Makes a recorder that keeps the history in memory only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Restores a history from the files of a folder, and makes a recorder that goes on with them. Returns the
    /// happenings that they held. Where the folder cannot be used, says so in the log and keeps the history in
    /// memory only.
    pub fn open(folder: &Path, now: Timestamp, history: &Mutex<History>) -> (Self, Vec<Event>) {
        let mut history = history.lock().unwrap_or_else(PoisonError::into_inner);
        let second = now.as_millis() / 1_000;
        let (files, events) = match HistoryFiles::open(folder, second, &mut history) {
            Ok((files, restored)) => {
                for file in restored.damaged {
                    tracing::warn!(
                        file = %file.display(),
                        "a file of the history is damaged and was set aside; what it held before the damage is kept"
                    );
                }
                (Some(files), restored.events)
            }
            Err(error) => {
                tracing::warn!(
                    folder = %folder.display(),
                    %error,
                    "the history is kept in memory only: its files cannot be used"
                );
                (None, Vec::new())
            }
        };
        let recorder = Self {
            files,
            written_at: second,
            ..Self::default()
        };
        (recorder, events)
    }

    /// Returns for how long to wait before the next sample: until the end of the second.
    pub fn wait(now: Timestamp) -> Duration {
        Duration::from_micros(1_000_000 - now.0 % 1_000_000)
    }

    /// Records the second that has ended: what `visit` shows, and the series of `more`, which is passed the seconds
    /// since the last sample, 1 for the first one. Writes the files once a minute, with the events of `happenings`.
    pub fn record(
        &mut self,
        history: &Mutex<History>,
        (now, wall): (Instant, Timestamp),
        visit: impl FnOnce(&mut dyn MetricVisitor),
        more: impl FnOnce(f64) -> Vec<(SeriesKey, f64)>,
        happenings: impl FnOnce() -> Vec<Event>,
    ) {
        let last = self.sampled_at.replace(now);
        // The first sample is of a second of which the process may have seen a part only.
        let elapsed = last.map_or(1.0, |at| now.saturating_duration_since(at).as_secs_f64());
        let second = ended_second(wall);
        let mut samples = self.sampler.sample(second, elapsed, visit);
        samples.values.extend(more(elapsed));
        let mut history = history.lock().unwrap_or_else(PoisonError::into_inner);
        history.record(second, samples.values);
        for StepSamples {
            level,
            step,
            values,
        } in samples.steps
        {
            history.record_step(level, step, values);
        }
        let is_due = second.abs_diff(self.written_at) >= WRITE_INTERVAL;
        let Some(files) = self.files.as_mut().filter(|_| is_due) else {
            return;
        };
        self.written_at = second;
        let blocks = files.blocks(&history, &happenings(), false);
        drop(history);
        if let Err(error) = files.append(blocks) {
            tracing::warn!(%error, "a minute of the history could not be written");
        }
    }

    /// Writes what is not in the files yet. To be called when the process stops.
    pub fn end(&mut self, history: &Mutex<History>, happenings: &[Event]) {
        if let Some(files) = &mut self.files {
            let history = history.lock().unwrap_or_else(PoisonError::into_inner);
            let blocks = files.blocks(&history, happenings, true);
            drop(history);
            if let Err(error) = files.append(blocks) {
                tracing::warn!(%error, "the last minute of the history could not be written");
            }
        }
    }
}

/// Returns the second that has ended; a sample that is a little early counts for the one that is about to.
pub fn ended_second(now: Timestamp) -> u64 {
    ((now.as_millis() + 500) / 1_000).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_counts_for_the_second_that_ends_nearest() {
        for (millis, second) in [
            (10_000, 9),
            (10_003, 9),
            (9_999, 9),
            (10_499, 9),
            (10_500, 10),
        ] {
            assert_eq!(ended_second(Timestamp(millis * 1_000)), second, "{millis}");
        }
        assert_eq!(
            Recorder::wait(Timestamp(1_999_000)),
            Duration::from_millis(1)
        );
        assert_eq!(Recorder::wait(Timestamp(2_000_000)), Duration::from_secs(1));
    }
}
