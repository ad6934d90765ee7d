//! Threads of lower priority, for long reads and for background work, so that they hold up no short request.
//!
//! The first chunk of a page is read where its request is served, like any get; all later ones are read and encoded
//! here. Background work has separate threads, as it would hold up long reads; a thread that is started on one of these
//! has its priority. The kernel gives them what short requests leave, and work on thousands of rows gives way to those
//! (`umbo_store::give_way`). If the system refuses the priority, `/readyz` says so.

use std::future::Future;
use std::io;
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};

use tokio::runtime::{Builder, Runtime};
use tokio_util::task::AbortOnDropHandle;

/// Niceness of long reads: a busy thread gets about a tenth of the time of a busy one of the usual priority.
const READS_NICENESS: i32 = 10;
/// Niceness of background work, the highest: a busy thread gets a seventieth, as no client waits for it. The p99 of
/// gets on the core on which a load is built is a fifth lower than at the niceness of long reads; a load that has the
/// cores to itself is as fast.
const BACKGROUND_NICENESS: i32 = 19;

/// Threads of one kind of work. Without threads the work runs on the thread of the caller.
#[derive(Debug, Default)]
pub struct LowPriority {
    runtime: Option<Runtime>,
    /// Why the system refused a thread its priority.
    refusal: Arc<OnceLock<String>>,
}

impl LowPriority {
    /// Starts this many threads for long reads. On systems other than Linux their priority is the usual one.
    pub fn for_long_reads(threads: usize) -> io::Result<Self> {
        Self::start("long-reads", threads, READS_NICENESS, lower_priority)
    }

    /// Starts this many threads for background work, which have this name. On systems other than Linux their priority
    /// is the usual one.
    pub fn for_background(name: &'static str, threads: usize) -> io::Result<Self> {
        Self::start(name, threads, BACKGROUND_NICENESS, lower_priority)
    }

    fn start(
        name: &'static str,
        threads: usize,
        niceness: i32,
        lower: fn(i32) -> io::Result<()>,
    ) -> io::Result<Self> {
        let refusal = Arc::<OnceLock<String>>::default();
        let refused = Arc::clone(&refusal);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name(name)
            .on_thread_start(move || {
                if let Err(error) = lower(niceness)
                    && refused.set(error.to_string()).is_ok()
                {
                    tracing::warn!(%error, threads = name, "these threads could not be given a lower priority");
                }
            })
            .enable_time()
            .build()?;
        Ok(Self {
            runtime: Some(runtime),
            refusal,
        })
    }

    /// Returns why the system refused a thread its lower priority; `None` if it did not.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refusal.get().map(String::as_str)
    }

    /// Returns whether there are threads.
    pub(crate) const fn has_threads(&self) -> bool {
        self.runtime.is_some()
    }

    /// Runs work. Dropping the future stops it.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let Some(runtime) = &self.runtime else {
            return work.await;
        };
        match AbortOnDropHandle::new(runtime.spawn(work)).await {
            Ok(answer) => answer,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The process ends, and the waiting request with it.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

impl Drop for LowPriority {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The requests of these reads are gone, and another process continues a load.
            runtime.shutdown_background();
        }
    }
}

#[cfg(target_os = "linux")]
fn lower_priority(niceness: i32) -> io::Result<()> {
    let thread = rustix::thread::gettid();
    Ok(rustix::process::setpriority_process(
        Some(thread),
        niceness,
    )?)
}

#[cfg(not(target_os = "linux"))]
fn lower_priority(_: i32) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread_name() -> Option<String> {
        std::thread::current().name().map(str::to_owned)
    }

    #[tokio::test]
    async fn long_reads_have_threads_of_their_own() {
        let threads = LowPriority::for_long_reads(1).unwrap();
        let name = threads.run(async { thread_name() }).await;
        assert_eq!(name.as_deref(), Some("long-reads"));
        let here = LowPriority::default().run(async { thread_name() }).await;
        assert_eq!(here, thread_name());
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn their_priority_is_lower_and_that_of_others_is_not() {
        let niceness = || {
            let thread = rustix::thread::gettid();
            rustix::process::getpriority_process(Some(thread)).unwrap()
        };
        let before = niceness();
        let reads = LowPriority::for_long_reads(1).unwrap();
        let loads = LowPriority::for_background("loads", 1).unwrap();
        for (threads, expected) in [(reads, READS_NICENESS), (loads, BACKGROUND_NICENESS)] {
            let theirs = threads.run(async move { niceness() }).await;
            assert_eq!(theirs, before.max(expected));
        }
        assert_eq!(niceness(), before);
    }

    #[tokio::test]
    async fn a_refused_priority_is_told() {
        let refuse = |_| Err(io::ErrorKind::PermissionDenied.into());
        let threads = LowPriority::start("refused", 1, READS_NICENESS, refuse).unwrap();
        threads.run(async {}).await;
        assert_eq!(threads.refusal(), Some("permission denied"));
        let threads = LowPriority::start("granted", 1, READS_NICENESS, |_| Ok(())).unwrap();
        threads.run(async {}).await;
        assert_eq!(threads.refusal(), None);
    }

    #[tokio::test]
    async fn a_read_whose_client_has_left_is_stopped() {
        let threads = LowPriority::for_long_reads(1).unwrap();
        let (held, mut ended) = tokio::sync::mpsc::channel::<()>(1);
        let (started, has_started) = tokio::sync::oneshot::channel();
        let mut reading = Box::pin(threads.run(async move {
            let _held = held;
            started.send(()).unwrap();
            std::future::pending::<()>().await;
        }));
        tokio::select! {
            biased;
            () = &mut reading => panic!("it never ends"),
            told = has_started => told.unwrap(),
        }
        drop(reading);
        assert_eq!(ended.recv().await, None);
    }

    #[tokio::test]
    #[should_panic(expected = "a chunk that cannot be read")]
    async fn a_panic_reaches_the_request() {
        let threads = LowPriority::for_long_reads(1).unwrap();
        threads
            .run(async { panic!("a chunk that cannot be read") })
            .await;
    }
}
