//! Usage in steps of ten minutes, as it is kept after the process has ended.
//!
//! [`UsageSteps`] adds what the limiter has counted since the last sample to the step of the sample's second. It is told
//! which steps have been written, and keeps the others until they are. Each opened step has a new id, so no step
//! overwrites another one: not after a restart, and not when a clock goes back.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem;
use std::sync::Arc;

use umbo_types::{Operation, RequestUnits};

use crate::caller_state::CallerNamespaceUsage;
use crate::report::{OTHERS, Tally};

/// Length of a step, in seconds: 5,040 steps in 35 days, and six to an hour.
pub const STEP_SECONDS: u64 = 600;
/// How long usage is kept, in seconds: 35 days, so that a month of 31 days is whole in the days after it.
pub const KEPT_SECONDS: u64 = 35 * 86_400;
/// Most lines of a step that is written. A line has up to about 330 bytes of text before compression, with the longest
/// names and numbers, so that a step fits into the largest value (1 MiB).
pub const STEP_LINES_MAX: usize = 3_000;
/// Most lines of the open step by caller; about 300 bytes each, so 4 MiB. The caller of usage beyond them is [`OTHERS`],
/// and its namespace too beyond twice as many.
const OPEN_LINES_MAX: usize = 4 * STEP_LINES_MAX;
/// Most ended steps that wait to be written: six hours without the home of the records. The oldest ones are given up.
const ENDED_MAX: usize = 36;
/// Seconds of the longer of the two greatest sums.
const TEN_SECONDS: u64 = 10;

/// Whose usage a line of a step is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UsageKey {
    /// Name of the namespace, or [`OTHERS`].
    pub namespace: Arc<str>,
    /// The operation.
    pub operation: Operation,
    /// The caller that paid, or [`OTHERS`].
    pub caller: Arc<str>,
}

/// Usage in a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepUsage {
    /// Sums.
    pub tally: Tally,
    /// Greatest charge of a second. Of several lines together: the sum of theirs.
    pub second_max: RequestUnits,
    /// Greatest charge of ten seconds that begin at a multiple of ten. Of several lines together as above.
    pub ten_seconds_max: RequestUnits,
}

impl StepUsage {
    /// Returns the sum of two usages of one step.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            tally: self.tally.plus(&other.tally),
            second_max: self.second_max.saturating_add(other.second_max),
            ten_seconds_max: self.ten_seconds_max.saturating_add(other.ten_seconds_max),
        }
    }
}

/// A step to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageStep {
    /// Begin of the step, in steps since the Unix epoch.
    pub number: u64,
    /// Identifies the step among all steps of all processes.
    pub id: u64,
    /// The usage; at most [`STEP_LINES_MAX`] lines.
    pub lines: Vec<(UsageKey, StepUsage)>,
    /// Number of changes of the step so far.
    changes: u64,
}

/// The usage that is not written yet.
#[derive(Debug)]
pub struct UsageSteps {
    others: Arc<str>,
    open: StepInProgress,
    ended: VecDeque<UsageStep>,
    /// Ended steps that were given up, and were not told.
    given_up: u64,
    /// The second of the last sample.
    second: u64,
    /// Seconds between it and the sample before it.
    elapsed: u64,
}

#[derive(Debug, Default)]
struct StepInProgress {
    number: u64,
    id: u64,
    lines: HashMap<UsageKey, LineInProgress>,
    changes: u64,
    /// Changes that are in the written step.
    written: u64,
}

/// A line of the open step, with the sums of the second and of the ten seconds under way.
#[derive(Debug, Default)]
struct LineInProgress {
    usage: StepUsage,
    second: (u64, RequestUnits),
    ten_seconds: (u64, RequestUnits),
}

impl UsageSteps {
    /// Begins without usage. `id` is the id of the first step, and should be random; the next steps count on.
    pub fn new(id: u64) -> Self {
        Self {
            others: OTHERS.into(),
            open: StepInProgress {
                id,
                ..StepInProgress::default()
            },
            ended: VecDeque::new(),
            given_up: 0,
            second: 0,
            elapsed: 1,
        }
    }

    /// Begins the sample of a second, `elapsed` seconds after the last one. Another step than the open one ends that.
    pub(crate) fn begin_second(&mut self, second: u64, elapsed: u64) {
        (self.second, self.elapsed) = (second, elapsed.max(1));
        let number = second / STEP_SECONDS;
        if number == self.open.number {
            return;
        }
        let next = StepInProgress {
            number,
            id: self.open.id.wrapping_add(1),
            ..StepInProgress::default()
        };
        let ended = mem::replace(&mut self.open, next);
        if ended.is_unwritten() {
            self.ended.push_back(ended.to_step());
        }
        if self.ended.len() > ENDED_MAX {
            self.ended.pop_front();
            self.given_up += 1;
        }
    }

    /// Adds what a record has counted since the last sample; returns the sum of all it has counted.
    pub(crate) fn note(&mut self, record: &CallerNamespaceUsage) -> Tally {
        record.visit_new(|operation, new| {
            let key = UsageKey {
                namespace: Arc::clone(&record.namespace),
                operation,
                caller: Arc::clone(&record.caller),
            };
            self.add(key, new);
        })
    }

    /// Adds usage of the second of the sample.
    fn add(&mut self, mut key: UsageKey, new: &Tally) {
        let lines = &mut self.open.lines;
        if lines.len() >= OPEN_LINES_MAX && !lines.contains_key(&key) {
            key.caller = Arc::clone(&self.others);
        }
        if lines.len() >= 2 * OPEN_LINES_MAX && !lines.contains_key(&key) {
            key.namespace = Arc::clone(&self.others);
        }
        let line = lines.entry(key).or_default();
        line.add(self.second, self.elapsed, new);
        self.open.changes += 1;
    }

    /// Returns the steps with usage that is not written, the open one last.
    pub fn unwritten(&self) -> Vec<UsageStep> {
        let open = self.open.is_unwritten().then(|| self.open.to_step());
        self.ended.iter().cloned().chain(open).collect()
    }

    /// Returns how many ended steps were given up since the last call, because they could not be written for six hours.
    pub const fn take_given_up(&mut self) -> u64 {
        mem::replace(&mut self.given_up, 0)
    }

    /// Returns the steps whose latest usage may be in no row: the unwritten ones and the open one. Each stands for the row
    /// with its number and id.
    pub fn latest(&self) -> Vec<UsageStep> {
        let ended = self.ended.iter().cloned();
        ended.chain([self.open.to_step()]).collect()
    }

    /// Records that a step is written as [`Self::unwritten`] returned it.
    pub fn written(&mut self, step: &UsageStep) {
        if step.id == self.open.id {
            self.open.written = step.changes;
        }
        self.ended
            .retain(|ended| ended.id != step.id || ended.changes != step.changes);
    }
}

impl StepInProgress {
    const fn is_unwritten(&self) -> bool {
        self.changes > self.written
    }

    fn to_step(&self) -> UsageStep {
        let lines = self.lines.iter();
        let lines = lines.map(|(key, line)| (key.clone(), line.usage));
        UsageStep {
            number: self.number,
            id: self.id,
            lines: bounded(lines.collect(), STEP_LINES_MAX),
            changes: self.changes,
        }
    }
}

impl LineInProgress {
    fn add(&mut self, second: u64, elapsed: u64, new: &Tally) {
        self.usage.tally = self.usage.tally.plus(new);
        // A late sample counts for all seconds since the sample before it, in equal parts.
        let each = new.charged.as_micros().div_ceil(elapsed);
        let in_ten = new.charged.as_micros().min(each * TEN_SECONDS);
        let StepUsage {
            second_max,
            ten_seconds_max,
            ..
        } = &mut self.usage;
        raise(&mut self.second, second, each, second_max);
        let ten = second / TEN_SECONDS;
        raise(&mut self.ten_seconds, ten, in_ten, ten_seconds_max);
    }
}

/// Adds to the sum of a time span, and raises the greatest sum to it.
fn raise(open: &mut (u64, RequestUnits), span: u64, more: u64, max: &mut RequestUnits) {
    if open.0 != span {
        *open = (span, RequestUnits::ZERO);
    }
    open.1 = open.1.saturating_add(RequestUnits::from_micros(more));
    *max = (*max).max(open.1);
}

/// Returns the lines sorted by key, at most `max` of them: the smallest ones are summed as [`OTHERS`] by namespace and
/// operation, and if that does not suffice, by operation alone.
fn bounded(mut lines: Vec<(UsageKey, StepUsage)>, max: usize) -> Vec<(UsageKey, StepUsage)> {
    for hides_namespace in [false, true] {
        if lines.len() <= max {
            break;
        }
        lines.sort_unstable_by(|(key, usage), (other_key, other)| {
            let size = |tally: &Tally| (tally.charged, tally.requests, tally.rejected);
            let by_size = size(&other.tally).cmp(&size(&usage.tally));
            by_size.then_with(|| key.cmp(other_key))
        });
        let others: Arc<str> = OTHERS.into();
        let mut sums = BTreeMap::<UsageKey, StepUsage>::new();
        for (mut key, usage) in lines.split_off(max / 2) {
            key.caller = Arc::clone(&others);
            if hides_namespace {
                key.namespace = Arc::clone(&others);
            }
            let sum = sums.entry(key).or_default();
            *sum = sum.plus(&usage);
        }
        lines.extend(sums);
    }
    lines.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_open_step_is_bounded_however_many_namespaces_there_are() {
        let mut steps = UsageSteps::new(1);
        let usage = Tally {
            requests: 1,
            ..Tally::default()
        };
        for number in 0..3 * OPEN_LINES_MAX {
            let key = UsageKey {
                namespace: format!("n{number}").into(),
                operation: Operation::Get,
                caller: "c".into(),
            };
            steps.add(key, &usage);
        }
        assert_eq!(steps.open.lines.len(), 2 * OPEN_LINES_MAX + 1);
        let requests = steps.open.lines.values();
        let requests: u64 = requests.map(|line| line.usage.tally.requests).sum();
        assert_eq!(requests, 3 * OPEN_LINES_MAX as u64);
    }
}
