//! The admin API of usage that lasts: sums over the rows of all dispatchers.
//!
//! A caller sees its own usage, and all usage of the namespaces on which it may observe. The rows are at one place, so no
//! other dispatcher is asked; usage of this one is counted up to the last second.

use std::collections::BTreeMap;
use std::mem;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{RawQuery, State};
use http::HeaderMap;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use umbo_api::path::KeyEncoding;
use umbo_api::quota::{UsageHistory, UsageHistoryRow};
use umbo_dispatcher::Dispatcher;
use umbo_http::RequestError;
use umbo_http::query::{Query, bad};
use umbo_quota::{
    GROUPS_MAX, GroupBy, GroupKey, KEPT_SECONDS, Period, Replay, STEP_SECONDS, StepUsage,
    UsageGroups, UsageKey, UsageReplay, UsageStep,
};
use umbo_store::Page;
use umbo_types::{Caller, Permission, RequestUnits};

use super::{DispatcherState, caller};
use crate::admin_error::AdminError;
use crate::home_rows::{HomeRows, aside, now};
use crate::usage_rows;

/// Rows that are listed where the request does not say how many.
const ROWS_DEFAULT: u64 = 1_000;
/// How far an answer goes back where the request does not say it: a day.
const LAST_SECONDS_DEFAULT: u64 = 86_400;
/// Time that a report has in all. The longest one of eight dispatchers may take half of it.
const REPORT_TIMEOUT: Duration = Duration::from_mins(1);
const FEWER_GROUPS: &str =
    "at most 65,536 groups: ask for a shorter time, one caller or one namespace";
const BY: &str = "caller, namespace, operation, day or month, separated by commas";

pub(crate) async fn show(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<UsageHistory>, AdminError> {
    let caller = caller(&dispatcher, &headers)?;
    let query = Query::read(
        query.as_deref(),
        "last_seconds, by, namespace, caller, limit",
    )?;
    let last = query.number("last_seconds", 1..=KEPT_SECONDS, "1 to 3024000")?;
    let limit = query.number("limit", 1..=GROUPS_MAX as u64, "1 to 65536")?;
    let rows = usage_rows::rows(&dispatcher).for_report(&caller);
    let now = now(&dispatcher).as_millis();
    let from = now / 1_000 - last.unwrap_or(LAST_SECONDS_DEFAULT).min(now / 1_000);
    let steps = from / STEP_SECONDS..=now / 1_000 / STEP_SECONDS;
    let by = group_by(&query)?;
    let partial = by.period.map(|period| period.partial(&steps));
    let row = |group| row(group, partial.as_deref().unwrap_or_default());
    let sums = UsageSums {
        caller,
        of_caller: text(&query, "caller")?,
        of_namespace: text(&query, "namespace")?,
        groups: UsageGroups::new(by),
    };
    let reading = UsageReading::of(sums).read(&rows, steps.clone());
    let read = in_turn(&dispatcher.usage_reports, reading).await?;
    let (first, unreadable_rows) = (read.first, read.unreadable);
    let groups = aside(move || read.sums.groups.finish()).await?;
    let ms = |step: u64| step * STEP_SECONDS * 1_000;
    let by = query.text("by").unwrap_or_default();
    let groups = groups.ok_or_else(|| bad("by", by, FEWER_GROUPS))?;
    let limit = limit.unwrap_or(ROWS_DEFAULT) as usize;
    let charges = groups.iter().map(|(_, usage)| usage.tally.charged);
    Ok(Json(UsageHistory {
        from_ms: ms(*steps.start()),
        first_ms: first.map(ms),
        unreadable_rows,
        until_ms: now,
        ru: charges
            .fold(RequestUnits::ZERO, RequestUnits::saturating_add)
            .as_f64(),
        total: groups.len() as u64,
        rows: groups.into_iter().take(limit).map(row).collect(),
    }))
}

/// Runs a report as soon as it has a permit, until the time of a report is over.
pub(super) async fn in_turn<T>(
    permits: &Semaphore,
    report: impl Future<Output = Result<T, RequestError>>,
) -> Result<T, RequestError> {
    let permitted = async {
        let _permit = permits.acquire().await;
        report.await
    };
    let late = |_| RequestError::DeadlineInStore {
        shard: None,
        is_write: false,
        timeout: REPORT_TIMEOUT,
    };
    timeout(REPORT_TIMEOUT, permitted).await.map_err(late)?
}

/// Reads what a report distinguishes; callers by default.
fn group_by(query: &Query<'_>) -> Result<GroupBy, RequestError> {
    let asked = text(query, "by")?;
    let mut by = GroupBy::default();
    for name in asked.as_deref().unwrap_or("caller").split(',') {
        match name {
            "caller" => by.caller = true,
            "namespace" => by.namespace = true,
            "operation" => by.operation = true,
            "day" | "month" if by.period.is_some() => {
                return Err(RequestError::Contradiction {
                    one: "day",
                    other: "month",
                });
            }
            "day" => by.period = Some(Period::Day),
            "month" => by.period = Some(Period::Month),
            _ => return Err(bad("by", name.as_bytes(), BY)),
        }
    }
    Ok(by)
}

fn text(query: &Query<'_>, name: &'static str) -> Result<Option<String>, RequestError> {
    let Some(text) = query.text(name) else {
        return Ok(None);
    };
    let decoded = KeyEncoding::Percent.decode(text).ok();
    let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    let decoded = decoded.filter(|decoded| !decoded.is_empty());
    decoded.map(Some).ok_or_else(|| bad(name, text, "a name"))
}

/// Tries a policy on the usage of the last seconds; returns also how many rows are unreadable.
pub(super) async fn replay(
    dispatcher: &Arc<Dispatcher>,
    caller: &Caller,
    replay: UsageReplay,
    last: u64,
) -> Result<(Replay, u64), RequestError> {
    let rows = usage_rows::rows(dispatcher).for_report(caller);
    let now = now(dispatcher).as_millis() / 1_000;
    let first = now.saturating_sub(last.min(KEPT_SECONDS)) / STEP_SECONDS;
    let reading = UsageReading::of(replay).read(&rows, first..=now / STEP_SECONDS);
    let read = in_turn(&dispatcher.usage_reports, reading).await?;
    let replay = aside(move || read.sums.finish()).await?;
    Ok((replay, read.unreadable))
}

/// Sees usage in the order of its steps.
trait UsageSink: Send + 'static {
    /// Sees a line of a step of a process.
    fn add(&mut self, at: (u64, u64), key: &UsageKey, usage: &StepUsage);
}

impl UsageSink for UsageReplay {
    fn add(&mut self, at: (u64, u64), key: &UsageKey, usage: &StepUsage) {
        self.add(at, key, usage);
    }
}

/// A report in the making: who asks, and for what.
struct UsageSums {
    caller: Arc<Caller>,
    of_caller: Option<String>,
    of_namespace: Option<String>,
    groups: UsageGroups,
}

impl UsageSink for UsageSums {
    fn add(&mut self, (step, _): (u64, u64), key: &UsageKey, usage: &StepUsage) {
        let is_asked =
            |asked: &Option<String>, name: &str| asked.as_ref().is_none_or(|asked| asked == name);
        if is_asked(&self.of_caller, &key.caller)
            && is_asked(&self.of_namespace, &key.namespace)
            && (*key.caller == *self.caller.id.as_str()
                || self.caller.is_allowed(Permission::Observe, &key.namespace))
        {
            self.groups.add(step, key, usage);
        }
    }
}

/// The rows as they are read.
struct UsageReading<S> {
    sums: S,
    /// The steps in memory, by the names of their rows, which they replace.
    own: BTreeMap<String, UsageStep>,
    /// The first step with a row, of any caller.
    first: Option<u64>,
    /// Rows that were left out, or a part of them.
    unreadable: u64,
}

impl<S: UsageSink> UsageReading<S> {
    const fn of(sums: S) -> Self {
        Self {
            sums,
            own: BTreeMap::new(),
            first: None,
            unreadable: 0,
        }
    }

    /// Sums the rows of steps, and what this dispatcher has counted since it wrote its own.
    async fn read(
        mut self,
        rows: &HomeRows,
        steps: RangeInclusive<u64>,
    ) -> Result<Self, RequestError> {
        let (worker, own) = (Arc::clone(&rows.dispatcher), steps.clone());
        self.own = aside(move || latest(&worker, &own)).await?;
        let partition = rows.partition()?;
        let range = usage_rows::of_steps(&steps);
        let mut next = Some(rows.page(&partition, range, false).await?);
        while let Some((page, rest)) = next {
            // The next page is read while one is summed.
            let reading = async {
                match rest {
                    Some(rest) => rows.page(&partition, rest, false).await.map(Some),
                    None => Ok(None),
                }
            };
            let (summed, read) = tokio::join!(aside(move || self.with_page(&page)), reading);
            (self, next) = (summed?, read?);
        }
        let finish = move || {
            for step in mem::take(&mut self.own).into_values() {
                self.add((step.number, step.id), &step.lines);
            }
            self
        };
        aside(finish).await
    }

    fn with_page(mut self, page: &Page) -> Self {
        for row in page.rows.iter() {
            let name = std::str::from_utf8(row.sort).unwrap_or_default();
            // Names are in the order of steps.
            let later = self.own.split_off(name);
            for step in mem::replace(&mut self.own, later).into_values() {
                self.add((step.number, step.id), &step.lines);
            }
            if let Some(step) = self.own.remove(name) {
                self.add((step.number, step.id), &step.lines);
            } else if let Some((at, lines, is_whole)) = usage_rows::read(row) {
                self.add(at, &lines);
                self.unreadable += u64::from(!is_whole);
            } else {
                self.unreadable += 1;
            }
        }
        self
    }

    fn add(&mut self, (step, id): (u64, u64), lines: &[(UsageKey, StepUsage)]) {
        self.first = self.first.into_iter().chain([step]).min();
        for (key, usage) in lines {
            // A process counts both on together.
            self.sums.add((step, id.wrapping_sub(step)), key, usage);
        }
    }
}

/// Returns the steps in memory by the names of their rows.
fn latest(dispatcher: &Dispatcher, asked: &RangeInclusive<u64>) -> BTreeMap<String, UsageStep> {
    let steps = usage_rows::steps_of(dispatcher).latest().into_iter();
    let steps = steps.filter(|step| asked.contains(&step.number));
    steps
        .map(|step| (usage_rows::name(step.number, step.id), step))
        .collect()
}

/// Returns the row of a group. `partial` names the periods that the report has only a part of.
fn row((key, usage): (GroupKey, StepUsage), partial: &[String]) -> UsageHistoryRow {
    let is_partial = |name: &Arc<str>| partial.iter().any(|partial| **partial == **name);
    let text = |name: Option<Arc<str>>| name.map(|name| name.to_string());
    let tally = usage.tally;
    UsageHistoryRow {
        partial: key.period.as_ref().is_some_and(is_partial),
        period: text(key.period),
        caller: text(key.caller),
        namespace: text(key.namespace),
        operation: key.operation.map(|operation| operation.as_str().to_owned()),
        requests: tally.requests,
        rejected: tally.rejected,
        ru: tally.charged.as_f64(),
        penalty: tally.penalty.as_f64(),
        rows: tally.rows,
        read_bytes: tally.read_bytes,
        write_bytes: tally.write_bytes,
        ru_second_max: usage.second_max.as_f64(),
        ru_ten_seconds_max: usage.ten_seconds_max.as_f64(),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::task::yield_now;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn two_reports_run_and_the_third_waits_until_its_time_is_over() {
        let permits = Arc::new(Semaphore::new(2));
        for _ in 0..2 {
            let permits = Arc::clone(&permits);
            tokio::spawn(async move { in_turn(&permits, pending::<Result<(), _>>()).await });
        }
        yield_now().await;
        let never = async { panic!("it began without a permit") };
        let refused = in_turn::<()>(&permits, never).await;
        assert!(matches!(
            refused,
            Err(RequestError::DeadlineInStore {
                is_write: false,
                ..
            })
        ));
        yield_now().await;
        let done = in_turn(&permits, async { Ok(7) }).await;
        assert_eq!(done.ok(), Some(7), "permits come back");
    }
}
