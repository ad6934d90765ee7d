//! A network in memory between the store and nodes, whose wires can be held and cut.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, split};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use umbo_shard::{Node, serve_connection};
use umbo_store_remote::{Connector, Io};

/// Bytes that each part of a connection can hold.
const PIPE_LEN: usize = 64 << 10;

/// What a wire lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Open,
    /// Bytes from the node are held back.
    Deaf,
    /// Bytes in both directions are held back.
    Frozen,
    /// Existing connections are closed, and new ones at once.
    Cut,
}

/// The wire to a node.
#[derive(Debug)]
pub(crate) struct Wire(watch::Sender<Mode>);

impl Wire {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(Mode::Open))
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.0.send_replace(mode);
    }
}

/// The connections of a node.
#[derive(Debug)]
struct Port {
    node: Arc<Node>,
    modes: watch::Receiver<Mode>,
    drain: CancellationToken,
    connections: TaskTracker,
}

/// The nodes that can be reached, by the host of their address.
#[derive(Debug, Default)]
pub(crate) struct Network(Mutex<BTreeMap<String, Port>>);

impl Network {
    /// Accepts connections for a node.
    pub(crate) fn serve(&self, host: &str, node: Arc<Node>, wire: &Wire) {
        let port = Port {
            node,
            modes: wire.0.subscribe(),
            drain: CancellationToken::new(),
            connections: TaskTracker::new(),
        };
        let mut ports = self.0.lock().expect("nobody panicked");
        ports.insert(host.to_owned(), port);
    }

    /// Accepts no more connections for a node, and waits until those that it has are drained.
    pub(crate) async fn stop(&self, host: &str) {
        let port = self.0.lock().expect("nobody panicked").remove(host);
        let port = port.expect("it is served");
        port.node.begin_drain();
        port.drain.cancel();
        port.connections.close();
        port.connections.wait().await;
    }
}

#[async_trait]
impl Connector for Network {
    async fn connect(&self, host: &str, _port: u16) -> io::Result<Box<dyn Io>> {
        let ports = self.0.lock().expect("nobody panicked");
        let port = ports.get(host).ok_or(io::ErrorKind::ConnectionRefused)?;
        let (own, outer) = tokio::io::duplex(PIPE_LEN);
        let (inner, served) = tokio::io::duplex(PIPE_LEN);
        tokio::spawn(join(outer, inner, port.modes.clone()));
        let serving = serve_connection(Arc::clone(&port.node), served, port.drain.clone());
        port.connections.spawn(serving);
        Ok(Box::new(own))
    }
}

async fn join(outer: DuplexStream, inner: DuplexStream, modes: watch::Receiver<Mode>) {
    let (outer_in, outer_out) = split(outer);
    let (inner_in, inner_out) = split(inner);
    let mut cut = modes.clone();
    let asked = pass(outer_in, inner_out, modes.clone(), |mode| {
        mode == Mode::Frozen
    });
    let told = pass(inner_in, outer_out, modes, |mode| {
        matches!(mode, Mode::Frozen | Mode::Deaf)
    });
    tokio::select! {
        () = asked => {}
        () = told => {}
        _ = cut.wait_for(|mode| *mode == Mode::Cut) => {}
    }
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut modes: watch::Receiver<Mode>,
    is_held: impl Fn(Mode) -> bool,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(len) = from.read(&mut buffer).await {
        if modes.wait_for(|mode| !is_held(*mode)).await.is_err() {
            return;
        }
        if len == 0 || to.write_all(&buffer[..len]).await.is_err() {
            return;
        }
    }
}
