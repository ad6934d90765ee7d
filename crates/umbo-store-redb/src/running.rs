//! Starting and ending the committers of a store.
//!
//! The invariant: the folder's lock is released only after every committer has ended.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use umbo_types::Clock;

use crate::committer::Committer;
use crate::config::Config;
use crate::error::OpenError;
use crate::folder_lock::FolderLock;
use crate::opened_shard::OpenedShard;
use crate::queue::{Queue, Size};
use crate::shard::Shard;
use crate::shard_file::OpenedFile;

/// What must end when the store closes.
#[derive(Debug, Default)]
pub(crate) struct Running {
    /// Threads of the committers.
    pub(crate) committers: Vec<JoinHandle<()>>,
    /// Released after the committers have ended.
    pub(crate) lock: Option<FolderLock>,
}

impl Running {
    /// Waits for the committers, whose queues have been closed, and releases the lock.
    pub(crate) fn end(self) {
        for committer in self.committers {
            if committer.join().is_err() {
                tracing::error!("a committer has panicked");
            }
        }
        drop(self.lock);
    }
}

/// A shard, and what becomes of requests for it.
#[derive(Debug)]
pub(crate) enum Served {
    /// It serves.
    Open(Arc<Shard>),
    /// It could not be opened, and why.
    Failed(PathBuf, String),
    /// It is not in this folder, but where else.
    Elsewhere(String),
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
    running.committers.push(thread);
    Ok(Served::Open(shard))
}
