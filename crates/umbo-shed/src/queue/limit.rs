//! How many requests a shard serves at the same time: a limit that looks for the knee.
//!
//! Below the knee more in flight means more throughput at the same service time; beyond it the same
//! throughput at a longer one (Little 1961), so that the power of Kleinrock (1979), throughput over
//! time, is highest there. So the limit *tries*: it moves, and looks whether the service time
//! follows. If it follows a step up, or does not follow a step down, the step is taken back. That
//! distinguishes a store that is crowded from one that is slow, which limits that only compare with a
//! minimum do not (Netflix `concurrency-limits` issue 171): a slow disk costs no slots.
//!
//! A limit that has learned nothing begins with what calm needs (see `usage`), and doubles, or steps down
//! at once (see `start`). Later on the unloaded service time, learned while there is room (see `unloaded`),
//! is what tells where to try first: at three times of it, the first step is to a third. Departures from Vegas (Brakmo, Peterson 1994) and gradient limits:
//! - Service times are averaged as logarithms, each against the usual one of its operation. So one slow
//!   mode of two, or a heavy tail, weighs little, and another mix of operations is no slowness.
//! - A window ends when its mean is known well enough, not after a time; what is not known well
//!   enough moves nothing. So the limit stands still at low traffic.
//! - Only requests that began in the window count, and a standstill begins a new one. So a store that
//!   slept wakes to the limit that it had.
//! - It is learned from only while the limit binds, so it grows only when it is used.

use std::time::{Duration, Instant};

use umbo_types::Operation;

use super::start::{HEADROOM as START_HEADROOM, Next, Start};
use super::unloaded::Unloaded;
use super::usage::Usage;
use super::window::Mean;

/// Bounds of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitSettings {
    /// Fewest slots, at least 1. Default 2.
    pub min: u32,
    /// Most slots. Default 1,024.
    pub max: u32,
    /// Slots at first. Default 16: too few for a while cost less than too many, but in calm a queue is
    /// not to form at the gate. After a second they are as many as calm needs, if those are fewer, and
    /// half of these at least. The first crowd tells within a few service times whether they are to
    /// be twice as many, or fewer.
    pub initial: u32,
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            min: 2,
            max: 1_024,
            initial: 16,
        }
    }
}

/// Fewest samples of a window.
const SAMPLES_MIN: u32 = 32;
/// Error of a mean logarithm (base 2) at which it is known well enough: 7 %.
const ERROR_MAX: f64 = 0.1;
/// Longest window; what is not known then is not known.
const WINDOW_MAX: Duration = Duration::from_secs(10);
/// Longest window with a limit on trial.
const TRIAL_MAX: Duration = Duration::from_secs(1);
/// Mean logarithm (base 2) above the unloaded one that calls for a step down: 1.27 times.
const INFLATION: f64 = 0.35;
/// How far the service time has to follow a step up, of all the way, for it to be taken back. More
/// than half, because too few slots cost throughput and a few too many only a little time.
const FOLLOWED_UP: f64 = 0.75;
/// How far it has to follow a step down for that to stay.
const FOLLOWED_DOWN: f64 = 0.85;
/// Errors that tell what followed from what did not, before it is known well enough.
const CLEAR: f64 = 2.0;
/// Error of that share at which it is known well enough.
const ERROR_TRIAL: f64 = 0.2;
/// What a step up multiplies by.
const STEP_UP: f64 = 1.5;
/// What every other one multiplies by: with hardly too few slots, the time follows a large step up most
/// of its way, and a small one not.
const STEP_UP_SMALL: f64 = 1.25;
/// What a step down without a reason multiplies by.
const STEP_DOWN: f64 = 0.7;
/// Of the steps without a reason, one in so many goes down.
const DOWN_EVERY: u32 = 6;
/// What a step down leaves of the limit, at least.
const STEP_DOWN_MOST: f64 = 0.125;
/// Slots above what the unloaded service time says, in parts of it.
const HEADROOM: f64 = 1.2;
/// Windows until the first step without a reason, once a knee has been found.
const FOUND_PAUSE: u32 = 4;
/// Most windows between two steps without a reason.
const PAUSE_MAX: u32 = 24;
/// Nothing ends for this long, and for 16 times what it usually takes until the next one ends: the
/// store stands still.
const STANDSTILL: Duration = Duration::from_millis(100);

/// A step that may be taken back.
#[derive(Debug, Clone, Copy)]
struct Trial {
    from: u32,
    /// What was measured before it.
    before: Mean,
    /// Mean time between two ends before it, in seconds.
    gap: f64,
}

/// The limit of one shard.
#[derive(Debug)]
pub(crate) struct Limit {
    settings: LimitSettings,
    slots: u32,
    unloaded: Unloaded,
    usage: Usage,
    window: Mean,
    window_since: Option<Instant>,
    /// When the limit changed, or the store woke: what began before is not learned from.
    changed_at: Option<Instant>,
    ended_at: Option<Instant>,
    /// Mean time between two ends, in seconds.
    gap: f64,
    /// Where nothing has been found yet.
    start: Option<Start>,
    trial: Option<Trial>,
    /// How many windows before this one called for a step down.
    inflated: u32,
    pause: u32,
    windows_left: u32,
    /// Steps without a reason so far.
    probes: u32,
}

impl Limit {
    /// Makes a limit that has learned nothing. `max` is at least `min`, and that at least 1.
    pub(crate) fn new(settings: LimitSettings) -> Self {
        let min = settings.min.max(1);
        let settings = LimitSettings {
            min,
            max: settings.max.max(min),
            initial: settings.initial,
        };
        Self {
            slots: settings.initial.clamp(min, settings.max),
            settings,
            unloaded: Unloaded::default(),
            usage: Usage::default(),
            window: Mean::default(),
            window_since: None,
            changed_at: None,
            ended_at: None,
            gap: 0.0,
            start: Some(Start::default()),
            trial: None,
            inflated: 0,
            pause: 1,
            windows_left: 2,
            probes: 0,
        }
    }

    /// Returns the slots there are now.
    pub(crate) const fn slots(&self) -> u32 {
        self.slots
    }

    /// Learns from a request that ended while there was room.
    pub(crate) fn calm(&mut self, operation: Operation, service_time: Duration) {
        self.unloaded.learn(operation, service_time);
    }

    /// Takes notice of how many calm has in flight. Until there has been a crowd, there are as many slots
    /// as that needs; no more than at first, and no fewer than half of that.
    pub(crate) fn use_in_calm(&mut self, in_flight: u32, now: Instant) {
        self.usage.add(in_flight, now);
        let is_first = self.start.as_ref().is_some_and(Start::is_first);
        if is_first
            && self.unloaded.is_experienced()
            && let Some(enough) = self.usage.enough()
        {
            let LimitSettings { min, max, initial } = self.settings;
            let initial = initial.clamp(min, max);
            self.slots = enough.clamp((initial / 2).max(min), initial);
        }
    }

    /// Learns from a request that ended while others waited.
    pub(crate) fn full(&mut self, operation: Operation, service_time: Duration, now: Instant) {
        self.notice_gap(service_time, now);
        if self.window_since.is_none() {
            // The crowd is only forming.
            self.changed_at = Some(now);
        }
        let since = *self.window_since.get_or_insert(now);
        self.suspect(operation, service_time, now);
        let Some(began) = now.checked_sub(service_time) else {
            return;
        };
        let is_later = |start: &Start| !start.is_of_round(began);
        if self.changed_at.is_some_and(|at| began < at) || self.start.as_ref().is_some_and(is_later)
        {
            return;
        }
        let is_starting = self.start.is_some();
        let sample = self
            .unloaded
            .over_usual(operation, service_time, is_starting);
        let Some(sample) = sample else { return };
        self.window.add(sample);
        if let Some(start) = self.start {
            self.begin(start, now);
            return;
        }
        let open_for = now.saturating_duration_since(since);
        match self.trial {
            _ if self.window.count() < self.samples_min() && open_for < TRIAL_MAX => {}
            Some(trial) => self.judge(trial, open_for, now),
            None => self.look(open_for, now),
        }
    }

    /// Takes slots away before the first round is over, where those who end tell enough.
    fn suspect(&mut self, operation: Operation, service_time: Duration, now: Instant) {
        let inflation = self.unloaded.inflation(operation, service_time);
        let (Some(start), Some(inflation)) = (&mut self.start, inflation) else {
            return;
        };
        if let Some(slots) = start.suspect(inflation, self.slots, now) {
            let share = slots / f64::from(self.slots);
            self.slots = if share < 1.0 {
                self.fewer(share).max(self.settings.min)
            } else {
                rounded(slots)
            };
        }
    }

    /// Goes on with the start.
    fn begin(&mut self, mut start: Start, now: Instant) {
        let round = self.window;
        let next = start.judge(round, self.slots, self.unloaded.level());
        if next != Next::Wait
            && let Some(slots) = start.take_early()
        {
            self.slots = slots;
        }
        self.start = Some(start);
        match next {
            Next::Wait => {}
            Next::Double if self.slots < self.settings.max => {
                // The unloaded time, of operations that were never seen in calm, too.
                if round.error() <= ERROR_MAX {
                    let most = round.mean() + 2.0 * round.error();
                    self.unloaded.lower_to(most);
                }
                self.slots = self.slots.saturating_mul(2).min(self.settings.max);
                self.changed_at = Some(now);
                self.begin_window(now);
            }
            Next::Double => self.start = None,
            Next::Enough(slots) => {
                self.start = None;
                self.end_trial(rounded(slots).max(self.settings.min), now);
                (self.pause, self.windows_left) = (FOUND_PAUSE, FOUND_PAUSE);
            }
            Next::Crowded => {
                self.start = None;
                let share = START_HEADROOM / (round.mean() - self.unloaded.level()).exp2();
                self.try_out(self.fewer(share), round, now);
            }
        }
    }

    /// Returns how many samples a window needs: they are not independent, as those who were in the
    /// crowd together were slow together. Where it is as bad as can be, fewer will do.
    fn samples_min(&self) -> u32 {
        let inflation = self.window.mean() - self.unloaded.level();
        if self.trial.is_none() && inflation > 0.7 + 4.0 * self.window.error() {
            SAMPLES_MIN / 2
        } else {
            SAMPLES_MIN.max(2 * self.slots)
        }
    }

    /// Begins a new window where nothing has ended for long: what ends now tells of the standstill. At
    /// the start also where the crowd broke off, because a round is one crowd.
    fn notice_gap(&mut self, service_time: Duration, now: Instant) {
        if let Some(ended_at) = self.ended_at {
            let gap = now.saturating_duration_since(ended_at);
            let is_standstill = gap > STANDSTILL && gap.as_secs_f64() > 16.0 * self.gap;
            if is_standstill || (self.start.is_some() && gap > service_time) {
                self.changed_at = Some(now);
                self.begin_window(now);
                // A round that broke off tells nothing.
                if let Some(slots) = self.start.as_mut().and_then(Start::take_early) {
                    self.slots = slots;
                }
            }
            if !is_standstill {
                self.gap += (gap.as_secs_f64() - self.gap) / 16.0;
            }
        }
        self.ended_at = Some(now);
    }

    fn begin_window(&mut self, now: Instant) {
        self.window = Mean::default();
        self.window_since = Some(now);
    }

    /// Judges a step once it can be: did the service time follow the limit?
    fn judge(&mut self, trial: Trial, open_for: Duration, now: Instant) {
        let measured = self.window;
        let moved = measured.mean() - trial.before.mean();
        // Both logarithms, so that 1 is "by as much as the limit".
        let step = log2_ratio(self.slots, trial.from);
        let followed = moved / step;
        let error = measured.error().hypot(trial.before.error()) / step.abs();
        let is_up = self.slots > trial.from;
        let bound = if is_up { FOLLOWED_UP } else { FOLLOWED_DOWN };
        let is_clear = error <= ERROR_TRIAL || (followed - bound).abs() > CLEAR * error;
        if !is_clear {
            if open_for >= TRIAL_MAX {
                // What makes no difference is no crowd.
                if !is_up {
                    self.unloaded.raise_to(measured.mean() - INFLATION);
                }
                self.end_trial(trial.from, now);
            }
            return;
        }
        // What is not well known is not taken for the unloaded time.
        let least = if measured.error() <= ERROR_MAX {
            measured.mean() + 2.0 * measured.error()
        } else {
            f64::INFINITY
        };
        if is_up && followed > bound {
            self.end_trial(trial.from, now);
        } else if is_up {
            // There was more to be had, and there may be more still.
            self.unloaded.lower_to(least);
            self.end_trial(self.slots, now);
            self.try_out(scaled(self.slots, STEP_UP), measured, now);
        } else if followed > bound {
            self.unloaded.lower_to(least);
            self.end_trial(self.slots, now);
            (self.pause, self.windows_left) = (FOUND_PAUSE, FOUND_PAUSE);
        } else {
            // The step went past the knee, and the time followed only as far as that. What is left
            // is how long it takes without a crowd.
            self.unloaded.raise_to(measured.mean());
            self.unloaded.lower_to(least);
            let knee = f64::from(trial.from) * moved.exp2() * HEADROOM;
            let knee = knee.clamp(f64::from(self.slots), f64::from(trial.from));
            self.end_trial(rounded(knee), now);
        }
    }

    /// Takes a step down back before it is judged, if it is why those wait who must not: less is done
    /// than before. A crowd waits at the gate now instead of in the store, and as long.
    pub(crate) fn relent(&mut self, now: Instant) {
        if let Some(trial) = self.trial
            && trial.from > self.slots
            && self.gap > trial.gap * (f64::from(trial.from) / f64::from(self.slots)).sqrt()
        {
            // What was missed so soon was no crowd.
            self.unloaded.raise_to(trial.before.mean());
            self.end_trial(trial.from, now);
            (self.pause, self.windows_left) = (1, 1);
        }
    }

    /// Stays at so many slots; the more often a step leads nowhere, the longer until the next.
    fn end_trial(&mut self, slots: u32, now: Instant) {
        let from = self.trial.take().map_or(self.slots, |trial| trial.from);
        self.pause = if slots == from {
            (self.pause * 2).min(PAUSE_MAX)
        } else {
            1
        };
        self.windows_left = self.pause;
        if self.slots != slots {
            self.slots = slots;
            self.changed_at = Some(now);
        }
        self.begin_window(now);
    }

    /// Looks at a window without a trial, and may begin one.
    fn look(&mut self, open_for: Duration, now: Instant) {
        let measured = self.window;
        let is_known = measured.error() <= ERROR_MAX;
        if is_known && self.slots == self.settings.min {
            // Fewer there cannot be: what it takes now is no crowd that a limit could help.
            self.unloaded.raise_to(measured.mean());
        }
        let inflation = measured.mean() - self.unloaded.level();
        let is_inflated = inflation > INFLATION + 2.5 * measured.error();
        if !is_known && !is_inflated {
            if open_for >= WINDOW_MAX {
                self.begin_window(now);
            }
            return;
        }
        // Not the least of all means: that would be the one with the largest error.
        if is_known {
            let most = measured.mean() + 2.0 * measured.error();
            self.unloaded.lower_to(most);
        }
        self.windows_left = self.windows_left.saturating_sub(1);
        if self.is_confirmed(inflation, measured.error()) {
            // No further than is certain: too few slots are worse than too many.
            let certain = inflation - measured.error();
            self.try_out(self.fewer(HEADROOM / certain.exp2()), measured, now);
        } else if self.windows_left == 0 && inflation <= INFLATION {
            self.probes = self.probes.wrapping_add(1);
            let step = if self.probes.is_multiple_of(DOWN_EVERY) {
                STEP_DOWN
            } else if self.probes.is_multiple_of(2) {
                STEP_UP_SMALL
            } else {
                STEP_UP
            };
            self.windows_left = self.pause;
            self.try_out(scaled(self.slots, step), measured, now);
        }
        self.begin_window(now);
    }

    /// Counts windows that call for a step down, and says whether that is enough.
    ///
    /// One may tell of a moment's pause. And of two that were chosen for being high, what comes next
    /// is likely to be lower, whatever the step: a third one is what the step is judged against.
    fn is_confirmed(&mut self, inflation: f64, error: f64) -> bool {
        let needed = if inflation > INFLATION + 6.0 * error {
            1
        } else {
            2
        };
        let is_confirmed = self.inflated >= needed && inflation > INFLATION / 2.0;
        self.inflated = match inflation > INFLATION {
            _ if is_confirmed => 0,
            true => self.inflated + 1,
            false => 0,
        };
        is_confirmed
    }

    /// Returns so large a part of the slots, as a step down tries them: not so few at once that a store
    /// that is slow and not crowded would starve while that is found out.
    fn fewer(&self, share: f64) -> u32 {
        let least = self.usage.usual().min(scaled(self.slots, STEP_DOWN));
        scaled(self.slots, share.max(STEP_DOWN_MOST)).max(least)
    }

    fn try_out(&mut self, slots: u32, before: Mean, now: Instant) {
        let slots = slots.clamp(self.settings.min, self.settings.max);
        if slots != self.slots {
            let from = self.slots;
            let gap = self.gap;
            self.trial = Some(Trial { from, before, gap });
            self.slots = slots;
            self.changed_at = Some(now);
            self.begin_window(now);
        }
    }
}

/// Returns the multiple of a number of slots, at least one more or less than it.
fn scaled(slots: u32, factor: f64) -> u32 {
    let scaled = rounded(f64::from(slots) * factor);
    if factor > 1.0 {
        scaled.max(slots + 1)
    } else {
        scaled.min(slots.saturating_sub(1))
    }
}

#[expect(clippy::cast_sign_loss)] // slots are not negative
fn rounded(slots: f64) -> u32 {
    slots.round() as u32
}

fn log2_ratio(slots: u32, of: u32) -> f64 {
    (f64::from(slots) / f64::from(of)).log2()
}

#[cfg(test)]
#[path = "limit_tests.rs"]
#[expect(clippy::cast_precision_loss, clippy::cast_sign_loss)] // of times, all of them positive
mod tests;
