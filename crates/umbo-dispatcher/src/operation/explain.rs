//! Explain: what a request would cost, which shards it would reach, which policies it would meet.
//!
//! Nothing of it is done, nothing is debited, and nothing is charged for the answer.

use std::cmp::Reverse;

use bytes::Bytes;
use http_body::Body;
use umbo_api::batch::KeyFields;
use umbo_api::quota::{ExplainAnswer, ExplainBody, ExplainBreakdown, ExplainPolicy, ExplainShard};
use umbo_quota::{Explanation, Known, Meeting, Policy, ShardShare, format_amount};
use umbo_types::{Key, Operation, limits};

use super::{body, shares};
use crate::classify::Context;
use crate::encode::Answer;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::namespaces::NamespaceEntry;
use crate::pod::Dispatcher;
use crate::rejection;

/// Some thousand keys. Longer lists are not needed to know how they spread.
const BODY_LEN_MAX: usize = 1 << 20;

pub(crate) async fn fetch<B>(
    pod: &Dispatcher,
    namespace: &NamespaceEntry,
    request_body: B,
    context: &Context,
    exchange: &mut Exchange,
) -> Result<Answer, Failure>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let held = body::read(pod, request_body, BODY_LEN_MAX, context, exchange).await?;
    let ask: ExplainBody = body::json_object(&held.bytes)?;
    let operation = operation(&ask)?;
    let shares = shards(pod, namespace, operation, &ask)?;
    let known = known(operation, &ask)?;
    let explanation = exchange.explain(operation, known, &shares)?;
    Ok(Answer::Explanation(Box::new(answer(&explanation, &shares))))
}

fn operation(ask: &ExplainBody) -> Result<Operation, Failure> {
    let is_meant = |operation: &Operation| operation.as_str() == ask.operation;
    let found = Operation::ALL.into_iter().find(is_meant);
    found
        .filter(|operation| operation.has_price())
        .ok_or_else(|| Failure::BadParameter {
            name: "operation",
            value: ask.operation.chars().take(64).collect(),
            expected: "get, put, delete, range, delete-range, multi-get, batch-write or scan",
        })
}

/// Returns what would be known of the request when it is priced.
fn known(operation: Operation, ask: &ExplainBody) -> Result<Known, Failure> {
    let is_wrong = |bytes: &u64| *bytes == 0 || *bytes > limits::PAGE_BYTES_MAX;
    if let Some(bytes) = ask.max_bytes.filter(is_wrong) {
        return Err(Failure::BadParameter {
            name: "max_bytes",
            value: bytes.to_string(),
            expected: "a number of bytes from 1 to 1073741824",
        });
    }
    if ask.limit == Some(0) {
        return Err(Failure::BadParameter {
            name: "limit",
            value: "0".to_owned(),
            expected: "a number of rows, at least 1",
        });
    }
    let bytes_max = || Some(ask.max_bytes.unwrap_or(limits::PAGE_BYTES_DEFAULT));
    Ok(match operation {
        Operation::Range | Operation::Scan => Known {
            rows_max: ask.limit,
            bytes_max: bytes_max(),
            body_len: None,
        },
        Operation::Put => Known {
            body_len: Some(ask.bytes.unwrap_or(0) + key(ask)?.sort.as_bytes().len() as u64),
            ..Known::default()
        },
        Operation::Delete => Known {
            body_len: Some(0),
            ..Known::default()
        },
        Operation::BatchWrite => Known {
            body_len: ask.bytes,
            ..Known::default()
        },
        _ => Known::default(),
    })
}

/// Returns the shards the request would reach; none where only keys tell and none are given.
fn shards(
    pod: &Dispatcher,
    namespace: &NamespaceEntry,
    operation: Operation,
    ask: &ExplainBody,
) -> Result<Vec<ShardShare>, Failure> {
    let map = &pod.shard_map;
    match operation {
        Operation::MultiGet | Operation::BatchWrite => {
            let keys = ask.keys.iter().enumerate();
            let keys: Vec<Key> = keys
                .map(|(index, fields)| body::key(index, fields))
                .collect::<Result<_, _>>()?;
            Ok(shares::by_keys(map, namespace.id, keys.iter()))
        }
        Operation::Scan => Ok(shares::by_slots(map, 0..=umbo_routing::SLOTS - 1, None)),
        _ => {
            let shard = map.locate(namespace.id, &key(ask)?.partition);
            Ok(vec![ShardShare { shard, parts: 1 }])
        }
    }
}

fn key(ask: &ExplainBody) -> Result<Key, Failure> {
    let fields = KeyFields {
        pk: ask.pk.clone(),
        pk64: ask.pk64.clone(),
        sk: ask.sk.clone(),
        sk64: ask.sk64.clone(),
    };
    let (partition, sort) = fields
        .key()
        .map_err(|error| Failure::BadBody(error.to_string()))?;
    Ok(Key::new(partition, sort)?)
}

fn answer(explanation: &Explanation, shares: &[ShardShare]) -> ExplainAnswer {
    let parts = explanation.breakdown;
    ExplainAnswer {
        estimate_ru: explanation.estimate.as_f64(),
        breakdown: ExplainBreakdown {
            base: parts.base.as_f64(),
            rows: parts.rows.as_f64(),
            read_bytes: parts.read_bytes.as_f64(),
            write_bytes: parts.write_bytes.as_f64(),
            latency: parts.latency.as_f64(),
        },
        samples: explanation.samples,
        shards: shards_of(shares),
        policies: explanation.meets.iter().map(policy).collect(),
    }
}

/// Returns the parts of the shards, the largest first.
fn shards_of(shares: &[ShardShare]) -> Vec<ExplainShard> {
    let all: u32 = shares.iter().map(|share| share.parts).sum();
    let mut sorted = shares.to_vec();
    sorted.sort_by_key(|share| (Reverse(share.parts), share.shard));
    let shard = |share: ShardShare| ExplainShard {
        shard: share.shard.0,
        share: f64::from(share.parts) / f64::from(all.max(1)),
    };
    sorted.into_iter().map(shard).collect()
}

fn policy(meeting: &Meeting) -> ExplainPolicy {
    let Meeting { policy, limit, .. } = meeting;
    let limit = rejection::limit(policy.unit, *limit);
    ExplainPolicy {
        name: policy.name.to_string(),
        mode: policy.mode.as_str().to_owned(),
        scope: policy.scope.as_str().to_owned(),
        unit: limit.unit,
        label: meeting.label.clone(),
        shard: meeting.shard.map(|shard| shard.0),
        rate: limit.rate,
        burst: limit.burst,
        balance: units(policy, meeting.balance.unsigned_abs())
            * if meeting.balance < 0 { -1.0 } else { 1.0 },
        price: units(policy, meeting.price),
        admits: meeting.admits,
        wait_ms: if meeting.wait.is_zero() {
            0
        } else {
            rejection::wait_ms(meeting.wait)
        },
    }
}

fn units(policy: &Policy, atoms: u64) -> f64 {
    let decimal = format_amount(policy.unit, atoms);
    decimal.parse().unwrap_or(f64::INFINITY)
}
