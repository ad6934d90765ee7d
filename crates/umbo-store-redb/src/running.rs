//! Starting and ending the committers of a store.
//!
//! The invariant: the folder's lock is released only after every committer has ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use umbo_routing::{ClusterMap, ShardMap};
use umbo_store::{Outcome, StoreError, place_datasets};
use umbo_types::{Clock, ShardId};

use crate::committer::{Committer, OpenedState};
use crate::config::Config;
use crate::error::OpenError;
use crate::file_error::FileError;
use crate::folder_lock::FolderLock;
use crate::manifest::Manifest;
use crate::opened_shard::OpenedShard;
use crate::queue::{Queue, WorkSize};
use crate::running_committer::RunningCommitter;
use crate::shard::OpenShard;
use crate::shard_file::{OpenedFile, ShardFile};

/// The resources that end when the store closes.
#[derive(Debug, Default)]
pub(crate) struct RunningStore {
    /// The committers.
    pub(crate) committers: BTreeMap<ShardId, RunningCommitter>,
    /// Released after the committers have ended.
    pub(crate) lock: Option<FolderLock>,
    /// Manifest of the folder, while the lock is held.
    pub(crate) manifest: Option<Manifest>,
    /// The newest map of the cluster that has been followed, or `None` if it is still the first.
    pub(crate) map: Option<Arc<ClusterMap>>,
}

impl RunningStore {
    /// Waits for the committers, whose queues have been closed, and releases the lock. Blocks.
    pub(crate) fn end(self) {
        for committer in self.committers.into_values() {
            committer.wait();
        }
        drop(self.lock);
    }

    /// Like [`Self::end`], without blocking the runtime's thread.
    pub(crate) async fn ended(self) {
        for committer in self.committers.into_values() {
            committer.ended().await;
        }
        drop(self.lock);
    }
}

/// The state of a shard for requests.
#[derive(Debug)]
pub(crate) enum ServedShard {
    /// The shard serves.
    Open(Arc<OpenShard>),
    /// The shard could not be opened: its file, and the reason.
    Failed(Box<ShardFile>, FileError),
    /// The shard has not been opened from this folder, for this reason: another node has it, or it is being opened.
    Elsewhere(String),
}

impl ServedShard {
    /// Returns the shard, or why it does not serve.
    pub(crate) fn open(&self, id: ShardId) -> Result<&Arc<OpenShard>, StoreError> {
        match self {
            Self::Open(shard) => Ok(shard),
            Self::Failed(file, failure) => Err(unavailable(id, file.blame(failure))),
            Self::Elsewhere(reason) => Err(unavailable(id, reason.clone())),
        }
    }

    /// Returns the file of a shard that failed to open, if it may open later, because the system or the disk failed and
    /// not the content. A file that was missing is left to the operator, who may be copying it.
    pub(crate) fn retriable(&self) -> Option<ShardFile> {
        match self {
            Self::Failed(file, failure) if failure.may_pass() => Some(ShardFile {
                // The set of unreadable parts may have changed.
                disk: file.disk.anew(),
                ..(**file).clone()
            }),
            _ => None,
        }
    }

    /// Stops accepting writes, if the shard is open.
    pub(crate) fn close(&self) {
        if let Self::Open(shard) = self {
            shard.queue.close();
        }
    }
}

fn unavailable(shard: ShardId, reason: String) -> StoreError {
    StoreError::Unavailable {
        shard,
        reason,
        outcome: Outcome::NotApplied,
    }
}

/// Starts the committer of an opened shard, and places the datasets in its file.
pub(crate) fn serve(
    config: &Config,
    clock: &Arc<dyn Clock>,
    shard: OpenedShard,
    (map, running): (&ShardMap, &mut RunningStore),
) -> Result<ServedShard, OpenError> {
    let OpenedShard { file, opened, .. } = shard;
    let OpenedFile {
        database,
        mut snapshot,
        progress,
        mut fences,
        mut groups,
        runs,
        has_written,
        next_expiry,
        next_upload_due,
        sizes,
        ..
    } = match opened {
        Ok(opened) => opened,
        Err(failure) => return Ok(ServedShard::Failed(Box::new(file), failure)),
    };
    // Namespaces that the folder's records fence are refused from the first request on; the committer's first
    // commit writes the fences to the shard's own file.
    let durable = Arc::clone(fences.fenced());
    let durable_groups = groups.clone();
    let mut is_behind = fences.raise(&file.kept.fenced());
    if let Some(copy) = file.kept.newest() {
        is_behind |= groups.adopt(&copy);
    }
    // The folder may be new or have lost its copy of the records, but the file still knows its datasets.
    let revision = groups.revision();
    place_datasets(map, revision, groups.groups());
    snapshot.fence(&fences);
    let id = file.shard();
    let runner = file.opener.runner();
    let queue = Queue::new(WorkSize {
        mutations: config.queue_mutations_max,
        bytes: config.queue_bytes_max,
    });
    let shard = Arc::new(OpenShard::new(
        file.shard(),
        (file.path.clone(), Arc::clone(&file.disk)),
        Arc::clone(clock),
        (snapshot, file.row_cache_bytes()),
        queue,
        (durable, durable_groups),
    ));
    *shard.sizes() = sizes;
    let name = format!("shard-{:03}", file.shard().0);
    let committer = Committer::new(
        file,
        Arc::clone(&shard),
        Arc::clone(clock),
        OpenedState {
            database,
            progress,
            fences,
            groups,
            runs,
            has_written,
            is_behind,
            next_expiry,
            next_upload_due,
        },
    );
    running
        .committers
        .insert(id, RunningCommitter::start(runner, name, committer)?);
    Ok(ServedShard::Open(shard))
}
