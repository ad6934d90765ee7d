//! Explain: the cost of a request, the shards it would reach, and the policies that would count it.
//!
//! Nothing of it is done, nothing is debited, and nothing is charged for the answer.

use std::cmp::Reverse;
use std::collections::HashSet;

use bytes::Bytes;
use http::Uri;
use umbo_api::admin::CompressionSetting;
use umbo_api::batch::KeyFields;
use umbo_api::quota::{ExplainAnswer, ExplainBody, ExplainBreakdown, ExplainPolicy, ExplainShard};
use umbo_edge::body::ArrivingBody;
use umbo_http::decode::{self, Route};
use umbo_http::{Answer, Fields, RequestError, json_body, rejection};
use umbo_quota::{
    ActualUsage, CostHint, Explanation, Meeting, Policy, ShardShare, Weights, format_amount,
};
use umbo_routing::ShardMap;
use umbo_store::Idempotency;
use umbo_types::{Key, LargeRef, NamespaceId, Operation, RequestUnits, limits};

use super::Operate;
use super::body::RequestBody;
use super::large_upload::writes_of;
use super::write::NUMBER_LEN;
use crate::bounds::EXPLAIN_BODY_LEN_MAX;
use crate::phase::admit::Admitted;
use crate::phase::locate::Located;
use crate::phase::shares;
use crate::reply::Reply;

/// The explanation of a request.
#[derive(Debug)]
pub(crate) struct Explain {
    body: Bytes,
}

impl Operate for Explain {
    type Fetched = ExplainAnswer;

    fn decode(_route: &Route<'_>, uri: &Uri, _fields: &Fields<'_>) -> Result<Self, RequestError> {
        decode::bare(uri)?;
        let body = Bytes::new();
        Ok(Self { body })
    }

    async fn locate<'l, B: ArrivingBody>(
        &mut self,
        admitted: &'l mut Admitted<'_>,
        body: &mut RequestBody<'_, B>,
    ) -> Result<Located<'l>, RequestError> {
        let context = admitted.context();
        let text = body.read_text(admitted.log, context, EXPLAIN_BODY_LEN_MAX);
        self.body = text.await?;
        Ok(admitted.locate_nowhere())
    }

    async fn fetch(&mut self, located: &mut Located<'_>) -> Result<ExplainAnswer, RequestError> {
        let ask: ExplainBody = json_body::json_object(&self.body)?;
        let operation = operation(&ask)?;
        let map = &located.dispatcher.shard_map;
        let shares = shards(map, located.namespace_id(), operation, &ask)?;
        let hint = hint(operation, &ask)?;
        let mut explanation = located.charge.explain(operation, hint, &shares);
        add_chunks(&mut explanation, &located.dispatcher.quota.weights(), &ask);
        let compression = located.namespace().compression();
        Ok(ExplainAnswer {
            compression,
            ..answer(&explanation, &shares)
        })
    }

    fn settle(
        self,
        answer: ExplainAnswer,
        _located: &mut Located<'_>,
    ) -> Result<Reply, RequestError> {
        Ok(Answer::Explanation(Box::new(answer)).into())
    }
}

/// Name of a touch in an explanation. It is admitted as a put of a length that is not known before the
/// row is read.
const TOUCH: &str = "touch";
/// Name of an increment in an explanation. It is admitted as a put of a number.
const INCREMENT: &str = "increment";

fn operation(ask: &ExplainBody) -> Result<Operation, RequestError> {
    if ask.operation == TOUCH || ask.operation == INCREMENT {
        return Ok(Operation::Put);
    }
    let is_meant = |operation: &Operation| operation.as_str() == ask.operation;
    let found = Operation::ALL.into_iter().find(is_meant);
    found
        .filter(|operation| operation.has_price())
        .ok_or_else(|| RequestError::BadParameter {
            name: "operation",
            value: ask.operation.chars().take(64).collect(),
            expected: "get, put, touch, increment, delete, range, delete-range, multi-get, batch-write or scan",
        })
}

/// Returns the hint that would be known when the request is priced.
fn hint(operation: Operation, ask: &ExplainBody) -> Result<CostHint, RequestError> {
    let is_wrong = |bytes: &u64| *bytes == 0 || *bytes > limits::PAGE_BYTES_MAX;
    if let Some(bytes) = ask.max_bytes.filter(is_wrong) {
        return Err(RequestError::BadParameter {
            name: "max_bytes",
            value: bytes.to_string(),
            expected: "a number of bytes from 1 to 1073741824",
        });
    }
    if ask.limit == Some(0) {
        return Err(RequestError::BadParameter {
            name: "limit",
            value: "0".to_owned(),
            expected: "a number of rows, at least 1",
        });
    }
    let page = CostHint {
        rows_max: ask.limit,
        bytes_max: Some(ask.max_bytes.unwrap_or(limits::PAGE_BYTES_DEFAULT)),
        ..CostHint::default()
    };
    Ok(match operation {
        Operation::Get => CostHint {
            place: CostHint::place_of(&key(ask)?),
            ..CostHint::default()
        },
        Operation::Range => CostHint {
            place: CostHint::place_of_partition(&key(ask)?.partition),
            ..page
        },
        // The whole of a namespace is one segment.
        Operation::Scan => CostHint { place: 1, ..page },
        Operation::MultiGet => CostHint {
            rows_max: Some(ask.keys.len() as u64),
            ..CostHint::default()
        },
        Operation::Put if ask.operation != TOUCH => {
            let key = key(ask)?;
            let value_len = match &ask.operation[..] {
                INCREMENT => NUMBER_LEN,
                _ if large_len(ask).is_some() => LargeRef::LEN as u64,
                _ => ask.bytes.unwrap_or(0),
            };
            let sort_len = key.sort.as_bytes().len() as u64;
            CostHint {
                body_len: Some(value_len + sort_len + record_bytes(ask, [&key].into_iter())),
                ..CostHint::default()
            }
        }
        Operation::Delete => CostHint {
            body_len: Some(record_bytes(ask, [&key(ask)?].into_iter())),
            ..CostHint::default()
        },
        Operation::BatchWrite => {
            let keys = keys(ask)?;
            CostHint {
                body_len: ask.bytes.map(|len| len + record_bytes(ask, keys.iter())),
                rows_max: Some(keys.len() as u64).filter(|rows| *rows > 0),
                ..CostHint::default()
            }
        }
        _ => CostHint::default(),
    })
}

/// Returns the length of a put of a large value.
fn large_len(ask: &ExplainBody) -> Option<u64> {
    let is_put = ask.operation == Operation::Put.as_str();
    let lengths = limits::VALUE_LEN_MAX as u64 + 1..=limits::LARGE_VALUE_LEN_MAX;
    ask.bytes.filter(|len| is_put && lengths.contains(len))
}

/// Adds the charges of the chunks of a large value: each write has a separate charge.
fn add_chunks(explanation: &mut Explanation, weights: &Weights, ask: &ExplainBody) {
    for work in large_len(ask).into_iter().flat_map(writes_of) {
        let write = |work: ActualUsage| weights.price(Operation::BatchWrite, &work);
        let rows = ActualUsage {
            rows: work.rows,
            ..ActualUsage::default()
        };
        let (base, rows, plain) = (write(ActualUsage::default()), write(rows), write(work));
        let penalty = explanation.price_multiplier.penalty(plain);
        let parts = &mut explanation.breakdown;
        let add = |to: &mut RequestUnits, more| *to = to.saturating_add(more);
        add(&mut parts.base, base);
        add(&mut parts.rows, rows.saturating_sub(base));
        add(&mut parts.write_bytes, plain.saturating_sub(rows));
        add(&mut parts.penalty, penalty);
        add(&mut explanation.estimate, plain.saturating_add(penalty));
    }
}

/// Returns the shards that the request would reach; empty if only keys tell them and no keys are given.
fn shards(
    map: &ShardMap,
    namespace: NamespaceId,
    operation: Operation,
    ask: &ExplainBody,
) -> Result<Vec<ShardShare>, RequestError> {
    match operation {
        Operation::MultiGet | Operation::BatchWrite => {
            Ok(shares::by_keys(map, namespace, keys(ask)?.iter()))
        }
        Operation::Scan => Ok(shares::by_slots(map, 0..=limits::SLOTS - 1, None)),
        _ => {
            let shard = map.locate(namespace, &key(ask)?.partition);
            Ok(vec![ShardShare { shard, parts: 1 }])
        }
    }
}

/// Returns the bytes that the idempotency records of the request would be charged.
fn record_bytes<'a>(ask: &ExplainBody, keys: impl Iterator<Item = &'a Key>) -> u64 {
    if ask.idempotent != Some(true) {
        return 0;
    }
    let mut partitions = HashSet::new();
    keys.map(|key| {
        if partitions.insert(&key.partition) {
            Idempotency::charged_bytes(key.partition.as_bytes().len() as u64, 1)
        } else {
            Idempotency::charged_bytes_of_more(1)
        }
    })
    .sum()
}

fn keys(ask: &ExplainBody) -> Result<Vec<Key>, RequestError> {
    let keys = ask.keys.iter().enumerate();
    keys.map(|(index, fields)| json_body::key(index, fields))
        .collect()
}

fn key(ask: &ExplainBody) -> Result<Key, RequestError> {
    let fields = KeyFields {
        pk: ask.pk.clone(),
        pk64: ask.pk64.clone(),
        sk: ask.sk.clone(),
        sk64: ask.sk64.clone(),
    };
    let (partition, sort) = fields
        .key()
        .map_err(|error| RequestError::BadBody(error.to_string()))?;
    Ok(Key::new(partition, sort)?)
}

fn answer(explanation: &Explanation, shares: &[ShardShare]) -> ExplainAnswer {
    let parts = explanation.breakdown;
    ExplainAnswer {
        compression: CompressionSetting::Off,
        estimate_ru: explanation.estimate.as_f64(),
        breakdown: ExplainBreakdown {
            base: parts.base.as_f64(),
            rows: parts.rows.as_f64(),
            read_bytes: parts.read_bytes.as_f64(),
            write_bytes: parts.write_bytes.as_f64(),
            latency: parts.latency.as_f64(),
            penalty: parts.penalty.as_f64(),
        },
        price_multiplier: explanation.price_multiplier.as_f64(),
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
    let limit = limit.written(policy.unit);
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
