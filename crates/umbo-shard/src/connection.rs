//! One connection of a dispatcher, from its first byte to its last.
//!
//! ```text
//! handshake    preface, hello, (older connections of the same dispatcher end), welcome
//! receive      bytes -> frames -> requests, credit, cancellations, pings
//! serve        requests in order: answered in place, or left to wait for the store
//! send         all ready answers, in as few frames as possible
//! end          requests that were not begun are withdrawn, by dropping them
//! ```
//!
//! All of it is one task. No step blocks: each poll goes through all steps once, so that credit and cancellations are
//! processed while answers are not read, and requests that wait for the store complete meanwhile. No timer delays
//! anything: all ready answers go out together. The invariant: a connection holds a bounded amount of memory and does
//! not affect other connections, even if its peer misbehaves or does not read.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::poll_read_buf;
use tokio_util::sync::CancellationToken;

use crate::connection_end::ConnectionEnd;
use crate::connections::OpenConnection;
use crate::limits::{READ_LEN, READ_PER_TURN_MAX};
use crate::node::Node;

mod call;
mod hand_over;
mod handshake;
mod input;
mod pending;
mod serve;
mod stream;
mod traces;
mod watch;

use self::handshake::Greeted;
use self::input::Input;
use self::stream::ShardStream;
use self::watch::{ConnectionProgress, ProgressWatch};

/// Serves a connection until it ends, and returns why it did. Once `drain` is cancelled, its dispatcher is
/// asked to send nothing more; its pending requests are answered, and it closes the connection.
///
/// May be dropped at any time: all requests that were not begun are then withdrawn.
pub async fn serve_connection(
    node: Arc<Node>,
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    drain: CancellationToken,
) -> ConnectionEnd {
    // Dropped last: the next connection of the dispatcher waits for the end of this one.
    let place = node.connections().enter();
    let greeting = handshake::greet(&node, &place, io);
    let ending = match drain.run_until_cancelled(greeting).await {
        Some(Ok(greeted)) => {
            DispatcherConnection::new(&node, greeted)
                .serve(&place, &drain)
                .await
        }
        Some(Err(ending)) => ending,
        None => ConnectionEnd::Stopping,
    };
    if ending.is_fault() {
        node.metrics().record_connection_broken();
        node.log_broken(&ending);
    }
    ending
}

/// A connection after the welcome.
struct DispatcherConnection<Io> {
    io: Io,
    input: Input,
    stream: ShardStream,
    sending: Sending,
    watch: ProgressWatch,
    progress: ConnectionProgress,
    is_draining: bool,
    /// Whether the peer sends nothing more, after it was notified that the node stops.
    is_said: bool,
}

/// Frames that are being sent. Their memory is freed when nothing is sent for a tick.
#[derive(Debug, Default)]
struct Sending {
    frames: Vec<u8>,
    sent: usize,
    is_flushed: bool,
}

impl<Io: AsyncRead + AsyncWrite + Unpin> DispatcherConnection<Io> {
    fn new(node: &Arc<Node>, greeted: Greeted<Io>) -> Self {
        Self {
            io: greeted.io,
            input: Input::new(node, greeted.decoder, greeted.window),
            stream: ShardStream::new(Arc::clone(node), greeted.answers, greeted.terms),
            sending: Sending::default(),
            watch: ProgressWatch::new(node.limits()),
            progress: ConnectionProgress::default(),
            is_draining: false,
            is_said: false,
        }
    }

    async fn serve(mut self, place: &OpenConnection, drain: &CancellationToken) -> ConnectionEnd {
        // Frames that came with the hello.
        if let Err(ending) = self.input.take_frames(&mut self.stream) {
            return ending;
        }
        let drain = drain.child_token();
        let mut drain = pin!(drain.cancelled());
        let life = poll_fn(|context| {
            place.signals().register(context.waker());
            if place.signals().is_superseded() {
                return Poll::Ready(ConnectionEnd::Superseded);
            }
            if !self.is_draining && drain.as_mut().poll(context).is_ready() {
                self.is_draining = true;
                self.stream.answers.draining();
            }
            let end = self.poll_life(context);
            self.stream.add_up();
            end.map(|end| end.map_or_else(|ending| ending, |()| ConnectionEnd::Closed))
        });
        life.await
    }

    /// Goes through all steps until there is nothing left to do for now.
    fn poll_life(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionEnd>> {
        self.look_after(context)?;
        let mut read = 0;
        loop {
            self.stream.take_finished(context);
            self.stream.serve_backlog(context)?;
            self.grant();
            let is_sent = self.poll_send(context)?.is_ready();
            if self.is_said && is_sent && self.stream.is_answered() {
                return Poll::Ready(Ok(()));
            }
            if self.stream.end_turn() || read >= READ_PER_TURN_MAX {
                // Lets other tasks run first.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.stream.has_backlog() && !self.stream.is_blocked() {
                continue;
            }
            read += ready!(self.poll_receive(context))?;
        }
    }

    /// Ends a connection that makes no progress.
    fn look_after(&mut self, context: &mut Context<'_>) -> Result<(), ConnectionEnd> {
        if !self.watch.is_due(context) {
            return Ok(());
        }
        (self.progress.frames, self.progress.chunks) = self.input.progress();
        self.progress.is_within_frame = self.input.is_within_frame();
        self.progress.is_within_message = self.input.is_within_message();
        self.progress.is_sending = !self.sending.is_over() || self.stream.answers.queued_len() > 0;
        if !self.progress.is_sending {
            self.sending = Sending::default();
        }
        self.watch.look(self.progress)
    }

    /// Grants the peer credit for the bytes of begun requests, unless it has to read answers first.
    fn grant(&mut self) {
        if self.stream.is_blocked() {
            return;
        }
        if let Some(len) = self.input.taken_over(self.stream.take_over()) {
            self.stream.answers.grant(len);
        }
    }

    /// Sends ready answers until the socket or the peer accepts no more.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionEnd>> {
        let Self {
            io,
            stream,
            sending,
            ..
        } = self;
        let mut io = Pin::new(io);
        loop {
            if sending.is_over() {
                sending.refill(stream);
            }
            if sending.is_over() {
                break;
            }
            let len = ready!(io.as_mut().poll_write(context, sending.rest()))?;
            if len == 0 {
                return Poll::Ready(Err(io::Error::from(io::ErrorKind::WriteZero).into()));
            }
            sending.sent += len;
            sending.is_flushed = false;
            self.progress.sent += 1;
        }
        if !sending.is_flushed {
            ready!(io.poll_flush(context))?;
            sending.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once, and processes the complete frames. Returns the number of bytes read.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Result<usize, ConnectionEnd>> {
        if self.is_said {
            return Poll::Pending;
        }
        let buffer = self.input.buffer();
        buffer.reserve(READ_LEN);
        let len = ready!(poll_read_buf(Pin::new(&mut self.io), context, buffer))?;
        if len == 0 {
            if self.input.is_within_frame() {
                return Poll::Ready(Err(ConnectionEnd::Cut));
            }
            // The peer waits for no more answers, unless it was asked to leave.
            if !self.is_draining {
                return Poll::Ready(Err(ConnectionEnd::Closed));
            }
            self.is_said = true;
            return Poll::Ready(Ok(0));
        }
        self.progress.reads += 1;
        self.input.take_frames(&mut self.stream)?;
        Poll::Ready(Ok(len))
    }
}

impl Sending {
    fn is_over(&self) -> bool {
        self.sent == self.frames.len()
    }

    fn rest(&self) -> &[u8] {
        &self.frames[self.sent..]
    }

    /// Takes the next frames, stamped with now.
    fn refill(&mut self, stream: &mut ShardStream) {
        self.frames.clear();
        self.sent = 0;
        let node = &stream.node;
        stream.answers.fill(&mut self.frames, || node.stamp());
        if !self.frames.is_empty() {
            stream.tally.record_sent(self.frames.len());
        }
    }
}
