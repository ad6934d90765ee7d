//! Moves the bytes of a connection: queued requests to the socket, answers to their requests, and the status
//! of the node to [`Node`].
//!
//! One task per connection serves both directions. It never blocks in one of them, so neither can delay the
//! other.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWrite as _};
use tokio::time::{Instant as TokioInstant, Sleep, sleep};
use umbo_protocol::{
    Answer, DecodeError, Decoder, NodeError, NodeFrame, NodeStamp, Outcome, ReceiveWindow, Refused,
    WINDOW_LEN,
};
use umbo_store::StoreError;

use crate::connection::{NodeConnection, PROBE_ID};
use crate::connector::Io;
use crate::counters::count;
use crate::dial::NewConnection;
use crate::dial_error::in_words;
use crate::node::Node;
use crate::unknown_shard::SHARD_UNKNOWN;
use crate::watch::{SilenceWatch, TICK};

/// Most bytes of one read.
const READ_LEN: usize = 64 << 10;
/// Capacity of the send buffer that is kept while it is empty, in bytes.
const OUT_LEN_KEPT: usize = 256 << 10;

/// Moves the bytes of one connection until it ends.
pub(crate) struct ConnectionTransfer {
    node: Arc<Node>,
    connection: Arc<NodeConnection>,
    io: Box<dyn Io>,
    decoder: Decoder<(NodeStamp, NodeFrame)>,
    window: ReceiveWindow,
    /// Frames that are being sent, and the number of bytes sent.
    out: Vec<u8>,
    sent: usize,
    is_flushed: bool,
    /// Whether other tasks may now add to the next frame, and whether they have had their turn.
    is_yielding: bool,
    has_yielded: bool,
    last_stamp: NodeStamp,
    watch: SilenceWatch,
    /// When the node was last asked for its status.
    probed_at: Instant,
    ticked_at: TokioInstant,
    /// Planned time of the next tick, after the last one.
    planned: Duration,
    draining_for: Duration,
    /// Reused for its capacity; empty between uses.
    wakers: Vec<Waker>,
    answers: Vec<Answer>,
}

/// How a connection ends.
pub(crate) struct TransferEnd {
    reason: String,
    is_given_up: bool,
}

impl ConnectionTransfer {
    pub(crate) fn new(
        node: Arc<Node>,
        connection: Arc<NodeConnection>,
        dialled: NewConnection,
    ) -> Self {
        Self {
            node,
            connection,
            io: dialled.io,
            decoder: dialled.decoder,
            window: ReceiveWindow::new(WINDOW_LEN as u32),
            out: Vec::new(),
            sent: 0,
            is_flushed: true,
            is_yielding: false,
            has_yielded: false,
            last_stamp: dialled.stamp,
            watch: SilenceWatch::default(),
            probed_at: dialled.received,
            ticked_at: TokioInstant::now(),
            planned: Duration::ZERO,
            draining_for: Duration::ZERO,
            wakers: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Runs to the end of the connection, and ends it.
    pub(crate) async fn run(mut self) {
        // The first frames may have arrived with the welcome.
        let end = match self.receive() {
            Ok(()) => {
                let mut tick = pin!(sleep(Duration::ZERO));
                poll_fn(|context| self.poll(context, tick.as_mut())).await
            }
            Err(end) => end,
        };
        self.connection.end(&end.reason, end.is_given_up);
    }

    fn poll(&mut self, context: &mut Context<'_>, mut tick: Pin<&mut Sleep>) -> Poll<TransferEnd> {
        self.is_yielding = false;
        while tick.as_mut().poll(context).is_ready() {
            if let Err(end) = self.tick() {
                return Poll::Ready(end);
            }
            tick.as_mut().reset(self.ticked_at + self.planned);
        }
        loop {
            let moved = self.send(context);
            match moved.and_then(|has_sent| Ok(self.read(context)? || has_sent)) {
                Ok(true) => {}
                Ok(false) => return Poll::Pending,
                Err(end) => return Poll::Ready(end),
            }
        }
    }

    /// Sends queued bytes; returns whether to call it again.
    fn send(&mut self, context: &mut Context<'_>) -> Result<bool, TransferEnd> {
        if self.sent == self.out.len() {
            // Tasks that are ready to run may add to the frame: they run first, once. With few requests there
            // are no such tasks, and yielding would cost a good part of a request.
            if !self.has_yielded && self.connection.is_gathering() {
                (self.has_yielded, self.is_yielding) = (true, true);
                context.waker().wake_by_ref();
            }
            if self.is_yielding {
                return Ok(false);
            }
            self.has_yielded = false;
            self.out.clear();
            self.out.shrink_to(OUT_LEN_KEPT);
            self.sent = 0;
            let requests = self.connection.fill(&mut self.out, context.waker());
            if requests > 0 {
                let counters = &self.node.common.counters;
                count(&counters.frames);
                counters
                    .requests
                    .fetch_add(requests, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let mut has_sent = false;
        while self.sent < self.out.len() {
            let rest = &self.out[self.sent..];
            match Pin::new(&mut self.io).poll_write(context, rest) {
                Poll::Ready(Ok(0)) => return Err(lost("the node takes no more bytes")),
                Poll::Ready(Ok(len)) => {
                    self.sent += len;
                    self.is_flushed = false;
                    has_sent = true;
                }
                Poll::Ready(Err(error)) => return Err(lost(&in_words(&error))),
                Poll::Pending => break,
            }
        }
        if !self.is_flushed && self.sent == self.out.len() {
            match Pin::new(&mut self.io).poll_flush(context) {
                Poll::Ready(Ok(())) => self.is_flushed = true,
                Poll::Ready(Err(error)) => return Err(lost(&in_words(&error))),
                Poll::Pending => {}
            }
        }
        Ok(has_sent)
    }

    /// Reads received bytes; returns whether to call it again.
    fn read(&mut self, context: &mut Context<'_>) -> Result<bool, TransferEnd> {
        let buffer = self.decoder.buffer();
        buffer.reserve(READ_LEN);
        let read = pin!(self.io.read_buf(buffer)).poll(context);
        match read {
            Poll::Ready(Ok(0)) => Err(lost("the node ended the connection")),
            Poll::Ready(Ok(_)) => self.receive().map(|()| true),
            Poll::Ready(Err(error)) => Err(lost(&in_words(&error))),
            Poll::Pending => Ok(false),
        }
    }

    /// Processes the complete frames.
    fn receive(&mut self) -> Result<(), TransferEnd> {
        let received = self.node.common.clock.monotonic();
        let mut is_heard = false;
        while let Some(frame) = self.decoder.next_frame().map_err(|error| garbage(&error))? {
            is_heard = true;
            self.window
                .received(frame.counted)
                .map_err(|error| garbage(&error))?;
            let (stamp, body) = frame.body;
            if (stamp.map_version, stamp.records)
                != (self.last_stamp.map_version, self.last_stamp.records)
            {
                self.node.heard(&stamp);
            }
            self.last_stamp = stamp;
            self.take(body)?;
            if let Some(len) = self.window.taken_over(frame.counted) {
                self.connection.grant(len);
            }
        }
        if is_heard {
            self.watch.heard();
            // All frames were received now, so that the last stamp gives the best estimate.
            self.connection.heard(self.last_stamp.stamp_ns, received);
        }
        Ok(())
    }

    fn take(&mut self, frame: NodeFrame) -> Result<(), TransferEnd> {
        let counters = &self.node.common.counters;
        match frame {
            NodeFrame::Answers(batch) => {
                count(&counters.answer_frames);
                for answer in batch {
                    let answer = answer.or_else(unusable)?;
                    self.answers.push(answer);
                }
                self.hand_over();
                Ok(())
            }
            NodeFrame::Chunk(chunk) => {
                count(&counters.answer_frames);
                let whole = self.connection.chunk(chunk);
                if let Some(message) = whole.map_err(|error| garbage(&error))? {
                    let answer = Answer::decode(&message).or_else(unusable)?;
                    self.answers.push(answer);
                    self.hand_over();
                }
                Ok(())
            }
            NodeFrame::Credit(len) => {
                let granted = self.connection.granted(len);
                granted.map_err(|error| garbage(&error))
            }
            NodeFrame::Draining => {
                self.connection.drain();
                self.node.is_leaving();
                Ok(())
            }
            NodeFrame::Pong | NodeFrame::Skipped => Ok(()),
            NodeFrame::Welcome(_) => Err(given_up("the node sent a second welcome")),
        }
    }

    /// Passes answers to their requests.
    fn hand_over(&mut self) {
        let mut told = None;
        let mut answered = 0;
        let answers = self.answers.drain(..).filter_map(|answer| {
            if answer.id == PROBE_ID {
                told = Some(answer.outcome);
                return None;
            }
            answered += 1;
            Some(answer)
        });
        self.connection.answer(answers, &mut self.wakers);
        self.wakers.drain(..).for_each(Waker::wake);
        if let Some(told) = told {
            self.watch.told();
            if let Outcome::Status(told) = told {
                self.node.keep_status(told, self.probed_at);
            }
        }
        self.node.common.retries.earn(answered);
    }

    /// Checks for timeouts.
    fn tick(&mut self) -> Result<(), TransferEnd> {
        let now = TokioInstant::now();
        // Excludes the time while this process did not run: frames that arrived meanwhile may not have been read yet.
        let awake = now.duration_since(self.ticked_at).min(self.planned + TICK);
        self.ticked_at = now;
        let settings = &self.node.common.settings;
        if self.connection.is_drained() {
            return Err(lost("all is answered"));
        }
        if !self.connection.is_open() {
            self.draining_for += awake;
            if self.draining_for >= settings.drain_timeout {
                return Err(given_up("the last answers did not come in time"));
            }
        }
        let load = self.connection.load();
        let due = self.watch.tick(awake, load, settings);
        if due.give_up {
            return Err(given_up("the node has been silent"));
        }
        if due.ping {
            self.connection.ping();
        }
        if due.probe {
            self.probed_at = self.node.common.clock.monotonic();
            self.connection.probe();
        }
        self.planned = if self.connection.is_open() {
            SilenceWatch::next_tick(load, settings)
        } else {
            TICK
        };
        Ok(())
    }
}

impl Drop for ConnectionTransfer {
    /// Without this task no answers are read, so pending requests must end.
    fn drop(&mut self) {
        self.connection
            .end("the task that reads it has ended", true);
    }
}

fn lost(reason: &str) -> TransferEnd {
    TransferEnd {
        reason: reason.to_owned(),
        is_given_up: false,
    }
}

fn given_up(reason: &str) -> TransferEnd {
    TransferEnd {
        reason: reason.to_owned(),
        is_given_up: true,
    }
}

fn garbage(error: &DecodeError) -> TransferEnd {
    given_up(&format!("the node sent invalid bytes: {error}"))
}

/// An answer that cannot be decoded leaves the outcome unknown. Without an id, it ends the connection.
fn unusable(Refused { id, error }: Refused) -> Result<Answer, TransferEnd> {
    let id = id.ok_or_else(|| garbage(&error))?;
    let error = StoreError::Unavailable {
        shard: SHARD_UNKNOWN,
        reason: format!("its node sent an answer that cannot be used: {error}"),
        outcome: umbo_store::Outcome::Unknown,
    };
    Ok(Answer {
        id,
        service_time: Duration::ZERO,
        busy_time: Duration::ZERO,
        has_more: false,
        rows: 0,
        bytes: 0,
        outcome: Outcome::Failed(NodeError::Store(error)),
    })
}
