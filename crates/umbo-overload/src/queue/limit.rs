//! How many requests a shard serves at the same time: a gradient limit with a probed baseline.
//!
//! After Vegas (Brakmo, Peterson 1994) and the gradient limits of Netflix' `concurrency-limits` (2018). If requests
//! take `r` times their time without a crowd, `limit / r` of them are served and the others wait inside the store. So
//! the next limit is `limit / r + √limit`. It settles a little above the number that the store does at once.
//! Departures:
//! - Service times are averaged as logarithms, each against the baseline of its operation. So a heavy tail weighs
//!   little, and another mix of operations does not look slow.
//! - A window ends when its mean is known well enough. It counts requests that began in it, while others
//!   waited: an unused limit says nothing about the store (after RFC 7661).
//! - Every large step down is a *probe* (as `ProbeRTT` of BBR, Cardwell et al. 2016), and one is taken now and then. If
//!   the service time does not follow, the store is slow and not crowded. Then its present time becomes the baseline,
//!   and the step is taken back. Limits that only compare with a minimum shrink on a slow disk (`concurrency-limits`
//!   issue 171).

use std::time::{Duration, Instant};

use umbo_types::Operation;

use super::window::{Mean, log2_nanos};
use crate::estimate::{SAMPLES_MIN, SLICE, STANDARD_ERRORS};

/// Permits at first: in calm no queue forms at the shard, and the first crowd shows within a few windows how many are
/// needed.
pub(crate) const INITIAL: u32 = 8;

/// Bounds of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitSettings {
    /// Fewest permits, at least 1: so few requests never count as a crowd. Default 3.
    pub min: u32,
    /// Most permits. Default 1,024.
    pub max: u32,
    /// Permits at first. Default 8.
    pub initial: u32,
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            min: 3,
            max: 1_024,
            initial: INITIAL,
        }
    }
}

/// Fewest samples of a window that ends for another reason: its time is over, or requests clearly take more than twice
/// their time without a crowd.
const SAMPLES_FEW: u32 = 8;
/// Standard error of the mean logarithm (base 2) at which a window ends: 11 %.
const ERROR_MAX: f64 = 0.15;
/// Longest window: two slices, like the window of service times. In a longer time the store may change, or stand still.
const WINDOW_MAX: Duration = SLICE.saturating_mul(2);
/// Smallest part of the limit that one step leaves.
const STEP_MIN: f64 = 0.5;
/// Windows between two probes without a reason: one window in so many runs at a lower limit.
const PROBE_EVERY: u32 = 24;
/// A step down to at most this part is a probe.
const PROBE: f64 = 0.75;
/// Part of a probe that the service time has to follow for the store to be crowded.
const FOLLOWED: f64 = 0.5;
/// Most requests that the baseline of an operation is a mean of, while there is room. They are more than in other
/// means, because a baseline that follows a crowd lets the crowd grow.
const BASELINE_SAMPLES: u32 = 64;

/// The mean logarithm of an operation's service time without a crowd.
#[derive(Debug, Clone, Copy, Default)]
struct Baseline {
    log2: f64,
    samples: u32,
}

impl Baseline {
    fn learn(&mut self, log2: f64) {
        self.samples = self.samples.saturating_add(1);
        self.log2 += (log2 - self.log2) / f64::from(self.samples.min(BASELINE_SAMPLES));
    }
}

/// A step down whose effect is being measured.
#[derive(Debug, Clone, Copy)]
struct Probe {
    from: u32,
    /// Mean logarithm before the step.
    before: f64,
    /// Whether the limit was too high by the baseline; if not, the probe was due.
    has_reason: bool,
}

/// The limit of one shard.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit {
    settings: LimitSettings,
    permits: u32,
    baselines: [Baseline; Operation::ALL.len()],
    window: Mean,
    since: Option<Instant>,
    /// Requests that began and ended in this window before it started to count.
    skipped: u32,
    probe: Option<Probe>,
    windows_to_probe: u32,
}

impl ConcurrencyLimit {
    /// Makes a limit that has learned nothing. Raises `min` to at least 1, and `max` to at least `min`.
    pub(crate) fn new(settings: LimitSettings) -> Self {
        let min = settings.min.max(1);
        let max = settings.max.max(min);
        Self {
            permits: settings.initial.clamp(min, max),
            settings: LimitSettings {
                min,
                max,
                ..settings
            },
            baselines: Default::default(),
            window: Mean::default(),
            since: None,
            skipped: 0,
            probe: None,
            windows_to_probe: 1,
        }
    }

    /// Returns the permits there are now.
    pub(crate) const fn permits(&self) -> u32 {
        self.permits
    }

    /// Sets a limit that does not learn, at least 1.
    pub(crate) fn set(&mut self, permits: u32) {
        self.permits = permits.max(1);
        (self.settings.min, self.settings.max) = (self.permits, self.permits);
    }

    /// Learns from a request that ended while there was room.
    pub(crate) fn calm(&mut self, operation: Operation, service_time: Duration) {
        self.baselines[operation as usize].learn(log2_nanos(service_time));
    }

    /// Learns from a request that ended while others waited.
    pub(crate) fn full(&mut self, operation: Operation, service_time: Duration, now: Instant) {
        if self.settings.min == self.settings.max {
            return;
        }
        let since = *self.since.get_or_insert(now);
        let age = now.saturating_duration_since(since);
        let is_over = age > WINDOW_MAX;
        if is_over && self.window.count() < SAMPLES_FEW {
            self.begin_window(now);
            return;
        }
        if service_time > age {
            return;
        }
        // The shortest requests end first, because a window begins with all that the limit lets in. So they are
        // skipped.
        self.skipped += 1;
        if self.skipped <= self.permits {
            return;
        }
        let baseline = &mut self.baselines[operation as usize];
        let log2 = log2_nanos(service_time);
        if baseline.samples < SAMPLES_MIN {
            baseline.learn(log2);
            return;
        }
        self.window.add(log2 - baseline.log2);
        if is_over || self.is_known() {
            self.step();
            self.begin_window(now);
        }
    }

    fn is_known(&self) -> bool {
        let (mean, error) = (self.window.mean(), self.window.error());
        let least = mean - STANDARD_ERRORS * error;
        let is_clear = self.probe.is_none() && (-least).exp2() < STEP_MIN;
        match self.window.count() {
            ..SAMPLES_FEW => false,
            SAMPLES_FEW..SAMPLES_MIN => is_clear,
            _ => is_clear || error <= ERROR_MAX,
        }
    }

    fn begin_window(&mut self, now: Instant) {
        self.window = Mean::default();
        self.skipped = 0;
        self.since = Some(now);
    }

    /// Sets the limit by what the window has shown.
    fn step(&mut self) {
        let mut inflation = self.window.mean();
        if let Some(probe) = self.probe.take() {
            let way = (f64::from(probe.from) / f64::from(self.permits)).log2();
            let followed = (probe.before - inflation) / way;
            if followed < FOLLOWED || !probe.has_reason {
                self.permits = probe.from;
            }
            if followed < FOLLOWED {
                // Slow, not crowded.
                self.shift(inflation);
                self.windows_to_probe = PROBE_EVERY;
                return;
            }
            if !probe.has_reason {
                self.shift(inflation.min(0.0));
                return;
            }
        }
        if self.permits == self.settings.min && inflation > 0.0 {
            // So few requests are not a crowd.
            self.shift(inflation);
            inflation = 0.0;
        }
        if inflation < 0.0 {
            self.shift(inflation / 2.0);
            inflation = 0.0;
        }
        let permits = f64::from(self.permits);
        let part = (-inflation).exp2();
        let next = permits * part + permits.sqrt();
        self.windows_to_probe = self.windows_to_probe.saturating_sub(1);
        let is_due = self.windows_to_probe == 0;
        let next = if is_due {
            next.min(permits * STEP_MIN)
        } else {
            next
        };
        let next = whole(next.max(permits * STEP_MIN));
        let next = next.clamp(self.settings.min, self.settings.max);
        if f64::from(next) <= permits * PROBE && next < self.permits {
            self.probe = Some(Probe {
                from: self.permits,
                before: inflation,
                has_reason: !is_due,
            });
        }
        if is_due {
            self.windows_to_probe = PROBE_EVERY;
        }
        self.permits = next;
    }

    /// Moves the baselines of all operations.
    fn shift(&mut self, log2: f64) {
        for baseline in &mut self.baselines {
            baseline.log2 += log2;
        }
    }
}

#[expect(clippy::cast_sign_loss)] // a limit is not negative
fn whole(permits: f64) -> u32 {
    permits.round() as u32
}

#[cfg(test)]
#[path = "limit_tests.rs"]
#[expect(clippy::cast_precision_loss, clippy::cast_sign_loss)]
// of times and counts, all of them small
mod tests;
