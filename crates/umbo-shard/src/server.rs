//! The port of a node: accepts connections, shakes hands, and serves their streams.
//!
//! Plain gRPC over HTTP/2, spoken by hand: the one method has streams of bytes in both directions,
//! so that all there is to it is a path, a few headers and the trailers. The invariants: every
//! connection is a task that [`serve`] waits for and holds a permit; every wait has a timeout.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use umbo_protocol::{EXCHANGE_PATH, OneTask, Parts};
use umbo_tls::TlsSource;

use crate::limits::{STREAMS_PER_CONNECTION_MAX, WINDOW_LEN};
use crate::node::Node;

mod reply;

use self::reply::Reply;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1_024;
/// Shortest and longest wait after a failed accept.
pub(crate) const ACCEPT_BACKOFF: (Duration, Duration) =
    (Duration::from_millis(10), Duration::from_secs(1));
/// How often a peer is asked whether it is still there, and how long it may take to say so.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(10));
/// Bytes of answers that a stream may have waiting for the connection.
const SEND_BUFFER_LEN: usize = 512 << 10;
/// Longest frame of HTTP/2 that is read, in bytes.
const HTTP2_FRAME_LEN_MAX: u32 = 64 << 10;
/// Longest list of headers, in bytes.
const HEADERS_LEN_MAX: u32 = 8 << 10;
/// Time for the tasks of aborted connections to end.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Binds a listening socket.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// How a port was closed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Closed {
    /// Streams open when the node was told to stop.
    pub streams: usize,
    /// Of those, the ones that had not ended in time and were cut off.
    pub cut: usize,
}

/// Serves a node on `listener` until `stop`, then drains: nothing more is accepted, every stream is
/// told, what was sent is answered, and streams end when their peers have said everything, for up
/// to the drain timeout. Afterwards every write that was begun has come to its end.
pub async fn serve(listener: TcpListener, node: Arc<Node>, stop: CancellationToken) -> Closed {
    serve_tls(listener, None, node, stop).await
}

/// The same, with TLS where there are certificates.
pub async fn serve_tls(
    listener: TcpListener,
    tls: Option<Arc<TlsSource>>,
    node: Arc<Node>,
    stop: CancellationToken,
) -> Closed {
    let limits = node.limits().clone();
    let permits = Arc::new(Semaphore::new(limits.connections_max));
    let port = Port {
        node: Arc::clone(&node),
        tls,
        drain: CancellationToken::new(),
        abort: CancellationToken::new(),
        tasks: TaskTracker::new(),
    };
    stop.run_until_cancelled(port.accept_all(&listener, &permits))
        .await;
    drop(listener);
    let streams = node.streams_open();
    node.begin_drain();
    port.drain.cancel();
    port.tasks.close();
    let ended = tokio::time::timeout(limits.drain_timeout, port.tasks.wait()).await;
    let cut = if ended.is_ok() {
        0
    } else {
        node.streams_open()
    };
    port.abort.cancel();
    // Tasks that were told to stop only have to be polled once more.
    let _ = tokio::time::timeout(ABORT_TIMEOUT, port.tasks.wait()).await;
    node.finish().await;
    Closed { streams, cut }
}

/// A listener and its connections.
struct Port {
    node: Arc<Node>,
    tls: Option<Arc<TlsSource>>,
    drain: CancellationToken,
    abort: CancellationToken,
    tasks: TaskTracker,
}

impl Port {
    async fn accept_all(&self, listener: &TcpListener, permits: &Arc<Semaphore>) {
        let mut wait = ACCEPT_BACKOFF.0;
        loop {
            let permit = Arc::clone(permits).acquire_owned().await;
            let permit = permit.expect("nobody closes the semaphore");
            match listener.accept().await {
                Ok((socket, peer)) => {
                    wait = ACCEPT_BACKOFF.0;
                    self.begin(socket, peer, permit);
                }
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted; trying again");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(ACCEPT_BACKOFF.1);
                }
            }
        }
    }

    fn begin(&self, socket: TcpStream, peer: SocketAddr, permit: OwnedSemaphorePermit) {
        let node = Arc::clone(&self.node);
        let tls = self.tls.as_ref().map(|source| source.acceptor());
        let (drain, abort) = (self.drain.clone(), self.abort.clone());
        self.tasks.spawn(async move {
            // A connection that cannot be told to send at once is served all the same.
            let _ = socket.set_nodelay(true);
            let serving = async {
                match tls {
                    None => serve_connection(node, socket, drain).await,
                    Some(tls) => {
                        let wait = node.limits().handshake_timeout;
                        let shaken = tokio::time::timeout(wait, tls.accept(socket)).await;
                        let socket = shaken.map_err(|_| "no TLS handshake in time")??;
                        serve_connection(node, socket, drain).await
                    }
                }
            };
            match abort.run_until_cancelled(serving).await {
                Some(Err(error)) => tracing::debug!(%peer, %error, "a connection failed"),
                Some(Ok(())) => {}
                None => tracing::debug!(%peer, "cut a connection off"),
            }
            drop(permit);
        });
    }
}

type ConnectionError = Box<dyn std::error::Error + Send + Sync>;

/// Serves the streams of one connection until it ends; lets them end once `drain` is cancelled. One
/// that has no stream for as long as a handshake may take is closed.
async fn serve_connection(
    node: Arc<Node>,
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    drain: CancellationToken,
) -> Result<(), ConnectionError> {
    let idle_timeout = node.limits().handshake_timeout;
    // One for the connection itself, one for each stream.
    let streams = Arc::new(());
    let counted = Arc::clone(&streams);
    let mut all = OneTask::default();
    let parts = all.parts();
    let service = service_fn(move |request| {
        let reply = answer(&node, request, &parts, &counted);
        async move { Ok::<_, Infallible>(reply) }
    });
    let connection = http2::Builder::new(all.parts())
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW_LEN)
        .initial_connection_window_size(WINDOW_LEN)
        .max_frame_size(HTTP2_FRAME_LEN_MAX)
        .max_header_list_size(HEADERS_LEN_MAX)
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .max_send_buf_size(SEND_BUFFER_LEN)
        .keep_alive_interval(KEEP_ALIVE.0)
        .keep_alive_timeout(KEEP_ALIVE.1)
        .serve_connection(TokioIo::new(io), service);
    // On the heap: there is one a connection, and it is large.
    let serving = Box::pin(async {
        let mut connection = std::pin::pin!(connection);
        let mut look = tokio::time::interval(idle_timeout);
        look.reset();
        loop {
            tokio::select! {
                ended = connection.as_mut() => return Ok(ended?),
                () = drain.cancelled() => break,
                // This one and that of the service.
                _ = look.tick() => if Arc::strong_count(&streams) <= 2 {
                    return Err("no stream on it".into());
                },
            }
        }
        connection.as_mut().graceful_shutdown();
        Ok(connection.await?)
    });
    all.drive(serving).await
}

/// Answers the head of a request.
fn answer(
    node: &Arc<Node>,
    request: Request<Incoming>,
    parts: &Parts,
    streams: &Arc<()>,
) -> Response<Reply> {
    let is_grpc = request
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    if !is_grpc || request.method() != http::Method::POST {
        let mut refusal = Response::new(Reply::Nothing);
        *refusal.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return refusal;
    }
    let reply = if request.uri().path() == EXCHANGE_PATH {
        let (node, streams) = (Arc::clone(node), Arc::clone(streams));
        Reply::exchange(node, request.into_body(), parts.clone(), streams)
    } else {
        Reply::unimplemented(request.uri().path())
    };
    let mut response = Response::new(reply);
    let grpc = header::HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, grpc);
    response
}
