//! Walks over the rows of a partition, or of a namespace, in a shard.
//!
//! The rows go to a sink as they are read. A walk that cannot be finished at once, because a page is not in
//! memory or its file has failed, is begun again on a thread that may wait; the sink forgets its rows.

use std::sync::Arc;

use umbo_store::{RowBatch, RowSink, StoreError};
use umbo_types::{Clock, Timestamp};

use crate::file_error::FileError;
use crate::shard::OpenShard;
use crate::snapshot::{ShardSnapshot, Walked};

/// Reads a chunk from a committed state into a sink.
type Walk<R, P> =
    fn(&ShardSnapshot, &R, Timestamp, &mut dyn RowSink) -> Result<Walked<P>, FileError>;

impl OpenShard {
    /// Reads a chunk into `rows`, as `request` asks for it.
    pub(crate) async fn walk<R, P>(
        self: &Arc<Self>,
        request: &R,
        rows: &mut dyn RowSink,
        walk: Walk<R, P>,
    ) -> Result<Walked<P>, StoreError>
    where
        R: Clone + Send + Sync + 'static,
        P: Send + 'static,
    {
        let at_once = self
            .attempt_at_once(|snapshot, clock| walk(snapshot, request, clock.wall(), &mut *rows));
        let failure = match at_once {
            Ok(walked) => return Ok(walked),
            Err(failure) => failure,
        };
        rows.clear();
        let owned = || {
            let request = request.clone();
            move |snapshot: &ShardSnapshot, clock: &dyn Clock| {
                let mut batch = RowBatch::default();
                let walked = walk(snapshot, &request, clock.wall(), &mut batch)?;
                Ok((batch, walked))
            }
        };
        // Boxed, so that the future of a read that waits for nothing stays small.
        let (batch, walked) = Box::pin(self.read_again(failure, owned)).await?;
        rows.append(&batch);
        Ok(walked)
    }
}
