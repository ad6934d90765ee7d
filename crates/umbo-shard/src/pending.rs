//! What a stream waits for: requests that the store did not answer at once.
//!
//! They are driven by a part of the connection beside the stream, so that they come to their end, and
//! give back what they hold, whether or not the peer takes its answers. Answers gather while the stream
//! is busy and go out together. A stream that ends drops its reads; its writes run on.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::{FuturesUnordered, Stream as _, StreamExt as _};
use futures_util::task::AtomicWaker;
use hyper::rt::Executor as _;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio_util::task::TaskTracker;
use umbo_protocol::{Answer, NodeError, Outcome, Parts};
use umbo_store::StoreError;
use umbo_types::ShardId;

use crate::kind::Kind;
use crate::limits::WAITING_ANSWERS_LEN_MAX;

/// Work that ends with the answers to one request.
pub(crate) type Work = Pin<Box<dyn Future<Output = Vec<Answer>> + Send>>;

type Job = Pin<Box<dyn Future<Output = Finished> + Send>>;

/// A request that came to its end; without answers where it was cancelled.
struct Finished {
    id: u64,
    kind: Kind,
    answers: Vec<Answer>,
}

/// The requests of a stream that wait for the store.
pub(crate) struct Pending {
    /// Of the connection.
    parts: Parts,
    jobs: Option<UnboundedSender<Job>>,
    done: Arc<Done>,
    /// Of reads, which may be cancelled.
    aborts: HashMap<u64, AbortHandle>,
    count: usize,
}

/// What has come to its end since the stream looked last.
struct Done {
    gathered: Mutex<Gathered>,
    waker: Arc<AtomicWaker>,
}

#[derive(Default)]
struct Gathered {
    finished: Vec<Finished>,
    bytes: usize,
}

impl Pending {
    pub(crate) fn new(waker: Arc<AtomicWaker>, parts: Parts) -> Self {
        let gathered = Mutex::default();
        Self {
            parts,
            jobs: None,
            done: Arc::new(Done { gathered, waker }),
            aborts: HashMap::new(),
            count: 0,
        }
    }

    /// Returns the number of requests that are waited for, or whose answers were not taken yet.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Waits for a read, which is dropped when it is cancelled or the stream ends.
    pub(crate) fn add_read(&mut self, (kind, id): (Kind, u64), work: Work, tasks: &TaskTracker) {
        let (handle, registration) = AbortHandle::new_pair();
        let work = Abortable::new(work, registration);
        self.aborts.insert(id, handle);
        let job = async move {
            let answers = work.await.unwrap_or_default();
            Finished { id, kind, answers }
        };
        self.add(Box::pin(job), tasks);
    }

    /// Waits for a write, which is brought to its end.
    pub(crate) fn add_write(&mut self, (kind, id): (Kind, u64), work: Work, tasks: &TaskTracker) {
        let job = async move {
            let answers = work.await;
            Finished { id, kind, answers }
        };
        self.add(Box::pin(job), tasks);
    }

    /// Drops a read that nobody waits for; any other id does nothing.
    pub(crate) fn cancel(&mut self, id: u64) {
        if let Some(read) = self.aborts.remove(&id) {
            read.abort();
        }
    }

    /// Takes the answers that have come in, by request.
    pub(crate) fn take(&mut self) -> Vec<(Kind, Vec<Answer>)> {
        if self.count == 0 {
            return Vec::new();
        }
        let finished = self.done.take();
        self.count -= finished.len();
        for one in &finished {
            self.aborts.remove(&one.id);
        }
        let answers = finished.into_iter().map(|one| (one.kind, one.answers));
        answers.collect()
    }

    fn add(&mut self, job: Job, tasks: &TaskTracker) {
        self.count += 1;
        let jobs = self.jobs.get_or_insert_with(|| {
            // Bounded by the share of a stream in the places of the node.
            let (sender, receiver) = mpsc::unbounded_channel();
            self.parts.execute(Drive {
                jobs: receiver,
                running: FuturesUnordered::new(),
                done: Arc::clone(&self.done),
                tasks: tasks.clone(),
                runtime: Handle::current(),
            });
            sender
        });
        // It ends only after this stream has.
        let _ = jobs.send(job);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.aborts.values().for_each(AbortHandle::abort);
    }
}

impl Done {
    fn take(&self) -> Vec<Finished> {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.bytes = 0;
        std::mem::take(&mut gathered.finished)
    }

    fn put(&self, finished: Vec<Finished>) {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        for mut one in finished {
            // Answers to writes are short, and what was done must not be denied.
            if one.kind.is_read() {
                let len = one.answers.iter().map(|answer| answer.bytes as usize);
                let len = len.sum::<usize>();
                if gathered.bytes + len > WAITING_ANSWERS_LEN_MAX {
                    one.answers = untaken(&one);
                } else {
                    gathered.bytes += len;
                }
            }
            gathered.finished.push(one);
        }
        drop(gathered);
        self.waker.wake();
    }
}

/// What is answered instead of rows that the peer leaves lying.
fn untaken(finished: &Finished) -> Vec<Answer> {
    let Some(last) = finished.answers.last() else {
        return Vec::new();
    };
    let shard = ShardId(0);
    vec![Answer {
        id: finished.id,
        service_time: last.service_time,
        has_more: false,
        rows: 0,
        bytes: 0,
        outcome: Outcome::Failed(NodeError::Store(StoreError::NodeBusy { shard })),
    }]
}

/// Drives what is handed over until the stream has ended and everything is done: as a part of its
/// connection, and in a task of its own should the connection end before.
struct Drive {
    jobs: UnboundedReceiver<Job>,
    running: FuturesUnordered<Job>,
    done: Arc<Done>,
    tasks: TaskTracker,
    runtime: Handle,
}

impl Future for Drive {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let is_over = this.take_jobs(context);
        let mut finished = Vec::new();
        while let Poll::Ready(Some(one)) = Pin::new(&mut this.running).poll_next(context) {
            finished.push(one);
        }
        if !finished.is_empty() {
            this.done.put(finished);
        }
        if is_over && this.running.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Drive {
    /// Takes what was handed over; says whether nothing more will come.
    fn take_jobs(&mut self, context: &mut Context<'_>) -> bool {
        loop {
            match self.jobs.poll_recv(context) {
                Poll::Ready(Some(job)) => self.running.push(job),
                Poll::Ready(None) => return true,
                Poll::Pending => return false,
            }
        }
    }
}

impl Drop for Drive {
    /// What was begun is brought to its end, though nobody hears of it.
    fn drop(&mut self) {
        while let Ok(job) = self.jobs.try_recv() {
            self.running.push(job);
        }
        let mut running = std::mem::take(&mut self.running);
        if !running.is_empty() {
            let rest = async move { while running.next().await.is_some() {} };
            self.tasks.spawn_on(rest, &self.runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::sync::oneshot;
    use umbo_protocol::OneTask;

    use super::*;

    /// A write that is done when it is told to be, and counts itself then.
    fn write(done: &Arc<AtomicUsize>) -> (oneshot::Sender<()>, Work) {
        let (tell, told) = oneshot::channel();
        let done = Arc::clone(done);
        let work = Box::pin(async move {
            let _ = told.await;
            done.fetch_add(1, Ordering::Relaxed);
            Vec::new()
        });
        (tell, work)
    }

    /// Waits for all that runs on.
    async fn end(tasks: &TaskTracker) {
        tasks.close();
        let ended = tokio::time::timeout(Duration::from_secs(10), tasks.wait()).await;
        assert!(ended.is_ok());
    }

    #[tokio::test]
    async fn writes_run_on_when_the_connection_ends() {
        let (tasks, done) = (TaskTracker::new(), Arc::default());
        let mut connection = OneTask::default();
        let mut pending = Pending::new(Arc::default(), connection.parts());
        let (tell_first, first) = write(&done);
        pending.add_write((Kind::Write, 1), first, &tasks);
        connection.drive(tokio::task::yield_now()).await;
        // This one has been handed over and was never polled.
        let (tell_second, second) = write(&done);
        pending.add_write((Kind::Write, 2), second, &tasks);
        drop(connection);
        drop(pending);
        tell_first.send(()).unwrap();
        tell_second.send(()).unwrap();
        end(&tasks).await;
        assert_eq!(done.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_connection_that_ends_before_its_first_turn_brings_writes_to_their_end() {
        let (tasks, done) = (TaskTracker::new(), Arc::default());
        let connection = OneTask::default();
        let mut pending = Pending::new(Arc::default(), connection.parts());
        let (tell, work) = write(&done);
        pending.add_write((Kind::Write, 1), work, &tasks);
        drop(connection);
        tell.send(()).unwrap();
        end(&tasks).await;
        assert_eq!(done.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn what_was_done_is_there_to_be_taken_and_wakes_the_stream() {
        let (tasks, done) = (TaskTracker::new(), Arc::default());
        let mut connection = OneTask::default();
        let mut pending = Pending::new(Arc::default(), connection.parts());
        let (tell, work) = write(&done);
        pending.add_write((Kind::Write, 7), work, &tasks);
        tell.send(()).unwrap();
        assert_eq!(pending.count(), 1);
        connection.drive(tokio::task::yield_now()).await;
        assert_eq!(pending.take().len(), 1);
        assert_eq!(pending.count(), 0);
    }
}
