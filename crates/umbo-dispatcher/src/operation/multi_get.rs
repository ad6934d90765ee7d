//! Multi-get: rows by key, answered in the order asked for, each with its own status.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http_body::Body;
use umbo_api::batch::{BatchEnd, BatchEndLine, MultiGetBody};
use umbo_api::row::{RowFields, ValueField};
use umbo_quota::Work;
use umbo_telemetry::trace::Verb;
use umbo_types::{Key, Row, Timestamp, limits};

use super::{ask_store, body, shares};
use crate::classify::Context;
use crate::encode::{self, Answer};
use crate::exchange::{Exchange, is_unbegun};
use crate::failure::Failure;
use crate::namespaces::NamespaceEntry;
use crate::pod::Dispatcher;
use crate::problem;
use crate::shield;
use crate::wait::Timed;

/// 1,000 of the longest keys, as base64url in JSON.
const BODY_LEN_MAX: usize = 5 << 20;
/// Keys asked of the store at once, so that the bytes held beyond the answer are bounded.
const KEYS_AT_ONCE: usize = 64;

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
    let mut lines = BytesMut::new();
    let mut failed = 0;
    let mut done = Work {
        reads: keys.len() as u64,
        ..Work::default()
    };
    let (mut hits, mut shed) = (0, None);
    let reader = shield::Rows::new(pod, namespace.id, keys.len(), context, exchange)?;
    let work = async {
        let mut service_time = Duration::ZERO;
        for (at, keys) in keys.chunks(KEYS_AT_ONCE).enumerate() {
            let rows = reader.read(keys).await;
            service_time += rows.iter().map(|row| row.service_time).sum::<Duration>();
            for (offset, (key, row)) in keys.iter().zip(rows).enumerate() {
                let index = at * KEYS_AT_ONCE + offset;
                let (row, is_hit) = (row.row, row.is_hit);
                if row.as_ref().is_err_and(is_free) {
                    // It costs nothing, and neither does a request of nothing else.
                    done.reads -= 1;
                } else {
                    hits += u64::from(is_hit);
                }
                if let Ok(Some(row)) = &row
                    && !is_hit
                {
                    done.rows += 1;
                    done.read_bytes += bytes_of(key, row);
                }
                let row = match row {
                    Ok(Some(row)) if !fits(&row, &lines) => Err(Failure::AnswerFull),
                    row => row,
                };
                failed += u64::from(row.is_err());
                if let Err(Failure::Shed(report)) = &row {
                    let (_, rows) = shed.get_or_insert((*report, 0));
                    *rows += 1;
                }
                write_line(&mut lines, index, key, row);
            }
            // Many large rows must not keep the thread from other requests.
            tokio::task::yield_now().await;
        }
        Ok(Timed {
            answer: (),
            service_time,
        })
    };
    if let Err(failure) = ask_store(context, exchange, work).await {
        exchange.progress(done);
        return Err(failure);
    }
    // Nothing was done: one answer says it better than a thousand rows.
    if let Some((report, rows)) = shed
        && rows == keys.len()
    {
        return Err(Failure::Shed(report));
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

/// Says whether a row was refused before anything was done about it.
fn is_free(failure: &Failure) -> bool {
    matches!(failure, Failure::KeyBlocked) || is_unbegun(failure)
}

/// Returns the bytes of a row with both of its keys.
fn bytes_of(key: &Key, row: &Row) -> u64 {
    let keys = key.partition.as_bytes().len() + key.sort.as_bytes().len();
    (keys + row.value.bytes.len()) as u64
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

fn write_line(lines: &mut BytesMut, index: usize, key: &Key, row: Result<Option<Row>, Failure>) {
    let key_fields = RowFields {
        partition: Some(key.partition.as_bytes()),
        sort: key.sort.as_bytes(),
        ..RowFields::default()
    };
    let (status, failure, row) = match row {
        Ok(Some(row)) => (200, None, Some(row)),
        Ok(None) => (404, None, None),
        Err(failure) => (failure.code().status(), Some(failure), None),
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
    if let Some(failure) = failure {
        lines.put_slice(b",\"error\":");
        encode::write_json(lines, &problem::of_row(&failure));
    }
    lines.put_slice(b"}\n");
}
