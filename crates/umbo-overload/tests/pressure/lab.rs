//! A pod of simulated shards whose service times follow a script.

use std::time::{Duration, Instant};

use umbo_overload::{Class, OverloadController, PressureSettings, TICK, TickInput};
use umbo_types::ShardId;

use crate::draw::{Draw, Shape};

/// Requests of one class, as of a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    pub(crate) class: Class,
    /// Requests a second at each shard.
    pub(crate) rate: f64,
    pub(crate) shape: Shape,
    /// What a draw is multiplied with, in microseconds.
    pub(crate) scale_micros: f64,
}

pub(crate) struct Lab {
    pub(crate) overload: OverloadController,
    pub(crate) start: Instant,
    pub(crate) now: Duration,
    pub(crate) draw: Draw,
    /// For how long the store has held its oldest request.
    pub(crate) oldest: Duration,
    shards: u16,
}

impl Lab {
    pub(crate) fn new(seed: u64, shards: u16) -> Self {
        let start = Instant::now();
        Self {
            overload: OverloadController::new(PressureSettings::default(), shards, start),
            start,
            now: Duration::ZERO,
            draw: Draw::seeded(seed),
            oldest: Duration::ZERO,
            shards,
        }
    }

    pub(crate) fn instant(&self) -> Instant {
        self.start + self.now
    }

    /// Serves what comes in a tick, and ticks.
    pub(crate) fn tick(&mut self, script: impl Fn(&mut Draw, ShardId) -> Vec<Stream>) {
        for shard in (0..self.shards).map(ShardId) {
            for stream in script(&mut self.draw, shard) {
                for _ in 0..self.draw.poisson(stream.rate * TICK.as_secs_f64()) {
                    let micros = stream.shape.draw(&mut self.draw) * stream.scale_micros;
                    let time = Duration::from_secs_f64(micros / 1e6);
                    self.overload.record(shard, stream.class, time);
                }
            }
        }
        self.now += TICK;
        let input = TickInput {
            oldest: self.oldest,
            ..TickInput::default()
        };
        self.overload.tick(self.instant(), |_| input);
    }

    /// Ticks until so many seconds have passed.
    pub(crate) fn run(&mut self, seconds: f64, script: impl Fn(&mut Draw, ShardId) -> Vec<Stream>) {
        let end = self.now + Duration::from_secs_f64(seconds);
        while self.now < end {
            self.tick(&script);
        }
    }

    pub(crate) fn is_engaged(&self, shard: u16) -> bool {
        let report = self.overload.report(self.instant());
        report.shards[usize::from(shard)].episode.is_some()
    }

    /// Ticks until the shard is engaged or not; returns how long it took, at most `limit` seconds.
    pub(crate) fn run_until(
        &mut self,
        is_engaged: bool,
        limit: f64,
        script: impl Fn(&mut Draw, ShardId) -> Vec<Stream>,
    ) -> Duration {
        let from = self.now;
        let end = from + Duration::from_secs_f64(limit);
        while self.is_engaged(0) != is_engaged && self.now < end {
            self.tick(&script);
        }
        self.now.saturating_sub(from)
    }
}
