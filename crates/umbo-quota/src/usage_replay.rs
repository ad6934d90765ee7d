//! Tries a proposed policy on kept usage, which tells how much was asked for in ten minutes, in their greatest second and
//! in their greatest ten seconds, but not when. So the answer is a range.
//!
//! *Lowest*: a bucket that could use all refill of a step at once, and keeps its burst between steps, rejects no more than
//! the real one. *Highest*: demand above the refill of its second has to be covered by what the bucket holds, and it comes
//! before the step's unused refill, but leaves the bucket as if it had come after it. The same is done for ten seconds and
//! for whole steps, without the refill of two of them: it may come after the demand that it is for. The least of the
//! three counts.
//!
//! It is assumed that requests of a step cost the same each, that requests of a second come evenly, and that no rejected
//! request comes back.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::time::Duration;

use umbo_types::{Attributes, NamespaceId, RequestUnits};

use crate::bucket::WAIT_SECONDS_MAX;
use crate::cost::is_counted;
use crate::dimension::Dimension;
use crate::history::Demand;
use crate::identity::label;
use crate::policy::{Limit, Policy, PolicyScope};
use crate::replay::{Replay, ReplayRange, ReplayRow, SlotDemand};
use crate::report::OTHERS;
use crate::subject::Subject;
use crate::unit::Unit;
use crate::usage_groups::GROUPS_MAX;
use crate::usage_steps::{STEP_SECONDS, StepUsage, UsageKey};

/// Lengths of time with a greatest demand, in seconds.
const SPANS: [u64; 3] = [1, 10, STEP_SECONDS];

/// A policy that is tried on kept usage.
#[derive(Debug)]
pub struct UsageReplay {
    policy: Policy,
    /// By process and label. A policy of the scope `fleet` has one bucket for all processes.
    buckets: HashMap<(u64, Box<str>), BucketBounds>,
    /// First and last step.
    steps: Option<(u64, u64)>,
    missed: u64,
}

impl UsageReplay {
    /// Begins without usage. Fails with the dimension that the policy counts by or matches, and that kept usage lacks.
    pub fn new(policy: Policy) -> Result<Self, Dimension> {
        let named = policy.matches.dimensions();
        let mut named = named.iter().chain(policy.per.iter());
        let is_kept = |one: &Dimension| matches!(one, Dimension::Caller | Dimension::Namespace);
        if let Some(lacking) = named.find(|one| !is_kept(one)) {
            return Err(lacking);
        }
        Ok(Self {
            policy,
            buckets: HashMap::new(),
            steps: None,
            missed: 0,
        })
    }

    /// Adds usage of a step of a process. Steps of a bucket ascend.
    pub fn add(&mut self, (step, process): (u64, u64), key: &UsageKey, usage: &StepUsage) {
        let (first, _) = *self.steps.get_or_insert((step, step));
        self.steps = Some((first.min(step), step));
        let subject = Subject {
            caller: &key.caller,
            namespace: &key.namespace,
            namespace_id: NamespaceId(0),
            attributes: Attributes::NONE,
            operation: key.operation,
        };
        let policy = &self.policy;
        let demand = StepDemand::of(policy.unit, key, usage);
        let dimensions = policy.matches.dimensions();
        let is_named = |one| policy.per.contains(one) || dimensions.contains(one);
        let is_unknown = |one: Dimension| is_named(one) && one.value(&subject) == Some(OTHERS);
        if [Dimension::Caller, Dimension::Namespace]
            .into_iter()
            .any(is_unknown)
        {
            self.missed += demand.requests;
            return;
        }
        if !is_counted(policy.unit, key.operation) || !policy.applies_to(&subject) {
            return;
        }
        let process = (policy.scope != PolicyScope::Fleet).then_some(process);
        let bucket = (process.unwrap_or_default(), label(policy, &subject, None));
        if self.buckets.len() >= GROUPS_MAX && !self.buckets.contains_key(&bucket) {
            self.missed += demand.requests;
            return;
        }
        let bounds = self.buckets.entry(bucket);
        let bounds = bounds.or_insert_with(|| BucketBounds::new(policy, &subject, step));
        bounds.add(step, &demand);
    }

    /// Returns the outcome.
    pub fn finish(self) -> Replay {
        let mut rows = BTreeMap::<Box<str>, ReplayRow>::new();
        for ((_, label), bounds) in self.buckets {
            let row = bounds.into_row(&label);
            match rows.get_mut(&label) {
                Some(sum) => sum.add(&row),
                None => drop(rows.insert(label, row)),
            }
        }
        let steps = self.steps.map_or(0, |(first, last)| last + 1 - first);
        Replay {
            reach: Duration::from_secs(steps * STEP_SECONDS),
            rows: rows.into_values().collect(),
            missed: self.missed,
        }
    }
}

/// The demand of a step on a bucket. Amounts are atoms of the policy's unit.
#[derive(Debug, Clone, Copy, Default)]
struct StepDemand {
    requests: u64,
    ru: u64,
    amount: u64,
    /// Greatest demand of each of the [`SPANS`].
    greatest: [u64; 3],
    /// Highest average price.
    price: u64,
}

impl StepDemand {
    fn of(unit: Unit, key: &UsageKey, usage: &StepUsage) -> Self {
        let demand = Demand::of(&usage.tally);
        let SlotDemand { requests, amount } = SlotDemand::of((unit, key.operation), &demand, 1);
        // Of units, only request units have a greatest second. All that was rejected may have come in it.
        let charged = usage.tally.charged.saturating_sub(usage.tally.penalty);
        let rejected = amount.saturating_sub(charged.as_micros());
        let with_rejected = |max: RequestUnits| match unit {
            Unit::Ru => max.as_micros().saturating_add(rejected).min(amount),
            _ => amount,
        };
        Self {
            requests,
            ru: demand.ru,
            amount,
            greatest: [
                with_rejected(usage.second_max),
                with_rejected(usage.ten_seconds_max),
                amount,
            ],
            price: amount.div_ceil(requests.max(1)),
        }
    }

    fn add(&mut self, more: &Self) {
        self.requests += more.requests;
        self.ru = self.ru.saturating_add(more.ru);
        self.amount = self.amount.saturating_add(more.amount);
        for (greatest, more) in self.greatest.iter_mut().zip(more.greatest) {
            *greatest = greatest.saturating_add(more);
        }
        self.price = self.price.max(more.price);
    }
}

/// A bucket at its best and at its worst.
#[derive(Debug)]
struct BucketBounds {
    limit: Limit,
    /// The most that one refill brings.
    refill: u64,
    step: u64,
    in_step: StepDemand,
    /// Highest price so far: a bucket goes as far into debt.
    price: u64,
    /// Balance above the deepest debt, at best.
    best: u64,
    /// Balance at worst, and what would have been rejected, for each of the [`SPANS`].
    worst: [(u64, u64); 3],
    row: ReplayRow,
    range: ReplayRange,
}

impl BucketBounds {
    fn new(policy: &Policy, subject: &Subject<'_>, step: u64) -> Self {
        let limit = policy.limit_for(subject);
        let refill_ms = policy.refill.as_millis() as u64;
        Self {
            limit,
            refill: (limit.rate / 1_000 + 1) * refill_ms,
            step,
            in_step: StepDemand::default(),
            price: 0,
            best: u64::MAX / 2,
            worst: [(u64::MAX / 2, 0); 3],
            row: ReplayRow::default(),
            range: ReplayRange::default(),
        }
    }

    fn add(&mut self, step: u64, demand: &StepDemand) {
        if step != self.step {
            self.end_step();
            let refill = self
                .refill_of_step()
                .saturating_mul(step.saturating_sub(self.step + 1));
            self.best = self.best.saturating_add(refill);
            for (balance, _) in &mut self.worst {
                *balance = balance.saturating_add(refill);
            }
            self.step = step;
        }
        self.in_step.add(demand);
    }

    const fn refill_of_step(&self) -> u64 {
        self.limit.rate * STEP_SECONDS
    }

    fn end_step(&mut self) {
        let demand = mem::take(&mut self.in_step);
        if demand.requests == 0 {
            return;
        }
        let dearer = demand.price.saturating_sub(self.price);
        self.price += dearer;
        self.best = self.best.saturating_add(dearer);
        let lowest = self.lowest(&demand);
        let highest = [0, 1, 2].map(|at| self.highest(at, &demand));
        let highest = highest.into_iter().min().unwrap_or_default().max(lowest);
        self.range.see(self.step, lowest, highest);
        let row = &mut self.row;
        row.requests += demand.requests;
        row.refused += part(demand.requests, lowest, demand.amount);
        row.asked = row
            .asked
            .saturating_add(RequestUnits::from_micros(demand.ru));
        row.asked_amount = row.asked_amount.saturating_add(demand.amount);
        row.refused_amount = row.refused_amount.saturating_add(lowest);
    }

    /// Returns what the bucket rejects in a step at best.
    fn lowest(&mut self, demand: &StepDemand) -> u64 {
        let Limit { rate, burst } = self.limit;
        let full = burst + self.refill + self.price;
        let available = self.best.min(full) + self.refill_of_step();
        // A part of such a debt would be written off.
        if demand.price > burst.max(rate * WAIT_SECONDS_MAX) {
            self.best = full;
            return 0;
        }
        self.best = available.saturating_sub(demand.amount);
        demand.amount.saturating_sub(available)
    }

    /// Returns what the bucket rejects in a step at worst, by the greatest demand of one of the [`SPANS`].
    fn highest(&mut self, at: usize, demand: &StepDemand) -> u64 {
        let (span, greatest) = (SPANS[at], demand.greatest[at]);
        let refill = self.limit.rate * span;
        let (balance, rejected) = self.worst[at];
        let reserved = self.refill + self.price;
        let misaligned = if span == 1 { 0 } else { 2 * refill };
        let Some(full) = self.limit.burst.checked_sub(misaligned + reserved) else {
            // So small a bucket wastes refill within the span.
            self.worst[at] = (0, rejected.saturating_add(demand.amount));
            return demand.amount;
        };
        let balance = balance.min(full);
        // Demand above the refill of its span is most if all spans with demand have the greatest.
        let covered = part(demand.amount, refill.min(greatest), greatest);
        let excess = demand.amount - covered;
        let unused = self.refill_of_step().saturating_sub(covered);
        let lost = excess.saturating_sub(balance);
        let left = balance
            .saturating_add(unused)
            .min(full)
            .saturating_sub(excess);
        self.worst[at] = (left, rejected.saturating_add(lost));
        lost
    }

    fn into_row(mut self, label: &str) -> ReplayRow {
        self.end_step();
        let highest = self.worst.iter().map(|(_, rejected)| *rejected).min();
        self.range.highest = highest.unwrap_or_default().max(self.row.refused_amount);
        ReplayRow {
            label: label.to_owned(),
            range: Some(self.range),
            ..self.row
        }
    }
}

/// Returns the part of a number that `part` is of `whole`, rounded down.
fn part(number: u64, part: u64, whole: u64) -> u64 {
    let product = u128::from(number) * u128::from(part);
    u64::try_from(product / u128::from(whole.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use umbo_api::quota::{PolicySource, PolicySpec};
    use umbo_types::Operation;

    use super::*;
    use crate::bucket::Bucket;
    use crate::report::Tally;
    use crate::schedule::{Millis, Schedule};

    const RU: u64 = 1_000_000;

    fn policy(unit: &str, per: &[&str], rate: u64, burst: u64) -> Policy {
        let spec = PolicySpec {
            per: per.iter().map(|name| (*name).to_owned()).collect(),
            burst: Some(burst.to_string().as_str().into()),
            ..PolicySpec::new("p", unit, rate.to_string().as_str())
        };
        Policy::parse(&spec, PolicySource::Stored).unwrap()
    }

    fn key(caller: &str) -> UsageKey {
        UsageKey {
            namespace: "n".into(),
            operation: Operation::Get,
            caller: caller.into(),
        }
    }

    /// Returns the usage of a step by the requests of its seconds; the first `rejected` of them were rejected.
    fn usage(seconds: &[u64], price: u64, rejected: u64) -> StepUsage {
        let mut left = rejected;
        let admitted = seconds.iter().map(|requests| {
            let out = left.min(*requests);
            left -= out;
            requests - out
        });
        let admitted: Vec<u64> = admitted.collect();
        let units = |requests: u64| RequestUnits::from_micros(requests * price);
        let greatest = |span| {
            let sums = admitted.chunks(span).map(|span| span.iter().sum::<u64>());
            units(sums.max().unwrap_or_default())
        };
        let requests = admitted.iter().sum();
        StepUsage {
            tally: Tally {
                requests,
                rejected,
                charged: units(requests),
                ..Tally::default()
            },
            second_max: greatest(1),
            ten_seconds_max: greatest(10),
        }
    }

    /// Returns what a bucket rejects of requests that come evenly in each second.
    fn exact(policy: &Policy, seconds: &[u64], price: u64) -> u64 {
        let schedule = Arc::new(Schedule::begin(policy.limit, policy.refill));
        let bucket = Bucket::new(0, 0, policy, "".into(), &schedule, Millis(0));
        let (mut rejected, mut at) = (0, 0);
        for requests in seconds {
            for number in 0..*requests {
                let now = Millis(at + number * 1_000 / requests);
                if bucket.debit(&schedule, price, now, None).is_err() {
                    rejected += price;
                }
            }
            at += 1_000;
        }
        rejected
    }

    /// Returns the requests of seconds: thirty for each number, uneven and with peaks.
    fn seconds(numbers: &[u64], peaks: u64) -> Vec<u64> {
        let of = |number: u64| {
            (0..30).map(move |at| match at * 7 % 30 {
                0 => number * peaks,
                some => number * (some % 4) / 2,
            })
        };
        numbers.iter().flat_map(|number| of(*number)).collect()
    }

    fn replayed(policy: &Policy, steps: impl IntoIterator<Item = StepUsage>) -> ReplayRow {
        let mut replay = UsageReplay::new(policy.clone()).unwrap();
        for (step, usage) in (1_000..).zip(steps) {
            replay.add((step, 7), &key("c"), &usage);
        }
        replay.finish().rows.remove(0)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]
        #[test]
        fn the_exact_amount_is_within_the_range(
            numbers in prop::collection::vec(prop_oneof![Just(0), 1_u64..40], 60),
            (peaks, rate, price) in (1_u64..20, 5_u64..60, 1_u64..11),
            // A burst holds the refill of 50 ms.
            burst in prop_oneof![3_u64..60, 60_u64..24_000],
            rejected in 0_u64..200,
        ) {
            let (policy, price) = (policy("ru", &[], rate, burst), price * RU);
            let seconds = seconds(&numbers, peaks);
            let exact = exact(&policy, &seconds, price);
            let steps = seconds.chunks(600);
            let row = replayed(&policy, steps.map(|step| usage(step, price, rejected.min(step.iter().sum::<u64>() / 2))));
            let range = row.range.unwrap();
            prop_assert!(
                (row.refused_amount..=range.highest).contains(&exact),
                "{} {} {exact}", row.refused_amount, range.highest
            );
            prop_assert_eq!(row.requests, seconds.iter().sum::<u64>());
            prop_assert_eq!(row.asked_amount, row.requests * price);
        }
    }

    #[test]
    fn steady_demand_has_a_narrow_range_and_the_worst_step_is_told() {
        let policy = policy("ru", &[], 50, 100);
        let steady = |requests| usage(&[requests; 600], RU, 0);
        let calm = replayed(&policy, [steady(50), steady(20)]);
        assert_eq!((calm.refused, calm.range.unwrap().highest), (0, 0));
        let row = replayed(&policy, [steady(20), steady(60), steady(80), steady(20)]);
        let range = row.range.unwrap();
        // Above the rate: 600 times 10, and 600 times 30; the burst covers 100.
        assert!(
            (23_800 * RU..=24_000 * RU).contains(&row.refused_amount),
            "{row:?}"
        );
        assert!(
            (23_900 * RU..=24_100 * RU).contains(&range.highest),
            "{row:?}"
        );
        assert_eq!(range.worst.0, 1_002);
        // A burst within the bucket's is nothing, unless it may have come twice.
        let once = |extra| {
            let mut seconds = [10; 600];
            seconds[300] += extra;
            replayed(&policy, [usage(&seconds, RU, 0)])
                .range
                .unwrap()
                .highest
        };
        assert!(once(40) == 0 && once(200) > 0);
    }

    #[test]
    fn buckets_are_of_a_process_unless_they_are_of_the_fleet() {
        let row = |scope| {
            let mut policy = policy("requests", &["caller"], 10, 10);
            policy.scope = scope;
            let mut replay = UsageReplay::new(policy).unwrap();
            for process in [1, 2] {
                replay.add((5, process), &key("c"), &usage(&[8; 600], RU, 0));
                replay.add((5, process), &key(OTHERS), &usage(&[8; 600], RU, 0));
            }
            let found = replay.finish();
            assert_eq!((found.missed, found.rows.len()), (9_600, 1));
            assert_eq!(found.rows[0].label, "caller=c");
            found.rows[0].refused
        };
        assert_eq!(row(PolicyScope::Pod), 0);
        assert!(
            (3_500..3_600).contains(&row(PolicyScope::Fleet)),
            "{}",
            row(PolicyScope::Fleet)
        );
    }

    #[test]
    fn a_policy_by_something_that_is_not_kept_is_refused_by_name() {
        for lacking in ["shard", "user", "session", "org"] {
            let refused = UsageReplay::new(policy("ru", &["caller", lacking], 1, 1)).unwrap_err();
            assert_eq!(refused.as_str(), lacking);
        }
    }
}
