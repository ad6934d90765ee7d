//! What a stream waits for: requests that the store did not answer at once.
//!
//! They are driven by a task of the stream, so that they come to their end, and give back what they
//! hold, whether or not the peer takes its answers. Answers gather while the stream is busy and go
//! out together. A stream that ends drops its reads; its writes run on.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::{FuturesUnordered, Stream as _};
use futures_util::task::AtomicWaker;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio_util::task::TaskTracker;
use umbo_protocol::{Answer, NodeError, Outcome};
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
    pub(crate) fn new(waker: Arc<AtomicWaker>) -> Self {
        let gathered = Mutex::default();
        Self {
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
            tasks.spawn(drive(receiver, Arc::clone(&self.done)));
            sender
        });
        // The task ends only after this stream has.
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

/// Drives what is handed over until the stream has ended and everything is done.
async fn drive(mut jobs: UnboundedReceiver<Job>, done: Arc<Done>) {
    let mut running = FuturesUnordered::new();
    std::future::poll_fn(|context| {
        let is_over = take_jobs(&mut jobs, &mut running, context);
        let mut finished = Vec::new();
        while let Poll::Ready(Some(one)) = Pin::new(&mut running).poll_next(context) {
            finished.push(one);
        }
        if !finished.is_empty() {
            done.put(finished);
        }
        if is_over && running.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// Takes what was handed over; says whether nothing more will come.
fn take_jobs(
    jobs: &mut UnboundedReceiver<Job>,
    running: &mut FuturesUnordered<Job>,
    context: &mut Context<'_>,
) -> bool {
    loop {
        match jobs.poll_recv(context) {
            Poll::Ready(Some(job)) => running.push(job),
            Poll::Ready(None) => return true,
            Poll::Pending => return false,
        }
    }
}
