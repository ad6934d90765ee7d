//! Usage in steps: every request once, over restarts, kills and evictions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use proptest::prelude::*;
use umbo_quota::{
    ActualUsage, GROUPS_MAX, GroupBy, GroupKey, Limiter, LimiterSettings, OTHERS, Period,
    STEP_LINES_MAX, STEP_SECONDS, StepUsage, Tally, UsageGroups, UsageKey, UsageStep, UsageSteps,
    Weights,
};
use umbo_types::{Operation, RequestUnits};

use crate::support::{RU, Random, get, set};

const MINUTE: u64 = 60;

/// A process with few accounts, so that callers are evicted.
struct Process {
    limiter: Limiter,
    steps: UsageSteps,
}

impl Process {
    fn begin(id: u64, origin: Instant) -> Self {
        Self::with_accounts(16, id, origin)
    }

    fn with_accounts(accounts_max: usize, id: u64, origin: Instant) -> Self {
        let settings = LimiterSettings {
            weights: Weights::default(),
            accounts_max,
            buckets_max: 1_000,
            shards: 1,
            seed: 7,
        };
        Self {
            limiter: Limiter::new(settings, set([]), origin),
            steps: UsageSteps::new(id),
        }
    }

    fn spend(&self, caller: u16, now: Instant) -> Tally {
        let work = ActualUsage {
            rows: 3,
            reads: 1,
            read_bytes: 4_000 + u64::from(caller),
            ..ActualUsage::default()
        };
        let name = format!("c{caller}");
        let mut reservation = self.limiter.admit(&get(&name), now, 0).unwrap();
        reservation.sent();
        Tally {
            requests: 1,
            charged: reservation.settle(&work),
            rows: 3,
            read_bytes: work.read_bytes,
            ..Tally::default()
        }
    }

    fn sample(&mut self, second: u64) {
        self.sample_after(second, 1);
    }

    fn sample_after(&mut self, second: u64, elapsed: u64) {
        self.limiter
            .sample_usage(&mut self.steps, (second, elapsed), |_, _| {});
    }
}

/// The rows, by step and id.
type Rows = BTreeMap<(u64, u64), UsageStep>;

/// A write under way.
struct Write {
    seconds: u64,
    steps: Vec<UsageStep>,
    usage: Tally,
}

fn write(steps: &mut UsageSteps, rows: &mut Rows) {
    let write = Write {
        seconds: 0,
        steps: steps.unwritten(),
        usage: Tally::default(),
    };
    end(write, steps, rows);
}

fn end(write: Write, steps: &mut UsageSteps, rows: &mut Rows) {
    for step in write.steps {
        steps.written(&step);
        rows.insert((step.number, step.id), step);
    }
}

fn sums(rows: &Rows, by: GroupBy) -> Vec<(GroupKey, StepUsage)> {
    let mut groups = UsageGroups::new(by);
    for step in rows.values() {
        for (key, usage) in &step.lines {
            groups.add(step.number, key, usage);
        }
    }
    groups.finish().unwrap()
}

fn total(rows: &Rows) -> Tally {
    let all = sums(rows, GroupBy::default());
    all.first()
        .map_or_else(Tally::default, |(_, usage)| usage.tally)
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Spend(u16),
    Wait(u16),
    Stop,
    Kill,
    /// The clock of the home goes back.
    Back(u16),
    Outage(bool),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0_u16..60).prop_map(Act::Spend),
        6 => (1_u16..400).prop_map(Act::Wait),
        1 => Just(Act::Stop),
        1 => Just(Act::Kill),
        1 => (1_u16..2_000).prop_map(Act::Back),
        2 => any::<bool>().prop_map(Act::Outage),
    ]
}

proptest! {
    #[test]
    fn only_a_kill_loses_usage_and_only_what_is_not_written(
        acts in prop::collection::vec(act(), 1..120),
        write_seconds in 1_u64..90,
    ) {
        let origin = Instant::now();
        let (mut rows, mut id, mut time, mut is_away) = (Rows::new(), 0, 1_790_000_000_u64, false);
        let mut process = Process::begin(id, origin);
        let (mut written, mut unwritten) = (Tally::default(), Tally::default());
        // A write takes its time, in which usage is counted and steps end.
        let mut under_way: Option<Write> = None;
        for act in acts {
            match act {
                Act::Spend(caller) => unwritten = unwritten.plus(&process.spend(caller, origin)),
                Act::Wait(seconds) => for _ in 0..seconds {
                    process.sample(time);
                    time += 1;
                    if let Some(mut write) = under_way.take() {
                        write.seconds -= 1;
                        if write.seconds == 0 {
                            written = written.plus(&write.usage);
                            end(write, &mut process.steps, &mut rows);
                        } else {
                            under_way = Some(write);
                        }
                    } else if time % MINUTE == 0 && !is_away {
                        under_way = Some(Write {
                            seconds: write_seconds,
                            steps: process.steps.unwritten(),
                            usage: std::mem::take(&mut unwritten),
                        });
                    }
                },
                Act::Back(seconds) => time -= u64::from(seconds),
                Act::Outage(is_so) => is_away = is_so,
                Act::Stop => {
                    if let Some(write) = under_way.take() {
                        written = written.plus(&write.usage);
                        end(write, &mut process.steps, &mut rows);
                    }
                    process.sample(time);
                    write(&mut process.steps, &mut rows);
                    written = written.plus(&std::mem::take(&mut unwritten));
                    id += 1 << 32;
                    process = Process::begin(id, origin);
                }
                Act::Kill => {
                    (under_way, unwritten) = (None, Tally::default());
                    id += 1 << 32;
                    process = Process::begin(id, origin);
                }
            }
            prop_assert_eq!(total(&rows), written);
        }
        if let Some(write) = under_way {
            written = written.plus(&write.usage);
            end(write, &mut process.steps, &mut rows);
        }
        process.sample(time);
        write(&mut process.steps, &mut rows);
        prop_assert_eq!(total(&rows), written.plus(&unwritten));
    }
}

/// Thirty days of 200 callers, some of whom call in each minute, on a process that is stopped or killed about once a day.
#[test]
fn thirty_days_with_stops_and_kills_are_what_was_spent_but_for_a_minute_a_kill() {
    const MINUTES: u64 = 30 * 24 * 60;
    const BEGIN: u64 = 1_790_000_040;
    let (origin, mut random) = (Instant::now(), Random(11));
    let mut process = Process::with_accounts(1_000, 0, origin);
    let (mut rows, mut spent, mut kills) = (Rows::new(), vec![Tally::default(); 200], 0);
    for minute in 0..MINUTES {
        let is_over = random.next().is_multiple_of(24 * 60);
        let is_killed = is_over && random.next().is_multiple_of(2);
        for at in 0..5 {
            let caller = (random.next() % 200) as u16;
            let tally = process.spend(caller, origin);
            // The minute of a kill is lost, and nothing else.
            if !is_killed {
                let spent = &mut spent[usize::from(caller)];
                *spent = spent.plus(&tally);
            }
            if at == 2 && minute % 7 == 0 {
                process.sample(BEGIN + minute * MINUTE + 30);
            }
        }
        kills += u64::from(is_killed);
        if !is_killed {
            process.sample(BEGIN + minute * MINUTE + 59);
            write(&mut process.steps, &mut rows);
        }
        if is_over {
            process = Process::with_accounts(1_000, (minute + 1) << 32, origin);
        }
    }
    assert!(kills > 5, "{kills}");
    let by = GroupBy {
        caller: true,
        ..GroupBy::default()
    };
    let found: BTreeMap<_, _> = sums(&rows, by)
        .into_iter()
        .map(|(key, usage)| (key.caller.unwrap().to_string(), usage.tally))
        .collect();
    let spent = spent.iter().enumerate();
    let spent: BTreeMap<_, _> = spent
        .map(|(at, tally)| (format!("c{at}"), *tally))
        .collect();
    assert_eq!(found, spent);
}

#[test]
fn an_evicted_caller_is_counted_once_and_by_its_name_until_then() {
    let origin = Instant::now();
    let mut process = Process::begin(1, origin);
    let (mut rows, mut spent) = (Rows::new(), Tally::default());
    for second in 0..50 {
        for caller in 0..100 {
            spent = spent.plus(&process.spend(caller, origin));
        }
        process.sample(1_790_000_000 + second);
    }
    write(&mut process.steps, &mut rows);
    assert_eq!(total(&rows), spent);
    let by = GroupBy {
        caller: true,
        ..GroupBy::default()
    };
    let callers = sums(&rows, by);
    let others = |(key, _): &&(GroupKey, StepUsage)| key.caller.as_deref() == Some(OTHERS);
    assert!(callers.len() > 16 && callers.iter().any(|one| others(&one)));
}

#[test]
fn the_greatest_second_and_ten_seconds_are_those_of_the_step() {
    let origin = Instant::now();
    let mut process = Process::begin(1, origin);
    let begin = 1_790_000_400;
    assert_eq!(begin % STEP_SECONDS, 0);
    let mut each = RequestUnits::ZERO;
    for (second, requests) in [(1, 1), (8, 5), (9, 3), (10, 4), (11, 4), (19, 1)] {
        process.sample(begin + second - 1);
        for _ in 0..requests {
            each = process.spend(1, origin).charged;
        }
        process.sample(begin + second);
    }
    let usage = process.steps.unwritten()[0].lines[0].1;
    let units = |number: u64| RequestUnits::from_micros(each.as_micros() * number);
    assert_eq!(usage.tally.charged, units(18));
    assert_eq!(usage.second_max, units(5));
    assert_eq!(usage.ten_seconds_max, units(9));
    // The process was late: five seconds share the charge.
    for _ in 0..100 {
        process.spend(1, origin);
    }
    process.sample_after(begin + 24, 5);
    let usage = process.steps.unwritten()[0].lines[0].1;
    assert_eq!(usage.second_max, units(20));
    // The clock of the home jumps, and the process is not late.
    for _ in 0..30 {
        process.spend(1, origin);
    }
    process.sample(begin + 500);
    let usage = process.steps.unwritten()[0].lines[0].1;
    assert_eq!(usage.second_max, units(30));
}

#[test]
fn a_step_is_bounded_and_sums_the_smallest_callers() {
    let lines = |names: usize| {
        let mut steps = UsageSteps::new(1);
        let settings = LimiterSettings {
            weights: Weights::default(),
            accounts_max: 65_536,
            buckets_max: 1_000,
            shards: 1,
            seed: 7,
        };
        let origin = Instant::now();
        let limiter = Limiter::new(settings, set([]), origin);
        for caller in 0..names {
            let name = format!("c{caller:05}");
            for _ in 0..=caller / (names - 10) {
                let mut reservation = limiter.admit(&get(&name), origin, 0).unwrap();
                reservation.settle(&ActualUsage::default());
            }
        }
        limiter.sample_usage(&mut steps, (1_790_000_000, 1), |_, _| {});
        let mut unwritten = steps.unwritten();
        assert_eq!(unwritten.len(), 1);
        let lines = unwritten.remove(0).lines;
        let requests: u64 = lines.iter().map(|(_, usage)| usage.tally.requests).sum();
        assert_eq!(requests, names as u64 + 10);
        lines
    };
    assert_eq!(lines(STEP_LINES_MAX).len(), STEP_LINES_MAX);
    let found = lines(STEP_LINES_MAX + 1);
    assert_eq!(found.len(), STEP_LINES_MAX / 2 + 1);
    let is_named = |key: &UsageKey| &*key.caller != OTHERS;
    let greatest = found
        .iter()
        .filter(|(key, usage)| is_named(key) && usage.tally.requests == 2);
    assert_eq!(greatest.count(), 10, "the largest callers keep their names");
    // More than the open step holds.
    assert_eq!(lines(20_000).len(), STEP_LINES_MAX / 2 + 1);
}

#[test]
fn groups_are_of_what_was_asked_and_periods_of_the_calendar() {
    let usage = |charged: u64| StepUsage {
        tally: Tally {
            requests: 1,
            charged: RequestUnits::from_micros(charged * RU),
            ..Tally::default()
        },
        second_max: RequestUnits::from_micros(charged * RU),
        ten_seconds_max: RequestUnits::from_micros(charged * RU),
    };
    let key = |caller: &str, operation| UsageKey {
        namespace: "n".into(),
        operation,
        caller: caller.into(),
    };
    let month = GroupBy {
        period: Some(Period::Month),
        operation: true,
        ..GroupBy::default()
    };
    // 2028-02-29 23:50 and 2028-03-01 00:00.
    let leap = 1_835_481_000 / STEP_SECONDS;
    let mut groups = UsageGroups::new(month);
    groups.add(leap, &key("a", Operation::Get), &usage(3));
    groups.add(leap, &key("b", Operation::Get), &usage(4));
    groups.add(leap + 1, &key("a", Operation::Get), &usage(5));
    groups.add(leap + 2, &key("a", Operation::Put), &usage(6));
    let found = groups.finish().unwrap();
    let told = |(key, usage): &(GroupKey, StepUsage)| {
        let period: Option<Arc<str>> = key.period.clone();
        let ru = |units: RequestUnits| units.as_micros() / RU;
        (
            period.unwrap().to_string(),
            key.operation.unwrap(),
            ru(usage.tally.charged),
            ru(usage.second_max),
        )
    };
    let found: Vec<_> = found.iter().map(told).collect();
    let (february, march) = ("2028-02".to_owned(), "2028-03".to_owned());
    let expected = [
        (march.clone(), Operation::Put, 6, 6),
        (march, Operation::Get, 5, 5),
        (february, Operation::Get, 7, 7),
    ];
    assert_eq!(found, expected);
    let january = 1_830_297_600 / STEP_SECONDS;
    assert_eq!(Period::Month.partial(&(january..=leap)), ["2028-02"]);
    let partial = Period::Month.partial(&(january + 1..=leap));
    assert_eq!(partial, ["2028-02", "2028-01"]);
    assert_eq!(
        Period::Day.partial(&(leap..=leap + 1)),
        ["2028-03-01", "2028-02-29"]
    );
    for (seconds, date) in [
        (0, "1970-01-01"),
        (951_782_400, "2000-02-29"),
        (4_102_444_799, "2099-12-31"),
    ] {
        let day = GroupBy {
            period: Some(Period::Day),
            ..GroupBy::default()
        };
        let mut groups = UsageGroups::new(day);
        groups.add(seconds / STEP_SECONDS, &key("a", Operation::Get), &usage(1));
        assert_eq!(groups.finish().unwrap()[0].0.period.as_deref(), Some(date));
    }
}

#[test]
fn a_report_with_too_many_groups_is_refused_and_not_cut() {
    let by = GroupBy {
        caller: true,
        ..GroupBy::default()
    };
    let mut groups = UsageGroups::new(by);
    let mut add = |caller: usize| {
        let key = UsageKey {
            namespace: "n".into(),
            operation: Operation::Get,
            caller: format!("c{caller}").into(),
        };
        groups.add(1, &key, &StepUsage::default());
    };
    (0..GROUPS_MAX).for_each(&mut add);
    add(0);
    add(GROUPS_MAX);
    assert_eq!(groups.finish(), None);
}

#[test]
fn steps_that_are_given_up_are_told_once() {
    let origin = Instant::now();
    let mut process = Process::begin(1, origin);
    for step in 0..40 {
        process.spend(1, origin);
        process.sample(1_790_000_400 + step * STEP_SECONDS);
    }
    assert_eq!(process.steps.unwritten().len(), 37);
    assert_eq!(process.steps.take_given_up(), 3);
    assert_eq!(process.steps.take_given_up(), 0);
}
