//! The twelve traffic patterns: who asks for how much, and when.
//!
//! Demands are multiples of one caller's quota, so that a pattern is the same at every rate.

use clap::ValueEnum;

use super::arrivals::Shape;

/// Closed-loop clients of the patterns that have them.
pub(crate) const CLIENTS: u32 = 64;
/// Callers of the Zipf pattern.
const ZIPF_CALLERS: u32 = 24;
/// Demand of all callers of the Zipf pattern together.
const ZIPF_DEMAND: f64 = 24.0;
/// Well-behaved callers beside the runaway.
const NEIGHBOURS: usize = 5;

/// How a caller goes about it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Behaviour {
    /// Asks whatever the answers are, and forgets what was rejected.
    Open {
        /// Demand over time.
        shape: Shape,
        /// Multiplies the shape.
        scale: f64,
        /// At random instants, not even ones.
        is_random: bool,
    },
    /// Asks again only after an answer.
    Closed {
        /// How many do so, each with one request at a time.
        clients: u32,
        /// What all of them would use if nothing were rejected.
        demand: f64,
        /// Waits as long as it is told to, and then asks for the same again.
        is_obedient: bool,
    },
}

/// One caller of a pattern.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Caller {
    /// Name of the caller.
    pub(crate) name: String,
    /// What it does.
    pub(crate) behaviour: Behaviour,
}

/// A traffic pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pattern {
    /// Twice the quota, evenly
    Steady,
    /// Twice the quota, at random instants
    Poisson,
    /// Twice the quota, each second's within 10 ms
    Burst,
    /// Four times the quota for five seconds, nothing for five
    OnOff,
    /// From nothing to four times the quota
    RampUp,
    /// From four times the quota to nothing
    RampDown,
    /// From a fifth of the quota to almost four times and back, in forty seconds
    Diurnal,
    /// Many callers with quotas of their own, of which few are busy
    Zipf,
    /// One caller at ten times its quota beside callers within theirs
    Runaway,
    /// Half of the quota, and twenty times for a fifth of a second in ten
    Spike,
    /// From nothing to four times the quota in seven seconds, again and again
    Sawtooth,
    /// Clients in a closed loop that wait as they are told, at four times the quota
    Obedient,
}

impl Pattern {
    /// All patterns.
    pub(crate) const ALL: [Self; 12] = [
        Self::Steady,
        Self::Poisson,
        Self::Burst,
        Self::OnOff,
        Self::RampUp,
        Self::RampDown,
        Self::Diurnal,
        Self::Zipf,
        Self::Runaway,
        Self::Spike,
        Self::Sawtooth,
        Self::Obedient,
    ];

    /// Returns its name.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Poisson => "poisson",
            Self::Burst => "burst",
            Self::OnOff => "on-off",
            Self::RampUp => "ramp-up",
            Self::RampDown => "ramp-down",
            Self::Diurnal => "diurnal",
            Self::Zipf => "zipf",
            Self::Runaway => "runaway",
            Self::Spike => "spike",
            Self::Sawtooth => "sawtooth",
            Self::Obedient => "obedient",
        }
    }

    /// Returns its callers, busiest first.
    pub(crate) fn callers(self) -> Vec<Caller> {
        match self {
            Self::Steady => one(Shape::Level(2.0), false),
            Self::Poisson => one(Shape::Level(2.0), true),
            Self::Burst => one(Shape::Bursts(2.0), false),
            Self::OnOff => one(Shape::OnOff { on: 4.0, half_s: 5 }, true),
            Self::RampUp => one(Shape::Ramp { from: 0.0, to: 4.0 }, true),
            Self::RampDown => one(Shape::Ramp { from: 4.0, to: 0.0 }, true),
            Self::Diurnal => {
                let (least, most, period_s) = (0.2, 3.8, 40);
                one(
                    Shape::Day {
                        least,
                        most,
                        period_s,
                    },
                    true,
                )
            }
            Self::Zipf => zipf(),
            Self::Runaway => {
                let mut callers = vec![random("runaway".to_owned(), 10.0)];
                callers.extend((1..=NEIGHBOURS).map(|at| random(format!("neighbour-{at}"), 0.8)));
                callers
            }
            Self::Spike => {
                let shape = Shape::Spikes {
                    base: 0.5,
                    peak: 20.0,
                    width_ms: 200,
                    period_s: 10,
                };
                one(shape, true)
            }
            Self::Sawtooth => {
                let (most, period_s) = (4.0, 7);
                one(Shape::Sawtooth { most, period_s }, true)
            }
            Self::Obedient => vec![Caller {
                name: "caller".to_owned(),
                behaviour: Behaviour::Closed {
                    clients: CLIENTS,
                    demand: 4.0,
                    is_obedient: true,
                },
            }],
        }
    }
}

fn one(shape: Shape, is_random: bool) -> Vec<Caller> {
    let behaviour = Behaviour::Open {
        shape,
        scale: 1.0,
        is_random,
    };
    let name = "caller".to_owned();
    vec![Caller { name, behaviour }]
}

fn random(name: String, scale: f64) -> Caller {
    let behaviour = Behaviour::Open {
        shape: Shape::Level(1.0),
        scale,
        is_random: true,
    };
    Caller { name, behaviour }
}

/// Returns callers whose demands fall with their rank (exponent 1).
fn zipf() -> Vec<Caller> {
    let weights: f64 = (1..=ZIPF_CALLERS).map(|rank| 1.0 / f64::from(rank)).sum();
    let demand = |rank| ZIPF_DEMAND / weights / f64::from(rank);
    let ranks = 1..=ZIPF_CALLERS;
    ranks
        .map(|rank| random(format!("caller-{rank:02}"), demand(rank)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_twelve_with_names_and_callers_of_their_own() {
        for (at, pattern) in Pattern::ALL.into_iter().enumerate() {
            let name = pattern.to_possible_value().unwrap();
            assert_eq!(name.get_name(), pattern.as_str());
            for other in &Pattern::ALL[..at] {
                assert_ne!(pattern.callers(), other.callers());
            }
        }
    }

    #[test]
    fn the_demand_of_zipf_is_divided_by_rank() {
        let demands: Vec<f64> = zipf()
            .into_iter()
            .map(|caller| match caller.behaviour {
                Behaviour::Open { scale, .. } => scale,
                Behaviour::Closed { .. } => 0.0,
            })
            .collect();
        assert!((demands.iter().sum::<f64>() - ZIPF_DEMAND).abs() < 1e-9);
        assert!((demands[0] / demands[9] - 10.0).abs() < 1e-9);
        // Some want more than their quota, most want less.
        let busy = demands.iter().filter(|&&demand| demand > 1.0).count();
        assert!((3..ZIPF_CALLERS as usize / 2).contains(&busy), "{busy}");
    }
}
