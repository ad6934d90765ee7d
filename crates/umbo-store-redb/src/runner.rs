//! The executor of committers: threads and real time, or, in a simulation, tasks and simulated time.
//!
//! Owns every start of a thread of the engine, except the threads of committers (`running_committer`), and every
//! reading of the time for bounds on the disk (not on rows). The invariant: under [`Runner::Tasks`] the engine starts
//! no thread, so that a simulation decides the order of events.

use std::thread;
use std::time::{Duration, Instant};

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
    /// A task for each committer on the runtime that opens the store, and the runtime's time. Reads, openings and
    /// commits run in the task of their caller. Dropping a store ends it as a kill does.
    #[cfg(feature = "simulation")]
    Tasks,
}

impl Runner {
    /// Returns the current time. The bounds on the disk are measured in this time.
    pub(crate) fn now(self) -> Instant {
        match self {
            Self::Threads => Instant::now(),
            #[cfg(feature = "simulation")]
            Self::Tasks => tokio::time::Instant::now().into_std(),
        }
    }

    /// Returns how long a row of a quiet shard is only in its log. A simulation is over after seconds.
    pub(crate) const fn apply_after(self) -> Duration {
        match self {
            Self::Threads => Duration::from_secs(1),
            #[cfg(feature = "simulation")]
            Self::Tasks => Duration::from_millis(50),
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
