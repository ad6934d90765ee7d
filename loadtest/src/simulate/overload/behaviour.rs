//! How a simulated shard behaves: the spread of its service times, what a crowd does to it, and its troubles.

use crate::random::Random;

/// How service times are spread around their mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spread {
    /// Half of the mean, and an exponential number with the other half as its mean.
    Usual,
    /// Exponential.
    Wide,
    /// Of fifty requests 49 take half the mean, and one the rest.
    Bimodal,
    /// From half the mean to one and a half.
    Even,
}

impl Spread {
    /// Draws a service time as a multiple of the mean.
    pub(crate) fn draw(self, random: &mut Random) -> f64 {
        match self {
            Self::Usual => 0.5 + 0.5 * random.exponential(),
            Self::Wide => random.exponential(),
            Self::Bimodal if random.below(50) == 0 => 25.5,
            Self::Bimodal => 0.5,
            Self::Even => 0.5 + random.unit(),
        }
    }
}

/// What becomes of requests for which there is no worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Requests wait until a worker is free.
    InTurn,
    /// All go on at once and share what the workers do (processor sharing), looked at in steps of a quarter
    /// of the usual time, as in the store of `umbo-loadtest modelled`.
    AtOnce,
}

/// A time in which a shard is not itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Trouble {
    /// The shard does nothing.
    Stall,
    /// All takes so many times longer.
    Slow(f64),
}

/// Which shards are in trouble, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Incident {
    pub(crate) trouble: Trouble,
    /// The shards below this one.
    pub(crate) shards: usize,
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}
