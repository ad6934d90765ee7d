//! Forward decay: what a read counted now weighs.
//!
//! Cormode, Shkapenyuk, Srivastava and Xu (2009), with an exponential. Instead of halving all
//! counts every half-life, the weight of a new read doubles; once it has grown by 2¹⁶ all weights
//! are divided by that, which is rare. All sketches of a pod go by one decay, so that their weights
//! add up.

use std::time::{Duration, Instant};

/// Weight of a read when all weights have just been divided.
const WEIGHT_MIN: f64 = 1_048_576.0;
/// Doublings after which all weights are divided.
const DOUBLINGS_MAX: f64 = 16.0;

/// The step from one interval to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// All weights are to be divided by two to this.
    pub(crate) halvings: u32,
    /// What a read weighs from now on.
    pub(crate) increment: u64,
}

/// Weights over time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decay {
    half_life: Duration,
    /// When a read weighed the least.
    origin: Instant,
}

impl Decay {
    /// Begins at `now`. The half-life is not zero.
    pub(crate) fn new(half_life: Duration, now: Instant) -> Self {
        Self {
            half_life,
            origin: now,
        }
    }

    /// Returns the weight of a read at the beginning.
    #[expect(clippy::cast_sign_loss)] // a positive constant
    pub(crate) const fn first() -> u64 {
        WEIGHT_MIN as u64
    }

    /// Returns what is left of a weight after so long, as a share.
    pub(crate) fn left_after(&self, elapsed: Duration) -> f64 {
        (-elapsed.as_secs_f64() / self.half_life.as_secs_f64()).exp2()
    }

    /// Goes on to `now`.
    #[expect(clippy::cast_sign_loss)] // time does not run backwards: no doublings are negative
    pub(crate) fn advance(&mut self, now: Instant) -> Step {
        let elapsed = now.saturating_duration_since(self.origin);
        let mut doublings = elapsed.as_secs_f64() / self.half_life.as_secs_f64();
        let mut halvings = 0.0;
        if doublings >= DOUBLINGS_MAX {
            halvings = doublings.floor();
            doublings -= halvings;
            // Not before the origin, whatever is lost to rounding.
            let since = self.half_life.mul_f64(doublings).min(elapsed);
            self.origin += elapsed.saturating_sub(since);
        }
        Step {
            halvings: halvings as u32,
            increment: (WEIGHT_MIN * doublings.exp2()) as u64,
        }
    }
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss)] // weights here are far below 2⁵³
mod tests {
    use super::*;

    const HALF_LIFE: Duration = Duration::from_secs(2);

    #[test]
    fn weights_double_with_every_half_life_whatever_the_steps() {
        let start = Instant::now();
        let mut decay = Decay::new(HALF_LIFE, start);
        // What a read counted at the start weighs, in units of one counted now.
        let mut weight = Decay::first() as f64;
        let mut now = start;
        for step in 1..=2_000_u32 {
            now += Duration::from_millis(u64::from(step % 7) * 37);
            let Step {
                halvings,
                increment,
            } = decay.advance(now);
            weight /= 2_f64.powi(halvings.cast_signed());
            let share = weight / increment as f64;
            let expected = decay.left_after(now - start);
            assert!((share / expected - 1.0).abs() < 1e-4, "{share} {expected}");
            // Bounded, so that sums of weights never overflow.
            assert!(increment <= 1 << 37);
        }
        assert!(now - start > Duration::from_secs(100));
    }

    #[test]
    fn a_pod_that_slept_for_a_year_goes_on() {
        let start = Instant::now();
        let mut decay = Decay::new(HALF_LIFE, start);
        let step = decay.advance(start + Duration::from_hours(8_760));
        assert_eq!(step.halvings, 15_768_000);
        assert_eq!(step.increment, Decay::first());
    }
}
