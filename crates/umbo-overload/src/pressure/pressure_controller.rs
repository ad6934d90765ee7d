//! The pressure of one shard, from three inputs; and the price that follows from it.

use std::time::Duration;

use umbo_types::Criticality;

use super::designated::DesignatedClass;
use super::fair_shares::Excess;
use super::latency::pressure_of;
use super::penalty::{Measures, Penalty, PressureNow};
use crate::class::Class;

/// Classes that each shard has.
pub(crate) const CLASSES: usize = Class::ALL.len();

/// The findings of a tick at a shard.
#[derive(Debug, Clone, Copy, Default)]
pub struct TickInput {
    /// Delays of the queue for reads and of the queue for writes, in multiples of their targets; 0 for a queue that has
    /// not exceeded its target for an interval.
    pub queue_delay: [f64; 2],
    /// Lag of the runtime in multiples of its target; 0 if nothing is shed for it.
    pub lag: f64,
    /// For how long the store has held its oldest request.
    pub oldest: Duration,
    /// Requests shed by the queues since the start, by tier.
    pub shed: [u64; Criticality::ALL.len()],
    /// The same for the queue for reads, and the queue for writes.
    pub shed_by_queue: [u64; 2],
}

impl TickInput {
    /// Returns whether a queue or the runtime is late.
    pub(crate) fn is_any(&self) -> bool {
        self.lag > 0.0 || self.queue_delay.iter().any(|delay| *delay > 0.0)
    }
}

/// The input that the pressure of a class comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PressureInput {
    /// The store answers much slower than usual.
    Latency,
    /// Requests wait too long for the store.
    QueueDelay,
    /// The dispatcher's own threads are late.
    Lag,
}

impl PressureInput {
    /// Returns the name used in answers and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Latency => "latency-ratio",
            Self::QueueDelay => "queue-delay",
            Self::Lag => "lag",
        }
    }
}

/// The highest pressure of a shard, with its class and its input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Worst {
    pub(crate) pressure: f64,
    pub(crate) class: Class,
    pub(crate) input: PressureInput,
}

/// The pressures of one shard, and its penalty.
#[derive(Debug, Default)]
pub(crate) struct PressureController {
    pressures: [f64; CLASSES],
    penalty: Penalty,
}

impl PressureController {
    /// Advances by a tick. `latency` is the pressure of each class by its latency ratio. `excess` says which tiers have
    /// callers with too much, and `is_explained` whether one heavy request explains the latencies. Returns the worst of
    /// all pressures, or `None` without pressure, and the measures to take now.
    pub(crate) fn tick(
        &mut self,
        latency: [f64; CLASSES],
        input: &TickInput,
        designated: &DesignatedClass,
        (excess, is_explained): (Excess, bool),
    ) -> (Option<Worst>, Measures) {
        let mut worst: Option<Worst> = None;
        for class in Class::ALL {
            let delay = input.queue_delay[usize::from(class.is_write())];
            let inputs = [
                (latency[class as usize], PressureInput::Latency),
                (pressure_above(delay), PressureInput::QueueDelay),
                (pressure_above(input.lag), PressureInput::Lag),
            ];
            let (pressure, input) = inputs
                .into_iter()
                .reduce(|most, other| if other.0 > most.0 { other } else { most })
                .unwrap_or((0.0, PressureInput::Latency));
            self.pressures[class as usize] = pressure;
            if pressure > worst.map_or(0.0, |worst| worst.pressure) {
                worst = Some(Worst {
                    pressure,
                    class,
                    input,
                });
            }
        }
        let pressure = worst.map_or(0.0, |worst| worst.pressure);
        let tier_max = designated.tier_max();
        let pressed = PressureNow {
            pressure,
            is_explained: is_explained && !input.is_any(),
        };
        let measures = self.penalty.tick(pressed, tier_max, excess);
        (worst, measures)
    }

    /// Returns the pressure of a class, from 0 to 1.
    pub(crate) const fn pressure(&self, class: Class) -> f64 {
        self.pressures[class as usize]
    }

    /// Returns whether no caller pays more or is held to its share.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.penalty.is_none()
    }
}

/// Returns the pressure of a value in multiples of its limit; above the limit it is never 0.
fn pressure_above(times: f64) -> f64 {
    if times > 1.0 {
        pressure_of(times).max(f64::EPSILON)
    } else {
        0.0
    }
}
