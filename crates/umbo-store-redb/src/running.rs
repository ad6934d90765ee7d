//! Starting and ending the committers of a store.
//!
//! The invariant: the folder's lock is released only after every committer has ended.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use umbo_routing::ClusterMap;
use umbo_store::{Outcome, StoreError};
use umbo_types::{Clock, ShardId};

use crate::committer::Committer;
use crate::config::Config;
use crate::error::OpenError;
use crate::folder_lock::FolderLock;
use crate::manifest::Manifest;
use crate::opened_shard::OpenedShard;
use crate::queue::{Queue, Size};
use crate::shard::Shard;
use crate::shard_file::OpenedFile;

/// What must end when the store closes.
#[derive(Debug, Default)]
pub(crate) struct Running {
    /// Threads of the committers.
    pub(crate) committers: BTreeMap<ShardId, JoinHandle<()>>,
    /// Released after the committers have ended.
    pub(crate) lock: Option<FolderLock>,
    /// Of the folder, as long as the lock is held.
    pub(crate) manifest: Option<Manifest>,
    /// The newest map of the cluster that has been followed; none where it is still the first.
    pub(crate) map: Option<Arc<ClusterMap>>,
}

impl Running {
    /// Waits for the committers, whose queues have been closed, and releases the lock.
    pub(crate) fn end(self) {
        for committer in self.committers.into_values() {
            wait_for(committer);
        }
        drop(self.lock);
    }
}

/// Waits for a committer whose queue has been closed: its file is closed then.
pub(crate) fn wait_for(committer: JoinHandle<()>) {
    if committer.join().is_err() {
        tracing::error!("a committer has panicked");
    }
}

/// A shard, and what becomes of requests for it.
#[derive(Debug)]
pub(crate) enum Served {
    /// It serves.
    Open(Arc<Shard>),
    /// It could not be opened, and why.
    Failed(PathBuf, String),
    /// It does not belong to this folder, and where it does.
    Elsewhere(String),
}

impl Served {
    /// Returns the shard, or why it does not serve.
    pub(crate) fn open(&self, id: ShardId) -> Result<&Arc<Shard>, StoreError> {
        match self {
            Self::Open(shard) => Ok(shard),
            Self::Failed(_, reason) | Self::Elsewhere(reason) => Err(StoreError::Unavailable {
                shard: id,
                reason: reason.clone(),
                outcome: Outcome::NotApplied,
            }),
        }
    }

    /// Stops taking writes, if it did.
    pub(crate) fn close(&self) {
        if let Self::Open(shard) = self {
            shard.queue.close();
        }
    }
}

/// Starts the committer of a shard that was opened.
pub(crate) fn serve(
    config: &Config,
    clock: &Arc<dyn Clock>,
    shard: OpenedShard,
    running: &mut Running,
) -> Result<Served, OpenError> {
    let OpenedShard { file, opened, .. } = shard;
    let OpenedFile {
        database,
        snapshot,
        progress,
        next_expiry,
        ..
    } = match opened {
        Ok(opened) => opened,
        Err(failure) => {
            let reason = file.blame(failure);
            return Ok(Served::Failed(file.path, reason));
        }
    };
    let id = file.shard();
    let queue = Queue::new(Size {
        mutations: config.queue_mutations_max,
        bytes: config.queue_bytes_max,
    });
    let shard = Arc::new(Shard::new(
        file.shard(),
        file.path.clone(),
        Arc::clone(clock),
        snapshot,
        queue,
    ));
    let name = format!("shard-{:03}", file.shard().0);
    let committer = Committer::new(
        file,
        Arc::clone(&shard),
        Arc::clone(clock),
        database,
        progress,
        next_expiry,
    );
    let thread = thread::Builder::new()
        .name(name)
        .spawn(move || committer.run())
        .map_err(|source| OpenError::System {
            what: "a thread",
            source,
        })?;
    running.committers.insert(id, thread);
    Ok(Served::Open(shard))
}
