//! The requests of one connection, in order of arrival, and their answers.
//!
//! A request that the store answers at once is answered in place, and its answer goes out in one frame with
//! others. A request that has to wait is left to [`PendingReplies`]. The invariant: while the peer reads no
//! answers, no further request is begun; received requests wait in the backlog, inside the peer's window.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use umbo_protocol::{
    Answer, AnswerWriter, DecodeError, NodeError, Outcome, ProtocolVersion, Refused, Request,
    RequestBatch,
};
use umbo_store::{RecordsRevision, StoreError};
use umbo_telemetry::metrics::NodeTally;
use umbo_types::ShardId;

use super::pending::PendingReplies;
use super::traces::RequestTraces;
use crate::admission::{ArrivalMemory, FrameMemory};
use crate::kind::{RequestKind, outcome_index};
use crate::limits::{
    CANCELLED_MAX, REQUESTS_PER_TURN_MAX, SEND_QUEUE_LEN_MAX, WAITING_ANSWERS_LEN_MAX,
};
use crate::node::Node;

/// The requests and answers of a connection.
pub(super) struct ShardStream {
    pub(super) node: Arc<Node>,
    pub(super) traces: RequestTraces,
    pub(super) arrival: CurrentRequests,
    pub(super) pending: PendingReplies,
    pub(super) answers: AnswerWriter,
    pub(super) tally: NodeTally,
    /// Revision of Umbo's own records that the dispatcher had heard of when it greeted.
    pub(super) records_heard: RecordsRevision,
    /// Whether the dispatcher takes fewer rows of a multi-get than it has asked for.
    pub(super) takes_short: bool,
    backlog: VecDeque<ReceivedRequests>,
    /// Cancelled requests of the backlog.
    cancelled: HashSet<u64>,
    /// Requests that were served since the last yield to other tasks.
    served: usize,
    /// Bytes of the peer's window that are free again.
    taken_over: usize,
}

/// Requests that were received together.
pub(super) struct ReceivedRequests {
    pub(super) requests: Requests,
    /// Bytes of the peer's window that they use until they are begun.
    pub(super) counted: usize,
    /// Length of the requests, in bytes.
    pub(super) len: usize,
    pub(super) at: Instant,
    /// Memory reservation while they wait, or `None` if they need not wait.
    pub(super) room: Option<ArrivalMemory>,
}

/// Encoded requests.
pub(super) enum Requests {
    /// Small requests, in one frame.
    Batch(RequestBatch),
    /// A large request, assembled from its chunks; `None` after it was begun.
    Large(Option<Bytes>),
}

/// The received requests that are being served.
pub(super) struct CurrentRequests {
    /// `None` after each of them was begun.
    requests: Option<Requests>,
    counted: usize,
    pub(super) len: usize,
    pub(super) at: Instant,
    /// Reserved with the first of them that waits for the store.
    pub(super) held: Option<Arc<FrameMemory>>,
}

impl Requests {
    fn next(&mut self) -> Option<Result<Request, Refused>> {
        match self {
            Self::Batch(batch) => batch.next(),
            Self::Large(message) => message.take().map(|message| Request::decode(&message)),
        }
    }
}

impl ShardStream {
    pub(super) fn new(
        node: Arc<Node>,
        answers: AnswerWriter,
        (version, records_heard): (ProtocolVersion, RecordsRevision),
    ) -> Self {
        Self {
            arrival: CurrentRequests {
                requests: None,
                counted: 0,
                len: 0,
                at: node.clock().monotonic(),
                held: None,
            },
            node,
            traces: RequestTraces::default(),
            pending: PendingReplies::default(),
            answers,
            tally: NodeTally::default(),
            records_heard,
            takes_short: version >= ProtocolVersion::WHOLE_ANSWERS,
            backlog: VecDeque::new(),
            cancelled: HashSet::new(),
            served: 0,
            taken_over: 0,
        }
    }

    /// Adds received requests at the end.
    pub(super) fn push(&mut self, received: ReceivedRequests) {
        self.backlog.push_back(received);
    }

    /// Cancels a request: if it has not begun, it is withdrawn.
    pub(super) fn cancel(&mut self, id: u64) {
        self.pending.cancel(id);
        self.answers.withdraw(id);
        self.traces.cancelled(&self.node, id);
        if self.has_backlog() && self.cancelled.len() < CANCELLED_MAX {
            self.cancelled.insert(id);
        }
    }

    /// Serves received requests until all are begun, the peer has to read answers first, or it is time to yield. An
    /// error is a request that cannot even be refused.
    pub(super) fn serve_backlog(&mut self, context: &mut Context<'_>) -> Result<(), DecodeError> {
        while !self.is_blocked() && self.served < REQUESTS_PER_TURN_MAX {
            match self.arrival.requests.as_mut().and_then(Requests::next) {
                Some(Ok(request)) => {
                    self.served += 1;
                    if self.cancelled.is_empty() || !self.cancelled.remove(&request.id) {
                        self.serve(request, context);
                    }
                }
                Some(Err(Refused { id: None, error })) => return Err(error),
                Some(Err(Refused {
                    id: Some(id),
                    error,
                })) => {
                    self.served += 1;
                    self.answer_failed(RequestKind::Other, id, unusable(&error));
                }
                None => {
                    self.taken_over += std::mem::take(&mut self.arrival.counted);
                    // The pending requests hold it themselves.
                    self.arrival.held = None;
                    self.arrival.requests = None;
                    let Some(next) = self.backlog.pop_front() else {
                        self.cancelled.clear();
                        return Ok(());
                    };
                    self.begin(next);
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, next: ReceivedRequests) {
        // Requests that wait for the store reserve their own memory.
        drop(next.room);
        self.arrival = CurrentRequests {
            requests: Some(next.requests),
            counted: next.counted,
            len: next.len,
            at: next.at,
            held: None,
        };
    }

    /// Takes the answers of requests that have ended.
    pub(super) fn take_finished(&mut self, context: &mut Context<'_>) {
        while let Poll::Ready(mut finished) = self.pending.poll_finished(context) {
            // Answers to writes are short, and must be sent because the writes took effect.
            if finished.kind.is_read() && self.answers.queued_len() > WAITING_ANSWERS_LEN_MAX {
                finished.answer = finished.answer.map(|answer| untaken(&answer));
            }
            if let Some(answer) = &finished.answer {
                self.answer(finished.kind, answer);
            }
        }
    }

    /// Returns the bytes of the peer's window that are free again since the last call.
    pub(super) fn take_over(&mut self) -> usize {
        std::mem::take(&mut self.taken_over)
    }

    /// Returns whether any received request is not begun.
    pub(super) fn has_backlog(&self) -> bool {
        self.arrival.requests.is_some() || !self.backlog.is_empty()
    }

    /// Returns whether the peer has to read answers before anything more is begun.
    pub(super) fn is_blocked(&self) -> bool {
        self.answers.queued_len() >= SEND_QUEUE_LEN_MAX
    }

    /// Returns whether all requests are answered.
    pub(super) fn is_answered(&self) -> bool {
        !self.has_backlog() && self.pending.count() == 0
    }

    /// Adds the counts to the metrics.
    pub(super) fn add_up(&mut self) {
        self.node.metrics().add(&mut self.tally);
    }

    /// Counts bytes of the peer's window that are free again.
    pub(super) const fn free(&mut self, counted: usize) {
        self.taken_over += counted;
    }

    /// Returns whether it is time to yield; then a new turn begins.
    pub(super) fn end_turn(&mut self) -> bool {
        let is_over = self.served >= REQUESTS_PER_TURN_MAX;
        self.served = 0;
        is_over
    }

    pub(super) fn answer(&mut self, kind: RequestKind, answer: &Answer) {
        if !self.traces.is_empty() {
            self.traces.answered(&self.node, answer);
        }
        let outcome = outcome_index(&answer.outcome);
        self.tally
            .record(kind as usize, outcome, answer.service_time);
        self.answers.push(answer);
    }

    pub(super) fn answer_failed(&mut self, kind: RequestKind, id: u64, error: NodeError) {
        let answer = Answer::without_rows(id, Duration::ZERO, Outcome::Failed(error));
        self.answer(kind, &answer);
    }
}

impl Drop for ShardStream {
    fn drop(&mut self) {
        self.traces.end_all(&self.node);
        self.add_up();
    }
}

fn unusable(error: &DecodeError) -> NodeError {
    match error {
        DecodeError::UnknownKind { .. } => NodeError::Unsupported,
        other => NodeError::BadRequest(other.to_string()),
    }
}

/// Returns the answer that replaces rows that the peer does not read.
fn untaken(answer: &Answer) -> Answer {
    let busy = StoreError::NodeBusy { shard: ShardId(0) };
    let outcome = Outcome::Failed(NodeError::Store(busy));
    Answer::without_rows(answer.id, answer.service_time, outcome)
}
