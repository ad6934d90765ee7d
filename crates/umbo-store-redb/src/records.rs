//! Keeping copies of Umbo's own records, and raising their fences in every shard of the folder.
//!
//! The invariant: a shard is answered with `Ok` only if the copy is in the folder's file and its fences and dataset
//! groups are in the shard's own file, both on the disk. The folder's file is written first, so that a shard which is
//! opened or arrives in between raises the fences from it.

use std::sync::Arc;

use tokio::sync::oneshot;
use umbo_store::{CallContext, Outcome, RecordsCopy, StoreError};
use umbo_types::ShardId;

use crate::file_error::FileError;
use crate::shard::OpenShard;
use crate::store::RedbStore;
use crate::work::{QueuedWork, Raise, TimedAnswer};

/// A shard that raises fences, and the receiver of its answer.
type Raising = (
    Arc<OpenShard>,
    oneshot::Receiver<TimedAnswer<Result<(), StoreError>>>,
);

impl RedbStore {
    /// Keeps a copy and raises its fences. Returns the answers of the shards that belong to the folder.
    pub(crate) async fn keep(
        &self,
        copy: Arc<RecordsCopy>,
    ) -> Vec<(ShardId, Result<(), StoreError>)> {
        let kept = Arc::clone(&self.kept);
        let runner = self.opener.runner();
        let newest = match runner.off_runtime(move || kept.keep(copy)).await {
            Some(Ok(Some(newest))) => newest,
            Some(Ok(None)) | None => return self.refused(&Ok(())),
            Some(Err(failure)) => return self.refused(&Err(failure)),
        };
        newest.place_datasets(&self.map);
        // All shards begin before the first answer is awaited.
        let begun: Vec<_> = self
            .here()
            .map(|id| (id, self.begin_raise(id, &newest)))
            .collect();
        let mut answers = Vec::with_capacity(begun.len());
        for (id, begun) in begun {
            let answer = match begun {
                Ok(None) => Ok(()),
                Ok(Some((shard, answer))) => shard
                    .answer(&CallContext::internal(), answer)
                    .await
                    .and_then(|answer| answer),
                Err(error) => Err(error),
            };
            answers.push((id, answer));
        }
        answers
    }

    /// Sends the copy to a shard. Returns `None` if the shard already has the fences and groups of the copy on its
    /// disk.
    fn begin_raise(
        &self,
        id: ShardId,
        copy: &Arc<RecordsCopy>,
    ) -> Result<Option<Raising>, StoreError> {
        if self.served(id).open(id)?.has_kept(copy) {
            return Ok(None);
        }
        let (reply, answer) = oneshot::channel();
        let copy = Arc::clone(copy);
        let shard = self.enqueue(id, QueuedWork::Raise(Raise { copy, reply }))?;
        Ok(Some((shard, answer)))
    }

    /// Answers for every shard that it does not have the fences, because the folder's copy could not be written, or
    /// because the store is closed.
    fn refused(&self, written: &Result<(), FileError>) -> Vec<(ShardId, Result<(), StoreError>)> {
        let outcome = Outcome::NotApplied;
        let error = |shard| match written {
            Ok(()) => StoreError::Closing,
            Err(FileError::Full(_)) => StoreError::Full { shard, outcome },
            Err(failure) => StoreError::Io {
                shard,
                reason: format!("the copy of the records cannot be kept: {failure}"),
                outcome,
            },
        };
        self.here().map(|id| (id, Err(error(id)))).collect()
    }

    /// Returns the shards that belong to the folder, including shards that failed to open.
    fn here(&self) -> impl Iterator<Item = ShardId> {
        let ids = (0..self.shards.len() as u16).map(ShardId);
        ids.filter(|&id| self.is_here(id))
    }
}
