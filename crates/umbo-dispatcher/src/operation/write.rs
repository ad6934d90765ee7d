//! Put and delete: one row by its key. Hot path.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use umbo_hotkey::Touched;
use umbo_quota::Work;
use umbo_store::{Atomicity, Change, Mutation, WriteRequest};
use umbo_telemetry::trace::Verb;
use umbo_types::{RowError, ShardId, Timestamp, Version, limits};

use super::{ask_store, body};
use crate::classify::Context;
use crate::decode::WriteAsk;
use crate::edge::body::BodyError;
use crate::encode::Answer;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::namespaces::NamespaceEntry;
use crate::pod::Dispatcher;
use crate::shield;
use crate::wait::Answered;

/// Finds the shard and refuses what it can before anything is read: what is turned away must cost little.
pub(crate) fn locate(
    pod: &Dispatcher,
    namespace: &NamespaceEntry,
    ask: &WriteAsk,
    announced: u64,
    context: &Context,
    exchange: &mut Exchange,
) -> Result<ShardId, Failure> {
    exchange.verb(Verb::Locate);
    let shard = pod.shard_map.locate(namespace.id, &ask.key.partition);
    exchange.located(shard)?;
    if matches!(ask.change, Change::Put { .. }) && announced > limits::VALUE_LEN_MAX as u64 {
        return Err(RowError::ValueTooLarge(announced as usize).into());
    }
    exchange.turn_away(shard, context)?;
    Ok(shard)
}

pub(crate) async fn fetch<B>(
    pod: &Arc<Dispatcher>,
    namespace: &NamespaceEntry,
    shard: ShardId,
    mut ask: WriteAsk,
    request_body: B,
    context: &Context,
    exchange: &mut Exchange,
) -> Result<Answer, Failure>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let is_put = matches!(ask.change, Change::Put { .. });
    if let Change::Put { value, expires_at } = &mut ask.change {
        let held = body::read(pod, request_body, limits::VALUE_LEN_MAX, context, exchange).await;
        value.bytes = held
            .map_err(|failure| match failure {
                Failure::Body(BodyError::TooLarge { len_max }) => {
                    Failure::BadValue(RowError::ValueTooLarge(len_max as usize + 1))
                }
                other => other,
            })?
            .bytes;
        *expires_at = expires_at.or_else(|| default_expiry(namespace, context.now));
    }
    let work = Work {
        rows: 1,
        write_bytes: bytes_of(&ask),
        writes: 1,
        ..Work::default()
    };
    let key = ask.key.clone();
    let request = WriteRequest {
        namespace: namespace.id,
        mutations: vec![Mutation {
            key: ask.key,
            change: ask.change,
            condition: ask.condition,
        }],
        atomicity: Atomicity::None,
        durability: ask.durability.unwrap_or_else(|| namespace.durability()),
        proposed: Version::proposed_at(context.now),
    };
    let touched = [Touched::Row(namespace.id, &key)];
    let (store, call) = (Arc::clone(&pod.store), exchange.call(context));
    let to_store = call.context();
    let put = async move {
        let written = store.write(&to_store, request).await;
        Answered::new(&to_store, written)
    };
    let writing = shield::write(pod, shard, &call, touched, put);
    let written = ask_store(context, exchange, pin!(writing)).await?.pop();
    let written = written
        .ok_or_else(|| Failure::Internal("a write was not answered".to_owned()))
        .and_then(|result| result.map_err(Failure::from));
    // A condition that was false cost as much as one that was true.
    if matches!(written, Ok(_) | Err(Failure::PreconditionFailed { .. })) {
        exchange.settle(work);
    }
    let written = written?;
    Ok(if is_put {
        Answer::Put(written)
    } else {
        Answer::Deleted
    })
}

/// Returns the bytes that a put writes; a removal writes none.
fn bytes_of(ask: &WriteAsk) -> u64 {
    match &ask.change {
        Change::Put { value, .. } => (ask.key.sort.as_bytes().len() + value.bytes.len()) as u64,
        Change::Delete => 0,
    }
}

/// Returns when a row of a namespace expires that names no time itself.
pub(crate) fn default_expiry(namespace: &NamespaceEntry, now: Timestamp) -> Option<Timestamp> {
    let seconds = namespace.info.settings.default_ttl?;
    Some(now.saturating_add(Duration::from_secs(seconds)))
}
