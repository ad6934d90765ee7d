//! Making a connection to a node: address, TCP, TLS, HTTP/2, hello and welcome.
//!
//! Owns each step and its bound. The name is resolved each time, so that a node may come back under
//! another address.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::rt::Executor as _;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codec::Streaming;
use umbo_protocol::{
    AnswerFrame, DecodeError, EXCHANGE_PATH, FRAME_LEN_MAX, FrameCodec, Hello, OneTask, Parts,
    ProtocolVersion, Refusal, Welcome,
};

use crate::connection::Connection;
use crate::settings::RemoteSettings;
use crate::tls;

/// Bytes that a node may send before it is told that they were read: more than any answer.
const WINDOW: u32 = 8 << 20;
/// Longest frame of HTTP/2 that a node may send, in bytes.
const HTTP_FRAME_LEN_MAX: u32 = 256 << 10;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    #[error("no {what} within {} ms", within.as_millis())]
    Timeout {
        what: &'static str,
        within: Duration,
    },
    #[error("TLS: {0}")]
    Tls(String),
    #[error("what answers there is no shard node: {0}")]
    Http(String),
    #[error("the node sent what is no welcome: {0}")]
    Garbage(#[from] DecodeError),
    #[error("the node sent no welcome")]
    NoWelcome,
    #[error("the node welcomes with version {0}, which was not offered")]
    UnknownVersion(u32),
    #[error("the node answers for {0}, which was not meant")]
    Other(String),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// A connection that has been welcomed, and what it reads from.
pub(crate) struct Dialled {
    pub(crate) answers: Streaming<Bytes>,
    pub(crate) welcome: Welcome,
    /// What came with the welcome.
    pub(crate) first: AnswerFrame,
    /// What moves the bytes while it is driven.
    pub(crate) transport: OneTask,
}

/// Makes a connection on which `connection` sends, whose first frame is `hello`.
pub(crate) async fn dial(
    host: &str,
    port: u16,
    hello: &Hello,
    settings: &RemoteSettings,
    connection: &Arc<Connection>,
) -> Result<Dialled, DialError> {
    let within = settings.connect_timeout;
    let late = |what| move |_| DialError::Timeout { what, within };
    let stream = timeout(within, TcpStream::connect((host, port)))
        .await
        .map_err(late("connection"))?
        .map_err(DialError::Connect)?;
    stream.set_nodelay(true).map_err(DialError::Connect)?;
    let mut transport = OneTask::default();
    let parts = transport.parts();
    let exchanged = transport.drive(async {
        match &settings.tls {
            None => exchange(stream, parts, connection).await,
            Some(files) => {
                let stream = tls::connect(files.clone(), host, stream).await?;
                exchange(stream, parts, connection).await
            }
        }
    });
    let exchanged = timeout(within, exchanged);
    let (answers, mut first) = exchanged.await.map_err(late("welcome"))??;
    let welcome = first.welcome.take().ok_or(DialError::NoWelcome)?;
    check(&welcome, hello)?;
    Ok(Dialled {
        answers,
        welcome,
        first,
        transport,
    })
}

/// Opens the stream; returns what it answers, and the first frame of that.
async fn exchange<S>(
    stream: S,
    parts: Parts,
    connection: &Arc<Connection>,
) -> Result<(Streaming<Bytes>, AnswerFrame), DialError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let no_http = |error: hyper::Error| DialError::Http(describe(&error));
    let (sender, transport) = hyper::client::conn::http2::Builder::new(parts.clone())
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(HTTP_FRAME_LEN_MAX)
        .max_send_buf_size(WINDOW as usize)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(no_http)?;
    parts.execute(transport);
    let service = tower::service_fn(move |request| sender.clone().send_request(request));
    let origin = http::Uri::from_static("http://shard");
    let mut grpc = Grpc::with_origin(service, origin)
        .max_decoding_message_size(FRAME_LEN_MAX)
        .max_encoding_message_size(FRAME_LEN_MAX);
    let request = tonic::Request::new(connection.frames());
    let path = http::uri::PathAndQuery::from_static(EXCHANGE_PATH);
    let no_stream = |status: tonic::Status| {
        let reason = status.message();
        // What TLS refuses after its handshake is told only here.
        DialError::Http(match status.source() {
            Some(cause) => format!("{reason}: {}", describe(cause)),
            None => reason.to_owned(),
        })
    };
    let response = grpc.streaming(request, path, FrameCodec).await;
    let mut answers = response.map_err(no_stream)?.into_inner();
    let first = answers.message().await.map_err(no_stream)?;
    let first = AnswerFrame::decode(first.ok_or(DialError::NoWelcome)?)?;
    Ok((answers, first))
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

/// Describes an error with what lies under it.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
