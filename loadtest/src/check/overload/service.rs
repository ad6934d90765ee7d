//! Service times of many shapes, and a signal that is fed with them under simulated time.

use std::time::{Duration, Instant};

use umbo_overload::{Class, OverloadController, PressureSettings, TICK, TickInput};
use umbo_types::ShardId;

use crate::random::Random;

/// What service times look like; all have a median of about one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Shape {
    /// From a half to one and a half.
    Uniform,
    /// Of any length, short ones more often.
    Exponential,
    /// The exponential of a normal number with this deviation.
    Lognormal(f64),
    /// A tail that falls with this power.
    Pareto(f64),
    /// This share of the service times is ten times as long.
    Bimodal(f64),
}

impl Shape {
    /// One of each.
    pub(super) const ALL: [Self; 5] = [
        Self::Uniform,
        Self::Exponential,
        Self::Lognormal(0.6),
        Self::Pareto(1.5),
        Self::Bimodal(0.12),
    ];

    /// Returns its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Exponential => "exponential",
            Self::Lognormal(_) => "lognormal",
            Self::Pareto(_) => "pareto",
            Self::Bimodal(_) => "bimodal",
        }
    }

    /// Draws one.
    pub(super) fn draw(self, random: &mut Random) -> f64 {
        match self {
            Self::Uniform => 0.5 + random.unit(),
            Self::Exponential => random.exponential() / std::f64::consts::LN_2,
            Self::Lognormal(deviation) => (deviation * normal(random)).exp(),
            Self::Pareto(power) => 0.5_f64.powf(1.0 / power) * (random.exponential() / power).exp(),
            Self::Bimodal(share) => {
                let scale = if random.unit() < share { 10.0 } else { 1.0 };
                scale * (0.2 * normal(random)).exp()
            }
        }
    }
}

/// Returns a number that is nearly normal, of mean 0 and deviation 1: the sum of twelve even ones.
pub(super) fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| random.unit()).sum::<f64>() - 6.0
}

/// Store calls of one class, as of a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Calls {
    pub(super) class: Class,
    /// A second.
    pub(super) rate: f64,
    pub(super) shape: Shape,
    /// Median, in microseconds.
    pub(super) micros: f64,
}

/// A signal and the time that it believes in.
pub(super) struct Lab {
    pub(super) overload: OverloadController,
    pub(super) random: Random,
    pub(super) start: Instant,
    pub(super) now: Duration,
}

impl Lab {
    pub(super) fn new(seed: u64, shards: u16) -> Self {
        let start = Instant::now();
        Self {
            overload: OverloadController::new(PressureSettings::default(), shards, start),
            random: Random::seeded(seed),
            start,
            now: Duration::ZERO,
        }
    }

    /// Makes the calls of one tick to a shard; `see` is told each service time, in microseconds.
    pub(super) fn call(&mut self, shard: ShardId, calls: &Calls, mut see: impl FnMut(f64)) {
        let mean = calls.rate * TICK.as_secs_f64();
        let mut at = self.random.exponential();
        while at < mean {
            at += self.random.exponential();
            let micros = calls.shape.draw(&mut self.random) * calls.micros;
            let time = Duration::from_secs_f64(micros / 1e6);
            self.overload.record(shard, calls.class, time);
            see(micros);
        }
    }

    /// Goes on by a tick.
    pub(super) fn tick(&mut self) {
        self.now += TICK;
        self.overload.tick(self.instant(), |_| TickInput::default());
    }

    pub(super) fn instant(&self) -> Instant {
        self.start + self.now
    }

    /// Returns whether a shard is engaged.
    pub(super) fn is_engaged(&self, shard: ShardId) -> bool {
        let report = self.overload.report(self.instant());
        let of_shard = report.shards.get(usize::from(shard.0));
        of_shard.is_some_and(|shard| shard.episode.is_some())
    }
}
