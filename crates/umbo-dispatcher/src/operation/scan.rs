//! Scan: the rows of a namespace, in segments for parallel readers.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http_body::Body;
use umbo_api::batch::ScanBody;
use umbo_routing::ShardMap;
use umbo_store::{ScanPosition, ScanRequest};
use umbo_telemetry::trace::Verb;
use umbo_types::limits;

use super::{ask_store, body, shares};
use crate::classify::Context;
use crate::cursor::CursorError;
use crate::decode::{Layout, page_bounds};
use crate::encode::Answer;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::namespaces::NamespaceEntry;
use crate::page::{PageWalk, Source};
use crate::pod::Dispatcher;

/// A scan's body is a few numbers and a cursor.
const BODY_LEN_MAX: usize = 16 << 10;

pub(crate) async fn fetch<B>(
    pod: &Arc<Dispatcher>,
    namespace: &NamespaceEntry,
    layout: Layout,
    request_body: B,
    context: &Context,
    exchange: &mut Exchange,
) -> Result<Answer, Failure>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let held = body::read(pod, request_body, BODY_LEN_MAX, context, exchange).await?;
    let ask = parse(&held.bytes)?;
    let (mut segments, mut segment) = (ask.segments.unwrap_or(1), ask.segment.unwrap_or(0));
    let mut after = None;
    if let Some(text) = &ask.cursor {
        let cursor = pod.cursor_key.open_scan(text.as_bytes())?;
        let is_own = cursor.namespace == namespace.id
            && ask
                .segments
                .is_none_or(|segments| segments == cursor.segments)
            && ask.segment.is_none_or(|segment| segment == cursor.segment);
        if !is_own {
            return Err(CursorError::Foreign.into());
        }
        (segments, segment, after) = (cursor.segments, cursor.segment, Some(cursor.after));
    }
    let slots = ShardMap::segment(segment, segments).ok_or_else(|| Failure::BadParameter {
        name: "segment",
        value: format!("{segment} of {segments}"),
        expected: "segments from 1 to 4096 and a segment from 0 to segments - 1",
    })?;
    exchange.verb(Verb::Locate);
    let visited = after.as_ref().map(|after: &ScanPosition| after.shard);
    let shares = shares::by_slots(&pod.shard_map, slots.clone(), visited);
    exchange.admit_shards(&shares, pod.clock.monotonic())?;
    let bounds = page_bounds(
        ask.limit,
        ask.max_bytes,
        ask.keys_only.unwrap_or(false),
        layout,
    );
    let request = ScanRequest {
        namespace: namespace.id,
        slots,
        shard: None,
        after,
        rows_max: 0,
        bytes_max: 0,
        keys_only: bounds.keys_only,
    };
    let deadline = context.is_timeout_named.then_some(context.deadline);
    let source = Source::Scan {
        request,
        segments,
        segment,
    };
    let mut walk = PageWalk::new(
        pod,
        source,
        bounds,
        layout,
        exchange.call(context),
        deadline,
    );
    let rows = ask_store(context, exchange, pin!(walk.read())).await?;
    let first = walk.encode(&rows, exchange);
    Ok(Answer::Page {
        walk: Box::new(walk),
        first,
    })
}

fn parse(bytes: &[u8]) -> Result<ScanBody, Failure> {
    if bytes.trim_ascii().is_empty() {
        return Ok(ScanBody::default());
    }
    let ask: ScanBody = body::json_object(bytes)?;
    let bad = |name, value: u64, expected| Failure::BadParameter {
        name,
        value: value.to_string(),
        expected,
    };
    if let Some(limit) = ask.limit.filter(|&limit| limit == 0) {
        return Err(bad("limit", limit, "a number of rows, at least 1"));
    }
    let is_wrong = |bytes: &u64| *bytes == 0 || *bytes > limits::PAGE_BYTES_MAX;
    if let Some(bytes) = ask.max_bytes.filter(is_wrong) {
        return Err(bad(
            "max_bytes",
            bytes,
            "a number of bytes from 1 to 1073741824",
        ));
    }
    if ask.segments == Some(0) || ask.segments > Some(limits::SCAN_SEGMENTS_MAX) {
        let segments = ask.segments.unwrap_or(0);
        return Err(bad("segments", segments.into(), "a number from 1 to 4096"));
    }
    Ok(ask)
}
