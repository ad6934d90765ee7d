//! Slow averages of the rates and latencies: the usual values that rules compare with.
//!
//! Owns the averages of a bounded number of subjects. They learn unusual values slowly, so that a finding stands for
//! longer than an incident lasts, and a change for good becomes usual within hours.

use std::collections::{BTreeMap, VecDeque};

/// Seconds that an average looks back: an incident of a minute hardly moves it, and a day has its hours.
const SECONDS: f64 = 600.0;
/// Seconds of history before anything is compared: the average of fewer is one of a start.
pub(super) const SECONDS_MIN: u32 = 60;
/// How much slower an average learns unusual values.
const UNUSUAL_SLOWER: f64 = 20.0;
/// Most subjects of a kind: a cluster has no more nodes, and callers with series are fewer.
const SUBJECTS_MAX: usize = 512;
/// Seconds without a sign of a subject after which it is forgotten.
const ABSENT_MAX: u32 = 3_600;
/// Seconds of commits in a mean: the same number as for the latency of calls.
const COMMIT_SECONDS: usize = 5;

/// A slow average.
#[derive(Debug, Clone, Copy, Default)]
struct Average {
    mean: f64,
    seconds: u32,
    absent: u32,
}

impl Average {
    fn learn(&mut self, value: f64, is_unusual: bool) {
        self.absent = 0;
        self.seconds = self.seconds.saturating_add(1);
        let looks_back = if is_unusual {
            SECONDS * UNUSUAL_SLOWER
        } else {
            f64::from(self.seconds).min(SECONDS)
        };
        self.mean += (value - self.mean) / looks_back;
    }
}

/// Averages of one kind, by subject.
#[derive(Debug, Default)]
pub(super) struct Averages(BTreeMap<String, Average>);

impl Averages {
    /// Returns the average of a subject, once it is known for long enough.
    pub(super) fn of(&self, subject: &str) -> Option<f64> {
        let average = self.0.get(subject)?;
        (average.seconds >= SECONDS_MIN).then_some(average.mean)
    }

    /// Returns whether a subject is known for the whole time of an average.
    pub(super) fn is_old(&self, subject: &str) -> bool {
        let known = self.0.get(subject).map(|average| average.seconds);
        known.is_some_and(|seconds| f64::from(seconds) >= SECONDS)
    }

    /// Learns a value of a subject.
    pub(super) fn learn(&mut self, subject: &str, value: f64, is_unusual: bool) {
        if let Some(average) = self.0.get_mut(subject) {
            average.learn(value, is_unusual);
        } else if self.0.len() < SUBJECTS_MAX {
            let average = self.0.entry(subject.to_owned()).or_default();
            average.learn(value, false);
        }
    }

    /// Learns that the subjects without a value are at zero.
    pub(super) fn learn_absent(&mut self, is_there: impl Fn(&str) -> bool) {
        self.0.retain(|subject, average| {
            if !is_there(subject) {
                let absent = average.absent + 1;
                average.learn(0.0, false);
                average.absent = absent;
            }
            average.absent < ABSENT_MAX
        });
    }
}

/// The slow averages of a dispatcher.
#[derive(Debug, Default)]
pub(crate) struct SlowAverages {
    /// Requests a second, by caller.
    pub(super) callers: Averages,
    /// The p99 of calls, in milliseconds, by node.
    pub(super) nodes: Averages,
    /// Time of a commit until it is on the disk, in milliseconds, by node.
    pub(super) commits: Averages,
    /// Number and nanoseconds of the commits until each of the last seconds, oldest first, by node.
    pub(super) commits_before: BTreeMap<String, VecDeque<[u64; 2]>>,
    /// How many bytes the free disk shrinks a second; one subject without a name.
    pub(super) disk: Averages,
    /// Free bytes of the disk a second ago.
    pub(super) disk_free: Option<u64>,
    /// Requests shed until a second ago, by shard.
    pub(super) shed: BTreeMap<u16, u64>,
}

impl SlowAverages {
    /// Returns how many requests were shed of a shard in the second.
    pub(super) fn shed_now(&self, shard: u16, total: u64) -> u64 {
        let before = self.shed.get(&shard).copied();
        total.saturating_sub(before.unwrap_or(total))
    }

    /// Returns the milliseconds of a commit of a node in the last seconds, if there was one.
    #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
    pub(super) fn commit_ms(&self, node: &str, total: [u64; 2]) -> Option<f64> {
        let before = self.commits_before.get(node)?.front()?;
        let [commits, nanos] = [0, 1].map(|at| total[at].saturating_sub(before[at]));
        (commits > 0).then(|| nanos as f64 / 1e6 / commits as f64)
    }

    /// Learns the commits of a node until now.
    pub(super) fn learn_commits(
        &mut self,
        node: &str,
        total: [u64; 2],
        is_slow: impl Fn(f64, f64) -> bool,
    ) {
        if let Some(now_ms) = self.commit_ms(node, total) {
            let usually = self.commits.of(node);
            let is_unusual = usually.is_some_and(|usually| is_slow(now_ms, usually));
            self.commits.learn(node, now_ms, is_unusual);
        }
        let before = self.commits_before.entry(node.to_owned()).or_default();
        before.push_back(total);
        if before.len() > COMMIT_SECONDS {
            before.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_is_that_of_all_values_first_and_forgets_slowly() {
        let mut averages = Averages::default();
        for second in 0..SECONDS_MIN {
            assert_eq!(averages.of("a"), None);
            averages.learn("a", f64::from(second % 2), false);
        }
        assert!((averages.of("a").unwrap() - 0.5).abs() < 1e-9);
        for _ in 0..60 {
            averages.learn("a", 100.0, true);
        }
        assert!(averages.of("a").unwrap() < 10.0, "{averages:?}");
        for _ in 0..1_200 {
            averages.learn("a", 100.0, false);
        }
        assert!(averages.of("a").unwrap() > 80.0);
    }

    #[test]
    fn subjects_are_bounded_and_forgotten() {
        let mut averages = Averages::default();
        for at in 0..2 * SUBJECTS_MAX {
            averages.learn(&at.to_string(), 1.0, false);
        }
        assert_eq!(averages.0.len(), SUBJECTS_MAX);
        for _ in 0..ABSENT_MAX {
            averages.learn_absent(|subject| subject == "0");
        }
        assert_eq!(averages.0.len(), 1);
    }
}
