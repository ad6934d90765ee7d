//! Threads of lower priority for long reads and for loads, so that they hold up no short request.
//!
//! The first chunk of a page is read where its request is served, like any get; all later ones are read and
//! encoded here. So are the parts of loads; a thread that is started here has the same priority. The kernel gives them
//! what short requests leave, and work on thousands of rows gives way to those (`umbo_store::give_way`).

use std::future::Future;
use std::io;
use std::panic::resume_unwind;

use tokio::runtime::{Builder, Runtime};
use tokio_util::task::AbortOnDropHandle;

/// Niceness of the threads: a busy one gets about a tenth of the time of a busy thread of the usual priority.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// The threads. Without them long reads go on where their requests are served.
#[derive(Debug, Default)]
pub struct LongReads {
    runtime: Option<Runtime>,
}

impl LongReads {
    /// Starts as many threads. On systems other than Linux their priority is the usual one.
    pub fn start(threads: usize) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("long-reads")
            .on_thread_start(lower_priority)
            .enable_time()
            .build()?;
        Ok(Self {
            runtime: Some(runtime),
        })
    }

    /// Returns whether there are threads.
    pub(crate) const fn has_threads(&self) -> bool {
        self.runtime.is_some()
    }

    /// Does a part of a long read, or applies loads. Dropping the future stops it.
    pub(crate) async fn run<T: Send + 'static>(
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

impl Drop for LongReads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Reads that go on are of requests that are gone.
            runtime.shutdown_background();
        }
    }
}

#[cfg(target_os = "linux")]
fn lower_priority() {
    let thread = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(thread), NICENESS) {
        tracing::warn!(%error, "long reads and loads have the priority of short requests");
    }
}

#[cfg(not(target_os = "linux"))]
fn lower_priority() {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn thread_name() -> Option<String> {
        std::thread::current().name().map(str::to_owned)
    }

    #[tokio::test]
    async fn long_reads_have_threads_of_their_own() {
        let threads = LongReads::start(1).unwrap();
        let name = threads.run(async { thread_name() }).await;
        assert_eq!(name.as_deref(), Some("long-reads"));
        let here = LongReads::default().run(async { thread_name() }).await;
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
        let threads = LongReads::start(1).unwrap();
        let theirs = threads.run(async move { niceness() }).await;
        assert_eq!(theirs, before.max(NICENESS));
        assert_eq!(niceness(), before);
    }

    #[tokio::test]
    async fn a_read_whose_client_has_left_is_stopped() {
        let threads = LongReads::start(1).unwrap();
        let (held, mut ended) = tokio::sync::mpsc::channel::<()>(1);
        let reading = threads.run(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        assert!(
            tokio::time::timeout(Duration::from_millis(20), reading)
                .await
                .is_err()
        );
        assert_eq!(ended.recv().await, None);
    }

    #[tokio::test]
    #[should_panic(expected = "a chunk that cannot be read")]
    async fn a_panic_reaches_the_request() {
        let threads = LongReads::start(1).unwrap();
        threads
            .run(async { panic!("a chunk that cannot be read") })
            .await;
    }
}
