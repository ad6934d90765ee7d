//! From sockets to requests: accept loop, TLS, protocol detection, limits, timeouts, drain.
//!
//! Owns every byte before a request has a head and after a reply has a body. Deliberately knows no
//! route, no verb of the pipeline and no store. Invariants: every connection holds a permit and is
//! a task that [`serve`] waits for; every wait has a timeout of [`EdgeLimits`]; whatever a client
//! sends, its connection ends and the others do not notice.

pub mod body;
mod connection;
mod drive;
mod exchange;
mod guarded_io;
mod limits;
mod refusal;
mod watch;

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use umbo_api::ErrorCode;
use umbo_tls::{self as tls, TlsSource};

use body::ReplyBody;
use connection::{Order, Signals};
use drive::Ending;
use exchange::Session;

pub use connection::{Connection, Protocol};
pub use limits::EdgeLimits;

/// Shortest and longest wait after a failed accept.
const ACCEPT_BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// Time for the tasks of aborted connections to end.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Who answers requests.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. Dropped without being finished when the client leaves.
    fn call(
        &self,
        request: Request<Incoming>,
        connection: &Arc<Connection>,
    ) -> impl Future<Output = Response<ReplyBody>> + Send;
}

/// Who counts what the edge does. Called on rare events only, never once per request.
pub trait Observer: Send + Sync + 'static {
    /// A connection was accepted.
    fn connection_opened(&self) {}
    /// A connection ended.
    fn connection_closed(&self) {}
    /// A request was refused before it reached the handler.
    fn refused(&self, _code: ErrorCode) {}
    /// A connection was cut because its client did not take what was sent.
    fn stalled(&self) {}
    /// A TLS handshake failed or took too long.
    fn handshake_failed(&self, _reason: &str) {}
    /// The system had no socket to give.
    fn accept_failed(&self, _error: &io::Error) {}
}

/// An observer that looks away.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}

/// How a listener ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DrainStats {
    /// Connections open when shutdown began.
    pub open: usize,
    /// Of those, the ones that had not ended in time and were aborted.
    pub aborted: usize,
}

/// Bytes that the kernel holds for a client to fetch (it doubles the number). Left alone it grows to
/// several MiB for each slow client, and it calls a socket writable only once a third of that is
/// free: a client that reads steadily but slowly would not make room within the write timeout.
const SEND_BUFFER_LEN: u32 = 256 << 10;

/// Binds a listening socket. `backlog` connections may wait to be accepted.
pub fn bind(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.set_reuseaddr(true)?;
    // Connections inherit it.
    socket.set_send_buffer_size(SEND_BUFFER_LEN)?;
    socket.bind(address)?;
    socket.listen(backlog)
}

/// Serves `listener` until `shutdown`, then drains.
///
/// On shutdown nothing more is accepted; idle connections are closed, requests in flight finish
/// (HTTP/2 clients are told by GOAWAY) for up to `limits.drain_timeout`, then are aborted.
pub async fn serve<H: Handler>(
    listener: TcpListener,
    tls: Option<Arc<TlsSource>>,
    handler: Arc<H>,
    limits: EdgeLimits,
    shutdown: CancellationToken,
    observer: Arc<dyn Observer>,
) -> DrainStats {
    let permits = Arc::new(Semaphore::new(limits.connections_max));
    let edge = Arc::new(Edge {
        tls,
        handler,
        limits: Arc::new(limits),
        observer,
        open: Mutex::default(),
        tasks: TaskTracker::new(),
    });
    let accepting = edge.accept_all(&listener, &permits);
    tokio::select! {
        () = accepting => {}
        () = shutdown.cancelled() => {}
    }
    drop(listener);
    edge.drain().await
}

/// One listener and its connections.
struct Edge<H> {
    tls: Option<Arc<TlsSource>>,
    handler: Arc<H>,
    limits: Arc<EdgeLimits>,
    observer: Arc<dyn Observer>,
    open: Mutex<OpenConnections>,
    tasks: TaskTracker,
}

#[derive(Default)]
struct OpenConnections {
    next_id: u64,
    signals: HashMap<u64, Arc<Signals>>,
    aborted: usize,
}

impl<H: Handler> Edge<H> {
    /// Accepts for ever. The permit comes first, so that connections over the limit wait in the
    /// kernel instead of here.
    async fn accept_all(self: &Arc<Self>, listener: &TcpListener, permits: &Arc<Semaphore>) {
        let mut backoff = ACCEPT_BACKOFF.0;
        loop {
            let Ok(permit) = permits.clone().acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((socket, peer)) => {
                    backoff = ACCEPT_BACKOFF.0;
                    self.open(socket, peer, permit);
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    self.observer.accept_failed(&error);
                    tracing::warn!(%error, "cannot accept connections; trying again");
                    tokio::time::sleep(backoff).await;
                    backoff = (backoff * 2).min(ACCEPT_BACKOFF.1);
                }
            }
        }
    }

    fn open(self: &Arc<Self>, socket: TcpStream, peer: SocketAddr, permit: OwnedSemaphorePermit) {
        // Only a hint; a socket that does not take it works all the same.
        let _ = socket.set_nodelay(true);
        let signals = Arc::new(Signals::new());
        let entry = OpenEntry {
            id: self.enter(signals.clone()),
            edge: self.clone(),
            _permit: permit,
        };
        self.observer.connection_opened();
        self.tasks.spawn(async move {
            if entry.edge.run(socket, peer, signals).await == Ending::Aborted {
                entry.edge.lock_open().aborted += 1;
            }
        });
    }

    /// Serves one connection to its end.
    async fn run(&self, socket: TcpStream, peer: SocketAddr, signals: Arc<Signals>) -> Ending {
        let connection = Connection {
            peer,
            is_tls: self.tls.is_some(),
            protocol: Protocol::Http1,
            client_subject: None,
        };
        let ending = if let Some(tls) = &self.tls {
            Box::pin(self.run_tls(tls, socket, connection, signals)).await
        } else {
            self.run_plain(socket, connection, signals).await
        };
        if ending == Ending::Stalled {
            self.observer.stalled();
        }
        ending
    }

    async fn run_plain(
        &self,
        mut socket: TcpStream,
        mut connection: Connection,
        signals: Arc<Signals>,
    ) -> Ending {
        let detected = drive::detect(&mut socket, &signals, &self.limits).await;
        let Some((protocol, replay)) = detected else {
            return Ending::Closed;
        };
        connection.protocol = protocol;
        // Boxed, so that a connection that has not said anything yet is small.
        let (ending, socket) = Box::pin(self.run_http(socket, replay, connection, signals)).await;
        if let Some(socket) = socket {
            // What the client has not taken is not to be kept by the kernel either.
            let _ = socket.set_zero_linger();
        }
        ending
    }

    async fn run_tls(
        &self,
        tls: &TlsSource,
        socket: TcpStream,
        connection: Connection,
        signals: Arc<Signals>,
    ) -> Ending {
        let handshake = tls.acceptor().accept(socket);
        let handshake = tokio::time::timeout(self.limits.handshake_timeout, handshake);
        let outcome = tokio::select! {
            outcome = handshake => outcome,
            () = signals.ordered_to_stop() => return Ending::Closed,
        };
        let reason = match outcome {
            Ok(Ok(socket)) => return self.run_secured(socket, connection, signals).await,
            Ok(Err(error)) => error.to_string(),
            Err(elapsed) => elapsed.to_string(),
        };
        tracing::debug!(peer = %connection.peer, reason, "TLS handshake failed");
        self.observer.handshake_failed(&reason);
        Ending::Closed
    }

    async fn run_secured(
        &self,
        socket: TlsStream<TcpStream>,
        mut connection: Connection,
        signals: Arc<Signals>,
    ) -> Ending {
        let session = socket.get_ref().1;
        if session.alpn_protocol() == Some(tls::ALPN_HTTP2) {
            connection.protocol = Protocol::Http2;
        }
        connection.client_subject = tls::client_subject(session);
        let (ending, socket) = self
            .run_http(socket, Bytes::new(), connection, signals)
            .await;
        if let Some(socket) = socket {
            let _ = socket.get_ref().0.set_zero_linger();
        }
        ending
    }

    /// Serves a connection whose protocol is known. Returns the socket where it is to be cut.
    async fn run_http<S>(
        &self,
        socket: S,
        replay: Bytes,
        connection: Connection,
        signals: Arc<Signals>,
    ) -> (Ending, Option<S>)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let protocol = connection.protocol;
        let session = Arc::new(Session {
            handler: self.handler.clone(),
            connection: Arc::new(connection),
            signals,
            limits: self.limits.clone(),
            observer: self.observer.clone(),
        });
        match protocol {
            Protocol::Http1 => drive::serve_http1(socket, replay, session).await,
            Protocol::Http2 => {
                let tasks = self.tasks.clone();
                drive::serve_http2(socket, replay, session, tasks).await
            }
        }
    }

    async fn drain(&self) -> DrainStats {
        self.tasks.close();
        let open = self.give_all(Order::Drain);
        if tokio::time::timeout(self.limits.drain_timeout, self.tasks.wait())
            .await
            .is_err()
        {
            self.give_all(Order::Abort);
            if tokio::time::timeout(ABORT_TIMEOUT, self.tasks.wait())
                .await
                .is_err()
            {
                tracing::error!(
                    tasks = self.tasks.len(),
                    "tasks do not end after their abort"
                );
            }
        }
        DrainStats {
            open,
            aborted: self.lock_open().aborted,
        }
    }
}

impl<H> Edge<H> {
    fn lock_open(&self) -> std::sync::MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, signals: Arc<Signals>) -> u64 {
        let mut open = self.lock_open();
        open.next_id += 1;
        let id = open.next_id;
        open.signals.insert(id, signals);
        id
    }

    /// Gives an order to all connections; returns how many there are.
    fn give_all(&self, order: Order) -> usize {
        let open = self.lock_open();
        for signals in open.signals.values() {
            signals.give(order);
        }
        open.signals.len()
    }
}

/// A connection's place among the open ones; given back however its task ends.
struct OpenEntry<H> {
    id: u64,
    edge: Arc<Edge<H>>,
    _permit: OwnedSemaphorePermit,
}

impl<H> Drop for OpenEntry<H> {
    fn drop(&mut self) {
        self.edge.lock_open().signals.remove(&self.id);
        self.edge.observer.connection_closed();
    }
}

/// Says whether a failed accept concerns only the connection that was to be accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}
