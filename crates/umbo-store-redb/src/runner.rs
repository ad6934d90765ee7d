//! The executor of committers: threads and real time, or, in a simulation, tasks and simulated time.
//!
//! Owns every start of a thread of the engine and every reading of the time for bounds on the disk (not on
//! rows). The invariant: under [`Runner::Tasks`] the engine starts no thread, so that a simulation decides
//! the order of events.

use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::committer::Committer;
use crate::error::OpenError;

/// The executor of the committers of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "simulation"),
    expect(unreachable_pub, reason = "public for simulations only")
)]
pub enum Runner {
    /// A thread for each committer, and the system's time.
    #[default]
    Threads,
    /// A task for each committer on the runtime that opens the store, and the runtime's time. Reads, openings
    /// and commits run where they are called. Dropping a store ends it as a kill does.
    #[cfg(feature = "simulation")]
    Tasks,
}

impl Runner {
    /// Returns the current time, in which the bounds on the disk are measured.
    pub(crate) fn now(self) -> Instant {
        match self {
            Self::Threads => Instant::now(),
            #[cfg(feature = "simulation")]
            Self::Tasks => tokio::time::Instant::now().into_std(),
        }
    }

    /// Starts a committer.
    pub(crate) fn start(
        self,
        name: String,
        committer: Committer,
    ) -> Result<RunningCommitter, OpenError> {
        match self {
            Self::Threads => thread::Builder::new()
                .name(name)
                .spawn(move || committer.run())
                .map(RunningCommitter::Thread)
                .map_err(|source| OpenError::System {
                    what: "a thread",
                    source,
                }),
            #[cfg(feature = "simulation")]
            Self::Tasks => Ok(RunningCommitter::Task(tokio::spawn(
                committer.run_as_task(),
            ))),
        }
    }

    /// Runs work that waits for the disk without blocking the runtime's thread, except in a simulation.
    pub(crate) async fn off_runtime<A: Send + 'static>(
        self,
        work: impl FnOnce() -> A + Send + 'static,
    ) -> Option<A> {
        match self {
            Self::Threads => tokio::task::spawn_blocking(work).await.ok(),
            #[cfg(feature = "simulation")]
            Self::Tasks => Some(work()),
        }
    }

    /// Runs `work` on each item, in parallel or one after the other. The answers are in the order of the
    /// items.
    pub(crate) fn each<T: Send, A: Send>(
        self,
        items: Vec<T>,
        work: impl Fn(T) -> A + Send + Sync,
    ) -> Vec<A> {
        let work = &work;
        match self {
            Self::Threads => thread::scope(|scope| {
                let threads: Vec<_> = items
                    .into_iter()
                    .map(|item| scope.spawn(move || work(item)))
                    .collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().expect("every panic of redb is caught"))
                    .collect()
            }),
            #[cfg(feature = "simulation")]
            Self::Tasks => items.into_iter().map(work).collect(),
        }
    }
}

/// A committer that has been started.
#[derive(Debug)]
pub(crate) enum RunningCommitter {
    /// On a thread of its own.
    Thread(JoinHandle<()>),
    /// As a task.
    #[cfg(feature = "simulation")]
    Task(tokio::task::JoinHandle<()>),
}

impl RunningCommitter {
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
