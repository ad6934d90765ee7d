//! Drives one connection from its first byte to its end.
//!
//! The protocol is found out once, before hyper sees the socket. After that one loop per protocol polls hyper,
//! follows orders and checks timeouts. Closing is graceful while an answer may still be under way (the other
//! side gets a moment to read it), and abrupt if the client is the problem.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Sleep, timeout};
use tokio_util::task::TaskTracker;
use umbo_api::ErrorCode;

use super::bounds::{CONNECTION_WINDOW, SEND_BUFFER_LEN, STREAM_WINDOW};
use super::connection::{ConnectionActivity, Order, Protocol};
use super::exchange::{Session, answer};
use super::guarded_io::GuardedIo;
use super::handler::Handler;
use super::limits::EdgeLimits;
use super::refusal;
use super::unread_body::refused;
use super::watch::{ConnectionWatch, TimeoutReason};

/// First bytes of a client with prior knowledge of HTTP/2 (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Most bytes of a refused body that any connection reads and throws away before it is closed.
const LINGER_LEN_MAX: u64 = 4 << 20;
/// Streams reset by us because of a client's error before the connection is ended.
const ERROR_RESETS_MAX: usize = 64;

/// How a connection ended, for the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The connection was over; such an end is not counted.
    Closed,
    /// The client did not take the bytes sent to it.
    Stalled,
    /// The connection was told to end at once.
    Aborted,
}

/// Why the loop of a connection ended.
enum Turn {
    Done(Result<(), hyper::Error>),
    Expired(TimeoutReason),
    GaveWay,
    Aborted,
}

/// Finds out the protocol of a plain connection: HTTP/2 by prior knowledge, or HTTP/1. Returns the bytes read
/// for this, or `None` if the client sent nothing in time.
pub(super) async fn detect<S: AsyncRead + Unpin>(
    socket: &mut S,
    signals: &ConnectionActivity,
    limits: &EdgeLimits,
) -> Option<(Protocol, Bytes)> {
    let mut head = BytesMut::new();
    let deadline = signals.born() + limits.header_timeout;
    loop {
        let read = poll_fn(|cx| {
            signals.waker().register(cx.waker());
            if signals.order() != Order::Serve {
                return Poll::Ready(None);
            }
            poll_detect(socket, cx, &mut head).map(Some)
        });
        match tokio::time::timeout_at(deadline.into(), read).await {
            Ok(Some(Ok(len))) if len > 0 => {}
            // Shutting down, at its end, or broken. HTTP/1 answers a head that arrived in part.
            _ if head.is_empty() => return None,
            _ => return Some((Protocol::Http1, head.freeze())),
        }
        let len = head.len().min(PREFACE.len());
        if head[..len] != PREFACE[..len] {
            return Some((Protocol::Http1, head.freeze()));
        }
        if len == PREFACE.len() {
            return Some((Protocol::Http2, head.freeze()));
        }
    }
}

/// Reads bytes that may still belong to the preface. Takes memory only when there is something to read.
fn poll_detect<S: AsyncRead + Unpin>(
    socket: &mut S,
    cx: &mut Context<'_>,
    head: &mut BytesMut,
) -> Poll<io::Result<usize>> {
    let mut first = [0; PREFACE.len()];
    let room = PREFACE.len() - head.len();
    let mut buffer = tokio::io::ReadBuf::new(&mut first[..room]);
    std::task::ready!(Pin::new(socket).poll_read(cx, &mut buffer))?;
    let len = buffer.filled().len();
    head.extend_from_slice(buffer.filled());
    Poll::Ready(Ok(len))
}

/// Serves HTTP/1.1 on a socket; `replay` has been read from it already.
pub(super) async fn serve_http1<H, S>(
    socket: S,
    replay: Bytes,
    session: Arc<Session<H>>,
) -> (Ending, Option<S>)
where
    H: Handler,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = session.limits.clone();
    let signals = session.signals.clone();
    let watch = ConnectionWatch::new(&limits, session.began);
    let observer = session.observer.clone();
    let io = TokioIo::new(GuardedIo::new(socket, replay, signals.clone(), true));
    let service = service_fn(move |request| {
        let exchange = session.open_exchange();
        answer(session.clone(), request, exchange)
    });
    // No `pipeline_flush`: with it hyper buffers an answer without bound, whatever the client
    // reads, and holds it back while a next request has arrived in part. No `header_read_timeout`:
    // it would arm a timer for each request, and knows no difference between idle and slow.
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .half_close(false)
        .keep_alive(true)
        .max_headers(limits.header_fields_max)
        .max_buf_size(limits.head_buffer_len())
        .serve_connection(io, service);
    let turn = turn(&signals, watch, Pin::new(&mut connection), |connection| {
        connection.graceful_shutdown();
    })
    .await;
    let parts = connection.into_parts();
    let io = parts.io.into_inner();
    let refused_status = io.refused_status();
    let mut socket = io.into_inner();
    let (code, detail) = match turn {
        Turn::Aborted => return (Ending::Aborted, Some(socket)),
        // The place of the connection is needed now: there is no wait for the other side to close.
        Turn::GaveWay => return (Ending::Closed, None),
        Turn::Expired(TimeoutReason::Stalled) => return (Ending::Stalled, Some(socket)),
        Turn::Expired(TimeoutReason::Head) => {
            if parts
                .read_buf
                .iter()
                .all(|byte| matches!(byte, b'\r' | b'\n'))
            {
                return close(socket, &signals, &limits).await;
            }
            (ErrorCode::RequestTimeout, refusal::timeout_detail(&limits))
        }
        Turn::Done(Ok(())) | Turn::Expired(TimeoutReason::Idle) => {
            return close(socket, &signals, &limits).await;
        }
        Turn::Done(Err(error)) => match refused_status {
            Some(status) => {
                let reason = error.to_string();
                refusal::of_status(status, &reason, &parts.read_buf, &limits)
            }
            // An answer cut on purpose, or a broken socket: nothing more to say.
            None => return (Ending::Closed, None),
        },
    };
    observer.refused(code);
    let refusal = refusal::write(&mut socket, code, detail);
    match timeout(limits.linger_timeout, refusal).await {
        Ok(Ok(())) => close(socket, &signals, &limits).await,
        Ok(Err(_)) => (Ending::Closed, None),
        Err(_) => (Ending::Stalled, Some(socket)),
    }
}

/// Serves HTTP/2 on a socket; `replay` has been read from it already. Each stream runs in a task of `tasks`; all
/// of them end with the connection.
pub(super) async fn serve_http2<H, S>(
    socket: S,
    replay: Bytes,
    session: Arc<Session<H>>,
    tasks: TaskTracker,
) -> (Ending, Option<S>)
where
    H: Handler,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = session.limits.clone();
    let signals = session.signals.clone();
    let watch = ConnectionWatch::new(&limits, session.began);
    let io = TokioIo::new(GuardedIo::new(socket, replay, signals.clone(), false));
    let service = service_fn(move |request| {
        let exchange = session.open_exchange();
        answer(session.clone(), request, exchange)
    });
    let head_len = u32::try_from(limits.head_buffer_len()).unwrap_or(u32::MAX);
    let connection = http2::Builder::new(TrackedExecutor(tasks))
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(head_len)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER_LEN)
        .max_local_error_reset_streams(ERROR_RESETS_MAX)
        .keep_alive_interval(limits.ping_interval)
        .keep_alive_timeout(limits.ping_timeout)
        .serve_connection(io, service);
    let mut connection = pin!(connection);
    let mut end = turn(&signals, watch, connection.as_mut(), |connection| {
        connection.graceful_shutdown();
    })
    .await;
    if matches!(
        end,
        Turn::Expired(TimeoutReason::Idle | TimeoutReason::Head)
    ) {
        // Say goodbye; a client that does not close then is stalled.
        let patience = match end {
            Turn::Expired(TimeoutReason::Head) => limits.linger_timeout,
            _ => limits.write_timeout,
        };
        connection.as_mut().graceful_shutdown();
        end = match timeout(patience, connection.as_mut()).await {
            Ok(done) => Turn::Done(done),
            Err(_) => Turn::Expired(TimeoutReason::Stalled),
        };
    }
    match end {
        Turn::Done(_) | Turn::GaveWay | Turn::Expired(TimeoutReason::Head) => {
            (Ending::Closed, None)
        }
        Turn::Expired(_) => (Ending::Stalled, None),
        Turn::Aborted => (Ending::Aborted, None),
    }
}

/// Polls a connection until it is done, has waited too long, or is ordered to end.
async fn turn<C>(
    signals: &ConnectionActivity,
    mut watch: ConnectionWatch,
    mut connection: Pin<&mut C>,
    drain: impl Fn(Pin<&mut C>),
) -> Turn
where
    C: Future<Output = Result<(), hyper::Error>>,
{
    let mut alarm = pin!(tokio::time::sleep_until(watch.first_look().into()));
    let mut is_draining = false;
    // A task polls with the same waker for all its life. Registering it again with each turn would
    // cost a request more than everything else here.
    let mut registered: Option<Waker> = None;
    poll_fn(|cx| {
        let is_registered = registered
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()));
        // An order uses up the registration that it woke; the next order needs a new one.
        if !is_registered || signals.order() != Order::Serve {
            signals.waker().register(cx.waker());
            registered = Some(cx.waker().clone());
        }
        match signals.order() {
            Order::Serve => {}
            Order::GiveWay if signals.look().exchanges == 0 => return Poll::Ready(Turn::GaveWay),
            Order::GiveWay => signals.stay(),
            Order::Abort => return Poll::Ready(Turn::Aborted),
            Order::Drain if is_draining => {}
            Order::Drain => {
                is_draining = true;
                drain(connection.as_mut());
            }
        }
        if let Poll::Ready(done) = connection.as_mut().poll(cx) {
            return Poll::Ready(Turn::Done(done));
        }
        poll_watch(&mut watch, signals, alarm.as_mut(), is_registered, cx).map(Turn::Expired)
    })
    .await
}

fn poll_watch(
    watch: &mut ConnectionWatch,
    signals: &ConnectionActivity,
    mut alarm: Pin<&mut Sleep>,
    mut is_registered: bool,
    cx: &mut Context<'_>,
) -> Poll<TimeoutReason> {
    let seen = signals.look();
    if let Some(earlier) = watch.observe(&seen, Instant::now)
        && earlier < alarm.deadline().into_std()
    {
        alarm.as_mut().reset(earlier.into());
        is_registered = false;
    }
    if is_registered && !alarm.is_elapsed() {
        return Poll::Pending;
    }
    while alarm.as_mut().poll(cx).is_ready() {
        match watch.look(&signals.look(), Instant::now()) {
            Ok(next) => alarm.as_mut().reset(next.into()),
            Err(expiry) => return Poll::Ready(expiry),
        }
    }
    Poll::Pending
}

/// Closes our side, then reads and forgets all further bytes until the other side closes. If a socket is closed
/// with unread bytes, the client loses an answer that it has not read yet. Most clients read the answer only
/// once they have sent the whole body, so the rest of a long body takes a permit and is read for longer.
async fn close<S>(
    mut socket: S,
    signals: &ConnectionActivity,
    limits: &EdgeLimits,
) -> (Ending, Option<S>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let linger = async {
        let began = Instant::now();
        timeout(limits.linger_timeout, socket.shutdown()).await??;
        let mut scratch = vec![0; 4 << 10];
        let (mut len, mut permit) = (0, None);
        while len < refused::LEN_MAX {
            let pause = if len == 0 {
                limits.linger_timeout
            } else {
                refused::PAUSE_MAX
            };
            match timeout(pause, socket.read(&mut scratch)).await?? {
                0 => break,
                read => len += read as u64,
            }
            let is_long = len >= LINGER_LEN_MAX || began.elapsed() >= limits.linger_timeout;
            if is_long && permit.is_none() {
                permit = Some(refused::BODIES.try_acquire().map_err(io::Error::other)?);
            }
        }
        Ok::<_, io::Error>(())
    };
    // The socket is closed in any case.
    tokio::select! {
        biased;
        _ = timeout(refused::TIMEOUT, linger) => (),
        () = signals.ordered_to_abort() => (),
    }
    (Ending::Closed, None)
}

/// Runs the streams of HTTP/2 connections in tasks that the connection waits for.
#[derive(Clone)]
struct TrackedExecutor(TaskTracker);

impl<F> hyper::rt::Executor<F> for TrackedExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}
