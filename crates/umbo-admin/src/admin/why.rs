//! The admin API of records of requests: why one was refused or slow, and why a caller is refused lately.
//!
//! Needs a grant of `observe` on `*`, because a record may be of any namespace; without a grant, a caller
//! sees its own requests and the requests that it pays for. Shows what this dispatcher recorded, and what
//! dispatchers wrote down (`kept`); the sentences are made for the answer (`text`).

mod explanation;
mod kept;
mod text;

use std::cmp::Reverse;
use std::time::Duration;

use axum::Json;
use axum::extract::{RawQuery, State};
use http::HeaderMap;
use umbo_api::path::KeyEncoding;
use umbo_api::time_to_live;
use umbo_api::why::{CallerRefusals, RefusalReason, RequestExplanation};
use umbo_dispatcher::request_recorder::SAMPLED_ONE_IN;
use umbo_http::query::{self, Query};
use umbo_http::{RequestError, problem};
use umbo_observe::request_records::{COUNTED_FOR, RequestRecord, Retention};
use umbo_types::CallerId;

use self::explanation::{explanation, reason};
use self::kept::Search;
pub use self::kept::{RECORDS_INTERVAL, RecordWriter};
use super::usage::in_turn;
use super::{DispatcherState, PathText, caller, full_observer};
use crate::admin_error::AdminError;
use crate::asker::asker;

/// Longest id of a request.
const ID_LEN_MAX: usize = 64;
/// How far back reasons are counted where the request does not say it, in seconds.
const LAST_DEFAULT_SECONDS: u64 = 900;
/// Most reasons that are listed where no caller is named.
const NEWEST_MAX: usize = 100;
const LAST: &str = "at most 1h, like 90s, 15m or 1h";

pub(crate) async fn show_request(
    State(dispatcher): DispatcherState,
    PathText(id): PathText,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<RequestExplanation>, AdminError> {
    let caller = caller(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    let records = dispatcher.recorder.records();
    let mut found = records.find(id.as_bytes());
    let mut refusal = full_observer(&dispatcher, &headers).err();
    if refusal.is_some() {
        found = found.filter(|found| is_of(&caller.id, &found.record));
        // Older records with its id may belong to others.
        if let Some(found) = &mut found {
            found.others = 0;
        }
    }
    if let Some(found) = found {
        let (record, others) = (&found.record, found.others);
        return Ok(Json(explanation(&dispatcher, record, others)));
    }
    // Callers without a grant do not queue for the rows.
    let is_busy = dispatcher.usage_reports.available_permits() == 0;
    if let Some(refusal) = refusal.take_if(|_| is_busy) {
        return Err(refusal.into());
    }
    let mut search = None;
    // The server that puts a question to all others reads the rows by itself.
    if is_id(&id) && asker().is_none() {
        let rows = kept::rows(&dispatcher).for_report(&caller);
        let of_caller = refusal.as_ref().map(|_| caller.id.as_str().to_owned());
        let finding = kept::find(&rows, &id, of_caller);
        let mut done = in_turn(&dispatcher.usage_reports, finding).await?;
        if let Some(found) = done.found.take() {
            return Ok(Json(found));
        }
        search = Some(done);
    }
    if let Some(refusal) = refusal {
        return Err(refusal.into());
    }
    let retention = records.retention(dispatcher.clock.wall());
    Err(not_recorded(&id, &retention, search.as_ref()).into())
}

/// Returns whether the caller has sent a request or pays for it.
fn is_of(caller: &CallerId, record: &RequestRecord) -> bool {
    let names = [&record.caller, &record.called_by];
    names.into_iter().flatten().any(|name| name == caller)
}

pub(crate) async fn count_refusals(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<CallerRefusals>, AdminError> {
    let who = caller(&dispatcher, &headers)?;
    let query = Query::read(query.as_deref(), "caller, last")?;
    let asked = query.text("caller");
    let decoded = asked.and_then(|asked| KeyEncoding::Percent.decode(asked).ok());
    let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    if decoded.as_deref() != Some(who.id.as_str()) {
        full_observer(&dispatcher, &headers)?;
    }
    let name = decoded.filter(|name| !name.is_empty());
    if let Some(asked) = asked.filter(|_| name.is_none()) {
        return Err(query::bad("caller", asked, "the name of a caller").into());
    }
    let last = query.text("last");
    let seconds = last.map_or(Some(LAST_DEFAULT_SECONDS), |last| {
        std::str::from_utf8(last).ok().and_then(time_to_live::parse)
    });
    let seconds = seconds.filter(|seconds| *seconds <= COUNTED_FOR.as_secs());
    let Some(seconds) = seconds else {
        return Err(query::bad("last", last.unwrap_or_default(), LAST).into());
    };
    let minutes = seconds.div_ceil(60);
    let now = dispatcher.clock.wall();
    let records = dispatcher.recorder.records();
    let (mut kept_count, mut notes) = (0, Vec::new());
    let reasons = if let Some(name) = &name {
        let counts = records.reasons(name, now, minutes as usize);
        let mut counts = counts.unwrap_or_default();
        // As above.
        if asker().is_none() {
            let rows = kept::rows(&dispatcher).for_report(&who);
            let first_minute = (now.as_millis() / 60_000).saturating_sub(minutes - 1);
            let reading = kept::refusals(&rows, name, first_minute * 60_000);
            match in_turn(&dispatcher.usage_reports, reading).await {
                Ok((kept, is_cut)) => {
                    kept_count = kept.iter().map(|one| one.count).sum();
                    for one in kept {
                        kept::add(&mut counts, one);
                    }
                    let cut = "older rows of other servers were not read".to_owned();
                    notes.extend(is_cut.then_some(cut));
                }
                Err(error) => notes.push(format!(
                    "refusals of other servers and of before the start could not be read: {}",
                    problem::detail(&error)
                )),
            }
            counts.sort_by_key(|one| (Reverse(one.count), one.code));
        }
        counts.iter().map(reason).collect()
    } else {
        let newest = records.newest_reasons(now, minutes as usize, NEWEST_MAX);
        let newest = newest.into_iter().map(|(caller, one)| RefusalReason {
            caller: Some(caller),
            ..reason(&one)
        });
        newest.collect()
    };
    Ok(Json(CallerRefusals {
        caller: name,
        window_ms: minutes * 60_000,
        reasons,
        kept_for_ms: COUNTED_FOR.as_millis() as u64,
        kept: kept_count,
        notes,
    }))
}

/// Returns whether a request can have the id.
fn is_id(id: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=ID_LEN_MAX).contains(&id.len()) && id.bytes().all(is_allowed)
}

/// Returns the error of an id without a record, with how long records are kept.
fn not_recorded(id: &str, retention: &Retention, search: Option<&Search>) -> RequestError {
    if !is_id(id) {
        return RequestError::NotRecorded {
            id: id.chars().take(ID_LEN_MAX).collect(),
            why: "an id has 1 to 64 letters, digits, points, dashes and underscores".to_owned(),
        };
    }
    let ago = |age: Duration| format!("{:.1} s", age.as_secs_f64());
    let searched = search.map_or_else(String::new, |search| {
        let (rows, left_out) = (search.rows, search.left_out);
        let older = if search.is_cut {
            "; older rows were not read"
        } else {
            ""
        };
        format!("; {rows} rows of the last day were read, which lack {left_out} records{older}")
    });
    RequestError::NotRecorded {
        id: id.to_owned(),
        why: format!(
            "refused, failed and slow requests are recorded, and one in {SAMPLED_ONE_IN} of the others; {} are \
             kept, the oldest of them for {}, and those of the caller with the most for {}{searched}",
            retention.records,
            ago(retention.oldest),
            ago(retention.oldest_of_largest),
        ),
    }
}
