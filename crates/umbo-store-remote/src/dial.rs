//! Making a connection to a node: address, TCP, TLS, hello and welcome.
//!
//! Owns each step and its bound. Only the hello is sent before the welcome has come, because the node
//! withdraws requests of an older connection of this dispatcher that it has not begun before it sends the
//! welcome.

use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use umbo_protocol::{
    Decoder, Hello, NodeFrame, NodeStamp, ProtocolVersion, RequestWriter, Welcome,
};
use umbo_types::Clock;

use crate::connector::Io;
use crate::dial_error::DialError;
use crate::settings::RemoteSettings;

/// Most bytes of one read of the welcome.
const READ_LEN: usize = 4 << 10;

/// A connection after the welcome.
pub(crate) struct NewConnection {
    pub(crate) io: Box<dyn Io>,
    /// Holds the bytes that were read beyond the welcome.
    pub(crate) decoder: Decoder<(NodeStamp, NodeFrame)>,
    pub(crate) welcome: Welcome,
    pub(crate) stamp: NodeStamp,
    /// When the hello was sent.
    pub(crate) asked: Instant,
    /// When the welcome was received.
    pub(crate) received: Instant,
}

/// Connects and sends the hello.
pub(crate) async fn dial(
    host: &str,
    port: u16,
    hello: &Hello,
    settings: &RemoteSettings,
    clock: &dyn Clock,
) -> Result<NewConnection, DialError> {
    let within = settings.connect_timeout;
    let late = |what| move |_| DialError::Timeout { what, within };
    let connected = timeout(within, settings.transport.connect(host, port)).await;
    let io = connected
        .map_err(late("connection"))?
        .map_err(DialError::Connect)?;
    let greeted = async {
        let io = match &settings.tls {
            None => io,
            Some(files) => Box::new(files.connect(io, host, None).await?),
        };
        greet(io, hello, clock).await
    };
    let dialled = timeout(within, greeted).await.map_err(late("welcome"))??;
    check(&dialled.welcome, hello)?;
    Ok(dialled)
}

async fn greet(
    mut io: Box<dyn Io>,
    hello: &Hello,
    clock: &dyn Clock,
) -> Result<NewConnection, DialError> {
    let mut out = Vec::new();
    RequestWriter::hello(&mut out, hello);
    let asked = clock.monotonic();
    io.write_all(&out).await.map_err(DialError::Lost)?;
    io.flush().await.map_err(DialError::Lost)?;
    let mut decoder = Decoder::of_node();
    loop {
        if let Some(frame) = decoder.next_frame()? {
            let received = clock.monotonic();
            let (stamp, NodeFrame::Welcome(welcome)) = frame.body else {
                return Err(DialError::NoWelcome);
            };
            return Ok(NewConnection {
                io,
                decoder,
                welcome,
                stamp,
                asked,
                received,
            });
        }
        decoder.buffer().reserve(READ_LEN);
        let read = io.read_buf(decoder.buffer()).await;
        if read.map_err(DialError::Lost)? == 0 {
            return Err(DialError::NoWelcome);
        }
    }
}

fn check(welcome: &Welcome, hello: &Hello) -> Result<(), DialError> {
    if let Some(refusal) = &welcome.refusal {
        return Err(refusal.clone().into());
    }
    let ProtocolVersion(version) = welcome.version;
    if !(hello.version_min..=hello.version_max).contains(&welcome.version) {
        return Err(DialError::UnknownVersion(version));
    }
    for (found, meant) in [
        (&welcome.cluster_id, &hello.cluster_id),
        (&welcome.node, &hello.node),
    ] {
        if found != meant {
            return Err(DialError::Other(format!("{found:?} instead of {meant:?}")));
        }
    }
    Ok(())
}
