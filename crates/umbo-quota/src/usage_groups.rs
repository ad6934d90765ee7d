//! Sums of usage over steps: of all processes, in groups that a report asks for.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use umbo_types::Operation;

use crate::usage_steps::{STEP_SECONDS, StepUsage, UsageKey};

/// Most groups of a report; about 300 bytes each, so 20 MiB. A report with more of them is refused.
pub const GROUPS_MAX: usize = 65_536;
const STEPS_A_DAY: u64 = 86_400 / STEP_SECONDS;

/// A part of the calendar, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// A day.
    Day,
    /// A month.
    Month,
}

impl Period {
    /// Returns the name of the period of a step: `2026-11-27` or `2026-11`.
    fn name(self, step: u64) -> String {
        let (year, month, day) = date(step / STEPS_A_DAY);
        match self {
            Self::Day => format!("{year:04}-{month:02}-{day:02}"),
            Self::Month => format!("{year:04}-{month:02}"),
        }
    }

    /// Returns the periods that steps up to the present hold only a part of: the last one, which has not ended, and the
    /// first one unless they begin with it.
    pub fn partial(self, steps: &RangeInclusive<u64>) -> Vec<String> {
        let (first, last) = (*steps.start(), *steps.end());
        let mut partial = vec![self.name(last)];
        if self.name(first.saturating_sub(1)) == self.name(first) {
            partial.push(self.name(first));
        }
        partial
    }
}

/// Returns year, month and day of a day since the Unix epoch, by the algorithm `civil_from_days` of Howard Hinnant
/// ("chrono-Compatible Low-Level Date Algorithms", 2013) for days that are not negative.
const fn date(day: u64) -> (u64, u64, u64) {
    // Years begin in March here, and eras of 146,097 days in the year 0.
    let day = day + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    (era * 400 + year + (month <= 2) as u64, month, day)
}

/// What a report distinguishes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupBy {
    /// Days or months; `None` for the whole time.
    pub period: Option<Period>,
    /// Callers.
    pub caller: bool,
    /// Namespaces.
    pub namespace: bool,
    /// Operations.
    pub operation: bool,
}

/// A group; each field is `None` if the report does not distinguish it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKey {
    /// Day or month.
    pub period: Option<Arc<str>>,
    /// Caller that paid.
    pub caller: Option<Arc<str>>,
    /// Namespace.
    pub namespace: Option<Arc<str>>,
    /// Operation.
    pub operation: Option<Operation>,
}

/// The groups of a report.
#[derive(Debug)]
pub struct UsageGroups {
    by: GroupBy,
    /// The last step, and the name of its period.
    step: u64,
    period: Option<Arc<str>>,
    groups: HashMap<GroupKey, Group>,
    /// Whether usage was left out because there was no room for its group.
    is_over: bool,
}

#[derive(Debug, Default)]
struct Group {
    usage: StepUsage,
    /// The step of the last usage, and the usage in it.
    step: u64,
    in_step: StepUsage,
}

impl UsageGroups {
    /// Begins without usage.
    pub fn new(by: GroupBy) -> Self {
        Self {
            by,
            step: 0,
            period: by.period.map(|period| period.name(0).into()),
            groups: HashMap::new(),
            is_over: false,
        }
    }

    /// Adds usage of a step. The greatest sums are right if the usage of one step comes together.
    pub fn add(&mut self, step: u64, key: &UsageKey, usage: &StepUsage) {
        if step != self.step {
            self.step = step;
            self.period = self.by.period.map(|period| period.name(step).into());
        }
        let group = GroupKey {
            period: self.period.clone(),
            caller: self.by.caller.then(|| Arc::clone(&key.caller)),
            namespace: self.by.namespace.then(|| Arc::clone(&key.namespace)),
            operation: self.by.operation.then_some(key.operation),
        };
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&group) {
            self.is_over = true;
            return;
        }
        let group = self.groups.entry(group).or_default();
        if group.step != step {
            group.step = step;
            group.in_step = StepUsage::default();
        }
        let (sum, in_step) = (&mut group.usage, group.in_step.plus(usage));
        group.in_step = in_step;
        sum.tally = sum.tally.plus(&usage.tally);
        sum.second_max = sum.second_max.max(in_step.second_max);
        sum.ten_seconds_max = sum.ten_seconds_max.max(in_step.ten_seconds_max);
    }

    /// Returns the groups: the newest period first, and in a period the highest charge. Returns `None` if there are more
    /// than [`GROUPS_MAX`].
    pub fn finish(self) -> Option<Vec<(GroupKey, StepUsage)>> {
        let groups = self.groups.into_iter();
        let mut groups: Vec<_> = groups.map(|(key, group)| (key, group.usage)).collect();
        groups.sort_unstable_by(|(key, usage), (other_key, other)| {
            let by_period = other_key.period.cmp(&key.period);
            let by_charge = other.tally.charged.cmp(&usage.tally.charged);
            by_period.then(by_charge).then_with(|| key.cmp(other_key))
        });
        (!self.is_over).then_some(groups)
    }
}
