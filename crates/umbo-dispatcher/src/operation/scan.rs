//! Scan: the rows of a namespace, in segments for parallel readers.

use std::ops::RangeInclusive;
use std::pin::pin;

use http::Uri;
use http_body::SizeHint;
use umbo_api::batch::ScanBody;
use umbo_control::{ControlError, NamespaceEntry};
use umbo_edge::body::ArrivingBody;
use umbo_http::cursor::{CursorError, CursorKey};
use umbo_http::decode::{self, Layout, PageBounds, Route, page_bounds};
use umbo_http::{Fields, RequestError, json_body};
use umbo_quota::CostHint;
use umbo_routing::ShardMap;
use umbo_store::ScanRequest;
use umbo_types::{Key, NamespaceId, ShardId, limits};

use super::Operate;
use super::body::RequestBody;
use crate::bounds::SCAN_BODY_LEN_MAX;
use crate::page::{self, CHUNK_TEXT_LEN_MAX, ChunkRead, PageSource, PageWalk};
use crate::phase::admit::Admitted;
use crate::phase::locate::Located;
use crate::phase::{queue, shares};
use crate::reply::Reply;

/// A scan.
#[derive(Debug)]
pub(crate) struct Scan {
    layout: Layout,
    /// Of the body.
    selection: Selection,
}

/// The part of a namespace that a scan asks for.
#[derive(Debug)]
struct Selection {
    bounds: PageBounds,
    slots: RangeInclusive<u16>,
    segments: u32,
    segment: u32,
    /// Position of a cursor: a shard, and its last row that was visited.
    position: Option<(ShardId, Option<Key>)>,
    /// Dataset of the cursor or of the named version; `None` for the live one.
    dataset: Option<NamespaceId>,
}

impl Operate for Scan {
    type Fetched = (PageWalk, ChunkRead);

    fn decode(_route: &Route<'_>, uri: &Uri, fields: &Fields<'_>) -> Result<Self, RequestError> {
        let layout = decode::scan(uri, fields)?;
        let selection = Selection::whole(layout);
        Ok(Self { layout, selection })
    }

    fn hint(&self, _body: &SizeHint) -> CostHint {
        // The selection stands in the body; that an array is short is known without it.
        CostHint {
            rows_max: match self.layout {
                Layout::Array => Some(limits::JSON_ARRAY_ROWS_MAX),
                Layout::Lines => None,
            },
            ..CostHint::default()
        }
    }

    async fn locate<'l, B: ArrivingBody>(
        &mut self,
        admitted: &'l mut Admitted<'_>,
        body: &mut RequestBody<'_, B>,
    ) -> Result<Located<'l>, RequestError> {
        let (dispatcher, context) = (admitted.dispatcher, admitted.context());
        let text = body.read_text(admitted.log, context, SCAN_BODY_LEN_MAX);
        let ask = parse(&text.await?)?;
        let key = &dispatcher.cursor_key;
        self.selection = Selection::read(&ask, self.layout, key, admitted.namespace())?;
        let selection = &self.selection;
        let visited = selection.position.as_ref().map(|(shard, _)| *shard);
        let shares = shares::by_slots(&dispatcher.shard_map, selection.slots.clone(), visited);
        admitted.charge.foresee(selection.hint());
        let mut located = admitted.locate(&shares)?;
        located.reserve_answer(0, CHUNK_TEXT_LEN_MAX).await?;
        Ok(located)
    }

    async fn fetch(&mut self, located: &mut Located<'_>) -> Result<Self::Fetched, RequestError> {
        let selection = &self.selection;
        let map = &located.dispatcher.shard_map;
        let owners = map.owners_of(selection.slots.clone());
        let begin = || Some((*owners.first()?, None));
        let position = selection.position.clone().or_else(begin);
        let position = position.filter(|(shard, _)| owners.contains(shard));
        let (shard, after) = position.ok_or(CursorError::Foreign)?;
        let request = ScanRequest {
            namespace: selection.dataset.unwrap_or_else(|| located.dataset()),
            slots: selection.slots.clone(),
            after,
            rows_max: 0,
            bytes_max: 0,
            keys_only: selection.bounds.keys_only,
        };
        let context = located.context();
        let deadline = context.is_timeout_named.then_some(context.deadline);
        let source = PageSource::Scan {
            namespace: located.namespace_id(),
            shard,
            request,
            segments: selection.segments,
            segment: selection.segment,
        };
        let mut walk = PageWalk::new(
            located.dispatcher,
            source,
            selection.bounds,
            self.layout,
            located.call(),
            deadline,
        );
        let read = queue::ask(located, pin!(walk.read())).await?;
        Ok((walk, read))
    }

    fn settle(
        self,
        (mut walk, read): Self::Fetched,
        located: &mut Located<'_>,
    ) -> Result<Reply, RequestError> {
        let first = walk.encode(read, located.log, located.charge)?;
        Ok(Reply::page(walk, first))
    }
}

impl Selection {
    /// Selects a whole namespace.
    fn whole(layout: Layout) -> Self {
        Self {
            bounds: page_bounds(None, None, false, layout),
            slots: 0..=limits::SLOTS - 1,
            segments: 1,
            segment: 0,
            position: None,
            dataset: None,
        }
    }

    /// Returns the hint of its cost.
    fn hint(&self) -> CostHint {
        CostHint {
            place: u64::from(self.segment) << 32 | u64::from(self.segments),
            ..page::hint(&self.bounds)
        }
    }

    /// Reads the selection from the body.
    fn read(
        ask: &ScanBody,
        layout: Layout,
        cursor_key: &CursorKey,
        namespace: &NamespaceEntry,
    ) -> Result<Self, RequestError> {
        let version = ask.version.map(|number| namespace.version(number));
        let mut dataset = version.transpose().map_err(ControlError::from)?;
        let (mut segments, mut segment) = (ask.segments.unwrap_or(1), ask.segment.unwrap_or(0));
        let mut position = None;
        if let Some(text) = &ask.cursor {
            let cursor = cursor_key.open_scan(text.as_bytes())?;
            let is_own = cursor.namespace == namespace.id
                && dataset.is_none_or(|asked| asked == cursor.dataset)
                && ask
                    .segments
                    .is_none_or(|segments| segments == cursor.segments)
                && ask.segment.is_none_or(|segment| segment == cursor.segment);
            if !is_own {
                return Err(CursorError::Foreign.into());
            }
            if !namespace.has_dataset(cursor.dataset) {
                return Err(CursorError::Dropped.into());
            }
            (segments, segment) = (cursor.segments, cursor.segment);
            position = Some((cursor.shard, cursor.after));
            dataset = Some(cursor.dataset);
        }
        let slots =
            ShardMap::segment(segment, segments).ok_or_else(|| RequestError::BadParameter {
                name: "segment",
                value: format!("{segment} of {segments}"),
                expected: "segments from 1 to 4096 and a segment from 0 to segments - 1",
            })?;
        let keys_only = ask.keys_only.unwrap_or(false);
        Ok(Self {
            bounds: page_bounds(ask.limit, ask.max_bytes, keys_only, layout),
            slots,
            segments,
            segment,
            position,
            dataset,
        })
    }
}

fn parse(bytes: &[u8]) -> Result<ScanBody, RequestError> {
    if bytes.trim_ascii().is_empty() {
        return Ok(ScanBody::default());
    }
    let ask: ScanBody = json_body::json_object(bytes)?;
    let bad = |name, value: u64, expected| RequestError::BadParameter {
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
