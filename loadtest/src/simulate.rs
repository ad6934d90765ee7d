//! The simulator: the real limiters of `umbo-quota`, and the real gates of `umbo-overload`, under
//! simulated traffic, in discrete events.
//!
//! Owns traffic patterns, models of estimation errors, simulated clients, and what is measured of
//! them. Deliberately sleeps nowhere, reads no clock and uses no function of the system whose last
//! bit may differ, so that a seed gives the same bytes everywhere.

mod account;
mod agenda;
mod arrivals;
mod client;
mod fleet;
#[cfg(test)]
mod fleet_tests;
mod ideal;
pub(crate) mod overload;
mod pattern;
mod rules;
mod settle_error;
mod study;
mod work;
mod world;

use std::time::Duration;

use clap::Args;

pub(crate) use self::account::Account;
pub(crate) use self::arrivals::{Arrivals, SECOND_NS, Shape};
pub(crate) use self::fleet::Faults;
pub(crate) use self::ideal::{Ideal, Quota};
pub(crate) use self::pattern::{Behaviour, CLIENTS, Caller, Pattern};
pub(crate) use self::rules::{REFILL, one_fleet_quota, one_quota};
pub(crate) use self::settle_error::SettleError;
pub(crate) use self::study::Study;
pub(crate) use self::work::Knowledge;
pub(crate) use self::world::{Outcome, Scenario};
use crate::failure::Failure;

/// Arguments of `umbo-loadtest simulate`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The same seed gives the same bytes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Traffic patterns; all where none is named
    #[arg(long, value_enum)]
    pattern: Vec<Pattern>,
    /// Models of estimation errors; all where none is named
    #[arg(long, value_enum)]
    error: Vec<SettleError>,
    /// How costs can be known beforehand
    #[arg(long, value_enum, default_value_t = Knowledge::Declared)]
    knowledge: Knowledge,
    /// Simulated seconds of each run
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Dispatchers, over which requests are spread; each has a limiter of its own
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pods: u32,
    /// The dispatchers share the quota
    #[arg(long)]
    fleet: bool,
    /// Messages of the fleet that are lost, in per cent
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=70), requires = "fleet")]
    lost: u32,
    /// All requests of the fleet come through one dispatcher
    #[arg(long, requires = "fleet")]
    on_one: bool,
    /// Kills the owner after so many seconds
    #[arg(long, requires = "fleet")]
    kill_at: Option<u64>,
    /// Kills another dispatcher each time so many seconds have passed
    #[arg(long, requires = "fleet")]
    churn: Option<u64>,
    /// Quota of a caller on a pod, in request units a second
    #[arg(long, default_value_t = 40_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rate: u64,
    /// Burst, in milliseconds of the rate
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    burst_ms: u64,
    /// Refill quantum, in milliseconds
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(10..=10_000))]
    refill_ms: u64,
    /// Mean cost of a request, in request units
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    mean_cost: u64,
}

impl Arguments {
    /// Runs the study and prints its tables.
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.study()?.run(|line| println!("{line}"));
        Ok(())
    }

    fn study(self) -> Result<Study, Failure> {
        let quota = Quota {
            rate: self.rate * 1_000_000,
            burst: (self.rate * 1_000 * self.burst_ms).max(1_000_000),
        };
        // What a refill brings has to fit the burst.
        let brings = self.rate * 1_000 * self.refill_ms;
        if quota.burst < brings {
            return Err(Failure::Contradiction(format!(
                "a burst of {} ms is less than the {} ms that one refill brings",
                self.burst_ms, self.refill_ms
            )));
        }
        let or_all = |named: Vec<Pattern>| {
            if named.is_empty() {
                Pattern::ALL.to_vec()
            } else {
                named
            }
        };
        let errors = if self.error.is_empty() {
            SettleError::ALL.to_vec()
        } else {
            self.error
        };
        Ok(Study {
            seed: self.seed,
            patterns: or_all(self.pattern),
            errors,
            knowledge: self.knowledge,
            length_s: self.seconds,
            pods: self.pods,
            fleet: self.fleet.then_some(Faults {
                lost: f64::from(self.lost) / 100.0,
                is_on_one: self.on_one,
                killed_at_s: self.kill_at,
                churn_s: self.churn,
            }),
            quota,
            refill: Duration::from_millis(self.refill_ms),
            mean_cost: self.mean_cost * 1_000_000,
        })
    }
}

#[cfg(test)]
#[path = "simulate_tests.rs"]
mod tests;
