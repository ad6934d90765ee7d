//! One connection to a node: queued requests, and requests that wait for an answer.
//!
//! The task that makes a request encodes it into the next batch; when the socket can take more, the batch
//! goes out as one frame. There is no timer, channel or task per request. The invariant: the lock is never
//! held across a call that can wait or wake.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use umbo_protocol::{Answer, Ask, Assembly, Chunk, DecodeError, RequestRef, RequestWriter};
use umbo_types::Deadline;

use crate::clock_offset::ClockOffset;
use crate::in_flight::{InFlight, ReplyEvent};

/// Id of every request for the status of the node. Only one such request is open at a time.
pub(crate) const PROBE_ID: u64 = 1;

/// A connection after the welcome.
#[derive(Debug)]
pub(crate) struct NodeConnection {
    state: Mutex<ConnectionState>,
    queued_len_max: usize,
}

#[derive(Debug)]
struct ConnectionState {
    in_flight: InFlight,
    writer: RequestWriter,
    /// Large answers that are incomplete.
    assembly: Assembly,
    offset: ClockOffset,
    /// Bytes handed to the socket since the last frame of the node.
    sent_unheard: usize,
    /// The task that moves the bytes, while it has nothing to send.
    sender: Option<Waker>,
    phase: ConnectionPhase,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ConnectionPhase {
    /// Accepts requests.
    Open,
    /// Accepts no requests; queued ones are sent, and answers are received.
    Draining,
    /// Nothing is sent or received any more.
    Ended(ConnectionEnd),
}

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectionEnd {
    pub(crate) reason: Arc<str>,
    /// Whether this side ended it, because the node had failed.
    pub(crate) is_given_up: bool,
    /// Whether it was already draining.
    pub(crate) was_draining: bool,
}

/// Why a connection does not accept a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendRefusal {
    /// The connection is draining or has ended.
    NotInUse,
    /// The queue of the connection is full, or the limit of requests in flight is reached.
    Busy,
}

/// A queued request. Dropping it before it is answered cancels it: a read is not executed, and a write that
/// the node has not begun is withdrawn.
#[derive(Debug)]
pub(crate) struct PendingReply {
    connection: Arc<NodeConnection>,
    id: u64,
    is_over: bool,
}

impl PendingReply {
    const fn new(connection: Arc<NodeConnection>, id: u64) -> Self {
        Self {
            connection,
            id,
            is_over: false,
        }
    }

    /// Returns why the connection ended.
    pub(crate) fn loss(&self) -> String {
        let ending = self.connection.ended();
        ending.map_or_else(String::new, |ending| ending.reason.to_string())
    }

    /// Waits for the event of the request. To be called once.
    pub(crate) async fn event(&mut self) -> ReplyEvent {
        let event = poll_fn(|context| self.connection.poll(self.id, context)).await;
        self.is_over = true;
        event
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if !self.is_over {
            self.connection.cancel(self.id);
        }
    }
}

/// The work of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLoad {
    pub(crate) in_flight: usize,
    pub(crate) sent_unheard: usize,
}

impl NodeConnection {
    /// Makes a connection with the send window from the node's welcome, and the offset of its clock.
    pub(crate) fn new(
        window: u32,
        offset: ClockOffset,
        in_flight_max: usize,
        queued_len_max: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(ConnectionState {
                in_flight: InFlight::new(in_flight_max),
                writer: RequestWriter::new(window),
                assembly: Assembly::default(),
                offset,
                sent_unheard: 0,
                sender: None,
                phase: ConnectionPhase::Open,
            }),
            queued_len_max,
        })
    }

    /// Queues a request; sets its id, and its deadline on the clock of the node.
    pub(crate) fn ask(
        self: &Arc<Self>,
        mut request: RequestRef<'_>,
        deadline: Option<Deadline>,
    ) -> Result<PendingReply, SendRefusal> {
        let mut state = self.lock();
        if state.phase != ConnectionPhase::Open {
            return Err(SendRefusal::NotInUse);
        }
        if state.writer.queued_len() > self.queued_len_max {
            return Err(SendRefusal::Busy);
        }
        let id = state.in_flight.open();
        request.id = id.ok_or(SendRefusal::Busy)?;
        request.deadline_ns = deadline.map(|deadline| state.offset.at_node(deadline.instant()));
        let reply = PendingReply::new(Arc::clone(self), request.id);
        let placed = if RequestWriter::is_large(request.ask) {
            drop(state);
            let encoded = RequestWriter::encode(&request);
            state = self.lock();
            if state.phase != ConnectionPhase::Open {
                drop(state);
                return Err(SendRefusal::NotInUse);
            }
            state.writer.push_encoded(encoded)
        } else {
            state.writer.push(&request)
        };
        state.in_flight.queued(request.id, placed);
        unlock(state);
        Ok(reply)
    }

    /// Returns the event of a request, once there is one.
    pub(crate) fn poll(&self, id: u64, context: &Context<'_>) -> Poll<ReplyEvent> {
        let event = self.lock().in_flight.poll(id, context.waker());
        event.map_or(Poll::Pending, Poll::Ready)
    }

    /// Forgets a request whose caller no longer waits. Cancels it at the node, unless nothing of it was sent.
    pub(crate) fn cancel(&self, id: u64) {
        let mut state = self.lock();
        let Some(placed) = state.in_flight.cancel(id) else {
            return;
        };
        if matches!(state.phase, ConnectionPhase::Ended(_)) {
            return;
        }
        state.assembly.remove(id);
        state.writer.cancel(id, placed);
        unlock(state);
    }

    /// Asks for the status of the node; the answer goes to the task that moves the bytes.
    pub(crate) fn probe(&self) {
        let request = RequestRef {
            id: PROBE_ID,
            deadline_ns: None,
            criticality: umbo_types::Criticality::CriticalPlus,
            caller: &[],
            price: umbo_types::RequestUnits::ZERO,
            traceparent: &[],
            placed_as: None,
            ask: &Ask::Probe,
        };
        let mut state = self.lock();
        state.writer.push(&request);
        unlock(state);
    }

    /// Sends a ping.
    pub(crate) fn ping(&self) {
        let mut state = self.lock();
        state.writer.ping();
        unlock(state);
    }

    /// Records that a frame with this stamp was received.
    pub(crate) fn heard(&self, stamp_ns: u64, received: Instant) {
        let mut state = self.lock();
        state.sent_unheard = 0;
        state.offset.heard(stamp_ns, received);
    }

    /// Passes the answers of a frame to their requests.
    pub(crate) fn answer(&self, answers: impl Iterator<Item = Answer>, wakers: &mut Vec<Waker>) {
        let mut state = self.lock();
        for answer in answers {
            wakers.extend(state.in_flight.answer(answer));
        }
    }

    /// Keeps a chunk of a large answer. Returns the whole answer with its last chunk.
    pub(crate) fn chunk(&self, chunk: Chunk) -> Result<Option<Bytes>, DecodeError> {
        let mut state = self.lock();
        // The answer to a request that was cancelled is dropped.
        if chunk.id != PROBE_ID && !state.in_flight.is_open(chunk.id) {
            return Ok(None);
        }
        state.assembly.push(chunk)
    }

    /// Grants the node credit to send more.
    pub(crate) fn grant(&self, len: u32) {
        self.lock().writer.grant(len);
    }

    /// Records credit that the node has granted.
    pub(crate) fn granted(&self, len: u32) -> Result<(), DecodeError> {
        self.lock().writer.granted(len)
    }

    /// Appends the next bytes to send to `out`. If no bytes are ready, `waker` is woken when some are. Returns the
    /// number of requests that are completely sent with these bytes.
    pub(crate) fn fill(&self, out: &mut Vec<u8>, waker: &Waker) -> u64 {
        let mut state = self.lock();
        let ConnectionState {
            in_flight, writer, ..
        } = &mut *state;
        let before = writer.handed();
        writer.fill(out);
        let mut requests = writer.handed() - before;
        for id in writer.take_finished() {
            in_flight.sent(id);
            requests += 1;
        }
        state.sent_unheard += out.len();
        if out.is_empty() {
            state.sender = Some(waker.clone());
        }
        requests
    }

    pub(crate) fn load(&self) -> ConnectionLoad {
        let state = self.lock();
        ConnectionLoad {
            in_flight: state.in_flight.len(),
            sent_unheard: state.sent_unheard,
        }
    }

    /// Returns whether there is something to send, and other tasks may be about to add to it.
    pub(crate) fn is_gathering(&self) -> bool {
        /// With at least this number of requests in flight, it pays to let other tasks run first.
        const BUSY_FROM: usize = 4;
        /// A frame of at least this length, in bytes, is sent without waiting for more.
        const FULL_LEN: usize = 64 << 10;
        let state = self.lock();
        let queued_len = state.writer.queued_len();
        queued_len > 0 && queued_len < FULL_LEN && state.in_flight.len() >= BUSY_FROM
    }

    /// Stops accepting requests; queued ones are sent, and answers are awaited.
    pub(crate) fn drain(&self) {
        let mut state = self.lock();
        if state.phase == ConnectionPhase::Open {
            state.phase = ConnectionPhase::Draining;
        }
        unlock(state);
    }

    /// Returns whether it is draining and all its requests are answered.
    pub(crate) fn is_drained(&self) -> bool {
        let state = self.lock();
        state.phase != ConnectionPhase::Open && state.in_flight.len() == 0
    }

    /// Ends the connection: all pending requests are notified of the loss.
    pub(crate) fn end(&self, reason: &str, is_given_up: bool) {
        let mut wakers = Vec::new();
        let mut state = self.lock();
        if matches!(state.phase, ConnectionPhase::Ended(_)) {
            return;
        }
        state.phase = ConnectionPhase::Ended(ConnectionEnd {
            reason: reason.into(),
            is_given_up,
            was_draining: state.phase == ConnectionPhase::Draining,
        });
        let handed = state.writer.handed();
        state.in_flight.lose(handed, &mut wakers);
        // Frees the queue now, not when the last pending request is dropped.
        state.writer = RequestWriter::new(0);
        state.assembly = Assembly::default();
        wakers.extend(state.sender.take());
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns how the connection ended, or `None` while it is open.
    pub(crate) fn ended(&self) -> Option<ConnectionEnd> {
        match &self.lock().phase {
            ConnectionPhase::Ended(ending) => Some(ending.clone()),
            ConnectionPhase::Open | ConnectionPhase::Draining => None,
        }
    }

    /// Returns whether the connection accepts requests.
    pub(crate) fn is_open(&self) -> bool {
        self.lock().phase == ConnectionPhase::Open
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Releases the lock, then wakes the task that moves the bytes.
fn unlock(mut state: MutexGuard<'_, ConnectionState>) {
    let waker = state.sender.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests;
