//! One stream: frames of requests in, frames of answers out.
//!
//! It is the body of the response and does its work when the connection asks for the next message,
//! so that a peer that reads nothing is asked nothing more of. What the store answers at once goes
//! straight into the message; what it does not is left to `pending`. No timer delays anything:
//! whatever is ready goes out together.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http::HeaderMap;
use http_body::{Body, Frame};
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};
use umbo_protocol::{
    Answer, AnswerFrame, DecodeError, FRAME_LEN_TARGET, Hello, NodeError, Parts, Request,
    RequestFrame, Yield,
};
use umbo_telemetry::metrics::NodeTally;

use crate::admission::Held;
use crate::kind::{Kind, outcome_index};
use crate::limits::{ANSWER_BYTES_PER_TURN_MAX, REQUESTS_PER_FRAME_MAX, REQUESTS_PER_TURN_MAX};
use crate::messages::Messages;
use crate::multi_get::MultiGet;
use crate::node::Node;
use crate::outbox::{self, Outbox};
use crate::pending::Pending;

mod callers;
mod charge;
mod ending;
mod serve;
mod traces;

use self::callers::Callers;
use self::ending::Ending;
use self::traces::Traces;

/// A stream.
pub(crate) struct Exchange {
    node: Arc<Node>,
    number: u64,
    messages: Messages,
    /// Until the peer has said hello: how long it may take.
    hello_timer: Option<Pin<Box<Sleep>>>,
    frame: CurrentFrame,
    multi_get: Option<MultiGet>,
    callers: Callers,
    traces: Traces,
    outbox: Outbox,
    tally: NodeTally,
    pending: Pending,
    waker: Arc<AtomicWaker>,
    turn: Turn,
    /// Between two turns.
    rest: Yield,
    has_told_of_drain: bool,
    ending: Option<Ending>,
    is_over: bool,
    /// Counts the streams of the connection.
    _counted: Arc<()>,
}

/// The requests of the frame under way.
struct CurrentFrame {
    requests: std::vec::IntoIter<Result<Request, (u64, DecodeError)>>,
    len: usize,
    arrived: Instant,
    /// The place of a long message.
    place: Option<Arc<OwnedSemaphorePermit>>,
    /// Taken with the first request that waits for the store.
    held: Option<Arc<Held>>,
}

/// What a stream has done since others had their turn.
#[derive(Default)]
struct Turn {
    requests: usize,
    answer_bytes: usize,
}

/// What became of one step.
enum Step {
    /// Something was done.
    Done,
    /// There is nothing to do until something happens.
    Waits,
    /// Nothing more is read.
    Ends(Ending),
}

impl Exchange {
    pub(crate) fn new(node: Arc<Node>, body: Incoming, parts: Parts, counted: Arc<()>) -> Self {
        let waker = Arc::new(AtomicWaker::new());
        let limits = node.limits();
        Self {
            number: node.streams().enter(Arc::clone(&waker)),
            messages: Messages::new(body, limits.frame_timeout),
            hello_timer: Some(Box::pin(sleep(limits.handshake_timeout))),
            frame: CurrentFrame {
                requests: Vec::new().into_iter(),
                len: 0,
                arrived: node.clock().monotonic(),
                place: None,
                held: None,
            },
            multi_get: None,
            callers: Callers::default(),
            traces: Traces::default(),
            outbox: Outbox::default(),
            tally: NodeTally::default(),
            pending: Pending::new(Arc::clone(&waker), parts),
            waker,
            turn: Turn::default(),
            rest: Yield::default(),
            has_told_of_drain: false,
            ending: None,
            is_over: false,
            _counted: counted,
            node,
        }
    }

    /// Works until there is a message's worth of answers, nothing to do, or others have to have
    /// their turn.
    fn work(&mut self, context: &mut Context<'_>) {
        while self.ending.is_none()
            && self.outbox.len() < FRAME_LEN_TARGET
            && self.turn.requests < REQUESTS_PER_TURN_MAX
        {
            match self.step(context) {
                Step::Done => {}
                Step::Waits => return,
                Step::Ends(ending) => {
                    if ending.is_fault() {
                        self.node.metrics().record_stream_broken();
                        tracing::debug!(%ending, "a stream was broken off");
                    }
                    self.ending = Some(ending);
                }
            }
        }
    }

    fn step(&mut self, context: &mut Context<'_>) -> Step {
        if self.multi_get.is_some() {
            self.go_on_with_multi_get(context);
            return Step::Done;
        }
        if let Some(request) = self.frame.requests.next() {
            self.turn.requests += 1;
            match request {
                Ok(request) => self.serve(request, context),
                Err((id, error)) => self.answer_failed(Kind::Other, id, unusable(&error)),
            }
            return Step::Done;
        }
        // What still waits for the store holds them itself.
        self.frame.held = None;
        self.frame.place = None;
        self.read(context)
    }

    /// Reads the next frame.
    fn read(&mut self, context: &mut Context<'_>) -> Step {
        let arrived = match self.messages.poll_next(context, self.node.admission()) {
            Poll::Pending => return self.wait_for_hello(context),
            Poll::Ready(None) => return Step::Ends(Ending::Said),
            Poll::Ready(Some(Err(broken))) => return Step::Ends(broken.into()),
            Poll::Ready(Some(Ok(arrived))) => arrived,
        };
        let len = arrived.frame.len();
        self.tally.record_frame(len);
        let frame = match RequestFrame::decode(arrived.frame) {
            Ok(frame) if frame.requests.len() <= REQUESTS_PER_FRAME_MAX => frame,
            Ok(frame) => return Step::Ends(Ending::TooMany(frame.requests.len())),
            Err(error) => return Step::Ends(Ending::NoMessage(error)),
        };
        if self.hello_timer.take().is_some() {
            let Some(hello) = &frame.hello else {
                return Step::Ends(Ending::NoHello);
            };
            if let Some(ending) = self.welcome(hello) {
                return Step::Ends(ending);
            }
        } else if frame.hello.is_some() {
            return Step::Ends(Ending::SecondHello);
        }
        self.frame = CurrentFrame {
            requests: frame.requests.into_iter(),
            len,
            arrived: self.node.clock().monotonic(),
            place: arrived.place.map(Arc::new),
            held: None,
        };
        Step::Done
    }

    fn wait_for_hello(&mut self, context: &mut Context<'_>) -> Step {
        let timer = self.hello_timer.as_mut();
        if timer.is_some_and(|timer| timer.as_mut().poll(context).is_ready()) {
            return Step::Ends(Ending::NoHello);
        }
        Step::Waits
    }

    /// Answers the hello; says how the stream ends where the peer is refused.
    fn welcome(&mut self, hello: &Hello) -> Option<Ending> {
        let map = self.node.cluster_map();
        let welcome = hello.welcome(map.cluster_id(), self.node.name(), map.version());
        self.outbox.put(&AnswerFrame::welcome(&welcome));
        let refusal = welcome.refusal?;
        self.node.metrics().record_stream_refused();
        self.node.say_refused(&refusal, &hello.software);
        Some(Ending::Refused(refusal))
    }

    fn answer(&mut self, kind: Kind, answer: Answer) {
        if !self.traces.is_empty() {
            self.traces.answered(&self.node, &answer);
        }
        if !answer.has_more {
            let outcome = outcome_index(&answer.outcome);
            self.tally
                .record(kind as usize, outcome, answer.service_time);
        }
        self.outbox.push(answer);
    }

    fn answer_failed(&mut self, kind: Kind, id: u64, error: NodeError) {
        self.answer(kind, serve::refusal(id, error));
    }

    /// Takes what was waited for and has come.
    fn take_pending(&mut self) {
        for (kind, answers) in self.pending.take() {
            self.answer_all(kind, answers);
        }
    }

    /// Tells the peer once that the node stops.
    fn tell_of_drain(&mut self) {
        if !self.has_told_of_drain && self.hello_timer.is_none() && !self.node.is_ready() {
            self.has_told_of_drain = true;
            self.outbox.put(&AnswerFrame::draining());
        }
    }
}

fn unusable(error: &DecodeError) -> NodeError {
    match error {
        DecodeError::UnknownKind { .. } => NodeError::Unsupported,
        other => NodeError::BadRequest(other.to_string()),
    }
}

impl Body for Exchange {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        if this.turn.is_over() {
            ready!(this.rest.poll(context));
            this.turn = Turn::default();
        }
        // Before anything is looked at, so that nothing that happens meanwhile is missed.
        this.waker.register(context.waker());
        this.take_pending();
        this.tell_of_drain();
        this.work(context);
        if let Some(message) = this.outbox.take() {
            this.turn.answer_bytes += message.len();
            this.tally.record_sent(message.len());
            this.node.metrics().add(&mut this.tally);
            return Poll::Ready(Some(Ok(Frame::data(message))));
        }
        match &this.ending {
            // What was asked is answered, unless the peer broke the rules.
            Some(ending) if !ending.is_clean() || this.pending.count() == 0 => {
                this.is_over = true;
                Poll::Ready(Some(Ok(Frame::trailers(ending.trailers()))))
            }
            None if this.turn.is_over() => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            _ => {
                // Whoever waits lets others have their turn.
                this.turn = Turn::default();
                Poll::Pending
            }
        }
    }
}

impl Turn {
    fn is_over(&self) -> bool {
        self.requests >= REQUESTS_PER_TURN_MAX || self.answer_bytes >= ANSWER_BYTES_PER_TURN_MAX
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.node.streams().leave(self.number);
        self.traces.end_all(&self.node);
        self.node.metrics().add(&mut self.tally);
    }
}

/// Returns the trailers of a stream: a status of gRPC, and what is said of it.
pub(crate) fn trailers(status: u16, message: &str) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(2);
    trailers.insert("grpc-status", status.into());
    if !message.is_empty()
        && let Ok(message) = outbox::percent_encoded(message).try_into()
    {
        trailers.insert("grpc-message", message);
    }
    trailers
}
