//! The rows of usage: one for each dispatcher and step of ten minutes, in the SYSTEM namespace, at the home of Umbo's own
//! records.
//!
//! The open step is written at each full minute, over its own row, and when the process stops: a kill loses the usage
//! since the last write. Steps and the expiry of rows are by the clock of the home, or by most clocks if it is behind them.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};
use umbo_dispatcher::Dispatcher;
use umbo_http::{RequestError, problem};
use umbo_quota::{KEPT_SECONDS, StepUsage, Tally, UsageKey, UsageStep, UsageSteps};
use umbo_store::compression::plain_bytes;
use umbo_store::{RowRef, SortRange};
use umbo_telemetry::recorder::ended_second;
use umbo_types::{Operation, RequestUnits, Value};

use crate::home_rows::{END_PAUSE, END_TIME_MAX, HomeRows, aside, json_value, now};

/// How long a row lasts after its last write.
const USAGE_TTL: Duration = Duration::from_secs(KEPT_SECONDS);
/// Milliseconds between two writes of the open step: a kill loses as much usage, and the time of a write.
const WRITE_INTERVAL_MS: u64 = 60_000;
/// How long after a full minute a write begins: the sample of the minute's last second comes first.
const WRITE_DELAY_MS: u64 = 500;
/// Name of the partition.
const PARTITION: &str = "umbo-usage";

/// Returns the sort key of a step: rows are in the order of their steps.
pub(crate) fn name(step: u64, id: u64) -> String {
    format!("{step:010}-{id:016x}")
}

/// Returns the rows of steps. Later ones are of a clock that was ahead.
pub(crate) fn of_steps(steps: &RangeInclusive<u64>) -> SortRange {
    SortRange {
        start: name(*steps.start(), 0).into(),
        end: Some(name(steps.end() + 1, 0).into()),
    }
}

/// Returns the rows of usage.
pub(crate) fn rows(dispatcher: &Arc<Dispatcher>) -> HomeRows {
    HomeRows::new(dispatcher, PARTITION)
}

/// Writes the usage of a dispatcher; there should be one.
#[derive(Debug)]
pub struct UsageWriter(HomeRows);

impl UsageWriter {
    /// Makes the writer of a dispatcher.
    pub fn new(dispatcher: &Arc<Dispatcher>) -> Self {
        Self(rows(dispatcher))
    }

    /// Returns for how long to wait before the next write.
    pub fn wait(&self) -> Duration {
        let now_ms = now(&self.0.dispatcher).as_millis();
        let since = now_ms.saturating_sub(WRITE_DELAY_MS) % WRITE_INTERVAL_MS;
        Duration::from_millis(WRITE_INTERVAL_MS - since)
    }

    /// Writes the steps with new usage. A failure loses nothing for six hours: the next calls try again.
    pub async fn write(&self) {
        if let Err(error) = self.write_steps().await {
            let reason = problem::detail(&error);
            tracing::warn!(
                reason,
                "usage cannot be written, and is kept for up to six hours"
            );
        }
    }

    /// Counts the last requests and writes all usage, and tries again for up to ten seconds. To be called when the
    /// server stops.
    pub async fn end(&self) {
        let second = ended_second(now(&self.0.dispatcher)) + 1;
        let sample = move |dispatcher: &Dispatcher, steps: &mut UsageSteps| {
            dispatcher.quota.sample_usage(steps, (second, 1), |_, _| {});
        };
        // Only a defect makes it fail, and the log has it.
        drop(self.with_steps(sample).await);
        let writing = async {
            while self.write_steps().await.is_err() {
                sleep(END_PAUSE).await;
            }
        };
        if timeout(END_TIME_MAX, writing).await.is_err() {
            let steps = self.with_steps(|_, steps| steps.unwritten().len()).await;
            let steps = steps.unwrap_or_default();
            tracing::error!(steps, "usage is lost: it could not be written at the stop");
        }
    }

    async fn write_steps(&self) -> Result<(), RequestError> {
        let work =
            |_: &Dispatcher, steps: &mut UsageSteps| (steps.take_given_up(), steps.unwritten());
        let (given_up, unwritten) = self.with_steps(work).await?;
        if given_up > 0 {
            tracing::error!(
                steps = given_up,
                "usage is lost: it could not be written for six hours"
            );
        }
        let mut failed = None;
        for step in unwritten {
            match (self.write_step(step).await, failed) {
                (Ok(()), before) => failed = before,
                // One step holds up no other, but two in a row mean that the home is away.
                (Err(error), None) => failed = Some(error),
                (Err(error), Some(_)) => return Err(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn write_step(&self, step: UsageStep) -> Result<(), RequestError> {
        // Many lines take milliseconds.
        let with_value = move || (StepText::of(&step.lines).to_value(), step);
        let (value, step) = aside(with_value).await?;
        let key = name(step.number, step.id);
        self.0.put(key, value, USAGE_TTL).await?;
        self.with_steps(move |_, steps| steps.written(&step)).await
    }

    /// Works on the steps. A sample may hold their lock for long, so no thread that serves requests waits for it.
    async fn with_steps<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Dispatcher, &mut UsageSteps) -> T + Send + 'static,
    ) -> Result<T, RequestError> {
        let dispatcher = Arc::clone(&self.0.dispatcher);
        aside(move || work(&dispatcher, &mut steps_of(&dispatcher))).await
    }
}

/// Locks the steps of a dispatcher.
pub(crate) fn steps_of(dispatcher: &Dispatcher) -> MutexGuard<'_, UsageSteps> {
    let steps = dispatcher.usage_steps.lock();
    steps.unwrap_or_else(PoisonError::into_inner)
}

/// Lines of a row.
type StepLines = Vec<(UsageKey, StepUsage)>;
/// Columns of a row: the numbers of three names (caller, namespace, operation), then the
/// [`numbers`]. Columns compress better than lines.
const COLUMNS: usize = 3 + NUMBERS;
/// Numbers of the usage in a line.
const NUMBERS: usize = 9;

/// The text of a row. A later version may append columns.
#[derive(Debug, Serialize, Deserialize)]
struct StepText {
    names: Vec<String>,
    columns: Vec<Vec<u64>>,
}

impl StepText {
    fn of(lines: &[(UsageKey, StepUsage)]) -> Self {
        let mut known = HashMap::new();
        let mut names = Vec::new();
        let mut number = |name: &str| {
            *known.entry(name.to_owned()).or_insert_with(|| {
                names.push(name.to_owned());
                names.len() as u64 - 1
            })
        };
        let mut columns = vec![Vec::new(); COLUMNS];
        for (key, usage) in lines {
            let of_key = [&*key.caller, &*key.namespace, key.operation.as_str()].map(&mut number);
            let line = of_key.into_iter().chain(numbers(usage));
            for (column, number) in columns.iter_mut().zip(line) {
                column.push(number);
            }
        }
        Self { names, columns }
    }

    fn to_value(&self) -> Value {
        json_value(self)
    }

    /// Returns the lines of operations that this version knows, and whether these are all lines. Returns `None` if a field
    /// of a line is missing.
    fn lines(&self) -> Option<(StepLines, bool)> {
        let names: Vec<Arc<str>> = self.names.iter().map(|name| name.as_str().into()).collect();
        let line = |at: usize| {
            let number = |column: usize| self.columns.get(column)?.get(at).copied();
            let name = |column| names.get(number(column)? as usize);
            let (operation, mut operations) = (name(2)?, Operation::PRICED.into_iter());
            let (caller, namespace) = (Arc::clone(name(0)?), Arc::clone(name(1)?));
            let mut numbers = [0; NUMBERS];
            for (at, own) in numbers.iter_mut().enumerate() {
                *own = number(COLUMNS - NUMBERS + at)?;
            }
            let known = operations.find(|one| one.as_str() == &**operation);
            let key = |operation| UsageKey {
                namespace,
                operation,
                caller,
            };
            Some(known.map(|operation| (key(operation), usage(numbers))))
        };
        let len = self.columns.first()?.len();
        let lines: Option<Vec<_>> = (0..len).map(line).collect();
        let lines: StepLines = lines?.into_iter().flatten().collect();
        let is_whole = lines.len() == len;
        Some((lines, is_whole))
    }
}

/// Returns the numbers of a usage in the order of the columns; charges in micro-RU.
const fn numbers(usage: &StepUsage) -> [u64; NUMBERS] {
    let tally = &usage.tally;
    [
        tally.requests,
        tally.rejected,
        tally.charged.as_micros(),
        tally.penalty.as_micros(),
        tally.rows,
        tally.read_bytes,
        tally.write_bytes,
        usage.second_max.as_micros(),
        usage.ten_seconds_max.as_micros(),
    ]
}

const fn usage(numbers: [u64; NUMBERS]) -> StepUsage {
    let [
        requests,
        rejected,
        charged,
        penalty,
        rows,
        read_bytes,
        write_bytes,
        second,
        ten,
    ] = numbers;
    let tally = Tally {
        requests,
        rejected,
        charged: RequestUnits::from_micros(charged),
        penalty: RequestUnits::from_micros(penalty),
        rows,
        read_bytes,
        write_bytes,
    };
    StepUsage {
        tally,
        second_max: RequestUnits::from_micros(second),
        ten_seconds_max: RequestUnits::from_micros(ten),
    }
}

/// Reads a row: its step and id, the lines, and whether they are all of its lines. Returns `None` for a row that this version
/// cannot read.
pub(crate) fn read(row: RowRef<'_>) -> Option<((u64, u64), StepLines, bool)> {
    let (step, id) = std::str::from_utf8(row.sort).ok()?.split_once('-')?;
    let mut room = Vec::new();
    let text = plain_bytes(row.form, row.value, &mut room).ok()?;
    let text: StepText = serde_json::from_slice(text).ok()?;
    let (lines, is_whole) = text.lines()?;
    let at = (step.parse().ok()?, u64::from_str_radix(id, 16).ok()?);
    Some((at, lines, is_whole))
}

#[cfg(test)]
mod tests {
    use umbo_quota::{STEP_LINES_MAX, STEP_SECONDS};
    use umbo_types::{StoredForm, limits};

    use super::*;

    /// Returns a line of some thousand requests.
    fn line(caller: &str, namespace: &str, operation: Operation) -> (UsageKey, StepUsage) {
        let requests = fastrand::u64(1..5_000);
        let charged = requests * fastrand::u64(1_050_000..1_900_000);
        let bytes = requests * fastrand::u64(100..4_000);
        let is_write = operation.is_write();
        let tally = Tally {
            requests,
            rejected: if fastrand::u8(..) < 26 {
                requests / 9
            } else {
                0
            },
            charged: RequestUnits::from_micros(charged),
            rows: requests,
            read_bytes: if is_write { 0 } else { bytes },
            write_bytes: if is_write { bytes } else { 0 },
            ..Tally::default()
        };
        let usage = StepUsage {
            tally,
            second_max: RequestUnits::from_micros(charged / fastrand::u64(50..300)),
            ten_seconds_max: RequestUnits::from_micros(charged / fastrand::u64(10..40)),
        };
        let key = UsageKey {
            namespace: namespace.into(),
            operation,
            caller: caller.into(),
        };
        (key, usage)
    }

    fn lines(callers: usize, operations: &[Operation]) -> Vec<(UsageKey, StepUsage)> {
        let mut lines = Vec::new();
        for caller in 0..callers {
            let (name, namespace) = (
                format!("service-{caller:04}"),
                format!("listing-{}", caller % 20),
            );
            for operation in operations {
                lines.push(line(&name, &namespace, *operation));
            }
        }
        lines.sort_by(|one, other| one.0.cmp(&other.0));
        lines
    }

    fn row<'a>(sort: &'a str, value: &'a Value) -> RowRef<'a> {
        RowRef {
            partition: b"",
            sort: sort.as_bytes(),
            value: &value.bytes,
            form: value.form,
            value_len: 0,
            content_type: b"",
            content_encoding: b"",
            version: umbo_types::Version::default(),
            expires_at: None,
        }
    }

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let lines = lines(100, &[Operation::Get, Operation::BatchWrite]);
        let value = StepText::of(&lines).to_value();
        assert_eq!(value.form, StoredForm::Zstd);
        let name = name(2_983_333, 7);
        assert_eq!(
            read(row(&name, &value)),
            Some(((2_983_333, 7), lines.clone(), true))
        );
        let mut newer = StepText::of(&lines);
        let batches = newer.names.iter_mut().find(|name| **name == "batch-write");
        batches
            .unwrap()
            .clone_from(&"of-a-later-version".to_owned());
        let value = newer.to_value();
        let (_, known, is_whole) = read(row(&name, &value)).unwrap();
        assert!(!is_whole && known.len() == 100 && known.iter().all(|line| lines.contains(line)));
        for (name, text) in [
            (&*name, "{}"),
            (&*name, r#"{"names":["a"],"columns":[[0]]}"#),
            (&*name, r#"{"names":["a"],"columns":[]}"#),
            ("2983333", "{}"),
        ] {
            let value = Value {
                bytes: text.as_bytes().to_vec().into(),
                ..Value::default()
            };
            assert_eq!(read(row(name, &value)), None, "{text}");
        }
    }

    #[test]
    fn a_report_has_no_steps_before_it_and_none_of_the_future() {
        let range = of_steps(&(2_983_333..=2_983_334));
        for (step, is_in) in [(2_983_332, false), (2_983_333, true), (2_983_334, true)] {
            for id in [0, 7, u64::MAX] {
                assert_eq!(range.contains(name(step, id).as_bytes()), is_in, "{step}");
            }
        }
        assert!(!range.contains(name(2_983_335, 0).as_bytes()));
    }

    #[test]
    fn days_of_a_thousand_callers_take_less_than_230_mib() {
        let steps = (KEPT_SECONDS / STEP_SECONDS) as usize;
        let len = |operations: &[Operation]| {
            StepText::of(&lines(1_000, operations))
                .to_value()
                .bytes
                .len()
        };
        let two = len(&[Operation::Get, Operation::Put]);
        assert!(two * steps < 230 << 20, "{two} bytes a step");
        // With the key and the head of its page, in the pages of an engine that gives room in powers of two.
        let one = (len(&[Operation::Get]) + 256).next_power_of_two();
        assert!(one * steps < 200 << 20, "{one} bytes a step");
    }

    #[test]
    fn the_longest_row_is_a_value() {
        let long = |at: usize| format!("{at:0>127}");
        let max = RequestUnits::from_micros(u64::MAX / 1_000);
        let usage = StepUsage {
            tally: Tally {
                requests: max.as_micros(),
                charged: max,
                rows: max.as_micros(),
                read_bytes: max.as_micros(),
                ..Tally::default()
            },
            second_max: max,
            ten_seconds_max: max,
        };
        let line = |at| {
            let key = UsageKey {
                namespace: long(at)[63..].into(),
                operation: Operation::DeleteRange,
                caller: long(at).into(),
            };
            (key, usage)
        };
        let lines: Vec<_> = (0..STEP_LINES_MAX).map(line).collect();
        let text = serde_json::to_vec(&StepText::of(&lines)).unwrap();
        assert!(text.len() <= limits::VALUE_LEN_MAX, "{}", text.len());
    }
}
