//! The latency ratio of one shard and class: its normal p95 over the p95 of the moment.
//!
//! About 1 is healthy. It engages where the ratio is below 0.33 for two ticks, which the samples of
//! the last 0.7 s have to say, or of the last 1.6 s where those are too few; and it is not
//! believed where a short pause ([`Tallies`]) or chance ([`Usual`]) explains it. It
//! releases where the ratio is above 0.7 for four ticks, or hardly anything is asked any more.
//!
//! Everything is judged by the tick, in the order in which ticks come. What is shared with those who
//! record is in [`Slices`].

use std::time::Duration;

use super::baseline::Baseline;
use super::scale::Place;
use super::settings::{SignalSettings, TICK};
use super::slices::Slices;
use super::tally::{Tallies, Tally};
use super::usual::Usual;

/// Shortest slice, in milliseconds.
const SLICE_MS_MIN: u32 = 1_000;
/// Longest slice: one that has too few samples is lengthened until then.
const SLICE_MS_MAX: u32 = 5_000;
/// Samples without which a slice says nothing of what is normal.
const SLICE_SAMPLES_MIN: u32 = 100;
/// The slice under way stands for the moment alone after so long with so many samples, or at once
/// with ten times as many.
const FRESH_MS: u16 = 300;
const FRESH_SAMPLES_MIN: u32 = 100;
/// Ticks that a late one counts for at most.
const LATE_TICKS_MAX: u64 = 16;

/// Memory of one shard and class, in bytes. The bound is part of the contract of the crate.
pub(crate) const CLASS_BYTES: usize = size_of::<Slices>() + size_of::<Ratio>();
const _: () = assert!(CLASS_BYTES <= 1_024);

/// Where the ratio lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Band {
    /// Below the ratio that engages.
    Trouble,
    /// Below the ratio that holds.
    Hold,
    /// Not below it.
    Mending,
    /// Above the ratio that releases.
    Clear,
    /// Above it for so many ticks that the overload is over, unless the penalty is what helps.
    Over,
}

/// What time it is for a ratio.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// Since the tick before.
    pub(crate) elapsed_ms: u64,
    /// For which the shard has been calm, all together.
    pub(crate) calm_ms: u64,
    /// Whether the shard is not calm.
    pub(crate) is_frozen: bool,
    /// Whether somebody is penalised: what is engaged is not released before everybody pays the
    /// usual price again and the ratio stays high.
    pub(crate) is_penalised: bool,
    /// For how long the store has held the oldest request of the shard.
    pub(crate) oldest: Duration,
}

/// What is read off for people.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reading {
    pub(crate) short: Option<Place>,
    pub(crate) short_samples: u32,
    pub(crate) short_ms: u64,
    pub(crate) long: Option<Place>,
    /// Long over fresh; none where either is unknown.
    pub(crate) ratio: Option<f64>,
}

/// The judgement of one shard and class.
#[derive(Debug)]
pub(crate) struct Ratio {
    baseline: Baseline,
    tallies: Tallies,
    usual: Usual,
    /// Thresholds of the slice under way, words of [`Place`], and the baseline they belong to, which
    /// is at least what makes the shortest p95 of an overload.
    thresholds: [u16; 3],
    normal: u16,
    /// What was counted of the slice under way up to the last tick.
    counted: Tally,
    slice_ms: u16,
    slice_before_ms: u16,
    trouble_ticks: u8,
    clear_ticks: u8,
    is_engaged: bool,
}

impl Ratio {
    /// Knows nothing yet.
    pub(crate) const fn new() -> Self {
        Self {
            baseline: Baseline::new(),
            tallies: Tallies::new(),
            usual: Usual::new(),
            thresholds: [0; 3],
            normal: 0,
            counted: Tally {
                samples: 0,
                above: [0; 3],
            },
            slice_ms: 0,
            slice_before_ms: 0,
            trouble_ticks: 0,
            clear_ticks: 0,
            is_engaged: false,
        }
    }

    /// Goes on by a tick. Returns where the ratio lies while it is engaged.
    pub(crate) fn tick(
        &mut self,
        slices: &Slices,
        moment: &Moment,
        settings: &SignalSettings,
    ) -> Option<Band> {
        let elapsed_ms = moment.elapsed_ms.min(u64::from(u16::MAX)) as u16;
        self.slice_ms = self.slice_ms.saturating_add(elapsed_ms);
        if let Some(tally) = self.count(slices) {
            let tick_ms = TICK.as_millis() as u64;
            let ticks = ((moment.elapsed_ms + tick_ms / 2) / tick_ms).clamp(1, LATE_TICKS_MAX);
            for part in 0..ticks as u32 {
                let part = tally.part(part, ticks as u32);
                self.tallies.push(part);
                self.judge(moment, settings);
                if !moment.is_frozen {
                    self.usual.note(&part, self.normal_nanos());
                }
            }
        }
        self.end_slice_if_due(slices, moment, settings);
        self.is_engaged.then(|| self.band(moment, settings))
    }

    /// Says whether the ratio is engaged.
    pub(crate) const fn is_engaged(&self) -> bool {
        self.is_engaged
    }

    /// Returns what there is to be read.
    pub(crate) fn reading(&self, slices: &Slices) -> Reading {
        let window = slices.window();
        let short = window.p95();
        let long = self.baseline.value();
        let current = slices.current();
        let samples_min = if self.slice_ms < FRESH_MS {
            10 * FRESH_SAMPLES_MIN
        } else {
            FRESH_SAMPLES_MIN
        };
        let is_fresh = current.samples() >= samples_min;
        let fresh = if is_fresh { current.p95() } else { short };
        Reading {
            short,
            short_samples: window.samples(),
            short_ms: u64::from(self.slice_ms) + u64::from(self.slice_before_ms),
            long,
            ratio: long.zip(fresh).map(|(long, fresh)| {
                let ratio = long.nanos() / fresh.nanos();
                // What is faster than anybody minds is no worse than usual.
                ratio.max((self.normal_nanos() / fresh.nanos()).min(1.0))
            }),
        }
    }

    /// Counts what has come since the last tick; none where there is nothing to compare it with.
    fn count(&mut self, slices: &Slices) -> Option<Tally> {
        let [engage, hold, release] = self.thresholds;
        let places = [
            Place::of_word(engage)?,
            Place::of_word(hold)?,
            Place::of_word(release)?,
        ];
        let (above, samples) = slices.current().above(places);
        let before = std::mem::replace(&mut self.counted, Tally { samples, above });
        let [engage, hold, release] = above;
        let above_before = before.above;
        Some(Tally {
            samples: samples.saturating_sub(before.samples),
            above: [
                engage.saturating_sub(above_before[0]),
                hold.saturating_sub(above_before[1]),
                release.saturating_sub(above_before[2]),
            ],
        })
    }

    fn judge(&mut self, moment: &Moment, settings: &SignalSettings) {
        if self.is_engaged {
            let is_clear = self.band(moment, settings) >= Band::Clear;
            self.clear_ticks = if is_clear {
                self.clear_ticks.saturating_add(1)
            } else {
                0
            };
            if self.clear_ticks >= settings.release_ticks && !moment.is_penalised {
                self.is_engaged = false;
                self.trouble_ticks = 0;
                // The longer window still holds the overload that is over.
                self.tallies = Tallies::new();
            }
        } else {
            let usual = &self.usual;
            let is_trouble = self.tallies.is_trouble(|tally| usual.surprise(tally));
            self.trouble_ticks = if is_trouble {
                self.trouble_ticks + 1
            } else {
                0
            };
            if self.trouble_ticks >= settings.engage_ticks {
                self.is_engaged = true;
                self.clear_ticks = 0;
            }
        }
    }

    fn band(&self, moment: &Moment, settings: &SignalSettings) -> Band {
        match self.tallies.recovery() {
            Some(window) if window.is_p95_above(Tally::ENGAGE) => Band::Trouble,
            Some(window) if window.is_p95_above(Tally::HOLD) => Band::Hold,
            Some(window) if window.is_p95_above(Tally::RELEASE) => Band::Mending,
            // Hardly anything is answered: the store is stuck, or hardly anything is asked.
            None if self.is_stuck(moment, settings) => Band::Trouble,
            _ if self.clear_ticks >= settings.release_ticks => Band::Over,
            Some(_) | None => Band::Clear,
        }
    }

    #[expect(clippy::cast_precision_loss)] // an age that is compared
    fn is_stuck(&self, moment: &Moment, settings: &SignalSettings) -> bool {
        moment.oldest.as_nanos() as f64 > self.normal_nanos() / settings.engage_below
    }

    fn end_slice_if_due(&mut self, slices: &Slices, moment: &Moment, settings: &SignalSettings) {
        let slice_ms = u32::from(self.slice_ms);
        if slice_ms < SLICE_MS_MIN && !slices.is_full() {
            return;
        }
        let samples = slices.current().samples();
        if samples < SLICE_SAMPLES_MIN && slice_ms < SLICE_MS_MAX {
            return;
        }
        if samples >= SLICE_SAMPLES_MIN
            && !moment.is_frozen
            && let Some(p95) = slices.current().p95()
        {
            self.baseline.note(p95);
        }
        self.baseline.advance(moment.calm_ms);
        slices.end_slice();
        self.counted = Tally::default();
        self.slice_before_ms = std::mem::take(&mut self.slice_ms);
        self.set_thresholds(settings);
    }

    #[expect(clippy::cast_precision_loss)] // far below 2⁵³
    fn set_thresholds(&mut self, settings: &SignalSettings) {
        let nanos_min = settings.p95_min.as_nanos() as f64 * settings.engage_below;
        let normal = self.baseline.value();
        let normal = normal.map(|normal| normal.max(Place::of_nanos(nanos_min)));
        self.normal = normal.map_or(0, Place::word);
        let ratios = [
            settings.engage_below,
            settings.hold_below,
            settings.release_above,
        ];
        self.thresholds = ratios
            .map(|ratio| normal.map_or(0, |normal| Place::of_nanos(normal.nanos() / ratio).word()));
    }

    fn normal_nanos(&self) -> f64 {
        Place::of_word(self.normal).map_or(f64::MAX, Place::nanos)
    }
}
