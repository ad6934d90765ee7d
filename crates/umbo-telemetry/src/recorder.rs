//! Records the history of a process: once a second, at the end of a second of the wall clock, so that steps of all
//! processes are the same.
//!
//! Owns when a sample is due and when files are written. Takes time in proportion to the series, on a thread that the
//! caller provides; nothing here is on the path of a request.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use umbo_api::observe::Event;
use umbo_types::Timestamp;

use crate::history::History;
use crate::history_files::HistoryFiles;
use crate::metrics::{HistorySampler, MetricVisitor, StepSamples};
use crate::series::SeriesKey;

/// How often files are written, in seconds: what a crash loses at most. At the ends of minutes of the wall clock, as
/// a block of the files is such a minute: a write at another time would leave the block under way to the next one.
const WRITE_INTERVAL: u64 = 60;

/// By how much a sample may be early, in milliseconds: timers are exact to one, and clocks differ by less in a second.
const EARLY_MS: u64 = 10;

/// The recorder of a process.
#[derive(Debug, Default)]
pub struct Recorder {
    sampler: HistorySampler,
    sampled_at: Option<Instant>,
    files: Option<HistoryFiles>,
    /// The minute at whose begin files were written last, since the Unix epoch.
    written: u64,
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
            written: second / WRITE_INTERVAL,
            ..Self::default()
        };
        (recorder, events)
    }

    /// Returns for how long to wait before the next sample: until the second that follows the ended one is over.
    pub fn wait(now: Timestamp) -> Duration {
        Duration::from_micros((ended_second(now) + 2) * 1_000_000 - now.0)
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
        // The process may have seen only a part of the first second.
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
        let minute = (second + 1) / WRITE_INTERVAL;
        let Some(files) = self.files.as_mut().filter(|_| minute != self.written) else {
            return;
        };
        self.written = minute;
        let blocks = files.blocks(&history, &happenings(), false);
        drop(history);
        if let Err(error) = files.append(blocks) {
            tracing::warn!(%error, "a minute of the history could not be written");
        }
    }

    /// Writes the last minute to the files. To be called when the process stops.
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

/// Returns the second that has ended; a sample that is a little early counts for the second that is about to end. A late
/// sample does not count for the second under way: the next sample would replace it, in a mean of ten seconds too.
pub fn ended_second(now: Timestamp) -> u64 {
    ((now.as_millis() + EARLY_MS) / 1_000).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric_names::CALLER_REQUEST_UNITS;

    #[test]
    fn a_crash_at_any_second_loses_a_minute_at_most() {
        const BEGIN: u64 = 1_800_000_000;
        const STEP: u64 = 10;
        for offset in 0..WRITE_INTERVAL {
            let folder = tempfile::tempdir().unwrap();
            let start = Timestamp((BEGIN + offset) * 1_000_000);
            let before = Mutex::new(History::new());
            let (mut recorder, _) = Recorder::open(folder.path(), start, &before);
            for second in BEGIN + offset..BEGIN + 200 {
                let wall = Timestamp((second + 1) * 1_000_000);
                let key = SeriesKey::new(&CALLER_REQUEST_UNITS.history[0], "a");
                recorder.record(
                    &before,
                    (Instant::now(), wall),
                    |_| (),
                    |_| vec![(key, 1.0)],
                    Vec::new,
                );
                if second % 7 > 0 {
                    continue;
                }
                let after = Mutex::new(History::new());
                drop(Recorder::open(folder.path(), wall, &after));
                let (before, after) = (before.lock().unwrap(), after.lock().unwrap());
                let first_lost = (second + 1) / WRITE_INTERVAL * WRITE_INTERVAL;
                for step in (BEGIN + offset) / STEP..first_lost / STEP {
                    assert!(
                        before.step(1, step).next().is_some(),
                        "{offset} {second} {step}"
                    );
                    assert!(
                        after.step(1, step).next().is_some(),
                        "{offset} {second} {step}"
                    );
                }
            }
        }
    }

    #[test]
    fn each_sample_counts_for_a_second_of_its_own() {
        for (millis, second) in [
            (10_000, 9),
            (10_003, 9),
            (9_999, 9),
            (9_989, 8),
            (10_600, 9),
            (11_000, 10),
        ] {
            assert_eq!(ended_second(Timestamp(millis * 1_000)), second, "{millis}");
        }
        for (micros, wait) in [
            (1_999_000, 1_001_000),
            (2_000_000, 1_000_000),
            (2_600_000, 400_000),
        ] {
            assert_eq!(
                Recorder::wait(Timestamp(micros)),
                Duration::from_micros(wait)
            );
        }
    }
}
