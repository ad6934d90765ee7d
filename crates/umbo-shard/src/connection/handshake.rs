//! Identification of the peer: hello and welcome, within the handshake timeout.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;
use umbo_protocol::{AnswerWriter, Decoder, DispatcherFrame, Hello, ProtocolVersion, Welcome};
use umbo_store::RecordsRevision;

use crate::connection_end::ConnectionEnd;
use crate::connections::OpenConnection;
use crate::node::Node;

/// A connection whose dispatcher was welcomed.
pub(super) struct Greeted<Io> {
    pub(super) io: Io,
    /// Holds the bytes behind the hello.
    pub(super) decoder: Decoder<DispatcherFrame>,
    pub(super) answers: AnswerWriter,
    /// Bytes that the dispatcher may send before it is granted more.
    pub(super) window: u32,
    /// The version in use, and the revision of Umbo's own records that the dispatcher has heard of.
    pub(super) terms: (ProtocolVersion, RecordsRevision),
}

/// Welcomes a dispatcher. Before that, older connections of the same dispatcher process have ended, and their
/// requests that were not begun are withdrawn.
pub(super) async fn greet<Io: AsyncRead + AsyncWrite + Unpin>(
    node: &Arc<Node>,
    place: &OpenConnection,
    mut io: Io,
) -> Result<Greeted<Io>, ConnectionEnd> {
    let within = node.limits().handshake_timeout;
    let greeting = async {
        let mut decoder = Decoder::of_dispatcher();
        let hello = read_hello(&mut io, &mut decoder).await?;
        let map = node.cluster_map();
        let mut welcome = hello.welcome(map.cluster_id(), node.name(), map.version());
        if let Some(refusal) = &welcome.refusal {
            node.metrics().record_connection_refused();
            node.log_refused(refusal, &hello.software);
        } else {
            place.supersede(hello.incarnation).await;
        }
        welcome.wall = Some(node.clock().wall());
        welcome.program_version = Some(env!("CARGO_PKG_VERSION").to_owned());
        send(node, &mut io, &welcome).await?;
        Ok((decoder, hello, welcome))
    };
    let greeted = timeout(within, greeting).await;
    let (decoder, hello, welcome) = greeted.unwrap_or(Err(ConnectionEnd::NoHello(within)))?;
    if let Some(refusal) = welcome.refusal {
        return Err(ConnectionEnd::Refused(refusal));
    }
    Ok(Greeted {
        io,
        decoder,
        answers: AnswerWriter::new(hello.window),
        window: welcome.window,
        terms: (welcome.version, hello.records),
    })
}

async fn read_hello(
    io: &mut (impl AsyncRead + Unpin),
    decoder: &mut Decoder<DispatcherFrame>,
) -> Result<Hello, ConnectionEnd> {
    loop {
        if let Some(frame) = decoder.next_frame()? {
            return match frame.body {
                DispatcherFrame::Hello(hello) => Ok(hello),
                _ => Err(ConnectionEnd::NotOneHello),
            };
        }
        if io.read_buf(decoder.buffer()).await? == 0 {
            let is_within_frame = !decoder.buffer().is_empty();
            return Err(if is_within_frame {
                ConnectionEnd::Cut
            } else {
                ConnectionEnd::Closed
            });
        }
    }
}

async fn send(
    node: &Node,
    io: &mut (impl AsyncWrite + Unpin),
    welcome: &Welcome,
) -> Result<(), ConnectionEnd> {
    let mut out = Vec::new();
    AnswerWriter::welcome(&mut out, &node.stamp(), welcome);
    io.write_all(&out).await?;
    io.flush().await?;
    Ok(())
}
