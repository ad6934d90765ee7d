//! Multi-get: rows by key, answered in the order asked for, each with its own status.
//!
//! The answer is made once all rows are known or there is no more time.

mod gather;

use std::pin::pin;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http_body::Body;
use umbo_api::batch::{BatchEnd, BatchEndLine, MultiGetBody};
use umbo_api::row::{RowFields, ValueField};
use umbo_telemetry::trace::Verb;
use umbo_types::{Key, Row, Timestamp, limits};

use self::gather::{Gathered, KEYS_AT_ONCE, gather};
use super::{ask_store, body, shares};
use crate::classify::Context;
use crate::encode::{self, Answer};
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::namespaces::NamespaceEntry;
use crate::pod::Dispatcher;
use crate::problem;
use crate::shield;

/// 1,000 of the longest keys, as base64url in JSON.
const BODY_LEN_MAX: usize = 5 << 20;

pub(crate) async fn fetch<B>(
    pod: &Arc<Dispatcher>,
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
    let keys = parse(&held.bytes)?;
    exchange.verb(Verb::Locate);
    let shares = shares::by_keys(&pod.shard_map, namespace.id, keys.iter());
    exchange.admit_shards(&shares, pod.clock.monotonic())?;
    let reader = shield::Rows::new(pod, namespace.id, keys.len(), context, exchange)?;
    let mut gathered = Gathered::new(keys.len());
    let work = async { Ok(gather(pod, namespace.id, reader, &keys, &mut gathered).await) };
    let gathering = ask_store(context, exchange, pin!(work)).await;
    if let Err(failure) = gathering {
        exchange.progress(gathered.done);
        return Err(failure);
    }
    let Gathered {
        rows, done, hits, ..
    } = gathered;
    if let Some(failure) = failure_of_all(&rows) {
        return Err(failure);
    }
    let mut lines = BytesMut::new();
    let mut failed = 0;
    for (index, (key, row)) in keys.iter().zip(rows).enumerate() {
        let row = row.expect("every row is known once all are gathered");
        let row = match row {
            Ok(Some(row)) if !fits(&row, &lines) => Err(Failure::AnswerFull),
            row => row,
        };
        failed += u64::from(row.is_err());
        write_line(&mut lines, index, key, row, exchange);
        if index % KEYS_AT_ONCE == KEYS_AT_ONCE - 1 {
            // Many large rows must not keep the thread from other requests.
            tokio::task::yield_now().await;
        }
    }
    let charged = if hits == done.reads {
        exchange.settle_hits(done)
    } else {
        exchange.settle(done)
    };
    let end = BatchEnd {
        rows: keys.len() as u64,
        failed,
        ru: encode::ru(charged),
    };
    encode::write_json_line(&mut lines, &BatchEndLine { end });
    Ok(Answer::Batch {
        lines: lines.freeze(),
        is_partial: failed > 0,
    })
}

/// Returns why nothing was done, where all rows were shed or late: one answer says it better than a
/// thousand rows.
fn failure_of_all(rows: &[Option<Result<Option<Row>, Failure>>]) -> Option<Failure> {
    let failures = || {
        rows.iter().map(|row| match row {
            Some(Err(failure)) => Some(failure),
            _ => None,
        })
    };
    let is_all = |is: fn(&Failure) -> bool| failures().all(|failure| failure.is_some_and(is));
    if is_all(|failure| matches!(failure, Failure::Shed(_))) {
        return failures().flatten().next().cloned();
    }
    if !is_all(Failure::is_late) {
        return None;
    }
    // The store was asked, if it was asked for any of them.
    let mut late = failures().flatten();
    let in_store = |failure: &&Failure| matches!(failure, Failure::DeadlineInStore { .. });
    let in_store = late.clone().find(in_store);
    in_store.or_else(|| late.next()).cloned()
}

/// Says whether a row still fits into the answer. The first always does.
fn fits(row: &Row, lines: &BytesMut) -> bool {
    lines.is_empty() || lines.len() + row.value.bytes.len() <= limits::MULTI_GET_BYTES_MAX
}

fn parse(bytes: &[u8]) -> Result<Vec<Key>, Failure> {
    let ask: MultiGetBody = body::json_object(bytes)?;
    if ask.keys.len() > limits::MULTI_GET_KEYS_MAX {
        return Err(Failure::BatchTooLarge {
            what: "keys",
            max: limits::MULTI_GET_KEYS_MAX,
        });
    }
    let keys = ask.keys.iter().enumerate();
    keys.map(|(index, fields)| body::key(index, fields))
        .collect()
}

fn write_line(
    lines: &mut BytesMut,
    index: usize,
    key: &Key,
    row: Result<Option<Row>, Failure>,
    exchange: &Exchange,
) {
    let key_fields = RowFields {
        partition: Some(key.partition.as_bytes()),
        sort: key.sort.as_bytes(),
        ..RowFields::default()
    };
    let (status, problem, row) = match row {
        Ok(Some(row)) => (200, None, Some(row)),
        Ok(None) => (404, None, None),
        Err(failure) => {
            let problem = problem::of_part(&failure, exchange);
            (problem.status, Some(problem), None)
        }
    };
    lines.put_slice(format!("{{\"i\":{index},\"status\":{status},").as_bytes());
    match &row {
        Some(row) => RowFields {
            version: row.version.0,
            expires_at: row.expires_at.map(Timestamp::as_millis),
            content_type: &row.value.content_type,
            content_encoding: &row.value.content_encoding,
            value: ValueField::Bytes(&row.value.bytes),
            ..key_fields
        }
        .write(lines),
        None => key_fields.write(lines),
    }
    if let Some(problem) = problem {
        lines.put_slice(b",\"error\":");
        encode::write_json(lines, &problem);
    }
    lines.put_slice(b"}\n");
}
