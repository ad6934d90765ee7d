//! What came of a scenario: what each tier asked for and got, and how long trouble lasted.

use super::plan::Plan;
use super::traffic::Sample;
use crate::latencies::Latencies;

/// Length of the intervals in which recovery is looked for.
const LOOK_S: f64 = 0.1;
/// Share of the requests that are answered once it is over.
const NORMAL: f64 = 0.95;
/// All tiers, highest first.
pub(super) const TIERS: [&str; 3] = ["critical", "sheddable-plus", "sheddable"];

/// What came of a scenario.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(super) plan: Plan,
    /// In order of time.
    pub(super) samples: Vec<Sample>,
}

/// Requests of one kind in a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// Requests a second.
    pub(crate) offered: f64,
    /// Requests a second that succeeded.
    pub(crate) goodput: f64,
    /// Shares of all, of 1.
    pub(crate) succeeded: f64,
    shed: f64,
    late: f64,
    other: f64,
    /// Latencies of those that succeeded, in milliseconds.
    p50_ms: f64,
    pub(crate) p99_ms: f64,
    p999_ms: f64,
}

impl Outcome {
    pub(super) fn of(plan: &Plan, mut samples: Vec<Sample>) -> Self {
        samples.sort_by(|one, other| one.due_s.total_cmp(&other.due_s));
        Self {
            plan: plan.clone(),
            samples,
        }
    }

    /// Returns what became of the requests that were due in a time.
    pub(super) fn window(
        &self,
        from_s: f64,
        to_s: f64,
        is_meant: impl Fn(&Sample) -> bool,
    ) -> Window {
        let first = self.samples.partition_point(|sample| sample.due_s < from_s);
        let end = self.samples.partition_point(|sample| sample.due_s < to_s);
        let meant: Vec<&Sample> = self.samples[first..end]
            .iter()
            .filter(|sample| is_meant(sample))
            .collect();
        let count = |is: fn(u16) -> bool| meant.iter().filter(|s| is(s.status)).count() as f64;
        let succeeded = count(|status| (200..300).contains(&status) || status == 404);
        let (shed, late) = (count(|status| status == 503), count(|status| status == 504));
        let all = meant.len() as f64;
        let latencies: Latencies = meant
            .iter()
            .filter(|sample| (200..300).contains(&sample.status) || sample.status == 404)
            .map(|sample| sample.latency_s * 1e3)
            .collect();
        let quantile_ms = |share| latencies.quantile_ms(share).unwrap_or(f64::NAN);
        Window {
            offered: all / (to_s - from_s),
            goodput: succeeded / (to_s - from_s),
            succeeded: succeeded / all.max(1.0),
            shed: shed / all.max(1.0),
            late: late / all.max(1.0),
            other: (all - succeeded - shed - late) / all.max(1.0),
            p50_ms: quantile_ms(0.5),
            p99_ms: quantile_ms(0.99),
            p999_ms: quantile_ms(0.999),
        }
    }

    /// Returns what became of the requests before the trouble; of those after the first second, in
    /// which the server learns.
    pub(crate) fn before(&self, is_meant: impl Fn(&Sample) -> bool) -> Window {
        self.window(1.0, self.plan.from_s, is_meant)
    }

    /// Returns what became of the requests during the trouble.
    pub(crate) fn trouble(&self, is_meant: impl Fn(&Sample) -> bool) -> Window {
        self.window(self.plan.from_s, self.plan.to_s, is_meant)
    }

    /// Returns seconds from the beginning of the trouble to the first request that was shed.
    fn engaged_after_s(&self) -> Option<f64> {
        let shed = |sample: &&Sample| sample.status == 503 && sample.due_s >= self.plan.from_s;
        let first = self.samples.iter().find(shed)?;
        Some(first.due_s + first.latency_s - self.plan.from_s)
    }

    /// Returns seconds from the end of the trouble to the moment from which nearly all requests
    /// succeed; none where that does not come.
    pub(crate) fn recovered_after_s(&self) -> Option<f64> {
        let looks = ((self.plan.whole_s - self.plan.to_s) / LOOK_S) as usize;
        let is_normal = |at: usize| {
            let from_s = self.plan.to_s + at as f64 * LOOK_S;
            self.window(from_s, from_s + LOOK_S, |_| true).succeeded >= NORMAL
        };
        let last_bad = (0..looks).rev().find(|&at| !is_normal(at));
        match last_bad {
            None => Some(0.0),
            Some(at) if at + 1 < looks => Some((at + 1) as f64 * LOOK_S),
            Some(_) => None,
        }
    }

    pub(super) fn print(&self) {
        let Plan {
            from_s,
            to_s,
            whole_s,
            ..
        } = self.plan;
        println!(
            "{:<8} {:<15} {:>9} {:>9} {:>7} {:>6} {:>6} {:>6} {:>8} {:>8} {:>8}",
            "phase",
            "tier",
            "offered/s",
            "goodput/s",
            "served",
            "shed",
            "late",
            "other",
            "p50 ms",
            "p99 ms",
            "p99.9 ms"
        );
        for (phase, from_s, to_s) in [
            ("before", 0.0, from_s),
            ("trouble", from_s, to_s),
            ("after", to_s, whole_s),
        ] {
            for tier in TIERS {
                let window = self.window(from_s, to_s, |sample| sample.tier == tier);
                print_row(phase, tier, &window);
            }
            print_row(phase, "all", &self.window(from_s, to_s, |_| true));
        }
        if self.samples.iter().any(|sample| sample.caller == "noisy") {
            let quiet = self.window(from_s, to_s, |sample| sample.caller != "noisy");
            print_row("trouble", "neighbours", &quiet);
        }
        let seconds = |time: Option<f64>, never: &str| {
            time.map_or_else(|| never.to_owned(), |time| format!("{time:.2} s"))
        };
        println!(
            "first shed after          {}",
            seconds(self.engaged_after_s(), "never")
        );
        println!(
            "95 % served again after   {}",
            seconds(self.recovered_after_s(), "not in time")
        );
    }
}

fn print_row(phase: &str, tier: &str, window: &Window) {
    println!(
        "{phase:<8} {tier:<15} {:>9.0} {:>9.0} {:>6.2}% {:>5.1}% {:>5.1}% {:>5.1}% {:>8.1} {:>8.1} {:>8.1}",
        window.offered,
        window.goodput,
        window.succeeded * 100.0,
        window.shed * 100.0,
        window.late * 100.0,
        window.other * 100.0,
        window.p50_ms,
        window.p99_ms,
        window.p999_ms,
    );
}

#[cfg(test)]
mod tests {
    use super::super::plan::SCENARIOS;
    use super::*;

    fn sample(due_s: f64, status: u16) -> Sample {
        Sample {
            tier: "critical",
            caller: "web",
            shard: Some(0),
            is_write: false,
            due_s,
            latency_s: 0.01,
            status,
        }
    }

    #[test]
    fn recovery_is_when_it_stays() {
        let plan = SCENARIOS[0].plan(2.0, 3.0);
        let bad = [5.05, 5.35];
        let samples = (0..70).map(|at| f64::from(at) * 0.1 + 0.05);
        let status = |due_s: f64| {
            if bad.iter().any(|bad| (due_s - bad).abs() < 0.01) {
                503
            } else {
                204
            }
        };
        let samples: Vec<_> = samples.map(|due_s| sample(due_s, status(due_s))).collect();
        let outcome = Outcome::of(&plan, samples);
        assert!((outcome.recovered_after_s().unwrap() - 0.4).abs() < 1e-6);
        assert!((outcome.engaged_after_s().unwrap() - 3.06).abs() < 1e-6);
        let window = outcome.window(2.0, 5.0, |_| true);
        assert!((window.goodput - 10.0).abs() < 1e-9 && (window.succeeded - 1.0).abs() < 1e-9);
    }
}
