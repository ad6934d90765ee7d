//! The record of a request and the count of a reason, as the API shows them.

use umbo_api::ErrorKind;
use umbo_api::quota::ExplainBreakdown;
use umbo_api::why::{AskedPolicy, PhaseTime, QueueMoment, RefusalReason, RequestExplanation};
use umbo_dispatcher::Dispatcher;
use umbo_observe::request_records::{
    ChargeRecord, KeptAs, PolicyRecord, ReasonCount, RequestRecord,
};
use umbo_types::{CallerId, ShardId};

use super::text::{self, balance, millis, unit};

pub(super) fn reason(count: &ReasonCount) -> RefusalReason {
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

/// Returns a record with how many older ones have its id.
pub(super) fn explanation(
    dispatcher: &Dispatcher,
    record: &RequestRecord,
    others: u16,
) -> RequestExplanation {
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
        older: others,
        kept: None,
        text: text::of_record(
            record,
            dispatcher.recorder.slow_from(record.operation),
            others,
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
