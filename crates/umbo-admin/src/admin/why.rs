//! The admin API of records of requests: why one was refused or slow, and why a caller is refused lately.
//!
//! Needs a grant of `observe` on `*`, because a record may be of any namespace; without a grant, a caller
//! sees its own requests and the requests that it pays for. Shows what this dispatcher recorded; the
//! sentences are made for the answer (`text`).

mod text;

use std::time::Duration;

use axum::Json;
use axum::extract::{RawQuery, State};
use http::HeaderMap;
use umbo_api::path::KeyEncoding;
use umbo_api::quota::ExplainBreakdown;
use umbo_api::why::{
    AskedPolicy, CallerRefusals, PhaseTime, QueueMoment, RefusalReason, RequestExplanation,
};
use umbo_api::{ErrorKind, time_to_live};
use umbo_dispatcher::Dispatcher;
use umbo_dispatcher::request_recorder::SAMPLED_ONE_IN;
use umbo_http::RequestError;
use umbo_http::query::{self, Query};
use umbo_observe::request_records::{
    COUNTED_FOR, ChargeRecord, FoundRecord, KeptAs, PolicyRecord, ReasonCount, RequestRecord,
    Retention,
};
use umbo_types::{CallerId, ShardId};

use self::text::{balance, millis, unit};
use super::{DispatcherState, PathText, caller, full_observer};
use crate::admin_error::AdminError;

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
    let recorder = &dispatcher.recorder;
    let mut found = recorder.records().find(id.as_bytes());
    if let Err(refusal) = full_observer(&dispatcher, &headers) {
        found = found.filter(|found| is_of(&caller.id, &found.record));
        // Older records with its id may belong to others.
        found.as_mut().ok_or(refusal)?.others = 0;
    }
    let Some(found) = found else {
        let now = dispatcher.clock.wall();
        let retention = recorder.records().retention(now);
        return Err(not_recorded(&id, &retention).into());
    };
    Ok(Json(explanation(&dispatcher, &found)))
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
    let reasons = if let Some(name) = &name {
        let reasons = records.reasons(name, now, minutes as usize);
        reasons.unwrap_or_default().iter().map(reason).collect()
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
    }))
}

/// Returns the error of an id without a record, with how long records are kept.
fn not_recorded(id: &str, retention: &Retention) -> RequestError {
    let is_id = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if id.len() > ID_LEN_MAX || !id.bytes().all(is_id) {
        return RequestError::NotRecorded {
            id: id.chars().take(ID_LEN_MAX).collect(),
            why: "an id has 1 to 64 letters, digits, points, dashes and underscores".to_owned(),
        };
    }
    let ago = |age: Duration| format!("{:.1} s", age.as_secs_f64());
    RequestError::NotRecorded {
        id: id.to_owned(),
        why: format!(
            "refused, failed and slow requests are recorded, and one in {SAMPLED_ONE_IN} of the others; {} are \
             kept, the oldest of them for {}, and those of the caller with the most for {}",
            retention.records,
            ago(retention.oldest),
            ago(retention.oldest_of_largest),
        ),
    }
}

fn reason(count: &ReasonCount) -> RefusalReason {
    RefusalReason {
        caller: None,
        code: text::code_name(count.code).to_owned(),
        count: count.count,
        policy: count.policy.as_ref().map(ToString::to_string),
        shard: count.shard.map(|shard| shard.0),
        last_at_ms: count.last_at.as_millis(),
        example: id_text(&count.example),
        text: text::of_reason(count),
    }
}

fn id_text(id: &[u8]) -> String {
    String::from_utf8_lossy(id).into_owned()
}

fn explanation(dispatcher: &Dispatcher, found: &FoundRecord) -> RequestExplanation {
    let record = &found.record;
    let charge = record.charge.as_deref();
    let name = |caller: &CallerId| caller.as_str().to_owned();
    RequestExplanation {
        id: id_text(&record.id),
        at_ms: record.at.as_millis(),
        operation: record.operation.as_str().to_owned(),
        namespace: record.namespace.as_ref().map(ToString::to_string),
        caller: record.caller.as_ref().map(name),
        called_by: record.called_by.as_ref().map(name),
        criticality: record.criticality.map(|tier| tier.as_str().to_owned()),
        status: (record.status > 0).then_some(record.status),
        code: record.code.map(|code| code.as_str().to_owned()),
        outcome: outcome(record).to_owned(),
        kept_as: match record.kept_as {
            KeptAs::Refused => "refused",
            KeptAs::Slow => "slow",
            KeptAs::Sample => "sample",
        }
        .to_owned(),
        phase: record.phase.to_owned(),
        total_ms: millis(record.times.total_micros),
        phases: phases(record),
        estimate_ru: charge.map(|charge| charge.estimate.as_f64()),
        actual_ru: charge.map(|charge| charge.actual.as_f64()),
        ru_parts: charge.map(parts),
        price_multiplier: charge
            .map(|charge| f64::from(charge.price_multiplier))
            .filter(|multiplier| *multiplier > 1.0),
        policies: charge.map_or_else(Vec::new, |charge| {
            charge.policies.iter().map(policy).collect()
        }),
        queue: record.moment.map(|moment| QueueMoment {
            limit: moment.limit,
            in_flight: moment.in_flight,
            waiting: moment.waiting,
        }),
        pressure: record.moment.map(|moment| f64::from(moment.pressure)),
        cache: record.cache.map(str::to_owned),
        shard: record.shard.map(|shard| shard.0),
        node: record.shard.and_then(|shard| node_of(dispatcher, shard)),
        attempts: (record.attempts > 0).then_some(record.attempts),
        detail: record.detail.as_ref().map(ToString::to_string),
        older: found.others,
        text: text::of_record(
            record,
            dispatcher.recorder.slow_from(record.operation),
            found.others,
        ),
    }
}

/// Returns the node that has a shard now, or `None` if the shards are in this process.
fn node_of(dispatcher: &Dispatcher, shard: ShardId) -> Option<String> {
    let nodes = dispatcher.store.nodes().into_iter();
    let mut owners = nodes.filter(|node| node.shards.contains(&shard));
    Some(owners.next()?.name)
}

fn outcome(record: &RequestRecord) -> &'static str {
    match record.code {
        Some(code) if code.kind() == ErrorKind::Refused => "refused",
        Some(code) => code.kind().as_str(),
        None if record.status == 0 => "abandoned",
        None => "served",
    }
}

fn phases(record: &RequestRecord) -> Vec<PhaseTime> {
    let times = &record.times;
    let all = [
        ("prepare", times.prepare_micros),
        ("wait", times.wait_micros),
        ("fetch", times.fetch_micros),
        ("network", times.network_micros),
        ("answer", times.answer_micros),
    ];
    let phase = |(phase, micros): (&str, u32)| PhaseTime {
        phase: phase.to_owned(),
        ms: millis(micros),
    };
    let some = all.into_iter().filter(|(_, micros)| *micros > 0);
    some.map(phase).collect()
}

fn parts(charge: &ChargeRecord) -> ExplainBreakdown {
    let [base, rows, read_bytes, write_bytes, latency, penalty] =
        charge.parts.map(umbo_types::RequestUnits::as_f64);
    ExplainBreakdown {
        base,
        rows,
        read_bytes,
        write_bytes,
        latency,
        penalty,
    }
}

fn policy(record: &PolicyRecord) -> AskedPolicy {
    let unit = unit(record);
    AskedPolicy {
        policy: record.policy.to_string(),
        scope: match (record.is_of_shard, record.is_of_fleet) {
            (true, _) => "shard",
            (false, true) => "fleet",
            (false, false) => "pod",
        }
        .to_owned(),
        unit: unit.as_str().to_owned(),
        rate: unit.as_f64(record.rate),
        balance: balance(record),
        cost: unit.as_f64(record.price),
        verdict: record.verdict.as_str().to_owned(),
        observed: (record.observed > 0).then(|| unit.as_f64(record.observed)),
        wait_ms: (record.wait_millis > 0).then_some(record.wait_millis),
    }
}
