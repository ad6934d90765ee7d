//! The history: series at three resolutions, in memory of a fixed bound.
//!
//! A second of samples is recorded at once ([`History::record`]). Steps of ten seconds and ten minutes are made
//! of the seconds: their mean; a quantile is computed over the whole step. Once all places are taken, a new series takes
//! the place of the series that ended first; at most [`SERIES_MAX`] are kept, which bounds the whole to 32 MiB: 13,560 values of four bytes
//! and the chunks around them for each. Time is the wall clock's. If it goes back, the values
//! of later times are forgotten.

mod ring;

use std::collections::BTreeMap;

use umbo_api::observe::{HistoryReport, SeriesReport};

use self::ring::Ring;
use crate::metric_names::series_names;
use crate::series::{Series, SeriesKey};

/// Most series that are kept.
pub const SERIES_MAX: usize = 512;
/// Points that a reader gets at most of a series.
const POINTS_MAX: u64 = 720;
/// Seconds that the values of one sample may stand for: a sampler that was late still covers them.
const COVERED_MAX: u64 = 10;

/// A resolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// Length of a step, in seconds.
    pub step_seconds: u64,
    /// Steps that are kept.
    pub kept: u64,
}

/// The resolutions: seconds for ten minutes, ten seconds for a day, ten minutes for thirty days.
pub const LEVELS: [Level; 3] = [
    Level {
        step_seconds: 1,
        kept: 600,
    },
    Level {
        step_seconds: 10,
        kept: 8_640,
    },
    Level {
        step_seconds: 600,
        kept: 4_320,
    },
];

/// What a reader asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// Five minutes, by second.
    FiveMinutes,
    /// An hour, by ten seconds.
    Hour,
    /// A day, by two minutes.
    Day,
    /// Thirty days, by the hour.
    Month,
}

impl Range {
    /// All ranges, shortest first.
    pub const ALL: [Self; 4] = [Self::FiveMinutes, Self::Hour, Self::Day, Self::Month];

    /// Returns the name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FiveMinutes => "5m",
            Self::Hour => "1h",
            Self::Day => "24h",
            Self::Month => "30d",
        }
    }

    /// Returns the range of a name, or `None` if no range has it.
    pub fn by_name(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|range| range.as_str().as_bytes() == name)
    }

    const fn seconds(self) -> u64 {
        match self {
            Self::FiveMinutes => 300,
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Month => 30 * 86_400,
        }
    }

    const fn level(self) -> usize {
        match self {
            Self::FiveMinutes => 0,
            Self::Hour | Self::Day => 1,
            Self::Month => 2,
        }
    }
}

/// What a reader gets.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryView {
    /// Beginning of the first step, milliseconds since the Unix epoch.
    pub start_ms: u64,
    /// Length of a step, in milliseconds.
    pub step_ms: u64,
    /// The series, by the order of their kinds and then by label.
    pub series: Vec<SeriesValues>,
}

impl HistoryView {
    /// Returns the view as it is on the wire; `now_ms` is the time of the answer.
    pub fn report(self, now_ms: u64) -> HistoryReport {
        HistoryReport {
            now_ms,
            start_ms: self.start_ms,
            step_ms: self.step_ms,
            series: self.series.into_iter().map(SeriesValues::report).collect(),
        }
    }
}

/// Values of one series.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesValues {
    /// The series.
    pub key: SeriesKey,
    /// A value for each step, or `None` for a step without one.
    pub values: Vec<Option<f32>>,
}

impl SeriesValues {
    fn report(self) -> SeriesReport {
        let Self { key, values } = self;
        let label = key.series.label;
        let labels = label.map(|label| (label.to_owned(), key.value.to_string()));
        SeriesReport {
            name: key.series.name.to_owned(),
            labels: labels.into_iter().collect(),
            unit: key.series.unit.to_owned(),
            values,
        }
    }
}

/// A mean in the making.
#[derive(Debug, Clone, Copy, Default)]
struct OpenStep {
    step: u64,
    sum: f64,
    count: u32,
}

#[derive(Debug, Default)]
struct SeriesRings {
    rings: [Ring; LEVELS.len()],
    /// Of the levels after the first.
    open: [OpenStep; LEVELS.len() - 1],
}

impl SeriesRings {
    /// Ends the open step of a level, unless it is `current`.
    fn close(&mut self, level: usize, current: u64) {
        let open = &mut self.open[level - 1];
        if open.count == 0 || open.step == current {
            return;
        }
        let mean = narrow(open.sum / f64::from(open.count));
        self.rings[level].push(open.step, mean, LEVELS[level].kept);
        *open = OpenStep::default();
    }

    fn add(&mut self, level: usize, second: u64, value: f64) {
        let step = second / LEVELS[level].step_seconds;
        self.close(level, step);
        let open = &mut self.open[level - 1];
        open.step = step;
        open.sum += value;
        open.count += 1;
    }

    /// Returns the last second with a value.
    fn last_second(&self) -> u64 {
        let ends = self
            .rings
            .iter()
            .zip(LEVELS)
            .filter_map(|(ring, level)| Some(ring.end()? * level.step_seconds));
        ends.max().unwrap_or(0)
    }
}

/// The history of a process.
#[derive(Debug, Default)]
pub struct History {
    entries: BTreeMap<SeriesKey, SeriesRings>,
    /// The second after the newest recorded.
    end: u64,
}

impl History {
    /// Makes an empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records the samples of a second, in seconds since the Unix epoch. If the last record is at most ten seconds old,
    /// the values stand for all seconds since then, and else for this one alone. An earlier second than the last
    /// replaces all records from it on.
    pub fn record(&mut self, second: u64, samples: impl IntoIterator<Item = (SeriesKey, f64)>) {
        if second < self.end {
            self.forget_from(second);
        }
        let is_continued = self.end > 0 && second - self.end < COVERED_MAX;
        let from = if is_continued { self.end } else { second };
        for (key, value) in samples {
            let is_quantile = key.series.is_quantile();
            let Some(entry) = self.entry(key) else {
                continue;
            };
            for second in from..=second {
                entry.rings[0].push(second, narrow(value), LEVELS[0].kept);
                if !is_quantile && !value.is_nan() {
                    for level in 1..LEVELS.len() {
                        entry.add(level, second, value);
                    }
                }
            }
        }
        self.end = second + 1;
        for entry in self.entries.values_mut() {
            for (number, level) in LEVELS.iter().enumerate().skip(1) {
                entry.close(number, self.end / level.step_seconds);
            }
        }
    }

    /// Records values of a whole step of a level: quantiles, and values from a file. A step that has a value keeps it.
    pub fn record_step(
        &mut self,
        level: usize,
        step: u64,
        samples: impl IntoIterator<Item = (SeriesKey, f32)>,
    ) {
        for (key, value) in samples {
            if let Some(entry) = self.entry(key) {
                entry.rings[level].push(step, value, LEVELS[level].kept);
            }
        }
    }

    /// Returns the values of a range that ends with the second recorded last; of all series that `is_asked`
    /// accepts, if they have any value in it.
    pub fn view(&self, range: Range, is_asked: impl Fn(&Series) -> bool) -> HistoryView {
        self.view_since(range, 0, is_asked)
    }

    /// Returns the steps of [`History::view`] from the step on that holds a time, in milliseconds since the Unix epoch:
    /// for readers that have the others.
    pub fn view_since(
        &self,
        range: Range,
        since_ms: u64,
        is_asked: impl Fn(&Series) -> bool,
    ) -> HistoryView {
        let level = LEVELS[range.level()];
        let steps = range.seconds() / level.step_seconds;
        let together = steps.div_ceil(POINTS_MAX);
        let points = steps / together;
        let step_seconds = level.step_seconds * together;
        // The last step has ended; if steps are put together, it may be under way.
        let end = self.end / level.step_seconds;
        let end = end.div_ceil(together);
        let since = since_ms / 1_000 / step_seconds;
        let start = end.saturating_sub(points).max(since.min(end));
        let asked = self.entries.iter().filter(|(key, _)| is_asked(key.series));
        let series = asked.map(|(key, entry)| {
            let ring = &entry.rings[range.level()];
            let values = (start..end)
                .map(|point| folded(ring, point * together, together, key.series))
                .collect();
            let key = key.clone();
            SeriesValues { key, values }
        });
        let mut series: Vec<_> = series
            .filter(|one| one.values.iter().any(Option::is_some))
            .collect();
        let order = series_names();
        series.sort_by_key(|one| order.iter().position(|name| *name == one.key.series.name));
        HistoryView {
            start_ms: start * step_seconds * 1_000,
            step_ms: step_seconds * 1_000,
            series,
        }
    }

    /// Returns the values of one step of a level.
    pub fn step(&self, level: usize, step: u64) -> impl Iterator<Item = (&SeriesKey, f32)> {
        let entries = self.entries.iter();
        entries.filter_map(move |(key, entry)| Some((key, entry.rings[level].get(step)?)))
    }

    /// Returns the second after the newest recorded.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the step after the newest value of a level, or `None` without values.
    pub(crate) fn end_of(&self, level: usize) -> Option<u64> {
        let ends = self.entries.values();
        ends.filter_map(|entry| entry.rings[level].end()).max()
    }

    /// Returns the values of some steps of a level, NaN for a step without a value.
    pub(crate) fn steps(
        &self,
        level: usize,
        steps: std::ops::Range<u64>,
    ) -> impl Iterator<Item = (&SeriesKey, Vec<f32>)> {
        self.entries.iter().map(move |(key, entry)| {
            let ring = &entry.rings[level];
            let values = steps.clone().map(|step| ring.get(step).unwrap_or(f32::NAN));
            (key, values.collect())
        })
    }

    /// Makes the values of ten minutes that no file held from the steps within, and continues at `now`.
    pub(crate) fn restored(&mut self, now: u64) {
        let (steps, long) = (LEVELS[1], LEVELS[2]);
        let together = long.step_seconds / steps.step_seconds;
        let end = now / long.step_seconds;
        for (key, entry) in &mut self.entries {
            let begin = entry.rings[1]
                .end()
                .map_or(end, |end| end.saturating_sub(steps.kept).div_ceil(together));
            let begin = entry.rings[2].end().unwrap_or(0).max(begin);
            for step in begin..end {
                let value = folded(&entry.rings[1], step * together, together, key.series);
                if let Some(value) = value {
                    entry.rings[2].push(step, value, long.kept);
                }
            }
        }
        self.end = now;
    }

    /// Returns the number of series.
    pub fn series(&self) -> usize {
        self.entries.len()
    }

    /// Returns the bytes of memory that the values take.
    pub fn heap_bytes(&self) -> usize {
        let rings = self.entries.values().flat_map(|entry| &entry.rings);
        rings.map(Ring::heap_bytes).sum::<usize>() + self.entries.len() * size_of::<SeriesRings>()
    }

    /// Returns the entry of a series, or `None` if all places are taken by series that are as recent.
    fn entry(&mut self, key: SeriesKey) -> Option<&mut SeriesRings> {
        if !self.entries.contains_key(&key) && self.entries.len() >= SERIES_MAX {
            let oldest = self
                .entries
                .iter()
                .min_by_key(|(_, entry)| entry.last_second());
            let (oldest, last) = oldest.map(|(key, entry)| (key.clone(), entry.last_second()))?;
            // A series that was recorded a moment ago will be again.
            if last + LEVELS[1].step_seconds >= self.end {
                return None;
            }
            self.entries.remove(&oldest);
        }
        Some(self.entries.entry(key).or_default())
    }

    fn forget_from(&mut self, second: u64) {
        for entry in self.entries.values_mut() {
            entry.open = Default::default();
            for (ring, level) in entry.rings.iter_mut().zip(LEVELS) {
                ring.truncate(second / level.step_seconds);
            }
        }
        self.end = second;
    }
}

/// Puts steps together: to their mean, or to the highest of quantiles.
fn folded(ring: &Ring, from: u64, together: u64, series: &Series) -> Option<f32> {
    if together == 1 {
        return ring.get(from);
    }
    let values = (from..from + together).filter_map(|step| ring.get(step));
    if series.is_quantile() {
        return values.reduce(f32::max);
    }
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| {
        (sum + f64::from(value), count + 1)
    });
    (count > 0).then(|| narrow(sum / f64::from(count)))
}

/// Seven digits are kept: enough for a chart, in half the memory.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the digits after the seventh are left out"
)]
fn narrow(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests;
