//! The latency ratio of one shard and class: its normal p95 over the p95 of the moment.
//!
//! About 1 is healthy. The baseline is a histogram of the last minutes without pressure. Samples of the moment are
//! judged by *windows* of at least 0.2 s and 16 samples. A window is slow if at least 2.5 % of its samples exceed three
//! times the normal p95, and chance does not explain so many. Chance is judged by the bound of Chernoff (1952) for a
//! Poisson count, with a mean from the baseline. Several slow windows in a row are an overload if 5 % of all their
//! samples exceed three times the normal p95. So a pause is not an overload, and one window that chance made better
//! does not hide an overload. Several windows that are not slow end it.

use std::time::Duration;

use super::log_histogram::{LogHistogram, P95_ONE_IN, P99_ONE_IN, Place};
use super::penalty::EXPONENT_MAX;
use super::settings::PressureSettings;
use super::time_slices::TimeSlices;
use crate::estimate::{SAMPLES_MIN, SLICE, STANDARD_ERRORS};

/// Length of a slice, in milliseconds.
const SLICE_MS: u32 = SLICE.as_millis() as u32;
/// Fewest samples of a slow window: four such windows together tell the p95, and the improbability of each is known.
const SLOW_SAMPLES_MIN: u32 = 16;
/// Shortest window, in milliseconds: [`WINDOWS`] of them last longer than the longest pause that is not an overload.
const WINDOW_MS_MIN: u32 = 200;
/// Longest window, in milliseconds: the length of the shortest windows that engage, taken together. A window with too
/// few samples says nothing.
const WINDOW_MS_MAX: u32 = WINDOWS as u32 * WINDOW_MS_MIN;
/// Windows in a row that begin an overload, or that end it.
const WINDOWS: u8 = 4;
/// Least surprise of a slow window, as the negative natural logarithm of its probability: four such windows are one in
/// a hundred million.
const SIGNIFICANCE: f64 = 4.5;
/// Greatest ratio of a measured time to the true time: the width of a bucket.
const SCATTER: f64 = 1.125;
/// Part of the baseline that a slice leaves: a mean age of two minutes.
const KEPT: f32 = 1.0 - 1.0 / 120.0;
/// Fewest slices of a baseline.
const BASELINE_SLICES_MIN: u32 = 10;
/// Fewest samples of a baseline: ten of them are above the p95.
const BASELINE_SAMPLES_MIN: f64 = 200.0;

/// Memory of one shard and class, in bytes.
pub(crate) const CLASS_BYTES: usize = size_of::<TimeSlices>() + size_of::<LatencyState>();

/// A time that samples are compared with.
#[derive(Debug, Clone, Copy)]
enum Threshold {
    Engage,
    Release,
}

/// Number of samples, and of samples above each threshold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WindowCounts {
    samples: u32,
    above: [u32; 2],
}

impl WindowCounts {
    /// Returns whether the p95 exceeds a threshold.
    const fn is_p95_above(&self, threshold: Threshold) -> bool {
        self.above[threshold as usize] > self.samples / P95_ONE_IN
    }

    /// Returns whether half as many samples exceed a threshold as make the p95 exceed it.
    const fn is_nearly_above(&self, threshold: Threshold) -> bool {
        self.above[threshold as usize] > self.samples / P95_ONE_IN / 2
    }

    fn since(&self, before: &Self) -> Self {
        let less = |now: u32, before: u32| now.saturating_sub(before);
        Self {
            samples: less(self.samples, before.samples),
            above: std::array::from_fn(|at| less(self.above[at], before.above[at])),
        }
    }

    fn add(&mut self, more: &Self) {
        self.samples += more.samples;
        for (above, more) in self.above.iter_mut().zip(more.above) {
            *above += more;
        }
    }
}

/// The normal service times.
#[derive(Debug)]
struct Baseline {
    times: LogHistogram,
    slices: u32,
    /// The normal p95; 0 while it is not known, else the word of a [`Place`].
    p95: u16,
    /// Normal share of samples above the threshold that engages. It is an upper bound, so that it is high while little
    /// is known.
    usual_above: f64,
}

impl Baseline {
    const fn new() -> Self {
        Self {
            times: LogHistogram::new(),
            slices: 0,
            p95: 0,
            usual_above: 0.0,
        }
    }

    fn learn(&mut self, slices: &TimeSlices) {
        let slice = slices.current();
        self.times.add(KEPT, |bucket| slice.of(bucket));
        self.slices = self.slices.saturating_add(1);
        let is_known =
            self.slices >= BASELINE_SLICES_MIN && self.times.samples() >= BASELINE_SAMPLES_MIN;
        let p95 = self.times.exceeded_by(P95_ONE_IN);
        let p95 = p95.filter(|_| is_known);
        self.p95 = p95.map_or(0, Place::word);
    }

    fn p95(&self) -> Option<Place> {
        Place::of_word(self.p95)
    }

    /// Returns the normal p99, or `None` while it is not known.
    fn p99(&self) -> Option<Place> {
        self.p95()?;
        self.times.exceeded_by(P99_ONE_IN)
    }

    /// Returns how surprising a window is: the negative logarithm of a bound of its probability.
    fn surprise(&self, window: &WindowCounts) -> f64 {
        let expected = self.usual_above * f64::from(window.samples);
        let seen = f64::from(window.above[Threshold::Engage as usize]);
        if seen <= expected {
            return 0.0;
        }
        seen * (seen / expected).ln() - (seen - expected)
    }
}

/// The latency of a class, for people.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LatencyReport {
    pub(crate) short: Option<Place>,
    pub(crate) short_samples: u32,
    pub(crate) short_ms: u32,
    pub(crate) long: Option<Place>,
    /// Long over short, or `None` if either is unknown.
    pub(crate) ratio: Option<f64>,
}

/// The judgement of one shard and class; only the tick uses it.
#[derive(Debug)]
pub(crate) struct LatencyState {
    baseline: Baseline,
    /// Thresholds of the slice under way, as words of [`Place`]; 0 if they are not known.
    thresholds: [u16; 2],
    /// The p95 that counts as normal, as a word too.
    normal: u16,
    /// Counts of the slice under way, up to the last tick.
    counted: WindowCounts,
    window: WindowCounts,
    window_ms: u32,
    slice_ms: u32,
    slice_before_ms: u32,
    /// Number of windows in a row that contradict `is_engaged`, and their sum.
    windows: u8,
    contrary: WindowCounts,
    /// Whether a window of this slice was slow: then the baseline does not learn from the slice.
    is_suspect: bool,
    is_engaged: bool,
}

impl LatencyState {
    /// Knows nothing yet.
    pub(crate) const fn new() -> Self {
        let none = WindowCounts {
            samples: 0,
            above: [0; 2],
        };
        Self {
            baseline: Baseline::new(),
            thresholds: [0; 2],
            normal: 0,
            counted: none,
            window: none,
            window_ms: 0,
            slice_ms: 0,
            slice_before_ms: 0,
            windows: 0,
            contrary: none,
            is_suspect: false,
            is_engaged: false,
        }
    }

    /// Advances by a tick. `oldest` is for how long the store has held its oldest request. While `is_frozen` the
    /// baseline does not learn. Returns the pressure, from 0 to 1.
    pub(crate) fn tick(
        &mut self,
        slices: &TimeSlices,
        elapsed_ms: u32,
        (oldest, is_frozen): (Duration, bool),
        settings: &PressureSettings,
    ) -> f64 {
        let counts = self.count(slices);
        let news = counts.since(&self.counted);
        self.counted = counts;
        self.window.add(&news);
        self.window_ms = self.window_ms.saturating_add(elapsed_ms);
        self.slice_ms = self.slice_ms.saturating_add(elapsed_ms);
        let enough = if self.is_engaged {
            SAMPLES_MIN
        } else {
            SLOW_SAMPLES_MIN
        };
        let has_samples = self.window.samples >= enough;
        if self.window_ms >= WINDOW_MS_MIN && has_samples || self.window_ms >= WINDOW_MS_MAX {
            let window = std::mem::take(&mut self.window);
            self.window_ms = 0;
            self.judge(&window, has_samples, oldest, settings);
        }
        if self.slice_ms >= SLICE_MS || slices.is_full() {
            self.end_slice(slices, is_frozen, settings);
        }
        if self.is_engaged {
            let ratio = self.reading(slices).ratio.unwrap_or(1.0);
            // The pressure grows from the ratio at which the overload would end.
            pressure_of(settings.release_above / ratio.max(f64::MIN_POSITIVE)).max(f64::EPSILON)
        } else {
            0.0
        }
    }

    /// Returns whether the class is overloaded by its latency ratio.
    pub(crate) const fn is_engaged(&self) -> bool {
        self.is_engaged
    }

    /// Returns the normal p99, or `None` while it is not known.
    pub(crate) fn normal_p99(&self) -> Option<Duration> {
        self.baseline.p99().map(Place::time)
    }

    /// Returns whether the p95 of the moment, and the age of the oldest request, are within the normal p95 plus the
    /// time of a heavy request.
    pub(crate) fn is_within(&self, slices: &TimeSlices, heavy: Duration, oldest: Duration) -> bool {
        let most = (self.normal_nanos() + heavy.as_secs_f64() * 1e9) * SCATTER;
        let reading = self.reading(slices);
        let p95 = reading.ratio.map(|ratio| self.normal_nanos() / ratio);
        p95.is_some_and(|p95| p95 <= most) && oldest.as_secs_f64() * 1e9 <= most
    }

    /// Returns the latency of the moment.
    pub(crate) fn reading(&self, slices: &TimeSlices) -> LatencyReport {
        let window = slices.window();
        let short = window.p95();
        let long = self.baseline.p95();
        let current = slices.current();
        let fresh = if current.samples() >= SAMPLES_MIN {
            current.p95()
        } else {
            short
        };
        let ratio = |(long, fresh): (Place, Place)| {
            let ratio = long.nanos() / fresh.nanos();
            // Below `p95_min` a time is no worse than usual.
            ratio.max((self.normal_nanos() / fresh.nanos()).min(1.0))
        };
        LatencyReport {
            short,
            short_samples: window.samples(),
            short_ms: self.slice_ms + self.slice_before_ms,
            long,
            ratio: long.zip(fresh).map(ratio),
        }
    }

    fn count(&self, slices: &TimeSlices) -> WindowCounts {
        let [Some(engage), Some(release)] = self.thresholds.map(Place::of_word) else {
            return WindowCounts::default();
        };
        let (above, samples) = slices.current().above([engage, release]);
        WindowCounts { samples, above }
    }

    fn judge(
        &mut self,
        window: &WindowCounts,
        has_samples: bool,
        oldest: Duration,
        settings: &PressureSettings,
    ) {
        let is_contrary = if self.is_engaged {
            let is_slow = has_samples && window.is_p95_above(Threshold::Release);
            !is_slow && !self.is_stuck(oldest, settings)
        } else {
            let is_slow = has_samples && window.is_nearly_above(Threshold::Engage);
            is_slow && self.baseline.surprise(window) >= SIGNIFICANCE
        };
        if !is_contrary {
            (self.windows, self.contrary) = (0, WindowCounts::default());
            return;
        }
        self.is_suspect |= !self.is_engaged && window.is_p95_above(Threshold::Engage);
        self.windows += 1;
        self.contrary.add(window);
        if self.windows >= WINDOWS {
            let all = std::mem::take(&mut self.contrary);
            self.is_engaged = !self.is_engaged && all.is_p95_above(Threshold::Engage);
            self.windows = 0;
        }
    }

    /// Returns whether the store has held a request for longer than the threshold that engages. If nothing is answered
    /// there are no samples, and the overload is not over.
    #[expect(clippy::cast_precision_loss)] // an age that is compared
    fn is_stuck(&self, oldest: Duration, settings: &PressureSettings) -> bool {
        oldest.as_nanos() as f64 > self.normal_nanos() / settings.engage_below
    }

    fn end_slice(&mut self, slices: &TimeSlices, is_frozen: bool, settings: &PressureSettings) {
        if !is_frozen && !self.is_suspect {
            self.baseline.learn(slices);
        }
        self.is_suspect = false;
        slices.end_slice();
        self.counted = WindowCounts::default();
        self.slice_before_ms = std::mem::take(&mut self.slice_ms);
        self.set_thresholds(settings);
    }

    #[expect(clippy::cast_precision_loss)] // far below 2⁵³
    fn set_thresholds(&mut self, settings: &PressureSettings) {
        let Some(normal) = self.baseline.p95() else {
            (self.thresholds, self.normal) = ([0; 2], 0);
            return;
        };
        let least = settings.p95_min.as_nanos() as f64 * settings.engage_below;
        let nanos = normal.nanos().max(least);
        self.normal = Place::of_nanos(nanos).word();
        let threshold = |ratio: f64| Place::of_nanos(nanos / ratio);
        let engage = threshold(settings.engage_below);
        let above = self.baseline.times.above(engage);
        let samples = self.baseline.times.samples().max(1.0);
        // The upper bound of a Poisson count.
        let root = (above + 1.0).sqrt() + STANDARD_ERRORS / 2.0;
        self.baseline.usual_above = root * root / samples;
        self.thresholds = [engage, threshold(settings.release_above)].map(Place::word);
    }

    /// Returns the p95 that counts as normal, or infinity while it is not known.
    fn normal_nanos(&self) -> f64 {
        Place::of_word(self.normal).map_or(f64::INFINITY, Place::nanos)
    }
}

/// Returns the pressure of a value that is so many times its limit: 0 at 1 time, and 1 at the highest price multiplier.
pub(crate) fn pressure_of(times: f64) -> f64 {
    (times.max(1.0).log2() / f64::from(EXPONENT_MAX)).min(1.0)
}
