//! A study: scenarios run one after the other, as a table.
//!
//! Equal studies give equal bytes: nothing of the machine or its clock gets into them.

use std::fmt::Write as _;
use std::time::Duration;

use umbo_quota::Unit;

use super::account::Account;
use super::fleet::Faults;
use super::ideal::Quota;
use super::pattern::Pattern;
use super::rules::{one_fleet_quota, one_quota};
use super::settle_error::SettleError;
use super::work::Knowledge;
use super::world::{Outcome, Scenario};

/// Micro-RU of a request unit.
const MICROS: f64 = 1e6;

/// What is studied.
#[derive(Debug, Clone)]
pub(crate) struct Study {
    /// Of all randomness.
    pub(crate) seed: u64,
    /// Traffic patterns.
    pub(crate) patterns: Vec<Pattern>,
    /// Models of the error.
    pub(crate) errors: Vec<SettleError>,
    /// How costs can be known beforehand.
    pub(crate) knowledge: Knowledge,
    /// Simulated seconds of each run.
    pub(crate) length_s: u64,
    /// Dispatchers.
    pub(crate) pods: u32,
    /// Of a caller on a pod, in micro-RU.
    pub(crate) quota: Quota,
    /// Whether the pods share counters, and what goes wrong then.
    pub(crate) fleet: Option<Faults>,
    /// Refill quantum.
    pub(crate) refill: Duration,
    /// Mean cost of a request, in micro-RU.
    pub(crate) mean_cost: u64,
}

impl Study {
    /// Runs every pattern with every model. `show` gets each line of the table when it is known.
    pub(crate) fn run(&self, mut show: impl FnMut(String)) {
        show(self.heading());
        show(format!(
            "{:<10} {:<11} {:<14} {:>9} {:>9} {:>10} {:>10} {:>7} {:>7} {:>7}",
            "pattern",
            "error",
            "caller",
            "requests",
            "rejected",
            "offered/s",
            "admitted/s",
            "least",
            "most",
            "second"
        ));
        for &pattern in &self.patterns {
            for &error in &self.errors {
                let scenario = self.scenario(pattern, error);
                let outcome = scenario.run();
                for line in lines(pattern, error, &scenario, &outcome) {
                    show(line);
                }
            }
        }
    }

    /// Returns one of the scenarios.
    pub(crate) fn scenario(&self, pattern: Pattern, error: SettleError) -> Scenario {
        Scenario {
            seed: self.seed,
            length_s: self.length_s,
            pods: self.pods,
            callers: pattern.callers(),
            quota: self.quota,
            fleet: self.fleet,
            unit: Unit::Ru,
            error,
            mean_cost: self.mean_cost,
            knowledge: self.knowledge,
            policies: match self.fleet {
                Some(_) => one_fleet_quota(Unit::Ru, self.quota, self.refill),
                None => one_quota(Unit::Ru, self.quota, self.refill),
            },
        }
    }

    fn heading(&self) -> String {
        format!(
            "seed {}, {} s, {} pods; on each a caller has {} RU/s and a burst of {} RU, refilled every {} ms; {} RU a request on average\n\
             least, most: admitted of what an exact bucket serves, over any 60 s; second: the most in any second, of burst + 1.05 x rate",
            self.seed,
            self.length_s,
            self.pods,
            self.quota.rate as f64 / MICROS,
            self.quota.burst as f64 / MICROS,
            self.refill.as_millis(),
            self.mean_cost as f64 / MICROS,
        )
    }
}

/// Returns a line for each caller, the pods together.
fn lines(
    pattern: Pattern,
    error: SettleError,
    scenario: &Scenario,
    outcome: &Outcome,
) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, accounts) in scenario.names().iter().zip(&outcome.accounts) {
        let seconds = || accounts.iter().flat_map(Account::seconds);
        let a_second = |sum: u64| sum as f64 / MICROS / scenario.length_s as f64;
        let admitted: u64 = accounts.iter().map(|account| account.admitted).sum();
        let rejected: u64 = accounts.iter().map(|account| account.rejected).sum();
        let shares = accounts.iter().filter_map(Account::shares);
        let shares = shares.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        let (least, most) = shares.map_or_else(
            || ("-".to_owned(), "-".to_owned()),
            |(least, most)| (format!("{least:.4}"), format!("{most:.4}")),
        );
        let second = accounts.iter().map(Account::worst_second);
        lines.push(format!(
            "{:<10} {:<11} {name:<14} {:>9} {rejected:>9} {:>10.1} {:>10.1} {least:>7} {most:>7} {:>7.4}",
            pattern.as_str(),
            error.as_str(),
            admitted + rejected,
            a_second(seconds().map(|second| second.offered).sum()),
            a_second(seconds().map(|second| second.admitted).sum()),
            second.fold(0.0, f64::max),
        ));
    }
    let clients = &outcome.clients.obedient;
    if clients.successes > 0 {
        let mut line = String::new();
        write!(
            line,
            "{:<22} obedient clients: {:.3} rejections a success, {:.1} % of the rejected admitted on the first retry, waits of {} to {} ms",
            "",
            clients.rejections_a_success(),
            clients.first_retry_share() * 100.0,
            clients.wait_least.unwrap_or_default().as_millis(),
            clients.wait_most.as_millis()
        )
        .expect("a string takes every write");
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study(seed: u64) -> Study {
        Study {
            seed,
            patterns: vec![Pattern::OnOff, Pattern::Runaway, Pattern::Obedient],
            errors: vec![SettleError::HeavyTail, SettleError::Under],
            knowledge: Knowledge::Declared,
            length_s: 70,
            pods: 2,
            fleet: None,
            quota: Quota {
                rate: 500_000_000,
                burst: 500_000_000,
            },
            refill: Duration::from_millis(50),
            mean_cost: 20_000_000,
        }
    }

    fn table(seed: u64) -> Vec<String> {
        let mut lines = Vec::new();
        study(seed).run(|line| lines.push(line));
        lines
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_gives_others() {
        let one = table(7);
        assert_eq!(one, table(7));
        let other = table(8);
        assert_ne!(one[2..], other[2..]);
        // Runaway has six callers, obedient clients a second line; the heading has two lines in one text.
        assert_eq!(one.len(), 2 + 2 * (1 + 6 + 2));
    }
}
