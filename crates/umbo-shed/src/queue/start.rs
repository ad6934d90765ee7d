//! How a limit that has learned nothing comes near the knee: by doubling, round by round.
//!
//! As the slow start of Jacobson (1988), but by the service time and not by a loss: a round that is
//! slower than the one before, with half of the slots, was past the knee, and by how much slower tells
//! where that is. So too few slots cost a few service times, and so do too many, where the first round
//! is a crowd by what was learned in calm. A start that ends too soon costs no more than that: the limit
//! looks more closely from there on.
//!
//! A first round of a crowd is long, because everybody in it takes long. So whoever ends meanwhile is
//! asked as well: what took part of a crowd only took no longer than what will have taken all of it. Where
//! the last few tell of a crowd already, there are fewer slots at once, and the round decides later.

use std::time::Instant;

use super::window::Mean;

/// Fewest samples of a round.
const SAMPLES_MIN: u32 = 8;
/// Most samples of a round, where the slots are no more.
const SAMPLES_MAX: u32 = 64;
/// Error of a mean logarithm (base 2) at which a round is known well enough.
const ERROR_MAX: f64 = 0.3;
/// How far the service time follows a doubling, of all the way, where that was past the knee. In the first
/// round by how much it is above the unloaded one: twice the slots would not do much more.
const FOLLOWED: f64 = 0.5;
/// Logarithm of the service time over the unloaded one that tells of a crowd before the round is over.
const CROWD: f64 = 1.0;
/// The same, for each error of the round.
const CLEAR: f64 = 3.0;
/// Slots above the knee that is found: whoever is woken for a slot takes a moment to use it.
pub(super) const HEADROOM: f64 = 1.5;

/// How many of those that ended last are looked at.
const LATEST: u32 = 8;

/// A start under way.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Start {
    /// The last round, with half of the slots.
    before: Option<Mean>,
    /// How much longer than unloaded those took that ended last, as logarithms.
    latest: [f64; LATEST as usize],
    ended: u32,
    /// Whether they have told of a crowd: they are asked once.
    is_told: bool,
    early: Option<Early>,
}

/// Fewer slots before the first round is over.
#[derive(Debug, Clone, Copy)]
struct Early {
    /// Slots there were.
    slots: u32,
    at: Instant,
    /// How many have ended since.
    ended: u32,
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
    /// Takes notice of one that ended in the first round, whenever it began; `inflation` is how much
    /// longer than unloaded it took, as a logarithm. Returns how many slots there should be instead: fewer,
    /// where the last few tell already that there are too many, or those there were, where all that
    /// began before have ended and the round has not been judged.
    pub(super) fn suspect(&mut self, inflation: f64, slots: u32, now: Instant) -> Option<f64> {
        if let Some(early) = &mut self.early {
            early.ended += 1;
            return if early.ended > early.slots {
                self.take_early().map(f64::from)
            } else {
                None
            };
        }
        if self.before.is_some() || self.is_told {
            return None;
        }
        self.latest[(self.ended % LATEST) as usize] = inflation;
        self.ended += 1;
        if self.ended < LATEST {
            return None;
        }
        let mut latest = Mean::default();
        for inflation in self.latest {
            latest.add(inflation);
        }
        if latest.mean() <= CROWD + CLEAR * latest.error() {
            return None;
        }
        self.is_told = true;
        self.early = Some(Early {
            slots,
            at: now,
            ended: 0,
        });
        Some(f64::from(slots) * HEADROOM / latest.mean().exp2())
    }

    /// Says whether there has been no crowd that anything was learned of.
    pub(super) const fn is_first(&self) -> bool {
        self.before.is_none() && self.early.is_none()
    }

    /// Says whether a request belongs to the round that began at this instant.
    pub(super) fn is_of_round(&self, began: Instant) -> bool {
        self.early.is_none_or(|early| began < early.at)
    }

    /// Ends what was done early; returns the slots there were.
    pub(super) fn take_early(&mut self) -> Option<u32> {
        self.ended = 0;
        self.early.take().map(|early| early.slots)
    }

    /// Judges a round. Its times are logarithms, `unloaded` is that of one without a crowd.
    pub(super) fn judge(&mut self, round: Mean, slots: u32, unloaded: f64) -> Next {
        let is_known = round.error() <= ERROR_MAX || round.count() >= SAMPLES_MAX;
        // Of an early end no more come than were let in before it.
        let needed = if self.early.is_some() { 0 } else { slots };
        if round.count() < SAMPLES_MIN.max(needed) || !is_known {
            return Next::Wait;
        }
        let Some(before) = self.before.replace(round) else {
            let inflation = round.mean() - unloaded;
            return if inflation <= FOLLOWED {
                Next::Double
            } else if inflation > FOLLOWED + CLEAR * round.error() {
                Next::Crowded
            } else {
                // What more slots would bring is not worth the doubt.
                Next::Enough(f64::from(slots))
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
        // Some more than there are places, perhaps.
        assert_eq!(many(2.3), Next::Enough(32.0));
        // A store that is slow by itself.
        assert_eq!(many(2.5), Next::Double);
    }

    /// Sixteen slots before four places: one after the other is done. Returns after how many it is told.
    fn told(start: &mut Start, now: Instant) -> (u32, f64) {
        let told = (1..=16).find_map(|place: u32| {
            let spread = if place.is_multiple_of(2) { 0.2 } else { -0.2 };
            let inflation = f64::from(place.div_ceil(4)).log2() + spread;
            Some((place, start.suspect(inflation, 16, now)?))
        });
        told.unwrap()
    }

    #[test]
    fn those_who_end_tell_of_a_crowd_before_the_round_is_over() {
        let now = Instant::now();
        let mut start = Start::default();
        let (place, slots) = told(&mut start, now);
        assert!((12..=16).contains(&place), "{place}");
        assert!((6.0..9.0).contains(&slots), "{slots}");
        // Who comes now belongs to no round, which has the last word.
        assert!(!start.is_of_round(now));
        assert_eq!(start.judge(round(7, 2.0, 0.3), 16, 0.0), Next::Wait);
        assert_eq!(start.judge(round(8, 2.0, 0.3), 16, 0.0), Next::Crowded);
        assert_eq!(start.take_early(), Some(16));
        assert!(start.is_of_round(now) && start.take_early().is_none());
    }

    #[test]
    fn slots_come_back_where_the_round_tells_nothing_and_it_is_not_told_again() {
        let now = Instant::now();
        let mut start = Start::default();
        told(&mut start, now);
        let back = (1..=100).find_map(|ended| Some((ended, start.suspect(3.0, 7, now)?)));
        assert_eq!(back, Some((17, 16.0)));
        assert!((0..100).all(|_| start.suspect(3.0, 16, now).is_none()));
    }

    #[test]
    fn what_takes_as_long_as_usual_or_is_spread_wide_is_no_crowd() {
        for (inflation, spread) in [(0.9, 0.1), (1.6, 1.0)] {
            let mut start = Start::default();
            let told = (0..100).find_map(|at| {
                let other = if at % 2 == 0 { spread } else { -spread };
                start.suspect(inflation + other, 16, Instant::now())
            });
            assert_eq!(told, None, "{inflation}");
        }
    }
}
