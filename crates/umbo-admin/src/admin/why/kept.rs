//! Records of requests that outlive their server: one row for each dispatcher and ten seconds with news, in the SYSTEM
//! namespace, at the home of Umbo's own records.
//!
//! A row has the refused, failed and slow requests since the row before, and why callers were refused, counted. A kill
//! loses the records since the last write. A day of a dispatcher has a bound in bytes; records beyond it are left
//! out, fairly by caller, and their number is told. Nothing on the path of a request waits for a write.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};
use umbo_api::why::{KeptRecord, RefusalReason, RequestExplanation};
use umbo_dispatcher::Dispatcher;
use umbo_http::{RequestError, problem};
use umbo_observe::request_records::{ReasonCount, TakenRecords};
use umbo_store::compression::plain_bytes;
use umbo_store::{Page, SortRange};
use umbo_types::{ShardId, Timestamp, Value};

use super::explanation::{explanation, reason};
use super::text;
use crate::home_rows::{END_PAUSE, END_TIME_MAX, HomeRows, aside, json_value, now};

/// Time between two writes: a kill loses as much, and the time of a write.
pub const RECORDS_INTERVAL: Duration = Duration::from_secs(10);
/// How long a row lasts.
pub(super) const ROW_TTL: Duration = Duration::from_hours(24);
/// Longest row, in bytes.
const ROW_LEN_MAX: usize = 256 << 10;
/// Bytes that a dispatcher may write a second in the long run: 64 MiB a day.
const BYTES_PER_SECOND: u64 = (64 << 20) / 86_400;
/// Bytes that it may write at once after a rest.
const BYTES_MAX: u64 = 1 << 20;
/// Most records of a row.
const RECORDS_MAX: u64 = 1_024;
/// A record takes about so many bytes of a row.
const RECORD_LEN: u64 = 160;
/// Most rows that wait for the home. Meanwhile records wait in memory, and their number is bounded.
const WAITING_MAX: usize = 2;
/// Most rows that are read for an answer: a day of two dispatchers that are always refusing.
const ROWS_READ_MAX: u64 = 20_000;
/// Time after which an answer reads no more pages of rows.
const READ_TIME_MAX: Duration = Duration::from_secs(5);
/// Name of the partition.
const PARTITION: &str = "umbo-why";

/// The text of a row.
#[derive(Debug, Serialize, Deserialize)]
struct RowText<R> {
    /// Name of the dispatcher.
    server: String,
    /// Records without room in the row.
    left_out: u64,
    /// By caller; without texts.
    refusals: Vec<(String, Vec<RefusalReason>)>,
    records: Vec<R>,
}

impl RowText<RequestExplanation> {
    fn of(dispatcher: &Dispatcher, server: &str, taken: &TakenRecords) -> Self {
        let refusals = taken.refusals.iter().map(|(caller, counts)| {
            let untold = |count| RefusalReason {
                text: String::new(),
                ..reason(count)
            };
            (caller.to_string(), counts.iter().map(untold).collect())
        });
        let records = taken.records.iter();
        Self {
            server: server.to_owned(),
            left_out: taken.left_out as u64,
            refusals: refusals.collect(),
            records: records
                .map(|record| explanation(dispatcher, record, 0))
                .collect(),
        }
    }

    /// Returns the row, without the last records and counts if it would be too long.
    fn into_value(mut self) -> Value {
        loop {
            let value = json_value(&self);
            if value.bytes.len() <= ROW_LEN_MAX {
                return value;
            }
            let left = self.records.len() / 2;
            self.left_out += (self.records.len() - left) as u64;
            if self.records.is_empty() {
                self.refusals.truncate(self.refusals.len() / 2);
            }
            self.records.truncate(left);
        }
    }
}

/// Returns the sort key of a row: rows are in the order of their times.
fn name(at_ms: u64, id: u64) -> String {
    format!("{at_ms:013}-{id:016x}")
}

/// Returns the rows of records.
pub(super) fn rows(dispatcher: &Arc<Dispatcher>) -> HomeRows {
    HomeRows::new(dispatcher, PARTITION)
}

/// Writes the records of a dispatcher; there should be one.
#[derive(Debug)]
pub struct RecordWriter {
    rows: HomeRows,
    /// Name of the dispatcher.
    server: Arc<str>,
    /// Rows that are to be written, by their keys.
    waiting: VecDeque<(String, Value)>,
    /// Bytes that may be written now; negative after a long row.
    allowance: i64,
    /// When the allowance was last counted.
    counted_at: Timestamp,
}

impl RecordWriter {
    /// Makes the writer of a dispatcher.
    pub fn new(dispatcher: &Arc<Dispatcher>, server: &str) -> Self {
        Self {
            rows: rows(dispatcher),
            server: server.into(),
            waiting: VecDeque::new(),
            allowance: BYTES_MAX.cast_signed(),
            counted_at: Timestamp::default(),
        }
    }

    /// Writes the new records, and each row that waits. A row that fails waits for the next call, and holds up no other.
    pub async fn write(&mut self) {
        let was_waiting = !self.waiting.is_empty();
        if self.waiting.len() < WAITING_MAX {
            match self.next_row().await {
                Ok(row) => self.waiting.extend(row),
                Err(error) => tell("records of requests are lost", &error),
            }
        }
        for _ in 0..self.waiting.len() {
            let Some((key, value)) = self.waiting.front().cloned() else {
                break;
            };
            let put = self.rows.put(key, value, ROW_TTL).await;
            // A cancelled write leaves the row in the queue.
            let row = self.waiting.pop_front();
            if let Err(error) = put {
                if !was_waiting {
                    tell("records of requests wait for the home", &error);
                }
                self.waiting.extend(row);
            }
        }
    }

    /// Writes all records, and tries again for up to ten seconds. To be called when the server stops.
    pub async fn end(&mut self) {
        self.allowance = BYTES_MAX.cast_signed();
        let writing = async {
            // Rows that wait may leave no room for a row of the last records, which then comes second.
            for _ in 0..2 {
                self.write().await;
                while !self.waiting.is_empty() {
                    sleep(END_PAUSE).await;
                    self.write().await;
                }
            }
        };
        if timeout(END_TIME_MAX, writing).await.is_err() {
            tracing::error!("records of requests are lost: they could not be written at the stop");
        }
    }

    /// Makes a row of the records since the last one; `None` without news, or if no bytes may be written now.
    async fn next_row(&mut self) -> Result<Option<(String, Value)>, RequestError> {
        let now = now(&self.rows.dispatcher);
        let passed_ms = now.as_millis().saturating_sub(self.counted_at.as_millis());
        let more = (passed_ms / 1_000).saturating_mul(BYTES_PER_SECOND);
        let more = more.min(BYTES_MAX * 2).cast_signed();
        self.allowance = (self.allowance + more).min(BYTES_MAX.cast_signed());
        self.counted_at = now;
        let Ok(bytes @ 1..) = u64::try_from(self.allowance) else {
            return Ok(None);
        };
        let records_max = (bytes / RECORD_LEN).min(RECORDS_MAX) as usize;
        let (worker, server) = (Arc::clone(&self.rows.dispatcher), Arc::clone(&self.server));
        let row = move || {
            let recorder = &worker.recorder;
            let taken = recorder.records().take(records_max);
            let is_any = taken != TakenRecords::default();
            is_any.then(|| {
                let value = RowText::of(&worker, &server, &taken).into_value();
                (name(now.as_millis(), recorder.id), value)
            })
        };
        let row = aside(row).await?;
        if let Some((_, value)) = &row {
            self.allowance -= (value.bytes.len() as u64).cast_signed();
        }
        Ok(row)
    }
}

fn tell(what: &str, error: &RequestError) {
    let reason = problem::detail(error);
    tracing::warn!(reason, "{what}");
}

/// An answer that is made of rows.
trait FromRows: Sized + Send + 'static {
    /// Sees a row: when it was written, the id of its writer, and its text. Returns whether the answer is complete.
    fn see(&mut self, at_ms: u64, writer: u64, text: &[u8]) -> bool;

    /// Sees rows, the newest first. Returns whether the answer is complete.
    fn see_page(&mut self, page: &Page) -> bool {
        page.rows.iter().any(|row| {
            let sort = std::str::from_utf8(row.sort).unwrap_or_default();
            let Some((at_ms, writer)) = sort.split_once('-') else {
                return false;
            };
            let writer = u64::from_str_radix(writer, 16).unwrap_or_default();
            let mut room = Vec::new();
            let text = plain_bytes(row.form, row.value, &mut room).unwrap_or_default();
            self.see(at_ms.parse().unwrap_or_default(), writer, text)
        })
    }
}

/// Reads the rows since a time, the newest first, until the answer is complete or a bound is reached. Returns whether
/// older rows were not read.
async fn read<A: FromRows>(
    rows: &HomeRows,
    from_ms: u64,
    mut answer: A,
) -> Result<(A, bool), RequestError> {
    let clock = &rows.dispatcher.clock;
    let (begun, partition, mut seen) = (clock.monotonic(), rows.partition()?, 0);
    let mut range = SortRange {
        start: name(from_ms, 0).into(),
        end: None,
    };
    loop {
        let (page, rest) = rows.page(&partition, range, true).await?;
        seen += page.rows.len() as u64;
        let see = move || (answer.see_page(&page), answer);
        let (is_complete, with_page) = aside(see).await?;
        answer = with_page;
        let Some(rest) = rest.filter(|_| !is_complete) else {
            return Ok((answer, false));
        };
        let passed = clock.monotonic().saturating_duration_since(begun);
        if seen >= ROWS_READ_MAX || passed >= READ_TIME_MAX {
            return Ok((answer, true));
        }
        range = rest;
    }
}

/// A search for the newest record of an id.
#[derive(Debug, Default)]
pub(super) struct Search {
    id: String,
    /// Only requests of this caller are found, if it is set.
    caller: Option<String>,
    pub(super) found: Option<RequestExplanation>,
    /// Rows that were read.
    pub(super) rows: u64,
    /// Records without room in them.
    pub(super) left_out: u64,
    /// Whether older rows were not read.
    pub(super) is_cut: bool,
}

impl FromRows for Search {
    fn see(&mut self, at_ms: u64, _: u64, text: &[u8]) -> bool {
        let Ok(row) = serde_json::from_slice::<RowText<&RawValue>>(text) else {
            return false;
        };
        self.rows += 1;
        self.left_out += row.left_out;
        let sign = format!("\"{}\"", self.id);
        let records = row.records.iter().filter(|raw| raw.get().contains(&sign));
        let records = records.filter_map(|raw| serde_json::from_str(raw.get()).ok());
        let is_found = |one: &RequestExplanation| {
            let is_of = |name: &String| {
                [&one.caller, &one.called_by]
                    .into_iter()
                    .flatten()
                    .any(|one| one == name)
            };
            one.id == self.id && self.caller.as_ref().is_none_or(is_of)
        };
        let newest = records.filter(is_found).max_by_key(|one| one.at_ms);
        self.found = newest.map(|mut found| {
            let _ = write!(found.text, " It was kept by server '{}'.", row.server);
            found.kept = Some(KeptRecord {
                server: row.server,
                at_ms,
                left_out: row.left_out,
            });
            found
        });
        self.found.is_some()
    }
}

/// Searches for the newest record of an id; with `caller`, of a request of that caller.
pub(super) async fn find(
    rows: &HomeRows,
    id: &str,
    caller: Option<String>,
) -> Result<Search, RequestError> {
    let search = Search {
        id: id.to_owned(),
        caller,
        ..Search::default()
    };
    let (mut search, is_cut) = read(rows, 0, search).await?;
    search.is_cut = is_cut;
    Ok(search)
}

/// Why a caller was refused, as other processes than one wrote it down.
#[derive(Debug)]
struct KeptRefusals {
    caller: String,
    own: u64,
    counts: Vec<ReasonCount>,
}

impl FromRows for KeptRefusals {
    fn see(&mut self, _: u64, writer: u64, text: &[u8]) -> bool {
        if writer == self.own {
            return false;
        }
        let row = serde_json::from_slice::<RowText<IgnoredAny>>(text);
        let refusals = row.map(|row| row.refusals).unwrap_or_default();
        let of_caller = refusals
            .into_iter()
            .filter(|(caller, _)| *caller == self.caller);
        let counts = of_caller.flat_map(|(_, reasons)| reasons).filter_map(count);
        counts.for_each(|count| add(&mut self.counts, count));
        false
    }
}

/// Returns why other processes than this one refused a caller since a time, and whether older rows were not read.
pub(super) async fn refusals(
    rows: &HomeRows,
    caller: &str,
    from_ms: u64,
) -> Result<(Vec<ReasonCount>, bool), RequestError> {
    let answer = KeptRefusals {
        caller: caller.to_owned(),
        own: rows.dispatcher.recorder.id,
        counts: Vec::new(),
    };
    let (answer, is_cut) = read(rows, from_ms, answer).await?;
    Ok((answer.counts, is_cut))
}

/// Adds a count to the counts of its reason.
pub(super) fn add(counts: &mut Vec<ReasonCount>, more: ReasonCount) {
    let reason = |one: &ReasonCount| (one.code, one.policy.clone(), one.shard);
    match counts.iter_mut().find(|one| reason(one) == reason(&more)) {
        None => counts.push(more),
        Some(one) => {
            let count = one.count.saturating_add(more.count);
            if more.last_at > one.last_at {
                *one = more;
            }
            one.count = count;
        }
    }
}

/// Returns the count that a row tells; `None` for a code of a later version.
fn count(told: RefusalReason) -> Option<ReasonCount> {
    Some(ReasonCount {
        code: match &*told.code {
            text::CLIENT_LEFT => None,
            name => Some(name.parse().ok()?),
        },
        policy: told.policy.map(Into::into),
        shard: told.shard.map(ShardId),
        count: told.count,
        last_at: Timestamp::from_millis(told.last_at_ms),
        example: told.example.as_bytes().into(),
    })
}
