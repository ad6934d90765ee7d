//! Range: rows of a partition in order, page by page.

use http::Uri;
use http_body::SizeHint;
use umbo_control::NamespaceEntry;
use umbo_edge::body::ArrivingBody;
use umbo_http::cursor::{CursorError, CursorKey};
use umbo_http::decode::{self, RangeAsk, Route};
use umbo_http::{Fields, RequestError};
use umbo_quota::CostHint;
use umbo_store::RangeRequest;

use super::Operate;
use super::body::RequestBody;
use crate::page::{self, CHUNK_TEXT_LEN_MAX, ChunkRead, PageSource, PageWalk, Selectors};
use crate::phase::admit::Admitted;
use crate::phase::locate::Located;
use crate::phase::read_through;
use crate::reply::Reply;

/// A range.
#[derive(Debug)]
pub(crate) struct RangeRead(RangeAsk);

impl Operate for RangeRead {
    type Fetched = (PageWalk, ChunkRead);

    fn decode(route: &Route<'_>, uri: &Uri, fields: &Fields<'_>) -> Result<Self, RequestError> {
        decode::range(route, uri, fields).map(Self)
    }

    fn hint(&self, _body: &SizeHint) -> CostHint {
        CostHint {
            place: CostHint::place_of_partition(&self.0.partition),
            ..page::hint(&self.0.bounds)
        }
    }

    async fn locate<'l, B: ArrivingBody>(
        &mut self,
        admitted: &'l mut Admitted<'_>,
        _body: &mut RequestBody<'_, B>,
    ) -> Result<Located<'l>, RequestError> {
        let (dispatcher, namespace) = (admitted.dispatcher, admitted.namespace_id());
        admitted.reserve_answer(0, CHUNK_TEXT_LEN_MAX).await?;
        let map = &dispatcher.shard_map;
        let shard = map.locate(namespace, &self.0.partition);
        Ok(admitted.locate_unasked(shard))
    }

    async fn fetch(&mut self, located: &mut Located<'_>) -> Result<Self::Fetched, RequestError> {
        let cursor_key = &located.dispatcher.cursor_key;
        let (request, selectors) = self.request(cursor_key, located.namespace())?;
        let context = located.context();
        let deadline = context.is_timeout_named.then_some(context.deadline);
        let source = PageSource::Range {
            namespace: located.namespace_id(),
            request,
            selectors,
        };
        let mut walk = PageWalk::new(
            located.dispatcher,
            source,
            self.0.bounds,
            self.0.layout,
            located.call(),
            deadline,
        );
        let read = match walk.next_range() {
            Some(request) => {
                let page = read_through::page(located, &request, walk.rows()).await?;
                walk.take_up(&page)
            }
            // No row can lie between these bounds.
            None => ChunkRead::default(),
        };
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

impl RangeRead {
    /// Returns the request for the store, from the beginning or from a cursor.
    fn request(
        &self,
        cursor_key: &CursorKey,
        namespace: &NamespaceEntry,
    ) -> Result<(RangeRequest, Selectors), RequestError> {
        let ask = &self.0;
        let mut dataset = namespace.dataset;
        let mut selectors = Selectors::Asked {
            range: ask.range.clone(),
            reverse: ask.reverse,
        };
        let (mut range, mut reverse) = (ask.range.clone(), ask.reverse);
        if let Some(text) = &ask.cursor {
            let cursor = cursor_key.open_range(text)?;
            let is_own = cursor.namespace == namespace.id
                && cursor.partition == ask.partition.as_bytes()
                && (!ask.is_selective || cursor.selectors == selectors.digest());
            if !is_own {
                return Err(CursorError::Foreign.into());
            }
            // A page continues in the version that it began with.
            dataset = cursor.dataset;
            if !namespace.has_dataset(dataset) {
                return Err(CursorError::Dropped.into());
            }
            (range, reverse) = (cursor.rest, cursor.reverse);
            selectors = Selectors::Digest(cursor.selectors);
        }
        let request = RangeRequest {
            namespace: dataset,
            partition: ask.partition.clone(),
            range,
            reverse,
            rows_max: 0,
            bytes_max: 0,
            keys_only: ask.bounds.keys_only,
        };
        Ok((request, selectors))
    }
}
