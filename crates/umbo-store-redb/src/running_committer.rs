//! A committer on the executor of its store: its start, and the wait for its end.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::committer::Committer;
use crate::error::OpenError;
use crate::runner::Runner;
use crate::shard::OpenShard;

/// Ends the work of a shard if its committer panics.
struct PanicGuard(Arc<OpenShard>);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.end_after_panic();
        }
    }
}

/// A committer that has been started.
#[derive(Debug)]
pub(crate) enum RunningCommitter {
    /// On a separate thread.
    Thread(JoinHandle<()>),
    /// As a task.
    #[cfg(feature = "simulation")]
    Task(tokio::task::JoinHandle<()>),
}

impl RunningCommitter {
    /// Starts a committer.
    pub(crate) fn start(
        runner: Runner,
        name: String,
        committer: Committer,
    ) -> Result<Self, OpenError> {
        let guard = PanicGuard(Arc::clone(committer.shard()));
        match runner {
            Runner::Threads => thread::Builder::new()
                .name(name)
                .spawn(move || {
                    let _guard = guard;
                    committer.run();
                })
                .map(Self::Thread)
                .map_err(|source| OpenError::System {
                    what: "a thread",
                    source,
                }),
            #[cfg(feature = "simulation")]
            Runner::Tasks => Ok(Self::Task(tokio::spawn(async move {
                let _guard = guard;
                committer.run_as_task().await;
            }))),
        }
    }

    /// Waits for a committer whose queue has been closed; its file is closed afterwards. Blocks; a task is
    /// aborted instead, as by a kill.
    pub(crate) fn wait(self) {
        match self {
            Self::Thread(thread) => {
                if thread.join().is_err() {
                    tracing::error!("a committer has panicked");
                }
            }
            #[cfg(feature = "simulation")]
            Self::Task(task) => task.abort(),
        }
    }

    /// Waits for a committer whose queue has been closed, without blocking the runtime's thread.
    pub(crate) async fn ended(self) {
        match self {
            Self::Thread(_) => {
                if tokio::task::spawn_blocking(|| self.wait()).await.is_err() {
                    tracing::error!("waiting for a committer was cut short");
                }
            }
            #[cfg(feature = "simulation")]
            Self::Task(task) => {
                if task.await.is_err() {
                    tracing::error!("a committer has panicked");
                }
            }
        }
    }
}
