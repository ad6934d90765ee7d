//! A wire between the store and a node that can be held and cut.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the wire lets through.
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

pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    mode: watch::Sender<Mode>,
    task: JoinHandle<()>,
}

impl Wire {
    pub(crate) async fn to(node: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mode = watch::Sender::new(Mode::Open);
        let modes = mode.subscribe();
        let task = tokio::spawn(async move {
            loop {
                let (outer, _) = listener.accept().await.expect("a connection");
                tokio::spawn(join(outer, node, modes.clone()));
            }
        });
        Self {
            address,
            mode,
            task,
        }
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn join(outer: TcpStream, node: SocketAddr, modes: watch::Receiver<Mode>) {
    let Ok(inner) = TcpStream::connect(node).await else {
        return;
    };
    let (outer_in, outer_out) = outer.into_split();
    let (inner_in, inner_out) = inner.into_split();
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
