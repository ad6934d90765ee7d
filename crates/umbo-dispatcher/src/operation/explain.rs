//! Explain: what a request would cost, which shards it would reach, which policies it would meet.
//!
//! Nothing of it is done, nothing is debited, and nothing is charged for the answer.

use std::cmp::Reverse;

use bytes::Bytes;
use http::Uri;
use http_body::Body;
use umbo_api::batch::KeyFields;
use umbo_api::quota::{ExplainAnswer, ExplainBody, ExplainBreakdown, ExplainPolicy, ExplainShard};
use umbo_control::quota_spec::limit_of;
use umbo_http::decode::{self, Route};
use umbo_http::{Answer, Fields, RequestError, json_body, rejection};
use umbo_quota::{CostHint, Explanation, Meeting, Policy, ShardShare, format_amount};
use umbo_routing::ShardMap;
use umbo_types::{Key, NamespaceId, Operation, Timestamp, limits};

use super::Operate;
use super::body::RequestBody;
use crate::phase::admit::Admitted;
use crate::phase::locate::Located;
use crate::phase::shares;
use crate::reply::Reply;

/// Some thousand keys. Longer lists are not needed to know how they spread.
const BODY_LEN_MAX: usize = 1 << 20;

/// The explanation of a request.
#[derive(Debug)]
pub(crate) struct Explain {
    body: Bytes,
}

impl Operate for Explain {
    type Fetched = ExplainAnswer;

    fn decode(
        _route: &Route<'_>,
        uri: &Uri,
        _fields: &Fields<'_>,
        _now: Timestamp,
    ) -> Result<Self, RequestError> {
        decode::bare(uri)?;
        let body = Bytes::new();
        Ok(Self { body })
    }

    async fn locate<'l, B>(
        &mut self,
        admitted: &'l mut Admitted<'_>,
        body: &mut RequestBody<'_, B>,
    ) -> Result<Located<'l>, RequestError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let context = admitted.context();
        let text = body.read_text(admitted.log, context, BODY_LEN_MAX);
        self.body = text.await?;
        Ok(admitted.locate_nowhere())
    }

    async fn fetch(&mut self, located: &mut Located<'_>) -> Result<ExplainAnswer, RequestError> {
        let ask: ExplainBody = json_body::json_object(&self.body)?;
        let operation = operation(&ask)?;
        let map = &located.dispatcher.shard_map;
        let shares = shards(map, located.namespace_id(), operation, &ask)?;
        let hint = hint(operation, &ask)?;
        let explanation = located.charge.explain(operation, hint, &shares);
        Ok(answer(&explanation, &shares))
    }

    async fn settle(
        self,
        answer: ExplainAnswer,
        _located: &mut Located<'_>,
    ) -> Result<Reply, RequestError> {
        Ok(Answer::Explanation(Box::new(answer)).into())
    }
}

fn operation(ask: &ExplainBody) -> Result<Operation, RequestError> {
    let is_meant = |operation: &Operation| operation.as_str() == ask.operation;
    let found = Operation::ALL.into_iter().find(is_meant);
    found
        .filter(|operation| operation.has_price())
        .ok_or_else(|| RequestError::BadParameter {
            name: "operation",
            value: ask.operation.chars().take(64).collect(),
            expected: "get, put, delete, range, delete-range, multi-get, batch-write or scan",
        })
}

/// Returns what would be known of the request when it is priced.
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
    let bytes_max = || Some(ask.max_bytes.unwrap_or(limits::PAGE_BYTES_DEFAULT));
    Ok(match operation {
        Operation::Range | Operation::Scan => CostHint {
            rows_max: ask.limit,
            bytes_max: bytes_max(),
            body_len: None,
        },
        Operation::Put => CostHint {
            body_len: Some(ask.bytes.unwrap_or(0) + key(ask)?.sort.as_bytes().len() as u64),
            ..CostHint::default()
        },
        Operation::Delete => CostHint {
            body_len: Some(0),
            ..CostHint::default()
        },
        Operation::BatchWrite => CostHint {
            body_len: ask.bytes,
            ..CostHint::default()
        },
        _ => CostHint::default(),
    })
}

/// Returns the shards the request would reach; none where only keys tell and none are given.
fn shards(
    map: &ShardMap,
    namespace: NamespaceId,
    operation: Operation,
    ask: &ExplainBody,
) -> Result<Vec<ShardShare>, RequestError> {
    match operation {
        Operation::MultiGet | Operation::BatchWrite => {
            let keys = ask.keys.iter().enumerate();
            let keys: Vec<Key> = keys
                .map(|(index, fields)| json_body::key(index, fields))
                .collect::<Result<_, _>>()?;
            Ok(shares::by_keys(map, namespace, keys.iter()))
        }
        Operation::Scan => Ok(shares::by_slots(map, 0..=umbo_routing::SLOTS - 1, None)),
        _ => {
            let shard = map.locate(namespace, &key(ask)?.partition);
            Ok(vec![ShardShare { shard, parts: 1 }])
        }
    }
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
    let limit = limit_of(policy.unit, *limit);
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
