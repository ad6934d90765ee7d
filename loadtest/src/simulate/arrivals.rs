//! When requests arrive: a shape of demand over time, made into instants.
//!
//! The demand is constant within a slice of five milliseconds, and a request arrives whenever the
//! demand summed up has grown by one (even) or by an exponential number (random: a Poisson process
//! of that intensity, by the theorem of time rescaling). So the mean is exact for every shape.

use crate::random::Random;

/// Nanoseconds of a second.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;
/// Length of a slice.
const SLICE_NS: u64 = 5_000_000;

/// Demand over time, as a multiple of the quota. All periods are whole slices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Shape {
    /// Always the same.
    Level(f64),
    /// All of a second within its first hundredth; the mean is given.
    Bursts(f64),
    /// So much for so many seconds, nothing for as many.
    OnOff {
        /// Demand while on.
        on: f64,
        /// Seconds of each half.
        half_s: u64,
    },
    /// From one demand to another over the whole run, in a straight line.
    Ramp {
        /// At the beginning.
        from: f64,
        /// At the end.
        to: f64,
    },
    /// Between two demands and back, as the sun goes.
    Day {
        /// At midnight.
        least: f64,
        /// At noon.
        most: f64,
        /// Seconds of a day.
        period_s: u64,
    },
    /// A low demand, and a moment of a high one once in a while.
    Spikes {
        /// Between the spikes.
        base: f64,
        /// Within one.
        peak: f64,
        /// Length of a spike, in milliseconds.
        width_ms: u64,
        /// Seconds from one to the next.
        period_s: u64,
    },
    /// Grows from nothing in a straight line, falls back at once, and so on.
    Sawtooth {
        /// At the top.
        most: f64,
        /// Seconds of a tooth.
        period_s: u64,
    },
}

impl Shape {
    /// Returns the demand at an instant of a run of `length_ns`.
    fn at(self, at_ns: u64, length_ns: u64) -> f64 {
        let phase = |period_s: u64| {
            let period_ns = period_s * SECOND_NS;
            (at_ns % period_ns) as f64 / period_ns as f64
        };
        match self {
            Self::Level(level) => level,
            Self::Bursts(mean) if at_ns % SECOND_NS < SECOND_NS / 100 => mean * 100.0,
            Self::OnOff { on, half_s } if phase(2 * half_s) < 0.5 => on,
            Self::Bursts(_) | Self::OnOff { .. } => 0.0,
            Self::Ramp { from, to } => from + (to - from) * (at_ns as f64 / length_ns as f64),
            Self::Day {
                least,
                most,
                period_s,
            } => least + (most - least) * height_of_day(phase(period_s)),
            Self::Spikes {
                base,
                peak,
                width_ms,
                period_s,
            } => {
                let is_spike = at_ns % (period_s * SECOND_NS) < width_ms * 1_000_000;
                if is_spike { peak } else { base }
            }
            Self::Sawtooth { most, period_s } => most * phase(period_s),
        }
    }
}

/// Returns (1 − cos 2πx) / 2 by Bhaskara's approximation (7th century), which is off by less than
/// 0.0017 and uses only operations that are the same on every machine.
fn height_of_day(phase: f64) -> f64 {
    // cos 2πx of the first quarter, by symmetry.
    let half = if phase < 0.5 { phase } else { 1.0 - phase };
    let quarter = if half < 0.25 { half } else { 0.5 - half };
    let square = 4.0 * quarter * quarter;
    let cosine = (1.0 - 4.0 * square) / (1.0 + square);
    let cosine = if half < 0.25 { cosine } else { -cosine };
    f64::midpoint(1.0, -cosine)
}

/// Requests of one source, one after the other.
#[derive(Debug)]
pub(crate) struct Arrivals {
    shape: Shape,
    /// Requests a second where the demand is 1.
    rate: f64,
    is_random: bool,
    length_ns: u64,
    now_ns: f64,
    random: Random,
}

impl Arrivals {
    /// Makes the arrivals of a run; `rate` is in requests a second where the demand is 1.
    pub(crate) fn new(
        shape: Shape,
        rate: f64,
        is_random: bool,
        length_ns: u64,
        random: Random,
    ) -> Self {
        Self {
            shape,
            rate,
            is_random,
            length_ns,
            now_ns: 0.0,
            random,
        }
    }

    /// Returns the instant of the next request; none after the end of the run.
    pub(crate) fn next_ns(&mut self) -> Option<u64> {
        let mut missing = if self.is_random {
            self.random.exponential()
        } else {
            1.0
        };
        while self.now_ns < self.length_ns as f64 {
            let slice = self.now_ns as u64 / SLICE_NS;
            let end_ns = ((slice + 1) * SLICE_NS) as f64;
            let demand = self
                .shape
                .at(slice * SLICE_NS + SLICE_NS / 2, self.length_ns);
            let rate_ns = demand * self.rate / SECOND_NS as f64;
            let gain = rate_ns * (end_ns - self.now_ns);
            if gain > 0.0 && gain >= missing {
                self.now_ns += missing / rate_ns;
                return Some(self.now_ns as u64);
            }
            missing -= gain;
            self.now_ns = end_ns;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH_NS: u64 = 80 * SECOND_NS;

    fn instants(shape: Shape, rate: f64, is_random: bool) -> Vec<u64> {
        let mut arrivals = Arrivals::new(shape, rate, is_random, LENGTH_NS, Random::seeded(9));
        std::iter::from_fn(|| arrivals.next_ns()).collect()
    }

    #[test]
    fn every_shape_has_its_mean() {
        let shapes = [
            (Shape::Level(2.0), 2.0),
            (Shape::Bursts(2.0), 2.0),
            (Shape::OnOff { on: 4.0, half_s: 5 }, 2.0),
            (Shape::Ramp { from: 0.0, to: 4.0 }, 2.0),
            (
                Shape::Day {
                    least: 0.2,
                    most: 3.8,
                    period_s: 40,
                },
                2.0,
            ),
            (
                Shape::Spikes {
                    base: 0.5,
                    peak: 20.0,
                    width_ms: 200,
                    period_s: 10,
                },
                0.89,
            ),
            (
                Shape::Sawtooth {
                    most: 4.0,
                    period_s: 8,
                },
                2.0,
            ),
        ];
        for (shape, mean) in shapes {
            let expected = mean * 500.0 * 80.0;
            for (is_random, tolerance) in [(false, 0.002), (true, 0.02)] {
                let instants = instants(shape, 500.0, is_random);
                let ratio = instants.len() as f64 / expected;
                assert!((ratio - 1.0).abs() < tolerance, "{shape:?}: {ratio}");
                assert!(instants.is_sorted());
                assert!(instants.last().unwrap() <= &LENGTH_NS);
            }
        }
    }

    #[test]
    fn even_arrivals_are_even_and_random_ones_are_not() {
        let gaps = |is_random| -> Vec<u64> {
            let instants = instants(Shape::Level(1.0), 100.0, is_random);
            instants.windows(2).map(|pair| pair[1] - pair[0]).collect()
        };
        assert!(gaps(false).iter().all(|gap| gap.abs_diff(10_000_000) <= 1));
        let random = gaps(true);
        let short = random.iter().filter(|&&gap| gap < 10_000_000).count();
        let share = short as f64 / random.len() as f64;
        // 1 − 1/e.
        assert!((share - 0.632).abs() < 0.02, "{share}");
    }

    #[test]
    fn a_day_is_lowest_at_midnight_and_highest_at_noon() {
        let heights = [0.0, 0.25, 0.5, 0.75, 0.125].map(height_of_day);
        for (height, expected) in heights.into_iter().zip([0.0, 0.5, 1.0, 0.5, 0.146_447]) {
            assert!((height - expected).abs() < 0.002, "{height} for {expected}");
        }
    }
}
