//! What came of a drill: how many reads became one, and what normal traffic noticed.

use std::time::Duration;

use super::traffic::{Target, Traffic};
use crate::latencies::Latencies;
use crate::load::pace::Moment;
use crate::load::{Report, pace};

/// Between two looks at the counters, and the length of an interval of the report.
pub(super) const INTERVAL: Duration = Duration::from_millis(250);
/// Seconds after which the keys of an attack are detected: two ticks of the detector, and as much for
/// clients that connect.
const DETECTION_S: f64 = 0.5;

/// What came of a drill.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Seconds of the whole.
    pub(super) whole_s: f64,
    /// When the attack began.
    pub(super) attack_from_s: f64,
    /// What the attack got.
    pub(crate) attack: Report,
    /// What the gets of other keys got.
    pub(crate) gets: pace::Report,
    /// What puts and ranges got.
    pub(crate) others: pace::Report,
    /// Reads of single rows that the store was asked for.
    pub(crate) store_gets: f64,
    /// Seconds from the beginning, and reads of the store since then.
    pub(super) looks: Vec<(f64, f64)>,
}

/// Normal traffic in a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// Requests a second that succeeded.
    pub(crate) goodput: f64,
    /// Requests that did not.
    pub(crate) failed: usize,
    /// Latencies of gets, in milliseconds.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

impl Outcome {
    /// Returns the reads of the store that the attack has cost until its keys were detected, and since:
    /// each get of normal traffic is of a key of its own, and costs one.
    pub(crate) fn attack_store_reads(&self) -> (f64, f64) {
        let detected_s = self.attack_from_s + DETECTION_S;
        let mut looks = self.looks.iter();
        let look = looks.find(|look| look.0 >= detected_s);
        let (at_s, until) = look.copied().unwrap_or((self.whole_s, self.store_gets));
        // A request reads the store shortly before it is answered: what it waits for is the server.
        let answered = self.gets.moments.iter().filter_map(Moment::answered_s);
        let before = answered.filter(|answered_s| *answered_s < at_s).count() as f64;
        let since = self.store_gets - until - (self.gets.succeeded as f64 - before);
        ((until - before).max(0.0), since.max(0.0))
    }

    /// Returns how many reads of the attack became one of the store, since its keys were detected.
    pub(crate) fn collapse(&self) -> f64 {
        let samples = (DETECTION_S / INTERVAL.as_secs_f64()).ceil() as usize;
        let before: u64 = self.attack.samples.iter().take(samples).sum();
        let since = self.attack.requests.saturating_sub(before);
        since as f64 / self.attack_store_reads().1.max(1.0)
    }

    /// Returns requests that were not answered as they should be.
    pub(crate) fn errors(&self) -> u64 {
        let normal = [&self.gets, &self.others];
        let normal = normal.map(|report| report.failed + report.rejected);
        self.attack.failed + normal[0] + normal[1]
    }

    /// Returns how long the attack lasted, in seconds.
    pub(crate) fn attack_s(&self) -> f64 {
        self.attack.seconds
    }

    /// Returns what normal traffic noticed in a time.
    pub(crate) fn window(&self, from_s: f64, to_s: f64) -> Window {
        let within = |moment: &&Moment| (from_s..to_s).contains(&moment.due_s);
        let gets = self.gets.moments.iter().filter(within);
        let all = gets
            .clone()
            .chain(self.others.moments.iter().filter(within));
        let (mut succeeded, mut failed) = (0, 0);
        for moment in all {
            match moment.latency_us {
                Some(_) => succeeded += 1,
                None => failed += 1,
            }
        }
        let latencies = gets.filter_map(|moment| moment.latency_us);
        let latencies: Latencies = latencies.map(|us| us / 1e3).collect();
        let quantile_ms = |share| latencies.quantile_ms(share).unwrap_or(f64::NAN);
        Window {
            goodput: f64::from(succeeded) / (to_s - from_s),
            failed,
            p50_ms: quantile_ms(0.5),
            p99_ms: quantile_ms(0.99),
        }
    }

    /// Returns the report, as lines.
    pub(super) fn lines(&self, traffic: &Traffic) -> Vec<String> {
        let to_s = self.attack_from_s + self.attack_s();
        let attack = &self.attack;
        let mut lines = vec![
            format!(
                "attack                    {} reads answered in {:.1} s, {:.0} a second; {} failed",
                attack.requests,
                attack.seconds,
                attack.rate(),
                attack.failed
            ),
            format!(
                "reads of the store        {:.0} of the attack until detection, {:.0} since{}",
                self.attack_store_reads().0,
                self.attack_store_reads().1,
                bound(traffic.target, attack.seconds)
            ),
            format!("collapse since detection  {:.0} : 1", self.collapse()),
        ];
        lines.push(format!(
            "{:<26}{:>12}{:>12}{:>12}",
            "normal traffic", "before", "during", "after"
        ));
        let windows = [
            self.window(0.0, self.attack_from_s),
            self.window(self.attack_from_s, to_s),
            self.window(to_s, self.whole_s),
        ];
        let row = |name: &str, figure: fn(&Window) -> String| {
            let [before, during, after] = windows.each_ref().map(figure);
            format!("{name:<26}{before:>12}{during:>12}{after:>12}")
        };
        lines.push(row("  goodput, a second", |w| format!("{:.1}", w.goodput)));
        lines.push(row("  not answered well", |w| w.failed.to_string()));
        lines.push(row("  p50 of gets, ms", |w| format!("{:.3}", w.p50_ms)));
        lines.push(row("  p99 of gets, ms", |w| format!("{:.3}", w.p99_ms)));
        lines
    }
}

/// Returns what the store may be asked at most by an attack on so many keys for so long: a read a key
/// and time to live, and a twentieth.
pub(crate) fn reads_max(keys: u64, seconds: f64, ttl_s: f64) -> f64 {
    keys as f64 * (seconds / ttl_s).ceil() * 1.05
}

fn bound(target: Target, seconds: f64) -> String {
    let (keys, ttl_s) = match target {
        Target::Keys(keys) => (keys, 3.0),
        Target::Absent(keys) => (keys, 1.0),
        Target::Spread => return String::new(),
    };
    format!(
        ", at most {:.1} (keys x ceil(T / TTL) x 1.05)",
        reads_max(keys, seconds, ttl_s)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        let moment = |due_s, latency_us| Moment { due_s, latency_us };
        let gets = pace::Report {
            succeeded: 3,
            failed: 1,
            moments: vec![
                moment(0.5, Some(1_000.0)),
                moment(1.5, Some(3_000.0)),
                moment(1.6, None),
                moment(2.5, Some(2_000.0)),
            ],
            ..pace::Report::default()
        };
        Outcome {
            whole_s: 3.0,
            attack_from_s: 1.0,
            attack: Report {
                requests: 70_000,
                failed: 2,
                seconds: 1.0,
                server_cpu_seconds: 0.0,
                bytes: 0,
                p50_micros: None,
                samples: vec![10_000, 20_000, 40_000],
            },
            gets,
            others: pace::Report::default(),
            store_gets: 10.0,
            looks: vec![(0.5, 1.0), (1.5, 8.0), (3.0, 10.0)],
        }
    }

    #[test]
    fn reads_of_normal_traffic_are_not_the_attacks() {
        let outcome = outcome();
        assert_eq!(outcome.attack_store_reads(), (7.0, 0.0));
        assert!((outcome.collapse() - 40_000.0).abs() < 1e-9);
        assert_eq!(outcome.errors(), 3);
    }

    #[test]
    fn a_window_holds_what_was_due_in_it() {
        let window = outcome().window(1.0, 2.0);
        assert!((window.goodput - 1.0).abs() < 1e-9);
        assert_eq!(window.failed, 1);
        assert!((window.p99_ms - 3.0).abs() < 0.003);
    }

    #[test]
    fn a_read_a_key_is_allowed_for_every_time_to_live_that_has_begun() {
        assert!((reads_max(10, 27.9, 3.0) - 105.0).abs() < 1e-9);
        assert!((reads_max(10, 27.0, 3.0) - 94.5).abs() < 1e-9);
    }
}
