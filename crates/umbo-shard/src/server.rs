//! The port of a node: accepts connections, on TCP or TLS, and serves each in a separate task.
//!
//! The invariants: every connection is a task that [`serve`] waits for and that holds a permit; every wait
//! has a timeout.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use umbo_tls::TlsSource;

use crate::connection::serve_connection;
use crate::node::Node;

/// Length of the kernel's queue of connections that wait to be accepted.
const BACKLOG: u32 = 1_024;
/// Shortest and longest wait after a failed accept.
pub(crate) const ACCEPT_BACKOFF: (Duration, Duration) =
    (Duration::from_millis(10), Duration::from_secs(1));
/// Timeout for the tasks of aborted connections.
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

/// Result of closing a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Closed {
    /// Connections that were open when the node began to stop.
    pub connections: usize,
    /// Connections among them that did not end in time and were aborted.
    pub cut: usize,
}

/// Serves a node on `listener` until `stop`, then drains: no connection is accepted, every dispatcher is
/// notified, pending requests are answered, and dispatchers close their connections when they have their
/// answers, for up to the drain timeout. The remaining connections are aborted; their writes that the store
/// has begun complete when it is closed.
pub async fn serve(listener: TcpListener, node: Arc<Node>, stop: CancellationToken) -> Closed {
    serve_tls(listener, None, node, stop).await
}

/// Like [`serve`], with TLS if there are certificates.
pub async fn serve_tls(
    listener: TcpListener,
    tls: Option<Arc<TlsSource>>,
    node: Arc<Node>,
    stop: CancellationToken,
) -> Closed {
    let limits = node.limits().clone();
    let permits = Arc::new(Semaphore::new(limits.connections_max));
    let port = NodePort {
        node: Arc::clone(&node),
        tls,
        drain: CancellationToken::new(),
        abort: CancellationToken::new(),
        tasks: TaskTracker::new(),
    };
    stop.run_until_cancelled(port.accept_all(&listener, &permits))
        .await;
    drop(listener);
    let connections = node.connections_open();
    node.begin_drain();
    port.drain.cancel();
    port.tasks.close();
    let ended = timeout(limits.drain_timeout, port.tasks.wait()).await;
    let cut = if ended.is_ok() {
        0
    } else {
        node.connections_open()
    };
    port.abort.cancel();
    // Aborted tasks only have to be polled once more.
    let _ = timeout(ABORT_TIMEOUT, port.tasks.wait()).await;
    Closed { connections, cut }
}

/// A listener and its connections.
struct NodePort {
    node: Arc<Node>,
    tls: Option<Arc<TlsSource>>,
    drain: CancellationToken,
    abort: CancellationToken,
    tasks: TaskTracker,
}

impl NodePort {
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
                    tracing::warn!(%error, "accepting a connection failed; trying again");
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
            // A connection without TCP_NODELAY is served nevertheless.
            let _ = socket.set_nodelay(true);
            // Boxed: the state of a connection is large, and with TLS larger.
            let serving: Pin<Box<dyn Future<Output = String> + Send>> = match tls {
                None => Box::pin(serve_plain(node, socket, drain)),
                Some(tls) => Box::pin(serve_on_tls(node, socket, tls, drain)),
            };
            if let Some(ending) = abort.run_until_cancelled(serving).await {
                tracing::debug!(%peer, ending, "a connection ended");
            } else {
                tracing::debug!(%peer, "aborted a connection");
            }
            drop(permit);
        });
    }
}

async fn serve_plain(node: Arc<Node>, socket: TcpStream, drain: CancellationToken) -> String {
    serve_connection(node, socket, drain).await.to_string()
}

async fn serve_on_tls(
    node: Arc<Node>,
    socket: TcpStream,
    tls: TlsAcceptor,
    drain: CancellationToken,
) -> String {
    let within = node.limits().handshake_timeout;
    match timeout(within, tls.accept(socket)).await {
        Ok(Ok(socket)) => serve_connection(node, socket, drain).await.to_string(),
        Ok(Err(error)) => format!("TLS: {error}"),
        Err(_) => "no TLS handshake in time".to_owned(),
    }
}
