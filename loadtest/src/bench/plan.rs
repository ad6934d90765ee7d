//! Rounds of a comparison: A B, then B A, and so on, and the ratio within each round.
//!
//! A shared machine has fast and slow minutes. A ratio of two neighbours in time does not care.

use crate::failure::Failure;
use crate::load::Report;
use crate::verdict::{Bound, Verdict, median};

/// How long and how often is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Rounds.
    pub(crate) rounds: usize,
    /// Time of a turn before anything is counted, in milliseconds.
    pub(crate) warm_up_ms: u64,
    /// Time of a turn that is counted, in milliseconds.
    pub(crate) measure_ms: u64,
}

/// The turns of two servers, round by round.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    rounds: Vec<(Report, Report)>,
}

impl Pairs {
    /// Measures both servers by turns; the argument of each is the number of the round.
    pub(crate) fn measure(
        rounds: usize,
        mut one: impl FnMut(usize) -> Result<Report, Failure>,
        mut other: impl FnMut(usize) -> Result<Report, Failure>,
    ) -> Result<Self, Failure> {
        let mut pairs = Self::default();
        for round in 0..rounds {
            let pair = if round % 2 == 0 {
                let first = one(round)?;
                (first, other(round)?)
            } else {
                let second = other(round)?;
                (one(round)?, second)
            };
            pairs.rounds.push(pair);
        }
        Ok(pairs)
    }

    /// Returns the ratio of a figure of the one to that of the other, for each round.
    pub(crate) fn ratios(&self, figure: impl Fn(&Report) -> f64) -> Vec<f64> {
        let ratio = |(one, other): &(Report, Report)| figure(one) / figure(other);
        self.rounds.iter().map(ratio).collect()
    }

    /// Returns the medians of a figure of both.
    pub(crate) fn medians(&self, figure: impl Fn(&Report) -> f64) -> (f64, f64) {
        let of = |pick: fn(&(Report, Report)) -> &Report| {
            let mut figures: Vec<f64> = self.rounds.iter().map(|pair| figure(pick(pair))).collect();
            figures.sort_by(f64::total_cmp);
            median(&figures)
        };
        (of(|pair| &pair.0), of(|pair| &pair.1))
    }

    /// Compares requests a second.
    pub(crate) fn rate(&self, what: impl Into<String>, bound: Bound) -> Verdict {
        let (one, other) = self.medians(Report::rate);
        let detail = format!("{one:.0} and {other:.0} a second");
        Verdict::new(what, bound, self.ratios(Report::rate), detail)
    }

    /// Compares the processor time of a request.
    pub(crate) fn cpu(&self, what: impl Into<String>, bound: Bound) -> Verdict {
        let (one, other) = self.medians(Report::cpu_micros);
        let detail = format!("{one:.2} µs and {other:.2} µs");
        Verdict::new(what, bound, self.ratios(Report::cpu_micros), detail)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn report(requests: u64) -> Report {
        Report {
            requests,
            failed: 0,
            seconds: 1.0,
            server_cpu_seconds: 1.0,
            bytes: 0,
            p50_micros: None,
            samples: Vec::new(),
        }
    }

    #[test]
    fn every_second_round_is_the_other_way_round() {
        let turns = RefCell::new(String::new());
        let turn = |name, requests| {
            turns.borrow_mut().push(name);
            Ok(report(requests))
        };
        let pairs = Pairs::measure(3, |_| turn('a', 30), |_| turn('b', 20)).unwrap();
        assert_eq!(*turns.borrow(), "abbaab");
        assert_eq!(pairs.ratios(Report::rate), [1.5; 3]);
        assert_eq!(pairs.medians(Report::rate), (30.0, 20.0));
    }
}
