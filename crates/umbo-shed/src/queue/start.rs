//! How a limit that has learned nothing comes near the knee: by doubling, round by round.
//!
//! As the slow start of Jacobson (1988), but by the service time and not by a loss: a round that is
//! slower than the one before, with half of the slots, was past the knee, and by how much slower tells
//! where that is. So too few slots cost a few service times, and so do too many, where the first round
//! is a crowd by what was learned in calm. A start that ends too soon costs no more than that: the limit
//! looks more closely from there on.

use super::window::Mean;

/// Fewest samples of a round.
const SAMPLES_MIN: u32 = 8;
/// Most samples of a round, where the slots are no more.
const SAMPLES_MAX: u32 = 64;
/// Error of a mean logarithm (base 2) at which a round is known well enough.
const ERROR_MAX: f64 = 0.3;
/// How far the service time follows a doubling, of all the way, where that was past the knee.
const FOLLOWED: f64 = 0.5;
/// Logarithm of the service time over the unloaded one that calls the first round a crowd: it knows
/// nothing but what was learned in calm, which may be little.
const CROWD: f64 = 1.0;
/// The same, for each error of the round.
const CLEAR: f64 = 3.0;
/// Slots above the knee that is found: whoever is woken for a slot takes a moment to use it.
pub(super) const HEADROOM: f64 = 1.5;

/// A start under way.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Start {
    /// The last round, with half of the slots.
    before: Option<Mean>,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Next {
    /// The round is not over.
    Wait,
    /// A round with twice the slots.
    Double,
    /// So many slots are enough, and the start is over.
    Enough(f64),
    /// There were too many to begin with; the start is over.
    Crowded,
}

impl Start {
    /// Judges a round. Its times are logarithms, `unloaded` is that of one without a crowd.
    pub(super) fn judge(&mut self, round: Mean, slots: u32, unloaded: f64) -> Next {
        let is_known = round.error() <= ERROR_MAX || round.count() >= SAMPLES_MAX;
        if round.count() < SAMPLES_MIN.max(slots) || !is_known {
            return Next::Wait;
        }
        let Some(before) = self.before.replace(round) else {
            let inflation = round.mean() - unloaded;
            return if inflation > CROWD + CLEAR * round.error() {
                Next::Crowded
            } else {
                Next::Double
            };
        };
        let followed = round.mean() - before.mean();
        if followed <= FOLLOWED {
            return Next::Double;
        }
        let (slots, half) = (f64::from(slots), f64::from(slots) / 2.0);
        let knee = slots / followed.exp2() * HEADROOM;
        Next::Enough(knee.clamp(half * HEADROOM, slots))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round in which half took a little longer, and half a little less.
    fn round(count: u32, middle: f64, spread: f64) -> Mean {
        let mut mean = Mean::default();
        for at in 0..count {
            mean.add(middle + if at % 2 == 0 { spread } else { -spread });
        }
        mean
    }

    #[test]
    fn slots_double_until_the_time_follows() {
        let mut start = Start::default();
        assert_eq!(start.judge(round(7, 0.0, 0.2), 4, 0.0), Next::Wait);
        assert_eq!(start.judge(round(8, 0.0, 0.2), 4, 0.0), Next::Double);
        assert_eq!(start.judge(round(8, 0.1, 0.2), 8, 0.0), Next::Double);
        assert_eq!(start.judge(round(15, 0.1, 0.2), 16, 0.0), Next::Wait);
        // Eleven places serve sixteen in 1.45 times the time of eight.
        let Next::Enough(slots) = start.judge(round(16, 0.85, 0.2), 16, 0.0) else {
            panic!("the time has followed");
        };
        assert!((13.0..15.0).contains(&slots), "{slots}");
    }

    #[test]
    fn slots_are_never_fewer_than_in_the_last_round_that_was_well() {
        let mut start = Start::default();
        assert_eq!(start.judge(round(8, 0.0, 0.2), 4, 0.0), Next::Double);
        let next = start.judge(round(8, 3.0, 0.2), 8, 0.0);
        assert_eq!(next, Next::Enough(4.0 * HEADROOM));
    }

    #[test]
    fn what_is_spread_wide_takes_more_requests() {
        let mut start = Start::default();
        assert_eq!(start.judge(round(40, 0.0, 2.0), 4, 0.0), Next::Wait);
        assert_eq!(start.judge(round(64, 0.0, 2.0), 4, 0.0), Next::Double);
        assert_eq!(start.judge(round(64, 0.4, 2.0), 8, 0.0), Next::Double);
        assert_eq!(start.judge(round(40, 0.9, 2.0), 16, 0.0), Next::Wait);
    }

    #[test]
    fn too_many_to_begin_with_are_seen_in_the_first_round() {
        let many = |unloaded| Start::default().judge(round(32, 3.0, 0.5), 32, unloaded);
        assert_eq!(many(0.0), Next::Crowded);
        // A store that is slow by itself.
        assert_eq!(many(2.5), Next::Double);
    }
}
