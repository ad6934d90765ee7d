//! The callers beside a flood: small requests at a steady pace, whatever the answers are.
//!
//! A latency counts from the instant at which its request was due, so a late answer delays nothing that is measured.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{Scope, ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

use super::culprit::{fields, reason};
use crate::bench::lab::{NAMESPACE, UMBO};
use crate::check::connection::Connection;
use crate::failure::Failure;
use crate::latencies::Latencies;
use crate::load::requests::http;
use crate::random::Random;

/// Rows that victims read and write.
const KEYS: u64 = 64;
/// Length of their values, in bytes.
const VALUE: [u8; 100] = [b'v'; 100];
/// Time between two requests of a connection.
const GAP: Duration = Duration::from_millis(40);
/// An answer within this time is a good one, in milliseconds.
const GOOD_MS: f64 = 1_000.0;

/// A kind of victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Victim {
    /// Puts of tier `critical`.
    Critical,
    /// Puts of tier `sheddable-plus`.
    Puts,
    /// Gets of the same caller.
    Gets,
}

/// A request of a victim.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) victim: Victim,
    pub(super) due: Instant,
    /// From that instant to the answer, in milliseconds.
    took_ms: f64,
    /// Why it was refused or failed.
    pub(super) refused: Option<String>,
    /// What it was charged, in request units.
    pub(super) units: f64,
}

impl Victim {
    pub(super) const ALL: [Self; 3] = [Self::Critical, Self::Puts, Self::Gets];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical puts",
            Self::Puts => "sheddable-plus puts",
            Self::Gets => "sheddable-plus gets",
        }
    }

    pub(super) const fn caller(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Puts | Self::Gets => "innocent",
        }
    }

    fn fields(self) -> String {
        let tier = match self {
            Self::Critical => "critical",
            Self::Puts | Self::Gets => "sheddable-plus",
        };
        fields(self.caller(), tier)
    }

    fn request(self, random: &mut Random) -> Vec<u8> {
        let key = random.below(KEYS);
        let target = format!("/v1/ns/{NAMESPACE}/kv/small{key:02}/s");
        match self {
            Self::Critical | Self::Puts => http("PUT", &target, &self.fields(), &VALUE),
            Self::Gets => http("GET", &target, &self.fields(), b""),
        }
    }

    /// Puts each of the rows once.
    pub(super) fn prepare() -> Result<(), Failure> {
        let mut connection = Connection::open(UMBO)?;
        for key in 0..KEYS {
            let target = format!("/v1/ns/{NAMESPACE}/kv/small{key:02}/s");
            let answer = connection.ask(&http("PUT", &target, "", &VALUE))?;
            if !answer.is_success() {
                return Err(answer.unexpected());
            }
        }
        Ok(())
    }

    fn run(self, number: u64, is_over: &AtomicBool) -> Result<Vec<Sample>, Failure> {
        let mut samples = Vec::new();
        let mut random = Random::seeded(number);
        let mut connection = Connection::open(UMBO)?;
        // Connections take turns within the gap.
        let mut due = Instant::now() + GAP * (number as u32) / CONNECTIONS.len() as u32;
        while !is_over.load(Relaxed) {
            sleep(due.saturating_duration_since(Instant::now()));
            let answer = connection.ask(&self.request(&mut random));
            let mut sample = Sample {
                victim: self,
                due,
                took_ms: due.elapsed().as_secs_f64() * 1e3,
                refused: None,
                units: 0.0,
            };
            match answer {
                Ok(answer) => {
                    sample.units = answer.number("\r\numbo-ru:").unwrap_or(0.0);
                    sample.refused = (!answer.is_success()).then(|| reason(&answer));
                    if answer.header("connection") == Some("close") {
                        connection = Connection::open(UMBO)?;
                    }
                }
                Err(failure) => {
                    sample.refused = Some(failure.to_string());
                    connection = Connection::open(UMBO)?;
                }
            }
            samples.push(sample);
            due += GAP;
        }
        Ok(samples)
    }
}

/// Connections of the victims, 25 requests a second each.
const CONNECTIONS: [Victim; 5] = [
    Victim::Critical,
    Victim::Gets,
    Victim::Puts,
    Victim::Critical,
    Victim::Gets,
];

/// Victims under way.
pub(super) type Victims<'scope> = Vec<ScopedJoinHandle<'scope, Result<Vec<Sample>, Failure>>>;

/// Lets all victims ask until `is_over`.
pub(super) fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    is_over: &'scope AtomicBool,
) -> Victims<'scope> {
    let connections = (0..).zip(CONNECTIONS);
    let start = |(number, victim): (u64, Victim)| scope.spawn(move || victim.run(number, is_over));
    connections.map(start).collect()
}

/// Waits for all victims.
pub(super) fn join(victims: Victims<'_>) -> Result<Vec<Sample>, Failure> {
    let mut samples = Vec::new();
    for victim in victims {
        samples.extend(victim.join().expect("no client panics")?);
    }
    Ok(samples)
}

/// What a victim got over some time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Got {
    /// Of what succeeded, in milliseconds.
    pub(super) p50: f64,
    pub(super) p95: f64,
    /// Share that was answered with success within a second.
    pub(super) good: f64,
    /// The most that one was charged, in request units.
    pub(super) units_max: f64,
}

/// Sums up what was due within a time.
pub(super) fn got(samples: &[Sample], victim: Victim, (from, to): (Instant, Instant)) -> Got {
    let is_meant = |sample: &&Sample| sample.victim == victim && (from..to).contains(&sample.due);
    let meant: Vec<&Sample> = samples.iter().filter(is_meant).collect();
    let answered = meant.iter().filter(|sample| sample.refused.is_none());
    let times_ms = answered.map(|sample| sample.took_ms);
    let good = times_ms.clone().filter(|took_ms| *took_ms <= GOOD_MS);
    let good = good.count() as f64;
    let times: Latencies = times_ms.collect();
    let quantile = |share| times.quantile_ms(share).unwrap_or(f64::INFINITY);
    Got {
        p50: quantile(0.5),
        p95: quantile(0.95),
        good: good / (meant.len() as f64).max(1.0),
        units_max: meant.iter().map(|sample| sample.units).fold(0.0, f64::max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_or_late_is_not_good_and_other_times_do_not_count() {
        let begun = Instant::now();
        let sample = |at_ms: u64, took_ms: f64, refused: Option<&str>| Sample {
            victim: Victim::Critical,
            due: begun + Duration::from_millis(at_ms),
            took_ms,
            refused: refused.map(str::to_owned),
            units: took_ms,
        };
        let samples = [
            sample(0, 2.0, None),
            sample(10, 4.0, None),
            sample(20, 2_000.0, None),
            sample(30, 1.0, Some("overloaded")),
            sample(1_000, 9_000.0, None),
        ];
        let within = (begun, begun + Duration::from_secs(1));
        let got = got(&samples, Victim::Critical, within);
        assert!((got.good - 0.5).abs() < 1e-9, "{got:?}");
        assert!((got.p50 - 4.0).abs() < 0.004, "{got:?}");
        assert!((got.units_max - 2_000.0).abs() < 1e-9, "{got:?}");
    }
}
