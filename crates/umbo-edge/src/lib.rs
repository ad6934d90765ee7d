//! From sockets to requests: accept loop, TLS, protocol detection, limits, timeouts, drain.
//!
//! Owns every byte before a request has a head and after a reply has a body. Deliberately knows no
//! route, no phase of a request and no store. Invariants: every connection holds a permit and is
//! a task that [`serve`] waits for; every wait has a timeout of [`EdgeLimits`]; no input of a client
//! can harm other connections: its own connection ends, and the others do not notice.

pub mod body;
pub mod bounds;
mod connection;
pub mod content_coding;
mod doorkeeper;
mod drive;
mod exchange;
mod field_lines;
mod guarded_io;
mod handler;
mod limits;
pub mod memory;
mod refusal;
pub mod unread_body;
mod watch;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use connection::{ConnectionActivity, Order};
use doorkeeper::OpenConnections;
use drive::Ending;
use exchange::Session;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use umbo_tls::{self as tls, TlsSource};

pub use connection::{Connection, Protocol};
pub use handler::{Handler, NoObserver, Observer};
pub use limits::EdgeLimits;

/// Shortest and longest wait after a failed accept.
const ACCEPT_BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// Time for a connection that was ordered to close, before another one is ordered to.
const GIVE_WAY_TIMEOUT: Duration = Duration::from_millis(20);
/// Wait for a place if all connections have a request, before they are looked through again.
const CROWDED_WAIT: Duration = Duration::from_millis(100);
/// Resolution at which connections are ordered by the time of their last request.
const TICK: Duration = Duration::from_secs(1);
/// Time for the tasks of aborted connections to end.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

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
        ticks: Arc::default(),
    });
    let accepting = edge.accept_all(&listener, &permits);
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = edge.tick_all() => {}
        () = accepting => {}
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
    /// Seconds since the listener began.
    ticks: Arc<AtomicU32>,
}

impl<H: Handler> Edge<H> {
    /// Accepts for ever. One connection over the limit is accepted and waits until another one has
    /// given way; later ones wait in the kernel.
    async fn accept_all(self: &Arc<Self>, listener: &TcpListener, permits: &Arc<Semaphore>) {
        let mut backoff = ACCEPT_BACKOFF.0;
        loop {
            match listener.accept().await {
                Ok((socket, peer)) => {
                    backoff = ACCEPT_BACKOFF.0;
                    let address = doorkeeper::network(peer.ip());
                    if self.is_welcome(address) {
                        let permit = self.place(permits).await;
                        self.open(socket, peer, address, permit);
                    }
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

    /// Counts the time of connections.
    async fn tick_all(&self) {
        loop {
            tokio::time::sleep(TICK).await;
            self.ticks.fetch_add(1, Relaxed);
        }
    }

    /// Returns whether an address may have one more connection. At its maximum, one of its
    /// connections without a request gives way.
    fn is_welcome(&self, address: IpAddr) -> bool {
        let max = self.limits.connections_per_address_max;
        let open = self.lock_open();
        if max == 0 || open.count_of(address) < max {
            return true;
        }
        let told = open.make_room(Some(address), self.ticks.load(Relaxed));
        drop(open);
        match told {
            0 => self.observer.turned_away(),
            told => self.observer.evicted(told),
        }
        told > 0
    }

    /// Waits for a place, and tells connections without a request to give way for it.
    async fn place(&self, permits: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = permits.clone().try_acquire_owned() {
            return Some(permit);
        }
        loop {
            let told = self.lock_open().make_room(None, self.ticks.load(Relaxed));
            let wait = if told > 0 {
                self.observer.evicted(told);
                GIVE_WAY_TIMEOUT
            } else {
                CROWDED_WAIT
            };
            let permit = permits.clone().acquire_owned();
            if let Ok(permit) = tokio::time::timeout(wait, permit).await {
                return permit.ok();
            }
        }
    }

    fn open(
        self: &Arc<Self>,
        socket: TcpStream,
        peer: SocketAddr,
        address: IpAddr,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        // Only a hint; a socket that does not take it works all the same.
        let _ = socket.set_nodelay(true);
        let signals = Arc::new(ConnectionActivity::new(self.ticks.load(Relaxed)));
        let entry = OpenEntry {
            id: self.lock_open().enter(signals.clone(), address),
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
    async fn run(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        signals: Arc<ConnectionActivity>,
    ) -> Ending {
        let connection = Connection {
            peer,
            is_tls: self.tls.is_some(),
            protocol: Protocol::Http1,
            client: None,
            answers: Arc::default(),
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
        signals: Arc<ConnectionActivity>,
    ) -> Ending {
        let detected = drive::detect(&mut socket, &signals, &self.limits).await;
        let Some((protocol, replay)) = detected else {
            return Ending::Closed;
        };
        connection.protocol = protocol;
        // Boxed, so that a connection that has not said anything yet is small.
        let began = signals.born();
        let serving = self.run_http(socket, replay, connection, signals, began);
        let (ending, socket) = Box::pin(serving).await;
        if let Some(socket) = socket {
            // The kernel must not keep the bytes that the client has not taken.
            let _ = socket.set_zero_linger();
        }
        ending
    }

    async fn run_tls(
        &self,
        tls: &TlsSource,
        socket: TcpStream,
        connection: Connection,
        signals: Arc<ConnectionActivity>,
    ) -> Ending {
        let handshake = tls.acceptor().accept(socket);
        let handshake = tokio::time::timeout(self.limits.handshake_timeout, handshake);
        let outcome = tokio::select! {
            biased;
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
        signals: Arc<ConnectionActivity>,
    ) -> Ending {
        let session = socket.get_ref().1;
        if session.alpn_protocol() == Some(tls::ALPN_HTTP2) {
            connection.protocol = Protocol::Http2;
        }
        connection.client = tls::ClientCertificate::of(session);
        let (ending, socket) = self
            .run_http(socket, Bytes::new(), connection, signals, Instant::now())
            .await;
        if let Some(socket) = socket {
            let _ = socket.get_ref().0.set_zero_linger();
        }
        ending
    }

    /// Serves a connection whose protocol is known. Returns the socket if it is to be cut.
    async fn run_http<S>(
        &self,
        socket: S,
        replay: Bytes,
        connection: Connection,
        signals: Arc<ConnectionActivity>,
        began: Instant,
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
            ticks: self.ticks.clone(),
            began,
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
        let open = self.lock_open().give_all(Order::Drain);
        if tokio::time::timeout(self.limits.drain_timeout, self.tasks.wait())
            .await
            .is_err()
        {
            self.lock_open().give_all(Order::Abort);
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
}

/// A connection's place among the open ones; every end of its task gives it back.
struct OpenEntry<H> {
    id: u64,
    edge: Arc<Edge<H>>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl<H> Drop for OpenEntry<H> {
    fn drop(&mut self) {
        self.edge.lock_open().leave(self.id);
        self.edge.observer.connection_closed();
    }
}

/// Returns whether a failed accept concerns only the connection that was to be accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}
