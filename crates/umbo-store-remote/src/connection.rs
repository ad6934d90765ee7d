//! One connection to a node: what is to be sent, and who waits for what.
//!
//! A request is encoded by the task that makes it, into the frame that goes out next; whatever has
//! gathered there when the stream can take more goes out as one message. No timer, no channel and
//! no task a request. The invariant: what is under the lock is never held across a call that can
//! wait or wake.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use tokio::sync::Notify;
use umbo_protocol::{Answer, Ask, FRAME_LEN_TARGET, Hello, RequestFrame, RequestRef, Yield};

use crate::asked::Asked;
use crate::counters::Counters;
use crate::outbox::{Ending, Outbox, Phase};
use crate::waiting::{Event, Kind, TooMuch};

/// Requests in flight from which on others may be about to be added.
const BUSY_FROM: usize = 4;

/// Id of every probe of a connection, of which there is one at a time.
pub(crate) const PROBE_ID: u64 = 1;

/// A connection that has been welcomed.
#[derive(Debug)]
pub(crate) struct Connection {
    outbox: Mutex<Outbox>,
    counters: Arc<Counters>,
    /// Told when it is not to be used any more.
    left: Notify,
    outbox_len_max: usize,
}

/// Why a connection does not take a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// It is not used any more; another one is.
    Left,
    /// It has as much to do as it may have.
    Busy,
}

/// What a connection looks like to whoever watches it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) in_flight: usize,
    pub(crate) sent_unheard: usize,
}

impl Connection {
    /// Makes a connection whose first frame is `hello`.
    pub(crate) fn new(
        hello: &Hello,
        counters: Arc<Counters>,
        in_flight_max: usize,
        outbox_len_max: usize,
    ) -> Arc<Self> {
        let hello = RequestFrame::hello(hello);
        Arc::new(Self {
            outbox: Mutex::new(Outbox::new(&hello, in_flight_max)),
            counters,
            left: Notify::new(),
            outbox_len_max,
        })
    }

    /// Queues a request; its id is given to it. `rows_max` bounds the rows of a multi-get's answer.
    pub(crate) fn ask(
        self: &Arc<Self>,
        mut request: RequestRef<'_>,
        kind: Kind,
        now: Instant,
    ) -> Result<Asked, NotTaken> {
        let (len, rows_max) = (size_of_request(request.ask), rows_max(request.ask));
        let mut outbox = self.lock();
        if outbox.phase != Phase::Open {
            return Err(NotTaken::Left);
        }
        if outbox.len + len > self.outbox_len_max && outbox.len > 0 {
            return Err(NotTaken::Busy);
        }
        let id = outbox.waiting.open(kind, rows_max, now);
        let id = id.ok_or(NotTaken::Busy)?;
        request.id = id;
        let waker = if len < FRAME_LEN_TARGET / 4 {
            outbox.push(&request);
            outbox.sender.take()
        } else {
            // Others need not wait while so much is copied.
            drop(outbox);
            let mut bytes = BytesMut::with_capacity(len);
            RequestFrame::push(&mut bytes, &request);
            let mut outbox = self.lock();
            if outbox.phase != Phase::Open {
                outbox.waiting.leave(id);
                return Err(NotTaken::Left);
            }
            outbox.push_alone(bytes, id);
            outbox.sender.take()
        };
        wake(waker);
        Ok(Asked::new(Arc::clone(self), id))
    }

    /// Returns what has become of a request.
    pub(crate) fn poll(&self, id: u64, context: &Context<'_>) -> Option<Event> {
        self.lock().waiting.poll(id, context.waker())
    }

    /// Forgets a request that nobody waits for; the node is told where it was a read.
    pub(crate) fn leave(&self, id: u64) {
        let mut outbox = self.lock();
        let is_to_be_told = outbox.waiting.leave(id);
        if !is_to_be_told || outbox.phase != Phase::Open {
            return;
        }
        outbox.push(&without_call(0, &Ask::Cancel(id)));
        let waker = outbox.sender.take();
        drop(outbox);
        wake(waker);
    }

    /// Queues a probe; its answer goes to whoever reads the connection.
    pub(crate) fn probe(&self) {
        let request = without_call(PROBE_ID, &Ask::Probe);
        let mut outbox = self.lock();
        if outbox.phase != Phase::Open {
            return;
        }
        outbox.push(&request);
        let waker = outbox.sender.take();
        drop(outbox);
        wake(waker);
    }

    /// Hands answers of a frame to who waits for them; calls `took` with the instant at which each
    /// small read was asked.
    pub(crate) fn answer(
        &self,
        answers: impl Iterator<Item = Answer>,
        wakers: &mut Vec<Waker>,
        mut took: impl FnMut(Instant),
    ) -> Result<(), TooMuch> {
        let mut outbox = self.lock();
        outbox.sent_unheard = 0;
        for answer in answers {
            let (waker, asked_at) = outbox.waiting.answer(answer)?;
            wakers.extend(waker);
            if let Some(asked_at) = asked_at {
                took(asked_at);
            }
        }
        Ok(())
    }

    /// Tells small reads that were asked before an instant that they are slow.
    pub(crate) fn mark_slow(&self, asked_before: Instant, wakers: &mut Vec<Waker>) {
        self.lock().waiting.mark_slow(asked_before, wakers);
    }

    pub(crate) fn load(&self) -> Load {
        let outbox = self.lock();
        Load {
            in_flight: outbox.waiting.len(),
            sent_unheard: outbox.sent_unheard,
        }
    }

    /// Takes no more requests; what is queued is sent and then the stream half closed.
    pub(crate) fn drain(&self) {
        let mut outbox = self.lock();
        if outbox.phase == Phase::Open {
            outbox.phase = Phase::Draining;
        }
        let waker = outbox.sender.take();
        drop(outbox);
        wake(waker);
        self.left.notify_one();
    }

    /// Ends the connection: all that wait are told that it is lost.
    pub(crate) fn end(&self, reason: &str, is_given_up: bool) {
        let mut wakers = Vec::new();
        let mut outbox = self.lock();
        if matches!(outbox.phase, Phase::Ended(_)) {
            return;
        }
        let ending = Ending {
            reason: reason.into(),
            is_given_up,
        };
        outbox.end(ending, &mut wakers);
        drop(outbox);
        wakers.into_iter().for_each(Waker::wake);
        self.left.notify_one();
    }

    /// Returns how the connection ended; none while it has not.
    pub(crate) fn ended(&self) -> Option<Ending> {
        match &self.lock().phase {
            Phase::Ended(ending) => Some(ending.clone()),
            Phase::Open | Phase::Draining => None,
        }
    }

    /// Says whether the connection takes requests.
    pub(crate) fn is_open(&self) -> bool {
        self.lock().phase == Phase::Open
    }

    /// Waits until it takes no more. For one who waits.
    pub(crate) async fn left(&self) {
        while self.is_open() {
            self.left.notified().await;
        }
    }

    /// Returns what is to be sent, for the stream.
    pub(crate) fn frames(self: &Arc<Self>) -> Frames {
        Frames {
            connection: Arc::clone(self),
            rest: Yield::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a connection sends: the request stream of the call.
#[derive(Debug)]
pub(crate) struct Frames {
    connection: Arc<Connection>,
    rest: Yield,
}

impl Stream for Frames {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = self.get_mut();
        let mut outbox = this.connection.lock();
        // Tasks that are ready to run now may have something to add: they run first, once. Where hardly
        // anybody asks there are none, and a turn of the runtime is a good part of a request.
        let is_busy = outbox.waiting.len() >= BUSY_FROM;
        if is_busy && outbox.has_room() {
            drop(outbox);
            ready!(this.rest.poll(context));
            outbox = this.connection.lock();
        }
        if let Some((frame, requests)) = outbox.take() {
            drop(outbox);
            let counters = &this.connection.counters;
            counters.frames.fetch_add(1, Ordering::Relaxed);
            counters.requests.fetch_add(requests, Ordering::Relaxed);
            return Poll::Ready(Some(frame));
        }
        if outbox.phase != Phase::Open {
            return Poll::Ready(None);
        }
        outbox.sender = Some(context.waker().clone());
        Poll::Pending
    }
}

/// A request of the connection's own.
fn without_call(id: u64, ask: &Ask) -> RequestRef<'_> {
    RequestRef {
        id,
        timeout: None,
        criticality: umbo_types::Criticality::CriticalPlus,
        caller: &[],
        price: umbo_types::RequestUnits::ZERO,
        traceparent: &[],
        is_continued: false,
        names: None,
        ask,
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Returns about how many bytes a request takes.
pub(crate) fn size_of_request(ask: &Ask) -> usize {
    use umbo_store::Change;
    let key =
        |key: &umbo_types::Key| key.partition.as_bytes().len() + key.sort.as_bytes().len() + 16;
    let bytes = match ask {
        Ask::MultiGet(_, keys) => keys.iter().map(key).sum(),
        Ask::Write(request) => {
            let mutations = request.mutations.iter().map(|mutation| {
                let value = match &mutation.change {
                    Change::Put { value, .. } => value.bytes.len() + 64,
                    Change::Delete => 0,
                };
                key(&mutation.key) + value
            });
            mutations.sum()
        }
        _ => 0,
    };
    bytes + 128
}

fn rows_max(ask: &Ask) -> usize {
    match ask {
        Ask::MultiGet(_, keys) => keys.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
